//! With a backend that keeps packets away as it is told, results are those without it.

#[path = "../../../../tests/shared/card.rs"]
mod card;
#[path = "../../../../tests/shared/tagged.rs"]
mod tagged;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Cursor;
use std::path::PathBuf;

use card::Card;

use flowgauge_capture::PacketSource;
use flowgauge_flow::FlowRecord;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Cutoff, DataChunk, Engine, EngineConfig, Events, StreamRef,
};
use flowgauge_stream::offload::{Verdict, Verdicts, Wanted};
use flowgauge_stream::{
    ChecksumPolicy, Chunk, Handler, Shard, ShardConfig, Stream, StreamIdentity, VlanAware, Want,
};
use flowgauge_wire::{Batch, Ledger, LinkType, Nanos, PacketDescriptor};

use crate::corpora::shared::corpora;

/// What is damaged is not seen of what is kept away.
fn config() -> ShardConfig {
    ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        vlans: VlanAware::No,
        ..ShardConfig::default()
    }
}

/// Silence that the clock of a live capture does not leave unnoticed.
const SILENCE: u64 = 1_000_000_000;

/// Takes a capture in small batches, through a card if there is one, as if it was live.
pub(crate) fn each_batch(
    file: &[u8],
    card: Option<&Card>,
    size: usize,
    take: impl FnMut(&Batch<'_>),
) {
    each_batch_late(file, card, size, 0, take);
}

/// The same; so long packets wait in a ring behind the card.
fn each_batch_late(
    file: &[u8],
    card: Option<&Card>,
    size: usize,
    late: u64,
    mut take: impl FnMut(&Batch<'_>),
) {
    // When it came, and a batch.
    type Waiting = (u64, Vec<u8>, Vec<PacketDescriptor>, Option<Nanos>);
    let mut ring: VecDeque<Waiting> = VecDeque::new();
    let mut put = |batch: &Batch<'_>, time: u64| {
        if late == 0 {
            return take(batch);
        }
        let (mut memory, mut packets) = (Vec::new(), batch.packets.to_vec());
        for packet in &mut packets {
            let begin = core::mem::replace(&mut packet.offset, memory.len() as u32) as usize;
            memory.extend(&batch.memory[begin..begin + packet.captured_len as usize]);
        }
        ring.push_back((time, memory, packets, batch.now));
        while let Some((_, memory, packets, now)) = ring.pop_front_if(|(of, ..)| *of + late <= time)
        {
            let mut batch = Batch::new(&memory, &packets);
            batch.now = now;
            take(&batch);
            if let Some(card) = card {
                let last = packets.iter().map(|packet| packet.time).max().or(now);
                let mut table = card.table();
                table.shown = table.shown.max(last.map_or(1, |last| last.0));
            }
        }
    };
    let file = Cursor::new(file.to_vec());
    let mut source = flowgauge_capture::open_reader(file, "trace").unwrap();
    let mut now = u64::MAX - SILENCE;
    // What cannot be read any further is not what this is about.
    while let Ok(Some(batch)) = source.next_batch() {
        let goes_on = |a: &PacketDescriptor, b: &PacketDescriptor| b.time.0 < a.time.0 + SILENCE;
        let parts = batch.packets.chunk_by(goes_on);
        for packets in parts.flat_map(|part| part.chunks(size)) {
            if let Some(first) = packets.first().filter(|first| first.time.0 > now + SILENCE) {
                let mut idle = Batch::new(&[], &[]);
                idle.now = Some(Nanos(first.time.0 - 1));
                put(&idle, first.time.0);
            }
            let part = Batch::new(batch.memory, packets);
            let last = packets.iter().map(|packet| packet.time).max();
            now = last.map_or(now, |last| last.0);
            match card {
                None => put(&part, now),
                Some(card) => {
                    let passed = card.pass(&part);
                    put(&Batch::new(batch.memory, &passed), now);
                }
            }
            let mut idle = Batch::new(&[], &[]);
            idle.now = last;
            put(&idle, now);
        }
    }
    put(&Batch::new(&[], &[]), u64::MAX - late);
}

/// Generated traces, and some real ones.
pub(crate) fn traces() -> Vec<(String, Vec<u8>)> {
    let presets = [
        Preset::Mix,
        Preset::Web,
        Preset::Late,
        Preset::Loss,
        Preset::Small,
        Preset::Zoo,
    ];
    let mut traces: Vec<(String, Vec<u8>)> = Vec::new();
    for preset in presets {
        let mut file = Vec::new();
        generate(&Config::new(preset).with_packets(10_000), &mut file).unwrap();
        traces.push((format!("{preset:?}"), file));
    }
    let stride = std::env::var("FLOWGAUGE_STRIDE").map_or(23, |text| text.parse().unwrap());
    let mut folders: Vec<PathBuf> = corpora().into_iter().collect();
    let mut captures = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_capture = |path: &PathBuf| {
                let extension = path.extension().and_then(|extension| extension.to_str());
                matches!(extension, Some("pcap" | "pcapng" | "cap" | "trace"))
            };
            match path.is_dir() {
                true => folders.push(path),
                false => captures.extend(Some(path).filter(is_capture)),
            }
        }
    }
    captures.sort();
    for path in captures.into_iter().step_by(stride) {
        let file = std::fs::read(&path).unwrap();
        if file.len() < 8 << 20
            && flowgauge_capture::open_reader(Cursor::new(file.clone()), "").is_ok()
        {
            traces.push((path.display().to_string(), file));
        }
    }
    traces
}

