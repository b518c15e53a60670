//! Connections made here, with keys as the RFC derives them.

use proptest::prelude::*;

use super::keys::{Keys, Secret};
use super::{Events, Kind, Packet, Parser, Version, look};
use crate::Look;
use crate::tls::{self, ClientHello, ServerHello};

#[derive(Debug, Default, PartialEq, Eq)]
struct Log(Vec<String>);

impl tls::Events for Log {
    fn client_hello(&mut self, hello: &ClientHello<'_>) {
        let name = hello.server_name().unwrap_or_default();
        self.0
            .push(format!("client {}", String::from_utf8_lossy(name)));
    }

    fn server_hello(&mut self, hello: &ServerHello<'_>) {
        self.0.push(format!("server {:04x}", hello.cipher));
    }

    fn lost(&mut self) {
        self.0.push("lost".to_owned());
    }
}

impl Events for Log {
    fn packet(&mut self, packet: &Packet<'_>) {
        if packet.kind != Kind::Initial || packet.opened.is_none() {
            self.0
                .push(format!("{:?} {:?}", packet.kind, packet.opened));
        }
    }
}

fn client_hello() -> Vec<u8> {
    let mut hello = vec![1, 0, 0, 0, 3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0, 0, 0]);
    let mut extensions = vec![0, 0, 0, 9, 0, 7, 0, 0, 4];
    extensions.extend(*b"name");
    // Padding.
    extensions.extend([0, 21, 2, 0]);
    extensions.extend([0; 512]);
    let at = hello.len() - 2;
    hello[at..].copy_from_slice(&(extensions.len() as u16).to_be_bytes());
    hello.extend(extensions);
    let length = (hello.len() - 4) as u16;
    hello[2..4].copy_from_slice(&length.to_be_bytes());
    hello
}

fn server_hello() -> Vec<u8> {
    let mut hello = vec![2, 0, 0, 40, 3, 3];
    hello.extend([8; 32]);
    hello.extend([0, 0x13, 1, 0, 0, 0]);
    hello
}

fn crypto(place: usize, bytes: &[u8]) -> Vec<u8> {
    let number = |number: usize| (0x4000 | number as u16).to_be_bytes();
    let parts: [&[u8]; 4] = [&[6], &number(place), &number(bytes.len()), bytes];
    parts.concat()
}

/// An Initial packet with these frames, padded to 1,200 bytes.
fn initial(version: u32, keys: &Keys, ids: [&[u8]; 2], number: u8, frames: &[u8]) -> Vec<u8> {
    let first = if version == 0x6b33_43cf { 0xd0 } else { 0xc0 };
    let mut header = vec![first];
    header.extend(version.to_be_bytes());
    for id in ids {
        header.push(id.len() as u8);
        header.extend(id);
    }
    header.push(0);
    let mut payload = frames.to_vec();
    payload.resize(1200, 0);
    header.extend((0x4000 | (payload.len() + 17) as u16).to_be_bytes());
    header.push(number);
    keys.seal(&header, &payload)
}

const ID: &[u8] = b"firstone";
const CLIENT: &[u8] = b"";
const SERVER: &[u8] = b"srv";

/// Two packets of the client, of which the second begins the hello, and the server's.
fn connection(version: u32, id: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let secret = Secret::initial(Version(version), id).expect("a known version");
    let [client, server] = [true, false].map(|is_client| secret.keys(is_client).expect("keys"));
    let hello = client_hello();
    let crypto = |place, bytes| {
        let mut frame = crypto(place, bytes);
        frame[0] = if Version(version).is_google() { 8 } else { 6 };
        frame
    };
    let late = [
        &[1],
        crypto(400, &hello[400..]).as_slice(),
        &crypto(100, &hello[100..300]),
    ]
    .concat();
    let early = [crypto(300, &hello[300..400]), crypto(0, &hello[..120])].concat();
    let answer = [&[2, 1, 0, 0, 1], crypto(0, &server_hello()).as_slice()].concat();
    let mut handshake = initial(version, &server, [CLIENT, SERVER], 0, &answer);
    // Behind it a Handshake packet, and one with a short header.
    handshake.push(if version == 0x6b33_43cf { 0xf0 } else { 0xe0 });
    handshake.extend(version.to_be_bytes());
    handshake.extend([0, 3]);
    handshake.extend(SERVER);
    handshake.extend([4, 9, 9, 9, 9, 0x41, 0]);
    vec![
        (true, initial(version, &client, [id, CLIENT], 0, &late)),
        (true, initial(version, &client, [id, CLIENT], 1, &early)),
        (false, handshake),
    ]
}

