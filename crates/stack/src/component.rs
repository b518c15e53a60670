//! What a component is: its description, and what it does with items.
//!
//! A component knows the items that it gets and nothing of its neighbours. It is described once, in
//! a [`ComponentInfo`]; help, documentation, checker and programming interfaces come from that.
//!
//! It gets whole batches. Inside a demultiplexer there is one component too, not one per key: each
//! item says to which key it belongs, as a small number ([`Packets::keys`]), and a component that
//! remembers things keeps them per number ([`PerKey`]). A number is reused, but only after
//! [`Component::close`] was called for it.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use flowgauge_capture::filter::{Columns, Refusal};

use flowgauge_record::AnyRecord;
use flowgauge_record::results::{Cell, Table, TableColumn};
use flowgauge_record::schema::Schema;
use flowgauge_stream::Shard;
use flowgauge_stream::offload::Verdicts;
use flowgauge_wire::{Address, Batch, Decoded, DecodedBatch, LinkType, Nanos, Selection};

use crate::account::Account;
use crate::engine::{Feed, Required, Step};
use crate::items::ItemType;
use crate::settings::{OptionInfo, Settings};
use crate::values::PacketValues;

/// All that is known of a component without running it.
#[derive(Clone, Copy, Debug)]
pub struct ComponentInfo {
    /// Its name in stacks, in lower case.
    pub name: &'static str,
    /// Other names, in lower case.
    pub aliases: &'static [&'static str],
    /// What it does, in a line.
    pub summary: &'static str,
    /// More, for its page.
    pub help: &'static str,
    /// What may stand in it.
    pub kind: ComponentKind,
    /// What it takes.
    pub input: Input,
    /// What it gives on.
    pub output: Output,
    /// Which fields the records have that it makes, where its settings and what comes tell.
    pub fields: fn(&Settings) -> Option<Schema>,
    /// Where the records that it makes are of several kinds: the fields of each.
    pub kinds: Option<fn() -> Vec<Schema>>,
    /// Whether a stack may end with it: it writes, keeps or counts what it gets.
    pub is_end: bool,
    /// Whether all chunks that it gives on are of one connection.
    pub is_of_one: bool,
    /// Why it must stand outside of demultiplexers; `None`: it need not.
    pub outside: Option<&'static str>,
    /// Its options.
    pub options: &'static [OptionInfo],
    /// What of it can be read while it runs.
    pub result: Option<ResultInfo>,
    /// How it can run on several cores.
    pub parallel: Parallel,
    /// Why one with these settings cannot run on several cores, although `parallel` says that others can.
    pub sequential: fn(&Settings) -> Option<&'static str>,
    /// Whether with these settings it takes frames as they are: it looks at [`Packets::batch`] alone, or at none of the
    /// packets, and [`Packets::decoded`] may be empty. Where all that packets come to is so, they are not decoded.
    pub decodes: fn(&Settings) -> bool,
    /// Of one that subscribes to flows and streams: the engine that it wants. Those of several stacks that stand in the
    /// same place and want equal ones share it. With `None` for these settings it has one of another kind itself.
    pub engine: Option<RequireEngine>,
    /// Whether with these settings it reads or writes something outside of the stack: a file, a socket. Two equal ones are then
    /// two; of others that begin several stacks in the same way there is one.
    pub effects: fn(&Settings) -> bool,
    /// Makes one. Opens nothing: what is outside is opened when the stack starts.
    pub make: fn(&Settings) -> Result<Box<dyn Component>, SettingError>,
}

impl ComponentInfo {
    /// What most components that take packets have in common: the rest of a description.
    pub const OF_PACKETS: Self = Self {
        name: "",
        aliases: &[],
        summary: "",
        help: "",
        kind: ComponentKind::Simple,
        input: Input::Of(&[ItemType::Packet]),
        output: Output::Same,
        fields: |_| None,
        kinds: None,
        is_end: false,
        is_of_one: false,
        outside: None,
        options: &[],
        result: None,
        parallel: Parallel::Anyhow,
        sequential: |_| None,
        decodes: |_| false,
        engine: None,
        effects: |_| false,
        make: |_| {
            Err(SettingError {
                option: None,
                message: "it says not how it is made".to_owned(),
                hint: None,
            })
        },
    };

