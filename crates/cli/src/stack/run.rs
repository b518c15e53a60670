//! `flowgauge stack run`

use core::time::Duration;
use std::path::Path;
use std::time::Instant;

use flowgauge_record::RecordWriter;
use flowgauge_record::results::{RESULT_SCHEMA, ResultRow, Value};
use flowgauge_runtime::stacks::{Runner, RunnerOptions, StackFailure};
use flowgauge_stack::{OptionKind, OptionValue, ResultValue, Stack};

use super::read;
use crate::control::Control;
use crate::failure::{self, Failure};
use crate::input::{self, Opened};
use crate::options::RunOptions;
use crate::progress::Progress;
use crate::say::say;
use crate::sinks;
use crate::summary::{self, Outcome};

/// Batches between two looks at progress and statistics.
const BATCHES_PER_LOOK: u64 = 256;

/// How often signals are looked at where no packets are read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(super) fn run(options: &RunOptions) -> Result<(), Failure> {
    let text = read::text(options.file.as_deref(), options.expression.as_deref())?;
    let program = read::program(text)?;
    let control = Control::install()?;
    let common = &options.output.common;
    refuse_overwriting(options, &program.stacks)?;
    // Files are opened before privileges are given up.
    let format = sinks::format(&options.output);
    let is_taken = options.output.write.is_none() && writes(&program.stacks, "-");
    let output = (!is_taken).then(|| sinks::open(&options.output, RESULT_SCHEMA));
    let output = output.transpose()?;
    let runner = RunnerOptions {
        workers: options.input.workers.map_or(1, usize::from),
        ..RunnerOptions::default()
    };
    let runner = Runner::new(program, &runner).map_err(|error| Failure::Usage {
        what: error.to_string(),
        hint: error.hint().map(str::to_owned),
    })?;
    let mut opened = open(options, &runner, &control)?;
    let mut writer = output.map(|output| RecordWriter::new(output, format, RESULT_SCHEMA));
    if let Some(opened) = &opened {
        opened.announce(common.quiet);
    }
    let started = Instant::now();
    let mut running = Running {
        runner,
        failed: 0,
        started,
        watch: options.watch.map(|seconds| Watch {
            every: Duration::from_secs(seconds),
            next: started + Duration::from_secs(seconds),
            is_json: options.output.json,
            before: Vec::new(),
        }),
    };
    let mut outcome = Outcome::default();
    if let Some(opened) = &mut opened {
        running.read(opened, &control, common.quiet, &mut outcome);
    }
    while running.runner.has_sources() && !control.stopped() {
        running.runner.wait(LOOK_EVERY);
        running.say_failures();
        running.watch();
        if control.statistics_wanted() {
            summary::print_statistics(
                &outcome.ledger,
                &running.statistics(),
                running.started.elapsed(),
            );
            running.results(|row| say!("{row}"));
        }
    }
    running.runner.finish();
    running.say_failures();
    outcome.elapsed = running.started.elapsed();
    outcome.statistics = running.statistics();
    running.results(|row| match &mut writer {
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
    running.conclude().and(written)
}

/// Opens what packets come from, if a stack wants any.
fn open(
    options: &RunOptions,
    runner: &Runner,
    control: &Control,
) -> Result<Option<Opened>, Failure> {
    let input = &options.input;
    if !runner.wants_packets() {
        if input.read.is_empty() && input.interface.is_empty() {
            return Ok(None);
        }
        return Err(Failure::usage(
            "all stacks begin with a source of their own",
            "leave -r and -i out",
        ));
    }
    // There is one reader, however many threads share what it reads.
    let mut input = input.clone();
    input.workers = None;
    let opened = input::open(&input, control)?;
    if opened.sources.len() != 1 {
        return Err(Failure::usage(
            "a stack takes packets of one source",
            "use -i any for all interfaces",
        ));
    }
    Ok(Some(opened))
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
    // An output to another machine writes none.
    let nodes = nodes.filter(|node| node.settings.text("to").is_none());
    let settings = nodes.flat_map(|node| node.settings.iter());
    settings.filter_map(|setting| match &setting.value {
        OptionValue::Text(file) if setting.option.kind == OptionKind::OutputFile => {
            Some(file.as_str())
        }
        _ => None,
    })
}

/// Stacks that run, and what became of them.
struct Running {
    runner: Runner,
    failed: usize,
    started: Instant,
    watch: Option<Watch>,
}

/// What is said while stacks run.
struct Watch {
    every: Duration,
    next: Instant,
    is_json: bool,
    /// Items of each component when it was said before.
    before: Vec<u64>,
}

impl Running {
    /// Says how it goes, when it is time.
    fn watch(&mut self) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let now = Instant::now();
        if now < watch.next {
            return;
        }
        let seconds = (now + watch.every - watch.next).as_secs_f64();
        watch.next = now + watch.every;
        let elapsed = (now - self.started).as_secs_f64();
        let snapshot = self.runner.snapshot();
        let mut places = 0;
        for (stack, state) in self.runner.stacks().iter().zip(&snapshot.stacks) {
            for ((_, node), state) in stack.iter().zip(&state.components) {
                let items = state.passed.items;
                if watch.before.len() <= places {
                    watch.before.push(0);
                }
                let before = core::mem::replace(&mut watch.before[places], items);
                places += 1;
                let rate = items.saturating_sub(before) as f64 / seconds;
                let result = state.result.as_ref().zip(node.info.result);
                if watch.is_json {
                    let line = serde_json::json!({
                        "elapsed": elapsed,
                        "stack": stack.name,
                        "component": node.label,
                        "items": items,
                        "items_per_second": rate,
                        "result": result.and_then(|(result, _)| {
                            result.number().and_then(|number| i64::try_from(number).ok())
                        }),
                        "unit": result.map(|(_, info)| info.unit),
                    });
                    say!("{line}");
                    continue;
                }
                let name = stack.name.as_ref();
                let name = name.map_or(String::new(), |name| format!("{name}."));
                let result = result.map_or(String::new(), |(result, info)| {
                    format!("; {result} {}", info.unit)
                });
                let label = &node.label;
                say!("{elapsed:.1} s: {name}{label}: {items} items ({rate:.0}/s){result}");
            }
        }
    }

    /// Takes the packets of the input through the stacks.
    fn read(&mut self, opened: &mut Opened, control: &Control, quiet: bool, outcome: &mut Outcome) {
        let (live, file_bytes) = (opened.live, opened.file_bytes);
        let Some(source) = opened.sources.first_mut() else {
            return;
        };
        let progress = Progress::new(file_bytes.filter(|_| !quiet && !live));
        let mut batches: u64 = 0;
        while (live || !control.stopped()) && self.runner.wants_packets() {
            match self.runner.step(source) {
                Ok(Some(step)) => progress.add_step(step.packets, step.captured_bytes),
                Ok(None) => break,
                Err(error) => outcome.errors.push(error),
            }
            self.say_failures();
            self.watch();
            batches += 1;
            if batches.is_multiple_of(BATCHES_PER_LOOK) {
                progress.show();
            }
            if control.statistics_wanted() {
                let ledger = source.ledger();
                say!("{}", summary::ledger_line(&ledger));
                summary::print_statistics(&ledger, &self.statistics(), self.started.elapsed());
                self.results(|row| say!("{row}"));
            }
        }
        progress.finish();
        outcome.ledger.merge(&source.ledger());
    }

    /// The results of all components that have one.
    fn results(&self, mut give: impl FnMut(&ResultRow<'_>)) {
        let snapshot = self.runner.snapshot();
        for (stack, state) in self.runner.stacks().iter().zip(&snapshot.stacks) {
            for (id, node) in stack.iter() {
                let result = state.component(id).and_then(|state| state.result.as_ref());
                let (Some(info), Some(result)) = (node.info.result, result) else {
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
                match result {
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
        let snapshot = self.runner.snapshot();
        for (stack, state) in self.runner.stacks().iter().zip(&snapshot.stacks) {
            for ((_, node), state) in stack.iter().zip(&state.components) {
                lines.push(format!(
                    "{}: {} items in {} batches",
                    node.label, state.passed.items, state.passed.batches
                ));
            }
        }
        lines
    }

    /// Components that failed are said at once: the other stacks of the run go on.
    fn say_failures(&mut self) {
        for StackFailure { stack, failure } in self.runner.failures() {
            self.failed += 1;
            let name = self
                .runner
                .stacks()
                .get(stack)
                .and_then(|stack| stack.name.as_ref());
            let name = name.map_or(String::new(), |name| format!("stack {name}: "));
            say!("flowgauge: error: {name}{failure}");
            if let Some(hint) = &failure.failure.hint {
                say!("hint: {hint}");
            }
        }
    }

    /// Whether all stacks came to their end; those that did not were named when they failed.
    fn conclude(&self) -> Result<(), Failure> {
        match (self.failed, self.runner.stacks().len()) {
            (0, _) => Ok(()),
            (_, 1) => Err(Failure::run("the stack failed", None)),
            (failed, all) => Err(Failure::run(
                format!("{failed} of {all} stacks failed"),
                None,
            )),
        }
    }
}