fn read(datagrams: &[(bool, Vec<u8>)]) -> Vec<String> {
    let (mut parser, mut log) = (Parser::default(), Log::default());
    for (from_initiator, datagram) in datagrams {
        parser.datagram(*from_initiator, datagram, &mut log);
    }
    log.0
}

#[test]
fn hellos_in_pieces_are_found_whoever_opened_the_flow() {
    for version in [
        1,
        0x6b33_43cf,
        0xff00_001d,
        0xff00_001b,
        0xface_b002,
        0x5430_3531,
    ] {
        let mut all = connection(version, ID);
        let expected = ["client name", "server 1301", "Handshake None"];
        assert_eq!(read(&all), expected, "{version:x}");
        assert_eq!(look(&all[0].1), Look::Yes);
        for (from_initiator, _) in &mut all {
            *from_initiator = !*from_initiator;
        }
        assert_eq!(read(&all), expected, "{version:x}");
        all.swap(0, 1);
        assert_eq!(read(&all), expected, "{version:x}");
    }
}

#[test]
fn without_the_clients_packets_nothing_can_be_opened() {
    let all = connection(1, ID);
    assert_eq!(read(&all[2..]), ["Initial None", "Handshake None"]);
    // A lost piece: the hello is not whole.
    assert_eq!(read(&all[1..]), ["server 1301", "Handshake None"]);
}

/// Wherever a datagram of the server is cut the client's hello is found; a missing one costs no hello but its own.
#[test]
fn a_datagram_that_is_cut_or_missing_costs_no_other() {
    let datagrams = connection(1, ID);
    let whole = read(&datagrams);
    let client = "client name".to_owned();
    assert!(whole.contains(&client), "{whole:?}");
    for (place, (from_initiator, bytes)) in datagrams.iter().enumerate() {
        for cut in 0..bytes.len() {
            let mut others = datagrams.clone();
            others[place].1.truncate(cut);
            let found = read(&others);
            if !from_initiator {
                assert!(found.contains(&client), "{place} cut at {cut}: {found:?}");
            }
            if cut == 0 {
                others.remove(place);
                let without = read(&others);
                let hellos = |log: &[String]| {
                    let is_hello =
                        |line: &&String| line.starts_with("client") || line.starts_with("server");
                    log.iter().filter(is_hello).count()
                };
                assert_eq!(hellos(&found), hellos(&without), "{place}");
            }
        }
    }
}

#[test]
fn behind_a_retry_keys_are_others() {
    let mut all = connection(1, ID)[..2].to_vec();
    let mut retry = vec![0xf0, 0, 0, 0, 1, 0, 4];
    retry.extend(*b"next");
    retry.extend([0xaa; 40]);
    all.push((false, retry));
    all.extend(connection(1, b"next"));
    assert_eq!(
        read(&all),
        ["client name", "Retry None", "server 1301", "Handshake None"]
    );
}

#[test]
fn a_server_can_answer_in_another_version() {
    let mut all = connection(1, ID);
    all[2] = connection(0x6b33_43cf, ID).remove(2);
    assert_eq!(read(&all), ["client name", "server 1301", "Handshake None"]);
}

#[test]
fn what_does_not_fit_is_given_up() {
    let mut datagram = connection(1, ID).remove(0).1;
    let last = datagram.len() - 1;
    datagram[last] ^= 1;
    let (mut parser, mut log) = (Parser::default(), Log::default());
    for _ in 0..100 {
        parser.datagram(true, &datagram, &mut log);
    }
    assert!(parser.is_done());
    for bytes in [
        b"".as_slice(),
        b"\x80",
        b"GET / HTTP/1.1\r\n",
        &[0xff; 1200],
    ] {
        assert_eq!(look(bytes), Look::No);
    }
}

proptest! {
    #[test]
    fn nothing_panics(
        changes in prop::collection::vec((0..3usize, any::<usize>(), any::<u8>()), 0..6),
        cut in any::<usize>(),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut all = connection(1, ID);
        for (datagram, place, byte) in changes {
            let datagram = &mut all[datagram].1;
            let place = place % datagram.len();
            datagram[place] = byte;
        }
        let place = cut % all[0].1.len();
        all[cut % 3].1.truncate(place);
        all.push((false, bytes));
        read(&all);
    }

    /// Frames of any kind, in packets that can be opened.
    #[test]
    fn frames_do_not_panic(frames in prop::collection::vec(any::<u8>(), 0..200)) {
        let client = Secret::initial(Version(1), ID).and_then(|it| it.keys(true)).expect("keys");
        read(&[(true, initial(1, &client, [ID, CLIENT], 0, &frames))]);
        crate::fuzz::quic(&frames);
    }
}
