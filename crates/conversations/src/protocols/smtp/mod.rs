//! SMTP: mails, from the first command to the last reply; what follows STARTTLS is TLS.

use std::collections::VecDeque;

use flowgauge_proto::smtp::{
    CommandEvents, Commands, Replies, Reply, ReplyEvents, look_client, look_server,
};
use flowgauge_record::Held;
use flowgauge_record::file::FileRow;
use flowgauge_record::origin::Origin;
use flowgauge_record::smtp::{SMTP_SCHEMA, SmtpRow};
use flowgauge_record::text::lossy;
use flowgauge_stack::{ComponentInfo, ResultInfo, StreamEnd};
use flowgauge_wire::Nanos;

use super::table::Table;
use super::tls::{TlsTalk, origin};
use super::{At, Conversation, Give, ProtocolInfo, Transport, alone, bounded_text};
use crate::files::{Body, Files, Parts};

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "smtp",
    transport: Transport::Tcp,
    ports: &[25, 587, 2525],
    // A client's word tells, a server's greeting often.
    look: |seen| seen.sides(look_client(seen.initiator), look_server(seen.responder)),
    begins_datagram: |_| false,
    table: Table::<SmtpTalk>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "smtp",
    summary: "finds mails sent by SMTP",
    help: "A record of each mail, from its first command to its last reply. Use it within tcpcnxdemux, after tcpreseq.",
    fields: |_| Some(SMTP_SCHEMA),
    result: Some(ResultInfo::number("mails found", "transactions")),
    make: alone::make::<SmtpTalk>,
    ..alone::OF_CHUNKS
};

/// Commands without a reply yet.
const WAITING: usize = 256;
/// Bytes of a message's head.
const MAX_HEAD: usize = 32 << 10;
/// Receivers of a mail, addresses in a header field.
const MAX_LIST: usize = 100;
/// Header fields that say which way a mail came.
const MAX_RECEIVED: usize = 16;
/// Bytes of a text.
const MAX_TEXT: usize = 1 << 10;

/// A connection of SMTP.
#[derive(Default)]
pub(crate) struct SmtpTalk {
    commands: Commands,
    replies: Replies,
    mail: Mail,
    tls: Option<Box<TlsTalk>>,
}

/// What commands and replies come to.
#[derive(Default)]
struct Mail {
    origin: Option<Origin>,
    /// Number of the flow.
    flow: u64,
    /// The initiator is the server: it was taken for who opened the connection.
    is_exchanged: bool,
    /// The mail that commands are of, and its number in the connection.
    row: SmtpRow,
    number: u64,
    /// A command of the row has come.
    has_begun: bool,
    /// Mails that are whole and wait for a reply: a client may go on with the next (PIPELINING, RFC 2920).
    sent: VecDeque<(u64, SmtpRow)>,
    /// Commands without a reply.
    waiting: VecDeque<Command>,
    /// Commands that wait no more, whose replies are still to come.
    skipped: u64,
    /// When the client said something last.
    said: Nanos,
    /// Something was lost, and since then some command has waited.
    has_lost: bool,
    head: Vec<u8>,
    is_head_over: bool,
    /// The message comes with DATA, in which dots are doubled.
    is_stuffed: bool,
    /// All of it, where mails are files.
    whole: Option<Box<WholeMail>>,
    /// Its parts, where files are wanted.
    parts: Option<Box<Parts>>,
    /// Messages before it. A mail can have several: one can break off before another begins.
    messages: u64,
    /// Parts of those before.
    parts_before: u32,
    /// Parts that are over.
    files: Vec<FileRow>,
    helo: Option<String>,
    auth: Option<String>,
    depth: u32,
    is_tls: bool,
    /// Rows that are complete.
    done: Vec<SmtpRow>,
}

/// A mail as a file.
struct WholeMail {
    body: Body,
    row: FileRow,
    is_holed: bool,
    /// The next byte is the first of a line.
    begins_line: bool,
}

impl WholeMail {
    /// More of it; with dots doubled or not.
    fn data(&mut self, bytes: &[u8], is_stuffed: bool, time: Nanos) {
        self.row.end = time;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let dot = usize::from(is_stuffed && self.begins_line && line.starts_with(b"."));
            self.body.data(&line[dot..]);
            self.begins_line = line.ends_with(b"\n");
        }
    }
}

