//! Components that look at single packets: which they let through, what they tell of each.

use crate::support::{Run, answer, ethernet, ipv4, ipv6, program, tcp, udp};
use flowgauge_capture::open_reader;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stack::Cell;
use flowgauge_wire::LinkType;

/// How many of `packets` a component lets through.
fn passed(component: &str, packets: &[Vec<u8>]) -> u64 {
    let mut run = Run::new(&format!("[stack] {component} count"));
    run.packets(packets, 3);
    run.result("count")
}

fn refused(stack: &str) -> String {
    program(&format!("[stack] {stack}")).expect_err(stack)
}

#[test]
fn texts_are_searched_for_within_offset_and_depth() {
    let packet = |text: &[u8]| ipv4(17, 1, 0, false, &udp(1024, 53, text));
    let packets = [
        packet(b"GET / x"),
        packet(b"POST /"),
        packet(b"\x00\x01|"),
        packet(b""),
    ];
    for (component, expected) in [
        ("search { GET }", 1),
        ("search { \"GET||POST\" }", 2),
        ("str_search { \"|00 01|\\\\|\" }", 1),
        ("search { get }", 0),
        ("search { get, nocase = yes }", 1),
        // The payload begins behind 28 bytes of headers.
        ("search { GET, 28, 3 }", 1),
        ("search { GET, 29 }", 0),
        ("search { GET, 0, 30 }", 0),
        ("search { GET, 0, 3, in = payload }", 1),
        ("search { \"/\", in = payload, offset = 4, depth = 1 }", 1),
        ("search { \"|45 00|\", in = ip, depth = 2 }", 4),
        ("search { GET, 1000 }", 0),
    ] {
        assert_eq!(passed(component, &packets), expected, "{component}");
    }
    let said = refused("search { GETX, depth = 3 } count");
    assert!(
        said.contains("depth: 3 is less than the 4 bytes of the pattern"),
        "{said}"
    );
    let said = refused("search { \"a|00\" } count");
    assert!(said.contains("pattern: a | has no second one"), "{said}");
}

#[test]
fn headers_are_left_and_lengths_stay() {
    let mut run = Run::new(
        "[stack] headers to_buffer bytes { of = captured, as = kept } bytes { as = wire }",
    );
    let payload = [7; 100];
    // Behind an IP header without options: UDP, TCP, the later fragment of a datagram, a protocol that is not known.
    let packets = [
        ipv4(17, 1, 0, false, &udp(1, 2, &payload)),
        ipv4(6, 1, 0, false, &[&tcp(1, 2)[..], &payload].concat()),
        ipv4(17, 1, 64, false, &payload),
        ipv4(99, 1, 0, false, &payload),
    ];
    let wire: usize = packets.iter().map(Vec::len).sum();
    let tcp_header = tcp(1, 2).len();
    let kept = [28, 20 + tcp_header, 20, 20];
    run.packets(&packets, 3);
    let table = run.table("to_buffer");
    for ((row, packet), kept) in table.rows.iter().zip(&packets).zip(kept) {
        let bytes = packet[..kept].iter();
        let hexadecimal: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(row[3], Cell::Text(hexadecimal));
        assert_eq!(row[1], Cell::Unsigned(packet.len() as u64));
    }
    assert_eq!(run.result("kept"), kept.iter().sum::<usize>() as u64);
    assert_eq!(run.result("wire"), wire as u64);
}

#[test]
fn expressions_match_payloads_of_whole_and_cut_packets() {
    let http = ipv4(
        6,
        1,
        0,
        false,
        &[tcp(40_000, 80), b"GET /a HTTP/1.1\r\n".to_vec()].concat(),
    );
    let six = ipv6(
        6,
        &[tcp(40_000, 80), b"GET /b HTTP/1.0\r\n".to_vec()].concat(),
    );
    let packets = [http.clone(), six, ipv4(6, 1, 0, false, &tcp(1, 2))];
    assert_eq!(
        passed("regexp { \"^GET /[ab] HTTP/1\\.[01]\" }", &packets),
        2
    );
    assert_eq!(passed("regexp { \"^GET.*1\\.1\" }", &packets), 1);
    assert_eq!(passed("regexp { \"^E\", in = packet }", &packets), 2);
    let mut run = Run::new("[stack] regexp { \"HTTP\" } count");
    let frame = ethernet(Some(7), &http);
    for captured in 0..frame.len() {
        run.frame(LinkType::ETHERNET, &frame, captured);
    }
    // Behind 18 + 20 + 20 bytes of headers, HTTP ends 11 bytes on.
    assert_eq!(run.result("count"), (frame.len() - 58 - 11) as u64);
    let said = refused("regexp { \"(a\" } count");
    assert!(said.contains("expression: unclosed group"), "{said}");
}

