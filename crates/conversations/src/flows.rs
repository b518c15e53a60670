//! `flows`: a record of each flow, when it ends.

use flowgauge_flow::FlowRecord;
use flowgauge_kit::engine;
use flowgauge_record::FlowRow;
use flowgauge_record::event::{Classified, schema_of_classified};
use flowgauge_record::flow::FLOW_SCHEMA;
use flowgauge_stack::engine::{Feed, Required, Step};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Counted, ItemType, Items, Outlet, Output, Parallel,
    RecordItem, ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_stream::{Chunk, Handler, Needs, Stream};
use flowgauge_wire::Nanos;

use crate::protocols::{self, Leading};

options! {
    const;
    CLASSIFY = classify: Flag = "no", "classify each flow's protocol and application, by content, server names, DNS names and ports";
}

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "flows",
    aliases: &["flow_report"],
    summary: "makes a record of each flow when it ends",
    help: "The records are those of the command flows: counters of both directions, state, history, handshake \
           time. It reassembles fragments and verifies checksums itself.",
    output: Output::Of(ItemType::Flow),
    fields: |settings| match settings.flag("classify") {
        true => Some(schema_of_classified(FLOW_SCHEMA)),
        false => Some(FLOW_SCHEMA),
    },
    outside: Some("it has one table of all flows"),
    options: &[
        engine::CHECKSUMS,
        engine::VLAN_AWARE,
        engine::OVERLAP_POLICY,
        engine::MEMORY,
        engine::MAX_FLOWS,
        engine::TCP_IDLE,
        engine::UDP_IDLE,
        engine::OTHER_IDLE,
        engine::ACTIVE_TIMEOUT,
        engine::COMMUNITY_ID_SEED,
        CLASSIFY,
        protocols::APPLICATIONS,
        protocols::NDPI,
    ],
    result: Some(ResultInfo::number("flow records given on", "records")),
    parallel: Parallel::ByFlow,
    decodes: |_| true,
    engine: Some(required),
    make,
    ..ComponentInfo::OF_PACKETS
};

struct Flows {
    seed: u16,
    counts: Counts,
    /// What finds out what is spoken, if that is wanted.
    state: Option<protocols::State>,
}

/// Records that it gave on.
#[derive(Clone, Copy, Default)]
struct Counts {
    records: u64,
    /// Of those, of flows that began before the component did.
    older: u64,
    /// The engine's clock when it did.
    since: Option<Nanos>,
}

impl Counts {
    #[inline]
    fn add(&mut self, record: &FlowRecord<'_>) {
        self.records += 1;
        let is_older = |since: &Nanos| *since > Nanos(0) && record.flow_start <= *since;
        self.older += u64::from(self.since.as_ref().is_some_and(is_older));
    }
}

fn required(settings: &Settings) -> Result<Option<Required>, SettingError> {
    let needs = match protocols::classifies(settings, "classify")? {
        true => protocols::NEEDS,
        false => Needs::default(),
    };
    engine::required(settings, needs)
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let state = match protocols::classifies(settings, "classify")? {
        true => Some(protocols::State::classifying(settings, false)?),
        false => None,
    };
    Ok(Box::new(Flows {
        seed: settings.integer("community_id_seed").unwrap_or(0) as u16,
        counts: Counts::default(),
        state,
    }))
}

/// Gives records to what follows.
struct Give<'a> {
    out: &'a mut dyn Outlet,
    seed: u16,
    counts: &'a mut Counts,
}

impl Handler for Give<'_> {
    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.counts.add(record);
        let row = FlowRow::new(record, self.seed);
        self.out.emit(Items::Records(&[RecordItem {
            key: 0,
            time: record.end,
            record: &row,
        }]));
    }
}

/// Lets conversations be led, and gives the records of flows itself.
struct GiveClassified<'a> {
    leading: Leading<'a>,
    seed: u16,
    counts: &'a mut Counts,
}

impl Handler for GiveClassified<'_> {
    const STREAMS: bool = true;

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.leading.stream_created(stream);
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.leading.stream_data(stream, chunk);
    }

    fn stream_closed(&mut self, stream: &Stream<'_>) {
        self.leading.stream_closed(stream);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.leading.stream_terminated(stream, trailing_gap);
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.counts.add(record);
        let row = FlowRow::new(record, self.seed);
        let classified = Classified {
            record: &row,
            spoken: self.leading.state.spoken(record),
        };
        self.leading.out.emit(Items::Records(&[RecordItem {
            key: 0,
            time: record.end,
            record: &classified,
        }]));
    }
}

impl Component for Flows {
    fn fork(&self) -> Option<Box<dyn Component>> {
        // What classifies cannot be copied.
        let is_plain = self.state.is_none();
        is_plain.then(|| {
            Box::new(Flows {
                state: None,
                ..*self
            }) as _
        })
    }

    fn begin_step(&mut self, _: &Step<'_, '_>, clock: Nanos) {
        self.counts.since.get_or_insert(clock);
    }

    fn take(&mut self, feed: Feed<'_, '_>, out: &mut dyn Outlet) {
        let (seed, counts) = (self.seed, &mut self.counts);
        match &mut self.state {
            None => feed.to(&mut Give { out, seed, counts }),
            Some(state) => feed.to(&mut GiveClassified {
                leading: Leading { state, out },
                seed,
                counts,
            }),
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.counts.records))
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Box::<Account>::default();
        if let Some(state) = &self.state {
            state.tell(&mut account);
        }
        if self.counts.older > 0 {
            account.counted.push(Counted {
                count: self.counts.older,
                thing: "flow record",
                what: "of flows that began before the stack did".to_owned(),
            });
        }
        Some(account)
    }
}
