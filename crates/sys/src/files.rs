//! Files by the names that users give them, on the command line or in a stack.
//!
//! A [`Folder`] is what a name is looked up in: anywhere, as the command line of a local user has it, or beneath one
//! folder, whose descriptor is all there is to reach: `openat2` with `RESOLVE_BENEATH` (Linux 5.6) refuses
//! absolute names, `..` and symbolic links that lead out, however a name came about. A process is confined to a
//! folder once ([`Folder::confine`]) and for good; from then on [`named`] is that folder.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, accessat};
use rustix::io::Errno;

use crate::ending::without_stop;
use crate::privileges;

/// Lookups that are tried where others rename folders meanwhile.
const TRIES: u32 = 64;
/// Symbolic links that a name may lead through, as in the kernel.
const MOST_LINKS: u32 = 40;
/// What `fstatfs` says of /proc.
const PROC_MAGIC: u64 = 0x9fa0;

/// What `fstatfs` says of file systems whose files need not be on a disk: whoever serves them, or the kernel, can have who reads
/// or writes wait for ever. FUSE, /proc, /sys, and two of the kernel's for debugging.
const SERVED: [u64; 5] = [
    0x6573_5546,
    PROC_MAGIC,
    0x6265_6572,
    0x7472_6163,
    0x6462_6720,
];

/// A file system of layers, which may be served ones where a user mounted it (in a namespace of the user's).
const LAYERED: u64 = 0x794c_7630;

/// Whether this process writes to no named pipe.
static NO_PIPES: AtomicBool = AtomicBool::new(false);
const A_PIPE: &str = "it is a named pipe, whose reader could keep everybody waiting";

static OF_PROCESS: OnceLock<Folder> = OnceLock::new();
static ANYWHERE: Folder = Folder(None);

/// Files that others have opened, by their number.
static HANDED: Mutex<BTreeMap<u64, File>> = Mutex::new(BTreeMap::new());

/// A file that somebody else has opened and handed over, which this process opens by a name while this exists: that which the
/// other one knows it by, and a mark.
#[derive(Debug)]
pub struct Handed {
    number: u64,
    known_as: u64,
    ending: String,
}

/// The mark, before a number that no other file has.
pub const HANDED_MARK: &str = "#handed:";

impl Handed {
    /// Takes a regular file on a disk or in memory, open to be written, which is `fd:`, a number and maybe an ending to who handed
    /// it over.
    ///
    /// # Errors
    /// It is none.
    pub fn new(file: OwnedFd, known_as: (u64, &str)) -> io::Result<Handed> {
        check_handed(&file, OFlags::WRONLY)?;
        let number = next_handed();
        HANDED.lock().insert(number, file.into());
        let (known_as, ending) = known_as;
        Ok(Handed {
            number,
            known_as,
            ending: ending.to_owned(),
        })
    }

    /// By which name it is opened.
    pub fn name(&self) -> String {
        let Handed {
            number, known_as, ..
        } = self;
        format!("fd:{known_as}{HANDED_MARK}{number}{}", self.ending)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        HANDED.lock().remove(&self.number);
    }
}

/// A number for what another process has opened.
pub(crate) fn next_handed() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// The number and the ending in a name of the form `fd:0` or `fd:0.json`, with a mark behind the number or not. The ending says
/// what is written.
pub fn handed(name: &str) -> Option<(u64, &str)> {
    let (number, rest) = number_before(name.strip_prefix("fd:")?)?;
    let ending = match rest.strip_prefix(HANDED_MARK) {
        Some(marked) => number_before(marked)?.1,
        None => rest,
    };
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_ending = ending.is_empty() || ending.starts_with('.') && ending.chars().all(is_good);
    is_ending.then_some((number, ending))
}

/// A number, and what follows it.
fn number_before(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    Some((digits.parse().ok()?, rest))
}

/// A message without marks in the names of files.
pub fn without_marks(message: &str) -> String {
    let mut parts = message.split(HANDED_MARK);
    let mut without = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        without += part.trim_start_matches(|letter: char| letter.is_ascii_digit());
    }
    without
}

