//! Sockets between processes of one machine: messages in order, descriptors with them, and the
//! kernel's word on who is at the other end.
//!
//! A name that begins with `/` or `.` is a file, which stays. Others are abstract: they belong to the network namespace, one
//! process holds a name at a time, and it is free as soon as that process is gone, however it went.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt::Timeout,
};

/// How long a peer that exists may take to do something.
const PATIENCE: Duration = Duration::from_secs(10);

/// Descriptors a message can carry.
pub const MOST_FILES: usize = 16;

/// Who is at the other end of a connection: who it was when it connected or listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process; 0 when it is not visible from here.
    pub process: u32,
    /// User.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// A socket that listens under a name.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Takes `name` and listens.
    ///
    /// # Errors
    /// `AddrInUse` when another process holds the name; the system's.
    pub fn bind(name: &str) -> io::Result<Listener> {
        let socket = open()?;
        net::bind(&socket, &address(name)?)?;
        let listener = Listener(socket);
        listener.listen()?;
        Ok(listener)
    }

    /// Takes a path that everybody may connect to, and listens. What a process that was killed has left there goes; a folder
    /// that is missing is made. `owner`, whom this process becomes, can free the path where the folder is its own.
    ///
    /// # Errors
    /// `AddrInUse` when another process listens there, or the path is none of a socket; the system's.
    pub fn bind_path(path: &Path, owner: Option<u32>) -> io::Result<Listener> {
        let name = path.to_string_lossy();
        let is_socket = |path: &Path| {
            let metadata = fs::symlink_metadata(path);
            metadata.is_ok_and(|metadata| metadata.file_type().is_socket())
        };
        let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket(path) && Connection::connect(&name).is_err_and(refuses) {
            fs::remove_file(path)?;
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            fs::create_dir(folder)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
            chown(folder, owner, None)?;
        }
        let listener = Listener::bind(&name)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        chown(path, owner, None)?;
        Ok(listener)
    }

    /// A listening socket of this kind that another process opened. From now on this process is
    /// the one that its peers see.
    ///
    /// # Errors
    /// `InvalidInput` when it is none.
    pub fn adopt(socket: OwnedFd) -> io::Result<Listener> {
        let listens = net::sockopt::socket_acceptconn(&socket)?
            && net::sockopt::socket_domain(&socket)? == AddressFamily::UNIX
            && net::sockopt::socket_type(&socket)? == SocketType::SEQPACKET;
        if !listens {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a listening socket for messages",
            ));
        }
        let listener = Listener(socket);
        listener.listen()?;
        Ok(listener)
    }

    /// The next connection; `None` when nobody waits.
    ///
    /// # Errors
    /// The system's.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        // The listening socket may be shared with a process that made it blocking.
        if !ready(self.0.as_fd(), PollFlags::IN)? {
            return Ok(None);
        }
        match net::accept_with(&self.0, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(Connection(socket))),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The descriptor, to hand to another process.
    pub fn into_file(self) -> OwnedFd {
        self.0
    }

    fn listen(&self) -> io::Result<()> {
        const BACKLOG: i32 = 64;
        Ok(net::listen(&self.0, BACKLOG)?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A connection. It ends when either process does.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Connection {
    /// Connects to the process that listens under `name`.
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody does, `WouldBlock` when that process does not accept
    /// connections for too long.
    pub fn connect(name: &str) -> io::Result<Connection> {
        let socket = open()?;
        net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        net::connect(&socket, &address(name)?)?;
        Ok(Connection(socket))
    }

    /// Two connected ends.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Connection, Connection)> {
        let (one, two) = net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Connection(one), Connection(two)))
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// The system's.
    pub fn peer(&self) -> io::Result<Peer> {
        let mut peer = [0_u32; 3];
        let got = option(self.as_fd(), libc::SO_PEERCRED, &mut peer)?;
        if got != peer.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let [process, user, group] = peer;
        Ok(Peer {
            process,
            user,
            group,
        })
    }

    /// The supplementary groups of the peer.
    ///
    /// # Errors
    /// The system's.
    pub fn peer_groups(&self) -> io::Result<Vec<u32>> {
        const SO_PEERGROUPS: i32 = 59;
        // NGROUPS_MAX of Linux.
        let mut groups = vec![0_u32; 65_536];
        let got = option(self.as_fd(), SO_PEERGROUPS, &mut groups)?;
        groups.truncate(got);
        Ok(groups)
    }

    /// Sends a message if there is room for it.
    ///
    /// # Errors
    /// `WouldBlock` when there is none, `BrokenPipe` when the peer is gone, `EMSGSIZE`.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        net::send(&self.0, message, flags).map_err(unsent)?;
        Ok(())
    }

    /// Sends a message, and waits for room as long as the peer lives; for ten seconds at most if
    /// this end connected.
    ///
    /// # Errors
    /// `BrokenPipe` when it is gone, `WouldBlock` when it does not receive, `EMSGSIZE`.
    pub fn send_patiently(&self, message: &[u8]) -> io::Result<()> {
        loop {
            match net::send(&self.0, message, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(unsent(error)),
            }
        }
    }

    /// Sends a message with copies of up to [`MOST_FILES`] descriptors, if there is room for it.
    ///
    /// # Errors
    /// As [`Connection::send`]; `InvalidInput` when they are too many.
    pub fn send_files(&self, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if files.len() > MOST_FILES || !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        net::sendmsg(&self.0, &[IoSlice::new(message)], &mut control, flags).map_err(unsent)?;
        Ok(())
    }

    /// Receives a message; what does not fit in `buffer` is lost. Descriptors that came with it
    /// are closed.
    ///
    /// # Errors
    /// `WouldBlock` when there is none, `UnexpectedEof` when the peer is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // Without room for control data the kernel closes what came along.
        match net::recv(&self.0, buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((len, _)) => Ok(len),
            Err(error) => Err(error.into()),
        }
    }

    /// [`Connection::receive`], with the descriptors that came with the message.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_files(&self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags);
        let len = match received {
            Ok(message) => message.bytes,
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((len, files))
    }

    /// Ends the connection for both sides, whoever else has a handle to it.
    pub fn shut_down(&self) {
        let _ = net::shutdown(&self.0, net::Shutdown::Both);
    }

    /// Takes no further messages, and forgets those that were not received. A connection that is
    /// closed with such messages would take what the peer has not received yet along with it.
    pub fn stop_receiving(&self) {
        let mut ignored = [0; 1];
        let _ = net::shutdown(&self.0, net::Shutdown::Read);
        // Bounded by what fits in the socket: nothing comes in any more.
        while matches!(
            net::recv(&self.0, &mut ignored, RecvFlags::DONTWAIT),
            Ok((1.., _))
        ) {}
    }

    /// Whether the peer has closed its end.
    pub fn is_gone(&self) -> bool {
        ready(self.as_fd(), PollFlags::HUP).unwrap_or(true)
    }

    /// Waits until there is a message, the peer is gone, or `limit` is over. Whether there is
    /// something to receive (be it the end).
    ///
    /// # Errors
    /// The system's; a signal is none.
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        wait_for(self.as_fd(), limit)
    }

    /// The same, or until there is room to send.
    ///
    /// # Errors
    /// As [`Connection::wait`].
    pub fn wait_for_room(&self, limit: Option<Duration>) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN | PollFlags::OUT)];
        poll(&mut polled, limit)?;
        Ok(!polled[0].revents().is_empty())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `files` can be read from, or `limit` is over, and says which can be.
