//! Loss over time, drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use flowgauge_loss::Row;
use flowgauge_record::text::date_text;
use flowgauge_wire::Nanos;

use crate::stack::svg::escaped;

/// The picture and the field in it, in pixels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 40.0;
/// Of lines, in their order; after that from the first on again.
const COLOURS: [&str; 8] = [
    "#0b6e99", "#c4483a", "#3d8c40", "#8a5fb0", "#b8860b", "#555555", "#d0709d", "#4c9f9f",
];
/// Lines that are drawn, of those with the most loss.
const MOST_LINES: usize = COLOURS.len();

/// Loss in each interval by direction between points.
#[derive(Debug)]
pub(super) struct Chart {
    interval: Nanos,
    lines: BTreeMap<(usize, usize), BTreeMap<u64, Place>>,
}

/// Shares of the packets sent.
#[derive(Clone, Copy, Debug)]
struct Place {
    lost: f64,
    least: f64,
    most: f64,
}

impl Chart {
    pub(super) fn new(interval: Nanos) -> Chart {
        Chart {
            interval,
            lines: BTreeMap::new(),
        }
    }

    /// Takes what is known of an interval.
    pub(super) fn add(&mut self, start: Nanos, row: &Row) {
        if row.sums.sent == 0 {
            return;
        }
        let share = |packets: u64| (packets as f64 / row.sums.sent as f64).min(1.0);
        let (least, most) = row.sums.bounds(row.dropped[0], row.dropped[1]);
        let place = Place {
            lost: share(row.sums.lost.max(0).unsigned_abs()),
            least: share(least),
            most: share(most),
        };
        let line = self.lines.entry((row.from, row.to)).or_default();
        line.insert(start.0, place);
    }

    /// As SVG 1.1: a line for each direction, behind it what is between the bounds.
    pub(super) fn svg(&self, names: &[String]) -> String {
        let times: BTreeSet<u64> = self
            .lines
            .values()
            .flat_map(|line| line.keys().copied())
            .collect();
        let first = times.first().copied().unwrap_or(0);
        let last = times
            .last()
            .copied()
            .unwrap_or(first)
            .saturating_add(self.interval.0);
        let places = self.lines.values().flat_map(BTreeMap::values);
        let top = places.map(|place| place.most).fold(0.0, f64::max);
        let top = round_up(top * 100.0).max(0.01);
        let x = |time: u64| {
            let span = last.saturating_sub(first).max(1) as f64;
            LEFT + (WIDTH - LEFT - RIGHT) * time.saturating_sub(first) as f64 / span
        };
        let y = |share: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share * 100.0 / top;
        let mut body = String::new();
        for step in 0..=4 {
            let per_cent = top * f64::from(step) / 4.0;
            let at = y(per_cent / 100.0);
            let _ = writeln!(
                body,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{per_cent:.3} %</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0
            );
        }
        for (time, anchor) in [(first, "start"), (last, "end")] {
            let _ = writeln!(
                body,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                x(time),
                HEIGHT - BOTTOM + 18.0,
                date_text((time / 1_000_000_000).cast_signed())
                    .get(..19)
                    .unwrap_or_default()
            );
        }
        let mut lines: Vec<_> = self.lines.iter().collect();
        let of_all =
            |line: &BTreeMap<u64, Place>| line.values().map(|place| place.lost).sum::<f64>();
        lines.sort_by(|(_, one), (_, other)| of_all(other).total_cmp(&of_all(one)));
        let left_out = lines.len().saturating_sub(MOST_LINES);
        for (number, ((from, to), line)) in lines.into_iter().take(MOST_LINES).enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let points = |share: fn(&Place) -> f64| {
                // The whole interval has its loss.
                let ends = line.iter().flat_map(move |(start, place)| {
                    let end = start.saturating_add(self.interval.0);
                    [(*start, share(place)), (end, share(place))]
                });
                let text = ends.map(|(time, share)| format!("{:.1},{:.1}", x(time), y(share)));
                text.collect::<Vec<String>>()
            };
            let mut band = points(|place| place.most);
            band.extend(points(|place| place.least).into_iter().rev());
            let name = |point: &usize| names.get(*point).map_or("", String::as_str);
            let label = format!("{} \u{2192} {}", name(from), name(to));
            let _ = writeln!(
                body,
                "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.15\"/>\
                 <polyline points=\"{}\" stroke=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}</text>",
                band.join(" "),
                points(|place| place.lost).join(" "),
                LEFT + 10.0,
                TOP + 14.0 + 16.0 * number as f64,
                escaped(&label)
            );
        }
        if left_out > 0 {
            let _ = writeln!(
                body,
                "<text x=\"{}\" y=\"{}\">{left_out} with less loss are not drawn</text>",
                LEFT + 10.0,
                TOP + 14.0 + 16.0 * MOST_LINES as f64
            );
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n<title>Packet loss over time</title>\n\
             <style>text {{ font: 12px sans-serif; }} .grid {{ stroke: #ddd; }} \
             polyline {{ fill: none; stroke-width: 1.5; }}</style>\n{body}</svg>\n"
        )
    }
}

/// To one, two or five times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let fitting = steps.into_iter().find(|step| *step >= value);
    fitting.unwrap_or(value)
}
