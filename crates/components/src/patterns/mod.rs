//! `match`: patterns in streams, by the thousand.

mod read;
mod search;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use flowgauge_flow::FlowRecord;
use flowgauge_kit::engine;
use flowgauge_matcher::{Engine, Pattern, PatternSet, StreamState};
use flowgauge_record::matches::{MATCH_COUNT_SCHEMA, MATCH_SCHEMA};
use flowgauge_record::words::count;
use flowgauge_record::{KnownRecord, MatchCountRow, MatchRow, PatternName};
use flowgauge_runtime::{Chunk as StreamChunk, StreamHandle};
use flowgauge_stack::engine::{Feed, Required, Step};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, ItemType, Items, Outlet, Output, Parallel,
    RecordItem, ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_stream::engine::{ApplicationConfig, Budget, ChunkFlags, Mode};
use flowgauge_stream::offload::Verdicts;
use flowgauge_stream::{Chunk, Handler, Needs, Shard, Shares, Stream, StreamIdentity};
use flowgauge_wire::{LinkType, Nanos};
use parking_lot::Mutex;

use crate::chunked::{self, Chunked, Handling, Held, Usual};
use read::Wanted;
use search::{Finding, Search};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "match",
    summary: "finds patterns in streams, with a record of each match",
    help: "It reassembles streams and searches each direction of TCP connections and UDP flows, wherever \
           packets were cut. Each line is a pattern: the bytes to find; \"text |0d 0a|\" in quotation marks \
           with bytes in hexadecimal; options as in rules of Snort (content:\"text\"; nocase; offset:4; \
           depth:20; msg:\"name\"; sid:7); or /expression/imsx. Empty lines and lines with # are ignored. \
           Bytes beyond a cutoff are not searched; matches that end within it are found as without a cutoff.",
    output: Output::Of(ItemType::Record),
    fields: |settings| {
        Some(if settings.flag("count") {
            MATCH_COUNT_SCHEMA
        } else {
            MATCH_SCHEMA
        })
    },
    outside: Some("it has one table of all streams"),
    options: Options::ALL,
    result: Some(ResultInfo::number("matches", "matches")),
    parallel: Parallel::ByFlow,
    decodes: |_| true,
    engine: Some(required),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    pattern: Text, "what to find; several in lines (\\n between quotes)";
    file: InputFiles, "a file with patterns, one per line; several files in lines; - is standard input";
    fixed: Flag = "no", "take every pattern literally";
    ignore_case: Flag = "no", "ignore the case of letters A to Z";
    matcher: Choice("auto", "vectorscan", "aho-corasick") = "auto",
        "search engine; auto: Vectorscan if its library is installed, else aho-corasick, which is slower and has no \
         regular expressions";
    all_matches: Flag = "no", "report every match of an expression that begins at the same place, each with another end; otherwise only \
         the first of them, the shortest";
    first: Flag = "no", "report only the first match of a pattern per stream";
    count: Flag = "no", "report only totals at the end: matches and streams per pattern";
    zeros: Flag = "yes", "with count: include patterns without a match";
    max_matches: Integer(1, i64::MAX) as u64, "stop after this many matches";
    [engine::CHECKSUMS, engine::VLAN_AWARE, engine::OVERLAP_POLICY, engine::MEMORY, engine::MAX_FLOWS, engine::TCP_IDLE, engine::UDP_IDLE, engine::OTHER_IDLE, chunked::MODE, chunked::HOST_POLICY, chunked::CUTOFF, chunked::CUTOFF_CLIENT, chunked::CUTOFF_SERVER, chunked::CUTOFF_CLASS];
}

/// What the copies on several cores share.
struct Shared {
    wanted: Wanted,
    /// Compiled when the first of them is to start.
    set: OnceLock<Result<Arc<PatternSet>, Failure>>,
    /// Matches found and wanted.
    matches: AtomicU64,
    /// Where they are counted: patterns that were not found.
    not_found: OnceLock<u64>,
    limit: u64,
    unsearched: AtomicU64,
    /// Matches left out, as one of their pattern that began at the same place was told.
    repeats: AtomicU64,
    /// Bytes for the streams that each copy remembers, and streams forgotten.
    bound: u64,
    forgotten: AtomicU64,
    copies: AtomicUsize,
    /// Copies that have come to the end of their input, and what they counted, by pattern.
    ended: Mutex<(usize, Vec<Count>)>,
    /// For segments that wait and chunks, where streams come in chunks.
    budget: Budget,
}

