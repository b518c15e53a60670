//! Guesses the server of a connection captured from the middle.

/// TCP ports that servers listen on: those of the protocols Zeek knows (its `likely_server_ports`).
fn is_tcp_server(port: u16) -> bool {
    matches!(
        port,
        21 | 22
            | 25
            | 53
            | 80
            | 81
            | 88
            | 102
            | 110
            | 135
            | 139
            | 143
            | 389
            | 443
            | 445
            | 502
            | 563
            | 585
            | 587
            | 614
            | 631
            | 636
            | 989
            | 990
            | 992
            | 993
            | 995
            | 1080
            | 1434
            | 1883
            | 2811
            | 3128
            | 3268
            | 3306
            | 3389
            | 5222
            | 5223
            | 5269
            | 5432
            | 6379
            | 6666..=6669 | 8000 | 8080 | 8443 | 8888 | 20000
    )
}

/// UDP ports that servers listen on.
fn is_udp_server(port: u16) -> bool {
    matches!(
        port,
        53 | 67
            | 88
            | 123
            | 137
            | 161
            | 162
            | 389
            | 443
            | 514
            | 1434
            | 1812
            | 2123
            | 2152
            | 3544
            | 4789
            | 5060
            | 5072
            | 5353
            | 5355
            | 6081
            | 20000
    )
}

/// Whether a TCP connection that is first seen by something other than a SYN was initiated by the
/// *receiver* of that packet.
pub(crate) fn tcp_sender_is_server(source_port: u16, destination_port: u16) -> bool {
    is_tcp_server(source_port)
        && (!is_tcp_server(destination_port) || source_port < destination_port)
}

/// The same for a UDP flow's first packet.
pub(crate) fn udp_sender_is_server(source_port: u16, destination_port: u16) -> bool {
    is_udp_server(source_port) && !is_udp_server(destination_port)
}
