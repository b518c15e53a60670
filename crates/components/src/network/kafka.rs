//! Topics of Kafka: how their brokers are reached, and which partition a record goes to.

use std::path::Path;
use std::sync::Arc;

use flowgauge_kafka::{Cluster, Form, Login, Mechanism, Security, Totals, partition_of};
use flowgauge_link::read_secret;
use flowgauge_record::any::AnyRecord;
use flowgauge_record::schema::Field;
use flowgauge_record::{FieldVisitor, Schema, ValueRef};
use flowgauge_stack::{Failure, OptionInfo, SettingError, Settings, options};
use flowgauge_sys::files;
use flowgauge_wire::{Address, CommunityId, FlowKey};

use super::failure;

options! {
    pub(crate) const;
    /// Which brokers.
    KAFKA = kafka: Text, "Kafka brokers: host:port, separated by commas";
    /// Which topic.
    TOPIC = topic: Text, "the topic";
    /// Without TLS.
    PLAIN = plain: Flag, "connect to brokers without TLS";
    /// Who this is.
    USER = user: Text, "user at brokers (SASL); default: none";
    /// How they know.
    PASSWORD = password: InputFile, "file with the user's password, readable only by its owner";
    /// How that is proved.
    SASL = sasl: Choice("scram-sha-512", "scram-sha-256", "plain"),
        "SASL mechanism; default: scram-sha-512. plain sends the password, over TLS only";
    /// Which field says where a record goes.
    KEY = key: Text,
        "field whose values stay together in a partition; default: the Community ID of a record's addresses, ports \
        and protocol";
    /// How many partitions there are.
    PARTITIONS = partitions: Integer(1, 100_000),
        "number of partitions of the topic; default: ask a broker";
}

/// What only outputs have.
pub(crate) const OF_OUTPUT: [OptionInfo; 7] = [TOPIC, PLAIN, USER, PASSWORD, SASL, KEY, PARTITIONS];
/// What only inputs and outputs have that go through Kafka.
pub(crate) const OF_BOTH: [OptionInfo; 5] = [TOPIC, PLAIN, USER, PASSWORD, SASL];

/// How brokers are reached; the files that options name are read when it is used.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    cluster: Cluster,
    /// The folder of keys and the name there, where options say so.
    keys: Option<flowgauge_link::KeyFolder>,
    identity: Option<String>,
    user: Option<(Mechanism, String, String)>,
}

impl Place {
    pub(crate) fn read(settings: &Settings, brokers: &str) -> Result<Place, SettingError> {
        for broker in brokers.split(',') {
            let port = broker
                .rsplit_once(':')
                .map(|(_, port)| port.trim().parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                let error = format!("\"{broker}\" is not an address with a port (host:port)");
                return Err(SettingError::of("kafka", error).with_hint(
                    "write brokers as host:port, with commas between: kafka1:9092,kafka2:9092",
                ));
            }
        }
        let topic = settings.text("topic").unwrap_or_default();
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if topic.is_empty() || topic.len() > 249 || !topic.bytes().all(is_good) {
            let error = match topic {
                "" => "is needed with kafka".to_owned(),
                topic => format!("\"{topic}\" is not a name of a topic"),
            };
            return Err(SettingError::of("topic", error)
                .with_hint("names have letters, digits, \".\", \"_\" and \"-\""));
        }
        let mechanism = match settings.text("sasl") {
            Some("scram-sha-256") => Mechanism::Scram256,
            Some("plain") => Mechanism::Plain,
            _ => Mechanism::Scram512,
        };
        let is_plain = settings.flag("plain");
        if is_plain && mechanism == Mechanism::Plain {
            let error = "would show the password to everybody on the way";
            return Err(SettingError::of("sasl", error)
                .with_hint("leave plain = yes out, or use scram-sha-512"));
        }
        let user = match (settings.text("user"), settings.text("password")) {
            (Some(user), Some(file)) => Some((mechanism, user.to_owned(), file.to_owned())),
            (None, None) => None,
            (user, _) => {
                let missing = if user.is_none() { "user" } else { "password" };
                return Err(SettingError::of(missing, "is missing")
                    .with_hint("user and password belong together; password names a file"));
            }
        };
        Ok(Place {
            cluster: Cluster {
                brokers: brokers.to_owned(),
                topic: topic.to_owned(),
                security: Security {
                    is_plain,
                    ..Security::default()
                },
            },
            keys: settings.text("keys").map(flowgauge_link::KeyFolder::new),
            identity: settings.text("identity").map(str::to_owned),
            user,
        })
    }

    /// In messages.
    pub(crate) fn name(&self) -> String {
        self.cluster.name()
    }

    /// With the keys and the password that files hold.
    pub(crate) fn open(&self) -> Result<Cluster, Failure> {
        let mut cluster = self.cluster.clone();
        let security = &mut cluster.security;
        let failed = |error| failure(&error);
        if let Some(keys) = self.keys.as_ref().filter(|_| !security.is_plain) {
            security.authority = Some(keys.authority_pem().map_err(failed)?);
        }
        if let Some(name) = self.identity.as_ref().filter(|_| !security.is_plain) {
            let usual = flowgauge_link::KeyFolder::usual();
            let keys = self.keys.as_ref().unwrap_or(&usual);
            security.identity = Some(keys.identity_pem(name).map_err(failed)?);
        }
        if let Some((mechanism, user, file)) = &self.user {
            let password = read_secret(files::named(), Path::new(file)).map_err(failed)?;
            security.login = Some(Login {
                mechanism: *mechanism,
                user: user.clone(),
                password: password.trim_end_matches(['\r', '\n']).to_owned(),
            });
        }
        Ok(cluster)
    }
}

