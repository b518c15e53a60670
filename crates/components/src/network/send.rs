//! `output { to = host:port }`: sends what it gets to an `input` on another machine; with `kafka`, through a topic.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_kafka::{Cluster, Form, Frame, Producer, Totals};

use flowgauge_link::{Error, KeyFolder, Sender, SenderCounts, SenderOptions, Sent, WhenFull};
use flowgauge_record::any::OwnedRecord;
use flowgauge_record::{Encoder, Format};
use flowgauge_stack::{
    Account, Component, Failure, Items, OptionInfo, Outlet, RecordItem, ResultValue, SettingError,
    Settings, options,
};
use flowgauge_sys::ending::is_ending;
use flowgauge_wire::Nanos;
use parking_lot::Mutex;

use super::codec::{self, Kind};
use super::failure;
use super::kafka::Route;

/// A frame of this length is sent.
const FRAME_BYTES: usize = 256 << 10;
/// What is shorter is sent after this time.
const FRAME_AGE: Duration = Duration::from_millis(50);
/// Messages of a topic have what they refer to with them: they are made longer, but not as long as a broker refuses.
const MESSAGE_AGE: Duration = Duration::from_millis(200);
/// What has not arrived after this time is asked for again.
const SETTLE_WAIT: Duration = Duration::from_secs(2);
/// Of longer packets the rest is cut off, as by a snap length: a frame has a limit, too.
const MOST_PACKET: usize = 2 << 20;
/// How long the start of a stack waits to learn that the other side will never answer.
const START_WAIT: Duration = Duration::from_secs(2);

options! {
    pub(crate) const;
    /// Where to.
    TO = to: Text, "send to an input on another machine, at host:port, instead of to a file";
    /// Who is expected there.
    PEER = peer: Text, "name in the other machine's certificate, if not the host of to";
    /// How much may wait.
    SPOOL = spool: Size, "memory for waiting items while the other machine is away or slow; default: 64M";
    /// Where more may wait.
    SPOOL_FOLDER = spool_folder: OutputFolder,
        "folder for further waiting items; items left there when this process ends or is killed are sent by the next \
        one with the same identity, folder and to";
    /// How much more.
    SPOOL_FILE = spool_file: Size, "maximum bytes in that folder; default: 1G";
    /// What then.
    WHEN_FULL = when_full: Choice("wait", "drop_newest", "drop_oldest"),
        "when the spool is full: delay the source, or lose items, which is reported to the other machine; default: \
        wait, with kafka in a live capture drop_newest";
    /// How long the end waits.
    LINGER = linger: Duration,
        "how long to wait at the end for all items to arrive, and for room in the spool; default: 30s";
}

/// The options that only sending has.
pub(crate) const OPTIONS: [OptionInfo; 6] =
    [PEER, SPOOL, SPOOL_FOLDER, SPOOL_FILE, WHEN_FULL, LINGER];

/// Makes the component that sends through Kafka.
pub(crate) fn make_kafka(
    settings: &Settings,
    brokers: &str,
) -> Result<Box<dyn Component>, SettingError> {
    let route = Route::read(settings, brokers)?;
    // Of the same topic either waits in a folder of its own.
    let options = SenderOptions::new(match route.form {
        Form::Frames => route.place.name(),
        Form::Texts => format!("{}, as JSON", route.place.name()),
    });
    finish_make(settings, options, Way::Kafka(Box::new(route)))
}

/// Makes the component.
pub(crate) fn make(settings: &Settings, to: &str) -> Result<Box<dyn Component>, SettingError> {
    let mut options = SenderOptions::new(to);
    let port = to.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err(SettingError::of(
            "to",
            format!("\"{to}\" is not an address with a port (host:port)"),
        )
        .with_hint("write it as host:port, 192.0.2.1:2233 or [2001:db8::1]:2233"));
    }
    options.peer = settings.text("peer").map(str::to_owned);
    let keys = super::keys(settings);
    let identity = settings.text("identity").map(str::to_owned);
    finish_make(settings, options, Way::Link { keys, identity })
}

