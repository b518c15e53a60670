//! Our interpreter against libpcap's, on real expressions and the packets of the corpora.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::corpora::corpora;
use flowgauge_capture::filter::{Columns, DEFAULT_SNAP_LEN, FilterSet};
use flowgauge_capture::{Filter, open};
use flowgauge_wire::{Batch, LinkType, Selection};

/// Packets taken of each capture.
const PACKETS: usize = 40;
/// One of so many captures is taken.
const STRIDE: usize = 3;

const EXPRESSIONS: &str = "\
ip
ip6
arp
rarp
tcp
udp
sctp
icmp
icmp6
igmp
esp
ah
vlan
vlan 10
vlan and ip
vlan and vlan
mpls
mpls and ip
pppoes
pppoes and tcp
not ip
ip or ip6
ip and not tcp
host 10.0.0.1
src host 192.168.1.1
dst host 192.168.1.2
host ::1
ip6 host fe80::1
net 10.0.0.0/8
src net 192.168.0.0/16
dst net 172.16.0.0/12
net 224.0.0.0/4
ip6 net fe80::/10
src net 10 or dst net 10
port 80
port 53
src port 443
dst port 22
tcp port 80
udp port 53
tcp port 80 or tcp port 443
tcp src port 80 and dst portrange 1024-65535
portrange 1-1023
udp portrange 5000-6000
port http or port https
not port 22
tcp[tcpflags] & tcp-syn != 0
tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn
tcp[tcpflags] & (tcp-syn|tcp-fin) != 0
tcp[13] = 18
tcp[0:2] > 1024
tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420
tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)
ip[0] & 0xf != 5
ip[6:2] & 0x1fff != 0
ip[6] & 0x20 != 0
ip[8] < 5
ip[9] * 2 = 12
ip[2:2] % 4 = 1
ip[2:2] / 3 > 100
udp[4:2] > 512
udp[8:2] & 0x8000 != 0
udp[10] & 128 = 0
icmp[icmptype] = icmp-echo
icmp[icmptype] = icmp-echoreply or icmp[0] = 3
icmp6[0] = 135
ip6[6] = 6
ip6[40:2] = 53
ip proto 47
ip6 proto 58
proto 17
ip protochain 17
ip6 protochain 6
less 64
greater 1000
len >= 100 and len <= 200
len = 60
ether[0] & 1 = 1
ether[12:2] > 1500
ether proto 0x88cc
ether host 00:11:22:33:44:55
ether src 00:00:00:00:00:00
ether broadcast
ether multicast
broadcast
multicast
ip multicast
ip6 multicast
stp
iso
llc
atalk
tcp and not host 10.0.0.1 and not host 10.0.0.2
(tcp or udp) and (port 53 or port 80 or port 443)
not (tcp port 80 or udp port 53)
udp and dst net 239.0.0.0/8 and dst port 1900
arp[6:2] = 1
arp and ether[20:2] = 2
inbound
ip[12:4] = ip[16:4]
ip[12:4] ^ ip[16:4] = 3
tcp[4:4] - tcp[8:4] > 1000
geneve
geneve 0xb and tcp
udp port 4789
ip[16] >= 224 and udp[0:2] = udp[2:2]
vlan and tcp port 80
vlan 10 and host 10.0.0.1
vlan and (port 53 or host 10.0.0.1)
host 10.0.0.1 or vlan or port 80
ip6 and tcp port 80
ip6 protochain 17 and ip6[6] = 0
ip protochain 6 or port 53
ip6 and udp[2:2] = 53
tcp and host 10.0.0.1 and port 80 and net 10.0.0.0/8
udp and src host 192.168.1.1 and dst port 53
port 80 and not host 10.0.0.1 or arp host 10.0.0.2
port 53 and port 53 and not port 54
host 10.0.0.1 and host 10.0.0.2
(port 80 or port 81) and (port 443 or portrange 1024-65535)
not (src port 80 or dst port 80 or src port 53 or dst port 53)";

/// Filters of the addresses and ports of packets, as users have them: some match, whatever the capture is of.
fn five_tuples(batch: &Batch<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for index in (0..batch.len()).step_by(7) {
        let bytes = batch.bytes(index);
        // Where Ethernet frames with IPv4 have them; of others these are any bytes.
        let Some([a, b, c, d, e, f, g, h, i, j, k, l]) = bytes.get(26..38) else {
            continue;
        };
        let (one, other) = (format!("{a}.{b}.{c}.{d}"), format!("{e}.{f}.{g}.{h}"));
        let from = u16::from_be_bytes([*i, *j]);
        let to = u16::from_be_bytes([*k, *l]);
        all.extend([
            format!("tcp and host {one} and host {other} and port {from} and port {to}"),
            format!("udp and src host {one} and dst host {other} and dst port {to}"),
            format!("host {other} and port {to} and net {a}.{b}.0.0/16"),
            format!("vlan and host {one}"),
            format!("host {one}"),
            format!("port {from} or port {to}"),
            format!("tcp port {to} and not src host {one}"),
            format!("portrange {0}-{1}", from.min(to), from.max(to)),
        ]);
        if let Some(addresses) = bytes.get(22..54).filter(|_| bytes[12] == 0x86) {
            let words = addresses.as_chunks::<2>().0.iter();
            let words: Vec<String> = words
                .map(|it| format!("{:02x}{:02x}", it[0], it[1]))
                .collect();
            all.push(format!("ip6 host {}", words[..8].join(":")));
            all.push(format!("host {} and port 53", words[8..].join(":")));
        }
    }
    all
}

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            captures(&path, found);
        } else if path
            .extension()
            .is_some_and(|kind| ["pcap", "pcapng", "cap"].iter().any(|known| kind == *known))
        {
            found.push(path);
        }
    }
}

