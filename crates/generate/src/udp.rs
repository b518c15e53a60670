//! One UDP flow as a passive observer sees it.

use std::io::{self, Write};
use std::net::IpAddr;

use super::config::{Config, Detail};
use super::frame::{Path, finish, sum};
use super::output::Treatment;
use super::payload::{self, Filler};
use super::random::Random;
use super::tcp::Context;
use super::truth::{Tracker, Truth};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const UDP: u8 = 17;

/// What a flow carries.
#[derive(Clone, Debug)]
pub(super) enum Script {
    /// A query and its response.
    Dns { response: Option<Vec<u8>> },
    /// Time queries: 48 bytes each way.
    Ntp,
    /// QUIC: long headers first, then short ones.
    Quic { sent: u64 },
    /// RTP every 20 ms in one direction.
    Media { sequence: u16, source: u32 },
    /// A dialogue of a few bytes each.
    Chat,
    /// Datagrams larger than a frame.
    Large,
}

pub(super) struct UdpFlow {
    random: Random,
    addresses: [(IpAddr, u16); 2],
    paths: [Path; 2],
    round_trip: u64,
    trackers: [Tracker; 2],
    script: Script,
    left: u64,
    sender: usize,
    at: u64,
    id: u16,
    payload: Vec<u8>,
    answered: bool,
}

impl UdpFlow {
    /// A flow of `left` datagrams that begins at `start`.
    pub(super) fn new(
        config: &Config,
        mut random: Random,
        (addresses, paths): ([(IpAddr, u16); 2], [Path; 2]),
        (script, left): (Script, u64),
        (start, round_trip): (u64, u64),
    ) -> Self {
        let hashed = config.detail == Detail::Full;
        UdpFlow {
            id: random.bits() as u16,
            random,
            addresses,
            paths,
            round_trip,
            trackers: [Tracker::new(hashed), Tracker::new(hashed)],
            script,
            left,
            sender: 0,
            at: start,
            payload: Vec::new(),
            answered: false,
        }
    }

    /// When the next datagram is sent.
    pub(super) fn next_time(&self) -> Option<u64> {
        (self.left > 0).then_some(self.at)
    }

