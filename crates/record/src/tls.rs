//! Records about TLS handshakes and certificates.

use core::any::Any;

use flowgauge_wire::Nanos;

use crate::any::KnownRecord;
use crate::origin::{Origin, origin_fields};
use crate::parties::{filled_or_null, number_or_null, text_or_null, texts_or_null, yes_or_null};
use crate::schema::{Field, FieldVisitor, Record, Schema, fields};
use crate::text::date_text;

fields! {
    /// Fields of a [`TlsRow`].
    TlsFields, TLS, TLS_SCHEMA:
    time Time None "TIME" 1 "first byte of the first hello";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 3 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 2 "port of the server";
    proto Text None "" 0 "tcp or udp (DTLS)";
    version Text None "VERSION" 1 "version the server chose, as TLS 1.3; without its hello null";
    cipher Text None "CIPHER" 3 "cipher suite the server chose";
    curve Text None "" 0 "group in which keys were exchanged";
    server_name Text None "NAME" 1 "name of the server that the client wants (SNI)";
    next_protocol Text None "PROTOCOL" 2 "protocol within that the server chose (ALPN)";
    client_protocols Texts None "" 0 "protocols within that the client offered";
    client_version Text None "" 0 "highest version the client offered";
    resumed Text None "" 0 "yes: keys of an earlier connection were used again; null without the server's hello";
    established Text None "" 0 "yes: both sides went over to encryption";
    history Text None "" 0 "messages in order, a letter each as in Zeek's ssl_history, capitals the client's";
    last_alert Text None "ALERT" 3 "last alert that was not encrypted";
    subject Text None "SUBJECT" 4 "whom the server's certificate is of";
    issuer Text None "" 0 "who says so";
    serial Text None "" 0 "serial number of the server's certificate, hexadecimal";
    not_before Time None "" 0 "from when the server's certificate is valid";
    not_after Time None "" 0 "until when it is";
    san Texts None "" 0 "names and addresses it is for";
    sha1 Text None "" 0 "SHA-1 of the server's certificate";
    sha256 Text None "" 0 "SHA-256 of the server's certificate";
    chain Texts None "" 0 "SHA-256 of the certificates the server sent";
    client_subject Text None "" 0 "whom the client's certificate is of";
    client_chain Texts None "" 0 "SHA-256 of the certificates the client sent";
    ja3 Text None "" 0 "fingerprint of the client's hello: JA3";
    ja3s Text None "" 0 "fingerprint of the server's hello: JA3S";
    ja4 Text None "JA4" 4 "fingerprint of the client's hello: JA4";
    ja3_text Text None "" 0 "what JA3 is a digest of";
    ja3s_text Text None "" 0 "what JA3S is a digest of";
    state Text None "STATE" 3 "matched, no_reply or no_request: which hellos were seen";
    whole Text None "" 0 "no: something was missing or could not be read";
    close Text None "" 0 "how the connection ended, where it ended before both sides were encrypted: fin, rst, timeout";
    limit Text None "" 0 "the first bound that left something out: message (a handshake message of more than 128 KiB), chain (more than 16 certificates), protocols (32), history (64 letters), text (4 KiB), pieces, messages (DTLS); or null";
}

fields! {
    /// Fields of an [`X509Row`].
    X509Fields, X509, X509_SCHEMA:
    time Time None "TIME" 1 "when it was captured";
    src_ip Address None "CLIENT" 2 "address of the client";
    src_port Unsigned None "PORT" 3 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 2 "port of the server";
    proto Text None "" 0 "tcp or udp";
    sender Text None "FROM" 2 "client or server";
    place Unsigned None "NO" 2 "position in the chain that was sent, from 1";
    sha256 Text None "" 0 "SHA-256 of the certificate";
    sha1 Text None "" 0 "SHA-1 of the certificate";
    version Unsigned None "" 0 "version of X.509";
    serial Text None "" 0 "serial number, hexadecimal";
    subject Text None "SUBJECT" 1 "whom it is of";
    issuer Text None "ISSUER" 3 "who says so";
    not_before Time None "" 0 "from when it is valid";
    not_after Time None "UNTIL" 2 "until when it is valid";
    key_alg Text None "" 0 "algorithm of its key";
    sig_alg Text None "" 0 "algorithm of its signature";
    key_type Text None "KEY" 3 "rsa, dsa or ecdsa; null of others";
    key_length Unsigned None "BITS" 3 "bits of the key";
    exponent Unsigned None "" 0 "exponent of an RSA key";
    curve Text None "" 0 "curve of a key of ECDSA";
    san_dns Texts None "" 0 "host names it is for";
    san_ip Texts None "" 0 "addresses it is for";
    san_email Texts None "" 0 "mail addresses it is for";
    san_uri Texts None "" 0 "URIs it is for";
    ca Text None "" 0 "yes: it is an authority's; null: it does not say";
    path_length Unsigned None "" 0 "how many authorities may stand below";
    limit Text None "" 0 "text: a name has more than 16 KiB, of which the rest is left out; or null";
}

