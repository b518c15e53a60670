//! `flowgauge stack show`

use std::fmt::Write as _;
use std::sync::Arc;

use flowgauge_record::text::harmless_lines;
use flowgauge_runtime::stacks::engines;
use flowgauge_stack::{ComponentKind, Inner, Input, NodeId, Program, Stack};

use super::execute::{Origin, Running};
use super::read;
use super::run::{refuse_overwriting, writes};
use super::watch::{WatchOptions, WatchStyle};
use crate::failure::Failure;
use crate::options::{InputOptions, ShowOptions};

/// Runs the command.
///
/// # Errors
/// When something is wrong with the stack.
pub(super) fn run(options: &ShowOptions) -> Result<(), Failure> {
    let input = &options.input;
    let mut program = read::program(read::given(&options.stack)?)?;
    let runs = !input.read.is_empty() || !input.interface.is_empty();
    if runs || options.watch.every().is_some() {
        return run_and_show(program, options, input);
    }
    if !input.rest.is_empty() || !input.filter.is_empty() {
        return Err(Failure::usage(
            "a stack that is only shown takes no filter",
            "use -r or -i to choose the packets whose counts are shown",
        ));
    }
    let engines = number_engines(&mut program.stacks);
    if options.svg {
        return super::print(super::svg::svg(&program.stacks).as_bytes());
    }
    let mut text = String::new();
    for stack in &program.stacks {
        if options.dot {
            dot(&mut text, stack);
        } else {
            tree(&mut text, stack, &|_| None);
        }
    }
    if !options.dot {
        text.push_str(&engines);
    }
    super::print(harmless_lines(&text).as_bytes())
}

/// Runs stacks and shows them with what went through each component: at the end, and meanwhile where
/// that is wanted.
fn run_and_show(
    program: Program,
    options: &ShowOptions,
    input: &InputOptions,
) -> Result<(), Failure> {
    refuse_overwriting(input, &program.stacks)?;
    let on_error = writes(&program.stacks, "-");
    let watch = options.watch.every().map(|every| {
        let watch = WatchOptions {
            every,
            style: WatchStyle::Graph { on_error },
        };
        watch.watch()
    });
    let mut running = Running::begin(program, input, &options.common, watch, Origin::Stack)?;
    running.run(&mut |_| {});
    let shown = running.show(on_error);
    running.conclude(&options.common).and(shown)
}

/// A line per component, indented by what it is in, with what `counts` says of it.
pub(super) fn tree(text: &mut String, stack: &Stack, counts: &dyn Fn(NodeId) -> Option<String>) {
    let name = stack.name.as_deref().unwrap_or("stack");
    let cores = cores(stack);
    let _ = writeln!(text, "{name}: {cores}");
    row(text, stack, stack.entry, 1, counts);
}

/// Where several components have engines, writes behind the label of each which one it is. Returns a line per engine.
fn number_engines(stacks: &mut [Stack]) -> String {
    let engines = engines(stacks);
    let mut text = String::new();
    if engines.iter().flatten().count() < 2 {
        return text;
    }
    for (number, subscribers) in (1..).zip(&engines) {
        let mut after = String::new();
        let mut of = Vec::new();
        for &(stack, id) in subscribers {
            let stack = &mut stacks[stack];
            if let Some((_, before)) = stack.iter().find(|(_, node)| node.next == Some(id)) {
                after = format!(", after {}", before.label);
                if before.info.kind == ComponentKind::Simple && before.info.input != Input::Nothing
                {
                    after.push_str(", which looks at single packets");
                }
            }
            let label = &mut Arc::make_mut(&mut stack.nodes)[id.index()].label;
            let name = stack.name.as_deref().unwrap_or("stack");
            of.push(format!("{label} of {name}"));
            let _ = write!(label, " (engine {number})");
        }
        let _ = writeln!(text, "engine {number}{after}: {}", of.join(", "));
    }
    text
}

