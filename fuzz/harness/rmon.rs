//! Any bytes from a master of AgentX, and a small tree for the subagent to show.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use flowgauge_rmon::agentx::{HEADER, Header, Identity, MAX_PAYLOAD, Message, Now, Session};
use flowgauge_rmon::{Missing, Notification, Oid, SetError, Ticks, Tree, Value};

/// Objects without meaning. INTEGERs can be set, to what is not negative; the value 13 passes the test, but
/// cannot be committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) roots: Vec<Oid>,
    pub(crate) objects: BTreeMap<Oid, Value>,
    pub(crate) zero: Ticks,
    pub(crate) told: Vec<Notification>,
    /// How often a set was tested, committed, undone.
    pub(crate) sets: [u64; 3],
    /// How often the next object was asked for.
    pub(crate) asked: u64,
    /// Whom a test waits for, twice.
    pub(crate) gate: Option<Arc<Barrier>>,
}

impl Shelf {
    /// `count` counters below `root`.1 and INTEGERs below `root`.2.
    pub(crate) fn new(root: &Oid, count: u32) -> Shelf {
        let counters = (0..count).map(|row| (root.child(&[1, row]), Value::Counter32(row)));
        let numbers = (0..count).map(|row| (root.child(&[2, row]), Value::Integer(1)));
        Shelf {
            roots: vec![root.clone()],
            objects: counters.chain(numbers).collect(),
            ..Shelf::default()
        }
    }
}

impl Tree for Shelf {
    /// What is to be there; once it is, what was.
    type Change = Vec<(Oid, Value)>;

    fn roots(&self) -> Vec<Oid> {
        self.roots.clone()
    }

    fn set_zero(&mut self, zero: Ticks) {
        self.zero = zero;
    }

    fn get(&mut self, name: &Oid) -> Result<Value, Missing> {
        self.objects.get(name).cloned().ok_or(Missing::Instance)
    }

    fn next(&mut self, start: &Oid, include: bool, end: Option<&Oid>) -> Option<(Oid, Value)> {
        self.asked += 1;
        let begin = if include {
            Bound::Included(start)
        } else {
            Bound::Excluded(start)
        };
        let (name, value) = self.objects.range((begin, Bound::Unbounded)).next()?;
        let inside = end.is_none_or(|end| name < end);
        inside.then(|| (name.clone(), value.clone()))
    }

    fn test(&mut self, set: &[(Oid, Value)]) -> Result<Self::Change, (usize, SetError)> {
        self.sets[0] += 1;
        if let Some(gate) = &self.gate {
            gate.wait();
            gate.wait();
        }
        for (place, (name, value)) in set.iter().enumerate() {
            let error = match (self.objects.get(name), value) {
                (None, _) => SetError::NoCreation,
                (Some(Value::Integer(_)), Value::Integer(0..)) => continue,
                (Some(Value::Integer(_)), Value::Integer(_)) => SetError::WrongValue,
                (Some(Value::Integer(_)), _) => SetError::WrongType,
                (Some(_), _) => SetError::NotWritable,
            };
            return Err((place, error));
        }
        Ok(set.to_vec())
    }

    fn commit(&mut self, change: &mut Self::Change) -> Result<(), usize> {
        self.sets[1] += 1;
        if let Some(place) = change
            .iter()
            .position(|(_, value)| *value == Value::Integer(13))
        {
            return Err(place);
        }
        self.swap(change);
        Ok(())
    }

    fn undo(&mut self, mut change: Self::Change) -> Result<(), usize> {
        self.sets[2] += 1;
        change.reverse();
        self.swap(&mut change);
        Ok(())
    }

    fn notifications(&mut self) -> Vec<Notification> {
        std::mem::take(&mut self.told)
    }
}

impl Shelf {
    fn swap(&mut self, change: &mut [(Oid, Value)]) {
        for (name, value) in change {
            if let Some(there) = self.objects.get_mut(name) {
                std::mem::swap(there, value);
            }
        }
    }
}

/// The first message in some octets, if they begin with a whole one.
pub(crate) fn first_message(octets: &[u8]) -> Option<(Message, usize)> {
    let header = Header::read(octets).ok()??;
    let end = HEADER + header.length;
    let message = header.contents(octets.get(HEADER..end)?).ok()?;
    Some((message, end))
}

/// Gives a subagent any bytes, in pieces, once its session is open; what it answers are messages. What can
/// be read is the same after it was written, in both orders of octets. Returns how many answers it gave.
pub(crate) fn fuzz_master(data: &[u8]) -> u64 {
    if let Some((message, _)) = first_message(data) {
        for network in [false, true] {
            let mut octets = Vec::new();
            message.write_ordered(network, &mut octets);
            assert_eq!(
                first_message(&octets),
                Some((message.clone(), octets.len()))
            );
        }
    }
    let root = Oid::new(&[1, 3, 6, 1, 2, 1, 16]);
    fuzz_tree(data, &mut Shelf::new(&root, 8))
}

/// The same with any tree.
pub(crate) fn fuzz_tree<T: Tree>(data: &[u8], tree: &mut T) -> u64 {
    let identity = Identity {
        description: "fuzzed".to_owned(),
        context: None,
        priority: 127,
    };
    let now = Now {
        ticks: 1 << 40,
        elapsed: Duration::ZERO,
    };
    let mut session = Session::new(identity, tree, now);
    for packet in 1..=1 + tree.roots().len() as u8 {
        let (flags, length) = (16, 8);
        let header = [
            1, 18, flags, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, packet, 0, 0, 0, length,
        ];
        let response = [&header[..], &[0; 8]].concat();
        session
            .receive(&response, tree, now)
            .expect("the session opens");
    }
    assert!(session.is_ready());
    session.output().clear();
    let mut answers = 0;
    let piece = data.first().map_or(1, |first| usize::from(*first) + 1);
    for octets in data.chunks(piece).chain([&[][..]; 4]) {
        let ended = session.receive(octets, tree, now).is_err();
        let mut output = &session.output()[..];
        assert!(
            output.len() < 4 * MAX_PAYLOAD,
            "{} octets wait",
            output.len()
        );
        while !output.is_empty() {
            let (_, length) = first_message(output).expect("answers can be read");
            output = &output[length..];
            answers += 1;
        }
        session.output().clear();
        if ended {
            break;
        }
    }
    answers
}
