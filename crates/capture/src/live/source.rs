//! The live source.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowgauge_sys::interfaces::{self, NetworkInterface};
use flowgauge_sys::libpcap::Instruction;
use flowgauge_sys::losses;
use flowgauge_sys::machine;
use flowgauge_sys::packet::{
    Fanout, RingOptions, RingPacket, RingSocket, Waker, Wakeup, XdpRing, hardware,
};
use flowgauge_wire::{
    BATCH_SIZE, Batch, Ledger, LinkType, Nanos, PacketDescriptor, PacketFlags, Place,
};

use super::own::OwnTraffic;
use super::ring::Ring;
use super::{ANY, LiveConfig, StopHandle, fanout, kernel_filter, link_type_of, list_interfaces};
use crate::error::Error;
use crate::filter::FilterSet;
use crate::source::{Interface, PacketSource};

/// Packets that are not IP on an interface whose link header is not known (`LINKTYPE_USER0`).
const UNKNOWN_LINK: LinkType = LinkType(147);

/// How often it is asked for what the ring lost.
const COUNTING: Nanos = Nanos::from_secs(1);

/// Waits without a packet after which a stopped source gives up on packets that the kernel says
/// it captured.
const MOST_FRUITLESS_WAITS: u32 = 20;

/// Packets from a network interface, or from all.
///
/// A VLAN tag that the kernel stripped is in the descriptor, and counts in `wire_len`. On [`ANY`], packets have the
/// link type of their own interface, and loopback packets are seen once.
#[derive(Debug)]
pub struct LiveSource {
    name: String,
    ring: Ring,
    /// What the kernel runs before a packet is copied.
    program: Vec<Instruction>,
    /// The interface's ARP hardware type; `None`: there are several.
    hardware: Option<u16>,
    filter: Option<UserFilter>,
    /// `None`: what is this process's own is kept.
    own: Option<OwnTraffic>,
    tick_ms: u32,
    options: RingOptions,
    packets: Vec<PacketDescriptor>,
    /// When the ring was looked at last.
    looked: Nanos,
    /// When the kernel was asked last for what the ring lost.
    counted: Nanos,
    /// What comes next was not captured before this.
    bound: Nanos,
    /// `packets` are new, but an empty batch went before them.
    held_back: bool,
    interfaces: Interfaces,
    counters: Counters,
    stop: StopHandle,
    waker: Option<Waker>,
    state: State,
}

/// The filter, for packets that the kernel's program could not judge.
#[derive(Debug)]
struct UserFilter {
    set: FilterSet,
    /// ARP hardware types that the program in the kernel judges.
    in_kernel: Vec<u16>,
}

#[derive(Debug)]
enum State {
    Running,
    /// Nothing new arrives; what is in the ring is delivered, then the error.
    Draining {
        fruitless: u32,
        error: Option<Error>,
    },
    Ended,
}

#[derive(Debug, Default)]
struct Counters {
    /// Taken out of the ring.
    taken: u64,
    /// Of these, refused by the filter in user space.
    filtered: u64,
    /// Of those that it let through, of this process's own connections.
    own: u64,
    /// Bytes of those delivered.
    delivered_bytes: u64,
    /// Put into the ring and dropped, as the kernel counted.
    captured: u64,
    dropped: u64,
    /// Found missing at the end.
    lost: u64,
    /// Packets the card missed since the start.
    missed: u64,
    /// The card's counter when it was last read; `None` where it is not watched.
    missed_before: Option<u32>,
    missed_read_at: Option<Instant>,
}

impl LiveSource {
    /// Starts capturing.
    ///
    /// # Errors
    /// [`Error::Interface`] if there is no such interface, it is down, or capturing is not permitted; [`Error::Filter`]
    /// if the filter does not compile.
    pub fn open(config: &LiveConfig) -> Result<LiveSource, Error> {
        let (mut source, start) = LiveSource::prepare(config, StopHandle::default(), true, None)?;
        source.set_filter(&start.program, &start.fallback)?;
        source.bind(start.index)?;
        source.check_up(start.index)?;
        Ok(source)
    }

    /// Starts capturing with `count` sources. Each flow goes to one of them (both directions and fragments: packets are
    /// distributed by their IP addresses). All sources have the same stop handle.
    ///
    /// # Errors
    /// As [`LiveSource::open`].
    pub fn open_group(config: &LiveConfig, count: usize) -> Result<Vec<LiveSource>, Error> {
        let program = fanout::symmetric_hash(fanout_key());
        LiveSource::open_group_by(config, count, Fanout::Classic(&program))
    }

