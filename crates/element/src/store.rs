//! The database: domains, their sensors, peers, sessions, and results.

use std::io::Read as _;
use std::path::Path;

use flowgauge_credential::Who;
use flowgauge_sys::files::{Folder, How};
use flowgauge_sys::notice::tell;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::fault::Fault;
use crate::rights::now;
use crate::session::{MOST_RESULTS, Outcome, Session, State};

/// Domains, sensors of one, and peers.
const MOST_ENTRIES: u64 = 10_000;
/// Sessions that have ended and are kept.
const MOST_ENDED: u32 = 10_000;
/// The longest result that is stored, and those of a session that are answered.
const MOST_RESULT: usize = 4 << 20;
const MOST_ANSWER: usize = 7 << 20;
/// Sessions that are listed.
const MOST_LISTED: u32 = 1000;
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS domains (name TEXT PRIMARY KEY, networks TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sensors (domain TEXT NOT NULL REFERENCES domains ON DELETE CASCADE,
  name TEXT NOT NULL, device TEXT NOT NULL, PRIMARY KEY (domain, name));
CREATE TABLE IF NOT EXISTS peers (name TEXT PRIMARY KEY, address TEXT NOT NULL, domains TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, owner TEXT NOT NULL, created REAL NOT NULL,
  running INTEGER NOT NULL, who TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS sessions_by_time ON sessions (running, created);
CREATE TABLE IF NOT EXISTS results (id INTEGER PRIMARY KEY, measured TEXT NOT NULL, began REAL NOT NULL,
  ended REAL NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS results_by_time ON results (measured, ended);
CREATE INDEX IF NOT EXISTS results_by_end ON results (ended);
CREATE TABLE IF NOT EXISTS found (session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
  result INTEGER NOT NULL REFERENCES results ON DELETE CASCADE, PRIMARY KEY (session, result));
CREATE INDEX IF NOT EXISTS found_by_result ON found (result);
";

/// A domain: the sensors that see its traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Domain {
    /// Its name.
    pub name: String,
    /// Its networks, as 10.1.0.0/16: where both domains of a session have some, only packets between these count.
    pub networks: Vec<String>,
    /// Its sensors, for who may know them.
    pub sensors: Vec<SensorOf>,
    /// For an admin: the peer element that answers for it; none: this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

/// A sensor of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SensorOf {
    /// Its name in the domain.
    pub name: String,
    /// The device: `host:eth0`, `host:2233:eth0`, `[2001:db8::1]:eth0`; `eth0` of this machine's sensor.
    pub device: String,
}

/// A peer element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PeerElement {
    /// The name in its certificate.
    pub name: String,
    /// Where it listens: `host:port`.
    pub address: String,
    /// The domains that it answers for.
    pub domains: Vec<String>,
}

/// A session as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) session: Session,
    pub(crate) owner: String,
    pub(crate) who: Who,
}

/// The database.
pub(crate) struct Store {
    connection: Mutex<Connection>,
    keep_seconds: f64,
    most_pages: i64,
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::failed(format!("the database: {error}"))
    }
}

fn json<T: Serialize>(value: &T) -> String {
    // Of these types nothing can fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// A value of a column as it was written.
fn read<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}

/// What a database of SQLite begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Whether a file is a database, or can be made one.
///
/// # Errors
/// Why not.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let (folder, shown) = (Folder::anywhere(), path.display());
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !folder.is_folder(parent)) {
        return Err(format!("{shown}: {} is not a folder", parent.display()));
    }
    if !folder.has(path) {
        return Ok(());
    }
    let mut begins = Vec::new();
    let read = folder
        .open(path, How::read().without_waiting())
        .and_then(|file| {
            let mut file = file.take(MAGIC.len() as u64);
            file.read_to_end(&mut begins)
        });
    read.map_err(|error| format!("{shown}: {error}"))?;
    match begins.is_empty() || begins == MAGIC {
        true => Ok(()),
        false => Err(format!("{shown}: it is not a database of an element")),
    }
}

