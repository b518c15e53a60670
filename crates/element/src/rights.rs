//! Who may ask for what: tables of the configuration and credentials, judged by the same engine as at sensors.
//!
//! The facts are the element's own: a domain is the request's device, a metric its component with `seconds` and `count` as options.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use flowgauge_credential::{
    Block, Credential, Facts, Function, IssuerName, Layer, Limits, Policy, Request, STANDING,
    Visible, Window, date_of,
};
use flowgauge_link::Peer;
use flowgauge_sensor::RevokedFile;
use parking_lot::RwLock;
use serde::Deserialize;

use crate::config::Config;
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

impl Rights {
    /// What they are in a policy.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn block(&self) -> Result<Block, String> {
        let said = |error: flowgauge_credential::Error| error.to_string();
        let functions = self.metrics.iter().flatten().map(|text| metric(text));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let times = self.times.iter().flatten().map(|text| Window::parse(text));
        let times = times.collect::<Result<Vec<_>, _>>().map_err(said)?;
        let expires = self.expires.as_deref().map(|text| date_of(text, None));
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
            times: times.concat(),
            expires: expires.transpose().map_err(said)?,
            ..Limits::default()
        };
        Ok(limits.block())
    }

    /// What is wrong with them, and what to do about it.
    pub(crate) fn fault(&self, is_issuer: bool) -> Option<(String, &'static str)> {
        if let Err(message) = self.block() {
            let hint = "metrics = [\"loss(seconds<=60)\"], times = [\"mon-fri 08:00-18:00\"], expires = \"2027-01-01\"";
            return Some((message, hint));
        }
        match (is_issuer, self.key.as_deref().map(IssuerName::parse)) {
            (true, Some(Ok(_))) if !self.admin => None,
            (true, Some(Ok(_))) => Some((
                "credentials cannot allow admin".to_owned(),
                "give it to users",
            )),
            (true, _) => {
                let hint = "flowgauge credential key NAME makes one, and prints the line";
                Some(("it has no key of an issuer".to_owned(), hint))
            }
            (false, None) => None,
            (false, Some(_)) => Some((
                "users have no key".to_owned(),
                "issuers.NAME has the key of an issuer",
            )),
        }
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
pub(crate) struct People {
    anonymous: Option<Rights>,
    users: BTreeMap<String, Rights>,
    issuers: BTreeMap<String, (IssuerName, Rights)>,
    revoked: RwLock<RevokedFile>,
}

/// Who asks, as it is kept with a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
pub(crate) struct Who {
    /// The name in the certificate.
    pub(crate) name: Option<String>,
    /// The key that was shown.
    pub(crate) key: Option<String>,
    /// The credential that was brought: a secret.
    pub(crate) credential: Option<String>,
}

/// Somebody with rights.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) who: Who,
    /// Who sees a session: with a credential, whoever has the same one.
    pub(crate) owner: String,
    pub(crate) rights: Rights,
    policy: Policy,
    by: Facts,
}

impl Who {
    pub(crate) fn of(peer: Option<&Peer>, credential: Option<String>) -> Who {
        Who {
            name: peer.map(|peer| peer.name.clone()),
            key: peer.map(|peer| peer.key.clone()),
            credential,
        }
    }

    /// What sessions are counted by: the identifiers of the credential's blocks, those of the issuer first; without one the name.
    pub(crate) fn accounts(&self) -> Vec<String> {
        let credential = self.credential.as_deref().map(Credential::parse);
        match credential {
            Some(Ok(credential)) => credential.ids().to_vec(),
            _ => vec![self.name.clone().unwrap_or_default()],
        }
    }
}

impl People {
    pub(crate) fn new(config: &Config) -> Result<People, String> {
        let issuers = config.issuers.iter().filter_map(|(name, rights)| {
            let key = IssuerName::parse(rights.key.as_deref()?).ok()?;
            Some((name.clone(), (key, rights.clone())))
        });
        Ok(People {
            anonymous: config.anonymous.clone(),
            users: config.users.clone(),
            issuers: issuers.collect(),
            revoked: RwLock::new(RevokedFile::open(config.revoked.as_deref())?),
        })
    }

