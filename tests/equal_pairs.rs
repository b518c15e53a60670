//! Results do not depend on who else subscribes: what a stack writes and counts in a run of several is what it does
//! alone, for pairs of stacks, for three that commands are, and for all of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support;
use crate::support::stacks::{presets, with_section};

/// What runs beside the stacks of the folder: components with an engine, and options that change what it does. Some
/// of them have the same engine, others must not.
pub(crate) const VARIANTS: [(&str, &str, &str); 18] = [
    ("classified", "flows", "classify = yes"),
    ("flows_by_vlan", "flows", "vlan_aware = yes"),
    ("flows_verified", "flows", "checksums = verify"),
    ("flows_evicted", "flows", "max_flows = 4"),
    ("flows_short", "flows", "tcp_timeout = 1s, udp_timeout = 1s"),
    ("flows_active", "flows", "active_timeout = 1s"),
    ("anomalies", "transactions", "flows = yes, anomalies = yes"),
    ("log_unverified", "transactions", "checksums = ignore"),
    ("log_evicted", "transactions", "flows = yes, max_flows = 4"),
    (
        "log_by_vlan",
        "transactions",
        "flows = yes, vlan_aware = yes",
    ),
    ("listed", "streams", "hash = yes, gaps = yes"),
    (
        "streams_last",
        "streams",
        "hash = yes, overlap_policy = last",
    ),
    (
        "streams_short",
        "streams",
        "hash = yes, tcp_timeout = 1s, udp_timeout = 1s",
    ),
    (
        "streams_evicted",
        "streams",
        "hash = yes, max_flows = 4, checksums = ignore",
    ),
    (
        "chunks",
        "streams",
        "hash = yes, counters = yes, mode = fast, cutoff = 2k",
    ),
    (
        "match_last",
        "match",
        "pattern = HTTP, overlap_policy = last",
    ),
    (
        "match_first",
        "match",
        "pattern = HTTP, cutoff = 100, first = yes",
    ),
    (
        "report_verified",
        "report",
        "format = json, checksums = verify",
    ),
];

/// What a user of all three runs.
const TRIPLE: [&str; 3] = ["flows", "log", "listed"];

/// Generated traces and how large a part of them.
const TRACES: [(&str, &str); 8] = [
    ("hostile", "0.02"),
    ("zoo", "0.1"),
    ("mix", "0.001"),
    ("late", "0.001"),
    ("loss", "0.001"),
    ("web", "0.001"),
    ("syn", "0.001"),
    ("small", "0.001"),
];

/// One of so many captures of the corpora.
const STRIDE: usize = 41;

/// Pairs that a capture is for: enough for all of them to come up.
const PAIRS: usize = 10;

#[test]
fn generated_traces_give_each_stack_the_same_in_any_company() {
    let folder = support::scratch("equal-pairs");
    let captures = TRACES.map(|(preset, scale)| {
        let path = folder.join(format!("{preset}.pcap"));
        let name = path.display().to_string();
        let arguments = ["generate", preset, "--scale", scale, "-q", "-w", &name];
        let made = support::flowgauge::run(arguments);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        path
    });
    compare(&folder, &captures);
}

