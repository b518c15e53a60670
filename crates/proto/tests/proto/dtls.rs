//! DTLS: messages out of the fragments of datagrams, however they come.

use flowgauge_proto::Look;
use flowgauge_proto::tls::{
    Carrier, ClientHello, DatagramParser, Events, ServerHello, content, is_stun, ja3_text, ja4,
    look_datagram, message,
};
use proptest::prelude::*;

/// What was found, a line each.
#[derive(Default, Debug, PartialEq, Eq)]
struct Found(Vec<String>);

impl Events for Found {
    fn client_hello(&mut self, hello: &ClientHello<'_>) {
        let name = String::from_utf8_lossy(hello.server_name().unwrap_or_default()).into_owned();
        self.0
            .push(format!("client {:04x} {name}", hello.version()));
        self.0.push(ja3_text(hello));
        self.0.push(ja4(hello, Carrier::Datagram));
    }

    fn server_hello(&mut self, hello: &ServerHello<'_>) {
        self.0.push(format!("server {:04x}", hello.cipher));
    }

    fn certificate(&mut self, der: &[u8]) {
        let is_right = der.iter().enumerate().all(|(at, &byte)| byte == at as u8);
        self.0.push(format!("certificate {} {is_right}", der.len()));
    }

    fn group(&mut self, group: u16) {
        self.0.push(format!("group {group}"));
    }

    fn alert(&mut self, level: u8, description: u8) {
        self.0.push(format!("alert {level} {description}"));
    }

    fn message(&mut self, kind: u8) {
        self.0.push(format!("message {kind}"));
    }

    fn record(&mut self, kind: u8, is_encrypted: bool) {
        self.0.push(format!("record {kind} {is_encrypted}"));
    }

    fn lost(&mut self) {
        self.0.push("lost".to_owned());
    }
}

fn record(kind: u8, epoch: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 1];
    bytes.extend((content.len() as u16).to_be_bytes());
    bytes.extend(content);
    bytes
}

fn number24(number: usize) -> [u8; 3] {
    [(number >> 16) as u8, (number >> 8) as u8, number as u8]
}

/// Bytes `from..to` of a message, in a record.
fn part(kind: u8, number: u8, body: &[u8], from: usize, to: usize) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(number24(body.len()));
    bytes.extend([0, number]);
    bytes.extend(number24(from));
    bytes.extend(number24(to - from));
    bytes.extend(&body[from..to]);
    record(content::HANDSHAKE, 0, &bytes)
}

fn whole(kind: u8, number: u8, body: &[u8]) -> Vec<u8> {
    part(kind, number, body, 0, body.len())
}

/// A hello of DTLS 1.2 with a cookie and a name.
fn client_hello(cookie: &[u8]) -> Vec<u8> {
    let mut body = vec![0xfe, 0xfd];
    body.extend([7; 32]);
    body.extend([0, cookie.len() as u8]);
    body.extend(cookie);
    body.extend([0, 2, 0xc0, 0x2b, 1, 0]);
    body.extend([0, 13, 0, 0, 0, 9, 0, 7, 0, 0, 4]);
    body.extend(*b"name");
    body
}

fn server_hello() -> Vec<u8> {
    let mut body = vec![0xfe, 0xfd];
    body.extend([8; 32]);
    body.extend([0, 0xc0, 0x2b, 0]);
    body
}

/// A list of one certificate.
fn certificates(length: usize) -> Vec<u8> {
    let mut body = number24(length + 3).to_vec();
    body.extend(number24(length));
    body.extend((0..length).map(|at| at as u8));
    body
}

fn read<'a>(datagrams: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut parser, mut found) = (DatagramParser::default(), Found::default());
    for datagram in datagrams {
        parser.datagram(datagram, &mut found);
    }
    found.0
}

const CLIENT: [&str; 4] = [
    "message 1",
    "client fefd name",
    "65277,49195,0,,",
    "dd2d010100_648b5c445417_000000000000",
];

#[test]
fn a_hello_is_the_same_however_it_is_cut() {
    let body = client_hello(b"cookie");
    for cut in 1..body.len() {
        let (first, second) = (
            part(1, 1, &body, 0, cut),
            part(1, 1, &body, cut, body.len()),
        );
        assert_eq!(read([&first[..], &second[..]]), CLIENT, "{cut}");
        assert_eq!(read([&second[..], &first[..]]), CLIENT, "{cut}, turned");
        // Sent again, and both in one datagram.
        let both = [&first[..], &second[..], &first[..], &second[..]].concat();
        // What it says counts once; that it comes is noted.
        let expected = [&CLIENT[..], &["message 1"]].concat();
        assert_eq!(read([&both[..]]), expected, "{cut}, again");
        // Without one of them there is no hello, and nothing else is harmed.
        let alert = record(content::ALERT, 0, &[2, 40]);
        let rest = ["record 21 false", "alert 2 40"];
        assert_eq!(read([&first[..], &alert]), rest, "{cut}");
        assert_eq!(read([&second[..], &alert]), rest, "{cut}");
    }
}

