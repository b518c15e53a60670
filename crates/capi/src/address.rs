//! Addresses as text.

use core::net::Ipv6Addr;

/// An address of sixteen bytes: IPv4 where it is a mapped one.
pub(crate) fn text(bytes: &[u8; 16]) -> String {
    let address = Ipv6Addr::from(*bytes);
    match address.to_ipv4_mapped() {
        Some(address) => address.to_string(),
        None => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_wire::Address;

    #[test]
    fn both_versions() {
        assert_eq!(text(&Address::v4([192, 0, 2, 1]).0), "192.0.2.1");
        let long = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 0xabcd, 0xffff);
        assert_eq!(text(&long.octets()), long.to_string());
        assert_eq!(text(&[0; 16]), "::");
    }
}