/// Whose bytes they are.
fn name(identity: &StreamIdentity) -> String {
    format!("{identity:?}")
}

/// Where bytes stand, what is missing and skipped before them, and they.
type Piece = (u64, u64, u64, Vec<u8>);

/// Wants nothing of the opposite stream after so many bytes of one, of most also nothing more of that.
#[derive(Default)]
struct Leaves {
    /// All is wanted, or again.
    wants_all: bool,
    wants: Vec<Want>,
    names: HashMap<u32, String>,
    left: Vec<u32>,
    chunks: BTreeMap<String, Vec<Piece>>,
    /// The time of streams' last chunks, and where they end.
    last: BTreeMap<String, (Nanos, u64)>,
    /// When all was wanted again, and of which streams.
    resumed: Nanos,
    again: Vec<String>,
    records: Vec<String>,
}

impl Leaves {
    /// All is wanted again.
    fn resume(&mut self, now: Nanos) {
        self.wants_all = true;
        self.resumed = now;
        let names = self.left.iter().map(|stream| self.names[stream].clone());
        self.again.extend(names);
        let again = self.left.drain(..).map(|stream| Want::From(stream, 0));
        self.wants.extend(again);
    }
}

impl Handler for Leaves {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn want(&mut self) -> Option<Want> {
        self.wants.pop()
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        let name = name(&stream.identity());
        self.chunks.insert(name.clone(), Vec::new());
        self.names.insert(stream.id, name);
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let name = &self.names[&stream.id];
        let chunks = self.chunks.get_mut(name).unwrap();
        chunks.push((
            chunk.offset,
            chunk.gap_before,
            chunk.skipped,
            chunk.bytes.to_vec(),
        ));
        let end = chunk.offset + chunk.bytes.len() as u64;
        self.last.insert(name.clone(), (chunk.time, end));
        let pick: u64 = name.bytes().map(u64::from).sum();
        let both = [stream.opposite, stream.id];
        let is_new = both.iter().all(|id| !self.left.contains(id));
        if end > 200 * (pick % 4) && !self.wants_all && is_new {
            for id in both
                .into_iter()
                .take(1 + usize::from(!pick.is_multiple_of(3)))
            {
                self.wants.push(Want::Nothing(id));
                self.left.push(id);
            }
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, _: u64) {
        self.left.retain(|id| *id != stream.id);
        stream.record(|record| self.record(record));
    }
}

impl Leaves {
    /// Retransmissions and disorder of what was kept away are not known, nor is its history.
    fn record(&mut self, record: &FlowRecord<'_>) {
        let side = |side: &flowgauge_flow::FlowSide| {
            (
                (side.packets, side.bytes, side.ip_bytes, side.payload_bytes),
                (side.stream_bytes, side.tcp_flags, side.first, side.last),
            )
        };
        self.records.push(format!(
            "{:016x} {:?} {:?} {:?} {:?} {:?}",
            record.flow_id,
            (record.start, record.end, record.end_reason),
            record.state,
            record.handshake_rtt,
            side(&record.source),
            side(&record.destination),
        ));
    }
}

fn run_shard(file: &[u8], card: Option<&Card>, resumes: Option<u64>) -> (Leaves, Shard) {
    run_shard_of(config(), file, card, resumes)
}

fn run_shard_of(
    config: ShardConfig,
    file: &[u8],
    card: Option<&Card>,
    resumes: Option<u64>,
) -> (Leaves, Shard) {
    let mut shard = Shard::new(config);
    if let Some(card) = card {
        shard.set_offload(&Verdicts::new(card.clone()));
    }
    let mut leaves = Leaves {
        wants_all: resumes == Some(0),
        ..Leaves::default()
    };
    // In a larger one it is not known whether what passed or what was kept away came first.
    let size = if resumes.is_none() { 1 } else { 8 };
    let mut idle = 0;
    each_batch(file, card, size, |batch| {
        if let Some(now) = batch.now {
            idle += 1;
            if resumes == Some(idle) {
                leaves.resume(now);
            }
        }
        shard.process(batch, &mut leaves);
    });
    shard.finish(&mut leaves);
    leaves.records.sort();
    (leaves, shard)
}

#[test]
fn flows_and_streams_are_those_without_a_backend() {
    let mut all = [0; 3];
    for (trace, file) in traces() {
        let counts = compare_with_a_card(&trace, &file, &config());
        all = core::array::from_fn(|at| all[at] + counts[at]);
    }
    assert!(
        all.iter()
            .zip([5000, 1000, 100])
            .all(|(are, least)| *are > least),
        "{all:?}"
    );
}

/// How many packets a card keeps away, how many of them of connections of which one direction is wanted, and how many it cuts.
fn compare_with_a_card(trace: &str, file: &[u8], config: &ShardConfig) -> [u64; 3] {
    let (expected, alone) = run_shard_of(config.clone(), file, None, None);
    let card = Card::default();
    let (seen, shard) = run_shard_of(config.clone(), file, Some(&card), None);
    for (name, chunks) in &expected.chunks {
        assert_eq!(seen.chunks.get(name), Some(chunks), "{trace}: {name}");
    }
    for (seen, expected) in seen.records.iter().zip(&expected.records) {
        assert_eq!(seen, expected, "{trace}");
    }
    assert_eq!(seen.records.len(), expected.records.len(), "{trace}");
    assert_eq!(shard.ledger(), alone.ledger(), "{trace}");
    let table = card.table();
    assert!(table.flows.is_empty(), "{trace}");
    for verdicts in table.verdicts.values() {
        assert_eq!(verdicts.last(), Some(&Verdict::Forget), "{trace}");
    }
    [table.withheld, table.in_turn, table.cut]
}

/// Each frame of a trace without a tag and in VLANs, a nanosecond apart.
fn in_vlans(file: &[u8]) -> Vec<u8> {
    let words = |words: &[u32]| -> Vec<u8> {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        bytes.collect()
    };
    let mut all = words(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, 1 << 18, 1]);
    each_batch(file, None, 256, |batch| {
        for packet in batch.packets {
            let frame = &batch.memory[packet.offset as usize..][..packet.captured_len as usize];
            if packet.link != LinkType::ETHERNET {
                continue;
            }
            for (later, copy) in (0..).zip(tagged::in_vlans(frame)) {
                let time = packet.time.0 + later;
                let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
                let len = copy.len() as u32;
                let wire_len = packet.wire_len + len - packet.captured_len;
                all.extend(words(&[seconds as u32, rest as u32, len, wire_len]));
                all.extend(copy);
            }
        }
    });
    all
}

