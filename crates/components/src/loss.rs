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

#[cfg(test)]
mod tests {
    use flowgauge_loss::{Observer, ObserverOptions, Of};
    use flowgauge_wire::{Address, Decoded, FlowKey, HashSeed};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Packets compared after two points have told, `after` the last packet, of ten flows that ended before the second second.
    fn compared(after: u64) -> u64 {
        let mut loss = Loss {
            names: vec!["left".to_owned(), "right".to_owned()],
            comparison: Comparison::new(ComparisonOptions {
                points: 2,
                pairs: flowgauge_loss::pairs(2, false),
                interval: Nanos(SECOND),
                patience: Some(Nanos(2 * SECOND)),
                lag: Nanos(3 * SECOND),
                max_flows: 100,
                flows: false,
                one_way: true,
            }),
            lost: 0,
            refused: 0,
            foreign: 0,
        };
        for point in ["left", "right"] {
            let mut observer = Observer::new(ObserverOptions {
                interval: Nanos(SECOND),
                marks: 4,
                timeout: Nanos(2 * SECOND),
                max_flows: 100,
                key: HashSeed::PUBLIC,
            });
            observer.tick(Nanos(SECOND), &mut |_| {});
            for flow in 0..10_u16 {
                let side = |octet, port| (Address::v4([192, 0, 2, octet]), port);
                let (key, direction) = FlowKey::new(4, 17, side(1, 1000 + flow), side(2, 53));
                let packet = Decoded {
                    key,
                    direction,
                    time: Nanos(3 * SECOND / 2) + Nanos(u64::from(flow)),
                    ip_len: 40,
                    ..Decoded::default()
                };
                observer.packet(&packet, &flow.to_be_bytes());
            }
            let mut text = String::new();
            observer.finish(&mut |told| {
                loss.record(&RecordItem {
                    key: 0,
                    time: told.last + Nanos(after),
                    record: &told.row(Some(point), &mut text),
                });
            });
        }
        let rows = loss.comparison.take_rows();
        let intervals = rows.iter().filter(|row| row.of == Of::Interval);
        intervals.map(|row| row.sums.sent).sum()
    }

    #[test]
    fn points_whose_clocks_go_on_are_compared_although_nothing_comes() {
        assert_eq!(compared(10 * SECOND), 10);
        // The last packets alone do not say that the interval is over.
        assert_eq!(compared(0), 0);
    }
}
