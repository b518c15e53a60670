//! Components: their descriptions, and what they do with items.
//!
//! A component knows its items, but not its neighbours. It is described once, in a [`ComponentInfo`], from which
//! help, documentation, checker and programming interfaces are generated.
//!
//! Components process batches. A component inside a demultiplexer is a single instance, not one per key: each item
//! carries the number of its key ([`Packets::keys`]), and stateful components keep their state per number
//! ([`PerKey`]). Numbers are small, and reused after [`Component::close`] was called.

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

/// The static description of a component.
#[derive(Clone, Copy, Debug)]
pub struct ComponentInfo {
    /// Its name in stacks, in lower case.
    pub name: &'static str,
    /// Other names, in lower case.
    pub aliases: &'static [&'static str],
    /// Its purpose in a line.
    pub summary: &'static str,
    /// Further help, for its page.
    pub help: &'static str,
    /// Whether it contains other components.
    pub kind: ComponentKind,
    /// Its input.
    pub input: Input,
    /// Its output.
    pub output: Output,
    /// Fields of the records that it creates, if they are determined by its settings and input.
    pub fields: fn(&Settings) -> Option<Schema>,
    /// If it creates records of several kinds: the fields of each kind.
    pub kinds: Option<fn() -> Vec<Schema>>,
    /// Whether a stack may end with it, because it writes, keeps or counts its items.
    pub is_end: bool,
    /// Whether all chunks that it emits belong to one connection.
    pub is_of_one: bool,
    /// The reason why it cannot be inside a demultiplexer; `None` if it can.
    pub outside: Option<&'static str>,
    /// Its options.
    pub options: &'static [OptionInfo],
    /// The result that can be read while it runs.
    pub result: Option<ResultInfo>,
    /// Whether and how it can run on several cores.
    pub parallel: Parallel,
    /// The reason why it cannot run on several cores with these settings, despite `parallel`.
    pub sequential: fn(&Settings) -> Option<&'static str>,
    /// Whether, with these settings, it needs no decoded headers: it uses only [`Packets::batch`], or no packets at
    /// all, so that [`Packets::decoded`] may be empty. Packets are not decoded if this is true of all components that
    /// get them.
    pub decodes: fn(&Settings) -> bool,
    /// For components that subscribe to flows and streams: the engine they require. Components of several stacks
    /// share an engine if their positions and requirements are equal. `None` if, with these settings, the component
    /// has its own engine of another kind.
    pub engine: Option<RequireEngine>,
    /// Whether, with these settings, it has effects outside of the stack, such as files and sockets. Such components
    /// are never shared between stacks; others are, if the stacks have an identical prefix.
    pub effects: fn(&Settings) -> bool,
    /// Creates the component. Files and sockets are opened later, when the stack starts.
    pub make: fn(&Settings) -> Result<Box<dyn Component>, SettingError>,
}

impl ComponentInfo {
    /// Defaults for components that process packets, as the base of a description.
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

    /// Whether it is stateless, so that an instance started later behaves like one that is running.
    pub fn keeps_nothing(&self) -> bool {
        self.kind == ComponentKind::Simple
            && self.parallel == Parallel::Anyhow
            && self.output == Output::Same
            && self.result.is_none()
            && self.engine.is_none()
    }
}

/// Returns the engine that a component with these settings requires.
pub type RequireEngine = fn(&Settings) -> Result<Option<Required>, SettingError>;

/// What a component contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentKind {
    /// Nothing.
    Simple,
    /// Branches; each item goes to one of them, or to the next component.
    Switch(Branches),
    /// A stack, once per key.
    Demux,
    /// Nothing; the components after it run on a separate thread. It must be in the outermost sequence.
    Thread,
}

/// The branches of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branches {
    /// These, in this order.
    Fixed(&'static [&'static str]),
    /// Any number; options of kind [`crate::OptionKind::Branch`] select a branch.
    ByOptions,
    /// Any number, all equivalent.
    Any,
    /// Any number. Each gets the items that the switch selects for it, and the next component gets all items.
    Copies,
}

