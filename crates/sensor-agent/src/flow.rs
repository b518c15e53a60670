//! A flow of a user elsewhere: what of it was sent.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flowgauge_link::{Error, MessageSender};
use flowgauge_sensor_client::remote::message::{Page, Said, changes};
use flowgauge_sensor_client::{Flow, Readings};
use flowgauge_sys::shared::COUNTERS;
use parking_lot::{Condvar, Mutex};

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
        let (mut sent, mut out) = (0, Out::default());
        while self.wait_for_credit(sent) {
            // In this order: what came before the end is sent.
            let reading = self.readings.read(0);
            let mut limit = LOOK;
            while let Some(batch) = flow.next_batch(limit).ok()? {
                if out.component != batch.component {
                    sent += out.send(self.number, sender)?;
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
                sent += out.send(self.number, sender)?;
            } else if reading.is_last || reading.has_failed || !flow.has_packets() {
                // The numbers of the end first: who sees that no packets come looks at them.
                self.send_numbers(0, sender).ok()?;
                return out.send_always(self.number, sender).map(drop);
            }
        }
        Some(())
    }

    /// Waits until more may be sent. Whether that is so: else the flow is over.
    fn wait_for_credit(&self, sent: u64) -> bool {
        let mut packets = self.packets.lock();
        while !packets.is_over && packets.allowed <= sent {
            self.changed.wait(&mut packets);
        }
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
#[derive(Default)]
struct Out {
    component: usize,
    count: u64,
    records: Vec<u8>,
}

impl Out {
    /// Sends them, if there are any. Returns their bytes.
    fn send(&mut self, flow: u64, sender: &MessageSender) -> Option<u64> {
        match self.count {
            0 => Some(0),
            _ => self.send_always(flow, sender),
        }
    }

    fn send_always(&mut self, flow: u64, sender: &MessageSender) -> Option<u64> {
        let head = Said::Packets {
            flow,
            component: self.component as u64,
            count: core::mem::take(&mut self.count),
            records: &[],
        };
        sender.send(&[&head.head(), &self.records]).ok()?;
        let bytes = self.records.len() as u64;
        self.records.clear();
        Some(bytes)
    }
}
