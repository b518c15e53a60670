//! What applications say: HTTP/1.1, TLS, DNS and plain bytes.

use super::random::Random;

/// Size of each kind of filler.
const FILLER: usize = 512 << 10;

const WORDS: [&str; 48] = [
    "stream", "gauge", "river", "packet", "header", "window", "segment", "sequence", "number",
    "the", "of", "and", "a", "to", "in", "is", "that", "with", "for", "as", "measure", "network",
    "traffic", "flow", "record", "capture", "buffer", "memory", "kernel", "thread", "queue",
    "ring", "batch", "offset", "length", "address", "port", "server", "client", "request",
    "response", "table", "entry", "bucket", "hash", "index", "<p>", "</p>\n",
];

const AGENTS: [&str; 5] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) \
     Version/17.5 Safari/605.1.15",
    "curl/8.8.0",
    "python-requests/2.32.3",
];

const TYPES: [(&str, &str, Filler); 6] = [
    ("text/html; charset=utf-8", "html", Filler::Text),
    ("text/css", "css", Filler::Text),
    ("text/plain", "txt", Filler::Text),
    ("application/javascript", "js", Filler::Text),
    ("application/octet-stream", "bin", Filler::Binary),
    ("font/woff2", "woff2", Filler::Binary),
];

/// Prepared bytes that payloads are windows of, so that filling costs no more than copying.
pub(super) struct Library {
    text: Vec<u8>,
    binary: Vec<u8>,
}

/// A kind of prepared bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filler {
    Text,
    Binary,
}

impl Library {
    /// The same for every seed: what differs between seeds are the windows.
    pub(super) fn new() -> Self {
        let mut random = Random::new(0x666c_6f77, 0);
        let mut text = Vec::with_capacity(FILLER + 16);
        while text.len() < FILLER {
            text.extend_from_slice(random.pick(&WORDS).as_bytes());
            text.push(b' ');
        }
        text.truncate(FILLER);
        let mut binary = Vec::with_capacity(FILLER);
        while binary.len() < FILLER {
            binary.extend_from_slice(&random.bits().to_le_bytes());
        }
        Library { text, binary }
    }

    /// Appends `count` bytes that begin at `position` and go round; returns the position after.
    fn append(
        &self,
        to: &mut Vec<u8>,
        filler: Filler,
        mut position: usize,
        mut count: usize,
    ) -> usize {
        let block = match filler {
            Filler::Text => &self.text,
            Filler::Binary => &self.binary,
        };
        while count > 0 {
            let run = count.min(FILLER - position);
            to.extend_from_slice(&block[position..position + run]);
            position = (position + run) % FILLER;
            count -= run;
        }
        position
    }

    /// `count` bytes of a kind.
    pub(super) fn bytes(&self, random: &mut Random, filler: Filler, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        self.append(
            &mut bytes,
            filler,
            random.below(FILLER as u64) as usize,
            count,
        );
        bytes
    }
}

/// How a message's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Plain,
    /// HTTP chunked transfer coding with chunks of this size.
    Chunked(u32),
    /// TLS application data records.
    Tls,
}

/// One application message, produced piece by piece.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Literal bytes that come next: the head first, later the framing.
    literal: Vec<u8>,
    literal_done: usize,
    framing: Framing,
    filler: Filler,
    position: usize,
    /// Body bytes until the next framing.
    run: u64,
    /// Body bytes after it.
    body: u64,
    started: bool,
    ended: bool,
}

impl Message {
    fn new(
        random: &mut Random,
        literal: Vec<u8>,
        framing: Framing,
        filler: Filler,
        body: u64,
    ) -> Self {
        Message {
            literal,
            literal_done: 0,
            framing,
            filler,
            position: random.below(FILLER as u64) as usize,
            run: 0,
            body,
            started: false,
            ended: false,
        }
    }

    /// Some bytes without structure; the first ones name the flow, so that no two streams agree.
    pub(super) fn plain(random: &mut Random, filler: Filler, size: u64) -> Self {
        let mut literal = random.bits().to_le_bytes().to_vec();
        if filler == Filler::Text {
            for byte in &mut literal {
                *byte = b'a' + *byte % 26;
            }
        }
        literal.truncate(size as usize);
        let body = size - literal.len() as u64;
        Message::new(random, literal, Framing::Plain, filler, body)
    }

