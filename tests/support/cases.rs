//! Reassembly cases as text: small conversations and what must come out of them.
//!
//! A file under `tests/cases/reassembly` holds `[[case]]` tables:
//!
//! ```toml
//! [[case]]
//! name = "two segments exchanged"
//! source = "RFC 9293 section 3.10.7.4"     # where the expectation comes from
//! packets = """
//! c S
//! s SA
//! c A
//! c A 3 def
//! c A 0 abc
//! s A
//! """
//! client = "abcdef"          # what the client's direction delivers; [5] is a hole of 5 bytes
//! server = ""
//! policy.linux.client = "..."          # where an overlap policy delivers something else,
//! strict.client = "..."                # or a mode, whatever the policy,
//! fast.client = "..."                  # this one with chunks that hold the whole stream,
//! fast_at_once.client = "..."          # and this one with chunks of a segment or a byte
//! ```
//!
//! In mode strict `[?]` at the end says that nothing is delivered from a hole on, whatever is said of
//! what is missing.
//!
//! Modes inherit from what stands above them: `fast_at_once` from `fast`, all from the policy, the
//! policy from the case.
//!
//! A packet is `side flags [offset [payload]] [key=value ...]`: side `c` or `s`; flags of `S A F R P
//! U`, or `-`; the offset of its first byte in its direction (the byte after the SYN is 0; default: where that
//! side's data end so far); payload as text, `x*N` for N of a byte. Keys: `ack=N` as an offset in the peer's direction
//! (default: what of it was seen without a hole), `win=N`, `len=N` (payload length by the headers
//! where the capture has less), `at=+2s` (time since the packet before; default 1 ms), `urg=N`,
//! `bad` (a wrong TCP checksum), `isn=N` on a SYN of a new connection.

use std::path::Path;

use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};
use serde::Deserialize;

/// A case as it stands in its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) packets: String,
    #[serde(default)]
    pub(crate) client: String,
    #[serde(default)]
    pub(crate) server: String,
    #[serde(default)]
    pub(crate) fast: Option<Expected>,
    #[serde(default)]
    pub(crate) fast_at_once: Option<Expected>,
    #[serde(default)]
    pub(crate) strict: Option<Expected>,
    #[serde(default)]
    pub(crate) policy: std::collections::BTreeMap<String, Expected>,
}

/// What a mode or policy delivers instead.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    pub(crate) client: Option<String>,
    pub(crate) server: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

/// One packet of a case on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) nanos: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) wire_len: u32,
}

impl Frame {
    /// What a source says of it.
    pub(crate) fn descriptor(&self) -> PacketDescriptor {
        PacketDescriptor {
            time: Nanos(self.nanos),
            captured_len: self.bytes.len() as u32,
            wire_len: self.wire_len,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        }
    }

    /// The frame alone, described by `descriptor`.
    pub(crate) fn batch<'a>(&'a self, descriptor: &'a [PacketDescriptor]) -> Batch<'a> {
        Batch::new(&self.bytes, descriptor)
    }
}

/// How a case is put on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) ipv6: bool,
    pub(crate) client_isn: u32,
    pub(crate) server_isn: u32,
    /// Tells the addresses of instances apart.
    pub(crate) number: u16,
}

/// How bytes are put in order and delivered, as far as it decides which ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Mode wait.
    Wait,
    /// Mode strict.
    Strict,
    /// Mode fast, nothing delivered before the stream ends.
    Fast,
    /// Mode fast, everything delivered as it comes.
    FastAtOnce,
}

/// All cases below `folder`, in the order of the files' names.
pub(crate) fn load(folder: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for path in super::files_below(folder, &|path| {
        path.extension().is_some_and(|e| e == "toml")
    }) {
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file: File =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        cases.extend(file.case);
    }
    cases
}

impl Case {
    /// What must come out, `(client, server)`, with a policy in a mode.
    pub(crate) fn expected(&self, order: Order, policy: &str) -> (&str, &str) {
        let modes = match order {
            Order::Wait => [None, None],
            Order::Strict => [self.strict.as_ref(), None],
            Order::Fast => [self.fast.as_ref(), None],
            Order::FastAtOnce => [self.fast_at_once.as_ref(), self.fast.as_ref()],
        };
        let all = || modes.into_iter().flatten().chain(self.policy.get(policy));
        let client = all().find_map(|expected| expected.client.as_deref());
        let server = all().find_map(|expected| expected.server.as_deref());
        (
            client.unwrap_or(&self.client),
            server.unwrap_or(&self.server),
        )
    }