/// A file that somebody else has opened to be read: from its beginning, wherever the other one stands in it.
#[derive(Debug)]
pub struct HandedInput {
    file: File,
    at: u64,
}

impl HandedInput {
    /// Takes a regular file on a disk or in memory, open to be read.
    ///
    /// # Errors
    /// It is none.
    pub fn new(file: OwnedFd) -> io::Result<HandedInput> {
        check_handed(&file, OFlags::RDONLY)?;
        let file = file.into();
        Ok(HandedInput { file, at: 0 })
    }

    /// The same file once more, from its beginning.
    ///
    /// # Errors
    /// The system's.
    pub fn again(&self) -> io::Result<HandedInput> {
        let file = self.file.try_clone()?;
        Ok(HandedInput { file, at: 0 })
    }
}

impl Read for HandedInput {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(to, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Whether a file that came from elsewhere is open like this, and such that nobody waits at it.
fn check_handed(file: &OwnedFd, how: OFlags) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    let access = flags & OFlags::RWMODE;
    let about = rustix::fs::fstat(file)?;
    let kind = rustix::fs::fstatfs(file)?.f_type as u64;
    // That of a container is its root.
    let is_foreign = || rustix::fs::stat("/").is_ok_and(|root| root.st_dev != about.st_dev);
    let wrong = if flags.contains(OFlags::PATH) || (access != OFlags::RDWR && access != how) {
        Some("it is not open to be read, or written")
    } else if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        Some("not a regular file")
    } else if SERVED.contains(&kind) || kind == LAYERED && is_foreign() {
        Some("it is on a file system that is not a disk's")
    } else {
        None
    };
    wrong.map_or(Ok(()), |wrong| {
        Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
    })
}

/// What names that users give are looked up in: anywhere, unless the process is confined.
pub fn named() -> &'static Folder {
    OF_PROCESS.get().unwrap_or(&ANYWHERE)
}

/// Whether this process could write a file there, which need not be there yet. Changes nothing.
///
/// # Errors
/// Why not.
pub fn check_writable(path: &Path) -> io::Result<()> {
    let may = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    Ok(match may(path, Access::WRITE_OK) {
        Err(Errno::NOENT) => may(
            folder.unwrap_or(Path::new(".")),
            Access::WRITE_OK | Access::EXEC_OK,
        ),
        found => found,
    }?)
}

/// From now on no name leads this process to a named pipe to write to: it would wait for whoever is to read, at the latest when that
/// one stops.
pub fn refuse_pipes() {
    NO_PIPES.store(true, Ordering::Relaxed);
}

/// What a name is looked up in. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Folder(Option<Arc<OwnedFd>>);

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct How {
    flags: OFlags,
    mode: u32,
}

impl How {
    /// To be read.
    pub const fn read() -> How {
        How::of(OFlags::RDONLY)
    }

    /// To be written from its beginning: made where it is not there, emptied where it is.
    pub const fn replace() -> How {
        How::of(OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::TRUNC))
    }

    /// To be written at its end: made where it is not there.
    pub const fn append() -> How {
        How::of(OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::APPEND))
    }

    /// To be written; it must not be there.
    pub const fn new_file() -> How {
        How::of(OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL))
    }

    /// To be written from its beginning: made where it is not there. What is in it stays until it is written, or emptied by
    /// whom it is [`Handed`] to.
    pub const fn keep() -> How {
        How::of(OFlags::WRONLY.union(OFlags::CREATE))
    }

    /// To be written; it must be there.
    pub const fn write() -> How {
        How::of(OFlags::WRONLY)
    }

    const fn of(flags: OFlags) -> How {
        How {
            flags: flags.union(OFlags::CLOEXEC),
            mode: 0o666,
        }
    }

    /// To be read as well as written.
    #[must_use]
    pub const fn and_read(self) -> How {
        let flags = self.flags.difference(OFlags::WRONLY);
        How {
            flags: flags.union(OFlags::RDWR),
            ..self
        }
    }

    /// One that is made has these permissions, as far as the umask leaves them.
    #[must_use]
    pub const fn mode(self, mode: u32) -> How {
        How { mode, ..self }
    }

    /// Nobody is waited for at a pipe's other end.
    #[must_use]
    pub const fn without_waiting(self) -> How {
        How {
            flags: self.flags.union(OFlags::NONBLOCK),
            ..self
        }
    }

    /// The name is no symbolic link (`ELOOP`).
    #[must_use]
    pub const fn without_link(self) -> How {
        How {
            flags: self.flags.union(OFlags::NOFOLLOW),
            ..self
        }
    }

    fn changes_files(self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    }
}

