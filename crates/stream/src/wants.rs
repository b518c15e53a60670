//! What subscribers want of streams, and what they are not shown.

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_wire::Nanos;

use crate::handler::{Chunk, Stream};
use crate::offload::Standing;

/// What is wanted of a stream from now on ([`Handler::want`](crate::Handler::want)), by [`Stream::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Bytes from this position on, holes counted: those before are counted, but not looked at. The first [`Chunk`]
    /// from there on tells of them ([`Chunk::skipped`]), or the last one before the stream ends. With `u64::MAX` it is
    /// lengths that are wanted.
    From(u32, u64),
    /// Neither bytes nor lengths: nothing waits for earlier segments, nothing is delivered, and nothing counts as
    /// missing. The stream still ends when its connection does. Wanted again ([`Want::From`]), it goes on with the next
    /// segment that begins where it has got to, or behind that; what it does not have until there counts as skipped.
    /// Of a flow of which nothing is wanted in either direction, payload is not verified.
    Nothing(u32),
    /// Overlaps are resolved like this.
    Policy(u32, OverlapPolicy),
    /// So much it is wanted under overload, where a backend takes data away ([`Overload`](crate::offload::Overload)).
    Standing(u32, Standing),
}

impl Want {
    /// Memory for what subscribers do not look at, for each flow.
    pub const BYTES_PER_FLOW: u64 = 2 * size_of::<Skip>() as u64;

    /// Of which stream.
    pub(crate) fn stream(self) -> u32 {
        match self {
            Want::From(stream, _)
            | Want::Nothing(stream)
            | Want::Policy(stream, _)
            | Want::Standing(stream, _) => stream,
        }
    }
}

/// Bytes of a stream that a subscriber does not look at ([`Want::From`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Skip {
    /// Where the next byte is that it does.
    pub from: u64,
    captured: u64,
    missing: u64,
    last: Nanos,
}

impl Skip {
    /// What the subscriber gets of a chunk.
    #[inline]
    pub fn rest<'a>(&mut self, chunk: &Chunk<'a>) -> Option<Chunk<'a>> {
        let len = chunk.bytes.len() as u64;
        let passed = self.from.saturating_sub(chunk.offset).min(len);
        self.captured += chunk.skipped + passed;
        self.missing += chunk.gap_before;
        self.last = self.last.max(chunk.captured);
        let is_over = chunk.offset + len >= self.from;
        is_over.then(|| Chunk {
            bytes: chunk.bytes.get(passed as usize..).unwrap_or_default(),
            offset: chunk.offset + passed,
            ..self.told(chunk.time, chunk.captured)
        })
    }

    /// Bytes are not looked at, whether they were captured or not.
    pub fn pass(&mut self, bytes: u64) {
        self.captured += bytes;
    }

    /// The same of a stream that ends: what was not told yet.
    pub fn last(&mut self, stream: &Stream<'_>) -> Option<Chunk<'static>> {
        let is_new = self.captured + self.missing != 0;
        is_new.then(|| Chunk {
            offset: stream.bytes + stream.missing_bytes,
            ..self.told(self.last, self.last)
        })
    }

    fn told(&mut self, time: Nanos, captured: Nanos) -> Chunk<'static> {
        let Skip { from, .. } = *self;
        let skip = core::mem::replace(
            self,
            Skip {
                from,
                ..Skip::default()
            },
        );
        Chunk {
            bytes: &[],
            offset: 0,
            gap_before: skip.missing,
            skipped: skip.captured,
            time,
            captured,
        }
    }
}
