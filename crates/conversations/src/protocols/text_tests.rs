//! Tests of conversations that have one record, or records without numbers: in all cuts, and with holes.

use serde_json::Value;

use super::ftp::FtpTalk;
use super::smtp::SmtpTalk;
use super::ssh::SshTalk;
use super::testing::{Said, Tester, cuts_and_gaps};
use super::tls::TlsTalk;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// Lines, those of the server with `<` before.
fn dialogue(lines: &[&str]) -> Vec<Said> {
    let said = |line: &&str| {
        let text = format!("{}\r\n", line.trim_start_matches('<'));
        Said::new(!line.starts_with('<'), 0, text.as_bytes())
    };
    lines.iter().map(said).collect()
}

/// Whether a record has this in a field.
fn has(records: &[Value], field: &str, value: &str) -> bool {
    records.iter().any(|record| record[field] == value)
}

#[test]
fn mails() {
    let said = dialogue(&[
        "<220 mail.example ESMTP",
        "EHLO client",
        "<250 mail.example",
        "MAIL FROM:<a@example>",
        "<250 ok",
        "RCPT TO:<b@example>",
        "<250 ok",
        "DATA",
        "<354 go on",
        "Subject: one\r\n\r\ntext\r\n.",
        "<250 taken 1",
        "MAIL FROM:<c@example>",
        "<250 ok",
        "RCPT TO:<d@example>",
        "<250 ok",
        "DATA",
        "<354 go on",
        "Subject: two\r\n\r\ntext\r\n.",
        "<250 taken 2",
        "QUIT",
        "<221 bye",
    ]);
    cuts_and_gaps(
        || Tester::<SmtpTalk>::tcp(CLIENT, 5000, SERVER, 25).opened(),
        &said,
        |missing, records| {
            // The command that names a sender begins a mail.
            let senders = [(3, "a@example"), (11, "c@example")];
            for (place, sender) in senders {
                let is_there = has(records, "mailfrom", sender);
                assert!(
                    is_there || missing == place,
                    "{sender}, {missing}: {records:?}"
                );
            }
        },
    );
}

/// A client that does not wait for replies between mails (RFC 2920).
#[test]
fn pipelined_mails() {
    let said = dialogue(&[
        "<220 mail.example ESMTP",
        "EHLO client",
        "<250 mail.example",
        "MAIL FROM:<a@example>",
        "<250 ok",
        "DATA",
        "<354 go on",
        "Subject: one\r\n\r\ntext\r\n.",
        "RSET",
        "MAIL FROM:<c@example>",
        "DATA",
        "<250 taken 1",
        "<250 reset",
        "<250 ok",
        "<354 go on",
        "Subject: two\r\n\r\ntext\r\n.",
        "<550 not taken 2",
        "QUIT",
        "<221 bye",
    ]);
    let mut tester = Tester::<SmtpTalk>::tcp(CLIENT, 5000, SERVER, 25).opened();
    for (second, message) in said.iter().enumerate() {
        tester.say(message.from_initiator, second as u64 + 1, &message.bytes);
    }
    tester.close();
    let fields = ["mailfrom", "subject", "last_reply", "state", "duration"];
    assert_eq!(
        tester.rows(&fields),
        [
            r#""a@example" "one" "250 taken 1" "sent" 10.0"#,
            r#""c@example" "two" "550 not taken 2" "refused" 8.0"#,
        ]
    );
}

/// Replies behind a hole have the times at which they were captured, and come when it is given up: they are for no
/// younger commands, and not for those whose replies were lost.
#[test]
fn replies_behind_a_loss_are_for_their_own_mails() {
    let mail = |number: u64| {
        let client = [
            format!("MAIL FROM:<{number}@example>\r\n"),
            "RCPT TO:<b@example>\r\n".to_owned(),
            "DATA\r\n".to_owned(),
            format!("Subject: {number}\r\n\r\ntext\r\n.\r\n"),
        ];
        let server = [
            format!("250 sender {number}\r\n"),
            format!("250 receiver {number}\r\n"),
            format!("354 go on {number}\r\n"),
            format!("{} taken {number}\r\n", 250 + 300 * (number % 2)),
        ];
        client.into_iter().zip(server)
    };
    let turns: Vec<(String, String)> = (0..4).flat_map(mail).collect();
    // Which reply is lost, and when the hole is given up.
    for lost in 1..turns.len() - 1 {
        for late in [1, 3, 20] {
            let mut tester = Tester::<SmtpTalk>::tcp(CLIENT, 5000, SERVER, 25).opened();
            tester.say(false, 0, b"220 mail.example ESMTP\r\n");
            let (mut held, mut is_told) = (Vec::new(), false);
            for (turn, (asked, answered)) in turns.iter().enumerate() {
                let second = 2 * turn as u64 + 2;
                tester.say(true, second, asked.as_bytes());
                if turn == lost {
                    continue;
                }
                held.push((second + 1, answered));
                if turn < lost || turn >= lost + late || turn + 1 == turns.len() {
                    if turn > lost && !core::mem::replace(&mut is_told, true) {
                        tester.miss(false, held[0].0, turns[lost].1.len() as u64);
                    }
                    for (second, answered) in held.drain(..) {
                        tester.say(false, second, answered.as_bytes());
                    }
                }
            }
            tester.close();
            let rows = tester.rows(&["mailfrom", "subject", "last_reply", "state"]);
            assert_eq!(rows.len(), 4, "{lost} {late}: {rows:#?}");
            for (number, row) in rows.iter().enumerate() {
                // Which replies of a mail came.
                let is_last_lost = lost == 4 * number + 3;
                let (code, state) = if number % 2 == 0 {
                    (250, "sent")
                } else {
                    (550, "refused")
                };
                let said = format!("\"{number}@example\" \"{number}\" ");
                let said = match is_last_lost {
                    true => format!("{said}\"354 go on {number}\" \"cut\""),
                    false => format!("{said}\"{code} taken {number}\" \"{state}\""),
                };
                assert_eq!(*row, said, "{lost} {late}: {rows:#?}");
            }
        }
    }
}

