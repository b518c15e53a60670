//! Gathered packets, and the order in which they are delivered.

use core::ffi::{CStr, c_int};
use std::time::Instant;

use flowgauge_locality::{Classifier, Index};
use flowgauge_sys::prefetch::prefetch_address;
use flowgauge_wire::{BATCH_SIZE, Batch, LinkType, Nanos, PacketDescriptor};

use crate::real::{Header, Pcap, real};

/// Bytes of memory per packet of a buffer, if as much of a packet is captured. Where packets are larger, the buffer is full of
/// fewer.
const MEAN_LEN: usize = 1536;
/// Larger packets are few; they get memory of their own.
const USUAL_LEN: usize = 1 << 16;
/// Packets of [`USUAL_LEN`] that there is room for beside those of mean size.
const LARGE: usize = 16;
/// The network header behind one of Ethernet is then at a multiple of 4.
const ALIGNED: usize = 16;
const OFFSET: usize = 2;
/// Prefetched of a packet before its turn.
const LINES: usize = 2;

/// Bytes of memory that offsets are into; above them are the numbers of large packets.
const MOST: usize = 1 << 31;

/// A packet of a buffer.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    header: Header,
    /// Where its bytes are in the buffer's memory, or [`MOST`] and the number of a large one.
    offset: u32,
    way: Way,
    /// Whether a VLAN tag was put back that the kernel had taken out.
    has_tag: bool,
}

/// A packet as it is delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) header: *const Header,
    pub(crate) data: *const u8,
    pub(crate) way: Way,
    /// Whether filters, as the kernel's, have not seen the VLAN tag in it.
    pub(crate) has_tag: bool,
}

/// Whether the host has sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// libpcap knew.
    Unknown,
    In,
    Out,
}

/// Why no more can be gathered.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// What libpcap's read function returned.
    pub(crate) status: c_int,
    /// Its message.
    message: Vec<u8>,
}

impl End {
    /// What the handle says now.
    ///
    /// # Safety
    /// The handle must be open.
    pub(crate) unsafe fn of(handle: *mut Pcap, status: c_int) -> End {
        // SAFETY: the handle is open; its message is a terminated string.
        let message = unsafe { CStr::from_ptr((real().error)(handle)) };
        End {
            status,
            message: message.to_bytes_with_nul().to_vec(),
        }
    }

    /// Makes the message that of the handle again.
    ///
    /// # Safety
    /// The handle must be open, and the one that the message is of.
    pub(crate) unsafe fn restore(&self, handle: *mut Pcap) {
        // SAFETY: the message was read from the handle's own memory for it, where it fits again.
        unsafe {
            let to = (real().error)(handle).cast::<u8>();
            core::ptr::copy(self.message.as_ptr(), to, self.message.len());
        }
    }
}

/// A buffer: packets come in, [are ordered](Buffer::seal) and go out.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// For packets that are copied.
    memory: Box<[u8]>,
    /// The block of a ring that they lie in otherwise.
    block: *const u8,
    used: usize,
    /// The most bytes that a packet has as a rule; 0 where they are not copied.
    packet_len: usize,
    packets: Vec<Gathered>,
    limit: usize,
    /// Packets larger than any should be.
    large: Vec<Box<[u8]>>,
    index: Index,
    descriptors: Vec<PacketDescriptor>,
    link: LinkType,
    /// When the first packet came.
    pub(crate) since: Option<Instant>,
    /// What follows the packets, if it is known.
    pub(crate) end: Option<End>,
    /// How often the filter had changed when the first packet came.
    pub(crate) filter: u32,
    is_sealed: bool,
}

