//! What the tracker says of small hand-made conversations.

use crate::packets::{ACK, FIN, RST, SECOND, SYN, packet, tcp};
use flowgauge_flow::{
    EndReason, FlowConfig, FlowId, FlowState, FlowTracker, PacketFlow, PacketFlowFlags, Withheld,
};
use flowgauge_wire::{DecodeFlags, Decoded, Nanos, Tunnel, TunnelKind};

#[derive(Clone, Debug)]
struct Summary {
    id: FlowId,
    flow_id: u64,
    packets: [u64; 2],
    retransmitted: [u64; 2],
    out_of_order: [u64; 2],
    state: FlowState,
    history: String,
    rtt: Option<u64>,
    seconds: u64,
    vlans: Vec<u16>,
    fragments: u64,
    tunnel: Option<Tunnel>,
    reason: EndReason,
}

fn drain(tracker: &mut FlowTracker) -> Vec<Summary> {
    let mut all = Vec::new();
    tracker.drain_ended(|id, record| {
        let both = |from: u64, to: u64| [from, to];
        let (from, to) = (&record.source, &record.destination);
        all.push(Summary {
            id,
            flow_id: record.flow_id,
            packets: both(from.packets, to.packets),
            retransmitted: both(from.retransmitted, to.retransmitted),
            out_of_order: both(from.out_of_order, to.out_of_order),
            state: record.state,
            history: record.history.to_owned(),
            rtt: record.handshake_rtt.map(|rtt| rtt.0),
            seconds: (record.end - record.start).0 / SECOND,
            vlans: record.vlans.to_vec(),
            fragments: record.fragments,
            tunnel: record.tunnel.copied(),
            reason: record.end_reason,
        });
    });
    all
}

fn run(config: FlowConfig, packets: &[Decoded]) -> (Vec<PacketFlow>, Vec<Summary>) {
    let mut tracker = FlowTracker::new(config);
    let mut refs = Vec::new();
    tracker.process(packets, &[], &mut refs);
    let mut all = drain(&mut tracker);
    tracker.finish();
    all.extend(drain(&mut tracker));
    assert!(tracker.is_empty());
    (refs, all)
}

fn handshake(start: u32) -> Vec<Decoded> {
    vec![
        tcp(false, SECOND, SYN, start, 0, 0),
        tcp(
            true,
            SECOND + 3,
            SYN.with(ACK),
            8999,
            start.wrapping_add(1),
            0,
        ),
        tcp(false, SECOND + 5, ACK, start.wrapping_add(1), 9000, 0),
    ]
}

/// What was kept away behind a packet that got lost is counted before a packet that came behind it, which is then the next of its
/// connection.
#[test]
fn counts_that_wait_are_taken_before_a_packet_behind_them() {
    let (mut tracker, mut refs) = (FlowTracker::new(FlowConfig::default()), Vec::new());
    let mut packets = handshake(99);
    packets.push(tcp(false, SECOND + 6, ACK, 100, 9000, 10));
    tracker.process(&packets, &[], &mut refs);
    let (flow, direction) = (refs[0].id, packets[0].direction);
    let mut counts = [Withheld::default(); 2];
    counts[direction.index()] = Withheld {
        packets: 3,
        bytes: 300,
        data_packets: 3,
        data_bytes: 300,
        ip_bytes: 150,
        payload_bytes: 30,
        tcp_flags: ACK,
        first_seq: Some(120),
        next_seq: Some(150),
        ack: Some((9000, 100)),
        first: Nanos(SECOND + 7),
        last: Nanos(SECOND + 9),
        in_turn: true,
    };
    tracker.count_withheld(flow, &counts);
    assert_eq!(tracker.sent(flow, direction), 3, "they wait for 110 to 119");
    let before = tcp(true, SECOND + 8, ACK, 9000, 110, 0);
    tracker.process(&[before], &[], &mut refs);
    assert_eq!(
        tracker.sent(flow, direction),
        3,
        "it acknowledges nothing of them"
    );
    let next = tcp(false, SECOND + 10, ACK, 150, 9000, 10);
    tracker.process(&[next], &[], &mut refs);
    assert_eq!(tracker.sent(flow, direction), 7);
    tracker.finish();
    let flows = drain(&mut tracker);
    assert_eq!(flows[0].packets, [7, 2]);
    assert_eq!(flows[0].out_of_order, [0, 0]);
}

