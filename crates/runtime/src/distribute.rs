//! One reader for several shards: packets of a source are given to the shards they belong to, without
//! copying them.
//!
//! ```text
//!              +--> queue of deliveries --> ShardSource 0 --+
//!  source --> Distributor      (memory handle, descriptors) |--> each a PacketSource for its thread
//!              +--> queue of deliveries --> ShardSource 1 --+
//! ```
//!
//! A delivery is a handle to the memory the source has read into and the descriptors of one shard's
//! packets in it; the emptied lists of descriptors come back through a queue of their own. Only where a
//! source merely lends its memory, or gives packets in dribs and drabs (several files merged by time),
//! are packets copied together.
//!
//! Each shard gets its packets in their order. It also has to time out what has been idle when its
//! turn comes in the whole input, not only by its own packets: whenever the capture clock enters
//! another tick, all shards are told before any later packet. So the results do not depend on the
//! number of shards.

use std::sync::Arc;

use flowgauge_capture::{Error, Interface, MemoryPool, PacketSource, SharedMemory};
use flowgauge_flow::CaptureClock;
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::{BATCH_SIZE, Batch, DecodeOptions, Ledger, Nanos, PacketDescriptor};

use crate::queue::{Bell, Receiver, Sender, queue};
use crate::spread::Spread;

/// Deliveries that may wait for a shard. Few: what the reader has touched is then still in a cache
/// near by. With 64 two shards took a tenth more CPU time (2026-11-21, trace `mix`).
const WAITING: usize = 8;
/// Bytes of a packet that a shard asks for ahead: headers, and where the payload begins. The rest
/// follows in order, which the CPU's own prefetcher sees.
const FETCHED: usize = 128;
const CACHE_LINE: usize = 64;
/// Source batches of fewer packets are copied together.
const WORTH_SHARING: usize = 32;
/// Buffers for what is copied, and their size.
const COPY_BUFFERS: usize = 32;
const COPY_BYTES: usize = 256 << 10;

/// What a shard gets at once.
#[derive(Debug, Default)]
struct Delivery {
    memory: SharedMemory,
    packets: Vec<PacketDescriptor>,
    now: Option<Nanos>,
}

impl Delivery {
    /// Asks for the beginnings of all packets at once: another core has read them.
    fn fetch(&self) {
        let memory: &[u8] = &self.memory;
        for packet in &self.packets {
            let start = packet.offset as usize;
            for line in (0..FETCHED).step_by(CACHE_LINE) {
                prefetch_at(memory, start + line);
            }
        }
    }
}

/// Reads a source and gives its packets to shards. See the [module](self).
pub struct Distributor<S> {
    source: S,
    spread: Spread,
    out: Lanes,
    /// Whether the source shares its memory; not known before its first packets.
    shares: Option<bool>,
    /// Packets of the source's batch and where they go, where its memory is another.
    sorted: Vec<(PacketDescriptor, usize)>,
    prompt: bool,
}

/// What the reader of a source leaves.
#[derive(Debug, Default)]
pub struct Reading {
    /// The source's ledger without the packets it delivered: those are in the ledgers of the
    /// [`ShardSource`]s. What no shard took because it had ended was, as with a limit of packets,
    /// never received.
    pub ledger: Ledger,
    /// What was damaged; the rest was read.
    pub errors: Vec<Error>,
    /// What the source notes ([`PacketSource::notes`]).
    pub notes: Vec<String>,
    /// Packets sent to shards.
    pub sent: u64,
}

/// Divides `source` among `shards`. The reader has to [run](Distributor::run) while the shards take.
/// `options` say what a tunnel is, as those of the shards do.
pub fn distribute<S: PacketSource>(
    source: S,
    shards: usize,
    options: DecodeOptions,
) -> (Distributor<S>, Vec<ShardSource>) {
    let shards = shards.max(1);
    let reader = Bell::new();
    let interfaces: Arc<[Interface]> = source.interfaces().into();
    let (lanes, sources) = (0..shards)
        .map(|_| {
            let (queue_in, queue_out) = queue(WAITING, &reader, &Bell::new());
            // Nobody waits on these: a list that finds no room is dropped, and a new one made.
            let aside = Bell::new();
            let (emptied_in, emptied_out) = queue(WAITING + 2, &aside, &aside);
            let lane = Lane {
                packets: Vec::with_capacity(BATCH_SIZE),
                queue: queue_in,
                emptied: emptied_out,
                sent: 0,
                closed: false,
            };
            let source = ShardSource {
                queue: queue_out,
                emptied: emptied_in,
                current: Delivery::default(),
                ledger: Ledger::default(),
                interfaces: Arc::clone(&interfaces),
            };
            (lane, source)
        })
        .unzip();
    let distributor = Distributor {
        source,
        spread: Spread::new(shards, options),
        out: Lanes {
            lanes,
            memory: SharedMemory::default(),
            copied: None,
            pool: MemoryPool::new(COPY_BUFFERS),
            clock: CaptureClock::default(),
        },
        shares: None,
        sorted: Vec::with_capacity(BATCH_SIZE),
        prompt: false,
    };
    (distributor, sources)
}

