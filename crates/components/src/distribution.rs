//! `distribution`: a histogram of another component's result.

use flowgauge_kit::measure::{EVERY, Measured, OF, Summary, amount};
use flowgauge_stack::{
    Cell, Component, ComponentInfo, Parallel, ResultInfo, SettingError, Settings, Table, columns,
    options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "distribution",
    aliases: &["dist"],
    summary: "makes a histogram of the values of another component's result",
    help: "Values are chosen as for `statistics`. The first row counts values below `min`, the last those of \
           `max` and above. Numbers may have k, M, G, or be time spans in nanoseconds (ns, us, ms, s, m, h).",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("values by interval", &COLUMNS)),
    parallel: Parallel::Never("a result that packets do not have each is that of all packets"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    [OF.required()];
    min: Text = required, "where the first interval begins";
    max: Text = required, "where the last one ends";
    interval: Text = required, "width of the intervals";
    [EVERY];
}

columns! {
    static COLUMNS;
    from Unsigned Key "where the interval begins";
    count Unsigned Sum "values in it";
}

/// Intervals at most.
const MAX_SLOTS: u64 = 100_000;

/// Counts by interval, with those below and above.
pub(crate) struct Histogram {
    min: u64,
    max: u64,
    width: u64,
    slots: Vec<u64>,
}

impl Histogram {
    /// From `min` to below `max` in steps of `width`.
    pub(crate) fn new(min: u64, max: u64, width: u64) -> Result<Histogram, String> {
        if width == 0 || max <= min {
            return Err("there is no interval between min and max".to_owned());
        }
        let count = (max - min).div_ceil(width);
        if count > MAX_SLOTS {
            return Err(format!("{count} intervals are more than {MAX_SLOTS}"));
        }
        Ok(Histogram {
            min,
            max,
            width,
            slots: vec![0; count as usize + 2],
        })
    }

    /// The interval of a value; 0 is below all.
    pub(crate) fn slot(&self, value: i128) -> usize {
        if value < i128::from(self.min) {
            return 0;
        }
        if value >= i128::from(self.max) {
            return self.slots.len() - 1;
        }
        ((value - i128::from(self.min)) / i128::from(self.width)) as usize + 1
    }

    /// Where an interval begins; nowhere below all.
    pub(crate) fn from(&self, slot: usize) -> Cell {
        match slot {
            0 => Cell::None,
            _ if slot + 1 == self.slots.len() => Cell::Unsigned(self.max),
            _ => Cell::Unsigned(self.min + (slot as u64 - 1) * self.width),
        }
    }

    /// How many intervals there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let read =
        |option, text: &str| amount(text).map_err(|message| SettingError::of(option, message));
    let (min, max) = (read("min", &options.min)?, read("max", &options.max)?);
    let histogram = Histogram::new(min, max, read("interval", &options.interval)?);
    let histogram = histogram.map_err(|message| SettingError::of("interval", message))?;
    Ok(Box::new(Measured::new(settings, histogram)))
}

impl Summary for Histogram {
    fn add(&mut self, value: i128) {
        let slot = self.slot(value);
        if let Some(count) = self.slots.get_mut(slot) {
            *count += 1;
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&COLUMNS, self.len());
        let counts = self.slots.iter().enumerate();
        table.rows = counts
            .map(|(slot, count)| vec![self.from(slot), Cell::Unsigned(*count)])
            .collect();
        table
    }

    fn clear(&mut self) {
        self.slots.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_intervals_and_the_rest_outside() {
        let mut histogram = Histogram::new(10, 35, 10).expect("three intervals");
        for value in [-5, 9, 10, 19, 20, 34, 35, i128::MAX] {
            histogram.add(value);
        }
        assert_eq!(histogram.slots, [2, 2, 1, 1, 2]);
        let from: Vec<Cell> = (0..5).map(|slot| histogram.from(slot)).collect();
        let number = Cell::Unsigned;
        assert_eq!(
            from,
            [Cell::None, number(10), number(20), number(30), number(35)]
        );
        assert!(Histogram::new(1, 1, 1).is_err() && Histogram::new(0, 1, 0).is_err());
        assert!(Histogram::new(0, u64::MAX, 1).is_err());
    }
}
