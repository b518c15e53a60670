//! Options of components that deliver streams in chunks, and the configuration they stand for.

use std::path::Path;

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stack::{OptionInfo, OptionKind, OptionValue, SettingError, Settings, options};
use flowgauge_stream::engine::{
    ApplicationConfig, Cutoff, Cutoffs, HostPolicies, Mode, Priorities, StreamFilter,
};
use flowgauge_stream::stream_filter;
use flowgauge_sys::files;
use flowgauge_wire::Nanos;

/// Size limit of policy files.
const LARGEST_FILE: u64 = 16 << 20;

options! {
    pub const;
    /// Option `mode`.
    MODE = mode: Choice("wait", "fast", "strict"),
        "reassembly mode: wait (for gaps to be filled), fast (never wait, flag gaps), strict (only correctly \
         sequenced data of established connections)";
    /// Option `host_policy`.
    HOST_POLICY = host_policy: WordOrFile,
        "overlap policy of the receiving host: a name as for `overlap_policy`, or a file with lines \
         \"10.0.0.0/8 windows\" and \"default linux\"";
    /// Option `cutoff`.
    CUTOFF = cutoff: Size, "keep only the first bytes of each stream; 0: statistics only";
    /// Option `cutoff_client`.
    CUTOFF_CLIENT = cutoff_client: Size, "cutoff of data sent by the initiator; overrides cutoff";
    /// Option `cutoff_server`.
    CUTOFF_SERVER = cutoff_server: Size, "cutoff of data sent by the responder; overrides cutoff";
    /// Option `cutoff_class`.
    CUTOFF_CLASS = cutoff_class: Text,
        "cutoff of streams that match a filter, overrides all others: \"10K:tcp port 443\"; if there are several (one \
         per line), the first match applies";
    /// Option `priority`.
    PRIORITY = priority: Text,
        "priority under overload of streams that match a filter: \"2:host 192.0.2.1\"; higher is kept longer, 0 is the \
         default; if there are several (one per line), the first match applies";
    /// Option `chunk`.
    CHUNK = chunk: Size, "chunk size, 16K unless given; 0: segments as they come";
    /// Option `overlap`.
    OVERLAP = overlap: Size, "bytes of a chunk repeated at the start of the next";
    /// Option `flush_timeout`.
    FLUSH_TIMEOUT = flush_timeout: Duration, "deliver a partial chunk after this time";
    /// Option `base_threshold`.
    BASE_THRESHOLD = base_threshold: Number(0.0, 1.0),
        "share of the chunk memory below which nothing is dropped, 0.5 unless given";
    /// Option `overload_cutoff`.
    OVERLOAD_CUTOFF = overload_cutoff: Size,
        "under overload, first drop data beyond this many bytes of its stream";
}
/// The options that enable delivery in chunks.
static OPTIONS: [&OptionInfo; 12] = [
    &MODE,
    &HOST_POLICY,
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

/// The largest chunk size.
const MAX_CHUNK: u64 = 1 << 28;

/// Whether any of these options was given.
pub fn are_wanted(settings: &Settings) -> bool {
    let given = |option: &&&OptionInfo| settings.setting(option.name).is_some();
    OPTIONS.iter().any(|option| given(&option))
}

/// Defaults of the options.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// Their size.
    pub chunk_bytes: u32,
    /// Time after which a partial chunk is delivered.
    pub flush_timeout: Option<Nanos>,
}

/// The configuration given by the options.
///
/// # Errors
/// An option is invalid.
pub fn application(settings: &Settings, chunks: Usual) -> Result<ApplicationConfig, SettingError> {
    let usual = ApplicationConfig::default();
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
        cutoff: cutoffs(settings)?,
        chunk_bytes: size("chunk", chunks.chunk_bytes)?,
        overlap_bytes: size("overlap", usual.overlap_bytes)?,
        flush_timeout: match settings.duration("flush_timeout") {
            Some(nanos) => Some(Nanos(nanos)),
            None => chunks.flush_timeout,
        },
        priority: Priorities {
            classes: classes(settings, "priority", "N", |text| {
                let number = text.parse();
                number.map_err(|_| format!("\"{text}\" is not a number from 0 to 255"))
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

/// The cutoffs given by the options.
///
/// # Errors
/// A class has no value or an invalid filter.
pub fn cutoffs(settings: &Settings) -> Result<Cutoffs, SettingError> {
    let cutoff = |option: &str| settings.size(option).map(Cutoff);
    Ok(Cutoffs {
        default: cutoff("cutoff").unwrap_or(Cutoff::UNLIMITED),
        from_initiator: cutoff("cutoff_client"),
        from_responder: cutoff("cutoff_server"),
        classes: classes(
            settings,
            "cutoff_class",
            "BYTES",
            |text| match OptionKind::Size.read(text)? {
                OptionValue::Size(bytes) => Ok(Cutoff(bytes)),
                other => Err(format!("{other} is not a number of bytes")),
            },
        )?,
    })
}

/// Values of streams that match filters, one per line.
fn classes<T>(
    settings: &Settings,
    option: &'static str,
    what: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(StreamFilter, T)>, SettingError> {
    let mut classes = Vec::new();
    let lines = settings.text(option).unwrap_or_default().lines();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        let wrong = |message: String| SettingError::of(option, message);
        let (value, filter) = line
            .split_once(':')
            .ok_or_else(|| wrong(format!("\"{line}\" has no filter: write {what}:FILTER")))?;
        let (value, filter) = (value.trim(), filter.trim());
        if filter.is_empty() {
            return Err(wrong(format!("no filter after \"{value}:\"")));
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

/// The policy for all hosts, or the policies of subnets in a file of this name.
///
/// # Errors
/// The text is neither, or a line is invalid.
pub fn policies(text: &str) -> Result<HostPolicies, SettingError> {
    if let Ok(policy) = text.parse::<OverlapPolicy>() {
        return Ok(HostPolicies::new(policy));
    }
    let wrong = |message: String| {
        SettingError::of("host_policy", message).with_hint(
            "a line is a subnet and its policy, \"10.0.0.0/8 windows\"; one line may be \"default linux\"",
        )
    };
    let path = Path::new(text);
    if !files::named().is_file(path) {
        return Err(wrong(format!(
            "\"{text}\" is neither an overlap policy (first, last, linux, windows, bsd, solaris...) nor a \
             file"
        )));
    }
    let lines = files::named().read(path, LARGEST_FILE);
    let lines = lines.map_err(|error| wrong(format!("cannot read {text}: {error}")))?;
    let lines = lines.ok_or_else(|| wrong(format!("{text} is longer than 16 MiB")))?;
    let lines = String::from_utf8(lines).map_err(|_| wrong(format!("{text} is not text")))?;
    HostPolicies::read(&lines)
        .map_err(|(line, reason)| wrong(format!("{text}, line {line}: {reason}")))
}