    /// Who asks, with the rights that they have now.
    ///
    /// # Errors
    /// They have none, and why: nothing of what they ask for.
    pub(crate) fn asker(&self, who: Who) -> Result<Asker, Fault> {
        let refused = |error: String, hint: &str| Fault::new(StatusCode::UNAUTHORIZED, error, hint);
        let credential = who.credential.as_deref().map(Credential::parse).transpose();
        let credential = credential.map_err(|error| refused(error.to_string(), error.hint()))?;
        let (origin, owner, rights) = match (&credential, &who.name) {
            (Some(credential), _) => {
                let mut issuers = self.issuers.iter();
                let issuer = issuers.find(|(_, (key, _))| credential.is_of(key));
                let Some((name, (_, rights))) = issuer else {
                    let error = "no issuer that this element knows signed this credential";
                    let hint = "the tables issuers of the element's configuration have their keys";
                    return Err(refused(error.to_owned(), hint));
                };
                if self.is_revoked(credential) {
                    let hint = "ask its issuer for another one";
                    return Err(refused("this credential was revoked".to_owned(), hint));
                }
                let last = credential.ids().last().cloned().unwrap_or_default();
                (
                    format!("issuers.{name}"),
                    format!("@{name}:{last}"),
                    rights.clone(),
                )
            }
            (None, Some(name)) => {
                let found = self.users.get(name).or_else(|| self.users.get("*"));
                let Some(rights) = found else {
                    let hint = "the tables users of the element's configuration have the rights";
                    return Err(refused(format!("{name} has no rights here"), hint));
                };
                (format!("users.{name}"), name.clone(), rights.clone())
            }
            (None, None) if self.anonymous.is_some() => {
                let rights = self.anonymous.clone().unwrap_or_default();
                ("anonymous".to_owned(), String::new(), rights)
            }
            (None, None) => {
                let hint = "show a certificate of the authority (curl --cert, --key), or bring a credential: \
                            Authorization: Bearer TEXT";
                return Err(refused("who asks is not known".to_owned(), hint));
            }
        };
        let block = rights
            .block()
            .map_err(|error| refused(error, "see the configuration"))?;
        let layer = Layer {
            origin,
            id: None,
            block,
        };
        let layers = [layer].into_iter();
        let layers = layers.chain(credential.iter().flat_map(Credential::layers));
        let by = match &who.name {
            Some(name) => Facts::default().certificate(name, who.key.as_deref()),
            None => Facts::default(),
        };
        let asker = Asker {
            owner,
            rights,
            policy: Policy::new(layers.collect()),
            by,
            who,
        };
        let standing = asker.policy.of_facts(STANDING);
        let denied = standing.judge(&asker.request(&Facts::default())).err();
        match denied {
            Some(denial) => Err(refused(
                denial.to_string(),
                "flowgauge credential show says whose it is, and until when",
            )),
            None => Ok(asker),
        }
    }

    fn is_revoked(&self, credential: &Credential) -> bool {
        let refreshed = self.revoked.read().refreshed();
        if let Some((file, _)) = refreshed {
            *self.revoked.write() = file;
        }
        let revoked = &self.revoked.read().revoked;
        credential.ids().iter().any(|id| revoked.has(id))
    }
}

impl Asker {
    fn request<'a>(&'a self, facts: &'a Facts) -> Request<'a> {
        Request {
            facts,
            by: &self.by,
            time: now() as u64,
        }
    }

    /// Whether a domain may be known.
    pub(crate) fn may_know(&self, domain: &str) -> bool {
        let policy = self.policy.of_facts(&[&["device"], STANDING].concat());
        policy
            .judge(&self.request(&Facts::default().on(domain)))
            .is_ok()
    }

    /// Whether a session may be opened: each domain is judged for itself, and always both of them.
    pub(crate) fn may_measure(&self, order: &Order) -> bool {
        let declared = order.metric.declared();
        let allows = [&order.source, &order.destination].map(|domain| {
            let facts = declared.facts(domain, &order.parameters, order.period.longest());
            self.policy.judge(&self.request(&facts)).is_ok()
        });
        allows == [true, true] && !self.asks_for_more()
    }

    /// Whether a block asks for what an element cannot do before a measurement: it is refused, not ignored.
    fn asks_for_more(&self) -> bool {
        let mut layers = self.policy.layers().iter();
        layers.any(|layer| {
            let duties = &layer.block.duties;
            duties.anonymize.is_some() || duties.packets_per_second.is_some()
        })
    }

    /// The filters of a measurement: those that are forced first, the outermost before others.
    pub(crate) fn filters(&self, order: &Order) -> Vec<String> {
        let layers = self.policy.layers().iter();
        let forced = layers.flat_map(|layer| &layer.block.duties.filters);
        forced.chain(&order.filters).cloned().collect()
    }

    /// Whether one more session may run, beside others with these accounts: the table bounds all that was made of one credential, a block
    /// all that has it.
    ///
    /// # Errors
    /// No more may.
    pub(crate) fn has_room(&self, others: &[&[String]]) -> Result<(), Fault> {
        let accounts = self.who.accounts();
        for layer in self.policy.layers() {
            let account = layer.id.as_ref().or(accounts.first());
            let (Some(most), Some(account)) = (layer.block.duties.most_flows, account) else {
                continue;
            };
            let own = others.iter().filter(|it| it.contains(account)).count();
            if own >= most as usize {
                let error = format!(
                    "you have {own} sessions that run, and may have no more ({})",
                    layer.origin
                );
                return Err(Fault::busy(error));
            }
        }
        Ok(())
    }
}
