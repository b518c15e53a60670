//! The layers of an unusual packet, one by one, as far as the directory knows them: tags, LLC and SNAP, tunnels,
//! fragments, IPv6's extension headers, what is cut or malformed.

use core::num::NonZeroUsize;

use flowgauge_wire::{Address, FoldedState, LinkType};
use lru::LruCache;
use smallvec::SmallVec;

use crate::directory::{Directory, Kind, TFTP};
use crate::paths::{Paths, START};

/// Addresses of a network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) is_v4: bool,
    pub(crate) source: Address,
    pub(crate) destination: Address,
}

/// The tag of IEEE 802.1Q that the directory has.
const CUSTOMER_TAG: u16 = 0x8100;

/// Also service tags, and those of before there were such.
fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, CUSTOMER_TAG | 0x88a8 | 0x9100 | 0x9200)
}

/// Network layers of a packet that are looked at.
pub(crate) const MOST_LEVELS: usize = 4;

/// Datagrams in fragments whose ports are remembered; the least recently used one is forgotten.
const MOST_DATAGRAMS: usize = 4096;

/// The ports of datagrams that come in fragments, by addresses, protocol and identification.
pub(crate) type Fragments = LruCache<(Level2, u8, u32), (u16, u16), FoldedState>;

/// Source and destination.
type Level2 = (Address, Address);

/// Sessions of TFTP by their client, its port and the server; as many as datagrams in fragments.
pub(crate) type Sessions = LruCache<(Address, u16, Address), (), FoldedState>;

/// What is remembered of earlier packets.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    fragments: Fragments,
    sessions: Sessions,
}

impl Default for Remembered {
    fn default() -> Remembered {
        let most = NonZeroUsize::new(MOST_DATAGRAMS).unwrap_or(NonZeroUsize::MIN);
        Remembered {
            fragments: LruCache::with_hasher(most, FoldedState::default()),
            sessions: LruCache::with_hasher(most, FoldedState::default()),
        }
    }
}

impl Remembered {
    /// Whether a datagram from one port to another is of a session that was begun at TFTP's. Such a beginning is noted.
    pub(crate) fn is_of_session(
        &mut self,
        (source, from): (Address, u16),
        (destination, to): (Address, u16),
    ) -> bool {
        if to == TFTP {
            self.sessions.put((source, from, destination), ());
            return false;
        }
        let ends = [(source, from, destination), (destination, to, source)];
        ends.iter().any(|end| self.sessions.get(end).is_some())
    }
}

/// What was found in a packet.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    /// The state of [`Paths`] after the last known layer.
    pub(crate) state: u32,
    /// Outermost first.
    pub(crate) levels: SmallVec<[Level; MOST_LEVELS]>,
    /// Where each layer of the directory begins in the packet.
    pub(crate) starts: SmallVec<[usize; 8]>,
}

/// A packet on its way through its layers.
struct Walk<'a, 'b> {
    directory: &'b Directory,
    paths: &'b mut Paths,
    remembered: &'b mut Remembered,
    /// What is left of the packet.
    bytes: &'a [u8],
    packet: &'a [u8],
    found: Layers,
}

/// The layers of a packet; `is_tagged`: a VLAN tag was taken out of it.
pub(crate) fn layers(
    directory: &Directory,
    paths: &mut Paths,
    remembered: &mut Remembered,
    (link, is_tagged): (LinkType, bool),
    bytes: &[u8],
) -> Layers {
    let mut walk = Walk {
        directory,
        paths,
        remembered,
        bytes,
        packet: bytes,
        found: Layers {
            state: START,
            levels: SmallVec::new(),
            starts: SmallVec::new(),
        },
    };
    let _: Option<()> = walk.link(link, is_tagged);
    walk.found
}

