//! `input`: takes what `output`s on other machines send, from them or from a topic of Kafka.

mod origin;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use flowgauge_capture::Gathered;
use flowgauge_link::{Event, ReceivedItems, Reception, SessionCounts, SessionId};
use flowgauge_record::AnyRecord;
use flowgauge_record::results::{Cell, Table};
use flowgauge_stack::{
    Component, ComponentInfo, Failure, Input, Items, Outlet, Output, Packets, Parallel, Received,
    RecordItem, ResultInfo, ResultValue, SettingError, Settings, Settled, StreamChunk, columns,
    options,
};
use flowgauge_wire::decode::Decoder as HeaderDecoder;
use flowgauge_wire::{BATCH_SIZE, Batch, DecodedBatch, Nanos, hash_batch};

use self::origin::{From, of_links, of_topic};
use super::codec::{Announced, Decoder, Kind};
use super::failure;
use super::kafka;
use super::merge::{Standing, choose, horizon};
use super::source::{Run, Source, refused};

/// Runs of packets that are shorter are copied together, so that batches are not tiny.
const LONG_RUN: usize = 64;
/// Items given out before events are looked at again.
const MOST_AT_ONCE: usize = 16 * BATCH_SIZE;
/// Events taken before items are given out again.
const MOST_EVENTS: usize = 1024;
/// Sessions of one sender that left without an end and may come back.
const MOST_LEFT: usize = 16;
/// Interfaces of all senders.
const MOST_INTERFACES: usize = 65_536;

columns! {
    static COLUMNS;
    sender Text Key "name in the sender's certificate; of a topic, it and the partition";
    received Unsigned Sum "items that came";
    lost Unsigned Sum "items that the sender's spool had no room for";
    before Unsigned Sum "items that an input had taken before this one was started";
    repeated Unsigned Sum "items that came again after a connection broke, and were left out";
    late Unsigned Sum "items of a time before what had been given on";
    refused Unsigned Sum "items of another type, or damaged";
    gone Unsigned Sum "items that were last known to be with a sender that did not come back";
}

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "input",
    summary: "receives items from outputs on other machines",
    help: "Listens for senders with certificates of the same authority (flowgauge keys), and passes their items on in \
       time order: an item waits until each sender has announced that it has no earlier one. A sender that is silent \
       for the timeout is no longer waited for.\n\n  With \"kafka\" it consumes records from a topic, as a member of \
       a group of any number of inputs that share its partitions: docs/kafka.md.",
    input: Input::Nothing,
    output: Output::Option("type"),
    options: Options::ALL,
    result: Some(ResultInfo::table("what came from whom", &COLUMNS)),
    parallel: Parallel::Never("it puts what comes in order"),
    effects: |_| true,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    listen: Text, "address and port: 192.0.2.1:2233, [::]:2233";
    r#type: Choice("packet", "chunk", "record", "flow") = "packet", "type of the items";
    senders: Integer(1, 1024) as usize,
        "number of senders: wait for all before passing anything on, and end when all have ended; default: accept \
        all, until stopped. Items left by an earlier run of a sender do not count as another one";
    timeout: Duration as Duration = "10s", "how long to wait for a silent sender";
    forget: Duration as Duration = "10m",
        "how long a sender that disconnected without ending may take to return; after that it is forgotten, and its \
        known items count as lost";
    allow: Text, "names that may send, separated by blanks; default: all of the authority";
    queue: Size as usize = "16M",
        "memory for waiting items of each sender (over all its sessions) or partition; one that is ahead is delayed";
    memory: Size as usize = "256M", "memory for waiting items of all senders; at the limit, all are delayed";
    [super::KEYS, super::IDENTITY, kafka::KAFKA];
    group: Text, "with kafka: consumer group whose members share the partitions";
    until: Choice("stopped", "end") = "stopped",
        "with kafka: end when this member's partitions have been read to the end, or after the timeout if it has none";
    numbers: Flag = "no",
        "with kafka: add the fields session and number, which are the same for the same record, to recognise \
        duplicates after a process was killed";
    [kafka::TOPIC, kafka::PLAIN, kafka::USER, kafka::PASSWORD, kafka::SASL];
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let wanted = Options::read(settings);
    let kind = match wanted.r#type {
        "chunk" => Kind::Chunks,
        "record" | "flow" => Kind::Records,
        _ => Kind::Packets,
    };
    let from = match settings.text("kafka") {
        Some(brokers) => of_topic(settings, brokers, kind, &wanted)?,
        None => of_links(settings, &wanted)?,
    };
    Ok(Box::new(FromNetwork {
        taken: Taken {
            kind,
            is_merged: matches!(from, From::Links { .. }),
            numbers: wanted.numbers,
            ..Taken::default()
        },
        from,
        senders: wanted.senders,
        timeout: wanted.timeout,
        forget: wanted.forget,
        forgotten: Vec::new(),
        reception: None,
        begun: None,
        counts: Vec::new(),
    }))
}

