//! A record's values by name, looked at where they are, and how they are written.

use core::net::IpAddr;

use flowgauge_record::any::AnyRecord;
use flowgauge_record::schema::Schema;
use flowgauge_record::store::{RecordStore, StoredRecord};
use flowgauge_record::text::{
    TimeWriter, harmless, write_address, write_hex_bytes, write_json_escaped, write_unsigned,
};
use flowgauge_record::{Numbers, Texts, ValueRef};
use flowgauge_wire::{Address, CommunityId, FlowKey, Nanos};

use super::texts::{addresses_in, distinguished, ftp_url, short_answer, told_ttls, unescaped};

/// Names of fields that logs of others are made of.
macro_rules! names {
    ($($name:ident)*) => {
        #[allow(non_camel_case_types)] // as the fields are called
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Name { $($name),* }
        static NAMES: &[&str] = &[$(stringify!($name)),*];

        impl Name {
            /// As the field is called.
            pub(super) fn as_str(self) -> &'static str {
                match self { $(Name::$name => stringify!($name),)* }
            }
        }
    };
}
names! {
    aa ad_wanted additionals anomaly answer_names answer_types answers app_proto app_proto_after app_proto_by arg
    assigned_addr attachments auth auth_attempts auth_success authorities bytes ca cc cd chain cipher cipher_alg
    client client_addr client_chain client_extensions client_fqdn client_id client_initial_dcid client_protocol
    client_protocols client_scid client_subject command community community_id compression_alg content_type curve
    data_ip data_port date depth detail directory dns_servers domain dst_bytes dst_ip dst_ip_bytes dst_packets
    dst_port dst_stream_bytes dst_tcp_flags duration end end_reason established event_type exponent extracted
    extracted_bytes file_id file_name file_size files flow_id flow_memory flows from gaps gid hassh hassh_server
    helo history host host_key_alg host_key_fingerprint host_name in_reply_to issuer ja3 ja3_text ja3s ja3s_text ja4
    kex_alg key_alg key_length key_type last_alert last_reply latency layer lease_time live_flows location mac
    mac_alg machine mailfrom malformed md5 message message_bytes method mime_type missing_bytes mode msg_id name_by
    new_bytes new_memory_dropped new_packets next_protocol next_server not_after not_before oid opcode org_time
    origin outcome packets parameters parent_id part partial passive password path_length place poll precision proto
    protocol qclass qtype query questions ra rcode rcptto rd reason rebinding_time rec_time received ref_id ref_time
    referrer relay_addr renewal_time reply reply_code reply_flags reply_lines reply_msg reply_place reply_to
    reply_variables request request_body_bytes request_fields request_file_names request_files request_flags
    request_mime_type request_part_types request_place request_variables requested_addr response_body_bytes
    response_decoded_bytes response_fields response_file_names response_files response_mime_type response_part_types
    response_version resumed retried root_delay root_disp routers san san_dns san_email san_ip san_uri
    segment_memory sender sent_by serial server server_addr server_extensions server_name server_scid service sha1
    sha256 sig_alg source src_bytes src_ip src_ip_bytes src_packets src_port src_stream_bytes src_tcp_flags start
    state status stratum stream subject subnet_mask time tls tls_version to total_bytes trans_depth trans_id ttls
    tunnel uid until_end uptime uri user user_agent vendor_class version vlan whole worker x_originating_ip xid
    xmt_time z
}

/// Where a kind of records has the fields of these names.
#[derive(Debug)]
struct Layout {
    schema: Schema,
    /// By [`Name`]; [`NOWHERE`]: it has not.
    places: Vec<u8>,
}

const NOWHERE: u8 = u8::MAX;

impl Layout {
    fn of(schema: Schema) -> Layout {
        let place = |name: &&str| {
            let place = schema.iter().position(|field| field.name == *name);
            place.map_or(NOWHERE, |place| place.min(NOWHERE.into()) as u8)
        };
        Layout {
            schema,
            places: NAMES.iter().map(place).collect(),
        }
    }
}

/// Looks at one record after the other. What the first one needed serves the next.
#[derive(Debug, Default)]
pub(crate) struct Looking {
    store: RecordStore,
    layouts: Vec<Layout>,
    seed: u16,
}

impl Looking {
    /// With the seed of Community IDs.
    pub(super) fn with_seed(seed: u16) -> Looking {
        Looking {
            seed,
            ..Looking::default()
        }
    }

