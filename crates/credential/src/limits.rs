//! What options say of rights, and the statements that they are in a policy.

use core::fmt;
use std::collections::BTreeSet;

use biscuit_auth::builder::{Fact, Term};
use serde::Deserialize;

use crate::check::{Check, Comparison, Kind, Query, Value};
use crate::error::Error;
use crate::times::{Window, date_of};

/// Statements in a block.
const MOST_CHECKS: usize = 64;
/// Filters of a block.
const MOST_FILTERS: usize = 8;

/// What of packets flows may see.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Visible {
    /// Counts only: components from whose results no byte of a packet can be learned.
    #[default]
    None,
    /// Headers up to that of transport: what is behind is cut off before every flow.
    Headers,
    /// All, payload among it.
    Payload,
}

impl Visible {
    const ALL: [(Visible, &str); 3] = [
        (Visible::None, "none"),
        (Visible::Headers, "headers"),
        (Visible::Payload, "payload"),
    ];

    /// By its name in configurations.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn parse(text: &str) -> Result<Visible, Error> {
        let mut all = Visible::ALL.iter();
        let found = all.find(|(_, name)| *name == text);
        let found = found.map(|(visible, _)| *visible);
        found.ok_or_else(|| Error::limit(text, "none, headers or payload"))
    }

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        let mut all = Visible::ALL.iter();
        all.find(|(visible, _)| *visible == self)
            .map_or("none", |(_, name)| name)
    }
}

/// A component that flows may have, with bounds on its options: `top(count<=10, by=ip.src|ip.dst)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The component's name.
    pub name: String,
    bounds: Vec<(String, Kind)>,
}

impl Function {
    /// Reads one.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Function, Error> {
        let wrong = || {
            let what = "a component, with bounds on its options in brackets: top(count<=10)";
            Error::limit(text, what)
        };
        let (name, bounds) = match text.trim().split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').ok_or_else(wrong)?),
            None => (text.trim(), ""),
        };
        let is_word = |text: &str| {
            let is_good = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            !text.is_empty() && text.chars().all(is_good)
        };
        let mut read = Vec::new();
        for bound in bounds.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let at = bound.find(['<', '>', '=']).ok_or_else(wrong)?;
            let (option, rest) = bound.split_at(at);
            let compare = |rest: &str, comparison| {
                let number = number_of(rest).map(Value::Number).ok_or_else(wrong)?;
                Ok::<_, Error>(Kind::Compare(comparison, number))
            };
            // What is refused is the contrary.
            let kind = match (rest.strip_prefix("<="), rest.strip_prefix(">=")) {
                (Some(most), _) => compare(most, Comparison::Above)?,
                (_, Some(least)) => compare(least, Comparison::Below)?,
                _ => {
                    let values = rest.strip_prefix('=').ok_or_else(wrong)?;
                    let values: Vec<&str> = values.split('|').map(str::trim).collect();
                    let numbers = values.iter().map(|it| it.parse().ok().map(Value::Number));
                    let texts = || values.iter().map(|it| Value::Text((*it).to_owned()));
                    Kind::Outside(
                        numbers
                            .collect::<Option<BTreeSet<_>>>()
                            .unwrap_or_else(|| texts().collect()),
                    )
                }
            };
            let option = option.trim();
            if !is_word(option) {
                return Err(wrong());
            }
            read.push((option.to_owned(), kind));
        }
        match is_word(name.trim()) {
            true => Ok(Function {
                name: name.trim().to_owned(),
                bounds: read,
            }),
            false => Err(wrong()),
        }
    }

    /// The options that have bounds, and whether they are to be compared with numbers.
    pub fn options(&self) -> impl Iterator<Item = (&str, bool)> {
        let bounds = self.bounds.iter();
        bounds.map(|(option, kind)| (option.as_str(), matches!(kind, Kind::Compare(..))))
    }
}

/// A number as options have it: with a unit of bytes (k, M, G) or time (ns, us, ms, s).
fn number_of(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 7] = [
        ("ns", 1),
        ("us", 1000),
        ("ms", 1_000_000),
        ("k", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("s", 1_000_000_000),
    ];
    let text = text.trim();
    let mut units = UNITS.iter();
    let found = units.find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (digits, factor) = found.unwrap_or((text, 1));
    digits.parse::<i64>().ok()?.checked_mul(factor)
}

/// Whose a credential is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Who has this key: SHA-256 of the SubjectPublicKeyInfo (RFC 5280) of the TLS certificate, in hexadecimal.
    Key(String),
    /// Who has a certificate of this name, by an authority that the sensor's agent believes.
    Certificate(String),
    /// A local user of the sensor's machine, by name or number.
    User(String),
}