#[test]
fn real_captures_give_each_stack_the_same_in_any_company() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let captures = support::captures_below(&corpora, STRIDE);
    let all = support::all_captures_below(&corpora);
    assert!(all.len() > 50 && !captures.is_empty(), "{}", all.len());
    let folder = support::scratch("equal-pairs-real");
    let compared = compare(&folder, &captures);
    let stacks = stacks();
    let pairs = stacks.len() * (stacks.len() - 1) / 2;
    assert_eq!(compared.pairs.len(), pairs.min(captures.len() * PAIRS));
    // One that has said nothing was not compared: that is done where it does.
    let members = 0..stacks.len();
    let silent = members.filter(|&member| !compared.lines.contains_key(&stacks[member].name));
    let silent: Vec<usize> = silent.collect();
    let results = support::in_parallel(&silent, 4, |&member| {
        let stack = &stacks[member];
        let folder = folder.join(&stack.name);
        let (word, _) = stack.name.split_once('_').unwrap_or((&stack.name, ""));
        let (named, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
            (all.iter()).partition(|path| path.display().to_string().contains(word));
        let says = |capture: &&PathBuf| Run::of(&[stack], capture, "1", &folder).lines() > 0;
        let capture = named.into_iter().chain(others).find(says);
        let capture = capture.unwrap_or_else(|| panic!("{} says nothing", stack.name));
        let others = triple(&stacks).into_iter().filter(|other| *other != member);
        let groups: Vec<Vec<usize>> = others.map(|other| vec![member, other]).collect();
        compare_over(&stacks, capture, "1", &folder, &groups).1
    });
    let differ: Vec<String> = results.into_iter().flatten().collect();
    assert!(differ.is_empty(), "{} differ:\n{differ:#?}", differ.len());
}

