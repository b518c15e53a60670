//! What users and the sensor say to each other: JSON objects over a local socket, one answer to each request.
//!
//! A message is a packet of the socket; what is longer than one continues in further ones. The first byte of each part of an
//! answer, and of a request that has several, is `+` if more follow, and `.` in the last.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_sys::local::{self, Connection};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::programs::{Capture, OpenedCapture, SharingStatus, StreamCommand, Thresholds, Wanted};

/// The longest part of a request or an answer.
pub const PART_BYTES: usize = 60 << 10;
/// The longest request: filters of a program with libscap.
pub const MOST_REQUEST: usize = 512 << 10;
/// The longest answer.
pub const MOST_ANSWER: usize = 8 << 20;
/// How long a user may take to receive a part of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// From now on this connection is one of a user of another machine, by the name in the user's certificate. Agents say it
    /// before anything else.
    SpeakFor {
        /// Who.
        name: String,
        /// The key that the user showed: SHA-256 of the certificate's SubjectPublicKeyInfo, in hexadecimal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// What a credential allows counts for this connection from now on, and nothing else. It is said before flows are opened.
    Bring {
        /// The credential.
        credential: Secret,
    },
    /// What of the policy of the user allows a flow or refuses it, a line for each statement. Opens nothing.
    Explain {
        /// The device.
        device: String,
        /// Its components; none: of the streams of the device, for a program with libscap.
        stack: String,
    },
    /// How the sensor is.
    Status {
        /// And which components are computed once for which flows.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        shared: bool,
    },
    /// Whether a flow could be opened, as far as its text and its user's rights say.
    Check {
        /// The device.
        device: String,
        /// Its components; none: whether the device is there.
        stack: String,
    },
    /// A flow: a stack on a device, until it is closed or the connection ends. `fd:0` in the place of a file to be written is the
    /// first of the descriptors that come with it.
    Open {
        /// The device.
        device: String,
        /// Its components.
        stack: String,
    },
    /// The results of a flow of this connection.
    Results {
        /// Which.
        flow: u64,
        /// Of this component only, by its label, whose table is forgotten: what comes later is in the next answer.
        take: Option<String>,
    },
    /// The user still reads the rows that were taken of a component: a device of files waits with further ones.
    Reads {
        /// The flow.
        flow: u64,
        /// The component, by its label.
        component: String,
    },
    /// Ends a flow of this connection; its last results are the answer.
    Close {
        /// Which.
        flow: u64,
    },
    /// A device of a file whose descriptor comes with it, read once it is started. It is this connection's, and ends with it.
    CreateDevice,
    /// Ends such a device, and the flows on it.
    DeleteDevice {
        /// The device.
        device: String,
    },
    /// The files of a device that holds are read from now on.
    Start {
        /// The device.
        device: String,
    },
    /// The streams of an interface, for a program with libscap. The connection is the program's then: it says the following, and
    /// hears what there is for it to hear ([`notice`](crate::programs::notice)).
    Capture(Box<Capture>),
    /// Something about single streams, by their numbers.
    Streams {
        /// What.
        commands: Vec<(u64, StreamCommand)>,
    },
    /// This is wanted of the streams that begin from now on.
    Change {
        /// What.
        wanted: Box<Wanted>,
    },
    /// This is lost first.
    Lose(Thresholds),
    /// Nothing further is wanted: what streams have, and their ends, still come.
    Leave,
    /// Takes the configuration anew.
    Reload,
    /// Ends the sensor.
    Stop,
}

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// To be kept from logs.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// What the sensor answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done; what is to be said of it.
    Done(Vec<String>),
    /// How the sensor is.
    Status(Status),
    /// A new flow. With it come descriptors of the memory shared with the user ([`layout`](crate::layout)).
    Flow(OpenedFlow),
    /// The name of a new device.
    Device(String),
    /// Results of a flow.
    Results(Results),
    /// A program has joined. With it come descriptors of the pool, the ring and the page.
    Capture(OpenedCapture),
    /// There are events.
    Wake,
    /// Nothing comes behind the events that are there.
    Left,
    /// The capture is over, and why.
    Ended(String),
    /// It is not done.
    Refused(Refusal),
}

/// A flow that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedFlow {
    /// Its number.
    pub number: u64,
    /// The labels of its components.
    pub components: Vec<String>,
    /// Its device is an interface.
    #[serde(default)]
    pub is_live: bool,
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong.
    pub error: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// It may be done later: the agent of a sensor that is not there says so.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_passing: bool,
    /// The flow that it is about has ended.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub has_ended: bool,
    /// The user may not have it, as rights are.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_about_rights: bool,
}

impl Refusal {
    /// Why.
    pub fn new(error: impl Into<String>) -> Refusal {
        Refusal {
            error: error.into(),
            hint: None,
            is_passing: false,
            has_ended: false,
            is_about_rights: false,
        }
    }

    /// Why rights do not allow it, and what to do about it.
    pub fn by_rights(error: impl Into<String>, hint: &str) -> Refusal {
        Refusal {
            is_about_rights: true,
            ..Refusal::with_hint(error, hint)
        }
    }

