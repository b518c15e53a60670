//! The kernel keeps away what the model does, and counts it as that: frames sent over a virtual cable.

#![allow(clippy::unwrap_used)]

#[path = "../../../tests/shared/card.rs"]
mod card;
#[path = "../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "../../capture/tests/support/lab.rs"]
mod lab;
#[path = "support/mirror.rs"]
mod mirror;
#[path = "support/spread.rs"]
mod spread;
#[path = "../../../tests/shared/tagged.rs"]
mod tagged;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Cursor;
use std::path::PathBuf;
use std::time::Duration;

use card::Card;
use flowgauge_capture::filter::Filter;
use flowgauge_capture::live::{LiveConfig, LiveSource};
use flowgauge_capture::{PacketSource, open_reader};
use flowgauge_flow::{Turn, Withheld};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_offload::{Offloaded, SocketFilter};
use flowgauge_stream::offload::{
    Offload, OffloadFlow, Packets, Sequence, Standing, Verdict, Vlan, Wanted,
};
use flowgauge_sys::testing::offline_filter;
use flowgauge_sys::transmit::TransmitSocket;
use flowgauge_wire::{
    Batch, DecodeFlags, DecodeOptions, DecodedBatch, Decoder, FlowKey, LinkType, Nanos,
    PacketDescriptor, PacketFlags,
};
use lab::Lab;
use sha2::{Digest as _, Sha256};

const MTU: u32 = 9000;
/// Frames that are sent before it is looked what came: the kernel's queue between the ends of a cable holds 1,000.
const PORTION: usize = 512;

/// Whole Ethernet frames of a capture that fit.
fn frames(capture: Vec<u8>) -> Vec<Vec<u8>> {
    let Ok(mut source) = open_reader(Cursor::new(capture), "capture") else {
        return Vec::new();
    };
    let mut frames = Vec::new();
    while let Ok(Some(batch)) = source.next_batch() {
        for packet in batch.packets {
            let bytes = &batch.memory[packet.offset as usize..][..packet.captured_len as usize];
            if packet.link == LinkType::ETHERNET && (14..MTU as usize).contains(&bytes.len()) {
                frames.push(bytes.to_vec());
            }
        }
    }
    frames
}