#[test]
fn a_whole_connection() {
    let mut packets = handshake(99);
    packets.extend([
        tcp(false, SECOND + 6, ACK, 100, 9000, 10),
        tcp(true, SECOND + 7, ACK, 9000, 110, 20),
        tcp(false, SECOND + 8, ACK, 110, 9020, 0),
        tcp(false, SECOND + 9, FIN.with(ACK), 110, 9020, 0),
        tcp(true, SECOND + 10, FIN.with(ACK), 9020, 111, 0),
        tcp(false, SECOND + 11, ACK, 111, 9021, 0),
    ]);
    let (refs, flows) = run(FlowConfig::default(), &packets);
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].history, "ShADdFf");
    assert_eq!(flows[0].state, FlowState::SF);
    assert_eq!(flows[0].reason, EndReason::Fin);
    assert_eq!(flows[0].packets, [6, 3]);
    assert_eq!(flows[0].rtt, Some(5));
    assert!(refs[0].is_new() && refs[0].from_initiator());
    assert!(!refs[1].is_new() && !refs[1].from_initiator());
    let closes: Vec<bool> = refs
        .iter()
        .map(|flow| flow.flags.contains(PacketFlowFlags::CLOSES))
        .collect();
    assert_eq!(closes.iter().position(|&closes| closes), Some(7));
    assert!(refs[8].flags.contains(PacketFlowFlags::AFTER_CLOSE));
}

/// The same segments with the sequence space wrapping at every place within them.
#[test]
fn retransmitted_and_out_of_order_across_the_wrap() {
    for back_off in 0..80u32 {
        let isn = u32::MAX - back_off;
        let at = |offset: u32| isn.wrapping_add(1).wrapping_add(offset);
        let mut packets = handshake(isn);
        for (offset, len) in [
            (0, 10),
            (20, 10), // leaves a hole of ten
            (40, 10), // and another
            (0, 10),  // sent again
            (10, 10), // fills the first
            (10, 10), // sent again
            (30, 5),  // fills half of the second
            (35, 5),  // and the rest
            (40, 10), // sent again
            (50, 10),
        ] {
            packets.push(tcp(false, 2 * SECOND, ACK, at(offset), 9000, len));
        }
        let (_, flows) = run(FlowConfig::default(), &packets);
        assert_eq!(flows[0].retransmitted, [3, 0], "ISN {isn}");
        assert_eq!(flows[0].out_of_order, [3, 0], "ISN {isn}");
        assert_eq!(flows[0].history, "ShADT", "ISN {isn}");
    }
}

#[test]
fn gaps_are_in_the_history_once_acknowledged() {
    let mut packets = handshake(99);
    packets.extend([
        tcp(false, 2 * SECOND, ACK, 100, 9000, 10),
        tcp(false, 2 * SECOND, ACK, 120, 9000, 10),
        tcp(true, 2 * SECOND, ACK, 9000, 110, 0),
        tcp(true, 2 * SECOND, ACK, 9000, 130, 0),
        tcp(true, 2 * SECOND, ACK, 9000, 200, 0),
    ]);
    let (_, flows) = run(FlowConfig::default(), &packets);
    assert_eq!(flows[0].history, "ShADaG");
    assert_eq!(flows[0].out_of_order, [0, 0]);
}

