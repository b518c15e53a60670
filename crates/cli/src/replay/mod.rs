//! `flowgauge replay`: packets of captures, sent onto an interface.

mod pace;
mod renumber;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use flowgauge_capture::PacketSource as _;
use flowgauge_offload::Inbound;
use flowgauge_sys::interfaces;
use flowgauge_sys::transmit::TransmitSocket;
use flowgauge_wire::{Batch, LinkType};
use serde::Serialize;

use crate::control::Control;
use crate::failure::Failure;
use crate::input;
use crate::options::{InputOptions, ReplayOptions};
use crate::say::{count, say};
use crate::sinks;

use pace::Pace;
use renumber::renumber;

/// Of Ethernet: addresses and type.
const LINK_HEADER: u32 = 14;
const TAG: u32 = 4;
/// The longest frame that `--inbound` takes, without a tag.
const LONGEST_INBOUND: u32 = Inbound::LONGEST - TAG;
const EMSGSIZE: i32 = 90;
/// How long it is waited without looking whether the user has had enough.
const PATIENCE: Duration = Duration::from_millis(100);
/// Shorter waits are waited out: the system's clock is no more exact.
const SPIN: Duration = Duration::from_micros(80);
/// The kernel makes its pages anew for each run: frames that are due within this share one.
const BETWEEN_RUNS: Duration = Duration::from_millis(4);

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &ReplayOptions) -> Result<(), Failure> {
    let control = Control::install()?;
    let name = &options.interface;
    let interface = interfaces::index_of(name);
    let mtu = interfaces::mtu_of(name);
    let (Some(index), Ok(mtu)) = (interface, mtu) else {
        return Err(Failure::usage(
            format!("no such interface: {name}"),
            "flowgauge capture -D lists the interfaces",
        ));
    };
    if !options.force && interfaces::has_default_route(name).unwrap_or(true) {
        return Err(Failure::usage(
            format!("{name} has a default route: replayed packets could reach other networks"),
            "use an isolated interface, or --force",
        ));
    }
    let all = interfaces::list().unwrap_or_default();
    let found = all.iter().find(|interface| interface.name == *name);
    if options.inbound && found.is_some_and(|interface| !interface.is_up()) {
        return Err(Failure::usage(
            format!("{name} is down: it receives nothing"),
            format!("switch it on: sudo ip link set {name} up"),
        ));
    }
    let way = match options.inbound {
        true => Inbound::open(index)
            .map(Way::In)
            .map_err(|error| Failure::run(format!("{name} cannot receive packets from here: {error}"), Some("needs \
            CAP_BPF, CAP_NET_ADMIN, Linux 5.18, and an Ethernet interface whose driver supports XDP; without --inbound packets are sent".to_owned())))?,
        false => TransmitSocket::open(index).map(Way::Out).map_err(|error| {
            Failure::run(
                format!("cannot send onto {name}: {error}"),
                Some("needs CAP_NET_RAW and an interface that is up (ip link)".to_owned()),
            )
        })?,
    };
    let longest = mtu + LINK_HEADER;
    let mut replay = Replay {
        options,
        control: &control,
        most: match options.inbound {
            true => longest.min(LONGEST_INBOUND),
            false => longest,
        },
        way,
        pace: Pace::new(options.speed)?,
        start: Instant::now(),
        memory: Vec::new(),
        sent: Sent::default(),
    };
    if options.rounds > 1 && options.read.iter().any(|path| path == "-") {
        return Err(Failure::usage(
            "standard input can only be read once",
            "omit --loop, or read a file",
        ));
    }
    if found.is_some_and(|interface| !interface.is_running()) && !options.quiet {
        say!("note: {name} has no carrier, or is down: nobody receives the packets (ip link)");
    }
    control.begin();
    let mut sent = Ok(());
    for round in 0..options.rounds {
        sent = replay.round(round);
        if sent.is_err() || replay.is_over() {
            break;
        }
    }
    let flushed = replay.way.flush();
    let flushed = flushed.map_err(|error| replay.failed(&error));
    replay.conclude().and(sent).and(flushed)
}