    /// Whether one that begins later does what one does that runs: it selects items however they come, and keeps nothing.
    pub fn keeps_nothing(&self) -> bool {
        self.kind == ComponentKind::Simple
            && self.parallel == Parallel::Anyhow
            && self.output == Output::Same
            && self.result.is_none()
            && self.engine.is_none()
    }
}

/// Which engine a component with these settings asks for.
pub type RequireEngine = fn(&Settings) -> Result<Option<Required>, SettingError>;

/// What may stand in a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentKind {
    /// Nothing.
    Simple,
    /// Branches; each item goes to one of them, or on to what follows.
    Switch(Branches),
    /// A stack, once per key.
    Demux,
    /// Nothing; what follows it runs on a thread of its own. It stands in the outermost row.
    Thread,
}

/// Which branches a switch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branches {
    /// These, in this order.
    Fixed(&'static [&'static str]),
    /// As many as are written; options of kind [`crate::OptionKind::Branch`] say what goes where.
    ByOptions,
    /// As many as are written, all of the same kind.
    Any,
    /// As many as are written. Each gets what the switch says, and what follows it gets everything.
    Copies,
}

/// What a component takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Items of any type.
    Any,
    /// Items of one of these types.
    Of(&'static [ItemType]),
    /// Nothing: it stands at the beginning of a stack.
    Nothing,
}

/// What a component gives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// What it gets, or some of it.
    Same,
    /// Items of this type.
    Of(ItemType),
    /// Items of the type that this option names.
    Option(&'static str),
    /// Nothing.
    Nothing,
}

/// A result that can be read while a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultInfo {
    /// What it is, in a few words.
    pub summary: &'static str,
    /// Its unit, as "packets".
    pub unit: &'static str,
    /// The columns of a table; none: it is a number.
    pub columns: &'static [TableColumn],
    /// Whether each packet has a value of its own ([`Component::values`]).
    pub is_per_packet: bool,
}

impl ResultInfo {
    /// A number.
    pub const fn number(summary: &'static str, unit: &'static str) -> ResultInfo {
        ResultInfo {
            summary,
            unit,
            columns: &[],
            is_per_packet: false,
        }
    }

    /// A number that each packet has.
    pub const fn per_packet(summary: &'static str, unit: &'static str) -> ResultInfo {
        ResultInfo {
            is_per_packet: true,
            ..ResultInfo::number(summary, unit)
        }
    }

    /// A table.
    pub const fn table(summary: &'static str, columns: &'static [TableColumn]) -> ResultInfo {
        ResultInfo {
            columns,
            ..ResultInfo::number(summary, "rows")
        }
    }
}

/// Declares the columns of a table of results: name, kind of value, how rows of several cores are joined, help.
///
/// ```
/// flowgauge_stack::columns! {
///     static COLUMNS;
///     sender Text Key "who sends";
///     items Unsigned Sum "what came";
/// }
/// assert_eq!(COLUMNS.len(), 2);
/// ```
#[macro_export]
macro_rules! columns {
    (static $columns:ident; $($name:ident $kind:ident $merge:ident $help:literal;)*) => {
        static $columns: [$crate::TableColumn; [$(stringify!($name)),*].len()] = [$($crate::TableColumn::new(
            stringify!($name), $crate::FieldKind::$kind, $crate::Merge::$merge, $help,
        )),*];
    };
}

/// How a component can run on several cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// However its items are divided.
    Anyhow,
    /// As long as what belongs to one connection, both directions, is on one core.
    ByFlow,
    /// On one core, because of this.
    Never(&'static str),
}

