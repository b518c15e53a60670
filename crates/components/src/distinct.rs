//! `distinct`: the first record of each kind.

use std::collections::{HashMap, VecDeque};

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, OptionInfo, OptionKind, Outlet, Parallel,
    PerKey, ResultInfo, ResultValue, SettingError, Settings,
};
use flowgauge_wire::Nanos;

use crate::record_fields::{Fields, Key, read_names};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "distinct",
    summary: "lets a record through if none with these values came before",
    help: "What was seen is remembered for keep values; then the oldest is forgotten, and would be new \
           again.",
    input: Input::Of(&[ItemType::Record]),
    options: &[
        OptionInfo::new("by", OptionKind::Text, "fields, as \"dst_ip, dst_port\"").required(),
        OptionInfo::new(
            "again",
            OptionKind::Duration,
            "what was not seen for so long, on the clock of the capture, counts as new",
        ),
        OptionInfo::new(
            "keep",
            OptionKind::Integer {
                min: 1,
                max: 100_000_000,
            },
            "values remembered at once",
        )
        .or("1M"),
    ],
    result: Some(ResultInfo::number("different values", "values")),
    parallel: Parallel::Never("it remembers what came on any core"),
    make,
    ..crate::OF_PACKETS
};

struct Distinct {
    fields: Fields,
    width: usize,
    again: Option<Nanos>,
    keep: usize,
    seen: PerKey<Seen>,
    different: u64,
}

#[derive(Default)]
struct Seen {
    last: HashMap<Key, Nanos>,
    order: VecDeque<Key>,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let names = read_names(settings, "by")?;
    Ok(Box::new(Distinct {
        width: names.len(),
        fields: Fields::of(names, settings, "by")?,
        again: settings.duration("again").map(Nanos),
        keep: settings.integer("keep").unwrap_or(1_000_000) as usize,
        seen: PerKey::default(),
        different: 0,
    }))
}

impl Component for Distinct {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Records(records) = items else {
            return;
        };
        for item in *records {
            if let Err(failure) = self.fields.read(item.record) {
                out.fail(failure);
                break;
            }
            let key = self.fields.key(0..self.width);
            let seen = self.seen.of(item.key);
            let again = self.again;
            let is_recent = |last: Nanos| {
                again.is_none_or(|again| item.time.0 <= last.0.saturating_add(again.0))
            };
            let is_new = match seen.last.get_mut(&key) {
                Some(last) => {
                    let is_new = !is_recent(*last);
                    *last = item.time.max(*last);
                    is_new
                }
                None => {
                    if seen.last.len() >= self.keep
                        && let Some(oldest) = seen.order.pop_front()
                    {
                        seen.last.remove(&oldest);
                    }
                    seen.order.push_back(key.clone());
                    seen.last.insert(key, item.time);
                    true
                }
            };
            if is_new {
                self.different += 1;
                out.emit(Items::Records(core::slice::from_ref(item)));
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.seen.take(key);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.different))
    }

    fn reset(&mut self) {
        self.different = 0;
    }
}
