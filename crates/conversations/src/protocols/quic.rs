//! QUIC: what both sides say in their first packets.

use data_encoding::HEXLOWER;
use flowgauge_proto::quic::{Events, Kind, Packet, Parser, look};
use flowgauge_proto::tls::{self, Carrier, ClientHello, ServerHello};
use flowgauge_record::Held;
use flowgauge_record::quic::{QUIC_SCHEMA, QuicRow};
use flowgauge_stack::{ComponentInfo, ResultInfo};

use super::table::Table;
use super::tls::{Side, TlsHandshake};
use super::{At, Conversation, Give, ProtocolInfo, Transport, Wants, alone};

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "quic",
    transport: Transport::Udp,
    ports: &[443, 853],
    look: |seen| seen.either(look),
    begins_datagram: |byte| byte & 0x80 != 0,
    table: Table::<QuicTalk>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "quic",
    summary: "finds QUIC handshakes and their parameters",
    help: "Initial packets of versions 1 and 2 and of drafts are decrypted: name, protocols, fingerprints. \
           Takes datagrams.",
    fields: |_| Some(QUIC_SCHEMA),
    result: Some(ResultInfo::number("connections found", "transactions")),
    make: alone::make::<QuicTalk>,
    ..alone::INFO
};

/// A connection of QUIC.
#[derive(Debug, Default)]
pub(crate) struct QuicTalk {
    open: Option<Box<Open>>,
    is_given: bool,
}

#[derive(Debug)]
struct Open {
    parser: Parser,
    handshake: TlsHandshake,
    row: QuicRow,
    /// The client's first packet was opened.
    has_client: bool,
}

impl Conversation for QuicTalk {
    type Common = ();

    fn data(&mut self, (): &mut (), at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if self.is_given {
            return;
        }
        let open = self.open.get_or_insert_with(|| {
            Box::new(Open {
                parser: Parser::default(),
                handshake: TlsHandshake::new(at, Carrier::Quic),
                row: QuicRow::default(),
                has_client: false,
            })
        });
        let Open {
            parser,
            handshake,
            row,
            has_client,
        } = &mut **open;
        let mut events = Datagram {
            side: handshake.events(at, give),
            row,
            has_client,
            from_initiator: at.from_initiator,
        };
        parser.datagram(at.from_initiator, bytes, &mut events);
        let tls = &handshake.row;
        if tls.has_client && tls.has_server || parser.is_done() {
            self.give(give);
        }
    }

    fn wants(&self, _: &At<'_>) -> Wants {
        Wants::nothing_if(self.is_given)
    }

    fn held(&self) -> usize {
        self.open.as_ref().map_or(0, |open| {
            size_of::<Open>() + open.parser.held() + open.handshake.held() + open.row.held()
        })
    }

    fn close(&mut self, (): &mut (), _: &At<'_>, give: &mut Give<'_>) {
        self.give(give);
    }
}

impl QuicTalk {
    fn give(&mut self, give: &mut Give<'_>) {
        self.is_given = true;
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.row.tls = open.handshake.row;
        if !open.row.version.is_empty() {
            if let Some(name) = &open.row.tls.server_name {
                give.server_is(name.as_bytes());
            }
            give.record(open.row.tls.origin.time, &open.row);
        }
    }
}

/// What is in a datagram.
struct Datagram<'a, 'b> {
    side: Side<'a, 'b>,
    row: &'a mut QuicRow,
    has_client: &'a mut bool,
    from_initiator: bool,
}

impl Events for Datagram<'_, '_> {
    fn packet(&mut self, packet: &Packet<'_>) {
        let row = &mut *self.row;
        match packet.kind {
            Kind::Negotiation => row.is_negotiated = true,
            Kind::Retry => row.is_retried = true,
            _ => {}
        }
        if packet.kind == Kind::Negotiation {
            return;
        }
        match packet.opened {
            Some(true) => {
                // Behind a Retry packet there is another id.
                if !*self.has_client || row.is_retried && row.server_scid.is_none() {
                    row.version = packet.version.name();
                    row.client_initial_dcid = HEXLOWER.encode(packet.destination);
                    row.client_scid = HEXLOWER.encode(packet.source);
                }
                *self.has_client = true;
            }
            Some(false) => {
                row.version = packet.version.name();
                row.server_scid = Some(HEXLOWER.encode(packet.source));
            }
            None if row.version.is_empty() && self.from_initiator => {
                row.version = packet.version.name();
                row.client_initial_dcid = HEXLOWER.encode(packet.destination);
                row.client_scid = HEXLOWER.encode(packet.source);
            }
            None => {}
        }
    }
}

impl tls::Events for Datagram<'_, '_> {
    fn client_hello(&mut self, hello: &ClientHello<'_>) {
        self.side.client_hello(hello);
    }

    fn server_hello(&mut self, hello: &ServerHello<'_>) {
        self.side.server_hello(hello);
    }

    fn message(&mut self, kind: u8) {
        self.side.message(kind);
    }

    fn lost(&mut self) {
        self.side.lost();
    }

    fn bounded(&mut self, bound: &'static str) {
        self.side.bounded(bound);
    }
}
