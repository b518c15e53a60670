//! Messages as octets and back (RFC 2741, 5 and 6), in both orders of octets.

use super::message::{Binding, Bound, Message, Pdu, Range, Region, Response, flag};
use crate::{Missing, Oid, Value};

/// Octets of a header.
pub const HEADER: usize = 20;

/// Octets behind a header at most. What a manager asks for fits into 65,535 octets of SNMP, in which a
/// number takes one octet at least; here it takes four.
pub const MAX_PAYLOAD: usize = 1 << 18;

/// Why octets are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Not AgentX, or a later one. Nothing behind it can be read.
    #[error(
        "version {0} of AgentX, not 1: the other end is not an AgentX master, or not of this version"
    )]
    Version(u8),
    /// Nothing behind it can be read.
    #[error("a message of {0} octets, which is not a multiple of 4, or more than {MAX_PAYLOAD}")]
    Length(u32),
    /// The contents of one message; the next one can be read.
    #[error("the contents of a message of type {0} cannot be read")]
    Contents(u8),
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u8,
    flags: u8,
    /// The session, which the master numbers.
    pub session: u32,
    /// The request of a manager that it belongs to.
    pub transaction: u32,
    /// Equal in a request and its response.
    pub packet: u32,
    /// Octets behind the header.
    pub length: usize,
}

impl Header {
    /// Reads a header. [`None`] while less than [`HEADER`] octets are there.
    ///
    /// # Errors
    ///
    /// If the message and all behind it cannot be read.
    pub fn read(octets: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(octets) = octets.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [version, kind, flags, ..] = *octets;
        if version != 1 {
            return Err(Malformed::Version(version));
        }
        let mut reader = Reader::new(&octets[4..], flags);
        let mut number = || reader.number().unwrap_or_default();
        let (session, transaction, packet, length) = (number(), number(), number(), number());
        if length % 4 != 0 || length as usize > MAX_PAYLOAD {
            return Err(Malformed::Length(length));
        }
        Ok(Some(Self {
            kind,
            flags,
            session,
            transaction,
            packet,
            length: length as usize,
        }))
    }

    /// Whether the message is a response.
    pub fn is_response(&self) -> bool {
        self.kind == 18
    }

    /// Reads the `length` octets behind the header.
    ///
    /// # Errors
    ///
    /// If they are no contents of a message of this type, or more than that.
    pub fn contents(&self, payload: &[u8]) -> Result<Message, Malformed> {
        let mut reader = Reader::new(payload, self.flags);
        let message = self
            .message(&mut reader)
            .filter(|_| reader.octets.is_empty());
        message.ok_or(Malformed::Contents(self.kind))
    }

    fn message(&self, reader: &mut Reader<'_>) -> Option<Message> {
        // These messages have no place for a context.
        let without = matches!(self.kind, 1 | 2 | 9..=11 | 18);
        let context = match self.flags & flag::CONTEXT {
            0 => None,
            _ if without => return None,
            _ => Some(reader.string()?),
        };
        Some(Message {
            session: self.session,
            transaction: self.transaction,
            packet: self.packet,
            flags: self.flags & (flag::INSTANCE | flag::NEW_INDEX | flag::ANY_INDEX),
            context,
            pdu: reader.pdu(self.kind)?,
        })
    }
}

struct Reader<'a> {
    octets: &'a [u8],
    network: bool,
}

impl<'a> Reader<'a> {
    fn new(octets: &'a [u8], flags: u8) -> Self {
        let network = flags & flag::NETWORK_ORDER != 0;
        Self { octets, network }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.octets.split_first_chunk()?;
        self.octets = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u32> {
        let octets = self.array()?;
        Some(if self.network {
            u32::from_be_bytes(octets)
        } else {
            u32::from_le_bytes(octets)
        })
    }

    fn short(&mut self) -> Option<u16> {
        let octets = self.array()?;
        Some(if self.network {
            u16::from_be_bytes(octets)
        } else {
            u16::from_le_bytes(octets)
        })
    }

    fn long(&mut self) -> Option<u64> {
        let octets = self.array()?;
        Some(if self.network {
            u64::from_be_bytes(octets)
        } else {
            u64::from_le_bytes(octets)
        })
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let length = self.number()? as usize;
        let padded = length.checked_next_multiple_of(4)?;
        let (first, rest) = self.octets.split_at_checked(padded)?;
        self.octets = rest;
        Some(first[..length].to_vec())
    }

    /// An identifier, and the octet beside it that says whether its own object is meant, too.
    fn oid(&mut self) -> Option<(Oid, bool)> {
        let [length, prefix, include, _] = self.array()?;
        let before: &[u32] = &[1, 3, 6, 1, u32::from(prefix)];
        let mut oid = Oid::new(if prefix == 0 { &[] } else { before });
        if oid.numbers().len() + usize::from(length) > Oid::MAX {
            return None;
        }
        for _ in 0..length {
            oid.push(self.number()?);
        }
        Some((oid, include != 0))
    }

    /// What is there until the end of the message.
    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut list = Vec::new();
        while !self.octets.is_empty() {
            list.push(read(self)?);
        }
        Some(list)
    }

