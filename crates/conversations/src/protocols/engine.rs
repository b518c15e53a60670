//! `transactions`: the transactions of all known protocols, found in packets.

use core::cmp::Reverse;
use core::ops::Range;
use std::collections::VecDeque;

use flowgauge_flow::FlowRecord;
use flowgauge_kit::engine;
use flowgauge_record::FlowRow;
use flowgauge_record::event::{Carried, EventSchemas, Spoken, Vlans, schemas_of_events};
use flowgauge_record::words::instead_of;
use flowgauge_stack::engine::{Feed, Required, Step};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, ItemType, Items, Outlet, Output, Parallel,
    RecordItem, ResultInfo, ResultValue, SettingError, Settings, StreamEnd, options,
};
use flowgauge_stream::{
    Chunk, Handler, Needs, Remark, Shard, ShardConfig, Stream, StreamIdentity, StreamStatus, Want,
};
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::{Address, Batch, DecodedBatch, Nanos};

use super::anomalies::{Anomalies, Noticing, Way};
use super::classify::{APPLICATIONS, Classifier, NDPI, classifies};
use super::counters::{self, Counters, When};
use super::detect::{Beginning, Detector, Found, Looked};
use super::learned::Learned;
use super::outer::{OUTER, Outer};
use super::room::{ByAge, GivenUp, Room};
use super::signatures::Carries;
use super::table::{Piece, Talks};
use super::watched::{Kept, MOST_PIECES, Watched};
use super::{ALL, Among, Connection, Give, ProtocolInfo, Wants, ftp, http, named};
use crate::files::{self, Files};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "transactions",
    summary: "finds the transactions of application protocols in all connections",
    help: "Protocols are recognised by the first bytes, or else by ports. Records are \
           those of the components of each protocol; event_type names it. It reassembles fragments and \
           streams, and verifies checksums, itself.",
    output: Output::Of(ItemType::Record),
    kinds: Some(schemas_of_events),
    outside: Some("it has one table of all connections"),
    options: &[
        PROTOCOLS,
        FLOWS,
        OUTER,
        ANOMALIES,
        EACH_MESSAGE,
        counters::INTERVAL,
        files::FILES,
        files::MAILS,
        files::DIGESTS,
        files::DECODE,
        files::EXTRACT,
        files::FILE_LIMIT,
        files::EXTRACT_LIMIT,
        APPLICATIONS,
        NDPI,
        engine::ACTIVE_TIMEOUT,
        engine::COMMUNITY_ID_SEED,
        engine::CHECKSUMS,
        engine::VLAN_AWARE,
        engine::OVERLAP_POLICY,
        engine::MEMORY,
        engine::MAX_FLOWS,
        engine::TCP_IDLE,
        engine::UDP_IDLE,
        engine::OTHER_IDLE,
        engine::CLOSED_TIMEOUT,
    ],
    result: Some(ResultInfo::number("records given on", "records")),
    parallel: Parallel::ByFlow,
    decodes: |_| true,
    engine: Some(|settings| {
        let (config, _) = configuration(settings)?;
        Ok(Some(Required {
            config,
            streams: true,
            applications: None,
        }))
    }),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    const;
    PROTOCOLS = protocols: Text, "protocols to log, separated by commas; all if not given. ftp includes its data connections (ftp_data)";
    FLOWS = flows: Flag = "no", "also write a record per flow when it ends, with its protocol and application";
    ANOMALIES = anomalies: Flag = "no", "also log anomalies in packets, connections and messages";
    EACH_MESSAGE = each_message: Flag = "no", "log as Suricata and Zeek do: a record of each DNS query (also repeated \
    ones), each NTP message, replies to multicast requests in their own flow, and FTP's greeting; all HTTP/2 fields and all lines of FTP replies";
}

/// Pieces of a connection that are looked at before it is given up as one of no known protocol.
const TRIES: u8 = MOST_PIECES as u8;

/// Packets from the first step of [`State::fetch`] to the last: as many as the flow table looks up at once.
const AHEAD: usize = 16;

/// Fewer bytes are not worth passing over.
const LEAST_PASSED: u64 = 2048;

