//! What to read and which filter to put before it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flowgauge_capture::filter::DEFAULT_SNAP_LEN;
use flowgauge_capture::live::{LiveConfig, LiveSource};
use flowgauge_capture::{
    Between, Deduplicated, Deduplicator, Filtered, Limit, PacketSource, SnapLen,
};
use flowgauge_offload::Backends;
use flowgauge_sys::files;
use flowgauge_sys::interfaces::{index_of, name_of};
use flowgauge_sys::{privileges, process};
use flowgauge_wire::{LinkType, Nanos};

use crate::anonymize::Forced;
use crate::control::Control;
use crate::failure::Failure;
use crate::offload;
use crate::options::{InputOptions, Offload};
use crate::say::{count, say};

/// The system user that packages make for this program.
const DEFAULT_USER: &str = "flowgauge";

/// With more files one thread reads for all: each is opened twice to be merged.
const MOST_READ_TWICE: usize = 64;

/// A source of packets that can be handed to a thread.
pub(crate) type Source = Box<dyn PacketSource + Send>;

/// Opened sources.
pub(crate) struct Opened {
    /// One for files; one per worker for interfaces.
    pub(crate) sources: Vec<Source>,
    /// Others that have the same packets, batch by batch, for threads that read beside the first.
    pub(crate) twins: Vec<Source>,
    /// Whether they are interfaces.
    pub(crate) live: bool,
    /// What is to be said once packets are captured, see [`announce`].
    pub(crate) listening: Option<String>,
    /// Size of the files, where it says how long reading will take.
    pub(crate) file_bytes: Option<u64>,
}

impl Opened {
    /// Says on standard error that packets are captured from now on.
    pub(crate) fn announce(&self, quiet: bool) {
        announce(self.listening.as_deref(), quiet);
    }
}

/// Opens what the options select, with the filter and the limit of packets before it, and gives
/// up privileges if the options say so, or where that is the default. `control` stops interfaces.
///
/// # Errors
/// When something cannot be opened, or the filter is wrong.
pub(crate) fn open(options: &InputOptions, control: &Control) -> Result<Opened, Failure> {
    if !matches!(options.offload, Offload::Auto | Offload::None) {
        return Err(Failure::usage(
            "all packets are needed here: --offload has nothing to drop",
            "leave it out",
        ));
    }
    let mut backends = offload::load_for_all(options)?;
    let opened = open_with(options, control, 0, &mut backends)?;
    offload::note(options.offload, &backends);
    Ok(opened)
}

/// The same, with so many twins where all is in files that can be read more than once at no more cost than what
/// one has read takes to be given to others.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_with(
    options: &InputOptions,
    control: &Control,
    twins: usize,
    backends: &mut Backends,
) -> Result<Opened, Failure> {
    let selection = Selection::new(options)?;
    let live = !selection.interfaces.is_empty();
    let forced = Forced::read()?;
    let sources = if live {
        open_interfaces(&selection, options, forced.as_ref(), control, backends)?
    } else {
        vec![open_files(&selection, options, forced.as_ref())?]
    };
    let are_mapped = || {
        let files = &selection.files;
        files.len() <= MOST_READ_TWICE && files.iter().all(flowgauge_capture::is_mapped)
    };
    let is_plain = !live && forced.is_none() && options.dedup.is_none();
    let twins = if twins > 0 && is_plain && are_mapped() {
        twins
    } else {
        0
    };
    let twins = (0..twins).map(|_| open_files(&selection, options, None));
    let twins = twins.collect::<Result<_, _>>()?;
    let user = give_up_privileges(options, live)?;
    Ok(Opened {
        twins,
        listening: live.then(|| listening(&sources, &selection, backends.way(), user)),
        sources,
        live,
        file_bytes: selection.file_bytes(),
    })
}

