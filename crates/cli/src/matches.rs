//! `flowgauge match`

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_matcher::{Engine, Match, Matcher, Pattern, PatternError, PatternSet, StreamState};
use flowgauge_record::matches::{MATCH_COUNT_SCHEMA, MATCH_SCHEMA};
use flowgauge_record::{MatchCountRow, MatchRow, PatternName, RecordWriter};
use flowgauge_stream::{Chunk, Handler, Stream};
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::{Batch, DecodedBatch, Nanos};

use crate::failure::{self, Failure};
use crate::memory::Needs;
use crate::options::{MatchEngine, MatchOptions};
use crate::pattern_files;
use crate::run::{Consumer, Run, Writers};
use crate::say::{count, say};
use crate::sinks;

use crate::summary::Outcome;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &MatchOptions) -> Result<(), Failure> {
    let set = Arc::new(pattern_files::compile(&options.patterns)?);
    let engine = options.engine.with_needs(Needs {
        streams: true,
        per_flow: 2 * size_of::<StreamState>() as u64,
        results: false,
    });
    let run = Run::open(&options.input, &options.output.common, &engine)?;
    let shared = Arc::new(Shared {
        matches: AtomicU64::new(0),
        limit: options.max_matches.unwrap_or(u64::MAX),
        unsearched: AtomicU64::new(0),
        failure: Mutex::new(None),
    });
    let search = || Search::new(&set, &shared, options.first || options.tally);
    let (mut outcome, written) = if options.tally {
        let (outcome, parts) = run.collect(|_worker| Counter {
            counts: vec![Count::default(); set.patterns().len()],
            search: search(),
        })?;
        (outcome, write_counts(options, &set, parts))
    } else {
        let writers = Writers::open(&options.output, MATCH_SCHEMA)?;
        run.records(writers, |writer| Reporter {
            search: search(),
            set: Arc::clone(&set),
            writer,
            first: options.first,
            live: false,
        })?
    };
    shared.conclude(&set, options, &mut outcome)?;
    outcome.conclude(&options.output.common)?;
    written
}

/// What the workers of a run share.
struct Shared {
    /// Matches found and wanted.
    matches: AtomicU64,
    limit: u64,
    unsearched: AtomicU64,
    /// Why a worker could not begin.
    failure: Mutex<Option<PatternError>>,
}

impl Shared {
    /// Takes a match into account; false when enough have been found.
    fn admit(&self) -> bool {
        self.matches.fetch_add(1, Ordering::Relaxed) < self.limit
    }

    fn is_enough(&self) -> bool {
        self.matches.load(Ordering::Relaxed) >= self.limit
    }

    /// Says what was found.
    fn conclude(
        &self,
        set: &PatternSet,
        options: &MatchOptions,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failure.take() {
            return Err(Failure::run(error.message(), Some(error.hint().to_owned())));
        }
        let matches = self.matches.load(Ordering::Relaxed).min(self.limit);
        let patterns = set.patterns().len();
        if !options.output.common.quiet {
            let stopped = if self.is_enough() {
                "; stopped there (--max-matches)"
            } else {
                ""
            };
            let found = count(matches, "match");
            say!("{found} of {}{stopped}", count(patterns as u64, "pattern"));
        }
        let engine = match set.engine() {
            Engine::AhoCorasick => "aho-corasick",
            _ => "vectorscan",
        };
        if set.engine() == Engine::AhoCorasick && options.patterns.matcher == MatchEngine::Auto {
            outcome.notes.push(
                "Vectorscan is not installed: the built-in automaton searched, several times slower; \
                 hint: apt install libvectorscan5"
                    .to_owned(),
            );
        }
        outcome.statistics.push(format!(
            "matcher: {engine}, {}, {} bytes for each stream with data",
            count(patterns as u64, "pattern"),
            set.stream_bytes() + size_of::<StreamState>()
        ));
        let unsearched = self.unsearched.load(Ordering::Relaxed);
        if unsearched > 0 {
            outcome.notes.push(format!(
                "{} not searched: no memory for the state of their streams; hint: lower \
                 --max-flows, or --matcher aho-corasick",
                count(unsearched, "byte").were()
            ));
        }
        Ok(())
    }
}

/// A matcher and what it keeps of each stream.
struct Search {
    matcher: Option<Matcher>,
    /// By [`Stream::id`].
    states: Vec<StreamState>,
    /// Patterns that were found, by [`Stream::id`], where that is asked for.
    seen: Option<HashMap<u32, Vec<u32>>>,
    shared: Arc<Shared>,
    clock: Nanos,
    /// The streams of the last packets that were looked ahead at.
    ahead: [u32; 2 * AHEAD],
    at: usize,
}

