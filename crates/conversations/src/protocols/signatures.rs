//! Protocols that are recognised and not read: signatures in what is sent first, then ports.

use super::{Seen, Transport};

/// A protocol's signature.
struct Signature {
    name: &'static str,
    transport: Transport,
    is: fn(&Seen<'_>) -> bool,
}

const fn tcp(name: &'static str, is: fn(&Seen<'_>) -> bool) -> Signature {
    Signature {
        name,
        transport: Transport::Tcp,
        is,
    }
}

const fn udp(name: &'static str, is: fn(&Seen<'_>) -> bool) -> Signature {
    Signature {
        name,
        transport: Transport::Udp,
        is,
    }
}

const fn both(name: &'static str, is: fn(&Seen<'_>) -> bool) -> Signature {
    Signature {
        name,
        transport: Transport::Both,
        is,
    }
}

/// The protocol that what was sent first has the signature of.
pub(super) fn by_content(seen: &Seen<'_>) -> Option<&'static str> {
    let of = ALL.iter().filter(|it| it.transport.has(seen.is_udp));
    of.into_iter().find(|it| (it.is)(seen)).map(|it| it.name)
}

/// The protocol that is usual on a server's port.
pub(super) fn by_port(protocol: u8, port: u16) -> Option<&'static str> {
    let is_udp = match protocol {
        6 => false,
        17 => true,
        _ => return None,
    };
    let of = PORTS.iter().filter(|(transport, ..)| transport.has(is_udp));
    let mut of = of.filter(|(_, ports, _)| ports.contains(&port));
    of.next().map(|(.., name)| *name)
}

/// Whether one of the two begins like this.
fn either(seen: &Seen<'_>, start: &[u8]) -> bool {
    seen.initiator.starts_with(start) || seen.responder.starts_with(start)
}

/// Whether one of the two is such.
fn any(seen: &Seen<'_>, is: impl Fn(&[u8]) -> bool) -> bool {
    is(seen.initiator) || is(seen.responder)
}

/// The first line.
fn line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let line = &bytes[..end.unwrap_or(bytes.len())];
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let part = bytes.get(at..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_be_bytes(*part)))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*part))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    be32(bytes, at).map(u32::swap_bytes)
}

/// Whether these are records of TLS, of a connection captured from within (RFC 8446, section 5.1).
fn are_records(bytes: &[u8]) -> bool {
    let record = |at: usize| {
        let [kind, 3, minor @ 0..=4] = *bytes.get(at..)?.first_chunk::<3>()? else {
            return None;
        };
        let len = be16(bytes, at + 3)?;
        let is_one = matches!(kind, 20..=23) && (1..=16_640).contains(&len);
        is_one.then_some((minor, at + 5 + len))
    };
    let Some((version, end)) = record(0) else {
        return false;
    };
    // The next one begins where it ends, unless more of it was sent than is kept.
    end >= bytes.len() || record(end).is_some_and(|(minor, _)| minor == version)
}

