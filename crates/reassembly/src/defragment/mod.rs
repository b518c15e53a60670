//! IPv4 and IPv6 defragmentation (RFC 791, RFC 8200 section 4.5, RFC 815 in spirit).
//!
//! A datagram under construction is a sorted list of the pieces received, and pages with their bytes
//! from a store that all datagrams share: a fragment costs the pages its bytes lie in, whatever its
//! offset, and some dozens of steps, however many came before and in whatever order. Datagrams are
//! found by a hash table; both their number and their memory are bounded, the oldest goes when a
//! bound is reached. What does not complete is given back to the caller, so that its frames can be
//! counted.
//!
//! Refused, each with its counter: fragments without data, beyond the 65,535 bytes a datagram can
//! have ("ping of death"), beyond an end already known or moving it (teardrop variants), and not a
//! multiple of eight bytes long though more follow (IPv6; in IPv4 the odd bytes are cut off, as
//! Linux does). Overlaps are resolved by [`OverlapPolicy`] and counted. RFC 5722 has IPv6 receivers
//! drop datagrams with overlaps altogether: [`DefragmentConfig::refuse_ipv6_overlaps`]. A first
//! fragment too small for its transport header (RFC 1858) is counted and reassembled.

mod datagram;
mod pages;
mod pieces;

use core::hash::{Hash, Hasher};
use std::collections::{HashMap, VecDeque};

use flowgauge_wire::{Address, Decoded, FoldedState, Nanos, fragment_info};

use crate::hosts::HostPolicies;
use crate::policy::OverlapPolicy;
use datagram::{Added, Datagram, Store};

/// Bounds and choices of a [`Defragmenter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragmentConfig {
    /// How overlapping fragments are resolved.
    pub policy: OverlapPolicy,
    /// The most incomplete datagrams held.
    pub max_datagrams: u32,
    /// The most bytes of memory for them, their administration included.
    pub max_bytes: u64,
    /// How long an IPv4 datagram may take, from its first fragment.
    pub timeout_v4: Nanos,
    /// The same for IPv6.
    pub timeout_v6: Nanos,
    /// Whether an IPv6 datagram with overlapping fragments is dropped (RFC 5722).
    pub refuse_ipv6_overlaps: bool,
}

impl Default for DefragmentConfig {
    /// First copy wins, 64 Ki datagrams, 64 MiB, 30 s and 60 s, overlaps resolved for IPv6 too.
    fn default() -> DefragmentConfig {
        DefragmentConfig {
            policy: OverlapPolicy::First,
            max_datagrams: 1 << 16,
            max_bytes: 64 << 20,
            timeout_v4: Nanos::from_secs(30),
            timeout_v6: Nanos::from_secs(60),
            refuse_ipv6_overlaps: false,
        }
    }
}

/// One fragment as captured.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// 4 or 6.
    pub version: u8,
    /// Sender.
    pub source: Address,
    /// Receiver.
    pub destination: Address,
    /// Protocol of the datagram.
    pub protocol: u8,
    /// Identification.
    pub id: u32,
    /// What else keeps datagrams apart (VLAN or tunnel), or 0.
    pub context: u32,
    /// Offset of the data in the datagram's payload, in bytes.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
    /// The IP header in front of the data; in IPv6 with the extension headers up to the fragment
    /// header, which is left out.
    pub header: &'a [u8],
    /// Where in `header` the number of the payload's protocol belongs.
    pub next_header_at: u16,
    /// The data, as far as they were captured.
    pub data: &'a [u8],
    /// Length of the data by the headers.
    pub data_len: u32,
    /// Capture time.
    pub time: Nanos,
    /// Length of the frame on the wire.
    pub wire_len: u32,
    /// Length of the IP packet.
    pub ip_len: u32,
    /// Frames this stands for (more than one when it was itself reassembled).
    pub frames: u16,
}

impl<'a> Fragment<'a> {
    /// The fragment that a decoded packet is; `bytes` are those that its offsets refer to
    /// ([`flowgauge_wire::DecodedBatch::bytes`]). `None` where its headers cannot be read.
    pub fn of(bytes: &'a [u8], packet: &Decoded) -> Option<Fragment<'a>> {
        let start = usize::from(packet.ip_offset);
        let info = fragment_info(bytes, start)?;
        let header = bytes.get(start..start + usize::from(info.header_len));
        let data_start = (info.data_offset as usize).min(bytes.len());
        let data_end = (data_start + info.data_len as usize).min(bytes.len());
        Some(Fragment {
            version: info.version,
            source: packet.source().0,
            destination: packet.destination().0,
            protocol: info.protocol,
            id: info.id,
            context: packet.key.context,
            offset: info.offset,
            more: info.more,
            header: header.unwrap_or(&[]),
            next_header_at: info.next_header_at,
            data: &bytes[data_start..data_end],
            data_len: info.data_len,
            time: packet.time,
            wire_len: packet.wire_len,
            ip_len: packet.ip_len,
            frames: packet.frames,
        })
    }
}

/// Sums over the fragments of one datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames.
    pub frames: u32,
    /// Frame bytes on the wire.
    pub wire_len: u64,
    /// IP bytes, each fragment with its header.
    pub ip_len: u64,
}

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits for the rest.
    Held,
    /// The datagram is complete and stands in the caller's buffer, from its IP header on, which
    /// says that it is whole.
    Complete(Totals),
    /// It makes no sense and was not taken.
    Refused,
}