    /// Appends up to `count` of the bytes that come next.
    pub(super) fn fill(&mut self, library: &Library, to: &mut Vec<u8>, mut count: usize) {
        while count > 0 {
            let before = to.len();
            let literal = &self.literal[self.literal_done..];
            if !literal.is_empty() {
                let run = literal.len().min(count);
                to.extend_from_slice(&literal[..run]);
                self.literal_done += run;
            } else if self.run > 0 {
                let run = self.run.min(count as u64);
                self.position = library.append(to, self.filler, self.position, run as usize);
                self.run -= run;
            } else if !self.frame() {
                return;
            }
            count -= to.len() - before;
        }
    }

    /// Prepares the framing that comes next; false at the message's end.
    fn frame(&mut self) -> bool {
        self.literal.clear();
        self.literal_done = 0;
        let most = match self.framing {
            Framing::Plain => self.body,
            Framing::Chunked(size) => u64::from(size),
            Framing::Tls => 16_384 - 17,
        };
        self.run = self.body.min(most);
        self.body -= self.run;
        match self.framing {
            Framing::Plain => return self.run > 0,
            Framing::Chunked(_) => {
                if std::mem::replace(&mut self.started, true) {
                    self.literal.extend_from_slice(b"\r\n");
                }
                if self.run > 0 {
                    self.literal
                        .extend_from_slice(format!("{:x}\r\n", self.run).as_bytes());
                } else if std::mem::replace(&mut self.ended, true) {
                    self.literal.clear();
                    return false;
                } else {
                    // The last chunk and the empty trailer; the line break before it is needed
                    // only after a chunk with data.
                    self.literal.extend_from_slice(b"0\r\n\r\n");
                }
            }
            Framing::Tls => {
                if self.run == 0 {
                    return false;
                }
                // A TLS 1.3 record: 17 bytes of content type and tag are part of the ciphertext.
                self.run += 17;
                self.literal.extend_from_slice(&[0x17, 3, 3]);
                self.literal
                    .extend_from_slice(&(self.run as u16).to_be_bytes());
            }
        }
        true
    }

    /// Whether nothing comes any more.
    pub(super) fn is_finished(&self) -> bool {
        self.literal_done == self.literal.len()
            && self.run == 0
            && self.body == 0
            && (self.ended || !matches!(self.framing, Framing::Chunked(_)))
    }
}

/// A host name.
pub(super) fn host(random: &mut Random) -> String {
    let names = ["www", "static", "api", "cdn", "img", "mail"];
    let tops = ["example.com", "example.net", "example.org", "test.example"];
    format!(
        "{}.site{}.{}",
        random.pick(&names),
        random.below(5_000),
        random.pick(&tops)
    )
}

/// An HTTP request and the response it will get.
pub(super) struct Exchange {
    pub(super) method: &'static str,
    pub(super) status: u16,
    pub(super) chunked: bool,
    pub(super) request_body: u64,
    pub(super) response_body: u64,
    pub(super) request: Message,
    pub(super) response: Message,
}

