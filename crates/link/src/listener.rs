//! The end that receives items, from many senders.
//!
//! A *session* is one sender from its start to its end, over however many connections. Each has a
//! queue of its own. What waits is bounded in bytes for each name, however many sessions it has, and for all together: a
//! sender that is ahead of the others, or whose items nobody takes, is held up by TCP alone. So that a session which others
//! wait for can go on beside one that is full, each may have one frame beyond that, up to twice the bound.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::acceptor::{Acceptor, ListenerOptions, Service};
use crate::error::{Error, Refusal};
use crate::frame::{Answer, Frame, Opening};
use crate::identity::Identity;
use crate::reception::{EndOfSession, Event, Receipt, ReceivedItems, Reception, SessionId};
use crate::secure::{Peer, Reader, Secured, Writer};
use crate::sender::{BEAT, ITEMS_SERVICE};
use flowgauge_sys::notice::tell as notice;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Sessions that are remembered after their end, so that one that did not hear of it can be told.
const MOST_SESSIONS: usize = 4096;
/// Sessions of one name that are not over.
const MOST_OF_PEER: usize = 64;
/// Announcements of one session, and bytes of those of one name: they are few and small.
const MOST_ANNOUNCEMENTS: u32 = 65_536;
const MOST_ANNOUNCED_BYTES: usize = 4 << 20;
/// How long a listener that ends tries to tell what was processed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Acknowledgements are not sent more often.
const ACKNOWLEDGEMENT_REST: Duration = Duration::from_millis(5);

/// How the items of a session fared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Who sends.
    pub name: String,
    /// Items that another listener had acknowledged before this one was started.
    pub before: u64,
    /// Items that came.
    pub received: u64,
    /// Items that the sender lost.
    pub lost: u64,
    /// Items that came once more after a connection broke, and were left out.
    pub repeated: u64,
    /// Items that the sender was last known to have had, lost ones counted. If it never comes back,
    /// the difference to `before + received + lost` went with it.
    pub accepted: u64,
    /// Whether it has said that there are no more.
    pub has_ended: bool,
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Connections after the first.
    pub reconnections: u64,
}

/// Takes items from many senders.
pub struct Listener {
    acceptor: Acceptor,
    shared: Arc<Shared>,
}

struct Shared {
    options: ListenerOptions,
    state: Mutex<State>,
    /// Something for [`Listener::next`].
    events: Condvar,
    /// Something was taken: others may be received.
    room: Condvar,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    by_name: BTreeMap<[u8; 16], SessionId>,
    next_session: u32,
    next_connection: u64,
    /// The session that had its turn last.
    turn: SessionId,
    /// Bytes of items that wait or are being processed, by the name of who sent them, and of all.
    waiting_of: BTreeMap<String, usize>,
    waiting: usize,
    /// When a session was last said to be too many.
    told: Option<Instant>,
    is_stopped: bool,
}

#[derive(Default)]
struct Session {
    id: [u8; 16],
    counts: SessionCounts,
    expected: u64,
    announced: u32,
    announced_bytes: usize,
    queue: VecDeque<Queued>,
    /// Bytes in the queue, and of items that are being processed.
    waiting_bytes: usize,
    /// All before it were processed.
    processed: u64,
    is_end_processed: bool,
    /// What of this the sender was told on this connection.
    said: Option<(u64, bool)>,
    /// The connection whose frames count.
    connection: Option<(u64, Writer)>,
    receipts: Arc<Condvar>,
}

/// An event that waits.
enum Queued {
    Ready(Event),
    Time(u64),
}

/// To tell the sender of a session.
struct OfSession {
    shared: Arc<Shared>,
    session: SessionId,
    bytes: usize,
}

impl Receipt for OfSession {
    fn give(&mut self, processed: u64, is_end: bool) {
        let mut state = self.shared.state.lock();
        if let Some(session) = state.sessions.get_mut(&self.session) {
            session.processed = session.processed.max(processed);
            session.is_end_processed |= is_end;
            session.receipts.notify_all();
        }
    }
}