/// What was sent, and what was not.
#[derive(Debug, Default, Serialize)]
struct Sent {
    /// Frames, and their bytes.
    packets: u64,
    bytes: u64,
    /// Frames of them of which the capture had not all; the rest was zeros.
    filled: u64,
    /// Frames that are longer than the interface sends, or shorter than their header.
    too_long: u64,
    too_short: u64,
    /// Packets of other link types than Ethernet.
    not_ethernet: u64,
    seconds: f64,
    /// How much later than they were due packets were sent at most.
    latest_seconds: f64,
}

/// Where packets go.
enum Way {
    /// Out of the interface.
    Out(TransmitSocket),
    /// In, as if it had received them.
    In(Inbound),
}

impl Way {
    /// Sends the first of `frames`, and returns how many.
    fn send(&mut self, frames: &[&[u8]]) -> io::Result<usize> {
        match self {
            Way::Out(socket) => socket.send(frames),
            Way::In(inbound) => {
                frames.iter().try_for_each(|frame| inbound.add(frame))?;
                Ok(frames.len())
            }
        }
    }

    /// Nothing waits any more.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Way::Out(_) => Ok(()),
            Way::In(inbound) => inbound.flush(),
        }
    }
}

struct Replay<'a> {
    options: &'a ReplayOptions,
    control: &'a Control,
    way: Way,
    /// The longest frame that the interface sends.
    most: u32,
    pace: Pace,
    start: Instant,
    /// Frames that are not sent as they were captured.
    memory: Vec<u8>,
    sent: Sent,
}

