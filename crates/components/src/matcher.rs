//! `matcher`: requests with their replies, or what two links saw of one packet.

use std::collections::{BTreeMap, HashMap};

use flowgauge_record::any::OwnedObject;
use flowgauge_record::transaction::{TRANSACTION_SCHEMA, TransactionRow};
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, Parallel, PerKey, RecordItem,
    ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_wire::Nanos;

use crate::record_fields::{Fields, Key, read_names};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "matcher",
    aliases: &["match_records"],
    summary: "matches requests with their replies",
    help: "Two records belong together if their fields of `key` are equal, where sender fields (src_...) of \
           one are compared with receiver fields (dst_...) of the other; with way = same senders are compared \
           with senders: two sightings of one packet. The first record is the request, unless `request` identifies \
           requests by a field. A record without a partner within the timeout is passed on alone. \
           Records without a value in a field of `key` (frames without IP addresses, for example) are left \
           out.",
    input: Input::Of(&[ItemType::Record]),
    output: Output::Of(ItemType::Transaction),
    fields: |_| Some(TRANSACTION_SCHEMA),
    options: Options::ALL,
    result: Some(ResultInfo::number("pairs matched", "pairs")),
    parallel: Parallel::ByFlow,
    sequential: |settings| {
        // Packets of a pair of hosts are on one core, others are not.
        let names = read_names(settings, "key").unwrap_or_default();
        let has = |name| names.iter().any(|one| one == name);
        let is_of_hosts = has("src_ip") && has("dst_ip");
        (!is_of_hosts).then_some("its key is not of both src_ip and dst_ip")
    },
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    key: Text = required, "fields that are equal in both, as \"src_ip, src_port, dst_ip, dst_port, ip_id\"";
    way: Choice("reverse", "same") = "reverse", "whether the reply goes the other way";
    request: Text, "condition that identifies requests, such as \"dst_port = 53\" or \"interface = a | b\"";
    timeout: Duration = "10s", "how long a record waits for its partner, on the capture clock";
    keep: Integer(1, 100_000_000) as usize = "1M", "records waiting at once; beyond it, the oldest goes on alone";
    unmatched: Flag = "yes", "whether records without a partner are passed on";
}

struct Matcher {
    /// The key's fields, those whose values stand there in a partner, and the one that tells requests.
    fields: Fields,
    /// How many the key has.
    width: usize,
    /// What a request has in the last of the fields.
    requests: Option<Vec<String>>,
    options: Options,
    waiting: PerKey<HashMap<Key, Waiting>>,
    /// What waits, by time, and for equal times in the order in which it came: a time far in the
    /// future holds up nobody but itself.
    queue: BTreeMap<(Nanos, u64), (u32, Key)>,
    next: u64,
    matched: u64,
}

/// One that waits for its partner.
struct Waiting {
    number: u64,
    time: Nanos,
    is_request: bool,
    repeats: u64,
    record: OwnedObject,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let names = read_names(settings, "key")?;
    let partner = match options.way {
        "same" => names.clone(),
        _ => names.iter().map(|name| reversed(name)).collect(),
    };
    let width = names.len();
    let mut fields = [names, partner].concat();
    let mut requests = None;
    if let Some(text) = &options.request {
        let (field, values) = read_request(text)?;
        fields.push(field);
        requests = Some(values);
    }
    Ok(Box::new(Matcher {
        fields: Fields::of(fields, settings, "key")?,
        width,
        requests,
        options,
        waiting: PerKey::default(),
        queue: BTreeMap::new(),
        next: 0,
        matched: 0,
    }))
}

/// The field of the other side.
fn reversed(name: &str) -> String {
    match (name.strip_prefix("src_"), name.strip_prefix("dst_")) {
        (Some(rest), _) => format!("dst_{rest}"),
        (_, Some(rest)) => format!("src_{rest}"),
        _ => name.to_owned(),
    }
}

/// The field that tells requests, and the values that it has in them.
fn read_request(text: &str) -> Result<(String, Vec<String>), SettingError> {
    let (field, values) = text.split_once('=').ok_or_else(|| {
        SettingError::of("request", "has no \"=\"")
            .with_hint("write a field and its value, as dst_port = 53")
    })?;
    let values = values.split('|').map(|value| value.trim().to_owned());
    Ok((field.trim().to_owned(), values.collect()))
}

