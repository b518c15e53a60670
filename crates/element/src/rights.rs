//! Who may ask for what: tables of the configuration and credentials, judged by the same engine as at sensors.
//!
//! The facts are the element's own: a domain is the request's device, a metric its component with `seconds` and `count` as options.

use std::time::{SystemTime, UNIX_EPOCH};

use flowgauge_credential::{
    Access, Block, Facts, Function, Limits, RightsTable, STANDING, Visible,
};
use serde::Deserialize;

use crate::fault::Fault;
use crate::modules::MODULES;
use crate::session::Order;

/// What a user may do.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Rights {
    /// Domains; `*` is all.
    pub domains: Vec<String>,
    /// Metrics, with bounds on their parameters: `loss(seconds<=60)`; all, where it is left out.
    pub metrics: Option<Vec<String>>,
    /// `none`: metrics that only count; `headers`: those that tell addresses and ports, too.
    pub packets: Visible,
    /// A filter as in pcap-filter(7) before every measurement.
    pub filter: Option<String>,
    /// Sessions that run at once.
    pub most_sessions: u32,
    /// Times of the week in UTC: `mon-fri 08:00-18:00`.
    pub times: Option<Vec<String>>,
    /// When they end: `2026-12-01`, `2026-12-01T18:00:00Z`.
    pub expires: Option<String>,
    /// May know which sensors a domain has, as peers must that measure with them.
    pub sensors: bool,
    /// May read what all sessions publish to Prometheus.
    pub scrape: bool,
    /// May change domains, sensors and peers, and sees all sessions.
    pub admin: bool,
    /// Of issuers: the public key that their credentials are signed with.
    pub key: Option<String>,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            domains: vec!["*".to_owned()],
            metrics: None,
            packets: Visible::None,
            filter: None,
            most_sessions: 16,
            times: None,
            expires: None,
            sensors: false,
            scrape: false,
            admin: false,
            key: None,
        }
    }
}

impl RightsTable for Rights {
    fn block(&self) -> Result<Block, String> {
        let functions = self.metrics.iter().flatten().map(|text| metric(text));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        if let Some(error) = self
            .filter
            .as_deref()
            .and_then(flowgauge_sensor::filter_error)
        {
            return Err(error);
        }
        let is_all = self.domains.iter().any(|name| name == "*");
        let limits = Limits {
            devices: (!is_all).then(|| self.domains.clone()),
            packets: Some(self.packets),
            functions: self.metrics.is_some().then_some(functions),
            filter: self.filter.clone(),
            most_flows: Some(self.most_sessions),
            ..Limits::default()
        };
        let limits = limits.during(self.times.as_deref(), self.expires.as_deref());
        Ok(limits.map_err(|error| error.to_string())?.block())
    }

    fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl Rights {
    /// What is wrong with them, and what to do about it.
    pub(crate) fn fault(&self, is_issuer: bool) -> Option<(String, &'static str)> {
        if let Err(message) = self.block() {
            let hint = "metrics = [\"loss(seconds<=60)\"], times = [\"mon-fri 08:00-18:00\"], expires = \"2027-01-01\"";
            return Some((message, hint));
        }
        let admits = is_issuer && self.admin;
        let admits = admits.then(|| {
            (
                "credentials cannot allow admin".to_owned(),
                "give it to users",
            )
        });
        self.fault_of_key(is_issuer).or(admits)
    }
}

/// A metric that may be measured, with bounds on its parameters: `loss(seconds<=60)`.
///
/// # Errors
/// It is none that there is.
pub fn metric(text: &str) -> Result<Function, String> {
    let function = Function::parse(text).map_err(|error| error.to_string())?;
    let name = &function.name;
    let mut modules = MODULES.iter();
    let module = modules.find(|module| module.name == *name);
    let module = module.ok_or_else(|| format!("there is no metric \"{name}\""))?;
    let is_known = |option: &str| option == "seconds" || option == "count" && module.has_count();
    let unknown = function
        .options()
        .map(|(option, _)| option)
        .find(|option| !is_known(option));
    match unknown {
        Some(option) => Err(format!("{name} has no parameter \"{option}\"")),
        None => Ok(function),
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

/// Whose rights are which.
pub(crate) type People = Access<Rights>;

/// Somebody with rights.
pub(crate) type Asker = flowgauge_credential::Asker<Rights>;

/// What somebody with rights may do with an element.
pub(crate) trait Measures {
    /// Whether a domain may be known.
    fn may_know(&self, domain: &str) -> bool;

    /// Whether a session may be opened: each domain is judged for itself, and always both of them.
    fn may_measure(&self, order: &Order) -> bool;

    /// The filters of a measurement: those that are forced first, the outermost before others.
    fn filters(&self, order: &Order) -> Vec<String>;

    /// Whether one more session may run, beside others with these accounts.
    ///
    /// # Errors
    /// No more may.
    fn has_place(&self, others: &[&[String]]) -> Result<(), Fault>;
}

impl Measures for Asker {
    fn may_know(&self, domain: &str) -> bool {
        let only = [&["device"], STANDING].concat();
        self.may(&Facts::default().on(domain), Some(&only)).is_ok()
    }

    fn may_measure(&self, order: &Order) -> bool {
        let declared = order.metric.declared();
        let allows = [&order.source, &order.destination].map(|domain| {
            let facts = declared.facts(domain, &order.parameters, order.period.longest());
            self.may(&facts, None).is_ok()
        });
        // What an element cannot do before a measurement is refused, not ignored.
        let mut layers = self.layers().iter();
        let asks_for_more = layers.any(|layer| {
            let duties = &layer.block.duties;
            duties.anonymize.is_some() || duties.packets_per_second.is_some()
        });
        allows == [true, true] && !asks_for_more
    }

    fn filters(&self, order: &Order) -> Vec<String> {
        let layers = self.layers().iter();
        let forced = layers.flat_map(|layer| &layer.block.duties.filters);
        forced.chain(&order.filters).cloned().collect()
    }

    fn has_place(&self, others: &[&[String]]) -> Result<(), Fault> {
        self.has_room(others).map_err(|(own, origin)| {
            let error = format!("you already have {own} running sessions, the maximum ({origin})");
            Fault::busy(error)
        })
    }
}
