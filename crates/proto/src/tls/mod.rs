//! TLS up to what is encrypted: hellos, certificates, alerts (RFC 8446, RFC 5246 and before; SSLv2's
//! hellos); the same of DTLS (RFC 6347, RFC 9147), out of datagrams.
//!
//! ```
//! use flowgauge_proto::tls::{ClientHello, Events, Parser, ja3};
//!
//! #[derive(Default)]
//! struct Names(Vec<String>);
//!
//! impl Events for Names {
//!     fn client_hello(&mut self, hello: &ClientHello<'_>) {
//!         assert_eq!(hello.version(), 0x0303);
//!         assert_eq!(ja3(hello).len(), 32);
//!         let name = hello.server_name().unwrap_or_default();
//!         self.0.push(String::from_utf8_lossy(name).into_owned());
//!     }
//! }
//!
//! // A record with a ClientHello of one cipher suite, and a server's name in it.
//! let mut hello = vec![0x16, 3, 1, 0, 60, 1, 0, 0, 56, 3, 3];
//! hello.extend([7; 32]);
//! hello.extend([0, 0, 2, 0x13, 1, 1, 0, 0, 13, 0, 0, 0, 9, 0, 7, 0, 0, 4]);
//! hello.extend(*b"name");
//! let (mut parser, mut names) = (Parser::default(), Names::default());
//! for byte in hello {
//!     parser.data(&[byte], &mut names);
//! }
//! assert_eq!(names.0, ["name"]);
//! ```
//!
//! Of what is encrypted only its records are seen: what a server sends behind its hello in TLS 1.3,
//! its certificates among it, and all behind ChangeCipherSpec before. A hole within a record leaves
//! the next record readable; behind another one a piece of data that begins like a record is taken
//! for one. At most 128 KiB of a handshake are kept, and of a longer message nothing is read.

mod certificate;
mod datagram;
mod fingerprint;
mod handshake;
mod hello;
mod names;
mod parser;

pub use certificate::{Certificate, sha1, sha256};
pub use datagram::{DatagramParser, is_stun, look_datagram};
pub use fingerprint::{Carrier, ja3, ja3_of, ja3_text, ja3s, ja3s_text, ja4};
pub use handshake::message;
pub(crate) use handshake::{Handshake, TOO_MANY};
pub use hello::{ClientHello, Extension, Extensions, Protocols, ServerHello, is_grease};
pub use names::{alert_name, cipher_name, group_name, version_name};
pub use parser::{Events, Parser, content, look};