impl Folder {
    /// Names lead anywhere.
    pub const fn anywhere() -> Folder {
        Folder(None)
    }

    /// Names lead to what is in this folder, which is itself found by the process's means.
    ///
    /// # Errors
    /// It is not there or is no folder; `Unsupported` where the kernel has no `openat2`.
    pub fn beneath(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty())?;
        let folder = Folder(Some(Arc::new(opened)));
        match folder.look_up(Path::new("."), flags, Mode::empty()) {
            Ok(_) => Ok(folder),
            Err(Errno::NOSYS | Errno::PERM) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel cannot keep a process to a folder (openat2: Linux 5.6)",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// From now on all names that users give this process lead to what is in the folder, and nothing undoes it.
    ///
    /// # Errors
    /// The process is confined already.
    pub fn confine(self) -> io::Result<()> {
        OF_PROCESS
            .set(self)
            .map_err(|_| io::Error::other("the process is confined to a folder already"))
    }

    /// Whether names lead anywhere.
    pub fn is_anywhere(&self) -> bool {
        self.0.is_none()
    }

    /// The folder itself; `None`: anywhere.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|folder| folder.as_fd())
    }

    /// Opens a file, one that was [`Handed`] over among them.
    ///
    /// Root does not write through a symbolic link that another user made, wherever in a name it is: who may write into a
    /// folder could have root write elsewhere. (`fs.protected_symlinks` does the same for folders as /tmp.)
    ///
    /// # Errors
    /// The system's; `PermissionDenied` where the name leads out, or through such a link.
    pub fn open(&self, path: &Path, how: How) -> io::Result<File> {
        let name = path.to_str().and_then(|name| name.strip_prefix("fd:"));
        let number = name.and_then(|name| name.split_once(HANDED_MARK));
        if let Some((_, number)) = number
            && let Some((number, _)) = number_before(number)
            && let Some(file) = HANDED.lock().get(&number)
        {
            let mut file = file.try_clone()?;
            if how.flags.contains(OFlags::TRUNC) {
                // Who handed it over may have begun it.
                let begun = file.stream_position()?;
                file.set_len(begun)?;
            }
            return Ok(file);
        }
        let mode = Mode::from_raw_mode(how.mode);
        let opened = match how.changes_files() {
            true => self.to_change(path, how.flags, mode),
            false => (self.look_up(path, how.flags, mode)).map_err(|error| self.explain(error)),
        };
        opened.map(File::from)
    }

