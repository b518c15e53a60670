//! A backend for tests that keeps packets away as it is told, in front of a source. Each that needs it takes this file in
//! as a module.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use flowgauge_flow::{Turn, Withheld};
use flowgauge_stream::offload::{Offload, OffloadFlow, Packets, Verdict, Vlan, Wanted};
use flowgauge_wire::{
    Batch, DecodeFlags, Decoded, DecodedBatch, Decoder, FlowKey, PacketDescriptor, TcpFlags,
};

/// What always comes.
const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
const SYN: u8 = TcpFlags::SYN.0;
const SYN_ACK: u8 = TcpFlags::SYN.0 | TcpFlags::ACK.0;

/// Keeps away what it was told not to send, and says how much that was.
#[derive(Clone, Default)]
pub(crate) struct Card(Arc<Mutex<Table>>);

#[derive(Default)]
#[allow(dead_code, reason = "not every test asks for all")]
pub(crate) struct Table {
    /// By five-tuple.
    pub(crate) flows: HashMap<FlowKey, Vec<Told>>,
    counters: BTreeMap<u64, (OffloadFlow, [Withheld; 2])>,
    /// What is wanted of flows of which nothing was said, from the first on.
    pub(crate) others: Vec<Wanted>,
    pub(crate) verdicts: BTreeMap<u64, Vec<Verdict>>,
    /// Flows of which a SYN came and no answer.
    unanswered: HashSet<FlowKey>,
    decoder: Decoder,
    decoded: DecodedBatch,
    pub(crate) withheld: u64,
    pub(crate) cut: u64,
    /// Of what was withheld, packets in turn.
    pub(crate) in_turn: u64,
    /// Packets until then have been processed; 0: those before the last poll.
    pub(crate) shown: u64,
    /// After so many nanoseconds a packet comes that is the next of its flow; 0: 200 ms.
    pub(crate) silence: u64,
}

/// What was said of a flow.
pub(crate) struct Told {
    flow: OffloadFlow,
    wanted: [Wanted; 2],
    turns: Turns,
}

/// Which packets of a connection are in turn.
struct Turns {
    sides: Option<[Turn; 2]>,
    /// When the last packet came.
    last: Option<u64>,
    /// A packet came out of turn that was not processed: nothing is counted.
    is_broken: bool,
    /// ... and has been by the next poll.
    is_seen: bool,
    /// When it came.
    broken: u64,
}

impl From<&[Wanted; 2]> for Turns {
    fn from(wanted: &[Wanted; 2]) -> Turns {
        let sides = match wanted.map(|wanted| wanted.packets) {
            [
                Packets::OutOfTurn(low) | Packets::Followed(low),
                Packets::OutOfTurn(high) | Packets::Followed(high),
            ] => Some([low, high]),
            _ => None,
        };
        Turns {
            sides,
            last: None,
            is_broken: false,
            is_seen: false,
            broken: 0,
        }
    }
}

impl Turns {
    fn mark(&mut self, packet: &Decoded) {
        (self.is_broken, self.is_seen) = (true, false);
        self.broken = packet.time.0;
    }

    /// Whether a packet is the next of its connection, and may be counted.
    fn take(&mut self, packet: &Decoded, is_right: bool, silence: u64) -> bool {
        if packet.tcp_flags.contains(TcpFlags::SYN) {
            self.mark(packet);
            return false;
        }
        let last = self.last.replace(packet.time.0);
        let is_due = last.is_none_or(|last| packet.time.0 < last.saturating_add(silence));
        if packet.key.protocol != 6 {
            if !is_due || !is_right {
                self.mark(packet);
            }
            return !self.is_broken;
        }
        let before = |a: u32, b: u32| (a.wrapping_sub(b) as i32) < 0;
        let (direction, flags) = (packet.direction.index(), packet.tcp_flags);
        let sides = self.sides.as_mut().expect("both directions are told");
        let peer = sides[1 - direction];
        let own = &mut sides[direction];
        let has_data = packet.payload_len != 0;
        let fin = flags.contains(TcpFlags::FIN);
        let is_next = is_due
            && is_right
            && flags.contains(TcpFlags::ACK)
            && !flags.intersects(CONTROL)
            && packet.window != 0
            && packet.seq == own.next
            && packet.ack.wrapping_sub(own.acked) <= 1 << 20
            && !before(peer.next, packet.ack)
            && if has_data {
                own.data
            } else {
                own.acknowledgements
            };
        let counts = is_next && !self.is_broken;
        let end = packet.seq.wrapping_add(packet.payload_len);
        let end = end.wrapping_add(u32::from(fin));
        let is_ahead = match has_data || fin {
            true => before(own.next, end),
            false => before(own.next.wrapping_add(1), end),
        };
        own.next = if is_ahead { end } else { own.next };
        if flags.contains(TcpFlags::ACK) && before(own.acked, packet.ack) {
            own.acked = packet.ack;
        }
        if !flags.intersects(CONTROL) {
            own.data |= has_data;
            own.acknowledgements |= !has_data;
        }
        if !is_next {
            self.mark(packet);
        }
        counts
    }
}

