//! The common part of demultiplexers: a table of keys, and the mapping from packets to keys.

use core::hash::Hash;
use core::net::SocketAddr;

use flowgauge_stack::{
    Component, ComponentInfo, ComponentKind, KeyTable, Outlet, Packets, Parallel, ResultInfo,
    ResultValue, Selection, Settings, StreamChunk, forked, options,
};
use flowgauge_wire::{Address, BATCH_SIZE, Decoded, FlowKey, Nanos};

use crate::closing::Closing;

/// The description of a demultiplexer, without its names and `make`.
pub const DEMULTIPLEXER: ComponentInfo = ComponentInfo {
    kind: ComponentKind::Demux,
    options: &[TIMEOUT, KEYS, RESULTS],
    result: Some(ResultInfo::number("instances so far", "instances")),
    parallel: Parallel::ByFlow,
    ..ComponentInfo::OF_PACKETS
};

options! {
    pub const;
    /// Option `timeout`.
    TIMEOUT = timeout: Duration = "60s",
        "an instance ends when idle for this long, on the capture clock";
    /// Option `keys`.
    KEYS = keys: Integer(1, 100_000_000) = "1M", "instances at once; beyond it, the longest idle ends";
    /// Option `results`.
    RESULTS = results: Integer(0, 100_000) = "0",
        "also report results of the components inside for this many instances: those with the largest, for tables \
        those with the most items";
}

/// A demultiplexer by the key that `key` returns for a packet; packets without a key go to the next component.
pub fn by<K, F>(settings: &Settings, key: F) -> Box<dyn Component>
where
    K: Copy + Eq + Hash + KeyName + Send + 'static,
    F: Fn(&Decoded) -> Option<(K, u64)> + Clone + Send + 'static,
{
    until_closed(settings, None, key)
}

/// Like [`by`]; with `closing`, the key of a TCP connection also ends when the connection is closed.
pub fn until_closed<K, F>(
    settings: &Settings,
    closing: Option<Closing>,
    key: F,
) -> Box<dyn Component>
where
    K: Copy + Eq + Hash + KeyName + Send + 'static,
    F: Fn(&Decoded) -> Option<(K, u64)> + Clone + Send + 'static,
{
    keying(settings, Keyed { key, closing })
}

/// A demultiplexer with this mapping from items to keys.
pub fn keying<B: Keying>(settings: &Settings, keying: B) -> Box<dyn Component> {
    Box::new(Demultiplexer {
        keys: Keys {
            table: KeyTable::new(
                settings.value(&TIMEOUT).unwrap_or_default(),
                settings.value(&KEYS).unwrap_or_default(),
            ),
            finished: Vec::new(),
        },
        keying,
        looked: Nanos(0),
        made_before: 0,
    })
}

/// The mapping from items to keys.
pub trait Keying: Clone + Send + 'static {
    /// The type of keys.
    type Key: Copy + Eq + Hash + KeyName + Send + 'static;

    /// See [`Component::demultiplex`].
    fn demultiplex(
        &mut self,
        _keys: &mut Keys<Self::Key>,
        _packets: &Packets<'_>,
        _numbers: &mut [u32],
    ) -> Selection {
        Selection::NONE
    }

    /// See [`Component::demultiplex_chunk`].
    fn demultiplex_chunk(
        &mut self,
        _keys: &mut Keys<Self::Key>,
        _chunk: &StreamChunk<'_>,
    ) -> Option<u32> {
        None
    }

    /// Frees these numbers for reuse.
    fn forget(&mut self, _ended: &[u32]) {}
}

/// The keys of a demultiplexer.
#[derive(Clone)]
pub struct Keys<K> {
    /// All keys, with their numbers.
    pub table: KeyTable<K>,
    /// Finished keys, which end when the clock advances.
    pub finished: Vec<u32>,
}

/// The name of a key, without blanks and slashes.
pub trait KeyName {
    /// The name.
    fn name(&self) -> String;
}

/// Two endpoints.
pub fn endpoints(version: u8, one: (Address, u16), other: (Address, u16)) -> String {
    let socket = |(address, port): (Address, u16)| SocketAddr::new(address.to_ip(version), port);
    format!("{}-{}", socket(one), socket(other))
}

/// The endpoint with the smaller address and port first.
impl KeyName for FlowKey {
    fn name(&self) -> String {
        let (low, high) = ((self.low, self.low_port), (self.high, self.high_port));
        let name = endpoints(self.version, low, high);
        match self.context {
            0 => name,
            context => format!("{name}#{context}"),
        }
    }
}

