//! From packets to rows: who talks with whom over what, looked up once and counted once.
//!
//! A *conversation* is a pair of addresses and what its packets count for ([`crate::paths`]). It gathers packets and
//! octets of both directions; the rows of all tables get them when somebody looks, or when rows have to be compared as
//! one must go. Rows are made with the packet that needs them, so that times of creation are exact, and the stamp of the
//! last packet is kept with the counts, so that time marks are. A packet of a known conversation costs a look-up and a
//! few additions, whatever number of tables there is.

use core::hash::{BuildHasher, Hasher};
use core::mem;

use flowgauge_sys::prefetch::prefetch_address;
use flowgauge_wire::{DecodeFlags, Direction, FlowKey, FoldedState, LinkType, scattered};
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::directory::Directory;
use crate::found::{Found, SideRows};
use crate::frame::{Ether, Frame};
use crate::layers::{self, Layers, Level, Remembered};
use crate::paths::{Group, Paths, START};
use crate::smon::Tagged;
use crate::stations::Station;
use crate::store::{Handle, Moment};
use crate::tables::Tables;

/// Conversations whose counts are gathered. With more, the half that was used least recently is forgotten, which changes
/// no row.
const MOST: usize = 80_000;

/// No conversation around this one.
const OUTERMOST: u32 = 0;

/// What one direction of a conversation has gathered.
#[derive(Clone, Debug, Default)]
struct Side {
    octets: u64,
    /// Number of its last packet.
    last: u64,
    packets: u32,
    /// Tick of its last packet.
    stamp: u32,
    /// [`Tables::epoch`] when its rows were found, without what is above 32 bits ([`Interface::age`]).
    epoch: u32,
    /// Destination and source of its last frame, and so of all that it has gathered; zeros if it is not Ethernet.
    macs: [u8; 12],
}

/// [`Side::macs`] of what has no stations.
const NO_MACS: [u8; 12] = [0; 12];

const DIRECTIONS: [Direction; 2] = [Direction::LowToHigh, Direction::HighToLow];

/// Has the CPU fetch all lines of an element.
fn fetch<T>(slice: &[T], index: usize) {
    let start = slice.as_ptr().wrapping_add(index).cast::<u8>();
    let lines = size_of::<T>().div_ceil(64);
    (0..lines).for_each(|line| prefetch_address(start.wrapping_add(64 * line)));
}

/// Two cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Conversation {
    /// Addresses; `context` is the state of paths, `protocol` the network layer from the outside, and the ports are the
    /// conversation around, see [`outer`].
    key: FlowKey,
    is_dirty: bool,
    /// [`Interface::batch`] when the CPU was last told to fetch the rows of each direction.
    fetched: [u8; 2],
    sides: [Side; 2],
}

const _: () = assert!(size_of::<Conversation>() == 128);

impl Conversation {
    /// Number of its last packet.
    fn last(&self) -> u64 {
        self.sides[0].last.max(self.sides[1].last)
    }
}

/// Conversations that are looked for without the index: those of recent packets, by their hashes.
const RECENT: usize = 1 << 14;

/// Pairs of stations whose rows are found without a look-up: many networks have one router.
const LATELY: usize = 32;

/// A packet ready to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    key: FlowKey,
    hash: u64,
    direction: Direction,
}

/// A packet whose conversation is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    conversation: u32,
    direction: Direction,
}

/// An interface whose packets are counted.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// ifIndex.
    pub(crate) number: u32,
    /// Empty if nobody has said it, or another interface has it by now.
    pub(crate) name: String,
    /// Bits per second.
    pub(crate) speed: u64,
    /// The longest IP datagram that it carries in a frame.
    pub(crate) mtu: u32,
    conversations: Vec<Conversation>,
    /// Of both directions of each conversation.
    rows: Vec<[SideRows; 2]>,
    index: HashTable<u32>,
    /// By the low part of their hashes.
    recent: Box<[u32]>,
    dirty: Vec<u32>,
    /// How many rows the stations of a frame have, and the [`Tables::epoch`] when they were counted.
    stations: (usize, u64),
    /// The rows of stations found lately: of which addresses, in which [`Tables::epoch`].
    lately: [([u8; 12], u64, SideRows); LATELY],
    /// Counts batches, modulo 256.
    batch: u8,
    /// What is above 31 bits of [`Tables::epoch`]: when it changes, conversations are forgotten.
    age: u64,
    /// Packets and octets by state of paths, which protocolDist is yet to get.
    pending: Vec<[u64; 2]>,
    remembered: Remembered,
    /// States of plain IPv4 and IPv6 over Ethernet, without and with one tag.
    plain: [[u32; 2]; 2],
    pub(crate) ether: Ether,
    /// What it had told of errors.
    pub(crate) errors: Option<[u64; 2]>,
    pub(crate) tagged: Tagged,
}

