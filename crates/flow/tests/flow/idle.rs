//! Idle timeouts that change while flows live.

use crate::packets::{ACK, FIN, SECOND, SYN, packet, tcp};
use flowgauge_flow::{EndReason, FlowConfig, FlowId, FlowTracker};
use flowgauge_wire::Nanos;

/// What a wheel may be late by: three of its ticks.
const LATE: u64 = 3 << 30;

fn ended(tracker: &mut FlowTracker) -> Vec<(FlowId, EndReason)> {
    let mut all = Vec::new();
    tracker.drain_ended(|id, record| all.push((id, record.end_reason)));
    all
}

fn see(tracker: &mut FlowTracker, client: u16, time: u64) -> FlowId {
    let mut refs = Vec::new();
    let packets = [packet(17, client, false, time, 5)];
    tracker.process(&packets, &[], &mut refs);
    refs[0].id
}

#[test]
fn flows_have_timeouts_of_their_own() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let flows: Vec<FlowId> = (0..4)
        .map(|client| see(&mut tracker, client, 100 * SECOND))
        .collect();
    tracker.set_idle_of(flows[0], Some(Nanos::from_secs(5)));
    tracker.set_idle_of(flows[1], Some(Nanos::from_secs(200)));
    tracker.set_idle_of(flows[2], Some(Nanos::from_secs(20)));
    let mut log = Vec::new();
    for second in 101..400 {
        tracker.advance(Nanos::from_secs(second));
        for (id, reason) in ended(&mut tracker) {
            assert_eq!(reason, EndReason::Idle);
            log.push((id, second - 100));
        }
    }
    let order: Vec<FlowId> = log.iter().map(|ended| ended.0).collect();
    assert_eq!(order, [flows[0], flows[2], flows[3], flows[1]]);
    for ((_, at), timeout) in log.iter().zip([5, 20, 60, 200]) {
        assert!((timeout..=timeout + 3).contains(at), "{log:?}");
    }
}

#[test]
fn a_late_packet_opens_another_flow_to_the_nanosecond() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let id = see(&mut tracker, 1, 100 * SECOND);
    tracker.set_idle_of(id, Some(Nanos(SECOND / 2)));
    assert_eq!(see(&mut tracker, 1, 100 * SECOND + SECOND / 2), id);
    assert!(ended(&mut tracker).is_empty());
    // (Half a second is less than a tick.)
    see(&mut tracker, 1, 102 * SECOND);
    assert_eq!(ended(&mut tracker), [(id, EndReason::Idle)]);
}

#[test]
fn the_timeout_of_its_protocol_comes_back() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let id = see(&mut tracker, 1, 100 * SECOND);
    tracker.set_idle_of(id, Some(Nanos::from_secs(2)));
    tracker.set_idle_of(id, None);
    tracker.advance(Nanos::from_secs(155));
    assert!(ended(&mut tracker).is_empty());
    tracker.advance(Nanos::from_secs(165));
    assert_eq!(ended(&mut tracker), [(id, EndReason::Idle)]);
}

#[test]
fn the_timeouts_of_protocols_hold_for_flows_in_the_table() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let first = see(&mut tracker, 1, 100 * SECOND);
    let own = see(&mut tracker, 2, 100 * SECOND);
    tracker.set_idle_of(own, Some(Nanos::from_secs(100)));
    let seconds = Nanos::from_secs;
    tracker.set_idle(seconds(5), seconds(5), seconds(5));
    tracker.advance(Nanos::from_secs(104));
    assert!(ended(&mut tracker).is_empty());
    tracker.advance(Nanos::from_secs(109));
    assert_eq!(ended(&mut tracker), [(first, EndReason::Idle)]);
    let second = see(&mut tracker, 1, 110 * SECOND);
    tracker.set_idle(seconds(500), seconds(500), seconds(500));
    tracker.advance(Nanos::from_secs(210));
    assert_eq!(ended(&mut tracker), [(own, EndReason::Idle)]);
    assert_eq!(see(&mut tracker, 1, 600 * SECOND), second);
}

