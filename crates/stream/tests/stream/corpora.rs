//! Streams and datagrams of third-party captures, byte for byte.

#[path = "../../../../tests/shared/corpora.rs"]
pub(crate) mod shared;

use std::collections::BTreeMap;
use std::path::Path;

use flowgauge_stream::{ChecksumPolicy, Chunk, Handler, Shard, ShardConfig, Stream};
use flowgauge_wire::{Batch, DecodeFlags, DecodedBatch};
use shared::corpora;

/// Everything a capture's streams and datagrams came to.
#[derive(Default)]
struct Everything {
    /// Both directions in delivery order, holes as PcapPlusPlus writes them.
    text: Vec<u8>,
    /// By direction.
    streams: BTreeMap<String, Vec<u8>>,
    names: BTreeMap<u32, String>,
    /// Reassembled datagrams, from the IP header on.
    datagrams: Vec<Vec<u8>>,
}

impl Handler for Everything {
    const STREAMS: bool = true;

    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        for packet in &decoded.packets {
            if packet.flags.contains(DecodeFlags::REASSEMBLED) {
                self.datagrams.push(decoded.bytes(batch, packet).to_vec());
            }
        }
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        let identity = stream.identity();
        let ip = |address: flowgauge_wire::Address| address.to_ip(identity.version);
        let (source, destination) = (identity.source, identity.destination);
        let name = format!(
            "{}.{}-{}.{}",
            ip(source.0),
            source.1,
            ip(destination.0),
            destination.1
        );
        self.names.insert(stream.id, name);
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        if chunk.gap_before > 0 {
            let note = format!("[{} bytes missing]", chunk.gap_before);
            self.text.extend_from_slice(note.as_bytes());
        }
        self.text.extend_from_slice(chunk.bytes);
        let name = self.names[&stream.id].clone();
        self.streams
            .entry(name)
            .or_default()
            .extend_from_slice(chunk.bytes);
        assert_eq!(
            chunk.offset + chunk.bytes.len() as u64,
            stream.bytes + stream.missing_bytes
        );
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, _: u64) {
        self.names.remove(&stream.id);
    }
}

fn run(path: &Path) -> (Everything, Shard) {
    let mut shard = Shard::new(ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        ..ShardConfig::default()
    });
    let mut everything = Everything::default();
    let mut source = flowgauge_capture::open(path).unwrap();
    while let Some(batch) = source.next_batch().unwrap() {
        shard.process(&batch, &mut everything);
        assert!(shard.ledger().is_balanced());
    }
    shard.finish(&mut everything);
    assert!(shard.ledger().is_balanced());
    assert!(everything.names.is_empty(), "every stream ends");
    (everything, shard)
}

fn assert_text(got: &[u8], expected: &[u8], what: &str) {
    if got == expected {
        return;
    }
    let at = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let show = |bytes: &[u8]| {
        let end = bytes.len().min(at + 40);
        String::from_utf8_lossy(&bytes[at.saturating_sub(40).min(end)..end]).into_owned()
    };
    panic!(
        "{what}: {} bytes, not {}; at {at}: {:?} instead of {:?}",
        got.len(),
        expected.len(),
        show(got),
        show(expected)
    );
}

#[test]
fn pcapplusplus_texts() {
    let Some(corpora) = corpora() else { return };
    let examples = corpora.join("pcapplusplus/Tests/Pcap++Test/PcapExamples");
    let derived = corpora.join("pcapplusplus/derived");
    for (pcap, expected) in [
        (examples.join("one_tcp_stream.pcap"), "output"),
        (derived.join("one_tcp_stream__nosyn.pcap"), "output"),
        (
            derived.join("one_tcp_stream__ooo.pcap"),
            "out_of_order_output",
        ),
        (
            derived.join("one_tcp_stream__ooo_missing.pcap"),
            "missing_data_output_ooo",
        ),
        (
            derived.join("one_tcp_stream__retransmissions.pcap"),
            "retransmission_output",
        ),
    ] {
        let (got, _) = run(&pcap);
        let text = std::fs::read(examples.join(format!("one_tcp_stream_{expected}.txt"))).unwrap();
        assert_text(&got.text, &text, &pcap.display().to_string());
    }
}

#[test]
fn pcapplusplus_sides() {
    let Some(corpora) = corpora() else { return };
    let folder = corpora.join("pcapplusplus/Tests/ExamplesTest");
    let (got, _) = run(&folder.join("pcap_examples/tcp-reassembly.pcap"));
    let expected = folder.join("expected_output/tcpreassembly_sides");
    for entry in std::fs::read_dir(expected).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let bytes = got
            .streams
            .get(&name)
            .unwrap_or_else(|| panic!("no {name}"));
        assert_text(bytes, &std::fs::read(&path).unwrap(), &name);
    }
}

