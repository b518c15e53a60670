//! HTTP/1 in whatever pieces it comes.

use flowgauge_proto::http::{End, Events, Framing, Head, Oddity, Parser, Start};
use proptest::prelude::*;

/// What a parser said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log {
    lines: Vec<String>,
    body: Vec<u8>,
    open: u32,
    /// Methods of the requests, for responses.
    methods: Vec<&'static str>,
    knows: bool,
    /// The request was one of HTTP/0.9.
    headless: bool,
}

impl Events for Log {
    fn begin(&mut self) {
        assert_eq!(self.open, 0, "one after the other");
        self.open = 1;
    }

    fn head(&mut self, head: &Head<'_>, framing: Framing) -> Framing {
        assert_eq!(self.open, 1);
        self.open = 2;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.lines.push(match head.start {
            Start::Request {
                method,
                uri,
                version,
            } => {
                format!("{} {} {}", text(method), text(uri), version.name())
            }
            Start::Response {
                status,
                reason,
                version,
            } => {
                let status = if status == 0 {
                    String::new()
                } else {
                    format!("{status} ")
                };
                format!("{status}{} {}", text(reason), version.name())
            }
        });
        self.knows = false;
        if self.methods.is_empty() || matches!(head.start, Start::Request { .. }) {
            return framing;
        }
        self.knows = true;
        match self.methods.remove(0) {
            "HEAD" => Framing::None,
            "CONNECT" => Framing::Tunnel,
            _ => framing,
        }
    }

    fn knows_request(&self) -> bool {
        self.knows
    }

    fn is_headless(&self) -> bool {
        self.headless
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(self.open == 2 && !bytes.is_empty());
        self.body.extend_from_slice(bytes);
    }

    fn end(&mut self, end: &End) {
        assert_ne!(self.open, 0);
        self.open = 0;
        assert_eq!(end.body_bytes - end.missing_bytes, self.body.len() as u64);
        let body = String::from_utf8_lossy(&self.body).into_owned();
        self.body.clear();
        let odd: Vec<&str> = end.oddities.iter().map(Oddity::name).collect();
        let state = match (end.is_whole, end.missing_bytes) {
            (true, _) => "whole".to_owned(),
            (false, 0) => "cut".to_owned(),
            (false, missing) => format!("{missing} missing"),
        };
        self.lines.push(
            format!("  {body:?} {state} {}", odd.join(","))
                .trim_end()
                .to_owned(),
        );
    }
}

fn read(pieces: &[&[u8]], methods: &[&'static str]) -> Vec<String> {
    let mut parser = Parser::default();
    let mut log = Log {
        methods: methods.to_vec(),
        headless: methods == ["HTTP/0.9"],
        ..Log::default()
    };
    for piece in pieces {
        parser.data(piece, &mut log);
    }
    parser.finish(true, &mut log);
    assert_eq!(log.open, 0);
    log.lines
}

#[test]
fn bodies_that_are_not_looked_at_count_as_if_they_were() {
    let messages: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsomethingHTTP/1.1 204 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nto the end",
    ];
    /// Ends, without bodies.
    #[derive(Default)]
    struct Ends(Vec<End>);
    impl Events for Ends {
        fn knows_request(&self) -> bool {
            true
        }
        fn end(&mut self, end: &End) {
            self.0.push(*end);
        }
    }
    for text in messages {
        let (mut whole, mut ends) = (Parser::default(), Ends::default());
        whole.data(text, &mut ends);
        whole.finish(true, &mut ends);
        let mut passed = 0;
        for cut in 0..text.len() {
            for most in [1, 3, u64::MAX] {
                let (mut parser, mut other) = (Parser::default(), Ends::default());
                parser.data(&text[..cut], &mut other);
                let rest = text.len() - cut;
                let over = parser.ahead().min(most).min(rest as u64);
                parser.passed(over, &mut other);
                parser.data(&text[cut + over as usize..], &mut other);
                parser.finish(true, &mut other);
                assert_eq!(other.0, ends.0, "{cut} {over}");
                passed += over;
            }
        }
        assert!(passed > 0);
    }
}