/// Gives up privileges if the options say so, or where that is the default: once all is open, and
/// something of it is `live`. Returns who the process is then.
///
/// # Errors
/// When it cannot become that.
pub(crate) fn give_up_privileges(
    options: &InputOptions,
    live: bool,
) -> Result<Option<&str>, Failure> {
    let user = options.user.as_deref().or_else(|| default_user(live));
    if let Some(user) = user {
        privileges::drop_to(user).map_err(|error| {
            Failure::usage(
                format!("cannot become {user}: {error}"),
                "-Z needs root and an existing user",
            )
        })?;
    }
    Ok(user)
}

/// Prints what [`Opened::listening`] holds.
pub(crate) fn announce(listening: Option<&str>, quiet: bool) {
    if let (Some(line), false) = (listening, quiet) {
        say!("{line}");
    }
}

/// Bytes of the headers of TCP over IPv4, without options.
const HEADERS: u32 = 20 + 20;

/// Says that headers are cut off, where flows and streams are to be found by them.
pub(crate) fn note_on_snap_length(options: &InputOptions, sources: &[Source], quiet: bool) {
    let given = options.snapshot_length.filter(|&bytes| bytes > 0 && !quiet);
    let Some(bytes) = given else {
        return;
    };
    let interfaces = sources.iter().flat_map(|source| source.interfaces());
    let links = interfaces.map(|interface| link_header(interface.link));
    // Which interfaces a file has, or "any" stands for, may show with their packets.
    let link = links.max().unwrap_or(link_header(LinkType::ETHERNET));
    let least = link + HEADERS;
    if bytes < least {
        say!(
            "note: -s {bytes} truncates headers, so flows and streams lack fields or whole packets; hint: TCP over \
            IPv4 needs {least} bytes here, over IPv6 {}, more with options, tags and tunnels",
            least + 20
        );
    }
}

/// Bytes in front of the IP header, at least.
fn link_header(link: LinkType) -> u32 {
    match link {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => 0,
        LinkType::NULL | LinkType::LOOP | LinkType::PPP | LinkType::PPP_HDLC | LinkType::C_HDLC => {
            4
        }
        LinkType::LINUX_SLL => 16,
        LinkType::LINUX_SLL2 => 20,
        LinkType::IEEE802_11 | LinkType::IEEE802_11_RADIOTAP => 32,
        _ => 14,
    }
}

/// Whom root becomes without being told, once interfaces are open: packets of strangers are better
/// looked at without privileges. Who is not root has nothing to give up.
fn default_user(live: bool) -> Option<&'static str> {
    let wanted = live && privileges::is_root() && privileges::user_exists(DEFAULT_USER);
    wanted.then_some(DEFAULT_USER)
}

/// `listening on eth0, snapshot length 262144 bytes`.
fn listening(
    sources: &[Source],
    selection: &Selection,
    way: Option<&str>,
    user: Option<&str>,
) -> String {
    let snap_len = sources
        .first()
        .and_then(|source| source.interfaces().first())
        .map_or(DEFAULT_SNAP_LEN, |interface| interface.snap_len);
    let names = selection.interfaces.join(", ");
    let way = way.map_or_else(String::new, |way| format!(" ({way})"));
    let mut line = format!("listening on {names}{way}, snapshot length {snap_len} bytes");
    if let Some(user) = user.filter(|&user| user != "root") {
        line.push_str(&format!(", as user {user}"));
    }
    line
}

/// Refuses to write over what is to be read.
///
/// # Errors
/// When `output` is one of the input's files.
pub(crate) fn refuse_overwriting(options: &InputOptions, output: &Path) -> Result<(), Failure> {
    // Words that are no files go to the filter, and make their own errors.
    let names = options.read.iter().chain(&options.rest);
    let files = names.flat_map(|name| flowgauge_capture::expand(&[name]).unwrap_or_default());
    refuse_overwriting_files(files, output)
}

