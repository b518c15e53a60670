//! Messages of NetFlow 5 and 9 (RFC 3954) and of IPFIX (RFC 7011).

use flowgauge_wire::Nanos;

use super::elements::{Direction, Element, Target, uptime};

/// Bytes of a message, so that it fits a frame.
const MOST: usize = 1400;
/// Messages from one with templates to the next.
const TEMPLATES_EVERY: u64 = 20;
/// Numbers of the templates, of IPv4 and of IPv6.
const TEMPLATES: [u16; 2] = [256, 257];
/// Records of a message of NetFlow 5.
const MOST_OF_5: u16 = 30;
/// NetFlow counts times from the start of the exporter; this long before the first flow began, so that none began before.
const BEFORE: u64 = 24 * 3_600_000_000_000;

/// What messages are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    NetFlow5,
    NetFlow9,
    Ipfix,
}

/// Makes messages of flows.
pub(crate) struct Messages {
    format: Format,
    elements: Vec<&'static Element>,
    domain: u32,
    boot: Option<Nanos>,
    clock: Nanos,
    /// Records that wait, of IPv4 and of IPv6.
    waiting: [Vec<u8>; 2],
    counts: [u16; 2],
    /// Messages and records so far.
    messages: u64,
    records: u64,
}

impl Messages {
    pub(crate) fn new(format: Format, elements: Vec<&'static Element>, domain: u32) -> Messages {
        Messages {
            format,
            elements,
            domain,
            boot: None,
            clock: Nanos(0),
            waiting: [Vec::new(), Vec::new()],
            counts: [0; 2],
            messages: 0,
            records: 0,
        }
    }

    /// Whether a record can be told: NetFlow 5 has IPv4 only.
    pub(crate) fn takes(&self, flow: &Direction) -> bool {
        match self.format {
            Format::NetFlow5 => flow.version == 4,
            _ => matches!(flow.version, 4 | 6),
        }
    }

    /// Adds a record. A message that is full comes back.
    pub(crate) fn add(&mut self, flow: &Direction) -> Option<Vec<u8>> {
        let boot = *self
            .boot
            .get_or_insert(Nanos(flow.start.0.saturating_sub(BEFORE)));
        self.clock = self.clock.max(flow.end);
        let of = usize::from(flow.version != 4);
        let bytes = &mut self.waiting[of];
        let before = bytes.len();
        let mut to = Target {
            bytes,
            boot,
            is_netflow: self.format != Format::Ipfix,
        };
        match self.format {
            Format::NetFlow5 => five(flow, &mut to),
            _ => {
                for element in &self.elements {
                    element.give(flow, &mut to);
                }
            }
        }
        let record = bytes.len() - before;
        self.counts[of] += 1;
        self.records += 1;
        let waiting = self.waiting[0].len() + self.waiting[1].len();
        let is_full = match self.format {
            Format::NetFlow5 => self.counts[0] >= MOST_OF_5,
            _ => 20 + self.templates_len() + 8 + waiting + record > MOST,
        };
        is_full.then(|| self.flush()).flatten()
    }

    fn templates_len(&self) -> usize {
        match self.messages % TEMPLATES_EVERY {
            0 => 4 + 2 * (4 + 4 * self.elements.len()),
            _ => 0,
        }
    }

