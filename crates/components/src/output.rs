//! `output`: writes what comes, or sends it to another machine, and lets it through.

mod named;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flowgauge_capture::sink::{Rotation, Rotator, Turn};
use flowgauge_capture::{FileFormat, FileSink, Interface, PacketSink, SinkOptions};
use flowgauge_kit::file_name::Name;
use flowgauge_kit::terminal;
use flowgauge_kit::writing::{Stop, account, begun, stop};
use flowgauge_record::schema::kept;
use flowgauge_record::{
    Format, Output, OutputError, RecordWriter, Schema, Screen, WholeWrites, WriterThread,
};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, Input, ItemType, Items, OptionInfo, Outlet,
    Packets, Parallel, Port, RecordItem, ResultInfo, ResultValue, SettingError, Settings,
    StreamChunk, options,
};
use flowgauge_sys::files::{self, How};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

use self::named::Named;
use crate::network::{self, kafka, send};
use crate::record_fields::{check, read_names};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "output",
    aliases: &["to_file"],
    summary: "writes items to a file, or sends them, and passes them on",
    help: "Packets are written as a capture file, in pcapng if the name ends in .pcapng, else in pcap; .gz and \
           .zst compress. Chunks of streams are written one after the other. Records are written as JSON \
           lines, or as CSV if the name ends in .csv.\n\n  strftime fields in the name (%Y) are filled in with the \
           time of the first item. Inside a demultiplexer each instance has its own file if names \
           differ by it: %{key} is its key, %{number} counts instances from 1; instances with the same name \
           share a file. static file = ... is replaced once, for all of them. 128 of these files are open at \
           once, and others are opened again when needed; files of an earlier run are overwritten.\n\n  With \
           \"to\" it sends items to an input on another machine: docs/links.md; with \"kafka\" records to a topic, \
           for any number of inputs: docs/kafka.md.",
    input: Input::Any,
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("items written", "items")),
    parallel: Parallel::Never("it writes one file"),
    effects: |_| true,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    file: OutputFile = "-",
        "where to write; - is standard output; may contain strftime fields, %{key} and %{number}";
    format: Choice("json", "csv", "csv_safe", "table"),
        "format of records (csv_safe: no cell is a formula to a spreadsheet); default: by file name. With kafka: \
         json, one message each, for other programs";
    color: Choice("auto", "always", "never") = "auto",
        "colours of a table on standard output; auto: on a terminal, unless NO_COLOR is set";
    page: Flag = "no", "on a terminal, a table replaces the one of the interval before, as aggregate gives them";
    fields: Text, "only these fields of records, such as \"time, src_ip, uri\", in the order of the record";
    packets: Integer(1, i64::MAX) as u64, "write at most this many packets; all are passed on";
    rotate_size: Size, "start a new file when this one would become larger";
    rotate_time: Duration as u64,
        "start a new file at this interval, on the capture clock; the name is a strftime format";
    rotate_files: Integer(1, 1_000_000) as u32,
        "number of files; with rotate_size the oldest is overwritten, with rotate_time the stack ends after them";
    [send::TO, send::PEER, send::SPOOL, send::SPOOL_FOLDER, send::SPOOL_FILE, send::WHEN_FULL, send::LINGER, network::KEYS, network::IDENTITY,
        kafka::KAFKA, kafka::TOPIC, kafka::KEY, kafka::PARTITIONS, kafka::PLAIN, kafka::USER, kafka::PASSWORD, kafka::SASL];
}

/// How long records and bytes may wait for a buffer to become full.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// What files have and links have not.
const FILE_OPTIONS: [&str; 8] = [
    "file",
    "format",
    "color",
    "page",
    "fields",
    "rotate_size",
    "rotate_time",
    "rotate_files",
];

