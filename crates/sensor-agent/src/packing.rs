//! Whether packets go out compressed: where a network is what they wait for, and they come faster so.

use std::io;
use std::time::{Duration, Instant};

/// The level of zstd that is a match for networks.
const LEVEL: i32 = 1;
/// How many grants are waited for at most before the other way is tried again, plain or packed, where it was no better.
const MOST_PAUSE: u32 = 256;

/// What is known of a flow's way to its user. Its user grants so many bytes ahead at a time, and grants more when nearly all of them
/// were taken: what happens between two grants tells how fast a way is.
pub(crate) struct Packing {
    is_packed: bool,
    /// This way is being tried: bytes per second of the other.
    tried_at: Option<f64>,
    /// Grants to wait for before the other way is tried, and after that is no better the next time.
    pause: u32,
    next_pause: u32,
    allowed: u64,
    begun: Instant,
    waited: Duration,
    packed: Vec<u8>,
}

impl Packing {
    pub(crate) fn new(now: Instant) -> Packing {
        Packing {
            is_packed: false,
            tried_at: None,
            pause: 0,
            next_pause: 1,
            allowed: 0,
            begun: now,
            waited: Duration::ZERO,
            packed: Vec::new(),
        }
    }

    /// The network, or its user, was waited for so long.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// So many bytes may have been sent in all from now on.
    pub(crate) fn granted(&mut self, allowed: u64, now: Instant) {
        if allowed == self.allowed {
            return;
        }
        let bytes = allowed.saturating_sub(self.allowed);
        let (begun, waited) = (self.begun, self.waited);
        let is_first = self.allowed == 0;
        (self.allowed, self.begun, self.waited) = (allowed, now, Duration::ZERO);
        let time = now.saturating_duration_since(begun);
        let rate = bytes as f64 / time.as_secs_f64().max(1e-9);
        let waits = waited > time / 2;
        match self.tried_at.take() {
            _ if is_first => {}
            Some(before) => {
                let (plain, packed) = match self.is_packed {
                    true => (before, rate),
                    false => (rate, before),
                };
                let was_packed = !self.is_packed;
                self.is_packed = packed > plain * 1.1;
                match self.is_packed == was_packed {
                    true => self.pause(),
                    false => self.next_pause = 1,
                }
            }
            None if self.is_packed && !waits => {
                self.is_packed = false;
                self.pause();
            }
            None if waits && self.pause == 0 => {
                self.tried_at = Some(rate);
                self.is_packed = !self.is_packed;
            }
            None => self.pause = self.pause.saturating_sub(1),
        }
    }

    fn pause(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = (self.next_pause * 2).min(MOST_PAUSE);
    }

    /// Records compressed, where that is worth it.
    pub(crate) fn pack(&mut self, records: &[u8]) -> io::Result<Option<&[u8]>> {
        if !self.is_packed {
            return Ok(None);
        }
        self.packed
            .resize(zstd::zstd_safe::compress_bound(records.len()), 0);
        let len = zstd::bulk::compress_to_buffer(records, &mut self.packed, LEVEL)?;
        Ok(self.packed.get(..len).filter(|_| len < records.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grants of a megabyte that take so many milliseconds plain and packed, of which all but one are waited. Returns how many of
    /// the last hundred went out packed.
    fn packed_of_hundred(packing: &mut Packing, plain: u64, packed: u64, waits: bool) -> usize {
        let mut now = packing.begun;
        let all = (1..=400).filter(|at| {
            let was_packed = packing.is_packed;
            let time = Duration::from_millis(if was_packed { packed } else { plain });
            now += time;
            packing.waited(if waits { time } else { Duration::ZERO });
            packing.granted(packing.allowed + (1 << 20), now);
            was_packed && *at > 300
        });
        all.count()
    }

    #[test]
    fn packets_are_compressed_where_they_come_faster_so() {
        let mut packing = Packing::new(Instant::now());
        assert!(packing.pack(b"x").unwrap().is_none());
        assert!(packed_of_hundred(&mut packing, 100, 60, true) > 95);
        let records = vec![7; 10_000];
        let packed = packing.pack(&records).unwrap().unwrap().to_vec();
        assert_eq!(zstd::bulk::decompress(&packed, 10_000).unwrap(), records);
        // What cannot be compressed goes out as it is.
        assert!(packing.pack(b"x").unwrap().is_none());
        // A user that is slow is not helped by it, nor is a network that is faster than the packets come.
        assert!(packed_of_hundred(&mut packing, 100, 100, true) < 5);
        assert_eq!(packed_of_hundred(&mut packing, 10, 10, false), 0);
        assert!(packed_of_hundred(&mut packing, 100, 60, true) > 95);
    }
}