/// The input of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Items of any type.
    Any,
    /// Items of one of these types.
    Of(&'static [ItemType]),
    /// None: it is a source, at the beginning of a stack.
    Nothing,
}

/// The output of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Its input, or a subset.
    Same,
    /// Items of this type.
    Of(ItemType),
    /// Items of the type named by this option.
    Option(&'static str),
    /// Nothing.
    Nothing,
}

/// A result that can be read while the component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultInfo {
    /// A short description.
    pub summary: &'static str,
    /// Its unit, such as "packets".
    pub unit: &'static str,
    /// The columns of a table; empty for a number.
    pub columns: &'static [TableColumn],
    /// Whether each packet has a value ([`Component::values`]).
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

    /// A number per packet.
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

/// Declares the columns of a result table: name, kind of value, how to merge rows of several cores, help.
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
    /// For any distribution of its items.
    Anyhow,
    /// If all items of a connection, in both directions, are on the same core.
    ByFlow,
    /// Not at all, for this reason.
    Never(&'static str),
}

/// An invalid value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The option; `None` if it is a combination of several.
    pub option: Option<&'static str>,
    /// The message.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl SettingError {
    /// An error in one option.
    pub fn of(option: &'static str, message: impl Into<String>) -> SettingError {
        SettingError {
            option: Some(option),
            message: message.into(),
            hint: None,
        }
    }

    /// An error in the combination of options.
    pub fn of_all(message: impl Into<String>) -> SettingError {
        SettingError {
            option: None,
            ..SettingError::of("", message)
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> SettingError {
        self.hinted(Some(hint.into()))
    }

    /// Adds what to do about it, if known.
    #[must_use]
    pub fn hinted(self, hint: Option<String>) -> SettingError {
        SettingError { hint, ..self }
    }
}

/// The result of [`Component::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Items were emitted, or time has passed; the capture clock of the source is now here.
    Until(Nanos),
    /// There were no items within the time.
    Nothing,
    /// There will be no more items.
    End,
}

/// The result of [`Outlet::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Settled {
    /// All emitted items are stored outside of the process, except for the state of counting and comparing
    /// components.
    Yes,
    /// Not yet: sent items have not arrived.
    Later,
    /// Unknown: another thread has the items.
    Unknown,
}

/// Packets of a batch in a stack.
#[derive(Clone, Copy, Debug)]
pub struct Packets<'a> {
    /// The batch with their bytes.
    pub batch: &'a Batch<'a>,
    /// Their headers.
    pub decoded: &'a DecodedBatch,
    /// The selected packets, as indices into [`Batch::packets`] and [`DecodedBatch::packets`]. Components that filter
    /// packets remove them from the selection.
    pub selected: Selection,
    /// The key of each packet in the innermost demultiplexer, by its index in [`DecodedBatch::packets`]; 0 outside of
    /// all demultiplexers.
    pub keys: &'a [u32],
    /// For packets created by a component: the index of the original packet in the source's batch, by which output of
    /// several cores is ordered. Empty for packets of the source.
    pub origins: &'a [u16],
    /// Number of packets of the source before this batch.
    pub before: u64,
    /// Field values of the batch that filters of this thread share.
    pub columns: Option<&'a RefCell<Columns>>,
}

impl<'a> Packets<'a> {
    /// All packets of a batch, outside of all demultiplexers. `decoded` may be empty for components that do not need
    /// it ([`ComponentInfo::decodes`]).
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

    /// The number in the source, starting at 1, of the packet at an index; for a packet created by a component, that
    /// of the packet which completed it.
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

    /// The selected packets, with their indices.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &'a Decoded)> + use<'a> {
        let packets = &self.decoded.packets;
        self.selected
            .iter()
            .filter_map(move |index| Some((index, packets.get(index)?)))
    }

    /// Passes the indices of the selected packets grouped by key, in order within a key, for components that are
    /// faster this way. `order` is a buffer to reuse.
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

    /// The key of the packet at an index.
    #[inline]
    pub fn key(&self, index: usize) -> u32 {
        self.keys.get(index).copied().unwrap_or(0)
    }
}

