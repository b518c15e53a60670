//! `flowgauge flows`

use flowgauge_flow::FlowRecord;
use flowgauge_record::flow::FLOW_SCHEMA;
use flowgauge_record::{AggregateSpec, Aggregator, FlowRow, RecordWriter};
use flowgauge_stream::Handler;
use flowgauge_wire::{Batch, DecodedBatch};

use crate::failure::{self, Failure};
use crate::memory::{self, Needs};
use crate::options::{AggregateOptions, FlowsOptions};
use crate::run::{Consumer, Run, Writers};
use crate::say::{count, say};
use crate::sinks;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &FlowsOptions) -> Result<(), Failure> {
    let mut spec = aggregation(&options.aggregate)?;
    let needs = Needs {
        results: spec.is_some(),
        ..Needs::default()
    };
    if let Some(bytes) = memory::of_results(options.engine.memory, needs) {
        let bytes = bytes / u64::from(options.input.workers.unwrap_or(1));
        spec = spec.map(|spec| spec.with_memory(bytes));
    }
    let engine = options.engine.with_needs(needs);
    let run = Run::open(&options.input, &options.output.common, &engine)?;
    let seed = options.engine.community_id_seed;
    let Some(spec) = spec else {
        let writers = Writers::open(&options.output, FLOW_SCHEMA)?;
        let (outcome, written) = run.records(writers, |writer| FlowWriter {
            writer,
            seed,
            live: false,
        })?;
        outcome.conclude(&options.output.common)?;
        return written;
    };
    let groups = |_worker| Groups {
        aggregator: Aggregator::new(spec.clone()),
        seed,
    };
    let (outcome, all) = run.collect(groups)?;
    let mut parts = all.into_iter().map(|part| part.aggregator);
    let mut total = parts
        .next()
        .unwrap_or_else(|| Aggregator::new(spec.clone()));
    parts.for_each(|part| total.merge(part));
    let written = print_groups(options, &total);
    outcome.conclude(&options.output.common)?;
    written
}

/// The aggregation that was asked for, if one was. `--top` alone means the largest talkers.
fn aggregation(options: &AggregateOptions) -> Result<Option<AggregateSpec>, Failure> {
    if options.top.is_none() && options.by.is_empty() {
        if !options.sum.is_empty() {
            return Err(Failure::usage(
                "--sum without --by",
                "say what to group by, for example --by src_ip",
            ));
        }
        return Ok(None);
    }
    let or_default = |given: &[String], default: &[&str]| -> Vec<String> {
        if given.is_empty() {
            default.iter().map(|name| (*name).to_owned()).collect()
        } else {
            given.to_vec()
        }
    };
    let keys = or_default(&options.by, &["src_ip"]);
    let sums = or_default(&options.sum, &["bytes", "packets"]);
    Ok(Some(AggregateSpec::new(
        FLOW_SCHEMA,
        &keys,
        &sums,
        "flows",
    )?))
}

fn print_groups(options: &FlowsOptions, total: &Aggregator) -> Result<(), Failure> {
    let schema = total.schema();
    let output = sinks::open(&options.output, schema)?;
    let mut writer = RecordWriter::new(output, sinks::format(&options.output), schema);
    for row in total.rows(options.aggregate.top) {
        writer.write(&row);
    }
    writer.flush();
    if total.pruned() > 0 && !options.output.common.quiet {
        say!(
            "note: {} given up to bound memory; sums of small groups are too low",
            count(total.pruned(), "small group").were()
        );
    }
    failure::of_writer(&mut writer)
}

/// Writes every flow record.
struct FlowWriter {
    writer: RecordWriter,
    seed: u16,
    live: bool,
}

impl Handler for FlowWriter {
    fn batch(&mut self, _batch: &Batch<'_>, _decoded: &DecodedBatch) {
        if self.live {
            self.writer.flush();
        }
    }

    #[inline]
    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.writer.write(&FlowRow::new(record, self.seed));
    }
}

impl Consumer for FlowWriter {
    fn set_live(&mut self) {
        self.live = true;
    }

    fn finished(&self) -> bool {
        self.writer.has_failed()
    }

    fn writer(&mut self) -> Option<&mut RecordWriter> {
        Some(&mut self.writer)
    }
}

/// Aggregates flow records.
struct Groups {
    aggregator: Aggregator,
    seed: u16,
}

impl Handler for Groups {
    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.aggregator.add(&FlowRow::new(record, self.seed));
    }
}

impl Consumer for Groups {}
