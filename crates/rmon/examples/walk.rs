//! A master of AgentX that measures a subagent: walks all of RMON, by GetBulk, and prints how fast.
//!
//! `walk SOCKET [REPETITIONS]`, then `flowgauge rmon --agentx SOCKET ...`: with 1 repetition as `snmpd` does.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for measuring"
)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use flowgauge_rmon::Oid;
use flowgauge_rmon::agentx::{Bound, HEADER, Header, Message, Pdu, Range, Response};

struct Master {
    stream: UnixStream,
    input: Vec<u8>,
    packet: u32,
}

impl Master {
    fn receive(&mut self) -> Message {
        let mut buffer = vec![0; 1 << 16];
        loop {
            if let Some(header) = Header::read(&self.input).unwrap() {
                let end = HEADER + header.length;
                if let Some(payload) = self.input.get(HEADER..end) {
                    let message = header.contents(payload).unwrap();
                    self.input.drain(..end);
                    return message;
                }
            }
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the subagent hung up");
            self.input.extend_from_slice(&buffer[..length]);
        }
    }

    fn send(&mut self, message: &Message) {
        let mut octets = Vec::new();
        message.write(&mut octets);
        self.stream.write_all(&octets).unwrap();
    }

    /// The next response. What the subagent asks for meanwhile, it gets.
    fn response(&mut self) -> Response {
        loop {
            let asked = self.receive();
            if let Pdu::Response(response) = asked.pdu {
                return response;
            }
            let pdu = Pdu::Response(Response::default());
            self.send(&Message {
                session: 1,
                context: None,
                pdu,
                ..asked
            });
        }
    }

    fn bulk(&mut self, start: Oid, repetitions: u16) -> Response {
        self.packet += 1;
        let ranges = vec![Range {
            start,
            include: false,
            end: Oid::default(),
        }];
        let pdu = Pdu::GetBulk {
            non_repeaters: 0,
            max_repetitions: repetitions,
            ranges,
        };
        let packet = self.packet;
        self.send(&Message {
            session: 1,
            transaction: packet,
            packet,
            flags: 0,
            context: None,
            pdu,
        });
        self.response()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the path of a socket to be made");
    let repetitions = arguments.next().map_or(100, |text| text.parse().unwrap());
    let listener = UnixListener::bind(path).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut master = Master {
        stream,
        input: Vec::new(),
        packet: 0,
    };
    let root: Oid = "1.3.6.1.2.1.16".parse().unwrap();
    // It opens its session, and registers what it has.
    while master.bulk(root.clone(), 1).error != 0 {}
    loop {
        // When the tables of a file are complete, a walk is begun by a line on standard input.
        if std::io::stdin().read_line(&mut String::new()).unwrap() == 0 {
            return;
        }
        let began = Instant::now();
        let (mut at, mut variables) = (root.clone(), 0_u64);
        loop {
            let response = master.bulk(at.clone(), repetitions);
            let mut found = response.bindings.iter().filter(|it| it.bound != Bound::End);
            variables += found.clone().count() as u64;
            match found.next_back() {
                Some(last) => at.clone_from(&last.name),
                None => break,
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{variables} variables, {seconds:.3} s, {:.0}/s",
            variables as f64 / seconds
        );
    }
}
