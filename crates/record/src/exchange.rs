//! A request and its reply, of whatever protocol.

use flowgauge_wire::Nanos;

use crate::parties::{Parties, text_or_null};
use crate::schema::{Field, FieldVisitor};

use crate::text::protocol_name;

/// A request and its reply, or one of them alone, each with the time of its last byte. A record, for
/// the messages that have one.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a, M> {
    /// Between whom.
    pub parties: Parties,
    /// Protocol below: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// What was asked.
    pub request: Option<(Nanos, &'a M)>,
    /// What was answered.
    pub reply: Option<(Nanos, &'a M)>,
    /// How often the request came again before the reply.
    pub repeats: u64,
    /// The bound that took its reply from the request.
    pub limit: Option<&'static str>,
}

impl<'a, M> Exchange<'a, M> {
    /// Hands on time, addresses, ports and protocol.
    pub(crate) fn visit_parties<V: FieldVisitor>(
        &self,
        fields: [&'static Field; 6],
        visitor: &mut V,
    ) {
        let [time, src_ip, src_port, dst_ip, dst_port, proto] = fields;
        visitor.time(time, self.time());
        self.parties
            .visit(visitor, [src_ip, src_port, dst_ip, dst_port]);
        visitor.symbol(proto, protocol_name(self.protocol).as_bytes());
    }

    /// Hands on latency, state, repeats and limit.
    /// Of the bounds of its messages, each names its own.
    pub(crate) fn visit_state<V: FieldVisitor>(
        &self,
        fields: [&'static Field; 4],
        bound: Option<&'static str>,
        visitor: &mut V,
    ) {
        let [latency, state, repeats, limit] = fields;
        match (self.request, self.reply) {
            (Some((asked, _)), Some((answered, _))) => {
                visitor.duration(latency, Nanos(answered.0.saturating_sub(asked.0)));
            }
            _ => visitor.null(latency),
        }
        visitor.symbol(state, self.state().as_bytes());
        visitor.unsigned(repeats, self.repeats);
        text_or_null(visitor, limit, self.limit.or(bound));
    }

    /// When it began.
    pub fn time(&self) -> Nanos {
        let first = self.request.or(self.reply);
        first.map(|it| it.0).unwrap_or_default()
    }

    /// What it has: matched, no_reply or no_request.
    pub const fn state(&self) -> &'static str {
        match (self.request, self.reply) {
            (Some(_), Some(_)) => "matched",
            (Some(_), None) => "no_reply",
            _ => "no_request",
        }
    }

    /// The request, or where there is none the reply.
    pub(crate) fn first(&self) -> Option<&'a M> {
        self.request.or(self.reply).map(|it| it.1)
    }
}
