//! Records about messages of the Network Time Protocol.

use flowgauge_wire::Nanos;

use crate::exchange::Exchange;
use crate::held::held;
use crate::schema::record;
use crate::value::{Symbol, filled};

record! {
    /// Fields of a request for the time and its reply, or of a message alone.
    NTP, NTP_SCHEMA for Exchange<'_, NtpMessage> as it {
        let Some((_, message)) = it.reply.or(it.request) else {
            return;
        };
        let clock = message.clock.as_ref();
    }:
    time Time "TIME" 1 = it.time(), "time of the request, or of the reply if there is no request";
    src_ip Address "CLIENT" 1 = it.parties.client_ip(), "address of the client";
    src_port Unsigned "PORT" 5 = it.parties.client.1, "port of the client";
    dst_ip Address "SERVER" 1 = it.parties.server_ip(), "address of the server, or the group";
    dst_port Unsigned "PORT" 5 = it.parties.server.1, "port of the server";
    proto Text = it.carrier(), "udp";
    version Unsigned "VERSION" 3 = message.version, "version of the reply, or of the request if there is no reply";
    mode Text "MODE" 1 = Symbol(message.mode), "mode of the same: client, server, broadcast, symmetric_active, symmetric_passive, control, private";
    stratum: u8, Unsigned "STRATUM" 2 = clock.map(|it| it.stratum), "distance of its sender to a reference clock in hosts";
    poll: f64, Float Seconds = clock.map(|it| it.poll), "interval between its messages";
    precision: f64, Float Seconds = clock.map(|it| it.precision), "precision of its clock";
    root_delay: f64, Float Seconds = clock.map(|it| it.root_delay), "its round trip to the reference clock";
    root_disp (root_dispersion: f64) Float Seconds = clock.map(|it| it.root_dispersion), "its uncertainty to the reference clock";
    ref_id (reference: String) Text "REFERENCE" 2 = clock.and_then(|it| filled(&it.reference)), "reference clock or \
    host; for stratum 0 the kiss code";
    ref_time Time = clock.and_then(|it| it.times[0]), "when its clock was set";
    org_time Time = clock.and_then(|it| it.times[1]), "when the request left, by the client's clock";
    rec_time Time = clock.and_then(|it| it.times[2]), "arrival of the request, by the server's clock";
    xmt_time Time = clock.and_then(|it| it.times[3]), "when the message left, by its sender's clock";
    latency Duration Seconds "LATENCY" 1 = it.latency(), "from the (first) request to the reply";
    state Text "STATE" 3 = Symbol(it.state()), "matched, no_reply or no_request";
    repeats Unsigned = it.repeats, "repetitions of the request before the reply";
    limit Text = it.limit, "requests: too many waiting for replies (256); memory: none left for waiting requests, so \
    this one has no reply; or null";

    /// The fields of a message about its sender's clock.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct NtpClock {
        /// Reference, origin, receive and transmit time.
        pub times: [Option<Nanos>; 4],
        /// Origin and transmit timestamp, as sent.
        pub raw: [u64; 2],
    }
}

held! {
    /// A message of NTP.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct NtpMessage {
        /// Version.
        pub version: u8,
        /// Mode.
        pub mode: &'static str,
        /// Its sender's clock, except in control messages.
        pub clock: Option<NtpClock>,
    }
}
