//! HTTP/2 in whatever pieces it comes.

use flowgauge_proto::http2::{BlockEnd, Events, PREFACE, Parser, is_server};
use proptest::prelude::*;

/// What a parser said. Data of a stream stands in one line, however it was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log {
    lines: Vec<String>,
    fields: Vec<String>,
    frames: u32,
    data: u64,
    missing: u64,
    is_lost: bool,
}

impl Events for Log {
    fn frame(&mut self) {
        self.frames += 1;
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.fields.push(format!("{}={}", text(name), text(value)));
    }

    fn block(&mut self, end: &BlockEnd) {
        let fields = core::mem::take(&mut self.fields).join(" ");
        let mut line = format!("{} {fields}", end.stream);
        if end.is_promise {
            line.push_str(" promise");
        }
        if end.ends_stream {
            line.push_str(" end");
        }
        if !end.is_read {
            line.push_str(" unread");
        }
        if end.unknown > 0 {
            line.push_str(&format!(" {} unknown", end.unknown));
        }
        self.lines.push(line);
    }

    fn data(&mut self, stream: u32, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.data += bytes.len() as u64;
        let text = String::from_utf8_lossy(bytes);
        let start = format!("{stream} data ");
        match self.lines.last_mut() {
            Some(line) if line.starts_with(&start) => line.push_str(&text),
            _ => self.lines.push(start + &text),
        }
    }

    fn missing(&mut self, _: u32, bytes: u64) {
        self.missing += bytes;
    }

    fn end(&mut self, stream: u32) {
        self.lines.push(format!("{stream} over"));
    }

    fn reset(&mut self, stream: u32, code: u32) {
        self.lines.push(format!("{stream} reset {code}"));
    }

    fn lost(&mut self, is_bad: bool) {
        self.is_lost = true;
        self.fields.clear();
        self.lines.push(format!("lost {is_bad}"));
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn read(mut parser: Parser, pieces: &[&[u8]]) -> Vec<String> {
    let mut log = Log::default();
    pieces.iter().for_each(|piece| parser.data(piece, &mut log));
    log.lines
}

/// In one piece, at each cut, byte by byte; and with holes everywhere.
fn check(parser: &Parser, bytes: &[u8], expected: &[&str]) {
    assert_eq!(read(parser.clone(), &[bytes]), expected);
    for cut in 1..bytes.len() {
        let (one, other) = bytes.split_at(cut);
        assert_eq!(
            read(parser.clone(), &[one, other]),
            expected,
            "cut at {cut}"
        );
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(parser.clone(), &single), expected, "byte by byte");
    for start in 0..bytes.len() {
        for length in [1, 2, 9, bytes.len() / 2, bytes.len() - start] {
            hole(parser, bytes, start, length.min(bytes.len() - start));
        }
    }
}

/// What came before a hole stays, and what begins behind it is found.
fn hole(parser: &Parser, bytes: &[u8], start: usize, length: usize) {
    let (mut parser, mut log) = (parser.clone(), Log::default());
    parser.data(&bytes[..start], &mut log);
    let before = log.lines.clone();
    parser.gap(length as u64, &mut log);
    parser.data(&bytes[start + length..], &mut log);
    let is_same = log
        .lines
        .iter()
        .zip(&before)
        .all(|(now, then)| now.starts_with(then));
    assert!(
        is_same && log.lines.len() >= before.len(),
        "{length} at {start}: {:?}",
        log.lines
    );
    assert!(log.missing <= length as u64 || log.is_lost);
    if parser.is_lost() {
        // Nothing in it depends on what was lost: the method and the path are of the static table.
        parser.data(&frame(1, 5, 9, &[0x82, 0x84]), &mut log);
        let last = log.lines.last().map(String::as_str);
        assert_eq!(
            last,
            Some("9 :method=GET :path=/ end"),
            "{length} at {start}"
        );
    }
}

fn client() -> Vec<u8> {
    let mut bytes = PREFACE[18..].to_vec();
    bytes.extend(frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]));
    bytes.extend(frame(8, 0, 0, &[0, 1, 0, 0]));
    // Priority and padding, in two parts; then one that refers to the table.
    let mut head = vec![3, 0, 0, 0, 0, 16];
    head.extend([0x82, 0x84, 0x41, 1, b'a']);
    head.extend([0; 3]);
    bytes.extend(frame(1, 0x28, 1, &head));
    bytes.extend(frame(9, 4, 1, &[0x40, 1, b'x', 1, b'y']));
    bytes.extend(frame(0, 8, 1, &[2, b'h', b'e', b'l', 0, 0]));
    bytes.extend(frame(1, 5, 3, &[0x82, 0x84, 0xbe, 0xbf]));
    bytes.extend(frame(0, 1, 1, b"lo"));
    bytes.extend(frame(0x77, 0, 5, b"unknown"));
    bytes.extend(frame(3, 0, 3, &[0, 0, 0, 8]));
    bytes
}

#[test]
fn frames_of_a_client() {
    check(
        &Parser::client(),
        &client(),
        &[
            "1 :method=GET :path=/ :authority=a x=y",
            "1 data hel",
            "3 :method=GET :path=/ x=y :authority=a end",
            "1 data lo",
            "1 over",
            "3 reset 8",
        ],
    );
}

