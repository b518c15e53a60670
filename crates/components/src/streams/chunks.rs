//! Streams in chunks: with cutoffs, priorities, modes and one memory budget.

use std::fs;
use std::path::Path;

use flowgauge_kit::engine::{self, Chosen};
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_record::StreamRow;
use flowgauge_record::stream::{GapRow, StreamCounters};
use flowgauge_record::text::write_hex_bytes;
use flowgauge_record::totals::TotalsRow;
use flowgauge_stack::{
    Account, OptionInfo, OptionKind, OptionValue, Packets, SettingError, Settings,
};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Budget, ChunkInfo, Cutoff, Cutoffs, DataChunk, Engine,
    EngineConfig, Events, HostPolicies, Mode, Priorities, StreamFilter, StreamRef,
};
use flowgauge_stream::{Chunk, Needs, Stream, StreamIdentity, stream_filter};
use flowgauge_sys::tally::byte_sum;
use flowgauge_wire::Nanos;
use sha2::{Digest, Sha256};

use super::{Wanted, Ways, give, slot};

pub(super) const MODE: OptionInfo = OptionInfo::new(
    "mode",
    OptionKind::Choice(&["wait", "fast", "strict"]),
    "how TCP is put in order: wait for a hole until it is hopeless, fast (never wait, flag holes), strict \
     (only correctly sequenced data of established connections)",
);
pub(super) const POLICY: OptionInfo = OptionInfo::new(
    "policy",
    OptionKind::Text,
    "overlap policy of the receiving host: a name, or a file with lines \"10.0.0.0/8 windows\" and \
     \"default linux\"",
);
pub(super) const CUTOFF: OptionInfo = OptionInfo::new(
    "cutoff",
    OptionKind::Size,
    "only the first bytes of each stream; 0: statistics only",
);
pub(super) const CUTOFF_CLIENT: OptionInfo = OptionInfo::new(
    "cutoff_client",
    OptionKind::Size,
    "cutoff of what the initiator sends, before cutoff",
);
pub(super) const CUTOFF_SERVER: OptionInfo = OptionInfo::new(
    "cutoff_server",
    OptionKind::Size,
    "cutoff of what the responder sends, before cutoff",
);
pub(super) const CUTOFF_CLASS: OptionInfo = OptionInfo::new(
    "cutoff_class",
    OptionKind::Text,
    "cutoffs of streams that filters match, before all others: lines like \"10K: tcp port 443\"; the first \
     that matches counts",
);
pub(super) const PRIORITY: OptionInfo = OptionInfo::new(
    "priority",
    OptionKind::Text,
    "priorities under overload of streams that filters match: lines like \"2: host 192.0.2.1\"; higher is \
     kept longer, 0 is the default",
);
pub(super) const CHUNK: OptionInfo = OptionInfo::new(
    "chunk",
    OptionKind::Size,
    "size of chunks, 16K where nothing is said; 0: segments as they come",
);
pub(super) const OVERLAP: OptionInfo = OptionInfo::new(
    "overlap",
    OptionKind::Size,
    "bytes of a chunk repeated at the start of the next",
);
pub(super) const FLUSH_TIMEOUT: OptionInfo = OptionInfo::new(
    "flush_timeout",
    OptionKind::Duration,
    "deliver a chunk that is not full after so long",
);
pub(super) const BASE_THRESHOLD: OptionInfo = OptionInfo::new(
    "base_threshold",
    OptionKind::Number { min: 0.0, max: 1.0 },
    "share of memory below which nothing is dropped, 0.5 where nothing is said",
);
pub(super) const OVERLOAD_CUTOFF: OptionInfo = OptionInfo::new(
    "overload_cutoff",
    OptionKind::Size,
    "under overload, drop what lies beyond so many bytes in its stream first",
);
pub(super) const COUNTERS: OptionInfo = OptionInfo::new(
    "counters",
    OptionKind::Flag,
    "add to each record what became of the stream's packets: all, dropped, discarded, captured",
);

/// The options that have streams delivered in chunks.
static OPTIONS: [&OptionInfo; 13] = [
    &MODE,
    &POLICY,
    &CUTOFF,
    &CUTOFF_CLIENT,
    &CUTOFF_SERVER,
    &CUTOFF_CLASS,
    &PRIORITY,
    &CHUNK,
    &OVERLAP,
    &FLUSH_TIMEOUT,
    &BASE_THRESHOLD,
    &OVERLOAD_CUTOFF,
    &COUNTERS,
];

