//! `bucket`: a component's result per interval.

use std::collections::VecDeque;

use flowgauge_kit::measure::{Growth, Intervals, OF, cell};
use flowgauge_stack::{
    Cell, Component, ComponentInfo, Input, Items, Outlet, Parallel, ResultInfo, ResultValue,
    SharedRows, Table, TakenRows, columns, options,
};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "bucket",
    summary: "keeps the result of another component per interval",
    help: "Intervals begin at multiples of their length on the capture clock, so they are the same in several runs. \
       With `reset` the value is what was added to a count within its interval, else \
           the count at its end; the result of the other component does not change. An empty interval has 0, \
           unless it is a count without `reset`.",
    input: Input::Any,
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("values by interval", &COLUMNS)),
    parallel: Parallel::Never("its intervals are those of all packets"),
    make: |settings| {
        let options = Options::read(settings);
        Ok(Box::new(Bucket {
            intervals: Intervals::new(options.interval),
            options,
            growth: Growth::default(),
            has_come: false,
            kept: VecDeque::new(),
            taken: settings.attached().cloned(),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    [OF.required()];
    interval: Duration as u64 = "1s", "length of the intervals";
    reset: Flag = "yes", "restart the count in each interval";
    slots: Integer(1, 1_000_000) as usize = "1000", "intervals kept; the oldest are dropped";
}

columns! {
    static COLUMNS;
    time Time Key "start of the interval";
    value Unsigned Sum "the result";
}

struct Bucket {
    intervals: Intervals,
    options: Options,
    growth: Growth,
    /// Whether anything came in the interval.
    has_come: bool,
    kept: VecDeque<(Nanos, i128)>,
    /// Who takes them.
    taken: Option<SharedRows>,
}

impl Bucket {
    fn keep(&mut self, start: Nanos, value: i128) {
        let (kept, most) = (self.kept.len(), self.options.slots);
        let is_room = match &self.taken {
            Some(taken) => taken.keep(kept, most),
            None => kept < most,
        };
        while !is_room && self.kept.len() >= most {
            self.kept.pop_front();
        }
        self.kept.push_back((start, value));
    }

    /// The value of an interval that has ended, and that of those after it, in which nothing came.
    fn values(&mut self, result: &ResultValue) -> (i128, i128) {
        let has_come = core::mem::take(&mut self.has_come);
        match result {
            ResultValue::Sum(_) | ResultValue::Difference(_) if !self.options.reset => {
                let value = result.number().unwrap_or(0);
                (value, value)
            }
            ResultValue::Sum(_) | ResultValue::Difference(_) => (self.growth.since(result), 0),
            _ if has_come => (result.number().unwrap_or(0), 0),
            _ => (0, 0),
        }
    }
}

impl Component for Bucket {
    fn process(&mut self, _: &mut Items<'_>, _: &mut dyn Outlet) {
        self.has_come = true;
    }

    fn interval(&self) -> Option<Nanos> {
        Some(Nanos(self.intervals.length()))
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        if now < self.intervals.end() {
            return;
        }
        let Some(result) = out.result("of") else {
            return;
        };
        if self.intervals.begin(now) {
            self.growth.since(&result);
            return;
        }
        let Some((start, ended)) = self.intervals.advance(now).filter(|(_, ended)| *ended > 0)
        else {
            return;
        };
        let (value, empty) = self.values(&result);
        self.keep(start, value);
        // After a long silence only those that are kept are made.
        let most = match &self.taken {
            Some(_) => self.options.slots.max(TakenRows::MOST),
            None => self.options.slots,
        };
        let first = ended.saturating_sub(most as u64).max(1);
        for number in first..ended {
            self.keep(Nanos(start.0 + number * self.intervals.length()), empty);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        if let (true, Some(start), Some(result)) =
            (self.has_come, self.intervals.start(), out.result("of"))
        {
            let (value, _) = self.values(&result);
            self.keep(start, value);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.options.slots.max(self.kept.len()));
        let rows = self.kept.iter();
        table.rows = rows
            .map(|(start, value)| vec![Cell::Time(*start), cell(*value)])
            .collect();
        Some(ResultValue::Table(table))
    }

    fn rows(&self) -> Option<usize> {
        Some(self.kept.len())
    }

    fn reset(&mut self) {
        self.kept.clear();
        if let Some(taken) = &self.taken {
            taken.take();
        }
    }
}
