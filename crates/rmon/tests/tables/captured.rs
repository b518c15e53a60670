//! Filters, channels and buffers, against a model that looks at one bit after the other.

use std::collections::VecDeque;

use flowgauge_rmon::{Probe, SetError, Value};

use crate::frames::{SPEED, send, tick, udp};
use crate::sets::{name, set};
use crate::traces::{Packet, count, traces, walk};

const VALID: Value = Value::Integer(1);
const CREATE_REQUEST: Value = Value::Integer(2);
const INVALID: Value = Value::Integer(4);

/// Octets of a packet in a buffer beside its own.
const OVERHEAD: usize = 64;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn octets(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most + 1);
        // Few bits, so that some packets match.
        (0..length)
            .map(|_| (self.below(256) & self.below(256) & self.below(256)) as u8)
            .collect()
    }
}

#[derive(Clone, Debug)]
struct Filter {
    offset: usize,
    octets: [Vec<u8>; 3],
    status: [i32; 3],
}

impl Filter {
    fn random(random: &mut Random, packets: &[Packet]) -> Filter {
        let packet = &packets[random.below(packets.len() as u64) as usize].bytes;
        let offset = random.below(40).min(packet.len() as u64) as usize;
        let length = (random.below(5) as usize).min(packet.len() - offset);
        let data = packet[offset..offset + length].to_vec();
        Filter {
            offset,
            octets: [data, random.octets(5), random.octets(3)],
            status: [1, 1, 1].map(|most| (random.below(8) == 0) as i32 * most),
        }
    }

    /// By the three rules of filterPktData and the two of filterPktStatus.
    fn matches(&self, packet: &Packet) -> bool {
        let [data, mask, not_mask] = &self.octets;
        let bit = |octets: &[u8], at: usize, default: bool| {
            octets
                .get(at / 8)
                .map_or(default, |octet| octet >> (at % 8) & 1 == 1)
        };
        let Some(seen) = packet.bytes.get(self.offset..self.offset + data.len()) else {
            return data.is_empty() && self.matches_status(packet);
        };
        let relevant = || (0..8 * data.len()).filter(|at| bit(mask, *at, true));
        let is_equal = |at: &usize| bit(seen, *at, false) == bit(data, *at, false);
        let plain = relevant().filter(|at| !bit(not_mask, *at, false));
        let inverted: Vec<usize> = relevant().filter(|at| bit(not_mask, *at, false)).collect();
        plain.into_iter().all(|at| is_equal(&at))
            && (inverted.is_empty() || !inverted.iter().all(is_equal))
            && self.matches_status(packet)
    }

    fn matches_status(&self, packet: &Packet) -> bool {
        let status = i32::from(octets(packet) > 1518);
        match self.status {
            [_, 0, _] => true,
            [value, _, 0] => status == value,
            [value, _, _] => status != value,
        }
    }
}

fn octets(packet: &Packet) -> u64 {
    u64::from(packet.length.max(60)) + 4
}

/// Makes a row of RMON-MIB, and makes it valid.
fn make(probe: &mut Probe, table: &str, row: u32, status: u32, columns: &[(u32, Value)]) {
    let names: Vec<String> = columns
        .iter()
        .map(|it| format!("{table}.1.{}.{row}", it.0))
        .collect();
    let status = format!("{table}.1.{status}.{row}");
    let mut values = vec![(status.as_str(), CREATE_REQUEST)];
    values.extend(
        names
            .iter()
            .zip(columns)
            .map(|(name, it)| (name.as_str(), it.1.clone())),
    );
    set(probe, &values).unwrap();
    set(probe, &[(&status, VALID)]).unwrap();
}

/// A channel with its filters and a buffer, in the probe and in the model.
struct Channel {
    accepts_failed: bool,
    filters: Vec<Filter>,
    matches: u32,
    slice: usize,
    room: usize,
    wraps: bool,
    is_full: bool,
    used: usize,
    number: i32,
    /// Number, ID, bytes, octets, milliseconds.
    buffer: VecDeque<(i32, i32, Vec<u8>, i32, i32)>,
}

