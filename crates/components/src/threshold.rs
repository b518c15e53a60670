//! `threshold`: notes when a component's result crosses a bound.

use flowgauge_kit::measure::{Intervals, OF, cell};
use flowgauge_stack::{
    Cell, Component, ComponentInfo, Input, Items, Outlet, Parallel, ResultInfo, ResultValue,
    SettingError, Table, columns, options,
};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "threshold",
    summary: "records when the result of another component reaches a bound",
    help: "The result is read at the end of each interval on the capture clock, divided by `divider`, \
           and compared; a `difference_...` compares the difference to the reading before. Each time the \
           condition holds adds a row, up to `count`. `then` says what happens after that: the function of \
           MAPI blocks until then, as a run of a stack does with `then = end`.",
    input: Input::Any,
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("when the condition held", &COLUMNS)),
    parallel: Parallel::Never("it compares the result of all packets"),
    make: |settings| {
        let options = Options::read(settings);
        if options.timeout.is_some() && options.then != "end" {
            return Err(SettingError::of(
                "timeout",
                "has no meaning without then = end",
            ));
        }
        Ok(Box::new(Threshold {
            intervals: Intervals::new(options.interval),
            condition: Condition::new(options.boundary),
            options,
            latest: None,
            before: None,
            held: Vec::new(),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    [OF.required()];
    threshold: Integer(i64::MIN, i64::MAX) = required, "the bound";
    boundary: Choice("equal", "greater", "less", "difference_equal", "difference_greater", "difference_less", "0", "1", "2", "4", "8", "16") = "greater",
        "what must hold; the numbers are MAPI's, in the same order";
    interval: Duration as u64 = "1s", "how often it is read";
    divider: Integer(1, i64::MAX) = "1", "what the result is divided by";
    count: Integer(1, 100_000) as usize = "1", "number of times recorded";
    then: Choice("note", "open", "end") = "note",
        "when it has held `count` times: note: nothing more; open: items come through from then on, and none \
         before; end: the stack ends";
    timeout: Duration as u64, "with end: latest end, this long after the first packet";
}

columns! {
    static COLUMNS;
    time Time Max "when it was read";
    value Unsigned Max "what was compared";
}

#[derive(Clone, Copy)]
struct Condition {
    order: core::cmp::Ordering,
    is_difference: bool,
}

impl Condition {
    fn new(text: &str) -> Condition {
        use core::cmp::Ordering;
        let (order, is_difference) = match text {
            "equal" | "0" => (Ordering::Equal, false),
            "less" | "2" => (Ordering::Less, false),
            "difference_equal" | "4" => (Ordering::Equal, true),
            "difference_greater" | "8" => (Ordering::Greater, true),
            "difference_less" | "16" => (Ordering::Less, true),
            _ => (Ordering::Greater, false),
        };
        Condition {
            order,
            is_difference,
        }
    }
}

struct Threshold {
    options: Options,
    /// When it ends at the latest.
    latest: Option<u64>,
    intervals: Intervals,
    condition: Condition,
    /// The reading before.
    before: Option<i128>,
    held: Vec<(Nanos, i128)>,
}

impl Threshold {
    fn read(&mut self, time: Nanos, out: &dyn Outlet) {
        let Some(value) = out.result("of").and_then(|result| result.number()) else {
            return;
        };
        let value = value / i128::from(self.options.divider);
        let before = self.before.replace(value);
        let compared = match (self.condition.is_difference, before) {
            (false, _) => value,
            (true, Some(before)) => value - before,
            (true, None) => return,
        };
        if compared.cmp(&self.options.threshold.into()) == self.condition.order
            && self.held.len() < self.options.count
        {
            self.held.push((time, compared));
        }
    }
}

impl Component for Threshold {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if self.options.then == "open" && self.held.len() < self.options.count {
            items.clear();
        }
    }

    fn interval(&self) -> Option<Nanos> {
        Some(Nanos(self.intervals.length()))
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.look(now, out);
        if self.options.then != "end" {
            return;
        }
        if self.latest.is_none() {
            let timeout = self.options.timeout;
            self.latest = timeout.map(|timeout| now.0.saturating_add(timeout));
        }
        let is_late = self.latest.is_some_and(|latest| now.0 >= latest);
        if is_late || self.held.len() >= self.options.count {
            out.enough();
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        if self.intervals.start().is_some() {
            self.read(self.intervals.end(), out);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.options.count);
        let rows = self.held.iter();
        table.rows = rows
            .map(|(time, value)| vec![Cell::Time(*time), cell(*value)])
            .collect();
        Some(ResultValue::Table(table))
    }

    fn rows(&self) -> Option<usize> {
        Some(self.held.len())
    }

    fn reset(&mut self) {
        self.held.clear();
    }
}

impl Threshold {
    /// Reads the result if an interval has ended.
    fn look(&mut self, now: Nanos, out: &mut dyn Outlet) {
        if now < self.intervals.end() {
            return;
        }
        if self.intervals.begin(now) {
            if self.condition.is_difference {
                self.read(now, out);
            }
            return;
        }
        if let Some((start, ended)) = self.intervals.advance(now).filter(|(_, ended)| *ended > 0) {
            self.read(Nanos(start.0 + self.intervals.length()), out);
            // Nothing has come since: all readings between are this one.
            if ended > 1 {
                self.read(Nanos(start.0 + ended * self.intervals.length()), out);
            }
        }
    }
}
