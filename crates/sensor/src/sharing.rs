//! Programs with libscap on the interfaces of a sensor: streams of a device's packets, in memory shared with them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_runtime::shared::{Program, Said, say_last};
use flowgauge_sensor_client::programs::{Capture, OpenedCapture};
use flowgauge_sensor_client::protocol::{MOST_REQUEST, PART_BYTES, Parts, Refusal, Request};
use flowgauge_sys::local::{self, Connection};
use flowgauge_sys::process;
use parking_lot::Mutex;

use crate::accounts::Account;
use crate::device::Device;
use crate::granted::Granted;
use crate::sensor::{Asker, Flow, Sensor, What};

/// How often it is looked whether the sensor ends.
const LOOK: Duration = Duration::from_millis(100);
/// How long a program that is to end may take to read what is left.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Messages of a program that are heard before others have their turn.
const MOST_HEARD: usize = 64;

/// Who shares the streams of a device, and what they get.
#[derive(Clone)]
pub(crate) struct Sharing {
    pub(crate) interface: String,
    /// Bytes of chunks that wait for all of them.
    pub(crate) memory: u64,
    /// Whether users other than the sensor's may be among them.
    pub(crate) for_many: bool,
    /// How long the device stays when the last one has gone; without, as long as it is wanted.
    pub(crate) grace: Option<Duration>,
}

/// A program that captures.
pub(crate) struct Capturing {
    number: u64,
    account: Arc<Account>,
    device: Arc<Device>,
    connection: Arc<Connection>,
    /// What it was heard to say so far of a request that has several parts.
    heard: Mutex<Parts>,
    /// Since when it is to end.
    ends: OnceLock<Instant>,
}

impl Capturing {
    /// Hears what the program has said by now, and has the device do it. Whether it is still there.
    fn hear(&self, sensor: &Sensor) -> bool {
        let parts = &mut *self.heard.lock();
        let mut part = vec![0; PART_BYTES + 1];
        for _ in 0..MOST_HEARD {
            let len = match self.connection.receive(&mut part) {
                Ok(len) => len,
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            };
            let said = match request(&part[..len], Vec::new(), parts, MOST_REQUEST) {
                Ok(None) => continue,
                Ok(Some((request, _))) => self.said(sensor, request),
                Err(_) => None,
            };
            let Some(said) = said else {
                say_last(&self.connection, "not understood");
                return false;
            };
            self.device.hear(self.account.who(), self.number, said);
        }
        true
    }

    /// Waits until what the program has said by now is done, or it is late.
    pub(crate) fn settle(&self, until: Instant) {
        const NAP: Duration = Duration::from_millis(1);
        let waits = || match self.heard.try_lock() {
            Some(_heard) => self.connection.wait(Some(Duration::ZERO)).unwrap_or(false),
            None => true,
        };
        while waits() && Instant::now() < until {
            thread::sleep(NAP);
        }
    }

    /// What a request is for the device; none where it is not one of a program that captures.
    fn said(&self, sensor: &Sensor, request: Request) -> Option<Said> {
        let links = &self.device.links;
        match request {
            // Its filters are compiled as those of flows.
            Request::Change { .. } => {
                let made = sensor.in_turn(&self.account, || Ok(Said::of(request, links)));
                made.unwrap_or(Some(Said::Refused))
            }
            request => Said::of(request, links),
        }
    }

    /// Ends its streams, and tells the program why.
    pub(crate) fn end(&self, why: &str) {
        self.ends.get_or_init(Instant::now);
        self.device.end_program(self.number, why);
    }

    /// Hears the program until it has gone, or the sensor has ended.
    pub(crate) fn serve(&self, sensor: &Sensor, process: u32) {
        // Whose process has ended is gone, even where a child of it has the connection, too.
        let process = process::watch(process);
        let files: Vec<_> = core::iter::once(self.connection.as_fd())
            .chain(process.iter().map(|it| it.as_fd()))
            .collect();
        let is_late = || self.ends.get().is_some_and(|it| it.elapsed() > LAST_WORDS);
        while !sensor.has_ended() && !is_late() {
            let Ok(ready) = local::wait_any(&files, Some(LOOK)) else {
                break;
            };
            // What it said last counts.
            let stays = ready.first() != Some(&true) || self.hear(sensor);
            if !stays || ready.get(1) == Some(&true) {
                break;
            }
        }
        if self.ends.get().is_some() {
            // It is no flow of its connection any more.
            let who = self.account.who();
            self.device.close(Some(who), vec![self.number]);
        }
    }
}

/// A request of at most so many bytes, with descriptors, as far as it is there with this part.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn request(
    part: &[u8],
    files: Vec<OwnedFd>,
    parts: &mut Parts,
    most: usize,
) -> Result<Option<(Request, Vec<OwnedFd>)>, String> {
    let decoded = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|error| error.to_string());
    if !matches!(part, [b'+' | b'.', ..]) {
        return Ok(Some((decoded(part)?, files)));
    }
    match parts.add(part, files, most) {
        Ok(Some((whole, files))) => Ok(Some((decoded(&whole)?, files))),
        Ok(None) => Ok(None),
        Err(_) => Err(format!("it has more than {most} bytes")),
    }
}

impl Sensor {
    /// A program joins the capture of an interface. Returns what is answered, and who is to be heard from then on.
    ///
    /// # Errors
    /// Why it may not, or cannot.
    pub(crate) fn capture(
        &self,
        asker: &Asker,
        rights: &Granted,
        asked: Capture,
        connection: &Arc<Connection>,
    ) -> Result<(OpenedCapture, Vec<OwnedFd>, Arc<Capturing>), Refusal> {
        if asker.remote.is_some() {
            return Err(Refusal::new(
                "streams are shared with programs of this machine only",
            ));
        }
        let (name, device) = self.capturing(&asked.interface)?;
        rights.may_share(&name)?;
        let number = self.next_flow();
        let account = self.account(asker, rights);
        let who = asker.who();
        let program = self.in_turn(&account, || {
            let asks = (who.0, asker.peer.process);
            Program::new(asked, &device.links, connection, asks).map_err(Refusal::new)
        })?;
        let capturing = Arc::new(Capturing {
            number,
            account: Arc::clone(&account),
            device: Arc::clone(&device),
            connection: Arc::clone(connection),
            heard: Mutex::default(),
            ends: OnceLock::new(),
        });
        let flow = Flow {
            device: name,
            by: asker.clone(),
            account,
            is_timed: rights.policy.is_timed(),
            what: What::Streams(Arc::clone(&capturing)),
        };
        self.insert(number, flow, rights)?;
        let opened = device.join(&capturing.account, number, program);
        let (opened, files) = opened.map_err(|error| {
            self.remove(number);
            Refusal::new(error)
        })?;
        if !self.has_flow(number) {
            // The configuration was taken anew meanwhile.
            device.close(None, vec![number]);
            return Err(Refusal::new("it is not allowed any more"));
        }
        Ok((opened, files, capturing))
    }
}
