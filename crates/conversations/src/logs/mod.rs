//! `logs`: records of many kinds in the formats of other systems.

mod dns;
mod eve;
mod flow_members;
mod members;
mod names;
mod texts;
mod values;
mod zeek;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flowgauge_kit::engine::COMMUNITY_ID_SEED;
use flowgauge_kit::file_name;
use flowgauge_record::text::TimeWriter;
use flowgauge_record::{AnyRecord, Encoder, Format};
use flowgauge_stack::{
    Component, ComponentInfo, Failure, Input, ItemType, Items, Outlet, Parallel, ResultInfo,
    ResultValue, SettingError, Settings, options,
};
use flowgauge_sys::files::{self, How};
use flowgauge_wire::Nanos;
use values::Cell;
pub(crate) use values::{Looking, Name, Values};

options! {
    struct Options;
    format: Choice("eve", "zeek", "zeek-json") = "eve", "whose logs";
    file: OutputFile = "-", "where to: a file for eve, a folder for zeek; - is standard output; with fields of strftime, filled \
     in once";
    [COMMUNITY_ID_SEED];
}

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "logs",
    summary: "writes records as Suricata or Zeek do, and passes them on",
    help: "eve: lines of Suricata's EVE log, in one file. zeek: logs of Zeek, a file each (conn.log, http.log, \
           dns.log, ssl.log, ...) in a folder, with its header; zeek-json: the same with a JSON object per \
           line. On standard output they follow one another. A file that was moved or deleted is created again \
           within a second, for log rotation. Records are those of transactions; kinds that Zeek has no names \
           for are written with all their fields.",
    input: Input::Of(&[ItemType::Record]),
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("records written", "records")),
    parallel: Parallel::Never("it writes one file"),
    effects: true,
    make,
    ..flowgauge_kit::OF_PACKETS
};

/// Bytes that are collected before they are written.
const BUFFER: usize = 64 << 10;
/// How long they may wait.
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
    style: Style,
    name: file_name::Name,
    /// What it is, where that is known.
    path: Option<String>,
    looking: Looking,
    lines: eve::Lines,
    time: TimeWriter,
    encoder: Encoder,
    /// By name.
    files: Vec<(String, LogFile)>,
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
    Ok(Box::new(Logs {
        looking: Looking::with_seed(seed),
        ..Logs::new(style, name)
    }))
}

/// A file, and what is to be written to it.
struct LogFile {
    /// None: standard output.
    path: Option<PathBuf>,
    file: Option<(File, u64)>,
    header: Vec<u8>,
    pending: Vec<u8>,
}

/// Why it writes no more.
enum Stop {
    /// The reader went away.
    NotWanted,
    Failed(Failure),
}

fn failure(what: &str, path: Option<&Path>, error: &io::Error) -> Stop {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Stop::NotWanted;
    }
    let name = path.map_or("the output".to_owned(), |path| path.display().to_string());
    Stop::Failed(Failure {
        message: format!("cannot {what} {name}: {error}"),
        hint: match error.kind() {
            io::ErrorKind::StorageFull => Some("free space, or write elsewhere".to_owned()),
            io::ErrorKind::FileTooLarge => {
                Some("a file may not be larger here (ulimit -f): raise that".to_owned())
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Some("check the path".to_owned())
            }
            _ => None,
        },
    })
}

impl LogFile {
    fn new(path: Option<PathBuf>, header: Vec<u8>) -> LogFile {
        LogFile {
            path,
            file: None,
            header,
            pending: Vec::new(),
        }
    }

