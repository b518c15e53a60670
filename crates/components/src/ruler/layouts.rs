//! The layouts that rules know by name: `layouts.rli` of Ruler, in its language.

/// Headers without options.
pub(super) const LAYOUTS: &str = "
pattern Ethernet : (e_dest:byte#6 e_src:byte#6 e_proto:byte#2)
pattern Ethernet_IPv4 : (e_dest:byte#6 e_src:byte#6 e_proto:0x800~2)
pattern IPv4 : (version:0x45~1 tos:byte#1 length:byte#2 id:byte#2 offset:byte#2 ttl:byte#1 proto:byte#1 checksum:byte#2 src:byte#4
    dest:byte#4)
pattern IPv4_TCP : (version:0x45~1 tos:byte#1 length:byte#2 id:byte#2 offset:byte#2 ttl:byte#1 proto:6~1 checksum:byte#2 src:byte#4
    dest:byte#4)
pattern IPv4_UDP : (version:0x45~1 tos:byte#1 length:byte#2 id:byte#2 offset:byte#2 ttl:byte#1 proto:17~1 checksum:byte#2 src:byte#4
    dest:byte#4)
pattern IPv4_ICMP : (version:0x45~1 tos:byte#1 length:byte#2 id:byte#2 offset:byte#2 ttl:byte#1 proto:1~1 checksum:byte#2 src:byte#4
    dest:byte#4)
pattern TCP : (src:byte#2 dest:byte#2 seq:byte#4 ack:byte#4 header:byte#1 flags:byte#1 window:byte#2 checksum:byte#2 urgent:byte#2)
pattern UDP : (src:byte#2 dest:byte#2 length:byte#2 checksum:byte#2)
";
