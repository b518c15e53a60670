//! Streams as their segments come.

use flowgauge_record::StreamRow;
use flowgauge_record::totals::TotalsRow;
use flowgauge_stack::engine::Feed;
use flowgauge_stack::{Items, RecordItem};
use flowgauge_stream::{Chunk, Handler, Stream};
use flowgauge_sys::tally::byte_sum;
use flowgauge_wire::Nanos;
use sha2::{Digest, Sha256};

use super::{Wanted, Ways, slot};

/// Records that go on together at most.
const TOGETHER: usize = 32;

/// Gives a record for every direction or hole, and the bytes to files where asked for.
#[derive(Clone)]
pub(super) struct Segments {
    wanted: Wanted,
    /// By [`Stream::id`].
    hashes: Vec<Option<Sha256>>,
    /// Streams that ended.
    ended: u64,
    /// Records that go on together: one by one they cost as much again as they cost to write.
    rows: Vec<StreamRow<'static>>,
}

impl Segments {
    pub(super) fn new(wanted: Wanted) -> Segments {
        Segments {
            wanted,
            hashes: Vec::new(),
            ended: 0,
            rows: Vec::new(),
        }
    }

    pub(super) fn totals(&self) -> TotalsRow {
        TotalsRow {
            streams: self.ended,
            ..TotalsRow::default()
        }
    }

    pub(super) fn take(&mut self, feed: Feed<'_, '_>, now: Nanos, ways: Ways<'_>) {
        let state = self;
        feed.to(&mut Give { state, ways, now });
    }

    /// Gives what waits.
    pub(super) fn done(&mut self, now: Nanos, ways: Ways<'_>) {
        let state = self;
        Give { state, ways, now }.rows();
    }
}

/// The state, and the ways out of it.
struct Give<'a, 'b> {
    state: &'a mut Segments,
    ways: Ways<'b>,
    now: Nanos,
}

impl Handler for Give<'_, '_> {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_created(&mut self, stream: &Stream<'_>) {
        if self.state.wanted.hashes {
            *slot(&mut self.state.hashes, stream.id) = Some(Sha256::new());
        }
        if let Some(files) = self.ways.files {
            files.created(stream.id);
        }
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let wanted = self.state.wanted;
        if wanted.gaps && chunk.gap_before > 0 {
            self.gap(stream, chunk.offset - chunk.gap_before, chunk.gap_before);
        }
        if wanted.hashes
            && let Some(Some(hash)) = self.state.hashes.get_mut(stream.id as usize)
        {
            hash.update(chunk.bytes);
        }
        if let Some(files) = self.ways.files {
            files.data(stream, chunk);
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let wanted = self.state.wanted;
        self.state.ended += 1;
        if let Some(files) = self.ways.files {
            files.terminated(stream.id);
        }
        if wanted.gaps && trailing_gap > 0 {
            self.gap(stream, stream.bytes + stream.missing_bytes, trailing_gap);
        }
        if !wanted.streams {
            return;
        }
        let mut row = StreamRow::new(stream, trailing_gap, None);
        row.with_gaps = wanted.gaps;
        if !wanted.hashes {
            self.state.rows.push(row);
            if self.state.rows.len() == TOGETHER {
                self.rows();
            }
            return;
        }
        let hash = slot(&mut self.state.hashes, stream.id).take();
        self.ways.hashed(self.now, row, hash);
    }
}

impl Give<'_, '_> {
    /// Gives what waits.
    fn rows(&mut self) {
        let rows = &mut self.state.rows;
        let mut all = rows.iter();
        if let Some(first) = all.next() {
            let item = |record| RecordItem {
                key: 0,
                time: self.now,
                record,
            };
            let mut items = [item(first); TOGETHER];
            for (place, row) in items.iter_mut().skip(1).zip(all) {
                *place = item(row);
            }
            let items = items.get(..rows.len()).unwrap_or_default();
            self.ways.out.emit(Items::Records(items));
            rows.clear();
        }
    }

    #[cold]
    fn gap(&mut self, stream: &Stream<'_>, offset: u64, size: u64) {
        self.rows();
        let (wanted, identity) = (self.state.wanted, stream.identity());
        self.ways.gap(wanted, self.now, identity, (offset, size));
    }
}

/// Counts streams and reads all bytes.
#[derive(Default)]
pub(super) struct Sums(pub(super) TotalsRow);

impl Handler for Sums {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_created(&mut self, _stream: &Stream<'_>) {
        self.0.streams += 1;
    }

    #[inline]
    fn stream_data(&mut self, _stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.0.bytes += chunk.bytes.len() as u64;
        self.0.checksum = self.0.checksum.wrapping_add(byte_sum(chunk.bytes));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.0.missing_bytes += stream.missing_bytes + trailing_gap;
        self.0.gaps += u64::from(stream.gaps) + u64::from(trailing_gap > 0);
        self.0.empty_streams += u64::from(stream.bytes == 0);
    }
}