// SAFETY: `block` belongs to the ring that is used by the same thread.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A buffer for so many packets of at most `snap_len` bytes.
    pub(crate) fn new(limit: usize, snap_len: usize) -> Buffer {
        let (packet_len, bytes) = lengths(limit, snap_len);
        // Zeroed pages, that take no memory before they are written to.
        Buffer::with_memory(limit, packet_len, vec![0; bytes].into_boxed_slice())
    }

    /// A buffer for so many packets that lie elsewhere.
    pub(crate) fn without_memory(limit: usize) -> Buffer {
        Buffer::with_memory(limit, 0, Box::default())
    }

    /// Whether there is memory for so many buffers.
    pub(crate) fn is_room_for(buffers: usize, limit: usize, snap_len: usize) -> bool {
        /// Lists, and what else is needed.
        const BESIDE: usize = 4 << 20;
        let one = lengths(limit, snap_len).1 + limit * size_of::<[Gathered; 2]>() + BESIDE;
        Vec::<u8>::new().try_reserve_exact(buffers * one).is_ok()
    }

    fn with_memory(limit: usize, packet_len: usize, memory: Box<[u8]>) -> Buffer {
        Buffer {
            memory,
            block: core::ptr::dangling(),
            used: 0,
            packet_len,
            packets: Vec::with_capacity(limit),
            limit,
            large: Vec::new(),
            index: Index::new(limit),
            descriptors: Vec::with_capacity(BATCH_SIZE),
            link: LinkType::ETHERNET,
            since: None,
            end: None,
            filter: 0,
            is_sealed: false,
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self, link: LinkType) {
        self.used = 0;
        self.packets.clear();
        self.large.clear();
        self.index.clear();
        self.descriptors.clear();
        self.link = link;
        (self.since, self.end) = (None, None);
        self.is_sealed = false;
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// How many packets may come at once, of those that are `wanted` in all.
    pub(crate) fn room(&self, wanted: usize) -> usize {
        let packets = self.limit.min(wanted).saturating_sub(self.packets.len());
        match self.packet_len {
            0 => packets,
            len => packets.min((self.memory.len() - self.used) / len),
        }
    }

    /// Takes a packet.
    #[inline]
    pub(crate) fn take(&mut self, header: &Header, data: &[u8], classifier: &mut Classifier) {
        let start = self.used.next_multiple_of(ALIGNED) + OFFSET;
        let end = start + data.len();
        let Some(room) = self.memory.get_mut(start..end) else {
            return self.take_large(header, data, classifier);
        };
        room.copy_from_slice(data);
        self.used = end;
        self.add(header, start, Way::Unknown);
        if self.descriptors.len() == BATCH_SIZE {
            self.classify(classifier);
        }
    }

    /// Adds a packet that lies there.
    #[inline]
    pub(crate) fn add(&mut self, header: &Header, offset: usize, way: Way) {
        self.packets.push(Gathered {
            header: *header,
            offset: offset as u32,
            way,
            has_tag: false,
        });
        self.descriptors.push(PacketDescriptor {
            time: Nanos::ZERO,
            offset: offset as u32,
            captured_len: header.captured_len,
            wire_len: header.wire_len,
            link: self.link,
            ..PacketDescriptor::default()
        });
    }

    #[cold]
    fn take_large(&mut self, header: &Header, data: &[u8], classifier: &mut Classifier) {
        self.classify(classifier);
        self.add(header, MOST + self.large.len(), Way::Unknown);
        if let Some(descriptor) = self.descriptors.first_mut() {
            descriptor.offset = 0;
        }
        classifier.add(&Batch::new(data, &self.descriptors), &mut self.index);
        self.descriptors.clear();
        self.large.push(data.into());
    }

    /// Says that packets lie in this block, which is left alone until they were delivered, and has their headers fetched.
    pub(crate) fn lie_in(&mut self, block: &[u8]) {
        /// Where ports end, of most.
        const HEADERS: usize = 57;
        (self.block, self.used) = (block.as_ptr(), block.len());
        for packet in &self.descriptors {
            let start = self.block.wrapping_add(packet.offset as usize);
            prefetch_address(start);
            prefetch_address(start.wrapping_add(HEADERS));
        }
    }

    /// How much was captured of a packet.
    pub(crate) fn captured_len(&self, number: usize) -> u32 {
        let packet = self.packets.get(number);
        packet.map_or(0, |packet| packet.header.captured_len)
    }

    /// Says that a packet that is not classified yet begins there, as a tag of so many bytes is in it; of all `most` are captured.
    pub(crate) fn lengthen(&mut self, number: usize, offset: u32, by: u32, most: u32) {
        let classified = self.packets.len() - self.descriptors.len();
        let descriptor = self.descriptors.get_mut(number - classified);
        if let (Some(packet), Some(descriptor)) = (self.packets.get_mut(number), descriptor) {
            let header = &mut packet.header;
            header.captured_len = (header.captured_len + by).min(most);
            header.wire_len += by;
            (packet.offset, descriptor.offset) = (offset, offset);
            packet.has_tag = true;
            descriptor.captured_len = header.captured_len;
            descriptor.wire_len = header.wire_len;
        }
    }

    /// Finds the classes of packets that were added.
    pub(crate) fn classify(&mut self, classifier: &mut Classifier) {
        // SAFETY: so many bytes are there; of a ring, in a block that is not given back before all were delivered.
        let memory = unsafe { core::slice::from_raw_parts(self.start(), self.used) };
        classifier.add(&Batch::new(memory, &self.descriptors), &mut self.index);
        self.descriptors.clear();
    }

    /// Ends gathering: from now on packets are delivered.
    pub(crate) fn seal(&mut self, classifier: &mut Classifier) {
        self.classify(classifier);
        self.is_sealed = true;
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// The packet whose turn it is: its header and its bytes stay there until [`Buffer::clear`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Delivery> {
        if !self.is_sealed {
            return None;
        }
        let packet = self.packets.get(self.index.pop()?)?;
        let following = self.index.following();
        if let Some(next) = following.and_then(|next| self.packets.get(next)) {
            for line in 0..LINES {
                prefetch_address(self.data(next).wrapping_add(64 * line));
            }
        }
        Some(Delivery {
            header: &raw const packet.header,
            data: self.data(packet),
            way: packet.way,
            has_tag: packet.has_tag,
        })
    }

    #[inline]
    fn data(&self, packet: &Gathered) -> *const u8 {
        let offset = packet.offset as usize;
        match self.large.get(offset.wrapping_sub(MOST)) {
            Some(large) => large.as_ptr(),
            None => self.start().wrapping_add(offset),
        }
    }

    #[inline]
    fn start(&self) -> *const u8 {
        match self.packet_len {
            0 => self.block,
            _ => self.memory.as_ptr(),
        }
    }

    /// How many packets are yet to be delivered.
    pub(crate) fn left(&self) -> usize {
        match self.is_sealed {
            true => self.index.left(),
            false => self.packets.len(),
        }
    }

    /// In how many classes its packets are, and how often the class changed between packets as they came.
    pub(crate) fn classes(&self) -> (usize, usize) {
        (self.index.classes(), self.index.runs())
    }
}

/// Bytes of one packet as a rule, and of a buffer's memory.
fn lengths(limit: usize, snap_len: usize) -> (usize, usize) {
    let packet_len = snap_len.clamp(64, USUAL_LEN) + 2 * ALIGNED;
    let bytes = limit * packet_len.min(MEAN_LEN) + LARGE * packet_len;
    (packet_len, bytes.min(MOST))
}
