//! `flowgauge stack run`

use std::path::Path;
use std::time::Instant;

use flowgauge_capture::PacketSource;
use flowgauge_flow::CaptureClock;
use flowgauge_record::RecordWriter;
use flowgauge_record::results::{RESULT_SCHEMA, ResultRow, Value};
use flowgauge_stack::{ComponentFailure, Graph, OptionKind, OptionValue, ResultValue, Stack};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{Batch, DecodedBatch, HashSeed, hash_batch};

use super::read;
use crate::control::Control;
use crate::failure::{self, Failure};
use crate::input;
use crate::options::RunOptions;
use crate::progress::Progress;
use crate::say::say;
use crate::sinks;
use crate::summary::{self, Outcome};

/// Batches between two looks at progress and statistics.
const BATCHES_PER_LOOK: u64 = 256;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(super) fn run(options: &RunOptions) -> Result<(), Failure> {
    let text = read::text(options.file.as_deref(), options.expression.as_deref())?;
    let program = read::program(text)?;
    if options.input.workers.is_some_and(|workers| workers > 1) {
        return Err(Failure::usage(
            "stacks run on one core so far",
            "leave --workers out",
        ));
    }
    let control = Control::install()?;
    let common = &options.output.common;
    refuse_overwriting(options, &program.stacks)?;
    // Files are opened before privileges are given up.
    let format = sinks::format(&options.output);
    let is_taken = options.output.write.is_none() && writes(&program.stacks, "-");
    let output = (!is_taken).then(|| sinks::open(&options.output, RESULT_SCHEMA));
    let output = output.transpose()?;
    let mut stacks = Stacks::new(&program.stacks)?;
    let mut opened = input::open(&options.input, &control)?;
    let [source] = opened.sources.as_mut_slice() else {
        return Err(Failure::usage(
            "a stack takes packets of one source",
            "use -i any for all interfaces",
        ));
    };
    let mut writer = output.map(|output| RecordWriter::new(output, format, RESULT_SCHEMA));
    input::announce(opened.listening.as_deref(), common.quiet);
    let progress = Progress::new(opened.file_bytes.filter(|_| !common.quiet && !opened.live));
    let mut outcome = Outcome::default();
    let started = Instant::now();
    let mut batches: u64 = 0;
    while (opened.live || !control.stopped()) && stacks.is_any_alive() {
        match source.next_batch() {
            Ok(Some(batch)) => {
                stacks.batch(&batch);
                progress.add(&batch);
            }
            Ok(None) => break,
            Err(error) => outcome.errors.push(error),
        }
        batches += 1;
        if batches.is_multiple_of(BATCHES_PER_LOOK) {
            progress.show();
        }
        if control.statistics_wanted() {
            let ledger = source.ledger();
            say!("{}", summary::ledger_line(&ledger));
            summary::print_statistics(&ledger, &stacks.statistics(), started.elapsed());
        }
    }
    stacks.finish();
    progress.finish();
    outcome.ledger.merge(&source.ledger());
    outcome.elapsed = started.elapsed();
    outcome.statistics = stacks.statistics();
    stacks.results(|row| match &mut writer {
        Some(writer) => writer.write(row),
        // Standard output has what a component writes.
        None if common.quiet => {}
        None => say!("{row}"),
    });
    let written = writer.as_mut().map_or(Ok(()), |writer| {
        writer.flush();
        failure::of_writer(writer)
    });
    outcome.conclude(common)?;
    stacks.conclude().and(written)
}

/// A stack may not write over what it reads.
fn refuse_overwriting(options: &RunOptions, stacks: &[Stack]) -> Result<(), Failure> {
    files(stacks).try_for_each(|file| {
        let refused = input::refuse_overwriting(&options.input, Path::new(file));
        refused.map_err(|failure| match failure {
            Failure::Usage { what, .. } => {
                Failure::usage(what, "give the component's option file another name")
            }
            other => other,
        })
    })
}

/// Whether a component writes to a file.
fn writes(stacks: &[Stack], name: &str) -> bool {
    files(stacks).any(|file| file == name)
}

