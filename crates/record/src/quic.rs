//! Records about QUIC connections.

use core::any::Any;

use crate::any::KnownRecord;
use crate::origin::origin_fields;
use crate::parties::{filled_or_null, text_or_null, texts_or_null, yes_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};
use crate::tls::TlsRow;

fields! {
    /// Fields of a [`QuicRow`].
    QuicFields, QUIC, QUIC_SCHEMA:
    time Time None "TIME" 1 "the client's first packet";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 3 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 2 "port of the server";
    proto Text None "" 0 "udp";
    version Text None "VERSION" 1 "version of QUIC: 1, 2, draft-29, or a number in hexadecimal";
    client_initial_dcid Text None "" 0 "id of the connection that the client made up for its first packet";
    client_scid Text None "" 0 "id that the client chose";
    server_scid Text None "" 0 "id that the server chose";
    server_name Text None "NAME" 1 "name of the server that the client wants (SNI)";
    client_protocol Text None "PROTOCOL" 2 "protocol within that the client would have first (ALPN)";
    client_protocols Texts None "" 0 "protocols within that the client offered";
    tls_version Text None "" 0 "version of TLS the server chose";
    cipher Text None "CIPHER" 3 "cipher suite the server chose";
    curve Text None "" 0 "group in which keys were exchanged";
    resumed Text None "" 0 "yes: keys of an earlier connection were used again; null without the server's hello";
    ja3 Text None "" 0 "fingerprint of the client's hello: JA3";
    ja3s Text None "" 0 "fingerprint of the server's hello: JA3S";
    ja4 Text None "JA4" 4 "fingerprint of the client's hello: JA4";
    ja3_text Text None "" 0 "what JA3 is a digest of";
    ja3s_text Text None "" 0 "what JA3S is a digest of";
    client_extensions List None "" 0 "extensions of the client's hello, by number, in order";
    server_extensions List None "" 0 "those of the server's";
    retried Text None "" 0 "yes: the server sent a Retry packet";
    negotiated Text None "" 0 "yes: the server asked for another version";
    state Text None "STATE" 3 "matched, no_reply or no_request: which hellos were seen";
    whole Text None "" 0 "no: something was missing or could not be read";
    limit Text None "" 0 "the first bound that left something out, as of TLS; pieces: too much came before what comes before it; or null";
}

/// A QUIC connection, as far as it can be read.
#[derive(Clone, Debug, Default)]
pub struct QuicRow {
    /// What its handshake says; when and between whom.
    pub tls: TlsRow,
    /// Version.
    pub version: String,
    /// Id of the connection in the client's first packet.
    pub client_initial_dcid: String,
    /// Id that the client chose.
    pub client_scid: String,
    /// Id that the server chose; `None`: no packet of its was seen.
    pub server_scid: Option<String>,
    /// A Retry packet came.
    pub is_retried: bool,
    /// A Version Negotiation packet came.
    pub is_negotiated: bool,
}

impl Record for QuicRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let tls = &self.tls;
        (tls.origin).visit(visitor, origin_fields!(QUIC), "udp");
        visitor.text(&QUIC.version, &self.version);
        visitor.text(&QUIC.client_initial_dcid, &self.client_initial_dcid);
        visitor.text(&QUIC.client_scid, &self.client_scid);
        text_or_null(visitor, &QUIC.server_scid, self.server_scid.as_deref());
        text_or_null(visitor, &QUIC.server_name, tls.server_name.as_deref());
        let first = tls.client_protocols.first();
        text_or_null(visitor, &QUIC.client_protocol, first.map(String::as_str));
        texts_or_null(visitor, &QUIC.client_protocols, &tls.client_protocols);
        filled_or_null(visitor, &QUIC.tls_version, &tls.version);
        filled_or_null(visitor, &QUIC.cipher, &tls.cipher);
        filled_or_null(visitor, &QUIC.curve, &tls.curve);
        yes_or_null(visitor, &QUIC.resumed, tls.resumed);
        filled_or_null(visitor, &QUIC.ja3, &tls.ja3);
        filled_or_null(visitor, &QUIC.ja3s, &tls.ja3s);
        filled_or_null(visitor, &QUIC.ja4, &tls.ja4);
        filled_or_null(visitor, &QUIC.ja3_text, &tls.ja3_text);
        filled_or_null(visitor, &QUIC.ja3s_text, &tls.ja3s_text);
        for (field, list) in [&QUIC.client_extensions, &QUIC.server_extensions]
            .into_iter()
            .zip(&tls.extensions)
        {
            match list.as_slice() {
                [] => visitor.null(field),
                list => visitor.list(field, list),
            }
        }
        yes_or_null(visitor, &QUIC.retried, Some(self.is_retried));
        yes_or_null(visitor, &QUIC.negotiated, Some(self.is_negotiated));
        visitor.symbol(&QUIC.state, tls.state());
        yes_or_null(visitor, &QUIC.whole, Some(!tls.is_damaged));
        text_or_null(visitor, &QUIC.limit, tls.limit);
    }
}

impl KnownRecord for QuicRow {
    fn schema(&self) -> Schema {
        QUIC_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
