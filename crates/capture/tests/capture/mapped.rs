//! Long files are mapped: that must not show in anything but speed.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::common::{Everything, read};
use flowgauge_capture::sink::Compression;
use flowgauge_capture::{Error, FileFormat, FileSink, PacketSink, SinkOptions, open, open_reader};
use flowgauge_wire::{Batch, Nanos, PacketDescriptor};

const PACKETS: usize = 20_000;

/// A capture of more than eight megabytes, its packets of every length up to a kilobyte.
fn long_capture(folder: &Path, format: FileFormat, compression: Compression) -> PathBuf {
    let path = folder.join("long");
    let options = SinkOptions {
        format,
        compression,
        ..SinkOptions::default()
    };
    let mut sink = FileSink::create(&path, options).unwrap();
    let memory: Vec<u8> = (0..2048u32).map(|n| (n * 7 % 251) as u8).collect();
    let packets: Vec<PacketDescriptor> = (0..PACKETS)
        .map(|n| PacketDescriptor {
            time: Nanos(n as u64 * 1000),
            offset: (n % 1000) as u32,
            captured_len: (n * 37 % 1024) as u32,
            wire_len: 1500,
            ..PacketDescriptor::default()
        })
        .collect();
    for packets in packets.chunks(256) {
        sink.write(&Batch::new(&memory, packets)).unwrap();
    }
    sink.close().unwrap();
    path
}

fn read_both_ways(path: &Path) -> (Everything, Everything) {
    let mapped = read(open(path).unwrap().as_mut());
    let through_a_buffer = open_reader(File::open(path).unwrap(), path);
    (mapped, read(through_a_buffer.unwrap().as_mut()))
}

#[test]
fn mapped_and_read_files_have_the_same_packets() {
    for format in [FileFormat::PcapNanoseconds, FileFormat::PcapNg] {
        let folder = tempfile::tempdir().unwrap();
        let path = long_capture(folder.path(), format, Compression::None);
        assert!(path.metadata().unwrap().len() > 8 << 20);
        let (mapped, buffered) = read_both_ways(&path);
        assert_eq!(mapped.packets.len(), PACKETS);
        assert!(mapped.packets == buffered.packets);
        assert_eq!(mapped.ledger, buffered.ledger);
        assert!(mapped.errors.is_empty());
    }
}

#[test]
fn the_end_of_a_mapped_file_is_judged_like_that_of_a_read_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = long_capture(
        folder.path(),
        FileFormat::PcapNanoseconds,
        Compression::None,
    );
    let length = path.metadata().unwrap().len();
    // Within the last packet, somewhere before, and on the edge of a large page.
    for end in [length - 1, length - 1010, 6 << 20] {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(end)
            .unwrap();
        let (mapped, buffered) = read_both_ways(&path);
        assert!(mapped.packets == buffered.packets);
        let texts = |all: &Everything| {
            all.errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&mapped), texts(&buffered));
        assert_eq!(mapped.errors.len(), 1);
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = long_capture(
        folder.path(),
        FileFormat::PcapNanoseconds,
        Compression::None,
    );
    let mut source = open(&path).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let rest = read(source.as_mut());
    assert!(rest.packets.len() < PACKETS / 2);
    assert_eq!(rest.errors.len(), 1);
    assert!(matches!(
        rest.errors[0],
        Error::Damaged {
            truncated: true,
            ..
        }
    ));
    assert!(rest.ledger.is_balanced());
}

#[test]
fn long_compressed_files_are_unpacked_from_their_first_byte() {
    let folder = tempfile::tempdir().unwrap();
    // Bytes that do not compress, so that the packed file is long, too.
    let mut state = 1u64;
    let memory: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(6 << 20)
    .collect();
    let path = folder.path().join("long.zst");
    let options = SinkOptions {
        compression: Compression::Zstd,
        ..SinkOptions::default()
    };
    let mut sink = FileSink::create(&path, options).unwrap();
    for start in (0..memory.len()).step_by(1024) {
        let packet = PacketDescriptor {
            offset: start as u32,
            captured_len: 1024,
            wire_len: 1024,
            ..PacketDescriptor::default()
        };
        sink.write(&Batch::new(&memory, &[packet])).unwrap();
    }
    sink.close().unwrap();
    assert!(path.metadata().unwrap().len() > 5 << 20);
    let all = read(open(&path).unwrap().as_mut());
    assert!(all.errors.is_empty());
    let bytes: Vec<u8> = all
        .packets
        .iter()
        .flat_map(|packet| packet.bytes.clone())
        .collect();
    assert!(bytes == memory);
}
