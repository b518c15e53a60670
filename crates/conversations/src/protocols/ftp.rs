//! FTP: commands with their replies, and data connections where they were agreed on.

use core::net::IpAddr;
use std::collections::VecDeque;

use flowgauge_proto::Look;
use flowgauge_proto::ftp::{
    CommandEvents, Commands, Endpoint, Replies, Reply, ReplyEvents, look_client, look_server,
};
use flowgauge_record::Held;
use flowgauge_record::file::FileRow;
use flowgauge_record::ftp::{FTP_SCHEMA, FtpDataRow, FtpRow};
use flowgauge_record::origin::Origin;
use flowgauge_stack::{ComponentInfo, ResultInfo, StreamEnd};
use flowgauge_wire::{Address, Nanos};

use super::learned::Note;
use super::table::Table;
use super::tls::{TlsTalk, origin};
use super::{At, Conversation, Give, ProtocolInfo, Seen, Transport, alone, bounded_text};
use crate::files::Body;

pub(super) const PROTOCOL: ProtocolInfo = ProtocolInfo {
    name: "ftp",
    transport: Transport::Tcp,
    ports: &[21, 2121],
    look: recognise,
    begins_datagram: |_| false,
    table: Table::<FtpTalk>::boxed,
};

/// Only where a control connection said so.
pub(super) const DATA: ProtocolInfo = ProtocolInfo {
    name: "ftp_data",
    transport: Transport::Tcp,
    ports: &[],
    look: |_| Look::No,
    begins_datagram: |_| false,
    table: Table::<DataTalk>::boxed,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ftp",
    summary: "finds FTP commands and their replies in a control connection",
    help: "Only transactions follows data connections. Use it within tcpcnxdemux, after tcpreseq.",
    fields: |_| Some(FTP_SCHEMA),
    result: Some(ResultInfo::number(
        "commands with and without a reply",
        "transactions",
    )),
    make: alone::make::<FtpTalk>,
    ..alone::OF_CHUNKS
};

fn recognise(seen: &Seen<'_>) -> Look {
    match (look_client(seen.initiator), look_server(seen.responder)) {
        // Others have users, too: a server that greets in another way is none of FTP.
        (_, Look::No) if !seen.responder.is_empty() => Look::No,
        // Both begin like it.
        (Look::More, Look::More)
            if seen.initiator.contains(&b'\n') && seen.responder.contains(&b'\n') =>
        {
            Look::Yes
        }
        (client, server) => seen.sides(client, server),
    }
}

/// Commands without a reply yet.
const WAITING: usize = 64;
/// Lines of the replies to a command that are kept, and bytes of each.
const MAX_LINES: usize = 32;
const MAX_LINE: usize = 1 << 10;
/// Bytes of a text.
const MAX_TEXT: usize = 4 << 10;

/// A control connection.
#[derive(Debug, Default)]
pub(crate) struct FtpTalk {
    commands: Commands,
    replies: Replies,
    control: Control,
    tls: Option<Box<TlsTalk>>,
}

#[derive(Debug, Default)]
struct Control {
    origin: Option<Origin>,
    /// The initiator is the server.
    is_exchanged: bool,
    user: Option<String>,
    password: Option<String>,
    /// Where the client is, if it went anywhere.
    directory: Option<String>,
    waiting: VecDeque<FtpRow>,
    /// Commands that wait no more, whose replies are still to come.
    skipped: u64,
    has_greeted: bool,
    is_damaged: bool,
    /// Something was lost, and since then no command has waited alone for a reply.
    is_unsure: bool,
    /// Replies were lost since the last one.
    is_reply_damaged: bool,
    is_tls: bool,
    /// Lines of the reply under way, and what bound left something of them out.
    lines: Vec<String>,
    lines_limit: Option<&'static str>,
    /// Where the next data connection goes, and whether that is to the client.
    data: Vec<(Address, u16)>,
    is_active: bool,
    /// What it carries, from the moment that the server begins.
    notes: Vec<Note>,
    done: Vec<FtpRow>,
}