impl Replay<'_> {
    fn is_over(&self) -> bool {
        let most = self.options.packet_count;
        self.control.stopped() || most.is_some_and(|most| self.sent.packets >= most)
    }

    /// Sends all once.
    fn round(&mut self, round: u32) -> Result<(), Failure> {
        let input = InputOptions {
            read: self.options.read.clone(),
            rest: self.options.rest.clone(),
            ..InputOptions::default()
        };
        // Odd, so that no two rounds have the same.
        let mask = match self.options.same_addresses {
            true => 0,
            false => (round as u16).wrapping_mul(0x9e37),
        };
        if round > 0 {
            self.pace.begin_round();
        }
        for mut source in input::open(&input, self.control)?.sources {
            if round == 0 && self.sent.packets == 0 {
                self.start = Instant::now();
            }
            while !self.is_over() {
                let batch = source.next_batch();
                let Some(batch) = batch.map_err(|error| Failure::running(&error))? else {
                    break;
                };
                self.batch(&batch, mask)?;
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: &Batch<'_>, mask: u16) -> Result<(), Failure> {
        let mut memory = core::mem::take(&mut self.memory);
        memory.clear();
        // Those that are sent, and where in the memory they are if they were changed.
        let mut frames = Vec::with_capacity(batch.packets.len());
        for packet in batch.packets {
            if packet.link != LinkType::ETHERNET {
                self.sent.not_ethernet += 1;
                continue;
            }
            let bytes = batch.bytes_of(packet);
            let is_tagged = matches!(bytes.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
            if packet.wire_len > self.most + u32::from(is_tagged) * TAG {
                self.sent.too_long += 1;
            } else if bytes.len() < LINK_HEADER as usize {
                self.sent.too_short += 1;
            } else {
                let is_cut = packet.captured_len < packet.wire_len;
                self.sent.filled += u64::from(is_cut);
                let place = (is_cut || mask != 0).then(|| {
                    let begin = memory.len();
                    memory.extend_from_slice(bytes);
                    memory.resize(begin + packet.wire_len as usize, 0);
                    renumber(&mut memory[begin..], mask);
                    begin..memory.len()
                });
                frames.push((packet.time, bytes, place));
            }
        }
        let most = self.options.packet_count;
        if let Some(left) = most.map(|most| most - self.sent.packets) {
            frames.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let mut ready: Vec<&[u8]> = Vec::with_capacity(TransmitSocket::MOST_PER_CALL);
        for (time, bytes, place) in &frames {
            let frame = place.clone().map_or(*bytes, |place| &memory[place]);
            let due = self.pace.due(*time, frame.len());
            if ready.len() == TransmitSocket::MOST_PER_CALL || due > self.start.elapsed() {
                self.send(&mut ready)?;
                if due > self.start.elapsed() {
                    self.way.flush().map_err(|error| self.failed(&error))?;
                }
                if !self.wait_until(due) {
                    break;
                }
            }
            let late = self.start.elapsed().saturating_sub(due).as_secs_f64();
            self.sent.latest_seconds = self.sent.latest_seconds.max(late);
            ready.push(frame);
        }
        self.send(&mut ready)?;
        self.memory = memory;
        Ok(())
    }

    /// Waits; false if the user has had enough.
    fn wait_until(&self, due: Duration) -> bool {
        let due = match self.way {
            Way::In(_) if due > self.start.elapsed() => {
                due.max(self.start.elapsed() + BETWEEN_RUNS)
            }
            _ => due,
        };
        while !self.control.stopped() {
            let left = due.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                return true;
            }
            if left > SPIN {
                std::thread::sleep((left - SPIN).min(PATIENCE));
            }
        }
        false
    }

    /// Sends what is ready. Where the interface has no room it is waited for.
    fn send(&mut self, ready: &mut Vec<&[u8]>) -> Result<(), Failure> {
        let mut rest = ready.as_slice();
        while !rest.is_empty() && !self.control.stopped() {
            match self.way.send(rest) {
                Ok(sent) => {
                    let (done, left) = rest.split_at(sent.min(rest.len()));
                    self.sent.packets += done.len() as u64;
                    self.sent.bytes += done.iter().map(|frame| frame.len() as u64).sum::<u64>();
                    rest = left;
                }
                Err(error) if is_full(&error) => std::thread::yield_now(),
                // Its MTU has changed.
                Err(error) if error.raw_os_error() == Some(EMSGSIZE) => {
                    self.sent.too_long += 1;
                    rest = rest.get(1..).unwrap_or_default();
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
        ready.clear();
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let name = &self.options.interface;
        Failure::run(
            format!("cannot send onto {name}: {error}"),
            Some("the interface must stay up (ip link)".to_owned()),
        )
    }

    fn conclude(mut self) -> Result<(), Failure> {
        self.sent.seconds = self.start.elapsed().as_secs_f64();
        let sent = &self.sent;
        if self.options.json {
            let mut out = sinks::target(None)?;
            let written = serde_json::to_writer(&mut out, sent).map_err(io::Error::from);
            let written = written
                .and_then(|()| writeln!(out))
                .and_then(|()| out.flush());
            // Whoever reads it may have had enough.
            if let Err(error) = written
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                return Err(Failure::run(format!("cannot write: {error}"), None));
            }
        }
        if self.options.quiet {
            return Ok(());
        }
        let per_second = |amount: f64| amount / sent.seconds.max(1e-9);
        say!(
            "{} with {} sent in {:.3} s: {:.0} packets/s, {:.3} Gbit/s",
            count(sent.packets, "packet"),
            count(sent.bytes, "byte"),
            sent.seconds,
            per_second(sent.packets as f64),
            per_second(sent.bytes as f64 * 8e-9)
        );
        let is_too_long = match self.most == LONGEST_INBOUND && self.options.inbound {
            true => format!(
                "longer than the {LONGEST_INBOUND} bytes that --inbound supports: skipped (omit it to send them)"
            ),
            false => "longer than the MTU: skipped (ip link set mtu)".to_owned(),
        };
        for (packets, what) in [
            (sent.too_long, is_too_long.as_str()),
            (sent.too_short, "shorter than an Ethernet header: skipped"),
            (sent.not_ethernet, "not Ethernet: skipped"),
            (sent.filled, "truncated in the capture: filled with zeros"),
        ] {
            if packets > 0 {
                say!("{} {what}", count(packets, "packet"));
            }
        }
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    const ENOBUFS: i32 = 105;
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    ) || error.raw_os_error() == Some(ENOBUFS)
}
