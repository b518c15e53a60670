//! What a client says.

use crate::detect::Look;
use crate::lines::{Lines, look_reply};

/// Receives what a client says, in the order of the stream.
pub trait CommandEvents {
    /// A command, its verb as it was sent, and what follows without blanks around it. Of one whose
    /// argument is a secret (AUTH) only its first word is there.
    fn command(&mut self, _verb: &[u8], _argument: &[u8]) {}

    /// Bytes of a message, as they were sent (with dots doubled), but for the end.
    fn content(&mut self, _bytes: &[u8]) {}

    /// The message, or this chunk of it, is over; `is_last`: no chunk follows.
    fn content_end(&mut self, _is_last: bool) {}

    /// Bytes are missing; of a message so many.
    fn lost(&mut self, _content: u64) {}
}

/// Reads what a client says.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    state: State,
    lines: Lines,
    /// The next line answers a question of the server's.
    is_asked: bool,
    is_foreign: bool,
    has_begun: bool,
    /// Commands are missing, and none has come since.
    has_hole: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Commands,
    /// In a message that ends with a line of a dot: so many bytes of [`END`] were there; whether bytes
    /// of it are missing.
    Message(usize, bool),
    /// In a chunk: bytes left, whether it is the last.
    Chunk(u64, bool),
}

const END: &[u8] = b"\r\n.\r\n";

const VERBS: [&[u8]; 15] = [
    b"HELO",
    b"EHLO",
    b"LHLO",
    b"MAIL",
    b"RCPT",
    b"DATA",
    b"RSET",
    b"NOOP",
    b"QUIT",
    b"VRFY",
    b"EXPN",
    b"HELP",
    b"AUTH",
    b"STARTTLS",
    b"BDAT",
];

/// Whether bytes begin with what a client says first: a line with its name.
pub fn look_client(bytes: &[u8]) -> Look {
    let first = [b"HELO ".as_slice(), b"EHLO ", b"LHLO "];
    let line = memchr::memchr(b'\n', bytes).and_then(|end| bytes.get(5..end));
    // A domain or an address; others say more words, so that the server has to tell.
    let is_host = |host: &[u8]| !host.is_empty() && host.iter().all(u8::is_ascii_graphic);
    let mut result = Look::No;
    if !bytes.is_empty() && !matches!(bytes[0] | 0x20, b'h' | b'e' | b'l') {
        return result;
    }
    for verb in first {
        let length = verb.len().min(bytes.len());
        let (Some(theirs), Some(verb)) = (bytes.get(..length), verb.get(..length)) else {
            continue;
        };
        if theirs.eq_ignore_ascii_case(verb) {
            result = match line {
                Some(host) if length == 5 && is_host(host.trim_ascii()) => Look::Yes,
                Some(_) if length < 5 => Look::No,
                _ => Look::More,
            };
        }
    }
    result
}

