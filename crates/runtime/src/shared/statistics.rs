//! What was delivered to a client, and what was lost because it was too slow.

use flowgauge_sys::shared::COUNTERS;
use flowgauge_wire::{Ledger, Place};

use super::codec::{Decoder, Encoder};

/// The number beside the events that says what memory the client has.
pub(super) const MEMORY: usize = COUNTERS - 1;

/// Chunks and their bytes (repeated ones not counted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Data events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Chunks {
    pub(super) fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }
}

/// Counters of one client of a shared capture. What is lost here is lost for this client only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStatistics {
    /// Creations delivered.
    pub created: u64,
    /// Terminations delivered.
    pub terminated: u64,
    /// Chunks delivered.
    pub data: Chunks,
    /// Creations lost, because the ring of events was full.
    pub lost_created: u64,
    /// Terminations lost, because the ring of events was full.
    pub lost_terminated: u64,
    /// Chunks lost because of the priority of their streams: too many bytes waited.
    pub lost_to_priority: Chunks,
    /// Chunks lost because they were beyond the overload cutoff.
    pub lost_to_overload_cutoff: Chunks,
    /// Chunks lost because the ring of events was full.
    pub lost_to_ring: Chunks,
    /// Chunks lost because the pool was full, or they and their packets too large for it.
    pub lost_to_pool: Chunks,
    /// Commands and changes that the service refused, or did not hear in time.
    pub refused_commands: u64,
}

impl ClientStatistics {
    /// Numbers that make it up.
    const WORDS: usize = 15;

    /// Chunks lost for whatever reason.
    pub fn lost_data(&self) -> Chunks {
        let all = [
            self.lost_to_priority,
            self.lost_to_overload_cutoff,
            self.lost_to_ring,
            self.lost_to_pool,
        ];
        Chunks {
            events: all.iter().map(|chunks| chunks.events).sum(),
            bytes: all.iter().map(|chunks| chunks.bytes).sum(),
        }
    }

    /// Whether nothing was lost.
    pub fn is_complete(&self) -> bool {
        self.lost_data().events + self.lost_created + self.lost_terminated == 0
    }

    fn words(&self) -> [u64; ClientStatistics::WORDS] {
        [
            self.created,
            self.terminated,
            self.data.events,
            self.data.bytes,
            self.lost_created,
            self.lost_terminated,
            self.lost_to_priority.events,
            self.lost_to_priority.bytes,
            self.lost_to_overload_cutoff.events,
            self.lost_to_overload_cutoff.bytes,
            self.lost_to_ring.events,
            self.lost_to_ring.bytes,
            self.lost_to_pool.events,
            self.lost_to_pool.bytes,
            self.refused_commands,
        ]
    }

    fn of_words(mut next: impl FnMut() -> Option<u64>) -> Option<ClientStatistics> {
        Some(ClientStatistics {
            created: next()?,
            terminated: next()?,
            data: chunks(&mut next)?,
            lost_created: next()?,
            lost_terminated: next()?,
            lost_to_priority: chunks(&mut next)?,
            lost_to_overload_cutoff: chunks(&mut next)?,
            lost_to_ring: chunks(&mut next)?,
            lost_to_pool: chunks(&mut next)?,
            refused_commands: next()?,
        })
    }
}

fn chunks(next: &mut impl FnMut() -> Option<u64>) -> Option<Chunks> {
    Some(Chunks {
        events: next()?,
        bytes: next()?,
    })
}

/// The numbers that stand beside the events in a ring: the client's, then the capture's.
pub(super) fn show(own: &ClientStatistics, ledger: &Ledger, mut set: impl FnMut(usize, u64)) {
    let words = own.words().into_iter().chain(ledger_words(ledger));
    for (at, word) in words.enumerate() {
        set(at, word);
    }
}

/// What [`show`] has set. The numbers of one moment, but for those that change meanwhile.
pub(super) fn read(get: impl Fn(usize) -> u64) -> (ClientStatistics, Ledger) {
    let mut words = (0..).map(get);
    let own = ClientStatistics::of_words(|| words.next()).unwrap_or_default();
    (own, ledger_of(|| words.next()).unwrap_or_default())
}

