//! A client's messages to its service.
//!
//! A client that handles events must not wait for room in the socket, as the service may be waiting for the client
//! to consume events. Messages that do not fit stay here, in order, until there is room.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use flowgauge_sensor_client::programs::StreamCommand;
use flowgauge_sensor_client::protocol::{self, Request};
use flowgauge_sys::local::Connection;

/// Bytes that may stay: some sixty thousand commands.
const MOST_BYTES: usize = 2 << 20;
/// Bytes of commands that go in one message.
const MESSAGE: usize = 16 << 10;
/// [`Request::Streams`], before the commands and behind them: they are appended while it waits.
const COMMANDS: (&[u8], &[u8]) = (br#"{"do":"streams","commands":["#, b"]}");

/// A connection, and what waits for room in it.
#[derive(Debug)]
pub(super) struct Outbox {
    connection: Arc<Connection>,
    waiting: RefCell<Waiting>,
    /// Requests and commands that were not sent.
    unsent: Cell<u64>,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Message>,
    bytes: usize,
}

#[derive(Debug)]
struct Message {
    content: Vec<u8>,
    /// Commands in it; 0 when it is something else.
    commands: u64,
}

impl Outbox {
    pub(super) fn new(connection: Arc<Connection>) -> Outbox {
        Outbox {
            connection,
            waiting: RefCell::default(),
            unsent: Cell::default(),
        }
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Says something, behind what waits. What finds no room here is counted.
    pub(super) fn send(&self, request: &Request) {
        let mut waiting = self.waiting.borrow_mut();
        let encoded = serde_json::to_vec(request).unwrap_or_default();
        let is_last = matches!(request, Request::Leave);
        if is_last || self.has_room(&waiting, encoded.len()) {
            waiting.bytes += encoded.len();
            let messages = protocol::parts(&encoded).into_iter();
            waiting.messages.extend(messages.map(|content| Message {
                content,
                commands: 0,
            }));
        }
        self.deliver(&mut waiting);
    }

    /// Asks for something for a stream, behind what waits. What finds no room here is counted.
    pub(super) fn command(&self, uid: u64, command: StreamCommand) {
        let mut waiting = self.waiting.borrow_mut();
        let Waiting { messages, bytes } = &mut *waiting;
        if *bytes >= MOST_BYTES {
            self.give_up(1);
            return self.deliver(&mut waiting);
        }
        let last = messages.pop_back();
        let mut last = match last {
            Some(last) if last.commands > 0 && last.content.len() < MESSAGE => last,
            other => {
                messages.extend(other);
                Message {
                    content: COMMANDS.0.to_vec(),
                    commands: 0,
                }
            }
        };
        let before = last.content.len();
        if last.commands > 0 {
            last.content.push(b',');
        }
        // Into memory nothing fails.
        let _ = serde_json::to_writer(&mut last.content, &(uid, command));
        last.commands += 1;
        *bytes += last.content.len() - before;
        messages.push_back(last);
        self.deliver(&mut waiting);
    }

    /// Sends what waits, as far as there is room now. Whether something still waits.
    pub(super) fn push(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        self.deliver(&mut waiting);
        !waiting.messages.is_empty()
    }

    /// Waits until there is something to receive, or room for what waits here, at most so long. False when there is
    /// neither.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        match self.push() {
            true => self.connection.wait_for_room(limit),
            false => self.connection.wait(limit),
        }
    }

    /// Requests and commands that were not sent: the service was too slow to hear them.
    pub(super) fn unsent(&self) -> u64 {
        self.unsent.get()
    }

    /// Counts what cannot be sent, for whatever reason.
    pub(super) fn give_up(&self, requests: u64) {
        self.unsent.set(self.unsent.get() + requests);
    }

    fn has_room(&self, waiting: &Waiting, bytes: usize) -> bool {
        let has_room = waiting.bytes + bytes <= MOST_BYTES;
        if !has_room {
            self.give_up(1);
        }
        has_room
    }

    fn deliver(&self, waiting: &mut Waiting) {
        while let Some(message) = waiting.messages.front_mut() {
            let len = message.content.len();
            if message.commands > 0 {
                message.content.extend_from_slice(COMMANDS.1);
            }
            match self.connection.send(&message.content) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    message.content.truncate(len);
                    return;
                }
                Ok(()) => {}
                // To whom is gone nothing can be said; who waits for events hears of it.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(_) => self.give_up(message.commands.max(1)),
            }
            let sent = waiting.messages.pop_front();
            let bytes = sent.map_or(0, |sent| sent.content.len());
            waiting.bytes = waiting.bytes.saturating_sub(bytes);
        }
        waiting.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All commands that have arrived, and how many messages they were.
    fn received(connection: &Connection) -> (Vec<(u64, StreamCommand)>, usize) {
        let (mut all, mut messages) = (Vec::new(), 0);
        let mut message = vec![0; MESSAGE + 64];
        while let Ok(len) = connection.receive(&mut message) {
            messages += 1;
            match serde_json::from_slice(&message[..len]).unwrap() {
                Request::Streams { commands } => all.extend(commands),
                other => panic!("{other:?}"),
            }
        }
        (all, messages)
    }

    #[test]
    fn what_finds_no_room_waits_in_order_and_what_is_too_much_is_counted() {
        let (own, service) = Connection::pair().unwrap();
        let outbox = Outbox::new(Arc::new(own));
        let mut asked = Vec::new();
        for uid in 0.. {
            let command = StreamCommand::Cutoff(uid);
            outbox.command(uid, command);
            if outbox.unsent() > 0 {
                break;
            }
            asked.push((uid, command));
        }
        assert!(asked.len() > 50_000, "{}", asked.len());
        assert!(!outbox.wait(Some(Duration::ZERO)).unwrap());
        let (mut got, mut messages) = received(&service);
        assert!(got.len() < 1000, "{}", got.len());
        assert!(
            outbox
                .connection()
                .wait_for_room(Some(Duration::ZERO))
                .unwrap()
        );
        loop {
            let waits = outbox.push();
            let (more, count) = received(&service);
            got.extend(more);
            messages += count;
            if !waits {
                break;
            }
        }
        assert_eq!(got, asked);
        assert_eq!(outbox.unsent(), 1);
        assert!(messages < 2000, "{messages}");
        // There is room again.
        outbox.command(7, StreamCommand::Discard);
        assert_eq!(received(&service).0, [(7, StreamCommand::Discard)]);
        assert_eq!(outbox.unsent(), 1);
    }

    #[test]
    fn who_is_gone_is_told_nothing() {
        let (own, service) = Connection::pair().unwrap();
        let outbox = Outbox::new(Arc::new(own));
        outbox.command(1, StreamCommand::Discard);
        drop(service);
        outbox.command(2, StreamCommand::Discard);
        outbox.send(&Request::Leave);
        assert!(!outbox.push());
        assert_eq!(outbox.unsent(), 0);
    }
}
