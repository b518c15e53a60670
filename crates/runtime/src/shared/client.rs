//! Clients of shared captures.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_sensor_client::programs::{ClientStatistics, NOTICE_BYTES, Thresholds, notice};
use flowgauge_sensor_client::protocol::{Answer, Request};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, ChunkFlags, ChunkInfo, Command, Cutoff, Parameter,
    StreamSnapshot,
};
use flowgauge_sys::local::{self, Connection};
use flowgauge_sys::shared::{EventReader, HeldBytes, PoolView};
use flowgauge_wire::Ledger;

use super::application::{self, Application};
use super::asked;
use super::error::Error;
use super::layout::{Body, Content, Kind, SharedPackets};
use super::lives::Lives;
use super::outbox::Outbox;
use super::start::{self, ServiceProgram};
use super::statistics;

/// An application of a shared capture, in this process. It ends with the process that connected it; a forked child
/// must not use its copy.
///
/// ```no_run
/// use flowgauge_runtime::shared::{Application, Client, EventKind, Next, ServiceProgram};
///
/// let application = Application {
///     filter: "tcp port 80".to_owned(),
///     ..Application::default()
/// };
/// let mut client = Client::connect("eth0", &application, &ServiceProgram::default())?;
/// loop {
///     match client.next_event(None)? {
///         Next::Event(event) => match event.kind {
///             EventKind::Data(chunk) if chunk.bytes().starts_with(b"GET ") => {
///                 println!("{:?}", event.stream.snapshot().identity);
///                 event.stream.discard();
///             }
///             _ => {}
///         },
///         Next::Idle => {}
///         Next::End(reason) => break println!("{reason}"),
///     }
/// }
/// # Ok::<(), flowgauge_runtime::shared::Error>(())
/// ```
#[derive(Debug)]
pub struct Client {
    pub(super) events: EventReader,
    local: Local,
    end: Option<End>,
    /// The chunk that is delivered together with the one kept before.
    joined: Vec<u8>,
    pub(super) lives: Lives,
    /// An event that waits for what is made up before it, and its bytes where they were taken out.
    pub(super) aside: Option<(Body, Option<HeldBytes>)>,
    /// What it wants.
    wanted: ApplicationConfig,
    thresholds: Thresholds,
    memory: u64,
}

/// What this side of the connection knows.
#[derive(Debug)]
struct Local {
    outbox: Outbox,
    interface: String,
    process: u32,
    application: ApplicationId,
    /// What is kept of streams here, by the place of their number that is used again: so it is
    /// not more than there are streams, even where terminations were lost.
    streams: RefCell<HashMap<u32, OwnState>>,
    /// The stream whose data event is under way, and since when.
    busy: Cell<Option<(u64, Instant)>>,
    /// What of it is to be kept.
    keep: Cell<Option<Keep>>,
}

/// What this process keeps of a stream.
#[derive(Clone, Debug, Default)]
struct OwnState {
    uid: u64,
    user_state: u64,
    processing_time: u64,
    /// Data events that came.
    chunks: u64,
    /// A chunk that is to be delivered again with the next: its position and its bytes.
    kept: Option<(u64, Vec<u8>)>,
}

/// A chunk that can be kept.
#[derive(Clone, Copy, Debug)]
struct Keep {
    /// Position of its first byte.
    offset: u64,
    /// Whether it is the chunk kept before and another.
    joined: bool,
    /// Bytes of it that are in the pool.
    len: u32,
}

/// Why no event comes any more.
#[derive(Debug)]
enum End {
    Reason(String),
    Died,
}

/// What there is to hear.
pub(super) enum Heard {
    Event,
    Idle,
    /// A stream that nothing more comes of, whose own end was lost, or not written any more.
    Ended(Box<StreamSnapshot>),
    End(String),
}

/// The result of [`Client::next_event`].
// A box would be an allocation per event.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Next<'a> {
    /// An event, borrowed until the next call.
    Event(SharedEvent<'a>),
    /// Timeout, or a signal.
    Idle,
    /// There are no further events, for this reason.
    End(String),
}

/// An event of a shared capture.
#[derive(Debug)]
pub struct SharedEvent<'a> {
    /// The stream.
    pub stream: SharedStream<'a>,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// The kind of an event.
#[derive(Debug)]
pub enum EventKind<'a> {
    /// The stream was created.
    Created,
    /// Data of the stream.
    Data(SharedChunk<'a>),
    /// The stream ended.
    Terminated,
}

