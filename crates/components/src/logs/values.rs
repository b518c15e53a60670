//! A record's values by name, and what is made of them.

use flowgauge_record::any::{AnyRecord, OwnedRecord, Value};
use flowgauge_record::json::JsonEncoder;
use flowgauge_wire::Nanos;
use serde_json::Number;

/// A record, looked at by name.
pub(crate) struct Values(OwnedRecord);

impl Values {
    pub(crate) fn of(record: &dyn AnyRecord) -> Values {
        Values(OwnedRecord::of(record))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let value = self.0.get(name)?;
        (!matches!(value, Value::Null | Value::Object(None))).then_some(value)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            Value::Symbol(bytes) => core::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Unsigned(value) | Value::Hex(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn texts(&self, name: &str) -> &[Box<str>] {
        match self.get(name) {
            Some(Value::Texts(texts)) => texts,
            _ => &[],
        }
    }

    pub(crate) fn numbers(&self, name: &str) -> &[u32] {
        match self.get(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    pub(crate) fn time(&self, name: &str) -> Option<Nanos> {
        match self.get(name)? {
            Value::Time(time) => Some(*time),
            _ => None,
        }
    }

    pub(crate) fn span(&self, name: &str) -> Option<Nanos> {
        match self.get(name)? {
            Value::Duration(span) => Some(*span),
            _ => None,
        }
    }

    /// An address as text.
    pub(crate) fn address(&self, name: &str) -> Option<String> {
        match self.get(name)? {
            Value::Address(address, version) => Some(address.to_ip(*version).to_string()),
            _ => None,
        }
    }

    /// `yes` and `no`.
    pub(crate) fn yes(&self, name: &str) -> Option<bool> {
        self.text(name).map(|text| text == "yes")
    }

    /// All of it, as the project writes records.
    pub(crate) fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut text = Vec::new();
        JsonEncoder::default().object(&self.0, &mut text);
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// The protocol that a flow was found to speak: others do not guess by its port.
    pub(crate) fn spoken(&self) -> Option<&str> {
        self.text("app_proto")
            .filter(|_| self.text("app_proto_by") != Some("port"))
    }

    /// What kind of record it is.
    pub(crate) fn kind(&self) -> &str {
        self.text("event_type").unwrap_or_default()
    }
}

/// A time as seconds with six decimals, and nothing lost in a number of 64 bits.
pub(crate) fn seconds(nanos: Nanos) -> serde_json::Value {
    let text = format!(
        "{}.{:06}",
        nanos.0 / 1_000_000_000,
        nanos.0 / 1_000 % 1_000_000
    );
    text.parse::<f64>()
        .ok()
        .and_then(Number::from_f64)
        .map_or(serde_json::Value::Null, serde_json::Value::Number)
}
