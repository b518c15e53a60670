//! Frames that were not acknowledged yet, in bounded memory and, beyond that, in a bounded folder.
//!
//! Items are numbered from 0 in the order in which they were accepted; what is lost has numbers, too,
//! so that the other side sees exactly how many there were. No clock here.
//!
//! ```text
//!            acknowledged                         next
//!                 |   written     |  to be written  |
//!   items  ... 39 | 40 .. 51 | 52 .. 60 | 64 .. 70 |
//!                                        ^ 61 to 63 were lost: the spool was full
//! ```

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskPlace, Leftover};
use flowgauge_sys::notice::tell as notice;

/// What to do with items that come while the spool is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Wait for room: whoever sends is held up.
    Wait,
    /// Lose what waits longest and was not written yet.
    DropOldest,
    /// Lose what comes.
    DropNewest,
}

/// How the items of a sender fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Items that were given to it.
    pub accepted: u64,
    /// Items that the other side acknowledged.
    pub delivered: u64,
    /// Items that the spool had no room for.
    pub lost: u64,
    /// Items that wait in the spool, or on their way.
    pub pending: u64,
    /// Of those: items that a later process finds in the spool's folder. Counted at the end.
    pub kept: u64,
    /// Items that were written to a listener that then restarted without acknowledging them, and
    /// written again to the new one.
    pub rewritten: u64,
    /// Connections after the first.
    pub reconnections: u64,
}

/// A frame of items to write.
#[derive(Clone, Debug)]
pub(crate) struct Spooled {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) watermark: u64,
    pub(crate) payload: Arc<Vec<u8>>,
}

/// A frame that is kept.
#[derive(Debug)]
struct Kept {
    first: u64,
    count: u32,
    watermark: u64,
    payload: Payload,
    was_written: bool,
}

#[derive(Debug)]
enum Payload {
    Memory(Arc<Vec<u8>>),
    Disk(DiskPlace),
}

/// What a frame costs beside its payload.
const OVERHEAD: usize = size_of::<Kept>();

impl Kept {
    fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Kept,
    /// It, or others in its place.
    Lost,
}

#[derive(Debug, Default)]
pub(crate) struct Spool {
    frames: VecDeque<Kept>,
    /// How many of them were written on this connection.
    written: usize,
    /// Of frames in memory.
    bytes: usize,
    most_bytes: usize,
    disk: Option<Disk>,
    next: u64,
    acknowledged: u64,
    /// Dropped after they had been written on an earlier connection, or by a process that is gone: they
    /// may have arrived. The first, how many.
    unsure: Vec<(u64, u64)>,
    counts: SenderCounts,
}

impl Spool {
    pub(crate) fn new(most_bytes: usize, disk: Option<Disk>) -> Spool {
        Spool {
            most_bytes,
            disk,
            ..Spool::default()
        }
    }

    /// What a process has left that is gone.
    pub(crate) fn restored(leftover: Leftover) -> Spool {
        let mut spool = Spool::new(0, Some(leftover.disk));
        spool.next = leftover.accepted;
        spool.acknowledged = leftover.acknowledged;
        spool.counts.delivered = leftover.acknowledged;
        // What is not here it had in memory, or lost: what of it arrived the other side knows.
        let mut at = leftover.acknowledged;
        for frame in leftover.frames {
            if frame.first > at {
                spool.unsure.push((at, frame.first - at));
            }
            at = at.max(frame.end());
            spool.frames.push_back(Kept {
                first: frame.first,
                count: frame.count,
                watermark: frame.watermark,
                payload: Payload::Disk(frame.place),
                was_written: true,
            });
        }
        if leftover.accepted > at {
            spool.unsure.push((at, leftover.accepted - at));
        }
        spool
    }

    /// Writes what is in memory to the folder, as far as there is room. Returns how many items are
    /// there for a later process.
    pub(crate) fn keep(&mut self) -> u64 {
        let Some(disk) = &mut self.disk else {
            return 0;
        };
        let mut kept = 0;
        for frame in &mut self.frames {
            if let Payload::Memory(bytes) = &frame.payload {
                if !disk.has_room(bytes.len()) {
                    continue;
                }
                let place = disk.write(frame.first, frame.count, frame.watermark, bytes);
                let Ok(place) = place else {
                    continue;
                };
                self.bytes -= bytes.len() + OVERHEAD;
                frame.payload = Payload::Disk(place);
            }
            kept += u64::from(frame.count);
        }
        disk.note(self.next, self.acknowledged);
        self.counts.kept = kept;
        kept
    }

