//! SSH in whatever pieces it comes.

use flowgauge_proto::Look;
use flowgauge_proto::ssh::{Events, Offer, Parser, agreed, key_fingerprint, look};

use crate::fuzz;
use proptest::prelude::*;

#[derive(Debug, Default)]
struct Log(Vec<String>);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Events for Log {
    fn banner(&mut self, line: &[u8]) {
        self.0.push(text(line));
    }

    fn offer(&mut self, offer: &Offer<'_>) {
        let cipher = agreed(offer.ciphers[0], b"c,b").map(text);
        self.0.push(format!(
            "{} {cipher:?} {}",
            text(offer.exchange),
            offer.hassh(true)
        ));
    }

    fn host_key(&mut self, key: &[u8]) {
        self.0.push(format!("key of {}", key.len()));
    }

    fn new_keys(&mut self) {
        self.0.push("new keys".to_owned());
    }

    fn lost(&mut self) {
        self.0.push("lost".to_owned());
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() + 2 + 5) as u32;
    [&length.to_be_bytes(), [5, kind].as_slice(), body, &[0; 5]].concat()
}

fn server() -> Vec<u8> {
    let mut offer = vec![7; 16];
    for list in [
        "kex1,kex2",
        "ssh-rsa",
        "a,b,c",
        "c",
        "m",
        "n",
        "none",
        "zlib",
        "",
        "",
    ] {
        offer.extend(string(list.as_bytes()));
    }
    offer.extend([0; 5]);
    let key = [string(b"ssh-ed25519"), string(&[9; 32])].concat();
    [
        b"Welcome\r\nto all\r\nSSH-2.0-Test_1.0 a comment\r\n".to_vec(),
        packet(20, &offer),
        packet(31, &[string(&[0xff; 20]), string(&[1; 40])].concat()),
        packet(1, &[0; 300]),
        packet(33, &[string(&key), string(&[1; 40])].concat()),
        packet(21, &[]),
        vec![0xee; 100],
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

#[test]
fn a_server_is_read_at_any_cut() {
    let bytes = server();
    // MD5 of `kex1,kex2;a,b,c;m;none`.
    let expected = [
        "SSH-2.0-Test_1.0 a comment",
        "kex1,kex2 Some(\"b\") HASSH",
        "key of 51",
        "new keys",
    ];
    let mut expected = expected.map(str::to_owned);
    let offer = Offer {
        exchange: b"kex1,kex2",
        ciphers: [b"a,b,c", b"c"],
        codes: [b"m", b"n"],
        compressions: [b"none", b"zlib"],
        ..Offer::default()
    };
    expected[1] = expected[1].replace("HASSH", &offer.hassh(true));
    assert_ne!(offer.hassh(true), offer.hassh(false));
    for cut in 0..bytes.len() {
        let (one, other) = bytes.split_at(cut);
        assert_eq!(read(&[one, other]), expected, "{cut}");
    }
    assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()), expected);
    // With a hole before the keys it is lost, within what is passed over or behind them not.
    for start in 0..bytes.len() - 20 {
        let (mut parser, mut log) = (Parser::default(), Log::default());
        parser.data(&bytes[..start], &mut log);
        parser.gap(20, &mut log);
        parser.data(&bytes[start + 20..], &mut log);
        let is_said = log.0.iter().any(|line| line == "lost");
        assert!(is_said || log.0 == expected, "{start} {:?}", log.0);
    }
}

#[test]
fn fingerprints_of_keys_are_in_base64() {
    // SHA-256 of `abc` in base64.
    assert_eq!(
        key_fingerprint(b"abc"),
        "SHA256:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0"
    );
}

#[test]
fn what_is_no_ssh_is_given_up() {
    assert_eq!(look(b"SSH"), Look::More);
    assert_eq!(look(b"SSH-2.0-x"), Look::Yes);
    assert_eq!(look(b"GET /"), Look::No);
    assert_eq!(read(&[&[b'x'; 3000]]), ["lost"]);
    assert_eq!(read(&[b"SSH-1.5-old\n\0\0\0\x05"]), ["SSH-1.5-old"]);
    assert_eq!(
        read(&[b"SSH-2.0-x\n\xff\xff\xff\xff\xff\xff"]),
        ["SSH-2.0-x", "lost"]
    );
}

proptest! {
    #[test]
    fn nothing_panics(
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..8),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut whole = server();
        for (place, byte) in changes {
            let place = place % whole.len();
            whole[place] = byte;
        }
        read(&whole.chunks(11).collect::<Vec<_>>());
        let pieces = whole.chunks(63).flat_map(|piece| [&[piece.len() as u8], piece].concat());
        fuzz::ssh(&pieces.chain(bytes).collect::<Vec<_>>());
    }
}
