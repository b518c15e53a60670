//! Octets and messages.

use flowgauge_rmon::agentx::{
    Binding, Bound, HEADER, Header, Malformed, Message, Pdu, Range, Region, Response,
};
use flowgauge_rmon::{Missing, Oid, Value};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::harness::{first_message, fuzz_master};

fn oid() -> impl Strategy<Value = Oid> {
    let prefix = prop_oneof![
        Just(vec![]),
        Just(vec![1, 3, 6, 1]),
        Just(vec![1, 3, 6, 1, 0]),
        Just(vec![1, 3, 6, 1, 2, 1, 16]),
        Just(vec![1, 3, 6, 1, 255]),
        Just(vec![1, 3, 6, 1, 256]),
    ];
    (prefix, vec(any::<u32>(), 0..130))
        .prop_map(|(prefix, rest)| Oid::new(&[prefix, rest].concat()))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(Value::Integer),
        vec(any::<u8>(), 0..40).prop_map(Value::Octets),
        Just(Value::Null),
        oid().prop_map(Value::Oid),
        any::<[u8; 4]>().prop_map(Value::IpAddress),
        any::<u32>().prop_map(Value::Counter32),
        any::<u32>().prop_map(Value::Gauge32),
        any::<u32>().prop_map(Value::TimeTicks),
        vec(any::<u8>(), 0..9).prop_map(Value::Opaque),
        any::<u64>().prop_map(Value::Counter64),
    ]
}

fn bindings() -> impl Strategy<Value = Vec<Binding>> {
    let bound = prop_oneof![
        8 => value().prop_map(Bound::Value),
        1 => Just(Bound::Missing(Missing::Object)),
        1 => Just(Bound::Missing(Missing::Instance)),
        1 => Just(Bound::End),
    ];
    vec(
        (oid(), bound).prop_map(|(name, bound)| Binding { name, bound }),
        0..5,
    )
}

fn ranges() -> impl Strategy<Value = Vec<Range>> {
    let range = (oid(), any::<bool>(), oid());
    vec(
        range.prop_map(|(start, include, end)| Range {
            start,
            include,
            end,
        }),
        0..5,
    )
}

fn region() -> impl Strategy<Value = Region> {
    (oid(), any::<(u8, u32)>()).prop_map(|(subtree, (position, last))| {
        let inside = position > 0 && usize::from(position) <= subtree.numbers().len();
        Region {
            subtree,
            range: inside.then_some((position, last)),
        }
    })
}

fn pdu() -> impl Strategy<Value = Pdu> {
    let text = || vec(any::<u8>(), 0..20);
    prop_oneof![
        (any::<u8>(), oid(), text()).prop_map(|(timeout, id, description)| Pdu::Open {
            timeout,
            id,
            description
        }),
        any::<u8>().prop_map(|reason| Pdu::Close { reason }),
        (any::<[u8; 2]>(), region()).prop_map(|([timeout, priority], region)| Pdu::Register {
            timeout,
            priority,
            region
        }),
        (any::<u8>(), region()).prop_map(|(priority, region)| Pdu::Unregister { priority, region }),
        ranges().prop_map(Pdu::Get),
        ranges().prop_map(Pdu::GetNext),
        (any::<[u16; 2]>(), ranges()).prop_map(|([non_repeaters, max_repetitions], ranges)| {
            Pdu::GetBulk {
                non_repeaters,
                max_repetitions,
                ranges,
            }
        }),
        bindings().prop_map(Pdu::TestSet),
        prop_oneof![
            Just(Pdu::CommitSet),
            Just(Pdu::UndoSet),
            Just(Pdu::CleanupSet),
            Just(Pdu::Ping)
        ],
        bindings().prop_map(Pdu::Notify),
        bindings().prop_map(Pdu::IndexAllocate),
        bindings().prop_map(Pdu::IndexDeallocate),
        (oid(), text()).prop_map(|(id, description)| Pdu::AddAgentCaps { id, description }),
        oid().prop_map(|id| Pdu::RemoveAgentCaps { id }),
        (any::<(u32, u16, u16)>(), bindings()).prop_map(|((uptime, error, index), bindings)| {
            Pdu::Response(Response {
                uptime,
                error,
                index,
                bindings,
            })
        }),
    ]
}

