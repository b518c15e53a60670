//! Records about TLS handshakes and certificates.

use crate::exchange::state;
use crate::origin::Origin;
use crate::schema::record;
use crate::value::{Date, Symbol, filled, listed};

record! {
    /// Fields of a [`TlsRow`].
    TLS, TLS_SCHEMA for TlsRow as it {
        let certificate = it.certificate.as_deref();
        let validity = certificate.and_then(|it| it.validity);
    }:
    ..it.origin, "first byte of the first hello", carrier(it.is_datagram), "tcp or udp (DTLS)";
    version: String, Text "VERSION" 1 = filled(&it.version), "version the server chose, as TLS 1.3; without its hello null";
    cipher: String, Text "CIPHER" 3 = filled(&it.cipher), "cipher suite the server chose";
    curve: String, Text = filled(&it.curve), "group in which keys were exchanged";
    server_name: Option<String>, Text "NAME" 1 = &it.server_name, "name of the server that the client wants (SNI)";
    next_protocol: Option<String>, Text "PROTOCOL" 2 = &it.next_protocol, "protocol within that the server chose (ALPN)";
    client_protocols: Vec<String>, Texts = listed(&it.client_protocols), "protocols within that the client offered";
    client_version: String, Text = filled(&it.client_version), "highest version the client offered";
    resumed: Option<bool>, Text = it.resumed, "yes: a session was resumed; null without the server's hello";
    established: Option<bool>, Text = it.established, "yes: both sides switched to encryption";
    history: String, Text = &it.history, "messages in order, a letter each as in Zeek's ssl_history, capitals the client's";
    last_alert: String, Text "ALERT" 3 = filled(&it.last_alert), "last unencrypted alert";
    subject Text "SUBJECT" 4 = certificate.map(|it| &it.subject), "subject of the server's certificate";
    issuer Text = certificate.map(|it| &it.issuer), "issuer of the server's certificate";
    serial Text = certificate.map(|it| &it.serial), "serial number of the server's certificate, hexadecimal";
    not_before Time = validity.map(|it| Date(it[0])), "from when the server's certificate is valid";
    not_after Time = validity.map(|it| Date(it[1])), "until when it is";
    san Texts = certificate.and_then(|it| listed(&it.alternatives)), "names and addresses it is for";
    sha1 Text = certificate.map(|it| &it.sha1), "SHA-1 of the server's certificate";
    sha256 Text = certificate.map(|it| &it.sha256), "SHA-256 of the server's certificate";
    chain: Vec<String>, Texts = listed(&it.chain), "SHA-256 of the certificates the server sent";
    client_subject: String, Text = filled(&it.client_subject), "whom the client's certificate is of";
    client_chain: Vec<String>, Texts = listed(&it.client_chain), "SHA-256 of the certificates the client sent";
    ja3: String, Text = filled(&it.ja3), "fingerprint of the client's hello: JA3";
    ja3s: String, Text = filled(&it.ja3s), "fingerprint of the server's hello: JA3S";
    ja4: String, Text "JA4" 4 = filled(&it.ja4), "fingerprint of the client's hello: JA4";
    ja3_text: String, Text = filled(&it.ja3_text), "text that JA3 is the digest of";
    ja3s_text: String, Text = filled(&it.ja3s_text), "text that JA3S is the digest of";
    state Text "STATE" 3 = Symbol(state(it.has_client, it.has_server)), "matched, no_reply or no_request: which hellos were seen";
    whole Text = !it.is_damaged, "no: something was missing or could not be read";
    close: Option<&'static str>, Text = it.close, "end of the connection, if it ended before both sides were \
    encrypted: fin, rst, timeout";
    limit: Option<&'static str>, Text = it.limit, "the first bound that left something out: message (a handshake message of more than 128 KiB), chain (more than 16 certificates), protocols (32), history (64 letters), text (4 KiB), pieces, messages (DTLS); or null";