/// The files that components write.
fn files(stacks: &[Stack]) -> impl Iterator<Item = &str> {
    let nodes = stacks.iter().flat_map(|stack| &stack.nodes);
    let settings = nodes.flat_map(|node| node.settings.iter());
    settings.filter_map(|setting| match &setting.value {
        OptionValue::Text(file) if setting.option.kind == OptionKind::OutputFile => {
            Some(file.as_str())
        }
        _ => None,
    })
}

/// Stacks that run side by side over the same packets.
struct Stacks<'a> {
    running: Vec<(&'a Stack, Graph)>,
    decoder: Decoder,
    decoded: DecodedBatch,
    clock: CaptureClock,
    seed: HashSeed,
    failed: usize,
    alive: usize,
}

impl<'a> Stacks<'a> {
    fn new(stacks: &'a [Stack]) -> Result<Stacks<'a>, Failure> {
        let seed = HashSeed::FIXED;
        let mut running = Vec::with_capacity(stacks.len());
        for stack in stacks {
            let graph = Graph::new(stack, seed);
            let mut graph = graph.map_err(|error| Failure::Usage {
                what: error.message,
                hint: error.hint,
            })?;
            graph.start().map_err(|failure| Failure::Usage {
                what: failure.to_string(),
                hint: failure.failure.hint,
            })?;
            running.push((stack, graph));
        }
        Ok(Stacks {
            alive: running.len(),
            running,
            decoder: Decoder::default(),
            decoded: DecodedBatch::new(),
            clock: CaptureClock::default(),
            seed,
            failed: 0,
        })
    }

    fn is_any_alive(&self) -> bool {
        self.alive > 0
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        self.decoder.decode_batch(batch, &mut self.decoded);
        hash_batch(self.seed, &mut self.decoded.packets);
        let mut packets = batch.packets.iter().peekable();
        while let Some(packet) = packets.next() {
            let next = packets.peek().map(|next| next.time);
            self.clock.packet(packet.time, next);
        }
        if let Some(now) = batch.now {
            self.clock.trusted(now);
        }
        for (stack, graph) in &mut self.running {
            if graph.is_over() {
                continue;
            }
            let result = graph.process(batch, &self.decoded, self.clock.now());
            self.alive -= usize::from(graph.is_over());
            if let Err(failure) = result {
                self.failed += 1;
                say_failure(stack, &failure);
            }
        }
    }

    fn finish(&mut self) {
        for (stack, graph) in &mut self.running {
            if let Err(failure) = graph.finish() {
                self.failed += 1;
                say_failure(stack, &failure);
            }
        }
    }

    /// The results of all components that have one.
    fn results(&self, mut give: impl FnMut(&ResultRow<'_>)) {
        for (stack, graph) in &self.running {
            for (id, node) in stack.iter() {
                let (Some(info), Some(result)) = (node.info.result, graph.result(id)) else {
                    continue;
                };
                let cell = result.cell();
                let row = ResultRow {
                    stack: stack.name.as_deref(),
                    component: &node.label,
                    result: info.summary,
                    value: Value(&cell),
                    unit: info.unit,
                    row: None,
                };
                match &result {
                    ResultValue::Table(table) => table.iter().for_each(|cells| {
                        give(&ResultRow {
                            row: Some(cells),
                            ..row
                        });
                    }),
                    _ => give(&row),
                }
            }
        }
    }

    /// What went through each component, for `--stats`.
    fn statistics(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (stack, graph) in &self.running {
            for (id, node) in stack.iter() {
                let passed = graph.passed(id);
                lines.push(format!(
                    "{}: {} items in {} batches",
                    node.label, passed.items, passed.batches
                ));
            }
        }
        lines
    }

    /// Whether all stacks came to their end; those that did not were named when they failed.
    fn conclude(&self) -> Result<(), Failure> {
        match (self.failed, self.running.len()) {
            (0, _) => Ok(()),
            (_, 1) => Err(Failure::run("the stack failed", None)),
            (failed, all) => Err(Failure::run(
                format!("{failed} of {all} stacks failed"),
                None,
            )),
        }
    }
}

/// A component failed: the others of the run go on, so it is said at once.
fn say_failure(stack: &Stack, failure: &ComponentFailure) {
    let name = stack.name.as_ref();
    let name = name.map_or(String::new(), |name| format!("stack {name}: "));
    say!("flowgauge: error: {name}{failure}");
    if let Some(hint) = &failure.failure.hint {
        say!("hint: {hint}");
    }
}
