//! Records about SSH connections.

use crate::exchange::state;
use crate::origin::Origin;
use crate::schema::record;
use crate::value::{Symbol, filled};

record! {
    /// Fields of an [`SshRow`].
    SSH, SSH_SCHEMA for SshRow as it:
    ..it.origin, "first byte of either side", Symbol("tcp"), "tcp";
    version: Option<u32>, Unsigned "VERSION" 1 = it.version, "1 or 2, as far as both sides said; null otherwise";
    client: Option<String>, Text "CLIENT SAYS" 2 = &it.client, "identification of the client";
    server: Option<String>, Text "SERVER SAYS" 1 = &it.server, "identification of the server";
    cipher_alg (cipher: String) Text = filled(&it.cipher), "cipher that was agreed on, to the server";
    mac_alg (code: String) Text = filled(&it.code), "authentication code that was agreed on, to the server";
    compression_alg (compression: String) Text = filled(&it.compression), "compression that was agreed on, to the server";
    kex_alg (exchange: String) Text "EXCHANGE" 3 = filled(&it.exchange), "exchange of keys that was agreed on";
    host_key_alg (host_key: String) Text = filled(&it.host_key), "kind of the host's key that was agreed on";
    host_key_fingerprint (fingerprint: String) Text = filled(&it.fingerprint), "SHA-256 of the host's key, in base64";
    hassh: String, Text "HASSH" 4 = filled(&it.hassh), "fingerprint of the client's offer: HASSH";
    hassh_server: String, Text = filled(&it.hassh_server), "fingerprint of the server's offer";
    established (is_established: bool) Text = it.is_established, "yes: both sides went over to encryption";
    auth_success: Option<bool>, Text = it.auth_success, "whether authentication succeeded, by the sizes of encrypted \
    packets; null if unknown";
    auth_attempts: u32, Unsigned = it.auth_attempts, "attempts to be let in, likewise";
    state Text "STATE" 3 = Symbol(state(it.client.is_some(), it.server.is_some())), "which sides identified \
    themselves: matched, no_reply or no_request";
    whole Text = !it.is_damaged, "no: something was missing or could not be read";
    close: Option<&'static str>, Text = it.close, "end of the connection, if it ended before that: fin, rst, timeout";
    limit: Option<&'static str>, Text = it.limit, "the first bound that left something out: lines (more than 2 KiB before the identification), message (more than 35,000 bytes); or null";

    /// An SSH connection, up to the start of encryption.
    #[derive(Clone, Debug, Default)]
    pub struct SshRow {
        /// Time, client and server.
        pub origin: Origin,
        /// Whether bytes were missing or could not be parsed.
        pub is_damaged: bool,
    }
}
