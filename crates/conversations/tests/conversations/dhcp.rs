//! Messages of DHCP for IPv6 in captures against what tshark says of them.

use std::process::Command;

use crate::conversations::{Compared, records, text};
use crate::corpora::{corpora, skipped};
use serde_json::Value;

const FIELDS: [&str; 12] = [
    "dhcpv6.msgtype",
    "dhcpv6.xid",
    "dhcpv6.duid.bytes",
    "dhcpv6.iaaddr.ip",
    "dhcpv6.iaprefix.pref_addr",
    "dhcpv6.iaprefix.pref_len",
    "dhcpv6.dns_server",
    "dhcpv6.search_list_entry",
    "dhcpv6.client_domain",
    "dhcpv6.status_code",
    "dhcpv6.requested_option_code",
    "udp.length",
];

const NAMES: [&str; 11] = [
    "solicit",
    "advertise",
    "request",
    "confirm",
    "renew",
    "rebind",
    "reply",
    "release",
    "decline",
    "reconfigure",
    "information-request",
];

#[test]
fn tshark_dhcpv6() {
    let Some(corpora) = corpora() else { return };
    if Command::new("tshark").arg("--version").output().is_err() {
        return skipped("no tshark");
    }
    let traces = [
        "tcpdump/tests/dhcpv6-rfc6355-duid-uuid.pcap",
        "tcpdump/tests/dhcpv6-sip-server-d.pcap",
        "tcpdump/tests/dhcpv6-vendor-specific-information.pcap",
        "tcpdump/tests/dhcpv6-AFTR-Name-RFC6334.pcap",
        "tcpdump/tests/dhcpv6-mud.pcap",
        "arkime/tests/pcap/wireshark-dhcpv6.pcap",
    ];
    let mut compared = Compared::default();
    for name in traces {
        let trace = corpora.join(name);
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(&trace);
        command.args(["-Y", "dhcpv6 && !icmpv6", "-T", "fields"]);
        command.args(["-E", "occurrence=a", "-E", "aggregator=;"]);
        for field in FIELDS {
            command.args(["-e", field]);
        }
        let output = command.output().unwrap();
        let ours = records(&trace, "dhcpv6");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let values: Vec<&str> = line.split('\t').collect();
            compared.note(&format!("{name} {line}"), &differences(&values, &ours), &[]);
        }
        // Nothing is made up: each half is one of tshark's, or came again.
        let halves = ours.iter().map(|it| {
            let repeats = it["repeats"].as_u64().unwrap_or(0);
            repeats + if it["state"] == "matched" { 2 } else { 1 }
        });
        let frames = String::from_utf8_lossy(&output.stdout).lines().count();
        assert_eq!(halves.sum::<u64>(), frames as u64, "{name}");
    }
    compared.show("tshark, DHCP for IPv6");
    compared.assert_equal();
}

/// How a message of tshark's differs from the half of a record that has it.
fn differences(values: &[&str], ours: &[Value]) -> Vec<String> {
    let of = |field: &str| {
        let place = FIELDS.iter().position(|name| *name == field);
        place.and_then(|at| values.get(at)).copied().unwrap_or("")
    };
    // Behind those of relays.
    let kind = of("dhcpv6.msgtype").split(';').next_back().unwrap_or("");
    let kind = kind.parse::<usize>().unwrap_or(0);
    let kind = kind.checked_sub(1).and_then(|at| NAMES.get(at)).copied();
    let is_reply = matches!(kind, Some("advertise" | "reply" | "reconfigure"));
    let (half, none) = match is_reply {
        true => ("reply", "no_reply"),
        false => ("request", "no_request"),
    };
    let digits = of("dhcpv6.xid").trim_start_matches("0x");
    let xid = u64::from_str_radix(digits, 16).unwrap_or(0);
    let is = |record: &&Value| {
        record["trans_id"] == xid
            && record["state"] != none
            && text(record, half) == kind.unwrap_or("")
    };
    let Some(record) = ours.iter().find(is) else {
        return vec!["not found".to_owned()];
    };
    let mut differences = Vec::new();
    let mut expect = |name: &str, theirs: String| {
        let ours = text(record, name);
        if ours != theirs {
            differences.push(format!("{name} {ours:?} not {theirs:?}"));
        }
    };
    // The client's comes first or second; which is the server's, messages without one tell.
    let ids: Vec<&str> = of("dhcpv6.duid.bytes").split(';').collect();
    let client = text(record, "client_id");
    if !ids.contains(&client.as_str()) {
        expect("client_id", ids.join(" or "));
    }
    if let [_, _] = ids.as_slice() {
        let server = ids.iter().find(|it| **it != client);
        expect("server_id", server.unwrap_or(&"").to_string());
    }
    let bits: Vec<&str> = of("dhcpv6.iaprefix.pref_len").split(';').collect();
    let prefixes = of("dhcpv6.iaprefix.pref_addr");
    let prefixes = prefixes.split(';').zip(bits).filter(|it| !it.0.is_empty());
    let prefixes = prefixes.map(|(prefix, bits)| format!("{prefix}/{bits}"));
    let addresses = of("dhcpv6.iaaddr.ip").split(';').map(str::to_owned);
    let leases: Vec<String> = addresses
        .chain(prefixes)
        .filter(|it| !it.is_empty())
        .collect();
    let leases = leases.join(",");
    expect(if is_reply { "assigned" } else { "requested" }, leases);
    if is_reply {
        expect("dns_servers", of("dhcpv6.dns_server").replace(';', ","));
        let domains = of("dhcpv6.search_list_entry").split(';');
        let domains: Vec<&str> = domains.map(|it| it.trim_end_matches('.')).collect();
        expect("domains", domains.join(","));
    }
    if !is_reply {
        let fqdn = of("dhcpv6.client_domain");
        expect("client_fqdn", fqdn.trim_end_matches('.').to_owned());
    }
    if !is_reply || record["state"] == "no_request" {
        let wanted = of("dhcpv6.requested_option_code").replace(';', ",");
        expect("parameters", wanted);
    }
    if !of("dhcpv6.status_code").is_empty() && is_reply {
        expect("status", of("dhcpv6.status_code").to_owned());
    }
    let bytes = of("udp.length").parse::<u64>().unwrap_or(0) - 8;
    expect(&format!("{half}_bytes"), bytes.to_string());
    differences
}
