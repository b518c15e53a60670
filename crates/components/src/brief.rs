//! `brief`: a few fields of records of any kind.

use flowgauge_record::brief::{BRIEF_SCHEMA, Brief};
use flowgauge_record::picked::Picker;
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, RecordItem, SettingError,
    Settings, forked, options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "brief",
    summary: "reduces records of any kind to a few fields",
    help: "Without `fields`: time, addresses, ports, kind, latency, and a text with what tables show of the \
           other fields. Records of many kinds fit in one table.",
    input: Input::Of(&[ItemType::Record]),
    output: Output::Of(ItemType::Record),
    options: Options::ALL,
    fields: |settings| {
        let picker = picker(settings).ok()?;
        Some(picker.map_or(BRIEF_SCHEMA, |picker| picker.schema()))
    },
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    fields: Text, "only these fields, in this order, such as \"time, src_ip, uri\"; null if a record lacks one";
}

/// What `fields` says.
fn picker(settings: &Settings) -> Result<Option<Picker>, SettingError> {
    let names = settings.text("fields");
    let picker = names
        .map(|names| Picker::read(names, settings.kinds()))
        .transpose();
    picker.map_err(|error| SettingError::of("fields", error.to_string()).with_hint(error.hint))
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    Ok(match picker(settings)? {
        Some(picker) => Box::new(Pick(picker)),
        None => Box::new(Shorten::default()),
    })
}

#[derive(Clone)]
struct Pick(Picker);

impl Component for Pick {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            for item in *records {
                let picked = self.0.pick(item.record);
                out.emit(Items::Records(&[RecordItem {
                    record: &picked,
                    ..*item
                }]));
            }
        }
        items.clear();
    }
}

#[derive(Default)]
struct Shorten {
    /// Used again for each record.
    brief: Brief,
}

impl Component for Shorten {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            for item in *records {
                self.brief.assign(item.record);
                out.emit(Items::Records(&[RecordItem {
                    record: &self.brief,
                    ..*item
                }]));
            }
        }
        items.clear();
    }
}
