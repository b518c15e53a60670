//! How many addresses per second Crypto-PAn replaces: `addresses`.
//!
//! Three kinds of input: hosts of a network, most of them seen again and again (as in traffic), uniformly random
//! addresses, no two of them alike (nothing is in the tables but the first 16 bits), and a mixture by
//! popularity (the n-th host comes in proportion to 1/n, of a million).

#![allow(clippy::print_stdout, reason = "an example")]

use std::hint::black_box;
use std::time::Instant;

use flowgauge_anonymize::{CryptoPan, Key};

/// Addresses of each kind.
const NUMBER: usize = 4_000_000;

fn main() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let hosts = |random: &mut Random| 0x0a00_0000 | (random.next() as u32 & 0x3fff);
    let popular = |random: &mut Random| {
        // Inverse of the distribution's logarithm.
        let place = (1e6_f64).powf(random.next() as f64 / u64::MAX as f64) as u64;
        Random(place.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next() as u32
    };
    measure("16,384 hosts", &mut random, hosts);
    measure("popular ones of a million", &mut random, popular);
    measure("all different", &mut random, |random| random.next() as u32);
}

fn measure(name: &str, random: &mut Random, mut make: impl FnMut(&mut Random) -> u32) {
    let addresses: Vec<u32> = (0..NUMBER).map(|_| make(random)).collect();
    let mut pan = CryptoPan::new(&Key::new([7; Key::BYTES]));
    let begin = Instant::now();
    for address in &addresses {
        black_box(pan.ipv4(address.to_be_bytes()));
    }
    report("IPv4", name, begin);
    let begin = Instant::now();
    for address in &addresses {
        // 256 networks, the hosts of which are as above.
        let host = u128::from(*address);
        let network = 0x2001_0db8_u128 << 96 | (host & 0xff) << 64;
        black_box(pan.ipv6((network | host << 7).to_be_bytes()));
    }
    report("IPv6", name, begin);
}

fn report(version: &str, name: &str, begin: Instant) {
    let nanos = begin.elapsed().as_nanos() as f64 / NUMBER as f64;
    let rate = 1e3 / nanos;
    println!("{version}  {name:<28} {nanos:6.1} ns  {rate:6.1} million/s");
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
