//! Running the program in a network namespace, watching it, and replaying traces to it.

// Each test binary compiles this module and uses part of it.
#![allow(dead_code)]

#[path = "../shared/wait.rs"]
mod wait;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowgauge_capture::{FileSink, PacketSink, PacketSource, SinkOptions};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};
use nix::sys::signal;
pub(crate) use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::frames::lab::Lab;
use crate::support::{flowgauge, scratch};
pub(crate) use wait::wait_until;

/// What is waited for takes milliseconds; this is only there to end a hang.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Frames sent before looking whether the kernel has taken them all. Its queue between the two
/// ends of a cable holds 1000 (`netdev_max_backlog`).
const PORTION: usize = 512;

/// Frames to replay.
pub(crate) struct Trace {
    pub(crate) path: PathBuf,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Trace {
    /// A generated one; `name` keeps the files of tests apart.
    pub(crate) fn generate(name: &str, preset: &str, scale: &str) -> Trace {
        let path = scratch(&format!("live-{name}")).join("trace.pcap");
        let text = path.display().to_string();
        let made = flowgauge::run([
            "generate", "--preset", preset, "--scale", scale, "-q", "-w", &text,
        ]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        Trace::read(&path)
    }

    /// These frames.
    pub(crate) fn of(frames: Vec<Vec<u8>>) -> Trace {
        Trace {
            path: PathBuf::new(),
            frames,
        }
    }

    /// Those of a file, all of them captured whole.
    pub(crate) fn read(path: &Path) -> Trace {
        let mut source = flowgauge_capture::open(path).unwrap();
        let mut frames = Vec::new();
        while let Some(batch) = source.next_batch().unwrap() {
            for (index, packet) in batch.packets.iter().enumerate() {
                assert_eq!(
                    packet.captured_len, packet.wire_len,
                    "packet {index} is cut"
                );
                frames.push(batch.bytes(index).to_vec());
            }
        }
        Trace {
            path: path.to_owned(),
            frames,
        }
    }

    /// Writes the frames to the trace's file.
    pub(crate) fn save(&self) {
        let mut sink = FileSink::create(&self.path, SinkOptions::default()).unwrap();
        for (number, frame) in self.frames.iter().enumerate() {
            let descriptor = PacketDescriptor {
                time: Nanos(1_600_000_000_000_000_000 + number as u64 * 1_000),
                captured_len: frame.len() as u32,
                wire_len: frame.len() as u32,
                link: LinkType::ETHERNET,
                ..PacketDescriptor::default()
            };
            sink.write(&Batch::new(frame, &[descriptor])).unwrap();
        }
        sink.close().unwrap();
    }

    /// Sends all frames from the interface, as fast as the kernel takes them.
    pub(crate) fn replay(&self, lab: &Lab, interface: &str) {
        let sender = lab.sender(interface);
        for portion in self.frames.chunks(PORTION) {
            let portion: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
            sender.send_all(&portion).unwrap();
            wait_until("the kernel delivers what was sent", backlog_is_empty);
        }
    }
}

/// Whether no frame waits between its sender and its receiver, on any processor.
fn backlog_is_empty() -> bool {
    // Hexadecimal columns; the twelfth is the length of the backlog (Linux 5.10).
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    text.lines().all(|line| {
        let backlog = line.split_whitespace().nth(11);
        backlog.is_none_or(|value| u32::from_str_radix(value, 16) == Ok(0))
    })
}

/// The program, running.
pub(crate) struct Program {
    child: Child,
    unread: Option<ChildStdout>,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Arc<Lines>,
}

/// Standard error so far.
#[derive(Default)]
struct Lines {
    state: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Program {
    /// Starts it inside, and waits until it listens.
    pub(crate) fn start(lab: &Lab, arguments: &[&str]) -> Program {
        let mut program = Program::start_unread(lab, arguments);
        program.read_output();
        program
    }

    /// [`Program::start`], with nobody reading its output until it is stopped.
    pub(crate) fn start_unread(lab: &Lab, arguments: &[&str]) -> Program {
        let mut command = lab.inside(env!("CARGO_BIN_EXE_flowgauge"));
        command.args(arguments);
        Program::spawn(command)
    }

    /// Starts a command that runs it, and waits until it listens.
    pub(crate) fn spawn(mut command: Command) -> Program {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = Arc::new(Lines::default());
        let pipe = child.stderr.take().unwrap();
        let lines = Arc::clone(&stderr);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                lines.lock().0.push(line);
                lines.changed.notify_all();
            }
            lines.lock().1 = true;
            lines.changed.notify_all();
        });
        let program = Program {
            unread: child.stdout.take(),
            child,
            stdout: None,
            stderr,
        };
        program.stderr.wait_for(0, "listening on");
        program
    }