impl KeyName for (Address, Address, u32) {
    fn name(&self) -> String {
        let (low, high, context) = *self;
        match context {
            0 => (low, high).name(),
            context => format!("{}#{context}", (low, high).name()),
        }
    }
}

impl KeyName for (Address, Address) {
    fn name(&self) -> String {
        let ip = |address: Address| address.to_ip(6).to_canonical();
        format!("{}-{}", ip(self.0), ip(self.1))
    }
}

impl KeyName for u16 {
    fn name(&self) -> String {
        self.to_string()
    }
}

#[derive(Clone)]
struct Keyed<F> {
    key: F,
    closing: Option<Closing>,
}

#[derive(Clone)]
struct Demultiplexer<B: Keying> {
    keys: Keys<B::Key>,
    keying: B,
    /// The clock when keys were last ended.
    looked: Nanos,
    /// Instances that the result does not count: it was reset.
    made_before: u64,
}

/// A hash of a key within an instance of what is around, from a good hash of the key.
#[inline]
fn within(hash: u64, outer: u32) -> u64 {
    (hash ^ u64::from(outer)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<K, F> Keying for Keyed<F>
where
    K: Copy + Eq + Hash + KeyName + Send + 'static,
    F: Fn(&Decoded) -> Option<(K, u64)> + Clone + Send + 'static,
{
    type Key = K;

    fn demultiplex(
        &mut self,
        keys: &mut Keys<K>,
        packets: &Packets<'_>,
        numbers: &mut [u32],
    ) -> Selection {
        let mut keyed = Selection::NONE;
        let mut hashes = [0; BATCH_SIZE];
        // What is needed of the table for all packets is on its way before the first is looked for.
        for (index, packet) in packets.iter() {
            let Some((_, hash)) = (self.key)(packet) else {
                continue;
            };
            let hash = within(hash, packets.key(index));
            hashes[index] = hash;
            keyed.insert(index);
            keys.table.prefetch(hash);
        }
        for index in keyed.iter() {
            keys.table.prefetch_key(hashes[index]);
        }
        for index in keyed.iter() {
            let Some(packet) = packets.decoded.packets.get(index) else {
                continue;
            };
            let Some((key, _)) = (self.key)(packet) else {
                continue;
            };
            let (outer, hash) = (packets.key(index), hashes[index]);
            let mut number = keys.table.number_hashed(outer, key, hash, packet.time);
            if let Some(closing) = &mut self.closing
                && !closing.goes_on(number, packet)
            {
                // A new connection between the ports of one that has closed.
                keys.table.end(number);
                number = keys.table.number_hashed(outer, key, hash, packet.time);
            }
            numbers[index] = number;
        }
        if let Some(closing) = &mut self.closing {
            keys.finished.append(&mut closing.closed);
        }
        keyed
    }

    fn forget(&mut self, ended: &[u32]) {
        if let Some(closing) = &mut self.closing {
            closing.forget(ended);
        }
    }
}

impl<B: Keying> Component for Demultiplexer<B> {
    forked!();

    fn demultiplex(&mut self, packets: &Packets<'_>, keys: &mut [u32], _: Nanos) -> Selection {
        self.keying.demultiplex(&mut self.keys, packets, keys)
    }

    fn demultiplex_chunk(&mut self, chunk: &StreamChunk<'_>) -> Option<u32> {
        self.keying.demultiplex_chunk(&mut self.keys, chunk)
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.keys.table.made() - self.made_before))
    }

    fn reset(&mut self) {
        self.made_before = self.keys.table.made();
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        let Keys { table, finished } = &mut self.keys;
        // Not behind each batch: instances do not depend on how packets come in batches.
        if now > core::mem::replace(&mut self.looked, now) {
            finished.drain(..).for_each(|key| table.end(key));
        }
        table.take_ended(now, ended);
        self.keying.forget(ended);
    }

    fn outer(&self, key: u32) -> u32 {
        self.keys.table.outer(key)
    }

    fn end_key(&mut self, key: u32) {
        self.keys.finished.push(key);
    }

    fn key_name(&self, key: u32) -> Option<String> {
        self.keys.table.key(key).map(KeyName::name)
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.keys.table.end_outer(key);
    }

    fn end_all(&mut self) {
        self.keys.table.end_all();
    }
}
