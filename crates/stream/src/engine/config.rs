//! The configuration of an engine and its applications.

use core::fmt;
use std::sync::Arc;

use flowgauge_capture::Filter;
use flowgauge_flow::FlowConfig;
use flowgauge_reassembly::HostPolicies;
use flowgauge_wire::{Decoded, LinkType, Nanos, PacketDescriptor};

use super::command::ChunkParameters;
use super::record::{Extra, Loss, Pending, Record};
use crate::config::ShardConfig;

/// Settings shared by all applications of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Decoding, flow table, limits of reassembly. Its reassembly memory and active timeout are ignored: the memory is
    /// part of `memory_bytes`, and there is no active timeout.
    pub shard: ShardConfig,
    /// The budget for chunks, waiting segments and packet records.
    pub memory_bytes: u64,
    /// Whether connections are charged to the memory as well; if so, the number of bytes that applications use per
    /// connection. The memory is then their only bound, instead of [`FlowConfig::max_flows`]: when it is full, the
    /// connection that was idle longest is evicted.
    pub connection_bytes: Option<u64>,
    /// Share of the memory below which nothing is dropped, and above which partial chunks are delivered early.
    pub base_threshold: f64,
    /// Under overload, bytes beyond this offset of their stream are dropped first.
    pub overload_cutoff: Option<u64>,
    /// Whether packets are delivered with chunks ([`DataChunk::packets`](super::DataChunk::packets)).
    pub need_packets: bool,
    /// Overlap policies of receiving hosts, for segments and fragments. Hosts outside of all subnets have
    /// [`ShardConfig::overlap_policy`].
    pub policies: HostPolicies,
}

impl EngineConfig {
    /// Bytes of memory for the two streams of a connection, in addition to those of its flow and to
    /// [`ShardConfig::BYTES_PER_CONNECTION`], if both were cut off or have lost bytes, and have a chunk in progress.
    /// Bytes of chunks are in the budget.
    pub const BYTES_PER_CONNECTION: u64 =
        2 * (size_of::<Record>() + size_of::<Loss>() + size_of::<Pending>()) as u64;

    /// Bytes charged per connection ([`EngineConfig::connection_bytes`]), without the applications' own, if both of its
    /// streams were cut off or have lost bytes.
    pub const CONNECTION_CHARGE: u64 = FlowConfig::BYTES_PER_FLOW
        + ShardConfig::BYTES_PER_CONNECTION
        + 2 * (size_of::<Record>() + size_of::<Loss>()) as u64;

    /// The same for each application but the first.
    pub(super) const APPLICATION_CHARGE: u64 = 2 * size_of::<Extra>() as u64;
}

impl Default for EngineConfig {
    /// 256 MiB, half of them before anything is dropped.
    fn default() -> EngineConfig {
        EngineConfig {
            shard: ShardConfig::default(),
            memory_bytes: 256 << 20,
            connection_bytes: None,
            base_threshold: 0.5,
            overload_cutoff: None,
            need_packets: false,
            policies: HostPolicies::default(),
        }
    }
}

/// How TCP bytes are put in order (section 2.3 of the paper).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr,
)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
#[strum(parse_err_ty = String, parse_err_fn = unknown_mode)]
pub enum Mode {
    /// In order; a hole delays delivery until the reassembler's limits give it up, then the bytes after it are
    /// delivered. `[ours]`
    #[default]
    Wait = 0,
    /// A chunk leaves room for a hole, which may be filled until the chunk is delivered. Holes delay nothing, and are
    /// flagged.
    Fast = 1,
    /// Only correctly sequenced data of established connections, and data on a SYN (TCP Fast Open); nothing after a
    /// hole that is never filled.
    Strict = 2,
}

impl Mode {
    /// Its name in the user interface.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn unknown_mode(text: &str) -> String {
    format!("unknown mode \"{text}\"; hint: strict, fast or wait")
}

/// Maximum number of bytes delivered of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cutoff(pub u64);

impl Default for Cutoff {
    fn default() -> Cutoff {
        Cutoff::UNLIMITED
    }
}

impl Cutoff {
    /// The whole stream.
    pub const UNLIMITED: Cutoff = Cutoff(u64::MAX);
    /// No bytes: statistics only.
    pub const STATISTICS_ONLY: Cutoff = Cutoff(0);
}

/// Cutoffs of an application's streams: that of the first class that matches, else that of the direction, else the
/// default.
#[derive(Clone, Debug, Default)]
pub struct Cutoffs {
    /// The default.
    pub default: Cutoff,
    /// From the initiator to the responder.
    pub from_initiator: Option<Cutoff>,
    /// From the responder to the initiator.
    pub from_responder: Option<Cutoff>,
    /// By filter; the first match applies.
    pub classes: Vec<(StreamFilter, Cutoff)>,
}

/// Priorities of an application's streams: that of the first class that matches, else the default. Higher numbers are
/// more important.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    /// The default.
    pub default: u8,
    /// By filter; the first match applies.
    pub classes: Vec<(StreamFilter, u8)>,
}