/// A command that waits for its reply.
#[derive(Clone, Copy, Debug)]
struct Command {
    kind: Kind,
    /// Of its mail.
    number: u64,
    time: Nanos,
}

/// What a reply is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    /// A message, or its last chunk.
    Message,
    Reset,
    Auth,
    StartTls,
    Other,
}

fn text(bytes: &[u8], limit: &mut Option<&'static str>) -> String {
    bounded_text(bytes, MAX_TEXT, limit)
}

/// The address in `FROM:<a@b> SIZE=1`.
fn path(argument: &[u8], limit: &mut Option<&'static str>) -> String {
    let begin = argument.iter().position(|&byte| byte == b':');
    let rest = argument
        .get(begin.map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    let rest = rest.trim_ascii();
    let within = rest.strip_prefix(b"<").map(|rest| {
        let end = rest.iter().position(|&byte| byte == b'>');
        &rest[..end.unwrap_or(rest.len())]
    });
    let word = rest.split(|&byte| byte == b' ').next().unwrap_or_default();
    text(within.unwrap_or(word), limit)
}

/// What stands between commas, but those in quotation marks.
fn addresses(value: &str, limit: &mut Option<&'static str>) -> Vec<String> {
    let mut list = vec![String::new()];
    let mut is_quoted = false;
    for char in value.chars() {
        is_quoted ^= char == '"';
        let is_next = char == ',' && !is_quoted;
        if is_next && list.len() >= MAX_LIST {
            limit.get_or_insert("receivers");
        }
        if is_next && list.len() < MAX_LIST {
            list.push(String::new());
        } else if let Some(last) = list.last_mut() {
            last.push(char);
        }
    }
    let list = list.iter().map(|part| part.trim().to_owned());
    list.filter(|part| !part.is_empty()).collect()
}

/// Both directions' events, with when they came.
struct Said<'a> {
    mail: &'a mut Mail,
    time: Nanos,
    /// What is done with files, if anything.
    files: Option<&'a mut Files>,
}

impl CommandEvents for Said<'_> {
    fn command(&mut self, verb: &[u8], argument: &[u8]) {
        let verb = verb.to_ascii_uppercase();
        if verb != b"BDAT" {
            self.end_parts(false);
        }
        let mail = &mut *self.mail;
        mail.is_stuffed = verb != b"BDAT";
        let has_envelope = mail.row.sender.is_some() || !mail.row.receivers.is_empty();
        if verb == b"MAIL" && has_envelope {
            mail.finish("reset");
        }
        mail.begin(self.time);
        let row = &mut mail.row;
        row.commands += 1;
        let kind = match verb.as_slice() {
            b"HELO" | b"EHLO" | b"LHLO" => {
                mail.helo = Some(text(argument, &mut row.limit));
                Kind::Other
            }
            b"MAIL" => {
                row.sender = Some(path(argument, &mut row.limit));
                Kind::Other
            }
            b"RCPT" => {
                match row.receivers.len() < MAX_LIST {
                    true => row.receivers.push(path(argument, &mut row.limit)),
                    false => _ = row.limit.get_or_insert("receivers"),
                }
                Kind::Other
            }
            b"DATA" => {
                // What there is of a head is of a message that broke off.
                mail.head.clear();
                mail.is_head_over = false;
                Kind::Data
            }
            // Its reply comes behind the chunk.
            b"BDAT" => Kind::Other,
            // Without a sender there is nothing that it could end.
            b"RSET" if row.sender.is_some() => Kind::Reset,
            b"AUTH" => {
                mail.auth = Some(text(argument, &mut row.limit));
                Kind::Auth
            }
            b"STARTTLS" => Kind::StartTls,
            _ => Kind::Other,
        };
        mail.wait(kind, self.time);
    }

    fn content(&mut self, bytes: &[u8]) {
        self.mail.begin(self.time);
        if let Some(files) = self.files.as_deref_mut() {
            let is_stuffed = self.mail.is_stuffed;
            if let Some(whole) = self.mail.whole(self.time, files) {
                whole.data(bytes, is_stuffed, self.time);
            }
            self.mail.parts(self.time).data(bytes, self.time, files);
        }
        let mail = &mut *self.mail;
        *mail.row.message_bytes.get_or_insert(0) += bytes.len() as u64;
        if mail.is_head_over {
            return;
        }
        let room = MAX_HEAD.saturating_sub(mail.head.len()).min(bytes.len());
        mail.head.extend_from_slice(&bytes[..room]);
        let end = b"\r\n\r\n";
        mail.is_head_over = mail.head.windows(end.len()).any(|part| part == end);
        if room < bytes.len() && !mail.is_head_over {
            mail.is_head_over = true;
            mail.row.limit.get_or_insert("head");
        }
    }

    fn content_end(&mut self, is_last: bool) {
        let mail = &mut *self.mail;
        mail.begin(self.time);
        mail.row.message_bytes.get_or_insert(0);
        if !is_last {
            return;
        }
        self.end_parts(true);
        let mail = &mut *self.mail;
        // Of BDAT the command waits already.
        match mail.waiting.back_mut() {
            Some(command) if command.kind == Kind::Other => command.kind = Kind::Message,
            _ => mail.wait(Kind::Message, self.time),
        }
        mail.read_head();
        let row = mail.take();
        mail.sent.push_back(row);
    }

    fn lost(&mut self, content: u64) {
        self.mail.has_lost = true;
        self.mail.begin(self.time);
        let row = &mut self.mail.row;
        row.missing_bytes += content;
        if content > 0 {
            *row.message_bytes.get_or_insert(0) += content;
            if let Some(files) = self.files.as_deref_mut() {
                if let Some(whole) = self.mail.whole(self.time, files) {
                    whole.is_holed = true;
                    whole.begins_line = false;
                    whole.body.gap(content);
                }
                self.mail.parts(self.time).gap(content, self.time, files);
            }
        }
    }
}

