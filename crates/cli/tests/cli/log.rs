//! `flowgauge log` in all its formats, over a generated trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command_support::{handles, objects, policy, printed, signal, wait_until};
use serde_json::Value;

/// A folder with a trace of HTTP, and how many transactions it has.
fn trace() -> (tempfile::TempDir, PathBuf, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("web.pcap");
    let name = path.to_str().expect("text");
    printed(&["generate", "web", "--scale", "0.005", "-q", "-w", name]);
    let truth = fs::read_to_string(format!("{name}.truth.json")).expect("truth");
    let truth: Value = serde_json::from_str(&truth).expect("an object");
    let transactions = truth["http"]["transactions"].as_u64().expect("a number");
    assert!(transactions > 100, "{transactions}");
    (folder, path, transactions)
}

fn log(trace: &Path, options: &[&str]) -> String {
    let mut arguments = vec!["log", "-q", "-r", trace.to_str().expect("text")];
    arguments.extend(options);
    printed(&arguments)
}

/// The columns and rows of a log of Zeek's.
fn rows(text: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    let of = |name: &str| -> Vec<&str> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.expect(name).split('\t').skip(1).collect()
    };
    let (fields, types) = (of("#fields"), of("#types"));
    assert_eq!(fields.len(), types.len());
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    for row in &rows {
        assert_eq!(row.len(), fields.len(), "{row:?}");
    }
    (fields, rows)
}

#[test]
fn all_formats_say_the_same() {
    let (folder, trace, transactions) = trace();
    let json = objects(&log(&trace, &["--format", "json", "--flows"]));
    let is_http = |row: &&Value| row["event_type"] == "http";
    let http: Vec<&Value> = json.iter().filter(is_http).collect();
    assert_eq!(http.len() as u64, transactions);
    let flows = json.len() - http.len();
    assert!(flows > 0);

    let uris = |rows: &mut dyn Iterator<Item = String>| -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        rows.for_each(|uri| *counts.entry(uri).or_default() += 1);
        counts
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wanted = uris(&mut http.iter().map(|row| text(&row["uri"])));

    let eve = objects(&log(&trace, &["--format", "eve", "--flows"]));
    assert_eq!(eve.len(), json.len());
    let lines = eve.iter().filter(is_http);
    let mut found = lines.clone().map(|row| text(&row["http"]["url"]));
    assert_eq!(uris(&mut found), wanted);
    let ids: BTreeSet<u64> = eve
        .iter()
        .filter(|row| row["event_type"] == "flow")
        .map(id)
        .collect();
    assert_eq!(ids.len(), flows);
    for line in lines {
        assert!(ids.contains(&id(line)), "{line}");
        assert!(text(&line["timestamp"]).ends_with("+0000"), "{line}");
        assert_eq!(line["proto"], "TCP");
    }

    let logs = folder.path().join("logs");
    let name = logs.to_str().expect("text");
    assert_eq!(
        log(&trace, &["--format", "zeek", "--flows", "-w", name]),
        ""
    );
    let conn = fs::read_to_string(logs.join("conn.log")).expect("conn.log");
    let (_, conn) = rows(&conn);
    assert_eq!(conn.len(), flows);
    let text_of_http = fs::read_to_string(logs.join("http.log")).expect("http.log");
    let (fields, lines) = rows(&text_of_http);
    let at = |name: &str| {
        fields
            .iter()
            .position(|field| *field == name)
            .expect("a column")
    };
    let column = at("uri");
    assert_eq!(
        uris(&mut lines.iter().map(|row| row[column].to_owned())),
        wanted
    );
    let uid = at("uid");
    let known: BTreeSet<&str> = conn.iter().map(|row| row[uid]).collect();
    assert!(lines.iter().all(|row| known.contains(row[uid])));

    let zeek = objects(&log(&trace, &["--format", "zeek-json"]));
    assert!(zeek.iter().all(|row| row["_path"] == "http"));
    assert_eq!(uris(&mut zeek.iter().map(|row| text(&row["uri"]))), wanted);

    let table = log(&trace, &["--format", "table"]);
    assert!(table.starts_with("TIME "), "{table:.60}");
    assert_eq!(table.lines().count() as u64, transactions + 1);
}

