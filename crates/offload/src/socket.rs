//! Verdicts as applied by the kernel's program, and its counters.

use core::hash::BuildHasher as _;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aya::maps::{HashMap as KernelMap, Map, MapData, ProgramArray};
use aya::programs::{SocketFilter as Program, Xdp};
use aya::{Ebpf, EbpfLoader};
use flowgauge_flow::Withheld;
use flowgauge_stream::offload::{
    Lost, Offload, OffloadFlow, Overload, Packets, Verdict, Vlan, Wanted,
};
use flowgauge_sys::bpf::{self, SharedArray};
use flowgauge_wire::{FlowKey, Nanos};

use crate::attach::{Attacher, Mirror, Place, share};
use crate::error::Error;
use crate::overload::{Losses, Ring, word};
use crate::slots::{SLOT, Seen, Slot, UNIT, VLAN, are_lazy, mode};

/// `bpf/verdict.bpf.c`, `bpf/mirror.bpf.c`.
static VERDICT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/verdict.o"));
static MIRROR: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/mirror.o"));

/// Default for the maximum number of flows under a verdict: 42 MB of kernel memory.
pub const DEFAULT_FLOWS: u32 = 1 << 17;
/// A slot whose flow was taken out of the table may still be counted in this long, by another processor.
pub(crate) const GRACE: Duration = Duration::from_millis(10);
/// A packet that the program let pass is in the ring by then, whichever processor does that.
const PASSING: Duration = Duration::from_millis(2);
/// What was counted of flows that are lazy is told this often.
const SWEEP: u64 = 50_000_000;
/// Shorter than any usual timeout of flows.
const SILENCE: Duration = Duration::from_millis(200);
/// The map of what filters go on with.
const NEXT: &str = "next";
/// Hashes of flows in the maps `syns` and `watched`, and keys of the hash.
const HASHES: usize = 1 << 16;
const KEYS: usize = 9;
/// What `watched` has where flows are to be looked for in the table.
const SOME: u32 = u32::MAX;
/// Bytes of a key in the kernel's table, and what its last word has of a packet over IPv6.
pub(crate) const KEY: usize = 40;
pub(crate) const V6: u32 = 1 << 7;
/// `BPF_NOEXIST`: another flow keeps its place.
const NEW_ONLY: u64 = 1;

/// Counters of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Flows under a verdict now.
    pub flows: u64,
    /// Verdicts that were not applied: the table was full, or the kernel refused.
    pub refused: u64,
    /// Packets that were withheld.
    pub withheld: u64,
    /// Their bytes on the wire.
    pub withheld_bytes: u64,
    /// Packets of which only the headers were copied.
    pub cut: u64,
    /// Packets lost to overload, by priority.
    pub lost: u64,
    /// Their bytes on the wire.
    pub lost_bytes: u64,
}

impl Statistics {
    /// Packets that did not come, and their bytes.
    pub(crate) fn gone(&self) -> [u64; 2] {
        [
            self.withheld + self.lost,
            self.withheld_bytes + self.lost_bytes,
        ]
    }

