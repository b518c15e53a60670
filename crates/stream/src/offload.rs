//! Verdicts on flows, for the kernel or the network card.
//!
//! Any reason to want less of a flow (a cutoff, a discarded stream, a filter, a protocol that needs no further data)
//! becomes a [`Want`](crate::Want) of its engine. The union of all engines' wants of a flow is its [`Verdict`], which
//! lets a backend withhold packets before they are copied. Packets with SYN, FIN or RST always pass (section 5.5 of the
//! Scap paper). Withheld packets are reported as [`Withheld`] and counted with the flow, so that flow records and
//! counts are the same as without offload; retransmissions, reordering and history of withheld packets are unknown.

use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_flow::{FlowId, Turn, Withheld};
use flowgauge_wire::{FlowKey, FoldedState, Nanos};

use crate::engine::Watermarks;

/// Which packets of a direction are wanted, except for those with SYN, FIN or RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Packets {
    /// None of them.
    None,
    /// Headers of out-of-turn packets. A packet is in turn, and may be withheld, if it has its sender's next sequence
    /// number, a window, and an acknowledgement of data that the other side has sent. After one that is not, the
    /// headers of all packets of both directions are wanted until it has been processed. The turn is the direction's
    /// state after the packets processed so far.
    OutOfTurn(Turn),
    /// Their headers, for the acknowledgements; payload may be cut off.
    Headers,
    /// All of them.
    All,
    /// All of them, while in-turn packets of the other direction may be withheld. The turn is this direction's state.
    Followed(Turn),
}

/// What is reassembled of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sequence {
    /// Nothing.
    Off,
    /// The number of bytes captured and missing. (Requires whole packets: bytes cut off are missing.)
    Lengths,
    /// The bytes.
    Bytes,
}

/// What is wanted of one direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of its packets.
    pub packets: Packets,
    /// Of its stream.
    pub sequence: Sequence,
    /// Bytes from this position of the stream on, including gaps.
    pub from: u64,
    /// Its importance under [overload](Overload).
    pub standing: Standing,
}

/// The importance of a stream under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// Its priority.
    pub priority: u8,
    /// Whether some of its bytes before the overload cutoff have not been delivered yet.
    pub is_beginning: bool,
}

impl Standing {
    /// That of an unknown stream, which loses nothing.
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

    /// Headers, but no stream.
    pub const HEADERS: Wanted = Wanted {
        packets: Packets::Headers,
        sequence: Sequence::Off,
        from: u64::MAX,
        standing: Standing::OTHERS,
    };

    /// No stream and no packets.
    pub const NOTHING: Wanted = Wanted {
        packets: Packets::None,
        ..Wanted::HEADERS
    };

    /// The union of both.
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

/// Overload: data is dropped by priority before it is copied, as memory and capture buffers fill. Flows without a
/// verdict lose nothing.
#[derive(Debug)]
pub struct Overload<'a> {
    /// The pressures from which data of each priority is dropped.
    pub watermarks: &'a Watermarks,
    /// Bytes of memory in use.
    pub used: u64,
}

/// A flow that lost packets to overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loser {
    /// Five-tuple; [`FlowKey::context`] is 0.
    pub key: FlowKey,
    /// The VLAN of the packets ([`Decoded::vlan_number`](flowgauge_wire::Decoded::vlan_number)).
    pub vlan: u32,
}

/// Packets lost to overload, by direction, with their flow if known.
pub type Lost = (Option<Loser>, [Withheld; 2]);

/// How a backend should treat a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Something different is wanted than of other flows, by [`Direction`](flowgauge_wire::Direction).
    Less([Wanted; 2]),
    /// The same is wanted as of other flows again.
    Resume,
    /// The flow has ended; its state can be discarded.
    Forget,
}

/// VLANs in which packets of a direction belong to the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// Any VLAN, or none.
    Any,
    /// The VLAN with this [number](flowgauge_wire::Decoded::vlan_number), or without a tag (0). Packets in other VLANs
    /// may belong to another flow.
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

/// The flow of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadFlow {
    /// Five-tuple. ([`FlowKey::context`] distinguishes flows with the same five-tuple; backends use VLANs.)
    pub key: FlowKey,
    /// By direction.
    pub vlans: [Vlan; 2],
    /// A unique number, returned with its counters.
    pub uid: u64,
}

impl OffloadFlow {
    /// Whether VLANs are irrelevant in a direction.
    pub fn is_of_any_vlan(&self) -> bool {
        self.vlans.contains(&Vlan::Any)
    }
}

/// A backend.
pub trait Offload: Send {
    /// Applies a verdict. It is a hint: engines accept packets that pass nevertheless. It does not apply to a later
    /// connection of the same ports: it ends with the next SYN.
    fn verdict(&mut self, flow: &OffloadFlow, verdict: Verdict);

    /// Sets what is wanted of both directions of flows without a verdict; initially everything.
    fn others(&mut self, wanted: Wanted);

    /// Reports packets withheld since the last call, by direction. Called before every batch; there is nothing new
    /// before a batch whose packets were all captured before the last call. Reports for a flow after its
    /// [`Verdict::Forget`] only count in the totals.
    fn poll(&mut self, give: &mut dyn FnMut(&OffloadFlow, [Withheld; 2]));

    /// Sets the state of overload; `None`: data is not dropped. Packets without payload, and those with SYN, FIN or
    /// RST, always pass.
    fn overload(&mut self, _overload: Option<&Overload<'_>>) {}

    /// Packets lost to overload up to the last [`poll`](Offload::poll) that were not yet reported.
    fn lost(&mut self) -> Vec<Lost> {
        Vec::new()
    }
}

/// The verdicts of all engines that process the same packets. Other consumers of the packets hold an [`Interest`] and
/// want everything.
#[derive(Clone)]
pub struct Verdicts(Arc<Mutex<Union>>);

impl Verdicts {
    /// Sends verdicts to this backend.
    pub fn new(backend: impl Offload + 'static) -> Verdicts {
        Verdicts(Arc::new(Mutex::new(Union {
            backend: Box::new(backend),
            interests: Vec::new(),
            others: Wanted::ALL,
            flows: HashMap::default(),
            uids: 0,
        })))
    }

    /// Another interest, which wants all of every flow until changed.
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

/// The wants of one engine. While it wants all of a flow, the wants of others do not matter; when dropped, it wants
/// nothing.
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
