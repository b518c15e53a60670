//! Flows that somebody chose, who knows all but the key of the hash, cost what others cost.

use flowgauge_flow::index::{Index, tag_of};
use flowgauge_flow::{FlowConfig, FlowTracker};
use flowgauge_wire::{Address, BATCH_SIZE, DecodeFlags, Decoded, FlowKey, HashSeed, TcpFlags};

const FLOWS: u32 = 1 << 18;

fn flow(low: u32, high: u32, ports: u32) -> FlowKey {
    FlowKey {
        low: Address::v4(low.to_be_bytes()),
        high: Address::v4(high.to_be_bytes()),
        low_port: ports as u16,
        high_port: (ports >> 16) as u16,
        protocol: 6,
        version: 4,
        ..FlowKey::default()
    }
}

/// The slots that are looked at to find each flow once, in all, and the most to enter one.
fn probes(seed: HashSeed, key: &dyn Fn(u32) -> FlowKey) -> (u64, u64) {
    let mut index = Index::new();
    let tags: Vec<u32> = (0..FLOWS).map(|n| tag_of(seed.hash(&key(n)))).collect();
    for (number, &tag) in (0..).zip(&tags) {
        index.insert(tag, number);
    }
    let mut asked = 0;
    for (number, &tag) in (0..).zip(&tags) {
        let found = index.find(tag, |found| {
            asked += 1;
            found == number
        });
        assert_eq!(found, Some(number));
    }
    (asked, index.most_probes())
}

#[test]
fn flows_that_somebody_chose_need_no_more_probes_than_others() {
    type Make<'a> = &'a dyn Fn(u32) -> FlowKey;
    let chosen: [(&str, Make<'_>); 6] = [
        ("ports of two hosts", &|n| flow(0x157c_4a7f, 0xb979_379e, n)),
        ("one port each", &|n| flow(n << 8, 0x0a00_0001, 80)),
        ("complements", &|n| flow(n, !n, n)),
        ("equal sums", &|n| {
            flow(0x0a00_0000 + n, 0xc000_0000 - n, u32::MAX - n)
        }),
        // Of a key of all zeros 16 bits of the hash are equal.
        ("a known key", &|n| flow(0x0a00_0001, 0xc000_0250, n << 14)),
        ("contexts", &|n| FlowKey {
            context: n,
            ..flow(1, 2, 0)
        }),
    ];
    for (name, key) in chosen {
        for seed in (0..4).map(HashSeed::new) {
            let (asked, most) = probes(seed, key);
            // Tags of 32 bits: eight pairs of 2^18 are equal.
            assert!(asked < u64::from(FLOWS) + 40, "{name}: {asked}");
            // Half full, the longest of linear probing is some 50 by chance; each 12 more are a tenth as likely.
            assert!(most < 160, "{name}: {most}");
        }
    }
}

#[test]
fn what_is_looked_at_for_a_flow_is_counted() {
    let mut tracker = FlowTracker::new(FlowConfig::default());
    let packets: Vec<Decoded> = (0..1 << 16)
        .map(|n| {
            let key = flow(0x0a00_0001, 0xc000_0250, n);
            Decoded {
                key,
                hash: HashSeed::of_process().hash(&key),
                tcp_flags: TcpFlags::SYN,
                window: 1,
                flags: DecodeFlags::TRANSPORT,
                ..Decoded::default()
            }
        })
        .collect();
    let mut flows = Vec::new();
    for batch in packets.chunks(BATCH_SIZE) {
        tracker.process(batch, &[], &mut flows);
    }
    tracker.finish();
    tracker.drain_ended(|_, _| {});
    let statistics = tracker.statistics();
    assert_eq!(statistics.created, 1 << 16);
    assert!((2..160).contains(&statistics.most_probes), "{statistics:?}");
}
