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
