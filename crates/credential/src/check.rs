//! Checks: queries that look at one fact each, a part of Biscuit's Datalog.
//!
//! ```text
//! check if device($d), {"eth0", "eth1"}.contains($d);
//! check if holder("1f0e...") or user("alice");
//! reject if argument("top", "count", $v), $v > 10;
//! ```
//!
//! `check if` holds when a fact matches one of its queries, `reject if` when none does.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use biscuit_auth::builder::{self as biscuit};
use biscuit_auth::builder::{Binary, CheckKind, Expression, Op, Predicate, Rule, Term, Unary};

use crate::error::Error;
use crate::times;

/// Bounds of a check, which a hostile one cannot exceed.
const MOST_QUERIES: usize = 32;
const MOST_TERMS: usize = 4;
const MOST_TESTS: usize = 8;
const MOST_IN_SET: usize = 256;

/// Facts of all requests of somebody at a time: what changes while a flow is open is told by them alone.
pub const STANDING: &[&str] = &["holder", "certificate", "user", "time", "clock"];

/// A check: when it does not hold, the request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Refuses what its queries find, in place of what they do not find.
    pub(crate) rejects: bool,
    pub(crate) queries: Vec<Query>,
}

/// Looks for a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) fact: String,
    pub(crate) terms: Vec<Slot>,
    pub(crate) tests: Vec<Test>,
}

/// What a term of the fact has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Any(String),
    Is(Value),
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    /// Seconds since 1970.
    Date(u64),
}

/// What a variable has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) variable: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Compare(Comparison, Value),
    In(BTreeSet<Value>),
    Outside(BTreeSet<Value>),
}

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
    Equal,
    Different,
    StartsWith,
    EndsWith,
}

impl Comparison {
    const ALL: [(Comparison, Binary, &str); 10] = [
        (Comparison::Below, Binary::LessThan, "<"),
        (Comparison::AtMost, Binary::LessOrEqual, "<="),
        (Comparison::Above, Binary::GreaterThan, ">"),
        (Comparison::AtLeast, Binary::GreaterOrEqual, ">="),
        (Comparison::Equal, Binary::Equal, "==="),
        (Comparison::Different, Binary::NotEqual, "!=="),
        (Comparison::Equal, Binary::HeterogeneousEqual, "=="),
        (Comparison::Different, Binary::HeterogeneousNotEqual, "!="),
        (Comparison::StartsWith, Binary::Prefix, "starts_with"),
        (Comparison::EndsWith, Binary::Suffix, "ends_with"),
    ];

    fn of(operation: &Binary) -> Option<Comparison> {
        let mut all = Comparison::ALL.iter();
        all.find(|(_, it, _)| it == operation)
            .map(|(comparison, ..)| *comparison)
    }

    fn operation(self) -> (Binary, &'static str) {
        let mut all = Comparison::ALL.iter();
        let found = all.find(|(it, ..)| *it == self);
        found.map_or((Binary::Equal, "==="), |(_, it, text)| (it.clone(), text))
    }
}

impl Check {
    /// Reads one as it is written, without the semicolon.
    ///
    /// # Errors
    /// It is no Datalog, or more than credentials can say.
    pub fn parse(text: &str) -> Result<Check, Error> {
        let what = "a check that looks at one fact: check if device($d), [\"eth0\"].contains($d)";
        let wrong = || Error::limit(text, what);
        let read = biscuit::Check::try_from(text).map_err(|_| wrong())?;
        Check::of(&read).map_err(|_| wrong())
    }

    pub(crate) fn one(query: Query) -> Check {
        Check {
            rejects: false,
            queries: vec![query],
        }
    }

    pub(crate) fn reject(query: Query) -> Check {
        Check {
            rejects: true,
            queries: vec![query],
        }
    }