fn finish_make(
    settings: &Settings,
    mut options: SenderOptions,
    way: Way,
) -> Result<Box<dyn Component>, SettingError> {
    if let Some(bytes) = settings.size("spool") {
        if bytes < 4 * FRAME_BYTES as u64 {
            return Err(SettingError::of("spool", "is less than 1M")
                .with_hint("it holds frames of 256k, some of which are always in flight"));
        }
        options.spool_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    let most = settings.size("spool_file");
    options.spool_file = settings
        .text("spool_folder")
        .map(|folder| (PathBuf::from(folder), most.unwrap_or(1 << 30)));
    if most.is_some() && options.spool_file.is_none() {
        return Err(SettingError::of(
            "spool_file",
            "has no meaning without spool_folder",
        ));
    }
    options.when_full = match settings.text("when_full") {
        Some("drop_newest") => WhenFull::DropNewest,
        Some("drop_oldest") => WhenFull::DropOldest,
        None if matches!(way, Way::Kafka(_)) && settings.is_live() => WhenFull::DropNewest,
        _ => WhenFull::Wait,
    };
    if let Some(linger) = settings.duration("linger") {
        options.linger = Duration::from_nanos(linger);
    }
    Ok(Box::new(ToNetwork {
        way,
        options,
        lanes: vec![Lane::default()],
        json: Encoder::new(Format::Json),
        awaited: None,
        latest: 0,
        sender: None,
        counts: SenderCounts::default(),
        has_lost: false,
        unsent: 0,
    }))
}

/// How items reach those that take them.
enum Way {
    Link {
        keys: KeyFolder,
        identity: Option<String>,
    },
    Kafka(Box<Route>),
}

/// What becomes a frame: all items of a link, those of a partition.
#[derive(Default)]
struct Lane {
    encoder: codec::Encoder,
    /// What the frame's items refer to, where that goes with it.
    announced: Vec<Vec<u8>>,
    /// Records as texts instead.
    texts: Vec<u8>,
    count: u32,
    /// When its first item came.
    since: Option<Instant>,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.encoder.count() + self.count == 0
    }
}

/// What a broker is asked before anything can be sent.
struct Awaited {
    cluster: Cluster,
    answer: Arc<Mutex<Option<Result<u32, Error>>>>,
    /// What waits for it, and how many records found no room.
    records: Vec<(Nanos, OwnedRecord)>,
    lost: u64,
    last_wait: Option<Instant>,
}

/// Records that wait for a broker's answer.
const MOST_AWAITING: usize = 1 << 16;
/// How often it is asked again.
const ASK: Duration = Duration::from_millis(500);

impl Awaited {
    /// Asks until there is an answer, or nobody waits for it any more.
    fn begin(cluster: Cluster) -> Result<Awaited, Failure> {
        let answer = Arc::new(Mutex::new(None));
        let (weak, asked) = (Arc::downgrade(&answer), cluster.clone());
        let ask = move || {
            while let Some(answer) = weak.upgrade() {
                match Producer::partitions(&asked, START_WAIT) {
                    Err(error) if !error.is_lasting() => {}
                    found => {
                        *answer.lock() = Some(found);
                        return;
                    }
                }
                drop(answer);
                std::thread::sleep(ASK);
            }
        };
        let thread = std::thread::Builder::new().name("fg-broker".to_owned());
        let started = thread.spawn(ask);
        started.map_err(|error| Failure::new(format!("no thread: {error}")))?;
        Ok(Awaited {
            cluster,
            answer,
            records: Vec::new(),
            lost: 0,
            last_wait: None,
        })
    }

