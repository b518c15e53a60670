//! Each parser on any bytes, in any pieces, with any gaps. Nothing is to panic, and what is reported is to be
//! consistent.

#![allow(dead_code, reason = "a fuzz target is about one parser")]

use flowgauge_proto::{
    dhcp, dns, ftp, http, http2, icp, mime, ntp, quic, rpc, smtp, snmp, ssh, tls,
};

/// Pieces of bytes: each has a byte before it, of which the lower six bits say how long it is, and the
/// highest that bytes are missing before it, as many as the next byte says.
fn pieces(mut bytes: &[u8], mut take: impl FnMut(u64, &[u8])) {
    while let Some((&first, mut rest)) = bytes.split_first() {
        let mut missing = 0;
        if first & 0x80 != 0 {
            let Some((&byte, behind)) = rest.split_first() else {
                return;
            };
            (missing, rest) = (u64::from(byte), behind);
        }
        let (piece, behind) = rest.split_at(usize::from(first & 0x3f).min(rest.len()));
        take(missing, piece);
        bytes = behind;
    }
}

/// What a parser of HTTP says: messages follow each other, and bytes are counted.
#[derive(Default)]
struct Messages {
    is_open: bool,
    has_head: bool,
    is_headless: bool,
    body: u64,
    missing: u64,
}

impl http::Events for Messages {
    fn begin(&mut self) {
        assert!(!self.is_open);
        self.is_open = true;
        self.has_head = false;
        (self.body, self.missing) = (0, 0);
    }

    fn head(&mut self, head: &http::Head<'_>, framing: http::Framing) -> http::Framing {
        assert!(self.is_open && !self.has_head);
        self.has_head = true;
        head.headers().for_each(drop);
        framing
    }

    fn is_headless(&self) -> bool {
        self.is_headless
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(self.has_head);
        self.body += bytes.len() as u64;
    }

    fn missing(&mut self, bytes: u64) {
        assert!(self.has_head);
        self.missing += bytes;
    }

    fn end(&mut self, end: &http::End) {
        assert!(self.is_open);
        self.is_open = false;
        assert_eq!(end.missing_bytes, self.missing);
        assert_eq!(end.body_bytes, self.body + self.missing);
    }
}

/// Messages of HTTP/1. The lowest bit of the first byte says that the request was one of HTTP/0.9.
pub(crate) fn http(bytes: &[u8]) {
    http::look(bytes);
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let mut said = Messages {
        is_headless: first & 1 != 0,
        ..Messages::default()
    };
    let mut parser = http::Parser::default();
    pieces(bytes, |missing, piece| {
        parser.gap(missing, &mut said);
        parser.data(piece, &mut said);
    });
    parser.finish(first & 2 != 0, &mut said);
    assert!(!said.is_open);
}

/// What a parser of HTTP/2 says.
#[derive(Default)]
struct Frames {
    data: u64,
    is_lost: bool,
}

impl http2::Events for Frames {
    fn data(&mut self, _: u32, bytes: &[u8]) {
        assert!(!bytes.is_empty() && !self.is_lost);
        self.data += bytes.len() as u64;
    }

    fn frame(&mut self) {
        self.is_lost = false;
    }

    fn lost(&mut self, _: bool) {
        self.is_lost = true;
    }
}

/// Frames of HTTP/2. The lowest bit of the first byte says that they are a client's.
pub(crate) fn http2(bytes: &[u8]) {
    http2::is_server(bytes);
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let mut parser = match first & 1 {
        0 => http2::Parser::server(),
        _ => http2::Parser::client(),
    };
    let (mut said, mut sent) = (Frames::default(), 0);
    pieces(bytes, |missing, piece| {
        parser.gap(missing, &mut said);
        parser.data(piece, &mut said);
        sent += piece.len() as u64;
    });
    assert!(said.data <= sent);
}

fn dns_message(bytes: &[u8], text: &mut String) {
    let Some(message) = dns::Message::new(bytes) else {
        return;
    };
    let header = message.header();
    let announced: usize = header.counts.iter().map(|&count| usize::from(count)).sum();
    let mut count = 0;
    for part in message.parts() {
        count += 1;
        text.clear();
        match part {
            Ok(dns::Part::Question(question)) => {
                question.name.write(text);
                assert!(question.name.is(&question.name));
                dns::write_type(question.kind, text);
                dns::write_class(question.class, text);
            }
            Ok(dns::Part::Record(record)) => {
                record.name.write(text);
                record.name.write_netbios(text);
                record.data.write(text);
                record.data.write_netbios(text);
                if let Some(edns) = dns::Edns::of(&record) {
                    edns.write_client_subnet(text);
                }
            }
            Err(_) => {}
        }
        assert!(!text.contains('\0'));
    }
    assert!(count <= announced);
}

