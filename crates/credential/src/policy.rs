//! Policies: layers of blocks, the outermost first. A request has to be allowed by all.

use core::fmt;
use core::time::Duration;
use std::sync::LazyLock;

use biscuit_auth::builder::Fact;
use biscuit_auth::{AuthorizerBuilder, AuthorizerLimits, error};

use crate::check::{Check, Query};
use crate::limits::{Block, Duties, Visible};
use crate::request::Request;

/// What of a request is looked at. Checks cost as many steps as there are facts.
const MOST_FACTS: u64 = 4096;

/// Counts only: nothing that can tell more.
static COUNTS_ONLY: LazyLock<Check> =
    LazyLock::new(|| Check::reject(Query::new("sees", &["$component", "$why"])));

/// A table of a configuration, or a block of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Where it comes from: `users.alice`, `block 1 of the credential`.
    pub origin: String,
    /// Of a block, its identifier.
    pub id: Option<String>,
    /// What it says.
    pub block: Block,
}

/// What somebody may do. None of its layers can give what another one takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    layers: Vec<Layer>,
}

/// A statement, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it comes from.
    pub origin: String,
    /// What it says.
    pub words: String,
    /// In Datalog.
    pub check: String,
    /// What of the request it refuses, if it does.
    pub refused: Option<String>,
}

/// Why a request is refused: statements that do not hold, one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial(pub Vec<Finding>);

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.0.iter().enumerate() {
            let refused = finding.refused.as_deref().unwrap_or("it");
            let before = if at > 0 { "; " } else { "" };
            let (words, origin) = (&finding.words, &finding.origin);
            write!(f, "{before}{refused} is not allowed: {words} ({origin})")?;
        }
        Ok(())
    }
}

impl Policy {
    /// With these layers, the outermost first.
    pub fn new(layers: Vec<Layer>) -> Policy {
        Policy { layers }
    }

    /// Its layers, the outermost first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The least that a layer allows to see of packets.
    pub fn visible(&self) -> Visible {
        let layers = self.layers.iter();
        let all = layers.filter_map(|layer| layer.block.duties.packets);
        all.min().unwrap_or(Visible::Payload)
    }

    /// Whether the same request can be allowed now and refused later.
    pub fn is_timed(&self) -> bool {
        let mut checks = self.layers.iter().flat_map(|layer| &layer.block.checks);
        checks.any(|check| check.asks_for("time") || check.asks_for("clock"))
    }

    /// When it ends for good, in seconds since 1970, as far as its layers say that plainly.
    pub fn expires(&self) -> Option<u64> {
        let checks = self.layers.iter().flat_map(|layer| &layer.block.checks);
        checks.filter_map(Check::expires).min()
    }

    /// Whether packets come as they are, and its checks ask for nothing but these facts.
    pub fn allows_all_but(&self, facts: &[&str]) -> bool {
        self.layers.iter().all(|layer| {
            let duties = &layer.block.duties;
            let as_they_are = duties.packets.is_none_or(|it| it == Visible::Payload)
                && duties.filters.is_empty()
                && duties.anonymize.is_none()
                && duties.packets_per_second.is_none();
            as_they_are && layer.block.checks.iter().all(|it| it.asks_only_for(facts))
        })
    }

    /// The same for packets that users bring: they may see them, and tables say nothing of their devices.
    #[must_use]
    pub fn for_own_files(&self) -> Policy {
        let layers = self.layers.iter().cloned().map(|mut layer| {
            layer.block.duties = Duties {
                most_flows: layer.block.duties.most_flows,
                ..Duties::default()
            };
            if layer.id.is_none() {
                let checks = &mut layer.block.checks;
                checks.retain(|check| !check.asks_only_for(&["device"]));
            }
            layer
        });
        Policy {
            layers: layers.collect(),
        }
    }

    /// The checks that ask for nothing but these facts.
    #[must_use]
    pub fn of_facts(&self, facts: &[&str]) -> Policy {
        let layers = self.layers.iter().cloned().map(|mut layer| {
            layer.block.duties = Duties::default();
            layer
                .block
                .checks
                .retain(|check| check.asks_only_for(facts));
            layer
        });
        Policy {
            layers: layers.collect(),
        }
    }

    /// All checks, by their layers.
    fn checks(&self) -> impl Iterator<Item = (&Layer, &Check)> {
        self.layers.iter().flat_map(|layer| {
            let counts = (layer.block.duties.packets == Some(Visible::None)).then(|| &*COUNTS_ONLY);
            let checks = counts.into_iter().chain(&layer.block.checks);
            checks.map(move |check| (layer, check))
        })
    }

