//! The ledger: each packet is delivered, or counted in exactly one named place.

/// Where a packet can end other than at its consumer. *Dropped*: wanted, but lost; *discarded*: not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Place {
    /// Dropped by the network card before the kernel saw it.
    Nic = 0,
    /// Dropped because the kernel ring was full.
    KernelRing = 1,
    /// Discarded by a filter in the kernel.
    KernelFilter = 2,
    /// Discarded because its stream's cutoff was reached.
    Cutoff = 3,
    /// Dropped under overload because of its priority.
    Priority = 4,
    /// Dropped because a memory budget was full.
    Memory = 5,
    /// Discarded as a duplicate of a previous packet.
    Duplicate = 6,
    /// Discarded because its headers or checksums are wrong.
    Malformed = 7,
    /// Discarded by a filter in user space.
    Filter = 8,
    /// Dropped because a sink could not write it.
    Sink = 9,
    /// Discarded by strict reassembly of its stream: earlier bytes are missing, or the connection's handshake was not
    /// seen.
    Strict = 10,
    /// Discarded because it has no place in its stream: before the first accepted bytes, after the FIN, or with
    /// impossible sequence numbers.
    Outside = 11,
    /// Discarded because it belongs to a connection of the capturing program.
    Own = 12,
}

impl Place {
    /// All places, in order.
    pub const ALL: &[Place] = <Place as strum::VariantArray>::VARIANTS;

    /// Name in reports and records.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether packets that end here were wanted but lost (dropped), rather than not wanted (discarded).
    pub const fn is_drop(self) -> bool {
        matches!(
            self,
            Place::Nic | Place::KernelRing | Place::Priority | Place::Memory | Place::Sink
        )
    }
}

/// Packets and bytes that arrived at an interface or were in a file, and what became of them.
///
/// Packets enter once, with [`take`](Ledger::take) or [`miss`](Ledger::miss), and are moved by
/// [`refuse`](Ledger::refuse). Nothing else changes it, so no packet that entered is without a place. A move of more
/// packets than there are moves those that there are, and leaves the ledger permanently unbalanced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    received: u64,
    delivered: u64,
    delivered_bytes: u64,
    places: [u64; Place::ALL.len()],
    /// Moves of more than there was.
    anomalies: u64,
}

impl Ledger {
    /// Packets that arrived at the source.
    #[inline]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Packets delivered to the consumer.
    #[inline]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Wire bytes of the delivered packets. (Headers of packets that were refused only when their turn in a stream came
    /// count as delivered until the stream ends, with the average header length of the others.)
    #[inline]
    pub const fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Adds received packets with this number of wire bytes. They are delivered unless they are
    /// [refused](Ledger::refuse).
    #[inline]
    pub fn take(&mut self, packets: u64, bytes: u64) {
        self.received += packets;
        self.delivered += packets;
        self.delivered_bytes += bytes;
    }

    /// Adds packets that were received but never seen: they ended at `place`.
    #[inline]
    pub fn miss(&mut self, place: Place, packets: u64) {
        self.received += packets;
        self.places[place as usize] += packets;
    }

    /// Packets that ended at `place`.
    pub fn at(&self, place: Place) -> u64 {
        self.places[place as usize]
    }

    /// Packets that were wanted but lost, over all places.
    pub fn dropped(&self) -> u64 {
        Place::ALL
            .iter()
            .filter(|place| place.is_drop())
            .map(|&place| self.at(place))
            .sum()
    }

    /// Packets that were not wanted, over all places.
    pub fn discarded(&self) -> u64 {
        Place::ALL
            .iter()
            .filter(|place| !place.is_drop())
            .map(|&place| self.at(place))
            .sum()
    }

    /// Whether `received = delivered + sum(places)`, and no move exceeded the packets that there were.
    pub fn is_balanced(&self) -> bool {
        self.anomalies == 0 && self.received == self.delivered + self.dropped() + self.discarded()
    }

    /// Moves delivered `packets` to `place`, because a later stage refused them.
    pub fn refuse(&mut self, place: Place, packets: u64, bytes: u64) {
        self.places[place as usize] += self.give_back(packets, bytes);
    }

    /// Reverts a move to `place`: the packets are delivered.
    pub fn restore(&mut self, place: Place, packets: u64, bytes: u64) {
        let at = &mut self.places[place as usize];
        self.anomalies += u64::from(packets > *at);
        let packets = packets.min(*at);
        *at -= packets;
        self.delivered += packets;
        self.delivered_bytes += bytes;
    }