impl Said<'_> {
    /// The message is over, and its parts with it.
    fn end_parts(&mut self, is_whole: bool) {
        if let Some(mut parts) = self.mail.parts.take()
            && let Some(files) = self.files.as_deref_mut()
        {
            parts.finish(is_whole, self.time, files);
            let before = &mut self.mail.parts_before;
            *before = before.saturating_add(parts.count());
            self.mail.messages += 1;
            self.mail.keep(parts.done());
            if let Some(mut whole) = self.mail.whole.take() {
                whole.row.is_whole = is_whole && !whole.is_holed;
                files.close(whole.body, &mut whole.row);
                whole.row.mime_type = Some("message/rfc822");
                self.mail.files.push(whole.row);
            }
        }
    }

    /// A reply is complete. Returns what it is for.
    fn reply(&mut self, reply: &Reply<'_>) -> Option<Kind> {
        let mail = &mut *self.mail;
        let (kind, number) = match mail.skipped.checked_sub(1) {
            Some(left) => {
                mail.skipped = left;
                (Some(Kind::Other), None)
            }
            None => {
                let command = mail.answers(reply.code, self.time);
                (command.map(|it| it.kind), command.map(|it| it.number))
            }
        };
        let code = reply.code;
        if kind.is_none() && !mail.has_begun && mail.sent.is_empty() {
            // The greeting.
            return kind;
        }
        let number = number.or_else(|| Some(mail.sent.front()?.0));
        let number = number.unwrap_or(mail.number);
        let time = self.time;
        // What is older than the mail is for a command before it, which was not captured.
        let row = mail.row_of(number).filter(|row| row.origin.time <= time);
        let Some(row) = row else {
            return kind;
        };
        row.end = time;
        row.errors += u32::from(code >= 400);
        let words = text(reply.last, &mut row.limit);
        row.last_reply = Some(format!("{code} {words}").trim_end().to_owned());
        let is_current = number == mail.number;
        match kind {
            Some(Kind::Message) => {
                let state = if code < 400 { "sent" } else { "refused" };
                mail.answered(number, state);
            }
            Some(Kind::Reset) if is_current && mail.row.sender.is_some() => mail.finish("reset"),
            Some(Kind::StartTls) if is_current && code == 220 => {
                mail.is_tls = true;
                mail.finish("tls");
            }
            _ => {}
        }
        kind
    }
}

impl Mail {
    /// What files of the message under way are called, and what they have in common.
    fn file(&self, time: Nanos) -> (String, FileRow) {
        let mut origin = self.origin.unwrap_or_default();
        if self.is_exchanged {
            origin.parties = origin.parties.exchanged();
        }
        origin.time = time;
        let row = FileRow {
            origin,
            source: "smtp",
            depth: u32::try_from(self.messages + 1).ok(),
            // Who sends a mail is its client.
            from_initiator: true,
            end: time,
            ..FileRow::default()
        };
        (
            format!("smtp-{:016x}-{}", self.flow, self.messages + 1),
            row,
        )
    }

