//! Objects of other agents, which alarms and user histories may name: read by SNMP, as a user whose view decides.
//!
//! A sample of such an object is a question. It is asked when the sample is due, by a thread that may wait, and the sample is
//! taken with the answer.

use core::fmt;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flowgauge_sys::files;
use parking_lot::Mutex;
use serde::Deserialize;
use snmp2::v3::{Auth, AuthProtocol, Cipher, Security};
use snmp2::{Error, SyncSession, Value};

use crate::Oid;
use crate::feed::BadFile;
use crate::mib::RMON;
use crate::probe::Probe;

/// An agent that answers nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked whether something is to be asked.
const TICK: Duration = Duration::from_millis(50);

/// Objects of a request.
const MOST_OF_REQUEST: usize = 16;

/// Octets that a password has at least (RFC 3414, 11.2).
const LEAST_OF_PASSWORD: usize = 8;

/// Whose sample it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    /// An alarm.
    Alarm(u32),
    /// A user history, and the place of the object in it.
    History(u32, usize),
}

/// An object whose value is wanted.
#[derive(Clone, Debug)]
struct Question {
    name: Oid,
    /// The bucket of the history; 0: the value that the first difference is from.
    bucket: u32,
    is_asked: bool,
}

/// What is wanted of other agents: one question of each sample, the last one.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// Somebody asks them.
    pub(crate) are_asked: bool,
    open: BTreeMap<Asker, Question>,
}

impl Questions {
    pub(crate) fn ask(&mut self, asker: Asker, name: &Oid, bucket: u32) {
        let question = Question {
            name: name.clone(),
            bucket,
            is_asked: false,
        };
        self.open.insert(asker, question);
    }
}

/// Whether an object is of another agent.
pub(crate) fn is_of_others(name: &Oid) -> bool {
    name.numbers().len() > 2 && name.numbers()[0] <= 2 && !name.starts_with(&Oid::new(&RMON))
}

impl Probe {
    /// Objects of other agents may be named in alarms and user histories: [`run`] asks for them.
    pub fn ask_others(&mut self) {
        self.questions.are_asked = true;
    }

    /// What is to be asked, each once.
    fn take_questions(&mut self) -> Vec<(Asker, Oid)> {
        let open = self.questions.open.iter_mut();
        let new = open.filter(|(_, question)| !question.is_asked);
        new.map(|(asker, question)| {
            question.is_asked = true;
            (*asker, question.name.clone())
        })
        .collect()
    }

    /// Takes a sample with its value, unless it is not waited for any more.
    fn answer(&mut self, asker: Asker, name: &Oid, value: Option<i128>) {
        let open = self.questions.open.get(&asker);
        if open.is_none_or(|open| open.name != *name || !open.is_asked) {
            return;
        }
        let Some(question) = self.questions.open.remove(&asker) else {
            return;
        };
        match asker {
            Asker::Alarm(row) => self.finish_alarm(row, name, value),
            Asker::History(row, place) => {
                if let Some(history) = self.jobs.user_histories.get_mut(&row) {
                    history.fill(place, name, question.bucket, value);
                }
            }
        }
    }
}

/// A user or community of an SNMP agent, as a file names it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    #[serde(default = "local")]
    address: String,
    community: Option<String>,
    user: Option<String>,
    authentication: Option<String>,
    password: Option<String>,
    privacy: Option<String>,
    secret: Option<String>,
    #[serde(default)]
    context: String,
}

impl fmt::Debug for User {
    /// Without what is secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("User");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn local() -> String {
    "localhost:161".to_owned()
}

impl User {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or it names no user.
    pub fn read(path: &Path) -> Result<User, BadFile> {
        let text = files::read_secret(files::named(), path).map_err(|error| {
            let hint = error.hint();
            let hint = hint.unwrap_or_else(|| "it names an SNMP user, see docs/rmon.md".to_owned());
            BadFile::new(error.to_string(), hint)
        })?;
        let bad =
            |what: &str, hint: &str| BadFile::new(format!("{}: {what}", path.display()), hint);
        let user: User = toml::from_str(&text).map_err(|error| {
            // The text that an error shows can be a password.
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            bad(
                &format!("line {line} is not as it should be"),
                "NAME = \"TEXT\", see docs/rmon.md for the names",
            )
        })?;
        user.check().map_err(|(what, hint)| bad(&what, hint))?;
        Ok(user)
    }

    fn check(&self) -> Result<(), (String, &'static str)> {
        const USER: &str = "user, authentication, password, and privacy and secret; or community";
        if self.community.is_some() == self.user.is_some() {
            return Err(("it must name either a user or a community".to_owned(), USER));
        }
        if self.user.is_none() {
            return Ok(());
        }
        for (method, password, names) in [
            (
                &self.authentication,
                &self.password,
                "authentication and password",
            ),
            (&self.privacy, &self.secret, "privacy and secret"),
        ] {
            if method.is_some() != password.is_some() {
                return Err((format!("{names} are set together"), USER));
            }
            if password
                .as_ref()
                .is_some_and(|it| it.len() < LEAST_OF_PASSWORD)
            {
                return Err((
                    format!("a password is too short ({names})"),
                    "8 octets at least",
                ));
            }
        }
        if self.privacy.is_some() && self.authentication.is_none() {
            return Err(("privacy without authentication".to_owned(), USER));
        }
        self.security().map(|_| ())
    }

