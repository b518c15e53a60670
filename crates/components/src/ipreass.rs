//! `ipreass`: datagrams out of their fragments.

use flowgauge_reassembly::{DefragmentConfig, Defragmenter, Fragment, Outcome};
use flowgauge_stack::{
    Component, ComponentInfo, ItemType, Items, Outlet, Output, Packets, Parallel, ResultInfo,
    ResultValue, Settings, options,
};
use flowgauge_wire::{DecodeFlags, Decoded, LinkType, Nanos};

use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ipreass",
    aliases: &["ipreassembly"],
    summary: "reassembles IP datagrams from their fragments",
    help: "Packets that are not fragments pass unchanged. A datagram passes as one packet when its last fragment has \
       arrived, with the link-layer header of that fragment; a datagram within a tunnel passes without the tunnel's \
       headers.",
    output: Output::Of(ItemType::Datagram),
    options: Options::ALL,
    result: Some(ResultInfo::number(
        "datagrams of which not all fragments came",
        "datagrams",
    )),
    parallel: Parallel::ByFlow,
    make: |settings| Ok(Box::new(Reassembly::new(settings))),
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    timeout: Duration = "60s", "how long fragments wait for the rest of their datagram";
    memory: Size = "64M", "memory for waiting fragments";
}

struct Reassembly {
    defragmenter: Defragmenter<()>,
    datagram: Vec<u8>,
    given_up: u64,
    /// The datagrams that a batch completed, and the frames and bytes of each.
    made: Made,
    sums: Vec<(u16, u32)>,
}

impl Reassembly {
    fn new(settings: &Settings) -> Reassembly {
        let options = Options::read(settings);
        let config = DefragmentConfig {
            timeout_v4: options.timeout,
            timeout_v6: options.timeout,
            max_bytes: options.memory,
            ..DefragmentConfig::default()
        };
        Reassembly {
            defragmenter: Defragmenter::new(config),
            datagram: Vec::new(),
            given_up: 0,
            made: Made::default(),
            sums: Vec::new(),
        }
    }

    /// Takes a fragment; returns its sums if it completed its datagram.
    fn insert(&mut self, bytes: &[u8], packet: &Decoded) -> Option<(u16, u32)> {
        let fragment = Fragment::of(bytes, packet)?;
        match self.defragmenter.insert(&fragment, (), &mut self.datagram) {
            Outcome::Complete(totals) => {
                let frames = totals.frames.min(u32::from(u16::MAX)) as u16;
                let bytes = totals.wire_len.min(u64::from(u32::MAX)) as u32;
                Some((frames, bytes))
            }
            Outcome::Held => None,
            Outcome::Refused => {
                self.given_up += 1;
                None
            }
        }
    }

    /// Keeps the datagram that the fragment `last` completed.
    fn keep(&mut self, packets: &Packets<'_>, last: &Decoded, key: u32, sums: (u16, u32)) {
        let descriptor = packets.batch.packets.get(usize::from(last.index));
        let Some(mut descriptor) = descriptor.copied() else {
            return;
        };
        let bytes = packets.bytes(last);
        let is_inner = last.tunnel != 0 || last.flags.contains(DecodeFlags::REASSEMBLED);
        let link_header = if is_inner {
            descriptor.link = LinkType::RAW;
            &[]
        } else {
            bytes.get(..usize::from(last.ip_offset)).unwrap_or(&[])
        };
        let length = |at: usize| -> usize {
            let bytes = self.datagram.get(at..at + 2);
            bytes.map_or(0, |bytes| {
                usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
            })
        };
        let whole = match self.datagram.first().map(|first| first >> 4) {
            Some(4) => length(2),
            _ => 40 + length(4),
        };
        descriptor.wire_len = (link_header.len() + whole.max(self.datagram.len())) as u32;
        let parts = [link_header, &self.datagram];
        self.made.push(descriptor, &parts, key, last.index);
        self.sums.push(sums);
    }

    /// Gives on what was completed.
    fn give(&mut self, packets: &Packets<'_>, out: &mut dyn Outlet) {
        let sums = &self.sums;
        let adjust = |index: usize, packet: &mut Decoded| {
            if let Some((frames, wire_len)) = sums.get(index) {
                packet.frames = *frames;
                packet.wire_len = *wire_len;
            }
        };
        self.made.give(packets.before, out, adjust);
        self.sums.clear();
    }
}

impl Component for Reassembly {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        for (index, packet) in all.iter() {
            if !packet.flags.contains(DecodeFlags::FRAGMENT) {
                continue;
            }
            packets.selected.remove(index);
            if let Some(sums) = self.insert(all.bytes(packet), packet) {
                self.keep(&all, packet, all.key(index), sums);
            }
        }
        self.given_up += self.defragmenter.take_incomplete().count() as u64;
        self.give(&all, out);
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, _: &mut dyn Outlet) {
        self.defragmenter.expire(now);
        self.given_up += self.defragmenter.take_incomplete().count() as u64;
    }

    fn finish(&mut self, _: &mut dyn Outlet) {
        self.defragmenter.finish();
        self.given_up += self.defragmenter.take_incomplete().count() as u64;
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.given_up))
    }

    fn reset(&mut self) {
        self.given_up = 0;
    }
}
