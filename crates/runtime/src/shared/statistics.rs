//! Statistics of clients: data delivered, and data lost because a client was too slow.

use flowgauge_sensor_client::programs::{Chunks, ClientStatistics, ClientStatus};
use flowgauge_sensor_client::protocol::DeviceStatus;
use flowgauge_sys::shared::Counters;
use flowgauge_wire::{Ledger, Place};

use super::codec::{Wire, wire};

/// The number beside the events that says what memory the client has.
pub(super) const MEMORY: usize = 63;

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

/// The status of a shared capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The number of the service's process.
    pub process: u32,
    /// What became of the packets so far.
    pub ledger: Ledger,
    /// Bytes of chunks in the pool.
    pub pool_in_use: u64,
    /// Size of the pool in bytes.
    pub pool_touched: u64,
    /// Its clients, in the order in which they joined.
    pub clients: Vec<ClientStatus>,
}

impl Status {
    /// The sensor's status of the device with this interface's streams, if any.
    pub(super) fn of(process: u32, interface: &str, device: DeviceStatus) -> Option<Status> {
        let sharing = device.sharing.filter(|it| it.interface == interface)?;
        let mut ledger = Ledger::default();
        ledger.take(device.delivered, device.delivered_bytes);
        for &place in Place::ALL {
            ledger.miss(
                place,
                device.refused.get(place.name()).copied().unwrap_or(0),
            );
        }
        Some(Status {
            process,
            ledger,
            pool_in_use: sharing.pool_in_use,
            pool_touched: sharing.pool_touched,
            clients: sharing.programs,
        })
    }
}

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
        let mut bytes = Vec::new();
        statistics().put(&mut bytes);
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
}