    /// All of a file, if that is no more than `limit` bytes: a device that never ends is not read on.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        read_limited(self.open(path, How::read())?, limit)
    }

    /// What is known of a file, of the one that a link leads to.
    ///
    /// # Errors
    /// The system's; it is not there.
    pub fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.about(path, OFlags::PATH)
    }

    /// Whether there is something of this name, be it a link that leads nowhere.
    pub fn has(&self, path: &Path) -> bool {
        self.about(path, OFlags::PATH | OFlags::NOFOLLOW).is_ok()
    }

    /// Whether there is a folder of this name.
    pub fn is_folder(&self, path: &Path) -> bool {
        self.metadata(path).is_ok_and(|about| about.is_dir())
    }

    /// Whether a folder, and no link to one, has this name.
    pub fn is_own_folder(&self, path: &Path) -> bool {
        let about = self.about(path, OFlags::PATH | OFlags::NOFOLLOW);
        about.is_ok_and(|about| about.is_dir())
    }

    /// Whether there is a regular file of this name.
    pub fn is_file(&self, path: &Path) -> bool {
        self.metadata(path).is_ok_and(|about| about.is_file())
    }

    fn about(&self, path: &Path, flags: OFlags) -> io::Result<Metadata> {
        let opened = self.look_up(path, flags | OFlags::CLOEXEC, Mode::empty());
        File::from(opened.map_err(|error| self.explain(error))?).metadata()
    }

    /// The names in a folder, in no order, without `.` and `..`.
    ///
    /// # Errors
    /// The system's.
    pub fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = self.look_up(path, flags, Mode::empty());
        let mut names = Vec::new();
        for entry in Dir::new(opened.map_err(|error| self.explain(error))?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// The folder of a name, to write in it: names in it lead to what is beneath.
    ///
    /// # Errors
    /// The system's; it is no folder.
    pub fn folder(&self, path: &Path) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = self.to_change(path, flags, Mode::empty())?;
        Ok(Folder(Some(Arc::new(opened))))
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// The system's; `AlreadyExists`.
    pub fn make_folder(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::mkdirat(
            parent,
            name,
            Mode::from_raw_mode(mode),
        )?)
    }

    /// Makes a folder and those that it is in; one that is there is good.
    ///
    /// # Errors
    /// The system's; something of the name is no folder.
    pub fn make_folders(&self, path: &Path, mode: u32) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        match self.metadata(path) {
            Ok(about) if about.is_dir() => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(parent) = path.parent() {
            self.make_folders(parent, mode)?;
        }
        match self.make_folder(path, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            // Of others that make it at the same time one was first.
            _ if self.is_folder(path) => Ok(()),
            _ => Err(Errno::EXIST.into()),
        }
    }

    /// Gives a file another name, in place of what has it.
    ///
    /// # Errors
    /// The system's.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((old, from), (new, to)) = (self.parent(from)?, self.parent(to)?);
        Ok(rustix::fs::renameat(old, from, new, to)?)
    }

    /// Gives a file a second name, which nothing may have.
    ///
    /// # Errors
    /// The system's; `AlreadyExists`.
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((old, from), (new, to)) = (self.parent(from)?, self.parent(to)?);
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(old, from, new, to, flags)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?)
    }

    /// Removes a folder in which nothing is left.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// The folder that a name is in, open, and the name there.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = parent_of(path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok((self.to_change(parent, flags, Mode::empty())?, name))
    }

    /// What is opened to change something by it.
    fn to_change(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        // A folder is no pipe, and the kernel takes no further flags for one.
        if NO_PIPES.load(Ordering::Relaxed) && !flags.contains(OFlags::PATH) {
            let opened = self.to_write(path, flags | OFlags::NONBLOCK, mode);
            let is_pipe = match &opened {
                Ok(file) => {
                    FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) == FileType::Fifo
                }
                Err(error) => error.raw_os_error() == Some(Errno::NXIO.raw_os_error()),
            };
            return match is_pipe {
                true => Err(io::Error::new(io::ErrorKind::InvalidInput, A_PIPE)),
                false => opened,
            };
        }
        self.to_write(path, flags, mode)
    }

    fn to_write(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        if self.is_anywhere() && privileges::is_root() {
            return past_links_of_others(path, flags, mode);
        }
        let opened = self.look_up(path, flags, mode);
        opened.map_err(|error| self.explain(error))
    }

    fn look_up(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let Some(folder) = &self.0 else {
            return open_at(CWD, path, flags, mode);
        };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // The kernel takes no permissions for what is not made.
        let mode = match flags.contains(OFlags::CREATE) {
            true => mode,
            false => Mode::empty(),
        };
        let mut last = Errno::AGAIN;
        for _ in 0..TRIES {
            match rustix::fs::openat2(folder, path, flags, mode, within) {
                Err(error @ (Errno::AGAIN | Errno::INTR)) => last = error,
                opened => return opened,
            }
        }
        Err(last)
    }

    fn explain(&self, error: Errno) -> io::Error {
        match error {
            Errno::XDEV if !self.is_anywhere() => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is not in the folder that this run is kept to",
            ),
            error => error.into(),
        }
    }
}