#[test]
fn knows_another_result_from_the_same() {
    let folder = support::scratch("equal-pairs-other");
    let capture = folder.join("mix.pcap");
    let name = capture.display().to_string();
    let made = support::flowgauge::run(["generate", "-q", "--flows", "20", "-w", &name]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let stack = |name, component, options| Stack::new(name, component, options);
    let folder = folder.join("run");
    let run = |stack: &Stack| Run::of(&[stack], &capture, "1", &folder);
    let alone = run(&stack("flows", "flows", ""));
    let same = run(&stack("flows", "flows", "checksums = verify"));
    assert_eq!(same.differences(&[&alone], true, true), [""; 0]);
    for options in ["max_flows = 4", "classify = yes", "udp_timeout = 1ms"] {
        let other = run(&stack("flows", "flows", options));
        let differ = other.differences(&[&alone], true, true);
        assert!(!differ.is_empty(), "{options}");
    }
    let alone = run(&stack("chunks", "streams", ""));
    let other = run(&stack("chunks", "streams", "cutoff = 100"));
    let differ = other.differences(&[&alone], true, true);
    assert!(
        differ.iter().any(|line| line.contains("cutoff")),
        "{differ:?}"
    );
}

/// A stack that runs alone and in company.
struct Stack {
    /// No other's.
    name: String,
    /// It writes to files that no other has.
    text: String,
}

impl Stack {
    fn new(name: &str, component: &str, options: &str) -> Stack {
        let file = format!("file = {name}.json");
        let text = match component {
            "report" => format!("[stack {name}]\nreport {{ {options}, {file} }}\n"),
            _ => format!("[stack {name}]\n{component} {{ {options} }} output {{ {file} }}\n"),
        };
        Stack {
            name: name.to_owned(),
            text,
        }
    }
}

/// All that run: those of the folder, and others with options.
fn stacks() -> Vec<Stack> {
    let presets = presets().into_iter().map(|preset| {
        let (_, behind) = preset.text.split_once("[stack ").expect("a name");
        let (name, behind) = behind.split_once(']').expect("the end of a name");
        let last = ["output", "report"];
        let last = last.into_iter().find(|last| behind.contains(last));
        let text = match last.filter(|_| !behind.contains("file = ")) {
            Some(last) => with_section(&preset.text, &format!("[{last}]\nfile = {name}.json\n")),
            None => preset.text.clone(),
        };
        Stack {
            name: name.to_owned(),
            text,
        }
    });
    let variants = VARIANTS.map(|(name, component, options)| Stack::new(name, component, options));
    presets.chain(variants).collect()
}

/// What was compared.
struct Compared {
    pairs: BTreeSet<(usize, usize)>,
    /// How much each stack said alone, by its name.
    lines: BTreeMap<String, usize>,
}

/// Compares over the captures, of which each is for other pairs, and every other one for two workers.
fn compare(folder: &Path, captures: &[PathBuf]) -> Compared {
    let stacks = stacks();
    let all: Vec<usize> = (0..stacks.len()).collect();
    let triple = triple(&stacks);
    let pairs: Vec<(usize, usize)> = all
        .iter()
        .flat_map(|&one| (one + 1..stacks.len()).map(move |other| (one, other)))
        .collect();
    make_key(&folder.join("test.key"));
    let numbered: Vec<(usize, &PathBuf)> = captures.iter().enumerate().collect();
    let results = support::in_parallel(&numbered, 4, |&(number, capture)| {
        let workers = ["1", "2"][number % 2];
        let folder = folder.join(format!("run-{number}"));
        let mine = pairs.iter().cycle().skip(number * PAIRS).take(PAIRS);
        let mine: Vec<(usize, usize)> = mine.copied().collect();
        let mut groups: Vec<Vec<usize>> = vec![all.clone(), triple.clone()];
        groups.extend(mine.iter().map(|&(one, other)| vec![one, other]));
        let (lines, differ) = compare_over(&stacks, capture, workers, &folder, &groups);
        (mine, lines, groups.len(), differ)
    });
    let runs: usize = results.iter().map(|(_, _, runs, _)| runs).sum();
    let differ: Vec<&String> = results.iter().flat_map(|(.., differ)| differ).collect();
    let mut compared = Compared {
        pairs: results
            .iter()
            .flat_map(|(mine, ..)| mine)
            .copied()
            .collect(),
        lines: BTreeMap::new(),
    };
    for &(member, lines) in results.iter().flat_map(|(_, lines, ..)| lines) {
        if lines > 0 {
            let name = stacks[member].name.clone();
            *compared.lines.entry(name).or_default() += lines;
        }
    }
    support::say(&format!(
        "\n{} captures, {runs} runs of several stacks, {} of {} pairs, {} differences\n",
        captures.len(),
        compared.pairs.len(),
        pairs.len(),
        differ.len()
    ));
    assert!(differ.is_empty(), "{} differ:\n{differ:#?}", differ.len());
    compared
}

/// The stacks that a user of all three runs.
fn triple(stacks: &[Stack]) -> Vec<usize> {
    let triple = TRIPLE.map(|name| stacks.iter().position(|stack| stack.name == name));
    triple.map(|found| found.expect("it is there")).to_vec()
}

/// Compares groups of stacks over a capture with each of their members alone, but for those that are in the first group only, if
/// there are several. Returns how much each said alone, and where they differ.
fn compare_over(
    stacks: &[Stack],
    capture: &Path,
    workers: &str,
    folder: &Path,
    groups: &[Vec<usize>],
) -> (Vec<(usize, usize)>, Vec<String>) {
    let run = |members: &[usize]| {
        let stacks: Vec<&Stack> = members.iter().map(|&member| &stacks[member]).collect();
        Run::of(&stacks, capture, workers, folder)
    };
    let members: BTreeSet<usize> = groups.iter().skip(1).flatten().copied().collect();
    let alone: BTreeMap<usize, Run> = members
        .into_iter()
        .map(|member| (member, run(&[member])))
        .collect();
    let mut differ = Vec::new();
    for group in groups {
        let together = run(group);
        let apart: Vec<&Run> = group
            .iter()
            .filter_map(|member| alone.get(member))
            .collect();
        let is_whole = apart.len() == group.len();
        let names: Vec<&str> = group
            .iter()
            .filter(|_| is_whole)
            .map(|&member| stacks[member].name.as_str())
            .collect();
        let differences = together.differences(&apart, is_whole, workers == "1");
        differ.extend(differences.into_iter().map(|difference| {
            let capture = capture.display();
            format!("{names:?} of {capture}, workers: {workers}: {difference}")
        }));
    }
    let lines = alone.iter().map(|(&member, run)| (member, run.lines()));
    (lines.collect(), differ)
}

/// A key for those that anonymize: without it each run makes one of its own.
fn make_key(path: &Path) {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(&[7; 32]));
    written.expect("a key");
}