    /// Why, and what to do about it.
    pub fn with_hint(error: impl Into<String>, hint: &str) -> Refusal {
        Refusal {
            hint: Some(hint.to_owned()),
            ..Refusal::new(error)
        }
    }

    /// In one line.
    pub fn text(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; hint: {hint}", self.error),
            None => self.error.clone(),
        }
    }
}

/// How a sensor is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Seconds since it began.
    pub seconds: u64,
    /// Bytes of memory in use, as the system counts them.
    pub memory: u64,
    /// Connections of users.
    pub connections: u64,
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
    /// Its users: all that have come so far for who may see them.
    #[serde(default)]
    pub users: Vec<UserStatus>,
}

/// What a user costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user; one of another machine has a number from 2^32 on, and a name.
    pub user: u64,
    /// The name in the certificate of a user of another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Connections that are open.
    pub connections: u64,
    /// Processor time of the user's flows, of opening them and of answers about them, in nanoseconds.
    pub cpu_ns: u64,
    /// Processors that the user may take; nothing where that is not bounded.
    pub cpu: Option<f64>,
    /// Whether the user has taken more of late.
    pub is_over: bool,
    /// Bytes of packets that wait for the user, and that may.
    pub memory: u64,
    /// ... of at most so many.
    pub most_memory: u64,
}

/// How a device is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name.
    pub device: String,
    /// What it captures or reads.
    pub source: String,
    /// `holding`, `reading`, `away` (an interface that is taken again when it is back), `ended` or `failed`.
    pub state: String,
    /// Packets received.
    pub packets: u64,
    /// ... and delivered.
    pub delivered: u64,
    /// Bytes of those on the wire.
    pub delivered_bytes: u64,
    /// Packets that were not delivered, by place of the ledger.
    pub refused: BTreeMap<String, u64>,
    /// Whether half of the interface's ring waits to be taken.
    #[serde(default)]
    pub is_behind: bool,
    /// Of an interface: what is kept away in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<OffloadStatus>,
    /// What is wrong with it.
    pub errors: Vec<String>,
    /// Its stacks and flows.
    pub stacks: Vec<StackStatus>,
    /// Which components are computed once for which flows, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedStatus>,
    /// Programs with libscap, where they may have its streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingStatus>,
}

/// Packets that nothing on a device wants, which are kept away before they are copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadStatus {
    /// Packets that were kept away. They are among those received and delivered.
    pub packets: u64,
    /// ... and their bytes on the wire.
    pub bytes: u64,
    /// Packets of which only headers came.
    pub cut: u64,
    /// Flows of which less than all is wanted now.
    pub flows: u64,
    /// Flows of which everything came because there was no room for them.
    pub not_taken: u64,
    /// Why nothing is kept away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// Components that are computed once for some flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedStatus {
    /// The components, as the first of the flows calls them.
    pub components: Vec<String>,
    /// Whether those that follow get what comes of one engine.
    pub is_engine: bool,
    /// The flows that the asker may see.
    pub flows: Vec<u64>,
    /// Stacks of the configuration, for who may see them.
    pub stacks: Vec<String>,
    /// How many others there are: flows of other users, and stacks of the configuration.
    pub others: u64,
    /// What the flows go on with.
    pub next: Vec<SharedStatus>,
}

/// A stack of the configuration, or of flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StackStatus {
    /// Its name.
    pub stack: String,
    /// The flows that it runs for; of one of the configuration none.
    pub flows: Vec<FlowStatus>,
    /// Its components.
    pub components: Vec<String>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Processor time that it has taken, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: u64,
}

/// A flow, and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Its number.
    pub flow: u64,
    /// The user; one of another machine has a number from 2^32 on, and a name.
    pub user: u64,
    /// The name in the certificate of a user of another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The process: of users of other machines that of their agent.
    pub process: u32,
    /// Seconds since it was opened, or since its device began anew.
    #[serde(default)]
    pub seconds: u64,
    /// Its part of the processor time of its stack, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: u64,
    /// Packets that it lost: they found no room in its ring, others would have lost packets for it, or they were more than
    /// `packets_per_second`. Of a program with libscap events.
    #[serde(default)]
    pub lost: u64,
    /// Bytes of packets, or of chunks, that wait for it.
    #[serde(default)]
    pub waiting: u64,
}

/// The results of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// When they were read, in nanoseconds since 1970.
    pub time: u64,
    /// Whether the device has come to its end.
    pub is_last: bool,
    /// Why the flow failed, if it did.
    pub failure: Option<String>,
    /// Packets that the flow lost, as in [`FlowStatus`].
    #[serde(default)]
    pub lost: u64,
    /// Of each component.
    pub components: Vec<ComponentResult>,
}

impl Results {
    /// What was taken of tables before comes before their rows.
    #[cfg(feature = "client")]
    pub(crate) fn begin_with(&mut self, earlier: Results) {
        for before in earlier.components {
            let mut all = self.components.iter_mut();
            let component = all.find(|it| it.component == before.component);
            if let (Some(component), Some(mut rows)) = (component, before.rows) {
                rows.append(component.rows.get_or_insert_default());
                component.rows = Some(rows);
            }
        }
    }
}