/// The frames as batches of one, a millisecond apart.
fn batches(frames: &[Vec<u8>], mut take: impl FnMut(&Batch<'_>)) {
    for (number, frame) in frames.iter().enumerate() {
        let packet = PacketDescriptor {
            time: Nanos(1 + number as u64 * 1_000_000),
            offset: 0,
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32,
            interface: 0,
            link: LinkType::ETHERNET,
            vlan_tpid: 0,
            vlan_tci: 0,
            flags: Default::default(),
        };
        take(&Batch::new(frame, &[packet]));
    }
}

/// A verdict for each flow that the kernel can tell from all others: no packet of it is in a tunnel, behind something else than
/// Ethernet and two tags, or cut. Where VLANs separate flows a connection with one for each direction is one.
fn verdicts(frames: &[Vec<u8>], separate_vlans: bool) -> Vec<(OffloadFlow, [Wanted; 2])> {
    let mut options = DecodeOptions::default();
    options.separate_vlans = separate_vlans;
    let (mut decoder, mut decoded) = (Decoder::new(options), DecodedBatch::default());
    let mut plain: BTreeMap<FlowKey, bool> = BTreeMap::new();
    batches(frames, |batch| {
        decoder.decode_batch(batch, &mut decoded);
        for packet in &decoded.packets {
            let has_ports = packet.flags.contains(DecodeFlags::TRANSPORT);
            let is_whole = packet.payload_captured == packet.payload_len
                && !packet.flags.contains(DecodeFlags::CUT);
            let is_known = matches!(packet.key.protocol, 6 | 17);
            let tags = u16::from(packet.vlan_count);
            let is_behind_ethernet = tags <= 2 && packet.ip_offset == 14 + 4 * tags;
            let is_plain =
                has_ports && is_whole && is_known && is_behind_ethernet && packet.tunnel == 0;
            *plain.entry(packet.key).or_insert(true) &= is_plain;
        }
    });
    let [up, down] = tagged::BY_DIRECTION.map(u32::from);
    let is_plain = |key: &FlowKey| plain.get(key) != Some(&false);
    let answers = |key: &FlowKey| FlowKey {
        context: if key.context == up { down } else { key.context },
        ..*key
    };
    let keys = plain.keys().copied();
    let keys = keys.filter(|key| is_plain(key) && is_plain(&answers(key)));
    let mut all = Vec::new();
    for (uid, key) in (1..).zip(keys) {
        let of = |number: u64| Wanted {
            packets: [Packets::None, Packets::Headers, Packets::All, Packets::None]
                [(number % 4) as usize],
            sequence: Sequence::Off,
            from: u64::MAX,
            standing: Standing::OTHERS,
        };
        let mixed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(uid);
        let vlans = match (separate_vlans, key.context) {
            (false, _) => [Vlan::Any; 2],
            (true, vlan) if vlan == up => [Vlan::Only(up), Vlan::Only(down)],
            (true, vlan) if vlan == down => continue,
            (true, vlan) => [Vlan::Only(vlan); 2],
        };
        let flow = OffloadFlow { key, vlans, uid };
        let in_turn = Wanted {
            packets: Packets::OutOfTurn(Turn::default()),
            ..Wanted::HEADERS
        };
        let followed = Wanted {
            packets: Packets::Followed(Turn::default()),
            ..in_turn
        };
        let wanted = match mixed >> 48 & 7 {
            0 => [in_turn; 2],
            1 => [in_turn, followed],
            2 => [followed, in_turn],
            _ => [of(mixed >> 32), of(mixed >> 40)],
        };
        all.push((flow, wanted));
    }
    all
}

/// What came of frames, as bytes and length on the wire, and what did not by flow.
type Outcome = (Vec<(Vec<u8>, u32)>, BTreeMap<u64, [Withheld; 2]>);

fn sum(all: &mut BTreeMap<u64, [Withheld; 2]>, uid: u64, more: [Withheld; 2]) {
    let both = all.entry(uid).or_default();
    for (sum, more) in both.iter_mut().zip(more) {
        if more.packets == 0 {
            continue;
        }
        assert!(sum.packets == 0 || sum.last <= more.last);
        assert!(more.first <= more.last);
        sum.packets += more.packets;
        sum.bytes += more.bytes;
        sum.data_packets += more.data_packets;
        sum.data_bytes += more.data_bytes;
        sum.ip_bytes += more.ip_bytes;
        sum.payload_bytes += more.payload_bytes;
        sum.tcp_flags.0 |= more.tcp_flags.0;
        sum.first_seq = sum.first_seq.or(more.first_seq);
        let is_new = |before: u32, now: u32| now.wrapping_sub(before).cast_signed() > 0;
        match (sum.next_seq, more.next_seq) {
            (Some(before), Some(now)) if !is_new(before, now) => {}
            (before, now) => sum.next_seq = now.or(before),
        }
        sum.ack = more.ack.or(sum.ack);
        sum.in_turn |= more.in_turn;
        sum.last = more.last;
    }
}

fn model(frames: &[Vec<u8>], told: &[(OffloadFlow, [Wanted; 2])], others: Wanted) -> Outcome {
    let mut card = Card::default();
    card.table().silence = u64::MAX;
    card.others(others);
    for (flow, wanted) in told {
        card.verdict(flow, Verdict::Less(*wanted));
    }
    let (mut passed, mut withheld, mut number) = (Vec::new(), BTreeMap::new(), 0);
    batches(frames, |batch| {
        for packet in card.pass(batch) {
            let bytes = &batch.memory[..packet.captured_len as usize];
            passed.push((bytes.to_vec(), packet.wire_len));
        }
        number += 1;
        if number % PORTION == 0 {
            card.poll(&mut |flow, both| sum(&mut withheld, flow.uid, both));
        }
    });
    card.poll(&mut |flow, both| sum(&mut withheld, flow.uid, both));
    (passed, withheld)
}

fn kernel(
    lab: &Lab,
    sender: &TransmitSocket,
    frames: &[Vec<u8>],
    told: &[(OffloadFlow, [Wanted; 2])],
    others: Wanted,
    expected: usize,
    is_mirror: bool,
) -> Outcome {
    let config = LiveConfig {
        snap_len: 65535,
        own_traffic: true,
        tick_ms: 5,
        retire_ms: 4,
        ..LiveConfig::new("fg1")
    };
    let mut filter = match is_mirror {
        true => SocketFilter::load_for_mirror(1 << 12).unwrap(),
        false => SocketFilter::load(1 << 12).unwrap(),
    };
    // The frames come when the machine has time for it.
    filter.set_silence(Duration::from_secs(3600));
    let statistics = filter.statistics();
    let mut source = match is_mirror {
        true => mirror::open(lab, &config, &[&filter]).remove(0),
        false => {
            let source = lab.run(|| LiveSource::open(&config)).unwrap();
            let attached = filter.attacher().unwrap().attach(source);
            attached.unwrap_or_else(|refused| panic!("{}", refused.1))
        }
    };
    filter.others(others);
    for (flow, wanted) in told {
        filter.verdict(flow, Verdict::Less(*wanted));
    }
    assert_eq!(statistics.read().refused, 0);
    let (mut passed, mut withheld) = (Vec::new(), BTreeMap::new());
    // The program is put there when it is needed, and verdicts wait until it has seen all that comes.
    for _ in 0..500 {
        take(&mut source, &mut passed, 1);
        filter.poll(&mut |_, _| {});
        if statistics.is_attached() && statistics.read().flows == told.len() as u64 {
            break;
        }
    }
    assert_eq!(statistics.failure(), None);
    assert_eq!(statistics.read().flows, told.len() as u64);
    for portion in frames.chunks(PORTION) {
        let all: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
        sender.send_all(&all).unwrap();
        // Until what came out of turn counts as processed.
        let looks = if portion.len() == PORTION { 5 } else { 1 };
        take(&mut source, &mut passed, looks);
        filter.poll(&mut |flow, both| sum(&mut withheld, flow.uid, both));
    }
    // Idle ticks at the end: nothing more comes.
    for _ in 0..500 {
        take(&mut source, &mut passed, 2);
        filter.poll(&mut |flow, both| sum(&mut withheld, flow.uid, both));
        if passed.len() >= expected {
            break;
        }
    }
    take(&mut source, &mut passed, 3);
    // All is given when the flows are forgotten, too.
    for (flow, _) in told {
        filter.verdict(flow, Verdict::Forget);
    }
    std::thread::sleep(std::time::Duration::from_millis(12));
    filter.poll(&mut |flow, both| sum(&mut withheld, flow.uid, both));
    let counted: u64 = withheld.values().flatten().map(|it| it.packets).sum();
    let read = statistics.read();
    assert_eq!((read.flows, read.withheld), (0, counted));
    let ledger = source.ledger();
    assert_eq!(ledger.dropped(), 0);
    assert_eq!(ledger.received(), frames.len() as u64);
    (passed, withheld)
}

/// Takes packets until so many looks in a row found none.
fn take(source: &mut Offloaded, passed: &mut Vec<(Vec<u8>, u32)>, looks: usize) {
    let mut fruitless = 0;
    while fruitless < looks {
        let batch = source.next_batch().unwrap().unwrap();
        fruitless = if batch.packets.is_empty() {
            fruitless + 1
        } else {
            0
        };
        for packet in batch.packets {
            let bytes = &batch.memory[packet.offset as usize..][..packet.captured_len as usize];
            let mut bytes = bytes.to_vec();
            if packet.flags.contains(PacketFlags::VLAN) {
                let [a, b] = packet.vlan_tpid.to_be_bytes();
                let [c, d] = packet.vlan_tci.to_be_bytes();
                bytes.splice(12..12, [a, b, c, d]);
            }
            passed.push((bytes, packet.wire_len));
        }
    }
}

/// All but the times, which are those of the clock.
fn without_times(withheld: BTreeMap<u64, [Withheld; 2]>) -> BTreeMap<u64, [Withheld; 2]> {
    let strip = |withheld: Withheld| Withheld {
        first: Nanos(0),
        last: Nanos(0),
        ..withheld
    };
    let all = withheld.into_iter();
    all.map(|(uid, both)| (uid, both.map(strip))).collect()
}

fn captures() -> Vec<(String, Vec<u8>)> {
    let presets = [
        Preset::Mix,
        Preset::Web,
        Preset::Late,
        Preset::Loss,
        Preset::Small,
        Preset::Zoo,
    ];
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for preset in presets {
        let mut file = Vec::new();
        generate(&Config::new(preset).with_packets(3000), &mut file).unwrap();
        all.push((format!("{preset:?}"), file));
    }
    let stride = std::env::var("FLOWGAUGE_STRIDE").map_or(41, |text| text.parse().unwrap());
    let mut folders: Vec<PathBuf> = corpora::corpora().into_iter().collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|ending| ending.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("pcap" | "pcapng" | "cap" | "trace") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    for path in files.into_iter().step_by(stride) {
        if File::open(&path).unwrap().metadata().unwrap().len() < 1 << 20 {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    all
}

/// The frames of captures, and whether VLANs separate flows there.
fn traces() -> Vec<(String, Vec<Vec<u8>>, bool)> {
    let all = captures().into_iter();
    let mut all: Vec<_> = all
        .map(|(name, capture)| (name, frames(capture), false))
        .collect();
    for preset in [Preset::Mix, Preset::Zoo] {
        let mut file = Vec::new();
        generate(&Config::new(preset).with_packets(700), &mut file).unwrap();
        let frames = frames(file);
        let copies = frames.iter().flat_map(|it| tagged::in_vlans(it));
        let copies: Vec<Vec<u8>> = copies.filter(|it| it.len() < MTU as usize).collect();
        for separate in [false, true] {
            all.push((format!("{preset:?} in VLANs"), copies.clone(), separate));
        }
    }
    all
}

#[test]
fn the_kernel_keeps_away_what_the_model_does() {
    let Some(lab) = Lab::new(MTU) else {
        return;
    };
    let sender = lab.sender("fg0");
    let (mut flows, mut kept, mut cut) = (0, 0, 0);
    for (name, frames, separate_vlans) in traces() {
        let told = verdicts(&frames, separate_vlans);
        if told.is_empty() {
            continue;
        }
        let others = Wanted::ALL;
        let (passed, withheld) = model(&frames, &told, others);
        let expected = passed.len();
        let seen = kernel(&lab, &sender, &frames, &told, others, expected, false);
        for (number, (expected, seen)) in passed.iter().zip(&seen.0).enumerate() {
            assert!(
                expected == seen,
                "{name}: packet {number} that came: {} of {} bytes",
                seen.0.len(),
                expected.0.len()
            );
        }
        assert_eq!(passed.len(), seen.0.len(), "{name}");
        assert_eq!(
            without_times(withheld.clone()),
            without_times(seen.1),
            "{name}"
        );
        flows += told.len();
        kept += frames.len() - passed.len();
        let whole: HashMap<&[u8], ()> = frames.iter().map(|it| (it.as_slice(), ())).collect();
        cut += passed
            .iter()
            .filter(|(bytes, _)| !whole.contains_key(bytes.as_slice()))
            .count();
    }
    assert!(
        flows > 300 && kept > 800 && cut > 500,
        "{flows} flows, {kept} kept, {cut} cut"
    );
}

/// Before the packets of an interface nothing is cut.
#[test]
fn on_a_mirror_port_packets_come_whole_or_not() {
    let Some(lab) = Lab::new(MTU) else {
        return;
    };
    let sender = lab.sender("fg0");
    let mut kept = 0;
    for (name, frames, separate_vlans) in traces() {
        let mut told = verdicts(&frames, separate_vlans);
        for wanted in told.iter_mut().flat_map(|(_, both)| both) {
            if wanted.packets == Packets::Headers {
                wanted.packets = Packets::All;
            }
        }
        if told.is_empty() {
            continue;
        }
        let others = Wanted::ALL;
        let (passed, withheld) = model(&frames, &told, others);
        // Headers are as good as everything.
        for (number, wanted) in told.iter_mut().flat_map(|(_, both)| both).enumerate() {
            if wanted.packets == Packets::All && number % 2 == 0 {
                wanted.packets = Packets::Headers;
            }
        }
        let expected = passed.len();
        let seen = kernel(&lab, &sender, &frames, &told, others, expected, true);
        // (The model cuts what comes out of turn.)
        let is_whole = |(bytes, len): &(Vec<u8>, u32)| bytes.len() == *len as usize;
        let mut both = passed.iter().zip(&seen.0);
        let is_same = both.all(|(cut, whole)| cut.1 == whole.1 && whole.0.starts_with(&cut.0));
        assert!(
            passed.len() == seen.0.len() && is_same && seen.0.iter().all(is_whole),
            "{name}: {} of {}",
            seen.0.len(),
            passed.len()
        );
        let (withheld, seen) = (without_times(withheld), without_times(seen.1));
        assert_eq!(withheld, seen, "{name}");
        kept += frames.len() - passed.len();
    }
    assert!(kept > 800, "{kept} kept");
    // Nothing is left of it.
    let listed = lab
        .inside("ip")
        .args(["link", "show", "fg1"])
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("fg1") && !listed.contains("xdp"),
        "{listed}"
    );
}

#[test]
fn filters_let_through_what_they_do_without() {
    let Some(lab) = Lab::new(MTU) else {
        return;
    };
    let sender = lab.sender("fg0");
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for preset in [Preset::Mix, Preset::Zoo] {
        let mut capture = Vec::new();
        generate(&Config::new(preset).with_packets(1000), &mut capture).unwrap();
        frames.extend(self::frames(capture));
    }
    // Of tags that the kernel took out of the frame user space decides.
    frames.retain(|frame| !matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]));
    for expression in [
        "tcp",
        "not tcp",
        "udp port 53 or arp",
        "ip6",
        "portrange 1-1000",
        "tcp[13] & 2 != 0",
        "len > 200 and ip[2:2] % 3 = 1",
        "tcp[((tcp[12] & 0xf0) >> 2):1] = 0x47",
        "src net 10.0.0.0/9 and not dst port 443",
        "ip[8] * 3 - ip[6] / 2 > len ^ 5",
    ] {
        let config = LiveConfig {
            filter: expression.to_owned(),
            snap_len: 100,
            own_traffic: true,
            tick_ms: 5,
            retire_ms: 4,
            ..LiveConfig::new("fg1")
        };
        let source = lab.run(|| LiveSource::open(&config)).unwrap();
        let mut filter = SocketFilter::load(64).unwrap();
        let attached = filter.attacher().unwrap().attach(source);
        let mut source = attached.unwrap_or_else(|refused| panic!("{expression}: {}", refused.1));
        // The program is put there for a flow that never comes.
        let flow = OffloadFlow {
            key: FlowKey::default(),
            vlans: [Vlan::Any; 2],
            uid: 1,
        };
        filter.verdict(&flow, Verdict::Less([Wanted::HEADERS; 2]));
        take(&mut source, &mut Vec::new(), 1);
        assert!(filter.statistics().is_attached());
        for portion in frames.chunks(PORTION) {
            let all: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
            sender.send_all(&all).unwrap();
        }
        let compiled = Filter::compile(expression, LinkType::ETHERNET, 100).unwrap();
        let passes = |frame: &&Vec<u8>| {
            let len = frame.len() as u32;
            offline_filter(compiled.instructions(), frame, len).is_some_and(|snap| snap != 0)
        };
        let expected = frames.iter().filter(passes);
        let expected =
            expected.map(|frame| (frame[..frame.len().min(100)].to_vec(), frame.len() as u32));
        let expected: Vec<(Vec<u8>, u32)> = expected.collect();
        assert!(
            !expected.is_empty() && expected.len() < frames.len(),
            "{expression}"
        );
        let mut passed = Vec::new();
        for _ in 0..500 {
            take(&mut source, &mut passed, 2);
            if passed.len() >= expected.len() {
                break;
            }
        }
        assert!(
            passed == expected,
            "{expression}: {} of {}",
            passed.len(),
            expected.len()
        );
    }
}