    fn security(&self) -> Result<Security, (String, &'static str)> {
        let of = |text: &Option<String>| text.as_deref().unwrap_or_default().as_bytes().to_vec();
        let auth = match self.privacy.as_deref() {
            _ if self.authentication.is_none() => Auth::NoAuthNoPriv,
            None => Auth::AuthNoPriv,
            Some(name) => {
                let cipher = match name {
                    "AES" => Cipher::Aes128,
                    "AES-192" => Cipher::Aes192,
                    "AES-256" => Cipher::Aes256,
                    "DES" => Cipher::Des,
                    _ => {
                        let what = "this privacy is unknown".to_owned();
                        return Err((what, "AES, AES-192, AES-256 or DES"));
                    }
                };
                Auth::AuthPriv {
                    cipher,
                    privacy_password: of(&self.secret),
                }
            }
        };
        let protocol = match self.authentication.as_deref() {
            None | Some("SHA") => AuthProtocol::Sha1,
            Some("MD5") => AuthProtocol::Md5,
            Some("SHA-224") => AuthProtocol::Sha224,
            Some("SHA-256") => AuthProtocol::Sha256,
            Some("SHA-384") => AuthProtocol::Sha384,
            Some("SHA-512") => AuthProtocol::Sha512,
            Some(_) => {
                let what = "this authentication is unknown".to_owned();
                return Err((what, "SHA-256, SHA-224, SHA-384, SHA-512, SHA or MD5"));
            }
        };
        let security = Security::new(&of(&self.user), &of(&self.password));
        let security = security.with_auth(auth).with_auth_protocol(protocol);
        Ok(security.with_context_name(&self.context))
    }

    fn connect(&self) -> Result<Box<SyncSession>, String> {
        let (address, patience) = (self.address.as_str(), Some(PATIENCE));
        let session = match &self.community {
            Some(community) => SyncSession::new_v2c(address, community.as_bytes(), patience, 1),
            None => {
                let security = self.security().map_err(|(what, _)| what)?;
                SyncSession::new_v3(address, patience, 1, security)
            }
        };
        let mut session = Box::new(session.map_err(|error| error.to_string())?);
        session.init().map_err(|error| explained(&error))?;
        Ok(session)
    }
}

fn explained(error: &Error) -> String {
    match error {
        Error::Receive => "it does not answer".to_owned(),
        error => error.to_string(),
    }
}

/// Asks for objects of other agents until `is_over`. What keeps it from that is told once, and `None` when it is over.
pub fn run(
    user: &User,
    tables: &Mutex<Probe>,
    is_over: &AtomicBool,
    mut tell: impl FnMut(Option<String>),
) {
    let mut session = None;
    let mut trouble = None;
    while !is_over.load(Ordering::Relaxed) {
        let questions = tables.lock().take_questions();
        if questions.is_empty() {
            thread::sleep(TICK);
        }
        for some in questions.chunks(MOST_OF_REQUEST) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let answers = answers(user, &mut session, some);
            let now = answers.as_ref().err().cloned();
            if now != trouble {
                trouble.clone_from(&now);
                tell(
                    now.map(|why| {
                        format!("no objects of the SNMP agent at {}: {why}", user.address)
                    }),
                );
            }
            let answers = answers.unwrap_or_default();
            let mut tables = tables.lock();
            for (at, (asker, name)) in some.iter().enumerate() {
                tables.answer(*asker, name, answers.get(at).copied().flatten());
            }
        }
    }
}

/// The values, in their order. A session that fails is begun anew once: its agent may have started again.
fn answers(
    user: &User,
    session: &mut Option<Box<SyncSession>>,
    questions: &[(Asker, Oid)],
) -> Result<Vec<Option<i128>>, String> {
    let names: Vec<Option<snmp2::Oid<'_>>> = questions.iter().map(|(_, name)| of(name)).collect();
    let is_new = session.is_none();
    for is_last in [is_new, true] {
        let asked = match session {
            Some(session) => session,
            None => session.insert(user.connect()?),
        };
        match values(asked, &names) {
            Ok(values) => return Ok(values),
            Err(_) if !is_last => {}
            Err(error) => {
                *session = None;
                return Err(explained(&error));
            }
        }
        *session = None;
    }
    Ok(Vec::new())
}

fn of(name: &Oid) -> Option<snmp2::Oid<'static>> {
    let numbers: Vec<u64> = name
        .numbers()
        .iter()
        .map(|number| u64::from(*number))
        .collect();
    snmp2::Oid::from(&numbers).ok()
}

/// One for each name; none for what is no name to SNMP.
fn values(
    session: &mut SyncSession,
    names: &[Option<snmp2::Oid<'_>>],
) -> Result<Vec<Option<i128>>, Error> {
    let asked: Vec<&snmp2::Oid<'_>> = names.iter().flatten().collect();
    if asked.is_empty() {
        return Ok(vec![None; names.len()]);
    }
    let answer = match session.get_many(&asked) {
        // The agent's clock has become known.
        Err(Error::AuthUpdated) => session.get_many(&asked)?,
        answer => answer?,
    };
    // An error is one of a whole request.
    let is_whole = answer.error_status == 0;
    let found: BTreeMap<String, Option<i128>> = answer
        .varbinds
        .map(|(name, value)| (name.to_id_string(), number(&value).filter(|_| is_whole)))
        .collect();
    let value = |name: &snmp2::Oid<'_>| found.get(&name.to_id_string()).copied().flatten();
    let values = names.iter().map(|name| name.as_ref().and_then(value));
    Ok(values.collect())
}

fn number(value: &Value<'_>) -> Option<i128> {
    Some(match value {
        Value::Integer(number) => (*number).into(),
        Value::Counter32(number) | Value::Unsigned32(number) | Value::Timeticks(number) => {
            (*number).into()
        }
        Value::Counter64(number) => (*number).into(),
        _ => return None,
    })
}
