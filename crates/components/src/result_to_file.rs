//! `result_to_file`: writes the results of other components to a file.

use std::io::{self, Write};
use std::path::Path;

use flowgauge_kit::file_name::Name;
use flowgauge_kit::measure::{Growth, Intervals};
use flowgauge_kit::writing::{Stop, account, begun, stop};
use flowgauge_record::results::{ReadingRow, Value};
use flowgauge_record::{Encoder, Output, OutputError, RecordWriter, WholeWrites, WriterThread};
use flowgauge_stack::{
    Account, Cell, Component, ComponentInfo, Failure, Input, Items, Outlet, Packets, Parallel,
    ResultInfo, ResultValue, SettingError, options,
};
use flowgauge_sys::files::{self, How};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "result_to_file",
    aliases: &["res2file"],
    summary: "writes the results of other components to a file",
    help: "`text` writes a line each time: the time in seconds, then a number per component, separated by \
           tabs; rows of a table are lines of their own. `raw` writes each number in eight bytes, \
           little-endian. Results are written at the end of each interval on the capture clock, and at \
           the end; with an interval of 0 only at the end.",
    input: Input::Any,
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("times results were written", "times")),
    parallel: Parallel::Never("it writes one file"),
    effects: |_| true,
    make: |settings| {
        let options = Options::read(settings);
        let name = Name::read_of_one(settings, "file")?;
        Ok(Box::new(ToFile {
            path: name.constant(),
            name,
            format: match options.format {
                "raw" | "0" => Format::Raw,
                "seconds" | "2" => Format::Seconds,
                "json" => Format::Json,
                _ => Format::Text,
            },
            header: options.header,
            types: options.types.as_deref().map(kinds).transpose()?,
            each: options.each,
            growth: options.reset.then(Vec::new),
            intervals: (options.interval > 0).then(|| Intervals::new(options.interval)),
            now: Nanos(0),
            writer: None,
            thread: settings.is_live().then(WriterThread::default),
            written: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    of: References = required, "labels of the components";
    file: OutputFile = "-", "where to write; - is standard output; may contain strftime fields, filled in once";
    interval: Duration as u64 = "0", "how often";
    format: Choice("text", "raw", "seconds", "json", "0", "1", "2", "3") = "text",
        "format: text; raw: numbers of 8 bytes, little-endian; seconds: as text, with nanoseconds as seconds; json: a \
        line for each number and row. MAPI's numbers: 0 is raw, 1 and 3 \
         are text, 2 is seconds";
    header: Text, "header line of the file";
    types: Text, "MAPI's form in place of format: a number for each component, 0 its bytes behind their length in eight bytes, 1 a decimal \
         number, 2 a number of 2^-32 seconds in seconds, 3 statistics";
    each: Flag = "no", "with types: a line for each packet, where components have values of packets";
    reset: Flag = "no", "with types: counts since the previous line";
}

/// MAPI's types of results.
fn kinds(text: &str) -> Result<Vec<u8>, SettingError> {
    let kinds = text
        .split(',')
        .map(|kind| kind.trim().parse().ok().filter(|kind| *kind <= 3));
    let kinds: Option<Vec<u8>> = kinds.collect();
    kinds.ok_or_else(|| SettingError::of("types", "are not numbers from 0 to 3, as 1,3"))
}

/// Lines of intervals without packets that are written at once.
const MOST_EMPTY: u64 = 100_000;

enum Format {
    Text,
    Raw,
    /// Numbers are nanoseconds.
    Seconds,
    Json,
}

struct ToFile {
    name: Name,
    /// What it is, where that is known.
    path: Option<String>,
    format: Format,
    header: Option<String>,
    /// MAPI's types, where its form is wanted.
    types: Option<Vec<u8>>,
    each: bool,
    /// Of each component, where only growth is written.
    growth: Option<Vec<Growth>>,
    intervals: Option<Intervals>,
    now: Nanos,
    writer: Option<RecordWriter>,
    /// What results of a live capture are written by.
    thread: Option<WriterThread>,
    written: u64,
}

impl ToFile {
    fn write(&mut self, time: Nanos, out: &mut dyn Outlet) {
        let mut results = out.results("of");
        if let Some(growth) = &mut self.growth {
            growth.resize(results.len(), Growth::default());
            for ((_, result), growth) in results.iter_mut().zip(growth) {
                if let ResultValue::Sum(_) | ResultValue::Difference(_) = result {
                    let since = u64::try_from(growth.since(result));
                    *result = ResultValue::Last(since.unwrap_or(0));
                }
            }
        }
        let Some(writer) = &mut self.writer else {
            return;
        };
        if let Some(types) = &self.types {
            writer.write_by(|_, lines| mapi(lines, types, &results));
            self.written += 1;
            return self.flush(out);
        }
        writer.write_by(|encoder, lines| match self.format {
            Format::Raw => raw(lines, &results),
            Format::Text => text(lines, time, &results, false).unwrap_or(()),
            Format::Seconds => text(lines, time, &results, true).unwrap_or(()),
            Format::Json => json(encoder, time, &results, lines),
        });
        self.written += 1;
        self.flush(out);
    }

    /// Somebody may be reading the file as it grows.
    fn flush(&mut self, out: &mut dyn Outlet) {
        if let Some(writer) = &mut self.writer {
            writer.flush();
            let done = writer.check();
            self.check(done, out);
        }
    }

    /// A line for each packet.
    fn write_each(&mut self, packets: &Packets<'_>, out: &mut dyn Outlet) {
        let (Some(writer), Some(types)) = (&mut self.writer, &self.types) else {
            return;
        };
        let results = out.results("of");
        let values = out.all_values("of");
        for (index, _) in packets.iter() {
            let of_packet: Vec<(String, ResultValue)> = (results.iter().zip(&values))
                .map(|((label, result), values)| {
                    let value = values.and_then(|values| values.at(packets, index, out));
                    (
                        label.clone(),
                        value.map_or_else(|| result.clone(), ResultValue::Last),
                    )
                })
                .collect();
            writer.write_by(|_, lines| mapi(lines, types, &of_packet));
            self.written += 1;
        }
    }

    fn open(&mut self) -> Result<(), OutputError> {
        let path = self.path.as_deref().unwrap_or("-");
        let target: Box<dyn Write + Send> = match path {
            "-" => Box::new(io::stdout()),
            path => {
                let file = files::named().open(Path::new(path), How::replace())?;
                Box::new(WholeWrites::new(file))
            }
        };
        let output = Output::raw(target).by(self.thread.as_ref(), path);
        let header = self.header.as_ref().map(|header| format!("{header}\n"));
        let header = header.unwrap_or_default();
        self.writer = Some(RecordWriter::of_bytes(output, header.as_bytes()));
        Ok(())
    }

    fn check(&self, done: Result<(), OutputError>, out: &mut dyn Outlet) {
        stop(done.map_err(|error| self.stopped(error)), out);
    }

    fn stopped(&self, error: OutputError) -> Stop {
        Stop::of_writer(self.path.as_deref().unwrap_or("-"), error)
    }
}

fn raw(out: &mut Vec<u8>, results: &[(String, ResultValue)]) {
    for number in results.iter().filter_map(|(_, result)| result.number()) {
        out.extend_from_slice(&(number as u64).to_le_bytes());
    }
}

fn json(encoder: &mut Encoder, time: Nanos, results: &[(String, ResultValue)], line: &mut Vec<u8>) {
    for (component, result) in results {
        let reading = |value, row| ReadingRow {
            time,
            component,
            value: Value(value),
            row,
        };
        match result {
            ResultValue::Table(table) => {
                for row in table.iter() {
                    encoder.encode(&reading(&Cell::None, Some(row)), line);
                }
            }
            number => encoder.encode(&reading(&number.cell(), None), line),
        }
    }
}

fn text(
    writer: &mut Vec<u8>,
    time: Nanos,
    results: &[(String, ResultValue)],
    are_nanos: bool,
) -> io::Result<()> {
    const SECOND: i128 = 1_000_000_000;
    let (seconds, nanos) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    write!(writer, "{seconds}.{nanos:09}")?;
    for number in results.iter().filter_map(|(_, result)| result.number()) {
        if are_nanos {
            let sign = if number < 0 { "-" } else { "" };
            let number = number.abs();
            write!(writer, "\t{sign}{}.{:09}", number / SECOND, number % SECOND)?;
        } else {
            write!(writer, "\t{number}")?;
        }
    }
    writeln!(writer)?;
    for (label, result) in results {
        if let ResultValue::Table(table) = result {
            for row in table.iter() {
                writeln!(writer, "{label}\t{row}")?;
            }
        }
    }
    Ok(())
}

/// A line of MAPI: each value and a blank.
fn mapi(out: &mut Vec<u8>, types: &[u8], results: &[(String, ResultValue)]) {
    const SECOND: i128 = 1 << 32;
    for (kind, (_, result)) in types.iter().zip(results) {
        let number = result.number().unwrap_or(0);
        let _ = match (kind, result) {
            (0, _) => {
                out.extend_from_slice(&8_u64.to_le_bytes());
                out.extend_from_slice(&(number as u64).to_le_bytes());
                Ok(())
            }
            (2, _) => {
                let fraction =
                    (number.rem_euclid(SECOND) * 1_000_000_000_000 + SECOND / 2) / SECOND;
                let (seconds, fraction) = match fraction {
                    1_000_000_000_000 => (number.div_euclid(SECOND) + 1, 0),
                    fraction => (number.div_euclid(SECOND), fraction),
                };
                write!(out, "{seconds}.{fraction:012} ")
            }
            (3, ResultValue::Table(table)) => {
                let row = table.rows.first().map(Vec::as_slice).unwrap_or_default();
                let number = |at: usize| row.get(at).map_or(0.0, float);
                let [count, sum, squares, max, min] = [0, 1, 2, 3, 4].map(number);
                write!(out, "{count:.0}  {sum:.6} {squares:.6} {min:.6} {max:.6} ")
            }
            _ => write!(out, "{number} "),
        };
    }
    out.push(b'\n');
}

fn float(cell: &Cell) -> f64 {
    match cell {
        Cell::Unsigned(value) => *value as f64,
        Cell::Signed(value) => *value as f64,
        Cell::Float(value) => *value,
        _ => 0.0,
    }
}

impl Component for ToFile {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let (true, Items::Packets(packets)) = (self.each, &*items) {
            self.write_each(packets, out);
            self.flush(out);
        }
    }

    fn start(&mut self) -> Result<(), Failure> {
        match self.path {
            Some(_) => begun(self.open().map_err(|error| self.stopped(error))),
            None => self.name.check_folder(),
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn interval(&self) -> Option<Nanos> {
        self.intervals.map(|it| Nanos(it.length()))
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.now = self.now.max(now);
        if self.path.is_none() && now > Nanos(0) {
            self.path = Some(self.name.evaluate(now, 1, Vec::new));
            let opened = self.open();
            self.check(opened, out);
        }
        let Some(intervals) = &mut self.intervals else {
            return;
        };
        if now < intervals.end() || intervals.begin(now) {
            return;
        }
        let length = intervals.length();
        if let Some((start, ended)) = intervals.advance(now).filter(|(_, ended)| *ended > 0) {
            self.write(Nanos(start.0 + length * ended), out);
            // Nothing came in the others.
            if let (Some(writer), Some(types)) = (&mut self.writer, &self.types) {
                let zeros = "0 ".repeat(types.len()) + "\n";
                for _ in 1..ended.min(MOST_EMPTY) {
                    writer.write_by(|_, lines| lines.extend_from_slice(zeros.as_bytes()));
                }
            }
        }
    }

    fn begin_finish(&mut self) {
        self.thread.iter().for_each(WriterThread::begin_finish);
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        if !self.each {
            self.write(self.now, out);
        }
        if let Some(thread) = &self.thread {
            self.check(thread.finish(), out);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let lost = self.thread.as_ref().map_or(0, WriterThread::lost);
        Some(ResultValue::Sum(self.written - lost))
    }

    fn account(&self) -> Option<Box<Account>> {
        let path = self.path.as_deref().unwrap_or("-");
        account(self.thread.as_ref(), "reading", path)
    }
}
