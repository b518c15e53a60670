//! `flowgauge locality`: programs that use libpcap get packets of one class together.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{self, Path, PathBuf};
use std::process::Command;

use flowgauge_capture::{FileFormat, FileSink, PacketSink as _, SinkOptions};
use flowgauge_locality::{Classifier, Filters, FiltersError, Index};
use flowgauge_sys::{privileges, process};
use flowgauge_wire::{Batch, PacketDescriptor};

use crate::capture::names_pcapng;
use crate::failure::Failure;
use crate::input;
use crate::options::{
    ClassOptions, LocalityCommand, LocalityOptions, LocalityRunOptions, LocalitySortOptions,
};
use crate::say::{count, say};

/// The library that stands in front of libpcap.
const LIBRARY: &str = "libflowgauge_pcap.so";
/// Says where it is.
const VARIABLE: &str = "FLOWGAUGE_PCAP_SHIM";

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &LocalityOptions) -> Result<(), Failure> {
    match &options.command {
        Some(LocalityCommand::Sort(options)) => sort(options),
        None => start(&options.run),
    }
}

/// Becomes the program.
fn start(options: &LocalityRunOptions) -> Result<(), Failure> {
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(Failure::usage("no program given", "name it after --"));
    };
    read_filters(&options.class)?.check().map_err(wrong)?;
    let program = find(name)?;
    refuse_unsuitable(&program)?;
    let library = library()?;
    let mut preloaded = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preloaded.push(":");
        preloaded.push(others);
    }
    let set = |name: &str| format!("FLOWGAUGE_LOCALITY_{name}");
    let mut command = Command::new(&program);
    command.args(arguments);
    command.env("LD_PRELOAD", preloaded);
    command.env(set("BUFFER"), options.buffer.to_string());
    command.env(set("TIMEOUT"), &options.timeout);
    command.env(set("CLASS"), options.class.class().name());
    command.env(set("VARIANT"), variant(options));
    match &options.class.filters {
        Some(file) => command.env(set("FILTERS"), absolute(file)),
        None => command.env_remove(set("FILTERS")),
    };
    match &options.stats_file {
        Some(file) => command.env(set("COUNTS"), absolute(file)),
        None if options.stats => command.env(set("COUNTS"), "1"),
        None => &mut command,
    };
    let error = process::replace(&mut command);
    Err(Failure::usage(
        format!("cannot start {}: {error}", program.display()),
        "is it an executable for this machine?",
    ))
}

/// Where the program finds a file, too, if it goes to another folder.
fn absolute(file: &Path) -> PathBuf {
    path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

fn variant(options: &LocalityRunOptions) -> &'static str {
    match (options.threaded, options.copy) {
        (true, _) => "threaded",
        (_, true) => "simple",
        _ => "zero-copy",
    }
}

/// Where the library is: named by the variable, beside the binary, or where `make install` puts it.
fn library() -> Result<PathBuf, Failure> {
    let library = match env::var_os(VARIABLE) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                return Err(Failure::usage(
                    format!("{VARIABLE}: no such file {}", path.display()),
                    format!("set it to the path of {LIBRARY}, or unset it"),
                ));
            }
            path
        }
        None => {
            let binary = env::current_exe().unwrap_or_default();
            let folder = binary.parent().unwrap_or(Path::new("/"));
            let places = ["", "deps", "../lib/flowgauge", "../lib"];
            let mut found = places.iter().map(|place| folder.join(place).join(LIBRARY));
            found.find(|path| path.is_file()).ok_or_else(|| {
                Failure::usage(
                    format!("{LIBRARY} is not installed with {}", binary.display()),
                    format!("build it with \"make shim\", and set {VARIABLE} to its path"),
                )
            })?
        }
    };
    let library = fs::canonicalize(&library).unwrap_or(library);
    // The loader takes these for the end of a name.
    if library
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :".contains(byte))
    {
        return Err(Failure::usage(
            format!(
                "{}: a path with spaces or colons cannot be preloaded",
                library.display()
            ),
            format!("copy the library elsewhere, and set {VARIABLE} to that path"),
        ));
    }
    Ok(library)
}

