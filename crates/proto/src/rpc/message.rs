//! Calls and replies.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::names::{procedure_name, program_name};
use crate::Look;
use crate::cursor::Cursor;

/// Bytes of what proves who calls, at most (RFC 5531, section 8.2).
const MAX_AUTH: u32 = 400;
/// Bytes of a fragment that is believed to be one.
pub(super) const MAX_FRAGMENT: u32 = 16 << 20;

/// A call or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Chosen by who calls; a call that comes again has the same, and so has its reply.
    pub xid: u32,
    /// What it is.
    pub body: Body<'a>,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A call.
    Call(Call<'a>),
    /// A reply.
    Reply(Reply<'a>),
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Number of the program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// What is called.
    pub procedure: u32,
    /// How who calls shows who it is.
    pub flavor: u32,
    /// What it shows.
    pub credentials: &'a [u8],
    /// Arguments, as far as they are there.
    pub arguments: &'a [u8],
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// It was carried out.
    Success,
    /// The program is not here.
    #[strum(serialize = "prog_unavail")]
    ProgramUnavailable,
    /// It is, in other versions.
    #[strum(serialize = "prog_mismatch")]
    ProgramMismatch,
    /// It has no such procedure.
    #[strum(serialize = "proc_unavail")]
    ProcedureUnavailable,
    /// The arguments could not be read.
    #[strum(serialize = "garbage_args")]
    GarbageArguments,
    /// Something else went wrong.
    #[strum(serialize = "system_err")]
    SystemError,
    /// Another version of these calls is spoken.
    RpcMismatch,
    /// Who calls may not.
    AuthError,
}

impl Outcome {
    /// In records: as in RFC 5531, lower case.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What became of the call.
    pub outcome: Outcome,
    /// Results, as far as they are there.
    pub results: &'a [u8],
}

impl<'a> Message<'a> {
    /// Of a datagram, or of a record or its beginning; `None` where the header is none or is cut.
    pub fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut cursor = Cursor(bytes);
        let xid = cursor.u32()?;
        let body = match cursor.u32()? {
            0 => Body::Call(Call::read(&mut cursor)?),
            1 => Body::Reply(Reply::read(&mut cursor)?),
            _ => return None,
        };
        Some(Message { xid, body })
    }
}

/// What proves who calls, or who replies: its kind and itself.
fn auth<'a>(cursor: &mut Cursor<'a>) -> Option<(u32, &'a [u8])> {
    let (flavor, length) = (cursor.u32()?, cursor.u32()?);
    if length > MAX_AUTH {
        return None;
    }
    Some((flavor, opaque(cursor, length)?))
}

/// Bytes filled up to a multiple of four (RFC 4506, section 4.9).
fn opaque<'a>(cursor: &mut Cursor<'a>, length: u32) -> Option<&'a [u8]> {
    let length = usize::try_from(length).ok()?;
    let bytes = cursor.take(length)?;
    // What fills up can be cut off at the end.
    let fill = (4 - length % 4) % 4;
    cursor.take(fill.min(cursor.0.len()))?;
    Some(bytes)
}

impl<'a> Call<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Option<Call<'a>> {
        if cursor.u32()? != 2 {
            return None;
        }
        let (program, version, procedure) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let (flavor, credentials) = auth(cursor)?;
        auth(cursor)?;
        Some(Call {
            program,
            version,
            procedure,
            flavor,
            credentials,
            arguments: cursor.0,
        })
    }

    /// Whether it asks mount for a directory.
    pub const fn has_path(&self) -> bool {
        self.program == 100_005 && matches!(self.procedure, 1 | 3)
    }

    /// The program's name, if it is a known one.
    pub fn program_name(&self) -> Option<&'static str> {
        program_name(self.program)
    }

    /// The procedure's name, if it is a known one.
    pub fn procedure_name(&self) -> Option<&'static str> {
        procedure_name(self.program, self.version, self.procedure)
    }

    /// Name of the machine, user and group of who calls, by AUTH_SYS (RFC 5531, appendix A).
    pub fn unix(&self) -> Option<(&'a [u8], u32, u32)> {
        if self.flavor != 1 {
            return None;
        }
        let mut cursor = Cursor(self.credentials);
        let (_stamp, length) = (cursor.u32()?, cursor.u32()?);
        let machine = opaque(&mut cursor, length)?;
        Some((machine, cursor.u32()?, cursor.u32()?))
    }
}

