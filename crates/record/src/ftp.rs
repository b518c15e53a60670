//! Records about commands of FTP.

use core::any::Any;
use core::net::IpAddr;

use flowgauge_wire::{Address, Nanos};

use crate::any::KnownRecord;
use crate::origin::{Origin, origin_fields};
use crate::parties::{number_or_null, text_or_null, texts_or_null, yes_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of an [`FtpRow`].
    FtpFields, FTP, FTP_SCHEMA:
    time Time None "TIME" 1 "when the command was captured, or the reply where there is none";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 3 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 2 "port of the server";
    proto Text None "" 0 "tcp";
    user Text None "USER" 2 "name the client logged in with, so far";
    password Text None "" 0 "password of a guest (anonymous, ftp, ftpuser, guest); of others <hidden>";
    command Text None "COMMAND" 1 "the command; null: a reply without one";
    arg Text None "ARGUMENT" 1 "its argument; of PASS, ACCT and ADAT nothing";
    directory Text None "" 0 "directory that the client is in, as far as its commands told: . at the beginning";
    file_size Unsigned Bytes "" 0 "of RETR: size of the file, as the server's first reply says";
    reply_code Unsigned None "REPLY" 1 "code of the last reply to it";
    reply_msg Text None "SAYS" 3 "what the reply says, its last line";
    reply_lines Texts None "" 0 "all lines of the replies to it, each with its code: where each message is told";
    passive Text None "" 0 "of a command that agrees on a data connection: yes if the client opens it";
    data_ip Address None "" 0 "where the data connection goes";
    data_port Unsigned None "" 0 "port there";
    latency Duration Seconds "LATENCY" 4 "from the command to the first reply";
    duration Duration Seconds "" 0 "from the command to the last reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    tls Text None "" 0 "yes: the connection goes over to encryption with this command";
    whole Text None "" 0 "no: bytes were missing before";
    limit Text None "" 0 "commands: more waited for their replies than are kept (64), memory: there was none left, so that this has no partner; text: more than 4 KiB of it, of which the rest is left out; or null";
}

fields! {
    /// Fields of an [`FtpDataRow`].
    FtpDataFields, FTP_DATA, FTP_DATA_SCHEMA:
    time Time None "TIME" 1 "first byte";
    src_ip Address None "SOURCE" 1 "who opened the connection";
    src_port Unsigned None "PORT" 3 "its port";
    dst_ip Address None "DESTINATION" 1 "to whom";
    dst_port Unsigned None "PORT" 2 "port there";
    proto Text None "" 0 "tcp";
    src_bytes Unsigned Bytes "SENT" 1 "bytes from who opened it";
    dst_bytes Unsigned Bytes "RECEIVED" 1 "bytes to it";
    missing_bytes Unsigned Bytes "" 0 "bytes that were not captured";
    duration Duration Seconds "DURATION" 2 "from the first byte to the last";
    close Text None "CLOSE" 3 "how it ended: fin, rst, timeout";
    command Text None "COMMAND" 2 "command of the control connection that it is for: RETR, STOR, LIST ...";
    file_name Text None "NAME" 1 "the name that the command gave";
}

/// A data connection.
#[derive(Clone, Debug, Default)]
pub struct FtpDataRow {
    /// When and between whom; the client is who opened it.
    pub origin: Origin,
    /// Bytes from who opened it, and to it; missing ones counted.
    pub bytes: [u64; 2],
    /// Missing among them.
    pub missing_bytes: u64,
    /// Last byte.
    pub end: Nanos,
    /// How it ended.
    pub close: Option<&'static str>,
    /// Command that it is for.
    pub command: Option<String>,
    /// Name that the command gave.
    pub file_name: Option<String>,
}

