//! A measurement on sensors: the modules at work. Blocking.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_loss::{Comparison, ComparisonOptions, Observation, Of};
use flowgauge_record::json::JsonEncoder;
use flowgauge_record::text::protocol_name;
use flowgauge_sensor_client::protocol::Results;
use flowgauge_sensor_client::scope::Member;
use flowgauge_sensor_client::{ClientError, MemberState, ScopeFlow, Sensors};
use flowgauge_stack::OptionValue;
use flowgauge_sys::notice::tell;
use flowgauge_wire::{Direction, FlowKey, Nanos};
use serde_json::{Map, Value, json};

use crate::modules::{Metric, Site};
use crate::points::{Points, PointsOptions, Sink, filter_text};
use crate::rights::now;
use crate::session::Outcome;

/// How often sensors are asked, and it is looked whether the measurement was cancelled.
const ASK: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(25);
/// Flows, or their directions, that a measurement tells apart at once.
const MOST_FLOWS: usize = 100_000;
/// The component that adds up by application, and how many it tells.
const APPLICATIONS: &str = "applications";
const MOST_APPLICATIONS: usize = 1000;
/// Packets with SYN, and what answers them.
const HANDSHAKES: &str = "tcp[13] & 2 != 0 or (ip6 and ip6[6] == 6 and ip6[53] & 2 != 0)";

/// A sensor and its name for users, as domain/name.
pub(crate) type Named = (String, Member);

/// What is measured, where.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) metric: Metric,
    pub(crate) count: usize,
    /// Only packets that match all of them.
    pub(crate) filters: Vec<String>,
    pub(crate) source: Vec<Named>,
    pub(crate) destination: Vec<Named>,
    /// How long, once the sensors have begun.
    pub(crate) time: Duration,
    /// When it ends instead, but not within a second of that.
    pub(crate) ends: Option<Instant>,
}

impl Task {
    /// How often flows are told of.
    fn interval(&self) -> Nanos {
        let eighth = self.time.as_nanos() as u64 / 8;
        Nanos(eighth.clamp(100_000_000, 10_000_000_000))
    }
}