/// How often a pattern was found.
#[derive(Clone, Copy, Default)]
struct Count {
    matches: u64,
    streams: u64,
}

struct Patterns {
    /// Where streams are cut off, in another mode, or by policies of hosts; otherwise they are searched as their
    /// segments come.
    chunked: Option<Box<Chunked>>,
    shared: Arc<Shared>,
    state: Held<State>,
    is_last: bool,
    /// The engine's clock when the step at hand began.
    clock: Nanos,
}

/// What handles streams, on whichever thread.
struct State {
    /// Once it has started.
    search: Option<Box<Search>>,
    found: Found,
}

/// In mode fast a chunk is searched so long after its first byte, if it is not full before.
const LATE: Nanos = Nanos::from_secs(1);

/// Bytes for what all copies remember of streams, where `memory` is not given.
const MEMORY: u64 = 256 << 20;

/// Matches that are given on together.
const TOGETHER: usize = 64;

/// A match that is to be given on.
struct Pending {
    /// Which pattern.
    pattern: usize,
    /// All else that a record says of it.
    time: Nanos,
    identity: StreamIdentity,
    from_initiator: bool,
    start: Option<u64>,
    end: u64,
}

/// What becomes of matches.
struct Found {
    shared: Arc<Shared>,
    /// Empty until it has started.
    set: Option<Arc<PatternSet>>,
    first: bool,
    /// Whether matches of a pattern that begin at the same place are all told.
    all: bool,
    /// By pattern, where that is all that is wanted.
    counts: Option<Vec<Count>>,
    /// Whether those that were not found are given, too.
    zeros: bool,
    pending: Vec<Pending>,
    matches: u64,
}

fn needs(settings: &Settings) -> Needs {
    let in_chunks = match chunked::are_wanted(settings) {
        true => chunked::bytes_per_connection(settings),
        false => 0,
    };
    Needs {
        streams: true,
        per_flow: 2 * size_of::<StreamState>() as u64 + in_chunks,
        results: settings.flag("first") || settings.flag("count") || !settings.flag("all_matches"),
    }
}

