//! What is read of a certificate beside what TLS checks: names and validity.

use core::net::{Ipv4Addr, Ipv6Addr};

use data_encoding::HEXLOWER;
use rustls::pki_types::{CertificateDer, DnsName};
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// From when to when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before.
    pub from: i64,
    /// Not after.
    pub until: i64,
}

/// The DNS names and addresses of a certificate, names first; the first name is its holder's. An authority has none.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, read) = parse_x509_certificate(certificate).ok()?;
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let subject = read.subject_alternative_name().ok()?;
    for name in subject.map_or(&[][..], |subject| &subject.value.general_names) {
        match name {
            GeneralName::DNSName(name) if DnsName::try_from(*name).is_ok() => {
                names.push((*name).to_owned())
            }
            GeneralName::IPAddress(address) => match (address.first_chunk(), address.len()) {
                (Some(four), 4) => addresses.push(Ipv4Addr::from(*four).to_string()),
                (_, 16) => addresses.extend(
                    address
                        .first_chunk()
                        .map(|it| Ipv6Addr::from(*it).to_string()),
                ),
                _ => {}
            },
            _ => {}
        }
    }
    names.append(&mut addresses);
    Some(names)
}

/// The holder's name.
pub(crate) fn holder(certificate: &CertificateDer<'_>) -> Option<String> {
    names(certificate)?.into_iter().next()
}

/// SHA-256 of its SubjectPublicKeyInfo (RFC 5280, 4.1.2.7), in hexadecimal: certificates of the same key have the same.
pub(crate) fn key(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, read) = parse_x509_certificate(certificate).ok()?;
    Some(HEXLOWER.encode(&Sha256::digest(read.public_key().raw)))
}

/// When it is valid (RFC 5280, 4.1.2.5).
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let (_, read) = parse_x509_certificate(certificate).ok()?;
    Some(Validity {
        from: read.validity().not_before.timestamp(),
        until: read.validity().not_after.timestamp(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stands_there_it_ends() {
        for bytes in [
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff][..],
            &[0x30, 0x80],
            &[0x30],
        ] {
            assert_eq!(names(&CertificateDer::from(bytes)), None);
            assert_eq!(validity(&CertificateDer::from(bytes)), None);
            assert_eq!(key(&CertificateDer::from(bytes)), None);
        }
    }
}