/// Refuses to write over one of these files.
///
/// # Errors
/// When `output` is one of them.
pub(crate) fn refuse_overwriting_files(
    files: impl IntoIterator<Item = PathBuf>,
    output: &Path,
) -> Result<(), Failure> {
    // Only what is a file has a name to be found under; pipes and devices may be the same.
    let identity = |path: &Path| {
        let metadata = files::named().metadata(path).ok();
        let metadata = metadata.filter(fs::Metadata::is_file)?;
        Some((metadata.dev(), metadata.ino()))
    };
    let Some(target) = identity(output) else {
        return Ok(());
    };
    for file in files {
        if identity(&file) == Some(target) {
            return Err(Failure::usage(
                format!("{} is also an input file", output.display()),
                "use another name with -w",
            ));
        }
    }
    Ok(())
}

/// A source for each worker, of all interfaces. The filter runs in the kernel, except where a policy is forced: then it sees
/// what the policy leaves, as otherwise it would tell which address became which.
fn open_interfaces(
    selection: &Selection,
    options: &InputOptions,
    forced: Option<&Forced>,
    control: &Control,
    backends: &mut Backends,
) -> Result<Vec<Source>, Failure> {
    let workers = usize::from(options.workers.unwrap_or(1));
    // All workers count down together.
    let left = options
        .packet_count
        .map(|packets| Arc::new(AtomicU64::new(packets)));
    if let Some(bytes) = options.buffer_size {
        let rings = workers.saturating_mul(selection.interfaces.len());
        check_rings(bytes, rings as u64, process::machine_memory())?;
    }
    let configs = selection.interfaces.iter().map(|interface| {
        let mut config = LiveConfig::new(interface);
        if forced.is_none() {
            config.filter.clone_from(&selection.filter);
        }
        config.promiscuous = !options.no_promiscuous;
        config.own_traffic = options.own_traffic;
        if let Some(bytes) = options.snapshot_length.filter(|&bytes| bytes > 0) {
            config.snap_len = bytes;
        }
        if let Some(bytes) = options.buffer_size {
            config.buffer_bytes = bytes;
        }
        config
    });
    let configs: Vec<LiveConfig> = configs.collect();
    let stop = control.stop_handle();
    let opened: Vec<Source> = if let [config] = configs.as_slice() {
        let stopped = |source: LiveSource| source.stopped_by(stop.clone());
        let opened = backends.open(config, workers, stopped);
        opened.map_err(|error| Failure::opening(&error))?
    } else {
        let opened = backends.open_all(&configs, workers, &stop);
        opened.map_err(|error| Failure::opening(&error))?
    };
    let sources = opened.into_iter().map(|mut source| {
        if let Some(forced) = forced {
            source = forced.within(source)?;
            source =
                filtered(source, &selection.filter).map_err(|error| Failure::opening(&error))?;
        }
        let source = deduplicated(between(source, options), options);
        Ok(match &left {
            Some(left) => Box::new(Limit::shared(source, Arc::clone(left))) as Source,
            None => source,
        })
    });
    sources.collect()
}

fn open_files(
    selection: &Selection,
    options: &InputOptions,
    forced: Option<&Forced>,
) -> Result<Source, Failure> {
    let source = flowgauge_capture::open_all(&selection.files);
    let mut source = source.map_err(|error| Failure::opening(&error))?;
    if let Some(forced) = forced {
        source = forced.within(source)?;
    }
    narrow(source, &selection.filter, options).map_err(|error| Failure::opening(&error))
}

/// Puts a filter before a source, if there is one.
fn filtered(source: Source, filter: &str) -> Result<Source, flowgauge_capture::Error> {
    if filter.is_empty() {
        return Ok(source);
    }
    Ok(Box::new(Filtered::new(source, filter)?))
}

/// Leaves out packets of other times than the options say.
fn between(source: Source, options: &InputOptions) -> Source {
    match (options.from, options.to) {
        (None, None) => source,
        (from, to) => {
            let times = from.unwrap_or_default()..to.unwrap_or(Nanos(u64::MAX));
            Box::new(Between::new(source, times))
        }
    }
}