/// What all interfaces count with.
pub(crate) struct Shared<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) paths: &'a mut Paths,
    pub(crate) tables: &'a mut Tables,
}

impl Interface {
    pub(crate) fn new(number: u32, speed: u64) -> Interface {
        Interface {
            number,
            name: String::new(),
            speed,
            mtu: u32::MAX,
            conversations: Vec::new(),
            rows: Vec::new(),
            index: HashTable::new(),
            recent: vec![0; RECENT].into(),
            dirty: Vec::new(),
            stations: (0, 0),
            lately: Default::default(),
            batch: 0,
            age: 0,
            pending: Vec::new(),
            remembered: Remembered::default(),
            plain: [[START; 2]; 2],
            ether: Ether::default(),
            errors: None,
            tagged: Tagged::default(),
        }
    }

    /// Forgets all conversations, whose counts were [flushed](Interface::flush), as the directory has changed.
    pub(crate) fn forget(&mut self) {
        self.conversations.clear();
        self.rows.clear();
        self.index.clear();
        self.pending.clear();
        self.plain = [[START; 2]; 2];
    }

    /// Makes room for the conversations of so many packets.
    pub(crate) fn make_room_for(&mut self, packets: usize, shared: &mut Shared<'_>) {
        self.batch = self.batch.wrapping_add(1);
        let epoch = shared.tables.epoch;
        if self.stations.1 != epoch {
            self.stations = (shared.tables.station_rows(self.number), epoch);
        }
        let age = epoch >> 31;
        let is_new = mem::replace(&mut self.age, age) != age;
        if is_new || self.conversations.len() + layers::MOST_LEVELS * packets > MOST {
            self.flush(shared.paths, shared.tables);
            let mut last: Vec<u64> = self.conversations.iter().map(Conversation::last).collect();
            let middle = last.len() / 2;
            let median = match last.get(middle) {
                Some(_) if !is_new => *last.select_nth_unstable(middle).1,
                _ => u64::MAX,
            };
            self.keep_those_since(median);
        }
    }

    /// Forgets the conversations whose last packet came no later, and those in others and around others.
    fn keep_those_since(&mut self, packet: u64) {
        let mut kept = 0;
        self.index.clear();
        for at in 0..self.conversations.len() {
            let conversation = &self.conversations[at];
            // Those around others have no packets.
            if conversation.last() <= packet || outer(&conversation.key, DIRECTIONS[0]).is_some() {
                continue;
            }
            let hash = hash_of(&conversation.key);
            self.conversations.swap(kept, at);
            self.rows.swap(kept, at);
            let conversations = &self.conversations;
            let of = |place: &u32| hash_of(&conversations[*place as usize].key);
            self.index.insert_unique(hash, kept as u32, of);
            kept += 1;
        }
        self.conversations.truncate(kept);
        self.rows.truncate(kept);
    }

    /// Finds out what a packet counts for.
    #[inline]
    pub(crate) fn see(&mut self, shared: &mut Shared<'_>, frame: &Frame<'_>) -> Seen {
        let seen = match self.plain(shared, frame) {
            Some(packet) => packet,
            None => self.unusual(shared, frame),
        };
        let likely = self.recent[seen.hash as usize % RECENT] as usize;
        fetch(&self.conversations, likely);
        seen
    }

