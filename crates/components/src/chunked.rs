//! Streams in chunks, as several components have them: with cutoffs, priorities, modes and one memory budget.

use std::path::Path;

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stack::engine::{self, Chosen, Step};
use flowgauge_stack::{Account, OptionInfo, OptionKind, OptionValue, SettingError, Settings};
use flowgauge_stream::engine::{
    ApplicationConfig, Budget, Cutoff, Cutoffs, DataChunk, Engine, EngineConfig, Events,
    HostPolicies, Mode, Priorities, StreamFilter,
};
use flowgauge_stream::{Needs, ShardConfig, Shares, stream_filter};
use flowgauge_sys::files;
use flowgauge_wire::Nanos;

/// Largest file of policies that is read.
const LARGEST_FILE: u64 = 16 << 20;

pub(crate) const MODE: OptionInfo = OptionInfo::new(
    "mode",
    OptionKind::Choice(&["wait", "fast", "strict"]),
    "how TCP is put in order: wait for a hole until it is hopeless, fast (never wait, flag holes), strict \
     (only correctly sequenced data of established connections)",
);
pub(crate) const POLICY: OptionInfo = OptionInfo::new(
    "policy",
    OptionKind::WordOrFile,
    "overlap policy of the receiving host: a name, or a file with lines \"10.0.0.0/8 windows\" and \
     \"default linux\"",
);
pub(crate) const CUTOFF: OptionInfo = OptionInfo::new(
    "cutoff",
    OptionKind::Size,
    "only the first bytes of each stream; 0: statistics only",
);
pub(crate) const CUTOFF_CLIENT: OptionInfo = OptionInfo::new(
    "cutoff_client",
    OptionKind::Size,
    "cutoff of what the initiator sends, before cutoff",
);
pub(crate) const CUTOFF_SERVER: OptionInfo = OptionInfo::new(
    "cutoff_server",
    OptionKind::Size,
    "cutoff of what the responder sends, before cutoff",
);
pub(crate) const CUTOFF_CLASS: OptionInfo = OptionInfo::new(
    "cutoff_class",
    OptionKind::Text,
    "cutoffs of streams that filters match, before all others: lines like \"10K: tcp port 443\"; the first \
     that matches counts",
);
pub(crate) const PRIORITY: OptionInfo = OptionInfo::new(
    "priority",
    OptionKind::Text,
    "priorities under overload of streams that filters match: lines like \"2: host 192.0.2.1\"; higher is \
     kept longer, 0 is the default",
);
pub(crate) const CHUNK: OptionInfo = OptionInfo::new(
    "chunk",
    OptionKind::Size,
    "size of chunks, 16K where nothing is said; 0: segments as they come",
);
pub(crate) const OVERLAP: OptionInfo = OptionInfo::new(
    "overlap",
    OptionKind::Size,
    "bytes of a chunk repeated at the start of the next",
);
pub(crate) const FLUSH_TIMEOUT: OptionInfo = OptionInfo::new(
    "flush_timeout",
    OptionKind::Duration,
    "deliver a chunk that is not full after so long",
);
pub(crate) const BASE_THRESHOLD: OptionInfo = OptionInfo::new(
    "base_threshold",
    OptionKind::Number { min: 0.0, max: 1.0 },
    "share of the memory for chunks below which nothing is dropped, 0.5 where nothing is said",
);
pub(crate) const OVERLOAD_CUTOFF: OptionInfo = OptionInfo::new(
    "overload_cutoff",
    OptionKind::Size,
    "under overload, drop what lies beyond so many bytes in its stream first",
);
/// The options that have streams delivered in chunks.
static OPTIONS: [&OptionInfo; 12] = [
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
];

/// The largest chunk.
const MAX_CHUNK: u64 = 1 << 28;

/// Whether any of the options was given, of those that the component has.
pub(crate) fn are_wanted(settings: &Settings) -> bool {
    let given = |option: &&&OptionInfo| settings.setting(option.name).is_some();
    OPTIONS.iter().any(|option| given(&option))
}

/// The budget of all copies, for chunks, segments that wait and records of packets: what is there for
/// segments elsewhere.
pub(crate) fn budget(settings: &Settings, needs: Needs) -> Budget {
    Budget::new(match settings.size("memory") {
        Some(bytes) => Shares::new(bytes, 1, needs).segments,
        None => EngineConfig::default().memory_bytes,
    })
}

/// How chunks are made where the options say nothing.
#[derive(Clone, Copy)]
pub(crate) struct Usual {
    /// Their size.
    pub(crate) chunk_bytes: u32,
    /// They are delivered, full or not, after so long.
    pub(crate) flush_timeout: Option<Nanos>,
}