fn required(settings: &Settings) -> Result<Option<Required>, SettingError> {
    match chunked::are_wanted(settings) {
        true => Ok(None),
        false => engine::required(settings, needs(settings)),
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let (first, tally) = (options.first, options.count);
    if first && tally {
        return Err(SettingError::of(
            "first",
            "is of matches, and count is of all of them",
        ));
    }
    let needs = needs(settings);
    let shared = settings.shared(|| {
        Ok(Shared {
            wanted: Wanted::new(settings)?,
            set: OnceLock::new(),
            matches: AtomicU64::new(0),
            not_found: OnceLock::new(),
            limit: options.max_matches.unwrap_or(u64::MAX),
            unsearched: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
            bound: settings
                .size("memory")
                .map_or(MEMORY, |bytes| Shares::of_results(bytes, needs))
                / settings.copies() as u64,
            forgotten: AtomicU64::new(0),
            copies: AtomicUsize::new(0),
            ended: Mutex::default(),
            budget: chunked::budget(settings, needs),
        })
    })?;
    let chunked = if chunked::are_wanted(settings) {
        let config = engine::configuration(settings, needs)?;
        // Segments are searched where they lie. In mode fast those that come late find their places
        // in a chunk only, and only for a while: who waits for matches would wait for what fills it.
        let usual = match settings.text("mode") == Some(Mode::Fast.name()) {
            true => Usual {
                chunk_bytes: ApplicationConfig::CHUNK_BYTES,
                flush_timeout: Some(LATE),
            },
            false => Usual {
                chunk_bytes: 0,
                flush_timeout: None,
            },
        };
        let chunked = Chunked::new(settings, config, &shared.budget, usual)?;
        Some(Box::new(chunked))
    } else {
        None
    };
    shared.copies.fetch_add(1, Ordering::Relaxed);
    let found = Found {
        shared: Arc::clone(&shared),
        set: None,
        first,
        all: options.all_matches,
        counts: tally.then(Vec::new),
        zeros: options.zeros,
        pending: Vec::with_capacity(TOGETHER),
        matches: 0,
    };
    let search = None;
    Ok(Box::new(Patterns {
        shared,
        state: Held::new(settings, chunked.is_some(), State { search, found }),
        chunked,
        is_last: false,
        clock: Nanos(0),
    }))
}

impl Shared {
    /// Takes a match into account; false when enough have been found.
    fn admit(&self) -> bool {
        self.matches.fetch_add(1, Ordering::Relaxed) < self.limit
    }

    fn is_enough(&self) -> bool {
        self.matches.load(Ordering::Relaxed) >= self.limit
    }

    /// The patterns, compiled.
    fn compiled(&self) -> Result<Arc<PatternSet>, Failure> {
        let compile = || self.wanted.compile().map(Arc::new);
        self.set.get_or_init(compile).clone()
    }

    /// A copy has come to its end; of the last one the counts of all.
    fn end(&self, counts: Option<&[Count]>) -> Option<Vec<Count>> {
        let mut ended = self.ended.lock();
        let (copies, total) = &mut *ended;
        *copies += 1;
        let counts = counts.unwrap_or_default();
        if total.len() < counts.len() {
            total.resize(counts.len(), Count::default());
        }
        for (total, count) in total.iter_mut().zip(counts) {
            total.matches += count.matches;
            total.streams += count.streams;
        }
        (*copies == self.copies.load(Ordering::Relaxed)).then(|| core::mem::take(total))
    }

    /// What there is to say of all copies together.
    fn tell(&self, set: &PatternSet, account: &mut Account) {
        let matches = self.matches.load(Ordering::Relaxed).min(self.limit);
        let patterns = count(set.patterns().len() as u64, "pattern");
        let stopped = if self.is_enough() {
            "; stopped there (`max_matches`)"
        } else {
            ""
        };
        let found = count(matches, "match");
        let absent = self.not_found.get().filter(|&&absent| absent > 0);
        let absent = absent.map_or(String::new(), |&absent| {
            format!("; {} not found", count(absent, "pattern").were())
        });
        account
            .summary
            .push(format!("{found} of {patterns}{stopped}{absent}"));
        let is_fallback = set.engine() == Engine::AhoCorasick;
        if is_fallback && self.wanted.engine == Engine::Automatic {
            account.notes.push(
                "Vectorscan is not installed: the built-in automaton searched, several times slower; \
                 hint: apt install libvectorscan5"
                    .to_owned(),
            );
        }
        account.statistics.push(format!(
            "matcher: {}, {patterns}, {} bytes for each stream with data",
            if is_fallback {
                "aho-corasick"
            } else {
                "vectorscan"
            },
            set.stream_bytes() + size_of::<StreamState>()
        ));
        let repeats = self.repeats.load(Ordering::Relaxed);
        if repeats > 0 {
            account.statistics.push(format!(
                "matcher: {} left out that {} where one of the same pattern did",
                count(repeats, "match").were(),
                if repeats == 1 { "begins" } else { "begin" }
            ));
        }
        let forgotten = self.forgotten.load(Ordering::Relaxed);
        if forgotten > 0 {
            account.notes.push(format!(
                "matches of {} forgotten, as memory was full: some are reported or counted again; hint: raise \
                 `memory`",
                count(forgotten, "stream").were()
            ));
        }
        let unsearched = self.unsearched.load(Ordering::Relaxed);
        if unsearched > 0 {
            account.notes.push(format!(
                "{} not searched: no memory for the state of their streams; hint: lower the number \
                 of flows (`max_flows`), or search with aho-corasick",
                count(unsearched, "byte").were()
            ));
        }
    }
}

impl Found {
    #[cold]
    #[inline(never)]
    fn take(
        &mut self,
        finding: &Finding,
        out: &mut dyn Outlet,
        stream: impl FnOnce() -> (StreamIdentity, bool),
    ) {
        let number = finding.found.pattern as usize;
        if let Some(counts) = &mut self.counts {
            if let Some(count) = counts.get_mut(number)
                && self.shared.admit()
            {
                self.matches += 1;
                count.matches += 1;
                count.streams += u64::from(finding.is_first);
            }
            return;
        }
        if (self.first && !finding.is_first) || !self.shared.admit() {
            return;
        }
        self.matches += 1;
        let (identity, from_initiator) = stream();
        self.pending.push(Pending {
            pattern: number,
            time: finding.time,
            identity,
            from_initiator,
            start: finding.found.start,
            end: finding.found.end,
        });
        if self.pending.len() == TOGETHER {
            self.give(out);
        }
    }

    /// Gives on what was found.
    fn give(&mut self, out: &mut dyn Outlet) {
        let Some(set) = self.set.as_ref().filter(|_| !self.pending.is_empty()) else {
            return;
        };
        let rows: Vec<MatchRow<'_>> = self
            .pending
            .iter()
            .map(|found| MatchRow {
                time: found.time,
                identity: found.identity,
                from_initiator: found.from_initiator,
                offset: found.start,
                end: found.end,
                pattern: set.patterns().get(found.pattern).map_or(NO_NAME, name),
            })
            .collect();
        give(rows.iter().map(|row| (row.time, row)), out);
        self.pending.clear();
    }
}

fn give<'a, R: KnownRecord + Sync + 'a>(
    rows: impl Iterator<Item = (Nanos, &'a R)>,
    out: &mut dyn Outlet,
) {
    let items: Vec<RecordItem<'_>> = rows
        .map(|(time, record)| RecordItem {
            key: 0,
            time,
            record,
        })
        .collect();
    out.emit(Items::Records(&items));
}

const NO_NAME: PatternName<'static> = PatternName {
    id: 0,
    name: None,
    text: "",
};

fn name(pattern: &Pattern) -> PatternName<'_> {
    PatternName {
        id: pattern.id,
        name: pattern.name.as_deref(),
        text: &pattern.text,
    }
}