fn ledger_words(ledger: &Ledger) -> impl Iterator<Item = u64> {
    let places = Place::ALL.into_iter().map(|place| ledger.at(place));
    [ledger.delivered(), ledger.delivered_bytes()]
        .into_iter()
        .chain(places)
}

fn ledger_of(mut next: impl FnMut() -> Option<u64>) -> Option<Ledger> {
    let mut ledger = Ledger::default();
    ledger.take(next()?, next()?);
    for place in Place::ALL {
        ledger.miss(place, next()?);
    }
    Some(ledger)
}

/// How a shared capture stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The service's process.
    pub process: u32,
    /// Where the packets went so far.
    pub ledger: Ledger,
    /// Bytes of chunks in the pool.
    pub pool_in_use: u64,
    /// Bytes of memory that the pool takes.
    pub pool_touched: u64,
    /// Who uses it, in the order they came.
    pub clients: Vec<ClientStatus>,
}

/// How a client of a shared capture stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientStatus {
    /// Process; 0 if it is not visible to the service.
    pub process: u32,
    /// User.
    pub user: u32,
    /// What it calls itself.
    pub name: String,
    /// Events that wait for it.
    pub waiting: u32,
    /// Bytes of the chunks that wait for it.
    pub held: u64,
    /// Bytes that may wait.
    pub memory: u64,
    /// What it got and what it lost.
    pub statistics: ClientStatistics,
}

impl Status {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u32(self.process);
        ledger_words(&self.ledger).for_each(|word| {
            out.u64(word);
        });
        out.u64(self.pool_in_use).u64(self.pool_touched);
        out.u16(self.clients.len() as u16);
        for client in &self.clients {
            out.u32(client.process).u32(client.user).text(&client.name);
            out.u32(client.waiting).u64(client.held).u64(client.memory);
            for word in client.statistics.words() {
                out.u64(word);
            }
        }
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Status> {
        let mut rest = Decoder(bytes);
        let process = rest.u32()?;
        let ledger = ledger_of(|| rest.u64())?;
        let (pool_in_use, pool_touched) = (rest.u64()?, rest.u64()?);
        let mut clients = Vec::new();
        for _ in 0..rest.u16()? {
            clients.push(ClientStatus {
                process: rest.u32()?,
                user: rest.u32()?,
                name: rest.text()?,
                waiting: rest.u32()?,
                held: rest.u64()?,
                memory: rest.u64()?,
                statistics: ClientStatistics::of_words(|| rest.u64())?,
            });
        }
        rest.end()?;
        Some(Status {
            process,
            ledger,
            pool_in_use,
            pool_touched,
            clients,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics() -> ClientStatistics {
        let mut words = 1..;
        ClientStatistics::of_words(|| words.next()).unwrap()
    }

    fn ledger() -> Ledger {
        let mut words = 100..;
        ledger_of(|| words.next()).unwrap()
    }

    #[test]
    fn counters_come_back() {
        let mut counters = [0; COUNTERS];
        show(&statistics(), &ledger(), |at, word| {
            assert!(at < MEMORY);
            counters[at] = word;
        });
        let (own, shared) = read(|at| counters[at]);
        assert_eq!((own, shared.clone()), (statistics(), ledger()));
        assert!(shared.is_balanced());
        assert_eq!(own.lost_data().events, 7 + 9 + 11 + 13);
        assert!(!own.is_complete() && ClientStatistics::default().is_complete());
    }

    #[test]
    fn a_status_comes_back() {
        let client = ClientStatus {
            process: 1,
            user: 2,
            name: "three".to_owned(),
            waiting: 4,
            held: 5,
            memory: 6,
            statistics: statistics(),
        };
        let status = Status {
            process: 9,
            ledger: ledger(),
            pool_in_use: 1,
            pool_touched: 2,
            clients: vec![client.clone(), client],
        };
        let bytes = status.encode();
        assert_eq!(Status::decode(&bytes), Some(status));
        for len in 0..bytes.len() {
            assert_eq!(Status::decode(&bytes[..len]), None);
        }
    }
}