/// Sources: the RFCs and specifications of each protocol; for those without one what implementations send.
static ALL: &[Signature] = &[
    tcp("bittorrent", |it| either(it, b"\x13BitTorrent protocol")),
    udp("bittorrent", |it| {
        either(it, b"d1:ad2:id20:") || either(it, b"d1:rd2:id20:") || either(it, b"d1:eli20")
    }),
    tcp("tls", |it| any(it, are_records)),
    tcp("gnutella", |it| {
        either(it, b"GNUTELLA CONNECT/") || either(it, b"GNUTELLA/")
    }),
    tcp("direct_connect", |it| {
        either(it, b"$Lock ") || either(it, b"$MyNick ")
    }),
    tcp("edonkey", |it| {
        any(it, |bytes| {
            matches!(bytes.first(), Some(0xe3 | 0xc5))
                && le32(bytes, 1).is_some_and(|len| len as usize + 5 == bytes.len())
        })
    }),
    // RFC 3261, section 7.
    both("sip", |it| {
        any(it, |bytes| {
            line(bytes).ends_with(b" SIP/2.0") || bytes.starts_with(b"SIP/2.0 ")
        })
    }),
    // RFC 7826, section 4.
    tcp("rtsp", |it| {
        any(it, |bytes| {
            let line = line(bytes);
            line.ends_with(b" RTSP/1.0")
                || line.ends_with(b" RTSP/2.0")
                || bytes.starts_with(b"RTSP/")
        })
    }),
    // RFC 9051, section 7.1.5; RFC 1939, section 4.
    tcp("imap", |it| {
        it.responder.starts_with(b"* OK") || it.responder.starts_with(b"* PREAUTH")
    }),
    tcp("pop3", |it| {
        it.responder.starts_with(b"+OK") || matches!(it.initiator, b"CAPA\r\n" | b"STLS\r\n")
    }),
    // RFC 2812; RFC 6120.
    tcp("irc", |it| {
        let is_client = ["NICK ", "CAP LS", "CAP REQ"];
        let is_client = is_client
            .iter()
            .any(|start| it.initiator.starts_with(start.as_bytes()));
        let line = line(it.responder);
        is_client || (line.starts_with(b":") && memchr::memmem::find(line, b" NOTICE ").is_some())
    }),
    tcp("xmpp", |it| {
        any(it, |bytes| {
            memchr::memmem::find(bytes, b"<stream:stream").is_some()
        })
    }),
    tcp("mysql", |it| {
        let bytes = it.responder;
        bytes.get(3..5) == Some(&[0, 10])
            && bytes.get(5).is_some_and(u8::is_ascii_digit)
            && le32(bytes, 0).is_some_and(|len| len as usize + 4 == bytes.len())
    }),
    tcp("postgresql", |it| {
        let bytes = it.initiator;
        let version = be32(bytes, 4);
        let has_length = be32(bytes, 0).is_some_and(|len| len as usize <= bytes.len());
        has_length
            && matches!(
                version,
                Some(196_608 | 80_877_103 | 80_877_102 | 80_877_104)
            )
    }),
    tcp("mongodb", |it| {
        any(it, |bytes| {
            matches!(le32(bytes, 12), Some(2004 | 2013))
                && le32(bytes, 0).is_some_and(|len| (16..48 << 20).contains(&len))
        })
    }),
    tcp("redis", |it| {
        let line = line(it.initiator);
        line.len() > 1
            && line[0] == b'*'
            && line[1..].iter().all(u8::is_ascii_digit)
            && it.initiator.get(line.len() + 2) == Some(&b'$')
    }),
    // OASIS MQTT, section 3.1.
    tcp("mqtt", |it| {
        let bytes = it.initiator;
        bytes.first() == Some(&0x10)
            && (2..6).any(|at| {
                bytes.get(at..).is_some_and(|rest| {
                    rest.starts_with(b"\0\x04MQTT") || rest.starts_with(b"\0\x06MQIsdp")
                })
            })
    }),
    tcp("amqp", |it| either(it, b"AMQP")),
    tcp("smb", |it| {
        any(it, |bytes| {
            bytes.first() == Some(&0)
                && matches!(bytes.get(4..8), Some(b"\xffSMB" | b"\xfeSMB" | b"\xfdSMB"))
        })
    }),
    // RFC 1002, section 4.3.2: a session request.
    tcp("netbios_ssn", |it| {
        it.initiator.starts_with(b"\x81\0\0") && it.initiator.get(4) == Some(&32)
    }),
    // ITU-T T.123: TPKT, then a connection request of X.224.
    tcp("rdp", |it| {
        let bytes = it.initiator;
        bytes.starts_with(b"\x03\0")
            && bytes.get(5) == Some(&0xe0)
            && be16(bytes, 2) == Some(bytes.len())
            && it.port != 102
    }),
    tcp("s7comm", |it| {
        it.port == 102 && it.initiator.starts_with(b"\x03\0") && it.initiator.get(5) == Some(&0xe0)
    }),
    // RFC 6143, section 7.1.1.
    tcp("vnc", |it| either(it, b"RFB 00")),
    // RFC 854: commands of three bytes.
    tcp("telnet", |it| {
        any(it, |bytes| {
            bytes.first() == Some(&0xff)
                && matches!(bytes.get(1), Some(0xfb..=0xfe))
                && bytes.len() >= 3
        })
    }),
    // RFC 4511, section 4.1.1: a message with bind, search or unbind.
    both("ldap", |it| {
        let bytes = it.initiator;
        let at = match bytes.get(1) {
            Some(len @ 0x80..=0x84) => 2 + usize::from(len & 0x7f),
            _ => 2,
        };
        bytes.first() == Some(&0x30)
            && bytes.get(at) == Some(&2)
            && bytes.get(at + 1).is_some_and(|&len| {
                (1..5).contains(&len)
                    && matches!(
                        bytes.get(at + 2 + usize::from(len)),
                        Some(0x60 | 0x63 | 0x42)
                    )
            })
    }),
    // RFC 4271, section 4.1.
    tcp("bgp", |it| either(it, &[0xff; 16])),
    tcp("rsync", |it| either(it, b"@RSYNCD: ")),
    tcp("git", |it| {
        let command = it.initiator.get(4..);
        command.is_some_and(|it| {
            it.starts_with(b"git-upload-pack ") || it.starts_with(b"git-receive-pack ")
        })
    }),
    tcp("svn", |it| it.responder.starts_with(b"( success ( ")),
    // RFC 1928, section 3.
    tcp("socks", |it| {
        let bytes = it.initiator;
        let is_fifth = bytes.first() == Some(&5)
            && bytes
                .get(1)
                .is_some_and(|&n| n > 0 && usize::from(n) + 2 == bytes.len());
        let is_fourth = bytes.starts_with(&[4, 1]) && bytes.len() > 8 && bytes.last() == Some(&0);
        (is_fifth && (it.responder.is_empty() || it.responder.first() == Some(&5)))
            || (is_fourth && it.port == 1080)
    }),
    // IEC 61158 MBAP: protocol 0 and the length that follows.
    tcp("modbus", |it| {
        let bytes = it.initiator;
        it.port == 502
            && bytes.get(2..4) == Some(&[0, 0])
            && be16(bytes, 4).is_some_and(|len| len + 6 == bytes.len())
    }),
    both("dnp3", |it| either(it, b"\x05\x64")),
    // RFC 8489, section 5.
    both("stun", |it| {
        any(it, |bytes| {
            bytes.first().is_some_and(|first| first & 0xc0 == 0)
                && bytes.get(4..8) == Some(b"\x21\x12\xa4\x42")
        })
    }),
    udp("ssdp", |it| {
        any(it, |bytes| {
            bytes.starts_with(b"M-SEARCH * HTTP/1.1") || bytes.starts_with(b"NOTIFY * HTTP/1.1")
        })
    }),
    // RFC 2865, section 3.
    udp("radius", |it| {
        any(it, |bytes| {
            matches!(it.port, 1645 | 1646 | 1812 | 1813)
                && be16(bytes, 2).is_some_and(|len| (20..=bytes.len()).contains(&len))
        })
    }),
    // RFC 1350, section 5.
    udp("tftp", |it| {
        let bytes = it.initiator;
        let is_request = bytes.starts_with(&[0, 1]) || bytes.starts_with(&[0, 2]);
        let mut parts = bytes.get(2..).unwrap_or_default().split(|&byte| byte == 0);
        is_request
            && parts.next().is_some_and(|name| !name.is_empty())
            && parts.next().is_some_and(|mode| {
                mode.eq_ignore_ascii_case(b"octet") || mode.eq_ignore_ascii_case(b"netascii")
            })
    }),
    // RFC 5424, section 6.
    udp("syslog", |it| {
        let bytes = it.initiator;
        let end = bytes.iter().take(5).position(|&byte| byte == b'>');
        bytes.first() == Some(&b'<')
            && end.is_some_and(|end| end > 1 && bytes[1..end].iter().all(u8::is_ascii_digit))
    }),
    // RFC 7296, section 3.1; with four zeros before it on port 4500 (RFC 3948).
    udp("ike", |it| {
        any(it, |bytes| {
            let bytes = bytes.strip_prefix(&[0; 4]).unwrap_or(bytes);
            matches!(bytes.get(17), Some(0x10 | 0x20))
                && be32(bytes, 24).is_some_and(|len| len as usize == bytes.len())
        })
    }),
    // QUIC before the IETF's: the version stands behind the flags, or behind them and a connection's number.
    udp("quic", |it| {
        [1, 9].into_iter().any(|at| {
            let version = it.initiator.get(at..at + 4);
            version.is_some_and(|it| it[0] == b'Q' && it[1..].iter().all(u8::is_ascii_digit))
        })
    }),
    udp("wireguard", |it| {
        any(it, |bytes| {
            matches!(
                (bytes.get(..4), bytes.len()),
                (Some([1, 0, 0, 0]), 148) | (Some([2, 0, 0, 0]), 92) | (Some([3, 0, 0, 0]), 64)
            )
        })
    }),
    // RFC 3954, RFC 7011; sFlow version 5.
    udp("netflow", |it| {
        let bytes = it.initiator;
        match be16(bytes, 0) {
            Some(5) => {
                be16(bytes, 2).is_some_and(|n| (1..=30).contains(&n) && 24 + 48 * n == bytes.len())
            }
            Some(9) => matches!(it.port, 2055 | 9555 | 9995 | 9996) && bytes.len() >= 20,
            _ => false,
        }
    }),
    udp("ipfix", |it| {
        be16(it.initiator, 0) == Some(10) && be16(it.initiator, 2) == Some(it.initiator.len())
    }),
    udp("sflow", |it| {
        it.initiator.starts_with(&[0, 0, 0, 5, 0, 0, 0])
            && matches!(it.initiator.get(7), Some(1 | 2))
    }),
    // RFC 4120, section 7.2.
    both("kerberos", |it| {
        let bytes = it.initiator;
        let bytes = if it.is_udp {
            bytes
        } else {
            bytes.get(4..).unwrap_or_default()
        };
        it.port == 88 && matches!(bytes.first(), Some(0x6a | 0x6c | 0x6e))
    }),
    // RFC 7252, section 3.
    udp("coap", |it| {
        it.port == 5683
            && it
                .initiator
                .first()
                .is_some_and(|first| first & 0xc0 == 0x40)
    }),
    // RFC 3550 has no signature; RTCP's first packet is a report, with a length in words (section 6.4).
    udp("rtcp", |it| {
        any(it, |bytes| {
            bytes.first().is_some_and(|first| first & 0xc0 == 0x80)
                && matches!(bytes.get(1), Some(200..=204))
                && be16(bytes, 2).is_some_and(|words| 4 * (words + 1) <= bytes.len())
        })
    }),
];

