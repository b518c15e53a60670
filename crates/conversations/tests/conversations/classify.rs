//! What flows are classified as, against nDPI.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::conversations::{endpoints, records_of_stack, text};
use crate::corpora::{corpora, skipped};

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

/// A flow as nDPI's results tell it.
struct Theirs {
    /// Endpoints, both ways.
    there: String,
    back: String,
    /// Protocol and application, with a dot between.
    name: String,
    /// It tells flows in VLANs apart.
    vlan: Option<u64>,
}

/// Flows of each capture whose protocol nDPI found by their content, and our records of them, where there is one:
/// what nDPI takes apart in other ways (tunnels, fragments) has none.
fn pairs(
    stack: &str,
    results_of: fn(&Path, &Path) -> Option<Vec<u8>>,
    mut take: impl FnMut(&str, &Theirs, &serde_json::Value),
) -> bool {
    let Some(corpora) = corpora() else {
        return false;
    };
    let root = corpora.join("ndpi/tests/cfgs/default");
    let mut results: Vec<_> = std::fs::read_dir(root.join("result"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    results.sort();
    for result in results {
        let name = result.file_stem().unwrap().to_string_lossy().into_owned();
        let trace = root.join("pcap").join(&name);
        let Some(theirs) = results_of(&result, &trace) else {
            skipped("no ndpiReader");
            return false;
        };
        let theirs = String::from_utf8_lossy(&theirs);
        let flows: Vec<Theirs> = theirs.lines().filter_map(flow).collect();
        if flows.is_empty() || !trace.is_file() {
            continue;
        }
        let ours = records_of_stack(&trace, stack);
        for flow in flows {
            let found = ours.iter().find(|record| {
                let endpoints = endpoints(record);
                let is_in = flow.vlan.is_none_or(|vlan| record["vlan"][0] == vlan);
                is_in && (endpoints == flow.there || endpoints == flow.back)
            });
            if let Some(record) = found {
                take(&name, &flow, record);
            }
        }
    }
    true
}

/// Flows whose protocol has a name here, too.
#[test]
fn ndpi_finds_the_same_protocols() {
    let (mut all, mut equal, mut applications) = (0_u32, 0_u32, 0_u32);
    // What we have another name for than nDPI, by content: of its names that are ours, too, and of others.
    let (mut wrong, mut foreign) = (0_u32, 0_u32);
    let mut others: BTreeMap<String, u32> = BTreeMap::new();
    let stack = "flows { classify = yes, checksums = ignore }";
    let of_file = |result: &Path, _: &Path| std::fs::read(result).ok();
    let was_compared = pairs(stack, of_file, |trace, flow, record| {
        let protocol = flow.name.split('.').next().unwrap();
        let spoken = match text(record, "app_proto_by").as_str() {
            "port" => String::new(),
            _ => text(record, "app_proto"),
        };
        let Some((_, wanted)) = NAMES.iter().find(|(theirs, _)| *theirs == protocol) else {
            if !spoken.is_empty() {
                foreign += 1;
                let what = format!("other: nDPI {protocol}, ours {spoken:?} ({trace})");
                *others.entry(what).or_default() += 1;
            }
            return;
        };
        all += 1;
        wrong += u32::from(!spoken.is_empty() && spoken != *wanted);
        applications += u32::from(!record["app"].is_null());
        if spoken == *wanted {
            equal += 1;
        } else {
            let what = format!("{wanted}, ours {spoken:?} ({trace})");
            *others.entry(what).or_default() += 1;
        }
    });
    if !was_compared {
        return;
    }
    eprintln!(
        "nDPI: {all} flows, {equal} equal, {wrong} by another name, {applications} with an application; {foreign} \
         of what has a name there only"
    );
    for (what, count) in &others {
        eprintln!("  {count} {what}");
    }
    // The rest: classic STUN, protocols captured from within. No more than differed when that was looked into: a
    // protocol of three flows counts, too. By another name: what is spoken within SOCKS, and RDP that goes over to TLS.
    assert!(all > 1500 && all - equal <= 52, "{equal} of {all}");
    assert!(wrong <= 8 && foreign <= 274, "{wrong}, {foreign}");
}

/// What its library says through us is what it says to nDPI's own reader of captures, which gives it packets.
#[test]
fn ndpis_library_says_what_it_says_to_its_reader() {
    const STACK: &str = "flows { classify = yes, ndpi = yes, checksums = ignore }";
    if let Err(error) = flowgauge_sys::ndpi::version() {
        return skipped(error);
    }
    let (mut all, mut protocols, mut applications) = (0_u32, 0_u32, (0_u32, 0_u32));
    let mut others: BTreeMap<String, u32> = BTreeMap::new();
    let of_reader = |_: &Path, trace: &Path| {
        let mut command = Command::new("ndpiReader");
        let output = command.args(["-q", "-v", "2", "-i"]).arg(trace).output();
        output.ok().map(|output| output.stdout)
    };
    let was_compared = pairs(STACK, of_reader, |trace, flow, record| {
        let (protocol, application) = match flow.name.split_once('.') {
            Some((protocol, application)) => (protocol, Some(application)),
            None => (flow.name.as_str(), None),
        };
        let known = NAMES.iter().find(|(theirs, _)| *theirs == protocol);
        let wanted = known.map_or_else(|| protocol.to_lowercase(), |(_, ours)| (*ours).to_owned());
        let spoken = match text(record, "app_proto_by").as_str() {
            "ndpi" => text(record, "app_proto"),
            _ => String::new(),
        };
        all += 1;
        protocols += u32::from(spoken == wanted);
        if let Some(application) = application {
            let is_equal = text(record, "app") == application && text(record, "app_by") == "ndpi";
            applications.0 += 1;
            applications.1 += u32::from(is_equal);
            if !is_equal {
                let what = format!(
                    "{}, here {} {} ({trace})",
                    flow.name, record["app_proto"], record["app"]
                );
                *others.entry(what).or_default() += 1;
            }
        }
        if spoken != wanted {
            *others
                .entry(format!("{wanted}, here {spoken:?}"))
                .or_default() += 1;
        }
    });
    if !was_compared {
        return;
    }
    let (with_application, equal) = applications;
    eprintln!(
        "nDPI's library: {all} flows, {protocols} of the same protocol; {with_application} with an application, \
         {equal} of the same"
    );
    for (what, count) in &others {
        eprintln!("  {count} {what}");
    }
    // The rest: DNS over HTTPS, which packets without payload tell there, and applications of the same house.
    assert!(all > 2000 && all - protocols <= 4, "{protocols} of {all}");
    assert!(
        with_application - equal <= 11,
        "{equal} of {with_application}"
    );
}

/// A flow whose protocol nDPI found by looking at content.
fn flow(line: &str) -> Option<Theirs> {
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
    let name = rest.split_once('/')?.1.split(']').next()?.to_owned();
    let (client, server) = (clean(client), clean(server));
    let vlan = rest
        .split_once("VLAN: ")
        .and_then(|it| it.1.split(']').next());
    Some(Theirs {
        vlan: vlan.and_then(|vlan| vlan.parse().ok()),
        there: format!("{client}-{server}"),
        back: format!("{server}-{client}"),
        name,
    })
}
