//! Who may do what at an agent: tables of a file, and credentials.
//!
//! ```toml
//! [users.ops]                     # who has a certificate of this name
//! interfaces = ["eth0", "eth1"]
//! network = true
//!
//! [users.viewer]
//! requests = ["list", "show", "watch"]
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flowgauge_credential::{Access, Block, Limits, RightsTable};
use flowgauge_sensor::config::{ConfigError, parse_toml, read_text};
use flowgauge_sensor::function;
use serde::Deserialize;
use strum::VariantArray as _;

use crate::options::Action;

const HINT: &str = "tables are [users.NAME], by certificate name, with requests, interfaces, network and the other \
options of docs/links.md";

/// What somebody may do.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rights {
    requests: Vec<Action>,
    /// Stacks of it may send to other machines and listen.
    pub(super) network: bool,
    /// What its stacks may capture on; "*" is all.
    interfaces: Vec<String>,
    /// Components that its stacks may have, with bounds on their options.
    functions: Option<Vec<String>>,
    /// Stacks at once.
    most_stacks: Option<u32>,
    times: Option<Vec<String>>,
    expires: Option<String>,
    key: Option<String>,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            requests: Action::VARIANTS.to_vec(),
            network: false,
            interfaces: Vec::new(),
            functions: None,
            most_stacks: None,
            times: None,
            expires: None,
            key: None,
        }
    }
}

impl Rights {
    pub(super) fn may_capture(&self, interface: &str) -> bool {
        let mut allowed = self.interfaces.iter();
        allowed.any(|allowed| allowed == "*" || allowed == interface)
    }
}

impl RightsTable for Rights {
    fn block(&self) -> Result<Block, String> {
        let requests = self.requests.iter().map(<&str>::from).map(str::to_owned);
        let functions = self.functions.as_ref().map(|functions| {
            let functions = functions.iter().map(|text| function(text));
            functions.collect::<Result<Vec<_>, _>>()
        });
        let limits = Limits {
            requests: Some(requests.collect()),
            functions: functions.transpose()?,
            most_flows: self.most_stacks,
            ..Limits::default()
        };
        let limits = limits.during(self.times.as_deref(), self.expires.as_deref());
        Ok(limits.map_err(|error| error.to_string())?.block())
    }

    fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tables {
    users: BTreeMap<String, Rights>,
    issuers: BTreeMap<String, Rights>,
    revoked: Option<PathBuf>,
}

/// Reads a file of rights.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn read(path: &Path) -> Result<Access<Rights>, ConfigError> {
    parse(&read_text(path, HINT)?, path)
}

fn parse(text: &str, path: &Path) -> Result<Access<Rights>, ConfigError> {
    let tables: Tables = parse_toml(text, path)?;
    let wrong = |place: &str, message: String, hint: &str| {
        ConfigError::new(format!("{}: {place}", path.display()), message, hint)
    };
    let users = tables.users.iter().map(|it| ("users", it));
    let issuers = tables.issuers.iter().map(|it| ("issuers", it));
    for (table, (name, rights)) in users.chain(issuers) {
        let fault = rights.fault_of_key(table == "issuers");
        let fault = fault.or_else(|| rights.block().err().map(|found| (found, HINT)));
        if let Some((message, hint)) = fault {
            return Err(wrong(&format!("{table}.{name}"), message, hint));
        }
    }
    if tables.users.is_empty() && tables.issuers.is_empty() {
        return Err(wrong("users", "nobody may do anything".to_owned(), HINT));
    }
    let access = Access::new(
        None,
        tables.users,
        &tables.issuers,
        tables.revoked.as_deref(),
    );
    access.map_err(|error| {
        let hint = "one identifier per line; an empty file revokes nothing";
        wrong("revoked", error, hint)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use flowgauge_credential::{Asker, Who};

    use super::*;

    /// Somebody with the rights of a table.
    pub(crate) fn asker(table: &str) -> Asker<Rights> {
        let access = parse(&format!("[users.ops]\n{table}"), Path::new("rights")).unwrap();
        let who = Who {
            name: Some("ops".to_owned()),
            ..Who::default()
        };
        access.asker(who).unwrap()
    }

    #[test]
    fn tables_give_rights() {
        let ops = asker("network = true\ninterfaces = [\"eth0\", \"lo\"]").rights;
        assert_eq!(ops.requests, Action::VARIANTS);
        assert!(ops.network && ops.may_capture("lo") && !ops.may_capture("eth1"));
        let viewer = asker("requests = [\"list\"]").rights;
        assert!(!viewer.network && !viewer.may_capture("lo"));
        for (text, place) in [
            ("[users.a]\nfly = true", "rights:2"),
            ("[users.a]\nrequests = [\"fly\"]", "rights:2"),
            ("[users.a]\nfunctions = [\"fly\"]", "rights: users.a"),
            ("[users.a]\nkey = \"ed25519/00\"", "rights: users.a"),
            ("[users.a]\nexpires = \"soon\"", "rights: users.a"),
            ("[issuers.a]", "rights: issuers.a"),
            ("revoked = \"x\"", "rights: users"),
            ("revoked = \"/nowhere\"\n[users.a]", "rights: revoked"),
        ] {
            let error = parse(text, Path::new("rights")).unwrap_err();
            assert!(error.to_string().starts_with(place), "{text}: {error}");
        }
    }
}