/// The same in one piece, at each cut, and byte by byte.
fn check(text: &str, methods: &[&'static str], expected: &[&str]) {
    let bytes = text.as_bytes();
    assert_eq!(read(&[bytes], methods), expected, "{text:?}");
    for cut in 1..bytes.len() {
        let (one, other) = bytes.split_at(cut);
        assert_eq!(
            read(&[one, other], methods),
            expected,
            "{text:?} cut at {cut}"
        );
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single, methods), expected, "{text:?} byte by byte");
    for start in 0..bytes.len() {
        for length in [1, 2, 5, bytes.len() / 2, bytes.len() - start] {
            hole(bytes, methods, start, length.min(bytes.len() - start));
        }
    }
}

/// With a hole: what came before it stays, messages begin and end, and bytes are counted.
fn hole(bytes: &[u8], methods: &[&'static str], start: usize, length: usize) {
    let mut parser = Parser::default();
    let mut log = Log {
        methods: methods.to_vec(),
        headless: methods == ["HTTP/0.9"],
        ..Log::default()
    };
    parser.data(&bytes[..start], &mut log);
    let before = log.lines.clone();
    parser.gap(length as u64, &mut log);
    parser.data(&bytes[start + length..], &mut log);
    let (was_lost, is_tunnel) = (parser.is_lost(), parser.is_tunnel());
    parser.data(b"GET /after HTTP/1.1\r\n\r\n", &mut log);
    parser.finish(true, &mut log);
    assert_eq!(log.open, 0);
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(
        log.lines[..before.len()],
        before,
        "{text:?}, {length} at {start}"
    );
    let is_found = log.lines.iter().any(|line| line == "GET /after 1.1");
    assert!(
        is_found || !was_lost || is_tunnel,
        "{text:?}, {length} at {start}"
    );
}

#[test]
fn responses_of_http_0_9_have_no_head() {
    let asked = ["HTTP/0.9"];
    check(
        "<html>\n\nGET / HTTP/1.1\n</html>",
        &asked,
        &[" 0.9", "  \"<html>\\n\\nGET / HTTP/1.1\\n</html>\" whole"],
    );
    check("no line", &asked, &[" 0.9", "  \"no line\" whole"]);
    check("\n\n", &asked, &[" 0.9", "  \"\\n\\n\" whole"]);
    // A server that knows better.
    check(
        "HTTP/1.0 400 Bad\r\n\r\nno",
        &asked,
        &["400 Bad 1.0", "  \"no\" whole"],
    );
}

#[test]
fn fields_over_several_lines_say_how_long_a_body_is() {
    check(
        "POST / HTTP/1.1\r\nTransfer-Encoding:\r\n chunked\r\n\r\n1\r\na\r\n0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
        &[],
        &[
            "POST / 1.1",
            "  \"a\" whole folded_header",
            "GET /b 1.1",
            "  \"\" whole",
        ],
    );
    check(
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip,\r\n\tchunked\r\nA: b\r\n c\r\n\r\n0\r\n\r\n",
        &[],
        &["POST / 1.1", "  \"\" whole folded_header"],
    );
    check(
        "POST / HTTP/1.1\r\nContent-Length:\r\n 2\r\n\r\nab",
        &[],
        &["POST / 1.1", "  \"ab\" whole bad_length,folded_header"],
    );
}

#[test]
fn a_first_line_that_is_cut_off_says_what_it_can() {
    assert_eq!(read(&[b"GET /"], &[]), ["GET / 0.9", "  \"\" cut cut_head"]);
    assert_eq!(
        read(&[b"HTTP/1.0 20", b"0 OK"], &[]),
        ["200 OK 1.0", "  \"\" cut cut_head"]
    );
    assert_eq!(
        read(&[b"GET /a HTTP/1."], &[]),
        [
            "GET /a HTTP/1. other",
            "  \"\" cut cut_head,bad_request_line"
        ]
    );
}

#[test]
fn requests_follow_each_other() {
    check(
        "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyGET /c HTTP/1.0\r\n\r\n",
        &[],
        &[
            "GET /a 1.1",
            "  \"\" whole",
            "POST /b 1.1",
            "  \"body\" whole",
            "GET /c 1.0",
            "  \"\" whole",
        ],
    );
    check(
        "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        &[],
        &["GET / 1.1", "  \"\" whole"],
    );
    check("GET /old\r\n", &[], &["GET /old 0.9", "  \"\" whole"]);
    check(
        "OPTIONS * HTTP/1.1\nA: b\n\n",
        &[],
        &["OPTIONS * 1.1", "  \"\" whole bare_lf"],
    );
    check(
        "GET /a b HTTP/1.1\r\n\r\n",
        &[],
        &["GET /a b 1.1", "  \"\" whole"],
    );
}

#[test]
fn bodies_end_as_rfc_9112_says() {
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        &[],
        &[
            "200 OK 1.1",
            "  \"abc\" whole",
            "204 No Content 1.1",
            "  \"\" whole",
        ],
    );
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        &[],
        &[
            "100 Continue 1.1",
            "  \"\" whole",
            "200 OK 1.1",
            "  \"hi\" whole",
        ],
    );
    check(
        "HTTP/1.0 200 OK\r\n\r\nall of it HTTP/1.1 200",
        &[],
        &["200 OK 1.0", "  \"all of it HTTP/1.1 200\" whole"],
    );
    check(
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\nHTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
        &[],
        &[
            "304 Not Modified 1.1",
            "  \"\" whole",
            "200  1.1",
            "  \"\" whole",
        ],
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        &[],
        &["200 OK 1.1", "  \"short\" cut"],
    );
    check(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        &[],
        &["101 Switching Protocols 1.1", "  \"\" whole"],
    );
}

