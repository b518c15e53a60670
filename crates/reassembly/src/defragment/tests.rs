use super::*;
use crate::corpora::corpora;

fn fragment<'a>(
    version: u8,
    header: &'a [u8],
    offset: u32,
    more: bool,
    data: &'a [u8],
) -> Fragment<'a> {
    Fragment {
        version,
        source: Address::v4([1, 1, 1, 1]),
        destination: Address::v4([2, 2, 2, 2]),
        protocol: 1,
        id: 7,
        context: 0,
        offset,
        more,
        header,
        next_header_at: if version == 4 { 9 } else { 6 },
        data,
        data_len: data.len() as u32,
        time: Nanos::from_secs(1),
        wire_len: data.len() as u32 + 34,
        ip_len: data.len() as u32 + 20,
        frames: 1,
    }
}

const HEADER_V4: [u8; 20] = [
    0x45, 0, 0, 0, 0, 7, 0x20, 0, 64, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2,
];
const HEADER_V6: [u8; 40] = {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[6] = 44;
    header
};

fn reassemble(
    version: u8,
    policy: OverlapPolicy,
    pieces: &[(u32, bool, char, usize)],
) -> Option<String> {
    let config = DefragmentConfig {
        policy,
        ..DefragmentConfig::default()
    };
    let mut defragmenter = Defragmenter::new(config);
    let mut out = Vec::new();
    let header: &[u8] = if version == 4 { &HEADER_V4 } else { &HEADER_V6 };
    let mut complete = None;
    for &(offset, more, fill, len) in pieces {
        let data = vec![fill as u8; len];
        let piece = fragment(version, header, offset, more, &data);
        if let Outcome::Complete(totals) = defragmenter.insert(&piece, (), &mut out) {
            assert_eq!(totals.frames as usize, pieces.len());
            complete = Some(String::from_utf8(out[header.len()..].to_vec()).unwrap());
        }
    }
    complete
}