/// An option's value that a component cannot work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// Which option; `None`: all together.
    pub option: Option<&'static str>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl SettingError {
    /// Of one option.
    pub fn of(option: &'static str, message: impl Into<String>) -> SettingError {
        SettingError {
            option: Some(option),
            message: message.into(),
            hint: None,
        }
    }

    /// Of all together.
    pub fn of_all(message: impl Into<String>) -> SettingError {
        SettingError {
            option: None,
            ..SettingError::of("", message)
        }
    }

    /// With what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> SettingError {
        self.hinted(Some(hint.into()))
    }

    /// With what to do about it, if that is known.
    #[must_use]
    pub fn hinted(self, hint: Option<String>) -> SettingError {
        SettingError { hint, ..self }
    }
}

/// What [`Component::receive`] came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Items were given to the outlet, or the time went on: the capture clock of what comes stands
    /// here now.
    Until(Nanos),
    /// Nothing came within the wait.
    Nothing,
    /// Nothing will come any more.
    End,
}

/// What [`Outlet::settle`] came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Settled {
    /// What was given would outlive this process, but for the state of components that count and compare.
    Yes,
    /// Not yet: what was sent has not arrived.
    Later,
    /// It cannot be known: another thread has it.
    Unknown,
}

/// Packets of one batch, on their way through a stack.
#[derive(Clone, Copy, Debug)]
pub struct Packets<'a> {
    /// Where their bytes are.
    pub batch: &'a Batch<'a>,
    /// Their headers.
    pub decoded: &'a DecodedBatch,
    /// Which of [`Batch::packets`] are meant; the same place in [`DecodedBatch::packets`] has the
    /// headers. A component that lets only some through takes the others out.
    pub selected: Selection,
    /// The key of each packet in the innermost demultiplexer, by its place in
    /// [`DecodedBatch::packets`]; 0 outside of all demultiplexers.
    pub keys: &'a [u32],
    /// Of packets that a component made: from which place in the batch of the source each comes, by
    /// its place here. Empty: these are the source's. What several cores made is put in order by it.
    pub origins: &'a [u16],
    /// How many packets of the source came before the batch.
    pub before: u64,
    /// What filters of its thread know of the batch and of `decoded`, where they share it.
    pub columns: Option<&'a RefCell<Columns>>,
}

impl<'a> Packets<'a> {
    /// All packets of a batch, outside of all demultiplexers. Where `decoded` is empty they are not
    /// decoded, and for components that do it themselves ([`ComponentInfo::decodes`]).
    pub fn new(batch: &'a Batch<'a>, decoded: &'a DecodedBatch) -> Packets<'a> {
        Packets {
            batch,
            decoded,
            selected: Selection::first(batch.len()),
            keys: &[],
            origins: &[],
            before: 0,
            columns: None,
        }
    }

    /// The position in the source, from 1, of the packet at a place; of one that a component made, that
    /// of the packet that completed it.
    pub fn position(&self, index: usize) -> u64 {
        let place = match self.origins.get(index) {
            Some(&origin) => usize::from(origin),
            None => {
                let decoded = self.decoded.packets.get(index);
                decoded.map_or(index, |decoded| usize::from(decoded.index))
            }
        };
        self.before + place as u64 + 1
    }

    /// The selected ones: place, headers.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &'a Decoded)> + use<'a> {
        let packets = &self.decoded.packets;
        self.selected
            .iter()
            .filter_map(move |index| Some((index, packets.get(index)?)))
    }

    /// Gives the places of the selected ones key by key, those of a key in order: for a component that
    /// does better with all packets of a key at once. `order` is memory that serves again.
    pub fn by_key(&self, order: &mut Vec<u64>, mut give: impl FnMut(u32, &[u64])) {
        order.clear();
        let places = self.selected.iter();
        order.extend(places.map(|place| u64::from(self.key(place)) << 32 | place as u64));
        order.sort_unstable();
        for group in order.chunk_by_mut(|one, other| one >> 32 == other >> 32) {
            let Some(key) = group.first().map(|first| (first >> 32) as u32) else {
                continue;
            };
            group.iter_mut().for_each(|of| *of &= u64::from(u32::MAX));
            give(key, group);
        }
    }

