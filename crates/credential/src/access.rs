//! Who has which rights with a service of other machines: tables by the names of certificates, and credentials.

use core::fmt;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use crate::check::STANDING;
use crate::limits::Block;
use crate::policy::{Denial, Layer, Policy};
use crate::request::{Facts, Request};
use crate::revoked::RevokedFile;
use crate::token::{Credential, IssuerName};

/// What to do where a table of an issuer has no key.
const KEY: &str = "flowgauge credential key NAME makes one, and prints the line";

/// A table of rights.
pub trait RightsTable: Clone {
    /// What they are in a policy.
    ///
    /// # Errors
    /// What is wrong with them.
    fn block(&self) -> Result<Block, String>;

    /// Of issuers: the public key that their credentials are signed with.
    fn key(&self) -> Option<&str>;

    /// What is wrong with their key, and what to do about it.
    fn fault_of_key(&self, is_issuer: bool) -> Option<(String, &'static str)> {
        match (is_issuer, self.key().map(IssuerName::parse)) {
            (true, Some(Ok(_))) | (false, None) => None,
            (true, _) => Some(("it has no key of an issuer".to_owned(), KEY)),
            (false, Some(_)) => {
                let hint = "issuers.NAME has the key of an issuer";
                Some(("users have no key".to_owned(), hint))
            }
        }
    }
}

/// Whose rights are which.
#[derive(Debug)]
pub struct Access<R> {
    anonymous: Option<R>,
    users: BTreeMap<String, R>,
    issuers: BTreeMap<String, (IssuerName, R)>,
    revoked: RwLock<RevokedFile>,
}

/// Who asks, as it can be kept with what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Who {
    /// The name in the certificate.
    pub name: Option<String>,
    /// SHA-256 of the key that was shown.
    pub key: Option<String>,
    /// The credential that was brought: a secret.
    pub credential: Option<String>,
}

/// Why somebody has no rights, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRights {
    /// Why.
    pub error: String,
    /// What to do.
    pub hint: &'static str,
}

impl fmt::Display for NoRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

/// Somebody with rights.
#[derive(Clone, Debug)]
pub struct Asker<R> {
    /// Who it is.
    pub who: Who,
    /// Whose things these are: with a credential, of whoever has the same one.
    pub owner: String,
    /// Those of the table.
    pub rights: R,
    policy: Policy,
    by: Facts,
}

impl Who {
    /// What is counted by: the identifiers of the credential's blocks, those of the issuer first; without one the name.
    pub fn accounts(&self) -> Vec<String> {
        let credential = self.credential.as_deref().map(Credential::parse);
        match credential {
            Some(Ok(credential)) => credential.ids().to_vec(),
            _ => vec![self.name.clone().unwrap_or_default()],
        }
    }

    /// By what shares are had and things kept: the name that somebody has shown, else the credential, whatever was made of it.
    pub fn person(&self) -> String {
        match (&self.name, &self.credential) {
            (Some(name), _) => name.clone(),
            (None, Some(_)) => format!("@{}", self.accounts().swap_remove(0)),
            (None, None) => "@anonymous".to_owned(),
        }
    }
}

impl<R: RightsTable> Access<R> {
    /// By the tables of a configuration; `*` among users is everybody else with a certificate, and `anonymous` who shows nothing.
    ///
    /// # Errors
    /// The file of what was revoked cannot be read.
    pub fn new(
        anonymous: Option<R>,
        users: BTreeMap<String, R>,
        issuers: &BTreeMap<String, R>,
        revoked: Option<&Path>,
    ) -> Result<Access<R>, String> {
        let issuers = issuers.iter().filter_map(|(name, rights)| {
            let key = IssuerName::parse(rights.key()?).ok()?;
            Some((name.clone(), (key, rights.clone())))
        });
        Ok(Access {
            anonymous,
            users,
            issuers: issuers.collect(),
            revoked: RwLock::new(RevokedFile::open(revoked)?),
        })
    }

    /// The names of certificates that have rights; none where there are others that may have some.
    pub fn names(&self) -> Option<impl Iterator<Item = &String>> {
        let is_open = self.users.contains_key("*") || !self.issuers.is_empty();
        (!is_open).then(|| self.users.keys())
    }

