//! `around`: the packets of a flow around one that contains a text.

mod edges;

use std::collections::VecDeque;

use aho_corasick::AhoCorasick;
use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, Packets, Parallel, ResultInfo, ResultValue, Selection,
    SettingError, Settings, options,
};
use flowgauge_wire::{DecodeFlags, Decoded, FlowKey, Nanos, PacketDescriptor};
use hashbrown::HashTable;

use self::edges::Edges;
use crate::made::Made;
use crate::search::{self, IN, Part};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "around",
    summary: "selects the packets of a flow around one that contains a text",
    help: "The last packets of all flows are kept in `memory` bytes. When a packet contains the text, the kept \
           packets of its flow come out, both directions, then the packet itself and what follows of the flow. \
           Texts are written as for `search`. With in = payload, a text of up to 1025 bytes may span segments \
           of a connection that come in order; the packet in which it ends counts as containing it.",
    options: Options::ALL,
    result: Some(ResultInfo::number("packets with the text", "packets")),
    parallel: Parallel::ByFlow,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    pattern: Text = required, "text to search for";
    before: Integer(0, 1_000_000) as usize = "100", "packets of the flow before it";
    after: Integer(0, 1_000_000) as u64 = "100", "packets of the flow after it";
    timeout: Duration as u64 = "60s",
        "packets this long after the match, on the capture clock, no longer belong to it";
    memory: Size = "64M", "for kept packets; beyond it, the oldest of all flows are evicted";
    [IN.or("payload")];
    nocase: Flag = "no", "ignore case";
}

struct Around {
    automaton: AhoCorasick,
    part: Part,
    /// Where payload is searched.
    edges: Option<Edges>,
    options: Options,
    kept: Ring,
    /// Flows that had a match, what of them is still wanted, and until when.
    open: HashTable<Open>,
    made: Made,
    matches: u64,
}

#[derive(Clone, Copy)]
struct Open {
    hash: u64,
    key: FlowKey,
    left: u64,
    until: Nanos,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let patterns =
        search::patterns(&options.pattern).map_err(|it| SettingError::of("pattern", it))?;
    let memory = options.memory / settings.copies() as u64;
    if memory < 1 << 16 {
        return Err(SettingError::of("memory", "is less than 64k for each core"));
    }
    let part = Part::new(settings);
    let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
    // An eighth more is little beside the packets.
    let edges = (part == Part::Payload).then(|| Edges::new(longest, memory / 8));
    Ok(Box::new(Around {
        automaton: AhoCorasick::builder()
            .ascii_case_insensitive(options.nocase)
            .build(&patterns)
            .map_err(|error| SettingError::of("pattern", error.to_string()))?,
        part,
        edges,
        options,
        kept: Ring::new(memory),
        open: HashTable::new(),
        made: Made::default(),
        matches: 0,
    }))
}

impl Around {
    /// Whether a packet belongs to a match that was.
    fn follows(&mut self, packet: &Decoded) -> bool {
        let is_it = |open: &Open| open.key == packet.key;
        let Ok(mut entry) = self.open.find_entry(packet.hash, is_it) else {
            return false;
        };
        let open = entry.get_mut();
        if open.left == 0 || packet.time > open.until {
            entry.remove();
            return false;
        }
        open.left -= 1;
        true
    }

    /// What follows of the packet's flow is wanted.
    fn open(&mut self, packet: &Decoded) {
        let open = Open {
            hash: packet.hash,
            key: packet.key,
            left: self.options.after,
            until: Nanos(packet.time.0.saturating_add(self.options.timeout)),
        };
        let is_it = |open: &Open| open.key == packet.key;
        match self.open.find_mut(packet.hash, is_it) {
            Some(known) => *known = open,
            None => {
                self.open.insert_unique(open.hash, open, |open| open.hash);
            }
        }
    }

    /// Gives what was kept of a packet's flow, behind the packets `passed` that come before it.
    fn give(
        &mut self,
        packets: &Packets<'_>,
        passed: Selection,
        (index, packet): (usize, &Decoded),
        out: &mut dyn Outlet,
    ) {
        self.kept.find(packet, self.options.before);
        if self.kept.found.is_empty() {
            return;
        }
        if !passed.is_empty() {
            out.emit(Items::Packets(Packets {
                selected: passed,
                ..*packets
            }));
        }
        let key = packets.key(index);
        let origin = packets.origins.get(index).copied().unwrap_or(packet.index);
        while let Some(place) = self.kept.found.pop() {
            if let Some((descriptor, bytes)) = self.kept.take(place) {
                self.made.push(descriptor, &[bytes], key, origin);
            }
            if self.made.is_full() {
                self.made.give(packets.before, out, |_, _| {});
            }
        }
        self.made.give(packets.before, out, |_, _| {});
    }
}

impl Component for Around {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        let mut passed = Selection::NONE;
        for (index, packet) in all.iter() {
            let follows = self.follows(packet);
            let bytes = self.part.of(&all, packet);
            let edges = self.edges.as_mut();
            let crosses = edges.is_some_and(|edges| edges.take(packet, bytes, &self.automaton));
            if crosses || self.automaton.is_match(bytes) {
                self.matches += 1;
                if !follows {
                    let before = passed;
                    self.give(&all, before, (index, packet), out);
                    if self.kept.has_given {
                        passed = Selection::NONE;
                    }
                }
                self.open(packet);
            } else if !follows {
                self.kept.push(&all, packet, self.options.before);
                continue;
            }
            passed.insert(index);
        }
        // Not left over: on several cores all that comes out is then put in order by where it comes from.
        if !passed.is_empty() {
            out.emit(Items::Packets(Packets {
                selected: passed,
                ..all
            }));
        }
        packets.selected = Selection::NONE;
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, _: &mut dyn Outlet) {
        if self.open.len() > 64 {
            self.open.retain(|open| open.left > 0 && now <= open.until);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.matches))
    }

    fn reset(&mut self) {
        self.matches = 0;
    }
}