    /// # Errors
    /// What of it is more than one can say.
    pub(crate) fn of(check: &biscuit::Check) -> Result<Check, &'static str> {
        if check.queries.is_empty() || check.queries.len() > MOST_QUERIES {
            return Err("has a check of too many queries");
        }
        let read = Check {
            rejects: match check.kind {
                CheckKind::One => false,
                CheckKind::Reject => true,
                CheckKind::All => {
                    return Err("has a check of a kind that is not known here: check all");
                }
            },
            queries: check
                .queries
                .iter()
                .map(Query::of)
                .collect::<Result<_, _>>()?,
        };
        let is_timed = read.asks_for("time") || read.asks_for("clock");
        match is_timed && !read.asks_only_for(STANDING) {
            true => Err("has a check of the time or something else: take two"),
            false => Ok(read),
        }
    }

    pub(crate) fn built(&self) -> biscuit::Check {
        biscuit::Check {
            queries: self.queries.iter().map(Query::built).collect(),
            kind: match self.rejects {
                true => CheckKind::Reject,
                false => CheckKind::One,
            },
        }
    }

    /// The facts that it asks for.
    pub(crate) fn asks_for(&self, fact: &str) -> bool {
        self.queries.iter().any(|query| query.fact == fact)
    }

    pub(crate) fn asks_only_for(&self, facts: &[&str]) -> bool {
        let mut queries = self.queries.iter();
        queries.all(|query| facts.contains(&query.fact.as_str()))
    }

    /// When it stops to hold for good, if it is `check if time($t), $t < ...`; seconds since 1970.
    pub(crate) fn expires(&self) -> Option<u64> {
        let [query] = &self.queries[..] else {
            return None;
        };
        let [test] = &query.tests[..] else {
            return None;
        };
        match &test.kind {
            Kind::Compare(Comparison::Below, Value::Date(date))
                if query.fact == "time" && !self.rejects =>
            {
                Some(*date)
            }
            _ => None,
        }
    }
}

impl Query {
    pub(crate) fn new(fact: &str, terms: &[&str]) -> Query {
        // Names of variables begin with a dollar.
        let slot = |term: &&str| match term.strip_prefix('$') {
            Some(name) => Slot::Any(name.to_owned()),
            None => Slot::Is(Value::Text((*term).to_owned())),
        };
        Query {
            fact: fact.to_owned(),
            terms: terms.iter().map(slot).collect(),
            tests: Vec::new(),
        }
    }

    pub(crate) fn and(mut self, variable: &str, kind: Kind) -> Query {
        self.tests.push(Test {
            variable: variable.to_owned(),
            kind,
        });
        self
    }

    fn of(rule: &Rule) -> Result<Query, &'static str> {
        let [body] = &rule.body[..] else {
            return Err("has a check that does not look at exactly one fact");
        };
        if !rule.head.terms.is_empty() || !rule.scopes.is_empty() {
            return Err("has a check that trusts others");
        }
        if body.terms.len() > MOST_TERMS || rule.expressions.len() > MOST_TESTS {
            return Err("has a check that is too long");
        }
        let terms = body.terms.iter().map(|term| match term {
            Term::Variable(name) => Ok(Slot::Any(name.clone())),
            term => Value::of(term).map(Slot::Is),
        });
        let terms = terms.collect::<Result<Vec<_>, _>>()?;
        let tests = rule.expressions.iter().map(Test::of);
        let tests = tests.collect::<Result<Vec<_>, _>>()?;
        let is_known = |test: &Test| terms.contains(&Slot::Any(test.variable.clone()));
        match tests.iter().all(is_known) {
            true => Ok(Query {
                fact: body.name.clone(),
                terms,
                tests,
            }),
            false => Err("has a check of a variable that is not there"),
        }
    }

    fn built(&self) -> Rule {
        let terms = self.terms.iter().map(|slot| match slot {
            Slot::Any(name) => Term::Variable(name.clone()),
            Slot::Is(value) => value.built(),
        });
        let terms: Vec<Term> = terms.collect();
        Rule::new(
            Predicate::new("query".to_owned(), Vec::new()),
            vec![Predicate::new(self.fact.clone(), terms)],
            self.tests.iter().map(Test::built).collect(),
            Vec::new(),
        )
    }
}

impl Value {
    fn of(term: &Term) -> Result<Value, &'static str> {
        match term {
            Term::Str(text) => Ok(Value::Text(text.clone())),
            Term::Integer(number) => Ok(Value::Number(*number)),
            Term::Date(date) => Ok(Value::Date(*date)),
            _ => Err("has a check with a value of a kind that is not known here"),
        }
    }

    fn built(&self) -> Term {
        match self {
            Value::Text(text) => Term::Str(text.clone()),
            Value::Number(number) => Term::Integer(*number),
            Value::Date(date) => Term::Date(*date),
        }
    }

    fn set_of(term: &Term) -> Result<BTreeSet<Value>, &'static str> {
        let values: Vec<&Term> = match term {
            Term::Set(values) => values.iter().collect(),
            Term::Array(values) => values.iter().collect(),
            _ => return Err("has a check of something that is not a set"),
        };
        match values.len() <= MOST_IN_SET {
            true => values.into_iter().map(Value::of).collect(),
            false => Err("has a check with a set that is too large"),
        }
    }
}

