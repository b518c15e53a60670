//! Packets of captures and of generated traces through policies: what is taken out is nowhere, what is kept is
//! where it was, checksums that were right are right.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::corpora;
use flowgauge_anonymize::{Anonymizer, CryptoPan, Key, Others, Policy, Rule};
use flowgauge_capture::PacketSource;
use flowgauge_generate::{self as generate, Config, Preset};
use flowgauge_wire::{
    Batch, ChecksumVerdict, DecodeFlags, Decoded, DecodedBatch, Decoder, LinkType,
    PacketDescriptor, Problem, verify_transport,
};
use proptest::prelude::*;

const KEY: Key = Key::new([9; Key::BYTES]);

fn policy(rules: &[&str]) -> Policy {
    let rules = rules
        .iter()
        .map(|text| Rule::parse(text).unwrap())
        .collect();
    Policy::new(rules, Others::Removed).unwrap().with_key(KEY)
}

/// Only addresses are others than before.
const ADDRESSES: &[&str] = &[
    "ETHERNET,SRC_MAC,UNCHANGED",
    "ETHERNET,DST_MAC,UNCHANGED",
    "ETHERNET,VLAN_ID,UNCHANGED",
    "IP,SRC_IP,PREFIX_PRESERVING",
    "IP,DST_IP,PREFIX_PRESERVING",
    "IP,TTL,UNCHANGED",
    "IP,TOS,UNCHANGED",
    "IP,ID,UNCHANGED",
    "IP,FLOW_LABEL,UNCHANGED",
    "IP,OPTIONS,UNCHANGED",
    "IP,PAYLOAD,UNCHANGED",
    "TCP,SRC_PORT,UNCHANGED",
    "TCP,DST_PORT,UNCHANGED",
    "TCP,SEQUENCE_NUMBER,UNCHANGED",
    "TCP,ACK_NUMBER,UNCHANGED",
    "TCP,WINDOW,UNCHANGED",
    "TCP,URGENT_POINTER,UNCHANGED",
    "TCP,TCP_OPTIONS,UNCHANGED",
    "TCP,PAYLOAD,UNCHANGED",
    "UDP,SRC_PORT,UNCHANGED",
    "UDP,DST_PORT,UNCHANGED",
    "UDP,PAYLOAD,UNCHANGED",
    "ICMP,ID,UNCHANGED",
    "ICMP,SEQUENCE_NUMBER,UNCHANGED",
    "ICMP,PAYLOAD,UNCHANGED",
];

/// Every kind of function at once.
const MIXED: &[&str] = &[
    "ETHERNET,SRC_MAC,MAP",
    "ETHERNET,DST_MAC,MAP",
    "ETHERNET,VLAN_ID,MAP",
    "IP,SRC_IP,MAP",
    "IP,DST_IP,MAP",
    "IP,TTL,MAP_DISTRIBUTION,UNIFORM,10,20",
    "IP,TOS,RANDOM",
    "IP,OPTIONS,ZERO",
    "TCP,SRC_PORT,MAP",
    "TCP,DST_PORT,MAP",
    "TCP,SEQUENCE_NUMBER,MAP",
    "TCP,ACK_NUMBER,HASHED",
    "TCP,PAYLOAD,HASHED,SHA256,PAD_WITH_ZERO",
    "TCP,TCP_OPTIONS,RANDOM",
    "UDP,SRC_PORT,MAP",
    "UDP,DST_PORT,MAP",
    "UDP,PAYLOAD,PATTERN_FILL,STR,flowgauge",
    "ICMP,PAYLOAD,RANDOM",
    "IP,PAYLOAD,ZERO",
    "HTTP,HOST,HASHED,SHA1",
    "HTTP,URI,FILENAME_RANDOM",
    "HTTP,METHOD,UNCHANGED",
    "FTP,USER,HASHED",
    "FTP,RESPONSE_CODE,UNCHANGED",
    "PACKET,TIME,ROUND,1ms",
];

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            captures(&path, found);
        } else if path.metadata().is_ok_and(|it| it.len() < 4 << 20) {
            found.push(path);
        }
    }
}

