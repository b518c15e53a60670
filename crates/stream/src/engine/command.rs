//! An application's requests for one of its streams.

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_wire::Nanos;

use super::config::{Cutoff, Mode};

/// Parameters of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Chunk size in bytes; 0: segments in place.
    ChunkBytes(u32),
    /// Bytes at the end of a chunk that the next one repeats.
    OverlapBytes(u32),
    /// Time after which a partial chunk is delivered.
    FlushTimeout(Option<Nanos>),
    /// How TCP bytes are reassembled, from the next chunk on.
    Mode(Mode),
    /// How overlapping segments are resolved, for all applications; the latest request applies.
    Policy(OverlapPolicy),
    /// Time without packets after which the stream and its opposite direction end, a second or more; `None`: the
    /// application's own timeout
    /// ([`ApplicationConfig::inactivity_timeout`](super::ApplicationConfig::inactivity_timeout)). If several
    /// applications have the stream, the longest timeout applies.
    InactivityTimeout(Option<Nanos>),
}

/// Parameters that determine an application's chunks of a stream. Applications with equal parameters share
/// chunks; the engine stores each set in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkParameters {
    /// Chunk size in bytes; 0: segments in place.
    pub chunk_bytes: u32,
    /// Bytes at the end of a chunk that the next one repeats.
    pub overlap_bytes: u32,
    /// Time after which a partial chunk is delivered.
    pub flush_timeout: Option<Nanos>,
    /// How TCP bytes are reassembled.
    pub mode: Mode,
}

impl ChunkParameters {
    /// These parameters with one of them changed. (Some parameters do not affect chunks.)
    #[must_use]
    pub fn with(self, parameter: Parameter) -> ChunkParameters {
        let mut changed = self;
        match parameter {
            Parameter::ChunkBytes(bytes) => changed.chunk_bytes = bytes,
            Parameter::OverlapBytes(bytes) => changed.overlap_bytes = bytes,
            Parameter::FlushTimeout(timeout) => changed.flush_timeout = timeout,
            Parameter::Mode(mode) => changed.mode = mode,
            Parameter::Policy(_) | Parameter::InactivityTimeout(_) => return self,
        }
        let most = changed.chunk_bytes.saturating_sub(1);
        changed.overlap_bytes = changed.overlap_bytes.min(most);
        changed
    }
}

/// The methods of [`StreamRef`](super::StreamRef) as values that can be sent: a worker thread returns them for
/// its streams ([`Engine::command`](super::Engine::command)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Changes the cutoff.
    SetCutoff(Cutoff),
    /// Changes the priority.
    SetPriority(u8),
    /// Discards the rest of the stream.
    Discard,
    /// Changes a parameter.
    SetParameter(Parameter),
    /// Sets the application's own word.
    SetUserState(u64),
    /// Adds nanoseconds of processing time spent elsewhere on the stream's chunks.
    AddProcessingTime(u64),
}
