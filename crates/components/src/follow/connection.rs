//! Which connection is meant.

use core::net::{IpAddr, SocketAddr};

use flowgauge_record::text::protocol_name;
use flowgauge_stack::SettingError;
use flowgauge_stream::{Stream, StreamIdentity};
use flowgauge_wire::{Address, CommunityId};

/// A connection as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// By the `flow_id` of its records.
    Flow(u64),
    /// By its Community ID.
    Community(String),
    /// By what is known of it.
    Ends {
        /// 6 or 17.
        protocol: Option<u8>,
        /// One endpoint or both, in any order.
        ends: Vec<End>,
    },
}

/// What is known of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    address: Option<Address>,
    port: Option<u16>,
}

impl End {
    fn read(word: &str) -> Option<End> {
        if let Ok(end) = word.parse::<SocketAddr>() {
            return Some(End {
                address: Some(end.ip().into()),
                port: Some(end.port()),
            });
        }
        let bare = word
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(word).parse::<IpAddr>() {
            let address = Some(address.into());
            return Some(End {
                address,
                port: None,
            });
        }
        let port = word.strip_prefix(':').unwrap_or(word).parse().ok()?;
        Some(End {
            address: None,
            port: Some(port),
        })
    }

    fn is(&self, end: (Address, u16)) -> bool {
        self.address.is_none_or(|address| address == end.0)
            && self.port.is_none_or(|port| port == end.1)
    }
}

impl Connection {
    /// From the value of the option `connection`.
    ///
    /// # Errors
    /// It names none.
    pub(super) fn read(text: &str) -> Result<Connection, SettingError> {
        let trimmed = text.trim();
        if trimmed.len() == 30 && trimmed.starts_with("1:") && trimmed.ends_with('=') {
            return Ok(Connection::Community(trimmed.to_owned()));
        }
        let is_hex = |digit: char| digit.is_ascii_hexdigit();
        if trimmed.len() == 16 && trimmed.chars().all(is_hex) {
            let number = u64::from_str_radix(trimmed, 16);
            return Ok(Connection::Flow(number.unwrap_or(0)));
        }
        let wrong = |what: String| {
            Err(SettingError::of("connection", what).with_hint(
                "write its flow_id (16 hexadecimal digits), its Community ID (1:...=), or \"tcp 192.0.2.1:50956 192.0.2.7:80\" or a \
                 part of that; \"flowgauge flows --fields flow_id,community_id,src_ip,src_port,dst_ip,dst_port\" lists them",
            ))
        };
        let mut protocol = None;
        let mut ends = Vec::new();
        let words = trimmed.split(|it: char| it.is_whitespace() || matches!(it, ',' | '<' | '>'));
        for word in words.filter(|word| !word.is_empty() && *word != "-") {
            let number = match word.to_ascii_lowercase().as_str() {
                "tcp" => 6,
                "udp" => 17,
                _ => match End::read(word) {
                    Some(end) => {
                        ends.push(end);
                        continue;
                    }
                    None => return wrong(format!("\"{word}\" is not an endpoint of a connection")),
                },
            };
            if protocol.replace(number).is_some() {
                return wrong(format!("\"{trimmed}\" has two protocols"));
            }
        }
        match ends.len() {
            1 | 2 => Ok(Connection::Ends { protocol, ends }),
            0 => wrong(format!("\"{trimmed}\" names no connection")),
            _ => wrong(format!("\"{trimmed}\" has more than two endpoints")),
        }
    }

    /// Whether only one connection can be it.
    pub(super) fn is_one(&self) -> bool {
        matches!(self, Connection::Flow(_))
    }

    /// Whether it is that of a stream.
    pub(super) fn is_of(&self, stream: &Stream<'_>, identity: &StreamIdentity, seed: u16) -> bool {
        match self {
            Connection::Flow(number) => *number == identity.flow_id,
            Connection::Community(text) => {
                let id = stream.record(|record| CommunityId::of(record.key, seed));
                id.flatten().is_some_and(|id| id.as_str() == text)
            }
            Connection::Ends { protocol, ends } => {
                let (here, there) = (identity.source, identity.destination);
                protocol.is_none_or(|protocol| protocol == identity.protocol)
                    && match ends.as_slice() {
                        [one, other] => {
                            (one.is(here) && other.is(there)) || (one.is(there) && other.is(here))
                        }
                        [one] => one.is(here) || one.is(there),
                        _ => false,
                    }
            }
        }
    }
}

/// A connection in words, seen from its initiator.
pub(super) fn said(identity: &StreamIdentity, from_initiator: bool) -> String {
    let end = |(address, port): (Address, u16)| {
        SocketAddr::new(address.to_ip(identity.version), port).to_string()
    };
    let ends = [end(identity.source), end(identity.destination)];
    let [from, to] = match from_initiator {
        true => ends,
        false => {
            let [one, other] = ends;
            [other, one]
        }
    };
    let protocol = protocol_name(identity.protocol);
    format!(
        "{protocol} {from} > {to}, flow_id {:016x}",
        identity.flow_id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(protocol: Option<u8>, ends: &[(Option<&str>, Option<u16>)]) -> Connection {
        let end = |&(address, port): &(Option<&str>, Option<u16>)| End {
            address: address.map(|it| it.parse::<IpAddr>().unwrap().into()),
            port,
        };
        Connection::Ends {
            protocol,
            ends: ends.iter().map(end).collect(),
        }
    }

    #[test]
    fn connections_are_named_in_several_ways() {
        let both = [
            (Some("192.0.2.1"), Some(50956)),
            (Some("192.0.2.7"), Some(80)),
        ];
        let six = [(Some("2001:db8::1"), Some(80)), (Some("2001:db8::2"), None)];
        for (text, named) in [
            ("00ff00ff00ff00ff", Connection::Flow(0xff_00ff_00ff_00ff)),
            (
                "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
                Connection::Community("1:LQU9qZlK+B5F3KDmev6m5PMibrg=".to_owned()),
            ),
            ("tcp 192.0.2.1:50956 192.0.2.7:80", ends(Some(6), &both)),
            ("192.0.2.1:50956 -> 192.0.2.7:80", ends(None, &both)),
            ("UDP,192.0.2.1:50956,192.0.2.7:80", ends(Some(17), &both)),
            ("[2001:db8::1]:80 2001:db8::2", ends(None, &six)),
            ("192.0.2.7", ends(None, &[(Some("192.0.2.7"), None)])),
            (":80", ends(None, &[(None, Some(80))])),
        ] {
            assert_eq!(Connection::read(text).unwrap(), named, "{text}");
        }
    }

    #[test]
    fn what_names_no_connection_is_refused() {
        for (text, said) in [
            ("", "\"\" names no connection"),
            ("tcp", "\"tcp\" names no connection"),
            (
                "tcp udp 192.0.2.1",
                "\"tcp udp 192.0.2.1\" has two protocols",
            ),
            (
                "192.0.2.256:80",
                "\"192.0.2.256:80\" is not an endpoint of a connection",
            ),
            (
                "1:short=",
                "\"1:short=\" is not an endpoint of a connection",
            ),
            ("::1 ::2 ::3", "\"::1 ::2 ::3\" has more than two endpoints"),
        ] {
            let error = Connection::read(text).unwrap_err();
            assert_eq!(error.message, said);
            assert!(error.hint.is_some());
        }
    }
}
