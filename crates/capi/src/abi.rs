//! The types and numbers of `scap.h`. A test compiles the header and compares sizes, offsets and values.

use core::ffi::{c_char, c_int, c_void};

/// `scap_callback_t`.
pub(crate) type Callback = extern "C" fn(*mut RawStream);

/// `enum scap_parameter`.
pub(crate) mod parameter {
    use core::ffi::c_int;

    pub(crate) const INACTIVITY_TIMEOUT: c_int = 1;
    pub(crate) const CHUNK_SIZE: c_int = 2;
    pub(crate) const OVERLAP_SIZE: c_int = 3;
    pub(crate) const FLUSH_TIMEOUT: c_int = 4;
    pub(crate) const BASE_THRESHOLD: c_int = 5;
    pub(crate) const OVERLOAD_CUTOFF: c_int = 6;
    pub(crate) const REASSEMBLY_MODE: c_int = 7;
    pub(crate) const REASSEMBLY_POLICY: c_int = 8;
    pub(crate) const SHARE: c_int = 9;
    pub(crate) const OFFLOAD: c_int = 10;
}

/// `enum scap_status`.
pub(crate) mod status {
    use core::ffi::c_int;

    pub(crate) const ACTIVE: c_int = 0;
    pub(crate) const CLOSED_FIN: c_int = 1;
    pub(crate) const CLOSED_RST: c_int = 2;
    pub(crate) const CLOSED_TIMEOUT: c_int = 3;
    pub(crate) const CUTOFF: c_int = 4;
    pub(crate) const END_OF_INPUT: c_int = 5;
    pub(crate) const EVICTED: c_int = 6;
    pub(crate) const STRICT: c_int = 7;
}

/// `enum scap_chunk_flag`.
pub(crate) mod chunk_flag {
    use core::ffi::c_int;

    pub(crate) const HOLE: c_int = 1;
    pub(crate) const LAST: c_int = 2;
    pub(crate) const CUTOFF: c_int = 4;
    pub(crate) const TIMEOUT: c_int = 8;
    pub(crate) const EARLY: c_int = 16;
    pub(crate) const KEPT: c_int = 32;
    pub(crate) const PACKET: c_int = 64;
}

/// `scap_ip_t`; the union's other members are views of the same bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(4))]
pub struct RawIp {
    pub(crate) bytes: [u8; 16],
}

/// `scap_hdr_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) src_ip: RawIp,
    pub(crate) dst_ip: RawIp,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) protocol: u8,
    pub(crate) direction: u8,
    pub(crate) ip_version: u8,
    pub(crate) has_vlan: u8,
    pub(crate) vlan: u16,
    pub(crate) reserved: [u16; 3],
}

/// `scap_count_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RawCount {
    pub(crate) bytes: u64,
    pub(crate) pkts: u64,
}

/// `scap_stream_stats_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawStreamStats {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
    pub(crate) pkts: u64,
    pub(crate) dropped: RawCount,
    pub(crate) discarded: RawCount,
    pub(crate) captured: RawCount,
}

/// `stream_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawStream {
    pub(crate) hdr: RawHeader,
    pub(crate) stats: RawStreamStats,
    pub(crate) uid: u64,
    pub(crate) status: c_int,
    pub(crate) error: c_int,
    pub(crate) cutoff: c_int,
    pub(crate) priority: c_int,
    pub(crate) chunk_size: c_int,
    pub(crate) flags: c_int,
    pub(crate) opposite: *mut RawStream,
    pub(crate) data: *mut c_char,
    pub(crate) data_len: u32,
    pub(crate) len: u32,
    pub(crate) offset: u64,
    pub(crate) missing: u64,
    pub(crate) repeated: u32,
    pub(crate) holes: u32,
    pub(crate) processing_time: u64,
    pub(crate) chunks: u64,
    pub(crate) user_state: *mut c_void,
    pub(crate) missing_at_end: u64,
}

/// `struct scap_pkthdr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawPacketHeader {
    pub(crate) ts: libc::timeval,
    pub(crate) caplen: u32,
    pub(crate) len: u32,
    pub(crate) time: u64,
    pub(crate) offset: i64,
    pub(crate) headers_len: u32,
    pub(crate) payload_len: u32,
    pub(crate) headers: *const c_char,
    pub(crate) reserved: u64,
}

