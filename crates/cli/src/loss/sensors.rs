//! Points that are devices of sensors.

use std::time::{Duration, Instant};

use flowgauge_element::points::{Points, PointsOptions};
use flowgauge_sensor_client::scope::Member;

use super::Report;
use crate::control::Control;
use crate::failure::Failure;
use crate::options::LossOptions;
use crate::say::say;
use crate::sensor_agent::{self, failed};

/// How often it is looked for what sensors have seen, at most.
const LEAST_LOOK: Duration = Duration::from_millis(50);
const MOST_LOOK: Duration = Duration::from_secs(1);

/// Compares devices until it is stopped.
pub(super) fn run(options: &LossOptions, control: &Control) -> Result<(), Failure> {
    let (sensors, members) = sensor_agent::members(&options.sensor, options.between.as_deref())?;
    let names = members.iter().map(Member::to_string);
    let mut report = Report::new(options, names.collect(), true)?;
    let observed = PointsOptions {
        filters: options.filter.iter().cloned().collect(),
        interval: options.every,
        marks: options.marks,
        max_flows: options.max_flows,
    };
    let mut points = Points::open(&sensors, members, &observed).map_err(failed)?;
    control.begin();
    let until = options
        .time
        .map(|time| Instant::now() + Duration::from_nanos(time.0));
    let look = Duration::from_nanos(options.every.0 / 4).clamp(LEAST_LOOK, MOST_LOOK);
    let mut tell = |line| say!("{line}");
    let mut is_last = false;
    while !is_last {
        let wake = Instant::now() + look;
        while Instant::now() < wake && !control.stopped() {
            std::thread::sleep(LEAST_LOOK);
        }
        points.look(&mut report.comparison, &mut tell);
        is_last = control.stopped()
            || until.is_some_and(|until| Instant::now() >= until)
            || points.flow().is_over();
        points.take(&mut report.comparison, &mut tell);
        report.write()?;
    }
    let gone = points.flow().gone();
    let silent = points.close(&mut report.comparison, &mut tell);
    let all = report.names.len();
    let observed = all - silent.len();
    let finished = report.finish();
    match observed {
        0 | 1 => {
            let silent: Vec<String> = silent.iter().map(Member::to_string).collect();
            Err(Failure::run(
                format!("nothing was compared: {} never observed", silent.join(", ")),
                Some("earlier messages give the reason".to_owned()),
            ))
        }
        _ if gone.len() == all && !control.stopped() => Err(sensor_agent::gone(&gone)),
        _ => finished,
    }
}