struct Transactions {
    state: State,
    counters: Option<Counters>,
}

/// What finds the transactions of all protocols, in what an engine delivers ([`Leading`]).
pub(crate) struct State {
    /// The protocols that are read.
    detector: Detector,
    /// By place in the detector's.
    tables: Vec<Box<dyn Talks>>,
    /// By connection.
    slots: Vec<Slot>,
    /// The connections of the packets that are up next, and how many there were.
    upcoming: [u32; AHEAD],
    fetched: usize,
    watched: Watched,
    learned: Learned,
    pub(super) schemas: EventSchemas,
    /// What should not be, where somebody wants to know.
    pub(super) anomalies: Option<Box<Anomalies>>,
    /// Which flows are of which protocol and application, where somebody wants to know.
    classifier: Option<Classifier>,
    /// Records of what was said are given on.
    gives_events: bool,
    community_id_seed: u16,
    pub(super) records: u64,
    files: Option<Files>,
    /// Flows of tunnels themselves, where somebody wants to know.
    pub(super) outer: Option<Outer>,
    /// Messages that others would join are records of their own.
    each_message: bool,
    /// What is wanted of streams from now on, for the engine to ask.
    wants: VecDeque<Want>,
    /// What is wanted where nothing is read.
    unread: Unread,
    /// The input is.
    is_over: bool,
    /// Memory for what conversations keep.
    pub(super) room: Room,
}

/// What is wanted of bytes that no protocol reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// Nothing.
    Nothing,
    /// How many there were, and how many were missing, in all.
    Lengths,
    /// When they were missing, too.
    Gaps,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    stage: Stage,
    tries: u8,
    /// Directions that are over, as bits; and [`EXAMINED`], [`TOLD`].
    ended: u8,
    number: u32,
    /// Bytes that were sent again so far, the initiator's second.
    repeated: [u32; 2],
}

/// Both directions are over.
const BOTH_ENDED: u8 = 3;
/// A library that classifies does not want to see more.
const EXAMINED: u8 = 4;
/// A signature told what is spoken, which can carry another protocol.
const TOLD: u8 = 8;
/// Nothing more is wanted of it.
const PASSED: u8 = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing was said yet, or nothing that is known.
    #[default]
    Unknown,
    /// What was said so far is kept, under `number`, until it tells.
    Watched,
    /// One of those that are read, with `number` in its table.
    Known(u8),
    /// Of no known protocol.
    Foreign,
}

/// What the engine has to do for it.
pub(crate) const NEEDS: Needs = Needs {
    streams: true,
    per_flow: size_of::<Slot>() as u64 + Want::BYTES_PER_FLOW,
    // What conversations keep.
    results: true,
};

fn configuration(settings: &Settings) -> Result<(ShardConfig, Option<Outer>), SettingError> {
    let mut config = engine::configuration_in(settings, memory(settings), NEEDS)?;
    config.flow.active = settings.duration("active_timeout").map(Nanos);
    let outer = Outer::of(settings, &mut config)?;
    Ok((config, outer))
}

/// What there is for the engine and for what conversations keep.
fn memory(settings: &Settings) -> Option<u64> {
    let memory = settings.size("memory");
    memory.map(|bytes| bytes - files::share(settings))
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let (_, outer) = configuration(settings)?;
    let flows = classifies(settings, "flows")?;
    let anomalies = settings.flag("anomalies");
    let counters = Counters::of(settings)?;
    let is_cut = settings.duration("active_timeout").is_some();
    Ok(Box::new(Transactions {
        state: State {
            unread: match flows || counters.is_some() {
                _ if anomalies || flows && is_cut => Unread::Gaps,
                true => Unread::Lengths,
                false => Unread::Nothing,
            },
            files: Files::of(settings)?,
            outer,
            each_message: settings.flag("each_message"),
            anomalies: anomalies.then(Box::default),
            room: Room::of(settings, memory(settings), NEEDS),
            ..State::new(settings, wanted(settings)?, flows, true)?
        },
        counters,
    }))
}

