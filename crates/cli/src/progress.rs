//! The progress bar for long files.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files smaller than this are read before a bar could be seen.
const WORTH_A_BAR: u64 = 100 << 20;

/// A packet's header in a pcap file.
const RECORD_HEADER: u64 = 16;

/// Progress through a file, where there is someone to see it. It is an estimate: bytes of packets
/// seen, against the size of the file.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    bytes: AtomicU64,
}

impl Progress {
    /// Progress through `file_bytes`, shown when standard error is a terminal and it is worth it.
    pub(crate) fn new(file_bytes: Option<u64>) -> Progress {
        let bar = file_bytes
            .filter(|&bytes| bytes >= WORTH_A_BAR && io::stderr().is_terminal())
            .map(|bytes| {
                let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
                let bar = ProgressBar::new(bytes);
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar
            });
        Progress {
            bar,
            bytes: AtomicU64::new(0),
        }
    }

    /// Counts a batch of so many packets with so many captured bytes.
    #[inline]
    pub(crate) fn add_step(&self, packets: u64, captured_bytes: u64) {
        if self.bar.is_some() {
            let bytes = captured_bytes + packets * RECORD_HEADER;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Moves the bar.
    pub(crate) fn show(&self) {
        if let Some(bar) = &self.bar {
            let length = bar.length().unwrap_or(u64::MAX);
            bar.set_position(self.bytes.load(Ordering::Relaxed).min(length));
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
