//! What a user elsewhere and the agent of a sensor say to each other: messages of a link between machines.
//!
//! Each begins with its kind. Requests and answers are the JSON of local users ([`protocol`](crate::protocol)) behind a number
//! by which answers find their request; any number of requests may be under way. Numbers of flows travel as what changed since
//! the last ones on that connection. Numbers are LEB128.
//!
//! | kind | user to agent | agent to user |
//! |---|---|---|
//! | 1 | request: its number, JSON | answer: the request's number, JSON |
//! | 2 | numbers of a flow, now: request's number, flow | numbers of a flow: the request's number or 0, flow, what changed |
//! | 3 | numbers of a flow from now on: flow, milliseconds between two, 0 to end it | |
//! | 4 | packets of a flow: flow, bytes that may have been sent in all | packets of a flow: flow, component, how many, their records; none: no more come |
//! | 5 | the agent is heard | is the user there? |
//! | 6 | | packets as of 4, compressed: flow, component, how many, bytes of their records, a frame of zstd |

use flowgauge_sys::shared::COUNTERS;

/// What is asked for where a link begins.
pub const SERVICE: &str = "sensor";
/// The longest message.
pub const MOST_MESSAGE: usize = 16 << 20;

const ASK: u8 = 1;
const NUMBERS: u8 = 2;
const EVERY: u8 = 3;
const PACKETS: u8 = 4;
const ALIVE: u8 = 5;
const PACKED: u8 = 6;

/// The numbers of a flow, as they stand in the memory that the sensor shares ([`layout`](crate::layout)).
pub type Page = [u64; COUNTERS];

/// What a user says.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A request, as JSON.
    Ask {
        /// Its number.
        id: u64,
        /// What.
        request: &'a [u8],
    },
    /// The numbers of a flow.
    Read {
        /// Of this request.
        id: u64,
        /// Which.
        flow: u64,
    },
    /// The numbers of a flow every so many milliseconds; 0: no more.
    Every {
        /// Which.
        flow: u64,
        /// How often.
        millis: u64,
    },
    /// Packets of a flow.
    Credit {
        /// Which.
        flow: u64,
        /// Bytes of records that may have been sent in all.
        bytes: u64,
    },
    /// The user is there.
    Alive,
}

/// What an agent says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// An answer, as JSON.
    Answer {
        /// To this request.
        id: u64,
        /// What.
        answer: &'a [u8],
    },
    /// What changed of a flow's numbers.
    Numbers {
        /// To this request, or 0.
        id: u64,
        /// Which.
        flow: u64,
        /// For [`change`].
        changes: &'a [u8],
    },
    /// Packets of a flow.
    Packets {
        /// Which.
        flow: u64,
        /// Of which component.
        component: u64,
        /// How many; 0: no more come.
        count: u64,
        /// Their records, as in the memory that the sensor shares.
        records: &'a [u8],
    },
    /// The same, compressed.
    Packed {
        /// Which.
        flow: u64,
        /// Of which component.
        component: u64,
        /// How many.
        count: u64,
        /// Bytes of their records.
        bytes: u64,
        /// The records, as a frame of zstd.
        packed: &'a [u8],
    },
    /// Is the user there?
    Alive,
}

impl Asked<'_> {
    /// What a message says; `None`: nothing that is known.
    pub fn of(message: &[u8]) -> Option<Asked<'_>> {
        let mut bytes = Bytes(message);
        let kind = bytes.byte()?;
        let asked = match kind {
            ASK => Asked::Ask {
                id: bytes.number()?,
                request: bytes.rest(),
            },
            NUMBERS => Asked::Read {
                id: bytes.number()?,
                flow: bytes.number()?,
            },
            EVERY => Asked::Every {
                flow: bytes.number()?,
                millis: bytes.number()?,
            },
            PACKETS => Asked::Credit {
                flow: bytes.number()?,
                bytes: bytes.number()?,
            },
            ALIVE => Asked::Alive,
            _ => return None,
        };
        bytes.0.is_empty().then_some(asked)
    }

    /// The message.
    pub fn message(&self) -> Vec<u8> {
        match self {
            Asked::Ask { id, request } => head(ASK, &[*id], request),
            Asked::Read { id, flow } => head(NUMBERS, &[*id, *flow], &[]),
            Asked::Every { flow, millis } => head(EVERY, &[*flow, *millis], &[]),
            Asked::Credit { flow, bytes } => head(PACKETS, &[*flow, *bytes], &[]),
            Asked::Alive => vec![ALIVE],
        }
    }
}

