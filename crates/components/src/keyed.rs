//! What demultiplexers have in common: a table of keys, and a way from a packet to its key.

use core::hash::Hash;

use flowgauge_stack::{
    Component, ComponentInfo, ComponentKind, Items, KeyTable, OptionInfo, OptionKind, Outlet,
    Packets, Parallel, Selection, Settings,
};
use flowgauge_wire::{Decoded, Nanos};

/// The description of a demultiplexer, its names and `make` still to be filled in.
pub(crate) const DEMULTIPLEXER: ComponentInfo = ComponentInfo {
    kind: ComponentKind::Demux,
    options: &[TIMEOUT, KEYS],
    parallel: Parallel::ByFlow,
    ..crate::OF_PACKETS
};

/// Option `timeout`.
pub(crate) const TIMEOUT: OptionInfo = OptionInfo::new(
    "timeout",
    OptionKind::Duration,
    "an instance ends when nothing came for this long, on the clock of the capture",
)
.or("60s");

/// Option `keys`.
pub(crate) const KEYS: OptionInfo = OptionInfo::new(
    "keys",
    OptionKind::Integer {
        min: 1,
        max: 100_000_000,
    },
    "instances at once; with more the longest idle ends",
)
.or("1M");

/// A demultiplexer by the key that `key` makes of a packet; packets without one go on.
pub(crate) fn by<K, F>(settings: &Settings, key: F) -> Box<dyn Component>
where
    K: Copy + Eq + Hash + Send + 'static,
    F: Fn(&Decoded) -> Option<(K, u64)> + Send + 'static,
{
    let timeout = settings.duration("timeout").unwrap_or(60_000_000_000);
    let keys = settings.integer("keys").unwrap_or(1_000_000);
    Box::new(Keyed {
        table: KeyTable::new(Nanos(timeout), keys as usize),
        key,
    })
}

struct Keyed<K, F> {
    table: KeyTable<K>,
    key: F,
}

/// A hash of a key within an instance of what is around, from a good hash of the key.
#[inline]
fn within(hash: u64, outer: u32) -> u64 {
    (hash ^ u64::from(outer)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<K, F> Component for Keyed<K, F>
where
    K: Copy + Eq + Hash + Send,
    F: Fn(&Decoded) -> Option<(K, u64)> + Send,
{
    fn process(&mut self, _: &mut Items<'_>, _: &mut dyn Outlet) {}

    fn demultiplex(&mut self, packets: &Packets<'_>, keys: &mut [u32], _: Nanos) -> Selection {
        let mut keyed = Selection::NONE;
        for (index, packet) in packets.iter() {
            let Some((key, hash)) = (self.key)(packet) else {
                continue;
            };
            let outer = packets.key(index);
            let hash = within(hash, outer);
            keys[index] = self.table.number_hashed(outer, key, hash, packet.time);
            keyed.insert(index);
        }
        keyed
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        self.table.take_ended(now, ended);
    }

    fn outer(&self, key: u32) -> u32 {
        self.table.outer(key)
    }

    fn end_key(&mut self, key: u32) {
        self.table.end(key);
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.table.end_outer(key);
    }

    fn end_all(&mut self) {
        self.table.end_all();
    }
}

/// A hash of few bits that are not hashed yet.
#[inline]
pub(crate) fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}
