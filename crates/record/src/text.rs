//! Appending numbers, addresses and times as text, without allocation and without `fmt`.

use std::borrow::Cow;

use flowgauge_wire::{Address, Nanos, TcpFlags};

/// Makes a character from outside safe for terminals and tables: characters that move the cursor, control a
/// terminal, change the direction of text, are invisible or end a line become U+FFFD. These are Unicode's general
/// categories Cc, Cf, Zl and Zp (version 16).
#[inline]
pub fn harmless(character: char) -> char {
    if is_harmless(character) {
        character
    } else {
        char::REPLACEMENT_CHARACTER
    }
}

#[inline]
fn is_harmless(character: char) -> bool {
    if character < '\u{ad}' {
        return !character.is_control();
    }
    !matches!(
        character,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// Makes text of several lines safe for terminals: all characters [`harmless`], except line feeds and tabs.
pub fn harmless_lines(text: &str) -> Cow<'_, str> {
    let shown = |character| match character {
        '\n' | '\t' => character,
        other => harmless(other),
    };
    match text.chars().all(|character| shown(character) == character) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().map(shown).collect()),
    }
}

/// Makes JSON text from any origin safe: characters within its strings that are not [`harmless`] are escaped.
pub fn harmless_json(json: &str) -> Cow<'_, str> {
    let is_kept = |character| is_harmless(character) || matches!(character, '\n' | '\t');
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        if is_kept(character) {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(out)
}

/// `00` to `99`.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Decimal text of every byte, with a dot behind it and zeros behind that.
static OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[0; 4]; 256];
    let mut n = 0;
    while n < 256 {
        let digits = [
            b'0' + (n / 100) as u8,
            b'0' + (n / 10 % 10) as u8,
            b'0' + (n % 10) as u8,
        ];
        octets[n] = match OCTET_LENGTHS[n] {
            3 => [digits[0], digits[1], digits[2], b'.'],
            2 => [digits[1], digits[2], b'.', 0],
            _ => [digits[2], b'.', 0, 0],
        };
        n += 1;
    }
    octets
};

/// Decimal digits of every byte.
static OCTET_LENGTHS: [u8; 256] = {
    let mut lengths = [1; 256];
    let mut n = 10;
    while n < 256 {
        lengths[n] = if n < 100 { 2 } else { 3 };
        n += 1;
    }
    lengths
};

const HEX: &[u8; 16] = b"0123456789abcdef";

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_HOUR: u64 = 3600 * NANOS_PER_SECOND;

/// A short text of constant width: `len` of `N` bytes count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short<const N: usize> {
    pub(crate) bytes: [u8; N],
    pub(crate) len: usize,
}

/// The text of a number of up to eight digits; longer ones have none.
#[inline(always)]
pub(crate) fn short_unsigned(value: u64) -> Option<Short<8>> {
    if value < 10 {
        return Some(Short {
            bytes: [b'0' + value as u8, 0, 0, 0, 0, 0, 0, 0],
            len: 1,
        });
    }
    if value >= 100_000_000 {
        return None;
    }
    let digits = eight_digits(value as u32);
    // Zeros in front are the low bytes; at least two digits are left.
    let skip = digits.trailing_zeros() / 8;
    Some(Short {
        bytes: ((digits | ASCII_ZEROS) >> (8 * skip)).to_le_bytes(),
        len: 8 - skip as usize,
    })
}

const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight decimal digits of `value`, the first one in the lowest byte. Each step divides all
/// parts at once: by 10,000, by 100, by 10.
#[inline(always)]
fn eight_digits(value: u32) -> u64 {
    let value = u64::from(value);
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - tens * 10) << 8
}

/// Nine digits of nanoseconds.
#[inline(always)]
fn nine_digits(nanos: u32) -> (u8, [u8; 8]) {
    let first = b'0' + (nanos / 100_000_000) as u8;
    let others = eight_digits(nanos % 100_000_000) | ASCII_ZEROS;
    (first, others.to_le_bytes())
}