    /// The bytes of a packet, from its link-layer header.
    #[inline]
    pub fn bytes(&self, packet: &Decoded) -> &'a [u8] {
        self.decoded.bytes(self.batch, packet)
    }

    /// The key of the packet at a place.
    #[inline]
    pub fn key(&self, index: usize) -> u32 {
        self.keys.get(index).copied().unwrap_or(0)
    }
}

/// What takes packets out of a stack, in place of a component that would keep them
/// ([attached](crate::Settings::attach) as a [`SharedSink`]).
pub trait PacketSink: Send + Sync {
    /// Takes the selected ones, `snap` bytes at most of each.
    fn packets(&self, packets: &Packets<'_>, snap: usize);
}

/// A sink that several components may have.
pub type SharedSink = Arc<dyn PacketSink>;

/// Rows of a component's result that somebody takes, whom the source of its packets may wait for
/// ([attached](crate::Settings::attach) as [`SharedRows`]).
#[derive(Debug, Default)]
pub struct TakenRows {
    is_waited_for: AtomicBool,
    is_full: AtomicBool,
}

/// Rows that several instances of a component may have.
pub type SharedRows = Arc<TakenRows>;

impl TakenRows {
    /// Rows that a component keeps at most, as what was on its way when the source began to wait still comes.
    pub const MOST: usize = 32 << 10;

    /// Of a component that has `kept` rows and keeps `most` otherwise: whether one more is kept without the oldest being lost.
    pub fn keep(&self, kept: usize, most: usize) -> bool {
        if kept < most {
            return true;
        }
        self.is_full.store(true, Ordering::Relaxed);
        self.is_waited_for.load(Ordering::Relaxed) && kept < TakenRows::MOST
    }

    /// Of a component: its rows were taken.
    pub fn take(&self) {
        self.is_full.store(false, Ordering::Relaxed);
    }

    /// Of the source: whether it waits for whoever takes them.
    pub fn wait(&self, waits: bool) {
        self.is_waited_for.store(waits, Ordering::Relaxed);
    }

    /// Whether rows would be lost if more came.
    pub fn is_full(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed) && self.is_full.load(Ordering::Relaxed)
    }
}

/// What is known of one direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Who sends: address and port.
    pub source: (Address, u16),
    /// Who receives.
    pub destination: (Address, u16),
    /// 4 or 6.
    pub version: u8,
    /// Whether the connection's initiator sends it, as far as its first packets told.
    pub from_initiator: bool,
    /// Time of the connection's first packet.
    pub start: Nanos,
    /// Time of the SYN of this direction, if it was captured.
    pub syn: Option<Nanos>,
    /// Of the initiator's direction: time of the packet that completed the handshake.
    pub established: Option<Nanos>,
    /// Bytes that had been seen before: retransmissions.
    pub retransmitted: u64,
}

/// Bytes of one direction of a connection, in order.
#[derive(Clone, Copy, Debug)]
pub struct StreamChunk<'a> {
    /// Its key in the innermost demultiplexer.
    pub key: u32,
    /// The stream.
    pub stream: &'a StreamInfo,
    /// The bytes; empty only at the end.
    pub bytes: &'a [u8],
    /// Position of the first byte in the stream, holes counted. Where it is 0 a stream begins, be it
    /// under the key of one before.
    pub offset: u64,
    /// Bytes missing right before it; at the end those that are known to be missing there.
    pub gap_before: u64,
    /// Capture time of the packet that completed it.
    pub time: Nanos,
    /// When its bytes were there: the same, but of bytes behind a hole that was given up when they were captured.
    pub captured: Nanos,
    /// The stream is over: how it ended. Each stream that began has one such chunk.
    pub end: Option<StreamEnd>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum StreamEnd {
    /// Its sender closed it, and everything before its FIN was given out or is known to be missing.
    Fin,
    /// The connection was reset.
    Rst,
    /// Nothing came any more, or the key ended for another reason.
    Timeout,
}

