//! Bytes that a handler does not want are counted as if it had read them, and the others are those that it would have got.

use std::collections::{BTreeMap, HashMap};

use flowgauge_capture::PacketSource;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream, StreamStatus, Want};
use flowgauge_wire::Nanos;

/// What a handler gets of a stream.
#[derive(Clone, Debug, Default)]
struct Seen {
    chunks: Vec<Piece>,
    /// Where what is wanted begins.
    from: u64,
    end: Option<End>,
}

#[derive(Clone, Debug)]
struct Piece {
    offset: u64,
    gap: u64,
    skipped: u64,
    bytes: Vec<u8>,
    captured: Nanos,
    /// What was wanted before.
    from: u64,
}

/// Status, bytes, missing bytes, gaps and the gap at the end.
type End = (StreamStatus, u64, u64, u32, u64);

/// Takes chunks, and after each asks for what `next` says.
struct Reader<F> {
    next: F,
    wants: Vec<Want>,
    live: HashMap<u32, Seen>,
    ended: BTreeMap<String, Seen>,
}

impl<F: FnMut(&Stream<'_>, u64) -> Option<Want>> Handler for Reader<F> {
    const STREAMS: bool = true;

    fn want(&mut self) -> Option<Want> {
        let want = self.wants.pop()?;
        if let Want::From(stream, from) = want
            && let Some(seen) = self.live.get_mut(&stream)
        {
            seen.from = from;
        }
        Some(want)
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.live.insert(stream.id, Seen::default());
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let seen = self.live.get_mut(&stream.id).unwrap();
        let end = chunk.offset + chunk.bytes.len() as u64;
        assert_eq!(end, stream.bytes + stream.missing_bytes);
        seen.chunks.push(Piece {
            offset: chunk.offset,
            gap: chunk.gap_before,
            skipped: chunk.skipped,
            bytes: chunk.bytes.to_vec(),
            captured: chunk.captured,
            from: seen.from,
        });
        self.wants
            .retain(|want| !matches!(want, Want::From(id, _) if *id == stream.id));
        self.wants.extend((self.next)(stream, end));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing: u64) {
        let mut seen = self.live.remove(&stream.id).unwrap();
        let Stream {
            bytes,
            missing_bytes,
            gaps,
            status,
            ..
        } = *stream;
        seen.end = Some((status, bytes, missing_bytes, gaps, trailing));
        let id = stream.identity();
        let ends = (id.source, id.destination, id.protocol);
        let mut name = format!("{ends:?} {}", id.start.0);
        while self.ended.contains_key(&name) {
            name.push('+');
        }
        self.ended.insert(name, seen);
    }
}

fn run<F: FnMut(&Stream<'_>, u64) -> Option<Want>>(file: &[u8], next: F) -> BTreeMap<String, Seen> {
    let file = std::io::Cursor::new(file.to_vec());
    let mut source = flowgauge_capture::open_reader(file, "trace").unwrap();
    let mut shard = Shard::new(ShardConfig::default());
    let mut reader = Reader {
        next,
        wants: Vec::new(),
        live: HashMap::new(),
        ended: BTreeMap::new(),
    };
    while let Some(batch) = source.next_batch().unwrap() {
        shard.process(&batch, &mut reader);
    }
    shard.finish(&mut reader);
    assert!(reader.live.is_empty());
    reader.ended
}

/// A byte of a stream and when it was captured; nothing where it is missing.
fn cells(seen: &Seen) -> Vec<Option<(u8, Nanos)>> {
    let mut cells = Vec::new();
    for piece in &seen.chunks {
        cells.resize(cells.len() + piece.gap as usize, None);
        assert_eq!(cells.len() as u64, piece.offset);
        cells.extend(piece.bytes.iter().map(|&byte| Some((byte, piece.captured))));
    }
    cells
}

