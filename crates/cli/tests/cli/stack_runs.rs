//! What stacks do when they run: results, names of files, threads, ends; commands as stacks.

use std::fs;

use crate::stack_support::*;
use serde_json::Value;

#[test]
fn cooked_tracked_and_chunked_things_are_the_same_on_several_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "loss", "150");
    for stack in [
        "cook { 1000 } packets { interface = x } output { fields = \"src_ip, src_port, seq, payload_bytes\" }",
        "track_web packets output { fields = \"time, src_ip, src_port, seq\" }",
        "flows where { \"bytes > 10k or retransmitted > 0\" } output",
    ] {
        let one = sorted(folder, stack, &trace, "1");
        assert!(one.len() > 5, "{stack}: {}", one.len());
        assert_eq!(one, sorted(folder, stack, &trace, "2"), "{stack}");
    }
}

#[test]
fn records_are_matched_on_several_threads_as_on_one_whatever_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "zoo", "60");
    for stack in [
        "packets matcher { key = ttl, way = same } output",
        "packets matcher { key = \"src_ip, ip_id\" } output",
        "packets matcher { key = \"src_ip, dst_ip, src_port, dst_port\" } output",
    ] {
        let one = sorted(folder, stack, &trace, "1");
        assert!(one.len() > 60, "{stack}");
        assert_eq!(one, sorted(folder, stack, &trace, "2"), "{stack}");
    }
    // What has no address has no key: the frames of LLDP, say, are no two sightings of one packet.
    let stack = "packets matcher { key = ip_id } output";
    for row in sorted(folder, stack, &trace, "1") {
        let row: Value = serde_json::from_str(&row).expect("an object");
        let packet = row.get("request").filter(|it| !it.is_null());
        let packet = packet.or(row.get("reply")).expect("one of them");
        assert!(!packet["ip_id"].is_null(), "{row}");
    }
}

#[test]
fn groups_say_of_which_interval_they_are_and_packets_are_in_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "zoo", "60");
    let mut expected: std::collections::BTreeMap<String, u64> = Default::default();
    let packets = flowgauge(folder, &["packets", "-q", "--json", "-r", &trace]);
    for row in rows(&String::from_utf8(packets.stdout).expect("text")) {
        let time = row["time"].as_str().expect("a time");
        let second = format!("{}.000000000Z", &time[..19]);
        *expected.entry(second).or_default() += 1;
    }
    assert!(expected.len() > 2);
    let stack = "packets aggregate { by = ether_type, interval = 1s } output";
    let mut found: std::collections::BTreeMap<String, u64> = Default::default();
    for row in sorted(folder, stack, &trace, "1") {
        let row: Value = serde_json::from_str(&row).expect("an object");
        let interval = row["interval"].as_str().expect("a time").to_owned();
        *found.entry(interval).or_default() += row["records"].as_u64().expect("a number");
    }
    assert_eq!(found, expected);
}

#[test]
fn names_of_fields_are_checked_where_the_records_are_known() {
    let folder = tempfile::tempdir().expect("a folder");
    for stack in [
        "flows distinct { nonsense } output",
        "flows matcher { \"src_ip, nonsense\" } output",
        "packets matcher { ip_id } distinct { request } output",
        "flows output { fields = \"src_ip, nonsense\" }",
        "transactions distinct { nonsense } output",
        "transactions matcher { \"src_ip, nonsense\" } output",
        "transactions output { fields = nonsense }",
    ] {
        let output = flowgauge(folder.path(), &["stack", "check", "-e", stack]);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stack}: {messages}");
        // (A request is an object.)
        let expected = match stack.contains("{ request }") {
            true => "the field request cannot be used here",
            false => "the records have no field",
        };
        assert!(messages.contains(expected), "{stack}: {messages}");
        assert!(messages.contains("hint: "), "{stack}: {messages}");
        assert!(!messages.contains("mean request"), "{stack}: {messages}");
    }
}