impl StreamEnd {
    /// In records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A record on its way through a stack. What it is made of is borrowed: a component that keeps it
/// makes an [`flowgauge_record::OwnedRecord`] of it.
#[derive(Clone, Copy)]
pub struct RecordItem<'a> {
    /// Its key in the innermost demultiplexer.
    pub key: u32,
    /// Capture time at which it came to be.
    pub time: Nanos,
    /// The record.
    pub record: &'a dyn AnyRecord,
}

impl core::fmt::Debug for RecordItem<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RecordItem")
            .field("key", &self.key)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

/// Items that go from one component to the next.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Items<'a> {
    /// Packets, datagrams or segments.
    Packets(Packets<'a>),
    /// Chunks of streams.
    Chunks(&'a [StreamChunk<'a>]),
    /// Records: messages, transactions, flows.
    Records(&'a [RecordItem<'a>]),
}

impl Items<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Items::Packets(packets) => packets.selected.len(),
            Items::Chunks(chunks) => chunks.len(),
            Items::Records(records) => records.len(),
        }
    }

    /// Takes all of them out.
    pub fn clear(&mut self) {
        match self {
            Items::Packets(packets) => packets.selected = Selection::NONE,
            Items::Chunks(chunks) => *chunks = &[],
            Items::Records(records) => *records = &[],
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        match self {
            Items::Packets(packets) => packets.selected.is_empty(),
            Items::Chunks(chunks) => chunks.is_empty(),
            Items::Records(records) => records.is_empty(),
        }
    }
}

