//! A ring of files that keeps the recent past until a trigger preserves it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use flowgauge_sys::files;
use flowgauge_wire::{Batch, Ledger, Nanos, PacketDescriptor};

use crate::error::Error;
use crate::sink::file::SinkOptions;
use crate::sink::segment::{Segment, learn};
use crate::sink::{PacketSink, Written};
use crate::source::Interface;

/// How much of the past a [`RingSink`] keeps. All given limits apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingLimits {
    /// Maximum number of files.
    pub files: Option<usize>,
    /// Maximum number of bytes on disk (before compression).
    pub bytes: Option<u64>,
    /// Files whose last packet is older than this are removed.
    pub duration: Option<Nanos>,
    /// How long packets are preserved after a trigger.
    pub after: Nanos,
}

/// The limits are divided into this many files when their number is not given.
const DEFAULT_FILES: usize = 8;
/// Size of a file when only their number is given.
const DEFAULT_BYTES: u64 = 64 << 20;
/// More than a packet takes in a file beside its bytes, with what is written at the file's end.
const RECORD_BYTES: u64 = 512;

impl RingLimits {
    /// Number of files into which the limits are divided.
    pub fn share_of_files(&self) -> u64 {
        self.files.unwrap_or(DEFAULT_FILES).max(2) as u64
    }

    /// Maximum size of each file, unless a single packet is larger.
    pub fn bytes_of_file(&self) -> u64 {
        let share = |bytes| bytes / self.share_of_files();
        self.bytes.map_or(DEFAULT_BYTES, share)
    }
}

/// Writes packets to a ring of files `NAME-000001.EXT`, and removes the oldest. A
/// [trigger](RingSink::trigger) renames the existing files to `NAME-t1-000001.EXT`, and the following
/// ones for a time.
#[derive(Default)]
pub struct RingSink {
    path: PathBuf,
    options: SinkOptions,
    limits: RingLimits,
    current: Option<Segment>,
    /// Closed files that may still go, oldest first.
    past: VecDeque<Past>,
    number: u64,
    triggers: u64,
    /// Packets up to this time are preserved.
    until: Option<Nanos>,
    now: Nanos,
    interfaces: Vec<Interface>,
    ledger: Option<Ledger>,
    done: Written,
    /// Files that joined those of the trigger.
    joined: Vec<PathBuf>,
}

struct Past {
    path: PathBuf,
    packets: u64,
    bytes: u64,
    last: Nanos,
}

impl RingSink {
    /// A ring of files named after `path`; `options.rotation` is not used.
    ///
    /// # Errors
    /// [`Error::Sink`] if no limit is given.
    pub fn create(
        path: impl AsRef<Path>,
        limits: RingLimits,
        options: SinkOptions,
    ) -> Result<RingSink, Error> {
        let path = path.as_ref().to_owned();
        if limits.files.is_none() && limits.bytes.is_none() && limits.duration.is_none() {
            return Err(Error::Sink {
                path,
                reason: "the ring has no limit".to_owned(),
                hint: "set a number of files, bytes or seconds".to_owned(),
            });
        }
        Ok(RingSink {
            path,
            options,
            limits,
            ..RingSink::default()
        })
    }

    /// Whether packets are being preserved.
    pub fn is_triggered(&self) -> bool {
        self.until.is_some()
    }

    /// Packets are no longer preserved; those that were are.
    fn end_trigger(&mut self) -> Result<(), Error> {
        self.finish_current()?;
        let joined = self.preserve()?;
        self.joined.extend(joined);
        self.until = None;
        Ok(())
    }

    fn preserve(&mut self) -> Result<Vec<PathBuf>, Error> {
        let mut preserved = Vec::new();
        while let Some(past) = self.past.pop_front() {
            let name = past.path.to_string_lossy().into_owned();
            // The number is the last part in front of the extensions.
            let stem = self.stem();
            let rest = name.strip_prefix(&stem).unwrap_or(&name);
            let kept = PathBuf::from(format!("{stem}-t{}{rest}", self.triggers));
            files::named()
                .rename(&past.path, &kept)
                .map_err(Error::io("rename", &past.path))?;
            preserved.push(kept);
        }
        Ok(preserved)
    }

    /// The path without its extensions (`.pcapng`, `.pcap.gz`).
    fn stem(&self) -> String {
        let text = self.path.to_string_lossy();
        let name = text.rfind('/').map_or(0, |slash| slash + 1);
        // A dot at the beginning of the name hides the file.
        let dot = text.get(name + 1..).and_then(|name| name.find('.'));
        let end = dot.map_or(text.len(), |dot| name + 1 + dot);
        text.get(..end).unwrap_or(&text).to_owned()
    }