impl<'a> Reply<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Option<Reply<'a>> {
        let outcome = match cursor.u32()? {
            0 => {
                auth(cursor)?;
                match cursor.u32()? {
                    0 => Outcome::Success,
                    1 => Outcome::ProgramUnavailable,
                    2 => Outcome::ProgramMismatch,
                    3 => Outcome::ProcedureUnavailable,
                    4 => Outcome::GarbageArguments,
                    5 => Outcome::SystemError,
                    _ => return None,
                }
            }
            1 => match cursor.u32()? {
                0 => Outcome::RpcMismatch,
                1 => Outcome::AuthError,
                _ => return None,
            },
            _ => return None,
        };
        Some(Reply {
            outcome,
            results: cursor.0,
        })
    }
}

/// The name of a way to show who calls.
pub const fn auth_name(flavor: u32) -> &'static str {
    match flavor {
        0 => "none",
        1 => "sys",
        2 => "short",
        3 => "dh",
        6 => "gss",
        _ => "other",
    }
}

/// The directory that is asked for, of a call of mount that has one.
pub fn mount_path<'a>(call: &Call<'a>) -> Option<&'a [u8]> {
    if !call.has_path() {
        return None;
    }
    let mut cursor = Cursor(call.arguments);
    let length = cursor.u32()?;
    opaque(&mut cursor, length)
}

/// What a portmapper knows, or is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Number of the program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// 6 for TCP, 17 for UDP.
    pub protocol: u32,
    /// Its port; of a question 0.
    pub port: u16,
}

impl Mapping {
    /// As they stand in calls and replies of version 2.
    fn read(cursor: &mut Cursor<'_>) -> Option<Mapping> {
        Some(Mapping {
            program: cursor.u32()?,
            version: cursor.u32()?,
            protocol: cursor.u32()?,
            port: u16::try_from(cursor.u32()?).ok()?,
        })
    }

    /// What a call of the portmapper asks for, or says: of SET, UNSET and GETPORT.
    pub fn of_call(call: &Call<'_>) -> Option<Mapping> {
        let is_wanted = call.program == 100_000 && matches!(call.procedure, 1..=3);
        let mut cursor = Cursor(call.arguments);
        match call.version {
            2 if is_wanted => Mapping::read(&mut cursor),
            3 | 4 if is_wanted => {
                let (program, version) = (cursor.u32()?, cursor.u32()?);
                let protocol = match netid(&mut cursor)? {
                    b"tcp" | b"tcp6" => 6,
                    b"udp" | b"udp6" => 17,
                    _ => return None,
                };
                Some(Mapping {
                    program,
                    version,
                    protocol,
                    port: 0,
                })
            }
            _ => None,
        }
    }
}

fn netid<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let length = cursor.u32()?;
    opaque(cursor, length)
}

/// The port that the portmapper names in the results of GETPORT (version 2) or GETADDR (3 and 4).
pub fn mapped_port(version: u32, results: &[u8]) -> Option<u16> {
    let mut cursor = Cursor(results);
    if version == 2 {
        return u16::try_from(cursor.u32()?).ok();
    }
    // An address and two numbers behind it (RFC 5665, section 5.2.3.3).
    let text = core::str::from_utf8(netid(&mut cursor)?).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (address, high) = rest.rsplit_once('.')?;
    let is_address = address.parse::<Ipv4Addr>().is_ok() || address.parse::<Ipv6Addr>().is_ok();
    let number = |text: &str| text.parse::<u8>().ok();
    is_address.then_some(u16::from_be_bytes([number(high)?, number(low)?]))
}

/// The mappings in the results of DUMP, version 2, as far as they are there.
pub fn mappings(results: &[u8]) -> impl Iterator<Item = Mapping> + '_ {
    let mut cursor = Cursor(results);
    core::iter::from_fn(move || match cursor.u32()? {
        1 => Mapping::read(&mut cursor),
        _ => None,
    })
}

/// Whether a datagram is a call or a reply.
pub fn look(bytes: &[u8]) -> Look {
    match Message::read(bytes) {
        Some(message) if is_likely(&message) => Look::Yes,
        _ => Look::No,
    }
}

fn is_likely(message: &Message<'_>) -> bool {
    match message.body {
        // No program has more, and nobody has numbered programs from 0.
        Body::Call(call) => {
            call.program >= 100_000
                && call.version < 256
                && call.procedure < 1024
                && call.flavor < 1 << 20
        }
        Body::Reply(reply) => reply.results.len() % 4 == 0,
    }
}

