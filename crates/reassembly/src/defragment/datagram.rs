//! One datagram under construction.

use flowgauge_wire::Nanos;

use super::{Fragment, Key, Totals};
use crate::policy::OverlapPolicy;

/// Buffers up to this size are kept for reuse when a datagram is done.
const KEEP: usize = 4096;

#[derive(Debug)]
pub(super) struct Datagram<T> {
    pub(super) key: Key,
    pub(super) tag: T,
    pub(super) since: Nanos,
    pub(super) last: Nanos,
    pub(super) totals: Totals,
    /// Goes up whenever the slot gets or loses a datagram.
    pub(super) generation: u32,
    header: Vec<u8>,
    next_header_at: usize,
    protocol: u8,
    has_first: bool,
    /// Length of the payload, once the last fragment was seen.
    end: Option<u32>,
    /// The payload, bytes at their offsets.
    payload: Vec<u8>,
    /// What was received, sorted, without overlap. Adjacent pieces are kept apart: where a piece
    /// begins and ends decides over later overlaps.
    pieces: Vec<Piece>,
    spare: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u32,
    end: u32,
    /// Whether the bytes were captured.
    captured: bool,
}

/// What adding a fragment came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    New,
    Duplicate,
    Overlap { conflict: bool },
    BadEnd,
}