impl Test {
    fn of(expression: &Expression) -> Result<Test, &'static str> {
        let contains = Op::Binary(Binary::Contains);
        let is_not = Op::Unary(Unary::Negate);
        match &expression.ops[..] {
            [Op::Value(set), Op::Value(Term::Variable(variable)), last] if *last == contains => {
                Ok(Test {
                    variable: variable.clone(),
                    kind: Kind::In(Value::set_of(set)?),
                })
            }
            [
                Op::Value(set),
                Op::Value(Term::Variable(variable)),
                before,
                last,
            ] if (before, last) == (&contains, &is_not) => Ok(Test {
                variable: variable.clone(),
                kind: Kind::Outside(Value::set_of(set)?),
            }),
            [
                Op::Value(Term::Variable(variable)),
                Op::Value(value),
                Op::Binary(operation),
            ] => {
                let comparison = Comparison::of(operation);
                let comparison =
                    comparison.ok_or("has a check with a comparison that is not known here")?;
                Ok(Test {
                    variable: variable.clone(),
                    kind: Kind::Compare(comparison, Value::of(value)?),
                })
            }
            _ => Err("has a check with an expression that is not a comparison with a constant"),
        }
    }

    fn built(&self) -> Expression {
        let variable = Op::Value(Term::Variable(self.variable.clone()));
        let set = |values: &BTreeSet<Value>| {
            Op::Value(Term::Set(values.iter().map(Value::built).collect()))
        };
        let contains = Op::Binary(Binary::Contains);
        let ops = match &self.kind {
            Kind::Compare(comparison, value) => vec![
                variable,
                Op::Value(value.built()),
                Op::Binary(comparison.operation().0),
            ],
            Kind::In(values) => vec![set(values), variable, contains],
            Kind::Outside(values) => {
                vec![set(values), variable, contains, Op::Unary(Unary::Negate)]
            }
        };
        Expression { ops }
    }
}

/// As Biscuit's Datalog; texts are escaped, so that none can look like something else.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.rejects {
            "reject if "
        } else {
            "check if "
        })?;
        for (at, query) in self.queries.iter().enumerate() {
            write!(f, "{}{query}", if at > 0 { " or " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = self.terms.iter().map(|slot| match slot {
            Slot::Any(name) => format!("${name}"),
            Slot::Is(value) => value.to_string(),
        });
        let terms: Vec<String> = terms.collect();
        write!(f, "{}({})", self.fact, terms.join(", "))?;
        for test in &self.tests {
            let variable = &test.variable;
            match &test.kind {
                Kind::In(values) => write!(f, ", {}.contains(${variable})", set_text(values))?,
                Kind::Outside(values) => {
                    write!(f, ", !{}.contains(${variable})", set_text(values))?;
                }
                Kind::Compare(comparison, value) => match comparison.operation().1 {
                    name if name.starts_with(char::is_alphabetic) => {
                        write!(f, ", ${variable}.{name}({value})")?;
                    }
                    sign => write!(f, ", ${variable} {sign} {value}")?,
                },
            }
        }
        Ok(())
    }
}

fn set_text(values: &BTreeSet<Value>) -> String {
    let values: Vec<String> = values.iter().map(Value::to_string).collect();
    match values.is_empty() {
        true => "{,}".to_owned(),
        false => format!("{{{}}}", values.join(", ")),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => {
                let text = text.replace('\\', "\\\\").replace('"', "\\\"");
                write!(f, "\"{}\"", text.replace('\n', "\\n"))
            }
            Value::Number(number) => write!(f, "{number}"),
            Value::Date(date) => f.write_str(&times::date_text(*date)),
        }
    }
}

impl Check {
    /// What it means, for the checks that options make; others are shown as they are.
    pub fn words(&self) -> String {
        self.in_words().unwrap_or_else(|| self.to_string())
    }

