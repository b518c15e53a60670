//! The memory budget, and the packets it refuses under overload.
//!
//! Chunks with their descriptions, waiting segments and packet records are charged to one [`Budget`](super::Budget),
//! optionally also connections ([`EngineConfig::connection_bytes`](super::EngineConfig::connection_bytes)). The memory
//! divided below is then what connections leave, less a sixteenth, so that new connections and their creation events
//! always have room. A chunk taken by a consumer ([`DataChunk::take`](super::DataChunk::take)) stays charged until the
//! consumer drops it: slow consumers fill the budget, which is what overload means here.
//!
//! # Prioritized packet loss (section 2.2 of the paper)
//! ```text
//!  0                      base                 w1                 w2   ...   wn = memory
//!  |----------------------|--------------------|------------------|----------|
//!    nothing is dropped     priority 1 beyond    priority 1;        ...
//!                           overload cutoff      priority 2 beyond
//!                                                overload cutoff
//! ```
//! The memory above the base threshold is divided into n equal regions, one for each priority in use. A packet of the
//! i-th priority from the lowest is dropped above watermark i; between watermarks i-1 and i it is dropped if it lies
//! beyond the overload cutoff in its stream.
//!
//! No charge for a stream of the i-th priority takes memory beyond watermark i either: chunks, their growth, waiting
//! segments, packet records, and consumers' copies. The memory above is reserved for more important streams. `[ours]`

use flowgauge_wire::Budget;

/// The verdict of prioritized packet loss on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sentence {
    /// The packet is kept.
    Keep,
    /// It is dropped: its priority is too low for the memory in use.
    Watermark,
    /// It is dropped: it lies beyond the overload cutoff of its stream.
    OverloadCutoff,
}

/// The watermarks for a set of priorities.
#[derive(Clone, Debug)]
pub struct Watermarks {
    base: u64,
    /// The share of the memory that `base` is.
    share: f64,
    limit: u64,
    memory: u64,
    /// What of the memory connections have; nothing is said of it where they are not charged.
    tables: Option<u64>,
    overload_cutoff: u64,
    /// 1 + rank of each priority in use from the lowest; 0: not in use.
    rank: [u16; 256],
    ranks: u16,
    /// How often something was changed.
    changes: u32,
    /// Watermark of each rank.
    ceilings: Box<[u64; 257]>,
}

impl Watermarks {
    /// The unit of [shares](Watermarks::share_of).
    pub const SCALE: u64 = 1 << 16;

    /// Watermarks in `limit` bytes of memory, the first at the share `base_threshold` of it. No priorities are in use
    /// yet.
    pub fn new(limit: u64, base_threshold: f64, overload_cutoff: Option<u64>) -> Watermarks {
        let share = if base_threshold.is_nan() {
            1.0
        } else {
            base_threshold.clamp(0.0, 1.0)
        };
        let mut watermarks = Watermarks {
            base: 0,
            share,
            limit,
            memory: limit,
            tables: None,
            overload_cutoff: overload_cutoff.unwrap_or(u64::MAX),
            rank: [0; 256],
            ranks: 0,
            changes: 0,
            ceilings: Box::new([limit; 257]),
        };
        watermarks.note_ceilings();
        watermarks
    }

    /// Sets the priorities in use.
    pub fn set_priorities(&mut self, is_used: impl Fn(u8) -> bool) {
        self.ranks = 0;
        for priority in 0..=u8::MAX {
            let rank = &mut self.rank[usize::from(priority)];
            *rank = 0;
            if is_used(priority) {
                self.ranks += 1;
                *rank = self.ranks;
            }
        }
        self.note_ceilings();
    }

    /// Changes the base threshold, a share of the memory.
    pub fn set_base_threshold(&mut self, share: f64) {
        self.share = Watermarks::new(0, share, None).share;
        self.note_ceilings();
    }