/// A handshake of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsRow {
    /// First byte of the first hello, client and server.
    pub origin: Origin,
    /// It is DTLS.
    pub is_datagram: bool,
    /// The version chosen.
    pub version: String,
    /// The cipher suite chosen.
    pub cipher: String,
    /// The group.
    pub curve: String,
    /// SNI.
    pub server_name: Option<String>,
    /// ALPN, chosen.
    pub next_protocol: Option<String>,
    /// ALPN, offered.
    pub client_protocols: Vec<String>,
    /// The highest version offered.
    pub client_version: String,
    /// Keys of before.
    pub resumed: Option<bool>,
    /// Both sides encrypt.
    pub established: Option<bool>,
    /// A letter per message.
    pub history: String,
    /// The last alert.
    pub last_alert: String,
    /// The server's certificate, if it could be read.
    pub certificate: Option<Box<X509Row>>,
    /// SHA-256 of the server's certificates.
    pub chain: Vec<String>,
    /// Of the client's certificate.
    pub client_subject: String,
    /// SHA-256 of the client's certificates.
    pub client_chain: Vec<String>,
    /// JA3.
    pub ja3: String,
    /// JA3S.
    pub ja3s: String,
    /// JA4.
    pub ja4: String,
    /// What JA3 is a digest of.
    pub ja3_text: String,
    /// What JA3S is a digest of.
    pub ja3s_text: String,
    /// Extensions of the client's hello and of the server's, by number, in order.
    pub extensions: [Vec<u16>; 2],
    /// The client's hello was seen.
    pub has_client: bool,
    /// The server's was.
    pub has_server: bool,
    /// Something was missing or could not be read.
    pub is_damaged: bool,
    /// How the connection ended.
    pub close: Option<&'static str>,
    /// The first bound that left something out.
    pub limit: Option<&'static str>,
}

impl TlsRow {
    /// Which hellos were seen.
    pub(crate) const fn state(&self) -> &'static [u8] {
        match (self.has_client, self.has_server) {
            (true, true) => b"matched",
            (true, false) => b"no_reply",
            _ => b"no_request",
        }
    }
}

impl Record for TlsRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let carrier = carrier(self.is_datagram);
        (self.origin).visit(visitor, origin_fields!(TLS), carrier);
        filled_or_null(visitor, &TLS.version, &self.version);
        filled_or_null(visitor, &TLS.cipher, &self.cipher);
        filled_or_null(visitor, &TLS.curve, &self.curve);
        text_or_null(visitor, &TLS.server_name, self.server_name.as_deref());
        text_or_null(visitor, &TLS.next_protocol, self.next_protocol.as_deref());
        texts_or_null(visitor, &TLS.client_protocols, &self.client_protocols);
        filled_or_null(visitor, &TLS.client_version, &self.client_version);
        yes_or_null(visitor, &TLS.resumed, self.resumed);
        yes_or_null(visitor, &TLS.established, self.established);
        visitor.text(&TLS.history, &self.history);
        filled_or_null(visitor, &TLS.last_alert, &self.last_alert);
        let certificate = self.certificate.as_deref();
        let text = |of: fn(&X509Row) -> &String| certificate.map(|it| of(it).as_str());
        text_or_null(visitor, &TLS.subject, text(|it| &it.subject));
        text_or_null(visitor, &TLS.issuer, text(|it| &it.issuer));
        text_or_null(visitor, &TLS.serial, text(|it| &it.serial));
        let validity = certificate.and_then(|it| it.validity);
        date(visitor, &TLS.not_before, validity.map(|it| it[0]));
        date(visitor, &TLS.not_after, validity.map(|it| it[1]));
        texts_or_null(
            visitor,
            &TLS.san,
            certificate.map_or(&[], |it| &it.alternatives),
        );
        text_or_null(visitor, &TLS.sha1, text(|it| &it.sha1));
        text_or_null(visitor, &TLS.sha256, text(|it| &it.sha256));
        texts_or_null(visitor, &TLS.chain, &self.chain);
        filled_or_null(visitor, &TLS.client_subject, &self.client_subject);
        texts_or_null(visitor, &TLS.client_chain, &self.client_chain);
        filled_or_null(visitor, &TLS.ja3, &self.ja3);
        filled_or_null(visitor, &TLS.ja3s, &self.ja3s);
        filled_or_null(visitor, &TLS.ja4, &self.ja4);
        filled_or_null(visitor, &TLS.ja3_text, &self.ja3_text);
        filled_or_null(visitor, &TLS.ja3s_text, &self.ja3s_text);
        visitor.symbol(&TLS.state, self.state());
        yes_or_null(visitor, &TLS.whole, Some(!self.is_damaged));
        text_or_null(visitor, &TLS.close, self.close);
        text_or_null(visitor, &TLS.limit, self.limit);
    }
}

