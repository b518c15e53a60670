//! `flowgauge rmon`: the network's own counters for SNMP managers.

mod show;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_capture::{Interface, PacketSource as _};
use flowgauge_registry::Contents;
use flowgauge_rmon::Probe;
use flowgauge_rmon::agentx::{self, Event, Identity};
use flowgauge_rmon::directory::{self, Directory};
use flowgauge_rmon::feed::{self, BadFile, Clock, ControlFile};
use flowgauge_rmon::others::{self, User};
use flowgauge_rmon::reaction::Reaction;
use flowgauge_sys::interfaces;
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{Batch, DecodedBatch, Nanos, PacketDescriptor};
use parking_lot::Mutex;

use crate::control::Control;
use crate::failure::Failure;
use crate::input::{self, Opened, Source};
use crate::locality;
use crate::options::{InputOptions, RmonCommand, RmonOptions, RmonServeOptions};
use crate::say::say;
use crate::summary::{Outcome, ledger_line, print_statistics};

/// How often time goes on in the tables while no packets come.
const TICK: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &RmonOptions) -> Result<(), Failure> {
    match &options.command {
        Some(RmonCommand::Show(options)) => show::run(options),
        None => serve(&options.serve),
    }
}

/// Opens what is to be counted, with a probe for it.
fn open(
    options: &InputOptions,
    contents: bool,
    control: &Control,
) -> Result<(Opened, Probe), Failure> {
    if options.workers.is_some_and(|workers| workers > 1) {
        return Err(Failure::usage(
            "RMON's tables are filled by one worker",
            "leave --workers out",
        ));
    }
    let opened = input::open(options, control)?;
    let mut probe = match contents {
        true => Probe::with(Directory::with_contents()),
        false => Probe::new(),
    };
    if opened.live {
        // Control rows may name them.
        let interfaces = opened.sources.iter().flat_map(|source| source.interfaces());
        for interface in interfaces {
            take(interface, &mut probe);
        }
    } else {
        probe.add_interface(1, 0);
    }
    Ok((opened, probe))
}

/// The place of an interface in the tables.
fn take(interface: &Interface, tables: &mut Probe) -> usize {
    let Some(name) = interface.name.as_deref() else {
        // It was gone before it was seen.
        return tables.add_nameless();
    };
    let number = interfaces::index_of(name).map(i32::cast_unsigned);
    let place = tables.take_interface(name, number, interfaces::speed(name));
    tables.note_mtu(place, interfaces::mtu_of(name).unwrap_or(0));
    place
}

fn serve(options: &RmonServeOptions) -> Result<(), Failure> {
    let control = Control::install()?;
    control.say_what_takes_long(options.common.quiet);
    let refused = |error: BadFile| Failure::usage(error.to_string(), error.hint());
    if options.real_time && !options.input.interface.is_empty() {
        return Err(Failure::usage(
            "--real-time applies to files only",
            "leave it out",
        ));
    }
    let then = options
        .then
        .as_deref()
        .map(|it| locality::find(it.as_os_str()));
    let then = then.transpose()?;
    // Before the program becomes another user.
    let account = options.snmp.as_deref().map(User::read);
    let account = account.transpose().map_err(refused)?;
    let (mut opened, mut probe) = open(&options.input, options.contents, &control)?;
    if account.is_some() {
        probe.ask_others();
    }
    let mut kept = ControlFile::load(options.config.as_deref(), &mut probe).map_err(refused)?;
    for row in kept.untaken(&probe) {
        if !row.waits() {
            return Err(refused(row));
        }
        say!("flowgauge: warning: {row}\nhint: {}", row.hint());
        say!("The row is not active.");
    }
    let tables = Mutex::new(probe);
    let clock = Clock::default();
    let subagent = agentx::Options {
        address: options.agentx.clone(),
        identity: Identity {
            description: format!("flowgauge {}: RMON", env!("CARGO_PKG_VERSION")),
            context: options.context.clone().map(String::into_bytes),
            priority: options.priority,
        },
    };
    let ended = Arc::new(AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            let mut reaction = Reaction::new(then);
            let tell = |event: Event| tell(&event, options, &mut reaction);
            agentx::run(&subagent, &tables, &ended, || clock.ticks(), tell);
        });
        if let Some(account) = &account {
            scope.spawn(|| others::run(account, &tables, &ended, tell_others));
        }
        // A disk may be slow, and packets come meanwhile.
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                tell_kept(kept.keep(&tables));
                feed::note_errors(&tables);
            }
        });
        opened.announce(options.common.quiet);
        control.begin();
        let pace = Pace::new(options.real_time);
        let outcome = count(&mut opened, &tables, &clock, pace, &control);
        if !opened.live {
            stay(&tables, &clock, &control, options.common.quiet);
        }
        ended.store(true, Ordering::Relaxed);
        outcome
    });
    tell_kept(kept.finish(&tables));
    outcome.conclude(&options.common)
}

