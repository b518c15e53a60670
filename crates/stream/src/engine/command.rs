//! What an application asks of the engine for one of its streams.

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_wire::Nanos;

use super::config::{Cutoff, Mode};

/// Parameters of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Chunk size in bytes; 0: segments in place.
    ChunkBytes(u32),
    /// Bytes repeated from chunk to chunk.
    OverlapBytes(u32),
    /// How long a partial chunk may wait.
    FlushTimeout(Option<Nanos>),
    /// How TCP bytes are put in order, from the next chunk on.
    Mode(Mode),
    /// How overlapping segments are resolved. It holds for the stream, whoever asked last.
    Policy(OverlapPolicy),
    /// The stream has ended, and with it the opposite one, when nothing came of either for so long, a
    /// second or more; none: the application's own
    /// ([`ApplicationConfig::inactivity_timeout`](super::ApplicationConfig::inactivity_timeout)). Of
    /// several applications that have the stream the one with the longest decides.
    InactivityTimeout(Option<Nanos>),
}

/// What decides how an application gets the chunks of a stream. Those of equal parameters share them; the engine
/// keeps each set that some stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkParameters {
    /// Chunk size in bytes; 0: segments in place.
    pub chunk_bytes: u32,
    /// Bytes repeated from chunk to chunk.
    pub overlap_bytes: u32,
    /// How long a partial chunk may wait.
    pub flush_timeout: Option<Nanos>,
    /// How TCP bytes are put in order.
    pub mode: Mode,
}

impl ChunkParameters {
    /// With one of them changed. (Some parameters are none of a chunk.)
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

/// The same as the methods of [`StreamRef`](super::StreamRef), as values that travel: what a worker
/// thread sends back about a stream it was given
/// ([`Engine::command`](super::Engine::command)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Another cutoff.
    SetCutoff(Cutoff),
    /// Another priority.
    SetPriority(u8),
    /// Nothing more of it is wanted.
    Discard,
    /// Another parameter.
    SetParameter(Parameter),
    /// The user's own word.
    SetUserState(u64),
    /// So many nanoseconds went into processing its chunks elsewhere.
    AddProcessingTime(u64),
}
