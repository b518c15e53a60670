//! One packet as a line for people, in the manner of tcpdump.

use std::fmt::Write as _;

use flowgauge_record::PacketRow;
use flowgauge_record::link::LinkHeader;
use flowgauge_record::text::{TimeWriter, harmless, protocol_name, tcp_flag_letters};
use flowgauge_wire::checksum::ChecksumVerdict;
use flowgauge_wire::{DecodeFlags, Nanos, TcpFlags};

use crate::packet_contents::{Connections, write_contents};

/// What a line says beside the usual.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detail {
    /// The link-layer header.
    pub(crate) link: bool,
    /// More of the IP and transport headers.
    pub(crate) verbose: bool,
    /// How often `-t` was given.
    pub(crate) time: u8,
    /// For a terminal.
    pub(crate) has_colors: bool,
}

impl Detail {
    /// Gives what a line has from here on a colour.
    fn paint(self, line: &mut String, from: usize, color: &str) {
        if self.has_colors && from < line.len() {
            line.insert_str(from, color);
            line.push_str("\x1b[0m");
        }
    }
}

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const CYAN: &str = "\x1b[36m";

/// The colour of a protocol.
const fn color(protocol: u8) -> &'static str {
    match protocol {
        6 => "\x1b[32m",
        17 => "\x1b[33m",
        1 | 58 => "\x1b[35m",
        _ => "\x1b[1m",
    }
}

/// Prints packets one after the other.
pub(crate) struct Lines {
    detail: Detail,
    /// Times of the first packet and of the one before.
    before: Option<[Nanos; 2]>,
    /// `None`: sequence numbers are printed as they are.
    pub(crate) connections: Option<Connections>,
}

impl Lines {
    /// With these details.
    pub(crate) fn new(detail: Detail, connections: Option<Connections>) -> Lines {
        Lines {
            detail,
            before: None,
            connections,
        }
    }

    /// Appends the line of the next packet, without a line feed.
    pub(crate) fn write(&mut self, line: &mut String, row: &PacketRow<'_>) {
        let decoded = row.decoded;
        let numbers = match &mut self.connections {
            Some(connections) if decoded.key.protocol == 6 => connections.relative(decoded),
            _ => (decoded.seq, decoded.ack),
        };
        let begin = line.len();
        self.write_time(line, row.packet.time);
        self.detail.paint(line, begin, DIM);
        write_line(line, row, self.detail, numbers);
    }

    fn write_time(&mut self, line: &mut String, time: Nanos) {
        let [first, before] = self.before.unwrap_or([time; 2]);
        self.before = Some([first, time]);
        let since = |other: Nanos| {
            let sign = if time < other { "-" } else { "" };
            let span = Nanos(time.0.abs_diff(other.0));
            format!("{sign}{}", seconds(span))
        };
        // Writing to a string cannot fail.
        let _ = match self.detail.time {
            0 | 4 => {
                let mut times = TimeWriter::default();
                let text = times.format(time);
                let text = core::str::from_utf8(&text).unwrap_or("");
                let (date, clock) = (text.get(..10).unwrap_or(""), text.get(11..26).unwrap_or(""));
                write!(line, "{date} {clock} ")
            }
            1 => Ok(()),
            2 => write!(line, "{} ", seconds(time)),
            3 => write!(line, "{} ", since(before)),
            _ => write!(line, "{} ", since(first)),
        };
    }
}

/// With six decimals.
fn seconds(time: Nanos) -> String {
    format!(
        "{}.{:06}",
        time.0 / 1_000_000_000,
        time.0 % 1_000_000_000 / 1_000
    )
}

/// Appends `192.0.2.1.50956 > 192.0.2.7.80: tcp SA seq 0 ack 1 win 512 len 0`, with these sequence and acknowledgement
/// numbers.
fn write_line(line: &mut String, row: &PacketRow<'_>, detail: Detail, numbers: (u32, u32)) {
    let (packet, decoded) = (row.packet, row.decoded);
    if let Some(name) = row.interface {
        line.extend(name.chars().map(harmless).chain([' ']));
    }
    let header = row.link();
    if detail.link
        && let Some(header) = &header
    {
        write_link(line, header, packet.wire_len);
        line.push_str(": ");
    }
    let vlans = usize::from(decoded.vlan_count).min(decoded.vlan.len());
    for vlan in &decoded.vlan[..vlans] {
        let _ = write!(line, "vlan {vlan} ");
    }
    for entry in row.mpls() {
        let _ = write!(line, "mpls {} ", entry.label);
        if detail.verbose {
            let _ = write!(line, "(tc {}, ttl {}) ", entry.traffic_class, entry.ttl);
        }
    }
    if let Some(tunnel) = row.tunnel {
        let source = tunnel.source.to_ip(tunnel.version);
        let destination = tunnel.destination.to_ip(tunnel.version);
        let _ = write!(line, "{} {source} > {destination}", tunnel.kind.name());
        if let Some(id) = tunnel.id {
            let _ = write!(line, " id {id}");
        }
        line.push_str(": ");
    }
    if decoded.has_ip() {
        write_ip(line, row, detail, numbers);
        if detail.verbose {
            write_details(line, row);
        }
        if !decoded.flags.contains(DecodeFlags::FRAGMENT) {
            write_contents(line, decoded, decoded.payload_of(row.frame));
        }
    } else if let Some(arp) = header.and_then(|header| header.arp()) {
        let _ = write!(line, "ARP, {arp}, length {}", packet.wire_len);
        return;
    } else if let Some(header) = header {
        // With -e it stands there already.
        if detail.link {
            line.push_str("no IP");
        } else {
            write_link(line, &header, packet.wire_len);
        }
    } else {
        let _ = write!(
            line,
            "link type {} length {}",
            packet.link.0, packet.wire_len
        );
    }
    if let Some(note) = row.note() {
        let begin = line.len();
        let _ = write!(line, " [{note}]");
        detail.paint(line, begin, RED);
    }
}

