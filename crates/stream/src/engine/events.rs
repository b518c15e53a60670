//! The events of an engine's applications.

use super::chunk::DataChunk;
use super::config::ApplicationId;
use super::stream_ref::StreamRef;

/// The events of all applications of an engine (section 3.2 of the paper); `application` identifies
/// the application. All methods have empty defaults.
///
/// Both directions of a connection are created one after the other, the initiator's first, and end
/// one after the other.
pub trait Events {
    /// A stream was created.
    fn created(&mut self, _application: ApplicationId, _stream: &mut StreamRef<'_>) {}

    /// A chunk is ready: it is full, its flush timeout passed, the cutoff was reached, or the
    /// stream ended.
    fn data(
        &mut self,
        _application: ApplicationId,
        _stream: &mut StreamRef<'_>,
        _chunk: &mut DataChunk<'_>,
    ) {
    }

    /// The stream ended; its record is freed after the call.
    fn terminated(&mut self, _application: ApplicationId, _stream: &mut StreamRef<'_>) {}
}

/// Measures the time that applications spend in data events. The engine itself reads no clock.
pub trait Stopwatch: Send {
    /// Nanoseconds since some fixed point.
    fn now(&mut self) -> u64;
}

impl<F: FnMut() -> u64 + Send> Stopwatch for F {
    fn now(&mut self) -> u64 {
        self()
    }
}