#[test]
fn in_what_connect_has_opened_http_can_go_on() {
    let ok = "HTTP/1.1 200 OK\r\n\r\n";
    check(
        &format!(
            "{ok}\r\nHTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 204 None\r\n\r\n"
        ),
        &["CONNECT", "GET", "GET"],
        &[
            "200 OK 1.1",
            "  \"\" whole",
            "200 Fine 1.1",
            "  \"hi\" whole",
            "204 None 1.1",
            "  \"\" whole",
        ],
    );
    for other in ["HTTP/2", "SSH-2.0-x\r\n", "H"] {
        check(
            &format!("{ok}{other}"),
            &["CONNECT", "GET"],
            &["200 OK 1.1", "  \"\" whole"],
        );
    }
}

#[test]
fn status_lines_that_are_none_are_marked_and_bodies_that_are_not_chunked_go_on_to_the_end() {
    check(
        "http/1.01 2xx fine\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1\nContent-Length: 3\r\n\r\nyouHTTP/1.1 0200 ok\r\n\r\nall",
        &[],
        &[
            "fine other",
            "  \"hi\" whole bad_status_line",
            " 1.1",
            "  \"you\" whole bare_lf,bad_status_line",
            "ok 1.1",
            "  \"all\" whole bad_status_line",
        ],
    );
    for body in [
        "no chunk, but text",
        "f x\r\n012345678901234",
        "\r\n1\r\na",
        SCRIPT,
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        check(
            &text,
            &[],
            &["200 OK 1.1", &format!("  {body:?} cut bad_chunk")],
        );
    }
}

/// One line, with a semicolon soon.
const SCRIPT: &str = "(()=>{var e;e=function(){return 1};var t=e();console.log(t)})();";

#[test]
fn extensions_and_trailers_are_read_over_however_long() {
    let begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;".as_slice();
    let long = vec![b'x'; 5 << 20];
    let extension = [begin, &long, b"\r\nhello\r\n0\r\n\r\n"].concat();
    let trailer = [begin, b"\r\nhello\r\n0\r\nA: ", &long, b"\r\n\r\n"].concat();
    for (whole, size) in [
        (&extension, 1400),
        (&extension, extension.len()),
        (&trailer, 1400),
    ] {
        let mut parser = Parser::default();
        let mut log = Log::default();
        whole
            .chunks(size)
            .for_each(|piece| parser.data(piece, &mut log));
        assert_eq!(
            log.lines,
            ["200 OK 1.1", "  \"hello\" whole long_extension"]
        );
        parser.data(b"HTTP/1.1 404 No\r\n\r\n", &mut log);
        assert_eq!(log.lines.get(2).map(String::as_str), Some("404 No 1.1"));
    }
}

