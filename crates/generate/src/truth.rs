//! What is known to be in a generated trace.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Everything a generated trace is known to hold. Serializes to the JSON file beside the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Name of the preset.
    pub preset: String,
    /// Seed.
    pub seed: u64,
    /// Frames in the capture.
    pub packets: u64,
    /// Sum of the frames' lengths on the wire, in bytes (without the frame check sequence).
    pub wire_bytes: u64,
    /// Bytes of the capture file before compression, headers included.
    pub file_bytes: u64,
    /// Time of the first frame, nanoseconds since 1970.
    pub first_ns: u64,
    /// Time of the last frame, nanoseconds since 1970.
    pub last_ns: u64,
    /// Distinct bidirectional five-tuples of which at least one frame was captured.
    pub flows: FlowCounts,
    /// Sums over the whole trace.
    pub totals: Totals,
    /// HTTP transactions in the trace, before frames went missing.
    pub http: HttpTotals,
    /// Frames of each hostile kind, by its name; only in `hostile` and `syn`.
    pub attacks: BTreeMap<String, u64>,
    /// One entry per direction of each TCP connection and UDP flow, in the order in which they
    /// ended; empty when only a summary was asked for. Hostile flows have none.
    pub streams: Vec<StreamTruth>,
}

/// Flows by protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// TCP.
    pub tcp: u64,
    /// UDP.
    pub udp: u64,
    /// Flows of a hostile kind. In `syn` these are exactly the distinct five-tuples of the flood; in
    /// `hostile` their number depends on how a tool counts broken packets.
    pub hostile: u64,
}

/// Sums over a trace. All but the `hostile` frames count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// TCP payload bytes sent, each byte once.
    pub tcp_stream_bytes: u64,
    /// Of these, bytes that are in no captured frame.
    pub tcp_missing_bytes: u64,
    /// Runs of such bytes.
    pub tcp_holes: u64,
    /// UDP payload bytes sent.
    pub udp_payload_bytes: u64,
    /// Of these, bytes in datagrams that were not (wholly) captured.
    pub udp_missing_bytes: u64,
    /// Of the TCP and UDP bytes, those beyond the first 10,240 of their direction.
    pub bytes_beyond_10k: u64,
    /// TCP segments with payload captured.
    pub data_segments: u64,
    /// Captured data segments that bring no byte that was not captured before.
    pub retransmitted_segments: u64,
    /// Captured data segments of which only a part was captured before.
    pub partial_overlaps: u64,
    /// Captured data segments that begin before the highest byte captured so far and bring bytes
    /// not captured before.
    pub out_of_order_segments: u64,
    /// Data segments lost between the sender and the capture point and sent again later.
    pub lost_upstream: u64,
    /// Frames of the traffic that are missing from the capture.
    pub missing_frames: u64,
    /// Frames that the capture holds a second time.
    pub duplicate_frames: u64,
    /// Frames that are IP fragments.
    pub fragments: u64,
    /// Datagrams sent as fragments.
    pub fragmented_datagrams: u64,
    /// Connections whose SYN, SYN+ACK are both captured.
    pub handshakes: u64,
    /// Connections that were under way when the capture began.
    pub mid_stream: u64,
    /// DNS queries that were answered.
    pub dns_transactions: u64,
    /// Frames with an IPv6 innermost packet.
    pub ipv6_frames: u64,
    /// Frames with at least one VLAN tag.
    pub vlan_frames: u64,
    /// Frames inside a tunnel.
    pub tunnel_frames: u64,
}

impl Totals {
    /// Adds the counters that the flows keep, as opposed to those that the output keeps.
    pub(super) fn add_flows(&mut self, flows: &Totals) {
        self.tcp_stream_bytes += flows.tcp_stream_bytes;
        self.tcp_missing_bytes += flows.tcp_missing_bytes;
        self.tcp_holes += flows.tcp_holes;
        self.udp_payload_bytes += flows.udp_payload_bytes;
        self.udp_missing_bytes += flows.udp_missing_bytes;
        self.bytes_beyond_10k += flows.bytes_beyond_10k;
        self.handshakes += flows.handshakes;
        self.mid_stream += flows.mid_stream;
        self.dns_transactions += flows.dns_transactions;
    }
}