impl<'a> Walk<'a, '_> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u16> {
        self.take().map(|bytes| u16::from_be_bytes(*bytes))
    }

    fn base(&mut self, layer: u32) -> Option<()> {
        self.found.state = self.paths.base(self.directory, layer)?;
        self.found.starts.push(0);
        Some(())
    }

    fn step(&mut self, layer: u32) -> Option<()> {
        self.found.state = self.paths.step(self.directory, self.found.state, layer)?;
        self.begins_at(0);
        Some(())
    }

    /// The layer just entered begins so many octets behind what was taken.
    fn begins_at(&mut self, octets: usize) {
        let taken = self.bytes.as_ptr().addr() - self.packet.as_ptr().addr();
        self.found.starts.push(taken + octets);
    }

    /// Link layers. Those that the directory has no base layer for count as Ethernet of the same type.
    fn link(&mut self, link: LinkType, is_tagged: bool) -> Option<()> {
        let ethertype = match link {
            LinkType::ETHERNET => {
                self.take::<12>()?;
                self.number()?
            }
            LinkType::LINUX_SLL => {
                self.take::<14>()?;
                self.number()?
            }
            LinkType::LINUX_SLL2 => {
                let ethertype = self.number()?;
                self.take::<18>()?;
                ethertype
            }
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => match self.bytes.first()? >> 4 {
                4 => 0x0800,
                6 => 0x86dd,
                _ => return None,
            },
            _ => return None,
        };
        if is_tagged {
            self.base(1)?;
            return self.tagged(ethertype);
        }
        if ethertype > 1500 {
            self.base(1)?;
            return self.ethertype(ethertype);
        }
        self.llc()
    }

    fn llc(&mut self) -> Option<()> {
        const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
        let Some((head, rest)) = self.bytes.split_first_chunk::<3>() else {
            return self.base(2);
        };
        if *head != SNAP {
            self.base(2)?;
            // Unnumbered information has three octets before what it carries.
            self.bytes = rest;
            self.step(u32::from(head[0]))?;
            return self.above();
        }
        self.bytes = rest;
        let organisation = self.take::<3>().copied();
        match organisation {
            Some([0, 0, 0] | [0, 0, 0xf8]) => {
                self.base(3)?;
                let ethertype = self.number()?;
                self.ethertype(ethertype)
            }
            _ => self.base(4),
        }
    }

    /// What is behind a tag: LLC there is not a layer of the directory.
    fn type_or_length(&mut self, ethertype: u16) -> Option<()> {
        (ethertype > 1500).then_some(())?;
        self.ethertype(ethertype)
    }

    fn ethertype(&mut self, ethertype: u16) -> Option<()> {
        if is_tag(ethertype) {
            return self.tagged(ethertype);
        }
        self.step(u32::from(ethertype))?;
        self.above()
    }

    /// Tags, of any number and kind: they are one layer.
    fn tagged(&mut self, mut ethertype: u16) -> Option<()> {
        self.step(u32::from(CUSTOMER_TAG))?;
        while is_tag(ethertype) {
            self.take::<2>()?;
            ethertype = self.number()?;
        }
        self.type_or_length(ethertype)
    }

    /// What is above the layer just entered.
    fn above(&mut self) -> Option<()> {
        match self.paths.state(self.found.state).kind {
            Kind::Ipv4 => self.ipv4(),
            Kind::Ipv6 => self.ipv6(),
            Kind::Link => self.gre(),
            Kind::Llc | Kind::Ports | Kind::Leaf => None,
        }
    }

    fn ipv4(&mut self) -> Option<()> {
        let whole = self.bytes;
        // A network layer whose addresses were not captured is none.
        let head = self.take::<20>().filter(|head| head[0] >> 4 == 4)?;
        let header = usize::from(head[0] & 0x0f) * 4;
        let address = |at: usize| Address::v4([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let level = Level {
            is_v4: true,
            source: address(12),
            destination: address(16),
        };
        self.level(level)?;
        let length = match usize::from(u16::from_be_bytes([head[2], head[3]])) {
            0 => whole.len(),
            length => length.min(whole.len()),
        };
        if header < 20 {
            return None;
        }
        self.bytes = whole.get(header..length)?;
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        let identification = u32::from(u16::from_be_bytes([head[4], head[5]]));
        let fragment = (fragment & 0x3fff != 0).then_some((identification, fragment & 0x1fff != 0));
        self.protocol(level, head[9], fragment)
    }

    fn ipv6(&mut self) -> Option<()> {
        let head = self.take::<40>().filter(|head| head[0] >> 4 == 6)?;
        let address = |at: usize| {
            let bytes = head.get(at..).and_then(|rest| rest.first_chunk::<16>());
            bytes.map(|bytes| Address(*bytes))
        };
        let level = Level {
            is_v4: false,
            source: address(8)?,
            destination: address(24)?,
        };
        self.level(level)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        if length != 0 {
            self.bytes = self.bytes.get(..length).unwrap_or(self.bytes);
        }
        let (mut next, mut fragment) = (head[6], None);
        loop {
            let length = match next {
                // Hop-by-hop options, routing, destination options, mobility, HIP, Shim6.
                0 | 43 | 60 | 135 | 139 | 140 => 8 * (usize::from(*self.bytes.get(1)?) + 1),
                44 => {
                    let head = self.bytes.first_chunk::<8>()?;
                    let offset = u16::from_be_bytes([head[2], head[3]]);
                    let identification = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                    if offset & 0xfff9 != 0 {
                        fragment = Some((identification, offset & 0xfff8 != 0));
                    }
                    8
                }
                _ => return self.protocol(level, next, fragment),
            };
            let following = *self.bytes.first()?;
            // Headers that are messages of their own when nothing follows.
            if following == 59 && matches!(next, 135 | 139 | 140) {
                return self.protocol(level, next, fragment);
            }
            next = following;
            self.bytes = self.bytes.get(length..)?;
            if fragment.is_some_and(|(_, later)| later) {
                return self.protocol(level, next, fragment);
            }
        }
    }

    /// Notes a network layer, if there are not too many.
    fn level(&mut self, level: Level) -> Option<()> {
        if self.found.levels.len() < MOST_LEVELS {
            self.found.levels.push(level);
        }
        (self.found.levels.len() < MOST_LEVELS).then_some(())
    }

    /// What IP carries. Of a fragment its identification, and whether it is a later one.
    fn protocol(
        &mut self,
        level: Level,
        protocol: u8,
        fragment: Option<(u32, bool)>,
    ) -> Option<()> {
        let key = fragment.map(|(id, _)| ((level.source, level.destination), protocol, id));
        if let Some((_, true)) = fragment {
            self.found.state = self.paths.fragment(self.directory, self.found.state)?;
            self.step(u32::from(protocol))?;
            let ports = *self.remembered.fragments.get(&key?)?;
            return self.ports(ports, 0);
        }
        self.step(u32::from(protocol))?;
        if self.paths.state(self.found.state).kind != Kind::Ports {
            // The inside of a tunnel ends with this fragment.
            return self.above();
        }
        let [a, b, c, d] = *self.take::<4>()?;
        let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if let Some(key) = key.filter(|_| self.paths.fragments) {
            self.remembered.fragments.put(key, ports);
        }
        // Behind the ports: the rest of UDP's header, of SCTP's common one, of TCP's with its options.
        let header = match protocol {
            17 => 4,
            132 => 8,
            _ => (usize::from(self.bytes.get(8).unwrap_or(&0x50) >> 4) * 4).saturating_sub(4),
        };
        let ends = ((level.source, ports.0), (level.destination, ports.1));
        if protocol == 17
            && self.paths.sessions
            && self.remembered.is_of_session(ends.0, ends.1)
            && let Some(found) = self.paths.session(self.directory, self.found.state)
        {
            self.found.state = found;
            self.begins_at(header);
            return Some(());
        }
        self.ports(ports, header)
    }

    fn ports(&mut self, ports: (u16, u16), header: usize) -> Option<()> {
        let found = self
            .paths
            .application(self.directory, self.found.state, ports)?;
        self.found.state = found;
        self.begins_at(header);
        Some(())
    }

    /// Generic routing encapsulation (RFC 2784, 2890).
    fn gre(&mut self) -> Option<()> {
        let head = self.take::<4>()?;
        let flags = u16::from_be_bytes([head[0], head[1]]);
        if flags & 0x4007 != 0 {
            return None;
        }
        for optional in [0x8000, 0x2000, 0x1000] {
            if flags & optional != 0 {
                self.take::<4>()?;
            }
        }
        self.step(u32::from(u16::from_be_bytes([head[2], head[3]])))?;
        self.above()
    }
}