impl Client {
    /// Joins the capture on `interface`: that of root if it admits this process, else that of this user. If there is
    /// none, starts `program` as the service.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn connect(
        interface: &str,
        application: &Application,
        program: &ServiceProgram,
    ) -> Result<Client, Error> {
        const ATTEMPTS: u32 = 5;
        let mut failed = Error::Silent {
            interface: interface.to_owned(),
        };
        for _ in 0..ATTEMPTS {
            let found = start::find(interface, program, &|connection| {
                Client::join(interface, application, connection)
            });
            match found {
                // It has ended while this process came, or before it could say anything; or whoever
                // was to start it could not.
                Err(error @ Error::Died { .. }) => failed = error,
                joined => return joined,
            }
        }
        Err(failed)
    }

    fn join(
        interface: &str,
        application: &Application,
        connection: Connection,
    ) -> Result<Client, Error> {
        let connection = Arc::new(connection);
        let mut application = application.clone();
        if application.name.is_empty() {
            let own = flowgauge_sys::process::name_of(std::process::id());
            application.name = own.unwrap_or_default();
        }
        let wanted = application.configuration()?;
        let thresholds = application.thresholds();
        let request = application.request(interface, &wanted)?;
        let request = Request::Capture(Box::new(request));
        start::bring(&connection, interface)?;
        let (answer, files) = start::ask(&connection, interface, &request)?;
        let Answer::Capture(opened) = answer else {
            return Err(start::unexpected(interface, answer));
        };
        let Ok([pool, ring, page]) = <[_; 3]>::try_from(files) else {
            return Err(Error::Protocol {
                what: "it sends no memory",
            });
        };
        let map = Error::system("map the memory of the shared capture");
        let events = PoolView::open(pool, Arc::clone(&connection))
            .and_then(|pool| EventReader::open(ring, page, pool));
        Ok(Client {
            events: events.map_err(map)?,
            local: Local {
                outbox: Outbox::new(connection),
                interface: interface.to_owned(),
                process: opened.process,
                application: ApplicationId(opened.application),
                streams: RefCell::default(),
                busy: Cell::default(),
                keep: Cell::default(),
            },
            end: None,
            joined: Vec::new(),
            lives: Lives::default(),
            aside: None,
            wanted,
            thresholds,
            memory: opened.memory,
        })
    }

    /// Waits for the next event, at most this long. The call completes the previous event.
    ///
    /// Each stream starts with a creation and ends with a termination. If they were lost, the client synthesises
    /// them: a creation before the stream's first event, a termination when its number is reused or at the end, also
    /// if the service died ([`StreamStatus::EndOfInput`](flowgauge_stream::StreamStatus::EndOfInput), with the last
    /// known state).
    ///
    /// # Errors
    /// [`Error::Died`] if the service died, after the events that it had published.
    pub fn next_event(&mut self, limit: Option<Duration>) -> Result<Next<'_>, Error> {
        self.finish_event();
        if self.aside.is_none() {
            match self.find_event(limit)? {
                Heard::Event => {}
                Heard::Idle => return Ok(Next::Idle),
                Heard::Ended(stream) => {
                    return Ok(Next::Event(self.made_up(Kind::Terminated, *stream)));
                }
                Heard::End(reason) => return Ok(Next::End(reason)),
            }
            let damaged = Error::system("read the events of the shared capture");
            let Some(event) = self.events.next_event().map_err(damaged)? else {
                return Ok(Next::Idle);
            };
            let body = Body::decode(&event.body, self.local.application);
            let body = body.ok_or(Error::Protocol {
                what: "an event of no kind",
            })?;
            self.aside = Some((body, None));
        }
        if let Some((kind, stream)) = self.made_up_before() {
            return Ok(Next::Event(self.made_up(kind, stream)));
        }
        let Some((body, _)) = self.aside.take() else {
            return Ok(Next::Idle);
        };
        self.lives.see(body.kind, &body.stream);
        let kind = match body.kind {
            Kind::Created => EventKind::Created,
            Kind::Terminated => EventKind::Terminated,
            Kind::Data => {
                let content = Content::of(&body.chunk, self.events.current());
                let content = content.ok_or(Error::Protocol {
                    what: "a chunk outside of its area",
                })?;
                let info = body.chunk.info;
                let chunk = self
                    .local
                    .deliver(body.stream.uid, info, content, &mut self.joined);
                EventKind::Data(chunk)
            }
        };
        Ok(Next::Event(SharedEvent {
            stream: SharedStream {
                snapshot: self.local.completed(body.stream, body.kind),
                local: &self.local,
                chunk: match &kind {
                    EventKind::Data(chunk) => Some(Keep {
                        offset: chunk.info.offset,
                        joined: chunk.is_joined,
                        len: body.chunk.len,
                    }),
                    _ => None,
                },
            },
            kind,
        }))
    }

    /// What has to come before the event that is aside.
    pub(super) fn made_up_before(&mut self) -> Option<(Kind, StreamSnapshot)> {
        let (body, _) = self.aside.as_ref()?;
        self.lives.before(body.kind, &body.stream)
    }

    /// A creation or termination that did not come.
    fn made_up(&self, kind: Kind, stream: StreamSnapshot) -> SharedEvent<'_> {
        SharedEvent {
            stream: SharedStream {
                snapshot: self.local.completed(stream, kind),
                local: &self.local,
                chunk: None,
            },
            kind: match kind {
                Kind::Created => EventKind::Created,
                _ => EventKind::Terminated,
            },
        }
    }

    /// Ends the event before, and waits for the next.
    pub(super) fn find_event(&mut self, limit: Option<Duration>) -> Result<Heard, Error> {
        let heard = self.find_published(limit);
        let is_over = matches!(heard, Ok(Heard::End(_)) | Err(Error::Died { .. }));
        match is_over.then(|| self.lives.end_one()).flatten() {
            Some(stream) => Ok(Heard::Ended(Box::new(stream))),
            None => heard,
        }
    }

    /// The same without ends that are made up.
    fn find_published(&mut self, limit: Option<Duration>) -> Result<Heard, Error> {
        self.finish_event();
        self.local.outbox.push();
        let started = Instant::now();
        while !self.events.has_next() {
            match &self.end {
                Some(End::Reason(reason)) => return Ok(Heard::End(reason.clone())),
                Some(End::Died) => {
                    return Err(Error::Died {
                        interface: self.local.interface.clone(),
                        process: self.local.process,
                    });
                }
                None => {}
            }
            let left = local::remaining(started, limit);
            if !self.wait(left)? && !self.events.has_next() && self.end.is_none() {
                return Ok(Heard::Idle);
            }
        }
        Ok(Heard::Event)
    }

    /// Asks the service to do something for a stream.
    pub(super) fn command(&self, uid: u64, command: Command) {
        self.local.command(uid, command);
    }

    /// Bytes of chunks that may wait for this process, as granted by the service. May increase, but never decreases.
    pub fn memory_bytes(&self) -> u64 {
        let [memory] = self.events.counters().read([statistics::MEMORY]);
        self.memory.max(memory)
    }

    /// Changes the configuration: the inactivity timeout of all streams, other settings of streams created after the
    /// service received the change. Filters, including those of classes, must be made from expressions
    /// ([`stream_filter`](flowgauge_stream::stream_filter)), because they are sent to another process.
    ///
    /// # Errors
    /// [`Error::Wanted`] if sizes are out of bounds, or filters cannot be sent; nothing is changed.
    pub fn change(&mut self, change: impl FnOnce(&mut ApplicationConfig)) -> Result<(), Error> {
        let mut wanted = self.wanted.clone();
        change(&mut wanted);
        Application::check_sizes(
            wanted.chunk_bytes,
            wanted.overlap_bytes,
            self.memory_bytes(),
        )?;
        let told = Box::new(asked::said(&wanted)?);
        self.wanted = wanted;
        self.say(&Request::Change { wanted: told });
        Ok(())
    }

    /// Counts a change that cannot be.
    pub(super) fn refuse(&self) {
        self.local.outbox.give_up(1);
    }

    /// Changes [`Application::base_threshold`] for this client's waiting data, immediately.
    pub fn set_base_threshold(&mut self, share: f64) {
        self.thresholds.base = application::share(share);
        self.say(&Request::Lose(self.thresholds));
    }

    /// Changes [`Application::overload_cutoff`], like [`Client::set_base_threshold`].
    pub fn set_overload_cutoff(&mut self, overload_cutoff: Option<u64>) {
        self.thresholds.overload_cutoff = overload_cutoff;
        self.say(&Request::Lose(self.thresholds));
    }

    /// Tells the service. When it is gone the next event says so; what it does not hear in time is counted.
    fn say(&self, request: &Request) {
        self.local.outbox.send(request);
    }

    /// Asks the service to end this client's events. Pending events are still delivered, then partial chunks and the
    /// ends of its streams, then [`Next::End`]. The request is sent while events are read. See [`Client::leaver`] for
    /// other threads.
    pub fn leave(&self) {
        self.say(&Request::Leave);
    }

    /// A handle that can end this client's events from another thread.
    pub fn leaver(&self) -> Leaver {
        Leaver(Arc::clone(self.local.outbox.connection()))
    }

    /// This client's statistics, including losses, and the ledger of the capture; at most a tenth of a second old
    /// while packets arrive.
    pub fn statistics(&self) -> (ClientStatistics, Ledger) {
        let (mut own, ledger) = statistics::read(&self.events.counters());
        own.refused_commands += self.local.outbox.unsent();
        (own, ledger)
    }

    /// The captured interface.
    pub fn interface(&self) -> &str {
        &self.local.interface
    }

    /// The number of the capturing process.
    pub fn service(&self) -> u32 {
        self.local.process
    }

    /// Does what the event before asked for, and notes how long it took.
    fn finish_event(&mut self) {
        let Some((uid, since)) = self.local.busy.take() else {
            return;
        };
        let time = since.elapsed().as_nanos() as u64;
        let keep = self.local.keep.take();
        let kept = keep.map(|keep| {
            let bytes = match keep.joined {
                true => core::mem::take(&mut self.joined),
                false => {
                    let current = self.events.current();
                    let len = current.len().min(keep.len as usize);
                    current[..len].to_vec()
                }
            };
            (keep.offset, bytes)
        });
        self.local.with_state(uid, |state| {
            state.processing_time += time;
            state.kept = kept;
        });
    }

    /// Waits for the service to say something; false when it did not.
    fn wait(&mut self, limit: Option<Duration>) -> Result<bool, Error> {
        let failed = "wait for the shared capture";
        if !self.events.prepare_to_sleep() {
            return Ok(true);
        }
        let heard = self.local.outbox.wait(limit);
        self.events.awake();
        if !heard.map_err(Error::system(failed))? {
            return Ok(false);
        }
        let mut message = [0; NOTICE_BYTES];
        match self.local.outbox.connection().receive(&mut message) {
            Ok(len) => match notice(&message[..len]) {
                Some(Answer::Ended(reason)) => self.end = Some(End::Reason(reason)),
                Some(Answer::Left) => self.end = Some(End::Reason("as asked".to_owned())),
                Some(_) => {}
                None => {
                    return Err(Error::Protocol {
                        what: "a message of no kind",
                    });
                }
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.end = Some(End::Died),
        }
        Ok(true)
    }
}

