//! Tests of groups.

use flowgauge_stream::StreamIdentity;

use super::*;
use crate::json::JsonEncoder;
use crate::schema::record;
use crate::stream::{STREAM_SCHEMA, StreamRow};

fn row(source: [u8; 4], port: u16, bytes: u64) -> StreamRow<'static> {
    StreamRow {
        identity: StreamIdentity {
            flow_id: 1,
            source: (Address::v4(source), 50_000),
            destination: (Address::v4([198, 51, 100, 7]), port),
            version: 4,
            protocol: 6,
            ..StreamIdentity::default()
        },
        bytes,
        missing_bytes: 1,
        state: "fin",
        ..StreamRow::default()
    }
}

fn spec(keys: &[&str], sums: &[&str]) -> Result<AggregateSpec, AggregateError> {
    let owned =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    AggregateSpec::new(STREAM_SCHEMA, &owned(keys), &owned(sums), "streams")
}

fn lines(aggregator: &Aggregator, top: Option<usize>) -> Vec<String> {
    let mut encoder = JsonEncoder::default();
    let mut out = Vec::new();
    for row in aggregator.rows(top) {
        encoder.encode(&row, &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_is_read_again_needs_no_more_fields() {
    let schema = || {
        let spec = spec(&["dst_port", "src_ip/24"], &["bytes", "missing_bytes"]).unwrap();
        Aggregator::new(spec).schema()
    };
    assert!(core::ptr::eq(schema(), schema()));
    let other = spec(&["dst_port"], &["bytes", "missing_bytes"]).unwrap();
    assert_eq!(Aggregator::new(other).schema().len(), 4);
}

#[test]
fn groups_come_largest_first_with_keys_in_the_order_given() {
    let spec = spec(&["dst_port", "src_ip/24"], &["bytes", "missing_bytes"]).unwrap();
    let mut aggregator = Aggregator::new(spec);
    aggregator.add(&row([192, 0, 2, 1], 80, 10));
    aggregator.add(&row([192, 0, 2, 2], 80, 20));
    aggregator.add(&row([192, 0, 3, 2], 443, 500));
    assert_eq!(
        lines(&aggregator, None),
        [
            r#"{"dst_port":443,"src_ip/24":"192.0.3.0/24","streams":1,"bytes":500,"missing_bytes":1}"#,
            r#"{"dst_port":80,"src_ip/24":"192.0.2.0/24","streams":2,"bytes":30,"missing_bytes":2}"#,
        ]
    );
    assert_eq!(lines(&aggregator, Some(1)).len(), 1);
    let names: Vec<&str> = aggregator.schema().iter().map(|f| f.name).collect();
    assert_eq!(
        names,
        ["dst_port", "src_ip/24", "streams", "bytes", "missing_bytes"]
    );
}

#[test]
fn unknown_names_are_refused_with_what_there_is() {
    let error = spec(&["dst_prt"], &["bytes"]).unwrap_err();
    assert_eq!(error.hint(), "did you mean dst_port?");
    let error = spec(&["colour"], &["bytes"]).unwrap_err();
    assert_eq!(error.to_string(), "no field \"colour\" to group by");
    assert!(error.hint().contains("src_port, dst_ip"));
    let error = spec(&["src_ip"], &["state"]).unwrap_err();
    assert_eq!(error.to_string(), "no field \"state\" to sum");
    assert!(!error.hint().contains("port"), "{}", error.hint());
    assert!(spec(&["src_ip"], &["src_port"]).is_err());
    assert!(matches!(
        spec(&["src_port/8"], &["bytes"]).unwrap_err(),
        AggregateError::BadPrefix { .. }
    ));
    for (keys, sums) in [
        (&["proto", "proto"], &["bytes", "packets"]),
        (&["proto", "src_ip"], &["bytes", "bytes"]),
    ] {
        let error = spec(keys, sums).unwrap_err();
        assert!(matches!(error, AggregateError::Repeated { .. }));
    }
}

#[test]
fn memory_is_bounded_and_the_large_ones_stay() {
    let spec = spec(&["dst_port"], &["bytes"]).unwrap().with_memory(20_000);
    let mut aggregator = Aggregator::new(spec);
    for port in 0..10_000u16 {
        aggregator.add(&row([192, 0, 2, 1], port, 1));
        aggregator.add(&row([192, 0, 2, 1], 65_000 + port % 3, 1_000));
    }
    let groups = aggregator.groups.len();
    assert!((20..200).contains(&groups), "{groups}");
    let costs = aggregator.groups.keys().map(|key| cost(key, 1));
    assert_eq!(aggregator.bytes, costs.sum::<u64>());
    assert!(aggregator.bytes <= 20_000);
    assert!(aggregator.pruned() > 0);
    let top = lines(&aggregator, Some(3));
    assert!(top.iter().all(|line| line.contains("\"dst_port\":6500")));
}

#[test]
fn merging_adds_up() {
    let spec = spec(&["dst_port"], &["streams"]).unwrap();
    let (mut left, mut right) = (Aggregator::new(spec.clone()), Aggregator::new(spec));
    left.add(&row([192, 0, 2, 1], 80, 1));
    right.add(&row([192, 0, 2, 1], 80, 1));
    right.add(&row([192, 0, 2, 1], 81, 1));
    left.merge(right);
    assert_eq!(
        lines(&left, None),
        [
            r#"{"dst_port":80,"streams":2}"#,
            r#"{"dst_port":81,"streams":1}"#
        ]
    );
}

struct Names(&'static [&'static str]);

record! {
    /// A list of texts.
    NAMES, NAMES_SCHEMA for Names as it:
    names Texts "" 1 = it.0, "";
    bytes Unsigned Bytes "" 1 = 1_u64, "";
}

#[test]
fn lists_of_texts_are_keys() {
    let keys = ["names".to_owned()];
    let sums = ["bytes".to_owned()];
    let spec = AggregateSpec::new(NAMES_SCHEMA, &keys, &sums, "records").unwrap();
    let mut aggregator = Aggregator::new(spec);
    for names in [&["a", "bc"][..], &["ab", "c"], &["a", "bc"], &[]] {
        aggregator.add(&Names(names));
    }
    let lines = lines(&aggregator, None);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].starts_with(r#"{"names":["a","bc"],"records":2,"bytes":2"#),
        "{lines:?}"
    );
}

#[test]
fn each_value_has_its_largest_groups_together() {
    let spec = spec(&["src_ip", "dst_port"], &["bytes"]).unwrap();
    let within = ["dst_port".to_owned()];
    let mut aggregator = Aggregator::new(spec.clone().within(&within).unwrap());
    for (host, port, bytes) in [(1, 80, 5), (2, 80, 9), (3, 80, 7), (1, 443, 8), (2, 443, 1)] {
        aggregator.add(&row([192, 0, 2, host], port, bytes));
    }
    let found = |top| -> Vec<String> {
        let line = |line: &String| line.replace(r#","streams":1"#, "").replace("192.0.2.", "");
        lines(&aggregator, top).iter().map(line).collect()
    };
    assert_eq!(
        found(Some(2)),
        [
            r#"{"src_ip":"2","dst_port":80,"bytes":9}"#,
            r#"{"src_ip":"3","dst_port":80,"bytes":7}"#,
            r#"{"src_ip":"1","dst_port":443,"bytes":8}"#,
            r#"{"src_ip":"2","dst_port":443,"bytes":1}"#,
        ]
    );
    assert_eq!((found(Some(1)).len(), found(None).len()), (2, 5));
    let error = spec.clone().within(&["bytes".to_owned()]).unwrap_err();
    assert_eq!(error.hint(), "there are src_ip, dst_port");
    assert!(
        spec.within(&[within[0].clone(), within[0].clone()])
            .is_err()
    );
}

#[test]
fn means_and_extremes_are_the_same_however_records_are_divided() {
    let names = |list: &[&str]| -> Vec<String> { list.iter().map(|it| (*it).to_owned()).collect() };
    let spec = spec(&["dst_port"], &["bytes"]).unwrap();
    let measured = [Measure::Mean, Measure::Min, Measure::Max];
    let spec = measured.into_iter().try_fold(spec, |spec, measure| {
        spec.measured(measure, &names(&["bytes", "missing_bytes"]))
    });
    let spec = spec.unwrap();
    let amounts = [7, 0, 9, 7 << 40, 3, 2, 7];
    let rows = amounts.map(|bytes| row([192, 0, 2, 1], 80, bytes));
    let mut all = Aggregator::new(spec.clone());
    rows.iter().for_each(|row| all.add(row));
    let whole = lines(&all, None);
    for wanted in [
        "\"bytes\":7696581394460,",
        "\"mean_bytes\":1099511627780",
        "\"mean_missing_bytes\":1",
        "\"min_bytes\":0,",
        "\"max_bytes\":7696581394432,",
    ] {
        assert!(whole[0].contains(wanted), "{wanted} in {whole:?}");
    }
    for cut in 0..=rows.len() {
        let (first, second) = rows.split_at(cut);
        let mut parts = [first, second].map(|rows| {
            let mut part = Aggregator::new(spec.clone());
            rows.iter().for_each(|row| part.add(row));
            part
        });
        let [one, other] = &mut parts;
        one.merge(core::mem::replace(other, Aggregator::new(spec.clone())));
        assert_eq!(lines(one, None), whole, "{cut}");
    }
    let unknown = spec.clone().measured(Measure::Mean, &names(&["state"]));
    let error = unknown.unwrap_err();
    assert_eq!(error.to_string(), "no field \"state\" that has a mean");
}
