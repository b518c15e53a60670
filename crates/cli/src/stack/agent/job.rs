//! A stack that an agent runs: a process of its own, so that its end is nobody else's.

use std::collections::VecDeque;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_credential::Who;
use flowgauge_link::KeyFolder;
use flowgauge_sys::own;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::Control;

/// Of what a stack says so much is kept.
const MOST_LOG: usize = 64 << 10;
/// How long a stack has to end when it is told to.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// The variable that tells a stack whose it is: without that process it ends.
const PARENT: &str = "FLOWGAUGE_AGENT";

/// How long a stack whose agent is gone has to end.
const ORPHAN_WAIT: Duration = Duration::from_secs(5);

/// A stack that an agent started ends when that is gone: nobody could ask it any more.
pub(crate) fn end_with_agent(control: &Control) {
    let parent = std::env::var(PARENT).ok();
    let Some(parent) = parent.and_then(|parent| parent.parse::<u32>().ok()) else {
        return;
    };
    let control = control.clone();
    thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            thread::sleep(Duration::from_millis(100));
        }
        control.stop();
        // What waits for a peer does not look.
        thread::sleep(ORPHAN_WAIT);
        std::process::exit(1);
    });
}

/// What a stack is made of.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Definition {
    /// Its text.
    pub(super) text: String,
    /// Whether it is components without a section.
    #[serde(rename = "bare")]
    pub(super) is_bare: bool,
    pub(super) read: Vec<String>,
    /// Requests have `interface`.
    #[serde(alias = "interface")]
    pub(super) interfaces: Vec<String>,
    /// Who gave it.
    pub(super) who: Who,
}

impl Definition {
    /// The name of who gave it.
    pub(super) fn by(&self) -> &str {
        self.who.name.as_deref().unwrap_or_default()
    }
}

/// Where stacks run.
pub(super) struct Place {
    /// What they are kept to.
    pub(super) folder: PathBuf,
    /// Whom they become; `None`: they are who the agent is.
    pub(super) user: Option<String>,
    /// The folder of the agent's keys, from the root on, where that is not the usual one.
    pub(super) keys: Option<PathBuf>,
}

/// A running stack, or one that has ended.
pub(super) struct Job {
    pub(super) definition: Definition,
    child: Child,
    since: Instant,
    ended: Option<(String, bool)>,
    said: Arc<Mutex<Said>>,
    starts: u32,
    /// The agent starts it again after a restart of its own.
    pub(super) is_remembered: bool,
}

/// The last of what a stack said.
#[derive(Default)]
pub(super) struct Said {
    kept: VecDeque<u8>,
    /// Bytes in all.
    total: u64,
}

impl Said {
    fn add(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        self.total += bytes.len() as u64;
        let excess = self.kept.len().saturating_sub(MOST_LOG);
        self.kept.drain(..excess);
    }

    /// What was said from this byte on, as far as it is kept, and where that ends.
    fn since(&self, from: u64) -> (String, u64) {
        let begin = self.total - self.kept.len() as u64;
        let skip = from.saturating_sub(begin) as usize;
        let bytes: Vec<u8> = self.kept.iter().skip(skip).copied().collect();
        (String::from_utf8_lossy(&bytes).into_owned(), self.total)
    }
}

impl Job {
    /// Starts the stack.
    ///
    /// # Errors
    /// The process cannot be made.
    pub(super) fn start(definition: Definition, place: &Place) -> std::io::Result<Job> {
        let said = Arc::new(Mutex::new(Said::default()));
        let child = spawn(&definition, place, &said)?;
        Ok(Job {
            definition,
            child,
            since: Instant::now(),
            ended: None,
            said,
            starts: 1,
            is_remembered: false,
        })
    }

