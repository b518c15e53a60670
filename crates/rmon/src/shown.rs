//! What was seen, for users who do not ask by SNMP.

use std::net::IpAddr;

use crate::probe::Probe;

/// What was counted of a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolCounts {
    /// ifIndex.
    pub interface: u32,
    /// The names of its layers, as `ether2.ip.tcp.www-http`.
    pub protocol: String,
    /// Packets.
    pub packets: u64,
    /// Octets, check sequences included.
    pub octets: u64,
}

/// What was counted of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCounts {
    /// ifIndex.
    pub interface: u32,
    /// Its network layer, as `ether2.ip`.
    pub network: String,
    /// Its address.
    pub address: IpAddr,
    /// The protocol counted; the network layer itself for all of the host's packets.
    pub protocol: String,
    /// Packets to it.
    pub in_packets: u64,
    /// Packets from it.
    pub out_packets: u64,
    /// Octets to it.
    pub in_octets: u64,
    /// Octets from it.
    pub out_octets: u64,
}

/// What was counted of the packets from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairCounts {
    /// ifIndex.
    pub interface: u32,
    /// Their network layer.
    pub network: String,
    /// Where the packets came from.
    pub source: IpAddr,
    /// Where they went.
    pub destination: IpAddr,
    /// The protocol counted; the network layer itself for all packets.
    pub protocol: String,
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub octets: u64,
}

impl Probe {
    fn name(&self, local_index: u32) -> String {
        let entry = self.directory.get(local_index);
        entry.map_or_else(|| local_index.to_string(), |entry| entry.name.clone())
    }

    /// Protocols by LocalIndex, for each control row of protocolDist.
    pub fn protocols(&mut self) -> Vec<ProtocolCounts> {
        self.settle();
        let tables = self.tables.dists.values();
        let rows = tables.flat_map(|table| {
            let counts = table.table.counts.iter();
            counts.map(|(local, counts)| ProtocolCounts {
                interface: table.interface,
                protocol: self.name(*local),
                packets: counts[0],
                octets: counts[1],
            })
        });
        rows.collect()
    }

    /// Rows of hosts and conversations that were given up for others, as the tables were full.
    pub fn evicted(&self) -> u64 {
        let hosts = self.tables.hosts.values();
        let hosts = hosts.map(|it| (&it.table.network, &it.table.application));
        let pairs = self.tables.matrices.values();
        let pairs = pairs.map(|it| (&it.table.network, &it.table.application));
        let both = hosts.chain(pairs);
        both.map(|(network, application)| network.deletes + application.deletes)
            .sum()
    }

    /// Hosts in no order, with a row for each protocol counted of them, for each control row of hlHost.
    pub fn hosts(&mut self) -> Vec<HostCounts> {
        self.settle();
        let mut hosts = Vec::new();
        for table in self.tables.hosts.values() {
            for row in table.table.rows() {
                let [in_packets, out_packets, in_octets, out_octets, _] = row.counters;
                let all = HostCounts {
                    interface: table.interface,
                    network: self.name(row.key.network),
                    address: row.key.address.to_ip(if row.key.is_v4 { 4 } else { 6 }),
                    protocol: self.name(row.key.network),
                    in_packets,
                    out_packets,
                    in_octets,
                    out_octets,
                };
                for application in table.table.applications(row) {
                    let [in_packets, out_packets, in_octets, out_octets] = application.counters;
                    if application.protocol != row.key.network {
                        hosts.push(HostCounts {
                            protocol: self.name(application.protocol),
                            in_packets,
                            out_packets,
                            in_octets,
                            out_octets,
                            ..all.clone()
                        });
                    }
                }
                hosts.push(all);
            }
        }
        hosts
    }

    /// Pairs of hosts in no order, with a row for each protocol counted of them, for each control row of hlMatrix.
    pub fn pairs(&mut self) -> Vec<PairCounts> {
        self.settle();
        let mut pairs = Vec::new();
        for table in self.tables.matrices.values() {
            for row in table.table.rows() {
                let version = if row.key.is_v4 { 4 } else { 6 };
                let all = PairCounts {
                    interface: table.interface,
                    network: self.name(row.key.network),
                    source: row.key.source.to_ip(version),
                    destination: row.key.destination.to_ip(version),
                    protocol: self.name(row.key.network),
                    packets: row.counters[0],
                    octets: row.counters[1],
                };
                for application in table.table.applications(row) {
                    if application.protocol != row.key.network {
                        pairs.push(PairCounts {
                            protocol: self.name(application.protocol),
                            packets: application.counters[0],
                            octets: application.counters[1],
                            ..all.clone()
                        });
                    }
                }
                pairs.push(all);
            }
        }
        pairs
    }
}
