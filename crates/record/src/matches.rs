//! Records about patterns found in streams.

use flowgauge_stream::StreamIdentity;
use flowgauge_wire::Nanos;

use crate::schema::record;
use crate::text::protocol_name;
use crate::value::Symbol;

record! {
    /// Fields of a [`MatchRow`].
    MATCH, MATCH_SCHEMA for MatchRow<'_> as it {
        let identity = &it.identity;
    }:
    time Time "TIME" 3 = it.time, "capture time of the packet that completed the match";
    src_ip Address "SOURCE" 1 = (identity.source.0, identity.version), "address of the sender";
    src_port Unsigned "PORT" 2 = identity.source.1, "port of the sender";
    dst_ip Address "DESTINATION" 1 = (identity.destination.0, identity.version), "address of the receiver";
    dst_port Unsigned "PORT" 2 = identity.destination.1, "port of the receiver";
    proto Text "PROTO" 4 = Symbol(protocol_name(identity.protocol)), "tcp or udp";
    direction Text "FROM" 5 = Symbol(if it.from_initiator { "initiator" } else { "responder" }), "sender: initiator or responder";
    offset Unsigned Bytes "OFFSET" 1 exact = it.offset, "stream offset of the match, gaps included; empty if the expression does not determine it";
    end Unsigned Bytes "END" 4 exact = it.end, "stream offset after its last byte";
    pattern_id Unsigned "ID" 3 = it.pattern.id, "number of the pattern: its sid, or its position in the list";
    name Text "NAME" 6 = it.pattern.name, "the pattern's msg";
    pattern Text "PATTERN" 1 = it.pattern.text, "the pattern as given";
    flow_id Hex = identity.flow_id, "the same in every record about the flow";
}

record! {
    /// Fields of a [`MatchCountRow`].
    COUNT, MATCH_COUNT_SCHEMA for MatchCountRow<'_> as it:
    pattern_id Unsigned "ID" 2 = it.pattern.id, "number of the pattern: its sid, or its position in the list";
    matches Unsigned "MATCHES" 1 = it.matches, "number of matches";
    streams Unsigned "STREAMS" 1 = it.streams, "number of streams with a match";
    name Text "NAME" 3 = it.pattern.name, "the pattern's msg";
    pattern Text "PATTERN" 1 = it.pattern.text, "the pattern as given";
}

/// The pattern fields common to all records about patterns.
#[derive(Clone, Copy, Debug)]
pub struct PatternName<'a> {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: Option<&'a str>,
    /// The pattern as given.
    pub text: &'a str,
}

/// A pattern found in one direction of a connection.
#[derive(Clone, Copy, Debug)]
pub struct MatchRow<'a> {
    /// Capture time.
    pub time: Nanos,
    /// The stream.
    pub identity: StreamIdentity,
    /// Whether it is the initiator's direction.
    pub from_initiator: bool,
    /// Offset of its first byte.
    pub offset: Option<u64>,
    /// Offset after its last byte.
    pub end: u64,
    /// The pattern.
    pub pattern: PatternName<'a>,
}

/// Number of matches of a pattern.
#[derive(Clone, Copy, Debug)]
pub struct MatchCountRow<'a> {
    /// The pattern.
    pub pattern: PatternName<'a>,
    /// Number of matches.
    pub matches: u64,
    /// Number of streams with matches.
    pub streams: u64,
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::Address;

    use super::*;
    use crate::encoder::{Encoder, Format};

    const PATTERN: PatternName<'static> = PatternName {
        id: 7,
        name: None,
        text: "say \"hi\"",
    };

    #[test]
    fn a_match_says_where_and_what() {
        let row = MatchRow {
            time: Nanos::from_secs(1),
            identity: StreamIdentity {
                flow_id: 0xfeed,
                source: (Address::v4([192, 0, 2, 1]), 50956),
                destination: (Address::v4([192, 0, 2, 7]), 80),
                version: 4,
                protocol: 6,
                ..StreamIdentity::default()
            },
            from_initiator: true,
            offset: Some(4),
            end: 12,
            pattern: PATTERN,
        };
        let mut text = Vec::new();
        Encoder::new(Format::Json).encode(&row, &mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"time\":\"1970-01-01T00:00:01.000000000Z\",\"src_ip\":\"192.0.2.1\",\
             \"src_port\":50956,\"dst_ip\":\"192.0.2.7\",\"dst_port\":80,\"proto\":\"tcp\",\
             \"direction\":\"initiator\",\"offset\":4,\"end\":12,\"pattern_id\":7,\"name\":null,\
             \"pattern\":\"say \\\"hi\\\"\",\"flow_id\":\"000000000000feed\"}\n"
        );
        let mut fields = Vec::new();
        Encoder::new(Format::Csv).encode(&row, &mut fields);
        assert_eq!(
            String::from_utf8(fields).unwrap().matches(',').count(),
            MATCH_SCHEMA.len() - 1
        );
    }

    #[test]
    fn counts() {
        let row = MatchCountRow {
            pattern: PATTERN,
            matches: 3,
            streams: 2,
        };
        let mut text = Vec::new();
        Encoder::new(Format::Csv).encode(&row, &mut text);
        assert_eq!(text, b"7,3,2,,\"say \"\"hi\"\"\"\n");
        assert_eq!(MATCH_COUNT_SCHEMA.len(), 5);
    }
}
