//! Points that are capture files.

use flowgauge_capture::PacketSource as _;
use flowgauge_loss::{Comparison, Observer, ObserverOptions};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{DecodedBatch, HashSeed, Nanos};

use super::Report;
use crate::control::Control;
use crate::failure::Failure;
use crate::input::{self, Source};
use crate::options::{InputOptions, LossOptions};
use crate::summary::Outcome;

/// A file and what was seen in it.
struct Point {
    source: Source,
    observer: Observer,
    decoder: Decoder,
    decoded: DecodedBatch,
    clock: Nanos,
    is_over: bool,
}

/// Compares files. They are read at the same time, where the clocks of their packets agree.
pub(super) fn run(options: &LossOptions, control: &Control) -> Result<(), Failure> {
    let names = options
        .read
        .iter()
        .map(|path| path.to_string_lossy().into_owned());
    let all = InputOptions {
        read: options.read.clone(),
        ..InputOptions::default()
    };
    for output in [&options.output.write, &options.svg].into_iter().flatten() {
        input::refuse_overwriting(&all, output)?;
    }
    let mut report = Report::new(options, names.collect(), false)?;
    let mut points = Vec::new();
    for path in &options.read {
        let input = InputOptions {
            read: vec![path.clone()],
            filter: options.filter.iter().map(Into::into).collect(),
            ..InputOptions::default()
        };
        for source in input::open(&input, control)?.sources {
            points.push(Point::new(source, options));
        }
    }
    control.begin();
    let mut outcome = Outcome::default();
    while !control.stopped() {
        let places = (0..points.len()).filter(|place| !points[*place].is_over);
        let Some(place) = places.min_by_key(|place| points[*place].clock) else {
            break;
        };
        if let Err(error) = points[place].batch(place, &mut report.comparison) {
            outcome.errors.push(error);
        }
        report.write()?;
    }
    for (place, point) in points.iter_mut().enumerate() {
        let comparison = &mut report.comparison;
        point
            .observer
            .finish(&mut |observation| comparison.observe(place, observation));
        outcome.ledger.merge(&point.source.ledger());
        outcome.notes.extend(point.source.notes());
    }
    let finished = report.finish();
    outcome.conclude(&options.output.common)?;
    finished
}

impl Point {
    fn new(source: Source, options: &LossOptions) -> Point {
        Point {
            source,
            observer: Observer::new(ObserverOptions {
                interval: options.every,
                marks: options.marks.into(),
                timeout: Nanos(options.every.0.saturating_mul(2)),
                max_flows: options.max_flows.saturating_mul(2),
                key: HashSeed::PUBLIC,
            }),
            decoder: Decoder::default(),
            decoded: DecodedBatch::new(),
            clock: Nanos(0),
            is_over: false,
        }
    }

    /// Reads on.
    fn batch(
        &mut self,
        place: usize,
        comparison: &mut Comparison,
    ) -> Result<(), flowgauge_capture::Error> {
        let batch = match self.source.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                self.is_over = true;
                // What the capture lost may stand at the end of its file.
                comparison.advance(place, self.clock, self.source.capture_lost());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.decoder.decode_batch(&batch, &mut self.decoded);
        for packet in &self.decoded.packets {
            if self.clock == Nanos(0) {
                comparison.begin(place, packet.time);
            }
            self.clock = self.clock.max(packet.time);
            if self.clock >= self.observer.next_tick() {
                if self.observer.evicted() > 0 {
                    comparison.cut();
                }
                self.observer.tick(self.clock, &mut |observation| {
                    comparison.observe(place, observation);
                });
            }
            self.observer
                .packet(packet, self.decoded.bytes(&batch, packet));
        }
        comparison.advance(place, self.clock, self.source.capture_lost());
        Ok(())
    }
}
