//! The ledger as a record.

use core::fmt::Write as _;

use flowgauge_wire::{Ledger, Place};

use crate::schema::{FieldVisitor, Record, fields};
use crate::words::count;

fields! {
    /// Fields of [`LedgerRow`]: `received = delivered + dropped + discarded`, and the places add up
    /// to the last two.
    LedgerFields, LEDGER, LEDGER_SCHEMA:
    received Unsigned Packets "RECEIVED" 1 "packets that reached the source";
    delivered Unsigned Packets "DELIVERED" 1 "packets that were processed";
    delivered_bytes Unsigned Bytes "BYTES" 2 "wire bytes of the delivered packets";
    dropped Unsigned Packets "DROPPED" 1 "packets wanted but lost, over all places";
    discarded Unsigned Packets "DISCARDED" 1 "packets not wanted, over all places";
    nic Unsigned Packets "NIC" 3 "dropped by the network card";
    kernel_ring Unsigned Packets "RING" 3 "dropped because the kernel's ring was full";
    kernel_filter Unsigned Packets "KFILTER" 3 "discarded by a filter in the kernel";
    cutoff Unsigned Packets "CUTOFF" 4 "discarded because the stream's cutoff was reached";
    priority Unsigned Packets "PRIORITY" 4 "dropped under overload because of their priority";
    memory Unsigned Packets "MEMORY" 4 "dropped because a memory budget was used up";
    duplicate Unsigned Packets "DUPLICATE" 4 "discarded as duplicates";
    malformed Unsigned Packets "MALFORMED" 3 "discarded because headers or checksums are wrong";
    filter Unsigned Packets "FILTER" 3 "discarded by a filter in user space";
    sink Unsigned Packets "SINK" 4 "dropped because a sink could not take them";
    strict Unsigned Packets "STRICT" 4 "discarded by mode strict: behind missing bytes, or without a handshake";
    outside Unsigned Packets "OUTSIDE" 4 "discarded because they have no place in their stream: from before the first bytes taken, behind its end, or where they cannot be";
    own Unsigned Packets "OWN" 4 "discarded because they belong to connections of the program that captures";
}

/// A [`Ledger`] as a record.
#[derive(Clone, Copy, Debug)]
pub struct LedgerRow<'a>(pub &'a Ledger);

impl Record for LedgerRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let ledger = self.0;
        visitor.unsigned(&LEDGER.received, ledger.received());
        visitor.unsigned(&LEDGER.delivered, ledger.delivered());
        visitor.unsigned(&LEDGER.delivered_bytes, ledger.delivered_bytes());
        visitor.unsigned(&LEDGER.dropped, ledger.dropped());
        visitor.unsigned(&LEDGER.discarded, ledger.discarded());
        for place in Place::ALL {
            let field = match place {
                Place::Nic => &LEDGER.nic,
                Place::KernelRing => &LEDGER.kernel_ring,
                Place::KernelFilter => &LEDGER.kernel_filter,
                Place::Cutoff => &LEDGER.cutoff,
                Place::Priority => &LEDGER.priority,
                Place::Memory => &LEDGER.memory,
                Place::Duplicate => &LEDGER.duplicate,
                Place::Malformed => &LEDGER.malformed,
                Place::Filter => &LEDGER.filter,
                Place::Sink => &LEDGER.sink,
                Place::Strict => &LEDGER.strict,
                Place::Outside => &LEDGER.outside,
                Place::Own => &LEDGER.own,
            };
            visitor.unsigned(field, ledger.at(place));
        }
    }
}

/// `received = delivered + places` in a line.
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
    for place in Place::ALL {
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
        assert_eq!(names, Place::ALL.map(Place::name));
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