    /// The case's packets on the wire, beginning at `start` nanoseconds.
    pub(crate) fn frames(&self, variant: Variant, start: u64) -> Vec<Frame> {
        let mut writer = Writer {
            variant,
            nanos: start,
            isn: [variant.client_isn, variant.server_isn],
            ..Writer::default()
        };
        let lines = self.packets.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                writer
                    .packet(line)
                    .unwrap_or_else(|e| panic!("{}: {line}: {e}", self.name))
            })
            .collect()
    }
}

#[derive(Debug)]
struct Writer {
    variant: Variant,
    nanos: u64,
    isn: [u32; 2],
    /// Bytes of each side that the capture holds, as sorted ranges of offsets.
    seen: [Vec<(i64, i64)>; 2],
    /// End of each side's data so far.
    end: [i64; 2],
    /// Offset of each side's FIN.
    fin: [Option<i64>; 2],
}

impl Default for Writer {
    fn default() -> Writer {
        Writer {
            variant: Variant {
                ipv6: false,
                client_isn: 0,
                server_isn: 0,
                number: 0,
            },
            nanos: 0,
            isn: [0; 2],
            seen: [Vec::new(), Vec::new()],
            end: [0; 2],
            fin: [None; 2],
        }
    }
}

impl Writer {
    fn packet(&mut self, line: &str) -> Result<Frame, String> {
        let mut words = line.split_whitespace();
        let side = match words.next() {
            Some("c") => 0,
            Some("s") => 1,
            other => return Err(format!("side {other:?}")),
        };
        let mut flags = 0;
        for letter in words.next().ok_or("no flags")?.chars() {
            flags |= match letter {
                'F' => 1,
                'S' => 2,
                'R' => 4,
                'P' => 8,
                'A' => 16,
                'U' => 32,
                '-' => 0,
                other => return Err(format!("flag {other}")),
            };
        }
        let mut offset = None;
        let mut payload = Vec::new();
        let (mut ack, mut window, mut len, mut urgent, mut bad) = (None, 65535, None, 0, false);
        let mut step = 1_000_000;
        for word in words {
            let number = |text: &str| text.parse::<i64>().map_err(|e| format!("{text}: {e}"));
            match word.split_once('=') {
                Some(("ack", value)) => ack = Some(number(value)?),
                Some(("win", value)) => window = number(value)?,
                Some(("len", value)) => len = Some(number(value)?),
                Some(("urg", value)) => urgent = number(value)?,
                Some(("at", value)) => step = time(value)?,
                Some(("isn", value)) => {
                    self.isn[side] = number(value)? as u32;
                    self.seen = [Vec::new(), Vec::new()];
                    self.end = [0; 2];
                    self.fin = [None; 2];
                }
                None if word == "bad" => bad = true,
                None if offset.is_none() => offset = Some(number(word)?),
                None => payload = text(word)?,
                Some((key, _)) => return Err(format!("key {key}")),
            }
        }
        self.nanos += step;
        let (syn, fin) = (flags & 2 != 0, flags & 1 != 0);
        let offset = offset.unwrap_or(if syn { -1 } else { self.end[side] });
        let claimed = len.unwrap_or(payload.len() as i64);
        // What a SYN carries begins at 0.
        let first = offset + i64::from(syn);
        if !bad {
            self.end[side] = self.end[side].max(first + claimed);
            cover(&mut self.seen[side], first, first + payload.len() as i64);
            if fin {
                self.fin[side] = Some(first + claimed);
            }
        }
        let ack = ack.unwrap_or_else(|| self.contiguous(1 - side));
        let number =
            |side: usize, offset: i64| self.isn[side].wrapping_add(1).wrapping_add(offset as u32);
        let seq = number(side, offset);
        let ack = if flags & 16 != 0 {
            number(1 - side, ack)
        } else {
            0
        };
        let mut tcp = Vec::new();
        let ports = [40_000u16, 80];
        tcp.extend(ports[side].to_be_bytes());
        tcp.extend(ports[1 - side].to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([0x50, flags]);
        tcp.extend((window as u16).to_be_bytes());
        tcp.extend([0, 0]);
        tcp.extend((urgent as u16).to_be_bytes());
        tcp.extend(&payload);
        Ok(self.frame(side, tcp, claimed as usize - payload.len(), bad))
    }

    /// Where the data that were seen without a hole end; beyond the FIN when they reach it.
    fn contiguous(&self, side: usize) -> i64 {
        let end = match self.seen[side].first() {
            Some(&(from, to)) if from <= 0 => to,
            _ => 0,
        };
        end + i64::from(self.fin[side] == Some(end))
    }

    fn frame(&self, side: usize, mut tcp: Vec<u8>, cut: usize, bad: bool) -> Frame {
        let [high, low] = self.variant.number.to_be_bytes();
        let len = tcp.len() + cut;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let host = |side: usize| [10, high, low, 1 + side as u8];
        let host6 = |side: usize| {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
            address[12..].copy_from_slice(&host(side));
            address
        };
        let mut pseudo = Vec::new();
        if self.variant.ipv6 {
            pseudo.extend(host6(side));
            pseudo.extend(host6(1 - side));
        } else {
            pseudo.extend(host(side));
            pseudo.extend(host(1 - side));
        }
        let addresses = pseudo.clone();
        pseudo.extend([0, 6]);
        pseudo.extend((len as u16).to_be_bytes());
        pseudo.extend(&tcp);
        let sum = if cut == 0 { checksum(&pseudo) } else { 0x1234 };
        let sum = if bad { sum ^ 0x0101 } else { sum };
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        if self.variant.ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((len as u16).to_be_bytes());
            frame.extend([6, 64]);
            frame.extend(addresses);
        } else {
            let mut header = vec![0x45, 0];
            header.extend((20 + len as u16).to_be_bytes());
            header.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            header.extend(addresses);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(header);
        }
        frame.extend(tcp);
        Frame {
            nanos: self.nanos,
            wire_len: (frame.len() + cut) as u32,
            bytes: frame,
        }
    }
}

