//! What is wanted of flows, as the kernel or the network card is told.
//!
//! Every reason to want less of a flow (a cutoff, a stream that was discarded, a filter, a protocol that has shown all
//! there is to see) becomes a [`Want`](crate::Want) of its engine. What all engines want of a flow is its [`Verdict`]:
//! a backend may then keep packets away before they are copied. Those with SYN, FIN or RST always pass (section 5.5
//! of the Scap paper). What it kept away comes back as [`Withheld`] and is counted with the flow, so that flow records
//! and accounts are what they would be without it; retransmissions, disorder and the history of what was kept away
//! are not known.

use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_flow::{FlowId, Turn, Withheld};
use flowgauge_wire::{FlowKey, FoldedState, Nanos};

use crate::engine::Watermarks;

/// How much of a direction's packets is wanted, those with SYN, FIN or RST apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Packets {
    /// They need not come.
    None,
    /// Those that are the next of their connection need not come: with its sender's next sequence number, an acknowledgement of what the
    /// other side has sent, and a window. Of the others the headers are wanted, and of all from such a one on (of either direction) until it
    /// has been processed. This is where it was when the packets came that have been.
    OutOfTurn(Turn),
    /// Their payload may be cut off: their acknowledgements are wanted.
    Headers,
    /// All of them.
    All,
    /// All of them, while those of the other direction that are in turn need not come. This is where this one was.
    Followed(Turn),
}

/// What of a direction is put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sequence {
    /// Nothing.
    Off,
    /// How many bytes were captured and are missing is wanted. (It takes whole packets: what was cut off is missing.)
    Lengths,
    /// Bytes.
    Bytes,
}

/// What is wanted of one direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of its packets.
    pub packets: Packets,
    /// Of its stream.
    pub sequence: Sequence,
    /// Of its bytes those from this position of the stream on, gaps counted.
    pub from: u64,
    /// How much it is wanted under [overload](Overload).
    pub standing: Standing,
}

/// What of a stream is lost first under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// Its priority.
    pub priority: u8,
    /// Not all of its bytes before the overload cutoff have been delivered.
    pub is_beginning: bool,
}

impl Standing {
    /// Of a stream of which nothing was said: it loses nothing.
    pub const OTHERS: Standing = Standing {
        priority: u8::MAX,
        is_beginning: true,
    };
}

impl Wanted {
    /// Everything.
    pub const ALL: Wanted = Wanted {
        packets: Packets::All,
        sequence: Sequence::Bytes,
        from: 0,
        standing: Standing::OTHERS,
    };

    /// No stream.
    pub const HEADERS: Wanted = Wanted {
        packets: Packets::Headers,
        sequence: Sequence::Off,
        from: u64::MAX,
        standing: Standing::OTHERS,
    };

    /// No stream, and no packets.
    pub const NOTHING: Wanted = Wanted {
        packets: Packets::None,
        ..Wanted::HEADERS
    };

    /// What one of the two wants.
    #[must_use]
    pub fn or(self, other: Wanted) -> Wanted {
        Wanted {
            packets: self.packets.max(other.packets),
            sequence: self.sequence.max(other.sequence),
            from: self.from.min(other.from),
            standing: self.standing.max(other.standing),
        }
    }
}

/// Overload: data are lost by priority, before they are copied, as what they are captured into is filled, and memory. Of a flow of
/// which nothing was said they come.
#[derive(Debug)]
pub struct Overload<'a> {
    /// From which pressure on who loses what.
    pub watermarks: &'a Watermarks,
    /// Bytes of memory in use.
    pub used: u64,
}

/// Whose packets were lost to overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loser {
    /// Five-tuple; [`FlowKey::context`] is 0.
    pub key: FlowKey,
    /// The VLAN they were in ([`Decoded::vlan_number`](flowgauge_wire::Decoded::vlan_number)).
    pub vlan: u32,
}

/// What was lost to overload, by direction: of whom, as far as that is known.
pub type Lost = (Option<Loser>, [Withheld; 2]);

/// What a backend shall do with a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Something else is wanted of it than of others: what, by [`Direction`](flowgauge_wire::Direction).
    Less([Wanted; 2]),
    /// As much of it is wanted as of others, again.
    Resume,
    /// The flow has ended: whatever was kept for it can go.
    Forget,
}

/// Where packets of a direction are its flow's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// In any VLAN, and in none.
    Any,
    /// In that of this [number](flowgauge_wire::Decoded::vlan_number), or without a tag (0). Others may be of another flow.
    Only(u32),
}