/// How many packets the steps of looking ahead are apart.
const AHEAD: usize = 16;

impl Search {
    fn new(set: &Arc<PatternSet>, shared: &Arc<Shared>, with_seen: bool) -> Search {
        let matcher = match Matcher::new(set) {
            Ok(matcher) => Some(matcher),
            Err(error) => {
                let mut failure = shared
                    .failure
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                *failure = Some(error);
                None
            }
        };
        Search {
            matcher,
            states: Vec::new(),
            seen: with_seen.then(HashMap::new),
            shared: Arc::clone(shared),
            clock: Nanos(0),
            ahead: [u32::MAX; 2 * AHEAD],
            at: 0,
        }
    }

    fn begin(&mut self, stream: &Stream<'_>) {
        *slot(&mut self.states, stream.id) = StreamState::default();
    }

    /// Each step reads what the step before has fetched: a stream's state, where its memory is, that
    /// memory. It makes `small` an eighth and `mix` a twentieth faster.
    #[inline(always)]
    fn prefetch(&mut self, stream: u32) {
        let Some(matcher) = &self.matcher else {
            return;
        };
        prefetch_at(&self.states, stream as usize);
        self.at = (self.at + 1) % (2 * AHEAD);
        let last = core::mem::replace(&mut self.ahead[self.at], stream);
        if let Some(state) = self.states.get(last as usize) {
            matcher.prefetch(state, 1);
        }
        let middle = self.ahead[(self.at + AHEAD) % (2 * AHEAD)];
        if let Some(state) = self.states.get(middle as usize) {
            matcher.prefetch(state, 0);
        }
    }