/// Ends the events of a [`Client`], from any thread.
#[derive(Clone, Debug)]
pub struct Leaver(Arc<Connection>);

impl Leaver {
    /// See [`Client::leave`].
    ///
    /// # Errors
    /// A system error; none if the service is gone, which the client detects by itself.
    pub fn leave(&self) -> Result<(), Error> {
        let leave = serde_json::to_vec(&Request::Leave).unwrap_or_default();
        match self.0.send_patiently(&leave) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::system("leave the shared capture")(error))
            }
            _ => Ok(()),
        }
    }
}

impl Local {
    fn with_state<R>(&self, uid: u64, act: impl FnOnce(&mut OwnState) -> R) -> R {
        let mut streams = self.streams.borrow_mut();
        let state = streams.entry(uid as u32).or_default();
        if state.uid != uid {
            // Whoever had the place before has ended unheard.
            *state = OwnState {
                uid,
                ..OwnState::default()
            };
        }
        act(state)
    }

    /// What the service sent, with what is kept here.
    fn completed(&self, snapshot: StreamSnapshot, kind: Kind) -> StreamSnapshot {
        let mut snapshot = snapshot;
        let mut streams = self.streams.borrow_mut();
        let place = snapshot.uid as u32;
        let known = streams
            .get(&place)
            .filter(|state| state.uid == snapshot.uid);
        // The service has counted those that were lost, too.
        snapshot.chunks = known.map_or(0, |state| state.chunks);
        if let Some(state) = known {
            snapshot.user_state = state.user_state;
            snapshot.processing_time = state.processing_time;
        }
        if kind == Kind::Terminated {
            streams.remove(&place);
        }
        snapshot
    }

