//! What is written is what is read, in every format.

use std::path::Path;

use crate::common::{self, Packet, read};
use crate::corpora::skipped;
use flowgauge_capture::sink::{Compression, Gone, RingLimits, Rotation};
use flowgauge_capture::{
    Error, FileFormat, FileSink, Interface, Limit, PacketSink, PacketSource, RingSink, SinkOptions,
    SnapLen, open, open_all,
};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor, PacketFlags};
use proptest::prelude::*;

/// Gives `packets` to a sink in batches.
fn give(sink: &mut dyn PacketSink, packets: &[Packet]) -> Result<(), Error> {
    for packets in packets.chunks(100) {
        let mut memory = Vec::new();
        let mut descriptors = Vec::new();
        for packet in packets {
            descriptors.push(PacketDescriptor {
                time: Nanos(packet.time),
                offset: memory.len() as u32,
                captured_len: packet.bytes.len() as u32,
                wire_len: packet.wire_len,
                link: LinkType(packet.link),
                ..PacketDescriptor::default()
            });
            memory.extend_from_slice(&packet.bytes);
        }
        sink.write(&Batch::new(&memory, &descriptors))?;
    }
    Ok(())
}

fn write(
    path: &Path,
    options: SinkOptions,
    packets: &[Packet],
) -> flowgauge_capture::sink::Written {
    let mut sink = FileSink::create(path, options).unwrap();
    give(&mut sink, packets).unwrap();
    sink.close().unwrap()
}

fn format(format: FileFormat) -> SinkOptions {
    SinkOptions {
        format,
        ..SinkOptions::default()
    }
}

/// `count` packets of `size` bytes, one per `step` nanoseconds.
fn packets(count: u64, size: usize, start: u64, step: u64) -> Vec<Packet> {
    (0..count)
        .map(|number| Packet {
            time: start + number * step,
            wire_len: size as u32,
            link: 1,
            bytes: (0..size).map(|at| (at as u64 ^ number) as u8).collect(),
        })
        .collect()
}

fn read_path(path: &Path) -> common::Everything {
    read(&mut open(path).unwrap())
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let bytes = prop_oneof![
        9 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => (1000usize..70_000).prop_map(|size| vec![0xa5; size]),
    ];
    (0..4_000_000_000_000_000_000u64, bytes, 0u32..2000, 0u16..3).prop_map(
        |(time, bytes, more, link)| Packet {
            time,
            wire_len: bytes.len() as u32 + more,
            link: [1, 101, 113][usize::from(link)],
            bytes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pcapng_keeps_everything(packets in proptest::collection::vec(any_packet(), 0..600)) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.pcapng", "a.pcapng.gz", "a.pcapng.zst"] {
            let path = folder.path().join(name);
            write(&path, format(FileFormat::PcapNg), &packets);
            let all = read_path(&path);
            prop_assert!(all.errors.is_empty(), "{:?}", all.errors);
            prop_assert_eq!(&all.packets, &packets);
        }
    }

    #[test]
    fn pcap_keeps_everything(mut packets in proptest::collection::vec(any_packet(), 0..600)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        for packet in &mut packets {
            packet.link = 1;
        }
        write(&path, format(FileFormat::PcapNanoseconds), &packets);
        prop_assert_eq!(&read_path(&path).packets, &packets);
        write(&path, format(FileFormat::PcapMicroseconds), &packets);
        for packet in &mut packets {
            packet.time -= packet.time % 1000;
        }
        prop_assert_eq!(&read_path(&path).packets, &packets);
    }

    #[test]
    fn merging_is_a_stable_sort_by_time(
        mut files in proptest::collection::vec(
            proptest::collection::vec((0u64..50, 0u64..1000), 0..400), 2..6)
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        let mut paths = Vec::new();
        for (number, file) in files.iter_mut().enumerate() {
            file.sort();
            let packets: Vec<Packet> = file.iter().map(|(time, tag)| Packet {
                time: *time,
                wire_len: 9,
                link: 1,
                bytes: tag.to_be_bytes().to_vec(),
            }).collect();
            let path = folder.path().join(format!("{number}.pcap"));
            write(&path, SinkOptions::default(), &packets);
            paths.push(path);
            expected.extend(packets);
        }
        expected.sort_by_key(|packet| packet.time);
        let all = read(&mut open_all(&paths).unwrap());
        prop_assert_eq!(all.packets, expected);
    }
}

