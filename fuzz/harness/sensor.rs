//! Any bytes as what users and the sensor say to each other.

use std::io;
use std::path::Path;
use std::time::Duration;

use flowgauge_sensor_client::programs::StreamCommand;
use flowgauge_sensor_client::protocol::{Answer, Request, Secret, receive_answer, send};
use flowgauge_sensor_client::{Client, ClientError};
use flowgauge_sys::local::{Connection, Listener};

/// How long an answer may take before the other end hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What requests are made of.
const WORDS: &[&str] = &[
    "count",
    "bytes",
    "filter { tcp port 80 }",
    "filter {",
    "to_buffer",
    "mix",
    "file+1",
    "nix",
    "bucket { of = count }",
    "fd:0",
    "output { file = fd:0 }",
    "top { by = ip.src, count = 10 }",
    "<",
    ">",
    "-",
    "",
    "\0",
    "flows",
    "sample { value = 3 }",
    "headers",
    "distribution { of = bytes, min = 0, max = 9, interval = 1 }",
];

/// Takes bytes for choices.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn words(&mut self) -> String {
        let count = self.next() % 4;
        let words = (0..count).map(|_| WORDS[usize::from(self.next()) % WORDS.len()]);
        words.collect::<Vec<_>>().join(" ")
    }

    fn request(&mut self) -> Request {
        let flow = u64::from(self.next() % 8);
        match self.next() % 12 {
            0 => Request::Status {
                shared: self.next().is_multiple_of(2),
            },
            1 => Request::Check {
                device: self.words(),
                stack: self.words(),
            },
            2 | 3 => Request::Open {
                device: "mix".to_owned(),
                stack: self.words(),
            },
            4 => Request::Results {
                flow,
                take: self.next().is_multiple_of(2).then(|| self.words()),
            },
            5 => Request::Close { flow },
            6 => Request::Bring {
                credential: Secret::new(self.words()),
            },
            7 => Request::Explain {
                device: self.words(),
                stack: self.words(),
            },
            8 => Request::Leave,
            9 => Request::Streams {
                commands: vec![(flow, StreamCommand::Discard)],
            },
            10 => Request::DeleteDevice {
                device: self.words(),
            },
            _ => Request::Start {
                device: self.words(),
            },
        }
    }
}

/// Sends requests made of any bytes, damaged ones among them, to a sensor with a device `mix`. Each gets an answer. Returns how
/// many were not refused.
pub(crate) fn fuzz_requests(socket: &Path, data: &[u8]) -> u64 {
    let connection = Connection::connect(&socket.to_string_lossy()).expect("it is there");
    let mut choices = Choices(data);
    let mut done = 0;
    while !choices.0.is_empty() {
        let mut message = serde_json::to_vec(&choices.request()).expect("it is JSON");
        let damage = choices.next();
        if damage >= 192 {
            let at = usize::from(choices.next()) % message.len();
            message[at] ^= choices.next();
        } else if damage >= 160 {
            message.truncate(usize::from(choices.next()) % message.len());
        }
        // The first part of a request is not answered.
        if message.is_empty() || message.starts_with(b"+") {
            continue;
        }
        send(&connection, &message, &[]).expect("there is room");
        let answer = receive_answer(&connection, PATIENCE);
        let (answer, _) = answer.expect("there is an answer to each request");
        done += u64::from(!matches!(answer, Answer::Refused(_)));
    }
    done
}

/// Answers each request of a client with any bytes: parts of answers, which each begin with their length.
pub(crate) fn fuzz_answers(socket: &Path, data: &[u8]) {
    let listener = Listener::bind_path(socket, None).expect("the name is free");
    let parts = data.to_vec();
    let sensor = std::thread::spawn(move || -> io::Result<()> {
        let _ =
            flowgauge_sys::local::wait_any(&[std::os::fd::AsFd::as_fd(&listener)], Some(PATIENCE));
        let connection = listener.accept()?.ok_or(io::ErrorKind::NotFound)?;
        let mut left = &parts[..];
        let mut request = vec![0; 64 << 10];
        while let Some((len, rest)) = left.split_first() {
            let (part, rest) = rest.split_at(usize::from(*len).min(rest.len()));
            left = rest;
            if !part.is_empty() {
                connection.send(part)?;
            }
            // A request, if one has come.
            let _ = connection.receive(&mut request);
        }
        Ok(())
    });
    let client = Client::connect(socket).expect("somebody listens");
    for round in 0..8 {
        let gone = match round % 4 {
            0 => client.status().map(drop),
            1 => client.open("mix", "count", &[]).map(drop),
            2 => client.results(1).map(drop),
            _ => client.reload().map(drop),
        };
        if matches!(gone, Err(ClientError::Gone(_))) {
            break;
        }
    }
    drop(client);
    let _ = sensor.join().expect("it does not panic");
    let _ = flowgauge_sys::local::free_path(socket);
}
