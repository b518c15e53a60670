//! Packets that are delivered from the kernel's ring are those that libpcap delivers, byte for byte.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};

use crate::lab::Lab;
use crate::live::{Cable, captured, sockets};
use crate::support::{Counts, Settings, compiled, counts, packets, shimmed, text};

/// All ways of reading an interface; the first is libpcap's own.
const WAYS: [Option<&str>; 4] = [None, Some("simple"), Some("threaded"), Some("zero-copy")];

/// A program that captures.
struct Reading {
    child: Child,
    told: Option<std::path::PathBuf>,
    way: Option<&'static str>,
}

impl Reading {
    /// `reads.c` on an interface, through the library or not.
    fn new(
        lab: &Lab,
        way: Option<&'static str>,
        environment: &[(&str, &str)],
        steps: &[&str],
    ) -> Reading {
        let mut command = lab.inside("timeout");
        command.arg("60").arg(compiled("reads")).args(["-i", "fg1"]);
        command.args(steps).envs(environment.iter().copied());
        let told = way.map(|way| {
            let settings = [("BUFFER", "500"), ("VARIANT", way), ("TIMEOUT", "50ms")];
            shimmed(&mut command, Settings(&settings))
        });
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        Reading { child, told, way }
    }

    fn sockets(&self) -> usize {
        sockets(self.way.unwrap_or("simple"))
    }

    /// Reads to the line "waits".
    fn until_it_waits(&mut self) -> String {
        let mut line = String::new();
        // Nothing is read ahead of what is asked for: the program waits after it.
        let mut out = BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap());
        while !line.ends_with("waits\n") {
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended: {line}");
        }
        line
    }

    fn go_on(&mut self) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// The rest of what it prints, and what is told of its handle.
    fn end(mut self) -> (String, Option<Counts>) {
        let mut rest = String::new();
        let out = self.child.stdout.as_mut().unwrap();
        out.read_to_string(&mut rest).unwrap();
        assert!(
            self.child.wait().unwrap().success(),
            "{:?}: {rest}",
            self.way
        );
        let told = self.told.map(|told| counts(&told).remove(0));
        (rest, told)
    }
}

/// An Ethernet frame with these tags around a UDP packet of so many bytes.
fn frame(tags: &[(u16, u16)], port: u16, len: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend([0x08, 0, 0x45, 0]);
    frame.extend((28 + len).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0xf0, 0]);
    frame.extend(port.to_be_bytes());
    frame.extend((8 + len).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..len).map(|at| at as u8));
    frame
}

/// Tagged once and twice, short and long, in no order; each different.
fn tagged() -> Vec<Vec<u8>> {
    let frames = (0..1200_u16).map(|number| {
        let tags: &[(u16, u16)] = match number % 4 {
            0 => &[],
            1 => &[(0x8100, 0x2064)],
            2 => &[(0x88a8, 7), (0x8100, 8)],
            _ => &[(0x8100, 0)],
        };
        frame(tags, 1 + number % 7, number % 1400)
    });
    frames.collect()
}

/// Tags that the kernel takes out are put back, snap lengths are kept, and so are nanoseconds.
#[test]
fn every_byte_is_the_same() {
    let Some(lab) = Lab::new(1500) else { return };
    let frames = tagged();
    let cable = Cable::of(&lab, frames);
    let all = format!("l:{}", cable.frames.len());
    for snap_len in ["65535", "80", "14", "60"] {
        let mut expected = None;
        for way in WAYS {
            let environment = [("SNAPLEN", snap_len), ("NANO", "1")];
            let reading = Reading::new(&lab, way, &environment, &[&all, "S"]);
            cable.send(&lab, reading.sockets());
            let (output, told) = reading.end();
            let case = format!("{way:?}, {snap_len}");
            let received = format!("received {} dropped 0", cable.frames.len());
            assert!(output.contains(&received), "{case}");
            let nanoseconds = output.lines().filter(|line| {
                let fraction = line.split(['.', ' ']).nth(2);
                fraction.is_some_and(|fraction| fraction.len() > 6)
            });
            assert!(nanoseconds.count() > cable.frames.len() / 2, "{case}");
            let got = packets(&output);
            assert_eq!(got.len(), cable.frames.len(), "{case}");
            assert!(*expected.get_or_insert(got.clone()) == got, "{case}");
            if let (Some("zero-copy"), Some(told)) = (way, told) {
                assert!(told.what.contains("live, zero-copy,"), "{told:?}");
            }
        }
    }
}

