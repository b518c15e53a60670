//! What is refused for memory is in the ledger, and nothing is counted twice.

use flowgauge_flow::FlowRecord;
use flowgauge_reassembly::DefragmentConfig;
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use flowgauge_wire::{Batch, Checksum, Nanos, PacketDescriptor, Place};

#[derive(Default)]
struct Seen {
    flow_packets: u64,
    bytes: u64,
}

impl Handler for Seen {
    const STREAMS: bool = true;

    fn stream_data(&mut self, _: &Stream<'_>, chunk: &Chunk<'_>) {
        self.bytes += chunk.bytes.len() as u64;
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.flow_packets += record.source.packets + record.destination.packets;
    }
}

/// An Ethernet frame with a fragment of a UDP datagram.
fn frame(id: u16, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let len = (20 + data.len() as u16).to_be_bytes();
    let field = ((offset / 8) | (u16::from(more) << 13)).to_be_bytes();
    let [high, low] = id.to_be_bytes();
    let mut ip = vec![
        0x45, 0, len[0], len[1], high, low, field[0], field[1], 64, 17, 0, 0, 10, 0, 0, 1, 10, 0,
        0, 9,
    ];
    let mut checksum = Checksum::default();
    checksum.add(&ip);
    ip[10..12].copy_from_slice(&checksum.finish().to_be_bytes());
    [&[2; 12][..], &[8, 0], &ip, data].concat()
}

fn feed(shard: &mut Shard, seen: &mut Seen, frame: &[u8]) {
    let packet = PacketDescriptor {
        time: Nanos::from_secs(1),
        captured_len: frame.len() as u32,
        wire_len: frame.len() as u32,
        ..PacketDescriptor::default()
    };
    shard.process(&Batch::new(frame, &[packet]), seen);
}

#[test]
fn fragments_given_up_for_memory_are_dropped_in_the_ledger() {
    let mut shard = Shard::new(ShardConfig {
        defragment: DefragmentConfig {
            max_bytes: 200_000,
            ..DefragmentConfig::default()
        },
        ..ShardConfig::default()
    });
    let mut seen = Seen::default();
    // First fragments of datagrams that never complete, two frames each.
    for id in 0..5000 {
        feed(&mut shard, &mut seen, &frame(id, 0, true, &[0; 1480]));
        feed(&mut shard, &mut seen, &frame(id, 1480, true, &[0; 1480]));
    }
    // Then one that does: UDP ports 4096 and 53, no checksum.
    let mut first = vec![0; 16];
    first[..6].copy_from_slice(&[0x10, 0, 0, 53, 0, 20]);
    feed(&mut shard, &mut seen, &frame(9999, 0, true, &first));
    feed(&mut shard, &mut seen, &frame(9999, 16, false, b"abcd"));
    shard.finish(&mut seen);

    let (ledger, statistics) = (shard.ledger(), shard.statistics());
    assert!(ledger.is_balanced());
    assert_eq!(ledger.received(), 10_002);
    assert!(statistics.defragment.evicted > 4900);
    assert_eq!(ledger.at(Place::Memory), 2 * statistics.defragment.evicted);
    assert_eq!(ledger.dropped(), ledger.at(Place::Memory));
    assert!(statistics.defragment.memory_high <= 200_000);
    assert_eq!(seen.bytes, 12);
    // Their headers are known, so that flows count them all the same.
    assert_eq!(seen.flow_packets, 10_002);
}
