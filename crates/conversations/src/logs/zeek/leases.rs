//! `dhcp.log`: a line for all messages of a transaction, which go through several connections.

use std::collections::{HashMap, VecDeque};

use flowgauge_wire::{Address, Nanos};

use super::super::values::{Cell, Name, Values};

/// How long messages of a transaction are waited for since the first.
const WAIT: Nanos = Nanos(30_000_000_000);
/// Connections and messages of one; with more it is over.
const MOST_CONNECTIONS: usize = 10;
const MOST_MESSAGES: usize = 50;
/// Transactions under way; with more the oldest is over.
const MOST: usize = 4096;

/// Transactions under way.
#[derive(Debug, Default)]
pub(in super::super) struct Leases {
    /// By number.
    open: HashMap<u64, Lease>,
    /// When each began, in that order.
    order: VecDeque<(Nanos, u64)>,
}

/// What the messages of a transaction say, the last one last.
#[derive(Debug, Default)]
pub(in super::super) struct Lease {
    /// When the first came that was known first.
    opened: Nanos,
    connections: Vec<u64>,
    messages: Vec<(Nanos, String)>,
    client: Option<(Address, u8)>,
    server: Option<(Address, u8)>,
    requested: Option<(Address, u8)>,
    assigned: Option<(Address, u8)>,
    lease_time: Option<u64>,
    /// Hardware address, names of the client and its domain, words of the client and of the server.
    texts: [Option<String>; 6],
}

impl Leases {
    /// Takes a record of a message or two. Returns a transaction that is over for it.
    pub(in super::super) fn add(&mut self, values: &Values<'_>) -> Option<Lease> {
        let number = values.number(Name::trans_id).unwrap_or_default();
        let time = values.begin().unwrap_or_default();
        let is_over = |it: &Lease| {
            time.0.saturating_sub(it.opened.0) > WAIT.0
                || it.connections.len() > MOST_CONNECTIONS
                || it.messages.len() > MOST_MESSAGES
        };
        let over = match self.open.get(&number).is_some_and(is_over) {
            true => self.open.remove(&number),
            false if self.open.len() >= MOST => self.oldest(),
            false => None,
        };
        let order = &mut self.order;
        let lease = self.open.entry(number).or_insert_with(|| {
            order.push_back((time, number));
            Lease {
                opened: time,
                ..Lease::default()
            }
        });
        lease.add(time, values);
        over
    }

    /// One of which no more is waited for; without a time the oldest.
    pub(in super::super) fn due(&mut self, now: Option<Nanos>) -> Option<Lease> {
        let opened = self.first()?;
        match now {
            Some(now) if now.0.saturating_sub(opened.0) <= WAIT.0 => None,
            _ => self.oldest(),
        }
    }

    /// When the oldest began. Those that were over before are forgotten.
    fn first(&mut self) -> Option<Nanos> {
        while let Some((opened, number)) = self.order.front() {
            if self.open.get(number).is_some_and(|it| it.opened == *opened) {
                return Some(*opened);
            }
            self.order.pop_front();
        }
        None
    }

    fn oldest(&mut self) -> Option<Lease> {
        self.first()?;
        let (_, number) = self.order.pop_front()?;
        self.open.remove(&number)
    }
}

impl Lease {
    fn add(&mut self, time: Nanos, values: &Values<'_>) {
        let connection = values.number(Name::flow_id);
        if let Some(id) = connection.filter(|id| !self.connections.contains(id)) {
            self.connections.push(id);
        }
        let (request, reply) = (values.text(Name::request), values.text(Name::reply));
        let answered = time.0 + values.span(Name::latency).unwrap_or_default().0;
        for (time, kind) in [(time, request), (Nanos(answered), reply)] {
            let kind = kind.map(|kind| (time, kind.to_ascii_uppercase()));
            self.messages.extend(kind);
        }
        let is_set = |it: &(Address, u8)| it.0.0[12..] != [0; 4];
        let address = |name| values.address(name).filter(is_set);
        let own = request.and_then(|_| address(Name::src_ip));
        self.client = own.or(self.client);
        self.requested = address(Name::requested_addr).or(self.requested);
        if let Some(assigned) = address(Name::assigned_addr) {
            self.assigned = Some(assigned);
            // The server is the one that gave the address.
            self.server = address(Name::server_addr).or(self.server);
            self.lease_time = values.number(Name::lease_time).or(self.lease_time);
        }
        let said = values.text(Name::message);
        for (place, text) in [
            values.text(Name::mac),
            values.text(Name::host_name),
            values.text(Name::client_fqdn),
            values.text(Name::domain),
            said.filter(|_| reply.is_none()),
            said.filter(|_| reply.is_some()),
        ]
        .into_iter()
        .enumerate()
        {
            if let Some(text) = text {
                self.texts[place] = Some(text.to_owned());
            }
        }
    }

