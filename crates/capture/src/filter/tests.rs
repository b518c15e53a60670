use flowgauge_wire::{Batch, Ledger, Nanos, Place};
use proptest::prelude::*;

use super::*;
use crate::source::{Interface, PacketSource};

const ETHERNET: LinkType = LinkType::ETHERNET;

fn compile(expression: &str) -> Filter {
    Filter::compile(expression, ETHERNET, 96).unwrap()
}

/// An IPv4 packet with a protocol and four bytes of ports.
fn frame(protocol: u8, from: u16, to: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28];
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame
}

fn descriptor(bytes: &[u8]) -> PacketDescriptor {
    PacketDescriptor {
        captured_len: bytes.len() as u32,
        wire_len: bytes.len() as u32,
        ..PacketDescriptor::default()
    }
}

#[test]
fn verdicts_are_the_snap_length() {
    let filter = compile("udp port 53");
    assert_eq!(filter.verdict(&frame(17, 4000, 53), 42), 96);
    assert_eq!(filter.verdict(&frame(17, 4000, 54), 42), 0);
    assert_eq!(filter.verdict(&frame(6, 4000, 53), 42), 0);
    assert!(compile("").matches(&[], 0));
    assert!(compile("greater 1000").matches(&[0; 14], 1000));
    assert!(!compile("greater 1000").matches(&[0; 14], 999));
    // Cut inside what the filter looks at.
    assert!(!filter.matches(&frame(17, 4000, 53)[..35], 42));
}

#[test]
fn a_tag_beside_the_frame_is_seen_in_its_place() {
    let bytes = frame(17, 4000, 53);
    let mut beside = descriptor(&bytes);
    beside.flags = PacketFlags::VLAN;
    beside.vlan_tpid = 0x8100;
    beside.vlan_tci = 0x2005;
    beside.wire_len += 4;
    let mut whole = bytes.clone();
    whole.splice(12..12, [0x81, 0, 0x20, 5]);
    for (expression, wanted) in [
        ("vlan", true),
        ("vlan 5", true),
        ("vlan 6", false),
        ("vlan and udp port 53", true),
        ("vlan and tcp", false),
        ("udp", false),
        ("ether[14:2] = 0x2005", true),
        ("ether[15:4] = 0x05080045", true),
        ("len = 46", true),
    ] {
        let filter = compile(expression);
        assert_eq!(
            filter.verdict_on(&bytes, &beside) != 0,
            wanted,
            "{expression}"
        );
        assert_eq!(filter.matches(&whole, 46), wanted, "{expression}");
    }
}

#[test]
fn programs_may_ask_for_the_tag_as_in_the_kernel() {
    // ldb vlan_present; jeq 1; ldh vlan_tci; ret a; ret 0
    let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let program = vec![
        op(0x30, 0, 0, 0xffff_f030),
        op(0x15, 0, 2, 1),
        op(0x28, 0, 0, 0xffff_f02c),
        op(0x16, 0, 0, 0),
        op(0x06, 0, 0, 0),
    ];
    let filter = Filter::from_instructions(program, ETHERNET).unwrap();
    let bytes = frame(17, 1, 2);
    let mut packet = descriptor(&bytes);
    assert_eq!(filter.verdict_on(&bytes, &packet), 0);
    packet.flags = PacketFlags::VLAN;
    packet.vlan_tci = 77;
    assert_eq!(filter.verdict_on(&bytes, &packet), 77);
}

#[test]
fn header_chains_are_followed_and_never_for_ever() {
    let filter = compile("ip6 protochain 17");
    let mut packet = vec![0; 14];
    packet[12..14].copy_from_slice(&[0x86, 0xdd]);
    packet.extend([0x60, 0, 0, 0, 0, 24, 0, 64]);
    packet.extend([0; 32]);
    let mut udp_behind = packet.clone();
    udp_behind.extend([
        60, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 0,
    ]);
    assert!(filter.matches(&udp_behind, 78));
    // Hop-by-hop options that announce hop-by-hop options, to the end of the packet.
    packet.extend([0; 4096]);
    assert!(!filter.matches(&packet, 4150));

    let op = |code, k: i32| Instruction {
        code,
        jt: 0,
        jf: 0,
        k: k.cast_unsigned(),
    };
    let endless = Filter::from_instructions(vec![op(0x05, -1), op(0x06, 1)], ETHERNET).unwrap();
    assert!(!endless.matches(&[0; 60], 60));
}

