//! `start_stop`: packets between two points in time.

use chrono::NaiveDateTime;
use flowgauge_kit::measure::amount;
use flowgauge_stack::{
    Cell, Component, ComponentInfo, Items, Outlet, Parallel, ResultInfo, ResultValue, SettingError,
    Settings, Table, columns, options,
};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "start_stop",
    aliases: &["startstop"],
    summary: "selects packets between two points in time",
    help: "Times are those of the capture: `+10s` (us, ms, s, m, h) after the first packet, or `2026-11-22 \
           10:30:00` in UTC. Packets at or after the first time and before the second pass.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("times of packets", &COLUMNS)),
    parallel: Parallel::Never("times are counted from the first of all packets"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    start: Text = "+0", "when it begins";
    stop: Text, "when it ends; without it, never";
}

columns! {
    static COLUMNS;
    first Time Min "the first packet that came";
    first_processed Time Min "the first let through";
    last Time Max "the last let through";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// So long after the first packet.
    After(u64),
    /// At this time.
    At(u64),
}

impl When {
    fn read(text: &str) -> Result<When, String> {
        match text.strip_prefix('+') {
            Some(span) => {
                let bare = span.ends_with(|c: char| c.is_ascii_digit());
                let span = if bare {
                    format!("{span}s")
                } else {
                    span.to_owned()
                };
                amount(&span).map(When::After)
            }
            None => date(text)
                .map(When::At)
                .ok_or_else(|| format!("\"{text}\" is not a time, as 2026-11-22 10:30:00 or +10s")),
        }
    }

    fn time(self, first: Nanos) -> u64 {
        match self {
            When::After(span) => first.0.saturating_add(span),
            When::At(time) => time,
        }
    }
}

/// Nanoseconds since 1970 of `YYYY-MM-DD HH:MM:SS` in UTC; seconds, or the time of day, may be left out.
pub(crate) fn date(text: &str) -> Option<u64> {
    let text = text.trim_end_matches('Z').replace('T', " ");
    let whole = ["", ":00", " 00:00:00"].map(|rest| format!("{text}{rest}"));
    let mut whole = whole.iter();
    let date = whole.find_map(|it| NaiveDateTime::parse_from_str(it, "%Y-%m-%d %H:%M:%S").ok())?;
    let date = date.and_utc();
    let nanos = u64::try_from(date.timestamp())
        .ok()?
        .checked_mul(1_000_000_000)?;
    nanos.checked_add(date.timestamp_subsec_nanos().into())
}

struct StartStop {
    start: When,
    stop: Option<When>,
    first: Option<Nanos>,
    first_processed: Option<Nanos>,
    last: Option<Nanos>,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let read =
        |option, text: &str| When::read(text).map_err(|message| SettingError::of(option, message));
    let start = read("start", &options.start)?;
    let stop = options.stop.map(|stop| read("stop", &stop)).transpose()?;
    let is_before = match (start, stop) {
        (When::After(start), Some(When::After(stop))) | (When::At(start), Some(When::At(stop))) => {
            stop <= start
        }
        _ => false,
    };
    if is_before {
        return Err(SettingError::of("stop", "is not after start"));
    }
    Ok(Box::new(StartStop {
        start,
        stop,
        first: None,
        first_processed: None,
        last: None,
    }))
}

impl Component for StartStop {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        for (index, packet) in all.iter() {
            let first = *self.first.get_or_insert(packet.time);
            let is_before = packet.time.0 < self.start.time(first);
            if is_before
                || self
                    .stop
                    .is_some_and(|stop| packet.time.0 >= stop.time(first))
            {
                packets.selected.remove(index);
                continue;
            }
            self.first_processed.get_or_insert(packet.time);
            self.last = Some(self.last.map_or(packet.time, |last| last.max(packet.time)));
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, 1);
        let times = [self.first, self.first_processed, self.last];
        table.rows.push(
            times
                .map(|time| time.map_or(Cell::None, Cell::Time))
                .to_vec(),
        );
        Some(ResultValue::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_or_absolute() {
        assert_eq!(When::read("+10"), Ok(When::After(10_000_000_000)));
        assert_eq!(When::read("+5ms"), Ok(When::After(5_000_000)));
        let at = |seconds: u64| Ok(When::At(seconds * 1_000_000_000));
        assert_eq!(When::read("1970-01-02 00:00:01"), at(86_401));
        assert_eq!(When::read("2000-02-29T12:00:00Z"), at(951_825_600));
        assert_eq!(When::read("2026-11-22 10:30:00"), at(1_795_343_400));
        for wrong in [
            "10s",
            "2026-02-29 00:00:00",
            "2026-13-01 0:0:0",
            "2026-00-01 0:0:0",
            "",
            "+",
        ] {
            assert!(When::read(wrong).is_err(), "{wrong}");
        }
    }
}