#[test]
fn sums_are_over_the_layer_asked_for() {
    let packet = ipv4(17, 1, 0, false, &udp(1, 2, &[3, 4]));
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte) + 1).sum::<u64>();
    // Two bytes of padding follow the datagram.
    let frame = [ethernet(None, &packet), vec![9, 9]].concat();
    for (layer, expected) in [
        (0, sum(&frame)),
        (1, sum(&packet)),
        (2, sum(&packet[20..])),
        (3, sum(&[3, 4])),
    ] {
        let mut run = Run::new(&format!("[stack] hash {{ {layer} }}"));
        run.frame(LinkType::ETHERNET, &frame, frame.len());
        assert_eq!(run.result("hash"), expected, "layer {layer}");
    }
    // What is no IP: all behind the link layer; no transport.
    let arp = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6][..], &[5; 28]].concat();
    for (layer, expected) in [(1, 28 * 6), (2, 0)] {
        let mut run = Run::new(&format!("[stack] hash {{ {layer} }}"));
        run.frame(LinkType::ETHERNET, &arp, arp.len());
        assert_eq!(run.result("hash"), expected, "layer {layer}");
    }
}

#[test]
fn a_sample_of_flows_has_both_directions_of_each() {
    let mut packets = Vec::new();
    for port in 0..2000_u16 {
        packets.push(ipv4(17, 1, 0, false, &udp(1024 + port, 53, b"q")));
        packets.push(answer(ipv4(17, 2, 0, false, &udp(53, 1024 + port, b"a"))));
        packets.push(ipv6(17, &udp(1024 + port, 53, b"q")));
    }
    let mut run = Run::new("[stack] hash_sample { 256, 10 } count ipcnxdemux < identity > count");
    run.packets(&packets, 100);
    let passed = run.result("count(0)");
    // Within four standard deviations of a quarter of the flows: 2000 of two packets, 2000 of one.
    assert!((1_370..=1_630).contains(&passed), "{passed}");
    let table = run.table("hash_sample");
    assert_eq!(table.rows.len(), 10);
    // Each packet's flow has its other direction among the samples, or lies at their edge.
    let hosts: Vec<&Cell> = table.rows.iter().map(|row| &row[7]).collect();
    assert!(
        hosts
            .iter()
            .all(|protocol| **protocol == Cell::Unsigned(17))
    );
    assert_eq!(super_set(&packets, 1024), packets.len() as u64);
    let chosen = super_set(&packets, 256);
    assert_eq!(chosen, passed);
    let said = refused("hash_sample { 1025 } count");
    assert!(said.contains("1025 is more than 1024"), "{said}");
}

/// How many packets of a set of flows are let through, seen one by one and in another order.
fn super_set(packets: &[Vec<u8>], range: u32) -> u64 {
    let turned: Vec<Vec<u8>> = packets.iter().rev().cloned().collect();
    passed(&format!("hashsamp {{ {range} }}"), &turned)
}

#[test]
fn each_packet_has_its_size_and_time() {
    let packet = ipv4(17, 1, 0, false, &udp(1, 2, &[0; 100]));
    let mut run =
        Run::new("[stack] pktinfo packet_info { captured } pktinfo { time } pktinfo { 0 }");
    run.frame(LinkType::RAW, &packet, 60);
    assert_eq!(run.result("packet_info(0)"), 128);
    assert_eq!(run.result("packet_info(1)"), 60);
    assert_eq!(run.result("packet_info(2)"), 1_000_000_000);
    assert_eq!(run.result("packet_info(3)"), 1 << 32);
}

#[test]
fn fields_are_told_by_name() {
    let mut run = Run::new(
        "[stack] protinfo { ip.ttl } protinfo { tcp.srcport } protinfo { ip.src } protinfo { vlan.id }",
    );
    let frame = ethernet(Some(0x6007), &ipv4(6, 1, 0, false, &tcp(40_000, 80)));
    run.frame(LinkType::ETHERNET, &frame, frame.len());
    // Later packets without the field change nothing.
    run.frame(LinkType::RAW, &ipv6(17, &udp(1, 2, b"")), 1000);
    for (number, expected) in [64, 40_000, u64::from(u32::from_be_bytes([192, 0, 2, 1])), 7]
        .into_iter()
        .enumerate()
    {
        let label = format!("protocol_field({number})");
        assert_eq!(run.result(&label), expected, "{label}");
    }
    let said = refused("protocol_field { tcp.sport }");
    assert!(
        said.contains("field: there is no field tcp.sport"),
        "{said}"
    );
    assert!(said.contains("did you mean tcp.port?"), "{said}");
    let said = refused("protocol_field { ipv6.src }");
    assert!(said.contains("ipv6.src is not a number"), "{said}");
}

