//! `report`: one page about all packets.

mod collect;
mod histogram;
mod json;
mod page;
mod said;
mod talkers;
mod timeline;

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_capture::Error;
use flowgauge_flow::FlowRecord;
use flowgauge_kit::engine;
use flowgauge_kit::file_name::Name;
use flowgauge_record::text::harmless_json;
use flowgauge_stack::engine::{Feed, Required};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, LastWord, Outlet, Output, Parallel, RunEnd,
    SettingError, Settings, WriteLast, options,
};
use flowgauge_stream::{Chunk, Handler, Needs, Shares, Stream, Want};
use flowgauge_sys::files::{self, How};
use flowgauge_wire::{Batch, DecodedBatch, Nanos};

use crate::protocols::{self, Leading};
use collect::Collector;
use said::Said;
use talkers::Sums;

options! {
    struct Options;
    file: OutputFile = "-", "where to write; - is standard output; may contain strftime fields, filled in with the \
    first packet's time";
    format: Choice("page", "json") = "page", "text, or a JSON object";
    top: Integer(1, 1_000_000_000) = "10", "entries of each list";
    payload: Flag = "yes", "inspect payload: protocols of flows, and HTTP, DNS and TLS transactions";
    [
        protocols::APPLICATIONS, engine::CHECKSUMS, engine::VLAN_AWARE, engine::OVERLAP_POLICY, engine::MEMORY,
        engine::MAX_FLOWS, engine::TCP_IDLE, engine::UDP_IDLE, engine::OTHER_IDLE,
    ]
    active_timeout: Duration, "an active flow counts again at this interval";
}

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "report",
    summary: "writes a summary of all packets at the end",
    help: "The page has duration and rates, the ledger, protocols, top talkers, services and flows, TCP \
           health, sizes and durations, protocols and applications, HTTP, DNS and TLS. With format = json it \
           is an object. With more than 200,000 addresses, those with the least traffic are dropped.",
    output: Output::Nothing,
    is_end: true,
    outside: Some("it has one table of all flows"),
    options: Options::ALL,
    parallel: Parallel::ByFlow,
    decodes: |_| true,
    engine: Some(required),
    effects: |_| true,
    make,
    ..ComponentInfo::OF_PACKETS
};

/// What the copies on several cores share.
struct Shared {
    name: Name,
    /// What it is, where it does not depend on the packets.
    path: Option<String>,
    is_json: bool,
    top: usize,
    copies: AtomicUsize,
    ended: Mutex<Ended>,
}

/// What copies that have come to their end have gathered, by the numbers of the copies.
#[derive(Default)]
struct Ended {
    parts: Vec<(usize, Box<Collector>)>,
}

struct Report {
    /// What looks into payload.
    state: Option<protocols::State>,
    /// Of the copies on several cores.
    number: usize,
    /// Until its end.
    collector: Option<Box<Collector>>,
    shared: Arc<Shared>,
    is_last: bool,
}

fn needs(looks_into: bool) -> Needs {
    Needs {
        results: true,
        ..match looks_into {
            true => protocols::NEEDS,
            false => Needs::default(),
        }
    }
}

fn required(settings: &Settings) -> Result<Option<Required>, SettingError> {
    let looks_into = protocols::classifies(settings, "payload")?;
    engine::required(settings, needs(looks_into))
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let looks_into = protocols::classifies(settings, "payload")?;
    let needs = needs(looks_into);
    let shared = settings.shared(|| {
        let name = Name::read_of_one(settings, "file")?;
        Ok(Shared {
            path: name.constant(),
            name,
            is_json: settings.text("format") == Some("json"),
            top: settings.integer("top").unwrap_or(10) as usize,
            copies: AtomicUsize::new(0),
            ended: Mutex::default(),
        })
    })?;
    let number = shared.copies.fetch_add(1, Ordering::Relaxed);
    let memory = settings.size("memory");
    let memory = memory.map(|all| Shares::of_results(all, needs) / settings.copies() as u64);
    let (state, memory) = match looks_into {
        true => (
            Some(protocols::State::classifying(settings, true)?.beside_others()),
            // Conversations have the other half.
            memory.map(|bytes| bytes / 2),
        ),
        false => (None, memory),
    };
    Ok(Box::new(Report {
        state,
        number,
        collector: Some(Box::new(Collector::new(shared.top, memory, looks_into))),
        shared,
        is_last: false,
    }))
}

