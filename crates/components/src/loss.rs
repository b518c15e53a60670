//! `loss`: what several points saw of flows, compared.

use flowgauge_loss::{Comparison, ComparisonOptions, METHOD, ObservationReader};
use flowgauge_record::loss::LOSS_SCHEMA;
use flowgauge_stack::{
    Account, Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, Parallel,
    RecordItem, ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_wire::Nanos;

use crate::record_fields::read_names;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "loss",
    summary: "compares flows seen at several points: packet loss, one-way delay",
    help: "Takes the records of observe from several points, named by their field point. `points` are in path order: \
       each is compared with the next, with more than two also the first with the last; with `matrix` every pair. \
       There is a record of losses per `interval` and direction, at the end per application and in total, with \
       `flows` also per flow. An interval is reported some intervals later, when flows that began in it have ended or \
       continued. Drops of the points' own captures are between least and most.",
    input: Input::Of(&[ItemType::Record]),
    output: Output::Of(ItemType::Record),
    fields: |_| Some(LOSS_SCHEMA),
    outside: Some("it has one table of all flows"),
    options: Options::ALL,
    result: Some(ResultInfo::number("packets lost", "packets")),
    parallel: Parallel::Never("its flows are of all cores"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    points: Text = required, "names of the points, in the order in which packets pass them";
    matrix: Flag = "no", "compare every pair of points";
    flows: Flag = "no", "also write a record per flow";
    one_way: Flag = "no", "packets of both directions pass the points in the given order";
    interval: Duration as u64 = "10s", "the interval of observe, and of the records";
    patience: Duration, "how long to wait for another point's record; default: two intervals";
    timeout: Duration, "the timeout of observe; default: two intervals";
    max_flows: Integer(1, 100_000_000) as usize = "500k", "flows at once; beyond it, the one reported longest ago ends";
}

struct Loss {
    names: Vec<String>,
    comparison: Comparison,
    lost: u64,
    /// Records that are no observations, or of none of the points.
    refused: u64,
    /// Records of an observe that selects packets otherwise.
    foreign: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let names = read_names(settings, "points")?;
    if names.len() < 2 {
        return Err(SettingError::of("points", "names one point only")
            .with_hint("loss is between two points at least: points = \"a, b\""));
    }
    let given = |time: Option<Nanos>| time.unwrap_or(Nanos(options.interval.saturating_mul(2)));
    let patience = given(options.patience);
    Ok(Box::new(Loss {
        comparison: Comparison::new(ComparisonOptions {
            points: names.len(),
            pairs: flowgauge_loss::pairs(names.len(), options.matrix),
            interval: Nanos(options.interval),
            patience: Some(patience),
            lag: given(options.timeout) + Nanos(options.interval),
            max_flows: options.max_flows,
            flows: options.flows,
            one_way: options.one_way,
        }),
        names,
        lost: 0,
        refused: 0,
        foreign: 0,
    }))
}

impl Loss {
    fn record(&mut self, item: &RecordItem<'_>) {
        let mut reader = ObservationReader::default();
        item.record.values(&mut reader);
        let is_foreign = reader.method() != METHOD;
        let read = reader.finish();
        let place = |name: &String| self.names.iter().position(|known| known == name);
        let read = read.and_then(|(told, point)| Some((told, place(&point?)?)));
        let Some((told, point)) = read else {
            self.refused += 1;
            return;
        };
        if is_foreign {
            self.foreign += 1;
            return;
        }
        self.comparison.observe(point, &told);
        // A record's time is its point's clock, which goes on behind the last packet.
        let clock = told.last.max(item.time);
        self.comparison.advance(point, clock, told.dropped);
    }

    fn give(&mut self, now: Nanos, out: &mut dyn Outlet) {
        for row in self.comparison.take_rows() {
            if row.of == flowgauge_loss::Of::Interval {
                self.lost += row.sums.lost.max(0).unsigned_abs();
            }
            out.emit(Items::Records(&[RecordItem {
                key: 0,
                time: now,
                record: &row.record(&self.names),
            }]));
        }
    }
}

impl Component for Loss {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let mut now = Nanos(0);
        if let Items::Records(records) = items {
            for item in *records {
                self.record(item);
                now = now.max(item.time);
            }
        }
        self.give(now, out);
        items.clear();
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        self.comparison.finish();
        self.give(Nanos(0), out);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.lost))
    }

    fn reset(&mut self) {
        self.lost = 0;
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Account::default();
        let refused = "left out: they are not observations of any of the points";
        account.count(self.refused, "record", refused);
        let foreign = "left out: they are of an observe of another release, with which nothing can be compared";
        account.count(self.foreign, "record", foreign);
        let evicted = "ended early: raise `max_flows`";
        account.count(self.comparison.evicted(), "flow", evicted);
        Some(Box::new(account))
    }
}