struct ToFile {
    path: String,
    /// What comes, as far as it is known beforehand.
    input: Option<Port>,
    /// What records have, as far as it is known beforehand.
    schema: Option<Schema>,
    format: Format,
    /// When tables have colours.
    color: &'static str,
    /// Of tables that take the place of one another: the time of the one that is shown, and its rows.
    page: Option<(Nanos, usize)>,
    /// The fields that are wanted; none: all.
    fields: Vec<String>,
    /// Of the kind of record that came last: its fields, which of them are wanted, and what is written
    /// of it.
    kind: Option<(Schema, Option<Vec<bool>>, Schema)>,
    /// Go on at the end of a file that is there.
    appends: bool,
    rotation: Rotation,
    /// Packets to be written.
    most: u64,
    /// Which file is written to, where they are rotated and no captures.
    rotator: Option<Rotator>,
    sink: Sink,
    /// Link types of the packets so far, in the order in which they came.
    interfaces: Vec<Interface>,
    chosen: Vec<PacketDescriptor>,
    written: u64,
    /// When what is buffered was last written for a reader who waits.
    flushed: Instant,
    /// What records of a live capture are written by.
    thread: Option<WriterThread>,
}

/// What the file is follows from what comes first.
enum Sink {
    None,
    Packets(Box<FileSink>),
    Bytes(Box<RecordWriter>),
    Records(Box<RecordWriter>),
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let is_given = |option: &str| {
        let setting = settings.setting(option);
        setting.is_some_and(|setting| setting.span.is_some())
    };
    let (to, brokers) = (settings.text("to"), settings.text("kafka"));
    if to.is_some() || brokers.is_some() {
        for option in FILE_OPTIONS {
            if is_given(option) && (option != "format" || brokers.is_none()) {
                return Err(SettingError::of(
                    option,
                    "is for files, and to and kafka send elsewhere",
                )
                .with_hint("two outputs after one another do both"));
            }
        }
    }
    match (to, brokers) {
        (Some(to), None) => {
            of_others(&kafka::OF_OUTPUT, "kafka", &is_given)?;
            return send::make(settings, to);
        }
        (None, Some(brokers)) => {
            of_others(&[send::PEER], "to", &is_given)?;
            only_records(settings, "kafka", &is_given)?;
            return send::make_kafka(settings, brokers);
        }
        (Some(_), Some(_)) => {
            return Err(SettingError::of("to", "and kafka are two places")
                .with_hint("two outputs after one another do both"));
        }
        (None, None) => {}
    }
    let path = options.file.as_str();
    check_options(settings, path, &is_given)?;
    let seconds = match options.rotate_time {
        Some(nanos) if nanos < 1_000_000_000 => {
            return Err(SettingError::of("rotate_time", "is less than a second"));
        }
        nanos => nanos.map(|nanos| nanos / 1_000_000_000),
    };
    refuse_ending(settings, path, options.format)?;
    let format = match options.format {
        Some("csv") => Format::Csv,
        Some("csv_safe") => Format::SafeCsv,
        Some("table") => Format::Table,
        None if path.to_ascii_lowercase().ends_with(".csv") => Format::Csv,
        None if path == "-" && io::stdout().is_terminal() => Format::Table,
        _ => Format::Json,
    };
    let rotation = Rotation {
        bytes: options.rotate_size,
        seconds,
        files: options.rotate_files,
    };
    // The names of files of a rotation by time are filled in as each begins.
    let is_filled_in = path.contains('%') && (rotation.seconds.is_none() || path.contains("%{"));
    let name = is_filled_in
        .then(|| Name::read(settings, "file"))
        .transpose()?;
    let constant = name.as_ref().and_then(Name::constant);
    let path = constant.as_deref().unwrap_or(path);
    let rotator = match rotation == Rotation::default() {
        true => None,
        false => Some(
            Rotator::new(path, rotation)
                .map_err(|error| SettingError::of_all(error.to_string()).hinted(error.hint()))?,
        ),
    };
    let is_page =
        options.page && format == Format::Table && path == "-" && terminal::size().is_some();
    let fields = read_names(settings, "fields")?;
    check(&fields, settings, "fields", |_| true)?;
    let (input, schema) = (settings.input(), settings.schema());
    let thread = settings.is_live().then(WriterThread::default);
    let of_all = thread.clone();
    let to_file = move |path: String, appends: bool| ToFile {
        path,
        input,
        schema,
        format,
        color: options.color,
        page: is_page.then_some((Nanos(0), 0)),
        fields: fields.clone(),
        kind: None,
        appends,
        rotation,
        most: options.packets.unwrap_or(u64::MAX),
        rotator: rotator.clone(),
        sink: Sink::None,
        interfaces: Vec::new(),
        chosen: Vec::new(),
        written: 0,
        flushed: Instant::now(),
        thread: thread.clone(),
    };
    let Some(name) = name.filter(|_| constant.is_none()) else {
        return Ok(Box::new(to_file(path.to_owned(), false)));
    };
    if rotation != Rotation::default() {
        return Err(
            SettingError::of("file", "files with fields in their names are not rotated").with_hint(
                "leave rotate_... out, or the fields; rotate_time fills in those of strftime",
            ),
        );
    }
    Ok(Box::new(Named::new(name, Box::new(to_file), of_all)))
}

