//! Records about files that were transferred: bodies of messages, data connections.

use core::any::Any;

use flowgauge_wire::Nanos;

use crate::any::KnownRecord;
use crate::origin::{Origin, origin_fields};
use crate::parties::{hex_or_null, number_or_null, text_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of a [`FileRow`].
    FileFields, FILE, FILE_SCHEMA:
    time Time None "TIME" 1 "when its first byte was captured";
    src_ip Address None "CLIENT" 1 "who opened the connection";
    src_port Unsigned None "PORT" 4 "its port";
    dst_ip Address None "SERVER" 1 "to whom";
    dst_port Unsigned None "PORT" 2 "port there";
    proto Text None "" 0 "tcp";
    source Text None "SOURCE" 2 "what carried it: http, ftp_data, smtp";
    file_id Hex None "" 0 "its own number, which records of messages that carried it have, too";
    depth Unsigned None "" 0 "number of the message that carried it, in its direction of the connection";
    part Unsigned None "" 0 "of mails: which part of all in the connection it is, those that hold others counted";
    parent_id Hex None "" 0 "number of the mail that it is a part of, where that is a file, too";
    sent_by Text None "SENT BY" 3 "src or dst: which of the two sent it";
    duration Duration Seconds "" 0 "from its first byte to its last";
    method Text None "" 0 "method of the request that it belongs to";
    host Text None "HOST" 4 "host of that request";
    uri Text None "URI" 4 "target of that request, as it was sent";
    status Unsigned None "" 0 "status of the response that it came with";
    file_name Text None "NAME" 2 "name that its sender gave it, or else the last part of its URL";
    name_by Text None "" 0 "sender or url: who gave it that name";
    content_type Text None "" 0 "type that its sender gave it";
    mime_type Text None "TYPE" 1 "type that it begins as";
    content_encoding Text None "" 0 "content coding it was sent with";
    decoded Text None "" 0 "yes: sizes and digests are of what was coded; failed: it could not be decoded; bomb: it grew too much; null: it was not tried";
    bytes Unsigned Bytes "SIZE" 1 "bytes that were seen; behind the content coding if it was decoded";
    total_bytes Unsigned Bytes "" 0 "bytes that its sender announced";
    missing_bytes Unsigned Bytes "" 0 "bytes that were not captured";
    whole Text None "WHOLE" 3 "yes: it came to its end, and nothing is missing";
    md5 Text None "" 0 "MD5 digest, where it was asked for and no byte is missing";
    sha1 Text None "" 0 "SHA-1 digest, likewise";
    sha256 Text None "" 0 "SHA-256 digest, likewise";
    extracted Text None "EXTRACTED" 3 "name of the file in the folder of --extract-files that has it";
    extracted_bytes Unsigned Bytes "" 0 "bytes in that file; fewer than there were where it is cut off";
    limit Text None "" 0 "what ended it early or was refused to it: files (too many were written at once), decoders (decoded at once), memory, disk (the folder could not be written to), file_limit, extract_limit, ranges (too much came before what lies before it, which counts as missing), head (fields of its part behind 32 KiB were not read), parts (it lies within 100 others, and is not taken apart); or null";
}

