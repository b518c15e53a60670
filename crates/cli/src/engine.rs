//! The engine with the options of the command line.

use flowgauge_flow::{FlowConfig, FlowTracker, PacketFlow};
use flowgauge_stream::Handler;
use flowgauge_wire::decode::{Decoder, hash_batch};
use flowgauge_wire::{Batch, DecodedBatch, HashSeed, Ledger};

use crate::options::EngineOptions;

/// Decoding and tracking.
pub(crate) struct Engine {
    decoder: Decoder,
    decoded: DecodedBatch,
    tracker: FlowTracker,
    refs: Vec<PacketFlow>,
}

impl Engine {
    pub(crate) fn new(_options: &EngineOptions, _streams: bool) -> Engine {
        Engine {
            decoder: Decoder::default(),
            decoded: DecodedBatch::new(),
            tracker: FlowTracker::new(FlowConfig::default()),
            refs: Vec::new(),
        }
    }

    pub(crate) fn process<H: Handler>(&mut self, batch: &Batch<'_>, handler: &mut H) {
        self.decoder.decode_batch(batch, &mut self.decoded);
        hash_batch(HashSeed::FIXED, &mut self.decoded.packets);
        self.tracker
            .process(&self.decoded.packets, &self.decoded.tunnels, &mut self.refs);
        handler.batch(batch, &self.decoded);
        self.tracker.drain_ended(|_, record| handler.flow(record));
    }

    pub(crate) fn finish<H: Handler>(&mut self, handler: &mut H) {
        self.tracker.finish();
        self.tracker.drain_ended(|_, record| handler.flow(record));
    }

    pub(crate) fn ledger(&self, source: Ledger) -> Ledger {
        source
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn statistics(&self) -> Vec<String> {
        Vec::new()
    }
}
