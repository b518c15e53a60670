//! The amount of memory that a client gets.
//!
//! All memory of a client is charged to the account of the pool: bytes of its waiting chunks, the ring of its events,
//! and some room for creations and terminations that wait while the ring is full. A client gets at most half of the
//! remaining memory, so that there is some for the next one. When a client leaves, those that got less than requested
//! get more by the same rule, as if they joined then; granted memory is never revoked.

use flowgauge_sys::shared::EventWriter;

use super::asked::Program;
use super::backlog::Backlog;

/// Events of the smallest ring and of the largest, as powers of two.
const RINGS: core::ops::RangeInclusive<u32> = 10..=16;

/// Bytes of memory for each event: small chunks need more events than memory.
const BYTES_PER_EVENT: u64 = 2048;

/// Events that the ring of a client with so much memory holds.
pub(super) fn events_for(memory: u64) -> u32 {
    let events = memory / BYTES_PER_EVENT;
    let bounds = (1 << RINGS.start(), 1 << RINGS.end());
    events.clamp(bounds.0, bounds.1).next_power_of_two() as u32
}

/// Bytes of the account that a client with so much memory takes.
pub(super) fn cost_of(memory: u64) -> u64 {
    memory.saturating_add(bytes_of(events_for(memory)))
}

fn bytes_of(events: u32) -> u64 {
    EventWriter::bytes_of(events) + Backlog::bytes_for(events)
}

/// The most memory, of what is wanted, that costs no more than `bytes`.
fn affordable(wanted: u64, bytes: u64) -> u64 {
    let with = |ring: u32| {
        let events = 1_u32 << ring;
        let most = match ring == *RINGS.end() {
            true => u64::MAX,
            false => u64::from(events) * BYTES_PER_EVENT,
        };
        let rest = bytes.saturating_sub(bytes_of(events));
        wanted.min(most).min(rest)
    };
    RINGS.map(with).max().unwrap_or(0)
}

/// The memory that a client gets when so much is left; otherwise why it gets none.
pub(super) fn granted(program: &Program, left: u64) -> Result<u64, String> {
    let least = program.least_memory;
    let memory = affordable(program.memory, left / 2);
    match memory >= least {
        true => Ok(memory),
        false => Err(format!(
            "{least} bytes of memory are wanted, and {} for events; {left} are left, of which one program gets half at \
             most; hint: ask for less",
            cost_of(least) - least
        )),
    }
}

/// The memory that a client has from now on which has `memory` and wants more, when so much is left.
pub(super) fn grown(memory: u64, wanted: u64, left: u64) -> u64 {
    let own = cost_of(memory);
    affordable(wanted, left.saturating_add(own) / 2).max(memory)
}

#[cfg(test)]
mod tests {
    use super::super::asked::tests::program;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn asks(memory: u64, least_memory: u64, chunk_bytes: u32) -> Program {
        program(|asked| {
            (asked.memory, asked.least_memory) = (memory, least_memory);
            asked.wanted.chunk_bytes = chunk_bytes;
        })
    }

    #[test]
    fn half_of_what_is_left_stays_for_others() {
        assert_eq!(granted(&asks(2 * MIB, 2 * MIB, 0), 64 * MIB), Ok(2 * MIB));
        for (wants, left) in [
            (asks(64 * MIB, MIB, 0), 64 * MIB),
            (asks(u64::MAX, MIB, 0), 1 << 40),
            (asks(64 * MIB, MIB, 0), 5 * MIB),
            (asks(64 * MIB, 0, 0), 3 * MIB),
        ] {
            let memory = granted(&wants, left).unwrap();
            assert!(cost_of(memory) <= left / 2, "{memory}");
            // Little more would cost too much.
            assert!(cost_of(memory + memory / 8) > left / 2, "{memory}");
        }
        for (wants, left) in [
            (asks(64 * MIB, 33 * MIB, 0), 64 * MIB),
            (asks(64 * MIB, 0, 0), 2 * MIB),
            // Four chunks at least.
            (asks(64 * MIB, 0, 1 << 20), 9 * MIB),
        ] {
            let why = granted(&wants, left).unwrap_err();
            assert!(why.contains("are left"), "{why}");
        }
    }

    #[test]
    fn rings_are_in_the_account() {
        for (memory, events) in [
            (0, 1024),
            (MIB, 1024),
            (2 * MIB, 1024),
            (2 * MIB + 2048, 2048),
            (16 * MIB, 8192),
            (u64::MAX, 65_536),
        ] {
            assert_eq!(events_for(memory), events, "{memory}");
            let ring = cost_of(memory).saturating_sub(memory);
            assert!(memory == u64::MAX || ring > u64::from(events) * 384);
        }
    }

    #[test]
    fn who_made_do_with_less_gets_more_and_leaves_half() {
        // As much as who comes then.
        let left = 64 * MIB;
        let memory = granted(&asks(256 * MIB, 0, 0), left).unwrap();
        let now_left = left - cost_of(memory);
        assert_eq!(grown(memory, 256 * MIB, now_left), memory);
        // Another has gone.
        let more = grown(memory, 256 * MIB, now_left + left);
        assert!(more > memory && cost_of(more) <= left, "{more}");
        assert_eq!(grown(memory, 40 * MIB, 1 << 40), 40 * MIB);
        // Nobody loses what it has.
        assert_eq!(grown(memory, 256 * MIB, 0), memory);
    }
}