    /// The chunk as the application sees it: joined to what it kept.
    fn deliver<'a>(
        &self,
        uid: u64,
        info: ChunkInfo,
        content: Content<'a>,
        joined: &'a mut Vec<u8>,
    ) -> SharedChunk<'a> {
        let kept = self.with_state(uid, |state| {
            state.chunks += 1;
            state.kept.take()
        });
        self.busy.set(Some((uid, Instant::now())));
        let plain = SharedChunk {
            bytes: content.bytes,
            info,
            content,
            shift: 0,
            is_joined: false,
        };
        let Some((offset, bytes)) = kept else {
            return plain;
        };
        // What was kept must end where the new bytes begin.
        let fresh = info.offset + u64::from(info.repeated);
        if offset + bytes.len() as u64 != fresh || info.gap_before > 0 {
            return plain;
        }
        let repeated = bytes.len() as u32;
        *joined = bytes;
        joined.extend_from_slice(content.bytes.get(info.repeated as usize..).unwrap_or(&[]));
        SharedChunk {
            bytes: joined,
            info: ChunkInfo {
                offset,
                repeated,
                flags: info.flags.with(ChunkFlags::KEPT),
                ..info
            },
            content,
            shift: repeated - info.repeated.min(repeated),
            is_joined: true,
        }
    }

    fn command(&self, uid: u64, command: Command) {
        // What is kept or measured here, and what holds for everybody and is the sensor's, is not told.
        if let Some(command) = asked::said_command(command) {
            self.outbox.command(uid, command);
        }
    }
}

