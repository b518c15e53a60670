//! `flowgauge top`

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use flowgauge_kit::terminal;
use flowgauge_record::results::Cell;
use flowgauge_record::text::{harmless_lines, write_scaled};
use flowgauge_runtime::stacks::Snapshot;
use flowgauge_stack::{ResultValue, Stack};
use flowgauge_sys::ending;
use flowgauge_wire::{Ledger, Nanos};

use crate::failure::Failure;
use crate::options::{TopOptions, View};
use crate::page::Page;
use crate::preset::Preset;
use crate::say::say;
use crate::stack::print;
use crate::stack::watch::Watched;
use crate::summary::ledger_line;

const STACK: &str = include_str!("../../../stacks/top.stack");

/// How long a key that was pressed may wait for the packets at hand, at most.
const NO_WAIT: Duration = Duration::ZERO;

/// Lines where the page goes nowhere that has a height.
const LINES: usize = 24;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &TopOptions) -> Result<(), Failure> {
    let preset = Preset::new("flowgauge top", STACK)?;
    if options.preset.show_stack {
        return preset.run(true, &options.input, &options.common);
    }
    if options.every.0 < 100_000_000 {
        return Err(Failure::usage(
            "--every is less than 100ms",
            "a page is drawn ten times a second at most",
        ));
    }
    let is_shown = std::io::stdout().is_terminal();
    if !is_shown && !options.common.quiet {
        say!("note: standard output is not a terminal: the page is printed at the end");
    }
    let shown = Shown {
        view: options.view,
        sort: Sort::Bytes,
    };
    let every = Duration::from_nanos(options.every.0);
    let top = Top {
        page: None,
        shown,
        every,
        next: Instant::now(),
        has_quit: false,
        live_since: (!options.input.interface.is_empty()).then(Instant::now),
        rates: Rates::default(),
        printed: !is_shown,
    };
    let mut running = preset.watched(&options.input, &options.common, Some(Box::new(top)))?;
    running.run(&mut |_| {});
    running.say_last();
    running.conclude(&options.common)
}

/// What a page shows, and in which order.
#[derive(Clone, Copy, Debug)]
struct Shown {
    view: View,
    sort: Sort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Rate,
    Bytes,
    Packets,
}

impl View {
    const ALL: [View; 3] = [View::Talkers, View::Flows, View::Protocols];

    const fn name(self) -> &'static str {
        match self {
            View::Talkers => "talkers",
            View::Flows => "flows",
            View::Protocols => "protocols",
        }
    }

    fn next(self) -> View {
        let all = View::ALL;
        let at = all.iter().position(|view| *view == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }
}

impl Shown {
    /// What a key changes; `false`: it is the one that ends the page.
    fn press(&mut self, key: u8) -> bool {
        match key.to_ascii_lowercase() {
            b'q' | 4 => return false,
            b'\t' => self.view = self.view.next(),
            b't' => self.view = View::Talkers,
            b'f' => self.view = View::Flows,
            b'o' => self.view = View::Protocols,
            b'r' => self.sort = Sort::Rate,
            b'b' => self.sort = Sort::Bytes,
            b'p' => self.sort = Sort::Packets,
            _ => {}
        }
        true
    }
}

/// One of what is counted.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    name: String,
    packets: u64,
    bytes: u64,
    /// Bits in a second.
    rate: u64,
}

/// How much there was when the rates were found last.
#[derive(Default)]
struct Rates {
    /// By view and name.
    bytes: HashMap<(u8, String), u64>,
    /// All packets, and their bytes.
    total: (u64, u64),
    at: Option<Nanos>,
    /// Rates of then.
    rows: HashMap<(u8, String), u64>,
    /// Packets and bits in a second.
    all: (u64, u64),
}

impl Rates {
    /// Finds how much came in a second since the last time, or since it began.
    fn find(&mut self, views: &[Vec<Row>], ledger: &Ledger, (began, now): (Nanos, Nanos)) {
        let passed = now
            .0
            .saturating_sub(self.at.replace(now).unwrap_or(began).0);
        let per_second = |more: u64| match passed > 0 {
            true => (more as f64 * 1e9 / passed as f64) as u64,
            false => 0,
        };
        let before = core::mem::take(&mut self.bytes);
        self.rows.clear();
        for (view, rows) in (0..).zip(views) {
            for row in rows {
                let key = (view, row.name.clone());
                let was = before.get(&key).copied().unwrap_or(0);
                let rate = per_second(row.bytes.saturating_sub(was) * 8);
                self.rows.insert(key.clone(), rate);
                self.bytes.insert(key, row.bytes);
            }
        }
        let total = (ledger.received(), ledger.delivered_bytes());
        let was = core::mem::replace(&mut self.total, total);
        self.all = (
            per_second(total.0.saturating_sub(was.0)),
            per_second(total.1.saturating_sub(was.1) * 8),
        );
    }

    /// The rows of a view with their rates.
    fn fill(&self, view: View, rows: &mut [Row]) {
        for row in rows {
            let key = (view as u8, row.name.clone());
            row.rate = self.rows.get(&key).copied().unwrap_or(0);
        }
    }

