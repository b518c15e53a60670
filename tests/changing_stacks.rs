//! Stacks that are added and removed while others run, at random packets: those that stay give what they give alone, and one
//! that is removed what it gives of the input up to there. One that is added gives what it gives of the input from there on;
//! where it joins an engine that runs, what it would give had it been there from the beginning.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use flowgauge_capture::PacketSource;
use flowgauge_registry::registry;
use flowgauge_runtime::stacks::{Ended, Runner, RunnerOptions, StackState};
use flowgauge_stack::{ComponentFailure, Program, ResultValue, Sources, Stack, check, parse};
use flowgauge_wire::Nanos;

use crate::equal_pairs::{VARIANTS, difference};
use crate::stack_threads::Small;
use crate::support;

/// Beside the variants of components with engines: such as share their beginning with another stack, or no engine.
const OTHERS: [(&str, &str, &str); 8] = [
    ("flows", "flows", ""),
    ("flows_again", "flows", ""),
    ("filtered", "filter { tcp } flows", ""),
    ("large", "flows where { \"bytes > 500\" }", ""),
    ("log", "transactions", ""),
    ("sampled", "sample { 7 } packets", ""),
    (
        "sums",
        "flows aggregate { by = proto, sum = bytes, interval = 3 }",
        "",
    ),
    ("packets", "udpscan packets", ""),
];

/// What keeps nothing of connections itself: its records are of all that the engine knows.
const WHOLE: [&str; 8] = [
    "flows",
    "flows_again",
    "large",
    "flows_by_vlan",
    "flows_verified",
    "flows_evicted",
    "flows_short",
    "flows_active",
];

/// Records of what other connections have announced, or began.
const KNOWN_OF_OTHERS: [&str; 2] = ["\"event_type\":\"ftp_data\"", "\"event_type\":\"dhcp\""];

/// What has a folder of its own, or a report that only the command writes.
const LEFT_OUT: [&str; 1] = ["report_verified"];

/// One of so many captures of the corpora.
const STRIDE: usize = 23;

/// Packets in a batch: stacks come and go between batches.
const SIZE: usize = 7;

#[test]
fn stacks_that_come_and_go_change_nothing_for_others() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let captures = support::captures_below(&corpora, STRIDE);
    assert!(captures.len() > 50, "{}", captures.len());
    let folder = support::scratch("changing-stacks");
    let numbered: Vec<(usize, &PathBuf)> = captures.iter().enumerate().collect();
    let found = support::in_parallel(&numbered, 2, |&(number, capture)| {
        compare(number as u64, capture, &folder.join(number.to_string()))
    });
    let differ: Vec<&String> = found.iter().flat_map(|found| &found.0).collect();
    let lines: usize = found.iter().map(|found| found.1).sum();
    let joined: usize = found.iter().map(|found| found.2).sum();
    support::say(&format!(
        "\n{} captures, {lines} lines compared, {joined} stacks joined an engine, {} differences\n",
        captures.len(),
        differ.len()
    ));
    assert!(joined > 10, "{joined}");
    assert!(lines > 1000, "{lines}");
    assert!(differ.is_empty(), "{} differ:\n{differ:#?}", differ.len());
}