/// What `protocols` says.
fn wanted(settings: &Settings) -> Result<Vec<&'static ProtocolInfo>, SettingError> {
    let Some(text) = settings.text("protocols") else {
        return Ok(ALL.to_vec());
    };
    let mut wanted: Vec<&'static ProtocolInfo> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let Some(protocol) = named(name) else {
            let all: Vec<&str> = ALL.iter().map(|protocol| protocol.name).collect();
            let message = format!("unknown protocol \"{name}\"");
            return Err(SettingError::of("protocols", message).with_hint(instead_of(
                name,
                all,
                "\"flowgauge fields\" lists them",
            )));
        };
        wanted.push(protocol);
    }
    let has = |name| wanted.iter().any(|it| it.name == name);
    match (has(ftp::PROTOCOL.name), has(ftp::DATA.name)) {
        // Who wants FTP wants what it transfers.
        (true, false) => wanted.extend(named(ftp::DATA.name)),
        (false, true) => {
            let message = "ftp_data is found through ftp only, which is not among them";
            return Err(SettingError::of("protocols", message)
                .with_hint("name ftp: its data connections are wanted with it"));
        }
        _ => {}
    }
    // In the order in which they are tried.
    wanted.sort_by_key(|one| ALL.iter().position(|other| core::ptr::eq(*one, *other)));
    wanted.dedup_by_key(|one| one.name);
    Ok(wanted)
}

impl State {
    /// One for all protocols that classifies flows, and gives records of what is said if `gives_events`.
    ///
    /// # Errors
    /// When the table of applications cannot be read.
    pub(crate) fn classifying(
        settings: &Settings,
        gives_events: bool,
    ) -> Result<State, SettingError> {
        State::new(settings, ALL.to_vec(), true, gives_events)
    }

    /// The same where others keep as much in what is for results.
    pub(crate) fn beside_others(mut self) -> State {
        self.room.halve();
        self
    }

    /// What a user should know.
    pub(crate) fn tell(&self, account: &mut Account) {
        account.counted.extend(self.room.counted());
        if let Some(files) = &self.files {
            account.counted.extend(files.counted());
            account.last = files.last_word();
        }
    }

    fn new(
        settings: &Settings,
        protocols: Vec<&'static ProtocolInfo>,
        classifies: bool,
        gives_events: bool,
    ) -> Result<State, SettingError> {
        let classifier = match classifies {
            true => Some(Classifier::new(settings)?),
            false => None,
        };
        let tables = protocols.iter().map(|protocol| (protocol.table)());
        Ok(State {
            tables: tables.collect(),
            detector: Detector::new(protocols),
            slots: Vec::new(),
            upcoming: [u32::MAX; AHEAD],
            fetched: 0,
            watched: Watched::default(),
            learned: Learned::default(),
            schemas: EventSchemas::default(),
            anomalies: None,
            classifier,
            gives_events,
            community_id_seed: settings.integer("community_id_seed").unwrap_or(0) as u16,
            records: 0,
            files: None,
            outer: None,
            each_message: false,
            wants: VecDeque::new(),
            unread: Unread::Nothing,
            is_over: false,
            room: Room::of(settings, settings.size("memory"), NEEDS),
        })
    }