/// A filter that comes between packets: those that are there have to pass it, those that come later too, and none is lost.
#[test]
fn a_later_filter_is_obeyed() {
    let Some(lab) = Lab::new(1500) else { return };
    let frames: Vec<Vec<u8>> = (0..3000)
        .map(|at| frame(&[], 1 + at % 5, at % 900))
        .collect();
    let (before, after) = frames.split_at(2000);
    let (before, after) = (
        Cable::of(&lab, before.to_vec()),
        Cable::of(&lab, after.to_vec()),
    );
    // The first is to port 1 and read before; then there are as many as a fifth.
    for (way, filter) in WAYS.into_iter().flat_map(|way| {
        // One that the kernel takes, and one that it does not.
        let long = vec!["udp port 3"; 700].join(" or src port 99 or ");
        [(way, "udp port 3".to_owned()), (way, format!("({long})"))]
    }) {
        let filter = format!("f:{filter}");
        let steps = ["w", "l:1", filter.as_str(), "w", "l:600", "S"];
        let mut reading = Reading::new(&lab, way, &[], &steps);
        reading.until_it_waits();
        before.send(&lab, reading.sockets());
        reading.go_on();
        let first = reading.until_it_waits();
        assert_eq!(packets(&first).len(), 1);
        after.send(&lab, reading.sockets());
        reading.go_on();
        let (output, told) = reading.end();
        let got = packets(&output);
        let mut lengths: Vec<u32> = got
            .iter()
            .map(|packet| packet.split(' ').next().unwrap().parse().unwrap())
            .collect();
        let ours = frames.iter().enumerate().filter(|(at, _)| at % 5 == 2);
        let mut expected: Vec<u32> = ours.map(|(_, frame)| frame.len() as u32).collect();
        lengths.sort_unstable();
        expected.sort_unstable();
        assert!(lengths == expected, "{way:?}, {} bytes", filter.len());
        if way == Some("zero-copy") {
            let told = told.unwrap();
            assert!(told.what.contains("live, zero-copy,"), "{told:?}");
            assert!(told.of("refused") >= 1000, "{told:?}");
        }
    }
}

/// A filter sees packets without the tag that the kernel took out, also where it has just been set.
#[test]
fn a_first_filter_sees_no_tags() {
    let Some(lab) = Lab::new(1500) else { return };
    let frames = tagged();
    // Inner tags stay where they are.
    let expected = frames.len() / 4 * 3;
    let cable = Cable::of(&lab, frames);
    let all = format!("l:{expected}");
    let mut first = None;
    for way in WAYS {
        let mut reading = Reading::new(&lab, way, &[], &["f:udp", "w", &all, "S"]);
        reading.until_it_waits();
        cable.send(&lab, reading.sockets());
        reading.go_on();
        let (output, told) = reading.end();
        let got = packets(&output);
        assert_eq!(got.len(), expected, "{way:?}");
        assert!(*first.get_or_insert(got.clone()) == got, "{way:?}");
        assert_eq!(told.map_or(0, |told| told.of("refused")), 0);
    }
}

/// What the host sends is left out, and comes again, as the program says; also of packets that were there before.
#[test]
fn a_later_direction_is_obeyed() {
    let Some(lab) = Lab::new(1500) else { return };
    let (arriving, sent) = (lab.sender("fg0"), lab.sender("fg1"));
    for way in [None, Some("zero-copy")] {
        // One by one, and the others wait where they were gathered.
        let steps = ["w", "o:2", "x", "x", "x", "w", "o:1", "l:3", "S"];
        let mut reading = Reading::new(&lab, way, &[], &steps);
        reading.until_it_waits();
        for number in 0..4 {
            arriving.send_all(&[&frame(&[], 1, 100 + number)]).unwrap();
            sent.send_all(&[&frame(&[], 1, 200 + number)]).unwrap();
        }
        reading.go_on();
        let first = reading.until_it_waits();
        for number in 4..6 {
            arriving.send_all(&[&frame(&[], 1, 100 + number)]).unwrap();
        }
        reading.go_on();
        let (output, told) = reading.end();
        let lengths = |output: &str| {
            let lines = output
                .lines()
                .filter_map(|line| line.strip_prefix("packet "));
            let lengths = lines.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap());
            lengths.collect::<Vec<u32>>()
        };
        assert_eq!(lengths(&first), [242, 243, 244], "{way:?}");
        assert_eq!(lengths(&output), [145, 146, 147], "{way:?}");
        if let Some(told) = told {
            assert!(told.of("refused") >= 3, "{told:?}");
        }
    }
}