    /// A packet whose layers are all in what was decoded: Ethernet with at most one tag, IP, TCP, UDP or ICMP.
    #[inline(always)]
    fn plain(&mut self, shared: &mut Shared<'_>, frame: &Frame<'_>) -> Option<Seen> {
        const TCP: u8 = 6;
        const UDP: u8 = 17;
        const NOT_PLAIN: u16 = DecodeFlags::FRAGMENT.0 | DecodeFlags::TRANSPORT.0;
        let packet = frame.decoded;
        let key = &packet.key;
        let is_v6 = key.version == 6;
        let header = packet.transport_offset.wrapping_sub(packet.ip_offset);
        if packet.flags.0 & NOT_PLAIN != DecodeFlags::TRANSPORT.0
            || packet.tunnel != 0
            || packet.vlan_count > 1
            || frame.about.link != LinkType::ETHERNET
            || is_v6 && header != 40
            || !matches!(key.protocol, 1 | TCP | UDP | 58)
        {
            return None;
        }
        let tagged = packet.vlan_count == 1;
        let offset = match tagged && !frame.is_stripped() {
            true => 18,
            false => 14,
        };
        if packet.ip_offset != offset || tagged && frame.ethertype() != Some(0x8100) {
            return None;
        }
        let mut base = self.plain[usize::from(tagged)][usize::from(is_v6)];
        if base == START {
            base = plain_base(shared, tagged, is_v6)?;
            self.plain[usize::from(tagged)][usize::from(is_v6)] = base;
        }
        let Shared {
            directory, paths, ..
        } = shared;
        let mut state = base;
        if let Some(found) = paths.step(directory, state, u32::from(key.protocol)) {
            state = found;
            if matches!(key.protocol, TCP | UDP) {
                let is_of_session = key.protocol == UDP && paths.sessions && {
                    let (from, to) = key.endpoints(packet.direction);
                    self.remembered.is_of_session(from, to)
                };
                let session = is_of_session.then(|| paths.session(directory, state));
                let ports = (key.low_port, key.high_port);
                let application = || paths.application(directory, state, ports);
                state = session.flatten().or_else(application).unwrap_or(state);
            }
            if frame.content != 0 {
                let found = paths.content(directory, state, frame.content);
                state = found.unwrap_or(state);
            }
        }
        // One-way messages have their sender first, all others are in order.
        let in_order = matches!(key.protocol, TCP | UDP) || key.low <= key.high;
        let (low, high, direction) = if in_order {
            (key.low, key.high, packet.direction)
        } else {
            (key.high, key.low, packet.direction.reversed())
        };
        let key = FlowKey {
            low,
            high,
            low_port: 0,
            high_port: 0,
            protocol: 0,
            version: key.version,
            reserved: 0,
            context: state,
        };
        Some(Seen::new(key, direction))
    }

    /// Any other packet: layer by layer. The conversations around the innermost one are found or made.
    #[cold]
    fn unusual(&mut self, shared: &mut Shared<'_>, frame: &Frame<'_>) -> Seen {
        let Layers { state, levels, .. } = self.layers(shared, frame);
        let packet = frame.decoded;
        // It is of the innermost addresses, which may be in a tunnel that the directory does not know.
        let (source, destination) = packet.key.endpoints(packet.direction);
        let is_its = |level: &Level| (level.source, level.destination) == (source.0, destination.0);
        let by_content = match frame.content {
            0 => None,
            _ if !levels.last().is_some_and(is_its) => None,
            content => shared.paths.content(shared.directory, state, content),
        };
        let state = by_content.unwrap_or(state);
        let mut outer = OUTERMOST;
        let mut seen = Seen::new(
            FlowKey {
                context: state,
                ..FlowKey::default()
            },
            Direction::LowToHigh,
        );
        for (at, level) in levels.iter().enumerate() {
            let version = if level.is_v4 { 4 } else { 6 };
            let (mut key, direction) =
                FlowKey::new(version, at as u8, (level.source, 0), (level.destination, 0));
            key.context = state;
            if at != 0 {
                let flipped = u32::from(direction != seen.direction);
                outer = (self.place(&seen) << 1 | flipped) + 1;
            }
            (key.low_port, key.high_port) = (outer as u16, (outer >> 16) as u16);
            seen = Seen::new(key, direction);
        }
        seen
    }

    /// The layers of a packet.
    pub(crate) fn layers(&mut self, shared: &mut Shared<'_>, frame: &Frame<'_>) -> Layers {
        let Shared {
            directory, paths, ..
        } = shared;
        let link = (frame.about.link, frame.is_stripped());
        layers::layers(directory, paths, &mut self.remembered, link, frame.bytes)
    }

    /// Finds the conversation of a packet. That is a pass of its own over a batch, so that what is not in the cache is
    /// waited for together.
    #[inline]
    pub(crate) fn look_up(&mut self, seen: &Seen) -> Placed {
        Placed {
            conversation: self.place(seen),
            direction: seen.direction,
        }
    }

    #[inline]
    fn place(&mut self, seen: &Seen) -> u32 {
        let recent = seen.hash as usize % RECENT;
        let likely = self.recent[recent];
        let found = self.conversations.get(likely as usize);
        if found.is_some_and(|found| found.key == seen.key) {
            return likely;
        }
        let place = self.place_in_index(seen);
        self.recent[recent] = place;
        place
    }