struct FromNetwork {
    from: From,
    senders: Option<usize>,
    timeout: Duration,
    forget: Duration,
    /// Of senders that did not come back.
    forgotten: Vec<SessionCounts>,
    reception: Option<Box<dyn Reception>>,
    /// When the first sender came.
    begun: Option<Instant>,
    taken: Taken,
    /// In the end.
    counts: Vec<(SessionId, SessionCounts)>,
}

/// What came and was not given on.
#[derive(Default)]
struct Taken {
    kind: Kind,
    /// Items wait until nobody can have earlier ones.
    is_merged: bool,
    /// Records get their numbers.
    numbers: bool,
    sources: BTreeMap<SessionId, Source>,
    /// Numbers of interfaces here, by session and number there.
    interfaces: BTreeMap<(SessionId, u16), u16>,
    /// No item before this was kept waiting.
    clock: u64,
    decoder: HeaderDecoder,
    decoded: DecodedBatch,
    /// Packets of short runs.
    gathered: Gathered,
    /// Frames of which all was given on.
    done: Vec<ReceivedItems>,
    /// Sessions that have ended, and of which all was given on: late and refused items by name.
    closed: BTreeMap<String, (u64, u64)>,
    /// How many, without those that earlier runs had left.
    closed_count: usize,
}

/// Items that were last known to be with a sender that is not here.
fn gone(counts: &SessionCounts) -> u64 {
    let known = counts.before + counts.received + counts.lost;
    match counts.is_connected {
        true => 0,
        false => counts.accepted.saturating_sub(known),
    }
}

impl FromNetwork {
    fn event(&mut self, event: Event) {
        let Taken {
            kind,
            is_merged,
            numbers,
            ..
        } = self.taken;
        match event {
            Event::Joined {
                session,
                peer,
                is_left,
                ..
            } => {
                self.begun.get_or_insert_with(Instant::now);
                let source = self.taken.sources.entry(session).or_insert_with(|| Source {
                    name: peer.name,
                    announced: Announced::default(),
                    frames: VecDeque::new(),
                    decoder: None,
                    read: 0,
                    run: Run::new(kind),
                    at: 0,
                    watermark: 0,
                    moved: Instant::now(),
                    is_connected: true,
                    left: None,
                    is_awaited: is_merged,
                    has_ended: false,
                    is_left,
                    is_whole: !is_merged,
                    numbers,
                    late: 0,
                    refused: 0,
                });
                source.moved = Instant::now();
                source.is_connected = true;
                source.left = None;
                source.is_awaited = is_merged && !source.has_ended;
            }
            Event::Announced {
                session, payload, ..
            } => {
                if let Some(source) = self.taken.sources.get_mut(&session)
                    && !source.announced.add(&payload)
                {
                    refused(&source.name, source.refused, None, kind);
                }
            }
            Event::Items(items) => {
                if let Some(source) = self.taken.sources.get_mut(&items.session) {
                    source.promise(items.watermark);
                    source.is_awaited = is_merged && !source.has_ended;
                    source.frames.push_back(items);
                }
            }
            Event::Time { session, watermark } => {
                if let Some(source) = self.taken.sources.get_mut(&session) {
                    source.promise(watermark);
                    source.is_awaited |= watermark >= self.taken.clock && !source.has_ended;
                }
            }
            // It may come back; the timeout says how long that is hoped.
            Event::Left { session, .. } => {
                if let Some(source) = self.taken.sources.get_mut(&session) {
                    source.is_connected = false;
                    source.left = Some(Instant::now());
                }
            }
            Event::Ended(end) => {
                if let Some(source) = self.taken.sources.get_mut(&end.session) {
                    source.has_ended = true;
                    source.is_awaited = false;
                }
                end.done();
            }
        }
    }

