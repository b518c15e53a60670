//! SSH: who both sides are, and what they agree on before they encrypt.

use flowgauge_proto::ssh::{Events, Offer, Parser, agreed, key_fingerprint, look};
use flowgauge_record::Held;
use flowgauge_record::ssh::{SSH_SCHEMA, SshRow};
use flowgauge_record::text::lossy;
use flowgauge_stack::{ComponentInfo, ResultInfo, StreamEnd};

use super::table::Table;
use super::tls::origin;
use super::{At, Conversation, Give, ProtocolInfo, Transport, Wants, alone};

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "ssh",
    transport: Transport::Tcp,
    ports: &[22],
    look: |seen| seen.either(look),
    begins_datagram: |_| false,
    table: Table::<SshTalk>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ssh",
    summary: "finds SSH handshakes: software, algorithms and host keys",
    help: "A record of each connection, with HASSH of both sides. Use it within tcpcnxdemux, after tcpreseq.",
    fields: |_| Some(SSH_SCHEMA),
    result: Some(ResultInfo::number("connections found", "transactions")),
    make: alone::make::<SshTalk>,
    ..alone::OF_CHUNKS
};

/// An SSH connection.
#[derive(Debug, Default)]
pub(crate) struct SshTalk {
    open: Option<Box<Open>>,
    is_given: bool,
    ends: u8,
}

#[derive(Debug, Default)]
struct Open {
    row: SshRow,
    /// The responder's, the initiator's.
    sides: [Parser; 2],
    /// Lists of both, as they were offered.
    offers: [Option<Kept>; 2],
    encrypts: [bool; 2],
    auth: Auth,
}

/// Whether a client is let in, told by how large the server's encrypted segments are, as Zeek does. The first accepts
/// that the client wants to log in; a success is 16 bytes shorter than that; the first that is not is a refusal, and
/// others of its size are refusals, too.
#[derive(Debug, Default)]
struct Auth {
    accepted: usize,
    refused: usize,
    /// Segments so far.
    segments: u32,
    attempts: u32,
    success: Option<bool>,
}

impl Auth {
    /// Segments without a success after which nothing is told any more.
    const MOST: u32 = 64;

    /// A segment of the server's. Returns whether nothing more will be told.
    fn segment(&mut self, bytes: usize) -> bool {
        self.segments += 1;
        if self.accepted == 0 {
            self.accepted = bytes;
        } else if bytes + 16 == self.accepted {
            self.attempts += 1;
            self.success = Some(true);
        } else if self.refused == 0 {
            self.refused = bytes;
        } else if bytes == self.refused {
            self.attempts += 1;
            self.success = Some(false);
        }
        self.success == Some(true) || self.segments >= Auth::MOST
    }
}

/// What a side offers: for exchange, key, cipher, code, compression to the server.
#[derive(Debug)]
struct Kept([Vec<u8>; 5]);

impl Open {
    /// Whether sizes of encrypted segments tell something: both sides speak SSH 2, and compress nothing.
    fn tells_auth(&self) -> bool {
        let [Some(server), Some(client)] = &self.offers else {
            return false;
        };
        let compression = agreed(&client.0[4], &server.0[4]);
        self.encrypts == [true; 2] && compression == Some(b"none")
    }

    fn held(&self) -> usize {
        let lists = self.offers.iter().flatten().flat_map(|it| &it.0);
        size_of::<Self>()
            + self.row.held()
            + self.sides.iter().map(Parser::held).sum::<usize>()
            + lists.map(Vec::capacity).sum::<usize>()
    }
}

struct Said<'a> {
    row: &'a mut SshRow,
    offer: &'a mut Option<Kept>,
    encrypts: &'a mut bool,
    is_client: bool,
}

fn text(bytes: &[u8]) -> String {
    lossy(bytes).into_owned()
}