impl Channel {
    fn take(&mut self, packet: &Packet, id: usize, began: u64) {
        if self.filters.iter().any(|filter| filter.matches(packet)) == self.accepts_failed {
            return;
        }
        self.matches += 1;
        if self.is_full && !self.wraps {
            return;
        }
        let bytes = match self.slice {
            0 => packet.bytes.clone(),
            slice => packet.bytes[..packet.bytes.len().min(slice)].to_vec(),
        };
        let needed = bytes.len() + OVERHEAD;
        if self.used + needed > self.room {
            self.is_full = true;
            if !self.wraps || needed > self.room {
                return;
            }
        }
        while self.used + needed > self.room {
            self.used -= self.buffer.pop_front().unwrap().2.len() + OVERHEAD;
        }
        self.number += 1;
        self.used += needed;
        let millis = packet.time.0.saturating_sub(began) / 1_000_000;
        let row = (
            self.number,
            id as i32,
            bytes,
            octets(packet) as i32,
            millis as i32,
        );
        self.buffer.push_back(row);
    }
}

#[test]
fn channels_and_buffers_have_what_a_model_has() {
    for (trace, file) in traces().into_iter().take(8) {
        let packets = count(&mut Probe::new(), &file, |_, _| {});
        let Some(first) = packets.first() else {
            continue;
        };
        let (first, mut random) = (first.time.0 / 10_000_000, Random(packets.len() as u64));
        let mut probe = Probe::new();
        probe.add_interface(7, SPEED);
        tick(&mut probe, first);
        let mut channels = Vec::new();
        let mut filter = 0;
        for number in 1..=24 {
            let channel = Channel {
                accepts_failed: random.below(4) == 0,
                filters: (0..random.below(4))
                    .map(|_| Filter::random(&mut random, &packets))
                    .collect(),
                matches: 0,
                slice: [0, 20, 100][random.below(3) as usize],
                room: [100, 1_000, 30_000][random.below(3) as usize],
                wraps: random.below(2) == 0,
                is_full: false,
                used: 0,
                number: 0,
                buffer: VecDeque::new(),
            };
            let accept = Value::Integer(1 + i32::from(channel.accepts_failed));
            let columns = [(2, Value::Integer(7)), (3, accept), (4, Value::Integer(1))];
            make(&mut probe, "7.2", number, 12, &columns);
            for it in &channel.filters {
                filter += 1;
                let mut columns = vec![
                    (2, Value::Integer(number as i32)),
                    (3, Value::Integer(it.offset as i32)),
                ];
                columns.extend((4..).zip(it.octets.clone().map(Value::Octets)));
                columns.extend((7..).zip(it.status.map(Value::Integer)));
                make(&mut probe, "7.1", filter, 11, &columns);
            }
            let columns = [
                (2, Value::Integer(number as i32)),
                (4, Value::Integer(1 + i32::from(channel.wraps))),
                (5, Value::Integer(channel.slice as i32)),
                (6, Value::Integer(30)),
                (7, Value::Integer(3)),
                (8, Value::Integer(channel.room as i32)),
            ];
            make(&mut probe, "8.1", number, 13, &columns);
            channels.push(channel);
        }
        for (id, packet) in count(&mut probe, &file, |_, _| {}).iter().enumerate() {
            for channel in &mut channels {
                channel.take(packet, id + 1, first * 10_000_000);
            }
        }
        assert!(channels.iter().any(|it| it.is_full && it.wraps), "{trace}");
        let mut expected: Vec<Vec<Value>> = vec![Vec::new(); 5];
        for (number, channel) in (1..).zip(&channels) {
            let shown = |column: &str| probe_value(&mut probe, &format!("{column}.{number}"));
            let mut shown = shown;
            assert_eq!(
                shown("7.2.1.9"),
                Value::Counter32(channel.matches),
                "{trace}, {number}"
            );
            assert_eq!(
                shown("8.1.1.3"),
                Value::Integer(1 + i32::from(channel.is_full))
            );
            assert_eq!(
                shown("8.1.1.10"),
                Value::Integer(channel.buffer.len() as i32)
            );
            for (row, id, bytes, octets, millis) in &channel.buffer {
                let slice = bytes.get(3..).unwrap_or_default();
                let slice = slice[..slice.len().min(30)].to_vec();
                let columns = [
                    Value::Integer(*row),
                    Value::Integer(*id),
                    Value::Octets(slice),
                    Value::Integer(*octets),
                    Value::Integer(*millis),
                ];
                expected
                    .iter_mut()
                    .zip(columns)
                    .for_each(|(all, it)| all.push(it));
            }
        }
        for (column, expected) in (2..).zip(expected) {
            let shown = walk(&mut probe, &format!("8.2.1.{column}"));
            let shown: Vec<Value> = shown.into_iter().map(|(_, value)| value).collect();
            assert!(shown == expected, "{trace}: column {column}");
        }
    }
}