/// `02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype ipv4, length 60`; cooked
/// `out 02:00:00:00:00:01 ifindex 2, ...`.
fn write_link(line: &mut String, header: &LinkHeader<'_>, wire_len: u32) {
    let mut words = Vec::new();
    words.extend(header.way.map(|way| way.name().to_owned()));
    words.extend(header.source.map(|mac| mac.to_string()));
    words.extend(header.destination.map(|mac| format!("> {mac}")));
    words.extend(
        header
            .interface_index
            .map(|index| format!("ifindex {index}")),
    );
    let _ = write!(
        line,
        "{}, ethertype {}, length {wire_len}",
        words.join(" "),
        header.ether_type_name()
    );
}

/// ` (tos 0x0, ttl 64, id 7, DF, ip length 60, checksum 0x1234 good; mss 1460,sackOK)`.
fn write_details(line: &mut String, row: &PacketRow<'_>) {
    let decoded = row.decoded;
    line.push_str(" (");
    let ip = row.ip();
    if let Some(ip) = ip {
        let _ = write!(line, "tos 0x{:x}, ", ip.tos);
    }
    let _ = write!(line, "ttl {}", decoded.ttl);
    if let Some(ip) = ip {
        if let Some(id) = ip.id {
            let _ = write!(line, ", id {id}");
        }
        if let Some(label) = ip.flow_label.filter(|&label| label > 0) {
            let _ = write!(line, ", flow label 0x{label:05x}");
        }
        if let Some(flags) = ip.flags() {
            let _ = write!(line, ", {flags}");
        }
        if ip.options {
            line.push_str(", IP options");
        }
    }
    let _ = write!(line, ", ip length {}", decoded.ip_len);
    if let Some(checksum) = row.transport_checksum() {
        let verdict = match row.checksum {
            ChecksumVerdict::Good => "good",
            ChecksumVerdict::Bad => "bad",
            ChecksumVerdict::Unknown => "not verified",
        };
        let _ = write!(line, ", checksum 0x{checksum:04x} {verdict}");
    }
    let options = row.tcp_options();
    if !options.is_empty() {
        let _ = write!(line, "; {options}");
    }
    line.push(')');
}

fn write_ip(line: &mut String, row: &PacketRow<'_>, detail: Detail, (seq, ack): (u32, u32)) {
    let decoded = row.decoded;
    let version = decoded.key.version;
    let (source, destination) = (decoded.source(), decoded.destination());
    let transport = decoded.flags.contains(DecodeFlags::TRANSPORT);
    let is_icmp = matches!(decoded.key.protocol, 1 | 58);
    let with_ports = row.has_ports() && !is_icmp;
    let begin = line.len();
    let _ = write!(line, "{}", source.0.to_ip(version));
    if with_ports {
        let _ = write!(line, ".{}", source.1);
    }
    let _ = write!(line, " > {}", destination.0.to_ip(version));
    if with_ports {
        let _ = write!(line, ".{}", destination.1);
    }
    detail.paint(line, begin, CYAN);
    line.push_str(": ");
    let begin = line.len();
    let _ = match decoded.key.protocol {
        protocol @ (1 | 6 | 17 | 58) => write!(line, "{}", protocol_name(protocol)),
        other => write!(line, "protocol {other}"),
    };
    detail.paint(line, begin, color(decoded.key.protocol));
    if decoded.flags.contains(DecodeFlags::FRAGMENT) {
        line.push_str(" fragment");
        if let Some(info) = row.fragment() {
            let more = if info.more { "+" } else { "" };
            let _ = write!(line, " id {} offset {}{more}", info.id, info.offset);
        }
    }
    if transport && decoded.key.protocol == 6 {
        let flags = tcp_flag_letters(decoded.tcp_flags);
        let flags = if flags.is_empty() { "none" } else { flags };
        let _ = write!(line, " {flags} seq {seq}");
        if decoded.tcp_flags.contains(TcpFlags::ACK) {
            let _ = write!(line, " ack {ack}");
        }
        let _ = write!(line, " win {}", decoded.window);
    } else if transport && is_icmp {
        let _ = write!(
            line,
            " type {} code {}",
            decoded.icmp_type, decoded.icmp_code
        );
    }
    let _ = write!(line, " len {}", decoded.payload_len);
}

/// Appends the bytes as `tcpdump -X` does: offset, hexadecimal in pairs, ASCII.
pub(crate) fn write_hex_dump(text: &mut String, bytes: &[u8]) {
    for (row, chunk) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "\t0x{:04x}:  ", row * 16);
        for pair in 0..8 {
            for byte in 0..2 {
                match chunk.get(2 * pair + byte) {
                    Some(byte) => {
                        let _ = write!(text, "{byte:02x}");
                    }
                    None => text.push_str("  "),
                }
            }
            text.push(' ');
        }
        text.push(' ');
        for &byte in chunk {
            let printable = byte.is_ascii_graphic() || byte == b' ';
            text.push(if printable { char::from(byte) } else { '.' });
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_dump_is_that_of_tcpdump() {
        let mut text = String::new();
        write_hex_dump(&mut text, b"E\0\0\x14GET / HTTP/1.1\r");
        assert_eq!(
            text,
            "\t0x0000:  4500 0014 4745 5420 2f20 4854 5450 2f31  E...GET./.HTTP/1\n\
             \t0x0010:  2e31 0d                                  .1.\n"
                .replace("GET./.HTTP", "GET / HTTP")
        );
    }
}
