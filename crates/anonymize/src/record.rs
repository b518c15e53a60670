//! Records: the same functions by field.
//!
//! What a field is shows by its name and kind. A rule in `[records]` about its name comes first; then the rules about
//! packets' fields with the same meaning (addresses, ports, parts of HTTP); what only counts, measures or names one of a
//! few states stays; everything else becomes null. A value that a function is not made for becomes null, too.

use std::collections::HashMap;

use flowgauge_record::any::{AnyObject, AnyRecord, OwnedObject, OwnedRecord, Value};
use flowgauge_record::http::{HttpMessage, Piece};
use flowgauge_record::schema::{Field as RecordField, FieldKind};
use flowgauge_record::{FieldVisitor, Held, ValueRef};
use flowgauge_wire::{Address, Nanos};

use crate::Anonymizer;
use crate::compiled::Compiled;
use crate::field::Field;
use crate::keyed::{AddressFunction, Permutation};
use crate::rule::Function;

/// Fields that hold one of a few words or numbers, which tell nothing of who communicates.
const PLAIN: [&str; 24] = [
    "event_type",
    "app_proto",
    "proto",
    "state",
    "history",
    "kind",
    "whole",
    "close",
    "odd",
    "depth",
    "repeats",
    "end_reason",
    "src_tcp_flags",
    "dst_tcp_flags",
    "tcp_flags",
    "flags",
    "ip_version",
    "fragments",
    "rcode",
    "opcode",
    "qtype",
    "group",
    "count",
    "interval",
];

/// What is done with a field.
#[derive(Clone, Debug)]
enum Action {
    Keep,
    Null,
    Address(Field),
    Port(Field),
    Time,
    Object,
    Own(Function),
}

/// What was found of fields, by their place in memory: they live as long as the program.
#[derive(Default)]
pub(crate) struct Actions(HashMap<usize, Action>);

impl Anonymizer {
    /// What a record becomes: of the same kind, with other values.
    pub fn record(&mut self, record: &dyn AnyRecord) -> OwnedRecord {
        let mut values = Values {
            it: self,
            values: Vec::new(),
        };
        record.values(&mut values);
        let values = values.values.into_iter().map(|(_, value)| value).collect();
        OwnedRecord::new(record.schema(), values)
    }

    /// What an HTTP message becomes: a message still, so that requests and responses can be put together behind it.
    pub fn http_message(&mut self, from: &HttpMessage, to: &mut HttpMessage) {
        to.clear();
        let address =
            |it: &mut Compiled, field, of: Address| of_address(it, field, of, from.ip_version);
        let (source, destination) = (from.source, from.destination);
        let it = &mut self.compiled;
        to.source = (
            address(it, Field::SourceIp, source.0).unwrap_or_default(),
            it.number(Field::TcpSourcePort, source.1.into(), 16) as u16,
        );
        to.destination = (
            address(it, Field::DestinationIp, destination.0).unwrap_or_default(),
            it.number(Field::TcpDestinationPort, destination.1.into(), 16) as u16,
        );
        let time = |time: Nanos| it.time(time);
        to.begin = time(from.begin);
        to.end = time(from.end);
        to.handshake = from.handshake.map(|of| of.map(time));
        to.ip_version = from.ip_version;
        to.depth = from.depth;
        to.is_request = from.is_request;
        to.has_head = from.has_head;
        to.body_bytes = from.body_bytes;
        to.missing_bytes = from.missing_bytes;
        to.is_whole = from.is_whole;
        to.close = from.close;
        to.is_after_loss = from.is_after_loss;
        to.retransmitted = from.retransmitted;
        to.odd = to.keep(from.get(from.odd));
        if self.keeps("version", "VERSION") {
            to.version = from.version;
        } else {
            to.version = "other";
        }
        if self.keeps("status", "STATUS") {
            to.status = from.status;
        }
        macro_rules! pieces {
            ($($field:ident $http:literal)*) => {
                $(to.$field = self.piece(from, to, stringify!($field), $http, from.$field);)*
            };
        }
        pieces! {
            method "METHOD" uri "URI" reason "REASON" host "host" user_agent "user-agent" referrer "referer"
            content_type "content-type" content_encoding "content-encoding"
        }
    }

    fn keeps(&self, name: &str, http: &str) -> bool {
        let own = self.compiled.records.get(name);
        own.or(self.compiled.http_function(http)) == Some(&Function::Unchanged)
    }

