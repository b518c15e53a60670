//! TLS in whatever pieces it comes.

use flowgauge_proto::Look;
use flowgauge_proto::tls::{
    Carrier, Certificate, ClientHello, Events, Parser, ServerHello, alert_name, cipher_name, ja3,
    ja3_text, ja3s, ja3s_text, ja4, look, sha256, version_name,
};
use proptest::prelude::*;

/// What a parser said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log(Vec<String>);

impl Events for Log {
    fn client_hello(&mut self, hello: &ClientHello<'_>) {
        let name = String::from_utf8_lossy(hello.server_name().unwrap_or_default());
        let version = version_name(hello.version()).unwrap_or("?");
        let ja4 = ja4(hello, Carrier::Tcp);
        self.0
            .push(format!("  client {version} {name} {} {ja4}", ja3(hello)));
    }

    fn server_hello(&mut self, hello: &ServerHello<'_>) {
        let version = version_name(hello.version()).unwrap_or("?");
        let cipher = cipher_name(hello.cipher).unwrap_or("?");
        self.0
            .push(format!("  server {version} {cipher} {}", ja3s(hello)));
    }

    fn certificate(&mut self, der: &[u8]) {
        self.0.push(format!("  certificate {}", der.len()));
    }

    fn group(&mut self, group: u16) {
        self.0.push(format!("  group {group}"));
    }

    fn alert(&mut self, level: u8, description: u8) {
        let name = alert_name(description).unwrap_or("?");
        self.0.push(format!("  alert {level} {name}"));
    }

    fn message(&mut self, kind: u8) {
        self.0.push(format!("message {kind}"));
    }

    fn record(&mut self, kind: u8, is_encrypted: bool) {
        self.0.push(format!("record {kind} {is_encrypted}"));
    }

    fn bounded(&mut self, bound: &'static str) {
        self.0.push(format!("bound {bound}"));
    }

    fn lost(&mut self) {
        self.0.push("lost".to_owned());
    }
}

fn vector8(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8], bytes].concat()
}

fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

fn vector24(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[1..], bytes].concat()
}

fn numbers(list: &[u16]) -> Vec<u8> {
    list.iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1], vector16(bytes).as_slice()].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], vector24(body).as_slice()].concat()
}

/// The body of a ClientHello, with its extensions in this order.
fn client_hello(version: u16, ciphers: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let all = extensions.iter();
    let all =
        all.flat_map(|(number, data)| [&number.to_be_bytes(), vector16(data).as_slice()].concat());
    let all: Vec<u8> = all.collect();
    let all = if extensions.is_empty() {
        Vec::new()
    } else {
        vector16(&all)
    };
    [
        version.to_be_bytes().as_slice(),
        &[7; 32],
        &vector8(&[9; 32]),
        &vector16(&numbers(ciphers)),
        &[1, 0],
        &all,
    ]
    .concat()
}

fn server_name(name: &str) -> Vec<u8> {
    vector16(&[&[0], vector16(name.as_bytes()).as_slice()].concat())
}

fn server_hello(version: u16, cipher: u16, extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let all = extensions.iter();
    let all =
        all.flat_map(|(number, data)| [&number.to_be_bytes(), vector16(data).as_slice()].concat());
    let all: Vec<u8> = all.collect();
    [
        version.to_be_bytes().as_slice(),
        &[8; 32],
        &vector8(&[9; 32]),
        &cipher.to_be_bytes(),
        &[0],
        &vector16(&all),
    ]
    .concat()
}

fn read(pieces: &[&[u8]]) -> Vec<String> {
    let (mut parser, mut log) = (Parser::default(), Log::default());
    for piece in pieces {
        parser.data(piece, &mut log);
    }
    log.0
}

