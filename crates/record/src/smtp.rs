//! Records about mail sent by SMTP.

use flowgauge_wire::Nanos;

use crate::held::held;
use crate::origin::Origin;
use crate::schema::record;
use crate::value::{Symbol, listed};

record! {
    /// Fields of an [`SmtpRow`].
    SMTP, SMTP_SCHEMA for SmtpRow as it:
    ..it.origin, "first command of the transaction", Symbol("tcp"), "tcp";
    trans_depth Unsigned "NO" 4 = it.depth, "position in the connection, from 1";
    helo Text "HELO" 3 = &it.helo, "what the client says it is (HELO, EHLO)";
    mailfrom Text "FROM" 1 = &it.sender, "sender of the envelope";
    rcptto Texts "TO" 1 = listed(&it.receivers), "receivers of the envelope";
    date Text = &it.date, "header field Date";
    from Text = &it.from, "header field From";
    to Texts = listed(&it.to), "header field To, by address";
    cc Texts = listed(&it.cc), "header field Cc, by address";
    reply_to Text = &it.reply_to, "header field Reply-To";
    msg_id Text = &it.id, "header field Message-ID";
    in_reply_to Text = &it.in_reply_to, "header field In-Reply-To";
    subject Text "SUBJECT" 2 = &it.subject, "header field Subject, as it was sent";
    user_agent Text = &it.user_agent, "header field User-Agent or X-Mailer";
    received Texts = listed(&it.received), "header fields Received, the last hop first; 16 at most";
    x_originating_ip Text = &it.originating_ip, "header field X-Originating-IP";
    files List = &it.files, "numbers of the files in it, where files are looked at (file_id of their records, in decimal digits)";
    attachments Texts = listed(&it.attachments), "names of its parts that have one; where files are wanted, null otherwise";
    message_bytes Unsigned Bytes "BYTES" 2 = it.message_bytes, "bytes of the message, as they were sent, missing ones counted";
    missing_bytes Unsigned Bytes = it.missing_bytes, "bytes of the message that were not captured";
    last_reply Text "REPLY" 3 = &it.last_reply, "last reply of the server in the transaction";
    commands Unsigned = it.commands, "commands in the transaction";
    errors Unsigned = it.errors, "replies of 400 and above in the transaction";
    auth Text = &it.auth, "method of authentication that the client asked for";
    tls Text = it.is_tls, "yes: the connection went over to encryption";
    duration Duration Seconds = it.origin.until(it.end), "from the first command to the last reply";
    state Text "STATE" 3 = Symbol(it.state), "sent, refused, reset, cut, tls or no_mail: how the transaction ended";
    close Text = it.close, "how the connection ended, where the transaction ended with it: fin, rst, timeout";
    limit Text = it.limit, "commands: more waited for their replies than are kept (256); memory: there was none left; what left something out: text (1 KiB), receivers (100), received (16 lines of that name), files (100, with their names), head (32 KiB); or null";
}

held! {
    /// A mail, or what came of one; or a connection without any.
    #[derive(Clone, Debug, Default)]
    pub struct SmtpRow {
        /// When and between whom.
        pub origin: Origin,
        /// Position, from 1.
        pub depth: u32,
        /// HELO.
        pub helo: Option<String>,
        /// MAIL FROM.
        pub sender: Option<String>,
        /// RCPT TO.
        pub receivers: Vec<String>,
        /// Date.
        pub date: Option<String>,
        /// From.
        pub from: Option<String>,
        /// To.
        pub to: Vec<String>,
        /// Cc.
        pub cc: Vec<String>,
        /// Reply-To.
        pub reply_to: Option<String>,
        /// Message-ID.
        pub id: Option<String>,
        /// In-Reply-To.
        pub in_reply_to: Option<String>,
        /// Subject.
        pub subject: Option<String>,
        /// User-Agent.
        pub user_agent: Option<String>,
        /// Received.
        pub received: Vec<String>,
        /// X-Originating-IP.
        pub originating_ip: Option<String>,
        /// Numbers of its files.
        pub files: Vec<u64>,
        /// Names of parts.
        pub attachments: Vec<String>,
        /// Bytes of the message; `None`: there is none.
        pub message_bytes: Option<u64>,
        /// Missing among them.
        pub missing_bytes: u64,
        /// Last reply.
        pub last_reply: Option<String>,
        /// Commands.
        pub commands: u32,
        /// Refusals.
        pub errors: u32,
        /// AUTH.
        pub auth: Option<String>,
        /// STARTTLS was accepted.
        pub is_tls: bool,
        /// Last reply.
        pub end: Nanos,
        /// How it ended.
        pub state: &'static str,
        /// How the connection ended.
        pub close: Option<&'static str>,
        /// The first bound that took its last reply from it, or left something out.
        pub limit: Option<&'static str>,
    }
}