#[test]
fn overlap_vectors() {
    let Some(corpora) = corpora() else { return };
    let files = std::fs::read_dir(corpora.join("overlap-vectors")).unwrap();
    let mut cases = 0;
    for file in files.flatten() {
        if !file
            .file_name()
            .to_string_lossy()
            .starts_with("ip_overlap_vectors")
        {
            continue;
        }
        let text = std::fs::read_to_string(file.path()).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        for case in document["results"].as_array().unwrap() {
            let list = &document["fragments"][case["fragments_ref"].as_str().unwrap()];
            let pieces: Vec<_> = list
                .as_array()
                .unwrap()
                .iter()
                .map(|piece| {
                    (
                        piece["offset"].as_u64().unwrap() as u32,
                        piece["more"].as_u64() == Some(1) || piece["more"].as_bool() == Some(true),
                        piece["fill"].as_str().unwrap().chars().next().unwrap(),
                        piece["length"].as_u64().unwrap() as usize,
                    )
                })
                .collect();
            let policy: OverlapPolicy = case["policy"].as_str().unwrap().parse().unwrap();
            // The fragments are the same in both families, and so must the result be.
            for version in [4, 6] {
                assert_eq!(
                    reassemble(version, policy, &pieces).as_deref(),
                    case["expected"].as_str(),
                    "{} ({policy}, IPv{version})",
                    case["case"]
                );
            }
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert!(cases > 0);
}

/// The published pattern under every policy, expectations worked out by hand from the rules.
#[test]
fn pattern_under_every_policy() {
    let pattern = [
        (0, 'A', 24),
        (32, 'B', 16),
        (48, 'C', 24),
        (80, 'D', 8),
        (104, 'E', 16),
        (120, 'F', 24),
        (144, 'G', 16),
        (160, 'H', 16),
        (176, 'I', 8),
        (8, 'J', 32),
        (48, 'K', 24),
        (72, 'L', 24),
        (96, 'M', 24),
        (128, 'N', 8),
        (152, 'O', 8),
        (160, 'P', 8),
        (176, 'Q', 16),
    ];
    let pieces: Vec<_> = pattern
        .iter()
        .map(|&(offset, fill, len)| (offset, fill != 'Q', fill, len))
        .collect();
    let short = |text: &str| -> String { text.chars().step_by(8).collect() };
    use OverlapPolicy as P;
    for (policies, expected) in [
        (
            &[P::First, P::Hpux11, P::MacOs][..],
            "AAAJBBCCCLDLMEEFFFGGHHIQ",
        ),
        (&[P::Last][..], "AJJJJBKKKLLLMMMFNFGOPHQQ"),
        (
            &[P::Bsd, P::Hpux10, P::Irix][..],
            "AAAJJBCCCLLLMMMFFFGGHHIQ",
        ),
        (&[P::BsdRight][..], "AJJJBBKKKLDLMEEFNFGOPHQQ"),
        (&[P::Linux, P::OldLinux][..], "AAAJJBKKKLLLMMMFFFGGPHQQ"),
        (
            &[P::Windows, P::Windows2003, P::Vista][..],
            "AAAJBBCCCLLLMEEFFFGGHHIQ",
        ),
        (&[P::Solaris][..], "AAAJBBCCCLLLMMMFFFGGHHIQ"),
    ] {
        for &policy in policies {
            for version in [4, 6] {
                let whole = reassemble(version, policy, &pieces).unwrap();
                assert_eq!(whole.len(), 192);
                assert_eq!(short(&whole), expected, "{policy}, IPv{version}");
            }
        }
    }
}

#[test]
fn header_says_whole() {
    let mut defragmenter = Defragmenter::new(DefragmentConfig::default());
    let mut out = Vec::new();
    let (first, last) = ([1u8; 16], [2u8; 5]);
    let second = fragment(4, &HEADER_V4, 16, false, &last);
    assert_eq!(defragmenter.insert(&second, 2, &mut out), Outcome::Held);
    let outcome = defragmenter.insert(&fragment(4, &HEADER_V4, 0, true, &first), 1, &mut out);
    let totals = Totals {
        frames: 2,
        wire_len: 16 + 5 + 68,
        ip_len: 61,
    };
    assert_eq!(outcome, Outcome::Complete(totals));
    assert_eq!(out[2..4], [0, 41]);
    assert_eq!(out[6..8], [0, 0]);
    let sum: u32 = out[..20]
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    assert!(defragmenter.is_empty());

    let second = fragment(6, &HEADER_V6, 16, false, &last);
    assert_eq!(defragmenter.insert(&second, 2, &mut out), Outcome::Held);
    defragmenter.insert(&fragment(6, &HEADER_V6, 0, true, &first), 1, &mut out);
    assert_eq!((out.len(), out[4..7].to_vec()), (61, vec![0, 21, 1]));
}

#[test]
fn nonsense_is_refused_and_counted() {
    let mut defragmenter = Defragmenter::new(DefragmentConfig::default());
    let mut out = Vec::new();
    let mut refused = |piece: Fragment<'_>| {
        assert_eq!(defragmenter.insert(&piece, (), &mut out), Outcome::Refused);
    };
    let data = [0u8; 64];
    refused(fragment(4, &HEADER_V4, 0, true, &[]));
    refused(fragment(4, &HEADER_V4, 65_480, true, &data));
    refused(fragment(6, &HEADER_V6, 8, true, &data[..12]));
    let statistics = defragmenter.statistics();
    assert_eq!((statistics.bad_length, statistics.too_long), (2, 1));
    // Teardrop: an end that moves, and data beyond the end.
    assert_eq!(
        defragmenter.insert(&fragment(4, &HEADER_V4, 64, false, &data), (), &mut out),
        Outcome::Held
    );
    for piece in [
        fragment(4, &HEADER_V4, 128, true, &data),
        fragment(4, &HEADER_V4, 8, false, &data),
    ] {
        assert_eq!(defragmenter.insert(&piece, (), &mut out), Outcome::Refused);
    }
    assert_eq!(defragmenter.statistics().bad_end, 2);
    assert_eq!(defragmenter.len(), 1);
}

#[test]
fn time_and_room_are_bounded() {
    let config = DefragmentConfig {
        max_datagrams: 2,
        ..DefragmentConfig::default()
    };
    let mut defragmenter = Defragmenter::new(config);
    let mut out = Vec::new();
    let data = [0u8; 64];
    for id in 0..3 {
        let mut piece = fragment(4, &HEADER_V4, 0, true, &data);
        piece.id = id;
        defragmenter.insert(&piece, id, &mut out);
    }
    let evicted: Vec<_> = defragmenter.take_incomplete().collect();
    assert_eq!(
        (evicted.len(), evicted[0].tag, evicted[0].totals.frames),
        (1, 0, 1)
    );
    defragmenter.expire(Nanos::from_secs(31));
    assert!(!defragmenter.has_incomplete());
    defragmenter.expire(Nanos::from_secs(32));
    assert_eq!(defragmenter.take_incomplete().count(), 2);
    assert_eq!(defragmenter.statistics().timed_out, 2);
    assert!(defragmenter.is_empty());
}

#[test]
fn ipv6_overlaps_can_be_refused() {
    let config = DefragmentConfig {
        refuse_ipv6_overlaps: true,
        ..DefragmentConfig::default()
    };
    let mut defragmenter = Defragmenter::new(config);
    let mut out = Vec::new();
    let data = [0u8; 64];
    defragmenter.insert(&fragment(6, &HEADER_V6, 0, true, &data), (), &mut out);
    defragmenter.insert(&fragment(6, &HEADER_V6, 32, true, &[1; 64]), (), &mut out);
    assert_eq!(defragmenter.take_incomplete().count(), 1);
    assert!(defragmenter.is_empty());
}

/// A defragmenter with so much memory, and what a fragment of it needs.
fn with_memory(max_bytes: u64, policy: OverlapPolicy) -> Defragmenter<u32> {
    Defragmenter::new(DefragmentConfig {
        policy,
        max_bytes,
        ..DefragmentConfig::default()
    })
}

/// Deterministic, in no order a program would choose.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    assert_eq!(count % 2, 0);
    (0..count).map(move |n| (u64::from(n) * 40_503 % u64::from(count)) as u32)
}