#[test]
fn the_answer_to_head_has_no_body_whether_or_not_that_is_known() {
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nabc";
    let expected = [
        "200 OK 1.1",
        "  \"\" whole",
        "404 No 1.1",
        "  \"abc\" whole",
    ];
    check(two, &["HEAD", "GET"], &expected);
    check(two, &[], &expected);
    // A body that begins alike is one.
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nHTTP/2 andHTTP/1.1 204 N\r\n\r\n",
        &[],
        &[
            "200 OK 1.1",
            "  \"HTTP/2 and\" whole",
            "204 N 1.1",
            "  \"\" whole",
        ],
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nHTTHTTP/1.1 204 N\r\n\r\n",
        &[],
        &["200 OK 1.1", "  \"HTT\" whole", "204 N 1.1", "  \"\" whole"],
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 HTTP/1.1 204 N\r\n\r\n",
        &["GET", "GET"],
        &[
            "200 OK 1.1",
            "  \"HTTP/1.1 \" whole",
            "204 N 1.1",
            "  \"\" whole",
        ],
    );
    check(
        "HTTP/1.1 200 Established\r\n\r\nGET /inside HTTP/1.1\r\n\r\n",
        &["CONNECT"],
        &["200 Established 1.1", "  \"\" whole"],
    );
}

#[test]
fn what_two_programs_could_read_differently_is_marked() {
    for (head, odd) in [
        ("Content-Length: 4\r\nContent-Length: 5", "two_lengths"),
        ("Content-Length: 4, 5", "two_lengths"),
        (
            "Content-Length: 4\r\nTransfer-Encoding: identity, chunked",
            "length_and_coding",
        ),
        ("Content-Length: 4\r\nX-Folded: a\r\n b", "folded_header"),
        ("Content-Length : 4", "blank_before_colon"),
        ("Host: a\r\nHost: b\r\nContent-Length: 4", "two_hosts"),
        ("no header\r\nContent-Length: 4", "bad_header"),
    ] {
        let text = format!("POST / HTTP/1.1\r\n{head}\r\n\r\n0\r\n\r\n");
        let lines = read(&[text.as_bytes()], &[]);
        assert!(lines[1].ends_with(odd), "{head:?}: {lines:?}");
    }
    // The same length twice is one.
    check(
        "POST / HTTP/1.1\r\nContent-Length: 4, 4\r\nContent-Length: 4\r\n\r\nbody",
        &[],
        &["POST / 1.1", "  \"body\" whole"],
    );
    check(
        "POST / HTTP/1.1\r\nContent-Length: +4\r\n\r\n",
        &[],
        &["POST / 1.1", "  \"\" whole bad_length"],
    );
    check(
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwikiX",
        &[],
        &["POST / 1.1", "  \"wiki\" cut bad_chunk"],
    );
}

#[test]
fn holes_are_counted_and_read_over_where_that_is_possible() {
    let run = |steps: &[(&str, u64)]| {
        let (mut parser, mut log) = (Parser::default(), Log::default());
        for (text, hole) in steps {
            parser.data(text.as_bytes(), &mut log);
            parser.gap(*hole, &mut log);
        }
        parser.finish(false, &mut log);
        log.lines
    };
    assert_eq!(
        run(&[
            ("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nab", 3),
            ("fghijGET / HTTP/1.1\r\n\r\n", 0)
        ]),
        [
            "POST / 1.1",
            "  \"abfghij\" 3 missing",
            "GET / 1.1",
            "  \"\" whole"
        ]
    );
    // Up to the end of the body exactly.
    assert_eq!(
        run(&[
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab", 3),
            ("GET / HTTP/1.1\r\n\r\n", 0)
        ]),
        [
            "POST / 1.1",
            "  \"ab\" 3 missing",
            "GET / 1.1",
            "  \"\" whole"
        ]
    );
    // Into the next message: the one behind it is found where a piece begins.
    assert_eq!(
        run(&[
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab", 60),
            ("-Agent: x\r\n\r\n", 0),
            ("GET /next HTTP/1.1\r\n\r\n", 0)
        ]),
        [
            "POST / 1.1",
            "  \"ab\" 3 missing",
            "GET /next 1.1",
            "  \"\" whole"
        ]
    );
    assert_eq!(
        run(&[
            ("GET /cut HTTP/1.1\r\nHost: a\r\nUser-Ag", 5),
            ("GET /b HTTP/1.1\r\n\r\n", 0)
        ]),
        [
            "GET /cut 1.1",
            "  \"\" cut cut_head",
            "GET /b 1.1",
            "  \"\" whole"
        ]
    );
    assert_eq!(
        run(&[
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
                2
            ),
            ("e\r\n0\r\n\r\n", 0)
        ]),
        ["200 OK 1.1", "  \"abe\" 2 missing"]
    );
    assert_eq!(
        run(&[
            ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nHTT", 2),
            ("fg", 0)
        ]),
        ["200 OK 1.1", "  \"HTTfg\" 2 missing"]
    );
}

