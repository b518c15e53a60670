//! A flow: its functions, the flow of the sensor that they become, and what comes of it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flowgauge_mapi::{Call, Error, OWN, PASSED, Shape, Target, label};
use flowgauge_sensor_client::protocol::Results;
use flowgauge_sensor_client::{Client, News, Reading, Readings};
use serde_json::{Map, Value};

use crate::abi::{RawPacket, RawResults};
use crate::error::{
    NO_DEVICE, NOT_BUILT, NOT_CONNECTED, SOCKET, UNKNOWN_FLOW, of_client, of_function,
};
use crate::own::{self, Chain, Instance};
use crate::packets::Packets;
use crate::results::{self, Row, Rows};
use crate::session::{
    self, ANSWER, Arguments, Descriptor, FIRST_LOOK, LAST_LOOK, MemberInfo, Setting, Status,
    Transfer, call, calls_of, connected_twice, has_packets, has_result, lock, open_waiting,
    seconds, too_late,
};

/// Why nothing comes.
const GONE: &str = "the sensor is gone; new flows work when it is back";
/// How often the sensor hears that rows are read.
const TELL: Duration = Duration::from_secs(1);
/// How often it is looked whether the sensor is still there.
const LOOK: Duration = Duration::from_millis(10);

/// A flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) fd: c_int,
    pub(crate) device: String,
    pub(crate) device_id: c_int,
    /// Of the member of a scope, how often it was set up.
    pub(crate) generation: AtomicU32,
    /// Of all flows of this process, or of this one where it has a credential of its own; of a user who has no rights without one
    /// what the sensor said.
    client: Mutex<Result<Client, Error>>,
    /// The flow has its device for itself: it starts and ends with it.
    pub(crate) owns_device: bool,
    calls: Mutex<Vec<Call>>,
    /// What they write to, until it is connected.
    files: Mutex<Vec<OwnedFd>>,
    /// Functions that run in this process, until it is connected.
    own: Mutex<Vec<Instance>>,
    /// Whether it was connected; with `SYNC` it may still have to wait.
    is_connected: AtomicBool,
    is_closed: AtomicBool,
    open: OnceLock<Open>,
    /// Who opens it: flows that are connected open those that waited for them, too.
    opening: Mutex<()>,
    failure: Mutex<Option<Error>>,
}

/// A flow in the sensor.
#[derive(Debug)]
struct Open {
    number: u64,
    /// The device is an interface.
    is_live: bool,
    packets: Mutex<Packets>,
    readings: Readings,
    functions: Vec<Function>,
    /// Functions that run in this process.
    own: Option<Chain>,
    /// The place of what counts packets that all functions pass.
    passed: usize,
    since: SystemTime,
    /// When it was looked last whether the sensor is there, in milliseconds since then.
    looked: AtomicU64,
}

/// A function whose results are read.
#[derive(Debug)]
struct Function {
    call: Call,
    label: String,
    /// Its place in the stack.
    place: usize,
    /// Rows that wait to be read.
    waiting: Mutex<Rows>,
    /// When the sensor heard of it that they are read.
    told: Mutex<Instant>,
    shown: Mutex<Box<Shown>>,
}

/// What a program was given of a function, until it reads the next.
#[derive(Debug)]
struct Shown {
    /// As large structures are aligned.
    bytes: Vec<u128>,
    results: RawResults,
}

impl Open {
    /// The functions of the program's own that stand before one of these numbers, or are it.
    fn own_before(&self, fid: c_int) -> Option<&Chain> {
        let own = self.own.as_ref()?;
        own.counts(fid as usize).map(|_| own)
    }
}

/// How long the members of a scope are waited for that have no row yet, once one has.
#[derive(Debug, Default)]
pub(crate) struct Patience(OnceLock<Instant>);

impl Patience {
    fn one_is_there(&self) {
        self.0.get_or_init(|| Instant::now() + ANSWER);
    }

    fn is_over(&self) -> bool {
        self.0.get().is_some_and(|until| Instant::now() >= *until)
    }
}

