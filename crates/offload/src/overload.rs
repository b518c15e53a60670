//! Overload: the pressure from which the kernel's program drops which data, and counts of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aya::maps::{HashMap as KernelMap, MapData};
use flowgauge_capture::live::LiveSource;
use flowgauge_flow::Withheld;
use flowgauge_stream::engine::Watermarks;
use flowgauge_stream::offload::{Loser, Lost, Overload};
use flowgauge_sys::bpf::SharedArray;
use flowgauge_wire::{Address, FlowKey, Nanos};

use crate::slots::{Seen, Slot, VLAN};
use crate::socket::{GRACE, KEY, V6};

/// Flows whose losses are counted apart at once, at most.
const MOST: u32 = 1 << 14;
/// After so long without a loss their slots are for others, if half of them have a flow.
const QUIET: Duration = Duration::from_secs(1);
/// Memory counts as full if it was all of so long: chunks come and go faster than the program can be told.
const LASTING: Duration = Duration::from_millis(100);
/// Words of a key, and of the map `limits`.
const KEY_WORDS: usize = KEY / 8;
const LIMITS: usize = 256;

/// Words of the map `setting`.
pub(crate) mod word {
    pub(super) const ROOM: usize = 2;
    pub(super) const DRAINED: usize = 3;
    pub(super) const BLOCK: usize = 4;
    pub(super) const BASE: usize = 5;
    pub(super) const END: usize = 6;
    pub(crate) const SILENCE: usize = 7;
    pub(crate) const CUT: usize = 8;
    pub(crate) const WITHHELD: usize = 9;
    pub(crate) const LOST: usize = 11;
    pub(super) const REST: usize = 13;
    pub(super) const PASSED: usize = 16;
    pub(super) const NEXT: usize = 18;
    pub(crate) const UNSEEN: usize = 19;
    pub(crate) const UNREAD: usize = 20;
    /// Keys of a hash.
    pub(crate) const KEYS: usize = 24;
    pub(crate) const WORKERS: usize = 33;
    /// So many there are.
    pub(crate) const ALL: usize = 40;
}

/// The ring that packets are copied into, in numbers that a program is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    block: u32,
    retire: u32,
    room: u64,
}

impl Ring {
    pub(crate) fn of(source: &LiveSource) -> Ring {
        let options = source.ring_options();
        let block = options.block_bytes;
        let all = u64::from(block) * u64::from(options.blocks);
        Ring {
            block,
            retire: options.retire_ms.saturating_mul(1_000_000),
            // The rest is for what is never lost, and for what the program does not know of it.
            room: (all - (all / 8).max(block.into())).min(u32::MAX.into()),
        }
    }
}

/// Tells the program how full the ring is, whose packets were just taken.
pub(crate) fn tell_ring(setting: &SharedArray, source: &LiveSource) {
    let words = setting.words();
    if words[word::ROOM].load(Ordering::Relaxed) as u32 != 0 {
        // What comes meanwhile counts twice, until the next time.
        let passed = words[word::PASSED].load(Ordering::Acquire);
        let block = u64::from(source.ring_options().block_bytes);
        let filled = u64::from(source.filled_blocks()) * block + (passed & (block - 1));
        words[word::DRAINED].store(passed.wrapping_sub(filled), Ordering::Release);
    }
}

/// What the program is told of overload, and has lost.
#[derive(Debug)]
pub(crate) struct Losses {
    table: KernelMap<MapData, [u8; KEY], u32>,
    losers: SharedArray,
    limits: SharedArray,
    /// The first of the slots.
    first: u32,
    most: u32,
    seen: Vec<[Seen; 2]>,
    /// Of what no slot has, packets, bytes and bytes of payload.
    rest: [u64; 3],
    given: Vec<Lost>,
    /// What watermarks the program knows: how often they had changed, and the ring.
    told: Option<(u32, u64)>,
    /// The least memory in use lately: since then, and in the time before.
    least: (Instant, [u64; 2]),
    /// How much was lost when it was looked at last, and since when no more was.
    lost: (u64, Instant),
    /// Since when the slots are given to nobody.
    closed: Option<Instant>,
}

impl Losses {
    /// How many slots there are beside those of so many flows under a verdict.
    pub(crate) fn slots_beside(flows: u32) -> u32 {
        flows.min(MOST)
    }

    /// Their slots are behind those of `flows`.
    pub(crate) fn new(
        table: KernelMap<MapData, [u8; KEY], u32>,
        flows: u32,
        map: impl Fn(&str, usize) -> Result<SharedArray, crate::Error>,
    ) -> Result<Losses, crate::Error> {
        let most = Losses::slots_beside(flows);
        Ok(Losses {
            table,
            losers: map("losers", most as usize * KEY_WORDS)?,
            limits: map("limits", LIMITS)?,
            first: flows,
            most,
            seen: Vec::new(),
            rest: [0; 3],
            given: Vec::new(),
            told: None,
            least: (Instant::now(), [u64::MAX; 2]),
            lost: (0, Instant::now()),
            closed: None,
        })
    }