    #[inline]
    fn data(
        &mut self,
        stream: &Stream<'_>,
        chunk: &Chunk<'_>,
        mut on_match: impl FnMut(Finding<'_>),
    ) {
        self.clock = chunk.time;
        let (Some(matcher), Some(state)) =
            (&mut self.matcher, self.states.get_mut(stream.id as usize))
        else {
            return;
        };
        let (seen, shared) = (&mut self.seen, &self.shared);
        matcher.scan(state, chunk.bytes, chunk.offset, |found| {
            on_match(Finding::new(found, chunk.time, stream.id, seen, shared));
        });
    }

    fn end(
        &mut self,
        stream: &Stream<'_>,
        trailing_gap: u64,
        mut on_match: impl FnMut(Finding<'_>),
    ) {
        let (Some(matcher), Some(state)) =
            (&mut self.matcher, self.states.get_mut(stream.id as usize))
        else {
            return;
        };
        let (seen, shared, clock) = (&mut self.seen, &self.shared, self.clock);
        matcher.end(state, trailing_gap == 0, |found| {
            on_match(Finding::new(found, clock, stream.id, seen, shared));
        });
        if let Some(seen) = seen {
            seen.remove(&stream.id);
        }
    }

    fn finished(&self) -> bool {
        self.matcher.is_none() || self.shared.is_enough()
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        if let Some(matcher) = &self.matcher {
            let bytes = matcher.unsearched_bytes();
            self.shared.unsearched.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// A match, and whether it is the first of its pattern in its stream (only known where it is asked
/// for).
struct Finding<'a> {
    found: Match,
    time: Nanos,
    is_first: bool,
    shared: &'a Shared,
}

impl<'a> Finding<'a> {
    fn new(
        found: Match,
        time: Nanos,
        stream: u32,
        seen: &mut Option<HashMap<u32, Vec<u32>>>,
        shared: &'a Shared,
    ) -> Finding<'a> {
        let is_first = seen.as_mut().is_some_and(|seen| {
            let patterns = seen.entry(stream).or_default();
            match patterns.binary_search(&found.pattern) {
                Ok(_) => false,
                Err(at) => {
                    patterns.insert(at, found.pattern);
                    true
                }
            }
        });
        Finding {
            found,
            time,
            is_first,
            shared,
        }
    }
}

/// Writes a record for each match.
struct Reporter {
    search: Search,
    set: Arc<PatternSet>,
    writer: RecordWriter,
    first: bool,
    live: bool,
}

impl Reporter {
    #[cold]
    #[inline(never)]
    fn write(
        writer: &mut RecordWriter,
        set: &PatternSet,
        first: bool,
        stream: &Stream<'_>,
        finding: &Finding<'_>,
    ) {
        let Some(pattern) = set.patterns().get(finding.found.pattern as usize) else {
            return;
        };
        if (first && !finding.is_first) || !finding.shared.admit() {
            return;
        }
        writer.write(&MatchRow {
            time: finding.time,
            identity: stream.identity(),
            from_initiator: stream.from_initiator,
            offset: finding.found.start,
            end: finding.found.end,
            pattern: name(pattern),
        });
    }
}

impl Handler for Reporter {
    const STREAMS: bool = true;

    fn batch(&mut self, _batch: &Batch<'_>, _decoded: &DecodedBatch) {
        if self.live {
            self.writer.flush();
        }
    }

    #[inline(always)]
    fn prefetch(&mut self, stream: u32, has_payload: bool) {
        if has_payload {
            self.search.prefetch(stream);
        }
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.search.begin(stream);
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let (writer, set, first) = (&mut self.writer, &*self.set, self.first);
        self.search.data(stream, chunk, |finding| {
            Reporter::write(writer, set, first, stream, &finding);
        });
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let (writer, set, first) = (&mut self.writer, &*self.set, self.first);
        self.search.end(stream, trailing_gap, |finding| {
            Reporter::write(writer, set, first, stream, &finding);
        });
    }
}

impl Consumer for Reporter {
    fn set_live(&mut self) {
        self.live = true;
    }

    fn finished(&self) -> bool {
        self.writer.has_failed() || self.search.finished()
    }

    fn writer(&mut self) -> Option<&mut RecordWriter> {
        Some(&mut self.writer)
    }
}

/// How often a pattern was found.
#[derive(Clone, Copy, Default)]
struct Count {
    matches: u64,
    streams: u64,
}

/// Counts matches.
struct Counter {
    search: Search,
    counts: Vec<Count>,
}

impl Counter {
    #[cold]
    #[inline(never)]
    fn count(counts: &mut [Count], finding: &Finding<'_>) {
        if let Some(count) = counts.get_mut(finding.found.pattern as usize)
            && finding.shared.admit()
        {
            count.matches += 1;
            count.streams += u64::from(finding.is_first);
        }
    }
}

impl Handler for Counter {
    const STREAMS: bool = true;

    #[inline(always)]
    fn prefetch(&mut self, stream: u32, has_payload: bool) {
        if has_payload {
            self.search.prefetch(stream);
        }
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.search.begin(stream);
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let counts = &mut self.counts;
        self.search
            .data(stream, chunk, |finding| Counter::count(counts, &finding));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let counts = &mut self.counts;
        self.search.end(stream, trailing_gap, |finding| {
            Counter::count(counts, &finding);
        });
    }
}

impl Consumer for Counter {
    fn finished(&self) -> bool {
        self.search.finished()
    }
}

/// Writes how often patterns were found, the most frequent first.
fn write_counts(
    options: &MatchOptions,
    set: &PatternSet,
    parts: Vec<Counter>,
) -> Result<(), Failure> {
    let mut counts: Vec<(Count, &Pattern)> = set
        .patterns()
        .iter()
        .map(|pattern| (Count::default(), pattern))
        .collect();
    for part in parts {
        for ((total, _), count) in counts.iter_mut().zip(&part.counts) {
            total.matches += count.matches;
            total.streams += count.streams;
        }
    }
    counts.retain(|(count, _)| count.matches > 0);
    counts.sort_by_key(|(count, _)| core::cmp::Reverse(count.matches));
    let output = sinks::open(&options.output, MATCH_COUNT_SCHEMA)?;
    let mut writer = RecordWriter::new(output, sinks::format(&options.output), MATCH_COUNT_SCHEMA);
    for (count, pattern) in counts {
        writer.write(&MatchCountRow {
            pattern: name(pattern),
            matches: count.matches,
            streams: count.streams,
        });
    }
    writer.flush();
    failure::of_writer(&mut writer)
}

fn name(pattern: &Pattern) -> PatternName<'_> {
    PatternName {
        id: pattern.id,
        name: pattern.name.as_deref(),
        text: &pattern.text,
    }
}

/// The place for stream `id` in a column that grows as ids do (they are dense).
fn slot<T: Default>(column: &mut Vec<T>, id: u32) -> &mut T {
    let index = id as usize;
    if index >= column.len() {
        column.resize_with(index + 1, T::default);
    }
    &mut column[index]
}