/// The text of a dotted IPv4 address with `end` behind it. It is put together in two words: a table's
/// zeros behind an octet are where the next one goes.
#[inline(always)]
pub(crate) fn short_ipv4([a, b, c, d]: [u8; 4], end: u8) -> Short<16> {
    let octet = |octet: u8| u64::from(u32::from_le_bytes(OCTETS[usize::from(octet)]));
    let length = |octet: u8| u32::from(OCTET_LENGTHS[usize::from(octet)]) + 1;
    let front = octet(a) | octet(b) << ((8 * length(a)) & 63);
    let back = octet(c) | octet(d) << ((8 * length(c)) & 63);
    let (front_length, back_length) = (length(a) + length(b), length(c) + length(d));
    // The table's last dot goes.
    let dot = u64::from(b'.' ^ end) << ((8 * back_length - 8) & 63);
    let back = back ^ dot;
    let text = u128::from(front) | u128::from(back) << ((8 * front_length) & 127);
    Short {
        bytes: text.to_le_bytes(),
        len: (front_length + back_length) as usize,
    }
}

/// Seconds with nine decimals, up to 9; longer spans have none.
#[inline(always)]
pub(crate) fn short_duration(duration: Nanos) -> Option<Short<11>> {
    if duration.0 >= 10 * NANOS_PER_SECOND {
        return None;
    }
    let seconds = (duration.0 / NANOS_PER_SECOND) as u8;
    let (first, [a, b, c, d, e, f, g, h]) = nine_digits((duration.0 % NANOS_PER_SECOND) as u32);
    Some(Short {
        bytes: [b'0' + seconds, b'.', first, a, b, c, d, e, f, g, h],
        len: 11,
    })
}

/// Appends a whole number.
#[inline]
pub fn write_unsigned(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends `value` as 16 hexadecimal digits.
#[inline]
pub fn write_hex64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&hex64(value));
}

/// `value` as 16 hexadecimal digits.
#[inline(always)]
pub(crate) fn hex64(value: u64) -> [u8; 16] {
    let low = u128::from(hex32(value as u32)) << 64;
    (u128::from(hex32((value >> 32) as u32)) | low).to_le_bytes()
}

/// Eight hexadecimal digits, the first one in the lowest byte: the nibbles are spread over eight
/// bytes, then those above 9 are moved to the letters.
#[inline(always)]
fn hex32(value: u32) -> u64 {
    let spread = u64::from(value.swap_bytes());
    let spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    let spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (spread >> 4 | spread << 8) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = (nibbles + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    nibbles + ASCII_ZEROS + letters * u64::from(b'a' - b'0' - 10)
}

/// Appends bytes as hexadecimal digits, two each.
pub fn write_hex_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    data_encoding::HEXLOWER.encode_mut(bytes, &mut out[start..]);
}

/// Appends an address: dotted IPv4 if `version` is 4, otherwise IPv6 according to RFC 5952.
#[inline]
pub fn write_address(out: &mut Vec<u8>, address: Address, version: u8) {
    if version == 4 {
        let [.., a, b, c, d] = address.0;
        write_ipv4(out, [a, b, c, d]);
    } else {
        write_ipv6(out, address.0);
    }
}

/// Appends a dotted IPv4 address.
#[inline]
pub fn write_ipv4(out: &mut Vec<u8>, octets: [u8; 4]) {
    let text = short_ipv4(octets, 0);
    out.extend_from_slice(text.bytes.get(..text.len - 1).unwrap_or_default());
}

/// Appends an IPv6 address according to RFC 5952: lower case, no leading zeros, the longest run of two or more zero
/// groups (the first of equals) as `::`, and mapped IPv4 addresses (`::ffff:0:0/96`) with a dotted end.
pub fn write_ipv6(out: &mut Vec<u8>, octets: [u8; 16]) {
    if octets[..10] == [0; 10] && octets[10..12] == [0xff, 0xff] {
        out.extend_from_slice(b"::ffff:");
        let [.., a, b, c, d] = octets;
        return write_ipv4(out, [a, b, c, d]);
    }
    let mut groups = [0u16; 8];
    for (group, pair) in groups.iter_mut().zip(octets.chunks_exact(2)) {
        *group = u16::from(pair[0]) << 8 | u16::from(pair[1]);
    }
    let (skip_start, skip_len) = longest_zero_run(&groups);
    let mut at = 0;
    while at < 8 {
        if at == skip_start && skip_len > 1 {
            out.extend_from_slice(b"::");
            at += skip_len;
            continue;
        }
        if at > 0 && !(skip_len > 1 && at == skip_start + skip_len) {
            out.push(b':');
        }
        write_group(out, groups[at]);
        at += 1;
    }
}

