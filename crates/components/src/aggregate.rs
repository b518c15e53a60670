//! `aggregate`: records grouped by fields, others of their fields summed, or their means and extremes taken.

use flowgauge_kit::measure::Intervals;
use flowgauge_record::aggregate::Measure;
use flowgauge_record::any::AnyObject;
use flowgauge_record::schema::{
    Column, Field, FieldKind, FieldVisitor, JsonKey, Record, Schema, Unit, kept,
};
use flowgauge_record::{AggregateError, AggregateSpec, Aggregator, KnownRecord};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, Input, ItemType, Items, Outlet, Output, Parallel,
    Port, RecordItem, ResultInfo, ResultValue, SettingError, Settings, forked, options,
};
use flowgauge_wire::Nanos;

use crate::record_fields::read_names;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "aggregate",
    summary: "groups records by fields, with sums and means of others: heavy hitters",
    help: "A key is a field; an address may have a prefix length (src_ip/24). A sum is a field, or a name of \
           which src_ and dst_ exist: bytes is src_bytes + dst_bytes. Groups come largest first, at the end or \
           every interval; the field interval holds its start. The mean of latency is the field mean_latency, \
           likewise min and max. Null values are not counted; without any value the field is null.",
    input: Input::Of(&[ItemType::Record]),
    output: Output::Of(ItemType::Record),
    fields: |settings| {
        let (aggregate, schema) = (Aggregate::read(settings).ok()?, settings.schema()?);
        Some(aggregate.begin(schema).ok()?.output)
    },
    outside: Some("it has one table of all groups"),
    options: Options::ALL,
    result: Some(ResultInfo::number("groups given up for memory", "groups")),
    parallel: Parallel::Never("its groups are of all cores"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    by: Text = required, "fields, such as \"src_ip/24, dst_port\"";
    sum: Text, "fields to add up; groups are ordered by the first one, or by number of records";
    mean: Text, "fields to average";
    min: Text, "fields whose minimum is taken";
    max: Text, "fields whose maximum is taken";
    top: Integer(1, 1_000_000_000) as usize, "write only the largest groups";
    within: Text, "fields of by: the largest groups for each of their values, written together";
    interval: Duration as u64, "write groups at this interval, on the capture clock, and start again";
    memory: Size = "256M", "for groups; beyond it, the smaller half is discarded";
}

#[derive(Clone)]
struct Aggregate {
    keys: Vec<String>,
    sums: Vec<String>,
    measures: Vec<(Measure, Vec<String>)>,
    count: &'static str,
    within: Vec<String>,
    top: Option<usize>,
    intervals: Option<Intervals>,
    memory: u64,
    /// Made for the kind of record that comes first.
    groups: Option<Groups>,
    now: Nanos,
    pruned: u64,
}

#[derive(Clone)]
struct Groups {
    /// Of each kind of record that came.
    specs: Vec<AggregateSpec>,
    /// Of which kind the last one was.
    kind: usize,
    /// Of the groups.
    output: Schema,
    aggregator: Aggregator,
}

impl Groups {
    fn spec(&self) -> &AggregateSpec {
        &self.specs[self.kind]
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let aggregate = Aggregate::read(settings)?;
    if !aggregate.within.is_empty() && aggregate.top.is_none() {
        return Err(
            SettingError::of("within", "says of what the largest groups are wanted")
                .with_hint("say with top how many"),
        );
    }
    if options.interval == Some(0) {
        return Err(SettingError::of("interval", "is not a time"));
    }
    if let Some(schema) = settings.schema() {
        // What they have is known before any comes.
        aggregate.spec(schema).map_err(|error| {
            let option = match &error {
                AggregateError::UnknownSum { measure, .. } => measure.name(),
                AggregateError::UnknownKey { name, .. } if aggregate.within.contains(name) => {
                    "within"
                }
                _ => "by",
            };
            SettingError::of(option, error.to_string()).with_hint(error.hint())
        })?;
    }
    Ok(Box::new(aggregate))
}

impl Aggregate {
    fn read(settings: &Settings) -> Result<Aggregate, SettingError> {
        let options = Options::read(settings);
        let is_of_flows = settings.input() == Some(Port::Items(ItemType::Flow));
        let mut measures = Vec::new();
        for measure in [Measure::Mean, Measure::Min, Measure::Max] {
            measures.push((measure, read_names(settings, measure.name())?));
        }
        Ok(Aggregate {
            keys: read_names(settings, "by")?,
            sums: read_names(settings, "sum")?,
            measures,
            count: if is_of_flows { "flows" } else { "records" },
            within: read_names(settings, "within")?,
            top: options.top,
            intervals: options.interval.map(Intervals::new),
            memory: options.memory,
            groups: None,
            now: Nanos(0),
            pruned: 0,
        })
    }