/// What is allowed at most. What is not said is not bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Whose it is; several: one of them.
    pub holders: Vec<Holder>,
    /// Devices that flows may be on.
    pub devices: Option<Vec<String>>,
    /// What flows may see of packets.
    pub packets: Option<Visible>,
    /// Components that flows may have.
    pub functions: Option<Vec<Function>>,
    /// What may be asked of an agent that runs stacks.
    pub requests: Option<Vec<String>>,
    /// A filter as in pcap-filter(7) before every flow.
    pub filter: Option<String>,
    /// A policy that packets are anonymized by before every flow.
    pub anonymize: Option<String>,
    /// Maximum number of flows at once.
    pub most_flows: Option<u32>,
    /// Packets that come to a flow in a second.
    pub packets_per_second: Option<u64>,
    /// Times of the week; several: one of them.
    pub times: Vec<Window>,
    /// When it ends, in seconds since 1970.
    pub expires: Option<u64>,
    /// Further checks.
    pub checks: Vec<Check>,
}

impl Limits {
    /// On these devices only.
    #[must_use]
    pub fn devices<T: Into<String>>(mut self, devices: impl IntoIterator<Item = T>) -> Limits {
        self.devices = Some(devices.into_iter().map(Into::into).collect());
        self
    }

    /// One more component that is allowed.
    ///
    /// # Errors
    /// As [`Function::parse`].
    pub fn function(mut self, text: &str) -> Result<Limits, Error> {
        let functions = self.functions.get_or_insert_default();
        functions.push(Function::parse(text)?);
        Ok(self)
    }

    /// At these times of the week, until this date, as configurations have them.
    ///
    /// # Errors
    /// They are none.
    pub fn during(
        mut self,
        times: Option<&[String]>,
        expires: Option<&str>,
    ) -> Result<Limits, Error> {
        let times = times.unwrap_or_default().iter();
        let times = times.map(|text| Window::parse(text));
        self.times = times.collect::<Result<Vec<_>, _>>()?.concat();
        self.expires = expires.map(|text| date_of(text, None)).transpose()?;
        Ok(self)
    }

    /// Whether nothing is bounded.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }

    /// The statements of a policy that they are.
    pub fn block(&self) -> Block {
        let texts = |texts: &[String]| -> BTreeSet<Value> {
            texts.iter().cloned().map(Value::Text).collect()
        };
        let mut checks = Vec::new();
        if !self.holders.is_empty() {
            let queries = self.holders.iter().map(|holder| match holder {
                Holder::Key(key) => Query::new("holder", &[key]),
                Holder::Certificate(name) => Query::new("certificate", &[name]),
                Holder::User(user) => Query::new("user", &[user]),
            });
            checks.push(Check {
                rejects: false,
                queries: queries.collect(),
            });
        }
        if let Some(date) = self.expires {
            let before = Kind::Compare(Comparison::Below, Value::Date(date));
            checks.push(Check::one(
                Query::new("time", &["$time"]).and("time", before),
            ));
        }
        if !self.times.is_empty() {
            checks.push(Check {
                rejects: false,
                queries: self.times.iter().map(Window::query).collect(),
            });
        }
        for (fact, allowed) in [("device", &self.devices), ("request", &self.requests)] {
            let Some(allowed) = allowed else {
                continue;
            };
            let known = Kind::In(texts(allowed));
            let query = Query::new(fact, &[&format!("${fact}")]).and(fact, known);
            checks.push(Check::one(query));
        }
        if let Some(functions) = &self.functions {
            let names = functions.iter().map(|it| Value::Text(it.name.clone()));
            let others = Kind::Outside(names.collect());
            let query = Query::new("component", &["$component"]).and("component", others);
            checks.push(Check::reject(query));
            for function in functions {
                for (option, refused) in &function.bounds {
                    let terms = [function.name.as_str(), option, "$value"];
                    let query = Query::new("argument", &terms).and("value", refused.clone());
                    checks.push(Check::reject(query));
                    // What is left out is what the component takes then, which may be without a bound.
                    let left_out = Query::new("left_out", &terms[..2]);
                    checks.push(Check::reject(left_out));
                }
            }
        }
        checks.extend(self.checks.iter().cloned());
        Block {
            duties: Duties {
                packets: self.packets,
                filters: self.filter.iter().cloned().collect(),
                anonymize: self.anonymize.clone(),
                most_flows: self.most_flows,
                packets_per_second: self.packets_per_second,
            },
            checks,
        }
    }
}

/// What the sensor has to see to, beside checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// What flows may see of packets; what is behind that is cut off.
    pub packets: Option<Visible>,
    /// Filters before every flow.
    pub filters: Vec<String>,
    /// The name of a policy that packets are anonymized by before every flow, behind the filters.
    pub anonymize: Option<String>,
    /// Maximum number of flows at once.
    pub most_flows: Option<u32>,
    /// Packets that come to a flow in a second.
    pub packets_per_second: Option<u64>,
}

/// Statements of a block of a credential, or of a table of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// What is done before flows.
    pub duties: Duties,
    /// What has to hold.
    pub checks: Vec<Check>,
}

impl Block {
    /// # Errors
    /// What of it credentials of Flowgauge cannot say.
    pub(crate) fn of(
        facts: &[Fact],
        checks: &[biscuit_auth::builder::Check],
    ) -> Result<Block, String> {
        if checks.len() > MOST_CHECKS {
            return Err(format!("has more than {MOST_CHECKS} checks"));
        }
        let mut duties = Duties::default();
        for fact in facts {
            duties.add(fact)?;
        }
        let checks = checks.iter().map(Check::of).collect::<Result<_, _>>()?;
        Ok(Block { duties, checks })
    }

