//! What goes into a topic comes out of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::Value;

use crate::broker::{Broker, missing};
use crate::process::{Running, command, good, lines, number, rows, run};
use crate::skipped::skipped;
use crate::wait::wait_until;

/// A capture of so many flows, in a folder.
pub(crate) fn capture(folder: &Path, flows: u32) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command
        .current_dir(folder)
        .args(["generate", "small", "-q", "--seed", "3", "-w", "all.pcap"]);
    let made = command
        .args(["--flows", &flows.to_string()])
        .output()
        .unwrap();
    assert!(made.status.success());
}

/// Lines in order, so that those of two files can be compared.
pub(crate) fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable();
    lines
}

/// The options that say where a topic is, as anybody reaches it.
pub(crate) fn place(broker: &Broker, topic: &str) -> String {
    format!("kafka = \"{}\", topic = {topic}, plain = yes", broker.plain)
}

/// Sends a record of each packet, and writes the same to `sent.json`.
pub(crate) fn packets_to(place: &str) -> String {
    format!("packets output {{ file = sent.json }} output {{ {place} }}")
}

/// Takes records to a file.
pub(crate) fn to_file(place: &str, more: &str, file: &str) -> String {
    format!("input {{ {place}, group = g, type = record, {more} }} - output {{ file = {file} }}")
}

/// Over all partitions: `before + received + lost`, of who had each last.
pub(crate) fn account(results: &[&[Value]]) -> u64 {
    let rows = results.iter().flat_map(|results| rows(results));
    let mut latest = std::collections::BTreeMap::<String, u64>::new();
    for (partition, row) in rows {
        let sum = ["before", "received", "lost"].map(|column| number(&row, column));
        let known = latest.entry(partition).or_default();
        *known = (*known).max(sum.iter().sum());
    }
    latest.values().sum()
}

fn sum(results: &[Value], column: &str) -> u64 {
    rows(results)
        .iter()
        .map(|(_, row)| number(row, column))
        .sum()
}

#[test]
fn all_records_come_out_of_a_topic_as_they_went_in() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::shared();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 300);
    broker.create("copy", 4);
    // Over TLS, as a user; records of several kinds.
    fs::copy(broker.path("password"), folder.join("password")).unwrap();
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(folder.join("password"), mode).unwrap();
    let place = format!(
        "kafka = \"{}\", topic = copy, user = sensor, password = password, keys = \"{}\"",
        broker.secure,
        broker.keys().display()
    );
    let stack = format!("flows output {{ file = sent.json }} output {{ {place} }}");
    good(&run(folder, &["-r", "all.pcap", "-e", &stack]));
    let stack = packets_to(&place).replace("sent", "sent2");
    good(&run(folder, &["-r", "all.pcap", "-e", &stack]));

    let stack = to_file(&place, "until = end", "come.json");
    let results = good(&run(folder, &["-e", &stack]));
    let sent = [
        lines(&folder.join("sent.json")),
        lines(&folder.join("sent2.json")),
    ]
    .concat();
    let (sent, come) = (sorted(sent), sorted(lines(&folder.join("come.json"))));
    assert!(
        sent.len() > 3000 && sent == come,
        "{} of {}",
        come.len(),
        sent.len()
    );
    assert_eq!(sum(&results, "received"), sent.len() as u64);
    assert_eq!(sum(&results, "before") + sum(&results, "lost"), 0);
    assert_eq!(rows(&results).len(), 4);

    // Whoever comes later to the same group knows that all was taken.
    let stack = to_file(&place, "until = end", "again.json");
    let results = good(&run(folder, &["-e", &stack]));
    assert_eq!(sum(&results, "received"), 0);
    assert_eq!(sum(&results, "before"), sent.len() as u64);
    // Others take it all, and know each record by its number.
    let stack = to_file(&place, "until = end, numbers = yes", "others.json");
    good(&run(
        folder,
        &["-e", &stack.replace("group = g", "group = h")],
    ));
    let others = lines(&folder.join("others.json"));
    let numbers: BTreeSet<String> = others.iter().map(|line| numbered(line).1).collect();
    assert_eq!(numbers.len(), sent.len());
    let without = others.iter().map(|line| numbered(line).0).collect();
    assert_eq!(sorted(without), sent);
}

/// A line without session and number, and those.
pub(crate) fn numbered(line: &str) -> (String, String) {
    let (rest, numbers) = line.split_once(",\"session\":").unwrap();
    (format!("{rest}}}"), numbers.to_owned())
}

#[test]
fn both_directions_of_a_flow_are_in_one_partition() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::shared();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 300);
    broker.create("directions", 2);
    let place = place(&broker, "directions");
    let start = |file: &str| {
        let stack = to_file(&place, "until = stopped", file);
        Running::start(command(folder, &["-e", &stack]))
    };
    let members = [start("a.json"), start("b.json")];
    wait_until("a partition for each", || {
        members.iter().all(|member| member.partitions() == 1)
    });
    good(&run(folder, &["-r", "all.pcap", "-e", &packets_to(&place)]));
    let sent = lines(&folder.join("sent.json"));
    let come = || ["a.json", "b.json"].map(|file| lines(&folder.join(file)));
    wait_until("all records", || {
        come().iter().map(Vec::len).sum::<usize>() >= sent.len()
    });
    for member in members {
        member.end();
    }
    let come = come();
    assert_eq!(sorted(come.concat()), sorted(sent));
    let flows = come.map(|lines| lines.iter().map(|line| ends(line)).collect::<BTreeSet<_>>());
    assert!(flows.iter().all(|flows| flows.len() > 50));
    assert_eq!(flows[0].intersection(&flows[1]).count(), 0);
}

