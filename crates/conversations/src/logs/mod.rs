//! `logs`: records of many kinds in the formats of other systems.

mod dns;
mod elsewhere;
mod eve;
mod flow_members;
mod members;
mod names;
mod texts;
mod values;
mod zeek;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use elsewhere::names_elsewhere;
use flowgauge_kit::engine::COMMUNITY_ID_SEED;
use flowgauge_kit::file_name;
use flowgauge_kit::writing::{Stop, account, begun, stop};
use flowgauge_record::text::TimeWriter;
use flowgauge_record::{AnyRecord, Output, OutputError, RecordWriter, WholeWrites, WriterThread};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, Input, ItemType, Items, Outlet, Parallel,
    ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_sys::files::{self, How};
use flowgauge_wire::Nanos;
use values::Cell;
pub(crate) use values::{Looking, Name, Values};

options! {
    struct Options;
    format: Choice("eve", "zeek", "zeek-json") = "eve", "format of the logs";
    file: OutputFile = "-", "where to write: a file for eve, a folder for zeek; - is standard output; may contain \
    strftime fields, filled in once";
    [COMMUNITY_ID_SEED];
}

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "logs",
    summary: "writes records as Suricata or Zeek do, and passes them on",
    help: "eve: lines of Suricata's EVE log, in one file. zeek: logs of Zeek, a file each (conn.log, http.log, \
           dns.log, ssl.log, ...) in a folder, with its header; zeek-json: the same with a JSON object per \
           line. On standard output they follow one another. A file that was moved or deleted is created again \
           within a second, for log rotation. Records are those of transactions; types without a Zeek log are written \
           with all their fields.",
    input: Input::Of(&[ItemType::Record]),
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("records written", "records")),
    parallel: Parallel::Never("it writes one file"),
    effects: |_| true,
    make,
    ..ComponentInfo::OF_PACKETS
};

/// How long lines may wait to be written.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// How often is looked whether a file was moved.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Eve,
    Zeek,
    ZeekJson,
}

struct Logs {
    name: file_name::Name,
    looking: Looking,
    lines: eve::Lines,
    time: TimeWriter,
    files: Files,
    /// Certificates that Zeek's log has.
    known: zeek::Known,
    /// Messages of DHCP that Zeek's log has together.
    leases: zeek::Leases,
    flushed: Instant,
    looked: Instant,
    written: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let name = file_name::Name::read_of_one(settings, "file")?;
    let style = match settings.text("format") {
        Some("zeek") => Style::Zeek,
        Some("zeek-json") => Style::ZeekJson,
        _ => Style::Eve,
    };
    let seed = settings.integer("community_id_seed").unwrap_or(0) as u16;
    let thread = settings.is_live().then(WriterThread::default);
    Ok(Box::new(Logs {
        looking: Looking::with_seed(seed),
        ..Logs::new(style, name, thread)
    }))
}

/// All files.
struct Files {
    style: Style,
    /// The file or folder that they are, where that is known.
    path: Option<String>,
    /// By name.
    files: Vec<(String, LogFile)>,
    /// What those of a live capture are written by.
    thread: Option<WriterThread>,
}

/// A file, and what it is written by.
struct LogFile {
    /// With its inode; none: standard output.
    path: Option<(PathBuf, u64)>,
    header: Vec<u8>,
    writer: RecordWriter,
}

impl LogFile {
    /// Of a file that is there nothing is left.
    fn new(
        path: Option<PathBuf>,
        header: Vec<u8>,
        thread: Option<&WriterThread>,
    ) -> Result<LogFile, Stop> {
        let (path, writer) = match path {
            None => {
                let output = Output::raw(Box::new(io::stdout())).by(thread, "-");
                (None, RecordWriter::of_lines(output, &header))
            }
            Some(path) => {
                let (inode, writer) = LogFile::open(&path, How::replace(), &header, thread)?;
                (Some((path, inode)), writer)
            }
        };
        Ok(LogFile {
            path,
            header,
            writer,
        })
    }

    /// The inode of a file, and what writes to it; one that is empty begins with the header.
    fn open(
        path: &Path,
        how: How,
        header: &[u8],
        thread: Option<&WriterThread>,
    ) -> Result<(u64, RecordWriter), Stop> {
        let name = path.display().to_string();
        let failed = |error| Stop::with(&name, &error);
        let file = files::named().open(path, how).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let header = if about.len() == 0 { header } else { &[] };
        let output = Output::raw(Box::new(WholeWrites::new(file))).by(thread, &name);
        Ok((about.ino(), RecordWriter::of_lines(output, header)))
    }