    /// The message under way as a file, where mails are.
    fn whole(&mut self, time: Nanos, files: &mut Files) -> Option<&mut WholeMail> {
        if self.whole.is_none() && files.has_mails && self.parts.is_none() {
            let (name, row) = self.file(time);
            self.whole = Some(Box::new(WholeMail {
                body: files.open(&name, None),
                row,
                is_holed: false,
                begins_line: true,
            }));
        }
        self.whole.as_deref_mut()
    }

    /// The parts of the message under way.
    fn parts(&mut self, time: Nanos) -> &mut Parts {
        let parts = self.parts.take().unwrap_or_else(|| {
            let (name, row) = self.file(time);
            let row = FileRow {
                part: Some(self.parts_before),
                parent: self.whole.as_ref().map(|whole| whole.body.id()),
                ..row
            };
            Parts::of_mail(name, row, self.is_stuffed)
        });
        self.parts.insert(parts)
    }

    /// Keeps parts that are over until they are given on.
    fn keep(&mut self, files: Vec<FileRow>) {
        let ids = files.iter().filter_map(|file| file.file_id);
        let room = MAX_LIST.saturating_sub(self.row.files.len());
        self.row.files.extend(ids.take(room));
        if room < files.len() {
            self.row.limit.get_or_insert("files");
        }
        let room = MAX_LIST.saturating_sub(self.row.attachments.len());
        let names = files
            .iter()
            .filter_map(|file| file.file_name.as_deref())
            .take(room);
        let limit = &mut self.row.limit;
        let names = names.map(|name| text(name.as_bytes(), limit));
        self.row.attachments.extend(names);
        self.files.extend(files);
    }

    /// Bytes of memory that it keeps beside itself.
    fn held(&self) -> usize {
        let sent = self.sent.iter().map(|(_, row)| row.held()).sum::<usize>();
        self.row.held()
            + sent
            + self.sent.capacity() * size_of::<(u64, SmtpRow)>()
            + self.waiting.capacity() * size_of::<Command>()
            + self.done.capacity() * size_of::<SmtpRow>()
            + self.head.capacity()
            + self.parts.as_ref().map_or(0, |parts| parts.held())
            + self.whole.as_ref().map_or(0, |it| size_of_val(&**it))
            + self.helo.held()
            + self.auth.held()
    }

    fn wait(&mut self, kind: Kind, time: Nanos) {
        if self.waiting.len() >= WAITING {
            let dropped = self.waiting.pop_front();
            self.skipped += 1;
            if let Some(Command {
                kind: Kind::Message,
                number,
                ..
            }) = dropped
            {
                if let Some(row) = self.row_of(number) {
                    row.limit = Some("commands");
                }
                self.answered(number, "cut");
            }
        }
        self.waiting.push_back(Command {
            kind,
            number: self.number,
            time,
        });
    }

    /// The command that a reply is for which was captured then: the oldest, and never a younger one than the reply.
    /// Behind a loss those are passed over that were sent before the newest that can be its own, as a client mostly
    /// waits before it goes on; those that were sent together with that (PIPELINING) are not.
    fn answers(&mut self, code: u16, time: Nanos) -> Option<Command> {
        let older = self.waiting.iter().take_while(|it| it.time <= time);
        let Some(Command { time: newest, .. }) = older.clone().last().copied() else {
            // Those that wait are younger: the reply's own was not captured, or later.
            self.has_lost |= !self.waiting.is_empty();
            return None;
        };
        let mut passed = 0;
        if self.has_lost {
            let begins_message = |it: &Command| it.kind == Kind::Data;
            passed = match code {
                354 => older.clone().position(begins_message),
                _ => None,
            }
            .unwrap_or_else(|| older.take_while(|it| it.time < newest).count());
        }
        for _ in 0..passed {
            if let Some(command) = self.waiting.pop_front()
                && command.kind == Kind::Message
            {
                self.answered(command.number, "cut");
            }
        }
        let command = self.waiting.pop_front();
        self.has_lost &= !self.waiting.is_empty();
        command
    }

