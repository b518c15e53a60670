//! What the values of options mean. Numbers, sizes and times are read as in stacks.

use std::str::FromStr;

use flowgauge_kit::engine::{OTHER_IDLE, TCP_IDLE, UDP_IDLE};
use flowgauge_stack::{OptionInfo, OptionKind, OptionValue, Settings};
use flowgauge_wire::Nanos;

use super::passed::setting;

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
            return Err(format!("\"{name}\" is none of tcp, udp, other"));
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
        other => Err(format!("{other} is no time span")),
    }
}

/// A whole number.
pub(super) fn parse_whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| not_whole(text, "whole number"))
}

/// Why a text is not what a number is read from.
fn not_whole(text: &str, what: &str) -> String {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => "is too large".to_owned(),
        false => format!("\"{text}\" is no {what}"),
    }
}

/// A whole number above zero.
pub(super) fn parse_positive<N: FromStr + Default + PartialEq>(text: &str) -> Result<N, String> {
    match text.parse() {
        Ok(number) if number == N::default() => Err("must be more than zero".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(not_whole(text, "whole number above zero")),
    }
}

/// Bytes; k, M, G and T are powers of 1024.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    match OptionKind::Size.read(text)? {
        OptionValue::Size(0) => Err("must be more than zero".to_owned()),
        OptionValue::Size(bytes) => Ok(bytes),
        other => Err(format!("{other} is no number of bytes")),
    }
}

/// As tcpdump's -C: millions of bytes, or a number with a unit.
pub(super) fn parse_file_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    match text.ends_with(|letter: char| letter.is_ascii_digit()) {
        true => bytes
            .checked_mul(1_000_000)
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
    rate.ok_or_else(|| format!("\"{text}\" is no rate, as 100mbit or 1gbit"))
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
        for wrong in ["", "-1", "1 week", "ms", "0"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(parse_file_size("2"), Ok(2_000_000));
        assert_eq!(parse_file_size("2KiB"), Ok(2048));
        assert!(parse_size("0").is_err());
        assert!(parse_size("1Q").is_err());
        assert!(parse_size("99999999999T").is_err());
        assert_eq!(parse_size("8388607T"), Ok(8_388_607 << 40));
        assert!(parse_file_size("9223372036854775807").is_err());
        let refused = Err("9000000T is too large".to_owned());
        assert_eq!(parse_size("9000000T"), refused);
    }
}
