//! Names of the numbers in messages (IANA, "Domain Name System Parameters").

use core::fmt::Write as _;

/// Types of records that are used here.
pub mod kind {
    #![allow(missing_docs)] // their names are what they are
    pub const SOA: u16 = 6;
    pub const NB: u16 = 32;
    pub const NBSTAT: u16 = 33;
    pub const OPT: u16 = 41;
}

const TYPES: &[(u16, &str)] = &[
    (1, "A"),
    (2, "NS"),
    (3, "MD"),
    (4, "MF"),
    (5, "CNAME"),
    (6, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (12, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (19, "X25"),
    (20, "ISDN"),
    (21, "RT"),
    (22, "NSAP"),
    (23, "NSAP-PTR"),
    (24, "SIG"),
    (25, "KEY"),
    (26, "PX"),
    (27, "GPOS"),
    (28, "AAAA"),
    (29, "LOC"),
    (30, "NXT"),
    (31, "EID"),
    (32, "NIMLOC"),
    (33, "SRV"),
    (34, "ATMA"),
    (35, "NAPTR"),
    (36, "KX"),
    (37, "CERT"),
    (38, "A6"),
    (39, "DNAME"),
    (40, "SINK"),
    (41, "OPT"),
    (42, "APL"),
    (43, "DS"),
    (44, "SSHFP"),
    (45, "IPSECKEY"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (49, "DHCID"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (53, "SMIMEA"),
    (55, "HIP"),
    (56, "NINFO"),
    (57, "RKEY"),
    (58, "TALINK"),
    (59, "CDS"),
    (60, "CDNSKEY"),
    (61, "OPENPGPKEY"),
    (62, "CSYNC"),
    (63, "ZONEMD"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (66, "DSYNC"),
    (99, "SPF"),
    (100, "UINFO"),
    (101, "UID"),
    (102, "GID"),
    (103, "UNSPEC"),
    (104, "NID"),
    (105, "L32"),
    (106, "L64"),
    (107, "LP"),
    (108, "EUI48"),
    (109, "EUI64"),
    (128, "NXNAME"),
    (249, "TKEY"),
    (250, "TSIG"),
    (251, "IXFR"),
    (252, "AXFR"),
    (253, "MAILB"),
    (254, "MAILA"),
    (255, "ANY"),
    (256, "URI"),
    (257, "CAA"),
    (258, "AVC"),
    (259, "DOA"),
    (260, "AMTRELAY"),
    (261, "RESINFO"),
    (262, "WALLET"),
    (32768, "TA"),
    (32769, "DLV"),
];

/// The name of a type of record: `A`, or `TYPE65280` (RFC 3597) where it has none.
pub fn write_type(kind: u16, out: &mut String) {
    let place = TYPES.binary_search_by_key(&kind, |it| it.0);
    match place.ok().and_then(|place| TYPES.get(place)) {
        Some((_, name)) => out.push_str(name),
        None => number("TYPE", kind, out),
    }
}

/// The number of a type of record, by the name that [`write_type`] gives.
pub fn type_number(name: &str) -> Option<u16> {
    let known = TYPES.iter().find(|(_, known)| *known == name);
    known
        .map(|it| it.0)
        .or_else(|| name.strip_prefix("TYPE")?.parse().ok())
}

/// The number of a class, by the name that [`write_class`] gives.
pub fn class_number(name: &str) -> Option<u16> {
    Some(match name {
        "IN" => 1,
        "CS" => 2,
        "CH" => 3,
        "HS" => 4,
        "NONE" => 254,
        "ANY" => 255,
        _ => name.strip_prefix("CLASS")?.parse().ok()?,
    })
}

/// The number of a response code, by the name that [`write_rcode`] gives.
pub fn rcode_number(name: &str) -> Option<u16> {
    let place = |names: &[&str]| names.iter().position(|it| *it == name);
    let number = place(&RCODES).or_else(|| place(&EXTENDED).map(|place| place + 16));
    match number {
        Some(number) => u16::try_from(number).ok(),
        None => name.strip_prefix("RCODE")?.parse().ok(),
    }
}

/// The number of a kind of request, by the names that [`write_opcode`] and [`write_netbios_opcode`] give.
pub fn opcode_number(name: &str) -> Option<u16> {
    Some(match name {
        "query" => 0,
        "iquery" => 1,
        "status" => 2,
        "notify" => 4,
        "update" | "registration" => 5,
        "dso" | "release" => 6,
        "wack" => 7,
        "refresh" => 8,
        _ => name.strip_prefix("opcode")?.parse().ok()?,
    })
}

/// The name of a class: `IN`, or `CLASS32` (RFC 3597).
pub fn write_class(class: u16, out: &mut String) {
    match class {
        1 => out.push_str("IN"),
        2 => out.push_str("CS"),
        3 => out.push_str("CH"),
        4 => out.push_str("HS"),
        254 => out.push_str("NONE"),
        255 => out.push_str("ANY"),
        _ => number("CLASS", class, out),
    }
}

/// Response codes from 0.
const RCODES: [&str; 12] = [
    "NOERROR",
    "FORMERR",
    "SERVFAIL",
    "NXDOMAIN",
    "NOTIMP",
    "REFUSED",
    "YXDOMAIN",
    "YXRRSET",
    "NXRRSET",
    "NOTAUTH",
    "NOTZONE",
    "DSOTYPENI",
];

/// Those from 16.
const EXTENDED: [&str; 8] = [
    "BADVERS",
    "BADKEY",
    "BADTIME",
    "BADMODE",
    "BADNAME",
    "BADALG",
    "BADTRUNC",
    "BADCOOKIE",
];

/// The name of a response code, EDNS's upper bits included: `NXDOMAIN`, or `RCODE12`.
pub fn write_rcode(rcode: u16, out: &mut String) {
    let index = usize::from(rcode);
    let name = match index.checked_sub(16) {
        None => RCODES.get(index),
        Some(index) => EXTENDED.get(index),
    };
    match name {
        Some(name) => out.push_str(name),
        None => number("RCODE", rcode, out),
    }
}

/// The name of a kind of request: `query`, or `opcode7`.
pub fn write_opcode(opcode: u8, out: &mut String) {
    match opcode {
        0 => out.push_str("query"),
        1 => out.push_str("iquery"),
        2 => out.push_str("status"),
        4 => out.push_str("notify"),
        5 => out.push_str("update"),
        6 => out.push_str("dso"),
        _ => number("opcode", u16::from(opcode), out),
    }
}

/// The same of a message of NetBIOS (RFC 1002, section 4.2.1.1).
pub fn write_netbios_opcode(opcode: u8, out: &mut String) {
    match opcode {
        0 => out.push_str("query"),
        5 => out.push_str("registration"),
        6 => out.push_str("release"),
        7 => out.push_str("wack"),
        8 | 9 => out.push_str("refresh"),
        _ => number("opcode", u16::from(opcode), out),
    }
}

fn number(before: &str, number: u16, out: &mut String) {
    // Into a string nothing fails.
    let _ = write!(out, "{before}{number}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names_or_say_that_they_have_none() {
        assert!(TYPES.is_sorted_by_key(|it| it.0));
        let text = |write: &dyn Fn(&mut String)| {
            let mut out = String::new();
            write(&mut out);
            out
        };
        assert_eq!(text(&|out| write_type(65, out)), "HTTPS");
        assert_eq!(text(&|out| write_type(54, out)), "TYPE54");
        assert_eq!(text(&|out| write_class(255, out)), "ANY");
        assert_eq!(text(&|out| write_class(0, out)), "CLASS0");
        assert_eq!(text(&|out| write_rcode(3, out)), "NXDOMAIN");
        assert_eq!(text(&|out| write_rcode(12, out)), "RCODE12");
        assert_eq!(text(&|out| write_rcode(16, out)), "BADVERS");
        assert_eq!(text(&|out| write_rcode(4095, out)), "RCODE4095");
        for number in (0..=300).chain([32_768, 65_280]) {
            assert_eq!(
                type_number(&text(&|out| write_type(number, out))),
                Some(number)
            );
            assert_eq!(
                class_number(&text(&|out| write_class(number, out))),
                Some(number)
            );
            assert_eq!(
                rcode_number(&text(&|out| write_rcode(number, out))),
                Some(number)
            );
        }
        for number in 0..16 {
            assert_eq!(
                opcode_number(&text(&|out| write_opcode(number, out))),
                Some(u16::from(number))
            );
        }
        assert_eq!(opcode_number("registration"), Some(5));
        assert_eq!(type_number("none"), None);
        assert_eq!(text(&|out| write_opcode(5, out)), "update");
        assert_eq!(text(&|out| write_opcode(3, out)), "opcode3");
        assert_eq!(text(&|out| write_netbios_opcode(8, out)), "refresh");
    }
}
