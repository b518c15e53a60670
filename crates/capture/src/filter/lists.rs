//! Lists of hosts, ports and networks in programs, looked up in tables.
//!
//! libpcap compiles `host a or host b or ...` to successive comparisons of the same word, all with the same target if
//! true. With thousands of them, a packet costs microseconds. Such a chain becomes a table:
//!
//! ```text
//!  ld [26]                          ld [26]
//!  jeq a  true: T                   in {a, b, c}  true: T, false: F
//!  jeq b  true: T           ->      jeq b   (others may still jump here)
//!  jeq c  true: T  false: F         jeq c
//! ```
//!
//! In chains of networks, the word is loaded and masked before each comparison; there is a table for each mask.

use super::program::{Operation, Step};

/// Shorter chains are gone through as quickly.
const LEAST: usize = 8;

/// What a chain compares with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct List {
    /// By mask.
    tables: Vec<(u32, Table)>,
    /// What the word is masked with when none was equal.
    pub(super) last_mask: u32,
}

impl List {
    /// Of masks and values, in their order.
    fn new(values: &[(u32, u32)]) -> List {
        let mut by_mask: Vec<(u32, Vec<u32>)> = Vec::new();
        for &(mask, value) in values {
            match by_mask.iter_mut().find(|(other, _)| *other == mask) {
                Some((_, values)) => values.push(value),
                None => by_mask.push((mask, vec![value])),
            }
        }
        let tables = by_mask.into_iter();
        let tables = tables.map(|(mask, values)| (mask, Table::new(&values)));
        List {
            tables: tables.collect(),
            last_mask: values.last().map_or(u32::MAX, |last| last.0),
        }
    }

    /// Whether a word, masked, is equal to any.
    #[inline]
    pub(super) fn contains(&self, word: u32) -> bool {
        let mut tables = self.tables.iter();
        tables.any(|(mask, table)| table.contains(word & mask))
    }
}

/// A set of numbers, open addressed and half empty at least.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    slots: Box<[u32]>,
    /// Bits of the product that are no place.
    shift: u32,
    /// Stands in empty slots; none of the numbers.
    empty: u32,
}

impl Table {
    pub(super) fn new(values: &[u32]) -> Table {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let empty = (0..=u32::MAX).zip(sorted.iter().copied().map(Some).chain([None]));
        let empty = empty
            .into_iter()
            .find(|(number, value)| *value != Some(*number));
        let empty = empty.map_or(u32::MAX, |(number, _)| number);
        let places = (2 * sorted.len()).next_power_of_two().max(2);
        let mut table = Table {
            slots: vec![empty; places].into_boxed_slice(),
            shift: 32 - places.ilog2(),
            empty,
        };
        for value in sorted {
            let place = table.place_of(value);
            if let Some(slot) = table.slots.get_mut(place) {
                *slot = value;
            }
        }
        table
    }

    #[inline]
    fn contains(&self, value: u32) -> bool {
        self.find(value).is_some()
    }

