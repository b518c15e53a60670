//! Files with the bytes of streams, named as tcpflow names them.
//!
//! `192.168.001.102.50956-074.125.019.101.00080`: sender, then receiver; IPv6 addresses in their
//! usual form; `--42` behind it in VLAN 42; `c1`, `c2`... for later connections between the same
//! endpoints. Names are made of digits, letters, dots, colons and hyphens only, whatever the
//! packets say.
//!
//! A capture can hold more connections than a process may have open files. Small writes are
//! collected, and the file used longest ago is closed when another is needed; it is opened again
//! for its next bytes. What is collected is bounded, and so is what is known of connections that are
//! over: which numbers between two endpoints are taken can be seen in the folder. It must not hold
//! files of an earlier run, therefore.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgauge_stack::Failure;
use flowgauge_stream::{Chunk, Stream, StreamIdentity};
use flowgauge_sys::files::{How, named};
use flowgauge_wire::Address;
use lru::LruCache;
use parking_lot::Mutex;
use slab::Slab;

/// Files open at once; well below the usual limit of 1024.
const MAX_OPEN: usize = 256;

/// Bytes of one stream that are collected before they are written.
const COLLECTED: usize = 16 * 1024;

/// Bytes of memory for all that is collected and for what is known of connections, unless bounded
/// otherwise.
const MEMORY: u64 = 256 << 20;

/// Bytes of memory that a connection takes while it lasts, beside those of [`MEMORY`].
pub(super) const BYTES_PER_CONNECTION: u64 =
    2 * (size_of::<StreamFile>() + 128 + 4 * size_of::<u32>()) as u64;

/// The files of a run; shared by its workers.
#[derive(Clone)]
pub(super) struct StreamFiles(Arc<Mutex<Files>>);

struct Files {
    folder: PathBuf,
    fill_gaps: bool,
    /// What was named between two endpoints.
    connections: HashMap<Endpoints, Connections>,
    /// Those in which nothing lasts are forgotten when there are more than `forget_at`, which is
    /// `max_connections` unless about as many last.
    max_connections: usize,
    forget_at: usize,
    /// Whether some were: what is not known has to be looked for in the folder.
    forgotten: bool,
    /// Bytes collected, of all streams.
    collected: usize,
    max_collected: usize,
    /// The stream whose collected bytes were written last to make room.
    hand: usize,
    streams: Slab<StreamFile>,
    /// Files that are open, by their streams.
    open: LruCache<u32, File>,
    /// Files open at once; fewer than [`MAX_OPEN`] where the process may not have as many.
    limit: usize,
    written: u64,
    bytes: u64,
    /// Since then nothing is written.
    failure: Option<Failure>,
    is_told: bool,
}

type Endpoints = ((Address, u16), (Address, u16), Option<u16>);

/// The connections between two endpoints so far.
struct Connections {
    /// Number of the latest one.
    latest: u32,
    /// Its flow. Two connections that begin at the same instant can share one.
    flow_id: u64,
    /// Which of its directions have a file: the one from the lower endpoint, the other.
    named: [bool; 2],
    /// Directions that have a file and have not ended, of all connections.
    lasting: u32,
}

struct StreamFile {
    path: PathBuf,
    endpoints: Endpoints,
    collected: Vec<u8>,
    /// Where the next byte goes when gaps are filled.
    position: u64,
    created: bool,
}

impl StreamFiles {
    /// Makes the folder, if need be. `memory_bytes` bounds what is collected and known.
    ///
    /// # Errors
    /// When it cannot be made, or holds files of an earlier run.
    pub(super) fn create(
        folder: &Path,
        fill_gaps: bool,
        memory_bytes: Option<u64>,
    ) -> Result<StreamFiles, Failure> {
        named()
            .make_folders(folder, 0o777)
            .map_err(|error| failed("create", folder, error))?;
        refuse_earlier(folder)?;
        let half = memory_bytes.unwrap_or(MEMORY) / 2;
        let connection = 2 * size_of::<(Endpoints, Connections)>() as u64;
        Ok(StreamFiles(Arc::new(Mutex::new(Files {
            folder: folder.to_owned(),
            fill_gaps,
            connections: HashMap::new(),
            max_connections: (half / connection) as usize,
            forget_at: (half / connection) as usize,
            forgotten: false,
            collected: 0,
            max_collected: half as usize,
            hand: 0,
            streams: Slab::new(),
            open: LruCache::unbounded(),
            limit: MAX_OPEN,
            written: 0,
            bytes: 0,
            failure: None,
            is_told: false,
        }))))
    }

