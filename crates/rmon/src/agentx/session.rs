//! A session with a master, without I/O and clock (RFC 2741, 7).

use std::collections::VecDeque;
use std::time::Duration;

use super::codec::{HEADER, Header, MAX_PAYLOAD, Malformed};
use super::message::{Binding, Bound, Message, Pdu, Range, Region, Response, error};
use crate::{Notification, Oid, SetError, Ticks, Tree, Value};

/// A master that answers nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// A master that says nothing for so long is asked whether it is there.
const QUIET: Duration = Duration::from_secs(15);
/// Requests that wait for their response at most. Notifications beyond it are not sent.
const WAITING: usize = 64;
/// SNMP's genErr.
const GENERAL: u16 = SetError::General as u16;

/// Two clocks. That of the tables may be that of a file, which jumps.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Of the tables.
    pub ticks: Ticks,
    /// Of the connection: time that passed since any beginning.
    pub elapsed: Duration,
}

impl Now {
    /// What the tables' clock shows more than the connection's.
    fn lead(self) -> i64 {
        let elapsed = (self.elapsed.as_millis() / 10) as Ticks;
        self.ticks.wrapping_sub(elapsed).cast_signed()
    }
}

/// What the master is told about the subagent.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A line for people.
    pub description: String,
    /// The context of all objects; the default one without.
    pub context: Option<Vec<u8>>,
    /// Of several subagents with the same objects the one with the lowest number is asked (1 to 255).
    pub priority: u8,
}

/// Why a session is over.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The master's octets cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The master refused something without which there is no session.
    #[error("the master refused {what}: {} (error {number})", error::name(*number))]
    Refused {
        /// What was asked for.
        what: String,
        /// The error, as [`error`] names it.
        number: u16,
    },
    /// The master closed the session.
    #[error("the master closed the session (reason {0} of RFC 2741, 6.2.2)")]
    Closed(u8),
    /// The master does not answer.
    #[error("the master answers nothing for ten seconds")]
    Silent,
}

/// What the subagent asked for.
#[derive(Debug)]
enum Request {
    Open,
    Register(Oid),
    Ping,
    Notify,
}

/// A set between its test and its end.
struct Set<C> {
    transaction: u32,
    committed: bool,
    change: C,
}

/// A session of a subagent: octets of the master come in, octets for it come out.
///
/// At most one set is under way, as managers' sets reach a subagent one after the other. A test drops an
/// earlier set, whose commit then fails.
pub struct Session<T: Tree> {
    identity: Identity,
    roots: Vec<Oid>,
    input: Vec<u8>,
    output: Vec<u8>,
    behind: bool,
    session: u32,
    packet: u32,
    waiting: VecDeque<(u32, Request, Duration)>,
    registered: usize,
    heard: Duration,
    zero: Option<Ticks>,
    lead: i64,
    set: Option<Set<T::Change>>,
}

impl<T: Tree> Session<T> {
    /// A session that begins: the first octets to the master are there already.
    pub fn new(identity: Identity, tree: &T, now: Now) -> Self {
        let mut session = Self {
            roots: tree.roots(),
            input: Vec::new(),
            output: Vec::new(),
            behind: false,
            session: 0,
            packet: 0,
            waiting: VecDeque::new(),
            registered: 0,
            heard: now.elapsed,
            zero: None,
            lead: now.lead(),
            set: None,
            identity,
        };
        let description = session.identity.description.clone().into_bytes();
        // The master waits so many seconds for our answers.
        let open = Pdu::Open {
            timeout: 5,
            id: Oid::default(),
            description,
        };
        session.ask(Request::Open, open, now);
        session
    }

    /// Whether all is registered.
    pub fn is_ready(&self) -> bool {
        self.registered == self.roots.len()
    }

