//! Compares filters that share columns with each filter alone, packet by packet.

use flowgauge_sys::libpcap::Instruction;
use flowgauge_wire::{Batch, PacketDescriptor, PacketFlags};
use proptest::prelude::*;

use super::*;
use crate::filter::FilterSet;

/// A packet of a batch: its words, how much of the last is cut off, its length on the wire, and whether the kernel took a tag
/// out of it.
type Sketch = (Vec<u8>, usize, u32, bool);

/// Bytes of packets, where numbers that programs compare with are frequent.
fn any_packet() -> impl Strategy<Value = Sketch> {
    let byte = prop_oneof![4 => 0..6u8, 1 => any::<u8>()];
    let bytes = prop::collection::vec(byte, 0..48);
    (bytes, 0..3usize, 0..80u32, prop::bool::weighted(0.1))
}

/// An instruction, and how far it jumps, of those that are behind it.
fn any_instruction() -> impl Strategy<Value = (u16, u8, u8, u32)> {
    let small = || prop_oneof![8 => 0..8u32, 1 => Just(0x1f), 1 => any::<u32>()];
    let loads = prop::sample::select(vec![
        0x20u16, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1, 0x80, 0x00, 0x81, 0x01, 0x07, 0x87,
    ]);
    let cells = prop::sample::select(vec![0x60u16, 0x61, 0x02, 0x03]);
    let arithmetic = prop::sample::select(vec![
        0x04u16, 0x14, 0x24, 0x34, 0x94, 0x54, 0x44, 0xa4, 0x64, 0x74, 0x0c, 0x1c, 0x2c, 0x3c,
        0x9c, 0x5c, 0x4c, 0xac, 0x6c, 0x7c, 0x84,
    ]);
    let jumps = prop::sample::select(vec![
        0x15u16, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d, 0x15, 0x15,
    ]);
    let far = || 0..6u8;
    prop_oneof![
        6 => (loads, far(), far(), prop_oneof![0..20u32, small()]),
        2 => (cells, far(), far(), 0..3u32),
        3 => (arithmetic, far(), far(), small()),
        7 => (jumps, far(), far(), small()),
        1 => (Just(0x05u16), far(), far(), 0..6u32),
        1 => (prop::sample::select(vec![0x06u16, 0x16]), far(), far(), 0..2u32),
    ]
}

/// A program that can be loaded: jumps end inside of it, and divisors are not zero.
fn any_program() -> impl Strategy<Value = Vec<Instruction>> {
    prop::collection::vec(any_instruction(), 0..30).prop_map(|sketches| {
        let len = sketches.len();
        let whole = sketches.into_iter().enumerate();
        let mut program: Vec<Instruction> = whole
            .map(|(at, (code, jt, jf, k))| {
                let most = len - at - 1;
                let within = |far: u8| far.min(most.min(255) as u8);
                let k = match code {
                    0x05 => k.min(most as u32),
                    0x34 | 0x94 => k.max(1),
                    _ => k,
                };
                let (jt, jf) = match code & 7 {
                    5 if code != 5 => (within(jt), within(jf)),
                    _ => (0, 0),
                };
                Instruction { code, jt, jf, k }
            })
            .collect();
        let last = Instruction {
            code: 0x06,
            k: 1,
            ..Instruction::default()
        };
        program.push(last);
        program
    })
}

/// A batch's memory and packets.
fn batch_of(sketches: &[Sketch]) -> (Vec<u8>, Vec<PacketDescriptor>) {
    let mut memory = vec![0xaa; 3];
    let packets = sketches.iter().map(|(bytes, cut, wire_len, has_tag)| {
        let offset = memory.len() as u32;
        let len = bytes.len().saturating_sub(*cut);
        memory.extend(&bytes[..len]);
        PacketDescriptor {
            offset,
            captured_len: len as u32,
            wire_len: *wire_len,
            vlan_tpid: 0x8100,
            vlan_tci: 5,
            flags: PacketFlags(if *has_tag { PacketFlags::VLAN.0 } else { 0 }),
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        }
    });
    let packets = packets.collect();
    (memory, packets)
}