    /// Appends what `write` makes.
    #[inline]
    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Stop> {
        self.writer.write_by(|_, lines| write(lines));
        match self.writer.has_failed() {
            true => self.check(),
            false => Ok(()),
        }
    }

    #[cold]
    fn check(&mut self) -> Result<(), Stop> {
        let result = self.writer.check();
        result.map_err(|error| self.stopped(error))
    }

    fn finish(&mut self) -> Result<(), Stop> {
        let result = self.writer.finish();
        result.map_err(|error| self.stopped(error))
    }

    fn stopped(&self, error: OutputError) -> Stop {
        let path = self.path.as_ref().map(|(path, _)| path.display());
        Stop::of_writer(&path.map_or("-".to_owned(), |path| path.to_string()), error)
    }

    /// Writes what is pending.
    fn flush(&mut self) -> Result<(), Stop> {
        self.writer.flush();
        self.check()
    }

    /// Begins a new file where the old one was moved away.
    fn look(&mut self, thread: Option<&WriterThread>) -> Result<(), Stop> {
        let Some((path, inode)) = &mut self.path else {
            return Ok(());
        };
        let about = files::named().metadata(path);
        if about.is_ok_and(|meta| meta.ino() == *inode) {
            return Ok(());
        }
        let (new, writer) = LogFile::open(path, How::append(), &self.header, thread)?;
        *inode = new;
        let mut before = core::mem::replace(&mut self.writer, writer);
        let written = before.finish();
        written.map_err(|error| self.stopped(error))
    }
}

impl Files {
    /// The file of a log, made when it is wanted first.
    fn of(&mut self, name: &str, header: impl FnOnce(&mut Vec<u8>)) -> Result<&mut LogFile, Stop> {
        let place = match self.files.binary_search_by(|(of, _)| of.as_str().cmp(name)) {
            Ok(place) => place,
            Err(place) => {
                let path = match (self.path.as_deref().unwrap_or("-"), self.style) {
                    ("-", _) => None,
                    (path, Style::Eve) => Some(PathBuf::from(path)),
                    (folder, _) => Some(Path::new(folder).join(format!("{name}.log"))),
                };
                let mut lines = Vec::new();
                if self.style == Style::Zeek {
                    header(&mut lines);
                }
                let file = LogFile::new(path, lines, self.thread.as_ref())?;
                self.files.insert(place, (name.to_owned(), file));
                place
            }
        };
        Ok(&mut self.files[place].1)
    }

    fn each(&mut self, mut work: impl FnMut(&mut LogFile) -> Result<(), Stop>) -> Result<(), Stop> {
        self.files.iter_mut().try_for_each(|(_, file)| work(file))
    }
}

impl Logs {
    fn new(style: Style, name: file_name::Name, thread: Option<WriterThread>) -> Logs {
        Logs {
            files: Files {
                style,
                path: name.constant(),
                files: Vec::new(),
                thread,
            },
            name,
            looking: Looking::default(),
            lines: eve::Lines::default(),
            time: TimeWriter::default(),
            known: zeek::Known::default(),
            leases: zeek::Leases::default(),
            flushed: Instant::now(),
            looked: Instant::now(),
            written: 0,
        }
    }

    /// Finds what cannot be written before there is anything to write.
    fn prepare(&self) -> Result<(), Failure> {
        let path = Path::new(self.files.path.as_deref().unwrap_or("-"));
        let made = match self.files.style {
            Style::Eve => files::named().open(path, How::append()).map(drop),
            Style::Zeek | Style::ZeekJson => files::named().make_folders(path, 0o777),
        };
        let made = made.map_err(|error| Stop::with(&path.display().to_string(), &error));
        begun(made).map_err(|failure| Failure {
            message: failure.message.replacen("cannot write", "cannot create", 1),
            ..failure
        })
    }

    fn record(&mut self, record: &dyn AnyRecord) -> Result<(), Stop> {
        let mut looking = core::mem::take(&mut self.looking);
        let result = match looking.at(record) {
            Some(values) => self.write(record, &values),
            None => Ok(()),
        };
        self.looking = looking;
        result
    }