    fn read_output(&mut self) {
        if let Some(mut pipe) = self.unread.take() {
            self.stdout = Some(std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.read_to_end(&mut bytes);
                bytes
            }));
        }
    }

    /// Closes the pipe it writes to.
    pub(crate) fn close_output(&mut self) {
        self.unread = None;
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal::kill(self.pid(), signal).unwrap();
    }

    /// Sends a signal, and waits until it says something of it.
    pub(crate) fn signal_and_wait(&self, signal: Signal, text: &str) {
        let seen = self.stderr.lock().0.len();
        self.signal(signal);
        self.stderr.wait_for(seen, text);
    }

    /// Waits until its statistics, asked for again and again, count so many packets.
    pub(crate) fn wait_for_packets(&self, count: u64) {
        let started = Instant::now();
        loop {
            let seen = self.stderr.lock().0.len();
            self.signal(Signal::SIGUSR1);
            let line = self.stderr.wait_for(seen, " received, ");
            let ledger = ledger(&line);
            if ledger.received >= count {
                return;
            }
            assert!(started.elapsed() < TIME_LIMIT, "{count} packets: {line}");
        }
    }

    /// Waits until one of its threads can write no further because nobody reads.
    pub(crate) fn wait_until_writing(&self) {
        let threads = format!("/proc/{}/task", self.pid());
        // Number of `write` on x86-64 and elsewhere, to standard output or a copy of it.
        let writes = |thread: std::fs::DirEntry| {
            let call = std::fs::read_to_string(thread.path().join("syscall"));
            matches!(call.unwrap_or_default().split(' ').next(), Some("1" | "64"))
        };
        wait_until("it blocks in writing", || {
            let mut threads = std::fs::read_dir(&threads).unwrap();
            threads.any(|thread| thread.is_ok_and(writes))
        });
    }

    /// A field of its status as the kernel tells it.
    pub(crate) fn status(&self, field: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap().trim().to_owned()
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn stop(self, signal: Signal) -> flowgauge::Outcome {
        self.signal(signal);
        self.end()
    }

    /// Sends a signal until it ends, without reading its output.
    pub(crate) fn insist(mut self, signal: Signal) -> flowgauge::Outcome {
        let started = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < TIME_LIMIT, "it does not quit");
            let _ = signal::kill(self.pid(), signal);
            std::thread::yield_now();
        }
        self.end()
    }

    /// Repeats `action` until it ends.
    pub(crate) fn end_while(mut self, action: impl Fn()) -> flowgauge::Outcome {
        let started = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < TIME_LIMIT, "it does not end");
            action();
        }
        self.end()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> flowgauge::Outcome {
        self.read_output();
        let stderr = self.stderr.wait_for_end();
        let status = self.child.wait().unwrap();
        flowgauge::Outcome {
            code: status.code(),
            hung: false,
            stdout: self
                .stdout
                .take()
                .map_or_else(Vec::new, |reader| reader.join().unwrap()),
            stderr,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A failed test leaves nothing behind; one that ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, (Vec<String>, bool)> {
        self.state.lock().unwrap()
    }

    /// The first line from number `from` on that contains `text`.
    fn wait_for(&self, from: usize, text: &str) -> String {
        let started = Instant::now();
        let mut state = self.lock();
        loop {
            let (lines, ended) = &*state;
            if let Some(line) = lines[from..].iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            assert!(!ended, "it ended without \"{text}\":\n{}", lines.join("\n"));
            assert!(
                started.elapsed() < TIME_LIMIT,
                "no \"{text}\":\n{}",
                lines.join("\n")
            );
            state = self.changed.wait_timeout(state, TIME_LIMIT).unwrap().0;
        }
    }

    fn wait_for_end(&self) -> String {
        let started = Instant::now();
        let mut state = self.lock();
        while !state.1 {
            assert!(
                started.elapsed() < TIME_LIMIT,
                "it does not end:\n{}",
                state.0.join("\n")
            );
            state = self.changed.wait_timeout(state, TIME_LIMIT).unwrap().0;
        }
        state.0.join("\n")
    }
}

/// Runs it inside to its end.
pub(crate) fn run(lab: &Lab, arguments: &[&str]) -> flowgauge::Outcome {
    let mut command = lab.inside(env!("CARGO_BIN_EXE_flowgauge"));
    command.args(arguments);
    flowgauge::run_command(command)
}

/// The line of the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerLine {
    pub(crate) received: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) discarded: u64,
}

/// The last ledger in `text`, which must balance.
pub(crate) fn ledger(text: &str) -> LedgerLine {
    let line = text.lines().rfind(|line| line.contains(" received, "));
    let line = line.unwrap_or_else(|| panic!("no ledger:\n{text}"));
    let numbers: Vec<u64> = line
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let [received, delivered, delivered_bytes, dropped, discarded, ..] = numbers[..] else {
        panic!("no ledger: {line}");
    };
    assert_eq!(received, delivered + dropped + discarded, "{line}");
    LedgerLine {
        received,
        delivered,
        delivered_bytes,
        dropped,
        discarded,
    }
}

/// A folder that every user can write to, outside of the build output, which may be private.
pub(crate) fn open_folder(name: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;

    let folder = std::env::temp_dir().join(format!("flowgauge-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let everyone = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder, everyone).unwrap();
    folder
}

/// A copy of the program that every user can run.
pub(crate) fn copy_of_program(folder: &Path) -> PathBuf {
    let path = folder.join("flowgauge");
    std::fs::copy(env!("CARGO_BIN_EXE_flowgauge"), &path).unwrap();
    path
}