/// Found by `stream/tests/stream/accounts.rs`, seed 183835.
#[test]
fn half_the_sequence_space_is_a_size() {
    const HALF: u32 = 99 + (1 << 31);
    let mut packets = handshake(99);
    packets.extend([
        tcp(false, 2 * SECOND, ACK, HALF - 10, 9000, 10),
        tcp(true, 2 * SECOND, ACK, 9000, HALF, 0),
        tcp(false, 2 * SECOND, RST, HALF, 0, 0),
        tcp(true, 2 * SECOND, RST, 9000, 0, 0),
    ]);
    let (_, flows) = run(FlowConfig::default(), &packets);
    assert_eq!(flows[0].state, FlowState::Rstr);
}

#[test]
fn a_syn_after_the_end_begins_a_flow_and_ids_stay_apart_within_a_batch() {
    let mut packets = handshake(99);
    packets.push(tcp(true, SECOND + 8, RST.with(ACK), 9000, 100, 0));
    packets.push(tcp(false, SECOND + 9, SYN, 5000, 0, 0));
    let (refs, flows) = run(FlowConfig::default(), &packets);
    assert!(refs[3].flags.contains(PacketFlowFlags::RST_VALID));
    assert!(refs[4].is_new());
    assert_ne!(refs[3].id, refs[4].id);
    assert_eq!(flows[0].reason, EndReason::Rst);
    assert_eq!(flows[0].state, FlowState::Rstr);
    assert_eq!(flows[1].state, FlowState::S0);
    assert_eq!(flows[1].reason, EndReason::EndOfInput);
    assert_ne!(flows[0].flow_id, flows[1].flow_id);
}

#[test]
fn a_reset_far_outside_the_window_does_not_end_the_flow() {
    let mut packets = handshake(99);
    packets.push(tcp(true, SECOND + 8, RST, 9000 + (1 << 30), 0, 0));
    packets.push(tcp(false, 30 * SECOND, ACK, 100, 9000, 10));
    let (refs, flows) = run(FlowConfig::default(), &packets);
    assert!(!refs[3].flags.contains(PacketFlowFlags::RST_VALID));
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0].reason, EndReason::EndOfInput);
}

#[test]
fn a_closed_flow_lingers_for_what_comes_late() {
    let mut packets = handshake(99);
    packets.extend([
        tcp(false, 2 * SECOND, FIN.with(ACK), 100, 9000, 0),
        tcp(true, 2 * SECOND, FIN.with(ACK), 9000, 101, 0),
        tcp(true, 5 * SECOND, FIN.with(ACK), 9000, 101, 0),
        tcp(false, 11 * SECOND, ACK, 101, 9001, 0),
    ]);
    let (refs, flows) = run(FlowConfig::default(), &packets);
    assert_eq!(refs[5].id, refs[0].id);
    assert!(refs[6].is_new(), "the linger time was over");
    assert_eq!(flows[0].packets, [3, 3]);
    assert_eq!(flows[0].reason, EndReason::Fin);
}

#[test]
fn a_syn_ack_first_was_sent_by_the_responder() {
    let packets = [
        tcp(true, SECOND, SYN.with(ACK), 8999, 100, 0),
        tcp(false, SECOND, SYN, 99, 0, 0),
        tcp(false, SECOND, ACK, 100, 9000, 0),
    ];
    let (refs, flows) = run(FlowConfig::default(), &packets);
    assert_eq!(flows.len(), 1);
    assert!(!refs[0].from_initiator());
    assert_eq!(flows[0].history, "^hSA");
    assert_eq!(flows[0].state, FlowState::S1);
    assert_eq!(flows[0].packets, [2, 1]);
}

#[test]
fn idle_flows_end_on_the_clock_not_on_the_packets() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let mut refs = Vec::new();
    tracker.process(&[packet(17, 1, false, 100 * SECOND, 5)], &[], &mut refs);
    tracker.process(&[packet(17, 2, false, 130 * SECOND, 5)], &[], &mut refs);
    assert!(!tracker.has_ended());
    tracker.advance(Nanos(163 * SECOND));
    let ended = drain(&mut tracker);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].reason, EndReason::Idle);
    // The exact timeout holds for the flow's own next packet, whatever the wheel has done.
    tracker.process(&[packet(17, 2, false, 191 * SECOND, 5)], &[], &mut refs);
    assert!(refs[0].is_new());
}

