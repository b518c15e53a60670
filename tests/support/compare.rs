//! Counts what was compared, what could not be, and why what differs does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The smallest share of comparable records that must be equal.
pub(crate) const EQUAL_SHARE: f64 = 0.95;
/// The largest share of all records that may be declared not comparable.
pub(crate) const EXCLUDED_SHARE: f64 = 0.10;

/// The result of comparing records with expected ones.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Comparable records that are equal.
    pub equal: u64,
    /// Records not comparable, by reason.
    pub excluded: BTreeMap<String, u64>,
    /// Records that differ for a known reason, by reason.
    pub explained: BTreeMap<String, u64>,
    /// Records that differ and nobody knows why: name and difference.
    pub unknown: Vec<String>,
    /// Fields that are compared, but do not decide: equal and different.
    pub fields: BTreeMap<String, (u64, u64)>,
}

impl Tally {
    /// Counts a record: equal, or how it differs, which may be explained.
    pub(crate) fn judge(
        &mut self,
        exceptions: &Exceptions,
        case: &str,
        record: &str,
        difference: Option<String>,
    ) {
        match difference {
            None => self.equal += 1,
            Some(difference) => match exceptions.reason(case, record) {
                Some(reason) => *self.explained.entry(reason.to_owned()).or_default() += 1,
                None => self.unknown.push(format!("{case}\t{record}\t{difference}")),
            },
        }
    }

    pub(crate) fn exclude(&mut self, reason: &str, records: u64) {
        if records > 0 {
            *self.excluded.entry(reason.to_owned()).or_default() += records;
        }
    }

    pub(crate) fn field(&mut self, name: &str, equal: bool) {
        let (same, different) = self.fields.entry(name.to_owned()).or_default();
        *(if equal { same } else { different }) += 1;
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        self.equal += other.equal;
        for (reason, count) in other.excluded {
            *self.excluded.entry(reason).or_default() += count;
        }
        for (reason, count) in other.explained {
            *self.explained.entry(reason).or_default() += count;
        }
        self.unknown.extend(other.unknown);
        for (name, (same, different)) in other.fields {
            let entry = self.fields.entry(name).or_default();
            entry.0 += same;
            entry.1 += different;
        }
    }

    pub(crate) fn comparable(&self) -> u64 {
        self.equal + self.explained.values().sum::<u64>() + self.unknown.len() as u64
    }

    pub(crate) fn total(&self) -> u64 {
        self.comparable() + self.excluded.values().sum::<u64>()
    }

    pub(crate) fn equal_share(&self) -> f64 {
        share(self.equal, self.comparable())
    }

    pub(crate) fn excluded_share(&self) -> f64 {
        share(self.excluded.values().sum(), self.total())
    }

