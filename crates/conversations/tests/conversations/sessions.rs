//! What is said of connections that are made up: real dialogues of servers and clients.

use crate::corpora;
use crate::session::{self, Session, dialogue, of_kind, records};
use crate::support;
use serde_json::{Value, json};

type Said = Vec<(bool, Vec<u8>)>;

fn lines(said: &[(bool, &str)]) -> Said {
    said.iter()
        .map(|(from_client, text)| (*from_client, format!("{text}\r\n").into_bytes()))
        .collect()
}

fn play(port: u16, said: &Said) -> Vec<Vec<u8>> {
    let said: Vec<(bool, &[u8])> = said
        .iter()
        .map(|(from, it)| (*from, it.as_slice()))
        .collect();
    dialogue(port, &said)
}

/// What a flow is said to be, by content only, and the kinds of other records.
fn told(port: u16, said: &Said) -> (Option<String>, Vec<String>) {
    let records = records("flows = yes", &play(port, said));
    let flows = of_kind(&records, "flow");
    assert_eq!(flows.len(), 1, "{records:?}");
    let by_content = flows[0]["app_proto_by"] == "content";
    let name = flows[0]["app_proto"].as_str().map(str::to_owned);
    let kinds = records.iter().filter_map(|it| it["event_type"].as_str());
    let kinds = kinds.filter(|kind| *kind != "flow").map(str::to_owned);
    (name.filter(|_| by_content), kinds.collect())
}

fn pop3() -> Said {
    lines(&[
        (false, "+OK POP3 mail.example ready"),
        (true, "USER bob"),
        (false, "+OK"),
        (true, "PASS secret"),
        (false, "+OK maildrop locked and ready"),
        (true, "STAT"),
        (false, "+OK 2 320"),
        (true, "LIST"),
        (false, "+OK 2 messages\r\n1 120\r\n2 200\r\n."),
        (true, "RETR 1"),
        (
            false,
            "+OK 120 octets\r\nSubject: x\r\n\r\nGET / HTTP/1.1\r\n.",
        ),
        (true, "QUIT"),
        (false, "+OK bye"),
    ])
}

fn imap() -> Said {
    lines(&[
        (false, "* OK [CAPABILITY IMAP4rev1 STARTTLS] ready"),
        (true, "a1 CAPABILITY"),
        (false, "* CAPABILITY IMAP4rev1\r\na1 OK done"),
        (true, "a2 LOGIN bob secret"),
        (false, "a2 OK logged in"),
        (true, "a3 SELECT INBOX"),
        (false, "* 18 EXISTS\r\na3 OK [READ-WRITE] done"),
        (true, "a4 LOGOUT"),
        (false, "* BYE\r\na4 OK done"),
    ])
}

fn irc() -> Said {
    lines(&[
        (false, ":irc.example NOTICE * :*** Looking up your hostname"),
        (true, "NICK bob"),
        (true, "USER bob 0 * :Bob"),
        (false, ":irc.example 001 bob :Welcome"),
        (true, "JOIN #x"),
        (false, ":bob!b@h JOIN #x"),
        (true, "PRIVMSG #x :hello"),
        (false, "PING :irc.example"),
        (true, "PONG :irc.example"),
    ])
}

fn ldap() -> Said {
    let bind = b"\x30\x25\x02\x01\x01\x60\x20\x02\x01\x03\x04\x13cn=admin,dc=example\x80\x06secret";
    let bound = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
    let search =
        b"\x30\x25\x02\x01\x02\x63\x20\x04\x00\x0a\x01\x00\x0a\x01\x00\x02\x01\x00\x02\x01\x00\
                   \x01\x01\x00\x87\x0bobjectclass\x30\x00";
    let done = b"\x30\x0c\x02\x01\x02\x65\x07\x0a\x01\x00\x04\x00\x04\x00";
    let mut said = vec![(true, bind.to_vec()), (false, bound.to_vec())];
    for _ in 0..3 {
        said.push((true, search[..39].to_vec()));
        said.push((false, done.to_vec()));
    }
    said
}

