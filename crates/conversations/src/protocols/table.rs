//! The conversations of a core that speak one protocol.

use flowgauge_stack::StreamEnd;
use flowgauge_sys::prefetch::prefetch_address;
use flowgauge_wire::Nanos;

use super::room::GivenUp;
use super::{At, Connection, Conversation, Give, Wants};

/// Conversations kept for use by others.
const SPARE: usize = 256;
/// Lines of the cache that are fetched of one.
const LINES: usize = 8;

/// Conversations, by number.
pub(crate) trait Talks: Send {
    /// One begins, of whoever this number means.
    fn open(&mut self, connection: Connection, owner: u32) -> u32;

    /// Brings one closer.
    fn prefetch(&self, number: u32);

    /// The connection of one.
    fn connection(&mut self, number: u32) -> Option<&mut Connection>;

    /// Whose one is.
    fn owner(&self, number: u32) -> u32;

    /// When something was said in one last.
    fn last(&self, number: u32) -> Nanos;

    /// Bytes missing before these, and these. Returns what is wanted of what follows.
    fn data(&mut self, number: u32, piece: &Piece<'_>, give: &mut Give<'_>) -> Wants;

    /// A direction is over, with what is missing at its end. Nothing follows in it.
    fn end(&mut self, number: u32, piece: &Piece<'_>, end: StreamEnd, give: &mut Give<'_>);

    /// One is over; its number is used again.
    fn close(&mut self, number: u32, give: &mut Give<'_>);

    /// Tells the numbers of all that are open, and since when each keeps its oldest request, or has been idle.
    fn ages(&self, tell: &mut dyn FnMut(u32, Nanos));

    /// Frees what is kept for use by others: nothing of it is charged.
    fn trim(&mut self);

    /// Gives up the oldest request of one, or where there is none all of it.
    fn give_up(&mut self, number: u32, give: &mut Give<'_>) -> GivenUp;
}

/// A piece of what one direction said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) gap_before: u64,
    /// Bytes that nobody [wanted](Wants::Behind) to look at, before that.
    pub(crate) skipped: u64,
    pub(crate) from_initiator: bool,
    pub(crate) time: Nanos,
}

/// Conversations that are used again when they are over.
pub(crate) struct Table<C: Conversation> {
    common: C::Common,
    talks: Vec<Option<Box<Talk<C>>>>,
    free: Vec<u32>,
    // They move from place to place, and are large.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Talk<C>>>,
}

struct Talk<C> {
    connection: Connection,
    conversation: C,
    /// When something was said last.
    last: Nanos,
    /// Whose it is.
    owner: u32,
    /// Bytes that were charged for it.
    held: usize,
}

impl<C: Conversation> Talk<C> {
    /// Since when it keeps its oldest request, or has been idle.
    fn age(&self) -> Nanos {
        self.conversation.oldest().unwrap_or(self.last)
    }

    /// Charges what it keeps now.
    #[inline]
    fn charge(&mut self, give: &mut Give<'_>) {
        let held = size_of::<Self>() + self.conversation.held();
        if held != self.held {
            *give.held = *give.held + held as u64 - self.held as u64;
            self.held = held;
        }
    }
}

impl<C: Conversation> Table<C> {
    pub(crate) fn boxed() -> Box<dyn Talks> {
        Box::new(Table::<C> {
            common: C::Common::default(),
            talks: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
        })
    }

    #[inline]
    fn talk(&mut self, number: u32) -> Option<(&mut Talk<C>, &mut C::Common)> {
        let talk = self.talks.get_mut(number as usize)?.as_deref_mut()?;
        Some((talk, &mut self.common))
    }

    /// One is over, and gone.
    fn remove(&mut self, number: u32, mut talk: Box<Talk<C>>, give: &mut Give<'_>) {
        *give.held -= talk.held as u64;
        talk.held = 0;
        self.free.push(number);
        if self.spare.len() < SPARE {
            talk.conversation.clear();
            self.spare.push(talk);
        }
    }
}

impl<C: Conversation> Talks for Table<C> {
    fn open(&mut self, connection: Connection, owner: u32) -> u32 {
        let mut talk = self.spare.pop().unwrap_or_else(|| {
            Box::new(Talk {
                connection,
                conversation: C::default(),
                last: Nanos(0),
                owner,
                held: 0,
            })
        });
        talk.connection = connection;
        talk.last = Nanos(0);
        talk.owner = owner;
        let number = self.free.pop().unwrap_or_else(|| {
            self.talks.push(None);
            self.talks.len() as u32 - 1
        });
        if let Some(place) = self.talks.get_mut(number as usize) {
            *place = Some(talk);
        }
        number
    }