    pub(crate) fn at(&mut self, record: &dyn AnyRecord) -> Option<Values<'_>> {
        self.store.clear();
        self.store.push(record);
        let schema = record.schema();
        let is_it = |layout: &Layout| core::ptr::eq(layout.schema, schema);
        let index = match self.layouts.iter().position(is_it) {
            Some(index) => index,
            None => {
                self.layouts.push(Layout::of(schema));
                self.layouts.len() - 1
            }
        };
        Some(Values {
            record: self.store.get(0)?,
            layout: self.layouts.get(index)?,
            is_reply: false,
            seed: self.seed,
        })
    }
}

/// A record, looked at by name.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    record: StoredRecord<'a>,
    layout: &'a Layout,
    /// Of a request and its reply the latter is looked at.
    is_reply: bool,
    seed: u16,
}

impl<'a> Values<'a> {
    /// The same record, of which the reply is looked at.
    pub(super) fn reply(self) -> Values<'a> {
        Values {
            is_reply: true,
            ..self
        }
    }

    pub(super) fn is_reply(&self) -> bool {
        self.is_reply
    }

    /// The field of the request, or that of the reply, whichever the line is about.
    pub(super) fn half(&self, [of_request, of_reply]: [Name; 2]) -> Name {
        if self.is_reply { of_reply } else { of_request }
    }

    /// The number of the protocol below, of those that Community IDs have ports of.
    fn transport(&self, version: u8) -> Option<u8> {
        Some(match self.text(Name::proto)? {
            "tcp" => 6,
            "udp" | "quic" => 17,
            "icmp" if version == 4 => 1,
            "icmp" => 58,
            number => number.parse().ok()?,
        })
    }

    /// The Community ID of its flow, where it does not say.
    pub(super) fn community_id(&self) -> Option<CommunityId> {
        let (source, version) = self.address(Name::src_ip)?;
        let (destination, _) = self.address(Name::dst_ip)?;
        let port = |name| self.number(name).map(|port| port as u16);
        let (key, _) = FlowKey::new(
            version,
            self.transport(version)?,
            (source, port(Name::src_port)?),
            (destination, port(Name::dst_port)?),
        );
        CommunityId::of(&key, self.seed)
    }

    #[inline]
    fn get(&self, name: Name) -> ValueRef<'a> {
        match self.layout.places.get(name as usize) {
            None | Some(&NOWHERE) => ValueRef::Null,
            Some(&place) => self.record.value(place.into()),
        }
    }

    /// The kind of the tunnel around a flow.
    pub(super) fn tunnel(&self) -> Option<&'a str> {
        let place = self.layout.places.get(Name::tunnel as usize)?;
        self.record.value_within((*place).into(), "kind").as_text()
    }

    pub(crate) fn text(&self, name: Name) -> Option<&'a str> {
        self.get(name).as_text()
    }

    pub(crate) fn number(&self, name: Name) -> Option<u64> {
        match self.get(name) {
            ValueRef::Unsigned(value) | ValueRef::Hex(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn texts(&self, name: Name) -> Option<Texts<'a>> {
        match self.get(name) {
            ValueRef::Texts(texts) if !texts.is_empty() => Some(texts),
            _ => None,
        }
    }

    pub(super) fn numbers(&self, name: Name) -> &'a [u64] {
        match self.get(name) {
            ValueRef::List(Numbers::U64(list)) => list,
            _ => &[],
        }
    }

    pub(super) fn time(&self, name: Name) -> Option<Nanos> {
        match self.get(name) {
            ValueRef::Time(time) => Some(time),
            _ => None,
        }
    }

    pub(crate) fn span(&self, name: Name) -> Option<Nanos> {
        match self.get(name) {
            ValueRef::Duration(span) => Some(span),
            _ => None,
        }
    }

    pub(super) fn address(&self, name: Name) -> Option<(Address, u8)> {
        match self.get(name) {
            ValueRef::Address(address, version) => Some((address, version)),
            _ => None,
        }
    }

    /// A span, a point in time, or a number of seconds.
    pub(super) fn seconds(&self, name: Name) -> Cell<'a> {
        match self.get(name) {
            ValueRef::Duration(span) => Cell::Seconds(span),
            ValueRef::Time(time) => Cell::Seconds(time),
            ValueRef::Float(value) => Cell::Float(value),
            ValueRef::Unsigned(seconds) => Cell::Seconds(whole_seconds(seconds)),
            _ => Cell::Unset,
        }
    }

    /// `yes` and `no`.
    pub(super) fn yes(&self, name: Name) -> Option<bool> {
        self.text(name).map(|text| text == "yes")
    }

    /// The protocol that a flow was found to speak: others do not guess by its port.
    pub(super) fn spoken(&self) -> Option<&'a str> {
        self.text(Name::app_proto)
            .filter(|_| self.text(Name::app_proto_by) != Some("port"))
    }

    /// What kind of record it is.
    pub(crate) fn kind(&self) -> &'a str {
        self.text(Name::event_type).unwrap_or_default()
    }

    /// When it began.
    pub(super) fn begin(&self) -> Option<Nanos> {
        self.time(Name::time).or_else(|| self.time(Name::start))
    }
}

