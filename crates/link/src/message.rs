//! Messages to and fro, for services that are asked and answer.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acceptor::{Acceptor, ListenerOptions, Service};
use crate::client;
use crate::error::Error;
use crate::frame::{Answer, Messages, Opening, VERSION, message_head};
use crate::identity::Identity;
use crate::secure::{Peer, Reader, Secured, Writer};

/// How long the other side may take to receive a message: who does not is disconnected.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest message to who connected.
const MOST_SENT: usize = 64 << 20;

/// A connection on which messages go to and fro.
pub struct Conversation {
    reader: Reader,
    sender: MessageSender,
    max_message: usize,
    silence: Duration,
    messages: Messages,
}

/// The half of a conversation that sends; whoever has a clone can.
#[derive(Clone)]
pub struct MessageSender {
    writer: Writer,
    max_message: usize,
}

impl MessageSender {
    /// Sends a message, whose parts are given one after the other.
    ///
    /// # Errors
    /// It is too long for the other side, or the connection is gone.
    pub fn send(&self, parts: &[&[u8]]) -> Result<(), Error> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes >= self.max_message {
            return Err(Error::TooLarge {
                bytes,
                most: self.max_message - 1,
            });
        }
        let head = message_head(bytes);
        let mut all = vec![&head[..]];
        all.extend_from_slice(parts);
        let deadline = Instant::now() + PATIENCE;
        let sent = self.writer.write_until(&all, Some(deadline));
        if sent.is_err() {
            // Half a message is none.
            self.writer.abort();
        }
        sent
    }

    /// Sends a message that says nothing but that this end is there, unless something is being sent at this moment. Who does not
    /// receive is not waited for.
    ///
    /// # Errors
    /// The connection is gone, or nothing more goes into it.
    pub fn send_alive(&self, message: &[u8]) -> Result<(), Error> {
        let sent = self
            .writer
            .write_if_idle(&[&message_head(message.len()), message]);
        if sent.is_err() {
            self.writer.abort();
        }
        sent
    }

    /// Ends the conversation, also for who waits in [`Conversation::receive`].
    pub fn close(&self) {
        self.writer.close();
    }
}

impl Conversation {
    /// Asks `address` for `service`, and makes sure that `peer` (else the host of the address) is there.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn open(
        identity: &Identity,
        service: &str,
        address: &str,
        peer: Option<&str>,
        timeout: Duration,
    ) -> Result<Conversation, Error> {
        let opening = Opening {
            versions: (VERSION, VERSION),
            service: service.to_owned(),
            session: [0; 16],
            acknowledged: 0,
            is_left: false,
        };
        let (secured, answer) = client::open(identity, address, peer, timeout, &opening)?;
        let most = answer.max_frame as usize;
        Ok(Conversation::new(secured, most, most, timeout))
    }

    fn new(secured: Secured, received: usize, sent: usize, silence: Duration) -> Conversation {
        Conversation {
            reader: secured.reader,
            sender: MessageSender {
                writer: secured.writer,
                max_message: sent,
            },
            max_message: received,
            silence,
            messages: Messages::default(),
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        self.reader.peer()
    }

    /// What sends while others receive.
    pub fn sender(&self) -> MessageSender {
        self.sender.clone()
    }

    /// How long [`Conversation::receive`] waits.
    pub fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
    }

    /// The longest message that is received; without this, as long as those that the other side receives.
    pub fn set_max_received(&mut self, bytes: usize) {
        self.max_message = bytes;
    }

    /// Sends a message.
    ///
    /// # Errors
    /// It is too long for the other side, or the connection is gone.
    pub fn send(&self, message: &[u8]) -> Result<(), Error> {
        self.sender.send(&[message])
    }

    /// The next message; `None`: the other side has closed the connection.
    ///
    /// # Errors
    /// None came in time, or the connection broke.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let deadline = Instant::now() + self.silence;
        loop {
            let received = match self.messages.next(&self.reader, self.max_message) {
                Ok(None) => self.reader.feed(deadline),
                Ok(Some(message)) => return Ok(Some(message)),
                Err(error) => Err(error),
            };
            match received {
                Ok(()) => {}
                Err(error) if error.is_closed() => return Ok(None),
                Err(error) => return Err(error.or_silent(self.silence)),
            }
        }
    }

    /// Gives `take` the messages that are there, of what the system has for it at the moment. An error: it is over, if only
    /// because `take` returned `false`.
    pub(crate) fn receive_ready(
        &mut self,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Error> {
        let mut is_first = true;
        loop {
            while let Some(message) = self.messages.next(&self.reader, self.max_message)? {
                if !take(&message) {
                    return Err(self.reader.closed());
                }
            }
            if !self.reader.feed_ready(is_first)? {
                return Ok(());
            }
            is_first = false;
        }
    }

    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.reader.socket()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.sender.close();
    }
}