/// Takes packets out of a stack, instead of the component that would keep them ([attached](crate::Settings::attach)
/// as a [`SharedSink`]).
pub trait PacketSink: Send + Sync {
    /// Takes the selected packets, at most `snap` bytes of each.
    fn packets(&self, packets: &Packets<'_>, snap: usize);
}

/// A sink that components can share.
pub type SharedSink = Arc<dyn PacketSink>;

/// Flow control for a reader that takes the rows of a component's result; the source of its packets may wait for it
/// ([attached](crate::Settings::attach) as [`SharedRows`]).
#[derive(Debug, Default)]
pub struct TakenRows {
    is_waited_for: AtomicBool,
    is_full: AtomicBool,
}

/// Flow control that instances of a component can share.
pub type SharedRows = Arc<TakenRows>;

impl TakenRows {
    /// Maximum number of rows kept; packets in flight when the source starts to wait can still add rows.
    pub const MOST: usize = 32 << 10;

    /// For a component with `kept` rows and a normal limit of `most`: whether another row fits without losing the
    /// oldest.
    pub fn keep(&self, kept: usize, most: usize) -> bool {
        if kept < most {
            return true;
        }
        self.is_full.store(true, Ordering::Relaxed);
        self.is_waited_for.load(Ordering::Relaxed) && kept < TakenRows::MOST
    }

    /// Called by the component when its rows were taken.
    pub fn take(&self) {
        self.is_full.store(false, Ordering::Relaxed);
    }

    /// Called by the source: whether it waits for the reader.
    pub fn wait(&self, waits: bool) {
        self.is_waited_for.store(waits, Ordering::Relaxed);
    }

