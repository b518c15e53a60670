//! What users may do, in one engine: tables of a sensor's configuration, and credentials that users bring.
//!
//! A *credential* is a Biscuit (<https://doc.biscuitsec.org>): a chain of blocks, each signed, the first by an *issuer* whose
//! public key the sensor knows. Whoever holds one can append a block, without asking anybody, and nobody can remove one. A
//! [`Block`] takes away and never gives: *checks* in Datalog over the facts of a [`Request`], which all have to hold, and
//! *duties*, which the sensor does before the first function of a flow: cut packets, filter, anonymize.
//!
//! ```
//! use flowgauge_credential::{Credential, IssuerKey, Limits};
//!
//! let ops = IssuerKey::generate();
//! let wide = Credential::issue(&ops, &Limits::default().devices(["eth0"])).unwrap();
//! let narrow = wide.attenuate(&Limits::default().function("top(count<=10)").unwrap()).unwrap();
//! let read = Credential::parse(&narrow.text()).unwrap();
//! assert!(read.is_of(&ops.public()));
//! assert_eq!(read.blocks().len(), 2);
//! ```
//!
//! What a check can say is a part of Biscuit's Datalog: each query looks at one fact and compares its terms with constants
//! (`check`). That is enough for bounds, and a query costs as many steps as there are facts, whoever wrote it: there are
//! neither rules nor joins that a hostile holder could make expensive. A block with anything else is refused, not ignored.
//!
//! Of a token, only the signatures and these statements are taken. Checks of blocks see the facts of the request and nothing
//! else, so that no block can tell another one lies.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access;
mod check;
mod error;
mod limits;
mod policy;
mod request;
mod revoked;
mod times;
mod token;

pub use access::{Access, Asker, NoRights, RightsTable, Who};
pub use check::{Check, STANDING};
pub use error::Error;
pub use limits::{Block, Duties, Function, Holder, Limits, Visible};
pub use policy::{Denial, Finding, Layer, Policy};
pub use request::{Argument, Facts, Request};
pub use revoked::{Revoked, RevokedFile};
pub use times::{Window, date_of, date_text};
pub use token::{Credential, IssuerKey, IssuerName, MOST_TEXT};
