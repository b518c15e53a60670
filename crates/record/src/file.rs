//! Records about transferred files: bodies of messages, data connections.

use flowgauge_wire::Nanos;

use crate::anomaly::side;
use crate::origin::Origin;
use crate::schema::record;
use crate::value::Symbol;

record! {
    /// Fields of a [`FileRow`].
    FILE, FILE_SCHEMA for FileRow as it {
        let parties = it.origin.parties;
    }:
    time Time "TIME" 1 = it.origin.time, "when its first byte was captured";
    src_ip Address "CLIENT" 1 = parties.client_ip(), "initiator of the connection";
    src_port Unsigned "PORT" 4 = parties.client.1, "its port";
    dst_ip Address "SERVER" 1 = parties.server_ip(), "to whom";
    dst_port Unsigned "PORT" 2 = parties.server.1, "port there";
    proto Text = Symbol("tcp"), "tcp";
    source: &'static str, Text "SOURCE" 2 = Symbol(it.source), "protocol that carried it: http, ftp_data, smtp";
    file_id: Option<u64>, Hex = it.file_id, "its number, also in the records of the messages that carried it";
    depth: Option<u32>, Unsigned = it.depth, "number of the message that carried it, in its direction of the connection";
    part: Option<u32>, Unsigned = it.part, "of mails: which part of all in the connection it is, those that hold others counted";
    parent_id (parent: Option<u64>) Hex = it.parent, "number of the mail that it is a part of, if that is a file too";
    sent_by Text "SENT BY" 3 = side(it.from_initiator), "src or dst: which of the two sent it";
    duration Duration Seconds = it.origin.until(it.end), "from its first byte to its last";
    method: Option<String>, Text = &it.method, "method of the request that it belongs to";
    host: Option<String>, Text "HOST" 4 = &it.host, "host of that request";
    uri: Option<String>, Text "URI" 4 = &it.uri, "target of that request, as it was sent";
    status: Option<u16>, Unsigned = it.status, "status of the response that carried it";
    file_name: Option<String>, Text "NAME" 2 = &it.file_name, "name that its sender gave it, or else the last part of its URL";
    name_by: Option<&'static str>, Text = it.name_by, "origin of the name: sender or url";
    content_type: Option<String>, Text = &it.content_type, "type that its sender gave it";
    mime_type: Option<&'static str>, Text "TYPE" 1 = it.mime_type, "type by its first bytes";
    content_encoding: Option<String>, Text = &it.content_encoding, "content coding it was sent with";
    decoded: Option<&'static str>, Text = it.decoded, "yes: sizes and digests are those of the decoded file; failed: \
    it could not be decoded; bomb: it expanded too much; null: not attempted";
    bytes: u64, Unsigned Bytes "SIZE" 1 = it.bytes, "bytes seen, after decoding if it was decoded";
    total_bytes: Option<u64>, Unsigned Bytes = it.total_bytes, "bytes that its sender announced";
    missing_bytes: u64, Unsigned Bytes = it.missing_bytes, "bytes that were not captured";
    whole Text "WHOLE" 3 = it.is_whole && it.missing_bytes == 0, "yes: it is complete";
    md5: Option<String>, Text = &it.md5, "MD5 digest, if requested and no byte is missing";
    sha1: Option<String>, Text = &it.sha1, "SHA-1 digest, likewise";
    sha256: Option<String>, Text = &it.sha256, "SHA-256 digest, likewise";
    extracted: Option<String>, Text "EXTRACTED" 3 = &it.extracted, "name of the file in the folder of --extract-files that has it";
    extracted_bytes: Option<u64>, Unsigned Bytes = it.extracted_bytes, "bytes in that file; fewer if it was truncated";
    limit: Option<&'static str>, Text = it.limit, "limit that truncated it: files (too many written at once), \
    decoders (too many decoded at once), memory, disk (the folder is not writable), file_limit, extract_limit, ranges (too much data waiting for earlier bytes, which count as missing), head (fields of its part beyond 32 KiB were not parsed), parts (nested in 100 others, not parsed further); or null";

    /// A transferred file.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct FileRow {
        /// Its start, client and server.
        pub origin: Origin,
        /// The flow in which it started; not a field, as all records have it.
        pub flow_id: Option<u64>,
        /// Whether the initiator of the connection sent it.
        pub from_initiator: bool,
        /// Last byte.
        pub end: Nanos,
        /// Whether it is complete.
        pub is_whole: bool,
    }
}

impl FileRow {
    /// The name given by its sender.
    pub fn name_of_sender(&self) -> Option<String> {
        let name = self.file_name.as_ref();
        name.filter(|_| self.name_by == Some("sender")).cloned()
    }
}
