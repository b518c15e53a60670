//! Anonymization of packets and records.
//!
//! A [`Policy`] says what is kept and what is replaced by what; what it does not name is not kept. An
//! [`Anonymizer`] applies it. [`CryptoPan`] replaces addresses so that those with a common prefix have a
//! common prefix of the same length afterwards, and no others.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod bytes;
mod compiled;
mod cryptopan;
mod error;
mod field;
mod forced;
mod key;
mod keyed;
mod packet;
mod policy;
mod record;
mod rule;
mod source;

use std::path::Path;

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor};

use compiled::Compiled;
pub use cryptopan::CryptoPan;
pub use error::Error;
pub use field::{Class, Field, Otherwise, Protocol};
pub use forced::{FORCED_BY, FORCED_POLICY, forced_policy};
pub use key::Key;
pub use policy::{Others, Policy};
pub use rule::{Digest, Distribution, Expression, Function, Rest, Rule, RuleError, Subject};
pub use source::Anonymized;

/// Applies a policy, on one thread. Under the same key all of them do the same.
pub struct Anonymizer {
    compiled: Compiled,
    /// Of records.
    actions: record::Actions,
    addresses: record::OwnAddresses,
    numbers: Option<keyed::Permutation>,
    text: Vec<u8>,
}

impl Anonymizer {
    /// One of a policy.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(policy: &Policy) -> Result<Anonymizer, Error> {
        let compiled = Compiled::new(policy);
        let compiled = compiled.map_err(Error::io("read", Path::new("/dev/urandom")))?;
        Ok(Anonymizer {
            compiled,
            actions: record::Actions::default(),
            addresses: record::OwnAddresses::new(),
            numbers: None,
            text: Vec::new(),
        })
    }

    /// Appends what a captured packet becomes to `out`; what is returned describes it there. The length on the
    /// wire stays what it was.
    pub fn packet(
        &mut self,
        descriptor: &PacketDescriptor,
        frame: &[u8],
        out: &mut Vec<u8>,
    ) -> PacketDescriptor {
        self.compiled.packet(descriptor, frame, out)
    }

    /// What a capture time becomes.
    pub fn time(&self, time: Nanos) -> Nanos {
        self.compiled.time(time)
    }

    /// Whether packets of a link type can be read; of others no byte is given out.
    pub fn knows_link(link: LinkType) -> bool {
        packet::knows_link(link)
    }
}