impl Vlan {
    /// Where both say, if there is such a place.
    fn and(self, other: Vlan) -> Option<Vlan> {
        match (self, other) {
            (Vlan::Any, vlan) | (vlan, Vlan::Any) => Some(vlan),
            (one, other) => (one == other).then_some(one),
        }
    }
}

/// The flow a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadFlow {
    /// Five-tuple. ([`FlowKey::context`] tells flows of the same apart; backends go by VLANs.)
    pub key: FlowKey,
    /// By direction.
    pub vlans: [Vlan; 2],
    /// No other flow's; counters come back with it.
    pub uid: u64,
}

impl OffloadFlow {
    /// Whether VLANs do not count in a direction.
    pub fn is_of_any_vlan(&self) -> bool {
        self.vlans.contains(&Vlan::Any)
    }
}

/// A backend.
pub trait Offload: Send {
    /// Takes a verdict. It is a hint: engines cope with packets that come all the same. It says nothing of a further
    /// connection of the same ports: what was said ends with the next SYN.
    fn verdict(&mut self, flow: &OffloadFlow, verdict: Verdict);

    /// This is wanted of both directions of flows of which nothing else was said. At first it is everything.
    fn others(&mut self, wanted: Wanted);

    /// Gives what was kept away since the last call, by direction. Asked before every batch; nothing is new where that is of packets which
    /// were all captured before the last call. What is told of a flow
    /// after its [`Verdict::Forget`] only counts in the totals.
    fn poll(&mut self, give: &mut dyn FnMut(&OffloadFlow, [Withheld; 2]));

    /// How overload stands; `None`: it does not take data away. Packets without payload, and those with SYN, FIN or RST, always come.
    fn overload(&mut self, _overload: Option<&Overload<'_>>) {}

    /// What was lost to overload until the last [`poll`](Offload::poll), and was not told yet.
    fn lost(&mut self) -> Vec<Lost> {
        Vec::new()
    }
}

/// The verdicts of all engines that take the same packets. Who takes packets beside them holds an [`Interest`] and wants
/// everything.
#[derive(Clone)]
pub struct Verdicts(Arc<Mutex<Union>>);

impl Verdicts {
    /// They go to this backend.
    pub fn new(backend: impl Offload + 'static) -> Verdicts {
        Verdicts(Arc::new(Mutex::new(Union {
            backend: Box::new(backend),
            interests: Vec::new(),
            others: Wanted::ALL,
            flows: HashMap::default(),
            uids: 0,
        })))
    }

    /// One more, which wants all of every flow until it says otherwise.
    pub fn interest(&self) -> Interest {
        let mut union = lock(&self.0);
        let interests = &mut union.interests;
        let free = interests.iter().position(Option::is_none);
        let number = free.unwrap_or(interests.len());
        interests.resize_with(interests.len().max(number + 1), || None);
        interests[number] = Some((Wanted::ALL, Told::default()));
        union.tell_all();
        // Who has priorities is not alone with it any more.
        union.backend.overload(None);
        Interest {
            number,
            union: Arc::clone(&self.0),
            flows: HashMap::default(),
            standings: HashMap::default(),
            others: Wanted::ALL,
        }
    }
}

impl fmt::Debug for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verdicts")
    }
}

/// What one engine wants. While it wants all of a flow, nobody else's want matters; dropped, it wants nothing.
pub struct Interest {
    number: usize,
    union: Arc<Mutex<Union>>,
    /// Flows of which it has not always wanted all.
    flows: HashMap<FlowKey, FlowId, FoldedState>,
    /// By direction, where they are not those of others.
    standings: HashMap<FlowKey, [Standing; 2], FoldedState>,
    others: Wanted,
}

impl Interest {
    /// How much a direction of a flow is wanted under overload. Returns whether that is new.
    pub(crate) fn classify(&mut self, key: FlowKey, direction: usize, standing: Standing) -> bool {
        let standings = self.standings.entry(key).or_insert([Standing::OTHERS; 2]);
        let is_new = core::mem::replace(&mut standings[direction], standing) != standing;
        if *standings == [Standing::OTHERS; 2] {
            self.standings.remove(&key);
        }
        is_new
    }

    /// The same of both directions, as it was said.
    pub(crate) fn standings(&self, key: &FlowKey) -> [Standing; 2] {
        let known = self.standings.get(key).copied();
        known.unwrap_or([Standing::OTHERS; 2])
    }

    /// How overload stands for it. Where others want packets, too, none are lost to that.
    pub(crate) fn overload(&self, overload: Option<&Overload<'_>>) {
        let mut union = lock(&self.union);
        let is_alone = union.interests.iter().flatten().count() == 1;
        union.backend.overload(overload.filter(|_| is_alone));
    }