#[test]
fn packets_longer_than_the_buffer_and_many_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.pcap");
    let mut sent = packets(40, 262_144, 0, 1);
    sent.extend(packets(20_000, 300, 50, 10));
    write(&path, SinkOptions::default(), &sent);
    assert!(read_path(&path).packets == sent);
}

#[test]
fn limit_is_exact_and_snap_length_keeps_the_wire_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    write(&path, SinkOptions::default(), &packets(1000, 100, 0, 1));
    for count in [0, 1, 255, 256, 257, 999, 1000, 1001] {
        let source = SnapLen::new(open(&path).unwrap(), 60);
        let all = read(&mut Limit::new(source, count));
        assert_eq!(all.packets.len() as u64, count.min(1000));
        assert_eq!(all.ledger.received(), count.min(1000));
        assert_eq!(all.ledger.delivered_bytes(), count.min(1000) * 100);
        assert!(
            all.packets
                .iter()
                .all(|one| one.bytes.len() == 60 && one.wire_len == 100)
        );
    }
}

#[test]
fn vlan_tag_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v.pcap");
    let memory: Vec<u8> = (0..60).collect();
    let descriptor = PacketDescriptor {
        captured_len: 60,
        wire_len: 100,
        vlan_tpid: 0x88a8,
        vlan_tci: 0x6123,
        flags: PacketFlags::VLAN,
        ..PacketDescriptor::default()
    };
    for kind in [FileFormat::PcapNanoseconds, FileFormat::PcapNg] {
        let mut sink = FileSink::create(&path, format(kind)).unwrap();
        sink.write(&Batch::new(&memory, &[descriptor])).unwrap();
        sink.close().unwrap();
        let all = read_path(&path);
        // The tag counts in the descriptor's length.
        assert_eq!(all.packets[0].wire_len, 100);
        let mut expected = memory.clone();
        expected.splice(12..12, [0x88, 0xa8, 0x61, 0x23]);
        assert_eq!(all.packets[0].bytes, expected);
    }
}

#[test]
fn pcapng_keeps_interfaces_and_direction() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("i.pcapng");
    let interfaces = [
        Interface {
            name: Some("eth0".to_owned()),
            filter: Some("tcp port 80".to_owned()),
            snap_len: 96,
            ..Interface::default()
        },
        Interface {
            name: Some("tun0".to_owned()),
            description: Some("a tunnel".to_owned()),
            link: LinkType::RAW,
            ..Interface::default()
        },
    ];
    let mut sink = FileSink::create(&path, format(FileFormat::PcapNg)).unwrap();
    sink.set_interfaces(&interfaces).unwrap();
    let descriptor = PacketDescriptor {
        interface: 1,
        link: LinkType::RAW,
        flags: PacketFlags::OUTGOING,
        ..PacketDescriptor::default()
    };
    sink.write(&Batch::new(&[], &[descriptor])).unwrap();
    sink.close().unwrap();
    let all = read_path(&path);
    assert_eq!(all.interfaces, interfaces);
    assert_eq!(all.descriptors[0].interface, 1);
    assert_eq!(all.descriptors[0].flags, PacketFlags::OUTGOING);
}

#[test]
fn two_link_types_do_not_fit_in_pcap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let mut sent = packets(2, 10, 0, 1);
    sent[1].link = 101;
    let mut sink = FileSink::create(&path, SinkOptions::default()).unwrap();
    let error = give(&mut sink, &sent).unwrap_err();
    assert!(matches!(error, Error::Sink { .. }), "{error}");
    assert_eq!(sink.close().unwrap().packets, 1);
    assert_eq!(read_path(&path).packets, sent[..1]);
}

