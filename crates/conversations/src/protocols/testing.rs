//! Leads conversations in tests.

use flowgauge_record::event::{EventSchemas, Vlans};
use flowgauge_record::{Encoder, Format};
use flowgauge_stack::{Failure, Items, Outlet, StreamEnd};
use flowgauge_wire::{Address, Nanos};
use serde_json::Value;

use super::learned::Learned;
use super::{Among, At, Connection, Conversation, Give};

/// A conversation, what it has in common with others, and the records that were given.
pub(super) struct Tester<C: Conversation> {
    common: C::Common,
    conversation: C,
    connection: Connection,
    records: Records,
    pub(super) learned: Learned,
    schemas: EventSchemas,
    time: Nanos,
    /// What is charged for conversations within.
    held: u64,
    pub(super) each_message: bool,
}

#[derive(Default)]
struct Records(Vec<Value>);

impl Outlet for Records {
    fn emit(&mut self, items: Items<'_>) {
        let Items::Records(records) = items else {
            panic!("a conversation gives records");
        };
        for item in records {
            let mut text = Vec::new();
            item.record
                .encode(&mut Encoder::new(Format::Json), &mut text);
            self.0.push(serde_json::from_slice(&text).expect("JSON"));
        }
    }

    fn fail(&mut self, _: Failure) {
        panic!("a conversation cannot fail");
    }

    fn end(&mut self) {}
}

impl<C: Conversation> Tester<C> {
    pub(super) fn udp(from: [u8; 4], port: u16, to: [u8; 4], service: u16) -> Tester<C> {
        let mut tester = Tester::tcp(from, port, to, service);
        tester.connection.is_udp = true;
        tester
    }

    pub(super) fn tcp(from: [u8; 4], port: u16, to: [u8; 4], service: u16) -> Tester<C> {
        let connection = Connection {
            initiator: (Address::v4(from), port),
            responder: (Address::v4(to), service),
            version: 4,
            flow_id: Some(1),
            ..Connection::default()
        };
        Tester {
            connection,
            common: C::Common::default(),
            conversation: C::default(),
            records: Records::default(),
            learned: Learned::default(),
            schemas: EventSchemas::default(),
            time: Nanos(0),
            held: 0,
            each_message: false,
        }
    }

    /// The SYN was seen.
    pub(super) fn opened(mut self) -> Tester<C> {
        self.connection.handshake = [Some(Nanos(0)); 2];
        self
    }

    /// Goes on in another UDP flow; what they have in common stays.
    pub(super) fn meet(&mut self, from: [u8; 4], port: u16, to: [u8; 4], service: u16) {
        self.conversation = C::default();
        self.connection.initiator = (Address::v4(from), port);
        self.connection.responder = (Address::v4(to), service);
    }

    fn with(
        &mut self,
        from_initiator: bool,
        work: impl FnOnce(&mut C, &mut C::Common, &At<'_>, &mut Give<'_>),
    ) {
        let at = At {
            connection: &self.connection,
            from_initiator,
            time: self.time,
        };
        let mut give = Give {
            out: &mut self.records,
            key: 0,
            records: &mut 0,
            flow_id: self.connection.flow_id,
            among: Some(Among {
                learned: &mut self.learned,
                schemas: &mut self.schemas,
                protocol: "test",
                classifier: None,
                is_silent: false,
                anomalies: None,
            }),
            files: None,
            each_message: self.each_message,
            vlans: Vlans::default(),
            limit: None,
            held: &mut self.held,
        };
        work(&mut self.conversation, &mut self.common, &at, &mut give);
    }

    /// One says something, so many seconds after the beginning.
    pub(super) fn say(&mut self, from_initiator: bool, seconds: u64, bytes: &[u8]) {
        self.time = Nanos::from_secs(seconds);
        self.with(from_initiator, |conversation, common, at, give| {
            conversation.data(common, at, bytes, give);
        });
    }

    /// So much of what one says is missing.
    pub(super) fn miss(&mut self, from_initiator: bool, seconds: u64, bytes: u64) {
        self.time = Nanos::from_secs(seconds);
        self.with(from_initiator, |conversation, common, at, give| {
            conversation.gap(common, at, bytes, give);
        });
    }

