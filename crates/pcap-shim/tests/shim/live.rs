//! Interfaces: frames sent over a virtual cable.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use flowgauge_sys::transmit::TransmitSocket;

use crate::lab::Lab;
use crate::support::{
    Counts, Settings, compiled, counts, limited, packets, run, shimmed, text, trace,
};
use crate::wait::wait_until;

/// The sending end of a cable, and what goes through it.
pub(crate) struct Cable {
    sender: TransmitSocket,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Cable {
    pub(crate) fn new(lab: &Lab) -> Cable {
        let bytes = fs::read(trace()).unwrap();
        let mut at = 24;
        let mut frames = Vec::new();
        while let Some(len) = bytes.get(at + 8..at + 12) {
            let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
            frames.push(bytes[at + 16..at + 16 + len].to_vec());
            at += 16 + len;
        }
        Cable::of(lab, frames)
    }

    pub(crate) fn of(lab: &Lab, frames: Vec<Vec<u8>>) -> Cable {
        Cable {
            sender: lab.sender("fg0"),
            frames,
        }
    }

    /// Sends all once somebody captures, through so many sockets.
    pub(crate) fn send(&self, lab: &Lab, sockets: usize) {
        wait_until("somebody captures", || {
            let mut list = lab.inside("cat");
            let list = text(&list.arg("/proc/net/packet").output().unwrap().stdout);
            // The sender's is not bound to all protocols.
            let all = list
                .lines()
                .filter(|line| line.split_whitespace().nth(3) == Some("0003"));
            all.count() >= sockets
        });
        for portion in self.frames.chunks(32) {
            let portion: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
            self.sender.send_all(&portion).unwrap();
            // Some programs have small rings.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Packet sockets of a handle: the ring's and libpcap's.
pub(crate) fn sockets(variant: &str) -> usize {
    if variant == "zero-copy" { 2 } else { 1 }
}

/// What `polls.c` prints of the trace, in order.
pub(crate) fn expected() -> Vec<String> {
    let mut command = limited(compiled("reads"));
    packets(&text(
        &run(command.arg("-r").arg(trace()).arg("l:-1")).stdout,
    ))
}

/// What a program of `tests/c` prints that captures while all is sent, and what is told of its handles.
pub(crate) fn captured(
    lab: &Lab,
    cable: &Cable,
    name: &str,
    arguments: &[&str],
    settings: &[(&str, &str)],
) -> (Output, Vec<Counts>) {
    let mut command = lab.inside("timeout");
    command.arg("60").arg(compiled(name)).args(arguments);
    let told = shimmed(&mut command, Settings(settings));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let variant = settings.iter().find(|(name, _)| *name == "VARIANT");
    cable.send(lab, variant.map_or(1, |(_, variant)| sockets(variant)));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    (output, counts(&told))
}

/// A loop that counts, one that a thread breaks, and both variants.
#[test]
fn loops_get_every_packet() {
    let Some(lab) = Lab::new(1500) else { return };
    let cable = Cable::new(&lab);
    let expected = expected();
    let all = format!("l:{}", cable.frames.len());
    // The thread gathers for a dispatch; where packets are counted the reader does.
    let by_dispatch = format!("b:{}", cable.frames.len());
    for (variant, steps) in [
        ("simple", vec![all.as_str()]),
        ("simple", vec![&by_dispatch, "l:-1"]),
        ("threaded", vec![&by_dispatch, "l:-1"]),
        ("zero-copy", vec![all.as_str()]),
        ("zero-copy", vec![&by_dispatch, "l:-1"]),
    ] {
        let settings = [
            ("BUFFER", "1000"),
            ("VARIANT", variant),
            ("TIMEOUT", "50ms"),
        ];
        let arguments = [&["-i", "fg1"], &steps[..]].concat();
        let (output, told) = captured(&lab, &cable, "reads", &arguments, &settings);
        let got = packets(&text(&output.stdout));
        assert!(got == expected, "{variant}: {steps:?}");
        told[0].assert_grouped(&format!("live, {variant}"));
    }
}

/// A waiting program ends when it is told to.
#[test]
fn a_signal_ends_an_idle_loop() {
    let Some(lab) = Lab::new(1500) else { return };
    for (variant, timeout) in [
        ("simple", "none"),
        ("threaded", "none"),
        ("zero-copy", "60s"),
    ] {
        let mut command = lab.inside("timeout");
        command.arg("60").arg(compiled("signals")).arg("fg1");
        shimmed(
            &mut command,
            Settings(&[("VARIANT", variant), ("TIMEOUT", timeout)]),
        );
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id().to_string();
        // It prints a line once it captures.
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        std::io::Read::read_to_string(&mut out, &mut line).unwrap();
        child.wait().unwrap();
        assert_eq!(line, "captures\nsignal -2\nthread -2\n", "{variant}");
    }
}