/// Refuses options that mean nothing without another.
fn of_others(
    options: &[OptionInfo],
    without: &str,
    is_given: &dyn Fn(&str) -> bool,
) -> Result<(), SettingError> {
    let given = options.iter().find(|option| is_given(option.name));
    given.map_or(Ok(()), |option| {
        let error = format!("has no meaning without {without}");
        Err(SettingError::of(option.name, error))
    })
}

/// Refuses an option that is for records where something else comes.
fn only_records(
    settings: &Settings,
    option: &'static str,
    is_given: &dyn Fn(&str) -> bool,
) -> Result<(), SettingError> {
    let item = match settings.input() {
        Some(Port::Items(item)) if !item.is_a(ItemType::Record) && is_given(option) => item,
        _ => return Ok(()),
    };
    let (message, hint) = match item {
        ItemType::Chunk => ("chunks are written as they are", None),
        _ => (
            "packets are written as a capture",
            Some("put \"packets\" before it to make records"),
        ),
    };
    let mut error = SettingError::of(option, format!("is for records: {message}"));
    error.hint = hint.map(str::to_owned);
    Err(error)
}

/// Refuses a file of records whose name ends as of another format.
fn refuse_ending(
    settings: &Settings,
    path: &str,
    format: Option<&str>,
) -> Result<(), SettingError> {
    let are_records =
        matches!(settings.input(), Some(Port::Items(item)) if item.is_a(ItemType::Record));
    let ending = Path::new(path)
        .extension()
        .and_then(|ending| ending.to_str());
    let Some(ending) = ending.filter(|_| are_records && format.is_none()) else {
        return Ok(());
    };
    let known = ["csv", "json", "jsonl", "ndjson"];
    // A field such as %{key} may have a point in it.
    if ending.contains(['%', '}']) || known.iter().any(|it| ending.eq_ignore_ascii_case(it)) {
        return Ok(());
    }
    Err(
        SettingError::of("file", format!("{path}: no format is called .{ending}"))
            .with_hint("end the name with .json or .csv, or set format"),
    )
}

/// Refuses options that mean nothing here.
fn check_options(
    settings: &Settings,
    path: &str,
    is_given: &dyn Fn(&str) -> bool,
) -> Result<(), SettingError> {
    of_others(&send::OPTIONS, "to", is_given)?;
    of_others(&kafka::OF_OUTPUT, "kafka", is_given)?;
    of_others(&[network::KEYS, network::IDENTITY], "to", is_given)?;
    for option in ["format", "fields"] {
        only_records(settings, option, is_given)?;
    }
    for option in ["rotate_size", "rotate_time", "rotate_files"] {
        if path == "-" && settings.setting(option).is_some() {
            return Err(
                SettingError::of(option, "standard output cannot be rotated")
                    .with_hint("use a file"),
            );
        }
    }
    Ok(())
}

impl ToFile {
    /// Items so far.
    fn written(&self) -> u64 {
        match &self.sink {
            Sink::Packets(sink) => sink.written().packets,
            _ => self.written,
        }
    }

    fn file_format(&self) -> FileFormat {
        let name = self.path.trim_end_matches(".gz").trim_end_matches(".zst");
        match Path::new(name).extension() {
            Some(ending) if ending.eq_ignore_ascii_case("pcapng") => FileFormat::PcapNg,
            _ => FileFormat::PcapNanoseconds,
        }
    }