/// Runs stacks that begin and end at random over a capture, and each of them alone. Returns where they differ, how many lines
/// were compared, and how many stacks joined an engine.
fn compare(seed: u64, capture: &Path, folder: &Path) -> (Vec<String>, usize, usize) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit.max(1) as u64) as usize
    };
    let names: Vec<(&str, &str, &str)> = OTHERS.into_iter().chain(VARIANTS).collect();
    let names: Vec<_> = names
        .into_iter()
        .filter(|it| !LEFT_OUT.contains(&it.0))
        .collect();
    let times = times_of_batches(capture);
    let batches = times.len();
    // An engine of its own does not know how far the clock has come before.
    let goes_back = |from: usize| {
        let (before, behind) = times.split_at(from);
        let latest = before.iter().map(|times| times.end).max();
        latest > behind.iter().map(|times| times.start).min()
    };
    let workers = 1 + below(2);
    // Two that stay, two that are removed, two that are added, and one that is in for a while.
    let mut chosen: Vec<usize> = Vec::new();
    while chosen.len() < 7 {
        let next = below(names.len());
        if !chosen.contains(&next) {
            chosen.push(next);
        }
    }
    let (first, second) = (below(batches + 1), below(batches + 1));
    let (first, second) = (first.min(second), first.max(second));
    let spans = [
        (0, batches),
        (0, batches),
        (0, first),
        (0, second),
        (first, batches),
        (second, batches),
        (first, second),
    ];
    let of = |folder: &Path, members: &[usize]| -> String {
        let texts = members.iter().map(|&member| {
            let (name, component, options) = names[chosen[member]];
            let options = match options {
                "" => String::new(),
                options => format!("{{ {options} }}"),
            };
            let file = folder.join(format!("{name}.json"));
            let file = file.display();
            format!("[stack {name}]\n{component} {options} output {{ file = {file} }}\n")
        });
        texts.collect()
    };
    let all: Vec<usize> = (0..spans.len()).collect();
    let steps = [0, first, second].map(|at| {
        let runs = |&&member: &&usize| spans[member].0 <= at && at < spans[member].1;
        (at, all.iter().filter(runs).copied().collect::<Vec<_>>())
    });
    let company = folder.join("company");
    let programs = steps.map(|(at, members)| (at, program(&of(&company, &members))));
    let (together, _) = run(capture, &company, workers, 0, batches, programs.to_vec());
    let (mut differ, mut lines, mut joined) = (Vec::new(), 0, 0);
    for &member in &all {
        let (from, until) = spans[member];
        if from == until || from > 0 && goes_back(from) {
            continue;
        }
        let (name, ..) = names[chosen[member]];
        let folder = folder.join("alone");
        let program = program(&of(&folder, &[member]));
        let run_alone = |from, until, programs| {
            let (came, marks) = run(capture, &folder, workers, from, until, programs);
            (came[name].clone(), marks)
        };
        let (mine, _) = run_alone(from, until, vec![(from, program.clone())]);
        lines += mine.1.iter().filter(|&&byte| byte == b'\n').count();
        let what = format!(
            "{name} of {}, {workers} workers, {from} to {until}",
            capture.display()
        );
        let Some(other) = together.get(name) else {
            differ.push(format!("{what} has not run"));
            continue;
        };
        let path = Path::new(&what);
        let mut found: Vec<String> = Vec::new();
        if other.0 != mine.0 {
            found.push(format!("{what}: {:?} <> {:?}", other.0, mine.0));
        }
        found.extend(difference(
            path,
            Some(&other.1),
            Some(&mine.1),
            workers == 1,
        ));
        if until < batches && mine.2 {
            // What leaves a shared engine is not told of fragments of datagrams that are not complete.
            continue;
        }
        if from > 0 && !found.is_empty() {
            joined += 1;
            let is_whole = WHOLE.contains(&name);
            // The engine may have begun with a stack that was added before.
            let begins = [0, first].into_iter().filter(|begin| *begin < from);
            let found_from = begins.map(|begin| {
                let twice = vec![(begin, program.clone()), (from, program.clone())];
                let (whole, marks) = run_alone(begin, until, twice);
                let known = flows_until(capture, &folder, workers, begin, from);
                let skipped = if is_whole { marks[0] as usize } else { 0 };
                after_joining(path, &other.1, &whole.1, skipped, &known, is_whole)
            });
            let mut found_from: Vec<Vec<String>> = found_from.collect();
            found_from.sort_by_key(Vec::len);
            found = found_from.swap_remove(0);
        }
        differ.append(&mut found);
    }
    let _ = fs::remove_dir_all(folder);
    (differ, lines, joined)
}

/// The flows of the batches of a capture from one on up to another.
fn flows_until(
    capture: &Path,
    folder: &Path,
    workers: usize,
    from: usize,
    until: usize,
) -> BTreeSet<String> {
    let file = folder.join("known.json");
    let text = format!(
        "[stack known]\nflows output {{ file = {} }}\n",
        file.display()
    );
    let (known, _) = run(
        capture,
        folder,
        workers,
        from,
        until,
        vec![(from, program(&text))],
    );
    flow_ids(&known["known"].1).collect()
}

/// Where what a stack wrote that joined an engine is not what it would have written from the beginning on, of connections that
/// began later. Of one that keeps nothing of connections itself, that goes for all, but for what it would have written before.
fn after_joining(
    path: &Path,
    joined: &[u8],
    whole: &[u8],
    before: usize,
    known: &BTreeSet<String>,
    is_whole: bool,
) -> Vec<String> {
    let of = |written: &[u8], from: usize| -> Vec<u8> {
        let text = String::from_utf8_lossy(written);
        // What one connection tells of others may have been told before.
        let by_others = |line: &&str| !KNOWN_OF_OTHERS.iter().any(|known| line.contains(known));
        let lines = text.lines().skip(from).filter(by_others);
        let is_new = |line: &&str| {
            is_whole
                || flow_ids(line.as_bytes())
                    .next()
                    .is_some_and(|id| !known.contains(&id))
        };
        lines
            .filter(is_new)
            .map(|line| line.split_once(",\"app\":").map_or(line, |(line, _)| line))
            .flat_map(|line| [line, "\n"])
            .collect::<String>()
            .into_bytes()
    };
    let (joined, whole) = (of(joined, 0), of(whole, before));
    difference(path, Some(&joined), Some(&whole), false)
        .into_iter()
        .collect()
}

/// Which flows records are of.
fn flow_ids(written: &[u8]) -> impl Iterator<Item = String> {
    let text = String::from_utf8_lossy(written).into_owned();
    let ids = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("\"flow_id\":\"")?;
        Some(rest.get(..16)?.to_owned())
    });
    ids.collect::<Vec<_>>().into_iter()
}

