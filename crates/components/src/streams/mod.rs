//! `streams`: TCP streams put in order, and UDP's, as records, hashes, files or totals.

mod chunks;
mod files;
mod segments;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use flowgauge_kit::engine;
use flowgauge_record::stream::{GAP_SCHEMA, GapRow, schema_of_streams};
use flowgauge_record::text::write_hex_bytes;
use flowgauge_record::totals::{TOTALS_SCHEMA, TotalsRow};
use flowgauge_record::{AnyRecord, Schema, StreamRow};
use flowgauge_stack::engine::{Feed, Required, Step};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, ItemType, Items, Outlet, Output, Parallel,
    RecordItem, ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_stream::engine::Budget;
use flowgauge_stream::offload::Verdicts;
use flowgauge_stream::{Chunk, Needs, Shard, Shares, Stream, StreamIdentity};
use flowgauge_wire::Nanos;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::chunked;
use chunks::Chunks;
use files::StreamFiles;
use segments::{Segments, Sums};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "streams",
    summary: "reassembles streams, with a record of each direction when it ends",
    help: "The records are those of the command streams: bytes, gaps, end state, hash; with `gaps` also a record per \
       gap; with `count` one record of totals. With `out`, bytes go to a file per direction, named as by tcpflow. The \
       options from `mode` on deliver streams in chunks, \
           with cutoffs, priorities and one memory budget. It reassembles fragments and verifies checksums \
           itself.",
    output: Output::Of(ItemType::Record),
    fields: |settings| Some(Wanted::of(settings).schema()),
    is_end: true,
    outside: Some("it has one table of all streams"),
    options: Options::ALL,
    result: Some(ResultInfo::number("streams that ended", "streams")),
    parallel: Parallel::ByFlow,
    decodes: |_| true,
    engine: Some(required),
    effects,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    list: Flag = "yes", "write a record per direction";
    gaps: Flag = "no", "write a record per gap, with offset and size";
    hash: Flag = "no", "add the SHA-256 of the delivered bytes to each record";
    count: Flag = "no", "read every delivered byte and write totals only";
    out: OutputFolder, "write the bytes of each direction to a file in this folder, named as by tcpflow";
    fill_gaps: Flag = "no", "fill gaps in the files with zeros, so that file offsets are stream offsets";
    [engine::CHECKSUMS, engine::VLAN_AWARE, engine::OVERLAP_POLICY, engine::MEMORY, engine::MAX_FLOWS, engine::TCP_IDLE, engine::UDP_IDLE, engine::OTHER_IDLE, chunked::MODE, chunked::HOST_POLICY, chunked::CUTOFF, chunked::CUTOFF_CLIENT, chunked::CUTOFF_SERVER, chunked::CUTOFF_CLASS, chunked::PRIORITY, chunked::CHUNK, chunked::OVERLAP, chunked::FLUSH_TIMEOUT, chunked::BASE_THRESHOLD, chunked::OVERLOAD_CUTOFF, chunks::COUNTERS];
}

/// Which records are asked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    streams: bool,
    gaps: bool,
    hashes: bool,
    counters: bool,
    totals: bool,
}

impl Wanted {
    fn of(settings: &Settings) -> Wanted {
        let options = Options::read(settings);
        Wanted {
            streams: options.list,
            gaps: options.gaps,
            hashes: options.hash,
            counters: settings.flag("counters"),
            totals: options.count,
        }
    }

    fn schema(self) -> Schema {
        match (self.totals, self.streams) {
            (true, _) => TOTALS_SCHEMA,
            (false, true) => schema_of_streams(self.gaps, self.counters, self.hashes),
            (false, false) => GAP_SCHEMA,
        }
    }
}

/// What all copies of the component have in common.
struct Shared {
    files: OnceLock<Result<StreamFiles, Failure>>,
    /// Of those that have finished, and how many have not.
    totals: Mutex<(TotalsRow, usize)>,
    /// For chunks.
    budget: Budget,
}

/// Where the files go.
struct Folder {
    path: String,
    fill_gaps: bool,
    memory: Option<u64>,
}

struct Streams {
    kind: Kind,
    shared: Arc<Shared>,
    folder: Option<Folder>,
    files: Option<FileWriter>,
    /// All copies have finished, or this one has told that files cannot be written.
    is_last: bool,
    wants_totals: bool,
    flush_timeout: Option<Nanos>,
    /// Where the step at hand brings the clock.
    now: Nanos,
}

/// How streams are put in order.
enum Kind {
    /// Segments as they come.
    Segments(Segments),
    /// The same, where nothing but totals is wanted.
    Totals(Sums),
    /// In chunks.
    Chunks(Box<Chunks>),
}

