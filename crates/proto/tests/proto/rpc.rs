//! Remote procedure calls in whatever pieces they come; protocols of datagrams on any bytes.

use crate::fuzz;
use flowgauge_proto::rpc::{Frame, Framer};
use proptest::prelude::*;

const CALL: &[u8] = b"\0\0\0\x07\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\x03\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x86\xa3\0\0\0\x03\0\0\0\x11\0\0\0\0";
const REPLY: &[u8] = b"\0\0\0\x07\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\x01";

/// A record in fragments of at most so many bytes.
fn record(message: &[u8], size: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    let count = message.len().div_ceil(size);
    for (index, part) in message.chunks(size).enumerate() {
        let last = if index + 1 == count { 1 << 31 } else { 0 };
        stream.extend_from_slice(&(last | part.len() as u32).to_be_bytes());
        stream.extend_from_slice(part);
    }
    stream
}

fn frames(pieces: &[(u64, &[u8])]) -> Vec<String> {
    let mut framer = Framer::default();
    let mut lines = Vec::new();
    let mut take = |frame: Frame<'_>| {
        lines.push(match frame {
            Frame::Record {
                head,
                bytes,
                missing,
                is_whole,
            } => format!("{} of {bytes}, {missing} missing, {is_whole}", head.len()),
            Frame::Lost => "lost".to_owned(),
        });
    };
    for (missing, piece) in pieces {
        framer.gap(*missing, &mut take);
        framer.data(piece, &mut take);
    }
    framer.finish(&mut take);
    lines
}

#[test]
fn records_are_found_wherever_their_stream_is_cut() {
    for size in [1, 3, 20, 28, 100] {
        let stream = [record(CALL, size), record(REPLY, size)].concat();
        let expected = ["56 of 56, 0 missing, true", "28 of 28, 0 missing, true"];
        for cut in 0..stream.len() {
            let (one, other) = stream.split_at(cut);
            assert_eq!(
                frames(&[(0, one), (0, other)]),
                expected,
                "{size}, cut at {cut}"
            );
        }
        let single: Vec<(u64, &[u8])> = stream.chunks(1).map(|byte| (0, byte)).collect();
        assert_eq!(frames(&single), expected);
    }
    let long = [CALL, &[0; 5000]].concat();
    assert_eq!(
        frames(&[(0, &record(&long, 9000))]),
        ["2048 of 5056, 0 missing, true"]
    );
}

#[test]
fn holes_are_counted_and_read_over_where_that_is_possible() {
    let stream = [record(CALL, 100), record(REPLY, 100)].concat();
    for start in 4..60 {
        for end in start + 1..=60 {
            let missing = (end - start) as u64;
            let lines = frames(&[(0, &stream[..start]), (missing, &stream[end..])]);
            let first = format!("{} of 56, {missing} missing, true", start - 4);
            assert_eq!(
                lines,
                [first.as_str(), "28 of 28, 0 missing, true"],
                "{start} to {end}"
            );
        }
    }
    // Of the mark, or into it: the next record is looked for where a piece begins.
    let third = record(CALL, 100);
    assert_eq!(
        frames(&[(0, &stream[..50]), (12, &stream[62..]), (0, &third)]),
        [
            "46 of 56, 10 missing, false",
            "lost",
            "56 of 56, 0 missing, true"
        ]
    );
    assert_eq!(frames(&[(0, &stream[..2]), (1, &stream[3..])]), ["lost"]);
    assert_eq!(
        frames(&[(0, &stream[..40])]),
        ["36 of 36, 0 missing, false"]
    );
    assert_eq!(frames(&[(0, b"GET / HTTP/1.1\r\n")]), ["lost"]);
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        CALL,
        REPLY,
        b"\0\0\0\x07\0\0\0\x01",
        b"\0\0\0\0",
        b"\0\0\0\x01",
        b"\x80\0\0\x38",
        b"\x80\0\0\x1c",
        b"\0\0\0\x04",
        b"\x01\x02\0\x1a\0\0\0\x09\x40\0\0\0\0\0\0\0\x0a\0\0\x01",
        b"http://a/\0",
        b"\x17\x02\0\x30",
        b"\xff",
        b"\x3f",
        b"\x84",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..20).prop_map(|it| it.concat())
}

proptest! {
    #[test]
    fn nothing_panics(bytes: Vec<u8>, built in pieces(), flip in any::<prop::sample::Index>(), to: u8) {
        let mut built = built;
        for _ in 0..2 {
            for bytes in [&bytes, &built] {
                fuzz::rpc(bytes);
                for parser in [fuzz::icp, fuzz::dhcp, fuzz::dhcpv6, fuzz::ntp, fuzz::snmp] {
                    parser(bytes);
                }
            }
            if !built.is_empty() {
                let at = flip.index(built.len());
                built[at] = to;
            }
        }
    }
}
