//! VLANs as part of flow identity: the same addresses in two VLANs can be different hosts.
//!
//! Connections do not identify their network, nor does a VLAN id alone: on a router's or an aggregated link, each
//! direction of a connection can have its own VLAN. However, a direction stays in its VLAN. Each pair of addresses
//! therefore has contexts, each with the VLAN of each direction, and a packet belongs to the first context that it does
//! not contradict; contexts that match are preferred to those that merely have room. A stray packet does not decide: a
//! direction whose VLAN differs from that of its replies gets theirs instead, unless more packets arrived in it since.
//! No tag, or a priority tag, also counts as a VLAN. Pairs are known from their first tagged packet on, or from the
//! first SYN of a TCP connection.

use std::collections::HashMap;

use flowgauge_flow::{FlowRecord, FlowTracker};
use flowgauge_wire::{Address, Decoded, Direction, FlowKey, FoldedState, TcpFlags};

/// Whether equal endpoints in different VLANs are different flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanAware {
    /// VLANs are ignored, like in Zeek.
    No,
    /// Packets in different VLANs belong to different flows, like in Suricata: a connection with a different VLAN per
    /// direction is two flows.
    Yes,
    /// Packets from one address to another in different VLANs belong to different flows.
    #[default]
    Auto,
}

/// The most pairs of addresses that are known, however many flows there may be; with more all are forgotten.
const MOST: usize = 1 << 14;
/// Contexts of a pair; what contradicts all of them is in the last one.
const MOST_CONTEXTS: usize = 64;

/// The VLANs that pairs of addresses are in.
#[derive(Clone, Debug)]
pub(crate) struct Vlans {
    pairs: HashMap<Pair, Contexts, FoldedState>,
    /// The most pairs.
    limit: usize,
    /// A packet with a tag came.
    has_tags: bool,
    /// Pairs that were forgotten to make room.
    pub(crate) forgotten: u64,
    /// Flows of the batch's packets that say in which VLAN their direction is.
    pub(crate) learned: Vec<FlowKey>,
}

type Pair = (Address, Address);

/// Those of a pair; mostly there is one.
#[derive(Clone, Debug, Default)]
struct Contexts {
    first: Context,
    others: Vec<Context>,
}

/// A VLAN of each direction.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    /// From the smaller address first; none: no packet went there.
    vlans: [Option<u32>; 2],
    /// No packet of this direction came since the other one had another VLAN: what came before was perhaps not of this
    /// network.
    doubted: Option<usize>,
}

impl Vlans {
    /// Knows no pair yet. It remembers no more of them than flows at once.
    pub(crate) fn new(max_flows: u32) -> Vlans {
        Vlans {
            pairs: HashMap::default(),
            limit: MOST.min(max_flows as usize),
            has_tags: false,
            forgotten: 0,
            learned: Vec::new(),
        }
    }

    /// Gives packets of pairs with tags the context that keeps their flows apart from each other, and from those in
    /// the table. Most captures have no tags: nothing is done until the first one comes.
    #[inline]
    pub(crate) fn pass(&mut self, packets: &mut [Decoded], flows: &FlowTracker) {
        if self.has_tags || packets.iter().any(|packet| packet.vlan_count != 0) {
            self.tagged(packets, flows);
        }
    }

    #[inline(never)]
    fn tagged(&mut self, packets: &mut [Decoded], flows: &FlowTracker) {
        if !self.has_tags {
            self.has_tags = true;
            flows.each_record(|record| self.learn(record));
        }
        self.learned.clear();
        for packet in packets.iter_mut().filter(|packet| packet.has_ip()) {
            let pair = (packet.key.low, packet.key.high);
            let vlan = packet.vlan_number();
            let begins =
                packet.tcp_flags.0 & (TcpFlags::SYN.0 | TcpFlags::ACK.0) == TcpFlags::SYN.0;
            let is_new = vlan != 0 || begins;
            let (place, is_learned) = self.place(pair, packet.direction, vlan, is_new);
            packet.key.context = packet.key.context.wrapping_add(place as u32);
            if is_learned {
                self.learned.push(packet.key);
            }
        }
    }

