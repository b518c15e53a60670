//! What the values of options mean. Numbers, sizes and times are read as in stacks.

use std::ffi::OsString;
use std::str::FromStr;

use flowgauge_kit::engine::{OTHER_IDLE, TCP_IDLE, UDP_IDLE};
use flowgauge_stack::{OptionInfo, OptionKind, OptionValue, Settings};
use flowgauge_wire::Nanos;

use super::passed::setting;

/// Options whose value may be left out. It is joined to the name by an equals sign, as what follows may be a filter.
pub(super) const OPTIONAL: [&str; 2] = ["--dedup", "--watch"];

/// The words of a command line, with `--dedup 5ms` as `--dedup=5ms`.
pub(crate) fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut is_over = false;
    for word in given {
        is_over |= word == "--";
        let is_span = || word.to_str().is_some_and(|it| parse_duration(it).is_ok());
        let before = words
            .last_mut()
            .filter(|it| OPTIONAL.iter().any(|name| it.as_os_str() == *name));
        match before.filter(|_| !is_over && is_span()) {
            Some(before) => {
                before.push("=");
                before.push(word);
            }
            None => words.push(word),
        }
    }
    words
}

/// A value as in stacks; a time is more than zero.
pub(super) fn read_option(kind: OptionKind, text: &str) -> Result<OptionValue, String> {
    match kind.read(text)? {
        OptionValue::Duration(0) => Err("must be more than zero".to_owned()),
        value => Ok(value),
    }
}

/// Idle timeouts by protocol: `tcp=300,udp=60,other=30` (any of them), or one time for all.
pub(super) fn parse_idle_timeouts(text: &str) -> Result<Settings, String> {
    static ALL: [(&str, OptionInfo); 3] =
        [("tcp", TCP_IDLE), ("udp", UDP_IDLE), ("other", OTHER_IDLE)];
    let mut timeouts = Vec::new();
    for part in text.split(',') {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (Some(name.trim()), value),
            None => (None, part),
        };
        let named = ALL
            .iter()
            .filter(|(own, _)| name.is_none_or(|name| name == *own));
        let before = timeouts.len();
        for (_, option) in named {
            timeouts.push(setting(option, read_option(option.kind, value.trim())?));
        }
        if timeouts.len() == before {
            let name = name.unwrap_or_default();
            return Err(format!(
                "unknown protocol \"{name}\" (expected tcp, udp or other)"
            ));
        }
    }
    // The last of several counts.
    timeouts.reverse();
    Ok(Settings::new(timeouts))
}

/// A time span: seconds, or a number with a unit; more than zero.
pub(super) fn parse_duration(text: &str) -> Result<Nanos, String> {
    match read_option(OptionKind::Duration, text)? {
        OptionValue::Duration(nanos) => Ok(Nanos(nanos)),
        other => Err(format!("{other} is not a duration")),
    }
}

/// A point in time.
pub(super) fn parse_time(text: &str) -> Result<Nanos, String> {
    let time = flowgauge_components::time(text).map(Nanos);
    time.ok_or_else(|| format!("\"{text}\" is not a time, such as \"2026-11-22 10:30:00\" (UTC)"))
}

/// A time span of whole seconds.
pub(super) fn parse_seconds(text: &str) -> Result<u64, String> {
    let nanos = parse_duration(text)?.0;
    match nanos % 1_000_000_000 {
        0 => Ok(nanos / 1_000_000_000),
        _ => Err(format!("{text} is not a whole number of seconds")),
    }
}

/// Why a text is not what a number is read from.
fn not_whole(text: &str, what: &str) -> String {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => "is too large".to_owned(),
        false => format!("\"{text}\" is not {what}"),
    }
}