impl Store {
    /// Opens the database, or makes it.
    ///
    /// # Errors
    /// It cannot be opened or written.
    pub(crate) fn open(config: &Config) -> Result<Store, String> {
        let path: &Path = &config.database;
        let shown = path.display();
        // It holds credentials: nobody else may read it.
        let made = Folder::anywhere().open(path, How::append().mode(0o600));
        made.map_err(|error| format!("{shown}: {error}"))?;
        let failed = |error: rusqlite::Error| format!("{shown}: {error}");
        let connection = Connection::open(path).map_err(failed)?;
        let prepare = || {
            connection.execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;",
            )?;
            connection.execute_batch(SCHEMA)?;
            let size: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(config.most_bytes).unwrap_or(i64::MAX) / size.max(1);
            connection.pragma_update(None, "max_page_count", pages)?;
            Ok(pages)
        };
        let most_pages = prepare().map_err(failed)?;
        Ok(Store {
            connection: Mutex::new(connection),
            keep_seconds: f64::from(config.keep_days) * 86_400.0,
            most_pages,
        })
    }

    fn list<T>(
        &self,
        query: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let connection = self.connection.lock();
        let mut statement = connection.prepare_cached(query)?;
        let rows = statement.query_map(parameters, read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn change(&self, query: &str, parameters: impl rusqlite::Params) -> Result<bool, Fault> {
        Ok(self
            .connection
            .lock()
            .prepare_cached(query)?
            .execute(parameters)?
            > 0)
    }

    /// Its own domains, with their sensors.
    pub(crate) fn domains(&self) -> Result<Vec<Domain>, Fault> {
        let mut domains = self.list(
            "SELECT name, networks FROM domains ORDER BY name",
            [],
            |row| {
                Ok(Domain {
                    name: row.get(0)?,
                    networks: read(row, 1)?,
                    ..Domain::default()
                })
            },
        )?;
        for domain in &mut domains {
            domain.sensors = self.sensors(&domain.name)?;
        }
        Ok(domains)
    }

    fn sensors(&self, domain: &str) -> Result<Vec<SensorOf>, Fault> {
        let query = "SELECT name, device FROM sensors WHERE domain = ? ORDER BY name";
        self.list(query, [domain], |row| {
            Ok(SensorOf {
                name: row.get(0)?,
                device: row.get(1)?,
            })
        })
    }

    /// A domain: its own, else that of a peer.
    pub(crate) fn domain(
        &self,
        name: &str,
    ) -> Result<Option<(Domain, Option<PeerElement>)>, Fault> {
        let query = "SELECT networks FROM domains WHERE name = ?";
        let networks = self.list(query, [name], |row| read(row, 0))?.pop();
        let sensors = self.sensors(name)?;
        let mut peers = self.peers()?.into_iter();
        let peer = peers.find(|peer| peer.domains.iter().any(|it| it == name));
        let domain = |networks, peer: Option<&PeerElement>| Domain {
            name: name.to_owned(),
            networks,
            sensors,
            peer: peer.map(|peer| peer.name.clone()),
        };
        Ok(match (networks, peer) {
            (Some(networks), _) => Some((domain(networks, None), None)),
            (None, Some(peer)) => Some((domain(Vec::new(), Some(&peer)), Some(peer))),
            (None, None) => None,
        })
    }

    /// Makes a domain what it is from now on.
    pub(crate) fn put_domain(&self, domain: &Domain) -> Result<(), Fault> {
        let mut connection = self.connection.lock();
        let change = connection.transaction()?;
        let entries: u64 =
            change.query_row("SELECT count(*) FROM domains", [], |row| row.get(0))?;
        if entries >= MOST_ENTRIES || domain.sensors.len() as u64 > MOST_ENTRIES {
            return Err(Fault::busy(format!(
                "there are at most {MOST_ENTRIES} domains, and sensors of one"
            )));
        }
        change.execute(
            "INSERT INTO domains VALUES (?, ?) ON CONFLICT DO UPDATE SET networks = excluded.networks",
            params![domain.name, json(&domain.networks)],
        )?;
        change.execute("DELETE FROM sensors WHERE domain = ?", [&domain.name])?;
        for sensor in &domain.sensors {
            let row = params![domain.name, sensor.name, sensor.device];
            change.execute("INSERT INTO sensors VALUES (?, ?, ?)", row)?;
        }
        Ok(change.commit()?)
    }

    /// Forgets a domain and its sensors. Returns whether there was one.
    pub(crate) fn remove_domain(&self, name: &str) -> Result<bool, Fault> {
        self.change("DELETE FROM domains WHERE name = ?", [name])
    }

    pub(crate) fn peers(&self) -> Result<Vec<PeerElement>, Fault> {
        let query = "SELECT name, address, domains FROM peers ORDER BY name";
        self.list(query, [], |row| {
            Ok(PeerElement {
                name: row.get(0)?,
                address: row.get(1)?,
                domains: read(row, 2)?,
            })
        })
    }

    pub(crate) fn put_peer(&self, peer: &PeerElement) -> Result<(), Fault> {
        if self.peers()?.len() as u64 >= MOST_ENTRIES {
            return Err(Fault::busy(format!(
                "there are at most {MOST_ENTRIES} peers"
            )));
        }
        let row = params![peer.name, peer.address, json(&peer.domains)];
        self.change("INSERT OR REPLACE INTO peers VALUES (?, ?, ?)", row)?;
        Ok(())
    }

    pub(crate) fn remove_peer(&self, name: &str) -> Result<bool, Fault> {
        self.change("DELETE FROM peers WHERE name = ?", [name])
    }

    /// Keeps a session as it is now; of one that has ended no credential.
    pub(crate) fn put_session(&self, kept: &Kept) -> Result<(), Fault> {
        self.make_room()?;
        let (session, is_running) = (&kept.session, kept.session.state == State::Running);
        let nobody = Who::default();
        let who = if is_running { &kept.who } else { &nobody };
        let put = "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET running = excluded.running, \
                   who = excluded.who, body = excluded.body";
        let (id, created) = (&session.id, session.created);
        let row = params![
            id,
            kept.owner,
            created,
            is_running,
            json(who),
            json(session)
        ];
        self.change(put, row)?;
        Ok(())
    }

    /// Sessions, the last ones first: of an owner or all; those that run, or the last 1,000 of all.
    pub(crate) fn sessions(&self, owner: Option<&str>, running: bool) -> Result<Vec<Kept>, Fault> {
        let most = if running { u32::MAX } else { MOST_LISTED };
        let query = "SELECT owner, who, body FROM sessions WHERE (?1 IS NULL OR owner = ?1) AND running >= ?2 \
                     ORDER BY created DESC LIMIT ?3";
        self.list(query, params![owner, running, most], kept)
    }

    pub(crate) fn session(&self, id: &str) -> Result<Option<Kept>, Fault> {
        let query = "SELECT owner, who, body FROM sessions WHERE id = ?";
        Ok(self.list(query, [id], kept)?.pop())
    }

    /// The results of a session.
    pub(crate) fn results_of(&self, session: &str) -> Result<Vec<Outcome>, Fault> {
        let query = "SELECT body FROM (SELECT body, ended, id, sum(length(body)) OVER (ORDER BY ended DESC, id DESC) AS size \
                     FROM results JOIN found ON result = id WHERE session = ? ORDER BY ended DESC, id DESC LIMIT ?) \
                     WHERE size <= ? ORDER BY ended, id";
        let row = params![session, MOST_RESULTS, MOST_ANSWER];
        self.list(query, row, |row| read(row, 0))
    }

    /// Stores a result of a measurement. Returns its number.
    pub(crate) fn put_result(&self, measured: &str, outcome: &Outcome) -> Result<i64, Fault> {
        let body = json(outcome);
        if body.len() > MOST_RESULT {
            return Err(Fault::failed(format!(
                "a result of more than {MOST_RESULT} bytes is not stored"
            )));
        }
        self.make_room()?;
        let connection = self.connection.lock();
        connection.execute(
            "INSERT INTO results (measured, began, ended, body) VALUES (?, ?, ?, ?)",
            params![measured, outcome.began, outcome.ended, body],
        )?;
        Ok(connection.last_insert_rowid())
    }

    /// A session has this result.
    pub(crate) fn put_found(&self, session: &str, result: i64) -> Result<(), Fault> {
        self.change(
            "INSERT OR IGNORE INTO found VALUES (?, ?)",
            params![session, result],
        )?;
        Ok(())
    }

    /// Numbers of stored results of a measurement that overlap a time, the last of them.
    pub(crate) fn between(&self, measured: &str, from: f64, until: f64) -> Result<Vec<i64>, Fault> {
        let query = "SELECT id FROM results WHERE measured = ? AND ended >= ? AND began <= ? ORDER BY ended DESC LIMIT ?";
        let row = params![measured, from, until, MOST_RESULTS];
        self.list(query, row, |row| row.get(0))
    }

    /// Forgets what is too old and, where nine tenths of the room are taken, the oldest tenth of results and ended sessions.
    fn make_room(&self) -> Result<(), Fault> {
        let connection = self.connection.lock();
        let oldest = now() - self.keep_seconds;
        connection.execute("DELETE FROM results WHERE ended < ?", [oldest])?;
        connection.execute(
            "DELETE FROM sessions WHERE running = 0 AND created < max(?, ifnull((SELECT created FROM sessions \
             WHERE running = 0 ORDER BY created DESC LIMIT 1 OFFSET ?), 0))",
            params![oldest, MOST_ENDED],
        )?;
        let pages = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        if pages("page_count")? - pages("freelist_count")? > self.most_pages / 10 * 9 {
            let gone = connection.execute(
                "DELETE FROM results WHERE id IN (SELECT id FROM results ORDER BY ended LIMIT (SELECT count(*) / 10 + 1 FROM results))",
                [],
            )?;
            connection.execute(
                "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE running = 0 ORDER BY created \
                 LIMIT (SELECT count(*) / 10 + 1 FROM sessions WHERE running = 0))",
                [],
            )?;
            tell(format_args!(
                "the database has reached most_bytes: its {gone} oldest results were deleted"
            ));
        }
        Ok(())
    }

    /// Seconds since 1970 of the last result of a measurement, and its number.
    pub(crate) fn last(&self, measured: &str) -> Result<Option<(f64, i64)>, Fault> {
        let query = "SELECT ended, id FROM results WHERE measured = ? ORDER BY ended DESC LIMIT 1";
        let connection = self.connection.lock();
        let found = connection.query_row(query, [measured], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(found.optional()?)
    }
}

fn kept(row: &Row<'_>) -> rusqlite::Result<Kept> {
    Ok(Kept {
        owner: row.get(0)?,
        who: read(row, 1)?,
        session: read(row, 2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_no_database_is_told_of_before_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("text"), "some text that is not a database").unwrap();
        std::fs::write(path("empty"), "").unwrap();
        let config = Config {
            database: path("good.db"),
            ..Config::default()
        };
        assert_eq!(check(&config.database), Ok(()));
        drop(Store::open(&config).unwrap());
        for (name, good) in [
            ("good.db", true),
            ("empty", true),
            ("text", false),
            ("text/element.db", false),
            ("none/element.db", false),
            (".", false),
        ] {
            assert_eq!(check(&path(name)).is_ok(), good, "{name}");
        }
    }

    #[test]
    fn the_oldest_go_when_the_room_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            database: folder.path().join("element.db"),
            most_bytes: 4 << 20,
            ..Config::default()
        };
        let store = Store::open(&config).unwrap();
        let error = Store::open(&config).err().unwrap();
        assert!(error.contains("locked"), "{error}");
        let outcome = |number: u32, ended: f64| Outcome {
            began: f64::from(number),
            ended,
            notes: vec!["x".repeat(8000)],
            ..Outcome::default()
        };
        let old = store.put_result("old", &outcome(0, now() - 31.0 * 86_400.0));
        assert!(old.is_ok());
        for number in 0..2000 {
            let stored = store.put_result("one", &outcome(number, now()));
            assert!(stored.is_ok(), "{number}: {stored:?}");
        }
        assert_eq!(store.last("old").unwrap(), None);
        let found = store.between("one", 0.0, f64::MAX).unwrap();
        // 8 kB each.
        assert!((300..500).contains(&found.len()), "{}", found.len());
        assert_eq!(store.last("one").unwrap().map(|(_, id)| id), Some(found[0]));
        let bytes = std::fs::metadata(&config.database).unwrap().len();
        assert!(bytes <= 4 << 20, "{bytes}");
        let mode =
            std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&config.database).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }
}
