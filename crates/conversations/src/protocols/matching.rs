//! Requests that wait for their replies.

use std::collections::VecDeque;

use flowgauge_record::exchange::Exchange;
use flowgauge_record::parties::Parties;
use flowgauge_record::{Held, KnownRecord};
use flowgauge_wire::{Address, Nanos};

use super::{At, Give};

/// Requests that wait at once in a conversation; with more the oldest goes on alone.
const WAITING: usize = 256;
/// How long a request waits, on the clock of the capture. A reply behind that is one without a request.
const PATIENCE: Nanos = Nanos(60_000_000_000);
/// Bytes of the messages that wait in a conversation; with more the oldest goes on alone, too.
const WAITING_BYTES: usize = 1 << 20;
/// Messages kept for use by others.
const POOL: usize = 256;
/// Bytes of one that is kept.
const POOL_BYTES: usize = 4 << 10;

/// Messages that were used, for the next ones.
#[derive(Debug)]
// They move from place to place, and are large.
#[allow(clippy::vec_box)]
pub(super) struct Pool<M>(Vec<Box<M>>);

impl<M> Default for Pool<M> {
    fn default() -> Self {
        Pool(Vec::new())
    }
}

impl<M: Default + Held> Pool<M> {
    pub(super) fn take(&mut self) -> Box<M> {
        self.0.pop().unwrap_or_default()
    }

    pub(super) fn give_back(&mut self, mut message: Box<M>) {
        if self.0.len() < POOL && message.held() <= POOL_BYTES {
            message.clear();
            self.0.push(message);
        }
    }
}

/// Whether an address is one of a group, or of all in a network.
pub(super) fn is_group(address: Address) -> bool {
    match address.0 {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, first, _, _, last] => {
            first >= 224 || last == 255
        }
        [first, ..] => first == 0xff,
    }
}

/// Between whom a message goes, by which protocol below, in which flow.
#[derive(Clone, Copy, Debug)]
struct Way {
    parties: Parties,
    protocol: u8,
    flow_id: Option<u64>,
}

impl Way {
    /// Of a request, or of a reply: its sender is the client or the server.
    fn of(at: &At<'_>, is_request: bool) -> Way {
        let (source, destination) = (at.source(), at.destination());
        let (client, server) = match is_request {
            true => (source, destination),
            false => (destination, source),
        };
        Way {
            parties: Parties {
                client,
                server,
                ip_version: at.connection.version,
            },
            protocol: if at.connection.is_udp { 17 } else { 6 },
            flow_id: at.connection.flow_id,
        }
    }

    /// Gives on a record of its flow, which need not be the one that is spoken in now.
    fn give<R: KnownRecord>(&self, time: Nanos, record: &R, give: &mut Give<'_>) {
        let current = core::mem::replace(&mut give.flow_id, self.flow_id);
        give.record(time, record);
        give.flow_id = current;
    }

