use super::*;
use crate::corpora::corpora;
use crate::policy::OverlapPolicy;
use flowgauge_wire::Nanos;

const BASE: u32 = 0xffff_fff0;

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Data(String),
    Gap(u64),
}

#[derive(Default)]
struct Events(Vec<Event>);

impl Receiver for Events {
    fn position(&self) -> u64 {
        let len = |event: &Event| match event {
            Event::Data(text) => text.len() as u64,
            Event::Gap(bytes) => *bytes,
        };
        self.0.iter().map(len).sum()
    }

    fn data(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        match self.0.last_mut() {
            Some(Event::Data(last)) => last.push_str(&text),
            _ => self.0.push(Event::Data(text.into_owned())),
        }
    }

    fn gap(&mut self, bytes: u64, _: GapCause) {
        self.0.push(Event::Gap(bytes));
    }
}

struct Stream {
    reassembler: Reassembler,
    half: Half,
    peer: Half,
    events: Events,
    time: Nanos,
}

impl Stream {
    fn new(policy: OverlapPolicy) -> Stream {
        let config = ReassemblyConfig {
            one_sided_bytes: u64::MAX,
            one_sided_time: Nanos::MAX,
            ..ReassemblyConfig::default()
        };
        Stream {
            reassembler: Reassembler::new(config),
            half: Half::new(policy),
            peer: Half::new(policy),
            events: Events::default(),
            time: Nanos::from_secs(1000),
        }
    }

    fn started(policy: OverlapPolicy) -> Stream {
        let mut stream = Stream::new(policy);
        stream.half.start_at(BASE);
        stream
    }

    fn send(&mut self, offset: i32, data: &str) {
        self.segment(offset, data, data.len() as u32, false);
    }

    fn fin(&mut self, offset: i32, data: &str) {
        self.segment(offset, data, data.len() as u32, true);
    }

    fn segment(&mut self, offset: i32, data: &str, len: u32, fin: bool) {
        let segment = Segment {
            seq: BASE.wrapping_add(offset as u32),
            bytes: data.as_bytes(),
            len,
            fin,
            time: self.time,
            account: Account::Packet,
        };
        if !fin
            && len as usize == data.len()
            && len > 0
            && self.half.take_in_order(segment.seq, len)
        {
            self.events.data(data.as_bytes());
            return;
        }
        self.reassembler
            .segment(0, &mut self.half, &self.peer, &segment, &mut self.events);
    }

    fn ack(&mut self, offset: i32) {
        self.peer
            .note_ack(0, BASE.wrapping_add(offset as u32), 1000);
        self.advance();
    }

    /// The peer sends data of its own.
    fn answer(&mut self, offset: i32) {
        self.peer
            .note_ack(0, BASE.wrapping_add(offset as u32), 1000);
        if self.half.is_queued() {
            self.reassembler
                .answered(&mut self.half, &self.peer, self.time, &mut self.events);
        }
    }

    fn advance(&mut self) {
        if self.half.is_queued() {
            self.reassembler
                .advance(&mut self.half, &self.peer, self.time, &mut self.events);
        }
    }

    fn wait(&mut self, milliseconds: u64) {
        self.time = self.time + Nanos::from_millis(milliseconds);
        self.advance();
    }

    fn finish(&mut self) -> u64 {
        self.reassembler
            .finish(&mut self.half, &self.peer, &mut self.events)
    }

    /// The events as text: `[n]` for a hole.
    fn text(&self) -> String {
        let show = |event: &Event| match event {
            Event::Data(text) => text.clone(),
            Event::Gap(bytes) => format!("[{bytes}]"),
        };
        self.events.0.iter().map(show).collect()
    }
}