#[test]
fn unsafe_programs_are_refused() {
    let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let ret = op(0x06, 0, 0, 1);
    for (program, complaint) in [
        (vec![op(0x15, 1, 0, 0), ret], "jumps out"),
        (vec![op(0x05, 0, 0, 5), ret], "jumps out"),
        (vec![op(0x05, 0, 0, u32::MAX - 1), ret], "jumps out"),
        (vec![op(0x60, 0, 0, 16), ret], "scratch memory"),
        (vec![op(0x34, 0, 0, 0), ret], "divides by zero"),
        (vec![op(0xff, 0, 0, 0), ret], "unknown operation"),
        (vec![op(0x00, 0, 0, 0)], "does not end"),
    ] {
        let error = Filter::from_instructions(program, ETHERNET).unwrap_err();
        assert!(error.to_string().contains(complaint), "{error}");
    }
    assert!(
        Filter::from_instructions(Vec::new(), ETHERNET)
            .unwrap()
            .matches(&[], 0)
    );
}

#[test]
fn errors_say_where() {
    for (expression, place) in [
        ("tcp and prot 80", "column 9, \"prot\""),
        ("tcp port 80 or", "at the end, column 15"),
        ("(udp or tcp", "at the end, column 12"),
        ("udp ) and tcp", "column 5, \")\""),
        ("ip[0 = 4", "column 6, \"=\""),
        ("tcp port 80 and host and udp", "column 22, \"and\""),
        ("port nosuchservice", "column 6, \"nosuchservice\""),
    ] {
        let error = Filter::compile(expression, ETHERNET, 96).unwrap_err();
        assert!(error.to_string().contains(place), "{expression}: {error}");
    }
}

#[test]
fn dumps_are_tcpdumps() {
    // No IPv6 twin, no reordering: the same from every version of libpcap.
    let filter = compile("ether proto 0x88cc");
    let human = "\
(000) ldh      [12]
(001) jeq      #0x88cc          jt 2\tjf 3
(002) ret      #96
(003) ret      #0
";
    assert_eq!(filter.dump(DumpStyle::Human), human);
    let c = "\
{ 0x28, 0, 0, 0x0000000c },
{ 0x15, 0, 1, 0x000088cc },
{ 0x6, 0, 0, 0x00000060 },
{ 0x6, 0, 0, 0x00000000 },
";
    assert_eq!(filter.dump(DumpStyle::C), c);
    let decimal = "4\n40 0 0 12\n21 0 1 35020\n6 0 0 96\n6 0 0 0\n";
    assert_eq!(filter.dump(DumpStyle::Decimal), decimal);
}

/// A source of two batches: UDP and TCP over Ethernet, then raw IP.
#[derive(Default)]
struct Mixed {
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    calls: u32,
    ledger: Ledger,
}

impl PacketSource for Mixed {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        self.calls += 1;
        if self.calls > 2 {
            return Ok(None);
        }
        self.memory = frame(17, 1, 2);
        let second = self.memory.len() as u32;
        self.memory.extend(frame(6, 1, 2));
        let raw = self.calls == 2;
        let first = descriptor(&self.memory[..second as usize]);
        self.packets = vec![
            first,
            PacketDescriptor {
                offset: second,
                ..first
            },
        ];
        if raw {
            for packet in &mut self.packets {
                packet.offset += 14;
                packet.captured_len -= 14;
                packet.link = LinkType::RAW;
            }
        }
        self.ledger.take(2, 84);
        let mut batch = Batch::new(&self.memory, &self.packets);
        batch.now = Some(Nanos(9));
        Ok(Some(batch))
    }

    fn interfaces(&self) -> &[Interface] {
        &[]
    }

    fn ledger(&mut self) -> Ledger {
        self.ledger.clone()
    }
}

#[test]
fn filtered_sources_count_what_they_refuse() {
    let mut source = Filtered::new(Mixed::default(), "tcp").unwrap();
    for link in [ETHERNET, LinkType::RAW] {
        let batch = source.next_batch().unwrap().unwrap();
        assert_eq!((batch.len(), batch.now), (1, Some(Nanos(9))));
        assert_eq!(batch.packets[0].link, link);
        assert_eq!(batch.bytes(0).len(), if link == ETHERNET { 42 } else { 28 });
        let ledger = source.ledger();
        assert!(ledger.is_balanced());
        assert_eq!(ledger.at(Place::Filter), ledger.delivered());
        assert_eq!(ledger.delivered_bytes(), 42 * ledger.delivered());
    }
    assert!(source.next_batch().unwrap().is_none());
}

