//! What others call what we call an anomaly.

use super::values::{Name, Values};

/// An anomaly: our name, and where it is found (a protocol above, or below in small letters, or anywhere); Zeek's name of
/// it, and Suricata's, which are empty where they are ours.
struct Known {
    name: &'static str,
    within: &'static str,
    zeek: &'static str,
    suricata: &'static str,
}

macro_rules! known {
    ($($name:ident $within:literal: $zeek:literal $suricata:literal;)*) => {
        &[$(Known { name: stringify!($name), within: $within, zeek: $zeek, suricata: $suricata }),*]
    };
}

static KNOWN: &[Known] = known! {
    bad_checksum "tcp": "bad_TCP_checksum" "";
    bad_checksum "udp": "bad_UDP_checksum" "";
    bad_checksum "icmp": "bad_ICMP_checksum" "";
    bad_ip_checksum "": "bad_IP_checksum" "";
    short_header "": "truncated_header" "";
    bad_ip_header "": "invalid_IP_header_size" "";
    bad_transport_header "tcp": "bad_TCP_header_len" "";
    too_many_tunnels "": "exceeded_tunnel_max_depth" "decoder.too_many_layers";
    fragment_overlap "": "fragment_overlap" "decoder.ipv4.frag_overlap";
    fragment_conflict "": "fragment_inconsistency" "";
    fragment_too_long "": "excessively_large_fragment" "decoder.ipv4.frag_pkt_too_large";
    tiny_fragment "": "excessively_small_fragment" "";
    fragment_bad_end "": "fragment_size_inconsistency" "";
    data_before_handshake "": "data_before_established" "";
    conflicting_overlap "": "rexmit_inconsistency" "stream.reassembly_overlap_different_data";
    gap "": "" "stream.reassembly_seq_gap";
    out_of_window "": "" "stream.est_packet_out_of_window";
    unmatched_reply "dns": "dns_unmatched_reply" "";
    length_and_coding "http": "HTTP_content_length_and_chunked" "";
    folded_header "http": "HTTP_obsolete_line_folding" "";
    bad_length "http": "HTTP_bad_content_length" "";
    bad_request_line "http": "bad_HTTP_request" "";
    unmatched_reply "http": "HTTP_response_before_request" "UNABLE_TO_MATCH_RESPONSE_TO_REQUEST";
};

fn known(values: &Values<'_>) -> Option<&'static Known> {
    let name = values.text(Name::anomaly)?;
    let within = [Name::protocol, Name::proto].map(|field| values.text(field).unwrap_or_default());
    KNOWN
        .iter()
        .find(|it| it.name == name && (it.within.is_empty() || within.contains(&it.within)))
}

/// Zeek's name of an anomaly.
pub(super) fn zeek<'a>(values: &Values<'a>) -> Option<&'a str> {
    let name = known(values).map(|known| known.zeek);
    name.filter(|it| !it.is_empty())
        .or(values.text(Name::anomaly))
}

/// Suricata's.
pub(super) fn suricata<'a>(values: &Values<'a>) -> Option<&'a str> {
    let name = known(values).map(|known| known.suricata);
    name.filter(|it| !it.is_empty())
        .or(values.text(Name::anomaly))
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
    let mode = (0..8).find(|mode| flowgauge_proto::ntp::mode_name(*mode) == name);
    mode.map(u16::from)
}