    /// Opens the file; one that is there is begun anew at first, and gone on with later.
    fn open(&mut self, truncate: bool) -> Result<(), Stop> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let how = match truncate {
            true => How::replace(),
            false => How::append(),
        };
        let file = files::named().open(path, how);
        let file = file.map_err(|error| failure("create", Some(path), &error))?;
        let meta = file
            .metadata()
            .map_err(|error| failure("read", Some(path), &error))?;
        self.file = Some((file, meta.ino()));
        if truncate || meta.len() == 0 {
            self.pending.splice(0..0, self.header.iter().copied());
        }
        Ok(())
    }

    /// Writes what is pending where it is much.
    #[inline]
    fn flush_full(&mut self) -> Result<(), Stop> {
        match self.pending.len() >= BUFFER {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes what is pending.
    fn flush(&mut self) -> Result<(), Stop> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.path.is_some() && self.file.is_none() {
            self.open(true)?;
        }
        let written = match &mut self.file {
            Some((file, _)) => file.write_all(&self.pending),
            None => {
                let mut output = io::stdout().lock();
                output
                    .write_all(&self.pending)
                    .and_then(|()| output.flush())
            }
        };
        self.pending.clear();
        written.map_err(|error| failure("write", self.path.as_deref(), &error))
    }

    /// Begins a new file where the old one was moved away.
    fn look(&mut self) -> Result<(), Stop> {
        let (Some(path), Some((_, inode))) = (&self.path, &self.file) else {
            return Ok(());
        };
        let about = files::named().metadata(path);
        let is_same = about.is_ok_and(|meta| meta.ino() == *inode);
        if is_same {
            return Ok(());
        }
        self.flush()?;
        self.open(false)
    }
}

impl Logs {
    fn new(style: Style, name: file_name::Name) -> Logs {
        Logs {
            style,
            path: name.constant(),
            name,
            looking: Looking::default(),
            lines: eve::Lines::default(),
            time: TimeWriter::default(),
            encoder: Encoder::new(Format::Json),
            files: Vec::new(),
            known: zeek::Known::default(),
            leases: zeek::Leases::default(),
            flushed: Instant::now(),
            looked: Instant::now(),
            written: 0,
        }
    }

    /// Finds what cannot be written before there is anything to write.
    fn prepare(&self) -> Result<(), Failure> {
        let path = Path::new(self.path.as_deref().unwrap_or("-"));
        let made = match self.style {
            Style::Eve => files::named().open(path, How::append()).map(drop),
            Style::Zeek | Style::ZeekJson => files::named().make_folders(path, 0o777),
        };
        match made.map_err(|error| failure("create", Some(path), &error)) {
            Err(Stop::Failed(failure)) => Err(failure),
            _ => Ok(()),
        }
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
        let path = self.path.as_deref().unwrap_or("-");
        self.written += 1;
        let style = self.style;
        if style == Style::Eve {
            // The certificate is in the line of its handshake.
            if kind == "x509" {
                self.written -= 1;
                return Ok(());
            }
            let file = file(&mut self.files, "eve", (path, style), |_| {});
            self.lines.add(record, values, &mut file.pending);
            return file.flush_full();
        }
        let Some(first) = zeek::log(kind) else {
            // One of a kind that Zeek has not: as it is, a JSON object per line.
            let name = if kind.is_empty() { "records" } else { kind };
            let file = file(&mut self.files, name, (path, style), |_| {});
            record.encode(&mut self.encoder, &mut file.pending);
            return file.flush_full();
        };
        if kind == "x509" && self.known.has(values) {
            self.written -= 1;
            return Ok(());
        }
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
        let (path, style) = (self.path.as_deref().unwrap_or("-"), self.style);
        let header = |out: &mut Vec<u8>| log.header(out);
        let file = file(&mut self.files, log.path, (path, style), header);
        let (time, out) = (&mut self.time, &mut file.pending);
        match style {
            Style::ZeekJson => log.object(cells, path == "-", time, out),
            _ => zeek::Log::line(cells, time, out),
        }
        file.flush_full()
    }

    /// Lines of what is not waited for any more; without a time of all.
    fn due(&mut self, now: Option<Nanos>) -> Result<(), Stop> {
        while let Some(mut lease) = self.leases.due(now) {
            self.line(&zeek::DHCP, lease.cells())?;
        }
        Ok(())
    }

    fn each(&mut self, work: fn(&mut LogFile) -> Result<(), Stop>) -> Result<(), Stop> {
        self.files.iter_mut().try_for_each(|(_, file)| work(file))
    }
}

