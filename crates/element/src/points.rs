//! Devices of sensors as observation points: what their component `observe` tells of flows.

use std::sync::Arc;
use std::time::Duration;

use flowgauge_loss::{Comparison, METHOD, Observation, ObservationReader};
use flowgauge_record::ValueRef;
use flowgauge_sensor_client::members::each;
use flowgauge_sensor_client::protocol::{DeviceStatus, Results};
use flowgauge_sensor_client::scope::Member;
use flowgauge_sensor_client::{ClientError, ScopeFlow, Sensors};
use flowgauge_stack::OptionValue;
use flowgauge_wire::{Nanos, Place};
use serde_json::{Map, Value};

/// How long a sensor may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(1);
/// The component that observes.
const OBSERVE: &str = "observe";

/// How points observe.
#[derive(Clone, Debug)]
pub struct PointsOptions {
    /// Only packets that match all of them, in the syntax of pcap-filter(7).
    pub filters: Vec<String>,
    /// How often flows are told of.
    pub interval: Nanos,
    /// Packets of each direction of a flow that are told of in an interval.
    pub marks: u8,
    /// Maximum number of flows at once.
    pub max_flows: usize,
}

/// Where observations go.
pub trait Sink {
    /// A point observed this.
    fn observe(&mut self, point: usize, observation: &Observation);

    /// A point has told everything up to this time of its clock; so many packets its capture has lost until then.
    fn advance(&mut self, point: usize, clock: Nanos, dropped: u64);

    /// Some of what points saw is never told.
    fn cut(&mut self) {}

    /// A point has gone, and what it counted last was never told.
    fn broken(&mut self, _point: usize) {}

    /// A point has begun anew: what was told so far is compared with nothing that comes.
    fn begin_anew(&mut self);
}

impl Sink for Comparison {
    fn observe(&mut self, point: usize, observation: &Observation) {
        Comparison::observe(self, point, observation);
    }

    fn advance(&mut self, point: usize, clock: Nanos, dropped: u64) {
        Comparison::advance(self, point, clock, dropped);
    }

    fn cut(&mut self) {
        Comparison::cut(self);
    }

    fn broken(&mut self, point: usize) {
        Comparison::broken(self, point);
    }

    fn begin_anew(&mut self) {
        Comparison::begin_anew(self);
    }
}

/// Devices that observe.
#[derive(Debug)]
pub struct Points {
    sensors: Arc<Sensors>,
    flow: ScopeFlow,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    member: Member,
    generation: u32,
    clock: Nanos,
    /// What its device said last of packets lost, when it had begun so often.
    lost: Option<(u32, u64)>,
    /// Packets that its captures have lost since.
    dropped: u64,
    forgotten: u64,
    /// It is another release's: nothing can be compared with it.
    is_foreign: bool,
    /// Why nothing comes of it, as it was told.
    trouble: Option<String>,
}

impl Points {
    /// Has devices observe.
    ///
    /// # Errors
    /// As [`ScopeFlow::open`].
    pub fn open(
        sensors: &Arc<Sensors>,
        members: Vec<Member>,
        options: &PointsOptions,
    ) -> Result<Points, ClientError> {
        let points = members.iter().cloned().map(|member| Point {
            member,
            generation: 0,
            clock: Nanos(0),
            lost: None,
            dropped: 0,
            forgotten: 0,
            is_foreign: false,
            trouble: None,
        });
        let mut points: Vec<Point> = points.collect();
        // Before the flow: what is lost from then on may be of it.
        look_for_drops(sensors, &mut points, None);
        let flow = ScopeFlow::open(sensors, members, &stack(options), &[], Duration::ZERO)?;
        Ok(Points {
            sensors: Arc::clone(sensors),
            flow,
            points,
        })
    }

    /// The flow on the devices.
    pub fn flow(&self) -> &ScopeFlow {
        &self.flow
    }

    /// Looks how the devices are, and what their captures have lost.
    pub fn look(&mut self, sink: &mut dyn Sink, tell: &mut dyn FnMut(String)) {
        self.flow.refresh();
        look_for_drops(&self.sensors, &mut self.points, Some(&self.flow));
        let states = self.flow.states().into_iter().enumerate();
        for (point, (number, state)) in self.points.iter_mut().zip(states) {
            let trouble = state.trouble.map(|trouble| trouble.what);
            if point.trouble != trouble {
                match &trouble {
                    Some(what) => {
                        tell(format!("{}: {}: {what}", point.member, state.state));
                        if point.generation > 0 {
                            sink.broken(number);
                        }
                    }
                    None => tell(format!("{}: {}", point.member, state.state)),
                }
                point.trouble = trouble;
            }
        }
    }

    /// Takes what the devices have to tell. Returns whether one has begun anew.
    pub fn take(&mut self, sink: &mut dyn Sink, tell: &mut dyn FnMut(String)) -> bool {
        let mut is_anew = false;
        loop {
            let answers = self.flow.take(OBSERVE);
            is_anew |= self.begin_anew(sink, tell);
            if !self.told(answers, sink, tell) {
                return is_anew;
            }
        }
    }

