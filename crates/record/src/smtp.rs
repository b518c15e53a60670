//! Records about mail sent through SMTP.

use flowgauge_wire::Nanos;

use crate::origin::Origin;
use crate::schema::record;
use crate::value::{Symbol, listed};

record! {
    /// Fields of an [`SmtpRow`].
    SMTP, SMTP_SCHEMA for SmtpRow as it:
    ..it.origin, "first command of the transaction", Symbol("tcp"), "tcp";
    trans_depth (depth: u32) Unsigned "NO" 4 = it.depth, "position in the connection, from 1";
    helo: Option<String>, Text "HELO" 3 = &it.helo, "the client's name (HELO, EHLO)";
    mailfrom (sender: Option<String>) Text "FROM" 1 = &it.sender, "sender of the envelope";
    rcptto (receivers: Vec<String>) Texts "TO" 1 = listed(&it.receivers), "receivers of the envelope";
    date: Option<String>, Text = &it.date, "header field Date";
    from: Option<String>, Text = &it.from, "header field From";
    to: Vec<String>, Texts = listed(&it.to), "header field To, by address";
    cc: Vec<String>, Texts = listed(&it.cc), "header field Cc, by address";
    reply_to: Option<String>, Text = &it.reply_to, "header field Reply-To";
    msg_id (id: Option<String>) Text = &it.id, "header field Message-ID";
    in_reply_to: Option<String>, Text = &it.in_reply_to, "header field In-Reply-To";
    subject: Option<String>, Text "SUBJECT" 2 = &it.subject, "header field Subject, as it was sent";
    user_agent: Option<String>, Text = &it.user_agent, "header field User-Agent or X-Mailer";
    received: Vec<String>, Texts = listed(&it.received), "header fields Received, the last hop first; 16 at most";
    x_originating_ip (originating_ip: Option<String>) Text = &it.originating_ip, "header field X-Originating-IP";
    files: Vec<u64>, List = &it.files, "numbers of the files in it, if files are tracked (file_id of their records, \
    in decimal)";
    attachments: Vec<String>, Texts = listed(&it.attachments), "names of its parts, if files are tracked; otherwise null";
    message_bytes: Option<u64>, Unsigned Bytes "BYTES" 2 = it.message_bytes, "bytes of the message, as they were sent, missing ones counted";
    missing_bytes: u64, Unsigned Bytes = it.missing_bytes, "bytes of the message that were not captured";
    last_reply: Option<String>, Text "REPLY" 3 = &it.last_reply, "last reply of the server in the transaction";
    commands: u32, Unsigned = it.commands, "commands in the transaction";
    errors: u32, Unsigned = it.errors, "replies of 400 and above in the transaction";
    auth: Option<String>, Text = &it.auth, "method of authentication that the client asked for";
    tls (is_tls: bool) Text = it.is_tls, "yes: the connection went over to encryption";
    duration Duration Seconds = it.origin.until(it.end), "from the first command to the last reply";
    state: &'static str, Text "STATE" 3 = Symbol(it.state), "sent, refused, reset, cut, tls or no_mail: how the transaction ended";
    close: Option<&'static str>, Text = it.close, "end of the connection, if it ended the transaction: fin, rst, timeout";
    limit: Option<&'static str>, Text = it.limit, "the first limit that was exceeded: commands (256 waiting for \
    replies), memory, text (1 KiB), receivers (100), received (16 Received fields), files (100, with their names), head (32 KiB); or null";

    /// A mail, or an attempt to send one; or a connection without any.
    #[derive(Clone, Debug, Default)]
    pub struct SmtpRow {
        /// Time, client and server.
        pub origin: Origin,
        /// Last reply.
        pub end: Nanos,
    }
}
