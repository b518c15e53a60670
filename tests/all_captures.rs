//! Every capture of the corpora, malformed ones included, through `flows`, `streams`, `report`, `log` and `anonymize`:
//! it ends by itself with a documented exit code, in bounded memory, with a balanced ledger.

mod support;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;

/// No capture here is larger than 30 MB: whatever needs more memory than this grows without bound.
const MEMORY_LIMIT_MB: i64 = 300;

#[test]
fn every_capture_ends_well() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let captures = support::files_below(&corpora, &is_capture);
    assert!(captures.len() > 1000, "only {} captures", captures.len());
    let failures: Vec<String> =
        support::in_parallel(&captures, 2, |capture: &PathBuf| check(capture)).concat();
    let memory = peak_memory_mb();
    support::say(&format!(
        "\nall captures: {} files, {} problems, at most {memory} MB resident\n",
        captures.len(),
        failures.len()
    ));
    for failure in failures.iter().take(100) {
        support::say(&format!("  {failure}\n"));
    }
    assert!(
        failures.is_empty(),
        "{} problems; the first: {}",
        failures.len(),
        failures[0]
    );
    assert!(memory < MEMORY_LIMIT_MB, "a run needed {memory} MB");
}

/// What libpcap must refuse is refused here too, with a message that says why.
#[test]
fn what_must_be_refused_is_refused() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let folder = corpora.join("libpcap/tests");
    let captures = support::files_below(&folder, &|path| path.parent() == Some(folder.as_path()));
    assert!(!captures.is_empty());
    for capture in &captures {
        let outcome = run("flows", &["--json"], capture);
        assert!(
            matches!(outcome.code, Some(1 | 2)),
            "{}: exit {:?}, {}",
            capture.display(),
            outcome.code,
            outcome.stderr
        );
        assert!(
            outcome.stderr.contains("error:") && outcome.stderr.lines().any(|line| line.len() > 30),
            "{}: {:?} explains nothing",
            capture.display(),
            outcome.stderr
        );
    }
}

/// Whether a file is a capture by its first bytes, or by its name where the format has none.
fn is_capture(path: &Path) -> bool {
    let mut first = [0; 8];
    let read = std::fs::File::open(path)
        .and_then(|mut file| file.read(&mut first))
        .unwrap_or(0);
    if read < 4 {
        return named_like_a_capture(path);
    }
    let magic = u32::from_be_bytes([first[0], first[1], first[2], first[3]]);
    matches!(
        magic,
        0xa1b2_c3d4
            | 0xd4c3_b2a1
            | 0xa1b2_3c4d
            | 0x4d3c_b2a1
            | 0xa1b2_cd34
            | 0x34cd_b2a1
            | 0x0a0d_0d0a
    ) || &first == b"snoop\0\0\0"
        || named_like_a_capture(path)
}

fn named_like_a_capture(path: &Path) -> bool {
    let name = path
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let plain = name.trim_end_matches(".gz").trim_end_matches(".zst");
    [".pcap", ".pcapng", ".cap", ".erf", ".snoop", ".ntar"]
        .iter()
        .any(|end| plain.ends_with(end))
}

fn run(command: &str, options: &[&str], capture: &Path) -> support::flowgauge::Outcome {
    let mut arguments: Vec<&std::ffi::OsStr> = vec![command.as_ref()];
    arguments.extend(options.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
    arguments.push("-r".as_ref());
    arguments.push(capture.as_os_str());
    support::flowgauge::run(arguments)
}

fn check(capture: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    let mut received = Vec::new();
    let policy = policy();
    for (command, options) in [
        ("flows", &["--json", "-q"][..]),
        ("streams", &["--count", "--json", "-q"][..]),
        ("report", &["--json", "-q"][..]),
        ("log", &["--format", "json", "--flows", "-q"][..]),
        ("log", &["--format", "eve", "--flows", "-q"][..]),
        ("log", &["--format", "zeek", "-q"][..]),
        ("anonymize", &["-q", "--policy", policy, "-w", "-"][..]),
    ] {
        let outcome = run(command, options, capture);
        let mut problem =
            |what: String| problems.push(format!("{} {command}: {what}", capture.display()));
        if outcome.hung {
            problem("did not come to an end".to_owned());
            continue;
        }
        match outcome.code {
            Some(0) => {}
            Some(1 | 2) if outcome.stderr.contains("error:") => {}
            Some(1 | 2) => problem(format!("failed without a message: {:?}", outcome.stderr)),
            code => problem(format!("exit {code:?}: {}", last_line(&outcome.stderr))),
        }
        if outcome.code == Some(2) {
            continue;
        }
        // Packets, and Zeek's tables.
        if command == "anonymize" || options.contains(&"zeek") {
            continue;
        }
        let text = String::from_utf8_lossy(&outcome.stdout);
        for line in text.lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(value) if command == "report" => match ledger(&value) {
                    Some(ledger) => {
                        if let Err(why) = balanced(ledger) {
                            problem(why);
                        }
                        received.push(ledger["received"].as_u64());
                    }
                    None => problem("no ledger in the report".to_owned()),
                },
                Ok(_) => {}
                Err(error) => problem(format!("not JSON: {error}")),
            }
        }
    }
    problems
}

/// A policy for `anonymize` that names no key: one is made for the run.
fn policy() -> &'static str {
    static POLICY: OnceLock<String> = OnceLock::new();
    POLICY.get_or_init(|| {
        let policy = support::root().join("policies/headers.toml");
        let text = std::fs::read_to_string(policy).expect("it is there");
        let lines = text.lines().filter(|line| !line.starts_with("key"));
        let lines: Vec<&str> = lines.collect();
        let path = support::scratch("all-captures").join("policy.toml");
        std::fs::write(&path, lines.join("\n")).expect("room");
        path.display().to_string()
    })
}

/// The ledger, wherever in the report it stands.
fn ledger(report: &Value) -> Option<&Value> {
    match report {
        Value::Object(fields)
            if fields.contains_key("received") && fields.contains_key("delivered") =>
        {
            Some(report)
        }
        Value::Object(fields) => fields.values().find_map(ledger),
        _ => None,
    }
}

/// Every packet is delivered or in one place.
fn balanced(ledger: &Value) -> Result<(), String> {
    let number = |name: &str| ledger[name].as_u64().unwrap_or(0);
    let (received, delivered) = (number("received"), number("delivered"));
    let gone = number("dropped") + number("discarded");
    if received == delivered + gone {
        Ok(())
    } else {
        Err(format!(
            "{received} received, {delivered} delivered, {gone} dropped or discarded"
        ))
    }
}

fn last_line(text: &str) -> &str {
    text.lines()
        .rfind(|line| line.contains("panicked") || !line.is_empty())
        .unwrap_or("")
}

/// The largest resident size of any run so far.
fn peak_memory_mb() -> i64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss() / 1024)
}

#[test]
fn knows_a_balanced_ledger() {
    let ledger = serde_json::json!({"received": 10, "delivered": 7, "dropped": 1, "discarded": 2});
    assert!(balanced(&ledger).is_ok());
    assert!(balanced(&serde_json::json!({"received": 10, "delivered": 7})).is_err());
}
