//! Dates, and times of the week, in UTC.

use core::fmt;
use std::collections::BTreeSet;

use time::format_description::well_known::Rfc3339;
use time::{Date, Month, OffsetDateTime, Time};

use crate::check::{Comparison, Kind, Query, Slot, Test, Value};
use crate::error::Error;

/// As facts name them.
pub(crate) const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MINUTES: i64 = 24 * 60;

/// A date in seconds since 1970: `2026-12-01`, `2026-12-01T18:00:00Z`; where there is a `now`, also `30d`, `12h`, `90m` from
/// then on.
///
/// # Errors
/// It is none of these.
pub fn date_of(text: &str, now: Option<u64>) -> Result<u64, Error> {
    let wrong = || {
        let what = match now {
            Some(_) => {
                "a date (2026-12-01, 2026-12-01T18:00:00Z) or a time from now (30d, 12h, 90m)"
            }
            None => "a date (2026-12-01, 2026-12-01T18:00:00Z)",
        };
        Error::limit(text, what)
    };
    let units = [('d', 86_400), ('h', 3600), ('m', 60)];
    for (unit, seconds) in units {
        if let Some(count) = text.strip_suffix(unit) {
            let count: u32 = count.parse().map_err(|_| wrong())?;
            let after = now.and_then(|now| now.checked_add(u64::from(count) * seconds));
            return after.ok_or_else(wrong);
        }
    }
    let date = match text.len() {
        10 => {
            let mut parts = text.split('-');
            let mut next = || parts.next()?.parse::<u16>().ok();
            let (year, month, day) = (next(), next(), next());
            let date = year.zip(month).zip(day).and_then(|((year, month), day)| {
                let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
                Date::from_calendar_date(year.into(), month, u8::try_from(day).ok()?).ok()
            });
            date.map(|date| OffsetDateTime::new_utc(date, Time::MIDNIGHT))
        }
        _ => OffsetDateTime::parse(text, &Rfc3339).ok(),
    };
    let seconds = date.map(OffsetDateTime::unix_timestamp);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.ok_or_else(wrong)
}

/// A date in seconds since 1970, as RFC 3339 has it.
pub fn date_text(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok();
    let date = date.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let text = date.and_then(|date| date.format(&Rfc3339).ok());
    text.unwrap_or_else(|| format!("second {seconds}"))
}

/// Day of the week and minute of the day of seconds since 1970.
pub(crate) fn clock(seconds: u64) -> (&'static str, i64) {
    let minute = (seconds / 60 % MINUTES.unsigned_abs()).cast_signed();
    // The 1st of January 1970 was a Thursday.
    let day = (seconds / 86_400 + 3) % 7;
    (DAYS[usize::try_from(day).unwrap_or(0)], minute)
}

/// Times of the week: `mon-fri 08:00-18:00`, `sat,sun`, `22:00-06:00`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    days: BTreeSet<&'static str>,
    /// Minutes of the day; the second is not in it.
    from: i64,
    until: i64,
}

impl Window {
    /// Reads windows: one, or two where it goes past midnight.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Vec<Window>, Error> {
        let wrong = || Error::limit(text, "a time of the week in UTC: mon-fri 08:00-18:00");
        let (mut days, mut minutes) = (None, None);
        for word in text.split_whitespace() {
            let is_read = match word.starts_with(|letter: char| letter.is_ascii_digit()) {
                true if minutes.is_none() => {
                    minutes = minutes_of(word);
                    minutes.is_some()
                }
                false if days.is_none() => {
                    days = days_of(word);
                    days.is_some()
                }
                _ => false,
            };
            if !is_read {
                return Err(wrong());
            }
        }
        if days.is_none() && minutes.is_none() {
            return Err(wrong());
        }
        let days = days.unwrap_or_else(|| DAYS.into_iter().collect());
        let (from, until) = minutes.unwrap_or((0, MINUTES));
        let window = |from, until| Window {
            days: days.clone(),
            from,
            until,
        };
        Ok(match from < until {
            true => vec![window(from, until)],
            false => vec![window(from, MINUTES), window(0, until)],
        })
    }

    pub(crate) fn query(&self) -> Query {
        let days = self.days.iter();
        let days = days.map(|day| Value::Text((*day).to_owned())).collect();
        Query::new("clock", &["$day", "$minute"])
            .and("day", Kind::In(days))
            .and(
                "minute",
                Kind::Compare(Comparison::AtLeast, Value::Number(self.from)),
            )
            .and(
                "minute",
                Kind::Compare(Comparison::Below, Value::Number(self.until)),
            )
    }

    pub(crate) fn of_query(query: &Query) -> Option<Window> {
        let [Slot::Any(day), Slot::Any(minute)] = &query.terms[..] else {
            return None;
        };
        match &query.tests[..] {
            [
                Test {
                    variable,
                    kind: Kind::In(days),
                },
                Test {
                    variable: one,
                    kind: Kind::Compare(Comparison::AtLeast, Value::Number(from)),
                },
                Test {
                    variable: other,
                    kind: Kind::Compare(Comparison::Below, Value::Number(until)),
                },
            ] if variable == day && one == minute && other == minute => {
                let known = |value: &Value| match value {
                    Value::Text(text) => DAYS.into_iter().find(|day| day == text),
                    _ => None,
                };
                Some(Window {
                    days: days.iter().map(known).collect::<Option<_>>()?,
                    from: *from,
                    until: *until,
                })
            }
            _ => None,
        }
    }
}

