//! Whose packet of several sensors is next: in turn, or by capture time.

use std::time::{Duration, SystemTime};

/// What a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A packet captured then, in seconds since 1970 as a fixed point of 32.32 bits.
    Packet(u64),
    /// None now.
    Nothing {
        /// Its device is an interface: what it captured by now is here within the patience.
        is_live: bool,
    },
    /// None any more.
    Over,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take the packet of this member.
    Take(usize),
    /// Wait for packets.
    Wait,
    /// No more come.
    Over,
}

/// Whose packet is next.
#[derive(Debug, Default)]
pub struct Turns {
    /// Members before this one had their turn.
    at: usize,
    /// How long packets wait for earlier ones of others; nothing: they come in turn.
    patience: Option<Duration>,
}

impl Turns {
    /// By capture time: a packet is given once every other member has a later one, has come to its end, or captures an interface and
    /// did not send an earlier packet within `patience` of its capture. With `None` members have their packets taken in turn.
    pub fn by_time(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    /// Whether packets wait for nothing but their members' turns.
    pub fn is_in_turn(&self) -> bool {
        self.patience.is_none()
    }

    /// Whose packet is next, of members that are there (by number, ascending). In turn, those before it are not asked.
    pub fn next(
        &mut self,
        members: impl DoubleEndedIterator<Item = usize> + Clone,
        mut head: impl FnMut(usize) -> Head,
    ) -> Next {
        let Some(patience) = self.patience else {
            let (from, mut is_over) = (self.at, true);
            let behind = members.clone().filter(|at| *at >= from);
            for at in behind.chain(members.filter(|at| *at < from)) {
                match head(at) {
                    Head::Packet(_) => {
                        self.at = at + 1;
                        return Next::Take(at);
                    }
                    Head::Nothing { .. } => is_over = false,
                    Head::Over => {}
                }
            }
            return if is_over { Next::Over } else { Next::Wait };
        };
        let (mut first, mut waits, mut waits_for_files) = (None, false, false);
        for at in members {
            match head(at) {
                Head::Packet(time) => {
                    let earlier = first.is_none_or(|(earliest, _)| time < earliest);
                    first = if earlier { Some((time, at)) } else { first };
                }
                Head::Nothing { is_live } => {
                    waits = true;
                    waits_for_files |= !is_live;
                }
                Head::Over => {}
            }
        }
        match first {
            None if waits => Next::Wait,
            None => Next::Over,
            Some((time, at)) if !waits || !waits_for_files && is_past(time, patience) => {
                Next::Take(at)
            }
            Some(_) => Next::Wait,
        }
    }
}

/// Whether that is longer ago.
fn is_past(time: u64, patience: Duration) -> bool {
    let nanos = ((time & u64::from(u32::MAX)) * 1_000_000_000) >> 32;
    let since = Duration::new(time >> 32, nanos as u32);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().saturating_sub(since) >= patience
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Head = Head::Nothing { is_live: false };
    const LIVE: Head = Head::Nothing { is_live: true };

    #[test]
    fn packets_come_in_turn_unless_time_decides() {
        let next = |turns: &mut Turns, heads: &[Head]| turns.next(0..heads.len(), |at| heads[at]);
        let mut turns = Turns::default();
        let heads = [Head::Packet(9), Head::Packet(1), LIVE, Head::Over];
        for expected in [0, 1, 0] {
            assert_eq!(next(&mut turns, &heads), Next::Take(expected));
        }
        assert_eq!(next(&mut turns, &[Head::Over, FILE]), Next::Wait);
        assert_eq!(next(&mut turns, &[Head::Over]), Next::Over);

        turns.by_time(Some(Duration::from_secs(1000)));
        for expected in [1, 1] {
            assert_eq!(next(&mut turns, &heads), Next::Take(expected));
        }
        // A file has its next packet some time, an interface may have none.
        assert_eq!(next(&mut turns, &[Head::Packet(9), FILE]), Next::Wait);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_secs() << 32;
        assert_eq!(next(&mut turns, &[Head::Packet(now), LIVE]), Next::Wait);
        assert_eq!(
            next(&mut turns, &[Head::Packet(now), Head::Over]),
            Next::Take(0)
        );
        assert_eq!(next(&mut turns, &[LIVE, Head::Over]), Next::Wait);
        assert_eq!(next(&mut turns, &[]), Next::Over);
    }
}