    fn write(&mut self, record: &dyn AnyRecord, values: &Values<'_>) -> Result<(), Stop> {
        let kind = values.kind();
        // In EVE the certificate is in the line of its handshake.
        let is_known = match self.files.style {
            Style::Eve => kind == "x509",
            Style::Zeek | Style::ZeekJson => kind == "x509" && self.known.has(values),
        };
        if is_known {
            return Ok(());
        }
        self.written += 1;
        if self.files.style == Style::Eve {
            let (file, lines) = (self.files.of("eve", |_| {})?, &mut self.lines);
            return file.write(|out| lines.add(record, values, out));
        }
        let Some(first) = zeek::log(kind) else {
            // One of a kind that Zeek has not: as it is, a JSON object per line.
            let name = if kind.is_empty() { "records" } else { kind };
            let file = self.files.of(name, |_| {})?;
            file.writer.write_any(record, None);
            return file.check();
        };
        if kind == "dhcp" {
            let over = self.leases.add(values);
            return over.map_or(Ok(()), |mut it| self.line(&zeek::DHCP, it.cells()));
        }
        let mut logs = core::iter::successors(Some(first), |log| log.next);
        logs.try_for_each(|log| match (log.has)(values) {
            true => self.line(log, log.cells(values)),
            false => Ok(()),
        })
    }

    /// A line of one of Zeek's logs.
    fn line<'a>(
        &mut self,
        log: &'static zeek::Log,
        cells: impl Iterator<Item = Cell<'a>>,
    ) -> Result<(), Stop> {
        let style = self.files.style;
        let file = self.files.of(log.path, |out| log.header(out))?;
        let (time, is_stdout) = (&mut self.time, file.path.is_none());
        file.write(|out| match style {
            Style::ZeekJson => log.object(cells, is_stdout, time, out),
            _ => zeek::Log::line(cells, time, out),
        })
    }

    /// Lines of what is not waited for any more; without a time of all.
    fn due(&mut self, now: Option<Nanos>) -> Result<(), Stop> {
        while let Some(mut lease) = self.leases.due(now) {
            self.line(&zeek::DHCP, lease.cells())?;
        }
        Ok(())
    }
}

impl Logs {
    /// The input is over.
    fn end(&mut self) -> Result<(), Stop> {
        if let (Style::Eve, Some((_, file))) = (self.files.style, self.files.files.first_mut()) {
            let lines = &mut self.lines;
            file.write(|out| lines.finish(out))?;
        }
        self.due(None)?;
        self.files.each(LogFile::finish)?;
        let thread = self.files.thread.as_ref();
        let written = thread.map_or(Ok(()), WriterThread::finish);
        written.map_err(|error| Stop::of_writer("-", error))
    }
}