fn days_of(text: &str) -> Option<BTreeSet<&'static str>> {
    let at = |name: &str| DAYS.iter().position(|day| name.eq_ignore_ascii_case(day));
    let mut days = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (at(first)?, at(last)?);
        let last = if last < first { last + 7 } else { last };
        days.extend((first..=last).map(|day| DAYS[day % 7]));
    }
    Some(days)
}

fn minutes_of(text: &str) -> Option<(i64, i64)> {
    let minute = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let (hour, minute): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
        let all = i64::from(hour) * 60 + i64::from(minute);
        (minute < 60 && all <= MINUTES).then_some(all)
    };
    let (from, until) = text.split_once('-')?;
    let (from, until) = (minute(from)?, minute(until)?);
    (from != until && from < MINUTES).then_some((from, until))
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days: Vec<&str> = (DAYS.into_iter())
            .filter(|day| self.days.contains(day))
            .collect();
        let time = |minutes: i64| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        if days.len() < DAYS.len() {
            write!(f, "{} ", days.join(","))?;
        }
        write!(f, "{}-{}", time(self.from), time(self.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2026-11-22T00:43:45Z", 1_795_308_225),
            ("2026-11-22T01:43:45+01:00", 1_795_308_225),
            ("2d", 172_801),
            ("90m", 5401),
        ] {
            assert_eq!(date_of(text, Some(1)), Ok(seconds), "{text}");
        }
        assert_eq!(date_text(951_782_400), "2000-02-29T00:00:00Z");
        for text in [
            "",
            "d",
            "-1d",
            "2026-02-30",
            "2026-13-01",
            "1969-12-31",
            "tomorrow",
            "1.5h",
        ] {
            assert!(date_of(text, Some(1)).is_err(), "{text}");
        }
        assert!(date_of("1d", Some(u64::MAX)).is_err() && date_of("1d", None).is_err());
    }

    #[test]
    fn the_clock_is_that_of_the_calendar() {
        // date -u -d @1795308225: Sun Nov 22 00:43:45 UTC 2026
        assert_eq!(clock(1_795_308_225), ("sun", 43));
        assert_eq!(clock(0), ("thu", 0));
        assert_eq!(clock(86_399), ("thu", 1439));
    }

    #[test]
    fn windows_are_written_as_they_are_read() {
        for (text, shown) in [
            ("mon-fri 08:00-18:00", "mon,tue,wed,thu,fri 08:00-18:00"),
            ("sat,sun", "sat,sun 00:00-24:00"),
            ("08:00-24:00", "08:00-24:00"),
            ("22:00-06:00", "22:00-24:00, 00:00-06:00"),
            ("sat-mon 00:00-00:01", "mon,sat,sun 00:00-00:01"),
        ] {
            let windows = Window::parse(text).unwrap();
            let texts: Vec<String> = windows.iter().map(ToString::to_string).collect();
            assert_eq!(texts.join(", "), shown);
            for window in windows {
                assert_eq!(Window::of_query(&window.query()), Some(window));
            }
        }
        for text in [
            "",
            "always",
            "mon mon",
            "8-18",
            "24:00-01:00",
            "08:00-08:00",
            "08:60-09:00",
            "mon-",
        ] {
            assert!(Window::parse(text).is_err(), "{text}");
        }
    }
}