impl Matcher {
    fn record(&mut self, item: &RecordItem<'_>, out: &mut dyn Outlet) {
        self.fields.read(item.record);
        if (0..self.width).all(|index| self.fields.get(index).is_empty()) {
            return;
        }
        let is_request = self.requests.as_ref().map(|requests| {
            let value = self.fields.get(2 * self.width);
            requests.iter().any(|one| one.as_bytes() == value)
        });
        let own = self.fields.key(0..self.width);
        let partner = self.fields.key(self.width..2 * self.width);
        let waiting = self.waiting.of(item.key);
        let is_partner = |it: &Waiting| is_request.is_none_or(|is| is != it.is_request);
        if waiting.get(&partner).is_some_and(is_partner)
            && let Some(found) = waiting.remove(&partner)
        {
            self.queue.remove(&(found.time, found.number));
            self.matched += 1;
            let record = OwnedObject::of(item.record);
            let (mine, theirs) = ((item.time, &record), (found.time, &found.record));
            let (request, reply) = match found.is_request {
                true => (theirs, mine),
                false => (mine, theirs),
            };
            emit(out, item.key, Some(request), Some(reply), found.repeats);
            return;
        }
        if let Some(again) = waiting.get_mut(&own)
            && is_request.is_none_or(|is| is == again.is_request)
        {
            again.repeats += 1;
            return;
        }
        let number = self.next;
        self.next += 1;
        let before = waiting.insert(
            own.clone(),
            Waiting {
                number,
                time: item.time,
                is_request: is_request.unwrap_or(true),
                repeats: 0,
                record: OwnedObject::of(item.record),
            },
        );
        // Both wait under one key: with way = same, and the first is of the same kind no more.
        if let Some(before) = before {
            self.queue.remove(&(before.time, before.number));
            self.give_alone(item.key, &before, out);
        }
        self.queue.insert((item.time, number), (item.key, own));
        while self.queue.len() > self.options.keep {
            self.oldest(out);
        }
    }

    /// The one that has waited longest goes on alone.
    fn oldest(&mut self, out: &mut dyn Outlet) {
        let Some((_, (key, name))) = self.queue.pop_first() else {
            return;
        };
        let waiting = self.waiting.get_mut(key);
        if let Some(found) = waiting.and_then(|waiting| waiting.remove(&name)) {
            self.give_alone(key, &found, out);
        }
    }

    fn give_alone(&self, key: u32, found: &Waiting, out: &mut dyn Outlet) {
        if !self.options.unmatched {
            return;
        }
        let one = Some((found.time, &found.record));
        let (request, reply) = match found.is_request {
            true => (one, None),
            false => (None, one),
        };
        emit(out, key, request, reply, found.repeats);
    }
}

fn emit(
    out: &mut dyn Outlet,
    key: u32,
    request: Option<(Nanos, &OwnedObject)>,
    reply: Option<(Nanos, &OwnedObject)>,
    repeats: u64,
) {
    let row = TransactionRow {
        request,
        reply,
        repeats,
    };
    let time = [request, reply].into_iter().flatten().map(|it| it.0).max();
    let time = time.unwrap_or_default();
    out.emit(Items::Records(&[RecordItem {
        key,
        time,
        record: &row,
    }]));
}

impl Component for Matcher {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            for item in *records {
                self.record(item, out);
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        let Some(waiting) = self.waiting.take(key) else {
            return;
        };
        for found in waiting.values() {
            self.queue.remove(&(found.time, found.number));
        }
        let mut left: Vec<Waiting> = waiting.into_values().collect();
        left.sort_unstable_by_key(|it| it.number);
        for found in left {
            self.give_alone(key, &found, out);
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        while let Some(((time, _), _)) = self.queue.first_key_value() {
            if now.0 < time.0.saturating_add(self.options.timeout.0) {
                break;
            }
            self.oldest(out);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        while !self.queue.is_empty() {
            self.oldest(out);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.matched))
    }

    fn reset(&mut self) {
        self.matched = 0;
    }
}
