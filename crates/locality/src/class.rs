//! Which class a packet is in.

use core::fmt;
use core::str::FromStr;

use flowgauge_capture::{Error, Filter};
use flowgauge_wire::{
    Batch, DecodeFlags, DecodeOptions, Decoded, DecodedBatch, Decoder, HashSeed, LinkType, Problem,
    scattered,
};

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
#[error("\"{}\" is no class (dst-port, lower-port, ports, flow)", .0.escape_debug())]
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
        }
    }

    /// By a table of filters in pcap-filter(7) syntax for packets of this link type: the first that matches is the class,
    /// and those that match none are one more.
    ///
    /// # Errors
    /// [`Error::Filter`] of one that does not compile.
    pub fn by_filters<S: AsRef<str>>(filters: &[S], link: LinkType) -> Result<Classifier, Error> {
        const WHOLE: u32 = 262_144;
        let compiled = filters
            .iter()
            .map(|expression| Filter::compile(expression.as_ref(), link, WHOLE));
        let filters = compiled.collect::<Result<_, _>>()?;
        Ok(Classifier {
            filters,
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
        self.decoder.decode_batch(batch, &mut self.decoded);
        let packets = &self.decoded.packets;
        // A loop for each: the class is not asked for per packet.
        match self.class {
            Class::DstPort => add_each(packets, index, |packet| packet.destination().1.into()),
            Class::LowerPort => add_each(packets, index, |packet| {
                packet.key.low_port.min(packet.key.high_port).into()
            }),
            Class::Ports => add_each(packets, index, |packet| {
                let (source, destination) = (packet.source().1, packet.destination().1);
                let ports = u64::from(source) << 16 | u64::from(destination);
                u32::from(scattered(ports) as u16)
            }),
            Class::Flow => {
                let seed = &self.seed;
                add_each(packets, index, |packet| {
                    u32::from(seed.hash(&packet.key) as u16)
                });
            }
        }
    }
}

/// Adds packets, each in the class that `class` says, those without ports in theirs.
#[inline(always)]
fn add_each(packets: &[Decoded], index: &mut Index, class: impl Fn(&Decoded) -> u32) {
    for packet in packets {
        let class = if has_ports(packet) {
            class(packet)
        } else {
            NO_PORT
        };
        index.push(class);
    }
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