#[test]
fn an_id_is_not_given_again_before_its_flow_was_drained() {
    let mut tracker = FlowTracker::new(FlowConfig {
        max_flows: 4,
        ..FlowConfig::default()
    });
    let flows = |from: u16| (from..from + 20).map(|port| packet(17, port, false, SECOND, 5));
    let mut refs = Vec::new();
    tracker.process(&flows(1).collect::<Vec<_>>(), &[], &mut refs);
    let mut ids: Vec<u32> = refs.iter().map(|flow| flow.id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20, "flows were evicted, and their places kept");
    let ended: Vec<u32> = drain(&mut tracker).iter().map(|flow| flow.id.0).collect();
    assert_eq!(ended.len(), 16);
    tracker.process(&flows(100).collect::<Vec<_>>(), &[], &mut refs);
    assert!(refs.iter().any(|flow| ended.contains(&flow.id.0)));
}

#[test]
fn one_time_stamp_from_the_future_ends_nothing() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let mut refs = Vec::new();
    let packets = [
        packet(17, 1, false, 100 * SECOND, 5),
        packet(17, 2, false, 999_999 * SECOND, 5),
        packet(17, 1, true, 101 * SECOND, 5),
        packet(17, 1, true, 50 * SECOND, 5),
    ];
    tracker.process(&packets, &[], &mut refs);
    assert_eq!(tracker.clock(), Nanos(101 * SECOND));
    assert_eq!(tracker.statistics().time_backwards, 1);
    assert_eq!(refs[0].id, refs[2].id);
    assert_eq!(refs[0].id, refs[3].id);
    assert!(!tracker.has_ended());
}

#[test]
fn the_active_timeout_cuts_records_of_one_connection() {
    let config = FlowConfig {
        active: Some(Nanos(10 * SECOND)),
        ..FlowConfig::default()
    };
    let packets: Vec<Decoded> = (0..35)
        .map(|second| packet(17, 1, second % 2 == 1, (100 + second) * SECOND, 5))
        .collect();
    let (refs, records) = run(config, &packets);
    assert!(refs.iter().all(|flow| flow.id == refs[0].id));
    assert_eq!(refs.iter().filter(|flow| flow.is_new()).count(), 1);
    assert_eq!(records.len(), 4);
    assert!(
        records
            .iter()
            .all(|record| record.flow_id == records[0].flow_id)
    );
    assert!(records.iter().all(|record| record.seconds <= 10));
    let packets: u64 = records.iter().flat_map(|record| record.packets).sum();
    assert_eq!(packets, 35);
    assert_eq!(records[0].reason, EndReason::Active);
    assert_eq!(records[3].reason, EndReason::EndOfInput);
}

#[test]
fn damaged_segments_are_letters_and_damaged_datagrams_packets() {
    let mut packets = handshake(99);
    let mut damaged = tcp(false, 2 * SECOND, ACK, 100, 9000, 10);
    damaged.flags.insert(DecodeFlags::BAD_CHECKSUM);
    damaged.flags.insert(DecodeFlags::EXCLUDED);
    packets.push(damaged);
    let mut datagram = packet(17, 9, false, 2 * SECOND, 10);
    datagram.flags.insert(DecodeFlags::BAD_CHECKSUM);
    packets.push(datagram);
    let (refs, flows) = run(FlowConfig::default(), &packets);
    assert!(refs[3].flags.contains(PacketFlowFlags::NOT_ANALYSED));
    assert_eq!(flows[0].history, "ShAC");
    assert_eq!(flows[0].packets, [2, 1]);
    assert_eq!(flows[1].history, "C");
    assert_eq!(flows[1].packets, [1, 0]);
    assert_eq!(flows[1].state, FlowState::Oth);
}

