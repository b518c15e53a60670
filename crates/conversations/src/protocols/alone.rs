//! A protocol as a component of its own, for connections that a stack has taken apart.

use core::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use flowgauge_stack::{
    Account, Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, Packets, Parallel,
    PerKey, ResultInfo, ResultValue, SettingError, Settings, StreamChunk, options,
};
use flowgauge_wire::{Decoded, FlowKey, Nanos};

use super::room::{ByAge, GivenUp, Room};
use super::table::{Piece, Table, Talks};
use super::{Connection, Conversation, Give};

/// What components of protocols have in common: datagrams go in, transactions come out.
pub(super) const INFO: ComponentInfo = ComponentInfo {
    output: Output::Of(ItemType::Transaction),
    result: Some(ResultInfo::number(
        "requests with and without a reply",
        "transactions",
    )),
    options: &[MEMORY],
    parallel: Parallel::ByFlow,
    ..ComponentInfo::OF_PACKETS
};

/// The same of those that are within connections.
pub(super) const OF_CHUNKS: ComponentInfo = ComponentInfo {
    input: Input::Of(&[ItemType::Chunk]),
    ..INFO
};

/// A UDP flow ends after so long without a datagram.
const IDLE: Nanos = Nanos(60_000_000_000);
/// UDP flows at most; a datagram of one more is left out.
const MOST: usize = 1 << 20;

options! {
    const;
    MEMORY = memory: Size = "256M", "memory for incomplete conversations";
}

/// One that takes chunks of connections (within `tcpcnxdemux`, behind `tcpreseq`), or datagrams.
pub(super) fn make<C: Conversation>(
    settings: &Settings,
) -> Result<Box<dyn Component>, SettingError> {
    let memory = settings.size("memory").unwrap_or(u64::MAX);
    Ok(Box::new(Alone {
        room: Room::new(memory / settings.copies() as u64),
        table: Table::<C>::boxed(),
        connections: PerKey::default(),
        flows: HashMap::new(),
        swept: Nanos(0),
        records: 0,
    }))
}

struct Alone {
    table: Box<dyn Talks>,
    connections: PerKey<Open>,
    /// UDP flows by key of what is around and endpoints.
    flows: HashMap<(u32, FlowKey), Flow>,
    /// When idle ones were looked for last.
    swept: Nanos,
    records: u64,
    room: Room,
}

#[derive(Default)]
struct Open {
    number: Option<u32>,
    /// Which directions have begun.
    begun: [bool; 2],
}

struct Flow {
    number: u32,
    last: Nanos,
    /// The direction of its first datagram.
    direction: usize,
}

impl Alone {
    fn chunk(&mut self, chunk: &StreamChunk<'_>, out: &mut dyn Outlet) {
        let side = usize::from(chunk.stream.from_initiator);
        let open = self.connections.of(chunk.key);
        if chunk.offset == 0 && chunk.end.is_none() && open.begun[side] {
            // Another connection under the same key.
            self.close(chunk.key, out);
        }
        let open = self.connections.of(chunk.key);
        let stream = chunk.stream;
        let table = &mut self.table;
        let number = *open.number.get_or_insert_with(|| {
            let (initiator, responder) = match stream.from_initiator {
                true => (stream.source, stream.destination),
                false => (stream.destination, stream.source),
            };
            table.open(
                Connection {
                    initiator,
                    responder,
                    version: stream.version,
                    ..Connection::default()
                },
                chunk.key,
            )
        });
        open.begun[side] = true;
        if let Some(connection) = table.connection(number) {
            if stream.from_initiator {
                connection.handshake = [stream.syn, stream.established];
                connection.is_partial = stream.syn.is_none();
            }
            connection.retransmitted.get_or_insert_default()[side] = stream.retransmitted;
        }
        let piece = Piece {
            bytes: chunk.bytes,
            gap_before: chunk.gap_before,
            skipped: 0,
            from_initiator: stream.from_initiator,
            // Of the end there is no packet, always.
            time: match chunk.end {
                Some(_) => chunk.time,
                None => chunk.captured,
            },
        };
        let mut give = Give::alone(out, chunk.key, &mut self.records, &mut self.room);
        match chunk.end {
            Some(end) => table.end(number, &piece, end, &mut give),
            None => {
                table.data(number, &piece, &mut give);
            }
        }
        if self.room.is_short() {
            self.make_room(out);
        }
    }

