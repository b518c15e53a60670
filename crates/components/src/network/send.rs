//! `output { to = host:port }`: sends what it gets to an `input` on another machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use flowgauge_link::{KeyFolder, Sender, SenderCounts, SenderOptions, Sent, WhenFull};
use flowgauge_stack::{
    Component, Failure, Items, OptionInfo, Outlet, ResultValue, SettingError, Settings, options,
};
use flowgauge_wire::Nanos;

use super::codec::{Encoder, Kind};
use super::failure;

/// A frame of this length is sent.
const FRAME_BYTES: usize = 256 << 10;
/// What is shorter is sent after this time.
const FRAME_AGE: Duration = Duration::from_millis(50);
/// Of longer packets the rest is cut off, as by a snap length: a frame has a limit, too.
const MOST_PACKET: usize = 2 << 20;
/// How long the start of a stack waits to learn that the other side will never answer.
const START_WAIT: Duration = Duration::from_secs(2);

options! {
    pub(crate) const;
    /// Where to.
    TO = to: Text, "send to an input on another machine, at host:port, instead of to a file";
    /// Who is expected there.
    PEER = peer: Text, "the name in the other machine's certificate, where it is not the host of to";
    /// How much may wait.
    SPOOL = spool: Size, "memory for what waits while the other machine is away or slow; 64M where it is not said";
    /// Where more may wait.
    SPOOL_FOLDER = spool_folder: OutputFolder,
        "a folder where more may wait; what is there when this process ends, or is killed, the next one with \
         the same identity, folder and to sends";
    /// How much more.
    SPOOL_FILE = spool_file: Size, "the most bytes in that folder; 1G where it is not said";
    /// What then.
    WHEN_FULL = when_full: Choice("wait", "drop_newest", "drop_oldest"),
        "what to do when the spool is full: hold up the source, or lose items, which the other machine is \
         told; wait where it is not said";
    /// How long the end waits.
    LINGER = linger: Duration,
        "how long to wait at the end for all to have arrived, and for room in the spool once the run is to \
         end; 30s where it is not said";
}

/// The options that only sending has.
pub(crate) const OPTIONS: [OptionInfo; 6] =
    [PEER, SPOOL, SPOOL_FOLDER, SPOOL_FILE, WHEN_FULL, LINGER];

/// Makes the component.
pub(crate) fn make(settings: &Settings, to: &str) -> Result<Box<dyn Component>, SettingError> {
    let mut options = SenderOptions::new(to);
    let port = to.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err(
            SettingError::of("to", format!("\"{to}\" is no address with a port"))
                .with_hint("write it as host:port, 192.0.2.1:2233 or [2001:db8::1]:2233"),
        );
    }
    options.peer = settings.text("peer").map(str::to_owned);
    if let Some(bytes) = settings.size("spool") {
        if bytes < 4 * FRAME_BYTES as u64 {
            return Err(SettingError::of("spool", "is less than 1M")
                .with_hint("it holds frames of 256k, of which some are always on their way"));
        }
        options.spool_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    let most = settings.size("spool_file");
    options.spool_file = settings
        .text("spool_folder")
        .map(|folder| (PathBuf::from(folder), most.unwrap_or(1 << 30)));
    if most.is_some() && options.spool_file.is_none() {
        return Err(SettingError::of(
            "spool_file",
            "has no meaning without spool_folder",
        ));
    }
    options.when_full = match settings.text("when_full") {
        Some("drop_newest") => WhenFull::DropNewest,
        Some("drop_oldest") => WhenFull::DropOldest,
        _ => WhenFull::Wait,
    };
    if let Some(linger) = settings.duration("linger") {
        options.linger = Duration::from_nanos(linger);
    }
    Ok(Box::new(ToNetwork {
        keys: super::keys(settings),
        identity: settings.text("identity").map(str::to_owned),
        options,
        encoder: Encoder::default(),
        since: None,
        latest: 0,
        sender: None,
        counts: SenderCounts::default(),
        has_lost: false,
    }))
}

struct ToNetwork {
    keys: KeyFolder,
    identity: Option<String>,
    options: SenderOptions,
    encoder: Encoder,
    /// When the first item of the frame came.
    since: Option<Instant>,
    /// The largest time so far.
    latest: u64,
    sender: Option<Sender>,
    /// In the end.
    counts: SenderCounts,
    has_lost: bool,
}

