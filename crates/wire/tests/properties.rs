//! Any bytes at all.

mod common;

use flowgauge_wire::decode::fuzz_decode;
use flowgauge_wire::{
    Address, DecodedBatch, Decoder, FlowKey, HashSeed, LinkType, Problem, hash_batch,
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_decode(&data);
    }

    #[test]
    fn both_directions_share_key_and_hash(
        a in any::<([u8; 16], u16)>(),
        b in any::<([u8; 16], u16)>(),
        protocol in any::<u8>(),
        v4 in any::<bool>(),
    ) {
        let address = |bytes: [u8; 16]| if v4 {
            Address::v4([bytes[0], bytes[1], bytes[2], bytes[3]])
        } else {
            Address(bytes)
        };
        let (a, b) = ((address(a.0), a.1), (address(b.0), b.1));
        let version = if v4 { 4 } else { 6 };
        let (there, forth) = FlowKey::new(version, protocol, a, b);
        let (back, _) = FlowKey::new(version, protocol, b, a);
        prop_assert_eq!(there, back);
        prop_assert_eq!(there.endpoints(forth), (a, b));
        prop_assert_eq!(HashSeed::FIXED.hash(&there), HashSeed::FIXED.hash(&back));
    }
}

/// Plausible frames with bytes changed, so that every layer's checks are reached.
#[test]
fn mutations_of_real_packets_never_panic() {
    let Some(corpora) = common::corpora() else {
        return;
    };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut runs = 0;
    for path in common::captures(&corpora.join("zeek")) {
        for packet in common::read(&path).iter().take(5) {
            let mut data = vec![packet.link.0 as u8];
            data.extend_from_slice(&packet.bytes);
            for _ in 0..8 {
                let mut mutated = data.clone();
                for _ in 0..1 + random() % 4 {
                    // Headers stand in the first bytes.
                    let at = random() as usize % mutated.len().min(120);
                    mutated[at] = random() as u8;
                }
                fuzz_decode(&mutated);
                runs += 1;
            }
        }
    }
    assert!(runs > 3000, "only {runs} runs");
}

/// Every single changed bit of the key changes about half of the hash, and buckets fill evenly.
#[test]
fn hash_avalanches_and_spreads() {
    let seed = HashSeed::FIXED;
    for version in [4u8, 6] {
        let mut flipped = 0u32;
        let mut samples = 0u32;
        for i in 0..200u16 {
            let mut low = [0u8; 16];
            let mut high = [0u8; 16];
            low[10..].copy_from_slice(&[0xff, 0xff, 10, 0, (i >> 8) as u8, i as u8]);
            high[10..].copy_from_slice(&[0xff, 0xff, 192, 168, 1, 1]);
            let key = FlowKey {
                low: Address(low),
                high: Address(high),
                low_port: 1024 + i,
                high_port: 443,
                protocol: 6,
                version,
                ..FlowKey::default()
            };
            let hash = seed.hash(&key);
            let mut check = |changed: FlowKey| {
                let distance = (hash ^ seed.hash(&changed)).count_ones();
                assert!(distance >= 8, "only {distance} bits change");
                flipped += distance;
                samples += 1;
            };
            let first = if version == 4 { 12 } else { 0 };
            for bit in first * 8..128 {
                let mut changed = key;
                changed.low.0[bit / 8] ^= 1 << (bit % 8);
                check(changed);
                let mut changed = key;
                changed.high.0[bit / 8] ^= 1 << (bit % 8);
                check(changed);
            }
            for bit in 0..16 {
                let mut changed = key;
                changed.low_port ^= 1 << bit;
                check(changed);
                let mut changed = key;
                changed.high_port ^= 1 << bit;
                check(changed);
            }
            for bit in 0..32 {
                let mut changed = key;
                changed.context ^= 1 << bit;
                check(changed);
            }
        }
        let mean = f64::from(flipped) / f64::from(samples);
        assert!(
            (30.0..34.0).contains(&mean),
            "version {version}: {mean} bits"
        );
    }
    // One server, one client, all ports: the low bits choose the bucket, the high bits tag it.
    let mut buckets = vec![[0u32; 2]; 1024];
    for port in 0..=u16::MAX {
        let a = (Address::v4([10, 0, 0, 1]), 443);
        let b = (Address::v4([10, 0, 0, 2]), port);
        let hash = seed.hash(&FlowKey::new(4, 6, a, b).0);
        buckets[(hash & 1023) as usize][0] += 1;
        buckets[(hash >> 54) as usize][1] += 1;
    }
    for side in 0..2 {
        // 64 expected, with a standard deviation of 8.
        let counts = || buckets.iter().map(|bucket| bucket[side]);
        assert!(counts().min() >= Some(25) && counts().max() <= Some(110));
    }
}

#[test]
fn every_link_type_takes_every_short_frame() {
    let mut decoder = Decoder::default();
    let mut out = DecodedBatch::new();
    for link in (0..300).map(LinkType) {
        for fill in [0u8, 0x45, 0x60, 0x88, 0xff] {
            for length in 0..80 {
                let bytes = vec![fill; length];
                let packet = common::decode(&mut decoder, link, &bytes, length as u32, &mut out);
                assert!(packet.has_ip() || packet.problem != Problem::None);
            }
        }
    }
    hash_batch(HashSeed::FIXED, &mut out.packets);
}
