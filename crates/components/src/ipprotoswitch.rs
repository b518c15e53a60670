//! `ipprotoswitch`: a branch per IP protocol.

use flowgauge_stack::{
    Branches, Component, ComponentInfo, ComponentKind, Packets, Selection, Settings, options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ipprotoswitch",
    summary: "sends packets to branches by their IP protocol",
    help: "Packets of other protocols, and packets other than IP, go on to the components that follow.",
    kind: ComponentKind::Switch(Branches::ByOptions),
    options: Options::ALL,
    make: |settings| Ok(Box::new(ByProtocol::new(settings))),
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    tcpbranch: Branch = "0", "the branch of TCP";
    udpbranch: Branch = "1", "the branch of UDP";
    icmpbranch: Branch = "2", "the branch of ICMP and ICMPv6";
    sctpbranch: Branch, "the branch of SCTP";
}

/// The protocol numbers of each option.
const PROTOCOLS: [(&str, &[u8]); 4] = [
    ("tcpbranch", &[6]),
    ("udpbranch", &[17]),
    ("icmpbranch", &[1, 58]),
    ("sctpbranch", &[132]),
];

struct ByProtocol {
    /// By protocol number; 255 for none.
    branches: Box<[u8; 256]>,
}

impl ByProtocol {
    fn new(settings: &Settings) -> ByProtocol {
        let mut branches = Box::new([u8::MAX; 256]);
        for (option, protocols) in PROTOCOLS {
            if let Some(branch) = settings.integer(option) {
                for &protocol in protocols {
                    branches[usize::from(protocol)] = branch as u8;
                }
            }
        }
        ByProtocol { branches }
    }
}

impl Component for ByProtocol {
    fn route(&mut self, packets: &Packets<'_>, branches: &mut [Selection]) {
        for (index, packet) in packets.iter() {
            if !packet.has_ip() {
                continue;
            }
            let branch = self.branches[usize::from(packet.key.protocol)];
            if let Some(branch) = branches.get_mut(usize::from(branch)) {
                branch.insert(index);
            }
        }
    }
}
