//! What a time machine keeps is the beginning of every stream, and nothing else.

use std::collections::BTreeMap;
use std::fs::File;

use flowgauge_capture::{PacketSource, open};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_runtime::Beginnings;
use flowgauge_stream::engine::{ApplicationConfig, Cutoff, Cutoffs, Engine, EngineConfig, Events};
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream, StreamIdentity, stream_filter};
use flowgauge_wire::{Batch, DecodedBatch, Ledger, Place, TcpFlags};

const CUTOFF: u64 = 2_000;

/// So many bytes of every stream.
fn first(bytes: u64) -> Cutoffs {
    Cutoffs {
        default: Cutoff(bytes),
        ..Cutoffs::default()
    }
}

/// The bytes of every stream, and how many packets begin or end connections.
#[derive(Default)]
struct Bytes {
    open: BTreeMap<u32, Vec<u8>>,
    streams: BTreeMap<String, Vec<u8>>,
    control: u64,
    /// Other packets without payload.
    bare: u64,
}

impl Handler for Bytes {
    const STREAMS: bool = true;

    fn batch(&mut self, _: &Batch<'_>, decoded: &DecodedBatch) {
        let control = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
        for packet in &decoded.packets {
            let is_control = packet.tcp_flags.intersects(control);
            self.control += u64::from(is_control);
            self.bare += u64::from(!is_control && packet.payload_len == 0);
        }
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        // What lies behind a hole in the kept packets (a SYN with data, a FIN) is not its beginning.
        let bytes = self.open.entry(stream.id).or_default();
        if bytes.len() as u64 == chunk.offset {
            bytes.extend_from_slice(chunk.bytes);
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, _: u64) {
        let StreamIdentity {
            source,
            destination,
            start,
            ..
        } = stream.identity();
        let name = format!("{source:?} {destination:?} {start:?}");
        let bytes = self.open.remove(&stream.id).unwrap_or_default();
        assert!(self.streams.insert(name, bytes).is_none());
    }
}

fn drive(mut source: impl PacketSource) -> (Bytes, Ledger) {
    let mut shard = Shard::new(ShardConfig::default());
    let mut bytes = Bytes::default();
    while let Some(batch) = source.next_batch().unwrap() {
        shard.process(&batch, &mut bytes);
    }
    shard.finish(&mut bytes);
    (bytes, source.ledger())
}

#[test]
fn the_first_bytes_of_every_stream_are_kept_and_the_rest_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    let mut config = Config::new(Preset::Elephants).with_flows(200);
    config.reordered = 0.01;
    config.retransmitted = 0.01;
    generate(&config, File::create(&path).unwrap()).unwrap();

    let (all, before) = drive(open(&path).unwrap());
    let cut = Beginnings::new(open(&path).unwrap(), first(CUTOFF), ShardConfig::default());
    let (kept, after) = drive(cut);
    assert!(after.is_balanced());
    assert_eq!(before.received(), after.received());
    assert_eq!(
        after.at(Place::Cutoff),
        before.received() - after.delivered()
    );
    assert!(
        after.delivered_bytes() < before.delivered_bytes() / 10,
        "{after:?}"
    );

    assert_eq!(all.control, kept.control);
    assert!(all.control > 0);
    assert_eq!(all.streams.len(), kept.streams.len());
    let mut longest = 0;
    for (name, whole) in &all.streams {
        let beginning = &kept.streams[name];
        assert!(whole.starts_with(beginning));
        assert!(
            beginning.len() as u64 >= CUTOFF.min(whole.len() as u64),
            "{name}"
        );
        // A packet that begins before the cutoff is kept whole.
        longest = longest.max(beginning.len());
    }
    assert!((2_000..4_000).contains(&longest), "{longest}");
}

/// Wants the first bytes of each stream.
struct First;

impl Events for First {}

