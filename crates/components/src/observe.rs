//! `observe`: what a point saw of each direction of each flow, to be compared with what others saw.

use std::collections::VecDeque;

use flowgauge_loss::{METHOD, MOST_MARKS, Observation, Observer, ObserverOptions};
use flowgauge_record::loss::{OBSERVATION_SCHEMA, ObservationRow};
use flowgauge_stack::{
    Account, Cell, Component, ComponentInfo, ItemType, Items, Outlet, Output, Parallel, RecordItem,
    ResultInfo, ResultValue, SharedRows, Table, columns, options,
};
use flowgauge_sys::losses;
use flowgauge_wire::{HashSeed, Nanos};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "observe",
    summary: "counts packets of flows, for comparison between several points",
    help: "A record for each direction of a flow, in each `interval` with packets and after a pause of `timeout`: \
       packets and bytes so far, and selected packets by their identity (a hash of the fields that routers do not \
       change), each with the counts up to it. All points select the same ones. The component loss and the command \
       loss compare them: packet loss, one-way delay. Each packet's headers and the following 20 bytes must be \
       captured. The records can also be read as the component's result.",
    output: Output::Of(ItemType::Record),
    fields: |_| Some(OBSERVATION_SCHEMA),
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("observations", &COLUMNS)),
    parallel: Parallel::Never("its intervals are those of all packets"),
    make: |settings| {
        let options = Options::read(settings);
        let interval = Nanos(options.interval.max(LEAST_INTERVAL));
        let taken: Option<SharedRows> = settings.attached().cloned();
        Ok(Box::new(Observe {
            observer: Observer::new(ObserverOptions {
                interval,
                marks: options.marks,
                timeout: options.timeout.unwrap_or(Nanos(2 * interval.0)),
                max_flows: options.max_flows,
                key: HashSeed::PUBLIC,
            }),
            interval,
            told: Told {
                point: options.point,
                dropped: losses::all(),
                most: options
                    .rows
                    .unwrap_or(if taken.is_some() { KEPT } else { 0 }),
                part: (PART_MARKS / options.marks).min(PART),
                rows: VecDeque::new(),
                clock: Nanos(0),
                forgotten: 0,
                taken,
            },
            text: String::new(),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    interval: Duration as u64 = "10s", "time between reports of a flow";
    marks: Integer(1, MOST_MARKS as i64) as usize = "4", "packets selected per direction and interval";
    timeout: Duration, "longest pause of a flow; default: two intervals";
    max_flows: Integer(1, 100_000_000) as usize = "1M", "directions of flows at once; beyond it, the longest idle ends";
    point: Text, "value of the field point, to distinguish the records of several points";
    rows: Integer(0, 10_000_000) as usize, "records kept for reading, the oldest are dropped; default: 50,000 on a \
    sensor, none elsewhere";
}

const LEAST_INTERVAL: u64 = 1_000_000;
/// Rows that are kept where somebody takes them.
const KEPT: usize = 50_000;
/// Marks in the rows that are given at once, and these at most: less than an answer of a sensor holds.
const PART_MARKS: usize = 16_384;
const PART: usize = 4096;

columns! {
    static COLUMNS;
    began Time Max "start of the point's observation";
    time Time Max "time of the last packet";
    first Time Max "time of the first packet";
    src_ip Address Max "address of the sender";
    src_port Unsigned Max "port of the sender";
    dst_ip Address Max "address of the receiver";
    dst_port Unsigned Max "port of the receiver";
    protocol Unsigned Max "IP protocol";
    packets Unsigned Max "packets so far, without repeats";
    repeats Unsigned Max "packets equal to one of the 8 before them";
    bytes Unsigned Max "bytes so far, by the IP headers";
    late Unsigned Max "TCP segments with payload behind the highest sequence number";
    trips Unsigned Max "round trips since the row before, by TCP timestamps and QUIC's spin bit";
    trips_sum Unsigned Max "sum of these, in nanoseconds";
    trip_least Unsigned Max "the least of these";
    trip_most Unsigned Max "the largest of these";
    ttl Unsigned Max "time to live of the first packet";
    ended Unsigned Max "1: the flow paused, or the observation is over";
    marks Text Max "selected packets, as in records";
}

// Of the row above them.
columns! {
    static HEAD;
    clock Time Max "until when";
    waiting Unsigned Sum "observations that are kept";
    forgotten Unsigned Sum "observations that were forgotten before they were taken";
    method Unsigned Max "by which packets are selected, as in records";
}

struct Observe {
    observer: Observer,
    interval: Nanos,
    told: Told,
    /// Memory that serves again.
    text: String,
}

/// What was told, to be taken.
struct Told {
    point: Option<String>,
    /// What the captures had lost before.
    dropped: u64,
    most: usize,
    /// How many are given at once.
    part: usize,
    rows: VecDeque<Vec<Cell>>,
    clock: Nanos,
    forgotten: u64,
    /// Who takes it.
    taken: Option<SharedRows>,
}

impl Told {
    fn keep(&mut self, row: Vec<Cell>) {
        let is_room = match &self.taken {
            Some(taken) => taken.keep(self.rows.len(), self.most),
            None => self.rows.len() < self.most,
        };
        while !is_room && self.rows.len() >= self.most {
            self.rows.pop_front();
            self.forgotten += 1;
        }
        self.rows.push_back(row);
    }

    fn tell(&mut self, observation: &Observation, text: &mut String, out: &mut dyn Outlet) {
        let mut row = observation.row(self.point.as_deref(), text);
        row.dropped = losses::all() - self.dropped;
        let kept = (self.most > 0).then(|| cells(&row));
        out.emit(Items::Records(&[RecordItem {
            key: 0,
            time: self.clock,
            record: &row,
        }]));
        if let Some(row) = kept {
            self.keep(row);
        }
    }
}

fn cells(row: &ObservationRow<'_>) -> Vec<Cell> {
    vec![
        Cell::Time(row.began),
        Cell::Time(row.time),
        Cell::Time(row.first),
        Cell::Address(row.source.0.to_ip(row.version)),
        Cell::Unsigned(row.source.1.into()),
        Cell::Address(row.destination.0.to_ip(row.version)),
        Cell::Unsigned(row.destination.1.into()),
        Cell::Unsigned(row.protocol.into()),
        Cell::Unsigned(row.packets),
        Cell::Unsigned(row.repeats),
        Cell::Unsigned(row.bytes),
        Cell::Unsigned(row.late),
        Cell::Unsigned(row.trips.0),
        Cell::Unsigned(row.trips.1),
        Cell::Unsigned(row.trips.2),
        Cell::Unsigned(row.trips.3),
        Cell::Unsigned(row.ttl.into()),
        Cell::Unsigned(row.has_ended.into()),
        Cell::Text(row.marks.to_owned()),
    ]
}

impl Component for Observe {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        for (_, packet) in packets.iter() {
            self.observer.packet(packet, packets.bytes(packet));
        }
        items.clear();
    }

    fn interval(&self) -> Option<Nanos> {
        Some(self.interval)
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.told.clock = self.told.clock.max(now);
        let (told, text) = (&mut self.told, &mut self.text);
        let give = &mut |observation: &Observation| told.tell(observation, text, out);
        self.observer.tick(now, give);
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let (told, text) = (&mut self.told, &mut self.text);
        let give = &mut |observation: &Observation| told.tell(observation, text, out);
        self.observer.finish(give);
    }

    fn result(&self) -> Option<ResultValue> {
        let told = &self.told;
        let mut table = Table::new(&COLUMNS, told.part);
        table.rows = told.rows.iter().take(told.part).cloned().collect();
        let mut head = Table::new(&HEAD, 1);
        head.rows.push(vec![
            Cell::Time(told.clock),
            Cell::Unsigned(told.rows.len() as u64),
            Cell::Unsigned(told.forgotten),
            Cell::Unsigned(METHOD),
        ]);
        table.head = Some(Box::new(head));
        Some(ResultValue::Table(table))
    }

    fn rows(&self) -> Option<usize> {
        Some(self.told.rows.len())
    }

    /// Only what was shown is forgotten.
    fn reset(&mut self) {
        let shown = self.told.rows.len().min(self.told.part);
        self.told.rows.drain(..shown);
        if let Some(taken) = &self.told.taken {
            taken.take();
        }
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Account::default();
        let evicted = "ended early: raise `max_flows`";
        account.count(self.observer.evicted(), "one-way flow", evicted);
        let forgotten = "forgotten before anybody took them: raise `rows`";
        account.count(self.told.forgotten, "observation", forgotten);
        Some(Box::new(account))
    }
}
