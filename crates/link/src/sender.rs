//! The end that sends items: numbered, spooled, acknowledged, over as many connections as it takes.

mod carried;
mod leftovers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_sys::ending::is_ending;
use flowgauge_sys::notice::tell as notice;
use parking_lot::{Condvar, Mutex};

use self::leftovers::Leftovers;
use crate::carrier::Carrier;
use crate::client;
use crate::disk::Disk;
use crate::error::Error;
use crate::frame::{Frame, ITEMS_OVERHEAD, Opening, VERSION};
use crate::identity::Identity;
use crate::secure::{Reader, Secured, Writer};
use crate::spool::{Pushed, SenderCounts, Spool, Spooled, WhenFull};

/// What senders of items ask for.
pub(crate) const ITEMS_SERVICE: &str = "items";
/// Something is said at least this often, so that the other side knows that this one lives.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// Who waits for room looks this often whether the process is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Times are not sent sooner after whatever was sent before.
const TIME_REST: Duration = Duration::from_millis(20);
/// The longest frame of a listener to a sender.
const MAX_REPLY: usize = 64;

/// How a [`Sender`] sends.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Where to: "host:port".
    pub address: String,
    /// Who is expected there; `None`: the host.
    pub peer: Option<String>,
    /// Bytes of frames that may wait for their acknowledgement.
    pub spool_bytes: usize,
    /// A folder for those that have no room in memory, and how many bytes of them there may be. What is
    /// there when the process ends, or is killed, the next one of the same name sends that has the same
    /// folder and address.
    pub spool_file: Option<(PathBuf, u64)>,
    /// What to do when they do.
    pub when_full: WhenFull,
    /// With [`WhenFull::Wait`]: when the process is to end ([`flowgauge_sys::ending::ends_when`]) nobody waits for longer
    /// than this in all; what finds no room then is lost.
    pub linger: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// A peer that says nothing for so long is gone.
    pub silence: Duration,
    /// The wait after the first failed attempt; it doubles.
    pub least_backoff: Duration,
    /// The longest wait between attempts.
    pub most_backoff: Duration,
}

impl SenderOptions {
    /// The usual, to an address.
    pub fn new(address: impl Into<String>) -> SenderOptions {
        SenderOptions {
            address: address.into(),
            peer: None,
            spool_bytes: 64 << 20,
            spool_file: None,
            when_full: WhenFull::Wait,
            linger: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            least_backoff: Duration::from_millis(100),
            most_backoff: Duration::from_secs(10),
        }
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the spool, and will be delivered if the other side comes back.
    Spooled,
    /// The spool was full; it, or others before it, are lost. The other side will know.
    Lost,
}

/// Sends frames of items to a [`crate::Listener`].
pub struct Sender {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    leftovers: Option<Leftovers>,
}

/// What brings frames to the other side.
#[derive(Clone)]
enum By {
    /// Connections to a [`crate::Listener`].
    Link(Identity),
    Carrier(Arc<dyn Carrier>),
}

struct Inner {
    by: By,
    options: SenderOptions,
    session: [u8; 16],
    /// An earlier process left it.
    is_left: bool,
    state: Mutex<State>,
    /// Something to write, or to end.
    work: Condvar,
    /// Room in the spool, a connection, the end.
    news: Condvar,
}

#[derive(Default)]
struct State {
    spool: Spool,
    announcements: Vec<Arc<Vec<u8>>>,
    watermark: u64,
    /// The time went on without items.
    is_time_new: bool,
    /// No more items come.
    is_ending: bool,
    /// The other side has acknowledged the end.
    is_ended: bool,
    /// Give up.
    is_stopped: bool,
    /// There was a connection.
    was_connected: bool,
    is_connected: bool,
    /// The reading half of the connection failed.
    broken: Option<Error>,
    /// Why there is no connection.
    trouble: Option<Arc<Error>>,
    reconnections: u64,
    /// It was said that the spool is full.
    was_full: bool,
    /// By when nobody waits for room any more: the process is to end.
    last_wait: Option<Instant>,
}

impl Sender {
    /// Begins to connect; does not wait for it.
    ///
    /// # Errors
    /// The thread that writes, or the spool's file, cannot be made.
    pub fn start(identity: &Identity, options: SenderOptions) -> Result<Sender, Error> {
        let by = By::Link(identity.clone());
        Sender::begin(by, identity.name(), identity.random(), options)
    }