/// Each transaction says how many bytes of its connection were sent again so far: those that the components of
/// the paper count, too.
#[test]
fn what_was_sent_again_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("web.pcap");
    let name = path.to_str().expect("text");
    let generate = ["generate", "web", "--scale", "0.005", "-q", "-w", name];
    printed(
        &[
            &generate[..],
            &["--retransmitted", "0.1", "--reordered", "0"],
        ]
        .concat(),
    );
    let stack = concat!(env!("CARGO_MANIFEST_DIR"), "/../../stacks/http.stack");
    let counted = |text: &str| -> BTreeMap<String, u64> {
        let rows = objects(text);
        let of = |row: &Value| {
            let key = format!("{} {} {}", row["src_ip"], row["src_port"], row["depth"]);
            (key, row["retransmitted_bytes"].as_u64().expect("a number"))
        };
        rows.iter().map(of).collect()
    };
    let ours = counted(&log(&path, &["--format", "json"]));
    let theirs = counted(&printed(&["stack", "run", "-q", "-f", stack, "-r", name]));
    assert_eq!(ours.len(), theirs.len());
    assert!(theirs.values().filter(|bytes| **bytes > 0).count() > 100);
    for (key, bytes) in &theirs {
        assert_eq!(ours.get(key), Some(bytes), "{key}");
    }
}

fn id(line: &Value) -> u64 {
    line["flow_id"].as_u64().expect("a number")
}