    fn packets(&mut self, packets: &Packets<'_>) -> Result<(), Stop> {
        let left = self.most - self.written().min(self.most);
        if left == 0 {
            return self.close();
        }
        if let Sink::None = self.sink {
            let options = SinkOptions {
                format: self.file_format(),
                rotation: self.rotation,
                append: self.appends,
                ..SinkOptions::default()
            };
            let sink = FileSink::create(&self.path, options).map_err(Stop::from)?;
            self.sink = Sink::Packets(Box::new(sink));
        }
        let before = self.interfaces.len();
        self.chosen.clear();
        for (_, packet) in packets
            .iter()
            .take(usize::try_from(left).unwrap_or(usize::MAX))
        {
            let descriptor = packets.batch.packets.get(usize::from(packet.index));
            let Some(descriptor) = descriptor else {
                continue;
            };
            let interface = self.interface(descriptor.link);
            self.chosen.push(PacketDescriptor {
                interface,
                ..*descriptor
            });
        }
        let Sink::Packets(sink) = &mut self.sink else {
            return Err(self.mixed());
        };
        if self.interfaces.len() != before {
            sink.set_interfaces(&self.interfaces).map_err(Stop::from)?;
        }
        let batch = Batch::new(packets.batch.memory, &self.chosen);
        sink.write(&batch).map_err(Stop::from)?;
        if sink.written().packets >= self.most {
            return self.close();
        }
        if sink.is_full() {
            sink.close().map_err(Stop::from)?;
            return Err(Stop::NotWanted);
        }
        Ok(())
    }

    fn interface(&mut self, link: LinkType) -> u16 {
        let known = self.interfaces.iter().position(|known| known.link == link);
        let index = known.unwrap_or_else(|| {
            self.interfaces.push(Interface {
                link,
                ..Interface::default()
            });
            self.interfaces.len() - 1
        });
        index as u16
    }