    /// What was spoken in a flow that ends.
    pub(crate) fn spoken(&mut self, record: &FlowRecord<'_>) -> Spoken<'_> {
        match &mut self.classifier {
            Some(classifier) => classifier.of(record),
            None => Spoken::default(),
        }
    }

    /// A packet with payload of this connection is up soon: brings what is known of it closer, what is kept of the
    /// connection of an earlier packet, and what was said in that of one before, which is up next.
    #[inline(always)]
    fn fetch(&mut self, connection: u32) {
        let later = self.upcoming[(self.fetched + AHEAD / 2) % AHEAD];
        let next = &mut self.upcoming[self.fetched % AHEAD];
        let next = core::mem::replace(next, connection);
        self.fetched = self.fetched.wrapping_add(1);
        self.fetch_step(connection, 0);
        self.fetch_step(later, 1);
        self.fetch_step(next, 2);
    }

    /// Brings closer what the step before, from 0 to 2, led to.
    #[inline(always)]
    fn fetch_step(&self, connection: u32, step: usize) {
        if step == 0 {
            return prefetch_at(&self.slots, connection as usize);
        }
        let slot = self.slots.get(connection as usize);
        match slot.map(|slot| (slot.stage, slot.number)) {
            Some((Stage::Watched, number)) => self.watched.prefetch(number, step),
            Some((Stage::Known(place), number)) if step == 1 => {
                if let Some(table) = self.tables.get(usize::from(place)) {
                    table.prefetch(number);
                }
            }
            _ => {}
        }
    }

    fn slot(&mut self, connection: u32) -> &mut Slot {
        let index = connection as usize;
        if index >= self.slots.len() {
            let size = (index + 1).next_power_of_two();
            self.slots.resize(size, Slot::default());
        }
        &mut self.slots[index]
    }

    /// Looks at a connection whose protocol is not known, with the next piece of it, or at its end with none.
    /// Returns what the connection is now; the piece is not dealt with where that is [`Stage::Known`].
    #[cold]
    fn look(
        &mut self,
        stream: &Stream<'_>,
        piece: Option<&Piece<'_>>,
        out: &mut dyn Outlet,
    ) -> Slot {
        let mut slot = *self.slot(stream.id / 2);
        let (protocol, port) = stream.service();
        let is_udp = protocol == 17;
        // What finds a way through firewalls comes first, in any number.
        if piece.is_some_and(|it| !is_udp || !flowgauge_proto::tls::is_stun(it.bytes)) {
            slot.tries += 1;
        }
        let time = piece.map_or(Nanos(0), |piece| piece.time);
        let told = match self.learned.is_empty() {
            true => None,
            false => ends(&stream.identity(), stream.from_initiator)
                .into_iter()
                .find_map(|end| self.learned.get(end, time))
                .and_then(|name| self.detector.place(name)),
        };
        let mut kept = match slot.stage {
            Stage::Watched => self.watched.get_mut(slot.number),
            _ => None,
        };
        if let Some(kept) = &mut kept {
            self.room.held -= kept.held();
            if let Some(piece) = piece {
                kept.keep(piece);
            }
        }
        let beginning = Beginning {
            detector: &self.detector,
            port,
            is_udp,
            is_last: is_udp || piece.is_none() || slot.tries >= TRIES,
            has_signatures: slot.ended & TOLD == 0 && piece.is_some(),
        };
        let looked = match (told, &mut kept, piece) {
            (Some(place), ..) => Looked::from(Found::Protocol(place)),
            (None, Some(kept), Some(piece))
                if !beginning.is_last && kept.still_awaits_line(piece) =>
            {
                Looked::from(Found::More)
            }
            (None, Some(kept), _) => beginning.look(kept),
            (None, None, Some(piece)) => beginning.look_first(piece),
            (None, None, None) => Looked::default(),
        };
        // Of UDP each datagram may be another protocol's.
        let carries = looked.signature.map(|(_, carries)| match is_udp {
            true => Carries::Any,
            false => carries,
        });
        if carries.is_some() {
            slot.ended |= TOLD;
        }
        let (found, name) = match (looked.found, carries) {
            (Found::Protocol(place), _) => {
                let protocol = self.detector.protocols.get(usize::from(place));
                (looked.found, protocol.map(|it| it.name))
            }
            (_, Some(Carries::Tls)) => {
                let tls = self.detector.place("tls");
                let found = tls.map_or(Found::Nothing, Found::Usual);
                (found, looked.signature.map(|(name, _)| name))
            }
            (_, Some(_)) => (Found::Nothing, looked.signature.map(|(name, _)| name)),
            (found, None) => (found, None),
        };
        if let (Some(classifier), Some(name)) = (&mut self.classifier, name) {
            classifier.found(stream.identity().flow_id, name, told.is_some());
        }
        let is_over = slot.tries >= TRIES || carries.is_some_and(|it| it != Carries::Any);
        match found {
            Found::Protocol(place) | Found::Usual(place) => {
                let mut connection = connection(stream);
                if !is_udp {
                    connection.retransmitted = Some(slot.repeated.map(u64::from));
                }
                let before = kept.map_or(0, |it| it.pieces().len() - usize::from(piece.is_some()));
                let pieces = looked.passed..before;
                let owner = stream.id / 2;
                self.begin(&mut slot, place, pieces, connection, owner, out);
            }
            Found::Nothing if is_udp || is_over || carries.is_some() => {
                if slot.stage == Stage::Watched {
                    self.watched.close(slot.number);
                }
                slot.stage = match is_over {
                    true => Stage::Foreign,
                    false => Stage::Unknown,
                };
            }
            Found::More | Found::Nothing => self.watch(&mut slot, stream.id / 2, piece, found),
        }
        *self.slot(stream.id / 2) = slot;
        slot
    }

    /// It stays open what is spoken: all that was said is kept.
    fn watch(&mut self, slot: &mut Slot, owner: u32, piece: Option<&Piece<'_>>, found: Found) {
        let is_first = slot.stage != Stage::Watched;
        if is_first {
            slot.stage = Stage::Watched;
            slot.number = self.watched.open(owner);
        }
        let Some(kept) = self.watched.get_mut(slot.number) else {
            return;
        };
        if let Some(piece) = piece.filter(|_| is_first) {
            kept.keep(piece);
            kept.begins_nothing(found);
        }
        if found == Found::Nothing && piece.is_some() {
            kept.shorten();
        }
        self.room.held += kept.held();
    }

    /// A conversation begins, with what was kept behind the pieces that are another's.
    fn begin(
        &mut self,
        slot: &mut Slot,
        place: u8,
        pieces: Range<usize>,
        connection: Connection,
        owner: u32,
        out: &mut dyn Outlet,
    ) {
        let Some(table) = self.tables.get_mut(usize::from(place)) else {
            return;
        };
        let number = table.open(connection, owner);
        if !pieces.is_empty() {
            let kept = self.watched.get_mut(slot.number);
            let said = kept.map(core::mem::take).unwrap_or_default();
            let kept = said.said().zip(said.pieces());
            self.with(usize::from(place), out, |table, give| {
                for (piece, kept) in kept.take(pieces.end).skip(pieces.start) {
                    table.data(number, &piece, give);
                    if kept.left_out > 0 {
                        let hole = Piece {
                            bytes: &[],
                            gap_before: kept.left_out.into(),
                            ..piece
                        };
                        table.data(number, &hole, give);
                    }
                }
            });
            if let Some(kept) = self.watched.get_mut(slot.number) {
                *kept = said;
            }
        }
        if slot.stage == Stage::Watched {
            self.watched.close(slot.number);
        }
        slot.stage = Stage::Known(place);
        slot.number = number;
    }

    /// Does something in the table of the protocol at this place.
    fn with<T: Default>(
        &mut self,
        place: usize,
        out: &mut dyn Outlet,
        work: impl FnOnce(&mut dyn Talks, &mut Give<'_>) -> T,
    ) -> T {
        let (Some(table), Some(protocol)) = (
            self.tables.get_mut(place),
            self.detector.protocols.get(place),
        ) else {
            return T::default();
        };
        let mut give = Give {
            out,
            key: 0,
            records: &mut self.records,
            held: &mut self.room.held,
            flow_id: None,
            vlans: Vlans::default(),
            among: Some(Among {
                learned: &mut self.learned,
                schemas: &mut self.schemas,
                protocol: protocol.name,
                classifier: self.classifier.as_mut(),
                is_silent: !self.gives_events,
                anomalies: self.anomalies.as_deref_mut(),
            }),
            files: self.files.as_mut(),
            each_message: self.each_message,
            limit: None,
        };
        work(&mut **table, &mut give)
    }

    /// Files of which ranges came, where no more are waited for; without a time all.
    fn give_joined(&mut self, now: Option<Nanos>, out: &mut dyn Outlet) {
        if let Some(place) = self.detector.place("http") {
            self.with(usize::from(place), out, |_, give| {
                http::give_joined(now, give)
            });
        }
    }

    /// Conversations keep more than they may: the oldest requests go on alone, and conversations in which none
    /// waits are given up, those first that were idle longest.
    #[cold]
    fn unwatch(&mut self, number: u32) {
        self.room.held -= self.watched.get(number).map_or(0, Kept::held);
        self.watched.close(number);
    }

    fn make_room(&mut self, out: &mut dyn Outlet) {
        let mut ages = ByAge::new();
        for (place, table) in self.tables.iter().enumerate() {
            table.ages(&mut |number, age| ages.push(Reverse((age, place, number))));
        }
        let watched = self.tables.len();
        for (number, kept) in self.watched.open_ones() {
            ages.push(Reverse((kept.last(), watched, number)));
        }
        while self.room.is_shrinking()
            && let Some(Reverse((_, place, number))) = ages.pop()
        {
            let kept = self.watched.get(number).filter(|_| place == watched);
            let given_up = match kept {
                Some(kept) => {
                    let owner = kept.owner;
                    self.unwatch(number);
                    GivenUp::Conversation(owner)
                }
                None => self.with(place, out, |table, give| {
                    give.limit = Some("memory");
                    table.give_up(number, give)
                }),
            };
            match given_up {
                GivenUp::Request(age) => {
                    self.room.requests += 1;
                    ages.push(Reverse((age, place, number)));
                }
                GivenUp::Conversation(owner) => {
                    self.room.conversations += 1;
                    // What it says next is looked at as if it were the first.
                    let slot = self.slot(owner);
                    (slot.stage, slot.tries) = (Stage::Unknown, 0);
                    if slot.ended & PASSED == 0 {
                        let streams = [owner * 2, owner * 2 + 1];
                        self.wants
                            .extend(streams.map(|stream| Want::From(stream, 0)));
                    }
                }
                GivenUp::Nothing => {}
            }
        }
    }
}

/// The responder, and the initiator.
fn ends(identity: &StreamIdentity, from_initiator: bool) -> [(Address, u16); 2] {
    match from_initiator {
        true => [identity.destination, identity.source],
        false => [identity.source, identity.destination],
    }
}

/// What conversations want to know of a stream's connection.
fn connection(stream: &Stream<'_>) -> Connection {
    let identity = stream.identity();
    let [responder, initiator] = ends(&identity, stream.from_initiator);
    let mut connection = Connection {
        initiator,
        responder,
        version: identity.version,
        is_udp: identity.protocol == 17,
        flow_id: Some(identity.flow_id),
        ..Connection::default()
    };
    stream.record(|record| {
        connection.vlans = Vlans::of(record.vlans);
        connection.is_partial = !record.history.contains(['S', 's', 'H', 'h']);
        if record.history.starts_with('S') {
            let syn = record.flow_start;
            let done = record.handshake_rtt.map(|rtt| Nanos(syn.0 + rtt.0));
            connection.handshake = [Some(syn), done];
        }
    });
    connection
}

/// Takes what the engine delivers.
pub(crate) struct Leading<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) out: &'a mut dyn Outlet,
}

