//! The end that connects: from an address to a connection on which both sides know what is wanted.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::frame::{Answer, Opening};
use crate::identity::Identity;
use crate::secure::{self, Secured};

/// Connects to `address`, makes sure that `peer` (else the host of the address) is there, and says what
/// is wanted.
///
/// # Errors
/// Why there is no connection, or why the other side does not want it.
pub(crate) fn open(
    identity: &Identity,
    address: &str,
    peer: Option<&str>,
    timeout: Duration,
    opening: &Opening,
) -> Result<(Secured, Answer), Error> {
    let deadline = Instant::now() + timeout;
    let mut secured = secure::connect(identity, address, peer, timeout)?;
    let written = opening.write(&secured.writer);
    let answer = match Answer::read(&mut secured.reader, deadline) {
        Ok(answer) => answer,
        // Why the other side does not want to go on says more than that it does not read.
        Err(error) => return Err(written.err().filter(|_| error.is_closed()).unwrap_or(error)),
    };
    match answer.refusal {
        Some((reason, detail)) => Err(Error::Refused {
            address: address.to_owned(),
            reason,
            detail,
        }),
        None => Ok((secured, answer)),
    }
}
