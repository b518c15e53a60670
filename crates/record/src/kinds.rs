//! The kinds of records and their fields.

use crate::event::{SAID_KINDS, schema_of_classified, schema_of_events};
use crate::schema::{Schema, record};
use crate::value::Symbol;

/// A kind of record.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its origin.
    pub from: &'static str,
    /// Its fields.
    pub schema: Schema,
}

/// All kinds, with those of application protocols last.
pub fn kinds() -> Vec<Kind> {
    let kind = |name, from, schema| Kind { name, from, schema };
    let flow = schema_of_classified(crate::flow::FLOW_SCHEMA);
    let mut all = vec![
        kind("flow", "flows, log --flows", flow),
        kind(
            "tunnel",
            "field tunnel of flows and packets",
            crate::flow::TUNNEL_SCHEMA,
        ),
        kind("stream", "streams", crate::stream::ALL_SCHEMA),
        kind("totals", "streams --count", crate::totals::TOTALS_SCHEMA),
        kind("turn", "streams --follow", crate::turn::TURN_SCHEMA),
        kind("match", "match", crate::matches::MATCH_SCHEMA),
        kind(
            "match_count",
            "match --count",
            crate::matches::MATCH_COUNT_SCHEMA,
        ),
        kind("packet", "packets", crate::packet::PACKET_BYTES_SCHEMA),
        kind(
            "brief",
            "log --table, log --csv",
            crate::brief::BRIEF_SCHEMA,
        ),
        kind("loss", "loss", crate::loss::LOSS_SCHEMA),
        kind(
            "observation",
            "component observe",
            crate::loss::OBSERVATION_SCHEMA,
        ),
        kind(
            "rmon_protocol",
            "rmon show protocols",
            crate::rmon::RMON_PROTOCOL_SCHEMA,
        ),
        kind(
            "rmon_host",
            "rmon show hosts",
            crate::rmon::RMON_HOST_SCHEMA,
        ),
        kind(
            "rmon_pair",
            "rmon show matrix, rmon show topn",
            crate::rmon::RMON_PAIR_SCHEMA,
        ),
        kind("result", "stack run", crate::results::RESULT_SCHEMA),
        kind("check", "doctor", crate::check::CHECK_SCHEMA),
        kind("component", "stack list", crate::listed::COMPONENT_SCHEMA),
        kind("cost", "stack bench", crate::listed::COST_SCHEMA),
        kind(
            "sensor_flow",
            "sensor flows",
            crate::listed::SENSOR_FLOW_SCHEMA,
        ),
    ];
    let said = SAID_KINDS.iter();
    all.extend(said.map(|(name, schema)| kind(*name, "log", schema_of_events(schema))));
    all
}

record! {
    /// Fields of [`KindRow`].
    KIND, KIND_SCHEMA for KindRow as it:
    kind Text "KIND" 1 = Symbol(it.0.name), "name of the kind of record";
    from Text "FROM" 1 = Symbol(it.0.from), "commands that write it";
    fields Unsigned "FIELDS" 1 = it.0.schema.len() as u64, "number of its fields";
}

/// A kind of record, as a record.
#[derive(Clone, Copy, Debug)]
pub struct KindRow(pub Kind);

record! {
    /// Fields of [`FieldRow`].
    FIELD, FIELD_SCHEMA for FieldRow<'_> as it {
        let field = it.field;
    }:
    field Text "FIELD" 1 = Symbol(field.name), "name in JSON and CSV";
    value Text "TYPE" 1 = Symbol(field.kind.name()), "type of its values";
    unit Text "UNIT" 2 = Symbol(field.unit.name()), "unit of numbers";
    meaning Text "MEANING" 1 = field.help, "what it says";
    zeek Text "ZEEK" 3 = it.zeek, "name in Zeek's log of such records, if it has one";
    eve Text "EVE" 4 = it.eve, "name in Suricata's EVE log, if it has one";
}

/// A field, as a record.
#[derive(Clone, Copy, Debug)]
pub struct FieldRow<'a> {
    /// The field.
    pub field: &'static crate::schema::Field,
    /// Its name in Zeek's logs.
    pub zeek: Option<&'a str>,
    /// Its name in EVE.
    pub eve: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_fields() {
        let all = kinds();
        for (at, kind) in all.iter().enumerate() {
            assert!(!kind.schema.is_empty(), "{}", kind.name);
            assert!(
                all[..at].iter().all(|other| other.name != kind.name),
                "{}",
                kind.name
            );
        }
    }
}