/// DNS messages and streams of them.
pub(crate) fn dns(bytes: &[u8]) {
    let mut text = String::new();
    dns::look(bytes);
    dns::look_stream(bytes);
    dns_message(bytes, &mut text);
    let mut framer = dns::Framer::default();
    let mut take = |frame: dns::Frame<'_>| match frame {
        dns::Frame::Message(message) | dns::Frame::Cut(message) => dns_message(message, &mut text),
        dns::Frame::Lost => {}
    };
    pieces(bytes, |missing, piece| {
        framer.gap(missing, &mut take);
        framer.data(piece, &mut take);
    });
    framer.finish(&mut take);
}

/// Asks for all that a hello has.
struct Hellos;

impl tls::Events for Hellos {
    fn client_hello(&mut self, hello: &tls::ClientHello<'_>) {
        hello.server_name();
        assert_eq!(tls::ja3(hello).len(), 32);
        assert!(tls::ja4(hello, tls::Carrier::Tcp).len() == 36);
    }

    fn server_hello(&mut self, hello: &tls::ServerHello<'_>) {
        hello.group();
        hello.protocol();
        assert_eq!(tls::ja3s(hello).len(), 32);
    }

    fn certificate(&mut self, der: &[u8]) {
        tls::Certificate::read(der);
    }
}

impl quic::Events for Hellos {}

/// Datagrams of QUIC, and what can be in their packets.
pub(crate) fn quic(bytes: &[u8]) {
    quic::look(bytes);
    let mut parser = quic::Parser::default();
    parser.datagram(true, bytes, &mut Hellos);
    let mut is_initiator = true;
    pieces(bytes, |_, piece| {
        is_initiator = !is_initiator;
        parser.datagram(is_initiator, piece, &mut Hellos);
        parser.payload(is_initiator, piece, &mut Hellos);
    });
}

/// Records of TLS, and certificates.
pub(crate) fn tls(bytes: &[u8]) {
    tls::look(bytes);
    tls::Certificate::read(bytes);
    let mut parser = tls::Parser::default();
    pieces(bytes, |missing, piece| {
        parser.gap(missing, &mut Hellos);
        parser.data(piece, &mut Hellos);
    });
}

/// Datagrams of DTLS.
pub(crate) fn dtls(bytes: &[u8]) {
    tls::look_datagram(bytes);
    let mut parser = tls::DatagramParser::default();
    parser.datagram(bytes, &mut Hellos);
    pieces(bytes, |_, piece| {
        // What is behind a record's head is the fuzzer's.
        let mut datagram = vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, piece.len() as u8];
        datagram.extend_from_slice(piece);
        tls::look_datagram(&datagram);
        parser.datagram(&datagram, &mut Hellos);
    });
}

struct Offers;

impl ssh::Events for Offers {
    fn offer(&mut self, offer: &ssh::Offer<'_>) {
        assert_eq!(offer.hassh(true).len(), 32);
        ssh::agreed(offer.exchange, offer.host_key);
    }

    fn host_key(&mut self, key: &[u8]) {
        assert_eq!(ssh::key_fingerprint(key).len(), 50);
    }
}

/// SSH.
pub(crate) fn ssh(bytes: &[u8]) {
    ssh::look(bytes);
    let mut parser = ssh::Parser::default();
    pieces(bytes, |missing, piece| {
        parser.gap(missing, &mut Offers);
        parser.data(piece, &mut Offers);
    });
}

/// Counts the bytes of messages.
#[derive(Default)]
struct Spoken(u64);

impl smtp::CommandEvents for Spoken {
    fn content(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}

impl ftp::CommandEvents for Spoken {
    fn command(&mut self, _: &[u8], argument: &[u8]) {
        ftp::Endpoint::numbers(argument);
        ftp::Endpoint::extended(argument);
    }
}

impl smtp::ReplyEvents for Spoken {
    fn reply(&mut self, reply: &smtp::Reply<'_>) {
        assert!(reply.code < 1000);
        ftp::Endpoint::numbers(reply.last);
        ftp::Endpoint::extended(reply.last);
    }
}

/// SMTP and FTP.
pub(crate) fn mail_and_files(bytes: &[u8]) {
    smtp::look_client(bytes);
    smtp::look_server(bytes);
    ftp::look_client(bytes);
    ftp::look_server(bytes);
    let (mut mail, mut files) = (smtp::Commands::default(), ftp::Commands::default());
    let mut replies = smtp::Replies::default();
    let mut spoken = Spoken::default();
    let mut all = 0;
    pieces(bytes, |missing, piece| {
        all += piece.len() as u64;
        mail.gap(missing, &mut spoken);
        mail.data(piece, &mut spoken);
        if missing == 1 {
            mail.refused();
        }
        if missing == 2 {
            mail.taken(&mut spoken);
        }
        files.gap(missing, &mut spoken);
        files.data(piece, &mut spoken);
        replies.gap(missing, &mut spoken);
        replies.data(piece, &mut spoken);
    });
    assert!(spoken.0 <= all);
}

/// What a parser of mails says: parts follow each other.
#[derive(Default)]
struct Parts {
    is_open: bool,
    bytes: u64,
}

impl mime::Events for Parts {
    fn begin(&mut self, part: mime::Part) {
        assert!(!self.is_open);
        assert!(part.name.is_none_or(|name| !name.is_empty()));
        self.is_open = true;
    }