struct Said<'a> {
    control: &'a mut Control,
    time: Nanos,
    /// All lines of replies are wanted, those of the greeting, too.
    keeps_lines: bool,
}

fn text(bytes: &[u8], limit: &mut Option<&'static str>) -> String {
    bounded_text(bytes, MAX_TEXT, limit)
}

/// Users who say who they are in place of a password.
const GUESTS: [&str; 4] = ["anonymous", "ftp", "ftpuser", "guest"];

/// Commands whose argument is a file or a directory.
const FILE_COMMANDS: [&[u8]; 13] = [
    b"APPE", b"CWD", b"DELE", b"MKD", b"MDTM", b"REST", b"RETR", b"RMD", b"RNFR", b"RNTO", b"SIZE",
    b"STOR", b"STOU",
];

/// The last number in a text.
fn last_number(text: &[u8]) -> Option<u64> {
    let mut runs = text.rsplit(|byte| !byte.is_ascii_digit());
    let digits = runs.find(|run| !run.is_empty())?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// What stands between the first two quotation marks.
fn quoted(text: &[u8]) -> Option<&[u8]> {
    let mut parts = text.splitn(3, |&byte| byte == b'"');
    let within = parts.nth(1)?;
    parts.next().map(|_| within)
}

/// A path from a directory.
pub(crate) fn joined(directory: &str, name: &str) -> String {
    let whole = match name.starts_with('/') {
        true => name.to_owned(),
        false => format!("{directory}/{name}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            ".." if parts
                .last()
                .is_some_and(|last| !matches!(*last, "" | "." | "..")) =>
            {
                parts.pop();
            }
            "" if !parts.is_empty() => {}
            part => parts.push(part),
        }
    }
    match parts.as_slice() {
        [""] => "/".to_owned(),
        parts => parts.join("/"),
    }
}

/// Where the server waits for a data connection, if it says so.
fn agreed(reply: &Reply<'_>) -> Option<Endpoint> {
    match reply.code {
        227 => Endpoint::numbers(reply.last),
        229 => Endpoint::extended(reply.last),
        _ => None,
    }
}

impl Control {
    /// Bytes of memory that it keeps beside itself.
    fn held(&self) -> usize {
        let rows = self.waiting.iter().map(FtpRow::held).sum::<usize>();
        rows + self.waiting.capacity() * size_of::<FtpRow>()
            + self.lines.held()
            + self.user.held()
            + self.password.held()
            + self.directory.held()
    }

    /// The oldest command waits no more.
    fn skip(&mut self, limit: Option<&'static str>) {
        if let Some(mut row) = self.waiting.pop_front() {
            row.limit = limit;
            self.skipped += 1;
            self.done.push(row);
        }
    }

    fn row(&mut self, time: Nanos) -> FtpRow {
        let mut origin = self.origin.unwrap_or_default();
        origin.time = time;
        FtpRow {
            origin,
            user: self.user.clone(),
            password: self.password.clone(),
            is_damaged: core::mem::take(&mut self.is_damaged),
            ..FtpRow::default()
        }
    }

    /// The client is somewhere else, if the server says so.
    fn go(&mut self, row: &FtpRow, reply: &Reply<'_>) {
        let here = self.directory.as_deref().unwrap_or(".");
        let to = match (row.command.as_deref(), reply.code) {
            (Some("CWD"), 250) => row.argument.as_deref().map(|name| joined(here, name)),
            (Some("CDUP"), 200 | 250) => Some(joined(here, "..")),
            (Some("PWD" | "XPWD"), 257) => quoted(reply.last).map(|it| text(it, &mut None)),
            _ => None,
        };
        // One that is too long is not followed.
        if let Some(to) = to.filter(|to| to.len() <= MAX_TEXT) {
            self.directory = Some(to);
        }
    }

    /// What goes over the data connection that was agreed on, if this command sends something there.
    fn note(&mut self, row: &FtpRow) {
        let Some(command) = row.command.as_deref() else {
            return;
        };
        const CARRIED: [&str; 7] = ["RETR", "STOR", "STOU", "APPE", "LIST", "NLST", "MLSD"];
        if CARRIED.contains(&command) && self.notes.len() < WAITING {
            self.notes.push(Note {
                command: Some(command.to_owned()),
                name: row.argument.clone(),
                is_active: false,
            });
        }
    }

    /// Where a data connection goes, as the record tells it.
    fn endpoint(&self, endpoint: Endpoint) -> Option<(IpAddr, u16)> {
        let parties = self.origin?.parties;
        let server = parties.server.0.to_ip(parties.ip_version);
        Some((endpoint.address.unwrap_or(server), endpoint.port))
    }
}

impl CommandEvents for Said<'_> {
    fn command(&mut self, verb: &[u8], argument: &[u8]) {
        let control = &mut *self.control;
        let verb = verb.to_ascii_uppercase();
        let mut limit = None;
        if verb == b"USER" {
            control.user = Some(text(argument, &mut limit));
        }
        if verb == b"PASS" {
            let user = control.user.as_deref().unwrap_or_default();
            let is_guest = GUESTS.iter().any(|guest| user.eq_ignore_ascii_case(guest));
            let hidden = || "<hidden>".to_owned();
            control.password = Some(if is_guest {
                text(argument, &mut limit)
            } else {
                hidden()
            });
        }
        let mut row = control.row(self.time);
        row.command = Some(text(&verb, &mut limit));
        if FILE_COMMANDS.contains(&verb.as_slice()) {
            let directory = control.directory.as_deref().unwrap_or(".");
            row.directory = Some(directory.to_owned());
        }
        // Passwords are none of a monitor's business.
        let is_secret = matches!(verb.as_slice(), b"PASS" | b"ACCT" | b"ADAT");
        row.argument = (!is_secret && !argument.is_empty()).then(|| text(argument, &mut limit));
        // No more of a line is kept.
        if verb.len() + 1 + argument.len() >= MAX_TEXT {
            limit = Some("text");
        }
        row.limit = limit;
        let endpoint = match verb.as_slice() {
            b"PORT" => Endpoint::numbers(argument),
            b"EPRT" => Endpoint::extended(argument),
            _ => None,
        };
        if let Some(endpoint) = endpoint {
            row.is_passive = Some(false);
            row.data = control.endpoint(endpoint);
        }
        if control.waiting.len() >= WAITING {
            control.skip(Some("commands"));
        }
        control.waiting.push_back(row);
    }

    fn lost(&mut self) {
        self.control.is_unsure = true;
        self.control.is_damaged = true;
    }
}