    fn chunks(&mut self, chunks: &[StreamChunk<'_>]) -> Result<(), Stop> {
        for chunk in chunks.iter().filter(|chunk| !chunk.bytes.is_empty()) {
            self.rotate(chunk.time)?;
            if let Sink::None = self.sink {
                let output = self.output(Output::raw(self.target(chunk.time)?));
                let writer = RecordWriter::of_bytes(output, &[]);
                self.sink = Sink::Bytes(Box::new(writer));
            }
            let Sink::Bytes(writer) = &mut self.sink else {
                return Err(self.mixed());
            };
            writer.write_bytes(chunk.bytes);
            self.written += 1;
            if writer.has_failed() {
                return checked(writer.check(), &self.path);
            }
        }
        Ok(())
    }

    /// Closes the file if something of this time belongs to the next one.
    #[inline]
    fn rotate(&mut self, time: Nanos) -> Result<(), Stop> {
        match self.rotator {
            Some(_) => self.turn(time),
            None => Ok(()),
        }
    }

    fn turn(&mut self, time: Nanos) -> Result<(), Stop> {
        let Some(rotator) = &mut self.rotator else {
            return Ok(());
        };
        let size = match &self.sink {
            Sink::Bytes(writer) | Sink::Records(writer) => Some(writer.bytes()),
            Sink::Packets(_) | Sink::None => None,
        };
        match rotator.turn(time, size) {
            Turn::Same => Ok(()),
            Turn::Over => {
                self.close()?;
                Err(Stop::NotWanted)
            }
            Turn::Next => self.close(),
        }
    }

    /// What is written to where it is no capture, and the first thing is of `time`.
    fn target(&self, time: Nanos) -> Result<Box<dyn Write + Send>, Stop> {
        if self.path == "-" {
            return Ok(Box::new(io::stdout()));
        }
        let path = match &self.rotator {
            Some(rotator) => rotator.name(time),
            None => PathBuf::from(&self.path),
        };
        let how = match self.appends {
            true => How::append(),
            false => How::replace(),
        };
        let name = path.display().to_string();
        let open = move || files::named().open(&path, how);
        Ok(Box::new(match self.thread {
            Some(_) => WholeWrites::opened_by(open),
            None => WholeWrites::new(open().map_err(|error| Stop::with(&name, &error))?),
        }))
    }

    /// What is written by the thread, if there is one.
    fn output(&self, output: Output) -> Output {
        output.by(self.thread.as_ref(), &self.path)
    }

    /// Ends the file that is open, if one is.
    fn close(&mut self) -> Result<(), Stop> {
        match core::mem::replace(&mut self.sink, Sink::None) {
            Sink::None => Ok(()),
            Sink::Packets(mut sink) => {
                let closed = sink.close();
                self.written = sink.written().packets;
                closed.map(|_| ()).map_err(Stop::from)
            }
            Sink::Bytes(mut writer) | Sink::Records(mut writer) => {
                checked(writer.finish(), &self.path)
            }
        }
    }

    fn records(&mut self, records: &[RecordItem<'_>]) -> Result<(), Stop> {
        for item in records {
            if !self.is_on_page(item.time)? {
                continue;
            }
            let schema = item.record.schema();
            let is_known = |kind: &(Schema, _, _)| core::ptr::eq(kind.0, schema);
            self.rotate(item.time)?;
            let is_open = !matches!(self.sink, Sink::None);
            if !is_open || !self.kind.as_ref().is_some_and(is_known) {
                self.next_kind(schema, item.time)?;
            }
            let Sink::Records(writer) = &mut self.sink else {
                return Err(self.mixed());
            };
            let wanted = self.kind.as_ref().and_then(|kind| kind.1.as_deref());
            writer.write_any(item.record, wanted);
            self.written += 1;
            if writer.has_failed() {
                return checked(writer.check(), &self.path);
            }
        }
        Ok(())
    }

    /// Whether there is room for a record of this time; where tables take the place of one another it may begin the next one.
    fn is_on_page(&mut self, time: Nanos) -> Result<bool, Stop> {
        let Some((shown, rows)) = self.page else {
            return Ok(true);
        };
        if shown != time {
            self.close()?;
            self.page = Some((time, 1));
            return Ok(true);
        }
        self.page = Some((shown, rows + 1));
        // The heading and the cursor have a line each.
        let height = terminal::size().map_or(0, |(_, height)| height);
        Ok(height == 0 || rows + 2 < height)
    }

    /// Records of another kind than the one before come, or another file begins.
    #[cold]
    fn next_kind(&mut self, schema: Schema, time: Nanos) -> Result<(), Stop> {
        let is_same = |kind: &&(Schema, _, _)| core::ptr::eq(kind.0, schema);
        let (wanted, written) = if let Some(kind) = self.kind.as_ref().filter(is_same) {
            (kind.1.clone(), kind.2)
        } else if self.fields.is_empty() {
            (None, schema)
        } else {
            let is_wanted = |name: &str| self.fields.iter().any(|wanted| wanted == name);
            let wanted = schema.iter().map(|field| is_wanted(field.name)).collect();
            (Some(wanted), chosen(schema, &is_wanted))
        };
        match (&self.sink, &self.kind) {
            (Sink::None, _) => {
                let is_shown = self.path == "-";
                let screen = Screen {
                    width: is_shown.then(terminal::width).flatten(),
                    has_colors: is_shown && terminal::has_colors(self.color),
                };
                let target = self.target(time)?;
                let target = match self.page {
                    Some(_) => Box::new(Cleared {
                        target,
                        is_new: true,
                    }),
                    None => target,
                };
                let output = Output::new(target, self.format, written, screen);
                let mut writer = RecordWriter::new(self.output(output), self.format, written);
                if self.appends {
                    writer = writer.without_header();
                }
                self.sink = Sink::Records(Box::new(writer));
            }
            (_, Some((_, _, before))) if self.format != Format::Json && *before != written => {
                return Err(Stop::Failed(
                    Failure::new(format!(
                        "{}: records of several kinds, and only JSON has names in each line",
                        self.path
                    ))
                    .with_hint("set format to json, or write them to a file each"),
                ));
            }
            _ => {}
        }
        self.kind = Some((schema, wanted, written));
        Ok(())
    }

    fn mixed(&self) -> Stop {
        Stop::Failed(
            Failure::new(format!("{}: items of several types in one file", self.path))
                .with_hint("write them to a file each"),
        )
    }
}

impl Component for ToFile {
    fn start(&mut self) -> Result<(), Failure> {
        // What cannot be written to is found before the capture begins.
        if self.path == "-" || self.rotation.seconds.is_some() {
            return Ok(());
        }
        let path = match &self.rotator {
            Some(rotator) => rotator.name(Nanos(0)),
            None => PathBuf::from(&self.path),
        };
        let opened = files::named().open(&path, How::append());
        begun(opened.map_err(|error| Stop::with(&self.path, &error)))
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let result = match items {
            Items::Packets(packets) => self.packets(packets),
            Items::Chunks(chunks) => self.chunks(chunks),
            Items::Records(records) => self.records(records),
            _ => Ok(()),
        };
        stop(result, out);
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, _now: Nanos, out: &mut dyn Outlet) {
        let now = Instant::now();
        if now.duration_since(self.flushed) < FLUSH_EVERY {
            return;
        }
        self.flushed = now;
        let result = match &mut self.sink {
            Sink::Bytes(writer) | Sink::Records(writer) => {
                writer.flush();
                checked(writer.check(), &self.path)
            }
            Sink::Packets(_) | Sink::None => Ok(()),
        };
        stop(result, out);
    }

    fn settle(&mut self, out: &mut dyn Outlet) -> bool {
        // Of captures a part of the buffer would be no whole block.
        if let Sink::Bytes(writer) | Sink::Records(writer) = &mut self.sink {
            writer.flush();
            stop(checked(writer.check(), &self.path), out);
        }
        self.thread.is_none()
    }

    fn begin_finish(&mut self) {
        self.thread.iter().for_each(WriterThread::begin_finish);
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let result = match self.sink {
            Sink::None if self.written == 0 => self.nothing_came(),
            _ => self.close(),
        };
        let done = || finished(self.thread.as_ref(), &self.path);
        stop(result.and_then(|()| done()), out);
    }

    fn result(&self) -> Option<ResultValue> {
        let lost = self.thread.as_ref().map_or(0, WriterThread::lost);
        Some(ResultValue::Sum(self.written() - lost))
    }

    fn account(&self) -> Option<Box<Account>> {
        account(self.thread.as_ref(), "item", &self.path)
    }
}

/// A terminal whose screen is cleared before anything is written.
struct Cleared {
    target: Box<dyn Write + Send>,
    is_new: bool,
}

impl Write for Cleared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if core::mem::take(&mut self.is_new) {
            self.target.write_all(b"\x1b[H\x1b[J")?;
        }
        self.target.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }
}