/// Records of HTTP have a host, those of flows have none.
#[test]
fn a_record_without_a_field_holds_no_value_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "web", "200");
    let of = |rest: &str| -> Vec<Value> {
        let stack = format!("transactions {{ flows = yes }} {rest}");
        let rows = sorted(folder, &stack, &trace, "1");
        rows.iter()
            .map(|row| serde_json::from_str(row).expect("an object"))
            .collect()
    };
    let whole = of("output");
    let shown = of("output { fields = \"event_type, host\" }");
    let count = |rows: &[Value], kind: &str| {
        let is = |row: &&Value| row["event_type"] == kind;
        rows.iter().filter(is).count()
    };
    for kind in ["http", "flow"] {
        assert!(count(&shown, kind) > 0, "{kind}");
        assert_eq!(count(&shown, kind), count(&whole, kind), "{kind}");
    }
    for row in &shown {
        assert_eq!(
            row.get("host").is_some(),
            row["event_type"] == "http",
            "{row}"
        );
    }
    let hosts: std::collections::BTreeSet<String> =
        whole.iter().map(|row| row["host"].to_string()).collect();
    let different = of("distinct { host } output");
    assert_eq!(different.len(), hosts.len());
    // Without a host there is no key.
    let matched = of("matcher { key = host, way = same } output");
    assert!(!matched.is_empty());
    let is_http = |row: &&Value| {
        [&row["request"], &row["reply"]]
            .iter()
            .all(|it| it.is_null() || it["event_type"] == "http")
    };
    assert!(matched.iter().all(|row| is_http(&row)));
}

#[test]
fn what_is_absurdly_long_is_refused_briefly() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(
        folder.join("name.stack"),
        format!("[stack]\n{}\n", "a".repeat(1 << 20)),
    )
    .expect("a file");
    let pattern = "x".repeat(3 << 20);
    fs::write(
        folder.join("pattern.stack"),
        format!("[stack]\nsearch {{ {pattern} }} count\n"),
    )
    .expect("a file");
    for file in ["name.stack", "pattern.stack"] {
        let output = flowgauge(folder, &["stack", "check", file]);
        assert_eq!(output.status.code(), Some(2), "{file}");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(messages.contains("error:"), "{file}");
        assert!(messages.len() < 2 << 20, "{file}: {}", messages.len());
    }
}

#[test]
fn fmt_in_place_keeps_permissions_links_and_other_files() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let real = folder.join("real.stack");
    fs::write(&real, "[stack]\n   count\n").expect("a file");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::write(folder.join("link.stack.new"), "somebody's").expect("a file");
    symlink("real.stack", folder.join("link.stack")).expect("a link");
    let output = flowgauge(folder, &["stack", "fmt", "-i", "link.stack"]);
    assert!(output.status.success());
    let link = fs::symlink_metadata(folder.join("link.stack")).expect("it is there");
    assert!(link.is_symlink());
    let mode = fs::metadata(&real)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&real).expect("text"), "[stack]\ncount\n");
    let other = fs::read_to_string(folder.join("link.stack.new")).expect("text");
    assert_eq!(other, "somebody's");
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), 3);
}

#[test]
fn watch_has_a_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "zoo", "10");
    let run = |watch: &str| {
        let arguments = ["stack", "run", "-q", watch, "-e", "count", "-r", &trace];
        flowgauge(folder, &arguments).status.code()
    };
    assert_eq!(run("--watch=18446744073709551615"), Some(2));
    assert_eq!(run("--watch=86400"), Some(0));
}

#[test]
fn commands_do_what_the_stacks_do_that_they_show() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let file = generate(folder, "mix", "300");
    for command in [
        &["flows"][..],
        &[
            "flows",
            "--csv",
            "--idle-timeout",
            "tcp=2,udp=1",
            "--community-id-seed",
            "7",
        ],
        &[
            "flows",
            "--by",
            "src_ip/24,dst_port",
            "--sum",
            "packets",
            "--top",
            "3",
        ],
        &[
            "flows",
            "--checksums",
            "verify",
            "--overlap-policy",
            "windows",
            "--max-flows",
            "50",
        ],
        &["streams"],
        &["streams", "--gaps", "--csv"],
        &["streams", "--count"],
        &[
            "streams",
            "--hash",
            "--mode",
            "strict",
            "--host-policy",
            "linux",
        ],
        &[
            "streams",
            "--counters",
            "--cutoff",
            "10K",
            "--cutoff-direction",
            "client:1K",
            "--cutoff-class",
            "2K:udp or port 443",
            "--cutoff-class",
            "0:host 10.16.0.1",
            "--priority",
            "2:tcp",
            "--chunk",
            "4K",
            "--overlap",
            "16",
            "--flush-timeout",
            "0.25",
            "--memory",
            "32M",
        ],
    ] {
        let (by_command, by_stack) = both(folder, command, &[&file]);
        assert!(by_command.lines().count() > 0, "{command:?}");
        assert_eq!(by_command, by_stack, "{command:?}");
    }
}

