//! What a component can tell of a run beside its result.

use flowgauge_stream::engine::EngineStatistics;
use flowgauge_stream::{Findings, ShardStatistics};
use flowgauge_wire::Ledger;

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