    /// Prepares to capture an interface's incoming packets with `count` sources, bypassing the system (`AF_XDP`). No
    /// packets arrive until an XDP program sends each one to [the sockets](LiveSource::mirror) of a source. Filters run
    /// in this process. All sources have the same stop handle.
    ///
    /// # Errors
    /// [`Error::Interface`] if there is no such interface, it is down or has no Ethernet frames, or the system does not
    /// support such sockets on it; [`Error::Filter`].
    pub fn open_mirror(config: &LiveConfig, count: usize) -> Result<Vec<LiveSource>, Error> {
        let (stop, name) = (StopHandle::default(), &config.interface);
        let failure = |what: &str, error: &io::Error| interface_error(name, what, error);
        let all = list_interfaces()?;
        let ethernet = find(name, &all)?.filter(|one| one.hardware == hardware::ETHERNET);
        let interface = ethernet.ok_or_else(|| Error::Interface {
            name: name.clone(),
            reason: "a mirror port is one interface with Ethernet frames".to_owned(),
            hint: "name one, or leave --mirror out".to_owned(),
        })?;
        let mtu = interfaces::mtu_of(name).map_err(|error| failure("it has no MTU", &error))?;
        let options = config.xdp(machine::receive_queues(name), mtu, count);
        let rings = XdpRing::open(interface.index, &options)
            .map_err(|error| failure("cannot open AF_XDP sockets", &error))?;
        let sources = (0..).zip(rings).map(|(member, ring)| {
            let blocks = options.frames * ring.sockets().count() as u32;
            let ring = Some(Ring::Mirror(ring));
            let (mut source, _) = LiveSource::prepare(config, stop.clone(), member == 0, ring)?;
            if let Some(filter) = &mut source.filter {
                filter.in_kernel.clear();
            }
            source.options = RingOptions {
                block_bytes: options.frame_bytes,
                blocks,
                retire_ms: 0,
            };
            source.check_up(interface.index)?;
            Ok(source)
        });
        sources.collect()
    }

    /// The same, with packets distributed by this program. Groups with the same program and number of sources have a
    /// flow at the same source.
    ///
    /// # Errors
    /// As [`LiveSource::open`].
    pub fn open_group_by(
        config: &LiveConfig,
        count: usize,
        fanout: Fanout<'_>,
    ) -> Result<Vec<LiveSource>, Error> {
        let stop = StopHandle::default();
        let mut group = None;
        let mut sources = Vec::with_capacity(count);
        for member in 0..count.max(1) {
            let (source, start) = LiveSource::prepare(config, stop.clone(), member == 0, None)?;
            // A socket receives everything from when it is bound until it joins: refuse it.
            source.attach(&kernel_filter::reject_all())?;
            source.bind(start.index)?;
            source.check_up(start.index)?;
            if count > 1 {
                let joined = source.socket()?.join_fanout(group, fanout);
                group = Some(joined.map_err(|error| {
                    source.failure("cannot share packets between sockets", &error)
                })?);
            }
            sources.push((source, start));
        }
        let started = sources.into_iter().map(|(mut source, start)| {
            source.set_filter(&start.program, &start.fallback)?;
            Ok(source)
        });
        started.collect()
    }

    /// This source, stopped by `handle` instead of its own.
    #[must_use]
    pub fn stopped_by(mut self, handle: StopHandle) -> LiveSource {
        self.stop = handle;
        self
    }

    /// This source, with `waker` ending its waits: it then returns an empty batch immediately.
    #[must_use]
    pub fn woken_by(mut self, waker: Waker) -> LiveSource {
        self.waker = Some(waker);
        self
    }

