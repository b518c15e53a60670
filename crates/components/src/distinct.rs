//! `distinct`: the first record of each kind.

use std::hash::RandomState;

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Parallel, PerKey, ResultInfo,
    ResultValue, SettingError, Settings, options,
};
use flowgauge_wire::Nanos;
use lru::LruCache;

use crate::record_fields::{Fields, Key, read_names};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "distinct",
    summary: "selects records with values that were not seen before",
    help: "The last `keep` values are remembered. The one seen longest ago is forgotten first, and is new when it \
       returns.",
    input: Input::Of(&[ItemType::Record]),
    options: Options::ALL,
    result: Some(ResultInfo::number("different values", "values")),
    parallel: Parallel::Never("it remembers what came on any core"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    by: Text = required, "fields, as \"dst_ip, dst_port\"";
    again: Duration, "a value not seen for this long, on the capture clock, counts as new";
    keep: Integer(1, 100_000_000) as usize = "1M", "values remembered at once";
}

struct Distinct {
    fields: Fields,
    width: usize,
    options: Options,
    seen: PerKey<Recent>,
    key: Vec<u8>,
    different: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let names = read_names(settings, "by")?;
    Ok(Box::new(Distinct {
        width: names.len(),
        fields: Fields::of(names, settings, "by")?,
        options: Options::read(settings),
        seen: PerKey::default(),
        key: Vec::new(),
        different: 0,
    }))
}

impl Component for Distinct {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Records(records) = items else {
            return;
        };
        for item in *records {
            self.fields.read(item.record);
            self.fields.write_key(0..self.width, &mut self.key);
            let seen = self.seen.of(item.key);
            let last = seen.see(&self.key, item.time, self.options.keep);
            let is_recent = |last: Nanos| {
                let again = self.options.again;
                again.is_none_or(|again| item.time.0 <= last.0.saturating_add(again.0))
            };
            if !last.is_some_and(is_recent) {
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

/// The values that were seen last, and when.
struct Recent(LruCache<Key, Nanos, RandomState>);

impl Default for Recent {
    fn default() -> Recent {
        // Room is made as they come.
        Recent(LruCache::unbounded_with_hasher(RandomState::new()))
    }
}

impl Recent {
    /// Notes that a value was seen. Says when it was before, if that is remembered; at most `keep` are.
    fn see(&mut self, key: &[u8], time: Nanos, keep: usize) -> Option<Nanos> {
        if let Some(last) = self.0.get_mut(key) {
            let before = *last;
            *last = before.max(time);
            return Some(before);
        }
        if self.0.len() >= keep {
            self.0.pop_lru();
        }
        self.0.push(key.into(), time);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_longest_ago_is_forgotten_first() {
        for keep in 1..6 {
            let (mut recent, mut naive) = (Recent::default(), Vec::<u8>::new());
            let mut state = 1_u32;
            for time in 0..2000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let value = (state >> 24) as u8 % 8;
                let at = naive.iter().position(|one| *one == value);
                let found = recent.see(&[value], Nanos(time), keep);
                assert_eq!(found.is_some(), at.is_some(), "{keep} {time}");
                match at {
                    Some(at) => {
                        naive.remove(at);
                    }
                    None if naive.len() == keep => {
                        naive.remove(0);
                    }
                    None => {}
                }
                naive.push(value);
            }
            assert_eq!(recent.0.len(), keep);
        }
    }
}
