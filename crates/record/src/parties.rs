//! Who talks with whom, in records about conversations of a client and a server.

use flowgauge_wire::Address;

use crate::schema::{Field, FieldVisitor};

/// A client and a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parties {
    /// Address and port of who asks.
    pub client: (Address, u16),
    /// Address and port of who answers.
    pub server: (Address, u16),
    /// 4 or 6.
    pub ip_version: u8,
}

impl Parties {
    /// The same with the roles exchanged.
    #[must_use]
    pub const fn exchanged(self) -> Parties {
        Parties {
            client: self.server,
            server: self.client,
            ip_version: self.ip_version,
        }
    }

    /// Hands on the four fields of a record that are about them.
    pub(crate) fn visit<V: FieldVisitor>(self, visitor: &mut V, fields: [&'static Field; 4]) {
        visitor.address(fields[0], self.client.0, self.ip_version);
        visitor.unsigned(fields[1], u64::from(self.client.1));
        visitor.address(fields[2], self.server.0, self.ip_version);
        visitor.unsigned(fields[3], u64::from(self.server.1));
    }
}

/// Text, or null where there is none.
pub(crate) fn text_or_null<V: FieldVisitor>(
    visitor: &mut V,
    field: &'static Field,
    value: Option<&str>,
) {
    match value {
        Some(text) => visitor.text(field, text),
        None => visitor.null(field),
    }
}

/// Text, or null where it is empty.
pub(crate) fn filled_or_null<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: &str) {
    text_or_null(visitor, field, Some(value).filter(|text| !text.is_empty()));
}

/// A number, or null where there is none.
pub(crate) fn number_or_null<V: FieldVisitor>(
    visitor: &mut V,
    field: &'static Field,
    value: Option<impl Into<u64>>,
) {
    match value {
        Some(value) => visitor.unsigned(field, value.into()),
        None => visitor.null(field),
    }
}

/// An identifier, or null where there is none.
pub(crate) fn hex_or_null<V: FieldVisitor>(
    visitor: &mut V,
    field: &'static Field,
    value: Option<u64>,
) {
    match value {
        Some(value) => visitor.hex(field, value),
        None => visitor.null(field),
    }
}

/// `yes`, `no`, or null where it is not known.
pub(crate) fn yes_or_null<V: FieldVisitor>(
    visitor: &mut V,
    field: &'static Field,
    value: Option<bool>,
) {
    match value {
        Some(true) => visitor.symbol(field, b"yes"),
        Some(false) => visitor.symbol(field, b"no"),
        None => visitor.null(field),
    }
}

/// Texts, or null where there are none.
pub(crate) fn texts_or_null<V: FieldVisitor>(
    visitor: &mut V,
    field: &'static Field,
    values: &[String],
) {
    match values {
        [] => visitor.null(field),
        values => visitor.texts(field, values),
    }
}