    fn piece(
        &mut self,
        from: &HttpMessage,
        to: &mut HttpMessage,
        name: &str,
        http: &str,
        piece: Piece,
    ) -> Piece {
        let own = self
            .compiled
            .records
            .get(name)
            .or(self.compiled.http_function(http));
        let (Some(function), Some(value)) = (own.cloned(), from.get(piece)) else {
            return Piece::default();
        };
        let mut text = core::mem::take(&mut self.text);
        text.clear();
        self.compiled.text(&function, value, &mut text);
        let kept = to.keep(Some(&text));
        self.text = text;
        kept
    }

    fn value(&mut self, field: &'static RecordField, value: ValueRef<'_>) -> Value {
        let place = core::ptr::from_ref(field) as usize;
        let action = match self.actions.0.get(&place) {
            Some(action) => action.clone(),
            None => {
                let action = action_of(&self.compiled, field);
                self.actions.0.insert(place, action.clone());
                action
            }
        };
        match (action, value) {
            (Action::Keep, value) => value.into(),
            (Action::Address(of), ValueRef::Address(address, version)) => {
                let becomes = of_address(&mut self.compiled, of, address, version);
                becomes.map_or(Value::Null, |it| Value::Address(it, version))
            }
            (Action::Port(of), ValueRef::Unsigned(port)) => {
                Value::Unsigned(self.compiled.number(of, port, 16))
            }
            (Action::Time, ValueRef::Time(time)) => Value::Time(self.compiled.time(time)),
            (Action::Object, ValueRef::Object(object)) => {
                Value::Object(object.map(|it| self.object(it)))
            }
            (Action::Own(function), value) => self.own(&function, value),
            _ => Value::Null,
        }
    }

    fn object(&mut self, object: &dyn AnyObject) -> OwnedObject {
        let mut values = Values {
            it: self,
            values: Vec::new(),
        };
        object.values(&mut values);
        OwnedObject::new(values.values)
    }

    /// A rule of `[records]`.
    fn own(&mut self, function: &Function, value: ValueRef<'_>) -> Value {
        if let Function::Unchanged = function {
            return value.into();
        }
        match value {
            ValueRef::Text(text) | ValueRef::Symbol(text) => {
                let text = self.own_text(function, text);
                text.map_or(Value::Null, |text| Value::Text(text.into()))
            }
            ValueRef::Texts(texts) => {
                let own = |text| self.own_text(function, text).unwrap_or_default();
                Value::Texts(texts.iter().map(own).collect())
            }
            ValueRef::Address(address, version) => {
                let becomes = self.own_address(function, address, version);
                becomes.map_or(Value::Null, |it| Value::Address(it, version))
            }
            ValueRef::Unsigned(number) => match function {
                Function::Zero => Value::Unsigned(0),
                Function::Map if number < 1 << 32 => Value::Unsigned(self.number_map().of(number)),
                Function::Hashed(digest, _) => {
                    let hash =
                        crate::keyed::hash(*digest, self.compiled.key(), &number.to_be_bytes());
                    let half = hash
                        .first_chunk()
                        .map_or(0, |half| u32::from_be_bytes(*half));
                    Value::Unsigned(half.into())
                }
                _ => Value::Null,
            },
            ValueRef::Hex(number) => match function {
                Function::Map | Function::Hashed(..) => {
                    let digest = crate::rule::Digest::Sha256;
                    let hash =
                        crate::keyed::hash(digest, self.compiled.key(), &number.to_be_bytes());
                    Value::Hex(
                        hash.first_chunk()
                            .map_or(0, |half| u64::from_be_bytes(*half)),
                    )
                }
                Function::Zero => Value::Hex(0),
                _ => Value::Null,
            },
            ValueRef::Time(time) => match function {
                Function::Zero => Value::Time(Nanos(0)),
                Function::Round(span) => Value::Time(Nanos(time.0 - time.0 % (*span).max(1))),
                _ => Value::Null,
            },
            _ => Value::Null,
        }
    }

    fn own_text(&mut self, function: &Function, text: &str) -> Option<String> {
        if matches!(
            function,
            Function::Map
                | Function::MapDistribution(_)
                | Function::PrefixPreserving
                | Function::PrefixPreservingMap
        ) {
            return None;
        }
        let mut out = Vec::new();
        self.compiled.text(function, text.as_bytes(), &mut out);
        Some(String::from_utf8_lossy(&out).into_owned())
    }

