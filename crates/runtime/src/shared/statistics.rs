//! What was delivered to a client, and what was lost because it was too slow.

use flowgauge_sys::shared::Counters;
use flowgauge_wire::{Ledger, Place};

use super::codec::{Wire, wire};

/// The number beside the events that says what memory the client has.
pub(super) const MEMORY: usize = 63;

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
}

wire!(Chunks { events, bytes });
wire!(ClientStatistics {
    created,
    terminated,
    data,
    lost_created,
    lost_terminated,
    lost_to_priority,
    lost_to_overload_cutoff,
    lost_to_ring,
    lost_to_pool,
    refused_commands,
});

impl Wire for Ledger {
    fn put(&self, out: &mut Vec<u8>) {
        (self.delivered(), self.delivered_bytes()).put(out);
        for &place in Place::ALL {
            self.at(place).put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Ledger> {
        let mut ledger = Ledger::default();
        ledger.take(Wire::take(from)?, Wire::take(from)?);
        for &place in Place::ALL {
            ledger.miss(place, Wire::take(from)?);
        }
        Some(ledger)
    }
}

/// The numbers that stand beside the events in a ring, of their bytes: the client's, then the capture's; and the memory's.
pub(super) fn shown(mut counters: &[u8], memory: u64) -> impl Iterator<Item = u64> {
    let numbers = (0..MEMORY).map(move |_| Wire::take(&mut counters).unwrap_or(0));
    numbers.chain([memory])
}

/// What [`shown`] was made of.
pub(super) fn read(counters: &Counters) -> (ClientStatistics, Ledger) {
    let words: [u64; MEMORY] = counters.read(core::array::from_fn(|at| at));
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    let mut rest = bytes.as_slice();
    let own = Wire::take(&mut rest).unwrap_or_default();
    (own, Wire::take(&mut rest).unwrap_or_default())
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

wire!(Status {
    process,
    ledger,
    pool_in_use,
    pool_touched,
    clients,
});
wire!(ClientStatus {
    process,
    user,
    name,
    waiting,
    held,
    memory,
    statistics,
});

#[cfg(test)]
mod tests {
    use flowgauge_sys::shared::EventWriter;

    use super::*;

    fn words_from<T: Wire>(first: u64) -> T {
        let words = (first..first + 64).flat_map(u64::to_le_bytes);
        T::take(&mut &words.collect::<Vec<u8>>()[..]).unwrap()
    }

    fn statistics() -> ClientStatistics {
        words_from(1)
    }

    fn ledger() -> Ledger {
        words_from(100)
    }

    #[test]
    fn counters_come_back() {
        let mut ring = EventWriter::new(2).unwrap();
        let counters = Counters::open(ring.files()[0].try_clone_to_owned().unwrap()).unwrap();
        let mut bytes = statistics().encoded();
        ledger().put(&mut bytes);
        assert!(bytes.len() / 8 <= MEMORY);
        ring.set_counters(shown(&bytes, 99));
        assert_eq!(counters.read([MEMORY]), [99]);
        let (own, shared) = read(&counters);
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
        let bytes = status.encoded();
        assert_eq!(Status::decoded(&bytes), Some(status));
        for len in 0..bytes.len() {
            assert_eq!(Status::decoded(&bytes[..len]), None);
        }
    }
}
