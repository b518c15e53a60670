//! Idle timeouts without work per packet.
//!
//! A packet only stores the current tick in its flow. Each timeout class has a ring of buckets,
//! one per tick; a flow is in the bucket of the tick at which it was *last checked*. When a
//! bucket's age reaches the timeout, its flows are checked again: those seen since then move to
//! the bucket of the tick at which they were last seen, the others have ended. A flow is thus
//! touched once per timeout, regardless of its number of packets. The buckets are doubly linked
//! lists through an array of links beside the flows, without allocation.
//!
//! The oldest bucket also identifies, to one tick, the flow that has been idle longest.

/// Nanoseconds per tick as a power of two: 1.07 s, and a tick number fits 32 bits for 146 years.
pub(crate) const TICK_SHIFT: u32 = 30;

/// No flow.
pub(crate) const NONE: u32 = u32::MAX;

/// Set in a link to the previous flow that is the bucket itself.
const IS_BUCKET: u32 = 1 << 31;

/// A flow's place in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) next: u32,
    pub(crate) previous: u32,
}

impl Link {
    pub(crate) const NONE: Link = Link {
        next: NONE,
        previous: NONE,
    };
}

/// Where links are kept.
pub(crate) trait Links {
    /// The link of a flow.
    fn link(&mut self, id: u32) -> &mut Link;
}

/// Ticks after which a timeout is over for certain.
#[inline(always)]
pub(crate) fn ticks_of(timeout_ns: u64) -> u64 {
    (timeout_ns >> TICK_SHIFT) + 2
}

/// Flows with the same timeout, by when they were last looked at.
#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    /// First flow of each bucket.
    heads: Vec<u32>,
    /// Ticks per bucket as a power of two.
    shift: u32,
    /// Ticks after which the timeout is over for certain: two more than its whole ticks, because
    /// both ends of the interval lie somewhere within theirs.
    timeout: u64,
    /// No flow hangs in a bucket before this one (in ticks >> shift, not wrapped).
    oldest: u64,
    flows: u32,
}