    /// The sum of two backends' counters.
    #[must_use]
    pub fn and(self, other: Statistics) -> Statistics {
        Statistics {
            flows: self.flows + other.flows,
            refused: self.refused + other.refused,
            withheld: self.withheld + other.withheld,
            withheld_bytes: self.withheld_bytes + other.withheld_bytes,
            cut: self.cut + other.cut,
            lost: self.lost + other.lost,
            lost_bytes: self.lost_bytes + other.lost_bytes,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Counters {
    /// What the kernel's program is told, and counts.
    pub(crate) setting: SharedArray,
    flows: AtomicU64,
    refused: AtomicU64,
    /// Packets of which it was told that they were kept away or lost, and their bytes.
    pub(crate) told: [AtomicU64; 2],
    /// What packets are copied into.
    pub(crate) ring: OnceLock<Ring>,
    /// All packets until then have been processed, in nanoseconds since 1970.
    pub(crate) shown: AtomicU64,
    /// Counts a capture's blocks: what was kept away before packets of a block is told before its first. 0: there is no capture.
    pub(crate) blocks: AtomicU64,
    /// Whether less than everything was ever wanted of something.
    pub(crate) is_needed: AtomicBool,
    /// All packets that came later were shown to the program, in nanoseconds since 1970.
    pub(crate) since: AtomicU64,
    pub(crate) failure: OnceLock<String>,
}

impl Counters {
    fn new(setting: SharedArray) -> Counters {
        Counters {
            setting,
            flows: AtomicU64::default(),
            refused: AtomicU64::default(),
            told: Default::default(),
            ring: OnceLock::new(),
            shown: AtomicU64::default(),
            blocks: AtomicU64::default(),
            is_needed: AtomicBool::default(),
            since: AtomicU64::new(u64::MAX),
            failure: OnceLock::new(),
        }
    }
}

impl Counters {
    /// The program is there. (Another processor may be about to do without it.)
    pub(crate) fn settle(&self) {
        let settled = since_boot().wrapping_add(bpf::clock()) + GRACE.as_nanos() as u64;
        self.since.store(settled, Ordering::Release);
    }

    /// This was told.
    fn note_told(&self, withheld: &Withheld) {
        let told = self.told.iter();
        for (told, more) in told.zip([withheld.packets, withheld.bytes]) {
            told.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// Reads a backend's counters from anywhere.
#[derive(Clone, Debug)]
pub struct StatisticsReader(pub(crate) Arc<Counters>);

impl StatisticsReader {
    /// The current counters.
    pub fn read(&self) -> Statistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.0;
        let counted = |at: usize| of(&counters.setting.words()[at]);
        Statistics {
            flows: of(&counters.flows),
            refused: of(&counters.refused),
            withheld: counted(word::WITHHELD),
            withheld_bytes: counted(word::WITHHELD + 1),
            cut: counted(word::CUT),
            lost: counted(word::LOST),
            lost_bytes: counted(word::LOST + 1),
        }
    }

    /// Whether the program is attached, which it is from when an application first wants less than everything.
    pub fn is_attached(&self) -> bool {
        self.0.since.load(Ordering::Relaxed) != u64::MAX && self.0.is_needed.load(Ordering::Relaxed)
    }

    /// The reason why the program could not be attached when it was needed.
    pub fn failure(&self) -> Option<&str> {
        self.0.failure.get().map(String::as_str)
    }
}

/// A program on packet sockets, which copies from each packet what the verdict of its flow says.
///
/// It handles TCP and UDP over IPv4 and IPv6 on Ethernet and loopback interfaces, not fragmented and not tunnelled. All
/// other packets pass, as do TCP packets with SYN, FIN or RST.
pub struct SocketFilter {
    /// The kernel forgets programs and maps that nobody holds.
    _kernel: Ebpf,
    place: Place,
    table: KernelMap<MapData, [u8; KEY], u32>,
    slots: SharedArray,
    dirty: SharedArray,
    syns: SharedArray,
    /// By hash of flows: [`SOME`] are in the table, or one is not, which has the slot before this number. How many there are.
    watched: SharedArray,
    /// A bit for each hash of which that has something.
    noted: SharedArray,
    watching: Vec<u32>,
    /// Of the hash.
    keys: [u64; KEYS],
    /// Verdicts on flows of which a SYN is on its way, which may begin another connection.
    waiting: HashMap<FlowKey, (OffloadFlow, [Wanted; 2])>,
    /// The slots of flows under a verdict.
    flows: HashMap<FlowKey, u32>,
    owners: Vec<Option<Owner>>,
    free: Vec<u32>,
    most: u32,
    /// Slots that are free in a moment.
    retired: VecDeque<(Instant, u32)>,
    broken: VecDeque<Broken>,
    epoch: u32,
    /// The block before which it was asked last.
    block: u64,
    /// When it told of all flows last, by the kernel's clock.
    swept: u64,
    others: Wanted,
    /// How many of the flows are of any VLAN.
    any: u32,
    losses: Losses,
    counters: Arc<Counters>,
}

/// Whose slot it is.
struct Owner {
    flow: OffloadFlow,
    seen: [Seen; 2],
}

/// A slot in which nothing is counted until the packets are processed that came out of turn.
struct Broken {
    /// All of them have come by then, in nanoseconds since 1970.
    by: u64,
    slot: u32,
    /// Whose.
    uid: u64,
    breaks: u64,
}

impl SocketFilter {
    /// Loads the program, for at most this many flows under a verdict.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::System`].
    pub fn load(flows: u32) -> Result<SocketFilter, Error> {
        SocketFilter::load_program(VERDICT, flows, |kernel| {
            let program = kernel.program_mut("verdict");
            let program = program.ok_or_else(|| Error::load("no program"))?;
            let program: &mut Program = program.try_into().map_err(Error::load)?;
            program.load().map_err(Error::load)?;
            let program = program.fd().map_err(Error::load)?;
            let program = program.try_clone().map_err(Error::load)?;
            let next = kernel.map_mut(NEXT).ok_or_else(|| Error::load(NEXT))?;
            let mut next = ProgramArray::try_from(next).map_err(Error::load)?;
            next.set(0, &program, 0).map_err(Error::load)?;
            let Some(Map::ProgramArray(next)) = kernel.map(NEXT) else {
                return Err(Error::load(NEXT));
            };
            share(next.fd().as_fd()).map(Place::Socket)
        })
    }

    /// The same for [mirror ports](Attacher::attach_to_mirror), whose packets only this capture needs: packets are
    /// withheld before the system sees them, or delivered whole.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::System`].
    pub fn load_for_mirror(flows: u32) -> Result<SocketFilter, Error> {
        SocketFilter::load_program(MIRROR, flows, |kernel| {
            let program = kernel.program_mut("mirror");
            let program = program.ok_or_else(|| Error::load("no program"))?;
            let program: &mut Xdp = program.try_into().map_err(Error::load)?;
            program.load().map_err(Error::load)?;
            let program = share(program.fd().map_err(Error::load)?.as_fd())?;
            let (Some(Map::XskMap(sockets)), Some(Map::ProgramArray(others))) =
                (kernel.map("sockets"), kernel.map("others"))
            else {
                return Err(Error::load("no maps"));
            };
            Ok(Place::Mirror(Mirror {
                program,
                sockets: share(sockets.fd().as_fd())?,
                others: share(others.fd().as_fd())?,
            }))
        })
    }

    fn load_program(
        object: &[u8],
        flows: u32,
        load: impl FnOnce(&mut Ebpf) -> Result<Place, Error>,
    ) -> Result<SocketFilter, Error> {
        let flows = flows.clamp(64, 1 << 22).next_multiple_of(64);
        let losses = Losses::slots_beside(flows);
        let mut kernel = EbpfLoader::new()
            .map_max_entries("flows", flows)
            .map_max_entries("losses", losses)
            .map_max_entries("losers", losses)
            .map_max_entries("slots", flows + losses)
            .map_max_entries("dirty", (flows + losses) / 32)
            .load(object)
            .map_err(Error::load)?;
        let place = load(&mut kernel)?;
        let mut map = |name: &str| {
            let map = kernel.take_map(name).ok_or_else(|| Error::load(name))?;
            KernelMap::try_from(map).map_err(Error::load)
        };
        let (table, losses_table) = (map("flows")?, map("losses")?);
        let shared = |name: &str, words: usize| {
            let Some(Map::Array(data)) = kernel.map(name) else {
                return Err(Error::load(name));
            };
            let shared = SharedArray::new(data.fd().as_fd(), words);
            shared.map_err(|error| Error::System {
                what: "cannot map the kernel's counters",
                error,
            })
        };
        let count = (flows + losses) as usize;
        let setting = shared("setting", word::ALL)?;
        let random = RandomState::new();
        let keys: [u64; KEYS] = core::array::from_fn(|at| random.hash_one(at));
        for (word, key) in setting.words()[word::KEYS..].iter().zip(keys) {
            word.store(key, Ordering::Relaxed);
        }
        let mut filter = SocketFilter {
            table,
            slots: shared("slots", count * SLOT)?,
            dirty: shared("dirty", count / 32)?,
            syns: shared("syns", HASHES)?,
            watched: shared("watched", HASHES / 2)?,
            noted: shared("noted", HASHES / 64)?,
            watching: vec![0; HASHES],
            keys,
            losses: Losses::new(losses_table, flows, shared)?,
            waiting: HashMap::new(),
            _kernel: kernel,
            place,
            flows: HashMap::new(),
            owners: Vec::new(),
            free: Vec::new(),
            most: flows,
            retired: VecDeque::new(),
            broken: VecDeque::new(),
            epoch: 1,
            block: 0,
            swept: 0,
            others: Wanted::ALL,
            any: 0,
            counters: Arc::new(Counters::new(setting)),
        };
        filter.set_silence(SILENCE);
        filter.begin(1);
        filter.tell_flows();
        Ok(filter)
    }

    /// Sets the time without packets in either direction of a flow after which the flow's next packet passes even
    /// if it is in sequence, as it may belong to a new flow.
    pub fn set_silence(&self, silence: Duration) {
        let units = silence.as_nanos() as u64 >> UNIT << 3;
        let units = units.min(u32::MAX.into());
        self.counters.setting.words()[word::SILENCE].store(units, Ordering::Relaxed);
    }

    /// A reader of its counters.
    pub fn statistics(&self) -> StatisticsReader {
        StatisticsReader(Arc::clone(&self.counters))
    }

    /// Returns an attacher for a capture, which may be opened elsewhere.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn attacher(&self) -> Result<Attacher, Error> {
        Ok(Attacher {
            place: match &self.place {
                Place::Socket(next) => Place::Socket(share(next.as_fd())?),
                Place::Mirror(mirror) => Place::Mirror(mirror.share()?),
            },
            counters: Arc::clone(&self.counters),
        })
    }

    /// Has the kernel count in another epoch.
    fn begin(&mut self, epoch: u32) {
        self.epoch = epoch;
        let word = u64::from(mode(self.others)) << 32 | u64::from(epoch);
        self.counters.setting.words()[0].store(word, Ordering::Release);
    }

    /// Has the kernel look flows up if there are any.
    fn tell_flows(&self) {
        let flows = self.flows.len() as u64;
        self.counters.flows.store(flows, Ordering::Relaxed);
        let word = u64::from(self.any != 0) << 32 | u64::from(!self.flows.is_empty());
        self.counters.setting.words()[1].store(word, Ordering::Release);
    }

    /// Whether a SYN may be on its way that user space has not seen: what is said of a flow ends with it.
    fn is_unsettled(&self, key: &FlowKey, since_boot: u64) -> bool {
        let shown = self.counters.shown.load(Ordering::Acquire);
        let last = self.syns.words()[hash(key, &self.keys)].load(Ordering::Acquire);
        shown <= self.counters.since.load(Ordering::Acquire)
            || last != 0 && since_boot.wrapping_add(last) > shown
    }

    /// Takes a verdict of less than others have.
    fn take(&mut self, flow: OffloadFlow, wanted: [Wanted; 2], since_boot: u64) {
        self.counters.is_needed.store(true, Ordering::Relaxed);
        // Who is more important may be so at once, whichever connection it is.
        let is_all = wanted
            .iter()
            .all(|it| it.packets == Packets::All && it.standing.is_beginning);
        if !is_all
            && self.is_unsettled(&flow.key, since_boot)
            && self.waiting.len() < self.most as usize
        {
            self.waiting.insert(flow.key, (flow, wanted));
        } else if self.install(flow, wanted).is_none() {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A slot for a flow, under this verdict. Nothing where there is none, or the kernel refuses.
    fn install(&mut self, flow: OffloadFlow, wanted: [Wanted; 2]) -> Option<()> {
        let fresh = self.owners.len() as u32;
        let number = self.free.pop().or((fresh < self.most).then_some(fresh))?;
        if number == fresh {
            self.owners.push(None);
        }
        let slot = Slot::of(&self.slots, number)?;
        let key = keys_of(&flow).next()?;
        slot.clear(&key);
        slot.set(wanted, flow.vlans);
        self.owners[number as usize] = Some(Owner {
            flow,
            seen: Default::default(),
        });
        if !self.show(&flow, number) {
            self.retired.push_back((Instant::now(), number));
            return None;
        }
        self.flows.insert(flow.key, number);
        self.any += u32::from(flow.is_of_any_vlan());
        self.tell_flows();
        Some(())
    }

    /// Has the kernel find a flow: by its hash alone, or in the table where others have the same or it has more than one key.
    fn show(&mut self, flow: &OffloadFlow, number: u32) -> bool {
        let hash = hash(&flow.key, &self.keys);
        let is_alone = flow.key.version == 4 && keys_of(flow).count() == 1;
        let found = match self.found(hash) {
            0 if is_alone => number + 1,
            before => {
                let other = self.owners.get(before.wrapping_sub(1) as usize);
                let other = other.and_then(Option::as_ref).map(|owner| owner.flow);
                if other.is_some_and(|other| !self.enter(&other, before - 1)) {
                    return false;
                }
                if !self.enter(flow, number) {
                    self.remove(other.iter().flat_map(keys_of));
                    return false;
                }
                SOME
            }
        };
        self.find(hash, found);
        self.watching[hash] += 1;
        true
    }

    /// Puts a flow into the table.
    fn enter(&mut self, flow: &OffloadFlow, number: u32) -> bool {
        for (at, key) in keys_of(flow).enumerate() {
            if self.table.insert(key, number, NEW_ONLY).is_err() {
                // By the other way packets may have come already.
                self.remove(keys_of(flow).take(at));
                return false;
            }
        }
        true
    }

    fn remove(&mut self, keys: impl Iterator<Item = [u8; KEY]>) {
        for key in keys {
            // One that is not there is no harm.
            let _ = self.table.remove(&key);
        }
    }

    /// What the kernel finds of a hash.
    fn found(&self, hash: usize) -> u32 {
        let word = self.watched.words()[hash / 2].load(Ordering::Relaxed);
        (word >> (hash % 2 * 32)) as u32
    }

    fn find(&self, hash: usize, found: u32) {
        let change = u64::from(self.found(hash) ^ found) << (hash % 2 * 32);
        self.watched.words()[hash / 2].fetch_xor(change, Ordering::Release);
        let (noted, bit) = (&self.noted.words()[hash / 64], 1 << (hash % 64));
        match found {
            0 => noted.fetch_and(!bit, Ordering::Release),
            _ => noted.fetch_or(bit, Ordering::Release),
        };
    }

    /// Takes a flow out of what the kernel finds; what was counted until then comes with the next polls.
    fn retire(&mut self, key: &FlowKey) {
        if let Some(number) = self.flows.remove(key) {
            if let Some(owner) = &self.owners[number as usize] {
                let flow = owner.flow;
                let hash = hash(key, &self.keys);
                if self.found(hash) == SOME {
                    self.remove(keys_of(&flow));
                }
                self.watching[hash] -= 1;
                if self.watching[hash] == 0 {
                    self.find(hash, 0);
                }
                self.any -= u32::from(flow.is_of_any_vlan());
            }
            self.retired.push_back((Instant::now(), number));
            self.tell_flows();
        }
    }

    /// Slots that nobody counts in any more.
    fn settle(&mut self, since_boot: u64, give: &mut dyn FnMut(&OffloadFlow, [Withheld; 2])) {
        while let Some((at, number)) = self.retired.front().copied() {
            if at.elapsed() < GRACE {
                break;
            }
            self.retired.pop_front();
            self.give(number, since_boot, give);
            self.owners[number as usize] = None;
            self.free.push(number);
        }
    }

    /// Slots in which is counted again.
    fn mend(&mut self) {
        let counters = &self.counters;
        let is_captured = counters.blocks.load(Ordering::Relaxed) != 0;
        let shown = match is_captured {
            true => counters.shown.load(Ordering::Acquire),
            false => u64::MAX,
        };
        while let Some(broken) = self.broken.pop_front_if(|broken| broken.by <= shown) {
            let owner = self
                .owners
                .get(broken.slot as usize)
                .and_then(Option::as_ref);
            if owner.is_some_and(|owner| owner.flow.uid == broken.uid)
                && let Some(slot) = Slot::of(&self.slots, broken.slot)
            {
                slot.go_on(broken.breaks);
            }
        }
    }

    /// The epoch that ends now: what was counted since it began is given.
    fn ended(&self) -> u32 {
        self.epoch.wrapping_sub(1)
    }

    /// Gives what was counted in a slot.
    fn give(
        &mut self,
        number: u32,
        since_boot: u64,
        give: &mut dyn FnMut(&OffloadFlow, [Withheld; 2]),
    ) {
        let ended = self.ended();
        if number >= self.most {
            let both = (self.losses).take(&self.slots, number, ended, since_boot);
            return both.iter().for_each(|it| self.counters.note_told(it));
        }
        let owner = self.owners.get_mut(number as usize);
        let (Some(owner), Some(slot)) = (
            owner.and_then(Option::as_mut),
            Slot::of(&self.slots, number),
        ) else {
            return;
        };
        let [low, high] = &mut owner.seen;
        self.broken.extend(slot.broken().map(|breaks| Broken {
            by: since_boot.wrapping_add(bpf::clock()) + PASSING.as_nanos() as u64,
            slot: number,
            uid: owner.flow.uid,
            breaks,
        }));
        let both = [
            slot.withheld(0, low, ended, since_boot),
            slot.withheld(1, high, ended, since_boot),
        ];
        both.iter().for_each(|it| self.counters.note_told(it));
        if both.iter().any(|withheld| withheld.packets != 0) {
            give(&owner.flow, both);
        }
    }
}

impl Offload for SocketFilter {
    fn verdict(&mut self, flow: &OffloadFlow, verdict: Verdict) {
        let known = self.flows.get(&flow.key).copied();
        let owner = known.and_then(|number| self.owners.get(number as usize)?.as_ref());
        let is_own = owner.is_some_and(|owner| owner.flow.uid == flow.uid);
        let is_same = owner.is_some_and(|owner| owner.flow == *flow);
        match (verdict, known) {
            (Verdict::Less(wanted), _) => {
                let slot = known.filter(|_| is_same);
                let slot = slot.and_then(|number| Slot::of(&self.slots, number));
                // What a lazy one has was counted by another rule.
                if let Some(slot) = slot.filter(|it| !it.is_lazy() || are_lazy(wanted)) {
                    slot.set(wanted, flow.vlans);
                } else {
                    self.retire(&flow.key);
                    self.waiting.remove(&flow.key);
                    self.take(*flow, wanted, since_boot());
                }
            }
            (Verdict::Resume | Verdict::Forget, Some(_)) if is_own => self.retire(&flow.key),
            (Verdict::Resume | Verdict::Forget, _) => {
                let waiting = self.waiting.get(&flow.key);
                if waiting.is_some_and(|(waiting, _)| waiting.uid == flow.uid) {
                    self.waiting.remove(&flow.key);
                }
            }
        }
    }

    fn others(&mut self, wanted: Wanted) {
        self.others = wanted;
        if mode(wanted) != 0 {
            self.counters.is_needed.store(true, Ordering::Relaxed);
        }
        self.begin(self.epoch);
    }

    fn poll(&mut self, give: &mut dyn FnMut(&OffloadFlow, [Withheld; 2])) {
        let block = self.counters.blocks.load(Ordering::Acquire);
        if core::mem::replace(&mut self.block, block) == block && block != 0 {
            return;
        }
        self.begin(self.epoch.wrapping_add(1));
        let since_boot = since_boot();
        self.mend();
        let losses = self.most as usize / 64..self.dirty.words().len() / 2;
        // At the end all, and before packets that the kernel knows no flow of.
        let unread = &self.counters.setting.words()[word::UNREAD];
        let now = bpf::clock();
        let is_due = block == 0
            || now.wrapping_sub(self.swept) > SWEEP
            || unread.load(Ordering::Acquire) != 0;
        if is_due {
            unread.store(0, Ordering::Release);
            self.swept = now;
        }
        for at in (0..self.owners.len().div_ceil(64)).chain(losses) {
            let words = &self.dirty.words()[2 * at..2 * at + 1 + usize::from(is_due)];
            // Most are zero: no other processor loses its line.
            let mut bits = words.iter().fold(0, |bits, word| {
                bits | match word.load(Ordering::Relaxed) {
                    0 => 0,
                    _ => word.swap(0, Ordering::Acquire),
                }
            });
            while bits != 0 {
                self.give(64 * at as u32 + bits.trailing_zeros(), since_boot, give);
                bits &= bits - 1;
            }
        }
        self.settle(since_boot, give);
        let counters = Arc::clone(&self.counters);
        let (setting, now) = (
            counters.setting.words(),
            since_boot.wrapping_add(bpf::clock()),
        );
        counters.note_told(&self.losses.take_rest(setting, Nanos(now)));
        self.losses.tidy(setting, &self.slots);
        for (flow, wanted) in core::mem::take(&mut self.waiting).into_values() {
            self.take(flow, wanted, since_boot);
        }
    }

    fn overload(&mut self, overload: Option<&Overload<'_>>) {
        if overload.is_some() {
            self.counters.is_needed.store(true, Ordering::Relaxed);
        }
        let counters = &self.counters;
        let setting = counters.setting.words();
        self.losses.tell(setting, counters.ring.get(), overload);
    }

    fn lost(&mut self) -> Vec<Lost> {
        self.losses.give()
    }
}

/// As the kernel's program computes it.
fn hash(key: &FlowKey, keys: &[u64; KEYS]) -> usize {
    let halves = [key.low, key.high].map(|address| {
        let half =
            |at: usize| u32::from_ne_bytes(core::array::from_fn(|byte| address.0[4 * at + byte]));
        [half(0), half(1), half(2), half(3)]
    });
    let ports = u32::from(key.low_port) << 16 | u32::from(key.high_port);
    let words = halves.into_iter().flatten().chain([ports]);
    let products = words
        .zip(keys)
        .map(|(word, key)| key.wrapping_mul(word.into()));
    (products.fold(0, u64::wrapping_add) >> 48) as usize
}

/// As the kernel's program has them: one for each VLAN that its packets are in.
fn keys_of(flow: &OffloadFlow) -> impl Iterator<Item = [u8; KEY]> + use<> {
    let key = flow.key;
    let [low, high] = flow.vlans.map(|vlan| match vlan {
        Vlan::Any => 0,
        Vlan::Only(vlan) => vlan,
    });
    let vlans = core::iter::once(low).chain((high != low).then_some(high));
    vlans.map(move |vlan| {
        let v6 = if key.version == 6 { V6 } else { 0 };
        let kind = vlan << VLAN | v6 | u32::from(key.protocol);
        let mut bytes = [0; KEY];
        bytes[..16].copy_from_slice(&key.low.0);
        bytes[16..32].copy_from_slice(&key.high.0);
        bytes[32..34].copy_from_slice(&key.low_port.to_ne_bytes());
        bytes[34..36].copy_from_slice(&key.high_port.to_ne_bytes());
        bytes[36..].copy_from_slice(&kind.to_ne_bytes());
        bytes
    })
}

/// When the clock of the machine was 0, in nanoseconds since 1970.
fn since_boot() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as u64);
    now.wrapping_sub(bpf::clock())
}