impl Said<'_> {
    /// What a message says; `None`: nothing that is known.
    pub fn of(message: &[u8]) -> Option<Said<'_>> {
        let mut bytes = Bytes(message);
        Some(match bytes.byte()? {
            ASK => Said::Answer {
                id: bytes.number()?,
                answer: bytes.rest(),
            },
            NUMBERS => Said::Numbers {
                id: bytes.number()?,
                flow: bytes.number()?,
                changes: bytes.rest(),
            },
            PACKETS => Said::Packets {
                flow: bytes.number()?,
                component: bytes.number()?,
                count: bytes.number()?,
                records: bytes.rest(),
            },
            PACKED => Said::Packed {
                flow: bytes.number()?,
                component: bytes.number()?,
                count: bytes.number()?,
                bytes: bytes.number()?,
                packed: bytes.rest(),
            },
            ALIVE => Said::Alive,
            _ => return None,
        })
    }

    /// The message but for what is long, which follows it.
    pub fn head(&self) -> Vec<u8> {
        match self {
            Said::Answer { id, .. } => head(ASK, &[*id], &[]),
            Said::Numbers { id, flow, .. } => head(NUMBERS, &[*id, *flow], &[]),
            Said::Packets {
                flow,
                component,
                count,
                ..
            } => head(PACKETS, &[*flow, *component, *count], &[]),
            Said::Packed {
                flow,
                component,
                count,
                bytes,
                ..
            } => head(PACKED, &[*flow, *component, *count, *bytes], &[]),
            Said::Alive => vec![ALIVE],
        }
    }
}

fn head(kind: u8, numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    for value in numbers {
        put(&mut bytes, *value);
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// Says in what `now` differs from `before`: for each number that does, how many before it do not, and the difference, of which
/// the lowest bit is the sign.
pub fn changes(before: &Page, now: &Page, to: &mut Vec<u8>) {
    let mut same = 0;
    for (before, now) in before.iter().zip(now) {
        if before == now {
            same += 1;
            continue;
        }
        let difference = now.wrapping_sub(*before).cast_signed();
        put(to, same);
        put(to, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
        same = 0;
    }
}

/// Does to a page what [`changes`] said; `None` where that was damaged.
pub fn change(page: &mut Page, changes: &[u8]) -> Option<()> {
    let (mut bytes, mut at) = (Bytes(changes), 0_usize);
    while !bytes.0.is_empty() {
        at = at.checked_add(usize::try_from(bytes.number()?).ok()?)?;
        let coded = bytes.number()?;
        let difference = (coded >> 1) ^ (coded & 1).wrapping_neg();
        let number = page.get_mut(at)?;
        *number = number.wrapping_add(difference);
        at += 1;
    }
    Some(())
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_asked_is_read_as_it_was_meant() {
        for asked in [
            Asked::Ask {
                id: 300,
                request: b"{}",
            },
            Asked::Read { id: 1, flow: 2 },
            Asked::Every {
                flow: 1,
                millis: 100,
            },
            Asked::Credit {
                flow: u64::MAX,
                bytes: 1 << 40,
            },
            Asked::Alive,
        ] {
            assert_eq!(Asked::of(&asked.message()), Some(asked));
        }
        for wrong in [
            &b""[..],
            b"\0",
            b"\x02\x01",
            b"\x05x",
            b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01",
        ] {
            assert_eq!(Asked::of(wrong), None);
        }
    }

    proptest! {
        #[test]
        fn numbers_change_as_they_did(values in prop::collection::vec((0..COUNTERS, any::<u64>()), 0..40),
            later in prop::collection::vec((0..COUNTERS, prop_oneof![any::<u64>(), 0..300_u64]), 0..40)) {
            let mut before = [0; COUNTERS];
            for (at, value) in values {
                before[at] = value;
            }
            let mut now = before;
            for (at, value) in later {
                now[at] = value;
            }
            let mut bytes = Vec::new();
            changes(&before, &now, &mut bytes);
            change(&mut before, &bytes).unwrap();
            prop_assert_eq!(before, now);
        }

        #[test]
        fn nonsense_is_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Asked::of(&bytes);
            if let Some(Said::Numbers { changes, .. }) = Said::of(&bytes) {
                let _ = change(&mut [0; COUNTERS], changes);
            }
            let _ = change(&mut [u64::MAX; COUNTERS], &bytes);
        }
    }
}
