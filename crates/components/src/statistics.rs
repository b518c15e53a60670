//! `statistics`: count, sum, sum of squares, smallest and largest value of a result.

use flowgauge_kit::measure::{EVERY, Measured, OF, Summary, cell};
use flowgauge_stack::{Cell, ComponentInfo, Parallel, ResultInfo, Table, columns, options};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "statistics",
    aliases: &["stats"],
    summary: "summarizes the values of another component's result",
    help: "If each packet has a value (packet_info, protocol_field, gap, hash), the values of the packets; \
           else what was added to a count in each interval, or the value at its end, for intervals with \
           packets.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("of all values", &COLUMNS)),
    parallel: Parallel::Never("a result that packets do not have each is that of all packets"),
    make: |settings| {
        let sums = Sums {
            skip: Options::read(settings).skip,
            ..Sums::default()
        };
        Ok(Box::new(Measured::new(settings, sums)))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    [OF.required(), EVERY];
    skip: Integer(0, i64::MAX) as u64 = "0", "values skipped at the beginning, such as the first of gap, which has no \
    preceding packet";
}

columns! {
    static COLUMNS;
    count Unsigned Sum "how many values";
    sum Unsigned Sum "their sum";
    sum2 Unsigned Sum "the sum of their squares";
    max Unsigned Max "the largest";
    min Unsigned Min "the smallest";
}

#[derive(Default)]
struct Sums {
    /// Values that are still left out.
    skip: u64,
    count: u64,
    sum: i128,
    squares: i128,
    largest: Option<i128>,
    smallest: Option<i128>,
}

impl Summary for Sums {
    fn add(&mut self, value: i128) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.squares = self.squares.saturating_add(value.saturating_mul(value));
        self.largest = Some(self.largest.map_or(value, |largest| largest.max(value)));
        self.smallest = Some(self.smallest.map_or(value, |smallest| smallest.min(value)));
    }

    fn table(&self) -> Table {
        let optional = |value: Option<i128>| value.map_or(Cell::None, cell);
        let mut table = Table::new(&COLUMNS, 1);
        table.rows.push(vec![
            Cell::Unsigned(self.count),
            cell(self.sum),
            cell(self.squares),
            optional(self.largest),
            optional(self.smallest),
        ]);
        table
    }

    fn clear(&mut self) {
        *self = Sums {
            skip: self.skip,
            ..Sums::default()
        };
    }
}
