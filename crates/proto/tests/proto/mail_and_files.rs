//! SMTP and FTP in whatever pieces they come.

use flowgauge_proto::smtp::{self, Replies, Reply, ReplyEvents};
use flowgauge_proto::{Look, ftp};

use crate::fuzz;
use proptest::prelude::*;

#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    content: Vec<u8>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl smtp::CommandEvents for Log {
    fn command(&mut self, verb: &[u8], argument: &[u8]) {
        self.lines.push(
            format!("{} {}", text(verb), text(argument))
                .trim_end()
                .to_owned(),
        );
    }

    fn content(&mut self, bytes: &[u8]) {
        self.content.extend_from_slice(bytes);
    }

    fn content_end(&mut self, is_last: bool) {
        let content = text(&std::mem::take(&mut self.content));
        self.lines.push(format!("  {content:?} {is_last}"));
    }

    fn lost(&mut self, content: u64) {
        self.lines.push(format!("lost {content}"));
    }
}

impl ReplyEvents for Log {
    fn reply(&mut self, reply: &Reply<'_>) {
        let (first, last) = (text(reply.first), text(reply.last));
        self.lines.push(format!("{} {first} / {last}", reply.code));
    }

    fn lost(&mut self) {
        self.lines.push("lost".to_owned());
    }
}

impl ftp::CommandEvents for Log {
    fn command(&mut self, verb: &[u8], argument: &[u8]) {
        self.lines.push(
            format!("{} {}", text(verb), text(argument))
                .trim_end()
                .to_owned(),
        );
    }
}

const CLIENT: &[u8] =
    b"EHLO me\r\nAUTH PLAIN c2VjcmV0\r\nMAIL FROM:<a@b>\r\nrcpt to:<c@d>\r\nDATA\r\n\
    Subject: x\r\n\r\nbody\r\n..dot\r\n.x\r\n\r\n.\r\nBDAT 5\r\nhelloBDAT 3 LAST\r\nendQUIT\r\n";

fn commands(pieces: &[&[u8]]) -> Vec<String> {
    let (mut parser, mut log) = (smtp::Commands::default(), Log::default());
    for piece in pieces {
        parser.data(piece, &mut log);
    }
    assert!(!parser.is_foreign());
    log.lines
}

#[test]
fn a_client_of_smtp_is_read_at_any_cut() {
    let expected = [
        "EHLO me",
        "AUTH PLAIN",
        "MAIL FROM:<a@b>",
        "rcpt to:<c@d>",
        "DATA",
        "  \"Subject: x\\r\\n\\r\\nbody\\r\\n..dot\\r\\n.x\\r\\n\\r\\n\" true",
        "BDAT 5",
        "  \"hello\" false",
        "BDAT 3 LAST",
        "  \"end\" true",
        "QUIT",
    ];
    for cut in 0..CLIENT.len() {
        let (one, other) = CLIENT.split_at(cut);
        assert_eq!(commands(&[one, other]), expected, "{cut}");
    }
    assert_eq!(commands(&CLIENT.chunks(1).collect::<Vec<_>>()), expected);
    // A hole is said, and what follows its line or message is read.
    for start in 0..CLIENT.len() - 12 {
        let (mut parser, mut log) = (smtp::Commands::default(), Log::default());
        parser.data(&CLIENT[..start], &mut log);
        parser.gap(2, &mut log);
        parser.data(&CLIENT[start + 2..], &mut log);
        assert!(
            log.lines.iter().any(|line| line.starts_with("lost ")),
            "{start}"
        );
    }
}

#[test]
fn the_server_says_whether_a_message_follows() {
    let (mut parser, mut log) = (smtp::Commands::default(), Log::default());
    parser.data(b"HELO a\r\nDATA\r\n", &mut log);
    assert!(parser.is_in_message());
    parser.refused();
    parser.data(b"AUTH LOGIN\r\n", &mut log);
    parser.asks();
    parser.data(b"c2VjcmV0\r\nDATA\r\nhalf", &mut log);
    parser.gap(10, &mut log);
    parser.taken(&mut log);
    parser.data(b"QUIT\r\n", &mut log);
    assert_eq!(
        log.lines,
        [
            "HELO a",
            "DATA",
            "AUTH LOGIN",
            "DATA",
            "lost 10",
            "  \"half\" true",
            "QUIT"
        ]
    );
    // A dot alone is an empty message.
    assert_eq!(
        commands(&[b"DATA\r\n.\r\nQUIT\r\n"]),
        ["DATA", "  \"\" true", "QUIT"]
    );
}

#[test]
fn replies_are_read_at_any_cut() {
    let bytes = b"220-one\r\n220-two\r\n220 three\r\n250\r\n\r\n150 go\r\n211-list\r\n 211 not yet\r\n211 end\r\n";
    let expected = [
        "220 one / three",
        "250  / ",
        "150 go / go",
        "211 list / end",
    ];
    for cut in 0..bytes.len() {
        let (mut parser, mut log) = (Replies::default(), Log::default());
        let (one, other) = bytes.split_at(cut);
        parser.data(one, &mut log);
        parser.data(other, &mut log);
        assert_eq!(log.lines, expected, "{cut}");
        assert!(!parser.is_foreign());
    }
    for start in 0..bytes.len() - 4 {
        let (mut parser, mut log) = (Replies::default(), Log::default());
        parser.data(&bytes[..start], &mut log);
        parser.gap(4, &mut log);
        parser.data(&bytes[start + 4..], &mut log);
        assert!(log.lines.contains(&"lost".to_owned()), "{start}");
    }
    let (mut parser, mut log) = (Replies::default(), Log::default());
    parser.data(b"+OK ready\r\n", &mut log);
    assert!(parser.is_foreign());
}

