//! Records about commands of FTP.

use core::net::IpAddr;

use flowgauge_wire::Nanos;

use crate::exchange::state;
use crate::origin::Origin;
use crate::schema::record;
use crate::value::{Symbol, listed};

record! {
    /// Fields of an [`FtpRow`].
    FTP, FTP_SCHEMA for FtpRow as it {
        let is_asked = it.command.is_some();
        let since = |end: Option<Nanos>| end.filter(|_| is_asked).map(|end| it.origin.until(end));
    }:
    ..it.origin, "when the command was captured, or the reply where there is none", Symbol("tcp"), "tcp";
    user: Option<String>, Text "USER" 2 = &it.user, "name the client logged in with, so far";
    password: Option<String>, Text = &it.password, "password of a guest (anonymous, ftp, ftpuser, guest); of others <hidden>";
    command: Option<String>, Text "COMMAND" 1 = &it.command, "the command; null: a reply without one";
    arg (argument: Option<String>) Text "ARGUMENT" 1 = &it.argument, "its argument; of PASS, ACCT and ADAT nothing";
    directory: Option<String>, Text = &it.directory, "directory of the client, as far as known from its commands; . \
    at the beginning";
    file_size: Option<u64>, Unsigned Bytes = it.file_size, "of RETR: size of the file, as the server's first reply says";
    reply_code (code: Option<u16>) Unsigned "REPLY" 1 = it.code, "code of the last reply to it";
    reply_msg (reply: Option<String>) Text "SAYS" 3 = &it.reply, "text of the reply's last line";
    reply_lines (lines: Vec<String>) Texts = listed(&it.lines), "all lines of its replies, each with its code (with \
    each_message)";
    passive (is_passive: Option<bool>) Text = it.is_passive, "of a command that agrees on a data connection: yes if the client opens it";
    data_ip Address = it.data.map(|it| it.0), "endpoint of the data connection";
    data_port Unsigned = it.data.map(|it| it.1), "port there";
    latency Duration Seconds "LATENCY" 4 = since(it.first_reply), "from the command to the first reply";
    duration Duration Seconds = since(it.last_reply), "from the command to the last reply";
    state Text "STATE" 3 = Symbol(state(is_asked, it.code.is_some())), "matched, no_reply or no_request";
    tls (is_tls: bool) Text = it.is_tls, "yes: the connection becomes encrypted with this command";
    whole Text = !it.is_damaged, "no: bytes were missing before";
    limit: Option<&'static str>, Text = it.limit, "commands: too many waiting for replies (64); memory: none left, so \
    this one has no partner; text: more than 4 KiB, or 1 KiB in a line of `reply_lines`, truncated; lines: more than are recorded (32); or null";

    /// A command and its reply, or one of them alone.
    #[derive(Clone, Debug, Default)]
    pub struct FtpRow {
        /// Time, client and server.
        pub origin: Origin,
        /// Whether it is the server's initial greeting.
        pub is_greeting: bool,
        /// Endpoint of the data connection.
        pub data: Option<(IpAddr, u16)>,
        /// First reply.
        pub first_reply: Option<Nanos>,
        /// Last reply.
        pub last_reply: Option<Nanos>,
        /// Whether bytes were missing.
        pub is_damaged: bool,
    }
}

record! {
    /// Fields of an [`FtpDataRow`].
    FTP_DATA, FTP_DATA_SCHEMA for FtpDataRow as it {
        let parties = it.origin.parties;
    }:
    time Time "TIME" 1 = it.origin.time, "first byte";
    src_ip Address "SOURCE" 1 = parties.client_ip(), "initiator of the connection";
    src_port Unsigned "PORT" 3 = parties.client.1, "its port";
    dst_ip Address "DESTINATION" 1 = parties.server_ip(), "to whom";
    dst_port Unsigned "PORT" 2 = parties.server.1, "port there";
    proto Text = Symbol("tcp"), "tcp";
    src_bytes Unsigned Bytes "SENT" 1 = it.bytes[0], "bytes from its initiator";
    dst_bytes Unsigned Bytes "RECEIVED" 1 = it.bytes[1], "bytes to it";
    missing_bytes: u64, Unsigned Bytes = it.missing_bytes, "bytes that were not captured";
    duration Duration Seconds "DURATION" 2 = it.origin.until(it.end), "from the first byte to the last";
    close: Option<&'static str>, Text "CLOSE" 3 = it.close, "how it ended: fin, rst, timeout";
    command: Option<String>, Text "COMMAND" 2 = &it.command, "command of the control connection that it is for: RETR, STOR, LIST ...";
    file_name: Option<String>, Text "NAME" 1 = &it.file_name, "the name that the command gave";

    /// A data connection.
    #[derive(Clone, Debug, Default)]
    pub struct FtpDataRow {
        /// Time, client and server; the client is the one that opened it.
        pub origin: Origin,
        /// Bytes from and to its initiator, including missing ones.
        pub bytes: [u64; 2],
        /// Last byte.
        pub end: Nanos,
    }
}
