//! `filter`: packets that a filter expression selects.

use flowgauge_capture::filter::{Columns, DEFAULT_SNAP_LEN, FilterSet, Refusal};
use flowgauge_stack::{
    Component, ComponentInfo, Failure, Items, Outlet, Packets, SettingError, Settings, options,
};
use flowgauge_wire::{DecodedBatch, LinkType};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "filter",
    aliases: &["bpf_filter"],
    summary: "selects packets by a capture filter",
    help: "The expression is that of pcap-filter(7), as for tcpdump; an empty expression selects everything. \
           It is compiled for each link type of the input.",
    options: Options::ALL,
    decodes: |_| true,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    expression: Filter = required, "which packets";
    // MAPI's BPF_FILTER has a second argument in an older form.
    version: Integer(0, i64::MAX), "accepted for MAPI, without effect";
}

struct Filter {
    filters: FilterSet,
    /// For packets that no other filter shares.
    columns: Columns,
}

impl Filter {
    fn new(filters: FilterSet) -> Filter {
        Filter {
            filters,
            columns: Columns::default(),
        }
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let expression = Options::read(settings).expression;
    // What the input will be is not known here. An expression that is right for Ethernet is well
    // written; one may be right for another link type only.
    let links = [LinkType::ETHERNET, LinkType::RAW, LinkType::IEEE802_11];
    let mut filters = FilterSet::new(&expression, DEFAULT_SNAP_LEN, None);
    let mut error = None;
    for link in links {
        match filters.for_link(link) {
            Ok(_) => return Ok(Box::new(Filter::new(filters))),
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

/// The headers of packets, where they were decoded.
fn decoded<'a>(packets: &Packets<'a>) -> Option<&'a DecodedBatch> {
    Some(packets.decoded).filter(|decoded| !decoded.packets.is_empty())
}

impl Component for Filter {
    fn fork(&self) -> Option<Box<dyn Component>> {
        Some(Box::new(Filter::new(self.filters.clone())))
    }

    fn refuses(&mut self, packets: &Packets<'_>) -> bool {
        let Some(columns) = packets.columns else {
            return false;
        };
        let decoded = decoded(packets);
        (self.filters).refuses(
            &mut columns.borrow_mut(),
            packets.batch,
            decoded,
            packets.selected,
        )
    }

    fn refusal(&self) -> Option<Refusal> {
        self.filters.refusal()
    }

    fn expect(&mut self, links: &[LinkType]) {
        for link in links {
            let _ = self.filters.for_link(*link);
        }
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let batch = packets.batch;
        let decoded = decoded(packets);
        let mut shared = packets.columns.map(|columns| columns.borrow_mut());
        let columns = match &mut shared {
            Some(columns) => columns,
            None => {
                self.columns.begin();
                &mut self.columns
            }
        };
        let selected = &mut packets.selected;
        if let Err(error) = (self.filters).select(columns, batch, decoded, selected) {
            out.fail(Failure::of(&error, error.hint()));
        }
    }
}