/// The configuration of an application.
#[derive(Clone, Debug)]
pub struct ApplicationConfig {
    /// Selects streams; `None`: all.
    pub filter: Option<StreamFilter>,
    /// How TCP bytes are reassembled.
    pub mode: Mode,
    /// Cutoffs of streams.
    pub cutoff: Cutoffs,
    /// Chunk size, including repeated bytes. 0: each segment is a chunk, in place, without a copy.
    pub chunk_bytes: u32,
    /// Bytes at the end of a chunk that the next one repeats; less than `chunk_bytes`.
    pub overlap_bytes: u32,
    /// Time on the capture clock after its first byte at which a partial chunk is delivered.
    pub flush_timeout: Option<Nanos>,
    /// Priorities of streams under overload.
    pub priority: Priorities,
    /// Time without packets after which a connection ends; `None`: the flow table's timeouts. It can be changed for
    /// single streams ([`Parameter::InactivityTimeout`](super::Parameter::InactivityTimeout)). A connection ends for
    /// all applications at the same time, so the longest timeout applies. (Packets after a silence would otherwise be a
    /// new stream for some applications, and the same one for others. Applications with shorter timeouts get the last
    /// chunk and the end later than if they were alone; `flush_timeout` is per application.)
    pub inactivity_timeout: Option<Nanos>,
}

impl ApplicationConfig {
    /// The parameters of its chunks, unless changed for a stream.
    pub fn chunk_parameters(&self) -> ChunkParameters {
        ChunkParameters {
            chunk_bytes: self.chunk_bytes,
            overlap_bytes: self.overlap_bytes,
            flush_timeout: self.flush_timeout,
            mode: self.mode,
        }
    }

    /// The paper's chunk size.
    pub const CHUNK_BYTES: u32 = 16_384;
}

impl Default for ApplicationConfig {
    fn default() -> ApplicationConfig {
        ApplicationConfig {
            filter: None,
            mode: Mode::Wait,
            cutoff: Cutoffs::default(),
            chunk_bytes: ApplicationConfig::CHUNK_BYTES,
            overlap_bytes: 0,
            flush_timeout: None,
            priority: Priorities::default(),
            inactivity_timeout: None,
        }
    }
}

/// An application of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId(pub u8);

/// Maximum number of applications of an engine.
pub const MAX_APPLICATIONS: usize = 32;

/// A packet as filters see it: the first of a stream's connection. For the opposite direction, addresses and ports are
/// exchanged, so that each direction is evaluated once, when the streams are created, as if by its own first packet.
#[derive(Clone, Copy, Debug)]
pub struct FilterPacket<'a> {
    /// The captured frame; for a datagram reassembled from fragments, the datagram, with link type RAW.
    pub frame: &'a [u8],
    /// Its descriptor: link type, length on the wire, VLAN tag.
    pub descriptor: &'a PacketDescriptor,
    /// The decoded headers. (For an exchanged packet, those of the original, with the direction exchanged.)
    pub decoded: &'a Decoded,
}

/// A predicate on packets, for instance a BPF program. Clones share it.
#[derive(Clone)]
pub struct StreamFilter {
    matches: Arc<dyn Fn(&FilterPacket<'_>) -> bool + Send + Sync>,
    source: Option<Arc<Source>>,
}

/// What a filter was made of.
struct Source {
    expression: String,
    programs: Vec<Filter>,
}

impl StreamFilter {
    /// A filter from a closure.
    pub fn new(
        matches: impl Fn(&FilterPacket<'_>) -> bool + Send + Sync + 'static,
    ) -> StreamFilter {
        StreamFilter {
            matches: Arc::new(matches),
            source: None,
        }
    }

    /// A filter from programs of one expression, each for packets of one link type; other packets do not match.
    pub fn of_programs(expression: &str, programs: Vec<Filter>) -> StreamFilter {
        let source = Arc::new(Source {
            expression: expression.to_owned(),
            programs,
        });
        let own = Arc::clone(&source);
        StreamFilter::new(move |packet| {
            let program = own.program_for(packet.descriptor.link);
            program.is_some_and(|it| it.verdict_on(packet.frame, packet.descriptor) != 0)
        })
        .with_source(source)
    }

    /// The same, which asks `others` about packets of further link types.
    pub(crate) fn of_programs_and(
        expression: &str,
        programs: Vec<Filter>,
        others: impl Fn(&FilterPacket<'_>) -> bool + Send + Sync + 'static,
    ) -> StreamFilter {
        let source = Arc::new(Source {
            expression: expression.to_owned(),
            programs,
        });
        let own = Arc::clone(&source);
        StreamFilter::new(
            move |packet| match own.program_for(packet.descriptor.link) {
                Some(program) => program.verdict_on(packet.frame, packet.descriptor) != 0,
                None => others(packet),
            },
        )
        .with_source(source)
    }

    fn with_source(self, source: Arc<Source>) -> StreamFilter {
        StreamFilter {
            source: Some(source),
            ..self
        }
    }

    /// Whether the packet's stream matches.
    pub fn matches(&self, packet: &FilterPacket<'_>) -> bool {
        (self.matches)(packet)
    }

    /// The expression, if it was made from one.
    pub fn expression(&self) -> Option<&str> {
        self.source
            .as_ref()
            .map(|source| source.expression.as_str())
    }

    /// Its program for packets of a link type, if it was made from an expression and compiled for them.
    pub fn program_for(&self, link: LinkType) -> Option<&Filter> {
        self.source.as_ref()?.program_for(link)
    }
}

impl Source {
    fn program_for(&self, link: LinkType) -> Option<&Filter> {
        self.programs.iter().find(|program| program.link() == link)
    }
}

impl fmt::Debug for StreamFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expression() {
            Some(expression) => write!(f, "StreamFilter({expression:?})"),
            None => f.write_str("StreamFilter(..)"),
        }
    }
}
