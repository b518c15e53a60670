//! Splits batches for components that need the clock to advance in the middle of one.

use flowgauge_wire::{Nanos, PacketDescriptor};

/// The first packet, from `start` on, that comes at `deadline` or later, and the time it takes the
/// clock to. Packets whose time `now` has not come to yet (a far jump that nothing has confirmed) do
/// not count.
pub(crate) fn first_after(
    packets: &[PacketDescriptor],
    start: usize,
    deadline: Nanos,
    now: Nanos,
) -> Option<(usize, Nanos)> {
    let rest = packets.iter().enumerate().skip(start);
    let mut found = rest.filter(|(_, packet)| packet.time >= deadline && packet.time <= now);
    found.next().map(|(index, packet)| (index, packet.time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_before_the_packet_that_reaches_it() {
        let packets = [3, 5, 4, 90, 7].map(|time| PacketDescriptor {
            time: Nanos(time),
            ..PacketDescriptor::default()
        });
        let find = |start, deadline| first_after(&packets, start, Nanos(deadline), Nanos(10));
        assert_eq!(find(0, 5), Some((1, Nanos(5))));
        assert_eq!(find(0, 3), Some((0, Nanos(3))));
        assert_eq!(find(2, 5), Some((4, Nanos(7))));
        assert_eq!(find(0, 8), None);
    }
}
