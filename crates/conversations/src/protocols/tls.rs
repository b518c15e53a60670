//! TLS and DTLS: what both sides of a connection say before they encrypt.

use flowgauge_proto::Look;
use flowgauge_proto::tls::{
    self, Carrier, Certificate, ClientHello, Events, Extensions, ServerHello, content, message,
};
use flowgauge_record::Held;
use flowgauge_record::origin::Origin;
use flowgauge_record::parties::Parties;
use flowgauge_record::tls::{TLS_SCHEMA, TlsRow, X509_SCHEMA, X509Row};
use flowgauge_stack::{ComponentInfo, Input, ItemType, Output, ResultInfo, StreamEnd};
use flowgauge_wire::Nanos;

use super::table::Table;
use super::{At, Conversation, Give, ProtocolInfo, Seen, Transport, Wants, alone, bounded_text};

/// Letters of a history.
const MAX_HISTORY: usize = 64;
/// Certificates of a side.
const MAX_CHAIN: u32 = 16;
/// Protocols that a client offers.
const MAX_PROTOCOLS: usize = 32;
/// Extensions.
const MAX_EXTENSIONS: usize = 64;
/// Bytes of any text that a peer can make long.
const MAX_TEXT: usize = 4 << 10;

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "tls",
    transport: Transport::Both,
    // Those where it follows what another protocol agrees on are among them.
    ports: &[
        443, 465, 563, 636, 853, 989, 990, 992, 993, 995, 8443, 110, 143, 389, 3306, 5222, 5269,
        5432, 6667,
    ],
    look: recognise,
    begins_datagram: |byte| byte == content::HANDSHAKE,
    table: Table::<TlsTalk>::boxed,
};

/// Whether another protocol speaks first at this port, of those that have no conversation of their own: POP3,
/// IMAP, LDAP, MySQL, XMPP, PostgreSQL, IRC.
pub(super) const fn is_later(port: u16) -> bool {
    matches!(port, 110 | 143 | 389 | 3306 | 5222 | 5269 | 5432 | 6667)
}

fn recognise(seen: &Seen<'_>) -> Look {
    if seen.is_udp {
        return seen.either(tls::look_datagram);
    }
    match seen.either(tls::look) {
        Look::No if is_later(seen.port) => Look::More,
        look => look,
    }
}

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tls",
    summary: "finds TLS handshakes",
    help: "A record of each handshake, with JA3 and JA4, preceded by one of each certificate. Takes datagrams \
           (DTLS), or use it within tcpcnxdemux, after tcpreseq.",
    input: Input::Of(&[ItemType::Packet, ItemType::Chunk]),
    output: Output::Of(ItemType::Record),
    kinds: Some(|| vec![TLS_SCHEMA, X509_SCHEMA]),
    result: Some(ResultInfo::number(
        "handshakes and certificates found",
        "records",
    )),
    make: alone::make::<TlsTalk>,
    ..alone::INFO
};

/// The parsers of both directions, the responder's first.
#[derive(Debug)]
enum Sides {
    Streams([tls::Parser; 2]),
    Datagrams(Box<[tls::DatagramParser; 2]>),
}

impl Default for Sides {
    fn default() -> Sides {
        Sides::Streams(Default::default())
    }
}

/// A connection that speaks TLS, or is to find out.
#[derive(Debug, Default)]
pub(crate) struct TlsTalk {
    sides: Sides,
    handshake: Option<Box<TlsHandshake>>,
    ends: u8,
}

impl TlsTalk {
    fn is_done(&self) -> bool {
        (self.handshake.as_ref()).is_some_and(|handshake| handshake.is_given)
    }

    /// What the parsers are to do.
    fn side(
        &mut self,
        at: &At<'_>,
        give: &mut Give<'_>,
        act: impl FnOnce(&mut Sides, &mut Side<'_, '_>),
    ) {
        if self.is_done() {
            return;
        }
        let handshake = (self.handshake).get_or_insert_with(|| {
            let carrier = match at.connection.is_udp {
                true => Carrier::Datagram,
                false => Carrier::Tcp,
            };
            Box::new(TlsHandshake::new(at, carrier))
        });
        let mut events = handshake.events(at, give);
        act(&mut self.sides, &mut events);
        handshake.settle(give);
        if self.is_done() {
            // The rest is encrypted.
            self.sides = Default::default();
            if let Some(handshake) = &mut self.handshake {
                handshake.row = TlsRow::default();
                handshake.session = Vec::new();
            }
        }
    }
}