impl Component for Logs {
    fn start(&mut self) -> Result<(), Failure> {
        match self.files.path.as_deref() {
            None => self.name.check_folder(),
            Some("-") => Ok(()),
            Some(_) => self.prepare(),
        }
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            if let (None, Some(first)) = (&self.files.path, records.first()) {
                self.files.path = Some(self.name.evaluate(first.time, 1, Vec::new));
                if let Err(failure) = self.prepare() {
                    return out.fail(failure);
                }
            }
            for item in *records {
                let result = self.record(item.record);
                if result.is_err() {
                    return stop(result, out);
                }
            }
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, time: Nanos, out: &mut dyn Outlet) {
        stop(self.due(Some(time)), out);
        let now = Instant::now();
        if now.duration_since(self.flushed) >= FLUSH_EVERY {
            self.flushed = now;
            stop(self.files.each(LogFile::flush), out);
        }
        if now.duration_since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            let thread = self.files.thread.clone();
            stop(self.files.each(|file| file.look(thread.as_ref())), out);
        }
    }

    fn begin_finish(&mut self) {
        self.files
            .thread
            .iter()
            .for_each(WriterThread::begin_finish);
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        stop(self.end(), out);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.written))
    }

    fn account(&self) -> Option<Box<Account>> {
        let path = self.files.path.as_deref().unwrap_or("-");
        account(self.files.thread.as_ref(), "line", path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use flowgauge_record::event::EventSchemas;
    use flowgauge_record::file::FileRow;
    use flowgauge_record::http::{BodyFiles, HttpMessage, HttpRow};
    use flowgauge_record::tls::{TlsRow, X509Row};

    use super::*;

    fn add(file: &mut LogFile, line: &str) -> Result<(), Stop> {
        file.write(|lines| lines.extend_from_slice(line.as_bytes()))
    }

    /// Logs in EVE in a folder, and where they are.
    fn eve_in(folder: &tempfile::TempDir) -> (Logs, PathBuf) {
        let name = file_name::Name::read_of_one(&Settings::new(Vec::new()), "file").unwrap();
        let mut logs = Logs::new(Style::Eve, name, None);
        let path = folder.path().join("eve.json");
        logs.files.path = Some(path.display().to_string());
        (logs, path)
    }

    #[test]
    fn a_file_that_was_moved_is_begun_anew_with_its_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.log");
        let file = LogFile::new(Some(path.clone()), b"#head\n".to_vec(), None);
        let mut file = file.ok().unwrap();
        let put = |file: &mut LogFile, line: &str| {
            assert!(add(file, line).is_ok());
            assert!(file.look(None).is_ok() && file.flush().is_ok());
        };
        put(&mut file, "one\n");
        put(&mut file, "two\n");
        let moved = folder.path().join("http.log.1");
        fs::rename(&path, &moved).unwrap();
        put(&mut file, "three\n");
        put(&mut file, "four\n");
        assert_eq!(
            fs::read_to_string(&moved).unwrap(),
            "#head\none\ntwo\nthree\n"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "#head\nfour\n");
    }

    #[test]
    fn files_of_an_earlier_run_are_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.log");
        fs::write(&path, "old\n").unwrap();
        let file = LogFile::new(Some(path.clone()), b"#head\n".to_vec(), None);
        let mut file = file.ok().unwrap();
        assert!(add(&mut file, "new\n").is_ok());
        assert!(file.flush().is_ok());
        assert_eq!(fs::read_to_string(&path).unwrap(), "#head\nnew\n");
    }

    #[test]
    fn the_line_of_a_file_has_what_its_transaction_says() {
        let folder = tempfile::tempdir().unwrap();
        let (mut logs, path) = eve_in(&folder);
        let mut schemas = EventSchemas::default();
        for (file_id, source) in [(7, "http"), (8, "http"), (9, "ftp_data")] {
            let file = FileRow {
                file_id: Some(file_id),
                source,
                host: Some("own".to_owned()),
                ..FileRow::default()
            };
            assert!(logs.record(&schemas.event("file", None, &file)).is_ok());
        }
        let mut message = HttpMessage::default();
        message.is_request = true;
        message.files = Some(Box::new(BodyFiles {
            ids: vec![8],
            ..BodyFiles::default()
        }));
        message.host = message.keep(Some(b"transaction"));
        let row = HttpRow {
            request: Some(&message),
            response: None,
        };
        assert!(logs.record(&schemas.event("http", None, &row)).is_ok());
        assert!(logs.end().is_ok());
        let lines = fs::read_to_string(path).unwrap();
        let told: Vec<String> = lines
            .lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                format!("{} {}", line["event_type"], line["http"]["hostname"])
            })
            .collect();
        assert_eq!(
            told,
            [
                r#""fileinfo" null"#,
                r#""fileinfo" "transaction""#,
                r#""http" "transaction""#,
                r#""fileinfo" "own""#,
            ]
        );
    }

    #[test]
    fn a_certificate_is_in_the_line_of_its_handshake_and_has_none_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (mut logs, path) = eve_in(&folder);
        let mut schemas = EventSchemas::default();
        let certificate = X509Row {
            subject: "CN=a".to_owned(),
            ..X509Row::default()
        };
        let handshake = TlsRow {
            certificate: Some(Box::new(certificate.clone())),
            ..TlsRow::default()
        };
        let event = schemas.event("tls", Some(1 << 11), &handshake);
        assert!(logs.record(&event).is_ok());
        let event = schemas.event("x509", Some(1 << 11), &certificate);
        assert!(logs.record(&event).is_ok());
        assert!(logs.end().is_ok());
        let lines = fs::read_to_string(path).unwrap();
        assert_eq!(lines.lines().count(), 1);
        let line: serde_json::Value = serde_json::from_str(&lines).unwrap();
        assert_eq!(
            (&line["event_type"], &line["flow_id"]),
            (&"tls".into(), &1.into())
        );
        assert_eq!(line["tls"]["subject"], "CN=a");
        assert_eq!(logs.written, 1);
    }
}