/// The objects that are taken where there is no clang are of these sources.
#[test]
fn the_objects_are_of_the_sources() {
    let read = |name: &str| std::fs::read(format!("{}/bpf/{name}", env!("CARGO_MANIFEST_DIR")));
    let sum = |name: &str| format!("{:x}  {name}\n", Sha256::digest(read(name).unwrap()));
    let files = [
        "base.h",
        "judge.h",
        "spread.h",
        "verdict.bpf.c",
        "verdict.o",
        "mirror.bpf.c",
        "mirror.o",
        "fanout.bpf.c",
        "fanout.o",
        "inbound.bpf.c",
        "inbound.o",
    ];
    assert_eq!(
        String::from_utf8(read("sums").unwrap()).unwrap(),
        files.map(sum).concat(),
        "make them anew: crates/offload/bpf/make.sh"
    );
}

/// A segment of one connection, as a frame.
fn segment(flags: u8, payload: &[u8]) -> Vec<u8> {
    let total = 40 + payload.len() as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
    frame.extend([
        4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0,
    ]);
    frame.extend(payload);
    frame
}

/// A filter on the capture of an interface.
fn attached(lab: &Lab) -> (SocketFilter, Offloaded) {
    let config = LiveConfig {
        tick_ms: 5,
        retire_ms: 4,
        ..LiveConfig::new("fg1")
    };
    let source = lab.run(|| LiveSource::open(&config)).unwrap();
    let filter = SocketFilter::load(64).unwrap();
    let attached = filter.attacher().unwrap().attach(source);
    let source = attached.unwrap_or_else(|refused| panic!("{}", refused.1));
    (filter, source)
}