#[test]
fn pcapplusplus_datagrams() {
    let Some(corpora) = corpora() else { return };
    let examples = corpora.join("pcapplusplus/Tests/Pcap++Test/PcapExamples");
    let derived = corpora.join("pcapplusplus/derived");
    let whole = hex(&examples.join("frag_http_req_reassembled.txt"));
    for pcap in [
        examples.join("frag_http_req.pcap"),
        derived.join("frag_http_req__swap_0_1.pcap"),
        derived.join("frag_http_req__swap_5_9_2_6.pcap"),
        derived.join("frag_http_req__swap_5_last.pcap"),
    ] {
        let (got, _) = run(&pcap);
        assert_eq!(got.datagrams.len(), 1, "{}", pcap.display());
        let what = pcap.display().to_string();
        assert_text(
            &blank_sum(&got.datagrams[0]),
            &blank_sum(&whole[14..]),
            &what,
        );
    }
    let mut compared = 0;
    for family in ["ip4", "ip6"] {
        let pcap = examples.join(format!("{family}_fragments.pcap"));
        if !pcap.exists() {
            continue;
        }
        let (got, _) = run(&pcap);
        for number in 1..20 {
            let file = examples.join(format!("{family}_fragments_packet{number}.txt"));
            if !file.exists() {
                continue;
            }
            let expected = blank_sum(&hex(&file)[14..]);
            let found = got
                .datagrams
                .iter()
                .any(|datagram| blank_sum(datagram) == expected);
            assert!(found, "{}: none of {}", file.display(), got.datagrams.len());
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared}");
}

fn hex(file: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(file).unwrap();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    digits
        .chunks_exact(2)
        .map(|pair| value(pair[0]) << 4 | value(pair[1]))
        .collect()
}

/// Without the IPv4 header checksum, which PcapPlusPlus may leave as it was.
fn blank_sum(datagram: &[u8]) -> Vec<u8> {
    let mut bytes = datagram.to_vec();
    if bytes.len() >= 20 && bytes[0] >> 4 == 4 {
        bytes[10..12].fill(0);
    }
    bytes
}

#[test]
fn fragment_traces_complete() {
    let Some(corpora) = corpora() else { return };
    for name in [
        "dnscap/src/test/frags.pcap",
        "libtrace/test/traces/fragtest.erf.gz",
    ] {
        let (got, shard) = run(&corpora.join(name));
        let statistics = shard.statistics().defragment;
        println!("{name}: {statistics:?}");
        assert_eq!(got.datagrams.len() as u64, statistics.completed, "{name}");
        assert!(statistics.fragments > 0, "{name}");
    }
}

#[test]
fn tcpflow_sums() {
    let Some(corpora) = corpora() else { return };
    let folder = corpora.join("tcpflow");
    let text = std::fs::read_to_string(folder.join("expected_md5.shared.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (pcap, flows) in document["expected"].as_object().unwrap() {
        let (got, _) = run(&folder.join(pcap));
        for flow in flows.as_array().unwrap() {
            let name = plain_name(flow["flow"].as_str().unwrap());
            let bytes = got
                .streams
                .get(&name)
                .unwrap_or_else(|| panic!("no {name}"));
            if let Some(size) = flow["size"].as_str() {
                assert_eq!(bytes.len().to_string(), size, "{pcap} {name}");
            }
            assert_eq!(
                Some(md5(bytes).as_str()),
                flow["md5"].as_str(),
                "{pcap} {name}"
            );
        }
    }
}

/// `074.125.019.101.00080-192.168.001.102.50956--42` as `74.125.19.101.80-192.168.1.102.50956`.
fn plain_name(name: &str) -> String {
    let ends = name.split("--").next().unwrap_or(name).split('-');
    let plain = ends.map(|end| {
        let numbers = end.split('.');
        let numbers: Vec<_> = numbers
            .map(|number| number.parse::<u32>().unwrap().to_string())
            .collect();
        numbers.join(".")
    });
    plain.collect::<Vec<_>>().join("-")
}

/// MD5 (RFC 1321), for comparison with recorded sums only.
fn md5(bytes: &[u8]) -> String {
    const SHIFTS: [[u32; 4]; 4] = [
        [7, 12, 17, 22],
        [5, 9, 14, 20],
        [4, 11, 16, 23],
        [6, 10, 15, 21],
    ];
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if bytes.len() % 64 > 55 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&(bytes.len() as u64 * 8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        let words: Vec<u32> = block
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64usize {
            let (mix, word) = match step / 16 {
                0 => (b & c | !b & d, step),
                1 => (d & b | !d & c, (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), 7 * step % 16),
            };
            let constant = (f64::from(step as u32 + 1).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a
                .wrapping_add(mix)
                .wrapping_add(constant)
                .wrapping_add(words[word]);
            let turned = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
            (a, b, c, d) = (d, turned, b, c);
        }
        for (value, add) in state.iter_mut().zip([a, b, c, d]) {
            *value = value.wrapping_add(add);
        }
    }
    let bytes = state.iter().flat_map(|word| word.to_le_bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
