//! Programs that wait on a descriptor get all packets, also those that are gathered when the traffic stops.

use std::process::Stdio;

use crate::lab::Lab;
use crate::live::{Cable, expected, sockets};
use crate::support::{Settings, compiled, counts, shimmed, sorted, text};

/// Each way of waiting, with a buffer that is full now and then, and one that never is.
fn poll_loops(variant: &str) {
    let Some(lab) = Lab::new(1500) else { return };
    let cable = Cable::new(&lab);
    let program = compiled("polls");
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
            let mut command = lab.inside("timeout");
            command.arg("60").arg(&program).args(["fg1", way, &all]);
            let told = shimmed(&mut command, Settings(&settings));
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            cable.send(&lab, sockets(variant));
            let output = child.wait_with_output().unwrap();
            let said = text(&output.stderr);
            let case = format!("{way}, {buffer}, {variant}: {said}");
            assert!(output.status.success(), "{case}");
            assert_eq!(said, "dropped 0\n", "{case}");
            let got = text(&output.stdout);
            assert!(sorted(&got) == expected, "{case}");
            let told = counts(&told);
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
