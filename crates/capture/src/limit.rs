//! Sources that narrow another one: [`Limit`] (`-c`), [`SnapLen`] (`-s`) and [`Between`] (`--from`, `--to`).

use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_wire::{BATCH_SIZE, Batch, Ledger, Nanos, PacketDescriptor, Place};

use crate::as_source_within;
use crate::error::Error;
use crate::file::wire_bytes;
use crate::source::PacketSource;

/// Ends after an exact number of packets. In this source's ledger, packets that the inner source had read beyond it
/// were never received.
pub struct Limit<S> {
    inner: S,
    left: Arc<AtomicU64>,
    /// Packets and bytes of the last batch that were cut off.
    unwanted: u64,
    unwanted_bytes: u64,
}

impl<S: PacketSource> Limit<S> {
    /// The first `packets` packets of `inner`.
    pub fn new(inner: S, packets: u64) -> Limit<S> {
        Limit::shared(inner, Arc::new(AtomicU64::new(packets)))
    }

    /// Packets of `inner` while some are `left`; sources with the same counter deliver that many in total.
    pub fn shared(inner: S, left: Arc<AtomicU64>) -> Limit<S> {
        Limit {
            inner,
            left,
            unwanted: 0,
            unwanted_bytes: 0,
        }
    }

    /// Whether the limit was reached.
    pub fn is_reached(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

impl<S: PacketSource> PacketSource for Limit<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if self.is_reached() {
            return Ok(None);
        }
        let Some(mut batch) = self.inner.next_batch()? else {
            return Ok(None);
        };
        let wanted = batch.packets.len() as u64;
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left - left.min(wanted))
            });
        let kept = taken.unwrap_or_else(|left| left).min(wanted) as usize;
        let (packets, unwanted) = batch.packets.split_at(kept);
        self.unwanted = unwanted.len() as u64;
        self.unwanted_bytes = wire_bytes(unwanted);
        batch.packets = packets;
        Ok(Some(batch))
    }

    as_source_within!(inner);

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.inner.ledger();
        ledger.leave_out(self.unwanted, self.unwanted_bytes);
        ledger
    }
}

/// Keeps packets captured from a start time to before an end time (`--from`, `--to`); others count as filtered.
pub struct Between<S> {
    inner: S,
    times: Range<Nanos>,
    packets: Vec<PacketDescriptor>,
    refused: u64,
    refused_bytes: u64,
}

impl<S: PacketSource> Between<S> {
    /// The packets of `inner` within these times.
    pub fn new(inner: S, times: Range<Nanos>) -> Between<S> {
        Between {
            inner,
            times,
            packets: Vec::with_capacity(BATCH_SIZE),
            refused: 0,
            refused_bytes: 0,
        }
    }
}

impl<S: PacketSource> PacketSource for Between<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let Some(mut batch) = self.inner.next_batch()? else {
            return Ok(None);
        };
        let packets = batch.packets.iter();
        self.packets.clear();
        self.packets
            .extend(packets.filter(|packet| self.times.contains(&packet.time)));
        self.refused += (batch.packets.len() - self.packets.len()) as u64;
        self.refused_bytes += wire_bytes(batch.packets) - wire_bytes(&self.packets);
        batch.packets = &self.packets;
        Ok(Some(batch))
    }

    as_source_within!(inner);

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.inner.ledger();
        ledger.refuse(Place::Filter, self.refused, self.refused_bytes);
        ledger
    }
}

/// Cuts packets to a snap length. Lengths on the wire do not change, so packets count with their real size.
pub struct SnapLen<S> {
    inner: S,
    snap_len: u32,
    packets: Vec<PacketDescriptor>,
}

impl<S: PacketSource> SnapLen<S> {
    /// The packets of `inner`, each cut to at most `snap_len` captured bytes.
    pub fn new(inner: S, snap_len: u32) -> SnapLen<S> {
        SnapLen {
            inner,
            snap_len,
            packets: Vec::with_capacity(BATCH_SIZE),
        }
    }
}

impl<S: PacketSource> PacketSource for SnapLen<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let Some(mut batch) = self.inner.next_batch()? else {
            return Ok(None);
        };
        self.packets.clear();
        self.packets.extend_from_slice(batch.packets);
        for packet in &mut self.packets {
            packet.captured_len = packet.captured_len.min(self.snap_len);
        }
        batch.packets = &self.packets;
        Ok(Some(batch))
    }

    as_source_within!(inner);

    fn ledger(&mut self) -> Ledger {
        self.inner.ledger()
    }
}
