//! Plug-ins that results go to: a file, an address of HTTP, Prometheus.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use axum::http::Method;
use flowgauge_link::{Identity, https_client_of};
use flowgauge_sys::files::{Folder, How};
use serde_json::{Value, json};

use crate::client::{self, Url};
use crate::element::Inner;
use crate::fault::Fault;
use crate::modules::MODULES;
use crate::rights::Asker;
use crate::session::{Order, Outcome};
use crate::store::Kept;

/// How long a target of `push` may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A file of results, how many somebody has, and how many have some.
const MOST_BYTES: u64 = 64 << 20;
const MOST_FILES: usize = 100;
const MOST_FOLDERS: usize = 1000;
/// Letters of a name.
const MOST_NAME: usize = 63;
/// Results that Prometheus is shown; the oldest go.
const MOST_SERIES: usize = 1000;

/// Whether a session can be published as it asks for.
///
/// # Errors
/// There is no such plug-in or target.
pub(crate) fn check(inner: &Inner, order: &Order) -> Result<(), Fault> {
    for publication in &order.publish {
        let is_good = match publication.split_once(':') {
            None => publication == "prometheus",
            Some(("file", name)) => inner.config.files.is_some() && is_name(name),
            Some(("push", target)) => inner.config.push.contains_key(target),
            Some(_) => false,
        };
        if !is_good {
            let hint = "prometheus; file:NAME, if the element has a folder (option files); push:TARGET, from its \
            table push";
            let what = format!("\"{}\" is not a publication", publication.escape_debug());
            return Err(Fault::invalid("publish", what, hint));
        }
    }
    Ok(())
}

/// Whether a text can be a name: of a file in one folder, of a domain, a sensor or a peer.
pub(crate) fn is_name(name: &str) -> bool {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=MOST_NAME).contains(&name.len()) && name.chars().all(is_good) && !name.starts_with('.')
}