/// The file of a log in a file or folder, made when it is wanted first.
fn file<'a>(
    files: &'a mut Vec<(String, LogFile)>,
    name: &str,
    (path, style): (&str, Style),
    header: impl FnOnce(&mut Vec<u8>),
) -> &'a mut LogFile {
    let place = match files.binary_search_by(|(of, _)| of.as_str().cmp(name)) {
        Ok(place) => place,
        Err(place) => {
            let target = match (path, style) {
                ("-", _) => None,
                (path, Style::Eve) => Some(PathBuf::from(path)),
                (folder, _) => Some(Path::new(folder).join(format!("{name}.log"))),
            };
            let mut lines = Vec::new();
            if style == Style::Zeek {
                header(&mut lines);
            }
            let mut file = LogFile::new(target, lines);
            if file.path.is_none() {
                file.pending.clone_from(&file.header);
            }
            files.insert(place, (name.to_owned(), file));
            place
        }
    };
    &mut files[place].1
}

fn stop(result: Result<(), Stop>, out: &mut dyn Outlet) {
    match result {
        Ok(()) => {}
        Err(Stop::NotWanted) => out.end(),
        Err(Stop::Failed(failure)) => out.fail(failure),
    }
}

impl Component for Logs {
    fn start(&mut self) -> Result<(), Failure> {
        match self.path.as_deref() {
            None => self.name.check_folder(),
            Some("-") => Ok(()),
            Some(_) => self.prepare(),
        }
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            if let (None, Some(first)) = (&self.path, records.first()) {
                self.path = Some(self.name.evaluate(first.time, 1, Vec::new));
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
            stop(self.each(LogFile::flush), out);
        }
        if now.duration_since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            stop(self.each(LogFile::look), out);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        if let (Style::Eve, Some((_, file))) = (self.style, self.files.first_mut()) {
            self.lines.finish(&mut file.pending);
        }
        let due = self.due(None);
        stop(due.and_then(|()| self.each(LogFile::flush)), out);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.written))
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

    #[test]
    fn a_file_that_was_moved_is_begun_anew_with_its_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.log");
        let mut file = LogFile::new(Some(path.clone()), b"#head\n".to_vec());
        let put = |file: &mut LogFile, line: &str| {
            file.pending.extend_from_slice(line.as_bytes());
            assert!(file.look().is_ok() && file.flush().is_ok());
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
        let mut file = LogFile::new(Some(path.clone()), b"#head\n".to_vec());
        file.pending.extend_from_slice(b"new\n");
        assert!(file.flush().is_ok());
        assert_eq!(fs::read_to_string(&path).unwrap(), "#head\nnew\n");
    }

    #[test]
    fn the_line_of_a_file_has_what_its_transaction_says() {
        let name = file_name::Name::read_of_one(&Settings::new(Vec::new()), "file").unwrap();
        let mut logs = Logs::new(Style::Eve, name);
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
        let [(_, file)] = &mut logs.files[..] else {
            panic!("one file");
        };
        logs.lines.finish(&mut file.pending);
        let lines = file.pending.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        let told: Vec<String> = lines
            .map(|line| {
                let line: serde_json::Value = serde_json::from_slice(line).unwrap();
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
        let name = file_name::Name::read_of_one(&Settings::new(Vec::new()), "file").unwrap();
        let mut logs = Logs::new(Style::Eve, name);
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
        let [(_, file)] = &logs.files[..] else {
            panic!("one file");
        };
        let lines = &file.pending;
        let lines: Vec<&[u8]> = lines.split_inclusive(|byte| *byte == b'\n').collect();
        assert_eq!(lines.len(), 1);
        let line: serde_json::Value = serde_json::from_slice(lines[0]).unwrap();
        assert_eq!(
            (&line["event_type"], &line["flow_id"]),
            (&"tls".into(), &1.into())
        );
        assert_eq!(line["tls"]["subject"], "CN=a");
        assert_eq!(logs.written, 1);
    }
}