impl Wheel {
    /// A wheel for a timeout in nanoseconds.
    pub(crate) fn new(timeout_ns: u64) -> Wheel {
        let timeout = ticks_of(timeout_ns);
        // At most 1024 buckets, whatever the timeout.
        let shift = (u64::BITS - (timeout >> 9).leading_zeros()).min(31);
        let buckets = ((timeout >> shift) + 3).next_power_of_two();
        Wheel {
            heads: vec![NONE; buckets as usize],
            shift,
            timeout,
            oldest: 0,
            flows: 0,
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.flows == 0
    }

    fn mask(&self) -> u64 {
        self.heads.len() as u64 - 1
    }

    /// Hangs a flow into the bucket of `tick`.
    pub(crate) fn insert(&mut self, links: &mut impl Links, id: u32, tick: u32) {
        let mut bucket = u64::from(tick) >> self.shift;
        if self.flows == 0 {
            self.oldest = bucket;
        }
        // Never behind what has been looked at already, never a whole turn ahead.
        bucket = bucket.clamp(self.oldest, self.oldest + self.mask());
        let at = (bucket & self.mask()) as usize;
        let first = self.heads[at];
        *links.link(id) = Link {
            next: first,
            previous: at as u32 | IS_BUCKET,
        };
        if first != NONE {
            links.link(first).previous = id;
        }
        self.heads[at] = id;
        self.flows += 1;
    }

    /// The same for a flow from another wheel, which may have been seen before all that hang here.
    pub(crate) fn insert_old(&mut self, links: &mut impl Links, id: u32, tick: u32) {
        let bucket = u64::from(tick) >> self.shift;
        // As far back as the buckets are not those of a turn later.
        while self.flows != 0
            && self.oldest > bucket
            && self.heads[((self.oldest - 1) & self.mask()) as usize] == NONE
        {
            self.oldest -= 1;
        }
        self.insert(links, id, tick);
    }

    /// Takes a flow out.
    pub(crate) fn remove(&mut self, links: &mut impl Links, id: u32) {
        let link = *links.link(id);
        if link == Link::NONE {
            return;
        }
        if link.previous & IS_BUCKET != 0 {
            if let Some(head) = self.heads.get_mut((link.previous & !IS_BUCKET) as usize) {
                *head = link.next;
            }
        } else {
            links.link(link.previous).next = link.next;
        }
        if link.next != NONE {
            links.link(link.next).previous = link.previous;
        }
        *links.link(id) = Link::NONE;
        self.flows -= 1;
    }

    /// The first flow of the oldest bucket and that bucket's last tick, without taking it out.
    pub(crate) fn oldest(&mut self) -> Option<(u32, u32)> {
        if self.flows == 0 {
            return None;
        }
        for _ in 0..self.heads.len() {
            let id = self.heads[(self.oldest & self.mask()) as usize];
            if id != NONE {
                let last_tick = ((self.oldest + 1) << self.shift) - 1;
                return Some((id, last_tick.min(u64::from(u32::MAX)) as u32));
            }
            self.oldest += 1;
        }
        None
    }

    /// The first flows that have to be looked at by now, all of them from the same bucket: those
    /// whose bucket is older than the timeout. Returns how many there are in `due`.
    pub(crate) fn due(&mut self, links: &mut impl Links, now: u32, due: &mut [u32]) -> usize {
        let Some((first, last_tick)) = self.oldest() else {
            return 0;
        };
        if !self.is_due(last_tick, now) {
            return 0;
        }
        let mut id = first;
        let mut count = 0;
        for slot in due {
            if id == NONE {
                break;
            }
            *slot = id;
            count += 1;
            id = links.link(id).next;
        }
        count
    }

    /// Whether a flow last seen at `last_tick` has timed out for certain.
    pub(crate) fn is_due(&self, last_tick: u32, now: u32) -> bool {
        u64::from(last_tick) + self.timeout <= u64::from(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Links for Vec<Link> {
        fn link(&mut self, id: u32) -> &mut Link {
            &mut self[id as usize]
        }
    }

    #[test]
    fn gives_out_by_age() {
        for timeout_s in [1, 5, 300, 86_400, 10_000_000] {
            let mut links = vec![Link::NONE; 100];
            let mut wheel = Wheel::new(timeout_s * 1_000_000_000);
            assert!(wheel.heads.len() <= 1024);
            for id in 0..100 {
                wheel.insert(&mut links, id, 1000 + id / 20);
            }
            wheel.remove(&mut links, 5);
            let limit = 1000 + wheel.timeout as u32 + (2 << wheel.shift) + 10;
            let mut seen = Vec::new();
            for now in 1000..limit {
                loop {
                    let mut due = [NONE; 3];
                    let count = wheel.due(&mut links, now, &mut due);
                    if count == 0 {
                        break;
                    }
                    for &id in &due[..count] {
                        assert!(u64::from(now) >= u64::from(1000 + id / 20) + wheel.timeout);
                        wheel.remove(&mut links, id);
                        seen.push(id);
                    }
                }
            }
            assert_eq!(seen.len(), 99);
            assert!(wheel.is_empty());
        }
    }

    #[test]
    fn a_removed_middle_flow_leaves_the_list_whole() {
        let mut links = vec![Link::NONE; 3];
        let mut wheel = Wheel::new(30_000_000_000);
        for id in 0..3 {
            wheel.insert(&mut links, id, 7);
        }
        wheel.remove(&mut links, 1);
        assert_eq!(wheel.oldest().map(|(id, _)| id), Some(2));
        wheel.remove(&mut links, 2);
        assert_eq!(wheel.oldest().map(|(id, _)| id), Some(0));
        wheel.remove(&mut links, 0);
        assert_eq!(wheel.oldest(), None);
    }
}