    /// Removes delivered packets, which are counted elsewhere or not at all, as if they had not been received.
    pub fn leave_out(&mut self, packets: u64, bytes: u64) {
        self.received -= self.give_back(packets, bytes);
    }

    /// Takes packets off those that were delivered. Returns how many there were of them.
    fn give_back(&mut self, packets: u64, bytes: u64) -> u64 {
        self.anomalies += u64::from(packets > self.delivered);
        let packets = packets.min(self.delivered);
        self.delivered -= packets;
        self.delivered_bytes -= bytes.min(self.delivered_bytes);
        packets
    }

    /// Combines a source's ledger with that of a sink that counts for itself: the source's received packets, the sink's
    /// delivered ones. Balanced only if the sink received all packets that the source delivered.
    #[must_use]
    pub fn through(mut self, sink: &Ledger) -> Ledger {
        (self.delivered, self.delivered_bytes) = (sink.delivered, sink.delivered_bytes);
        self.anomalies += sink.anomalies;
        for (mine, theirs) in self.places.iter_mut().zip(sink.places) {
            *mine += theirs;
        }
        self
    }

    /// The difference to an earlier state, `before`. Refusals of packets from before are ignored if they exceed the
    /// packets received since.
    #[must_use]
    pub fn since(&self, before: &Ledger) -> Ledger {
        let received = self.received.saturating_sub(before.received);
        let mut left = received;
        let mut places = self.places;
        for (place, before) in places.iter_mut().zip(before.places) {
            *place = place.saturating_sub(before).min(left);
            left -= *place;
        }
        Ledger {
            received,
            delivered: left,
            delivered_bytes: self.delivered_bytes.saturating_sub(before.delivered_bytes),
            places,
            anomalies: self.anomalies,
        }
    }

    /// Adds the ledger of another source.
    pub fn merge(&mut self, other: &Ledger) {
        self.received += other.received;
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        self.anomalies += other.anomalies;
        for (mine, theirs) in self.places.iter_mut().zip(other.places) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(received: u64, refused: u64, place: Place) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.take(received, 100 * received);
        ledger.refuse(place, refused, 100 * refused);
        ledger
    }

    #[test]
    fn what_is_lost_between_source_and_sink_is_no_balance() {
        let source = ledger(10, 2, Place::KernelRing);
        let both = source.clone().through(&ledger(8, 3, Place::Cutoff));
        assert!(both.is_balanced());
        assert_eq!((both.received, both.delivered), (10, 5));
        assert_eq!(both.delivered_bytes, 500);
        assert_eq!((both.dropped(), both.discarded()), (2, 3));
        for arrived in [7, 9] {
            let sink = ledger(arrived, 3, Place::Cutoff);
            assert!(!source.clone().through(&sink).is_balanced(), "{arrived}");
        }
    }

    #[test]
    fn what_came_since_is_in_balance_whatever_was_refused_late() {
        let before = ledger(10, 2, Place::Malformed);
        let mut now = before.clone();
        now.take(5, 500);
        now.refuse(Place::Malformed, 1, 100);
        let since = now.since(&before);
        assert_eq!(
            (since.received, since.delivered, since.delivered_bytes),
            (5, 4, 400)
        );
        assert_eq!(since.at(Place::Malformed), 1);
        for late in [Place::Malformed, Place::Strict] {
            let mut now = now.clone();
            now.refuse(late, 8, 800);
            let since = now.since(&before);
            assert!(since.is_balanced());
            assert_eq!((since.received, since.delivered), (5, 0));
        }
    }

    #[test]
    fn no_more_is_moved_than_there_is_and_what_tries_shows() {
        let mut ledger = ledger(3, 1, Place::Cutoff);
        ledger.miss(Place::Nic, 7);
        assert!(ledger.is_balanced());
        let mut more = ledger.clone();
        more.refuse(Place::Strict, 5, 100);
        assert_eq!(
            (more.received, more.delivered, more.delivered_bytes),
            (10, 0, 100)
        );
        assert_eq!((more.at(Place::Cutoff), more.at(Place::Strict)), (1, 2));
        assert!(!more.is_balanced());
        ledger.refuse(Place::Strict, 1, 201);
        assert_eq!((ledger.delivered, ledger.delivered_bytes), (1, 0));
        assert!(ledger.is_balanced());
        let mut all = Ledger::default();
        all.merge(&more);
        assert!(!all.is_balanced());
        all.leave_out(1, 0);
        assert_eq!(all.received, 10);
    }
}
