//! The end that sends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowgauge_link::{Arrived, Carriage, Carrier, Error};
use flowgauge_sys::own::Own;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};

use crate::cluster::{Cluster, Watch};
use crate::message::{Form, Frame, Message, texts};

/// Bytes that are with librdkafka at once, beside those in the spool.
const MOST_UNDER_WAY: usize = 16 << 20;
/// No frame is longer.
const MOST_MESSAGE: usize = 64 << 20;
/// Who asks for what arrived has other things to do after that.
const CONNECT: Duration = Duration::from_secs(10);

/// How many items there were of each partition, lost ones counted.
#[derive(Debug)]
pub struct Totals(Vec<AtomicU64>);

impl Totals {
    /// Of so many partitions.
    pub fn new(partitions: u32) -> Totals {
        Totals((0..partitions).map(|_| AtomicU64::new(0)).collect())
    }

    /// There are `count` more of a partition; returns the number of the first.
    pub fn add(&self, partition: u32, count: u32) -> u64 {
        let total = self.0.get(partition as usize);
        total.map_or(0, |total| {
            total.fetch_add(u64::from(count), Ordering::Relaxed)
        })
    }
}

/// Carries [frames](Frame) to partitions of a topic, each once: its producer is idempotent, and what it cannot know it sends
/// again, for those who take it to recognise.
#[derive(Debug)]
pub struct Producer {
    cluster: Cluster,
    form: Form,
    totals: Arc<Totals>,
}

impl Producer {
    /// To a topic with as many partitions as `totals` has.
    pub fn new(cluster: Cluster, form: Form, totals: Arc<Totals>) -> Producer {
        Producer {
            cluster,
            form,
            totals,
        }
    }

    /// Asks how many partitions a topic has, for at most `wait`.
    ///
    /// # Errors
    /// No broker says so, or there is no such topic.
    pub fn partitions(cluster: &Cluster, wait: Duration) -> Result<u32, Error> {
        Ok(connect(cluster, wait)?.1)
    }
}

fn connect(
    cluster: &Cluster,
    wait: Duration,
) -> Result<(BaseProducer<Reports>, u32, Vec<Own>), Error> {
    let mut config = cluster.config();
    config.set("enable.idempotence", "true");
    config.set("compression.type", "lz4");
    config.set("linger.ms", "5");
    // Bytes are bounded.
    config.set("queue.buffering.max.messages", "10000000");
    config.set("message.max.bytes", MOST_MESSAGE.to_string());
    config.set(
        "queue.buffering.max.kbytes",
        (MOST_MESSAGE >> 9).to_string(),
    );
    // Who is away may come back; the spool says for how long there is room.
    config.set("message.timeout.ms", "0");
    let made = config.create_with_context(Reports::default());
    let producer: BaseProducer<Reports> =
        made.map_err(|error| cluster.error(error.to_string(), "check the options", true))?;
    let client = producer.client();
    let look = || producer.poll(Duration::ZERO);
    let (partitions, own) = cluster.partitions(client, (&client.context().watch, &look), wait)?;
    Ok((producer, partitions, own))
}

impl Carrier for Producer {
    fn name(&self) -> &str {
        "kafka"
    }

    fn connect(&self, session: [u8; 16], is_left: bool) -> Result<Box<dyn Carriage>, Error> {
        let cluster = &self.cluster;
        let (producer, partitions, own) = connect(cluster, CONNECT)?;
        let expected = self.totals.0.len();
        if (partitions as usize) < expected {
            let reason = format!("the topic has {partitions} partitions, not {expected}");
            return Err(cluster.error(reason, "set partitions to the topic's number", true));
        }
        Ok(Box::new(UnderWay {
            cluster: cluster.clone(),
            form: self.form,
            producer,
            session,
            totals: (!is_left).then(|| self.totals.clone()),
            seen: BTreeMap::new(),
            waiting: VecDeque::new(),
            first: 0,
            bytes: 0,
            arrived: Arrived::default(),
            _own: own,
        }))
    }
}

/// What came of messages, by their numbers.
#[derive(Debug, Default)]
struct Reports {
    watch: Watch,
    done: Mutex<Vec<(usize, KafkaResult<()>)>>,
}

impl ClientContext for Reports {
    fn error(&self, error: KafkaError, reason: &str) {
        self.watch.note(error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let result = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.clone()),
        };
        self.done.lock().push((number, result));
    }
}

/// Messages that librdkafka has.
struct UnderWay {
    cluster: Cluster,
    form: Form,
    producer: BaseProducer<Reports>,
    session: [u8; 16],
    /// `None`: an earlier process had them.
    totals: Option<Arc<Totals>>,
    /// Totals of the partitions that something was sent to.
    seen: BTreeMap<u32, u64>,
    waiting: VecDeque<Waiting>,
    /// The number of the first that waits.
    first: usize,
    bytes: usize,
    arrived: Arrived,
    _own: Vec<Own>,
}