    /// Keeps a record until then. Where there is no room it is lost, or the source `waits`: at the end of a run for so long.
    fn keep(&mut self, item: &RecordItem<'_>, waits: bool, linger: Duration) {
        while waits && self.records.len() >= MOST_AWAITING && self.answer.lock().is_none() {
            if is_ending() {
                self.last_wait.get_or_insert(Instant::now() + linger);
            }
            if self.last_wait.is_some_and(|last| Instant::now() >= last) {
                break;
            }
            std::thread::sleep(FRAME_AGE);
        }
        // With the answer there is room for them once this batch is over.
        match self.records.len() < MOST_AWAITING || self.answer.lock().is_some() {
            true => self.records.push((item.time, OwnedRecord::of(item.record))),
            false => self.lost += 1,
        }
    }
}

struct ToNetwork {
    way: Way,
    options: SenderOptions,
    lanes: Vec<Lane>,
    json: Encoder,
    /// Until a broker has said how many partitions there are.
    awaited: Option<Awaited>,
    /// The largest time so far.
    latest: u64,
    sender: Option<Sender>,
    /// In the end.
    counts: SenderCounts,
    has_lost: bool,
    /// Records that were lost before a broker had answered.
    unsent: u64,
}

impl ToNetwork {
    fn encode(&mut self, items: &Items<'_>) -> Result<(), flowgauge_link::Error> {
        match items {
            Items::Packets(packets) => {
                self.begin(Kind::Packets)?;
                for (_, packet) in packets.iter() {
                    let place = usize::from(packet.index);
                    let Some(descriptor) = packets.batch.packets.get(place) else {
                        continue;
                    };
                    let bytes = packets.batch.bytes_of(descriptor);
                    let bytes = bytes.get(..MOST_PACKET).unwrap_or(bytes);
                    let sender = &self.sender;
                    self.lanes[0]
                        .encoder
                        .packet(descriptor, bytes, &mut |text| announce(sender, text));
                    self.added(0, descriptor.time)?;
                }
            }
            Items::Chunks(chunks) => {
                self.begin(Kind::Chunks)?;
                for chunk in *chunks {
                    self.lanes[0].encoder.chunk(chunk);
                    self.added(0, chunk.time)?;
                }
            }
            Items::Records(records) => {
                if let Some(awaited) = &mut self.awaited {
                    let waits = self.options.when_full == WhenFull::Wait;
                    for item in *records {
                        awaited.keep(item, waits, self.options.linger);
                    }
                    return Ok(());
                }
                self.begin(Kind::Records)?;
                for item in *records {
                    let lane = self.record(item);
                    self.added(lane, item.time)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a record to the lane it belongs to.
    fn record(&mut self, item: &RecordItem<'_>) -> usize {
        let (time, record) = (item.time, item.record);
        let partitions = self.lanes.len() as u32;
        match &mut self.way {
            Way::Link { .. } => {
                let sender = &self.sender;
                let encoder = &mut self.lanes[0].encoder;
                encoder.record(time, record, &mut |text| announce(sender, text));
                0
            }
            Way::Kafka(route) => {
                let lane = route.partition(record, partitions) as usize;
                let Lane {
                    encoder,
                    announced,
                    texts,
                    count,
                    ..
                } = &mut self.lanes[lane];
                if route.form == Form::Texts {
                    let begin = texts.len();
                    texts.extend_from_slice(&[0; 4]);
                    record.encode(&mut self.json, texts);
                    // Without the end of the line.
                    texts.pop();
                    let len = (texts.len() - begin - 4) as u32;
                    texts[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
                    *count += 1;
                    return lane;
                }
                encoder.record(time, record, &mut |text| {
                    announced.push(text);
                    announced.len() as u32 - 1
                });
                lane
            }
        }
    }

    /// A frame has items of one kind.
    fn begin(&mut self, kind: Kind) -> Result<(), flowgauge_link::Error> {
        match self.lanes[0].encoder.kind() {
            Some(other) if other != kind => self.flush(0),
            _ => Ok(()),
        }
    }

    #[inline]
    fn added(&mut self, lane: usize, time: Nanos) -> Result<(), flowgauge_link::Error> {
        self.latest = self.latest.max(time.0);
        let Lane {
            encoder,
            texts,
            since,
            ..
        } = &mut self.lanes[lane];
        if encoder.len() + texts.len() >= FRAME_BYTES {
            return self.flush(lane);
        }
        if since.is_none() {
            *since = Some(Instant::now());
        }
        Ok(())
    }

    fn flush(&mut self, number: usize) -> Result<(), flowgauge_link::Error> {
        let lane = &mut self.lanes[number];
        lane.since = None;
        if lane.is_empty() {
            return Ok(());
        }
        let (payload, count) = match &self.way {
            Way::Link { .. } => lane.encoder.take(),
            Way::Kafka(route) => {
                let (items, count) = match route.form {
                    Form::Frames => lane.encoder.take_whole(&mut lane.announced),
                    Form::Texts => (
                        core::mem::take(&mut lane.texts),
                        core::mem::take(&mut lane.count),
                    ),
                };
                let partition = number as u32;
                let frame = Frame {
                    partition,
                    first: route.totals.add(partition, count),
                    count,
                    items: &items,
                };
                (frame.encode(), count)
            }
        };
        if let Some(sender) = &self.sender
            && sender.send(payload, count, self.latest)? == Sent::Lost
            && !self.has_lost
        {
            self.has_lost = true;
            flowgauge_link::tell(format_args!(
                "{}: the spool is full, items are lost and counted",
                self.options.address
            ));
        }
        Ok(())
    }

    /// Sends what waits for longer than this.
    fn flush_older(&mut self, age: Duration) -> Result<(), flowgauge_link::Error> {
        for lane in 0..self.lanes.len() {
            let since = self.lanes[lane].since;
            if since.is_some_and(|since| since.elapsed() >= age) {
                self.flush(lane)?;
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<Option<Sender>, Failure> {
        let failed = |error| failure(&error);
        match &mut self.way {
            Way::Link { keys, identity } => {
                let identity = keys.identity(identity.as_deref()).map_err(failed)?;
                let sender = Sender::start(&identity, self.options.clone());
                sender.map(Some).map_err(failed)
            }
            Way::Kafka(route) => {
                let cluster = route.place.open()?;
                let partitions = match route.partitions {
                    Some(partitions) => Ok(partitions),
                    None => Producer::partitions(&cluster, START_WAIT),
                };
                match partitions {
                    Ok(partitions) => self.open_topic(cluster, partitions).map(Some),
                    Err(error) if error.is_lasting() => Err(failure(&error)),
                    Err(error) => {
                        flowgauge_link::tell(format_args!("{error}; it is waited for"));
                        self.awaited = Some(Awaited::begin(cluster)?);
                        Ok(None)
                    }
                }
            }
        }
    }

    fn open_topic(&mut self, cluster: Cluster, partitions: u32) -> Result<Sender, Failure> {
        let Way::Kafka(route) = &mut self.way else {
            return Err(Failure::new("a topic is not a link"));
        };
        route.totals = Arc::new(Totals::new(partitions));
        self.lanes.resize_with(partitions as usize, Lane::default);
        let carrier = Arc::new(Producer::new(cluster, route.form, route.totals.clone()));
        let session = flowgauge_link::random();
        let sender = Sender::start_by(carrier, session, self.options.clone());
        sender.map_err(|error| failure(&error))
    }

    /// Goes on with what waited, once a broker has answered.
    fn look_for_broker(&mut self) -> Result<(), Failure> {
        let answer = (self.awaited.as_ref()).and_then(|awaited| awaited.answer.lock().take());
        let Some(answer) = answer else {
            return Ok(());
        };
        let partitions = answer.map_err(|error| failure(&error))?;
        let Some(awaited) = self.awaited.take() else {
            return Ok(());
        };
        let sender = self.open_topic(awaited.cluster, partitions)?;
        self.sender = Some(sender);
        self.unsent += awaited.lost;
        for (time, record) in &awaited.records {
            let item = RecordItem {
                key: 0,
                time: *time,
                record,
            };
            let lane = self.record(&item);
            self.added(lane, *time).map_err(|error| failure(&error))?;
        }
        Ok(())
    }

    fn counts(&self) -> SenderCounts {
        self.sender.as_ref().map_or(self.counts, Sender::counts)
    }
}

fn announce(sender: &Option<Sender>, text: Vec<u8>) -> u32 {
    sender.as_ref().map_or(0, |sender| sender.announce(text))
}

impl Component for ToNetwork {
    fn start(&mut self) -> Result<(), Failure> {
        let Some(sender) = self.open()? else {
            return Ok(());
        };
        // A machine that is away may come; one that does not know this one will not.
        if let Err(error) = sender.wait_for_connection(START_WAIT) {
            return Err(failure(&error));
        }
        self.sender = Some(sender);
        Ok(())
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Err(error) = self.look_for_broker() {
            out.fail(error);
        }
        if let Err(error) = self.encode(items) {
            out.fail(failure(&error));
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.latest = self.latest.max(now.0);
        if let Err(error) = self.look_for_broker() {
            out.fail(error);
        }
        let age = match self.way {
            Way::Link { .. } => FRAME_AGE,
            Way::Kafka(_) => MESSAGE_AGE,
        };
        if let Err(error) = self.flush_older(age) {
            out.fail(failure(&error));
        }
        // What is in the frame may be older.
        let is_empty = self.lanes.iter().all(Lane::is_empty);
        if let Some(sender) = self.sender.as_ref().filter(|_| is_empty) {
            sender.time(self.latest);
        }
    }

    fn settle(&mut self, out: &mut dyn Outlet) -> bool {
        if let Err(error) = self.flush_older(Duration::ZERO) {
            out.fail(failure(&error));
        }
        let sender = self.sender.as_ref();
        self.awaited.is_none() && sender.is_none_or(|sender| sender.settle(SETTLE_WAIT))
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let last = Instant::now() + self.options.linger;
        while let Some(awaited) = &self.awaited
            && awaited.answer.lock().is_none()
            && !awaited.records.is_empty()
            && Instant::now() < last
        {
            std::thread::sleep(FRAME_AGE);
        }
        if let Err(error) = self.look_for_broker() {
            out.fail(error);
        }
        if let Some(awaited) = self.awaited.take() {
            let missing = awaited.records.len() as u64 + awaited.lost;
            self.unsent += missing;
            if missing > 0 {
                let what = format!(
                    "{}: {missing} items were not sent: no broker answered",
                    self.options.address
                );
                let hint = "with partitions = N what waits can be kept in a spool_folder";
                out.fail(Failure::new(what).with_hint(hint));
            }
        }
        if let Err(error) = self.flush_older(Duration::ZERO) {
            out.fail(failure(&error));
        }
        let Some(sender) = self.sender.take() else {
            return;
        };
        let trouble = sender.trouble();
        let folder = sender.folder();
        let address = &self.options.address;
        self.counts = sender.finish(self.options.linger);
        let SenderCounts {
            lost,
            pending,
            kept,
            ..
        } = self.counts;
        if let Some(folder) = folder.filter(|_| kept > 0) {
            flowgauge_link::tell(format_args!(
                "{address}: {kept} items wait in {} for the next run",
                folder.display()
            ));
        }
        let pending = pending - kept;
        if pending > 0 {
            let why = trouble.map_or(String::new(), |error| format!(": {error}"));
            out.fail(
                Failure::new(format!(
                    "{address}: {pending} items had not arrived after {} s{why}",
                    self.options.linger.as_secs()
                ))
                .with_hint(
                    "linger says how long to wait at the end, spool_folder where the rest is kept",
                ),
            );
        }
        if lost > 0 {
            flowgauge_link::tell(format_args!(
                "{}: {lost} of {} items were lost, the spool was full",
                self.options.address, self.counts.accepted
            ));
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.counts().delivered))
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Account::default();
        let what = format!("lost: {} takes less than comes", self.options.address);
        account.count(self.counts().lost, "item", &what);
        let unsent = format!("lost: no broker of {} was there", self.options.address);
        account.count(self.unsent, "item", &unsent);
        Some(Box::new(account))
    }
}
