//! A sensor of another machine, by its agent.

pub mod message;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flowgauge_link::{Conversation, Error, Identity, MessageSender, Reactor};
use flowgauge_sys::shared::COUNTERS;

use self::message::{Asked, MOST_MESSAGE, Page, SERVICE, Said, change};
use crate::client::{ClientError, PATIENCE};
use crate::layout;

/// How long an agent may say nothing: it asks every few seconds whether the user is there.
const SILENCE: Duration = Duration::from_secs(15);
/// Bytes of a flow's packets under way and not taken yet, where the program does not say.
pub const PREFETCH: u64 = 4 << 20;
/// Once less than this part of what may be under way is, more is asked for.
const WATERMARK: u64 = 10;

/// A connection to an agent.
#[derive(Debug)]
pub(crate) struct Remote {
    shared: Arc<Shared>,
}

/// What the thread that receives and those that ask share.
struct Shared {
    sender: MessageSender,
    address: String,
    ids: AtomicU64,
    /// Who waits for which answer. Empty once the connection is gone.
    waiting: Mutex<BTreeMap<u64, mpsc::Sender<Vec<u8>>>>,
    flows: Mutex<BTreeMap<u64, Arc<RemoteFlow>>>,
    is_gone: AtomicBool,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    /// Connects to an agent, on whose messages the reactor acts.
    pub(crate) fn connect(
        reactor: &Reactor,
        identity: &Identity,
        address: &str,
        peer: Option<&str>,
        patience: Duration,
    ) -> Result<Remote, Error> {
        let mut conversation = Conversation::open(identity, SERVICE, address, peer, patience)?;
        conversation.set_silence(SILENCE);
        conversation.set_max_received(MOST_MESSAGE);
        let shared = Arc::new(Shared {
            sender: conversation.sender(),
            address: address.to_owned(),
            ids: AtomicU64::new(1),
            waiting: Mutex::default(),
            flows: Mutex::default(),
            is_gone: AtomicBool::new(false),
        });
        let receiving = Arc::clone(&shared);
        let received = reactor.receive(conversation, move |message| match message {
            Some(message) => Said::of(message).is_some_and(|said| receiving.take(&said).is_some()),
            None => {
                receiving.end();
                false
            }
        });
        received.map_err(|source| Error::Network {
            action: "use the connection to",
            address: address.to_owned(),
            source,
        })?;
        Ok(Remote { shared })
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.shared.is_gone.load(Ordering::Acquire)
    }

    /// Asks for something.
    pub(crate) fn begin(&self, request: &[u8]) -> Result<Coming, ClientError> {
        self.shared.begin(|id| Asked::Ask { id, request }.message())
    }

    /// Notes a flow whose numbers and packets come from now on.
    pub(crate) fn flow(&self, number: u64) -> Arc<RemoteFlow> {
        let flow = Arc::new(RemoteFlow {
            number,
            shared: Arc::clone(&self.shared),
            state: Mutex::new(State {
                page: [0; COUNTERS],
                batches: VecDeque::new(),
                prefetch: PREFETCH,
                granted: 0,
                taken: 0,
                received: 0,
                push: Duration::ZERO,
                heard: Instant::now(),
                is_over: false,
                is_closed: false,
                waiting: Vec::new(),
                owed: 0,
                news: None,
            }),
            came: Condvar::new(),
        });
        lock(&self.shared.flows).insert(number, Arc::clone(&flow));
        flow
    }

    /// Nothing more of a flow is wanted.
    pub(crate) fn forget(&self, number: u64) {
        let flow = lock(&self.shared.flows).remove(&number);
        if let Some(flow) = flow {
            lock(&flow.state).is_closed = true;
            flow.leave();
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.shared.sender.close();
    }
}

/// An answer that comes.
#[derive(Debug)]
pub(crate) struct Coming {
    id: u64,
    answer: mpsc::Receiver<Vec<u8>>,
    shared: Arc<Shared>,
}

impl Coming {
    /// The answer, if it comes until then.
    pub(crate) fn wait(&self, until: Instant) -> Result<Option<Vec<u8>>, ClientError> {
        let left = until.saturating_duration_since(Instant::now());
        match self.answer.recv_timeout(left) {
            Ok(answer) => Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.shared.gone()),
        }
    }

