//! `flowgauge capture`

use std::path::Path;

use flowgauge_capture::filter::{DEFAULT_SNAP_LEN, DumpStyle};
use flowgauge_capture::sink::{RingLimits, Rotation, Written};
use flowgauge_capture::{FileFormat, FileSink, Filter, PacketSource, RingSink, SinkOptions};
use flowgauge_kit::{chunks, engine};
use flowgauge_runtime::Beginnings;
use flowgauge_stack::{OptionValue, Settings};
use flowgauge_stream::ShardConfig;
use flowgauge_stream::engine::Cutoffs;
use flowgauge_wire::LinkType;

use crate::control::Control;
use crate::copy::{Sink, copy};
use crate::failure::Failure;
use crate::input::{self, Selection, Source};
use crate::memory;
use crate::options::{BoundOptions, CaptureFormat, CaptureOptions};
use crate::say::{count, say};
use crate::sinks;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &CaptureOptions) -> Result<(), Failure> {
    if options.list_interfaces {
        return list_interfaces();
    }
    if options.dump_filter > 0 {
        return dump_filter(options);
    }
    write_packets(options, Ok)
}

/// Packets of the input, as `through` leaves them, into files.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn write_packets(
    options: &CaptureOptions,
    through: impl FnMut(Source) -> Result<Source, Failure>,
) -> Result<(), Failure> {
    let Some(path) = &options.files.write else {
        return Err(Failure::usage(
            "no output file",
            "use -w FILE (flowgauge packets prints packets)",
        ));
    };
    let rotates = options.files.rotate_size.is_some() || options.files.rotate_time.is_some();
    if options.files.rotate_files.is_some() && !rotates && options.ring_limits().is_none() {
        return Err(Failure::usage(
            "-W without rotation",
            "set when to start a new file: -C SIZE, -G DURATION, --ring-time or --ring-size",
        ));
    }
    if let Some(limits) = options.ring_limits() {
        check_ring(limits)?;
    }
    let cutoffs = cutoffs(options)?;
    let control = Control::install()?;
    control.say_what_takes_long(options.common.quiet);
    let mut opened = input::open(&options.input, &control)?;
    if let Some(cutoffs) = cutoffs {
        input::note_on_snap_length(&options.input, &opened.sources, options.common.quiet);
        let config = bounded(&options.bounds, opened.sources.len())?;
        let cut = |source| {
            let source = Beginnings::new(source, cutoffs.clone(), config.clone());
            Box::new(source) as Source
        };
        opened.sources = opened.sources.into_iter().map(cut).collect();
    }
    opened.sources = opened
        .sources
        .into_iter()
        .map(through)
        .collect::<Result<_, Failure>>()?;
    let mut sink = create_sink(options, path, &opened.sources)?;
    control.listen_for_trigger()?;
    input::announce(opened.listening.as_deref(), options.common.quiet);
    control.begin();
    let outcome = copy(&mut opened.sources, &mut *sink, &control, opened.live)?;
    if !options.common.quiet {
        say!(
            "{}",
            written_line(&sink.written(), path, options.ring_limits().is_some())
        );
    }
    outcome.conclude(&options.common)
}

/// What is in the files, and what is in them no more.
fn written_line(written: &Written, path: &Path, is_ring: bool) -> String {
    let gone = written.gone;
    let mut line = format!(
        "{}, {} written to {}",
        count(written.packets - gone.packets, "packet"),
        count(written.bytes - gone.bytes, "byte"),
        match written.files {
            0 | 1 => path.display().to_string(),
            files => format!("{files} files"),
        }
    );
    if gone.files > 0 {
        line.push_str(&format!(
            "; {} {} before that ({})",
            count(gone.packets, "packet").were(),
            if is_ring { "removed" } else { "written over" },
            count(gone.files, "file"),
        ));
    }
    line
}

/// The longest packet that the kernel hands over, 64 KiB and its headers, is in a file as a whole.
const LEAST_FILE: u64 = 128 << 10;

/// Refuses rings whose files hold next to nothing: each would be made and removed for a packet or two.
fn check_ring(limits: RingLimits) -> Result<(), Failure> {
    let Some(bytes) = limits.bytes else {
        return Ok(());
    };
    let files = limits.share_of_files();
    if bytes / files >= LEAST_FILE {
        return Ok(());
    }
    let least = OptionValue::Size(files * LEAST_FILE);
    let bytes = OptionValue::Size(bytes);
    Err(Failure::usage(
        format!(
            "--ring-size {bytes} is too small for a ring of {files} files: each needs at least 128K"
        ),
        match limits.files {
            Some(_) => format!("use --ring-size {least} or more, or fewer files with -W"),
            None => {
                format!("use --ring-size {least} or more, or with -W fewer files than {files}")
            }
        },
    ))
}

/// How much of which stream is written, if not all.
fn cutoffs(options: &CaptureOptions) -> Result<Option<Cutoffs>, Failure> {
    let given = options.cutoffs.settings()?;
    if given.iter().next().is_some() {
        let cutoffs = chunks::cutoffs(&given);
        return cutoffs.map(Some).map_err(Failure::of_setting);
    }
    if options.bounds.iter().next().is_some() {
        return Err(Failure::usage(
            "--max-flows and --memory bound the tracked flows, and without a cutoff none are tracked",
            "set how much of each stream to write: --cutoff BYTES, or --cutoff-class 'BYTES:FILTER'",
        ));
    }
    Ok(None)
}

/// What each of so many sources may have of the bounds.
fn bounded(bounds: &BoundOptions, sources: usize) -> Result<ShardConfig, Failure> {
    memory::check(bounds.size("memory"), sources as u64)?;
    let mut settings = Settings::clone(bounds);
    settings.set_copies(sources);
    engine::configuration(&settings, Beginnings::NEEDS).map_err(Failure::of_setting)
}