/// The largest chunk.
const MAX_CHUNK: u64 = 1 << 28;

/// Whether any of the options was given.
pub(super) fn are_wanted(settings: &Settings) -> bool {
    let given = |option: &&&OptionInfo| settings.setting(option.name).is_some();
    OPTIONS.iter().any(|option| given(&option))
}

/// The memory budget of all copies.
pub(super) fn memory_bytes(settings: &Settings) -> u64 {
    let usual = EngineConfig::default().memory_bytes;
    settings.size("memory").unwrap_or(usual)
}

/// The engine of streams in chunks, with one application.
pub(super) struct Chunks {
    engine: Engine,
    chosen: Chosen,
    /// Chunks time out.
    has_timeout: bool,
    state: State,
}

impl Chunks {
    pub(super) fn new(
        settings: &Settings,
        wanted: Wanted,
        budget: &Budget,
    ) -> Result<Chunks, SettingError> {
        let mut config = EngineConfig {
            memory_bytes: memory_bytes(settings),
            overload_cutoff: settings.size("overload_cutoff"),
            ..EngineConfig::default()
        };
        if let Some(share) = settings.number("base_threshold") {
            config.base_threshold = share;
        }
        // The one budget takes the place of what is divided elsewhere.
        config.shard = engine::configuration_in(settings, None, Needs::default())?;
        if let Some(text) = settings.text("policy") {
            config.policies = policies(text)?;
            let policy = config.policies.default_policy();
            config.shard = config.shard.with_policy(policy);
        }
        config.shard.flow.led_clock = true;
        let application = application(settings)?;
        let mut engine = Engine::with_budget(config, budget.clone());
        engine.add(application);
        Ok(Chunks {
            engine,
            chosen: Chosen::default(),
            has_timeout: settings.duration("flush_timeout").is_some(),
            state: State {
                wanted,
                progress: Vec::new(),
                totals: TotalsRow::default(),
            },
        })
    }

    pub(super) fn clock(&self) -> Nanos {
        self.engine.shard().tracker().clock()
    }

    pub(super) fn totals(&self) -> TotalsRow {
        self.state.totals
    }

    pub(super) fn account(&self) -> Account {
        Account {
            ledger: self.engine.ledger().clone(),
            streams: Some(self.engine.statistics()),
            ..engine::account(self.engine.shard())
        }
    }

    pub(super) fn process(&mut self, packets: &Packets<'_>, ways: Ways<'_>) {
        let now = engine::time_of(packets);
        let Chunks {
            engine,
            chosen,
            state,
            ..
        } = self;
        engine.process(&chosen.of(packets), &mut Give { state, ways, now });
    }

    /// Within a tick of the flow table only chunks time out.
    pub(super) fn tick(&mut self, now: Nanos, ways: Ways<'_>) {
        let Chunks { engine, state, .. } = self;
        let tracker = engine.shard().tracker();
        if tracker.clock() < now && (self.has_timeout || !tracker.is_in_tick(now)) {
            engine.process(&engine::idle(now), &mut Give { state, ways, now });
        }
    }

    pub(super) fn finish(&mut self, ways: Ways<'_>) {
        let Chunks { engine, state, .. } = self;
        let now = engine.shard().tracker().clock();
        engine.finish(&mut Give { state, ways, now });
    }
}