/// Every vector, delivery held by a hole in front: what waits after each step is what is expected.
#[test]
fn overlap_vectors() {
    let mut cases = 0;
    let Some(corpora) = corpora() else { return };
    let files = std::fs::read_dir(corpora.join("overlap-vectors")).unwrap();
    for file in files.flatten() {
        if !file
            .file_name()
            .to_string_lossy()
            .starts_with("tcp_overlap_vectors")
        {
            continue;
        }
        let text = std::fs::read_to_string(file.path()).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        for case in document["cases"].as_array().unwrap() {
            let name = case["case"].as_str().unwrap();
            let policy: OverlapPolicy = case["policy"].as_str().unwrap().parse().unwrap();
            let steps = case["steps"].as_array().unwrap();
            for upto in 1..=steps.len() {
                let mut stream = Stream::new(policy);
                // The byte before the first is missing until the end.
                stream.half.start_at(BASE.wrapping_sub(1));
                for step in &steps[..upto] {
                    let offset = step["offset"].as_i64().unwrap() as i32;
                    stream.send(offset, step["data"].as_str().unwrap());
                }
                stream.send(-1, "#");
                stream.finish();
                let mut dots = String::new();
                for event in &stream.events.0 {
                    match event {
                        Event::Data(text) => dots.push_str(text),
                        Event::Gap(len) => dots.push_str(&".".repeat(*len as usize)),
                    }
                }
                let expected = steps[upto - 1]["expect_after"].as_str().unwrap();
                assert_eq!(
                    dots,
                    format!("#{expected}"),
                    "{name} ({policy}), step {upto}"
                );
            }
            assert_eq!(
                steps.last().unwrap()["expect_after"].as_str(),
                case["final"].as_str()
            );
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
        (1, "AAA"),
        (5, "BB"),
        (7, "CCC"),
        (11, "D"),
        (14, "EE"),
        (16, "FFF"),
        (19, "GG"),
        (21, "HH"),
        (23, "I"),
        (2, "JJJJ"),
        (7, "KKK"),
        (10, "LLL"),
        (13, "MMM"),
        (17, "N"),
        (20, "O"),
        (21, "P"),
        (23, "QQ"),
        (0, "0"),
    ];
    use OverlapPolicy as P;
    for (policies, expected) in [
        (&[P::First, P::Vista][..], "0AAAJBBCCCLDLMEEFFFGGHHIQ"),
        (
            &[
                P::Bsd,
                P::Windows,
                P::Windows2003,
                P::Hpux10,
                P::Irix,
                P::MacOs,
            ][..],
            "0AAAJJBCCCLLLMMMFFFGGHHIQ",
        ),
        (&[P::Linux][..], "0AAAJJBCCCLLLMMMFFFGGHHQQ"),
        (&[P::OldLinux][..], "0AAAJJBKKKLLLMMMFFFGGHHQQ"),
        (&[P::Last][..], "0AJJJJBKKKLLLMMMFNFGOPHQQ"),
        (&[P::Solaris, P::Hpux11][..], "0AJJJBBKKKLLLMMMFFFGGHHQQ"),
        (&[P::BsdRight][..], "0AJJJBBKKKLDLMEEFNFGOPHQQ"),
    ] {
        for &policy in policies {
            let mut stream = Stream::started(policy);
            for (offset, data) in pattern {
                stream.send(offset, data);
            }
            assert_eq!(stream.finish(), 0);
            assert_eq!(stream.text(), expected, "{policy}");
        }
    }
}

#[test]
fn in_order_and_wrap() {
    let mut stream = Stream::started(OverlapPolicy::First);
    for at in 0..10 {
        stream.send(at * 3, "abc");
    }
    assert_eq!(stream.reassembler.waiting(), 0);
    assert_eq!(stream.text(), "abc".repeat(10));
}

#[test]
fn a_hole_is_kept_while_the_peer_waits_for_it() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "a");
    stream.ack(1);
    // Eight mebibytes behind one missing byte, the peer's acknowledgements held.
    let block = "x".repeat(1024);
    for at in 0..8192 {
        stream.wait(1);
        stream.send(2 + at * 1024, &block);
        stream.ack(1);
    }
    assert_eq!(stream.text(), "a");
    stream.send(1, "b");
    assert_eq!(stream.text().len(), 2 + (8 << 20));
    assert_eq!(stream.reassembler.memory(), 0);
}

#[test]
fn an_acknowledged_hole_is_given_up_after_the_allowance() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "abc");
    stream.send(5, "fg");
    stream.ack(7);
    assert_eq!(stream.text(), "abc");
    stream.wait(400);
    assert_eq!(stream.text(), "abc");
    for _ in 0..10 {
        stream.wait(100);
    }
    assert_eq!(stream.text(), "abc[2]fg");
    assert_eq!(
        stream.reassembler.statistics().gaps[GapCause::Acknowledged as usize],
        1
    );
}

