//! Parameters of protocols (RFC 2895): whether later fragments count for what is above (countsFragments), and sessions for the
//! protocol that began them (tracksSessions).

use flowgauge_rmon::{Probe, Tree, Value};

use crate::frames::{SPEED, send, udp};
use crate::sets::{name, set};

const CREATE_AND_GO: Value = Value::Integer(4);

/// A fragment of a datagram of UDP to a port; later ones have no ports.
fn fragment(identification: u8, port: u16, offset: u8) -> Vec<u8> {
    let mut frame = udp(true, (1, 2), port);
    frame[19] = identification;
    // More fragments, or the offset in units of eight octets.
    (frame[20], frame[21]) = if offset == 0 { (0x20, 0) } else { (0, offset) };
    if offset != 0 {
        frame[34..42].fill(0x55);
    }
    frame
}

/// Packets of a protocol.
fn count(probe: &mut Probe, index: &str) -> u32 {
    let Ok(Value::Integer(local)) = probe.get(&name(&format!("11.2.1.3.{index}"))) else {
        panic!("{index}");
    };
    match probe.get(&name(&format!("12.2.1.1.1.{local}"))) {
        Ok(Value::Gauge32(packets)) => packets,
        other => panic!("{index}: {other:?}"),
    }
}

#[test]
fn later_fragments_count_where_the_parameters_say_so() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.set_zero(500);
    let (ip, udp, dns) = (
        "8.0.0.0.1.0.0.8.0.2.0.1",
        "12.0.0.0.1.0.0.8.0.0.0.0.17.3.0.1.0",
        "16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.53.4.0.1.0.0",
    );
    let status = [ip, udp, dns].map(|index| format!("11.2.1.10.{index}"));
    for status in &status {
        assert_eq!(set(&mut probe, &[(status, CREATE_AND_GO)]), Ok(()));
    }
    // Two datagrams in three fragments each, one of them to another port, and a fragment of an unknown one.
    for (identification, port) in [(1, 53), (2, 9999)] {
        for offset in 0..3 {
            send(
                &mut probe,
                0,
                1000,
                1,
                &fragment(identification, port, offset),
            );
        }
    }
    send(&mut probe, 0, 1000, 1, &fragment(3, 53, 2));
    assert_eq!(count(&mut probe, ip), 7);
    assert_eq!(count(&mut probe, "8.0.0.0.1.0.0.8.0.2.0.0"), 7);
    assert_eq!(count(&mut probe, udp), 7);
    assert_eq!(count(&mut probe, "12.0.0.0.1.0.0.8.0.0.0.0.17.3.0.0.0"), 2);
    assert_eq!(count(&mut probe, dns), 3);
    assert_eq!(
        count(&mut probe, "16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.53.4.0.0.0.0"),
        1
    );
}

/// Both ends of a session of TFTP have ports of their own, told by its first datagram.
#[test]
fn sessions_count_where_the_parameters_say_so() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.set_zero(500);
    let plain = "16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.69.4.0.0.0.0";
    let tracking = "16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.69.4.0.0.0.2";
    let status = format!("11.2.1.10.{tracking}");
    assert_eq!(set(&mut probe, &[(&status, CREATE_AND_GO)]), Ok(()));
    // Of no other protocol, and of no other parameter.
    for index in [
        "16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.53.4.0.0.0.2",
        "16.0.0.0.1.0.0.8.0.0.0.0.6.0.0.0.69.4.0.0.0.2",
        "16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.69.4.0.0.0.3",
    ] {
        let refused = set(
            &mut probe,
            &[(&format!("11.2.1.10.{index}"), CREATE_AND_GO)],
        );
        assert!(refused.is_err(), "{index}");
    }
    let datagram = |hosts: (u8, u8), ports: (u16, u16), is_first: bool| {
        let mut frame = udp(true, hosts, ports.1);
        frame[34..36].copy_from_slice(&ports.0.to_be_bytes());
        if is_first {
            // Of a datagram in fragments.
            frame[20] = 0x20;
        }
        frame
    };
    let mut at = |hosts, ports, times, is_first| {
        send(
            &mut probe,
            0,
            1000,
            times,
            &datagram(hosts, ports, is_first),
        );
        (count(&mut probe, plain), count(&mut probe, tracking))
    };
    assert_eq!(at((1, 2), (5000, 69), 1, false), (1, 1));
    assert_eq!(at((2, 1), (6000, 5000), 3, false), (1, 4));
    assert_eq!(at((1, 2), (5000, 6000), 2, false), (1, 6));
    assert_eq!(at((1, 2), (5000, 6000), 1, true), (1, 7));
    // Another client, another server, another port.
    for (hosts, ports) in [
        ((2, 3), (6000, 5000)),
        ((3, 1), (6000, 5000)),
        ((2, 1), (6000, 5001)),
    ] {
        assert_eq!(at(hosts, ports, 1, false), (1, 7));
    }
}