fn application(settings: &Settings) -> Result<ApplicationConfig, SettingError> {
    let usual = ApplicationConfig::default();
    let cutoff = |option: &str| settings.size(option).map(Cutoff);
    let size = |option: &'static str, usual: u32| match settings.size(option) {
        None => Ok(usual),
        Some(bytes) if bytes <= MAX_CHUNK => Ok(bytes as u32),
        Some(_) => Err(SettingError::of(option, "is more than 256M")),
    };
    let config = ApplicationConfig {
        filter: None,
        mode: match settings.text("mode") {
            Some(text) => text
                .parse::<Mode>()
                .map_err(|message| SettingError::of("mode", message))?,
            None => usual.mode,
        },
        cutoff: Cutoffs {
            default: cutoff("cutoff").unwrap_or(usual.cutoff.default),
            from_initiator: cutoff("cutoff_client"),
            from_responder: cutoff("cutoff_server"),
            classes: classes(settings, "cutoff_class", |text| {
                match OptionKind::Size.read(text)? {
                    OptionValue::Size(bytes) => Ok(Cutoff(bytes)),
                    other => Err(format!("{other} is no number of bytes")),
                }
            })?,
        },
        chunk_bytes: size("chunk", usual.chunk_bytes)?,
        overlap_bytes: size("overlap", usual.overlap_bytes)?,
        flush_timeout: settings.duration("flush_timeout").map(Nanos),
        priority: Priorities {
            classes: classes(settings, "priority", |text| {
                let number = text.parse();
                number.map_err(|_| format!("\"{text}\" is no number from 0 to 255"))
            })?,
            ..Priorities::default()
        },
        inactivity_timeout: None,
    };
    if config.overlap_bytes > 0 && config.overlap_bytes >= config.chunk_bytes {
        return Err(SettingError::of(
            "overlap",
            format!(
                "{} is not less than the chunks' {} bytes",
                config.overlap_bytes, config.chunk_bytes
            ),
        )
        .with_hint("raise chunk, or repeat fewer bytes"));
    }
    Ok(config)
}

/// Values for streams that filters match: a line each.
fn classes<T>(
    settings: &Settings,
    option: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(StreamFilter, T)>, SettingError> {
    let mut classes = Vec::new();
    let lines = settings.text(option).unwrap_or_default().lines();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        let wrong = |message: String| SettingError::of(option, message);
        let (value, filter) = line
            .split_once(':')
            .ok_or_else(|| wrong(format!("\"{line}\" is no value: filter")))?;
        let (value, filter) = (value.trim(), filter.trim());
        if filter.is_empty() {
            return Err(wrong(format!("there is no filter behind \"{value}:\"")));
        }
        let value = read(value).map_err(wrong)?;
        let filter = stream_filter(filter).map_err(|error| SettingError {
            hint: error.hint(),
            ..wrong(error.to_string())
        })?;
        classes.push((filter, value));
    }
    Ok(classes)
}

/// A policy for all hosts, or the name of a file with policies of subnets.
fn policies(text: &str) -> Result<HostPolicies, SettingError> {
    if let Ok(policy) = text.parse::<OverlapPolicy>() {
        return Ok(HostPolicies::new(policy));
    }
    let wrong = |message: String| SettingError::of("policy", message);
    if !Path::new(text).is_file() {
        return Err(wrong(format!(
            "\"{text}\" is neither an overlap policy (first, last, linux, windows, bsd, solaris...) nor a \
             file"
        )));
    }
    let lines = fs::read_to_string(text);
    let lines = lines.map_err(|error| wrong(format!("cannot read {text}: {error}")))?;
    HostPolicies::read(&lines)
        .map_err(|(line, reason)| wrong(format!("{text}, line {line}: {reason}")))
}

/// What has come of a stream.
#[derive(Clone, Debug, Default)]
struct Progress {
    bytes: u64,
    missing_bytes: u64,
    gaps: u64,
    /// Position behind the last byte or hole.
    end: u64,
    hash: Option<Sha256>,
}

struct State {
    wanted: Wanted,
    /// By the dense part of the unique id.
    progress: Vec<Progress>,
    totals: TotalsRow,
}

/// The state, and the ways out of it.
struct Give<'a, 'b> {
    state: &'a mut State,
    ways: Ways<'b>,
    now: Nanos,
}

impl Give<'_, '_> {
    /// Bytes without a hole; `missing` is one right before them.
    fn run(&mut self, stream: &StreamRef<'_>, offset: u64, missing: u64, bytes: &[u8]) {
        let id = stream.uid() as u32;
        if missing > 0 {
            self.gap(stream, offset - missing, missing);
        }
        let state = &mut *self.state;
        let progress = slot(&mut state.progress, id);
        progress.bytes += bytes.len() as u64;
        progress.end = offset + bytes.len() as u64;
        state.totals.bytes += bytes.len() as u64;
        if let Some(hash) = &mut progress.hash {
            hash.update(bytes);
        }
        if state.wanted.totals {
            state.totals.checksum = state.totals.checksum.wrapping_add(byte_sum(bytes));
        }
        if let Some(files) = self.ways.files
            && !bytes.is_empty()
        {
            let identity = stream.identity();
            let chunk = Chunk {
                bytes,
                offset,
                gap_before: missing,
                time: stream.statistics().end,
                captured: stream.statistics().end,
            };
            files.data(&Stream::detached(id, &identity), &chunk);
        }
    }