impl Shown {
    fn show(&mut self, bytes: &[u8], size: usize, nanos: u64) -> *mut RawResults {
        self.bytes.clear();
        self.bytes.extend(bytes.chunks(16).map(|chunk| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        }));
        self.results = RawResults {
            res: AtomicPtr::new(self.bytes.as_mut_ptr().cast()),
            ts: nanos / 1000,
            size: size as c_int,
        };
        &raw mut self.results
    }
}

impl Flow {
    /// A flow on a device of a sensor, in no table.
    pub(crate) fn new(fd: c_int, client: Result<Client, Error>, device: &str) -> Flow {
        Flow {
            fd,
            device: device.to_owned(),
            device_id: 0,
            generation: AtomicU32::new(1),
            client: Mutex::new(client),
            owns_device: false,
            calls: Mutex::default(),
            files: Mutex::default(),
            own: Mutex::default(),
            is_connected: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            opening: Mutex::default(),
            open: OnceLock::new(),
            failure: Mutex::default(),
        }
    }

    fn client(&self) -> Result<Client, Error> {
        lock(&self.client).clone()
    }

    fn stack(&self, calls: &[Call]) -> Result<flowgauge_mapi::Stack, Error> {
        flowgauge_mapi::stack(calls, self.fd.into(), &calls_of)
    }

    /// Applies a function. Returns its number.
    pub(crate) fn add(&self, call: Call) -> Result<c_int, Error> {
        let mut calls = lock(&self.calls);
        knows_flows(&call, self.fd)?;
        may_follow(&calls, &call)?;
        calls.push(call.clone());
        let mut files = lock(&self.files);
        let checked = self.stack(&calls).and_then(|stack| {
            self.check(&call, calls.len(), &stack.text)?;
            let new = stack.targets.iter().skip(files.len()).map(Target::open);
            files.extend(new.collect::<Result<Vec<_>, _>>()?);
            if call.function.is_own() {
                lock(&self.own).push(Instance::new(calls.len(), &call)?);
            }
            Ok(())
        });
        match checked {
            Ok(()) => Ok(calls.len() as c_int),
            Err(error) => {
                calls.pop();
                Err(error)
            }
        }
    }

    /// Whether its sensor takes a function, by its number, with those before it.
    pub(crate) fn check(&self, call: &Call, number: usize, stack: &str) -> Result<(), Error> {
        let checked = self.client()?.check(&self.device, stack);
        checked.map_err(|error| of_function(call, number, &error))
    }

    /// Whether it is connected, with all flows that it waits for, and not open yet.
    fn may_open(&self) -> bool {
        self.open.get().is_none()
            && self.was_connected()
            && awaits_nobody(&self.functions(), self.fd)
    }

    /// Begins it, as the member of a scope.
    pub(crate) fn open_alone(self: &Arc<Self>, calls: Vec<Call>) -> Result<(), Error> {
        let own = (1..).zip(&calls).filter(|(_, call)| call.function.is_own());
        let own = own.map(|(fid, call)| Instance::new(fid, call));
        *lock(&self.own) = own.collect::<Result<_, _>>()?;
        *lock(&self.calls) = calls;
        self.open()?;
        self.is_connected.store(true, Ordering::Relaxed);
        run_own(self);
        Ok(())
    }

    /// Has another connection ask for it, before it is connected.
    pub(crate) fn ask_by(&self, client: Client) {
        *lock(&self.client) = Ok(client);
    }

    /// Opens it if it waits for nothing any more. Why it failed its program is told when it asks, unless this is `own`.
    pub(crate) fn open_if_it_may(self: &Arc<Self>, own: c_int) -> Result<(), Error> {
        let _opening = lock(&self.opening);
        if !self.may_open() {
            return Ok(());
        }
        let opened = self.open();
        match &opened {
            Ok(()) => run_own(self),
            Err(error) if self.fd != own => *lock(&self.failure) = Some(error.clone()),
            Err(_) => {}
        }
        opened
    }