    /// A TLS handshake.
    #[derive(Clone, Debug, Default)]
    pub struct TlsRow {
        /// Time of the first byte of the first hello, client and server.
        pub origin: Origin,
        /// Whether it is DTLS.
        pub is_datagram: bool,
        /// The server's certificate, if it could be parsed.
        pub certificate: Option<Box<X509Row>>,
        /// Extensions of the client's and the server's hello, by number, in order.
        pub extensions: [Vec<u16>; 2],
        /// Whether the client's hello was seen.
        pub has_client: bool,
        /// Whether the server's hello was seen.
        pub has_server: bool,
        /// Whether bytes were missing or could not be parsed.
        pub is_damaged: bool,
    }
}

record! {
    /// Fields of an [`X509Row`].
    X509, X509_SCHEMA for X509Row as it {
        let parties = it.origin.parties;
    }:
    time Time "TIME" 1 = it.origin.time, "when it was captured";
    src_ip Address "CLIENT" 2 = parties.client_ip(), "address of the client";
    src_port Unsigned "PORT" 3 = parties.client.1, "port of the client";
    dst_ip Address "SERVER" 1 = parties.server_ip(), "address of the server";
    dst_port Unsigned "PORT" 2 = parties.server.1, "port of the server";
    proto Text = carrier(it.is_datagram), "tcp or udp";
    sender Text "FROM" 2 = Symbol(if it.is_client { "client" } else { "server" }), "client or server";
    place: u32, Unsigned "NO" 2 = it.place, "position in the chain that was sent, from 1";
    sha256: String, Text = &it.sha256, "SHA-256 of the certificate";
    sha1: String, Text = &it.sha1, "SHA-1 of the certificate";
    version: u32, Unsigned = it.version, "version of X.509";
    serial: String, Text = &it.serial, "serial number, hexadecimal";
    subject: String, Text "SUBJECT" 1 = &it.subject, "subject";
    issuer: String, Text "ISSUER" 3 = &it.issuer, "issuer";
    not_before Time = it.validity.map(|it| Date(it[0])), "from when it is valid";
    not_after Time "UNTIL" 2 = it.validity.map(|it| Date(it[1])), "until when it is valid";
    key_alg (key_algorithm: String) Text = &it.key_algorithm, "algorithm of its key";
    sig_alg (signature_algorithm: String) Text = &it.signature_algorithm, "algorithm of its signature";
    key_type: &'static str, Text "KEY" 3 = filled(it.key_type), "rsa, dsa or ecdsa; null of others";
    key_length (key_bits: Option<u32>) Unsigned "BITS" 3 = it.key_bits, "bits of the key";
    exponent: Option<u64>, Unsigned = it.exponent, "exponent of an RSA key";
    curve: Option<String>, Text = &it.curve, "curve of a key of ECDSA";
    san_dns (dns_names: Vec<String>) Texts = listed(&it.dns_names), "host names it is for";
    san_ip (ip_addresses: Vec<String>) Texts = listed(&it.ip_addresses), "addresses it is for";
    san_email (emails: Vec<String>) Texts = listed(&it.emails), "mail addresses it is for";
    san_uri (uris: Vec<String>) Texts = listed(&it.uris), "URIs it is for";
    ca (is_authority: Option<bool>) Text = it.is_authority, "yes: it is an authority's; null: it does not say";
    path_length: Option<u32>, Unsigned = it.path_length, "how many authorities may stand below";
    limit: Option<&'static str>, Text = it.limit, "text: a name has more than 16 KiB and is truncated; or null";

    /// A certificate.
    #[derive(Clone, Debug, Default)]
    pub struct X509Row {
        /// Time of capture, client and server.
        pub origin: Origin,
        /// Whether it was sent over UDP.
        pub is_datagram: bool,
        /// Whether the client sent it.
        pub is_client: bool,
        /// Start and end of its validity: seconds since 1970, which may be negative.
        pub validity: Option<[i64; 2]>,
        /// All of the following four kinds.
        pub alternatives: Vec<String>,
    }
}

/// The protocol below.
fn carrier(is_datagram: bool) -> Symbol<'static> {
    Symbol(if is_datagram { "udp" } else { "tcp" })
}