impl ReplyEvents for Said<'_> {
    fn line(&mut self, code: u16, said: &[u8]) {
        let control = &mut *self.control;
        if self.keeps_lines && control.lines.len() < MAX_LINES {
            let said = bounded_text(said, MAX_LINE, &mut control.lines_limit);
            control.lines.push(format!("{code:03} {said}"));
        } else if self.keeps_lines {
            control.lines_limit.get_or_insert("lines");
        }
    }

    fn reply(&mut self, reply: &Reply<'_>) {
        let control = &mut *self.control;
        let lines = core::mem::take(&mut control.lines);
        let lines_limit = control.lines_limit.take();
        let is_greeting = !core::mem::replace(&mut control.has_greeted, true)
            && matches!(reply.code, 120 | 220 | 421);
        if control.is_reply_damaged {
            // How many of their replies were lost is not known.
            control.skipped = 0;
        }
        let is_skipped = control.skipped > 0 && !is_greeting;
        if is_skipped {
            // A preliminary one: another follows.
            control.skipped -= u64::from(reply.code / 100 != 1);
        }
        // Behind a loss the newest command that can be its own is, as a client mostly waits.
        while control.is_unsure
            && !is_greeting
            && control
                .waiting
                .get(1)
                .is_some_and(|it| it.origin.time <= self.time)
            && let Some(mut row) = control.waiting.pop_front()
        {
            row.is_damaged |= row.code.is_none();
            control.done.push(row);
        }
        let time = self.time;
        let is_older = |row: &mut FtpRow| row.origin.time <= time && !is_skipped;
        let Some(mut row) = control.waiting.pop_front_if(is_older) else {
            if !is_greeting || self.keeps_lines {
                let mut row = control.row(self.time);
                row.is_greeting = is_greeting;
                row.lines = lines;
                row.is_damaged |= core::mem::take(&mut control.is_reply_damaged);
                row.limit = is_skipped.then_some("commands").or(lines_limit);
                row.code = Some(reply.code);
                row.reply = Some(text(reply.last, &mut row.limit));
                if let Some(endpoint) = agreed(reply) {
                    row.is_passive = Some(true);
                    row.data = control.endpoint(endpoint);
                }
                control.done.push(row);
            }
            return;
        };
        if is_greeting && reply.code == 220 {
            // The client did not wait for it.
            return control.waiting.push_front(row);
        }
        let free = MAX_LINES.saturating_sub(row.lines.len());
        let lines_limit = lines_limit.or((lines.len() > free).then_some("lines"));
        row.limit = row.limit.or(lines_limit);
        row.lines.extend(lines.into_iter().take(free));
        row.is_damaged |= core::mem::take(&mut control.is_reply_damaged);
        let next = control.waiting.front();
        if !row.is_damaged && next.is_none_or(|next| next.origin.time > time) {
            control.is_unsure = false;
        }
        row.is_damaged |= control.is_unsure;
        row.first_reply.get_or_insert(self.time);
        row.last_reply = Some(self.time);
        row.code = Some(reply.code);
        row.reply = Some(text(reply.last, &mut row.limit));
        // A preliminary one: another follows.
        if reply.code / 100 == 1 {
            if row.command.as_deref() == Some("RETR") && reply.code == 150 {
                row.file_size = last_number(reply.last);
            }
            control.note(&row);
            return control.waiting.push_front(row);
        }
        if row.first_reply == Some(self.time) && matches!(reply.code, 226 | 250) {
            control.note(&row);
        }
        control.go(&row, reply);
        let command = row.command.as_deref();
        if let Some(endpoint) = agreed(reply) {
            row.is_passive = Some(true);
            row.data = control.endpoint(endpoint);
        }
        if command == Some("AUTH") && reply.code == 234 {
            let argument = row.argument.as_deref().unwrap_or_default();
            row.is_tls = argument.starts_with("TLS") || argument.starts_with("SSL");
            control.is_tls |= row.is_tls;
        }
        control.done.push(row);
    }

    fn lost(&mut self) {
        self.control.is_unsure = true;
        self.control.is_reply_damaged = true;
    }
}

