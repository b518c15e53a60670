//! Flows of users, whatever they get.

use std::sync::Arc;

use flowgauge_stack::Stack;

use super::Asker;
use super::own_files::Came;
use crate::accounts::Account;
use crate::device::NewFlow;
use crate::readers::{FlowRing, Readers};
use crate::sharing::Capturing;

/// A flow of a user.
pub(crate) struct Flow {
    pub(crate) device: String,
    /// Whose it is.
    pub(crate) by: Asker,
    pub(crate) account: Arc<Account>,
    /// Whether the right to it can end with time.
    pub(crate) is_timed: bool,
    pub(crate) what: What,
}

/// What a flow gets.
pub(crate) enum What {
    /// What components make.
    Stack(Box<StackFlow>),
    /// Streams, for a program with libscap.
    Streams(Arc<Capturing>),
}

/// A flow of a stack.
pub(crate) struct StackFlow {
    pub(super) stack: Stack,
    /// Components before those of its user, and their text.
    pub(super) hidden: usize,
    pub(super) forced: String,
    pub(super) ring: Arc<FlowRing>,
    pub(super) readers: Arc<Readers>,
    /// What its components write to.
    pub(super) files: Vec<Came>,
}

impl Flow {
    pub(super) fn stack(&self) -> Option<&StackFlow> {
        match &self.what {
            What::Stack(stack) => Some(stack),
            What::Streams(_) => None,
        }
    }

    /// As its device has it run, if it is of a stack.
    pub(super) fn as_new(&self, number: u64) -> Option<NewFlow> {
        let of = self.stack()?;
        Some(NewFlow {
            number,
            stack: of.stack.clone(),
            hidden: of.hidden,
            readers: Arc::clone(&of.readers),
            ring: Arc::clone(&of.ring),
            account: Arc::clone(&self.account),
            process: self.by.peer.process,
        })
    }

    /// Tells its user that nothing more comes.
    pub(super) fn end(&self, why: &str) {
        match &self.what {
            What::Stack(of) => of.ring.end(),
            What::Streams(capturing) => capturing.end(why),
        }
    }
}