    fn prefetch(&self, number: u32) {
        if let Some(Some(talk)) = self.talks.get(number as usize) {
            let start = core::ptr::from_ref(&**talk).cast::<u8>();
            for line in 0..size_of::<Talk<C>>().div_ceil(64).min(LINES) {
                prefetch_address(start.wrapping_add(64 * line));
            }
        }
    }

    fn connection(&mut self, number: u32) -> Option<&mut Connection> {
        Some(&mut self.talk(number)?.0.connection)
    }

    fn owner(&self, number: u32) -> u32 {
        let talk = self.talks.get(number as usize).and_then(Option::as_deref);
        talk.map_or(0, |talk| talk.owner)
    }

    fn last(&self, number: u32) -> Nanos {
        let talk = self.talks.get(number as usize).and_then(Option::as_deref);
        talk.map_or(Nanos(0), |talk| talk.last)
    }

    fn data(&mut self, number: u32, piece: &Piece<'_>, give: &mut Give<'_>) -> Wants {
        let Some((talk, common)) = self.talk(number) else {
            return Wants::All;
        };
        talk.last = talk.last.max(piece.time);
        (give.flow_id, give.vlans) = (talk.connection.flow_id, talk.connection.vlans);
        let at = At {
            connection: &talk.connection,
            from_initiator: piece.from_initiator,
            time: piece.time,
        };
        let conversation = &mut talk.conversation;
        if piece.skipped > 0 {
            conversation.passed(common, &at, piece.skipped, give);
        }
        if piece.gap_before > 0 {
            conversation.gap(common, &at, piece.gap_before, give);
        }
        if !piece.bytes.is_empty() {
            conversation.data(common, &at, piece.bytes, give);
        }
        let wants = conversation.wants(&at);
        talk.charge(give);
        wants
    }

    fn end(&mut self, number: u32, piece: &Piece<'_>, end: StreamEnd, give: &mut Give<'_>) {
        let Some((talk, common)) = self.talk(number) else {
            return;
        };
        (give.flow_id, give.vlans) = (talk.connection.flow_id, talk.connection.vlans);
        let at = At {
            connection: &talk.connection,
            from_initiator: piece.from_initiator,
            time: piece.time,
        };
        let conversation = &mut talk.conversation;
        if piece.gap_before > 0 {
            conversation.gap(common, &at, piece.gap_before, give);
        }
        conversation.end(common, &at, end, give);
        talk.charge(give);
    }

    fn close(&mut self, number: u32, give: &mut Give<'_>) {
        let place = self.talks.get_mut(number as usize);
        let Some(mut talk) = place.and_then(Option::take) else {
            return;
        };
        (give.flow_id, give.vlans) = (talk.connection.flow_id, talk.connection.vlans);
        let at = At {
            connection: &talk.connection,
            from_initiator: true,
            time: talk.last,
        };
        talk.conversation.close(&mut self.common, &at, give);
        self.remove(number, talk, give);
    }

    fn ages(&self, tell: &mut dyn FnMut(u32, Nanos)) {
        for (number, talk) in self.talks.iter().enumerate() {
            if let Some(talk) = talk {
                tell(number as u32, talk.age());
            }
        }
    }

    fn trim(&mut self) {
        self.spare.clear();
        C::trim(&mut self.common);
    }

    fn give_up(&mut self, number: u32, give: &mut Give<'_>) -> GivenUp {
        let place = self.talks.get_mut(number as usize);
        let Some(mut talk) = place.and_then(Option::take) else {
            return GivenUp::Nothing;
        };
        (give.flow_id, give.vlans) = (talk.connection.flow_id, talk.connection.vlans);
        let at = At {
            connection: &talk.connection,
            from_initiator: true,
            time: talk.last,
        };
        if talk.conversation.oldest().is_none() {
            talk.conversation.abandon(&mut self.common, &at, give);
            let owner = talk.owner;
            self.remove(number, talk, give);
            return GivenUp::Conversation(owner);
        }
        talk.conversation.give_up(&mut self.common, &at, give);
        talk.charge(give);
        let age = talk.age();
        if let Some(place) = self.talks.get_mut(number as usize) {
            *place = Some(talk);
        }
        GivenUp::Request(age)
    }
}
