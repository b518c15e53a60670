//! HTTP/1: requests and responses of one direction.
//!
//! ```
//! use flowgauge_proto::http::{End, Events, Framing, Head, Parser, Start};
//!
//! #[derive(Default)]
//! struct Log(Vec<String>);
//!
//! impl Events for Log {
//!     fn head(&mut self, head: &Head<'_>, framing: Framing) -> Framing {
//!         if let Start::Response { status, .. } = head.start {
//!             self.0.push(format!("{status} {:?}", head.content_type().unwrap_or_default()));
//!         }
//!         framing
//!     }
//!     fn end(&mut self, end: &End) {
//!         self.0.push(format!("{} bytes, whole: {}", end.body_bytes, end.is_whole));
//!     }
//! }
//!
//! let mut parser = Parser::default();
//! let mut log = Log::default();
//! parser.data(b"HTTP/1.1 200 OK\r\nContent-Le", &mut log);
//! parser.data(b"ngth: 5\r\n\r\nhel", &mut log);
//! parser.data(b"lo", &mut log);
//! assert_eq!(log.0, ["200 []", "5 bytes, whole: true"]);
//! ```
//!
//! # How long a message is
//! By RFC 9112, section 6.3: no body for 1xx, 204 and 304; chunks where the last transfer coding is
//! `chunked`; else `Content-Length`; else nothing for a request, and all to the end of the stream for
//! a response. What only the request tells (`HEAD`, `CONNECT`) the caller says in
//! [`Events::head`]; where it does not know it, a response whose body would begin with another
//! status line is taken for one without a body.
//!
//! # What is odd
//! A message can be written so that two programs on its way disagree where it ends (request
//! smuggling). Such a message is read as RFC 9112 says, and marked ([`Oddity`]).
//!
//! # Holes
//! Within a body of known length a hole is counted and read over. Elsewhere the message is given up,
//! and the next one looked for where a piece of data begins like one: senders begin messages at the
//! beginning of a segment, mostly.

mod body;
mod head;
mod parser;

pub use head::{Head, Header, Start, Version, begins_with_method, look};
pub use parser::{End, Events, Framing, Oddities, Oddity, Parser};