/// Whether bytes begin like the greeting of a server: 220 and a word on mail. Other services greet in the
/// same form; their words do not say mail.
pub fn look_server(bytes: &[u8]) -> Look {
    match look_reply(bytes) {
        Look::Yes => {}
        other => return other,
    }
    let end = memchr::memchr(b'\n', bytes);
    let line = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    let has = |word: &[u8]| {
        line.windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    match (
        line.starts_with(b"220"),
        has(b"SMTP") || has(b"LMTP") || has(b"Mail") && !has(b"FTP"),
        end,
    ) {
        (true, true, _) => Look::Yes,
        (true, false, None) if bytes.len() < 512 => Look::More,
        // A greeting that tells nothing: the client's first word will.
        (true, false, _) if !has(b"FTP") => Look::More,
        _ => Look::No,
    }
}

impl Commands {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        self.lines.held()
    }

    /// Whether what comes are no commands.
    pub const fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Whether a message is under way.
    pub const fn is_in_message(&self) -> bool {
        matches!(self.state, State::Message(..))
    }

    /// The server did not want the message that DATA announced.
    pub fn refused(&mut self) {
        if self.is_in_message() {
            self.state = State::Commands;
        }
    }

    /// The server asks for something that is no command.
    pub fn asks(&mut self) {
        self.is_asked = true;
    }

    /// The server has replied to a message: if bytes of it are missing, its end is among them.
    pub fn taken<E: CommandEvents>(&mut self, events: &mut E) {
        if matches!(self.state, State::Message(_, true)) {
            self.state = State::Commands;
            events.content_end(true);
        }
    }

    /// The server waits for a message. Returns whether that is news: the command that announced it is
    /// missing.
    pub fn awaited(&mut self) -> bool {
        let is_news = self.has_hole && matches!(self.state, State::Commands);
        if is_news {
            self.lines = Lines::default();
            self.state = State::Message(2, true);
            self.has_hole = false;
        }
        is_news
    }

    /// The next bytes of the stream.
    pub fn data<E: CommandEvents>(&mut self, bytes: &[u8], events: &mut E) {
        self.lines.resume(|| {
            let is = |verb: &&[u8]| {
                let first = bytes.get(..verb.len());
                first.is_some_and(|first| first.eq_ignore_ascii_case(verb))
            };
            let end = VERBS.iter().find(|verb| is(verb)).map(|verb| verb.len());
            end.is_some_and(|end| matches!(bytes.get(end), Some(b' ' | b'\r' | b'\n')))
        });
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.state {
                State::Commands => {
                    let (taken, is_line) = self.lines.step(rest);
                    if is_line {
                        self.line(events);
                        self.lines.clear();
                    }
                    taken
                }
                State::Message(seen, has_hole) => self.message(seen, has_hole, rest, events),
                State::Chunk(left, is_last) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let (content, _) = rest.split_at(taken);
                    events.content(content);
                    self.chunk(left - taken as u64, is_last, events);
                    taken
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap<E: CommandEvents>(&mut self, missing: u64, events: &mut E) {
        if missing == 0 {
            return;
        }
        match self.state {
            State::Commands => {
                self.lines.gap();
                self.has_hole = true;
                events.lost(0);
            }
            State::Message(..) => {
                self.state = State::Message(0, true);
                events.lost(missing);
            }
            State::Chunk(left, is_last) => {
                events.lost(missing.min(left));
                self.chunk(left.saturating_sub(missing), is_last, events);
                if missing > left {
                    self.lines.gap();
                    self.has_hole = true;
                }
            }
        }
    }

    fn chunk<E: CommandEvents>(&mut self, left: u64, is_last: bool, events: &mut E) {
        self.state = match left {
            0 => State::Commands,
            left => State::Chunk(left, is_last),
        };
        if left == 0 {
            events.content_end(is_last);
        }
    }

    fn message<E: CommandEvents>(
        &mut self,
        seen: usize,
        has_hole: bool,
        bytes: &[u8],
        events: &mut E,
    ) -> usize {
        let mut seen = seen;
        // Bytes of the last line that came before, and were not given on.
        let mut held = seen.saturating_sub(2);
        for (place, &byte) in bytes.iter().enumerate() {
            if END.get(seen) == Some(&byte) {
                seen += 1;
                if seen == END.len() {
                    let content = place + 1 - (END.len() - 2 - held);
                    events.content(bytes.get(..content).unwrap_or_default());
                    self.state = State::Commands;
                    events.content_end(true);
                    return place + 1;
                }
                continue;
            }
            if held > 0 {
                events.content(END.get(2..2 + held).unwrap_or_default());
                held = 0;
            }
            seen = usize::from(byte == b'\r');
        }
        let here = seen.saturating_sub(2) - held;
        events.content(bytes.get(..bytes.len() - here).unwrap_or_default());
        self.state = State::Message(seen, has_hole);
        bytes.len()
    }

    fn line<E: CommandEvents>(&mut self, events: &mut E) {
        self.has_hole = false;
        if core::mem::take(&mut self.is_asked) {
            return;
        }
        let line = self.lines.line();
        let space = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
        let (verb, argument) = line.split_at(space.unwrap_or(line.len()));
        let argument = argument.trim_ascii();
        let is = |word: &[u8]| verb.eq_ignore_ascii_case(word);
        if !VERBS.iter().any(|word| is(word)) && !self.has_begun {
            self.is_foreign = true;
        }
        self.has_begun = true;
        if is(b"AUTH") {
            let method = argument.split(|byte| *byte == b' ').next();
            return events.command(verb, method.unwrap_or_default());
        }
        if is(b"BDAT") {
            let mut words = argument
                .split(|byte| *byte == b' ')
                .filter(|word| !word.is_empty());
            let size = words
                .next()
                .and_then(|word| core::str::from_utf8(word).ok());
            let size: Option<u64> = size.and_then(|word| word.parse().ok());
            let is_last = words
                .next()
                .is_some_and(|word| word.eq_ignore_ascii_case(b"LAST"));
            events.command(verb, argument);
            if let Some(size) = size.filter(|&size| size < 1 << 40) {
                self.chunk(size, is_last, events);
            }
            return;
        }
        if is(b"DATA") {
            self.state = State::Message(2, false);
        }
        events.command(verb, argument);
    }
}