#[test]
fn frames_of_a_server() {
    let mut bytes = frame(4, 0, 0, &[]);
    assert!(is_server(&bytes) && !is_server(b"HTTP/1.1 200 OK"));
    bytes.extend(frame(5, 4, 1, &[0, 0, 0, 2, 0x82, 0x85]));
    bytes.extend(frame(1, 4, 1, &[0x88]));
    bytes.extend(frame(0, 0, 1, b"x"));
    bytes.extend(frame(1, 5, 1, &[0x40, 1, b't', 1, b'u']));
    bytes.extend(frame(1, 5, 2, &[0x8d]));
    check(
        &Parser::server(),
        &bytes,
        &[
            "2 :method=GET :path=/index.html promise",
            "1 :status=200",
            "1 data x",
            "1 t=u end",
            "2 :status=404 end",
        ],
    );
}

#[test]
fn what_must_not_be_sent_is_not_followed() {
    for bytes in [
        frame(0, 0, 0, b"x"),
        frame(4, 0, 1, &[]),
        frame(6, 0, 0, &[0; 7]),
        frame(0, 8, 1, &[9, 0]),
        frame(1, 0x0c, 1, &[9, 0]),
        // Between the parts of a block.
        [frame(1, 0, 1, &[0x82]), frame(0, 0, 1, b"x")].concat(),
        [frame(1, 0, 1, &[0x82]), frame(9, 4, 3, &[0x84])].concat(),
    ] {
        let lines = read(Parser::server(), &[&bytes]);
        assert_eq!(lines, ["lost true"], "{bytes:02x?}");
    }
    assert_eq!(read(Parser::client(), &[b"SN\r\n\r\n"]), ["lost true"]);
    // A block that cannot be read, and one that is too long: frames are still told apart.
    let mut bytes = frame(1, 5, 1, &[0xff, 0xff]);
    bytes.extend(frame(1, 5, 3, &[0x82]));
    bytes.extend(frame(1, 1, 5, &[0x82; 60_000]));
    bytes.extend(frame(9, 4, 5, &[0x82; 60_000]));
    bytes.extend(frame(1, 5, 7, &vec![0x82; 100_000]));
    bytes.extend(frame(1, 5, 9, &[0x82]));
    assert_eq!(
        read(Parser::server(), &[&bytes]),
        [
            "1  end unread",
            "3 :method=GET end",
            "5  end unread",
            "7  end unread",
            "9 :method=GET end",
        ]
    );
}

#[test]
fn behind_a_hole_only_what_it_took_is_missing() {
    let mut log = Log::default();
    let mut parser = Parser::server();
    parser.data(&frame(1, 4, 1, &[0x40, 1, b'a', 1, b'b']), &mut log);
    // In the middle of a block.
    parser.data(&frame(1, 4, 3, &[0x40, 1, b'c', 1, b'd'])[..11], &mut log);
    parser.gap(3, &mut log);
    parser.data(
        &frame(1, 4, 5, &[0x88, 0xbe, 0x40, 1, b'e', 1, b'f', 0xbe]),
        &mut log,
    );
    assert_eq!(
        log.lines,
        ["1 a=b", "3  unread", "5 :status=200 e=f e=f 1 unknown"]
    );
    // In a body: its bytes are counted, and its end is known.
    let mut log = Log::default();
    parser.data(&frame(0, 9, 1, &[1, b'x', b'y', b'z', 0])[..11], &mut log);
    parser.gap(2, &mut log);
    parser.data(&[0], &mut log);
    assert_eq!(log.lines, ["1 data x", "1 over"]);
    assert_eq!(log.missing, 2);
}

proptest! {
    #[test]
    fn the_fuzzer_finds_nothing(bytes: Vec<u8>, frames in prop::collection::vec(
        (0_u8..10, any::<u8>(), 0_u32..4, prop::collection::vec(any::<u8>(), 0..30)), 0..20,
    )) {
        // As the fuzzer has it: a byte in front of each piece.
        let mut pieces = vec![bytes.first().copied().unwrap_or(0)];
        for (kind, flags, stream, payload) in frames {
            let bytes = frame(kind, flags, stream, &payload);
            pieces.push(bytes.len() as u8);
            pieces.extend(bytes);
        }
        crate::fuzz::http2(&pieces);
        crate::fuzz::http2(&bytes);
        crate::fuzz::http(&bytes);
    }

    /// Whatever comes in whatever pieces, with whatever holes.
    #[test]
    fn nothing_panics(
        pieces in prop::collection::vec(
            (
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..40),
                    (0_u8..12, any::<u8>(), 0_u32..6, prop::collection::vec(any::<u8>(), 0..40))
                        .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload)),
                ],
                prop::option::weighted(0.2, 0_u64..60),
            ),
            0..40,
        ),
        is_client: bool,
    ) {
        let mut parser = if is_client { Parser::client() } else { Parser::server() };
        let mut log = Log::default();
        let (mut sent, mut taken) = (0, 0);
        for (piece, hole) in &pieces {
            parser.data(piece, &mut log);
            sent += piece.len() as u64;
            if let Some(hole) = hole {
                parser.gap(*hole, &mut log);
                taken += hole;
            }
        }
        prop_assert!(log.data <= sent && (log.missing <= taken || log.is_lost));
    }
}