/// What is said of a flow in a VLAN does not hold for others on its ports, where they are others.
#[test]
fn flows_in_vlans_are_those_without_a_backend() {
    // (In the zoo connections begin in the midst, where the order of what was kept away counts.)
    let is_usual = |trace: &str| trace.starts_with(char::is_uppercase) && trace != "Zoo";
    for (trace, file) in traces().into_iter().filter(|(trace, _)| is_usual(trace)) {
        let file = in_vlans(&file);
        for vlans in [VlanAware::Auto, VlanAware::Yes, VlanAware::No] {
            let config = ShardConfig { vlans, ..config() };
            let name = format!("{trace}, {vlans:?}");
            let [withheld, _, cut] = compare_with_a_card(&name, &file, &config);
            let is_large = ["Mix", "Web"].contains(&trace.as_str());
            assert!(!is_large || withheld > 3000, "{name}: {withheld} {cut}");
        }
    }
}

#[test]
fn what_is_wanted_again_comes_again() {
    let mut resumed = 0;
    let mut file = Vec::new();
    generate(&Config::new(Preset::Mix).with_packets(40_000), &mut file).unwrap();
    let (all, _) = run_shard(&file, None, Some(0));
    for with_card in [false, true] {
        let card = Card::default();
        let (seen, shard) = run_shard(&file, with_card.then_some(&card), Some(1500));
        assert_eq!(seen.records, all.records);
        assert!(shard.ledger().is_balanced());
        for (name, chunks) in &seen.chunks {
            let mut bytes = BTreeMap::new();
            for (offset, .., piece) in &all.chunks[name] {
                bytes.extend((*offset..).zip(piece.iter().copied()));
            }
            let mut at = 0;
            for (offset, gap, skipped, piece) in chunks {
                assert_eq!(*offset, at + gap + skipped, "{name}");
                let same = (*offset..)
                    .zip(piece)
                    .all(|(at, byte)| bytes.get(&at) == Some(byte));
                assert!(same, "{name} at {offset}");
                at = offset + piece.len() as u64;
            }
        }
        for name in &seen.again {
            let last = all.last.get(name);
            if let Some(last) = last.filter(|(time, _)| *time > seen.resumed) {
                assert_eq!(seen.last.get(name), Some(last), "{name}");
                resumed += 1;
            }
        }
        let table = card.table();
        let resumes = table
            .verdicts
            .values()
            .filter(|it| it.contains(&Verdict::Resume));
        assert_eq!(resumes.count() > 20, with_card);
        assert_eq!(table.withheld > 1000, with_card);
        assert!(table.flows.is_empty());
    }
    assert!(resumed > 8, "{resumed}");
}