    fn open(&self) -> Result<(), Error> {
        let calls = lock(&self.calls).clone();
        let stack = self.stack(&calls)?;
        let mut files = lock(&self.files);
        let handed: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
        let opened = self.client()?.open(&self.device, &stack.text, &handed);
        let opened = opened.map_err(|error| of_client(&error, Error::ARGUMENTS))?;
        files.clear();
        let place = |label: &str| opened.component(label).unwrap_or(usize::MAX);
        let functions = (1..).zip(calls).map(|(number, call)| Function {
            place: match call.function.is_own() {
                true => place(OWN),
                false => place(&label(number)),
            },
            call,
            label: label(number),
            waiting: Mutex::default(),
            told: Mutex::new(Instant::now()),
            shown: Mutex::new(Box::new(Shown {
                bytes: Vec::new(),
                results: RawResults::default(),
            })),
        });
        let functions: Vec<Function> = functions.collect();
        let own = core::mem::take(&mut *lock(&self.own));
        let is_buffer = |it: &Function| it.call.function.result == Shape::Packets;
        let keeps = functions.last().is_some_and(is_buffer);
        let open = Open {
            own: (!own.is_empty()).then(|| Chain::new(own, keeps)),
            number: opened.number(),
            is_live: opened.opened().is_live,
            readings: opened.readings(),
            functions,
            passed: place(PASSED),
            since: SystemTime::now(),
            looked: AtomicU64::new(0),
            packets: Mutex::new(Packets::new(opened)),
        };
        let _ = self.open.set(open);
        if self.owns_device {
            let started = self.client()?.start(&self.device);
            started.map_err(|error| of_client(&error, NO_DEVICE))?;
        }
        Ok(())
    }

    fn opened(&self) -> Result<&Open, Error> {
        self.open.get().ok_or_else(|| {
            let waits = match self.is_connected.load(Ordering::Relaxed) {
                true => "the flow waits for others (SYNC)",
                false => "the flow is not connected",
            };
            let failure = lock(&self.failure).clone();
            failure.unwrap_or_else(|| Error::new(NOT_CONNECTED, waits))
        })
    }