/// The way out of a component.
pub trait Outlet {
    /// Gives items to what follows.
    fn emit(&mut self, items: Items<'_>);

    /// The component cannot go on: a full disk, a peer that went away. The stack ends with the batch.
    fn fail(&mut self, failure: Failure);

    /// Nobody wants what the component gives any more, or it has what it waited for: the stack ends with
    /// the batch as if the input was over, and nothing is wrong.
    fn end(&mut self);

    /// The component needs no further input: the stack's input ends with the batch as if it were over,
    /// and what all components keep comes out.
    fn enough(&mut self) {}

    /// Of a source: when components look at the capture clock next. What is of that time or later is to
    /// come behind [`Outlet::advance`].
    fn next_look(&self) -> Nanos {
        Nanos(u64::MAX)
    }

    /// Of a source: the capture clock goes on to `now`, and components look at it.
    fn advance(&mut self, _now: Nanos) {}

    /// Of a source: has what follows it bring out of memory what it was given so far ([`Component::settle`]).
    fn settle(&mut self) -> Settled {
        Settled::Yes
    }

    /// The key of the innermost demultiplexer is finished, as a connection that has closed: it ends
    /// behind the items under way, as if by timeout. One outside of all demultiplexers is ignored.
    fn end_key(&mut self, _key: u32) {}

    /// What a key is, in words without blanks or slashes: of demultiplexers in one another each has a
    /// name, the outermost first. None outside of all of them.
    fn key_names(&self, _key: u32) -> Vec<String> {
        Vec::new()
    }

    /// The result, as it is now, of the component that an option names ([`crate::OptionKind::Reference`]).
    fn result(&self, _option: &str) -> Option<ResultValue> {
        None
    }

    /// The results of all components that an option names ([`crate::OptionKind::References`]), with
    /// their labels.
    fn results(&self, _option: &str) -> Vec<(String, ResultValue)> {
        Vec::new()
    }

    /// What the component that an option names has found for each packet of the batch at work.
    fn values(&self, _option: &str) -> Option<&PacketValues> {
        None
    }

    /// The same of all components that an option names.
    fn all_values(&self, _option: &str) -> Vec<Option<&PacketValues>> {
        Vec::new()
    }

    /// The number of the batch at work: [`PacketValues::begin`] wants it.
    fn batch(&self) -> u64 {
        0
    }
}

/// Why a component cannot begin, or go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong, and with what.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// Without a hint.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::of(message.into(), None)
    }

    /// Of an error, with what to do about it.
    pub fn of(error: impl core::fmt::Display, hint: Option<String>) -> Failure {
        Failure {
            message: error.to_string(),
            hint,
        }
    }

    /// With what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Failure {
        Failure {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// What a component does.
///
/// One that lets items through, or holds some back, changes `items` in [`Component::process`]: what is
/// left of it goes on. One that makes items of another type gives them to the [`Outlet`] and leaves
/// nothing in `items` ([`Output::Same`] tells which of the two it is).
pub trait Component: Send {
    /// Opens what is outside: files, sockets. Called once, before anything else.
    ///
    /// # Errors
    /// Why the stack cannot run.
    fn start(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Of a source ([`Input::Nothing`]): waits at most `wait` for items, gives what there is to
    /// `out`, and says how far the capture clock has come. It is called again and again, on a thread
    /// of its stack's own, until it says [`Received::End`] or the run is to end; then
    /// [`Component::finish`] follows. Keep to `wait`: a run that is to end waits for it. Packets are
    /// decoded and hashed by it ([`Packets::new`], `hash_batch`).
    fn receive(&mut self, _out: &mut dyn Outlet, _wait: Duration) -> Received {
        Received::End
    }

    /// Takes items; without it they go on. Not called of a source, and of what subscribes to an engine.
    fn process(&mut self, _items: &mut Items<'_>, _out: &mut dyn Outlet) {}

    /// Of what subscribes to an engine ([`ComponentInfo::engine`]): a step begins, with the engine's clock at `clock`.
    fn begin_step(&mut self, _step: &Step<'_, '_>, _clock: Nanos) {}

    /// Of what subscribes to an engine: takes what comes of it ([`Feed::to`]). This, not [`Component::process`] and
    /// [`Component::tick`], has packets and the clock go through it.
    fn take(&mut self, _feed: Feed<'_, '_>, _out: &mut dyn Outlet) {}

    /// Tells from now on what it wants of flows, and returns that it does. What does not wants all packets; the engine that it
    /// subscribes to tells it otherwise.
    fn set_offload(&mut self, _verdicts: &Verdicts) -> bool {
        false
    }

    /// Of what subscribes to an engine: whether it counts packets itself, so that all of them have to come.
    fn counts_packets(&self) -> bool {
        false
    }

    /// Of what subscribes to an engine: the step is over, and what waits is given on. `None`: it has an engine of
    /// another kind itself.
    fn end_step(&mut self, _step: &Step<'_, '_>, _engine: Option<&Shard>, _out: &mut dyn Outlet) {}

    /// Of a switch: says for each selected packet to which branch it goes. What is put into none of
    /// `branches` goes on to what follows.
    fn route(&mut self, _packets: &Packets<'_>, _branches: &mut [Selection]) {}

    /// Of a demultiplexer: gives each selected packet that has one the number of its key, and returns
    /// which have; the others go on to what follows. Equal keys in the same instance of what is
    /// around have the same number ([`crate::KeyTable`]).
    fn demultiplex(&mut self, _packets: &Packets<'_>, _keys: &mut [u32], _now: Nanos) -> Selection {
        Selection::NONE
    }

    /// The same for a chunk of a stream: the number of its key; `None`: it goes on.
    fn demultiplex_chunk(&mut self, _chunk: &StreamChunk<'_>) -> Option<u32> {
        None
    }

    /// Of a demultiplexer: the numbers of keys that have ended since it was asked last, by timeout at
    /// the time `now` or for another reason. They may be given to other keys once it is asked again.
    fn ended(&mut self, _now: Nanos, _ended: &mut Vec<u32>) {}

    /// Of a demultiplexer: to which key of what is around a key belongs.
    fn outer(&self, _key: u32) -> u32 {
        0
    }

    /// Of a demultiplexer: what a key is, in words without blanks or slashes. A key that has ended has
    /// its name until the number is another's.
    fn key_name(&self, _key: u32) -> Option<String> {
        None
    }

    /// Of a demultiplexer: a component inside says that a key is finished ([`Outlet::end_key`]).
    fn end_key(&mut self, _key: u32) {}

    /// Of a demultiplexer: the input is over, all keys end.
    fn end_all(&mut self) {}

    /// The key of this number has ended: what is kept for it is given out and forgotten. A
    /// demultiplexer ends all its keys that belong to it.
    fn close(&mut self, _key: u32, _out: &mut dyn Outlet) {}

    /// The keys of these numbers have ended: [`Component::close`] of each. Of a component that keeps
    /// nothing for keys that costs nothing.
    fn close_all(&mut self, keys: &[u32], out: &mut dyn Outlet) {
        for &key in keys {
            self.close(key, out);
        }
    }

    /// A copy that goes on from here ([`forked!`](crate::forked)): where several stacks share it, each that is removed while
    /// the others run gets what it would get at the end of the input. `None`: that one does not get what is kept here.
    fn fork(&self) -> Option<Box<dyn Component>> {
        None
    }

    /// Packets will be of these link types: what it compiles for each is compiled now. Where it cannot be, that is found with
    /// the first packet.
    fn expect(&mut self, _links: &[LinkType]) {}

    /// Whether it lets none of these packets through and does nothing else with them, if that is known for less than
    /// [`Component::process`] takes.
    fn refuses(&mut self, _packets: &Packets<'_>) -> bool {
        false
    }

    /// Once it has refused packets: where the columns of its thread say whether it refuses others, which then do not come to it.
    fn refusal(&self) -> Option<Refusal> {
        None
    }

    /// Whether [`Component::tick`] is wanted; it is by those that work in intervals.
    fn has_timer(&self) -> bool {
        self.interval().is_some()
    }

    /// The capture clock has gone on, where [`Component::has_timer`] says that this is wanted: some
    /// sixteen times a second, at the ends of intervals ([`Component::interval`]), and at the end of the
    /// input; always between two packets, and at the same packets whatever the batches are.
    fn tick(&mut self, _now: Nanos, _out: &mut dyn Outlet) {}

    /// The intervals in which it works, which begin at multiples of their length. A [`Component::tick`]
    /// comes before the first packet and at the end of each: when all packets of the interval have gone
    /// through the stack, and none of the next. Of components with a timer only.
    fn interval(&self) -> Option<Nanos> {
        None
    }

    /// Brings out of memory what it was given to write or send, so that it would outlive this process: a source then tells
    /// those that it has it from that it need not come again. False: that has to wait.
    fn settle(&mut self, _out: &mut dyn Outlet) -> bool {
        true
    }

    /// The input is over: what components before it keep comes, and then [`Component::finish`]. Nothing is captured meanwhile for which
    /// it must not wait.
    fn begin_finish(&mut self) {}

    /// The input is over: gives out what is kept outside of keys.
    fn finish(&mut self, _out: &mut dyn Outlet) {}

    /// Its result, where it has one.
    fn result(&self) -> Option<ResultValue> {
        None
    }

    /// Of one whose result is a table that is taken as it grows: its rows. It is asked often.
    fn rows(&self) -> Option<usize> {
        None
    }

    /// What else it has to tell of the run: packets that it refused, and what changes the meaning of its
    /// results. It is asked rarely.
    fn account(&self) -> Option<Box<Account>> {
        None
    }

    /// Its result where it is made of the results of those that its options name, when it is read.
    fn derived(&self, _of: &dyn Fn(&str) -> Option<ResultValue>) -> Option<ResultValue> {
        None
    }

    /// What it has found for each packet of the last batch, where it does.
    fn values(&self) -> Option<&PacketValues> {
        None
    }

    /// Forgets its result.
    fn reset(&mut self) {}
}

/// [`Component::fork`] of a component that can be cloned.
#[macro_export]
macro_rules! forked {
    () => {
        fn fork(&self) -> Option<Box<dyn $crate::Component>> {
            Some(Box::new(self.clone()))
        }
    };
}

/// A component's result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResultValue {
    /// A count, or a sum; those of several cores are added.
    Sum(u64),
    /// The last of something; that of the other core is taken.
    Last(u64),
    /// A difference; those of several cores are added.
    Difference(i64),
    /// More than a number; rows are joined as their columns say.
    Table(Table),
}

impl ResultValue {
    /// Takes in the result of the same component on another core.
    pub fn merge(&mut self, other: &ResultValue) {
        match (&mut *self, other) {
            (ResultValue::Sum(mine), ResultValue::Sum(theirs)) => {
                *mine = mine.saturating_add(*theirs);
            }
            (ResultValue::Difference(mine), ResultValue::Difference(theirs)) => {
                *mine = mine.saturating_add(*theirs);
            }
            (ResultValue::Table(mine), ResultValue::Table(theirs)) => mine.merge(theirs),
            _ => *self = other.clone(),
        }
    }

    /// A number as a whole number; `None` of a table.
    pub fn number(&self) -> Option<i128> {
        match self {
            ResultValue::Sum(value) | ResultValue::Last(value) => Some(i128::from(*value)),
            ResultValue::Difference(value) => Some(i128::from(*value)),
            ResultValue::Table(_) => None,
        }
    }

    /// A number as the value of a field; [`Cell::None`] of a table.
    pub fn cell(&self) -> Cell {
        match self {
            ResultValue::Sum(value) | ResultValue::Last(value) => Cell::Unsigned(*value),
            ResultValue::Difference(value) => Cell::Signed(*value),
            ResultValue::Table(_) => Cell::None,
        }
    }
}

impl core::fmt::Display for ResultValue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ResultValue::Sum(value) | ResultValue::Last(value) => value.fmt(f),
            ResultValue::Difference(value) => value.fmt(f),
            ResultValue::Table(table) => write!(f, "{} rows", table.rows.len()),
        }
    }
}

