//! Points that are devices of sensors.

use std::time::{Duration, Instant};

use flowgauge_loss::ObservationReader;
use flowgauge_record::ValueRef;
use flowgauge_sensor_client::protocol::{DeviceStatus, Results};
use flowgauge_sensor_client::scope::Member;
use flowgauge_sensor_client::{ScopeFlow, Sensors};
use flowgauge_stack::OptionValue;
use flowgauge_wire::{Nanos, Place};
use serde_json::{Map, Value};

use super::Report;
use crate::control::Control;
use crate::failure::Failure;
use crate::options::LossOptions;
use crate::say::say;
use crate::sensor_agent::{self, failed};

/// How often it is looked for what sensors have seen, at most.
const LEAST_LOOK: Duration = Duration::from_millis(50);
const MOST_LOOK: Duration = Duration::from_secs(1);
/// The component that observes.
const OBSERVE: &str = "observe";

/// A device that observes.
struct Point {
    member: Member,
    generation: u32,
    clock: Nanos,
    dropped: u64,
    forgotten: u64,
    /// Why nothing comes of it, as it was said.
    trouble: Option<String>,
}

/// Compares devices until it is stopped.
pub(super) fn run(options: &LossOptions, control: &Control) -> Result<(), Failure> {
    let (sensors, members) = sensor_agent::members(&options.sensor, options.between.as_deref())?;
    let names = members.iter().map(Member::to_string);
    let mut report = Report::new(options, names.collect(), true)?;
    let mut points: Vec<Point> = members.iter().cloned().map(Point::new).collect();
    let flow = ScopeFlow::open(&sensors, members, &stack(options), &[], Duration::ZERO);
    let mut flow = flow.map_err(failed)?;
    control.begin();
    let until = options
        .time
        .map(|time| Instant::now() + Duration::from_nanos(time.0));
    let look = Duration::from_nanos(options.every.0 / 4).clamp(LEAST_LOOK, MOST_LOOK);
    let mut is_last = false;
    while !is_last {
        let wake = Instant::now() + look;
        while Instant::now() < wake && !control.stopped() {
            std::thread::sleep(LEAST_LOOK);
        }
        flow.refresh();
        is_last = control.stopped()
            || until.is_some_and(|until| Instant::now() >= until)
            || flow.is_over();
        drops(&sensors, &mut points);
        look_at(&mut report, &flow, &mut points)?;
        while take(&mut report, flow.take(OBSERVE), &mut points) {}
        report.write()?;
    }
    drops(&sensors, &mut points);
    take(&mut report, flow.close(), &mut points);
    report.finish()?;
    let silent = points.iter().filter(|point| point.generation == 0);
    let silent: Vec<String> = silent.map(|point| point.member.to_string()).collect();
    match points.len() - silent.len() {
        0 | 1 => Err(Failure::run(
            format!("nothing was compared: {} never observed", silent.join(", ")),
            Some("what was said of them on the way tells why".to_owned()),
        )),
        _ => Ok(()),
    }
}

/// What runs on the devices.
fn stack(options: &LossOptions) -> String {
    let filter = options.filter.as_ref().map(|filter| {
        let quoted = filter.replace('\\', "\\\\").replace('"', "\\\"");
        format!("filter {{ \"{}\" }} ", quoted.replace(['\n', '\r'], " "))
    });
    format!(
        "{}{OBSERVE} {{ interval = {}, marks = {}, max_flows = {} }}",
        filter.unwrap_or_default(),
        OptionValue::Duration(options.every.0),
        options.marks,
        options.max_flows.saturating_mul(2)
    )
}

impl Point {
    fn new(member: Member) -> Point {
        Point {
            member,
            generation: 0,
            clock: Nanos(0),
            dropped: 0,
            forgotten: 0,
            trouble: None,
        }
    }
}

/// Says how members are. What is counted anew at one is compared anew at all.
fn look_at(report: &mut Report<'_>, flow: &ScopeFlow, points: &mut [Point]) -> Result<(), Failure> {
    for (point, state) in points.iter_mut().zip(flow.states()) {
        let trouble = state.trouble.map(|trouble| trouble.what);
        if point.trouble != trouble {
            match &trouble {
                Some(what) => say!("{}: {}: {what}", point.member, state.state),
                None => say!("{}: {}", point.member, state.state),
            }
            point.trouble = trouble;
        }
        if point.generation != state.generation && point.generation > 0 {
            report.begin_anew()?;
        }
        point.generation = state.generation;
    }
    Ok(())
}

/// Asks for what the captures have lost.
fn drops(sensors: &Sensors, points: &mut [Point]) {
    for at in 0..points.len() {
        let member = &points[at].member;
        // Devices of one sensor are told of together.
        if points[..at]
            .iter()
            .any(|other| other.member.address == member.address)
        {
            continue;
        }
        let (client, address) = (sensors.client(member), member.address.clone());
        let Ok(status) = client.and_then(|client| client.status()) else {
            continue;
        };
        for point in points
            .iter_mut()
            .filter(|point| point.member.address == address)
        {
            let mut devices = status.devices.iter();
            if let Some(device) = devices.find(|device| device.device == point.member.device) {
                point.dropped = dropped(device);
            }
        }
    }
}

/// Packets that a device wanted and lost.
fn dropped(device: &DeviceStatus) -> u64 {
    let places = Place::ALL.iter().filter(|place| place.is_drop());
    let lost = places.filter_map(|place| device.refused.get(place.name()));
    lost.sum()
}

/// Takes in what members tell. Returns whether one has more.
fn take(
    report: &mut Report<'_>,
    answers: Vec<Result<Results, String>>,
    points: &mut [Point],
) -> bool {
    let mut has_more = false;
    for (number, answer) in answers.into_iter().enumerate() {
        let (Ok(results), Some(point)) = (answer, points.get_mut(number)) else {
            continue;
        };
        let mut components = results.components.into_iter();
        let component = components.find(|component| component.component == OBSERVE);
        let rows = component.and_then(|component| component.rows);
        let rows = rows.unwrap_or_default();
        let (told, mut is_all) = (rows.len().saturating_sub(1) as u64, true);
        for row in &rows {
            if let Some(clock) = number_of(row, "clock") {
                point.clock = Nanos(clock);
                is_all = number_of(row, "waiting").is_none_or(|waiting| waiting <= told);
                let forgotten = number_of(row, "forgotten").unwrap_or(0);
                if forgotten > point.forgotten {
                    let more = forgotten - point.forgotten;
                    say!(
                        "{}: {more} observations were lost: it is asked too rarely",
                        point.member
                    );
                    point.forgotten = forgotten;
                }
                continue;
            }
            let mut reader = ObservationReader::default();
            for (name, value) in row {
                reader.set(name, value_of(value));
            }
            if let Some((observation, _)) = reader.finish() {
                report.comparison.observe(number, &observation);
            }
        }
        // What was told of until then has to be there.
        if is_all {
            report
                .comparison
                .advance(number, point.clock, point.dropped);
        }
        has_more |= !is_all;
    }
    has_more
}

fn number_of(row: &Map<String, Value>, name: &str) -> Option<u64> {
    row.get(name)?.as_u64()
}

fn value_of(value: &Value) -> ValueRef<'_> {
    match value {
        Value::String(text) => ValueRef::Text(text),
        value => value.as_u64().map_or(ValueRef::Null, ValueRef::Unsigned),
    }
}