/// The last packets, in memory that is taken once: a ring of bytes, and what lies where in it. Packets
/// are numbered, and each knows the one before of its flow.
#[derive(Default)]
struct Ring {
    bytes: Vec<u8>,
    size: usize,
    /// Where the next packet goes.
    end: usize,
    packets: VecDeque<Kept>,
    /// The number of the first of them.
    first: u64,
    /// Of each flow that has packets here the last.
    last: HashTable<Last>,
    /// Places in `packets`, the last first: of [`Ring::find`].
    found: Vec<usize>,
    has_given: bool,
}

struct Last {
    hash: u64,
    key: FlowKey,
    number: u64,
}

struct Kept {
    key: FlowKey,
    hash: u64,
    /// The number of the packet before of the flow; it may be gone.
    previous: Option<u64>,
    descriptor: PacketDescriptor,
    at: usize,
    is_given: bool,
}

impl Ring {
    fn new(size: u64) -> Ring {
        Ring {
            size: size as usize,
            ..Ring::default()
        }
    }

    /// Bytes that a packet takes besides its own.
    const EACH: usize = size_of::<Kept>() + size_of::<Last>();

    fn pop(&mut self) {
        let Some(oldest) = self.packets.pop_front() else {
            return;
        };
        let number = self.first;
        self.first += 1;
        let is_it = |last: &Last| last.number == number && last.key == oldest.key;
        if let Ok(entry) = self.last.find_entry(oldest.hash, is_it) {
            entry.remove();
        }
    }

    /// Notes that the packet that is kept next is the last of its flow; returns which was.
    fn follow(&mut self, packet: &Decoded) -> Option<u64> {
        let number = self.first + self.packets.len() as u64;
        let is_it = |last: &Last| last.key == packet.key;
        match self.last.find_mut(packet.hash, is_it) {
            Some(last) => Some(core::mem::replace(&mut last.number, number)),
            None => {
                let (hash, key) = (packet.hash, packet.key);
                let last = Last { hash, key, number };
                self.last.insert_unique(hash, last, |last| last.hash);
                None
            }
        }
    }

    fn push(&mut self, packets: &Packets<'_>, packet: &Decoded, before: usize) {
        let descriptor = packets.batch.packets.get(usize::from(packet.index));
        let is_frame = !packet.flags.contains(DecodeFlags::REASSEMBLED);
        let Some(descriptor) = descriptor.filter(|_| is_frame && before > 0 && packet.has_ip())
        else {
            return;
        };
        let bytes = packets.batch.bytes_of(descriptor);
        let length = bytes.len();
        if length + Ring::EACH > self.size {
            return;
        }
        if self.bytes.is_empty() {
            // Not written to before it is used.
            self.bytes = vec![0; self.size];
        }
        if self.end + length > self.size {
            // What lies behind is given up, and the ring begins anew.
            while self
                .packets
                .front()
                .is_some_and(|oldest| oldest.at >= self.end)
            {
                self.pop();
            }
            self.end = 0;
        }
        let end = self.end + length;
        // The oldest ones that lie in its way, or whose account is too large for the memory.
        while let Some(oldest) = self.packets.front() {
            let is_in_way = (self.end..end).contains(&oldest.at)
                || (oldest.at < self.end
                    && oldest.at + oldest.descriptor.captured_len as usize > self.end);
            if !is_in_way && self.packets.len() < self.size / Ring::EACH {
                break;
            }
            self.pop();
        }
        if let Some(place) = self.bytes.get_mut(self.end..end) {
            place.copy_from_slice(bytes);
        }
        let previous = self.follow(packet);
        self.packets.push_back(Kept {
            key: packet.key,
            hash: packet.hash,
            previous,
            descriptor: PacketDescriptor {
                captured_len: length as u32,
                ..*descriptor
            },
            at: self.end,
            is_given: false,
        });
        self.end = end;
    }

    /// Finds the last `most` packets of a packet's flow, up to those that were given.
    fn find(&mut self, packet: &Decoded, most: usize) {
        self.found.clear();
        let is_it = |last: &Last| last.key == packet.key;
        let mut next = self.last.find(packet.hash, is_it).map(|last| last.number);
        while let Some(place) = next.and_then(|number| number.checked_sub(self.first)) {
            let kept = self.packets.get(place as usize);
            let Some(kept) = kept.filter(|kept| !kept.is_given && self.found.len() < most) else {
                break;
            };
            self.found.push(place as usize);
            next = kept.previous;
        }
        self.has_given = !self.found.is_empty();
    }

    fn take(&mut self, place: usize) -> Option<(PacketDescriptor, &[u8])> {
        let kept = self.packets.get_mut(place)?;
        kept.is_given = true;
        let length = kept.descriptor.captured_len as usize;
        Some((kept.descriptor, self.bytes.get(kept.at..kept.at + length)?))
    }
}
