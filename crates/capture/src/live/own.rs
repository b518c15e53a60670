//! Packets of this process's own connections, which a sensor must not capture: it would send them again.

use std::net::IpAddr;

use flowgauge_sys::own::{self, OwnEnd};
use flowgauge_wire::{Batch, DecodeOptions, DecodedBatch, Decoder, PacketDescriptor};

/// The protocol number of TCP.
const TCP: u8 = 6;

/// Leaves them out, also where they come in a tunnel. Costs nothing as long as there are none.
#[derive(Debug, Default)]
pub(super) struct OwnTraffic {
    /// [`own::changes`] when the ends were read.
    changes: u64,
    ends: Vec<OwnEnd>,
    /// The ports of the ends here.
    ports: Vec<u64>,
    decoder: Option<Box<(Decoder, DecodedBatch)>>,
    /// By place in the batch.
    found: Vec<bool>,
}

impl OwnTraffic {
    /// Leaves out those that are own; returns how many.
    #[inline]
    pub(super) fn leave_out(&mut self, memory: &[u8], packets: &mut Vec<PacketDescriptor>) -> u64 {
        match own::changes() {
            0 => 0,
            changes => self.look(changes, memory, packets),
        }
    }

    fn look(&mut self, changes: u64, memory: &[u8], packets: &mut Vec<PacketDescriptor>) -> u64 {
        if self.changes != changes {
            self.changes = changes;
            self.ends = own::ends();
            self.ports.clear();
            self.ports.resize(1 << 10, 0);
            for end in &self.ends {
                if let Some(word) = self.ports.get_mut(usize::from(end.port >> 6)) {
                    *word |= 1 << (end.port & 63);
                }
            }
        }
        let decoding = self.decoder.get_or_insert_with(|| {
            let decoder = Decoder::new(DecodeOptions::default());
            Box::new((decoder, DecodedBatch::new()))
        });
        let (decoder, decoded) = &mut **decoding;
        decoder.decode_batch(&Batch::new(memory, packets), decoded);
        self.found.clear();
        let is_known = |port: u16| {
            let word = self.ports.get(usize::from(port >> 6));
            word.is_some_and(|word| word >> (port & 63) & 1 != 0)
        };
        for packet in &decoded.packets {
            let (source, destination) = (packet.source(), packet.destination());
            if packet.key.protocol != TCP || !(is_known(source.1) || is_known(destination.1)) {
                continue;
            }
            let ip = |(address, port): (flowgauge_wire::Address, u16)| -> (IpAddr, u16) {
                (address.to_ip(packet.key.version).to_canonical(), port)
            };
            let (source, destination) = (ip(source), ip(destination));
            if self.ends.iter().any(|end| end.has(source, destination)) {
                self.found.resize(packets.len(), false);
                if let Some(found) = self.found.get_mut(usize::from(packet.index)) {
                    *found = true;
                }
            }
        }
        if self.found.is_empty() {
            return 0;
        }
        let before = packets.len();
        let mut found = self.found.iter();
        packets.retain(|_| !found.next().copied().unwrap_or(false));
        (before - packets.len()) as u64
    }
}