#[test]
fn without_options_a_command_shows_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["flows", "streams"] {
        let shown = flowgauge(folder.path(), &[command, "--show-stack"]);
        let file = fs::read(stacks().join(format!("{command}.stack"))).expect("it is there");
        assert_eq!(
            String::from_utf8_lossy(&shown.stdout),
            String::from_utf8_lossy(&file)
        );
    }
}

#[test]
fn what_match_shows_runs_as_the_command_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "small", "200");
    fs::write(
        folder.join("words.txt"),
        "river\n# nothing\ncontent:\"a\"; sid:9\n",
    )
    .expect("room");
    for options in [
        ["-e", "gauge", "-e", "\"|72|iver\"", "--first"].as_slice(),
        &["-f", "words.txt", "--count", "--ignore-case"],
        &["-e", "/a", "-f", "words.txt", "--fixed-strings", "-m", "30"],
        &[
            "-e",
            "gauge",
            "-e",
            "\"|72|iver\"",
            "--cutoff",
            "200",
            "--cutoff-direction",
            "server:100",
            "--cutoff-class",
            "1K:udp or port 443",
            "--cutoff-class",
            "0:host 10.16.0.1",
            "--mode",
            "strict",
            "--host-policy",
            "linux",
        ],
    ] {
        let command = ["match", "-q", "-r", &trace, "--matcher", "aho-corasick"];
        let expected = flowgauge(folder, &[&command, options].concat());
        assert!(rows(&String::from_utf8_lossy(&expected.stdout)).len() > 1);
        let shown = flowgauge(folder, &[&command, options, &["--show-stack"]].concat());
        fs::write(folder.join("shown.stack"), &shown.stdout).expect("room");
        let file = folder.join("shown.stack").display().to_string();
        let ran = flowgauge(folder, &["stack", "run", "-q", "-f", &file, "-r", &trace]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&ran.stderr), "", "{}", text(&shown.stdout));
        assert_eq!(text(&ran.stdout), text(&expected.stdout));
    }
}

#[test]
fn a_stack_that_has_enough_writes_what_it_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "small", "2000");
    let text =
        "match { pattern = gauge, matcher = aho-corasick, max_matches = 5 } - thread - output";
    for workers in ["1", "3"] {
        let arguments = [
            "stack",
            "run",
            "-r",
            &trace,
            "-e",
            text,
            "--workers",
            workers,
        ];
        let output = flowgauge(folder, &arguments);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages}");
        assert_eq!(rows(&String::from_utf8_lossy(&output.stdout)).len(), 5);
        let found = "5 matches of 1 pattern; stopped there (max_matches)";
        assert!(messages.contains(&format!("\n{found}\n")), "{messages}");
    }
    let nothing = flowgauge(
        folder,
        &["stack", "run", "-r", &trace, "-e", "match output"],
    );
    let messages = String::from_utf8_lossy(&nothing.stderr);
    assert!(messages.contains("there is nothing to find"), "{messages}");
}

#[test]
fn report_is_the_same_as_a_stack_and_on_several_cores() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "mix", "200");
    let run = |arguments: &[&str]| {
        let output = flowgauge(folder, arguments);
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{messages}");
        assert_eq!(messages, "");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let command = ["report", "-q", "-r", &trace, "--top", "3"];
    for options in [[].as_slice(), &["--json"]] {
        let expected = run(&[&command, options].concat());
        assert!(expected.contains("198.18.0.1"), "{expected}");
        let shown = run(&[&command, options, &["--show-stack"]].concat());
        fs::write(folder.join("shown.stack"), &shown).expect("room");
        for workers in ["1", "3"] {
            // What is shown beside the report says how many workers there were.
            let of_workers = run(&[&command, options, &["--workers", workers]].concat());
            assert_eq!(of_workers, expected);
            let stack = ["stack", "run", "-q", "-f", "shown.stack", "-r", &trace];
            assert_eq!(
                run(&[&stack[..], &["--workers", workers]].concat()),
                expected
            );
        }
        run(&[&command, options, &["-w", "page"]].concat());
        let page = fs::read_to_string(folder.join("page")).expect("text");
        assert_eq!(page, expected);
    }
}