    #[cold]
    fn gap(&mut self, stream: &StreamRef<'_>, offset: u64, size: u64) {
        let progress = slot(&mut self.state.progress, stream.uid() as u32);
        progress.missing_bytes += size;
        progress.gaps += 1;
        let wanted = self.state.wanted;
        if wanted.gaps {
            let row = GapRow {
                identity: stream.identity(),
                offset,
                size,
                with_streams: wanted.streams,
                with_hashes: wanted.hashes,
            };
            give(self.ways.out, self.now, &row);
        }
    }

    fn write(&mut self, stream: &StreamRef<'_>, progress: Progress) {
        let wanted = self.state.wanted;
        let mut text = Vec::new();
        if let Some(hash) = progress.hash {
            write_hex_bytes(&mut text, &hash.finalize());
        }
        let StreamIdentity {
            flow_id,
            source,
            destination,
            version,
            protocol,
            ..
        } = stream.identity();
        let state = if stream.is_cut() {
            "cutoff"
        } else if stream.is_halted() {
            "strict"
        } else {
            stream.status().name()
        };
        let row = StreamRow {
            version,
            protocol,
            source,
            destination,
            bytes: progress.bytes,
            missing_bytes: progress.missing_bytes,
            gaps: progress.gaps,
            state,
            flow_id,
            with_gaps: wanted.gaps,
            counters: wanted.counters.then(|| StreamCounters {
                statistics: stream.statistics(),
                chunks: stream.chunks(),
            }),
            sha256: (wanted.hashes).then(|| core::str::from_utf8(&text).unwrap_or("")),
        };
        give(self.ways.out, self.now, &row);
    }
}

impl Events for Give<'_, '_> {
    fn created(&mut self, _application: ApplicationId, stream: &mut StreamRef<'_>) {
        let id = stream.uid() as u32;
        self.state.totals.streams += 1;
        *slot(&mut self.state.progress, id) = Progress {
            hash: self.state.wanted.hashes.then(Sha256::new),
            ..Progress::default()
        };
        if let Some(files) = self.ways.files {
            files.created(id);
        }
    }

    fn data(
        &mut self,
        _application: ApplicationId,
        stream: &mut StreamRef<'_>,
        chunk: &mut DataChunk<'_>,
    ) {
        let ChunkInfo {
            offset,
            gap_before,
            repeated,
            ..
        } = chunk.info();
        let bytes = chunk.bytes();
        let (mut at, mut missing) = (repeated as usize, gap_before);
        for hole in chunk.holes() {
            let (start, end) = (hole.start as usize, hole.end as usize);
            if end <= at {
                continue;
            }
            if let Some(run) = bytes.get(at..start).filter(|run| !run.is_empty()) {
                self.run(stream, offset + at as u64, missing, run);
                missing = 0;
            }
            missing += (end - start.max(at)) as u64;
            at = end;
        }
        let rest = bytes.get(at..).unwrap_or(&[]);
        if !rest.is_empty() || missing > 0 {
            self.run(stream, offset + at as u64, missing, rest);
        }
    }

    fn terminated(&mut self, _application: ApplicationId, stream: &mut StreamRef<'_>) {
        let id = stream.uid() as u32;
        let trailing = stream.missing_at_end();
        if trailing > 0 {
            let end = slot(&mut self.state.progress, id).end;
            self.gap(stream, end, trailing);
        }
        let progress = core::mem::take(slot(&mut self.state.progress, id));
        let totals = &mut self.state.totals;
        totals.missing_bytes += progress.missing_bytes;
        totals.gaps += progress.gaps;
        totals.empty_streams += u64::from(progress.bytes == 0);
        if let Some(files) = self.ways.files {
            files.terminated(id);
        }
        if self.state.wanted.streams && !self.state.wanted.totals {
            self.write(stream, progress);
        }
    }
}
