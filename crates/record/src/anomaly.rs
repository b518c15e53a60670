//! Records about anomalies in packets, connections and messages.

use flowgauge_wire::{Address, Nanos};

use crate::schema::record;
use crate::text::protocol_name;
use crate::value::Symbol;

record! {
    /// Fields of an [`AnomalyRow`].
    ANOMALY, ANOMALY_SCHEMA for AnomalyRow<'_> as it {
        let [source, destination] = it.ends.map_or([None; 2], |ends| ends.map(Some));
        let ip = |end: (Address, u16)| (end.0, it.ip_version);
    }:
    time Time "TIME" 1 = it.time, "when it was noticed, on the capture clock";
    src_ip Address "CLIENT" 1 = source.map(ip), "initiator of the connection, or sender of the packet; null without IP";
    src_port Unsigned "PORT" 4 = source.map(|end| end.1), "its port";
    dst_ip Address "SERVER" 1 = destination.map(ip), "to whom";
    dst_port Unsigned "PORT" 2 = destination.map(|end| end.1), "port there";
    proto Text = source.map(|_| Symbol(protocol_name(it.ip_protocol))), "tcp, udp, icmp, or the number of another protocol";
    layer Text "LAYER" 2 = Symbol(it.layer.name()), "layer of the anomaly: packet, stream or application";
    anomaly Text "ANOMALY" 1 = it.name, "what it is";
    detail Text "DETAIL" 2 = it.detail, "more of it, or null";
    protocol Text = it.protocol, "the application protocol in which it was found";
    sent_by Text "SENT BY" 4 = it.from_initiator.map(side), "sender: src or dst, if known";
}

/// The layer of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Layer {
    /// In the headers of a packet.
    Packet,
    /// The packets of a connection in combination.
    Stream,
    /// A message.
    Application,
}

impl Layer {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Which side of a connection it is: that of who opened it is src.
pub(crate) fn side(is_initiator: bool) -> Symbol<'static> {
    Symbol(if is_initiator { "src" } else { "dst" })
}

/// An anomaly.
#[derive(Clone, Copy, Debug)]
pub struct AnomalyRow<'a> {
    /// Time of detection.
    pub time: Nanos,
    /// Address and port of initiator and responder; `None` without IP.
    pub ends: Option<[(Address, u16); 2]>,
    /// 4 or 6.
    pub ip_version: u8,
    /// IP protocol.
    pub ip_protocol: u8,
    /// The layer.
    pub layer: Layer,
    /// The name of the anomaly.
    pub name: &'a str,
    /// Details.
    pub detail: Option<&'a str>,
    /// The application protocol.
    pub protocol: Option<&'a str>,
    /// Whether the initiator sent it.
    pub from_initiator: Option<bool>,
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