    /// A handle to stop this source from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Everything but letting packets in, into a ring of a socket unless there is another.
    fn prepare(
        config: &LiveConfig,
        stop: StopHandle,
        watch_missed: bool,
        ring: Option<Ring>,
    ) -> Result<(LiveSource, Start), Error> {
        let all = list_interfaces()?;
        let interface = find(&config.interface, &all)?;
        let mut filter = None;
        let mut programs = Vec::new();
        if !config.filter.trim().is_empty() {
            let netmask = interface.and_then(NetworkInterface::netmask);
            let mut set = FilterSet::new(&config.filter, config.snap_len, netmask);
            let candidates = interface.map_or(all.as_slice(), core::slice::from_ref);
            for hardware in candidates.iter().map(|one| one.hardware) {
                if programs.iter().any(|(known, _)| *known == hardware) {
                    continue;
                }
                if let Some(link) = link_type_of(hardware) {
                    programs.push((hardware, set.for_link(link)?.instructions().to_vec()));
                }
            }
            if programs.is_empty() {
                set.for_link(LinkType::RAW)?;
            }
            filter = Some(UserFilter {
                set,
                in_kernel: programs.iter().map(|(hardware, _)| *hardware).collect(),
            });
        }
        let borrowed: Vec<_> = programs
            .iter()
            .map(|(hardware, program)| (*hardware, program.as_slice()))
            .collect();
        let loopback_once = interface.is_none();
        let start = Start {
            index: interface.map_or(0, |one| one.index),
            program: kernel_filter::by_hardware(&borrowed, config.snap_len, loopback_once),
            fallback: kernel_filter::by_hardware(&[], config.snap_len, loopback_once),
        };

        let ring = match ring {
            Some(ring) => ring,
            None => Ring::Socket(
                RingSocket::open(&config.ring()).map_err(|error| cannot_open(config, &error))?,
            ),
        };
        let mut source = LiveSource {
            name: config.interface.clone(),
            ring,
            program: Vec::new(),
            hardware: interface.map(|one| one.hardware),
            filter,
            own: (!config.own_traffic).then(OwnTraffic::default),
            tick_ms: config.tick_ms,
            options: config.ring(),
            packets: Vec::with_capacity(BATCH_SIZE),
            looked: Nanos::ZERO,
            counted: Nanos::ZERO,
            bound: Nanos::ZERO,
            held_back: false,
            interfaces: Interfaces::default(),
            counters: Counters::default(),
            stop,
            waker: None,
            state: State::Running,
        };
        source.interfaces.names = all
            .iter()
            .map(|one| (one.index, one.name.clone()))
            .collect();
        source.interfaces.snap_len = config.snap_len;
        source.interfaces.filter = (!config.filter.is_empty()).then(|| config.filter.clone());
        if let Some(interface) = interface {
            source.interfaces.add(
                interface.index,
                link_type_of(interface.hardware).unwrap_or(LinkType::RAW),
            );
            if watch_missed {
                source.counters.missed_before = Some(interface.missed);
            }
            if interface.is_loopback() {
                let ignored = source.socket()?.ignore_outgoing();
                ignored.map_err(|error| {
                    source.failure("cannot leave out the second copy of each packet", &error)
                })?;
            }
            if config.promiscuous && !interface.is_loopback() {
                let set = source.ring.set_promiscuous(interface.index);
                set.map_err(|error| source.failure("cannot make it promiscuous", &error))?;
            }
        }
        Ok((source, start))
    }

    /// Attaches the filter; the one that leaves all to user space if the kernel does not take it
    /// (`protochain` loops, more than 4096 instructions).
    fn set_filter(
        &mut self,
        program: &[Instruction],
        fallback: &[Instruction],
    ) -> Result<(), Error> {
        if self.ring.set_filter(program).is_ok() {
            self.program = program.to_vec();
            return Ok(());
        }
        self.program = fallback.to_vec();
        if let Some(filter) = &mut self.filter {
            filter.in_kernel.clear();
        }
        self.attach(fallback)
    }

    /// The options of its ring.
    pub fn ring_options(&self) -> RingOptions {
        self.options
    }

    /// Number of filled blocks in its ring, including the one being read.
    pub fn filled_blocks(&self) -> u32 {
        self.ring.filled_blocks()
    }

    /// Whether the next packets are in the block being read, and were already there when the previous ones were read.
    pub fn is_within_block(&self) -> bool {
        self.ring.is_within_block()
    }

    /// Its rings, if it captures a mirror port.
    pub fn mirror(&self) -> Option<&XdpRing> {
        self.ring.mirror()
    }

    /// The program that the kernel runs before copying a packet, and the interface's ARP hardware type; `None` if there
    /// are several interfaces.
    pub fn kernel_program(&self) -> Option<(&[Instruction], u16)> {
        Some((&self.program, self.hardware?))
    }

