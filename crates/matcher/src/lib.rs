//! Thousands of patterns searched in many streams at once, piece by piece.
//!
//! A [`PatternSet`] is compiled once and shared; each thread has a [`Matcher`], and each direction
//! of a connection a [`StreamState`] of 16 bytes. Bytes are scanned where they lie, in pieces of any
//! size, and what is found is what a search in the whole stream finds: every occurrence of every
//! pattern, overlapping ones too, wherever the pieces were cut. Bytes that are missing end the
//! search: no match spans them.
//!
//! ```
//! use flowgauge_matcher::{Matcher, PatternSet, Engine, StreamState, read_patterns};
//! use std::sync::Arc;
//!
//! let patterns = read_patterns(b"needle\ncontent:\"|0d 0a|HOST:\"; nocase\n").unwrap();
//! let set = Arc::new(PatternSet::compile(patterns, Engine::Automatic).unwrap());
//! let mut matcher = Matcher::new(&set).unwrap();
//! let mut state = StreamState::default();
//! let mut found = Vec::new();
//! matcher.scan(&mut state, b"GET / HTTP/1.1\r", 0, |m| found.push((m.pattern, m.start, m.end)));
//! matcher.scan(&mut state, b"\nhost: need", 15, |m| found.push((m.pattern, m.start, m.end)));
//! matcher.scan(&mut state, b"le", 26, |m| found.push((m.pattern, m.start, m.end)));
//! matcher.end(&mut state, true, |_| {});
//! assert_eq!(found, [(1, Some(14), 21), (0, Some(22), 28)]);
//! ```
//!
//! Two engines give the same matches: Vectorscan, where its library is installed (it is loaded at
//! run time), and the crate `aho-corasick`, which is slower and knows no regular expressions.
//!
//! Deliberately absent: I/O, flows, threads.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod automaton;
mod content;
mod error;
mod expressions;
mod matcher;
mod pattern;
mod read;
mod set;

pub use error::PatternError;
pub use matcher::{Match, Matcher, StreamState};
pub use pattern::{Bounds, Pattern, PatternKind, RegexFlags, positions};
pub use read::{ReadOptions, read_patterns, read_patterns_with};
pub use set::{Engine, PatternSet};