/// A transaction whose response is about `size` bytes long.
pub(super) fn http(random: &mut Random, host: &str, size: u64, last: bool) -> Exchange {
    let (content_type, extension, filler) = *random.pick(&TYPES);
    let method = match random.below(100) {
        0..85 => "GET",
        85..97 => "POST",
        _ => "HEAD",
    };
    let (status, reason) = match random.below(100) {
        0..88 => (200, "OK"),
        88..93 => (304, "Not Modified"),
        93..96 => (302, "Found"),
        96..99 => (404, "Not Found"),
        _ => (500, "Internal Server Error"),
    };
    let has_body = status != 304 && method != "HEAD";
    let response_body = if has_body { size } else { 0 };
    let chunked = has_body && random.chance(0.1);
    let uri = format!(
        "/{}/{:x}/{}.{extension}",
        random.pick(&WORDS[..9]),
        random.below(1 << 20),
        random.pick(&WORDS[20..46]),
    );
    let mut head = format!(
        "{method} {uri} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {}\r\nAccept: */*\r\n",
        random.pick(&AGENTS)
    );
    if random.chance(0.7) {
        head += &format!(
            "Referer: http://{host}/{}.html\r\n",
            random.pick(&WORDS[20..46])
        );
    }
    if random.chance(0.4) {
        head += &format!(
            "Cookie: session={:016x}{:016x}\r\n",
            random.bits(),
            random.bits()
        );
    }
    let request_body = if method == "POST" {
        random.between(20, 1_200)
    } else {
        0
    };
    if method == "POST" {
        head += &format!("Content-Type: text/plain\r\nContent-Length: {request_body}\r\n");
    }
    head += if last {
        "Connection: close\r\n\r\n"
    } else {
        "Connection: keep-alive\r\n\r\n"
    };
    let request = Message::new(
        random,
        head.into_bytes(),
        Framing::Plain,
        Filler::Text,
        request_body,
    );

    let mut head = format!(
        "HTTP/1.1 {status} {reason}\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\n\
         Server: nginx/1.24.0\r\nETag: \"{:x}\"\r\n",
        random.bits()
    );
    if status == 302 {
        head += &format!("Location: http://{host}/moved{uri}\r\n");
    }
    if status != 304 {
        head += &format!("Content-Type: {content_type}\r\n");
        head += &match chunked {
            true => "Transfer-Encoding: chunked\r\n".to_owned(),
            false => format!("Content-Length: {size}\r\n"),
        };
    }
    head += if last {
        "Connection: close\r\n\r\n"
    } else {
        "Connection: keep-alive\r\n\r\n"
    };
    let framing = if chunked {
        Framing::Chunked(random.between(500, 8_192) as u32)
    } else {
        Framing::Plain
    };
    let response = Message::new(random, head.into_bytes(), framing, filler, response_body);
    Exchange {
        method,
        status,
        chunked,
        request_body,
        response_body,
        request,
        response,
    }
}

