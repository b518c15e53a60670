//! Starting processes that outlive us, and what is known of processes.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::privileges::gain_no_more;

/// Starts `program` as a process of its own: in its own session, not our child, with nothing of
/// ours but `input` as its standard input, in the root folder. It stays in our network
/// namespace (that of the calling thread).
///
/// # Errors
/// Whatever keeps the program from being started, such as `NotFound`.
pub fn spawn_detached<A: AsRef<OsStr>>(
    program: &OsStr,
    arguments: impl IntoIterator<Item = A>,
    input: OwnedFd,
) -> io::Result<()> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/");
    // SAFETY: the closure runs in a child that has a copy of the calling thread only. It makes
    // system calls and nothing else: no allocation, no lock.
    unsafe { command.pre_exec(leave) };
    let mut child = command.spawn()?;
    // The child in between has ended by now. Whoever else waits for all children may have been
    // quicker.
    let _ = child.wait();
    Ok(())
}

/// Cuts the ties of a forked child that is about to run another program: a child of its own goes
/// on, which belongs to nobody.
fn leave() -> io::Result<()> {
    const FIRST: u32 = 3;
    // SAFETY: system calls with integers. Descriptors are only marked to be closed when the
    // program starts. The child made by clone has a copy of all memory, as by fork, whose
    // handlers (malloc's and others') are not run; neither child needs what they would do.
    unsafe {
        // The file actions of std are done; its pipe to report errors is marked already.
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
            0 => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            _ => libc::_exit(0),
        }
    }
}

/// The user this process acts for.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Bytes of memory of this machine, where the kernel says so.
pub fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes of this process that are in memory; 0 where the system does not say.
pub fn memory_in_use() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Gives memory that was freed back to the system, where the allocator keeps it: what many short-lived tables leave lies between
/// what is in use. Who allocates meanwhile waits for it.
pub fn release_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer; the allocator locks what it works on.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Processor time that the calling thread has taken, in nanoseconds.
pub fn thread_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // rustix looks for the system's page of time functions, where valgrind shows none.
    // SAFETY: the structure is there for it.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    match told {
        0 => time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned(),
        _ => 0,
    }
}

/// From now on the calling thread leaves processors to others, if those want them.
pub fn stand_back() {
    /// A third of what a thread gets that does not.
    const NICE: i32 = 5;

    // SAFETY: a system call with integers; 0 is the calling thread. Where it is refused nothing changes.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}

/// Whether this program was given rights by its file when it was started (setuid, setgid,
/// capabilities): then whoever started it has fewer, and what he says (environment, where the
/// program lies) must not decide what is run with them.
pub fn has_rights_of_its_file() -> bool {
    // SAFETY: takes an integer, reads what the kernel has left beside the program.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A descriptor that becomes readable when `process` ends, whoever else has what belonged to it (its
/// forked children). `None` where that process is not visible, or the system does not have such
/// descriptors.
pub fn watch(process: u32) -> Option<OwnedFd> {
    let process = rustix::process::Pid::from_raw(i32::try_from(process).ok()?)?;
    rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).ok()
}

/// The name of a process' program, as the kernel keeps it (15 bytes), if it is visible.
pub fn name_of(process: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{process}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// Gives up every way to gain rights by starting other programs ([`gain_no_more`]), and lets no other
/// process of the same user look into this one (`PR_SET_DUMPABLE`).
///
/// # Errors
/// The system's.
pub fn harden() -> io::Result<()> {
    gain_no_more()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Whether standard output was closed when the process began (`>&-`). Rust's library opens
/// `/dev/null` in its place before `main`, so that nobody could tell later.
pub fn standard_output_was_closed() -> bool {
    OUTPUT_CLOSED.load(Ordering::Relaxed)
}

static OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the system's loader calls what stands in this section once, before `main`; it is a
// function of the C calling convention that needs nothing of Rust's library: one system call, one
// atomic store.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_OUTPUT: extern "C" fn() = look_at_output;

extern "C" fn look_at_output() {
    // SAFETY: a system call with integers.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    OUTPUT_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// A write beyond the limit on the size of files (`ulimit -f`) is an error like any other, and does not end the
/// process.
pub fn allow_file_limits() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Becomes another program, as it would be if this one's caller had started it. Returns only where that fails.
pub fn replace(command: &mut Command) -> io::Error {
    // SAFETY: as the system has it from the start; see `allow_file_limits`.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    command.exec()
}

/// Makes `abort`, which is how Rust's library ends a process that gets no memory, say `text` on
/// standard error and end with `code` in place of a signal. The first call counts.
pub fn explain_abort(text: &'static str, code: i32) {
    if EXPLANATION.set((text, code)).is_err() {
        return;
    }
    let handler: extern "C" fn(libc::c_int) = explain;
    // SAFETY: the handler makes two system calls and allocates nothing; what it reads was set
    // before it was installed and never changes.
    unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
}

static EXPLANATION: OnceLock<(&str, i32)> = OnceLock::new();

extern "C" fn explain(_signal: libc::c_int) {
    let Some((text, code)) = EXPLANATION.get() else {
        return;
    };
    // SAFETY: system calls; `text` is as long as it says. `_exit` runs no handlers.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(*code);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::local::{Connection, Listener};

    #[test]
    fn a_detached_process_is_not_our_child() {
        let name = format!("flowgauge-test/{}/detached", std::process::id());
        let listener = Listener::bind(&name).unwrap();
        let client = Connection::connect(&name).unwrap();
        // A shell that ends when its input, the listening socket, says that it is none to read.
        let script = "ps -o ppid= -p $$ > \"$0\"; cat <&0";
        let file = std::env::temp_dir().join(format!("flowgauge-{}-ppid", std::process::id()));
        let file_name = file.to_str().unwrap();
        spawn_detached(
            "/bin/sh".as_ref(),
            ["-c", script, file_name],
            listener.into_file(),
        )
        .unwrap();
        // The last descriptor of the listening socket is its: the connection ends with it.
        assert!(client.wait(Some(Duration::from_secs(60))).unwrap());
        let parent = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_ne!(parent.trim(), std::process::id().to_string());
        assert_ne!(parent.trim(), "");
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let (one, _) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let error = spawn_detached::<&str>("/no/such/program".as_ref(), [], one).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let watched = watch(child.id()).unwrap();
        let ready = |limit| crate::local::wait_for(watched.as_fd(), limit).unwrap();
        assert!(!ready(Some(Duration::ZERO)));
        drop(child.stdin.take());
        assert!(ready(Some(Duration::from_secs(60))));
        child.wait().unwrap();
        assert!(watch(0).is_none() && watch(u32::MAX).is_none());
    }

    #[test]
    fn tests_have_no_rights_of_their_file() {
        assert!(!has_rights_of_its_file());
    }

    #[test]
    fn a_process_has_a_name() {
        assert!(name_of(std::process::id()).is_some_and(|name| !name.is_empty()));
        assert_eq!(name_of(u32::MAX), None);
    }
}