    /// It wants this of flows of which it said nothing else.
    pub(crate) fn want_of_others(&mut self, wanted: Wanted) {
        if core::mem::replace(&mut self.others, wanted) != wanted {
            let mut union = lock(&self.union);
            if let Some((others, _)) = &mut union.interests[self.number] {
                *others = wanted;
            }
            union.tell_all();
        }
    }

    /// It wants this of a flow, which began at this time, from now on, whose packets are in these VLANs.
    pub(crate) fn want(&mut self, key: FlowKey, flow: FlowId, start: Nanos, want: FlowWant) {
        if self.flows.contains_key(&key) || want.wanted != [Wanted::ALL; 2] {
            self.flows.insert(key, flow);
            lock(&self.union).want(self.number, key, Some((start, want)));
        }
    }

    /// Whether that is not what it wants of others.
    pub(crate) fn is_special(&self, wanted: [Wanted; 2]) -> bool {
        wanted != [self.others; 2]
    }

    /// The flow with this key of which it has not always wanted all.
    pub(crate) fn flow(&self, key: &FlowKey) -> Option<FlowId> {
        self.flows.get(key).copied()
    }

    /// A flow has ended.
    pub(crate) fn forget(&mut self, key: FlowKey, flow: FlowId) {
        if self.flows.get(&key) == Some(&flow) {
            self.flows.remove(&key);
            self.standings.remove(&key);
            lock(&self.union).want(self.number, key, None);
        }
    }

    /// What was kept away since it was asked last, of which of its flows, if that lives, and what was lost.
    pub(crate) fn withheld(&mut self) -> (Vec<Kept>, Vec<Lost>) {
        let told = lock(&self.union).withheld(self.number);
        let kept = told.kept.into_iter();
        let found = kept.map(|(key, counts)| (self.flows.get(&key).copied(), counts));
        (found.collect(), told.lost)
    }
}

/// It goes on beside the first.
impl Clone for Interest {
    fn clone(&self) -> Interest {
        let mut copy = Verdicts(Arc::clone(&self.union)).interest();
        copy.want_of_others(self.others);
        copy.flows.clone_from(&self.flows);
        copy.standings.clone_from(&self.standings);
        let mut union = lock(&self.union);
        for key in self.flows.keys() {
            let said = |entry: &Entry| Some((entry.start, entry.of(self.number)?));
            let wanted = union.flows.get(key).and_then(said);
            union.want(copy.number, *key, wanted);
        }
        drop(union);
        copy
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut union = lock(&self.union);
        union.interests[self.number] = None;
        union.backend.overload(None);
        for key in self.flows.keys() {
            union.want(self.number, *key, None);
        }
        union.tell_all();
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interest({})", self.number)
    }
}

/// What was kept away of a flow, if that lives.
pub(crate) type Kept = (Option<FlowId>, [Withheld; 2]);

/// What was kept away of flows, and what was lost.
#[derive(Default)]
struct Told {
    kept: Vec<(FlowKey, [Withheld; 2])>,
    lost: Vec<Lost>,
}

struct Union {
    backend: Box<dyn Offload>,
    /// By number, what each wants of flows of which it said nothing, and what it was not told yet; `None`: the number is
    /// free.
    interests: Vec<Option<(Wanted, Told)>>,
    /// What the backend knows of other flows.
    others: Wanted,
    /// Flows of which somebody said what is wanted.
    flows: HashMap<FlowKey, Entry, FoldedState>,
    uids: u64,
}

struct Entry {
    uid: u64,
    /// When the flow began. Another connection of the same ports is another flow, of which nobody has said anything.
    start: Nanos,
    /// By interest, of those that said it.
    wants: Vec<(usize, FlowWant)>,
    /// What the backend knows, if it knows of it.
    told: Option<FlowWant>,
}

/// What is wanted of a flow whose packets are in these VLANs, by direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowWant {
    pub(crate) wanted: [Wanted; 2],
    pub(crate) vlans: [Vlan; 2],
}

impl FlowWant {
    /// This of a flow of any VLAN.
    fn of_any(wanted: [Wanted; 2]) -> FlowWant {
        FlowWant {
            wanted,
            vlans: [Vlan::Any; 2],
        }
    }