/// Leaves out copies where the options say so.
fn deduplicated(source: Source, options: &InputOptions) -> Source {
    match options.dedup {
        Some(window) => Box::new(Deduplicated::new(source, window, Deduplicator::KEEP)),
        None => source,
    }
}

/// Puts the filter, the snap length and the limit of packets before a source.
fn narrow(
    mut source: Source,
    filter: &str,
    options: &InputOptions,
) -> Result<Source, flowgauge_capture::Error> {
    source = filtered(source, filter)?;
    // By all bytes that there are: what is cut at another place of the datagram differs.
    source = deduplicated(between(source, options), options);
    if let Some(snap_len) = options.snapshot_length.filter(|&bytes| bytes > 0) {
        source = Box::new(SnapLen::new(source, snap_len));
    }
    if let Some(packets) = options.packet_count {
        source = Box::new(Limit::new(source, packets));
    }
    Ok(source)
}

/// What the options select, before anything is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Files to read; `-` is standard input.
    pub(crate) files: Vec<PathBuf>,
    /// Interfaces to capture on.
    pub(crate) interfaces: Vec<String>,
    /// Filter expression; empty when there is none.
    pub(crate) filter: String,
}

impl Selection {
    /// Sorts the words of the command line into files, interfaces and filter.
    ///
    /// Words after the options are a filter, as with tcpdump; but those in front that name
    /// existing files, or are globs, belong to `-r`, because shells expand `-r *.pcap` so.
    ///
    /// # Errors
    /// When there is nothing to read, a glob matches nothing, or the words make no sense.
    pub(crate) fn new(options: &InputOptions) -> Result<Selection, Failure> {
        let mut words = options.rest.as_slice();
        let mut names = options.read.clone();
        if options.interface.is_empty() {
            while let Some((word, rest)) = words.split_first() {
                if !names_files(word) {
                    break;
                }
                names.push(word.clone());
                words = rest;
            }
            if let Some(word) = words.first().filter(|word| is_meant_as_glob(word)) {
                // Matches nothing, or it would be among the names.
                expand(std::slice::from_ref(word))?;
            }
            if let Some(word) = words.first()
                && looks_like_a_path(word)
            {
                let word = word.display();
                return Err(Failure::usage(
                    format!("cannot open {word}: No such file or directory"),
                    "check the path; words after the files form the filter",
                ));
            }
        }
        if let (Some(from), Some(to)) = (options.from, options.to)
            && to <= from
        {
            return Err(Failure::usage(
                "--to is not after --from: no packet was captured between them",
                "times are in UTC: --from '2026-11-22 10:30' --to '2026-11-22 11:00'",
            ));
        }
        if names.is_empty() && options.interface.is_empty() {
            return Err(Failure::usage(
                "nothing to read",
                "use -r FILE... or -i INTERFACE (flowgauge capture -D lists them)",
            ));
        }
        if !names.is_empty() && !options.interface.is_empty() {
            return Err(Failure::usage(
                "-r and -i cannot be combined",
                "read files or capture on interfaces, not both at once",
            ));
        }
        let interfaces = interfaces(&options.interface)?;
        Ok(Selection {
            files: expand(&names)?,
            interfaces,
            filter: filter_expression(options, words)?,
        })
    }

    /// Bytes in the files, where they are regular ones.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        let mut bytes = 0;
        for file in &self.files {
            let metadata = files::named().metadata(file).ok();
            let metadata = metadata.filter(fs::Metadata::is_file)?;
            bytes += metadata.len();
        }
        (bytes > 0).then_some(bytes)
    }
}

/// The interfaces by name. As with tcpdump, a number is the one of `capture -D`, unless an interface
/// is called so.
fn interfaces(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for word in given {
        let name = match word.parse::<i32>() {
            Ok(number) if index_of(word).is_none() => name_of(number).ok_or_else(|| {
                Failure::usage(
                    format!("no interface with number {number}"),
                    "flowgauge capture -D lists the interfaces",
                )
            })?,
            _ => word.clone(),
        };
        if names.contains(&name) {
            return Err(Failure::usage(
                format!("-i {name} is given twice"),
                "every packet would count twice: name each interface once",
            ));
        }
        names.push(name);
    }
    if names.len() > 1 && names.iter().any(|name| name == "any") {
        return Err(Failure::usage(
            "-i any already includes all interfaces",
            "use -i any alone, or name the interfaces",
        ));
    }
    Ok(names)
}

