//! Runs: sources through the engine into consumers, on one thread or several.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use flowgauge_capture::PacketSource;
use flowgauge_record::{Encoder, Format, Output, RecordWriter, Schema};
use flowgauge_runtime::{Distributor, ThreadFailure, distribute, threads};
use flowgauge_stream::engine::EngineStatistics;
use flowgauge_stream::{Findings, Handler};
use flowgauge_wire::{DecodeOptions, Ledger};

use crate::control::Control;
use crate::engine::{self, Engine, Pipeline};
use crate::failure::{self, Failure};
use crate::input::{self, Source};
use crate::memory;
use crate::options::{CommonOptions, EngineOptions, InputOptions, OutputOptions};
use crate::progress::Progress;
use crate::say::say;
use crate::sinks;
use crate::summary::{self, Outcome};

/// Batches between two looks at progress and statistics.
const BATCHES_PER_LOOK: u64 = 256;

/// Buffers of encoded records that may wait for the thread that writes.
const WAITING_BUFFERS: usize = 64;

/// Someone at the end of the engine.
pub(crate) trait Consumer {
    /// Results should appear as soon as they are known.
    fn set_live(&mut self) {}

    /// Nothing further is wanted: the reader went away or the disk is full.
    fn finished(&self) -> bool {
        false
    }

    /// The writer of its records, if it has one.
    fn writer(&mut self) -> Option<&mut RecordWriter> {
        None
    }
}

/// Opened sources and how to process them.
pub(crate) struct Run {
    /// One for each worker.
    sources: Vec<Source>,
    /// Reads files and distributes their packets among several workers.
    reader: Option<Distributor<Source>>,
    live: bool,
    file_bytes: Option<u64>,
    quiet: bool,
    engine: EngineOptions,
    control: Control,
}

impl Run {
    /// Opens what the options select.
    ///
    /// # Errors
    /// When something cannot be opened, or the filter is wrong.
    pub(crate) fn open(
        input: &InputOptions,
        common: &CommonOptions,
        engine: &EngineOptions,
    ) -> Result<Run, Failure> {
        let workers = usize::from(input.workers.unwrap_or(1));
        memory::check(engine.memory, workers as u64)?;
        let control = Control::install()?;
        let opened = input::open(input, &control)?;
        opened.announce(common.quiet);
        let (reader, sources) = divide(opened.sources, workers, opened.file_bytes.is_some());
        Ok(Run {
            sources,
            reader,
            live: opened.live,
            file_bytes: opened.file_bytes,
            quiet: common.quiet,
            engine: engine.clone(),
            control,
        })
    }