impl Conversation for TlsTalk {
    type Common = ();

    fn data(&mut self, (): &mut (), at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if at.connection.is_udp && matches!(self.sides, Sides::Streams(_)) {
            self.sides = Sides::Datagrams(Box::default());
        }
        self.side(at, give, |sides, events| match sides {
            Sides::Streams(sides) => sides[at.side()].data(bytes, events),
            Sides::Datagrams(sides) => sides[at.side()].datagram(bytes, events),
        });
    }

    fn gap(&mut self, (): &mut (), at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        self.side(at, give, |sides, events| {
            if let Sides::Streams(sides) = sides {
                sides[at.side()].gap(bytes, events);
            }
        });
    }

    fn end(&mut self, (): &mut (), _: &At<'_>, end: StreamEnd, give: &mut Give<'_>) {
        self.ends += 1;
        if let Some(handshake) = &mut self.handshake
            && (self.ends == 2 || end == StreamEnd::Rst)
        {
            handshake.end(Some(end.name()), give);
        }
    }

    fn wants(&self, _: &At<'_>) -> Wants {
        Wants::nothing_if(self.is_done())
    }

    fn held(&self) -> usize {
        if self.is_done() {
            return size_of::<TlsHandshake>();
        }
        let handshake = self.handshake.as_ref();
        let handshake = handshake.map_or(0, |it| size_of::<TlsHandshake>() + it.held());
        let sides = match &self.sides {
            Sides::Streams(sides) => sides.iter().map(tls::Parser::held).sum::<usize>(),
            Sides::Datagrams(sides) => {
                let each = sides.iter().map(tls::DatagramParser::held);
                size_of_val(&**sides) + each.sum::<usize>()
            }
        };
        sides + handshake
    }

    fn close(&mut self, (): &mut (), _: &At<'_>, give: &mut Give<'_>) {
        if let Some(handshake) = &mut self.handshake {
            handshake.end(None, give);
        }
    }
}

/// A handshake, however its messages come.
#[derive(Debug)]
pub(super) struct TlsHandshake {
    pub(super) row: TlsRow,
    carrier: Carrier,
    /// Who began the connection is TLS's server.
    is_exchanged: bool,
    session: Vec<u8>,
    is_13: bool,
    has_client_key: bool,
    /// Who went over to encryption, client and server.
    encrypts: [bool; 2],
    /// Who sent data behind that.
    has_data: [bool; 2],
    certificates: [u32; 2],
    /// The row was given out.
    pub(super) is_given: bool,
}

/// When something was said, and between whom; the initiator is the client.
pub(super) fn origin(at: &At<'_>) -> Origin {
    let connection = at.connection;
    Origin {
        time: at.time,
        parties: Parties {
            client: connection.initiator,
            server: connection.responder,
            ip_version: connection.version,
        },
    }
}

impl TlsHandshake {
    pub(super) fn new(at: &At<'_>, carrier: Carrier) -> TlsHandshake {
        TlsHandshake {
            row: TlsRow {
                origin: origin(at),
                is_datagram: carrier == Carrier::Datagram,
                ..TlsRow::default()
            },
            carrier,
            is_exchanged: false,
            session: Vec::new(),
            is_13: false,
            has_client_key: false,
            encrypts: [false; 2],
            has_data: [false; 2],
            certificates: [0; 2],
            is_given: false,
        }
    }

    /// Bytes of memory that it keeps beside itself.
    pub(super) fn held(&self) -> usize {
        self.session.capacity() + self.row.held()
    }

    /// Takes what a parser of one side finds.
    pub(super) fn events<'a, 'b>(
        &'a mut self,
        at: &At<'_>,
        give: &'a mut Give<'b>,
    ) -> Side<'a, 'b> {
        Side {
            it: self,
            from_initiator: at.from_initiator,
            time: at.time,
            give,
        }
    }

    /// Gives the row out when both sides speak encrypted.
    fn settle(&mut self, give: &mut Give<'_>) {
        if !self.is_given && self.has_data == [true; 2] {
            self.give(give);
        }
    }

    fn end(&mut self, close: Option<&'static str>, give: &mut Give<'_>) {
        if !self.is_given && (self.row.has_client || self.row.has_server) {
            self.row.close = close;
            self.give(give);
        }
    }