/// The engine of streams in chunks, with one application.
pub(crate) struct Chunked {
    engine: Engine,
    chosen: Chosen,
    /// Chunks time out.
    has_timeout: bool,
}

impl Chunked {
    /// What the options ask for, on top of `shard`. Memory comes out of `budget`.
    pub(crate) fn new(
        settings: &Settings,
        shard: ShardConfig,
        budget: &Budget,
        usual: Usual,
    ) -> Result<Chunked, SettingError> {
        let mut config = EngineConfig {
            shard,
            memory_bytes: budget.limit(),
            overload_cutoff: settings.size("overload_cutoff"),
            ..EngineConfig::default()
        };
        if let Some(share) = settings.number("base_threshold") {
            config.base_threshold = share;
        }
        if let Some(text) = settings.text("policy") {
            config.policies = policies(text)?;
            let policy = config.policies.default_policy();
            config.shard = config.shard.with_policy(policy);
        }
        // That of the stack, which sees all packets, also those that other cores have.
        config.shard.flow.led_clock = true;
        let application = application(settings, usual)?;
        let has_timeout = application.flush_timeout.is_some();
        let mut engine = Engine::with_budget(config, budget.clone());
        engine.add(application);
        Ok(Chunked {
            engine,
            chosen: Chosen::default(),
            has_timeout,
        })
    }

    pub(crate) fn clock(&self) -> Nanos {
        self.engine.shard().tracker().clock()
    }

    pub(crate) fn account(&self) -> Account {
        Account {
            ledger: self.engine.ledger().clone(),
            streams: Some(self.engine.statistics()),
            ..engine::account(self.engine.shard())
        }
    }

    /// Takes a step. When the clock goes on within a tick of the flow table, only chunks time out.
    pub(crate) fn take<E: Events>(&mut self, step: &Step<'_, '_>, events: &mut E) {
        let engine = &mut self.engine;
        match *step {
            Step::Packets(packets) => engine.process(&self.chosen.of(packets), events),
            Step::Tick(now) => {
                let tracker = engine.shard().tracker();
                if tracker.clock() < now && (self.has_timeout || !tracker.is_in_tick(now)) {
                    engine.process(&engine::idle(now), events);
                }
            }
            Step::Finish => engine.finish(events),
        }
    }
}

/// The parts of a chunk without a hole, in order: each with its position in the stream and what is missing
/// right before it. What is missing at the end of the chunk comes before nothing.
pub(crate) fn for_each_run(chunk: &DataChunk<'_>, mut take: impl FnMut(u64, u64, &[u8])) {
    let info = chunk.info();
    let bytes = chunk.bytes();
    let (mut at, mut missing) = (info.repeated as usize, info.gap_before);
    for hole in chunk.holes() {
        let (start, end) = (hole.start as usize, hole.end as usize);
        if end <= at {
            continue;
        }
        if let Some(run) = bytes.get(at..start).filter(|run| !run.is_empty()) {
            take(info.offset + at as u64, missing, run);
            missing = 0;
        }
        missing += (end - start.max(at)) as u64;
        at = end;
    }
    let rest = bytes.get(at..).unwrap_or(&[]);
    if !rest.is_empty() || missing > 0 {
        take(info.offset + at as u64, missing, rest);
    }
}

fn application(settings: &Settings, chunks: Usual) -> Result<ApplicationConfig, SettingError> {
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
        chunk_bytes: size("chunk", chunks.chunk_bytes)?,
        overlap_bytes: size("overlap", usual.overlap_bytes)?,
        flush_timeout: match settings.duration("flush_timeout") {
            Some(nanos) => Some(Nanos(nanos)),
            None => chunks.flush_timeout,
        },
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
        .with_hint("raise `chunk`, or repeat fewer bytes"));
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
    let path = Path::new(text);
    if !files::named().is_file(path) {
        return Err(wrong(format!(
            "\"{text}\" is neither an overlap policy (first, last, linux, windows, bsd, solaris...) nor a \
             file"
        )));
    }
    let lines = files::named().read(path, LARGEST_FILE);
    let lines = lines.map_err(|error| wrong(format!("cannot read {text}: {error}")))?;
    let lines = lines.and_then(|lines| String::from_utf8(lines).ok());
    let lines = lines.ok_or_else(|| wrong(format!("{text} is no text, or more than 16 MiB")))?;
    HostPolicies::read(&lines)
        .map_err(|(line, reason)| wrong(format!("{text}, line {line}: {reason}")))
}