impl<T: Copy> Datagram<T> {
    pub(super) fn new(key: Key, since: Nanos, tag: T) -> Datagram<T> {
        Datagram {
            key,
            tag,
            since,
            last: since,
            totals: Totals::default(),
            generation: 0,
            header: Vec::new(),
            next_header_at: 0,
            protocol: 0,
            has_first: false,
            end: None,
            payload: Vec::new(),
            pieces: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn restart(&mut self, key: Key, since: Nanos, tag: T) {
        self.key = key;
        self.tag = tag;
        self.since = since;
        self.last = since;
        self.generation = self.generation.wrapping_add(1);
    }

    pub(super) fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.totals = Totals::default();
        self.header.clear();
        self.has_first = false;
        self.end = None;
        self.pieces.clear();
        self.payload.clear();
        if self.payload.capacity() > KEEP {
            self.payload = Vec::new();
        }
        if self.pieces.capacity() > 64 {
            self.pieces = Vec::new();
            self.spare = Vec::new();
        }
    }

    /// Bytes this datagram holds.
    pub(super) fn memory(&self) -> usize {
        self.payload.capacity()
            + self.header.capacity()
            + (self.pieces.capacity() + self.spare.capacity()) * size_of::<Piece>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds the first `len` bytes of the fragment's data.
    pub(super) fn add(
        &mut self,
        fragment: &Fragment<'_>,
        len: u32,
        policy: OverlapPolicy,
        tag: T,
    ) -> Added {
        let start = fragment.offset;
        let end = start + len;
        let reached = self.pieces.last().map_or(0, |piece| piece.end);
        let bad_end = match self.end {
            Some(known) => end > known || !fragment.more && end != known,
            None => !fragment.more && end < reached,
        };
        if bad_end {
            return Added::BadEnd;
        }
        if !fragment.more {
            self.end = Some(end);
        }
        self.last = self.last.max(fragment.time);
        self.totals.frames += u32::from(fragment.frames);
        self.totals.wire_len += u64::from(fragment.wire_len);
        self.totals.ip_len += u64::from(fragment.ip_len);
        if start == 0 && !self.has_first {
            self.has_first = true;
            self.tag = tag;
            self.header.clear();
            self.header.extend_from_slice(fragment.header);
            self.next_header_at = usize::from(fragment.next_header_at);
            self.protocol = fragment.protocol;
        }
        let captured = &fragment.data[..fragment.data.len().min(len as usize)];
        let seen = start + captured.len() as u32;
        let outcome = self.place(start, captured, true, policy);
        if seen == end {
            return outcome;
        }
        // What the snap length cut off is known to exist, but has no bytes.
        self.place_uncaptured(seen, end);
        outcome
    }

    pub(super) fn is_complete(&self) -> bool {
        let Some(end) = self.end else {
            return false;
        };
        if !self.has_first {
            return false;
        }
        let mut reached = 0;
        for piece in &self.pieces {
            if piece.start != reached {
                return false;
            }
            reached = piece.end;
        }
        reached == end
    }

    /// Writes the datagram with a header that says it is whole.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.header);
        let total = self.header.len() + self.end.unwrap_or(0) as usize;
        if self.key.version == 4 {
            if let Some(head) = out.first_chunk_mut::<20>() {
                head[2..4].copy_from_slice(&(total as u16).to_be_bytes());
                head[6] &= 0x40;
                head[7] = 0;
                head[10] = 0;
                head[11] = 0;
            }
            let sum = header_checksum(out);
            if let Some(field) = out.get_mut(10..12) {
                field.copy_from_slice(&sum.to_be_bytes());
            }
        } else {
            if let Some(field) = out.get_mut(4..6) {
                field.copy_from_slice(&(total.saturating_sub(40) as u16).to_be_bytes());
            }
            if let Some(field) = out.get_mut(self.next_header_at) {
                *field = self.protocol;
            }
        }
        let uncaptured = self.pieces.iter().find(|piece| !piece.captured);
        let captured = uncaptured.map_or(self.end.unwrap_or(0), |piece| piece.start) as usize;
        out.extend_from_slice(&self.payload[..captured.min(self.payload.len())]);
    }

    fn place(&mut self, start: u32, data: &[u8], captured: bool, policy: OverlapPolicy) -> Added {
        let end = start + data.len() as u32;
        if start == end {
            return Added::New;
        }
        let at = |offset: u32| (offset - start) as usize;
        if self.payload.len() < end as usize {
            self.payload.resize(end as usize, 0);
        }
        let whole = Piece {
            start,
            end,
            captured,
        };
        // By far the most common: behind everything received so far.
        if self.pieces.last().is_none_or(|last| last.end <= start) {
            self.payload[start as usize..end as usize].copy_from_slice(data);
            self.pieces.push(whole);
            return Added::New;
        }
        let mut pieces = core::mem::take(&mut self.spare);
        pieces.clear();
        let mut overlap = false;
        let mut conflict = false;
        let mut duplicate = false;
        // Next byte of the newcomer that is not placed yet.
        let mut next = start;
        // Whether the last piece pushed is the newcomer's.
        let mut joins = false;
        let new = |start, end| Piece {
            start,
            end,
            captured,
        };
        for &piece in &self.pieces {
            if piece.end <= start || piece.start >= end {
                if piece.start >= end && next < end {
                    push_new(&mut pieces, &mut joins, new(next, end));
                    self.payload[next as usize..end as usize].copy_from_slice(&data[at(next)..]);
                    next = end;
                }
                pieces.push(piece);
                joins = false;
                continue;
            }
            if piece.start > next {
                let (from, to) = (next, piece.start);
                push_new(&mut pieces, &mut joins, new(from, to));
                self.payload[from as usize..to as usize].copy_from_slice(&data[at(from)..at(to)]);
            }
            let (from, to) = (piece.start.max(start), piece.end.min(end));
            let ours = &mut self.payload[from as usize..to as usize];
            let theirs = &data[at(from)..at(to)];
            let wins = if piece.captured {
                overlap = true;
                let differs = ours != theirs;
                conflict |= differs;
                duplicate |= !differs && piece.start == start && piece.end == end;
                policy.fragment_wins(start.cmp(&piece.start), end.cmp(&piece.end))
            } else {
                true
            };
            if wins {
                ours.copy_from_slice(theirs);
                if piece.start < from {
                    pieces.push(Piece { end: from, ..piece });
                    joins = false;
                }
                push_new(&mut pieces, &mut joins, new(from, to));
                if to < piece.end {
                    pieces.push(Piece { start: to, ..piece });
                    joins = false;
                }
            } else {
                pieces.push(piece);
                joins = false;
            }
            next = to;
        }
        if next < end {
            self.payload[next as usize..end as usize].copy_from_slice(&data[at(next)..]);
            pieces.push(Piece {
                start: next,
                end,
                captured,
            });
        }
        self.spare = core::mem::replace(&mut self.pieces, pieces);
        if duplicate {
            Added::Duplicate
        } else if overlap {
            Added::Overlap { conflict }
        } else {
            Added::New
        }
    }

    /// Marks what of `start..end` was not received otherwise as existing without bytes.
    fn place_uncaptured(&mut self, start: u32, end: u32) {
        let mut pieces = core::mem::take(&mut self.spare);
        pieces.clear();
        let mut next = start;
        for &piece in &self.pieces {
            if piece.end > start {
                let to = piece.start.min(end);
                if next < to {
                    pieces.push(Piece {
                        start: next,
                        end: to,
                        captured: false,
                    });
                }
                next = next.max(piece.end);
            }
            pieces.push(piece);
        }
        if next < end {
            pieces.push(Piece {
                start: next,
                end,
                captured: false,
            });
        }
        self.spare = core::mem::replace(&mut self.pieces, pieces);
    }
}

/// Appends a piece of the newcomer. Where it won over several originals it is one piece.
fn push_new(pieces: &mut Vec<Piece>, joins: &mut bool, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if *joins && last.end == piece.start => last.end = piece.end,
        _ => pieces.push(piece),
    }
    *joins = true;
}

/// Internet checksum of an IPv4 header (RFC 1071).
fn header_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