/// Answers whoever connects, each on a thread of its own.
pub struct Responder {
    acceptor: Acceptor,
}

/// What is done with a conversation; it is over when this returns.
type Respond = dyn Fn(&mut Conversation) + Send + Sync;

struct Answering {
    service: &'static str,
    respond: Box<Respond>,
    silence: Duration,
    max_message: usize,
}

impl Service for Answering {
    fn name(&self) -> &'static str {
        self.service
    }

    fn serve(&self, secured: Secured, _: Opening, answer: Answer) -> Result<(), Error> {
        answer.write(&secured.writer)?;
        // What the other side receives at most it does not say.
        let mut conversation =
            Conversation::new(secured, self.max_message, MOST_SENT, self.silence);
        (self.respond)(&mut conversation);
        Ok(())
    }
}

impl Responder {
    /// Begins to listen for those who ask for `service`.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn bind(
        identity: &Identity,
        service: &'static str,
        options: ListenerOptions,
        respond: impl Fn(&mut Conversation) + Send + Sync + 'static,
    ) -> Result<Responder, Error> {
        let service = Arc::new(Answering {
            service,
            respond: Box::new(respond),
            silence: options.silence,
            max_message: options.max_frame,
        });
        Ok(Responder {
            acceptor: Acceptor::start(identity, options, service)?,
        })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.acceptor.local_address()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::identity::KeyFolder;

    #[test]
    fn what_is_asked_is_answered_and_a_panic_ends_one_conversation_only() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path());
        keys.create_authority().unwrap();
        let identity = |name| {
            keys.add(name, &["127.0.0.1".to_owned()], 1).unwrap();
            keys.identity(Some(name)).unwrap()
        };
        let options = ListenerOptions {
            most_connections: 2,
            ..ListenerOptions::new("127.0.0.1:0")
        };
        let responder = Responder::bind(&identity("agent"), "echo", options, |conversation| {
            while let Ok(Some(message)) = conversation.receive() {
                assert_ne!(message, b"panic");
                let name = conversation.peer().name.clone();
                conversation
                    .send(&[name.as_bytes(), &message].concat())
                    .unwrap();
            }
        });
        let responder = responder.unwrap();
        let (address, admin) = (responder.local_address().to_string(), identity("admin"));
        let wait = Duration::from_secs(30);
        // One that has just ended may still count.
        let until = Instant::now() + wait;
        let open = || loop {
            match Conversation::open(&admin, "echo", &address, None, wait) {
                Err(Error::Refused { .. }) if Instant::now() < until => thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        // More than are allowed at once, one after the other.
        for _ in 0..5 {
            let mut one = open();
            one.send(b" asks").unwrap();
            assert_eq!(one.receive().unwrap().unwrap(), b"admin asks");
            one.send(b"panic").unwrap();
            assert_eq!(one.receive().unwrap(), None);
        }
        let too_long = vec![0; 4 << 20];
        let one = open();
        assert!(matches!(one.send(&too_long), Err(Error::TooLarge { .. })));
    }
}
