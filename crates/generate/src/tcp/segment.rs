//! One segment on its way past the observer.

use std::io::{self, Write};

use super::{ACK, Connection, Context, FIN, MILLISECOND, NEVER, RST, SYN, Step, TCP};
use crate::config::Config;
use crate::frame::{Path, finish, sum};
use crate::output::Treatment;
use crate::truth::{Arrival, Totals};

impl Connection {
    /// The TCP header of a segment, and the clock that its timestamp tells.
    fn header(&self, now: u64, from: usize, flags: u8, offset: u64) -> (Header, u32) {
        let mut header = Header::default();
        let (port, peer_port) = (
            self.setup.addresses[from].1,
            self.setup.addresses[1 - from].1,
        );
        let side = &self.sides[from];
        let peer = &self.sides[1 - from];
        let syn = flags & SYN != 0;
        let sequence = side
            .isn
            .wrapping_add(offset as u32)
            .wrapping_add(u32::from(!syn));
        let sequence = match flags & ACK != 0 && self.step == Step::LastAck(from) && !syn {
            // After its own FIN, which took a sequence number.
            true => sequence.wrapping_add(1),
            false => sequence,
        };
        let acknowledged = if flags & ACK != 0 {
            peer.isn
                .wrapping_add(side.received as u32)
                .wrapping_add(1)
                .wrapping_add(u32::from(side.peer_finished))
        } else {
            0
        };
        let clock = side.clock.wrapping_add((now / MILLISECOND) as u32);
        header.put(&port.to_be_bytes());
        header.put(&peer_port.to_be_bytes());
        header.put(&sequence.to_be_bytes());
        header.put(&acknowledged.to_be_bytes());
        // Changes only with what was received, or duplicate acknowledgements would pass for window
        // updates.
        let window: u16 = match syn {
            true => 64_240,
            false => 0xfa00 - ((side.received >> 10) as u16 & 0x1ff),
        };
        header.put(&[0, flags]);
        header.put(&window.to_be_bytes());
        header.put(&[0; 4]);
        let echo = if flags & ACK != 0 { side.echo } else { 0 };
        if syn {
            let mss = (self.setup.segment_size + if self.setup.timestamps { 12 } else { 0 }) as u16;
            header.put(&[2, 4]);
            header.put(&mss.to_be_bytes());
            if self.setup.timestamps {
                header.put(&[4, 2, 8, 10]);
                header.put(&clock.to_be_bytes());
                header.put(&echo.to_be_bytes());
                header.put(&[1, 3, 3, 7]);
            } else {
                header.put(&[1, 3, 3, 7, 1, 1, 4, 2]);
            }
        } else {
            if self.setup.timestamps {
                header.put(&[1, 1, 8, 10]);
                header.put(&clock.to_be_bytes());
                header.put(&echo.to_be_bytes());
            }
            let blocks = side.beyond.len().min(3);
            if blocks > 0 && flags & ACK != 0 {
                header.put(&[1, 1, 5, (2 + 8 * blocks) as u8]);
                for &(start, end) in side.beyond.iter().rev().take(blocks) {
                    let base = peer.isn.wrapping_add(1);
                    header.put(&base.wrapping_add(start as u32).to_be_bytes());
                    header.put(&base.wrapping_add(end as u32).to_be_bytes());
                }
            }
        }
        (header, clock)
    }

    /// Sends one segment past the observer.
    #[expect(
        clippy::too_many_arguments,
        reason = "a segment has this many properties"
    )]
    pub(super) fn emit<W: Write>(
        &mut self,
        now: u64,
        from: usize,
        flags: u8,
        offset: u64,
        payload: &[u8],
        missing: bool,
        context: &mut Context<'_, W>,
    ) -> io::Result<()> {
        let (mut header, clock) = self.header(now, from, flags, offset);
        let syn = flags & SYN != 0;
        let head = header.finish(&self.setup.paths[from], payload);
        let treatment = self.treatment(payload, missing, context.config);
        let side = &mut self.sides[from];
        side.id = side.id.wrapping_add(1);
        if flags & ACK != 0 {
            side.unacknowledged = 0;
            side.acknowledge_at = NEVER;
        }
        let id = u32::from(side.id);
        let path = &self.setup.paths[from];
        let (packets, bytes) =
            context
                .output
                .send(now, path, (TCP, id), (head, payload), treatment)?;
        let side = &mut self.sides[from];
        side.tracker.packets += packets;
        side.tracker.wire_bytes += bytes;
        if !treatment.missing {
            side.tracker.syn |= syn;
            side.tracker.fin |= flags & FIN != 0;
            side.tracker.rst |= flags & RST != 0;
            if !payload.is_empty() {
                let arrival = side.tracker.capture(offset, offset + payload.len() as u64);
                count(&mut context.output.totals, arrival);
            }
        }
        self.sides[1 - from].echo = clock;
        Ok(())
    }

    /// What happens to a frame; data segments have their fate already.
    fn treatment(&mut self, payload: &[u8], missing: bool, config: &Config) -> Treatment {
        Treatment {
            missing: missing || payload.is_empty() && self.random.chance(config.missing),
            duplicated: self.random.chance(config.duplicated),
            fragments: match payload.len() > 64 && self.random.chance(config.fragments) {
                true => self.random.between(2, 4) as u8,
                false => 1,
            },
        }
    }
}

/// A TCP header being put together.
struct Header {
    bytes: [u8; 60],
    length: usize,
}

impl Default for Header {
    fn default() -> Self {
        Header {
            bytes: [0; 60],
            length: 0,
        }
    }
}

impl Header {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Sets data offset and checksum.
    fn finish(&mut self, path: &Path, payload: &[u8]) -> &[u8] {
        self.bytes[12] = ((self.length / 4) as u8) << 4;
        let head = &self.bytes[..self.length];
        let total = path.pseudo_sum(TCP, head.len() + payload.len()) + sum(head) + sum(payload);
        let checksum = finish(total).to_be_bytes();
        self.bytes[16..18].copy_from_slice(&checksum);
        &self.bytes[..self.length]
    }
}

fn count(totals: &mut Totals, arrival: Arrival) {
    totals.data_segments += 1;
    match arrival {
        Arrival::InOrder => {}
        Arrival::OutOfOrder => totals.out_of_order_segments += 1,
        Arrival::Retransmitted => totals.retransmitted_segments += 1,
        Arrival::PartialOverlap => totals.partial_overlaps += 1,
    }
}
