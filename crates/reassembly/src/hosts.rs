//! Which overlap policy a receiving host follows, by address.

use core::net::IpAddr;
use std::collections::HashMap;

use flowgauge_wire::Address;
use ipnet::IpNet;

use crate::policy::OverlapPolicy;

/// Overlap policies by subnet: the longest prefix that holds the receiving host's address decides.
///
/// ```
/// use flowgauge_reassembly::{HostPolicies, OverlapPolicy};
///
/// let mut policies = HostPolicies::new(OverlapPolicy::Linux);
/// policies.insert("10.0.0.0".parse().unwrap(), 8, OverlapPolicy::Windows);
/// policies.insert("10.1.0.0".parse().unwrap(), 16, OverlapPolicy::Solaris);
/// let of = |host: &str| policies.of_ip(host.parse().unwrap());
/// assert_eq!(of("10.1.2.3"), OverlapPolicy::Solaris);
/// assert_eq!(of("10.9.2.3"), OverlapPolicy::Windows);
/// assert_eq!(of("192.0.2.1"), OverlapPolicy::Linux);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPolicies {
    default: OverlapPolicy,
    /// Longest prefixes first, equally long ones by address; IPv4 and IPv6 apart.
    tables: [Vec<Length>; 2],
}

/// All prefixes of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Length {
    mask: u128,
    /// By address.
    prefixes: Vec<(u128, OverlapPolicy)>,
}

impl HostPolicies {
    /// `default` for every host.
    pub fn new(default: OverlapPolicy) -> HostPolicies {
        HostPolicies {
            default,
            tables: [Vec::new(), Vec::new()],
        }
    }

