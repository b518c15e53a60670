//! Records about the results of components.

use core::cmp::Ordering;
use core::fmt;
use core::net::IpAddr;

use flowgauge_wire::Nanos;

use crate::schema::{Field, FieldKind, FieldVisitor, JsonKey, Record, Unit, record};
use crate::value::{FieldValue, Object, ValueRef, address_of, kind};

record! {
    /// Fields of a [`ResultRow`].
    RESULT, RESULT_SCHEMA for ResultRow<'_> as it:
    stack Text "STACK" 3 = it.stack, "name of the stack, if it has one";
    component Text "COMPONENT" 1 = it.component, "label of the component in its stack";
    result Text "RESULT" 2 = it.result, "what it is";
    value Unsigned "VALUE" 1 = it.value, "the value; null for a table";
    unit Text "UNIT" 1 = it.unit, "its unit";
    row Object "ROW" 1 = Object(it.row), "a row of a table; null for a number";
}

/// The result of a component of a stack: a number, or a row of a table.
#[derive(Clone, Copy, Debug)]
pub struct ResultRow<'a> {
    /// The stack's name.
    pub stack: Option<&'a str>,
    /// The component's label.
    pub component: &'a str,
    /// The description of the result.
    pub result: &'a str,
    /// Its value.
    pub value: Value<'a>,
    /// Its unit.
    pub unit: &'a str,
    /// A row of a table.
    pub row: Option<TableRow<'a>>,
}

impl fmt::Display for ResultRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.row {
            Some(row) => write!(f, "{}: {row}, {}", self.component, self.result),
            None => {
                let value = self.value.0;
                write!(
                    f,
                    "{}: {value} {}, {}",
                    self.component, self.unit, self.result
                )
            }
        }
    }
}

record! {
    /// Fields of a [`ReadingRow`].
    READING, READING_SCHEMA for ReadingRow<'_> as it:
    time Time "TIME" 1 = it.time, "when it was read";
    component Text "COMPONENT" 1 = it.component, "label of the component in its stack";
    value Unsigned "VALUE" 1 = it.value, "the value; null for a table";
    row Object "ROW" 1 = Object(it.row), "a row of a table; null for a number";
}

/// A component's result at a time: a number, or a row of a table.
#[derive(Clone, Copy, Debug)]
pub struct ReadingRow<'a> {
    /// When it was read.
    pub time: Nanos,
    /// The component's label.
    pub component: &'a str,
    /// Its value.
    pub value: Value<'a>,
    /// A row of a table.
    pub row: Option<TableRow<'a>>,
}

/// A value in a table of results.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cell {
    /// Unknown.
    None,
    /// A whole number.
    Unsigned(u64),
    /// A signed whole number.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(String),
    /// An IP address.
    Address(IpAddr),
    /// A point in time.
    Time(Nanos),
}

/// A [`Cell`], borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(pub &'a Cell);

impl FieldValue<kind::Unsigned> for Value<'_> {
    fn give<V: FieldVisitor>(self, field: &'static Field, visitor: &mut V) {
        visitor.value(field, self.0.as_ref());
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::None => f.write_str("-"),
            Cell::Unsigned(value) => value.fmt(f),
            Cell::Signed(value) => value.fmt(f),
            Cell::Float(value) => value.fmt(f),
            Cell::Text(value) => value.fmt(f),
            Cell::Address(value) => value.fmt(f),
            Cell::Time(value) => {
                let (seconds, nanos) = (value.0 / 1_000_000_000, value.0 % 1_000_000_000);
                write!(f, "{seconds}.{nanos:09}")
            }
        }
    }
}

impl Cell {
    fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Cell::None => ValueRef::Null,
            Cell::Unsigned(value) => ValueRef::Unsigned(*value),
            Cell::Signed(value) => match u64::try_from(*value) {
                Ok(value) => ValueRef::Unsigned(value),
                Err(_) => ValueRef::Float(*value as f64),
            },
            Cell::Float(value) => ValueRef::Float(*value),
            Cell::Text(value) => ValueRef::Text(value),
            Cell::Address(address) => address_of(*address),
            Cell::Time(value) => ValueRef::Time(*value),
        }
    }

    /// The value as a floating-point number, if it is a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Unsigned(value) => Some(*value as f64),
            Cell::Signed(value) => Some(*value as f64),
            Cell::Float(value) => Some(*value),
            Cell::Time(value) => Some(value.0 as f64 / 1e9),
            Cell::None | Cell::Text(_) | Cell::Address(_) => None,
        }
    }

    fn compare(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Unsigned(mine), Cell::Unsigned(theirs)) => mine.cmp(theirs),
            (Cell::Signed(mine), Cell::Signed(theirs)) => mine.cmp(theirs),
            (Cell::Text(mine), Cell::Text(theirs)) => mine.cmp(theirs),
            (Cell::Address(mine), Cell::Address(theirs)) => mine.cmp(theirs),
            (Cell::Time(mine), Cell::Time(theirs)) => mine.cmp(theirs),
            (mine, theirs) => match (mine.number(), theirs.number()) {
                (Some(mine), Some(theirs)) => mine.total_cmp(&theirs),
                (mine, theirs) => mine.is_some().cmp(&theirs.is_some()),
            },
        }
    }

    fn add(&mut self, other: &Cell) {
        *self = match (&*self, other) {
            (Cell::Unsigned(mine), Cell::Unsigned(theirs)) => {
                Cell::Unsigned(mine.saturating_add(*theirs))
            }
            (Cell::Signed(mine), Cell::Signed(theirs)) => {
                Cell::Signed(mine.saturating_add(*theirs))
            }
            (mine, theirs) => match (mine.number(), theirs.number()) {
                (Some(mine), Some(theirs)) => Cell::Float(mine + theirs),
                (None, _) => other.clone(),
                (_, None) => return,
            },
        };
    }

    fn is_none(&self) -> bool {
        *self == Cell::None
    }
}

