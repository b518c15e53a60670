//! Writes to a capture file, or to several in turn.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use flowgauge_wire::{Batch, Ledger, Nanos};

use crate::error::Error;
use crate::sink::name::{Rotation, Rotator, Turn};
use crate::sink::output::Compression;
use crate::sink::segment::{Segment, learn};
use crate::sink::{FileFormat, PacketSink, Written};
use crate::source::Interface;

/// Options of a [`FileSink`].
#[derive(Clone, Debug, Default)]
pub struct SinkOptions {
    /// Format of the file.
    pub format: FileFormat,
    /// Compression.
    pub compression: Compression,
    /// When to start a new file.
    pub rotation: Rotation,
    /// `-U`: pass each batch to the system immediately.
    pub unbuffered: bool,
    /// Comment in the section header of a pcapng file.
    pub comment: Option<String>,
    /// Append to an existing file; in pcapng, as another section.
    pub append: bool,
}

/// A capture file, or a sequence of them.
pub struct FileSink {
    rotator: Rotator,
    options: SinkOptions,
    segment: Option<Segment>,
    interfaces: Vec<Interface>,
    ledger: Option<Ledger>,
    /// Of the files that are closed.
    done: Written,
    full: bool,
    /// Packets and bytes of the files that are closed, to know what is gone when a name comes again.
    closed: HashMap<PathBuf, (u64, u64)>,
}

/// Names of files that are remembered (a day of seconds); what is written over of further ones counts as
/// being there.
const MOST_NAMES: usize = 100_000;

impl FileSink {
    /// Creates the file; `-` is standard output. With `-G`, the first file is created with the first
    /// packet, whose time is in its name.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be created, [`Error::Sink`] if the options contradict each
    /// other.
    pub fn create(path: impl AsRef<Path>, mut options: SinkOptions) -> Result<FileSink, Error> {
        let path = path.as_ref().to_owned();
        let rotator = Rotator::new(&path, options.rotation)?;
        // Numbers follow the name's ending, which then says nothing more.
        options.compression = options.compression.resolved(&path);
        let mut sink = FileSink {
            rotator,
            options,
            segment: None,
            interfaces: Vec::new(),
            ledger: None,
            done: Written::default(),
            full: false,
            closed: HashMap::new(),
        };
        if sink.options.rotation.seconds.is_none() {
            sink.open_segment(Nanos::ZERO)?;
        }
        Ok(sink)
    }

    fn open_segment(&mut self, time: Nanos) -> Result<&mut Segment, Error> {
        let name = self.rotator.name(time);
        let mut segment = Segment::create(
            &name,
            self.options.format,
            self.options.compression,
            self.options.comment.as_deref(),
            self.options.append,
        )?;
        if self.done.files > 0 {
            segment.follow();
        }
        segment.begin(&self.interfaces);
        match self.closed.get_mut(&name) {
            Some(_) if self.options.append => {}
            Some((packets, bytes)) => {
                self.done.gone.add(*packets, *bytes);
                (*packets, *bytes) = (0, 0);
            }
            None => self.done.files += 1,
        }
        Ok(self.segment.insert(segment))
    }

    fn close_segment(&mut self) -> Result<(), Error> {
        let Some(mut segment) = self.segment.take() else {
            return Ok(());
        };
        let result = segment.close(&self.interfaces, self.ledger.as_ref());
        segment.add_to(&mut self.done);
        if self.closed.len() < MOST_NAMES || self.closed.contains_key(segment.path()) {
            let (packets, bytes) = self.closed.entry(segment.path().to_owned()).or_default();
            *packets += segment.packets();
            *bytes += segment.size();
        }
        result
    }

    /// Begins a new file if the next packet, of `time`, is due for one.
    #[inline]
    fn rotate(&mut self, time: Nanos) -> Result<(), Error> {
        match self
            .rotator
            .turn(time, self.segment.as_ref().map(Segment::size))
        {
            Turn::Same => Ok(()),
            Turn::Next => self.close_segment(),
            Turn::Over => {
                self.full = true;
                Ok(())
            }
        }
    }
}

impl PacketSink for FileSink {
    fn set_interfaces(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        if learn(&mut self.interfaces, interfaces)
            && let Some(segment) = &mut self.segment
        {
            segment.begin(interfaces);
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        for (index, packet) in batch.packets.iter().enumerate() {
            self.rotate(packet.time)?;
            if self.full {
                return Ok(());
            }
            if self.segment.is_none() {
                self.open_segment(packet.time)?;
            }
            if let Some(segment) = &mut self.segment {
                segment.write(packet, batch.bytes(index), &self.interfaces)?;
            }
        }
        if self.options.unbuffered {
            return self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.segment.as_mut().map_or(Ok(()), Segment::flush)
    }

    fn set_ledger(&mut self, ledger: &Ledger) {
        self.ledger = Some(ledger.clone());
    }

    fn close(&mut self) -> Result<Written, Error> {
        self.close_segment()?;
        self.full = true;
        Ok(self.done)
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn written(&self) -> Written {
        let mut written = self.done;
        if let Some(segment) = &self.segment {
            segment.add_to(&mut written);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{LinkType, PacketDescriptor};

    use super::*;

    #[test]
    fn of_very_many_interfaces_each_of_several_files_describes_its_own() {
        const INTERFACES: u16 = 20_000;
        let folder = std::env::temp_dir().join(format!("flowgauge-many-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let options = SinkOptions {
            format: FileFormat::PcapNg,
            rotation: Rotation {
                bytes: Some(20_000),
                ..Rotation::default()
            },
            ..SinkOptions::default()
        };
        let mut sink = FileSink::create(folder.join("many.pcapng"), options).unwrap();
        let known: Vec<Interface> = (0..INTERFACES)
            .map(|number| Interface {
                name: Some(format!("interface {number}")),
                link: LinkType::ETHERNET,
                ..Interface::default()
            })
            .collect();
        let frame = [0; 60];
        for interface in 0..INTERFACES {
            // They become known one after the other, as in a file that describes them in between.
            sink.set_interfaces(&known[..=usize::from(interface)])
                .unwrap();
            let packet = PacketDescriptor {
                interface,
                captured_len: 60,
                wire_len: 60,
                link: LinkType::ETHERNET,
                ..PacketDescriptor::default()
            };
            sink.write(&Batch::new(&frame, &[packet])).unwrap();
        }
        let written = sink.close().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(written.packets, u64::from(INTERFACES));
        assert!(written.files > 100, "{}", written.files);
        // Description, packet and statistics of each, not of all in every file.
        let each = written.bytes / u64::from(INTERFACES);
        assert!(each < 300, "{each} bytes for each interface");
    }
}