/// Adds a range to sorted, disjoint ranges.
fn cover(ranges: &mut Vec<(i64, i64)>, from: i64, to: i64) {
    if from >= to {
        return;
    }
    ranges.push((from, to));
    ranges.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for &(from, to) in ranges.iter() {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    *ranges = merged;
}

/// `+2s`, `+300ms`.
fn time(text: &str) -> Result<u64, String> {
    let digits = text.trim_start_matches('+');
    let (number, unit) = if let Some(number) = digits.strip_suffix("ms") {
        (number, 1_000_000)
    } else if let Some(number) = digits.strip_suffix('s') {
        (number, 1_000_000_000)
    } else {
        return Err(format!("time {text}"));
    };
    let number: u64 = number.parse().map_err(|e| format!("{text}: {e}"))?;
    Ok(number * unit)
}

/// `abc` or `x*100`; `x*100+yz` joins.
fn text(word: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for part in word.split('+') {
        match part.split_once('*') {
            Some((byte, count)) if byte.len() == 1 => {
                let count: usize = count.parse().map_err(|e| format!("{word}: {e}"))?;
                out.extend(byte.repeat(count).into_bytes());
            }
            _ => out.extend(part.as_bytes()),
        }
    }
    Ok(out)
}

/// The bytes and holes `(offset, size)` of an expectation.
pub(crate) fn parse_expected(text: &str) -> (Vec<u8>, Vec<(u64, u64)>) {
    let (mut bytes, mut holes) = (Vec::new(), Vec::new());
    let mut missing = 0;
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(hole) = rest.strip_prefix('[') {
            let (size, after) = hole.split_once(']').expect("a hole ends with ]");
            let size: u64 = size.parse().expect("a hole is a number");
            holes.push((bytes.len() as u64 + missing, size));
            missing += size;
            rest = after;
            continue;
        }
        let end = rest.find('[').unwrap_or(rest.len());
        bytes.extend(self::text(&rest[..end]).expect("text"));
        rest = &rest[end..];
    }
    (bytes, holes)
}

pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A pcap file with nanoseconds.
pub(crate) fn pcap(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0xa1b2_3c4du32.to_le_bytes());
    out.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(262_144u32.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    for frame in frames {
        out.extend(((frame.nanos / 1_000_000_000) as u32).to_le_bytes());
        out.extend(((frame.nanos % 1_000_000_000) as u32).to_le_bytes());
        out.extend((frame.bytes.len() as u32).to_le_bytes());
        out.extend(frame.wire_len.to_le_bytes());
        out.extend(&frame.bytes);
    }
    out
}