    fn line(&self) -> String {
        let (packets, bits) = self.all;
        format!("{} packets/s, {}bit/s", scaled(packets), scaled(bits))
    }
}

/// The rows of a component's result.
fn result<'a>(stacks: &[Stack], snapshot: &'a Snapshot, label: &str) -> &'a [Vec<Cell>] {
    let find = || {
        let stack = stacks.first()?;
        let (id, _) = stack.iter().find(|(_, node)| node.label == label)?;
        match snapshot.stacks.first()?.component(id)?.result.as_ref()? {
            ResultValue::Table(table) => Some(table.rows.as_slice()),
            _ => None,
        }
    };
    find().unwrap_or_default()
}

/// What came of the components, in the order of the views.
fn views(stacks: &[Stack], snapshot: &Snapshot) -> Vec<Vec<Row>> {
    let rows = |view: View| result(stacks, snapshot, view.name()).iter();
    let all = View::ALL.into_iter();
    all.map(|view| rows(view).filter_map(|row| row_of(row)).collect())
        .collect()
}

/// Capture times of the first and the last packet.
fn captured(stacks: &[Stack], snapshot: &Snapshot) -> (Nanos, Nanos) {
    match result(stacks, snapshot, "clock") {
        [row] => match row.as_slice() {
            [.., Cell::Unsigned(last), Cell::Unsigned(first)] => (Nanos(*first), Nanos(*last)),
            _ => Default::default(),
        },
        _ => Default::default(),
    }
}

fn row_of(cells: &[Cell]) -> Option<Row> {
    match cells {
        [name, Cell::Unsigned(packets), Cell::Unsigned(bytes), ..] => Some(Row {
            name: harmless_lines(&name.to_string()).into_owned(),
            packets: *packets,
            bytes: *bytes,
            rate: 0,
        }),
        _ => None,
    }
}

struct Top {
    page: Option<Page>,
    shown: Shown,
    every: Duration,
    /// When rates are found again.
    next: Instant,
    has_quit: bool,
    /// Since when an interface is read. The page of a file stays until a key ends it, and its rates are by its packets' times.
    live_since: Option<Instant>,
    rates: Rates,
    /// The page is printed at the end.
    printed: bool,
}

impl Top {
    fn draw(&mut self, views: Vec<Vec<Row>>, ledger: &Ledger, of_what: &str) -> bool {
        let Some(page) = &mut self.page else {
            return true;
        };
        let (width, height) = terminal::size().unwrap_or_default();
        let size = (
            if width == 0 { 80 } else { width },
            if height == 0 { LINES } else { height },
        );
        let mut lines = lines(views, &self.rates, self.shown, ledger, size);
        lines[0].push_str(of_what);
        page.show(lines.iter().map(String::as_str)).is_ok()
    }

    /// Takes keys that were pressed. Whether there were any.
    fn keys(&mut self, mut wait: Duration) -> bool {
        let Some(page) = &self.page else {
            return false;
        };
        let mut were_any = false;
        while let Some(key) = page.key(wait) {
            were_any = true;
            wait = NO_WAIT;
            if !self.shown.press(key) {
                self.has_quit = true;
                break;
            }
        }
        were_any
    }
}

impl Watched for Top {
    fn begin(&mut self, started: Instant) {
        self.next = started;
        if !self.printed {
            match Page::open() {
                Ok(Some(page)) => self.page = Some(page),
                Ok(None) => self.printed = true,
                Err(error) => {
                    say!(
                        "note: the terminal cannot show a page ({error}): it is printed at the end"
                    );
                    self.printed = true;
                }
            }
        }
    }

    fn is_due(&mut self) -> bool {
        !self.printed && (self.keys(NO_WAIT) || Instant::now() >= self.next)
    }

    fn say(&mut self, stacks: &[Stack], snapshot: &Snapshot, source: &Ledger) -> bool {
        let views = views(stacks, snapshot);
        let now = Instant::now();
        if now >= self.next {
            self.next = now + self.every;
            let passed = match self.live_since {
                Some(began) => (Nanos(0), Nanos((now - began).as_nanos() as u64)),
                None => captured(stacks, snapshot),
            };
            self.rates.find(&views, source, passed);
        }
        let of_what = match self.live_since {
            Some(_) => "",
            None => " of capture time",
        };
        self.draw(views, source, of_what) && !self.has_quit
    }