impl FtpTalk {
    fn give(&mut self, now: Nanos, give: &mut Give<'_>) {
        let done = core::mem::take(&mut self.control.done);
        for row in done {
            let is_agreed = row.code.is_some_and(|code| code / 100 == 2);
            if let Some((ip, port)) = row.data.filter(|_| is_agreed) {
                let address = Address::from(ip);
                give.learn((address, port), DATA.name, now);
                self.control.data = vec![(address, port)];
                // Behind a translation of addresses it is an address of their own that they tell.
                let parties = row.origin.parties;
                let (own, _) = match row.is_passive {
                    Some(true) => parties.server,
                    _ => parties.client,
                };
                if own != address {
                    give.learn((own, port), DATA.name, now);
                    self.control.data.push((own, port));
                }
                self.control.is_active = row.is_passive == Some(false);
                // A data connection can begin before the reply that says what it carries.
                self.control.notes.insert(0, Note::default());
            }
            give.record(row.origin.time, &row);
        }
        for note in self.control.notes.drain(..) {
            let is_active = self.control.is_active;
            for endpoint in &self.control.data {
                let note = note.clone();
                give.note(*endpoint, Note { is_active, ..note });
            }
        }
    }
}

impl Conversation for FtpTalk {
    type Common = ();

    fn data(&mut self, (): &mut (), at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if let Some(tls) = &mut self.tls {
            return tls.data(&mut (), at, bytes, give);
        }
        if self.control.origin.is_none() {
            let mut origin = origin(at);
            let is_reply = bytes.first().is_some_and(u8::is_ascii_digit);
            // Who opened it is known by its SYN.
            let is_known = at.connection.handshake[0].is_some();
            self.control.is_exchanged = !is_known && at.from_initiator == is_reply;
            if self.control.is_exchanged {
                origin.parties = origin.parties.exchanged();
            }
            self.control.origin = Some(origin);
        }
        let is_client = at.from_initiator != self.control.is_exchanged;
        let mut said = Said {
            control: &mut self.control,
            time: at.time,
            keeps_lines: give.each_message,
        };
        match is_client {
            true => self.commands.data(bytes, &mut said),
            false => self.replies.data(bytes, &mut said),
        }
        self.give(at.time, give);
        if self.control.is_tls {
            self.tls = Some(Box::default());
        }
    }

