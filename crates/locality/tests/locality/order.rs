//! The order of delivery is that of a stable sort, and packets are in the class that their headers say.

use std::collections::HashMap;

use flowgauge_capture::open_reader;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_locality::{CLASSES, Class, Classifier, Filters, Index, NO_PORT};
use flowgauge_wire::{
    Batch, DecodeFlags, DecodeOptions, DecodedBatch, Decoder, LinkType, PacketDescriptor, Problem,
};
use proptest::prelude::*;

fn order(index: &mut Index) -> Vec<usize> {
    core::iter::from_fn(|| index.pop()).collect()
}

/// A stable sort by where the class came first.
fn sorted(classes: &[u32]) -> Vec<usize> {
    let mut first = HashMap::new();
    for (number, &class) in classes.iter().enumerate() {
        first.entry(class).or_insert(number);
    }
    let mut numbers: Vec<usize> = (0..classes.len()).collect();
    numbers.sort_by_key(|&number| first[&classes[number]]);
    numbers
}

proptest! {
    #[test]
    fn it_is_a_stable_sort(
        rounds in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![0..4u32, 60_000..CLASSES as u32], 0..300),
            1..5,
        ),
        capacity in 0..400usize,
        interrupted in 0..300usize,
    ) {
        let mut index = Index::new(capacity);
        for classes in &rounds {
            classes.iter().for_each(|&class| index.push(class));
            let expected = sorted(classes);
            let changes = classes.windows(2).filter(|two| two[0] != two[1]).count();
            prop_assert_eq!(index.runs(), changes + usize::from(!classes.is_empty()));
            prop_assert_eq!(index.len(), classes.len());
            // Some are taken with a look at what follows, and left for the next round to forget.
            let mut taken = Vec::new();
            for _ in 0..interrupted {
                let foretold = index.following();
                let Some(number) = index.pop() else { break };
                prop_assert!(foretold.is_none_or(|it| it == number));
                taken.push(number);
            }
            prop_assert_eq!(&taken, &expected[..taken.len()]);
            prop_assert_eq!(index.left(), classes.len() - taken.len());
            if interrupted % 2 == 0 {
                taken.extend(order(&mut index));
                prop_assert_eq!(taken, expected);
            }
            index.clear();
            prop_assert!(index.is_empty() && index.pop().is_none());
        }
    }
}

/// A frame and the ports by which it is put in a class, if it is.
struct Frame(Vec<u8>, Option<(u16, u16)>);

fn transport(protocol: u8, source: u16, destination: u16) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    match protocol {
        6 => bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0]),
        17 => bytes.extend([0, 8, 0, 0]),
        // SCTP: verification tag and checksum. ICMP: an echo of 24 bytes.
        _ => bytes.extend([0; 8]),
    }
    bytes
}

fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len() as u16).to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let mut bytes = vec![0x45, 0, total[0], total[1], 0, 7, fragment[0], fragment[1]];
    bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(payload);
    bytes
}

/// With an extension header of destination options.
fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    let mut bytes = vec![0x60, 0, 0, 0, length[0], length[1], 60, 64];
    bytes.extend([1; 16]);
    bytes.extend([2; 16]);
    bytes.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn frames() -> Vec<Frame> {
    let tcp = |a, b| ethernet(0x0800, &ipv4(6, 0x4000, &transport(6, a, b)));
    let tagged = |inner: &[u8]| ethernet(0x8100, &[&[0, 5, 8, 0][..], inner].concat());
    let vxlan = |inner: &[u8]| {
        let length = (16 + inner.len() as u16).to_be_bytes();
        let mut bytes = vec![
            0xc0,
            0,
            4789_u16.to_be_bytes()[0],
            4789_u16.to_be_bytes()[1],
        ];
        bytes.extend([length[0], length[1], 0, 0, 8, 0, 0, 0, 0, 0, 5, 0]);
        bytes.extend(inner);
        ethernet(0x0800, &ipv4(17, 0, &bytes))
    };
    let udp = transport(17, 5353, 53);
    let mut cut = tcp(1, 2);
    cut.truncate(36);
    let mut answer = tcp(80, 1025);
    answer[26..34].rotate_left(4);
    vec![
        Frame(tcp(1025, 80), Some((1025, 80))),
        Frame(answer, Some((80, 1025))),
        Frame(ethernet(0x0800, &ipv4(17, 0, &udp)), Some((5353, 53))),
        Frame(tagged(&ipv4(6, 0, &transport(6, 9, 443))), Some((9, 443))),
        Frame(ethernet(0x86dd, &ipv6(17, &udp)), Some((5353, 53))),
        Frame(
            ethernet(0x0800, &ipv4(132, 0, &transport(132, 7, 80))),
            Some((7, 80)),
        ),
        // The first fragment has ports in it.
        Frame(ethernet(0x0800, &ipv4(17, 0x2000, &udp)), None),
        Frame(ethernet(0x0800, &ipv4(17, 1, &[0; 40])), None),
        Frame(
            ethernet(0x0800, &ipv4(1, 0, &transport(1, 0x0800, 80))),
            None,
        ),
        Frame(ethernet(0x0806, &[0; 28]), None),
        Frame(cut, None),
        // What is in a tunnel does not count.
        Frame(vxlan(&tcp(1025, 80)), Some((0xc000, 4789))),
        Frame(Vec::new(), None),
    ]
}