fn key_of(frame: Vec<u8>) -> FlowKey {
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::default());
    let mut key = None;
    batches(&[frame], |batch| {
        decoder.decode_batch(batch, &mut decoded);
        key = Some(decoded.packets[0].key);
    });
    key.unwrap()
}

/// What was said of a connection does not hold for the next one on its ports, not even where that began before it was said.
#[test]
fn a_verdict_waits_for_a_syn_that_is_on_its_way() {
    const SYN: u8 = 2;
    const SYN_ACK: u8 = 18;
    const DATA: u8 = 24;
    let Some(lab) = Lab::new(MTU) else {
        return;
    };
    let sender = lab.sender("fg0");
    let (mut filter, mut source) = attached(&lab);
    let send = |frames: &[Vec<u8>]| {
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        sender.send_all(&frames).unwrap();
    };
    // What has come since the last call, and what was kept away.
    let mut look = |filter: &mut SocketFilter, expected: usize| {
        let (mut passed, mut kept) = (Vec::new(), 0);
        for _ in 0..500 {
            take(&mut source, &mut passed, 2);
            if passed.len() >= expected {
                break;
            }
        }
        take(&mut source, &mut passed, 3);
        filter.poll(&mut |_, both| kept += both[0].packets + both[1].packets);
        (passed.len(), kept)
    };
    let key = key_of(segment(DATA, b"x"));
    let nothing = Wanted {
        packets: Packets::None,
        sequence: Sequence::Off,
        from: u64::MAX,
        standing: Standing::OTHERS,
    };
    let less = Verdict::Less([nothing; 2]);
    let vlans = [Vlan::Only(0); 2];
    let [first, second, third] = [1, 2, 3].map(|uid| OffloadFlow { key, vlans, uid });
    // The engine has not seen the SYN when it says this of the connection before it, which it then forgets.
    send(&[segment(SYN, b""), segment(DATA, b"one")]);
    filter.verdict(&first, less);
    send(&[segment(DATA, b"two")]);
    filter.verdict(&first, Verdict::Forget);
    assert_eq!(look(&mut filter, 3), (3, 0));
    send(&[segment(DATA, b"three")]);
    assert_eq!(look(&mut filter, 1), (1, 0));
    // What it says of one whose SYN it has seen holds, at once or with the next batch.
    send(&[segment(SYN, b"")]);
    filter.verdict(&second, less);
    send(&[segment(DATA, b"four")]);
    assert_eq!(look(&mut filter, 2), (2, 0));
    send(&[segment(DATA, b"five"), segment(DATA, b"six")]);
    assert_eq!(look(&mut filter, 0), (0, 2));
    // Also behind the answer to that SYN. One without a SYN that was read is of another connection.
    send(&[segment(SYN_ACK, b""), segment(DATA, b"seven")]);
    assert_eq!(look(&mut filter, 1), (1, 1));
    send(&[segment(SYN_ACK, b""), segment(DATA, b"eight")]);
    assert_eq!(look(&mut filter, 2), (2, 0));
    // Until the next SYN.
    filter.verdict(&second, Verdict::Forget);
    filter.verdict(&third, less);
    assert_eq!(look(&mut filter, 0), (0, 0));
    send(&[segment(DATA, b"nine")]);
    assert_eq!(look(&mut filter, 0), (0, 1));
    send(&[segment(SYN, b""), segment(DATA, b"ten")]);
    assert_eq!(look(&mut filter, 2), (2, 0));
}