    /// Octets for the master; what was sent is to be removed.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Whether there are octets of the master that wait until [`Session::output`] was sent.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Takes octets of the master, in any pieces. Answers are not made while many wait to be sent:
    /// then [`Session::is_behind`], and this is to be called again, perhaps with nothing.
    ///
    /// # Errors
    ///
    /// When the session is over. The octets for the master are to be sent nevertheless.
    pub fn receive(&mut self, octets: &[u8], tree: &mut T, now: Now) -> Result<(), Ended> {
        self.follow(tree, now);
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(octets);
        let mut done = 0;
        self.behind = false;
        while let Some(header) = Header::read(&input[done..])? {
            let begin = done + HEADER;
            let Some(payload) = input.get(begin..begin + header.length) else {
                break;
            };
            if self.output.len() > MAX_PAYLOAD {
                self.behind = true;
                break;
            }
            done = begin + header.length;
            self.heard = now.elapsed;
            match header.contents(payload) {
                Ok(message) => self.take(message, tree, now)?,
                Err(malformed) if header.is_response() => return Err(malformed.into()),
                Err(_) => self.answer(
                    &header,
                    Response {
                        error: error::PARSE,
                        ..Response::default()
                    },
                ),
            }
        }
        input.drain(..done);
        self.input = input;
        Ok(())
    }

