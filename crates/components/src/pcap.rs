//! `pcap`: packets of files or of an interface, for a stack with a source of its own.

use core::time::Duration;

use flowgauge_capture::live::{LiveConfig, LiveSource, StopHandle};
use flowgauge_capture::{Error, Filtered, PacketSource, open_all};
use flowgauge_flow::CaptureClock;
use flowgauge_record::ledger::ledger_line;
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, Input, ItemType, Items, Outlet, Output, Packets,
    Parallel, Received, ResultInfo, ResultValue, Selection, SettingError, options,
};
use flowgauge_wire::{Batch, DecodedBatch, Decoder, hash_batch};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "pcap",
    aliases: &["pcaphandler", "capture"],
    summary: "reads packets from files or an interface",
    help: "For stacks with their own source: several stacks in a file can read different captures. A stack \
           without a source reads what -r or -i name, on several threads if asked, which is faster.",
    input: Input::Nothing,
    output: Output::Of(ItemType::Packet),
    options: Options::ALL,
    result: Some(ResultInfo::number("packets received", "packets")),
    parallel: Parallel::Never("it is a source"),
    effects: |_| true,
    make: |settings| {
        let options = Options::read(settings);
        let is_of_files = options.file.is_some();
        let filter = options.filter.unwrap_or_default();
        let from = match (options.file, options.interface) {
            (Some(file), None) => From::Files(file),
            (None, Some(interface)) => {
                let mut config = LiveConfig::new(&interface);
                config.filter = filter.clone();
                config.promiscuous = options.promiscuous;
                config.own_traffic = options.own_traffic;
                config.snap_len = options.snap_len.unwrap_or(config.snap_len);
                From::Interface(config)
            }
            _ => {
                return Err(
                    SettingError::of_all("takes a file or an interface, one of them")
                        .with_hint("pcap { file = trace.pcap } or pcap { interface = eth0 }"),
                );
            }
        };
        if is_of_files && options.snap_len.is_some() {
            return Err(SettingError::of("snap_len", "is for interfaces"));
        }
        Ok(Box::new(Pcap {
            from,
            filter,
            source: None,
            stop: StopHandle::default(),
            decoder: Decoder::default(),
            decoded: DecodedBatch::new(),
            clock: CaptureClock::default(),
            received: 0,
            failure: None,
            last: Account::default(),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    file: InputFile, "a file, or several by a pattern with * and ?, merged by time";
    interface: Text, "an interface, or any for all";
    filter: Filter, "only packets that match this expression";
    snap_len: Integer(1, 262_144) as u32, "maximum bytes captured of each packet on an interface";
    promiscuous: Flag = "yes", "also capture packets for other hosts";
    own_traffic: Flag = "no",
        "also capture packets of this program's own links (output, input)";
}

enum From {
    Files(String),
    Interface(LiveConfig),
}

struct Pcap {
    from: From,
    filter: String,
    source: Option<Box<dyn PacketSource + Send>>,
    stop: StopHandle,
    decoder: Decoder,
    decoded: DecodedBatch,
    clock: CaptureClock,
    received: u64,
    /// What is damaged: it is said when all that could be read was.
    failure: Option<Failure>,
    /// In the end.
    last: Account,
}

fn failure(error: &Error) -> Failure {
    Failure::of(error, error.hint())
}

impl Pcap {
    fn open(&self) -> Result<Box<dyn PacketSource + Send>, Error> {
        match &self.from {
            From::Interface(config) => {
                let source = LiveSource::open(config)?;
                Ok(Box::new(source.stopped_by(self.stop.clone())))
            }
            From::Files(pattern) => {
                let source = open_all(&[pattern])?;
                if self.filter.is_empty() {
                    return Ok(source);
                }
                Ok(Box::new(Filtered::new(source, &self.filter)?))
            }
        }
    }

    /// Gives the packets of the next batch, and lets the clock go on between them. False: there are
    /// none any more.
    fn next(&mut self, out: &mut dyn Outlet) -> bool {
        let Some(source) = &mut self.source else {
            return false;
        };
        let batch = match source.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => return false,
            Err(error) => {
                self.failure.get_or_insert_with(|| failure(&error));
                return true;
            }
        };
        self.decoder.decode_batch(&batch, &mut self.decoded);
        hash_batch(&mut self.decoded.packets);
        give(&batch, &self.decoded, self.received, &mut self.clock, out);
        self.received += batch.len() as u64;
        true
    }

    fn told(&mut self) -> Account {
        let mut told = Account::default();
        if let Some(source) = &mut self.source {
            told.notes = source.notes();
            told.summary
                .push(format!("pcap: {}", ledger_line(&source.ledger())));
        }
        told
    }
}

/// Gives the packets of a batch, in parts where components look at the clock.
fn give(
    batch: &Batch<'_>,
    decoded: &DecodedBatch,
    before: u64,
    clock: &mut CaptureClock,
    out: &mut dyn Outlet,
) {
    let all = Packets {
        before,
        ..Packets::new(batch, decoded)
    };
    let mut left = all.selected;
    let mut look = out.next_look();
    for (place, packet) in batch.packets.iter().enumerate() {
        if !clock.goes_on(packet.time) {
            let next = batch.packets.get(place + 1).map(|next| next.time);
            clock.packet(packet.time, next);
        }
        if clock.now() >= look {
            let selected = left.and(Selection::first(place));
            left = left.without(selected);
            if !selected.is_empty() {
                out.emit(Items::Packets(Packets { selected, ..all }));
            }
            out.advance(clock.now());
            look = out.next_look();
        }
    }
    if !left.is_empty() {
        out.emit(Items::Packets(Packets {
            selected: left,
            ..all
        }));
    }
    if let Some(now) = batch.now {
        clock.trusted(now);
    }
}

impl Component for Pcap {
    fn start(&mut self) -> Result<(), Failure> {
        self.source = Some(self.open().map_err(|error| failure(&error))?);
        if let From::Interface(config) = &self.from {
            flowgauge_link::tell(format_args!("listening on {}", config.interface));
        }
        Ok(())
    }

    fn receive(&mut self, out: &mut dyn Outlet, _: Duration) -> Received {
        // A source comes back from an interface in time by itself.
        match self.next(out) {
            true => Received::Until(self.clock.now()),
            false => Received::End,
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        // What an interface has received already is in its ring.
        if let From::Interface(_) = self.from {
            self.stop.stop();
            while self.next(out) {}
        }
        self.last = self.told();
        self.source = None;
        if let Some(failure) = self.failure.take() {
            out.fail(failure);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.received))
    }

    fn account(&self) -> Option<Box<Account>> {
        Some(Box::new(self.last.clone()))
    }
}
