//! A capture file of any format as a [`PacketSource`].

use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::{BATCH_SIZE, Batch, Ledger, PacketDescriptor};

use crate::error::Error;
use crate::file::input::Input;
use crate::memory::SharedMemory;
use crate::source::{Interface, PacketSource};

/// The largest packet accepted whatever the file says of its snap length: libpcap's
/// `MAXIMUM_SNAPLEN`.
pub(crate) const MAX_PACKET_BYTES: u32 = 262_144;

/// A file that says its snap length is larger is believed up to here.
pub(crate) const MAX_SNAP_LEN: u32 = 16 << 20;

/// A file format: finds packets in bytes.
pub(crate) trait Format: Send {
    /// Finds packets in `memory` from `start` on and appends their descriptors (offsets into
    /// `memory`) until there are [`BATCH_SIZE`] or the bytes end.
    fn parse(
        &mut self,
        memory: Memory<'_>,
        start: usize,
        packets: &mut Vec<PacketDescriptor>,
    ) -> Parsed;

    /// The interfaces described so far.
    fn interfaces(&self) -> &[Interface];

    /// Packets that the capture lost, as far as the file says so.
    fn capture_lost(&self) -> u64 {
        0
    }

    /// What was passed over and should be told, if anything: "3 records were ...".
    fn passed_over(&self) -> Option<String> {
        None
    }
}

/// The bytes that a format finds packets in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'a> {
    /// The bytes.
    pub(crate) bytes: &'a [u8],
    /// Whether they are the page cache's, and so likely in no cache of this core.
    pub(crate) mapped: bool,
}

/// How far ahead of the parser a mapped file is prefetched, in bytes. Each record's header says
/// where the next one is, so that without this every packet waits for main memory: it is a third of
/// the cost of decoding, and 2 to 16 KiB do equally well.
const AHEAD: usize = 4096;
const CACHE_LINE: usize = 64;

impl Memory<'_> {
    /// Notes that the parser passed the record that lies between these offsets.
    #[inline(always)]
    pub(crate) fn passed(self, from: usize, to: usize) {
        if !self.mapped {
            return;
        }
        // Several lines at a time, whether or not the record is as long: asking twice costs less than
        // guessing wrong how many lines there are.
        const LINES: usize = 4;
        let mut line = (from + AHEAD) / CACHE_LINE;
        let end = (to + AHEAD) / CACHE_LINE;
        loop {
            for ahead in 0..LINES {
                prefetch_at(self.bytes, (line + ahead) * CACHE_LINE);
            }
            line += LINES;
            if line >= end {
                break;
            }
        }
    }
}

/// How far [`Format::parse`] came and what it needs.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Bytes of whole records consumed.
    pub(crate) consumed: usize,
    /// Why it stopped.
    pub(crate) next: Next,
}

/// Why [`Format::parse`] stopped.
#[derive(Debug)]
pub(crate) enum Next {
    /// The batch is complete: full, or an interface was added that no later packet may precede.
    Deliver,
    /// The next record needs this many bytes in all.
    Need(usize),
    /// This many bytes hold nothing of interest.
    Skip(u64),
    /// The record at `consumed` is nonsense.
    Damaged(String),
}

/// Reads records from `start` on until the batch is full. `record` reads the one at an offset, appends what it holds and
/// tells where the next one begins, or why there is none.
#[inline(always)]
pub(crate) fn each_record(
    memory: Memory<'_>,
    start: usize,
    packets: &mut Vec<PacketDescriptor>,
    mut record: impl FnMut(usize, &mut Vec<PacketDescriptor>) -> Result<usize, Next>,
) -> Parsed {
    let mut at = start;
    let next = loop {
        if packets.len() >= BATCH_SIZE {
            break Next::Deliver;
        }
        match record(at, packets) {
            Ok(end) => {
                memory.passed(at, end);
                at = end;
            }
            Err(next) => break next,
        }
    };
    Parsed {
        consumed: at - start,
        next,
    }
}

/// A source whose last batch can be looked at again: what merging needs.
pub(crate) trait BatchReader: Send {
    /// Reads the next batch; `false` at the end. The batch may be empty.
    fn load(&mut self) -> Result<bool, Error>;

    /// The batch that was loaded last.
    fn loaded(&self) -> Batch<'_>;

    /// Its descriptors, to renumber interfaces.
    fn loaded_mut(&mut self) -> &mut [PacketDescriptor];
}

/// Packets of one file.
pub(crate) struct FileSource<F> {
    input: Input,
    format: F,
    packets: Vec<PacketDescriptor>,
    ledger: Ledger,
    ended: bool,
}