    /// A mail that is not complete.
    fn row_of(&mut self, number: u64) -> Option<&mut SmtpRow> {
        if number == self.number {
            return Some(&mut self.row);
        }
        let mut sent = self.sent.iter_mut();
        let found = sent.find(|(of, _)| *of == number);
        found.map(|(_, row)| row)
    }

    /// The mail that commands were of; they are of the next now.
    fn take(&mut self) -> (u64, SmtpRow) {
        let number = self.number;
        self.number += 1;
        self.has_begun = false;
        self.head.clear();
        self.is_head_over = false;
        (number, core::mem::take(&mut self.row))
    }

    /// A mail that was sent has its reply, or will have none.
    fn answered(&mut self, number: u64, state: &'static str) {
        let place = self.sent.iter().position(|(of, _)| *of == number);
        if let Some((_, row)) = place.and_then(|place| self.sent.remove(place)) {
            self.complete(row, state);
        }
    }

    fn begin(&mut self, time: Nanos) {
        if !self.has_begun {
            self.has_begun = true;
            self.row.origin.time = time;
        }
    }

    /// The mail that commands are of is over.
    fn finish(&mut self, state: &'static str) {
        let (_, row) = self.take();
        self.complete(row, state);
    }

    fn complete(&mut self, mut row: SmtpRow, state: &'static str) {
        self.depth += 1;
        if let Some(origin) = self.origin {
            row.origin = Origin {
                time: row.origin.time,
                ..origin
            };
            if self.is_exchanged {
                row.origin.parties = row.origin.parties.exchanged();
            }
        }
        row.depth = self.depth;
        row.state = state;
        row.helo = self.helo.clone();
        row.auth = self.auth.clone();
        row.is_tls = self.is_tls;
        self.done.push(row);
    }

    /// The connection is over.
    fn close(&mut self, close: Option<&'static str>, limit: Option<&'static str>) {
        while let Some((_, mut row)) = self.sent.pop_front() {
            let state = if row.errors > 0 { "refused" } else { "cut" };
            row.close = close;
            row.limit = row.limit.or(limit);
            self.complete(row, state);
        }
        if self.row.sender.is_some() || self.depth == 0 && self.has_begun {
            let state = match self.row.sender {
                Some(_) if self.row.errors > 0 => "refused",
                Some(_) => "cut",
                None => "no_mail",
            };
            self.row.close = close;
            self.row.limit = self.row.limit.or(limit);
            self.finish(state);
        }
    }

    fn read_head(&mut self) {
        let head = lossy(&self.head).into_owned();
        let head = head.split("\r\n\r\n").next().unwrap_or_default();
        // Lines that go on are one.
        let head = head.replace("\r\n\t", " ").replace("\r\n ", " ");
        let row = &mut self.row;
        for line in head.split("\r\n") {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            let limit = &mut row.limit;
            let mut one = || Some(text(value.as_bytes(), limit));
            match name.to_ascii_lowercase().as_str() {
                "date" => row.date = one(),
                "from" => row.from = one(),
                "to" => row.to = addresses(value, limit),
                "cc" => row.cc = addresses(value, limit),
                "reply-to" => row.reply_to = one(),
                "message-id" => row.id = one(),
                "in-reply-to" => row.in_reply_to = one(),
                "subject" => row.subject = one(),
                "received" => match row.received.len() < MAX_RECEIVED {
                    true => row.received.push(text(value.as_bytes(), limit)),
                    false => _ = limit.get_or_insert("received"),
                },
                "x-originating-ip" => row.originating_ip = one(),
                "user-agent" | "x-mailer" => row.user_agent = row.user_agent.take().or_else(one),
                _ => {}
            }
        }
    }
}

impl SmtpTalk {
    fn give(&mut self, give: &mut Give<'_>) {
        if let Some(parts) = &mut self.mail.parts {
            let done = parts.done();
            self.mail.keep(done);
        }
        for mut row in self.mail.files.drain(..) {
            row.limit = row.limit.or(give.limit);
            give.file(row.origin.time, &row);
        }
        for row in self.mail.done.drain(..) {
            // Within a tunnel it is not the flow's own protocol.
            give.record_of(PROTOCOL.name, row.origin.time, &row);
        }
    }
}

impl Conversation for SmtpTalk {
    type Common = ();