/// Results by key are those of packets that other components select, and the same on several threads.
#[test]
fn results_by_key_are_those_of_the_key_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let file = generate(folder, "late", "200");
    let text = "tcpscan tcpcnxdemux { results = 7, timeout = 1s } < count { as = of_connection } \
                tcpdirdemux { results = 3 } < tcpreseq - count { as = of_direction } > > count";
    let one = results(folder, text, &file, "1");
    assert_eq!(one, results(folder, text, &file, "3"));
    let of = |component: &str| -> Vec<&Value> {
        let is_by_key = |row: &&Value| {
            row["component"] == component
                && row["result"]
                    .as_str()
                    .is_some_and(|it| it.ends_with(", by key"))
        };
        one.iter()
            .filter(is_by_key)
            .map(|row| &row["row"])
            .collect()
    };
    // Half of the flows are connections; one that was silent for a second is two instances.
    let connections = of("of_connection");
    assert!(
        connections[0]["instances"].as_u64() >= Some(100),
        "{connections:?}"
    );
    assert_eq!(
        (&connections[0]["shown"], connections.len()),
        (&7.into(), 8)
    );
    let values: Vec<u64> = connections[1..]
        .iter()
        .filter_map(|row| row["value"].as_u64())
        .collect();
    assert!(values.is_sorted_by(|one, next| one >= next), "{values:?}");
    // Those of directions have both keys in their name, and are parts of those of connections.
    let directions = of("tcpreseq");
    assert_eq!(directions.len(), 4);
    for row in &directions[1..] {
        let name = row["key"].as_str().expect("text");
        let (connection, direction) = name.split_once(", ").expect("two keys");
        assert!(direction == "forth" || direction == "back", "{name}");
        let (low, high) = connection.split_once('-').expect("two endpoints");
        let socket = |text: &str| text.parse::<std::net::SocketAddr>().expect("an endpoint");
        let (low, high) = (socket(low), socket(high));
        assert!(low < high);
        // Without the timeout the bytes of the whole direction are what its stream has.
        let (from, to) = if direction == "forth" {
            (low, high)
        } else {
            (high, low)
        };
        let filter = format!(
            "filter {{ \"src host {} and src port {} and dst host {} and dst port {}\" }} tcpscan \
             tcpcnxdemux {{ timeout = 1s }} < tcpdirdemux < tcpreseq count > >",
            from.ip(),
            from.port(),
            to.ip(),
            to.port()
        );
        let bytes = number(&results(folder, &filter, &file, "1"), "tcpreseq");
        assert!(Some(bytes) >= row["value"].as_u64(), "{bytes} {row}");
        assert!(row["value"].as_u64() > Some(0));
    }
}

/// Tables by key are those of the key's packets alone, also of keys that came again, on any threads.
#[test]
fn tables_by_key_are_those_of_the_key_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let file = generate(folder, "late", "200");
    let text = "tcpscan tcpcnxdemux { results = 4, timeout = 1h } < packet_info { size, as = size } \
                statistics { of = size } start_stop top { by = tcp.flags } > count";
    let one = results(folder, text, &file, "1");
    assert_eq!(one, results(folder, text, &file, "3"));
    let of = |component: &str| -> Vec<&Value> {
        let by_key = |row: &&Value| {
            let result = row["result"].as_str().unwrap_or_default();
            row["component"] == component && result.ends_with(", by key")
        };
        one.iter().filter(by_key).map(|row| &row["row"]).collect()
    };
    let keys = |rows: &[&Value]| -> Vec<String> {
        let mut keys: Vec<String> = rows.iter().map(|row| row["key"].to_string()).collect();
        keys.dedup();
        keys
    };
    let statistics = of("statistics");
    assert_eq!((&statistics[0]["shown"], statistics.len()), (&4.into(), 5));
    // Several rows of a key stand together, and count as one.
    let top = of("top");
    assert!(top.len() > 5, "{top:?}");
    assert_eq!(keys(&top[1..]), keys(&statistics[1..]));
    assert_eq!(keys(&of("start_stop")[1..]), keys(&statistics[1..]));
    let items: Vec<u64> = statistics[1..]
        .iter()
        .filter_map(|row| row["items"].as_u64())
        .collect();
    assert!(items.is_sorted_by(|one, next| one >= next), "{items:?}");
    for row in &statistics[1..] {
        let (one, other) = row["key"]
            .as_str()
            .and_then(|key| key.split_once('-'))
            .expect("two endpoints");
        let socket = |text: &str| text.parse::<std::net::SocketAddr>().expect("an endpoint");
        let (one, other) = (socket(one), socket(other));
        let filter = format!(
            "filter {{ \"tcp and host {} and port {} and host {} and port {}\" }} \
             packet_info {{ size, as = size }} statistics {{ of = size }}",
            one.ip(),
            one.port(),
            other.ip(),
            other.port()
        );
        let alone = results(folder, &filter, &file, "1");
        let alone = alone.iter().find(|row| row["component"] == "statistics");
        let alone = &alone.expect("it has a result")["row"];
        for column in ["count", "sum", "sum2", "max", "min"] {
            assert_eq!(row[column], alone[column], "{column} of {row}");
        }
        assert_eq!(row["items"], alone["count"]);
    }
}

