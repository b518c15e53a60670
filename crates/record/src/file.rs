//! Records about files that were transferred: bodies of messages, data connections.

use flowgauge_wire::Nanos;

use crate::anomaly::side;
use crate::held::held;
use crate::origin::Origin;
use crate::schema::record;
use crate::value::Symbol;

record! {
    /// Fields of a [`FileRow`].
    FILE, FILE_SCHEMA for FileRow as it {
        let parties = it.origin.parties;
    }:
    time Time "TIME" 1 = it.origin.time, "when its first byte was captured";
    src_ip Address "CLIENT" 1 = parties.client_ip(), "who opened the connection";
    src_port Unsigned "PORT" 4 = parties.client.1, "its port";
    dst_ip Address "SERVER" 1 = parties.server_ip(), "to whom";
    dst_port Unsigned "PORT" 2 = parties.server.1, "port there";
    proto Text = Symbol("tcp"), "tcp";
    source Text "SOURCE" 2 = Symbol(it.source), "what carried it: http, ftp_data, smtp";
    file_id Hex = it.file_id, "its own number, which records of messages that carried it have, too";
    depth Unsigned = it.depth, "number of the message that carried it, in its direction of the connection";
    part Unsigned = it.part, "of mails: which part of all in the connection it is, those that hold others counted";
    parent_id Hex = it.parent, "number of the mail that it is a part of, where that is a file, too";
    sent_by Text "SENT BY" 3 = side(it.from_initiator), "src or dst: which of the two sent it";
    duration Duration Seconds = it.origin.until(it.end), "from its first byte to its last";
    method Text = &it.method, "method of the request that it belongs to";
    host Text "HOST" 4 = &it.host, "host of that request";
    uri Text "URI" 4 = &it.uri, "target of that request, as it was sent";
    status Unsigned = it.status, "status of the response that it came with";
    file_name Text "NAME" 2 = &it.file_name, "name that its sender gave it, or else the last part of its URL";
    name_by Text = it.name_by, "sender or url: who gave it that name";
    content_type Text = &it.content_type, "type that its sender gave it";
    mime_type Text "TYPE" 1 = it.mime_type, "type that it begins as";
    content_encoding Text = &it.content_encoding, "content coding it was sent with";
    decoded Text = it.decoded, "yes: sizes and digests are of what was coded; failed: it could not be decoded; bomb: it grew too much; null: it was not tried";
    bytes Unsigned Bytes "SIZE" 1 = it.bytes, "bytes that were seen; behind the content coding if it was decoded";
    total_bytes Unsigned Bytes = it.total_bytes, "bytes that its sender announced";
    missing_bytes Unsigned Bytes = it.missing_bytes, "bytes that were not captured";
    whole Text "WHOLE" 3 = it.is_whole && it.missing_bytes == 0, "yes: it came to its end, and nothing is missing";
    md5 Text = &it.md5, "MD5 digest, where it was asked for and no byte is missing";
    sha1 Text = &it.sha1, "SHA-1 digest, likewise";
    sha256 Text = &it.sha256, "SHA-256 digest, likewise";
    extracted Text "EXTRACTED" 3 = &it.extracted, "name of the file in the folder of --extract-files that has it";
    extracted_bytes Unsigned Bytes = it.extracted_bytes, "bytes in that file; fewer than there were where it is cut off";
    limit Text = it.limit, "what ended it early or was refused to it: files (too many were written at once), decoders (decoded at once), memory, disk (the folder could not be written to), file_limit, extract_limit, ranges (too much came before what lies before it, which counts as missing), head (fields of its part behind 32 KiB were not read), parts (it lies within 100 others, and is not taken apart); or null";
}

held! {
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
}

impl FileRow {
    /// The name that its sender gave it.
    pub fn name_of_sender(&self) -> Option<String> {
        let name = self.file_name.as_ref();
        name.filter(|_| self.name_by == Some("sender")).cloned()
    }
}
