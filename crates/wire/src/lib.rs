//! Headers of each layer, flow keys, hashes, checksums.
//!
//! Everything here is a pure function of bytes: no I/O, no clock, no allocation per packet, no
//! `unsafe`. Malformed input never panics, but yields a [`Decoded`] with its [`Problem`] set.
//!
//! # What is not decoded
//! - encrypted or compressed layers: ESP, MACsec with encryption, encrypted 802.11, compressed
//!   PPP, L2TP, WireGuard, OpenVPN, IP over DNS or HTTP;
//! - GTP version 0 and GTP-C, LISP, GUE, FOU, CAPWAP, MPLS over UDP, PPP multilink, PPP bridging,
//!   TRILL, Cisco ISL, Cisco metadata and RealTek/DSA switch tags;
//! - 802.11 aggregates beyond their first frame, 802.11 fragments;
//! - link types other than those in [`LinkType`], token ring, FDDI, LLC over ATM, IP over Fibre
//!   Channel, OpenBSD's ENC and PFLOG, PPI, Prism, AVS, MPLS, Ethernet with preamble;
//! - ports of UDP-Lite and DCCP, CRC32c of SCTP, chunks of SCTP;
//! - tunnels within fragments, until their datagram is reassembled.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod budget;
pub mod checksum;
pub mod community_id;
pub mod decode;
pub mod decoded;
pub mod folded;
pub mod key;
pub mod ledger;
pub mod link;
pub mod packet;
pub mod selection;
pub mod tcp_options;
pub mod time;

pub use budget::Budget;
pub use checksum::{Checksum, ChecksumVerdict, verify_transport, verify_transport_with};
pub use community_id::{CommunityId, community_id_hash};
pub use decode::{
    CARRIERS, DatagramOrigin, DecodeOptions, Decoder, FragmentInfo, fragment_info, hash_batch,
    icmp_counterpart,
};
pub use decoded::{
    DecodeFlags, Decoded, DecodedBatch, Problem, Summary, TcpFlags, Tunnel, TunnelKind,
};
pub use folded::FoldedState;
pub use key::{Address, Direction, FlowKey, HashSeed, network, scattered};
pub use ledger::{Ledger, Place};
pub use link::LinkType;
pub use packet::{BATCH_SIZE, Batch, PacketDescriptor, PacketFlags};
pub use selection::{Selected, Selection};
pub use tcp_options::{SackBlocks, TcpOption, TcpOptions};
pub use time::Nanos;