/// Components that write one file name it by the time of what they get; what commands are given is meant
/// as it stands.
#[test]
fn names_of_files_have_the_time_of_the_packets() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "mix", "50");
    for (text, file) in [
        (
            "count { as = n } result_to_file { n, file = \"%Y-n.txt\" }",
            "2023-n.txt",
        ),
        (
            "count { as = n } result_to_file { n, file = \"%Y.txt\", interval = 1s }",
            "2023.txt",
        ),
        ("report { file = \"report-%Y%%\" }", "report-2023%"),
        (
            "transactions logs { file = \"eve-%Y.json\" }",
            "eve-2023.json",
        ),
        (
            "transactions logs { zeek, file = \"logs-%Y\" }",
            "logs-2023/http.log",
        ),
        (
            "tcpscan tcpcnxdemux < count { as = n } result_to_file { n, file = \"%Y-all\" } >",
            "2023-all",
        ),
    ] {
        printed(folder, text, &trace, "2");
        let written = fs::metadata(folder.join(file)).map(|it| it.len());
        assert!(written.is_ok_and(|length| length > 0), "{text}");
    }
    for command in ["report", "log"] {
        let arguments = [command, "-q", "-r", &trace, "-w", "as%Y it stands"];
        assert!(flowgauge(folder, &arguments).status.success());
        let file = folder.join("as%Y it stands");
        fs::remove_file(file).expect(command);
    }
    for (text, said) in [
        (
            "tcpscan tcpcnxdemux < count { as = n } result_to_file { n, file = \"%{key}\" } >",
            "it is one file for all keys",
        ),
        ("report { file = \"%Q\" }", "not a valid"),
        ("report { file = \"none/%Y\" }", "cannot write to none"),
    ] {
        let output = flowgauge(folder, &["stack", "run", "-q", "-e", text, "-r", &trace]);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {messages}");
        assert!(messages.contains(said), "{text}: {messages}");
    }
}

/// Behind a thread results of components before it are those of the same time.
#[test]
fn results_are_the_same_behind_a_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "mix", "300");
    let of = |text: &str, workers: &str| -> Vec<Value> {
        let mut rows = results(folder, text, &trace, workers);
        // What is before the thread is ahead of one behind it that ends the run.
        let others = ["thread", "thread(0)", "thread(1)", "n"];
        rows.retain(|row| others.iter().all(|other| row["component"] != *other));
        rows
    };
    for text in [
        "count { as = n } THREAD bucket { n, 10ms }",
        "udpscan - count { as = udp } THREAD statistics { of = udp, every = 5ms } THREAD bucket { udp, 20ms }",
        "count { as = n } - tcpscan - count { as = tcp } THREAD \
         binary_operation { subtract, of = n, with = tcp, as = others } - bucket { others, 10ms }",
        "count { as = n } THREAD threshold { of = n, threshold = 500, interval = 10ms, then = end } count",
        "top { by = tcp.port, as = ports } THREAD result_to_file { of = ports, file = FILE, interval = 10ms }",
    ] {
        let text = text.replace("FILE", "ports.json");
        let expected = of(&text.replace("THREAD", "-"), "1");
        let file = || fs::read_to_string(folder.join("ports.json")).unwrap_or_default();
        let written = file();
        assert!(!expected.is_empty() || !written.is_empty(), "{text}");
        for workers in ["1", "2"] {
            let found = of(&text.replace("THREAD", "thread"), workers);
            assert_eq!(found, expected, "{text}");
            assert_eq!(file(), written, "{text}");
        }
    }
    // Values of single packets stay behind, and nothing comes back.
    for (text, error) in [
        (
            "packet_info { as = size } thread statistics { of = size }",
            "of: size is on another thread, and has a value for each packet",
        ),
        (
            "bucket { of = n } thread count { as = n }",
            "of: n is on another thread, after this component",
        ),
    ] {
        let output = flowgauge(folder, &["stack", "check", "-e", text]);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{messages}");
        assert!(messages.contains(error), "{messages}");
    }
}

