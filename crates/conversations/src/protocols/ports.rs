//! Protocols by the ports of servers.

use super::Transport::{self, Both, Tcp, Udp};

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
    use super::by_port;

    #[test]
    fn ports_tell_where_nothing_else_does() {
        assert_eq!(by_port(6, 22), Some("ssh"));
        assert_eq!(by_port(17, 22), None);
        assert_eq!(by_port(17, 53), Some("dns"));
        assert_eq!(by_port(1, 53), None);
    }
}