#[test]
fn a_reordered_capture_fills_an_acknowledged_hole() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(3, "def");
    stream.ack(6);
    stream.wait(10);
    stream.send(0, "abc");
    assert_eq!(stream.text(), "abcdef");
}

#[test]
fn what_was_answered_is_not_waited_for() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "abc");
    stream.send(5, "fg");
    stream.send(9, "jk");
    stream.answer(7);
    assert_eq!(stream.text(), "abc[2]fg");
    // Acknowledged as far as it waits: what is before it was received.
    stream.answer(9);
    assert_eq!(stream.text(), "abc[2]fg[2]jk");
    assert_eq!(
        stream.reassembler.statistics().gaps[GapCause::Acknowledged as usize],
        2
    );
    // An answer that does not acknowledge it changes nothing: it is still to come.
    stream.send(12, "mn");
    stream.answer(11);
    assert_eq!(stream.text(), "abc[2]fg[2]jk");
    stream.send(11, "l");
    assert_eq!(stream.text(), "abc[2]fg[2]jklmn");
}

#[test]
fn of_a_stream_picked_up_in_the_middle_what_was_answered_is_handed_on() {
    let mut stream = Stream::new(OverlapPolicy::First);
    stream.send(3, "def");
    assert_eq!(stream.text(), "");
    stream.answer(6);
    assert_eq!(stream.text(), "def");
    assert_eq!(stream.reassembler.statistics().gap_bytes, 0);
}

#[test]
fn one_sided_captures_do_not_wait_long() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.reassembler = Reassembler::new(ReassemblyConfig::default());
    stream.send(4, "e");
    stream.wait(900);
    assert_eq!(stream.text(), "");
    stream.wait(200);
    assert_eq!(stream.text(), "[4]e");
}

#[test]
fn pick_up_in_the_middle_allows_for_reordering() {
    let mut stream = Stream::new(OverlapPolicy::First);
    stream.send(3, "def");
    stream.wait(1);
    stream.send(0, "abc");
    assert_eq!(stream.text(), "");
    stream.wait(600);
    assert_eq!(stream.text(), "abcdef");
    // The peer's acknowledgement names the start at once.
    let mut stream = Stream::new(OverlapPolicy::First);
    stream.ack(3);
    stream.send(3, "def");
    assert_eq!(stream.text(), "def");
}

#[test]
fn missing_bytes_at_the_start_and_the_end() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(4, "efg");
    stream.fin(10, "");
    assert_eq!(stream.finish(), 3);
    assert_eq!(stream.text(), "[4]efg");

    let mut stream = Stream::started(OverlapPolicy::First);
    stream.send(0, "abc");
    stream.ack(9);
    assert_eq!(stream.finish(), 6);
    // One number more is a FIN that was not captured.
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.send(0, "abc");
    stream.ack(4);
    assert_eq!(stream.finish(), 0);
}

#[test]
fn keep_alives_and_data_after_fin_are_dropped() {
    let mut stream = Stream::started(OverlapPolicy::Last);
    stream.send(0, "abc");
    stream.send(2, "?");
    stream.send(3, "d");
    stream.fin(4, "e");
    stream.send(5, "more");
    stream.send(4, "emore");
    assert_eq!(stream.finish(), 0);
    assert_eq!(stream.text(), "abcde");
    assert!(stream.half.flags().contains(HalfFlags::CLOSED));
}

#[test]
fn a_forged_fin_is_not_believed() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.send(0, "abc");
    stream.send(5, "fgh");
    stream.ack(8);
    stream.fin(4, "");
    stream.send(3, "de");
    assert_eq!(stream.text(), "abcdefgh");
    assert_eq!(stream.reassembler.statistics().false_fins, 1);
}

/// Found by fuzzing: what crossed it was cut before the acknowledgement was looked at.
#[test]
fn a_fin_that_more_was_acknowledged_than_cuts_nothing() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.send(0, "abc");
    stream.fin(6, "");
    stream.ack(10);
    stream.send(3, "defghi");
    assert_eq!(stream.text(), "abcdefghi");
    assert_eq!(stream.reassembler.statistics().false_fins, 1);
}

#[test]
fn bytes_cut_by_the_snap_length_are_a_hole() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.segment(0, "ab", 6, false);
    stream.segment(6, "gh", 4, false);
    assert_eq!(stream.text(), "ab[4]gh[2]");
    // Out of order, and filled by a whole copy.
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.segment(2, "cd", 4, false);
    stream.send(6, "gh");
    stream.send(4, "ef");
    stream.send(0, "ab");
    assert_eq!(stream.text(), "abcdefgh");
}