impl Offload for Card {
    fn verdict(&mut self, flow: &OffloadFlow, verdict: Verdict) {
        let mut table = self.table();
        table.verdicts.entry(flow.uid).or_default().push(verdict);
        let alike = table.flows.entry(five_tuple(&flow.key)).or_default();
        let same = alike.iter_mut().find(|it| it.flow == *flow);
        if let (Verdict::Less(wanted), Some(told)) = (verdict, same) {
            let is_counted = |it: &Wanted| matches!(it.packets, Packets::OutOfTurn(_));
            if !told.wanted.iter().any(is_counted) {
                told.turns = Turns::from(&wanted);
            }
            told.wanted = wanted;
            return;
        }
        // A verdict replaces what was said of this flow, and of an older one with its key.
        alike.retain(|it| match verdict {
            Verdict::Less(_) => it.flow.key != flow.key,
            Verdict::Resume | Verdict::Forget => it.flow.uid != flow.uid,
        });
        if let Verdict::Less(wanted) = verdict {
            let (flow, turns) = (*flow, Turns::from(&wanted));
            alike.push(Told {
                flow,
                wanted,
                turns,
            });
        }
        if alike.is_empty() {
            table.flows.remove(&five_tuple(&flow.key));
        }
    }

    fn others(&mut self, wanted: Wanted) {
        self.table().others.push(wanted);
    }

    fn poll(&mut self, give: &mut dyn FnMut(&OffloadFlow, [Withheld; 2])) {
        let mut table = self.table();
        let counters = core::mem::take(&mut table.counters);
        let shown = table.shown;
        for told in table.flows.values_mut().flatten() {
            let turns = &mut told.turns;
            let was_seen = core::mem::replace(&mut turns.is_seen, turns.is_broken);
            turns.is_broken &= !was_seen || shown != 0 && turns.broken > shown;
        }
        drop(table);
        for (flow, withheld) in counters.into_values() {
            give(&flow, withheld);
        }
    }
}

