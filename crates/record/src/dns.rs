//! Records about DNS queries and their replies.

use crate::any::KnownRecord;
use crate::exchange::Exchange;
use crate::parties::{filled_or_null, number_or_null, yes_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};
use crate::text_list::TextList;

fields! {
    /// Fields of an exchange of DNS.
    DnsFields, DNS, DNS_SCHEMA:
    time Time None "TIME" 1 "when the query was captured, or where there is none the reply";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 5 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server, or the group";
    dst_port Unsigned None "PORT" 4 "port of the server";
    proto Text None "" 0 "udp or tcp";
    service Text None "" 0 "dns, mdns, llmnr, nbns, or doh: DNS within HTTP/2";
    trans_id Unsigned None "ID" 5 "number of the query";
    opcode Text None "" 0 "query, notify, update, ...";
    query Text None "QUERY" 1 "name that is asked for, or where no question is repeated that of the first answer";
    qclass Text None "" 0 "class of the question";
    qtype Text None "TYPE" 1 "type of the question";
    rcode Text None "RCODE" 1 "response code, that of EDNS included";
    aa Text None "" 0 "yes: the server has authority over the name";
    tc Text None "" 0 "yes: part of the reply was left out";
    rd Text None "" 0 "yes: the client wants recursion";
    ra Text None "" 0 "yes: the server does recursion";
    ad Text None "" 0 "yes: the server says that the data is authentic";
    cd Text None "" 0 "yes: the client checks signatures itself";
    ad_wanted Text None "" 0 "yes: the client wants to know whether the data is authentic";
    z Text None "" 0 "yes: the bit without a meaning is set in one of both";
    dnssec_ok Text None "" 0 "yes: the client wants signatures; null without EDNS";
    edns_bytes Unsigned Bytes "" 0 "largest datagram that the client takes, by EDNS";
    client_subnet Text None "" 0 "network on whose behalf is asked, by EDNS";
    answers Texts None "ANSWERS" 2 "what the answers say, in order";
    answer_types Texts None "" 0 "their types";
    ttls List Seconds "" 0 "their times to live";
    answer_names Texts None "" 0 "the names that they are of";
    authorities Texts None "" 0 "records of authorities in the reply, as zone files have them: name, time to live, type, data";
    additionals Texts None "" 0 "additional records in the reply, likewise, without that of EDNS";
    request_flags Unsigned None "" 0 "second word of the query's header: flags, opcode, code";
    reply_flags Unsigned None "" 0 "the same of the reply";
    request_place Unsigned None "" 0 "position of the query among the messages of its flow, from 1";
    reply_place Unsigned None "" 0 "the same of the reply";
    questions Unsigned None "" 0 "questions announced by the query, or by the reply where there is none";
    answer_count Unsigned None "" 0 "answers announced by the reply";
    authority_count Unsigned None "" 0 "records of authorities announced by the reply";
    additional_count Unsigned None "" 0 "additional records announced by the reply";
    request_bytes Unsigned Bytes "" 0 "bytes of the query";
    reply_bytes Unsigned Bytes "" 0 "bytes of the reply, or of all messages of a zone transfer";
    latency Duration Seconds "LATENCY" 1 "from the query, where it came again from the first, to the reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    repeats Unsigned None "" 0 "how often the query came again before the reply";
    limit Text None "" 0 "requests: more waited for their replies than are kept (256); memory: there was none left for them: so that this one has no reply; answers: more than are written down (1,024, or 32 KiB of text); or null";
    odd Text None "ODD" 4 "why a message could not be read to its end, or null";
}

/// What a message says. Its buffers can be used again ([`DnsMessage::clear`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsMessage {
    /// `dns`, `mdns`, `llmnr` or `nbns`.
    pub service: &'static str,
    /// Number of the query.
    pub id: u16,
    /// What kind of request.
    pub opcode: String,
    /// First question's name.
    pub query: String,
    /// Its class.
    pub qclass: String,
    /// Its type.
    pub qtype: String,
    /// Response code; of a query nothing.
    pub rcode: String,
    /// AA.
    pub is_authoritative: bool,
    /// TC.
    pub is_truncated: bool,
    /// RD.
    pub wants_recursion: bool,
    /// RA.
    pub has_recursion: bool,
    /// AD.
    pub is_authentic: bool,
    /// CD.
    pub checks_disabled: bool,
    /// Z.
    pub has_reserved: bool,
    /// DO and the largest datagram, where there is EDNS.
    pub edns: Option<(bool, u16)>,
    /// Client subnet of EDNS.
    pub client_subnet: String,
    /// What the answers say.
    pub answers: TextList,
    /// Their types.
    pub answer_types: TextList,
    /// Their times to live, s.
    pub ttls: Vec<u32>,
    /// The names that they are of.
    pub answer_names: TextList,
    /// Records of authorities: name, time to live, type and data with blanks between.
    pub authorities: TextList,
    /// Additional records, likewise.
    pub additionals: TextList,
    /// Second word of the header.
    pub flags: u16,
    /// Position among the messages of the flow, from 1.
    pub place: u64,
    /// Questions, answers, authorities, additional records, as the message says.
    pub counts: [u16; 4],
    /// Bytes of it.
    pub bytes: u64,
    /// Why it could not be read to its end.
    pub odd: &'static str,
    /// The first bound that left something out.
    pub limit: Option<&'static str>,
}

