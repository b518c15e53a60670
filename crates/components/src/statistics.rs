//! `statistics`: count, sum, sum of squares, smallest and largest value of a result.

use flowgauge_kit::measure::{EVERY, Measured, OF, cell};
use flowgauge_stack::{
    Cell, Component, ComponentInfo, FieldKind, Items, Merge, Outlet, Parallel, ResultInfo,
    ResultValue, Table, TableColumn,
};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "statistics",
    aliases: &["stats"],
    summary: "sums up the values of another component's result",
    help: "Where each packet has a value (packet_info, protocol_field, gap, hash), the values of the \
           packets that come here; else what was added to a count in each interval, or the value at its \
           end, of intervals in which packets came here.",
    is_end: true,
    options: &[OF.required(), EVERY],
    result: Some(ResultInfo::table("of all values", &COLUMNS)),
    parallel: Parallel::Never("a result that packets do not have each is that of all packets"),
    make: |settings| {
        Ok(Box::new(Statistics {
            measured: Measured::new(settings.duration("every").unwrap_or(1_000_000_000)),
            sums: Sums::default(),
        }))
    },
    ..flowgauge_kit::OF_PACKETS
};

static COLUMNS: [TableColumn; 5] = [
    TableColumn::new("count", FieldKind::Unsigned, Merge::Sum, "how many values"),
    TableColumn::new("sum", FieldKind::Unsigned, Merge::Sum, "their sum"),
    TableColumn::new(
        "sum2",
        FieldKind::Unsigned,
        Merge::Sum,
        "the sum of their squares",
    ),
    TableColumn::new("max", FieldKind::Unsigned, Merge::Max, "the largest"),
    TableColumn::new("min", FieldKind::Unsigned, Merge::Min, "the smallest"),
];

#[derive(Default)]
struct Sums {
    count: u64,
    sum: i128,
    squares: i128,
    largest: Option<i128>,
    smallest: Option<i128>,
}

impl Sums {
    fn add(&mut self, value: i128) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.squares = self.squares.saturating_add(value.saturating_mul(value));
        self.largest = Some(self.largest.map_or(value, |largest| largest.max(value)));
        self.smallest = Some(self.smallest.map_or(value, |smallest| smallest.min(value)));
    }
}

struct Statistics {
    measured: Measured,
    sums: Sums,
}

impl Component for Statistics {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            self.measured
                .packets(packets, out, |value| self.sums.add(value));
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn interval(&self) -> Option<Nanos> {
        self.measured.interval()
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.measured.tick(now, out, |value| self.sums.add(value));
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        self.measured.finish(out, |value| self.sums.add(value));
    }

    fn result(&self) -> Option<ResultValue> {
        let sums = &self.sums;
        let optional = |value: Option<i128>| value.map_or(Cell::None, cell);
        let mut table = Table::new(&COLUMNS, 1);
        table.rows.push(vec![
            Cell::Unsigned(sums.count),
            cell(sums.sum),
            cell(sums.squares),
            optional(sums.largest),
            optional(sums.smallest),
        ]);
        Some(ResultValue::Table(table))
    }

    fn reset(&mut self) {
        self.sums = Sums::default();
    }
}