use Transport::{Both, Tcp, Udp};

/// By IANA's registry of services.
static PORTS: &[(Transport, &[u16], &str)] = &[
    (Both, &[53], "dns"),
    (Tcp, &[80, 8080, 8000, 8008, 3128], "http"),
    (Tcp, &[443, 8443], "tls"),
    (Udp, &[443], "quic"),
    (Tcp, &[22], "ssh"),
    (Tcp, &[21], "ftp"),
    (Tcp, &[20], "ftp_data"),
    (Tcp, &[23], "telnet"),
    (Tcp, &[25, 465, 587], "smtp"),
    (Tcp, &[43], "whois"),
    (Tcp, &[49], "tacacs"),
    (Udp, &[67, 68], "dhcp"),
    (Udp, &[546, 547], "dhcpv6"),
    (Udp, &[69], "tftp"),
    (Tcp, &[79], "finger"),
    (Both, &[88], "kerberos"),
    (Tcp, &[110, 995], "pop3"),
    (Both, &[111], "rpc"),
    (Tcp, &[113], "ident"),
    (Tcp, &[119, 563], "nntp"),
    (Udp, &[123], "ntp"),
    (Both, &[135], "dcerpc"),
    (Udp, &[137], "nbns"),
    (Udp, &[138], "netbios_dgm"),
    (Tcp, &[139], "netbios_ssn"),
    (Tcp, &[143, 993], "imap"),
    (Udp, &[161, 162], "snmp"),
    (Tcp, &[179], "bgp"),
    (Both, &[389, 636, 3268], "ldap"),
    (Tcp, &[445], "smb"),
    (Tcp, &[502], "modbus"),
    (Udp, &[500, 4500], "ike"),
    (Udp, &[514], "syslog"),
    (Tcp, &[515], "lpd"),
    (Udp, &[520], "rip"),
    (Tcp, &[548], "afp"),
    (Tcp, &[554], "rtsp"),
    (Tcp, &[631], "ipp"),
    (Tcp, &[853], "dns_over_tls"),
    (Tcp, &[873], "rsync"),
    (Tcp, &[1080], "socks"),
    (Udp, &[1194], "openvpn"),
    (Tcp, &[1433], "mssql"),
    (Tcp, &[1521], "oracle"),
    (Udp, &[1645, 1646, 1812, 1813], "radius"),
    (Both, &[1701], "l2tp"),
    (Tcp, &[1723], "pptp"),
    (Both, &[1883, 8883], "mqtt"),
    (Udp, &[1900], "ssdp"),
    (Tcp, &[1935], "rtmp"),
    (Udp, &[1985], "hsrp"),
    (Both, &[2049], "nfs"),
    (Udp, &[2055, 9995], "netflow"),
    (Udp, &[3130], "icp"),
    (Tcp, &[3306], "mysql"),
    (Both, &[3389], "rdp"),
    (Both, &[3478, 5349], "stun"),
    (Udp, &[3784, 4784], "bfd"),
    (Udp, &[4739], "ipfix"),
    (Both, &[5060, 5061], "sip"),
    (Tcp, &[5222, 5269], "xmpp"),
    (Udp, &[5353], "mdns"),
    (Udp, &[5355], "llmnr"),
    (Tcp, &[5432], "postgresql"),
    (Tcp, &[5671, 5672], "amqp"),
    (Udp, &[5683], "coap"),
    (Tcp, &[5900, 5901], "vnc"),
    (Udp, &[6343], "sflow"),
    (Tcp, &[6379], "redis"),
    (Tcp, &[6667, 6697], "irc"),
    (Tcp, &[9418], "git"),
    (Both, &[11211], "memcached"),
    (Both, &[20000], "dnp3"),
    (Tcp, &[27017], "mongodb"),
    (Udp, &[51820], "wireguard"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(initiator: &[u8], responder: &[u8], port: u16, is_udp: bool) -> Option<&'static str> {
        by_content(&Seen {
            initiator,
            responder,
            port,
            is_udp,
        })
    }

    #[test]
    fn signatures_tell() {
        assert_eq!(
            of(b"\x13BitTorrent protocolex", b"", 1, false),
            Some("bittorrent")
        );
        assert_eq!(of(b"", b"* OK ready\r\n", 1, false), Some("imap"));
        assert_eq!(of(b"", b"+OK ready\r\n", 1, false), Some("pop3"));
        assert_eq!(
            of(b"INVITE sip:a@b SIP/2.0\r\nVia", b"", 1, true),
            Some("sip")
        );
        assert_eq!(of(b"\0\x01file\0octet\0", b"", 1, true), Some("tftp"));
        assert_eq!(of(b"\0\x01file\0other\0", b"", 1, true), None);
        assert_eq!(of(b"<34>Oct 11", b"", 1, true), Some("syslog"));
        assert_eq!(of(b"\x05\x01\x00", b"\x05\x00", 1, false), Some("socks"));
        assert_eq!(of(b"", b"", 80, false), None);
    }

    #[test]
    fn any_beginning_is_survived() {
        for seed in 0..2000_u32 {
            let mut state = seed.wrapping_mul(2_654_435_761) | 1;
            let bytes: Vec<u8> = (0..seed % 40)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    state as u8
                })
                .collect();
            for is_udp in [false, true] {
                of(&bytes, &[], 88, is_udp);
                of(&[], &bytes, 102, is_udp);
            }
        }
    }

    #[test]
    fn ports_tell_where_nothing_else_does() {
        assert_eq!(by_port(6, 22), Some("ssh"));
        assert_eq!(by_port(17, 22), None);
        assert_eq!(by_port(17, 53), Some("dns"));
        assert_eq!(by_port(1, 53), None);
    }
}
