//! Other ways for frames to travel than a connection to a [`crate::Listener`]: through a broker.
//!
//! Numbering, spool and account are the sender's. A carriage says what has arrived where it is kept; who takes it from there
//! later knows what came twice, and what is missing, by the numbers.

use std::time::Duration;

use crate::error::Error;

/// Makes carriages.
pub trait Carrier: Send + Sync {
    /// What it is called in messages and in the names of spools.
    fn name(&self) -> &str;

    /// One for a session, which begins with nothing in it: what an earlier one did not deliver is given to it again. `is_left`:
    /// an earlier process began the session.
    ///
    /// # Errors
    /// Why there is none.
    fn connect(&self, session: [u8; 16], is_left: bool) -> Result<Box<dyn Carriage>, Error>;
}

/// Brings frames, in their order, to where they are kept.
pub trait Carriage: Send {
    /// Whether it takes another frame now.
    fn has_room(&self) -> bool;

    /// Whether nothing is on its way.
    fn is_empty(&self) -> bool;

    /// Takes a frame, behind which the items have numbers from `end` on.
    ///
    /// # Errors
    /// It takes none any more.
    fn send(&mut self, frame: &[u8], end: u64) -> Result<(), Error>;

    /// No more frames come: says so to who takes them.
    ///
    /// # Errors
    /// As of [`Carriage::send`].
    fn end(&mut self) -> Result<(), Error>;

    /// What has arrived, after at most `wait`.
    ///
    /// # Errors
    /// It brings nothing any more.
    fn arrived(&mut self, wait: Duration) -> Result<Arrived, Error>;

    /// Why nothing arrives at the moment.
    fn trouble(&self) -> Option<Error>;
}

/// What has arrived with a carriage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// All items before this one.
    pub before: u64,
    /// Items of those that were refused for good since it was last asked.
    pub refused: u64,
}
