//! What came from one sender and was not given on.

use std::collections::VecDeque;
use std::time::Instant;

use flowgauge_link::ReceivedItems;
use flowgauge_record::OwnedRecord;
use flowgauge_wire::{BATCH_SIZE, Nanos, PacketDescriptor};

use super::codec::{Announced, ChunkPlace, Decoder, Kind};
use super::merge::Standing;

/// One sender.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) announced: Announced,
    pub(super) frames: VecDeque<ReceivedItems>,
    /// Of the first frame.
    pub(super) decoder: Option<Decoder>,
    /// How many items of the first frame were read.
    pub(super) read: u32,
    pub(super) run: Run,
    /// How many of the run were given on.
    pub(super) at: usize,
    pub(super) watermark: u64,
    /// When the watermark moved.
    pub(super) moved: Instant,
    pub(super) is_connected: bool,
    /// When the connection broke.
    pub(super) left: Option<Instant>,
    pub(super) is_awaited: bool,
    pub(super) has_ended: bool,
    /// An earlier run of the sender left it.
    pub(super) is_left: bool,
    /// Each frame comes with what it refers to.
    pub(super) is_whole: bool,
    /// Records get their numbers.
    pub(super) numbers: bool,
    pub(super) late: u64,
    pub(super) refused: u64,
}

/// Items of the first frame that were read.
pub(super) enum Run {
    Packets(Vec<PacketDescriptor>),
    Chunks(Vec<ChunkPlace>),
    Records(Vec<(Nanos, OwnedRecord)>),
}

impl Run {
    pub(super) fn new(kind: Kind) -> Run {
        match kind {
            Kind::Packets => Run::Packets(Vec::with_capacity(BATCH_SIZE)),
            Kind::Chunks => Run::Chunks(Vec::new()),
            Kind::Records => Run::Records(Vec::new()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Run::Packets(packets) => packets.len(),
            Run::Chunks(chunks) => chunks.len(),
            Run::Records(records) => records.len(),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Run::Packets(packets) => packets.clear(),
            Run::Chunks(chunks) => chunks.clear(),
            Run::Records(records) => records.clear(),
        }
    }

    #[inline]
    pub(super) fn time(&self, place: usize) -> Option<u64> {
        match self {
            Run::Packets(packets) => packets.get(place).map(|packet| packet.time.0),
            Run::Chunks(chunks) => chunks.get(place).map(|chunk| chunk.time.0),
            Run::Records(records) => records.get(place).map(|(time, _)| time.0),
        }
    }
}

impl Source {
    pub(super) fn standing(&self) -> Standing {
        Standing {
            head: self.run.time(self.at),
            watermark: self.watermark,
            is_awaited: self.is_awaited,
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        self.frames.is_empty() && self.at >= self.run.len()
    }

    pub(super) fn promise(&mut self, watermark: u64) {
        if watermark > self.watermark {
            self.watermark = watermark;
            self.moved = Instant::now();
        }
    }

    /// Reads more items, if the ones before are given on and there are some.
    pub(super) fn fill(&mut self, kind: Kind, done: &mut Vec<ReceivedItems>) {
        while self.at >= self.run.len() {
            self.run.clear();
            self.at = 0;
            let Some(frame) = self.frames.front() else {
                return;
            };
            let payload = frame.payload.as_slice();
            let is_over = match &mut self.decoder {
                None => {
                    self.read = 0;
                    let decoder = match self.is_whole {
                        false => Decoder::new(payload),
                        true => Announced::of_whole(payload, self.numbers).and_then(
                            |(announced, at)| {
                                self.announced = announced;
                                Decoder::behind(payload, at)
                            },
                        ),
                    };
                    let found = decoder.as_ref().map(Decoder::kind);
                    self.decoder = decoder.filter(|decoder| decoder.kind() == kind);
                    if self.decoder.is_none() {
                        refused(&self.name, self.refused, found, kind);
                    }
                    self.decoder.is_none()
                }
                Some(decoder) => {
                    // More than were said to come are not counted on.
                    let most = (frame.count - self.read).min(BATCH_SIZE as u32);
                    for _ in 0..most {
                        let is_read = match &mut self.run {
                            Run::Packets(run) => decoder
                                .packet(payload, &self.announced)
                                .map(|one| run.push(one)),
                            Run::Chunks(run) => decoder.chunk(payload).map(|one| run.push(one)),
                            Run::Records(run) => {
                                let number = frame.first + u64::from(self.read) + run.len() as u64;
                                let numbers = self.numbers.then_some((frame.origin, number));
                                decoder
                                    .record(payload, &self.announced, numbers)
                                    .map(|one| run.push(one))
                            }
                        };
                        if is_read.is_none() {
                            break;
                        }
                    }
                    self.read += self.run.len() as u32;
                    self.run.len() == 0
                }
            };
            if is_over {
                if self.decoder.take().is_some() && self.read < frame.count {
                    refused(&self.name, self.refused, None, kind);
                }
                self.refused += u64::from(frame.count - self.read);
                done.extend(self.frames.pop_front());
            }
        }
    }
}

/// Says so for the first time.
pub(super) fn refused(name: &str, before: u64, found: Option<Kind>, wanted: Kind) {
    if before > 0 {
        return;
    }
    let wanted = wanted.name();
    match found {
        Some(found) => flowgauge_link::tell(format_args!(
            "{name} sends {}, and {wanted} are taken: they are left out (option type)",
            found.name()
        )),
        None => flowgauge_link::tell(format_args!("{name} sends what makes no sense: left out")),
    }
}
