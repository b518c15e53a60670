//! `hash`: a sum over the bytes of each packet.

use flowgauge_record::link::LinkHeader;
use flowgauge_stack::{ComponentInfo, Packets, ResultInfo, options};
use flowgauge_wire::{DecodeFlags, Decoded};

use crate::layers;
use crate::per_packet::{OF_EACH_PACKET, each};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "hash",
    summary: "computes a sum over the bytes of each packet",
    help: "The hash of MAPI: the number of bytes plus their sum, modulo 500009. Captured bytes count; padding after \
       an IP datagram counts in layer 0 only.",
    options: Options::ALL,
    result: Some(ResultInfo::per_packet("sum of the last packet", "")),
    make: |settings| {
        let of = Options::read(settings).layer;
        Ok(each(move |packets, packet| {
            Some(sum(layer(of, packets, packet)))
        }))
    },
    ..OF_EACH_PACKET
};

options! {
    struct Options;
    layer: Integer(0, 3) = "0",
        "0: the whole frame, 1: without the link layer, 2: what IP carries, 3: what the transport carries";
}

/// What MAPI's sums are modulo of.
const MODULUS: u64 = 500_009;

fn layer<'a>(layer: i64, packets: &Packets<'a>, packet: &Decoded) -> &'a [u8] {
    match layer {
        0 => packets.bytes(packet),
        1 if packet.has_ip() => layers::datagram(packets, packet),
        1 => {
            let bytes = packets.bytes(packet);
            let descriptor = packets.batch.packets.get(usize::from(packet.index));
            let is_whole = packet.flags.contains(DecodeFlags::REASSEMBLED);
            let descriptor = descriptor.filter(|_| !is_whole);
            let header = descriptor.and_then(|found| LinkHeader::parse(found.link, bytes));
            header.map_or(bytes, |header| header.payload)
        }
        2 => layers::transport(packets, packet),
        _ => layers::payload(packets, packet),
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    (bytes.len() as u64 + sum) % MODULUS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_of_length_and_bytes() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[1, 2, 3]), 9);
        assert_eq!(sum(&[255; 4000]), (4000 * 256) % MODULUS);
    }
}
