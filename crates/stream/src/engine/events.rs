//! What an application implements.

use super::chunk::DataChunk;
use super::config::ApplicationId;
use super::stream_ref::StreamRef;

/// The events of all applications of an engine (section 3.2 of the paper); `application` says whose
/// event it is. Every method has an empty default.
///
/// Both directions of a connection are created one after the other, the initiator's first, and end
/// one after the other.
pub trait Events {
    /// A stream was created.
    fn created(&mut self, _application: ApplicationId, _stream: &mut StreamRef<'_>) {}

    /// A chunk of it is there: full, or its flush timeout passed, or the cutoff was reached, or the
    /// stream ended.
    fn data(
        &mut self,
        _application: ApplicationId,
        _stream: &mut StreamRef<'_>,
        _chunk: &mut DataChunk<'_>,
    ) {
    }

    /// The stream ended; its record is freed after this.
    fn terminated(&mut self, _application: ApplicationId, _stream: &mut StreamRef<'_>) {}
}

/// Measures how long an application needs for its data events. The engine reads no clock itself.
pub trait Stopwatch: Send {
    /// Nanoseconds since some fixed point.
    fn now(&mut self) -> u64;
}

impl<F: FnMut() -> u64 + Send> Stopwatch for F {
    fn now(&mut self) -> u64 {
        self()
    }
}
