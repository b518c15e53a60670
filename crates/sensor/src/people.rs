//! Whose rights are which: tables of the configuration by user, and credentials that users bring.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use flowgauge_credential::{
    Credential, Facts, IssuerName, Layer, Policy, RevokedFile, RightsTable as _,
};
use flowgauge_sensor_client::protocol::Refusal;
use flowgauge_sys::local::Peer;
use flowgauge_sys::privileges;
use parking_lot::RwLock;

use crate::accounts::Who;
use crate::config::Config;
use crate::granted::Granted;
use crate::rights::Rights;

/// Users of other machines, and credentials, whose names are kept.
const MOST_NAMES: usize = 1 << 16;
/// Digits of its identifier by which a credential is known in lists.
const SHOWN_DIGITS: usize = 12;
const NO_RIGHTS: &str = "you have no rights here";

/// Whose rights are which.
pub(crate) struct People {
    /// Who started the sensor; root may become somebody that others are, too.
    owner: u32,
    tables: RwLock<Tables>,
    /// Users of other machines, and credentials, that have come so far: their numbers are their places.
    names: RwLock<Vec<Arc<str>>>,
}

/// Rights by the numbers of users, and of groups in the order of their names.
pub(crate) struct Tables {
    users: BTreeMap<u32, Granted>,
    groups: Vec<(u32, Granted)>,
    /// Users who may speak for those of other machines, whose rights are these.
    agents: Vec<u32>,
    remotes: BTreeMap<String, Granted>,
    /// Whose credentials are taken, by their names.
    issuers: BTreeMap<String, (IssuerName, Granted)>,
    revoked: RevokedFile,
}

/// A credential that somebody brought.
#[derive(Debug)]
pub(crate) struct Brought {
    credential: Credential,
    issuer: String,
    key: IssuerName,
    /// The number of all credentials that were made of the same one.
    pub(crate) number: u32,
}

impl Brought {
    /// Whether a block of it has this identifier.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.credential.ids().iter().any(|it| it == id)
    }
}

impl Tables {
    /// # Errors
    /// The file of what was revoked cannot be read.
    pub(crate) fn of(config: &Config) -> Result<Tables, String> {
        let files = Arc::new(config.anonymization.clone());
        let granted =
            |table: &str, name: &str, rights: &Rights| granted(table, name, rights, &files);
        let users = config.users.iter().filter_map(|(name, rights)| {
            let number = privileges::user_id(name).ok()?;
            Some((number, granted("users", name, rights)))
        });
        let groups = config.groups.iter().filter_map(|(name, rights)| {
            let number = privileges::group_id(name).ok()?;
            Some((number, granted("groups", name, rights)))
        });
        let remotes = config.remotes.iter();
        let remotes =
            remotes.map(|(name, rights)| (name.clone(), granted("remotes", name, rights)));
        let issuers = config.issuers.iter().filter_map(|(name, rights)| {
            let key = IssuerName::parse(rights.key.as_deref()?).ok()?;
            Some((name.clone(), (key, granted("issuers", name, rights))))
        });
        Ok(Tables {
            users: users.collect(),
            groups: groups.collect(),
            agents: (config.agents.iter())
                .filter_map(|name| privileges::user_id(name).ok())
                .collect(),
            remotes: remotes.collect(),
            issuers: issuers.collect(),
            revoked: RevokedFile::open(config.revoked.as_deref())?,
        })
    }
}

/// What a table grants.
fn granted(
    table: &str,
    name: &str,
    rights: &Rights,
    files: &Arc<BTreeMap<String, PathBuf>>,
) -> Granted {
    let origin = format!("{table}.{name}");
    let block = match rights.block() {
        Ok(block) => block,
        // It was checked with the configuration.
        Err(error) => return Granted::nothing(format!("{origin}: {error}")),
    };
    let layer = Layer {
        origin,
        id: None,
        block,
    };
    Granted {
        policy: Arc::new(Policy::new(vec![layer])),
        by: Arc::default(),
        memory: rights.memory,
        cpu: rights.cpu,
        inject: rights.inject,
        admin: rights.admin,
        nothing: None,
        anonymization: Arc::clone(files),
    }
}

impl People {
    /// # Errors
    /// The file of what was revoked cannot be read.
    pub(crate) fn new(owner: u32, config: &Config) -> Result<People, String> {
        Ok(People {
            owner,
            tables: RwLock::new(Tables::of(config)?),
            names: RwLock::default(),
        })
    }