    fn place_in_index(&mut self, seen: &Seen) -> u32 {
        let conversations = &self.conversations;
        let same = |place: &u32| conversations[*place as usize].key == seen.key;
        if let Some(place) = self.index.find(seen.hash, same) {
            return *place;
        }
        let place = self.conversations.len() as u32;
        self.conversations.push(Conversation {
            key: seen.key,
            is_dirty: false,
            fetched: [self.batch.wrapping_sub(1); 2],
            sides: Default::default(),
        });
        self.rows.push(Default::default());
        let conversations = &self.conversations;
        let hash = |place: &u32| hash_of(&conversations[*place as usize].key);
        self.index.insert_unique(seen.hash, place, hash);
        place
    }

    /// Counts a packet.
    #[inline(always)]
    pub(crate) fn count(&mut self, shared: &mut Shared<'_>, seen: Placed, frame: &Frame<'_>) {
        let (mut packets, mut octets, macs) = (1, frame.octets(), frame.macs());
        let stamp = shared.tables.clock.stamp;
        if frame.decoded.ip_len > self.mtu {
            (packets, octets) = (0, 0);
            for part in frame.parts(self.mtu) {
                self.count_frame(frame, part, stamp);
                packets += 1;
                octets += part;
            }
        } else {
            self.count_frame(frame, octets, stamp);
        }
        let place = seen.conversation;
        let tables = &mut *shared.tables;
        tables.packets += 1;
        let conversation = &self.conversations[place as usize];
        let side = &conversation.sides[seen.direction.index()];
        if side.epoch != tables.epoch as u32 || macs.is_some_and(|macs| *macs != side.macs) {
            self.flush_side(shared.paths, tables, place, seen.direction);
            let side = &mut self.conversations[place as usize].sides[seen.direction.index()];
            side.macs = macs.copied().unwrap_or_default();
            self.resolve(shared.paths, tables, place, seen.direction, tables.packets);
        }
        let conversation = &mut self.conversations[place as usize];
        let side = &mut conversation.sides[seen.direction.index()];
        side.packets += packets;
        side.octets += octets;
        side.last = tables.packets;
        side.stamp = stamp;
        if !mem::replace(&mut conversation.is_dirty, true) {
            self.dirty.push(place);
        }
    }

    /// Counts what is counted of frames as such.
    #[inline(always)]
    fn count_frame(&mut self, frame: &Frame<'_>, octets: u64, stamp: u32) {
        let macs = frame.macs();
        self.ether.count(octets, macs);
        if let Some(tag) = frame.tag() {
            let is_group = macs.is_some_and(|macs| macs[0] & 1 == 1);
            self.tagged.count(tag, octets, is_group, stamp);
        }
    }

    /// Finds the rows of one direction of a conversation, and of those around it, and makes those that are not there.
    #[cold]
    #[inline(never)]
    fn resolve(
        &mut self,
        paths: &Paths,
        tables: &mut Tables,
        place: u32,
        direction: Direction,
        packet: u64,
    ) {
        let mut around = SmallVec::<[_; layers::MOST_LEVELS]>::new();
        let macs = self.conversations[place as usize].sides[direction.index()].macs;
        let innermost = (place, direction);
        let mut next = Some(innermost);
        while let Some((place, direction)) = next {
            around.push((place, direction));
            next = outer(&self.conversations[place as usize].key, direction);
        }
        // What goes for lack of room is found again with the next packet.
        let epoch = tables.epoch;
        let stations = self.resolve_stations(tables, &macs);
        for (place, direction) in around.into_iter().rev() {
            let key = self.conversations[place as usize].key;
            let is_innermost = (place, direction) == innermost;
            if !is_innermost
                && self.conversations[place as usize].sides[direction.index()].macs != NO_MACS
            {
                // It is the innermost one of other packets, and will find its stations with the next of them.
                self.flush_side(paths, tables, place, direction);
                self.conversations[place as usize].sides[direction.index()].macs = NO_MACS;
            }
            let level = usize::from(key.protocol);
            let groups = groups_of(paths, &key);
            if tables.are_full(self.number, groups) {
                // So that the least recently used rows are known.
                self.flush(paths, tables);
            }
            let sides = &self.rows[place as usize];
            let back = direction.reversed().index();
            let is_known = self.conversations[place as usize].sides[back].epoch == epoch as u32;
            let mut back = is_known.then(|| sides[back].iter().copied());
            let mut likely = sides[direction.index()].iter().copied();
            let mut rows = SideRows::new();
            for (at, group) in groups.iter().enumerate() {
                let used = packet << 8 | (level as u64) << 5 | (at.min(15) as u64) << 1;
                let moment = Moment {
                    stamp: tables.clock.stamp,
                    used,
                };
                let mut found = Found::new(group, self.number, key.endpoints(direction));
                found.mac = (level == 0).then(|| Station::of(&macs[6..]).0);
                if tables.epoch != epoch {
                    back = None;
                }
                found.rows(tables, moment, (back.as_mut(), &mut likely), &mut rows);
            }
            if let Some(stations) = stations.filter(|_| is_innermost) {
                rows.extend_from_slice(&self.lately[stations].2);
            }
            self.rows[place as usize][direction.index()] = rows;
            self.conversations[place as usize].sides[direction.index()].epoch = epoch as u32;
        }
    }

