//! What was said: protocols and applications of flows, transactions of HTTP, DNS and TLS.

use std::cmp::Reverse;
use std::collections::HashMap;

use flowgauge_record::AnyRecord;
use flowgauge_record::aggregate::{drop_smaller_half, in_order};
use flowgauge_record::event::Spoken;
use flowgauge_stack::{Failure, Items, Outlet};

use super::histogram::Percentiles;
use super::talkers::{Largest, Sums};
use crate::logs::{Looking, Name, Values};

/// Names of a list at most, unless memory is bounded further.
const MOST_NAMES: usize = 50_000;
/// Bytes of a name that are kept.
const NAME_BYTES: usize = 128;

/// How often names came; when there are too many, the rarer half goes.
#[derive(Debug)]
pub(super) struct Names {
    counts: HashMap<Box<str>, u64>,
    most: usize,
}

impl Names {
    fn with_memory(bytes: Option<u64>) -> Names {
        let most = bytes.map_or(MOST_NAMES, |bytes| bytes as usize / (2 * NAME_BYTES));
        Names {
            counts: HashMap::new(),
            most: most.clamp(2, MOST_NAMES),
        }
    }

    fn add(&mut self, name: &str, count: u64) {
        let end = name.floor_char_boundary(NAME_BYTES);
        let name = &name[..end];
        if let Some(mine) = self.counts.get_mut(name) {
            *mine += count;
            return;
        }
        if self.counts.len() >= self.most {
            drop_smaller_half(&mut self.counts, |count| *count, |_, _| {});
        }
        self.counts.insert(name.into(), count);
    }

    fn merge(&mut self, other: Names) {
        self.most = (self.most + other.most).min(MOST_NAMES);
        for (name, count) in in_order(other.counts) {
            self.add(&name, count);
        }
    }

    /// The names that came most often.
    pub(super) fn top(&self, count: usize) -> Vec<(&str, u64)> {
        let mut all: Vec<(&str, u64)> = self.counts.iter().map(|(name, n)| (&**name, *n)).collect();
        all.sort_unstable_by_key(|(name, count)| (Reverse(*count), *name));
        all.truncate(count);
        all
    }
}

/// Transactions of a protocol.
#[derive(Debug)]
pub(super) struct Transactions {
    pub(super) all: u64,
    pub(super) without_reply: u64,
    pub(super) latency: Percentiles,
    /// Classes of status of HTTP, codes of DNS, versions of TLS.
    pub(super) outcomes: Names,
    /// Hosts of HTTP, names that were looked up, names of servers of TLS.
    pub(super) names: Names,
}

impl Transactions {
    fn with_memory(bytes: Option<u64>) -> Transactions {
        Transactions {
            all: 0,
            without_reply: 0,
            latency: Percentiles::default(),
            outcomes: Names::with_memory(Some(64 << 10)),
            names: Names::with_memory(bytes),
        }
    }

    fn add(&mut self, values: &Values<'_>, outcome: Option<&str>, name: Option<&str>) {
        self.all += 1;
        self.without_reply += u64::from(values.text(Name::state) == Some("no_reply"));
        if let Some(latency) = values.span(Name::latency) {
            self.latency.add(latency.0);
        }
        if let Some(outcome) = outcome {
            self.outcomes.add(outcome, 1);
        }
        if let Some(name) = name {
            self.names.add(name, 1);
        }
    }

    fn merge(&mut self, other: Transactions) {
        self.all += other.all;
        self.without_reply += other.without_reply;
        self.latency.merge(&other.latency);
        self.outcomes.merge(other.outcomes);
        self.names.merge(other.names);
    }
}

/// Everything that the report says of payload.
#[derive(Debug)]
pub(super) struct Said {
    /// Protocols, by name; with a question mark behind it where only the port tells.
    pub(super) protocols: Largest<Box<str>>,
    pub(super) applications: Largest<Box<str>>,
    pub(super) http: Transactions,
    pub(super) dns: Transactions,
    pub(super) tls: Transactions,
    looking: Looking,
}

impl Said {
    /// Nothing yet; lists take so much memory where that is bounded.
    pub(super) fn with_memory(bytes: Option<u64>) -> Said {
        let part = bytes.map(|bytes| bytes / 4);
        Said {
            protocols: Largest::default(),
            applications: Largest::default(),
            http: Transactions::with_memory(part),
            dns: Transactions::with_memory(part),
            tls: Transactions::with_memory(part),
            looking: Looking::default(),
        }
    }

    pub(super) fn merge(&mut self, other: Said) {
        self.protocols.merge(other.protocols);
        self.applications.merge(other.applications);
        self.http.merge(other.http);
        self.dns.merge(other.dns);
        self.tls.merge(other.tls);
    }

    /// A flow has ended.
    pub(super) fn flow(&mut self, spoken: Spoken<'_>, sums: Sums) {
        let name: Box<str> = match (spoken.protocol, spoken.protocol_by) {
            (Some(name), Some("port")) => format!("{name}?").into(),
            (Some(name), _) => name.into(),
            (None, _) => "unknown".into(),
        };
        self.protocols.add(name, sums);
        if let Some(application) = spoken.application {
            self.applications.add(application.into(), sums);
        }
    }

    /// A record of a transaction.
    fn record(&mut self, record: &dyn AnyRecord) {
        let Some(values) = self.looking.at(record) else {
            return;
        };
        match values.kind() {
            "http" => {
                let class = values
                    .number(Name::status)
                    .map(|status| match status / 100 {
                        1 => "1xx",
                        2 => "2xx",
                        3 => "3xx",
                        4 => "4xx",
                        5 => "5xx",
                        _ => "other",
                    });
                self.http.add(&values, class, values.text(Name::host));
            }
            "dns" => {
                let rcode = values.text(Name::rcode);
                self.dns.add(&values, rcode, values.text(Name::query));
            }
            "tls" => {
                let version = values.text(Name::version);
                self.tls
                    .add(&values, version, values.text(Name::server_name));
            }
            "quic" => {
                self.tls
                    .add(&values, Some("QUIC"), values.text(Name::server_name));
            }
            _ => {}
        }
    }
}

/// Counts records instead of giving them on.
impl Outlet for Said {
    fn emit(&mut self, items: Items<'_>) {
        if let Items::Records(records) = items {
            for item in records {
                self.record(item.record);
            }
        }
    }

    fn fail(&mut self, _: Failure) {}

    fn end(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_the_frequent_stay() {
        let mut names = Names::with_memory(Some(4096));
        assert_eq!(names.most, 16);
        names.add("often", 1000);
        for n in 0..1000 {
            names.add(&format!("name {n} {}", "é".repeat(200)), 1);
            assert!(names.counts.len() <= 16);
            // Of those that came as often no more go than have to.
            assert!(n < 16 || names.counts.len() > 8);
        }
        assert_eq!(names.top(1), [("often", 1000)]);
    }
}
