//! TopN: who talked most to whom in an interval.

use std::collections::BTreeSet;

use crate::control::Control;
use crate::directory::{Config, Directory, MATRIX};
use crate::jobs::Timer;
use crate::keys::PairKey;
use crate::probe::Probe;
use crate::store::{Key, Snapshot};
use crate::tables::Tables;

/// Rows of a report at most.
const MOST: u32 = 10_000;

/// A report that is being collected, and the one before it.
#[derive(Debug)]
pub(crate) struct Report {
    /// Number of the control row whose matrix it is about.
    pub(crate) matrix: u32,
    /// By what its rows are chosen: the control table's RateBase.
    pub(crate) rate_base: u32,
    pub(crate) requested: u32,
    pub(crate) granted: u32,
    pub(crate) timer: Timer,
    /// Its start, as a stamp.
    pub(crate) started: u32,
    pub(crate) generated: u64,
    before: Snapshot<2, 2>,
    pub(crate) rows: Vec<TopRow>,
}

/// A row of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopRow {
    pub(crate) pair: PairKey,
    /// LocalIndex, 0 in reports of the network layer.
    pub(crate) application: u32,
    /// Packets, packets back, octets, octets back.
    pub(crate) rates: [u64; 4],
}

impl Report {
    pub(crate) fn new(matrix: u32, rate_base: u32, requested: u32, timer: Timer) -> Report {
        Report {
            matrix,
            rate_base,
            requested,
            granted: requested.min(MOST),
            timer,
            started: 0,
            generated: 0,
            before: Snapshot::default(),
            rows: Vec::new(),
        }
    }

    /// Begins to collect; what was reported before goes if it is not `kept`.
    pub(crate) fn begin(&mut self, control: Control, tables: &Tables, kept: bool) {
        if !kept {
            self.rows.clear();
        }
        self.started = tables.clock.stamp;
        let matrix = tables.matrices.get(self.matrix);
        self.before = match matrix {
            None => Snapshot::default(),
            Some(matrix) if control == Control::NlTopN => matrix.snapshot(),
            Some(matrix) => matrix.snapshot_of_applications(),
        };
        self.granted = self.requested.min(MOST);
    }

    /// The rows now: those with the most packets or octets.
    fn collect(&self, control: Control, tables: &Tables, directory: &Directory) -> Vec<TopRow> {
        let Some(store) = tables.matrices.get(self.matrix) else {
            return Vec::new();
        };
        // Packets and octets take turns.
        let by = usize::from(self.rate_base.is_multiple_of(2));
        let most = self.granted as usize;
        if control == Control::NlTopN {
            let all = store.since(&self.before);
            let all = all.map(|(row, counters)| (row.key, 0, counters));
            let top = top(all, by, most);
            return top
                .into_iter()
                .map(|(pair, application, counters)| {
                    let back = store.row_since(&self.before, &pair.reversed());
                    row(pair, application, counters, back)
                })
                .collect();
        }
        // The first two rate bases of four look at protocols only that have none below that are counted.
        let terminals = matches!(self.rate_base, 1 | 2 | 5 | 6);
        let all = store.applications_since(&self.before);
        let all = all.map(|(row, protocol, counters)| (row.key, protocol, counters));
        // Those with some protocol below that is counted.
        let entries = directory.iter().map(|(_, entry)| entry);
        let counted = entries.filter(|entry| terminals && entry.configs[MATRIX] == Config::On);
        let inner: BTreeSet<u32> = counted.map(|entry| entry.parent).collect();
        let all = all.filter(|(_, protocol, _)| !inner.contains(protocol));
        let top = top(all, by, most);
        top.into_iter()
            .map(|(pair, application, counters)| {
                let back = store.application_since(&self.before, &pair.reversed(), application);
                row(pair, application, counters, back)
            })
            .collect()
    }
}

fn row(pair: PairKey, application: u32, counters: [u64; 2], back: [u64; 2]) -> TopRow {
    TopRow {
        pair,
        application,
        rates: [counters[0], back[0], counters[1], back[1]],
    }
}

/// Those with the largest counter, in order; of equal ones the first by index.
fn top(
    all: impl Iterator<Item = (PairKey, u32, [u64; 2])>,
    by: usize,
    most: usize,
) -> Vec<(PairKey, u32, [u64; 2])> {
    let mut all: Vec<_> = all.filter(|(_, _, counters)| counters[by] != 0).collect();
    let order = |one: &(PairKey, u32, [u64; 2]), other: &(PairKey, u32, [u64; 2])| {
        let index = one.0.compare(&other.0, 0).then(one.1.cmp(&other.1));
        other.2[by].cmp(&one.2[by]).then(index)
    };
    if all.len() > most && most != 0 {
        all.select_nth_unstable_by(most - 1, order);
    }
    all.truncate(most);
    all.sort_unstable_by(order);
    all
}

impl Probe {
    /// A report is complete: it is shown, and the next one begins.
    pub(crate) fn end_report(&mut self, control: Control, row: u32, now: u64) {
        let Some(report) = self.jobs.reports.get_mut(&(control, row)) else {
            return;
        };
        report.rows = report.collect(control, &self.tables, &self.directory);
        let left_out = report.timer.go_on(now, 1);
        report.generated += 1 + left_out;
        if left_out != 0 {
            report.rows.clear();
        }
        report.begin(control, &self.tables, true);
    }
}
