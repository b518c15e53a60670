//! The decisions of a program: tests of values, independent of the path to them.
//!
//! The packet value that a comparison tests can be determined without a packet, as jumps only go forwards. The program
//! becomes a graph of tests, each of one value, so that many programs can share values:
//!
//! ```text
//!  ldh  [12]                          half at 12 = 0x800?
//!  jeq  #0x800  jt 2  jf 9            |           `no: refused
//!  ldh  [20]                          half at 20 & 0x1fff = 0?
//!  jset #0x1fff jt 9  jf 4      ->    |           `no: refused
//!  ldxb 4*([14]&0xf)                  half at 4*([14]&0xf) + 14 = 80?
//!  ldh  [x + 14]                      |           `no: refused
//!  jeq  #80     jt 7  jf 9            accepted
//! ```
//!
//! A packet without a value (it was cut, or a divisor is zero) is refused where the program loads the value.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lists::List;
use super::program::{Operation, Step, arithmetic};
use super::view::View;

/// Values of more parts are not told: each is looked at for each packet.
const MOST_PARTS: usize = 64;

/// A number that a program finds in a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Value {
    Constant(u32),
    /// The packet's length on the wire.
    Length,
    /// Of an IPv4 header.
    HeaderLength(u32),
    /// A word, half or byte, by the operation that loads it, at a base and an offset.
    Load(Operation, Arc<Value>, u32),
    Arithmetic(Operation, Arc<Value>, Arc<Value>),
    /// 1 if it is in the list.
    In(Arc<List>, Arc<Value>),
}

impl Value {
    /// That of a packet, if it has it.
    pub(super) fn of<V: View>(&self, packet: &V, wire_len: u32) -> Option<u32> {
        Some(match self {
            Value::Constant(value) => *value,
            Value::Length => wire_len,
            Value::HeaderLength(at) => header_length(packet, *at)?,
            Value::Load(size, base, at) => {
                let base = base.of(packet, wire_len)?;
                load(packet, *size, base, *at)?
            }
            Value::Arithmetic(operation, a, b) => {
                arithmetic(*operation, a.of(packet, wire_len)?, b.of(packet, wire_len)?)?
            }
            Value::In(list, word) => u32::from(list.contains(word.of(packet, wire_len)?)),
        })
    }

    fn inner(&self) -> impl Iterator<Item = &Arc<Value>> {
        let (one, other) = match self {
            Value::Constant(_) | Value::Length | Value::HeaderLength(_) => (None, None),
            Value::Load(_, base, _) => (Some(base), None),
            Value::Arithmetic(_, a, b) => (Some(a), Some(b)),
            Value::In(_, word) => (Some(word), None),
        };
        one.into_iter().chain(other)
    }

    fn parts(&self) -> usize {
        1 + self.inner().map(|inner| inner.parts()).sum::<usize>()
    }

    /// Whether a packet that has it has the other one, too.
    fn has(&self, other: &Value) -> bool {
        self == other || self.inner().any(|inner| inner.has(other))
    }
}

/// The length that an IPv4 header at this offset tells.
#[inline(always)]
pub(super) fn header_length<V: View>(packet: &V, at: u32) -> Option<u32> {
    Some((packet.byte(at as usize)? & 15) << 2)
}

/// What a load of this size finds.
#[inline(always)]
pub(super) fn load<V: View>(packet: &V, size: Operation, base: u32, at: u32) -> Option<u32> {
    let at = base as usize + at as usize;
    match size {
        Operation::LoadWord => packet.word(at),
        Operation::LoadHalf => packet.half(at),
        _ => packet.byte(at),
    }
}

/// When a test is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Equal(u32),
    AtLeast(u32),
    /// Never; a packet without the value is refused, and nothing else is asked.
    There,
}

/// A test, and where to go on from it: to another one, behind it, or to one of two ends.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) value: Arc<Value>,
    pub(super) is: Is,
    pub(super) when_true: u32,
    pub(super) when_false: u32,
}

/// A program's tests.
#[derive(Clone, Debug)]
pub(super) struct Decisions {
    pub(super) tests: Vec<Test>,
    /// Where it begins: at the first of them, if it does not end at once.
    pub(super) start: u32,
}