/// What a filter accepts, packet by packet.
fn one_by_one(filter: &Filter, batch: &Batch<'_>, among: Selection) -> Selection {
    let mut accepted = among;
    accepted.retain(|at| filter.verdict_on(batch.bytes(at), &batch.packets[at]) != 0);
    accepted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn many_programs_decide_as_each_alone(
        programs in prop::collection::vec(any_program(), 1..6),
        batches in prop::collection::vec(prop::collection::vec(any_packet(), 1..80), 1..3),
        among in any::<u64>(),
    ) {
        let filters: Vec<Filter> = programs
            .iter()
            .map(|program| Filter::from_instructions(program.clone(), LinkType::ETHERNET).unwrap())
            .collect();
        let mut columns = Columns::default();
        let mut bindings = vec![Binding::default(); filters.len()];
        for sketches in &batches {
            let (memory, packets) = batch_of(sketches);
            let batch = Batch::new(&memory, &packets);
            let places = Places { batch: &batch, decoded: None };
            columns.begin();
            columns.links(places);
            let all = Selection::first(batch.len());
            let mut some = all;
            some.retain(|at| among.rotate_left(at as u32) & 1 != 0);
            for (number, filter) in filters.iter().enumerate() {
                // In two parts, or at once; one that comes later has other numbers in the same columns.
                let parts = if number % 2 == 0 { vec![some, all.without(some)] } else { vec![all] };
                for part in parts {
                    let found = columns.accepted(filter, &mut bindings[number], places, part);
                    if columns.refused(filter, &mut bindings[number], places, part) {
                        prop_assert_eq!(found, Selection::NONE);
                    }
                    // Who asks without the filter is told the same, of these packets only.
                    let refusal = bindings[number].refusal(LinkType::ETHERNET);
                    if let Some(count) = refusal.and_then(|it| columns.refuses(it, part)) {
                        prop_assert_eq!(count, part.len() as u64);
                        prop_assert!(columns.refused(filter, &mut bindings[number], places, part));
                    }
                    let expected = one_by_one(filter, &batch, part);
                    prop_assert_eq!(found, expected, "{}", filter.dump(Default::default()));
                    for at in part.iter().filter(|&at| packets[at].flags.0 == 0) {
                        let program = filter.instructions();
                        let wire_len = packets[at].wire_len;
                        let libpcap = flowgauge_sys::testing::offline_filter(program, batch.bytes(at), wire_len);
                        // It refuses some programs.
                        if let Some(verdict) = libpcap {
                            prop_assert_eq!(found.contains(at), verdict != 0);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn all_that_can_be_told_is() {
    let cell = "ip[2:2] - ((ip[0] & 15) << 2) - (tcp[12] >> 2) > 100";
    for (expression, tests) in [
        ("", 0),
        ("ip", 1),
        // Ethernet, the protocol of either version, fragments, four ports.
        ("tcp port 80", 9),
        // Whoever has its last load has the others.
        (cell, 2),
    ] {
        let filter = Filter::compile(expression, LinkType::ETHERNET, 96).unwrap();
        let found = filter.program.decisions().map(|it| it.tests.len());
        let text = filter.dump(Default::default());
        assert!(found == Some(tests), "{expression}: {found:?}\n{text}");
    }
    let chain = Filter::compile("ip6 protochain 17", LinkType::ETHERNET, 96).unwrap();
    assert!(chain.program.decisions().is_none());
    let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
    // x = length, then x + x, again and again: a number of 2^40 parts.
    let mut doubled = vec![op(0x80, 0, 0, 0)];
    for _ in 0..40 {
        doubled.extend([op(0x07, 0, 0, 0), op(0x0c, 0, 0, 0)]);
    }
    doubled.push(op(0x16, 0, 0, 0));
    let filter = Filter::from_instructions(doubled, LinkType::ETHERNET).unwrap();
    assert!(filter.program.decisions().is_none());
    // The ways to a step are doubled by each comparison, as each leaves a bit in A.
    let mut ways = vec![op(0x01, 0, 0, 0)];
    for bit in 0..20 {
        ways.extend([
            op(0x30, 0, 0, bit),
            op(0x15, 0, 3, 1),
            op(0x87, 0, 0, 0),
            op(0x44, 0, 0, 1 << bit),
            op(0x05, 0, 0, 1),
            op(0x87, 0, 0, 0),
            op(0x07, 0, 0, 0),
        ]);
    }
    ways.extend([op(0x87, 0, 0, 0), op(0x16, 0, 0, 0)]);
    let filter = Filter::from_instructions(ways, LinkType::ETHERNET).unwrap();
    assert!(filter.program.decisions().is_none());
}

#[test]
fn refusals_are_known_of_the_batch_at_hand_only() {
    let filters = ["tcp port 80", "tcp port 81"];
    let filters = filters.map(|filter| Filter::compile(filter, LinkType::ETHERNET, 96).unwrap());
    let mut bindings = [Binding::default(), Binding::default()];
    let mut columns = Columns::default();
    let (memory, packets) = batch_of(&[(vec![1; 60], 0, 60, false), (vec![2; 60], 0, 60, false)]);
    let batch = Batch::new(&memory, &packets);
    let places = Places {
        batch: &batch,
        decoded: None,
    };
    let all = Selection::first(2);
    for _ in 0..2 {
        columns.begin();
        columns.links(places);
        assert!(columns.refused(&filters[0], &mut bindings[0], places, all));
        columns.refused(&filters[1], &mut bindings[1], places, all);
        let refusals = [0, 1].map(|at| bindings[at].refusal(LinkType::ETHERNET).unwrap());
        for refusal in refusals {
            assert_eq!(columns.refuses(refusal, all), Some(2));
            assert_eq!(columns.refuses(refusal, Selection::first(1)), None);
            assert_eq!(Columns::default().refuses(refusal, all), None);
        }
        columns.begin();
        assert_eq!(columns.refuses(refusals[0], all), None);
        columns.links(places);
        // One that looks at the same tells it of both.
        assert!(columns.refused(&filters[1], &mut bindings[1], places, all));
        assert_eq!(columns.refuses(refusals[0], all), Some(2));
        assert_eq!(
            bindings[0]
                .refusal(LinkType::RAW)
                .and_then(|it| columns.refuses(it, all)),
            None
        );
    }
}

#[test]
fn what_filters_begin_with_alike_is_one_test() {
    let mut columns = Columns::default();
    let mut bind = |expression| {
        let filter = Filter::compile(expression, LinkType::ETHERNET, 96).unwrap();
        let (bound, _) = columns.bind(filter.program.decisions().unwrap());
        let sizes = (
            columns.arrivals.len(),
            columns.rests.len(),
            columns.columns.len(),
        );
        (bound, sizes)
    };
    let (http, sizes) = bind("tcp port 80");
    assert_eq!(bind("tcp port 80").1, sizes);
    // Ports are numbers in tables that are there.
    let (other, with_port) = bind("tcp port 81");
    assert_eq!(with_port, sizes);
    // Nobody asked for what has not passed these tests.
    assert!(sizes.0 > 4 && sizes.1 == 1, "{sizes:?}");
    // A port and an address: the address is asked of packets with that port.
    let (narrow, with_host) = bind("tcp port 80 and host 10.0.0.1");
    assert!(with_host.0 > sizes.0);
    drop((other, narrow));
    columns.release();
    assert_eq!(columns.bound.len(), 1);
    assert_eq!(
        (columns.arrivals.len(), columns.columns.len()),
        (sizes.0, sizes.2)
    );
    drop(http);
    columns.release();
    assert!(columns.is_empty());
}

#[test]
fn packets_of_several_link_types_go_to_the_program_of_each() {
    let mut set = FilterSet::new("ip proto 17", 96, None);
    let udp = [
        0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let mut memory = udp.to_vec();
    memory.extend([0; 12]);
    memory.extend([8, 0]);
    memory.extend(udp);
    let of = |link, offset, captured_len| PacketDescriptor {
        link,
        offset,
        captured_len,
        wire_len: captured_len,
        ..PacketDescriptor::default()
    };
    let packets = [
        of(LinkType::RAW, 0, 20),
        of(LinkType::ETHERNET, 20, 34),
        of(LinkType::RAW, 20, 34),
        of(LinkType::ETHERNET, 20, 30),
        of(LinkType::RAW, 0, 20),
    ];
    let batch = Batch::new(&memory, &packets);
    let mut columns = Columns::default();
    let mut selected = Selection::first(4);
    set.select(&mut columns, &batch, None, &mut selected)
        .unwrap();
    assert_eq!(selected.iter().collect::<Vec<_>>(), [0, 1, 3]);
    // A link type that libpcap knows nothing of.
    let unknown = [of(LinkType::RAW, 0, 20), of(LinkType(65_000), 0, 20)];
    let batch = Batch::new(&memory, &unknown);
    columns.begin();
    let mut selected = Selection::first(2);
    let error = set.select(&mut columns, &batch, None, &mut selected);
    assert!(error.is_err());
    assert!(selected.is_empty());
    let mut selected = Selection::first(1);
    assert!(
        set.select(&mut columns, &batch, None, &mut selected)
            .is_ok()
    );
    assert_eq!(selected.len(), 1);
}
