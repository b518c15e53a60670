//! The capture file being written, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use flowgauge_wire::{LinkType, Nanos, PacketDescriptor};

use flowgauge_capture::Interface;
use flowgauge_capture::sink::encode;

use super::config::Resolution;
use super::frame::{Part, Path};
use super::truth::Totals;

/// Bytes gathered before they are written.
const BUFFER: usize = 256 << 10;
/// Stated in the file's header.
const SNAP_LEN: u32 = 262_144;

/// Writes frames as a capture file; frames whose time has not come wait.
pub(super) struct Output<W> {
    sink: W,
    buffer: Vec<u8>,
    resolution: Resolution,
    pcapng: bool,
    now: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    order: u64,
    spare: Vec<Vec<u8>>,
    /// Frames written or waiting, and their bytes.
    pub(super) packets: u64,
    pub(super) wire_bytes: u64,
    pub(super) file_bytes: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) totals: Totals,
    frame: Vec<u8>,
    datagram: Vec<u8>,
}

/// A frame whose time has not come.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at: u64,
    order: u64,
    frame: Vec<u8>,
}

/// What happens to a datagram between the wire and the capture file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Treatment {
    /// It is not in the capture; of a fragmented one, at least one fragment is not.
    pub(super) missing: bool,
    /// It is in the capture twice.
    pub(super) duplicated: bool,
    /// It travels as this many fragments; 0 and 1 mean whole.
    pub(super) fragments: u8,
}