    /// Appends a chunk to the stream's file. `number` is 0 before its first bytes and is set then.
    pub(super) fn write(&self, number: &mut u32, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let mut files = self.0.lock();
        if files.failure.is_some() {
            return;
        }
        if *number == 0 {
            *number = files.begin(stream) + 1;
        }
        files.append(*number - 1, chunk);
    }

    /// The stream has ended.
    pub(super) fn close(&self, number: u32) {
        if let Some(number) = number.checked_sub(1) {
            self.0.lock().end(number);
        }
    }

    /// The first failure; it is told once.
    pub(super) fn failure(&self) -> Option<Failure> {
        let mut files = self.0.lock();
        let has_failed = files.failure.is_some();
        if core::mem::replace(&mut files.is_told, has_failed) {
            return None;
        }
        files.failure.clone()
    }

    /// Whether all could be written so far.
    pub(super) fn is_sound(&self) -> bool {
        self.0.lock().failure.is_none()
    }

    /// What was written, in a line.
    pub(super) fn summary(&self) -> String {
        let files = self.0.lock();
        let plural = |number: u64| if number == 1 { "" } else { "s" };
        format!(
            "{} file{} with {} byte{} in {}",
            files.written,
            plural(files.written),
            files.bytes,
            plural(files.bytes),
            files.folder.display()
        )
    }
}

/// What went wrong with a file or folder.
fn failed(action: &'static str, path: &Path, source: io::Error) -> Failure {
    let error = flowgauge_capture::Error::io(action, path)(source);
    Failure::of(&error, error.hint())
}

impl Files {
    fn begin(&mut self, stream: &Stream<'_>) -> u32 {
        let identity = stream.identity();
        let ends = (identity.source, identity.destination);
        let from_high = ends.0 > ends.1;
        let (low, high) = if from_high { (ends.1, ends.0) } else { ends };
        let endpoints = (low, high, identity.vlan);
        self.forget_some();
        if !self.connections.contains_key(&endpoints) {
            let known = Connections {
                // A later connection than those whose files are there.
                latest: self.first_free(&identity),
                flow_id: identity.flow_id,
                named: [false; 2],
                lasting: 0,
            };
            self.connections.insert(endpoints, known);
        }
        let mut connection = 0;
        if let Some(connections) = self.connections.get_mut(&endpoints) {
            // A direction begins once in a connection; when it begins again, this is the next one.
            let named = connections.named[usize::from(from_high)];
            if named || connections.flow_id != identity.flow_id {
                connections.latest += 1;
                connections.flow_id = identity.flow_id;
                connections.named = [false; 2];
            }
            connections.named[usize::from(from_high)] = true;
            connections.lasting += 1;
            connection = connections.latest;
        }
        let file = StreamFile {
            path: self.folder.join(file_name(&identity, connection)),
            endpoints,
            collected: Vec::new(),
            position: 0,
            created: false,
        };
        self.streams.insert(file) as u32
    }

    /// Forgets endpoints between which nothing lasts, when there are too many.
    fn forget_some(&mut self) {
        if self.connections.len() <= self.forget_at {
            return;
        }
        let before = self.connections.len();
        self.connections.retain(|_, known| known.lasting > 0);
        self.forgotten |= self.connections.len() < before;
        // Those that last cannot be forgotten, and are as many as the engine has flows at most. Not
        // to look at them each time, there may be as many more.
        self.forget_at = self.max_connections.max(2 * self.connections.len());
    }

