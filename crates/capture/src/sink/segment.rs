//! A capture file that is being written.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use flowgauge_sys::files::{self, How};
use flowgauge_wire::{Ledger, LinkType, Nanos, PacketDescriptor};

use crate::error::Error;
use crate::sink::encode;
use crate::sink::output::{Compression, Output};
use crate::sink::{FileFormat, Written};
use crate::source::Interface;

/// More interfaces than this are not described in each of several files.
const MANY_INTERFACES: usize = 64;

/// A file, and what its headers have said so far.
pub(crate) struct Segment {
    output: Output,
    format: FileFormat,
    comment: Option<String>,
    /// Link type in the header of a pcap file, once it is written.
    link: Option<LinkType>,
    /// Interfaces described in a pcapng file, by their number there.
    described: Vec<Described>,
    /// Their numbers, by the source's number and the link type.
    numbers: HashMap<(u16, LinkType), u32>,
    /// How many of the source's interfaces are described whether or not they have packets.
    announced: usize,
    /// Whether any are, of very many.
    announces: bool,
    /// The one that the last packet came from.
    recent: usize,
    begun: bool,
    pub(crate) first: Option<Nanos>,
    pub(crate) last: Nanos,
}

struct Described {
    interface: u16,
    link: LinkType,
    packets: u64,
    first: Nanos,
    last: Nanos,
}

impl Segment {
    pub(crate) fn create(
        path: &Path,
        format: FileFormat,
        compression: Compression,
        comment: Option<&str>,
        append: bool,
    ) -> Result<Segment, Error> {
        let output = Output::create(path, compression, append)?;
        // In pcapng another section follows.
        let goes_on = output.base() > 0 && format != FileFormat::PcapNg;
        let link = goes_on.then(|| link_of(path)).flatten();
        Ok(Segment {
            output,
            format,
            comment: comment.map(str::to_owned),
            link,
            described: Vec::new(),
            numbers: HashMap::new(),
            announced: 0,
            announces: true,
            recent: 0,
            begun: goes_on,
            first: None,
            last: Nanos::ZERO,
        })
    }

    /// Of very many interfaces only those with packets are described: this is one of several files,
    /// and the first has described them all.
    pub(crate) fn follow(&mut self) {
        self.announces = false;
    }

    pub(crate) fn path(&self) -> &Path {
        self.output.path()
    }

    pub(crate) fn size(&self) -> u64 {
        self.output.size()
    }

    pub(crate) fn packets(&self) -> u64 {
        self.output.packets()
    }

    /// Adds what is in the file to `written`.
    pub(crate) fn add_to(&self, written: &mut Written) {
        written.packets += self.output.packets();
        written.wire_bytes += self.output.wire_bytes();
        written.bytes += self.output.size();
    }

    /// Writes the file header, as far as `interfaces` determine it.
    pub(crate) fn begin(&mut self, interfaces: &[Interface]) {
        if self.format == FileFormat::PcapNg {
            if !self.begun {
                encode::section_header(&mut self.output.buffer, self.comment.as_deref());
                self.begun = true;
            }
            if self.announces || interfaces.len() <= MANY_INTERFACES {
                for (index, interface) in interfaces.iter().enumerate().skip(self.announced) {
                    let index = index as u16;
                    if !self.numbers.contains_key(&(index, interface.link)) {
                        self.describe(index, interface);
                    }
                }
                self.announced = interfaces.len();
            }
        } else if let (false, Some(interface)) = (self.begun, interfaces.first()) {
            self.pcap_header(interface.link, interface.snap_len);
        }
    }

    fn pcap_header(&mut self, link: LinkType, snap_len: u32) {
        let nanoseconds = self.format == FileFormat::PcapNanoseconds;
        encode::pcap_header(&mut self.output.buffer, link, snap_len, nanoseconds);
        self.link = Some(link);
        self.begun = true;
    }

    fn describe(&mut self, index: u16, interface: &Interface) {
        encode::interface_description(&mut self.output.buffer, interface);
        let number = self.described.len() as u32;
        self.numbers.insert((index, interface.link), number);
        self.described.push(Described {
            interface: index,
            link: interface.link,
            packets: 0,
            first: Nanos::MAX,
            last: Nanos::ZERO,
        });
    }