    /// Asks a master that was quiet whether it is there.
    ///
    /// # Errors
    ///
    /// If it left a request unanswered for too long.
    pub fn tick(&mut self, now: Now) -> Result<(), Ended> {
        match self.waiting.front() {
            Some((_, _, since)) if now.elapsed.saturating_sub(*since) > PATIENCE => {
                Err(Ended::Silent)
            }
            None if now.elapsed.saturating_sub(self.heard) > QUIET => {
                self.ask(Request::Ping, Pdu::Ping, now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends a notification to the managers that the master knows. Returns whether it could: all must be
    /// registered, and the master must have answered earlier ones.
    pub fn notify(&mut self, notification: &Notification, now: Now) -> bool {
        let can = self.is_ready() && self.waiting.len() < WAITING;
        if can {
            let kind = (SNMP_TRAP_OID.into(), Value::Oid(notification.kind.clone()));
            let all = std::iter::once(&kind).chain(&notification.objects);
            let bindings = all.map(|(name, value)| Binding {
                name: name.clone(),
                bound: Bound::Value(value.clone()),
            });
            self.ask(Request::Notify, Pdu::Notify(bindings.collect()), now);
        }
        can
    }

    /// Tells the master that the subagent ends.
    pub fn close(&mut self) {
        // Reason 5: shutdown.
        self.send(Pdu::Close { reason: 5 });
    }

    fn send(&mut self, pdu: Pdu) {
        self.packet = self.packet.wrapping_add(1);
        let has_context = !matches!(pdu, Pdu::Open { .. } | Pdu::Close { .. });
        let message = Message {
            session: self.session,
            transaction: 0,
            packet: self.packet,
            flags: 0,
            context: self.identity.context.clone().filter(|_| has_context),
            pdu,
        };
        message.write(&mut self.output);
    }

    fn ask(&mut self, request: Request, pdu: Pdu, now: Now) {
        self.send(pdu);
        self.waiting.push_back((self.packet, request, now.elapsed));
    }

    fn answer(&mut self, header: &Header, response: Response) {
        let (session, transaction, packet) = (header.session, header.transaction, header.packet);
        self.write(session, transaction, packet, response);
    }

    fn write(&mut self, session: u32, transaction: u32, packet: u32, response: Response) {
        let pdu = Pdu::Response(response);
        let message = Message {
            session,
            transaction,
            packet,
            flags: 0,
            context: None,
            pdu,
        };
        message.write(&mut self.output);
    }

    fn take(&mut self, message: Message, tree: &mut T, now: Now) -> Result<(), Ended> {
        let Message {
            session,
            transaction,
            packet,
            context,
            pdu,
            ..
        } = message;
        match pdu {
            Pdu::Response(response) => {
                return self.take_response(session, packet, response, tree, now);
            }
            Pdu::Close { reason } if session == self.session => return Err(Ended::Closed(reason)),
            // Has no response, not even to a session that is not open.
            Pdu::CleanupSet => {
                self.set.take_if(|set| set.transaction == transaction);
                return Ok(());
            }
            _ => {}
        }
        let has_context = !matches!(pdu, Pdu::CommitSet | Pdu::UndoSet);
        let response = if session != self.session || !self.is_open() {
            failed(error::NOT_OPEN, 0)
        } else if has_context && context != self.identity.context {
            failed(error::UNSUPPORTED_CONTEXT, 0)
        } else {
            self.serve(transaction, pdu, tree)
        };
        self.write(session, transaction, packet, response);
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.zero.is_some()
    }

    fn take_response(
        &mut self,
        session: u32,
        packet: u32,
        response: Response,
        tree: &mut T,
        now: Now,
    ) -> Result<(), Ended> {
        let Some(place) = self.waiting.iter().position(|(asked, ..)| *asked == packet) else {
            return Ok(());
        };
        let Some((_, request, _)) = self.waiting.remove(place) else {
            return Ok(());
        };
        let refused = |what: String| Ended::Refused {
            what,
            number: response.error,
        };
        match request {
            Request::Open if response.error != 0 => return Err(refused("the session".to_owned())),
            Request::Register(root) if response.error != 0 => {
                return Err(refused(format!("the registration of {root}")));
            }
            // The master lost the session, as after a restart behind a socket that stays.
            _ if response.error == error::NOT_OPEN => {
                return Err(refused("the session".to_owned()));
            }
            Request::Open => self.session = session,
            Request::Register(_) => self.registered += 1,
            Request::Ping | Request::Notify => {}
        }
        self.take_uptime(response.uptime, tree, now);
        if matches!(request, Request::Open) {
            for subtree in self.roots.clone() {
                let (timeout, priority) = (0, self.identity.priority);
                let region = Region {
                    subtree: subtree.clone(),
                    range: None,
                };
                let register = Pdu::Register {
                    timeout,
                    priority,
                    region,
                };
                self.ask(Request::Register(subtree), register, now);
            }
        }
        Ok(())
    }

    /// Keeps sysUpTime what it was where the tables' clock was set, or goes on at another speed.
    fn follow(&mut self, tree: &mut T, now: Now) {
        let change = now.lead().wrapping_sub(self.lead);
        // Both are rounded.
        if change.unsigned_abs() > 1 {
            self.lead = now.lead();
            if let Some(zero) = &mut self.zero {
                *zero = zero.saturating_add_signed(change);
                tree.set_zero(*zero);
            }
        }
    }

    /// A response takes time, so the earliest zero is the most exact one; one that is a second later
    /// is that of another start of the master, or sysUpTime began anew.
    fn take_uptime(&mut self, uptime: u32, tree: &mut T, now: Now) {
        let zero = now.ticks.saturating_sub(u64::from(uptime));
        if self
            .zero
            .is_none_or(|known| zero < known || zero > known + 100)
        {
            self.zero = Some(zero);
            tree.set_zero(zero);
        }
    }

    fn serve(&mut self, transaction: u32, pdu: Pdu, tree: &mut T) -> Response {
        match pdu {
            Pdu::Get(ranges) => each(&ranges, |range| {
                let bound = tree
                    .get(&range.start)
                    .map_or_else(Bound::Missing, Bound::Value);
                Binding {
                    name: range.start.clone(),
                    bound,
                }
            }),
            Pdu::GetNext(ranges) => each(&ranges, |range| next(tree, range)),
            Pdu::GetBulk {
                non_repeaters,
                max_repetitions,
                ranges,
            } => bulk(tree, non_repeaters.into(), max_repetitions, &ranges),
            Pdu::TestSet(bindings) => self.test(transaction, bindings, tree),
            Pdu::CommitSet => self.commit(transaction, tree),
            Pdu::UndoSet => self.undo(transaction, tree),
            // No requests of a master.
            _ => failed(error::PARSE, 0),
        }
    }

    fn test(&mut self, transaction: u32, bindings: Vec<Binding>, tree: &mut T) -> Response {
        self.set = None;
        let mut set = Vec::with_capacity(bindings.len());
        for Binding { name, bound } in bindings {
            match bound {
                Bound::Value(value) => set.push((name, value)),
                _ => return failed(SetError::WrongType as u16, set.len() + 1),
            }
        }
        match tree.test(&set) {
            Ok(change) => {
                self.set = Some(Set {
                    transaction,
                    committed: false,
                    change,
                });
                Response::default()
            }
            Err((place, error)) => failed(error as u16, place + 1),
        }
    }

    fn commit(&mut self, transaction: u32, tree: &mut T) -> Response {
        let set = self.set.as_mut();
        let set = set.filter(|set| set.transaction == transaction && !set.committed);
        let Some(set) = set else {
            return failed(SetError::CommitFailed as u16, 0);
        };
        match tree.commit(&mut set.change) {
            Ok(()) => {
                set.committed = true;
                Response::default()
            }
            Err(place) => failed(SetError::CommitFailed as u16, place + 1),
        }
    }

    fn undo(&mut self, transaction: u32, tree: &mut T) -> Response {
        match self.set.take_if(|set| set.transaction == transaction) {
            Some(set) if set.committed => match tree.undo(set.change) {
                Ok(()) => Response::default(),
                Err(place) => failed(SetError::UndoFailed as u16, place + 1),
            },
            // A commit that failed left nothing to undo.
            Some(_) => Response::default(),
            None => failed(SetError::UndoFailed as u16, 0),
        }
    }
}

/// snmpTrapOID.0.
const SNMP_TRAP_OID: &[u32] = &[1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];

fn failed(error: u16, index: usize) -> Response {
    let index = u16::try_from(index).unwrap_or(u16::MAX);
    Response {
        error,
        index,
        ..Response::default()
    }
}

/// About how many octets a binding takes in a message; never fewer.
fn size(binding: &Binding) -> usize {
    let value = match &binding.bound {
        Bound::Value(Value::Octets(octets) | Value::Opaque(octets)) => octets.len() + 8,
        Bound::Value(Value::Oid(oid)) => 4 + 4 * oid.numbers().len(),
        _ => 8,
    };
    8 + 4 * binding.name.numbers().len() + value
}

fn next<T: Tree>(tree: &mut T, range: &Range) -> Binding {
    let end = Some(&range.end).filter(|end| !end.is_empty());
    match tree.next(&range.start, range.include, end) {
        Some((name, value)) => Binding {
            name,
            bound: Bound::Value(value),
        },
        None => Binding {
            name: range.start.clone(),
            bound: Bound::End,
        },
    }
}

fn each(ranges: &[Range], mut find: impl FnMut(&Range) -> Binding) -> Response {
    let mut bindings = Vec::with_capacity(ranges.len());
    let mut octets = 0;
    for range in ranges {
        let binding = find(range);
        octets += size(&binding);
        if octets > MAX_PAYLOAD {
            return failed(GENERAL, bindings.len() + 1);
        }
        bindings.push(binding);
    }
    Response {
        bindings,
        ..Response::default()
    }
}

/// RFC 2741, 7.2.3.3. Ends early, with whole repetitions, once all ranges are at their ends or the
/// message is as long as it may be.
fn bulk<T: Tree>(
    tree: &mut T,
    non_repeaters: usize,
    repetitions: u16,
    ranges: &[Range],
) -> Response {
    let (once, repeated) = ranges.split_at(non_repeaters.min(ranges.len()));
    let mut response = each(once, |range| next(tree, range));
    if response.error != 0 || repeated.is_empty() {
        return response;
    }
    let mut octets: usize = response.bindings.iter().map(size).sum();
    let mut ranges = repeated.to_vec();
    for _ in 0..repetitions {
        let whole = response.bindings.len();
        let mut found = false;
        for range in &mut ranges {
            let binding = next(tree, range);
            found |= binding.bound != Bound::End;
            range.start.clone_from(&binding.name);
            // What was found is not looked for again; the end stays the end.
            range.include &= binding.bound == Bound::End;
            octets += size(&binding);
            response.bindings.push(binding);
        }
        if octets > MAX_PAYLOAD {
            response.bindings.truncate(whole);
            break;
        }
        if !found {
            break;
        }
    }
    response
}
