//! The ledger as a record.

use core::fmt::Write as _;

use flowgauge_wire::{Ledger, Place};

use crate::schema::record;
use crate::words::count;

record! {
    /// Fields of [`LedgerRow`]: `received = delivered + dropped + discarded`, and the places add up
    /// to the last two.
    LEDGER, LEDGER_SCHEMA for LedgerRow<'_> as it {
        let ledger = it.0;
    }:
    received Unsigned Packets "RECEIVED" 1 = ledger.received(), "packets that reached the source";
    delivered Unsigned Packets "DELIVERED" 1 = ledger.delivered(), "packets that were processed";
    delivered_bytes Unsigned Bytes "BYTES" 2 = ledger.delivered_bytes(), "wire bytes of the delivered packets";
    dropped Unsigned Packets "DROPPED" 1 = ledger.dropped(), "packets wanted but lost, over all places";
    discarded Unsigned Packets "DISCARDED" 1 = ledger.discarded(), "packets not wanted, over all places";
    nic Unsigned Packets "NIC" 3 = ledger.at(Place::Nic), "dropped by the network card";
    kernel_ring Unsigned Packets "RING" 3 = ledger.at(Place::KernelRing), "dropped because the kernel's ring was full";
    kernel_filter Unsigned Packets "KFILTER" 3 = ledger.at(Place::KernelFilter), "discarded by a filter in the kernel";
    cutoff Unsigned Packets "CUTOFF" 4 = ledger.at(Place::Cutoff), "discarded because the stream's cutoff was reached";
    priority Unsigned Packets "PRIORITY" 4 = ledger.at(Place::Priority), "dropped under overload because of their priority";
    memory Unsigned Packets "MEMORY" 4 = ledger.at(Place::Memory), "dropped because a memory budget was used up";
    duplicate Unsigned Packets "DUPLICATE" 4 = ledger.at(Place::Duplicate), "discarded as duplicates";
    malformed Unsigned Packets "MALFORMED" 3 = ledger.at(Place::Malformed), "discarded because headers or checksums are wrong";
    filter Unsigned Packets "FILTER" 3 = ledger.at(Place::Filter), "discarded by a filter in user space";
    sink Unsigned Packets "SINK" 4 = ledger.at(Place::Sink), "dropped because a sink could not take them";
    strict Unsigned Packets "STRICT" 4 = ledger.at(Place::Strict), "discarded by mode strict: after missing bytes, or without a handshake";
    outside Unsigned Packets "OUTSIDE" 4 = ledger.at(Place::Outside), "discarded because they are outside their stream: before its first byte taken, after its end, or at an impossible sequence number";
    own Unsigned Packets "OWN" 4 = ledger.at(Place::Own), "discarded because they belong to connections of the capturing program";
}

/// A [`Ledger`] as a record.
#[derive(Clone, Copy, Debug)]
pub struct LedgerRow<'a>(pub &'a Ledger);

/// `received = delivered + places` on one line.
pub fn ledger_line(ledger: &Ledger) -> String {
    let mut line = format!(
        "{} received, {} delivered ({}), {} dropped, {} discarded",
        count(ledger.received(), "packet"),
        ledger.delivered(),
        count(ledger.delivered_bytes(), "byte"),
        ledger.dropped(),
        ledger.discarded()
    );
    let mut separator = " (";
    for &place in Place::ALL {
        let packets = ledger.at(place);
        if packets > 0 {
            let _ = write!(line, "{separator}{} {packets}", place.name());
            separator = ", ";
        }
    }
    if separator == ", " {
        line.push(')');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonEncoder;

    #[test]
    fn places_have_the_names_of_the_ledger() {
        let names: Vec<&str> = LEDGER_SCHEMA[5..].iter().map(|field| field.name).collect();
        assert_eq!(
            names,
            Vec::from_iter(Place::ALL.iter().map(|place| place.name()))
        );
        let mut ledger = Ledger::default();
        ledger.take(8, 0);
        ledger.miss(Place::KernelRing, 2);
        ledger.refuse(Place::Filter, 1, 0);
        let mut out = Vec::new();
        JsonEncoder::default().encode(&LedgerRow(&ledger), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#""dropped":2,"discarded":1,"nic":0,"kernel_ring":2"#));
    }

    #[test]
    fn the_ledger_names_only_places_with_packets() {
        let mut ledger = Ledger::default();
        ledger.take(10, 640);
        assert_eq!(
            ledger_line(&ledger),
            "10 packets received, 10 delivered (640 bytes), 0 dropped, 0 discarded"
        );
        ledger.miss(Place::KernelRing, 2);
        ledger.miss(Place::Filter, 3);
        assert_eq!(
            ledger_line(&ledger),
            "15 packets received, 10 delivered (640 bytes), 2 dropped, 3 discarded \
             (kernel_ring 2, filter 3)"
        );
    }
}
