//! What a component can tell of a run beside its result.

use core::fmt;
use std::sync::Arc;

use flowgauge_stream::engine::EngineStatistics;
use flowgauge_stream::{Findings, ShardStatistics};
use flowgauge_wire::Ledger;

use crate::component::Failure;

/// What a component tells whoever runs it: where packets went that came to it, and what changes the
/// meaning of what it gave on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The packets that came to it and where it refused some.
    pub ledger: Ledger,
    /// What a user should know of the input.
    pub findings: Findings,
    /// Counters of flow tables and what is around them, one for each core.
    pub shards: Vec<ShardStatistics>,
    /// What became of streams in chunks, where it delivers such.
    pub streams: Option<EngineStatistics>,
    /// What came of it, as lines.
    pub summary: Vec<String>,
    /// Further counters, as lines.
    pub statistics: Vec<String>,
    /// Further things that a user should know, as lines.
    pub notes: Vec<String>,
    /// What is still to be written.
    pub last: Option<LastWord>,
}

/// What is known of a run when it is over.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd<'a> {
    /// Where all packets went.
    pub ledger: &'a Ledger,
    /// What a user should know.
    pub notes: &'a [String],
}

/// What is written when all is known of a run, where its packets went, too.
pub trait WriteLast: Send + Sync {
    /// Writes it.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn write(&self, run: &RunEnd<'_>) -> Result<(), Failure>;
}

/// Of a component: what whoever runs it calls at the end, when nothing else of the stack works any
/// more.
#[derive(Clone)]
pub struct LastWord(pub Arc<dyn WriteLast>);

impl PartialEq for LastWord {
    fn eq(&self, other: &LastWord) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LastWord {}

impl fmt::Debug for LastWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastWord")
    }
}

impl Account {
    /// Adds that of the same component on another core.
    pub fn merge(&mut self, other: &Account) {
        self.ledger.merge(&other.ledger);
        self.findings.merge(&other.findings);
        self.shards.extend(&other.shards);
        if let Some(streams) = &other.streams {
            self.streams.get_or_insert_default().add(streams);
        }
        if self.last.is_none() {
            self.last.clone_from(&other.last);
        }
        for (mine, theirs) in [
            (&mut self.summary, &other.summary),
            (&mut self.statistics, &other.statistics),
            (&mut self.notes, &other.notes),
        ] {
            let new: Vec<String> = theirs
                .iter()
                .filter(|line| !mine.contains(line))
                .cloned()
                .collect();
            mine.extend(new);
        }
    }
}
