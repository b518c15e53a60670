//! Damaged files: thousands of mutations of small files of every format, and known bad ones.

use crate::common::read;
use crate::corpora::corpora;
use crate::file::fuzz_file;
use flowgauge_capture::{Error, FileFormat, FileSink, PacketSink, SinkOptions, open, open_reader};
use flowgauge_wire::{Batch, PacketDescriptor};

/// A small file of each format.
fn seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let memory: Vec<u8> = (0..120).collect();
    let packet = PacketDescriptor {
        captured_len: 61,
        wire_len: 61,
        ..PacketDescriptor::default()
    };
    let mut seeds = Vec::new();
    for (name, format) in [
        ("a", FileFormat::PcapNanoseconds),
        ("b", FileFormat::PcapMicroseconds),
        ("c", FileFormat::PcapNg),
        ("d.gz", FileFormat::PcapNg),
        ("e.zst", FileFormat::PcapNanoseconds),
    ] {
        let path = folder.path().join(name);
        let options = SinkOptions {
            format,
            ..SinkOptions::default()
        };
        let mut sink = FileSink::create(&path, options).unwrap();
        sink.write(&Batch::new(&memory, &[packet; 5])).unwrap();
        sink.close().unwrap();
        seeds.push(std::fs::read(&path).unwrap());
    }
    let mut snoop = b"snoop\0\0\0\0\0\0\x02\0\0\0\x04".to_vec();
    let mut erf = Vec::new();
    for _ in 0..5 {
        for value in [61u32, 61, 88, 0, 1, 2] {
            snoop.extend_from_slice(&value.to_be_bytes());
        }
        snoop.extend_from_slice(&memory[..64]);
        erf.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 0x82, 0, 0, 88, 0, 0, 0, 61]);
        erf.extend_from_slice(&[0; 10]);
        erf.extend_from_slice(&memory[..62]);
    }
    seeds.extend([snoop, erf]);
    seeds
}

#[test]
fn seeds_are_whole() {
    for seed in seeds() {
        assert_eq!(fuzz_file(&seed), 5);
    }
}

#[test]
fn mutations_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for seed in seeds() {
        for _ in 0..600 {
            let mut bytes = seed.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at] ^= 1 << random(8),
                    2 => bytes.truncate(at.max(1)),
                    _ => {
                        for byte in bytes.iter_mut().skip(at).take(4) {
                            *byte = [0, 0xff, 0x7f, 0x80][random(4)];
                        }
                    }
                }
            }
            fuzz_file(&bytes);
        }
    }
}

#[test]
fn a_cut_file_gives_all_before_the_cut_and_one_error() {
    for seed in seeds().into_iter().take(3) {
        for length in 28..seed.len() {
            let bytes = std::io::Cursor::new(seed[..length].to_vec());
            let Ok(mut source) = open_reader(bytes, "cut") else {
                continue;
            };
            let all = read(&mut source);
            assert!(all.packets.len() <= 5 && all.errors.len() <= 1);
            for error in &all.errors {
                assert!(
                    matches!(
                        error,
                        Error::Damaged {
                            truncated: true,
                            ..
                        }
                    ),
                    "{error}"
                );
            }
        }
        let bytes = std::io::Cursor::new(seed[..seed.len() - 1].to_vec());
        let all = read(&mut open_reader(bytes, "cut").unwrap());
        assert_eq!(all.errors.len(), 1);
    }
}

#[test]
fn what_is_not_a_capture_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let reason = |bytes: &[u8]| {
        let path = folder.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        open(&path)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert!(reason(b"").contains("it is empty"));
    assert!(reason(b"hello\nworld").contains("it is text, beginning with \"hello\""));
    assert!(reason(b"BZh91AY").contains("bzip2"));
    assert!(reason(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0]).contains("ends inside its header"));
    assert!(
        open(folder.path())
            .err()
            .is_some_and(|error| error.to_string().contains("directory"))
    );
    let missing = open(folder.path().join("none")).err();
    assert!(missing.is_some_and(|error| error.hint().is_some()));
}

#[test]
fn the_set_that_libpcap_refuses_is_refused() {
    let Some(corpora) = corpora() else { return };
    for name in [
        "linktype-reserved-field-not-zero.pcap",
        "pcap-invalid-version-1.pcap",
        "pcap-invalid-version-2.pcap",
        "shb-option-too-long.pcapng",
    ] {
        let result = open(corpora.join("libpcap/tests").join(name));
        assert!(matches!(result, Err(Error::NotACapture { .. })), "{name}");
    }
}

/// One of these files was once treated as text: where one has a carriage return the other has a line
/// feed.
fn same_line_ends(bytes: &[u8]) -> Vec<u8> {
    let mapped = bytes
        .iter()
        .map(|&byte| if byte == b'\r' { b'\n' } else { byte });
    mapped.collect()
}

#[test]
fn the_same_packets_in_several_formats_are_equal() {
    let Some(corpora) = corpora() else { return };
    let folder = corpora.join("libtrace/test/traces");
    let packets = |name: &str| read(&mut open(folder.join(name)).unwrap()).packets;
    let erf = packets("100_packets.erf");
    assert_eq!(erf.len(), 100);
    for name in ["100_packets.pcap", "100_packetsns.pcap"] {
        let others = packets(name);
        assert_eq!(others.len(), 100, "{name}");
        for (a, b) in erf.iter().zip(&others) {
            assert_eq!((a.wire_len, a.link), (b.wire_len, b.link), "{name}");
            assert_eq!(same_line_ends(&a.bytes), same_line_ends(&b.bytes), "{name}");
        }
        // Both were converted by way of microseconds; a line end can stand in a time stamp too.
        let times = erf.iter().zip(&others);
        let equal = times
            .filter(|(a, b)| a.time.abs_diff(b.time) <= 1000)
            .count();
        assert!(equal >= 90, "{name}: {equal} equal times");
    }
    assert_eq!(packets("5_packets.erf"), packets("5_packets.erf.gz"));
}
