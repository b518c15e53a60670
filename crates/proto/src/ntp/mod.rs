//! The Network Time Protocol, versions 1 to 4 (RFC 5905), and the header of its control messages
//! (RFC 9327).

use crate::Look;
use crate::cursor::Cursor;

/// Seconds from 1900, where NTP's first era begins, to 1970.
const TO_1970: u64 = 2_208_988_800;

/// A point in time: seconds since 1900 and a fraction of 2^32 parts. 0 says that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Nanoseconds since 1970; `None` where there is none, or it is before.
    ///
    /// Seconds whose highest bit is not set are of the second era, which begins in 2036 (RFC 4330,
    /// section 3).
    pub fn unix_nanos(self) -> Option<u64> {
        if self.0 == 0 {
            return None;
        }
        let seconds = self.0 >> 32;
        let era = if seconds >> 31 == 0 { 1 << 32 } else { 0 };
        let seconds = (seconds + era).checked_sub(TO_1970)?;
        let nanos = ((self.0 & 0xffff_ffff) * 1_000_000_000) >> 32;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    }
}

/// What a message says of its sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Distance to a reference clock in hosts; 0 is unspecified, or a kiss of death.
    pub stratum: u8,
    /// Logarithm of the seconds between messages.
    pub poll: i8,
    /// Logarithm of the clock's precision in seconds.
    pub precision: i8,
    /// Round trip to the reference clock, in 2^-16 s.
    pub root_delay: u32,
    /// Uncertainty to it, in 2^-16 s.
    pub root_dispersion: u32,
    /// Which clock or host it follows.
    pub reference_id: [u8; 4],
    /// When it was set.
    pub reference: Timestamp,
    /// When the request left, by the client's clock: what the client sent as its time.
    pub origin: Timestamp,
    /// When the request came.
    pub receive: Timestamp,
    /// When this message left.
    pub transmit: Timestamp,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether a second is to be inserted (1) or left out (2), or the clock is not set (3).
    pub leap: u8,
    /// Version.
    pub version: u8,
    /// What kind of message.
    pub mode: u8,
    /// Of control and private messages (modes 6 and 7): it is a reply.
    pub is_control_reply: bool,
    /// Of all others: what it says.
    pub clock: Option<Clock>,
}

impl Message {
    /// Of a datagram; `None` where it is cut.
    pub fn read(bytes: &[u8]) -> Option<Message> {
        let mut cursor = Cursor(bytes);
        let first = cursor.u8()?;
        let (leap, version, mode) = (first >> 6, first >> 3 & 7, first & 7);
        let mut message = Message {
            leap,
            version,
            mode,
            is_control_reply: false,
            clock: None,
        };
        match mode {
            6 => message.is_control_reply = cursor.u8()? & 0x80 != 0,
            7 => message.is_control_reply = first & 0x80 != 0,
            _ => {
                let [stratum, poll, precision] = cursor.array()?;
                let (root_delay, root_dispersion) = (cursor.u32()?, cursor.u32()?);
                let reference_id = cursor.array()?;
                let mut time = || cursor.array().map(u64::from_be_bytes).map(Timestamp);
                message.clock = Some(Clock {
                    stratum,
                    poll: poll as i8,
                    precision: precision as i8,
                    root_delay,
                    root_dispersion,
                    reference_id,
                    reference: time()?,
                    origin: time()?,
                    receive: time()?,
                    transmit: time()?,
                });
            }
        }
        Some(message)
    }
}

/// The name of a mode, as in RFC 5905.
pub const fn mode_name(mode: u8) -> &'static str {
    match mode {
        1 => "symmetric_active",
        2 => "symmetric_passive",
        3 => "client",
        4 => "server",
        5 => "broadcast",
        6 => "control",
        7 => "private",
        _ => "reserved",
    }
}

impl Clock {
    /// Appends the reference: four letters of a primary server's clock or of a kiss of death, the
    /// address of the host that a secondary one follows.
    pub fn write_reference(&self, out: &mut String) {
        let id = self.reference_id;
        if self.stratum > 1 {
            let address = core::net::Ipv4Addr::from(id);
            // Into a string nothing fails.
            let _ = core::fmt::Write::write_fmt(out, format_args!("{address}"));
            return;
        }
        let letters = id.iter().take_while(|&&byte| byte != 0);
        for &byte in letters.filter(|byte| byte.is_ascii_graphic()) {
            out.push(char::from(byte));
        }
    }
}

/// Whether a datagram could be a message. Little in one is always the same: a port has to say so too.
pub fn look(bytes: &[u8]) -> Look {
    let Some(message) = Message::read(bytes) else {
        return Look::No;
    };
    let is_known = matches!(message.version, 1..=4) && message.mode != 0;
    let is_sound = match message.clock {
        Some(clock) => clock.stratum <= 16,
        None => bytes.len() >= if message.mode == 7 { 8 } else { 12 },
    };
    match is_known && is_sound {
        true => Look::More,
        false => Look::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_eras() {
        let nanos = |seconds: u64, fraction: u64| Timestamp(seconds << 32 | fraction).unix_nanos();
        assert_eq!(nanos(0, 0), None);
        assert_eq!(nanos(TO_1970, 0), Some(0));
        assert_eq!(nanos(TO_1970 + 1, 1 << 31), Some(1_500_000_000));
        // RFC 4330, section 3: 2036-02-07 06:28:16 UTC.
        assert_eq!(nanos(0, 1 << 31), Some(2_085_978_496_500_000_000));
        assert_eq!(nanos(TO_1970 - 1, 0), None);
    }

    #[test]
    fn a_reply_of_a_primary_server() {
        let mut bytes = vec![0x24, 1, 6, 0xec];
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x10]);
        bytes.extend_from_slice(b"GPS\0");
        for time in 1..5_u64 {
            bytes.extend_from_slice(&(time << 32).to_be_bytes());
        }
        let message = Message::read(&bytes).unwrap();
        assert_eq!(
            (message.version, mode_name(message.mode), message.leap),
            (4, "server", 0)
        );
        let clock = message.clock.unwrap();
        assert_eq!((clock.stratum, clock.poll, clock.precision), (1, 6, -20));
        assert_eq!(
            (clock.root_dispersion, clock.transmit),
            (16, Timestamp(4 << 32))
        );
        let mut text = String::new();
        clock.write_reference(&mut text);
        assert_eq!((text.as_str(), look(&bytes)), ("GPS", Look::More));
        for end in 0..48 {
            assert_eq!(Message::read(&bytes[..end]), None, "{end} bytes");
        }
        let secondary = Clock {
            stratum: 2,
            reference_id: [192, 0, 2, 1],
            ..clock
        };
        text.clear();
        secondary.write_reference(&mut text);
        assert_eq!(text, "192.0.2.1");
    }

    #[test]
    fn control_messages_have_another_form() {
        let message = Message::read(b"\x16\x82\0\x01\0\0\0\0\0\0\0\0").unwrap();
        assert_eq!(
            (mode_name(message.mode), message.is_control_reply),
            ("control", true)
        );
        assert_eq!(message.clock, None);
        let message = Message::read(b"\x17\0\x03\x2a\0\0\0\0").unwrap();
        assert_eq!(
            (mode_name(message.mode), message.is_control_reply),
            ("private", false)
        );
        assert_eq!(Message::read(b""), None);
    }
}