    fn in_words(&self) -> Option<String> {
        let facts: Vec<&str> = self.queries.iter().map(|it| it.fact.as_str()).collect();
        if !self.rejects && facts.iter().all(|fact| *fact == "clock") {
            let windows = self.queries.iter().map(times::Window::of_query);
            let windows = windows.collect::<Option<Vec<_>>>()?;
            let windows: Vec<String> = windows.iter().map(ToString::to_string).collect();
            return Some(format!("only {} UTC", windows.join(", ")));
        }
        if !self.rejects && facts.iter().all(|fact| HOLDERS.contains_key(fact)) {
            let holders = self.queries.iter().map(|query| match &query.terms[..] {
                [Slot::Is(Value::Text(text))] if query.tests.is_empty() => {
                    Some(format!("{} {text}", HOLDERS.get(query.fact.as_str())?))
                }
                _ => None,
            });
            let holders = holders.collect::<Option<Vec<_>>>()?;
            return Some(format!("only for {}", holders.join(", ")));
        }
        let [query] = &self.queries[..] else {
            return None;
        };
        let test = match &query.tests[..] {
            [] => None,
            [test] => Some(&test.kind),
            _ => return None,
        };
        let text = |slot: &Slot| match slot {
            Slot::Is(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        Some(match (self.rejects, facts[0], &query.terms[..], test?) {
            (false, "device", [_], Kind::In(names)) => format!("only on {}", plain(names)),
            (false, "request", [_], Kind::In(names)) => format!("requests to {}", plain(names)),
            (true, "component", [_], Kind::Outside(names)) => {
                format!("only the components {}", plain(names))
            }
            (false, "time", [_], Kind::Compare(Comparison::Below, date)) => {
                format!("only before {date}")
            }
            (true, "argument", [component, option, _], test) => {
                let (component, option) = (text(component)?, text(option)?);
                match test {
                    Kind::Outside(values) => {
                        format!("{option} of {component} only {}", plain(values))
                    }
                    Kind::Compare(Comparison::Above, most) => {
                        format!("{option} of {component} at most {most}")
                    }
                    Kind::Compare(Comparison::Below, least) => {
                        format!("{option} of {component} at least {least}")
                    }
                    _ => return None,
                }
            }
            _ => return None,
        })
    }
}

/// Who holds a credential, by the fact that says so.
pub(crate) static HOLDERS: std::sync::LazyLock<BTreeMap<&str, &str>> =
    std::sync::LazyLock::new(|| {
        BTreeMap::from([
            ("holder", "key"),
            ("certificate", "certificate"),
            ("user", "user"),
        ])
    });

fn plain(values: &BTreeSet<Value>) -> String {
    let values = values.iter().map(|value| match value {
        Value::Text(text) => text.clone(),
        value => value.to_string(),
    });
    values.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_written_as_they_are_read() {
        for text in [
            "check if device($d), {\"eth0\", \"eth1\"}.contains($d)",
            "check if holder(\"1f0e\") or user(\"alice\")",
            "reject if argument(\"top\", \"count\", $v), $v > 10",
            "reject if component($c), !{\"count\"}.contains($c)",
            "check if time($t), $t < 2026-12-01T00:00:00Z",
            "check if device($d), $d.starts_with(\"a\\\"b\\\\c\")",
            "check if clock($d, $m), {\"mon\"}.contains($d), $m >= 480, $m < 1080",
        ] {
            let check = Check::parse(text).unwrap();
            assert_eq!(check.to_string(), text);
            assert_eq!(Check::of(&check.built()), Ok(check));
        }
        let array = Check::parse("check if device($d), [\"eth0\"].contains($d)").unwrap();
        assert_eq!(array.words(), "only on eth0");
    }

    #[test]
    fn what_could_be_expensive_or_trusts_others_is_refused() {
        for text in [
            "check if true",
            "check if device($a), device($b)",
            "check if device($d), $d.matches(\"(a+)+\")",
            "check if device($d), $d == \"a\" || $d == \"b\"",
            "check if device($d), {\"a\"}.any($x -> $x == $d)",
            "check if device($d), $d + $d == \"aa\"",
            "check all device($d), $d == \"a\"",
            "check if device($d) trusting previous",
            "check if device(\"a\"), 1 < 2",
            "allow if true",
            "device(\"a\")",
            "check if time($t), $t < 2026-12-01T00:00:00Z or device(\"a\")",
            "",
        ] {
            assert!(Check::parse(text).is_err(), "{text}");
        }
    }
}
