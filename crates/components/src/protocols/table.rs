//! The conversations of a core that speak one protocol.

use flowgauge_stack::StreamEnd;
use flowgauge_wire::Nanos;

use super::{At, Connection, Conversation, Give};

/// Conversations, by number.
pub(crate) trait Talks: Send {
    /// One begins.
    fn open(&mut self, connection: Connection) -> u32;

    /// The connection of one.
    fn connection(&mut self, number: u32) -> Option<&mut Connection>;

    /// When something was said in one last.
    fn last(&self, number: u32) -> Nanos;

    /// Bytes missing before these, and these.
    fn data(&mut self, number: u32, piece: &Piece<'_>, give: &mut Give<'_>);

    /// A direction is over, with what is missing at its end. Nothing follows in it.
    fn end(&mut self, number: u32, piece: &Piece<'_>, end: StreamEnd, give: &mut Give<'_>);

    /// One is over; its number is used again.
    fn close(&mut self, number: u32, give: &mut Give<'_>);
}

/// A piece of what one direction said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) gap_before: u64,
    pub(crate) from_initiator: bool,
    pub(crate) time: Nanos,
}

/// Conversations that are used again when they are over.
pub(crate) struct Table<C: Conversation> {
    common: C::Common,
    talks: Vec<Talk<C>>,
    free: Vec<u32>,
}

struct Talk<C> {
    connection: Connection,
    conversation: C,
    /// When something was said last.
    last: Nanos,
}

impl<C: Conversation> Table<C> {
    pub(crate) fn boxed() -> Box<dyn Talks> {
        Box::new(Table::<C> {
            common: C::Common::default(),
            talks: Vec::new(),
            free: Vec::new(),
        })
    }
}

impl<C: Conversation> Talks for Table<C> {
    fn open(&mut self, connection: Connection) -> u32 {
        if let Some(number) = self.free.pop()
            && let Some(talk) = self.talks.get_mut(number as usize)
        {
            talk.connection = connection;
            talk.last = Nanos(0);
            return number;
        }
        self.talks.push(Talk {
            connection,
            conversation: C::default(),
            last: Nanos(0),
        });
        self.talks.len() as u32 - 1
    }

    fn connection(&mut self, number: u32) -> Option<&mut Connection> {
        let talk = self.talks.get_mut(number as usize)?;
        Some(&mut talk.connection)
    }

    fn last(&self, number: u32) -> Nanos {
        self.talks
            .get(number as usize)
            .map_or(Nanos(0), |talk| talk.last)
    }

    fn data(&mut self, number: u32, piece: &Piece<'_>, give: &mut Give<'_>) {
        let Some(talk) = self.talks.get_mut(number as usize) else {
            return;
        };
        talk.last = talk.last.max(piece.time);
        give.flow_id = talk.connection.flow_id;
        let at = At {
            connection: &talk.connection,
            from_initiator: piece.from_initiator,
            time: piece.time,
        };
        let (conversation, common) = (&mut talk.conversation, &mut self.common);
        if piece.gap_before > 0 {
            conversation.gap(common, &at, piece.gap_before, give);
        }
        if !piece.bytes.is_empty() {
            conversation.data(common, &at, piece.bytes, give);
        }
    }

    fn end(&mut self, number: u32, piece: &Piece<'_>, end: StreamEnd, give: &mut Give<'_>) {
        let Some(talk) = self.talks.get_mut(number as usize) else {
            return;
        };
        give.flow_id = talk.connection.flow_id;
        let at = At {
            connection: &talk.connection,
            from_initiator: piece.from_initiator,
            time: piece.time,
        };
        let (conversation, common) = (&mut talk.conversation, &mut self.common);
        if piece.gap_before > 0 {
            conversation.gap(common, &at, piece.gap_before, give);
        }
        conversation.end(common, &at, end, give);
    }

    fn close(&mut self, number: u32, give: &mut Give<'_>) {
        let Some(talk) = self.talks.get_mut(number as usize) else {
            return;
        };
        give.flow_id = talk.connection.flow_id;
        let at = At {
            connection: &talk.connection,
            from_initiator: true,
            time: talk.last,
        };
        talk.conversation.close(&mut self.common, &at, give);
        talk.conversation.clear();
        self.free.push(number);
    }
}