    fn open_next(&mut self) -> Result<(), Error> {
        self.number += 1;
        let stem = self.stem();
        let text = self.path.to_string_lossy();
        let extensions = text.get(stem.len()..).unwrap_or("");
        let name = PathBuf::from(format!("{stem}-{:06}{extensions}", self.number));
        let mut segment = Segment::create(
            &name,
            self.options.format,
            self.options.compression,
            self.options.comment.as_deref(),
            false,
        )?;
        if self.number > 1 {
            segment.follow();
        }
        segment.begin(&self.interfaces);
        self.done.files += 1;
        self.current = Some(segment);
        Ok(())
    }

    fn finish_current(&mut self) -> Result<(), Error> {
        let Some(mut segment) = self.current.take() else {
            return Ok(());
        };
        let result = segment.close(&self.interfaces, self.ledger.as_ref());
        segment.add_to(&mut self.done);
        self.past.push_back(Past {
            path: segment.path().to_owned(),
            packets: segment.packets(),
            bytes: segment.size(),
            last: segment.last,
        });
        result
    }

    /// Whether the current file has its share of the limits, or would have more of the bytes with `next`.
    fn is_current_full(&self, next: &PacketDescriptor) -> bool {
        let Some(segment) = &self.current else {
            return false;
        };
        let Some(first) = segment.first else {
            return false;
        };
        let bytes = segment.size() + u64::from(next.captured_len) + RECORD_BYTES;
        let span = self.limits.duration;
        let span = span.map(|duration| duration.0 / self.limits.share_of_files());
        bytes > self.limits.bytes_of_file() || span.is_some_and(|span| (self.now - first).0 > span)
    }

    /// Removes the oldest files beyond the limits.
    fn trim(&mut self) -> Result<(), Error> {
        loop {
            let current = u64::from(self.current.is_some());
            let files = self.past.len() as u64 + current;
            // The current file may become as large as its share.
            let share = self.limits.bytes_of_file();
            let size = self.current.as_ref().map(Segment::size);
            let size = size.map_or(0, |size| size.max(share));
            let bytes = self.past.iter().map(|past| past.bytes).sum::<u64>() + size;
            let Some(oldest) = self.past.front() else {
                return Ok(());
            };
            let too_many = self.limits.files.is_some_and(|most| files > most as u64);
            let too_large = self.limits.bytes.is_some_and(|most| bytes > most);
            let too_old = |limit: Nanos| oldest.last + limit < self.now;
            if !too_many && !too_large && !self.limits.duration.is_some_and(too_old) {
                return Ok(());
            }
            if let Some(gone) = self.past.pop_front() {
                files::named()
                    .remove_file(&gone.path)
                    .map_err(Error::io("remove", &gone.path))?;
                self.done.gone.add(gone.packets, gone.bytes);
                self.done.files -= 1;
            }
        }
    }
}

impl PacketSink for RingSink {
    fn set_interfaces(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        if learn(&mut self.interfaces, interfaces)
            && let Some(segment) = &mut self.current
        {
            segment.begin(interfaces);
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        for (index, packet) in batch.packets.iter().enumerate() {
            self.now = self.now.max(packet.time);
            if self.until.is_some_and(|until| self.now > until) {
                self.end_trigger()?;
            } else if self.is_current_full(packet) {
                self.finish_current()?;
                if self.until.is_some() {
                    let joined = self.preserve()?;
                    self.joined.extend(joined);
                }
            }
            if self.current.is_none() {
                self.open_next()?;
                self.trim()?;
            }
            if let Some(segment) = &mut self.current {
                segment.write(packet, batch.bytes(index), &self.interfaces)?;
            }
        }
        // On a quiet link no packet says that the time is over.
        if let (Some(now), Some(until)) = (batch.now, self.until)
            && now > until
        {
            self.end_trigger()?;
        }
        if self.options.unbuffered {
            return self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.current.as_mut().map_or(Ok(()), Segment::flush)
    }

    fn trigger(&mut self, time: Nanos) -> Result<Option<Vec<PathBuf>>, Error> {
        if self.until.is_none() {
            self.triggers += 1;
        }
        self.until = Some(self.now.max(time) + self.limits.after);
        self.finish_current()?;
        self.preserve().map(Some)
    }

    fn take_preserved(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.joined)
    }

    fn set_ledger(&mut self, ledger: &Ledger) {
        self.ledger = Some(ledger.clone());
    }

    fn close(&mut self) -> Result<Written, Error> {
        self.finish_current()?;
        if self.until.is_some() {
            let joined = self.preserve()?;
            self.joined.extend(joined);
        }
        self.trim()?;
        Ok(self.done)
    }

    fn written(&self) -> Written {
        let mut written = self.done;
        if let Some(segment) = &self.current {
            segment.add_to(&mut written);
        }
        written
    }
}