    /// Replaces that program by an eBPF program that does the same or passes fewer packets.
    ///
    /// # Errors
    /// [`Error::Interface`] if it cannot be attached.
    pub fn set_kernel_program(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        let attached = self.socket()?.set_program(program);
        attached.map_err(|error| self.failure("cannot attach the program", &error))
    }

    fn attach(&self, program: &[Instruction]) -> Result<(), Error> {
        let attached = self.ring.set_filter(program);
        attached.map_err(|error| self.failure("cannot attach the filter", &error))
    }

    fn bind(&self, index: i32) -> Result<(), Error> {
        let bound = self.socket()?.bind(index);
        bound.map_err(|error| self.failure("cannot bind to it", &error))
    }

    fn socket(&self) -> Result<&RingSocket, Error> {
        let none = || {
            self.failure(
                "it has no packet socket",
                &io::ErrorKind::Unsupported.into(),
            )
        };
        self.ring.socket().ok_or_else(none)
    }

    fn check_up(&self, index: i32) -> Result<(), Error> {
        match self.ring.take_error() {
            Some(error) if index != 0 => Err(self.failure("it is not usable", &error)),
            _ => Ok(()),
        }
    }

    fn failure(&self, what: &str, error: &io::Error) -> Error {
        interface_error(&self.name, what, error)
    }

    /// Packets that were loaded last, in [`LiveSource::memory`].
    pub(super) fn loaded(&self) -> &[PacketDescriptor] {
        &self.packets
    }

    pub(super) fn memory(&self) -> &[u8] {
        self.ring.memory()
    }