/// The program's file, looked for as a shell does.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let paths: Vec<PathBuf> = match name.as_bytes().contains(&b'/') {
        true => vec![PathBuf::from(name)],
        false => env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .collect(),
    };
    let known = paths.into_iter();
    let known = known.filter_map(|path| fs::metadata(&path).ok().map(|metadata| (path, metadata)));
    let mut other: Option<(PathBuf, bool)> = None;
    for (path, metadata) in known {
        let is_folder = metadata.is_dir();
        if !is_folder && metadata.permissions().mode() & 0o111 != 0 {
            return Ok(path);
        }
        if other.as_ref().is_none_or(|(_, is_folder)| *is_folder) {
            other = Some((path, is_folder));
        }
    }
    Err(match other {
        Some((path, false)) => Failure::usage(
            format!("{}: not an executable file", path.display()),
            "use chmod +x",
        ),
        Some((path, true)) => Failure::usage(
            format!("{}: a directory, not a program", path.display()),
            "name the program in it",
        ),
        None => Failure::usage(
            format!("{}: no such program", name.display()),
            "administrators' programs are often in /usr/sbin, which may not be in PATH",
        ),
    })
}

/// Refuses a program that the loader puts no library in front of.
fn refuse_unsuitable(program: &Path) -> Result<(), Failure> {
    let metadata = fs::metadata(program);
    let metadata = metadata.map_err(|error| unreadable(program, &error))?;
    let (mode, user) = (metadata.mode(), metadata.uid());
    let is_other = mode & 0o4000 != 0 && user != process::user() || mode & 0o2000 != 0;
    if is_other && !privileges::is_root() {
        return Err(Failure::usage(
            format!(
                "{} runs with another user's rights, and ignores its caller's libraries",
                program.display()
            ),
            "run flowgauge itself with the rights that capturing needs",
        ));
    }
    let mut file = File::open(program).map_err(|error| unreadable(program, &error))?;
    let mut bytes = Vec::new();
    let read = file.by_ref().take(1 << 20).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(program, &error))?;
    match is_dynamic(&bytes) {
        Some(false) => Err(Failure::usage(
            format!(
                "{} is statically linked: its libpcap cannot be replaced",
                program.display()
            ),
            "link it dynamically",
        )),
        // What a script runs is not known.
        Some(true) | None => Ok(()),
    }
}

/// Whether an ELF file names a loader (`PT_INTERP`); `None` of other files.
fn is_dynamic(bytes: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let is_64 = match bytes.get(..6)? {
        [0x7f, b'E', b'L', b'F', 2, 1] => true,
        [0x7f, b'E', b'L', b'F', 1, 1] => false,
        _ => return None,
    };
    let number = |at: usize, len: usize| {
        let bytes = bytes.get(at..at + len)?;
        let number = bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        Some(number)
    };
    let (table, size, entries) = match is_64 {
        true => (number(32, 8)?, number(54, 2)?, number(56, 2)?),
        false => (number(28, 4)?, number(42, 2)?, number(44, 2)?),
    };
    let kinds = (0..entries).map(|entry| number(table.checked_add(entry * size)?, 4));
    Some(kinds.flatten().any(|kind| kind == INTERPRETER as usize))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(
        format!("cannot read {}: {error}", path.display()),
        "check the name and your permission to read it",
    )
}

/// The filters that say the class, if there are any.
fn read_filters(options: &ClassOptions) -> Result<Filters, Failure> {
    let Some(path) = &options.filters else {
        return Ok(Filters::default());
    };
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Filters::of(path.clone(), &text).map_err(wrong)
}

fn wrong(error: FiltersError) -> Failure {
    Failure::usage(error.to_string(), error.hint())
}