/// What came of writing to a path.
fn checked(written: Result<(), OutputError>, path: &str) -> Result<(), Stop> {
    written.map_err(|error| Stop::of_writer(path, error))
}

/// Waits until a thread has written everything.
fn finished(thread: Option<&WriterThread>, path: &str) -> Result<(), Stop> {
    thread.map_or(Ok(()), |thread| checked(thread.finish(), path))
}

/// Some of the fields of a schema.
fn chosen(schema: Schema, is_wanted: &dyn Fn(&str) -> bool) -> Schema {
    let fields = schema.iter().copied();
    kept(fields.filter(|field| is_wanted(field.name)))
}

impl ToFile {
    /// A capture without packets is a capture, too.
    fn nothing_came(&self) -> Result<(), Stop> {
        if self.rotation.seconds.is_some() {
            return Ok(());
        }
        if !matches!(
            self.input,
            None | Some(Port::Items(
                ItemType::Packet | ItemType::Datagram | ItemType::Segment
            ))
        ) {
            let mut target = self.target(Nanos(0))?;
            if let Some(schema) = self.schema.filter(|_| self.fields.is_empty()) {
                let output = Output::new(target, self.format, schema, Screen::default());
                let mut writer = RecordWriter::new(output, self.format, schema);
                return checked(writer.finish(), &self.path);
            }
            let made = target.flush();
            return made.map_err(|error| Stop::with(&self.path, &error));
        }
        if self.path == "-" {
            return Ok(());
        }
        let options = SinkOptions {
            format: self.file_format(),
            ..SinkOptions::default()
        };
        let mut sink = FileSink::create(&self.path, options).map_err(Stop::from)?;
        sink.set_interfaces(&[Interface::default()])
            .map_err(Stop::from)?;
        sink.close().map(|_| ()).map_err(Stop::from)
    }
}