    /// Whether a request is allowed.
    ///
    /// # Errors
    /// The checks that do not hold.
    pub fn judge(&self, request: &Request<'_>) -> Result<(), Denial> {
        let facts = request.all();
        let checks: Vec<&Check> = self.checks().map(|(_, check)| check).collect();
        if checks.is_empty() || holds(&checks, facts.iter()).is_ok() {
            return Ok(());
        }
        let mut findings = self.findings(&facts);
        findings.retain(|finding| finding.refused.is_some());
        match findings.is_empty() {
            true => Ok(()),
            false => Err(Denial(findings)),
        }
    }

    /// What each check says of a request.
    pub fn explain(&self, request: &Request<'_>) -> Vec<Finding> {
        self.findings(&request.all())
    }

    fn findings(&self, facts: &[Fact]) -> Vec<Finding> {
        let findings = self.checks().map(|(layer, check)| Finding {
            origin: layer.origin.clone(),
            words: match check == &*COUNTS_ONLY {
                true => "counts only".to_owned(),
                false => check.words(),
            },
            check: check.to_string(),
            refused: refused(check, facts),
        });
        findings.collect()
    }
}

/// What of a request a check refuses; nothing where it holds.
fn refused(check: &Check, facts: &[Fact]) -> Option<String> {
    let Err(why) = holds(&[check], facts.iter()) else {
        return None;
    };
    if let Some(why) = why {
        return Some(format!("a value that cannot be compared ({why})"));
    }
    // Each query looks at one fact.
    let asked = facts
        .iter()
        .filter(|fact| check.asks_for(&fact.predicate.name));
    let mut asked = asked.filter(|fact| holds(&[check], [*fact].into_iter()).is_err());
    let found = asked.next().map(in_words);
    Some(found.unwrap_or_else(|| "this request".to_owned()))
}

/// Whether checks hold.
///
/// # Errors
/// They do not, or why that cannot be told.
fn holds<'a>(
    checks: &[&Check],
    facts: impl Iterator<Item = &'a Fact>,
) -> Result<(), Option<String>> {
    let limits = AuthorizerLimits {
        max_facts: MOST_FACTS,
        max_iterations: 10,
        // Bounds are those of checks; a busy machine is no reason to refuse.
        max_time: Duration::from_secs(10),
    };
    let failed = |error: error::Token| Some(error.to_string());
    let mut builder = AuthorizerBuilder::new().set_limits(limits);
    for fact in facts {
        builder = builder.fact(fact.clone()).map_err(failed)?;
    }
    for check in checks {
        builder = builder.check(check.built()).map_err(failed)?;
    }
    let builder = builder.policy("allow if true").map_err(failed)?;
    let mut authorizer = builder.build_unauthenticated().map_err(failed)?;
    match authorizer.authorize() {
        Ok(_) => Ok(()),
        Err(error::Token::FailedLogic(_)) => Err(None),
        Err(error::Token::Execution(error)) => Err(Some(error.to_string())),
        Err(error) => Err(failed(error)),
    }
}

/// A fact of a request, for its user.
fn in_words(fact: &Fact) -> String {
    use biscuit_auth::builder::Term;

    let terms = fact.predicate.terms.iter().map(|term| match term {
        Term::Str(text) => text.clone(),
        Term::Integer(number) => number.to_string(),
        Term::Date(date) => crate::date_text(*date),
        _ => String::new(),
    });
    let terms: Vec<String> = terms.collect();
    match (fact.predicate.name.as_str(), &terms[..]) {
        ("device", [name]) => format!("device {name}"),
        ("request", [name]) => format!("to {name}"),
        ("component", [name]) => name.clone(),
        ("sees", [name, why]) => format!("{name} ({why})"),
        ("argument", [component, option, value]) => format!("{component} with {option} = {value}"),
        ("left_out", [component, option]) => format!("{component} without {option}"),
        ("time", [date]) => format!("the time ({date})"),
        ("clock", [day, minute]) => match minute.parse::<u32>() {
            Ok(minute) => format!("the time ({day} {:02}:{:02} UTC)", minute / 60, minute % 60),
            Err(_) => "the time".to_owned(),
        },
        ("holder" | "certificate" | "user", _) => "another holder".to_owned(),
        (name, terms) => format!("{name} {}", terms.join(" ")),
    }
}
