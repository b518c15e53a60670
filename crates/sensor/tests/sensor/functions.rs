//! Every function of MAPI, on captures of others: a flow gives what its stack gives over the file.

use std::fmt::Write as _;

use flowgauge_record::results::{Cell, Table, TableColumn};
use flowgauge_stack::Program;
use serde_json::{Map, Value};

use super::*;

#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;

/// So that no table forgets rows that were not taken.
const MOST_BYTES: u64 = 60 << 10;
const CAPTURES: usize = 8;

/// A component's items, number and rows, in no order.
type Told = (String, u64, String, Vec<String>);

fn row(cells: impl Iterator<Item = (String, String)>) -> String {
    let mut text = String::new();
    for (name, value) in cells.filter(|(name, _)| name != "number") {
        let _ = write!(text, "{name}={value} ");
    }
    text
}

fn rows_of(table: &Table) -> Vec<String> {
    let value = |cell: &Cell| match cell {
        Cell::None => "null".to_owned(),
        Cell::Time(time) => time.0.to_string(),
        Cell::Float(value) => Value::from(*value).to_string(),
        Cell::Unsigned(value) => value.to_string(),
        Cell::Signed(value) => value.to_string(),
        cell => cell.to_string(),
    };
    let one = |columns: &[TableColumn], cells: &[Cell]| {
        row(columns
            .iter()
            .zip(cells)
            .map(|(it, cell)| (it.field.name.to_owned(), value(cell))))
    };
    let tables = table.head.as_deref().into_iter().chain([table]);
    let rows = tables.flat_map(|table| table.rows.iter().map(|row| one(table.columns, row)));
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

fn rows_told(rows: &[Map<String, Value>], order: &[String]) -> Vec<String> {
    let value = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let one = |it: &Map<String, Value>| {
        let names = order.iter().filter(|name| it.contains_key(*name));
        row(names.map(|name| (name.clone(), value(&it[name]))))
    };
    let mut rows: Vec<String> = rows.iter().map(one).collect();
    rows.sort();
    rows
}

fn program(stack: &str) -> Program {
    let mut sources = Sources::default();
    let text = sources.add("test", stack.to_owned()).unwrap();
    let body = parse_stack(&sources, text).unwrap_or_else(|_| panic!("{stack}"));
    check(&Document::of(body), registry())
        .program
        .unwrap_or_else(|| panic!("{stack}"))
}

/// What a stack tells over a file, and the columns of its tables.
fn over_file(stack: &str, file: &Path) -> (Vec<Told>, Vec<String>) {
    let mut runner = Runner::new(program(stack), &RunnerOptions::default()).unwrap();
    let mut source = open(file).unwrap();
    while let Ok(Some(_)) = runner.step(&mut *source) {}
    runner.finish();
    let snapshot = runner.snapshot();
    let mut order = Vec::new();
    let nodes = runner.stacks()[0].nodes.iter();
    let told = nodes
        .zip(&snapshot.stacks[0].components)
        .map(|(node, state)| {
            let rows = match &state.result {
                Some(ResultValue::Table(table)) => {
                    let tables = table.head.as_deref().into_iter().chain([table]);
                    let columns = tables.flat_map(|table| table.columns.iter());
                    order.extend(columns.map(|column| column.field.name.to_owned()));
                    rows_of(table)
                }
                _ => Vec::new(),
            };
            let number = state.result.as_ref().and_then(ResultValue::number);
            let number = number.map_or_else(String::new, |number| number.to_string());
            (node.label.clone(), state.passed.items, number, rows)
        });
    (told.collect(), order)
}

fn of_flow(results: &Results, order: &[String]) -> Vec<Told> {
    let components = results.components.iter().map(|it| {
        let number = it.value.as_ref().map_or_else(String::new, Value::to_string);
        let rows = rows_told(it.rows.as_deref().unwrap_or_default(), order);
        (it.component.clone(), it.items, number, rows)
    });
    components.collect()
}

/// Some small captures, from all over the folder.
fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_capture = path
                .extension()
                .is_some_and(|it| it == "pcap" || it == "pcapng");
            if path.is_dir() {
                folders.push(path);
            } else if is_capture
                && path
                    .metadata()
                    .is_ok_and(|it| (2_000..MOST_BYTES).contains(&it.len()))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    let stride = found.len() / CAPTURES;
    found
        .into_iter()
        .step_by(stride.max(1))
        .filter(|path| open(path).is_ok())
        .collect()
}

#[test]
fn every_function_gives_over_captures_what_its_stack_gives_over_the_file() {
    let Some(folder) = corpora::corpora() else {
        return;
    };
    let captures = captures(&folder);
    let stacks = flowgauge_mapi::EXAMPLES.iter().filter_map(|text| {
        let text = text.replace("100ms", "10m");
        let stack = flowgauge_mapi::flow(&text).unwrap();
        stack.targets.is_empty().then_some((text, stack.text))
    });
    let trackers = flowgauge_mapi::FUNCTIONS
        .iter()
        .filter(|it| it.library == "trackflib");
    let trackers = trackers.map(|it| {
        let text = format!("{} PKT_COUNTER", it.name);
        let stack = flowgauge_mapi::flow(&text).unwrap();
        (text, stack.text)
    });
    let stacks: Vec<(String, String)> = stacks.chain(trackers).collect();
    assert!(stacks.len() > 35);
    for workers in [1, 2] {
        let mut tables = String::new();
        for (at, capture) in captures.iter().enumerate() {
            let path = capture.display();
            let _ = writeln!(
                tables,
                "[devices.c{at}]\nfiles = [\"{path}\"]\nhold = true\nworkers = {workers}"
            );
        }
        let running = Running::start(workers, &tables);
        let client = running.client();
        for (at, capture) in captures.iter().enumerate() {
            let device = format!("c{at}");
            let flows: Vec<_> = stacks
                .iter()
                .map(|(text, stack)| (text, stack, client.open(&device, stack, &[])))
                .collect();
            client.start(&device).unwrap();
            for (text, stack, flow) in flows {
                // A filter that does not fit the link type is refused.
                let mut flow = match flow {
                    Ok(flow) => flow,
                    Err(ClientError::Refused(refusal)) => {
                        assert!(refusal.error.contains("expression"), "{refusal:?}");
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                while flow.next(Duration::from_secs(30)).unwrap().is_some() {}
                let results = last(&flow);
                assert_eq!(results.failure, None, "{text} {}", capture.display());
                let (expected, order) = over_file(stack, capture);
                let has_buffer = text.contains("TO_BUFFER");
                for (told, expected) in of_flow(&results, &order).into_iter().zip(expected) {
                    let is_buffer = has_buffer && told.0.starts_with('f');
                    let (mut told, mut expected) = (told, expected);
                    if is_buffer {
                        // Its packets went to the user.
                        told.3.clear();
                        expected.3.clear();
                    }
                    assert_eq!(
                        told,
                        expected,
                        "{text}, {} with {workers}",
                        capture.display()
                    );
                }
            }
        }
    }
}