    /// The same to where no [`crate::Listener`] is, as a session of this number.
    ///
    /// # Errors
    /// The thread that writes, or the spool's file, cannot be made.
    pub fn start_by(
        carrier: Arc<dyn Carrier>,
        session: [u8; 16],
        options: SenderOptions,
    ) -> Result<Sender, Error> {
        let name = carrier.name().to_owned();
        Sender::begin(By::Carrier(carrier), &name, session, options)
    }

    fn begin(
        by: By,
        name: &str,
        session: [u8; 16],
        options: SenderOptions,
    ) -> Result<Sender, Error> {
        let (mut disk, mut left) = (None, Vec::new());
        if let Some((folder, bytes)) = &options.spool_file {
            left = Disk::leftovers(folder, name, &options.address);
            let made = Disk::create(folder, name, session, &options.address, *bytes);
            let mut made = made.map_err(|source| Error::File {
                action: "create a spool in",
                path: folder.clone(),
                source,
            })?;
            made.share(left.iter().map(|leftover| leftover.disk.used()).sum());
            disk = Some(made);
        }
        let spool = Spool::new(options.spool_bytes, disk);
        let inner = Arc::new(Inner::new(by, &options, session, spool));
        let worker = inner.clone();
        let thread = spawn("link-send", &options, move || worker.run())?;
        let mut sender = Sender {
            inner,
            thread: Some(thread),
            leftovers: None,
        };
        if !left.is_empty() {
            sender.leftovers = Some(Leftovers::start(sender.inner.clone(), left)?);
        }
        Ok(sender)
    }

    /// Waits until there was a connection, or an attempt failed for a reason that lasts, at most for
    /// `wait`. False: nobody answered so far.
    ///
    /// # Errors
    /// Why it can never connect, until somebody changes something.
    pub fn wait_for_connection(&self, wait: Duration) -> Result<bool, Arc<Error>> {
        let lasting = |state: &State| {
            let trouble = state.trouble.as_ref();
            trouble.filter(|error| error.is_lasting()).cloned()
        };
        let waits = |state: &mut State| !state.was_connected && lasting(state).is_none();
        let mut state = self.inner.state.lock();
        self.inner.news.wait_while_for(&mut state, waits, wait);
        match lasting(&state).filter(|_| !state.was_connected) {
            Some(trouble) => Err(trouble),
            None => Ok(state.was_connected),
        }
    }

    /// Something that later items refer to: it is sent before them on each connection, once, and
    /// never lost. Returns its number.
    pub fn announce(&self, payload: Vec<u8>) -> u32 {
        let mut state = self.inner.state.lock();
        state.spool.announce(&payload);
        state.announcements.push(Arc::new(payload));
        self.inner.work.notify_one();
        state.announcements.len() as u32 - 1
    }

    /// Sends `count` items, encoded in `payload`; none that follows may be of a time before
    /// `watermark`.
    ///
    /// # Errors
    /// A payload that the spool can never hold.
    pub fn send(&self, payload: Vec<u8>, count: u32, watermark: u64) -> Result<Sent, Error> {
        if count == 0 {
            return Ok(Sent::Spooled);
        }
        let mut state = self.inner.state.lock();
        let most = state.spool.most_bytes();
        if payload.len() > most {
            return Err(Error::TooLarge {
                bytes: payload.len(),
                most,
            });
        }
        if self.inner.options.when_full == WhenFull::Wait {
            while !state.spool.has_room(payload.len()) && !state.is_stopped {
                if state.last_wait.is_none() && is_ending() {
                    state.last_wait = Some(Instant::now() + self.inner.options.linger);
                }
                if state.last_wait.is_some_and(|last| Instant::now() >= last) {
                    break;
                }
                if !core::mem::replace(&mut state.was_full, true) {
                    let address = &self.inner.options.address;
                    notice(format_args!(
                        "{address}: the spool is full, the source waits"
                    ));
                }
                self.inner.news.wait_for(&mut state, LOOK);
            }
        }
        state.watermark = state.watermark.max(watermark);
        let watermark = state.watermark;
        let when_full = self.inner.options.when_full;
        let pushed = state.spool.push(payload, count, watermark, when_full);
        self.inner.work.notify_one();
        Ok(match pushed {
            Pushed::Kept => Sent::Spooled,
            Pushed::Lost => Sent::Lost,
        })
    }

