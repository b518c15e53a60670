//! Records about mail sent by SMTP.

use flowgauge_wire::Nanos;

use crate::origin::Origin;
use crate::schema::record;
use crate::value::{Symbol, listed};

record! {
    /// Fields of an [`SmtpRow`].
    SMTP, SMTP_SCHEMA for SmtpRow as it:
    ..it.origin, "first command of the transaction", Symbol("tcp"), "tcp";
    trans_depth (depth: u32) Unsigned "NO" 4 = it.depth, "position in the connection, from 1";
    helo: Option<String>, Text "HELO" 3 = &it.helo, "what the client says it is (HELO, EHLO)";
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
    files: Vec<u64>, List = &it.files, "numbers of the files in it, where files are looked at (file_id of their records, in decimal digits)";
    attachments: Vec<String>, Texts = listed(&it.attachments), "names of its parts that have one; where files are wanted, null otherwise";
    message_bytes: Option<u64>, Unsigned Bytes "BYTES" 2 = it.message_bytes, "bytes of the message, as they were sent, missing ones counted";
    missing_bytes: u64, Unsigned Bytes = it.missing_bytes, "bytes of the message that were not captured";
    last_reply: Option<String>, Text "REPLY" 3 = &it.last_reply, "last reply of the server in the transaction";
    commands: u32, Unsigned = it.commands, "commands in the transaction";
    errors: u32, Unsigned = it.errors, "replies of 400 and above in the transaction";
    auth: Option<String>, Text = &it.auth, "method of authentication that the client asked for";
    tls (is_tls: bool) Text = it.is_tls, "yes: the connection went over to encryption";
    duration Duration Seconds = it.origin.until(it.end), "from the first command to the last reply";
    state: &'static str, Text "STATE" 3 = Symbol(it.state), "sent, refused, reset, cut, tls or no_mail: how the transaction ended";
    close: Option<&'static str>, Text = it.close, "how the connection ended, where the transaction ended with it: fin, rst, timeout";
    limit: Option<&'static str>, Text = it.limit, "commands: more waited for their replies than are kept (256); memory: there was none left; what left something out: text (1 KiB), receivers (100), received (16 lines of that name), files (100, with their names), head (32 KiB); or null";

    /// A mail, or what came of one; or a connection without any.
    #[derive(Clone, Debug, Default)]
    pub struct SmtpRow {
        /// When and between whom.
        pub origin: Origin,
        /// Last reply.
        pub end: Nanos,
    }
}
