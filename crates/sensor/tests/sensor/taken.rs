//! Tables that are forgotten as they are read: all rows come, each once.

use std::os::fd::AsFd as _;

use serde_json::{Map, Value};

use super::*;

type Rows = Vec<Map<String, Value>>;

fn rows(results: &Results, label: &str) -> Rows {
    let mut components = results.components.iter();
    let component = components.find(|it| it.component == label).unwrap();
    component.rows.clone().unwrap_or_default()
}

/// In order of time, without what each worker counts for itself.
fn in_order(mut rows: Rows) -> Rows {
    rows.iter_mut().for_each(|row| drop(row.remove("number")));
    rows.sort_by_cached_key(|row| {
        let time = row.get("time").and_then(Value::as_u64);
        (time, serde_json::to_string(row).unwrap())
    });
    rows
}

fn sum(rows: &Rows, column: &str) -> u64 {
    rows.iter().map(|row| row[column].as_u64().unwrap()).sum()
}

/// Takes a component's rows while the device reads, to its end.
fn take_all(running: &Running, stack: &str, label: &str) -> Rows {
    let client = running.client();
    let flow = client.open("slow", stack, &[]).unwrap();
    let readings = flow.readings();
    let place = flow.component(label).unwrap();
    client.start("slow").unwrap();
    let (mut taken, mut times, mut is_last) = (Vec::new(), 0, false);
    while !is_last {
        let reading = readings.read(place);
        assert_eq!(reading.value, None);
        let results = client.take(flow.number(), label).unwrap();
        assert_eq!(results.components.len(), 1);
        is_last = results.is_last;
        let new = rows(&results, label);
        times += usize::from(!new.is_empty());
        taken.extend(new);
        // It was told of what is there, or was when rows were taken last.
        assert!(reading.rows <= taken.len() as u64, "{reading:?}");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(times > 5, "{times}");
    taken.extend(rows(&client.take(flow.number(), label).unwrap(), label));
    for wrong in ["count", "nothing"] {
        let refused = client.take(flow.number(), wrong);
        assert!(
            matches!(refused, Err(ClientError::Refused(_))),
            "{refused:?}"
        );
    }
    taken
}

#[test]
fn rows_come_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.pcap");
    let mut config = Trace::new(Preset::Mix).with_packets(5_000);
    config.duration = Duration::from_secs(1);
    generate(&config, File::create(&path).unwrap()).unwrap();
    for (workers, (stack, label)) in [1, 2].into_iter().flat_map(|workers| {
        let stacks = [
            (
                "count - bucket { of = count, interval = 10ms, slots = 100k }",
                "bucket",
            ),
            (
                "count hash_sample { range = 1024, samples = 100k }",
                "hash_sample",
            ),
            (
                "count packet_info { size } - statistics { of = packet_info }",
                "statistics",
            ),
        ];
        stacks.map(|stack| (workers, stack))
    }) {
        let tables = format!(
            "[devices.slow]\nfiles = [\"{}\"]\nspeed = \"real\"\nhold = true\nworkers = {workers}\n",
            path.display()
        );
        let running = Running::start(1, &tables);
        let client = running.client();
        let file = File::open(&path).unwrap();
        let device = client.create_device(file.as_fd()).unwrap();
        let whole = client.open(&device, stack, &[]).unwrap();
        // Another flow of the same, which keeps what is taken of the first.
        let other = client.open("slow", stack, &[]).unwrap();
        client.start(&device).unwrap();
        let expected = rows(&last(&whole), label);
        let taken = take_all(&running, stack, label);
        if label == "statistics" {
            for column in ["count", "sum", "sum2"] {
                assert_eq!(sum(&taken, column), sum(&expected, column), "{workers}");
            }
        } else {
            assert!(expected.len() > 50);
            let (taken, expected) = (in_order(taken), in_order(expected.clone()));
            assert_eq!(taken, expected, "{stack}, {workers} workers");
        }
        assert_eq!(in_order(rows(&last(&other), label)), in_order(expected));
    }
}