/// What components counted, what was written, and whether there were fragments, by the name of the stack.
type Came = BTreeMap<String, (Vec<String>, Vec<u8>, bool)>;

/// Runs the batches of a capture from one on up to another, with other stacks from some of them on. Returns, too, what had
/// come to the last component of the last stack at each change.
fn run(
    capture: &Path,
    folder: &Path,
    workers: usize,
    from: usize,
    until: usize,
    programs: Vec<(usize, Program)>,
) -> (Came, Vec<u64>) {
    fs::create_dir_all(folder).expect("room");
    let options = RunnerOptions {
        workers,
        ..RunnerOptions::default()
    };
    let mut programs = programs.into_iter().peekable();
    let (_, first) = programs.next().expect("a program");
    let mut runner = Runner::new(first, &options).expect("it can begin");
    let mut ended: Vec<(Stack, StackState, Option<ComponentFailure>)> = Vec::new();
    let source = flowgauge_capture::open(capture).ok();
    let mut source = source.map(|source| Small::new(Box::new(source), SIZE));
    let (mut at, mut marks) = (0, Vec::new());
    let mut change = |runner: &mut Runner, at: usize| {
        while let Some((_, program)) = programs.next_if(|(when, _)| *when == at) {
            let change = runner.replace(program).expect("it can begin");
            let of = |it: Ended| (it.stack, it.state, it.failure);
            ended.extend(change.ended.into_iter().map(of));
            let stacks = runner.snapshot().stacks;
            let last = stacks.last().and_then(|stack| stack.components.last());
            marks.push(last.map_or(0, |last| last.passed.items));
        }
    };
    if let Some(source) = &mut source {
        while at < from {
            let _ = source.next_batch();
            at += 1;
        }
        while at < until {
            change(&mut runner, at);
            // What is damaged counts as a batch.
            let _ = runner.step(source);
            at += 1;
        }
    }
    change(&mut runner, until);
    runner.finish();
    let mut failures = runner.failures();
    let states = runner.snapshot().stacks.into_iter();
    for (number, (stack, state)) in runner.stacks().iter().zip(states).enumerate() {
        let failed = failures.iter().position(|it| it.stack == number);
        let failure = failed.map(|at| failures.swap_remove(at).failure);
        ended.push((stack.clone(), state, failure));
    }
    let came = ended.into_iter().map(|(stack, state, failure)| {
        let name = stack.name.clone().expect("a name");
        let components = stack.iter().zip(&state.components);
        let counted = components.map(|((_, node), state)| {
            let result = state.result.as_ref().and_then(ResultValue::number);
            format!("{}: {} items, {result:?}", node.label, state.passed.items)
        });
        let failed = failure.map(|failure| failure.to_string());
        let written = fs::read_to_string(folder.join(format!("{name}.json"))).unwrap_or_default();
        // Packets are numbered from the beginning of the capture, which who comes later has not seen alone.
        let lines = written
            .lines()
            .map(|line| match line.strip_prefix("{\"number\":") {
                Some(numbered) => numbered.trim_start_matches(|digit: char| digit.is_ascii_digit()),
                None => line,
            });
        let written: String = lines.map(|line| format!("{line}\n")).collect();
        let accounts = state.components.iter().filter_map(|it| it.account.as_ref());
        let mut shards = accounts.flat_map(|account| &account.shards);
        let has_fragments = shards.any(|shard| shard.defragment.fragments > 0);
        (
            name,
            (
                counted.chain(failed).collect(),
                written.into_bytes(),
                has_fragments,
            ),
        )
    });
    (came.collect(), marks)
}

/// From when to when the packets of each batch of a capture are.
fn times_of_batches(capture: &Path) -> Vec<Range<Nanos>> {
    let mut batches = Vec::new();
    let Ok(source) = flowgauge_capture::open(capture) else {
        return batches;
    };
    let mut source = Small::new(Box::new(source), SIZE);
    loop {
        let times = match source.next_batch() {
            Ok(None) => return batches,
            Ok(Some(batch)) => batch.packets.iter().map(|packet| packet.time).collect(),
            Err(_) => Vec::new(),
        };
        let last = times.iter().max().copied().unwrap_or_default();
        batches.push(times.into_iter().min().unwrap_or(Nanos(u64::MAX))..last);
    }
}

pub(crate) fn program(text: &str) -> Program {
    if text.is_empty() {
        return Program::default();
    }
    let mut sources = Sources::default();
    let id = sources.add("test", text.to_owned()).expect("room");
    let document = parse(&sources, id).unwrap_or_else(|error| panic!("{}", error.show(&sources)));
    let checked = check(&document, registry());
    let said = checked.diagnostics.iter();
    let said: Vec<String> = said.map(|found| found.show(&sources).to_string()).collect();
    checked
        .program
        .unwrap_or_else(|| panic!("{}", said.join("\n")))
}