#[test]
fn vlans_tunnels_and_fragments_are_kept() {
    let tunnel = Tunnel {
        kind: TunnelKind::Vxlan,
        version: 4,
        id: Some(77),
        ..Tunnel::default()
    };
    let mut first = packet(17, 1, false, SECOND, 5);
    first.tunnel = 1;
    first.vlan = [12, 345];
    first.vlan_count = 2;
    let mut second = packet(17, 1, true, SECOND, 5000);
    second.flags.insert(DecodeFlags::REASSEMBLED);
    second.frames = 4;
    second.vlan = [9, 0];
    second.vlan_count = 1;
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let mut refs = Vec::new();
    tracker.process(&[first, second], &[tunnel], &mut refs);
    tracker.finish();
    let flows = drain(&mut tracker);
    assert_eq!(flows[0].id, refs[0].id);
    assert_eq!(flows[0].vlans, [12, 345]);
    assert_eq!(flows[0].fragments, 4);
    assert_eq!(flows[0].packets, [1, 4]);
    assert_eq!(flows[0].tunnel, Some(tunnel));
}

#[test]
fn the_first_right_checksum_of_each_direction_is_told() {
    let right = |packet: Decoded| Decoded {
        flags: DecodeFlags(packet.flags.0 | DecodeFlags::RIGHT_CHECKSUM.0),
        ..packet
    };
    let first = |packets: &[Decoded]| -> Vec<usize> {
        let (refs, _) = run(FlowConfig::default(), packets);
        let told = refs.iter().enumerate();
        told.filter(|(_, flow)| flow.flags.contains(PacketFlowFlags::FIRST_RIGHT))
            .map(|(at, _)| at)
            .collect()
    };
    // SYN, SYN-ACK, ACK, data both ways, FINs; then a SYN that begins another connection.
    let mut packets = handshake(100);
    packets.extend([
        tcp(false, SECOND + 6, ACK, 101, 9000, 10),
        tcp(true, SECOND + 7, ACK, 9000, 111, 20),
        tcp(false, SECOND + 8, ACK.with(FIN), 111, 9020, 0),
        tcp(true, SECOND + 9, ACK.with(FIN), 9020, 112, 0),
        tcp(false, SECOND + 10, SYN, 70_000, 0, 0),
    ]);
    assert!(first(&packets).is_empty());
    let all: Vec<_> = packets.iter().copied().map(right).collect();
    assert_eq!(first(&all), [0, 1, 7]);
    // Some were not known to be right before.
    for (from, expected) in [(1, [1, 2, 7]), (2, [2, 4, 7]), (4, [4, 5, 7])] {
        let late: Vec<_> = [&packets[..from], &all[from..]].concat();
        assert_eq!(first(&late), expected, "from packet {from}");
    }
    let datagrams = [false, true, false, true].map(|back| packet(17, 5, back, SECOND, 8));
    let some = [
        datagrams[0],
        right(datagrams[1]),
        right(datagrams[2]),
        right(datagrams[3]),
    ];
    assert_eq!(first(&some), [1, 2]);
}

/// A connection of which the capture has not seen the end.
fn established() -> Vec<Decoded> {
    let mut packets = handshake(100);
    packets.push(tcp(false, SECOND + 6, ACK, 101, 9000, 50));
    packets.push(tcp(true, SECOND + 7, ACK, 9000, 151, 0));
    packets
}