/// A file that was transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRow {
    /// When it began, and between whom.
    pub origin: Origin,
    /// What carried it.
    pub source: &'static str,
    /// Its own number.
    pub file_id: Option<u64>,
    /// Number of the message.
    pub depth: Option<u32>,
    /// Place of the part.
    pub part: Option<u32>,
    /// Number of the mail around it.
    pub parent: Option<u64>,
    /// In which flow it began; not a field, as all records have it.
    pub flow_id: Option<u64>,
    /// Who opened the connection sent it.
    pub from_initiator: bool,
    /// Last byte.
    pub end: Nanos,
    /// Method of the request.
    pub method: Option<String>,
    /// Host of the request.
    pub host: Option<String>,
    /// Target of the request.
    pub uri: Option<String>,
    /// Status of the response.
    pub status: Option<u16>,
    /// Name that its sender gave, or the last part of its URL.
    pub file_name: Option<String>,
    /// Who gave the name: `sender` or `url`.
    pub name_by: Option<&'static str>,
    /// Type that its sender gave.
    pub content_type: Option<String>,
    /// Type that it begins as.
    pub mime_type: Option<&'static str>,
    /// Content coding.
    pub content_encoding: Option<String>,
    /// What decoding came to, where it was tried.
    pub decoded: Option<&'static str>,
    /// Bytes seen.
    pub bytes: u64,
    /// Bytes announced.
    pub total_bytes: Option<u64>,
    /// Bytes not captured.
    pub missing_bytes: u64,
    /// It came to its end.
    pub is_whole: bool,
    /// MD5, in hexadecimal digits.
    pub md5: Option<String>,
    /// SHA-1.
    pub sha1: Option<String>,
    /// SHA-256.
    pub sha256: Option<String>,
    /// Name of the file that has it.
    pub extracted: Option<String>,
    /// Bytes in that file.
    pub extracted_bytes: Option<u64>,
    /// The bound that ended it early.
    pub limit: Option<&'static str>,
}

impl FileRow {
    /// The name that its sender gave it.
    pub fn name_of_sender(&self) -> Option<String> {
        let name = self.file_name.as_ref();
        name.filter(|_| self.name_by == Some("sender")).cloned()
    }
}

impl Record for FileRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        self.origin.visit(visitor, origin_fields!(FILE), "tcp");
        visitor.symbol(&FILE.source, self.source.as_bytes());
        hex_or_null(visitor, &FILE.file_id, self.file_id);
        number_or_null(visitor, &FILE.depth, self.depth);
        number_or_null(visitor, &FILE.part, self.part);
        hex_or_null(visitor, &FILE.parent_id, self.parent);
        let sender: &[u8] = if self.from_initiator { b"src" } else { b"dst" };
        visitor.symbol(&FILE.sent_by, sender);
        let duration = self.end.0.saturating_sub(self.origin.time.0);
        visitor.duration(&FILE.duration, Nanos(duration));
        text_or_null(visitor, &FILE.method, self.method.as_deref());
        text_or_null(visitor, &FILE.host, self.host.as_deref());
        text_or_null(visitor, &FILE.uri, self.uri.as_deref());
        number_or_null(visitor, &FILE.status, self.status);
        text_or_null(visitor, &FILE.file_name, self.file_name.as_deref());
        text_or_null(visitor, &FILE.name_by, self.name_by);
        text_or_null(visitor, &FILE.content_type, self.content_type.as_deref());
        text_or_null(visitor, &FILE.mime_type, self.mime_type);
        let coding = self.content_encoding.as_deref();
        text_or_null(visitor, &FILE.content_encoding, coding);
        text_or_null(visitor, &FILE.decoded, self.decoded);
        visitor.unsigned(&FILE.bytes, self.bytes);
        number_or_null(visitor, &FILE.total_bytes, self.total_bytes);
        visitor.unsigned(&FILE.missing_bytes, self.missing_bytes);
        let is_whole = self.is_whole && self.missing_bytes == 0;
        visitor.symbol(&FILE.whole, if is_whole { b"yes" } else { b"no" });
        text_or_null(visitor, &FILE.md5, self.md5.as_deref());
        text_or_null(visitor, &FILE.sha1, self.sha1.as_deref());
        text_or_null(visitor, &FILE.sha256, self.sha256.as_deref());
        text_or_null(visitor, &FILE.extracted, self.extracted.as_deref());
        number_or_null(visitor, &FILE.extracted_bytes, self.extracted_bytes);
        text_or_null(visitor, &FILE.limit, self.limit);
    }
}

impl KnownRecord for FileRow {
    fn schema(&self) -> Schema {
        FILE_SCHEMA
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