/// Start and length of the longest run of zeros, the first of equals.
fn longest_zero_run(groups: &[u16; 8]) -> (usize, usize) {
    let (mut best_start, mut best_len, mut start) = (8, 0, 0);
    for (at, &group) in groups.iter().enumerate() {
        if group != 0 {
            start = at + 1;
        } else if at + 1 - start > best_len {
            best_start = start;
            best_len = at + 1 - start;
        }
    }
    (best_start, best_len)
}

#[inline]
fn write_group(out: &mut Vec<u8>, group: u16) {
    let digits = [
        HEX[usize::from(group >> 12)],
        HEX[usize::from(group >> 8 & 15)],
        HEX[usize::from(group >> 4 & 15)],
        HEX[usize::from(group & 15)],
    ];
    let leading = (group.leading_zeros() / 4).min(3) as usize;
    out.extend_from_slice(&digits[leading..]);
}

/// Appends seconds with nine decimals.
#[inline]
pub fn write_duration(out: &mut Vec<u8>, duration: Nanos) {
    write_unsigned(out, duration.0 / NANOS_PER_SECOND);
    let (first, others) = nine_digits((duration.0 % NANOS_PER_SECOND) as u32);
    out.extend_from_slice(&[b'.', first]);
    out.extend_from_slice(&others);
}

/// Writes RFC 3339 times in UTC with nine decimals. Computes date and hour only when the hour changes.
#[derive(Clone, Debug)]
pub struct TimeWriter {
    hour: u64,
    /// `YYYY-MM-DDTHH:` from the lowest byte on.
    date: u128,
}

impl Default for TimeWriter {
    fn default() -> TimeWriter {
        TimeWriter {
            hour: 0,
            date: u128::from_le_bytes(*b"1970-01-01T00:\0\0"),
        }
    }
}

impl TimeWriter {
    /// Appends `time`, for example `2026-11-21T00:09:38.123456789Z`.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>, time: Nanos) {
        out.extend_from_slice(&self.format(time));
    }

    /// The text of `time`.
    #[inline]
    pub fn format(&mut self, time: Nanos) -> [u8; 30] {
        let text = self.short(time, 0).bytes;
        *text.first_chunk().unwrap_or(&[0; 30])
    }

    /// The text of `time` with `end` behind it. It is put together in two words.
    #[inline(always)]
    pub(crate) fn short(&mut self, time: Nanos, end: u8) -> Short<32> {
        let hour = time.0 / NANOS_PER_HOUR;
        if hour != self.hour {
            self.date = date_and_hour(hour);
            self.hour = hour;
        }
        let in_hour = time.0 - hour * NANOS_PER_HOUR;
        let seconds = (in_hour / NANOS_PER_SECOND) as u32;
        let nanos = (in_hour - u64::from(seconds) * NANOS_PER_SECOND) as u32;
        let (minute, second) = (seconds / 60, seconds % 60);
        let (first, others) = nine_digits(nanos);
        let minute = u64::from(u16::from_le_bytes(pair(minute)));
        let second = u64::from(u16::from_le_bytes(pair(second)));
        let front = u64::from(b':') | second << 8 | u64::from(b'.') << 24 | u64::from(first) << 32;
        let back = u64::from_le_bytes(others);
        let zone = u64::from(b'Z') | u64::from(end) << 8;
        let words = [
            self.date as u64,
            (self.date >> 64) as u64 | minute << 48,
            front | back << 40,
            back >> 24 | zone << 40,
        ];
        let mut bytes = [0; 32];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        Short { bytes, len: 31 }
    }
}

/// `YYYY-MM-DDTHH:` from the lowest byte on.
#[cold]
#[inline(never)]
fn date_and_hour(hour: u64) -> u128 {
    let (year, month, day) = civil_date(hour / 24);
    let ([a, b], [c, d]) = (pair(year / 100), pair(year % 100));
    let ([e, f], [g, h]) = (pair(month), pair(day));
    let [i, j] = pair((hour % 24) as u32);
    u128::from_le_bytes([a, b, c, d, b'-', e, f, b'-', g, h, b'T', i, j, b':', 0, 0])
}