impl<F: Format> FileSource<F> {
    /// A source over `input`, which stands behind the file header.
    pub(crate) fn new(input: Input, format: F) -> FileSource<F> {
        FileSource {
            input,
            format,
            packets: Vec::with_capacity(BATCH_SIZE),
            ledger: Ledger::default(),
            ended: false,
        }
    }

    /// Takes in descriptions of interfaces that are in memory already, so that they are known
    /// before the first batch.
    /// A file that is nonsense from its first byte on is refused.
    pub(crate) fn with_first_interfaces(mut self) -> Result<FileSource<F>, Error> {
        let start = self.input.start();
        let memory = self.input.view();
        let parsed = self.format.parse(memory, start, &mut self.packets);
        debug_assert!(self.packets.is_empty(), "interfaces come before packets");
        self.input.consume(parsed.consumed);
        match parsed.next {
            Next::Damaged(reason) if self.input.position() == 0 => Err(Error::NotACapture {
                path: self.input.path().to_owned(),
                reason,
            }),
            _ => Ok(self),
        }
    }

    fn load_batch(&mut self) -> Result<bool, Error> {
        self.packets.clear();
        while !self.ended {
            let (memory, start) = (self.input.view(), self.input.start());
            let parsed = self.format.parse(memory, start, &mut self.packets);
            // Consuming moves nothing: the descriptors stay valid until the next `fill`.
            self.input.consume(parsed.consumed);
            if self.input.was_cut() {
                self.packets.clear();
                self.ended = true;
                let reason = "the file was cut, or could not be read, while it was read";
                return Err(self.damaged(reason.to_owned(), true));
            }
            if !self.packets.is_empty() {
                self.count();
                return Ok(true);
            }
            match parsed.next {
                Next::Deliver => return Ok(true),
                Next::Need(bytes) => {
                    let enough = self.input.fill(bytes);
                    let enough = self.ended_on_error(enough)?;
                    if !enough {
                        self.ended = true;
                        return self.end_of_input(bytes);
                    }
                }
                Next::Skip(bytes) => {
                    let skipped = self.input.skip(bytes);
                    let skipped = self.ended_on_error(skipped)?;
                    if !skipped {
                        self.ended = true;
                        if self.input.is_stopped() {
                            return Ok(false);
                        }
                        return Err(self.damaged("the file ends inside a block".to_owned(), true));
                    }
                }
                Next::Damaged(reason) => {
                    self.ended = true;
                    return Err(self.damaged(reason, false));
                }
            }
        }
        Ok(false)
    }

    fn count(&mut self) {
        let packets = self.packets.len() as u64;
        self.ledger.take(packets, wire_bytes(&self.packets));
    }

    fn ended_on_error<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.ended |= result.is_err();
        result
    }

    fn end_of_input(&self, needed: usize) -> Result<bool, Error> {
        let left = self.input.window().len();
        if left == 0 || self.input.is_stopped() {
            return Ok(false);
        }
        let reason =
            format!("the file ends inside a record: {left} bytes of at least {needed} are there");
        Err(self.damaged(reason, true))
    }

    fn damaged(&self, reason: String, truncated: bool) -> Error {
        Error::Damaged {
            path: self.input.path().to_owned(),
            offset: self.input.position(),
            reason,
            truncated,
        }
    }
}

impl<F: Format> BatchReader for FileSource<F> {
    fn load(&mut self) -> Result<bool, Error> {
        self.load_batch()
    }

    fn loaded(&self) -> Batch<'_> {
        Batch::new(self.input.memory(), &self.packets)
    }

    fn loaded_mut(&mut self) -> &mut [PacketDescriptor] {
        &mut self.packets
    }
}

impl<F: Format> PacketSource for FileSource<F> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        Ok(if self.load_batch()? {
            Some(self.loaded())
        } else {
            None
        })
    }

    fn interfaces(&self) -> &[Interface] {
        self.format.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.ledger.clone()
    }

    fn capture_lost(&self) -> u64 {
        self.format.capture_lost()
    }

    fn notes(&self) -> Vec<String> {
        let passed_over = self.format.passed_over();
        let path = self.input.path().display();
        passed_over
            .map(|text| format!("{path}: {text}"))
            .into_iter()
            .collect()
    }

    fn share(&mut self) -> Option<SharedMemory> {
        Some(self.input.share())
    }

    fn is_at_hand(&self) -> bool {
        self.input.is_at_hand()
    }

    fn is_exhausted(&self) -> bool {
        self.input.is_exhausted()
    }
}

/// Sum of the packets' lengths on the wire.
pub(crate) fn wire_bytes(packets: &[PacketDescriptor]) -> u64 {
    packets
        .iter()
        .map(|packet| u64::from(packet.wire_len))
        .sum()
}
