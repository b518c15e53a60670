//! `flows`: a record of each flow, when it ends.

use flowgauge_flow::FlowRecord;
use flowgauge_record::FlowRow;
use flowgauge_record::flow::FLOW_SCHEMA;
use flowgauge_stack::{
    Account, Component, ComponentInfo, ItemType, Items, Outlet, Output, Parallel, RecordItem,
    ResultInfo, ResultValue, SettingError, Settings,
};
use flowgauge_stream::{Handler, Needs};
use flowgauge_wire::Nanos;

use crate::engine::{self, Tracked};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "flows",
    aliases: &["flow_report"],
    summary: "gives a record of each flow when it ends",
    help: "The records are those of the command flows: counters of both directions, state, history, \
           handshake time. It puts fragments together and verifies checksums itself.",
    output: Output::Of(ItemType::Flow),
    fields: |_| Some(FLOW_SCHEMA),
    outside: Some("it has one table of all flows"),
    options: &[
        engine::CHECKSUMS,
        engine::OVERLAP_POLICY,
        engine::MEMORY,
        engine::MAX_FLOWS,
        engine::TCP_IDLE,
        engine::UDP_IDLE,
        engine::OTHER_IDLE,
        engine::ACTIVE_TIMEOUT,
        engine::COMMUNITY_ID_SEED,
    ],
    result: Some(ResultInfo::number("flow records given on", "records")),
    parallel: Parallel::ByFlow,
    decodes: true,
    make,
    ..crate::OF_PACKETS
};

struct Flows {
    tracked: Tracked,
    seed: u16,
    records: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let mut config = engine::configuration(settings, Needs::default())?;
    config.flow.active = settings.duration("active_timeout").map(Nanos);
    Ok(Box::new(Flows {
        tracked: Tracked::new(config),
        seed: settings.integer("community_id_seed").unwrap_or(0) as u16,
        records: 0,
    }))
}

/// Gives records to what follows.
struct Give<'a> {
    out: &'a mut dyn Outlet,
    seed: u16,
    records: &'a mut u64,
}

impl Handler for Give<'_> {
    fn flow(&mut self, record: &FlowRecord<'_>) {
        *self.records += 1;
        let row = FlowRow::new(record, self.seed);
        self.out.emit(Items::Records(&[RecordItem {
            key: 0,
            time: record.end,
            record: &row,
        }]));
    }
}

impl Flows {
    fn with(&mut self, out: &mut dyn Outlet, work: impl FnOnce(&mut Tracked, &mut Give<'_>)) {
        let mut give = Give {
            out,
            seed: self.seed,
            records: &mut self.records,
        };
        work(&mut self.tracked, &mut give);
    }
}

impl Component for Flows {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            self.with(out, |tracked, give| tracked.process(packets, give));
        }
        items.clear();
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.with(out, |tracked, give| tracked.tick(now, give));
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        self.with(out, |tracked, give| tracked.finish(give));
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.records))
    }

    fn account(&self) -> Option<Box<Account>> {
        Some(Box::new(self.tracked.account()))
    }
}