    fn range(&mut self) -> Option<Range> {
        let (start, include) = self.oid()?;
        let (end, _) = self.oid()?;
        Some(Range {
            start,
            include,
            end,
        })
    }

    fn binding(&mut self) -> Option<Binding> {
        let kind = self.short()?;
        let _reserved = self.short()?;
        let (name, _) = self.oid()?;
        let value = match kind {
            2 => Value::Integer(self.number()?.cast_signed()),
            4 => Value::Octets(self.string()?),
            5 => Value::Null,
            6 => Value::Oid(self.oid()?.0),
            64 => Value::IpAddress(self.string()?.try_into().ok()?),
            65 => Value::Counter32(self.number()?),
            66 => Value::Gauge32(self.number()?),
            67 => Value::TimeTicks(self.number()?),
            68 => Value::Opaque(self.string()?),
            70 => Value::Counter64(self.long()?),
            128 => {
                return Some(Binding {
                    name,
                    bound: Bound::Missing(Missing::Object),
                });
            }
            129 => {
                return Some(Binding {
                    name,
                    bound: Bound::Missing(Missing::Instance),
                });
            }
            130 => {
                return Some(Binding {
                    name,
                    bound: Bound::End,
                });
            }
            _ => return None,
        };
        Some(Binding {
            name,
            bound: Bound::Value(value),
        })
    }

    fn region(&mut self, position: u8) -> Option<Region> {
        let (subtree, _) = self.oid()?;
        if position == 0 {
            return Some(Region {
                subtree,
                range: None,
            });
        }
        let last = self.number()?;
        (usize::from(position) <= subtree.numbers().len()).then_some(Region {
            subtree,
            range: Some((position, last)),
        })
    }

    fn pdu(&mut self, kind: u8) -> Option<Pdu> {
        Some(match kind {
            1 => {
                let [timeout, ..] = self.array::<4>()?;
                let (id, _) = self.oid()?;
                Pdu::Open {
                    timeout,
                    id,
                    description: self.string()?,
                }
            }
            2 => Pdu::Close {
                reason: self.array::<4>()?[0],
            },
            3 => {
                let [timeout, priority, position, _] = self.array()?;
                Pdu::Register {
                    timeout,
                    priority,
                    region: self.region(position)?,
                }
            }
            4 => {
                let [_, priority, position, _] = self.array()?;
                Pdu::Unregister {
                    priority,
                    region: self.region(position)?,
                }
            }
            5 => Pdu::Get(self.list(Self::range)?),
            6 => Pdu::GetNext(self.list(Self::range)?),
            7 => Pdu::GetBulk {
                non_repeaters: self.short()?,
                max_repetitions: self.short()?,
                ranges: self.list(Self::range)?,
            },
            8 => Pdu::TestSet(self.list(Self::binding)?),
            9 => Pdu::CommitSet,
            10 => Pdu::UndoSet,
            11 => Pdu::CleanupSet,
            12 => Pdu::Notify(self.list(Self::binding)?),
            13 => Pdu::Ping,
            14 => Pdu::IndexAllocate(self.list(Self::binding)?),
            15 => Pdu::IndexDeallocate(self.list(Self::binding)?),
            16 => Pdu::AddAgentCaps {
                id: self.oid()?.0,
                description: self.string()?,
            },
            17 => Pdu::RemoveAgentCaps { id: self.oid()?.0 },
            18 => Pdu::Response(Response {
                uptime: self.number()?,
                error: self.short()?,
                index: self.short()?,
                bindings: self.list(Self::binding)?,
            }),
            _ => return None,
        })
    }
}

impl Message {
    /// Appends its octets, numbers with their highest octet first.
    pub fn write(&self, output: &mut Vec<u8>) {
        self.write_ordered(true, output);
    }

    /// Appends its octets, numbers with their highest (`network`) or their lowest octet first.
    pub fn write_ordered(&self, network: bool, output: &mut Vec<u8>) {
        let begin = output.len();
        let mut flags = self.flags;
        flags |= if network { flag::NETWORK_ORDER } else { 0 };
        flags |= if self.context.is_some() {
            flag::CONTEXT
        } else {
            0
        };
        output.extend([1, self.pdu.kind(), flags, 0]);
        let mut writer = Writer { output, network };
        for number in [self.session, self.transaction, self.packet, 0] {
            writer.number(number);
        }
        if let Some(context) = &self.context {
            writer.string(context);
        }
        writer.pdu(&self.pdu);
        let length = (output.len() - begin - HEADER) as u32;
        let length = if network {
            length.to_be_bytes()
        } else {
            length.to_le_bytes()
        };
        output[begin + 16..begin + HEADER].copy_from_slice(&length);
    }
}