    /// Sends the datagram that is due at `now`.
    pub(super) fn advance<W: Write>(
        &mut self,
        now: u64,
        context: &mut Context<'_, W>,
    ) -> io::Result<()> {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        self.left -= 1;
        let from = self.sender;
        let pause = self.compose(&mut payload, context);
        let random = &mut self.random;
        let large = payload.len() > 1_400;
        let fragments = if large {
            payload.len().div_ceil(1_400) as u8
        } else if payload.len() > 64 && random.chance(context.config.fragments) {
            2
        } else {
            1
        };
        let treatment = Treatment {
            missing: random.chance(context.config.missing),
            duplicated: false,
            fragments,
        };
        self.id = self.id.wrapping_add(1);
        let path = &self.paths[from];
        let length = 8 + payload.len();
        let mut head = [0; 8];
        head[..2].copy_from_slice(&self.addresses[from].1.to_be_bytes());
        head[2..4].copy_from_slice(&self.addresses[1 - from].1.to_be_bytes());
        head[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        let total = path.pseudo_sum(UDP, length) + sum(&head) + sum(&payload);
        // A sum of zero is sent as all ones (RFC 768): zero means no checksum.
        let checksum = match finish(total) {
            0 => 0xffff,
            checksum => checksum,
        };
        head[6..].copy_from_slice(&checksum.to_be_bytes());
        let id = u32::from(self.id);
        let (packets, bytes) =
            context
                .output
                .send(now, path, (UDP, id), (&head, &payload), treatment)?;
        let tracker = &mut self.trackers[from];
        let offset = tracker.sent();
        tracker.send(&payload, !treatment.missing);
        if !treatment.missing {
            tracker.capture(offset, offset + payload.len() as u64);
        }
        tracker.packets += packets;
        tracker.wire_bytes += bytes;
        self.at = now + pause;
        self.payload = payload;
        Ok(())
    }

    /// Adds what is known of the flow to the truth.
    pub(super) fn finish(self, truth: &mut Truth, detail: Detail) {
        if self.trackers.iter().all(|tracker| tracker.packets == 0) {
            return;
        }
        truth.flows.udp += 1;
        truth.totals.dns_transactions += u64::from(self.answered);
        for (index, tracker) in self.trackers.into_iter().enumerate() {
            let totals = &mut truth.totals;
            totals.udp_payload_bytes += tracker.sent();
            totals.udp_missing_bytes += tracker.missing();
            totals.bytes_beyond_10k += tracker.sent().saturating_sub(10_240);
            if detail == Detail::Full && tracker.sent() > 0 {
                let (from, to) = (self.addresses[index], self.addresses[1 - index]);
                truth
                    .streams
                    .push(tracker.finish(from, to, "udp", index == 0));
            }
        }
    }

    /// Makes the next datagram's payload, decides who sends the one after it, and returns the time
    /// until then.
    fn compose<W>(&mut self, to: &mut Vec<u8>, context: &mut Context<'_, W>) -> u64 {
        let random = &mut self.random;
        let library = context.library;
        let turn = |sender: &mut usize| *sender = 1 - *sender;
        match &mut self.script {
            Script::Dns { response } => {
                if let Some(response) = response.take() {
                    to.extend_from_slice(&response);
                    self.answered = true;
                } else {
                    let (query, answer) = payload::dns(random);
                    to.extend_from_slice(&query);
                    *response = Some(answer);
                }
                turn(&mut self.sender);
                self.round_trip + random.below(MILLISECOND)
            }
            Script::Ntp => {
                to.extend_from_slice(&library.bytes(random, Filler::Binary, 48));
                to[..4].copy_from_slice(match self.sender {
                    0 => &[0x23, 0, 6, 0xec],
                    _ => &[0x24, 2, 6, 0xec],
                });
                turn(&mut self.sender);
                self.round_trip
            }
            Script::Quic { sent } => {
                *sent += 1;
                let long = *sent <= 3;
                let size = if long {
                    1_200
                } else {
                    random.between(40, 1_200) as usize
                };
                to.extend_from_slice(&library.bytes(random, Filler::Binary, size));
                if long {
                    // Initial packet (RFC 9000, section 17.2.2): connection ids of eight bytes,
                    // no token, the length of the rest.
                    let rest = (0x4000 | (size - 26) as u16).to_be_bytes();
                    to[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
                    to[14] = 8;
                    to[23] = 0;
                    to[24..26].copy_from_slice(&rest);
                } else {
                    to[0] = 0x40 | (to[0] & 0x3f);
                }
                if long || random.chance(0.4) {
                    turn(&mut self.sender);
                    self.round_trip
                } else {
                    random.between(50, 2_000) * MICROSECOND
                }
            }
            Script::Media { sequence, source } => {
                to.extend_from_slice(&[0x80, 8]);
                to.extend_from_slice(&sequence.to_be_bytes());
                to.extend_from_slice(&(u32::from(*sequence) * 160).to_be_bytes());
                to.extend_from_slice(&source.to_be_bytes());
                to.extend_from_slice(&library.bytes(random, Filler::Binary, 160));
                *sequence = sequence.wrapping_add(1);
                20 * MILLISECOND - MICROSECOND * 200 + random.below(400 * MICROSECOND)
            }
            Script::Chat => {
                let size = random.between(10, 60) as usize;
                to.extend_from_slice(&library.bytes(random, Filler::Text, size));
                turn(&mut self.sender);
                self.round_trip + random.between(100, 3_000) * MICROSECOND
            }
            Script::Large => {
                let size = random.between(2_000, 8_000) as usize;
                to.extend_from_slice(&library.bytes(random, Filler::Binary, size));
                turn(&mut self.sender);
                self.round_trip + random.between(500, 9_000) * MICROSECOND
            }
        }
    }
}