/// Measures. Ends early when all devices have come to their end, or `is_cancelled`.
///
/// # Errors
/// Why nothing could be measured; [`without_reason`] makes it fit for all users.
pub(crate) fn measure(
    sensors: &Arc<Sensors>,
    task: &Task,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Outcome, String> {
    let began = now();
    let (rows, notes) = match task.metric {
        Metric::Loss | Metric::Delay => between(sensors, task, is_cancelled),
        Metric::Bandwidth => bandwidth(sensors, task, is_cancelled),
        Metric::Shares => shares(sensors, task, is_cancelled),
        _ => of_flows(sensors, task, is_cancelled),
    }?;
    Ok(Outcome {
        began,
        ended: now(),
        rows,
        notes,
    })
}

type Found = (Vec<Map<String, Value>>, Vec<String>);

/// Waits until the time is over; `ask` is called meanwhile, and says whether nothing more comes.
fn wait(task: &Task, is_cancelled: &dyn Fn() -> bool, mut ask: impl FnMut() -> bool) {
    let begun = Instant::now();
    let least = begun + task.time.min(Duration::from_secs(1));
    let until = task.ends.map_or(begun + task.time, |ends| ends.max(least));
    let mut next = Instant::now() + ASK;
    while Instant::now() < until && !is_cancelled() {
        thread::sleep(LOOK);
        if Instant::now() >= next {
            if ask() {
                return;
            }
            next = Instant::now() + ASK;
        }
    }
}

const UNREACHABLE: &str = "its sensors cannot be reached, or refuse the measurement";

/// Why nothing begins.
fn unreachable(error: ClientError) -> String {
    tell(format_args!("a measurement could not begin: {error}"));
    format!("{UNREACHABLE}: {error}")
}

/// An error without what sensors say and where they are.
pub(crate) fn without_reason(error: String) -> String {
    match error.starts_with(UNREACHABLE) {
        true => UNREACHABLE.to_owned(),
        false => error,
    }
}

fn say(line: String) {
    tell(format_args!("{line}"));
}

/// Which sensors were not there.
fn absent(names: &[String], states: Vec<MemberState>) -> Vec<String> {
    let all = names.iter().zip(states);
    let absent = all.filter(|(_, state)| state.state != "ok");
    absent
        .map(|(name, state)| format!("{name} is {}", state.state))
        .collect()
}

/// Has devices observe until the time is over. What is told goes to `sink`.
fn observe<S: Sink>(
    sensors: &Arc<Sensors>,
    task: &Task,
    (names, members): (&[String], Vec<Member>),
    filter: Option<&str>,
    is_cancelled: &dyn Fn() -> bool,
    mut sink: S,
) -> Result<(S, Vec<String>), String> {
    let filter = filter.map(str::to_owned);
    let options = PointsOptions {
        filters: task.filters.iter().cloned().chain(filter).collect(),
        interval: task.interval(),
        marks: 4,
        // What sensors allow, half of it for each direction.
        max_flows: MOST_FLOWS / 2,
    };
    let mut points = Points::open(sensors, members, &options).map_err(unreachable)?;
    let mut notes = Vec::new();
    wait(task, is_cancelled, || {
        points.look(&mut sink, &mut say);
        if points.take(&mut sink, &mut say) {
            notes = vec!["a sensor restarted: earlier packets are left out".to_owned()];
        }
        points.flow().is_over()
    });
    points.look(&mut sink, &mut say);
    let states = points.flow().states();
    let named = names.iter().zip(&states);
    let troubles = named.filter_map(|(name, state)| {
        let trouble = state.trouble.as_ref()?;
        Some(format!("{name}: {}", trouble.what))
    });
    let troubles: Vec<String> = troubles.collect();
    notes.extend(absent(names, states));
    let silent = points.close(&mut sink, &mut say);
    let least = if task.metric.declared().site == Site::Between {
        2
    } else {
        1
    };
    match names.len() - silent.len() < least {
        true => Err(format!("{UNREACHABLE}: {}", troubles.join("; "))),
        false => Ok((sink, notes)),
    }
}

/// Loss and delay: the points of one domain compared with those of the other.
fn between(
    sensors: &Arc<Sensors>,
    task: &Task,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Found, String> {
    let (mut names, mut members): (Vec<String>, Vec<Member>) = task.source.iter().cloned().unzip();
    let others: Vec<usize> = (task.destination.iter())
        .map(
            |(name, member)| match members.iter().position(|it| it == member) {
                Some(at) => at,
                None => {
                    names.push(name.clone());
                    members.push(member.clone());
                    members.len() - 1
                }
            },
        )
        .collect();
    let pairs = (0..task.source.len()).flat_map(|one| {
        others
            .iter()
            .map(move |other| (one.min(*other), one.max(*other)))
    });
    let pairs: HashSet<(usize, usize)> = pairs.filter(|(one, other)| one != other).collect();
    if pairs.is_empty() {
        return Err("it needs two sensors, and there is one".to_owned());
    }
    let interval = task.interval();
    let compared = Comparison::new(ComparisonOptions {
        points: names.len(),
        pairs: pairs.into_iter().collect(),
        interval,
        patience: Some(Nanos(interval.0 * 2)),
        lag: Nanos(interval.0 * 3),
        max_flows: MOST_FLOWS / 2,
        flows: false,
        one_way: false,
    });
    let points = (&names[..], members);
    let (mut comparison, mut notes) = observe(sensors, task, points, None, is_cancelled, compared)?;
    // Totals of before a sensor began anew.
    comparison.take_rows();
    comparison.finish();
    if comparison.evicted() > 0 {
        notes.push(format!(
            "{} flows exceeded the number compared at once",
            comparison.evicted()
        ));
    }
    let fields: Vec<&str> = task.metric.declared().fields.split(' ').collect();
    let rows = comparison.take_rows().into_iter();
    let mut rows: Vec<Map<String, Value>> = rows
        .filter(|row| row.of == Of::Total)
        .filter_map(|row| {
            let mut text = Vec::new();
            JsonEncoder::default().object(&row.record(&names), &mut text);
            let mut row: Map<String, Value> = serde_json::from_slice(&text).ok()?;
            row.retain(|name, _| fields.contains(&name.as_str()));
            Some(row)
        })
        .collect();
    let key =
        |row: &Map<String, Value>| ["from", "to"].map(|name| row.get(name).map(Value::to_string));
    rows.sort_by_key(key);
    Ok((rows, notes))
}

/// Packets and bytes between two readings.
fn bandwidth(
    sensors: &Arc<Sensors>,
    task: &Task,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Found, String> {
    let (names, members): (Vec<String>, Vec<Member>) = task.source.iter().cloned().unzip();
    let stack = format!("{}count bytes", filter_text(&task.filters));
    let flow = ScopeFlow::open(sensors, members, &stack, &[], Duration::ZERO);
    let mut flow = flow.map_err(unreachable)?;
    let first = flow.results();
    wait(task, is_cancelled, || {
        flow.refresh();
        flow.is_over()
    });
    let mut notes = absent(&names, flow.states());
    let generations = flow.states().into_iter().map(|state| state.generation);
    let generations: Vec<u32> = generations.collect();
    let last = flow.close();
    let mut rows = Vec::new();
    for (at, (name, last)) in names.iter().zip(last).enumerate() {
        let Ok(last) = last else { continue };
        // What began anew, or was not there, has counted from its own beginning.
        let first = first.get(at).and_then(|first| first.as_ref().ok());
        let Some(first) = first.filter(|_| generations.get(at) == Some(&1)) else {
            notes.push(format!("{name} was absent part of the time"));
            continue;
        };
        if let Some(failure) = &last.failure {
            tell(format_args!("{name}: {failure}"));
            notes.push(format!("{name} has failed"));
        }
        let counted = |label| value(&last, label).saturating_sub(value(first, label));
        let seconds = last.time.saturating_sub(first.time) as f64 / 1e9;
        let bytes = counted("bytes");
        rows.push(row(json!({
            "sensor": name,
            "seconds": seconds,
            "packets": counted("count"),
            "bytes": bytes,
            "bits_per_second": rate(bytes, seconds),
        })));
    }
    Ok((rows, notes))
}

/// The number of a component.
fn value(results: &Results, label: &str) -> u64 {
    let mut components = results.components.iter();
    let found = components.find(|component| component.component == label);
    let value = found.and_then(|component| component.value.as_ref()?.as_u64());
    value.unwrap_or(0)
}

/// A row of fields.
pub(crate) fn row(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(row) => row,
        _ => Map::new(),
    }
}

/// Bits in a second; nothing where there was no time.
fn rate(bytes: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
}

/// One direction of a flow at a sensor.
#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Nanos,
    last: Nanos,
    packets: u64,
    bytes: u64,
}

/// Directions of flows, by sensor.
#[derive(Debug, Default)]
struct Flows {
    seen: HashMap<(usize, FlowKey, bool), Seen>,
    left_out: u64,
}

impl Sink for Flows {
    fn observe(&mut self, point: usize, observation: &Observation) {
        let key = (
            point,
            observation.key,
            observation.direction == Direction::LowToHigh,
        );
        if self.seen.len() >= MOST_FLOWS && !self.seen.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let new = Seen {
            first: observation.first,
            last: observation.last,
            packets: observation.counts.all(),
            bytes: observation.counts.bytes,
        };
        self.seen.insert(key, new);
    }

    fn advance(&mut self, _point: usize, _clock: Nanos, _dropped: u64) {}

    fn begin_anew(&mut self) {
        *self = Flows::default();
    }
}

/// Throughput and round trips: what is told of flows, at each sensor for itself.
fn of_flows(
    sensors: &Arc<Sensors>,
    task: &Task,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Found, String> {
    let (names, members): (Vec<String>, Vec<Member>) = task.source.iter().cloned().unzip();
    let filter = (task.metric == Metric::ApplicationRtt).then_some(HANDSHAKES);
    let points = (&names[..], members);
    // Sensors may let handshakes be seen, and not what is said.
    let spoken = filter.and_then(|_| Applications::open(sensors, task).ok());
    let (flows, mut notes) = observe(
        sensors,
        task,
        points,
        filter,
        is_cancelled,
        Flows::default(),
    )?;
    let (spoken, others) = spoken.map(Applications::close).unwrap_or_default();
    notes.extend(
        others
            .into_iter()
            .filter(|note| !notes.contains(note))
            .collect::<Vec<_>>(),
    );
    if flows.left_out > 0 {
        notes.push(format!(
            "{} flows exceeded the number tracked at once",
            flows.left_out
        ));
    }
    let rows = names.iter().enumerate().flat_map(|(point, name)| {
        let seen = flows.seen.iter().filter(move |((at, ..), _)| *at == point);
        let seen = seen.map(|((_, key, is_low), seen)| (*key, *is_low, *seen));
        match task.metric {
            Metric::Throughput => throughput(name, seen.collect(), task.count),
            _ => {
                let its = spoken.iter().find(|(sensor, _)| sensor == name);
                let answers = its.map_or_else(Vec::new, |(_, found)| answers(name, found));
                [vec![round_trips(name, seen)], answers].concat()
            }
        }
    });
    Ok((rows.collect(), notes))
}

fn throughput(
    sensor: &str,
    mut seen: Vec<(FlowKey, bool, Seen)>,
    count: usize,
) -> Vec<Map<String, Value>> {
    seen.sort_by_key(|(key, is_low, seen)| (u64::MAX - seen.bytes, *key, *is_low));
    let rows = seen.into_iter().take(count).map(|(key, is_low, seen)| {
        let direction = if is_low {
            Direction::LowToHigh
        } else {
            Direction::HighToLow
        };
        let (source, destination) = key.endpoints(direction);
        let seconds = seen.last.0.saturating_sub(seen.first.0) as f64 / 1e9;
        row(json!({
            "sensor": sensor,
            "source": source.0.to_ip(key.version),
            "source_port": source.1,
            "destination": destination.0.to_ip(key.version),
            "destination_port": destination.1,
            "protocol": protocol_name(key.protocol),
            "packets": seen.packets,
            "bytes": seen.bytes,
            "seconds": seconds,
            "bits_per_second": rate(seen.bytes, seconds),
        }))
    });
    rows.collect()
}

/// A sensor, and the rows of its applications.
type Counted = (String, Vec<Map<String, Value>>);

/// Applications by what is said in their flows, at each sensor of the source.
struct Applications {
    names: Vec<String>,
    flow: ScopeFlow,
}

impl Applications {
    fn open(sensors: &Arc<Sensors>, task: &Task) -> Result<Applications, ClientError> {
        let (names, members) = task.source.iter().cloned().unzip();
        // A timeout that nobody else has, for an engine of its own: one that runs would count what came before, too.
        let own = OptionValue::Duration(30_000_000_000 + (now() * 1e9) as u64 % 1_000_000_000);
        let stack = format!(
            "{}transactions {{ flows = yes, other_timeout = {own} }} {APPLICATIONS} {{ count = {MOST_APPLICATIONS} }}",
            filter_text(&task.filters)
        );
        let flow = ScopeFlow::open(sensors, members, &stack, &[], Duration::ZERO)?;
        Ok(Applications { names, flow })
    }

    /// Ends it. Returns what was counted, and what is to be said.
    fn close(mut self) -> (Vec<Counted>, Vec<String>) {
        let mut notes = absent(&self.names, self.flow.states());
        let states = self.flow.states().into_iter();
        let anew = self
            .names
            .iter()
            .zip(states)
            .filter(|(_, it)| it.generation > 1);
        notes.extend(
            anew.map(|(name, _)| format!("{name} restarted: earlier packets are left out")),
        );
        let last = self.flow.close().into_iter();
        let counted = self.names.into_iter().zip(last).filter_map(|(name, last)| {
            let mut components = last.ok()?.components.into_iter();
            let found = components.find(|component| component.component == APPLICATIONS)?;
            Some((name, found.rows.unwrap_or_default()))
        });
        (counted.collect(), notes)
    }
}

/// Those with the most bytes.
fn shares(
    sensors: &Arc<Sensors>,
    task: &Task,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Found, String> {
    let applications = Applications::open(sensors, task).map_err(unreachable)?;
    wait(task, is_cancelled, || {
        applications.flow.refresh();
        applications.flow.is_over()
    });
    let (counted, notes) = applications.close();
    let rows = counted.into_iter().flat_map(|(sensor, found)| {
        let all: u64 = found.iter().map(|it| number(it, "all_bytes")).sum();
        let most = found.into_iter().filter(|it| number(it, "flows") > 0);
        most.take(task.count).map(move |it| {
            row(json!({
                "sensor": sensor,
                "application": it["application"],
                "packets": it["packets"],
                "bytes": it["bytes"],
                "share": number(&it, "bytes") as f64 / (all as f64).max(1.0),
            }))
        })
    });
    Ok((rows.collect(), notes))
}

fn number(row: &Map<String, Value>, name: &str) -> u64 {
    row.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// From requests to replies.
fn answers(sensor: &str, found: &[Map<String, Value>]) -> Vec<Map<String, Value>> {
    let asked = |it: &&Map<String, Value>| number(it, "answered") + number(it, "unanswered") > 0;
    let rows = found.iter().filter(asked).map(|it| {
        let answered = number(it, "answered");
        let seconds = |nanos: f64| (answered > 0).then_some(nanos / 1e9);
        row(json!({
            "sensor": sensor,
            "application": it["application"],
            "answered": answered,
            "unanswered": number(it, "unanswered"),
            "least": seconds(number(it, "latency_least") as f64),
            "mean": seconds(number(it, "latency_sum") as f64 / answered as f64),
            "most": seconds(number(it, "latency_most") as f64),
        }))
    });
    rows.collect()
}

/// From the first packet with SYN of a connection to the first of the other direction, which answers it.
fn round_trips(
    sensor: &str,
    seen: impl Iterator<Item = (FlowKey, bool, Seen)>,
) -> Map<String, Value> {
    let mut connections: HashMap<FlowKey, Vec<u64>> = HashMap::new();
    for (key, _, seen) in seen {
        connections.entry(key).or_default().push(seen.first.0);
    }
    let trips = connections.values().filter_map(|firsts| match firsts[..] {
        [one, other] => Some(one.abs_diff(other) as f64 / 1e9),
        _ => None,
    });
    let trips: Vec<f64> = trips.collect();
    let some = |value: f64| (!trips.is_empty()).then_some(value);
    let sum: f64 = trips.iter().sum();
    row(json!({
        "sensor": sensor,
        "application": "tcp",
        "answered": trips.len(),
        "unanswered": connections.len() - trips.len(),
        "least": some(trips.iter().copied().fold(f64::INFINITY, f64::min)),
        "mean": some(sum / trips.len() as f64),
        "most": some(trips.iter().copied().fold(0.0, f64::max)),
    }))
}