    fn gap(&mut self, (): &mut (), at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        if let Some(tls) = &mut self.tls {
            return tls.gap(&mut (), at, bytes, give);
        }
        let is_client = at.from_initiator != self.control.is_exchanged;
        let mut said = Said {
            control: &mut self.control,
            time: at.time,
            keeps_lines: give.each_message,
        };
        match is_client {
            true => self.commands.gap(bytes, &mut said),
            false => self.replies.gap(bytes, &mut said),
        }
    }

    fn end(&mut self, (): &mut (), at: &At<'_>, end: StreamEnd, give: &mut Give<'_>) {
        if let Some(tls) = &mut self.tls {
            tls.end(&mut (), at, end, give);
        }
    }

    fn held(&self) -> usize {
        let tls = self
            .tls
            .as_ref()
            .map_or(0, |tls| size_of::<TlsTalk>() + tls.held());
        self.commands.held() + self.replies.held() + self.control.held() + tls
    }

    fn oldest(&self) -> Option<Nanos> {
        self.control.waiting.front().map(|row| row.origin.time)
    }

    fn give_up(&mut self, (): &mut (), at: &At<'_>, give: &mut Give<'_>) {
        self.control.skip(give.limit);
        self.give(at.time, give);
    }

    fn close(&mut self, (): &mut (), at: &At<'_>, give: &mut Give<'_>) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut (), at, give);
        }
        for mut row in self.control.waiting.drain(..) {
            row.limit = row.limit.or(give.limit);
            self.control.done.push(row);
        }
        self.give(at.time, give);
    }
}

/// A data connection.
#[derive(Default)]
pub(crate) struct DataTalk {
    row: FtpDataRow,
    has_begun: bool,
    /// What it is for.
    note: Option<Note>,
    /// What each side sends, where files are wanted: the responder, the initiator.
    files: [Option<Box<(Body, FileRow)>>; 2],
}

impl DataTalk {
    fn count(&mut self, at: &At<'_>, bytes: u64, missing: u64, give: &mut Give<'_>) {
        let row = &mut self.row;
        if !core::mem::replace(&mut self.has_begun, true) {
            row.origin = origin(at);
            self.note = noted(at, give);
        }
        row.bytes[usize::from(!at.from_initiator)] += bytes + missing;
        row.missing_bytes += missing;
        row.end = at.time;
    }

