//! What programs with libscap ask for, and what is told of them. Streams come in memory that the sensor shares
//! (`flowgauge_runtime::shared` knows what stands where); the connection that asked for them goes on with [`Request`](crate::protocol::Request)s
//! about them, which are not answered, and with notices of the sensor ([`notice`]).

use std::io;

use flowgauge_sys::local::Connection;
use serde::{Deserialize, Serialize};

use crate::protocol::Answer;

/// [`Answer::Wake`] as it is sent.
pub const WAKE: &[u8] = br#"."wake""#;

/// Bytes of a notice at most.
pub const NOTICE_BYTES: usize = 4 << 10;

/// What a program wants of the streams of an interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// Which.
    pub interface: String,
    /// What the program calls itself.
    pub program: String,
    /// Bytes of chunks that may wait for it.
    pub memory: u64,
    /// With how much less it makes do.
    pub least_memory: u64,
    /// What is lost first.
    pub thresholds: Thresholds,
    /// Whether packets are wanted beside chunks.
    pub packets: bool,
    /// Whether chunks are wanted.
    pub data: bool,
    /// Of all streams.
    pub wanted: Wanted,
}

/// What a program wants of all streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Which, in pcap-filter syntax.
    pub filter: Option<String>,
    /// How TCP bytes are put in order.
    pub mode: Mode,
    /// Bytes wanted of a stream.
    pub cutoff: u64,
    /// ... of the initiator's direction.
    pub from_initiator: Option<u64>,
    /// ... of the responder's direction.
    pub from_responder: Option<u64>,
    /// ... of streams that match; the first that matches decides.
    pub cutoffs: Vec<(String, u64)>,
    /// Chunk size; 0: each segment is a chunk.
    pub chunk_bytes: u32,
    /// Last bytes of a chunk that the next one repeats.
    pub overlap_bytes: u32,
    /// A chunk is delivered so many nanoseconds after its first byte.
    pub flush_timeout: Option<u64>,
    /// Higher is more important.
    pub priority: u8,
    /// ... of streams that match; the first that matches decides.
    pub priorities: Vec<(String, u8)>,
    /// Nanoseconds without packets after which a stream has ended.
    pub inactivity_timeout: Option<u64>,
}

/// How TCP bytes are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Waiting for what is missing.
    Wait,
    /// As they come.
    Fast,
    /// Only as they were sent.
    Strict,
}

/// From when on a program loses chunks, and which of them first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Share of its memory below which nothing is lost.
    pub base: f64,
    /// Bytes of a stream, from which on chunks go first.
    pub overload_cutoff: Option<u64>,
}

/// What a program asks for a single stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamCommand {
    /// So many of its bytes are wanted.
    Cutoff(u64),
    /// Higher is more important.
    Priority(u8),
    /// Nothing more is wanted of it.
    Discard,
    /// As in [`Wanted`].
    ChunkBytes(u32),
    /// As in [`Wanted`].
    OverlapBytes(u32),
    /// As in [`Wanted`].
    FlushTimeout(Option<u64>),
    /// As in [`Wanted`].
    Mode(Mode),
    /// As in [`Wanted`].
    InactivityTimeout(Option<u64>),
}

/// A capture that a program has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedCapture {
    /// The number of its flow.
    pub number: u64,
    /// The process that captures.
    pub process: u32,
    /// The number of its application.
    pub application: u8,
    /// Bytes of chunks that may wait for it.
    pub memory: u64,
}

/// Chunks and their bytes (repeated ones not counted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunks {
    /// Data events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Chunks {
    /// One more.
    pub fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }
}

/// What was delivered to a program, and what was lost for it alone because it was too slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatistics {
    /// Creations delivered.
    pub created: u64,
    /// Terminations delivered.
    pub terminated: u64,
    /// Chunks delivered.
    pub data: Chunks,
    /// Creations lost, because the ring of events was full.
    pub lost_created: u64,
    /// Terminations lost, because the ring of events was full.
    pub lost_terminated: u64,
    /// Chunks lost because of the priority of their streams: too many bytes waited.
    pub lost_to_priority: Chunks,
    /// Chunks lost because they were beyond the overload cutoff.
    pub lost_to_overload_cutoff: Chunks,
    /// Chunks lost because the ring of events was full.
    pub lost_to_ring: Chunks,
    /// Chunks lost because the pool was full, or they and their packets too large for it.
    pub lost_to_pool: Chunks,
    /// Commands and changes that the sensor refused, or did not hear in time.
    pub refused_commands: u64,
}

impl ClientStatistics {
    /// Chunks lost for whatever reason.
    pub fn lost_data(&self) -> Chunks {
        let all = [
            self.lost_to_priority,
            self.lost_to_overload_cutoff,
            self.lost_to_ring,
            self.lost_to_pool,
        ];
        Chunks {
            events: all.iter().map(|chunks| chunks.events).sum(),
            bytes: all.iter().map(|chunks| chunks.bytes).sum(),
        }
    }

    /// Events lost for whatever reason.
    pub fn lost_events(&self) -> u64 {
        self.lost_data().events + self.lost_created + self.lost_terminated
    }

    /// Whether nothing was lost.
    pub fn is_complete(&self) -> bool {
        self.lost_events() == 0
    }
}

/// How a program stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// The number of its flow.
    pub flow: u64,
    /// Process; 0 if it is not visible to the sensor.
    pub process: u32,
    /// User; one with a credential has a number from 2^32 on.
    pub user: u64,
    /// What it calls itself.
    pub name: String,
    /// Seconds since it joined.
    pub seconds: u64,
    /// Events that wait for it.
    pub waiting: u32,
    /// Bytes of the chunks that wait for it.
    pub held: u64,
    /// Bytes that may wait.
    pub memory: u64,
    /// What it got and what it lost.
    pub statistics: ClientStatistics,
}

/// How the streams of a device are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingStatus {
    /// Of which interface.
    pub interface: String,
    /// Bytes of chunks in the pool.
    pub pool_in_use: u64,
    /// Bytes of memory that the pool takes.
    pub pool_touched: u64,
    /// The programs that the asker may see, in the order they came.
    pub programs: Vec<ClientStatus>,
}

/// Tells a program something that it did not ask for, if there is room for it.
///
/// # Errors
/// The system's.
pub fn send_notice(connection: &Connection, notice: &Answer) -> io::Result<()> {
    let mut message = vec![b'.'];
    serde_json::to_writer(&mut message, notice)?;
    connection.send(&message)
}

/// What the sensor tells a program: [`Answer::Wake`], [`Answer::Left`] or [`Answer::Ended`].
pub fn notice(message: &[u8]) -> Option<Answer> {
    serde_json::from_slice(message.strip_prefix(b".")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_come_back() {
        let (one, other) = Connection::pair().unwrap();
        let notices = [Answer::Wake, Answer::Left, Answer::Ended("why".to_owned())];
        let mut message = [0; NOTICE_BYTES];
        for sent in notices {
            send_notice(&one, &sent).unwrap();
            let len = other.receive(&mut message).unwrap();
            assert_eq!(notice(&message[..len]), Some(sent));
        }
        assert_eq!(notice(WAKE), Some(Answer::Wake));
        assert_eq!(notice(b"wake"), None);
    }
}
