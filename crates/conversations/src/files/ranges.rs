//! Ranges of a file that come one by one (RFC 9110, section 14), put together.
//!
//! Ranges belong together where the same client asked the same server for the same target, and all say the
//! same size of the whole. What comes before its time waits, up to a bound ([`MOST_WAITING`]); behind that what lies
//! between counts as missing. A file is over when all of it came, or when no range of it came for a while
//! ([`IDLE`]).

use std::collections::{BTreeMap, HashMap};

use flowgauge_record::file::FileRow;
use flowgauge_wire::{Address, Budget, Nanos};

use super::{Body, Files};

/// Bytes of a file that wait for those before them.
const MOST_WAITING: usize = 1 << 20;
/// Files of which ranges came; with one more the one that was idle longest is over.
const MOST: usize = 1024;
/// How long the next range is waited for.
const IDLE: Nanos = Nanos(60_000_000_000);

/// Of which file ranges are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Whole {
    /// Who asked, and who answered.
    pub(crate) client: Address,
    pub(crate) server: (Address, u16),
    /// Host and target; of an answer without a known request the number of the flow.
    pub(crate) target: String,
    /// Bytes of all of it; ranges say it.
    pub(crate) total: u64,
}

/// A range: from its first byte to behind its last one, of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    start: u64,
    end: u64,
    total: u64,
}

impl Range {
    /// What `Content-Range` says (RFC 9110, section 14.4), where it says all three.
    pub(crate) fn read(value: &str) -> Option<Range> {
        let (unit, rest) = value.trim().split_once([' ', '\t'])?;
        let (range, total) = rest.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| {
            let text = text.trim();
            let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number)
        };
        let (start, last, total) = (number(first)?, number(last)?, number(total)?);
        let is_one = unit.eq_ignore_ascii_case("bytes") && start <= last && last < total;
        is_one.then_some(Range {
            start,
            end: last + 1,
            total,
        })
    }
}

/// A range under way.
#[derive(Debug)]
pub(crate) struct Part {
    place: usize,
    /// Number of the file.
    id: u64,
    at: u64,
    end: u64,
}

impl Part {
    /// The number of the file.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

/// A file of which ranges come.
struct Joined {
    whole: Whole,
    body: Body,
    /// Up to here all was handed on, or counts as missing.
    next: u64,
    /// What came before its time, by its place.
    waiting: BTreeMap<u64, Vec<u8>>,
    waits: usize,
    /// Ranges under way.
    open: u32,
    row: Option<FileRow>,
    /// A range was cut off.
    is_cut: bool,
    limit: Option<&'static str>,
    last: Nanos,
}

/// All files of which ranges come, on one core.
pub(super) struct Ranges {
    all: Vec<Option<Joined>>,
    by_name: HashMap<Whole, usize>,
    memory: Budget,
    /// Those that are over.
    done: Vec<(Body, FileRow)>,
}

impl Ranges {
    pub(super) fn new(memory: &Budget) -> Ranges {
        Ranges {
            all: Vec::new(),
            by_name: HashMap::new(),
            memory: memory.clone(),
            done: Vec::new(),
        }
    }

    fn finish(&mut self, place: usize) {
        let Some(mut joined) = self.all.get_mut(place).and_then(Option::take) else {
            return;
        };
        self.by_name.remove(&joined.whole);
        while !joined.waiting.is_empty() {
            joined.skip_hole(&self.memory);
        }
        let Some(mut row) = joined.row.take() else {
            return;
        };
        row.total_bytes = Some(joined.whole.total);
        row.is_whole = joined.next == joined.whole.total && !joined.is_cut;
        row.limit = joined.limit;
        self.done.push((joined.body, row));
    }

    /// Those are over of which no range came for a while; without a time all.
    fn expire(&mut self, now: Option<Nanos>) {
        if self.by_name.is_empty() {
            return;
        }
        for place in 0..self.all.len() {
            let joined = self.all.get(place).and_then(Option::as_ref);
            let is_over = |it: &Joined| {
                now.is_none_or(|now| it.open == 0 && now.0.saturating_sub(it.last.0) >= IDLE.0)
            };
            if joined.is_some_and(is_over) {
                self.finish(place);
            }
        }
    }
}

impl Joined {
    /// Bytes at a place.
    fn data(&mut self, at: u64, bytes: &[u8], memory: &Budget) {
        if at > self.next {
            let is_known = self
                .waiting
                .get(&at)
                .is_some_and(|it| it.len() >= bytes.len());
            if is_known || bytes.is_empty() {
                return;
            }
            while at > self.next
                && (self.waits + bytes.len() > MOST_WAITING
                    || !memory.charge(bytes.len() as u64, u64::MAX))
            {
                self.limit = Some("ranges");
                if self.waiting.is_empty() {
                    // Nothing is nearer than this.
                    self.body.gap(at - self.next);
                    self.next = at;
                } else {
                    self.skip_hole(memory);
                }
            }
            if at > self.next {
                self.waits += bytes.len();
                if let Some(old) = self.waiting.insert(at, bytes.to_vec()) {
                    self.forget(old.len(), memory);
                }
                return;
            }
        }
        self.ordered(at, bytes);
        self.drain(memory);
    }