/// What components keep comes out when a threshold ends the run, from all threads.
#[test]
fn a_threshold_that_ends_a_run_loses_no_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "mix", "400");
    for workers in ["1", "3"] {
        let text = "flows - count { as = n } - \
                    threshold { of = n, threshold = 100, interval = 100ms, then = end } - \
                    output { records.json }";
        let results = results(folder, text, &trace, workers);
        let result = |component: &str| number(&results, component);
        let written = fs::read_to_string(folder.join("records.json")).expect("it was written");
        let (flows, lines) = (result("flows"), written.lines().count() as u64);
        assert_eq!(
            (flows, result("n"), result("output")),
            (lines, lines, lines),
            "{workers}"
        );
        assert!(lines > 100, "{lines}");
        // It ended before its input did; whether other threads were faster than the one that ends the run is
        // chance.
        let all = flowgauge(folder, &["flows", "-q", "--json", "-r", &trace]);
        let all = String::from_utf8_lossy(&all.stdout).lines().count() as u64;
        assert!(lines < all || workers == "3", "{lines} of {all}");
        assert!(lines <= all, "{lines} of {all}");
    }
    // Where only packets go to the next thread they end at the same one.
    let text = "tcpscan - count { as = n } - \
                threshold { of = n, threshold = 1000, interval = 10ms, then = end }";
    let counted = |workers: &str| number(&results(folder, text, &trace, workers), "n");
    assert!(counted("1") > 1000);
    assert_eq!(counted("1"), counted("3"));
}

/// The file of a stack needs no -f, in any command, and may have one; what is behind it is a filter where there can be one.
#[test]
fn the_file_of_a_stack_is_a_word_or_an_option() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    generate(folder, "small", "20");
    fs::write(folder.join("x.stack"), "[stack]\ncount\n").expect("room");
    let trace = fs::read_dir(folder).expect("it is there");
    let trace = trace.map(|entry| entry.expect("a name").path());
    let trace = trace.filter(|path| path.extension().is_some_and(|it| it == "pcap"));
    let trace = trace.last().expect("one").display().to_string();
    let ran = |arguments: &[&str]| {
        let output = flowgauge(folder, &[&["stack"], arguments].concat());
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code(), said)
    };
    for stack in [&["x.stack"][..], &["-f", "x.stack"], &["-e", "count"]] {
        for before in [&["check"][..], &["fmt"], &["show"]] {
            let (code, said) = ran(&[before, stack].concat());
            assert_eq!(code, Some(0), "{before:?} {stack:?}: {said}");
        }
        let bench = ["-r", &trace, "--repeat", "1"];
        let (code, said) = ran(&[&["bench"], stack, &bench].concat());
        assert_eq!(code, Some(0), "{stack:?}: {said}");
        let (code, all) = ran(&[&["run"], stack, &["-r", &trace]].concat());
        assert_eq!(code, Some(0), "{stack:?}: {all}");
        let (code, some) = ran(&[&["run"], stack, &["-r", &trace, "less", "1"]].concat());
        assert_eq!(code, Some(0), "{stack:?}: {some}");
        assert_ne!(all, some, "{stack:?}");
    }
    for (arguments, expected) in [
        (&["check"][..], "no stack given"),
        (&["run", "-r", &trace], "no stack given"),
        (
            &["check", "-f", "x.stack", "y.stack"],
            "y.stack: a stack was already given",
        ),
        (
            &["fmt", "-e", "count", "x.stack"],
            "x.stack: a stack was already given",
        ),
    ] {
        let (code, said) = ran(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected) && said.contains("hint: "), "{said}");
    }
}