fn create_sink(
    options: &CaptureOptions,
    path: &Path,
    sources: &[Source],
) -> Result<Box<Sink>, Failure> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    if let Some(ending) = [".bz2", ".xz", ".lz4", ".br"]
        .iter()
        .find(|it| name.ends_with(*it))
    {
        return Err(Failure::usage(
            format!("{}: unsupported compression {ending}", path.display()),
            "supported endings are .gz and .zst",
        ));
    }
    let format = match options.files.format {
        Some(CaptureFormat::Pcap) => FileFormat::PcapNanoseconds,
        Some(CaptureFormat::PcapMicroseconds) => FileFormat::PcapMicroseconds,
        Some(CaptureFormat::Pcapng) => FileFormat::PcapNg,
        None => format_by_name(path, sources),
    };
    let sink_options = SinkOptions {
        format,
        unbuffered: options.packet_buffered,
        rotation: Rotation {
            bytes: options.files.rotate_size,
            seconds: options.files.rotate_time,
            files: options.files.rotate_files,
        },
        ..SinkOptions::default()
    };
    if let Some(limits) = options.ring_limits() {
        let sink = RingSink::create(path, limits, sink_options);
        return Ok(Box::new(sink.map_err(|error| Failure::opening(&error))?));
    }
    let sink = FileSink::create(path, sink_options).map_err(|error| Failure::opening(&error))?;
    Ok(Box::new(sink))
}

/// Whether a name, perhaps with the ending of a compression behind it, says pcapng.
pub(crate) fn names_pcapng(path: &Path) -> bool {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let packed = [".gz", ".zst", ".zstd"];
    let ending = packed.iter().find_map(|ending| name.strip_suffix(ending));
    let name = ending.unwrap_or(&name);
    name.ends_with(".pcapng") || name.ends_with(".ntar")
}

/// pcapng where the name says so, or where pcap cannot hold what comes.
fn format_by_name(path: &Path, sources: &[Source]) -> FileFormat {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let interfaces = sources.iter().flat_map(|source| source.interfaces());
    let mut links = interfaces.map(|interface| interface.link);
    let first = links.next();
    let mixed = links.any(|link| Some(link) != first);
    // Which interfaces "any" stands for shows with their packets.
    let unknown = first.is_none() && !name.ends_with(".pcap") && !name.ends_with(".cap");
    if names_pcapng(path) || mixed || unknown {
        FileFormat::PcapNg
    } else {
        FileFormat::PcapNanoseconds
    }
}

/// `-D`: number, name, state and addresses of each interface.
fn list_interfaces() -> Result<(), Failure> {
    let interfaces = flowgauge_capture::live::list_interfaces();
    let interfaces = interfaces.map_err(|error| Failure::opening(&error))?;
    let mut text = String::new();
    for interface in &interfaces {
        let mut state = Vec::new();
        if interface.is_up() {
            state.push("Up");
        }
        if interface.is_running() {
            state.push("Running");
        }
        if interface.is_loopback() {
            state.push("Loopback");
        }
        let addresses: Vec<String> = interface
            .addresses
            .iter()
            .map(|(address, _)| address.to_string())
            .collect();
        text.push_str(&format!(
            "{}.{} [{}] {}\n",
            interface.index,
            interface.name,
            state.join(", "),
            addresses.join(" ")
        ));
    }
    print(&text)
}

/// `-d`: the compiled program.
fn dump_filter(options: &CaptureOptions) -> Result<(), Failure> {
    let mut input = options.input.clone();
    let (expression, link) = if input.read.is_empty() && input.interface.is_empty() {
        // As tcpdump: without an input, for Ethernet.
        input.interface.push("any".to_owned());
        (Selection::new(&input)?.filter, LinkType::ETHERNET)
    } else {
        let selection = Selection::new(&input)?;
        (selection.filter.clone(), link_of(&selection)?)
    };
    let snap_len = options
        .input
        .snapshot_length
        .filter(|&bytes| bytes > 0)
        .unwrap_or(DEFAULT_SNAP_LEN);
    let filter = Filter::compile(&expression, link, snap_len);
    let filter = filter.map_err(|error| Failure::opening(&error))?;
    print(&filter.dump(match options.dump_filter {
        1 => DumpStyle::Human,
        2 => DumpStyle::C,
        _ => DumpStyle::Decimal,
    }))
}

/// Link type of the first input.
fn link_of(selection: &Selection) -> Result<LinkType, Failure> {
    if let Some(file) = selection.files.first() {
        let source = flowgauge_capture::open(file).map_err(|error| Failure::opening(&error))?;
        return Ok(source
            .interfaces()
            .first()
            .map_or(LinkType::ETHERNET, |interface| interface.link));
    }
    let name = selection.interfaces.first().map_or("any", String::as_str);
    let all = flowgauge_capture::live::list_interfaces();
    let all = all.map_err(|error| Failure::opening(&error))?;
    let link = all
        .iter()
        .find(|interface| interface.name == name)
        .and_then(|interface| flowgauge_capture::live::link_type_of(interface.hardware));
    Ok(link.unwrap_or(if name == "any" {
        LinkType::LINUX_SLL2
    } else {
        LinkType::ETHERNET
    }))
}

fn print(text: &str) -> Result<(), Failure> {
    let text = format!("{}\n", text.trim_end_matches('\n'));
    match std::io::Write::write_all(&mut sinks::target(None)?, text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) => crate::failure::of_output(error.into()).map_or(Ok(()), Err),
    }
}
