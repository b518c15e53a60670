//! What records about conversations begin with.

use flowgauge_wire::Nanos;

use crate::parties::Parties;
use crate::schema::{Field, FieldVisitor};

/// When something was said, and between whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// When it began.
    pub time: Nanos,
    /// Client and server.
    pub parties: Parties,
}

impl Origin {
    /// Hands on the first six fields: time, addresses and ports, protocol.
    pub(crate) fn visit<V: FieldVisitor>(
        self,
        visitor: &mut V,
        fields: [&'static Field; 6],
        protocol: &str,
    ) {
        let [time, a, b, c, d, proto] = fields;
        visitor.time(time, self.time);
        self.parties.visit(visitor, [a, b, c, d]);
        visitor.symbol(proto, protocol.as_bytes());
    }
}

/// The six fields of a static.
macro_rules! origin_fields {
    ($fields:ident) => {
        [
            &$fields.time,
            &$fields.src_ip,
            &$fields.src_port,
            &$fields.dst_ip,
            &$fields.dst_port,
            &$fields.proto,
        ]
    };
}
pub(crate) use origin_fields;