/// Compares what came with what would have come had all been wanted. Returns how many bytes were skipped.
fn compare(all: &Seen, some: &Seen) -> u64 {
    assert_eq!(all.end, some.end);
    // Forged segments leave holes of gigabytes.
    if all.chunks.iter().any(|piece| piece.gap > 1 << 20) {
        return 0;
    }
    let cells = cells(all);
    let (mut at, mut skipped) = (0, 0);
    for (number, piece) in some.chunks.iter().enumerate() {
        let offset = piece.offset as usize;
        let between = &cells[at..offset];
        let captured = between.iter().flatten();
        let captured: Vec<Nanos> = captured.map(|(_, time)| *time).collect();
        assert_eq!(piece.skipped, captured.len() as u64);
        assert_eq!(piece.gap, (between.len() - captured.len()) as u64);
        skipped += piece.skipped;
        let is_last = number + 1 == some.chunks.len();
        match piece.bytes.is_empty() {
            true if piece.offset < piece.from => {
                assert!(is_last);
                assert_eq!(Some(&piece.captured), captured.iter().max());
            }
            true => {
                assert_eq!(piece.offset, piece.from);
                assert_eq!(Some(&piece.captured), captured.last());
            }
            false => assert!(piece.offset >= piece.from),
        }
        at = offset + piece.bytes.len();
        let bytes = piece.bytes.iter();
        let bytes: Vec<_> = bytes.map(|&byte| Some((byte, piece.captured))).collect();
        assert_eq!(bytes, cells[offset..at]);
    }
    assert_eq!(at, cells.len(), "nothing is left out");
    skipped
}

#[test]
fn what_is_not_wanted_is_counted_as_if_it_were() {
    for preset in [
        Preset::Mix,
        Preset::Loss,
        Preset::Late,
        Preset::Hostile,
        Preset::Web,
    ] {
        let mut file = Vec::new();
        generate(&Config::new(preset).with_packets(20_000), &mut file).unwrap();
        let all = run(&file, |_, _| None);
        let mut random = 0x1234_5678_9abc_def1_u64;
        let some = run(&file, |stream, position| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let from = match random % 8 {
                0 => return None,
                1 => u64::MAX,
                2 => position + random / 8 % 5,
                3 => 0,
                _ => position + random / 8 % 6000,
            };
            Some(Want::From(stream.id, from))
        });
        assert_eq!(all.len(), some.len());
        let mut skipped = 0;
        for (name, all) in &all {
            skipped += compare(all, &some[name]);
        }
        assert!(skipped > 10_000, "{skipped}");
    }
}

#[test]
fn lengths_are_those_of_who_reads_all() {
    let mut file = Vec::new();
    generate(&Config::new(Preset::Loss).with_packets(20_000), &mut file).unwrap();
    let all = run(&file, |_, _| None);
    let lengths = run(&file, |stream, _| Some(Want::From(stream.id, u64::MAX)));
    for (name, all) in &all {
        let some = &lengths[name];
        assert_eq!(all.end, some.end);
        let behind = some.chunks.iter().filter(|piece| piece.from != 0);
        assert!(behind.count() <= 1, "what was skipped is told once");
    }
}

/// What was not wanted at all is skipped, of a capture without gaps as many bytes as there were.
#[test]
fn what_is_wanted_again_goes_on_where_the_stream_has_got_to() {
    let mut file = Vec::new();
    generate(&Config::new(Preset::Web).with_packets(20_000), &mut file).unwrap();
    let all = run(&file, |_, _| None);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut left = Vec::new();
    let mut resumed = 0;
    let some = run(&file, |stream, _| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // What is left comes again with what another stream gets.
        match random % 4 {
            0 => {
                left.push(stream.id);
                Some(Want::Nothing(stream.id))
            }
            1 if !left.is_empty() => {
                resumed += 1;
                Some(Want::From(left.swap_remove(0), 0))
            }
            _ => None,
        }
    });
    assert!(resumed > 1000, "{resumed}");
    let mut skipped = 0;
    for (name, some) in &some {
        let all = cells(&all[name]);
        let mut at = 0;
        for piece in &some.chunks {
            let (offset, len) = (piece.offset as usize, piece.bytes.len());
            assert_eq!(offset, at + (piece.gap + piece.skipped) as usize);
            let bytes = piece.bytes.iter().map(|&byte| Some((byte, piece.captured)));
            assert!(
                bytes.eq(all[offset..offset + len].iter().copied()),
                "{name}"
            );
            at = offset + len;
            skipped += piece.skipped;
        }
    }
    assert!(skipped > 100_000, "{skipped}");
}
