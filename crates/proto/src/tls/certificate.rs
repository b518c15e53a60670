//! Certificates (RFC 5280), read by `x509-parser`.

use core::fmt::Write;
use core::net::{Ipv4Addr, Ipv6Addr};

use data_encoding::{HEXLOWER, HEXUPPER};
use ring::digest::{SHA256, digest};
use sha1::{Digest, Sha1};
use x509_parser::asn1_rs::{Any, Oid, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::objects::{oid_registry, oid2abbrev, oid2sn};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::X509Name;

/// Bytes of any one text of a certificate that are kept.
const MAX_TEXT: usize = 16 << 10;

/// SHA-256 of a certificate as it was sent, in hexadecimal.
pub fn sha256(der: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, der).as_ref())
}

/// SHA-1 of a certificate as it was sent, in hexadecimal.
pub fn sha1(der: &[u8]) -> String {
    HEXLOWER.encode(&Sha1::digest(der))
}

/// What a certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// 1 to 3.
    pub version: u32,
    /// Serial number, in hexadecimal.
    pub serial: String,
    /// Whom it is of, as `C=US, O=Example, CN=www.example.com`.
    pub subject: String,
    /// Who says so.
    pub issuer: String,
    /// Valid from: seconds since 1970.
    pub not_before: i64,
    /// Valid until: seconds since 1970.
    pub not_after: i64,
    /// Algorithm of the key, as `rsaEncryption`.
    pub key_algorithm: String,
    /// Algorithm of the signature, as `sha256WithRSAEncryption`.
    pub signature_algorithm: String,
    /// `rsa`, `dsa`, `ecdsa`; empty of others.
    pub key_type: &'static str,
    /// Length of the key in bits, if known.
    pub key_bits: Option<u32>,
    /// Exponent of an RSA key.
    pub exponent: Option<u64>,
    /// Curve of a key of ECDSA.
    pub curve: Option<String>,
    /// Host names it is for.
    pub dns_names: Vec<String>,
    /// Addresses it is for.
    pub ip_addresses: Vec<String>,
    /// Mail addresses it is for.
    pub emails: Vec<String>,
    /// URIs it is for.
    pub uris: Vec<String>,
    /// Whether it is one of an authority, if it says.
    pub is_authority: Option<bool>,
    /// How many authorities may stand below, if it says.
    pub path_length: Option<u32>,
    /// A name has more than 16 KiB, the rest of which is left out.
    pub is_cut: bool,
}

impl Certificate {
    /// Reads one. `None`: it is none.
    pub fn read(der: &[u8]) -> Option<Certificate> {
        let (_, x509) = X509Certificate::from_der(der).ok()?;
        let validity = x509.validity();
        let key = x509.public_key();
        let mut certificate = Certificate {
            version: x509.version().0 + 1,
            serial: HEXUPPER.encode(x509.raw_serial()),
            subject: String::new(),
            issuer: String::new(),
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            key_algorithm: object(&key.algorithm.algorithm),
            signature_algorithm: object(&x509.signature_algorithm.algorithm),
            ..Certificate::default()
        };
        let (subject, issuer) = (name(x509.subject()), name(x509.issuer()));
        certificate.is_cut = subject.1 || issuer.1;
        (certificate.subject, certificate.issuer) = (subject.0, issuer.0);
        match key.parsed() {
            Ok(PublicKey::RSA(rsa)) => {
                certificate.key_type = "rsa";
                let modulus = rsa.modulus.iter().skip_while(|&&byte| byte == 0);
                let modulus: Vec<&u8> = modulus.collect();
                let zeros = modulus.first().map_or(0, |byte| byte.leading_zeros());
                certificate.key_bits = Some(8 * modulus.len() as u32 - zeros);
                certificate.exponent = rsa.try_exponent().ok();
            }
            Ok(PublicKey::DSA(_)) => certificate.key_type = "dsa",
            Ok(PublicKey::EC(_)) => {
                certificate.key_type = "ecdsa";
                let parameters = key.algorithm.parameters.as_ref();
                let curve = parameters.and_then(|any| any.as_oid().ok());
                certificate.curve = curve.map(|it| object(&it));
                certificate.key_bits = certificate.curve.as_deref().and_then(curve_bits);
            }
            _ => {}
        }
        for extension in x509.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::BasicConstraints(constraints) => {
                    certificate.is_authority = Some(constraints.ca);
                    certificate.path_length = constraints.path_len_constraint;
                }
                ParsedExtension::SubjectAlternativeName(names) => {
                    for name in &names.general_names {
                        certificate.alternative(name);
                    }
                }
                _ => {}
            }
        }
        Some(certificate)
    }

    fn alternative(&mut self, name: &GeneralName<'_>) {
        match *name {
            GeneralName::DNSName(name) => self.dns_names.push(name.to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push(name.to_owned()),
            GeneralName::URI(name) => self.uris.push(name.to_owned()),
            GeneralName::IPAddress(bytes) => {
                if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
                    self.ip_addresses.push(Ipv4Addr::from(bytes).to_string());
                } else if let Ok(bytes) = <[u8; 16]>::try_from(bytes) {
                    self.ip_addresses.push(Ipv6Addr::from(bytes).to_string());
                }
            }
            _ => {}
        }
    }

    /// All names and addresses it is for.
    pub fn alternatives(&self) -> impl Iterator<Item = &String> {
        let hosts = self.dns_names.iter().chain(&self.ip_addresses);
        hosts.chain(&self.emails).chain(&self.uris)
    }
}

/// The name of an object, or its numbers.
fn object(oid: &Oid<'_>) -> String {
    match oid2sn(oid, oid_registry()) {
        Ok(name) => name.to_owned(),
        Err(_) => oid.to_id_string(),
    }
}

/// Bits of a curve, by its name.
fn curve_bits(name: &str) -> Option<u32> {
    let digits = name.trim_start_matches(|char: char| !char.is_ascii_digit());
    let end = digits.find(|char: char| !char.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// A name, its parts in order, and whether some were left out.
fn name(name: &X509Name<'_>) -> (String, bool) {
    let mut text = String::new();
    for (index, part) in name.iter_rdn().enumerate() {
        for (place, attribute) in part.iter().enumerate() {
            if text.len() > MAX_TEXT {
                return (text, true);
            }
            text.push_str(match (index, place) {
                (0, 0) => "",
                (_, 0) => ", ",
                _ => " + ",
            });
            let oid = attribute.attr_type();
            match oid2abbrev(oid, oid_registry()) {
                Ok(name) => text.push_str(name),
                Err(_) => text.push_str(&oid.to_id_string()),
            }
            text.push('=');
            value(&mut text, attribute.attr_value());
        }
    }
    (text, false)
}

/// Text in any of the encodings of X.509; of what is no text, hexadecimal digits.
fn value(text: &mut String, value: &Any<'_>) {
    let bytes = value.as_bytes();
    match value.tag() {
        Tag::NumericString | Tag::PrintableString | Tag::Utf8String | Tag::Ia5String => {
            text.push_str(&String::from_utf8_lossy(bytes));
        }
        // In practice Latin-1.
        Tag::T61String | Tag::VisibleString | Tag::GeneralString => {
            text.extend(bytes.iter().map(|&byte| char::from(byte)));
        }
        Tag::BmpString => {
            let units = crate::cursor::numbers(bytes);
            text.extend(
                char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)),
            );
        }
        _ => {
            let _ = write!(text, "#{}", HEXLOWER.encode(bytes));
        }
    }
}