    /// Nothing is left to be sent.
    pub(crate) fn remove(&self) {
        if let Some(disk) = &self.disk {
            disk.remove();
        }
    }

    /// Keeps for a later process what items refer to.
    pub(crate) fn announce(&self, payload: &[u8]) {
        if let Some(disk) = &self.disk {
            disk.announce(payload);
        }
    }

    /// Where a later process finds what was kept.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.disk.as_ref().map(Disk::folder)
    }

    fn note(&self) {
        if let Some(disk) = &self.disk {
            disk.note(self.next, self.acknowledged);
        }
    }

    /// Whether a frame of so many bytes finds room as it is.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        self.has_memory(bytes) || self.disk.as_mut().is_some_and(|disk| disk.has_room(bytes))
    }

    fn has_memory(&self, bytes: usize) -> bool {
        self.bytes + bytes + OVERHEAD <= self.most_bytes
    }

    /// The largest frame there can be room for.
    pub(crate) fn most_bytes(&self) -> usize {
        let disk = self.disk.as_ref().map_or(0, Disk::most_bytes);
        self.most_bytes.saturating_sub(OVERHEAD).max(disk)
    }

    /// Memory while there is some, then the folder; `None`: neither has room.
    fn place(
        &mut self,
        payload: Vec<u8>,
        first: u64,
        count: u32,
        watermark: u64,
    ) -> Option<Payload> {
        if !self.has_memory(payload.len()) {
            let disk = self.disk.as_mut()?;
            if !disk.has_room(payload.len()) {
                return None;
            }
            if let Ok(place) = disk.write(first, count, watermark, &payload) {
                return Some(Payload::Disk(place));
            }
            // It was promised room: the memory has one frame too many then, and no more.
            if self.bytes > self.most_bytes {
                return None;
            }
        }
        self.bytes += payload.len() + OVERHEAD;
        Some(Payload::Memory(Arc::new(payload)))
    }

    /// The frame has gone.
    fn release(&mut self, payload: &Payload) {
        match payload {
            Payload::Memory(bytes) => self.bytes -= bytes.len() + OVERHEAD,
            Payload::Disk(place) => {
                if let Some(disk) = &mut self.disk {
                    disk.release(place);
                }
            }
        }
    }

    /// Takes a frame, or loses it or others where there is no room.
    pub(crate) fn push(
        &mut self,
        payload: Vec<u8>,
        count: u32,
        watermark: u64,
        when_full: WhenFull,
    ) -> Pushed {
        let first = self.next;
        self.next += u64::from(count);
        self.note();
        let mut result = Pushed::Kept;
        if when_full == WhenFull::DropOldest {
            while !self.has_room(payload.len()) && self.written < self.frames.len() {
                self.drop_oldest();
                result = Pushed::Lost;
            }
        }
        let Some(payload) = self.place(payload, first, count, watermark) else {
            self.counts.lost += u64::from(count);
            return Pushed::Lost;
        };
        self.frames.push_back(Kept {
            first,
            count,
            watermark,
            payload,
            was_written: false,
        });
        result
    }

    fn drop_oldest(&mut self) {
        let Some(frame) = self.frames.remove(self.written) else {
            return;
        };
        self.release(&frame.payload);
        if frame.was_written {
            self.unsure.push((frame.first, u64::from(frame.count)));
        } else {
            self.counts.lost += u64::from(frame.count);
        }
    }

    /// The next frame to write; it counts as written.
    pub(crate) fn next(&mut self) -> Option<Spooled> {
        loop {
            let frame = self.frames.get_mut(self.written)?;
            let payload = match &frame.payload {
                Payload::Memory(bytes) => Ok(bytes.clone()),
                Payload::Disk(place) => {
                    let disk = self.disk.as_ref()?;
                    disk.read(place).map(Arc::new)
                }
            };
            match payload {
                Ok(payload) => {
                    self.written += 1;
                    frame.was_written = true;
                    return Some(Spooled {
                        first: frame.first,
                        count: frame.count,
                        watermark: frame.watermark,
                        payload,
                    });
                }
                Err(error) => {
                    // What cannot be read is lost, as what there was no room for.
                    notice(format_args!("a frame in the spool cannot be read: {error}"));
                    self.drop_oldest();
                }
            }
        }
    }

    /// The other side has processed, or seen the loss of, all items before `expected`. False: it
    /// cannot have.
    pub(crate) fn acknowledge(&mut self, expected: u64) -> bool {
        if expected > self.next {
            return false;
        }
        while self.written > 0 {
            let Some(frame) = self.frames.front().filter(|frame| frame.end() <= expected) else {
                break;
            };
            self.counts.delivered += u64::from(frame.count);
            self.written -= 1;
            if let Some(frame) = self.frames.pop_front() {
                self.release(&frame.payload);
            }
        }
        if expected > self.acknowledged {
            self.acknowledged = expected;
            self.note();
        }
        true
    }

    /// Of what was acknowledged so many items were not taken, and are lost.
    pub(crate) fn refuse(&mut self, items: u64) {
        self.counts.delivered -= items;
        self.counts.lost += items;
    }

    /// Whether nothing waits of the items before `total`.
    pub(crate) fn is_settled(&self, total: u64) -> bool {
        self.frames.front().is_none_or(|frame| frame.first >= total)
    }

    /// There is a new connection, to a listener that expects this item, or that does not know the
    /// session: what was not acknowledged is to be written again. False: it cannot expect that.
    pub(crate) fn resume(&mut self, expected: Option<u64>) -> bool {
        if expected.is_some_and(|expected| expected > self.next) {
            return false;
        }
        for (first, count) in core::mem::take(&mut self.unsure) {
            let arrived = expected.map_or(0, |expected| expected.saturating_sub(first).min(count));
            self.counts.delivered += arrived;
            self.counts.lost += count - arrived;
        }
        self.written = self
            .frames
            .iter()
            .take_while(|frame| frame.was_written)
            .count();
        match expected {
            Some(expected) => {
                self.acknowledge(expected);
            }
            None => {
                let again = self.frames.iter().take(self.written);
                let items: u64 = again.map(|frame| u64::from(frame.count)).sum();
                self.counts.rewritten += items;
            }
        }
        self.written = 0;
        // What is still here has not arrived, or not at who listens now.
        for frame in &mut self.frames {
            frame.was_written = false;
        }
        true
    }

    /// The connection is gone: all frames are to be written again.
    pub(crate) fn interrupt(&mut self) {
        self.written = 0;
    }

    /// All items before this one are acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many items there were, lost ones counted.
    pub(crate) fn total(&self) -> u64 {
        self.next
    }

    pub(crate) fn counts(&self) -> SenderCounts {
        let SenderCounts {
            delivered, lost, ..
        } = self.counts;
        SenderCounts {
            accepted: self.next,
            pending: self.next - delivered - lost,
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spool(frames: usize) -> Spool {
        Spool::new(frames * (10 + OVERHEAD), None)
    }

    fn push(spool: &mut Spool, when_full: WhenFull) -> Pushed {
        let payload = payload(spool.total());
        spool.push(payload, 3, 0, when_full)
    }

    fn payload(first: u64) -> Vec<u8> {
        vec![first as u8; 10]
    }

    #[test]
    fn the_newest_are_lost_with_their_numbers() {
        let mut spool = spool(2);
        for expected in [Pushed::Kept, Pushed::Kept, Pushed::Lost] {
            assert_eq!(push(&mut spool, WhenFull::DropNewest), expected);
        }
        assert_eq!(spool.next().unwrap().first, 0);
        assert!(spool.acknowledge(3));
        assert_eq!(push(&mut spool, WhenFull::DropNewest), Pushed::Kept);
        assert_eq!(spool.next().unwrap().first, 3);
        assert_eq!(spool.next().unwrap().first, 9);
        assert!(spool.acknowledge(12));
        let counts = spool.counts();
        let expected = SenderCounts {
            accepted: 12,
            delivered: 9,
            lost: 3,
            ..SenderCounts::default()
        };
        assert_eq!(counts, expected);
        assert!(!spool.acknowledge(13));
    }

    #[test]
    fn what_was_dropped_may_have_arrived_before_the_connection_broke() {
        let mut spool = spool(2);
        push(&mut spool, WhenFull::DropOldest);
        push(&mut spool, WhenFull::DropOldest);
        spool.next();
        spool.next();
        spool.interrupt();
        push(&mut spool, WhenFull::DropOldest);
        push(&mut spool, WhenFull::DropOldest);
        assert_eq!(spool.counts().pending, 12);
        // Of the two that were dropped the first had arrived.
        assert!(spool.resume(Some(3)));
        let counts = spool.counts();
        assert_eq!((counts.delivered, counts.lost, counts.pending), (3, 3, 6));
        assert_eq!(spool.next().unwrap().first, 6);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push,
        Write,
        /// The listener takes the next that was written.
        Take,
        Acknowledge,
        Break,
        /// The listener restarts and knows nothing.
        Restart,
        /// The sender is killed, and another process takes what is on disk.
        Die,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Push),
            4 => Just(Step::Write),
            4 => Just(Step::Take),
            3 => Just(Step::Acknowledge),
            1 => Just(Step::Break),
            1 => Just(Step::Restart),
            1 => Just(Step::Die),
        ];
        proptest::collection::vec(step, 0..200)
    }

    /// Does as `listener.rs` does.
    #[derive(Default)]
    struct Listener {
        before: u64,
        expected: u64,
        received: u64,
        lost: u64,
    }

    impl Listener {
        fn take(&mut self, frame: &Spooled) {
            assert_eq!(*frame.payload, payload(frame.first));
            assert!(frame.first >= self.expected, "twice");
            self.lost += frame.first - self.expected;
            self.received += u64::from(frame.count);
            self.expected = frame.first + u64::from(frame.count);
        }
    }

    proptest! {
        /// Nothing comes twice to the same listener, and all is delivered or lost, on both sides
        /// alike.
        #[test]
        fn sent_is_received_and_lost(
            steps in steps(),
            newest in any::<bool>(),
            with_disk in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let disk = || Disk::create(folder.path(), "x", [1; 16], "a:1", 3 * 4096).unwrap();
            let policy = if newest { WhenFull::DropNewest } else { WhenFull::DropOldest };
            let mut spool = Spool {
                disk: with_disk.then(disk),
                ..spool(2)
            };
            let mut wire: VecDeque<Spooled> = VecDeque::new();
            let mut listener = Listener::default();
            let mut has_died = false;
            for step in steps {
                match step {
                    Step::Push => {
                        push(&mut spool, policy);
                    }
                    Step::Write => wire.extend(spool.next()),
                    Step::Take => {
                        if let Some(frame) = wire.pop_front() {
                            listener.take(&frame);
                        }
                    }
                    Step::Acknowledge => prop_assert!(spool.acknowledge(listener.expected)),
                    Step::Break => {
                        wire.clear();
                        spool.interrupt();
                        prop_assert!(spool.resume(Some(listener.expected)));
                    }
                    Step::Restart => {
                        wire.clear();
                        spool.interrupt();
                        listener = Listener {
                            before: spool.acknowledged(),
                            expected: spool.acknowledged(),
                            ..Listener::default()
                        };
                        prop_assert!(spool.resume(None));
                    }
                    Step::Die if with_disk => {
                        wire.clear();
                        let total = spool.total();
                        drop(spool);
                        let mut found = Disk::leftovers(folder.path(), "x", "a:1");
                        spool = Spool::restored(found.remove(0));
                        prop_assert_eq!(spool.total(), total);
                        prop_assert!(spool.resume(Some(listener.expected)));
                        has_died = true;
                    }
                    Step::Die => {}
                }
            }
            wire.iter().for_each(|frame| listener.take(frame));
            while let Some(frame) = spool.next() {
                listener.take(&frame);
            }
            let total = spool.total();
            listener.lost += total - listener.expected;
            prop_assert_eq!(listener.before + listener.received + listener.lost, total);
            prop_assert!(spool.acknowledge(total));
            let counts = spool.counts();
            prop_assert_eq!(counts.pending, 0);
            prop_assert_eq!(counts.delivered + counts.lost, counts.accepted);
            if listener.before == 0 && counts.rewritten == 0 && !has_died {
                prop_assert_eq!(counts.lost, listener.lost);
            }
        }
    }
}