#[test]
fn several_cores_find_the_same() {
    let (_folder, trace, _) = trace();
    let sorted = |workers: &str| {
        let text = log(
            &trace,
            &["--format", "json", "--flows", "--workers", workers],
        );
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let one = sorted("1");
    for workers in ["2", "3"] {
        let others = sorted(workers);
        assert_eq!(one.len(), others.len());
        for (line, other) in one.iter().zip(&others) {
            assert_eq!(line, other);
        }
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_said_before_anything_is_read() {
    let (folder, trace, _) = trace();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("room");
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(["log", "--format", "zeek", "-r"])
        .arg(&trace)
        .arg("-w")
        .arg(file.join("logs"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot create") && said.contains("hint: check the path"),
        "{said}"
    );
}

/// Every body is in a file of its own, which its record names.
#[test]
fn files_are_written_and_their_digests_are_theirs() {
    use md5::{Digest, Md5};

    let (folder, trace, _) = trace();
    let out = folder.path().join("files");
    let name = out.to_str().expect("text");
    let options = [
        "--format",
        "json",
        "--digests",
        "md5,sha256",
        "--extract-files",
        name,
    ];
    let text = log(&trace, &options);
    let all = objects(&text);
    let files: Vec<&Value> = all
        .iter()
        .filter(|row| row["event_type"] == "file")
        .collect();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or(0);
    let mut bodies: Vec<u64> = Vec::new();
    for row in all.iter().filter(|row| row["event_type"] == "http") {
        bodies.extend([
            number(row, "request_body_bytes"),
            number(row, "response_body_bytes"),
        ]);
    }
    bodies.retain(|&bytes| bytes > 0);
    let mut sizes: Vec<u64> = files.iter().map(|row| number(row, "bytes")).collect();
    bodies.sort_unstable();
    sizes.sort_unstable();
    assert!(sizes.len() > 50 && sizes == bodies);
    for row in &files {
        let bytes =
            fs::read(out.join(row["extracted"].as_str().expect("a name"))).expect("it is there");
        assert_eq!(number(row, "extracted_bytes"), bytes.len() as u64);
        let digest: String = Md5::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(row["md5"], digest.as_str(), "{row}");
        assert!(row["sha256"].is_string() && row["sha1"].is_null());
    }
    let count = fs::read_dir(&out).expect("a folder").count();
    assert_eq!(count, files.len());

    // Again: nothing is written over, and several threads write as one does.
    let again = log(&trace, &[&options[..], &["--workers", "2"]].concat());
    let mut names: Vec<String> = Vec::new();
    for row in objects(&again)
        .iter()
        .filter(|row| row["event_type"] == "file")
    {
        names.push(row["extracted"].as_str().expect("a name").to_owned());
    }
    assert!(names.iter().all(|name| name.ends_with("-2")) && names.len() == files.len());
    assert_eq!(
        fs::read_dir(&out).expect("a folder").count(),
        2 * files.len()
    );

    // The same in the formats of others.
    let eve = objects(&log(&trace, &["--format", "eve", "--files"]));
    let infos: Vec<&Value> = eve
        .iter()
        .filter(|row| row["event_type"] == "fileinfo")
        .collect();
    assert_eq!(infos.len(), files.len());
    assert!(
        infos
            .iter()
            .all(|row| row["fileinfo"]["state"] == "CLOSED" && row["http"]["url"].is_string())
    );
    let zeek = folder.path().join("zeek");
    fs::create_dir(&zeek).expect("a folder");
    let zeek_name = zeek.to_str().expect("text");
    log(
        &trace,
        &["--format", "zeek", "--digests", "sha1", "-w", zeek_name],
    );
    // A file has the same identifier in both logs.
    let column = |log: &str, name: &str| -> Vec<String> {
        let text = fs::read_to_string(zeek.join(log)).expect("a log");
        let (fields, lines) = rows(&text);
        let at = fields.iter().position(|field| *field == name);
        let at = at.expect("a column");
        lines.iter().map(|row| row[at].to_owned()).collect()
    };
    let fuids = column("files.log", "fuid");
    assert_eq!(fuids.len(), files.len());
    let mut named = column("http.log", "resp_fuids");
    named.extend(column("http.log", "orig_fuids"));
    named.retain(|fuid| fuid != "-");
    let set = |all: &[String]| all.iter().cloned().collect::<BTreeSet<String>>();
    assert_eq!(set(&named), set(&fuids));
    assert_eq!(set(&fuids).len(), fuids.len());
}

/// Limits hold, links are not followed, and what cannot be written is said.
#[test]
fn what_is_written_has_bounds() {
    let (folder, trace, _) = trace();
    let out = folder.path().join("files");
    let name = out.to_str().expect("text");
    let options = ["--format", "json", "--extract-files", name];
    let first = objects(&log(&trace, &options));
    let names: Vec<&str> = first
        .iter()
        .filter_map(|row| row["extracted"].as_str())
        .collect();
    fs::remove_dir_all(&out).expect("removed");
    fs::create_dir(&out).expect("a folder");
    // A trap.
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    std::os::unix::fs::symlink(&victim, out.join(names[0])).expect("a link");
    let limits = ["--file-limit", "100", "--extract-limit", "1000"];
    let rows = objects(&log(&trace, &[&options[..], &limits].concat()));
    assert_eq!(fs::read(&victim).expect("it is there"), b"precious");
    let written: Vec<u64> = rows
        .iter()
        .filter_map(|row| row["extracted_bytes"].as_u64())
        .collect();
    assert!(written.iter().all(|&bytes| bytes <= 100));
    assert_eq!(written.iter().sum::<u64>(), 1000);
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
    let entries = fs::read_dir(&out)
        .expect("a folder")
        .map(|entry| entry.expect("an entry"));
    let sizes = entries
        .filter(is_file)
        .map(|entry| entry.metadata().expect("known").len());
    assert_eq!(sizes.sum::<u64>(), 1000);
    // A folder that cannot be.
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args([
            "log",
            "-q",
            "-r",
            trace.to_str().expect("text"),
            "--extract-files",
        ])
        .arg(victim.join("folder"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("cannot make the folder"),
        "{said}"
    );
}

#[test]
fn nothing_of_what_a_policy_takes_out_is_anywhere() {
    let (folder, trace, transactions) = trace();
    let open = objects(&log(&trace, &["--format", "json", "--flows"]));
    let mut secrets: BTreeSet<String> = BTreeSet::new();
    for row in &open {
        for name in ["src_ip", "dst_ip", "host", "uri", "user_agent", "referrer"] {
            let text = row[name].as_str().filter(|text| text.len() > 4);
            secrets.extend(text.map(str::to_owned));
        }
    }
    assert!(secrets.len() > 20, "{secrets:?}");
    let policy = policy(folder.path(), "web.toml");
    for format in ["json", "eve", "zeek", "table"] {
        let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
            .args(["log", "--format", format, "--flows", "--stats", "-r"])
            .arg(&trace)
            .arg("--anonymize")
            .arg(&policy)
            .output()
            .expect("it runs");
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{said}");
        for secret in &secrets {
            assert!(!said.contains(secret.as_str()), "{format}: {secret}");
        }
        if format == "json" {
            let rows = objects(&String::from_utf8_lossy(&output.stdout));
            let http = rows.iter().filter(|row| row["event_type"] == "http");
            assert_eq!(http.count() as u64, transactions);
            assert_eq!(rows.len(), open.len());
        }
    }
}

#[test]
fn flows_say_what_is_spoken_and_for_which_application() {
    let (folder, trace, _) = trace();
    let open = objects(&log(&trace, &["--format", "json"]));
    let host = open[0]["host"].as_str().expect("a host").to_owned();
    let table = folder.path().join("applications");
    fs::write(&table, format!("{host}  Our shop\n")).expect("room");
    let table = table.to_str().expect("text");
    let trace = trace.to_str().expect("text");
    let flows = ["flows", "-q", "-r", trace, "--json", "--classify"];
    let with = |more: &[&str]| objects(&printed(&[&flows, more].concat()));
    let rows = with(&["--applications", table]);
    assert!(!rows.is_empty());
    let ours: BTreeSet<&str> = open
        .iter()
        .filter(|row| row["host"] == host.as_str())
        .filter_map(|row| row["flow_id"].as_str())
        .collect();
    for row in &rows {
        let id = row["flow_id"].as_str().expect("text");
        if row["app"] == "Our shop" {
            assert_eq!(row["app_by"], "name");
        }
        if ours.contains(id) && row["app"].is_null() {
            panic!("{row}");
        }
    }
    let spoken = rows.iter().filter(|row| row["app_proto_by"] == "content");
    assert!(spoken.count() > 10);
    let groups = with(&["--applications", table, "--by", "app", "--sum", "flows"]);
    let shop = groups.iter().find(|row| row["app"] == "Our shop");
    let count = rows.iter().filter(|row| row["app"] == "Our shop").count();
    assert_eq!(shop.expect("a group")["flows"], count);

    fs::write(table, "no-application\n").expect("room");
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(flows)
        .args(["--applications", table])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(":1: expected a name of hosts"), "{said}");
}

#[test]
fn a_hangup_ends_no_log_and_moved_files_are_begun_anew() {
    let (folder, trace, transactions) = trace();
    let path = folder.path().join("eve.json");
    let moved = folder.path().join("eve.json.1");
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(["log", "-q", "--format", "eve", "-r", "-", "-w"])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let bytes = fs::read(&trace).expect("a trace");
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(first).expect("it reads");
    wait_until("something is written", || {
        assert!(child.try_wait().expect("a child").is_none());
        fs::metadata(&path).is_ok_and(|meta| meta.len() > 0)
    });
    fs::rename(&path, &moved).expect("it is there");
    signal(&child, "-HUP");
    // It looks now and then, with what it reads.
    for part in rest.chunks(rest.len() / 100) {
        input.write_all(part).expect("it reads on");
        let mut tries = 0;
        while !path.exists() && tries < 50 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            tries += 1;
        }
    }
    drop(input);
    assert!(child.wait().expect("a child").success());
    let lines = |path: &Path| fs::read_to_string(path).expect("text").lines().count() as u64;
    assert_eq!(lines(&path) + lines(&moved), transactions);
}

#[test]
fn a_hangup_ends_a_capture_and_leaves_a_whole_file() {
    let (folder, trace, _) = trace();
    let path = folder.path().join("out.pcap");
    // Under `nohup` it would ignore the signal, as it ought to.
    let mut child = Command::new("env")
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_flowgauge")])
        .args(["capture", "-r", "-", "-w"])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let bytes = fs::read(&trace).expect("a trace");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&bytes[..24]).expect("it reads");
    // It handles signals before it makes the file.
    handles(&child, 1);
    wait_until("the file is there", || {
        assert!(child.try_wait().expect("a child").is_none());
        path.exists()
    });
    let _ = input.write_all(&bytes[24..]);
    signal(&child, "-HUP");
    let output = child.wait_with_output().expect("a child");
    drop(input);
    assert_eq!(output.status.code(), Some(0), "{}", output.status);
    // As much as was said is in it.
    let said = String::from_utf8_lossy(&output.stderr);
    let delivered = said
        .split_once(" packets received, ")
        .and_then(|(_, rest)| rest.split_once(" delivered"));
    let packets = printed(&["packets", "-q", "-r", path.to_str().expect("text")]);
    assert_eq!(
        delivered.expect("a ledger").0,
        packets.lines().count().to_string()
    );
}