fn postgresql() -> Said {
    let mut start = b"\0\0\0\x00\0\x03\0\0user\0bob\0database\0x\0\0".to_vec();
    start[3] = start.len() as u8;
    let query = b"Q\0\0\0\x0dSELECT 1\0".to_vec();
    let row =
        b"T\0\0\0\x21\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0".to_vec();
    vec![
        (true, start),
        (false, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I".to_vec()),
        (true, query.clone()),
        (false, row.clone()),
        (true, query.clone()),
        (false, row.clone()),
        (true, query),
        (false, row),
    ]
}

fn mysql_greeting() -> Vec<u8> {
    let mut body = b"\x0a8.0.36\0\x08\0\0\0abcdefgh\0\xff\xf7\x21\x02\0".to_vec();
    body.extend([0; 13]);
    body.extend(b"ijklmnopqrst\0mysql_native_password\0");
    let mut packet = vec![body.len() as u8, 0, 0, 0];
    packet.extend(body);
    packet
}

fn mysql() -> Said {
    let login = b"\x20\0\0\x01\x85\xa6\x03\0\0\0\0\x01\x21bobbobbobbobbobbobbobbob".to_vec();
    let ok = b"\x07\0\0\x02\0\0\0\x02\0\0\0".to_vec();
    let query = b"\x09\0\0\0\x03SELECT 1".to_vec();
    vec![
        (false, mysql_greeting()),
        (true, login),
        (false, ok.clone()),
        (true, query.clone()),
        (false, ok.clone()),
        (true, query),
        (false, ok),
    ]
}

fn xmpp() -> Said {
    let open = "<?xml version='1.0'?><stream:stream to='example' xmlns='jabber:client' \
                xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>";
    let mut said: Said = vec![
        (true, open.into()),
        (false, open.into()),
        (false, b"<stream:features/>".to_vec()),
    ];
    for _ in 0..3 {
        said.push((
            true,
            b"<message><body>GET / HTTP/1.1</body></message>".to_vec(),
        ));
        said.push((false, b"<message><body>hello</body></message>".to_vec()));
    }
    said
}

fn socks() -> Said {
    vec![
        (true, b"\x05\x02\x00\x02".to_vec()),
        (false, b"\x05\x00".to_vec()),
        (true, b"\x05\x01\x00\x01\x0a\0\0\x01\x1f\x90".to_vec()),
        (false, b"\x05\0\0\x01\x0a\0\0\x02\x1f\x90".to_vec()),
        (true, b"something else".to_vec()),
        (false, b"and its answer".to_vec()),
        (true, b"something else".to_vec()),
    ]
}

fn gnutella() -> Said {
    lines(&[
        (true, "GNUTELLA CONNECT/0.6\r\nUser-Agent: x\r\n"),
        (false, "GNUTELLA/0.6 200 OK\r\nUser-Agent: y\r\n"),
        (true, "GNUTELLA/0.6 200 OK\r\n"),
        (false, "1234567890123456\0\x07\0\0\0\0\0"),
        (true, "1234567890123456\x01\x07\0\0\0\0\0"),
        (false, "1234567890123456\0\x07\0\0\0\0\0"),
        (true, "1234567890123456\x01\x07\0\0\0\0\0"),
    ])
}

fn redis() -> Said {
    lines(&[
        (true, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb"),
        (false, "+OK"),
        (true, "*2\r\n$3\r\nGET\r\n$1\r\na"),
        (false, "$1\r\nb"),
        (true, "*1\r\n$4\r\nPING"),
        (false, "+PONG"),
        (true, "*1\r\n$4\r\nQUIT"),
        (false, "+OK"),
    ])
}

fn sessions() -> [(&'static str, u16, Said); 10] {
    [
        ("pop3", 110, pop3()),
        ("imap", 143, imap()),
        ("irc", 6667, irc()),
        ("ldap", 389, ldap()),
        ("postgresql", 5432, postgresql()),
        ("mysql", 3306, mysql()),
        ("xmpp", 5222, xmpp()),
        ("socks", 1080, socks()),
        ("gnutella", 6346, gnutella()),
        ("redis", 6379, redis()),
    ]
}

/// On their own ports, on those where TLS is usual, and elsewhere.
#[test]
fn protocols_that_are_not_read_are_what_they_say_they_are() {
    for (name, own, said) in sessions() {
        for port in [own, 143, 443, 389, 80, 25, 21, 40_001] {
            let (told, others) = told(port, &said);
            assert_eq!(told.as_deref(), Some(name), "{name} on port {port}");
            assert!(others.is_empty(), "{name} on port {port}: {others:?}");
        }
    }
}

/// What says nothing that one of them alone says.
#[test]
fn what_is_left_is_no_evidence() {
    let inline = lines(&[
        (true, "SET a b"),
        (false, "+OK"),
        (true, "AUTH secret"),
        (false, "+OK"),
        (true, "QUIT"),
        (false, "+OK"),
    ]);
    let user = lines(&[(true, "USER bob"), (true, "something"), (true, "else")]);
    let bytes: Said = (0..10)
        .map(|it| (it % 2 == 0, vec![3, 0, 0, 9, it, 1, 2]))
        .collect();
    let short: Said = vec![(true, vec![5, 1, 0]), (false, vec![7, 7])];
    let greeting = lines(&[
        (false, "220 ready"),
        (true, "HELLO you"),
        (false, "500 what"),
    ]);
    for (what, said) in [
        ("inline", inline),
        ("user", user),
        ("bytes", bytes),
        ("short", short),
        ("greeting", greeting),
        (
            "key",
            lines(&[(true, "GET key"), (false, "$5"), (false, "value")]),
        ),
        ("verb", lines(&[(true, "POST GET"), (false, "what")])),
        (
            "words",
            lines(&[(true, "HELO you and you"), (false, "hello")]),
        ),
        (
            "name",
            lines(&[(true, "INFO a b SIP/2.0"), (false, "what")]),
        ),
        (
            "head",
            vec![(true, vec![0x17, 3, 1, 2, 3, 4]), (false, vec![7, 7])],
        ),
        (
            "answer",
            vec![(true, vec![7, 7]), (false, vec![0x16, 3, 1, 2, 3, 4, 5])],
        ),
    ] {
        for port in [
            110, 143, 389, 443, 1080, 3306, 5222, 5269, 5432, 6667, 6379, 40_001,
        ] {
            let (told, others) = told(port, &said);
            assert_eq!((told, others.len()), (None, 0), "{what} on port {port}");
        }
    }
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut record = vec![kind, 3, 3];
    record.extend((body.len() as u16).to_be_bytes());
    record.extend(body);
    record
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(&(body.len() as u32).to_be_bytes()[1..]);
    message.extend(body);
    message
}

fn client_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    record(22, &handshake(1, &body))
}

fn server_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([9; 32]);
    body.extend([0, 0xc0, 0x2f, 0]);
    record(22, &handshake(2, &body))
}

/// What leads over to TLS, wherever it is spoken; of RDP without a cookie, too.
#[test]
fn tls_within_other_protocols_is_found() {
    let x224 = |asks: &[u8]| {
        let mut request = vec![3, 0, 0, 11 + asks.len() as u8, 6 + asks.len() as u8, 0xe0];
        request.extend([0, 0, 0, 0, 0]);
        request.extend(asks);
        request
    };
    let confirm = b"\x03\0\0\x13\x0e\xd0\0\0\x124\0\x02\x1f\x08\0\x02\0\0\0".to_vec();
    let negotiate = b"\x01\0\x08\0\x03\0\0\0";
    let with_cookie = [b"Cookie: mstshash=bob\r\n".as_slice(), negotiate].concat();
    let mut imap = imap()[..3].to_vec();
    imap.extend(lines(&[(true, "a2 STARTTLS"), (false, "a2 OK begin")]));
    let mut pop3 = pop3()[..1].to_vec();
    let capabilities = "+OK list\r\nSTLS\r\n.";
    pop3.extend(lines(&[
        (true, "CAPA"),
        (false, capabilities),
        (true, "STLS"),
        (false, "+OK begin"),
    ]));
    let mut xmpp = xmpp()[..3].to_vec();
    let (start, proceed) = ("<starttls xmlns='urn:x'/>", "<proceed xmlns='urn:x'/>");
    xmpp.extend([(true, start.into()), (false, proceed.into())]);
    let ask = b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec();
    let start_tls = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037".to_vec();
    let ok = b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00".to_vec();
    let switch =
        b"\x20\0\0\x01\x85\xae\x03\0\0\0\0\x01\x21\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
            .to_vec();
    for (name, own, before) in [
        (
            "rdp",
            3389,
            vec![(true, x224(negotiate)), (false, confirm.clone())],
        ),
        (
            "rdp",
            3389,
            vec![(true, x224(&with_cookie)), (false, confirm)],
        ),
        ("imap", 143, imap),
        ("pop3", 110, pop3),
        ("xmpp", 5222, xmpp),
        (
            "postgresql",
            5432,
            vec![(true, ask), (false, b"S".to_vec())],
        ),
        ("ldap", 389, vec![(true, start_tls), (false, ok)]),
        (
            "mysql",
            3306,
            vec![(false, mysql_greeting()), (true, switch)],
        ),
    ] {
        let mut said = before;
        said.extend([(true, client_hello()), (false, server_hello())]);
        for port in [own, 40_001] {
            let (told, others) = told(port, &said);
            assert_eq!(told.as_deref(), Some(name), "port {port}");
            assert_eq!(others, ["tls"], "{name} on port {port}");
        }
    }
}

/// What a server answers belongs to what it was asked, however that is written.
#[test]
fn requests_with_malformed_first_lines_have_their_answers() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 43983\r\n\r\n".to_vec();
    answer.extend(vec![b'x'; 43_983]);
    for (line, method, uri) in [
        ("GET / HTTP/1.1 ", "GET", "/"),
        ("GET /a b c", "GET", "/a b c"),
        ("GET\t/a\tHTTP/1.1", "GET", "/a"),
        ("POST /a", "POST", "/a"),
        ("GET /a HTTP/1.1 and more", "GET", "/a HTTP/1.1 and more"),
        ("G(E)T /a HTTP/1.1", "G(E)T", "/a"),
        ("GET /a http/1.1", "GET", "/a"),
    ] {
        let asks = format!("{line}\r\nHost: example\r\n\r\n");
        for port in [80, 40_001] {
            let said: [(bool, &[u8]); 2] = [(true, asks.as_bytes()), (false, &answer)];
            let records = records("protocols = \"http\"", &dialogue(port, &said));
            assert_eq!(records.len(), 1, "{line:?} on port {port}: {records:?}");
            let it = &records[0];
            assert_eq!((&it["method"], &it["uri"]), (&method.into(), &uri.into()));
            assert_eq!(it["host"], "example", "{line:?}");
            assert_eq!(
                (&it["state"], &it["status"]),
                (&"matched".into(), &200.into())
            );
            assert_eq!(it["response_body_bytes"], 43_983);
            assert_eq!(it["odd"], "bad_request_line", "{line:?}");
        }
    }
}

