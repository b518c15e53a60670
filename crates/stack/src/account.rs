//! Information about a run that a component provides in addition to its result.

use core::fmt;
use std::sync::Arc;

use flowgauge_record::words::count;
use flowgauge_stream::engine::EngineStatistics;
use flowgauge_stream::{Findings, ShardStatistics};
use flowgauge_wire::Ledger;

use crate::component::Failure;

/// A component's information for the program that runs it: what became of its packets, and notes that qualify its
/// output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Its packets, including those it refused, and why.
    pub ledger: Ledger,
    /// Notes about the input.
    pub findings: Findings,
    /// Counters of flow tables and their surroundings, one per core.
    pub shards: Vec<ShardStatistics>,
    /// Statistics of streams, if it delivers them in chunks.
    pub streams: Option<EngineStatistics>,
    /// A summary, as lines of text.
    pub summary: Vec<String>,
    /// Further counters, as lines of text.
    pub statistics: Vec<String>,
    /// Further notes, as lines of text.
    pub notes: Vec<String>,
    /// Counts for notes, over all cores.
    pub counted: Vec<Counted>,
    /// Output to write at the end of the run.
    pub last: Option<LastWord>,
}

/// A count for a note: "3 files" "were not decoded".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The number.
    pub count: u64,
    /// The thing, in the singular.
    pub thing: &'static str,
    /// The rest of the note, after "was" or "were".
    pub what: String,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", count(self.count, self.thing).were(), self.what)
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd<'a> {
    /// What became of all packets.
    pub ledger: &'a Ledger,
    /// Notes for the user.
    pub notes: &'a [String],
}

/// Output that needs the outcome of the whole run, including its ledger.
pub trait WriteLast: Send + Sync {
    /// Writes it.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    fn write(&self, run: &RunEnd<'_>) -> Result<(), Failure>;
}

/// A component's output at the end of the run, written when the rest of the stack has ended.
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
    /// Adds a count, unless it is 0.
    pub fn count(&mut self, count: u64, thing: &'static str, what: &str) {
        if count > 0 {
            let what = what.to_owned();
            self.counted.push(Counted { count, thing, what });
        }
    }

    /// Merges the account of the same component on another core.
    pub fn merge(&mut self, other: &Account) {
        self.ledger.merge(&other.ledger);
        self.findings.merge(&other.findings);
        self.shards.extend(&other.shards);
        if let Some(streams) = &other.streams {
            self.streams.get_or_insert_default().add(streams);
        }
        for counted in &other.counted {
            let is_it =
                |mine: &&mut Counted| (mine.thing, &mine.what) == (counted.thing, &counted.what);
            match self.counted.iter_mut().find(is_it) {
                Some(mine) => mine.count += counted.count,
                None => self.counted.push(counted.clone()),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers that count the same are not told as one.
    #[test]
    fn counts_of_all_cores_are_added() {
        let of_one = |count, what: &str| Account {
            counted: vec![Counted {
                count,
                thing: "file",
                what: what.to_owned(),
            }],
            notes: vec!["said by all".to_owned()],
            ..Account::default()
        };
        let mut all = of_one(1, "not decoded");
        all.merge(&of_one(1, "not decoded"));
        all.merge(&of_one(3, "not decoded"));
        all.merge(&of_one(1, "not written"));
        let said: Vec<String> = all.counted.iter().map(Counted::to_string).collect();
        assert_eq!(said, ["5 files were not decoded", "1 file was not written"]);
        assert_eq!(all.notes, ["said by all"]);
    }
}