/// How the values of two rows are merged when tables of several cores are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Rows with equal keys are merged.
    Key,
    /// They are added.
    Sum,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
}

/// A column of a table of results.
#[derive(Debug, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name, kind of value, and meaning.
    pub field: Field,
    /// How it is merged.
    pub merge: Merge,
}

impl TableColumn {
    /// A column.
    pub const fn new(
        name: &'static str,
        kind: FieldKind,
        merge: Merge,
        help: &'static str,
    ) -> TableColumn {
        TableColumn {
            field: Field {
                name,
                json_key: JsonKey::new(name),
                kind,
                unit: Unit::None,
                column: crate::schema::Column {
                    heading: name,
                    rank: 1,
                    exact: true,
                },
                help,
            },
            merge,
        }
    }
}

/// A result with more than one number.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its columns.
    pub columns: &'static [TableColumn],
    /// Its rows, with one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// The column by which it is sorted, the largest first; `None`: by its keys, and without keys
    /// in the order of arrival.
    pub largest_of: Option<usize>,
    /// Maximum number of rows; others are cut off.
    pub max_rows: usize,
    /// Whether rows with the same values in the first two columns are cut off together, and count
    /// as one.
    pub is_grouped: bool,
    /// A table of one row above it, with information that is not in the rows.
    pub head: Option<Box<Table>>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: &'static [TableColumn], max_rows: usize) -> Table {
        Table {
            columns,
            rows: Vec::new(),
            largest_of: None,
            max_rows,
            is_grouped: false,
            head: None,
        }
    }

    /// Its rows as records, the row above it first.
    pub fn iter(&self) -> impl Iterator<Item = TableRow<'_>> {
        let head = self.head.as_deref().into_iter();
        head.chain([self]).flat_map(|table| {
            table.rows.iter().map(|cells| TableRow {
                columns: table.columns,
                cells,
            })
        })
    }

    /// Merges the table of the same component on another core.
    pub fn merge(&mut self, other: &Table) {
        match (&mut self.head, &other.head) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(_), None) => {}
        }
        self.rows.extend_from_slice(&other.rows);
        let columns = self.columns;
        let has_key = columns.iter().any(|column| column.merge == Merge::Key);
        // Without keys rows are events, unless there is one row only, of sums.
        if has_key || self.max_rows == 1 {
            self.rows.sort_by(|a, b| compare_keys(columns, a, b));
            self.rows.dedup_by(|later, earlier| {
                let is_same = compare_keys(columns, earlier, later) == Ordering::Equal;
                if is_same {
                    join(columns, earlier, later);
                }
                is_same
            });
        }
        self.arrange();
    }

    /// Sorts the table and cuts off rows.
    pub fn arrange(&mut self) {
        if let Some(column) = self.largest_of {
            self.rows.sort_by(|a, b| {
                let of = |at: usize| {
                    let (a, b) = (a.get(at), b.get(at));
                    (a.unwrap_or(&Cell::None), b.unwrap_or(&Cell::None))
                };
                let ((a, b), (first, second)) = (of(column), of(0));
                b.compare(a).then_with(|| first.compare(second))
            });
        }
        self.rows.truncate(self.rows_kept());
    }

    /// How many of the sorted rows are within the bound.
    fn rows_kept(&self) -> usize {
        if !self.is_grouped {
            return self.max_rows;
        }
        let groups = self
            .rows
            .chunk_by(|a, b| a.iter().zip(b).take(2).all(|(a, b)| a == b));
        groups.take(self.max_rows).map(<[Vec<Cell>]>::len).sum()
    }
}

fn compare_keys(columns: &[TableColumn], a: &[Cell], b: &[Cell]) -> Ordering {
    let cells = columns.iter().zip(a.iter().zip(b));
    let keys = cells.filter(|(column, _)| column.merge == Merge::Key);
    keys.map(|(_, (a, b))| a.compare(b))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn join(columns: &[TableColumn], mine: &mut [Cell], theirs: &[Cell]) {
    for (column, (mine, theirs)) in columns.iter().zip(mine.iter_mut().zip(theirs)) {
        let takes_theirs = match column.merge {
            Merge::Key => false,
            Merge::Sum => {
                mine.add(theirs);
                false
            }
            Merge::Min => mine.is_none() || (!theirs.is_none() && theirs.compare(mine).is_lt()),
            Merge::Max => mine.is_none() || (!theirs.is_none() && theirs.compare(mine).is_gt()),
        };
        if takes_theirs {
            *mine = theirs.clone();
        }
    }
}

/// One row of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct TableRow<'a> {
    columns: &'static [TableColumn],
    cells: &'a [Cell],
}