/// What an application of the stream engine gets.
#[derive(Default)]
struct Got {
    bytes: BTreeMap<String, Vec<u8>>,
    ends: BTreeMap<String, String>,
}

impl Events for Got {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let name = name(&stream.identity());
        self.bytes
            .entry(name)
            .or_default()
            .extend_from_slice(chunk.new_bytes());
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let end = format!("{:?} {:?}", stream.status(), stream.statistics());
        self.ends.insert(name(&stream.identity()), end);
    }
}

fn run_engine(file: &[u8], card: Option<&Card>) -> (Got, Engine) {
    let mut engine = Engine::new(EngineConfig {
        shard: config(),
        ..EngineConfig::default()
    });
    let mut application = ApplicationConfig::default();
    application.cutoff.default = Cutoff(500);
    engine.add(application).unwrap();
    if let Some(card) = card {
        engine.set_offload(&Verdicts::new(card.clone()));
    }
    let mut got = Got::default();
    each_batch(file, card, 8, |batch| {
        engine.process(batch, &mut got as &mut dyn Events);
    });
    engine.finish(&mut got as &mut dyn Events);
    (got, engine)
}

#[test]
fn chunks_and_accounts_are_those_without_a_backend() {
    let mut withheld = 0;
    for (trace, file) in traces() {
        let (expected, alone) = run_engine(&file, None);
        let card = Card::default();
        let (got, engine) = run_engine(&file, Some(&card));
        assert_eq!(got.bytes, expected.bytes, "{trace}");
        for (name, end) in &expected.ends {
            assert_eq!(got.ends.get(name), Some(end), "{trace}: {name}");
        }
        let (statistics, before) = (engine.statistics(), alone.statistics());
        assert_eq!(statistics.all, before.all, "{trace}");
        assert_eq!(statistics.discarded, before.discarded, "{trace}");
        assert_eq!(statistics.dropped, before.dropped, "{trace}");
        assert_eq!(engine.ledger(), alone.ledger(), "{trace}");
        withheld += card.table().withheld;
    }
    assert!(withheld > 5000, "{withheld}");
}