impl ToNetwork {
    fn encode(&mut self, items: &Items<'_>) -> Result<(), flowgauge_link::Error> {
        match items {
            Items::Packets(packets) => {
                self.begin(Kind::Packets)?;
                for (_, packet) in packets.iter() {
                    let place = usize::from(packet.index);
                    let Some(descriptor) = packets.batch.packets.get(place) else {
                        continue;
                    };
                    let bytes = packets.batch.bytes_of(descriptor);
                    let bytes = bytes.get(..MOST_PACKET).unwrap_or(bytes);
                    let sender = &self.sender;
                    self.encoder
                        .packet(descriptor, bytes, &mut |text| announce(sender, text));
                    self.added(descriptor.time)?;
                }
            }
            Items::Chunks(chunks) => {
                self.begin(Kind::Chunks)?;
                for chunk in *chunks {
                    self.encoder.chunk(chunk);
                    self.added(chunk.time)?;
                }
            }
            Items::Records(records) => {
                self.begin(Kind::Records)?;
                for item in *records {
                    let sender = &self.sender;
                    self.encoder
                        .record(item.time, item.record, &mut |text| announce(sender, text));
                    self.added(item.time)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A frame has items of one kind.
    fn begin(&mut self, kind: Kind) -> Result<(), flowgauge_link::Error> {
        match self.encoder.kind() {
            Some(other) if other != kind => self.flush(),
            _ => Ok(()),
        }
    }

    #[inline]
    fn added(&mut self, time: Nanos) -> Result<(), flowgauge_link::Error> {
        self.latest = self.latest.max(time.0);
        if self.encoder.len() >= FRAME_BYTES {
            return self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), flowgauge_link::Error> {
        self.since = None;
        if self.encoder.count() == 0 {
            return Ok(());
        }
        let (payload, count) = self.encoder.take();
        if let Some(sender) = &self.sender
            && sender.send(payload, count, self.latest)? == Sent::Lost
            && !self.has_lost
        {
            self.has_lost = true;
            flowgauge_link::tell(format_args!(
                "{}: the spool is full, items are lost and counted",
                self.options.address
            ));
        }
        Ok(())
    }
}

fn announce(sender: &Option<Sender>, text: Vec<u8>) -> u32 {
    sender.as_ref().map_or(0, |sender| sender.announce(text))
}

impl Component for ToNetwork {
    fn start(&mut self) -> Result<(), Failure> {
        let identity = self.keys.identity(self.identity.as_deref());
        let identity = identity.map_err(|error| failure(&error))?;
        let sender = Sender::start(&identity, self.options.clone());
        let sender = sender.map_err(|error| failure(&error))?;
        // A machine that is away may come; one that does not know this one will not.
        if let Err(error) = sender.wait_for_connection(START_WAIT) {
            return Err(failure(&error));
        }
        self.sender = Some(sender);
        Ok(())
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Err(error) = self.encode(items) {
            out.fail(failure(&error));
        }
        if self.encoder.count() > 0 && self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.latest = self.latest.max(now.0);
        if self.since.is_some_and(|since| since.elapsed() >= FRAME_AGE)
            && let Err(error) = self.flush()
        {
            out.fail(failure(&error));
        }
        // What is in the frame may be older.
        if let Some(sender) = self.sender.as_ref().filter(|_| self.encoder.count() == 0) {
            sender.time(self.latest);
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        if let Err(error) = self.flush() {
            out.fail(failure(&error));
        }
        let Some(sender) = self.sender.take() else {
            return;
        };
        let trouble = sender.trouble();
        let folder = sender.folder();
        let address = &self.options.address;
        self.counts = sender.finish(self.options.linger);
        let SenderCounts {
            lost,
            pending,
            kept,
            ..
        } = self.counts;
        if let Some(folder) = folder.filter(|_| kept > 0) {
            flowgauge_link::tell(format_args!(
                "{address}: {kept} items wait in {} for the next run",
                folder.display()
            ));
        }
        let pending = pending - kept;
        if pending > 0 {
            let why = trouble.map_or(String::new(), |error| format!(": {error}"));
            out.fail(
                Failure::new(format!(
                    "{address}: {pending} items had not arrived after {} s{why}",
                    self.options.linger.as_secs()
                ))
                .with_hint(
                    "linger says how long to wait at the end, spool_folder where the rest is kept",
                ),
            );
        }
        if lost > 0 {
            flowgauge_link::tell(format_args!(
                "{}: {lost} of {} items were lost, the spool was full",
                self.options.address, self.counts.accepted
            ));
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let counts = self.sender.as_ref().map_or(self.counts, Sender::counts);
        Some(ResultValue::Sum(counts.delivered))
    }
}