/// The same in one piece, at each cut, and byte by byte.
fn check(bytes: &[u8], expected: &[&str]) {
    assert_eq!(read(&[bytes]), expected);
    for cut in 1..bytes.len() {
        let (one, other) = bytes.split_at(cut);
        assert_eq!(read(&[one, other]), expected, "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single), expected, "byte by byte");
}

/// The hello that the description of JA4 shows.
fn chrome() -> Vec<u8> {
    let ciphers = [
        0x2a2a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
        0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
    ];
    let signatures = [
        0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601,
    ];
    let protocols = [vector8(b"h2"), vector8(b"http/1.1")].concat();
    let extensions = [
        (0x5a5a, vec![]),
        (0x001b, vec![2, 0, 2]),
        (0x0000, server_name("example.com")),
        (0x0033, vec![0, 0]),
        (0x0010, vector16(&protocols)),
        (0x4469, vec![]),
        (0x0017, vec![]),
        (0x002d, vec![1, 1]),
        (0x000d, vector16(&numbers(&signatures))),
        (0x0005, vec![1, 0, 0, 0, 0]),
        (0x0023, vec![]),
        (0x0012, vec![]),
        (0x002b, vector8(&numbers(&[0x7a7a, 0x0304, 0x0303]))),
        (0xff01, vec![0]),
        (0x000b, vec![1, 0]),
        (
            0x000a,
            vector16(&numbers(&[0x3a3a, 0x001d, 0x0017, 0x0018])),
        ),
        (0x0015, vec![0; 7]),
    ];
    client_hello(0x0303, &ciphers, &extensions)
}

#[test]
fn published_fingerprints() {
    let body = chrome();
    let hello = ClientHello::read(&body).unwrap();
    assert_eq!(
        ja4(&hello, Carrier::Tcp),
        "t13d1516h2_8daaf6152771_e5627efa2ab1"
    );
    assert_eq!(&ja4(&hello, Carrier::Quic)[..10], "q13d1516h2");
    assert_eq!(
        ja3_text(&hello),
        "771,4865-4866-4867-49195-49199-49196-49200-52393-52392-49171-49172-156-157-47-53,\
         27-0-51-16-17513-23-45-13-5-35-18-43-65281-11-10-21,29-23-24,0"
    );

    let ciphers = [47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4];
    let extensions = [
        (0, server_name("a")),
        (10, vector16(&numbers(&[23, 24, 25]))),
        (11, vec![1, 0]),
    ];
    let body = client_hello(769, &ciphers, &extensions);
    let hello = ClientHello::read(&body).unwrap();
    assert_eq!(
        ja3_text(&hello),
        "769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0"
    );
    assert_eq!(ja3(&hello), "ada70206e40642a3e4461f35503241d5");
    let body = client_hello(769, &[4, 5, 10, 9, 100, 98, 3, 6, 19, 18, 99], &[]);
    let hello = ClientHello::read(&body).unwrap();
    assert_eq!(ja3_text(&hello), "769,4-5-10-9-100-98-3-6-19-18-99,,,");
    assert_eq!(ja3(&hello), "de350869b8c85de67a350c8d186f11e6");
    assert_eq!(&ja4(&hello, Carrier::Tcp)[..10], "t10i110000");
    assert!(ja4(&hello, Carrier::Tcp).ends_with("_000000000000"));

    let extensions = [
        (65281, vec![0]),
        (0, vec![]),
        (11, vec![1, 0]),
        (35, vec![]),
    ];
    let body = server_hello(769, 49172, &extensions);
    let hello = ServerHello::read(&body).unwrap();
    assert_eq!(ja3s_text(&hello), "769,49172,65281-0-11-35");
}

#[test]
fn protocols_in_ja4_are_letters_and_digits_or_their_bytes() {
    for (name, expected) in [
        (b"h2".as_slice(), "h2"),
        (b"http/1.1", "h1"),
        (b"h", "hh"),
        (b"\xab", "ab"),
        (b"0\xab", "3b"),
        (b"\xab\xcd", "ad"),
        (b"01\xab\xcd", "3d"),
    ] {
        let body = client_hello(0x0303, &[1], &[(16, vector16(&vector8(name)))]);
        let hello = ClientHello::read(&body).unwrap();
        assert_eq!(&ja4(&hello, Carrier::Tcp)[8..10], expected, "{name:?}");
    }
}

/// What a server says in TLS 1.2, in records that do not end where messages do.
fn server_side() -> Vec<u8> {
    let certificates = [vector24(&[0x30; 700]), vector24(&[0x31; 900])].concat();
    let messages = [
        message(2, &server_hello(0x0303, 0xc02f, &[(11, vec![1, 0])])),
        message(11, &vector24(&certificates)),
        message(12, &[3, 0, 23, 65, 0, 0]),
        message(14, &[]),
    ]
    .concat();
    let records = messages.chunks(500).map(|part| record(22, part));
    let mut bytes: Vec<u8> = records.flatten().collect();
    bytes.extend(record(22, &message(4, &[0; 30])));
    bytes.extend(record(20, &[1]));
    bytes.extend(record(22, &[0xa5; 40]));
    bytes.extend(record(23, &[0x5a; 90]));
    bytes.extend(record(21, &[0xff; 26]));
    bytes
}

const SERVER_SIDE: &[&str] = &[
    "message 2",
    // With the JA3S of its hello behind it.
    "  server TLS 1.2 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "message 11",
    "  certificate 700",
    "  certificate 900",
    "message 12",
    "  group 23",
    "message 14",
    "message 4",
    "record 20 false",
    "record 22 true",
    "record 23 true",
    "record 21 true",
];

#[test]
fn a_server_is_read_at_any_cut() {
    let mut expected = SERVER_SIDE.to_vec();
    let hello = server_hello(0x0303, 0xc02f, &[(11, vec![1, 0])]);
    let hello = ServerHello::read(&hello).unwrap();
    assert_eq!(ja3s_text(&hello), "771,49199,11");
    let line = format!("{} {}", expected[1], ja3s(&hello));
    expected[1] = &line;
    check(&server_side(), &expected);
}

#[test]
fn a_client_is_read_at_any_cut() {
    let mut bytes = record(22, &message(1, &chrome()));
    bytes.extend(record(20, &[1]));
    // A second hello, that the server asked for, behind ChangeCipherSpec.
    bytes.extend(record(22, &message(1, &chrome())));
    bytes.extend(record(22, &[1, 0xff, 0, 0, 9, 9]));
    bytes.extend(record(23, &[0; 20]));
    let ja3 = ja3(&ClientHello::read(&chrome()).unwrap());
    let hello = format!("  client TLS 1.3 example.com {ja3} t13d1516h2_8daaf6152771_e5627efa2ab1");
    check(
        &bytes,
        &[
            "message 1",
            &hello,
            "record 20 false",
            "message 1",
            &hello,
            "record 22 true",
            "record 23 true",
        ],
    );
    check(
        &record(21, &[2, 40]),
        &["record 21 false", "  alert 2 handshake_failure"],
    );
}

#[test]
fn hellos_of_sslv2_are_read() {
    let ciphers = [1, 0, 0x80, 0, 0, 4, 0, 0, 10];
    let body = [&[1, 3, 1, 0, 9, 0, 0, 0, 16], ciphers.as_slice(), &[7; 16]].concat();
    let bytes = [&[0x80, body.len() as u8], body.as_slice()].concat();
    let expected = ["message 1", "record 20 false"];
    let both = [bytes.clone(), record(20, &[1])].concat();
    let said = read(&[&both]);
    assert_eq!(said.len(), 3, "{said:?}");
    assert_eq!([&said[0], &said[2]], expected);
    assert!(said[1].starts_with("  client TLS 1.0 "), "{said:?}");
    assert!(said[1].contains(" t10i020000_"), "{said:?}");
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    check(&both, &said);
    for length in 0..bytes.len() {
        let expected = if length < 11 { Look::More } else { Look::Yes };
        assert_eq!(look(&bytes[..length]), expected, "{length}");
    }
}

#[test]
fn a_hole_in_a_record_leaves_the_next_one_readable() {
    let bytes = server_side();
    let (start, hole) = (bytes.len() - 150, 20);
    // In what is encrypted it costs nothing.
    let (mut parser, mut log) = (Parser::default(), Log::default());
    parser.data(&bytes[..start], &mut log);
    parser.gap(hole as u64, &mut log);
    parser.data(&bytes[start + hole..], &mut log);
    assert_eq!(log.0.len(), SERVER_SIDE.len());
    assert!(!log.0.contains(&"lost".to_owned()));
    // In a certificate, or over the end of a record, messages behind it are still found.
    for (start, hole) in [(700, 100), (400, 200)] {
        let (mut parser, mut log) = (Parser::default(), Log::default());
        parser.data(&bytes[..start], &mut log);
        parser.gap(hole as u64, &mut log);
        for piece in bytes[start + hole..].chunks(7) {
            parser.data(piece, &mut log);
        }
        assert!(log.0.contains(&"lost".to_owned()), "{:?}", log.0);
        if start == 700 {
            assert_eq!(log.0[log.0.len() - 5..], SERVER_SIDE[8..], "{:?}", log.0);
        }
    }
}

/// With a hole for every piece.
#[test]
fn holes_anywhere_are_said() {
    let bytes = server_side();
    let all = read(&[&bytes]);
    for size in [1, 10, 333] {
        for place in 0..bytes.len() / size {
            let (mut parser, mut log) = (Parser::default(), Log::default());
            let at = place * size;
            parser.data(&bytes[..at], &mut log);
            parser.gap(size as u64, &mut log);
            parser.data(&bytes[at + size..], &mut log);
            // In what is passed over a hole costs nothing.
            let is_said = log.0.contains(&"lost".to_owned());
            assert!(is_said || log.0 == all, "{size} {at}");
            // What was said before the hole is what is said without one.
            let whole = read(&[&bytes[..at]]);
            assert_eq!(log.0[..whole.len()], whole, "{size} {at}");
        }
    }
}

#[test]
fn what_is_no_tls_is_given_up() {
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "SSH-2.0-x\r\n",
        "\x16\x03\x01\x7f\x7f________",
        "\x16\x02\x01\x00\x05______",
    ] {
        assert_ne!(look(text.as_bytes()), Look::Yes, "{text:?}");
        let (mut parser, mut log) = (Parser::default(), Log::default());
        parser.data(text.as_bytes(), &mut log);
        assert!(parser.is_lost(), "{text:?}");
        assert_eq!(log.0, ["lost"], "{text:?}");
    }
    let bytes = record(22, &message(1, &chrome()));
    for length in 0..bytes.len() {
        let expected = if length < 10 { Look::More } else { Look::Yes };
        assert_eq!(look(&bytes[..length]), expected);
    }
}

#[test]
fn a_long_message_is_not_kept() {
    let mut parser = Parser::default();
    let mut log = Log::default();
    let length = 1 << 20;
    let bytes = message(11, &vec![0; length]);
    for part in bytes.chunks(16 << 10) {
        parser.data(&record(22, part), &mut log);
    }
    parser.data(&record(22, &message(14, &[])), &mut log);
    assert_eq!(log.0, ["message 11", "bound message", "message 14"]);
}

#[test]
fn certificates_are_read() {
    let parameters = rcgen::CertificateParams::new(vec![
        "www.example.com".to_owned(),
        "192.0.2.1".to_owned(),
        "2001:db8::1".to_owned(),
    ]);
    let mut parameters = parameters.unwrap();
    parameters.not_before = rcgen::date_time_ymd(2024, 2, 29);
    parameters.not_after = rcgen::date_time_ymd(2031, 1, 1);
    parameters.serial_number = Some(0x0102_0304_0506_u64.into());
    let mut name = rcgen::DistinguishedName::new();
    name.push(rcgen::DnType::CountryName, "DE");
    name.push(rcgen::DnType::OrganizationName, "Müller & Söhne");
    name.push(rcgen::DnType::CommonName, "www.example.com");
    parameters.distinguished_name = name;
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(2));
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let der = certificate.der();
    let read = Certificate::read(der).unwrap();
    let name = "C=DE, O=Müller & Söhne, CN=www.example.com";
    assert_eq!((&*read.subject, &*read.issuer), (name, name));
    assert_eq!(
        (read.not_before, read.not_after),
        (1_709_164_800, 1_924_992_000)
    );
    assert_eq!((&*read.serial, read.version), ("010203040506", 3));
    assert_eq!((read.key_type, read.key_bits), ("ecdsa", Some(256)));
    assert_eq!(read.curve.as_deref(), Some("prime256v1"));
    assert_eq!(read.dns_names, ["www.example.com"]);
    assert_eq!(read.ip_addresses, ["192.0.2.1", "2001:db8::1"]);
    assert_eq!((read.is_authority, read.path_length), (Some(true), Some(2)));
    assert_eq!(read.alternatives().count(), 3);
    for length in 0..der.len() {
        assert_eq!(Certificate::read(&der[..length]), None, "{length}");
    }
    // Of the text `abc` (FIPS 180-4's example).
    assert!(sha256(b"abc").starts_with("ba7816bf8f01cfea"));
}