/// Every capture of the corpora that can be opened, batch by batch, as far as it can be read.
fn each_batch(mut with: impl FnMut(&Path, &Batch<'_>)) -> Option<u64> {
    let folder = corpora::corpora()?;
    let mut found = Vec::new();
    captures(&folder, &mut found);
    let mut packets = 0;
    for path in found {
        let Ok(mut source) = flowgauge_capture::open(&path) else {
            continue;
        };
        while let Ok(Some(batch)) = source.next_batch() {
            packets += batch.len() as u64;
            with(&path, &batch);
        }
    }
    Some(packets)
}

/// What packets become, as a batch of their own.
fn anonymize(anonymizer: &mut Anonymizer, batch: &Batch<'_>) -> (Vec<u8>, Vec<PacketDescriptor>) {
    let mut memory = Vec::new();
    let packets = batch
        .packets
        .iter()
        .map(|packet| {
            let becomes = anonymizer.packet(packet, batch.bytes_of(packet), &mut memory);
            assert!(becomes.captured_len <= packet.captured_len);
            assert_eq!(becomes.wire_len, packet.wire_len);
            assert_eq!(
                (becomes.offset + becomes.captured_len) as usize,
                memory.len()
            );
            becomes
        })
        .collect();
    (memory, packets)
}

fn decode(batch: &Batch<'_>) -> DecodedBatch {
    let mut decoded = DecodedBatch::new();
    Decoder::default().decode_batch(batch, &mut decoded);
    decoded
}

/// The decoder finds in what was made what it found before, but for addresses, which are what they should be.
#[test]
fn all_but_addresses_is_where_it_was() {
    let mut anonymizer = Anonymizer::new(&policy(ADDRESSES)).unwrap();
    let mut pan = CryptoPan::new(&KEY);
    let (mut compared, mut cut, mut unread) = (0, 0, 0);
    let mut different = Vec::new();
    let all = each_batch(|path, batch| {
        let (memory, packets) = anonymize(&mut anonymizer, batch);
        let becomes = Batch::new(&memory, &packets);
        let (before, after) = (decode(batch), decode(&becomes));
        for (one, other) in before.packets.iter().zip(&after.packets) {
            let index = usize::from(one.index);
            let descriptor = &batch.packets[index];
            if one.key.version == 0
                || one.problem != Problem::None
                || !Anonymizer::knows_link(descriptor.link)
            {
                unread += 1;
                continue;
            }
            if packets[index].captured_len < descriptor.captured_len {
                // Something within it is not known here.
                cut += 1;
                continue;
            }
            if is_routed(batch, one) {
                cut += 1;
                continue;
            }
            let place = format!("{} packet {index}", path.display());
            compared += 1;
            let mut becomes_of = |(address, port): (flowgauge_wire::Address, u16)| match address
                .to_ip(one.key.version)
            {
                IpAddr::V4(ip) => (IpAddr::from(pan.ipv4(ip.octets())), port),
                IpAddr::V6(ip) => (IpAddr::from(pan.ipv6(ip.octets())), port),
            };
            let found = |(address, port): (flowgauge_wire::Address, u16)| {
                (address.to_ip(other.key.version), port)
            };
            let expected = [one.source(), one.destination()].map(&mut becomes_of);
            if expected != [other.source(), other.destination()].map(found) {
                different.push(format!("{place}: {expected:?} {other:?}"));
                continue;
            }
            let rest = |it: &Decoded| {
                let mut rest = *it;
                rest.key = Decoded::default().key;
                rest.direction = Decoded::default().direction;
                // Numbers of tunnels in the batch.
                rest.tunnel = it.tunnel.min(1);
                rest
            };
            let verdicts = (
                verdict(batch, &before, one),
                verdict(&becomes, &after, other),
            );
            if rest(one) != rest(other) || verdicts.0 != verdicts.1 {
                different.push(format!("{place}: {verdicts:?} {one:?} {other:?}"));
            }
        }
    });
    let Some(all) = all else { return };
    println!("{all} packets: {compared} compared, {cut} cut, {unread} not read");
    assert!(
        different.is_empty(),
        "{}\n{}",
        different.len(),
        different.join("\n")
    );
    // Nine tenths of those that are cut are one flood of ICMPv6.
    assert!(
        compared > all * 4 / 5 && cut < all / 10,
        "{all} packets: {compared} compared, {cut} cut"
    );
}

/// Whether the decoder tells other addresses than the IP header has: those of a source route, and of a mobile
/// host's home. They are not given out, and checksums that are over them cannot be judged.
fn is_routed(batch: &Batch<'_>, packet: &Decoded) -> bool {
    let bytes = batch.bytes(usize::from(packet.index));
    let header = &bytes[usize::from(packet.ip_offset)..];
    let [source, destination] = [packet.source(), packet.destination()].map(|it| it.0.0);
    match packet.key.version {
        4 => header[12..20] != [&source[12..], &destination[12..]].concat(),
        6 => header[8..40] != [source, destination].concat(),
        _ => false,
    }
}

fn verdict(batch: &Batch<'_>, decoded: &DecodedBatch, packet: &Decoded) -> ChecksumVerdict {
    verify_transport(decoded.bytes(batch, packet), packet)
}

/// Addresses that are found nowhere by accident.
fn is_telling(bytes: &[u8]) -> bool {
    let distinct: std::collections::BTreeSet<&u8> = bytes.iter().collect();
    distinct.len() > 3 && bytes.iter().filter(|it| **it == 0).count() < 2
}

#[test]
fn addresses_are_nowhere_in_what_is_left() {
    // Under functions that keep no payload: in payload that a policy keeps, nobody looks for addresses.
    let strict: &[&str] = &["IP,SRC_IP,PREFIX_PRESERVING", "IP,DST_IP,PREFIX_PRESERVING"];
    for rules in [strict, MIXED, &[]] {
        let mut anonymizer = Anonymizer::new(&policy(rules)).unwrap();
        let mut searched = 0_u64;
        let all = each_batch(|path, batch| {
            let (memory, packets) = anonymize(&mut anonymizer, batch);
            let decoded = decode(batch);
            for packet in &decoded.packets {
                let Some(becomes) = packets.get(usize::from(packet.index)) else {
                    continue;
                };
                let start = becomes.offset as usize;
                let bytes = &memory[start..start + becomes.captured_len as usize];
                for (address, _) in [packet.source(), packet.destination()] {
                    let address = match packet.key.version {
                        4 => &address.0[12..],
                        _ => &address.0[..],
                    };
                    if packet.key.version != 0 && is_telling(address) {
                        searched += 1;
                        let found = bytes.windows(address.len()).position(|it| it == address);
                        assert_eq!(
                            found,
                            None,
                            "{} packet {}: {address:?}",
                            path.display(),
                            packet.index
                        );
                    }
                }
            }
        });
        if all.is_none() {
            return;
        }
        assert!(searched > 10_000, "{searched}");
    }
}

/// What was right is right, however much was taken out; and nobody needs what was taken out to see it.
#[test]
fn checksums_fit_what_was_made() {
    let rules: Vec<&str> = MIXED
        .iter()
        .copied()
        .filter(|it| !it.starts_with("TCP,TCP_OPTIONS"))
        .collect();
    let mut anonymizer = Anonymizer::new(&policy(&rules)).unwrap();
    let (mut right, mut wrong, mut gone) = (0_u64, 0_u64, 0_u64);
    let mut different = Vec::new();
    let all = each_batch(|path, batch| {
        let (memory, mut packets) = anonymize(&mut anonymizer, batch);
        // What is not there is zeros.
        let mut filled = Vec::new();
        for (packet, original) in packets.iter_mut().zip(batch.packets) {
            let start = filled.len();
            filled.extend_from_slice(
                &memory[packet.offset as usize..][..packet.captured_len as usize],
            );
            filled.resize(start + original.captured_len as usize, 0);
            packet.offset = start as u32;
            packet.captured_len = original.captured_len;
        }
        let becomes = Batch::new(&filled, &packets);
        let (before, after) = (decode(batch), decode(&becomes));
        let by_index = |decoded: &DecodedBatch, index: u16| {
            let mut found = decoded.packets.iter().filter(|it| it.index == index);
            found.next().copied()
        };
        for one in &before.packets {
            let descriptor = &batch.packets[usize::from(one.index)];
            if one.problem != Problem::None
                || one.tunnel != 0
                || !Anonymizer::knows_link(descriptor.link)
            {
                continue;
            }
            if is_routed(batch, one) {
                continue;
            }
            let Some(other) = by_index(&after, one.index) else {
                continue;
            };
            // Ports of tunnels lead elsewhere once they are mapped.
            // A link layer that is not known here leaves nothing.
            if other.key.version == 0 {
                gone += 1;
                continue;
            }
            if other.tunnel != 0 || one.flags.contains(DecodeFlags::REASSEMBLED) {
                continue;
            }
            let place = format!(
                "{} packet {}: {one:?} became {other:?}",
                path.display(),
                one.index
            );
            match (
                verdict(batch, &before, one),
                verdict(&becomes, &after, &other),
            ) {
                (ChecksumVerdict::Good, ChecksumVerdict::Good) => right += 1,
                (ChecksumVerdict::Bad, ChecksumVerdict::Bad | ChecksumVerdict::Unknown) => {
                    wrong += 1;
                }
                (ChecksumVerdict::Unknown, _) => {}
                verdicts => different.push(format!("{verdicts:?} {place}")),
            }
        }
    });
    if all.is_some() {
        assert!(
            different.is_empty(),
            "{}\n{}",
            different.len(),
            different.join("\n")
        );
        assert!(
            right > 10_000 && wrong > 100 && gone < right / 100,
            "{right} {wrong} {gone}"
        );
    }
}

#[test]
fn the_same_key_gives_the_same_in_every_anonymizer() {
    let rules: Vec<&str> = MIXED
        .iter()
        .copied()
        .filter(|it| !it.contains("RANDOM"))
        .collect();
    let mut one = Anonymizer::new(&policy(&rules)).unwrap();
    let mut other = Anonymizer::new(&policy(&rules)).unwrap();
    let config = Config::new(Preset::Mix).with_packets(2000);
    let mut file = Vec::new();
    generate::generate(&config, &mut file).unwrap();
    let mut source = flowgauge_capture::open_reader(std::io::Cursor::new(file), "trace").unwrap();
    let mut packets = 0;
    while let Some(batch) = source.next_batch().unwrap() {
        packets += batch.len();
        assert_eq!(
            anonymize(&mut one, &batch).0,
            anonymize(&mut other, &batch).0
        );
    }
    assert!(packets > 1000, "{packets}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any bytes, of any link type: nothing panics, and nothing is longer than before.
    #[test]
    fn any_bytes_are_survived(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        start in 0..6_usize,
        link in prop::sample::select(vec![0_u16, 1, 101, 108, 113, 228, 229, 276, 105, 9]),
        wire in 0..3000_u32,
    ) {
        // Beginnings that lead further than chance does.
        let beginnings: [&[u8]; 6] = [
            &[],
            &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45],
            &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60],
            &[0x4f, 0, 0, 100, 0, 0, 0, 0, 64, 47],
            &[0x60, 0, 0, 0, 0, 100, 0, 64],
            &[0x45, 0, 0, 120, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 18, 181, 18, 181],
        ];
        let mut bytes = beginnings[start].to_vec();
        bytes.extend(frame);
        let descriptor = PacketDescriptor {
            captured_len: bytes.len() as u32,
            wire_len: wire.max(bytes.len() as u32),
            link: LinkType(link),
            ..PacketDescriptor::default()
        };
        for rules in [&[][..], ADDRESSES, MIXED] {
            let mut out = vec![7; 3];
            let mut anonymizer = ANONYMIZERS.with(|it| it.borrow_mut().remove(&rules.len()))
                .unwrap_or_else(|| Anonymizer::new(&policy(rules)).unwrap());
            let becomes = anonymizer.packet(&descriptor, &bytes, &mut out);
            ANONYMIZERS.with(|it| it.borrow_mut().insert(rules.len(), anonymizer));
            prop_assert_eq!(becomes.offset, 3);
            prop_assert!(becomes.captured_len <= descriptor.captured_len);
            prop_assert_eq!(out.len() as u32, 3 + becomes.captured_len);
        }
    }
}

thread_local! {
    static ANONYMIZERS: std::cell::RefCell<std::collections::HashMap<usize, Anonymizer>> = std::cell::RefCell::default();
}
