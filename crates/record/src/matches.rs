//! Records about patterns found in streams.

use flowgauge_stream::StreamIdentity;
use flowgauge_wire::Nanos;

use crate::any::KnownRecord;
use crate::schema::{FieldVisitor, Record, Schema, fields};
use crate::text::protocol_name;

fields! {
    /// Fields of a [`MatchRow`].
    MatchFields, MATCH, MATCH_SCHEMA:
    time Time None "TIME" 3 "capture time of the packet that completed the match";
    src_ip Address None "SOURCE" 1 "address of the sender";
    src_port Unsigned None "PORT" 2 "port of the sender";
    dst_ip Address None "DESTINATION" 1 "address of the receiver";
    dst_port Unsigned None "PORT" 2 "port of the receiver";
    proto Text None "PROTO" 4 "tcp or udp";
    direction Text None "FROM" 5 "who sent it: initiator or responder";
    offset Unsigned Bytes "OFFSET" 1 exact "where in the stream the match begins, holes counted; empty where the expression cannot say";
    end Unsigned Bytes "END" 4 exact "position behind its last byte";
    pattern_id Unsigned None "ID" 3 "number of the pattern: its sid, or its place among the patterns";
    name Text None "NAME" 6 "the pattern's msg";
    pattern Text None "PATTERN" 1 "the pattern as it was given";
    flow_id Hex None "" 0 "the same in every record about the flow";
}

fields! {
    /// Fields of a [`MatchCountRow`].
    MatchCountFields, COUNT, MATCH_COUNT_SCHEMA:
    pattern_id Unsigned None "ID" 2 "number of the pattern: its sid, or its place among the patterns";
    matches Unsigned None "MATCHES" 1 "how often it was found";
    streams Unsigned None "STREAMS" 1 "in how many streams";
    name Text None "NAME" 3 "the pattern's msg";
    pattern Text None "PATTERN" 1 "the pattern as it was given";
}

/// What every record about a pattern says of it.
#[derive(Clone, Copy, Debug)]
pub struct PatternName<'a> {
    /// Its number.
    pub id: u64,
    /// What it is called.
    pub name: Option<&'a str>,
    /// As it was given.
    pub text: &'a str,
}

/// A pattern found in one direction of a connection.
#[derive(Clone, Copy, Debug)]
pub struct MatchRow<'a> {
    /// Capture time.
    pub time: Nanos,
    /// Whose stream it is.
    pub identity: StreamIdentity,
    /// Whether the initiator sent it.
    pub from_initiator: bool,
    /// Where it begins.
    pub offset: Option<u64>,
    /// Where it ends: the position behind its last byte.
    pub end: u64,
    /// What was found.
    pub pattern: PatternName<'a>,
}

/// How often a pattern was found.
#[derive(Clone, Copy, Debug)]
pub struct MatchCountRow<'a> {
    /// Which one.
    pub pattern: PatternName<'a>,
    /// How often.
    pub matches: u64,
    /// In how many streams.
    pub streams: u64,
}

impl Record for MatchRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let identity = &self.identity;
        let (source, destination) = (identity.source, identity.destination);
        visitor.time(&MATCH.time, self.time);
        visitor.address(&MATCH.src_ip, source.0, identity.version);
        visitor.unsigned(&MATCH.src_port, u64::from(source.1));
        visitor.address(&MATCH.dst_ip, destination.0, identity.version);
        visitor.unsigned(&MATCH.dst_port, u64::from(destination.1));
        let protocol = protocol_name(identity.protocol);
        visitor.symbol(&MATCH.proto, protocol.as_bytes());
        let direction: &[u8] = if self.from_initiator {
            b"initiator"
        } else {
            b"responder"
        };
        visitor.symbol(&MATCH.direction, direction);
        match self.offset {
            Some(offset) => visitor.unsigned(&MATCH.offset, offset),
            None => visitor.null(&MATCH.offset),
        }
        visitor.unsigned(&MATCH.end, self.end);
        visitor.unsigned(&MATCH.pattern_id, self.pattern.id);
        match self.pattern.name {
            Some(name) => visitor.text(&MATCH.name, name),
            None => visitor.null(&MATCH.name),
        }
        visitor.text(&MATCH.pattern, self.pattern.text);
        visitor.hex(&MATCH.flow_id, identity.flow_id);
    }
}

impl KnownRecord for MatchRow<'_> {
    fn schema(&self) -> Schema {
        MATCH_SCHEMA
    }
}

impl Record for MatchCountRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.unsigned(&COUNT.pattern_id, self.pattern.id);
        visitor.unsigned(&COUNT.matches, self.matches);
        visitor.unsigned(&COUNT.streams, self.streams);
        match self.pattern.name {
            Some(name) => visitor.text(&COUNT.name, name),
            None => visitor.null(&COUNT.name),
        }
        visitor.text(&COUNT.pattern, self.pattern.text);
    }
}

impl KnownRecord for MatchCountRow<'_> {
    fn schema(&self) -> Schema {
        MATCH_COUNT_SCHEMA
    }
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