    fn give(&mut self, give: &mut Give<'_>) {
        self.is_given = true;
        self.row.established = Some(self.encrypts == [true; 2]);
        if let Some(name) = &self.row.server_name {
            give.server_is(name.as_bytes());
        }
        give.record_of("tls", self.row.origin.time, &self.row);
    }
}

/// What one side says.
pub(super) struct Side<'a, 'b> {
    it: &'a mut TlsHandshake,
    from_initiator: bool,
    time: Nanos,
    give: &'a mut Give<'b>,
}

impl Side<'_, '_> {
    fn is_client(&self) -> bool {
        self.from_initiator != self.it.is_exchanged
    }

    /// This side is the client, or not: hellos say.
    fn settle_role(&mut self, is_client: bool) {
        let row = &mut self.it.row;
        if row.has_client || row.has_server {
            return;
        }
        row.origin.time = self.time;
        // What came before was another protocol, which agreed on this one.
        row.is_damaged = false;
        row.history.clear();
        if is_client != self.from_initiator {
            self.it.is_exchanged = true;
            row.origin.parties = row.origin.parties.exchanged();
        }
    }

    fn note(&mut self, letter: char) {
        let letter = match self.is_client() {
            true => letter.to_ascii_uppercase(),
            false => letter,
        };
        let history = &mut self.it.row.history;
        match history.len() < MAX_HISTORY {
            true => history.push(letter),
            false => self.bounded("history"),
        }
    }
}

fn text(bytes: &[u8], limit: &mut Option<&'static str>) -> String {
    bounded_text(bytes, MAX_TEXT, limit)
}

/// The numbers of extensions.
fn numbers(extensions: Extensions<'_>) -> Vec<u16> {
    let numbers = extensions.map(|it| it.number);
    numbers.take(MAX_EXTENSIONS).collect()
}

/// A name, or the number where there is none.
fn named(name: Option<&str>, number: u16) -> String {
    name.map_or_else(|| format!("unknown-{number}"), str::to_owned)
}

impl Events for Side<'_, '_> {
    fn message(&mut self, kind: u8) {
        match kind {
            message::CLIENT_HELLO => self.settle_role(true),
            message::SERVER_HELLO => self.settle_role(false),
            message::CLIENT_KEY => self.it.has_client_key = true,
            _ => {}
        }
        // Zeek's letters.
        self.note(match kind {
            0 => 'h',
            message::CLIENT_HELLO => 'c',
            message::SERVER_HELLO => 's',
            message::HELLO_VERIFY => 'v',
            message::TICKET => 't',
            5 => 'e',
            6 => 'j',
            8 => 'o',
            message::CERTIFICATE => 'x',
            message::SERVER_KEY => 'k',
            message::CERTIFICATE_REQUEST => 'r',
            message::SERVER_DONE => 'n',
            message::CERTIFICATE_VERIFY => 'y',
            message::CLIENT_KEY => 'g',
            message::FINISHED => 'f',
            21 => 'w',
            message::CERTIFICATE_STATUS => 'u',
            23 => 'a',
            24 => 'm',
            _ => 'z',
        });
    }

    fn client_hello(&mut self, hello: &ClientHello<'_>) {
        let it = &mut *self.it;
        let row = &mut it.row;
        // A second one, asked for by the server, says less.
        if row.has_client {
            return;
        }
        row.has_client = true;
        it.session.clear();
        it.session.extend_from_slice(hello.session);
        let limit = &mut row.limit;
        row.server_name = hello.server_name().map(|name| text(name, limit));
        let protocols = hello.protocols().take(MAX_PROTOCOLS);
        row.client_protocols = protocols.map(|name| text(name, limit)).collect();
        if hello.protocols().nth(MAX_PROTOCOLS).is_some() {
            limit.get_or_insert("protocols");
        }
        let version = hello.version();
        row.client_version = named(tls::version_name(version), version);
        row.ja4 = tls::ja4(hello, it.carrier);
        if it.carrier == Carrier::Quic {
            row.extensions[0] = numbers(hello.extensions);
        }
        if !hello.is_v2 {
            row.ja3_text = tls::ja3_text(hello);
            row.ja3 = tls::ja3_of(&row.ja3_text);
        }
    }

