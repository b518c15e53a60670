//! Which bytes of streams subscribers want, and which they skip.

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_wire::Nanos;

use crate::handler::{Chunk, Stream};
use crate::offload::Standing;

/// A change in what is wanted of a stream ([`Handler::want`](crate::Handler::want)), by [`Stream::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Bytes from this position on, including holes: earlier bytes are counted, but not delivered. They are reported by
    /// the first later [`Chunk`] ([`Chunk::skipped`]), or by the last one before the stream ends. `u64::MAX`: only
    /// lengths are wanted.
    From(u32, u64),
    /// Neither bytes nor lengths: nothing waits for earlier segments, nothing is delivered, and nothing counts as
    /// missing. The stream still ends with its connection. If it is wanted again ([`Want::From`]), it continues with
    /// the next segment that starts at or after its position; bytes in between count as skipped. Payload of flows that
    /// are not wanted in either direction is not verified.
    Nothing(u32),
    /// The overlap policy.
    Policy(u32, OverlapPolicy),
    /// Its importance under overload, for backends that drop data ([`Overload`](crate::offload::Overload)).
    Standing(u32, Standing),
}

impl Want {
    /// Memory for skipped bytes, per flow.
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

/// Bytes of a stream that a subscriber skips ([`Want::From`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Skip {
    /// Position of the next byte that is not skipped.
    pub from: u64,
    captured: u64,
    missing: u64,
    last: Nanos,
}

impl Skip {
    /// The part of a chunk that is not skipped.
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

    /// Skips bytes, captured or not.
    pub fn pass(&mut self, bytes: u64) {
        self.captured += bytes;
    }

    /// The unreported skipped bytes of a stream that ends.
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