/// The result of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentResult {
    /// Its label.
    pub component: String,
    /// Items that came to it.
    pub items: u64,
    /// What the result is; nothing where it has none.
    pub result: Option<String>,
    /// A number.
    pub value: Option<Value>,
    /// Its unit.
    pub unit: Option<String>,
    /// Rows of a table: values by column.
    pub rows: Option<Vec<serde_json::Map<String, Value>>>,
    /// Columns whose values are times, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<String>,
}

/// Sends an answer, in as many parts as it takes.
///
/// # Errors
/// The system's; when the user has gone, or does not receive.
pub fn send_answer(
    connection: &Connection,
    answer: &Answer,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(answer)?;
    if bytes.len() > MOST_ANSWER {
        let long = format!(
            "the answer has {} bytes, and {MOST_ANSWER} at most are sent",
            bytes.len()
        );
        let refusal = Refusal::with_hint(long, "let components keep less, or open several flows");
        bytes = serde_json::to_vec(&Answer::Refused(refusal))?;
    }
    send_all(connection, marked(&bytes), files)
}

/// Sends a request, in as many parts as it takes.
///
/// # Errors
/// The system's; when the other end has gone, or does not receive.
pub fn send(connection: &Connection, request: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_all(connection, parts(request), files)
}

/// The messages that a request is sent as.
pub fn parts(request: &[u8]) -> Vec<Vec<u8>> {
    match request.len() > PART_BYTES {
        true => marked(request).collect(),
        false => vec![request.to_vec()],
    }
}

fn marked(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let last = bytes.len().div_ceil(PART_BYTES).saturating_sub(1);
    let parts = bytes.chunks(PART_BYTES).enumerate();
    parts.map(move |(at, part)| [if at < last { b"+" } else { b"." }, part].concat())
}

fn send_all(
    connection: &Connection,
    parts: impl IntoIterator<Item = Vec<u8>>,
    mut files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    for part in parts {
        send_part(connection, &part, files)?;
        files = &[];
    }
    Ok(())
}

/// Sends a part when there is room for it.
fn send_part(connection: &Connection, part: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    const LOOK: Duration = Duration::from_millis(2);

    let until = Instant::now() + PATIENCE;
    loop {
        match connection.send_files(part, files) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                thread::sleep(LOOK);
            }
            sent => return sent,
        }
    }
}

/// Receives an answer within `patience`, and the descriptors that come with it.
///
/// # Errors
/// The system's; when none comes, or something else.
pub fn receive_answer(
    connection: &Connection,
    patience: Duration,
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    let mut parts = Parts::default();
    let mut part = vec![0; PART_BYTES + 1];
    let mut since = Instant::now();
    loop {
        let left = local::remaining(since, Some(patience));
        if !connection.wait(left)? {
            // A signal ends a wait, too.
            match since.elapsed() < patience {
                true => continue,
                false => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        since = Instant::now();
        let (len, files) = match connection.receive_files(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            received => received?,
        };
        if let Some((answer, files)) = parts.add(&part[..len], files, MOST_ANSWER)? {
            return Ok((decode(&answer)?, files));
        }
    }
}

/// What came of a message that has several parts.
#[derive(Debug, Default)]
pub struct Parts {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Parts {
    /// Adds a part. Returns the whole, and the descriptors that came with its first part, once it is there.
    ///
    /// # Errors
    /// It is none, or the whole would have more than `most` bytes.
    pub fn add(
        &mut self,
        part: &[u8],
        files: Vec<OwnedFd>,
        most: usize,
    ) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let (mark, part) = part.split_first().ok_or(io::ErrorKind::InvalidData)?;
        if self.bytes.is_empty() {
            self.files = files;
        }
        if self.bytes.len() + part.len() > most || !matches!(mark, b'+' | b'.') {
            *self = Parts::default();
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.bytes.extend_from_slice(part);
        if *mark == b'+' {
            return Ok(None);
        }
        let Parts { bytes, files } = core::mem::take(self);
        Ok(Some((bytes, files)))
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_come_in_parts() {
        let (one, other) = Connection::pair().unwrap();
        let answer = Answer::Done(vec!["x".repeat(1000); 1000]);
        let expected = answer.clone();
        let sender = thread::spawn(move || send_answer(&one, &answer, &[]).unwrap());
        let (received, _) = receive_answer(&other, Duration::from_secs(10)).unwrap();
        assert_eq!(received, expected);
        sender.join().unwrap();
    }

    #[test]
    fn requests_are_what_they_look_like() {
        let open: Request =
            decode(br#"{"do": "open", "device": "eth0", "stack": "count"}"#).unwrap();
        let Request::Open { device, stack } = open else {
            panic!("{open:?}");
        };
        assert_eq!((device.as_str(), stack.as_str()), ("eth0", "count"));
        for wrong in [
            &br#"{"do": "open"}"#[..],
            br#"{"do": "fly"}"#,
            b"",
            br#"{"do": "results", "flow": -1}"#,
        ] {
            assert!(decode::<Request>(wrong).is_err());
        }
    }
}
