//! What the values of options mean.

use std::str::FromStr;

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stack::{OptionKind, OptionValue};
use flowgauge_wire::Nanos;

use crate::memory::LEAST_MEMORY;

/// Idle timeouts by protocol, where they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleTimeouts {
    pub(crate) tcp: Option<Nanos>,
    pub(crate) udp: Option<Nanos>,
    pub(crate) other: Option<Nanos>,
}

/// `tcp=300,udp=60,other=30` (any of them), or one number for all.
pub(super) fn parse_idle_timeouts(text: &str) -> Result<IdleTimeouts, String> {
    let mut timeouts = IdleTimeouts::default();
    for part in text.split(',') {
        let Some((name, value)) = part.split_once('=') else {
            let all = Some(parse_seconds(part)?);
            timeouts = IdleTimeouts {
                tcp: all,
                udp: all,
                other: all,
            };
            continue;
        };
        let value = Some(parse_seconds(value)?);
        match name.trim() {
            "tcp" => timeouts.tcp = value,
            "udp" => timeouts.udp = value,
            "other" => timeouts.other = value,
            _ => return Err(format!("\"{name}\" is none of tcp, udp, other")),
        }
    }
    Ok(timeouts)
}

/// An overlap policy by its name.
pub(super) fn parse_policy(text: &str) -> Result<OverlapPolicy, String> {
    text.parse::<OverlapPolicy>()
        .map_err(|error| error.to_string())
}

/// Seconds, with a fraction if need be; more than zero.
pub(super) fn parse_seconds(text: &str) -> Result<Nanos, String> {
    let text = text.trim();
    let seconds: f64 = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .map_err(|_| format!("\"{text}\" is no number of seconds"))?;
    let nanos = seconds * 1e9;
    if !(nanos >= 1.0 && nanos < u64::MAX as f64) {
        return Err("must be more than zero and less than 500 years".to_owned());
    }
    Ok(Nanos(nanos as u64))
}

/// A time span as in stacks: seconds, or a number with a unit.
pub(super) fn parse_duration(text: &str) -> Result<Nanos, String> {
    match OptionKind::Duration.read(text)? {
        OptionValue::Duration(nanos) => Ok(Nanos(nanos)),
        other => Err(format!("{other} is no time span")),
    }
}

/// A whole number above zero, perhaps with k, M or G for thousands, millions, milliards.
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
    parse_scaled(
        text,
        &[("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)],
        1,
    )
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

/// Bytes; K, M, G and T are powers of 1024.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    parse_scaled(text, BINARY_UNITS, 1)
}

/// The most that options of stacks can say.
const MOST: u64 = i64::MAX.unsigned_abs();

/// Bytes of memory, enough for one worker.
pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < LEAST_MEMORY {
        return Err("is too little: give 1M at least".to_owned());
    }
    Ok(bytes)
}

/// Bytes as [`parse_size`], or none.
pub(super) fn parse_scaled_or_zero(text: &str) -> Result<u64, String> {
    if text.bytes().all(|digit| digit == b'0') && !text.is_empty() {
        return Ok(0);
    }
    parse_size(text)
}

/// As tcpdump's -C: millions of bytes, or a number with a unit.
pub(super) fn parse_file_size(text: &str) -> Result<u64, String> {
    parse_scaled(text, BINARY_UNITS, 1_000_000)
}

const BINARY_UNITS: &[(&str, u64)] = &[
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
];

pub(super) fn parse_scaled(text: &str, units: &[(&str, u64)], without: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("\"{text}\" is no number, 0 or more"));
    }
    let unit = &text[digits.len()..];
    let factor = if unit.is_empty() {
        without
    } else {
        let Some((_, factor)) = units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        else {
            let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "unknown unit \"{unit}\"; known: {}",
                names.join(", ")
            ));
        };
        *factor
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("\"{text}\" is no whole number"))?;
    match number.checked_mul(factor) {
        Some(0) => Err("must be more than zero".to_owned()),
        Some(product) if product <= MOST => Ok(product),
        _ => Err("is too large".to_owned()),
    }
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
        assert_eq!(
            parse_idle_timeouts("tcp=300,other=0.5"),
            Ok(IdleTimeouts {
                tcp: Some(Nanos::from_secs(300)),
                udp: None,
                other: Some(Nanos::from_millis(500)),
            })
        );
        let all = Some(Nanos::from_secs(9));
        assert_eq!(
            parse_idle_timeouts("9"),
            Ok(IdleTimeouts {
                tcp: all,
                udp: all,
                other: all
            })
        );
        assert!(parse_idle_timeouts("sctp=1").is_err());
        assert!(parse_idle_timeouts("tcp=-1").is_err());
        assert!(parse_idle_timeouts("tcp=inf").is_err());
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("100ms"), Ok(Nanos::from_millis(100)));
        assert_eq!(parse_duration("50us"), Ok(Nanos(50_000)));
        assert_eq!(parse_duration("2"), Ok(Nanos::from_secs(2)));
        for wrong in ["", "-1", "1 week", "ms"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(parse_file_size("2"), Ok(2_000_000));
        assert_eq!(parse_file_size("2KiB"), Ok(2048));
        assert_eq!(parse_count("3k"), Ok(3000));
        assert!(parse_size("0").is_err());
        assert_eq!(parse_memory("1M"), Ok(1 << 20));
        assert!(parse_memory("1048575").is_err());
        assert!(parse_size("1Q").is_err());
        assert!(parse_size("99999999999T").is_err());
        assert_eq!(parse_size("8388607T"), Ok(8_388_607 << 40));
        assert_eq!(parse_size("9000000T"), Err("is too large".to_owned()));
    }
}