/// Which flow a record is of, whichever way.
fn ends(line: &str) -> (String, [String; 2]) {
    let record: Value = serde_json::from_str(line).unwrap();
    let mut ends = ["src", "dst"].map(|side| {
        format!(
            "{} {}",
            record[format!("{side}_ip")],
            record[format!("{side}_port")]
        )
    });
    ends.sort();
    (record["proto"].to_string(), ends)
}

#[test]
fn a_broker_that_is_killed_and_comes_back_costs_no_record() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::new();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 1000);
    broker.create("restart", 2);
    let place = place(&broker, "restart");
    let stack = to_file(&place, "numbers = yes", "come.json");
    let taker = Running::start(command(folder, &["-e", &stack]));
    let mut sender = command(folder, &["-r", "-", "-e", &packets_to(&place)]);
    sender.stdin(std::process::Stdio::piped());
    let mut sender = Running::start(sender);
    let bytes = fs::read(folder.join("all.pcap")).unwrap();
    let mut pieces = bytes.chunks(bytes.len() / 40);
    let mut stdin = sender.stdin();
    let come = || lines(&folder.join("come.json"));
    wait_until("the first records", || {
        if come().is_empty()
            && pieces.len() > 20
            && let Some(piece) = pieces.next()
        {
            stdin.write_all(piece).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(250));
        }
        !come().is_empty()
    });
    broker.kill();
    pieces.for_each(|piece| stdin.write_all(piece).unwrap());
    drop(stdin);
    wait_until("a word of it", || sender.said().contains("trying again"));
    broker.start();
    let (output, said) = sender.ended();
    good(&output);
    let sent = lines(&folder.join("sent.json"));
    wait_until("all records", || come().len() >= sent.len());
    let results = taker.end();
    let come = come();
    let numbers: BTreeSet<String> = come.iter().map(|line| numbered(line).1).collect();
    assert_eq!(numbers.len(), come.len(), "none comes twice; {said}");
    let come = come.iter().map(|line| numbered(line).0).collect();
    assert_eq!(sorted(come), sorted(sent.clone()));
    assert_eq!(account(&[&results]), sent.len() as u64);
    assert_eq!(sum(&results, "lost"), 0);
}

#[test]
fn other_programs_read_records_as_json() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::shared();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 300);
    broker.create("texts", 3);
    let place = place(&broker, "texts");
    let stack = packets_to(&format!("{place}, format = json"));
    good(&run(folder, &["-r", "all.pcap", "-e", &stack]));
    let sent = lines(&folder.join("sent.json"));

    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker.plain.to_string());
    config.set("group.id", "others");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut partitions = TopicPartitionList::new();
    for partition in 0..3 {
        let from = partitions.add_partition_offset("texts", partition, Offset::Beginning);
        from.unwrap();
    }
    consumer.assign(&partitions).unwrap();
    let (mut come, mut numbers) = (Vec::new(), BTreeSet::new());
    wait_until("all messages", || {
        while let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message.unwrap();
            come.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
            let headers = message.headers().unwrap().iter();
            let headers =
                headers.map(|header| (header.key.to_owned(), header.value.unwrap().to_vec()));
            numbers.insert(headers.collect::<Vec<_>>());
        }
        come.len() >= sent.len()
    });
    assert_eq!(numbers.len(), sent.len(), "each has a number of its own");
    assert_eq!(sorted(come), sorted(sent));
    // It says so of what it cannot take.
    let taken = Running::start(command(
        folder,
        &["-e", &to_file(&place, "until = end", "none.json")],
    ));
    let (output, said) = taken.ended();
    assert_eq!(sum(&good(&output), "received"), 0);
    assert!(said.contains("are ignored"), "{said}");
}

#[test]
fn a_sensor_publishes_what_its_stacks_make() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::shared();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 300);
    broker.create("sensor", 3);
    let place = place(&broker, "sensor");
    let (text, socket) = (folder.display(), folder.join("sock"));
    let config = format!(
        "socket = {socket:?}\nuser = \"root\"\n[devices.held]\nfiles = [\"{text}/all.pcap\"]\nhold = true\n\
         [stacks.packets]\ndevice = \"held\"\nstack = '''packets output {{ {place} }}'''\n"
    );
    fs::write(folder.join("sensor.toml"), config).unwrap();
    let flowgauge = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flowgauge"));
        command.current_dir(folder).args(words);
        command
    };
    let sensor = Running::start(flowgauge(&["sensor", "run", "--config", "sensor.toml"]));
    wait_until("the sensor is there", || socket.exists());
    let ask = |words: &[&str]| {
        let words = [&["sensor"], words, &["--socket", "sock"]].concat();
        let output = flowgauge(&words).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    ask(&["start", "held"]);
    good(&run(
        folder,
        &[
            "-r",
            "all.pcap",
            "-e",
            "packets output { file = sent.json }",
        ],
    ));
    let sent = lines(&folder.join("sent.json"));
    wait_until("all was read", || {
        ask(&["status", "--json"]).contains("\"ended\"")
    });
    ask(&["stop"]);
    assert!(sensor.ended().0.status.success());
    let results = good(&run(
        folder,
        &["-e", &to_file(&place, "until = end", "come.json")],
    ));
    assert_eq!(sorted(lines(&folder.join("come.json"))), sorted(sent));
    assert_eq!(sum(&results, "before") + sum(&results, "lost"), 0);
}
