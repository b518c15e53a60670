//! `follow`: the bytes of one connection, both directions in turn.

mod connection;

use flowgauge_kit::engine;
use flowgauge_record::words::count;
use flowgauge_stack::engine::{Feed, Required, Step};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, ItemType, Items, Outlet, Output, Parallel,
    ResultInfo, ResultValue, SettingError, Settings, StreamChunk, StreamEnd, StreamInfo, options,
};
use flowgauge_stream::{Chunk, Handler, Needs, Shard, Stream, StreamIdentity, StreamStatus, Want};

use connection::{Connection, said};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "follow",
    summary: "gives the bytes of one connection, both directions as they came",
    help: "It reassembles streams and gives on those of the first TCP connection or UDP conversation that is the one \
           named: \"transcript\" behind it makes text of them, \"turns\" records. Others that could be meant are told at the \
           end. It ends its stack when the connection is over, if no other can be meant or on an interface.",
    output: Output::Of(ItemType::Chunk),
    is_of_one: true,
    outside: Some("it has one table of all streams"),
    options: Options::ALL,
    result: Some(ResultInfo::number("bytes given on", "bytes")),
    parallel: Parallel::Never("it follows one connection"),
    decodes: |_| true,
    engine: Some(required),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    connection: Text = required, "print one connection, both directions in turn: its flow_id, its Community ID, or \"tcp \
         192.0.2.1:50956 192.0.2.7:80\" or a part of that";
    [engine::CHECKSUMS, engine::VLAN_AWARE, engine::OVERLAP_POLICY, engine::COMMUNITY_ID_SEED, engine::MEMORY, engine::MAX_FLOWS, engine::TCP_IDLE, engine::UDP_IDLE, engine::OTHER_IDLE];
}

/// So many further connections that could be meant are named.
const NAMED: usize = 5;

fn needs() -> Needs {
    Needs {
        streams: true,
        ..Needs::default()
    }
}

fn required(settings: &Settings) -> Result<Option<Required>, SettingError> {
    engine::required(settings, needs())
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let text = Options::read(settings).connection;
    Ok(Box::new(Follow {
        connection: Connection::read(&text)?,
        text,
        seed: settings.integer("community_id_seed").unwrap_or(0) as u16,
        is_live: settings.is_live(),
        found: None,
        others: Others::default(),
        wants: Vec::new(),
        bytes: 0,
    }))
}

struct Follow {
    connection: Connection,
    /// As it was named.
    text: String,
    seed: u16,
    is_live: bool,
    found: Option<Found>,
    others: Others,
    /// What is to be told to the engine.
    wants: Vec<Want>,
    bytes: u64,
}

/// The connection that is followed.
struct Found {
    identity: StreamIdentity,
    said: String,
    /// Its directions that have not ended.
    streams: [Option<(u32, StreamInfo)>; 2],
}

impl Found {
    fn is_over(&self) -> bool {
        self.streams.iter().all(Option::is_none)
    }
}

/// Further connections that could be meant.
#[derive(Default)]
struct Others {
    number: u64,
    named: Vec<String>,
    /// The last one's second direction, which is not another one.
    opposite: Option<u32>,
}

impl Follow {
    fn stream(&mut self, id: u32) -> Option<&mut Option<(u32, StreamInfo)>> {
        let streams = &mut self.found.as_mut()?.streams;
        let is_it = |it: &&mut Option<(u32, StreamInfo)>| it.is_some_and(|(of, _)| of == id);
        streams.iter_mut().find(is_it)
    }

    /// Whether a new stream is of the connection that is followed.
    fn takes(&mut self, stream: &Stream<'_>) -> bool {
        let identity = stream.identity();
        if let Some(found) = &self.found
            && (found.identity.flow_id, found.identity.start) == (identity.flow_id, identity.start)
        {
            return !found.is_over();
        }
        if !self.connection.is_of(stream, &identity, self.seed) {
            return false;
        }
        if self.found.is_none() {
            self.found = Some(Found {
                identity,
                said: said(&identity, stream.from_initiator),
                streams: [None; 2],
            });
            return true;
        }
        if self.others.opposite.replace(stream.opposite) != Some(stream.id) {
            self.others.number += 1;
            if self.others.named.len() < NAMED {
                let said = said(&identity, stream.from_initiator);
                self.others.named.push(said);
            }
        }
        false
    }
}

/// Takes what the engine delivers.
struct Following<'a> {
    state: &'a mut Follow,
    out: &'a mut dyn Outlet,
}

impl Handler for Following<'_> {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn want(&mut self) -> Option<Want> {
        self.state.wants.pop()
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        if !self.state.takes(stream) {
            self.state.wants.push(Want::Nothing(stream.id));
            return;
        }
        let identity = stream.identity();
        let info = StreamInfo {
            source: identity.source,
            destination: identity.destination,
            version: identity.version,
            from_initiator: stream.from_initiator,
            start: identity.start,
            ..StreamInfo::default()
        };
        if let Some(found) = &mut self.state.found {
            found.streams[usize::from(stream.from_initiator)] = Some((stream.id, info));
        }
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        if let Some(Some((_, info))) = self.state.stream(stream.id) {
            let item = StreamChunk {
                key: 0,
                stream: info,
                bytes: chunk.bytes,
                offset: chunk.offset,
                gap_before: chunk.gap_before + chunk.skipped,
                time: chunk.time,
                captured: chunk.captured,
                end: None,
            };
            self.out.emit(Items::Chunks(&[item]));
            self.state.bytes += chunk.bytes.len() as u64;
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let Some((_, info)) = self.state.stream(stream.id).and_then(Option::take) else {
            return;
        };
        let end = match stream.status {
            StreamStatus::Fin => StreamEnd::Fin,
            StreamStatus::Rst => StreamEnd::Rst,
            _ => StreamEnd::Timeout,
        };
        let time = stream.record(|record| record.end).unwrap_or_default();
        self.out.emit(Items::Chunks(&[StreamChunk {
            key: 0,
            stream: &info,
            bytes: &[],
            offset: stream.bytes + stream.missing_bytes,
            gap_before: trailing_gap,
            time,
            captured: time,
            end: Some(end),
        }]));
    }
}

impl Component for Follow {
    fn take(&mut self, feed: Feed<'_, '_>, out: &mut dyn Outlet) {
        feed.to(&mut Following { state: self, out });
    }

    fn end_step(&mut self, _step: &Step<'_, '_>, _engine: Option<&Shard>, out: &mut dyn Outlet) {
        let is_over = self.found.as_ref().is_some_and(Found::is_over);
        if is_over && (self.is_live || self.connection.is_one()) {
            out.enough();
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        if self.found.is_none() {
            let none = format!("no connection with data matches {}", self.text);
            out.fail(Failure::new(none).with_hint(
                "\"flowgauge flows --fields flow_id,community_id,src_ip,src_port,dst_ip,dst_port\" lists those that there are",
            ));
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.bytes))
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Account::default();
        if let Some(found) = &self.found {
            let bytes = count(self.bytes, "byte");
            account.summary.push(format!("{bytes} of {}", found.said));
        }
        let Others { number, named, .. } = &self.others;
        if *number > 0 {
            let shown = named.join("; ");
            let more = if *number > named.len() as u64 {
                "; ..."
            } else {
                ""
            };
            let others = count(*number, "further connection");
            account.notes.push(format!(
                "{others} could be meant by {}: {shown}{more}; hint: name one by its flow_id",
                self.text
            ));
        }
        Some(Box::new(account))
    }
}