/// What does not fit into the ring is counted, all else is delivered.
#[test]
fn losses_are_counted() {
    let Some(lab) = Lab::new(1500) else { return };
    let frames: Vec<Vec<u8>> = (0..12_000).map(|at| frame(&[], at % 50, 600)).collect();
    let cable = Cable::of(&lab, frames);
    let steps = ["t", "w", "D:-1", "S", "w"];
    let environment = [("BYTES", "1000000")];
    let mut reading = Reading::new(&lab, Some("zero-copy"), &environment, &steps);
    reading.until_it_waits();
    cable.send(&lab, reading.sockets());
    reading.go_on();
    let output = reading.until_it_waits();
    let counted = output.lines().find_map(|line| {
        let (received, dropped) = line.strip_prefix("received ")?.split_once(" dropped ")?;
        Some((
            received.parse::<usize>().ok()?,
            dropped.parse::<usize>().ok()?,
        ))
    });
    let (received, dropped) = counted.unwrap();
    assert_eq!(received, cable.frames.len());
    assert!(dropped > 1000);
    assert_eq!(packets(&output).len() + dropped, received);
    reading.go_on();
    reading.end();
}

/// Where the interface goes away, what came before is delivered, and the program is told so.
#[test]
fn an_interface_goes_away() {
    let mut expected = None;
    for way in WAYS {
        let Some(lab) = Lab::new(1500) else { return };
        let frames: Vec<Vec<u8>> = (0..700).map(|at| frame(&[], at % 3, at)).collect();
        let cable = Cable::of(&lab, frames);
        let frames = cable.frames.len();
        let reading = Reading::new(&lab, way, &[], &["l:-1", "S"]);
        cable.send(&lab, reading.sockets());
        lab.ip("link del fg0");
        let (output, told) = reading.end();
        let got = packets(&output);
        let said: Vec<&str> = output
            .lines()
            .filter(|line| !line.starts_with("packet "))
            .collect();
        assert!(
            said[0] == "returned -1" && said[1].starts_with("error "),
            "{said:?}"
        );
        assert!(
            *expected.get_or_insert(said[1].to_owned()) == said[1],
            "{way:?}: {said:?}"
        );
        // libpcap's ring is not waited for.
        let is_whole = got.len() == frames && said[2] == format!("received {frames} dropped 0");
        assert!(
            is_whole || way != Some("zero-copy"),
            "{way:?}: {}, {said:?}",
            got.len()
        );
        if let Some(told) = told {
            told.assert_grouped(way.unwrap());
        }
    }
}

/// What zero-copy cannot do is copied, and why is told.
#[test]
fn a_fallback_is_told() {
    let Some(lab) = Lab::new(1500) else { return };
    let cable = Cable::of(&lab, (0..300).map(|at| frame(&[], at % 3, at)).collect());
    let captured = |interface: &str, timeout: &str| {
        let arguments = ["-i", interface, "l:300"];
        let (output, mut told) =
            captured(&lab, &cable, "reads", &arguments, &[("TIMEOUT", timeout)]);
        assert_eq!(packets(&text(&output.stdout)).len(), 300);
        assert_eq!(told[0].of("delivered"), 300);
        told.remove(0).what
    };
    assert_eq!(
        captured("any", "100ms"),
        "live, simple (no zero-copy, no packet socket with link headers), dst-port"
    );
    assert_eq!(
        captured("fg1", "90s"),
        "live, simple (no zero-copy, timeout over a minute), dst-port"
    );
}

/// On the loopback interface a packet comes once.
#[test]
fn loopback_comes_once() {
    let Some(lab) = Lab::new(1500) else { return };
    for way in WAYS {
        let mut command = lab.inside("timeout");
        command.arg("60").arg(compiled("reads"));
        command.args(["-i", "lo", "f:udp port 9", "w", "l:4", "S"]);
        if let Some(way) = way {
            shimmed(&mut command, Settings(&[("VARIANT", way)]));
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut reading = Reading {
            child: child.unwrap(),
            told: None,
            way,
        };
        reading.until_it_waits();
        lab.run(|| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for number in 0..4 {
                let _ = socket.send_to(&[0; 10][..=number], "127.0.0.1:9");
            }
        });
        reading.go_on();
        let (output, _) = reading.end();
        let mut got = packets(&output);
        got.dedup();
        assert_eq!(got.len(), 4, "{way:?}");
        assert!(output.contains("received 8 dropped 0"), "{way:?}: {output}");
    }
}
