//! Operation sequences against naive models.

#![allow(dead_code, reason = "a fuzz target is about one of both")]

use std::collections::BTreeMap;

use flowgauge_reassembly::defragment::{DefragmentConfig, Defragmenter, Fragment, Outcome};
use flowgauge_reassembly::{
    Account, GapCause, Half, OverlapPolicy, Reassembler, ReassemblyConfig, Receiver, Segment,
};
use flowgauge_wire::{Address, Nanos};

/// Reads operands from fuzzer bytes; zeros at the end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn policy(&mut self) -> OverlapPolicy {
        OverlapPolicy::ALL[usize::from(self.byte()) % OverlapPolicy::ALL.len()]
    }
}

/// What a stream's receiver saw, as one run-length description.
#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    /// Offset (holes counted) and length of each hole, adjacent ones joined.
    gaps: Vec<(u64, u64)>,
    offset: u64,
    /// Bytes of holes that the snap length made; the model does not tell them apart.
    cut: u64,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Seen) -> bool {
        (&self.bytes, &self.gaps, self.offset) == (&other.bytes, &other.gaps, other.offset)
    }
}

impl Seen {
    fn push_gap(&mut self, len: u64) {
        match self.gaps.last_mut() {
            Some((offset, known)) if *offset + *known == self.offset => *known += len,
            _ => self.gaps.push((self.offset, len)),
        }
        self.offset += len;
    }
}

impl Receiver for Seen {
    fn position(&self) -> u64 {
        self.offset
    }

    fn data(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.bytes.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
    }

    fn gap(&mut self, bytes: u64, cause: GapCause) {
        assert_ne!(bytes, 0);
        if cause == GapCause::Cut {
            self.cut += bytes;
        }
        self.push_gap(bytes);
    }
}

/// One byte of the naive model: its value, `None` where cut off, and the bounds of its segment.
type Held = (Option<u8>, i64, i64);