    /// The connection is over.
    pub(super) fn close(&mut self) {
        for from_initiator in [true, false] {
            self.with(from_initiator, |conversation, common, at, give| {
                conversation.end(common, at, StreamEnd::Fin, give);
            });
        }
        self.with(true, |conversation, common, at, give| {
            conversation.close(common, at, give);
        });
        assert_eq!(self.held, 0, "what was charged is given back");
    }

    /// Some fields of all records so far, with blanks between; `null` where records of other types have the field.
    pub(super) fn rows(&self, fields: &[&str]) -> Vec<String> {
        let records = &self.records.0;
        for name in fields {
            let has = records.is_empty() || records.iter().any(|record| record.get(name).is_some());
            assert!(has, "no field {name} in {records:?}");
        }
        let row = |record: &Value| {
            let values = fields
                .iter()
                .map(|name| record.get(name).unwrap_or(&Value::Null).to_string());
            values.collect::<Vec<_>>().join(" ")
        };
        records.iter().map(row).collect()
    }
}

/// What is said in a conversation: by whom, and a message.
pub(super) struct Said {
    pub(super) from_initiator: bool,
    pub(super) bytes: Vec<u8>,
    /// Under which number its half of a record is, where records have numbers.
    pub(super) number: u64,
}

impl Said {
    pub(super) fn new(from_initiator: bool, number: u64, bytes: &[u8]) -> Said {
        Said {
            from_initiator,
            bytes: bytes.to_vec(),
            number,
        }
    }
}

/// Says all of `said`, the message at `place` in another way. Returns the records.
fn otherwise<C: Conversation>(
    mut tester: Tester<C>,
    said: &[Said],
    place: usize,
    other: impl Fn(&mut Tester<C>, &Said, u64),
) -> Vec<Value> {
    for (seconds, message) in said.iter().enumerate() {
        match seconds == place {
            true => other(&mut tester, message, seconds as u64),
            false => tester.say(message.from_initiator, seconds as u64, &message.bytes),
        }
    }
    tester.close();
    tester.records.0
}

/// Leads a conversation in all the ways in which its messages can be cut, and with each of them missing,
/// its beginning missing and its end missing, by all lengths. Cuts change nothing, where it is no UDP;
/// `check` looks at the records where a message, by its place, is not whole.
pub(super) fn cuts_and_gaps<C: Conversation>(
    tester: impl Fn() -> Tester<C>,
    said: &[Said],
    check: impl Fn(usize, &[Value]),
) {
    let is_udp = tester().connection.is_udp;
    let whole = otherwise(tester(), said, usize::MAX, |_, _, _| {});
    assert!(!whole.is_empty());
    for (place, message) in said.iter().enumerate() {
        for cut in 0..message.bytes.len() {
            let (first, last) = message.bytes.split_at(cut);
            let side = message.from_initiator;
            if !is_udp && cut > 0 {
                let records = otherwise(tester(), said, place, |tester, _, at| {
                    tester.say(side, at, first);
                    tester.say(side, at, last);
                });
                assert_eq!(records, whole, "message {place} cut at {cut}");
            }
            // The end is missing; with nothing before it, all of it.
            let records = otherwise(tester(), said, place, |tester, _, at| {
                if cut > 0 {
                    tester.say(side, at, first);
                }
                if !is_udp {
                    tester.miss(side, at, last.len() as u64);
                }
            });
            check(place, &records);
            if !is_udp && cut > 0 {
                let records = otherwise(tester(), said, place, |tester, _, at| {
                    tester.miss(side, at, first.len() as u64);
                    tester.say(side, at, last);
                });
                check(place, &records);
            }
        }
    }
}

/// Each message but one is in a record that has its number in this field, with the other half or alone;
/// the initiator asks.
pub(super) fn assert_halves(said: &[Said], field: &str, missing: usize, records: &[Value]) {
    for (place, message) in said.iter().enumerate() {
        let none = match message.from_initiator {
            true => "no_request",
            false => "no_reply",
        };
        let is = |record: &Value| record[field] == message.number && record["state"] != none;
        assert!(
            place == missing || records.iter().any(is),
            "message {place} is in no record, without {missing}: {records:?}"
        );
    }
}
