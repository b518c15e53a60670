//! `flowgauge loss`: what was lost between sensors, or between the points of capture files.

mod chart;
mod files;
mod sensors;

use std::path::Path;

use flowgauge_loss::{Comparison, ComparisonOptions, Of, Sums, pairs};
use flowgauge_record::loss::LOSS_SCHEMA;
use flowgauge_record::{Format, RecordWriter};
use flowgauge_sys::files::{self as named_files, How};
use flowgauge_wire::Nanos;

use crate::control::Control;
use crate::failure::{self, Failure};
use crate::options::LossOptions;
use crate::say::say;
use crate::sinks;

use chart::Chart;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &LossOptions) -> Result<(), Failure> {
    if options.every.0 < LEAST {
        return Err(Failure::usage(
            "--every is less than a millisecond",
            "add a unit: --every 10s",
        ));
    }
    let control = Control::install()?;
    match options.read.is_empty() {
        true => sensors::run(options, &control),
        false => files::run(options, &control),
    }
}

/// The shortest interval.
const LEAST: u64 = 1_000_000;

/// The comparison, and where its results go.
struct Report<'a> {
    options: &'a LossOptions,
    names: Vec<String>,
    comparison: Comparison,
    /// Packets that points counted, and those of them that were not compared, or are of flows that one point alone saw.
    packets: u64,
    uncompared: u64,
    one_sided: u64,
    writer: RecordWriter,
    chart: Chart,
}

impl<'a> Report<'a> {
    /// Of points with these names. Their clocks go on together where they are `live`.
    fn new(
        options: &'a LossOptions,
        names: Vec<String>,
        live: bool,
    ) -> Result<Report<'a>, Failure> {
        if names.len() < 2 {
            return Err(Failure::usage(
                format!(
                    "loss needs at least two points, and {} is one",
                    names.join("")
                ),
                "--between a:eth0,b:eth0 names devices of two sensors, -r a.pcap b.pcap two files",
            ));
        }
        let output = sinks::open(&options.output, LOSS_SCHEMA)?;
        let format = sinks::format(&options.output);
        Ok(Report {
            comparison: compare(options, names.len(), live),
            writer: RecordWriter::new(output, format, LOSS_SCHEMA),
            chart: Chart::new(options.every),
            packets: 0,
            uncompared: 0,
            one_sided: 0,
            names,
            options,
        })
    }

    /// Writes what is known by now.
    fn write(&mut self) -> Result<(), Failure> {
        for row in self.comparison.take_rows() {
            match row.of {
                Of::Interval => self.chart.add(row.begin, &row),
                Of::Total => {
                    let Sums {
                        sent,
                        received,
                        one_sided,
                        uncompared,
                        ..
                    } = row.sums;
                    self.packets += sent + received + one_sided + uncompared;
                    self.uncompared += uncompared;
                    self.one_sided += one_sided;
                }
                _ => {}
            }
            self.writer.write(&row.record(&self.names));
        }
        if sinks::format(&self.options.output) != Format::Table {
            self.writer.flush();
        }
        failure::of_writer(&mut self.writer)
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.comparison.finish();
        self.write()?;
        let evicted = self.comparison.evicted();
        if evicted > 0 && !self.options.output.common.quiet {
            say!("note: {evicted} flows were evicted to bound memory; raise --max-flows");
        }
        let (uncompared, packets) = (self.uncompared, self.packets);
        let silent = self.comparison.silent().map(|point| &*self.names[point]);
        let silent: Vec<&str> = silent.collect();
        let is_nothing = packets > 0
            && uncompared + self.one_sided == packets
            && (self.one_sided > 0 || !silent.is_empty());
        if packets == 0 && !self.options.output.common.quiet {
            say!(
                "note: nothing was compared: no point saw an IP packet{}",
                match &self.options.filter {
                    Some(_) => " that passes --filter",
                    None => "",
                }
            );
        }
        if is_nothing || uncompared <= packets / 10 || self.options.output.common.quiet {
        } else if !silent.is_empty() {
            let silent = silent.join(", ");
            say!("note: {silent} saw none of {packets} packets, so nothing was compared there");
        } else {
            say!(
                "note: {uncompared} of {packets} packets counted at the points were not compared, because they came \
                before the first mark of their flow or after the last; a shorter --every or more --marks compare more"
            );
        }
        let written = self.writer.finish();
        written.or_else(|error| failure::of_output(error).map_or(Ok(()), Err))?;
        if let Some(path) = &self.options.svg {
            write_file(path, &self.chart.svg(&self.names))?;
        }
        let what = match silent.is_empty() {
            true => format!("no two points saw packets of the same flow ({packets} in all)"),
            false => format!("{} saw none of {packets} packets", silent.join(", ")),
        };
        match is_nothing {
            true => Err(Failure::run(
                format!("nothing was compared: {what}"),
                Some("check that the link is up, and that this traffic passes there".to_owned()),
            )),
            false => Ok(()),
        }
    }
}

fn compare(options: &LossOptions, points: usize, live: bool) -> Comparison {
    let intervals = |count: u64| Nanos(options.every.0.saturating_mul(count));
    Comparison::new(ComparisonOptions {
        points,
        pairs: pairs(points, options.matrix),
        interval: options.every,
        patience: live.then(|| intervals(2)),
        // Of an observer, whose timeout is two intervals.
        lag: intervals(3),
        max_flows: options.max_flows,
        flows: options.flows,
        one_way: options.one_way,
    })
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let file = named_files::named().open(path, How::replace());
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| {
        let hint = "--svg takes a file that can be created".to_owned();
        Failure::run(format!("{}: {error}", path.display()), Some(hint))
    })
}