    fn function<'a>(&self, open: &'a Open, fid: c_int) -> Result<&'a Function, Error> {
        let at = usize::try_from(fid).ok().and_then(|fid| fid.checked_sub(1));
        let function = at.and_then(|at| open.functions.get(at));
        let unknown = || format!("flow {} has no function {fid}", self.fd);
        function.ok_or_else(|| Error::new(Error::NO_FUNCTION, unknown()))
    }

    /// Whether the sensor is there: looked for as often as [`LOOK`] says, as it takes a system call.
    fn is_served(&self, open: &Open) -> Result<(), Error> {
        let now = open.since.elapsed().unwrap_or_default().as_millis() as u64;
        let last = open.looked.load(Ordering::Relaxed);
        if now.wrapping_sub(last) < LOOK.as_millis() as u64 && last > 0 {
            return Ok(());
        }
        if self.client()?.is_gone() {
            return Err(Error::new(SOCKET, GONE));
        }
        open.looked.store(now.max(1), Ordering::Relaxed);
        Ok(())
    }

    /// Where its numbers are, once it is open.
    pub(crate) fn readings(&self) -> Option<Readings> {
        self.open.get().map(|open| open.readings.clone())
    }

    /// Whether nothing more comes, as far as its sensor has told.
    pub(crate) fn is_over(&self) -> bool {
        let open = self.open.get();
        let last = open.map(|open| open.readings.latest(open.passed));
        let is_done = || {
            let own = open.and_then(|open| open.own.as_ref());
            own.is_none_or(Chain::is_done)
        };
        last.is_some_and(|last| last.is_last || last.has_failed) && is_done()
    }

    /// Whether it has failed in its sensor.
    pub(crate) fn has_failed(&self) -> bool {
        let open = self.open.get();
        open.is_some_and(|open| open.readings.latest(open.passed).has_failed)
    }

    /// What a component has counted, where a sensor elsewhere is asked for it.
    fn new_reading(&self, open: &Open, place: usize) -> Result<Reading, Error> {
        let is_new = Readings::refresh(core::iter::once(&open.readings), ANSWER);
        let reading = self.reading(open, place)?;
        match is_new[..] {
            [true] => Ok(reading),
            _ => Err(Error::new(SOCKET, "the sensor does not answer")),
        }
    }

    /// What a component has counted, as it was told last.
    fn reading(&self, open: &Open, place: usize) -> Result<Reading, Error> {
        self.is_served(open)?;
        let reading = open.readings.latest(place);
        match reading.has_failed {
            true => Err(self
                .results(open)
                .err()
                .unwrap_or_else(|| Error::new(SOCKET, "the flow has failed"))),
            false => Ok(reading),
        }
    }

    /// All results, by a request.
    fn results(&self, open: &Open) -> Result<Results, Error> {
        let results = self.client()?.results(open.number);
        let results = results.map_err(|error| of_client(&error, UNKNOWN_FLOW))?;
        match &results.failure {
            Some(failure) => Err(Error::new(
                SOCKET,
                format!("the flow has failed: {failure}"),
            )),
            None => Ok(results),
        }
    }

    /// The result of a function, as what its sensor told last has it; tables are asked for. Waits for it where MAPI does.
    /// Of a member of a scope no longer than `patience`.
    pub(crate) fn result(&self, fid: c_int, patience: &Patience) -> Result<RawResults, Error> {
        self.read_result(fid, Some(patience))?;
        let function = self.function(self.opened()?, fid)?;
        let shown = lock(&function.shown);
        Ok(shown.results.copy())
    }

    fn read_result(
        &self,
        fid: c_int,
        patience: Option<&Patience>,
    ) -> Result<*mut RawResults, Error> {
        let open = self.opened()?;
        let function = self.function(open, fid)?;
        let call = &function.call;
        let shape = call.function.result;
        has_result(call)?;
        let reading = self.reading(open, function.place)?;
        let value = reading.value.unwrap_or(0);
        let bytes = match shape {
            Shape::Number(bytes) => Some((results::number(value), usize::from(bytes))),
            Shape::File => {
                let count = call.number(2).unwrap_or(0);
                let is_done = reading.is_last || count > 0 && value >= count;
                Some((results::number(if is_done { 0 } else { 11 }), 4))
            }
            _ => None,
        };
        if let (Shape::Own(size), Some(own)) = (shape, &open.own) {
            let bytes = own.result(fid as usize);
            let bytes = bytes.ok_or_else(|| no_result(call))?;
            return Ok(lock(&function.shown).show(&bytes, size, reading.time));
        }
        let mut shown = lock(&function.shown);
        if let Some((bytes, size)) = bytes {
            return Ok(shown.show(&bytes, size, reading.time));
        }
        drop(shown);
        let (bytes, time) = self.table(open, function, patience)?;
        shown = lock(&function.shown);
        let size = bytes.len();
        Ok(shown.show(&bytes, size, time))
    }

    /// The result of a function that is no number, and when it was.
    fn table(
        &self,
        open: &Open,
        function: &Function,
        patience: Option<&Patience>,
    ) -> Result<(Vec<u8>, u64), Error> {
        let (call, name) = (&function.call, function.label.as_str());
        let rows = |results: Results| {
            let mut components = results.components.into_iter();
            let found = components.find(|component| component.component == name);
            (
                found.and_then(|found| found.rows).unwrap_or_default(),
                results.time,
            )
        };
        let taken = || {
            let taken = self.client()?.take(open.number, name);
            taken
                .map(rows)
                .map_err(|error| of_client(&error, UNKNOWN_FLOW))
        };
        match call.function.result {
            Shape::ExpiredFlows => {
                let mut waiting = lock(&function.waiting);
                let (mut rows, time) = match waiting.is_empty() {
                    true => taken()?,
                    false => (Vec::new(), open.readings.latest(function.place).time),
                };
                let rest = rows.split_off(rows.len().min(1));
                waiting.extend(rest);
                let counts = rows.first().map(Row);
                Ok((results::expired(call, counts.as_ref(), &mut waiting), time))
            }
            Shape::Bucket | Shape::Sample | Shape::Threshold => {
                let take = || Ok(taken()?.0.into());
                let (row, time) = self.next_row(open, function, patience, &take)?;
                if let Some(patience) = patience {
                    patience.one_is_there();
                }
                Ok((results::one(call, &Row(&row)), time))
            }
            _ => {
                let (rows, time) = self.results(open).map(rows)?;
                Ok((results::table(call, &rows, time), time))
            }
        }
    }

    /// The next row of a function that its program waits for: of THRESHOLD the last of so many, within so many seconds.
    fn next_row(
        &self,
        open: &Open,
        function: &Function,
        patience: Option<&Patience>,
        take: &dyn Fn() -> Result<Rows, Error>,
    ) -> Result<(Map<String, Value>, u64), Error> {
        let call = &function.call;
        let is_threshold = call.function.result == Shape::Threshold;
        let number = |at: usize| u64::try_from(call.number(at).unwrap_or(0)).unwrap_or(0);
        let (seconds, least) = match is_threshold {
            true => (number(5), number(7).max(1)),
            false => (0, 1),
        };
        let limit = (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds));
        let mut look = FIRST_LOOK;
        while !self.is_closed() {
            let reading = self.new_reading(open, function.place)?;
            let mut waiting = lock(&function.waiting);
            if waiting.is_empty() && reading.rows >= least {
                waiting.extend(take()?);
            }
            let row = match is_threshold {
                true => core::mem::take(&mut *waiting).pop_back(),
                false => waiting.pop_front(),
            };
            drop(waiting);
            if let Some(row) = row {
                self.tell_of_reading(open, function)?;
                return Ok((row, reading.time));
            }
            if reading.is_last || limit.is_some_and(|limit| Instant::now() >= limit) {
                break;
            }
            if patience.is_some_and(Patience::is_over) {
                return Err(Error::new(Error::NO_FUNCTION, "it has no result yet"));
            }
            thread::sleep(look);
            look = (look * 2).min(LAST_LOOK);
        }
        let what = format!("{} has no further result", call.function.name);
        Err(Error::new(Error::NO_FUNCTION, what))
    }

    /// Lets the sensor know now and then that the rows it gave are read: a trace file waits with further ones.
    fn tell_of_reading(&self, open: &Open, function: &Function) -> Result<(), Error> {
        let mut told = lock(&function.told);
        if open.is_live || told.elapsed() < TELL {
            return Ok(());
        }
        *told = Instant::now();
        let told = self.client()?.reads(open.number, &function.label);
        told.map_err(|error| of_client(&error, UNKNOWN_FLOW))
    }

    /// A packet of a `TO_BUFFER`, if one comes within `limit`.
    pub(crate) fn next_within(
        &self,
        fid: c_int,
        limit: Duration,
    ) -> Result<Option<*mut RawPacket>, Error> {
        let open = self.opened()?;
        if let Some(own) = open.own_before(fid) {
            return Ok(own.next(|| false));
        }
        let place = self.function(open, fid)?.place;
        let next = lock(&open.packets).next(place, limit, open.is_live);
        next.inspect_err(|_| open.looked.store(0, Ordering::Relaxed))
    }

    /// When the next packet of a `TO_BUFFER` was captured, if one comes within `limit`, in seconds since 1970 as a fixed point of
    /// 32.32 bits.
    pub(crate) fn time_of_next(&self, fid: c_int, limit: Duration) -> Result<Option<u64>, Error> {
        let open = self.opened()?;
        if let Some(own) = open.own_before(fid) {
            return Ok(own.time_of_next());
        }
        let place = self.function(open, fid)?.place;
        let next = lock(&open.packets).time_of_next(place, limit, open.is_live);
        next.inspect_err(|_| open.looked.store(0, Ordering::Relaxed))
    }

    /// Whether its device is an interface, once it is open.
    pub(crate) fn is_live(&self) -> bool {
        self.open.get().is_some_and(|open| open.is_live)
    }

    /// Has somebody woken who waits for packets of several flows, once it is open.
    pub(crate) fn tell_to(&self, news: &Arc<News>) {
        if let Some(open) = self.open.get() {
            lock(&open.packets).tell_to(news);
        }
    }

    /// Sets how its sensor sends, once it is open.
    pub(crate) fn transfer(&self, transfer: Transfer) -> Result<(), Error> {
        let Some(open) = self.open.get() else {
            return Ok(());
        };
        lock(&open.packets).transfer(transfer.push, transfer.prefetch)
    }

    fn next_packet(&self, fid: c_int) -> Result<Option<*mut RawPacket>, Error> {
        let open = self.opened()?;
        let call = &self.function(open, fid)?.call;
        has_packets(call)?;
        let waits = call.number(0).unwrap_or(0) == 0;
        if let Some(own) = open.own_before(fid) {
            let packet = own.next(|| waits && !self.is_closed());
            if packet.is_none() {
                // Why nothing comes.
                self.reading(open, open.passed)?;
            }
            return Ok(packet);
        }
        let next = |limit| self.next_within(fid, limit);
        if let Some(packet) = next(Duration::ZERO)? {
            return Ok(Some(packet));
        }
        while !self.is_closed() {
            // What came before the end is taken.
            let is_last = self.reading(open, open.passed)?.is_last;
            let limit = if waits { LAST_LOOK } else { Duration::ZERO };
            if let Some(packet) = next(limit)? {
                return Ok(Some(packet));
            }
            if !waits || is_last {
                break;
            }
        }
        Ok(None)
    }

    fn process_own(&self, open: &Open, own: &Chain) -> Result<(), Error> {
        let place = open.functions.iter().find(|it| it.call.function.is_own());
        let place = place.map_or(usize::MAX, |it| it.place);
        while !self.is_closed() {
            // What came before the end is taken.
            let is_last = self.reading(open, open.passed)?.is_last;
            let mut packets = lock(&open.packets);
            let Some(packet) = packets.next(place, LAST_LOOK, open.is_live)? else {
                if is_last {
                    break;
                }
                continue;
            };
            // SAFETY: the packet stays until the next is taken, which nobody does meanwhile.
            let passed = unsafe { own.process(packet) };
            drop(packets);
            if let Some(record) = passed {
                own.keep(record, open.is_live, || !self.is_closed());
            }
        }
        Ok(())
    }
}

