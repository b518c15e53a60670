//! `filter`: packets that a filter expression selects.

use flowgauge_capture::filter::{DEFAULT_SNAP_LEN, FilterSet};
use flowgauge_stack::{
    Component, ComponentInfo, Failure, Items, Outlet, SettingError, Settings, options,
};
use flowgauge_wire::{DecodeFlags, LinkType};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "filter",
    aliases: &["bpf_filter"],
    summary: "selects packets by a capture filter",
    help: "The expression is that of pcap-filter(7), as for tcpdump; an empty expression selects everything. \
           It is compiled for each link type of the input.",
    options: Options::ALL,
    make,
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    expression: Filter = required, "which packets";
    // MAPI's BPF_FILTER has a second argument in an older form.
    version: Integer(0, i64::MAX), "taken for MAPI's sake, without effect";
}

struct Packets(FilterSet);

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let expression = Options::read(settings).expression;
    // What the input will be is not known here. An expression that is right for Ethernet is well
    // written; one may be right for another link type only.
    let links = [LinkType::ETHERNET, LinkType::RAW, LinkType::IEEE802_11];
    let mut filters = FilterSet::new(&expression, DEFAULT_SNAP_LEN, None);
    let mut error = None;
    for link in links {
        match filters.for_link(link) {
            Ok(_) => return Ok(Box::new(Packets(filters))),
            Err(why) => error = error.or(Some(why)),
        }
    }
    let message = error.as_ref().map_or(String::new(), ToString::to_string);
    Err(SettingError {
        option: Some("expression"),
        message,
        hint: error.and_then(|error| error.hint()),
    })
}

impl Component for Packets {
    fn fork(&self) -> Option<Box<dyn Component>> {
        Some(Box::new(Packets(self.0.clone())))
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        for (index, packet) in all.iter() {
            let bytes = all.bytes(packet);
            let descriptor = all.batch.packets.get(usize::from(packet.index));
            let is_whole = packet.flags.contains(DecodeFlags::REASSEMBLED);
            let descriptor = descriptor.filter(|_| !is_whole);
            let link = descriptor.map_or(LinkType::RAW, |descriptor| descriptor.link);
            let filter = match self.0.for_link(link) {
                Ok(filter) => filter,
                Err(error) => {
                    out.fail(Failure::of(&error, error.hint()));
                    items.clear();
                    return;
                }
            };
            let verdict = match descriptor {
                Some(descriptor) => filter.verdict_on(bytes, descriptor),
                None => filter.verdict(bytes, packet.ip_len),
            };
            if verdict == 0 {
                packets.selected.remove(index);
            }
        }
    }
}