/// What editors and shells add to a text changes nothing; very many mistakes are counted.
#[test]
fn texts_of_stacks_are_read_as_people_write_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "small", "20");
    let text = |expression: &str| printed(folder, expression, &trace, "1");
    let expected = text("count");
    for expression in [
        "count ",
        " count\n",
        "tcpscan -\n\tcount # all of them",
        "count\r\n",
    ] {
        let found = text(expression);
        assert_eq!(found.lines().count(), 1, "{expression:?}");
        assert!(expression.contains("tcpscan") || found == expected);
    }
    let check = |content: &[u8]| -> (bool, String) {
        fs::write(folder.join("x.stack"), content).expect("room");
        let output = flowgauge(folder, &["stack", "check", "x.stack"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (is_good, said) = check(b"\xef\xbb\xbf[stack]\ncount\n");
    assert!(is_good, "{said}");
    let (is_good, said) = check(b"[stack]\ncount \xff\n");
    assert!(
        !is_good && said.contains("is not UTF-8 text (byte 14)"),
        "{said}"
    );
    let many: String = (0..20_000)
        .map(|number| format!("[x{number}]\na = b\n"))
        .collect();
    let (is_good, said) = check(format!("[stack]\ncount\n{many}").as_bytes());
    assert!(!is_good && said.contains("\nand 19950 more\n"), "{said}");
    let (is_good, said) = check(b"[stack]\nflows where { proto = tcp } count\n");
    let hint = "as its condition in quotes: where { \"proto = ...\" }";
    assert!(!is_good && said.contains(hint), "{said}");
}

/// A stack with `pcap` does with a file what one does that reads it from the command line, clock and all.
#[test]
fn a_source_of_its_own_gives_what_the_command_line_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "mix", "200");
    let other = generate(folder, "late", "100");
    let run = |arguments: &[&str]| -> (Option<i32>, Vec<String>, String) {
        let arguments = [&["stack", "run", "--json"], arguments].concat();
        let output = flowgauge(folder, &arguments);
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect();
        lines.retain(|line| !line.contains("\"component\":\"pcap\""));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), lines, said)
    };
    for stack in [
        "tcpscan tcpcnxdemux { results = 3, timeout = 100ms } < count > count",
        "packets aggregate { by = dst_port, sum = ip_length, interval = 50ms } output { fields = \"dst_port, ip_length\" }",
        "count { as = n } bucket { n, 10ms }",
        "thread packets aggregate { by = dst_port, sum = ip_length, interval = 50ms } output",
        "flows { active_timeout = 1s } output",
    ] {
        let (code, expected, said) = run(&["-e", stack, "-r", &trace]);
        assert_eq!(code, Some(0), "{said}");
        let own = format!("pcap {{ {trace} }} {stack}");
        let (code, found, said) = run(&["-e", &own]);
        assert_eq!(code, Some(0), "{said}");
        assert!(expected.len() > 1, "{stack}: {expected:?}");
        assert_eq!(found, expected, "{stack}");
    }
    let two = format!(
        "[stack a] pcap {{ {trace}, filter = tcp }} count\n[stack b] pcaphandler {{ {other} }} count"
    );
    fs::write(folder.join("two.stack"), two).expect("room");
    let (_, found, _) = run(&["-f", "two.stack"]);
    let counted = |file: &str, filter: &str| {
        let (_, lines, _) = run(&["-e", "count", "-r", file, filter]);
        rows(&lines.join("\n"))[0]["value"].clone()
    };
    let values: Vec<Value> = rows(&found.join("\n"))
        .iter()
        .map(|row| row["value"].clone())
        .collect();
    assert_eq!(
        values,
        [counted(&trace, "tcp"), counted(&other, "ip or ip6")]
    );
    // What could be read was, and what is damaged is said.
    let bytes = fs::read(folder.join(&trace)).expect("it is there");
    fs::write(folder.join("cut.pcap"), &bytes[..bytes.len() / 2]).expect("room");
    let (code, found, said) = run(&["-e", "pcap { cut.pcap } - count"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("cut.pcap") && said.contains("hint:"),
        "{said}"
    );
    let (_, expected, _) = run(&["-e", "count", "-r", "cut.pcap"]);
    assert_eq!(found, expected);
    for (stack, error) in [
        ("pcap count", "takes a file or an interface"),
        ("pcap { none.pcap } count", "none.pcap"),
        ("count pcap { x.pcap } count", "pcap"),
    ] {
        let (code, _, said) = run(&["-e", stack]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(error), "{said}");
    }
}
