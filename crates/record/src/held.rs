//! How much memory records and messages take while they wait.

use crate::dhcp::DhcpMessage;
use crate::dhcpv6::Dhcpv6Message;
use crate::dns::DnsMessage;
use crate::file::FileRow;
use crate::ftp::{FtpDataRow, FtpRow};
use crate::icp::IcpMessage;
use crate::ntp::{NtpClock, NtpMessage};
use crate::quic::QuicRow;
use crate::rpc::RpcMessage;
use crate::smtp::SmtpRow;
use crate::snmp::SnmpMessage;
use crate::ssh::SshRow;
use crate::tls::{TlsRow, X509Row};

/// What keeps memory beside itself.
pub trait Held {
    /// Bytes of its buffers, with what is free in them.
    fn held(&self) -> usize;
}

impl Held for String {
    #[inline]
    fn held(&self) -> usize {
        self.capacity()
    }
}

impl Held for Vec<String> {
    fn held(&self) -> usize {
        let own = self.capacity() * size_of::<String>();
        own + self.iter().map(String::capacity).sum::<usize>()
    }
}

impl<T: Held> Held for [T; 2] {
    fn held(&self) -> usize {
        self.iter().map(T::held).sum()
    }
}

impl<T: Held> Held for Option<T> {
    #[inline]
    fn held(&self) -> usize {
        self.as_ref().map_or(0, T::held)
    }
}

impl<T: Held> Held for Box<T> {
    #[inline]
    fn held(&self) -> usize {
        size_of::<T>() + (**self).held()
    }
}

macro_rules! of_numbers {
    ($($number:ty),*) => {
        $(impl Held for Vec<$number> {
            #[inline]
            fn held(&self) -> usize {
                self.capacity() * size_of::<$number>()
            }
        })*
    };
}

macro_rules! of_fields {
    ($($type:ty: $($field:ident),*;)*) => {
        $(impl Held for $type {
            fn held(&self) -> usize {
                0 $(+ self.$field.held())*
            }
        })*
    };
}

of_numbers!(u8, u16, u32, u64, usize);

of_fields! {
    DnsMessage: opcode, query, qclass, qtype, rcode, client_subnet, answers, answer_types, ttls, answer_names,
        authorities, additionals;
    RpcMessage: program, procedure, argument, machine, status;
    IcpMessage: url;
    SnmpMessage: community, user, engine, context, oid;
    DhcpMessage: mac, host_name, fqdn, domain, vendor, text, parameters, routers, dns_servers, client_id;
    Dhcpv6Message: client_id, server_id, mac, leases, text, fqdn, domains, dns_servers, parameters;
    NtpMessage: clock;
    NtpClock: reference;
    FtpRow: user, password, command, directory, argument, reply, lines;
    FtpDataRow: command, file_name;
    SmtpRow: helo, sender, receivers, date, from, to, cc, reply_to, id, in_reply_to, subject, user_agent,
        received, originating_ip, files, attachments, last_reply, auth;
    SshRow: client, server, cipher, code, compression, exchange, host_key, fingerprint, hassh, hassh_server;
    TlsRow: version, cipher, curve, server_name, next_protocol, client_protocols, client_version, history, last_alert,
        certificate, chain, client_subject, client_chain, ja3, ja3s, ja4, ja3_text, ja3s_text, extensions;
    X509Row: sha256, sha1, serial, subject, issuer, key_algorithm, signature_algorithm, curve, alternatives, dns_names,
        ip_addresses, emails, uris;
    FileRow: method, host, uri, file_name, content_type, content_encoding, md5, sha1, sha256, extracted;
    QuicRow: tls, version, client_initial_dcid, client_scid, server_scid;
}