/// Counts of a flow of which packets in turn are kept away are told before a packet that may depend on them: one out of turn, one whose
/// flow the kernel does not know, the beginning of the next connection.
#[test]
fn what_was_counted_is_told_before_what_depends_on_it() {
    const ACK: u8 = 16;
    const FIRST: usize = 20;
    let frame = |change: &dyn Fn(&mut [u8])| {
        let mut frame = segment(ACK, b"");
        change(&mut frame);
        let words = frame[14..34].chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let next = frame(&|_| {});
    let late = frame(&|frame| frame[41] = 99);
    let fragment = frame(&|frame| frame[FIRST] = 0x20);
    let begin = frame(&|frame| frame[47] = 2);
    for last in [late, fragment, begin] {
        let Some(lab) = Lab::new(MTU) else {
            return;
        };
        let sender = lab.sender("fg0");
        let (mut filter, mut source) = attached(&lab);
        let turn = Turn {
            next: 1,
            acked: 1,
            data: true,
            acknowledgements: true,
        };
        let wanted = Wanted {
            packets: Packets::OutOfTurn(turn),
            sequence: Sequence::Off,
            from: u64::MAX,
            standing: Standing::OTHERS,
        };
        let flow = OffloadFlow {
            key: key_of(next.clone()),
            vlans: [Vlan::Only(0); 2],
            uid: 1,
        };
        filter.verdict(&flow, Verdict::Less([wanted; 2]));
        let mut passed = Vec::new();
        for _ in 0..500 {
            take(&mut source, &mut passed, 1);
            filter.poll(&mut |_, _| {});
            if filter.statistics().read().flows == 1 {
                break;
            }
        }
        sender.send_all(&[&next[..]; 5]).unwrap();
        sender.send_all(&[&last[..]]).unwrap();
        for _ in 0..500 {
            take(&mut source, &mut passed, 1);
            if !passed.is_empty() {
                break;
            }
        }
        assert_eq!(passed, [(last.clone(), last.len() as u32)]);
        let mut kept = 0;
        filter.poll(&mut |_, both| kept += both[0].packets + both[1].packets);
        assert_eq!(kept, 5, "{last:?}");
    }
}
