//! What goes beyond reading: threads that are cancelled, forks, exceptions, little memory, parts of packets.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::lab::Lab;
use crate::live::{Cable, captured};
use crate::support::{
    Settings, compiled, compiled_as_cpp, counts, folder, limited, run, shimmed, text, trace,
};
use crate::wait::wait_until;

const VARIANTS: [&str; 3] = ["simple", "threaded", "zero-copy"];

#[test]
fn a_waiting_thread_may_be_cancelled() {
    let Some(lab) = Lab::new(1500) else { return };
    for variant in VARIANTS {
        let mut command = lab.inside("timeout");
        command.arg("30").arg(compiled("threads"));
        command.args(["cancel", "fg1"]);
        shimmed(&mut command, Settings(&[("VARIANT", variant)]));
        let output = run(&mut command);
        assert_eq!(text(&output.stdout), "cancelled\n", "{variant}");
        assert!(output.status.success(), "{variant}");
    }
}

/// A child has no thread that gathers, and waits for none.
#[test]
fn a_child_may_ask_and_close() {
    let Some(lab) = Lab::new(1500) else { return };
    let cable = Cable::new(&lab);
    for variant in VARIANTS {
        let settings = [("VARIANT", variant), ("BUFFER", "20"), ("TIMEOUT", "50ms")];
        let (output, _) = captured(&lab, &cable, "threads", &["fork", "fg1"], &settings);
        assert_eq!(text(&output.stdout), "forked\n", "{variant}");
    }
}

/// An exception of the program's function leaves the loop, and the next loop goes on with the next packet.
#[test]
fn exceptions_pass_through() {
    let program = compiled_as_cpp("throws");
    let read = |settings: Option<Settings<'_>>| {
        let mut command = limited(&program);
        command.arg(trace());
        if let Some(settings) = settings {
            shimmed(&mut command, settings);
        }
        let output = run(&mut command);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let expected = format!("{0} packets, {1} exceptions\n", 6976, 697);
    for variant in VARIANTS {
        let settings = [("VARIANT", variant), ("BUFFER", "100")];
        assert_eq!(read(Some(Settings(&settings))), expected, "{variant}");
    }
}

/// Without memory for a buffer packets come without one.
#[test]
fn little_memory_is_enough() {
    let program = compiled("reads");
    let read = |with: bool| {
        let mut command = limited("sh");
        command.args(["-c", "ulimit -v 600000; exec \"$@\"", "sh"]);
        command
            .arg(&program)
            .arg("-r")
            .arg(trace())
            .args(["d:3", "X", "l:-1"]);
        let told = with.then(|| shimmed(&mut command, Settings(&[("BUFFER", "1000000")])));
        let output = run(&mut command);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), told)
    };
    let (expected, _) = read(false);
    let (got, told) = read(true);
    assert!(got == expected);
    let told = fs::read_to_string(told.unwrap()).unwrap();
    assert_eq!(
        told,
        "flowgauge locality: handles without buffers: passed 6976\n"
    );
}

/// The packets of a pipe that are whole are delivered in time, also where a part of the next one is there.
#[test]
fn parts_of_packets_hold_nothing_up() {
    let classic = fs::read(trace()).unwrap();
    let path = folder().join("parts.pcapng");
    let made = Command::new("editcap")
        .args(["-F", "pcapng"])
        .arg(trace())
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    let cases = [(classic, "pcap"), (fs::read(path).unwrap(), "pcapng")];
    for ((bytes, format), variant) in cases.iter().flat_map(|case| VARIANTS.map(|it| (case, it))) {
        // A part of a header, one of data, and one larger than what a file reads ahead.
        for cut in [10_007, 50_021, 300_002] {
            let out = folder().join(format!("parts-{format}-{variant}-{cut}"));
            let mut command = limited(compiled("reads"));
            command.args(["-r", "-", "l:-1"]);
            let settings = [("VARIANT", variant), ("TIMEOUT", "20ms"), ("CLASS", "flow")];
            shimmed(&mut command, Settings(&settings));
            command
                .stdin(Stdio::piped())
                .stdout(fs::File::create(&out).unwrap());
            command.env("UNBUFFERED", "1");
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(&bytes[..cut]).unwrap();
            let whole = whole_packets(bytes, cut, *format == "pcapng");
            assert!(whole > 5);
            let packets = || {
                let text = fs::read_to_string(&out).unwrap();
                text.lines()
                    .filter(|line| line.starts_with("packet "))
                    .count()
            };
            wait_until("what is whole has come", || packets() >= whole);
            assert_eq!(packets(), whole, "{format}, {variant}, {cut}");
            input.write_all(&bytes[cut..]).unwrap();
            drop(input);
            assert!(child.wait().unwrap().success());
            assert_eq!(packets(), 6976, "{format}, {variant}, {cut}");
        }
    }
}

/// How many packets are whole in so many bytes of a file.
fn whole_packets(bytes: &[u8], len: usize, is_pcapng: bool) -> usize {
    let word = |at: usize| {
        Some(u32::from_le_bytes(
            bytes.get(at..at + 4)?.try_into().unwrap(),
        ))
    };
    let (mut at, mut packets) = (if is_pcapng { 0 } else { 24 }, 0);
    loop {
        let Some(length) = word(at + if is_pcapng { 4 } else { 8 }) else {
            return packets;
        };
        let is_packet = !is_pcapng || word(at) == Some(6);
        at += length as usize + if is_pcapng { 0 } else { 16 };
        if at > len {
            return packets;
        }
        packets += usize::from(is_packet);
    }
}

/// A file of the program's own may be turned back in, too.
#[test]
fn a_file_of_the_program_is_followed() {
    let program = compiled("reads");
    for variant in VARIANTS {
        let mut command = limited(&program);
        command.arg("-r").arg(trace()).env("OWN", "1");
        command.args(["p", "x", "P", "X"]);
        let settings = [("VARIANT", variant), ("BUFFER", "700")];
        let told = shimmed(&mut command, Settings(&settings));
        let output = text(&run(&mut command).stdout);
        let packets = output.lines().filter(|line| line.starts_with("packet "));
        assert_eq!(packets.count(), 6977, "{variant}");
        let told = counts(&told);
        assert_eq!(told[0].of("again"), 699, "{variant}");
        assert!(told[0].what.starts_with("file, simple"), "{variant}");
    }
}

/// Where counts cannot be told, that is said, and they are told elsewhere.
#[test]
fn counts_that_cannot_be_written_are_said() {
    let mut command = limited(compiled("reads"));
    command.arg("-r").arg(trace()).arg("l:-1");
    shimmed(&mut command, Settings(&[("COUNTS", "/nowhere/counts")]));
    let output = run(&mut command);
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("cannot open /nowhere/counts: "), "{said}");
    assert!(said.contains("\nhint: "), "{said}");
    assert!(
        said.contains("file, simple, dst-port: gathered 6976"),
        "{said}"
    );
}