/// Drafts of TLS 1.3 before the 16th say 3.4 where later ones say 3.3, and have no session.
#[test]
fn a_server_hello_of_an_early_draft() {
    let mut body = vec![3, 4];
    body.extend([7; 32]);
    body.extend([0xc0, 0x2b, 0, 8, 0, 40, 0, 4, 0, 23, 0, 0]);
    let hello = ServerHello::read(&body).unwrap();
    assert_eq!((hello.version(), hello.cipher), (0x0304, 0xc02b));
    assert_eq!(hello.group(), Some(23));
    assert!(hello.is_13() && hello.session.is_empty());
}

proptest! {
    #[test]
    fn nothing_panics(
        pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)), 0..30),
        start in prop::sample::select(vec![0, 5, 60, 200, 2000]),
        seed in any::<usize>(),
    ) {
        let (mut parser, mut log) = (Parser::default(), Log::default());
        let whole = match seed % 2 {
            0 => server_side(),
            _ => record(22, &message(1, &chrome())),
        };
        parser.data(&whole[..start.min(whole.len())], &mut log);
        for (is_gap, bytes) in &pieces {
            look(bytes);
            match is_gap {
                true => parser.gap(bytes.len() as u64, &mut log),
                false => parser.data(bytes, &mut log),
            }
        }
        parser.gap(u64::MAX, &mut log);
        parser.data(&whole, &mut log);
        Certificate::read(&pieces.concat_all());
    }

    #[test]
    fn what_the_fuzzer_asks_holds(
        start in prop::sample::select(vec![0, 60, 200, 2000]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let whole = [server_side(), record(22, &message(1, &chrome()))].concat();
        let pieces = whole[..start].chunks(63);
        let pieces = pieces.flat_map(|piece| [&[piece.len() as u8], piece].concat());
        let bytes: Vec<u8> = pieces.chain(bytes).collect();
        crate::fuzz::tls(&bytes);
    }

    #[test]
    fn changed_bytes_do_not_panic(changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..8)) {
        let mut bytes = server_side();
        bytes.extend(record(22, &message(1, &chrome())));
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        let whole = read(&[&bytes]);
        let cut: Vec<&[u8]> = bytes.chunks(13).collect();
        // A piece that begins like a record resumes what was lost: cuts matter behind a loss only.
        if !whole.contains(&"lost".to_owned()) {
            prop_assert_eq!(read(&cut), whole);
        }
    }
}

trait ConcatAll {
    fn concat_all(&self) -> Vec<u8>;
}

impl ConcatAll for Vec<(bool, Vec<u8>)> {
    fn concat_all(&self) -> Vec<u8> {
        self.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }
}
