//! What packets say beyond their headers, in the manner of tcpdump: DNS, the first line of HTTP, and positions in TCP's
//! streams.

use std::collections::HashMap;
use std::fmt::Write as _;

use flowgauge_proto::dns::{Header, Message, Part, Section, write_opcode, write_rcode, write_type};
use flowgauge_record::text::harmless;
use flowgauge_wire::{Decoded, FlowKey, TcpFlags};

/// Ports of DNS, and of the same messages on a link.
const DNS_PORTS: [u16; 3] = [53, 5353, 5355];
/// How a request or a response of HTTP begins.
const HTTP: [&[u8]; 10] = [
    b"HTTP/",
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
];
/// Characters of a line of HTTP that are shown.
const MOST_SHOWN: usize = 120;
/// Connections whose first numbers are remembered.
const MOST_CONNECTIONS: usize = 65_536;

/// Appends `: 4711+ A? example.org.` or `: GET / HTTP/1.1`, where the payload says something.
pub(crate) fn write_contents(line: &mut String, decoded: &Decoded, payload: &[u8]) {
    let before = line.len();
    line.push_str(": ");
    let start = line.len();
    let ports = [decoded.source().1, decoded.destination().1];
    match decoded.key.protocol {
        17 if ports.iter().any(|port| DNS_PORTS.contains(port)) => write_dns(line, payload),
        6 if HTTP.iter().any(|begin| payload.starts_with(begin)) => {
            let first = payload.split(|byte| matches!(byte, b'\r' | b'\n')).next();
            let text = String::from_utf8_lossy(first.unwrap_or_default());
            line.extend(text.chars().map(harmless).take(MOST_SHOWN));
        }
        _ => {}
    }
    if line.len() == start {
        line.truncate(before);
    }
}

fn write_dns(line: &mut String, payload: &[u8]) {
    let Some(message) = Message::new(payload) else {
        return;
    };
    let header = *message.header();
    let _ = write!(line, "{}", header.id);
    if header.opcode() != 0 {
        line.push(' ');
        write_opcode(header.opcode(), line);
    }
    match header.is_reply() {
        true => write_reply(line, &message, header),
        false => write_query(line, &message, header),
    }
}

fn write_query(line: &mut String, message: &Message<'_>, header: Header) {
    line.push_str(if header.wants_recursion() { "+" } else { "" });
    line.push_str(if header.checks_disabled() { "%" } else { "" });
    let [_, answers, authorities, additionals] = header.counts;
    for (count, what) in [(answers, "a"), (authorities, "n"), (additionals, "au")] {
        if count > 0 {
            let _ = write!(line, " [{count}{what}]");
        }
    }
    for part in message.parts() {
        let Ok(Part::Question(question)) = part else {
            break;
        };
        line.push(' ');
        write_type(question.kind, line);
        line.push_str("? ");
        let mut name = String::new();
        question.name.write(&mut name);
        line.extend(name.chars().map(harmless));
        // (The root has one already.)
        line.push_str(if name.ends_with('.') { "" } else { "." });
    }
}

fn write_reply(line: &mut String, message: &Message<'_>, header: Header) {
    if header.rcode() != 0 {
        line.push(' ');
        write_rcode(header.rcode().into(), line);
    }
    line.push_str(if header.is_authoritative() { "*" } else { "" });
    line.push_str(if header.has_recursion() { "" } else { "-" });
    line.push_str(if header.is_truncated() { "|" } else { "" });
    line.push_str(if header.is_authentic() { "$" } else { "" });
    let [_, answers, authorities, additionals] = header.counts;
    let _ = write!(line, " {answers}/{authorities}/{additionals}");
    let mut separator = " ";
    for part in message.parts() {
        let record = match part {
            Ok(Part::Question(_)) => continue,
            Ok(Part::Record(record)) if record.section == Section::Answer => record,
            _ => break,
        };
        line.push_str(separator);
        write_type(record.kind, line);
        line.push(' ');
        let mut data = String::new();
        record.data.write(&mut data);
        line.extend(data.chars().map(harmless));
        separator = ", ";
    }
}

/// The first sequence number of each side of connections.
#[derive(Default)]
pub(crate) struct Connections {
    first: HashMap<FlowKey, [Option<u32>; 2]>,
    /// Times that there were too many, and all were forgotten.
    pub(crate) forgotten: u64,
}

impl Connections {
    /// Sequence and acknowledgement number of a segment, counted from the SYN of each side, or so that the first byte
    /// that was captured has number 1.
    pub(crate) fn relative(&mut self, segment: &Decoded) -> (u32, u32) {
        let has_ack = segment.tcp_flags.contains(TcpFlags::ACK);
        let is_syn = segment.tcp_flags.contains(TcpFlags::SYN);
        if self.first.len() >= MOST_CONNECTIONS && !self.first.contains_key(&segment.key) {
            self.first.clear();
            self.forgotten += 1;
        }
        let side = segment.direction as usize;
        let first = self.first.entry(segment.key).or_default();
        if is_syn && first[side] != Some(segment.seq) {
            // Of a connection that begins, not of one before it with the same ports.
            first[side] = Some(segment.seq);
            if !has_ack {
                first[1 - side] = None;
            }
        }
        let before = |number: u32| number.wrapping_sub(1);
        let own = *first[side].get_or_insert(before(segment.seq));
        let ack = match has_ack {
            true => {
                let other = *first[1 - side].get_or_insert(before(segment.ack));
                segment.ack.wrapping_sub(other)
            }
            false => 0,
        };
        (segment.seq.wrapping_sub(own), ack)
    }
}
