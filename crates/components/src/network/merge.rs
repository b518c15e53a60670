//! Items of several senders in the order of time.
//!
//! Each sender promises, with each frame and while it has nothing to send, that no later item of it
//! is of a time before its *watermark*. The earliest item that is here is given out once no sender
//! without items can have an earlier one. A sender whose watermark does not move for a while, because
//! it or its machine is gone, is not waited for any longer.
//!
//! ```text
//!   sensor1   12:00:07  12:00:09  12:00:12        given out: 07, 08, 09
//!   sensor2   12:00:08  (watermark 12:00:10)      12 waits: sensor2 may still have an 11
//! ```

/// What is known of one sender at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The time of its first item that is here.
    pub(crate) head: Option<u64>,
    /// No item that is not here is of a time before this one.
    pub(crate) watermark: u64,
    /// Whether items of it are waited for.
    pub(crate) is_awaited: bool,
}

impl Standing {
    /// No item of it that was not given out is of a time before this one.
    fn bound(&self) -> u64 {
        match self.head {
            Some(head) => head,
            None if self.is_awaited => self.watermark,
            None => u64::MAX,
        }
    }
}

/// Whose items come next, as its place among `standings`, and until which time it can go on before
/// another one's do.
pub(crate) fn choose(standings: &[Standing]) -> Option<(usize, u64)> {
    let heads = standings.iter().enumerate();
    let heads = heads.filter_map(|(place, standing)| Some((standing.head?, place)));
    let (head, chosen) = heads.min()?;
    let others = standings.iter().enumerate();
    let others = others.filter(|(place, _)| *place != chosen);
    let limit = others.map(|(_, other)| other.bound()).min();
    let limit = limit.unwrap_or(u64::MAX);
    (head <= limit).then_some((chosen, limit))
}

/// No item that was not given out is of a time before this one; `None`: nobody is waited for, and
/// nothing is here.
pub(crate) fn horizon(standings: &[Standing]) -> Option<u64> {
    let bounds = standings.iter().map(Standing::bound);
    bounds.min().filter(|bound| *bound < u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn standing(head: Option<u64>, watermark: u64) -> Standing {
        Standing {
            head,
            watermark,
            is_awaited: true,
        }
    }

    #[test]
    fn what_waits_for_whom() {
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[standing(Some(3), 9)]), Some((0, u64::MAX)));
        let two = [standing(Some(7), 20), standing(None, 6)];
        assert_eq!((choose(&two), horizon(&two)), (None, Some(6)));
        let two = [standing(Some(7), 20), standing(None, 7)];
        assert_eq!(choose(&two), Some((0, 7)));
        let gone = Standing {
            is_awaited: false,
            ..standing(None, 6)
        };
        assert_eq!(choose(&[standing(Some(7), 20), gone]), Some((0, u64::MAX)));
        assert_eq!(horizon(&[gone]), None);
    }

    proptest! {
        /// However items arrive, they are given out in the order of time, and all of them.
        #[test]
        fn all_come_out_in_order(
            senders in proptest::collection::vec(proptest::collection::vec(0..50_u64, 0..30), 1..5),
            arrivals in proptest::collection::vec(any::<prop::sample::Index>(), 0..300),
        ) {
            let mut senders: Vec<VecDeque<u64>> = senders
                .into_iter()
                .map(|mut times| {
                    times.sort_unstable();
                    times.into()
                })
                .collect();
            let total: usize = senders.iter().map(VecDeque::len).sum();
            let mut here = vec![VecDeque::new(); senders.len()];
            let mut marks = vec![0; senders.len()];
            let mut given = Vec::new();
            let drain = |senders: &[VecDeque<u64>], here: &mut Vec<VecDeque<u64>>, marks: &[u64], given: &mut Vec<u64>| loop {
                let standings: Vec<Standing> = here
                    .iter()
                    .zip(marks)
                    .zip(senders)
                    .map(|((here, mark), left)| Standing {
                        head: here.front().copied(),
                        watermark: *mark,
                        is_awaited: !left.is_empty(),
                    })
                    .collect();
                let Some((chosen, limit)) = choose(&standings) else { break };
                while here[chosen].front().is_some_and(|time| *time <= limit) {
                    given.extend(here[chosen].pop_front());
                }
            };
            for arrival in arrivals {
                let from = arrival.index(senders.len());
                if let Some(time) = senders[from].pop_front() {
                    here[from].push_back(time);
                    marks[from] = time;
                }
                drain(&senders, &mut here, &marks, &mut given);
            }
            for (from, left) in senders.iter_mut().enumerate() {
                here[from].extend(left.drain(..));
            }
            drain(&senders, &mut here, &marks, &mut given);
            prop_assert_eq!(given.len(), total);
            prop_assert!(given.is_sorted());
        }
    }
}
