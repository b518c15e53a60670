//! `uncook`: long packets of TCP as segments again, MAPI's UNCOOK.

use flowgauge_stack::{Component, ComponentInfo, Items, Outlet, ResultInfo, ResultValue, options};
use flowgauge_wire::checksum::Checksum;
use flowgauge_wire::{DecodeFlags, Decoded, PacketDescriptor};

use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "uncook",
    summary: "divides packets of cook into segments",
    help: "TCP packets with more than `size` bytes of data become segments of that size, with correct sequence \
       numbers, lengths and checksums, and the packet's time. So packets made by cook and changed by anonymize can be \
       written in sizes that fit a network. Segment boundaries differ from those of the trace, which cook does not \
       keep. Other packets pass unchanged.",
    options: Options::ALL,
    result: Some(ResultInfo::number("segments made", "packets")),
    make: |settings| {
        Ok(Box::new(Uncook {
            options: Options::read(settings),
            made: Made::default(),
            count: 0,
            headers: Vec::new(),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    size: Integer(1, 65_495) as usize = "1460", "bytes of data in a segment";
}

const FIN: u8 = 1;
const PSH: u8 = 8;

struct Uncook {
    options: Options,
    made: Made,
    count: u64,
    /// Memory that serves again.
    headers: Vec<u8>,
}

/// Where a packet's parts are.
#[derive(Clone, Copy)]
struct Places {
    ip: usize,
    tcp: usize,
    data: usize,
    end: usize,
}

fn be16(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes).into())
}

/// The parts of a packet of TCP that is whole.
fn places(packet: &Decoded, bytes: &[u8]) -> Option<Places> {
    let is_tcp = packet.has_ip()
        && packet.key.protocol == 6
        && packet.flags.contains(DecodeFlags::TRANSPORT)
        && !packet.flags.contains(DecodeFlags::REASSEMBLED);
    let ip = usize::from(packet.ip_offset);
    let length = match bytes.get(ip)? >> 4 {
        4 => be16(bytes, ip + 2),
        _ => 40 + be16(bytes, ip + 4),
    };
    let places = Places {
        ip,
        tcp: packet.transport_offset.into(),
        data: packet.payload_offset as usize,
        end: ip + length,
    };
    let is_whole = places.tcp + 20 <= places.data && places.end <= bytes.len();
    (is_tcp && is_whole && places.data <= places.end).then_some(places)
}

impl Uncook {
    /// The headers of the segment whose data begins `from` bytes behind the packet's.
    fn header(&mut self, bytes: &[u8], at: Places, from: usize, data: &[u8]) {
        let Places {
            ip,
            tcp,
            data: begin,
            end,
        } = at;
        let headers = &mut self.headers;
        headers.clear();
        headers.extend_from_slice(bytes.get(..begin).unwrap_or_default());
        let is_last = begin + from + data.len() == end;
        let transport = begin - tcp + data.len();
        let mut put = |at: usize, value: &[u8]| {
            if let Some(place) = headers.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        let sequence = [be16(bytes, tcp + 4), be16(bytes, tcp + 6)];
        let sequence = (sequence[0] << 16 | sequence[1]) as u32;
        put(tcp + 4, &sequence.wrapping_add(from as u32).to_be_bytes());
        if !is_last {
            let flags = bytes.get(tcp + 13).copied().unwrap_or(0);
            put(tcp + 13, &[flags & !(FIN | PSH)]);
        }
        put(tcp + 16, &[0; 2]);
        let is_v4 = bytes.get(ip).is_some_and(|first| first >> 4 == 4);
        let addresses = if is_v4 {
            ip + 12..ip + 20
        } else {
            ip + 8..ip + 40
        };
        let length = (begin - ip + data.len()) as u16;
        match is_v4 {
            true => {
                let number = be16(bytes, ip + 4) + from / self.options.size;
                put(ip + 2, &length.to_be_bytes());
                put(ip + 4, &(number as u16).to_be_bytes());
                put(ip + 10, &[0; 2]);
            }
            false => put(ip + 4, &(length - 40).to_be_bytes()),
        }
        let sum = |parts: &[&[u8]]| {
            let mut sum = Checksum::default();
            parts.iter().for_each(|part| sum.add(part));
            sum.finish().to_be_bytes()
        };
        let [high, low] = (transport as u16).to_be_bytes();
        let whole = sum(&[
            headers.get(addresses).unwrap_or_default(),
            &[0, 6, high, low],
            headers.get(tcp..).unwrap_or_default(),
            data,
        ]);
        let of_ip = sum(&[headers.get(ip..tcp).unwrap_or_default()]);
        for (at, value, is_there) in [(tcp + 16, whole, true), (ip + 10, of_ip, is_v4)] {
            if let (Some(place), true) = (headers.get_mut(at..at + 2), is_there) {
                place.copy_from_slice(&value);
            }
        }
    }
}

impl Component for Uncook {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let size = self.options.size;
        let is_long = |packet: &Decoded| {
            let places = places(packet, packets.bytes(packet));
            places.filter(|places| places.end - places.data > size)
        };
        if !packets.iter().any(|(_, packet)| is_long(packet).is_some()) {
            return;
        }
        // In their order: what is not divided is made anew, too.
        for (index, packet) in packets.iter() {
            let Some(descriptor) = packets.batch.packets.get(usize::from(packet.index)) else {
                continue;
            };
            let bytes = packets.bytes(packet);
            let origin = packets.origins.get(index).copied().unwrap_or(packet.index);
            let key = packets.key(index);
            let Some(places) = is_long(packet) else {
                self.made.push(*descriptor, &[bytes], key, origin);
                continue;
            };
            let data = bytes.get(places.data..places.end).unwrap_or_default();
            for (number, part) in data.chunks(size).enumerate() {
                self.header(bytes, places, number * size, part);
                let descriptor = PacketDescriptor {
                    wire_len: 0,
                    ..*descriptor
                };
                self.made
                    .push(descriptor, &[&self.headers, part], key, origin);
                self.count += 1;
                if self.made.is_full() {
                    self.made.give(packets.before, out, |_, _| {});
                }
            }
        }
        self.made.give(packets.before, out, |_, _| {});
        items.clear();
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.count))
    }

    fn reset(&mut self) {
        self.count = 0;
    }
}