/// Where records go.
pub(super) struct Route {
    pub(super) place: Place,
    pub(super) totals: Arc<Totals>,
    /// As the options say.
    pub(super) partitions: Option<u32>,
    pub(super) form: Form,
    /// The field that is the key; `None`: the Community ID.
    key: Option<String>,
    /// Of the kind of record that came last: what its fields are to the key.
    kind: Option<(Schema, Vec<Role>)>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    None,
    Key,
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    Protocol,
}

impl Route {
    pub(super) fn read(settings: &Settings, brokers: &str) -> Result<Route, SettingError> {
        let partitions = settings.integer("partitions");
        let form = match settings.text("format") {
            None => Form::Frames,
            Some("json") => Form::Texts,
            Some(format) => {
                let error = format!("a topic has no records as {format}");
                return Err(SettingError::of("format", error)
                    .with_hint("json, for other programs; without format an input takes them"));
            }
        };
        Ok(Route {
            place: Place::read(settings, brokers)?,
            totals: Arc::new(Totals::new(0)),
            partitions: partitions.and_then(|number| u32::try_from(number).ok()),
            form,
            key: settings.text("key").map(str::to_owned),
            kind: None,
            text: Vec::new(),
        })
    }

    /// The partition of a record, among so many; without a key it is the first.
    pub(super) fn partition(&mut self, record: &dyn AnyRecord, partitions: u32) -> u32 {
        let schema = record.schema();
        if !(self.kind.as_ref()).is_some_and(|(known, _)| core::ptr::eq(*known, schema)) {
            let roles = schema.iter().map(|field| self.role(field)).collect();
            self.kind = Some((schema, roles));
        }
        let Some((_, roles)) = &self.kind else {
            return 0;
        };
        self.text.clear();
        let mut found = Found {
            roles,
            at: 0,
            text: &mut self.text,
            ends: [None; 2],
            ports: [0; 2],
            protocol: 0,
        };
        record.values(&mut found);
        match (found.id(), self.text.as_slice()) {
            (Some(id), _) => partition_of(id.as_bytes(), partitions),
            (None, []) => 0,
            (None, text) => partition_of(text, partitions),
        }
    }

    fn role(&self, field: &Field) -> Role {
        match (&self.key, field.name) {
            (Some(key), name) if key == name => Role::Key,
            (Some(_), _) => Role::None,
            (None, "src_ip") => Role::Source,
            (None, "dst_ip") => Role::Destination,
            (None, "src_port") => Role::SourcePort,
            (None, "dst_port") => Role::DestinationPort,
            (None, "proto") => Role::Protocol,
            _ => Role::None,
        }
    }
}

/// What a record has of a key.
struct Found<'a> {
    roles: &'a [Role],
    at: usize,
    text: &'a mut Vec<u8>,
    ends: [Option<(Address, u8)>; 2],
    ports: [u16; 2],
    protocol: u8,
}

impl Found<'_> {
    /// The Community ID; of records without ports or protocol, that of their addresses.
    fn id(&self) -> Option<CommunityId> {
        let [Some((source, version)), Some((destination, _))] = self.ends else {
            return None;
        };
        // One name stands for both.
        let protocol = match (self.protocol, version) {
            (1, 6) => 58,
            (protocol, _) => protocol,
        };
        let [from, to] = self.ports;
        let (key, _) = FlowKey::new(version, protocol, (source, from), (destination, to));
        CommunityId::of(&key, 0)
    }
}

impl FieldVisitor for Found<'_> {
    #[inline]
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        let role = self.roles.get(self.at).copied().unwrap_or(Role::None);
        self.at += 1;
        match (role, value) {
            (Role::None, _) => {}
            (Role::Source, ValueRef::Address(address, version)) => {
                self.ends[0] = Some((address, version));
            }
            (Role::Destination, ValueRef::Address(address, version)) => {
                self.ends[1] = Some((address, version));
            }
            (Role::SourcePort, ValueRef::Unsigned(port)) => self.ports[0] = port as u16,
            (Role::DestinationPort, ValueRef::Unsigned(port)) => self.ports[1] = port as u16,
            (Role::Protocol, ValueRef::Text(name) | ValueRef::Symbol(name)) => {
                self.protocol = match name {
                    "tcp" => 6,
                    "udp" => 17,
                    "icmp" => 1,
                    number => number.parse().unwrap_or(0),
                };
            }
            (Role::Key, value) => key_text(value, self.text),
            _ => {}
        }
    }
}

/// A value as text, as CSV has it.
fn key_text(value: ValueRef<'_>, text: &mut Vec<u8>) {
    match value {
        ValueRef::Text(value) | ValueRef::Symbol(value) => text.extend_from_slice(value.as_bytes()),
        ValueRef::Unsigned(value) => text.extend_from_slice(value.to_string().as_bytes()),
        ValueRef::Hex(value) => text.extend_from_slice(format!("{value:016x}").as_bytes()),
        ValueRef::Address(address, version) => {
            text.extend_from_slice(address.to_ip(version).to_string().as_bytes());
        }
        _ => {}
    }
}
