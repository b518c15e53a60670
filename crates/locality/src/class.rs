//! Which class a packet is in.

use core::fmt;
use core::str::FromStr;

use flowgauge_capture::Filter;
use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodeFlags, DecodeOptions, Decoded, DecodedBatch, Decoder, HashSeed,
    LinkType, PacketDescriptor, Problem, scattered,
};

use crate::filters::{Filters, FiltersError};
use crate::index::{Index, NO_PORT};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// What packets have in common that are delivered together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// The destination port.
    #[default]
    DstPort,
    /// The lower port: that of the server as a rule, in both directions.
    LowerPort,
    /// Source and destination port.
    Ports,
    /// The addresses, ports and protocol, in both directions: packets of a connection keep their order.
    Flow,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 4] = [Class::DstPort, Class::LowerPort, Class::Ports, Class::Flow];

    /// Its name as an option.
    pub const fn name(self) -> &'static str {
        match self {
            Class::DstPort => "dst-port",
            Class::LowerPort => "lower-port",
            Class::Ports => "ports",
            Class::Flow => "flow",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is the name of no [`Class`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{}\" is not a class (dst-port, lower-port, ports, flow)", .0.escape_debug())]
pub struct NotAClass(pub String);

impl FromStr for Class {
    type Err = NotAClass;

    fn from_str(text: &str) -> Result<Class, NotAClass> {
        let found = Class::ALL.into_iter().find(|class| class.name() == text);
        found.ok_or_else(|| NotAClass(text.to_owned()))
    }
}

/// Finds the classes of packets by their headers, as they stand outermost: what is in a tunnel is not looked at.
#[derive(Debug)]
pub struct Classifier {
    class: Class,
    decoder: Decoder,
    decoded: DecodedBatch,
    seed: HashSeed,
    /// The first that matches says the class, where there are any.
    filters: Vec<Filter>,
    /// Packets of a batch that are to be decoded.
    others: Vec<PacketDescriptor>,
}

impl Classifier {
    /// By what is in headers.
    pub fn new(class: Class) -> Classifier {
        let mut options = DecodeOptions::default();
        // A program sees a tunnel's packets in one flow, and their order.
        options.decapsulate = false;
        Classifier {
            class,
            decoder: Decoder::new(options),
            decoded: DecodedBatch::new(),
            // A known one: the order is the same each time. Who brings classes together by it gains nothing, as no list
            // takes longer to append to than another.
            seed: HashSeed::PUBLIC,
            filters: Vec::new(),
            others: Vec::with_capacity(BATCH_SIZE),
        }
    }

    /// By filters for packets of this link type: the first that matches is the class,
    /// and those that match none are one more.
    ///
    /// # Errors
    /// Of one that does not compile.
    pub fn by_filters(filters: &Filters, link: LinkType) -> Result<Classifier, FiltersError> {
        Ok(Classifier {
            filters: filters.compile(link)?,
            ..Classifier::new(Class::DstPort)
        })
    }

    /// Adds the packets of a batch to the index.
    pub fn add(&mut self, batch: &Batch<'_>, index: &mut Index) {
        if !self.filters.is_empty() {
            for (number, packet) in batch.packets.iter().enumerate() {
                let (bytes, wire_len) = (batch.bytes(number), packet.wire_len);
                let mut filters = self.filters.iter();
                let first = filters.position(|filter| filter.matches(bytes, wire_len));
                index.push(first.map_or(NO_PORT, |first| first as u32));
            }
            return;
        }
        // A loop for each: the class is not asked for per packet.
        match self.class {
            Class::DstPort => {
                self.add_by_ports(batch, index, |(_, destination)| destination.into())
            }
            Class::LowerPort => {
                self.add_by_ports(batch, index, |(source, destination)| {
                    source.min(destination).into()
                });
            }
            Class::Ports => self.add_by_ports(batch, index, |(source, destination)| {
                let ports = u64::from(source) << 16 | u64::from(destination);
                u32::from(scattered(ports) as u16)
            }),
            Class::Flow => {
                self.decoder.decode_batch(batch, &mut self.decoded);
                for packet in &self.decoded.packets {
                    let class = match has_ports(packet) {
                        true => u32::from(self.seed.hash(&packet.key) as u16),
                        false => NO_PORT,
                    };
                    index.push(class);
                }
            }
        }
    }

    /// Adds packets, each in the class that `class` makes of its ports.
    #[inline(always)]
    fn add_by_ports(
        &mut self,
        batch: &Batch<'_>,
        index: &mut Index,
        class: impl Fn((u16, u16)) -> u32,
    ) {
        const DECODED: u32 = u32::MAX;
        self.others.clear();
        let mut classes = [DECODED; BATCH_SIZE];
        let packets = batch.packets.iter().zip(&mut classes);
        for (number, (packet, to)) in packets.enumerate() {
            match plain_ports(packet, batch.bytes(number)) {
                Some(ports) => *to = class(ports),
                None => self.others.push(*packet),
            }
        }
        let mut decoded = [].iter();
        if !self.others.is_empty() {
            let others = Batch::new(batch.memory, &self.others);
            self.decoder.decode_batch(&others, &mut self.decoded);
            decoded = self.decoded.packets.iter();
        }
        for &known in classes.iter().take(batch.packets.len()) {
            if known != DECODED {
                index.push(known);
                continue;
            }
            let packet = decoded.next().filter(|packet| has_ports(packet));
            let found = packet.map(|packet| class((packet.source().1, packet.destination().1)));
            index.push(found.unwrap_or(NO_PORT));
        }
    }
}

/// Source and destination port of TCP or UDP directly on IP on Ethernet, as a decoder would find them; `None` where it has more to
/// look at.
#[inline(always)]
fn plain_ports(packet: &PacketDescriptor, bytes: &[u8]) -> Option<(u16, u16)> {
    const ETHERNET: usize = 14;
    if packet.link != LinkType::ETHERNET {
        return None;
    }
    // As far as the ports behind IPv6.
    let head: &[u8; ETHERNET + 44] = bytes.first_chunk()?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let on_wire = (packet.wire_len as usize).saturating_sub(ETHERNET);
    let (network, protocol, end) = match (half(12), head[14]) {
        // Without options, and whole.
        (0x0800, 0x45) if half(20) & 0x3fff == 0 => (20, head[23], usize::from(half(16))),
        (0x86dd, 0x60..=0x6f) => (40, head[20], 40 + usize::from(half(18))),
        _ => return None,
    };
    let least = match protocol {
        TCP => 20,
        UDP => 8,
        _ => return None,
    };
    let is_there = end <= on_wire && network + least <= end;
    let ports = ETHERNET + network;
    is_there.then(|| (half(ports), half(ports + 2)))
}

/// Whether the packet has ports. Fragments have none, not even the first: all of a datagram stay together.
#[inline(always)]
fn has_ports(packet: &Decoded) -> bool {
    let key = &packet.key;
    let is_whole =
        matches!(key.protocol, TCP | UDP | SCTP) && !packet.flags.contains(DecodeFlags::FRAGMENT);
    // Where the ports are cut off as well, they are 0.
    is_whole && (packet.problem == Problem::None || (key.low_port | key.high_port) != 0)
}