/// Publishes a result.
///
/// # Errors
/// What of it failed; the others got it.
pub(crate) async fn publish(
    inner: &Inner,
    kept: &Kept,
    (measured, order): (&str, &Order),
    outcome: &Outcome,
) -> Result<(), String> {
    let mut failed = None;
    for publication in &kept.session.order.publish {
        let session = &kept.session;
        let body = json!({"session": session.id, "order": session.order, "result": outcome});
        let done = match publication.split_once(':') {
            Some(("file", name)) => append(inner, (&kept.who.person(), name), &body),
            Some(("push", target)) => push(inner, target, &body).await,
            _ => {
                inner
                    .series
                    .lock()
                    .put(&kept.owner, (measured, order), outcome);
                Ok(())
            }
        };
        if let Err(error) = done {
            failed = Some(format!("{publication}: {error}"));
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Appends a line to a file in somebody's folder.
fn append(inner: &Inner, (person, name): (&str, &str), body: &Value) -> Result<(), String> {
    let folder = inner
        .config
        .files
        .as_deref()
        .ok_or("there is no folder for files")?;
    let written = || {
        let all = Folder::beneath(folder)?;
        // Identifiers of credentials are long.
        let person = person.get(..MOST_NAME).unwrap_or(person);
        if !is_name(person.strip_prefix('@').unwrap_or(person)) {
            return Err(std::io::Error::other("the user has no folder name"));
        }
        let own = Path::new(person);
        if !all.has(own) {
            if all.list(Path::new("."))?.len() >= MOST_FOLDERS {
                return Err(std::io::Error::other("there are too many folders"));
            }
            all.make_folder(own, 0o750)?;
        }
        let path = own.join(name);
        if !all.has(&path) && all.list(own)?.len() >= MOST_FILES {
            return Err(std::io::Error::other("there are too many files"));
        }
        let mut file = all.open(
            &path,
            How::append().mode(0o640).without_link().without_waiting(),
        )?;
        if file.metadata()?.len() > MOST_BYTES {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        file.write_all(format!("{body}\n").as_bytes())
    };
    written().map_err(|error| error.to_string())
}

/// Sends a result where the configuration says: sessions choose among its targets, never an address.
async fn push(inner: &Inner, target: &str, body: &Value) -> Result<(), String> {
    let url = inner
        .config
        .push
        .get(target)
        .ok_or("there is no such target")?;
    let request = (Method::POST, Vec::new(), body.to_string().into_bytes());
    let url = Url::parse(url)?;
    // The file may have changed since the last one.
    let tls = match (&inner.config.push_authority, &inner.identity) {
        (Some(path), _) => Some(https_client_of(path).map_err(|error| error.to_string())?),
        (None, identity) => identity.as_ref().map(Identity::https_client),
    };
    let (status, _) = client::ask(tls, &url, request, PATIENCE).await?;
    match status.is_success() {
        true => Ok(()),
        false => Err(format!("it answered {status}")),
    }
}

/// What a family's numbers are.
fn about(family: &str) -> String {
    let name = family.strip_prefix(PREFIX).unwrap_or(family);
    let found = MODULES.iter().find_map(|declared| {
        let field = name.strip_prefix(declared.name)?.strip_prefix('_')?;
        let fields = declared.module().fields;
        let about = fields.into_iter().find(|it| it.name == field)?.about;
        Some(format!("{}: {about}", declared.name))
    });
    found.unwrap_or_default()
}

/// What names of families begin with.
const PREFIX: &str = "flowgauge_";

/// The last results of measurements, as Prometheus is shown them.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// By measurement.
    results: BTreeMap<String, Shown>,
    order: VecDeque<String>,
}

/// A result.
#[derive(Debug, Default)]
struct Shown {
    /// Of the sessions.
    owners: Vec<String>,
    /// By the name of their family.
    lines: Vec<(String, String)>,
}

impl Series {
    /// `measured` is what was measured, as `order` says.
    fn put(&mut self, owner: &str, (measured, order): (&str, &Order), outcome: &Outcome) {
        let name = order.metric.declared().name;
        let time = (outcome.ended * 1000.0) as u64;
        let mut lines = Vec::new();
        for row in &outcome.rows {
            let mut labels = String::new();
            let own = [
                ("source_domain", &order.source),
                ("destination_domain", &order.destination),
            ];
            let own = own.into_iter().map(|(name, value)| (name, value.clone()));
            let service = Some(order.filters.join(" and ")).filter(|it| !it.is_empty());
            let own = own.chain(service.map(|service| ("service", service)));
            let texts = row
                .iter()
                .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?.to_owned())));
            // Ports tell rows apart, they are no amounts.
            let is_label = |name: &str| name.ends_with("_port");
            let ports = row.iter().filter(|(name, _)| is_label(name));
            let ports = ports.map(|(name, value)| (name.as_str(), value.to_string()));
            for (name, value) in own.chain(texts).chain(ports) {
                let value = value
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n");
                let comma = if labels.is_empty() { "" } else { "," };
                let _ = write!(labels, "{comma}{name}=\"{value}\"");
            }
            let numbers = row
                .iter()
                .filter(|(field, value)| value.is_number() && !is_label(field));
            for (field, value) in numbers {
                let family = format!("{PREFIX}{name}_{field}");
                let line = format!("{family}{{{labels}}} {value} {time}\n");
                lines.push((family, line));
            }
        }
        let entry = self.results.entry(measured.to_owned()).or_default();
        entry.lines = lines;
        if !entry.owners.iter().any(|it| it == owner) {
            entry.owners.push(owner.to_owned());
        }
        self.order.retain(|it| it != measured);
        self.order.push_back(measured.to_owned());
        if self.order.len() > MOST_SERIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.results.remove(&oldest);
        }
    }

    /// What somebody may see, in the text format of Prometheus (version 0.0.4): lines of a family together.
    pub(crate) fn text(&self, asker: &Asker) -> String {
        let sees = asker.rights.admin || asker.rights.scrape;
        let results = self.results.values();
        let seen = results.filter(|it| sees || it.owners.contains(&asker.owner));
        let mut families: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for (family, line) in seen.flat_map(|it| &it.lines) {
            // Results that differ in how many rows they have may tell the same twice.
            let labels = line.rsplit_once('}').map_or("", |(labels, _)| labels);
            families.entry(family).or_default().insert(labels, line);
        }
        let mut text = String::new();
        for (family, lines) in families {
            let about = about(family).replace('\\', "\\\\").replace('\n', "\\n");
            let _ = writeln!(text, "# HELP {family} {about}\n# TYPE {family} gauge");
            lines.values().for_each(|line| text.push_str(line));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number of each metric, and nothing that is none.
    #[test]
    fn families_are_told_of() {
        assert_eq!(
            about("flowgauge_loss_received_bytes"),
            "loss: bytes of the packets received, by the IP headers"
        );
        for declared in &MODULES {
            for field in declared.fields.split(' ') {
                let family = format!("{PREFIX}{}_{field}", declared.name);
                let expected = format!("{}: ", declared.name);
                let about = about(&family);
                assert!(
                    about.len() > expected.len() && about.starts_with(&expected),
                    "{family}"
                );
            }
        }
        assert_eq!(about("flowgauge_loss_nothing"), "");
    }
}