    /// Bytes that begin at or before what is next: the first copy counts.
    fn ordered(&mut self, at: u64, bytes: &[u8]) {
        let known = usize::try_from(self.next - at).unwrap_or(usize::MAX);
        if let Some(fresh) = bytes.get(known..).filter(|it| !it.is_empty()) {
            self.body.data(fresh);
            self.next += fresh.len() as u64;
        }
    }

    fn drain(&mut self, memory: &Budget) {
        while let Some(entry) = self.waiting.first_entry()
            && *entry.key() <= self.next
        {
            let (at, bytes) = entry.remove_entry();
            self.forget(bytes.len(), memory);
            self.ordered(at, &bytes);
        }
    }

    /// What lies before what waits counts as missing.
    fn skip_hole(&mut self, memory: &Budget) {
        if let Some((&at, _)) = self.waiting.first_key_value()
            && at > self.next
        {
            self.body.gap(at - self.next);
            self.next = at;
        }
        self.drain(memory);
    }

    fn forget(&mut self, bytes: usize, memory: &Budget) {
        self.waits -= bytes;
        memory.release(bytes as u64);
    }
}

impl Files {
    /// A range of a file begins. `name` is what a file of its own would be called.
    pub(crate) fn open_range(
        &mut self,
        whole: &Whole,
        range: Range,
        name: &str,
        coding: Option<&[u8]>,
        now: Nanos,
    ) -> Part {
        let whole = Whole {
            total: range.total,
            ..whole.clone()
        };
        let known = self.ranges.by_name.get(&whole).copied();
        let place = known.unwrap_or_else(|| {
            if self.ranges.by_name.len() >= MOST {
                let all = self.ranges.all.iter().enumerate();
                let all = all.filter_map(|(place, it)| Some((it.as_ref()?.last, place)));
                if let Some((_, idle)) = all.min() {
                    self.ranges.finish(idle);
                }
            }
            let body = self.open(name, coding);
            let ranges = &mut self.ranges;
            let free = ranges.all.iter().position(Option::is_none);
            let place = free.unwrap_or_else(|| {
                ranges.all.push(None);
                ranges.all.len() - 1
            });
            ranges.by_name.insert(whole.clone(), place);
            ranges.all[place] = Some(Joined {
                whole,
                body,
                next: 0,
                waiting: BTreeMap::new(),
                waits: 0,
                open: 0,
                row: None,
                is_cut: false,
                limit: None,
                last: now,
            });
            place
        });
        let mut id = 0;
        if let Some(Some(joined)) = self.ranges.all.get_mut(place) {
            joined.open += 1;
            joined.last = joined.last.max(now);
            id = joined.body.id();
        }
        Part {
            place,
            id,
            at: range.start,
            end: range.end,
        }
    }

    /// More of a range; what is beyond its end is none of it.
    pub(crate) fn range_data(&mut self, part: &mut Part, bytes: &[u8], now: Nanos) {
        let Ranges { all, memory, .. } = &mut self.ranges;
        let left = usize::try_from(part.end - part.at).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(left)];
        if let Some(Some(joined)) = all.get_mut(part.place) {
            joined.last = joined.last.max(now);
            joined.data(part.at, bytes, memory);
        }
        part.at += bytes.len() as u64;
    }

    /// So many bytes of a range are missing.
    pub(crate) fn range_gap(&mut self, part: &mut Part, bytes: u64) {
        part.at = part.at.saturating_add(bytes).min(part.end);
    }

    /// A range is over: what is known of it.
    pub(crate) fn close_range(&mut self, part: &Part, row: FileRow) {
        let Some(Some(joined)) = self.ranges.all.get_mut(part.place) else {
            return;
        };
        joined.open = joined.open.saturating_sub(1);
        joined.is_cut |= !row.is_whole;
        match &mut joined.row {
            Some(first) => first.end = first.end.max(row.end),
            None => joined.row = Some(row),
        }
        if joined.next >= joined.whole.total {
            self.ranges.finish(part.place);
        }
    }

    /// The records of files that are over; `now`: and of those that wait too long, at the end of a run all.
    pub(crate) fn joined(&mut self, now: Option<Option<Nanos>>) -> Vec<FileRow> {
        if let Some(now) = now {
            self.ranges.expire(now);
        }
        let done = core::mem::take(&mut self.ranges.done);
        let close = |(body, mut row): (Body, FileRow)| {
            let (limit, is_whole) = (row.limit, row.is_whole);
            self.close(body, &mut row);
            row.limit = limit.or(row.limit);
            row.is_whole &= is_whole;
            row
        };
        done.into_iter().map(close).collect()
    }
}