    fn server_hello(&mut self, hello: &ServerHello<'_>) {
        let it = &mut *self.it;
        let row = &mut it.row;
        if hello.is_retry {
            // The history says that it was none.
            if row.history.ends_with('s') {
                row.history.pop();
                row.history.push('j');
            }
            return;
        }
        if row.has_server {
            return;
        }
        row.has_server = true;
        it.is_13 = hello.is_13();
        if it.carrier == Carrier::Quic {
            row.extensions[1] = numbers(hello.extensions);
        }
        let version = hello.version();
        row.version = named(tls::version_name(version), version);
        row.ja3s_text = tls::ja3s_text(hello);
        row.ja3s = tls::ja3_of(&row.ja3s_text);
        if version != 2 {
            row.cipher = named(tls::cipher_name(hello.cipher), hello.cipher);
        }
        if let Some(group) = hello.group() {
            row.curve = named(tls::group_name(group), group);
        }
        let limit = &mut row.limit;
        row.next_protocol = hello.protocol().map(|name| text(name, limit));
        let is_same = !hello.session.is_empty() && hello.session == it.session;
        row.resumed = Some(hello.has_known_key() || !it.is_13 && is_same);
    }

    fn group(&mut self, group: u16) {
        if self.it.row.curve.is_empty() {
            self.it.row.curve = named(tls::group_name(group), group);
        }
    }

    fn certificate(&mut self, der: &[u8]) {
        let is_client = self.is_client();
        let it = &mut *self.it;
        let count = &mut it.certificates[usize::from(!is_client)];
        *count += 1;
        let place = *count;
        if place > MAX_CHAIN {
            return self.bounded("chain");
        }
        let sha256 = tls::sha256(der);
        let chain = match is_client {
            true => &mut it.row.client_chain,
            false => &mut it.row.chain,
        };
        chain.push(sha256.clone());
        let Some(certificate) = Certificate::read(der) else {
            it.row.is_damaged = true;
            return;
        };
        let row = X509Row {
            origin: Origin {
                time: self.time,
                ..it.row.origin
            },
            is_datagram: it.row.is_datagram,
            is_client,
            place,
            sha256,
            sha1: tls::sha1(der),
            version: certificate.version,
            alternatives: certificate.alternatives().cloned().collect(),
            validity: Some([certificate.not_before, certificate.not_after]),
            limit: certificate.is_cut.then_some("text"),
            serial: certificate.serial,
            subject: certificate.subject,
            issuer: certificate.issuer,
            key_algorithm: certificate.key_algorithm,
            signature_algorithm: certificate.signature_algorithm,
            key_type: certificate.key_type,
            key_bits: certificate.key_bits,
            exponent: certificate.exponent,
            curve: certificate.curve,
            dns_names: certificate.dns_names,
            ip_addresses: certificate.ip_addresses,
            emails: certificate.emails,
            uris: certificate.uris,
            is_authority: certificate.is_authority,
            path_length: certificate.path_length,
        };
        self.give.record_of("x509", row.origin.time, &row);
        match (is_client, place) {
            (true, 1) => it.row.client_subject = row.subject,
            (false, 1) => it.row.certificate = Some(Box::new(row)),
            _ => {}
        }
    }

    fn alert(&mut self, _level: u8, description: u8) {
        let name = tls::alert_name(description);
        self.it.row.last_alert = named(name, u16::from(description));
    }

    fn record(&mut self, kind: u8, is_encrypted: bool) {
        let is_client = self.is_client();
        let side = usize::from(!is_client);
        match (kind, is_encrypted) {
            (content::CHANGE_CIPHER, false) => {
                self.note('i');
                let it = &mut *self.it;
                if !it.is_13 {
                    it.encrypts[side] = true;
                    // A session's ticket was taken: no keys are exchanged.
                    let is_again = is_client && it.row.has_server && !it.has_client_key;
                    if is_again && !it.row.is_damaged {
                        it.row.resumed = Some(true);
                    }
                }
            }
            (content::ALERT, false) => self.note('l'),
            (content::HEARTBEAT, false) => self.note('b'),
            (content::DATA, _) => {
                let it = &mut *self.it;
                if it.row.has_server || !is_client {
                    it.encrypts[side] |= it.is_13;
                    it.has_data[side] = true;
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self) {
        self.it.row.is_damaged = true;
    }

    fn bounded(&mut self, bound: &'static str) {
        self.it.row.is_damaged = true;
        self.it.row.limit.get_or_insert(bound);
    }
}