/// Takes what the engine delivers of the packets of a batch.
struct Searching<'a> {
    search: &'a mut Search,
    found: &'a mut Found,
    out: &'a mut dyn Outlet,
}

impl Handler for Searching<'_> {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    #[inline(always)]
    fn prefetch(&mut self, stream: u32, has_payload: bool) {
        if has_payload {
            self.search.prefetch(stream);
        }
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.search.begin(stream.id);
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let (found, out) = (&mut *self.found, &mut *self.out);
        let Chunk {
            bytes,
            offset,
            time,
            ..
        } = *chunk;
        self.search.data(stream.id, bytes, offset, time, |finding| {
            found.take(&finding, out, || (stream.identity(), stream.from_initiator));
        });
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let (found, out) = (&mut *self.found, &mut *self.out);
        let time = || last_packet(stream);
        self.search
            .end(stream.id, trailing_gap == 0, time, |finding| {
                found.take(&finding, out, || (stream.identity(), stream.from_initiator));
            });
    }
}

impl Handling for State {
    fn created(&mut self, stream: &StreamHandle<'_>) {
        if let Some(search) = &mut self.search {
            search.begin(stream.uid() as u32);
        }
    }

    fn data(
        &mut self,
        stream: &StreamHandle<'_>,
        chunk: &StreamChunk<'_>,
        _: Nanos,
        out: &mut dyn Outlet,
    ) {
        let info = chunk.info();
        // (A packet is of a protocol without streams.)
        let Some(search) =
            (self.search.as_mut()).filter(|_| !info.flags.contains(ChunkFlags::PACKET))
        else {
            return;
        };
        let id = stream.uid() as u32;
        chunked::for_each_run(chunk, |offset, _, bytes| {
            search.data(id, bytes, offset, info.time, |finding| {
                let sent = || (stream.identity(), stream.from_initiator());
                self.found.take(&finding, out, sent);
            });
        });
        if info.flags.contains(ChunkFlags::CUTOFF) {
            // Its connection may last long: others can have the memory.
            search.end(id, false, || info.time, |_| {});
        }
    }

    fn terminated(&mut self, stream: &StreamHandle<'_>, _: Nanos, out: &mut dyn Outlet) {
        let Some(search) = &mut self.search else {
            return;
        };
        let is_complete = stream.missing_at_end() == 0 && !stream.is_cut() && !stream.is_halted();
        let time = || stream.statistics().end;
        let id = stream.uid() as u32;
        search.end(id, is_complete, time, |finding| {
            let sent = || (stream.identity(), stream.from_initiator());
            self.found.take(&finding, out, sent);
        });
    }

    fn flush(&mut self, out: &mut dyn Outlet) {
        self.found.give(out);
    }
}

/// Capture time of the last packet of a stream.
fn last_packet(stream: &Stream<'_>) -> Nanos {
    let of_record = |record: &FlowRecord<'_>| {
        let side = match stream.from_initiator {
            true => &record.source,
            false => &record.destination,
        };
        // (Of a record that was cut from an earlier one it may have none.)
        match side.packets {
            0 => record.end,
            _ => side.last,
        }
    };
    stream.record(of_record).unwrap_or_default()
}

