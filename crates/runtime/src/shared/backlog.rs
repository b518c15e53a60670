//! Creations and terminations that wait until there is room in a client's ring.

use std::collections::VecDeque;

use flowgauge_sys::shared::{BODY_BYTES, EventWriter, Pool};

use super::layout::Kind;

/// What one takes of memory, at most.
const COST: u64 = BODY_BYTES as u64 + 40;

/// For so many entries of a client's ring there is room for one in any case.
const SHARE: u32 = 8;

/// Events that refer to no bytes, in their order, all of them behind what is in the ring.
#[derive(Debug, Default)]
pub(super) struct Backlog(VecDeque<Box<[u8; BODY_BYTES]>>);

impl Backlog {
    /// Bytes that are kept for it, whatever else its client uses, beside a ring for so many events.
    pub(super) fn bytes_for(events: u32) -> u64 {
        u64::from(events / SHARE) * COST
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the client's memory that it takes beyond what is kept for it.
    pub(super) fn borrowed(&self, ring: &EventWriter) -> u64 {
        let own = Backlog::bytes_for(ring.entries());
        (self.0.len() as u64 * COST).saturating_sub(own)
    }

    /// Takes an event, if it has room for it within the client's memory. False when it has not.
    pub(super) fn push(
        &mut self,
        body: &[u8; BODY_BYTES],
        ring: &EventWriter,
        memory: u64,
    ) -> bool {
        let own = Backlog::bytes_for(ring.entries());
        let free = memory.saturating_sub(ring.held());
        let has_room = (self.0.len() as u64 + 1) * COST <= own.saturating_add(free);
        if has_room {
            self.0.push_back(Box::new(*body));
        }
        has_room
    }

    /// Writes to the ring what has room there.
    pub(super) fn move_to(&mut self, ring: &mut EventWriter, pool: &mut Pool) {
        while let Some(body) = self.0.front() {
            if !ring.push(body, pool, None) {
                return;
            }
            self.0.pop_front();
        }
        // It was for a bad time.
        self.0.shrink_to(64);
    }

    /// Gives up what waits; how many creations and terminations that were.
    pub(super) fn give_up(&mut self) -> (u64, u64) {
        let kinds = self.0.iter().map(|body| body[0]);
        let creations = kinds.filter(|&kind| kind == Kind::Created as u8).count() as u64;
        let all = self.0.len() as u64;
        self.0.clear();
        (creations, all - creations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(kind: Kind) -> [u8; BODY_BYTES] {
        [kind as u8; BODY_BYTES]
    }

    #[test]
    fn what_waits_is_bounded_by_the_memory() {
        let mut pool = Pool::new(1 << 20).unwrap();
        let mut ring = EventWriter::new(16).unwrap();
        let mut backlog = Backlog::default();
        assert_eq!(Backlog::bytes_for(16), 2 * COST);
        let fill = |backlog: &mut Backlog, ring: &EventWriter, memory| {
            (0..)
                .take_while(|_| backlog.push(&body(Kind::Created), ring, memory))
                .count()
        };
        assert_eq!(fill(&mut backlog, &ring, 0), 2);
        assert_eq!(backlog.borrowed(&ring), 0);
        assert_eq!(fill(&mut backlog, &ring, 3 * COST), 3);
        assert_eq!(backlog.borrowed(&ring), 3 * COST);
        // Chunks that wait take of the same.
        let area = pool.store(&[&[0; 4096]]).unwrap();
        assert!(ring.push(&[0; BODY_BYTES], &mut pool, Some(&area)));
        pool.release(area);
        assert_eq!(fill(&mut backlog, &ring, 4096 + 3 * COST), 0);
        assert_eq!(fill(&mut backlog, &ring, 4096 + 4 * COST), 1);
        backlog.move_to(&mut ring, &mut pool);
        assert!(backlog.is_empty());
        assert_eq!(ring.waiting(), 7);
        ring.close(&mut pool);
    }

    #[test]
    fn what_is_given_up_is_counted() {
        let mut pool = Pool::new(1 << 20).unwrap();
        let mut ring = EventWriter::new(2).unwrap();
        let mut backlog = Backlog::default();
        for kind in [
            Kind::Created,
            Kind::Created,
            Kind::Terminated,
            Kind::Created,
        ] {
            assert!(backlog.push(&body(kind), &ring, 1 << 20));
        }
        backlog.move_to(&mut ring, &mut pool);
        assert_eq!(ring.room(), 0);
        assert_eq!(backlog.give_up(), (1, 1));
        assert!(backlog.is_empty());
        ring.close(&mut pool);
    }
}
