//! The report as a page of text.

use std::fmt::Write as _;

use flowgauge_record::ledger::ledger_line;
use flowgauge_record::table::human_duration;
use flowgauge_record::text::{TimeWriter, harmless, protocol_name, write_scaled};
use flowgauge_record::words::count;
use flowgauge_stack::RunEnd;
use flowgauge_wire::{Address, Nanos};

use super::collect::{Collector, PROTOCOLS};
use super::histogram::{Histogram, Percentiles};
use super::said::Transactions;
use super::talkers::Sums;

/// Characters of a full bar.
const BAR: usize = 30;

/// The page.
pub(super) fn report(total: &Collector, run: &RunEnd<'_>, top: usize) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail; the results are dropped for that reason.
    overview(&mut page, total, run);
    if total.packets == 0 {
        // Nothing but headings would follow.
        return page;
    }
    protocols(&mut page, total);
    talkers(&mut page, total, top);
    flows(&mut page, total);
    said(&mut page, total, top);
    tcp_health(&mut page, total);
    histogram(&mut page, "Packet sizes (bytes)", &total.packet_sizes);
    histogram(&mut page, "Flow sizes", &total.flow_sizes);
    histogram(&mut page, "Flow durations", &total.flow_durations);
    page
}

fn overview(page: &mut String, total: &Collector, run: &RunEnd<'_>) {
    let seconds = total.duration().as_secs_f64();
    let rate = |amount: u64| {
        if seconds > 0.0 {
            (amount as f64 / seconds) as u64
        } else {
            0
        }
    };
    let _ = writeln!(page, "Traffic");
    if let Some(first) = total.first {
        let _ = writeln!(
            page,
            "  from      {} to {} ({})",
            clock(first),
            clock(total.last),
            human_duration(total.duration())
        );
    }
    let _ = writeln!(
        page,
        "  packets   {} ({}/s), {}",
        total.packets,
        scaled(rate(total.packets)),
        count(total.flows, "flow")
    );
    let _ = writeln!(
        page,
        "  bytes     {} ({}bit/s), {} per packet",
        scaled(total.bytes),
        scaled(rate(total.bytes).saturating_mul(8)),
        total.bytes.checked_div(total.packets).unwrap_or(0)
    );
    let _ = writeln!(page, "  ledger    {}", ledger_line(run.ledger));
    let bins = total.timeline.bins();
    if bins.len() > 1 {
        let _ = writeln!(
            page,
            "  over time {} ({} each)",
            sparkline(&bins),
            human_duration(total.timeline.width())
        );
    }
}

fn protocols(page: &mut String, total: &Collector) {
    let _ = writeln!(
        page,
        "\nProtocols          packets     bytes     flows  share of bytes"
    );
    for (name, sums) in PROTOCOLS.iter().zip(&total.protocols) {
        if sums.packets == 0 {
            continue;
        }
        row(page, (name, 14), *sums, total);
    }
    for (packets, one, many) in [
        (total.ipv6_packets, "IPv6", "IPv6"),
        (total.fragments, "a fragment", "fragments"),
    ] {
        if packets > 0 {
            let (what, are) = match packets {
                1 => (one, "is"),
                _ => (many, "are"),
            };
            let _ = writeln!(page, "  {} {are} {what}", count(packets, "packet"));
        }
    }
}

fn talkers(page: &mut String, total: &Collector, top: usize) {
    let list = total.talkers.top(top);
    if list.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "\n{:<41} {:>9} {:>9} {:>9}",
        format!("Top talkers (of {})", total.talkers.len()),
        "packets",
        "bytes",
        "flows"
    );
    for ((version, address), sums) in list {
        let name = address.to_ip(version).to_string();
        row(page, (&name, 39), sums, total);
    }
    let services = total.services.top(top);
    if services.is_empty() {
        return;
    }
    let _ = writeln!(page, "\nTop services       packets     bytes     flows");
    for ((protocol, port), sums) in services {
        let name = format!("{}/{port}", protocol_name(protocol));
        row(page, (&name, 14), sums, total);
    }
}

fn flows(page: &mut String, total: &Collector) {
    let list = total.top_flows();
    if list.is_empty() {
        return;
    }
    let _ = writeln!(page, "\nTop flows              bytes   packets  duration");
    for flow in list {
        let _ = writeln!(
            page,
            "  {:016x} {:>9} {:>9} {:>9}  {} {} > {}",
            flow.flow_id,
            scaled(flow.bytes),
            scaled(flow.packets),
            human_duration(flow.duration),
            protocol_name(flow.protocol),
            endpoint(flow.source, flow.version),
            endpoint(flow.destination, flow.version)
        );
    }
}

fn said(page: &mut String, total: &Collector, top: usize) {
    let Some(said) = &total.said else {
        return;
    };
    for (title, sums) in [
        (
            "Application protocols (? = guessed from port)",
            &said.protocols,
        ),
        ("Applications", &said.applications),
    ] {
        let list = sums.top(top);
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n{title:<19}   packets     bytes     flows");
        for (name, sums) in list {
            row(page, (&name, 17), sums, total);
        }
    }
    transactions(page, "HTTP", "hosts", &said.http, top);
    transactions(page, "DNS", "names", &said.dns, top);
    transactions(page, "TLS", "servers", &said.tls, top);
}

