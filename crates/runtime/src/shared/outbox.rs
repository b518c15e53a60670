//! What a client says to its service.
//!
//! Who takes events must not wait for room in the socket: the service may wait for these events. What finds no room
//! stays here, in order, until there is some.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use flowgauge_stream::engine::Command;
use flowgauge_sys::local::Connection;

use super::codec::Wire as _;
use super::protocol::{COMMANDS, Request};

/// Bytes that may stay: some sixty thousand commands.
const MOST_BYTES: usize = 1 << 20;
/// Bytes of commands that go in one message.
const MESSAGE: usize = 16 << 10;

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
        self.send_all(core::slice::from_ref(request));
    }

    /// Says several things, all or none of them.
    pub(super) fn send_all(&self, requests: &[Request]) {
        let mut waiting = self.waiting.borrow_mut();
        let messages: Vec<Vec<u8>> = requests.iter().map(Request::encoded).collect();
        let bytes = messages.iter().map(Vec::len).sum::<usize>();
        let is_last = matches!(requests, [Request::Leave]);
        if is_last || self.has_room(&waiting, bytes) {
            waiting.bytes += bytes;
            waiting
                .messages
                .extend(messages.into_iter().map(|content| Message {
                    content,
                    commands: 0,
                }));
        }
        self.deliver(&mut waiting);
    }

    /// Asks for something for a stream, behind what waits. What finds no room here is counted.
    pub(super) fn command(&self, uid: u64, command: Command) {
        let mut command_bytes = (uid, command).encoded();
        let mut waiting = self.waiting.borrow_mut();
        if self.has_room(&waiting, command_bytes.len()) {
            waiting.bytes += command_bytes.len();
            let last = waiting.messages.back_mut();
            match last.filter(|last| last.commands > 0 && last.content.len() < MESSAGE) {
                Some(last) => {
                    last.content.append(&mut command_bytes);
                    last.commands += 1;
                }
                None => {
                    command_bytes.insert(0, COMMANDS);
                    waiting.messages.push_back(Message {
                        content: command_bytes,
                        commands: 1,
                    });
                }
            }
        }
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
        while let Some(message) = waiting.messages.front() {
            match self.connection.send(&message.content) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
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
    use flowgauge_stream::engine::Cutoff;

    use super::*;

    /// All commands that have arrived, and how many messages they were.
    fn received(connection: &Connection) -> (Vec<(u64, Command)>, usize) {
        let (mut all, mut messages) = (Vec::new(), 0);
        let mut message = vec![0; MESSAGE + 64];
        while let Ok(len) = connection.receive(&mut message) {
            messages += 1;
            match Request::decoded(&message[..len]) {
                Some(Request::Commands(commands)) => all.extend(commands.0),
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
            let command = Command::SetCutoff(Cutoff(uid));
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
        outbox.command(7, Command::Discard);
        assert_eq!(received(&service).0, [(7, Command::Discard)]);
        assert_eq!(outbox.unsent(), 1);
    }

    #[test]
    fn who_is_gone_is_told_nothing() {
        let (own, service) = Connection::pair().unwrap();
        let outbox = Outbox::new(Arc::new(own));
        outbox.command(1, Command::Discard);
        drop(service);
        outbox.command(2, Command::Discard);
        outbox.send(&Request::Leave);
        assert!(!outbox.push());
        assert_eq!(outbox.unsent(), 0);
    }
}