#[test]
fn bounds_that_are_met_are_told() {
    let mut certificates = Vec::new();
    let whole = handshake(11, &vec![0x30; 340_000]);
    whole
        .chunks(16_000)
        .for_each(|part| certificates.extend(record(22, part)));
    let mut hello = server_hello();
    hello.extend(certificates);
    let done = record(22, &handshake(14, b""));
    let said: [(bool, &[u8]); 3] = [(true, &client_hello()), (false, &hello), (false, &done)];
    let found = records("", &dialogue(443, &said));
    let tls = of_kind(&found, "tls");
    assert_eq!(
        (&tls[0]["limit"], &tls[0]["whole"]),
        (&"message".into(), &"no".into())
    );
    assert_eq!(tls[0]["history"], "Csxn");

    let banner = vec![b'x'; 3000];
    let said: [(bool, &[u8]); 2] = [(true, b"SSH-2.0-x\r\n"), (false, &banner)];
    let found = records("", &dialogue(22, &said));
    let ssh = of_kind(&found, "ssh");
    assert_eq!(
        (&ssh[0]["limit"], &ssh[0]["whole"]),
        (&"lines".into(), &"no".into())
    );

    let asks = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (bytes, limit, whole, files) in [
        (300_000, Value::Null, "yes", 1),
        (400_000, "head".into(), "no", 0),
    ] {
        let field = "x".repeat(bytes);
        let answer = format!("HTTP/1.1 200 OK\r\nA: {field}\r\nContent-Length: 3\r\n\r\nabc");
        let said: [(bool, &[u8]); 2] = [(true, asks), (false, answer.as_bytes())];
        let found = records("files = yes", &dialogue(80, &said));
        let http = of_kind(&found, "http");
        assert_eq!(
            (&http[0]["limit"], &http[0]["whole"]),
            (&limit, &whole.into())
        );
        assert_eq!(of_kind(&found, "file").len(), files);
    }

    let long = format!("CWD {}\r\n", "x".repeat(5000));
    let said: [(bool, &[u8]); 3] = [
        (false, b"220 FTP\r\n"),
        (true, long.as_bytes()),
        (false, b"250 ok\r\n"),
    ];
    let found = records("", &dialogue(21, &said));
    let ftp = of_kind(&found, "ftp");
    assert_eq!(ftp[0]["limit"], "text");
    assert_eq!(ftp[0]["arg"].as_str().unwrap().len(), 4092);

    let mut mail = vec![
        (false, b"220 SMTP\r\n".to_vec()),
        (true, b"EHLO x\r\n".to_vec()),
    ];
    mail.push((false, b"250 ok\r\n".to_vec()));
    mail.extend(lines(&[(true, "MAIL FROM:<a@b>"), (false, "250 ok")]));
    for it in 0..101 {
        mail.extend(lines(&[
            (true, &format!("RCPT TO:<{it}@b>")),
            (false, "250 ok"),
        ]));
    }
    let found = records("", &play(25, &mail));
    let smtp = of_kind(&found, "smtp");
    assert_eq!(smtp[0]["limit"], "receivers");
    assert_eq!(smtp[0]["rcptto"].as_array().unwrap().len(), 100);

    for (count, limit) in [(16, Value::Null), (17, "received".into())] {
        let mut head = "Received: from a\r\n".repeat(count) + "\r\n.\r\n";
        head.insert_str(0, "Subject: x\r\n");
        let mut mail = lines(&[
            (false, "220 SMTP"),
            (true, "EHLO x"),
            (false, "250 ok"),
            (true, "MAIL FROM:<a@b>"),
            (false, "250 ok"),
            (true, "DATA"),
            (false, "354 go"),
        ]);
        mail.extend([(true, head.into_bytes()), (false, b"250 ok\r\n".to_vec())]);
        let found = records("", &play(25, &mail));
        let smtp = of_kind(&found, "smtp");
        assert_eq!(smtp[0]["received"].as_array().unwrap().len(), 16);
        assert_eq!(smtp[0]["limit"], limit);
    }
}

