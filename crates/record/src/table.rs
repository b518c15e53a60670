//! Aligned tables for terminals.
//!
//! Encoding and layout are separate, because records can be encoded by several threads, but only
//! the thread that writes knows the columns: [`TableEncoder`] appends the cells of a record,
//! separated by [`SEPARATOR`]; [`TableLayout`] converts them to lines. Widths are those of the
//! first rows; a wider cell later widens its column from there on. If the terminal is too narrow,
//! text is shortened, and the least important columns are omitted.

use flowgauge_wire::Nanos;

use crate::schema::{Field, FieldKind, FieldVisitor, Record, Schema, Unit};
use crate::text::{TimeWriter, harmless, write_address, write_hex64, write_scaled, write_unsigned};
use crate::value::ValueRef;

/// ASCII "unit separator" between the cells of an encoded row.
pub const SEPARATOR: u8 = 0x1f;

/// Rows kept back until the column widths are fixed.
const ROWS_FOR_WIDTHS: usize = 200;

const GAP: usize = 2;

/// Text of this width stays before columns go; where none can go, it is shortened further.
const SHORT: usize = 24;

/// No column is narrower than this, or than its heading.
const NARROW: usize = 4;

/// The terminal on which a table is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Number of columns of the terminal; `None` if the output is not a terminal.
    pub width: Option<usize>,
    /// Whether kinds of values are coloured.
    pub has_colors: bool,
}

/// Appends records as rows of cells.
#[derive(Clone, Debug, Default)]
pub struct TableEncoder {
    time: TimeWriter,
}

impl TableEncoder {
    /// Appends the cells of `record` and a line feed.
    pub fn encode<R: Record>(&mut self, record: &R, out: &mut Vec<u8>) {
        record.visit(&mut CellVisitor {
            out,
            time: &mut self.time,
        });
        out.push(b'\n');
    }
}

struct CellVisitor<'a> {
    out: &'a mut Vec<u8>,
    time: &'a mut TimeWriter,
}

impl FieldVisitor for CellVisitor<'_> {
    /// What is in no table costs nothing where its field is known to the compiler.
    #[inline(always)]
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        if field.column.rank > 0 {
            self.cell(field, value);
        }
    }
}

impl CellVisitor<'_> {
    fn cell(&mut self, field: &'static Field, value: ValueRef<'_>) {
        let out = &mut *self.out;
        match value {
            ValueRef::Null => out.push(b'-'),
            ValueRef::Unsigned(value) if field.unit == Unit::Bytes && !field.column.exact => {
                write_scaled(out, value);
            }
            ValueRef::Unsigned(value) => write_unsigned(out, value),
            ValueRef::Float(value) => out.extend_from_slice(format!("{value:.3}").as_bytes()),
            ValueRef::Text(text) => write_harmless(out, text),
            ValueRef::Symbol(text) => out.extend_from_slice(text.as_bytes()),
            ValueRef::Hex(value) => write_hex64(out, value),
            ValueRef::Address(address, version) => write_address(out, address, version),
            ValueRef::Time(time) => {
                let text = self.time.format(time);
                out.extend_from_slice(&text[..10]);
                out.push(b' ');
                // Milliseconds are what the eye can use.
                out.extend_from_slice(&text[11..23]);
            }
            ValueRef::Duration(span) => out.extend_from_slice(human_duration(span).as_bytes()),
            ValueRef::List(list) => {
                for (n, value) in list.iter().enumerate() {
                    if n > 0 {
                        out.push(b'.');
                    }
                    write_unsigned(out, value);
                }
            }
            ValueRef::Texts(texts) => write_harmless(out, &texts.join(" ")),
            ValueRef::Object(Some(object)) => {
                // Its cells end with separators, of which none may be inside a cell.
                let start = out.len();
                let time = &mut *self.time;
                object.values(&mut PairVisitor(CellVisitor { out, time }));
                if self.out.len() > start {
                    self.out.pop();
                }
                for byte in self.out.iter_mut().skip(start) {
                    if *byte == SEPARATOR {
                        *byte = b' ';
                    }
                }
            }
            ValueRef::Object(None) => {}
        }
        self.out.push(SEPARATOR);
    }
}

/// Control characters could move the cursor or split the row.
fn write_harmless(out: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        let mut buffer = [0; 4];
        out.extend_from_slice(harmless(character).encode_utf8(&mut buffer).as_bytes());
    }
}

/// Cells of an object as `name=value`.
struct PairVisitor<'a>(CellVisitor<'a>);

