use flowgauge_wire::LinkType;
use proptest::prelude::*;

use super::*;
use crate::filter::Filter;

const ETHERNET: i32 = 1;

/// Without the optimiser, which long texts do without: what is loaded is in the order of the words. (With it libpcap 1.10
/// refuses TCP over IPv6 from port 4 to port 2 by `not host 10.0.0.0 and not (port 0 or 1) and !not port 3 or 3 and port 0
/// or 3 or src or dst port 0 or !not src or dst port 4`.)
fn in_order(text: &str) -> Result<Vec<Instruction>, String> {
    libpcap::compile(&format!("{text}{}", " ".repeat(5000)), ETHERNET, 96, None)
}

fn filter(program: Vec<Instruction>) -> Filter {
    Filter::from_instructions(program, LinkType::ETHERNET).unwrap()
}

/// What is compiled of an expression that is divided wherever it can be.
fn texts(expression: &str) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    compile(expression, 1, 96, |text| {
        texts.push(text.to_owned());
        in_order(text)
    })?;
    Some(texts)
}

#[test]
fn pieces_stand_for_themselves() {
    for (expression, expected) in [
        ("tcp", vec!["tcp"]),
        (
            "host 10.0.0.1 or 10.0.0.2",
            vec!["host 10.0.0.1", "host 10.0.0.2"],
        ),
        (
            "src or dst port 1 or 2 && not 3",
            vec![
                "src or dst port 1",
                "src or dst port 2",
                "not src or dst port 3",
            ],
        ),
        (
            "tcp and (port 80 or (81||82)) and ! udp",
            vec!["tcp", "port 80", "port 81", "port 82", "not udp"],
        ),
        (
            "src host(10.0.0.1 or not 10.0.0.2)or 10.0.0.3",
            vec![
                "src host 10.0.0.1",
                "not src host 10.0.0.2",
                "src host 10.0.0.3",
            ],
        ),
        (
            "not (tcp[13]&7!=0 or ip[(2+0):2] > 40) and less 60",
            vec!["tcp[13]&7!=0", "ip[(2+0):2] > 40", "less 60"],
        ),
        (
            "vlan 5 and mpls && tcp and (port 1 or 2)",
            vec![
                "vlan 5 and mpls",
                "vlan 5 and mpls and (tcp)",
                "vlan 5 and mpls and (port 1)",
                "vlan 5 and mpls and (port 2)",
            ],
        ),
        (
            "vlan and not src or dst port 1",
            vec!["vlan", "vlan and (not src or dst port 1)"],
        ),
        (
            "net 10.0.0.0 mask 255.0.0.0 or ip6 host ::1 or ether host 02:00:00:00:00:01",
            vec![
                "net 10.0.0.0 mask 255.0.0.0",
                "ip6 host ::1",
                "ether host 02:00:00:00:00:01",
            ],
        ),
    ] {
        let texts = texts(expression);
        assert_eq!(
            texts,
            Some(expected.into_iter().map(str::to_owned).collect()),
            "{expression}"
        );
    }
}

#[test]
fn what_is_not_understood_is_compiled_as_a_whole() {
    for expression in [
        "",
        "host 10.0.0.1 or",
        "host 10.0.0.1 or (host 10.0.0.2",
        "host 10.0.0.1) or host 10.0.0.2",
        "10.0.0.1 or host 10.0.0.2",
        "tcp or 10.0.0.2",
        "host 10.0.0.1 or (10.0.0.2 or host 10.0.0.3)",
        "host (host 10.0.0.1 or 10.0.0.2)",
        "ip broadcast or 10.0.0.1",
        // What headers begin elsewhere for.
        "vlan or host 10.0.0.1",
        "host 10.0.0.1 or vlan",
        "vlan and host 10.0.0.1 or host 10.0.0.2",
        "vlan and (host 10.0.0.1 or vlan)",
        "not vlan and host 10.0.0.1",
        "(vlan) and host 10.0.0.1",
        "vlan",
        "mpls or host 10.0.0.1",
        "(len + 2) > 50 or tcp",
        "50 < len or tcp",
    ] {
        assert_eq!(texts(expression), None, "{expression}");
    }
    // Nothing is taken that libpcap refuses as a whole.
    for expression in [
        "host 10.0.0.1 or tcp tcp",
        "tcp or port 99999",
        "port 80 or ip",
    ] {
        let found = texts(expression);
        assert_eq!(
            found.is_some(),
            in_order(expression).is_ok(),
            "{expression}: {found:?}"
        );
    }
    let deep = format!("{}tcp{}", "(".repeat(5000), ")".repeat(5000));
    assert_eq!(texts(&deep), None);
    let changes = "tcp and udp or ".repeat(5000) + "tcp";
    assert_eq!(texts(&changes), None);
}

#[test]
fn thousands_of_hosts_are_compiled_at_once_and_found() {
    let host = |number: u32| format!("10.1.{}.{}", number / 200, number % 200);
    let packet = |source: [u8; 4], target: [u8; 4]| {
        let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28];
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend(source);
        packet.extend(target);
        packet.extend([0, 53, 0, 53, 0, 8, 0, 0]);
        packet
    };
    let others = [192, 0, 2, 1];
    let hosts: Vec<String> = (0..3000).map(host).collect();
    for (expression, wanted) in [
        (format!("host {}", hosts.join(" or host ")), true),
        (format!("udp and (host {})", hosts.join(" or ")), true),
        (format!("host ({}) and port 53", hosts.join(" or ")), true),
        (format!("not host {}", hosts.join(" and not host ")), false),
    ] {
        let filter = Filter::compile(&expression, LinkType::ETHERNET, 96).unwrap();
        for number in (0..3000u32).step_by(7).chain([2999]) {
            let host = [10, 1, (number / 200) as u8, (number % 200) as u8];
            assert_eq!(
                filter.matches(&packet(host, others), 42),
                wanted,
                "{number}"
            );
            assert_eq!(
                filter.matches(&packet(others, host), 42),
                wanted,
                "{number}"
            );
        }
        for other in [others, [10, 1, 15, 0], [10, 1, 0, 200]] {
            assert_eq!(
                filter.matches(&packet(other, others), 42),
                !wanted,
                "{other:?}"
            );
        }
    }
}