#[test]
fn streams_with_those_cutoffs_discard_the_same_but_for_packets_without_payload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    let mut config = Config::new(Preset::Elephants).with_flows(100);
    (config.reordered, config.retransmitted) = (0.0, 0.0);
    generate(&config, File::create(&path).unwrap()).unwrap();
    let (all, _) = drive(open(&path).unwrap());
    let class = |bytes, filter| (stream_filter(filter).unwrap(), Cutoff(bytes));
    let mut discarded = Vec::new();
    for cutoffs in [
        first(CUTOFF),
        Cutoffs {
            from_initiator: Some(Cutoff(0)),
            from_responder: Some(Cutoff(30_000)),
            ..first(CUTOFF)
        },
        // Each direction is judged by the first packet as it looks there.
        Cutoffs {
            classes: vec![class(30_000, "src portrange 0-32767"), class(0, "tcp")],
            ..first(CUTOFF)
        },
        Cutoffs {
            from_responder: Some(Cutoff(700)),
            classes: vec![class(9_000, "udp"), class(5_000, "dst portrange 0-32767")],
            ..Cutoffs::default()
        },
    ] {
        let cut = Beginnings::new(
            open(&path).unwrap(),
            cutoffs.clone(),
            ShardConfig::default(),
        );
        let (kept, ledger) = drive(cut);
        let mut engine = Engine::new(EngineConfig::default());
        engine
            .add(ApplicationConfig {
                cutoff: cutoffs,
                ..ApplicationConfig::default()
            })
            .unwrap();
        let mut source = open(&path).unwrap();
        while let Some(batch) = source.next_batch().unwrap() {
            engine.process(&batch, &mut First);
        }
        engine.finish(&mut First);
        let bare = all.bare - kept.bare;
        assert!(bare > 0);
        let packets = engine.ledger().at(Place::Cutoff);
        assert_eq!(packets, ledger.at(Place::Cutoff) - bare);
        assert_eq!(engine.statistics().discarded.packets, packets);
        discarded.push(packets);
    }
    // By directions and by classes the same was asked for.
    assert_eq!(discarded[1], discarded[2]);
    assert!(discarded[0] > discarded[1] && discarded[3] > discarded[1]);
}

#[test]
fn with_fewer_flows_than_there_are_more_is_kept_which_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    let config = Config::new(Preset::Elephants).with_flows(200);
    generate(&config, File::create(&path).unwrap()).unwrap();
    let kept = |max_flows| {
        let mut config = ShardConfig::default();
        config.flow.max_flows = max_flows;
        let mut source = Beginnings::new(open(&path).unwrap(), first(CUTOFF), config);
        let mut kept = Vec::new();
        while let Some(batch) = source.next_batch().unwrap() {
            kept.extend(
                batch
                    .packets
                    .iter()
                    .map(|packet| (packet.time, packet.wire_len)),
            );
        }
        assert!(source.ledger().is_balanced());
        assert_eq!(source.ledger().delivered(), kept.len() as u64);
        (kept, source.notes())
    };
    let (all, notes) = kept(1_000);
    assert!(notes.is_empty(), "{notes:?}");
    let (more, notes) = kept(8);
    assert_eq!(notes.len(), 1);
    let (flows, rest) = notes[0].split_once(' ').unwrap();
    assert!(flows.parse::<u64>().unwrap() >= 192, "{notes:?}");
    assert!(rest.contains("evicted") && rest.contains("hint: raise --max-flows"));
    assert!(more.len() > all.len());
    assert!(all.iter().all(|packet| more.contains(packet)));
}

#[test]
fn without_a_byte_only_handshakes_and_ends_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    let mut config = Config::new(Preset::Web).with_flows(50);
    config.udp_flows = 0;
    generate(&config, File::create(&path).unwrap()).unwrap();
    let (all, _) = drive(open(&path).unwrap());
    let none = Beginnings::new(open(&path).unwrap(), first(0), ShardConfig::default());
    let (kept, ledger) = drive(none);
    assert_eq!(kept.control, all.control);
    // The third packet of each handshake; some ends bring the last bytes along.
    let handshakes = kept.streams.len() as u64 / 2;
    assert!(ledger.delivered() >= kept.control + handshakes);
    assert!(
        ledger.delivered() <= kept.control + 2 * handshakes,
        "{ledger:?}"
    );
}