fn probe_value(probe: &mut Probe, object: &str) -> Value {
    flowgauge_rmon::Tree::get(probe, &name(object)).unwrap()
}

/// A channel whose event fires once turns another on, and is turned off by a third's.
#[test]
fn events_turn_channels_on_and_off() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    tick(&mut probe, 1_000_000);
    for event in 1..=2 {
        make(&mut probe, "9.1", event, 7, &[(3, Value::Integer(2))]);
    }
    let port = |port: u8| {
        vec![
            (2, Value::Integer(i32::from(port))),
            (3, Value::Integer(37)),
            (4, Value::Octets(vec![port])),
        ]
    };
    let channel = |control: i32, on: i32, off: i32, event: i32| {
        [
            (2, Value::Integer(1)),
            (4, Value::Integer(control)),
            (5, Value::Integer(on)),
            (6, Value::Integer(off)),
            (7, Value::Integer(event)),
        ]
    };
    // Channel 1 sees port 1 and has event 1, which turns 3 on; 2 sees port 2 and has event 2, which turns 3 off.
    make(&mut probe, "7.2", 1, 12, &channel(1, 0, 0, 1));
    make(&mut probe, "7.2", 2, 12, &channel(1, 0, 0, 2));
    make(&mut probe, "7.2", 3, 12, &channel(2, 1, 2, 0));
    for number in 1..=3_u8 {
        make(&mut probe, "7.1", number.into(), 11, &port(number));
    }
    make(&mut probe, "8.1", 3, 13, &[(2, Value::Integer(3))]);
    let send = |probe: &mut Probe, ports: &[u16]| {
        for port in ports {
            send(probe, 0, 1_000_001, 1, &udp(true, (1, 2), *port));
        }
    };
    let kept = |probe: &mut Probe| probe_value(probe, "8.1.1.10.3");
    send(&mut probe, &[3, 1, 3, 3, 2, 3]);
    assert_eq!(kept(&mut probe), Value::Integer(2));
    assert_eq!(
        probe_value(&mut probe, "7.2.1.9.3"),
        Value::Counter32(4),
        "also while it is off"
    );
    assert_eq!(
        probe_value(&mut probe, "7.2.1.8.1"),
        Value::Integer(2),
        "its event has fired"
    );
    assert_eq!(probe_value(&mut probe, "7.2.1.4.3"), Value::Integer(2));
    send(&mut probe, &[1, 3]);
    assert_eq!(kept(&mut probe), Value::Integer(2), "it fires once");
    // Until it is made ready, here for always.
    set(&mut probe, &[("7.2.1.8.1", Value::Integer(3))]).unwrap();
    send(&mut probe, &[1, 3, 1]);
    assert_eq!(kept(&mut probe), Value::Integer(3));
    assert_eq!(
        walk(&mut probe, "9.2.1.2.1").len(),
        3,
        "events 1 in the log"
    );
    // A channel and its filters may go; the buffer keeps what it has.
    set(&mut probe, &[("7.2.1.12.3", INVALID)]).unwrap();
    set(&mut probe, &[("7.1.1.11.3", INVALID)]).unwrap();
    send(&mut probe, &[3]);
    assert_eq!(kept(&mut probe), Value::Integer(3));
}

#[test]
fn what_a_channel_cannot_be() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    let mut refused = |table: &str, status: u32, columns: &[(u32, Value)]| {
        let row = |column: u32| format!("{table}.1.{column}.9");
        let status = row(status);
        set(&mut probe, &[(&status, CREATE_REQUEST)]).unwrap();
        let names: Vec<String> = columns.iter().map(|it| row(it.0)).collect();
        let mut values = vec![(status.as_str(), VALID)];
        values.extend(
            names
                .iter()
                .zip(columns)
                .map(|(name, it)| (name.as_str(), it.1.clone())),
        );
        let refused = set(&mut probe, &values);
        set(&mut probe, &[(&status, INVALID)]).unwrap();
        refused.map_err(|(_, error)| error)
    };
    let inconsistent = Err(SetError::InconsistentValue);
    // An interface, a channel that is there; nothing before the packet.
    assert_eq!(refused("7.2", 12, &[(2, Value::Integer(2))]), inconsistent);
    assert_eq!(refused("7.2", 12, &[(2, Value::Integer(1))]), Ok(()));
    assert_eq!(refused("8.1", 13, &[(2, Value::Integer(4))]), inconsistent);
    let offset = [(2, Value::Integer(1)), (3, Value::Integer(-1))];
    assert_eq!(refused("7.1", 11, &offset), Err(SetError::WrongValue));
}