impl Drop for OfSession {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let Some(session) = state.sessions.get_mut(&self.session) else {
            return;
        };
        session.waiting_bytes -= self.bytes;
        state.waiting -= self.bytes;
        if let Some(of_peer) = state.waiting_of.get_mut(&session.counts.name) {
            *of_peer -= self.bytes;
            if *of_peer == 0 {
                state.waiting_of.remove(&session.counts.name);
            }
        }
        self.shared.room.notify_all();
    }
}

impl core::fmt::Debug for OfSession {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Receipt").field(&self.bytes).finish()
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn bind(identity: &Identity, options: ListenerOptions) -> Result<Listener, Error> {
        let shared = Arc::new(Shared {
            options: options.clone(),
            state: Mutex::new(State::default()),
            events: Condvar::new(),
            room: Condvar::new(),
        });
        let service = Arc::new(Items(shared.clone()));
        Ok(Listener {
            acceptor: Acceptor::start(identity, options, service)?,
            shared,
        })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.acceptor.local_address()
    }

    /// The next of what senders do; each in turn. `None`: nothing happened for `wait`.
    pub fn next(&self, wait: Duration) -> Option<Event> {
        let mut next = None;
        let waits = |state: &mut State| {
            next = state.next();
            next.is_none()
        };
        let mut state = self.shared.state.lock();
        self.shared.events.wait_while_for(&mut state, waits, wait);
        next
    }

    /// Forgets a session that has no connection and of which nothing waits; returns how its items
    /// fared. Should its sender come back, it is as a listener that was started anew is.
    pub fn forget(&self, session: SessionId) -> Option<SessionCounts> {
        let mut state = self.shared.state.lock();
        let known = state.sessions.get(&session)?;
        if known.connection.is_some() || !known.queue.is_empty() || known.waiting_bytes > 0 {
            return None;
        }
        let known = state.sessions.remove(&session)?;
        state.by_name.remove(&known.id);
        Some(known.counts)
    }

    /// How the items of all sessions fared.
    pub fn counts(&self) -> Vec<(SessionId, SessionCounts)> {
        let state = self.shared.state.lock();
        let sessions = state.sessions.iter();
        sessions
            .map(|(id, session)| (*id, session.counts.clone()))
            .collect()
    }
}

impl Reception for Listener {
    fn next(&mut self, wait: Duration) -> Option<Event> {
        Listener::next(self, wait)
    }

    fn counts(&self) -> Vec<(SessionId, SessionCounts)> {
        Listener::counts(self)
    }

    fn forget(&mut self, session: SessionId) -> Option<SessionCounts> {
        Listener::forget(self, session)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        // Those of whom all was processed are to know it.
        let waits = |state: &mut State| state.sessions.values().any(Session::has_to_say);
        let events = &self.shared.events;
        events.wait_while_for(&mut state, waits, LAST_WORDS);
        state.is_stopped = true;
        let mut queues = Vec::new();
        for session in state.sessions.values_mut() {
            session.disconnect();
            queues.push(core::mem::take(&mut session.queue));
        }
        self.shared.room.notify_all();
        // What is in them locks the state when it goes.
        drop(state);
        drop(queues);
    }
}

impl State {
    fn next(&mut self) -> Option<Event> {
        let after = SessionId(self.turn.0.wrapping_add(1));
        let later = self.sessions.range(after..).map(|(id, _)| *id);
        let earlier = self.sessions.range(..after).map(|(id, _)| *id);
        let ids: Option<SessionId> = later
            .chain(earlier)
            .find(|id| !self.sessions[id].queue.is_empty());
        let id = ids?;
        self.turn = id;
        match self.sessions.get_mut(&id)?.queue.pop_front()? {
            Queued::Ready(event) => Some(event),
            Queued::Time(watermark) => Some(Event::Time {
                session: id,
                watermark,
            }),
        }
    }