impl Decisions {
    /// Those of decoded instructions; `None` where jumps go backwards, metadata of the kernel is asked
    /// for, or it would be too much.
    pub(super) fn of(steps: &[Step], lists: &[Arc<List>]) -> Option<Decisions> {
        let mut search = Search {
            steps,
            lists,
            zero: Arc::new(Value::Constant(0)),
            live: live(steps)?,
            waiting: BTreeMap::new(),
            labels: vec![Label::Accepted, Label::Refused],
            tests: Vec::new(),
        };
        let start = search.way_to(0, &Registers::default())?;
        while let Some((at, states)) = search.waiting.pop_first() {
            for (registers, label) in states {
                search.go_on(at, registers, label)?;
            }
        }
        Some(search.finish(start))
    }

    /// The end of packets that are accepted.
    pub(super) fn accepted(&self) -> u32 {
        self.tests.len() as u32
    }
}

/// Scratch memory, A and X; `None` is 0, or what nobody looks at any more.
type Registers = [Option<Arc<Value>>; 18];
const A: usize = 16;
const X: usize = 17;

/// Where a way leads to: its place in [`Search::labels`].
type Way = usize;
const ACCEPTED: Way = 0;
const REFUSED: Way = 1;

#[derive(Clone, Copy)]
enum Label {
    Accepted,
    Refused,
    Test(u32),
}

/// Goes through a program with values for numbers.
struct Search<'a> {
    steps: &'a [Step],
    lists: &'a [Arc<List>],
    zero: Arc<Value>,
    /// Of each step, the registers that it or a later one looks at, by bit.
    live: Vec<u32>,
    /// Steps to go on from, with what is in the registers.
    waiting: BTreeMap<usize, Vec<(Registers, Way)>>,
    labels: Vec<Label>,
    tests: Vec<(Arc<Value>, Is, Way, Way)>,
}