/// HTTP transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpTotals {
    /// Requests, each with its response.
    pub transactions: u64,
    /// Requests by method.
    pub methods: BTreeMap<String, u64>,
    /// Responses by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses in the chunked transfer coding.
    pub chunked: u64,
    /// Bytes of the request bodies.
    pub request_body_bytes: u64,
    /// Bytes of the response bodies without the chunk framing.
    pub response_body_bytes: u64,
}

/// A run of bytes that is missing from the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// Offset of its first byte in the stream.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// One direction of a TCP connection or UDP flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTruth {
    /// Sender.
    pub src_ip: IpAddr,
    /// Sender's port.
    pub src_port: u16,
    /// Receiver.
    pub dst_ip: IpAddr,
    /// Receiver's port.
    pub dst_port: u16,
    /// `tcp` or `udp`.
    pub proto: String,
    /// Whether the sender opened the flow.
    pub initiator: bool,
    /// Frames captured.
    pub packets: u64,
    /// Lengths of the captured frames, in bytes.
    pub wire_bytes: u64,
    /// Payload bytes sent, each byte once.
    pub bytes: u64,
    /// SHA-256 of them, in hexadecimal.
    #[serde(with = "hex")]
    pub sha256: [u8; 32],
    /// Bytes that no captured frame holds: the sum of the holes.
    pub missing_bytes: u64,
    /// Where they are, in order. One that begins at 0 precedes everything captured; a tool can
    /// know of it when `syn` is set. One that ends at `bytes` follows everything captured; a tool
    /// can know of it from `fin` or from the peer's acknowledgements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<Hole>,
    /// SHA-256 of the captured bytes in stream order, holes left out; equals `sha256` without holes.
    #[serde(with = "hex")]
    pub captured_sha256: [u8; 32],
    /// TCP: the SYN of this direction is in the capture.
    pub syn: bool,
    /// TCP: the FIN of this direction is in the capture.
    pub fin: bool,
    /// TCP: a RST of this direction is in the capture.
    pub rst: bool,
}

/// What a segment did to the capture of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    InOrder,
    OutOfOrder,
    Retransmitted,
    PartialOverlap,
}

/// Follows one direction while it is generated.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracker {
    /// Frames and bytes captured.
    pub(super) packets: u64,
    pub(super) wire_bytes: u64,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
    /// Payload bytes sent so far.
    sent: u64,
    /// One past the highest byte captured.
    highest: u64,
    /// Bytes below `sent` that are in no captured frame yet, in order.
    absent: Vec<(u64, u64)>,
    hash: Option<Sha256>,
    /// Only from the first byte on that will never be captured; before, it equals `hash`.
    captured_hash: Option<Sha256>,
}

impl Tracker {
    pub(super) fn new(hashed: bool) -> Self {
        Tracker {
            hash: hashed.then(Sha256::new),
            ..Tracker::default()
        }
    }

    /// Bytes sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The next bytes of the stream are sent; `ever_captured` tells whether any frame that holds
    /// them is (or will be) in the capture.
    pub(super) fn send(&mut self, payload: &[u8], ever_captured: bool) {
        let from = self.sent;
        self.sent += payload.len() as u64;
        match self.absent.last_mut() {
            Some(last) if last.1 == from => last.1 = self.sent,
            _ => self.absent.push((from, self.sent)),
        }
        let Some(hash) = &mut self.hash else { return };
        if !ever_captured && self.captured_hash.is_none() {
            self.captured_hash = Some(hash.clone());
        }
        hash.update(payload);
        if let Some(captured) = &mut self.captured_hash
            && ever_captured
        {
            captured.update(payload);
        }
    }

