//! Records about what should not be in a packet, a connection or a message.

use flowgauge_wire::{Address, Nanos};

use crate::any::KnownRecord;
use crate::parties::text_or_null;
use crate::schema::{FieldVisitor, Record, Schema, fields};
use crate::text::protocol_name;

fields! {
    /// Fields of an [`AnomalyRow`].
    AnomalyFields, ANOMALY, ANOMALY_SCHEMA:
    time Time None "TIME" 1 "when it was noticed, on the clock of the capture";
    src_ip Address None "CLIENT" 1 "who opened the connection, or sent the packet; null of what is not IP";
    src_port Unsigned None "PORT" 4 "its port";
    dst_ip Address None "SERVER" 1 "to whom";
    dst_port Unsigned None "PORT" 2 "port there";
    proto Text None "" 0 "tcp, udp, icmp, or the number of another protocol";
    layer Text None "LAYER" 2 "packet, stream or application: where it was found";
    anomaly Text None "ANOMALY" 1 "what it is";
    detail Text None "DETAIL" 2 "more of it, or null";
    protocol Text None "" 0 "the application protocol in which it was found";
    sent_by Text None "SENT BY" 4 "src or dst: who sent it, where that is known";
}

/// Where something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// In the headers of a packet.
    Packet,
    /// In what a connection's packets are together.
    Stream,
    /// In a message.
    Application,
}

impl Layer {
    /// Name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Layer::Packet => "packet",
            Layer::Stream => "stream",
            Layer::Application => "application",
        }
    }
}

/// Something that should not be.
#[derive(Clone, Copy, Debug)]
pub struct AnomalyRow<'a> {
    /// When it was noticed.
    pub time: Nanos,
    /// Who opened the connection, and who answers: address and port. None of what is not IP.
    pub ends: Option<[(Address, u16); 2]>,
    /// 4 or 6.
    pub ip_version: u8,
    /// IP protocol.
    pub ip_protocol: u8,
    /// Where it was found.
    pub layer: Layer,
    /// What it is.
    pub name: &'a str,
    /// More of it.
    pub detail: Option<&'a str>,
    /// The application protocol.
    pub protocol: Option<&'a str>,
    /// Whether the one who opened the connection sent it.
    pub from_initiator: Option<bool>,
}

impl Record for AnomalyRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.time(&ANOMALY.time, self.time);
        match self.ends {
            Some([source, destination]) => {
                visitor.address(&ANOMALY.src_ip, source.0, self.ip_version);
                visitor.unsigned(&ANOMALY.src_port, source.1.into());
                visitor.address(&ANOMALY.dst_ip, destination.0, self.ip_version);
                visitor.unsigned(&ANOMALY.dst_port, destination.1.into());
                let name = protocol_name(self.ip_protocol);
                visitor.symbol(&ANOMALY.proto, name.as_bytes());
            }
            None => {
                visitor.null(&ANOMALY.src_ip);
                visitor.null(&ANOMALY.src_port);
                visitor.null(&ANOMALY.dst_ip);
                visitor.null(&ANOMALY.dst_port);
                visitor.null(&ANOMALY.proto);
            }
        }
        visitor.symbol(&ANOMALY.layer, self.layer.name().as_bytes());
        visitor.text(&ANOMALY.anomaly, self.name);
        text_or_null(visitor, &ANOMALY.detail, self.detail);
        text_or_null(visitor, &ANOMALY.protocol, self.protocol);
        match self.from_initiator {
            Some(true) => visitor.symbol(&ANOMALY.sent_by, b"src"),
            Some(false) => visitor.symbol(&ANOMALY.sent_by, b"dst"),
            None => visitor.null(&ANOMALY.sent_by),
        }
    }
}

impl KnownRecord for AnomalyRow<'_> {
    fn schema(&self) -> Schema {
        ANOMALY_SCHEMA
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonEncoder;

    #[test]
    fn what_is_not_ip_has_no_ends() {
        let mut row = AnomalyRow {
            time: Nanos(1),
            ends: None,
            ip_version: 0,
            ip_protocol: 0,
            layer: Layer::Packet,
            name: "short_header",
            detail: None,
            protocol: None,
            from_initiator: None,
        };
        let text = |row: &AnomalyRow<'_>| {
            let mut out = Vec::new();
            JsonEncoder::default().object(row, &mut out);
            String::from_utf8(out).unwrap()
        };
        let start = r#"{"time":"1970-01-01T00:00:00.000000001Z","src_ip":null,"src_port":null,"dst_ip":null,"dst_port":null,"proto":null,"#;
        let end = r#""layer":"packet","anomaly":"short_header","detail":null,"protocol":null,"sent_by":null}"#;
        assert_eq!(text(&row), format!("{start}{end}"));
        let end = (Address::v4([192, 0, 2, 1]), 53);
        row.ends = Some([end; 2]);
        (row.ip_version, row.ip_protocol) = (4, 17);
        row.from_initiator = Some(false);
        assert!(text(&row).contains(r#""dst_port":53,"proto":"udp","layer":"#));
        assert!(text(&row).ends_with(r#""sent_by":"dst"}"#));
    }
}