    /// Whether rows would be lost if more came.
    pub fn is_full(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed) && self.is_full.load(Ordering::Relaxed)
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Address and port of the sender.
    pub source: (Address, u16),
    /// Address and port of the receiver.
    pub destination: (Address, u16),
    /// 4 or 6.
    pub version: u8,
    /// Whether the sender initiated the connection, as far as its first packets show.
    pub from_initiator: bool,
    /// Time of the connection's first packet.
    pub start: Nanos,
    /// Time of the SYN of this direction, if it was captured.
    pub syn: Option<Nanos>,
    /// In the initiator's direction: time of the packet that completed the handshake.
    pub established: Option<Nanos>,
    /// Retransmitted bytes.
    pub retransmitted: u64,
}

/// Bytes of one direction of a connection, in order.
#[derive(Clone, Copy, Debug)]
pub struct StreamChunk<'a> {
    /// Its key in the innermost demultiplexer.
    pub key: u32,
    /// The stream.
    pub stream: &'a StreamInfo,
    /// Its bytes; empty only at the end of the stream.
    pub bytes: &'a [u8],
    /// Stream offset of the first byte, including holes. 0 marks the start of a stream, possibly with the key of an
    /// earlier one.
    pub offset: u64,
    /// Bytes missing right before it; at the end of the stream, bytes known to be missing there.
    pub gap_before: u64,
    /// Capture time of the packet that completed it.
    pub time: Nanos,
    /// Time at which its bytes were available. Differs from `time` for bytes after a hole that was given up: the time
    /// of their capture.
    pub captured: Nanos,
    /// How the stream ended, in its last chunk. Every stream has exactly one such chunk.
    pub end: Option<StreamEnd>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum StreamEnd {
    /// The sender closed it, and all data before the FIN was delivered or is known to be missing.
    Fin,
    /// The connection was reset.
    Rst,
    /// Timeout, or another end of its key.
    Timeout,
}

impl StreamEnd {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A record in a stack. It is borrowed: to keep it, convert it to an [`flowgauge_record::OwnedRecord`].
#[derive(Clone, Copy)]
pub struct RecordItem<'a> {
    /// Its key in the innermost demultiplexer.
    pub key: u32,
    /// Capture time of its creation.
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

/// Items passed from one component to the next.
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
    /// Number of items.
    pub fn len(&self) -> usize {
        match self {
            Items::Packets(packets) => packets.selected.len(),
            Items::Chunks(chunks) => chunks.len(),
            Items::Records(records) => records.len(),
        }
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        match self {
            Items::Packets(packets) => packets.selected = Selection::NONE,
            Items::Chunks(chunks) => *chunks = &[],
            Items::Records(records) => *records = &[],
        }
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        match self {
            Items::Packets(packets) => packets.selected.is_empty(),
            Items::Chunks(chunks) => chunks.is_empty(),
            Items::Records(records) => records.is_empty(),
        }
    }
}

/// The output of a component, and its access to the stack.
pub trait Outlet {
    /// Passes items to the next component.
    fn emit(&mut self, items: Items<'_>);

    /// Reports that the component cannot continue, because of a full disk or a lost peer. The stack ends after the
    /// batch.
    fn fail(&mut self, failure: Failure);

    /// Ends the stack after the batch, without an error, as if the input had ended: the reader of the output has
    /// gone, or an awaited event has occurred.
    fn end(&mut self);

    /// Ends the stack's input after the batch: the component needs no more. All components still emit the items they
    /// keep.
    fn enough(&mut self) {}

    /// For sources: the capture time of the components' next tick. Call [`Outlet::advance`] before emitting items of
    /// that time or later.
    fn next_look(&self) -> Nanos {
        Nanos(u64::MAX)
    }

    /// For sources: advances the capture clock to `now`, with the components' ticks.
    fn advance(&mut self, _now: Nanos) {}

    /// For sources: makes the following components store everything emitted so far outside of the process
    /// ([`Component::settle`]).
    fn settle(&mut self) -> Settled {
        Settled::Yes
    }

    /// Ends a key of the innermost demultiplexer, for example because its connection was closed. Takes effect after
    /// the current items, like a timeout. Ignored outside of demultiplexers.
    fn end_key(&mut self, _key: u32) {}

    /// The names of a key, without blanks and slashes: one per enclosing demultiplexer, the outermost first.
    fn key_names(&self, _key: u32) -> Vec<String> {
        Vec::new()
    }

    /// The current result of the component named by an option ([`crate::OptionKind::Reference`]).
    fn result(&self, _option: &str) -> Option<ResultValue> {
        None
    }

    /// The results of all components named by an option ([`crate::OptionKind::References`]), with their labels.
    fn results(&self, _option: &str) -> Vec<(String, ResultValue)> {
        Vec::new()
    }

    /// The values of the component named by an option, for each packet of the current batch.
    fn values(&self, _option: &str) -> Option<&PacketValues> {
        None
    }

    /// The same for all components named by an option.
    fn all_values(&self, _option: &str) -> Vec<Option<&PacketValues>> {
        Vec::new()
    }

    /// The number of the current batch, for [`PacketValues::begin`].
    fn batch(&self) -> u64 {
        0
    }
}

/// Why a component cannot start or continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed, and where.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::of(message.into(), None)
    }