#[test]
fn a_lone_far_segment_waits_until_a_second_agrees() {
    let far = 1 << 29;
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "abc");
    stream.send(far, "zzz");
    assert_eq!(stream.text(), "abc");
    assert_eq!(stream.reassembler.statistics().implausible, 1);
    stream.send(far + 3, "yyy");
    assert_eq!(stream.text(), format!("abc[{}]zzzyyy", far - 3));
    // Made up: the stream goes on where it was.
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "abc");
    stream.send(far, "zzz");
    stream.send(3, "def");
    stream.wait(1_000_000);
    stream.send(6, "ghi");
    stream.finish();
    assert_eq!(stream.text(), "abcdefghi");
    // Nothing says otherwise.
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "abc");
    stream.send(far, "zzz");
    stream.finish();
    assert_eq!(stream.text(), format!("abc[{}]zzz", far - 3));
    // Half the sequence space away it is as far behind as ahead.
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "abc");
    stream.send(i32::MIN, "zzzzzz");
    stream.send(5, "fgh");
    stream.send(3, "de");
    stream.finish();
    assert_eq!(stream.text(), "abcdefgh");
}

#[test]
fn what_acknowledgements_contradict_is_not_believed() {
    let far = 500_000_000;
    // Before anything was sent, too.
    for sent in ["", "abc"] {
        let mut stream = Stream::started(OverlapPolicy::First);
        let at = sent.len() as i32;
        stream.ack(0);
        stream.send(0, sent);
        stream.ack(at);
        for made_up in 0..5 {
            stream.send(far + 3 * made_up, "zzz");
        }
        stream.wait(1_000_000);
        stream.send(at, "def");
        stream.ack(at + 3);
        stream.send(at + 3, "ghi");
        stream.finish();
        assert_eq!(stream.text(), format!("{sent}defghi"));
        assert_eq!(stream.reassembler.memory(), 0);
    }
    // So much was lost: nothing that was captured is, whether acknowledgements follow or not.
    let after_loss = |acknowledged: bool| {
        let mut stream = Stream::started(OverlapPolicy::First);
        stream.reassembler = Reassembler::new(ReassemblyConfig {
            one_sided_bytes: 9,
            ..ReassemblyConfig::default()
        });
        stream.ack(0);
        stream.send(0, "abc");
        stream.ack(3);
        stream.send(far, "def");
        stream.send(far + 3, "ghi");
        assert_eq!(stream.text(), "abc");
        match acknowledged {
            true => stream.ack(far + 6),
            false => stream.send(far + 6, "jkl"),
        }
        stream.send(far + 9, "mno");
        stream
    };
    assert_eq!(
        after_loss(false).text(),
        format!("abc[{}]defghijklmno", far - 3)
    );
    assert_eq!(after_loss(true).text(), format!("abc[{}]defghi", far - 3));
    // Nor where each is far from the others, and acknowledgements come no more.
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.ack(0);
    stream.send(0, "abc");
    stream.ack(3);
    for at in [far, 2 * far, 3 * far] {
        stream.send(at, "def");
    }
    assert_eq!(stream.text(), "abc");
    stream.finish();
    let hole = far - 3;
    assert_eq!(
        stream.text(),
        format!("abc[{hole}]def[{hole}]def[{hole}]def")
    );
}

#[test]
fn holes_of_any_size_lose_nothing_that_was_captured() {
    // Twice around and more.
    for (gap, turns) in [
        (100_000_000_u32, 100),
        (600_000_000, 20),
        (1_100_000_000, 20),
        (1_500_000_000, 20),
        (1_600_000_000, 20),
    ] {
        for acknowledged in [false, true] {
            let mut stream = Stream::started(OverlapPolicy::First);
            let (mut at, mut expected) = (0_u32, String::new());
            for turn in 0..turns {
                if acknowledged || turn == 0 {
                    stream.ack(at as i32);
                }
                stream.send(at as i32, "abc");
                if turn % 3 == 0 {
                    stream.send(at.wrapping_add(3) as i32, "def");
                    // Late copies stay what they are.
                    stream.send(at as i32, "abc");
                    at = at.wrapping_add(3);
                    expected += "abcdef";
                } else {
                    expected += "abc";
                }
                at = at.wrapping_add(3 + gap);
                if turn + 1 != turns {
                    expected += &format!("[{gap}]");
                }
            }
            assert_eq!(stream.finish(), 0, "{gap} {acknowledged}");
            assert_eq!(stream.text(), expected, "{gap} {acknowledged}");
        }
    }
}

