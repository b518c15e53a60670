//! One datagram under construction.

use flowgauge_wire::Nanos;

use super::pages::{NONE, PAGE, Pages};
use super::pieces::{KEPT, Piece, Pieces};
use super::{Fragment, Key, Totals};
use crate::policy::OverlapPolicy;

/// Headers up to this size keep their room for reuse when a datagram is done.
const KEPT_HEADER: usize = 128;
/// The most pages a datagram has.
const MAX_PAGES: usize = (1 << 16) / PAGE;

#[derive(Clone, Debug)]
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
    /// Where the payload's bytes are: a page for each [`PAGE`] of it in which something was received.
    pages: Vec<u32>,
    pieces: Pieces,
}

/// What datagrams share.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    pub(super) pages: Pages,
    /// Pieces looked at or moved to find the places of others.
    pub(super) steps: u64,
    /// Pieces that a newcomer overlaps, while it is placed.
    overlapped: Vec<Piece>,
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
    /// Bytes that a datagram takes at most when it holds nothing: it and its room for reuse.
    pub(super) const EMPTY_BYTES: usize = size_of::<Datagram<T>>()
        + KEPT_HEADER
        + MAX_PAGES * size_of::<u32>()
        + KEPT * size_of::<Piece>()
        + 4 * size_of::<Vec<Piece>>();

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
            pages: Vec::new(),
            pieces: Pieces::default(),
        }
    }

    pub(super) fn restart(&mut self, key: Key, since: Nanos, tag: T) {
        self.key = key;
        self.tag = tag;
        self.since = since;
        self.last = since;
        self.generation = self.generation.wrapping_add(1);
    }

    pub(super) fn clear(&mut self, store: &mut Store) {
        self.generation = self.generation.wrapping_add(1);
        self.totals = Totals::default();
        self.header.clear();
        if self.header.capacity() > KEPT_HEADER {
            self.header = Vec::new();
        }
        self.has_first = false;
        self.end = None;
        for page in self.pages.drain(..).filter(|&page| page != NONE) {
            store.pages.free(page);
        }
        self.pieces.clear();
    }

    /// Bytes this datagram holds beside its pages.
    pub(super) fn memory(&self) -> usize {
        self.header.capacity() + self.pages.capacity() * size_of::<u32>() + self.pieces.memory()
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
        store: &mut Store,
    ) -> Added {
        let start = fragment.offset;
        let end = start + len;
        let bad_end = match self.end {
            Some(known) => end > known || !fragment.more && end != known,
            None => !fragment.more && end < self.pieces.end(),
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
        let outcome = self.place(start, captured, policy, store);
        if seen == end {
            return outcome;
        }
        // What the snap length cut off is known to exist, but has no bytes.
        self.place_uncaptured(seen, end, store);
        outcome
    }

    pub(super) fn is_complete(&self) -> bool {
        self.has_first && self.end == Some(self.pieces.covered())
    }

    /// Writes the datagram with a header that says it is whole.
    pub(super) fn write(&self, out: &mut Vec<u8>, store: &Store) {
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
        let mut left = uncaptured.map_or(self.end.unwrap_or(0), |piece| piece.start) as usize;
        for &page in &self.pages {
            let bytes = store.pages.bytes(page);
            out.extend_from_slice(&bytes[..left.min(bytes.len())]);
            left = left.saturating_sub(PAGE);
        }
    }

    /// Places captured bytes, overlaps resolved by `policy`.
    fn place(
        &mut self,
        start: u32,
        data: &[u8],
        policy: OverlapPolicy,
        store: &mut Store,
    ) -> Added {
        let end = start + data.len() as u32;
        if start == end {
            return Added::New;
        }
        let whole = Piece {
            start,
            end,
            captured: true,
        };
        let mut overlapped = core::mem::take(&mut store.overlapped);
        overlapped.clear();
        // By far the most common: behind everything received so far.
        if self.pieces.end() > start {
            self.pieces
                .take(start, end, &mut overlapped, &mut store.steps);
        }
        let outcome = if overlapped.is_empty() {
            self.write_at(start, data, &mut store.pages);
            self.pieces.insert(whole, &mut store.steps);
            Added::New
        } else {
            self.overlay(whole, data, policy, &overlapped, store)
        };
        store.overlapped = overlapped;
        outcome
    }

    /// Places a newcomer and the pieces that it overlaps, which were taken out.
    fn overlay(
        &mut self,
        new: Piece,
        data: &[u8],
        policy: OverlapPolicy,
        overlapped: &[Piece],
        store: &mut Store,
    ) -> Added {
        let at = |offset: u32| (offset - new.start) as usize;
        let (mut overlap, mut conflict, mut duplicate) = (false, false, false);
        // Where the newcomer's part begins that is one piece, up to the last original looked at.
        // Where it wins over several originals it is one piece.
        let mut ours = None;
        let mut next = new.start;
        for &piece in overlapped {
            if piece.start > next {
                self.write_at(next, &data[at(next)..at(piece.start)], &mut store.pages);
                ours.get_or_insert(next);
            }
            let (from, to) = (piece.start.max(new.start), piece.end.min(new.end));
            let theirs = &data[at(from)..at(to)];
            let wins = if piece.captured {
                overlap = true;
                let differs = self.differs(from, theirs, &store.pages);
                conflict |= differs;
                duplicate |= !differs && piece.start == new.start && piece.end == new.end;
                policy.fragment_wins(new.start.cmp(&piece.start), new.end.cmp(&piece.end))
            } else {
                true
            };
            if wins {
                self.write_at(from, theirs, &mut store.pages);
                let before = Piece { end: from, ..piece };
                let after = Piece { start: to, ..piece };
                for rest in [before, after] {
                    if rest.start < rest.end {
                        self.pieces.insert(rest, &mut store.steps);
                    }
                }
                ours.get_or_insert(from);
            } else {
                if let Some(start) = ours.take() {
                    let end = piece.start;
                    self.pieces
                        .insert(Piece { start, end, ..new }, &mut store.steps);
                }
                self.pieces.insert(piece, &mut store.steps);
            }
            next = to;
        }
        if next < new.end {
            self.write_at(next, &data[at(next)..], &mut store.pages);
            ours.get_or_insert(next);
        }
        if let Some(start) = ours {
            self.pieces.insert(Piece { start, ..new }, &mut store.steps);
        }
        if duplicate {
            Added::Duplicate
        } else if overlap {
            Added::Overlap { conflict }
        } else {
            Added::New
        }
    }

    /// Marks what of `start..end` was not received otherwise as existing without bytes.
    fn place_uncaptured(&mut self, start: u32, end: u32, store: &mut Store) {
        let mut overlapped = core::mem::take(&mut store.overlapped);
        self.pieces
            .take(start, end, &mut overlapped, &mut store.steps);
        let mut next = start;
        for &piece in &overlapped {
            if next < piece.start {
                self.pieces
                    .insert(uncaptured(next, piece.start), &mut store.steps);
            }
            next = next.max(piece.end);
            self.pieces.insert(piece, &mut store.steps);
        }
        if next < end {
            self.pieces.insert(uncaptured(next, end), &mut store.steps);
        }
        store.overlapped = overlapped;
    }

    fn write_at(&mut self, start: u32, data: &[u8], pages: &mut Pages) {
        for (index, at, part) in parts(start, data) {
            if index >= self.pages.len() {
                self.pages.resize(index + 1, NONE);
            }
            let page = &mut self.pages[index];
            if *page == NONE {
                *page = pages.allocate();
            }
            if let Some(place) = pages.bytes_mut(*page).get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        }
    }

    fn differs(&self, start: u32, data: &[u8], pages: &Pages) -> bool {
        parts(start, data).any(|(index, at, part)| {
            let page = self.pages.get(index).copied().unwrap_or(NONE);
            pages.bytes(page).get(at..at + part.len()) != Some(part)
        })
    }
}

fn uncaptured(start: u32, end: u32) -> Piece {
    Piece {
        start,
        end,
        captured: false,
    }
}

/// Bytes at an offset, cut where pages end: number of the page, place in it, bytes.
fn parts(start: u32, data: &[u8]) -> impl Iterator<Item = (usize, usize, &[u8])> {
    let mut at = start as usize;
    let mut rest = data;
    core::iter::from_fn(move || {
        let (index, place) = (at / PAGE, at % PAGE);
        let (part, after) = rest.split_at(rest.len().min(PAGE - place));
        rest = after;
        at += part.len();
        (!part.is_empty()).then_some((index, place, part))
    })
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