/// A datagram that was given up, with the tag of its first fragment (or of the first one seen).
#[derive(Clone, Copy, Debug)]
pub struct Incomplete<T> {
    /// What the caller attached.
    pub tag: T,
    /// Sums over what was seen of it.
    pub totals: Totals,
    /// Time of its last fragment.
    pub last: Nanos,
    /// Why.
    pub cause: GivenUp,
}

/// Why a datagram was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// The rest did not come in time, or the input ended.
    Incomplete,
    /// Its memory was needed for others.
    Memory,
    /// Fragments overlapped, which was refused ([`DefragmentConfig::refuse_ipv6_overlaps`]).
    Overlap,
}

/// What a defragmenter has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragmentStatistics {
    /// Fragments seen.
    pub fragments: u64,
    /// Datagrams completed.
    pub completed: u64,
    /// Datagrams that timed out (or were left when the input ended).
    pub timed_out: u64,
    /// Datagrams evicted because a bound was reached.
    pub evicted: u64,
    /// Fragments that overlapped others.
    pub overlaps: u64,
    /// Of these, those whose bytes differed.
    pub conflicts: u64,
    /// Fragments received a second time, to the byte.
    pub duplicates: u64,
    /// Fragments without data, or not a multiple of eight bytes long though more follow.
    pub bad_length: u64,
    /// Fragments that reach beyond 65,535 bytes.
    pub too_long: u64,
    /// Fragments beyond the datagram's known end, or that move it.
    pub bad_end: u64,
    /// First fragments that do not hold their transport header.
    pub tiny: u64,
    /// Pieces of datagrams looked at or moved to find the places of others.
    pub search_steps: u64,
    /// The most bytes of memory that were in use.
    pub memory_high: u64,
}

impl DefragmentStatistics {
    /// What was odd about the fragments since `before`, and 0 for all else; `None` if nothing was.
    pub fn odd_since(&self, before: &DefragmentStatistics) -> Option<DefragmentStatistics> {
        let odd = DefragmentStatistics {
            overlaps: self.overlaps - before.overlaps,
            conflicts: self.conflicts - before.conflicts,
            bad_length: self.bad_length - before.bad_length,
            too_long: self.too_long - before.too_long,
            bad_end: self.bad_end - before.bad_end,
            tiny: self.tiny - before.tiny,
            ..DefragmentStatistics::default()
        };
        (odd != DefragmentStatistics::default()).then_some(odd)
    }
}

/// Puts datagrams together. `T` is what the caller wants to remember of each.
#[derive(Clone, Debug)]
pub struct Defragmenter<T> {
    config: DefragmentConfig,
    policies: Option<HostPolicies>,
    index: HashMap<Key, u32, FoldedState>,
    slots: Vec<Datagram<T>>,
    free: Vec<u32>,
    /// Slots by the time of their first fragment, per IP version; stale ones are skipped.
    ages: [VecDeque<Age>; 2],
    incomplete: Vec<Incomplete<T>>,
    store: Store,
    /// Bytes of memory that datagrams hold beside their pages.
    bytes: u64,
    statistics: DefragmentStatistics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    source: Address,
    destination: Address,
    id: u32,
    context: u32,
    version: u8,
    protocol: u8,
}

impl Key {
    fn of(fragment: &Fragment<'_>) -> Key {
        Key {
            source: fragment.source,
            destination: fragment.destination,
            id: fragment.id,
            context: fragment.context,
            version: fragment.version,
            // RFC 8200: in IPv6 the protocol is the first fragment's, and not part of the key.
            protocol: if fragment.version == 4 {
                fragment.protocol
            } else {
                0
            },
        }
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // In words as large as hashers take at once.
        state.write(&self.source.0);
        state.write(&self.destination.0);
        state.write_u64(u64::from(self.id) | u64::from(self.context) << 32);
        state.write_u16(u16::from_le_bytes([self.version, self.protocol]));
    }
}

#[derive(Clone, Copy, Debug)]
struct Age {
    since: Nanos,
    slot: u32,
    generation: u32,
}

