//! `output { to = host:port }`: sends what it gets to an `input` on another machine; with `kafka`, through a topic.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_kafka::{Frame, Producer, Totals};

use flowgauge_link::{KeyFolder, Sender, SenderCounts, SenderOptions, Sent, WhenFull};
use flowgauge_stack::{
    Account, Component, Failure, Items, OptionInfo, Outlet, RecordItem, ResultValue, SettingError,
    Settings, options,
};
use flowgauge_wire::Nanos;

use super::codec::{Encoder, Kind};
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
/// How long it waits for a broker, where it has to be there.
const BROKER_WAIT: Duration = Duration::from_secs(10);

options! {
    pub(crate) const;
    /// Where to.
    TO = to: Text, "send to an input on another machine, at host:port, instead of to a file";
    /// Who is expected there.
    PEER = peer: Text, "the name in the other machine's certificate, where it is not the host of to";
    /// How much may wait.
    SPOOL = spool: Size, "memory for what waits while the other machine is away or slow; 64M where it is not said";
    /// Where more may wait.
    SPOOL_FOLDER = spool_folder: OutputFolder,
        "a folder where more may wait; what is there when this process ends, or is killed, the next one with \
         the same identity, folder and to sends";
    /// How much more.
    SPOOL_FILE = spool_file: Size, "the most bytes in that folder; 1G where it is not said";
    /// What then.
    WHEN_FULL = when_full: Choice("wait", "drop_newest", "drop_oldest"),
        "what to do when the spool is full: hold up the source, or lose items, which the other machine is \
         told; where it is not said, wait, but drop_newest with kafka in a live capture";
    /// How long the end waits.
    LINGER = linger: Duration,
        "how long to wait at the end for all to have arrived, and for room in the spool once the run is to \
         end; 30s where it is not said";
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
    let options = SenderOptions::new(route.place.name());
    finish_make(settings, options, Way::Kafka(Box::new(route)))
}

/// Makes the component.
pub(crate) fn make(settings: &Settings, to: &str) -> Result<Box<dyn Component>, SettingError> {
    let mut options = SenderOptions::new(to);
    let port = to.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err(
            SettingError::of("to", format!("\"{to}\" is no address with a port"))
                .with_hint("write it as host:port, 192.0.2.1:2233 or [2001:db8::1]:2233"),
        );
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
                .with_hint("it holds frames of 256k, of which some are always on their way"));
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
        latest: 0,
        sender: None,
        counts: SenderCounts::default(),
        has_lost: false,
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
    encoder: Encoder,
    /// What the frame's items refer to, where that goes with it.
    announced: Vec<Vec<u8>>,
    /// When its first item came.
    since: Option<Instant>,
}

struct ToNetwork {
    way: Way,
    options: SenderOptions,
    lanes: Vec<Lane>,
    /// The largest time so far.
    latest: u64,
    sender: Option<Sender>,
    /// In the end.
    counts: SenderCounts,
    has_lost: bool,
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
                    encoder, announced, ..
                } = &mut self.lanes[lane];
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
        let Lane { encoder, since, .. } = &mut self.lanes[lane];
        if encoder.len() >= FRAME_BYTES {
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
        if lane.encoder.count() == 0 {
            return Ok(());
        }
        let (payload, count) = match &self.way {
            Way::Link { .. } => lane.encoder.take(),
            Way::Kafka(route) => {
                let (items, count) = lane.encoder.take_whole(&mut lane.announced);
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

    fn open(&mut self) -> Result<Sender, Failure> {
        let failed = |error| failure(&error);
        match &mut self.way {
            Way::Link { keys, identity } => {
                let identity = keys.identity(identity.as_deref()).map_err(failed)?;
                Sender::start(&identity, self.options.clone()).map_err(failed)
            }
            Way::Kafka(route) => {
                let cluster = route.place.open()?;
                let partitions = match route.partitions {
                    Some(partitions) => partitions,
                    None => Producer::partitions(&cluster, BROKER_WAIT).map_err(failed)?,
                };
                route.totals = Arc::new(Totals::new(partitions));
                self.lanes.resize_with(partitions as usize, Lane::default);
                let carrier = Arc::new(Producer::new(cluster, route.totals.clone()));
                let session = flowgauge_link::random();
                Sender::start_by(carrier, session, self.options.clone()).map_err(failed)
            }
        }
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
        let sender = self.open()?;
        // A machine that is away may come; one that does not know this one will not.
        if let Err(error) = sender.wait_for_connection(START_WAIT) {
            return Err(failure(&error));
        }
        self.sender = Some(sender);
        Ok(())
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Err(error) = self.encode(items) {
            out.fail(failure(&error));
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.latest = self.latest.max(now.0);
        let age = match self.way {
            Way::Link { .. } => FRAME_AGE,
            Way::Kafka(_) => MESSAGE_AGE,
        };
        if let Err(error) = self.flush_older(age) {
            out.fail(failure(&error));
        }
        // What is in the frame may be older.
        let is_empty = self.lanes.iter().all(|lane| lane.encoder.count() == 0);
        if let Some(sender) = self.sender.as_ref().filter(|_| is_empty) {
            sender.time(self.latest);
        }
    }

    fn settle(&mut self, out: &mut dyn Outlet) -> bool {
        if let Err(error) = self.flush_older(Duration::ZERO) {
            out.fail(failure(&error));
        }
        let sender = self.sender.as_ref();
        sender.is_none_or(|sender| sender.settle(SETTLE_WAIT))
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
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
        Some(Box::new(account))
    }
}
