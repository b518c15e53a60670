//! Policies: rules, and the key they are applied with.
//!
//! ```toml
//! key = "anonymize.key"          # made where it is not there, readable by its owner only
//!
//! [ip]
//! src_ip = "PREFIX_PRESERVING"
//! dst_ip = "PREFIX_PRESERVING"
//!
//! [tcp]
//! src_port = "UNCHANGED"
//! dst_port = "UNCHANGED"
//! payload = ["STRIP", 0]
//! ```
//!
//! What no rule names is not kept ([`crate::Otherwise`]).

use std::path::{Path, PathBuf};

use flowgauge_sys::files::Folder;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::Error;
use crate::field::{Class, Field, Protocol};
use crate::key::Key;
use crate::rule::{Function, Rule, RuleError, Subject, split};

/// The largest policy that is read.
const MAX_BYTES: u64 = 1 << 20;

/// What happens to what no rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It is not kept.
    Removed,
    /// It stays, as with MAPI's `ANONYMIZE`, which changes one field.
    Unchanged,
}

/// Rules, and the key they are applied with.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    others: Others,
    key: Key,
    key_of_run: Key,
    is_ephemeral: bool,
    /// The key's file, where it was made for this run and is there for others.
    made: Option<PathBuf>,
}

impl Policy {
    /// Of these rules, under a key that is made for this run and kept nowhere.
    ///
    /// # Errors
    /// Rules that contradict each other; no random bytes.
    pub fn new(rules: Vec<Rule>, others: Others) -> Result<Policy, Error> {
        check_together(&rules, others).map_err(|(_, of)| Error::Rule { of })?;
        Ok(Policy {
            rules,
            others,
            key: Key::random()?,
            key_of_run: Key::random()?,
            is_ephemeral: true,
            made: None,
        })
    }

    /// What `anonymize` does where nothing else is said: addresses keep their prefixes under a key of the run,
    /// ports and what counts and measures stays, names are hashed, payload and options go.
    ///
    /// # Errors
    /// No random bytes.
    pub fn built_in() -> Result<Policy, Error> {
        let mut rules = Vec::new();
        for text in BUILT_IN {
            rules.push(Rule::parse(text).map_err(|of| Error::Rule { of })?);
        }
        Policy::new(rules, Others::Removed)
    }

    /// Reads one from a file, and its key, which is made where it is not there ([`Policy::made_key`]). Both are
    /// looked up in `folder`.
    ///
    /// # Errors
    /// What is wrong with the policy, and where; what is wrong with the key.
    pub fn read(folder: &Folder, path: &Path) -> Result<Policy, Error> {
        let io = Error::io("read", path);
        let text = folder.read(path, MAX_BYTES).map_err(io)?;
        let text = text.ok_or_else(|| Error::TooLong {
            path: path.to_owned(),
        })?;
        let text = String::from_utf8(text);
        let text = text.map_err(|error| io(std::io::Error::other(error)))?;
        Policy::parse(folder, &text, path)
    }