#[test]
fn empty_captures_are_readable() {
    let folder = tempfile::tempdir().unwrap();
    for (name, kind) in [
        ("a.pcap", FileFormat::PcapNanoseconds),
        ("a.pcapng.gz", FileFormat::PcapNg),
    ] {
        let path = folder.path().join(name);
        write(&path, format(kind), &[]);
        let all = read_path(&path);
        assert!(all.errors.is_empty() && all.packets.is_empty());
        assert_eq!(all.interfaces.len(), 1);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|one| name(one).into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn rotated(name: &str, rotation: Rotation, sent: &[Packet]) -> (tempfile::TempDir, FileSink) {
    let folder = tempfile::tempdir().unwrap();
    let options = SinkOptions {
        rotation,
        ..SinkOptions::default()
    };
    let mut sink = FileSink::create(folder.path().join(name), options).unwrap();
    give(&mut sink, sent).unwrap();
    sink.close().unwrap();
    (folder, sink)
}

#[test]
fn rotation_by_size() {
    // 24 + 10 * 100 bytes do not exceed 1024, the eleventh packet does.
    let sent = packets(35, 84, 0, 1);
    let rotation = Rotation {
        bytes: Some(1024),
        ..Rotation::default()
    };
    let (folder, _) = rotated("a", rotation, &sent);
    assert_eq!(names(folder.path()), ["a", "a1", "a2", "a3"]);
    assert_eq!(read_path(&folder.path().join("a")).packets, sent[..11]);
    assert_eq!(read_path(&folder.path().join("a3")).packets, sent[33..]);
    let all = read(&mut open_all(&[folder.path().join("a*")]).unwrap());
    assert_eq!(all.packets, sent);
    assert_eq!(all.interfaces.len(), 1);

    let ring = Rotation {
        files: Some(3),
        ..rotation
    };
    let (folder, _) = rotated("a", ring, &sent);
    assert_eq!(names(folder.path()), ["a0", "a1", "a2"]);
    assert_eq!(read_path(&folder.path().join("a0")).packets, sent[33..]);
}

/// The name's ending decides for all files, also where a number follows it.
#[test]
fn rotated_files_are_all_compressed() {
    let sent = packets(35, 84, 0, 1);
    for (name, magic) in [
        ("a.pcap.gz", &[0x1f, 0x8b][..]),
        ("a.pcapng.zst", &[0x28, 0xb5]),
    ] {
        for files in [None, Some(4)] {
            let rotation = Rotation {
                bytes: Some(1024),
                files,
                ..Rotation::default()
            };
            let (folder, _) = rotated(name, rotation, &sent);
            for file in names(folder.path()) {
                let bytes = std::fs::read(folder.path().join(&file)).unwrap();
                assert!(bytes.starts_with(magic), "{file}");
            }
            assert_eq!(names(folder.path()).len(), 4);
        }
    }
}

#[test]
fn files_written_over_count_once() {
    let second = 1_000_000_000;
    let sent = packets(10, 60, 100 * second, second);
    let rotation = Rotation {
        seconds: Some(3),
        ..Rotation::default()
    };
    let (folder, sink) = rotated("t", rotation, &sent);
    assert_eq!(names(folder.path()), ["t"]);
    assert_eq!(sink.written().files, 1);
    assert_eq!(sink.written().packets, 10);
    // Three files of three packets, with a header of 24 bytes and 16 of each packet.
    assert_eq!(
        sink.written().gone,
        Gone {
            packets: 9,
            bytes: 3 * (24 + 3 * 76),
            files: 3
        }
    );
    let (folder, sink) = rotated("t-%s", rotation, &sent);
    assert_eq!(names(folder.path()).len(), 4);
    assert_eq!(sink.written().files, 4);
    assert_eq!(sink.written().gone, Gone::default());
    let around = Rotation {
        bytes: Some(100),
        files: Some(2),
        ..Rotation::default()
    };
    let (folder, sink) = rotated("t", around, &sent);
    assert_eq!(names(folder.path()), ["t0", "t1"]);
    let written = sink.written();
    assert_eq!((written.files, written.packets), (2, 10));
    let there = |name| read_path(&folder.path().join(name)).packets.len() as u64;
    assert_eq!(
        written.packets - written.gone.packets,
        there("t0") + there("t1")
    );
    let bytes = |name| std::fs::metadata(folder.path().join(name)).unwrap().len();
    assert_eq!(
        written.bytes - written.gone.bytes,
        bytes("t0") + bytes("t1")
    );
    assert_eq!(written.gone.files, 3);
}

#[test]
fn rotation_by_time() {
    let second = 1_000_000_000;
    let sent = packets(10, 60, 100 * second, second);
    let rotation = Rotation {
        seconds: Some(3),
        files: Some(2),
        ..Rotation::default()
    };
    let (folder, sink) = rotated("t-%s", rotation, &sent);
    assert_eq!(names(folder.path()), ["t-100", "t-103"]);
    assert!(sink.is_full());
    assert_eq!(sink.written().packets, 6);

    let both = Rotation {
        bytes: Some(80),
        files: Some(20),
        ..rotation
    };
    let (folder, sink) = rotated("t-%s.", both, &sent);
    assert_eq!(sink.written().packets, 10);
    assert_eq!(
        names(folder.path())[..4],
        ["t-100.00", "t-100.01", "t-100.02", "t-103.00"]
    );
}

#[test]
fn ring_keeps_the_recent_past_and_preserves_it() {
    let second = 1_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let limits = RingLimits {
        duration: Some(Nanos(16 * second)),
        after: Nanos(5 * second),
        ..RingLimits::default()
    };
    let path = folder.path().join("ring.pcap");
    let mut ring = RingSink::create(&path, limits, SinkOptions::default()).unwrap();
    let sent = packets(200, 60, 1000 * second, second);
    give(&mut ring, &sent[..100]).unwrap();
    let before = ring.trigger(Nanos::ZERO).unwrap().unwrap();
    assert!(ring.is_triggered());
    give(&mut ring, &sent[100..]).unwrap();
    assert!(!ring.is_triggered());
    ring.close().unwrap();
    let joined = ring.take_preserved();
    assert!(!joined.is_empty());
    assert_eq!(
        names(folder.path())
            .iter()
            .filter(|name| name.starts_with("ring-t1-"))
            .count(),
        before.len() + joined.len()
    );
    assert!(joined.iter().all(|path| path.exists()));
    let first = &read_path(&before[0]).packets[0];
    assert!(
        (1099 - 19..=1099 - 16).contains(&(first.time / second)),
        "{first:?}"
    );
    let pattern = folder.path().join("ring-t1-*.pcap");
    let kept = read(&mut open_all(&[pattern]).unwrap()).packets;
    let index = sent.iter().position(|packet| packet == first).unwrap();
    // Everything from the oldest kept packet to five seconds after the trigger.
    assert_eq!(kept, sent[index..105]);
    let recent = folder.path().join("ring-0*.pcap");
    let recent = read(&mut open_all(&[recent]).unwrap()).packets;
    assert!((17..=21).contains(&recent.len()), "{}", recent.len());
    assert_eq!(recent.last(), sent.last());
}

/// At every moment, and what is gone is counted as such.
#[test]
fn a_ring_has_no_more_bytes_than_its_limit() {
    let second = 1_000_000_000;
    for (files, format) in [
        (None, FileFormat::PcapNanoseconds),
        (Some(3), FileFormat::PcapNg),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let limits = RingLimits {
            files,
            bytes: Some(100_000),
            ..RingLimits::default()
        };
        let options = SinkOptions {
            format,
            unbuffered: true,
            ..SinkOptions::default()
        };
        let mut ring = RingSink::create(folder.path().join("ring"), limits, options).unwrap();
        let on_disk = || -> u64 {
            let files = std::fs::read_dir(folder.path()).unwrap();
            files
                .map(|file| file.unwrap().metadata().unwrap().len())
                .sum()
        };
        for packet in &packets(500, 1400, 1000 * second, second) {
            give(&mut ring, std::slice::from_ref(packet)).unwrap();
            assert!(on_disk() <= 100_000, "{}", on_disk());
        }
        let written = ring.close().unwrap();
        assert!((60_000..=100_000).contains(&on_disk()), "{}", on_disk());
        assert_eq!(written.bytes - written.gone.bytes, on_disk());
        assert_eq!(written.files, names(folder.path()).len() as u64);
        assert_eq!(written.packets, 500);
        let there = names(folder.path());
        let there = there
            .iter()
            .map(|name| read_path(&folder.path().join(name)).packets.len());
        assert_eq!(
            written.packets - written.gone.packets,
            there.sum::<usize>() as u64
        );
    }
}

/// On a quiet live link the last packet may be far older than the trigger, and none may follow.
#[test]
fn a_live_trigger_counts_from_its_own_time() {
    let second = 1_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let limits = RingLimits {
        files: Some(4),
        after: Nanos(5 * second),
        ..RingLimits::default()
    };
    let path = folder.path().join("ring.pcap");
    let mut ring = RingSink::create(&path, limits, SinkOptions::default()).unwrap();
    let idle = |ring: &mut RingSink, at: u64| {
        let mut batch = Batch::new(&[], &[]);
        batch.now = Some(Nanos(at * second));
        ring.write(&batch).unwrap();
    };
    give(&mut ring, &packets(3, 60, 1000 * second, second)).unwrap();
    // A minute of silence, then the trigger.
    ring.trigger(Nanos(1060 * second)).unwrap();
    let after = packets(2, 60, 1062 * second, second);
    give(&mut ring, &after).unwrap();
    idle(&mut ring, 1065);
    assert!(ring.is_triggered());
    assert!(ring.take_preserved().is_empty());
    idle(&mut ring, 1066);
    assert!(!ring.is_triggered());
    let joined = ring.take_preserved();
    assert_eq!(joined.len(), 1);
    assert_eq!(read_path(&joined[0]).packets, after);
    give(&mut ring, &packets(1, 60, 1067 * second, second)).unwrap();
    ring.close().unwrap();
    assert!(ring.take_preserved().is_empty());
}

#[test]
fn a_full_disk_is_reported_and_counted() {
    if !Path::new("/dev/full").exists() {
        return skipped("no /dev/full");
    }
    let options = SinkOptions {
        compression: Compression::None,
        unbuffered: true,
        ..SinkOptions::default()
    };
    let mut sink = FileSink::create("/dev/full", options).unwrap();
    let error = give(&mut sink, &packets(5, 60, 0, 1)).unwrap_err();
    assert!(
        error.hint().is_some_and(|hint| hint.contains("free space")),
        "{error}"
    );
    assert_eq!(sink.written().packets, 0);
    sink.close().unwrap();
    assert_eq!(sink.written().packets, 0);
    assert_eq!(sink.written().wire_bytes, 0);
    // What is in a compressor's buffer is not in the file.
    for compression in [Compression::Gzip, Compression::Zstd] {
        let options = SinkOptions {
            compression,
            ..SinkOptions::default()
        };
        let mut sink = FileSink::create("/dev/full", options).unwrap();
        give(&mut sink, &packets(5, 60, 0, 1)).unwrap();
        sink.close().unwrap_err();
        assert_eq!(sink.written().packets, 0, "{compression:?}");
    }
}

#[test]
fn a_source_of_one_file_is_the_plain_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a[1].pcap");
    write(&path, SinkOptions::default(), &packets(3, 60, 0, 1));
    // An existing file is no pattern.
    let mut source = open_all(&[&path]).unwrap();
    assert_eq!(source.next_batch().unwrap().unwrap().len(), 3);
    assert!(open_all(&[folder.path().join("x*")]).is_err());
}
