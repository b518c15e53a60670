//! Programs that wait on a descriptor get all packets, also those that are gathered when the traffic stops.

use crate::lab::Lab;
use crate::live::{Cable, captured, expected};
use crate::support::{sorted, text};

/// Each way of waiting, with a buffer that is full now and then, and one that never is.
fn poll_loops(variant: &str) {
    let Some(lab) = Lab::new(1500) else { return };
    let cable = Cable::new(&lab);
    let expected = expected();
    let all = cable.frames.len().to_string();
    for way in ["next", "drain", "dispatch", "all"] {
        for buffer in ["500", "100000"] {
            let settings = [
                ("BUFFER", buffer),
                ("VARIANT", variant),
                // A ring has room for eight times as long: so long may the machine be busy.
                ("TIMEOUT", "200ms"),
            ];
            let (output, told) = captured(&lab, &cable, "polls", &["fg1", way, &all], &settings);
            let said = text(&output.stderr);
            let case = format!("{way}, {buffer}, {variant}: {said}");
            assert_eq!(said, "dropped 0\n", "{case}");
            let got = text(&output.stdout);
            assert!(sorted(&got) == expected, "{case}");
            assert_eq!(told.len(), 1);
            told[0].assert_grouped(&format!("live, {variant}"));
        }
    }
}

#[test]
fn simple() {
    poll_loops("simple");
}

#[test]
fn threaded() {
    poll_loops("threaded");
}

#[test]
fn zero_copy() {
    poll_loops("zero-copy");
}