    /// No item that follows is of a time before `watermark`: what merges several senders need not
    /// wait for this one.
    pub fn time(&self, watermark: u64) {
        let mut state = self.inner.state.lock();
        if watermark > state.watermark {
            state.watermark = watermark;
            state.is_time_new = true;
            self.inner.work.notify_one();
        }
    }

    /// Waits until all that was given to it so far has arrived, or is lost, at most for `wait`. False: it has not.
    pub fn settle(&self, wait: Duration) -> bool {
        let mut state = self.inner.state.lock();
        let total = state.spool.total();
        let waits = |state: &mut State| !state.is_stopped && !state.spool.is_settled(total);
        let timed_out = self.inner.news.wait_while_for(&mut state, waits, wait);
        !timed_out.timed_out()
    }

    /// How the items fared so far.
    pub fn counts(&self) -> SenderCounts {
        self.inner.counts(&self.inner.state.lock())
    }

    /// Why there is no connection at the moment.
    pub fn trouble(&self) -> Option<Arc<Error>> {
        let state = self.inner.state.lock();
        state.trouble.clone().filter(|_| !state.is_connected)
    }

    /// No more items come: waits until the other side has acknowledged all, at most for `wait`. What
    /// is pending then is kept in the spool's folder, if there is one with room; else it is lost, and
    /// only this side knows.
    pub fn finish(mut self, wait: Duration) -> SenderCounts {
        let mut state = self.inner.state.lock();
        // Who waited for room has waited already.
        let deadline = Instant::now() + wait;
        let deadline = state.last_wait.map_or(deadline, |last| last.min(deadline));
        if let Some(leftovers) = &mut self.leftovers {
            // A receiver that takes one sender would go with the end of this session; and nothing of it
            // comes any more that others have to wait for.
            state.watermark = u64::MAX;
            state.is_time_new = true;
            drop(state);
            leftovers.wait(deadline);
            state = self.inner.state.lock();
        }
        state.is_ending = true;
        self.inner.work.notify_one();
        let waits = |state: &mut State| !state.is_ended;
        let news = &self.inner.news;
        news.wait_while_until(&mut state, waits, deadline);
        drop(state);
        self.stop();
        let state = self.inner.state.lock();
        self.inner.counts(&state)
    }

    /// Where a later process finds what was kept.
    pub fn folder(&self) -> Option<PathBuf> {
        self.inner.state.lock().spool.folder().map(Path::to_owned)
    }

    fn stop(&mut self) {
        self.inner.stop();
        if let Some(leftovers) = &mut self.leftovers {
            leftovers.stop();
        }
        if let Some(thread) = self.thread.take() {
            // One that waits for an answer ends when it has none; nothing depends on it.
            let deadline = Instant::now() + BEAT;
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // It panics nowhere; if it did, that was said.
                let _ = thread.join();
            }
            self.inner.state.lock().put_away();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    /// Nothing more is sent: what is left waits for a later process.
    fn put_away(&mut self) {
        if self.is_ended || self.spool.total() == 0 {
            self.spool.remove();
        } else {
            self.spool.keep();
        }
    }
}

fn spawn(
    name: &str,
    options: &SenderOptions,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|source| Error::Network {
        action: "start a thread for",
        address: options.address.clone(),
        source,
    })
}

impl Inner {
    fn new(by: By, options: &SenderOptions, session: [u8; 16], spool: Spool) -> Inner {
        Inner {
            by,
            session,
            is_left: false,
            state: Mutex::new(State {
                spool,
                ..State::default()
            }),
            options: options.clone(),
            work: Condvar::new(),
            news: Condvar::new(),
        }
    }

    fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.work.notify_all();
        self.news.notify_all();
    }

    fn counts(&self, state: &State) -> SenderCounts {
        SenderCounts {
            reconnections: state.reconnections,
            ..state.spool.counts()
        }
    }