    /// Some of the loaded packets as a batch, from the interface of this number.
    pub(super) fn lent(&mut self, places: Range<usize>, interface: u16) -> Batch<'_> {
        let packets = self.packets.get_mut(places).unwrap_or_default();
        for packet in &mut *packets {
            packet.interface = interface;
        }
        Batch::new(self.ring.memory(), packets)
    }

    /// Loads what is there, without waiting for more while it goes on; what was loaded before is gone.
    ///
    /// # Errors
    /// As [`PacketSource::next_batch`].
    pub(super) fn load(&mut self) -> Result<bool, Error> {
        self.fill(0)
    }

    /// Ends it when what is in the ring has been taken.
    pub(super) fn end(&mut self) {
        if matches!(self.state, State::Running) {
            self.drain(None);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    pub(super) fn ring(&self) -> Option<&RingSocket> {
        self.ring.socket()
    }

    pub(super) fn tick_ms(&self) -> u32 {
        self.tick_ms
    }

    /// When the ring was looked at last.
    pub(super) fn looked(&self) -> Nanos {
        self.looked
    }

    /// Packets that are not loaded yet were not captured before this.
    pub(super) fn bound(&self) -> Nanos {
        self.bound
    }

    /// Looks for packets, waits for them so many milliseconds at most, and says whether there are some.
    fn fill(&mut self, wait_ms: u32) -> Result<bool, Error> {
        loop {
            if matches!(self.state, State::Running) && self.stop.is_stopped() {
                self.drain(None);
            }
            self.packets.clear();
            if self.take_packets()? > 0 {
                return Ok(true);
            }
            match &mut self.state {
                State::Ended => return Ok(false),
                State::Running => match self.ring.wait(wait_ms, self.waker.as_ref()) {
                    Ok(Wakeup::Ready) => {}
                    // What time it is by now, the next look tells.
                    Ok(Wakeup::Idle) => return Ok(self.take_packets()? > 0),
                    Ok(Wakeup::Error) => match self.ring.take_error() {
                        Some(error) => {
                            let gone = self.failure("it disappeared or went down", &error);
                            self.drain(Some(gone));
                        }
                        None => return Ok(false),
                    },
                    Err(error) => {
                        let failed = self.failure("cannot wait for packets", &error);
                        self.drain(Some(failed));
                    }
                },
                State::Draining { fruitless, error } => {
                    *fruitless += 1;
                    let fruitless = *fruitless;
                    let error = error.take();
                    self.counters.read(&mut self.ring);
                    let complete = self.counters.taken >= self.counters.captured;
                    if fruitless > 1 && complete || fruitless > MOST_FRUITLESS_WAITS {
                        self.counters.lost =
                            self.counters.captured.saturating_sub(self.counters.taken);
                        self.state = State::Ended;
                        return match error {
                            Some(error) => Err(error),
                            None => Ok(false),
                        };
                    }
                    self.state = State::Draining { fruitless, error };
                    // A socket of an interface that is gone is always ready: the wait may be none.
                    let _ = self.ring.wait(self.options.retire_ms, None);
                }
            }
        }
    }

    /// Lets nothing in any more, and turns to what is there.
    fn drain(&mut self, error: Option<Error>) {
        // What is lost from now on is nobody's.
        self.counters.read(&mut self.ring);
        self.ring.close();
        self.state = State::Draining {
            fruitless: 0,
            error,
        };
    }

    /// Takes up to a batch of packets from the ring; returns how many were there before the
    /// filter.
    fn take_packets(&mut self) -> Result<usize, Error> {
        let LiveSource {
            ring,
            packets,
            interfaces,
            filter,
            own,
            counters,
            ..
        } = self;
        // Before the look: what comes meanwhile is later.
        self.looked = now();
        let mut judged_here = false;
        let in_kernel = filter.as_ref().map(|filter| filter.in_kernel.as_slice());
        let taken = ring.next_packets(BATCH_SIZE, |packet| {
            judged_here |= in_kernel.is_some_and(|types| !is_judged(types, &packet));
            packets.push(describe(&packet, interfaces));
        });
        counters.taken += taken as u64;
        if self.looked > self.counted + COUNTING {
            self.counted = self.looked;
            counters.read(ring);
        }
        self.bound = match packets.last() {
            // Others can wait behind it.
            Some(last) => last.time,
            None => self.looked - hold(self.options.retire_ms),
        };
        if let (true, Some(filter)) = (judged_here, filter) {
            let batch = ring.memory();
            let mut failed = None;
            packets.retain(|packet| {
                let start = packet.offset as usize;
                let bytes = batch.get(start..start + packet.captured_len as usize);
                match filter.set.for_link(packet.link) {
                    Ok(compiled) => compiled.verdict_on(bytes.unwrap_or_default(), packet) != 0,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            });
            counters.filtered += (taken - packets.len()) as u64;
            if let Some(error) = failed {
                self.state = State::Ended;
                return Err(error);
            }
        }
        if let Some(own) = own {
            counters.own += own.leave_out(ring.memory(), packets);
        }
        counters.delivered_bytes += packets
            .iter()
            .map(|packet| u64::from(packet.wire_len))
            .sum::<u64>();
        Ok(taken)
    }
}

impl PacketSource for LiveSource {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if core::mem::take(&mut self.held_back) {
            return Ok(Some(Batch {
                memory: self.ring.memory(),
                packets: &self.packets,
                now: None,
            }));
        }
        let known = self.interfaces.known.len();
        let filled = self.fill(self.tick_ms)?;
        if !filled && matches!(self.state, State::Ended) {
            return Ok(None);
        }
        if self.interfaces.known.len() > known {
            // While a batch is borrowed nobody can ask for the interfaces: show them first.
            self.held_back = true;
            return Ok(Some(Batch {
                memory: &[],
                packets: &[],
                now: None,
            }));
        }
        let now = self.packets.is_empty().then_some(self.bound);
        Ok(Some(Batch {
            memory: self.ring.memory(),
            packets: &self.packets,
            now,
        }))
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces.known
    }

    fn is_behind(&self) -> bool {
        self.ring.is_half_full()
    }

    fn ledger(&mut self) -> Ledger {
        self.counters.read(&mut self.ring);
        let ended = matches!(self.state, State::Ended);
        self.counters.read_missed(&self.name, ended);
        self.counters.ledger()
    }
}

/// What is needed to let packets in.
struct Start {
    index: i32,
    program: Vec<Instruction>,
    fallback: Vec<Instruction>,
}

impl Counters {
    fn read(&mut self, ring: &mut Ring) {
        if let Ok(statistics) = ring.statistics() {
            self.captured += statistics.captured;
            self.dropped += statistics.dropped;
            losses::add(statistics.dropped);
        }
    }

    /// Adds what the card missed. The counter has 32 bits and wraps. Asking for it costs far more
    /// than the ring's counters: once a second, and at the end.
    fn read_missed(&mut self, name: &str, at_once: bool) {
        const INTERVAL: Duration = Duration::from_secs(1);

        let Some(before) = self.missed_before else {
            return;
        };
        let read_at = self.missed_read_at;
        if !at_once && read_at.is_some_and(|read_at| read_at.elapsed() < INTERVAL) {
            return;
        }
        self.missed_read_at = Some(Instant::now());
        let all = interfaces::list().unwrap_or_default();
        if let Some(interface) = all.iter().find(|interface| interface.name == name) {
            self.missed += u64::from(interface.missed.wrapping_sub(before));
            self.missed_before = Some(interface.missed);
        }
    }

    fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.take(self.taken, self.delivered_bytes);
        ledger.refuse(Place::Filter, self.filtered, 0);
        ledger.refuse(Place::Own, self.own, 0);
        ledger.miss(Place::KernelRing, self.dropped + self.lost);
        ledger.miss(Place::Nic, self.missed);
        ledger
    }
}

