//! Where mode STRICT stops.

use flowgauge_wire::Place;

use super::assemble::Run;
use super::config::Mode;
use super::core::Core;
use super::record::{RecordFlags, ViewAt, ViewFlags};
use super::stream_ref::StreamErrors;
use crate::handler::Stream;

impl Core {
    /// Whether STRICT has bytes of this stream delivered.
    pub(super) fn strictly_goes_on(
        &mut self,
        stream: &Stream<'_>,
        offset: u64,
        gap_before: u64,
    ) -> bool {
        if gap_before != 0 {
            return false;
        }
        let Some(record) = self.records.get_mut(stream.id) else {
            return false;
        };
        let known = RecordFlags::DATAGRAMS | RecordFlags::ESTABLISHED;
        if !record.flags.has(known) {
            if !stream.is_handshake_complete() {
                // A server that knows the client takes the data on its SYN, and may answer at once.
                return record.flags.has(RecordFlags::SYN_DATA_TAKEN)
                    || record.flags.has(RecordFlags::SYN_DATA) && offset == 0;
            }
            record.flags.set(RecordFlags::ESTABLISHED);
        }
        true
    }

    /// Mode STRICT stops before a run for those of these views that are still in it.
    pub(super) fn halt(&mut self, record: u32, views: u32, run: &Run<'_>) {
        let gap = run.gap_before;
        let mut halted = false;
        let mut next = self.next_of(views, Some(ViewAt::first(record)));
        while let Some(at) = next {
            next = self.next_of(views, self.next_view(at));
            if self.mode_of(at) == Mode::Strict
                && let Some(view) = self.view_mut(at)
                && !view.flags.has(ViewFlags::OVER)
            {
                view.flags.set(ViewFlags::OVER | ViewFlags::HALTED);
                halted = true;
                self.leave_chunk(at);
                self.discard_run(at, run, Place::Strict);
                self.note_missing(at, run.offset, gap);
            }
        }
        if halted && gap == 0 {
            self.note_error(record, StreamErrors::INCOMPLETE_HANDSHAKE);
        }
        self.note_views(record);
    }
}
