//! Any bytes as a packet.

use flowgauge_wire::checksum::verify_transport;
use flowgauge_wire::decode::{DatagramOrigin, DecodeOptions, Decoder, fragment_info, hash_batch};
use flowgauge_wire::{
    Batch, CommunityId, DecodedBatch, LinkType, PacketDescriptor, PacketFlags, TcpOptions,
};

/// Decodes `data` in every way there is: the first byte is the link type, the rest the frame,
/// once as it is, once as cut by a snap length, once as a reassembled datagram. Panics when a
/// result contradicts the bytes.
pub(crate) fn fuzz_decode(data: &[u8]) {
    let Some((&link, frame)) = data.split_first() else {
        return;
    };
    let mut options = DecodeOptions::default();
    options.separate_vlans = link & 1 == 0;
    options.separate_tunnels = link & 2 == 0;
    let mut decoder = Decoder::new(options);
    let mut out = DecodedBatch::new();
    let link = match link {
        255 => LinkType::LINUX_SLL2,
        254 => LinkType::NFLOG,
        other => LinkType(u16::from(other)),
    };
    for (wire_len, flags) in [
        (frame.len(), PacketFlags::default()),
        (frame.len() + 2000, PacketFlags::VLAN),
    ] {
        let descriptor = PacketDescriptor {
            captured_len: frame.len() as u32,
            wire_len: wire_len as u32,
            link,
            vlan_tci: 7,
            flags,
            ..PacketDescriptor::default()
        };
        let descriptors = [descriptor];
        let batch = Batch::new(frame, &descriptors);
        decoder.decode_batch(&batch, &mut out);
        check(&batch, &out);
        let Some(last) = out.packets.last().copied() else {
            return;
        };
        let origin = DatagramOrigin::of(&last, last.wire_len, 2);
        decoder.decode_datagram(frame, &origin, &mut out);
        check(&batch, &out);
        hash_batch(&mut out.packets);
    }
}

fn check(batch: &Batch<'_>, out: &DecodedBatch) {
    for packet in &out.packets {
        let bytes = out.bytes(batch, packet);
        let payload = out.payload(batch, packet);
        assert_eq!(payload.len(), packet.payload_captured as usize);
        assert!(packet.payload_captured <= packet.payload_len);
        assert!(packet.payload_len <= packet.ip_len);
        verify_transport(bytes, packet);
        assert_eq!(CommunityId::of(&packet.key, 0).is_some(), packet.has_ip());
        assert!(out.tunnel(packet).is_some() == (packet.tunnel != 0));
        assert!(TcpOptions::of(bytes, packet).count() <= 40);
        if let Some(fragment) = fragment_info(bytes, usize::from(packet.ip_offset)) {
            assert!(fragment.data_offset as usize >= usize::from(fragment.header_len));
        }
    }
}