    /// The VLANs of a flow's directions, where no other flow's packets of the same ports are in them. A direction in which no
    /// packet went yet is taken to be in that of the other.
    pub(crate) fn of(&self, key: &FlowKey) -> Option<[u32; 2]> {
        let Some(contexts) = self.pairs.get(&(key.low, key.high)) else {
            return (key.context == 0).then_some([0; 2]);
        };
        let place = key.context as usize;
        let vlans = match place {
            0 => contexts.first.vlans,
            _ => contexts.others.get(place - 1)?.vlans,
        };
        let guess = |way: usize| {
            let vlan = vlans[1 - way]?;
            (contexts.find(way, vlan) == Some(place)).then_some(vlan)
        };
        Some([
            vlans[0].or_else(|| guess(0))?,
            vlans[1].or_else(|| guess(1))?,
        ])
    }

    /// A connection that began before the first tag.
    fn learn(&mut self, record: &FlowRecord<'_>) {
        let pair = (record.key.low, record.key.high);
        let low = (record.key.low, record.key.low_port);
        let is_low = (record.source.address, record.source.port) == low;
        let directions = match is_low {
            true => [Direction::LowToHigh, Direction::HighToLow],
            false => [Direction::HighToLow, Direction::LowToHigh],
        };
        let counted = [record.source.packets, record.destination.packets];
        for (direction, packets) in directions.into_iter().zip(counted) {
            if record.history.starts_with('S') && packets > 0 {
                self.place(pair, direction, 0, true);
            }
        }
    }

    /// The context of packets of a pair that go this way in a VLAN.
    pub(crate) fn context(&self, key: &FlowKey, direction: Direction, vlan: u32) -> Option<u32> {
        match self.pairs.get(&(key.low, key.high)) {
            Some(contexts) => contexts.find(direction.index(), vlan).map(|at| at as u32),
            None => Some(0),
        }
    }

    /// Packets of this direction of a flow came, of which only that is known.
    pub(crate) fn confirm(&mut self, key: &FlowKey, direction: Direction) {
        if self.has_tags
            && let Some(vlans) = self.of(key)
        {
            let vlan = vlans[direction.index()];
            self.place((key.low, key.high), direction, vlan, false);
        }
    }

    /// The place of the context of a pair's packet: the first one where the pair is not known, and is not to be. And whether it is
    /// the packet that says in which VLAN the direction is there.
    fn place(
        &mut self,
        pair: Pair,
        direction: Direction,
        vlan: u32,
        is_new: bool,
    ) -> (usize, bool) {
        let way = direction.index();
        if let Some(contexts) = self.pairs.get_mut(&pair) {
            return contexts.place(way, vlan);
        }
        if !is_new {
            return (0, false);
        }
        if self.pairs.len() >= self.limit {
            self.forgotten += self.pairs.len() as u64;
            self.pairs.clear();
        }
        self.pairs.entry(pair).or_default().place(way, vlan)
    }
}

impl Contexts {
    /// The place of the context that has room for packets of this direction in this VLAN.
    fn find(&self, way: usize, vlan: u32) -> Option<usize> {
        let all = || core::iter::once(&self.first).chain(&self.others);
        let answers = |it: &Context| it.vlans[1 - way] == Some(vlan);
        let has_room = |it: &Context| it.vlans[way].is_none();
        all()
            .position(|it| it.vlans[way] == Some(vlan))
            .or_else(|| all().position(|it| answers(it) && has_room(it)))
            .or_else(|| all().position(|it| answers(it) && it.doubted == Some(way)))
            .or_else(|| all().position(has_room))
    }