    fn begin(&mut self, opening: &Opening, name: &str) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let session = Session {
            id: opening.session,
            counts: SessionCounts {
                name: name.to_owned(),
                before: opening.acknowledged,
                accepted: opening.acknowledged,
                ..SessionCounts::default()
            },
            expected: opening.acknowledged,
            processed: opening.acknowledged,
            ..Session::default()
        };
        self.sessions.insert(id, session);
        self.by_name.insert(opening.session, id);
        id
    }

    /// Bytes of announcements that are kept of one name.
    fn announced_by(&self, name: &str) -> usize {
        let sessions = self.sessions.values();
        let kept = sessions.filter(|one| one.counts.name == name && !one.is_over());
        kept.map(|session| session.announced_bytes).sum()
    }

    /// Forgets the oldest session that is over, if there are too many. Why there can be no other one of `name`.
    fn make_room(&mut self, name: &str) -> Result<(), String> {
        let open = |session: &&Session| session.counts.name == name && !session.is_over();
        let of_peer = self.sessions.values().filter(open).count();
        if of_peer >= MOST_OF_PEER {
            return Err(format!("{of_peer} sessions of {name} are open"));
        }
        if self.sessions.len() >= MOST_SESSIONS {
            let mut sessions = self.sessions.iter();
            let Some((&id, _)) = sessions.find(|(_, session)| session.is_over()) else {
                return Err(format!("{MOST_SESSIONS} sessions are open"));
            };
            if let Some(session) = self.sessions.remove(&id) {
                self.by_name.remove(&session.id);
            }
        }
        Ok(())
    }
}

impl Session {
    fn disconnect(&mut self) {
        if let Some((_, writer)) = self.connection.take() {
            writer.abort();
        }
        self.counts.is_connected = false;
        self.receipts.notify_all();
    }

    /// Something is announced, beside so many bytes of the same name: whether there is room for it.
    fn announce(&mut self, id: SessionId, payload: Vec<u8>, others: usize) -> bool {
        let bytes = payload.len() + size_of::<Queued>();
        if others + bytes > MOST_ANNOUNCED_BYTES {
            return false;
        }
        self.queue.push_back(Queued::Ready(Event::Announced {
            session: id,
            number: self.announced,
            payload,
        }));
        self.announced_bytes += bytes;
        self.announced += 1;
        true
    }

    /// The sender has sent so many items in all. How many of the last ones are lost.
    fn end(&mut self, total: u64) -> u64 {
        let lost = self.reach(total, 0);
        self.counts.accepted = total;
        self.counts.has_ended = true;
        lost
    }

    /// Items up to `end` were sent, of which so many were received now. How many before these are lost.
    fn reach(&mut self, end: u64, received: u64) -> u64 {
        let lost = end - received - self.expected;
        self.expected = end;
        self.counts.lost += lost;
        self.counts.received += received;
        self.counts.accepted = self.counts.accepted.max(end);
        lost
    }

    /// Whether nothing more is to be expected of it.
    fn is_over(&self) -> bool {
        self.counts.has_ended && self.connection.is_none() && self.queue.is_empty()
    }

    /// Whether the sender does not know yet what was processed.
    fn has_to_say(&self) -> bool {
        self.connection.is_some() && self.said != Some((self.processed, self.is_end_processed))
    }

    fn is_of(&self, connection: u64) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|(current, _)| *current == connection)
    }
}

/// The service of a [`Listener`].
struct Items(Arc<Shared>);

impl Service for Items {
    fn name(&self) -> &'static str {
        ITEMS_SERVICE
    }

    fn serve(&self, secured: Secured, opening: Opening, answer: Answer) -> Result<(), Error> {
        let Secured { mut reader, writer } = secured;
        let joined = self.join(&opening, writer.clone(), answer);
        let (session, connection, answer) = joined;
        let written = answer.write(&writer);
        let Some(session) = session else {
            return written;
        };
        if let Err(error) = written {
            self.leave(session, connection, error);
            return Ok(());
        }
        let (shared, acknowledging) = (self.0.clone(), writer.clone());
        let thread = thread::Builder::new()
            .name("link-acks".to_owned())
            .spawn(move || Items(shared).acknowledge(session, connection, &acknowledging));
        let error = match &thread {
            Ok(_) => self.receive(session, connection, &mut reader),
            Err(error) => Error::Network {
                action: "start a thread for",
                address: reader.peer().address.clone(),
                source: error.kind().into(),
            },
        };
        self.leave(session, connection, error);
        if let Ok(thread) = thread {
            let _ = thread.join();
        }
        Ok(())
    }
}

