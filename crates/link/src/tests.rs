//! Peers with a certificate that say nonsense: each loses its connection, and nobody else notices.

#![allow(clippy::unwrap_used, clippy::panic)] // tests

use std::time::{Duration, Instant};

use crate::client;
use crate::error::Error;
use crate::frame::{Opening, VERSION};
use crate::identity::{Identity, KeyFolder};
use crate::listener::Listener;
use crate::message::{Conversation, Responder};
use crate::reception::Event;
use crate::secure::Secured;
use crate::sender::{Sender, SenderOptions};
use crate::{ListenerOptions, Sent};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// Connections at once: fewer than one address may begin.
const AT_ONCE: usize = 8;
/// The longest frame of the listeners here.
const MOST: usize = 100_000;

fn keys() -> (tempfile::TempDir, Identity, Identity) {
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyFolder::new(folder.path());
    keys.create_authority().unwrap();
    let identity = |name| {
        keys.add(name, &["127.0.0.1".to_owned()], 1).unwrap();
        keys.identity(Some(name)).unwrap()
    };
    let (collector, sensor) = (identity("collector"), identity("sensor1"));
    (folder, collector, sensor)
}

fn options() -> ListenerOptions {
    ListenerOptions {
        silence: Duration::from_millis(500),
        max_frame: MOST,
        ..ListenerOptions::new("127.0.0.1:0")
    }
}

fn open(identity: &Identity, address: &str, service: &str, session: u8) -> Secured {
    let opening = Opening {
        versions: (VERSION, VERSION),
        service: service.to_owned(),
        session: [session; 16],
        acknowledged: 0,
        is_left: false,
    };
    client::open(identity, address, None, LONG, &opening)
        .unwrap()
        .0
}

/// Reads on until the other side has closed the connection.
fn wait_for_close(secured: &mut Secured) {
    let deadline = Instant::now() + LONG;
    while secured.reader.read_exact(&mut [0], deadline).is_ok() {}
    assert!(Instant::now() < deadline, "it was not closed");
}

/// Frames that no peer sends that means well.
fn nonsense() -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let frame = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes(), bytes].concat();
    let mut all = vec![
        // Longer than may be; nothing in it; of a kind that does not exist.
        (MOST as u32 + 1).to_le_bytes().to_vec(),
        u32::MAX.to_le_bytes().to_vec(),
        frame(&[]),
        frame(&[99; 40]),
        // Items that were acknowledged long ago, and as many as there can be; the end before the beginning.
        frame(&[[1; 9].as_slice(), &[0xff; 12]].concat()),
        frame(&[[1].as_slice(), &u64::MAX.to_le_bytes(), &[0xff; 12], b"x"].concat()),
        frame(&[[5].as_slice(), &u64::MAX.to_le_bytes()].concat()),
        // Half a frame.
        frame(&[1; 1000])[..500].to_vec(),
    ];
    for _ in 0..40 {
        let length = random() % 300;
        let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        if random() % 2 == 0 {
            // As a frame, of a kind that exists.
            if let Some(kind) = bytes.first_mut() {
                *kind %= 8;
            }
            bytes = frame(&bytes);
        }
        all.push(bytes);
    }
    all
}

#[test]
fn who_does_not_say_that_it_speaks_this_is_refused() {
    let (_folder, collector, sensor) = keys();
    let opening = Opening {
        versions: (VERSION, VERSION),
        service: "items".to_owned(),
        session: [1; 16],
        acknowledged: 0,
        is_left: false,
    };
    let connect = |listener: &Listener, identity: &Identity| {
        let address = listener.local_address().to_string();
        client::open(identity, &address, None, LONG, &opening).map(drop)
    };
    let listener = Listener::bind(&collector, options()).unwrap();
    connect(&listener, &sensor).unwrap();
    let refused = connect(&listener, &sensor.without_protocol()).unwrap_err();
    assert!(refused.to_string().contains("ALPN"), "{refused}");
    // The other way round: a listener that takes whatever is spoken.
    let other = Listener::bind(&collector.without_protocol(), options()).unwrap();
    let refused = connect(&other, &sensor).unwrap_err();
    assert!(refused.to_string().contains("ALPN"), "{refused}");
}