/// `scap_stats_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RawStats {
    pub(crate) bytes: u64,
    pub(crate) pkts: u64,
    pub(crate) dropped: RawCount,
    pub(crate) discarded: RawCount,
    pub(crate) captured: RawCount,
    pub(crate) pkts_received: u64,
    pub(crate) pkts_delivered: u64,
    pub(crate) pkts_lost: u64,
    pub(crate) pkts_refused: u64,
    pub(crate) chunks: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) chunks_lost: u64,
    pub(crate) chunk_bytes_lost: u64,
    pub(crate) streams_created: u64,
    pub(crate) streams_terminated: u64,
    pub(crate) memory_used: u64,
    pub(crate) memory_high: u64,
    pub(crate) memory_size: u64,
    pub(crate) streams_lost: u64,
    pub(crate) requests_lost: u64,
    pub(crate) pkts_kept_away: u64,
    pub(crate) reserved: [u64; 5],
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;
    use std::fmt::Write as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::failure::Code;

    /// Lets a C compiler compare every size, offset and number with those of the header.
    #[test]
    fn rust_and_the_header_agree() {
        let mut source = String::from("#include <stddef.h>\n#include <scap.h>\n");
        let mut equal = |c: &str, rust: i64| {
            let _ = writeln!(source, "_Static_assert((long)({c}) == {rust}, \"{c}\");");
        };
        macro_rules! layout {
            ($rust:ty, $c:literal: $($field:ident),*) => {
                equal(concat!("sizeof(", $c, ")"), size_of::<$rust>() as i64);
                equal(concat!("_Alignof(", $c, ")"), align_of::<$rust>() as i64);
                $(equal(
                    concat!("offsetof(", $c, ", ", stringify!($field), ")"),
                    offset_of!($rust, $field) as i64,
                );)*
            };
        }
        layout!(RawIp, "scap_ip_t": bytes);
        layout!(RawHeader, "scap_hdr_t": src_ip, dst_ip, src_port, dst_port, protocol, direction, ip_version,
            has_vlan, vlan, reserved);
        layout!(RawCount, "scap_count_t": bytes, pkts);
        layout!(RawStreamStats, "scap_stream_stats_t": start, end, bytes, pkts, dropped, discarded, captured);
        layout!(RawStream, "stream_t": hdr, stats, uid, status, error, cutoff, priority, chunk_size, flags, opposite,
            data, data_len, len, offset, missing, repeated, holes, processing_time, chunks, user_state,
            missing_at_end);
        layout!(RawPacketHeader, "struct scap_pkthdr": ts, caplen, len, time, offset, headers_len, payload_len,
            headers, reserved);
        layout!(RawStats, "scap_stats_t": bytes, pkts, dropped, discarded, captured, pkts_received, pkts_delivered,
            pkts_lost, pkts_refused, chunks, chunk_bytes, chunks_lost, chunk_bytes_lost, streams_created, streams_terminated, memory_used,
            memory_high, memory_size, streams_lost, requests_lost, pkts_kept_away, reserved);
        let numbers = [
            ("SCAP_INACTIVITY_TIMEOUT", parameter::INACTIVITY_TIMEOUT),
            ("SCAP_CHUNK_SIZE", parameter::CHUNK_SIZE),
            ("SCAP_OVERLAP_SIZE", parameter::OVERLAP_SIZE),
            ("SCAP_FLUSH_TIMEOUT", parameter::FLUSH_TIMEOUT),
            ("SCAP_BASE_THRESHOLD", parameter::BASE_THRESHOLD),
            ("SCAP_OVERLOAD_CUTOFF", parameter::OVERLOAD_CUTOFF),
            ("SCAP_REASSEMBLY_MODE", parameter::REASSEMBLY_MODE),
            ("SCAP_REASSEMBLY_POLICY", parameter::REASSEMBLY_POLICY),
            ("SCAP_SHARE", parameter::SHARE),
            ("SCAP_OFFLOAD", parameter::OFFLOAD),
            ("SCAP_STATUS_ACTIVE", status::ACTIVE),
            ("SCAP_STATUS_CLOSED_FIN", status::CLOSED_FIN),
            ("SCAP_STATUS_CLOSED_RST", status::CLOSED_RST),
            ("SCAP_STATUS_CLOSED_TIMEOUT", status::CLOSED_TIMEOUT),
            ("SCAP_STATUS_CUTOFF", status::CUTOFF),
            ("SCAP_STATUS_END_OF_INPUT", status::END_OF_INPUT),
            ("SCAP_STATUS_EVICTED", status::EVICTED),
            ("SCAP_STATUS_STRICT", status::STRICT),
            ("SCAP_CHUNK_HOLE", chunk_flag::HOLE),
            ("SCAP_CHUNK_LAST", chunk_flag::LAST),
            ("SCAP_CHUNK_CUTOFF", chunk_flag::CUTOFF),
            ("SCAP_CHUNK_TIMEOUT", chunk_flag::TIMEOUT),
            ("SCAP_CHUNK_EARLY", chunk_flag::EARLY),
            ("SCAP_CHUNK_KEPT", chunk_flag::KEPT),
            ("SCAP_CHUNK_PACKET", chunk_flag::PACKET),
            ("SCAP_EHANDLE", Code::Handle as c_int),
            ("SCAP_EARGUMENT", Code::Argument as c_int),
            ("SCAP_ESTATE", Code::State as c_int),
            ("SCAP_EDEVICE", Code::Device as c_int),
            ("SCAP_EFILTER", Code::Filter as c_int),
            ("SCAP_EPARAMETER", Code::Parameter as c_int),
            ("SCAP_ESTREAM", Code::Stream as c_int),
            ("SCAP_EPACKETS", Code::Packets as c_int),
            ("SCAP_ERESOURCE", Code::Resource as c_int),
            ("SCAP_EINTERNAL", Code::Internal as c_int),
            ("SCAP_TCP_FAST", 1),
            ("SCAP_TCP_STRICT", 2),
            ("SCAP_TCP_WAIT", 3),
        ];
        for (name, value) in numbers {
            equal(name, value.into());
        }
        for (number, policy) in flowgauge_reassembly::OverlapPolicy::ALL.iter().enumerate() {
            let name = policy.name().replace('-', "_").to_uppercase();
            equal(&format!("SCAP_POLICY_{name}"), number as i64);
        }
        use flowgauge_stream::engine::StreamErrors;
        for (name, error) in [
            (
                "SCAP_ERROR_INCOMPLETE_HANDSHAKE",
                StreamErrors::INCOMPLETE_HANDSHAKE,
            ),
            (
                "SCAP_ERROR_INVALID_SEQUENCE",
                StreamErrors::INVALID_SEQUENCE,
            ),
            ("SCAP_ERROR_GAP", StreamErrors::GAP),
            ("SCAP_ERROR_OVERLAP", StreamErrors::OVERLAP_CONFLICT),
        ] {
            equal(name, error.0.into());
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("layout.c");
        std::fs::write(&file, source).unwrap();
        let compiled = Command::new("cc")
            .args(["-std=c11", "-fsyntax-only", "-I"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{said}");
    }
}