impl Search<'_> {
    /// The way to a step with these registers.
    fn way_to(&mut self, mut at: usize, registers: &Registers) -> Option<Way> {
        let mut step = self.steps.get(at)?;
        while step.operation == Operation::Jump {
            at = step.when_true as usize;
            step = self.steps.get(at)?;
        }
        if step.operation == Operation::ReturnConstant {
            return Some(if step.k == 0 { REFUSED } else { ACCEPTED });
        }
        let mut registers = registers.clone();
        for (number, register) in registers.iter_mut().enumerate() {
            if self.live.get(at)? & 1 << number == 0 {
                *register = None;
            }
        }
        let states = self.waiting.entry(at).or_default();
        let known = states.iter().find(|(other, _)| *other == registers);
        if let Some(&(_, way)) = known {
            return Some(way);
        }
        let way = self.labels.len();
        states.push((registers, way));
        self.labels.push(Label::Refused);
        Some(way)
    }

    fn value_in(&self, registers: &Registers, number: usize) -> Arc<Value> {
        Arc::clone(registers[number].as_ref().unwrap_or(&self.zero))
    }

    /// Adds a test at the end of a way.
    fn test(&mut self, way: Way, value: Arc<Value>, is: Is, ways: (Way, Way)) -> Option<()> {
        self.labels[way] = Label::Test(self.tests.len() as u32);
        self.tests.push((value, is, ways.0, ways.1));
        // As many as there are steps, but where several ways lead to one with different registers.
        (self.tests.len() <= 16 + 4 * self.steps.len()).then_some(())
    }

    /// Adds tests whether values are there, for those of which a test of `value` does not show it. Returns the way on.
    fn check(
        &mut self,
        mut way: Way,
        loaded: Vec<Arc<Value>>,
        value: Option<&Value>,
    ) -> Option<Way> {
        for one in loaded {
            if !value.is_some_and(|value| value.has(&one)) {
                let next = self.labels.len();
                self.labels.push(Label::Refused);
                self.test(way, one, Is::There, (REFUSED, next))?;
                way = next;
            }
        }
        Some(way)
    }

    /// Goes from a step to the next comparison, or the end, which is where `way` leads.
    fn go_on(&mut self, mut at: usize, mut registers: Registers, way: Way) -> Option<()> {
        let mut loaded = Vec::new();
        loop {
            let step = self.steps.get(at)?;
            at += 1;
            if step.operation == Operation::ReturnConstant && step.k == 0 {
                self.labels[way] = Label::Refused;
                return Some(());
            }
            if step.operation == Operation::ReturnConstant {
                let end = self.check(way, loaded, None)?;
                self.labels[end] = Label::Accepted;
                return Some(());
            }
            if step.operation == Operation::Jump {
                at = step.when_true as usize;
                continue;
            }
            let Some((value, is, is_swapped)) = self.comparison(step, &mut registers)? else {
                self.work(step, &mut registers, &mut loaded)?;
                continue;
            };
            let (mut when_true, mut when_false) = (step.when_true, step.when_false);
            if is_swapped {
                core::mem::swap(&mut when_true, &mut when_false);
            }
            if let (Value::Constant(constant), Is::Equal(k)) = (&*value, is)
                && step.operation != Operation::ReturnA
            {
                at = if *constant == k {
                    when_true
                } else {
                    when_false
                } as usize;
                continue;
            }
            let way = self.check(way, loaded, Some(&value))?;
            let ways = match step.operation {
                Operation::ReturnA => (REFUSED, ACCEPTED),
                _ => (
                    self.way_to(when_true as usize, &registers)?,
                    self.way_to(when_false as usize, &registers)?,
                ),
            };
            return self.test(way, value, is, ways);
        }
    }

    /// What a step that jumps or returns by a comparison compares, and whether its jumps are swapped.
    fn comparison(
        &self,
        step: &Step,
        registers: &mut Registers,
    ) -> Option<Option<(Arc<Value>, Is, bool)>> {
        let a = self.value_in(registers, A);
        let list = || self.lists.get(step.value as usize);
        let both = |operation, one, other| made(Value::Arithmetic(operation, one, other));
        let x = self.value_in(registers, X);
        Some(Some(match (step.operation, step.by_x) {
            (Operation::IfEqual, false) => (a, Is::Equal(step.k), false),
            (Operation::IfEqual, true) => (both(Operation::Xor, a, x)?, Is::Equal(0), false),
            (Operation::IfGreater, false) => match step.k.checked_add(1) {
                Some(least) => (a, Is::AtLeast(least), false),
                None => (a, Is::There, false),
            },
            (Operation::IfGreater, true) => (both(Operation::IfGreater, a, x)?, Is::Equal(0), true),
            (Operation::IfGreaterOrEqual, false) => (a, Is::AtLeast(step.k), false),
            (Operation::IfGreaterOrEqual, true) => {
                (both(Operation::IfGreater, x, a)?, Is::Equal(0), false)
            }
            (Operation::IfAnyBit, by_x) => {
                let bits = if by_x {
                    x
                } else {
                    Arc::new(Value::Constant(step.k))
                };
                (both(Operation::And, a, bits)?, Is::Equal(0), true)
            }
            (Operation::IfIn, _) => (
                made(Value::In(Arc::clone(list()?), a))?,
                Is::Equal(1),
                false,
            ),
            (Operation::WordIfIn, _) => {
                let load = Value::Load(Operation::LoadWord, Arc::clone(&self.zero), step.k);
                let (word, list) = (Arc::new(load), list()?);
                let mask = Arc::new(Value::Constant(list.last_mask));
                registers[A] = Some(both(Operation::And, Arc::clone(&word), mask)?);
                (
                    made(Value::In(Arc::clone(list), word))?,
                    Is::Equal(1),
                    false,
                )
            }
            (Operation::ReturnA, _) => (a, Is::Equal(0), false),
            _ => return Some(None),
        }))
    }

    /// A step that changes registers.
    fn work(
        &self,
        step: &Step,
        registers: &mut Registers,
        loaded: &mut Vec<Arc<Value>>,
    ) -> Option<()> {
        let (k, cell) = (step.k, step.k as usize);
        let (a, x) = (self.value_in(registers, A), self.value_in(registers, X));
        let operation = step.operation;
        let zero = || Arc::clone(&self.zero);
        let (to, value) = match operation {
            Operation::LoadWord | Operation::LoadHalf | Operation::LoadByte => {
                (A, Arc::new(Value::Load(operation, zero(), k)))
            }
            Operation::LoadWordAtX => (A, made(Value::Load(Operation::LoadWord, x, k))?),
            Operation::LoadHalfAtX => (A, made(Value::Load(Operation::LoadHalf, x, k))?),
            Operation::LoadByteAtX => (A, made(Value::Load(Operation::LoadByte, x, k))?),
            Operation::LoadLength => (A, Arc::new(Value::Length)),
            Operation::LoadConstant => (A, Arc::new(Value::Constant(k))),
            Operation::LoadCell => (A, self.value_in(registers, cell)),
            Operation::LoadXHeaderLength => (X, Arc::new(Value::HeaderLength(k))),
            Operation::LoadXLength => (X, Arc::new(Value::Length)),
            Operation::LoadXConstant => (X, Arc::new(Value::Constant(k))),
            Operation::LoadXCell => (X, self.value_in(registers, cell)),
            Operation::StoreA => (cell, a),
            Operation::StoreX => (cell, x),
            Operation::AToX => (X, a),
            Operation::XToA => (A, x),
            Operation::Negate => (A, made(Value::Arithmetic(Operation::Sub, zero(), a))?),
            _ if step.by_x => (A, made(Value::Arithmetic(operation, a, x))?),
            _ => {
                let constant = Arc::new(Value::Constant(k));
                (A, made(Value::Arithmetic(operation, a, constant))?)
            }
        };
        let may_fail = match &*value {
            Value::Load(..) | Value::HeaderLength(_) => true,
            Value::Arithmetic(operation, ..) => {
                matches!(operation, Operation::Div | Operation::Mod)
            }
            _ => false,
        };
        if may_fail {
            loaded.push(Arc::clone(&value));
        }
        registers[to] = Some(value);
        Some(())
    }

    fn finish(self, start: Way) -> Decisions {
        let ends = self.tests.len() as u32;
        let place = |way: Way| match self.labels[way] {
            Label::Accepted => ends,
            Label::Refused => ends + 1,
            Label::Test(place) => place,
        };
        let tests = self.tests.iter().map(|(value, is, yes, no)| Test {
            value: Arc::clone(value),
            is: *is,
            when_true: place(*yes),
            when_false: place(*no),
        });
        Decisions {
            tests: tests.collect(),
            start: place(start),
        }
    }
}

