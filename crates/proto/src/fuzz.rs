//! For the fuzzer: each parser on any bytes, in any pieces, with any holes. Nothing is to panic, and
//! what is said is to hold together.

use crate::{dns, tls};

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
                record.name.netbios();
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
pub fn dns(bytes: &[u8]) {
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

/// Records of TLS, and certificates.
pub fn tls(bytes: &[u8]) {
    tls::look(bytes);
    tls::Certificate::read(bytes);
    let mut parser = tls::Parser::default();
    pieces(bytes, |missing, piece| {
        parser.gap(missing, &mut Hellos);
        parser.data(piece, &mut Hellos);
    });
}
