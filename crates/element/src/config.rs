//! The configuration: a file in TOML.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use flowgauge_credential::RevokedFile;
use flowgauge_link::https_client_of;
use flowgauge_sensor::config::{ConfigError, parse_toml, read_text};
use flowgauge_sensor_client::DEFAULT_SOCKET;
use flowgauge_sys::files::Folder;
use serde::Deserialize;

use crate::client::Url;
use crate::probes::ProbesConfig;
use crate::rights::Rights;

/// Where the configuration is, unless something else is said.
pub const DEFAULT_FILE: &str = "/etc/flowgauge/element.toml";
const CHECK: &str = "flowgauge element check --config FILE checks a configuration";

/// What an element does.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where it listens.
    pub listen: String,
    /// Without TLS, on an address of this machine alone.
    pub plain: bool,
    /// The folder of keys; the usual one, where it is left out.
    pub keys: Option<PathBuf>,
    /// The name of its own key, where there are several in the folder.
    pub identity: Option<String>,
    /// The database.
    pub database: PathBuf,
    /// The socket of this machine's sensor.
    pub socket: PathBuf,
    /// Sessions at once, of all users.
    pub most_sessions: u32,
    /// Measurements at once.
    pub most_measurements: u32,
    /// Days that results are kept.
    pub keep_days: u32,
    /// Bytes of the database.
    pub most_bytes: u64,
    /// The folder that the plug-in `file` writes to.
    pub files: Option<PathBuf>,
    /// Active probes.
    pub probes: ProbesConfig,
    /// Where the plug-in `push` sends to, by name.
    pub push: BTreeMap<String, String>,
    /// Certificates (PEM) of the authorities that sign those of targets of `push`; without it, the authority of links does.
    pub push_authority: Option<PathBuf>,
    /// Without TLS: rights of who brings no credential; none, where it is left out.
    pub anonymous: Option<Rights>,
    /// Rights by the name in the certificate; `*` is everybody else with one.
    pub users: BTreeMap<String, Rights>,
    /// Who issues credentials, and what they can allow at most.
    pub issuers: BTreeMap<String, Rights>,
    /// A file with the identifiers of credentials that were revoked.
    pub revoked: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: "[::]:2280".to_owned(),
            plain: false,
            keys: None,
            identity: None,
            database: PathBuf::from("/var/lib/flowgauge/element.db"),
            socket: PathBuf::from(DEFAULT_SOCKET),
            most_sessions: 1000,
            most_measurements: 16,
            keep_days: 30,
            most_bytes: 256 << 20,
            files: None,
            probes: ProbesConfig::default(),
            push: BTreeMap::new(),
            push_authority: None,
            anonymous: None,
            users: BTreeMap::new(),
            issuers: BTreeMap::new(),
            revoked: None,
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = read_text(path, CHECK)?;
        let config: Config = parse_toml(&text, path)?;
        match config.fault() {
            None => Ok(config),
            Some((option, message, hint)) => {
                let place = format!("{}: {option}", path.display());
                Err(ConfigError::new(place, message, hint))
            }
        }
    }

    /// What is wrong with it: the option, why, and what to do.
    fn fault(&self) -> Option<(String, String, &'static str)> {
        let found = |option: &str, message: String, hint| Some((option.to_owned(), message, hint));
        let addresses = match self.listen.to_socket_addrs() {
            Ok(addresses) => addresses.collect::<Vec<SocketAddr>>(),
            Err(error) => {
                let message = format!("\"{}\": {error}", self.listen);
                return found("listen", message, "write 192.0.2.1:2280 or [::]:2280");
            }
        };
        if self.plain && !addresses.iter().all(|address| address.ip().is_loopback()) {
            let message = format!("{} is reached from other machines", self.listen);
            return found("plain", message, "without TLS, listen = \"127.0.0.1:2280\"");
        }
        if !self.plain && self.anonymous.is_some() {
            let message = "it is for plain = true".to_owned();
            return found(
                "anonymous",
                message,
                "with TLS, users.NAME has the rights of a certificate",
            );
        }
        for (option, value, least, most) in [
            ("most_sessions", self.most_sessions.into(), 1, 100_000),
            ("most_measurements", self.most_measurements.into(), 1, 256),
            ("keep_days", self.keep_days.into(), 1, 3650),
            ("most_bytes", self.most_bytes, 4 << 20, 1 << 40),
            ("probes.per_second", self.probes.per_second.into(), 1, 100),
        ] {
            if !(least..=most).contains(&value) {
                let message = format!("{value} is not {least} to {most}");
                return found(option, message, "omit it for the default");
            }
        }
        if let Some(folder) = &self.files
            && !Folder::anywhere().is_folder(folder)
        {
            let message = format!("{} is not a folder", folder.display());
            return found(
                "files",
                message,
                "create it, writable for the element's user",
            );
        }
        for (name, url) in &self.push {
            if let Err(message) = Url::parse(url) {
                let hint = "write https://HOST:PORT/PATH, or http:// without TLS";
                return found(&format!("push.{name}"), message, hint);
            }
        }
        if let Some(path) = &self.push_authority
            && let Err(error) = https_client_of(path)
        {
            let hint = "a file with certificates in PEM; those that the system trusts are in /etc/ssl/certs/ca-certificates.crt";
            return found("push_authority", error.to_string(), hint);
        }
        let users = self
            .users
            .iter()
            .map(|(name, rights)| (format!("users.{name}"), rights, false));
        let issuers = self
            .issuers
            .iter()
            .map(|(name, rights)| (format!("issuers.{name}"), rights, true));
        let anonymous = self
            .anonymous
            .iter()
            .map(|rights| ("anonymous".to_owned(), rights, false));
        for (option, rights, is_issuer) in users.chain(issuers).chain(anonymous) {
            if let Some((message, hint)) = rights.fault(is_issuer) {
                return found(&option, message, hint);
            }
        }
        let revoked = RevokedFile::open(self.revoked.as_deref());
        let error = revoked.err()?;
        found(
            "revoked",
            error,
            "one identifier per line; an empty file revokes nothing",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_shows_the_defaults() {
        let text = include_str!("../../../packaging/element.toml");
        let path = Path::new("element.toml");
        assert_eq!(parse_toml::<Config>(text, path).unwrap(), Config::default());
        let options = text.lines().filter_map(|line| line.strip_prefix('#'));
        let options = options.filter(|line| line.starts_with('[') || line.contains(" = "));
        let shown: String = options
            .filter(|line| !line.starts_with(' '))
            .map(|line| format!("{line}\n"))
            .collect();
        let shown: Config = parse_toml(&shown, path).unwrap();
        let expected = Config {
            files: shown.files.clone(),
            push: shown.push.clone(),
            push_authority: shown.push_authority.clone(),
            users: shown.users.clone(),
            issuers: shown.issuers.clone(),
            anonymous: shown.anonymous.clone(),
            revoked: shown.revoked.clone(),
            keys: shown.keys.clone(),
            identity: shown.identity.clone(),
            ..Config::default()
        };
        assert_eq!(shown, expected);
        assert_eq!(
            shown.users["alice"],
            Rights {
                metrics: shown.users["alice"].metrics.clone(),
                filter: shown.users["alice"].filter.clone(),
                times: shown.users["alice"].times.clone(),
                expires: shown.users["alice"].expires.clone(),
                ..Rights::default()
            }
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_option() {
        for (text, option) in [
            ("listen = \"nowhere\"", "listen"),
            ("listen = \"0.0.0.0:1\"\nplain = true", "plain"),
            ("most_measurements = 0", "most_measurements"),
            ("files = \"/nonexistent\"", "files"),
            ("[push]\na = \"ftp://host/\"", "push.a"),
            ("push_authority = \"/nonexistent\"", "push_authority"),
            ("push_authority = \"/dev/null\"", "push_authority"),
            ("[anonymous]", "anonymous"),
            ("[users.a]\nkey = \"ed25519/00\"", "users.a"),
            ("[users.a]\nmetrics = [\"loss(\"]", "users.a"),
            ("[issuers.a]", "issuers.a"),
            ("revoked = \"/nonexistent\"", "revoked"),
        ] {
            let config: Config = parse_toml(text, Path::new("e.toml")).unwrap();
            assert_eq!(config.fault().unwrap().0, option, "{text}");
        }
    }
}
