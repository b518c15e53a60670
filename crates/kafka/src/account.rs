//! What was taken of a partition, by all members of a group so far. It is committed with the offset, as the text that Kafka
//! keeps beside one, so the two are always of the same moment.

use std::collections::BTreeMap;

use data_encoding::BASE64_NOPAD;

/// Kafka takes texts of 4,096 bytes (`offset.metadata.max.bytes`); these have at most 3,900.
const MOST_SESSIONS: usize = 180;
const NAME: &str = "flowgauge1";

/// An account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Items taken, lost, and before what was there.
    pub(crate) items: u64,
    /// By what a session's number begins with: the item that comes next, and when one came last; 0: it has ended.
    sessions: BTreeMap<u64, (u64, u64)>,
    /// Counts messages.
    turn: u64,
}

/// What a message is to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Come {
    /// Its items come for the first time; so many right before them were lost, or were there before anybody took some.
    New { lost: u64, before: u64 },
    /// They came before.
    Again,
    /// Some of them did: no sender divides items in two ways.
    Wrong,
}

/// What a session's number begins with.
pub(crate) fn short(session: [u8; 16]) -> u64 {
    let [first, ..] = session.as_chunks().0 else {
        return 0;
    };
    u64::from_le_bytes(*first)
}

impl Account {
    /// Of a text; `None`: it is no account, as that of a group that another program moved.
    pub(crate) fn read(text: &str) -> Option<Account> {
        let mut words = text.split(' ');
        if words.next() != Some(NAME) {
            return None;
        }
        let items = words.next()?.parse().ok()?;
        let sessions = BASE64_NOPAD.decode(words.next()?.as_bytes()).ok()?;
        let mut account = Account {
            items,
            ..Account::default()
        };
        let mut rest = sessions.as_slice();
        while !rest.is_empty() {
            let (session, behind) = rest.split_first_chunk()?;
            let (next, behind) = behind.split_first_chunk()?;
            rest = behind;
            account.turn += 1;
            let state = (u64::from_le_bytes(*next), account.turn);
            account.sessions.insert(u64::from_le_bytes(*session), state);
        }
        Some(account)
    }

    /// As a text, the sessions in the order in which something came of them last.
    pub(crate) fn write(&self) -> String {
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_by_key(|(_, (_, turn))| *turn);
        let mut bytes = Vec::with_capacity(16 * sessions.len());
        for (session, (next, _)) in sessions {
            bytes.extend_from_slice(&session.to_le_bytes());
            bytes.extend_from_slice(&next.to_le_bytes());
        }
        format!("{NAME} {} {}", self.items, BASE64_NOPAD.encode(&bytes))
    }

    /// Items of a session, or its end: `count` is `None`.
    pub(crate) fn take(&mut self, session: u64, first: u64, count: Option<u32>) -> Come {
        let end = first.saturating_add(u64::from(count.unwrap_or(0)));
        let known = self.sessions.get(&session).map(|(next, _)| *next);
        let next = known.unwrap_or(0);
        if end < next || end == next && count.is_some() {
            return Come::Again;
        }
        if first < next {
            return Come::Wrong;
        }
        let missing = first - next;
        self.items = self.items.saturating_add(end - next);
        self.turn += 1;
        let turn = count.map_or(0, |_| self.turn);
        self.sessions.insert(session, (end, turn));
        if self.sessions.len() > MOST_SESSIONS {
            let others = self.sessions.iter().filter(|(id, _)| **id != session);
            let oldest = others.min_by_key(|(_, (_, turn))| *turn);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.sessions.remove(&oldest);
            }
        }
        // Of a session that nobody knows they may have been taken, or removed from the topic.
        match known {
            Some(_) => Come::New {
                lost: missing,
                before: 0,
            },
            None => Come::New {
                lost: 0,
                before: missing,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_and_repetitions_are_known_by_their_numbers() {
        let new = |lost, before| Come::New { lost, before };
        let mut account = Account::default();
        assert_eq!(account.take(1, 10, Some(5)), new(0, 10));
        assert_eq!(account.take(1, 15, Some(5)), new(0, 0));
        assert_eq!(account.take(1, 10, Some(5)), Come::Again);
        assert_eq!(account.take(1, 15, Some(5)), Come::Again);
        assert_eq!(account.take(1, 18, Some(5)), Come::Wrong);
        assert_eq!(account.take(1, 30, Some(1)), new(10, 0));
        assert_eq!(account.take(1, 35, None), new(4, 0));
        assert_eq!(account.take(1, 35, None), new(0, 0));
        assert_eq!(account.take(1, 20, Some(15)), Come::Again);
        assert_eq!(account.items, 35);
        // All of it was lost.
        assert_eq!(account.take(2, 7, None), new(0, 7));
        assert_eq!(account.items, 42);
    }

    #[test]
    fn what_another_program_committed_is_no_account() {
        for text in [
            "",
            "x",
            "flowgauge1",
            "flowgauge1 7",
            "flowgauge1 x ",
            "flowgauge1 7 AAAA",
        ] {
            assert_eq!(Account::read(text), None, "{text}");
        }
        assert_eq!(Account::read("flowgauge1 7 ").unwrap().items, 7);
    }

    proptest! {
        /// Whoever reads an account that was committed goes on as who wrote it, for as many sessions as are kept; ended ones
        /// make room first.
        #[test]
        fn an_account_goes_on_elsewhere(
            steps in proptest::collection::vec((0..250_u64, 1..4_u32, any::<bool>()), 0..600),
            cut in 0..600_usize,
        ) {
            let mut next = BTreeMap::<u64, u64>::new();
            let (mut account, mut ended) = (Account::default(), 0);
            for (number, (session, count, ends)) in steps.into_iter().enumerate() {
                if number == cut {
                    let text = account.write();
                    prop_assert!(text.len() <= 4096);
                    let read = Account::read(&text).unwrap();
                    prop_assert_eq!(read.write(), text);
                    account = read;
                }
                let first = next.entry(session).or_default();
                let known = account.sessions.contains_key(&session);
                let come = account.take(session, *first, (!ends).then_some(count));
                let before = if known { 0 } else { *first };
                prop_assert_eq!(come, Come::New { lost: 0, before });
                *first += if ends { 0 } else { u64::from(count) };
                ended += usize::from(ends);
                if !ends {
                    prop_assert_eq!(account.take(session, *first - 1, Some(1)), Come::Again);
                }
                prop_assert!(account.sessions.len() <= MOST_SESSIONS);
            }
            prop_assert!(ended > 0 || account.sessions.len() == next.len().min(MOST_SESSIONS));
        }
    }
}