    /// Connects again and again until all is sent, or nobody wants it any more.
    fn run(self: Arc<Self>) {
        let mut backoff = self.options.least_backoff;
        loop {
            let served = match &self.by {
                By::Link(identity) => self
                    .connect(identity)
                    .map(|(secured, max_frame)| self.serve(secured, max_frame)),
                By::Carrier(carrier) => self
                    .board(&**carrier)
                    .map(|mut carriage| self.ride(&mut *carriage)),
            };
            let error = match served {
                Ok(None) => return,
                Ok(Some(error)) => {
                    backoff = self.options.least_backoff;
                    error
                }
                Err(error) => error,
            };
            let mut state = self.state.lock();
            if state.is_stopped {
                return;
            }
            let is_new = state
                .trouble
                .as_ref()
                .is_none_or(|before| before.to_string() != error.to_string());
            if is_new {
                notice(format_args!("{error}; trying again"));
            }
            state.trouble = Some(Arc::new(error));
            self.news.notify_all();
            // What connects at the same time again and again would fail together, too.
            let spread = backoff.mul_f64(0.75 + f64::from(self.session[0]) / 512.0);
            let waits = |state: &mut State| !state.is_stopped;
            self.work.wait_while_for(&mut state, waits, spread);
            if state.is_stopped {
                return;
            }
            backoff = (backoff * 2).min(self.options.most_backoff);
        }
    }

    /// A connection on which the two sides know where they stand.
    fn connect(&self, identity: &Identity) -> Result<(Secured, usize), Error> {
        let options = &self.options;
        let opening = Opening {
            versions: (VERSION, VERSION),
            service: ITEMS_SERVICE.to_owned(),
            session: self.session,
            acknowledged: self.state.lock().spool.acknowledged(),
            is_left: self.is_left,
        };
        let (secured, answer) = client::open(
            identity,
            &options.address,
            options.peer.as_deref(),
            options.connect_timeout,
            &opening,
        )?;
        let peer = secured.reader.peer();
        self.connected(&peer.name, answer.expected)?;
        Ok((secured, answer.max_frame as usize))
    }

    /// There is a connection, to who expects this item, or does not know the session.
    fn connected(&self, peer: &str, expected: Option<u64>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if !state.spool.resume(expected) {
            return Err(self.nonsense("it expects items that were never sent"));
        }
        let what = if state.was_connected {
            "again with"
        } else {
            "with"
        };
        notice(format_args!(
            "connected {what} {peer} ({})",
            self.options.address
        ));
        state.reconnections += u64::from(state.was_connected);
        state.was_connected = true;
        state.is_connected = true;
        state.trouble = None;
        state.broken = None;
        state.was_full = false;
        self.news.notify_all();
        Ok(())
    }

    fn nonsense(&self, reason: &str) -> Error {
        Error::Protocol {
            address: self.options.address.clone(),
            reason: reason.to_owned(),
        }
    }

    /// Writes what there is until the connection breaks; `None`: all is done.
    fn serve(self: &Arc<Self>, secured: Secured, max_frame: usize) -> Option<Error> {
        let Secured { reader, writer } = secured;
        let (inner, closer) = (self.clone(), writer.clone());
        let listening = thread::Builder::new()
            .name("link-acks".to_owned())
            .spawn(move || inner.listen(reader, &closer));
        let result = match &listening {
            Ok(_) => self.write(&writer, max_frame),
            Err(error) => Err(self.nonsense(&format!("cannot create a thread: {error}"))),
        };
        writer.close();
        if let Ok(thread) = listening {
            let _ = thread.join();
        }
        self.disconnected(result)
    }

    /// Why another connection is needed; `None`: none is.
    fn disconnected(&self, result: Result<(), Error>) -> Option<Error> {
        let mut state = self.state.lock();
        state.is_connected = false;
        state.spool.interrupt();
        if state.is_ended || state.is_stopped {
            return None;
        }
        let broken = state.broken.take();
        // What was read says more than that nothing can be written.
        broken.or(result.err())
    }

    fn write(&self, writer: &Writer, max_frame: usize) -> Result<(), Error> {
        let mut announced = 0;
        let mut has_ended = false;
        let mut last = Instant::now();
        while let Some(frame) = self.next_frame(&mut announced, &mut has_ended, last)? {
            last = Instant::now();
            if let Frame::Items { payload, .. } = &frame {
                let (bytes, most) = (payload.len() + ITEMS_OVERHEAD, max_frame);
                if bytes > most {
                    return Err(Error::TooLarge { bytes, most });
                }
            }
            frame.write(writer)?;
        }
        Ok(())
    }