/// What came of a run.
struct Run {
    is_well: bool,
    /// By their names.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// What components counted, by stack.
    results: BTreeMap<String, Vec<String>>,
    account: Option<Account>,
    messages: String,
}

impl Run {
    /// Runs stacks in one process.
    fn of(stacks: &[&Stack], capture: &Path, workers: &str, folder: &Path) -> Run {
        fs::create_dir_all(folder).expect("room");
        let program: String = stacks
            .iter()
            .map(|stack| format!("{}\n", stack.text))
            .collect();
        let stack = folder.join("run.stack");
        fs::write(&stack, program).expect("room");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
        // Which worker a flow is on decides what is evicted.
        command.env("FLOWGAUGE_TEST", "hash=1").current_dir(folder);
        command.args(["stack", "run", "--json", "--workers", workers]);
        command.arg("-f").arg(&stack).arg("-r").arg(capture);
        let outcome = support::flowgauge::run_command(command);
        assert!(!outcome.hung, "{}", capture.display());
        fs::remove_file(&stack).expect("it is there");
        let paths = support::files_below(folder, &|_| true);
        let files = paths.into_iter().map(|path| {
            let content = fs::read(&path).expect("it is there");
            (path, content)
        });
        let files = files.collect();
        fs::remove_dir_all(folder).expect("it is there");
        let mut results: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in String::from_utf8_lossy(&outcome.stdout).lines() {
            let row: Value = serde_json::from_str(line).expect("JSON");
            let stack = row["stack"].as_str().expect("a name");
            let rows = results.entry(stack.to_owned()).or_default();
            rows.push(line.to_owned());
        }
        Run {
            is_well: outcome.code == Some(0),
            files,
            results,
            account: Account::of(&outcome.stderr),
            messages: outcome.stderr,
        }
    }

    /// What it wrote, or if it writes nothing, counted.
    fn lines(&self) -> usize {
        let files = self.files.values();
        let written: usize = files.map(|content| lines(content).len()).sum();
        let counted = || self.results.values().map(Vec::len).sum();
        if self.files.is_empty() {
            counted()
        } else {
            written
        }
    }

    /// Where it differs from the runs of its stacks alone, or from those of some of them, if they are not the
    /// `whole` of it.
    fn differences(&self, alone: &[&Run], whole: bool, in_order: bool) -> Vec<String> {
        let mut differ = Vec::new();
        let is_well = alone.iter().all(|run| run.is_well);
        if self.is_well && !is_well || whole && self.is_well != is_well {
            let messages = alone.iter().map(|run| run.messages.as_str());
            let messages = messages.collect::<Vec<_>>();
            differ.push(format!("{:?} <> {messages:?}", self.messages));
        }
        for run in alone {
            for (path, content) in &run.files {
                let mine = self.files.get(path).map(Vec::as_slice);
                differ.extend(difference(path, mine, Some(content), in_order));
            }
            for (stack, rows) in &run.results {
                if self.results.get(stack) != Some(rows) {
                    differ.push(format!("{:?} <> {rows:?}", self.results.get(stack)));
                }
            }
        }
        let has = |path: &PathBuf| alone.iter().any(|run| run.files.contains_key(path));
        let new = self.files.keys().filter(|path| whole && !has(path));
        differ.extend(new.map(|path| format!("{} is new", path.display())));
        let accounts: Option<Vec<&Account>> =
            alone.iter().map(|run| run.account.as_ref()).collect();
        match (&self.account, accounts) {
            (Some(account), Some(alone)) => differ.extend(account.differences(&alone, whole)),
            (None, None) => {}
            _ => differ.push("only one of them began".to_owned()),
        }
        differ
    }
}

