//! Records about messages of the Network Time Protocol.

use flowgauge_wire::Nanos;

use crate::any::KnownRecord;
use crate::exchange::Exchange;
use crate::parties::{filled_or_null, number_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of a request for the time and its reply, or of a message alone.
    NtpFields, NTP, NTP_SCHEMA:
    time Time None "TIME" 1 "when the request was captured, or where there is none the reply";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 5 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server, or the group";
    dst_port Unsigned None "PORT" 5 "port of the server";
    proto Text None "" 0 "udp";
    version Unsigned None "VERSION" 3 "version of the reply, or of the request where there is no reply";
    mode Text None "MODE" 1 "mode of the same: client, server, broadcast, symmetric_active, symmetric_passive, control, private";
    stratum Unsigned None "STRATUM" 2 "distance of its sender to a reference clock in hosts";
    poll Float Seconds "" 0 "interval between its messages";
    precision Float Seconds "" 0 "precision of its clock";
    root_delay Float Seconds "" 0 "its round trip to the reference clock";
    root_disp Float Seconds "" 0 "its uncertainty to the reference clock";
    ref_id Text None "REFERENCE" 2 "clock or host that it follows; of stratum 0 what it wants to say";
    ref_time Time None "" 0 "when its clock was set";
    org_time Time None "" 0 "when the request left, by the client's clock";
    rec_time Time None "" 0 "when the request came, by the server's clock";
    xmt_time Time None "" 0 "when the message left, by its sender's clock";
    latency Duration Seconds "LATENCY" 1 "from the request, where it came again from the first, to the reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    repeats Unsigned None "" 0 "how often the request came again before the reply";
    limit Text None "" 0 "requests: more waited for their replies than are kept (256); memory: there was none left for them: so that this one has no reply; or null";
}

/// A message of NTP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NtpMessage {
    /// Version.
    pub version: u8,
    /// Mode.
    pub mode: &'static str,
    /// What it says of its sender's clock, except in control messages.
    pub clock: Option<NtpClock>,
}

/// What a message says of its sender's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NtpClock {
    /// Distance to a reference clock in hosts.
    pub stratum: u8,
    /// Interval between messages, s.
    pub poll: f64,
    /// Precision, s.
    pub precision: f64,
    /// Round trip to the reference clock, s.
    pub root_delay: f64,
    /// Uncertainty to it, s.
    pub root_dispersion: f64,
    /// What it follows.
    pub reference: String,
    /// When it was set; when the request left, when it came, when the message left.
    pub times: [Option<Nanos>; 4],
    /// As they are sent: when the request left, when the message left.
    pub raw: [u64; 2],
}

impl Record for Exchange<'_, NtpMessage> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let parties = [
            &NTP.time,
            &NTP.src_ip,
            &NTP.src_port,
            &NTP.dst_ip,
            &NTP.dst_port,
            &NTP.proto,
        ];
        self.visit_parties(parties, visitor);
        let Some((_, message)) = self.reply.or(self.request) else {
            return;
        };
        visitor.unsigned(&NTP.version, u64::from(message.version));
        visitor.symbol(&NTP.mode, message.mode.as_bytes());
        let clock = message.clock.as_ref();
        number_or_null(visitor, &NTP.stratum, clock.map(|it| it.stratum));
        let mut float = |field, of: fn(&NtpClock) -> f64| match clock {
            Some(clock) => visitor.float(field, of(clock)),
            None => visitor.null(field),
        };
        float(&NTP.poll, |it| it.poll);
        float(&NTP.precision, |it| it.precision);
        float(&NTP.root_delay, |it| it.root_delay);
        float(&NTP.root_disp, |it| it.root_dispersion);
        filled_or_null(visitor, &NTP.ref_id, clock.map_or("", |it| &it.reference));
        let fields = [&NTP.ref_time, &NTP.org_time, &NTP.rec_time, &NTP.xmt_time];
        for (index, field) in fields.into_iter().enumerate() {
            match clock.and_then(|it| it.times.get(index).copied().flatten()) {
                Some(time) => visitor.time(field, time),
                None => visitor.null(field),
            }
        }
        self.visit_state(
            [&NTP.latency, &NTP.state, &NTP.repeats, &NTP.limit],
            None,
            visitor,
        );
    }
}

impl KnownRecord for Exchange<'_, NtpMessage> {
    fn schema(&self) -> Schema {
        NTP_SCHEMA
    }
}