/// A whole number above zero.
pub(super) fn parse_positive<N: FromStr + Default + PartialEq>(text: &str) -> Result<N, String> {
    match text.parse() {
        Ok(number) if number == N::default() => Err("must be more than zero".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(not_whole(text, "a whole number above zero")),
    }
}

/// Bytes, or nothing; k, M, G and T are powers of 1024.
fn parse_bytes(text: &str) -> Result<u64, String> {
    match OptionKind::Size.read(text)? {
        OptionValue::Size(bytes) => Ok(bytes),
        other => Err(format!("{other} is not a number of bytes")),
    }
}

/// Bytes; k, M, G and T are powers of 1024.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("must be more than zero".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Bytes of a packet: 0 is all of them.
pub(super) fn parse_snapshot_length(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    u32::try_from(bytes).map_err(|_| format!("{text} is too large"))
}

/// As tcpdump's -C: millions of bytes, or a number with a unit.
pub(super) fn parse_file_size(text: &str) -> Result<u64, String> {
    bare_in(1_000_000, text)
}

/// As tcpdump's -B: KiB, or a number with a unit.
pub(super) fn parse_buffer_size(text: &str) -> Result<u64, String> {
    bare_in(1024, text)
}

/// Bytes: a bare number counts units of so many.
fn bare_in(unit: u64, text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    match text.ends_with(|letter: char| letter.is_ascii_digit()) {
        true => bytes
            .checked_mul(unit)
            .ok_or_else(|| format!("{text} is too large")),
        false => Ok(bytes),
    }
}

/// Bits per second; k, m and g are powers of 1000, with or without "bit" behind them.
pub(super) fn parse_bit_rate(text: &str) -> Result<f64, String> {
    let small = text.to_ascii_lowercase();
    let number = small.trim_end_matches("/s").trim_end_matches("ps");
    let number = number.trim_end_matches("bit");
    let (number, factor) = match number.chars().last() {
        Some('k') => (&number[..number.len() - 1], 1e3),
        Some('m') => (&number[..number.len() - 1], 1e6),
        Some('g') => (&number[..number.len() - 1], 1e9),
        _ => (number, 1.0),
    };
    let rate = number.parse::<f64>().map(|number| number * factor);
    let rate = rate.ok().filter(|rate| rate.is_finite() && *rate >= 1.0);
    rate.ok_or_else(|| format!("\"{text}\" is not a rate such as 100mbit or 1gbit"))
}

/// A number from 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_be_left_out_follow_their_option() {
        for (given, read) in [
            ("flows --dedup 5ms tcp", "flows --dedup=5ms tcp"),
            ("flows --dedup tcp", "flows --dedup tcp"),
            ("flows --dedup=1s 5ms", "flows --dedup=1s 5ms"),
            ("locality -- x --watch 5", "locality -- x --watch 5"),
        ] {
            let words = words(given.split(' ').map(OsString::from));
            let read: Vec<&str> = read.split(' ').collect();
            assert_eq!(words, read, "{given}");
        }
    }

    #[test]
    fn idle_timeouts() {
        let read = |text| {
            let timeouts = parse_idle_timeouts(text)?;
            let of = |option| timeouts.duration(option);
            Ok::<_, String>(["tcp_timeout", "udp_timeout", "other_timeout"].map(of))
        };
        let second = 1_000_000_000;
        assert_eq!(
            read("tcp=300,other=0.5"),
            Ok([Some(300 * second), None, Some(second / 2)])
        );
        assert_eq!(read("9"), Ok([Some(9 * second); 3]));
        assert_eq!(
            read("9,udp=2s"),
            Ok([Some(9 * second), Some(2 * second), Some(9 * second)])
        );
        for wrong in ["sctp=1", "tcp=-1", "tcp=inf", "0", ""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("100ms"), Ok(Nanos::from_millis(100)));
        assert_eq!(parse_duration("50us"), Ok(Nanos(50_000)));
        assert_eq!(parse_duration("2"), Ok(Nanos::from_secs(2)));
        assert_eq!(parse_seconds("2m"), Ok(120));
        assert!(parse_seconds("1500ms").is_err());
        for wrong in ["", "-1", "1 week", "ms", "0"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn points_in_time() {
        // date -u -d '2026-11-22 10:30' +%s
        let time = Ok(Nanos::from_secs(1_795_343_400));
        for text in [
            "2026-11-22 10:30",
            "2026-11-22T10:30:00Z",
            "2026-11-22 10:30:00.0",
            "1795343400",
        ] {
            assert_eq!(parse_time(text), time, "{text}");
        }
        assert_eq!(parse_time("1970-01-02"), Ok(Nanos::from_secs(86_400)));
        for wrong in ["", "10:30", "2026-13-01", "yesterday"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(parse_file_size("2"), Ok(2_000_000));
        assert_eq!(parse_file_size("2KiB"), Ok(2048));
        assert!(parse_size("0").is_err());
        assert_eq!(parse_buffer_size("2"), Ok(2048));
        assert_eq!(parse_buffer_size("2M"), Ok(2 << 20));
        assert_eq!(parse_snapshot_length("0"), Ok(0));
        assert_eq!(parse_snapshot_length("64k"), Ok(65_536));
        assert!(parse_snapshot_length("4G").is_err());
        assert!(parse_size("1Q").is_err());
        assert!(parse_size("99999999999T").is_err());
        assert_eq!(parse_size("8388607T"), Ok(8_388_607 << 40));
        assert!(parse_file_size("9223372036854775807").is_err());
        let refused = Err("9000000T is too large".to_owned());
        assert_eq!(parse_size("9000000T"), refused);
    }
}