    /// Appends a packet.
    #[inline]
    pub(crate) fn write(
        &mut self,
        packet: &PacketDescriptor,
        bytes: &[u8],
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        if self.format == FileFormat::PcapNg {
            let number = self.number(packet, interfaces);
            encode::enhanced_packet(&mut self.output.buffer, packet, bytes, number);
        } else {
            if self.link != Some(packet.link) {
                self.check_link(packet, interfaces)?;
            }
            let nanoseconds = self.format == FileFormat::PcapNanoseconds;
            encode::pcap_record(&mut self.output.buffer, packet, bytes, nanoseconds);
        }
        self.first.get_or_insert(packet.time);
        self.last = self.last.max(packet.time);
        self.output.packet_done(packet.wire_len)
    }

    /// The pcapng number of the packet's interface, which is described first if need be.
    #[inline]
    fn number(&mut self, packet: &PacketDescriptor, interfaces: &[Interface]) -> u32 {
        let is_it = |one: &Described| one.interface == packet.interface && one.link == packet.link;
        if !self.described.get(self.recent).is_some_and(is_it) {
            self.begin(interfaces);
            self.recent = match self.numbers.get(&(packet.interface, packet.link)) {
                Some(&number) => number as usize,
                None => {
                    let known = interfaces.get(usize::from(packet.interface));
                    let mut interface = known.cloned().unwrap_or_default();
                    interface.link = packet.link;
                    self.describe(packet.interface, &interface);
                    self.described.len() - 1
                }
            };
        }
        if let Some(one) = self.described.get_mut(self.recent) {
            one.packets += 1;
            one.first = one.first.min(packet.time);
            one.last = one.last.max(packet.time);
        }
        self.recent as u32
    }

    #[cold]
    fn check_link(
        &mut self,
        packet: &PacketDescriptor,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        if let Some(link) = self.link {
            return Err(Error::Sink {
                path: self.path().to_owned(),
                reason: format!(
                    "a pcap file holds one link type, {} here, and a packet has {}",
                    link.0, packet.link.0
                ),
                hint: "write pcapng, which holds several".to_owned(),
            });
        }
        if self.begun {
            // The header is in what the file had before, and compressed.
            self.link = Some(packet.link);
            return Ok(());
        }
        let interface = interfaces.get(usize::from(packet.interface));
        self.pcap_header(packet.link, interface.map_or(0, |one| one.snap_len));
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.output.flush()
    }

    /// Writes statistics and trailers.
    pub(crate) fn close(
        &mut self,
        interfaces: &[Interface],
        ledger: Option<&Ledger>,
    ) -> Result<(), Error> {
        if !self.begun || (self.format == FileFormat::PcapNg && self.described.is_empty()) {
            // An empty capture is still a capture.
            let unknown = [Interface::default()];
            let known = if interfaces.is_empty() {
                &unknown
            } else {
                interfaces
            };
            self.begin(known);
        }
        if self.format == FileFormat::PcapNg {
            let only = self.described.len() == 1 && interfaces.len() <= 1;
            for (number, one) in self.described.iter().enumerate() {
                encode::interface_statistics(
                    &mut self.output.buffer,
                    number as u32,
                    one.first.0.min(one.last.0),
                    one.last.0,
                    one.packets,
                    ledger.filter(|_| only),
                );
            }
        }
        self.output.close()
    }
}

/// The link type in the header of a pcap file that this program wrote.
fn link_of(path: &Path) -> Option<LinkType> {
    let mut header = [0; 24];
    let file = files::named().open(path, How::read());
    file.ok()?.read_exact(&mut header).ok()?;
    let [a, b, c, d, .., e, f, _, _] = header;
    let is_pcap = matches!(u32::from_le_bytes([a, b, c, d]), 0xa1b2_c3d4 | 0xa1b2_3c4d);
    is_pcap.then_some(LinkType(u16::from_le_bytes([e, f])))
}

/// Adds what is new among a source's interfaces to those that are known; false when nothing is. They
/// come one by one, by the thousand in some files.
pub(crate) fn learn(known: &mut Vec<Interface>, interfaces: &[Interface]) -> bool {
    if interfaces.len() == known.len() {
        return false;
    }
    known.truncate(interfaces.len());
    known.extend_from_slice(interfaces.get(known.len()..).unwrap_or(&[]));
    true
}
