//! Records about DNS queries and their replies.

use crate::exchange::Exchange;
use crate::schema::record;
use crate::text_list::TextList;
use crate::value::{Symbol, filled, listed};

record! {
    /// Fields of an exchange of DNS.
    DNS, DNS_SCHEMA for Exchange<'_, DnsMessage> as it {
        let Some((request, reply, first)) = it.messages() else {
            return;
        };
        let both = || [request, reply].into_iter().flatten();
        let edns = request.and_then(|it| it.edns);
        let counts = reply.map(|it| it.counts);
    }:
    time Time "TIME" 1 = it.time(), "time of the query, or of the reply if there is no query";
    src_ip Address "CLIENT" 1 = it.parties.client_ip(), "address of the client";
    src_port Unsigned "PORT" 5 = it.parties.client.1, "port of the client";
    dst_ip Address "SERVER" 1 = it.parties.server_ip(), "address of the server, or the group";
    dst_port Unsigned "PORT" 4 = it.parties.server.1, "port of the server";
    proto Text = it.carrier(), "udp or tcp";
    service: &'static str, Text = Symbol(first.service), "dns, mdns, llmnr, nbns, or doh: DNS within HTTP/2";
    trans_id (id: u16) Unsigned "ID" 5 = first.id, "number of the query";
    opcode: String, Text = Symbol(&first.opcode), "query, notify, update, ...";
    query: String, Text "QUERY" 1 = filled(&first.query), "name queried, or without a question that of the first answer";
    qclass: String, Text = filled(&first.qclass), "class of the question";
    qtype: String, Text "TYPE" 1 = filled(&first.qtype), "type of the question";
    rcode: String, Text "RCODE" 1 = reply.and_then(|it| filled(&it.rcode)), "response code, that of EDNS included";
    aa (is_authoritative: bool) Text = reply.map(|it| it.is_authoritative), "yes: the server has authority over the name";
    tc (is_truncated: bool) Text = reply.map(|it| it.is_truncated), "yes: part of the reply was left out";
    rd (wants_recursion: bool) Text = first.wants_recursion, "yes: the client wants recursion";
    ra (has_recursion: bool) Text = reply.map(|it| it.has_recursion), "yes: the server does recursion";
    ad Text = reply.map(|it| it.is_authentic), "yes: the server says that the data is authentic";
    cd (checks_disabled: bool) Text = first.checks_disabled, "yes: the client checks signatures itself";
    ad_wanted Text = request.map(|it| it.is_authentic), "yes: the client wants to know whether the data is authentic";
    z (has_reserved: bool) Text = both().any(|it| it.has_reserved), "yes: the bit without a meaning is set in one of both";
    dnssec_ok Text = edns.map(|it| it.0), "yes: the client wants signatures; null without EDNS";
    edns_bytes Unsigned Bytes = edns.map(|it| it.1), "largest datagram that the client takes, by EDNS";
    client_subnet: String, Text = both().find_map(|it| filled(&it.client_subnet)), "network on whose behalf is asked, by EDNS";
    answers: TextList, Texts "ANSWERS" 2 = reply.map(|it| &it.answers), "the answers, in order";
    answer_types: TextList, Texts = reply.map(|it| &it.answer_types), "their types";
    ttls: Vec<u32>, List Seconds = reply.and_then(|it| listed(&it.ttls)), "their times to live";
    answer_names: TextList, Texts = reply.map(|it| &it.answer_names), "the names that they are of";
    authorities: TextList, Texts = reply.map(|it| &it.authorities), "records of authorities in the reply, as zone files have them: name, time to live, type, data";
    additionals: TextList, Texts = reply.map(|it| &it.additionals), "additional records in the reply, likewise, without that of EDNS";
    request_flags Unsigned = request.map(|it| it.flags), "second word of the query's header: flags, opcode, code";
    reply_flags Unsigned = reply.map(|it| it.flags), "the same of the reply";
    request_place Unsigned = request.map(|it| it.place), "position of the query among the messages of its flow, from 1";
    reply_place Unsigned = reply.map(|it| it.place), "the same of the reply";
    questions Unsigned = first.counts[0], "number of questions in the header of the query, or of the reply if there \
    is no query";
    answer_count Unsigned = counts.map(|it| it[1]), "answers announced by the reply";
    authority_count Unsigned = counts.map(|it| it[2]), "records of authorities announced by the reply";
    additional_count Unsigned = counts.map(|it| it[3]), "additional records announced by the reply";
    request_bytes Unsigned Bytes = request.map(|it| it.bytes), "bytes of the query";
    reply_bytes Unsigned Bytes = reply.map(|it| it.bytes), "bytes of the reply, or of all messages of a zone transfer";
    latency Duration Seconds "LATENCY" 1 = it.latency(), "from the (first) query to the reply";
    state Text "STATE" 3 = Symbol(it.state()), "matched, no_reply or no_request";
    repeats Unsigned = it.repeats, "repetitions of the query before the reply";
    limit Text = it.limit.or(both().find_map(|it| it.limit)), "requests: too many waiting for replies (256); memory: \
    none left for waiting requests, so this one has no reply; answers: more than are recorded (1,024, or 32 KiB of text); or null";
    odd: &'static str, Text "ODD" 4 = both().find_map(|it| filled(it.odd)), "why a message could not be read to its end, or null";

    /// The contents of a message. Its buffers can be reused ([`crate::Held::clear`]).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DnsMessage {
        /// The AD flag.
        pub is_authentic: bool,
        /// The DO flag and the maximum datagram size, if there is EDNS.
        pub edns: Option<(bool, u16)>,
        /// Second word of the header.
        pub flags: u16,
        /// Position among the messages of the flow, from 1.
        pub place: u64,
        /// Questions, answers, authorities, additional records, according to the message.
        pub counts: [u16; 4],
        /// Its size in bytes.
        pub bytes: u64,
        /// The first limit that caused an omission.
        pub limit: Option<&'static str>,
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{Address, Nanos};

    use super::*;
    use crate::Held as _;
    use crate::encoder::{Encoder, Format};
    use crate::parties::Parties;

    #[test]
    fn a_query_and_its_reply_and_either_alone() {
        let mut request = DnsMessage {
            service: "dns",
            id: 7,
            opcode: "query".to_owned(),
            query: "a.example".to_owned(),
            qclass: "IN".to_owned(),
            qtype: "A".to_owned(),
            wants_recursion: true,
            edns: Some((true, 1232)),
            counts: [1, 0, 0, 1],
            bytes: 40,
            flags: 0x100,
            place: 1,
            ..DnsMessage::default()
        };
        let mut reply = DnsMessage {
            rcode: "NOERROR".to_owned(),
            has_recursion: true,
            ttls: vec![60, 30],
            counts: [1, 2, 1, 1],
            bytes: 90,
            flags: 0x8180,
            place: 2,
            ..request.clone()
        };
        for text in ["b.example", "192.0.2.1"] {
            reply.answers.push(|out| out.push_str(text));
            reply.answer_types.push(|out| out.push('A'));
            reply.answer_names.push(|out| out.push_str("a.example"));
        }
        reply
            .authorities
            .push(|out| out.push_str("example 60 NS c.example"));
        let mut exchange = Exchange {
            parties: Parties {
                client: (Address::v4([192, 0, 2, 1]), 5000),
                server: (Address::v4([192, 0, 2, 2]), 53),
                ip_version: 4,
            },
            protocol: 17,
            request: Some((Nanos::from_secs(1), &request)),
            reply: Some((Nanos(1_500_000_000), &reply)),
            repeats: 1,
            limit: None,
        };
        let json = |exchange: &Exchange<'_, DnsMessage>| {
            let mut text = Vec::new();
            Encoder::new(Format::Json).encode(exchange, &mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!(
            json(&exchange),
            "{\"time\":\"1970-01-01T00:00:01.000000000Z\",\"src_ip\":\"192.0.2.1\",\"src_port\":5000,\
             \"dst_ip\":\"192.0.2.2\",\"dst_port\":53,\"proto\":\"udp\",\"service\":\"dns\",\"trans_id\":7,\
             \"opcode\":\"query\",\"query\":\"a.example\",\"qclass\":\"IN\",\"qtype\":\"A\",\"rcode\":\"NOERROR\",\
             \"aa\":\"no\",\"tc\":\"no\",\"rd\":\"yes\",\"ra\":\"yes\",\"ad\":\"no\",\"cd\":\"no\",\"ad_wanted\":\"no\",\"z\":\"no\",\
             \"dnssec_ok\":\"yes\",\"edns_bytes\":1232,\"client_subnet\":null,\
             \"answers\":[\"b.example\",\"192.0.2.1\"],\"answer_types\":[\"A\",\"A\"],\"ttls\":[60,30],\
             \"answer_names\":[\"a.example\",\"a.example\"],\"authorities\":[\"example 60 NS c.example\"],\
             \"additionals\":null,\"request_flags\":256,\"reply_flags\":33152,\"request_place\":1,\
             \"reply_place\":2,\
             \"questions\":1,\"answer_count\":2,\"authority_count\":1,\"additional_count\":1,\
             \"request_bytes\":40,\"reply_bytes\":90,\"latency\":0.500000000,\"state\":\"matched\",\
             \"repeats\":1,\"limit\":null,\"odd\":null}\n"
        );
        exchange.reply = None;
        let text = json(&exchange);
        assert!(text.contains("\"rcode\":null,\"aa\":null,"), "{text}");
        assert!(
            text.contains("\"latency\":null,\"state\":\"no_reply\""),
            "{text}"
        );
        (exchange.request, exchange.reply) = (None, Some((Nanos::from_secs(2), &reply)));
        let text = json(&exchange);
        assert!(
            text.starts_with("{\"time\":\"1970-01-01T00:00:02"),
            "{text}"
        );
        assert!(text.contains("\"dnssec_ok\":null,") && text.contains("\"state\":\"no_request\""));
        let mut fields = Vec::new();
        Encoder::new(Format::Csv).encode(&exchange, &mut fields);
        request.clear();
        assert_eq!(request, DnsMessage::default());
    }
}