#[test]
fn a_connection_that_closes_lingers_as_others_do() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let at = |second: u64| 100 * SECOND + second;
    let mut refs = Vec::new();
    tracker.process(&[tcp(false, at(0), SYN, 10, 0, 0)], &[], &mut refs);
    let id = refs[0].id;
    tracker.set_idle_of(id, Some(Nanos::from_secs(1000)));
    let packets = [
        tcp(true, at(1), SYN.with(ACK), 90, 11, 0),
        tcp(false, at(2), ACK, 11, 91, 0),
        tcp(false, at(3), FIN.with(ACK), 11, 91, 0),
        tcp(true, at(4), FIN.with(ACK), 91, 12, 0),
        tcp(false, at(5), ACK, 12, 92, 0),
    ];
    tracker.process(&packets, &[], &mut refs);
    assert!(refs.iter().all(|packet| packet.id == id));
    tracker.set_idle_of(id, Some(Nanos::from_secs(2000)));
    tracker.advance(Nanos(at(0) + 5 * SECOND + LATE));
    assert_eq!(ended(&mut tracker), [(id, EndReason::Fin)]);
    assert!(tracker.is_empty());
}

/// Random packets, clocks and timeouts, against a list of who was seen when.
#[test]
fn flows_end_when_their_timeout_is_over_and_not_before() {
    let mut random = 1u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % bound
    };
    for _ in 0..40 {
        let mut tracker = FlowTracker::new(FlowConfig::default());
        let mut table = [60; 3].map(|seconds: u64| seconds * SECOND);
        // Of each client: its flow, when it was seen, its own timeout.
        let mut flows: [Option<(FlowId, u64, Option<u64>)>; 12] = [None; 12];
        let mut now = 1000 * SECOND;
        for _ in 0..300 {
            now += below(3 * SECOND);
            let client = below(12) as usize;
            match below(8) {
                0..4 => {
                    let timeout = flows[client].map(|flow| flow.2.unwrap_or(table[1]));
                    let id = see(&mut tracker, client as u16, now);
                    let goes_on = flows[client].is_some_and(|flow| {
                        flow.0 == id && now - flow.1 <= timeout.unwrap_or(0) + LATE
                    });
                    let own = flows[client].filter(|_| goes_on).and_then(|flow| flow.2);
                    if let Some((before, seen, _)) = flows[client].filter(|_| !goes_on) {
                        assert!(now - seen > timeout.unwrap_or(0), "{before:?}");
                    }
                    flows[client] = Some((id, now, own));
                }
                4 | 5 => {
                    if let Some((id, _, own)) = &mut flows[client] {
                        let timeout = [None, Some(SECOND << below(9))][below(2) as usize];
                        tracker.set_idle_of(*id, timeout.map(Nanos));
                        *own = timeout;
                    }
                }
                6 => {
                    table = [SECOND << below(9); 3];
                    let [tcp, udp, other] = table.map(Nanos);
                    tracker.set_idle(tcp, udp, other);
                }
                _ => tracker.advance(Nanos(now)),
            }
            for (id, reason) in ended(&mut tracker) {
                assert_eq!(reason, EndReason::Idle);
                for flow in &mut flows {
                    if let Some((_, seen, own)) = flow.filter(|flow| flow.0 == id && flow.1 != now)
                    {
                        assert!(now - seen > own.unwrap_or(table[1]), "too early");
                        *flow = None;
                    }
                }
            }
            tracker.advance(Nanos(now));
            for (id, _) in ended(&mut tracker) {
                for flow in &mut flows {
                    if let Some((_, seen, own)) = flow.filter(|flow| flow.0 == id) {
                        assert!(now - seen > own.unwrap_or(table[1]), "too early");
                        *flow = None;
                    }
                }
            }
            for (_, seen, own) in flows.into_iter().flatten() {
                let idle = now - seen;
                assert!(idle <= own.unwrap_or(table[1]) + LATE, "too late: {idle}");
            }
        }
    }
}