impl Items {
    /// Finds the session or makes one; the answer says where it stands.
    fn join(
        &self,
        opening: &Opening,
        writer: Writer,
        answer: Answer,
    ) -> (Option<SessionId>, u64, Answer) {
        let peer = writer.peer().clone();
        let refuse = |reason, detail: &str| {
            let refusal = Some((reason, detail.to_owned()));
            (
                None,
                0,
                Answer {
                    refusal,
                    ..answer.clone()
                },
            )
        };
        let mut state = self.0.state.lock();
        if state.is_stopped {
            return refuse(Refusal::Full, "it is stopping");
        }
        let connection = state.next_connection;
        state.next_connection += 1;
        let known = state.by_name.get(&opening.session).copied();
        if known.is_none()
            && let Err(why) = state.make_room(&peer.name)
        {
            if state.told.is_none_or(|told| told.elapsed() >= BEAT) {
                state.told = Some(Instant::now());
                notice(format_args!("refused: {}: {why}", peer.address));
            }
            return refuse(Refusal::Full, &why);
        }
        let id = known.unwrap_or_else(|| state.begin(opening, &peer.name));
        let Some(session) = state.sessions.get_mut(&id) else {
            return refuse(Refusal::Other, "");
        };
        if session.counts.name != peer.name {
            return refuse(Refusal::NotYours, "");
        }
        // A connection that is still there is one that the sender has given up.
        session.disconnect();
        session.counts.reconnections += u64::from(known.is_some());
        session.counts.is_connected = true;
        session.connection = Some((connection, writer));
        session.said = None;
        let before = if known.is_some() {
            0
        } else {
            opening.acknowledged
        };
        let again = if known.is_some() { " again" } else { "" };
        notice(format_args!(
            "{} ({}) sends{again}",
            peer.name, peer.address
        ));
        if before > 0 {
            notice(format_args!(
                "{}: an earlier input had received {before} items",
                peer.name
            ));
        }
        match session.queue.back() {
            // Nobody has heard that it left.
            Some(Queued::Ready(Event::Left { .. })) => drop(session.queue.pop_back()),
            _ => session.queue.push_back(Queued::Ready(Event::Joined {
                session: id,
                peer,
                before,
                is_left: opening.is_left,
            })),
        }
        let expected = known.map(|_| session.expected);
        self.0.events.notify_all();
        (Some(id), connection, Answer { expected, ..answer })
    }

    fn receive(&self, id: SessionId, connection: u64, reader: &mut Reader) -> Error {
        let options = &self.0.options;
        loop {
            let deadline = Instant::now() + options.silence;
            let taken = Frame::read(reader, options.max_frame, deadline)
                .map_err(|error| error.or_silent(options.silence))
                .and_then(|frame| self.take(id, connection, frame, reader.peer()));
            if let Err(error) = taken {
                return error;
            }
        }
    }