    /// Who asks, with the rights that they have now.
    ///
    /// # Errors
    /// They have none, and why: nothing of what they ask for.
    pub fn asker(&self, who: Who) -> Result<Asker<R>, NoRights> {
        let refused = |error: String, hint| Err(NoRights { error, hint });
        let credential = who.credential.as_deref().map(Credential::parse).transpose();
        let credential = match credential {
            Ok(credential) => credential,
            Err(error) => return refused(error.to_string(), error.hint()),
        };
        let (origin, owner, rights) = match (&credential, &who.name) {
            (Some(credential), _) => {
                let mut issuers = self.issuers.iter();
                let issuer = issuers.find(|(_, (key, _))| credential.is_of(key));
                let Some((name, (_, rights))) = issuer else {
                    let error = "no issuer that is known here signed this credential";
                    let hint = "the tables issuers of the configuration have their keys";
                    return refused(error.to_owned(), hint);
                };
                if self.is_revoked(credential) {
                    let hint = "ask its issuer for another one";
                    return refused("this credential was revoked".to_owned(), hint);
                }
                let last = credential.ids().last().map_or("", String::as_str);
                (format!("issuers.{name}"), format!("@{name}:{last}"), rights)
            }
            (None, Some(name)) => {
                let found = self.users.get(name).or_else(|| self.users.get("*"));
                let Some(rights) = found else {
                    let hint = "the tables users of the configuration have the rights";
                    return refused(format!("{name} has no rights here"), hint);
                };
                (format!("users.{name}"), name.clone(), rights)
            }
            (None, None) => {
                let Some(rights) = &self.anonymous else {
                    let hint = "show a certificate of the authority (curl --cert, --key), or bring a credential: \
                                Authorization: Bearer TEXT";
                    return refused("who asks is not known".to_owned(), hint);
                };
                ("anonymous".to_owned(), String::new(), rights)
            }
        };
        let block = match rights.block() {
            Ok(block) => block,
            Err(error) => return refused(error, "see the configuration"),
        };
        let layer = Layer {
            origin,
            id: None,
            block,
        };
        let layers = [layer].into_iter();
        let layers = layers.chain(credential.iter().flat_map(Credential::layers));
        let name = who.name.as_deref();
        let by = name.map(|name| Facts::default().certificate(name, who.key.as_deref()));
        let asker = Asker {
            owner,
            rights: rights.clone(),
            policy: Policy::new(layers.collect()),
            by: by.unwrap_or_default(),
            who,
        };
        match asker.may(&Facts::default(), Some(STANDING)) {
            Ok(()) => Ok(asker),
            Err(denial) => refused(
                denial.to_string(),
                "flowgauge credential show says whose it is, and until when",
            ),
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

impl<R> Asker<R> {
    /// Whether something may be done; `only`: by the checks that ask for nothing but these facts.
    ///
    /// # Errors
    /// Why not.
    pub fn may(&self, facts: &Facts, only: Option<&[&str]>) -> Result<(), Denial> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let request = Request {
            facts,
            by: &self.by,
            time: now.map_or(0, |since| since.as_secs()),
        };
        match only {
            None => self.policy.judge(&request),
            Some(only) => self.policy.of_facts(only).judge(&request),
        }
    }

    /// Its layers, the outermost first.
    pub fn layers(&self) -> &[Layer] {
        self.policy.layers()
    }

    /// Whether one more may run (`most_flows`), beside others with these accounts: the table bounds all that was made of one credential, a
    /// block all that has it.
    ///
    /// # Errors
    /// No more may: how many there are, and what bounds them.
    pub fn has_room(&self, others: &[&[String]]) -> Result<(), (usize, &str)> {
        let accounts = self.who.accounts();
        for layer in self.policy.layers() {
            let account = layer.id.as_ref().or(accounts.first());
            let (Some(most), Some(account)) = (layer.block.duties.most_flows, account) else {
                continue;
            };
            let own = others.iter().filter(|it| it.contains(account)).count();
            if own >= most as usize {
                return Err((own, &layer.origin));
            }
        }
        Ok(())
    }
}