impl Descriptor for Flow {
    fn fd(&self) -> c_int {
        self.fd
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn device_id(&self) -> c_int {
        self.device_id
    }

    fn apply(&self, name: &str, arguments: Arguments<'_>) -> Result<c_int, Error> {
        if self.was_connected() {
            return Err(too_late());
        }
        self.add(call(name, arguments)?)
    }

    /// What this machine's sensor has is always there.
    fn set(&self, _: Setting) -> Result<(), Error> {
        Ok(())
    }

    fn functions(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }

    /// Begins it, and others that wait for it.
    fn connect(&self) -> Result<(), Error> {
        if self.is_connected.swap(true, Ordering::Relaxed) {
            return Err(connected_twice());
        }
        let opened = open_waiting(self.fd);
        if opened.is_err() {
            self.is_connected.store(false, Ordering::Relaxed);
        }
        opened
    }

    fn was_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    fn is_connected(&self) -> Result<(), Error> {
        self.opened().map(drop)
    }

    fn read(&self, fid: c_int) -> Result<*mut RawResults, Error> {
        self.read_result(fid, None)
    }

    fn generation(&self, _: c_int, member: usize) -> Option<u32> {
        (member == 0).then_some(1)
    }

    fn next(&self, fid: c_int) -> Result<Option<*mut RawPacket>, Error> {
        self.next_packet(fid)
    }

    fn passed(&self, fid: usize) -> Result<(u64, u64), Error> {
        let Some(open) = self.open.get() else {
            return Ok((0, 0));
        };
        if let Some(counts) = open.own.as_ref().and_then(|own| own.counts(fid)) {
            return Ok(counts);
        }
        let items = |at: usize| {
            let place = open
                .functions
                .get(at)
                .map_or(open.passed, |function| function.place);
            self.reading(open, place).map(|reading| reading.items)
        };
        Ok((items(fid - 1)?, items(fid)?))
    }

    fn status(&self) -> Result<Status, Error> {
        let Some(open) = self.open.get() else {
            return Ok(Status::Init);
        };
        let is_last = self.reading(open, open.passed)?.is_last;
        Ok(
            match is_last && open.own.as_ref().is_none_or(Chain::is_done) {
                true => Status::Finished,
                false => Status::Active,
            },
        )
    }

    fn since(&self) -> u64 {
        self.open.get().map_or(0, |open| seconds(open.since))
    }

    fn until(&self) -> u64 {
        let open = self.open.get();
        let last = open.map(|open| open.readings.latest(open.passed));
        let last = last.filter(|reading| reading.is_last);
        last.map_or(0, |reading| reading.time / 1_000_000_000)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn close(&self) -> Result<(), Error> {
        self.is_closed.store(true, Ordering::Relaxed);
        if let Some(open) = self.open.get() {
            if let Some(own) = &open.own {
                own.finish();
            }
            let closed = self.client()?.close(open.number);
            closed.map_err(|error| of_client(&error, UNKNOWN_FLOW))?;
        }
        if self.owns_device {
            let deleted = self.client()?.delete_device(&self.device);
            deleted.map_err(|error| of_client(&error, NO_DEVICE))?;
        }
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.client().is_ok_and(|client| client.is_gone())
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn size(&self) -> usize {
        1
    }

    fn member(&self, at: usize) -> Option<MemberInfo> {
        let is_gone = self.is_gone();
        (at == 0).then(|| MemberInfo {
            name: self.device.clone(),
            state: u32::from(is_gone),
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(self.since()),
            generation: 1,
            reason: if is_gone { GONE } else { "" }.to_owned(),
        })
    }
}

pub(crate) fn no_result(call: &Call) -> Error {
    let what = format!("{} has no result that is read", call.function.name);
    Error::new(Error::NO_FUNCTION, what)
}

/// Has a thread run the functions of a flow that run in this process, until the trace has ended or the flow is closed.
fn run_own(flow: &Arc<Flow>) {
    let Some(open) = flow.open.get().filter(|open| open.own.is_some()) else {
        return;
    };
    let its = Arc::clone(flow);
    let run = move || {
        let Some((open, own)) = its
            .open
            .get()
            .and_then(|open| Some((open, open.own.as_ref()?)))
        else {
            return;
        };
        let _ = its.process_own(open, own);
        own.end();
    };
    let started = thread::Builder::new()
        .name(own::THREAD.to_owned())
        .spawn(run);
    if let (Err(error), Some(own)) = (started, &open.own) {
        let what = format!("no thread can be started for the program's functions: {error}");
        *lock(&flow.failure) = Some(Error::new(NOT_BUILT, what));
        own.end();
    }
}

/// Whether a function can stand behind others, as far as those of the program are concerned.
pub(crate) fn may_follow(calls: &[Call], call: &Call) -> Result<(), Error> {
    let is_buffer = |call: &Call| call.function.result == Shape::Packets;
    let behind = calls.iter().skip_while(|call| !call.function.is_own());
    let name = call.function.name;
    let what = match behind.into_iter().any(is_buffer) {
        true if is_buffer(call) => "one TO_BUFFER follows functions that run in the program".into(),
        true if call.function.is_own() => format!("{name} cannot follow the TO_BUFFER"),
        _ => return Ok(()),
    };
    Err(Error::new(Error::ARGUMENTS, what))
}

/// Whether the flows that a function of this one names are there.
pub(crate) fn knows_flows(call: &Call, own: c_int) -> Result<(), Error> {
    let is_known = |fd: Option<c_int>| fd.is_some_and(|fd| fd == own || session::flow(fd).is_ok());
    match sync(call).into_iter().all(is_known) {
        true => Ok(()),
        false => Err(Error::new(7001, "SYNC: is not a list of flows, as 1,2")),
    }
}

/// Whether all other flows that these functions name are connected.
pub(crate) fn awaits_nobody(calls: &[Call], own: c_int) -> bool {
    let awaited = calls.iter().flat_map(sync).flatten();
    let mut awaited = awaited.filter(|fd| *fd != own);
    awaited.all(|fd| session::flow(fd).is_ok_and(|flow| flow.was_connected()))
}

/// The flows that a function waits for; `None` among them where its list is none.
fn sync(call: &Call) -> Vec<Option<c_int>> {
    let list = match call.function.name {
        "SYNC" => call.text(0).unwrap_or_default(),
        _ => return Vec::new(),
    };
    let flows = list.split(',').map(|entry| {
        let flow = entry.split_once('@').map_or(entry, |(_, flow)| flow);
        flow.trim().parse().ok()
    });
    flows.collect()
}