    /// The same from text; `path` is where it is from.
    fn parse(folder: &Folder, text: &str, path: &Path) -> Result<Policy, Error> {
        let place = |at: usize| {
            let before = text.get(..at).unwrap_or(text);
            before.bytes().filter(|it| *it == b'\n').count() + 1
        };
        let wrong = |at: usize, of: RuleError| Error::Policy {
            path: path.to_owned(),
            line: place(at),
            of,
        };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            wrong(
                at,
                RuleError {
                    message: error.message().to_owned(),
                    hint: None,
                },
            )
        })?;
        let mut read = Reading::default();
        for (name, value) in table.get_ref() {
            read.entry(name.get_ref(), value)
                .map_err(|(at, of)| wrong(at, of))?;
        }
        let rules: Vec<Rule> = read.rules.iter().map(|(_, rule)| rule.clone()).collect();
        check_together(&rules, Others::Removed)
            .map_err(|(which, of)| wrong(read.rules.get(which).map_or(0, |(at, _)| *at), of))?;
        let mut policy = Policy::new(rules, Others::Removed)?;
        if let Some(name) = read.key {
            let name = path.parent().unwrap_or(Path::new("")).join(name);
            policy = policy.with_key_of(folder, &name)?;
        }
        Ok(policy)
    }

    /// With the key of a file, which is made where it is not there.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub fn with_key_of(self, folder: &Folder, path: &Path) -> Result<Policy, Error> {
        let (key, is_made) = Key::read_or_make(folder, path)?;
        let made = is_made.then(|| path.to_owned());
        Ok(Policy {
            made,
            ..self.with_key(key)
        })
    }

    /// What is to be said of a key that was made: others of the same policy need its file, and who has it can
    /// tell who was who.
    pub fn made_key(&self) -> Option<String> {
        let path = self.made.as_ref()?.display();
        Some(format!(
            "there was no key {path}: it was made, and is kept there"
        ))
    }

    /// With this key.
    #[must_use]
    pub fn with_key(self, key: Key) -> Policy {
        Policy {
            key,
            is_ephemeral: false,
            ..self
        }
    }

    /// Its rules; of several about the same field the last counts.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What happens to the rest.
    pub fn others(&self) -> Others {
        self.others
    }

    /// Whether its key is of this run only, so that the next one gives other addresses.
    pub fn is_ephemeral(&self) -> bool {
        self.is_ephemeral
    }

    /// What who applies it should know: a line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_ephemeral && self.rules.iter().any(|rule| is_keyed(&rule.function)) {
            notes.push(
                "note: no key in the policy: it is made for this run, and another run replaces the same by something \
                 else"
                    .to_owned(),
            );
        }
        for rule in &self.rules {
            let is_payload =
                matches!(rule.subject, Subject::Field(field) if field.class() == Class::Payload);
            if is_payload && rule.function.keeps_plaintext() {
                notes.push(format!(
                    "note: {} is kept by {}: addresses and names in it are not looked for",
                    rule.subject,
                    rule.function.name()
                ));
            }
        }
        notes
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn key_of_run(&self) -> &Key {
        &self.key_of_run
    }
}

fn is_keyed(function: &Function) -> bool {
    matches!(
        function,
        Function::PrefixPreserving
            | Function::Map
            | Function::MapDistribution(_)
            | Function::Hashed(..)
    )
}

const BUILT_IN: &[&str] = &[
    "IP,SRC_IP,PREFIX_PRESERVING",
    "IP,DST_IP,PREFIX_PRESERVING",
    "ETHERNET,SRC_MAC,MAP",
    "ETHERNET,DST_MAC,MAP",
    "IP,TTL,UNCHANGED",
    "IP,TOS,UNCHANGED",
    "TCP,SRC_PORT,UNCHANGED",
    "TCP,DST_PORT,UNCHANGED",
    "TCP,SEQUENCE_NUMBER,UNCHANGED",
    "TCP,ACK_NUMBER,UNCHANGED",
    "TCP,WINDOW,UNCHANGED",
    "UDP,SRC_PORT,UNCHANGED",
    "UDP,DST_PORT,UNCHANGED",
    "HTTP,METHOD,UNCHANGED",
    "HTTP,STATUS,UNCHANGED",
    "HTTP,VERSION,UNCHANGED",
    "HTTP,HOST,HASHED,SHA256,STRIP_REST",
    "HTTP,URI,HASHED,SHA256,STRIP_REST",
    "HTTP,REFERER,HASHED,SHA256,STRIP_REST",
    "HTTP,USER_AGENT,HASHED,SHA256,STRIP_REST",
    "HTTP,CONTENT_TYPE,UNCHANGED",
    "HTTP,CONTENT_ENCODING,UNCHANGED",
];

/// What is read of a file.
#[derive(Default)]
struct Reading {
    key: Option<PathBuf>,
    /// With where they stand.
    rules: Vec<(usize, Rule)>,
}

/// What is wrong, and at which byte.
type Wrong = (usize, RuleError);