impl<S: PacketSource> Distributor<S> {
    /// Sends on what there is after each batch of the source: for sources that may fall silent with
    /// packets not yet sent, such as a pipe or an interface.
    #[must_use]
    pub fn prompt(mut self, prompt: bool) -> Distributor<S> {
        self.prompt = prompt;
        self
    }

    /// Reads to the end of input, or until `stop` says so, which is asked once for each batch. The
    /// shards' sources end when this does.
    pub fn run(mut self, stop: impl Fn() -> bool) -> Reading {
        let mut errors = Vec::new();
        while !stop() && !self.out.is_closed() {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => errors.push(error),
            }
        }
        // What is over by the end of the input is that for all.
        self.out.flush(Some(self.out.clock.now()));
        let sent = self.out.lanes.iter().map(|lane| lane.sent).sum();
        let mut ledger = self.source.ledger();
        ledger.leave_out(ledger.delivered(), ledger.delivered_bytes());
        Reading {
            ledger,
            errors,
            notes: self.source.notes(),
            sent,
        }
    }

    /// One batch; false at the end of input.
    fn step(&mut self) -> Result<bool, Error> {
        let Some(batch) = self.source.next_batch()? else {
            return Ok(false);
        };
        let (now, known, len) = (batch.now, self.shares, batch.len());
        let goes_on = known == Some(true) && len >= WORTH_SHARING && self.out.lie_in_part(&batch);
        self.sorted.clear();
        for (index, packet) in batch.packets.iter().enumerate() {
            let shard = self.spread.shards_of(packet, batch.bytes(index)).by_address;
            if goes_on {
                let next = batch.packets.get(index + 1).map(|next| next.time);
                self.out.tell(packet.time, next);
                self.out.give(*packet, shard);
            } else {
                self.sorted.push((*packet, shard));
            }
        }
        if goes_on {
            // All of it is on its way.
        } else if known != Some(true) || len < WORTH_SHARING {
            for (index, (packet, shard)) in self.sorted.iter().enumerate() {
                let next = self.sorted.get(index + 1).map(|(next, _)| next.time);
                self.out.tell(packet.time, next);
                self.out.copy(*packet, *shard, batch.bytes(index));
            }
            if known.is_none() && len > 0 {
                self.shares = Some(self.source.share().is_some());
            }
        } else if let Some(memory) = self.source.share() {
            self.out.lie_in(memory);
            for (index, (packet, shard)) in self.sorted.iter().enumerate() {
                let next = self.sorted.get(index + 1).map(|(next, _)| next.time);
                self.out.tell(packet.time, next);
                self.out.give(*packet, *shard);
            }
        }
        if let Some(now) = now {
            self.out.clock.trusted(now);
            self.out.flush(Some(now));
        } else if self.prompt {
            self.out.flush(None);
        }
        Ok(true)
    }
}

/// The ways to all shards.
struct Lanes {
    lanes: Vec<Lane>,
    /// Where the packets lie that the lanes hold.
    memory: SharedMemory,
    /// The length of `memory` that is used, where packets are copied to it: nobody else has a handle.
    copied: Option<usize>,
    pool: MemoryPool,
    clock: CaptureClock,
}

/// The way to one shard.
struct Lane {
    packets: Vec<PacketDescriptor>,
    queue: Sender<Delivery>,
    emptied: Receiver<Vec<PacketDescriptor>>,
    sent: u64,
    closed: bool,
}

impl Lanes {
    fn is_closed(&self) -> bool {
        self.lanes.iter().any(|lane| lane.closed)
    }