#[test]
fn a_flight_of_a_server_in_any_order_and_with_any_datagram_missing() {
    let body = certificates(600);
    let datagrams = [
        [
            whole(message::HELLO_VERIFY, 0, &[0xfe, 0xff, 2, 1, 2]),
            whole(message::SERVER_HELLO, 1, &server_hello()),
        ]
        .concat(),
        part(message::CERTIFICATE, 2, &body, 0, 300),
        part(message::CERTIFICATE, 2, &body, 250, 500),
        part(message::CERTIFICATE, 2, &body, 500, body.len()),
        [
            whole(message::SERVER_KEY, 3, &[3, 0, 29, 0]),
            whole(message::SERVER_DONE, 4, &[]),
        ]
        .concat(),
        record(content::CHANGE_CIPHER, 0, &[1]),
        record(content::HANDSHAKE, 1, &[9; 40]),
        record(content::DATA, 1, &[9; 40]),
    ];
    let parts: [&[&str]; 8] = [
        &["message 3", "message 2", "server c02b"],
        &[],
        &[],
        &["message 11", "certificate 600 true"],
        &["message 12", "group 29", "message 14"],
        &["record 20 false"],
        &["record 22 true"],
        &["record 23 true"],
    ];
    let all = || datagrams.iter().map(Vec::as_slice);
    assert_eq!(read(all()), parts.concat());
    let again = [
        "message 3",
        "message 2",
        "message 11",
        "message 12",
        "message 14",
    ];
    let expected = [&parts.concat()[..], &again].concat();
    assert_eq!(read(all().chain(all().take(5))), expected, "again");
    let mut expected: Vec<&str> = parts.concat();
    expected.retain(|line| *line != "group 29");
    expected.sort_unstable();
    let mut turned = read(all().rev());
    // Which group it is stands in the terms of the server's hello.
    turned.sort_unstable();
    assert_eq!(turned, expected);
    for missing in 0..datagrams.len() {
        let some = all().enumerate().filter(|(at, _)| *at != missing);
        let left: Vec<&str> = (0..parts.len())
            .filter(|at| *at != missing && !(*at == 3 && (1..3).contains(&missing)))
            .flat_map(|at| parts[at])
            .copied()
            .filter(|line| missing != 0 || *line != "group 29")
            .collect();
        assert_eq!(read(some.map(|it| it.1)), left, "without {missing}");
    }
}

#[test]
fn datagrams_of_others_in_the_flow_are_passed_over() {
    let hello = whole(1, 0, &client_hello(b""));
    let binding = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[5; 12]].concat();
    let media = [0x80; 40];
    assert_eq!(look_datagram(&hello), Look::Yes);
    assert!(is_stun(&binding) && !is_stun(&hello) && !is_stun(&media));
    assert_eq!(read([&binding[..], &media, &hello, &media]), CLIENT);
    for bytes in [&binding[..], &media, b"", &hello[..24]] {
        assert_eq!(look_datagram(bytes), Look::No, "{bytes:x?}");
    }
    // What is encrypted in DTLS 1.3 has a head of its own.
    assert_eq!(read([&[0x2e; 40][..]]), ["record 23 true"]);
}

#[test]
fn what_lies_about_its_length_is_lost_and_bounded() {
    let mut hello = whole(1, 0, &client_hello(b""));
    for cut in 0..hello.len() {
        let found = read([&hello[..cut]]);
        assert!(cut == 0 || found == ["lost"], "{cut}: {found:?}");
    }
    // The length of the message, and of the fragment.
    hello[16] = 1;
    assert_eq!(read([&hello[..]]), ["lost"]);
    let mut parser = DatagramParser::default();
    let mut found = Found::default();
    for number in 0..200 {
        let first = part(message::CERTIFICATE, number, &certificates(60), 0, 30);
        parser.datagram(&first, &mut found);
    }
    assert_eq!(found.0, vec!["lost"; 196]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn what_the_fuzzer_asks_holds(
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let body = certificates(100);
        let flight = [
            whole(1, 0, &client_hello(b"cookie")),
            whole(message::SERVER_HELLO, 1, &server_hello()),
            part(message::CERTIFICATE, 2, &body, 0, 60),
            part(message::CERTIFICATE, 2, &body, 60, body.len()),
        ];
        let mut all = flight.concat();
        for (place, byte) in changes {
            let place = place % all.len();
            all[place] = byte;
        }
        crate::fuzz::dtls(&all);
        crate::fuzz::dtls(&bytes);
    }
}