impl<T: Copy> Defragmenter<T> {
    /// Bytes that a slot costs whether or not it holds a datagram.
    const SLOT_BYTES: u64 = (size_of::<Datagram<T>>()
        + 2 * size_of::<(Key, u32)>()
        + size_of::<u32>()
        + 4 * size_of::<Age>()) as u64;

    /// A defragmenter that holds nothing yet.
    pub fn new(config: DefragmentConfig) -> Defragmenter<T> {
        Defragmenter {
            config,
            policies: None,
            index: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            ages: [VecDeque::new(), VecDeque::new()],
            incomplete: Vec::new(),
            store: Store::default(),
            bytes: 0,
            statistics: DefragmentStatistics::default(),
        }
    }

    /// From now on the receiving host's policy decides, instead of [`DefragmentConfig::policy`].
    pub fn set_policies(&mut self, policies: HostPolicies) {
        self.policies = Some(policies);
    }

    /// Takes a fragment. When it completes its datagram, `out` is cleared and filled with the
    /// datagram (as far as its bytes were captured without a break from the start).
    pub fn insert(&mut self, fragment: &Fragment<'_>, tag: T, out: &mut Vec<u8>) -> Outcome {
        self.statistics.fragments += u64::from(fragment.frames);
        let Some(len) = self.checked_len(fragment) else {
            return Outcome::Refused;
        };
        let key = Key::of(fragment);
        if fragment.offset == 0 && fragment.more && len < transport_header_len(fragment.protocol) {
            self.statistics.tiny += 1;
        }
        let slot = match self.index.get(&key) {
            Some(&slot) if !self.is_overdue(slot, fragment.time) => slot,
            Some(&slot) => {
                self.statistics.timed_out += 1;
                self.give_up(slot, GivenUp::Incomplete);
                self.create(key, fragment, tag)
            }
            None => self.create(key, fragment, tag),
        };
        let Some(datagram) = self.slots.get_mut(slot as usize) else {
            return Outcome::Refused;
        };
        let before = datagram.memory();
        let policy = match &self.policies {
            Some(policies) => policies.of(fragment.destination, fragment.version),
            None => self.config.policy,
        };
        let added = datagram.add(fragment, len, policy, tag, &mut self.store);
        self.bytes = self.bytes + datagram.memory() as u64 - before as u64;
        match added {
            Added::BadEnd => {
                self.statistics.bad_end += 1;
                if datagram.is_empty() {
                    self.release(slot);
                }
                return Outcome::Refused;
            }
            Added::Duplicate => self.statistics.duplicates += 1,
            Added::Overlap { conflict } => {
                self.statistics.overlaps += 1;
                self.statistics.conflicts += u64::from(conflict);
                if fragment.version == 6 && self.config.refuse_ipv6_overlaps {
                    self.give_up(slot, GivenUp::Overlap);
                    return Outcome::Held;
                }
            }
            Added::New => {}
        }
        if !datagram.is_complete() {
            self.make_room(slot);
            return Outcome::Held;
        }
        datagram.write(out, &self.store);
        let totals = datagram.totals;
        self.statistics.completed += 1;
        self.release(slot);
        Outcome::Complete(totals)
    }

    /// Gives up what has timed out at `now`; [`Defragmenter::take_incomplete`] hands it out.
    pub fn expire(&mut self, now: Nanos) {
        let timeouts = [self.config.timeout_v4, self.config.timeout_v6];
        for (version, timeout) in timeouts.into_iter().enumerate() {
            while let Some(&age) = self.ages[version].front() {
                if now - age.since <= timeout {
                    break;
                }
                self.ages[version].pop_front();
                if self.is_current(age) {
                    self.statistics.timed_out += 1;
                    self.give_up(age.slot, GivenUp::Incomplete);
                }
            }
        }
    }

    /// Gives up everything: the input is over.
    pub fn finish(&mut self) {
        while let Some(slot) = self.oldest() {
            self.statistics.timed_out += 1;
            self.give_up(slot, GivenUp::Incomplete);
        }
    }

    /// Whether [`Defragmenter::take_incomplete`] has something to give.
    #[inline]
    pub fn has_incomplete(&self) -> bool {
        !self.incomplete.is_empty()
    }