/// Whether a word stands for files: an existing one, standard input, or a glob that matches.
fn names_files(word: &OsStr) -> bool {
    word == "-" || files::named().is_file(Path::new(word)) || (is_glob(word) && matches_any(word))
}

/// Whether a word that is no file can only have been meant as one.
fn looks_like_a_path(word: &OsStr) -> bool {
    let name = word.to_string_lossy().to_ascii_lowercase();
    let endings = [".pcap", ".pcapng", ".cap", ".gz", ".zst", ".snoop", ".erf"];
    endings.iter().any(|ending| name.ends_with(ending))
        || name.starts_with("./")
        || name.starts_with("../")
        || name.starts_with('/')
}

fn is_glob(word: &OsStr) -> bool {
    word.to_string_lossy().contains(['*', '?', '['])
}

/// Whether a word in front of the filter can only have been meant as a glob: arithmetic, as in
/// `len*2 > 100` or `ip[0]*4 > 20`, begins with a number, `len` or something in brackets.
fn is_meant_as_glob(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    let (before, _) = word.split_once('*').unwrap_or((&word, ""));
    let operand = before == "len"
        || before.contains(['[', '(', ']', ')'])
        || before.starts_with(|first: char| first.is_ascii_digit());
    !word.contains("::") && (word.contains('?') || (word.contains('*') && !operand))
}

fn matches_any(pattern: &OsStr) -> bool {
    flowgauge_capture::expand(&[pattern]).is_ok()
}

/// Expands globs, in the order of names; other words stand for themselves.
fn expand(names: &[OsString]) -> Result<Vec<PathBuf>, Failure> {
    for name in names {
        if files::named().is_folder(Path::new(name)) {
            let name = name.display();
            return Err(Failure::usage(
                format!("cannot read {name}: it is a directory"),
                format!("name its files, for example \"{name}/*.pcap\""),
            ));
        }
    }
    flowgauge_capture::expand(names).map_err(|error| Failure::opening(&error))
}

/// Refuses rings that would take more than a quarter of the machine's memory: the kernel cannot
/// take it back, and other processes would be ended for it.
fn check_rings(bytes: u64, rings: u64, memory: Option<u64>) -> Result<(), Failure> {
    let Some(most) = memory.map(|memory| memory / 4) else {
        return Ok(());
    };
    if bytes.saturating_mul(rings) <= most {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "-B asks for more than a quarter of this machine's memory for {}",
            count(rings, "ring")
        ),
        format!("at most -B {} here", most / 1024 / rings.max(1)),
    ))
}

/// The longest filter that `-F` reads.
const MAX_FILTER_BYTES: u64 = 1 << 20;