    /// The place of the context of packets of this direction in this VLAN, and whether that is known from now on.
    fn place(&mut self, way: usize, vlan: u32) -> (usize, bool) {
        let place = self.find(way, vlan).unwrap_or_else(|| {
            if self.others.len() + 1 < MOST_CONTEXTS {
                self.others.push(Context::default());
            }
            self.others.len()
        });
        let mut is_learned = false;
        let context = match place {
            0 => Some(&mut self.first),
            place => self.others.get_mut(place - 1),
        };
        if let Some(context) = context {
            let other = context.vlans[1 - way];
            if context.doubted == Some(way) {
                is_learned = context.vlans[way] != Some(vlan);
                context.vlans[way] = Some(vlan);
                context.doubted = None;
            } else if context.vlans[way].is_none() {
                is_learned = true;
                context.vlans[way] = Some(vlan);
                context.doubted = other.filter(|&other| other != vlan).map(|_| 1 - way);
            }
        }
        (place, is_learned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_flow::FlowConfig;

    /// For a VLAN: none, of a SYN.
    const SYN: u16 = u16::MAX;

    /// The contexts of packets: from the smaller address, and their VLAN.
    fn contexts(said: &[(bool, u16)]) -> Vec<u32> {
        let packet = |&(up, vlan): &(bool, u16)| {
            let tcp_flags = if vlan == SYN {
                TcpFlags::SYN
            } else {
                TcpFlags::ACK
            };
            let vlan = if vlan == SYN { 0 } else { vlan };
            let mut packet = Decoded {
                tcp_flags,
                vlan: [vlan, 0],
                vlan_count: u8::from(vlan != 0),
                direction: if up {
                    Direction::LowToHigh
                } else {
                    Direction::HighToLow
                },
                ..Decoded::default()
            };
            (packet.key.low, packet.key.high) =
                (Address::v4([10, 0, 0, 1]), Address::v4([10, 0, 0, 2]));
            packet.key.version = 4;
            packet
        };
        let mut packets: Vec<Decoded> = said.iter().map(packet).collect();
        Vlans::new(u32::MAX).pass(&mut packets, &FlowTracker::new(FlowConfig::default()));
        packets.iter().map(|it| it.key.context).collect()
    }

    #[test]
    fn a_direction_stays_in_its_vlan() {
        let (up, down) = (true, false);
        // One VLAN; one for each direction; tags in one direction.
        assert_eq!(contexts(&[(up, 7), (down, 7), (up, 7)]), [0, 0, 0]);
        assert_eq!(contexts(&[(up, 7), (down, 8), (up, 7), (down, 8)]), [0; 4]);
        assert_eq!(contexts(&[(up, 0), (down, 8), (up, 0), (down, 8)]), [0; 4]);
        assert_eq!(contexts(&[(up, 7), (down, 0), (up, 7)]), [0; 3]);
        // The same endpoints in two VLANs, and in three.
        assert_eq!(
            contexts(&[(up, 7), (up, 8), (down, 7), (down, 8)]),
            [0, 1, 0, 1]
        );
        assert_eq!(
            contexts(&[(up, 7), (down, 7), (down, 8), (up, 8)]),
            [0, 0, 1, 1]
        );
        assert_eq!(
            contexts(&[(up, 7), (up, 8), (up, 9), (down, 9), (down, 7)]),
            [0, 1, 2, 2, 0]
        );
        // Behind the first tag no tag is a VLAN, too; before it where a connection begins.
        let syn = (up, SYN);
        assert_eq!(
            contexts(&[syn, (up, 7), (down, 0), (down, 7)]),
            [0, 1, 0, 1]
        );
        assert_eq!(
            contexts(&[(up, 7), (down, 7), (up, 0), (down, 0)]),
            [0, 0, 1, 1]
        );
    }

    #[test]
    fn a_stray_packet_does_not_decide() {
        let (up, down) = (true, false);
        let stray = (down, 9);
        for vlan in [5, 0] {
            let connection = [(up, vlan), (down, vlan), (up, vlan), (down, vlan)];
            let all = [&[stray, (up, SYN)][..], &connection, &connection].concat();
            let all = if vlan == 0 {
                all
            } else {
                [&[stray][..], &connection].concat()
            };
            assert!(contexts(&all).iter().all(|&it| it == 0), "{vlan}");
        }
        // Nor does one within a connection whose directions have VLANs of their own.
        let all = [
            (up, 7),
            (down, 8),
            (up, 7),
            stray,
            (up, 7),
            (down, 8),
            (down, 7),
            (up, 7),
            (down, 8),
        ];
        assert_eq!(contexts(&all), [0, 0, 0, 1, 0, 0, 2, 0, 0]);
    }

    #[test]
    fn pairs_and_contexts_are_bounded() {
        let mut vlans = Vlans::new(1000);
        let flows = FlowTracker::new(FlowConfig::default());
        for pair in 0..3000_u32 {
            let mut packet = Decoded {
                vlan: [7, 0],
                vlan_count: 1,
                ..Decoded::default()
            };
            packet.key.low = Address::v4(pair.to_be_bytes());
            packet.key.version = 4;
            vlans.pass(core::slice::from_mut(&mut packet), &flows);
            assert!(vlans.pairs.len() <= 1000);
        }
        assert_eq!(vlans.forgotten + vlans.pairs.len() as u64, 3000);
        let many: Vec<(bool, u16)> = (1..1000).map(|vlan| (true, vlan)).collect();
        assert!(
            contexts(&many)
                .iter()
                .all(|&it| (it as usize) < MOST_CONTEXTS)
        );
    }
}