    /// Hands out the datagrams given up since the last call.
    pub fn take_incomplete(&mut self) -> impl Iterator<Item = Incomplete<T>> + '_ {
        self.incomplete.drain(..)
    }

    /// Whether another fragment of the same datagram came before, and not too long ago for this one to be
    /// put together with it.
    pub fn holds(&self, fragment: &Fragment<'_>) -> bool {
        let slot = self.index.get(&Key::of(fragment));
        slot.is_some_and(|&slot| !self.is_overdue(slot, fragment.time))
    }

    /// Datagrams held.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no datagram is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes of memory in use. Freed memory of pages and slots is kept for reuse, never more than
    /// the bound.
    pub fn bytes(&self) -> u64 {
        self.slots.len() as u64 * Self::SLOT_BYTES + self.bytes + self.store.pages.used_bytes()
    }

    /// Counters.
    pub fn statistics(&self) -> DefragmentStatistics {
        DefragmentStatistics {
            search_steps: self.store.steps,
            ..self.statistics
        }
    }

    /// The most datagrams held: empty slots take at most half of the memory.
    fn max_datagrams(&self) -> usize {
        let slot = Self::SLOT_BYTES + Datagram::<T>::EMPTY_BYTES as u64;
        let most = (self.config.max_bytes / 2 / slot).min(u64::from(self.config.max_datagrams));
        most.max(1) as usize
    }

    /// The fragment's length, if the fragment makes sense by itself.
    fn checked_len(&mut self, fragment: &Fragment<'_>) -> Option<u32> {
        let mut len = fragment.data_len;
        if fragment.more && !len.is_multiple_of(8) {
            if fragment.version == 6 {
                len = 0;
            }
            len &= !7;
        }
        if len == 0 {
            self.statistics.bad_length += 1;
            return None;
        }
        let header = match fragment.version {
            4 => fragment.header.len() as u32,
            // The IPv6 length field does not count the first 40 bytes.
            _ => (fragment.header.len() as u32).saturating_sub(40),
        };
        let end = fragment.offset.checked_add(len);
        if end
            .and_then(|end| end.checked_add(header))
            .is_none_or(|end| end > 65_535)
        {
            self.statistics.too_long += 1;
            return None;
        }
        Some(len)
    }

    fn is_overdue(&self, slot: u32, now: Nanos) -> bool {
        self.slots.get(slot as usize).is_some_and(|datagram| {
            let timeout = match datagram.key.version {
                4 => self.config.timeout_v4,
                _ => self.config.timeout_v6,
            };
            now - datagram.since > timeout
        })
    }

    fn create(&mut self, key: Key, fragment: &Fragment<'_>, tag: T) -> u32 {
        while self.index.len() >= self.max_datagrams() {
            let Some(slot) = self.oldest() else { break };
            self.statistics.evicted += 1;
            self.give_up(slot, GivenUp::Memory);
        }
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(slot as usize) {
            Some(datagram) => datagram.restart(key, fragment.time, tag),
            None => self.slots.push(Datagram::new(key, fragment.time, tag)),
        }
        let generation = self.slots[slot as usize].generation;
        self.index.insert(key, slot);
        let ages = &mut self.ages[usize::from(key.version == 6)];
        // Completed datagrams leave stale ages; they must not pile up behind one that lives.
        if ages.len() > 64 && ages.len() > 4 * self.index.len() {
            let slots = &self.slots;
            ages.retain(|age| {
                slots
                    .get(age.slot as usize)
                    .is_some_and(|datagram| datagram.generation == age.generation)
            });
        }
        ages.push_back(Age {
            since: fragment.time,
            slot,
            generation,
        });
        slot
    }

    fn make_room(&mut self, keep: u32) {
        while self.bytes() > self.config.max_bytes {
            let Some(slot) = self.oldest() else { break };
            self.statistics.evicted += 1;
            self.give_up(slot, GivenUp::Memory);
            if slot == keep {
                break;
            }
        }
        self.statistics.memory_high = self.statistics.memory_high.max(self.bytes());
    }

    fn oldest(&mut self) -> Option<u32> {
        loop {
            let version = match (self.ages[0].front(), self.ages[1].front()) {
                (None, None) => return None,
                (Some(_), None) => 0,
                (None, Some(_)) => 1,
                (Some(four), Some(six)) => usize::from(six.since < four.since),
            };
            let age = self.ages[version].pop_front()?;
            if self.is_current(age) {
                return Some(age.slot);
            }
        }
    }

    fn is_current(&self, age: Age) -> bool {
        self.slots
            .get(age.slot as usize)
            .is_some_and(|datagram| datagram.generation == age.generation)
    }

    fn give_up(&mut self, slot: u32, cause: GivenUp) {
        if let Some(datagram) = self.slots.get(slot as usize) {
            self.incomplete.push(Incomplete {
                tag: datagram.tag,
                totals: datagram.totals,
                last: datagram.last,
                cause,
            });
        }
        self.release(slot);
    }

    fn release(&mut self, slot: u32) {
        if let Some(datagram) = self.slots.get_mut(slot as usize) {
            self.index.remove(&datagram.key);
            self.bytes -= datagram.memory() as u64;
            datagram.clear(&mut self.store);
            self.bytes += datagram.memory() as u64;
            self.free.push(slot);
        }
    }
}

/// The least a first fragment should hold for its protocol.
fn transport_header_len(protocol: u8) -> u32 {
    match protocol {
        6 => 20,
        17 | 1 | 58 => 8,
        132 => 12,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