prop_compose! {
    fn message()(numbers in any::<[u32; 3]>(), flags in 0_u8..8, context in proptest::option::of(vec(any::<u8>(), 0..9)), pdu in pdu()) -> Message {
        let [session, transaction, packet] = numbers;
        let no_context = matches!(
            pdu,
            Pdu::Open { .. } | Pdu::Close { .. } | Pdu::CommitSet | Pdu::UndoSet | Pdu::CleanupSet | Pdu::Response(_)
        );
        Message { session, transaction, packet, flags, context: context.filter(|_| !no_context), pdu }
    }
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(message in message(), network in any::<bool>()) {
        let mut octets = Vec::new();
        message.write_ordered(network, &mut octets);
        prop_assert_eq!(octets.len() % 4, 0);
        prop_assert_eq!(first_message(&octets), Some((message, octets.len())));
    }

    /// Those of the master that a subagent serves, damaged.
    #[test]
    fn damaged_messages_harm_nobody(
        mut messages in vec(message(), 1..6),
        network in any::<bool>(),
        damage in vec(any::<(u16, u8)>(), 0..6),
        cut in any::<u16>(),
    ) {
        let mut octets = Vec::new();
        for message in &mut messages {
            message.session = 7;
            message.context = None;
            message.write_ordered(network, &mut octets);
        }
        for (place, octet) in damage {
            let place = usize::from(place) % octets.len();
            octets[place] = octet;
        }
        octets.truncate(octets.len() - usize::from(cut) % 8);
        fuzz_master(&octets);
    }

    #[test]
    fn any_octets_harm_nobody(octets in vec(any::<u8>(), 0..400)) {
        fuzz_master(&octets);
    }
}

/// RFC 2741, 5.1 and 5.4: sysDescr.0 behind a prefix, and a string with padding.
#[test]
fn octets_are_those_of_the_rfc() {
    let message = Message {
        session: 1,
        transaction: 2,
        packet: 3,
        flags: 0,
        context: None,
        pdu: Pdu::TestSet(vec![Binding {
            name: Oid::new(&[1, 3, 6, 1, 2, 1, 1, 1, 0]),
            bound: Bound::Value(Value::Octets(b"hello".to_vec())),
        }]),
    };
    let mut octets = Vec::new();
    message.write(&mut octets);
    let header = [1, 8, 16, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 36];
    let name = [4, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let value = [0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0, 0, 0];
    assert_eq!(octets, [&header[..], &[0, 4, 0, 0], &name, &value].concat());
}

#[test]
fn lengths_and_versions_that_cannot_be_are_told() {
    let mut octets = [1, 13, 16, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0];
    assert!(Header::read(&octets[..HEADER - 1]).unwrap().is_none());
    assert!(Header::read(&octets).unwrap().is_some());
    octets[19] = 2;
    assert_eq!(Header::read(&octets), Err(Malformed::Length(2)));
    octets[16..].copy_from_slice(&[0, 16, 0, 0]);
    assert_eq!(Header::read(&octets), Err(Malformed::Length(1 << 20)));
    octets[0] = 2;
    assert_eq!(Header::read(&octets), Err(Malformed::Version(2)));
}

#[test]
fn identifiers_are_bounded_with_their_prefix() {
    // 127 numbers behind a prefix of five.
    let mut octets = vec![1, 5, 16, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 2, 4];
    octets.extend([127, 2, 0, 0]);
    octets.extend([0; 127 * 4]);
    octets.extend([0, 0, 0, 0]);
    assert_eq!(first_message(&octets), None);
    octets[20..24].copy_from_slice(&[127, 0, 0, 0]);
    assert!(first_message(&octets).is_some());
}