fn with_length16(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

fn extension(kind: u16, bytes: &[u8]) -> Vec<u8> {
    let mut out = kind.to_be_bytes().to_vec();
    out.extend(with_length16(bytes));
    out
}

fn random_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend(random.bits().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// A handshake message in a record of its own (RFC 8446, sections 4 and 5.1).
fn handshake_record(version: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut record = vec![0x16, 3, version];
    record.extend(((body.len() + 4) as u16).to_be_bytes());
    record.push(kind);
    record.extend(&(body.len() as u32).to_be_bytes()[1..]);
    record.extend_from_slice(body);
    record
}

/// A TLS 1.3 ClientHello with server name, ALPN and an X25519 key share.
pub(super) fn client_hello(random: &mut Random, host: &str) -> Message {
    let mut body = vec![3, 3];
    body.extend(random_bytes(random, 32));
    body.push(32);
    body.extend(random_bytes(random, 32));
    let suites: [u16; 8] = [
        0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9,
    ];
    body.extend(((suites.len() * 2) as u16).to_be_bytes());
    for suite in suites {
        body.extend(suite.to_be_bytes());
    }
    body.extend([1, 0]);
    let mut name = vec![0];
    name.extend(with_length16(host.as_bytes()));
    let mut share = vec![0, 0x1d];
    share.extend(with_length16(&random_bytes(random, 32)));
    let mut extensions = extension(0, &with_length16(&name));
    extensions.extend(extension(10, &[0, 4, 0, 0x1d, 0, 0x17]));
    extensions.extend(extension(
        13,
        &[0, 8, 0x04, 0x03, 0x08, 0x04, 0x04, 0x01, 0x05, 0x03],
    ));
    extensions.extend(extension(16, &with_length16(b"\x02h2\x08http/1.1")));
    extensions.extend(extension(43, &[4, 3, 4, 3, 3]));
    extensions.extend(extension(51, &with_length16(&share)));
    body.extend(with_length16(&extensions));
    let record = handshake_record(1, 1, &body);
    Message::new(random, record, Framing::Plain, Filler::Binary, 0)
}

/// ServerHello, ChangeCipherSpec and `encrypted` bytes of certificates and the like.
pub(super) fn server_hello(random: &mut Random, encrypted: u64) -> Message {
    let mut body = vec![3, 3];
    body.extend(random_bytes(random, 32));
    body.push(32);
    body.extend(random_bytes(random, 32));
    body.extend([0x13, 0x01, 0]);
    let mut share = vec![0, 0x1d];
    share.extend(with_length16(&random_bytes(random, 32)));
    let mut extensions = extension(43, &[3, 4]);
    extensions.extend(extension(51, &share));
    body.extend(with_length16(&extensions));
    let mut record = handshake_record(3, 2, &body);
    record.extend([0x14, 3, 3, 0, 1, 1]);
    Message::new(random, record, Framing::Tls, Filler::Binary, encrypted)
}

/// The client's ChangeCipherSpec and Finished.
pub(super) fn client_finished(random: &mut Random) -> Message {
    let record = vec![0x14, 3, 3, 0, 1, 1];
    Message::new(random, record, Framing::Tls, Filler::Binary, 36)
}

/// TLS application data of `size` bytes before encryption.
pub(super) fn tls_data(random: &mut Random, size: u64) -> Message {
    Message::new(random, Vec::new(), Framing::Tls, Filler::Binary, size)
}

/// A DNS query and its response (RFC 1035).
pub(super) fn dns(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let name = host(random);
    let id = (random.bits() as u16).to_be_bytes();
    let v6 = random.chance(0.3);
    let mut question = Vec::new();
    for label in name.split('.') {
        question.push(label.len() as u8);
        question.extend_from_slice(label.as_bytes());
    }
    question.extend([0, 0, if v6 { 28 } else { 1 }, 0, 1]);
    let mut query = id.to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    query.extend_from_slice(&question);
    let answers = random.between(0, 4) as u8;
    let mut response = id.to_vec();
    let code = if answers == 0 { 3 } else { 0 };
    response.extend([0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0]);
    response.extend_from_slice(&question);
    for _ in 0..answers {
        response.extend([0xc0, 0x0c, 0, if v6 { 28 } else { 1 }, 0, 1, 0, 0, 1, 0x2c]);
        if v6 {
            response.extend([0, 16, 0x20, 1, 0x0d, 0xb8]);
            response.extend(random_bytes(random, 12));
        } else {
            response.extend([0, 4, 198, 18]);
            response.extend(random_bytes(random, 2));
        }
    }
    (query, response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(message: &mut Message, step: usize) -> Vec<u8> {
        let library = Library::new();
        let mut bytes = Vec::new();
        while !message.is_finished() {
            message.fill(&library, &mut bytes, step);
        }
        bytes
    }

    #[test]
    fn a_message_is_the_same_in_any_steps() {
        let mut random = Random::new(1, 1);
        for _ in 0..50 {
            let exchange = http(&mut random, "host", 20_000, false);
            let mut copy = exchange.response.clone();
            let mut original = exchange.response;
            assert_eq!(whole(&mut original, 1448), whole(&mut copy, 7));
        }
    }

    #[test]
    fn chunks_decode_to_the_body() {
        let mut random = Random::new(1, 2);
        let mut message = Message::new(
            &mut random,
            Vec::new(),
            Framing::Chunked(1_000),
            Filler::Text,
            2_500,
        );
        let bytes = whole(&mut message, 100);
        let mut rest = &bytes[..];
        let mut sizes = Vec::new();
        loop {
            let line = rest.iter().position(|&byte| byte == b'\r').unwrap();
            let text = std::str::from_utf8(&rest[..line]).unwrap();
            let size = usize::from_str_radix(text, 16).unwrap();
            sizes.push(size);
            assert_eq!(&rest[line + 2 + size..line + 4 + size], b"\r\n");
            rest = &rest[line + 4 + size..];
            if size == 0 {
                break;
            }
        }
        assert_eq!(sizes, [1_000, 1_000, 500, 0]);
        assert!(rest.is_empty());
    }

    #[test]
    fn tls_records_fill_the_message() {
        let mut random = Random::new(1, 3);
        let bytes = whole(&mut tls_data(&mut random, 40_000), 1448);
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(bytes[at..at + 3], [0x17, 3, 3]);
            at += 5 + usize::from(u16::from_be_bytes([bytes[at + 3], bytes[at + 4]]));
        }
        assert_eq!(at, bytes.len());
    }
}