/// A point in time of any year from 0 to 9999, given in seconds since 1970, in the format of [`TimeWriter`].
pub fn date_text(seconds: i64) -> String {
    // The calendar repeats itself after 400 years.
    const ERA: i64 = 146_097 * 86_400;
    let eras = seconds.div_euclid(ERA);
    let within = seconds.rem_euclid(ERA) as u64;
    let (year, month, day) = civil_date(within / 86_400);
    let year = i64::from(year) + 400 * eras;
    let (hour, minute, second) = (within / 3600 % 24, within / 60 % 60, within % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000000000Z")
}

/// Year, month and day of the month, `day` days after 1970-01-01. The calendar is taken as one that
/// begins its years in March, so that the leap day is the last of the year (Howard Hinnant,
/// "chrono-compatible low-level date algorithms").
fn civil_date(day: u64) -> (u32, u32, u32) {
    let shifted = day + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year as u32, month as u32, day_of_month as u32)
}

/// The last two digits of `value`.
#[inline(always)]
fn pair(value: u32) -> [u8; 2] {
    PAIRS[(value % 100) as usize]
}

/// The letters of TCP flags in the order `SAPFRUEC` (SYN, ACK, PSH, FIN, RST, URG, ECE, CWR).
pub fn tcp_flag_letters(flags: TcpFlags) -> &'static str {
    let (letters, len) = tcp_flag_bytes(flags);
    core::str::from_utf8(letters.get(..len).unwrap_or_default()).unwrap_or("")
}

/// The same as bytes, and how many of them count.
#[inline(always)]
pub(crate) fn tcp_flag_bytes(flags: TcpFlags) -> (&'static [u8; 8], usize) {
    let (letters, len) = &FLAG_LETTERS[usize::from(flags.0)];
    (letters, usize::from(*len))
}

static FLAG_LETTERS: [([u8; 8], u8); 256] = {
    const ORDER: [(TcpFlags, u8); 8] = [
        (TcpFlags::SYN, b'S'),
        (TcpFlags::ACK, b'A'),
        (TcpFlags::PSH, b'P'),
        (TcpFlags::FIN, b'F'),
        (TcpFlags::RST, b'R'),
        (TcpFlags::URG, b'U'),
        (TcpFlags::ECE, b'E'),
        (TcpFlags::CWR, b'C'),
    ];
    let mut table = [([0; 8], 0); 256];
    let mut flags = 0;
    while flags < 256 {
        let mut n = 0;
        while n < 8 {
            if flags & ORDER[n].0.0 as usize != 0 {
                table[flags].0[table[flags].1 as usize] = ORDER[n].1;
                table[flags].1 += 1;
            }
            n += 1;
        }
        flags += 1;
    }
    table
};

/// The name of an IP protocol in records: `tcp`, `udp`, `icmp` (both versions, as in Zeek), or its number.
#[inline]
pub fn protocol_name(protocol: u8) -> &'static str {
    match protocol {
        6 => "tcp",
        17 => "udp",
        1 | 58 => "icmp",
        other => {
            let other = usize::from(other);
            let digits = OCTETS[other].get(..usize::from(OCTET_LENGTHS[other]));
            core::str::from_utf8(digits.unwrap_or_default()).unwrap_or("")
        }
    }
}

/// Whether it is printable ASCII without quotation mark and backslash. Looks at sixteen bytes at once.
#[inline]
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    // Without a branch, so that it becomes vector instructions.
    let all = |bytes: &[u8]| {
        bytes.iter().fold(true, |all, &byte| {
            all & (byte.wrapping_sub(b' ') < 0x5f) & (byte != b'"') & (byte != b'\\')
        })
    };
    let (blocks, rest) = bytes.as_chunks::<16>();
    match bytes.last_chunk::<16>() {
        // The last block may look at bytes a second time.
        Some(last) => blocks.iter().all(|block| all(block)) && all(last),
        None => all(rest),
    }
}

/// Text from outside, with invalid UTF-8 replaced by U+FFFD. The same as `String::from_utf8_lossy`, which is slow
/// for pure ASCII.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// Appends `value` as the contents of a JSON string: quotation marks and backslashes are escaped, and characters
/// that are not [`harmless`], so that lines on a terminal stay intact.
pub fn write_json_escaped(out: &mut Vec<u8>, value: &str) {
    let bytes = value.as_bytes();
    if is_plain(bytes) {
        return out.extend_from_slice(bytes);
    }
    let mut done = 0;
    for (at, character) in value.char_indices() {
        if !matches!(character, '"' | '\\') && is_harmless(character) {
            continue;
        }
        out.extend_from_slice(&bytes[done..at]);
        done = at + character.len_utf8();
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(b"\\u");
                    write_hex_bytes(out, &unit.to_be_bytes());
                }
            }
        }
    }
    out.extend_from_slice(&bytes[done..]);
}