/// The listener looks, too: to who speaks something else its opening gets no answer.
#[test]
fn a_listener_does_not_answer_who_speaks_something_else() {
    use std::io::{Read as _, Write as _};
    let (_folder, collector, sensor) = keys();
    let listener = Listener::bind(&collector, options()).unwrap();
    let mut opening = [b"FGLK".as_slice(), &[1, 0, 1, 0, 5], b"items"].concat();
    opening.extend([7; 16 + 8]);
    let heard = |identity: &Identity| {
        let mut tcp = std::net::TcpStream::connect(listener.local_address()).unwrap();
        tcp.set_read_timeout(Some(LONG)).unwrap();
        let name = rustls::pki_types::ServerName::try_from("collector").unwrap();
        let mut tls = rustls::ClientConnection::new(identity.client.clone(), name).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
        let length = (opening.len() as u32).to_le_bytes();
        // It may be gone before this is sent.
        let _ = stream.write_all(&[&length, opening.as_slice()].concat());
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).is_ok() && answer[4..] == *b"FGLK"
    };
    assert!(heard(&sensor));
    assert!(!heard(&sensor.without_protocol()));
}

#[test]
fn an_input_survives_whatever_a_known_peer_sends() {
    let (_folder, collector, sensor) = keys();
    let listener = Listener::bind(&collector, options()).unwrap();
    let address = listener.local_address().to_string();
    for (first, some) in (0..).step_by(AT_ONCE).zip(nonsense().chunks(AT_ONCE)) {
        std::thread::scope(|scope| {
            for (number, bytes) in (first..).zip(some) {
                let (address, sensor) = (&address, &sensor);
                scope.spawn(move || {
                    let mut secured = open(sensor, address, "items", number);
                    let _ = secured.writer.write(&[bytes]);
                    wait_for_close(&mut secured);
                });
            }
        });
        // What it made of it does not matter; it may not fill its queues.
        while let Some(event) = listener.next(Duration::ZERO) {
            drop(event);
        }
    }
    let sender = Sender::start(&sensor, SenderOptions::new(address)).unwrap();
    let session = std::thread::spawn(move || {
        for frame in 0..50_u64 {
            let sent = sender.send(vec![7; 100], 10, frame).unwrap();
            assert_eq!(sent, Sent::Spooled);
        }
        sender.finish(LONG)
    });
    let mut items = 0;
    while items < 500 {
        match listener.next(LONG).expect("something comes") {
            Event::Items(frame) if frame.payload.as_slice() == [7; 100] => {
                items += u64::from(frame.count);
                frame.done();
            }
            event => drop(event),
        }
    }
    let mut events = std::iter::from_fn(|| listener.next(LONG));
    assert!(events.any(|event| match event {
        Event::Ended(end) => {
            end.done();
            true
        }
        _ => false,
    }));
    let counts = session.join().unwrap();
    assert_eq!((counts.delivered, counts.lost), (500, 0));
}

#[test]
fn a_frame_that_trickles_in_is_not_waited_for() {
    let (_folder, collector, sensor) = keys();
    let listener = Listener::bind(&collector, options()).unwrap();
    let mut slow = open(&sensor, &listener.local_address().to_string(), "items", 1);
    slow.writer.write(&[&(MOST as u32).to_le_bytes()]).unwrap();
    let deadline = Instant::now() + LONG;
    // A byte whenever nothing was heard for a while: each alone is no silence.
    while slow.writer.write(&[&[0]]).is_ok() {
        assert!(Instant::now() < deadline, "it was not closed");
        let pause = Instant::now() + Duration::from_millis(50);
        let heard = slow.reader.read_exact(&mut [0], pause);
        if heard.is_err_and(|error| error.is_closed()) {
            break;
        }
    }
}

#[test]
fn an_agent_survives_whatever_a_known_peer_sends() {
    let (_folder, collector, sensor) = keys();
    let responder = Responder::bind(&collector, "echo", options(), |conversation| {
        while let Ok(Some(message)) = conversation.receive() {
            if conversation.send(&message).is_err() {
                break;
            }
        }
    });
    let responder = responder.unwrap();
    let address = responder.local_address().to_string();
    for some in nonsense().chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            for bytes in some {
                let (address, sensor) = (&address, &sensor);
                scope.spawn(move || {
                    let mut secured = open(sensor, address, "echo", 0);
                    let _ = secured.writer.write(&[bytes]);
                    wait_for_close(&mut secured);
                });
            }
        });
    }
    let open = || Conversation::open(&sensor, "echo", &address, None, LONG).unwrap();
    // (One that stands still for longer than the responder bears silence is closed, too.)
    let is_answered = (0..20).any(|_| {
        let mut one = open();
        one.send(b"hello").is_ok()
            && matches!(one.receive(), Ok(Some(answer)) if answer == b"hello")
    });
    assert!(is_answered);
    let one = open();
    let too_long = one.send(&vec![0; MOST]);
    assert!(matches!(too_long, Err(Error::TooLarge { .. })));
}