    /// The answer, which has to come within `patience`.
    pub(crate) fn within(&self, patience: Duration) -> Result<Vec<u8>, ClientError> {
        self.wait(Instant::now() + patience)?.ok_or_else(|| {
            let (address, seconds) = (&self.shared.address, patience.as_secs());
            let what = format!("{address}: no answer in {seconds} s");
            ClientError::Gone(io::Error::new(io::ErrorKind::TimedOut, what))
        })
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        lock(&self.shared.waiting).remove(&self.id);
    }
}

impl Shared {
    fn gone(&self) -> ClientError {
        let what = format!("{}: the connection has ended", self.address);
        ClientError::Gone(io::Error::new(io::ErrorKind::ConnectionAborted, what))
    }

    /// Sends a request whose answer comes.
    fn begin(
        self: &Arc<Self>,
        message: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<Coming, ClientError> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (answers, answer) = mpsc::channel();
        lock(&self.waiting).insert(id, answers);
        let coming = Coming {
            id,
            answer,
            shared: Arc::clone(self),
        };
        // In this order: who is noted after the connection is gone has to see that.
        if self.is_gone.load(Ordering::Acquire) || self.sender.send(&[&message(id)]).is_err() {
            return Err(self.gone());
        }
        Ok(coming)
    }

    fn answer(&self, id: u64, answer: Vec<u8>) {
        if let Some(waiting) = lock(&self.waiting).remove(&id) {
            // Who asked may have gone.
            let _ = waiting.send(answer);
        }
    }

    /// The connection has ended.
    fn end(&self) {
        self.is_gone.store(true, Ordering::Release);
        lock(&self.waiting).clear();
        for flow in lock(&self.flows).values() {
            flow.leave();
        }
    }

    /// Takes packets of a flow; `None` where they cannot be any. Of a flow that is closed they are nobody's.
    fn take_packets(
        &self,
        flow: u64,
        component: u64,
        count: u64,
        bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Option<()>,
    ) -> Option<()> {
        let Some(flow) = lock(&self.flows).get(&flow).cloned() else {
            return Some(());
        };
        let batch = match count {
            0 => None,
            _ => Some(Batch::of(component, count, bytes, fill)?),
        };
        let mut state = lock(&flow.state);
        state.received += bytes as u64;
        // The last message may go beyond what was granted.
        if state.received > state.granted.saturating_add(MOST_MESSAGE as u64) {
            return None;
        }
        match batch {
            Some(batch) => state.batches.push_back(batch),
            None => state.is_over = true,
        }
        flow.tell(state);
        Some(())
    }

    /// Takes a message; `None` where the agent does not keep to the protocol, or cannot be answered.
    fn take(&self, said: &Said<'_>) -> Option<()> {
        match said {
            Said::Answer { id, answer } => self.answer(*id, answer.to_vec()),
            Said::Numbers {
                id,
                flow: number,
                changes,
            } => {
                // What comes of a flow that is closed is nobody's.
                let flow = lock(&self.flows).get(number).cloned();
                if let Some(flow) = flow {
                    let mut state = lock(&flow.state);
                    change(&mut state.page, changes)?;
                    state.heard = Instant::now();
                    state.answered(*id);
                    flow.tell(state);
                }
            }
            Said::Packets {
                flow,
                component,
                count,
                records,
            } => self.take_packets(*flow, *component, *count, records.len(), |memory| {
                memory.extend_from_slice(records);
                Some(())
            })?,
            Said::Packed {
                flow,
                component,
                count,
                bytes,
                packed,
            } => {
                let bytes = usize::try_from(*bytes).ok();
                let bytes = bytes.filter(|bytes| *bytes <= MOST_MESSAGE)?;
                self.take_packets(*flow, *component, *count, bytes, |memory| {
                    let from = memory.len();
                    memory.resize(from + bytes, 0);
                    let unpacked = zstd::bulk::decompress_to_buffer(packed, &mut memory[from..]);
                    unpacked
                        .ok()
                        .filter(|unpacked| *unpacked == bytes)
                        .map(drop)
                })?;
            }
            Said::Alive => self.sender.send_alive(&Asked::Alive.message()).ok()?,
        }
        Some(())
    }
}