    /// Runs with one consumer per source, each made by `make` from its number, and hands them back.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn collect<C: Consumer + Handler + Send>(
        self,
        make: impl Fn(usize) -> C,
    ) -> Result<(Outcome, Vec<C>), Failure> {
        let options = self.engine.clone();
        self.collect_with(make, |workers, led| Engine::new(&options, workers, led))
    }

    /// The same with pipelines of another kind, each made by `pipeline` from the number of workers and
    /// whether one reader distributes the packets.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn collect_with<C: Consumer + Send, P: Pipeline<C> + Send>(
        self,
        make: impl Fn(usize) -> C,
        pipeline: impl Fn(usize, bool) -> P,
    ) -> Result<(Outcome, Vec<C>), Failure> {
        let consumers = (0..self.sources.len()).map(make).collect();
        self.process(consumers, pipeline)
    }

    /// Runs with consumers that write records, each made by `make` from its writer. Records of
    /// several threads meet in a thread of their own, buffer by buffer.
    ///
    /// The inner result tells whether everything could be written.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn records<C: Consumer + Handler + Send>(
        self,
        writers: Writers,
        make: impl Fn(RecordWriter) -> C,
    ) -> Result<(Outcome, Result<(), Failure>), Failure> {
        let options = self.engine.clone();
        self.records_with(writers, make, |workers, led| {
            Engine::new(&options, workers, led)
        })
    }

    /// The same with pipelines of another kind, see [`Run::collect_with`].
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn records_with<C: Consumer + Send, P: Pipeline<C> + Send>(
        self,
        writers: Writers,
        make: impl Fn(RecordWriter) -> C,
        pipeline: impl Fn(usize, bool) -> P,
    ) -> Result<(Outcome, Result<(), Failure>), Failure> {
        let Writers {
            mut output,
            format,
            schema,
        } = writers;
        if self.sources.len() == 1 {
            let writer = RecordWriter::new(output, format, schema);
            let (outcome, mut consumers) = self.process(vec![make(writer)], pipeline)?;
            let writer = consumers.first_mut().and_then(Consumer::writer);
            return Ok((outcome, writer.map_or(Ok(()), failure::of_writer)));
        }
        let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(WAITING_BUFFERS);
        let control = self.control.clone();
        thread::scope(|scope| {
            let written = scope.spawn(move || {
                let mut header = Vec::new();
                Encoder::new(format).header(schema, &mut header);
                let mut result = output.write(&header);
                for buffer in receiver {
                    result = result.and_then(|()| output.write(&buffer));
                    result = result.and_then(|()| output.flush());
                    if result.is_err() {
                        control.stop();
                        break;
                    }
                }
                result.and_then(|()| output.flush())
            });
            let consumers = (0..self.sources.len())
                .map(|_| {
                    make(RecordWriter::raw(
                        Box::new(ToThread(sender.clone())),
                        format,
                    ))
                })
                .collect();
            drop(sender);
            let (outcome, consumers) = self.process(consumers, pipeline)?;
            // Only without their writers does the channel close.
            drop(consumers);
            let written = match written.join() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => failure::of_output(error).map_or(Ok(()), Err),
                Err(_) => Err(Failure::run("the writing thread failed", None)),
            };
            Ok((outcome, written))
        })
    }

    fn process<C: Consumer + Send, P: Pipeline<C> + Send>(
        self,
        mut consumers: Vec<C>,
        pipeline: impl Fn(usize, bool) -> P,
    ) -> Result<(Outcome, Vec<C>), Failure> {
        let started = Instant::now();
        let progress = Progress::new(self.file_bytes.filter(|_| !self.quiet && !self.live));
        let board = Board {
            ledgers: self.sources.iter().map(|_| Mutex::default()).collect(),
            control: self.control,
            live: self.live,
            started,
        };
        if self.live {
            consumers.iter_mut().for_each(Consumer::set_live);
        }
        let mut sources = self.sources;
        let workers = sources.len();
        let mut outcome = Outcome::default();
        let mut parts = Vec::with_capacity(workers);
        if let ([_], [consumer]) = (sources.as_slice(), consumers.as_mut_slice()) {
            let engine = pipeline(workers, false);
            let work = |source| work(0, source, engine, consumer, &board, &progress);
            parts.extend(sources.pop().map(work));
        } else {
            let led = self.reader.is_some();
            // Each worker is waited for, whatever became of the others.
            let ended: Result<Vec<Part>, ThreadFailure> = thread::scope(|scope| {
                let board = &board;
                let stopping = |failure| {
                    board.control.stop();
                    failure
                };
                let reader = self.reader.map(|reader| {
                    let read = || reader.run(|| board.control.stopped());
                    threads::start(scope, "reader".to_owned(), None, read).map_err(stopping)
                });
                let threads: Vec<_> = sources
                    .into_iter()
                    .zip(&mut consumers)
                    .enumerate()
                    .map(|(number, (source, consumer))| {
                        let engine = pipeline(workers, led);
                        let progress = &progress;
                        let work = move || work(number, source, engine, consumer, board, progress);
                        threads::start(scope, format!("worker-{number}"), None, work)
                            .map_err(stopping)
                    })
                    .collect();
                let parts = threads
                    .into_iter()
                    .map(|thread| thread.and_then(|thread| thread.join().map_err(stopping)))
                    .collect::<Vec<_>>();
                if let Some(reader) = reader {
                    let reading = reader?.join()?;
                    outcome.ledger.merge(&reading.ledger);
                    outcome.errors.extend(reading.errors);
                    outcome.notes.extend(reading.notes);
                }
                parts.into_iter().collect()
            });
            parts = ended.map_err(|failure| Failure::run(failure.to_string(), None))?;
        }
        progress.finish();
        outcome.elapsed = started.elapsed();
        let mut findings = Findings::default();
        for part in parts {
            outcome.ledger.merge(&part.ledger);
            outcome.errors.extend(part.errors);
            outcome.notes.extend(part.notes);
            findings.merge(&part.findings);
            outcome.statistics.extend(part.statistics);
            if let Some(streams) = &part.streams {
                outcome.streams.get_or_insert_default().add(streams);
            }
        }
        outcome.notes.extend(engine::notes(&findings));
        Ok((outcome, consumers))
    }
}