/// Appends `value` for humans: at most four significant digits and a decimal prefix (`1.25M`).
pub fn write_scaled(out: &mut Vec<u8>, value: u64) {
    const PREFIXES: [&[u8]; 7] = [b"", b"k", b"M", b"G", b"T", b"P", b"E"];
    if value < 10_000 {
        return write_unsigned(out, value);
    }
    let (mut scaled, mut prefix) = (value as f64, 0);
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let text = if scaled < 9.995 {
        format!("{scaled:.2}")
    } else if scaled < 99.95 {
        format!("{scaled:.1}")
    } else {
        format!("{scaled:.0}")
    };
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(PREFIXES[prefix]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ipv4_of_every_width() {
        for octets in [
            [0, 0, 0, 0],
            [255, 255, 255, 255],
            [1, 22, 200, 9],
            [10, 9, 99, 100],
        ] {
            assert_eq!(
                text(|out| write_ipv4(out, octets)),
                core::net::Ipv4Addr::from(octets).to_string()
            );
        }
    }

    #[test]
    fn ipv6_by_rfc_5952() {
        // Section 4's recommendations, one by one.
        for (groups, expected) in [
            ([0x2001, 0xdb8, 0, 0, 0, 0, 2, 1], "2001:db8::2:1"),
            // 4.2.2: a single zero group is not shortened.
            ([0x2001, 0xdb8, 0, 1, 1, 1, 1, 1], "2001:db8:0:1:1:1:1:1"),
            // 4.2.3: the longest run, and the first of equals.
            ([0x2001, 0, 0, 1, 0, 0, 0, 1], "2001:0:0:1::1"),
            ([0x2001, 0xdb8, 0, 0, 1, 0, 0, 1], "2001:db8::1:0:0:1"),
            // 4.3: lower case.
            ([0xABCD, 0, 0, 0, 0, 0, 0, 0xEF], "abcd::ef"),
            ([0, 0, 0, 0, 0, 0, 0, 0], "::"),
            ([0, 0, 0, 0, 0, 0, 0, 1], "::1"),
            ([1, 0, 0, 0, 0, 0, 0, 0], "1::"),
            (
                [0xfe80, 0, 0, 0, 0x10, 0x200, 0x3000, 0],
                "fe80::10:200:3000:0",
            ),
            // Section 5: mapped addresses end dotted.
            ([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0221], "::ffff:192.0.2.33"),
            ([0, 0, 0, 0, 0, 0, 0xc000, 0x0221], "::c000:221"),
        ] {
            let octets = core::net::Ipv6Addr::from(groups).octets();
            assert_eq!(text(|out| write_ipv6(out, octets)), expected);
        }
    }

    #[test]
    fn ipv6_agrees_with_the_standard_library_on_every_pattern_of_zeros() {
        for pattern in 0..256u32 {
            let groups: [u16; 8] =
                core::array::from_fn(|n| if pattern >> n & 1 == 1 { 0x1a0 } else { 0 });
            let address = core::net::Ipv6Addr::from(groups);
            assert_eq!(
                text(|out| write_ipv6(out, address.octets())),
                address.to_string()
            );
        }
    }

    #[test]
    fn times_of_leap_years_and_centuries() {
        let mut writer = TimeWriter::default();
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000007Z"),
            (951_782_399, "2000-02-28T23:59:59.000000007Z"),
            (951_782_400, "2000-02-29T00:00:00.000000007Z"),
            (951_868_800, "2000-03-01T00:00:00.000000007Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000000007Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000007Z"),
            (4_107_456_000, "2100-02-28T00:00:00.000000007Z"),
            (0, "1970-01-01T00:00:00.000000007Z"),
        ] {
            let time = Nanos(seconds * NANOS_PER_SECOND + 7);
            assert_eq!(text(|out| writer.write(out, time)), expected);
        }
        let last = text(|out| writer.write(out, Nanos::MAX));
        assert_eq!(last, "2554-07-21T23:34:33.709551615Z");
    }

    #[test]
    fn dates_of_any_year() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.000000000Z"),
            (-631_152_000, "1950-01-01T00:00:00.000000000Z"),
            (-2_208_988_800, "1900-01-01T00:00:00.000000000Z"),
            (-62_167_219_200, "0000-01-01T00:00:00.000000000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
        ] {
            assert_eq!(date_text(seconds), expected);
        }
    }

    #[test]
    fn durations() {
        for (nanos, expected) in [
            (0, "0.000000000"),
            (1, "0.000000001"),
            (1_500_000_000, "1.500000000"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(text(|out| write_duration(out, Nanos(nanos))), expected);
        }
    }

    #[test]
    fn flags_and_protocols() {
        assert_eq!(tcp_flag_letters(TcpFlags(0)), "");
        assert_eq!(tcp_flag_letters(TcpFlags(0b0001_1011)), "SAPF");
        assert_eq!(tcp_flag_letters(TcpFlags(0xff)), "SAPFRUEC");
        let names: Vec<&str> = [6, 17, 1, 58, 2, 47, 132].map(protocol_name).to_vec();
        assert_eq!(names, ["tcp", "udp", "icmp", "icmp", "2", "47", "132"]);
    }

    #[test]
    fn json_escapes() {
        let escaped = text(|out| write_json_escaped(out, "a\"b\\c\n\u{1}\u{7f}é"));
        assert_eq!(escaped, "a\\\"b\\\\c\\n\\u0001\\u007fé");
        let escaped = text(|out| write_json_escaped(out, "\u{9b}31m\u{202e}x\u{fffd}"));
        assert_eq!(escaped, "\\u009b31m\\u202ex\u{fffd}");
    }

    #[test]
    fn scaled_numbers() {
        for (value, expected) in [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10.0k"),
            (99_949, "99.9k"),
            (99_950, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (1_250_000, "1.25M"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(text(|out| write_scaled(out, value)), expected);
        }
    }

    #[test]
    fn short_texts_agree_with_the_standard_library() {
        let edges = (0..20).flat_map(|n| [10u64.pow(n) - 1, 10u64.pow(n), 10u64.pow(n) + 1]);
        for value in edges.chain((0..2_000_000).map(|n| n * 57)) {
            let expected = value.to_string();
            match short_unsigned(value) {
                Some(short) => assert_eq!(&short.bytes[..short.len], expected.as_bytes()),
                None => assert!(expected.len() > 8),
            }
            assert_eq!(hex64(value), format!("{value:016x}").as_bytes());
            if let Some(short) = short_duration(Nanos(value.wrapping_mul(99_991))) {
                let mut long = Vec::new();
                write_duration(&mut long, Nanos(value.wrapping_mul(99_991)));
                assert_eq!(&short.bytes[..short.len], long);
            }
        }
    }

    #[test]
    fn hexadecimal() {
        assert_eq!(text(|out| write_hex64(out, 0xfeed)), "000000000000feed");
        assert_eq!(text(|out| write_hex_bytes(out, &[0, 0xab])), "00ab");
    }

    #[test]
    fn commands_to_terminals_are_replaced() {
        for character in ['\u{1b}', '\n', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}'] {
            assert_eq!(harmless(character), '\u{fffd}');
        }
        for character in ['a', ' ', '\u{a0}', '\u{e9}', '\u{5d0}', '\u{1f468}'] {
            assert_eq!(harmless(character), character);
        }
    }

    /// Of all of Unicode, in escapes that say the same.
    #[test]
    fn what_cannot_be_seen_or_ends_a_line_is_escaped() {
        let mut found = 0;
        for character in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            if harmless(character) == character {
                continue;
            }
            found += 1;
            let text = character.to_string();
            let mut json = b"\"".to_vec();
            write_json_escaped(&mut json, &text);
            json.push(b'"');
            assert!(json.is_ascii());
            let read: String = serde_json::from_slice(&json).unwrap();
            assert_eq!(read, text);
            let written = serde_json::to_string(&text).unwrap();
            let shown = harmless_json(&written);
            assert!(shown.is_ascii(), "{character:?}");
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }
        // As many as Unicode 16 has of the categories Cc, Cf, Zl and Zp.
        assert_eq!(found, 65 + 170 + 1 + 1);
        assert_eq!(harmless_lines("a\tb\u{2028}\n"), "a\tb\u{fffd}\n");
        assert_eq!(harmless_json("{\n  \"a\": 1\n}"), "{\n  \"a\": 1\n}");
    }
}
