//! Requests that wait for their replies.

use std::collections::VecDeque;

use flowgauge_record::KnownRecord;
use flowgauge_record::exchange::Exchange;
use flowgauge_record::parties::Parties;
use flowgauge_wire::{Address, Nanos};

use super::{At, Give};

/// Requests that wait at once in a conversation; with more the oldest goes on alone.
const WAITING: usize = 256;
/// How long a request waits, on the clock of the capture. A reply behind that is one without a request.
const PATIENCE: Nanos = Nanos(60_000_000_000);
/// Messages kept for use by others.
const POOL: usize = 256;

/// A message with buffers that can be used again.
pub(super) trait Reusable: Default {
    /// Forgets all but the buffers.
    fn clear(&mut self);
}

/// Messages that were used, for the next ones.
#[derive(Debug)]
pub(super) struct Pool<M>(Vec<M>);

impl<M> Default for Pool<M> {
    fn default() -> Self {
        Pool(Vec::new())
    }
}

impl<M: Reusable> Pool<M> {
    pub(super) fn take(&mut self) -> M {
        self.0.pop().unwrap_or_default()
    }

    pub(super) fn give_back(&mut self, mut message: M) {
        if self.0.len() < POOL {
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
    ) -> Exchange<'a, M> {
        Exchange {
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
    pub(super) message: M,
}

impl<M> Request<M> {
    /// Whether this address and port sent it.
    pub(super) fn is_from(&self, client: (Address, u16)) -> bool {
        self.way.parties.client == client
    }
}

/// Those of a conversation, in the order in which they came.
#[derive(Debug)]
pub(super) struct Requests<M>(VecDeque<Request<M>>);

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
        Requests(VecDeque::new())
    }
}

impl<M: Reusable> Requests<M>
where
    for<'a> Exchange<'a, M>: KnownRecord,
{
    /// A request has come. One that waits and `is_same` came again; else it waits from now on.
    pub(super) fn request(
        &mut self,
        at: &At<'_>,
        message: M,
        is_same: impl Fn(&M, &M) -> bool,
        pool: &mut Pool<M>,
        give: &mut Give<'_>,
    ) {
        let way = Way::of(at, true);
        let again = self.0.iter_mut().rev();
        let mut again = again.filter(|it| it.way.parties == way.parties);
        if let Some(again) = again.find(|it| is_same(&it.message, &message)) {
            again.repeats += 1;
            return pool.give_back(message);
        }
        if self.0.len() >= WAITING {
            self.give_at(0, at.time, pool, give);
        }
        self.0.push_back(Request {
            way,
            time: at.time,
            repeats: 0,
            message,
        });
    }

    /// Whether a request waits for a reply sent at `at`.
    pub(super) fn has(&self, at: &At<'_>, fits: impl Fn(&M) -> bool) -> bool {
        let parties = Way::of(at, false).parties;
        let mut all = self.0.iter();
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
        let place = self.0.iter().position(fits)?;
        self.0.remove(place)
    }

    /// Gives on alone those that have waited too long.
    pub(super) fn expire(&mut self, now: Nanos, pool: &mut Pool<M>, give: &mut Give<'_>) {
        while let Some(first) = self.0.front()
            && now.0.saturating_sub(first.time.0) > PATIENCE.0
        {
            self.give_at(0, now, pool, give);
        }
    }

    /// Gives on alone those that were sent in a connection, of conversations that keep theirs together.
    pub(super) fn close_of(&mut self, at: &At<'_>, pool: &mut Pool<M>, give: &mut Give<'_>) {
        let ways = [Way::of(at, true).parties, Way::of(at, false).parties];
        let mut place = 0;
        while let Some(request) = self.0.get(place) {
            if ways.contains(&request.way.parties) {
                self.give_at(place, at.time, pool, give);
            } else {
                place += 1;
            }
        }
    }

    /// Gives on alone all that wait.
    pub(super) fn close(&mut self, now: Nanos, pool: &mut Pool<M>, give: &mut Give<'_>) {
        while !self.0.is_empty() {
            self.give_at(0, now, pool, give);
        }
    }

    fn give_at(&mut self, place: usize, now: Nanos, pool: &mut Pool<M>, give: &mut Give<'_>) {
        if let Some(request) = self.0.remove(place) {
            let asked = Some((request.time, &request.message));
            let exchange = request.way.exchange(asked, None, request.repeats);
            request.way.give(now, &exchange, give);
            pool.give_back(request.message);
        }
    }
}

/// Gives on a reply, sent at `at`, with its request if there is one.
pub(super) fn give<M: Reusable>(
    at: &At<'_>,
    request: Option<Request<M>>,
    reply: M,
    pool: &mut Pool<M>,
    give: &mut Give<'_>,
) where
    for<'a> Exchange<'a, M>: KnownRecord,
{
    let answered = Some((at.time, &reply));
    match request {
        Some(request) => {
            let mut way = request.way;
            // Where a group was asked, the one that answered.
            way.parties.server = at.source();
            let asked = Some((request.time, &request.message));
            way.give(
                at.time,
                &way.exchange(asked, answered, request.repeats),
                give,
            );
            pool.give_back(request.message);
        }
        None => {
            // To a group: from its sender to all.
            let way = Way::of(at, is_group(at.destination().0));
            way.give(at.time, &way.exchange(None, answered, 0), give);
        }
    }
    pool.give_back(reply);
}

/// Gives on alone a message that nobody answers.
pub(super) fn give_request<M: Reusable>(
    at: &At<'_>,
    message: M,
    pool: &mut Pool<M>,
    give: &mut Give<'_>,
) where
    for<'a> Exchange<'a, M>: KnownRecord,
{
    let way = Way::of(at, true);
    let asked = Some((at.time, &message));
    way.give(at.time, &way.exchange(asked, None, 0), give);
    pool.give_back(message);
}