impl Leading<'_> {
    #[cold]
    fn missed(&mut self, stream: &Stream<'_>, bytes: u64) {
        if let Some(classifier) = &mut self.state.classifier {
            classifier.missed(stream.identity().flow_id, stream.from_initiator, bytes);
        }
    }

    /// Less is wanted of a stream from `position` on.
    #[cold]
    fn less(&mut self, stream: u32, position: u64, wants: Wants) {
        let state = &mut *self.state;
        if wants == Wants::Nothing {
            state.slot(stream / 2).ended |= PASSED;
        }
        match wants {
            Wants::All => {}
            Wants::Behind(bytes) => {
                let from = position.saturating_add(bytes);
                state.wants.push_back(Want::From(stream, from));
            }
            Wants::Nothing => {
                let want = |stream| match state.unread {
                    Unread::Nothing => Want::Nothing(stream),
                    _ => Want::From(stream, u64::MAX),
                };
                state.wants.extend([stream, stream ^ 1].map(want));
            }
        }
    }

    #[inline]
    fn with<T: Default>(
        &mut self,
        slot: Slot,
        work: impl FnOnce(&mut dyn Talks, u32, &mut Give<'_>) -> T,
    ) -> T {
        match slot.stage {
            Stage::Known(place) => {
                (self.state).with(usize::from(place), self.out, |table, give| {
                    work(table, slot.number, give)
                })
            }
            _ => T::default(),
        }
    }

    fn end(&mut self, stream: &Stream<'_>, from_initiator: bool, trailing_gap: u64) {
        let slot = self.state.slot(stream.id / 2);
        let bit = 1 << u8::from(from_initiator);
        let had_ended = slot.ended & bit != 0;
        slot.ended |= bit;
        let slot = *slot;
        if !had_ended {
            let end = match stream.status {
                StreamStatus::Fin => StreamEnd::Fin,
                StreamStatus::Rst => StreamEnd::Rst,
                _ => StreamEnd::Timeout,
            };
            self.with(slot, |table, number, give| {
                let time = table.last(number);
                let piece = Piece {
                    bytes: &[],
                    gap_before: trailing_gap,
                    skipped: 0,
                    from_initiator,
                    time,
                };
                table.end(number, &piece, end, give);
            });
        }
    }
}

