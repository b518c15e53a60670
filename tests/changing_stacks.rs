//! Stacks that are added and removed while others run, at random packets: those that stay give what they give alone, one
//! that is removed what it gives of the input up to there, and one that is added what it gives of the input from there on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use flowgauge_capture::PacketSource;
use flowgauge_registry::registry;
use flowgauge_runtime::stacks::{Runner, RunnerOptions, StackState};
use flowgauge_stack::{Program, ResultValue, Sources, Stack, check, parse};

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
    let differ: Vec<&String> = found.iter().flat_map(|(differ, _)| differ).collect();
    let lines: usize = found.iter().map(|(_, lines)| lines).sum();
    support::say(&format!(
        "\n{} captures, {lines} lines compared, {} differences\n",
        captures.len(),
        differ.len()
    ));
    assert!(lines > 1000, "{lines}");
    assert!(differ.is_empty(), "{} differ:\n{differ:#?}", differ.len());
}

/// Runs stacks that begin and end at random over a capture, and each of them alone. Returns where they differ, and how many
/// lines were compared.
fn compare(seed: u64, capture: &Path, folder: &Path) -> (Vec<String>, usize) {
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
    let batches = count_batches(capture);
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
    let times = [
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
    let all: Vec<usize> = (0..times.len()).collect();
    let steps = [0, first, second].map(|at| {
        let runs = |&&member: &&usize| times[member].0 <= at && at < times[member].1;
        (at, all.iter().filter(runs).copied().collect::<Vec<_>>())
    });
    let company = folder.join("company");
    let programs = steps.map(|(at, members)| (at, program(&of(&company, &members))));
    let together = run(capture, &company, workers, 0, batches, programs.to_vec());
    let (mut differ, mut lines) = (Vec::new(), 0);
    for &member in &all {
        let (from, until) = times[member];
        if from == until {
            continue;
        }
        let (name, ..) = names[chosen[member]];
        let folder = folder.join("alone");
        let program = program(&of(&folder, &[member]));
        let alone = run(
            capture,
            &folder,
            workers,
            from,
            until,
            vec![(from, program)],
        );
        let mine = alone.get(name).expect("it has run");
        lines += mine.1.iter().filter(|&&byte| byte == b'\n').count();
        let what = format!(
            "{name} of {}, {workers} workers, {from} to {until}",
            capture.display()
        );
        match together.get(name) {
            None => differ.push(format!("{what} has not run")),
            Some(other) => {
                if other.0 != mine.0 {
                    differ.push(format!("{what}: {:?} <> {:?}", other.0, mine.0));
                }
                let path = Path::new(&what);
                differ.extend(difference(
                    path,
                    Some(&other.1),
                    Some(&mine.1),
                    workers == 1,
                ));
            }
        }
    }
    let _ = fs::remove_dir_all(folder);
    (differ, lines)
}

/// What components counted, and what was written, by the name of the stack.
type Came = BTreeMap<String, (Vec<String>, Vec<u8>)>;

/// Runs the batches of a capture from one on up to another, with other stacks from some of them on.
fn run(
    capture: &Path,
    folder: &Path,
    workers: usize,
    from: usize,
    until: usize,
    programs: Vec<(usize, Program)>,
) -> Came {
    fs::create_dir_all(folder).expect("room");
    let options = RunnerOptions {
        workers,
        ..RunnerOptions::default()
    };
    let mut programs = programs.into_iter().peekable();
    let (_, first) = programs.next().expect("a program");
    let mut runner = Runner::new(first, &options).expect("it can begin");
    let mut ended: Vec<(Stack, StackState)> = Vec::new();
    let source = flowgauge_capture::open(capture).ok();
    let mut source = source.map(|source| Small::new(Box::new(source), SIZE));
    let mut at = 0;
    let mut change = |runner: &mut Runner, at: usize| {
        while let Some((_, program)) = programs.next_if(|(when, _)| *when == at) {
            let change = runner.replace(program).expect("it can begin");
            assert!(change.ended.iter().all(|ended| ended.failure.is_none()));
            ended.extend(change.ended.into_iter().map(|it| (it.stack, it.state)));
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
    assert!(runner.failures().is_empty(), "{}", capture.display());
    let snapshot = runner.snapshot();
    ended.extend(runner.stacks().iter().cloned().zip(snapshot.stacks));
    let came = ended.into_iter().map(|(stack, state)| {
        let name = stack.name.clone().expect("a name");
        let components = stack.iter().zip(&state.components);
        let counted = components.map(|((_, node), state)| {
            let result = state.result.as_ref().and_then(ResultValue::number);
            format!("{}: {} items, {result:?}", node.label, state.passed.items)
        });
        let written = fs::read_to_string(folder.join(format!("{name}.json"))).unwrap_or_default();
        // Packets are numbered from the beginning of the capture, which who comes later has not seen alone.
        let lines = written
            .lines()
            .map(|line| match line.strip_prefix("{\"number\":") {
                Some(numbered) => numbered.trim_start_matches(|digit: char| digit.is_ascii_digit()),
                None => line,
            });
        let written: String = lines.map(|line| format!("{line}\n")).collect();
        (name, (counted.collect(), written.into_bytes()))
    });
    came.collect()
}

fn count_batches(capture: &Path) -> usize {
    let Ok(source) = flowgauge_capture::open(capture) else {
        return 0;
    };
    let mut source = Small::new(Box::new(source), SIZE);
    let mut batches = 0;
    while !matches!(source.next_batch(), Ok(None)) {
        batches += 1;
    }
    batches
}

fn program(text: &str) -> Program {
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
