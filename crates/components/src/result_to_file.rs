//! `result_to_file`: writes the results of other components to a file.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flowgauge_kit::file_name::Name;
use flowgauge_kit::measure::Intervals;
use flowgauge_record as record;
use flowgauge_record::results::{ReadingRow, Value};
use flowgauge_record::{Encoder, WholeWrites};
use flowgauge_stack::{
    Cell, Component, ComponentInfo, Failure, Input, Outlet, Parallel, ResultInfo, ResultValue,
    options,
};
use flowgauge_sys::files::{self, How};
use flowgauge_wire::Nanos;

use crate::output::cannot_write;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "result_to_file",
    aliases: &["res2file"],
    summary: "writes the results of other components to a file",
    help: "`text` writes a line each time: the time in seconds, then a number per component, separated by \
           tabs; rows of a table are lines of their own. `raw` writes each number in eight bytes, \
           little-endian. Results are written at the end of each interval on the clock of the capture, and at \
           the end; with an interval of 0 only at the end.",
    input: Input::Any,
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("times results were written", "times")),
    parallel: Parallel::Never("it writes one file"),
    effects: true,
    make: |settings| {
        let options = Options::read(settings);
        let name = Name::read_of_one(settings, "file")?;
        Ok(Box::new(ToFile {
            path: name.constant(),
            name,
            format: match options.format {
                "raw" | "0" => Format::Raw,
                "seconds" | "2" => Format::Seconds,
                "json" => Format::Json(Encoder::new(record::Format::Json)),
                _ => Format::Text,
            },
            line: Vec::new(),
            header: options.header,
            intervals: (options.interval > 0).then(|| Intervals::new(options.interval)),
            now: Nanos(0),
            writer: None,
            written: 0,
        }))
    },
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    of: References = required, "labels of the components";
    file: OutputFile = "-", "where to write; - is standard output; with fields of strftime, filled in once";
    interval: Duration as u64 = "0", "how often";
    format: Choice("text", "raw", "seconds", "json", "0", "1", "2", "3") = "text",
        "how: text; raw: numbers of 8 bytes, the least first; seconds: as text, but numbers, which are \
         nanoseconds, in seconds; json: a line for each number and row. MAPI's numbers: 0 is raw, 1 and 3 \
         are text, 2 is seconds";
    header: Text, "what the file begins with";
}

enum Format {
    Text,
    Raw,
    /// Numbers are nanoseconds.
    Seconds,
    Json(Encoder),
}

struct ToFile {
    name: Name,
    /// What it is, where that is known.
    path: Option<String>,
    format: Format,
    line: Vec<u8>,
    header: Option<String>,
    intervals: Option<Intervals>,
    now: Nanos,
    writer: Option<BufWriter<Box<dyn Write + Send>>>,
    written: u64,
}

impl ToFile {
    fn write(&mut self, time: Nanos, out: &mut dyn Outlet) {
        let results = out.results("of");
        let Some(writer) = &mut self.writer else {
            return;
        };
        let done = match &mut self.format {
            Format::Raw => raw(writer, &results),
            Format::Text => text(writer, time, &results, false),
            Format::Seconds => text(writer, time, &results, true),
            Format::Json(encoder) => {
                self.line.clear();
                json(encoder, time, &results, &mut self.line);
                writer.write_all(&self.line)
            }
        };
        self.written += 1;
        // Somebody may be reading the file as it grows.
        let done = done.and_then(|()| writer.flush());
        self.check(done, out);
    }

    fn open(&mut self) -> io::Result<()> {
        let target: Box<dyn Write + Send> = match self.path.as_deref() {
            None | Some("-") => Box::new(io::stdout()),
            Some(path) => {
                let file = files::named().open(Path::new(path), How::replace())?;
                Box::new(WholeWrites::new(file))
            }
        };
        let mut writer = BufWriter::new(target);
        if let Some(header) = &self.header {
            writeln!(writer, "{header}")?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    fn failure(&self, error: &io::Error) -> Failure {
        cannot_write(self.path.as_deref().unwrap_or("-"), error)
    }

    fn check(&self, done: io::Result<()>, out: &mut dyn Outlet) {
        match done {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => out.end(),
            Err(error) => out.fail(self.failure(&error)),
        }
    }
}

fn raw(writer: &mut impl Write, results: &[(String, ResultValue)]) -> io::Result<()> {
    for number in results.iter().filter_map(|(_, result)| result.number()) {
        writer.write_all(&(number as u64).to_le_bytes())?;
    }
    Ok(())
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
    writer: &mut impl Write,
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

impl Component for ToFile {
    fn start(&mut self) -> Result<(), Failure> {
        match self.path {
            Some(_) => self.open().map_err(|error| self.failure(&error)),
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
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        self.write(self.now, out);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.written))
    }
}