    fn data(&mut self, (): &mut (), at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if let Some(tls) = &mut self.tls {
            return tls.data(&mut (), at, bytes, give);
        }
        if self.mail.origin.is_none() {
            self.mail.origin = Some(origin(at));
            self.mail.flow = at.connection.flow_id.unwrap_or_default();
            let is_reply = bytes.first().is_some_and(u8::is_ascii_digit);
            // Who opened it is known by its SYN.
            let is_known = at.connection.handshake[0].is_some();
            self.mail.is_exchanged = !is_known && at.from_initiator == is_reply;
        }
        let is_client = at.from_initiator != self.mail.is_exchanged;
        let mut said = Said {
            mail: &mut self.mail,
            time: at.time,
            files: give.files.as_deref_mut(),
        };
        if is_client {
            said.mail.said = said.mail.said.max(at.time);
            self.commands.data(bytes, &mut said);
        } else {
            let mut seen = First::default();
            self.replies.data(bytes, &mut Both(&mut said, &mut seen));
            // Behind a hole that was given up replies come when the client has gone on: what it says now, they do not tell.
            let is_late = said.mail.said > at.time;
            match (seen.kind, seen.code) {
                _ if is_late => {}
                (Some(Kind::Data), Some(code)) if code >= 400 => self.commands.refused(),
                (Some(Kind::Auth), Some(334)) => {
                    self.commands.asks();
                    said.mail.waiting.push_front(Command {
                        kind: Kind::Auth,
                        number: said.mail.number,
                        time: at.time,
                    });
                }
                (_, Some(code)) if code != 354 => self.commands.taken(&mut said),
                (_, Some(_)) if self.commands.awaited() => {
                    // Of the commands before, which replies were theirs is not known any more.
                    said.mail.waiting.clear();
                    said.mail.skipped = 0;
                }
                _ => {}
            }
        }
        self.give(give);
        if self.mail.is_tls {
            self.tls = Some(Box::default());
        }
    }

    fn gap(&mut self, (): &mut (), at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        if let Some(tls) = &mut self.tls {
            return tls.gap(&mut (), at, bytes, give);
        }
        let is_client = at.from_initiator != self.mail.is_exchanged;
        let mut said = Said {
            mail: &mut self.mail,
            time: at.time,
            files: give.files.as_deref_mut(),
        };
        match is_client {
            true => self.commands.gap(bytes, &mut said),
            false => self
                .replies
                .gap(bytes, &mut Both(&mut said, &mut First::default())),
        }
    }

    fn end(&mut self, (): &mut (), at: &At<'_>, end: StreamEnd, give: &mut Give<'_>) {
        match &mut self.tls {
            Some(tls) => tls.end(&mut (), at, end, give),
            None => {
                self.mail.row.close = Some(end.name());
            }
        }
    }

    fn held(&self) -> usize {
        let tls = self
            .tls
            .as_ref()
            .map_or(0, |tls| size_of::<TlsTalk>() + tls.held());
        self.commands.held() + self.replies.held() + self.mail.held() + tls
    }

    fn oldest(&self) -> Option<Nanos> {
        self.mail.sent.front().map(|(_, row)| row.origin.time)
    }

    fn give_up(&mut self, (): &mut (), _: &At<'_>, give: &mut Give<'_>) {
        if let Some((_, mut row)) = self.mail.sent.pop_front() {
            row.limit = give.limit;
            self.mail.complete(row, "cut");
        }
        self.give(give);
    }

    fn close(&mut self, (): &mut (), at: &At<'_>, give: &mut Give<'_>) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut (), at, give);
        }
        let mut said = Said {
            mail: &mut self.mail,
            time: at.time,
            files: give.files.as_deref_mut(),
        };
        said.end_parts(false);
        let close = self.mail.row.close;
        self.mail.close(close, give.limit);
        self.give(give);
    }
}

/// The first reply in a piece: its code, and what it is for.
#[derive(Default)]
struct First {
    code: Option<u16>,
    kind: Option<Kind>,
}

struct Both<'a, 'b>(&'a mut Said<'b>, &'a mut First);

impl ReplyEvents for Both<'_, '_> {
    fn reply(&mut self, reply: &Reply<'_>) {
        let kind = self.0.reply(reply);
        if self.1.code.is_none() {
            self.1.code = Some(reply.code);
            self.1.kind = kind;
        }
    }

    fn lost(&mut self) {
        self.0.mail.has_lost = true;
    }
}
