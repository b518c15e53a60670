//! `examples/pcap/nids` with crate `aho-corasick` in place of the example's automata: `nids auto|dfa|contiguous RULES FILE
//! [PACKETS]`, for Ethernet in classic pcap files. Prints CPU seconds of everything but reading the rules, packets, bytes of payload
//! and alerts.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

#[path = "support/clock.rs"]
mod clock;
#[path = "support/snort.rs"]
#[allow(dead_code, reason = "a test uses more of it")]
mod snort;

use std::collections::HashMap;
use std::fs;
use std::rc::Rc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError};
use flowgauge_capture::PacketSource;
use snort::Rule;

/// Rules for more ports than these are with those for any.
const WIDE: usize = 1024;

/// Rules whose longest contents are searched for together.
struct Group {
    search: AhoCorasick,
    rules: Vec<usize>,
}

/// Groups by UDP or not and port: of sources, of destinations, and those of any port.
struct Groups {
    by_port: [HashMap<(bool, u16), Rc<Group>>; 2],
    any: HashMap<bool, Group>,
}

impl Groups {
    fn new(rules: &[Rule], kind: Option<AhoCorasickKind>) -> Result<Groups, BuildError> {
        let mut lists: [HashMap<(bool, u16), Vec<usize>>; 2] = Default::default();
        let mut any: HashMap<bool, Vec<usize>> = HashMap::new();
        for (id, rule) in rules.iter().enumerate() {
            let ports = |side: usize| Some((side, rule.ports[side].list(WIDE)?));
            let Some((side, ports)) = ports(1).or_else(|| ports(0)) else {
                any.entry(rule.udp).or_default().push(id);
                continue;
            };
            for port in ports {
                lists[side].entry((rule.udp, port)).or_default().push(id);
            }
        }
        let mut made: HashMap<Vec<usize>, Rc<Group>> = HashMap::new();
        let mut by_port: [HashMap<(bool, u16), Rc<Group>>; 2] = Default::default();
        for (lists, groups) in lists.into_iter().zip(&mut by_port) {
            for (port, list) in lists {
                if !made.contains_key(&list) {
                    made.insert(
                        list.clone(),
                        Rc::new(Group::new(rules, list.clone(), kind)?),
                    );
                }
                groups.insert(port, made[&list].clone());
            }
        }
        let any = any
            .into_iter()
            .map(|(udp, list)| Ok((udp, Group::new(rules, list, kind)?)));
        let any = any.collect::<Result<_, BuildError>>()?;
        Ok(Groups { by_port, any })
    }
}

impl Group {
    fn new(
        rules: &[Rule],
        list: Vec<usize>,
        kind: Option<AhoCorasickKind>,
    ) -> Result<Group, BuildError> {
        let longest = |id: &usize| {
            let contents = rules[*id].contents.iter().filter(|it| !it.negated);
            let longest = contents.max_by_key(|content| content.bytes.len());
            longest.map_or(&[][..], |content| &content.bytes)
        };
        let search = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(kind)
            .build(list.iter().map(longest))?;
        Ok(Group {
            search,
            rules: list,
        })
    }
}

/// Rules and the last packet that each was compared with.
struct Search {
    rules: Vec<Rule>,
    checked: Vec<u64>,
    packets: u64,
    bytes: u64,
    alerts: u64,
}

impl Search {
    fn group(&mut self, group: &Group, ports: [u16; 2], payload: &[u8]) {
        for found in group.search.find_overlapping_iter(payload) {
            let id = group.rules[found.pattern().as_usize()];
            if self.checked[id] == self.packets {
                continue;
            }
            self.checked[id] = self.packets;
            let rule = &self.rules[id];
            self.alerts += u64::from(rule.has_ports(ports) && rule.is_in(payload));
        }
    }

    fn packet(&mut self, groups: &Groups, frame: &[u8]) {
        self.packets += 1;
        let Some((udp, ports, payload)) = decoded(frame) else {
            return;
        };
        self.bytes += payload.len() as u64;
        for (side, port) in [(1, ports[1]), (0, ports[0])] {
            if let Some(group) = groups.by_port[side].get(&(udp, port)) {
                self.group(group, ports, payload);
            }
        }
        if let Some(group) = groups.any.get(&udp) {
            self.group(group, ports, payload);
        }
    }
}

/// Whether a whole datagram is UDP, its ports and its payload, if it has one.
fn decoded(frame: &[u8]) -> Option<(bool, [u16; 2], &[u8])> {
    let number = |bytes: &[u8], at: usize| {
        let bytes: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    };
    let mut at = 12;
    while matches!(number(frame, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = frame.get(at + 2..)?;
    let (head, total, protocol) = match number(frame, at)? {
        0x0800 if ip.len() >= 20 && number(ip, 6)? & 0x3fff == 0 => (
            usize::from(ip[0] & 15) * 4,
            number(ip, 2)?.into(),
            *ip.get(9)?,
        ),
        0x86dd => (40, 40 + usize::from(number(ip, 4)?), *ip.get(6)?),
        _ => return None,
    };
    let transport = ip.get(head.max(20)..ip.len().min(total))?;
    let own = match protocol {
        6 => usize::from(transport.get(12)? >> 4) * 4,
        17 => 8,
        _ => return None,
    };
    let payload = transport.get(own.max(if protocol == 6 { 20 } else { 8 })..)?;
    let ports = [number(transport, 0)?, number(transport, 2)?];
    (!payload.is_empty()).then_some((protocol == 17, ports, payload))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (kind, rules, path) = match &arguments[..] {
        [kind, rules, path] | [kind, rules, path, _] => (kind.as_str(), rules, path),
        _ => return Err("usage: nids auto|dfa|contiguous RULES FILE [PACKETS]".into()),
    };
    let kind = match kind {
        "auto" => None,
        "dfa" => Some(AhoCorasickKind::DFA),
        "contiguous" => Some(AhoCorasickKind::ContiguousNFA),
        _ => return Err("the automaton is auto, dfa or contiguous".into()),
    };
    let most = arguments.get(3).map_or(Ok(u64::MAX), |it| it.parse())?;
    let rules = snort::read(&fs::read_to_string(rules)?)?;
    let groups = Groups::new(&rules, kind)?;
    let before = clock::cpu_seconds();
    let mut search = Search {
        checked: vec![0; rules.len()],
        rules,
        packets: 0,
        bytes: 0,
        alerts: 0,
    };
    let mut source = flowgauge_capture::open(path)?;
    while let Some(batch) = source.next_batch()? {
        for at in 0..batch.len() {
            if search.packets < most {
                search.packet(&groups, batch.bytes(at));
            }
        }
        if search.packets >= most {
            break;
        }
    }
    println!(
        "{:.3} s, {} packets, {} bytes of payload, {} alerts",
        clock::cpu_seconds() - before,
        search.packets,
        search.bytes,
        search.alerts
    );
    Ok(())
}