    /// The table that is printed.
    pub(crate) fn table(&self, title: &str) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\n{title}: {} records, {} comparable, {} equal ({:.2} %), {} excluded ({:.2} %)",
            self.total(),
            self.comparable(),
            self.equal,
            100.0 * self.equal_share(),
            self.total() - self.comparable(),
            100.0 * self.excluded_share(),
        );
        for (reason, count) in &self.excluded {
            let _ = writeln!(text, "  not comparable {count:>6}  {reason}");
        }
        for (reason, count) in &self.explained {
            let _ = writeln!(text, "  exception      {count:>6}  {reason}");
        }
        for name in self.unknown.iter().take(400) {
            let _ = writeln!(text, "  UNKNOWN  {name}");
        }
        for (name, (same, different)) in &self.fields {
            let _ = writeln!(
                text,
                "  field {name:<16} {same:>6} equal {different:>6} different ({:.1} %)",
                100.0 * share(*same, same + different)
            );
        }
        text
    }

    /// Asserts what the project promises of a comparison.
    pub(crate) fn assert_good(&self, title: &str) {
        self.assert_share(title, EQUAL_SHARE);
    }

    /// The same with another smallest share of equal records.
    pub(crate) fn assert_share(&self, title: &str, smallest: f64) {
        assert!(self.comparable() > 0, "{title}: nothing was compared");
        assert!(
            self.unknown.is_empty(),
            "{title}: {} differences without a reason; the first: {}",
            self.unknown.len(),
            self.unknown[0]
        );
        assert!(
            self.equal_share() >= smallest,
            "{title}: only {:.2} % of the comparable records are equal",
            100.0 * self.equal_share()
        );
        assert!(
            self.excluded_share() <= EXCLUDED_SHARE,
            "{title}: {:.2} % of the records are not comparable",
            100.0 * self.excluded_share()
        );
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Differences that are known and why: lines of `case<TAB>record<TAB>reason` in `tests/data`.
pub(crate) struct Exceptions {
    all: Vec<[String; 3]>,
    /// Those that were asked for.
    used: Mutex<BTreeSet<usize>>,
}

impl Exceptions {
    pub(crate) fn load(name: &str) -> Exceptions {
        let path = super::root().join("tests/data").join(name);
        Exceptions::parse(&read(&path))
    }

    fn parse(text: &str) -> Exceptions {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let all = lines.map(|line| {
            let mut parts = line.splitn(3, '\t').map(str::to_owned);
            let mut next = || {
                parts
                    .next()
                    .unwrap_or_else(|| panic!("three columns: {line}"))
            };
            [next(), next(), next()]
        });
        Exceptions {
            all: all.collect(),
            used: Mutex::default(),
        }
    }

    /// Asserts that each was asked for: no other differs any more.
    pub(crate) fn assert_used(&self) {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.all.iter().enumerate();
        let stale = all.filter(|(index, _)| !used.contains(index));
        let stale: Vec<&[String; 3]> = stale.map(|it| it.1).collect();
        assert!(
            stale.is_empty(),
            "exceptions without a difference: {stale:#?}"
        );
    }

    pub(crate) fn reason(&self, case: &str, record: &str) -> Option<&str> {
        let is_it = |[c, r, _]: &[String; 3]| c == case && r == record;
        let index = self.all.iter().position(is_it)?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.insert(index);
        Some(self.all[index][2].as_str())
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Pairs each of `expected` with one of `found` so that the pairs with the highest `score` are
/// made first; the order breaks ties. Returns for each expected one the index of its partner.
pub(crate) fn pair<A, B>(
    expected: &[A],
    found: &[B],
    score: impl Fn(&A, &B) -> i64,
) -> Vec<Option<usize>> {
    let mut pairs: Vec<(i64, usize, usize)> = Vec::new();
    for (a, want) in expected.iter().enumerate() {
        for (b, have) in found.iter().enumerate() {
            pairs.push((-score(want, have), a, b));
        }
    }
    pairs.sort_unstable();
    let mut partner = vec![None; expected.len()];
    let mut taken = vec![false; found.len()];
    for (_, a, b) in pairs {
        if partner[a].is_none() && !taken[b] {
            partner[a] = Some(b);
            taken[b] = true;
        }
    }
    partner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_the_best_first() {
        let score = |a: &i64, b: &i64| -(a - b).abs();
        assert_eq!(pair(&[1, 5, 9], &[9, 1], score), [Some(1), None, Some(0)]);
    }

    #[test]
    fn one_unknown_difference_is_not_good() {
        let mut tally = Tally {
            equal: 1000,
            ..Tally::default()
        };
        tally.assert_good("test");
        tally.unknown.push("x".to_owned());
        assert!(std::panic::catch_unwind(|| tally.assert_good("test")).is_err());
    }

    #[test]
    fn finds_exceptions_by_case_and_record() {
        let exceptions = Exceptions::parse("# c\na\tr1\twhy\nb\tr3\tall\n");
        assert_eq!(exceptions.reason("a", "r1"), Some("why"));
        assert_eq!(exceptions.reason("a", "r2"), None);
        assert!(std::panic::catch_unwind(|| exceptions.assert_used()).is_err());
        assert_eq!(exceptions.reason("b", "r3"), Some("all"));
        exceptions.assert_used();
    }
}