    /// Waits for something to write; `None`: there is no more.
    fn next_frame(
        &self,
        announced: &mut usize,
        has_ended: &mut bool,
        last: Instant,
    ) -> Result<Option<Frame>, Error> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped || state.is_ended {
                return Ok(None);
            }
            if let Some(error) = state.broken.take() {
                return Err(error);
            }
            if let Some(payload) = state.announcements.get(*announced) {
                let (number, payload) = (*announced as u32, payload.clone());
                *announced += 1;
                return Ok(Some(Frame::Announcement { number, payload }));
            }
            if let Some(items) = state.spool.next() {
                let Spooled {
                    first,
                    count,
                    watermark,
                    payload,
                } = items;
                return Ok(Some(Frame::Items {
                    first,
                    count,
                    watermark,
                    payload,
                }));
            }
            if state.is_ending && !*has_ended {
                *has_ended = true;
                let total = state.spool.total();
                return Ok(Some(Frame::End { total }));
            }
            let most = if state.is_time_new { TIME_REST } else { BEAT };
            let left = most.saturating_sub(last.elapsed());
            if left.is_zero() {
                state.is_time_new = false;
                let (watermark, accepted) = (state.watermark, state.spool.total());
                return Ok(Some(Frame::Time {
                    watermark,
                    accepted,
                }));
            }
            self.work.wait_for(&mut state, left);
        }
    }

    /// Reads what the other side acknowledges.
    fn listen(&self, mut reader: Reader, writer: &Writer) {
        let error = loop {
            let deadline = Instant::now() + self.options.silence;
            match Frame::read(&mut reader, MAX_REPLY, deadline) {
                Ok(Frame::Acknowledgement { expected }) => {
                    let mut state = self.state.lock();
                    if !state.spool.acknowledge(expected) {
                        break self.nonsense("it acknowledges items that were never sent");
                    }
                    self.news.notify_all();
                }
                Ok(Frame::End { total }) => {
                    let mut state = self.state.lock();
                    if !state.is_ending || total != state.spool.total() {
                        break self.nonsense("it reports an end that was not sent");
                    }
                    state.spool.acknowledge(total);
                    state.is_ended = true;
                    self.work.notify_all();
                    self.news.notify_all();
                    return;
                }
                Ok(_) => break self.nonsense("it sends what only senders do"),
                Err(error) => break error.or_silent(self.options.silence),
            }
        };
        writer.close();
        let mut state = self.state.lock();
        state.broken = Some(error);
        self.work.notify_all();
        self.news.notify_all();
    }
}

impl core::fmt::Debug for Sender {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sender")
            .field("address", &self.inner.options.address)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;
    use crate::acceptor::ListenerOptions;
    use crate::identity::KeyFolder;
    use crate::listener::Listener;

    #[test]
    fn certificates_of_the_past_and_the_future_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path());
        keys.create_authority().unwrap();
        let now = OffsetDateTime::now_utc();
        let day = time::Duration::days(1);
        let hosts = ["127.0.0.1".to_owned()];
        let mut identities = Vec::new();
        for (name, from) in [("good", now), ("old", now - day * 9), ("new", now + day)] {
            keys.add_between(name, &hosts, from, from + day * 5)
                .unwrap();
            identities.push(keys.identity(Some(name)).unwrap());
        }
        let attempt = |listener: &Identity, sender: &Identity| {
            let listener = Listener::bind(listener, ListenerOptions::new("127.0.0.1:0")).unwrap();
            let options = SenderOptions::new(listener.local_address().to_string());
            let sender = Sender::start(sender, options).unwrap();
            let error = sender
                .wait_for_connection(Duration::from_secs(30))
                .unwrap_err();
            assert!(error.is_lasting());
            (error.to_string(), error.hint().unwrap())
        };
        let [good, old, new] = identities.as_slice() else {
            panic!("three identities");
        };
        let (error, hint) = attempt(old, good);
        assert!(error.ends_with("its certificate has expired"), "{error}");
        assert!(hint.contains("flowgauge keys add"), "{hint}");
        let (error, hint) = attempt(good, old);
        assert!(
            error.ends_with("this side's certificate expired"),
            "{error}"
        );
        assert!(hint.contains("flowgauge keys show"), "{hint}");
        let (error, hint) = attempt(new, good);
        assert!(
            error.ends_with("its certificate is not valid yet"),
            "{error}"
        );
        assert!(hint.contains("NTP"), "{hint}");
        let (_, hint) = attempt(good, new);
        assert!(hint.contains("clock"), "{hint}");
    }
}
