//! Decoded packets made by hand.

use flowgauge_wire::{Address, DecodeFlags, Decoded, FlowKey, HashSeed, Nanos, TcpFlags};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const FIN: TcpFlags = TcpFlags::FIN;
pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const RST: TcpFlags = TcpFlags::RST;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;

/// A packet of `protocol` between two hosts, from the first to the second unless `back`.
pub(crate) fn packet(protocol: u8, client: u16, back: bool, time: u64, len: u32) -> Decoded {
    let ends = [
        (Address::v4([10, 0, 0, 1]), client),
        (Address::v4([10, 0, 0, 2]), 7777),
    ];
    let (source, destination) = if back {
        (ends[1], ends[0])
    } else {
        (ends[0], ends[1])
    };
    let (key, direction) = FlowKey::new(4, protocol, source, destination);
    Decoded {
        key,
        direction,
        hash: HashSeed::of_process().hash(&key),
        time: Nanos(time),
        payload_len: len,
        payload_captured: len,
        ip_len: 40 + len,
        wire_len: 54 + len,
        frames: 1,
        window: 1000,
        flags: DecodeFlags::TRANSPORT,
        ..Decoded::default()
    }
}

/// A TCP segment of one connection.
pub(crate) fn tcp(back: bool, time: u64, flags: TcpFlags, seq: u32, ack: u32, len: u32) -> Decoded {
    Decoded {
        seq,
        ack,
        tcp_flags: flags,
        ..packet(6, 1234, back, time, len)
    }
}