    /// What this side sends, as a file.
    fn file(&mut self, at: &At<'_>, give: &mut Give<'_>) -> Option<&mut Body> {
        let file = &mut self.files[at.side()];
        if file.is_none() {
            let files = give.files.as_mut()?;
            let flow = at.connection.flow_id.unwrap_or_default();
            // The server connects to a client that is in active mode.
            let is_active = self.note.as_ref().is_some_and(|note| note.is_active);
            let is_client = at.from_initiator != is_active;
            let side = if is_client { "up" } else { "down" };
            let body = files.open(&format!("ftp-{flow:016x}-{side}"), None);
            let row = FileRow {
                origin: origin(at),
                source: DATA.name,
                from_initiator: at.from_initiator,
                ..FileRow::default()
            };
            *file = Some(Box::new((body, row)));
        }
        let (body, row) = file.as_deref_mut()?;
        row.end = at.time;
        Some(body)
    }
}

/// What the control connection said of a data connection.
fn noted(at: &At<'_>, give: &mut Give<'_>) -> Option<Note> {
    let connection = at.connection;
    let note = give.take_note(connection.responder);
    note.or_else(|| give.take_note(connection.initiator))
}

impl Conversation for DataTalk {
    type Common = ();

    fn data(&mut self, (): &mut (), at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        self.count(at, bytes.len() as u64, 0, give);
        if let Some(body) = self.file(at, give) {
            body.data(bytes);
        }
    }

    fn gap(&mut self, (): &mut (), at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        self.count(at, 0, bytes, give);
        if let Some(body) = self.file(at, give) {
            body.gap(bytes);
        }
    }

    fn end(&mut self, (): &mut (), at: &At<'_>, end: StreamEnd, _: &mut Give<'_>) {
        self.row.close = Some(end.name());
        if let Some(file) = &mut self.files[at.side()] {
            file.1.is_whole = end == StreamEnd::Fin;
        }
    }

    fn held(&self) -> usize {
        let files = self.files.iter().flatten();
        let files = files.map(|file| size_of::<(Body, FileRow)>() + file.1.held());
        files.sum::<usize>() + self.row.held()
    }