/// The filter of `-F`, of the words left over, or of those after `--`.
fn filter_expression(options: &InputOptions, words: &[OsString]) -> Result<String, Failure> {
    let words = words.iter().chain(&options.filter).map(|word| {
        word.to_str().ok_or_else(|| {
            Failure::usage(
                format!(
                    "\"{}\" is neither a file nor part of a filter",
                    word.display()
                ),
                "check the path; words after the files form the filter",
            )
        })
    });
    let words = words.collect::<Result<Vec<&str>, Failure>>()?;
    let Some(file) = &options.filter_file else {
        return Ok(words.join(" "));
    };
    if !words.is_empty() {
        return Err(Failure::usage(
            "a filter on the command line and one in a file",
            "use one of them",
        ));
    }
    let failed = |source| Failure::opening(&flowgauge_capture::Error::io("open", file)(source));
    let text = files::named().read(file, MAX_FILTER_BYTES);
    let Some(text) = text.map_err(failed)? else {
        return Err(Failure::usage(
            format!("the filter in {} is longer than 1 MiB", file.display()),
            "name a file that holds a filter expression",
        ));
    };
    let text = String::from_utf8(text);
    let text = text.map_err(|error| failed(io::Error::other(error)))?;
    // As tcpdump: line feeds separate words.
    Ok(text.split_whitespace().collect::<Vec<&str>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(read: &[&str], interface: &[&str], rest: &[&str]) -> InputOptions {
        let owned = |words: &[&str]| words.iter().map(Into::into).collect();
        InputOptions {
            read: owned(read),
            interface: interface.iter().map(|&name| name.to_owned()).collect(),
            rest: owned(rest),
            ..InputOptions::default()
        }
    }

    #[test]
    fn existing_files_in_front_belong_to_read() {
        let selection = Selection::new(&options(
            &["Cargo.toml"],
            &[],
            &["src/main.rs", "tcp", "port", "80"],
        ));
        let selection = selection.unwrap();
        assert_eq!(
            selection.files,
            [Path::new("Cargo.toml"), Path::new("src/main.rs")]
        );
        assert_eq!(selection.filter, "tcp port 80");
    }

    #[test]
    fn globs_are_expanded_in_order() {
        let selection = Selection::new(&options(&["src/[gi]*.rs"], &[], &[])).unwrap();
        assert_eq!(
            selection.files,
            [Path::new("src/generate.rs"), Path::new("src/input.rs")]
        );
        let error = Selection::new(&options(&["src/*.pcap"], &[], &[])).unwrap_err();
        assert!(error.to_string().contains("no file matches"));
    }

    #[test]
    fn a_missing_file_is_not_taken_for_a_filter() {
        let error = Selection::new(&options(&["Cargo.toml"], &[], &["gone.pcap"])).unwrap_err();
        assert!(error.to_string().contains("cannot open gone.pcap"));
    }

    #[test]
    fn a_glob_without_a_match_is_not_taken_for_a_filter() {
        for word in ["gone*", "*.gone", "gone?.pcap"] {
            let error = Selection::new(&options(&["Cargo.toml"], &[], &[word])).unwrap_err();
            assert_eq!(error.to_string(), format!("no file matches {word}"));
        }
        for word in ["len*2", "ip[0]*4", "2*len", "(len*2)"] {
            let rest = [word, ">", "100"];
            let selection = Selection::new(&options(&["Cargo.toml"], &[], &rest)).unwrap();
            assert_eq!(selection.filter, rest.join(" "));
        }
    }

    #[test]
    fn interfaces_have_numbers_and_are_named_once() {
        let number = index_of("lo").unwrap().to_string();
        let selection = Selection::new(&options(&[], &[&number], &[])).unwrap();
        assert_eq!(selection.interfaces, ["lo"]);
        for wrong in [
            &["lo", "lo"][..],
            &["lo", &number],
            &["any", "lo"],
            &["2000000000"],
        ] {
            assert!(Selection::new(&options(&[], wrong, &[])).is_err());
        }
    }

    #[test]
    fn rings_take_a_quarter_of_the_memory_at_most() {
        assert!(check_rings(1 << 20, 4, Some(16 << 20)).is_ok());
        assert!(check_rings(1 << 20, 5, Some(16 << 20)).is_err());
        assert!(check_rings(u64::MAX, 2, Some(u64::MAX)).is_err());
        assert!(check_rings(u64::MAX, 2, None).is_ok());
    }

    #[test]
    fn with_an_interface_all_words_are_filter() {
        let selection = Selection::new(&options(&[], &["lo"], &["Cargo.toml"])).unwrap();
        assert_eq!(selection.filter, "Cargo.toml");
        assert!(Selection::new(&options(&["a"], &["lo"], &[])).is_err());
        assert!(Selection::new(&options(&[], &[], &[])).is_err());
    }
}
