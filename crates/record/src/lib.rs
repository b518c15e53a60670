//! Records: one schema per kind, many encodings.
//!
//! A kind of record is declared once (`record!`): its fields, and the location of each one's value in the record. An
//! encoding is a [`FieldVisitor`] that receives the values: JSON lines, CSV and the terminal table are here; further
//! encodings (EVE and Zeek names, Parquet, IPFIX) are further visitors and know nothing about flows. Calls are
//! monomorphised, so that the JSON of a flow record is straight-line code that appends to one reused buffer.
//!
//! ```
//! use flowgauge_record::{Encoder, Format, StreamRow};
//! use flowgauge_stream::StreamIdentity;
//! use flowgauge_wire::Address;
//!
//! let row = StreamRow {
//!     identity: StreamIdentity {
//!         flow_id: 0xfeed,
//!         source: (Address::v4([192, 0, 2, 1]), 50956),
//!         destination: (Address::v4([192, 0, 2, 7]), 80),
//!         version: 4,
//!         protocol: 6,
//!         ..StreamIdentity::default()
//!     },
//!     bytes: 517,
//!     state: "fin",
//!     ..StreamRow::default()
//! };
//! let mut text = Vec::new();
//! Encoder::new(Format::Json).encode(&row, &mut text);
//! assert!(text.starts_with(br#"{"src_ip":"192.0.2.1","src_port":50956,"#));
//! ```
//!
//! Deliberately absent: analysis. [`aggregate`] only sums fields of records.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod aggregate;
pub mod anomaly;
pub mod any;
pub mod brief;
pub mod check;
pub mod counters;
pub mod csv;
mod cursor;
pub mod dhcp;
pub mod dhcpv6;
pub mod dns;
pub mod encoder;
pub mod event;
pub mod exchange;
pub mod file;
pub mod flow;
pub mod ftp;
pub mod held;
pub mod http;
pub mod icp;
pub mod json;
pub mod kinds;
pub mod ledger;
pub mod link;
pub mod listed;
pub mod loss;
pub mod matches;
pub mod ntp;
pub mod origin;
pub mod output;
pub mod packet;
pub mod parties;
pub mod picked;
pub mod quic;
pub mod results;
pub mod rmon;
pub mod rpc;
pub mod schema;
pub mod smtp;
pub mod snmp;
pub mod ssh;
pub mod store;
pub mod stream;
pub mod table;
pub mod text;
pub mod text_list;
pub mod tls;
pub mod totals;
pub mod transaction;
pub mod turn;
mod value;
mod whole;
pub mod words;
mod writer_thread;

pub use aggregate::{AggregateError, AggregateSpec, Aggregator};
pub use any::{AnyRecord, KnownRecord, OwnedRecord, SharedRecord};
pub use encoder::{Encoder, Format};
pub use flow::FlowRow;
pub use held::Held;
pub use ledger::LedgerRow;
pub use matches::{MatchCountRow, MatchRow, PatternName};
pub use output::{Output, OutputError, RecordWriter};
pub use packet::PacketRow;
pub use schema::{Column, Field, FieldKind, FieldVisitor, JsonKey, Record, Schema, Unit};
pub use store::{RecordStore, StoredRecord};
pub use stream::StreamRow;
pub use table::Screen;
pub use value::{Numbers, Texts, ValueRef};
pub use whole::WholeWrites;
pub use writer_thread::WriterThread;
