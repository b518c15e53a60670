//! Memory shared with the kernel's program: a slot per flow under a verdict, as laid out by `bpf/verdict.bpf.c`.

use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_flow::{Turn, Withheld};
use flowgauge_stream::offload::{Packets, Vlan, Wanted};
use flowgauge_sys::bpf::SharedArray;
use flowgauge_wire::{Nanos, TcpFlags};

use crate::socket::KEY;

/// Words of a slot.
pub(crate) const SLOT: usize = 40;
/// How many packets came out of turn, and above them how many of these were processed.
const BREAKS: usize = 2;
/// What came of its sides.
const CAME: usize = 3;
/// Where its sides are in their connection.
const TURNS: usize = 4;
/// The end of the key of its flow.
const KEY_END: usize = 6;
/// Where its directions begin.
const SIDES: usize = 8;
const SIDE: usize = 16;
/// The header of each frame.
const ETHERNET: u64 = 14;

/// What a direction's mode has beside: which VLAN, or any, whether its stream is beyond the overload cutoff, whether all of it comes
/// and where it is in turn counts.
pub(crate) const VLAN: u32 = 8;
const ANY_VLAN: u32 = 4;
const BEYOND: u32 = 8;
const FOLLOWED: u32 = 16;
/// Of both: nothing depends on what is kept away until a packet comes out of turn.
const LAZY: u32 = 32;

/// Nanoseconds of the unit of time there, as a power of 2.
pub(crate) const UNIT: u32 = 20;
/// Steps of the kernel's clock that is read there are shorter, in nanoseconds.
const STEP: u64 = 20_000_000;

/// The bits of a mode, and all of them: what comes in turn is kept away.
const MODES: u64 = 3;
const IN_TURN: u64 = 3;

/// What marks the number of a run among epochs.
const RUN: u64 = 1 << 31;
const HAS_SEQ: u64 = 1 << 16;
const HAS_ACK: u64 = 1 << 17;

/// What was counted of a direction until it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    counts: [u64; 7],
    /// Of packets in turn, between which breaks, and where they ended.
    run: u64,
    end: u32,
}

