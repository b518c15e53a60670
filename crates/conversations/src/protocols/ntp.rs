//! NTP: requests for the time and their replies.

use flowgauge_proto::ntp::{Clock, Message, look, mode_name};
use flowgauge_record::ntp::{NTP_SCHEMA, NtpClock, NtpMessage};
use flowgauge_stack::ComponentInfo;
use flowgauge_wire::Nanos;

use super::datagrams::{AnsweredBy, Datagrams, Role, Talk};
use super::table::Table;
use super::{At, ProtocolInfo, Transport, alone};

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "ntp",
    transport: Transport::Udp,
    ports: &[123],
    look: |seen| seen.on(PROTOCOL.ports, seen.either(look)),
    // A port has to say so, too.
    begins_datagram: |_| false,
    table: Table::<Talk<Ntp>>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ntp",
    summary: "finds NTP requests and their replies",
    help: "A reply belongs to the request whose time it repeats. Control messages and broadcasts have no \
           partner. Takes datagrams.",
    fields: |_| Some(NTP_SCHEMA),
    make: alone::make::<Talk<Ntp>>,
    ..alone::INFO
};

/// The protocol.
pub(super) struct Ntp;

impl Datagrams for Ntp {
    type Message = NtpMessage;

    const ANSWERED_BY: AnsweredBy = AnsweredBy::Server;
    const STANDS_ALONE: bool = true;

    fn read(bytes: &[u8], _: &At<'_>, message: &mut NtpMessage) -> Option<Role> {
        let parsed = Message::read(bytes)?;
        message.version = parsed.version;
        message.mode = mode_name(parsed.mode);
        message.clock = parsed.clock.map(read_clock);
        Some(match parsed.mode {
            // Either side of two that follow each other asks; one that repeats the other's time answers.
            1 => Role::Either,
            3 => Role::Request,
            6 | 7 if !parsed.is_control_reply => Role::Alone,
            _ => Role::Reply,
        })
    }

    fn is_same(one: &NtpMessage, other: &NtpMessage) -> bool {
        one.mode == other.mode && one.clock == other.clock
    }

    /// A reply has the time at which the request left, by its client.
    fn is_answer(request: &NtpMessage, reply: &NtpMessage) -> bool {
        match (&request.clock, &reply.clock) {
            (Some(request), Some(reply)) => request.raw[1] == reply.raw[0],
            _ => false,
        }
    }
}

fn read_clock(clock: Clock) -> NtpClock {
    let mut reference = String::new();
    clock.write_reference(&mut reference);
    // Times to the second would be 2^-128 to 2^127: far from infinite.
    let power = |exponent: i8| 2_f64.powi(i32::from(exponent));
    let fixed = |value: u32| f64::from(value) / 65_536.0;
    let times = [clock.reference, clock.origin, clock.receive, clock.transmit];
    NtpClock {
        stratum: clock.stratum,
        poll: power(clock.poll),
        precision: power(clock.precision),
        root_delay: fixed(clock.root_delay),
        root_dispersion: fixed(clock.root_dispersion),
        reference,
        times: times.map(|time| time.unix_nanos().map(Nanos)),
        raw: [clock.origin.0, clock.transmit.0],
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Said, Tester, cuts_and_gaps};
    use super::*;

    fn message(mode: u8, stratum: u8, origin: u64, transmit: u64) -> Vec<u8> {
        let mut bytes = vec![0x20 | mode, stratum, 6, 0xec];
        bytes.extend([0, 0, 0x80, 0, 0, 1, 0, 0, 192, 0, 2, 9]);
        for seconds in [0, origin, 0, transmit] {
            let since_1900 = if seconds == 0 {
                0
            } else {
                seconds + 2_208_988_800
            };
            bytes.extend((since_1900 << 32).to_be_bytes());
        }
        bytes
    }

    const COLUMNS: &[&str] = &[
        "mode", "stratum", "ref_id", "org_time", "latency", "repeats", "state",
    ];

    #[test]
    fn a_reply_repeats_the_time_of_its_request() {
        let mut tester = Tester::<Talk<Ntp>>::udp([10, 0, 0, 1], 123, [10, 0, 0, 2], 123);
        tester.say(true, 1, &message(3, 0, 0, 100));
        tester.say(true, 2, &message(3, 0, 0, 101));
        tester.say(false, 3, &message(4, 2, 100, 500));
        tester.say(false, 4, &message(4, 2, 77, 500));
        tester.say(false, 5, &message(5, 2, 0, 500));
        tester.say(true, 6, b"\x16\x02\0\x01\0\0\0\0\0\0\0\0");
        tester.close();
        assert_eq!(
            tester.rows(COLUMNS),
            [
                r#""server" 2 "192.0.2.9" "1970-01-01T00:01:40.000000000Z" 2.0 0 "matched""#,
                r#""server" 2 "192.0.2.9" "1970-01-01T00:01:17.000000000Z" null 0 "no_request""#,
                r#""broadcast" 2 "192.0.2.9" null null 0 "no_request""#,
                r#""control" null null null null 0 "no_reply""#,
                r#""client" 0 null null null 0 "no_reply""#,
            ]
        );
        assert_eq!(
            tester.rows(&["poll", "root_delay", "root_disp", "version"])[0],
            "64 0.5 1 4"
        );
    }

    #[test]
    fn of_two_that_follow_each_other_both_ask() {
        let mut tester = Tester::<Talk<Ntp>>::udp([10, 0, 0, 1], 123, [10, 0, 0, 2], 123);
        tester.say(true, 1, &message(1, 2, 0, 100));
        tester.say(false, 2, &message(1, 3, 100, 200));
        tester.say(false, 3, &message(1, 3, 50, 201));
        tester.close();
        assert_eq!(
            tester.rows(&["src_ip", "mode", "stratum", "state"]),
            [
                r#""10.0.0.1" "symmetric_active" 3 "matched""#,
                r#""10.0.0.2" "symmetric_active" 3 "no_reply""#,
            ]
        );
    }

    #[test]
    fn a_message_that_is_cut_or_missing_costs_no_other() {
        let said = [
            Said::new(true, 100, &message(3, 0, 0, 100)),
            Said::new(false, 100, &message(4, 2, 100, 500)),
            Said::new(true, 200, &message(3, 0, 0, 200)),
            Said::new(false, 200, &message(4, 2, 200, 600)),
        ];
        cuts_and_gaps(
            || Tester::<Talk<Ntp>>::udp([10, 0, 0, 1], 123, [10, 0, 0, 2], 123),
            &said,
            |missing, records| {
                let matched: Vec<&str> = (records.iter())
                    .filter(|it| it["state"] == "matched")
                    .filter_map(|it| it["org_time"].as_str())
                    .collect();
                let other = match missing / 2 {
                    0 => "1970-01-01T00:03:20.000000000Z",
                    _ => "1970-01-01T00:01:40.000000000Z",
                };
                assert_eq!(matched, [other], "without {missing}: {records:?}");
                // The other half of the pair is there, alone.
                let alone = match missing % 2 {
                    0 => "no_request",
                    _ => "no_reply",
                };
                assert!(
                    records.iter().any(|it| it["state"] == alone),
                    "without {missing}: {records:?}"
                );
            },
        );
    }
}