impl Reading {
    fn entry(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<(), Wrong> {
        let at = value.span().start;
        match (name, value.get_ref()) {
            ("key", DeValue::String(path)) => {
                self.key = Some(PathBuf::from(path.as_ref()));
                Ok(())
            }
            ("key", _) => Err((
                at,
                RuleError::new(
                    "key is not text",
                    "give the name of a file, beside the policy",
                ),
            )),
            ("rules", DeValue::Array(rules)) => {
                for rule in rules {
                    let at = rule.span().start;
                    let text = rule.get_ref().as_str().unwrap_or_default();
                    self.rules
                        .push((at, Rule::parse(text).map_err(|of| (at, of))?));
                }
                Ok(())
            }
            (section, DeValue::Table(fields)) => {
                for (field, words) in fields {
                    let subject = Subject::named(section, field.get_ref())
                        .map_err(|of| (field.span().start, of))?;
                    let at = words.span().start;
                    let words = self.words(words)?;
                    self.rules
                        .push((at, Rule::new(subject, &words).map_err(|of| (at, of))?));
                }
                Ok(())
            }
            (other, _) => {
                let sections: Vec<String> = Protocol::ALL
                    .iter()
                    .map(|it| format!("[{}]", it.name().to_ascii_lowercase()))
                    .collect();
                Err((
                    at,
                    RuleError::new(
                        format!("a policy has no \"{other}\""),
                        format!("it has key, rules, {} and [records]", sections.join(", ")),
                    ),
                ))
            }
        }
    }

    /// A function with its parameters: a text as in rules, or a list.
    fn words(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Wrong> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::String(text) => split(text).map_err(|of| (at, of)),
            DeValue::Array(words) => words
                .iter()
                .map(|word| match word.get_ref() {
                    DeValue::String(text) => Ok(text.to_string()),
                    DeValue::Integer(number) => Ok(number.as_str().to_owned()),
                    DeValue::Float(number) => Ok(number.as_str().to_owned()),
                    _ => Err((
                        word.span().start,
                        RuleError::new(
                            "a parameter is a text or a number",
                            "see docs/anonymization.md",
                        ),
                    )),
                })
                .collect(),
            _ => Err((
                at,
                RuleError::new(
                    "a function is a text or a list",
                    "write \"STRIP,0\" or [\"STRIP\", 0]",
                ),
            )),
        }
    }
}

/// Refuses rules that are of no use together; which one, and why.
fn check_together(rules: &[Rule], others: Others) -> Result<(), (usize, RuleError)> {
    let find = |subject: &Subject| rules.iter().rposition(|rule| rule.subject == *subject);
    let of = |field: Field| find(&Subject::Field(field));
    let function = |which: Option<usize>| which.and_then(|it| rules.get(it)).map(|it| &it.function);
    let is_unchanged = |which: Option<usize>| match function(which) {
        Some(function) => *function == Function::Unchanged,
        None => others == Others::Unchanged,
    };
    if others == Others::Removed {
        let pairs = [
            (Field::SourceIp, Field::DestinationIp),
            (Field::SourceMac, Field::DestinationMac),
        ];
        for (source, destination) in pairs {
            let (one, other) = (of(source), of(destination));
            if is_unchanged(one) != is_unchanged(other) {
                let kept = if is_unchanged(one) {
                    source
                } else {
                    destination
                };
                return Err((
                    one.or(other).unwrap_or(0),
                    RuleError::new(
                        format!(
                            "{kept} is kept and the other address is not: replies have it in the other place (rule \
                             both-directions)"
                        ),
                        "do the same with both",
                    ),
                ));
            }
        }
    }
    let text = rules
        .iter()
        .position(|rule| matches!(rule.subject, Subject::Http(_) | Subject::Ftp(_)));
    if let Some(text) = text {
        let payload = function(of(Field::TcpPayload));
        let is_kept = match payload {
            Some(function) => function.keeps_plaintext(),
            None => others == Others::Unchanged,
        };
        if is_kept {
            return Err((
                text,
                RuleError::new(
                    "rules about HTTP or FTP, and TCP,PAYLOAD is kept: what goes on in the next segment would be in \
                     it (rule segments)",
                    "leave TCP,PAYLOAD out, or use STRIP,0 or ZERO: only what HTTP and FTP rules name is kept",
                ),
            ));
        }
    }
    if !is_unchanged(of(Field::SourceIp)) {
        for name in ["PORT", "EPRT", "PASV", "EPSV", "RESPONSE_ARG"] {
            let which = find(&Subject::Ftp(name));
            if let (Some(which), Some(function)) = (which, function(which))
                && function.keeps_plaintext()
            {
                return Err((
                    which,
                    RuleError::new(
                        format!(
                            "FTP,{name} is kept, and has addresses in it that are replaced elsewhere (rule addresses)"
                        ),
                        "use STRIP,0, ZERO or HASHED",
                    ),
                ));
            }
        }
    }
    Ok(())
}
