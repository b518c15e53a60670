//! Records about mail sent by SMTP.

use core::any::Any;

use flowgauge_wire::Nanos;

use crate::any::KnownRecord;
use crate::origin::{Origin, origin_fields};
use crate::parties::{number_or_null, text_or_null, texts_or_null, yes_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of an [`SmtpRow`].
    SmtpFields, SMTP, SMTP_SCHEMA:
    time Time None "TIME" 1 "first command of the transaction";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 3 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 2 "port of the server";
    proto Text None "" 0 "tcp";
    trans_depth Unsigned None "NO" 4 "position in the connection, from 1";
    helo Text None "HELO" 3 "what the client says it is (HELO, EHLO)";
    mailfrom Text None "FROM" 1 "sender of the envelope";
    rcptto Texts None "TO" 1 "receivers of the envelope";
    date Text None "" 0 "header field Date";
    from Text None "" 0 "header field From";
    to Texts None "" 0 "header field To, by address";
    cc Texts None "" 0 "header field Cc, by address";
    reply_to Text None "" 0 "header field Reply-To";
    msg_id Text None "" 0 "header field Message-ID";
    in_reply_to Text None "" 0 "header field In-Reply-To";
    subject Text None "SUBJECT" 2 "header field Subject, as it was sent";
    user_agent Text None "" 0 "header field User-Agent or X-Mailer";
    received Texts None "" 0 "header fields Received, the last hop first; 16 at most";
    x_originating_ip Text None "" 0 "header field X-Originating-IP";
    files List None "" 0 "numbers of the files in it, where files are looked at (file_id of their records, in decimal digits)";
    attachments Texts None "" 0 "names of its parts that have one; where files are wanted, null otherwise";
    message_bytes Unsigned Bytes "BYTES" 2 "bytes of the message, as they were sent, missing ones counted";
    missing_bytes Unsigned Bytes "" 0 "bytes of the message that were not captured";
    last_reply Text None "REPLY" 3 "last reply of the server in the transaction";
    commands Unsigned None "" 0 "commands in the transaction";
    errors Unsigned None "" 0 "replies of 400 and above in the transaction";
    auth Text None "" 0 "method of authentication that the client asked for";
    tls Text None "" 0 "yes: the connection went over to encryption";
    duration Duration Seconds "" 0 "from the first command to the last reply";
    state Text None "STATE" 3 "sent, refused, reset, cut, tls or no_mail: how the transaction ended";
    close Text None "" 0 "how the connection ended, where the transaction ended with it: fin, rst, timeout";
    limit Text None "" 0 "commands: more waited for their replies than are kept (256); memory: there was none left; what left something out: text (1 KiB), receivers (100), files (100, with their names), head (32 KiB); or null";
}

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

impl Record for SmtpRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        (self.origin).visit(visitor, origin_fields!(SMTP), "tcp");
        visitor.unsigned(&SMTP.trans_depth, u64::from(self.depth));
        text_or_null(visitor, &SMTP.helo, self.helo.as_deref());
        text_or_null(visitor, &SMTP.mailfrom, self.sender.as_deref());
        texts_or_null(visitor, &SMTP.rcptto, &self.receivers);
        text_or_null(visitor, &SMTP.date, self.date.as_deref());
        text_or_null(visitor, &SMTP.from, self.from.as_deref());
        texts_or_null(visitor, &SMTP.to, &self.to);
        texts_or_null(visitor, &SMTP.cc, &self.cc);
        text_or_null(visitor, &SMTP.reply_to, self.reply_to.as_deref());
        text_or_null(visitor, &SMTP.msg_id, self.id.as_deref());
        text_or_null(visitor, &SMTP.in_reply_to, self.in_reply_to.as_deref());
        text_or_null(visitor, &SMTP.subject, self.subject.as_deref());
        text_or_null(visitor, &SMTP.user_agent, self.user_agent.as_deref());
        texts_or_null(visitor, &SMTP.received, &self.received);
        text_or_null(
            visitor,
            &SMTP.x_originating_ip,
            self.originating_ip.as_deref(),
        );
        visitor.list(&SMTP.files, &self.files);
        texts_or_null(visitor, &SMTP.attachments, &self.attachments);
        number_or_null(visitor, &SMTP.message_bytes, self.message_bytes);
        visitor.unsigned(&SMTP.missing_bytes, self.missing_bytes);
        text_or_null(visitor, &SMTP.last_reply, self.last_reply.as_deref());
        visitor.unsigned(&SMTP.commands, u64::from(self.commands));
        visitor.unsigned(&SMTP.errors, u64::from(self.errors));
        text_or_null(visitor, &SMTP.auth, self.auth.as_deref());
        yes_or_null(visitor, &SMTP.tls, Some(self.is_tls));
        let duration = self.end.0.saturating_sub(self.origin.time.0);
        visitor.duration(&SMTP.duration, Nanos(duration));
        visitor.symbol(&SMTP.state, self.state.as_bytes());
        text_or_null(visitor, &SMTP.close, self.close);
        text_or_null(visitor, &SMTP.limit, self.limit);
    }
}

impl KnownRecord for SmtpRow {
    fn schema(&self) -> Schema {
        SMTP_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