/// Runs a sequence of segments through a [`Reassembler`] and through a map of bytes; both must
/// hand on the same. The start of the stream is known from the beginning, or becomes known when
/// segments wait already, or never. With little memory, or acknowledgements, only what cannot
/// depend on timing is compared.
pub(crate) fn fuzz_reassembly(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let exact = mode & 1 == 0;
    let mut started = mode & 2 == 0;
    let policy = input.policy();
    let base = u32::from_be_bytes([0xff, 0xff, input.byte(), input.byte()]);
    let unlimited = ReassemblyConfig {
        memory_bytes: 64 << 20,
        one_sided_time: Nanos::MAX,
        one_sided_bytes: u64::MAX,
        hole_time: Nanos::MAX,
        reorder_time: Nanos::MAX,
        reorder_bytes: u32::MAX,
        ..ReassemblyConfig::default()
    };
    let tight = ReassemblyConfig {
        memory_bytes: 3 * 2048 + 1024,
        one_sided_bytes: 2000,
        reorder_bytes: 700,
        ..ReassemblyConfig::default()
    };
    let mut reassembler = Reassembler::new(if exact { unlimited } else { tight });
    let mut half = Half::new(policy);
    let mut peer = Half::new(policy);
    if started {
        half.start_at(base);
    }
    let mut seen = Seen::default();
    let mut model = Model::new(policy, started);
    let mut time = Nanos::from_secs(1);
    let mut bytes = Vec::new();
    let (mut offered, mut lost) = (0, 0);
    while !input.0.is_empty() {
        let operation = input.byte();
        time = time + Nanos::from_millis(u64::from(operation >> 5));
        let start = i64::from(input.word() & 0x0fff) - 16;
        let fill = input.byte();
        let len = match operation & 7 {
            0..=4 => usize::from(fill % 48) + 1,
            5 => usize::from(fill) * 16,
            6 => 1,
            _ => 0,
        };
        if len == 0 && operation & 0x18 == 0x18 {
            // A SYN that was captured late says where the stream begins.
            half.start_at(base.wrapping_add(start as u32));
            if half.is_queued() {
                reassembler.advance(&mut half, &peer, time, &mut seen);
            }
            if exact && !started {
                model.start_at(start);
                assert_eq!(seen, model.wanted, "{policy}");
            }
            started = true;
            continue;
        }
        if len == 0 && exact {
            continue;
        }
        if len == 0 {
            let ack = base.wrapping_add(start as u32);
            if peer.note_ack(0, ack, 1000) && half.is_queued() {
                match fill & 1 {
                    0 => reassembler.advance(&mut half, &peer, time, &mut seen),
                    _ => reassembler.answered(&mut half, &peer, time, &mut seen),
                }
            }
            continue;
        }
        bytes.clear();
        bytes.extend((0..len).map(|at| fill.wrapping_mul(31).wrapping_add(at as u8 & !3)));
        let captured = if operation & 0x18 == 0x18 {
            len / 2
        } else {
            len
        };
        let segment = Segment {
            seq: base.wrapping_add(start as u32),
            bytes: &bytes[..captured],
            len: len as u32,
            fin: false,
            time,
            account: Account::Packet,
        };
        if captured == len && half.take_in_order(segment.seq, segment.len) {
            if len > 0 {
                seen.data(&bytes);
            }
        } else {
            let unplaced = reassembler.segment(7, &mut half, &peer, &segment, &mut seen);
            lost += u64::from(unplaced.bytes);
        }
        offered += len as u64;
        if exact {
            model.segment(start, len, &bytes[..captured]);
            assert_eq!(seen, model.wanted, "{policy}");
        }
        assert!(reassembler.memory() <= 64 << 20);
    }
    let trailing = reassembler.finish(&mut half, &peer, &mut seen);
    assert_eq!(reassembler.memory(), 0);
    assert_eq!(reassembler.waiting(), 0);
    lost += reassembler.take_forgotten().bytes;
    assert_eq!(seen.bytes.len() as u64 + seen.cut + lost, offered);
    if exact {
        assert_eq!(trailing, 0);
        assert_eq!(seen, model.finish(), "{policy}");
    }
}

/// The naive model: a map of bytes.
struct Model {
    policy: OverlapPolicy,
    held: BTreeMap<i64, Held>,
    /// Where the stream begins, once that is known; places in `held` are relative to it.
    start: Option<i64>,
    wanted: Seen,
}

impl Model {
    fn new(policy: OverlapPolicy, started: bool) -> Model {
        Model {
            policy,
            held: BTreeMap::new(),
            start: started.then_some(0),
            wanted: Seen::default(),
        }
    }

    fn start_at(&mut self, start: i64) {
        self.start = Some(start);
        let all = core::mem::take(&mut self.held).into_iter();
        self.held = all
            .filter(|(at, _)| *at >= start)
            .map(|(at, (byte, from, to))| (at - start, (byte, from - start, to - start)))
            .collect();
        self.drain();
    }