#[test]
fn holes_that_wait_at_once_are_no_longer_than_sequence_numbers_tell() {
    // What waits spans less than a window, then much more at a stroke.
    for (first, second) in [
        (900_000_000_u32, 1_500_000_000),
        (1_000_000_000, 1_600_000_000),
        (1_600_000_000, 300_000_000),
        (1_000_000, 1_600_000_000),
    ] {
        for acknowledged in [1, 2, 3, 100] {
            let mut stream = Stream::started(OverlapPolicy::First);
            let (mut at, mut expected) = (0_u32, String::new());
            for turn in 0..20 {
                if turn % acknowledged == 0 {
                    stream.ack(at as i32);
                }
                stream.send(at as i32, "abc");
                let gap = [first, second][turn % 2];
                at = at.wrapping_add(3 + gap);
                expected += &format!("abc[{gap}]");
            }
            stream.finish();
            let expected = &expected[..expected.rfind('[').unwrap()];
            assert_eq!(stream.text(), expected, "{acknowledged}");
        }
    }
}

#[test]
fn a_first_packet_that_is_made_up_is_no_beginning() {
    let far = [
        i32::MIN,
        i32::MIN + 100,
        i32::MAX - 100,
        1_500_000_000,
        -1_500_000_000,
    ];
    for made_up in far {
        // Without data.
        let mut stream = Stream::new(OverlapPolicy::First);
        (stream.half).start_near(BASE.wrapping_add(made_up as u32));
        for (number, text) in ["abc", "def", "ghi"].into_iter().enumerate() {
            stream.send(3 * number as i32, text);
        }
        assert_eq!(stream.finish(), 0, "{made_up}");
        assert_eq!(stream.text(), "abcdefghi", "{made_up}");
        // With data: the first that contradicts it stands as alone as it does, and where that is behind it is lost.
        let mut stream = Stream::new(OverlapPolicy::First);
        stream.send(made_up, "zzz");
        for (number, text) in ["abc", "def", "ghi"].into_iter().enumerate() {
            stream.send(3 * number as i32, text);
        }
        assert_eq!(stream.finish(), 0, "{made_up}");
        assert!(
            ["abcdefghi", "defghi"].contains(&&*stream.text()),
            "{made_up}: {}",
            stream.text()
        );
    }
}

#[test]
fn memory_used_up_gives_up_holes_and_loses_nothing_captured() {
    let mut stream = Stream::started(OverlapPolicy::First);
    stream.reassembler = Reassembler::new(ReassemblyConfig {
        memory_bytes: 5000,
        ..ReassemblyConfig::default()
    });
    stream.ack(0);
    for at in 1..6 {
        stream.send(at * 2, "x");
    }
    stream.finish();
    assert_eq!(stream.text(), "[2]x[1]x[1]x[1]x[1]x");
    assert_eq!(stream.reassembler.memory(), 0);
}

#[test]
fn a_start_learned_behind_waiting_data_makes_them_old() {
    // Mid-stream data wait for reordered ones before them; then a SYN-ACK names a later start.
    for (start, delivered, old) in [(0, "[10]abc", 0), (11, "bc", 1), (13, "", 3), (500, "", 3)] {
        let mut stream = Stream::new(OverlapPolicy::default());
        stream.send(10, "abc");
        stream.half.start_at(BASE.wrapping_add(start));
        assert_eq!(stream.finish(), 0);
        assert_eq!(stream.text(), delivered, "start {start}");
        assert_eq!(stream.reassembler.statistics().old_bytes, old);
        assert!(!stream.half.is_queued());
    }
}

#[test]
fn data_waiting_behind_a_fin_end_with_it() {
    let mut stream = Stream::started(OverlapPolicy::default());
    stream.send(20, "late");
    stream.send(0, "abc");
    stream.fin(3, "");
    stream.wait(10_000);
    stream.ack(4);
    assert_eq!(stream.finish(), 0);
    assert_eq!(stream.text(), "abc");
    assert!(!stream.half.is_queued());
}
