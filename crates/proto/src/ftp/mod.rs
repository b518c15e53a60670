//! FTP: commands, replies, and where data connections go (RFC 959, RFC 2428).
//!
//! At most 4 KiB of a line are kept.

use core::net::{IpAddr, Ipv4Addr};

use crate::detect::Look;
use crate::lines::{Lines, look_reply};
pub use crate::lines::{Replies, Reply, ReplyEvents};

/// Receives what a client says, in the order of the stream.
pub trait CommandEvents {
    /// A command, its verb as it was sent, and what follows without blanks around it.
    fn command(&mut self, verb: &[u8], argument: &[u8]);

    /// Bytes are missing.
    fn lost(&mut self) {}
}

/// Reads what a client says.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    lines: Lines,
}

impl Commands {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        self.lines.held()
    }

    /// The next bytes of the stream.
    pub fn data<E: CommandEvents>(&mut self, bytes: &[u8], events: &mut E) {
        self.lines.resume(|| {
            // Commands have three or four letters (RFC 959, section 5.3.1).
            let letters = bytes.iter().take_while(|byte| byte.is_ascii_alphabetic());
            let letters = letters.count();
            matches!(letters, 3 | 4) && matches!(bytes.get(letters), Some(b' ' | b'\r' | b'\n'))
        });
        let mut rest = bytes;
        while !rest.is_empty() {
            let (taken, is_line) = self.lines.step(rest);
            rest = rest.get(taken..).unwrap_or_default();
            if !is_line {
                continue;
            }
            let line = self.lines.line();
            // Before ABOR come signals of Telnet (RFC 959, section 4.1.3).
            let begins = line.iter().position(|byte| byte.is_ascii_alphabetic());
            let line = line.get(begins.unwrap_or(line.len())..).unwrap_or_default();
            let space = line.iter().position(|&byte| byte == b' ');
            let (verb, argument) = line.split_at(space.unwrap_or(line.len()));
            if !verb.is_empty() {
                events.command(verb, argument.trim_ascii());
            }
            self.lines.clear();
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap<E: CommandEvents>(&mut self, missing: u64, events: &mut E) {
        if missing > 0 {
            self.lines.gap();
            events.lost();
        }
    }
}

/// Whether bytes begin with a line that a client says first. Clients of others have users, too: one tells
/// together with the server's greeting only.
pub fn look_client(bytes: &[u8]) -> Look {
    const FIRST: [&[u8]; 8] = [
        b"USER ",
        b"AUTH TLS",
        b"AUTH SSL",
        b"AUTH GSS",
        b"AUTH ADAT",
        b"FEAT\r",
        b"PASV\r",
        b"SYST\r",
    ];
    if !bytes.is_empty() && !matches!(bytes[0] | 0x20, b'u' | b'a' | b'f' | b'p' | b's') {
        return Look::No;
    }
    let is_line = || memchr::memchr(b'\n', bytes).is_some();
    let begins = FIRST.iter().position(|verb| {
        let length = verb.len().min(bytes.len());
        let known = verb.get(..length).unwrap_or_default();
        bytes
            .get(..length)
            .is_some_and(|it| it.eq_ignore_ascii_case(known))
    });
    match begins {
        None => Look::No,
        Some(0) => Look::More,
        Some(place) => match (is_line(), FIRST.get(place)) {
            (false, _) => Look::More,
            (true, Some(verb)) if bytes.len() > verb.len() => Look::Yes,
            (true, _) => Look::No,
        },
    }
}

/// Whether bytes begin like the greeting of a server: 220 and a word on FTP, or one that tells nothing.
pub fn look_server(bytes: &[u8]) -> Look {
    match look_reply(bytes) {
        Look::Yes => {}
        other => return other,
    }
    let has = |word: &[u8]| {
        let line = bytes.get(..bytes.len().min(512)).unwrap_or_default();
        line.windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    match (bytes.starts_with(b"220"), has(b"FTP"), has(b"SMTP")) {
        (true, true, false) => Look::Yes,
        (true, false, false) => Look::More,
        _ => Look::No,
    }
}

/// Where a data connection goes: the port, and the address where one is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Not there in answers to EPSV: that of the server.
    pub address: Option<IpAddr>,
    /// Port.
    pub port: u16,
}

impl Endpoint {
    /// Of PORT, or of the reply to PASV: six numbers with commas between them, wherever in the text.
    pub fn numbers(text: &[u8]) -> Option<Endpoint> {
        for start in 0..text.len() {
            let before = start.checked_sub(1).and_then(|at| text.get(at));
            let is_start = text.get(start).is_some_and(u8::is_ascii_digit)
                && !before.is_some_and(u8::is_ascii_digit);
            if is_start && let Some(endpoint) = Endpoint::six(text.get(start..)?) {
                return Some(endpoint);
            }
        }
        None
    }

    fn six(text: &[u8]) -> Option<Endpoint> {
        let mut numbers = [0; 6];
        let mut rest = text;
        for (place, number) in numbers.iter_mut().enumerate() {
            if place > 0 {
                rest = rest.strip_prefix(b",")?.trim_ascii_start();
            }
            let end = rest.iter().position(|byte| !byte.is_ascii_digit());
            let (digits, behind) = rest.split_at(end.unwrap_or(rest.len()));
            *number = core::str::from_utf8(digits).ok()?.parse::<u8>().ok()?;
            rest = behind;
        }
        let [a, b, c, d, high, low] = numbers;
        Some(Endpoint {
            address: Some(Ipv4Addr::new(a, b, c, d).into()),
            port: u16::from_be_bytes([high, low]),
        })
    }

    /// Of EPRT (`|1|192.0.2.1|2021|`), or of the reply to EPSV (`(|||2021|)`), wherever in the text.
    pub fn extended(text: &[u8]) -> Option<Endpoint> {
        let start = match text.iter().position(|&byte| byte == b'(') {
            Some(bracket) => bracket + 1,
            None => 0,
        };
        let text = text.get(start..)?;
        // Whatever stands first stands between.
        let (delimiter, rest) = text.split_first()?;
        let mut parts = rest.split(|byte| byte == delimiter);
        let kind = parts.next()?;
        let address = core::str::from_utf8(parts.next()?).ok()?;
        let port = core::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        parts.next()?;
        let address = match (kind, address) {
            (b"", "") => None,
            (b"1" | b"2", address) => Some(address.parse().ok()?),
            _ => return None,
        };
        Some(Endpoint { address, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_found_in_texts() {
        let v4 = |text: &str| {
            Endpoint::numbers(text.as_bytes()).map(|it| (it.address.unwrap().to_string(), it.port))
        };
        let expected = Some(("192.168.1.2".to_owned(), 1025));
        assert_eq!(v4("192,168,1,2,4,1"), expected);
        assert_eq!(v4("Entering Passive Mode (192,168,1,2,4,1)."), expected);
        assert_eq!(v4("227 ok 192,168,1,2,4,1"), expected);
        assert_eq!(v4("=192, 168, 1, 2, 4, 1"), expected);
        for bad in [
            "",
            "1,2,3",
            "1,2,3,4,5,256",
            "a,b,c,d,e,f",
            "300,168,1,2,4,1",
        ] {
            assert_eq!(v4(bad), None, "{bad}");
        }
        let extended = |text: &str| Endpoint::extended(text.as_bytes());
        let port = |address: Option<&str>| {
            Some(Endpoint {
                address: address.map(|it| it.parse().unwrap()),
                port: 2021,
            })
        };
        assert_eq!(extended("|1|192.0.2.1|2021|"), port(Some("192.0.2.1")));
        assert_eq!(extended("|2|2001:db8::1|2021|"), port(Some("2001:db8::1")));
        assert_eq!(
            extended("Entering Extended Passive Mode (|||2021|)"),
            port(None)
        );
        for bad in ["", "|", "|3|x|2021|", "|||70000|", "|||2021", "(||||)"] {
            assert_eq!(extended(bad), None, "{bad}");
        }
    }
}