impl KnownRecord for TlsRow {
    fn schema(&self) -> Schema {
        TLS_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// A certificate.
#[derive(Clone, Debug, Default)]
pub struct X509Row {
    /// When it was captured, and between whom.
    pub origin: Origin,
    /// It came over UDP.
    pub is_datagram: bool,
    /// The client sent it.
    pub is_client: bool,
    /// Position, from 1.
    pub place: u32,
    /// Fingerprint.
    pub sha256: String,
    /// Fingerprint.
    pub sha1: String,
    /// Version of X.509.
    pub version: u32,
    /// Serial number.
    pub serial: String,
    /// Whom it is of.
    pub subject: String,
    /// Who says so.
    pub issuer: String,
    /// From when until when it is valid: seconds since 1970, which can be before.
    pub validity: Option<[i64; 2]>,
    /// Algorithm of the key.
    pub key_algorithm: String,
    /// Algorithm of the signature.
    pub signature_algorithm: String,
    /// `rsa`, `dsa`, `ecdsa` or nothing.
    pub key_type: &'static str,
    /// Bits of the key.
    pub key_bits: Option<u32>,
    /// Exponent of an RSA key.
    pub exponent: Option<u64>,
    /// Curve of a key of ECDSA.
    pub curve: Option<String>,
    /// All of the four that follow.
    pub alternatives: Vec<String>,
    /// Host names.
    pub dns_names: Vec<String>,
    /// Addresses.
    pub ip_addresses: Vec<String>,
    /// Mail addresses.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// An authority's.
    pub is_authority: Option<bool>,
    /// Authorities below.
    pub path_length: Option<u32>,
    /// The bound that left something out.
    pub limit: Option<&'static str>,
}

impl Record for X509Row {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let carrier = carrier(self.is_datagram);
        (self.origin).visit(visitor, origin_fields!(X509), carrier);
        let sender: &[u8] = if self.is_client { b"client" } else { b"server" };
        visitor.symbol(&X509.sender, sender);
        visitor.unsigned(&X509.place, u64::from(self.place));
        visitor.text(&X509.sha256, &self.sha256);
        visitor.text(&X509.sha1, &self.sha1);
        visitor.unsigned(&X509.version, u64::from(self.version));
        visitor.text(&X509.serial, &self.serial);
        visitor.text(&X509.subject, &self.subject);
        visitor.text(&X509.issuer, &self.issuer);
        date(visitor, &X509.not_before, self.validity.map(|it| it[0]));
        date(visitor, &X509.not_after, self.validity.map(|it| it[1]));
        visitor.text(&X509.key_alg, &self.key_algorithm);
        visitor.text(&X509.sig_alg, &self.signature_algorithm);
        filled_or_null(visitor, &X509.key_type, self.key_type);
        number_or_null(visitor, &X509.key_length, self.key_bits);
        number_or_null(visitor, &X509.exponent, self.exponent);
        text_or_null(visitor, &X509.curve, self.curve.as_deref());
        texts_or_null(visitor, &X509.san_dns, &self.dns_names);
        texts_or_null(visitor, &X509.san_ip, &self.ip_addresses);
        texts_or_null(visitor, &X509.san_email, &self.emails);
        texts_or_null(visitor, &X509.san_uri, &self.uris);
        yes_or_null(visitor, &X509.ca, self.is_authority);
        number_or_null(visitor, &X509.path_length, self.path_length);
        text_or_null(visitor, &X509.limit, self.limit);
    }
}

impl KnownRecord for X509Row {
    fn schema(&self) -> Schema {
        X509_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

fn carrier(is_datagram: bool) -> &'static str {
    if is_datagram { "udp" } else { "tcp" }
}

/// Seconds since 1970. What a capture's clock cannot tell, before 1970 and after 2554, has the same form.
fn date<V: FieldVisitor>(visitor: &mut V, field: &'static Field, value: Option<i64>) {
    let Some(seconds) = value else {
        return visitor.null(field);
    };
    let nanos = u64::try_from(seconds).ok();
    match nanos.and_then(|it| it.checked_mul(1_000_000_000)) {
        Some(nanos) => visitor.time(field, Nanos(nanos)),
        None => visitor.text(field, &date_text(seconds)),
    }
}