#[test]
fn a_tiny_fragment_at_a_high_offset_costs_little() {
    const BOUND: u64 = 8 << 20;
    let mut defragmenter = with_memory(BOUND, OverlapPolicy::First);
    let mut out = Vec::new();
    for id in 0..100_000 {
        let mut piece = fragment(4, &HEADER_V4, 65_000, true, &[7; 8]);
        piece.id = id;
        assert_eq!(defragmenter.insert(&piece, id, &mut out), Outcome::Held);
        assert!(defragmenter.bytes() <= BOUND, "{id}");
    }
    assert!(defragmenter.len() > 3000, "{}", defragmenter.len());
    let statistics = defragmenter.statistics();
    assert_eq!(
        statistics.evicted + defragmenter.len() as u64,
        100_000,
        "what is not held was given up"
    );
    let given_up = defragmenter.take_incomplete();
    let memory = given_up.filter(|given_up| given_up.cause == GivenUp::Memory);
    assert_eq!(memory.count() as u64, statistics.evicted);
}

#[test]
fn a_flood_leaves_no_memory_behind_that_keeps_others_out() {
    const BOUND: u64 = 1 << 20;
    let mut defragmenter = with_memory(BOUND, OverlapPolicy::First);
    let mut out = Vec::new();
    let data = [1u8; 1480];
    for id in 0..20_000 {
        for at in 0..4 {
            let mut piece = fragment(4, &HEADER_V4, at * 1480, true, &data);
            piece.id = id;
            defragmenter.insert(&piece, id, &mut out);
            assert!(defragmenter.bytes() <= BOUND);
        }
    }
    let mut first = fragment(4, &HEADER_V4, 0, true, &data);
    first.id = 77_777;
    let last = Fragment {
        offset: 1480,
        more: false,
        ..first
    };
    assert_eq!(defragmenter.insert(&first, 0, &mut out), Outcome::Held);
    let outcome = defragmenter.insert(&last, 0, &mut out);
    assert!(matches!(outcome, Outcome::Complete(_)));
}

#[test]
fn thousands_of_fragments_of_a_datagram_cost_some_dozens_of_steps_each() {
    for &policy in OverlapPolicy::ALL {
        let mut defragmenter = with_memory(1 << 20, policy);
        let mut out = Vec::new();
        // Every other unit of eight bytes, in no order, so that each is a piece of its own, twice.
        for round in 0..2 {
            for unit in scattered(4000) {
                let data = [unit as u8 ^ round; 8];
                let piece = fragment(4, &HEADER_V4, unit * 16, true, &data);
                assert_eq!(defragmenter.insert(&piece, 0, &mut out), Outcome::Held);
            }
        }
        let steps = defragmenter.statistics().search_steps;
        assert!(steps < 2 * 4000 * 150, "{policy}: {steps}");
        // A storm of overlaps: each fragment touches the pieces around it, and no more.
        for unit in scattered(8000).chain(scattered(7990)) {
            let data = [unit as u8; 40];
            let piece = fragment(4, &HEADER_V4, unit * 8, true, &data);
            assert_eq!(defragmenter.insert(&piece, 0, &mut out), Outcome::Held);
        }
        let storm = defragmenter.statistics().search_steps - steps;
        assert!(storm < 16_000 * 500, "{policy}: {storm}");
        assert_eq!(defragmenter.len(), 1);
        assert!(defragmenter.bytes() < 400_000, "{}", defragmenter.bytes());
    }
}

/// What is overdue is another datagram's, whether or not a tick came in between.
#[test]
fn a_datagram_is_held_until_it_is_overdue() {
    let mut defragmenter = Defragmenter::new(DefragmentConfig::default());
    let mut out = Vec::new();
    let first = fragment(4, &HEADER_V4, 0, true, &[1; 64]);
    assert!(!defragmenter.holds(&first));
    assert_eq!(defragmenter.insert(&first, (), &mut out), Outcome::Held);
    let at = |seconds| Fragment {
        time: Nanos::from_secs(seconds),
        ..fragment(4, &HEADER_V4, 64, false, &[2; 8])
    };
    assert!(defragmenter.holds(&at(31)));
    assert!(!defragmenter.holds(&at(32)));
    assert_eq!(defragmenter.insert(&at(32), (), &mut out), Outcome::Held);
    assert!(defragmenter.holds(&at(62)));
}
