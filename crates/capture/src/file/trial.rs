//! Tries whether a file in the page cache is cheaper to read or to map.
//!
//! Mapping copies nothing, but enters each page into the page table and removes it again: almost free if the page cache
//! has large pages, otherwise it depends on the processor and the hypervisor. Reading copies, and leaves in the
//! processor's cache the bytes needed next. On one machine mapping is a tenth cheaper, on another reading takes half
//! the time; nothing but a trial can tell them apart.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use flowgauge_sys::mapping::{FileMapping, LARGE_PAGE};

use crate::file::input::READ_BYTES;

/// Files with less than this left are not worth the trial, which costs what five large pages do.
pub(crate) const TRIAL_MIN: usize = 64 * LARGE_PAGE;

/// Each way is tried so often, by turns; the best counts.
const ROUNDS: u64 = 2;

/// Of the bytes that are looked at one in this many is touched, as of packets whose payload nobody reads.
const STRIDE: usize = 1024;

/// Whether reading costs clearly less than mapping, by the pages from `at` on, a multiple of [`LARGE_PAGE`]. They are read
/// next in any case. `false` where that fails: who goes on will be told.
pub(crate) fn reading_is_cheaper(mapping: &FileMapping, file: &File, at: usize) -> bool {
    let mut buffer = vec![0; READ_BYTES];
    let mut try_both = || {
        // From wherever they are into the page cache.
        read(file, &mut buffer, at..at + LARGE_PAGE)?;
        let (mut mapped, mut read_in) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            mapping.load(at..at + LARGE_PAGE)?;
            touch(mapping.bytes(at..at + LARGE_PAGE));
            mapping.release(at..at + LARGE_PAGE);
            mapped = mapped.min(begin.elapsed());
            let begin = Instant::now();
            read(file, &mut buffer, at..at + LARGE_PAGE)?;
            read_in = read_in.min(begin.elapsed());
        }
        Ok::<_, io::Error>(read_in < mapped / 10 * 9)
    };
    try_both().unwrap_or(false)
}

fn read(file: &File, buffer: &mut [u8], range: Range<usize>) -> io::Result<()> {
    for at in range.step_by(buffer.len()) {
        file.read_exact_at(buffer, at as u64)?;
        touch(buffer);
    }
    Ok(())
}

fn touch(bytes: &[u8]) {
    for byte in bytes.iter().step_by(STRIDE) {
        black_box(*byte);
    }
}