    fn segment(&mut self, start: i64, len: usize, captured: &[u8]) {
        let start = start - self.start.unwrap_or(0);
        let end = start + len as i64;
        for index in 0..len {
            let at = start + index as i64;
            if self.start.is_some() && at < self.wanted.offset as i64 {
                continue;
            }
            let new = (captured.get(index).copied(), start, end);
            // What is next is handed on at once: nothing that waits can lie there.
            let wins = match self.held.get(&at) {
                None => true,
                Some(_) if new.0.is_none() => false,
                Some((None, _, _)) => true,
                Some(&(_, from, to)) => self.policy.segment_wins(start.cmp(&from), end.cmp(&to)),
            };
            if wins {
                self.held.insert(at, new);
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(entry) = self.held.first_entry() {
            if self.start.is_none() || *entry.key() != self.wanted.offset as i64 {
                break;
            }
            match entry.remove().0 {
                Some(byte) => self.wanted.data(&[byte]),
                None => self.wanted.push_gap(1),
            }
        }
    }

    fn finish(mut self) -> Seen {
        if self.start.is_none()
            && let Some((&first, _)) = self.held.first_key_value()
        {
            self.start_at(first);
        }
        while let Some((&at, _)) = self.held.first_key_value() {
            self.wanted.push_gap(at as u64 - self.wanted.offset);
            self.drain();
        }
        self.wanted
    }
}

/// Runs a sequence of fragments through a [`Defragmenter`]. A completed datagram must consist of
/// bytes that were offered for their place: the first or last of them under those policies.
pub(crate) fn fuzz_defragment(data: &[u8]) {
    let mut input = Input(data);
    let policy = input.policy();
    let version = if input.byte() & 1 == 0 { 4 } else { 6 };
    let config = DefragmentConfig {
        policy,
        max_datagrams: 3,
        max_bytes: 1 << 20,
        ..DefragmentConfig::default()
    };
    let mut defragmenter: Defragmenter<u32> = Defragmenter::new(config);
    let header = vec![0x45; if version == 4 { 20 } else { 40 }];
    let mut out = Vec::new();
    // Per identification: for each place what was offered, in order.
    let mut offered: BTreeMap<u32, BTreeMap<u32, Vec<u8>>> = BTreeMap::new();
    let mut time = Nanos::from_secs(1);
    let (mut inserted, mut accounted, mut refused) = (0u64, 0u64, 0u64);
    let mut bytes = Vec::new();
    while !input.0.is_empty() {
        let operation = input.byte();
        time = time + Nanos::from_millis(u64::from(operation) * 20);
        let id = u32::from(operation & 3);
        let more = operation & 4 != 0;
        let offset =
            u32::from(input.byte() & 31) * 8 + if operation & 0xf8 == 0xf8 { 65_400 } else { 0 };
        let fill = input.byte();
        let len = u32::from(fill & 15) * 8 + u32::from(operation >> 3 & 1) * 3;
        bytes.clear();
        bytes.extend((0..len).map(|at| fill.wrapping_add((at / 8) as u8)));
        let fragment = Fragment {
            version,
            source: Address::v4([1, 1, 1, 1]),
            destination: Address::v4([2, 2, 2, 2]),
            protocol: 17,
            id,
            context: 0,
            offset,
            more,
            header: &header,
            next_header_at: if version == 4 { 9 } else { 6 },
            data: &bytes,
            data_len: len,
            time,
            wire_len: len + 34,
            ip_len: len + 20,
            frames: 1,
        };
        inserted += 1;
        let outcome = defragmenter.insert(&fragment, id, &mut out);
        for incomplete in defragmenter.take_incomplete() {
            accounted += u64::from(incomplete.totals.frames);
            offered.remove(&incomplete.tag);
        }
        if outcome == Outcome::Refused {
            refused += 1;
        } else {
            let places = offered.entry(id).or_default();
            let taken = if more { len & !7 } else { len };
            for at in 0..taken {
                places
                    .entry(offset + at)
                    .or_default()
                    .push(bytes[at as usize]);
            }
        }
        if let Outcome::Complete(totals) = outcome {
            accounted += u64::from(totals.frames);
            let places = offered.remove(&id).unwrap_or_default();
            let payload = &out[header.len()..];
            for (at, byte) in payload.iter().enumerate() {
                let here = places.get(&(at as u32)).map_or(&[][..], |bytes| bytes);
                match policy {
                    OverlapPolicy::First => assert_eq!(here.first(), Some(byte)),
                    OverlapPolicy::Last => assert_eq!(here.last(), Some(byte)),
                    _ => assert!(here.contains(byte), "{policy} at {at}"),
                }
            }
        }
        assert!(defragmenter.len() <= 3 && defragmenter.bytes() <= 1 << 20);
    }
    defragmenter.finish();
    for incomplete in defragmenter.take_incomplete() {
        accounted += u64::from(incomplete.totals.frames);
    }
    assert_eq!(inserted, accounted + refused);
    assert!(defragmenter.is_empty());
}