    /// Notes which devices have begun anew, before what they tell is taken in.
    fn begin_anew(&mut self, sink: &mut dyn Sink, tell: &mut dyn FnMut(String)) -> bool {
        let mut is_anew = false;
        for (point, state) in self.points.iter_mut().zip(self.flow.states()) {
            if point.generation != state.generation && point.generation > 0 {
                is_anew = true;
                (point.clock, point.forgotten) = (Nanos(0), 0);
                tell(format!(
                    "{}: restarted; packets are compared from there on, in separate totals",
                    point.member
                ));
            }
            point.generation = state.generation;
        }
        if is_anew {
            sink.begin_anew();
        }
        is_anew
    }

    /// Ends the observation, and takes the last of it. Returns which devices never observed.
    pub fn close(mut self, sink: &mut dyn Sink, tell: &mut dyn FnMut(String)) -> Vec<Member> {
        look_for_drops(&self.sensors, &mut self.points, Some(&self.flow));
        // The end is one answer: as little as can be is left for it.
        self.take(sink, tell);
        let last = self.flow.close();
        self.begin_anew(sink, tell);
        for (number, _) in last.iter().enumerate().filter(|(_, last)| last.is_err()) {
            sink.broken(number);
        }
        if self.told(last, sink, tell) {
            sink.cut();
            tell("flows exceeded the last answer: more is uncompared".to_owned());
        }
        let silent = self
            .points
            .into_iter()
            .filter(|it| it.generation == 0 || it.is_foreign);
        silent.map(|point| point.member).collect()
    }

    /// Takes in what members tell. Returns whether one has more.
    fn told(
        &mut self,
        answers: Vec<Result<Results, String>>,
        sink: &mut dyn Sink,
        tell: &mut dyn FnMut(String),
    ) -> bool {
        let mut has_more = false;
        for (number, answer) in answers.into_iter().enumerate() {
            let (Ok(results), Some(point)) = (answer, self.points.get_mut(number)) else {
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
                        tell(format!(
                            "{}: {more} observations were lost: it is queried too rarely",
                            point.member
                        ));
                        point.forgotten = forgotten;
                    }
                    let is_foreign = number_of(row, "method") != Some(METHOD);
                    if is_foreign && !point.is_foreign {
                        tell(format!(
                            "{}: its sensor is of another release that selects other packets; not compared",
                            point.member
                        ));
                    }
                    point.is_foreign = is_foreign;
                    continue;
                }
                if point.is_foreign {
                    continue;
                }
                let mut reader = ObservationReader::default();
                for (name, value) in row {
                    reader.set(name, value_of(value));
                }
                if let Some((observation, _)) = reader.finish() {
                    sink.observe(number, &observation);
                }
            }
            // What was told of until then has to be there.
            if is_all {
                sink.advance(number, point.clock, point.dropped);
            }
            has_more |= !is_all;
        }
        has_more
    }
}

/// Components that filter, as text of a stack. One each: joined in one text, a filter could end another one's brackets.
pub(crate) fn filter_text(filters: &[String]) -> String {
    let texts = filters.iter().map(|filter| {
        let quoted = filter.replace('\\', "\\\\").replace('"', "\\\"");
        format!("filter {{ \"{}\" }} ", quoted.replace(['\n', '\r'], " "))
    });
    texts.collect()
}

/// What runs on the devices.
fn stack(options: &PointsOptions) -> String {
    format!(
        "{}{OBSERVE} {{ interval = {}, marks = {}, max_flows = {} }}",
        filter_text(&options.filters),
        OptionValue::Duration(options.interval.0),
        options.marks,
        options.max_flows.saturating_mul(2)
    )
}

/// Asks for what the captures have lost, of sensors that are connected or, before the flow, can be. A sensor that was started anew
/// counts from zero.
fn look_for_drops(sensors: &Sensors, points: &mut [Point], flow: Option<&ScopeFlow>) {
    let states = flow.map(ScopeFlow::states).unwrap_or_default();
    let generations = states.iter().map(|state| state.generation);
    let generations = generations.chain(std::iter::repeat(0));
    // Devices of one sensor are told of together.
    let mut members: Vec<Member> = points.iter().map(|point| point.member.clone()).collect();
    members.sort_by(|one, other| one.address.cmp(&other.address));
    members.dedup_by(|one, other| one.address == other.address);
    let told = each(&members, |member| {
        let client = match flow {
            None => sensors.client(member).ok(),
            Some(_) => sensors.connected(member),
        };
        client?.with_patience(PATIENCE).status().ok()
    });
    for (member, status) in members.iter().zip(told) {
        let its = points.iter_mut().zip(generations.clone());
        let its = its.filter(|(point, _)| point.member.address == member.address);
        let Some(status) = status else { continue };
        for (point, generation) in its {
            let mut devices = status.devices.iter();
            if let Some(device) = devices.find(|device| device.device == point.member.device) {
                let all = dropped(device);
                let (last, before) = point.lost.unwrap_or((generation, all));
                let is_anew = all < before || (last > 0 && last != generation);
                point.dropped += if is_anew { all } else { all - before };
                point.lost = Some((generation, all));
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

fn number_of(row: &Map<String, Value>, name: &str) -> Option<u64> {
    row.get(name)?.as_u64()
}

fn value_of(value: &Value) -> ValueRef<'_> {
    match value {
        Value::String(text) => ValueRef::Text(text),
        value => value.as_u64().map_or(ValueRef::Null, ValueRef::Unsigned),
    }
}
