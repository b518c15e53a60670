//! What an engine and its applications are told.

use core::fmt;
use std::sync::Arc;

use flowgauge_capture::Filter;
use flowgauge_flow::FlowConfig;
use flowgauge_reassembly::HostPolicies;
use flowgauge_wire::{Decoded, LinkType, Nanos, PacketDescriptor};

use super::command::ChunkParameters;
use super::record::{Extra, Loss, Pending, Record};
use crate::config::ShardConfig;

/// What all applications of an engine share.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Decoding, flow table, limits of reassembly. Its reassembly memory and active timeout are
    /// overruled: the one comes out of `memory_bytes`, the other is off.
    pub shard: ShardConfig,
    /// One budget for chunks, waiting segments and packet records.
    pub memory_bytes: u64,
    /// Whether connections are charged to the memory, too, and how many bytes the applications keep of each. They are then
    /// bounded by it alone, whatever [`FlowConfig::max_flows`] says: with it full the longest idle one goes.
    pub connection_bytes: Option<u64>,
    /// Share of the memory below which nothing is dropped, and above which partial chunks are
    /// flushed early.
    pub base_threshold: f64,
    /// Under overload, what lies beyond this in its stream goes first.
    pub overload_cutoff: Option<u64>,
    /// Whether packets are delivered beside chunks
    /// ([`DataChunk::packets`](super::DataChunk::packets)).
    pub need_packets: bool,
    /// Overlap policies by receiving host, of segments and fragments. The default stands in [`ShardConfig::overlap_policy`]
    /// where no subnet is given.
    pub policies: HostPolicies,
}

impl EngineConfig {
    /// Bytes of memory for the two streams of a connection, beside those of its flow and of
    /// [`ShardConfig::BYTES_PER_CONNECTION`], when both were cut off or have lost something, and have a
    /// chunk under way. Bytes of chunks are in the budget.
    pub const BYTES_PER_CONNECTION: u64 =
        2 * (size_of::<Record>() + size_of::<Loss>() + size_of::<Pending>()) as u64;

    /// Bytes that a connection is charged ([`EngineConfig::connection_bytes`]), without what applications keep of it: both of its
    /// streams were cut off or have lost something.
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
    /// In order; a hole is waited for until the reassembler's limits give it up, and what follows
    /// is delivered. `[ours]`
    #[default]
    Wait = 0,
    /// A chunk leaves room for a hole and fills it until it is delivered; nothing is ever waited
    /// for, holes are flagged.
    Fast = 1,
    /// Only correctly sequenced data of established connections, and those on a SYN (TCP Fast Open);
    /// after a hole that never fills nothing more.
    Strict = 2,
}

impl Mode {
    /// Name as users write it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn unknown_mode(text: &str) -> String {
    format!("unknown mode \"{text}\"; hint: strict, fast or wait")
}

/// How many bytes of a stream are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cutoff(pub u64);

impl Default for Cutoff {
    fn default() -> Cutoff {
        Cutoff::UNLIMITED
    }
}

impl Cutoff {
    /// All of it.
    pub const UNLIMITED: Cutoff = Cutoff(u64::MAX);
    /// No byte: statistics only.
    pub const STATISTICS_ONLY: Cutoff = Cutoff(0);
}

/// Cutoffs of an application's streams: the first class that matches decides, else the direction,
/// else the default.
#[derive(Clone, Debug, Default)]
pub struct Cutoffs {
    /// Where nothing else is said.
    pub default: Cutoff,
    /// From the initiator to the responder.
    pub from_initiator: Option<Cutoff>,
    /// From the responder to the initiator.
    pub from_responder: Option<Cutoff>,
    /// By filter, in order.
    pub classes: Vec<(StreamFilter, Cutoff)>,
}

/// Priorities of an application's streams: the first class that matches decides, else the default.
/// Higher is more important.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    /// Where no class matches.
    pub default: u8,
    /// By filter, in order.
    pub classes: Vec<(StreamFilter, u8)>,
}

/// What one application wants.
#[derive(Clone, Debug)]
pub struct ApplicationConfig {
    /// Which streams; all without one.
    pub filter: Option<StreamFilter>,
    /// How TCP bytes are put in order.
    pub mode: Mode,
    /// How much of each stream.
    pub cutoff: Cutoffs,
    /// Chunk size, repeated bytes included. 0: every segment is a chunk, in place, without a copy.
    pub chunk_bytes: u32,
    /// Last bytes of a chunk that are repeated at the start of the next; less than `chunk_bytes`.
    pub overlap_bytes: u32,
    /// A chunk is delivered, full or not, when this has passed on the capture clock since its first
    /// byte.
    pub flush_timeout: Option<Nanos>,
    /// Who is kept under overload.
    pub priority: Priorities,
    /// A connection without packets for this long has ended; none: the flow table's timeouts. It can be
    /// changed for single streams
    /// ([`Parameter::InactivityTimeout`](super::Parameter::InactivityTimeout)). A connection ends once
    /// for all: of several applications that have it the one with the longest decides. (What comes after a silence
    /// would else be another stream to some, and the same to others. Those with shorter ones get the last chunk and the end
    /// later than alone; `flush_timeout` is each one's own.)
    pub inactivity_timeout: Option<Nanos>,
}

impl ApplicationConfig {
    /// How its chunks are made where nothing else is said of a stream.
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

/// One of the applications of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId(pub u8);

/// The most applications of one engine.
pub const MAX_APPLICATIONS: usize = 32;

/// A packet as filters see it: the first of a stream's connection. For the direction in which
/// nothing was seen yet it is that packet with addresses and ports exchanged, so that each direction
/// is judged once, when the streams are created, as if by its own first packet.
#[derive(Clone, Copy, Debug)]
pub struct FilterPacket<'a> {
    /// The captured frame. Of a datagram reassembled from fragments the datagram, with link type
    /// RAW.
    pub frame: &'a [u8],
    /// What its source says of it: link type, length on the wire, VLAN tag.
    pub descriptor: &'a PacketDescriptor,
    /// What decoding found. (Of the exchanged packet what it found in the original, the direction
    /// exchanged.)
    pub decoded: &'a Decoded,
}

/// A question about packets, for instance a BPF program. Cloning is cheap and shares it.
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

    /// A filter from programs of one expression, each for packets of one link type; no other packet is meant.
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

    /// Whether the packet's stream is meant.
    pub fn matches(&self, packet: &FilterPacket<'_>) -> bool {
        (self.matches)(packet)
    }

    /// The expression that it was made of, if it was.
    pub fn expression(&self) -> Option<&str> {
        self.source
            .as_ref()
            .map(|source| source.expression.as_str())
    }

    /// Its program for packets of a link type, where it was made of an expression and is compiled for them.
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
