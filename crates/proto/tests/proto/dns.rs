//! DNS messages in whatever pieces they come.

use flowgauge_proto::Look;
use flowgauge_proto::dns::{Edns, Fault, Frame, Framer, Message, Part, look};

use crate::fuzz;
use proptest::prelude::*;

const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
const REPLY: &[u8] =
    b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\x01\x03www\x07example\x03com\0\0\x01\0\x01\
                       \xc0\x0c\0\x05\0\x01\0\0\x0e\x10\0\x02\xc0\x10\
                       \xc0\x10\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01\
                       \0\0\x29\x04\xd0\0\0\0\0\0\0";

/// All that a message says, in lines.
fn read(bytes: &[u8]) -> Vec<String> {
    let Some(message) = Message::new(bytes) else {
        return vec!["no header".to_owned()];
    };
    let mut lines = Vec::new();
    for part in message.parts() {
        let mut line = String::new();
        match part {
            Ok(Part::Question(question)) => {
                question.name.write(&mut line);
                line.push('?');
            }
            Ok(Part::Record(record)) => {
                record.name.write(&mut line);
                line.push_str(&format!(" {} ", record.ttl));
                record.data.write(&mut line);
                if let Some(edns) = Edns::of(&record) {
                    edns.write_client_subnet(&mut line);
                }
            }
            Err(fault) => line = fault.name().to_owned(),
        }
        lines.push(line);
    }
    lines
}

/// Pieces of a stream, and how many bytes are missing before each.
fn frames(pieces: &[(u64, &[u8])]) -> Vec<String> {
    let mut framer = Framer::default();
    let mut lines = Vec::new();
    let mut take = |frame: Frame<'_>| {
        lines.push(match frame {
            Frame::Message(message) => format!("{} bytes", message.len()),
            Frame::Cut(message) => format!("cut at {}", message.len()),
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

fn stream(messages: &[&[u8]]) -> Vec<u8> {
    let mut stream = Vec::new();
    for message in messages {
        stream.extend_from_slice(&(message.len() as u16).to_be_bytes());
        stream.extend_from_slice(message);
    }
    stream
}

#[test]
fn a_message_is_read_to_where_it_is_cut() {
    let all = [
        "www.example.com?",
        "www.example.com 3600 example.com",
        "example.com 60 192.0.2.1",
        ". 0 \\# 0",
    ];
    assert_eq!(read(REPLY), all);
    for end in 0..REPLY.len() {
        let lines = read(&REPLY[..end]);
        let (last, rest) = lines.split_last().unwrap();
        let expected = if end < 12 {
            "no header"
        } else {
            Fault::Short.name()
        };
        assert_eq!(last, expected, "{end} bytes");
        assert!(all.starts_with(&rest.iter().map(String::as_str).collect::<Vec<_>>()));
    }
}

#[test]
fn messages_of_a_stream_are_found_wherever_it_is_cut() {
    let text = stream(&[QUERY, REPLY, QUERY]);
    let expected = ["29 bytes", "74 bytes", "29 bytes"];
    assert_eq!(frames(&[(0, &text)]), expected);
    for cut in 0..text.len() {
        let (one, other) = text.split_at(cut);
        assert_eq!(frames(&[(0, one), (0, other)]), expected, "cut at {cut}");
    }
    let single: Vec<(u64, &[u8])> = text.chunks(1).map(|byte| (0, byte)).collect();
    assert_eq!(frames(&single), expected);
}

#[test]
fn a_hole_costs_the_message_it_is_in() {
    let text = stream(&[QUERY, REPLY]);
    for start in 1..QUERY.len() + 2 {
        for end in start + 1..=QUERY.len() + 2 {
            let missing = (end - start) as u64;
            let lines = frames(&[(0, &text[..start]), (missing, &text[end..])]);
            if start < 2 && end < QUERY.len() + 2 {
                assert_eq!(lines, ["lost"], "{start} to {end}: the length is missing");
            } else if start < 2 {
                assert_eq!(lines, ["lost", "74 bytes"], "{start} to {end}");
            } else {
                let cut = format!("cut at {}", start - 2);
                assert_eq!(lines, [cut.as_str(), "74 bytes"], "{start} to {end}");
            }
        }
    }
    // Into the next one: that is lost too, but not the one behind it.
    let third = stream(&[QUERY]);
    assert_eq!(
        frames(&[(0, &text[..20]), (40, &text[60..]), (0, &third)]),
        ["cut at 18", "lost", "29 bytes"]
    );
    assert_eq!(frames(&[(0, &text[..40])]), ["29 bytes", "cut at 7"]);
}

#[test]
fn what_is_no_stream_of_messages_is_given_up() {
    assert_eq!(frames(&[(0, b"\0\x05hello and more")]), ["lost"]);
    assert_eq!(frames(&[(0, b"\0"), (0, b"\x05"), (0, b"hello")]), ["lost"]);
}

#[test]
fn a_message_that_announces_more_than_it_has_costs_little() {
    let mut bytes = b"\x12\x34\x81\x80\xff\xff\xff\xff\xff\xff\xff\xff".to_vec();
    bytes.extend_from_slice(&[0; 60_000]);
    // Each question has five bytes.
    assert_eq!(Message::new(&bytes).unwrap().parts().count(), 12_001);
    assert_eq!(look(&bytes), Look::No);
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        QUERY,
        REPLY,
        b"\x12\x34\x81\x80",
        b"\0\x01\0\x02\0\x01\0\x01",
        b"\xc0\x0c",
        b"\x03www\xc0\x10",
        b"\0",
        b"\0\x01\0\x01",
        b"\0\x00\x3c",
        b"\0\x04",
        b"\xff",
        b"\xc0",
        b"\0\x29\x10\0\0\0\x80\0\0\x0b\0\x08\0\x07\0\x01\x18",
        b"\0\x10\0\x01\0\0\0\0\0\x03\x02ab",
        b"\0\x41\0\x01\0\0\0\0\0\x09\0\x01\0\0\x01\0\x02\x05a",
        b"\0\x2f\0\x01\0\0\0\0\0\x05\0\xff\x02\xff\xff",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..20).prop_map(|it| it.concat())
}

proptest! {
    #[test]
    fn nothing_panics(bytes: Vec<u8>, built in pieces(), flip in any::<prop::sample::Index>(), to: u8) {
        let mut built = built;
        for _ in 0..2 {
            fuzz::dns(&built);
            fuzz::dns(&bytes);
            if !built.is_empty() {
                let at = flip.index(built.len());
                built[at] = to;
            }
        }
    }

    /// It does not matter where a stream is cut.
    #[test]
    fn cuts_do_not_matter(
        messages in prop::collection::vec(prop::sample::select(vec![QUERY, REPLY]), 0..6),
        rest in prop::collection::vec(any::<u8>(), 0..20),
        cuts in prop::collection::vec(0_usize..400, 0..8),
    ) {
        let mut text = stream(&messages);
        text.extend_from_slice(&rest);
        let mut places: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let pieces: Vec<(u64, &[u8])> = places.windows(2).map(|it| (0, &text[it[0]..it[1]])).collect();
        let whole = frames(&[(0, &text)]);
        // Behind garbage what begins a piece is tried again.
        if !whole.iter().any(|line| line == "lost") {
            prop_assert_eq!(frames(&pieces), whole);
        }
    }

    #[test]
    fn any_stream_with_any_holes(pieces in prop::collection::vec((0_u64..50, pieces()), 0..10)) {
        let pieces: Vec<(u64, &[u8])> = pieces.iter().map(|(missing, piece)| (*missing, &piece[..])).collect();
        frames(&pieces);
    }
}