/// A trace that is captured several times.
fn rounds(preset: Preset, packets: u64, rounds: u64) -> (Vec<u8>, Vec<Vec<PacketDescriptor>>) {
    let mut file = Vec::new();
    generate(&Config::new(preset).with_packets(packets), &mut file).unwrap();
    let mut source = flowgauge_capture::open_reader(Cursor::new(file), "trace").unwrap();
    let (mut memory, mut all) = (Vec::new(), Vec::new());
    while let Some(batch) = source.next_batch().unwrap() {
        for packet in batch.packets {
            let mut packet = *packet;
            packet.offset += memory.len() as u32;
            all.push(packet);
        }
        memory.extend_from_slice(batch.memory);
    }
    // So fast that what has ended is still remembered when its ports come again.
    let (first, count) = (all[0].time.0, all.len() as u64);
    let later = |round: u64| {
        let mut packets = all.clone();
        for (packet, at) in packets.iter_mut().zip(round * count..) {
            packet.time.0 = first + at * 20_000;
        }
        packets
    };
    (memory, (0..rounds).map(later).collect())
}

/// Connections of the same ports as others that just ended, or never did, are others: of them, too, nothing is wanted as soon as
/// they begin. Where two engines take packets both have to have said so.
#[test]
fn a_verdict_is_of_one_connection() {
    let (memory, rounds) = rounds(Preset::Elephants, 40_000, 3);
    for engines in [1, 2] {
        let card = Card::default();
        let verdicts = Verdicts::new(card.clone());
        let mut all: Vec<Engine> = (0..engines)
            .map(|_| {
                let mut engine = Engine::new(EngineConfig {
                    shard: config(),
                    ..EngineConfig::default()
                });
                let mut application = ApplicationConfig::default();
                application.cutoff.default = Cutoff(0);
                engine.add(application).unwrap();
                engine.set_offload(&verdicts);
                engine
            })
            .collect();
        let mut got = Got::default();
        let mut kept = Vec::new();
        for packets in &rounds {
            let before = card.table().withheld;
            for packets in packets.chunks(256) {
                let passed = card.pass(&Batch::new(&memory, packets));
                for engine in &mut all {
                    engine.process(&Batch::new(&memory, &passed), &mut got as &mut dyn Events);
                }
            }
            kept.push(card.table().withheld - before);
        }
        assert!(kept[0] > 20_000, "{kept:?}");
        assert!(kept.iter().all(|it| *it > kept[0] * 9 / 10), "{kept:?}");
        for engine in &mut all {
            engine.finish(&mut got as &mut dyn Events);
            assert_eq!(engine.ledger().received(), 3 * rounds[0].len() as u64);
        }
        assert!(card.table().flows.is_empty());
    }
}

#[test]
fn of_several_engines_what_any_wants_comes() {
    let card = Card::default();
    let verdicts = Verdicts::new(card.clone());
    let mut file = Vec::new();
    generate(&Config::new(Preset::Mix).with_packets(5000), &mut file).unwrap();
    let mut shards = [Shard::new(config()), Shard::new(config())];
    let mut handlers = [Leaves::default(), Leaves::default()];
    shards[0].set_offload(&verdicts);
    let others = verdicts.interest();
    each_batch(&file, Some(&card), 8, |batch| {
        shards[0].process(batch, &mut handlers[0]);
    });
    shards[0].finish(&mut handlers[0]);
    assert_eq!(card.table().withheld, 0, "the other wants everything");
    assert!(card.table().verdicts.is_empty());
    drop(others);
    shards[0] = Shard::new(config());
    handlers[0] = Leaves::default();
    for shard in &mut shards {
        shard.set_offload(&verdicts);
    }
    each_batch(&file, Some(&card), 8, |batch| {
        for (shard, handler) in shards.iter_mut().zip(&mut handlers) {
            shard.process(batch, handler);
        }
    });
    for (shard, handler) in shards.iter_mut().zip(&mut handlers) {
        shard.finish(handler);
        handler.records.sort();
    }
    assert!(card.table().withheld > 500);
    assert_eq!(handlers[0].records, handlers[1].records);
    assert_eq!(handlers[0].chunks, handlers[1].chunks);
    let (alone, shard) = run_shard(&file, None, None);
    assert_eq!(handlers[1].records, alone.records);
    assert_eq!(handlers[1].chunks, alone.chunks);
    assert_eq!(shards[1].ledger(), shard.ledger());
}

