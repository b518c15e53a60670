//! Crypto-PAn against the published vectors, and what makes it prefix-preserving.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use crate::corpora;
use flowgauge_anonymize::{CryptoPan, Key};
use proptest::prelude::*;

fn key(hex: &str) -> Key {
    let byte = |at: usize| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap();
    Key::new(core::array::from_fn(byte))
}

/// The key of the reference's sample program.
const SAMPLE: [u8; 32] = [
    21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143, 131, 121,
    121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
];

#[test]
fn published_vectors() {
    let Some(folder) = corpora::corpora() else {
        return;
    };
    let text = fs::read_to_string(folder.join("cryptopan/vectors.shared.json")).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for set in vectors["sets"].as_array().unwrap() {
        let mut pan = CryptoPan::new(&key(set["key_hex"].as_str().unwrap()));
        for pair in set["pairs"].as_array().unwrap() {
            let [from, to] = [0, 1].map(|at| pair[at].as_str().unwrap().parse::<IpAddr>().unwrap());
            // Once computed, once from the table.
            for _ in 0..2 {
                let becomes: IpAddr = match from {
                    IpAddr::V4(address) => pan.ipv4(address.octets()).into(),
                    IpAddr::V6(address) => pan.ipv6(address.octets()).into(),
                };
                assert_eq!(becomes, to, "{from}");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 95);
}

#[test]
fn the_sample_trace_of_the_reference() {
    let Some(folder) = corpora::corpora() else {
        return;
    };
    let read = |name: &str| -> Vec<Ipv4Addr> {
        let text = fs::read_to_string(folder.join("cryptopan/reference-trace").join(name)).unwrap();
        let words = text
            .lines()
            .map(|line| line.split_whitespace().last().unwrap());
        words.map(|word| word.parse().unwrap()).collect()
    };
    let mut pan = CryptoPan::new(&Key::new(SAMPLE));
    let raw = read("sample_trace_raw.dat");
    assert_eq!(raw.len(), 100);
    let becomes: Vec<Ipv4Addr> = raw.iter().map(|it| pan.ipv4(it.octets()).into()).collect();
    assert_eq!(becomes, read("sample_trace_sanitized.dat"));
}

/// What the publication says, a bit at a time: the AES that the tables are compared with.
fn naive(pan: &mut CryptoPan, address: u32) -> u32 {
    // A bit is turned over or not as the bits before it say, whatever comes behind.
    let mut becomes = 0;
    for bit in 0..32 {
        let own = !(u32::MAX.checked_shr(bit + 1).unwrap_or(0));
        let of = pan.ipv4((address & own).to_be_bytes());
        becomes |= u32::from_be_bytes(of) & (1 << (31 - bit));
    }
    becomes
}

fn common(one: u128, other: u128) -> u32 {
    (one ^ other).leading_zeros()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn prefixes_are_kept(
        key in any::<[u8; 32]>(),
        pairs in prop::collection::vec((any::<u128>(), any::<u128>(), 0..=128_u32), 1..64),
        bits in 4..10_u32,
    ) {
        let mut pan = CryptoPan::with_cache(&Key::new(key), bits);
        for (one, other, shared) in pairs {
            // As long a common prefix as the generator says.
            let own = u128::MAX.checked_shr(shared).unwrap_or(0);
            let other = (one & !own) | (other & own);
            let six = |pan: &mut CryptoPan, it: u128| u128::from_be_bytes(pan.ipv6(it.to_be_bytes()));
            prop_assert_eq!(common(six(&mut pan, one), six(&mut pan, other)), common(one, other));
            let [one, other] = [one, other].map(|it| (it >> 96) as u32);
            let four = |pan: &mut CryptoPan, it: u32| u32::from_be_bytes(pan.ipv4(it.to_be_bytes()));
            let becomes = [four(&mut pan, one), four(&mut pan, other)];
            prop_assert_eq!((becomes[0] ^ becomes[1]).leading_zeros(), (one ^ other).leading_zeros());
            prop_assert_eq!(becomes[0], naive(&mut pan, one));
            // IPv4 and the first bits of IPv6 are the same function.
            let six = six(&mut pan, u128::from(one) << 96);
            prop_assert_eq!((six >> 96) as u32, becomes[0]);
        }
    }

    #[test]
    fn tables_change_nothing(key in any::<[u8; 32]>(), addresses in prop::collection::vec(any::<u32>(), 600)) {
        let mut small = CryptoPan::with_cache(&Key::new(key), 4);
        let mut large = CryptoPan::with_cache(&Key::new(key), 16);
        let again = addresses.iter().chain(&addresses);
        for address in again {
            let four = address.to_be_bytes();
            prop_assert_eq!(small.ipv4(four), large.ipv4(four));
            let mut six = [0; 16];
            six[2..6].copy_from_slice(&four);
            six[12..].copy_from_slice(&four);
            prop_assert_eq!(small.ipv6(six), large.ipv6(six));
        }
    }
}

#[test]
fn no_two_addresses_become_the_same() {
    let mut pan = CryptoPan::new(&Key::new(SAMPLE));
    let mut seen = std::collections::HashSet::new();
    for low in 0..=u16::MAX {
        let [c, d] = low.to_be_bytes();
        assert!(seen.insert(pan.ipv4([198, 51, c, d])));
    }
    let top = pan.ipv4([198, 51, 0, 0]);
    assert!(seen.iter().all(|it| it[..2] == top[..2]));
}

#[test]
fn a_key_is_not_printed() {
    let text = format!(
        "{:?} {:?}",
        Key::new(SAMPLE),
        CryptoPan::new(&Key::new(SAMPLE))
    );
    assert_eq!(text, "Key(..) CryptoPan { .. }");
}
