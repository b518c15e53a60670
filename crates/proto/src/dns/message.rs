//! A message and its parts (RFC 1035, section 4).

use super::data::Data;
use super::name::Name;
use crate::cursor::Cursor;

/// The first twelve bytes of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the client, and repeated in the reply.
    pub id: u16,
    /// The second word: flags, opcode and code.
    pub flags: u16,
    /// Questions, answers, authorities, additional records, as the message says.
    pub counts: [u16; 4],
}

impl Header {
    /// How many bytes it has.
    pub const LEN: usize = 12;

    /// Of a message that has so many bytes.
    pub fn read(bytes: &[u8]) -> Option<Header> {
        let mut cursor = Cursor(bytes);
        let (id, flags) = (cursor.u16()?, cursor.u16()?);
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = cursor.u16()?;
        }
        Some(Header { id, flags, counts })
    }

    const fn flag(&self, bit: u16) -> bool {
        self.flags & bit != 0
    }

    /// QR: it is a reply.
    pub const fn is_reply(&self) -> bool {
        self.flag(0x8000)
    }

    /// Kind of request.
    pub const fn opcode(&self) -> u8 {
        (self.flags >> 11 & 0xf) as u8
    }

    /// AA: its sender has authority over the name.
    pub const fn is_authoritative(&self) -> bool {
        self.flag(0x0400)
    }

    /// TC: part of it was left out.
    pub const fn is_truncated(&self) -> bool {
        self.flag(0x0200)
    }

    /// RD: the client wants recursion.
    pub const fn wants_recursion(&self) -> bool {
        self.flag(0x0100)
    }

    /// RA: the server does recursion.
    pub const fn has_recursion(&self) -> bool {
        self.flag(0x0080)
    }

    /// Z: the bit that has no meaning.
    pub const fn has_reserved(&self) -> bool {
        self.flag(0x0040)
    }

    /// AD: the data is authentic (RFC 4035).
    pub const fn is_authentic(&self) -> bool {
        self.flag(0x0020)
    }

    /// CD: the client checks itself (RFC 4035).
    pub const fn checks_disabled(&self) -> bool {
        self.flag(0x0010)
    }

    /// The lower four bits of the response code.
    pub const fn rcode(&self) -> u8 {
        (self.flags & 0xf) as u8
    }
}

/// Why a message cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It ends within a name or a record, or before all that it announces.
    #[error("the message ends within a name or a record")]
    Short,
    /// A label of an unknown kind.
    #[error("a label of an unknown kind")]
    BadLabel,
    /// A pointer that does not lead back, or one of too many.
    #[error("a pointer that does not lead back")]
    BadPointer,
    /// A name of more than 255 bytes.
    #[error("a name of more than 255 bytes")]
    LongName,
}

impl Fault {
    /// In records.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Short => "short",
            Fault::BadLabel => "bad_label",
            Fault::BadPointer => "bad_pointer",
            Fault::LongName => "long_name",
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// About this name.
    pub name: Name<'a>,
    /// Type of record.
    pub kind: u16,
    /// Class; in multicast DNS its highest bit says that a reply to the client alone is wanted (RFC 6762, section 5.4).
    pub class: u16,
}

/// Where in a message a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// It answers the question; in updates (RFC 2136) it is a condition.
    Answer,
    /// It says who has authority; in updates it is a change.
    Authority,
    /// Beside the answer.
    Additional,
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where it stands.
    pub section: Section,
    /// Whose it is.
    pub name: Name<'a>,
    /// Its type.
    pub kind: u16,
    /// Class; in multicast DNS its highest bit says that older records are to be forgotten.
    pub class: u16,
    /// Time to live, s.
    pub ttl: u32,
    /// What it says.
    pub data: Data<'a>,
}

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A question.
    Question(Question<'a>),
    /// A record.
    Record(Record<'a>),
}

/// A message, of which the header was read.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    header: Header,
}

impl<'a> Message<'a> {
    /// `None` where there is no whole header.
    pub fn new(bytes: &'a [u8]) -> Option<Message<'a>> {
        let header = Header::read(bytes)?;
        Some(Message { bytes, header })
    }

    /// Its header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Questions and records in the order in which they stand, up to the first that cannot be read.
    pub fn parts(&self) -> Parts<'a> {
        Parts {
            bytes: self.bytes,
            at: Header::LEN,
            left: self.header.counts,
        }
    }

    /// The first question.
    pub fn question(&self) -> Option<Question<'a>> {
        match self.parts().next()? {
            Ok(Part::Question(question)) => Some(question),
            _ => None,
        }
    }
}

/// See [`Message::parts`].
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    bytes: &'a [u8],
    at: usize,
    left: [u16; 4],
}

impl<'a> Parts<'a> {
    /// Bytes behind what was read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn name(&mut self) -> Result<Name<'a>, Fault> {
        let (name, end) = Name::read(self.bytes, self.at)?;
        self.at = end;
        Ok(name)
    }

    fn question(&mut self) -> Result<Part<'a>, Fault> {
        let name = self.name()?;
        let mut cursor = Cursor(self.rest());
        let kind = cursor.u16().ok_or(Fault::Short)?;
        let class = cursor.u16().ok_or(Fault::Short)?;
        self.at += 4;
        Ok(Part::Question(Question { name, kind, class }))
    }

    fn record(&mut self, section: Section) -> Result<Part<'a>, Fault> {
        let name = self.name()?;
        let mut cursor = Cursor(self.rest());
        let mut numbers = || {
            let numbers = (cursor.u16()?, cursor.u16()?, cursor.u32()?, cursor.u16()?);
            cursor.take(usize::from(numbers.3))?;
            Some(numbers)
        };
        let (kind, class, ttl, length) = numbers().ok_or(Fault::Short)?;
        let start = self.at + 10;
        self.at = start + usize::from(length);
        Ok(Part::Record(Record {
            section,
            name,
            kind,
            class,
            ttl,
            data: Data::new(self.bytes, start..self.at, kind),
        }))
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<Part<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.left.iter().position(|&left| left > 0)?;
        self.left[index] -= 1;
        let part = match index {
            0 => self.question(),
            1 => self.record(Section::Answer),
            2 => self.record(Section::Authority),
            _ => self.record(Section::Additional),
        };
        if part.is_err() {
            self.left = [0; 4];
        }
        Some(part)
    }
}