    /// The place of a value that it has, below [`Table::places`].
    #[inline]
    pub(super) fn find(&self, value: u32) -> Option<usize> {
        let mut place = self.hash(value);
        loop {
            match *self.slots.get(place)? {
                slot if slot == self.empty => return None,
                slot if slot == value => return Some(place),
                _ => place = (place + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn hash(&self, value: u32) -> usize {
        (value.wrapping_mul(0x9e37_79b1) >> self.shift) as usize
    }

    /// Where a value is, or would be.
    fn place_of(&self, value: u32) -> usize {
        let mut place = self.hash(value);
        while let Some(&slot) = self.slots.get(place) {
            if slot == value || slot == self.empty {
                return place;
            }
            place = (place + 1) % self.slots.len();
        }
        place
    }
}

/// Replaces the heads of chains; the rest stays where it is.
pub(super) fn gather(steps: &mut [Step]) -> Vec<List> {
    let mut lists = Vec::new();
    let mut is_inside = vec![false; steps.len()];
    for at in 0..steps.len() {
        if is_inside[at] {
            continue;
        }
        let found = match steps[at].operation {
            Operation::IfEqual => equal(steps, at, &mut is_inside),
            Operation::LoadWord => networks(steps, at, &mut is_inside),
            _ => None,
        };
        let Some((values, when_true, when_false)) = found else {
            continue;
        };
        let step = &mut steps[at];
        step.operation = match step.operation {
            Operation::LoadWord => Operation::WordIfIn,
            _ => Operation::IfIn,
        };
        step.value = lists.len() as u32;
        (step.when_true, step.when_false) = (when_true as u32, when_false as u32);
        lists.push(List::new(&values));
    }
    lists
}

/// Masks and values of a chain, where it goes when one of them is equal, and where when none is.
type Chain = (Vec<(u32, u32)>, usize, usize);

/// A chain of comparisons of the accumulator.
fn equal(steps: &[Step], first: usize, is_inside: &mut [bool]) -> Option<Chain> {
    let target = behind_jumps(steps, steps[first].when_true);
    let mut values = Vec::new();
    let mut places = Vec::new();
    let mut at = first;
    loop {
        let step = steps.get(at)?;
        if step.operation != Operation::IfEqual || behind_jumps(steps, step.when_true) != target {
            break;
        }
        values.push((u32::MAX, step.k));
        places.push(at);
        at = behind_jumps(steps, step.when_false);
    }
    long_enough(values, &places, is_inside).map(|values| (values, target, at))
}

/// A chain of loads of the same word, each with a mask and a comparison, that decides about the packet.
fn networks(steps: &[Step], first: usize, is_inside: &mut [bool]) -> Option<Chain> {
    let triple = |at: usize| {
        let [load, mask, compare] = steps.get(at..at + 3)? else {
            return None;
        };
        let operations = (load.operation, mask.operation, compare.operation);
        let wanted = (Operation::LoadWord, Operation::And, Operation::IfEqual);
        (operations == wanted).then_some((load.k, mask.k, compare))
    };
    let (offset, _, compare) = triple(first)?;
    let target = behind_jumps(steps, compare.when_true);
    // Nobody looks at the accumulator there.
    if steps.get(target)?.operation != Operation::ReturnConstant {
        return None;
    }
    let mut values = Vec::new();
    let mut places = Vec::new();
    let mut at = first;
    while let Some((other, mask, compare)) = triple(at) {
        if other != offset || behind_jumps(steps, compare.when_true) != target {
            break;
        }
        values.push((mask, compare.k));
        places.push(at);
        at = behind_jumps(steps, compare.when_false);
    }
    long_enough(values, &places, is_inside).map(|values| (values, target, at))
}

fn long_enough(
    values: Vec<(u32, u32)>,
    places: &[usize],
    is_inside: &mut [bool],
) -> Option<Vec<(u32, u32)>> {
    if values.len() < LEAST {
        return None;
    }
    for &place in places {
        is_inside[place] = true;
    }
    Some(values)
}

/// Where a jump to `at` comes to.
fn behind_jumps(steps: &[Step], at: u32) -> usize {
    let mut at = at as usize;
    // Forwards only, so that it ends.
    while let Some(step) = steps
        .get(at)
        .filter(|step| step.operation == Operation::Jump)
    {
        at = step.when_true as usize;
    }
    at
}

#[cfg(test)]
mod tests {
    use flowgauge_sys::libpcap::{self, Instruction};
    use proptest::prelude::*;

    use super::*;
    use crate::filter::program::Program;
    use crate::filter::view::Plain;

    #[test]
    fn tables_hold_what_was_put_into_them() {
        for values in [
            vec![7],
            vec![0, 1, 2, u32::MAX],
            (0..5000)
                .map(|number: u32| number.wrapping_mul(77_777_777))
                .collect(),
            (0..5000).map(|number| number << 20).collect(),
        ] {
            let table = Table::new(&values);
            assert!(values.iter().all(|&value| table.contains(value)));
            let probes = (0..20_000u32).map(|number| number.wrapping_mul(12_345_677));
            for probe in probes.chain([0, 1, 2, 3, u32::MAX]) {
                assert_eq!(table.contains(probe), values.contains(&probe), "{probe}");
            }
        }
    }

    #[test]
    fn long_chains_become_lists_and_short_ones_do_not() {
        for (terms, lists) in [(LEAST - 1, 0), (LEAST, 4), (100, 4)] {
            let terms: Vec<String> = (0..terms)
                .map(|n| format!("host 10.0.{}.{}", n / 200, n % 200))
                .collect();
            let program = libpcap::compile(&terms.join(" or "), 1, 96, None).unwrap();
            let program = Program::load(&program).unwrap();
            // Source and destination of IPv4, and of ARP.
            assert_eq!(program.lists().len(), lists, "{}", terms.len());
        }
        let terms: Vec<String> = (0..30)
            .map(|n| format!("src net 10.{n}.0.0/{}", 16 + n % 3))
            .collect();
        let program = libpcap::compile(&terms.join(" or "), 1, 96, None).unwrap();
        let lists = Program::load(&program).unwrap();
        assert_eq!(lists.lists().len(), 2);
        assert_eq!(lists.lists()[0].tables.len(), 3);
    }

    #[derive(Clone, Debug)]
    enum Part {
        Load(u32),
        /// Value, whether the other target comes by a jump.
        Compare(u32, bool),
        Network(u32, u32, u32),
        /// To so many instructions further on when equal.
        Elsewhere(u32, u8),
    }

    fn any_program() -> impl Strategy<Value = Vec<Instruction>> {
        let part = prop_oneof![
            1 => (0..3u32).prop_map(|word| Part::Load(4 * word)),
            30 => (0..30u32, any::<bool>()).prop_map(|(value, jumps)| Part::Compare(value, jumps)),
            12 => (0..2u32, 0..3u32, 0..30u32)
                .prop_map(|(word, bits, value)| Part::Network(4 * (word / 2), u32::MAX << bits, value)),
            1 => (0..30u32, 0..40u8).prop_map(|(value, far)| Part::Elsewhere(value, far)),
        ];
        (
            prop::collection::vec(part, 1..60),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(parts, loads, returns_a)| {
                let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
                let mut program = Vec::new();
                if loads {
                    program.push(op(0x20, 0, 0, 0));
                }
                let mut accepts = Vec::new();
                let mut elsewhere = Vec::new();
                for part in parts {
                    match part {
                        Part::Load(at) => program.push(op(0x20, 0, 0, at)),
                        Part::Compare(value, true) => {
                            program.push(op(0x15, 0, 1, value));
                            accepts.push(program.len());
                            program.push(op(0x05, 0, 0, 0));
                        }
                        Part::Compare(value, false) => {
                            accepts.push(program.len());
                            program.push(op(0x15, 0, 0, value));
                        }
                        Part::Network(at, mask, value) => {
                            program.extend([op(0x20, 0, 0, at), op(0x54, 0, 0, mask)]);
                            accepts.push(program.len());
                            program.push(op(0x15, 0, 0, value & mask));
                        }
                        Part::Elsewhere(value, far) => {
                            elsewhere.push((program.len(), far));
                            program.push(op(0x15, 0, 0, value));
                        }
                    }
                }
                let end = program.len();
                // What the accumulator is shows, too.
                program.push(op(0x16, 0, 0, 0));
                program.push(if returns_a {
                    op(0x16, 0, 0, 0)
                } else {
                    op(0x06, 0, 0, 77)
                });
                for at in accepts {
                    let far = end + 1 - at - 1;
                    match program[at].code {
                        0x05 => program[at].k = far as u32,
                        _ => program[at].jt = far as u8,
                    }
                }
                for (at, far) in elsewhere {
                    program[at].jt = far.min((end - at - 1) as u8);
                }
                program
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn chains_decide_as_in_libpcap(
            program in any_program(),
            packets in prop::collection::vec((prop::collection::vec(0..40u32, 0..4), 0..4usize), 1..12),
        ) {
            let loaded = Program::load(&program).unwrap();
            for (words, cut) in packets {
                let mut packet: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
                packet.truncate(packet.len().saturating_sub(cut));
                let expected = flowgauge_sys::testing::offline_filter(&program, &packet, 60);
                prop_assert!(expected.is_some());
                prop_assert_eq!(Some(loaded.run(&Plain(&packet), 60)), expected);
            }
        }
    }
}