///
/// # Errors
/// The system's; a signal ends the wait early.
pub fn wait_any(files: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = files
        .iter()
        .map(|file| PollFd::new(file, PollFlags::IN))
        .collect();
    poll(&mut polled, limit)?;
    Ok(polled
        .iter()
        .map(|file| !file.revents().is_empty())
        .collect())
}

/// Waits until `file` can be read from, or `limit` is over, and says whether it can be.
///
/// # Errors
/// The system's; a signal ends the wait early.
pub fn wait_for(file: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<bool> {
    let mut polled = [PollFd::new(&file, PollFlags::IN)];
    poll(&mut polled, limit)?;
    Ok(!polled[0].revents().is_empty())
}

/// Why a message could not be sent. Who has ended with messages that it had not received is as gone as who had none:
/// the kernel tells the two apart, once.
fn unsent(error: Errno) -> io::Error {
    match error {
        Errno::CONNRESET => io::ErrorKind::BrokenPipe.into(),
        error => error.into(),
    }
}

fn ready(file: BorrowedFd<'_>, events: PollFlags) -> io::Result<bool> {
    let mut polled = [PollFd::new(&file, events)];
    poll(&mut polled, Some(Duration::ZERO))?;
    Ok(polled[0].revents().contains(events))
}

fn poll(polled: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    match rustix::event::poll(polled, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Frees the path that [`Listener::bind_path`] took.
///
/// # Errors
/// The system's, where the folder is another user's.
pub fn free_path(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Names that are held in this network namespace and begin with `prefix`.
///
/// # Errors
/// When the system does not list them.
pub fn names(prefix: &str) -> io::Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/thread-self/net/unix")?;
    let mut names: Vec<String> = table
        .lines()
        .filter_map(|line| line.split_once('@').map(|(_, name)| name))
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn open() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(match name.starts_with(['/', '.']) {
        true => SocketAddrUnix::new(name)?,
        false => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    })
}

/// `getsockopt` into integers, and how many of them it filled. Rustix' credentials cannot be of
/// a process that is not visible from here.
fn option(socket: BorrowedFd<'_>, name: i32, values: &mut [u32]) -> io::Result<usize> {
    let mut len = size_of_val(values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `values`; any bits are valid.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(len as usize / size_of::<u32>())
}

/// What is left of a time limit that began at `started`.
pub fn remaining(started: Instant, limit: Option<Duration>) -> Option<Duration> {
    limit.map(|limit| limit.saturating_sub(started.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_name(test: &str) -> String {
        format!("flowgauge-test/{}/{test}", std::process::id())
    }

    #[test]
    fn a_name_is_held_by_one_and_free_afterwards() {
        let name = own_name("held");
        let refused = Connection::connect(&name).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let listener = Listener::bind(&name).unwrap();
        let in_use = Listener::bind(&name).unwrap_err();
        assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
        assert!(names(&name).unwrap().iter().eq([&name]));
        assert!(listener.accept().unwrap().is_none());
        let client = Connection::connect(&name).unwrap();
        let served = listener.accept().unwrap().unwrap();
        let peer = served.peer().unwrap();
        assert_eq!(peer, client.peer().unwrap());
        assert_eq!(peer.process, std::process::id());
        assert!(served.peer_groups().unwrap().len() <= 65_536);
        drop(listener);
        assert!(Listener::bind(&name).is_ok());
    }

    #[test]
    fn an_adopted_listener_goes_on() {
        let name = own_name("adopted");
        let listener = Listener::bind(&name).unwrap();
        let _client = Connection::connect(&name).unwrap();
        let listener = Listener::adopt(listener.into_file()).unwrap();
        assert!(listener.accept().unwrap().is_some());
        let (one, _two) = Connection::pair().unwrap();
        let wrong = Listener::adopt(one.0).unwrap_err();
        assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn messages_and_descriptors_arrive() {
        let (one, two) = Connection::pair().unwrap();
        let mut buffer = [0; 16];
        let none = two.receive(&mut buffer).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        assert!(!two.wait(Some(Duration::ZERO)).unwrap());
        one.send(b"plain").unwrap();
        one.send_files(b"files", &[one.as_fd(), two.as_fd()])
            .unwrap();
        one.send_files(b"unwanted", &[one.as_fd()]).unwrap();
        assert!(two.wait(None).unwrap() && !two.is_gone());
        assert_eq!(two.receive_files(&mut buffer).unwrap().0, 5);
        let (len, files) = two.receive_files(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], files.len()), (&b"files"[..], 2));
        assert_eq!(two.receive(&mut buffer).unwrap(), 8);
        let too_many = [one.as_fd(); MOST_FILES + 1];
        assert!(one.send_files(b"x", &too_many).is_err());
        // Drop all descriptors of the first end: the received copies are some.
        drop((one, files));
        assert!(two.wait(None).unwrap() && two.is_gone());
        let gone = two.receive(&mut buffer).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            two.send(b"x").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }

    #[test]
    fn last_words_are_heard() {
        let (one, two) = Connection::pair().unwrap();
        one.send(b"not received").unwrap();
        one.send(b"nor this").unwrap();
        two.send(b"last words").unwrap();
        two.stop_receiving();
        assert_eq!(
            one.send(b"too late").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
        drop(two);
        let mut buffer = [0; 16];
        assert_eq!(one.receive(&mut buffer).unwrap(), 10);
        let gone = one.receive(&mut buffer).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_peer_that_ends_without_having_heard_is_gone() {
        let sends: [fn(&Connection) -> io::Result<()>; 3] = [
            |own| own.send(b"too late"),
            |own| own.send_patiently(b"too late"),
            |own| own.send_files(b"too late", &[own.as_fd()]),
        ];
        for send in sends {
            let (own, peer) = Connection::pair().unwrap();
            own.send(b"not received").unwrap();
            drop(peer);
            for _ in 0..2 {
                let gone = send(&own).unwrap_err();
                assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe, "{gone}");
            }
        }
    }

    #[test]
    fn a_full_socket_has_room_when_the_peer_has_received() {
        let (own, peer) = Connection::pair().unwrap();
        let mut sent = 0;
        while own.send(&[0; 1024]).is_ok() {
            sent += 1;
        }
        assert!(!own.wait_for_room(Some(Duration::ZERO)).unwrap());
        let mut buffer = [0; 1024];
        for _ in 0..sent {
            peer.receive(&mut buffer).unwrap();
        }
        assert!(own.wait_for_room(None).unwrap());
        own.send(b"more").unwrap();
    }

    #[test]
    fn a_full_socket_says_so() {
        let (one, _two) = Connection::pair().unwrap();
        let full = loop {
            if let Err(error) = one.send(&[0; 1024]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    }
}