    /// What one of the two wants. Who says that they are other flows wants all of both.
    fn or(self, other: FlowWant) -> FlowWant {
        let mut wanted = [0, 1].map(|at| self.wanted[at].or(other.wanted[at]));
        if let [one, Packets::Followed(_)] | [Packets::Followed(_), one] =
            wanted.map(|wanted| wanted.packets)
            && !matches!(one, Packets::OutOfTurn(_))
        {
            for wanted in &mut wanted {
                wanted.packets = wanted.packets.min(Packets::All);
            }
        }
        match [0, 1].map(|at| self.vlans[at].and(other.vlans[at])) {
            [Some(low), Some(high)] => FlowWant {
                wanted,
                vlans: [low, high],
            },
            _ => FlowWant::of_any([Wanted::ALL; 2]),
        }
    }
}

impl Entry {
    fn of(&self, number: usize) -> Option<FlowWant> {
        let found = self.wants.iter().find(|(of, _)| *of == number);
        found.map(|(_, want)| *want)
    }
}

impl Union {
    /// An interest wants this of a flow; `None`: the flow has ended for it, or it is gone.
    fn want(&mut self, number: usize, key: FlowKey, want: Option<(Nanos, FlowWant)>) {
        let start = want.map_or(Nanos(0), |(start, _)| start);
        let uids = &mut self.uids;
        let mut new = || {
            *uids += 1;
            Entry {
                uid: *uids,
                start,
                wants: Vec::new(),
                told: None,
            }
        };
        let entry = self.flows.entry(key).or_insert_with(&mut new);
        if entry.start < start {
            let ended = core::mem::replace(entry, new());
            if let Some(told) = ended.told {
                let (vlans, uid) = (told.vlans, ended.uid);
                let flow = OffloadFlow { key, vlans, uid };
                self.backend.verdict(&flow, Verdict::Forget);
            }
        } else if want.is_some() && start < entry.start {
            // Of the connection before.
            return;
        }
        entry.wants.retain(|(of, _)| *of != number);
        entry.wants.extend(want.map(|(_, want)| (number, want)));
        self.tell(key);
    }

    /// Tells the backend of a flow, if something has changed.
    fn tell(&mut self, key: FlowKey) {
        let Some(entry) = self.flows.get_mut(&key) else {
            return;
        };
        let uid = entry.uid;
        let of = |vlans| OffloadFlow { key, vlans, uid };
        if entry.wants.is_empty() {
            if let Some(told) = entry.told {
                self.backend.verdict(&of(told.vlans), Verdict::Forget);
            }
            self.flows.remove(&key);
            return;
        }
        let numbered = self.interests.iter().enumerate();
        let each = numbered.filter_map(|(number, interest)| {
            let (others, _) = interest.as_ref()?;
            let of_others = || FlowWant::of_any([*others; 2]);
            Some(entry.of(number).unwrap_or_else(of_others))
        });
        let others = [self.others; 2];
        let all = each.reduce(FlowWant::or);
        let all = all.filter(|all| all.wanted != others);
        let all = all.unwrap_or(FlowWant::of_any(others));
        let is_new = match entry.told {
            Some(told) => all != told,
            None => all.wanted != others,
        };
        if is_new {
            entry.told = Some(all);
            let verdict = match all.wanted == others {
                true => Verdict::Resume,
                false => Verdict::Less(all.wanted),
            };
            self.backend.verdict(&of(all.vlans), verdict);
        }
    }

    /// Tells the backend what has changed because interests have.
    fn tell_all(&mut self) {
        let each = self.interests.iter().flatten().map(|(others, _)| *others);
        let others = each.reduce(Wanted::or).unwrap_or(Wanted::ALL);
        if core::mem::replace(&mut self.others, others) != others {
            self.backend.others(others);
        }
        let keys: Vec<FlowKey> = self.flows.keys().copied().collect();
        for key in keys {
            self.tell(key);
        }
    }

    fn withheld(&mut self, number: usize) -> Told {
        let (interests, flows) = (&mut self.interests, &self.flows);
        self.backend.poll(&mut |flow, counts| {
            let is_it = flows.get(&flow.key).is_some_and(|it| it.uid == flow.uid);
            // Of one that has ended nobody finds the flow.
            let key = if is_it { flow.key } else { FlowKey::default() };
            for (_, told) in interests.iter_mut().flatten() {
                told.kept.push((key, counts));
            }
        });
        for lost in self.backend.lost() {
            for (_, told) in self.interests.iter_mut().flatten() {
                told.lost.push(lost);
            }
        }
        let mine = self.interests.get_mut(number).and_then(Option::as_mut);
        mine.map(|(_, told)| core::mem::take(told))
            .unwrap_or_default()
    }
}

fn lock(union: &Mutex<Union>) -> MutexGuard<'_, Union> {
    union.lock().unwrap_or_else(PoisonError::into_inner)
}
