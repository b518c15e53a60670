//! Any bytes at all.

use crate::common;
use crate::decode::fuzz_decode;
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
        let seed = HashSeed::of_process();
        prop_assert_eq!(seed.hash(&there), seed.hash(&back));
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
    let seed = HashSeed::PUBLIC;
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

/// Sets of keys that who sends packets can choose, with a structure that hashes without a secret, or with a weak one,
/// map to few values.
fn chosen_keys() -> Vec<(&'static str, Vec<FlowKey>)> {
    let v4 = |low: u32, high: u32, ports: u32| FlowKey {
        low: Address::v4(low.to_be_bytes()),
        high: Address::v4(high.to_be_bytes()),
        low_port: ports as u16,
        high_port: (ports >> 16) as u16,
        protocol: 6,
        version: 4,
        ..FlowKey::default()
    };
    let v6 = |low: u128, high: u128, ports: u32| FlowKey {
        low: Address(low.to_be_bytes()),
        high: Address(high.to_be_bytes()),
        version: 6,
        ..v4(0, 0, ports)
    };
    let (a, b) = (0x0a00_0001, 0xc000_0250);
    let (long, other) = (0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2);
    type Make<'a> = &'a dyn Fn(u32) -> FlowKey;
    let sets: [(&str, Make<'_>); 22] = [
        ("ports in order", &|n| v4(a, b, n)),
        ("high ports", &|n| v4(a, b, n << 16)),
        ("ports of a stride", &|n| v4(a, b, n.wrapping_mul(257))),
        ("every 4096th of ports", &|n| v4(a, b, n << 12)),
        ("ports of equal sum", &|n| v4(a, b, n << 16 | (0xffff - n))),
        ("ports of equal difference", &|n| v4(a, b, n << 16 | n)),
        ("Weyl's ports", &|n| v4(a, b, n.wrapping_mul(0x9e37_79b9))),
        ("low addresses", &|n| v4(a + n, b, 80)),
        ("low address, upper bits", &|n| v4(n << 16, b, 80)),
        ("high addresses", &|n| v4(a, b + n, 80)),
        ("high address, upper bits", &|n| v4(a, n << 16 | 1, 80)),
        ("addresses and their complements", &|n| v4(n, !n, 80)),
        ("addresses of equal sum", &|n| v4(a + n, b - n, 80)),
        ("addresses and ports of equal sum", &|n| {
            v4(a + n, b, 65535 - n)
        }),
        ("addresses and ports alike", &|n| v4(n, n, n << 16 | n)),
        ("contexts", &|n| FlowKey {
            context: n,
            ..v4(a, b, 80)
        }),
        ("contexts and ports", &|n| FlowKey {
            context: 65535 - n,
            ..v4(a, b, n)
        }),
        ("IPv6 ports", &|n| v6(long, other, n)),
        ("IPv6 hosts", &|n| {
            v6(long + (u128::from(n) << 4), other, 80)
        }),
        ("IPv6 networks", &|n| {
            v6(long | u128::from(n) << 64, other, 80)
        }),
        ("IPv6 halves alike", &|n| {
            let half = u128::from(n).wrapping_mul(0x0001_0001_0001_0001);
            v6(half << 64 | half, half << 64 | half, 80)
        }),
        ("IPv6 halves of equal sum", &|n| {
            let n = u128::from(n);
            v6(long + (n << 64) - n, other - (n << 64) + n, 80)
        }),
    ];
    let keys = |make: Make<'_>| (0..1 << 16).map(make).collect();
    sets.map(|(name, make)| (name, keys(make))).into()
}

/// Under seeds that nobody knows all chosen keys have hashes of their own, and fill the places of a table, by upper and
/// by lower bits, as random numbers do.
#[test]
fn chosen_keys_collide_under_no_seed() {
    const PLACES: usize = 1 << 16;
    let (mut equal, mut pairs) = (0, 0.0);
    for (name, keys) in chosen_keys() {
        for seed in (0..8).map(HashSeed::new) {
            let mut hashes: Vec<u64> = keys.iter().map(|key| seed.hash(key)).collect();
            for shift in [0, 48] {
                let mut load = vec![0_u32; PLACES];
                for hash in &hashes {
                    load[(hash >> shift) as usize & (PLACES - 1)] += 1;
                }
                // Of a place 1 is expected, with a variance of 1; of the sum of the squares of what it differs by 65536,
                // with a standard deviation of 362.
                let squares: f64 = load.iter().map(|&n| (f64::from(n) - 1.0).powi(2)).sum();
                let spread = (squares - PLACES as f64) / (2.0 * PLACES as f64).sqrt();
                assert!(
                    spread.abs() < 7.0,
                    "{name}, {seed:?}, from bit {shift}: {spread}"
                );
                assert!(load.iter().all(|&n| n < 16), "{name}");
            }
            hashes.sort_unstable();
            assert!(hashes.windows(2).all(|two| two[0] != two[1]), "{name}");
            equal += hashes
                .windows(2)
                .filter(|two| two[0] >> 32 == two[1] >> 32)
                .count();
            pairs += (keys.len() * keys.len() / 2) as f64;
        }
    }
    // Of the upper half of the hash, which the flow table goes by, as many are equal as by chance: 88.
    let expected = pairs / f64::from(u32::MAX);
    let off = (equal as f64 - expected) / expected.sqrt();
    assert!(off.abs() < 6.0, "{equal} of {expected}");
}

#[test]
fn the_seed_of_a_process_is_no_number_that_is_known() {
    let key = FlowKey::new(
        4,
        6,
        (Address::v4([10, 0, 0, 1]), 1),
        (Address::v4([10, 0, 0, 2]), 2),
    )
    .0;
    let hash = HashSeed::of_process().hash(&key);
    assert_eq!(hash, HashSeed::of_process().hash(&key));
    assert!((0..1000).all(|number| HashSeed::new(number).hash(&key) != hash));
    assert!(!HashSeed::PUBLIC.fix(), "it is in use");
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
    hash_batch(&mut out.packets);
}