    /// Whether somebody may speak for users of other machines.
    pub(crate) fn is_agent(&self, peer: Peer) -> bool {
        peer.user == 0 || peer.user == self.owner || self.tables.read().agents.contains(&peer.user)
    }

    /// Whether there are credentials that would be taken.
    pub(crate) fn has_issuers(&self) -> bool {
        !self.tables.read().issuers.is_empty()
    }

    /// The number of a user of another machine, or of a credential. Nothing where there are too many.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let names = &mut *self.names.write();
        let known = names.iter().position(|known| **known == *name);
        let at = match known {
            None if names.len() == MOST_NAMES => return None,
            None => {
                names.push(name.into());
                names.len() - 1
            }
            Some(at) => at,
        };
        u32::try_from(at).ok()
    }

    /// The name of a user of another machine, or of a credential.
    pub(crate) fn name(&self, who: Who) -> Option<String> {
        let names = self.names.read();
        let name = names.get(usize::try_from(who.remote_number()?).ok()?)?;
        Some(name.to_string())
    }

    /// What a user of another machine may do.
    pub(crate) fn rights_of(&self, name: &str) -> Granted {
        let tables = self.tables.read();
        let found = tables.remotes.get(name);
        let found = found.or_else(|| tables.remotes.get("*"));
        found.map_or_else(|| Granted::nothing(NO_RIGHTS), Granted::clone)
    }

    /// Takes the tables anew.
    pub(crate) fn change(&self, tables: Tables) {
        *self.tables.write() = tables;
    }

    /// Looks whether further credentials were revoked.
    pub(crate) fn refresh_revoked(&self) -> bool {
        let file = self.tables.read().revoked.clone();
        // Nobody waits for the file.
        let Some((file, is_more)) = file.refreshed() else {
            return false;
        };
        let now = &mut self.tables.write().revoked;
        if now.is_of(&file) {
            *now = file;
        }
        is_more
    }

    pub(crate) fn rights(&self, peer: Peer, groups: &[u32]) -> Granted {
        if peer.user == 0 || peer.user == self.owner {
            return Granted::all();
        }
        let tables = self.tables.read();
        let is_in = |id: u32| id == peer.group || groups.contains(&id);
        let of_groups = || tables.groups.iter().find(|(id, _)| is_in(*id));
        let found = tables.users.get(&peer.user);
        let found = found.or_else(|| of_groups().map(|(_, granted)| granted));
        found.map_or_else(|| Granted::nothing(NO_RIGHTS), Granted::clone)
    }

    /// Takes a credential that somebody brings.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(crate) fn take(&self, text: &str) -> Result<Brought, Refusal> {
        let refused = |error: String, hint: &str| Refusal::with_hint(error, hint);
        let credential = Credential::parse(text);
        let credential = credential.map_err(|error| refused(error.to_string(), error.hint()))?;
        let tables = self.tables.read();
        let mut issuers = tables.issuers.iter();
        let found = issuers.find(|(_, (key, _))| credential.is_of(key));
        let Some((issuer, (key, _))) = found.map(|(name, found)| (name.clone(), found)) else {
            let error = "this credential is not signed by a known issuer".to_owned();
            let hint = "known keys are in the tables issuers of the sensor's configuration";
            return Err(refused(error, hint));
        };
        let key = *key;
        drop(tables);
        let shown: String = credential.ids()[0].chars().take(SHOWN_DIGITS).collect();
        let number = self.number(&format!("{issuer}:{shown}"));
        Ok(Brought {
            number: number.ok_or_else(|| Refusal::new("there are too many users"))?,
            credential,
            issuer,
            key,
        })
    }

    /// What a credential allows whoever brings it.
    pub(crate) fn granted_by(&self, brought: &Brought, by: &Arc<Facts>) -> Granted {
        let tables = self.tables.read();
        let issuer = tables.issuers.get(&brought.issuer);
        let Some((_, granted)) = issuer.filter(|(key, _)| *key == brought.key) else {
            return Granted::nothing(format!(
                "credentials of {} are no longer accepted",
                brought.issuer
            ));
        };
        let mut ids = brought.credential.ids().iter();
        if let Some(at) = ids.position(|id| tables.revoked.revoked.has(id)) {
            return Granted::nothing(format!("block {at} of the credential was revoked"));
        }
        let outer = granted.policy.layers().iter().cloned();
        let layers = outer.chain(brought.credential.layers());
        Granted {
            policy: Arc::new(Policy::new(layers.collect())),
            by: Arc::clone(by),
            ..granted.clone()
        }
    }
}