/// The same of commands that are sent together: a reply of 354 is for DATA.
#[test]
fn replies_to_pipelined_commands_behind_a_loss() {
    let mut tester = Tester::<SmtpTalk>::tcp(CLIENT, 5000, SERVER, 25).opened();
    tester.say(false, 0, b"220 mail.example ESMTP\r\n");
    tester.say(
        true,
        1,
        b"MAIL FROM:<a@example>\r\nRCPT TO:<b@example>\r\nDATA\r\n",
    );
    tester.miss(false, 2, 8);
    tester.say(false, 2, b"250 receiver\r\n354 go on\r\n");
    tester.say(true, 3, b"Subject: one\r\n\r\ntext\r\n.\r\n");
    tester.say(false, 4, b"250 taken\r\n");
    tester.say(true, 5, b"MAIL FROM:<c@example>\r\n");
    tester.say(false, 6, b"250 ok\r\n");
    tester.close();
    assert_eq!(
        tester.rows(&["mailfrom", "last_reply", "state"]),
        [
            r#""a@example" "250 taken" "sent""#,
            r#""c@example" "250 ok" "cut""#
        ]
    );
}

#[test]
fn files() {
    let said = dialogue(&[
        "<220 FTP server",
        "USER a",
        "<331 password",
        "PASS b",
        "<230 in",
        "PASV",
        "<227 Entering (10,0,0,2,4,1)",
        "RETR one",
        "<150 opening",
        "<226 complete",
        "CWD two",
        "<250 there",
        "QUIT",
        "<221 bye",
    ]);
    cuts_and_gaps(
        || Tester::<FtpTalk>::tcp(CLIENT, 5000, SERVER, 21).opened(),
        &said,
        |missing, records| {
            for (place, message) in said.iter().enumerate() {
                let line = String::from_utf8_lossy(&message.bytes);
                let line = line.trim_end();
                // A greeting and what comes before the last word on a command are no records.
                let is_last = !line.starts_with("220") && !line.starts_with("150");
                let (verb, text) = line.split_once(' ').unwrap_or((line, ""));
                let is_there = match message.from_initiator {
                    true => has(records, "command", verb),
                    false => has(records, "reply_msg", text),
                };
                assert!(
                    is_there || !is_last || place == missing,
                    "{line} without {missing}: {records:?}"
                );
            }
        },
    );
}

#[test]
fn shells() {
    let said = dialogue(&["<SSH-2.0-server", "SSH-2.0-client"]);
    cuts_and_gaps(
        || Tester::<SshTalk>::tcp(CLIENT, 5000, SERVER, 22),
        &said,
        |missing, records| {
            let sides = [("server", "SSH-2.0-server"), ("client", "SSH-2.0-client")];
            for (place, (side, line)) in sides.into_iter().enumerate() {
                assert!(has(records, side, line) || place == missing, "{records:?}");
            }
        },
    );
}

/// A hello in a record; with `is_datagram` in those of DTLS.
fn hello(kind: u8, is_datagram: bool) -> Vec<u8> {
    let mut body = if is_datagram {
        vec![0xfe, 0xfd]
    } else {
        vec![3, 3]
    };
    body.extend([7; 32]);
    body.push(0);
    if kind == 1 {
        // Without a cookie, in DTLS.
        body.extend(is_datagram.then_some(0));
        body.extend([0, 2]);
    }
    body.extend([0xc0, 0x2b]);
    body.extend(if kind == 1 { &[1, 0][..] } else { &[0] });
    let length = body.len() as u8;
    let mut message = vec![kind, 0, 0, length];
    if is_datagram {
        message.extend([0, 0, 0, 0, 0, 0, 0, length]);
    }
    message.extend(body);
    let mut record = match is_datagram {
        true => vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0],
        false => vec![22, 3, 3],
    };
    record.extend([0, message.len() as u8]);
    record.extend(message);
    record
}

#[test]
fn hellos() {
    for is_datagram in [false, true] {
        let said = [true, false].map(|side| {
            let kind = if side { 1 } else { 2 };
            Said::new(side, 0, &hello(kind, is_datagram))
        });
        cuts_and_gaps(
            || match is_datagram {
                true => Tester::<TlsTalk>::udp(CLIENT, 5000, SERVER, 4433),
                false => Tester::<TlsTalk>::tcp(CLIENT, 5000, SERVER, 443),
            },
            &said,
            |missing, records| {
                let state = if missing == 0 {
                    "no_request"
                } else {
                    "no_reply"
                };
                assert!(has(records, "state", state), "{missing}: {records:?}");
                assert_eq!(records[0]["proto"], if is_datagram { "udp" } else { "tcp" });
            },
        );
    }
}