impl Component for Patterns {
    fn set_offload(&mut self, verdicts: &Verdicts) -> bool {
        let chunked = self.chunked.as_mut();
        chunked
            .map(|chunked| chunked.set_offload(verdicts))
            .is_some()
    }

    /// Compiling may take seconds. What is wrong is told when it starts.
    fn expect(&mut self, _links: &[LinkType]) {
        let _ = self.shared.compiled();
    }

    fn start(&mut self) -> Result<(), Failure> {
        let set = self.shared.compiled()?;
        self.state.with(|state| {
            let with_seen = state.found.first || state.found.counts.is_some();
            let all = state.found.all;
            let search = Search::new(&set, with_seen, all, self.shared.bound)
                .map_err(|error| read::failure("", &error))?;
            state.search = Some(Box::new(search));
            if let Some(counts) = &mut state.found.counts {
                counts.resize(set.patterns().len(), Count::default());
            }
            state.found.set = Some(set);
            Ok(())
        })
    }

    fn begin_step(&mut self, _step: &Step<'_, '_>, clock: Nanos) {
        self.clock = self.chunked.as_ref().map_or(clock, |it| it.clock());
    }

    fn take(&mut self, feed: Feed<'_, '_>, out: &mut dyn Outlet) {
        match (&mut self.chunked, feed) {
            (None, feed) => self.state.with(|State { search, found }| {
                if let Some(search) = search {
                    feed.to(&mut Searching { search, found, out });
                }
            }),
            (Some(chunked), Feed::Step(_, step)) => {
                chunked.take(&step, &mut self.state, self.clock, out);
            }
            (Some(_), _) => {}
        }
    }

    fn end_step(&mut self, _step: &Step<'_, '_>, _engine: Option<&Shard>, out: &mut dyn Outlet) {
        if self.chunked.is_none() {
            self.state.with(|state| state.flush(out));
        }
        if self.shared.is_enough() {
            out.enough();
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let shared = &self.shared;
        let (counts, set, zeros, is_counted) = self.state.with(|State { search, found }| {
            let unsearched = search.as_ref().map_or(0, |it| it.unsearched());
            shared.unsearched.fetch_add(unsearched, Ordering::Relaxed);
            let repeats = search.as_ref().map_or(0, |it| it.repeats());
            shared.repeats.fetch_add(repeats, Ordering::Relaxed);
            let forgotten = search.as_ref().map_or(0, |it| it.forgotten());
            shared.forgotten.fetch_add(forgotten, Ordering::Relaxed);
            let counts = shared.end(found.counts.as_deref());
            (
                counts,
                found.set.clone(),
                found.zeros,
                found.counts.is_some(),
            )
        });
        let Some(counts) = counts else {
            return;
        };
        self.is_last = true;
        let Some(set) = set else {
            return;
        };
        let mut counts: Vec<(Count, &Pattern)> = counts.into_iter().zip(set.patterns()).collect();
        let found = counts.iter().filter(|(count, _)| count.matches > 0).count();
        if is_counted {
            let absent = set.patterns().len() - found;
            shared.not_found.get_or_init(|| absent as u64);
        }
        counts.retain(|(count, _)| count.matches > 0 || zeros);
        counts.sort_by_key(|(count, _)| core::cmp::Reverse(count.matches));
        let now = self.clock;
        let rows: Vec<MatchCountRow<'_>> = counts
            .into_iter()
            .map(|(count, pattern)| MatchCountRow {
                pattern: name(pattern),
                matches: count.matches,
                streams: count.streams,
            })
            .collect();
        give(rows.iter().map(|row| (now, row)), out);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(
            self.state.read(|state| state.found.matches),
        ))
    }

    fn account(&self) -> Option<Box<Account>> {
        let chunked = self.chunked.as_ref();
        let mut account = chunked.map_or_else(Account::default, |it| it.account());
        // Of several copies the last one knows what all have found.
        let shared = &self.shared;
        let is_alone = shared.copies.load(Ordering::Relaxed) == 1;
        if let Some(Ok(set)) = shared.set.get().filter(|_| self.is_last || is_alone) {
            shared.tell(set, &mut account);
        }
        Some(Box::new(account))
    }
}