impl Events for Said<'_> {
    fn banner(&mut self, line: &[u8]) {
        let place = match self.is_client {
            true => &mut self.row.client,
            false => &mut self.row.server,
        };
        *place = Some(text(line));
    }

    fn offer(&mut self, offer: &Offer<'_>) {
        // Later ones are encrypted.
        if self.offer.is_some() {
            return;
        }
        let hash = offer.hassh(self.is_client);
        match self.is_client {
            true => self.row.hassh = hash,
            false => self.row.hassh_server = hash,
        }
        let lists = [
            offer.exchange,
            offer.host_key,
            offer.ciphers[0],
            offer.codes[0],
            offer.compressions[0],
        ];
        *self.offer = Some(Kept(lists.map(<[u8]>::to_vec)));
    }

    fn host_key(&mut self, key: &[u8]) {
        if !self.is_client && self.row.fingerprint.is_empty() {
            self.row.fingerprint = key_fingerprint(key);
        }
    }

    fn new_keys(&mut self) {
        *self.encrypts = true;
    }

    fn lost(&mut self) {
        self.row.is_damaged = true;
    }

    fn bounded(&mut self, bound: &'static str) {
        self.row.is_damaged = true;
        self.row.limit.get_or_insert(bound);
    }
}

impl SshTalk {
    fn side(&mut self, at: &At<'_>, act: impl FnOnce(&mut Parser, &mut Said<'_>)) -> Option<&Open> {
        if self.is_given {
            return None;
        }
        let open = self.open.get_or_insert_with(|| {
            let mut open = Box::<Open>::default();
            open.row.origin = origin(at);
            open
        });
        let side = at.side();
        let mut said = Said {
            row: &mut open.row,
            offer: &mut open.offers[side],
            encrypts: &mut open.encrypts[side],
            is_client: at.from_initiator,
        };
        act(&mut open.sides[side], &mut said);
        Some(open)
    }

    fn give(&mut self, close: Option<&'static str>, give: &mut Give<'_>) {
        self.is_given = true;
        let Some(open) = self.open.take() else {
            return;
        };
        let mut row = open.row;
        if row.client.is_none() && row.server.is_none() {
            return;
        }
        row.is_established = open.encrypts == [true; 2];
        row.close = close.filter(|_| !row.is_established);
        row.auth_success = open.auth.success;
        row.auth_attempts = open.auth.attempts;
        let is_2 = |line: &Option<String>| {
            let line = line.as_deref()?;
            Some(line.starts_with("SSH-2") || line.starts_with("SSH-1.99"))
        };
        if let (Some(client), Some(server)) = (is_2(&row.client), is_2(&row.server)) {
            row.version = Some(if client && server { 2 } else { 1 });
        }
        if let [Some(server), Some(client)] = &open.offers {
            let agreed = |place: usize| {
                let name = agreed(&client.0[place], &server.0[place]);
                name.map(text).unwrap_or_default()
            };
            row.exchange = agreed(0);
            row.host_key = agreed(1);
            row.cipher = agreed(2);
            row.code = agreed(3);
            row.compression = agreed(4);
        }
        // Within a tunnel it is not the flow's own protocol.
        give.record_of(PROTOCOL.name, row.origin.time, &row);
    }
}

impl Conversation for SshTalk {
    type Common = ();

    fn data(&mut self, (): &mut (), at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if let Some(open) = &mut self.open
            && open.sides.iter().all(Parser::is_over)
        {
            if !at.from_initiator && open.auth.segment(bytes.len()) {
                self.give(None, give);
            }
            return;
        }
        let open = self.side(at, |parser, said| parser.data(bytes, said));
        if open.is_some_and(|open| open.sides.iter().all(Parser::is_over) && !open.tells_auth()) {
            self.give(None, give);
        }
    }

    fn gap(&mut self, (): &mut (), at: &At<'_>, bytes: u64, _: &mut Give<'_>) {
        self.side(at, |parser, said| parser.gap(bytes, said));
    }

    fn end(&mut self, (): &mut (), _: &At<'_>, end: StreamEnd, give: &mut Give<'_>) {
        self.ends += 1;
        if self.ends == 2 || end == StreamEnd::Rst {
            self.give(Some(end.name()), give);
        }
    }

    fn wants(&self, _: &At<'_>) -> Wants {
        Wants::nothing_if(self.is_given)
    }

    fn held(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.held())
    }

    fn close(&mut self, (): &mut (), _: &At<'_>, give: &mut Give<'_>) {
        self.give(None, give);
    }
}