    /// Starts it again, perhaps another one.
    ///
    /// # Errors
    /// The process cannot be made.
    pub(super) fn restart(
        &mut self,
        definition: Option<Definition>,
        place: &Place,
    ) -> std::io::Result<()> {
        self.stop();
        if let Some(definition) = definition {
            self.definition = definition;
        }
        self.said.lock().add(b"--- started again\n");
        self.child = spawn(&self.definition, place, &self.said)?;
        self.since = Instant::now();
        self.ended = None;
        self.starts += 1;
        Ok(())
    }

    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Whether it came to its end by itself, and well.
    pub(super) fn is_done(&mut self) -> bool {
        !self.is_running() && matches!(self.ended, Some((_, true)))
    }

    /// Whether it still runs.
    pub(super) fn is_running(&mut self) -> bool {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended = Some((status.to_string(), status.success()));
        }
        self.ended.is_none()
    }

    /// Whether it is known to have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Adds to what it said.
    pub(super) fn tell(&self, text: &str) {
        self.said.lock().add(text.as_bytes());
    }

    /// Has it come to its end, as Ctrl-C would.
    pub(super) fn stop(&mut self) {
        let until = Instant::now() + STOP_WAIT;
        self.signal(Signal::INT);
        while self.is_running() {
            if Instant::now() >= until {
                // It does not listen.
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Has it print its counts.
    pub(super) fn ask_for_counts(&mut self) {
        self.signal(Signal::USR1);
    }

    fn signal(&mut self, signal: Signal) {
        // One that was not waited for keeps its number.
        if self.is_running() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    pub(super) fn said_since(&self, from: u64) -> (String, u64) {
        self.said.lock().since(from)
    }

    /// How it is doing.
    pub(super) fn describe(&mut self, name: &str) -> Value {
        let is_running = self.is_running();
        let state = match &self.ended {
            None => "running".to_owned(),
            Some((_, true)) => "done".to_owned(),
            Some((status, false)) => format!("failed ({status})"),
        };
        json!({
            "name": name,
            "state": state,
            "running": is_running,
            "seconds": self.since.elapsed().as_secs(),
            "starts": self.starts,
            "by": self.definition.by(),
            "read": self.definition.read,
            "interfaces": self.definition.interfaces,
        })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(
    definition: &Definition,
    place: &Place,
    said: &Arc<Mutex<Said>>,
) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["stack", "run", "--folder", "."]);
    if let Some(user) = &place.user {
        command.args(["-Z", user]);
    }
    if let Some(keys) = &place.keys {
        command.env(KeyFolder::VARIABLE, keys);
    }
    command.env(PARENT, std::process::id().to_string());
    command.env(own::ENVIRONMENT, own::listeners());
    // Its text comes by standard input, or as it was given.
    match definition.is_bare {
        true => command.args(["-e", &definition.text]),
        false => command.args(["-f", "-"]),
    };
    for file in &definition.read {
        command.args(["-r", file]);
    }
    for interface in &definition.interfaces {
        command.args(["-i", interface]);
    }
    let mut child = command
        .current_dir(&place.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdin = child.stdin.take();
    let text = definition.text.clone();
    let is_bare = definition.is_bare;
    thread::spawn(move || {
        if let Some(mut stdin) = stdin.filter(|_| !is_bare) {
            // One that does not read it says why.
            let _ = stdin.write_all(text.as_bytes());
        }
    });
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    for mut pipe in pipes.into_iter().flatten() {
        let said = said.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                said.lock().add(&buffer[..count]);
            }
        });
    }
    Ok(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_what_was_said_is_kept() {
        let mut said = Said::default();
        said.add(b"one ");
        assert_eq!(said.since(0), ("one ".to_owned(), 4));
        assert_eq!(said.since(4), (String::new(), 4));
        said.add(&vec![b'x'; MOST_LOG]);
        let (text, total) = said.since(0);
        assert_eq!((text.len(), total), (MOST_LOG, MOST_LOG as u64 + 4));
        assert_eq!(said.since(total - 2).0, "xx");
    }
}