/// RFC 4502, filter2Table: a filter looks at packets from the beginning of a protocol on, wherever that is.
#[test]
fn filters_begin_at_a_protocol() {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    tick(&mut probe, 1_000_000);
    let local = |probe: &mut Probe, id: &str| match probe_value(probe, &format!("11.2.1.3.{id}")) {
        Value::Integer(local) => local,
        other => panic!("{other:?}"),
    };
    let v4 = local(&mut probe, "8.0.0.0.1.0.0.8.0.2.0.0");
    let v6_udp = local(&mut probe, "12.0.0.0.1.0.0.134.221.0.0.0.17.3.0.0.0");
    let udp_v4 = local(&mut probe, "12.0.0.0.1.0.0.8.0.0.0.0.17.3.0.0.0");
    let dns = local(&mut probe, "16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.53.4.0.0.0.0");
    // Channel, the two protocols, offset, data: an octet behind UDP's header; the destination's port behind IPv4's options and
    // without; IPv6's by its own beginning; any packet of one protocol; the packet's own beginning, of one protocol.
    let rows: [(u32, i32, i32, i32, &[u8]); 5] = [
        (1, dns, 0, 1, b"y"),
        (2, udp_v4, 0, 2, &[0, 53]),
        (3, v6_udp, 0, 3, &[53]),
        (4, 0, v4, 0, &[]),
        (5, v4, dns, 0, &[0x45]),
    ];
    for (row, data_of, of, offset, data) in rows {
        make(&mut probe, "7.2", row, 12, &[(2, VALID), (4, VALID)]);
        let columns = [
            (2, Value::Integer(row as i32)),
            (3, Value::Integer(offset)),
            (4, Value::Octets(data.to_vec())),
        ];
        make(&mut probe, "7.1", row, 11, &columns);
        for (column, value) in [(1, data_of), (2, of)] {
            let column = format!("7.4.1.{column}.{row}");
            assert_eq!(probe_value(&mut probe, &column), Value::Integer(0));
            // It is active.
            let refused = set(&mut probe, &[(&column, Value::Integer(value.max(1)))]);
            assert_eq!(refused, Err((0, SetError::InconsistentValue)));
            let status = format!("7.1.1.11.{row}");
            set(
                &mut probe,
                &[
                    (&status, Value::Integer(3)),
                    (&column, Value::Integer(value)),
                ],
            )
            .unwrap();
            set(&mut probe, &[(&status, VALID)]).unwrap();
            assert_eq!(probe_value(&mut probe, &column), Value::Integer(value));
        }
    }
    assert_eq!(walk(&mut probe, "7.4").len(), 10);
    assert_eq!(walk(&mut probe, "7.1.1").len(), 11 * 5);
    let mut query = udp(true, (1, 2), 53);
    query.extend(*b"xyz");
    (query[17], query[39]) = (31, 11);
    let mut options = udp(true, (1, 2), 53);
    options.splice(34..34, [1, 1, 1, 1]);
    (options[14], options[17]) = (0x46, 32);
    let mut tagged = query.clone();
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    for frame in [
        &query,
        &options,
        &udp(false, (1, 2), 53),
        &udp(true, (1, 2), 54),
        &tagged,
    ] {
        send(&mut probe, 0, 1_000_001, 1, frame);
    }
    // Over a tag it is another protocol.
    let matches = |probe: &mut Probe, row: u32| probe_value(probe, &format!("7.2.1.9.{row}"));
    let all = [1, 2, 3, 4, 5].map(|row| matches(&mut probe, row));
    assert_eq!(all, [1, 2, 1, 3, 1].map(Value::Counter32));
    // They are kept with their row.
    let saved = probe.save();
    let mut again = Probe::new();
    again.add_interface(1, SPEED);
    again.load(&saved).unwrap();
    assert_eq!(again.untaken().map(ToString::to_string).next(), None);
    assert_eq!(probe_value(&mut again, "7.4.1.1.3"), Value::Integer(v6_udp));
}