/// Divides files among several workers. They are read ahead where they are `plain`: what else may
/// fall silent, and its packets must not wait.
fn divide(
    mut sources: Vec<Source>,
    workers: usize,
    plain: bool,
) -> (Option<Distributor<Source>>, Vec<Source>) {
    // Interfaces are divided by the kernel.
    let source = match sources.pop() {
        Some(source) if workers > 1 && sources.is_empty() => source,
        last => {
            sources.extend(last);
            return (None, sources);
        }
    };
    let (reader, shares) = distribute(source, workers, DecodeOptions::default());
    let boxed = shares.into_iter().map(|share| Box::new(share) as Source);
    (Some(reader.prompt(!plain)), boxed.collect())
}

/// Where records go, before it is known how many threads write them.
pub(crate) struct Writers {
    output: Output,
    format: Format,
    schema: Schema,
}

impl Writers {
    /// Opens the output that `options` ask for.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn open(options: &OutputOptions, schema: Schema) -> Result<Writers, Failure> {
        Ok(Writers {
            output: sinks::open(options, schema)?,
            format: sinks::format(options),
            schema,
        })
    }
}

/// What one worker leaves.
#[derive(Default)]
struct Part {
    ledger: Ledger,
    errors: Vec<flowgauge_capture::Error>,
    notes: Vec<String>,
    findings: Findings,
    statistics: Vec<String>,
    streams: Option<EngineStatistics>,
}

/// What workers share: signals, and their ledgers for SIGUSR1.
struct Board {
    ledgers: Vec<Mutex<Ledger>>,
    control: Control,
    live: bool,
    started: Instant,
}

impl Board {
    /// Whether to look at no further batch. A live source ends of its own accord when it is
    /// stopped, after the packets in its ring.
    fn ended(&self) -> bool {
        !self.live && self.control.stopped()
    }

    fn publish(&self, number: usize, ledger: Ledger) {
        if let Some(place) = self.ledgers.get(number) {
            *lock(place) = ledger;
        }
    }

    fn print(&self, statistics: &[String]) {
        let mut total = Ledger::default();
        for ledger in &self.ledgers {
            total.merge(&lock(ledger));
        }
        say!("{}", summary::ledger_line(&total));
        summary::print_statistics(&total, statistics, self.started.elapsed());
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One source through one engine into one consumer, until the end of input or a signal.
fn work<C: Consumer, P: Pipeline<C>>(
    number: usize,
    mut source: Source,
    mut pipeline: P,
    consumer: &mut C,
    board: &Board,
    progress: &Progress,
) -> Part {
    let mut part = Part::default();
    let mut batches = 0u64;
    while !board.ended() && !consumer.finished() {
        let mut idle = false;
        match source.next_batch() {
            Ok(Some(batch)) => {
                idle = batch.is_empty();
                pipeline.process(&batch, consumer);
                progress.add(&batch);
            }
            Ok(None) => break,
            // One damaged file of several: the others go on.
            Err(error) => part.errors.push(error),
        }
        batches += 1;
        if idle || batches.is_multiple_of(BATCHES_PER_LOOK) {
            board.publish(number, pipeline.ledger(source.ledger()));
            progress.show();
        }
        if board.control.statistics_wanted() {
            board.publish(number, pipeline.ledger(source.ledger()));
            board.print(&engine::statistics(&pipeline.shard().statistics()));
        }
    }
    pipeline.finish(consumer);
    if let Some(writer) = consumer.writer() {
        writer.flush();
    }
    part.ledger = pipeline.ledger(source.ledger());
    part.notes = source.notes();
    part.findings = Findings::of(pipeline.shard());
    part.statistics = engine::statistics(&pipeline.shard().statistics());
    part.streams = pipeline.streams();
    part
}

/// Hands encoded records to the thread that writes them.
struct ToThread(SyncSender<Vec<u8>>);

impl Write for ToThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send(bytes.to_vec()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether standard error is a terminal, where progress can be shown.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}