    fn end(&mut self, stacks: &[Stack], snapshot: &Snapshot, ledger: &Ledger) {
        let all = views(stacks, snapshot);
        let (first, last) = captured(stacks, snapshot);
        self.rates = Rates::default();
        self.rates.find(&all, ledger, (first, last));
        let seconds = last.0.saturating_sub(first.0) as f64 / 1e9;
        let of_what = format!(" (average of {seconds:.1} s of capture time)");
        if self.printed {
            let mut text = format!("{}{of_what}\n\n", self.rates.line());
            for (view, mut rows) in View::ALL.into_iter().zip(all) {
                let shown = Shown { view, ..self.shown };
                self.rates.fill(view, &mut rows);
                text += &table(rows, shown, (usize::MAX, LINES)).join("\n");
                text += "\n\n";
            }
            // A reader that went away is told of nowhere.
            let _ = print(text.trim_end().as_bytes()).and_then(|()| print(b"\n"));
            return;
        }
        let stays = self.live_since.is_none();
        while stays
            && !self.has_quit
            && !ending::is_ending()
            && self.draw(all.clone(), ledger, &of_what)
        {
            self.keys(Duration::from_millis(200));
        }
        self.page = None;
    }
}

/// The lines of a page of this width and height.
fn lines(
    mut views: Vec<Vec<Row>>,
    rates: &Rates,
    shown: Shown,
    ledger: &Ledger,
    (width, height): (usize, usize),
) -> Vec<String> {
    let rows = views.get_mut(shown.view as usize);
    let mut rows = rows.map(core::mem::take).unwrap_or_default();
    rates.fill(shown.view, &mut rows);
    let mut lines = vec![rates.line(), ledger_line(ledger)];
    let tabs: Vec<String> = View::ALL
        .iter()
        .map(|view| match *view == shown.view {
            true => format!("[{}]", view.name()),
            false => view.name().to_owned(),
        })
        .collect();
    lines.push(format!(
        "{}   (t f o: view; r b p: sort; q: quit)",
        tabs.join(" ")
    ));
    lines.push(String::new());
    let left = height.saturating_sub(lines.len());
    lines.extend(table(rows, shown, (width, left)));
    lines
}

/// A heading, and the largest rows that there is room for.
fn table(mut rows: Vec<Row>, shown: Shown, (width, height): (usize, usize)) -> Vec<String> {
    rows.sort_by(|one, other| {
        let weight = |row: &Row| match shown.sort {
            Sort::Rate => row.rate,
            Sort::Bytes => row.bytes,
            Sort::Packets => row.packets,
        };
        let by_name = || one.name.cmp(&other.name);
        weight(other).cmp(&weight(one)).then_with(by_name)
    });
    rows.truncate(height.saturating_sub(1));
    let heading = shown.view.name().to_uppercase();
    let names = rows.iter().map(|row| row.name.chars().count());
    // Numbers take 36 columns.
    let most = width.saturating_sub(36).max(heading.len());
    let name_width = names.max().unwrap_or(0).clamp(heading.len(), most);
    let line = |name: &str, numbers: [String; 3]| {
        let [rate, bytes, packets] = numbers;
        let name: String = name.chars().take(name_width).collect();
        format!("{name:name_width$}  {rate:>10}  {bytes:>10}  {packets:>10}")
    };
    let mut lines = vec![line(
        &heading,
        ["BIT/S", "BYTES", "PACKETS"].map(str::to_owned),
    )];
    lines.extend(rows.iter().map(|row| {
        let numbers = [row.rate, row.bytes, row.packets];
        line(&row.name, numbers.map(scaled))
    }));
    lines
}

fn scaled(number: u64) -> String {
    let mut text = Vec::new();
    write_scaled(&mut text, number);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, packets: u64, bytes: u64) -> Row {
        Row {
            name: name.to_owned(),
            packets,
            bytes,
            rate: 0,
        }
    }

    #[test]
    fn a_page_has_the_largest_rows_of_its_view_and_no_more_than_there_is_room_for() {
        let views = vec![
            vec![
                row("192.0.2.1", 9, 500),
                row("192.0.2.2", 3, 70_000),
                row("192.0.2.3", 1, 60),
            ],
            Vec::new(),
            vec![row("tcp", 1, 2)],
        ];
        let mut rates = Rates::default();
        let seconds = |number: u64| Nanos(number * 1_000_000_000);
        rates.find(&views, &Ledger::default(), (seconds(5), seconds(6)));
        assert_eq!(rates.rows[&(0, "192.0.2.1".to_owned())], 4000);
        let mut later = views.clone();
        later[0][0].bytes += 1000;
        rates.find(&later, &Ledger::default(), (seconds(5), seconds(8)));
        let mut shown = Shown {
            view: View::Talkers,
            sort: Sort::Bytes,
        };
        let page =
            |shown: Shown, size| lines(later.clone(), &rates, shown, &Ledger::default(), size);
        let drawn = page(shown, (80, 7));
        assert_eq!(drawn.len(), 7, "{drawn:?}");
        assert_eq!(
            drawn[4..],
            [
                "TALKERS         BIT/S       BYTES     PACKETS",
                "192.0.2.2           0       70.0k           3",
                "192.0.2.1        4000        1500           9",
            ]
        );
        assert!(shown.press(b'r'));
        assert!(page(shown, (80, 24))[5].starts_with("192.0.2.1 "));
        assert!(shown.press(b'o'));
        assert!(page(shown, (20, 24))[5].starts_with("tcp "));
        assert!(shown.press(b'\t') && shown.view == View::Talkers);
        assert!(!shown.press(b'q'));
    }
}