impl<W: Write> Output<W> {
    pub(super) fn new(sink: W, resolution: Resolution, pcapng: bool) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER + (70 << 10));
        if pcapng {
            let interface = Interface {
                link: LinkType::ETHERNET,
                snap_len: SNAP_LEN,
                ..Interface::default()
            };
            encode::section_header(&mut buffer, None);
            encode::interface_description(&mut buffer, &interface);
        } else {
            let nanoseconds = resolution == Resolution::Nanos;
            encode::pcap_header(&mut buffer, LinkType::ETHERNET, SNAP_LEN, nanoseconds);
        }
        Output {
            sink,
            file_bytes: buffer.len() as u64,
            buffer,
            resolution,
            pcapng,
            now: 0,
            waiting: BinaryHeap::new(),
            order: 0,
            spare: Vec::new(),
            packets: 0,
            wire_bytes: 0,
            first_ns: 0,
            last_ns: 0,
            totals: Totals::default(),
            frame: Vec::new(),
            datagram: Vec::new(),
        }
    }

    /// Sends the datagram with transport header `head` and `payload` at time `now`. Returns frames
    /// and bytes captured of it.
    ///
    /// # Errors
    /// Those of the sink.
    pub(super) fn send(
        &mut self,
        now: u64,
        path: &Path,
        (protocol, id): (u8, u32),
        (head, payload): (&[u8], &[u8]),
        treatment: Treatment,
    ) -> io::Result<(u64, u64)> {
        let pieces = usize::from(treatment.fragments);
        if pieces > 1 && head.len() + payload.len() >= 16 * pieces {
            return self.send_fragments(now, path, protocol, (head, payload), treatment);
        }
        if treatment.missing {
            self.totals.missing_frames += 1;
            return Ok((0, 0));
        }
        let mut frame = std::mem::take(&mut self.frame);
        path.build(&mut frame, protocol, id, Part::Whole, (head, payload));
        let mut sent = self.put(now, path, &frame)?;
        if treatment.duplicated {
            self.totals.duplicate_frames += 1;
            let second = self.put(now + 1_000, path, &frame)?;
            sent = (sent.0 + second.0, sent.1 + second.1);
        }
        self.frame = frame;
        Ok(sent)
    }

    /// The same in fragments, a microsecond apart; some leave their order.
    fn send_fragments(
        &mut self,
        now: u64,
        path: &Path,
        protocol: u8,
        (head, payload): (&[u8], &[u8]),
        treatment: Treatment,
    ) -> io::Result<(u64, u64)> {
        // One numbering for all flows: those of two hosts must not mix their fragments.
        let id = self.totals.fragmented_datagrams as u32;
        let mut datagram = std::mem::take(&mut self.datagram);
        datagram.clear();
        datagram.extend_from_slice(head);
        datagram.extend_from_slice(payload);
        let pieces = usize::from(treatment.fragments);
        let step = datagram.len().div_ceil(pieces).div_ceil(8) * 8;
        let count = datagram.len().div_ceil(step);
        let mut frame = std::mem::take(&mut self.frame);
        let mut sent = (0, 0);
        self.totals.fragmented_datagrams += 1;
        for index in 0..count {
            // Every fourth datagram comes last fragment first, as old Linux sent them.
            let piece = if id % 4 == 3 {
                count - 1 - index
            } else {
                index
            };
            if treatment.missing && piece == id as usize % count {
                self.totals.missing_frames += 1;
                continue;
            }
            let offset = piece * step;
            let end = (offset + step).min(datagram.len());
            let part = Part::Fragment {
                offset,
                more: end < datagram.len(),
            };
            path.build(
                &mut frame,
                protocol,
                id,
                part,
                (&datagram[offset..end], &[]),
            );
            let (packets, bytes) = self.put(now + 1_000 * index as u64, path, &frame)?;
            sent = (sent.0 + packets, sent.1 + bytes);
            self.totals.fragments += 1;
        }
        self.frame = frame;
        self.datagram = datagram;
        Ok(sent)
    }

    /// Puts a finished frame into the capture at `at`, which may lie ahead of the current time.
    ///
    /// # Errors
    /// Those of the sink.
    pub(super) fn put(&mut self, at: u64, path: &Path, frame: &[u8]) -> io::Result<(u64, u64)> {
        self.totals.ipv6_frames += u64::from(path.is_ipv6());
        self.totals.vlan_frames += u64::from(path.tagged);
        self.totals.tunnel_frames += u64::from(path.prefix.is_tunnel());
        self.put_raw(at, frame)?;
        Ok((1, frame.len() as u64))
    }

    /// Emits a frame that `build` makes.
    pub(super) fn put_built(
        &mut self,
        at: u64,
        build: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        let mut frame = std::mem::take(&mut self.frame);
        build(&mut frame);
        let put = self.put_raw(at, &frame);
        self.frame = frame;
        put
    }

    /// The same for a frame that counts for nothing but itself.
    pub(super) fn put_raw(&mut self, at: u64, frame: &[u8]) -> io::Result<()> {
        self.packets += 1;
        self.wire_bytes += frame.len() as u64;
        if at <= self.now {
            return self.write(at, frame);
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        self.order += 1;
        self.waiting.push(Reverse(Waiting {
            at,
            order: self.order,
            frame: copy,
        }));
        Ok(())
    }

    /// Writes the frames that waited until `now`; from here on, frames of that time are written at
    /// once.
    ///
    /// # Errors
    /// Those of the sink.
    pub(super) fn advance(&mut self, now: u64) -> io::Result<()> {
        while let Some(Reverse(first)) = self.waiting.peek()
            && first.at <= now
            && let Some(Reverse(first)) = self.waiting.pop()
        {
            self.write(first.at, &first.frame)?;
            self.spare.push(first.frame);
        }
        self.now = now;
        Ok(())
    }

    /// Writes everything.
    ///
    /// # Errors
    /// Those of the sink.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.advance(u64::MAX)?;
        self.flush()?;
        self.sink.flush()
    }

    fn write(&mut self, at: u64, frame: &[u8]) -> io::Result<()> {
        // What is stated about the capture is what its resolution holds.
        let at = match self.resolution {
            Resolution::Micros => at / 1_000 * 1_000,
            Resolution::Nanos => at,
        };
        self.first_ns = if self.first_ns == 0 {
            at
        } else {
            self.first_ns
        };
        self.last_ns = at;
        let before = self.buffer.len();
        let length = frame.len() as u32;
        let packet = PacketDescriptor {
            time: Nanos(at),
            captured_len: length,
            wire_len: length,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        };
        if self.pcapng {
            encode::enhanced_packet(&mut self.buffer, &packet, frame, 0);
        } else {
            let nanoseconds = self.resolution == Resolution::Nanos;
            encode::pcap_record(&mut self.buffer, &packet, frame, nanoseconds);
        }
        self.file_bytes += (self.buffer.len() - before) as u64;
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
