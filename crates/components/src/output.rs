//! `output`: writes what comes, and lets it through.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use flowgauge_capture::sink::Rotation;
use flowgauge_capture::{Error, FileFormat, FileSink, Interface, PacketSink, SinkOptions};
use flowgauge_stack::{
    Component, ComponentInfo, Failure, Input, Items, OptionInfo, OptionKind, Outlet, Packets,
    Parallel, ResultInfo, ResultValue, SettingError, Settings,
};
use flowgauge_wire::{Batch, LinkType, PacketDescriptor};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "output",
    aliases: &["to_file"],
    summary: "writes what it gets to a file, and lets it through",
    help: "Packets are written as a capture file, in pcapng where the file's name ends in .pcapng, \
           else in pcap; .gz and .zst compress. Chunks of streams are written one after the other as \
           they are.",
    input: Input::Any,
    is_end: true,
    options: &[
        OptionInfo::new(
            "file",
            OptionKind::OutputFile,
            "where to write; - is standard output",
        )
        .or("-"),
        OptionInfo::new(
            "rotate_size",
            OptionKind::Size,
            "begin a new file when this one would become larger",
        ),
        OptionInfo::new(
            "rotate_time",
            OptionKind::Duration,
            "begin a new file every so often, on the clock of the capture; the name is a strftime \
             format",
        ),
        OptionInfo::new(
            "rotate_files",
            OptionKind::Integer {
                min: 1,
                max: 1_000_000,
            },
            "how many files there are; with rotate_size the oldest is written over",
        ),
    ],
    result: Some(ResultInfo {
        summary: "items written",
        unit: "items",
    }),
    parallel: Parallel::Never("it writes one file"),
    make,
    ..crate::OF_PACKETS
};

struct ToFile {
    path: String,
    rotation: Rotation,
    sink: Sink,
    /// Link types of the packets so far, in the order in which they came.
    interfaces: Vec<Interface>,
    chosen: Vec<PacketDescriptor>,
    written: u64,
}

/// What the file is follows from what comes first.
enum Sink {
    None,
    Packets(Box<FileSink>),
    Bytes(BufWriter<Box<dyn Write + Send>>),
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let seconds = match settings.duration("rotate_time") {
        Some(nanos) if nanos < 1_000_000_000 => {
            return Err(SettingError::of("rotate_time", "is less than a second"));
        }
        nanos => nanos.map(|nanos| nanos / 1_000_000_000),
    };
    Ok(Box::new(ToFile {
        path: settings.text("file").unwrap_or_default().to_owned(),
        rotation: Rotation {
            bytes: settings.size("rotate_size"),
            seconds,
            files: settings
                .integer("rotate_files")
                .and_then(|files| u32::try_from(files).ok()),
        },
        sink: Sink::None,
        interfaces: Vec::new(),
        chosen: Vec::new(),
        written: 0,
    }))
}

fn failure(error: Error) -> Failure {
    Failure {
        hint: error.hint(),
        message: error.to_string(),
    }
}

impl ToFile {
    fn format(&self) -> FileFormat {
        let name = self.path.trim_end_matches(".gz").trim_end_matches(".zst");
        match Path::new(name).extension() {
            Some(ending) if ending.eq_ignore_ascii_case("pcapng") => FileFormat::PcapNg,
            _ => FileFormat::PcapNanoseconds,
        }
    }

    fn packets(&mut self, packets: &Packets<'_>) -> Result<(), Failure> {
        if let Sink::None = self.sink {
            let options = SinkOptions {
                format: self.format(),
                rotation: self.rotation,
                ..SinkOptions::default()
            };
            let sink = FileSink::create(&self.path, options).map_err(failure)?;
            self.sink = Sink::Packets(Box::new(sink));
        }
        let before = self.interfaces.len();
        self.chosen.clear();
        for (_, packet) in packets.iter() {
            let descriptor = packets.batch.packets.get(usize::from(packet.index));
            let Some(descriptor) = descriptor else {
                continue;
            };
            let interface = self.interface(descriptor.link);
            self.chosen.push(PacketDescriptor {
                interface,
                ..*descriptor
            });
        }
        let Sink::Packets(sink) = &mut self.sink else {
            return Err(self.mixed());
        };
        if self.interfaces.len() != before {
            sink.set_interfaces(&self.interfaces).map_err(failure)?;
        }
        let batch = Batch::new(packets.batch.memory, &self.chosen);
        sink.write(&batch).map_err(failure)?;
        self.written += self.chosen.len() as u64;
        Ok(())
    }

    fn interface(&mut self, link: LinkType) -> u16 {
        let known = self.interfaces.iter().position(|known| known.link == link);
        let index = known.unwrap_or_else(|| {
            self.interfaces.push(Interface {
                link,
                ..Interface::default()
            });
            self.interfaces.len() - 1
        });
        index as u16
    }

    fn chunks(&mut self, chunks: &[flowgauge_stack::StreamChunk<'_>]) -> Result<(), Failure> {
        let in_file = |path: &str, error: std::io::Error| Failure::new(format!("{path}: {error}"));
        if let Sink::None = self.sink {
            let target: Box<dyn Write + Send> = if self.path == "-" {
                Box::new(std::io::stdout())
            } else {
                let file = File::create(&self.path);
                Box::new(file.map_err(|error| in_file(&self.path, error))?)
            };
            self.sink = Sink::Bytes(BufWriter::new(target));
        }
        let Sink::Bytes(writer) = &mut self.sink else {
            return Err(self.mixed());
        };
        for chunk in chunks {
            let result = writer.write_all(chunk.bytes);
            result.map_err(|error| in_file(&self.path, error))?;
            self.written += 1;
        }
        Ok(())
    }

    fn mixed(&self) -> Failure {
        Failure {
            message: format!("{}: packets and chunks in one file", self.path),
            hint: Some("write them to a file each".to_owned()),
        }
    }
}

impl Component for ToFile {
    fn start(&mut self) -> Result<(), Failure> {
        // What cannot be written to is found before the capture begins.
        if self.path == "-" || self.rotation.seconds.is_some() {
            return Ok(());
        }
        let file = File::options().append(true).create(true).open(&self.path);
        match file {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure {
                message: format!("{}: {error}", self.path),
                hint: Some("is there such a folder, and may it be written to?".to_owned()),
            }),
        }
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let result = match items {
            Items::Packets(packets) => self.packets(packets),
            Items::Chunks(chunks) => self.chunks(chunks),
            _ => Ok(()),
        };
        if let Err(failure) = result {
            out.fail(failure);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let result = match core::mem::replace(&mut self.sink, Sink::None) {
            Sink::None => self.nothing_came(),
            Sink::Packets(mut sink) => sink.close().map(|_| ()).map_err(failure),
            Sink::Bytes(mut writer) => writer
                .flush()
                .map_err(|error| Failure::new(format!("{}: {error}", self.path))),
        };
        if let Err(failure) = result {
            out.fail(failure);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.written))
    }
}

impl ToFile {
    /// A capture without packets is a capture, too.
    fn nothing_came(&self) -> Result<(), Failure> {
        if self.rotation.seconds.is_some() || self.path == "-" {
            return Ok(());
        }
        let options = SinkOptions {
            format: self.format(),
            ..SinkOptions::default()
        };
        let mut sink = FileSink::create(&self.path, options).map_err(failure)?;
        sink.set_interfaces(&[Interface::default()])
            .map_err(failure)?;
        sink.close().map(|_| ()).map_err(failure)
    }
}