/// Gives a file, the one that a link leads to, another text. What is there stays there until the new
/// text is on the disk.
///
/// # Errors
/// The system's.
pub fn rewrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = std::fs::canonicalize(path)?;
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    // Not one that somebody else has there.
    let mut file = std::fs::File::create_new(&beside)?;
    let written = std::fs::metadata(&path)
        .and_then(|now| file.set_permissions(now.permissions()))
        .and_then(|()| std::io::Write::write_all(&mut file, text))
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&beside, &path));
    if written.is_err() {
        // It is of no use to anybody.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// All that comes, if that is no more than `limit` bytes.
///
/// # Errors
/// That of the reader.
pub fn read_limited(from: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Why a secret was not read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The system refused it, or it is no text of less than a megabyte.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its permissions let others read it.
    #[error("{path}: other users can read this secret")]
    Exposed {
        /// The file.
        path: PathBuf,
    },
}

impl SecretError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            SecretError::Unreadable { .. } => None,
            SecretError::Exposed { path } => Some(format!("chmod 600 {}", path.display())),
        }
    }
}

/// Reads a secret of less than a megabyte, which nobody else may be able to read.
///
/// # Errors
/// It is not there, or others can read it.
pub fn read_secret(within: &Folder, path: &Path) -> Result<String, SecretError> {
    const MOST_BYTES: u64 = 1 << 20;
    let failed = |source| SecretError::Unreadable {
        path: path.to_owned(),
        source,
    };
    // Of a named pipe it waits for whoever writes it.
    let what = || format!("waiting for {}", path.display());
    let text = without_stop(what, || {
        let file = within.open(path, How::read()).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(SecretError::Exposed {
                path: path.to_owned(),
            });
        }
        read_limited(file, MOST_BYTES).map_err(failed)
    })?;
    let text = text.and_then(|text| String::from_utf8(text).ok());
    text.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
}

/// The folder of a name; the current one where it names none.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// As `openat`; a signal does not end it.
fn open_at(
    folder: BorrowedFd<'_>,
    path: impl AsRef<Path>,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let path = path.as_ref();
    rustix::io::retry_on_intr(|| rustix::fs::openat(folder, path, flags, mode))
}