    fn next(&mut self, wait: Duration) -> Option<Event> {
        self.reception.as_mut()?.next(wait)
    }

    /// Tells those who have what came that it need not come again, once what became of it is out of memory.
    fn settle(&mut self, out: &mut dyn Outlet) {
        let due = self
            .reception
            .as_mut()
            .filter(|reception| reception.is_due());
        let Some(reception) = due else {
            return;
        };
        match out.settle() {
            // It says why it cannot, and is asked again.
            Settled::Yes => drop(reception.settle()),
            Settled::Later => {}
            Settled::Unknown => out.fail(
                Failure::new("items after \"thread\" may be lost if this process is killed")
                    .with_hint("leave thread out of a stack that takes from Kafka; several inputs of a group share the work"),
            ),
        }
    }

    /// Waits no longer for those that were silent for too long.
    fn give_up(&mut self) {
        for source in self.taken.sources.values_mut() {
            if source.is_awaited && source.is_drained() && source.moved.elapsed() >= self.timeout {
                source.is_awaited = false;
                flowgauge_link::tell(format_args!(
                    "{}: its time has stood still for {} s, others no longer wait for it",
                    source.name,
                    self.timeout.as_secs()
                ));
            }
        }
    }

    /// Those that left first, of senders of whom too many sessions did.
    fn crowd(&self) -> Vec<SessionId> {
        let sources = self.taken.sources.iter();
        let mut left: Vec<(&str, Instant, SessionId)> = sources
            .filter(|(_, source)| !source.has_ended)
            .filter_map(|(id, source)| Some((source.name.as_str(), source.left?, *id)))
            .collect();
        if left.len() <= MOST_LEFT {
            return Vec::new();
        }
        left.sort_unstable();
        let of_one = left.chunk_by(|one, other| one.0 == other.0);
        of_one
            .flat_map(|left| &left[..left.len().saturating_sub(MOST_LEFT)])
            .map(|(_, _, id)| *id)
            .collect()
    }

    /// Forgets those that left long ago and did not come back.
    fn forget(&mut self) {
        let crowd = self.crowd();
        let Some(reception) = &mut self.reception else {
            return;
        };
        let (forget, forgotten) = (self.forget, &mut self.forgotten);
        self.taken.sources.retain(|id, source| {
            let silent = source.left.map_or(Duration::ZERO, |left| left.elapsed());
            let is_late = silent >= forget || crowd.contains(id);
            if !is_late || source.has_ended || !source.is_drained() {
                return true;
            }
            let Some(counts) = reception.forget(*id) else {
                return true;
            };
            let gone = gone(&counts);
            flowgauge_link::tell(format_args!(
                "{}: did not return within {} s and is forgotten; {gone} of its items are lost",
                source.name,
                silent.as_secs()
            ));
            let sums = self
                .taken
                .closed
                .entry(core::mem::take(&mut source.name))
                .or_default();
            sums.0 += source.late;
            sums.1 += source.refused;
            self.taken.closed_count += usize::from(!source.is_left);
            forgotten.push(counts);
            false
        });
        // Their number is bounded, their names are those of certificates.
        if forgotten.len() > 1 {
            forgotten.sort_by(|one, other| one.name.cmp(&other.name));
            forgotten.dedup_by(|later, earlier| {
                let is_same = later.name == earlier.name;
                if is_same {
                    earlier.before += later.before;
                    earlier.received += later.received;
                    earlier.lost += later.lost;
                    earlier.repeated += later.repeated;
                    earlier.accepted += later.accepted;
                }
                is_same
            });
        }
    }

    /// Whether those came that are waited for at the beginning.
    fn is_open(&mut self) -> bool {
        let Some(senders) = self.senders else {
            return true;
        };
        let here = self.taken.sources.values().filter(|it| !it.is_left);
        let came = self.taken.closed_count + here.count();
        if came >= senders {
            return true;
        }
        if self
            .begun
            .is_some_and(|begun| begun.elapsed() >= self.timeout)
        {
            flowgauge_link::tell(format_args!(
                "{came} of {senders} senders connected within {} s; no longer waiting for the others",
                self.timeout.as_secs()
            ));
            self.senders = Some(came);
            return true;
        }
        false
    }

