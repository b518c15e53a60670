//! Sources that narrow another one: [`Limit`] (`-c`) and [`SnapLen`] (`-s`).

use flowgauge_wire::{BATCH_SIZE, Batch, Ledger, PacketDescriptor};

use crate::error::Error;
use crate::file::wire_bytes;
use crate::source::{Interface, PacketSource};

/// Ends after a number of packets, exactly. What the inner source had read beyond it was never
/// received as far as this source's ledger is concerned.
pub struct Limit<S> {
    inner: S,
    left: u64,
    /// Packets and bytes of the last batch that were cut off.
    unwanted: u64,
    unwanted_bytes: u64,
}

impl<S: PacketSource> Limit<S> {
    /// The first `packets` packets of `inner`.
    pub fn new(inner: S, packets: u64) -> Limit<S> {
        Limit {
            inner,
            left: packets,
            unwanted: 0,
            unwanted_bytes: 0,
        }
    }

    /// Whether the limit was reached.
    pub fn is_reached(&self) -> bool {
        self.left == 0
    }
}

impl<S: PacketSource> PacketSource for Limit<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(mut batch) = self.inner.next_batch()? else {
            return Ok(None);
        };
        let kept = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(batch.packets.len());
        let (packets, unwanted) = batch.packets.split_at(kept);
        self.left -= kept as u64;
        self.unwanted = unwanted.len() as u64;
        self.unwanted_bytes = wire_bytes(unwanted);
        batch.packets = packets;
        Ok(Some(batch))
    }

    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.inner.ledger();
        ledger.received -= self.unwanted;
        ledger.delivered -= self.unwanted;
        ledger.delivered_bytes -= self.unwanted_bytes;
        ledger
    }
}

/// Cuts packets to a snap length. Their wire lengths stay, so they count at their real size.
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

    fn interfaces(&self) -> &[Interface] {
        self.inner.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.inner.ledger()
    }
}