/// Where the classes of the frames are as the classifier sees them.
fn classified(mut classifier: Classifier, frames: &[Frame]) -> Vec<usize> {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    for Frame(bytes, _) in frames {
        packets.push(PacketDescriptor {
            offset: memory.len() as u32,
            captured_len: bytes.len() as u32,
            wire_len: bytes.len().max(60) as u32,
            ..PacketDescriptor::default()
        });
        memory.extend_from_slice(bytes);
    }
    let mut index = Index::new(frames.len());
    classifier.add(&Batch::new(&memory, &packets), &mut index);
    order(&mut index)
}

#[test]
fn classes_are_what_the_headers_say() {
    let mut frames = frames();
    // Each twice, so that members of a class have others between them.
    frames.extend(self::frames());
    let by = |class: fn((u16, u16)) -> u32| {
        let classes = frames
            .iter()
            .map(|Frame(_, ports)| ports.map_or(NO_PORT, class));
        sorted(&classes.collect::<Vec<u32>>())
    };
    let found = |class| classified(Classifier::new(class), &frames);
    assert_eq!(found(Class::DstPort), by(|(_, to)| to.into()));
    assert_eq!(
        found(Class::LowerPort),
        by(|(from, to)| from.min(to).into())
    );
    assert_eq!(
        found(Class::Ports),
        by(|(from, to)| u32::from(from) << 15 ^ u32::from(to))
    );
    // Both directions of the first connection; what has no ports is in one class again.
    let flows = found(Class::Flow);
    assert_eq!(flows[..4], [0, 1, 13, 14]);
    let without: Vec<usize> = (0..frames.len())
        .filter(|&n| frames[n].1.is_none())
        .collect();
    let at = flows
        .iter()
        .position(|number| *number == without[0])
        .unwrap();
    assert_eq!(flows[at..at + without.len()], without);
}

proptest! {
    /// However damaged headers are: the class is by the ports that a decoder finds.
    #[test]
    fn damaged_headers_are_classified_as_decoded(
        picked in proptest::collection::vec(
            (
                0..14usize,
                proptest::collection::vec((12..80usize, any::<u8>()), 0..4),
                0..100usize,
                0..200u32,
            ),
            1..200,
        ),
    ) {
        let mut frames = frames();
        let tcp6 = [&[0x60, 0, 0, 0, 0, 20, 6, 64][..], &[3; 32], &transport(6, 9, 443)].concat();
        frames.push(Frame(ethernet(0x86dd, &tcp6), None));
        let (mut memory, mut packets) = (Vec::new(), Vec::new());
        for (frame, changes, cut, beyond) in picked {
            let mut bytes = frames[frame].0.clone();
            let wire_len = bytes.len() as u32 + beyond.saturating_sub(150);
            for (at, byte) in changes {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            // Most are whole.
            if cut > 80 {
                bytes.truncate(cut - 30);
            }
            packets.push(PacketDescriptor {
                offset: memory.len() as u32,
                captured_len: bytes.len() as u32,
                wire_len,
                ..PacketDescriptor::default()
            });
            memory.extend(bytes);
        }
        let batch = Batch::new(&memory, &packets);
        let mut options = DecodeOptions::default();
        options.decapsulate = false;
        let mut decoded = DecodedBatch::new();
        Decoder::new(options).decode_batch(&batch, &mut decoded);
        let classes = decoded.packets.iter().map(|packet| {
            let (source, destination) = (packet.source().1, packet.destination().1);
            let is_whole = matches!(packet.key.protocol, 6 | 17 | 132)
                && !packet.flags.contains(DecodeFlags::FRAGMENT)
                && (packet.problem == Problem::None || source | destination != 0);
            if is_whole { u32::from(destination) } else { NO_PORT }
        });
        let expected = sorted(&classes.collect::<Vec<u32>>());
        let mut index = Index::new(0);
        Classifier::new(Class::DstPort).add(&batch, &mut index);
        prop_assert_eq!(order(&mut index), expected);
    }
}

#[test]
fn filters_say_the_class() {
    let frames = frames();
    let table = |text: &str| Filters::of("table".into(), text).unwrap();
    let filters = table("udp port 53\ntcp");
    let classifier = Classifier::by_filters(&filters, LinkType::ETHERNET).unwrap();
    // A filter on a port matches the first fragment, and sees nothing behind a tag or an extension header.
    let expected = [0, 1, 10, 2, 6, 3, 4, 5, 7, 8, 9, 11, 12];
    assert_eq!(classified(classifier, &frames), expected);
    let failure = Classifier::by_filters(&table("tcp prot"), LinkType::ETHERNET).unwrap_err();
    assert!(failure.to_string().contains("tcp prot"), "{failure}");
}

/// On a trace: every packet once, each class in one piece, and in the order of arrival.
#[test]
fn a_trace_is_delivered_whole() {
    let mut file = Vec::new();
    generate(&Config::new(Preset::Zoo), &mut file).unwrap();
    for class in Class::ALL {
        let mut source = open_reader(std::io::Cursor::new(file.clone()), "trace").unwrap();
        let mut classifier = Classifier::new(class);
        let mut index = Index::new(0);
        let mut packets = 0;
        while let Some(batch) = source.next_batch().unwrap() {
            packets += batch.len();
            classifier.add(&batch, &mut index);
        }
        let (classes, runs) = (index.classes(), index.runs());
        assert!(
            classes > 10 && runs > 2 * classes,
            "{class}: {classes} {runs}"
        );
        let order = order(&mut index);
        let mut back = 0;
        for two in order.windows(2) {
            back += usize::from(two[0] > two[1]);
        }
        assert!(back < classes, "{class}");
        let mut numbers = order;
        numbers.sort_unstable();
        assert_eq!(numbers, (0..packets).collect::<Vec<usize>>());
    }
}