    /// The first number that no connection between the endpoints has had. Numbers are given in turn,
    /// and each has at least one file.
    fn first_free(&self, identity: &StreamIdentity) -> u32 {
        let opposite = StreamIdentity {
            source: identity.destination,
            destination: identity.source,
            ..*identity
        };
        let is_taken = |number: u32| {
            [identity, &opposite].into_iter().any(|direction| {
                let path = self.folder.join(file_name(direction, number));
                named().has(&path)
            })
        };
        if !self.forgotten || !is_taken(0) {
            return 0;
        }
        let mut taken = 0;
        let mut free = 1;
        while is_taken(free) && free < 1 << 30 {
            taken = free;
            free *= 2;
        }
        while free - taken > 1 {
            let middle = taken + (free - taken) / 2;
            if is_taken(middle) {
                taken = middle;
            } else {
                free = middle;
            }
        }
        free
    }

    fn append(&mut self, number: u32, chunk: &Chunk<'_>) {
        let Some(stream) = self.streams.get_mut(number as usize) else {
            return;
        };
        let seeks = self.fill_gaps && chunk.gap_before > 0;
        let before = stream.collected.capacity();
        if !seeks && stream.collected.len() + chunk.bytes.len() <= COLLECTED {
            stream.collected.extend_from_slice(chunk.bytes);
            self.collected += stream.collected.capacity() - before;
            if self.collected > self.max_collected {
                self.write_some();
            }
            return;
        }
        self.write_out(number, &[]);
        if let Some(stream) = self.streams.get_mut(number as usize)
            && seeks
        {
            stream.position += chunk.gap_before;
        }
        self.write_out(number, chunk.bytes);
    }

    /// Writes what streams have collected, one after the other, until a quarter of the bound is free.
    #[cold]
    fn write_some(&mut self) {
        let enough = self.max_collected / 4 * 3;
        for _ in 0..self.streams.capacity() {
            if self.collected <= enough {
                break;
            }
            self.hand = (self.hand + 1) % self.streams.capacity();
            self.write_out(self.hand as u32, &[]);
        }
    }

    fn end(&mut self, number: u32) {
        self.write_out(number, &[]);
        self.open.pop(&number);
        if let Some(stream) = self.streams.try_remove(number as usize)
            && let Some(known) = self.connections.get_mut(&stream.endpoints)
        {
            known.lasting = known.lasting.saturating_sub(1);
        }
    }

    /// Writes what was collected, then `bytes`.
    fn write_out(&mut self, number: u32, bytes: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        self.failure = self.try_write_out(number, bytes).err();
    }

    fn try_write_out(&mut self, number: u32, bytes: &[u8]) -> Result<(), Failure> {
        let Some(stream) = self.streams.get_mut(number as usize) else {
            return Ok(());
        };
        if stream.collected.is_empty() && bytes.is_empty() {
            return Ok(());
        }
        let open = &mut self.open;
        while !open.contains(&number) {
            while open.len() >= self.limit && open.pop_lru().is_some() {}
            match self::open(&stream.path, !stream.created) {
                Ok(file) => {
                    self.written += u64::from(!stream.created);
                    stream.created = true;
                    open.push(number, file);
                }
                // The process may have fewer than we thought: make do with what there is.
                Err(error) if is_out_of_files(&error) && !open.is_empty() => {
                    self.limit = open.len()
                }
                Err(error) => return Err(failed("write", &stream.path, error)),
            }
        }
        let Some(file) = open.get_mut(&number) else {
            return Ok(());
        };
        let collected = stream.collected.capacity();
        let written = stream.write(file, bytes, &mut self.bytes);
        self.collected -= collected - stream.collected.capacity();
        written.map_err(|error| failed("write", &stream.path, error))
    }
}

