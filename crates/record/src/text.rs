//! Appending numbers, addresses and times as text, without allocation and without `fmt`.

use flowgauge_wire::{Address, Nanos, TcpFlags};

/// `00` to `99`.
static PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

/// Decimal text of every byte: up to three digits, and how many.
static OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[0; 4]; 256];
    let mut n = 0;
    while n < 256 {
        octets[n] = if n >= 100 {
            [
                b'0' + (n / 100) as u8,
                b'0' + (n / 10 % 10) as u8,
                b'0' + (n % 10) as u8,
                3,
            ]
        } else if n >= 10 {
            [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8, 0, 2]
        } else {
            [b'0' + n as u8, 0, 0, 1]
        };
        n += 1;
    }
    octets
};

const HEX: &[u8; 16] = b"0123456789abcdef";

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// Appends a whole number.
#[inline]
pub fn write_unsigned(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends `value` as 16 hexadecimal digits.
#[inline]
pub fn write_hex64(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 16];
    let mut rest = value;
    for digit in digits.iter_mut().rev() {
        *digit = HEX[(rest & 15) as usize];
        rest >>= 4;
    }
    out.extend_from_slice(&digits);
}

/// Appends bytes as hexadecimal digits, two each.
pub fn write_hex_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Appends an address: dotted IPv4 when `version` is 4, otherwise IPv6 as RFC 5952 wants it.
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
    let mut text = [0u8; 16];
    let mut len = 0;
    for octet in octets {
        let digits = OCTETS[usize::from(octet)];
        // Four bytes are copied whatever the length: the next octet overwrites what is too many.
        text[len] = digits[0];
        text[len + 1] = digits[1];
        text[len + 2] = digits[2];
        len += usize::from(digits[3]);
        text[len.min(15)] = b'.';
        len += 1;
    }
    out.extend_from_slice(&text[..len - 1]);
}

/// Appends an IPv6 address by RFC 5952: lower case, no leading zeros, the longest run of two or
/// more zero groups (the first of equals) as `::`, and mapped IPv4 addresses (`::ffff:0:0/96`)
/// with their dotted end.
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
    let mut decimals = [b'.'; 10];
    put_nine(&mut decimals, 1, (duration.0 % NANOS_PER_SECOND) as u32);
    out.extend_from_slice(&decimals);
}

/// Writes RFC 3339 times in UTC with nine decimals. Computes a date once per day of records.
#[derive(Clone, Debug)]
pub struct TimeWriter {
    day: u64,
    text: [u8; 30],
}

impl Default for TimeWriter {
    fn default() -> TimeWriter {
        TimeWriter {
            day: 0,
            text: *b"1970-01-01T00:00:00.000000000Z",
        }
    }
}

impl TimeWriter {
    /// Appends `time`, for example `2026-11-21T00:09:38.123456789Z`.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>, time: Nanos) {
        out.extend_from_slice(self.format(time));
    }

    /// The text of `time`.
    #[inline]
    pub fn format(&mut self, time: Nanos) -> &[u8; 30] {
        let seconds = time.0 / NANOS_PER_SECOND;
        let day = seconds / SECONDS_PER_DAY;
        if day != self.day {
            self.set_day(day);
        }
        let second_of_day = (seconds % SECONDS_PER_DAY) as u32;
        put_two(&mut self.text, 11, second_of_day / 3600);
        put_two(&mut self.text, 14, second_of_day / 60 % 60);
        put_two(&mut self.text, 17, second_of_day % 60);
        put_nine(&mut self.text, 20, (time.0 % NANOS_PER_SECOND) as u32);
        &self.text
    }

    #[cold]
    fn set_day(&mut self, day: u64) {
        let (year, month, day_of_month) = civil_date(day);
        put_two(&mut self.text, 0, year / 100);
        put_two(&mut self.text, 2, year % 100);
        put_two(&mut self.text, 5, month);
        put_two(&mut self.text, 8, day_of_month);
        self.day = day;
    }
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

#[inline]
fn put_two(text: &mut [u8], at: usize, value: u32) {
    let pair = 2 * (value % 100) as usize;
    text[at] = PAIRS[pair];
    text[at + 1] = PAIRS[pair + 1];
}

#[inline]
fn put_nine(text: &mut [u8], at: usize, value: u32) {
    put_two(text, at, value / 10_000_000);
    put_two(text, at + 2, value / 100_000);
    put_two(text, at + 4, value / 1_000);
    put_two(text, at + 6, value / 10);
    text[at + 8] = b'0' + (value % 10) as u8;
}

/// The letters of TCP flags in the order `SAPFRUEC` (SYN, ACK, PSH, FIN, RST, URG, ECE, CWR).
pub fn tcp_flag_letters(flags: TcpFlags) -> &'static str {
    let (letters, len) = &FLAG_LETTERS[usize::from(flags.0)];
    core::str::from_utf8(&letters[..usize::from(*len)]).unwrap_or("")
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

/// The name of an IP protocol in records: `tcp`, `udp`, `icmp` (both versions, as Zeek has it), or
/// its number.
#[inline]
pub fn protocol_name(protocol: u8) -> &'static str {
    match protocol {
        6 => "tcp",
        17 => "udp",
        1 | 58 => "icmp",
        other => {
            let [digits @ .., len] = &OCTETS[usize::from(other)];
            core::str::from_utf8(&digits[..usize::from(*len)]).unwrap_or("")
        }
    }
}

/// Appends `value` as the inside of a JSON string: quotation mark, backslash and control
/// characters escaped.
pub fn write_json_escaped(out: &mut Vec<u8>, value: &str) {
    let bytes = value.as_bytes();
    let mut done = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[done..at]);
        done = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                write_hex_bytes(out, &[byte]);
            }
        }
    }
    out.extend_from_slice(&bytes[done..]);
}

/// Appends `value` for people: at most four significant digits and a decimal prefix (`1.25M`).
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
        assert_eq!(escaped, "a\\\"b\\\\c\\n\\u0001\u{7f}é");
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
    fn hexadecimal() {
        assert_eq!(text(|out| write_hex64(out, 0xfeed)), "000000000000feed");
        assert_eq!(text(|out| write_hex_bytes(out, &[0, 0xab])), "00ab");
    }
}