#[test]
fn display_filters_select() {
    let segment = [tcp(40_000, 80), b"GET /index.html".to_vec()].concat();
    let packets = [
        ipv4(6, 1, 0, false, &segment),
        answer(ipv4(6, 2, 0, false, &tcp(80, 40_000))),
        ipv4(17, 3, 0, false, &udp(1024, 53, &[0xde, 0xad, 0xbe, 0xef])),
        ipv6(17, &udp(1024, 8080, b"")),
        ipv4(17, 4, 0, true, &udp(1024, 53, &[0; 16])),
        ipv4(1, 5, 0, false, &[8, 0, 0, 0, 0, 7, 0, 9]),
    ];
    for (filter, expected) in [
        ("", 6),
        ("ip", 5),
        ("tcp", 2),
        // A fragment has no transport.
        ("udp", 2),
        ("ip.src == 192.0.2.1", 4),
        ("ip.addr == 192.0.2.0/24", 5),
        ("ip.addr eq 198.51.100.7 and tcp.port == 80", 2),
        // All addresses must differ; packets without the field are out.
        ("ip.addr != 192.0.2.1", 0),
        ("ip.addr !== 192.0.2.1", 5),
        ("!(ip.addr == 192.0.2.1)", 1),
        ("not ip", 1),
        ("tcp or udp and udp.port == 8080", 3),
        ("(tcp or udp) and udp.port == 8080", 1),
        ("tcp ^^ ip", 3),
        ("tcp.port in {1..79, 81..50000}", 2),
        ("udp.dstport in {53 8080}", 2),
        ("tcp.port not in {80}", 4),
        ("ip.src in {192.0.2.0/25}", 4),
        ("ip.src in {192.0.2.1..192.0.2.9}", 4),
        ("ipv6.addr == 2001:db8::/32", 1),
        ("ipv6.dst == 2001:db8::2", 1),
        ("ipv6.addr == 2001:db9::/32", 0),
        ("frame contains \"index\"", 1),
        ("tcp contains 2f:69:6e", 1),
        ("udp.payload contains de:ad", 1),
        ("tcp.payload matches \"^get /[a-z]+\\\\.HTML$\"", 1),
        ("udp.payload[0:2] == de:ad", 1),
        ("udp.payload[1-2] == ad:be", 1),
        ("udp.payload[-1] == ef", 1),
        ("udp.payload[2:] == be:ef", 1),
        ("udp.payload[:1] > d0", 1),
        ("udp.payload[4] == 0", 0),
        ("ip[9] == 0x11", 2),
        ("tcp[13] == 10", 2),
        ("len(tcp.payload) == 15", 1),
        ("tcp.len > 0", 1),
        ("tcp.flags & 0x10", 2),
        ("tcp.flags & 0x12 == 0x12", 0),
        ("tcp.flags.ack == true && tcp.flags.syn == 0", 2),
        ("tcp.srcport > tcp.dstport", 1),
        ("ip.src == ip.dst", 0),
        ("icmp.type == 8 && icmp.ident == 7 && icmp.seq == 9", 1),
        ("ip.flags.mf == 1", 1),
        ("ip.ttl == 0100", 5),
        ("frame.len < 40", 2),
        ("frame.time_epoch >= 4 and frame.time_epoch < 5.5", 2),
        ("count(ip.addr) == 2", 5),
        ("eth", 0),
    ] {
        // Quotation marks of the language of stacks around those of the filter.
        let component = format!("ethereal {{ \"{}\" }}", filter.replace('"', "\\\""));
        assert_eq!(passed(&component, &packets), expected, "{filter}");
    }
    let mut run = Run::new(
        "[stack] ethereal { \"vlan.id == 7 && eth.src == 02:00:00:00:00:02 && eth.type == 0x8100\" } count",
    );
    let frame = ethernet(Some(7), &packets[0]);
    run.frame(LinkType::ETHERNET, &frame, frame.len());
    assert_eq!(run.result("count"), 1);
}

