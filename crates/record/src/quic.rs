//! Records about QUIC connections.

use crate::exchange::state;
use crate::schema::record;
use crate::tls::TlsRow;
use crate::value::{Symbol, filled, listed};

record! {
    /// Fields of a [`QuicRow`].
    QUIC, QUIC_SCHEMA for QuicRow as it {
        let tls = &it.tls;
    }:
    ..tls.origin, "the client's first packet", Symbol("udp"), "udp";
    version: String, Text "VERSION" 1 = &it.version, "version of QUIC: 1, 2, draft-29, or a number in hexadecimal";
    client_initial_dcid: String, Text = &it.client_initial_dcid, "id of the connection that the client made up for its first packet";
    client_scid: String, Text = &it.client_scid, "id that the client chose";
    server_scid: Option<String>, Text = &it.server_scid, "id that the server chose";
    server_name Text "NAME" 1 = &tls.server_name, "name of the server that the client wants (SNI)";
    client_protocol Text "PROTOCOL" 2 = tls.client_protocols.first(), "protocol within that the client would have first (ALPN)";
    client_protocols Texts = listed(&tls.client_protocols), "protocols within that the client offered";
    tls_version Text = filled(&tls.version), "version of TLS the server chose";
    cipher Text "CIPHER" 3 = filled(&tls.cipher), "cipher suite the server chose";
    curve Text = filled(&tls.curve), "group in which keys were exchanged";
    resumed Text = tls.resumed, "yes: keys of an earlier connection were used again; null without the server's hello";
    ja3 Text = filled(&tls.ja3), "fingerprint of the client's hello: JA3";
    ja3s Text = filled(&tls.ja3s), "fingerprint of the server's hello: JA3S";
    ja4 Text "JA4" 4 = filled(&tls.ja4), "fingerprint of the client's hello: JA4";
    ja3_text Text = filled(&tls.ja3_text), "text that JA3 is the digest of";
    ja3s_text Text = filled(&tls.ja3s_text), "text that JA3S is the digest of";
    client_extensions List = listed(&tls.extensions[0]), "extensions of the client's hello, by number, in order";
    server_extensions List = listed(&tls.extensions[1]), "those of the server's";
    retried (is_retried: bool) Text = it.is_retried, "yes: the server sent a Retry packet";
    negotiated (is_negotiated: bool) Text = it.is_negotiated, "yes: the server asked for another version";
    state Text "STATE" 3 = Symbol(state(tls.has_client, tls.has_server)), "matched, no_reply or no_request: which hellos were seen";
    whole Text = !tls.is_damaged, "no: something was missing or could not be read";
    limit Text = tls.limit, "the first limit that was exceeded, as for TLS; pieces: too much data waiting for earlier \
    bytes; or null";

    /// A QUIC connection, as far as it is readable.
    #[derive(Clone, Debug, Default)]
    pub struct QuicRow {
        /// Its handshake; time, client and server.
        pub tls: TlsRow,
    }
}