/// A value as logs of others have it.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    /// There is none.
    Unset,
    Bool(bool),
    Number(u64),
    Text(&'a str),
    /// A number behind a text.
    Numbered(&'static str, u64),
    /// One behind the other.
    Joined(&'static str, &'a str),
    /// In capitals.
    Upper(&'a str),
    /// Its underscores as hyphens.
    Hyphens(&'a str),
    /// `aabb` as `aa:bb`.
    Colons(&'a str),
    /// `TLS 1.2` as `TLSv12`.
    TlsVersion(&'a str),
    /// A letter, and a number to the base 62.
    Id(u8, u64),
    Address(Address, u8),
    /// The same with all digits: `2001:0db8:0000:...`.
    WholeAddress(Address, u8),
    /// As text, in at least so many hexadecimal digits.
    Hex(u64, usize),
    /// A flow's identifier.
    Community(CommunityId),
    /// Between these.
    Brackets(&'a str),
    /// Each of them between these.
    InBrackets(Texts<'a>),
    /// Numbers.
    Numbers(&'a [u64]),
    /// Seconds with six decimals.
    Seconds(Nanos),
    /// A date and time: so many characters, and this behind them.
    Date(Nanos, usize, &'static str),
    Texts(Texts<'a>),
    /// A list of one text.
    One(&'a str),
    /// Names of a list that are there.
    Some([Option<&'static str>; 4]),
    /// A list of spans, in seconds.
    Spans(&'a [u64]),
    /// A list of nothing.
    Empty,
    /// Seconds.
    Float(f64),
    /// `a%20b` as `a b`.
    Unescaped(&'a str),
    /// Types of bodies, as Zeek calls them, the first so many.
    Types(Texts<'a>, usize),
    /// A list of identifiers.
    Ids(u8, &'a [u64]),
    /// A list of words, each with a time that is not told.
    Words(&'a [(Nanos, String)]),
    /// Answers of DNS in short, with their types.
    Answers(Texts<'a>, Texts<'a>),
    /// Their times to live, where they are told.
    Ttls(Texts<'a>, Texts<'a>, &'a [u64]),
    /// In small letters.
    Lower(&'a str),
    /// `C=US, CN=a` as `CN=a,C=US`.
    Distinguished(&'a str),
    /// A server, the directory that a client is in there, and what it names.
    FtpUrl((Address, u8), &'a str, &'a str),
    /// An address.
    Ip(IpAddr),
    /// Receiver and sender of a mail, and the header fields that say which way it came.
    MailPath(((Address, u8), (Address, u8)), Option<Texts<'a>>),
}

impl<'a> Cell<'a> {
    pub(super) fn of<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell<'a>) -> Cell<'a> {
        value.map_or(Cell::Unset, cell)
    }

    pub(super) fn is_unset(&self) -> bool {
        matches!(self, Cell::Unset)
    }

    /// Appends it as JSON, or between tabs, as Zeek does.
    pub(super) fn write<const JSON: bool>(&self, time: &mut TimeWriter, out: &mut Vec<u8>) {
        let empty: &[u8] = if JSON { b"[]" } else { b"(empty)" };
        let seconds = |span, out: &mut Vec<u8>| write_seconds(span, JSON, out);
        match *self {
            Cell::Unset => out.extend_from_slice(if JSON { b"null" } else { b"-" }),
            Cell::Bool(true) => out.extend_from_slice(if JSON { b"true" } else { b"T" }),
            Cell::Bool(false) => out.extend_from_slice(if JSON { b"false" } else { b"F" }),
            Cell::Number(number) => write_unsigned(out, number),
            Cell::Seconds(span) => seconds(span, out),
            Cell::InBrackets(texts) if JSON => {
                several::<JSON, _>(texts.iter(), out, |text, out| {
                    out.extend_from_slice(b"\"<");
                    write_json_escaped(out, text);
                    out.extend_from_slice(b">\"");
                })
            }
            Cell::Texts(texts) | Cell::InBrackets(texts) => {
                several::<JSON, _>(texts.iter(), out, item::<JSON>)
            }
            Cell::Numbers(numbers) => {
                several::<JSON, _>(numbers.iter(), out, |it, out| write_unsigned(out, *it));
            }
            Cell::Some(names) => several::<JSON, _>(names.into_iter().flatten(), out, item::<JSON>),
            Cell::One(text) => several::<JSON, _>([text].into_iter(), out, item::<JSON>),
            Cell::Spans(spans) => {
                several::<JSON, _>(spans.iter(), out, |span, out| {
                    seconds(whole_seconds(*span), out)
                });
            }
            Cell::Ttls(texts, types, spans) => {
                let spans = told_ttls(texts, types, spans);
                several::<JSON, _>(spans, out, |span, out| seconds(whole_seconds(span), out));
            }
            Cell::Empty => out.extend_from_slice(empty),
            Cell::Float(value) => write_float(value, out),
            Cell::Answers(..)
            | Cell::Types(..)
            | Cell::Ids(..)
            | Cell::Words(..)
            | Cell::MailPath(..) => match self.parts().as_slice() {
                [] => out.extend_from_slice(empty),
                parts => several::<JSON, _>(parts.iter().map(String::as_str), out, item::<JSON>),
            },
            _ if JSON => {
                out.push(b'"');
                self.plain(time, out, |text, out| write_json_escaped(out, text));
                out.push(b'"');
            }
            _ => self.plain(time, out, |text, out| match text {
                "" => out.extend_from_slice(b"(empty)"),
                "-" => out.extend_from_slice(b"\\x2d"),
                text => escape(text, false, out),
            }),
        }
    }

    /// The texts of a list that are made.
    #[cold]
    fn parts(&self) -> Vec<String> {
        match *self {
            Cell::Types(texts, most) => {
                let names = texts.iter().take(most).map(zeek_type);
                names.map(str::to_owned).collect()
            }
            Cell::Words(words) => words.iter().map(|(_, word)| word.clone()).collect(),
            Cell::Ids(letter, ids) => ids.iter().map(|id| id_text(letter, *id)).collect(),
            Cell::Answers(texts, types) => {
                let both = texts.iter().zip(types.iter());
                both.filter_map(|(text, kind)| short_answer(text, kind))
                    .collect()
            }
            Cell::MailPath((receiver, sender), received) => {
                let ip = |(address, version): (Address, u8)| address.to_ip(version);
                let mut path = vec![ip(receiver), ip(sender)];
                for field in received.into_iter().flat_map(Texts::iter) {
                    let found: Vec<IpAddr> = addresses_in(field).take(2).collect();
                    // The name that was said stands first, who said it behind.
                    if let Some(hop) = found.last().filter(|hop| path.last() != Some(*hop)) {
                        path.push(*hop);
                    }
                }
                path.iter().map(IpAddr::to_string).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Appends what is text, by `write` where it comes from outside.
    #[inline]
    fn plain(&self, time: &mut TimeWriter, out: &mut Vec<u8>, write: impl Fn(&str, &mut Vec<u8>)) {
        let start = out.len();
        match *self {
            Cell::Text(text) => write(text, out),
            Cell::Joined(front, text) => {
                out.extend_from_slice(front.as_bytes());
                write(text, out);
            }
            Cell::Numbered(front, number) => {
                out.extend_from_slice(front.as_bytes());
                write_unsigned(out, number);
            }
            // From other machines anything can come.
            Cell::Upper(text) | Cell::Hyphens(text) | Cell::Colons(text)
                if !text.bytes().all(is_of_word) =>
            {
                write(text, out);
            }
            Cell::Upper(text) => {
                out.extend_from_slice(text.as_bytes());
                out.get_mut(start..)
                    .unwrap_or_default()
                    .make_ascii_uppercase();
            }
            Cell::Hyphens(text) => {
                let bytes = text.bytes();
                out.extend(bytes.map(|byte| if byte == b'_' { b'-' } else { byte }));
            }
            Cell::Colons(text) => {
                for (n, pair) in text.as_bytes().chunks(2).enumerate() {
                    if n > 0 {
                        out.push(b':');
                    }
                    out.extend_from_slice(pair);
                }
            }
            Cell::TlsVersion(text) => match text.split_once(' ') {
                Some((name, number)) if number.bytes().all(is_of_word) => {
                    write(name, out);
                    out.push(b'v');
                    out.extend(number.bytes().filter(|&byte| byte != b'.'));
                }
                _ => write(text, out),
            },
            Cell::Id(letter, id) => out.extend_from_slice(&id_bytes(letter, id)),
            Cell::Lower(text) => write(&text.to_ascii_lowercase(), out),
            Cell::Distinguished(text) => write(&distinguished(text), out),
            Cell::Unescaped(text) => write(&unescaped(text), out),
            Cell::FtpUrl((address, version), directory, name) => {
                write(&ftp_url(address.to_ip(version), directory, name), out);
            }
            Cell::Ip(address) => out.extend_from_slice(address.to_string().as_bytes()),
            Cell::Address(address, version) => write_address(out, address, version),
            Cell::WholeAddress(address, version) => write_whole_address(out, address, version),
            Cell::Hex(number, digits) => write_hex(out, number, digits),
            Cell::Community(id) => out.extend_from_slice(id.as_bytes()),
            Cell::Brackets(text) => {
                out.push(b'<');
                write(text, out);
                out.push(b'>');
            }
            Cell::Date(at, length, end) => {
                let text = time.format(at);
                out.extend_from_slice(text.get(..length).unwrap_or_default());
                out.extend_from_slice(end.as_bytes());
            }
            Cell::Unset
            | Cell::Bool(_)
            | Cell::Number(_)
            | Cell::Seconds(_)
            | Cell::Texts(_)
            | Cell::InBrackets(_)
            | Cell::Numbers(_)
            | Cell::One(_)
            | Cell::Some(_)
            | Cell::Spans(_)
            | Cell::Empty
            | Cell::Float(_)
            | Cell::Types(..)
            | Cell::Ids(..)
            | Cell::Words(..)
            | Cell::Answers(..)
            | Cell::Ttls(..)
            | Cell::MailPath(..) => {}
        }
    }
}

/// What Zeek calls a type.
pub(super) fn zeek_type(name: &str) -> &str {
    match name {
        "application/json" => "text/json",
        "image/svg+xml" => "text/plain",
        name => name,
    }
}

/// A letter and a number to the base 62.
fn id_bytes(letter: u8, mut id: u64) -> [u8; 12] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = [letter; 12];
    for place in text.iter_mut().skip(1) {
        *place = DIGITS[(id % 62) as usize];
        id /= 62;
    }
    text
}

fn id_text(letter: u8, id: u64) -> String {
    id_bytes(letter, id).map(char::from).iter().collect()
}

/// Seconds with six decimals.
fn write_float(seconds: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{seconds:.6}").as_bytes());
}

/// Appends an address, of IPv6 with all its digits.
pub(super) fn write_whole_address(out: &mut Vec<u8>, address: Address, version: u8) {
    if version == 4 {
        return write_address(out, address, version);
    }
    for (n, group) in address.0.chunks(2).enumerate() {
        if n > 0 {
            out.push(b':');
        }
        write_hex_bytes(out, group);
    }
}

/// Appends a number in at least so many hexadecimal digits.
fn write_hex(out: &mut Vec<u8>, number: u64, digits: usize) {
    let used = (64 - number.leading_zeros() as usize).div_ceil(4);
    for place in (0..used.max(digits).min(16)).rev() {
        out.push(b"0123456789abcdef"[(number >> (4 * place)) as usize & 15]);
    }
}

/// Whether no log has to write it in another way.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)
}

fn whole_seconds(seconds: u64) -> Nanos {
    Nanos(seconds.saturating_mul(1_000_000_000))
}

/// Appends a text of a list.
fn item<const JSON: bool>(text: &str, out: &mut Vec<u8>) {
    match text {
        _ if JSON => {
            out.push(b'"');
            write_json_escaped(out, text);
            out.push(b'"');
        }
        "" => out.extend_from_slice(b"(empty)"),
        text => escape(text, true, out),
    }
}

/// Appends things with commas between, in JSON within brackets.
fn several<const JSON: bool, T>(
    things: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    if JSON {
        out.push(b'[');
    }
    for (n, thing) in things.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write(thing, out);
    }
    if JSON {
        out.push(b']');
    }
}

/// Appends things as a JSON list.
pub(super) fn list<T>(
    things: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    several::<true, T>(things, out, write);
}

/// Seconds with six decimals; in JSON without zeros at the end.
fn write_seconds(span: Nanos, is_short: bool, out: &mut Vec<u8>) {
    write_unsigned(out, span.0 / 1_000_000_000);
    let mut micros = span.0 / 1_000 % 1_000_000;
    let mut text = *b".000000";
    for place in text.iter_mut().skip(1).rev() {
        *place = b'0' + (micros % 10) as u8;
        micros /= 10;
    }
    let mut len = text.len();
    while is_short && len > 2 && text[len - 1] == b'0' {
        len -= 1;
    }
    out.extend_from_slice(text.get(..len).unwrap_or_default());
}

/// What ends a line or a column, and what is not [`harmless`] on a terminal, byte by byte as `\x09`.
fn escape(text: &str, in_list: bool, out: &mut Vec<u8>) {
    // Most are plain in all: without a branch for each byte.
    let comma = if in_list { b',' } else { b'\\' };
    let is_odd = |byte: u8| !(0x20..0x7f).contains(&byte) | (byte == b'\\') | (byte == comma);
    if !text.bytes().fold(false, |odd, byte| odd | is_odd(byte)) {
        return out.extend_from_slice(text.as_bytes());
    }
    let is_plain = |character| match character {
        '\\' => false,
        ',' => !in_list,
        character => harmless(character) == character,
    };
    let mut done = 0;
    for (at, character) in text.char_indices() {
        if is_plain(character) {
            continue;
        }
        let bytes = text.as_bytes();
        let end = at + character.len_utf8();
        out.extend_from_slice(bytes.get(done..at).unwrap_or_default());
        if character == '\\' {
            out.extend_from_slice(b"\\\\");
        } else {
            for byte in bytes.get(at..end).unwrap_or_default() {
                out.extend_from_slice(b"\\x");
                write_hex_bytes(out, &[*byte]);
            }
        }
        done = end;
    }
    out.extend_from_slice(text.as_bytes().get(done..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use flowgauge_record::http::{HttpMessage, HttpRow};

    use super::*;

    fn both(cell: Cell<'_>) -> (String, String) {
        let (mut json, mut tabs) = (Vec::new(), Vec::new());
        let mut time = TimeWriter::default();
        cell.write::<true>(&mut time, &mut json);
        cell.write::<false>(&mut time, &mut tabs);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(json), text(tabs))
    }

    #[test]
    fn each_kind_of_value_is_written_as_both_formats_want_it() {
        let second = Nanos(1_700_000_000_023_267_999);
        for (cell, json, tabs) in [
            (Cell::Unset, "null", "-"),
            (Cell::Bool(true), "true", "T"),
            (
                Cell::Number(u64::MAX),
                "18446744073709551615",
                "18446744073709551615",
            ),
            (Cell::Text(""), "\"\"", "(empty)"),
            (Cell::Text("-"), "\"-\"", "\\x2d"),
            (
                Cell::Text("a\t\"\\\u{7f}é,"),
                "\"a\\t\\\"\\\\\\u007fé,\"",
                "a\\x09\"\\\\\\x7fé,",
            ),
            (
                Cell::Text("\u{9b}x\u{202e}"),
                "\"\\u009bx\\u202e\"",
                "\\xc2\\x9bx\\xe2\\x80\\xae",
            ),
            (Cell::One("a,b"), "[\"a,b\"]", "a\\x2cb"),
            (
                Cell::Joined("HTTP/", "1.1\n"),
                "\"HTTP/1.1\\n\"",
                "HTTP/1.1\\x0a",
            ),
            (Cell::Upper("tcp"), "\"TCP\"", "TCP"),
            (Cell::Upper("t\""), "\"t\\\"\"", "t\""),
            (Cell::Hyphens("ftp_data"), "\"ftp-data\"", "ftp-data"),
            (Cell::Colons("aabbc"), "\"aa:bb:c\"", "aa:bb:c"),
            (Cell::Colons("\"\\"), "\"\\\"\\\\\"", "\"\\\\"),
            (Cell::TlsVersion("TLS 1.0"), "\"TLSv10\"", "TLSv10"),
            (Cell::Hex(0x8180, 0), "\"8180\"", "8180"),
            (Cell::Hex(2, 2), "\"02\"", "02"),
            (
                Cell::WholeAddress(
                    Address([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
                    6,
                ),
                "\"2001:0db8:0000:0000:0000:0000:0000:0001\"",
                "2001:0db8:0000:0000:0000:0000:0000:0001",
            ),
            (Cell::Brackets("a\"b"), "\"<a\\\"b>\"", "<a\"b>"),
            (Cell::Numbers(&[6, 10]), "[6,10]", "6,10"),
            (Cell::TlsVersion("a \""), "\"a \\\"\"", "a \""),
            (Cell::Id(b'C', 62), "\"C01000000000\"", "C01000000000"),
            (
                Cell::Seconds(second),
                "1700000000.023267",
                "1700000000.023267",
            ),
            (Cell::Seconds(Nanos(2_500_000_000)), "2.5", "2.500000"),
            (Cell::Seconds(Nanos(0)), "0.0", "0.000000"),
            (Cell::Spans(&[1, 300]), "[1.0,300.0]", "1.000000,300.000000"),
            (Cell::Empty, "[]", "(empty)"),
            (Cell::Float(0.5), "0.500000", "0.500000"),
            (Cell::Unescaped("/a%20b%2"), "\"/a b%2\"", "/a b%2"),
            (Cell::Ids(b'F', &[]), "[]", "(empty)"),
            (
                Cell::Ids(b'F', &[0, 1]),
                "[\"F00000000000\",\"F10000000000\"]",
                "F00000000000,F10000000000",
            ),
            (Cell::Lower("Www.Example"), "\"www.example\"", "www.example"),
            (
                Cell::Distinguished("C=US, O=A, Inc., CN=*.a"),
                "\"CN=*.a,O=A\\\\, Inc.,C=US\"",
                "CN=*.a,O=A\\\\, Inc.,C=US",
            ),
            (
                Cell::Words(&[
                    (Nanos(1), "DISCOVER".to_owned()),
                    (Nanos(2), "OFFER".to_owned()),
                ]),
                "[\"DISCOVER\",\"OFFER\"]",
                "DISCOVER,OFFER",
            ),
            (
                Cell::FtpUrl((Address::v4([192, 0, 2, 1]), 4), ".", "pub/a.gz"),
                "\"ftp://192.0.2.1/./pub/a.gz\"",
                "ftp://192.0.2.1/./pub/a.gz",
            ),
            (
                Cell::MailPath(
                    (
                        (Address::v4([192, 0, 2, 1]), 4),
                        (Address::v4([192, 0, 2, 2]), 4),
                    ),
                    None,
                ),
                "[\"192.0.2.1\",\"192.0.2.2\"]",
                "192.0.2.1,192.0.2.2",
            ),
            (
                Cell::Some([None, Some("MD5"), None, Some("A")]),
                "[\"MD5\",\"A\"]",
                "MD5,A",
            ),
            (
                Cell::Date(second, 26, "+0000"),
                "\"2023-11-14T22:13:20.023267+0000\"",
                "2023-11-14T22:13:20.023267+0000",
            ),
        ] {
            assert_eq!(both(cell), (json.to_owned(), tabs.to_owned()));
        }
    }

    #[test]
    fn fields_are_found_in_records_of_any_kind() {
        let mut message = HttpMessage::default();
        message.is_request = true;
        message.host = message.keep(Some(b"a.example"));
        let row = HttpRow {
            request: Some(&message),
            response: None,
        };
        let mut looking = Looking::default();
        for _ in 0..2 {
            let values = looking.at(&row).expect("a record");
            assert_eq!(values.text(Name::host), Some("a.example"));
            assert_eq!(values.text(Name::state), Some("no_reply"));
            assert_eq!(values.number(Name::src_port), Some(0));
            assert_eq!(values.text(Name::server_name), None);
            let values = looking.at(&message).expect("a record");
            assert_eq!(values.text(Name::host), Some("a.example"));
            assert_eq!(values.text(Name::state), None);
        }
        assert_eq!(looking.layouts.len(), 2);
    }
}
