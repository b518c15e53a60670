//! Members of Suricata's events of flows.

use super::eve::{Member, members, timestamp};
use super::values::{Cell, Name, Values};

pub(super) static FLOW: &[Member] = members! {
    "flow": object {
        "pkts_toserver": number(src_packets);
        "pkts_toclient": number(dst_packets);
        "bytes_toserver": made(|values| {
            let names = [Name::src_bytes, Name::src_ip_bytes, Name::src_packets];
            bytes(values, names)
        });
        "bytes_toclient": made(|values| {
            let names = [Name::dst_bytes, Name::dst_ip_bytes, Name::dst_packets];
            bytes(values, names)
        });
        "start": made(|values| Cell::of(values.time(Name::start), timestamp));
        "end": made(|values| Cell::of(values.time(Name::end), timestamp));
        // Of whole seconds on the clock.
        "age": made(|values| {
            let times = values.time(Name::start).zip(values.time(Name::end));
            Cell::of(times, |(start, end)| {
                let [start, end] = [start, end].map(|time| time.0 / 1_000_000_000);
                Cell::Number(end.saturating_sub(start))
            })
        });
        "state": made(|values| {
            Cell::Text(match tcp_state(values) {
                Some("last_ack" | "time_wait" | "closed") => "closed",
                Some("none" | "syn_sent" | "syn_recv") => "new",
                Some(_) => "established",
                None if values.number(Name::dst_packets) == Some(0) => "new",
                None => "established",
            })
        });
        "reason": made(|values| {
            Cell::Text(match values.text(Name::end_reason) {
                Some("evicted") => "forced",
                _ if values.yes(Name::until_end) == Some(true) => "shutdown",
                _ => "timeout",
            })
        });
        "alerted": made(|_| Cell::Bool(false));
    };
    "tcp": object {
        "tcp_flags": made(|values| flags_text(values, BOTH));
        "tcp_flags_ts": made(|values| flags_text(values, &[Name::src_tcp_flags]));
        "tcp_flags_tc": made(|values| flags_text(values, &[Name::dst_tcp_flags]));
        "syn": made(|values| flag(values, 'S'));
        "fin": made(|values| flag(values, 'F'));
        "rst": made(|values| flag(values, 'R'));
        "psh": made(|values| flag(values, 'P'));
        "ack": made(|values| flag(values, 'A'));
        "urg": made(|values| flag(values, 'U'));
        "ecn": made(|values| flag(values, 'E'));
        "cwr": made(|values| flag(values, 'C'));
        "state": made(|values| Cell::of(tcp_state(values), Cell::Text));
    };
};

/// The TCP flags of both sides.
const BOTH: &[Name] = &[Name::src_tcp_flags, Name::dst_tcp_flags];

/// Bytes of a side: of a flow within a tunnel those of what the tunnel carries, a header of Ethernet with it if that is
/// carried, too.
fn bytes<'a>(values: &Values<'a>, names: [Name; 3]) -> Cell<'a> {
    const ETHERNET: u64 = 14;
    let [of_frames, of_ip, frames] = names.map(|name| values.number(name));
    let within = of_ip.zip(frames);
    let within = values.tunnel().zip(within).map(|(kind, (bytes, frames))| {
        let headers = match kind {
            "vxlan" | "geneve" | "erspan" => frames.saturating_mul(ETHERNET),
            _ => 0,
        };
        bytes.saturating_add(headers)
    });
    Cell::of(within.or(of_frames), Cell::Number)
}

/// TCP flags that these sides sent, in hexadecimal digits.
fn flags_text<'a>(values: &Values<'a>, sides: &[Name]) -> Cell<'a> {
    const LETTERS: &str = "FSRPAUEC";
    if values.text(Name::src_tcp_flags).is_none() {
        return Cell::Unset;
    }
    let letters = sides.iter().filter_map(|side| values.text(*side));
    let bits = letters
        .flat_map(str::chars)
        .filter_map(|it| LETTERS.find(it));
    Cell::Hex(bits.fold(0, |all, bit| all | 1 << bit), 2)
}

fn flag<'a>(values: &Values<'a>, letter: char) -> Cell<'a> {
    let mut sides = BOTH.iter().filter_map(|side| values.text(*side));
    match sides.any(|letters| letters.contains(letter)) {
        true => Cell::Bool(true),
        false => Cell::Unset,
    }
}

/// The state of a TCP connection at its end, by those of RFC 9293, section 3.3.2, that a watcher between both
/// ends can tell.
fn tcp_state(values: &Values<'_>) -> Option<&'static str> {
    values.text(Name::src_tcp_flags)?;
    let is_answered = values.number(Name::dst_packets) != Some(0);
    Some(match values.text(Name::state)? {
        "S0" | "SH" => "syn_sent",
        "S1" => "established",
        "S2" => "close_wait",
        "S3" => "fin_wait2",
        "OTH" | "SHR" if !is_answered => "none",
        "OTH" | "SHR" => "established",
        _ => "closed",
    })
}
