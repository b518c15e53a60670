//! `anonymize`: replaces and removes what a policy says, in packets and in records.

use std::path::Path;
use std::sync::Arc;

use flowgauge_anonymize::{Anonymizer, Error, Key, Others, Policy, Rule};
use flowgauge_record::OwnedRecord;
use flowgauge_record::http::{HTTP_MESSAGE_SCHEMA, HttpMessage};
use flowgauge_stack::{
    Component, ComponentInfo, Failure, Input, ItemType, Items, Outlet, Packets, RecordItem,
    ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_sys::files;
use parking_lot::Mutex;

use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "anonymize",
    aliases: &[],
    summary: "anonymizes packets and records by a policy",
    help: "Works on packets and records. Anything the policy does not name is removed. Without a policy, \
           addresses are replaced so that common prefixes stay common, names and URIs are hashed, ports, \
           counts and measurements are kept, and payload is removed; the key is generated for the run and not stored. \
           HTTP messages stay messages, so httpmatch can follow; match other messages before it.\n\n  With MAPI \
           rules, only the fields they name change: anonymize { \
           \"IP,SRC_IP,PREFIX_PRESERVING; IP,DST_IP,PREFIX_PRESERVING\" }. Policies and rules: \
           docs/anonymization.md.",
    input: Input::Of(&[ItemType::Packet, ItemType::Record]),
    options: Options::ALL,
    result: Some(ResultInfo::number("items anonymized", "items")),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    rules: Text, "PROTO,FIELD,FUNCTION[,parameter...], with semicolons between; everything else stays";
    policy: InputFile, "what is kept and replaced, in TOML";
    secret: Text, "the key, as 64 hexadecimal digits";
    key: InputFile, "the key, if the policy names none; created if missing";
}

/// What components made of the same settings share: the policy, read when the first of them starts, so that its
/// key is one.
struct Shared {
    rules: Vec<Rule>,
    policy: Option<String>,
    key: Option<String>,
    secret: Option<Key>,
    read: Mutex<Option<Policy>>,
}

struct Anonymize {
    shared: Arc<Shared>,
    anonymizer: Option<Anonymizer>,
    made: Made,
    messages: Vec<HttpMessage>,
    anonymized: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let shared = settings.shared(|| {
        let mut rules = Vec::new();
        for text in options.rules.unwrap_or_default().split(';') {
            if text.trim().is_empty() {
                continue;
            }
            rules.push(
                Rule::parse(text.trim())
                    .map_err(|of| SettingError::of("rules", of.message).hinted(of.hint))?,
            );
        }
        if !rules.is_empty() && options.policy.is_some() {
            return Err(
                SettingError::of("rules", "stand in the policy where there is one")
                    .with_hint("use one of them"),
            );
        }
        // Rules that contradict each other are found here.
        if !rules.is_empty() {
            Policy::new(rules.clone(), Others::Unchanged).map_err(|error| {
                SettingError::of("rules", error.to_string()).hinted(error.hint())
            })?;
        }
        let secret = options.secret.as_deref().map(|digits| {
            let wrong = || SettingError::of("secret", "is not a key of 64 hexadecimal digits");
            Key::from_digits(digits.as_bytes()).ok_or_else(wrong)
        });
        Ok(Shared {
            rules,
            policy: options.policy,
            key: options.key,
            secret: secret.transpose()?,
            read: Mutex::new(None),
        })
    })?;
    Ok(Box::new(Anonymize {
        shared,
        anonymizer: None,
        made: Made::default(),
        messages: Vec::new(),
        anonymized: 0,
    }))
}

impl Shared {
    fn policy(&self) -> Result<Policy, Error> {
        let policy = match (&self.policy, self.rules.as_slice()) {
            (Some(path), _) => Policy::read(files::named(), Path::new(path))?,
            (None, []) => Policy::built_in()?,
            (None, rules) => Policy::new(rules.to_vec(), Others::Unchanged)?,
        };
        if let Some(key) = &self.secret {
            return Ok(policy.with_key(key.clone()));
        }
        let policy = match &self.key {
            Some(path) if policy.is_ephemeral() => {
                policy.with_key_of(files::named(), Path::new(path))?
            }
            _ => policy,
        };
        if let Some(note) = policy.made_key() {
            flowgauge_link::tell(format_args!("{note}"));
        }
        Ok(policy)
    }

    fn anonymizer(&self) -> Result<Anonymizer, Error> {
        let mut read = self.read.lock();
        let policy = match read.take() {
            Some(policy) => policy,
            None => self.policy()?,
        };
        let made = Anonymizer::new(&policy);
        *read = Some(policy);
        made
    }
}

impl Anonymize {
    fn packets(&mut self, packets: &Packets<'_>, out: &mut dyn Outlet) {
        let Some(anonymizer) = &mut self.anonymizer else {
            return;
        };
        let made = &mut self.made;
        made.rewritten(packets, out, |descriptor, _, bytes, to| {
            anonymizer.packet(descriptor, bytes, to)
        });
    }

    fn records(&mut self, records: &[RecordItem<'_>], out: &mut dyn Outlet) {
        let Some(anonymizer) = &mut self.anonymizer else {
            return;
        };
        // Of most kinds all in a batch are alike.
        let mut others: Vec<OwnedRecord> = Vec::new();
        let mut order: Vec<(u32, flowgauge_wire::Nanos, Option<usize>)> =
            Vec::with_capacity(records.len());
        let mut used = 0;
        for item in records {
            // An event is one with more fields, and not to be matched.
            let is_bare = core::ptr::eq(item.record.schema(), HTTP_MESSAGE_SCHEMA);
            let known = item.record.as_any().filter(|_| is_bare);
            let time = anonymizer.time(item.time);
            if let Some(message) = known.and_then(|it| it.downcast_ref::<HttpMessage>()) {
                if used == self.messages.len() {
                    self.messages.push(HttpMessage::default());
                }
                if let Some(to) = self.messages.get_mut(used) {
                    anonymizer.http_message(message, to);
                }
                order.push((item.key, time, Some(used)));
                used += 1;
            } else {
                others.push(anonymizer.record(item.record));
                order.push((item.key, time, None));
            }
        }
        let mut rest = others.iter();
        let mut items = Vec::with_capacity(order.len());
        for (key, time, message) in order {
            let message = message.and_then(|place| self.messages.get(place));
            let item = match message {
                Some(record) => RecordItem { key, time, record },
                None => match rest.next() {
                    Some(record) => RecordItem { key, time, record },
                    None => continue,
                },
            };
            items.push(item);
        }
        out.emit(Items::Records(&items));
    }
}

impl Component for Anonymize {
    fn start(&mut self) -> Result<(), Failure> {
        let made = self.shared.anonymizer();
        let made = made.map_err(|error| Failure::of(&error, error.hint()))?;
        self.anonymizer = Some(made);
        Ok(())
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        self.anonymized += items.len() as u64;
        match items {
            Items::Packets(packets) => self.packets(packets, out),
            Items::Records(records) => self.records(records, out),
            _ => {}
        }
        items.clear();
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.anonymized))
    }

    fn reset(&mut self) {
        self.anonymized = 0;
    }
}
