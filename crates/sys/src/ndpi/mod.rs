//! Detection of protocols and applications by nDPI, as safe types.
//!
//! The library is loaded when it is first asked for: a program that was built here runs where it is
//! not installed, and says so. Declared by hand: twelve functions of version 4.2, the only one that is
//! taken, as they change from version to version. What a flow's state holds is left to the library.

mod detector;
mod library;

pub use detector::{Detector, Protocol};
pub use library::{LoadError, version};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    fn detector() -> Option<Detector> {
        match Detector::new() {
            Ok(detector) => Some(detector),
            Err(error) => {
                skipped(error);
                None
            }
        }
    }

    /// An IPv4 packet of a UDP datagram from 10.0.0.1:4000 to 10.0.0.2:`port`.
    fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
        let len = payload.len() as u16;
        let mut packet = vec![0x45, 0];
        packet.extend_from_slice(&(28 + len).to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend_from_slice(&4000_u16.to_be_bytes());
        packet.extend_from_slice(&port.to_be_bytes());
        packet.extend_from_slice(&(8 + len).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(payload);
        packet
    }

    /// A query for the address of www.facebook.com.
    const QUERY: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x08facebook\x03com\x00\x00\x01\x00\x01";

    #[test]
    fn queries_are_dns_whatever_the_state_held_before() {
        let Some(mut detector) = detector() else {
            return;
        };
        let packet = datagram(53, QUERY);
        for _ in 0..3 {
            let flow = detector.open();
            assert_eq!(flow, 0);
            detector.packet(flow, &packet, 1_000);
            let found = detector.close(flow);
            let names = [found.master, found.application].map(|it| detector.name(it).unwrap());
            assert_eq!(names, ["DNS", "Facebook"]);
        }
        let (one, two) = (detector.open(), detector.open());
        assert_eq!((one, two, detector.open_states()), (0, 1, 2));
        let noise = detector.packet(two, &datagram(40_000, &[0x91; 100]), 1);
        assert!(!noise.is_known());
        assert_eq!(detector.close(two), Protocol::default());
        // What is not open is nothing.
        assert_eq!(detector.close(two), Protocol::default());
        assert_eq!(detector.packet(99, &packet, 1), Protocol::default());
        assert!(!detector.has_more(99));
        assert_eq!(detector.open_states(), 1);
        assert_eq!(detector.name(u16::MAX), detector.name(0));
    }

    #[test]
    fn cut_and_wrong_packets_are_taken() {
        let Some(mut detector) = detector() else {
            return;
        };
        let packet = datagram(53, QUERY);
        let flow = detector.open();
        for len in 0..packet.len() {
            detector.packet(flow, &packet[..len], 0);
        }
        let large = vec![0x45; 70_000];
        detector.packet(flow, &large, 0);
        // It is closed with the detector.
    }

    #[test]
    fn detectors_of_several_threads_are_apart() {
        if detector().is_none() {
            return;
        }
        let names = || {
            let mut detector = Detector::new().unwrap();
            let flow = detector.open();
            detector.packet(flow, &datagram(53, QUERY), 0);
            let found = detector.close(flow);
            detector.name(found.application).unwrap()
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(names)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), "Facebook");
        }
    }
}