/// A stream of a shared capture, during an event. Requests are sent to the service immediately, but do not affect
/// events that are already queued.
#[derive(Debug)]
pub struct SharedStream<'a> {
    snapshot: StreamSnapshot,
    local: &'a Local,
    /// How to keep the chunk of this event.
    chunk: Option<Keep>,
}

impl SharedStream<'_> {
    /// A snapshot of its state.
    pub fn snapshot(&self) -> &StreamSnapshot {
        &self.snapshot
    }

    /// Sets the word for the application's use in later snapshots.
    pub fn set_user_state(&self, state: u64) {
        self.local
            .with_state(self.snapshot.uid, |own| own.user_state = state);
    }

    /// Changes the cutoff.
    pub fn set_cutoff(&self, cutoff: Cutoff) {
        self.command(Command::SetCutoff(cutoff));
    }

    /// Changes the priority; higher numbers are more important.
    pub fn set_priority(&self, priority: u8) {
        self.command(Command::SetPriority(priority));
    }

    /// Discards the rest of the stream.
    pub fn discard(&self) {
        self.command(Command::Discard);
    }

    /// Changes a parameter. The streams of a client may have at most 64 different sets of parameters; further changes
    /// are refused and counted ([`ClientStatistics::refused_commands`]).
    ///
    /// # Errors
    /// [`Error::Wanted`] for [`Parameter::Policy`], which would apply to all clients.
    pub fn set_parameter(&self, parameter: Parameter) -> Result<(), Error> {
        if let Parameter::Policy(_) = parameter {
            return Err(Error::Wanted {
                what: "the overlap policy of a shared capture is the same for all its users"
                    .to_owned(),
            });
        }
        self.command(Command::SetParameter(parameter));
        Ok(())
    }

    /// During a data event: keeps the chunk, so that the next event delivers it together with the next chunk,
    /// contiguously.
    pub fn keep_chunk(&self) {
        self.local.keep.set(self.chunk);
    }

    fn command(&self, command: Command) {
        self.local.command(self.snapshot.uid, command);
    }
}

/// The bytes of a data event, in the shared pool.
#[derive(Debug)]
pub struct SharedChunk<'a> {
    bytes: &'a [u8],
    info: ChunkInfo,
    content: Content<'a>,
    /// By how much positions of the shared chunk have moved.
    shift: u32,
    is_joined: bool,
}

impl<'a> SharedChunk<'a> {
    /// The bytes, contiguous in memory.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes that were not in a previous chunk.
    pub fn new_bytes(&self) -> &'a [u8] {
        self.bytes.get(self.info.repeated as usize..).unwrap_or(&[])
    }

    /// Properties of the chunk. `gap_before` includes bytes lost because this process was too slow.
    pub fn info(&self) -> ChunkInfo {
        self.info
    }

    /// Whether the bytes are in the shared pool, instead of joined to a kept chunk.
    pub fn is_shared(&self) -> bool {
        !self.is_joined
    }

    /// Holes inside the chunk, as ranges of [`SharedChunk::bytes`].
    pub fn holes(&self) -> impl Iterator<Item = Range<u32>> {
        let shift = self.shift;
        self.content
            .holes()
            .map(move |hole| hole.start.saturating_add(shift)..hole.end.saturating_add(shift))
    }

    /// Its packets, if the application requested them.
    pub fn packets(&self) -> SharedPackets<'a> {
        self.content.packets()
    }
}