    /// Reads lines like `10.0.0.0/8 windows` and `default linux`; `#` begins a comment. There is one
    /// default, and no subnet has two policies: nobody knows which was meant.
    ///
    /// # Errors
    /// What is wrong with which line, from 1.
    pub fn read(text: &str) -> Result<HostPolicies, (usize, String)> {
        let mut default: Option<OverlapPolicy> = None;
        let mut policies = HostPolicies::default();
        let mut default_line = 0;
        let mut lines: HashMap<IpNet, (usize, OverlapPolicy)> = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let at = |reason: String| (number + 1, reason);
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let (host, policy) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| at(format!("\"{line}\" is not a subnet with a policy")))?;
            let policy = policy
                .trim()
                .parse::<OverlapPolicy>()
                .map_err(|error| at(error.to_string()))?;
            if host == "default" {
                if default.replace(policy).is_some() {
                    return Err(at(format!("line {default_line} says the default already")));
                }
                default_line = number + 1;
                continue;
            }
            let (address, length) = match host.split_once('/') {
                Some((address, length)) => (address, Some(length)),
                None => (host, None),
            };
            let address: IpAddr = address
                .parse()
                .map_err(|_| at(format!("\"{address}\" is not an address")))?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let length = match length.map(str::parse::<u8>) {
                None => most,
                Some(Ok(length)) if length <= most => length,
                Some(_) => return Err(at(format!("a prefix length is 0 to {most}"))),
            };
            let network = IpNet::new_assert(address, length).trunc();
            let said = lines.insert(network, (number + 1, policy));
            if let Some((line, other)) = said.filter(|&(_, other)| other != policy) {
                let other = other.name();
                return Err(at(format!("line {line} says that {network} is {other}")));
            }
            policies.insert(address, length, policy);
        }
        policies.default = default.unwrap_or_default();
        Ok(policies)
    }

    /// The policy of hosts in no subnet.
    pub fn default_policy(&self) -> OverlapPolicy {
        self.default
    }

    /// Whether all hosts follow the default.
    pub fn is_uniform(&self) -> bool {
        self.tables.iter().all(Vec::is_empty)
    }

    /// Says the policy of the hosts in `network`/`prefix` (what exceeds the address's length is
    /// taken to it; host bits are ignored). The last word on a subnet counts.
    pub fn insert(&mut self, network: IpAddr, prefix: u8, policy: OverlapPolicy) {
        let (table, bits, width) = match network {
            IpAddr::V4(address) => (0, u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (1, address.to_bits(), 128),
        };
        let host_bits = width - u32::from(prefix).min(width);
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        let table = &mut self.tables[table];
        let at = table.partition_point(|length| length.mask > mask);
        if table.get(at).is_none_or(|length| length.mask != mask) {
            let prefixes = Vec::new();
            table.insert(at, Length { mask, prefixes });
        }
        let prefixes = &mut table[at].prefixes;
        match prefixes.binary_search_by_key(&(bits & mask), |entry| entry.0) {
            Ok(found) => prefixes[found].1 = policy,
            Err(place) => prefixes.insert(place, (bits & mask, policy)),
        }
    }

    /// The policy of a host.
    pub fn of_ip(&self, host: IpAddr) -> OverlapPolicy {
        match host {
            IpAddr::V4(address) => self.find(0, u128::from(address.to_bits())),
            IpAddr::V6(address) => self.find(1, address.to_bits()),
        }
    }

    /// The policy of a host as flow keys have it.
    pub fn of(&self, host: Address, version: u8) -> OverlapPolicy {
        let bits = u128::from_be_bytes(host.0);
        if version == 4 {
            self.find(0, bits & u128::from(u32::MAX))
        } else {
            self.find(1, bits)
        }
    }

    fn find(&self, table: usize, bits: u128) -> OverlapPolicy {
        for length in &self.tables[table] {
            let wanted = bits & length.mask;
            if let Ok(found) = length
                .prefixes
                .binary_search_by_key(&wanted, |entry| entry.0)
            {
                return length.prefixes[found].1;
            }
        }
        self.default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_subnet_has_two_policies() {
        for (text, line, reason) in [
            (
                "default linux\n\ndefault linux",
                3,
                "line 1 says the default already",
            ),
            (
                "# hosts\n10.0.0.0/8 bsd\ndefault linux\n10.1.0.0/8 windows",
                4,
                "line 2 says that 10.0.0.0/8 is bsd",
            ),
            (
                "192.0.2.1 bsd\n192.0.2.1/32 last",
                2,
                "line 1 says that 192.0.2.1/32 is bsd",
            ),
            (
                "::/0 bsd\n2001:db8::/0 last",
                2,
                "line 1 says that ::/0 is bsd",
            ),
        ] {
            assert_eq!(HostPolicies::read(text), Err((line, reason.to_owned())));
        }
        assert!(HostPolicies::read("10.0.0.0/8 bsd\n10.1.0.0/8 bsd").is_ok());
        // A subnet within another, and the same bits of both families, are other subnets.
        let text = "10.0.0.0/8 bsd\n10.0.0.0/9 linux\n0.0.0.0/0 bsd\n::/0 windows\ndefault linux";
        let policies = HostPolicies::read(text).unwrap();
        assert_eq!(
            policies.of_ip("10.0.0.1".parse().unwrap()),
            OverlapPolicy::Linux
        );
        assert_eq!(
            policies.of_ip("10.200.0.1".parse().unwrap()),
            OverlapPolicy::Bsd
        );
        assert_eq!(
            policies.of_ip("2001:db8::1".parse().unwrap()),
            OverlapPolicy::Windows
        );
        assert_eq!(policies.default_policy(), OverlapPolicy::Linux);
    }

    #[test]
    fn families_are_apart_and_bounds_hold() {
        let mut policies = HostPolicies::default();
        policies.insert("::".parse().unwrap(), 0, OverlapPolicy::Last);
        policies.insert("2001:db8::".parse().unwrap(), 32, OverlapPolicy::Bsd);
        policies.insert("2001:db8::1".parse().unwrap(), 200, OverlapPolicy::MacOs);
        policies.insert("192.0.2.7".parse().unwrap(), 32, OverlapPolicy::Irix);
        let of = |host: &str| policies.of_ip(host.parse().unwrap());
        assert_eq!(of("192.0.2.7"), OverlapPolicy::Irix);
        assert_eq!(of("192.0.2.8"), OverlapPolicy::First);
        assert_eq!(of("2001:db8::1"), OverlapPolicy::MacOs);
        assert_eq!(of("2001:db8::2"), OverlapPolicy::Bsd);
        assert_eq!(of("2001:db9::2"), OverlapPolicy::Last);
        // As keys have them.
        assert_eq!(
            policies.of(Address::v4([192, 0, 2, 7]), 4),
            OverlapPolicy::Irix
        );
        let mapped = Address::v4([192, 0, 2, 7]);
        assert_eq!(policies.of(mapped, 6), OverlapPolicy::Last);
    }

    #[test]
    fn the_last_word_counts() {
        let mut policies = HostPolicies::default();
        policies.insert("10.0.0.1".parse().unwrap(), 8, OverlapPolicy::Bsd);
        policies.insert("10.255.0.1".parse().unwrap(), 8, OverlapPolicy::Linux);
        assert!(!policies.is_uniform());
        assert_eq!(
            policies.of_ip("10.3.0.1".parse().unwrap()),
            OverlapPolicy::Linux
        );
    }
}