/// The interfaces that packets came from.
#[derive(Debug, Default)]
struct Interfaces {
    known: Vec<Interface>,
    /// The system's index of each.
    indexes: Vec<i32>,
    /// Names of those that existed when the capture began.
    names: Vec<(i32, String)>,
    snap_len: u32,
    filter: Option<String>,
}

impl Interfaces {
    #[inline]
    fn number_of(&mut self, index: i32, link: LinkType) -> u16 {
        let found = self.indexes.iter().position(|&known| known == index);
        let number = found.unwrap_or_else(|| self.add(index, link));
        number.min(usize::from(u16::MAX)) as u16
    }

    #[cold]
    fn add(&mut self, index: i32, link: LinkType) -> usize {
        let known = self.names.iter().find(|(known, _)| *known == index);
        let name = match known {
            Some((_, name)) => Some(name.clone()),
            None => interfaces::name_of(index),
        };
        self.indexes.push(index);
        self.known.push(Interface {
            name,
            description: None,
            link,
            snap_len: self.snap_len,
            filter: self.filter.clone(),
        });
        self.known.len() - 1
    }
}

/// Whether the kernel's program has judged the packet.
#[inline]
fn is_judged(hardware_types: &[u16], packet: &RingPacket) -> bool {
    packet.vlan.is_none() && hardware_types.contains(&packet.hardware)
}

#[inline]
fn describe(packet: &RingPacket, interfaces: &mut Interfaces) -> PacketDescriptor {
    let (link, skipped) = match link_type_of(packet.hardware) {
        Some(link) => (link, 0),
        // The link header is of no known type: begin at the network header.
        None if matches!(packet.protocol, 0x0800 | 0x86dd) => (
            LinkType::RAW,
            packet.network_offset.min(packet.captured_len),
        ),
        None => (UNKNOWN_LINK, 0),
    };
    let mut flags = PacketFlags::default();
    if packet.is_outgoing() {
        flags = flags.with(PacketFlags::OUTGOING);
    }
    if packet.checksum_not_ready() {
        flags = flags.with(PacketFlags::CHECKSUM_NOT_READY);
    }
    if packet.checksum_valid() {
        flags = flags.with(PacketFlags::CHECKSUM_VALID);
    }
    let mut wire_len = packet.wire_len - skipped.min(packet.wire_len);
    let (vlan_tpid, vlan_tci) = match packet.vlan {
        Some(tag) => {
            flags = flags.with(PacketFlags::VLAN);
            wire_len += 4;
            tag
        }
        None => (0, 0),
    };
    PacketDescriptor {
        time: Nanos(packet.time_ns),
        offset: packet.offset + skipped,
        captured_len: packet.captured_len - skipped,
        wire_len,
        interface: interfaces.number_of(packet.interface, link),
        link,
        vlan_tpid,
        vlan_tci,
        flags,
    }
}

/// What makes the division of packets between sockets unpredictable.
pub(super) fn fanout_key() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// How long after its time stamp a packet is shown at the latest: its block is retired by the second turn of the timer that
/// finds it, which ticks every 4 ms at least, and the rest is for a machine that is late.
fn hold(retire_ms: u32) -> Nanos {
    Nanos(4 * u64::from(retire_ms.max(4)) * 1_000_000)
}

fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos(since.map_or(0, |since| since.as_nanos() as u64))
}

/// The interface with this name; `None` for [`ANY`].
fn find<'a>(
    name: &str,
    all: &'a [NetworkInterface],
) -> Result<Option<&'a NetworkInterface>, Error> {
    if name == ANY {
        return Ok(None);
    }
    if let Some(found) = all.iter().find(|interface| interface.name == name) {
        return Ok(Some(found));
    }
    let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
    Err(Error::Interface {
        name: name.to_owned(),
        reason: "there is no such interface".to_owned(),
        hint: format!("interfaces here: {}, {ANY}", names.join(", ")),
    })
}