/// Takes flow records, beside streams of which it soon wants no more, or alone.
#[derive(Default)]
struct Flows<const STREAMS: bool>(Leaves);

impl<const STREAMS: bool> Handler for Flows<STREAMS> {
    const STREAMS: bool = STREAMS;

    fn want(&mut self) -> Option<Want> {
        self.0.want()
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.0.stream_created(stream);
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.0.stream_data(stream, chunk);
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.0.records.push(format!("{record:?}"));
    }
}

/// Traces of which the snap length has cut nothing off: what it cuts off is missing.
fn whole_traces() -> Vec<(String, Vec<u8>)> {
    let is_whole = |file: &[u8]| {
        let mut is_whole = true;
        each_batch(file, None, 256, |batch| {
            let mut packets = batch.packets.iter();
            is_whole &= packets.all(|packet| packet.captured_len == packet.wire_len);
        });
        is_whole
    };
    let mut traces = traces();
    traces.retain(|(_, file)| is_whole(file));
    traces
}

/// Flow records, the ledger, and the card, with batches of this size.
fn run_flows<const STREAMS: bool>(
    file: &[u8],
    with_card: bool,
    checksums: ChecksumPolicy,
    (size, late): (usize, u64),
) -> ((Vec<String>, Ledger), Card) {
    let mut shard = Shard::new(ShardConfig {
        checksums,
        ..config()
    });
    let card = Card::default();
    if with_card {
        shard.set_offload(&Verdicts::new(card.clone()));
    }
    let mut flows = Flows::<STREAMS>::default();
    let through = with_card.then_some(&card);
    each_batch_late(file, through, size, late, |batch| {
        shard.process(batch, &mut flows)
    });
    shard.finish(&mut flows);
    flows.0.records.sort();
    ((flows.0.records, shard.ledger().clone()), card)
}

/// In small batches packets are kept away when the ones before have been processed; in large ones, and where they wait in a ring
/// for so many nanoseconds, while these are on their way.
const SIZES: [(usize, u64); 4] = [(1, 0), (8, 0), (128, 0), (4, 40_000_000)];

#[test]
fn flow_records_beside_streams_take_headers() {
    let (mut cut, mut withheld) = (0, 0);
    for (trace, file) in whole_traces() {
        for size in SIZES {
            let (expected, _) = run_flows::<true>(&file, false, ChecksumPolicy::Ignore, size);
            let (seen, card) = run_flows::<true>(&file, true, ChecksumPolicy::Ignore, size);
            compare(&seen, &expected, &format!("{trace}, {size:?}"));
            let table = card.table();
            assert!(table.flows.is_empty(), "{trace}");
            cut += table.cut;
            withheld += table.withheld;
        }
    }
    assert!(cut > 1000 && withheld > 5000, "{cut} {withheld}");
}

#[test]
fn flow_records_alone_take_headers_and_what_is_out_of_turn() {
    let mut withheld = 0;
    for ((trace, file), checksums) in whole_traces()
        .iter()
        .flat_map(|it| [(it, ChecksumPolicy::Ignore), (it, ChecksumPolicy::Auto)])
    {
        for size in SIZES {
            let (expected, _) = run_flows::<false>(file, false, checksums, size);
            let (seen, card) = run_flows::<false>(file, true, checksums, size);
            compare(
                &seen,
                &expected,
                &format!("{trace}, {checksums:?}, {size:?}"),
            );
            let table = card.table();
            // In the end nobody takes anything, and nothing is to be kept away.
            assert_eq!(table.others, [Wanted::HEADERS, Wanted::ALL]);
            assert!(
                table.cut > 0 || !trace.starts_with(char::is_uppercase),
                "{trace}"
            );
            withheld += table.withheld;
        }
    }
    assert!(withheld > 10_000, "{withheld}");
}

/// All fields of all records, and the ledger.
fn compare(seen: &(Vec<String>, Ledger), expected: &(Vec<String>, Ledger), trace: &str) {
    for (seen, expected) in seen.0.iter().zip(&expected.0) {
        assert_eq!(seen, expected, "{trace}");
    }
    assert_eq!(seen.0.len(), expected.0.len(), "{trace}");
    assert_eq!(seen.1, expected.1, "{trace}");
}