#[test]
fn a_syn_within_a_connection_changes_nothing_until_it_is_answered() {
    for (seq, from_server) in [(700_000, false), (160, false), (151, false), (5000, true)] {
        let mut packets = established();
        packets.push(tcp(from_server, SECOND + 8, SYN, seq, 0, 0));
        // A challenge.
        packets.push(tcp(true, SECOND + 9, ACK, 9000, 151, 0));
        packets.push(tcp(false, SECOND + 10, ACK, 151, 9000, 70));
        packets.push(tcp(true, SECOND + 11, ACK, 9000, 221, 0));
        packets.push(tcp(false, SECOND + 12, FIN.with(ACK), 221, 9000, 0));
        packets.push(tcp(true, SECOND + 13, FIN.with(ACK), 9000, 222, 0));
        let (refs, flows) = run(FlowConfig::default(), &packets);
        assert!(refs.iter().all(|flow| flow.id == refs[0].id));
        assert!(refs[5].flags.contains(PacketFlowFlags::HELD_SYN));
        let [flow] = flows.as_slice() else {
            panic!("{flows:?}");
        };
        assert_eq!(flow.state, FlowState::SF);
        assert_eq!(flow.packets.iter().sum::<u64>(), 11);
        assert_eq!(flow.history, "ShADaFf");
    }
}

#[test]
fn a_syn_within_a_connection_begins_another_once_it_is_answered() {
    let open = SYN.with(ACK);
    let refused = RST.with(ACK);
    for (answer, state, history) in [
        (open, FlowState::S1, "ShAD"),
        (refused, FlowState::Rej, "Sr"),
    ] {
        let mut packets = established();
        packets.push(tcp(false, SECOND + 20, SYN, 700_000, 0, 0));
        // Not an answer: it does not acknowledge that.
        packets.push(tcp(true, SECOND + 21, ACK, 9000, 151, 0));
        packets.push(tcp(true, SECOND + 23, answer, 50_000, 700_001, 0));
        if answer == open {
            packets.push(tcp(false, SECOND + 24, ACK, 700_001, 50_001, 0));
            packets.push(tcp(false, SECOND + 25, ACK, 700_001, 50_001, 10));
        }
        let (refs, flows) = run(FlowConfig::default(), &packets);
        let [old, new] = flows.as_slice() else {
            panic!("{flows:?}");
        };
        assert_ne!(old.flow_id, new.flow_id);
        assert_eq!(refs[7].id, new.id);
        assert!(refs[7].is_new() && refs[6].id == old.id);
        // The SYN is the new one's.
        assert_eq!((old.packets, old.state), ([3, 3], FlowState::S1));
        assert_eq!(new.packets, [if answer == open { 3 } else { 1 }, 1]);
        assert_eq!((new.state, new.history.as_str()), (state, history));
        let rtt = (answer == open).then_some(4);
        assert_eq!(new.rtt, rtt);
    }
}

#[test]
fn an_answer_acknowledges_a_syn_with_its_data_or_without() {
    for (acknowledged, flows_expected) in [(700_001, 2), (700_011, 2), (700_012, 1), (700_000, 1)] {
        let mut packets = established();
        packets.push(tcp(false, SECOND + 20, SYN, 700_000, 0, 10));
        let answer = tcp(true, SECOND + 23, SYN.with(ACK), 50_000, acknowledged, 0);
        packets.push(answer);
        let (_, flows) = run(FlowConfig::default(), &packets);
        assert_eq!(flows.len(), flows_expected, "{acknowledged}");
    }
}

#[test]
fn of_one_side_alone_its_own_next_packet_answers_a_syn() {
    let mut packets = vec![
        tcp(false, SECOND, ACK, 101, 9000, 50),
        tcp(false, SECOND + 1, ACK, 151, 9000, 50),
        tcp(false, SECOND + 2, SYN, 700_000, 0, 0),
        tcp(false, SECOND + 3, ACK, 201, 9000, 50),
    ];
    assert_eq!(run(FlowConfig::default(), &packets).1.len(), 1);
    packets[3] = tcp(false, SECOND + 3, ACK, 700_001, 50_001, 0);
    let (_, flows) = run(FlowConfig::default(), &packets);
    let counts: Vec<_> = flows.iter().map(|flow| flow.packets).collect();
    assert_eq!(counts, [[2, 0], [2, 0]]);
}
