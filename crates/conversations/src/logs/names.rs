//! What others call what we call an anomaly.

use super::values::{Name, Values};

/// Our name and where it is found: a protocol above, or below in small letters, or nothing; Zeek's name of it, and
/// Suricata's; without them it has ours.
struct Known(
    &'static str,
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
);

const KNOWN: &[Known] = &[
    Known("bad_checksum", "tcp", Some("bad_TCP_checksum"), None),
    Known("bad_checksum", "udp", Some("bad_UDP_checksum"), None),
    Known("bad_checksum", "icmp", Some("bad_ICMP_checksum"), None),
    Known("bad_ip_checksum", "", Some("bad_IP_checksum"), None),
    Known("short_header", "", Some("truncated_header"), None),
    Known("bad_ip_header", "", Some("invalid_IP_header_size"), None),
    Known(
        "bad_transport_header",
        "tcp",
        Some("bad_TCP_header_len"),
        None,
    ),
    Known(
        "too_many_tunnels",
        "",
        Some("exceeded_tunnel_max_depth"),
        Some("decoder.too_many_layers"),
    ),
    Known(
        "fragment_overlap",
        "",
        Some("fragment_overlap"),
        Some("decoder.ipv4.frag_overlap"),
    ),
    Known(
        "fragment_conflict",
        "",
        Some("fragment_inconsistency"),
        None,
    ),
    Known(
        "fragment_too_long",
        "",
        Some("excessively_large_fragment"),
        Some("decoder.ipv4.frag_pkt_too_large"),
    ),
    Known(
        "tiny_fragment",
        "",
        Some("excessively_small_fragment"),
        None,
    ),
    Known(
        "fragment_bad_end",
        "",
        Some("fragment_size_inconsistency"),
        None,
    ),
    Known(
        "data_before_handshake",
        "",
        Some("data_before_established"),
        None,
    ),
    Known(
        "conflicting_overlap",
        "",
        Some("rexmit_inconsistency"),
        Some("stream.reassembly_overlap_different_data"),
    ),
    Known("gap", "", None, Some("stream.reassembly_seq_gap")),
    Known(
        "out_of_window",
        "",
        None,
        Some("stream.est_packet_out_of_window"),
    ),
    Known("unmatched_reply", "dns", Some("dns_unmatched_reply"), None),
    Known(
        "length_and_coding",
        "http",
        Some("HTTP_content_length_and_chunked"),
        None,
    ),
    Known(
        "folded_header",
        "http",
        Some("HTTP_obsolete_line_folding"),
        None,
    ),
    Known("bad_length", "http", Some("HTTP_bad_content_length"), None),
    Known("bad_request_line", "http", Some("bad_HTTP_request"), None),
    Known(
        "unmatched_reply",
        "http",
        Some("HTTP_response_before_request"),
        Some("UNABLE_TO_MATCH_RESPONSE_TO_REQUEST"),
    ),
];

fn known(values: &Values<'_>) -> Option<&'static Known> {
    let name = values.text(Name::anomaly)?;
    let within = [Name::protocol, Name::proto].map(|field| values.text(field).unwrap_or_default());
    KNOWN
        .iter()
        .find(|known| known.0 == name && (known.1.is_empty() || within.contains(&known.1)))
}

/// Zeek's name of an anomaly.
pub(super) fn zeek<'a>(values: &Values<'a>) -> Option<&'a str> {
    match known(values).and_then(|known| known.2) {
        Some(name) => Some(name),
        None => values.text(Name::anomaly),
    }
}

/// Suricata's.
pub(super) fn suricata<'a>(values: &Values<'a>) -> Option<&'a str> {
    match known(values).and_then(|known| known.3) {
        Some(name) => Some(name),
        None => values.text(Name::anomaly),
    }
}

/// Suricata's name of a protocol, underscores for hyphens.
pub(super) fn protocol(name: &str) -> &str {
    match name {
        "unknown" => "failed",
        "bittorrent" => "bittorrent_dht",
        "postgresql" => "pgsql",
        "vnc" => "rfb",
        name => name,
    }
}

/// The number of a mode of NTP (RFC 5905, section 7.3).
pub(super) fn ntp_mode(name: &str) -> Option<u16> {
    const MODES: [&str; 8] = [
        "reserved",
        "symmetric_active",
        "symmetric_passive",
        "client",
        "server",
        "broadcast",
        "control",
        "private",
    ];
    MODES.iter().position(|it| *it == name).map(|it| it as u16)
}
