//! A flow of a user elsewhere: what of it was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_link::{Error, MessageSender};
use flowgauge_sensor_client::remote::message::{Page, Said, changes};
use flowgauge_sensor_client::{Flow, Readings};
use flowgauge_sys::shared::COUNTERS;
use parking_lot::{Condvar, Mutex};

use crate::packing::Packing;

/// Packets that are there go out together, up to so many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// How often it is looked whether packets are still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// A flow, and how far its user was told of it.
pub(crate) struct Sent {
    number: u64,
    readings: Readings,
    /// The numbers sent last.
    page: Mutex<Page>,
    packets: Mutex<Packets>,
    changed: Condvar,
    /// The user was told that no more comes.
    has_ended: AtomicBool,
}

/// Of its packets.
struct Packets {
    /// The flow until packets are asked for; then a thread has it.
    flow: Option<Flow>,
    /// Bytes that may have been sent in all.
    allowed: u64,
    is_over: bool,
}

impl Sent {
    pub(crate) fn new(flow: Flow) -> Sent {
        Sent {
            number: flow.number(),
            readings: flow.readings(),
            page: Mutex::new([0; COUNTERS]),
            packets: Mutex::new(Packets {
                flow: Some(flow),
                allowed: 0,
                is_over: false,
            }),
            changed: Condvar::new(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Tells once that no more comes: at the end of the sensor its user has a moment for last results.
    pub(crate) fn tell_end(&self, sender: &MessageSender) -> Result<(), Error> {
        let reading = self.readings.read(0);
        let is_new = reading.is_last && !self.has_ended.swap(true, Ordering::Relaxed);
        match is_new {
            true => self.send_numbers(0, sender),
            false => Ok(()),
        }
    }

    /// Sends what changed of its numbers.
    pub(crate) fn send_numbers(&self, id: u64, sender: &MessageSender) -> Result<(), Error> {
        let mut bytes = Vec::new();
        // What goes out later is what changed since this.
        let mut before = self.page.lock();
        let now = self.readings.page();
        changes(&before, &now, &mut bytes);
        *before = now;
        let head = Said::Numbers {
            id,
            flow: self.number,
            changes: &[],
        };
        sender.send(&[&head.head(), &bytes])
    }

    /// Has packets sent, up to so many bytes in all.
    pub(crate) fn allow(self: &Arc<Self>, bytes: u64, sender: &MessageSender) {
        let mut packets = self.packets.lock();
        packets.allowed = packets.allowed.max(bytes);
        self.changed.notify_all();
        let Some(flow) = packets.flow.take() else {
            return;
        };
        drop(packets);
        let (sent, sender) = (Arc::clone(self), sender.clone());
        let thread = thread::Builder::new().name("agent-packets".to_owned());
        let closing = sender.clone();
        let thread = thread.spawn(move || {
            // Who is not told of packets any more is told nothing at all: it would wait for ever.
            if sent.send_packets(flow, &sender).is_none() {
                sender.close();
            }
        });
        if thread.is_err() {
            closing.close();
        }
    }

    /// Sends packets until there are no more, or nobody wants them. `None`: neither can be told.
    fn send_packets(&self, mut flow: Flow, sender: &MessageSender) -> Option<()> {
        let (mut sent, mut out) = (0, Out::new(self.number, sender));
        while self.wait_for_credit(sent, &mut out.packing) {
            // In this order: what came before the end is sent.
            let reading = self.readings.read(0);
            let mut limit = LOOK;
            while let Some(batch) = flow.next_batch(limit).ok()? {
                if out.component != batch.component {
                    sent += out.send()?;
                    out.component = batch.component;
                }
                out.count += u64::from(batch.count);
                out.records.extend_from_slice(batch.records);
                if out.records.len() >= BATCH_BYTES {
                    break;
                }
                limit = Duration::ZERO;
            }
            if out.count > 0 {
                sent += out.send()?;
            } else if reading.is_last || reading.has_failed || !flow.has_packets() {
                // The numbers of the end first: who sees that no packets come looks at them.
                self.send_numbers(0, sender).ok()?;
                return out.send_always().map(drop);
            }
        }
        Some(())
    }

    /// Waits until more may be sent. Whether that is so: else the flow is over.
    fn wait_for_credit(&self, sent: u64, packing: &mut Packing) -> bool {
        let begun = Instant::now();
        let mut packets = self.packets.lock();
        while !packets.is_over && packets.allowed <= sent {
            self.changed.wait(&mut packets);
        }
        packing.waited(begun.elapsed());
        packing.granted(packets.allowed, Instant::now());
        !packets.is_over
    }

    /// Nothing more of it is wanted.
    pub(crate) fn end(&self) {
        let mut packets = self.packets.lock();
        packets.is_over = true;
        packets.flow = None;
        self.changed.notify_all();
    }
}

/// Packets of a component that go out together.
struct Out<'a> {
    flow: u64,
    sender: &'a MessageSender,
    component: usize,
    count: u64,
    records: Vec<u8>,
    packing: Packing,
}

impl Out<'_> {
    fn new(flow: u64, sender: &MessageSender) -> Out<'_> {
        Out {
            flow,
            sender,
            component: 0,
            count: 0,
            records: Vec::new(),
            packing: Packing::new(Instant::now()),
        }
    }

    /// Sends them, if there are any. Returns their bytes.
    fn send(&mut self) -> Option<u64> {
        match self.count {
            0 => Some(0),
            _ => self.send_always(),
        }
    }

    fn send_always(&mut self) -> Option<u64> {
        let (flow, component) = (self.flow, self.component as u64);
        let count = core::mem::take(&mut self.count);
        let bytes = self.records.len() as u64;
        let packed = self.packing.pack(&self.records).ok()?;
        let head = match packed {
            Some(_) => Said::Packed {
                flow,
                component,
                count,
                bytes,
                packed: &[],
            },
            None => Said::Packets {
                flow,
                component,
                count,
                records: &[],
            },
        };
        let begun = Instant::now();
        let body = packed.unwrap_or(&self.records);
        self.sender.send(&[&head.head(), body]).ok()?;
        self.packing.waited(begun.elapsed());
        self.records.clear();
        Some(bytes)
    }
}