/// Where two files differ, whose lines may come in another order.
pub(crate) fn difference(
    path: &Path,
    one: Option<&[u8]>,
    other: Option<&[u8]>,
    in_order: bool,
) -> Option<String> {
    let (Some(one), Some(other)) = (one, other) else {
        return Some(format!("{} is missing", path.display()));
    };
    if one == other {
        return None;
    }
    let (mut one, mut other) = (lines(one), lines(other));
    if !in_order {
        one.sort_unstable();
        other.sort_unstable();
    }
    let path = path.display();
    if one.len() != other.len() {
        return Some(format!("{path}: {} and {} lines", one.len(), other.len()));
    }
    let (one, other) = one.iter().zip(&other).find(|(one, other)| one != other)?;
    let (one, other) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
    Some(format!("{path}: {one:.900} <> {other:.900}"))
}

fn lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|&byte| byte == b'\n').collect()
}

/// What a run says of its packets at its end.
struct Account {
    received: u64,
    /// Packets that were not delivered, by place of the ledger.
    places: BTreeMap<String, u64>,
    /// The same of those that components in company refused, which the ledger of all does not have.
    refused: BTreeSet<(String, u64)>,
    notes: BTreeSet<String>,
}

impl Account {
    /// `None` if the run did not begin.
    fn of(messages: &str) -> Option<Account> {
        let mut lines = messages.lines();
        let ledger = lines.find(|line| line.contains(" received, "))?;
        let (totals, places) = ledger.split_once(" (").expect("bytes");
        let (_, rest) = places.split_once("), ").expect("the end of the bytes");
        let (lost, places) = rest.split_once(" (").unwrap_or((rest, ""));
        let place = |text: &str| {
            let (place, packets) = text.trim_end_matches(')').split_once(' ')?;
            Some((place.to_owned(), packets.parse().ok()?))
        };
        let places: BTreeMap<String, u64> = places.split(", ").filter_map(place).collect();
        let (totals, lost) = (numbers(totals), numbers(lost));
        assert_eq!((totals.len(), lost.len()), (2, 2), "{ledger}");
        let gone: u64 = lost.iter().sum();
        assert_eq!(totals[0], totals[1] + gone, "{ledger}");
        assert_eq!(gone, places.values().sum::<u64>(), "{ledger}");
        let (mut refused, mut notes) = (BTreeSet::new(), BTreeSet::new());
        for note in lines.filter_map(|line| line.strip_prefix("note: ")) {
            match note.split_once(" not taken by ") {
                Some((packets, by)) => {
                    let (_, place) = by.split_once(" (").expect("a place");
                    let place = place.trim_end_matches(')').to_owned();
                    refused.insert((place, numbers(packets)[0]));
                }
                None => {
                    notes.insert(note.to_owned());
                }
            }
        }
        Some(Account {
            received: totals[0],
            places,
            refused,
            notes,
        })
    }

    /// Where it differs from those of its stacks alone, or of some of them, if they are not the `whole` of it.
    fn differences(&self, alone: &[&Account], whole: bool) -> Vec<String> {
        let mut differ = Vec::new();
        let (mut refused, mut notes) = (BTreeSet::new(), BTreeSet::new());
        for account in alone {
            if account.received != self.received {
                let (one, other) = (self.received, account.received);
                differ.push(format!("{one} and {other} packets received"));
            }
            // What a lone stack refuses its ledger has.
            for (place, &packets) in &account.places {
                let packets = packets - self.places.get(place).copied().unwrap_or(0);
                if packets > 0 {
                    refused.insert((place.clone(), packets));
                }
            }
            refused.extend(account.refused.iter().cloned());
            notes.extend(account.notes.iter().cloned());
        }
        if !refused.is_subset(&self.refused) || whole && refused != self.refused {
            differ.push(format!("refused: {:?} <> {refused:?}", self.refused));
        }
        if !notes.is_subset(&self.notes) || whole && notes != self.notes {
            differ.push(format!("notes: {:?} <> {notes:?}", self.notes));
        }
        differ
    }
}

/// The numbers that are words of a text.
fn numbers(text: &str) -> Vec<u64> {
    let words = text.split([' ', ',']);
    words.filter_map(|word| word.parse().ok()).collect()
}