    /// The next packet has this time: tells all shards when that is another tick.
    #[inline]
    fn tell(&mut self, time: Nanos, next: Option<Nanos>) {
        if !self.clock.goes_on(time) {
            let before = self.clock.tick();
            self.clock.packet(time, next);
            if self.clock.tick() != before {
                self.flush(Some(self.clock.now()));
            }
        }
    }

    /// The packets that come lie in `memory`.
    fn lie_in(&mut self, memory: SharedMemory) {
        if self.copied.is_some() || !self.memory.is(&memory) {
            self.flush(None);
            self.memory = memory;
        }
    }

    /// Whether a batch's packets lie in the memory that the lanes' do: while there is a handle to it
    /// nothing else can be there.
    fn lie_in_part(&self, batch: &Batch<'_>) -> bool {
        self.copied.is_none()
            && self.memory.as_ptr() == batch.memory.as_ptr()
            && self.memory.len() >= batch.memory.len()
    }

    #[inline]
    fn give(&mut self, packet: PacketDescriptor, shard: usize) {
        let Some(lane) = self.lanes.get_mut(shard) else {
            return;
        };
        lane.packets.push(packet);
        if lane.packets.len() >= BATCH_SIZE {
            lane.send(&self.memory, None);
        }
    }

    /// Gives a packet whose bytes have to be copied.
    fn copy(&mut self, mut packet: PacketDescriptor, shard: usize, bytes: &[u8]) {
        let used = match self.copied {
            Some(used) if used + bytes.len() <= self.memory.len() => used,
            _ => {
                self.flush(None);
                self.memory = self.pool.take(COPY_BYTES.max(bytes.len()));
                0
            }
        };
        let room = self.memory.exclusive();
        if let Some(room) = room.and_then(|room| room.get_mut(used..used + bytes.len())) {
            room.copy_from_slice(bytes);
        }
        packet.offset = used as u32;
        packet.captured_len = bytes.len() as u32;
        self.copied = Some(used + bytes.len());
        let Some(lane) = self.lanes.get_mut(shard) else {
            return;
        };
        lane.packets.push(packet);
        if lane.packets.len() >= BATCH_SIZE {
            self.flush(None);
        }
    }

    /// Sends what the lanes hold, and to all of them the time if there is one to tell.
    fn flush(&mut self, now: Option<Nanos>) {
        for lane in &mut self.lanes {
            if now.is_some() || !lane.packets.is_empty() {
                lane.send(&self.memory, now);
            }
        }
        if self.copied.take().is_some() {
            // Shards read it now.
            self.memory = SharedMemory::default();
        }
    }
}

impl Lane {
    fn send(&mut self, memory: &SharedMemory, now: Option<Nanos>) {
        let fresh = self.emptied.try_receive();
        let fresh = fresh.unwrap_or_else(|| Vec::with_capacity(BATCH_SIZE));
        let packets = core::mem::replace(&mut self.packets, fresh);
        let count = packets.len() as u64;
        let delivery = Delivery {
            memory: memory.clone(),
            packets,
            now,
        };
        match self.queue.send(delivery) {
            Ok(()) => self.sent += count,
            Err(_) => self.closed = true,
        }
    }
}

/// The packets of one shard, as a source for the thread that processes them.
///
/// Its ledger has only packets that it gave, all of them delivered; its interfaces are those the
/// whole source knew at its beginning.
#[derive(Debug)]
pub struct ShardSource {
    queue: Receiver<Delivery>,
    emptied: Sender<Vec<PacketDescriptor>>,
    current: Delivery,
    ledger: Ledger,
    interfaces: Arc<[Interface]>,
}

impl PacketSource for ShardSource {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        // Before waiting: the reader may wait for the memory.
        let mut done = core::mem::take(&mut self.current);
        done.memory = SharedMemory::default();
        done.packets.clear();
        if done.packets.capacity() > 0 {
            let _ = self.emptied.try_send(done.packets);
        }
        let Some(delivery) = self.queue.receive() else {
            return Ok(None);
        };
        delivery.fetch();
        let packets = delivery.packets.len() as u64;
        let bytes: u64 = delivery
            .packets
            .iter()
            .map(|packet| u64::from(packet.wire_len))
            .sum();
        self.ledger.take(packets, bytes);
        self.current = delivery;
        Ok(Some(Batch {
            memory: &self.current.memory,
            packets: &self.current.packets,
            now: self.current.now,
        }))
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn ledger(&mut self) -> Ledger {
        self.ledger.clone()
    }

    fn share(&mut self) -> Option<SharedMemory> {
        Some(self.current.memory.clone())
    }
}