/// What a component keeps per key.
#[derive(Clone, Debug)]
pub struct PerKey<S> {
    states: Vec<Option<S>>,
}

impl<S> Default for PerKey<S> {
    fn default() -> PerKey<S> {
        PerKey { states: Vec::new() }
    }
}

impl<S: Default> PerKey<S> {
    /// That of a key, made if it is not there.
    #[inline]
    pub fn of(&mut self, key: u32) -> &mut S {
        let index = key as usize;
        if index >= self.states.len() {
            self.states.resize_with(index + 1, || None);
        }
        self.states[index].get_or_insert_with(S::default)
    }

    /// That of a key, if it is there.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&S> {
        self.states.get(key as usize)?.as_ref()
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: u32) -> Option<&mut S> {
        self.states.get_mut(key as usize)?.as_mut()
    }

    /// Takes that of a key out.
    pub fn take(&mut self, key: u32) -> Option<S> {
        self.states.get_mut(key as usize)?.take()
    }

    /// All that are there, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut S)> {
        let states = (0..).zip(&mut self.states);
        states.filter_map(|(key, state)| Some((key, state.as_mut()?)))
    }

    /// All that are there.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &S)> {
        let states = (0..).zip(&self.states);
        states.filter_map(|(key, state)| Some((key, state.as_ref()?)))
    }
}
