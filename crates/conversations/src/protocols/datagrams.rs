//! Protocols whose requests and replies are a datagram each.

use flowgauge_record::exchange::Exchange;
use flowgauge_record::{Held, KnownRecord};
use flowgauge_wire::Nanos;

use super::matching::{Pool, Requests, Shared, give, give_request, is_group};
use super::{At, Conversation, Give};

/// Such a protocol.
pub(super) trait Datagrams: Send + 'static {
    /// A message, as records hold it.
    type Message: Default + Held + Send;

    /// Which requests may be answered from elsewhere.
    const ANSWERED_BY: AnsweredBy;
    /// Where messages are wanted one by one, a request stands alone.
    const STANDS_ALONE: bool = false;

    /// Reads a datagram into an empty message; `None` if it is not one of the protocol.
    fn read(bytes: &[u8], at: &At<'_>, message: &mut Self::Message) -> Option<Role>;

    /// Whether a request is the other one again.
    fn is_same(one: &Self::Message, other: &Self::Message) -> bool;

    /// Whether a reply belongs to a request.
    fn is_answer(request: &Self::Message, reply: &Self::Message) -> bool;
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Request,
    Reply,
    /// A reply if it belongs to a request that waits, else a request.
    Either,
    /// A request that nobody answers.
    Alone,
}

/// Which requests may be answered from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnsweredBy {
    /// None: the server that was asked answers.
    Server,
    /// Those to a group, by any server to the client.
    Group,
    /// All, whoever the reply is sent to.
    Anyone,
}

/// A conversation.
pub(super) struct Talk<P: Datagrams>(Requests<P::Message>);

impl<P: Datagrams> Default for Talk<P> {
    fn default() -> Self {
        Talk(Requests::default())
    }
}

impl<P: Datagrams> Conversation for Talk<P>
where
    for<'a> Exchange<'a, P::Message>: KnownRecord,
{
    type Common = Shared<P::Message>;

    fn trim(common: &mut Self::Common) {
        common.pool = Pool::default();
    }

    fn data(&mut self, common: &mut Self::Common, at: &At<'_>, bytes: &[u8], out: &mut Give<'_>) {
        let Shared { pool, requests } = common;
        let mut message = pool.take();
        let Some(role) = P::read(bytes, at, &mut message) else {
            return pool.give_back(message);
        };
        self.0.expire(at.time, pool, out);
        requests.expire(at.time, pool, out);
        let fits = |it: &P::Message| P::is_answer(it, &message);
        let is_request = match role {
            Role::Either => !self.0.has(at, fits),
            role => role != Role::Reply,
        };
        if is_request {
            if role == Role::Alone || P::STANDS_ALONE && out.each_message {
                return give_request(at, message, pool, out);
            }
            let is_shared = match P::ANSWERED_BY {
                AnsweredBy::Server => false,
                AnsweredBy::Group => is_group(at.destination().0),
                AnsweredBy::Anyone => true,
            };
            let waiting = if is_shared { requests } else { &mut self.0 };
            return waiting.request(at, message, P::is_same, pool, out);
        }
        let request = self.0.find(at, fits).or_else(|| {
            let to_any = P::ANSWERED_BY == AnsweredBy::Anyone;
            requests.find_any(|from, it| fits(it) && (to_any || from.client == at.destination()))
        });
        give(at, request, message, pool, out);
    }

    fn held(&self) -> usize {
        self.0.held()
    }

    fn oldest(&self) -> Option<Nanos> {
        self.0.oldest()
    }

    fn give_up(&mut self, common: &mut Self::Common, at: &At<'_>, out: &mut Give<'_>) {
        self.0.give_up(at, &mut common.pool, out);
    }

    fn close(&mut self, common: &mut Self::Common, at: &At<'_>, out: &mut Give<'_>) {
        self.0.close(at.time, &mut common.pool, out);
        common.requests.close_of(at, &mut common.pool, out);
    }
}