impl Record for FtpDataRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        (self.origin).visit(visitor, origin_fields!(FTP_DATA), "tcp");
        visitor.unsigned(&FTP_DATA.src_bytes, self.bytes[0]);
        visitor.unsigned(&FTP_DATA.dst_bytes, self.bytes[1]);
        visitor.unsigned(&FTP_DATA.missing_bytes, self.missing_bytes);
        let duration = self.end.0.saturating_sub(self.origin.time.0);
        visitor.duration(&FTP_DATA.duration, Nanos(duration));
        text_or_null(visitor, &FTP_DATA.close, self.close);
        text_or_null(visitor, &FTP_DATA.command, self.command.as_deref());
        text_or_null(visitor, &FTP_DATA.file_name, self.file_name.as_deref());
    }
}

impl KnownRecord for FtpDataRow {
    fn schema(&self) -> Schema {
        FTP_DATA_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// A command and its reply, or one of them alone.
#[derive(Clone, Debug, Default)]
pub struct FtpRow {
    /// When and between whom.
    pub origin: Origin,
    /// User.
    pub user: Option<String>,
    /// Password, or that there is one.
    pub password: Option<String>,
    /// Command.
    pub command: Option<String>,
    /// Directory, where the command names a file.
    pub directory: Option<String>,
    /// Size of the file.
    pub file_size: Option<u64>,
    /// Argument.
    pub argument: Option<String>,
    /// Code of the reply.
    pub code: Option<u16>,
    /// What it says.
    pub reply: Option<String>,
    /// All lines of its replies, where they are wanted.
    pub lines: Vec<String>,
    /// It is what the server says before it was asked.
    pub is_greeting: bool,
    /// Whether the client opens the data connection, where one is agreed on.
    pub is_passive: Option<bool>,
    /// Where it goes.
    pub data: Option<(IpAddr, u16)>,
    /// First reply.
    pub first_reply: Option<Nanos>,
    /// Last reply.
    pub last_reply: Option<Nanos>,
    /// The connection goes over to TLS.
    pub is_tls: bool,
    /// Bytes were missing.
    pub is_damaged: bool,
    /// The bound that took its partner from it.
    pub limit: Option<&'static str>,
}

impl Record for FtpRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        (self.origin).visit(visitor, origin_fields!(FTP), "tcp");
        text_or_null(visitor, &FTP.user, self.user.as_deref());
        text_or_null(visitor, &FTP.password, self.password.as_deref());
        text_or_null(visitor, &FTP.command, self.command.as_deref());
        text_or_null(visitor, &FTP.arg, self.argument.as_deref());
        text_or_null(visitor, &FTP.directory, self.directory.as_deref());
        number_or_null(visitor, &FTP.file_size, self.file_size);
        number_or_null(visitor, &FTP.reply_code, self.code);
        text_or_null(visitor, &FTP.reply_msg, self.reply.as_deref());
        texts_or_null(visitor, &FTP.reply_lines, &self.lines);
        yes_or_null(visitor, &FTP.passive, self.is_passive);
        match self.data {
            Some((IpAddr::V4(ip), _)) => {
                visitor.address(&FTP.data_ip, Address::v4(ip.octets()), 4);
            }
            Some((IpAddr::V6(ip), _)) => visitor.address(&FTP.data_ip, Address(ip.octets()), 6),
            None => visitor.null(&FTP.data_ip),
        }
        number_or_null(visitor, &FTP.data_port, self.data.map(|it| it.1));
        let has_command = self.command.is_some();
        let mut span = |field, to: Option<Nanos>| match to.filter(|_| has_command) {
            Some(to) => visitor.duration(field, Nanos(to.0.saturating_sub(self.origin.time.0))),
            None => visitor.null(field),
        };
        span(&FTP.latency, self.first_reply);
        span(&FTP.duration, self.last_reply);
        let state: &[u8] = match (&self.command, self.code) {
            (Some(_), Some(_)) => b"matched",
            (Some(_), None) => b"no_reply",
            _ => b"no_request",
        };
        visitor.symbol(&FTP.state, state);
        yes_or_null(visitor, &FTP.tls, Some(self.is_tls));
        yes_or_null(visitor, &FTP.whole, Some(!self.is_damaged));
        text_or_null(visitor, &FTP.limit, self.limit);
    }
}

impl KnownRecord for FtpRow {
    fn schema(&self) -> Schema {
        FTP_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