/// The packets of a capture in one piece of memory each.
#[derive(Default)]
struct Held {
    packets: Vec<PacketDescriptor>,
    bytes: Vec<u8>,
    /// Where the bytes of each packet begin.
    starts: Vec<usize>,
}

fn sort(options: &LocalitySortOptions) -> Result<(), Failure> {
    input::refuse_overwriting_files([options.read.clone()], &options.write)?;
    let opening = |error| Failure::opening(&error);
    let running = |error| Failure::running(&error);
    let mut source = flowgauge_capture::open(&options.read).map_err(opening)?;
    let filters = read_filters(&options.class)?;
    let mut classifier = None;
    let mut index = Index::new(0);
    let mut held = Held::default();
    let mut damage = None;
    loop {
        let links = source.interfaces().first().map(|interface| interface.link);
        match source.next_batch() {
            Ok(Some(batch)) => {
                let first = batch.packets.first().map(|packet| packet.link).or(links);
                let classifier = match &mut classifier {
                    Some(classifier) => classifier,
                    none if filters.is_empty() => {
                        none.insert(Classifier::new(options.class.class()))
                    }
                    none => {
                        let made = Classifier::by_filters(&filters, first.unwrap_or_default());
                        none.insert(made.map_err(wrong)?)
                    }
                };
                classifier.add(&batch, &mut index);
                held.take(&batch);
            }
            Ok(None) => break,
            Err(error) => damage = Some(running(error)),
        }
    }
    let is_in_microseconds = held.packets.iter().all(|packet| packet.time.0 % 1000 == 0);
    let sink = SinkOptions {
        format: match names_pcapng(&options.write) {
            true => FileFormat::PcapNg,
            false if is_in_microseconds => FileFormat::PcapMicroseconds,
            false => FileFormat::PcapNanoseconds,
        },
        ..SinkOptions::default()
    };
    let mut sink = FileSink::create(&options.write, sink).map_err(opening)?;
    sink.set_interfaces(source.interfaces()).map_err(running)?;
    let (classes, runs) = (index.classes(), index.runs());
    while let Some(number) = index.pop() {
        sink.write(&held.batch(number)).map_err(running)?;
    }
    sink.close().map_err(running)?;
    if !options.quiet {
        say!(
            "{}: {} in {}; before, the class changed {} times",
            options.write.display(),
            count(held.packets.len() as u64, "packet"),
            match classes {
                1 => "1 class".to_owned(),
                classes => format!("{classes} classes"),
            },
            runs.saturating_sub(1)
        );
    }
    damage.map_or(Ok(()), Err)
}

impl Held {
    fn take(&mut self, batch: &Batch<'_>) {
        for (number, packet) in batch.packets.iter().enumerate() {
            self.starts.push(self.bytes.len());
            self.bytes.extend_from_slice(batch.bytes(number));
            self.packets.push(PacketDescriptor {
                offset: 0,
                ..*packet
            });
        }
    }

    /// A batch of one packet.
    fn batch(&self, number: usize) -> Batch<'_> {
        let packets = self.packets.get(number..=number).unwrap_or_default();
        let start = self.starts.get(number).copied().unwrap_or_default();
        Batch::new(self.bytes.get(start..).unwrap_or_default(), packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_a_loader_are_known() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        assert_eq!(is_dynamic(&own), Some(true));
        assert_eq!(is_dynamic(b"#!/bin/sh\nexec tcpdump\n"), None);
        assert_eq!(is_dynamic(b""), None);
        // A head whose table has one segment, to be loaded.
        let mut fixed = vec![0; 120];
        fixed[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        (fixed[32], fixed[54], fixed[56], fixed[64]) = (64, 56, 1, 1);
        assert_eq!(is_dynamic(&fixed), Some(false));
        fixed[64] = 3;
        assert_eq!(is_dynamic(&fixed), Some(true));
    }
}
