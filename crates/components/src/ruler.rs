//! `ruler`: passes and rewrites packets by rules in the language Ruler.

mod layouts;
mod rules;

use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, ResultInfo, ResultValue, SettingError, options,
};
use flowgauge_wire::PacketDescriptor;

use self::rules::{Filter, Outcome};
use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ruler",
    summary: "passes and rewrites packets by rules of Ruler",
    help: "filter NAME RULE ...; a rule is PATTERN => RESULT ; and the first whose pattern is the whole packet, from its first byte, \
           decides. What no rule fits does not pass. Items of a pattern, each with a label before it (p:*) or without: * (any bytes; \
           once, and once more at the end), byte#6 (six bytes), 80~2 (a number in two bytes), 0#4 (four times a byte), and layouts, with \
           values of their fields: TCP with [dest=80~2]. Layouts are Ethernet, Ethernet_IPv4, IPv4, IPv4_TCP, IPv4_UDP, IPv4_ICMP, TCP, \
           UDP (headers without options), and those that pattern NAME : ( FIELD:byte#2 ... ) describes. The result is accept, \
           reject, or the packet that passes in its place: labels, with [FIELD=VALUE] changed, and numbers. Checksums are \
           not made right.\n\n  filter www eh:Ethernet_IPv4 ih:IPv4_TCP th:TCP with [dest=80~2] p:* => eh ih with [src=0~4, dest=0~4] th p;",
    options: Options::ALL,
    result: Some(ResultInfo::number("packets rewritten", "packets")),
    make: |settings| {
        let options = Options::read(settings);
        let filter = Filter::parse(&options.filter);
        Ok(Box::new(Ruler {
            filter: filter.map_err(|what| SettingError::of("filter", what))?,
            made: Made::default(),
            spans: Vec::new(),
            packet: Vec::new(),
            count: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    filter: Text = required, "the rules";
}

struct Ruler {
    filter: Filter,
    made: Made,
    /// Memory that serves again: where items are, and a packet.
    spans: Vec<(usize, usize)>,
    packet: Vec<u8>,
    count: u64,
}

impl Component for Ruler {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        if !self.filter.rewrites() {
            let (filter, spans) = (&self.filter, &mut self.spans);
            let all = *packets;
            for (index, packet) in all.iter() {
                if matches!(filter.apply(all.bytes(packet), spans), Outcome::Reject) {
                    packets.selected.remove(index);
                }
            }
            return;
        }
        // In their order: what passes as it is is made anew, too.
        for (index, packet) in packets.iter() {
            let Some(descriptor) = packets.batch.packets.get(usize::from(packet.index)) else {
                continue;
            };
            let bytes = packets.bytes(packet);
            let origin = packets.origins.get(index).copied().unwrap_or(packet.index);
            let key = packets.key(index);
            match self.filter.apply(bytes, &mut self.spans) {
                Outcome::Reject => continue,
                Outcome::Accept => self.made.push(*descriptor, &[bytes], key, origin),
                Outcome::Parts(parts) => {
                    self.packet.clear();
                    parts
                        .iter()
                        .for_each(|part| part.write(bytes, &self.spans, &mut self.packet));
                    let cut = packet.wire_len.saturating_sub(bytes.len() as u32);
                    let descriptor = PacketDescriptor {
                        wire_len: cut + self.packet.len() as u32,
                        ..*descriptor
                    };
                    self.made.push(descriptor, &[&self.packet], key, origin);
                    self.count += 1;
                }
            }
            if self.made.is_full() {
                self.made.give(packets.before, out, |_, _| {});
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