/// Operations libpcap's interpreter knows, jumps and returns apart.
const STRAIGHT: [u16; 33] = [
    0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x80, 0x81, 0xb1, 0x00, 0x01, 0x07, 0x87, 0x60, 0x61, 0x02,
    0x03, 0x04, 0x14, 0x24, 0x34, 0x94, 0x44, 0x54, 0xa4, 0x64, 0x74, 0x84, 0x0c, 0x1c, 0x3c, 0x9c,
    0xac,
];
const CONDITIONS: [u16; 8] = [0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d];

/// A program that libpcap may run: all scratch cells written first, jumps inside.
fn any_program() -> impl Strategy<Value = Vec<Instruction>> {
    let body = prop::collection::vec(
        (
            0..60_usize,
            any::<u8>(),
            any::<u8>(),
            any::<u32>(),
            0..48_u32,
        ),
        1..60,
    );
    body.prop_map(|body| {
        let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let mut program: Vec<_> = (0..16).map(|cell| op(0x02, 0, 0, cell)).collect();
        let len = body.len();
        for (at, (choice, jt, jf, large, small)) in body.into_iter().enumerate() {
            // Instructions behind this one; the return at the end is one of them.
            let behind = (len - at) as u32;
            let within = |jump: u8| (u32::from(jump) % behind) as u8;
            program.push(match choice {
                0..45 => {
                    let code = STRAIGHT[choice % STRAIGHT.len()];
                    let k = match code {
                        0x60 | 0x61 | 0x02 | 0x03 => small % 16,
                        0x64 | 0x74 => small % 32,
                        0x34 | 0x94 => small + 1,
                        0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0xb1 if jt > 3 => small,
                        _ => large,
                    };
                    op(code, 0, 0, k)
                }
                45..57 => {
                    let code = CONDITIONS[choice % CONDITIONS.len()];
                    op(
                        code,
                        within(jt),
                        within(jf),
                        if jt > 99 { small } else { large },
                    )
                }
                57 => op(0x05, 0, 0, u32::from(within(jt))),
                58 => op(0x06, 0, 0, large),
                _ => op(0x16, 0, 0, 0),
            });
        }
        program.push(op(0x16, 0, 0, 0));
        program
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_program_runs_as_in_libpcap(
        program in any_program(),
        packet in prop::collection::vec(any::<u8>(), 0..64),
        wire_len in any::<u32>(),
    ) {
        let expected = flowgauge_sys::testing::offline_filter(&program, &packet, wire_len);
        prop_assert!(expected.is_some());
        let filter = Filter::from_instructions(program, ETHERNET).unwrap();
        prop_assert_eq!(Some(filter.verdict(&packet, wire_len)), expected);
    }

    #[test]
    fn any_instructions_are_refused_or_end(
        program in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>(), -8..8_i32), 0..30),
        packet in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut program: Vec<_> = program
            .into_iter()
            .map(|(code, jt, jf, k)| Instruction {
                code: u16::from(code),
                jt: jt % 4,
                jf: jf % 4,
                k: k.cast_unsigned(),
            })
            .collect();
        program.push(Instruction { code: 0x06, jt: 0, jf: 0, k: 1 });
        if let Ok(filter) = Filter::from_instructions(program, ETHERNET) {
            filter.verdict(&packet, 64);
        }
    }
}

/// Too long for libpcap to optimise: it means the same.
#[test]
fn long_expressions_mean_what_short_ones_do() {
    let hosts: Vec<String> = (0..400)
        .map(|host| format!("udp port {}", 1000 + host))
        .collect();
    let filter = compile(&hosts.join(" or "));
    assert!(filter.expression().len() > 4096);
    for port in [999, 1000, 1001, 1200, 1399, 1400] {
        let wanted = (1000..1400).contains(&port);
        assert_eq!(
            filter.verdict(&frame(17, port, 53), 42) != 0,
            wanted,
            "{port}"
        );
        assert_eq!(
            filter.verdict(&frame(17, 53, port), 42) != 0,
            wanted,
            "{port}"
        );
        assert_eq!(filter.verdict(&frame(6, port, 53), 42), 0);
    }
}