impl Handler for Leading<'_> {
    const STREAMS: bool = true;
    const REMARKS: bool = true;

    fn wants_flows(&self) -> bool {
        self.state.classifier.is_some()
    }

    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        if let Some(outer) = &mut self.state.outer {
            outer.choose(batch, decoded);
        }
    }

    #[inline(always)]
    fn prefetch(&mut self, stream: u32, has_payload: bool) {
        let connection = if has_payload { stream / 2 } else { u32::MAX };
        self.state.fetch(connection);
    }

    #[inline(always)]
    fn prefetch_end(&mut self, stream: u32, step: usize) {
        // (It is called for the other direction, too.)
        if stream.is_multiple_of(2) {
            self.state.fetch_step(stream / 2, step);
        }
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        *self.state.slot(stream.id / 2) = Slot::default();
    }

    #[inline(always)]
    fn want(&mut self) -> Option<Want> {
        self.state.wants.pop_front()
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let piece = Piece {
            bytes: chunk.bytes,
            gap_before: chunk.gap_before,
            skipped: chunk.skipped,
            from_initiator: stream.from_initiator,
            time: chunk.captured,
        };
        if chunk.gap_before > 0 {
            self.missed(stream, chunk.gap_before);
        }
        let mut slot = *self.state.slot(stream.id / 2);
        if slot.ended & EXAMINED == 0
            && let Some(classifier) = &mut self.state.classifier
            && !classifier.examine(stream, chunk)
        {
            slot.ended |= EXAMINED;
            *self.state.slot(stream.id / 2) = slot;
        }
        match slot.stage {
            // (What was not read by a conversation that was given up tells nothing.)
            Stage::Unknown | Stage::Watched if chunk.bytes.is_empty() => return,
            Stage::Unknown | Stage::Watched => {
                slot = self.state.look(stream, Some(&piece), self.out);
            }
            _ if slot.ended & PASSED != 0 => return,
            _ => {}
        }
        let wants = match slot.stage {
            Stage::Foreign => Wants::Nothing,
            _ => self.with(slot, |table, number, give| table.data(number, &piece, give)),
        };
        let is_examined = slot.ended & EXAMINED != 0 || self.state.classifier.is_none();
        let is_less = match wants {
            _ if !is_examined || self.state.unread == Unread::Gaps => false,
            Wants::All => false,
            Wants::Behind(bytes) => bytes >= LEAST_PASSED,
            Wants::Nothing => true,
        };
        if is_less {
            self.less(stream.id, chunk.offset + chunk.bytes.len() as u64, wants);
        }
        if self.state.room.is_short() {
            self.state.make_room(self.out);
        }
    }

    fn stream_remark(&mut self, stream: &Stream<'_>, remark: &Remark) {
        if remark.repeated == 0 {
            return;
        }
        let slot = self.state.slot(stream.id / 2);
        let repeated = &mut slot.repeated[usize::from(stream.from_initiator)];
        *repeated = repeated.saturating_add(u32::try_from(remark.repeated).unwrap_or(u32::MAX));
        let slot = *slot;
        if let Stage::Known(place) = slot.stage
            && let Some(table) = self.state.tables.get_mut(usize::from(place))
            && let Some(connection) = table.connection(slot.number)
        {
            connection.retransmitted = Some(slot.repeated.map(u64::from));
        }
    }

    fn stream_closed(&mut self, stream: &Stream<'_>) {
        // After a reset more may come.
        if stream.status == StreamStatus::Fin {
            self.end(stream, stream.from_initiator, 0);
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        if trailing_gap > 0 {
            self.missed(stream, trailing_gap);
        }
        self.end(stream, stream.from_initiator, trailing_gap);
        let slot = self.state.slot(stream.id / 2);
        if slot.ended & BOTH_ENDED != BOTH_ENDED {
            return;
        }
        if slot.stage == Stage::Watched {
            // Nothing more comes that could tell.
            slot.ended &= !BOTH_ENDED;
            self.state.look(stream, None, self.out);
            for from_initiator in [true, false] {
                self.end(stream, from_initiator, 0);
            }
        }
        let slot = core::mem::take(self.state.slot(stream.id / 2));
        match slot.stage {
            Stage::Watched => self.state.unwatch(slot.number),
            _ => self.with(slot, |table, number, give| table.close(number, give)),
        }
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        let state = &mut *self.state;
        let Some(classifier) = &mut state.classifier else {
            return;
        };
        let missing_bytes = classifier.missing_bytes(record);
        let spoken = classifier.of(record);
        let carried = carried(record, missing_bytes, state.is_over);
        let row = FlowRow::new(record, state.community_id_seed);
        let event = state.schemas.flow(spoken, carried, &row);
        state.records += 1;
        self.out.emit(Items::Records(&[RecordItem {
            key: 0,
            time: record.end,
            record: &event,
        }]));
    }
}