    /// Tells how overload stands.
    pub(crate) fn tell(
        &mut self,
        setting: &[AtomicU64],
        ring: Option<&Ring>,
        overload: Option<&Overload<'_>>,
    ) {
        let (Some(overload), Some(ring)) = (overload, ring) else {
            if self.told.take().is_some() {
                setting[word::ROOM].store(0, Ordering::Release);
            }
            return;
        };
        let marks = overload.watermarks;
        let bytes = |share: u64| share.saturating_mul(ring.room) / Watermarks::SCALE;
        let now = Some((marks.changes(), ring.room));
        if self.told != now {
            for (priority, limit) in (0..=u8::MAX).zip(self.limits.words()) {
                let [beyond, all] = marks.shares(priority).map(bytes);
                limit.store(pair(beyond, all), Ordering::Relaxed);
            }
            let (base, block) = (bytes(marks.share_of(marks.base())), u64::from(ring.block));
            setting[word::BASE].store(pair(base, 0), Ordering::Relaxed);
            setting[word::BLOCK].store(pair(block, ring.retire.into()), Ordering::Relaxed);
            if self.told.is_none() {
                let passed = setting[word::PASSED].load(Ordering::Relaxed);
                setting[word::DRAINED].store(passed, Ordering::Relaxed);
                self.open(setting, self.most);
            }
            self.told = now;
        }
        let (since, [now, before]) = &mut self.least;
        if since.elapsed() > LASTING {
            (*since, *before) = (Instant::now(), core::mem::replace(now, overload.used));
        }
        *now = overload.used.min(*now);
        let memory = bytes(marks.share_of((*now).min(*before)));
        setting[word::ROOM].store(pair(ring.room, memory), Ordering::Release);
    }

    /// So many slots are there.
    fn open(&self, setting: &[AtomicU64], end: u32) {
        let word = pair(end.into(), self.first.into());
        setting[word::END].store(word, Ordering::Release);
    }

    /// Takes what was lost in a slot since the last time. `epoch` and `since_boot` as of [`Slot::withheld`].
    pub(crate) fn take(
        &mut self,
        slots: &SharedArray,
        number: u32,
        epoch: u32,
        since_boot: u64,
    ) -> [Withheld; 2] {
        let place = (number - self.first) as usize;
        let Some(slot) = Slot::of(slots, number) else {
            return Default::default();
        };
        if place >= self.seen.len() {
            self.seen.resize_with(place + 1, Default::default);
        }
        let [low, high] = &mut self.seen[place];
        let both = [
            slot.withheld(0, low, epoch, since_boot),
            slot.withheld(1, high, epoch, since_boot),
        ];
        if both.iter().any(|lost| lost.packets != 0) {
            self.given.push((self.loser(place), both));
        }
        both
    }

    /// Takes what was lost and is in no slot.
    pub(crate) fn take_rest(&mut self, setting: &[AtomicU64], now: Nanos) -> Withheld {
        // Packets are counted last.
        let counted = [0, 1, 2].map(|at| setting[word::REST + at].load(Ordering::Acquire));
        let before = core::mem::replace(&mut self.rest, counted);
        let [packets, bytes, payload_bytes] =
            [0, 1, 2].map(|at| counted[at].wrapping_sub(before[at]));
        if packets == 0 {
            self.rest = before;
            return Withheld::default();
        }
        let rest = Withheld {
            packets,
            bytes,
            data_packets: packets,
            data_bytes: bytes,
            payload_bytes,
            first: now,
            last: now,
            ..Withheld::default()
        };
        self.given.push((None, [rest, Withheld::default()]));
        rest
    }

    /// What was taken.
    pub(crate) fn give(&mut self) -> Vec<Lost> {
        core::mem::take(&mut self.given)
    }

    /// Frees the slots, when nothing was lost for a while.
    pub(crate) fn tidy(&mut self, setting: &[AtomicU64], slots: &SharedArray) {
        let lost = setting[word::LOST].load(Ordering::Relaxed);
        if lost != self.lost.0 {
            self.lost = (lost, Instant::now());
            return;
        }
        let used = (setting[word::NEXT].load(Ordering::Relaxed) as u32).min(self.most);
        match self.closed {
            None if used > self.most / 2 && self.lost.1.elapsed() > QUIET => {
                self.open(setting, 0);
                self.closed = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => {
                for place in 0..used {
                    // One that is not there is no harm.
                    let _ = self.table.remove(&self.key(place as usize));
                    if let Some(slot) = Slot::of(slots, self.first + place) {
                        slot.clear(&[0; KEY]);
                    }
                }
                self.seen.clear();
                setting[word::NEXT].store(0, Ordering::Relaxed);
                self.open(setting, self.most);
                self.closed = None;
            }
            _ => {}
        }
    }

    /// The key of a slot's flow.
    fn key(&self, place: usize) -> [u8; KEY] {
        let mut key = [0; KEY];
        let words = self.losers.words().iter().skip(place * KEY_WORDS);
        for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        key
    }

    fn loser(&self, place: usize) -> Option<Loser> {
        let key = self.key(place);
        let port = |at: usize| Some(u16::from_ne_bytes(*key[at..].first_chunk()?));
        let kind = u32::from_ne_bytes(*key[36..].first_chunk()?);
        let flow = FlowKey {
            low: Address(*key.first_chunk()?),
            high: Address(*key[16..].first_chunk()?),
            low_port: port(32)?,
            high_port: port(34)?,
            protocol: (kind & (V6 - 1)) as u8,
            version: if kind & V6 == 0 { 4 } else { 6 },
            ..FlowKey::default()
        };
        let vlan = kind >> VLAN;
        Some(Loser { key: flow, vlan })
    }
}

/// Two 32-bit fields that follow one another.
fn pair(first: u64, second: u64) -> u64 {
    let bits = |number: u64| number.min(u32::MAX.into());
    bits(first) | bits(second) << 32
}