/// A slot.
pub(crate) struct Slot<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> Slot<'a> {
    pub(crate) fn of(slots: &'a SharedArray, number: u32) -> Option<Slot<'a>> {
        let begin = number as usize * SLOT;
        slots.words().get(begin..begin + SLOT).map(Slot)
    }

    /// As of a flow whose key in the kernel's table is this one.
    pub(crate) fn clear(&self, key: &[u8; KEY]) {
        let word =
            |bytes: [&[u8]; 2]| u64::from_ne_bytes(bytes.concat().try_into().unwrap_or_default());
        for word in self.0 {
            word.store(0, Ordering::Relaxed);
        }
        self.0[KEY_END].store(word([&key[12..16], &key[28..32]]), Ordering::Relaxed);
        self.0[KEY_END + 1].store(word([&key[32..36], &key[36..]]), Ordering::Relaxed);
    }

    /// What is to become of packets in these VLANs, by direction.
    pub(crate) fn set(&self, wanted: [Wanted; 2], vlans: [Vlan; 2]) {
        let turns = match wanted.map(|wanted| wanted.packets) {
            [
                Packets::OutOfTurn(low) | Packets::Followed(low),
                Packets::OutOfTurn(high) | Packets::Followed(high),
            ] => Some([low, high]),
            _ => None,
        };
        let lazy = if are_lazy(wanted) { LAZY } else { 0 };
        let [low, high] = [0, 1].map(|at| {
            let vlan = match vlans[at] {
                Vlan::Any => ANY_VLAN,
                Vlan::Only(vlan) => vlan << VLAN,
            };
            let beyond = if wanted[at].standing.is_beginning {
                0
            } else {
                BEYOND
            };
            let followed = match wanted[at].packets {
                Packets::Followed(_) => FOLLOWED,
                _ => 0,
            };
            u64::from(mode(wanted[at]) | beyond | followed | lazy | vlan)
        });
        let priorities = wanted.map(|wanted| u64::from(wanted.standing.priority));
        let priorities = priorities[0] << 32 | priorities[1] << 48;
        // The kernel writes whether it has ended.
        let _ = self.0[1].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            Some(word & u64::from(u32::MAX) | priorities)
        });
        let before = self.0[0].load(Ordering::Relaxed);
        let was_in_turn = [before, before >> 32]
            .iter()
            .any(|it| it & MODES == IN_TURN);
        if let Some([low_turn, high_turn]) = turns
            && !was_in_turn
        {
            // Until it is told so, the kernel does not look at these.
            let turn = |turn: Turn| u64::from(turn.next) | u64::from(turn.acked) << 32;
            // Not ahead of the kernel's clock.
            let now = flowgauge_sys::bpf::clock().saturating_sub(STEP) >> UNIT << 3;
            let now = now & u64::from(u32::MAX);
            let came = |turn: Turn| {
                now | 1 | u64::from(turn.acknowledgements) << 1 | u64::from(turn.data) << 2
            };
            self.0[TURNS].store(turn(low_turn), Ordering::Relaxed);
            self.0[TURNS + 1].store(turn(high_turn), Ordering::Relaxed);
            let came = came(low_turn) | came(high_turn) << 32;
            self.0[CAME].store(came, Ordering::Relaxed);
            let breaks = (self.breaks()[0] + 1) & u64::from(u32::MAX);
            self.0[BREAKS].store(breaks | breaks << 32, Ordering::Relaxed);
        }
        self.0[0].store(low | high << 32, Ordering::Release);
    }

    /// Whether what was counted may be there for long.
    pub(crate) fn is_lazy(&self) -> bool {
        self.0[0].load(Ordering::Relaxed) & u64::from(LAZY) != 0
    }

    /// How many packets came out of turn, and how many of them were processed. What was counted came before the last of them.
    fn breaks(&self) -> [u64; 2] {
        let word = self.0[BREAKS].load(Ordering::Acquire);
        [word & u64::from(u32::MAX), word >> 32]
    }

    /// How many packets came out of turn, if not all of them were processed: nothing is counted.
    pub(crate) fn broken(&self) -> Option<u64> {
        let [came, processed] = self.breaks();
        (came != processed).then_some(came)
    }

    /// So many packets out of turn were processed: what comes in turn can be counted again.
    pub(crate) fn go_on(&self, breaks: u64) {
        let _ = self.0[BREAKS].fetch_update(Ordering::Release, Ordering::Relaxed, |word| {
            let is_new = word >> 32 != breaks;
            is_new.then_some(word & u64::from(u32::MAX) | breaks << 32)
        });
    }

    /// What was kept away of a direction since it was asked last. `since_boot` is the time at which the machine's clock was 0.
    pub(crate) fn withheld(
        &self,
        direction: usize,
        seen: &mut Seen,
        epoch: u32,
        since_boot: u64,
    ) -> Withheld {
        let begin = SIDES + SIDE * direction;
        let word = |at: usize| self.0[begin + at].load(Ordering::Acquire);
        // Packets are counted last.
        let now = [0, 11, 1, 12, 2, 13, 3].map(word);
        if now[..2] == seen.counts[..2] {
            return Withheld::default();
        }
        let mut more = [0; 7];
        for ((more, now), seen) in more.iter_mut().zip(now).zip(&mut seen.counts) {
            *more = now.wrapping_sub(core::mem::replace(seen, now));
        }
        let [
            data_packets,
            empty_packets,
            data_ip,
            empty_ip,
            data_extra,
            empty_extra,
            payload_bytes,
        ] = more;
        let data_bytes = data_packets * ETHERNET + data_ip + data_extra;
        let empty_bytes = empty_packets * ETHERNET + empty_ip + empty_extra;
        let time = |clock: u64| Nanos(since_boot.wrapping_add(clock));
        let last = word(4);
        let mode = self.0[0].load(Ordering::Relaxed) >> (32 * direction) & MODES;
        let in_turn = mode == IN_TURN;
        let run = (self.0[BREAKS].load(Ordering::Relaxed) >> 32) | RUN;
        // Of the epoch, else of the one before: the kernel was about to count.
        let epochs = match in_turn {
            true => [run, run],
            false => [u64::from(epoch), u64::from(epoch.wrapping_sub(1))],
        };
        let firsts = epochs.map(|epoch| {
            let at = epoch as usize & 1;
            let half = |word: u64| word >> (32 * at) & u64::from(u32::MAX);
            (half(word(7)) == epoch).then(|| (word(8 + at), half(word(10)) as u32))
        });
        let first = firsts.into_iter().flatten().next();
        let (seq, window) = (word(5), word(6));
        let flags = window >> 32;
        let mut numbers = first.map(|(_, first)| (first, seq as u32));
        if in_turn {
            // One behind the other: more may have come since they were counted.
            let begin = if seen.run == run {
                Some(seen.end)
            } else {
                first.map(|(_, seq)| seq)
            };
            numbers = begin.map(|begin| (begin, begin.wrapping_add(payload_bytes as u32)));
            (seen.run, seen.end) = (run, numbers.map_or(0, |(_, end)| end));
        }
        let numbers = numbers.filter(|_| flags & HAS_SEQ != 0);
        Withheld {
            packets: data_packets + empty_packets,
            bytes: data_bytes + empty_bytes,
            data_packets,
            data_bytes,
            ip_bytes: data_ip + empty_ip,
            payload_bytes,
            tcp_flags: TcpFlags(flags as u8),
            first_seq: numbers.map(|(first, _)| first),
            next_seq: (flags & HAS_SEQ != 0).then_some(numbers.map_or(seq as u32, |(_, end)| end)),
            ack: (flags & HAS_ACK != 0).then_some(((seq >> 32) as u32, window as u16)),
            first: time(first.map_or(last, |(time, _)| time)),
            last: time(last),
            in_turn,
        }
    }
}

/// Whether only packets in turn are kept away.
pub(crate) fn are_lazy(wanted: [Wanted; 2]) -> bool {
    wanted.iter().all(|it| u64::from(mode(*it)) == IN_TURN)
}

/// As the kernel's program knows it.
pub(crate) fn mode(wanted: Wanted) -> u32 {
    match wanted.packets {
        Packets::All | Packets::Followed(_) => 0,
        Packets::Headers => 1,
        Packets::None => 2,
        Packets::OutOfTurn(_) => IN_TURN as u32,
    }
}
