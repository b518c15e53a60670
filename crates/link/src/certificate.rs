//! What is read of a certificate beside what TLS checks: names and validity.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// From when to when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: i64,
    /// Not after.
    pub until: i64,
}

/// The DNS names and addresses of a certificate; the first name is its holder's.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Option<Vec<String>> {
    let parsed = EndEntityCert::try_from(certificate);
    match parsed {
        Ok(parsed) => {
            let mut names: Vec<String> = parsed.valid_dns_names().map(str::to_owned).collect();
            names.extend(addresses(certificate));
            Some(names)
        }
        // An authority is not the certificate of anybody.
        Err(webpki::Error::CaUsedAsEndEntity) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// The holder's name.
pub(crate) fn holder(certificate: &CertificateDer<'_>) -> Option<String> {
    names(certificate)?.into_iter().next()
}

/// Reads `Certificate.tbsCertificate.validity` (RFC 5280, 4.1).
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let (_, outer, _) = element(certificate)?;
    let (_, body, _) = element(outer)?;
    let mut rest = body;
    let mut sequences = 0;
    loop {
        let (tag, inside, after) = element(rest)?;
        rest = after;
        // Signature algorithm, issuer, validity.
        if tag == SEQUENCE {
            sequences += 1;
        }
        if sequences == 3 {
            let (tag, from, after) = element(inside)?;
            let from = seconds(tag, from)?;
            let (tag, until, _) = element(after)?;
            return Some(Validity {
                from,
                until: seconds(tag, until)?,
            });
        }
    }
}

/// The addresses among the subject's alternative names.
fn addresses(certificate: &CertificateDer<'_>) -> Vec<String> {
    // id-ce-subjectAltName as an OBJECT IDENTIFIER; the value is an OCTET STRING with a SEQUENCE.
    const OID: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];
    let mut found = Vec::new();
    let Some(at) = certificate
        .windows(OID.len())
        .position(|window| window == OID)
    else {
        return found;
    };
    let value = certificate.get(at + OID.len()..).and_then(element);
    let names = value.and_then(|(_, inside, _)| element(inside));
    let mut rest = names.map_or(&[][..], |(_, inside, _)| inside);
    while let Some((tag, inside, after)) = element(rest) {
        if tag == IP_ADDRESS {
            if let Ok(four) = <[u8; 4]>::try_from(inside) {
                found.push(std::net::Ipv4Addr::from(four).to_string());
            } else if let Ok(sixteen) = <[u8; 16]>::try_from(inside) {
                found.push(std::net::Ipv6Addr::from(sixteen).to_string());
            }
        }
        rest = after;
    }
    found
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[7] iPAddress` of GeneralName.
const IP_ADDRESS: u8 = 0x87;

/// The element at the beginning: tag, content, what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            let length = digits
                .iter()
                .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            (length, rest)
        }
        _ => return None,
    };
    let (inside, after) = rest.split_at_checked(length)?;
    Some((tag, inside, after))
}

/// A time as seconds since 1970; certificates have them in UTC (RFC 5280, 4.1.2.5).
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let text = core::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.is_ascii() {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let mut fields = [0u8; 5];
    for (index, field) in fields.iter_mut().enumerate() {
        *field = rest.get(index * 2..index * 2 + 2)?.parse().ok()?;
    }
    let [month, day, hour, minute, second] = fields;
    let month = time::Month::try_from(month).ok()?;
    let date = time::Date::from_calendar_date(i32::try_from(year).ok()?, month, day).ok()?;
    let moment = date.with_hms(hour, minute, second).ok()?;
    Some(moment.assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates() {
        assert_eq!(seconds(UTC_TIME, b"700101000000Z"), Some(0));
        assert_eq!(seconds(UTC_TIME, b"261122012345Z"), Some(1_795_310_625));
        assert_eq!(
            seconds(GENERALIZED_TIME, b"20500101000000Z"),
            Some(2_524_608_000)
        );
        for bad in [
            &b""[..],
            b"Z",
            b"26112201234Z",
            b"261322012345Z",
            b"261122012345",
        ] {
            assert_eq!(seconds(UTC_TIME, bad), None);
        }
    }

    #[test]
    fn whatever_stands_there_it_ends() {
        for bytes in [
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff][..],
            &[0x30, 0x80],
            &[0x30],
        ] {
            assert_eq!(element(bytes), None);
            assert_eq!(validity(&CertificateDer::from(bytes)), None);
        }
    }
}