impl Card {
    /// What it knows, and has done.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("nobody panics with it")
    }

    /// What of a batch comes.
    pub(crate) fn pass(&self, batch: &Batch<'_>) -> Vec<PacketDescriptor> {
        let table = &mut *self.table();
        table.decoder.decode_batch(batch, &mut table.decoded);
        let mut passed = batch.packets.to_vec();
        let mut kept = vec![false; passed.len()];
        for packet in &table.decoded.packets {
            let at = usize::from(packet.index);
            let direction = packet.direction.index();
            let vlan = packet.vlan_number();
            let is_it = |flow: &OffloadFlow| match flow.vlans[direction] {
                Vlan::Any => true,
                Vlan::Only(of) => of == vlan,
            };
            let key = five_tuple(&packet.key);
            let begins = match packet.tcp_flags.0 & (TcpFlags::SYN.0 | TcpFlags::ACK.0) {
                SYN => {
                    table.unanswered.insert(key);
                    true
                }
                SYN_ACK => !table.unanswered.remove(&key),
                _ => false,
            };
            if begins && let Some(alike) = table.flows.get_mut(&key) {
                alike.retain(|it| !is_it(&it.flow));
                if alike.is_empty() {
                    table.flows.remove(&key);
                }
            }
            let mut alike = table.flows.get_mut(&key).into_iter().flatten();
            let mut told = alike.find(|it| is_it(&it.flow));
            let wanted = told
                .as_ref()
                .map(|told| told.wanted[direction])
                .or(table.others.last().copied());
            let Some(wanted) = wanted.filter(|_| has_ports(packet)) else {
                continue;
            };
            let mut packets = wanted.packets;
            let is_in_turn = matches!(packets, Packets::OutOfTurn(_));
            if is_in_turn || matches!(packets, Packets::Followed(_)) {
                let turns = told.as_mut().map(|told| &mut told.turns);
                let turns = turns.expect("of others headers are wanted, at least");
                let silence = match table.silence {
                    0 => 200_000_000,
                    silence => silence,
                };
                let frame = &batch.memory[batch.packets[at].offset as usize..];
                let is_next = turns.take(packet, has_right_header(frame, packet), silence);
                packets = match (is_in_turn, is_next) {
                    (false, _) => Packets::All,
                    (true, true) => Packets::None,
                    (true, false) => Packets::Headers,
                };
            }
            if packet.tcp_flags.intersects(CONTROL) {
                continue;
            }
            match packets {
                Packets::All | Packets::OutOfTurn(_) | Packets::Followed(_) => {}
                Packets::Headers if packet.payload_len != 0 => {
                    let descriptor = &mut passed[at];
                    descriptor.captured_len = descriptor.captured_len.min(packet.payload_offset);
                    table.cut += 1;
                }
                Packets::Headers => {}
                Packets::None => {
                    let told = told.expect("of others headers are wanted, at least");
                    kept[at] = true;
                    table.withheld += 1;
                    table.in_turn += u64::from(is_in_turn);
                    let counters = table.counters.entry(told.flow.uid);
                    let (_, both) = counters.or_insert((told.flow, Default::default()));
                    count(&mut both[direction], packet);
                    both[direction].in_turn = is_in_turn;
                }
            }
        }
        let mut kept = kept.into_iter();
        passed.retain(|_| kept.next() == Some(false));
        passed
    }
}

/// What a card knows of a flow, and its VLANs.
fn five_tuple(key: &FlowKey) -> FlowKey {
    FlowKey { context: 0, ..*key }
}

/// Whether an IP header is right, as far as a backend looks: one with options it does not.
fn has_right_header(frame: &[u8], packet: &Decoded) -> bool {
    let header = &frame[usize::from(packet.ip_offset)..];
    let halves = header[..20].chunks(2);
    let sum: u32 = halves
        .map(|it| u32::from(it[0]) << 8 | u32::from(it[1]))
        .sum();
    packet.key.version == 6 || header[0] & 15 == 5 && (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Whether a backend finds a packet's flow.
fn has_ports(packet: &Decoded) -> bool {
    packet.flags.contains(DecodeFlags::TRANSPORT) && !packet.flags.contains(DecodeFlags::FRAGMENT)
}

fn count(withheld: &mut Withheld, packet: &Decoded) {
    let payload = u64::from(packet.payload_len);
    if withheld.packets == 0 {
        withheld.first = packet.time;
    }
    withheld.packets += 1;
    withheld.bytes += u64::from(packet.wire_len);
    withheld.ip_bytes += u64::from(packet.ip_len);
    withheld.payload_bytes += payload;
    if payload != 0 {
        withheld.data_packets += 1;
        withheld.data_bytes += u64::from(packet.wire_len);
    }
    withheld.last = withheld.last.max(packet.time);
    if packet.key.protocol == 6 {
        withheld.tcp_flags.0 |= packet.tcp_flags.0;
        let end = packet.seq.wrapping_add(packet.payload_len);
        let is_new = |before: u32| (end.wrapping_sub(before) as i32) > 0;
        withheld.first_seq.get_or_insert(packet.seq);
        if withheld.next_seq.is_none_or(is_new) {
            withheld.next_seq = Some(end);
        }
        if packet.tcp_flags.contains(TcpFlags::ACK) {
            withheld.ack = Some((packet.ack, packet.window));
        }
    }
}