impl FieldVisitor for PairVisitor<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        if field.column.rank > 0 {
            self.0.out.extend_from_slice(field.name.as_bytes());
            self.0.out.push(b'=');
        }
        self.0.value(field, value);
    }
}

/// A duration in a suitable unit: `820us`, `1.53ms`, `12.40s`, `1h02m`.
pub fn human_duration(duration: Nanos) -> String {
    let nanos = duration.0;
    match nanos {
        0 => "0".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}us", nanos / 1_000),
        1_000_000..1_000_000_000 => format!("{:.2}ms", nanos as f64 / 1e6),
        1_000_000_000..120_000_000_000 => format!("{:.2}s", nanos as f64 / 1e9),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = nanos / 1_000_000_000 % 60;
            if minutes < 60 {
                format!("{minutes}m{seconds:02}s")
            } else {
                format!("{}h{:02}m", minutes / 60, minutes % 60)
            }
        }
    }
}

/// Lays out encoded rows.
#[derive(Debug)]
pub struct TableLayout {
    columns: Vec<LaidColumn>,
    screen: Screen,
    waiting: Vec<u8>,
    waiting_rows: usize,
    started: bool,
}

#[derive(Debug)]
struct LaidColumn {
    heading: &'static str,
    rank: u8,
    right: bool,
    /// Whether what does not fit may be cut off.
    is_text: bool,
    /// How a terminal shows its values.
    color: &'static str,
    width: usize,
    shown: bool,
}

impl LaidColumn {
    fn least(&self) -> usize {
        match self.is_text {
            true => self.width.min(SHORT.max(self.narrowest())),
            false => self.width,
        }
    }

    fn narrowest(&self) -> usize {
        self.heading.chars().count().max(NARROW)
    }
}

impl TableLayout {
    /// A layout for records of `schema`.
    pub fn new(schema: Schema, screen: Screen) -> TableLayout {
        let columns = schema
            .iter()
            .filter(|field| field.column.rank > 0)
            .map(|field| LaidColumn {
                heading: field.column.heading,
                rank: field.column.rank,
                right: matches!(
                    field.kind,
                    FieldKind::Unsigned | FieldKind::Float | FieldKind::Duration
                ),
                is_text: matches!(
                    field.kind,
                    FieldKind::Text | FieldKind::Object | FieldKind::Texts
                ),
                color: match field.kind {
                    FieldKind::Time => "\x1b[2m",
                    FieldKind::Address => "\x1b[36m",
                    FieldKind::Text => "\x1b[32m",
                    _ => "",
                },
                width: field.column.heading.chars().count(),
                shown: true,
            })
            .collect();
        TableLayout {
            columns,
            screen,
            waiting: Vec::new(),
            waiting_rows: 0,
            started: false,
        }
    }

    /// Reads encoded rows; appends the lines whose layout is final to `out`.
    pub fn rows(&mut self, encoded: &[u8], out: &mut Vec<u8>) {
        if self.started {
            return self.lines(encoded, out);
        }
        self.waiting.extend_from_slice(encoded);
        self.waiting_rows += encoded.iter().filter(|&&byte| byte == b'\n').count();
        if self.waiting_rows >= ROWS_FOR_WIDTHS {
            self.flush(out);
        }
    }