fn transactions(page: &mut String, title: &str, names: &str, of: &Transactions, top: usize) {
    if of.all == 0 {
        return;
    }
    let outcomes = of.outcomes.top(usize::MAX).into_iter();
    let outcomes: Vec<String> = outcomes
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let _ = writeln!(page, "\n{title}");
    let _ = writeln!(
        page,
        "  {:<9} {}",
        "all",
        match of.without_reply {
            0 => count(of.all, "transaction").to_string(),
            some => format!("{} ({some} without a reply)", count(of.all, "transaction")),
        }
    );
    if !outcomes.is_empty() {
        let _ = writeln!(page, "  {:<9} {}", "of them", outcomes.join(", "));
    }
    if let Some(spread) = spread(&of.latency) {
        let _ = writeln!(page, "  {:<9} {spread}", "latency");
    }
    for (n, (name, times)) in of.names.top(top).into_iter().enumerate() {
        let label = if n == 0 { names } else { "" };
        let name: String = name.chars().map(harmless).collect();
        let _ = writeln!(page, "  {label:<9} {:>9}  {name}", scaled(times));
    }
}

fn tcp_health(page: &mut String, total: &Collector) {
    let tcp = &total.tcp;
    if tcp.connections == 0 {
        return;
    }
    let _ = writeln!(page, "\nTCP health");
    let _ = writeln!(
        page,
        "  connections     {} ({} established, {} unanswered, {} rejected, {} without their \
         beginning)",
        tcp.connections, tcp.established, tcp.failed, tcp.rejected, tcp.midstream
    );
    let _ = writeln!(
        page,
        "  ended by reset  {} ({})",
        tcp.reset,
        percent(tcp.reset, tcp.connections)
    );
    let _ = writeln!(
        page,
        "  retransmitted   {} ({})",
        count(tcp.retransmitted, "packet"),
        percent(tcp.retransmitted, tcp.packets)
    );
    let _ = writeln!(
        page,
        "  out of order    {} ({})",
        count(tcp.out_of_order, "packet"),
        percent(tcp.out_of_order, tcp.packets)
    );
    if let Some(spread) = spread(&tcp.rtt) {
        let handshakes = count(tcp.rtt.total(), "handshake");
        let _ = writeln!(page, "  handshake RTT   {spread} ({handshakes})");
    }
}

/// Packets, bytes and flows of something, its name in a column of this width.
fn row(page: &mut String, (name, width): (&str, usize), sums: Sums, total: &Collector) {
    let _ = writeln!(
        page,
        "  {name:<width$} {:>9} {:>9} {:>9}  {}",
        scaled(sums.packets),
        scaled(sums.bytes),
        scaled(sums.flows),
        bar(sums.bytes, total.bytes)
    );
}

fn spread(times: &Percentiles) -> Option<String> {
    let at = |share| times.at(share).map(|nanos| human_duration(Nanos(nanos)));
    let (half, ninety, last) = (at(0.5)?, at(0.9)?, at(0.99)?);
    Some(format!("median {half}, 90 % {ninety}, 99 % {last}"))
}

fn histogram(page: &mut String, title: &str, histogram: &Histogram) {
    let all: u64 = histogram.ranges().map(|(_, count)| count).sum();
    if all == 0 {
        return;
    }
    let _ = writeln!(page, "\n{title}");
    // Only the ranges from the first to the last that is not empty.
    let counts: Vec<_> = histogram.ranges().collect();
    let first = counts.iter().position(|(_, count)| *count > 0).unwrap_or(0);
    let last = counts
        .iter()
        .rposition(|(_, count)| *count > 0)
        .unwrap_or(0);
    for &(name, count) in counts.get(first..=last).unwrap_or_default() {
        let _ = writeln!(
            page,
            "  {name:<14} {:>9}  {}",
            scaled(count),
            bar(count, all)
        );
    }
}

/// The share in per cent, and a bar for `part` of `whole`.
fn bar(part: u64, whole: u64) -> String {
    let share = part as f64 / whole.max(1) as f64;
    let eighths = (share.min(1.0) * (BAR * 8) as f64).round() as usize;
    let mut text = format!("{:>7}", percent(part, whole));
    if eighths > 0 {
        text.push(' ');
        text.push_str(&"█".repeat(eighths / 8));
    }
    if !eighths.is_multiple_of(8) {
        text.extend(char::from_u32(0x2590 - (eighths % 8) as u32));
    }
    text
}

fn sparkline(bins: &[u64]) -> String {
    let most = bins.iter().copied().max().unwrap_or(0).max(1);
    bins.iter()
        .map(|&bin| {
            if bin == 0 {
                return ' ';
            }
            let eighths = (bin as f64 / most as f64 * 7.0).round() as u32;
            char::from_u32(0x2581 + eighths.min(7)).unwrap_or(' ')
        })
        .collect()
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn scaled(value: u64) -> String {
    let mut text = Vec::new();
    write_scaled(&mut text, value);
    String::from_utf8(text).unwrap_or_default()
}

fn clock(time: Nanos) -> String {
    let text = TimeWriter::default().format(time)[..19].to_vec();
    String::from_utf8(text)
        .unwrap_or_default()
        .replace('T', " ")
}

fn endpoint((address, port): (Address, u16), version: u8) -> String {
    if version == 4 {
        format!("{}:{port}", address.to_ip(version))
    } else {
        format!("[{}]:{port}", address.to_ip(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(0, 100), "  0.0 %");
        assert_eq!(bar(100, 100), format!("100.0 % {}", "█".repeat(BAR)));
        assert_eq!(bar(1, 60), "  1.7 % ▌");
    }

    #[test]
    fn empty_ranges_at_the_ends_are_left_out() {
        let names = &[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (u64::MAX, "e")];
        let mut counts = Histogram::new(names);
        counts.add(1);
        counts.add(3);
        let mut page = String::new();
        histogram(&mut page, "Title", &counts);
        let rows: Vec<_> = page.lines().skip(2).map(|line| &line[2..3]).collect();
        assert_eq!(rows, ["b", "c", "d"]);
    }

    #[test]
    fn sparklines_scale_to_the_highest() {
        assert_eq!(sparkline(&[0, 1, 50, 100]), " ▁▅█");
    }
}