impl TableRow<'_> {
    /// The value of a column.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        let mut columns = self.columns.iter();
        let index = columns.position(|column| column.field.name == name)?;
        self.cells.get(index)
    }
}

impl fmt::Display for TableRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (column, cell)) in self.columns.iter().zip(self.cells).enumerate() {
            let separator = if number == 0 { "" } else { " " };
            write!(f, "{separator}{}={cell}", column.field.name)?;
        }
        Ok(())
    }
}

impl Record for TableRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        for (column, cell) in self.columns.iter().zip(self.cells) {
            visitor.value(&column.field, cell.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::{Encoder, Format};

    fn text(row: &ResultRow<'_>, format: Format) -> String {
        let mut text = Vec::new();
        Encoder::new(format).encode(row, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_result_has_a_place_and_a_unit() {
        let mut row = ResultRow {
            stack: None,
            component: "count(1)",
            result: "items so far",
            value: Value(&Cell::Unsigned(7)),
            unit: "items",
            row: None,
        };
        assert_eq!(
            text(&row, Format::Json),
            "{\"stack\":null,\"component\":\"count(1)\",\"result\":\"items so far\",\"value\":7,\
             \"unit\":\"items\",\"row\":null}\n"
        );
        row.value = Value(&Cell::Signed(-7));
        assert!(text(&row, Format::Json).contains("\"value\":-7"));
    }

    static COLUMNS: [TableColumn; 4] = [
        TableColumn::new("host", FieldKind::Address, Merge::Key, "who"),
        TableColumn::new("packets", FieldKind::Unsigned, Merge::Sum, "how many"),
        TableColumn::new("least", FieldKind::Unsigned, Merge::Min, "smallest"),
        TableColumn::new("most", FieldKind::Unsigned, Merge::Max, "largest"),
    ];

    fn row(host: u8, packets: u64, least: Cell, most: Cell) -> Vec<Cell> {
        let host = Cell::Address(IpAddr::from([192, 0, 2, host]));
        vec![host, Cell::Unsigned(packets), least, most]
    }

    #[test]
    fn tables_of_two_cores_are_one() {
        let of = |rows| Table {
            rows,
            largest_of: Some(1),
            ..Table::new(&COLUMNS, 2)
        };
        let three = Cell::Unsigned(3);
        let mut mine = of(vec![
            row(1, 5, three.clone(), three.clone()),
            row(2, 4, Cell::None, Cell::None),
        ]);
        let theirs = of(vec![
            row(2, 3, three.clone(), Cell::Unsigned(9)),
            row(3, 1, Cell::None, Cell::None),
            row(1, 1, Cell::Unsigned(2), Cell::Unsigned(2)),
        ]);
        mine.merge(&theirs);
        assert_eq!(
            mine.rows,
            [
                row(2, 7, three.clone(), Cell::Unsigned(9)),
                row(1, 6, Cell::Unsigned(2), three),
            ]
        );
    }

    #[test]
    fn rows_of_a_group_stay_or_go_together() {
        let of = |rows| Table {
            rows,
            largest_of: Some(1),
            is_grouped: true,
            ..Table::new(&COLUMNS[1..], 2)
        };
        let row =
            |group: u64, size: u64, value: u64| [group, size, value].map(Cell::Unsigned).to_vec();
        let mut mine = of(vec![row(7, 5, 1), row(7, 5, 2), row(9, 3, 1)]);
        let theirs = of(vec![row(8, 4, 2), row(8, 4, 1), row(8, 4, 3)]);
        mine.merge(&theirs);
        let sizes: Vec<&Cell> = mine.rows.iter().map(|row| &row[0]).collect();
        assert_eq!(sizes, [7, 7, 8, 8, 8].map(Cell::Unsigned).each_ref());
        assert_eq!(mine.rows[2..], [row(8, 4, 2), row(8, 4, 1), row(8, 4, 3)]);
    }

    #[test]
    fn a_row_of_a_table_is_an_object() {
        let table = Table {
            rows: vec![row(1, 5, Cell::None, Cell::Float(2.5))],
            ..Table::new(&COLUMNS, 10)
        };
        let row = ResultRow {
            stack: None,
            component: "top",
            result: "the most",
            value: Value(&Cell::None),
            unit: "rows",
            row: table.iter().next(),
        };
        let json = text(&row, Format::Json);
        assert!(
            json.ends_with(
                "\"value\":null,\"unit\":\"rows\",\
                 \"row\":{\"host\":\"192.0.2.1\",\"packets\":5,\"least\":null,\"most\":2.5}}\n"
            ),
            "{json}"
        );
        let cells = text(&row, Format::Table);
        assert!(
            cells.contains("host=192.0.2.1 packets=5 least=- most=2.500"),
            "{cells}"
        );
    }
}
