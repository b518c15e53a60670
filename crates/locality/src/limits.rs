//! How much is gathered, and for how long, as users say it.

use core::time::Duration;

/// Packets of a buffer if nothing else is said.
pub const DEFAULT_PACKETS: usize = 4000;

/// The most packets of a buffer.
pub const MAX_PACKETS: usize = 1 << 20;

/// The time after a buffer's first packet in which more are gathered, if nothing else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);

const LONGEST: Duration = Duration::from_secs(3600);

/// Reads how many packets a buffer has.
///
/// # Errors
/// What is wrong with it.
pub fn packets(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(packets) if (1..=MAX_PACKETS).contains(&packets) => Ok(packets),
        _ => Err(format!(
            "\"{}\" is not a number of packets from 1 to {MAX_PACKETS}",
            text.escape_debug()
        )),
    }
}

/// Reads a time as `100ms`, `500us` or `2s`, or `2`; `none` is no limit.
///
/// # Errors
/// What is wrong with it.
pub fn timeout(text: &str) -> Result<Option<Duration>, String> {
    if text == "none" {
        return Ok(None);
    }
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number = number.parse::<u64>().ok();
    let duration = match unit {
        "us" => number.map(Duration::from_micros),
        "ms" => number.map(Duration::from_millis),
        "" | "s" => number.map(Duration::from_secs),
        "m" => number.and_then(|number| Some(Duration::from_secs(number.checked_mul(60)?))),
        "h" => number.and_then(|number| Some(Duration::from_secs(number.checked_mul(3600)?))),
        _ => None,
    };
    match duration {
        Some(duration) if !duration.is_zero() && duration <= LONGEST => Ok(Some(duration)),
        _ => Err(format!(
            "\"{}\" is neither a time up to an hour (500us, 100ms, 2s) nor \"none\"",
            text.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        assert_eq!(packets("4000"), Ok(4000));
        assert_eq!(timeout("none"), Ok(None));
        assert_eq!(timeout("100ms"), Ok(Some(DEFAULT_TIMEOUT)));
        for two in ["2s", "2"] {
            assert_eq!(timeout(two), Ok(Some(Duration::from_secs(2))));
        }
        assert_eq!(timeout("2m"), Ok(Some(Duration::from_secs(120))));
        assert_eq!(timeout("7us"), Ok(Some(Duration::from_micros(7))));
        for wrong in ["0", "", "-1", "1048577", "ten"] {
            assert!(packets(wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "",
            "0ms",
            "2h",
            "99999999999999999h",
            "-1s",
            "3601s",
            "99999999999999999999s",
            "ms",
            "1 s",
        ] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
    }
}