/// On how many cores a stack runs, and why not on more.
pub(super) fn cores(stack: &Stack) -> String {
    let any = if stack.is_by_flow() {
        "on any number of cores, connections kept together"
    } else {
        "on any number of cores"
    };
    let Some(sequential) = stack.sequential() else {
        return format!("runs {any}");
    };
    let from = &stack.node(sequential.from).label;
    let reason = &stack.node(sequential.reason).label;
    let because = sequential.because;
    if sequential.from == stack.entry {
        format!("runs on one core, because of {reason}: {because}")
    } else {
        format!("runs {any}; from {from} on, on one core, because of {reason}: {because}")
    }
}

fn row(
    text: &mut String,
    stack: &Stack,
    first: NodeId,
    depth: usize,
    counts: &dyn Fn(NodeId) -> Option<String>,
) {
    for id in stack.row(first) {
        let node = stack.node(id);
        let indent = "  ".repeat(depth);
        let set: Vec<String> = node
            .settings
            .iter()
            .map(|setting| format!("{} = {}", setting.option.name, setting.value))
            .collect();
        let set = if set.is_empty() {
            String::new()
        } else {
            format!(" {{ {} }}", set.join(", "))
        };
        let _ = writeln!(
            text,
            "{indent}{}{set}: {} -> {}{}",
            node.label,
            node.input,
            node.output,
            counts(id).map_or(String::new(), |counts| format!(": {counts}"))
        );
        match &node.inner {
            Inner::Nothing => {}
            Inner::PerKey(first) => row(text, stack, *first, depth + 1, counts),
            Inner::Branches(firsts) => {
                for (number, first) in firsts.iter().enumerate() {
                    let _ = writeln!(text, "{indent}| branch {number}");
                    row(text, stack, *first, depth + 1, counts);
                }
            }
        }
    }
}

fn dot(text: &mut String, stack: &Stack) {
    let name = stack.name.as_deref().unwrap_or("stack");
    let _ = writeln!(
        text,
        "digraph {name:?} {{\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];"
    );
    cluster(text, stack, stack.entry, 1);
    for (id, node) in stack.iter() {
        let from = format!("n{}", id.0);
        let firsts: Vec<(String, NodeId)> = match &node.inner {
            Inner::Nothing => Vec::new(),
            Inner::PerKey(first) => vec![("per key".to_owned(), *first)],
            Inner::Branches(firsts) => {
                let branches = firsts.iter().enumerate();
                branches
                    .map(|(number, first)| (number.to_string(), *first))
                    .collect()
            }
        };
        for (label, first) in firsts {
            let _ = writeln!(text, "  {from} -> n{} [label={label:?}];", first.0);
        }
        // What comes out of the end of a row goes to what follows the container.
        let mut at = Some(id);
        while let Some(here) = at {
            let here = stack.node(here);
            if let Some(next) = here.next {
                let _ = writeln!(text, "  {from} -> n{} [label=\"{}\"];", next.0, node.output);
                break;
            }
            at = here.parent;
        }
    }
    text.push_str("}\n");
}

/// The components of a row, those inside a demultiplexer in a box.
fn cluster(text: &mut String, stack: &Stack, first: NodeId, depth: usize) {
    let indent = "  ".repeat(depth);
    for id in stack.row(first) {
        let node = stack.node(id);
        let _ = writeln!(text, "{indent}n{} [label={:?}];", id.0, node.label);
        match &node.inner {
            Inner::Nothing => {}
            Inner::PerKey(first) => {
                let label = format!("per key of {}", node.label);
                let _ = writeln!(
                    text,
                    "{indent}subgraph cluster_{} {{ style=dashed; label={label:?};",
                    id.0
                );
                cluster(text, stack, *first, depth + 1);
                let _ = writeln!(text, "{indent}}}");
            }
            Inner::Branches(firsts) => {
                for first in firsts {
                    cluster(text, stack, *first, depth);
                }
            }
        }
    }
}