/// How much a flow carried.
fn carried(record: &FlowRecord<'_>, missing_bytes: u64, until_end: bool) -> Carried {
    Carried {
        stream_bytes: [record.source.stream_bytes, record.destination.stream_bytes],
        missing_bytes,
        until_end,
    }
}

impl State {
    /// Gives records of the flows of tunnels.
    fn give_outer(&mut self, step: &Step<'_, '_>, out: &mut dyn Outlet) {
        let Some(outer) = &mut self.outer else {
            return;
        };
        outer.step(step, |record| {
            let row = FlowRow::new(record, self.community_id_seed);
            let carried = carried(record, 0, self.is_over);
            let event = self.schemas.flow(Spoken::default(), carried, &row);
            self.records += 1;
            out.emit(Items::Records(&[RecordItem {
                key: 0,
                time: record.end,
                record: &event,
            }]));
        });
    }
}

impl Component for Transactions {
    fn start(&mut self) -> Result<(), Failure> {
        self.state.files.as_mut().map_or(Ok(()), Files::start)
    }

    fn interval(&self) -> Option<Nanos> {
        self.counters.as_ref().map(Counters::interval)
    }

    fn begin_step(&mut self, step: &Step<'_, '_>, _clock: Nanos) {
        self.state.is_over = matches!(step, Step::Finish);
    }

    fn take(&mut self, feed: Feed<'_, '_>, out: &mut dyn Outlet) {
        let state = &mut self.state;
        if state.anomalies.is_some() {
            feed.to(&mut Noticing(Leading { state, out }));
        } else {
            feed.to(&mut Leading { state, out });
        }
    }

    fn end_step(&mut self, step: &Step<'_, '_>, engine: Option<&Shard>, out: &mut dyn Outlet) {
        let state = &mut self.state;
        state.give_outer(step, out);
        let now = match step {
            Step::Packets(_) => return,
            Step::Tick(now) => Some(*now),
            Step::Finish => None,
        };
        if state.files.is_some() {
            state.give_joined(now, out);
        }
        if let (Some(counters), Some(engine)) = (&mut self.counters, engine) {
            let anomalies = state.anomalies.as_ref().map_or(0, |it| it.number);
            let mut way = Way {
                out,
                schemas: &mut state.schemas,
                records: &mut state.records,
            };
            let when = now.map_or(When::End, When::Tick);
            counters.look(engine, &state.room, anomalies, &when, &mut way);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.state.records))
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Box::default();
        self.state.tell(&mut account);
        Some(account)
    }
}