    /// A frame with the bytes `from..to` is in the capture.
    pub(super) fn capture(&mut self, from: u64, to: u64) -> Arrival {
        let mut new_bytes = 0;
        let mut index = 0;
        while index < self.absent.len() {
            let (start, end) = self.absent[index];
            let (low, high) = (start.max(from), end.min(to));
            if low >= high {
                index += 1;
                continue;
            }
            new_bytes += high - low;
            match (start < low, high < end) {
                (false, false) => {
                    self.absent.remove(index);
                }
                (true, false) => {
                    self.absent[index].1 = low;
                    index += 1;
                }
                (false, true) => {
                    self.absent[index].0 = high;
                    index += 1;
                }
                (true, true) => {
                    self.absent[index].1 = low;
                    self.absent.insert(index + 1, (high, end));
                    index += 2;
                }
            }
        }
        let before = self.highest;
        self.highest = before.max(to);
        if new_bytes == 0 {
            Arrival::Retransmitted
        } else if new_bytes < to - from {
            Arrival::PartialOverlap
        } else if from < before {
            Arrival::OutOfOrder
        } else {
            Arrival::InOrder
        }
    }

    /// Bytes that no captured frame holds.
    pub(super) fn missing(&self) -> u64 {
        self.absent.iter().map(|(start, end)| end - start).sum()
    }

    /// Runs of such bytes.
    pub(super) fn holes(&self) -> u64 {
        self.absent.len() as u64
    }

    /// The statement about the finished stream.
    pub(super) fn finish(
        self,
        (src_ip, src_port): (IpAddr, u16),
        (dst_ip, dst_port): (IpAddr, u16),
        proto: &str,
        initiator: bool,
    ) -> StreamTruth {
        let missing_bytes = self.missing();
        let sha256 = digest(self.hash);
        StreamTruth {
            src_ip,
            src_port,
            dst_ip,
            dst_port,
            proto: proto.to_owned(),
            initiator,
            packets: self.packets,
            wire_bytes: self.wire_bytes,
            bytes: self.sent,
            sha256,
            missing_bytes,
            holes: self
                .absent
                .iter()
                .map(|&(start, end)| Hole {
                    offset: start,
                    size: end - start,
                })
                .collect(),
            captured_sha256: match self.captured_hash {
                Some(hash) => digest(Some(hash)),
                None => sha256,
            },
            syn: self.syn,
            fin: self.fin,
            rst: self.rst,
        }
    }
}

fn digest(hash: Option<Sha256>) -> [u8; 32] {
    hash.map(|hash| hash.finalize().into()).unwrap_or_default()
}

/// Hashes as hexadecimal text.
mod hex {
    use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || D::Error::custom("a SHA-256 has 64 hexadecimal digits");
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_told_apart() {
        let mut tracker = Tracker::new(true);
        for _ in 0..4 {
            tracker.send(&[7; 10], true);
        }
        assert_eq!(tracker.capture(0, 10), Arrival::InOrder);
        assert_eq!(tracker.capture(20, 30), Arrival::InOrder);
        assert_eq!(tracker.capture(10, 20), Arrival::OutOfOrder);
        assert_eq!(tracker.capture(10, 20), Arrival::Retransmitted);
        assert_eq!(tracker.capture(25, 35), Arrival::PartialOverlap);
        assert_eq!(tracker.missing(), 5);
    }

    #[test]
    fn a_hole_is_left_out_of_the_captured_hash() {
        let mut tracker = Tracker::new(true);
        tracker.send(b"one", true);
        tracker.capture(0, 3);
        tracker.send(b"two", false);
        tracker.send(b"three", true);
        tracker.capture(6, 11);
        let address = (IpAddr::from([10, 0, 0, 1]), 1);
        let truth = tracker.finish(address, address, "tcp", true);
        assert_eq!(truth.holes, [Hole { offset: 3, size: 3 }]);
        assert_eq!(truth.sha256[..], Sha256::digest(b"onetwothree")[..]);
        assert_eq!(truth.captured_sha256[..], Sha256::digest(b"onethree")[..]);
    }

    #[test]
    fn json_round_trip() {
        let truth = Tracker::new(true).finish(
            (IpAddr::from([10, 0, 0, 1]), 1),
            (IpAddr::from([10, 0, 0, 2]), 2),
            "udp",
            false,
        );
        let text = serde_json::to_string(&truth).unwrap();
        assert!(text.contains("\"sha256\":\"e3b0c442"));
        assert_eq!(serde_json::from_str::<StreamTruth>(&text).unwrap(), truth);
    }
}
