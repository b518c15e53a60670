//! Fragments: parameters of IP say whether later ones count for what is above (RFC 2895, countsFragments).

use flowgauge_rmon::{Probe, Tree, Value};

use crate::frames::{SPEED, send, udp};
use crate::sets::{name, set};

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

#[test]
fn later_fragments_count_where_the_parameters_say_so() {
    const CREATE_AND_GO: Value = Value::Integer(4);
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
    let count = |probe: &mut Probe, index: &str| {
        let Ok(Value::Integer(local)) = probe.get(&name(&format!("11.2.1.3.{index}"))) else {
            panic!("{index}");
        };
        match probe.get(&name(&format!("12.2.1.1.1.{local}"))) {
            Ok(Value::Gauge32(packets)) => packets,
            other => panic!("{index}: {other:?}"),
        }
    };
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