/// Counts all packets.
fn count(
    opened: &mut Opened,
    tables: &Mutex<Probe>,
    clock: &Clock,
    mut pace: Pace,
    control: &Control,
) -> Outcome {
    let started = Instant::now();
    let mut outcome = Outcome::default();
    let mut looked = started;
    let has_contents = tables.lock().has_contents();
    let mut counting = Counting {
        tables,
        decoder: Decoder::default(),
        decoded: DecodedBatch::new(),
        looking: has_contents.then(|| Contents::new(directory::content)),
        contents: Vec::new(),
        places: Vec::new(),
    };
    for source in &mut opened.sources {
        while opened.live || !control.stopped() {
            let batch = match source.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(error) => {
                    outcome.errors.push(error);
                    continue;
                }
            };
            if let (false, Some(last)) = (opened.live, batch.packets.last()) {
                pace.wait_for(last.time, tables, clock, control);
                clock.set(last.time);
            }
            if opened.live && counting.is_new(&batch) {
                // Which interfaces these are the source tells when the batch is out of its hands.
                let (memory, packets) = copy(&batch);
                counting.follow(source.interfaces());
                counting.batch(&Batch::new(&memory, &packets));
            } else {
                counting.batch(&batch);
            }
            if opened.live && looked.elapsed() >= TICK {
                looked = Instant::now();
                note_drops(source, &mut tables.lock());
            }
            if control.statistics_wanted() {
                let ledger = source.ledger();
                say!("{}", ledger_line(&ledger));
                print_statistics(&ledger, &[], started.elapsed());
            }
        }
        finish(source, &mut outcome);
    }
    outcome.elapsed = started.elapsed();
    outcome
}

/// What counts batch by batch.
struct Counting<'a> {
    tables: &'a Mutex<Probe>,
    decoder: Decoder,
    decoded: DecodedBatch,
    looking: Option<Contents>,
    contents: Vec<u16>,
    /// Of the interfaces of a live source in the tables, as far as packets came of them.
    places: Vec<usize>,
}

impl Counting<'_> {
    fn batch(&mut self, batch: &Batch<'_>) {
        self.decoder.decode_batch(batch, &mut self.decoded);
        if let Some(looking) = &mut self.looking {
            looking.look(batch, &self.decoded, &mut self.contents);
        }
        let mut tables = self.tables.lock();
        tables.observe_at(&self.places, batch, &self.decoded, &self.contents);
    }

    /// Whether there are packets of an interface that none came from before.
    fn is_new(&self, batch: &Batch<'_>) -> bool {
        let mut packets = batch.packets.iter();
        packets.any(|packet| usize::from(packet.interface) >= self.places.len())
    }

    /// Takes the interfaces that are new: `any` has those of the machine as packets come of them. One that is made again is the
    /// one of its name.
    fn follow(&mut self, all: &[Interface]) {
        let mut tables = self.tables.lock();
        for interface in all.get(self.places.len()..).unwrap_or_default() {
            self.places.push(take(interface, &mut tables));
        }
    }
}

fn copy(batch: &Batch<'_>) -> (Vec<u8>, Vec<PacketDescriptor>) {
    let mut memory = Vec::new();
    let packets = batch.packets.iter().map(|packet| {
        let offset = memory.len() as u32;
        memory.extend_from_slice(batch.bytes_of(packet));
        PacketDescriptor { offset, ..*packet }
    });
    let packets = packets.collect();
    (memory, packets)
}