    fn datagram(
        &mut self,
        packets: &Packets<'_>,
        index: usize,
        packet: &Decoded,
        out: &mut dyn Outlet,
    ) {
        let bytes = packets.decoded.payload(packets.batch, packet);
        if bytes.is_empty() {
            return;
        }
        let key = packets.key(index);
        let is_full = self.flows.len() >= MOST;
        let direction = packet.direction.index();
        let flow = match self.flows.entry((key, packet.key)) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(_) if is_full => return,
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(Flow {
                number: self.table.open(
                    Connection {
                        initiator: packet.source(),
                        responder: packet.destination(),
                        version: packet.key.version,
                        is_udp: true,
                        ..Connection::default()
                    },
                    key,
                ),
                last: packet.time,
                direction,
            }),
        };
        flow.last = flow.last.max(packet.time);
        let piece = Piece {
            bytes,
            gap_before: 0,
            skipped: 0,
            from_initiator: direction == flow.direction,
            time: packet.time,
        };
        let mut give = Give::alone(out, key, &mut self.records, &mut self.room);
        self.table.data(flow.number, &piece, &mut give);
        if self.room.is_short() {
            self.make_room(out);
        }
    }

    /// Conversations keep more than they may: the oldest requests go on alone, and conversations in which none
    /// waits are given up, those first that were idle longest.
    #[cold]
    fn make_room(&mut self, out: &mut dyn Outlet) {
        let mut ages = ByAge::new();
        let table = &mut self.table;
        table.ages(&mut |number, age| ages.push(Reverse((age, 0, number))));
        let mut over = HashSet::new();
        while self.room.is_shrinking()
            && let Some(Reverse((_, _, number))) = ages.pop()
        {
            let mut give = Give::alone(out, table.owner(number), &mut self.records, &mut self.room);
            give.limit = Some("memory");
            match table.give_up(number, &mut give) {
                GivenUp::Request(age) => {
                    self.room.requests += 1;
                    ages.push(Reverse((age, 0, number)));
                }
                GivenUp::Conversation(key) => {
                    self.room.conversations += 1;
                    let open = self.connections.of(key);
                    open.number = open.number.filter(|&it| it != number);
                    over.insert(number);
                }
                GivenUp::Nothing => {}
            }
        }
        self.flows.retain(|_, flow| !over.contains(&flow.number));
    }

    /// Ends the UDP flows for which `is_over` says so, those first that were silent longest.
    fn end_flows(&mut self, out: &mut dyn Outlet, is_over: impl Fn(u32, &Flow) -> bool) {
        let flows = self.flows.iter();
        let mut over: Vec<(Nanos, u32, u32, FlowKey)> = flows
            .filter(|((key, _), flow)| is_over(*key, flow))
            .map(|((key, endpoints), flow)| (flow.last, flow.number, *key, *endpoints))
            .collect();
        over.sort_unstable();
        for (_, number, key, endpoints) in over {
            self.flows.remove(&(key, endpoints));
            let mut give = Give::alone(out, key, &mut self.records, &mut self.room);
            self.table.close(number, &mut give);
        }
    }
}

impl Component for Alone {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        match items {
            Items::Chunks(chunks) => {
                for chunk in *chunks {
                    self.chunk(chunk, out);
                }
            }
            Items::Packets(packets) => {
                for (index, packet) in packets.iter() {
                    self.datagram(packets, index, packet, out);
                }
            }
            _ => {}
        }
        items.clear();
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        if let Some(open) = self.connections.take(key)
            && let Some(number) = open.number
        {
            let mut give = Give::alone(out, key, &mut self.records, &mut self.room);
            self.table.close(number, &mut give);
        }
        if !self.flows.is_empty() {
            self.end_flows(out, |of, _| of == key);
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        if now.0.saturating_sub(self.swept.0) >= IDLE.0 / 8 {
            self.swept = now;
            self.end_flows(out, |_, flow| now.0.saturating_sub(flow.last.0) >= IDLE.0);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        self.end_flows(out, |_, _| true);
        // Outside of all demultiplexers nothing else ends it.
        self.close(0, out);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.records))
    }

    fn account(&self) -> Option<Box<Account>> {
        Some(Box::new(Account {
            counted: self.room.counted().collect(),
            ..Account::default()
        }))
    }

    fn reset(&mut self) {
        self.records = 0;
    }
}