    fn data(&mut self, bytes: &[u8]) {
        assert!(self.is_open && !bytes.is_empty());
        self.bytes += bytes.len() as u64;
    }

    fn missing(&mut self, _: u64) {
        assert!(self.is_open);
    }

    fn end(&mut self, _: bool) {
        assert!(self.is_open);
        self.is_open = false;
    }
}

/// Parts of mails.
pub(crate) fn mime(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let mut parser = mime::Parser::new(first & 1 != 0);
    let mut parts = Parts::default();
    let mut all = 0;
    pieces(bytes, |missing, piece| {
        all += piece.len() as u64;
        parser.gap(missing, &mut parts);
        parser.data(piece, &mut parts);
        assert!(parser.held() < 256 << 10);
    });
    parser.finish(first & 2 != 0, &mut parts);
    assert!(!parts.is_open && parts.bytes <= all);
}

/// ICP messages.
pub(crate) fn icp(bytes: &[u8]) {
    icp::look(bytes);
    if let Some(message) = icp::Message::read(bytes) {
        assert!(message.url.len() <= bytes.len() && !message.url.contains(&0));
        message.server_rtt_ms();
    }
}

fn rpc_message(bytes: &[u8]) {
    let Some(message) = rpc::Message::read(bytes) else {
        return;
    };
    match message.body {
        rpc::Body::Call(call) => {
            call.program_name();
            call.procedure_name();
            call.unix();
            rpc::mount_path(&call);
            rpc::Mapping::of_call(&call);
        }
        rpc::Body::Reply(reply) => {
            for version in 2..5 {
                rpc::mapped_port(version, reply.results);
            }
            assert!(rpc::mappings(reply.results).count() * 20 <= reply.results.len());
        }
    }
}

/// Calls and replies, and streams of them.
pub(crate) fn rpc(bytes: &[u8]) {
    rpc::look(bytes);
    rpc::look_stream(bytes);
    rpc_message(bytes);
    let mut framer = rpc::Framer::default();
    let mut take = |frame: rpc::Frame<'_>| {
        if let rpc::Frame::Record {
            head,
            bytes,
            missing,
            ..
        } = frame
        {
            assert!(missing <= bytes && head.len() as u64 <= bytes - missing);
            rpc_message(head);
        }
    };
    pieces(bytes, |missing, piece| {
        framer.gap(missing, &mut take);
        framer.data(piece, &mut take);
    });
    framer.finish(&mut take);
}

/// DHCP messages.
pub(crate) fn dhcp(bytes: &[u8]) {
    dhcp::look(bytes);
    if let Some(message) = dhcp::Message::read(bytes) {
        let mut text = String::new();
        message.write_fqdn(&mut text);
        message.type_name();
        let values = message.options().map(|(_, value)| value.len() + 2);
        assert!(values.sum::<usize>() <= bytes.len());
        assert!(message.hardware.len() <= 16);
    }
}

/// DHCP messages for IPv6.
pub(crate) fn dhcpv6(bytes: &[u8]) {
    dhcp::v6::look(bytes);
    if let Some(message) = dhcp::v6::Message::read(bytes) {
        message.type_name();
        message.status();
        message.fqdn();
        assert!(message.hardware().is_none_or(|it| it.len() == 6));
        assert!(message.leases().count() * 24 <= bytes.len());
        assert!(message.dns_servers().count() * 16 <= bytes.len());
        assert!(message.wanted().count() * 2 <= bytes.len());
        assert!(message.domains().map(|it| it.len()).sum::<usize>() <= 3 * bytes.len());
    }
}

/// NTP messages.
pub(crate) fn ntp(bytes: &[u8]) {
    ntp::look(bytes);
    if let Some(clock) = ntp::Message::read(bytes).and_then(|message| message.clock) {
        let mut text = String::new();
        clock.write_reference(&mut text);
        assert!(text.is_ascii());
        clock.transmit.unix_nanos();
    }
}

/// SNMP messages, and names of variables.
pub(crate) fn snmp(bytes: &[u8]) {
    snmp::look(bytes);
    let mut text = String::new();
    snmp::write_oid(bytes, &mut text);
    assert!(text.len() <= 6 * (bytes.len() + 1));
    if let Some(message) = snmp::Message::read(bytes) {
        message.id();
        if let Some(pdu) = message.pdu {
            pdu.error_name();
            assert!(pdu.variables as usize * 2 <= bytes.len());
        }
    }
}
