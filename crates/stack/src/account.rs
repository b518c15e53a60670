//! What a component can tell of a run beside its result.

use core::fmt;
use std::sync::Arc;

use flowgauge_record::words::count;
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
    /// How many things something became of, on all cores together.
    pub counted: Vec<Counted>,
    /// What is still to be written.
    pub last: Option<LastWord>,
}

/// A number of things and what became of them: "3 files" "were not decoded".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many.
    pub count: u64,
    /// Of what, one.
    pub thing: &'static str,
    /// What became of them, behind "was" or "were".
    pub what: String,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", count(self.count, self.thing).were(), self.what)
    }
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
    /// Tells what became of things, if there are any.
    pub fn count(&mut self, count: u64, thing: &'static str, what: &str) {
        if count > 0 {
            let what = what.to_owned();
            self.counted.push(Counted { count, thing, what });
        }
    }

    /// Adds that of the same component on another core.
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