    fn spec(&self, schema: Schema) -> Result<AggregateSpec, AggregateError> {
        let mut spec = AggregateSpec::new(schema, &self.keys, &self.sums, self.count)?;
        for (measure, names) in &self.measures {
            spec = spec.measured(*measure, names)?;
        }
        Ok(spec.within(&self.within)?.with_memory(self.memory))
    }

    /// Groups of the kind of record that comes first.
    fn begin(&self, schema: Schema) -> Result<Groups, Failure> {
        let spec = self.spec_of(schema)?;
        let aggregator = Aggregator::new(spec.clone());
        let mut output = aggregator.schema();
        if self.intervals.is_some() {
            output = kept([&INTERVAL].into_iter().chain(output.iter().copied()));
        }
        Ok(Groups {
            specs: vec![spec],
            kind: 0,
            output,
            aggregator,
        })
    }

    fn spec_of(&self, schema: Schema) -> Result<AggregateSpec, Failure> {
        let spec = self.spec(schema);
        spec.map_err(|error| Failure::of(&error, Some(error.hint())))
    }

    /// Records with this schema follow. They make the same groups if they have the same fields, be it in other places: what
    /// was said in a flow has its VLANs only where there are any.
    #[cold]
    fn turn_to(&mut self, schema: Schema) -> Result<(), Failure> {
        let Some(mut groups) = self.groups.take() else {
            return Ok(());
        };
        let mut known = groups.specs.iter();
        let known = known.position(|spec| core::ptr::eq(spec.input(), schema));
        groups.kind = known.unwrap_or(groups.specs.len());
        if known.is_none() {
            groups.specs.push(self.spec_of(schema)?);
        }
        if !groups.aggregator.turn_to(&groups.specs[groups.kind]) {
            return Err(Failure::new("records of several kinds came")
                .with_hint("aggregate those of one kind"));
        }
        self.groups = Some(groups);
        Ok(())
    }

    /// Groups given up so far.
    fn pruned(&self) -> u64 {
        let now = self.groups.as_ref().map_or(0, |it| it.aggregator.pruned());
        self.pruned + now
    }

    fn record(&mut self, item: &RecordItem<'_>) -> Result<(), Failure> {
        let schema = item.record.schema();
        if self.groups.is_none() {
            self.groups = Some(self.begin(schema)?);
        }
        let is_another = |groups: &Groups| !core::ptr::eq(groups.spec().input(), schema);
        if self.groups.as_ref().is_some_and(is_another) {
            self.turn_to(schema)?;
        }
        if let Some(groups) = &mut self.groups {
            groups.aggregator.add(&(item.record as &dyn AnyObject));
        }
        Ok(())
    }

    fn give(&mut self, out: &mut dyn Outlet) {
        let Some(groups) = &mut self.groups else {
            return;
        };
        let empty = Aggregator::new(groups.spec().clone());
        let full = core::mem::replace(&mut groups.aggregator, empty);
        self.pruned += full.pruned();
        let began = self.intervals.map(|it| it.start().unwrap_or(self.now));
        for row in full.rows(self.top) {
            let record = Row {
                began,
                row,
                schema: groups.output,
            };
            out.emit(Items::Records(&[RecordItem {
                key: 0,
                time: self.now,
                record: &record,
            }]));
        }
    }
}

/// When the interval began that a group is of.
static INTERVAL: Field = Field {
    name: "interval",
    json_key: JsonKey::new("interval"),
    kind: FieldKind::Time,
    unit: Unit::None,
    column: Column {
        heading: "INTERVAL",
        rank: 1,
        exact: true,
    },
    help: "start of the interval",
};

struct Row<R> {
    began: Option<Nanos>,
    row: R,
    schema: Schema,
}

impl<R: Record> Record for Row<R> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        if let Some(began) = self.began {
            visitor.time(&INTERVAL, began);
        }
        self.row.visit(visitor);
    }
}

impl<R: Record> KnownRecord for Row<R> {
    fn schema(&self) -> Schema {
        self.schema
    }
}

impl Component for Aggregate {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Records(records) = items {
            for item in *records {
                if let Err(failure) = self.record(item) {
                    out.fail(failure);
                    break;
                }
            }
        }
        items.clear();
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn interval(&self) -> Option<Nanos> {
        self.intervals.map(|it| Nanos(it.length()))
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.now = now;
        let Some(mut intervals) = self.intervals else {
            return;
        };
        if !intervals.begin(now) {
            if now < intervals.end() {
                return;
            }
            self.give(out);
            intervals.advance(now);
        }
        self.intervals = Some(intervals);
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        self.give(out);
    }

    fn account(&self) -> Option<Box<Account>> {
        let pruned = self.pruned();
        if pruned == 0 {
            return None;
        }
        let groups = if pruned == 1 {
            "group was"
        } else {
            "groups were"
        };
        Some(Box::new(Account {
            notes: vec![format!(
                "{pruned} small {groups} given up to bound memory; sums of small groups are too low"
            )],
            ..Account::default()
        }))
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.pruned()))
    }
}