impl DnsMessage {
    /// Forgets all but the buffers.
    pub fn clear(&mut self) {
        let take = |mut text: String| {
            text.clear();
            text
        };
        let mut old = core::mem::take(self);
        old.answers.clear();
        old.answer_types.clear();
        old.answer_names.clear();
        old.authorities.clear();
        old.additionals.clear();
        old.ttls.clear();
        *self = DnsMessage {
            opcode: take(old.opcode),
            query: take(old.query),
            qclass: take(old.qclass),
            qtype: take(old.qtype),
            rcode: take(old.rcode),
            client_subnet: take(old.client_subnet),
            answers: old.answers,
            answer_types: old.answer_types,
            answer_names: old.answer_names,
            authorities: old.authorities,
            additionals: old.additionals,
            ttls: old.ttls,
            ..DnsMessage::default()
        };
    }
}

impl Record for Exchange<'_, DnsMessage> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let request = self.request.map(|it| it.1);
        let reply = self.reply.map(|it| it.1);
        self.visit_parties(
            [
                &DNS.time,
                &DNS.src_ip,
                &DNS.src_port,
                &DNS.dst_ip,
                &DNS.dst_port,
                &DNS.proto,
            ],
            visitor,
        );
        let Some(first) = self.first() else { return };
        visitor.symbol(&DNS.service, first.service.as_bytes());
        visitor.unsigned(&DNS.trans_id, u64::from(first.id));
        visitor.symbol(&DNS.opcode, first.opcode.as_bytes());
        // A server that could not read the query repeats none.
        filled_or_null(visitor, &DNS.query, &first.query);
        filled_or_null(visitor, &DNS.qclass, &first.qclass);
        filled_or_null(visitor, &DNS.qtype, &first.qtype);
        filled_or_null(visitor, &DNS.rcode, reply.map_or("", |it| &it.rcode));
        let of_reply = |flag: fn(&DnsMessage) -> bool| reply.map(flag);
        let of_first = |flag: fn(&DnsMessage) -> bool| Some(flag(first));
        let both = || [request, reply].into_iter().flatten();
        yes_or_null(visitor, &DNS.aa, of_reply(|it| it.is_authoritative));
        yes_or_null(visitor, &DNS.tc, of_reply(|it| it.is_truncated));
        yes_or_null(visitor, &DNS.rd, of_first(|it| it.wants_recursion));
        yes_or_null(visitor, &DNS.ra, of_reply(|it| it.has_recursion));
        yes_or_null(visitor, &DNS.ad, of_reply(|it| it.is_authentic));
        yes_or_null(visitor, &DNS.cd, of_first(|it| it.checks_disabled));
        yes_or_null(visitor, &DNS.ad_wanted, request.map(|it| it.is_authentic));
        yes_or_null(visitor, &DNS.z, Some(both().any(|it| it.has_reserved)));
        let edns = request.and_then(|it| it.edns);
        yes_or_null(visitor, &DNS.dnssec_ok, edns.map(|it| it.0));
        number_or_null(visitor, &DNS.edns_bytes, edns.map(|it| it.1));
        let mut subnet = both().map(|it| it.client_subnet.as_str());
        let subnet = subnet.find(|it| !it.is_empty());
        filled_or_null(visitor, &DNS.client_subnet, subnet.unwrap_or_default());
        let list = |visitor: &mut V, field, texts: fn(&DnsMessage) -> &TextList| match reply {
            Some(reply) => texts(reply).visit(field, visitor),
            None => visitor.null(field),
        };
        list(visitor, &DNS.answers, |it| &it.answers);
        list(visitor, &DNS.answer_types, |it| &it.answer_types);
        match reply.filter(|it| !it.ttls.is_empty()) {
            Some(reply) => visitor.list(&DNS.ttls, &reply.ttls),
            None => visitor.null(&DNS.ttls),
        }
        list(visitor, &DNS.answer_names, |it| &it.answer_names);
        list(visitor, &DNS.authorities, |it| &it.authorities);
        list(visitor, &DNS.additionals, |it| &it.additionals);
        number_or_null(visitor, &DNS.request_flags, request.map(|it| it.flags));
        number_or_null(visitor, &DNS.reply_flags, reply.map(|it| it.flags));
        number_or_null(visitor, &DNS.request_place, request.map(|it| it.place));
        number_or_null(visitor, &DNS.reply_place, reply.map(|it| it.place));
        let [questions, ..] = first.counts;
        visitor.unsigned(&DNS.questions, u64::from(questions));
        let counts = reply.map(|it| it.counts);
        number_or_null(visitor, &DNS.answer_count, counts.map(|it| it[1]));
        number_or_null(visitor, &DNS.authority_count, counts.map(|it| it[2]));
        number_or_null(visitor, &DNS.additional_count, counts.map(|it| it[3]));
        number_or_null(visitor, &DNS.request_bytes, request.map(|it| it.bytes));
        number_or_null(visitor, &DNS.reply_bytes, reply.map(|it| it.bytes));
        self.visit_state(
            [&DNS.latency, &DNS.state, &DNS.repeats, &DNS.limit],
            both().find_map(|it| it.limit),
            visitor,
        );
        let odd = both().map(|it| it.odd).find(|odd| !odd.is_empty());
        filled_or_null(visitor, &DNS.odd, odd.unwrap_or_default());
    }
}

impl KnownRecord for Exchange<'_, DnsMessage> {
    fn schema(&self) -> Schema {
        DNS_SCHEMA
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{Address, Nanos};

    use super::*;
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