impl Shared {
    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(path: &str, action: &'static str, source: io::Error) -> Failure {
        if path == "-" {
            return Failure::new(format!("cannot write the output: {source}"));
        }
        let error = Error::Io {
            action,
            path: Path::new(path).to_owned(),
            source,
        };
        Failure {
            message: error.to_string(),
            hint: error.hint(),
        }
    }
}

impl WriteLast for Shared {
    fn write(&self, run: &RunEnd<'_>) -> Result<(), Failure> {
        let mut parts = core::mem::take(&mut self.ended().parts);
        // Whoever was done first: sums are the same each time.
        parts.sort_unstable_by_key(|(number, _)| *number);
        let mut parts = parts.into_iter().map(|(_, part)| part);
        let Some(mut total) = parts.next() else {
            return Ok(());
        };
        parts.for_each(|part| total.merge(*part));
        let text = if self.is_json {
            format!(
                "{}\n",
                harmless_json(&json::report(&total, run, self.top).to_string())
            )
        } else {
            page::report(&total, run, self.top)
        };
        let began = total.first.unwrap_or(Nanos(0));
        let path = self.path.clone();
        let path = path.unwrap_or_else(|| self.name.clone().evaluate(began, 1, Vec::new));
        let written = if path == "-" {
            let mut output = io::stdout().lock();
            output
                .write_all(text.as_bytes())
                .and_then(|()| output.flush())
        } else {
            let file = files::named().open(Path::new(&path), How::replace());
            let mut file = file.map_err(|error| Shared::failure(&path, "create", error))?;
            file.write_all(text.as_bytes())
        };
        match written {
            // The reader went away.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Shared::failure(&path, "write", error)),
            Ok(()) => Ok(()),
        }
    }
}

/// Lets conversations be led, and gathers what the report says.
struct Both<'a> {
    state: &'a mut protocols::State,
    said: &'a mut Said,
    collector: &'a mut Collector,
}

impl Both<'_> {
    fn leading(&mut self) -> Leading<'_> {
        Leading {
            state: self.state,
            out: self.said,
        }
    }
}

impl Handler for Both<'_> {
    const STREAMS: bool = true;

    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        self.collector.batch(batch, decoded);
    }

    #[inline]
    fn want(&mut self) -> Option<Want> {
        self.leading().want()
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.leading().stream_created(stream);
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.leading().stream_data(stream, chunk);
    }

    fn stream_closed(&mut self, stream: &Stream<'_>) {
        self.leading().stream_closed(stream);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.leading().stream_terminated(stream, trailing_gap);
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        let spoken = self.state.spoken(record);
        self.said.flow(spoken, Sums::of(record));
        self.collector.flow(record);
    }
}

impl Component for Report {
    fn counts_packets(&self) -> bool {
        true
    }

    fn start(&mut self) -> Result<(), Failure> {
        // What cannot be written to is found before the capture begins.
        let path = match self.shared.path.as_deref() {
            None => return self.shared.name.check_folder(),
            Some("-") => return Ok(()),
            Some(path) => path,
        };
        let file = files::named().open(Path::new(path), How::append());
        match file {
            Ok(_) => Ok(()),
            Err(error) => Err(Shared::failure(path, "create", error)),
        }
    }

    fn take(&mut self, feed: Feed<'_, '_>, _: &mut dyn Outlet) {
        let Some(collector) = &mut self.collector else {
            return;
        };
        match (&mut self.state, collector.said.take()) {
            (Some(state), Some(mut said)) => {
                feed.to(&mut Both {
                    state,
                    said: &mut said,
                    collector,
                });
                collector.said = Some(said);
            }
            _ => feed.to(&mut **collector),
        }
    }

    fn finish(&mut self, _: &mut dyn Outlet) {
        let Some(mine) = self.collector.take() else {
            return;
        };
        let mut ended = self.shared.ended();
        ended.parts.push((self.number, mine));
        self.is_last = ended.parts.len() == self.shared.copies.load(Ordering::Relaxed);
    }

    fn account(&self) -> Option<Box<Account>> {
        let shared = Arc::clone(&self.shared);
        let mut account = Account::default();
        if let Some(state) = &self.state {
            state.tell(&mut account);
        }
        account.last = self.is_last.then(|| LastWord(shared));
        Some(Box::new(account))
    }
}
