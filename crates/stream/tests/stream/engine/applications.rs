//! Several applications on one engine: each sees exactly what it would see alone, whatever the
//! others want and do.

use flowgauge_stream::engine::{ChunkFlags, Cutoff, Mode, Parameter, StreamRef};
use flowgauge_wire::Nanos;
use proptest::prelude::*;

use super::{Action, Collect, Plan, plans, run, run_acting, segments};

/// What one application saw: offset, gap, length and flags of each chunk with its packets, and the
/// bytes.
type Seen = (
    Vec<(u64, u64, usize, u16, Vec<(Nanos, Option<i64>)>)>,
    Vec<u8>,
);

fn seen(collect: &Collect, application: u8, flags: u16) -> Seen {
    let log = collect.log.iter().filter(|event| event.0 == application);
    let bytes = collect.bytes.get(&application);
    (
        log.map(|event| (event.1, event.2, event.3, event.4 & flags, event.5.clone()))
            .collect(),
        bytes.map_or_else(Vec::new, |bytes| bytes.values().copied().collect()),
    )
}

fn actions() -> impl Strategy<Value = Option<(u64, Action)>> {
    let action = prop_oneof![
        Just(Action::Keep),
        Just(Action::Discard),
        (0_u64..3000).prop_map(Action::Cutoff),
        prop_oneof![Just(1_u32), Just(30), Just(64), Just(700), Just(16_384)]
            .prop_map(|bytes| Action::Parameter(Parameter::ChunkBytes(bytes))),
        (0_u32..30).prop_map(|bytes| Action::Parameter(Parameter::OverlapBytes(bytes))),
    ];
    prop::option::of((1_u64..6, action))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_application_sees_what_it_would_see_alone(
        first in plans(),
        second in plans(),
        acts in [actions(), actions(), actions(), actions()],
        segments in segments(),
        batch in prop_oneof![Just(1_usize), Just(3), Just(256)],
    ) {
        // How the stream ends is the input's business.
        let second = Plan { fin: first.fin, ..second };
        let third = Plan { cutoff: Some(700), ..first };
        let plans = [first, second, third, first];
        // An overlap is for streams without gaps, and so is what the others do about it.
        let acts: Vec<Option<(u64, Action)>> = acts
            .iter()
            .zip(&plans)
            .map(|(act, plan)| act.filter(|(_, act)| {
                plan.mode != Mode::Fast || matches!(act, Action::Discard | Action::Cutoff(_))
            }))
            .collect();
        let together = run_acting(&plans, &acts, &segments, batch, |_, _| {});
        // A stream ends once, for all: where one application waits for a hole and another does not,
        // what the latter's last chunk says may be its timeout instead of the end.
        let mixed = (first.mode == Mode::Fast) != (second.mode == Mode::Fast);
        let end = ChunkFlags::LAST.with(ChunkFlags::TIMEOUT);
        let flags = if mixed { !end.0 } else { u16::MAX };
        for (at, plan) in plans.iter().enumerate() {
            let alone = run_acting(&[*plan], &acts[at..=at], &segments, batch, |_, _| {});
            let (together, alone) = (seen(&together, at as u8, flags), seen(&alone, 0, flags));
            prop_assert_eq!(together, alone, "application {}", at);
        }
    }
}

#[test]
fn equal_applications_share_their_chunks() {
    let plan = Plan {
        mode: Mode::Wait,
        chunk: 500,
        overlap: 0,
        cutoff: None,
        timeout: None,
        need_packets: false,
        fin: true,
    };
    let segments: Vec<(u32, u32)> = (0..20).map(|at| (100 * at, 100 * at + 100)).collect();
    let places = |plans: &[Plan]| run(plans, &segments, 1, |_, _| {}).places;
    let shared = places(&[plan, plan]);
    assert_eq!(shared[&0], shared[&1]);
    let cutoff = Some(1999);
    let cut = places(&[plan, Plan { cutoff, ..plan }]);
    assert_eq!(cut[&0][..3], cut[&1][..3]);
    let apart = places(&[plan, Plan { chunk: 501, ..plan }]);
    assert_ne!(apart[&0][0], apart[&1][0]);
    let fast = Plan {
        mode: Mode::Fast,
        ..plan
    };
    let shared = places(&[fast, fast]);
    assert_eq!(shared[&0], shared[&1]);
}

/// Does what an application is to do.
pub(crate) fn act(stream: &mut StreamRef<'_>, action: Action) {
    match action {
        Action::Keep => stream.keep_chunk(),
        Action::Discard => stream.discard(),
        Action::Cutoff(limit) => stream.set_cutoff(Cutoff(limit)),
        Action::Parameter(parameter) => stream.set_parameter(parameter),
    }
}

/// A chunk that begins with the last byte before the cutoff is sent with it, whoever else is there: what comes later
/// has no part in it.
#[test]
fn a_chunk_that_begins_with_the_last_byte_is_sent_at_once() {
    let first = Plan {
        mode: Mode::Fast,
        chunk: 64,
        overlap: 0,
        cutoff: Some(1810),
        timeout: None,
        need_packets: true,
        fin: false,
    };
    let second = Plan {
        mode: Mode::Wait,
        chunk: 0,
        cutoff: None,
        ..first
    };
    let mut segments: Vec<(u32, u32)> = (0..29).map(|at| (60 * at, 60 * at + 60)).collect();
    segments.extend([(1740, 1810), (1782, 1783), (1782, 1783)]);
    let chunks = |plans: &[Plan]| {
        let collect = run(plans, &segments, 1, |_, _| {});
        seen(&collect, 0, ChunkFlags::CUTOFF.0).0
    };
    let alone = chunks(&[first]);
    let (offset, _, len, flags, packets) = alone.last().unwrap();
    assert_eq!((*offset, *len, *flags), (1792, 18, ChunkFlags::CUTOFF.0));
    assert!(packets.is_empty(), "{packets:?}");
    assert_eq!(chunks(&[first, second]), alone);
}