#[test]
fn clients_of_ftp_are_read_at_any_cut() {
    let bytes =
        b"USER anonymous\r\nPASS me@example.com\r\n\xff\xf4\xf2ABOR\r\nRETR a file \r\n\r\nquit\n";
    let expected = [
        "USER anonymous",
        "PASS me@example.com",
        "ABOR",
        "RETR a file",
        "quit",
    ];
    for cut in 0..bytes.len() {
        let (mut parser, mut log) = (ftp::Commands::default(), Log::default());
        let (one, other) = bytes.split_at(cut);
        parser.data(one, &mut log);
        parser.data(other, &mut log);
        assert_eq!(log.lines, expected, "{cut}");
    }
    // A line has a bound.
    let (mut parser, mut log) = (ftp::Commands::default(), Log::default());
    for _ in 0..1000 {
        parser.data(&[b'x'; 1000], &mut log);
    }
    parser.data(b"\r\n", &mut log);
    assert!(log.lines[0].len() <= 4096);
}

#[test]
fn first_words_tell() {
    for (bytes, expected) in [
        (b"EHLO x\r\n".as_slice(), Look::Yes),
        (b"EHLO x", Look::More),
        (b"HELLO\r\n", Look::No),
        (b"he", Look::More),
        (b"GET /", Look::No),
    ] {
        assert_eq!(smtp::look_client(bytes), expected, "{bytes:?}");
    }
    for (bytes, mail, files) in [
        (
            b"220 host ESMTP Postfix\r\n".as_slice(),
            Look::Yes,
            Look::No,
        ),
        (b"220 ProFTPD Server\r\n", Look::No, Look::Yes),
        (b"220 hello\r\n", Look::More, Look::More),
        (b"22", Look::More, Look::More),
        (b"SSH-2.0-x\r\n", Look::No, Look::No),
    ] {
        assert_eq!(smtp::look_server(bytes), mail, "{bytes:?}");
        assert_eq!(ftp::look_server(bytes), files, "{bytes:?}");
    }
    // Clients of others have users, too.
    assert_eq!(ftp::look_client(b"USER me\r\n"), Look::More);
    assert_eq!(ftp::look_client(b"FEAT\r\n"), Look::Yes);
    assert_eq!(ftp::look_client(b"AUTH TLS\r\n"), Look::Yes);
    assert_eq!(ftp::look_client(b"AUTH x\r\n"), Look::No);
    assert_eq!(ftp::look_client(b"US"), Look::More);
}

proptest! {
    #[test]
    fn nothing_panics(
        changes in prop::collection::vec((0..CLIENT.len(), any::<u8>()), 0..6),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut whole = CLIENT.to_vec();
        for (place, byte) in changes {
            whole[place] = byte;
        }
        let pieces = whole.chunks(21).flat_map(|piece| [&[piece.len() as u8], piece].concat());
        fuzz::mail_and_files(&pieces.chain(bytes).collect::<Vec<_>>());
    }
}

#[test]
fn a_line_right_behind_a_hole_is_read() {
    let (mut parser, mut log) = (smtp::Commands::default(), Log::default());
    parser.data(b"HELO a\r\nMAIL FR", &mut log);
    parser.gap(20, &mut log);
    parser.data(b"RCPT TO:<b>\r\n", &mut log);
    parser.gap(1, &mut log);
    // What does not begin like a command is the rest of one.
    parser.data(b"CPT TO:<c>\r\nQUIT\r\n", &mut log);
    let expected = ["HELO a", "lost 0", "RCPT TO:<b>", "lost 0", "QUIT"];
    assert_eq!(log.lines, expected);
    let (mut parser, mut log) = (Replies::default(), Log::default());
    parser.data(b"250-one\r\n250-tw", &mut log);
    parser.gap(20, &mut log);
    // The end of that reply is missing, too.
    parser.data(b"354 go on\r\n", &mut log);
    parser.gap(3, &mut log);
    parser.data(b" rest\r\n221 bye\r\n", &mut log);
    let expected = ["lost", "354 go on / go on", "lost", "221 bye / bye"];
    assert_eq!(log.lines, expected);
    let (mut parser, mut log) = (ftp::Commands::default(), Log::default());
    parser.data(b"USER a\r\nPAS", &mut log);
    parser.gap(5, &mut log);
    parser.data(b"PASV\r\n", &mut log);
    assert_eq!(log.lines.last().map(String::as_str), Some("PASV"));
}

#[test]
fn the_server_tells_of_a_message_whose_command_is_missing() {
    let (mut parser, mut log) = (smtp::Commands::default(), Log::default());
    parser.data(b"HELO a\r\n", &mut log);
    assert!(!parser.awaited());
    parser.gap(6, &mut log);
    assert!(parser.awaited() && parser.is_in_message() && !parser.awaited());
    parser.data(b"text\r\n.\r\nQUIT\r\n", &mut log);
    let expected = ["HELO a", "lost 0", "  \"text\\r\\n\" true", "QUIT"];
    assert_eq!(log.lines, expected);
}