fn finish(source: &mut Source, outcome: &mut Outcome) {
    outcome.ledger.merge(&source.ledger());
    outcome.notes.extend(source.notes());
}

/// Time between the packets of files as it was when they were captured.
#[derive(Debug)]
struct Pace {
    begin: Option<(Nanos, Instant)>,
    is_wanted: bool,
}

impl Pace {
    fn new(is_wanted: bool) -> Pace {
        let begin = None;
        Pace { begin, is_wanted }
    }

    /// Waits until it is time for the packets up to `time`.
    fn wait_for(&mut self, time: Nanos, tables: &Mutex<Probe>, clock: &Clock, control: &Control) {
        let (first, begin) = *self.begin.get_or_insert_with(|| (time, Instant::now()));
        let due = begin + Duration::from_nanos(time.0.saturating_sub(first.0));
        while self.is_wanted && !control.stopped() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(TICK));
            let now = Nanos(clock.now().0.min(time.0));
            tables.lock().tick(now);
        }
    }
}

/// Tells what the ring of an interface has lost. That of a ring of several is nobody's.
fn note_drops(source: &mut Source, tables: &mut Probe) {
    let name = match source.interfaces() {
        [interface] => interface.name.as_deref(),
        _ => None,
    };
    if let Some(place) = name.and_then(|name| tables.interface_of(name)) {
        tables.note_drops(place, source.ledger().dropped());
    }
}

fn tell_kept(trouble: Option<String>) {
    if let Some(why) = trouble {
        say!("flowgauge: {why}");
    }
}

/// Lets time go on behind the end of files, until stopped.
fn stay(tables: &Mutex<Probe>, clock: &Clock, control: &Control, quiet: bool) {
    if !quiet && !control.stopped() {
        say!("all files read; the tables remain until stopped (Ctrl-C)");
    }
    while !control.stopped() {
        thread::sleep(TICK);
        tables.lock().tick(clock.now());
    }
}

fn tell_others(trouble: Option<String>) {
    match trouble {
        Some(why) => say!("flowgauge: {why}"),
        None => say!("the SNMP agent answers again"),
    }
}

fn tell(event: &Event, options: &RmonServeOptions, reaction: &mut Reaction) {
    match event {
        Event::Registered if options.common.quiet => {}
        Event::Registered => say!("registered with the AgentX master at {}", options.agentx),
        Event::Lost(reason) => {
            say!(
                "flowgauge: no AgentX session at {}: {reason}",
                options.agentx
            );
        }
        Event::Notified(notification, sent) => {
            if let Some(why) = reaction.to(notification) {
                say!("flowgauge: {why}");
            }
            if !sent {
                say!(
                    "flowgauge: a notification could not be sent: {}",
                    notification.kind
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// All that is recognised has a place in the directory over its transports, and the number that the manual says.
    #[test]
    fn protocols_by_content_have_numbers() {
        let mut known: BTreeMap<&str, [bool; 2]> = BTreeMap::new();
        for (name, over) in Contents::protocols() {
            let all = known.entry(name).or_default();
            *all = [all[0] | over[0], all[1] | over[1]];
        }
        let directory = Directory::with_contents();
        for (name, over) in &known {
            let has = ["tcp", "udp"].map(|transport| {
                let name = format!("ether2.ip.{transport}.content-{name}");
                directory.named(&name).is_some()
            });
            assert_eq!(has, *over, "{name}");
        }
        let page = include_str!("../../../../docs/rmon.md");
        let (_, table) = page.split_once("| numbers | protocols |").unwrap();
        let rows = table
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with('|'));
        let names = rows.filter(|line| line.contains(" to "));
        let names = names.flat_map(|line| line.split('|').nth(2).unwrap().split(','));
        let numbers: BTreeMap<&str, u16> = names.map(str::trim).zip(1..).collect();
        assert_eq!(numbers.len(), known.len());
        for name in known.keys() {
            assert_eq!(numbers.get(name), Some(&directory::content(name)), "{name}");
        }
    }
}