impl StreamFile {
    /// Writes what was collected, then `bytes`; `count` counts what the file takes.
    fn write(&mut self, file: &mut File, bytes: &[u8], count: &mut u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.position))?;
        for part in [self.collected.as_slice(), bytes] {
            let mut rest = part;
            while !rest.is_empty() {
                let written = match file.write(rest) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                *count += written as u64;
                self.position += written as u64;
                rest = rest.get(written..).unwrap_or_default();
            }
        }
        self.collected = Vec::new();
        Ok(())
    }
}

/// Opens a regular file: one that must not be there yet, or one of this run again. Names follow from
/// packets, so anyone can foresee them: what a link points at is not touched, and no pipe is waited
/// for.
fn open(path: &Path, new: bool) -> io::Result<File> {
    let how = if new { How::new_file() } else { How::write() };
    let file = named()
        .open(path, how.without_link().without_waiting())
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) => not_ours("it was there before, and is left as it is"),
            Some(libc::ELOOP) => not_ours("it is a symbolic link now"),
            Some(libc::ENXIO) => not_ours("it is a pipe or socket now"),
            _ => error,
        })?;
    if !file.metadata()?.is_file() {
        return Err(not_ours("not a regular file"));
    }
    Ok(file)
}

/// Refuses a folder with files named as those of streams: what they hold could not be told from what
/// is written now.
fn refuse_earlier(folder: &Path) -> Result<(), Failure> {
    let names = named().list(folder);
    let names = names.map_err(|error| failed("read", folder, error))?;
    let earlier = names
        .into_iter()
        .find(|name| name.to_str().is_some_and(is_file_name));
    match earlier {
        None => Ok(()),
        Some(name) => Err(Failure::new(format!(
            "{} is a stream's file of an earlier run",
            folder.join(name).display()
        ))
        .with_hint("use an empty or new folder for `out`, or remove the files of that run")),
    }
}

/// Whether [`file_name`] can have made a name: two endpoints that end with ports of five digits.
fn is_file_name(name: &str) -> bool {
    let is_endpoint = |text: &str| {
        text.rsplit_once('.').is_some_and(|(address, port)| {
            port.len() == 5
                && port.bytes().all(|digit| digit.is_ascii_digit())
                && address
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':'))
        })
    };
    let Some((source, rest)) = name.split_once('-') else {
        return false;
    };
    let destination = without_number(without_number(rest, "c"), "--");
    is_endpoint(source) && is_endpoint(destination)
}

/// `text` without a number at its end that has `mark` in front.
fn without_number<'a>(text: &'a str, mark: &str) -> &'a str {
    let before = text.trim_end_matches(|last: char| last.is_ascii_digit());
    let marked = before.strip_suffix(mark);
    marked.filter(|_| before.len() < text.len()).unwrap_or(text)
}

fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn not_ours(what: &str) -> io::Error {
    let text = format!("{what}; give --out a folder that nobody else writes to");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The name of a direction's file.
fn file_name(stream: &StreamIdentity, connection: u32) -> String {
    let mut name = format!(
        "{}-{}",
        endpoint(stream.source, stream.version),
        endpoint(stream.destination, stream.version)
    );
    if let Some(vlan) = stream.vlan {
        name.push_str(&format!("--{vlan}"));
    }
    if connection > 0 {
        name.push_str(&format!("c{connection}"));
    }
    name
}

fn endpoint((address, port): (Address, u16), version: u8) -> String {
    if version == 4 {
        let [.., a, b, c, d] = address.0;
        return format!("{a:03}.{b:03}.{c:03}.{d:03}.{port:05}");
    }
    format!("{}.{port:05}", address.to_ip(version))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use flowgauge_wire::Nanos;

    use super::*;

    fn identity(flow_id: u64, port: u16) -> StreamIdentity {
        StreamIdentity {
            flow_id,
            version: 4,
            protocol: 6,
            source: (Address::v4([192, 168, 1, 102]), port),
            destination: (Address::v4([74, 125, 19, 101]), 80),
            ..StreamIdentity::default()
        }
    }

    /// Writes a chunk of a new stream.
    fn write(files: &StreamFiles, number: &mut u32, identity: &StreamIdentity, chunk: &Chunk<'_>) {
        files.write(number, &Stream::detached(0, identity), chunk);
    }

    fn chunk(bytes: &[u8], gap_before: u64) -> Chunk<'_> {
        Chunk {
            bytes,
            offset: 0,
            gap_before,
            skipped: 0,
            time: Nanos::ZERO,
            captured: Nanos::ZERO,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("flowgauge-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn names_are_those_of_tcpflow() {
        let tagged = StreamIdentity {
            vlan: Some(42),
            ..identity(1, 50956)
        };
        assert_eq!(
            file_name(&identity(1, 50956), 0),
            "192.168.001.102.50956-074.125.019.101.00080"
        );
        assert_eq!(
            file_name(&tagged, 1),
            "192.168.001.102.50956-074.125.019.101.00080--42c1"
        );
        let mut ipv6 = identity(1, 59201);
        ipv6.version = 6;
        let text = "2001:6f8:102d:0:2d0:9ff:fee3:e8de";
        let address: std::net::Ipv6Addr = text.parse().unwrap();
        ipv6.source.0 = Address(address.octets());
        ipv6.destination.0 = Address(std::net::Ipv6Addr::LOCALHOST.octets());
        assert_eq!(file_name(&ipv6, 0), format!("{text}.59201-::1.00080"));
    }

    #[test]
    fn more_streams_than_open_files_and_every_byte_arrives() {
        let path = folder("many");
        let files = StreamFiles::create(&path, false, None).unwrap();
        let mut numbers = vec![0; 3 * MAX_OPEN];
        let large = vec![7; COLLECTED + 1];
        for round in 0..3 {
            for (port, number) in (1..).zip(&mut numbers) {
                write(
                    &files,
                    number,
                    &identity(u64::from(port), port),
                    &chunk(&large, 0),
                );
                write(
                    &files,
                    number,
                    &identity(u64::from(port), port),
                    &chunk(&[round], 0),
                );
            }
            assert!(files.0.lock().open.len() <= MAX_OPEN);
        }
        for number in numbers {
            files.close(number);
        }
        assert_eq!(files.failure(), None);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3 * MAX_OPEN);
        let content = fs::read(path.join(file_name(&identity(1, 9), 0))).unwrap();
        assert_eq!(content.len(), 3 * (COLLECTED + 2));
        assert_eq!(content[COLLECTED + 1], 0);
        assert_eq!(content.last(), Some(&2));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn later_connections_get_a_number_and_gaps_are_filled_on_demand() {
        let path = folder("gaps");
        let files = StreamFiles::create(&path, true, None).unwrap();
        for flow_id in [1, 2] {
            let mut number = 0;
            write(&files, &mut number, &identity(flow_id, 5), &chunk(b"ab", 0));
            write(&files, &mut number, &identity(flow_id, 5), &chunk(b"cd", 3));
            files.close(number);
        }
        let first = path.join(file_name(&identity(1, 5), 0));
        let second = path.join(file_name(&identity(1, 5), 1));
        assert_eq!(fs::read(first).unwrap(), b"ab\0\0\0cd");
        assert_eq!(fs::read(second).unwrap(), b"ab\0\0\0cd");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn connections_of_one_flow_id_have_a_file_each() {
        let path = folder("same");
        let files = StreamFiles::create(&path, false, None).unwrap();
        for content in [b"first", b"later"] {
            let mut number = 0;
            write(&files, &mut number, &identity(1, 5), &chunk(content, 0));
            files.close(number);
        }
        let read = |connection| fs::read(path.join(file_name(&identity(1, 5), connection)));
        assert_eq!(read(0).unwrap(), b"first");
        assert_eq!(read(1).unwrap(), b"later");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn names_of_streams_are_recognised() {
        let tagged = StreamIdentity {
            vlan: Some(42),
            ..identity(1, 50956)
        };
        let mut ipv6 = identity(1, 59201);
        ipv6.version = 6;
        ipv6.source.0 = Address(std::net::Ipv6Addr::LOCALHOST.octets());
        ipv6.destination.0 = Address("fe80::c".parse::<std::net::Ipv6Addr>().unwrap().octets());
        for identity in [identity(1, 5), tagged, ipv6] {
            for connection in [0, 1, 1234] {
                let name = file_name(&identity, connection);
                assert!(is_file_name(&name), "{name}");
            }
        }
        for name in ["report.xml", "a-b", "notes-2024.00001.txt", "1.00001-", ""] {
            assert!(!is_file_name(name), "{name}");
        }
    }

    #[test]
    fn files_of_an_earlier_run_are_refused_and_others_left_alone() {
        let path = folder("earlier");
        let files = StreamFiles::create(&path, false, None).unwrap();
        let mut number = 0;
        write(&files, &mut number, &identity(1, 5), &chunk(b"ab", 0));
        files.close(number);
        let error = StreamFiles::create(&path, false, None).err().unwrap();
        let name = file_name(&identity(1, 5), 0);
        assert!(error.message.contains(&name), "{error:?}");
        fs::rename(path.join(name), path.join("kept.txt")).unwrap();
        assert!(StreamFiles::create(&path, false, None).is_ok());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn memory_is_bounded_and_every_byte_arrives() {
        const BOUND: u64 = 64 * 1024;
        const PORTS: u16 = 400;
        const MANY: u16 = 1000;
        let path = folder("memory");
        let files = StreamFiles::create(&path, false, Some(BOUND)).unwrap();
        let max = files.0.lock().max_connections;
        // Streams side by side that together collect more than there is room for.
        let mut numbers = vec![0; usize::from(PORTS)];
        for round in 0..4 {
            for (port, number) in (1..).zip(&mut numbers) {
                let identity = identity(port.into(), port);
                write(&files, number, &identity, &chunk(&[round; 100], 0));
                let held = files.0.lock();
                assert!(held.collected as u64 <= BOUND / 2 + 1024);
            }
        }
        numbers.into_iter().for_each(|number| files.close(number));
        assert_eq!(files.0.lock().collected, 0);
        // Connections between the same endpoints again and again, among very many others.
        for round in 0..4 {
            for port in 1..=MANY {
                let flow_id = u64::from(round) * 1000 + u64::from(port) + 10_000;
                let mut number = 0;
                write(
                    &files,
                    &mut number,
                    &identity(flow_id, port),
                    &chunk(&[round], 0),
                );
                files.close(number);
                let bound = if round == 0 {
                    2 * usize::from(PORTS)
                } else {
                    max
                };
                assert!(files.0.lock().connections.len() <= bound + 1);
            }
        }
        assert!(files.0.lock().forgotten);
        assert_eq!(files.failure(), None);
        let read =
            |port, connection| fs::read(path.join(file_name(&identity(1, port), connection)));
        for port in [1, 77, PORTS, MANY] {
            let mut next = 0;
            if port <= PORTS {
                let first: Vec<u8> = (0..4).flat_map(|round| [round; 100]).collect();
                assert_eq!(read(port, 0).unwrap(), first);
                next = 1;
            }
            for round in 0..4 {
                assert_eq!(read(port, next + u32::from(round)).unwrap(), [round]);
            }
        }
        let count = usize::from(PORTS) + 4 * usize::from(MANY);
        assert_eq!(fs::read_dir(&path).unwrap().count(), count);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn links_are_not_followed() {
        let path = folder("links");
        let files = StreamFiles::create(&path, false, None).unwrap();
        let target = path.join("target");
        fs::write(&target, "kept").unwrap();
        let link = path.join(file_name(&identity(1, 5), 0));
        std::os::unix::fs::symlink(&target, link).unwrap();
        let mut number = 0;
        write(&files, &mut number, &identity(1, 5), &chunk(b"ab", 0));
        files.close(number);
        let error = files.failure().unwrap().message;
        assert!(error.to_string().contains("was there before"), "{error}");
        assert_eq!(fs::read(target).unwrap(), b"kept");
        fs::remove_dir_all(path).unwrap();
    }
}