    fn exchange<'a, M>(
        &self,
        request: Option<(Nanos, &'a M)>,
        reply: Option<(Nanos, &'a M)>,
        repeats: u64,
        limit: Option<&'static str>,
    ) -> Exchange<'a, M> {
        Exchange {
            limit,
            parties: self.parties,
            protocol: self.protocol,
            request,
            reply,
            repeats,
        }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Request<M> {
    way: Way,
    time: Nanos,
    repeats: u64,
    /// Bytes that it keeps.
    held: usize,
    pub(super) message: Box<M>,
}

impl<M> Request<M> {
    /// Whether this address and port sent it.
    pub(super) fn is_from(&self, client: (Address, u16)) -> bool {
        self.way.parties.client == client
    }
}

/// Those of a conversation, in the order in which they came.
#[derive(Debug)]
pub(super) struct Requests<M> {
    waiting: VecDeque<Request<M>>,
    /// Bytes that their messages keep.
    held: usize,
}

/// What all conversations of a core share where replies come in flows of their own.
pub(super) struct Shared<M> {
    pub(super) pool: Pool<M>,
    pub(super) requests: Requests<M>,
}

impl<M> Default for Shared<M>
where
    Pool<M>: Default,
{
    fn default() -> Self {
        Shared {
            pool: Pool::default(),
            requests: Requests::default(),
        }
    }
}

impl<M> Default for Requests<M> {
    fn default() -> Self {
        Requests {
            waiting: VecDeque::new(),
            held: 0,
        }
    }
}

impl<M: Default + Held> Requests<M>
where
    for<'a> Exchange<'a, M>: KnownRecord,
{
    /// A request has come. One that waits and `is_same` came again; else it waits from now on.
    pub(super) fn request(
        &mut self,
        at: &At<'_>,
        message: Box<M>,
        is_same: impl Fn(&M, &M) -> bool,
        pool: &mut Pool<M>,
        give: &mut Give<'_>,
    ) {
        let way = Way::of(at, true);
        let again = self.waiting.iter_mut().rev();
        let mut again = again.filter(|it| it.way.parties == way.parties);
        if let Some(again) = again.find(|it| is_same(&it.message, &message)) {
            again.repeats += 1;
            return pool.give_back(message);
        }
        if self.waiting.len() >= WAITING || self.held >= WAITING_BYTES {
            self.give_at(0, at.time, Some("requests"), pool, give);
        }
        let held = message.held();
        self.held += held;
        self.waiting.push_back(Request {
            way,
            time: at.time,
            repeats: 0,
            held,
            message,
        });
    }

    /// Bytes of memory that they keep.
    pub(super) fn held(&self) -> usize {
        self.held + self.waiting.capacity() * size_of::<Request<M>>()
    }

    /// When the oldest came.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.waiting.front().map(|it| it.time)
    }

    /// Gives on the oldest alone.
    pub(super) fn give_up(&mut self, at: &At<'_>, pool: &mut Pool<M>, give: &mut Give<'_>) {
        self.give_at(0, at.time, None, pool, give);
    }

    /// Whether a request waits for a reply sent at `at`.
    pub(super) fn has(&self, at: &At<'_>, fits: impl Fn(&M) -> bool) -> bool {
        let parties = Way::of(at, false).parties;
        let mut all = self.waiting.iter();
        all.any(|it| it.way.parties == parties && fits(&it.message))
    }

    /// The request that waits for a reply sent at `at`.
    pub(super) fn find(&mut self, at: &At<'_>, fits: impl Fn(&M) -> bool) -> Option<Request<M>> {
        let parties = Way::of(at, false).parties;
        self.take(|it| it.way.parties == parties && fits(&it.message))
    }

    /// The same whoever was asked, as where a group is asked and one of it answers: what the request's
    /// client has to be is for `fits` to say.
    pub(super) fn find_any(&mut self, fits: impl Fn(&Parties, &M) -> bool) -> Option<Request<M>> {
        self.take(|it| fits(&it.way.parties, &it.message))
    }

    fn take(&mut self, fits: impl Fn(&Request<M>) -> bool) -> Option<Request<M>> {
        let place = self.waiting.iter().position(fits)?;
        self.remove(place)
    }

    fn remove(&mut self, place: usize) -> Option<Request<M>> {
        let request = self.waiting.remove(place)?;
        self.held -= request.held;
        Some(request)
    }

    /// Gives on alone those that have waited too long.
    pub(super) fn expire(&mut self, now: Nanos, pool: &mut Pool<M>, give: &mut Give<'_>) {
        while let Some(first) = self.waiting.front()
            && now.0.saturating_sub(first.time.0) > PATIENCE.0
        {
            self.give_at(0, now, None, pool, give);
        }
    }

    /// Gives on alone those that were sent in a connection, of conversations that keep theirs together.
    pub(super) fn close_of(&mut self, at: &At<'_>, pool: &mut Pool<M>, give: &mut Give<'_>) {
        let ways = [Way::of(at, true).parties, Way::of(at, false).parties];
        let mut place = 0;
        while let Some(request) = self.waiting.get(place) {
            if ways.contains(&request.way.parties) {
                self.give_at(place, at.time, None, pool, give);
            } else {
                place += 1;
            }
        }
    }

    /// Gives on alone all that wait.
    pub(super) fn close(&mut self, now: Nanos, pool: &mut Pool<M>, give: &mut Give<'_>) {
        while !self.waiting.is_empty() {
            self.give_at(0, now, None, pool, give);
        }
    }

    fn give_at(
        &mut self,
        place: usize,
        now: Nanos,
        limit: Option<&'static str>,
        pool: &mut Pool<M>,
        give: &mut Give<'_>,
    ) {
        if let Some(request) = self.remove(place) {
            let asked = Some((request.time, &*request.message));
            let limit = give.limit.or(limit);
            let exchange = request.way.exchange(asked, None, request.repeats, limit);
            request.way.give(now, &exchange, give);
            pool.give_back(request.message);
        }
    }
}

/// Gives on a reply, sent at `at`, with its request if there is one.
pub(super) fn give<M: Default + Held>(
    at: &At<'_>,
    request: Option<Request<M>>,
    reply: Box<M>,
    pool: &mut Pool<M>,
    give: &mut Give<'_>,
) where
    for<'a> Exchange<'a, M>: KnownRecord,
{
    let answered = Some((at.time, &*reply));
    match request {
        Some(request) => {
            let mut way = request.way;
            // Where a group was asked, the one that answered.
            way.parties.server = at.source();
            let asked = Some((request.time, &*request.message));
            way.give(
                at.time,
                &way.exchange(asked, answered, request.repeats, None),
                give,
            );
            pool.give_back(request.message);
        }
        None => {
            // To a group: from its sender to all.
            let way = Way::of(at, is_group(at.destination().0));
            way.give(at.time, &way.exchange(None, answered, 0, None), give);
        }
    }
    pool.give_back(reply);
}

/// Gives on alone a message that nobody answers.
pub(super) fn give_request<M: Default + Held>(
    at: &At<'_>,
    message: Box<M>,
    pool: &mut Pool<M>,
    give: &mut Give<'_>,
) where
    for<'a> Exchange<'a, M>: KnownRecord,
{
    let way = Way::of(at, true);
    let asked = Some((at.time, &*message));
    way.give(at.time, &way.exchange(asked, None, 0, None), give);
    pool.give_back(message);
}
