//! Workers with their own sources: the rings of an interface, to which the kernel distributes flows, or files that all
//! of them read, each for the packets of its flows.
//!
//! Reading a mapped file on every core costs less than passing what one thread has read: a packet's bytes are then
//! where they are processed.

use std::sync::Arc;

use flowgauge_capture::{Error, PacketSource};
use flowgauge_wire::DecodeOptions;

use super::made::name_of;
use super::{Kind, Lane, Order, Pace, Reader, Reading, Runner, SourceReport, Step, Waiting, Work};
use crate::stacks::lane::ends_group;

/// What the calling thread knows of those who read beside it.
#[derive(Default)]
pub(super) struct Apart {
    pub(super) pace: Arc<Pace>,
    /// Batches that it has taken itself.
    pub(super) read: u64,
    /// There is nothing more to be taken.
    pub(super) is_at_end: bool,
}

impl Runner {
    /// Whether each worker can read its own source: all stacks that need packets can run on several cores.
    pub fn can_fan_out(&self) -> bool {
        let mut works = self.waiting.iter().map(|waiting| &waiting.work);
        let is_shared = |work: &Work| match work {
            Work::Lane(lane) => lane.worker.is_some(),
            _ => true,
        };
        (self.inline.parts.is_empty() || self.inline.worker.is_some())
            && self.apart() > 0
            && works.all(is_shared)
    }

    /// Gives each worker its own source, instead of [`Runner::step`]. If there are fewer sources than workers, some
    /// workers have none. Both directions of a flow must be in the same source.
    pub fn fan_out(&mut self, sources: Vec<Box<dyn PacketSource + Send>>) {
        for (worker, source) in sources.into_iter().enumerate() {
            let name = name_of(worker);
            let at = self.waiting.iter().position(|other| other.name == name);
            let at = at.unwrap_or_else(|| {
                let mut lane = Lane::new(Some(worker), self.inline.now);
                if self.inline.worker == Some(worker) {
                    self.inline.worker = None;
                    lane.parts = core::mem::take(&mut self.inline.parts);
                }
                self.starts_later(Waiting::new(name, Kind::OfPackets, Work::Lane(lane)));
                self.waiting.len() - 1
            });
            let work = &mut self.waiting[at].work;
            let Some(lane) = work.lane() else {
                continue;
            };
            let rest = Lane::new(None, lane.now);
            let lane = core::mem::replace(lane, rest);
            let reading = Arc::new(Reading::new(self.lasts));
            self.readings.push(Arc::clone(&reading));
            let reader = Box::new(Reader::new(DecodeOptions::default()));
            *work = Work::Own(lane, source, reader, reading);
        }
        for waiting in &mut self.waiting {
            if let Work::Behind(_, entries, order) = &mut waiting.work
                && entries.len() > 1
            {
                *order = Order::AsItComes;
            }
        }
        self.prepare();
    }

    /// Whether workers have sources of their own.
    pub(super) fn fans_out(&self) -> bool {
        !self.readings.is_empty()
    }

    /// Whether a worker is still reading its own source.
    pub fn is_reading(&self) -> bool {
        self.readings.iter().any(|reading| !reading.is_over())
    }

    /// Status of the sources that workers read. Errors are returned once.
    pub fn sources(&self) -> SourceReport {
        let mut report = SourceReport::default();
        self.readings
            .iter()
            .for_each(|reading| reading.tell(&mut report));
        report
    }

    /// Number of sources for [`Runner::read_apart`]: one per thread other than the calling one.
    pub fn apart(&self) -> usize {
        let is_lane = |work: &Work| matches!(work, Work::Lane(..));
        let works = self.waiting.iter().map(|waiting| &waiting.work);
        works.filter(|work| is_lane(work)).count()
    }

    /// Gives each thread that processes packets its own source, with the same batches as that of [`Runner::step`]. Call
    /// it before the first batch. The ledger and notes are those of the calling thread's source.
    pub fn read_apart(&mut self, sources: Vec<Box<dyn PacketSource + Send>>) {
        if sources.len() != self.apart() || sources.is_empty() {
            return;
        }
        let mut sources = sources.into_iter();
        for waiting in &mut self.waiting {
            let Work::Lane(lane) = &mut waiting.work else {
                continue;
            };
            let rest = Lane::new(lane.worker, lane.now);
            let lane = core::mem::replace(lane, rest);
            if let Some(source) = sources.next() {
                waiting.work = Work::Apart(lane, source, Box::new(self.pool.reader.twin()));
            }
        }
        self.apart = Some(Apart::default());
    }

    /// Processes the batches to which other threads have already been admitted. Call it when no more is to be read, so
    /// that all threads have processed the same packets. Returns the same as [`Runner::step`], and `None` when all
    /// threads have.
    ///
    /// # Errors
    /// As [`Runner::step`].
    pub fn settle<S: PacketSource + ?Sized>(
        &mut self,
        source: &mut S,
    ) -> Result<Option<Step>, Error> {
        match &self.apart {
            Some(apart) if apart.pace.is_committed(apart.read) => self.take_apart(source),
            _ => Ok(None),
        }
    }

    /// [`Runner::step`] where all read apart.
    pub(super) fn step_apart<S: PacketSource + ?Sized>(
        &mut self,
        source: &mut S,
    ) -> Result<Option<Step>, Error> {
        if let Some(apart) = &self.apart {
            apart.pace.goes_on(apart.read);
        }
        self.take_apart(source)
    }

    fn take_apart<S: PacketSource + ?Sized>(
        &mut self,
        source: &mut S,
    ) -> Result<Option<Step>, Error> {
        let read = self.apart.as_ref().map_or(0, |apart| apart.read);
        let reader = &mut self.pool.reader;
        let Some(shared) = reader.shared(source, ends_group(read))? else {
            if let Some(apart) = &mut self.apart {
                apart.is_at_end = true;
            }
            return Ok(None);
        };
        self.inline.shared(&shared);
        self.inline.relieve();
        if let Some(apart) = &mut self.apart {
            apart.read += 1;
        }
        Ok(Some(shared.step))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.pace.end();
    }
}