    /// Whether all that were to come have come and gone.
    fn is_over(&self) -> bool {
        let gone = self.taken.sources.values().filter(|it| !it.is_left);
        let gone =
            gone.filter(|source| !source.is_awaited && !source.is_connected && source.is_drained());
        let over = self.taken.closed_count + gone.count();
        let reception = self.reception.as_ref();
        if reception.is_some_and(|it| it.is_over()) && self.taken.is_drained() {
            return true;
        }
        // One that is here may be what goes on with another that has ended: of the same machine.
        let mut here = self
            .taken
            .sources
            .values()
            .filter(|source| source.is_connected);
        let goes_on = here.any(|source| self.taken.closed.contains_key(&source.name));
        self.senders.is_some_and(|senders| over >= senders) && !goes_on
    }
}

impl Taken {
    fn is_drained(&self) -> bool {
        self.sources.values().all(Source::is_drained)
    }

    /// Gives on what nobody can have something before of. Returns how many items.
    fn give(&mut self, out: &mut dyn Outlet) -> usize {
        let ids: Vec<SessionId> = self.sources.keys().copied().collect();
        for source in self.sources.values_mut() {
            source.fill(self.kind, &mut self.done);
        }
        let mut standings: Vec<Standing> = self.sources.values().map(Source::standing).collect();
        let mut given = 0;
        while given < MOST_AT_ONCE {
            let Some((chosen, mut limit)) = choose(&standings) else {
                break;
            };
            // Components look at the clock between two items, whichever came together.
            let look = out.next_look().0;
            if let Some(head) = standings[chosen].head.filter(|head| *head >= look) {
                self.flush(out);
                out.advance(Nanos(head.max(self.clock)));
                if out.next_look().0 > head {
                    continue;
                }
            } else {
                limit = limit.min(look.saturating_sub(1));
            }
            if !self.is_merged {
                limit = look.saturating_sub(1);
            }
            given += self.run(ids[chosen], limit, out);
            if let Some(source) = self.sources.get(&ids[chosen]) {
                standings[chosen] = source.standing();
            }
        }
        self.flush(out);
        if let Some(horizon) = horizon(&standings) {
            self.clock = self.clock.max(horizon);
        }
        for frame in self.done.drain(..) {
            frame.done();
        }
        self.close();
        given
    }

    /// Forgets senders that have ended.
    fn close(&mut self) {
        let (closed, count) = (&mut self.closed, &mut self.closed_count);
        self.sources.retain(|_, source| {
            let stays = !source.has_ended || !source.is_drained();
            if !stays {
                let sums = closed.entry(core::mem::take(&mut source.name)).or_default();
                sums.0 += source.late;
                sums.1 += source.refused;
                *count += usize::from(!source.is_left);
            }
            stays
        });
    }

    /// Gives on items of one sender up to a time.
    fn run(&mut self, id: SessionId, limit: u64, out: &mut dyn Outlet) -> usize {
        let Some(source) = self.sources.get_mut(&id) else {
            return 0;
        };
        let from = source.at;
        let mut to = from;
        while let Some(time) = source.run.time(to).filter(|time| *time <= limit) {
            source.late += u64::from(time < self.clock && self.is_merged);
            self.clock = self.clock.max(time);
            to += 1;
        }
        source.at = to;
        let payload = source
            .frames
            .front()
            .map_or(&[][..], |frame| &frame.payload);
        match &mut source.run {
            Run::Packets(packets) => {
                let packets = packets.get_mut(from..to).unwrap_or_default();
                for packet in &mut *packets {
                    packet.interface = interface(&mut self.interfaces, id, packet.interface);
                }
                if self.gathered.packets().is_empty() && packets.len() >= LONG_RUN {
                    let batch = Batch::new(payload, packets);
                    emit(&mut self.decoder, &mut self.decoded, &batch, out);
                } else {
                    let mut rest = &*packets;
                    while !rest.is_empty() {
                        if self.gathered.packets().is_empty() {
                            self.gathered.begin();
                        }
                        rest = &rest[self.gathered.take(payload, rest, None)..];
                        if !rest.is_empty() || self.gathered.is_full() {
                            let batch = self.gathered.batch();
                            emit(&mut self.decoder, &mut self.decoded, &batch, out);
                            self.gathered.begin();
                        }
                    }
                }
            }
            Run::Chunks(chunks) => {
                let chunks = chunks.get(from..to).unwrap_or_default();
                let streams = source.decoder.as_ref().map_or(&[][..], Decoder::streams);
                let chunks = chunks
                    .iter()
                    .filter_map(|place| place.chunk(payload, streams));
                let chunks: Vec<StreamChunk<'_>> = chunks.collect();
                out.emit(Items::Chunks(&chunks));
            }
            Run::Records(records) => {
                let records = records.get(from..to).unwrap_or_default();
                let records: Vec<RecordItem<'_>> = records
                    .iter()
                    .map(|(time, record)| RecordItem {
                        key: 0,
                        time: *time,
                        record: record as &dyn AnyRecord,
                    })
                    .collect();
                out.emit(Items::Records(&records));
            }
        }
        source.fill(self.kind, &mut self.done);
        to - from
    }