    /// Sets how much of the memory is used by connections.
    pub fn set_tables(&mut self, bytes: u64) {
        // Less than a thousandth of it makes no difference.
        let close = self.memory >> 10;
        if self.tables.is_none_or(|told| told.abs_diff(bytes) > close) {
            self.tables = Some(bytes);
            self.note_ceilings();
        }
    }

    /// Whether streams differ in what is lost first: two priorities are in use, or an overload cutoff.
    pub fn tell_streams_apart(&self) -> bool {
        self.ranks > 1 || self.overload_cutoff != u64::MAX
    }

    /// A number that changes with each modification.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Converts bytes of memory in use to a share of the divided memory, in units of [`Watermarks::SCALE`].
    pub fn share_of(&self, used: u64) -> u64 {
        let tables = self.tables.unwrap_or(0).min(self.limit);
        let divided = u128::from((self.limit - tables).max(1));
        let share =
            u128::from(used.saturating_sub(tables)) * u128::from(Watermarks::SCALE) / divided;
        share.min(u128::from(2 * Watermarks::SCALE)) as u64
    }

    /// The shares above which a packet of `priority` is dropped if it lies beyond the overload cutoff, and in any case.
    pub fn shares(&self, priority: u8) -> [u64; 2] {
        let rank = usize::from(self.rank[usize::from(priority)].max(1));
        [rank - 1, rank].map(|rank| self.share_of(self.ceilings[rank]))
    }

    fn note_ceilings(&mut self) {
        self.changes += 1;
        let tables = self.tables.unwrap_or(0).min(self.memory);
        let rest = self.memory - tables;
        let left = self.tables.map_or(0, |_| rest / Budget::SHARE_LEFT);
        self.limit = self.memory - left;
        self.base = tables + ((rest - left) as f64 * self.share) as u64;
        for rank in 0..=self.ranks.max(1) {
            self.ceilings[usize::from(rank)] = self.watermark(rank);
        }
    }

    /// The amount of memory that may be in use after a charge for a stream of `priority`.
    #[inline]
    pub fn ceiling(&self, priority: u8) -> u64 {
        self.ceilings[usize::from(self.rank[usize::from(priority)].max(1))]
    }

    /// The same for the highest priority.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The same for the event of a stream's creation, which has room when nothing else does.
    pub fn creation_ceiling(&self, priority: u8) -> u64 {
        let rank = u64::from(self.rank[usize::from(priority)].max(1));
        let left = self.memory - self.limit;
        match left {
            0 => self.ceiling(priority),
            _ => self.limit + left * rank / u64::from(self.ranks.max(1)),
        }
    }

    /// The same for the lowest priority in use.
    #[inline]
    pub fn lowest_ceiling(&self) -> u64 {
        self.ceilings[1]
    }

    /// The stream offset beyond which bytes are dropped first.
    pub fn overload_cutoff(&self) -> u64 {
        self.overload_cutoff
    }

    /// Changes the overload cutoff.
    pub fn set_overload_cutoff(&mut self, cutoff: Option<u64>) {
        self.overload_cutoff = cutoff.unwrap_or(u64::MAX);
    }

    /// The amount of memory below which nothing is dropped.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Watermark `index` of `0..=n`.
    pub fn watermark(&self, index: u16) -> u64 {
        let n = u128::from(self.ranks.max(1));
        let region = u128::from(self.limit.saturating_sub(self.base));
        self.base + (region * u128::from(index.min(self.ranks.max(1))) / n) as u64
    }

