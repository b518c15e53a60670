//! Results of stacks as users are told, and since when they count.

use std::time::SystemTime;

use flowgauge_record::results::{Cell, Table, TableColumn};
use flowgauge_record::schema::FieldKind;
use flowgauge_runtime::stacks::StackState;
use flowgauge_sensor_client::protocol::{ComponentResult, Results};
use flowgauge_stack::{ComponentKind, NodeId, Parallel, ResultValue, Stack};
use serde_json::{Map, Value};

use crate::readers::TO_BUFFER;

/// Whether several flows can have one such stack in common, whenever each began: what it passes on does not depend on what
/// it saw before, and what it counts since a moment is a difference.
pub(crate) fn is_shared(stack: &Stack, state: &StackState) -> bool {
    let components = stack.nodes.iter().zip(&state.components);
    components.into_iter().all(|(node, state)| {
        // Its packets go to whoever reads.
        let counts = node.info.name == TO_BUFFER
            || match &state.result {
                Some(ResultValue::Sum(_) | ResultValue::Difference(_)) => true,
                Some(_) => false,
                None => node.info.result.is_none(),
            };
        counts
            && !(node.info.effects)(&node.settings)
            && node.info.kind == ComponentKind::Simple
            && (node.info.parallel == Parallel::Anyhow || node.info.name == TO_BUFFER)
    })
}

/// What has come since others.
pub(crate) fn since(mut results: Results, base: &Results) -> Results {
    for (mine, theirs) in results.components.iter_mut().zip(&base.components) {
        mine.items = mine.items.saturating_sub(theirs.items);
        if let (Some(value), Some(before)) = (&mine.value, &theirs.value) {
            let since = exact(value).unwrap_or(0) - exact(before).unwrap_or(0);
            mine.value = Some(number(since));
        }
    }
    results
}

/// What is known of a stack as it is told, without its first components that are `hidden`.
pub(crate) fn results(
    stack: &Stack,
    hidden: usize,
    state: &StackState,
    failure: Option<String>,
    is_last: bool,
) -> Results {
    let nodes = (0..).map(NodeId).zip(stack.nodes.iter()).skip(hidden);
    let components = nodes.map(|(id, node)| {
        let known = state.component(id);
        let result = known.and_then(|state| state.result.as_ref());
        let info = node.info.result.filter(|_| result.is_some());
        ComponentResult {
            component: node.label.clone(),
            items: known.map_or(0, |state| state.passed.items),
            result: info.map(|info| info.summary.to_owned()),
            unit: info.map(|info| info.unit.to_owned()),
            value: result.and_then(|result| result.number()).map(number),
            rows: match result {
                Some(ResultValue::Table(table)) => Some(rows(table)),
                _ => None,
            },
            times: match result {
                Some(ResultValue::Table(table)) => times(table),
                _ => Vec::new(),
            },
        }
    });
    Results {
        time: now(),
        is_last,
        failure,
        lost: 0,
        components: components.collect(),
    }
}

/// A whole number.
pub(crate) fn exact(value: &Value) -> Option<i128> {
    let unsigned = value.as_u64().map(i128::from);
    unsigned.or_else(|| value.as_i64().map(i128::from))
}

fn number(number: i128) -> Value {
    match (u64::try_from(number), i64::try_from(number)) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(number)) => Value::from(number),
        _ => Value::Null,
    }
}

/// The rows of a table, what stands above it first.
fn rows(table: &Table) -> Vec<Map<String, Value>> {
    let cells = |columns: &[TableColumn], cells: &[Cell]| {
        let cells = columns.iter().zip(cells);
        let cells = cells.map(|(column, cell)| (column.field.name.to_owned(), value(cell)));
        cells.collect()
    };
    let head = table.head.as_deref().into_iter();
    let tables = head.chain([table]);
    let rows = tables.flat_map(|table| table.rows.iter().map(|row| cells(table.columns, row)));
    rows.collect()
}

/// The columns that are times.
fn times(table: &Table) -> Vec<String> {
    let tables = table.head.as_deref().into_iter().chain([table]);
    let columns = tables.flat_map(|table| table.columns);
    let times = columns.filter(|column| column.field.kind == FieldKind::Time);
    times.map(|column| column.field.name.to_owned()).collect()
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::None => Value::Null,
        Cell::Unsigned(value) => Value::from(*value),
        Cell::Signed(value) => Value::from(*value),
        Cell::Float(value) => Value::from(*value),
        Cell::Time(time) => Value::from(time.0),
        _ => Value::from(cell.to_string()),
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
