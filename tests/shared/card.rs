//! A backend for tests that keeps packets away as it is told, in front of a source. Each that needs it takes this file in
//! as a module.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use flowgauge_flow::Withheld;
use flowgauge_stream::offload::{Offload, OffloadFlow, Packets, Verdict, Vlan, Wanted};
use flowgauge_wire::{
    Batch, DecodeFlags, Decoded, DecodedBatch, Decoder, FlowKey, PacketDescriptor, TcpFlags,
};

const SYN: u8 = TcpFlags::SYN.0;
const SYN_ACK: u8 = TcpFlags::SYN.0 | TcpFlags::ACK.0;

/// Keeps away what it was told not to send, and says how much that was.
#[derive(Clone, Default)]
pub(crate) struct Card(Arc<Mutex<Table>>);

#[derive(Default)]
#[allow(dead_code, reason = "not every test asks for all")]
pub(crate) struct Table {
    /// By five-tuple.
    pub(crate) flows: HashMap<FlowKey, Vec<(OffloadFlow, [Wanted; 2])>>,
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
}

impl Offload for Card {
    fn verdict(&mut self, flow: &OffloadFlow, verdict: Verdict) {
        let mut table = self.table();
        table.verdicts.entry(flow.uid).or_default().push(verdict);
        let alike = table.flows.entry(five_tuple(&flow.key)).or_default();
        // A verdict replaces what was said of this flow, and of an older one with its key.
        alike.retain(|(other, _)| match verdict {
            Verdict::Less(_) => other.key != flow.key,
            Verdict::Resume | Verdict::Forget => other.uid != flow.uid,
        });
        if let Verdict::Less(wanted) = verdict {
            alike.push((*flow, wanted));
        }
        if alike.is_empty() {
            table.flows.remove(&five_tuple(&flow.key));
        }
    }

    fn others(&mut self, wanted: Wanted) {
        self.table().others.push(wanted);
    }

    fn poll(&mut self, give: &mut dyn FnMut(&OffloadFlow, [Withheld; 2])) {
        let counters = core::mem::take(&mut self.table().counters);
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
                alike.retain(|(flow, _)| !is_it(flow));
                if alike.is_empty() {
                    table.flows.remove(&key);
                }
            }
            let mut alike = table.flows.get(&key).into_iter().flatten();
            let told = alike.find(|(flow, _)| is_it(flow));
            let wanted = told
                .map(|(_, wanted)| wanted[direction])
                .or(table.others.last().copied());
            let Some(wanted) = wanted.filter(|_| is_plain(packet)) else {
                continue;
            };
            match wanted.packets {
                Packets::All => {}
                Packets::Headers if packet.payload_len != 0 => {
                    let descriptor = &mut passed[at];
                    descriptor.captured_len = descriptor.captured_len.min(packet.payload_offset);
                    table.cut += 1;
                }
                Packets::Headers => {}
                Packets::None => {
                    let (flow, _) = told.expect("of others headers are wanted, at least");
                    kept[at] = true;
                    table.withheld += 1;
                    let counters = table.counters.entry(flow.uid);
                    let (_, both) = counters.or_insert((*flow, Default::default()));
                    count(&mut both[direction], packet);
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

/// Whether a backend finds a packet's flow, and may keep it away.
fn is_plain(packet: &Decoded) -> bool {
    let control = TcpFlags::SYN.with(TcpFlags::FIN).with(TcpFlags::RST);
    packet.flags.contains(DecodeFlags::TRANSPORT)
        && !packet.flags.contains(DecodeFlags::FRAGMENT)
        && !packet.tcp_flags.intersects(control)
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
