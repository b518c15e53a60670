//! Records about SSH connections.

use core::any::Any;

use crate::any::KnownRecord;
use crate::origin::{Origin, origin_fields};
use crate::parties::{filled_or_null, number_or_null, text_or_null, yes_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of an [`SshRow`].
    SshFields, SSH, SSH_SCHEMA:
    time Time None "TIME" 1 "first byte of either side";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 3 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 2 "port of the server";
    proto Text None "" 0 "tcp";
    version Unsigned None "VERSION" 1 "1 or 2, as far as both sides said; null otherwise";
    client Text None "CLIENT SAYS" 2 "identification of the client";
    server Text None "SERVER SAYS" 1 "identification of the server";
    cipher_alg Text None "" 0 "cipher that was agreed on, to the server";
    mac_alg Text None "" 0 "authentication code that was agreed on, to the server";
    compression_alg Text None "" 0 "compression that was agreed on, to the server";
    kex_alg Text None "EXCHANGE" 3 "exchange of keys that was agreed on";
    host_key_alg Text None "" 0 "kind of the host's key that was agreed on";
    host_key_fingerprint Text None "" 0 "SHA-256 of the host's key, in base64";
    hassh Text None "HASSH" 4 "fingerprint of what the client offers: HASSH";
    hassh_server Text None "" 0 "fingerprint of what the server offers";
    established Text None "" 0 "yes: both sides went over to encryption";
    auth_success Text None "" 0 "whether the client was let in, by the sizes of encrypted packets; null where that does not tell";
    auth_attempts Unsigned None "" 0 "attempts to be let in, likewise";
    state Text None "STATE" 3 "matched, no_reply or no_request: who identified itself";
    whole Text None "" 0 "no: something was missing or could not be read";
    close Text None "" 0 "how the connection ended, where it ended before that: fin, rst, timeout";
    limit Text None "" 0 "the first bound that left something out: lines (more than 2 KiB before the identification), message (more than 35,000 bytes); or null";
}

/// An SSH connection, up to its encryption.
#[derive(Clone, Debug, Default)]
pub struct SshRow {
    /// When and between whom.
    pub origin: Origin,
    /// 1 or 2.
    pub version: Option<u32>,
    /// What the client says it is.
    pub client: Option<String>,
    /// What the server says it is.
    pub server: Option<String>,
    /// Cipher.
    pub cipher: String,
    /// Authentication code.
    pub code: String,
    /// Compression.
    pub compression: String,
    /// Exchange of keys.
    pub exchange: String,
    /// Kind of the host's key.
    pub host_key: String,
    /// Its fingerprint.
    pub fingerprint: String,
    /// HASSH.
    pub hassh: String,
    /// HASSH of the server.
    pub hassh_server: String,
    /// Both encrypt.
    pub is_established: bool,
    /// The client was let in.
    pub auth_success: Option<bool>,
    /// Attempts.
    pub auth_attempts: u32,
    /// Something was missing or could not be read.
    pub is_damaged: bool,
    /// How the connection ended.
    pub close: Option<&'static str>,
    /// The first bound that left something out.
    pub limit: Option<&'static str>,
}

impl Record for SshRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        (self.origin).visit(visitor, origin_fields!(SSH), "tcp");
        number_or_null(visitor, &SSH.version, self.version);
        text_or_null(visitor, &SSH.client, self.client.as_deref());
        text_or_null(visitor, &SSH.server, self.server.as_deref());
        filled_or_null(visitor, &SSH.cipher_alg, &self.cipher);
        filled_or_null(visitor, &SSH.mac_alg, &self.code);
        filled_or_null(visitor, &SSH.compression_alg, &self.compression);
        filled_or_null(visitor, &SSH.kex_alg, &self.exchange);
        filled_or_null(visitor, &SSH.host_key_alg, &self.host_key);
        filled_or_null(visitor, &SSH.host_key_fingerprint, &self.fingerprint);
        filled_or_null(visitor, &SSH.hassh, &self.hassh);
        filled_or_null(visitor, &SSH.hassh_server, &self.hassh_server);
        yes_or_null(visitor, &SSH.established, Some(self.is_established));
        yes_or_null(visitor, &SSH.auth_success, self.auth_success);
        visitor.unsigned(&SSH.auth_attempts, u64::from(self.auth_attempts));
        let state: &[u8] = match (&self.client, &self.server) {
            (Some(_), Some(_)) => b"matched",
            (Some(_), None) => b"no_reply",
            _ => b"no_request",
        };
        visitor.symbol(&SSH.state, state);
        yes_or_null(visitor, &SSH.whole, Some(!self.is_damaged));
        text_or_null(visitor, &SSH.close, self.close);
        text_or_null(visitor, &SSH.limit, self.limit);
    }
}

impl KnownRecord for SshRow {
    fn schema(&self) -> Schema {
        SSH_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