fn needs(settings: &Settings) -> Needs {
    let options = Options::read(settings);
    let has_files = options.out.is_some();
    let in_chunks = match chunks::are_wanted(settings) {
        true => chunks::bytes_per_connection(settings),
        false => 0,
    };
    Needs {
        streams: true,
        per_flow: 2 * size_of::<Option<Sha256>>() as u64 * u64::from(options.hash)
            + files::BYTES_PER_CONNECTION * u64::from(has_files)
            + in_chunks,
        results: has_files,
    }
}

/// Files; and totals and chunks are of a stack alone, as a copy of them cannot go on.
fn effects(settings: &Settings) -> bool {
    let options = Options::read(settings);
    options.out.is_some() || options.count || chunks::are_wanted(settings)
}

fn required(settings: &Settings) -> Result<Option<Required>, SettingError> {
    match chunks::are_wanted(settings) {
        true => Ok(None),
        false => engine::required(settings, needs(settings)),
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let wanted = Wanted::of(settings);
    refuse_contradictions(settings, wanted)?;
    let needs = needs(settings);
    let memory = settings.size("memory");
    let folder = options.out.map(|path| Folder {
        path: path.to_owned(),
        fill_gaps: options.fill_gaps,
        memory: memory.map(|bytes| Shares::of_results(bytes, needs)),
    });
    let shared = settings.shared(|| {
        Ok(Shared {
            files: OnceLock::new(),
            totals: Mutex::new((TotalsRow::default(), settings.copies())),
            budget: chunked::budget(settings, needs),
        })
    })?;
    let kind = if chunks::are_wanted(settings) {
        let config = engine::configuration(settings, needs)?;
        let chunks = Chunks::new(settings, config, wanted, &shared.budget)?;
        Kind::Chunks(Box::new(chunks))
    } else if wanted.totals && folder.is_none() {
        Kind::Totals(Sums::default())
    } else {
        Kind::Segments(Segments::new(wanted))
    };
    Ok(Box::new(Streams {
        kind,
        shared,
        folder,
        files: None,
        is_last: false,
        wants_totals: wanted.totals,
        flush_timeout: settings.duration("flush_timeout").map(Nanos),
        now: Nanos(0),
    }))
}

fn refuse_contradictions(settings: &Settings, wanted: Wanted) -> Result<(), SettingError> {
    let options = Options::read(settings);
    let has_files = options.out.is_some();
    if options.fill_gaps && !has_files {
        return Err(SettingError::of("fill_gaps", "has no meaning without out"));
    }
    if wanted.totals && (wanted.gaps || wanted.hashes || has_files) {
        return Err(SettingError::of(
            "count",
            "gives totals instead of gaps, hashes and files",
        ));
    }
    if wanted.counters && (wanted.totals || wanted.gaps) {
        return Err(SettingError::of(
            "counters",
            "are of each stream, and do not go with gaps or count",
        ));
    }
    Ok(())
}

/// Where what comes of streams goes.
struct Ways<'a> {
    files: &'a mut Option<FileWriter>,
    out: &'a mut dyn Outlet,
}

impl Ways<'_> {
    /// Gives a record of a hole, where that is wanted.
    fn gap(
        &mut self,
        wanted: Wanted,
        now: Nanos,
        identity: StreamIdentity,
        (offset, size): (u64, u64),
    ) {
        if wanted.gaps {
            let row = GapRow {
                identity,
                offset,
                size,
                with_streams: wanted.streams,
                with_hashes: wanted.hashes,
            };
            give(self.out, now, &row);
        }
    }

    /// Gives the record of a stream that has ended, with the hash of its bytes.
    fn hashed(&mut self, now: Nanos, row: StreamRow<'_>, hash: Option<Sha256>) {
        let mut text = Vec::with_capacity(64);
        write_hex_bytes(&mut text, &hash.unwrap_or_default().finalize());
        let row = StreamRow {
            sha256: Some(core::str::from_utf8(&text).unwrap_or("")),
            ..row
        };
        give(self.out, now, &row);
    }
}

/// Gives a record to what follows.
fn give(out: &mut dyn Outlet, time: Nanos, record: &dyn AnyRecord) {
    out.emit(Items::Records(&[RecordItem {
        key: 0,
        time,
        record,
    }]));
}

impl Streams {
    fn totals(&self) -> TotalsRow {
        match &self.kind {
            Kind::Segments(segments) => segments.totals(),
            Kind::Totals(totals) => totals.0,
            Kind::Chunks(chunks) => chunks.totals(),
        }
    }