    fn flush(&mut self, out: &mut dyn Outlet) {
        if !self.gathered.packets().is_empty() {
            let batch = self.gathered.batch();
            emit(&mut self.decoder, &mut self.decoded, &batch, out);
            self.gathered.begin();
        }
    }
}

fn emit(
    decoder: &mut HeaderDecoder,
    decoded: &mut DecodedBatch,
    batch: &Batch<'_>,
    out: &mut dyn Outlet,
) {
    decoder.decode_batch(batch, decoded);
    hash_batch(&mut decoded.packets);
    out.emit(Items::Packets(Packets::new(batch, decoded)));
}

/// The number here of a sender's interface.
fn interface(known: &mut BTreeMap<(SessionId, u16), u16>, id: SessionId, theirs: u16) -> u16 {
    let next = known.len();
    match known.get(&(id, theirs)) {
        Some(number) => *number,
        None if next < MOST_INTERFACES => {
            known.insert((id, theirs), next as u16);
            next as u16
        }
        None => u16::MAX,
    }
}

impl Component for FromNetwork {
    fn start(&mut self) -> Result<(), Failure> {
        self.reception = Some(self.from.open()?);
        Ok(())
    }

    fn receive(&mut self, out: &mut dyn Outlet, wait: Duration) -> Received {
        let deadline = Instant::now() + wait;
        let before = self.taken.clock;
        loop {
            let mut left = Duration::ZERO;
            for _ in 0..MOST_EVENTS {
                let Some(event) = self.next(left) else {
                    break;
                };
                self.event(event);
                left = Duration::ZERO;
            }
            self.give_up();
            self.forget();
            self.settle(out);
            if self.is_open() && self.taken.give(out) > 0 || self.taken.clock > before {
                return Received::Until(Nanos(self.taken.clock));
            }
            if self.is_over() {
                return Received::End;
            }
            left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            // What was read here is given on first; then one event, and what it brings.
            if let Some(event) = self.next(left) {
                self.event(event);
            }
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let Some(mut reception) = self.reception.take() else {
            return;
        };
        let settled = match out.settle() {
            Settled::Yes => reception.settle(),
            _ => Ok(()),
        };
        if let Err(error) = settled {
            out.fail(failure(&error));
        }
        self.counts = reception.counts();
    }

    fn result(&self) -> Option<ResultValue> {
        let counts = match &self.reception {
            Some(reception) => reception.counts(),
            None => self.counts.clone(),
        };
        let mut rows: BTreeMap<String, [u64; 7]> = BTreeMap::new();
        let forgotten = self.forgotten.iter().cloned();
        for counts in counts
            .into_iter()
            .map(|(_, counts)| counts)
            .chain(forgotten)
        {
            let gone = gone(&counts);
            let row = rows.entry(counts.name).or_default();
            let values = [counts.received, counts.lost, counts.before, counts.repeated];
            for (sum, value) in row.iter_mut().zip(values) {
                *sum += value;
            }
            row[6] += gone;
        }
        let open = self.taken.sources.values();
        let open = open.map(|source| (&source.name, (source.late, source.refused)));
        let closed = self.taken.closed.iter();
        for (name, (late, refused)) in open.chain(closed.map(|(name, sums)| (name, *sums))) {
            if let Some(row) = rows.get_mut(name) {
                row[0] = row[0].saturating_sub(refused);
                row[4] += late;
                row[5] += refused;
            }
        }
        let mut table = Table::new(&COLUMNS, rows.len());
        for (name, values) in rows {
            let mut row = vec![Cell::Text(name)];
            row.extend(values.map(Cell::Unsigned));
            table.rows.push(row);
        }
        Some(ResultValue::Table(table))
    }
}