    /// Waits until there is room for a frame.
    fn with_room(
        &self,
        id: SessionId,
        connection: u64,
        peer: &Peer,
    ) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.0.state.lock();
        loop {
            let session = state.sessions.get(&id);
            let Some(session) = session.filter(|session| session.is_of(connection)) else {
                return Err(Error::Closed {
                    address: peer.address.clone(),
                });
            };
            let of_peer = state.waiting_of.get(&peer.name).copied().unwrap_or(0);
            let options = &self.0.options;
            let fits = |times: usize| {
                of_peer < options.queue_bytes.saturating_mul(times)
                    && state.waiting < options.total_bytes.saturating_mul(times)
            };
            if fits(1) || session.waiting_bytes == 0 && fits(2) {
                return Ok(state);
            }
            self.0.room.wait_for(&mut state, BEAT);
        }
    }

    /// Puts what a frame says into the queue, if there is room.
    fn take(&self, id: SessionId, connection: u64, frame: Frame, peer: &Peer) -> Result<(), Error> {
        let nonsense = |reason: &str| Error::Protocol {
            address: peer.address.clone(),
            reason: reason.to_owned(),
        };
        let receipt = |bytes| -> Box<dyn Receipt> {
            Box::new(OfSession {
                shared: self.0.clone(),
                session: id,
                bytes,
            })
        };
        let mut state = self.with_room(id, connection, peer)?;
        let state = &mut *state;
        let announced = match frame {
            Frame::Announcement { .. } => state.announced_by(&peer.name),
            _ => 0,
        };
        // It was there a moment ago.
        let Some(session) = state.sessions.get_mut(&id) else {
            return Ok(());
        };
        match frame {
            Frame::Items {
                first,
                count,
                watermark,
                payload,
            } => {
                let end = first + u64::from(count);
                if end <= session.expected {
                    session.counts.repeated += u64::from(count);
                    return Ok(());
                }
                if first < session.expected || session.counts.has_ended {
                    return Err(nonsense("its items are numbered wrongly"));
                }
                let lost_before = session.reach(end, u64::from(count));
                let bytes = payload.len() + size_of::<Queued>();
                session.waiting_bytes += bytes;
                state.waiting += bytes;
                *state.waiting_of.entry(peer.name.clone()).or_default() += bytes;
                session
                    .queue
                    .push_back(Queued::Ready(Event::Items(ReceivedItems {
                        session: id,
                        origin: 0,
                        first,
                        count,
                        lost_before,
                        watermark,
                        payload: Arc::unwrap_or_clone(payload),
                        receipt: receipt(bytes),
                    })));
            }
            Frame::Announcement { number, .. } if number < session.announced => return Ok(()),
            Frame::Announcement { number, payload } => {
                if number != session.announced || number >= MOST_ANNOUNCEMENTS {
                    return Err(nonsense("its announcements are numbered wrongly"));
                }
                if !session.announce(id, Arc::unwrap_or_clone(payload), announced) {
                    return Err(nonsense("it announces too much"));
                }
            }
            Frame::Time {
                watermark,
                accepted,
            } => {
                session.counts.accepted = session.counts.accepted.max(accepted);
                match session.queue.back_mut() {
                    Some(Queued::Time(last)) => *last = (*last).max(watermark),
                    _ => session.queue.push_back(Queued::Time(watermark)),
                }
            }
            Frame::End { total } => {
                if total < session.expected {
                    return Err(nonsense("it had sent more items than there were"));
                }
                if session.counts.has_ended {
                    // It did not hear that this is known.
                    session.said = None;
                    session.receipts.notify_all();
                    return Ok(());
                }
                let lost_before = session.end(total);
                session
                    .queue
                    .push_back(Queued::Ready(Event::Ended(EndOfSession {
                        session: id,
                        total,
                        lost_before,
                        receipt: receipt(0),
                    })));
            }
            Frame::Acknowledgement { .. } | Frame::Message { .. } => {
                return Err(nonsense("it sends what senders do not"));
            }
        }
        self.0.events.notify_all();
        Ok(())
    }

    /// Says what was processed, and that this end lives.
    fn acknowledge(&self, id: SessionId, connection: u64, writer: &Writer) {
        let mut last = Instant::now();
        loop {
            let mut state = self.0.state.lock();
            let (processed, is_end) = loop {
                let session = state.sessions.get(&id);
                let Some(session) = session.filter(|session| session.is_of(connection)) else {
                    return;
                };
                let now = (session.processed, session.is_end_processed);
                if session.has_to_say() || last.elapsed() >= BEAT {
                    break now;
                }
                let receipts = session.receipts.clone();
                let left = BEAT.saturating_sub(last.elapsed());
                receipts.wait_for(&mut state, left);
            };
            drop(state);
            let frame = if is_end {
                Frame::End { total: processed }
            } else {
                Frame::Acknowledgement {
                    expected: processed,
                }
            };
            if frame.write(writer).is_err() {
                // The half that reads hears of it, too.
                writer.close();
                return;
            }
            let mut state = self.0.state.lock();
            let session = state.sessions.get_mut(&id);
            if let Some(session) = session.filter(|session| session.is_of(connection)) {
                session.said = Some((processed, is_end));
            }
            drop(state);
            self.0.events.notify_all();
            last = Instant::now();
            if !is_end {
                thread::sleep(ACKNOWLEDGEMENT_REST);
            }
        }
    }

    fn leave(&self, id: SessionId, connection: u64, error: Error) {
        let mut state = self.0.state.lock();
        let is_stopped = state.is_stopped;
        let session = state.sessions.get_mut(&id);
        let Some(session) = session.filter(|session| session.is_of(connection)) else {
            return;
        };
        session.disconnect();
        if !session.counts.has_ended && !is_stopped {
            notice(format_args!("{} left: {error}", session.counts.name));
            session
                .queue
                .push_back(Queued::Ready(Event::Left { session: id, error }));
        }
        self.0.events.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KeyFolder;
    use crate::secure;

    const WAIT: Duration = Duration::from_secs(30);

    /// A sender that makes another session, sends frames of 40,000 bytes, and goes.
    fn session(identity: &Identity, address: &str, number: u8, frames: u64) -> Option<Refusal> {
        let secured = secure::connect(identity, address, None, WAIT).unwrap();
        let Secured { mut reader, writer } = secured;
        let opening = Opening {
            versions: (1, 1),
            service: ITEMS_SERVICE.to_owned(),
            session: [number; 16],
            acknowledged: 0,
            is_left: false,
        };
        opening.write(&writer).unwrap();
        let answer = Answer::read(&mut reader, Instant::now() + WAIT).unwrap();
        if let Some((refusal, _)) = answer.refusal {
            return Some(refusal);
        }
        for first in 0..frames {
            let payload = Arc::new(vec![number; 40_000]);
            let frame = Frame::Items {
                first,
                count: 1,
                watermark: 0,
                payload,
            };
            frame.write(&writer).unwrap();
        }
        writer.close();
        None
    }

    /// One name that makes session after session takes no more memory than one session, but for a frame here and there, and
    /// is refused in the end; others are not, and when all is taken all goes on.
    #[test]
    fn many_sessions_of_one_sender_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path());
        keys.create_authority().unwrap();
        for name in ["collector", "greedy", "honest"] {
            keys.add(name, &["127.0.0.1".to_owned()], 1).unwrap();
        }
        let identity = |name| keys.identity(Some(name)).unwrap();
        let options = ListenerOptions {
            queue_bytes: 100_000,
            ..ListenerOptions::new("127.0.0.1:0")
        };
        let listener = Listener::bind(&identity("collector"), options).unwrap();
        let address = listener.local_address().to_string();
        let greedy = identity("greedy");
        for number in 0..MOST_OF_PEER as u8 {
            assert_eq!(session(&greedy, &address, number, 3), None, "{number}");
        }
        assert_eq!(session(&greedy, &address, 200, 1), Some(Refusal::Full));
        assert_eq!(session(&identity("honest"), &address, 201, 1), None);
        // Twice the bound, and the frame that crosses it, and that of the other sender.
        assert!(listener.shared.state.lock().waiting <= 200_000 + 40_100 + 40_100);
        let (mut left, mut items) = (0, 0);
        while left < MOST_OF_PEER + 1 {
            match listener.next(WAIT).expect("something comes") {
                Event::Items(received) => {
                    assert!(listener.shared.state.lock().waiting <= 280_200);
                    items += u64::from(received.count);
                    received.done();
                }
                Event::Left { .. } => left += 1,
                _ => {}
            }
        }
        let state = listener.shared.state.lock();
        assert_eq!((state.waiting, state.waiting_of.len()), (0, 0));
        // What was on its way when an acknowledgement met a closed socket is gone.
        assert!(
            (4..=3 * MOST_OF_PEER as u64 + 1).contains(&items),
            "{items}"
        );
        drop(state);
        // Those that are forgotten make room.
        assert!(listener.forget(SessionId(0)).is_some());
        assert_eq!(session(&greedy, &address, 202, 1), None);
    }
}
