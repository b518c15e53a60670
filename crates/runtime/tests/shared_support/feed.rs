//! A sensor on a thread, whose packets come portion by portion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use flowgauge_capture::{Error as CaptureError, Interface, PacketSource};
use flowgauge_runtime::shared::{
    self, Application, Client, Error, ServiceProgram, SharedCapture, Status,
};
use flowgauge_sensor::{Alone, Sensor};
use flowgauge_sys::process;
use flowgauge_wire::{BATCH_SIZE, Batch, Ledger, LinkType, Nanos};

use super::{LIMIT, Portion};

/// A source that gives what it is sent, and ticks in between.
pub(crate) struct Feed {
    /// None after an error.
    portions: Option<Receiver<Result<Portion, CaptureError>>>,
    current: Option<Portion>,
    /// Packets of it that were given.
    given: usize,
    interfaces: Vec<Interface>,
    ledger: Ledger,
    clock: Nanos,
}

impl PacketSource for Feed {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, CaptureError> {
        let Some(portions) = &self.portions else {
            return Ok(None);
        };
        if self
            .current
            .as_ref()
            .is_some_and(|it| it.packets.len() > self.given)
        {
            return Ok(Some(self.next()));
        }
        match portions.recv_timeout(Duration::from_millis(1)) {
            Ok(Err(error)) => {
                self.portions = None;
                Err(error)
            }
            Ok(Ok(portion)) => {
                (self.current, self.given) = (Some(portion), 0);
                Ok(Some(self.next()))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Some(Batch {
                memory: &[],
                packets: &[],
                now: Some(self.clock),
            })),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn ledger(&mut self) -> Ledger {
        self.ledger.clone()
    }
}

impl Feed {
    /// As many packets of the portion at hand as a batch has.
    fn next(&mut self) -> Batch<'_> {
        let portion = self.current.as_ref().unwrap();
        let rest = &portion.packets[self.given..];
        let packets = &rest[..rest.len().min(BATCH_SIZE)];
        for packet in packets {
            self.ledger.take(1, u64::from(packet.wire_len));
            self.clock = self.clock.max(packet.time);
        }
        self.given += packets.len();
        Batch::new(&portion.memory, packets)
    }
}

/// How long a sensor stays when the last client has gone, and bytes of chunks that may wait for all of them.
pub(crate) struct ServiceConfig {
    pub(crate) grace: Option<Duration>,
    pub(crate) pool_bytes: u64,
}

/// A service on a thread.
pub(crate) struct Shared {
    pub(crate) interface: String,
    pub(crate) feed: Option<SyncSender<Result<Portion, CaptureError>>>,
    pub(crate) thread: JoinHandle<Ledger>,
}

impl Shared {
    pub(crate) fn start() -> Shared {
        Shared::start_with(ServiceConfig {
            grace: None,
            pool_bytes: 2 << 30,
        })
    }

    pub(crate) fn start_with(config: ServiceConfig) -> Shared {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let interface = format!("fg{}-{number}", std::process::id());
        let listener = Arc::new(shared::listen(&interface).unwrap());
        // Room for one: who has sent two knows that the first is on its way through the engine.
        let (feed, portions) = mpsc::sync_channel(1);
        let source = Feed {
            portions: Some(portions),
            current: None,
            given: 0,
            interfaces: vec![Interface {
                link: LinkType::ETHERNET,
                ..Interface::default()
            }],
            ledger: Ledger::default(),
            clock: Nanos::ZERO,
        };
        let alone = Alone {
            source: Some(Box::new(source)),
            listener,
            group: None,
            grace: config.grace,
            memory: config.pool_bytes,
        };
        let sensor = Sensor::share(&interface, alone, Arc::default()).unwrap();
        let thread = std::thread::spawn(move || Arc::new(sensor).run(|_| {}));
        Shared {
            interface,
            feed: Some(feed),
            thread,
        }
    }

    pub(crate) fn connect(&self, application: &Application) -> Result<Client, Error> {
        Client::connect(&self.interface, application, &ServiceProgram::None)
    }

    pub(crate) fn join(&self, application: &Application) -> Client {
        self.connect(application).unwrap()
    }

    pub(crate) fn feed(&self, portions: &[Portion]) {
        for portion in portions {
            let feed = self.feed.as_ref().unwrap();
            feed.send(Ok(portion.clone())).unwrap();
        }
    }

    /// Feeds, and waits until the service has processed it.
    pub(crate) fn feed_one(&self, portion: &Portion) {
        let nothing = Portion {
            memory: Vec::new(),
            packets: Vec::new(),
        };
        // There is room for one: who can send the third knows that the first is done with.
        self.feed(&[portion.clone(), nothing.clone(), nothing]);
    }

    /// Feeds, and waits until the service has counted so many packets.
    pub(crate) fn feed_through(&self, portions: &[Portion], packets: u64) {
        self.feed(portions);
        self.wait_until("the packets are through", |status| {
            status.ledger.received() >= packets
        });
    }

    pub(crate) fn status(&self) -> Status {
        let capture = SharedCapture {
            interface: self.interface.clone(),
            user: process::user(),
        };
        capture.status().unwrap()
    }

    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn(&Status) -> bool) -> Status {
        let started = std::time::Instant::now();
        loop {
            let status = self.status();
            if condition(&status) {
                return status;
            }
            assert!(started.elapsed() < LIMIT, "{what}: {status:?}");
        }
    }

    /// The input is over.
    pub(crate) fn end(&mut self) {
        self.feed = None;
    }

    pub(crate) fn ledger(mut self) -> Ledger {
        self.end();
        let ledger = self.thread.join().unwrap();
        assert!(ledger.is_balanced(), "{ledger:?}");
        ledger
    }
}

pub(crate) fn everything() -> Application {
    Application {
        memory_bytes: 64 << 20,
        ..Application::default()
    }
}
