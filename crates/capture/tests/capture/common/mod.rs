//! What the tests of files share.
#![allow(unreachable_pub)]

use flowgauge_capture::{Error, Interface, PacketSource};
use flowgauge_wire::{Ledger, PacketDescriptor};

/// A packet taken out of its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub time: u64,
    pub wire_len: u32,
    pub link: u16,
    pub bytes: Vec<u8>,
}

/// All that a source gave.
#[derive(Debug)]
pub struct Everything {
    pub packets: Vec<Packet>,
    pub descriptors: Vec<PacketDescriptor>,
    pub errors: Vec<Error>,
    pub interfaces: Vec<Interface>,
    pub ledger: Ledger,
}

/// Reads a source to its end, past errors, checking the ledger and that interfaces are known
/// before their packets.
pub fn read(source: &mut dyn PacketSource) -> Everything {
    let mut all = Everything {
        packets: Vec::new(),
        descriptors: Vec::new(),
        errors: Vec::new(),
        interfaces: Vec::new(),
        ledger: Ledger::default(),
    };
    loop {
        let links: Vec<_> = source.interfaces().iter().map(|one| one.link).collect();
        match source.next_batch() {
            Ok(None) => break,
            Err(error) => all.errors.push(error),
            Ok(Some(batch)) => {
                assert!(batch.len() <= flowgauge_wire::BATCH_SIZE);
                for (index, packet) in batch.packets.iter().enumerate() {
                    let bytes = batch.bytes(index);
                    assert_eq!(bytes.len(), packet.captured_len as usize);
                    assert!(packet.wire_len >= packet.captured_len);
                    assert_eq!(links.get(usize::from(packet.interface)), Some(&packet.link));
                    all.descriptors.push(*packet);
                    all.packets.push(Packet {
                        time: packet.time.0,
                        wire_len: packet.wire_len,
                        link: packet.link.0,
                        bytes: bytes.to_vec(),
                    });
                }
            }
        }
        let ledger = source.ledger();
        assert!(ledger.is_balanced());
        assert_eq!(ledger.delivered(), all.packets.len() as u64);
    }
    all.interfaces = source.interfaces().to_vec();
    all.ledger = source.ledger();
    all
}