fn any_term() -> impl Strategy<Value = String> {
    let name = || (0..4u8).prop_map(|last| format!("10.0.0.{last}"));
    let names = |joins: [&'static str; 4]| {
        let more = (prop::sample::select(joins.to_vec()), name());
        (name(), prop::collection::vec(more, 0..3)).prop_map(|(first, more)| {
            more.into_iter()
                .fold(first, |text, (join, name)| format!("{text}{join}{name}"))
        })
    };
    let joins = [" or ", " and ", " or not ", "||"];
    prop_oneof![
        names(joins).prop_map(|names| format!("host {names}")),
        names(joins).prop_map(|names| format!("src host ({names})")),
        (0..6u8, 0..6u8).prop_map(|(one, two)| format!("port {one} or {two}")),
        (0..6u8).prop_map(|port| format!("src or dst port {port}")),
        (0..6u8).prop_map(|port| format!("udp dst port {port}")),
        (0..6u8).prop_map(|port| format!("portrange {port}-{}", port + 2)),
        prop::sample::select(vec![
            "tcp",
            "udp",
            "ip6",
            "arp",
            "less 40",
            "greater 50",
            "tcp[13] & 7!=0",
            "ip[2:2] > 40",
            "net 10.0.0.0/31",
            "ether src 02:00:00:00:00:01",
            "ip multicast",
            "udp[(1+1):2] = 2",
            "net 10.0.0.0 mask 255.255.255.254",
            "icmp6",
            "ip6 host ::2",
        ])
        .prop_map(str::to_owned),
    ]
}

fn any_expression() -> impl Strategy<Value = String> {
    any_term().prop_recursive(4, 40, 6, |inner| {
        let join = prop::sample::select(vec![" or ", " and ", " && ", "\n||"]);
        let not = prop::sample::select(vec!["", "", "not ", "! ", "!not "]);
        let part =
            (not, inner.clone(), any::<bool>()).prop_map(|(not, part, grouped)| match grouped {
                true => format!("{not}({part})"),
                // A name behind it would be one of another kind in a list of ports.
                false => format!("{not}{part}"),
            });
        prop::collection::vec((join, part), 1..6).prop_map(|parts| {
            let mut text = String::new();
            for (number, (join, part)) in parts.iter().enumerate() {
                text.push_str(if number > 0 { join } else { "" });
                text.push_str(part);
            }
            text
        })
    })
}

fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    let ends = (0..4u8, 0..4u8, 0..6u8, 0..6u8);
    let tags = prop::sample::select(vec![0, 0, 1, 1, 2]);
    let kind = prop::sample::select(vec![0x0800u16, 0x0800, 0x0800, 0x86dd, 0x0806]);
    let protocol = prop::sample::select(vec![6u8, 17, 1, 58]);
    (ends, tags, kind, protocol, 0..90usize, any::<bool>()).prop_map(
        |((source, target, from, to), tags, kind, protocol, cut, is_cut)| {
            let mut packet = vec![2, 0, 0, 0, 0, source, 2, 0, 0, 0, 0, target];
            for tag in 0..tags {
                packet.extend([0x81, 0, 0, tag + 1]);
            }
            packet.extend(kind.to_be_bytes());
            match kind {
                0x0800 => {
                    packet.extend([0x45, 0, 0, 30 + 10 * source, 0, 0, 0, 0, 64, protocol, 0, 0]);
                    packet.extend([10, 0, 0, source, 10, 0, 0, target]);
                }
                0x86dd => {
                    packet.extend([0x60, 0, 0, 0, 0, 24, protocol, 64]);
                    for last in [source, target] {
                        packet.extend([0; 15]);
                        packet.push(last);
                    }
                }
                _ => {
                    packet.extend([
                        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, source, 10, 0, 0, source,
                    ]);
                    packet.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, target]);
                }
            }
            packet.extend([0, from, 0, to, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, to, 0, 0]);
            if is_cut {
                packet.truncate(cut);
            }
            packet
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        // (libpcap refuses what cannot be; most is not.)
        max_global_rejects: 150,
        ..ProptestConfig::with_cases(600)
    })]

    #[test]
    fn pieces_decide_as_the_whole(
        shifts in prop::sample::select(vec!["", "", "vlan and ", "vlan 1 && ", "vlan and vlan and "]),
        expression in any_expression(),
        piece in 1..120usize,
        packets in prop::collection::vec(any_packet(), 30),
    ) {
        let expression = match shifts {
            "" => expression,
            shifts => format!("{shifts}({expression}) and not less 20"),
        };
        let whole = in_order(&expression);
        prop_assume!(whole.is_ok());
        let whole = whole.unwrap_or_default();
        let in_libpcap = |packet: &[u8]| flowgauge_sys::testing::offline_filter(&whole, packet, packet.len() as u32);
        let pieces = compile(&expression, piece, 96, in_order);
        prop_assert!(pieces.is_some(), "{}", expression);
        let pieces = filter(pieces.unwrap_or_default());
        for packet in &packets {
            let len = packet.len() as u32;
            let expected = in_libpcap(packet).unwrap();
            // Also of packets that end within what is looked at.
            prop_assert_eq!(pieces.verdict(packet, len), expected, "{}", expression);
        }
    }
}