fn files(packets: &[Vec<u8>]) -> Vec<Value> {
    let found = records("files = yes, digests = \"md5\"", packets);
    of_kind(&found, "file").into_iter().cloned().collect()
}

fn shown(file: &Value) -> String {
    let of = |name: &str| match &file[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    [
        "file_name",
        "name_by",
        "bytes",
        "missing_bytes",
        "total_bytes",
        "whole",
    ]
    .map(of)
    .join(" ")
}

#[test]
fn parts_of_forms_are_files_of_their_own() {
    let body = "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--xyz\r\n\
                Content-Disposition: form-data; name=\"f\"; filename=\"one.txt\"\r\nContent-Type: text/plain\r\n\r\n\
                first file\r\n--xyz\r\nContent-Disposition: form-data; name=\"g\"; filename=\"two.bin\"\r\n\r\n\
                second\r\n--xyz--\r\n";
    let asks = format!(
        "POST /up HTTP/1.1\r\nHost: example\r\nContent-Type: multipart/form-data; boundary=\"xyz\"\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let said: [(bool, &[u8]); 2] = [(true, asks.as_bytes()), (false, answer.as_bytes())];
    let all = records("files = yes, digests = \"md5\"", &dialogue(80, &said));
    let found = of_kind(&all, "file");
    let shown: Vec<String> = found.iter().copied().map(shown).collect();
    assert_eq!(
        shown,
        [
            "null null 5 0 null yes",
            "one.txt sender 10 0 null yes",
            "two.bin sender 6 0 null yes"
        ]
    );
    for file in &found {
        assert_eq!(
            (&file["method"], &file["uri"]),
            (&"POST".into(), &"/up".into())
        );
        assert_eq!(file["sent_by"], "src");
    }
    assert_eq!(found[1]["md5"], md5(b"first file"));
    let http = of_kind(&all, "http")[0];
    let ids: Vec<u64> = found.iter().map(|file| id(file, "file_id")).collect();
    assert_eq!(http["request_files"], Value::from(ids));
    assert_eq!(http["request_file_names"], json!(["one.txt", "two.bin"]));
    // Of the others so little came that they could be anything.
    assert_eq!(http["request_part_types"], json!(["text/plain"]));
    assert_eq!(http["limit"], Value::Null);
}

/// A number that stands in hexadecimal digits.
fn id(record: &Value, field: &str) -> u64 {
    u64::from_str_radix(record[field].as_str().unwrap(), 16).unwrap()
}

#[test]
fn more_parts_than_are_listed_are_told() {
    let part = "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n";
    let body = format!("{}--xyz--\r\n", part.repeat(101));
    let asks = format!(
        "POST /up HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=xyz\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let all = records("files = yes", &dialogue(80, &[(true, asks.as_bytes())]));
    assert_eq!(of_kind(&all, "file").len(), 101);
    let http = of_kind(&all, "http")[0];
    assert_eq!(http["request_files"].as_array().unwrap().len(), 100);
    assert_eq!(http["limit"], "files");
}

/// A mail whose first part has a line that begins with a dot, and whose second one has a head of more than 32 KiB.
#[test]
fn mails_are_files_that_their_parts_name() {
    let begin = "Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\none\r\n";
    let dot = ".two\r\n";
    let long = format!("X: {}\r\n", "x".repeat(1000)).repeat(40);
    let rest = format!("--b\r\n{long}Content-Type: text/html\r\n\r\nthree\r\n--b--\r\n");
    let message = format!("{begin}.{dot}{rest}.\r\n");
    let said: Vec<(bool, &[u8])> = vec![
        (false, b"220 SMTP\r\n"),
        (true, b"EHLO x\r\n"),
        (false, b"250 ok\r\n"),
        (true, b"MAIL FROM:<a@b>\r\n"),
        (false, b"250 ok\r\n"),
        (true, b"RCPT TO:<c@b>\r\n"),
        (false, b"250 ok\r\n"),
        (true, b"DATA\r\n"),
        (false, b"354 go on\r\n"),
        (true, message.as_bytes()),
        (false, b"250 ok\r\n"),
    ];
    let all = records("mails = yes, digests = \"md5\"", &dialogue(25, &said));
    let found = of_kind(&all, "file");
    let sent = format!("{begin}{dot}{rest}");
    let [one, two, mail] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(mail["md5"], md5(sent.as_bytes()));
    assert_eq!(mail["mime_type"], "message/rfc822");
    assert_eq!(mail["bytes"], sent.len());
    assert_eq!(one["md5"], md5(b"one\r\n.two"));
    for (file, part, limit) in [(one, 2, Value::Null), (two, 3, "head".into())] {
        assert_eq!(id(file, "parent_id"), id(mail, "file_id"));
        assert_eq!((&file["part"], &file["limit"]), (&part.into(), &limit));
    }
    let without = records("files = yes", &dialogue(25, &said));
    let parents = of_kind(&without, "file");
    assert!(parents.len() == 2 && parents.iter().all(|it| it["parent_id"].is_null()));
}

/// Transfers in both modes and both directions; the data begins before or behind the reply that announces it.
#[test]
fn files_of_ftp_come_with_it_and_are_named_after_who_sends_them() {
    for (is_active, command, is_announced) in [
        (false, "RETR", true),
        (false, "STOR", true),
        (true, "RETR", true),
        (true, "RETR", false),
        (true, "STOR", false),
    ] {
        let port = 20_000;
        let (asks, agrees) = match is_active {
            true => ("PORT 192,0,2,1,78,32\r\n", "200 fine\r\n"),
            false => (
                "PASV\r\n",
                "227 Entering Passive Mode (192,0,2,2,78,32)\r\n",
            ),
        };
        let asks_for_file = format!("{command} a.bin\r\n");
        let mut control = Session::new(40_000, 21);
        for (from_client, bytes) in [
            (false, "220 FTP\r\n"),
            (true, "USER x\r\n"),
            (false, "230 ok\r\n"),
            (true, asks),
            (false, agrees),
            (true, &asks_for_file),
        ] {
            control.say(from_client, bytes.as_bytes());
        }
        let announce = |control: &mut Session| {
            control.say(false, b"150 here\r\n");
        };
        if is_announced {
            announce(&mut control);
        }
        let mut packets = core::mem::take(&mut control.packets);
        let mut data = match is_active {
            true => Session::opened_by_server(port, 20),
            false => Session::new(40_001, port),
        };
        data.say(command == "STOR", b"some bytes");
        packets.append(&mut data.packets);
        if !is_announced {
            announce(&mut control);
        }
        packets.append(&mut control.packets);
        packets.extend(data.close());
        control.say(false, b"226 sent\r\n");
        packets.extend(control.close());

        let folder = tempfile::tempdir().unwrap();
        let extract = folder.path().display();
        let options = format!("protocols = \"ftp\", extract = \"{extract}\"");
        let all = records(&options, &packets);
        let what = format!("{is_active} {command} {is_announced}: {all:?}");
        let [file] = of_kind(&all, "file")[..] else {
            panic!("{what}");
        };
        let side = if command == "STOR" { "-up" } else { "-down" };
        let name = file["extracted"].as_str().unwrap();
        assert!(name.ends_with(side), "{what}");
        let sender = if is_active == (command == "RETR") {
            "src"
        } else {
            "dst"
        };
        assert_eq!(file["sent_by"], sender, "{what}");
        assert_eq!(
            (&file["method"], &file["file_name"]),
            (&command.into(), &"a.bin".into()),
            "{what}"
        );
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(bytes, b"some bytes");
    }
}

/// A client breaks a message off within its chunks and begins another, for the same receivers.
#[test]
fn two_messages_of_a_mail_are_two_files() {
    let said: Vec<(bool, &[u8])> = vec![
        (false, b"220 SMTP\r\n"),
        (true, b"EHLO x\r\n"),
        (false, b"250 ok\r\n"),
        (true, b"MAIL FROM:<a@b>\r\n"),
        (false, b"250 ok\r\n"),
        (true, b"RCPT TO:<c@b>\r\n"),
        (false, b"250 ok\r\n"),
        (true, b"BDAT 12\r\n\r\nbroken off"),
        (false, b"250 ok\r\n"),
        (true, b"DATA\r\n"),
        (false, b"354 go on\r\n"),
        (true, b"\r\nwhole\r\n.\r\n"),
        (false, b"250 ok\r\n"),
    ];
    let all = records("mails = yes, files = yes", &dialogue(25, &said));
    let found = of_kind(&all, "file");
    let is_mail = |it: &&&Value| it["mime_type"] == "message/rfc822";
    let mails: Vec<&&Value> = found.iter().filter(is_mail).collect();
    assert_eq!(
        mails.iter().map(|it| &it["whole"]).collect::<Vec<_>>(),
        ["no", "yes"]
    );
    let mut ids: Vec<u64> = found.iter().map(|it| id(it, "file_id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{found:?}");
    for (mail, depth) in mails.into_iter().zip([1, 2]) {
        let of_mail = found.iter().filter(|it| it["depth"] == depth);
        let of_mail: Vec<u64> = of_mail.map(|it| id(it, "file_id")).collect();
        assert_eq!(of_mail.len(), 2, "{found:?}");
        let part = found.iter().find(|it| it["parent_id"] == mail["file_id"]);
        assert_eq!(part.unwrap()["depth"], depth);
    }
}

#[test]
fn an_argument_behind_what_is_read_of_a_call_is_told() {
    let call = |path: usize| {
        let mut bytes = Vec::new();
        for word in [7, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, path as u32] {
            bytes.extend(u32::to_be_bytes(word));
        }
        bytes.extend(vec![b'/'; path]);
        let mark = 1 << 31 | bytes.len() as u32;
        [&mark.to_be_bytes()[..], &bytes].concat()
    };
    for (path, limit) in [(1000, Value::Null), (4000, "head".into())] {
        let all = records("", &dialogue(635, &[(true, &call(path))]));
        let rpc = of_kind(&all, "rpc")[0];
        assert_eq!(
            (rpc["argument"].is_null(), &rpc["limit"]),
            (path > 1000, &limit)
        );
    }
}

fn md5(bytes: &[u8]) -> String {
    use md5::{Digest, Md5};
    Md5::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A client asks for ranges of a file, one in each connection.
fn ranges(ranges: &[(usize, usize)], whole: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (number, &(start, end)) in ranges.iter().enumerate() {
        let mut session = Session::new(40_000 + number as u16, 80);
        session.say(true, b"GET /d/file.bin?x HTTP/1.1\r\nHost: example\r\n\r\n");
        let mut answer = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\n\r\n",
            end - 1,
            whole.len(),
            end - start
        )
        .into_bytes();
        answer.extend(&whole[start..end]);
        session.say(false, &answer);
        packets.extend(session.close());
    }
    packets
}

#[test]
fn ranges_of_a_file_are_put_together() {
    let whole: Vec<u8> = (0..9000_u32).flat_map(u32::to_le_bytes).collect();
    let size = whole.len();
    for order in [
        vec![(0, 10_000), (10_000, 20_000), (20_000, size)],
        vec![(20_000, size), (10_000, 20_000), (0, 10_000)],
        vec![(0, 15_000), (10_000, 20_000), (15_000, size)],
        vec![(0, 10_000), (20_000, size), (0, 10_000), (10_000, 20_000)],
    ] {
        let found = files(&ranges(&order, &whole));
        assert_eq!(found.len(), 1, "{order:?}: {found:?}");
        let expected = format!("file.bin url {size} 0 {size} yes");
        assert_eq!(shown(&found[0]), expected, "{order:?}");
        assert_eq!(found[0]["md5"], md5(&whole), "{order:?}");
    }
    // What never came counts as missing, where something behind it did.
    let found = files(&ranges(&[(0, 10_000), (20_000, size)], &whole));
    let seen = size - 10_000;
    assert_eq!(
        shown(&found[0]),
        format!("file.bin url {seen} 10000 {size} no")
    );
    assert_eq!((found.len(), &found[0]["md5"]), (1, &Value::Null));
}

#[test]
fn several_ranges_in_one_answer_are_put_together() {
    let whole = b"0123456789abcdefghij";
    let part = |start: usize, end: usize| {
        let text = String::from_utf8_lossy(&whole[start..end]).into_owned();
        format!(
            "--b\r\nContent-Range: bytes {start}-{}/20\r\n\r\n{text}\r\n",
            end - 1
        )
    };
    let body = format!("{}{}--b--\r\n", part(10, 20), part(0, 10));
    let answer = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=b\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let asks = "GET /x HTTP/1.1\r\nRange: bytes=10-19,0-9\r\n\r\n";
    let said: [(bool, &[u8]); 2] = [(true, asks.as_bytes()), (false, answer.as_bytes())];
    let found = files(&dialogue(80, &said));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(shown(&found[0]), "x url 20 0 20 yes");
    assert_eq!(found[0]["md5"], md5(whole));
}

#[test]
fn a_body_that_is_no_form_though_it_says_so_is_told() {
    let asks =
        "POST /up HTTP/1.1\r\nContent-Type: multipart/form-data\r\nContent-Length: 5\r\n\r\nhello";
    let found = files(&dialogue(80, &[(true, asks.as_bytes())]));
    assert_eq!(found.len(), 1);
    assert_eq!(shown(&found[0]), "null null 5 0 5 yes");
}

/// Frames in a classic pcap file, a millisecond apart.
fn trace(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1]
        .map(u32::to_be_bytes)
        .concat();
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        let number = number as u32;
        let head = [
            1_700_000_000 + number / 1000,
            number % 1000 * 1000,
            length,
            length,
        ];
        file.extend(head.map(u32::to_be_bytes).concat());
        file.extend(frame);
    }
    file
}

fn frame(packet: &[u8], vlan: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if vlan != 0 {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([8, 0]);
    frame.extend(packet);
    frame
}

fn flows_of_trace(trace: &[u8], mode: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let stack = format!(
        "[stack] flows {{ checksums = ignore, vlan_aware = {mode} }} output {{ {} }}",
        out.display()
    );
    let mut run = support::Run::new(&stack);
    run.trace(trace);
    let text = std::fs::read_to_string(&out).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_same_endpoints_in_two_vlans_are_two_flows() {
    let said: [(bool, &[u8]); 2] = [
        (true, b"GET / HTTP/1.1\r\n\r\n"),
        (false, b"HTTP/1.1 204 x\r\n\r\n"),
    ];
    let packets = dialogue(80, &said);
    let both: Vec<Vec<u8>> = packets
        .iter()
        .flat_map(|it| [frame(it, 10), frame(it, 20)])
        .collect();
    let from_client = |it: &Vec<u8>| it[12..16] == session::CLIENT;
    let ways: Vec<Vec<u8>> = packets
        .iter()
        .map(|it| frame(it, if from_client(it) { 10 } else { 20 }))
        .collect();
    let half: Vec<Vec<u8>> = packets
        .iter()
        .map(|it| frame(it, if from_client(it) { 10 } else { 0 }))
        .collect();
    for (what, frames, [auto, yes, no]) in [
        ("both", both, [2, 2, 1]),
        ("one for each direction", ways, [1, 2, 1]),
        ("tags in one direction", half, [1, 2, 1]),
    ] {
        for (mode, expected) in [("auto", auto), ("yes", yes), ("no", no)] {
            let flows = flows_of_trace(&trace(&frames), mode);
            assert_eq!(flows.len(), expected, "{what}, {mode}: {flows:?}");
            if expected == 1 + usize::from(what == "both") {
                assert!(
                    flows.iter().all(|it| it["state"] == "SF"),
                    "{what}, {mode}: {flows:?}"
                );
            }
        }
    }
}

/// Three connections between the same ports: without a tag, in VLAN 42, in VLAN 20 within 10. Zeek has one row
/// of it, or three where its keys have VLANs.
#[test]
fn vlans_as_zeek_has_them() {
    let Some(corpora) = corpora::corpora() else {
        return;
    };
    let trace = std::fs::read(corpora.join("zeek/Traces/vlan-collisions.pcap")).unwrap();
    let packets = |mode| {
        let flows = flows_of_trace(&trace, mode);
        let sum = |it: &Value| {
            [
                it["src_packets"].as_u64().unwrap(),
                it["dst_packets"].as_u64().unwrap(),
            ]
        };
        let mut all: Vec<[u64; 2]> = flows.iter().map(sum).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(packets("yes"), [[7, 7]; 3]);
    assert_eq!(packets("no"), [[21, 21]]);
    assert_eq!(packets("auto"), [[7, 7]; 3]);
}

fn history(packets: &[Vec<u8>]) -> String {
    let records = records("flows = yes", packets);
    of_kind(&records, "flow")[0]["history"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// In whatever order its ends are captured, a connection of which all was captured has no gap: an acknowledgement
/// before what it acknowledges is one, but that of a FIN.
#[test]
fn a_reordered_end_is_no_gap() {
    let mut session = Session::new(40_000, 80);
    session.say(true, b"question").say(false, b"answer");
    session.say(true, b"another");
    let packets = session.close();
    let (first, last) = packets.split_at(packets.len() - 3);
    // Orders of both FINs and the last acknowledgement.
    for order in 0..6_usize {
        let mut left: Vec<&Vec<u8>> = last.iter().collect();
        let mut number = order;
        let mut packets = first.to_vec();
        for choices in (1..=3).rev() {
            packets.push(left.remove(number % choices).clone());
            number /= choices;
        }
        let history = history(&packets);
        assert!(!history.contains(['g', 'G']), "{order}: {history}");
    }
    // Data behind the FIN of who sent it.
    let at = packets.len() - 5;
    let mut late = packets.clone();
    let fin = late.remove(at + 2);
    late.insert(at, fin);
    assert!(!history(&late).contains('G'), "{}", history(&late));
    // A FIN that never came is one.
    let mut packets = packets.clone();
    packets.remove(packets.len() - 3);
    assert!(history(&packets).ends_with('G'), "{}", history(&packets));
}
