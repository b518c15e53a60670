//! Members of Suricata's events of flows.

use super::eve::Origin::{Made, Number, Object};
use super::eve::{Member, member, timestamp};
use super::values::{Cell, Name, Values};

pub(super) static FLOW: &[Member] = &[
    member("flow", Object(FLOW_ITSELF)),
    member("tcp", Object(FLOW_TCP)),
];
static FLOW_ITSELF: &[Member] = &[
    member("pkts_toserver", Number(Name::src_packets)),
    member("pkts_toclient", Number(Name::dst_packets)),
    member(
        "bytes_toserver",
        Made(|values| {
            let names = [Name::src_bytes, Name::src_ip_bytes, Name::src_packets];
            bytes(values, names)
        }),
    ),
    member(
        "bytes_toclient",
        Made(|values| {
            let names = [Name::dst_bytes, Name::dst_ip_bytes, Name::dst_packets];
            bytes(values, names)
        }),
    ),
    member(
        "start",
        Made(|values| Cell::of(values.time(Name::start), timestamp)),
    ),
    member(
        "end",
        Made(|values| Cell::of(values.time(Name::end), timestamp)),
    ),
    // Of whole seconds on the clock.
    member(
        "age",
        Made(|values| {
            let times = values.time(Name::start).zip(values.time(Name::end));
            Cell::of(times, |(start, end)| {
                let [start, end] = [start, end].map(|time| time.0 / 1_000_000_000);
                Cell::Number(end.saturating_sub(start))
            })
        }),
    ),
    member(
        "state",
        Made(|values| {
            Cell::Text(match tcp_state(values) {
                Some("last_ack" | "time_wait" | "closed") => "closed",
                Some("none" | "syn_sent" | "syn_recv") => "new",
                Some(_) => "established",
                None if values.number(Name::dst_packets) == Some(0) => "new",
                None => "established",
            })
        }),
    ),
    member(
        "reason",
        Made(|values| {
            Cell::Text(match values.text(Name::end_reason) {
                Some("evicted") => "forced",
                _ if values.yes(Name::until_end) == Some(true) => "shutdown",
                _ => "timeout",
            })
        }),
    ),
    member("alerted", Made(|_| Cell::Bool(false))),
];
static FLOW_TCP: &[Member] = &[
    member("tcp_flags", Made(|values| flags_text(values, BOTH))),
    member(
        "tcp_flags_ts",
        Made(|values| flags_text(values, &[Name::src_tcp_flags])),
    ),
    member(
        "tcp_flags_tc",
        Made(|values| flags_text(values, &[Name::dst_tcp_flags])),
    ),
    member("syn", Made(|values| flag(values, 'S'))),
    member("fin", Made(|values| flag(values, 'F'))),
    member("rst", Made(|values| flag(values, 'R'))),
    member("psh", Made(|values| flag(values, 'P'))),
    member("ack", Made(|values| flag(values, 'A'))),
    member("urg", Made(|values| flag(values, 'U'))),
    member("ecn", Made(|values| flag(values, 'E'))),
    member("cwr", Made(|values| flag(values, 'C'))),
    member(
        "state",
        Made(|values| Cell::of(tcp_state(values), Cell::Text)),
    ),
];

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