    /// A failure from an error, with what to do about it.
    pub fn of(error: impl core::fmt::Display, hint: Option<String>) -> Failure {
        Failure {
            message: error.to_string(),
            hint,
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Failure {
        Failure {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// The behaviour of a component.
///
/// A component that passes on or filters items ([`Output::Same`]) modifies `items` in [`Component::process`]; the
/// rest goes to the next component. One that creates other items emits them to the [`Outlet`] and clears `items`.
pub trait Component: Send {
    /// Opens files and sockets. Called once, before anything else.
    ///
    /// # Errors
    /// The reason why the stack cannot run.
    fn start(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// For sources ([`Input::Nothing`]): waits at most `wait` for items, emits them, and returns the capture clock.
    /// Called repeatedly on a separate thread until it returns [`Received::End`] or the run ends, followed by
    /// [`Component::finish`]. The end of a run is delayed by up to `wait`. Sources decode and hash packets themselves
    /// ([`Packets::new`], `hash_batch`).
    fn receive(&mut self, _out: &mut dyn Outlet, _wait: Duration) -> Received {
        Received::End
    }

    /// Processes items; the default passes them on. Not called for sources and engine subscribers.
    fn process(&mut self, _items: &mut Items<'_>, _out: &mut dyn Outlet) {}

    /// For engine subscribers ([`ComponentInfo::engine`]): a step starts, with the engine's clock at `clock`.
    fn begin_step(&mut self, _step: &Step<'_, '_>, _clock: Nanos) {}

    /// For engine subscribers: processes the engine's events ([`Feed::to`]), instead of [`Component::process`] and
    /// [`Component::tick`].
    fn take(&mut self, _feed: Feed<'_, '_>, _out: &mut dyn Outlet) {}

    /// Makes the component report which packets of flows it needs, and returns true if it does. Otherwise it gets all
    /// packets, unless its engine reports for it.
    fn set_offload(&mut self, _verdicts: &Verdicts) -> bool {
        false
    }

    /// For engine subscribers: whether it counts packets itself and therefore needs all of them.
    fn counts_packets(&self) -> bool {
        false
    }

    /// For engine subscribers: ends the step and emits pending items. `engine` is `None` for a component with its own
    /// engine of another kind.
    fn end_step(&mut self, _step: &Step<'_, '_>, _engine: Option<&Shard>, _out: &mut dyn Outlet) {}

    /// For switches: assigns each selected packet to a branch. Packets in none of `branches` go to the next
    /// component.
    fn route(&mut self, _packets: &Packets<'_>, _branches: &mut [Selection]) {}

    /// For demultiplexers: sets the key number of each selected packet that has a key, and returns those packets;
    /// others go to the next component. Equal keys in the same instance of the enclosing demultiplexer have the same
    /// number ([`crate::KeyTable`]).
    fn demultiplex(&mut self, _packets: &Packets<'_>, _keys: &mut [u32], _now: Nanos) -> Selection {
        Selection::NONE
    }

    /// The same for a chunk of a stream: the number of its key, or `None` to pass it to the next component.
    fn demultiplex_chunk(&mut self, _chunk: &StreamChunk<'_>) -> Option<u32> {
        None
    }

    /// For demultiplexers: numbers of the keys that ended since the last call, by timeout at `now` or for another
    /// reason. They may be reused after the next call.
    fn ended(&mut self, _now: Nanos, _ended: &mut Vec<u32>) {}

    /// For demultiplexers: the key of the enclosing demultiplexer that a key belongs to.
    fn outer(&self, _key: u32) -> u32 {
        0
    }

    /// For demultiplexers: the name of a key, without blanks and slashes. An ended key keeps its name until its
    /// number is reused.
    fn key_name(&self, _key: u32) -> Option<String> {
        None
    }

    /// For demultiplexers: a component inside ended a key ([`Outlet::end_key`]).
    fn end_key(&mut self, _key: u32) {}

    /// For demultiplexers: the input ended, and with it all keys.
    fn end_all(&mut self) {}

    /// The key of this number ended: emits and frees its state. Demultiplexers end all keys inside it.
    fn close(&mut self, _key: u32, _out: &mut dyn Outlet) {}

    /// The keys of these numbers ended: calls [`Component::close`] for each. Free of cost for components without
    /// state.
    fn close_all(&mut self, keys: &[u32], out: &mut dyn Outlet) {
        for &key in keys {
            self.close(key, out);
        }
    }

    /// Copies the component with its state ([`forked!`](crate::forked)), so that a stack that shares it can be
    /// removed while others continue, and still gets the items of the end of its input. With `None`, these items are
    /// lost to that stack.
    fn fork(&self) -> Option<Box<dyn Component>> {
        None
    }

    /// Announces the link types of packets, so that filters can be compiled early. Errors are reported with the first
    /// packet.
    fn expect(&mut self, _links: &[LinkType]) {}

    /// Whether it would discard all of these packets without any other effect, if that is cheaper to find out than
    /// with [`Component::process`].
    fn refuses(&mut self, _packets: &Packets<'_>) -> bool {
        false
    }

    /// After it refused packets: which columns of its thread tell whether it refuses others, which are then not
    /// passed to it.
    fn refusal(&self) -> Option<Refusal> {
        None
    }

    /// Whether it needs [`Component::tick`], as components that work in intervals do.
    fn has_timer(&self) -> bool {
        self.interval().is_some()
    }

    /// The capture clock advanced. Called if [`Component::has_timer`], about sixteen times per second of capture
    /// time, at the ends of intervals ([`Component::interval`]), and at the end of the input; always between the same
    /// two packets, regardless of batches.
    fn tick(&mut self, _now: Nanos, _out: &mut dyn Outlet) {}

    /// The length of its intervals, which start at multiples of it. [`Component::tick`] is called before the first
    /// packet and at the end of each interval, after all of its packets and before those of the next. Only for
    /// components with a timer.
    fn interval(&self) -> Option<Nanos> {
        None
    }

    /// Stores items that it is to write or send outside of the process, so that a source can acknowledge them.
    /// Returns false if that must wait.
    fn settle(&mut self, _out: &mut dyn Outlet) -> bool {
        true
    }

    /// The input ended. Items kept by preceding components follow, then [`Component::finish`]. It may block from now
    /// on, as nothing is captured any more.
    fn begin_finish(&mut self) {}

    /// The input ended: emits items kept outside of keys.
    fn finish(&mut self, _out: &mut dyn Outlet) {}

    /// Its result, if it has one.
    fn result(&self) -> Option<ResultValue> {
        None
    }

    /// If its result is a table whose rows are taken as it grows: the number of rows. Called often.
    fn rows(&self) -> Option<usize> {
        None
    }

    /// Further information about the run: packets that it refused, and notes that qualify its results. Called rarely.
    fn account(&self) -> Option<Box<Account>> {
        None
    }

    /// Its result, if it is computed from results of the components that its options name.
    fn derived(&self, _of: &dyn Fn(&str) -> Option<ResultValue>) -> Option<ResultValue> {
        None
    }

    /// Its values for the packets of the last batch, if it has any.
    fn values(&self) -> Option<&PacketValues> {
        None
    }

    /// Resets its result.
    fn reset(&mut self) {}
}

/// Implements [`Component::fork`] for a component that can be cloned.
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
    /// A count or sum; values of several cores are added.
    Sum(u64),
    /// A last value; that of the other core is taken.
    Last(u64),
    /// A difference; values of several cores are added.
    Difference(i64),
    /// A table; rows of several cores are merged as declared for its columns.
    Table(Table),
}

impl ResultValue {
    /// Merges the result of the same component on another core.
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

    /// The number; `None` for a table.
    pub fn number(&self) -> Option<i128> {
        match self {
            ResultValue::Sum(value) | ResultValue::Last(value) => Some(i128::from(*value)),
            ResultValue::Difference(value) => Some(i128::from(*value)),
            ResultValue::Table(_) => None,
        }
    }

    /// The number as a field value; [`Cell::None`] for a table.
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

/// The state of a component, per key.
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
    /// The state of a key, created if it does not exist.
    #[inline]
    pub fn of(&mut self, key: u32) -> &mut S {
        let index = key as usize;
        if index >= self.states.len() {
            self.states.resize_with(index + 1, || None);
        }
        self.states[index].get_or_insert_with(S::default)
    }

    /// The state of a key, if it exists.
    #[inline]
    pub fn get(&self, key: u32) -> Option<&S> {
        self.states.get(key as usize)?.as_ref()
    }

    /// The same, mutable.
    #[inline]
    pub fn get_mut(&mut self, key: u32) -> Option<&mut S> {
        self.states.get_mut(key as usize)?.as_mut()
    }

    /// Removes the state of a key.
    pub fn take(&mut self, key: u32) -> Option<S> {
        self.states.get_mut(key as usize)?.take()
    }

    /// All keys with their state, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut S)> {
        let states = (0..).zip(&mut self.states);
        states.filter_map(|(key, state)| Some((key, state.as_mut()?)))
    }

    /// All keys with their state.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &S)> {
        let states = (0..).zip(&self.states);
        states.filter_map(|(key, state)| Some((key, state.as_ref()?)))
    }
}
