//! Runs: sources through the engine into consumers, on one thread or several.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use flowgauge_record::{Encoder, Format, Output, RecordWriter, Schema};
use flowgauge_stream::Handler;
use flowgauge_wire::Ledger;

use crate::control::Control;
use crate::engine::{Engine, Findings};
use crate::failure::{self, Failure};
use crate::input::{self, Source};
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
pub(crate) trait Consumer: Handler {
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
    sources: Vec<Source>,
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
        let control = Control::install()?;
        let opened = input::open(input, &control)?;
        opened.announce(common.quiet);
        Ok(Run {
            sources: opened.sources,
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
    pub(crate) fn collect<C: Consumer + Send>(
        self,
        make: impl Fn(usize) -> C,
    ) -> Result<(Outcome, Vec<C>), Failure> {
        let consumers = (0..self.sources.len()).map(make).collect();
        self.process(consumers)
    }

    /// Runs with consumers that write records, each made by `make` from its writer. Records of
    /// several threads meet in a thread of their own, buffer by buffer.
    ///
    /// The inner result tells whether everything could be written.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn records<C: Consumer + Send>(
        self,
        writers: Writers,
        make: impl Fn(RecordWriter) -> C,
    ) -> Result<(Outcome, Result<(), Failure>), Failure> {
        let Writers {
            mut output,
            format,
            schema,
        } = writers;
        if self.sources.len() == 1 {
            let writer = RecordWriter::new(output, format, schema);
            let (outcome, mut consumers) = self.process(vec![make(writer)])?;
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
            let (outcome, consumers) = self.process(consumers)?;
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

    fn process<C: Consumer + Send>(
        self,
        mut consumers: Vec<C>,
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
        let mut parts = Vec::with_capacity(sources.len());
        if let ([source], [consumer]) = (sources.as_mut_slice(), consumers.as_mut_slice()) {
            let engine = Engine::new(&self.engine, workers);
            parts.push(work(0, source, engine, consumer, &board, &progress));
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> = sources
                    .iter_mut()
                    .zip(&mut consumers)
                    .enumerate()
                    .map(|(number, (source, consumer))| {
                        let engine = Engine::new(&self.engine, workers);
                        let (board, progress) = (&board, &progress);
                        thread::Builder::new()
                            .name(format!("worker-{number}"))
                            .spawn_scoped(scope, move || {
                                work(number, source, engine, consumer, board, progress)
                            })
                    })
                    .collect();
                for thread in threads {
                    let thread = thread.map_err(|error| {
                        board.control.stop();
                        Failure::run(format!("cannot start a worker: {error}"), None)
                    })?;
                    parts.push(thread.join().map_err(|_| {
                        board.control.stop();
                        Failure::run("a worker failed", None)
                    })?);
                }
                Ok::<(), Failure>(())
            })?;
        }
        progress.finish();
        let mut outcome = Outcome {
            elapsed: started.elapsed(),
            ..Outcome::default()
        };
        let mut findings = Findings::default();
        for part in parts {
            outcome.ledger.merge(&part.ledger);
            outcome.errors.extend(part.errors);
            findings.merge(part.findings);
            outcome.statistics.extend(part.statistics);
        }
        outcome.notes = findings.notes();
        Ok((outcome, consumers))
    }
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
    findings: Findings,
    statistics: Vec<String>,
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
fn work<C: Consumer>(
    number: usize,
    source: &mut Source,
    mut engine: Engine,
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
                engine.process(&batch, consumer);
                progress.add(&batch);
            }
            Ok(None) => break,
            // One damaged file of several: the others go on.
            Err(error) => part.errors.push(error),
        }
        batches += 1;
        if idle || batches.is_multiple_of(BATCHES_PER_LOOK) {
            board.publish(number, engine.ledger(source.ledger()));
            progress.show();
        }
        if board.control.statistics_wanted() {
            board.publish(number, engine.ledger(source.ledger()));
            board.print(&engine.statistics());
        }
    }
    engine.finish(consumer);
    if let Some(writer) = consumer.writer() {
        writer.flush();
    }
    part.ledger = engine.ledger(source.ledger());
    part.findings = engine.findings();
    part.statistics = engine.statistics();
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