/// However packets are damaged or cut, nothing panics and what passes is a part of what came.
#[test]
fn hostile_packets_go_through_all_of_them() {
    let mut trace = Vec::new();
    let config = Config::new(Preset::Hostile).with_packets(5_000);
    generate(&config, &mut trace).expect("memory");
    let mut run = Run::new(
        "[stack] count { as = all } hash { 0 } hash { 1 } hash { 2 } hash { 3 } packet_info \
         protinfo { tcp.options.mss_val } protinfo { icmp.seq } \
         filter { \"\" } ethereal { \"tcp.dstport > 2000 or tunnel.id or frame[-1] < 20 or not tcp.payload\" } \
         count { as = most } search { \"|00|\", in = payload } regexp { \"[a-z]\" } hash_sample { 512 } count { as = some }",
    );
    let mut source = open_reader(std::io::Cursor::new(trace), "test").expect("a trace");
    run.source(&mut source);
    run.finish();
    let (all, most, some) = (run.result("all"), run.result("most"), run.result("some"));

    assert!(all > 4_000 && most < all && some > 0 && some < most);
}

/// An Ethernet frame of another place on the way: another tag, a hop later.
fn mirrored(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[8] -= 1;
    packet[10] ^= 0x5a;
    ethernet(Some(99), &packet)
}

#[test]
fn copies_of_packets_are_dropped_whatever_the_batches() {
    let packets: Vec<Vec<u8>> = (0..40)
        .map(|id| ipv4(17, id, 0, false, &udp(1024, 53, &[1, 2, 3])))
        .collect();
    let mut frames = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        let time = number as u64 * 1_000_000;
        frames.push((time, ethernet(None, packet)));
        frames.push((time + 20_000, mirrored(packet)));
        // Out of the window: sent again as it was.
        frames.push((time + 2_000_000_000, ethernet(None, packet)));
    }
    frames.sort_by_key(|(time, _)| *time);
    for size in [1, 2, 3, 7, 256] {
        let mut run = Run::new("[stack] deduplicate count bytes");
        for frames in frames.chunks(size) {
            run.ethernet_at(frames);
        }
        assert_eq!(run.result("deduplicate"), 40, "batches of {size}");
        assert_eq!(run.result("count"), 80, "batches of {size}");
    }
    // Less is remembered than lies between a packet and its copy.
    let mut run = Run::new("[stack] deduplicate { keep = 1 } count");
    let both = |at: usize| (at as u64, ethernet(None, &packets[at / 2]));
    run.ethernet_at(&[both(0), both(1), both(2), both(0)]);
    assert_eq!(run.result("count"), 3);
}

#[test]
fn segments_sent_again_are_no_copies_unless_equal_to_the_byte() {
    let segment = |id: u16, text: &[u8]| {
        let segment = [tcp(40_000, 80), text.to_vec()].concat();
        ipv4(6, id, 0, false, &segment)
    };
    let dropped = |window: &str, first: Vec<u8>, second: Vec<u8>| {
        let mut run = Run::new(&format!("[stack] deduplicate {{ {window} }} count"));
        run.at(&[(0, first), (50_000_000, second)]);
        run.result("deduplicate")
    };
    // By the IP id.
    assert_eq!(dropped("100ms", segment(7, b"x"), segment(8, b"x")), 0);
    // A host that leaves it 0, and IPv6, which has none: the limit that the help names.
    assert_eq!(dropped("100ms", segment(0, b"x"), segment(0, b"x")), 1);
    let six = ipv6(6, &[tcp(1, 2), b"x".to_vec()].concat());
    assert_eq!(dropped("100ms", six.clone(), six), 1);
    // A window shorter than the time to the retransmission keeps it.
    assert_eq!(dropped("10ms", segment(0, b"x"), segment(0, b"x")), 0);
    // Other bytes under the same id and sequence number.
    assert_eq!(dropped("100ms", segment(0, b"x"), segment(0, b"y")), 0);
}

#[test]
fn datagrams_put_together_are_compared_whole() {
    let datagram = udp(1024, 53, &[7; 64]);
    let pieces = |id| {
        [
            ipv4(17, id, 0, true, &datagram[..32]),
            ipv4(17, id, 32, false, &datagram[32..]),
        ]
    };
    let mut run = Run::new("[stack] ipreass deduplicate { 1h } count");
    run.packets(&[pieces(1), pieces(1), pieces(2)].concat(), 2);
    assert_eq!(run.result("deduplicate"), 1);
    assert_eq!(run.result("count"), 2);
}
