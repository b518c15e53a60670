//! Fingerprints of hellos: [JA3 and JA3S](https://github.com/salesforce/ja3), and JA4 of a client
//! ([its description](https://github.com/FoxIO-LLC/ja4/blob/main/technical_details/JA4.md)). The other
//! fingerprints of that family are under another licence, and absent.

use super::hello::{ClientHello, ServerHello, extension, is_grease};
use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use ring::digest::{SHA256, digest};

/// Over what a hello came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TLS.
    Tcp,
    /// DTLS.
    Datagram,
    /// QUIC.
    Quic,
}

/// What JA3 is a hash of: numbers that the client offers, without those that mean nothing.
pub fn ja3_text(hello: &ClientHello<'_>) -> String {
    let known = |number: &u16| !is_grease(*number);
    let mut text = hello.legacy_version.to_string();
    list(&mut text, hello.ciphers().filter(known));
    list(
        &mut text,
        hello.extensions.map(|it| it.number).filter(known),
    );
    list(&mut text, hello.groups().filter(known));
    list(
        &mut text,
        hello.point_formats().iter().map(|&it| u16::from(it)),
    );
    text
}

/// JA3: MD5 of [`ja3_text`], in hexadecimal.
pub fn ja3(hello: &ClientHello<'_>) -> String {
    ja3_of(&ja3_text(hello))
}

/// JA3 or JA3S of its text.
pub fn ja3_of(text: &str) -> String {
    HEXLOWER.encode(&Md5::digest(text))
}

/// What JA3S is a hash of.
pub fn ja3s_text(hello: &ServerHello<'_>) -> String {
    let mut text = hello.legacy_version.to_string();
    list(&mut text, [hello.cipher].into_iter());
    list(&mut text, hello.extensions.map(|it| it.number));
    text
}

/// JA3S: MD5 of [`ja3s_text`], in hexadecimal.
pub fn ja3s(hello: &ServerHello<'_>) -> String {
    ja3_of(&ja3s_text(hello))
}

/// Appends a comma, and numbers with hyphens between them.
fn list(text: &mut String, numbers: impl Iterator<Item = u16>) {
    text.push(',');
    let mut decimal = itoa::Buffer::new();
    for (index, number) in numbers.enumerate() {
        text.push_str(if index > 0 { "-" } else { "" });
        text.push_str(decimal.format(number));
    }
}

/// JA4: 36 characters, as `t13d1516h2_8daaf6152771_e5627efa2ab1`.
pub fn ja4(hello: &ClientHello<'_>, carrier: Carrier) -> String {
    let known = |number: &u16| !is_grease(*number);
    let mut ciphers: Vec<u16> = hello.ciphers().filter(known).collect();
    let mut extensions: Vec<u16> = hello.extensions.map(|it| it.number).filter(known).collect();
    let first = match carrier {
        Carrier::Tcp => 't',
        Carrier::Datagram => 'd',
        Carrier::Quic => 'q',
    };
    let version = match hello.version() {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        0xfeff => "d1",
        0xfefd => "d2",
        0xfefc => "d3",
        _ => "00",
    };
    let has_name = extensions.contains(&extension::SERVER_NAME);
    let name = if has_name { 'd' } else { 'i' };
    let count = |list: &[u16]| list.len().min(99);
    let protocol = protocol(hello.protocols().next().unwrap_or_default());
    let mut text = format!(
        "{first}{version}{name}{:02}{:02}{}{}_",
        count(&ciphers),
        count(&extensions),
        protocol[0],
        protocol[1],
    );
    ciphers.sort_unstable();
    extensions.sort_unstable();
    extensions.retain(|&it| !matches!(it, extension::SERVER_NAME | extension::ALPN));
    short_hash(&mut text, &sixteens(ciphers.into_iter()));
    text.push('_');
    let mut rest = sixteens(extensions.into_iter());
    let signatures = sixteens(hello.signatures().filter(known));
    if !rest.is_empty() && !signatures.is_empty() {
        rest.push(b'_');
        rest.extend_from_slice(&signatures);
    }
    short_hash(&mut text, &rest);
    text
}

/// First and last character of a protocol's name; of one that has others there than letters and
/// digits, those of its bytes in hexadecimal.
fn protocol(name: &[u8]) -> [char; 2] {
    let (Some(&first), Some(&last)) = (name.first(), name.last()) else {
        return ['0', '0'];
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(first), char::from(last)];
    }
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    [digit(first >> 4), digit(last & 15)]
}

/// Numbers of four hexadecimal digits, with commas between them.
fn sixteens(numbers: impl Iterator<Item = u16>) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Vec::with_capacity(5 * 32);
    for number in numbers {
        let [a, b, c, d] = [12, 8, 4, 0].map(|place| DIGITS[usize::from(number >> place & 15)]);
        text.extend_from_slice(&[a, b, c, d, b',']);
    }
    text.pop();
    text
}

/// Appends the first twelve digits of a SHA-256; of nothing, zeros.
fn short_hash(text: &mut String, of: &[u8]) {
    match of {
        [] => text.push_str("000000000000"),
        of => HEXLOWER.encode_append(&digest(&SHA256, of).as_ref()[..6], text),
    }
}