    /// Finds the rows of a frame's stations, if it has any: the place in [`Interface::lately`].
    fn resolve_stations(&mut self, tables: &mut Tables, macs: &[u8; 12]) -> Option<usize> {
        if *macs == NO_MACS {
            return None;
        }
        let epoch = tables.epoch;
        // Both directions have places of their own.
        let [to, from] = [&macs[..6], &macs[6..]].map(|it| Station::of(it).0);
        let place = scattered(to ^ from << 16) as usize % LATELY;
        let lately = &mut self.lately[place];
        if (lately.0, lately.1) != (*macs, epoch) {
            lately.2.clear();
            tables.resolve_stations(self.number, macs, &mut lately.2);
            (lately.0, lately.1) = (*macs, epoch);
        }
        Some(place)
    }

    /// Gives the rows what was counted since the last time.
    pub(crate) fn flush(&mut self, paths: &Paths, tables: &mut Tables) {
        let mut dirty = mem::take(&mut self.dirty);
        for (at, &place) in dirty.iter().enumerate() {
            for step in 0..3 {
                // What is far ahead first, as each step reads what the one before has fetched.
                if let Some(&ahead) = dirty.get(at + 4 * (3 - step)) {
                    self.prefetch(paths, tables, ahead, step);
                }
            }
            self.conversations[place as usize].is_dirty = false;
            for direction in DIRECTIONS {
                self.flush_side(paths, tables, place, direction);
            }
        }
        dirty.clear();
        self.dirty = dirty;
    }

    /// Has the CPU fetch a conversation and its rows, then those rows' contents, then their applications.
    fn prefetch(&self, paths: &Paths, tables: &Tables, place: u32, step: usize) {
        let place = place as usize;
        if step == 0 {
            fetch(&self.conversations, place);
            return fetch(&self.rows, place);
        }
        let Conversation { key, sides, .. } = &self.conversations[place];
        let directions = DIRECTIONS.map(Direction::index).into_iter();
        for direction in directions.filter(|direction| sides[*direction].packets != 0) {
            let mut rows = self.rows[place][direction].iter().copied();
            for group in groups_of(paths, key) {
                let outermost = key.protocol == 0;
                tables.prefetch(self.number, group, outermost, step - 1, &mut rows);
            }
        }
    }

    /// Has the CPU fetch the rows of a packet of a conversation that is new, as far as there are any, and notes where they are:
    /// once in a batch.
    #[inline]
    pub(crate) fn prefetch_rows(&mut self, shared: &Shared<'_>, seen: Placed) {
        let conversation = &mut self.conversations[seen.conversation as usize];
        let epoch = shared.tables.epoch as u32;
        let side = seen.direction.index();
        if conversation.sides[side].epoch == epoch || conversation.fetched[side] == self.batch {
            return;
        }
        conversation.fetched[side] = self.batch;
        // The hosts of packets back are known.
        let hosts = conversation.sides[1 - side].epoch != epoch;
        self.prefetch_new(shared, seen, hosts);
    }

    #[cold]
    fn prefetch_new(&mut self, shared: &Shared<'_>, seen: Placed, hosts: bool) {
        let key = &self.conversations[seen.conversation as usize].key;
        let rows = &mut self.rows[seen.conversation as usize][seen.direction.index()];
        if !rows.is_empty() {
            // They were found before others went.
            return;
        }
        for group in groups_of(shared.paths, key) {
            let found = Found::new(group, self.number, key.endpoints(seen.direction));
            found.prefetch(shared.tables, hosts, key.protocol == 0, rows);
        }
    }