/// A flow of a sensor elsewhere.
#[derive(Debug)]
pub(crate) struct RemoteFlow {
    number: u64,
    shared: Arc<Shared>,
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Debug)]
struct State {
    page: Page,
    batches: VecDeque<Batch>,
    /// Bytes of packets that may be under way or wait here.
    prefetch: u64,
    /// Bytes that the agent was told it may have sent, and those that were taken from here.
    granted: u64,
    taken: u64,
    /// Bytes that came.
    received: u64,
    /// How often numbers come by themselves; zero: when they are asked for.
    push: Duration,
    /// When numbers came last.
    heard: Instant,
    /// No more packets come.
    is_over: bool,
    /// Nothing of it is wanted any more, and nothing comes.
    is_closed: bool,
    /// Who waits for which numbers.
    waiting: Vec<(u64, Arc<Round>)>,
    /// Numbers that were asked for and did not come in time; 0: none.
    owed: u64,
    /// Who waits for packets of several flows.
    news: Option<Arc<News>>,
}

impl State {
    /// Numbers came that were asked for, or, with 0, by themselves.
    fn answered(&mut self, id: u64) {
        if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == id) {
            self.waiting.swap_remove(at).1.came();
        }
        if self.owed == id {
            self.owed = 0;
        }
    }
}

/// Numbers of many flows that somebody waits for: the last that comes wakes them.
#[derive(Debug, Default)]
pub(crate) struct Round {
    due: Mutex<usize>,
    all_came: Condvar,
}

impl Round {
    fn expect(&self) {
        *lock(&self.due) += 1;
    }

    fn came(&self) {
        let mut due = lock(&self.due);
        *due -= 1;
        if *due == 0 {
            self.all_came.notify_all();
        }
    }

    fn wait(&self, until: Instant) {
        let mut due = lock(&self.due);
        while *due > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.all_came.wait_timeout(due, left);
            due = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Something has come to one of several flows.
#[derive(Debug, Default)]
pub struct News {
    count: Mutex<u64>,
    more: Condvar,
}

impl News {
    /// How often something came so far.
    pub fn count(&self) -> u64 {
        *lock(&self.count)
    }

    fn tell(&self) {
        *lock(&self.count) += 1;
        self.more.notify_all();
    }

    /// Waits until something has come since then, no longer than `limit`.
    pub fn wait(&self, since: u64, limit: Duration) {
        let waits = |count: &mut u64| *count == since;
        let waited = self
            .more
            .wait_timeout_while(lock(&self.count), limit, waits);
        drop(waited);
    }
}

/// Packets of a component: their records in aligned memory.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) component: usize,
    pub(crate) count: u32,
    /// From a place on that is a multiple of 8.
    memory: Vec<u8>,
    at: usize,
}

impl Batch {
    /// With so many bytes of records, which `fill` appends. `None`: it cannot be one.
    fn of(
        component: u64,
        count: u64,
        bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Option<()>,
    ) -> Option<Batch> {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes + 8);
        let at = memory.as_ptr().align_offset(8).min(8);
        memory.resize(at, 0);
        fill(&mut memory)?;
        Some(Batch {
            component: usize::try_from(component).ok()?,
            count: u32::try_from(count).ok()?,
            memory,
            at,
        })
    }

    /// The records.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.get(self.at..).unwrap_or_default()
    }
}

