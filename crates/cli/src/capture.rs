//! `flowgauge capture`

use std::path::Path;
use std::time::Instant;

use flowgauge_capture::filter::{DEFAULT_SNAP_LEN, DumpStyle};
use flowgauge_capture::sink::Rotation;
use flowgauge_capture::{
    Error, FileFormat, FileSink, Filter, PacketSink, PacketSource, RingSink, SinkOptions,
};
use flowgauge_wire::{LinkType, Place};

use crate::control::Control;
use crate::failure::Failure;
use crate::input::{self, Selection, Source};
use crate::options::{CaptureFormat, CaptureOptions};
use crate::sinks;
use crate::summary::{self, Outcome};

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
    let Some(path) = &options.write else {
        return Err(Failure::usage(
            "nowhere to write to",
            "give -w FILE (flowgauge packets prints packets)",
        ));
    };
    let control = Control::install()?;
    let mut opened = input::open(&options.input, &control)?;
    if opened.sources.len() > 1 {
        return Err(Failure::usage(
            "capture writes one interface with one worker",
            "use -i any for all interfaces",
        ));
    }
    let Some(source) = opened.sources.first_mut() else {
        return Err(Failure::usage(
            "nothing to read",
            "give -r FILE or -i INTERFACE",
        ));
    };
    let mut sink = create_sink(options, path, source)?;
    input::announce(opened.listening.as_deref(), options.common.quiet);
    let outcome = copy(source, sink.as_mut(), &control, opened.live)?;
    let written = sink.written();
    if !options.common.quiet {
        eprintln!(
            "{} packets, {} bytes written to {}",
            written.packets,
            written.bytes,
            if written.files > 1 {
                format!("{} files", written.files)
            } else {
                path.display().to_string()
            }
        );
    }
    outcome.conclude(&options.common)
}

/// Writes every packet until the end of input, a signal, or the last file of `-W`.
fn copy(
    source: &mut Source,
    sink: &mut dyn PacketSink,
    control: &Control,
    live: bool,
) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let mut outcome = Outcome::default();
    let mut failure = None;
    let mut interfaces = usize::MAX;
    let mut given = 0u64;
    // A live source ends of its own accord when it is stopped, after the packets in its ring.
    while (live || !control.stopped()) && !sink.is_full() {
        let known = source.interfaces();
        if known.len() != interfaces {
            interfaces = known.len();
            if let Err(error) = sink.set_interfaces(known) {
                failure = Some(error);
                break;
            }
        }
        match source.next_batch() {
            Ok(Some(batch)) => {
                given += batch.len() as u64;
                let result = sink.write(&batch);
                let result = if live && batch.is_empty() {
                    result.and_then(|()| sink.flush())
                } else {
                    result
                };
                if let Err(error) = result {
                    failure = Some(error);
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => outcome.errors.push(error),
        }
        if control.statistics_wanted() {
            let ledger = source.ledger();
            eprintln!("{}", summary::ledger_line(&ledger));
            summary::print_statistics(&ledger, &[], started.elapsed());
        }
    }
    outcome.ledger = source.ledger();
    sink.set_ledger(&outcome.ledger);
    if let Err(error) = sink.close() {
        failure.get_or_insert(error);
    }
    outcome.elapsed = started.elapsed();
    let lost = given.saturating_sub(sink.written().packets);
    if lost > 0 {
        let lost = lost.min(outcome.ledger.delivered);
        outcome.ledger.refuse(Place::Sink, lost, 0);
    }
    match failure {
        None => Ok(outcome),
        // Whoever read the pipe has seen enough.
        Some(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => {
            Ok(outcome)
        }
        Some(error) => {
            eprintln!("{}", summary::ledger_line(&outcome.ledger));
            Err(Failure::running(&error))
        }
    }
}

fn create_sink(
    options: &CaptureOptions,
    path: &Path,
    source: &Source,
) -> Result<Box<dyn PacketSink>, Failure> {
    let format = match options.format {
        Some(CaptureFormat::Pcap) => FileFormat::PcapNanoseconds,
        Some(CaptureFormat::PcapMicroseconds) => FileFormat::PcapMicroseconds,
        Some(CaptureFormat::Pcapng) => FileFormat::PcapNg,
        None => format_by_name(path, source),
    };
    let sink_options = SinkOptions {
        format,
        unbuffered: options.packet_buffered,
        rotation: Rotation {
            bytes: options.file_size,
            seconds: options.rotate_seconds,
            files: options.file_count,
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

/// pcapng where the name says so, or where pcap cannot hold what comes.
fn format_by_name(path: &Path, source: &Source) -> FileFormat {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let mut links = source.interfaces().iter().map(|interface| interface.link);
    let first = links.next();
    let mixed = links.any(|link| Some(link) != first);
    // Which interfaces "any" stands for shows with their packets.
    let unknown = first.is_none() && !name.ends_with(".pcap") && !name.ends_with(".cap");
    if name.ends_with(".pcapng") || name.ends_with(".ntar") || mixed || unknown {
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
