//! Stacks: monitoring tasks written as sequences of components.
//!
//! The language is that of Pandora (Patarin and Makpangou, USENIX 2000). A component takes items (packets, segments,
//! chunks of streams, records) and passes items on. A *switch* has branches in parentheses, a *demultiplexer* has a
//! stack in angle brackets that is instantiated per key:
//!
//! ```text
//! [stack]
//! tcpscan - tcpcnxdemux < tcpdirdemux < tcpreseq - httpscan > - httpmatch > output
//! [output]
//! static file = transactions.json
//! ```
//!
//! # From text to syntax and back
//!
//! ```
//! use flowgauge_stack::{Sources, format, parse};
//!
//! let mut sources = Sources::default();
//! let file = sources.add("a.stack", "[stack] tcpscan-count{interval=10s} # per ten seconds").unwrap();
//! let document = parse(&sources, file).unwrap();
//! assert_eq!(
//!     format(&document),
//!     "[stack]\ntcpscan -\ncount { interval = 10s }  # per ten seconds\n"
//! );
//! ```
//!
//! Errors are reported with their position:
//!
//! ```
//! use flowgauge_stack::{Sources, parse};
//!
//! let mut sources = Sources::default();
//! let file = sources.add("a.stack", "[stack]\ntcpscan > output\n").unwrap();
//! let error = parse(&sources, file).unwrap_err();
//! assert_eq!(
//!     error.show(&sources).to_string(),
//!     "a.stack:2:9: error: expected a component or a section, found '>'\n  \
//!      2 | tcpscan > output\n    |         ^\n\
//!      hint: a stack is written as: component - component { option = value } - component"
//! );
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod account;
mod check;
mod component;
mod cursor;
mod deadline;
mod diagnostic;
pub mod engine;
mod format;
mod graph;
mod include;
mod items;
mod keys;
mod options;
mod parse;
mod program;
mod registry;
mod settings;
mod source;
pub mod syntax;
mod value;
mod values;

pub use account::{Account, Counted, LastWord, RunEnd, WriteLast};
pub use check::{Checked, check};
pub use component::{
    Branches, Component, ComponentInfo, ComponentKind, Failure, Input, Items, Outlet, Output,
    PacketSink, Packets, Parallel, PerKey, Received, RecordItem, RequireEngine, ResultInfo,
    ResultValue, SettingError, Settled, SharedRows, SharedSink, StreamChunk, StreamEnd, StreamInfo,
    TakenRows,
};
pub use diagnostic::{Diagnostic, Severity};
pub use flowgauge_record::results::{Cell, Merge, Table, TableColumn};
pub use flowgauge_record::schema::FieldKind;
#[doc(hidden)]
pub use flowgauge_wire::Nanos; // what `options!` makes of durations
pub use flowgauge_wire::{Selected, Selection};
pub use format::{format, format_line};
pub use graph::{ComponentFailure, Graph, NoTail, Passed, TICK, Tail};
pub use include::{MAX_FILES, ReadInclude, parse_all};
pub use items::{ItemType, Port};
pub use keys::KeyTable;
pub use options::{LABEL_OPTION, RESULTS_OPTION};
pub use parse::{MAX_COMPONENTS, MAX_DEPTH, parse, parse_stack};
pub use program::{Inner, Node, NodeId, Program, Sequential, Stack, Stage};
pub use registry::Registry;

#[doc(hidden)]
pub use settings::bare_name;
pub use settings::{OptionInfo, OptionType, Setting, Settings};
pub use source::{FileId, Position, Sources, Span};
pub use value::{OptionKind, OptionValue};
pub use values::PacketValues;