/// Whether a stream begins with a record of a call or a reply.
pub fn look_stream(bytes: &[u8]) -> Look {
    let mut cursor = Cursor(bytes);
    let Some(mark) = cursor.u32() else {
        return Look::More;
    };
    let length = mark & 0x7fff_ffff;
    // A first fragment holds at least the header.
    if !(24..=MAX_FRAGMENT).contains(&length) {
        return Look::No;
    }
    match Message::read(cursor.0) {
        Some(message) => match is_likely(&message) || matches!(message.body, Body::Reply(_)) {
            true => Look::Yes,
            false => Look::No,
        },
        // Words that are there must be those of a header.
        None => {
            let word = |index: usize| Cursor(cursor.0.get(index * 4..)?).u32();
            let can_be = match (word(1), word(2)) {
                (Some(0), Some(version)) => version == 2,
                (Some(1), Some(status)) => status <= 1,
                (Some(kind), None) => kind <= 1,
                (Some(_), _) => false,
                (None, _) => true,
            };
            let is_short = cursor.0.len() < (40 + 2 * MAX_AUTH as usize).min(length as usize);
            match can_be && is_short {
                true => Look::More,
                false => Look::No,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &[u8] = b"\0\0\0\x07\0\0\0\0\0\0\0\x02\0\x01\x86\xa5\0\0\0\x03\0\0\0\x01\
        \0\0\0\x01\0\0\0\x1c\0\0\0\0\0\0\0\x04host\0\0\0\x05\0\0\0\x06\0\0\0\x01\0\0\0\x06\
        \0\0\0\0\0\0\0\0\0\0\0\x05/data\0\0\0";

    #[test]
    fn a_call_says_who_and_what() {
        let message = Message::read(CALL).unwrap();
        let Body::Call(call) = message.body else {
            panic!("a call");
        };
        assert_eq!(call.program_name(), Some("mount"));
        assert_eq!(call.procedure_name(), Some("mnt"));
        assert_eq!(call.unix(), Some((&b"host"[..], 5, 6)));
        assert_eq!(mount_path(&call), Some(&b"/data"[..]));
        assert_eq!(look(CALL), Look::Yes);
        for end in 0..68 {
            assert_eq!(Message::read(&CALL[..end]), None, "{end} bytes");
        }
        let mut other = CALL.to_vec();
        other[11] = 3;
        assert_eq!(Message::read(&other), None, "another version of RPC");
        other[11] = 2;
        other[31] = 0xff;
        other[30] = 0xff;
        assert_eq!(
            Message::read(&other),
            None,
            "credentials of more than 400 bytes"
        );
    }

    fn reply(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn replies_say_what_became_of_calls() {
        let outcome = |words: &[u32]| {
            let bytes = reply(words);
            Message::read(&bytes).map(|it| match it.body {
                Body::Reply(reply) => (reply.outcome, reply.results.len()),
                Body::Call(_) => panic!("a reply"),
            })
        };
        assert_eq!(
            outcome(&[7, 1, 0, 0, 0, 0, 2049]),
            Some((Outcome::Success, 4))
        );
        assert_eq!(
            outcome(&[7, 1, 0, 0, 0, 1]),
            Some((Outcome::ProgramUnavailable, 0))
        );
        assert_eq!(
            outcome(&[7, 1, 0, 0, 0, 2, 2, 4]),
            Some((Outcome::ProgramMismatch, 8))
        );
        assert_eq!(outcome(&[7, 1, 1, 1, 5]), Some((Outcome::AuthError, 4)));
        assert_eq!(outcome(&[7, 1, 0, 0, 0, 9]), None);
        assert_eq!(outcome(&[7, 2, 0, 0, 0, 0]), None);
    }

    #[test]
    fn portmappers_tell_ports() {
        assert_eq!(mapped_port(2, &reply(&[2049])), Some(2049));
        assert_eq!(mapped_port(2, &reply(&[70_000])), None);
        let universal = |text: &str| {
            let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
            bytes.extend_from_slice(text.as_bytes());
            mapped_port(4, &bytes)
        };
        assert_eq!(universal("192.0.2.1.8.1"), Some(2049));
        assert_eq!(universal("2001:db8::1.8.1"), Some(2049));
        assert_eq!(universal("8.1"), None);
        assert_eq!(universal(""), None);
        let list = reply(&[1, 100_003, 3, 17, 2049, 1, 100_005, 3, 6, 634, 0]);
        let ports: Vec<u16> = mappings(&list).map(|it| it.port).collect();
        assert_eq!(ports, [2049, 634]);
    }

    #[test]
    fn streams_tell_as_soon_as_they_can() {
        let mut stream = (0x8000_0000 | CALL.len() as u32).to_be_bytes().to_vec();
        stream.extend_from_slice(CALL);
        for end in 0..72 {
            assert_eq!(look_stream(&stream[..end]), Look::More, "{end} bytes");
        }
        assert_eq!(look_stream(&stream[..72]), Look::Yes);
        assert_eq!(look_stream(b"GET / HTTP/1.1\r\n"), Look::No);
        assert_eq!(look_stream(b"\x80\0\0\x40\0\0\0\x07\0\0\0\x05"), Look::No);
    }
}