    /// The message of what waits, if anything does.
    pub(crate) fn flush(&mut self) -> Option<Vec<u8>> {
        let counts = core::mem::take(&mut self.counts);
        let count = counts[0] + counts[1];
        if count == 0 {
            return None;
        }
        let mut message = Vec::with_capacity(MOST);
        let before = self.records - u64::from(count);
        let has_templates = self.messages.is_multiple_of(TEMPLATES_EVERY);
        let templates = if has_templates { 2 } else { 0 };
        match self.format {
            Format::NetFlow5 => self.header(&mut message, 5, count, before),
            Format::NetFlow9 => self.header(&mut message, 9, count + templates, self.messages),
            Format::Ipfix => {
                message.extend(10_u16.to_be_bytes());
                message.extend([0; 2]);
                message.extend(seconds(self.clock).to_be_bytes());
                message.extend((before as u32).to_be_bytes());
                message.extend(self.domain.to_be_bytes());
            }
        }
        if self.format != Format::NetFlow5 && has_templates {
            self.templates(&mut message);
        }
        for (template, waiting) in TEMPLATES.iter().zip(&mut self.waiting) {
            if waiting.is_empty() {
                continue;
            }
            if self.format != Format::NetFlow5 {
                let padding = waiting.len().next_multiple_of(4) - waiting.len();
                message.extend(template.to_be_bytes());
                message.extend(((4 + waiting.len() + padding) as u16).to_be_bytes());
                waiting.resize(waiting.len() + padding, 0);
            }
            message.append(waiting);
        }
        if self.format == Format::Ipfix {
            let length = (message.len() as u16).to_be_bytes();
            message[2..4].copy_from_slice(&length);
        }
        self.messages += 1;
        Some(message)
    }

    /// The header of NetFlow.
    fn header(&self, message: &mut Vec<u8>, version: u16, count: u16, sequence: u64) {
        message.extend(version.to_be_bytes());
        message.extend(count.to_be_bytes());
        let boot = self.boot.unwrap_or_default();
        // Version 9 has no more than seconds: the time since the start has to be that of this second, as collectors find the
        // start by both.
        let clock = match version {
            9 => Nanos(self.clock.0 - self.clock.0 % 1_000_000_000),
            _ => self.clock,
        };
        message.extend(uptime(clock, boot).to_be_bytes());
        message.extend(seconds(clock).to_be_bytes());
        if version == 5 {
            message.extend(((self.clock.0 % 1_000_000_000) as u32).to_be_bytes());
            message.extend((sequence as u32).to_be_bytes());
            // The engine's type and number; nothing is sampled.
            message.extend((self.domain as u16).to_be_bytes());
            message.extend([0; 2]);
        } else {
            message.extend((sequence as u32).to_be_bytes());
            message.extend(self.domain.to_be_bytes());
        }
    }

    fn templates(&self, message: &mut Vec<u8>) {
        let is_netflow = self.format == Format::NetFlow9;
        let set: u16 = if is_netflow { 0 } else { 2 };
        message.extend(set.to_be_bytes());
        message.extend((self.templates_len() as u16).to_be_bytes());
        for (template, version) in TEMPLATES.iter().zip([4, 6]) {
            message.extend(template.to_be_bytes());
            message.extend((self.elements.len() as u16).to_be_bytes());
            for element in &self.elements {
                let (number, length) = element.form(version, is_netflow);
                message.extend(number.to_be_bytes());
                message.extend(length.to_be_bytes());
            }
        }
    }
}

fn seconds(time: Nanos) -> u32 {
    (time.0 / 1_000_000_000) as u32
}

/// A record of NetFlow 5.
fn five(flow: &Direction, to: &mut Target<'_>) {
    let most = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
    let bytes = &mut *to.bytes;
    bytes.extend(&flow.source.0[12..]);
    bytes.extend(&flow.destination.0[12..]);
    // No next hop, no interfaces.
    bytes.extend([0; 8]);
    bytes.extend(most(flow.packets));
    bytes.extend(most(flow.bytes));
    bytes.extend(uptime(flow.start, to.boot).to_be_bytes());
    bytes.extend(uptime(flow.end, to.boot).to_be_bytes());
    bytes.extend(flow.ports.0.to_be_bytes());
    bytes.extend(flow.ports.1.to_be_bytes());
    bytes.extend([0, flow.tcp_flags, flow.protocol, 0]);
    // No numbers of autonomous systems, no masks.
    bytes.extend([0; 8]);
}
