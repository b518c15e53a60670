//! What flows are classified as, against nDPI.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/conversations.rs"]
mod conversations;
#[path = "../../../tests/shared/corpora.rs"]
mod corpora;
mod support;

use std::collections::BTreeMap;

use conversations::{endpoints, records_of_stack, text};
use corpora::corpora;

/// Names of nDPI's and ours.
const NAMES: &[(&str, &str)] = &[
    ("AMQP", "amqp"),
    ("BGP", "bgp"),
    ("BitTorrent", "bittorrent"),
    ("COAP", "coap"),
    ("DHCP", "dhcp"),
    ("DHCPV6", "dhcpv6"),
    ("DNP3", "dnp3"),
    ("DNS", "dns"),
    ("FTP_CONTROL", "ftp"),
    ("Git", "git"),
    ("HTTP", "http"),
    ("IMAP", "imap"),
    ("IRC", "irc"),
    ("Jabber", "xmpp"),
    ("Kerberos", "kerberos"),
    ("LDAP", "ldap"),
    ("MDNS", "dns"),
    ("Modbus", "modbus"),
    ("MongoDB", "mongodb"),
    ("MQTT", "mqtt"),
    ("MySQL", "mysql"),
    ("NTP", "ntp"),
    ("POP3", "pop3"),
    ("PostgreSQL", "postgresql"),
    ("QUIC", "quic"),
    ("Radius", "radius"),
    ("RDP", "rdp"),
    ("Redis", "redis"),
    ("RSYNC", "rsync"),
    ("RTSP", "rtsp"),
    ("sFlow", "sflow"),
    ("SIP", "sip"),
    ("SMBv1", "smb"),
    ("SMBv23", "smb"),
    ("SMTP", "smtp"),
    ("SNMP", "snmp"),
    ("SOCKS", "socks"),
    ("SSDP", "ssdp"),
    ("SSH", "ssh"),
    ("STUN", "stun"),
    ("Syslog", "syslog"),
    ("Telnet", "telnet"),
    ("TFTP", "tftp"),
    ("TLS", "tls"),
    ("VNC", "vnc"),
    ("WireGuard", "wireguard"),
];

/// Flows whose protocol nDPI found by their content, of those that have a name here too.
#[test]
fn ndpi_finds_the_same_protocols() {
    let Some(corpora) = corpora() else { return };
    let root = corpora.join("ndpi/tests/cfgs/default");
    let mut results: Vec<_> = std::fs::read_dir(root.join("result"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    results.sort();
    let (mut all, mut equal, mut applications) = (0_u32, 0_u32, 0_u32);
    let mut others: BTreeMap<String, u32> = BTreeMap::new();
    for result in results {
        let name = result.file_stem().unwrap().to_string_lossy().into_owned();
        let trace = root.join("pcap").join(&name);
        let theirs = std::fs::read(&result).unwrap();
        let theirs = String::from_utf8_lossy(&theirs);
        let flows: Vec<(String, String, &str)> = theirs.lines().filter_map(flow).collect();
        if flows.is_empty() || !trace.is_file() {
            continue;
        }
        let ours = records_of_stack(&trace, "flows { classify = yes, checksums = ignore }");
        for (there, back, wanted) in flows {
            let found = ours.iter().find(|record| {
                let endpoints = endpoints(record);
                endpoints == there || endpoints == back
            });
            // What nDPI takes apart in other ways (tunnels, fragments) has no partner.
            let Some(record) = found else { continue };
            all += 1;
            let spoken = match text(record, "app_proto_by").as_str() {
                "port" => String::new(),
                _ => text(record, "app_proto"),
            };
            applications += u32::from(!record["app"].is_null());
            if spoken == wanted {
                equal += 1;
            } else {
                *others
                    .entry(format!("{wanted}, ours {spoken:?} ({name})"))
                    .or_default() += 1;
            }
        }
    }
    eprintln!("nDPI: {all} flows, {equal} equal, {applications} with an application");
    for (what, count) in &others {
        eprintln!("  {count} {what}");
    }
    // The rest: connections of TLS without their hellos, classic STUN, what goes over to TLS later.
    assert!(all > 1500 && equal * 100 >= all * 92, "{equal} of {all}");
}

/// Endpoints, both ways, and our name of the protocol that nDPI found by looking at content.
fn flow(line: &str) -> Option<(String, String, &'static str)> {
    let (_, rest) = line
        .split_once("\tTCP ")
        .or_else(|| line.split_once("\tUDP "))?;
    let (ends, rest) = rest.split_once(" [")?;
    let (client, server) = ends
        .split_once(" <-> ")
        .or_else(|| ends.split_once(" -> "))?;
    let clean = |end: &str| end.replace(['[', ']'], "");
    if !rest.contains("[Confidence: DPI]") {
        return None;
    }
    let name = rest.split_once('/')?.1.split([']', '.']).next()?;
    let (_, ours) = NAMES.iter().find(|(theirs, _)| *theirs == name)?;
    let (client, server) = (clean(client), clean(server));
    Some((
        format!("{client}-{server}"),
        format!("{server}-{client}"),
        ours,
    ))
}