    fn own_address(
        &mut self,
        function: &Function,
        address: Address,
        version: u8,
    ) -> Option<Address> {
        // That of a packet's field does the same; a function that none of them has is made once.
        let name = function.name();
        if !self.addresses.contains_key(name) {
            let made = self.compiled.address_function(function)?;
            self.addresses.insert(name, made);
        }
        let made = self.addresses.get_mut(name)?;
        Some(replace(address, version, |bytes| {
            made.apply(bytes, &mut self.compiled.random)
        }))
    }

    fn number_map(&mut self) -> &Permutation {
        let compiled = &self.compiled;
        self.numbers
            .get_or_insert_with(|| compiled.permutation("record", 32))
    }
}

/// What is done with addresses, where `[records]` says so.
pub(crate) type OwnAddresses = HashMap<&'static str, AddressFunction>;

/// Replaces an address by a rule about packets; `None` where it would become nothing but zeros.
fn of_address(it: &mut Compiled, field: Field, address: Address, version: u8) -> Option<Address> {
    if matches!(it.function(field), Function::Zero) {
        return None;
    }
    Some(replace(address, version, |bytes| it.address(field, bytes)))
}

fn replace(address: Address, version: u8, with: impl FnOnce(&mut [u8])) -> Address {
    let Address(mut bytes) = address;
    if version != 4 {
        with(&mut bytes);
        return Address(bytes);
    }
    let [.., a, b, c, d] = bytes;
    let mut four = [a, b, c, d];
    with(&mut four);
    Address::v4(four)
}

struct Values<'a> {
    it: &'a mut Anonymizer,
    values: Vec<(&'static RecordField, Value)>,
}

impl FieldVisitor for Values<'_> {
    fn value(&mut self, field: &'static RecordField, value: ValueRef<'_>) {
        let value = self.it.value(field, value);
        self.values.push((field, value));
    }
}

fn action_of(it: &Compiled, field: &'static RecordField) -> Action {
    if let Some(own) = it.records.get(field.name) {
        return Action::Own(own.clone());
    }
    if it.keeps_others() {
        let is_address = matches!(field.kind, FieldKind::Address | FieldKind::Object);
        if !is_address
            && !is_port(field.name)
            && it.http_function(&http_name_of(field.name)).is_none()
        {
            return Action::Keep;
        }
    }
    match field.kind {
        FieldKind::Address if is_of_source(field.name) => Action::Address(Field::SourceIp),
        FieldKind::Address => Action::Address(Field::DestinationIp),
        FieldKind::Object => Action::Object,
        FieldKind::Time => Action::Time,
        FieldKind::Duration => Action::Keep,
        FieldKind::Unsigned if is_port(field.name) => {
            let is_source = is_of_source(field.name);
            let [tcp, udp] = match is_source {
                true => [Field::TcpSourcePort, Field::UdpSourcePort],
                false => [Field::TcpDestinationPort, Field::UdpDestinationPort],
            };
            // A record does not always say which of the two it is about.
            match it.function(tcp) == it.function(udp) && *it.function(tcp) != Function::Zero {
                true => Action::Port(tcp),
                false => Action::Null,
            }
        }
        FieldKind::Unsigned | FieldKind::Float | FieldKind::Text if PLAIN.contains(&field.name) => {
            Action::Keep
        }
        FieldKind::Unsigned if field.is_amount() => Action::Keep,
        FieldKind::Unsigned | FieldKind::Text => {
            match it.http_function(&http_name_of(field.name)) {
                Some(function) => Action::Own(function.clone()),
                None => Action::Null,
            }
        }
        _ => Action::Null,
    }
}

fn is_of_source(name: &str) -> bool {
    ["src", "source", "client"]
        .iter()
        .any(|it| name.starts_with(it))
}

fn is_port(name: &str) -> bool {
    name == "port" || name.ends_with("_port")
}

/// The field of HTTP that a field of records shows.
fn http_name_of(name: &str) -> String {
    match name {
        "method" | "uri" | "status" | "reason" | "version" => name.to_ascii_uppercase(),
        "referrer" => "referer".to_owned(),
        "host" | "user_agent" | "content_type" | "content_encoding" => name.replace('_', "-"),
        _ => String::new(),
    }
}