/// A message that was not reported yet, or others before it.
struct Waiting {
    /// Number of the item behind it; 0: it has none.
    end: u64,
    items: u32,
    bytes: usize,
    is_done: bool,
}

impl UnderWay {
    /// Sessions of partitions are numbered for themselves: so a session and a number say which item it is.
    fn session_in(&self, partition: u32) -> [u8; 16] {
        let mut session = self.session;
        for (byte, of_partition) in session.iter_mut().zip(partition.to_le_bytes()) {
            *byte ^= of_partition;
        }
        session
    }

    fn give(&mut self, partition: u32, message: &Message<'_>, end: u64) -> Result<(), Error> {
        let items = message.count.unwrap_or(0);
        self.put(partition, &message.encode(), None, (items, end))
    }

    /// A message for each item, which says with headers which one it is.
    fn give_texts(&mut self, frame: &Frame<'_>, end: u64) -> Result<(), Error> {
        let session = self.session_in(frame.partition);
        let session: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
        for (place, text) in (0..).zip(texts(frame.items)) {
            let number = (frame.first + place).to_string();
            let header = |key, value| Header { key, value };
            let headers = OwnedHeaders::new()
                .insert(header("session", Some(&session)))
                .insert(header("number", Some(&number)));
            let is_last = place + 1 == u64::from(frame.count);
            let end = if is_last { end } else { 0 };
            self.put(frame.partition, text, Some(headers), (1, end))?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        partition: u32,
        payload: &[u8],
        headers: Option<OwnedHeaders>,
        (items, end): (u32, u64),
    ) -> Result<(), Error> {
        let number = self.first + self.waiting.len();
        let mut record = BaseRecord::<(), [u8], usize>::with_opaque_to(&self.cluster.topic, number)
            .partition(partition as i32)
            .payload(payload);
        record.headers = headers;
        let sent = self.producer.send(record);
        sent.map_err(|(error, _)| self.cluster.explained(&error, ""))?;
        self.bytes += payload.len();
        self.waiting.push_back(Waiting {
            end,
            items,
            bytes: payload.len(),
            is_done: false,
        });
        Ok(())
    }
}

impl Carriage for UnderWay {
    fn has_room(&self) -> bool {
        self.bytes < MOST_UNDER_WAY
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn send(&mut self, frame: &[u8], end: u64) -> Result<(), Error> {
        let Some(frame) = Frame::decode(frame) else {
            return Err(self.cluster.error("a damaged frame", "", false));
        };
        let total = self.seen.entry(frame.partition).or_default();
        *total = (*total).max(frame.first + u64::from(frame.count));
        if self.form == Form::Texts {
            return self.give_texts(&frame, end);
        }
        let message = Message {
            session: self.session_in(frame.partition),
            first: frame.first,
            count: Some(frame.count),
            items: frame.items,
        };
        self.give(frame.partition, &message, end)
    }

    fn end(&mut self) -> Result<(), Error> {
        let mut totals = core::mem::take(&mut self.seen);
        if self.form == Form::Texts {
            return Ok(());
        }
        for (partition, total) in (0..).zip(self.totals.iter().flat_map(|totals| &totals.0)) {
            let total = total.load(Ordering::Relaxed);
            if total > 0 {
                totals.insert(partition, total);
            }
        }
        for (partition, first) in totals {
            let message = Message {
                session: self.session_in(partition),
                first,
                count: None,
                items: &[],
            };
            self.give(partition, &message, 0)?;
        }
        Ok(())
    }

    fn arrived(&mut self, wait: Duration) -> Result<Arrived, Error> {
        self.producer.poll(wait);
        let client = self.producer.client();
        let done = core::mem::take(&mut *client.context().done.lock());
        for (number, result) in done {
            let waiting = number.checked_sub(self.first);
            let Some(waiting) = waiting.and_then(|place| self.waiting.get_mut(place)) else {
                continue;
            };
            match result {
                Ok(()) => client.context().watch.is_over(),
                // It would be refused again.
                Err(error) if error.rdkafka_error_code() == Some(Code::MessageSizeTooLarge) => {
                    self.arrived.refused += u64::from(waiting.items);
                }
                Err(error) => return Err(self.cluster.explained(&error, "")),
            }
            waiting.is_done = true;
        }
        while let Some(first) = self.waiting.pop_front_if(|first| first.is_done) {
            self.first += 1;
            self.bytes -= first.bytes;
            self.arrived.before = self.arrived.before.max(first.end);
        }
        let arrived = self.arrived;
        self.arrived.refused = 0;
        Ok(arrived)
    }

    fn trouble(&self) -> Option<Error> {
        let context = self.producer.client().context();
        context.watch.trouble(&self.cluster)
    }
}
