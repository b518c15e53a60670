//! `deduplicate`: each packet once.

use flowgauge_capture::Deduplicator;
use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, Parallel, ResultInfo, ResultValue, options,
};
use flowgauge_wire::DecodeFlags;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "deduplicate",
    aliases: &["dedup"],
    summary: "drops duplicate packets, as mirrored ports produce them",
    help: "A copy has the same innermost IP datagram, captured bytes and length, as a packet let through at \
           most `window` before. Time to live or hop limit, the checksum of the IPv4 header and everything \
           below IP (MAC addresses, VLAN tags, outer headers, padding) are ignored. Packets other than IP are \
           compared whole. Retransmitted TCP segments have another IP id; if the sender leaves it 0 (IPv6 has none) \
           and TCP has no timestamps, they count as copies within the window. A keyed hash of 128 \
           bits is kept of each packet: the chance of mistaking a packet for a copy is 2^-112. Inside \
           demultiplexers all keys share one memory.",
    options: Options::ALL,
    result: Some(ResultInfo::number("copies dropped", "packets")),
    parallel: Parallel::ByFlow,
    make: |settings| {
        let options = Options::read(settings);
        Ok(Box::new(Deduplicate {
            deduplicator: Deduplicator::new(options.window, options.keep),
            copies: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    window: Duration = "100ms", "time within which copies are expected";
    keep: Integer(1, 1 << 24) as usize = "65536", "packets remembered, 32 to 48 bytes each";
}

struct Deduplicate {
    deduplicator: Deduplicator,
    copies: u64,
}

impl Component for Deduplicate {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        for (index, packet) in all.iter() {
            // A datagram put together from fragments has no frame of its own.
            let is_frame = !packet.flags.contains(DecodeFlags::REASSEMBLED);
            let descriptor = all.batch.packets.get(usize::from(packet.index));
            let descriptor = descriptor.filter(|_| is_frame);
            if self
                .deduplicator
                .is_copy(packet, all.bytes(packet), descriptor)
            {
                packets.selected.remove(index);
                self.copies += 1;
            }
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.copies))
    }

    fn reset(&mut self) {
        self.deduplicator.clear();
        self.copies = 0;
    }
}
