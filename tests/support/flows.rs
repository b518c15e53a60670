//! A flow record as the program writes it.

use std::net::IpAddr;

use serde_json::Value;

/// One line of `flowgauge flows --json`.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub source: IpAddr,
    pub source_port: u64,
    pub destination: IpAddr,
    pub destination_port: u64,
    pub protocol: String,
    pub sides: [Side; 2],
    /// Seconds since 1970.
    pub start: f64,
    pub end: f64,
    pub duration: f64,
    pub fragments: u64,
    /// TCP flags seen in either direction, as letters.
    pub tcp_flags: String,
    pub state: String,
    pub history: String,
    pub community_id: String,
    pub tunnel: Value,
    pub vlan: Value,
    pub end_reason: String,
}

/// Counters of a direction; the first is the initiator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    pub packets: u64,
    pub bytes: u64,
    pub ip_bytes: u64,
    pub payload_bytes: u64,
}

/// Who talked with whom, whoever began: the sorted endpoints and the protocol.
pub(crate) type Conversation = ((IpAddr, u64), (IpAddr, u64), String);

impl Flow {
    /// Reads a record; panics with the line when a field of the contract is missing.
    pub(crate) fn from_json(line: &Value) -> Flow {
        let side = |prefix: &str| Side {
            packets: number(line, &format!("{prefix}_packets")),
            bytes: number(line, &format!("{prefix}_bytes")),
            ip_bytes: number(line, &format!("{prefix}_ip_bytes")),
            payload_bytes: number(line, &format!("{prefix}_payload_bytes")),
        };
        Flow {
            source: address(line, "src_ip"),
            source_port: port(line, "src_port"),
            destination: address(line, "dst_ip"),
            destination_port: port(line, "dst_port"),
            protocol: match &line["proto"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
            sides: [side("src"), side("dst")],
            start: seconds(&text(line, "start")),
            end: seconds(&text(line, "end")),
            duration: line["duration"].as_f64().unwrap_or(0.0),
            fragments: line["fragments"].as_u64().unwrap_or(0),
            tcp_flags: text(line, "src_tcp_flags") + &text(line, "dst_tcp_flags"),
            state: text(line, "state"),
            history: text(line, "history"),
            community_id: text(line, "community_id"),
            tunnel: line["tunnel"].clone(),
            vlan: line["vlan"].clone(),
            end_reason: text(line, "end_reason"),
        }
    }

    pub(crate) fn conversation(&self) -> Conversation {
        conversation(
            (self.source, self.source_port),
            (self.destination, self.destination_port),
            &self.protocol,
        )
    }
}

/// The sorted endpoints and the protocol.
pub(crate) fn conversation(a: (IpAddr, u64), b: (IpAddr, u64), protocol: &str) -> Conversation {
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    (low, high, protocol.to_owned())
}

fn number(line: &Value, name: &str) -> u64 {
    line[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {name} in {line}"))
}

fn port(line: &Value, name: &str) -> u64 {
    // Protocols without ports have none.
    line[name].as_u64().unwrap_or(0)
}

fn text(line: &Value, name: &str) -> String {
    line[name].as_str().unwrap_or("").to_owned()
}

fn address(line: &Value, name: &str) -> IpAddr {
    line[name]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no address {name} in {line}"))
}

/// Seconds since 1970 of an RFC 3339 time in UTC.
pub(crate) fn seconds(time: &str) -> f64 {
    let number = |range: std::ops::Range<usize>| {
        time.get(range)
            .and_then(|part| part.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    // Days of the civil calendar, March as the first month.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    let whole = days * 86_400 + number(11..13) * 3600 + number(14..16) * 60 + number(17..19);
    let fraction = time.get(19..).map_or("", |rest| rest.trim_end_matches('Z'));
    whole as f64 + format!("0{fraction}").parse::<f64>().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        assert_eq!(seconds("1970-01-01T00:00:01.500000000Z"), 1.5);
        assert_eq!(seconds("2013-03-07T21:42:06.000000000Z"), 1_362_692_526.0);
        assert_eq!(seconds("2000-02-29T00:00:00Z"), 951_782_400.0);
    }
}