/// A value, if it has not too many parts.
fn made(value: Value) -> Option<Arc<Value>> {
    (value.parts() <= MOST_PARTS).then(|| Arc::new(value))
}

/// Of each step, the registers that it or one behind it looks at before they are changed, by bit; `None` if any step is not
/// one that can be told.
fn live(steps: &[Step]) -> Option<Vec<u32>> {
    const IN_A: u32 = 1 << A;
    const IN_X: u32 = 1 << X;
    let mut live = vec![0; steps.len()];
    for (at, step) in steps.iter().enumerate().rev() {
        let cell = 1u32.checked_shl(step.k).unwrap_or(0);
        let by_x = if step.by_x { IN_X } else { 0 };
        let behind = |at: u32| live.get(at as usize).copied();
        let branches = || Some(behind(step.when_true)? | behind(step.when_false)?);
        let next = || behind(at as u32 + 1);
        let (uses, changes, behind) = match step.operation {
            Operation::LoadWord
            | Operation::LoadHalf
            | Operation::LoadByte
            | Operation::LoadLength
            | Operation::LoadConstant => (0, IN_A, next()?),
            Operation::LoadWordAtX | Operation::LoadHalfAtX | Operation::LoadByteAtX => {
                (IN_X, IN_A, next()?)
            }
            Operation::LoadCell => (cell, IN_A, next()?),
            Operation::LoadXHeaderLength | Operation::LoadXLength | Operation::LoadXConstant => {
                (0, IN_X, next()?)
            }
            Operation::LoadXCell => (cell, IN_X, next()?),
            Operation::StoreA => (IN_A, cell, next()?),
            Operation::StoreX => (IN_X, cell, next()?),
            Operation::AToX => (IN_A, IN_X, next()?),
            Operation::XToA => (IN_X, IN_A, next()?),
            Operation::Add
            | Operation::Sub
            | Operation::Mul
            | Operation::Div
            | Operation::Mod
            | Operation::And
            | Operation::Or
            | Operation::Xor
            | Operation::ShiftLeft
            | Operation::ShiftRight
            | Operation::Negate => (IN_A | by_x, IN_A, next()?),
            Operation::Jump => (0, 0, behind(step.when_true)?),
            Operation::IfEqual
            | Operation::IfGreater
            | Operation::IfGreaterOrEqual
            | Operation::IfAnyBit
            | Operation::IfIn => (IN_A | by_x, 0, branches()?),
            Operation::WordIfIn => (0, IN_A, branches()?),
            Operation::ReturnConstant => (0, 0, 0),
            Operation::ReturnA => (IN_A, 0, 0),
            _ => return None,
        };
        live[at] = behind & !changes | uses;
    }
    Some(live)
}