#[test]
fn what_is_no_http_is_given_up_and_a_head_has_a_bound() {
    assert_eq!(
        read(&[b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n"], &[]),
        ["  \"\" cut bad_header"]
    );
    let mut parser = Parser::default();
    let mut log = Log::default();
    parser.data(b"GET / HTTP/1.1\r\n", &mut log);
    for _ in 0..12_700 {
        parser.data(b"X-Endless: header after header\r\n", &mut log);
    }
    assert!(parser.is_lost());
    assert_eq!(log.lines, ["GET / 1.1", "  \"\" cut cut_head"]);
    parser.data(b"HEAD /again HTTP/1.1\r\n\r\n", &mut log);
    assert_eq!(log.lines.len(), 4);
}

proptest! {
    #[test]
    fn the_fuzzer_finds_nothing(
        first: u8,
        pieces in prop::collection::vec(
            (prop::sample::select(vec![
                "GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n", "Content-Length: 9\r\n", "\r\n", "hello", "GET /\n",
                "Transfer-Encoding:\r\n chunked\r\n", "5\r\n", "0\r\n\r\n", "HTTP/1.", "\n",
            ]), prop::option::weighted(0.2, any::<u8>())),
            0..30,
        ),
    ) {
        let mut bytes = vec![first];
        for (piece, missing) in pieces {
            bytes.push(piece.len() as u8 | if missing.is_some() { 0x80 } else { 0 });
            bytes.extend(missing);
            bytes.extend_from_slice(piece.as_bytes());
        }
        crate::fuzz::http(&bytes);
    }

    /// Whatever comes in whatever pieces, with whatever holes.
    #[test]
    fn nothing_panics_and_messages_begin_and_end(
        pieces in prop::collection::vec(
            (prop::sample::select(vec![
                "GET / HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n", "Content-Length: 5\r\n", "\r\n", "\n", "hello",
                "Transfer-Encoding: chunked\r\n", "5\r\n", "0\r\n\r\n", "HTTP/1.", "HTT", " folded\r\n", ":",
                "\u{0}\u{1}", "HTTP/1.1 101 X\r\n\r\n", "Content-Length: 99999999999999999999\r\n", "GET /\n",
            ]), prop::option::weighted(0.1, 0_u64..20)),
            0..40,
        ),
        closed: bool,
        knows: bool,
    ) {
        let mut parser = Parser::default();
        let methods = if knows { vec!["GET", "HEAD", "CONNECT", "GET"] } else { vec![] };
        let mut log = Log { methods, ..Log::default() };
        for (piece, hole) in &pieces {
            parser.data(piece.as_bytes(), &mut log);
            if let Some(hole) = hole {
                parser.gap(*hole, &mut log);
            }
        }
        parser.finish(closed, &mut log);
        prop_assert_eq!(log.open, 0);
    }

    /// Without holes it does not matter where data is cut, as long as nothing was given up.
    #[test]
    fn cuts_do_not_matter(
        words in prop::collection::vec(prop::sample::select(vec![
            "GET /a HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n", "HTTP/1.1 ", "12345678", "HTTP/1.1 204 N\r\n\r\n",
        ]), 0..12),
        cuts in prop::collection::vec(0_usize..400, 0..8),
    ) {
        let text = words.concat();
        let mut places: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|it| &text.as_bytes()[it[0]..it[1]]).collect();
        let whole = read(&[text.as_bytes()], &[]);
        if whole.iter().all(|line| !line.contains("bad_header")) {
            prop_assert_eq!(read(&pieces, &[]), whole);
        }
    }
}