    fn flush_side(&mut self, paths: &Paths, tables: &mut Tables, place: u32, direction: Direction) {
        let conversation = &mut self.conversations[place as usize];
        let side = &mut conversation.sides[direction.index()];
        let packets = u64::from(mem::take(&mut side.packets));
        if packets == 0 {
            return;
        }
        let gathered = Gathered {
            packets,
            octets: mem::take(&mut side.octets),
            group_packets: packets * u64::from(side.macs[0] & 1),
            stamp: side.stamp,
            last: side.last,
        };
        let state = conversation.key.context as usize;
        if state >= self.pending.len() {
            self.pending.resize(paths.len(), [0; 2]);
        }
        self.pending[state][0] += packets;
        self.pending[state][1] += gathered.octets;
        let Conversation { key, sides, .. } = &self.conversations[place as usize];
        let side = &sides[direction.index()];
        let rows = &self.rows[place as usize][direction.index()];
        if side.macs != NO_MACS {
            let others = rows.len().saturating_sub(self.stations.0);
            let mut stations = rows[others..].iter().copied();
            tables.deliver_stations(self.number, &side.macs, &gathered, &mut stations);
        }
        self.deliver(paths, tables, key, rows, &gathered);
        let mut next = outer(key, direction);
        while let Some((place, direction)) = next {
            let key = &self.conversations[place as usize].key;
            let rows = &self.rows[place as usize][direction.index()];
            self.deliver(paths, tables, key, rows, &gathered);
            next = outer(key, direction);
        }
    }

    /// Adds to the rows of one direction of a conversation.
    fn deliver(
        &self,
        paths: &Paths,
        tables: &mut Tables,
        key: &FlowKey,
        rows: &[Handle],
        gathered: &Gathered,
    ) {
        let mut rows = rows.iter().copied();
        let level = usize::from(key.protocol);
        for (at, group) in groups_of(paths, key).iter().enumerate() {
            let used = gathered.last << 8 | (level as u64) << 5 | (at.min(15) as u64) << 1;
            tables.deliver(self.number, group, level == 0, gathered, used, &mut rows);
        }
    }

    /// Gives protocolDist what was counted, by LocalIndex.
    pub(crate) fn distribute(&mut self, paths: &Paths, tables: &mut Tables) {
        for (state, pending) in self.pending.iter_mut().enumerate() {
            let counted = mem::take(pending);
            if counted[0] != 0 {
                tables.distribute(self.number, &paths.state(state as u32).nodes, counted);
            }
        }
    }
}

/// What one direction of a conversation gathered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
    pub(crate) group_packets: u64,
    pub(crate) stamp: u32,
    last: u64,
}

impl Seen {
    #[inline(always)]
    fn new(key: FlowKey, direction: Direction) -> Seen {
        Seen {
            key,
            hash: hash_of(&key),
            direction,
        }
    }
}

/// Addresses, the state of paths, and the conversation around.
#[inline(always)]
fn hash_of(key: &FlowKey) -> u64 {
    let mut hasher = FoldedState::default().build_hasher();
    hasher.write(&key.low.0);
    hasher.write(&key.high.0);
    let outer = u64::from(key.low_port) | u64::from(key.high_port) << 16;
    hasher.write_u64(u64::from(key.context) << 32 | outer);
    hasher.finish()
}

/// What the packets of a conversation count for.
fn groups_of<'a>(paths: &'a Paths, key: &FlowKey) -> &'a [Group] {
    let levels = &paths.state(key.context).levels;
    let groups = levels.get(usize::from(key.protocol));
    groups
        .filter(|_| key.version != 0)
        .map_or(&[], Vec::as_slice)
}

/// The conversation around one with this key, and the direction of a packet in it.
fn outer(key: &FlowKey, direction: Direction) -> Option<(u32, Direction)> {
    let outer = u32::from(key.low_port) | u32::from(key.high_port) << 16;
    let outer = outer.checked_sub(OUTERMOST + 1)?;
    let direction = match outer & 1 {
        0 => direction,
        _ => direction.reversed(),
    };
    Some((outer >> 1, direction))
}

/// The state of IP over Ethernet.
#[cold]
fn plain_base(shared: &mut Shared<'_>, tagged: bool, is_v6: bool) -> Option<u32> {
    let Shared {
        directory, paths, ..
    } = shared;
    let mut state = paths.base(directory, 1)?;
    if tagged {
        state = paths.step(directory, state, 0x8100)?;
    }
    paths.step(directory, state, if is_v6 { 0x86dd } else { 0x0800 })
}