    /// Judges a packet of `priority` whose first byte is at `offset` in its stream, with `used` bytes of memory in use.
    #[inline]
    pub fn judge(&self, used: u64, priority: u8, offset: u64) -> Sentence {
        if used <= self.base {
            return Sentence::Keep;
        }
        let rank = usize::from(self.rank[usize::from(priority)].max(1));
        if used > self.ceilings[rank] {
            Sentence::Watermark
        } else if offset >= self.overload_cutoff && used > self.ceilings[rank - 1] {
            Sentence::OverloadCutoff
        } else {
            Sentence::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_equally_spaced() {
        let mut marks = Watermarks::new(1000, 0.4, None);
        marks.set_priorities(|priority| matches!(priority, 0 | 3 | 9));
        let all: Vec<u64> = (0..=3).map(|index| marks.watermark(index)).collect();
        assert_eq!(all, [400, 600, 800, 1000]);
        assert_eq!([0, 3, 9].map(|of| marks.ceiling(of)), [600, 800, 1000]);
        marks.set_base_threshold(0.7);
        assert_eq!([0, 3, 9].map(|of| marks.ceiling(of)), [800, 900, 1000]);
        assert_eq!(marks.lowest_ceiling(), 800);
    }

    #[test]
    fn connections_leave_the_rest_to_be_divided() {
        let mut marks = Watermarks::new(3200, 0.5, None);
        marks.set_priorities(|priority| matches!(priority, 0 | 3));
        marks.set_tables(1600);
        assert_eq!([0, 1, 2].map(|at| marks.watermark(at)), [2350, 2725, 3100]);
        assert_eq!([0, 3].map(|of| marks.creation_ceiling(of)), [3150, 3200]);
        marks.set_base_threshold(0.0);
        assert_eq!(marks.base(), 1600);
        marks.set_tables(0);
        assert_eq!([0, 1, 2].map(|at| marks.watermark(at)), [0, 1500, 3000]);
        // Where they are not charged nothing is left for them.
        let marks = Watermarks::new(3200, 0.5, None);
        assert_eq!((marks.base(), marks.ceiling(9)), (1600, 3200));
        assert_eq!(marks.creation_ceiling(9), 3200);
    }

    #[test]
    fn shares_are_of_what_streams_have() {
        let mut marks = Watermarks::new(3200, 0.5, Some(100));
        assert!(marks.tell_streams_apart());
        let before = marks.changes();
        marks.set_priorities(|priority| matches!(priority, 0 | 3));
        marks.set_tables(1600);
        assert_ne!(marks.changes(), before);
        let half = Watermarks::SCALE / 2;
        assert_eq!(marks.shares(0), [half, half + half / 2]);
        assert_eq!(marks.shares(3), [half + half / 2, 2 * half]);
        assert_eq!(
            [0, 1600, 3100].map(|used| marks.share_of(used)),
            [0, 0, 2 * half]
        );
        assert_eq!(marks.share_of(u64::MAX), 4 * half);
        assert!(!Watermarks::new(3200, 0.5, None).tell_streams_apart());
    }

    #[test]
    fn priorities_are_judged_by_rank() {
        let mut marks = Watermarks::new(1000, 0.5, Some(10_000));
        marks.set_priorities(|priority| matches!(priority, 0 | 7));
        use Sentence::{Keep, OverloadCutoff, Watermark};
        // (used, priority, offset): watermarks at 500, 750, 1000.
        for (used, priority, offset, sentence) in [
            (500, 0, 1 << 40, Keep),
            (501, 0, 9_999, Keep),
            (501, 0, 10_000, OverloadCutoff),
            (501, 7, 10_000, Keep),
            (750, 0, 0, Keep),
            (751, 0, 0, Watermark),
            (751, 7, 9_999, Keep),
            (751, 7, 10_000, OverloadCutoff),
            (1000, 7, 0, Keep),
            (1001, 7, 0, Watermark),
        ] {
            assert_eq!(
                marks.judge(used, priority, offset),
                sentence,
                "{used} {priority} {offset}"
            );
        }
    }

    #[test]
    fn odd_thresholds_are_taken_to_their_bounds() {
        assert_eq!(Watermarks::new(100, -1.0, None).base(), 0);
        assert_eq!(Watermarks::new(100, 7.0, None).base(), 100);
        assert_eq!(Watermarks::new(100, f64::NAN, None).base(), 100);
    }
}