#[test]
fn expressions_select_what_libpcap_selects() {
    let expressions: Vec<&str> = EXPRESSIONS.lines().collect();
    assert!(expressions.len() >= 100);
    let Some(folder) = corpora() else { return };
    let mut paths = Vec::new();
    captures(&folder, &mut paths);
    let mut filters: HashMap<LinkType, Vec<Filter>> = HashMap::new();
    let (mut compared, mut matched) = (0_u64, 0_u64);
    let mut ever_matched = std::collections::HashSet::new();
    for path in paths.iter().step_by(STRIDE) {
        let Ok(mut source) = open(path) else { continue };
        let mut left = PACKETS;
        while left > 0 {
            let Ok(Some(batch)) = source.next_batch() else {
                break;
            };
            for (index, packet) in batch.packets.iter().enumerate().take(left) {
                let compiled = filters.entry(packet.link).or_insert_with(|| {
                    let compile =
                        |text: &&str| Filter::compile(text, packet.link, DEFAULT_SNAP_LEN).ok();
                    expressions.iter().filter_map(compile).collect()
                });
                let bytes = batch.bytes(index);
                for filter in compiled {
                    let ours = filter.verdict(bytes, packet.wire_len);
                    let Some(theirs) = flowgauge_sys::testing::offline_filter(
                        filter.instructions(),
                        bytes,
                        packet.wire_len,
                    ) else {
                        continue;
                    };
                    let expression = filter.expression();
                    assert_eq!(ours, theirs, "{expression}, {} #{index}", path.display());
                    compared += 1;
                    if ours != 0 {
                        matched += 1;
                        ever_matched.insert(expression.to_owned());
                    }
                }
            }
            left -= batch.len().min(left);
        }
    }
    println!("{compared} verdicts equal, {matched} of them positive");
    assert!(compared > 100_000, "{compared}");
    assert!(ever_matched.len() > 70, "{}", ever_matched.len());
}

/// Filters come and go, and are asked of parts of a batch: each says what it says of every packet alone.
#[test]
fn filters_decided_together_select_what_each_does_alone() {
    let Some(folder) = corpora() else { return };
    let mut paths = Vec::new();
    captures(&folder, &mut paths);
    let set = |text: &str| FilterSet::new(text, DEFAULT_SNAP_LEN, None);
    let mut columns = Columns::default();
    let mut standing: Vec<FilterSet> = EXPRESSIONS.lines().map(set).collect();
    let (mut compared, mut accepted) = (0, 0);
    for (number, path) in paths.iter().enumerate().step_by(STRIDE + 2) {
        let Ok(mut source) = open(path) else { continue };
        let Ok(Some(batch)) = source.next_batch() else {
            continue;
        };
        let own = five_tuples(&batch);
        // Some of the ones before leave, and come back in another order.
        let left = standing.len() / 2;
        standing.rotate_left(number % left);
        standing.truncate(left);
        standing.extend(own.iter().map(|text| set(text)));
        standing.extend(EXPRESSIONS.lines().skip(number % 5).step_by(2).map(set));
        columns.begin();
        let all = Selection::first(batch.len());
        let mut some = all;
        some.retain(|at| (at * 7 + number) % 3 != 0);
        for (place, filters) in standing.iter_mut().enumerate() {
            let parts = match place % 3 {
                0 => vec![all],
                1 => vec![some, all.without(some)],
                _ => vec![some],
            };
            for part in parts {
                let mut found = part;
                if (filters.select(&mut columns, &batch, None, &mut found)).is_err() {
                    // Some link types have no such field.
                    continue;
                }
                for at in part.iter() {
                    let packet = &batch.packets[at];
                    let filter = filters.for_link(packet.link).unwrap();
                    let alone = filter.verdict_on(batch.bytes(at), packet) != 0;
                    let expression = filter.expression();
                    assert_eq!(
                        found.contains(at),
                        alone,
                        "{expression}, {} #{at}",
                        path.display()
                    );
                    compared += 1;
                    accepted += u64::from(alone);
                }
            }
        }
    }
    println!("{compared} verdicts equal, {accepted} of them positive");
    assert!(
        compared > 100_000 && accepted > 10_000,
        "{compared}, {accepted}"
    );
    drop(standing);
    columns.release();
    assert!(columns.is_empty());
}