    /// Appends all remaining rows.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting = core::mem::take(&mut self.waiting);
        if !self.started {
            self.measure(&waiting);
            self.choose_columns();
            self.shorten();
            self.heading(out);
            self.started = true;
        }
        self.lines(&waiting, out);
    }

    fn measure(&mut self, encoded: &[u8]) {
        for row in rows(encoded) {
            for (column, cell) in self.columns.iter_mut().zip(cells(row)) {
                column.width = column.width.max(cell_width(cell));
            }
        }
    }

    /// Hides columns from the least important on until a line fits.
    fn choose_columns(&mut self) {
        let Some(terminal_width) = self.screen.width else {
            return;
        };
        loop {
            if self.line_width(LaidColumn::least) <= terminal_width {
                return;
            }
            // The last of the columns with the largest rank. Those of rank 1 stay, even if lines
            // wrap: without them a line says nothing.
            let mut victim: Option<&mut LaidColumn> = None;
            let may_go = |column: &&mut LaidColumn| column.shown && column.rank > 1;
            for column in self.columns.iter_mut().filter(may_go) {
                if victim
                    .as_ref()
                    .is_none_or(|found| column.rank >= found.rank)
                {
                    victim = Some(column);
                }
            }
            let Some(victim) = victim else {
                return;
            };
            victim.shown = false;
        }
    }

    /// Takes from the widest text until a line fits.
    fn shorten(&mut self) {
        let Some(terminal_width) = self.screen.width else {
            return;
        };
        while self.line_width(|column| column.width) > terminal_width {
            let columns = self.columns.iter_mut();
            let can_give = columns.filter(|it| it.shown && it.is_text && it.width > it.narrowest());
            match can_give.max_by_key(|column| column.width) {
                Some(widest) => widest.width -= 1,
                None => return,
            }
        }
    }

    /// Width of a line with columns of these widths.
    fn line_width(&self, width: impl Fn(&LaidColumn) -> usize) -> usize {
        let shown = self.columns.iter().filter(|column| column.shown);
        let line: usize = shown.map(|column| width(column) + GAP).sum();
        line.saturating_sub(GAP)
    }

    /// A later cell is wider than its column, which widens: of text as far as a line has room.
    #[cold]
    fn widen(&mut self, column: usize, cell: usize) {
        let line = self.line_width(|column| column.width);
        let room = self.screen.width.map(|width| width.saturating_sub(line));
        if let Some(column) = self.columns.get_mut(column) {
            let most = match room.filter(|_| column.is_text) {
                Some(room) => column.width + room,
                None => usize::MAX,
            };
            column.width = cell.min(most).max(column.width);
        }
    }

    fn heading(&self, out: &mut Vec<u8>) {
        let mut line = Line::default();
        for column in self.columns.iter().filter(|column| column.shown) {
            let bold = if self.screen.has_colors {
                "\x1b[1m"
            } else {
                ""
            };
            line.cell(column, column.heading.as_bytes(), bold, out);
        }
        line.end(out);
    }

    fn lines(&mut self, encoded: &[u8], out: &mut Vec<u8>) {
        for row in rows(encoded) {
            let mut line = Line::default();
            for (number, cell) in cells(row).enumerate().take(self.columns.len()) {
                if !self.columns[number].shown {
                    continue;
                }
                if cell_width(cell) > self.columns[number].width {
                    self.widen(number, cell_width(cell));
                }
                let column = &self.columns[number];
                let color = if self.screen.has_colors {
                    column.color
                } else {
                    ""
                };
                line.cell(column, cell, color, out);
            }
            line.end(out);
        }
    }
}

fn rows(encoded: &[u8]) -> impl Iterator<Item = &[u8]> {
    encoded
        .split(|&byte| byte == b'\n')
        .filter(|row| !row.is_empty())
}

fn cells(row: &[u8]) -> impl Iterator<Item = &[u8]> {
    row.split(|&byte| byte == SEPARATOR)
}

