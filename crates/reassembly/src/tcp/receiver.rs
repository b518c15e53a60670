//! Who takes bytes in order, and what it is told of holes.

use flowgauge_wire::Nanos;

/// Why a hole was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum GapCause {
    /// The peer has received the bytes; they were not captured.
    Acknowledged = 0,
    /// Too old, or too much waited behind it, and the peer was never seen.
    OneSided = 1,
    /// Too old.
    Time = 2,
    /// Too much of this stream waited behind it.
    Bytes = 3,
    /// The memory for all streams was used up.
    Memory = 4,
    /// The stream ended.
    End = 5,
    /// The snap length cut the bytes off.
    Cut = 6,
    /// Whoever reads the stream does not wait for them (mode FAST, or it wants no more).
    NotAwaited = 7,
}

impl GapCause {
    /// All causes, in order.
    pub const ALL: &[GapCause] = <GapCause as strum::VariantArray>::VARIANTS;

    /// Name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Takes a direction's bytes in order.
pub trait Receiver {
    /// Whether it wants to know where packets begin in what has [waited](Receiver::waited).
    const PACKETS: bool = false;

    /// How far the stream has got: bytes handed on and missing so far.
    fn position(&self) -> u64;

    /// The next bytes. Never empty.
    fn data(&mut self, bytes: &[u8]);

    /// The same of bytes that had to wait, of a segment that was captured at `captured`; packets
    /// [begin](super::Account::Packet) at these of them, where [`Receiver::PACKETS`].
    fn waited(&mut self, bytes: &[u8], captured: Nanos, begin: &[u32]) {
        let _ = (captured, begin);
        self.data(bytes);
    }

    /// That many bytes are missing here. Never 0.
    fn gap(&mut self, bytes: u64, cause: GapCause);

    /// That many bytes of segments that count ([`Account`](super::Account)) are missing here, as the snap length cut
    /// them off; so many packets begin with the first. Never 0.
    fn cut(&mut self, bytes: u64, packets: u64) {
        let _ = packets;
        self.gap(bytes, GapCause::Cut);
    }

    /// What comes is taken for the stream's beginning, as nothing before it came in time.
    fn begun(&mut self) {}
}