    /// Its line, in the order of the log's columns.
    pub(in super::super) fn cells(&mut self) -> impl Iterator<Item = Cell<'_>> {
        // Of what was never answered a record comes late.
        self.messages.sort_by_key(|(time, _)| *time);
        let ends = self.messages.first().zip(self.messages.last());
        let (begin, end) = ends.map_or((self.opened, self.opened), |(a, b)| (a.0, b.0));
        let address = |it: Option<(Address, u8)>| {
            Cell::of(it, |(address, version)| Cell::Address(address, version))
        };
        let text = |place: usize| Cell::of(self.texts[place].as_deref(), Cell::Text);
        let lease = |seconds: u64| Cell::Seconds(Nanos(seconds.saturating_mul(1_000_000_000)));
        [
            Cell::Seconds(begin),
            Cell::Ids(b'C', &self.connections),
            address(self.client.or(self.assigned)),
            address(self.server),
            text(0),
            text(1),
            text(2),
            text(3),
            address(self.requested),
            address(self.assigned),
            Cell::of(self.lease_time, lease),
            text(4),
            text(5),
            Cell::Words(&self.messages),
            Cell::Seconds(Nanos(end.0 - begin.0)),
        ]
        .into_iter()
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_record::dhcp::DhcpMessage;
    use flowgauge_record::event::EventSchemas;
    use flowgauge_record::exchange::Exchange;
    use flowgauge_record::parties::Parties;

    use super::super::super::Looking;
    use super::*;

    /// A request alone, of this transaction, so many seconds after the beginning.
    fn asks(leases: &mut Leases, xid: u32, seconds: u64, flow: u64) -> Option<Lease> {
        let message = DhcpMessage {
            xid,
            kind: "discover",
            ..DhcpMessage::default()
        };
        let exchange = Exchange {
            protocol: 17,
            parties: Parties::default(),
            request: Some((Nanos::from_secs(seconds), &message)),
            reply: None,
            repeats: 0,
            limit: None,
        };
        let mut schemas = EventSchemas::default();
        let event = schemas.event("dhcp", Some(flow), &exchange);
        let mut looking = Looking::default();
        leases.add(&looking.at(&event).unwrap())
    }

    #[test]
    fn messages_of_a_transaction_are_together_for_half_a_minute() {
        let mut leases = Leases::default();
        for (xid, seconds, flow) in [(1, 0, 1), (2, 5, 1), (1, 10, 2), (1, 30, 1)] {
            assert!(asks(&mut leases, xid, seconds, flow).is_none());
        }
        let first = asks(&mut leases, 1, 31, 3).expect("the first is over");
        assert_eq!((first.messages.len(), first.connections), (3, vec![1, 2]));
        // The place that it had in the order is no one's.
        assert!(leases.due(Some(Nanos::from_secs(35))).is_none());
        let second = leases.due(Some(Nanos::from_secs(36))).expect("it is due");
        assert_eq!(second.opened, Nanos::from_secs(5));
        assert!(leases.due(Some(Nanos::from_secs(61))).is_none());
        assert_eq!(leases.due(None).map(|it| it.connections), Some(vec![3]));
        assert!(leases.due(None).is_none() && leases.order.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut leases = Leases::default();
        let over = (0..10_000).filter_map(|xid| asks(&mut leases, xid, 0, 1));
        assert_eq!(over.count(), 10_000 - MOST);
        assert_eq!((leases.open.len(), leases.order.len()), (MOST, MOST));
        let sizes = (0..200).filter_map(|flow| asks(&mut leases, 9_999, 1, flow));
        for lease in sizes {
            assert!(lease.connections.len() <= MOST_CONNECTIONS + 1);
        }
    }
}
