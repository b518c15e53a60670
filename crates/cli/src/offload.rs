//! What keeps packets away before they are copied (`--offload`).

use flowgauge_capture::live::LiveSource;
use flowgauge_offload::{Attacher, DEFAULT_FLOWS, Error, SocketFilter, StatisticsReader};
use flowgauge_stream::offload::Verdicts;

use crate::anonymize::Forced;
use crate::failure::Failure;
use crate::input::Source;
use crate::options::{InputOptions, Offload};
use crate::say::{count, say};

/// Backends, one for each ring, before the rings are there.
#[derive(Default)]
pub(crate) struct Backends {
    attachers: Vec<Attacher>,
    statistics: Vec<StatisticsReader>,
}

impl Backends {
    /// Those that the options ask for, and where it is told what is wanted of flows. Where the kernel does not take them that is
    /// said, and all comes.
    ///
    /// # Errors
    /// Something else among the options has to see all packets.
    pub(crate) fn new(input: &InputOptions) -> Result<(Backends, Vec<Verdicts>), Failure> {
        let mut backends = Backends::default();
        if input.offload == Offload::None {
            return Ok((backends, Vec::new()));
        }
        if input.interface.is_empty() {
            return Err(Failure::usage(
                "--offload keeps packets away on interfaces, and none is captured on",
                "leave it out, or name one with -i",
            ));
        }
        let refused = if input.dedup.is_some() {
            Some("--dedup")
        } else if input.packet_count.is_some() {
            Some("-c")
        } else if Forced::read()?.is_some() {
            Some("the policy that is forced")
        } else {
            None
        };
        if let Some(other) = refused {
            return Err(Failure::usage(
                format!("{other} has to see all packets, and --offload keeps some away"),
                "leave one of them out",
            ));
        }
        let mut verdicts = Vec::new();
        for _ in 0..input.workers.unwrap_or(1) {
            match backends.add() {
                Ok(told) => verdicts.push(told),
                Err(error) => {
                    without(&error);
                    return Ok((Backends::default(), Vec::new()));
                }
            }
        }
        // The first of them is for the first ring.
        backends.attachers.reverse();
        Ok((backends, verdicts))
    }

    fn add(&mut self) -> Result<Verdicts, Error> {
        let filter = SocketFilter::load(DEFAULT_FLOWS, false)?;
        self.attachers.push(filter.attacher()?);
        self.statistics.push(filter.statistics());
        Ok(Verdicts::new(filter))
    }

    /// Puts the next one before a capture.
    pub(crate) fn attach(&mut self, source: LiveSource) -> Source {
        let Some(attacher) = self.attachers.pop() else {
            return Box::new(source);
        };
        match attacher.attach(source) {
            Ok(source) => Box::new(source),
            Err(refused) => {
                let (source, error) = *refused;
                without(&error);
                *self = Backends::default();
                Box::new(source)
            }
        }
    }

    /// Says that captures on several interfaces have none.
    pub(crate) fn refuse(&mut self) {
        if !self.attachers.is_empty() {
            without(&Error::Interface);
            *self = Backends::default();
        }
    }

    /// What they have done, in words.
    pub(crate) fn summary(&self) -> Option<String> {
        let all = self.statistics.iter().map(StatisticsReader::read);
        let sum = all.reduce(|one, other| one.and(other))?;
        Some(format!(
            "{} kept away in the kernel, {} cut to headers; {} of flows not taken",
            count(sum.withheld, "packet"),
            sum.cut,
            count(sum.refused, "verdict")
        ))
    }
}

fn without(error: &Error) {
    say!(
        "note: nothing is kept away (--offload): {error}; hint: {}",
        error.hint()
    );
}