    /// Ends the stack if the files cannot be written.
    fn check_files(&mut self, out: &mut dyn Outlet) {
        if let Some(files) = &self.files
            && let Some(failure) = files.files.failure()
        {
            self.is_last = true;
            out.fail(failure);
        }
    }
}

impl Component for Streams {
    fn set_offload(&mut self, verdicts: &Verdicts) -> bool {
        let Kind::Chunks(chunks) = &mut self.kind else {
            return false;
        };
        chunks.set_offload(verdicts);
        true
    }

    fn fork(&self) -> Option<Box<dyn Component>> {
        // Files and totals are of all copies together, and chunks have an engine.
        let Kind::Segments(segments) = &self.kind else {
            return None;
        };
        let is_alone = !self.wants_totals && self.folder.is_none();
        is_alone.then(|| {
            Box::new(Streams {
                kind: Kind::Segments(segments.clone()),
                shared: Arc::clone(&self.shared),
                folder: None,
                files: None,
                ..*self
            }) as _
        })
    }

    fn start(&mut self) -> Result<(), Failure> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let files = self.shared.files.get_or_init(|| {
            StreamFiles::create(Path::new(&folder.path), folder.fill_gaps, folder.memory)
        });
        let files = FileWriter::new(files.clone()?);
        if let Kind::Chunks(chunks) = &mut self.kind {
            chunks.write_to(FileWriter::new(files.files.clone()));
        }
        self.files = Some(files);
        Ok(())
    }

    fn interval(&self) -> Option<Nanos> {
        self.flush_timeout
    }

    fn begin_step(&mut self, step: &Step<'_, '_>, clock: Nanos) {
        self.now = step.time(match &self.kind {
            Kind::Chunks(chunks) => chunks.clock(),
            _ => clock,
        });
    }

    fn take(&mut self, feed: Feed<'_, '_>, out: &mut dyn Outlet) {
        match (&mut self.kind, feed) {
            (Kind::Segments(segments), feed) => {
                let files = &mut self.files;
                segments.take(feed, self.now, Ways { files, out });
            }
            (Kind::Totals(totals), feed) => feed.to(totals),
            (Kind::Chunks(chunks), Feed::Step(_, step)) => chunks.take(&step, self.now, out),
            (Kind::Chunks(_), _) => {}
        }
    }

    fn end_step(&mut self, step: &Step<'_, '_>, _: Option<&Shard>, out: &mut dyn Outlet) {
        if let Kind::Segments(segments) = &mut self.kind {
            let files = &mut self.files;
            segments.done(self.now, Ways { files, out });
        }
        if !matches!(step, Step::Tick(_)) {
            self.check_files(out);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let mine = self.totals();
        let total = {
            let mut totals = self.shared.totals.lock();
            totals.0.merge(&mine);
            totals.1 = totals.1.saturating_sub(1);
            self.is_last |= totals.1 == 0 && self.files.as_ref().is_some_and(FileWriter::is_sound);
            (totals.1 == 0).then_some(totals.0)
        };
        if let Some(total) = total.filter(|_| self.wants_totals) {
            give(out, self.now, &total);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.totals().streams))
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = match &self.kind {
            Kind::Chunks(chunks) => chunks.account(),
            _ => Account::default(),
        };
        // Of several copies the last one knows what all have written.
        if let Some(files) = self.files.as_ref().filter(|_| self.is_last) {
            account.summary.push(files.files.summary());
        }
        Some(Box::new(account))
    }
}

/// The place for stream `id` in a column that grows as ids do (they are dense).
fn slot<T: Default>(column: &mut Vec<T>, id: u32) -> &mut T {
    let index = id as usize;
    if index >= column.len() {
        column.resize_with(index + 1, T::default);
    }
    &mut column[index]
}

/// Writes the bytes of every direction to its file.
struct FileWriter {
    files: StreamFiles,
    /// Numbers of files by [`Stream::id`], plus one; 0 while a direction has no bytes.
    numbers: Vec<u32>,
}

impl FileWriter {
    fn new(files: StreamFiles) -> FileWriter {
        FileWriter {
            files,
            numbers: Vec::new(),
        }
    }

    /// Whether all could be written so far.
    fn is_sound(&self) -> bool {
        self.files.is_sound()
    }

    fn created(&mut self, id: u32) {
        *slot(&mut self.numbers, id) = 0;
    }

    fn data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let number = slot(&mut self.numbers, stream.id);
        self.files.write(number, stream, chunk);
    }

    fn terminated(&mut self, id: u32) {
        let number = core::mem::take(slot(&mut self.numbers, id));
        self.files.close(number);
    }
}