/// Opens what a name leads to, through links of this user and of root only. Each part of the name is opened in the folder
/// before it, and each link looked at and followed by its descriptor: one that is put in its place meanwhile is another one,
/// and looked at in turn.
fn past_links_of_others(path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let parts = |path: &Path| {
        let parts = path.components().rev();
        parts
            .map(|part| part.as_os_str().to_owned())
            .collect::<Vec<OsString>>()
    };
    let mut left = parts(path);
    let mut folder: Option<OwnedFd> = None;
    let mut links = 0;
    while let Some(part) = left.pop() {
        let within = folder.as_ref().map_or(CWD, |folder| folder.as_fd());
        let (flags, mode) = match left.is_empty() {
            true => (flags, mode),
            false => (PLACE, Mode::empty()),
        };
        let error = match open_at(within, &part, flags | OFlags::NOFOLLOW, mode) {
            Ok(opened) if left.is_empty() => return Ok(opened),
            Ok(opened) => {
                folder = Some(opened);
                continue;
            }
            Err(error) => error,
        };
        // It can be a link: of one to be opened as a folder the kernel says that it is none.
        links += 1;
        if !matches!(error, Errno::LOOP | Errno::NOTDIR)
            || flags.contains(OFlags::NOFOLLOW)
            || links > MOST_LINKS
        {
            return Err(error.into());
        }
        let link = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = File::from(open_at(within, &part, link, Mode::empty())?);
        let about = link.metadata()?;
        if !about.is_symlink() {
            return Err(error.into());
        }
        let own = [0, rustix::process::geteuid().as_raw()];
        if !own.contains(&about.uid()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{} is a symbolic link of another user ({}), through which root does not write; name what it leads to",
                    Path::new(&part).display(),
                    about.uid()
                ),
            ));
        }
        // Where /proc/self/fd/1 leads is no name.
        if rustix::fs::fstatfs(&link)?.f_type as u64 == PROC_MAGIC {
            let opened = open_at(within, &part, flags, mode)?;
            if left.is_empty() {
                return Ok(opened);
            }
            folder = Some(opened);
        } else {
            let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
            left.extend(parts(Path::new(&OsString::from_vec(target.into_bytes()))));
        }
    }
    Err(Errno::NOENT.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with a file and links, another one beside it, and a name for each way out.
    fn place() -> (tempfile::TempDir, Folder, Vec<String>) {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("in"), place.path().join("out"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(inside.join("a"), "inside").unwrap();
        fs::write(outside.join("secret"), "outside").unwrap();
        symlink("../out", inside.join("up")).unwrap();
        symlink(&outside, inside.join("absolute")).unwrap();
        symlink("../out/secret", inside.join("link")).unwrap();
        symlink("../a", inside.join("sub/back")).unwrap();
        let ways = [
            format!("{}/secret", outside.display()),
            "../out/secret".to_owned(),
            "sub/../../out/secret".to_owned(),
            "up/secret".to_owned(),
            "absolute/secret".to_owned(),
            "link".to_owned(),
            "/proc/self/cwd/../out/secret".to_owned(),
        ];
        let folder = Folder::beneath(&inside).unwrap();
        (place, folder, ways.to_vec())
    }

    #[test]
    fn nothing_leads_out_of_a_folder() {
        let (place, folder, ways) = place();
        let outside = place.path().join("out");
        for way in &ways {
            let path = Path::new(way);
            let other = path.with_file_name("new");
            let refused = [
                folder.open(path, How::read()).map(drop),
                folder.open(path, How::replace()).map(drop),
                folder.open(path, How::append()).map(drop),
                folder.metadata(path).map(drop),
            ];
            for refused in refused {
                let error = refused.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{way}");
                assert!(error.to_string().contains("kept to"), "{way}: {error}");
            }
            // Of a link in the folder these are about the link.
            if way != "link" {
                assert!(folder.remove_file(path).is_err(), "{way}");
                assert!(folder.rename(path, Path::new("b")).is_err(), "{way}");
                assert!(folder.rename(Path::new("a"), &other).is_err(), "{way}");
                assert!(folder.link(Path::new("a"), &other).is_err(), "{way}");
                assert!(folder.make_folder(&other, 0o755).is_err(), "{way}");
                assert!(folder.make_folders(&other, 0o755).is_err(), "{way}");
                assert!(folder.open(&other, How::new_file()).is_err(), "{way}");
            }
        }
        for way in ["..", "/", "up", "absolute"] {
            assert!(folder.list(Path::new(way)).is_err(), "{way}");
        }
        let left: Vec<_> = fs::read_dir(&outside).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(fs::read(outside.join("secret")).unwrap(), b"outside");
    }

    #[test]
    fn within_a_folder_all_is_as_usual() {
        let (place, folder, _) = place();
        let path = Path::new;
        let limit = 100;
        assert_eq!(folder.read(path("a"), limit).unwrap().unwrap(), b"inside");
        assert_eq!(folder.read(path("a"), 5).unwrap(), None);
        assert_eq!(
            folder.read(path("sub/back"), limit).unwrap().unwrap(),
            b"inside"
        );
        folder.make_folders(path("x/y/z"), 0o750).unwrap();
        folder.make_folders(path("x/y/z"), 0o750).unwrap();
        assert!(folder.make_folders(path("a/b"), 0o750).is_err());
        let mut file = folder.open(path("x/y/n"), How::new_file()).unwrap();
        file.write_all(b"n").unwrap();
        let again = folder.open(path("x/y/n"), How::new_file()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        folder.rename(path("x/y/n"), path("m")).unwrap();
        folder.link(path("m"), path("l")).unwrap();
        folder.remove_file(path("m")).unwrap();
        folder.remove_folder(path("x/y/z")).unwrap();
        let mut names = folder.list(path("")).unwrap();
        names.sort();
        assert_eq!(names, ["a", "absolute", "l", "link", "sub", "up", "x"]);
        assert_eq!(fs::read(place.path().join("in/l")).unwrap(), b"n");
        assert!(folder.has(path("link")) && !folder.is_file(path("link")));
        assert!(folder.is_file(path("a")) && folder.is_folder(path("sub")));
    }

    #[test]
    fn root_writes_through_its_own_links_only() {
        let place = tempfile::tempdir().unwrap();
        let of = |name: &str| place.path().join(name);
        fs::write(of("target"), "").unwrap();
        symlink("target", of("one")).unwrap();
        symlink(of("one"), of("two")).unwrap();
        symlink("loop", of("loop")).unwrap();
        fs::create_dir(of("sub")).unwrap();
        symlink("sub/../sub", of("folder")).unwrap();
        let anywhere = Folder::anywhere();
        let write = |path: &Path| {
            let flags = How::append().flags;
            let opened = past_links_of_others(path, flags, Mode::from_raw_mode(0o600))?;
            File::from(opened).write_all(b"x")
        };
        for name in ["target", "one", "two", "new", "folder/new", "folder/../new"] {
            write(&of(name)).unwrap();
        }
        assert_eq!(fs::read(of("sub/new")).unwrap(), b"x");
        assert_eq!(fs::read(of("target")).unwrap(), b"xxx");
        assert_eq!(fs::read(of("new")).unwrap(), b"xx");
        assert!(write(&of("target/new")).is_err() && write(&of("none/new")).is_err());
        assert!(write(&of("loop")).is_err());
        assert!(write(place.path()).is_err());
        write(Path::new("/dev/null")).unwrap();
        let output = File::create(of("output")).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&output);
        write(Path::new(&format!("/dev/fd/{number}"))).unwrap();
        assert_eq!(fs::read(of("output")).unwrap(), b"x");
        if !privileges::is_root() {
            crate::skipped::skipped("only root can make links of others");
            return;
        }
        for link in ["one", "folder"] {
            std::os::unix::fs::lchown(of(link), Some(4711), None).unwrap();
        }
        for name in ["one", "two"] {
            for how in [How::replace(), How::append(), How::write()] {
                let error = anywhere.open(&of(name), how).unwrap_err();
                assert!(error.to_string().contains("another user (4711)"), "{error}");
            }
            // What is read harms nobody.
            anywhere.open(&of(name), How::read()).unwrap();
        }
        assert_eq!(fs::read(of("target")).unwrap(), b"xxx");
        let inside = of("folder/new");
        let refused = [
            anywhere.open(&inside, How::append()).map(drop),
            anywhere.folder(&of("folder")).map(drop),
            anywhere.make_folders(&of("folder/made"), 0o755),
            anywhere.rename(&of("target"), &inside),
            anywhere.rename(&inside, &of("target")),
            anywhere.link(&of("target"), &of("folder/linked")),
            anywhere.remove_file(&inside),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("another user (4711)"), "{error}");
        }
        assert_eq!(anywhere.read(&inside, 100).unwrap().unwrap(), b"x");
        assert_eq!(fs::read_dir(of("sub")).unwrap().count(), 1);
    }

    /// A user may mount layers over what the user serves: one that is not the root's is not waited at.
    #[test]
    #[allow(clippy::zombie_processes, reason = "it is waited for")]
    fn files_of_foreign_layers_are_not_taken() {
        let script = "mount -t tmpfs none /mnt && mkdir /mnt/a /mnt/b /mnt/c /mnt/m && echo x > /mnt/a/file && \
                      mount -t overlay none -o lowerdir=/mnt/a,upperdir=/mnt/b,workdir=/mnt/c /mnt/m && echo && cat";
        let mut other = std::process::Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let said = other.stdout.as_mut().unwrap().read(&mut [0; 1]).unwrap();
        if said == 0 {
            println!(
                "SKIPPED files_of_foreign_layers_are_not_taken no overlay can be mounted here"
            );
            return;
        }
        let path = |file: &str| format!("/proc/{}/root/mnt/{file}", other.id());
        let plain = File::open(path("a/file")).unwrap();
        let layered = File::open(path("m/file")).unwrap();
        let refused = HandedInput::new(layered.into()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("file system"), "{refused}");
        let mut text = String::new();
        let mut taken = HandedInput::new(plain.into()).unwrap();
        taken.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x\n");
        drop(other.stdin.take());
        other.wait().unwrap();
    }
}