    pub(crate) fn facts(&self) -> Vec<Fact> {
        let duties = &self.duties;
        let text = |text: &str| Term::Str(text.to_owned());
        let number = |number: u64| Term::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        let packets = duties.packets.map(|it| ("packets", text(it.name())));
        let filters = duties.filters.iter().map(|it| ("filter", text(it)));
        let anonymize = duties.anonymize.as_ref().map(|it| ("anonymize", text(it)));
        let flows = duties
            .most_flows
            .map(|it| ("most_flows", number(it.into())));
        let rate = duties.packets_per_second;
        let rate = rate.map(|it| ("packets_per_second", number(it)));
        let facts = packets.into_iter().chain(filters).chain(anonymize);
        let facts = facts.chain(flows).chain(rate);
        facts
            .map(|(name, term)| Fact::new(name.to_owned(), vec![term]))
            .collect()
    }

    /// What it says, a line each, in words.
    pub fn words(&self) -> Vec<String> {
        let mut checks: Vec<String> = Vec::new();
        for check in &self.checks {
            let words = check.words();
            // The second half of a bound.
            if !check.asks_for("left_out") && !checks.contains(&words) {
                checks.push(words);
            }
        }
        checks.extend(self.duties.words());
        checks
    }
}

impl Duties {
    fn add(&mut self, fact: &Fact) -> Result<(), String> {
        let name = fact.predicate.name.as_str();
        let twice = || format!("says {name} twice");
        let put = |is_new: bool| if is_new { Ok(()) } else { Err(twice()) };
        match (name, &fact.predicate.terms[..]) {
            ("packets", [Term::Str(text)]) => {
                let visible = Visible::parse(text).map_err(|error| format!("is odd: {error}"))?;
                put(self.packets.replace(visible).is_none())
            }
            ("filter", [Term::Str(text)]) if self.filters.len() < MOST_FILTERS => {
                self.filters.push(text.clone());
                Ok(())
            }
            ("anonymize", [Term::Str(text)]) => put(self.anonymize.replace(text.clone()).is_none()),
            ("most_flows", [Term::Integer(number)]) => {
                let number = u32::try_from(*number).map_err(|_| "has no number of flows")?;
                put(self.most_flows.replace(number).is_none())
            }
            ("packets_per_second", [Term::Integer(number)]) if *number > 0 => {
                let number = number.unsigned_abs();
                put(self.packets_per_second.replace(number).is_none())
            }
            _ => Err(format!(
                "says {}, which this version does not know",
                name.escape_debug()
            )),
        }
    }

    fn words(&self) -> Vec<String> {
        let packets = self.packets.map(|it| match it {
            Visible::None => "counts only, no packets".to_owned(),
            Visible::Headers => "packets up to the transport header".to_owned(),
            Visible::Payload => "packets with their payload".to_owned(),
        });
        let filters = self
            .filters
            .iter()
            .map(|it| format!("packets that pass the filter {it}"));
        let anonymize = self.anonymize.as_ref();
        let anonymize = anonymize.map(|it| format!("packets anonymized by {it}"));
        let flows = self.most_flows.map(|it| format!("at most {it} flows"));
        let rate = self.packets_per_second;
        let rate = rate.map(|it| format!("at most {it} packets per second of each flow"));
        let all = packets.into_iter().chain(filters).chain(anonymize);
        all.chain(flows).chain(rate).collect()
    }
}

/// As Biscuit's Datalog.
impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fact in self.facts() {
            for term in &fact.predicate.terms {
                let value = match term {
                    Term::Str(text) => Value::Text(text.clone()),
                    Term::Integer(number) => Value::Number(*number),
                    _ => continue,
                };
                writeln!(f, "{}({value});", fact.predicate.name)?;
            }
        }
        for check in &self.checks {
            writeln!(f, "{check};")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_bounds() {
        let limits = Limits::default()
            .function("count")
            .and_then(|it| it.function("top(count<=10, by=ip.src|ip.dst)"))
            .and_then(|it| it.function("bucket(interval>=100ms, memory<=1M)"))
            .unwrap();
        let text = limits.block().to_string();
        for line in [
            "reject if component($component), !{\"bucket\", \"count\", \"top\"}.contains($component);",
            "reject if argument(\"top\", \"count\", $value), $value > 10;",
            "reject if left_out(\"top\", \"count\");",
            "reject if argument(\"top\", \"by\", $value), !{\"ip.dst\", \"ip.src\"}.contains($value);",
            "reject if argument(\"bucket\", \"interval\", $value), $value < 100000000;",
            "reject if argument(\"bucket\", \"memory\", $value), $value > 1048576;",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let words = limits.block().words();
        assert_eq!(words[1], "count of top at most 10");
        for wrong in [
            "",
            "top(",
            "top(count)",
            "top(count<10)",
            "top(<=3)",
            "a b",
            "top(count<=x)",
        ] {
            assert!(Function::parse(wrong).is_err(), "{wrong}");
        }
    }
}
