//! What comes of senders, however it comes.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::listener::SessionCounts;
use crate::secure::Peer;

/// Where items come from: a [`crate::Listener`], or a broker between.
pub trait Reception: Send {
    /// The next of what senders do. `None`: nothing happened for `wait`.
    fn next(&mut self, wait: Duration) -> Option<Event>;

    /// How the items of all sessions fared.
    fn counts(&self) -> Vec<(SessionId, SessionCounts)>;

    /// Forgets a session that has no connection and of which nothing waits; returns how its items
    /// fared.
    fn forget(&mut self, session: SessionId) -> Option<SessionCounts>;

    /// Whether it is time for [`Reception::settle`].
    fn is_due(&self) -> bool {
        false
    }

    /// What is [done](ReceivedItems::done) would outlive this process: it need not come again.
    ///
    /// # Errors
    /// It will come again.
    fn settle(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether nothing will come any more.
    fn is_over(&self) -> bool {
        false
    }
}

/// Whom to tell that something was processed.
pub trait Receipt: Send + fmt::Debug {
    /// All items before this one were, and the end of the session, if it is one.
    fn give(&mut self, processed: u64, is_end: bool);
}

/// A session, by its number in a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// What senders do.
#[derive(Debug)]
pub enum Event {
    /// A sender is here, or here again.
    Joined {
        /// Which.
        session: SessionId,
        /// Who.
        peer: Peer,
        /// Items that another listener had acknowledged: this one was started anew while the
        /// session went on.
        before: u64,
        /// Another process of the sender began the session and left it: one that is there has a session
        /// of its own, too.
        is_left: bool,
    },
    /// What later items refer to.
    Announced {
        /// Whose.
        session: SessionId,
        /// Numbered from 0, without holes.
        number: u32,
        /// What the sender gave.
        payload: Vec<u8>,
    },
    /// Items.
    Items(ReceivedItems),
    /// No item that follows in the session is of a time before this one.
    Time {
        /// Whose.
        session: SessionId,
        /// The time.
        watermark: u64,
    },
    /// The connection is gone. The sender may come back.
    Left {
        /// Whose.
        session: SessionId,
        /// Why.
        error: Error,
    },
    /// All items of a session were received or are lost.
    Ended(EndOfSession),
}

/// Items of a sender. They count as received when [`ReceivedItems::done`] is called: those that were
/// not when this program ends are sent again to the next one.
#[derive(Debug)]
pub struct ReceivedItems {
    /// Whose.
    pub session: SessionId,
    /// What the session's own number begins with, where several come in one; else 0.
    pub origin: u64,
    /// The number of the first.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// Items right before these that the sender lost.
    pub lost_before: u64,
    /// None that follows is of a time before this one.
    pub watermark: u64,
    /// As the sender gave them.
    pub payload: Vec<u8>,
    pub(crate) receipt: Box<dyn Receipt>,
}

impl ReceivedItems {
    /// Items that came by `receipt`; the first has this number.
    pub fn new(
        session: SessionId,
        origin: u64,
        (first, count): (u64, u32),
        payload: Vec<u8>,
        receipt: Box<dyn Receipt>,
    ) -> ReceivedItems {
        ReceivedItems {
            session,
            origin,
            first,
            count,
            lost_before: 0,
            watermark: 0,
            payload,
            receipt,
        }
    }

    /// They were processed. The payload can be used on.
    pub fn done(mut self) -> Vec<u8> {
        self.receipt.give(self.first + u64::from(self.count), false);
        self.payload
    }
}

/// The end of a session; the sender hears of it when [`EndOfSession::done`] is called.
#[derive(Debug)]
pub struct EndOfSession {
    /// Which.
    pub session: SessionId,
    /// Items that the sender had, lost ones counted.
    pub total: u64,
    /// Items at the end that the sender lost.
    pub lost_before: u64,
    pub(crate) receipt: Box<dyn Receipt>,
}

impl EndOfSession {
    /// The end of a session of so many items.
    pub fn new(session: SessionId, total: u64, receipt: Box<dyn Receipt>) -> EndOfSession {
        EndOfSession {
            session,
            total,
            lost_before: 0,
            receipt,
        }
    }

    /// It was taken note of.
    pub fn done(mut self) {
        self.receipt.give(self.total, true);
    }
}