fn cannot_open(config: &LiveConfig, error: &io::Error) -> Error {
    let ring = config.ring();
    let mut failed = interface_error(&config.interface, "cannot open a packet socket", error);
    if let (Error::Interface { hint, .. }, io::ErrorKind::OutOfMemory) = (&mut failed, error.kind())
    {
        let bytes = u64::from(ring.block_bytes) * u64::from(ring.blocks);
        *hint = format!(
            "a ring of {} MiB does not fit into memory: ask for a smaller buffer",
            bytes / (1 << 20)
        );
    }
    failed
}

const NEEDS_ROOT: &str = "run it as root";

impl Error {
    /// Whether this process lacks the permission to capture.
    pub fn is_about_rights(&self) -> bool {
        matches!(self, Error::Interface { hint, .. } if hint.starts_with(NEEDS_ROOT))
    }
}

pub(super) fn interface_error(name: &str, what: &str, error: &io::Error) -> Error {
    const ENODEV: i32 = 19;
    const ENXIO: i32 = 6;
    const ENETDOWN: i32 = 100;

    let hint = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, _) => {
            let program = std::env::current_exe().map_or_else(
                |_| "flowgauge".to_owned(),
                |path| path.display().to_string(),
            );
            format!(
                "{NEEDS_ROOT}, or grant what it needs once: \
                 sudo setcap cap_net_raw,cap_net_admin+ep {program}"
            )
        }
        (_, Some(ENETDOWN)) if interfaces::index_of(name).is_some() => {
            format!("switch it on: sudo ip link set {name} up")
        }
        (_, Some(ENETDOWN | ENODEV | ENXIO)) => {
            "the interface was removed while it was captured on".to_owned()
        }
        _ => "see `flowgauge doctor` for what this machine can do".to_owned(),
    };
    Error::Interface {
        name: name.to_owned(),
        reason: format!("{what}: {error}"),
        hint,
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_sys::packet::hardware;

    use super::*;

    fn packet(hardware: u16, protocol: u16) -> RingPacket {
        RingPacket {
            time_ns: 5,
            offset: 1000,
            network_offset: 4,
            captured_len: 60,
            wire_len: 90,
            interface: 3,
            status: 0,
            vlan: None,
            protocol,
            hardware,
            kind: 0,
        }
    }

    #[test]
    fn link_types_follow_the_hardware_type() {
        let mut interfaces = Interfaces::default();
        let mut describe = |hardware, protocol| {
            let packet = describe(&packet(hardware, protocol), &mut interfaces);
            (
                packet.link,
                packet.offset,
                packet.captured_len,
                packet.wire_len,
            )
        };
        let whole = |link| (link, 1000, 60, 90);
        let ip = 0x0800;
        assert_eq!(describe(hardware::ETHERNET, ip), whole(LinkType::ETHERNET));
        assert_eq!(describe(hardware::LOOPBACK, ip), whole(LinkType::ETHERNET));
        assert_eq!(describe(hardware::NONE, ip), whole(LinkType::RAW));
        assert_eq!(describe(hardware::SIT, 0x86dd), whole(LinkType::RAW));
        // PPP has a link header of its own: IP begins behind it.
        assert_eq!(describe(hardware::PPP, ip), (LinkType::RAW, 1004, 56, 86));
        assert_eq!(describe(hardware::PPP, 0xc021), whole(UNKNOWN_LINK));
    }

    #[test]
    fn a_tag_beside_the_frame_counts_on_the_wire() {
        let mut tagged = packet(hardware::ETHERNET, 0x0800);
        tagged.vlan = Some((0x88a8, 77));
        tagged.status = 1 << 3;
        tagged.kind = 4;
        let described = describe(&tagged, &mut Interfaces::default());
        assert_eq!(described.wire_len, 94);
        assert_eq!((described.vlan_tpid, described.vlan_tci), (0x88a8, 77));
        let expected = PacketFlags::VLAN
            .with(PacketFlags::OUTGOING)
            .with(PacketFlags::CHECKSUM_NOT_READY);
        assert_eq!(described.flags, expected);
    }
}