/// Characters of a cell: UTF-8 continuation bytes take no room.
fn cell_width(cell: &[u8]) -> usize {
    cell.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

/// So many characters of a cell.
fn beginning(cell: &[u8], characters: usize) -> &[u8] {
    let begins = |(_, byte): &(usize, &u8)| **byte & 0xc0 != 0x80;
    let next = cell.iter().enumerate().filter(begins).nth(characters);
    cell.get(..next.map_or(cell.len(), |(at, _)| at))
        .unwrap_or(cell)
}

/// Pads lazily, so that no line ends in spaces.
#[derive(Default)]
struct Line {
    owed: usize,
}

impl Line {
    fn cell(&mut self, column: &LaidColumn, cell: &[u8], color: &str, out: &mut Vec<u8>) {
        let is_cut = cell_width(cell) > column.width;
        let padding = column.width.saturating_sub(cell_width(cell));
        if column.right {
            self.owed += padding;
        }
        if !cell.is_empty() {
            out.resize(out.len() + self.owed, b' ');
            self.owed = 0;
            out.extend_from_slice(color.as_bytes());
            match is_cut {
                true => {
                    out.extend_from_slice(beginning(cell, column.width.saturating_sub(1)));
                    out.extend_from_slice("\u{2026}".as_bytes());
                }
                false => out.extend_from_slice(cell),
            }
            if !color.is_empty() {
                out.extend_from_slice(b"\x1b[0m");
            }
        }
        self.owed += GAP + if column.right { 0 } else { padding };
    }

    fn end(self, out: &mut Vec<u8>) {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_stream::StreamIdentity;
    use flowgauge_wire::Address;

    use super::*;
    use crate::schema::{MadeField, kept};
    use crate::stream::{STREAM_SCHEMA, StreamRow};

    fn row(bytes: u64, last_octet: u8) -> StreamRow<'static> {
        StreamRow {
            identity: StreamIdentity {
                flow_id: 1,
                source: (Address::v4([192, 0, 2, last_octet]), 50956),
                destination: (Address::v4([198, 51, 100, 7]), 80),
                version: 4,
                protocol: 6,
                ..StreamIdentity::default()
            },
            bytes,
            state: "fin",
            ..StreamRow::default()
        }
    }

    fn table(width: Option<usize>, rows: &[StreamRow<'_>]) -> String {
        let has_colors = false;
        let mut layout = TableLayout::new(STREAM_SCHEMA, Screen { width, has_colors });
        let (mut cells, mut out) = (Vec::new(), Vec::new());
        let mut encoder = TableEncoder::default();
        for row in rows {
            encoder.encode(row, &mut cells);
        }
        layout.rows(&cells, &mut out);
        layout.flush(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_right_aligned_and_lines_end_without_spaces() {
        let text = table(None, &[row(5, 1), row(12_345_678, 200)]);
        assert_eq!(
            text,
            "\
SOURCE        PORT  DESTINATION   PORT  PROTO  BYTES  MISSING  GAPS  STATE
192.0.2.1    50956  198.51.100.7    80  tcp        5        0     0  fin
192.0.2.200  50956  198.51.100.7    80  tcp    12.3M        0     0  fin
"
        );
    }

    #[test]
    fn a_narrow_terminal_loses_the_least_important_columns() {
        let text = table(Some(60), &[row(5, 1)]);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(60), "{text}");
        assert!(text.starts_with("SOURCE"), "{text}");
        assert!(text.contains("BYTES"), "{text}");
    }

    #[test]
    fn columns_of_the_first_rank_stay_however_narrow_the_terminal() {
        let text = table(Some(10), &[row(5, 1)]);
        assert_eq!(
            text.lines().next(),
            Some("SOURCE     DESTINATION   BYTES"),
            "{text}"
        );
    }

    /// Lines of a table of a text and a number.
    fn texts(width: usize, texts: &[&str]) -> String {
        let field = |name: &str, kind| {
            let made = MadeField {
                name: name.to_owned(),
                kind,
                unit: Unit::None,
                heading: name.to_owned(),
                rank: 1,
                exact: true,
                help: String::new(),
            };
            made.kept()
        };
        let fields = [
            field("TEXT", FieldKind::Text),
            field("N", FieldKind::Unsigned),
        ];
        let screen = Screen {
            width: Some(width),
            has_colors: true,
        };
        let mut layout = TableLayout::new(kept(fields.into_iter()), screen);
        let mut out = Vec::new();
        for text in texts {
            layout.rows(format!("{text}\x1f1\x1f\n").as_bytes(), &mut out);
            layout.flush(&mut out);
        }
        let text = String::from_utf8(out).unwrap();
        text.replace("\x1b[0m", ".")
            .replace("\x1b[32m", "'")
            .replace("\x1b[1m", "^")
    }

    #[test]
    fn text_is_shortened_where_the_terminal_is_narrow() {
        assert_eq!(
            texts(10, &["abcdefghij", "k\u{e9}lmnopqr"]),
            "^TEXT.     ^N.\n'abcdef\u{2026}.  1\n'k\u{e9}lmno\u{2026}.  1\n"
        );
        // What comes later widens its column as far as there is room.
        assert_eq!(
            texts(10, &["ab", "abcdefghij"]),
            "^TEXT.  ^N.\n'ab.    1\n'abcdef\u{2026}.  1\n"
        );
        // A heading is never shortened.
        assert_eq!(texts(1, &["abcdefghij"]), "^TEXT.  ^N.\n'abc\u{2026}.  1\n");
    }

    #[test]
    fn totals_are_exact() {
        let totals = crate::totals::TotalsRow {
            bytes: 19_123_456,
            ..Default::default()
        };
        let mut cells = Vec::new();
        TableEncoder::default().encode(&totals, &mut cells);
        let cells = String::from_utf8(cells).unwrap();
        assert!(cells.contains("19123456"), "{cells}");
    }

    #[test]
    fn nothing_is_written_for_no_rows() {
        assert_eq!(table(None, &[]), "");
    }

    #[test]
    fn durations_for_people() {
        for (nanos, expected) in [
            (0, "0"),
            (999, "999ns"),
            (820_000, "820us"),
            (1_530_000, "1.53ms"),
            (12_400_000_000, "12.40s"),
            (3_720_000_000_000, "1h02m"),
            (125_000_000_000, "2m05s"),
        ] {
            assert_eq!(human_duration(Nanos(nanos)), expected);
        }
    }
}