impl RemoteFlow {
    /// Has numbers come every so often by themselves; zero: only when they are asked for.
    pub(crate) fn push(&self, every: Duration) -> Result<(), ClientError> {
        let millis = match every.is_zero() {
            true => 0,
            false => u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1),
        };
        // What is read meanwhile is not older than the first of them.
        self.ask()?;
        let every = Asked::Every {
            flow: self.number,
            millis,
        };
        let sent = self.shared.sender.send(&[&every.message()]);
        sent.map_err(|_| self.shared.gone())?;
        lock(&self.state).push = Duration::from_millis(millis);
        Ok(())
    }

    /// Bytes of packets that may be under way, or wait here to be taken.
    pub(crate) fn set_prefetch(&self, bytes: u64) {
        lock(&self.state).prefetch = bytes.max(1);
    }

    /// Asks for the numbers. Returns the request's number; nothing where they cannot come.
    fn begin(&self, round: &Arc<Round>) -> Option<u64> {
        let (shared, flow) = (&self.shared, self.number);
        let id = shared.ids.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if state.is_closed {
            return None;
        }
        round.expect();
        state.waiting.push((id, Arc::clone(round)));
        drop(state);
        // In this order: who waits since after the connection has gone has to see that.
        let is_sent = !shared.is_gone.load(Ordering::Acquire)
            && shared
                .sender
                .send(&[&Asked::Read { id, flow }.message()])
                .is_ok();
        if !is_sent {
            self.leave();
        }
        is_sent.then_some(id)
    }

    /// Nobody needs to wait for what comes of it any more: nothing does.
    fn leave(&self) {
        let mut state = lock(&self.state);
        state.waiting.drain(..).for_each(|(_, round)| round.came());
        self.tell(state);
    }

    /// Wakes who waits for something to come.
    fn tell(&self, state: MutexGuard<'_, State>) {
        let news = state.news.clone();
        drop(state);
        self.came.notify_all();
        if let Some(news) = news {
            news.tell();
        }
    }

    /// Has somebody woken who waits for several flows.
    pub(crate) fn tell_to(&self, news: &Arc<News>) {
        lock(&self.state).news = Some(Arc::clone(news));
    }

    /// Asks for the numbers and waits for them.
    fn ask(&self) -> Result<(), ClientError> {
        let (round, until) = (Arc::default(), Instant::now() + PATIENCE);
        match self.begin(&round) {
            Some(id) if self.end_refresh(id, &round, until) => Ok(()),
            _ => Err(self.shared.gone()),
        }
    }

    /// Asks for the numbers, where they do not come by themselves: `Some(0)` then. Nothing where an answer is owed since before,
    /// none can come, or numbers that should come by themselves do not.
    pub(crate) fn begin_refresh(&self, round: &Arc<Round>, patience: Duration) -> Option<u64> {
        let state = lock(&self.state);
        if !state.push.is_zero() {
            return (state.heard.elapsed() <= state.push + patience).then_some(0);
        }
        if state.owed > 0 {
            return None;
        }
        drop(state);
        self.begin(round)
    }

    /// Waits for the numbers that were asked for, and others of the same round. Whether they came.
    pub(crate) fn end_refresh(&self, id: u64, round: &Round, until: Instant) -> bool {
        if id == 0 {
            return true;
        }
        round.wait(until);
        let mut state = lock(&self.state);
        if let Some(at) = state.waiting.iter().position(|(waiting, _)| *waiting == id) {
            state.waiting.swap_remove(at);
            state.owed = id;
            return false;
        }
        !self.shared.is_gone.load(Ordering::Acquire)
    }

    /// All numbers: as they came last, or asked for now. Those of a sensor that does not answer stay what they were.
    pub(crate) fn page(&self) -> Page {
        if lock(&self.state).push.is_zero() {
            let _ = self.ask();
        }
        self.latest()
    }

    /// All numbers as they came last.
    pub(crate) fn latest(&self) -> Page {
        let state = lock(&self.state);
        let mut page = state.page;
        // Packets that came before the end are to be taken first.
        if state.granted > 0 && !(state.is_over && state.batches.is_empty()) {
            page[layout::FLAGS] &= !layout::IS_LAST;
        }
        page
    }

    /// The next packets; `None`: none came within `limit`, or none will.
    pub(crate) fn next(&self, limit: Duration) -> Result<Option<Batch>, ClientError> {
        let until = Instant::now().checked_add(limit);
        let mut state = lock(&self.state);
        loop {
            let under_way = state.granted - state.taken;
            if under_way <= state.prefetch / WATERMARK {
                state.granted = state.taken + state.prefetch;
                let credit = Asked::Credit {
                    flow: self.number,
                    bytes: state.granted,
                };
                // What comes is taken while this is sent.
                drop(state);
                let sent = self.shared.sender.send(&[&credit.message()]);
                sent.map_err(|_| self.shared.gone())?;
                state = lock(&self.state);
            }
            if let Some(batch) = state.batches.pop_front() {
                state.taken += batch.bytes().len() as u64;
                state.granted = state.granted.max(state.taken);
                return Ok(Some(batch));
            }
            if state.is_over {
                return Ok(None);
            }
            if self.shared.is_gone.load(Ordering::Acquire) {
                return Err(self.shared.gone());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or(Duration::from_secs(3600));
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.came.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