    fn close(&mut self, (): &mut (), at: &At<'_>, give: &mut Give<'_>) {
        if !self.has_begun {
            return;
        }
        let note = self.note.take().filter(|note| note.command.is_some());
        let note = note.or_else(|| noted(at, give));
        let Note { command, name, .. } = note.unwrap_or_default();
        self.row.command = command;
        self.row.file_name.clone_from(&name);
        give.record(self.row.origin.time, &self.row);
        for file in &mut self.files {
            let Some((body, mut row)) = file.take().map(|file| *file) else {
                continue;
            };
            row.method.clone_from(&self.row.command);
            row.file_name.clone_from(&name);
            row.name_by = name.is_some().then_some("sender");
            if let Some(files) = &mut give.files {
                files.close(body, &mut row);
            }
            give.file(row.origin.time, &row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tester;
    use super::*;

    fn control() -> Tester<FtpTalk> {
        let mut control = Tester::<FtpTalk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 21);
        control.say(false, 1, b"220 hello\r\n");
        control
    }

    const FIELDS: [&str; 5] = ["arg", "reply_msg", "state", "whole", "limit"];

    #[test]
    fn paths_are_followed() {
        for (directory, name, path) in [
            (".", "a", "./a"),
            ("./a", "b/c", "./a/b/c"),
            ("./a", "..", "."),
            (".", "..", "./.."),
            ("./a", "/b//c/", "/b/c"),
            ("/a", "..", "/"),
            ("/", "a", "/a"),
        ] {
            assert_eq!(joined(directory, name), path, "{directory} {name}");
        }
        assert_eq!(last_number(b"150 a-2012.gz (67495 bytes)."), Some(67_495));
        assert_eq!(last_number(b"no"), None);
        assert_eq!(quoted(b"\"/a\" is here"), Some(&b"/a"[..]));
    }

    #[test]
    fn replies_to_more_commands_than_wait_are_not_others_replies() {
        let mut control = control();
        let count = WAITING + 3;
        (0..count).for_each(|it| control.say(true, 2, format!("DELE f{it}\r\n").as_bytes()));
        (0..count).for_each(|it| control.say(false, 3, format!("250 f{it}\r\n").as_bytes()));
        control.close();
        let rows = control.rows(&FIELDS);
        for it in 0..3 {
            assert!(rows.contains(&format!(r#""f{it}" null "no_reply" "yes" "commands""#)));
            assert!(rows.contains(&format!(r#"null "f{it}" "no_request" "yes" "commands""#)));
        }
        for it in 3..count {
            let row = format!(r#""f{it}" "f{it}" "matched" "yes" null"#);
            assert!(rows.contains(&row), "{row}: {rows:#?}");
        }
    }

    #[test]
    fn a_reply_behind_a_hole_is_not_an_older_or_younger_command_s() {
        let mut control = control();
        for it in 0..10 {
            control.say(true, 2 * it + 2, format!("DELE f{it}\r\n").as_bytes());
            if it < 3 {
                control.say(false, 2 * it + 3, format!("250 f{it}\r\n").as_bytes());
            }
        }
        control.miss(false, 9, 8);
        (4..10).for_each(|it| control.say(false, 2 * it + 3, format!("250 f{it}\r\n").as_bytes()));
        control.close();
        let rows = control.rows(&FIELDS);
        assert!(
            rows.contains(&r#""f3" null "no_reply" "no" null"#.to_owned()),
            "{rows:#?}"
        );
        for it in (0..10).filter(|&it| it != 3) {
            let whole = if it == 4 { "no" } else { "yes" };
            let row = format!(r#""f{it}" "f{it}" "matched" "{whole}" null"#);
            assert!(rows.contains(&row), "{row}: {rows:#?}");
        }
    }

    #[test]
    fn pipelined_commands_long_after_a_hole_have_their_own_replies() {
        for from_client in [true, false] {
            let mut control = control();
            control.say(true, 2, b"CWD a\r\n");
            control.miss(from_client, 2, 8);
            control.say(true, 4, b"CWD b\r\n");
            control.say(false, 5, b"250 b\r\n");
            for (at, name) in [(6, "c"), (8, "d")] {
                control.say(true, at, format!("CWD {name}\r\n").as_bytes());
                control.say(false, at + 1, format!("250 {name}\r\n").as_bytes());
            }
            control.say(true, 10, b"RETR e\r\n");
            control.say(false, 11, b"150 e\r\n");
            control.say(true, 12, b"DELE f\r\nDELE g\r\n");
            control.say(false, 13, b"226 e\r\n250 f\r\n250 g\r\n");
            control.close();
            let rows = control.rows(&FIELDS);
            for name in ["c", "d", "e", "f", "g"] {
                let row = format!(r#""{name}" "{name}" "matched" "yes" null"#);
                assert!(rows.contains(&row), "{row}: {rows:#?}");
            }
        }
    }

    /// Of pipelined ones it stays open which is whose, until the client waits.
    #[test]
    fn pairs_behind_a_loss_are_not_said_to_be_sure() {
        let mut control = control();
        control.say(true, 2, b"DELE a\r\nDELE b\r\nDELE c\r\nDELE d\r\n");
        control.miss(false, 3, 7);
        control.say(false, 4, b"250 b\r\n250 c\r\n250 d\r\n");
        control.say(true, 5, b"DELE e\r\n");
        control.say(false, 6, b"250 e\r\n");
        control.close();
        for row in control.rows(&FIELDS) {
            let is_sure = row.contains("yes") && row.contains("matched");
            assert_eq!(is_sure, row.starts_with(r#""e" "e""#), "{row}");
        }
    }

    #[test]
    fn replies_that_a_hole_took_are_not_waited_for() {
        let mut control = control();
        for it in 0..WAITING + 3 {
            control.say(true, 2, format!("DELE f{it}\r\n").as_bytes());
        }
        control.miss(false, 3, 1000);
        for (at, name) in [(4, "a"), (6, "b")] {
            control.say(true, at, format!("DELE {name}\r\n").as_bytes());
            control.say(false, at + 1, format!("250 {name}\r\n").as_bytes());
        }
        control.close();
        let rows = control.rows(&FIELDS);
        for (name, whole) in [("a", "no"), ("b", "yes")] {
            let row = format!(r#""{name}" "{name}" "matched" "{whole}" null"#);
            assert!(rows.contains(&row), "{row}: {rows:#?}");
        }
    }

    #[test]
    fn a_reply_behind_a_hole_says_so_where_nothing_was_asked() {
        let mut control = control();
        control.miss(false, 2, 9);
        control.say(false, 2, b"250 a\r\n");
        control.say(true, 3, b"DELE b\r\n");
        control.say(false, 4, b"250 b\r\n");
        control.close();
        assert_eq!(
            control.rows(&FIELDS),
            [
                r#"null "a" "no_request" "no" null"#,
                r#""b" "b" "matched" "yes" null"#
            ]
        );
    }

    #[test]
    fn all_lines_of_replies_are_told_where_all_is() {
        let mut control = Tester::<FtpTalk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 21);
        control.each_message = true;
        control.say(false, 1, b"220-hello\r\n you\r\n220 go\r\n");
        control.say(true, 2, b"NLST\r\n");
        control.say(false, 3, b"150 Here\r\n");
        control.say(false, 4, b"226 Sent\r\n");
        control.close();
        assert_eq!(
            control.rows(&["command", "reply_msg", "reply_lines", "state"]),
            [
                r#"null "go" ["220 hello","220  you","220 go"] "no_request""#,
                r#""NLST" "Sent" ["150 Here","226 Sent"] "matched""#,
            ]
        );
    }

    #[test]
    fn lines_of_a_reply_that_are_left_out_are_told() {
        let all = "211-x\r\n".to_owned() + &"y\r\n".repeat(12_000) + "211 z\r\n";
        let long = format!("212-{}\r\n212 z\r\n", "y".repeat(2000));
        for (reply, limit) in [
            (&*all, "\"lines\""),
            (&*long, "\"text\""),
            ("213 z\r\n", "null"),
        ] {
            let mut control = Tester::<FtpTalk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 21);
            control.each_message = true;
            control.say(true, 2, b"STAT\r\n");
            control.say(false, 3, reply.as_bytes());
            control.close();
            let rows = control.rows(&["reply_msg", "limit", "whole"]);
            assert_eq!(rows, [format!(r#""z" {limit} "yes""#)]);
        }
    }

    #[test]
    fn a_data_connection_says_what_it_carries() {
        let mut control = Tester::<FtpTalk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 21);
        control.say(false, 1, b"220 hello\r\n");
        for (seconds, command, reply) in [
            (2, "PASV", "227 Entering Passive Mode (10,0,0,2,156,64)"),
            (3, "RETR some file.txt", "150 Opening"),
        ] {
            control.say(true, seconds, format!("{command}\r\n").as_bytes());
            control.say(false, seconds, format!("{reply}\r\n").as_bytes());
        }
        for learned in [true, false] {
            let mut data = Tester::<DataTalk>::tcp([10, 0, 0, 1], 40_001, [10, 0, 0, 2], 40_000);
            data.learned = core::mem::take(&mut control.learned);
            data.say(false, 4, b"bytes");
            data.close();
            let expected = match learned {
                true => r#""RETR" "some file.txt" 5"#,
                false => "null null 5",
            };
            assert_eq!(
                data.rows(&["command", "file_name", "dst_bytes"]),
                [expected]
            );
        }
    }
}