struct Writer<'a> {
    output: &'a mut Vec<u8>,
    network: bool,
}

impl Writer<'_> {
    fn number(&mut self, number: u32) {
        let octets = if self.network {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        };
        self.output.extend(octets);
    }

    fn short(&mut self, number: u16) {
        let octets = if self.network {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        };
        self.output.extend(octets);
    }

    fn long(&mut self, number: u64) {
        let octets = if self.network {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        };
        self.output.extend(octets);
    }

    fn string(&mut self, octets: &[u8]) {
        self.number(octets.len() as u32);
        self.output.extend(octets);
        let padding = octets.len().next_multiple_of(4) - octets.len();
        self.output.extend(&[0; 3][..padding]);
    }

    fn oid(&mut self, oid: &Oid, include: bool) {
        let (prefix, numbers) = match oid.numbers() {
            [1, 3, 6, 1, prefix @ 1..=255, rest @ ..] => (*prefix as u8, rest),
            numbers => (0, numbers),
        };
        self.output
            .extend([numbers.len() as u8, prefix, u8::from(include), 0]);
        numbers.iter().for_each(|number| self.number(*number));
    }

    fn ranges(&mut self, ranges: &[Range]) {
        for range in ranges {
            self.oid(&range.start, range.include);
            self.oid(&range.end, false);
        }
    }

    fn bindings(&mut self, bindings: &[Binding]) {
        bindings.iter().for_each(|binding| self.binding(binding));
    }

    fn binding(&mut self, binding: &Binding) {
        let kind = match &binding.bound {
            Bound::Value(value) => match value {
                Value::Integer(_) => 2,
                Value::Octets(_) => 4,
                Value::Null => 5,
                Value::Oid(_) => 6,
                Value::IpAddress(_) => 64,
                Value::Counter32(_) => 65,
                Value::Gauge32(_) => 66,
                Value::TimeTicks(_) => 67,
                Value::Opaque(_) => 68,
                Value::Counter64(_) => 70,
            },
            Bound::Missing(Missing::Object) => 128,
            Bound::Missing(Missing::Instance) => 129,
            Bound::End => 130,
        };
        self.short(kind);
        self.short(0);
        self.oid(&binding.name, false);
        let Bound::Value(value) = &binding.bound else {
            return;
        };
        match value {
            Value::Integer(number) => self.number(number.cast_unsigned()),
            Value::Octets(octets) | Value::Opaque(octets) => self.string(octets),
            Value::Null => {}
            Value::Oid(oid) => self.oid(oid, false),
            Value::IpAddress(octets) => self.string(octets),
            Value::Counter32(number) | Value::Gauge32(number) | Value::TimeTicks(number) => {
                self.number(*number);
            }
            Value::Counter64(number) => self.long(*number),
        }
    }

    fn region(&mut self, [first, priority]: [u8; 2], region: &Region) {
        let position = region.range.map_or(0, |(position, _)| position);
        self.output.extend([first, priority, position, 0]);
        self.oid(&region.subtree, false);
        if let Some((_, last)) = region.range {
            self.number(last);
        }
    }

    fn pdu(&mut self, pdu: &Pdu) {
        match pdu {
            Pdu::Open {
                timeout,
                id,
                description,
            } => {
                self.output.extend([*timeout, 0, 0, 0]);
                self.oid(id, false);
                self.string(description);
            }
            Pdu::Close { reason } => self.output.extend([*reason, 0, 0, 0]),
            Pdu::Register {
                timeout,
                priority,
                region,
            } => {
                self.region([*timeout, *priority], region);
            }
            Pdu::Unregister { priority, region } => self.region([0, *priority], region),
            Pdu::Get(ranges) | Pdu::GetNext(ranges) => self.ranges(ranges),
            Pdu::GetBulk {
                non_repeaters,
                max_repetitions,
                ranges,
            } => {
                self.short(*non_repeaters);
                self.short(*max_repetitions);
                self.ranges(ranges);
            }
            Pdu::CommitSet | Pdu::UndoSet | Pdu::CleanupSet | Pdu::Ping => {}
            Pdu::TestSet(bindings)
            | Pdu::Notify(bindings)
            | Pdu::IndexAllocate(bindings)
            | Pdu::IndexDeallocate(bindings) => self.bindings(bindings),
            Pdu::AddAgentCaps { id, description } => {
                self.oid(id, false);
                self.string(description);
            }
            Pdu::RemoveAgentCaps { id } => self.oid(id, false),
            Pdu::Response(response) => {
                self.number(response.uptime);
                self.short(response.error);
                self.short(response.index);
                self.bindings(&response.bindings);
            }
        }
    }
}
