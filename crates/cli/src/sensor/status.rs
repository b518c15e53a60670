//! How a sensor is, and its flows.

use std::time::{Duration, Instant};

use flowgauge_record::RecordWriter;
use flowgauge_record::listed::{SENSOR_FLOW_SCHEMA, SensorFlowRow};
use flowgauge_sensor_client::protocol::{
    DeviceStatus, FlowStatus, OffloadStatus, SharedStatus, Status,
};

use super::{json, print};
use crate::control::Control;
use crate::failure::{self, Failure};
use crate::options::{SensorFlowsOptions, StatusOptions};
use crate::page::Page;
use crate::sensor_agent::{connect, failed};
use crate::sinks;

/// How long a sensor may take to say how it is: it waits for devices itself, but not so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A signal ends the page within this time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shows devices, stacks and flows.
///
/// # Errors
/// What went wrong, for the user.
pub(super) fn run(options: &StatusOptions) -> Result<(), Failure> {
    let client = connect(&options.sensor)?.with_patience(PATIENCE);
    let control = options.watch.map(|_| Control::install()).transpose()?;
    let mut screen = match options.watch {
        Some(_) => Page::open().map_err(|error| {
            Failure::run(format!("the terminal cannot show a page: {error}"), None)
        })?,
        None => None,
    };
    let mut before: Option<(Instant, Status)> = None;
    loop {
        let status = client.status().map_err(failed)?;
        let now = Instant::now();
        let text = match options.json {
            true => json(&status)?,
            false => page(&status, before.as_ref().map(|(at, it)| (now - *at, it))),
        };
        match &mut screen {
            Some(page) => page.show(text.lines()).map_err(|error| {
                Failure::run(format!("cannot write standard output: {error}"), None)
            })?,
            None => print(&text)?,
        }
        let Some(every) = options.watch else {
            return Ok(());
        };
        before = Some((now, status));
        let next = now + Duration::from_nanos(every.0);
        loop {
            let left = next.saturating_duration_since(Instant::now());
            let wait = left.min(LOOK_EVERY);
            match &screen {
                Some(page) => {
                    if page.key(wait).is_some_and(|key| matches!(key, b'q' | b'Q')) {
                        return Ok(());
                    }
                }
                None => std::thread::sleep(wait),
            }
            if control.as_ref().is_some_and(Control::stopped) {
                return Ok(());
            }
            if left.is_zero() {
                break;
            }
        }
    }
}

/// How a sensor is; rates where it is known how it was so long ago.
fn page(status: &Status, before: Option<(Duration, &Status)>) -> String {
    let mut lines = vec![format!(
        "process {}, version {}, {} s, {} MB of memory, {} connections",
        status.process,
        status.version,
        status.seconds,
        status.memory >> 20,
        status.connections
    )];
    for device in &status.devices {
        let was = before.and_then(|(passed, status)| {
            let mut devices = status.devices.iter();
            Some((passed, devices.find(|was| was.device == device.device)?))
        });
        device_lines(device, was, &mut lines);
    }
    for user in &status.users {
        let was = before.and_then(|(passed, status)| {
            let mut users = status.users.iter();
            Some((passed, users.find(|was| was.user == user.user)?.cpu_ns))
        });
        let share = user.cpu.map_or(String::new(), |cpu| format!(" of {cpu}"));
        lines.push(format!(
            "user {}: {} connections, {}{share}{}, {} of {} bytes of packets wait",
            user_text(user.user, user.name.as_deref()),
            user.connections,
            processors(user.cpu_ns, was),
            if user.is_over { ", over it" } else { "" },
            user.memory,
            user.most_memory
        ));
    }
    lines.join("\n")
}

/// A user of this machine by number, one of another by the name in the user's certificate.
fn user_text(user: u64, name: Option<&str>) -> String {
    name.map_or_else(|| user.to_string(), |name| format!("@{name}"))
}

/// Processor time; how many processors that is, where it is known what it was so long ago.
fn processors(nanos: u64, was: Option<(Duration, u64)>) -> String {
    match was {
        Some((passed, was)) => {
            let seconds = nanos.saturating_sub(was) as f64 * 1e-9;
            format!("{:.2} processors", seconds / passed.as_secs_f64())
        }
        None => format!("{:.1} s of processor time", nanos as f64 * 1e-9),
    }
}

fn device_lines(
    device: &DeviceStatus,
    was: Option<(Duration, &DeviceStatus)>,
    lines: &mut Vec<String>,
) {
    lines.push(format!(
        "{}: {}, {}{}: {} packets received, {} delivered ({} bytes)",
        device.device,
        device.source,
        device.state,
        if device.is_behind { ", behind" } else { "" },
        device.packets,
        device.delivered,
        device.delivered_bytes
    ));
    if let Some((passed, was)) = was {
        let rate = |now: u64, was: u64| now.saturating_sub(was) as f64 / passed.as_secs_f64();
        lines.push(format!(
            "  {:.0} packets/s, {:.1} Mbit/s delivered",
            rate(device.packets, was.packets),
            rate(device.delivered_bytes, was.delivered_bytes) * 8e-6
        ));
    }
    lines.extend(device.offload.iter().map(offload_text));
    let refused = device.refused.iter();
    lines.extend(refused.map(|(place, packets)| format!("  {packets} packets: {place}")));
    lines.extend(
        device
            .errors
            .iter()
            .map(|error| format!("  error: {error}")),
    );
    for stack in &device.stacks {
        let stacks = was.iter().flat_map(|(_, was)| &was.stacks);
        let before = stacks.clone().find(|was| was.stack == stack.stack);
        let passed = was.map(|(passed, _)| passed);
        let cost = processors(
            stack.cpu_ns,
            passed.zip(before).map(|(passed, was)| (passed, was.cpu_ns)),
        );
        let flows = stack.flows.iter().map(flow_text);
        let flows: Vec<String> = flows.collect();
        let components = stack.components.join(" - ");
        lines.push(match flows.is_empty() {
            true => format!("  {}: {components}: {cost}", stack.stack),
            false => format!("  {}: {components}: {cost}", flows.join(", ")),
        });
        lines.extend(
            stack
                .failure
                .iter()
                .map(|failure| format!("    failed: {failure}")),
        );
    }
}

/// What is kept away.
fn offload_text(offload: &OffloadStatus) -> String {
    match &offload.lacks {
        Some(why) => format!("  no in-kernel offload: {why}"),
        None => format!(
            "  {} packets dropped in the kernel ({} bytes), {} cut to headers; {} flows under a verdict, {} not taken",
            offload.packets, offload.bytes, offload.cut, offload.flows, offload.not_taken
        ),
    }
}

/// A flow, and whose it is.
fn flow_text(flow: &FlowStatus) -> String {
    let (number, process) = (flow.flow, flow.process);
    let user = user_text(flow.user, flow.name.as_deref());
    let lost = match flow.lost {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    format!("flow {number} of user {user} (process {process}{lost})")
}

/// Lists flows, or what is computed once for them.
///
/// # Errors
/// What went wrong, for the user.
pub(super) fn flows(options: &SensorFlowsOptions) -> Result<(), Failure> {
    let client = connect(&options.sensor)?.with_patience(PATIENCE);
    let status = client.status_with(options.shared).map_err(failed)?;
    if options.shared {
        return shared(&status, options.output.json);
    }
    let output = sinks::open(&options.output, SENSOR_FLOW_SCHEMA)?;
    let format = sinks::format(&options.output);
    let mut writer = RecordWriter::new(output, format, SENSOR_FLOW_SCHEMA);
    for device in &status.devices {
        let stacks = device.stacks.iter();
        let all = stacks.flat_map(|stack| stack.flows.iter().map(move |flow| (stack, flow)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, flow)| flow.flow);
        for (stack, flow) in all {
            writer.write(&SensorFlowRow {
                device: &device.device,
                flow: flow.flow,
                user: flow.user,
                name: flow.name.as_deref(),
                process: flow.process,
                seconds: flow.seconds,
                cpu_ns: flow.cpu_ns,
                lost: flow.lost,
                waiting: flow.waiting,
                components: &stack.components,
                failure: stack.failure.as_deref(),
            });
        }
    }
    failure::of_writer(&mut writer)
}

/// Shows what is computed once, as a tree or as objects.
fn shared(status: &Status, as_json: bool) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for device in &status.devices {
        if as_json {
            lines.push(json(&Shared {
                device: &device.device,
                shared: &device.shared,
            })?);
        } else {
            lines.push(format!("{}:", device.device));
            tree(&device.shared, 1, &mut lines);
        }
    }
    match lines.is_empty() {
        true => Ok(()),
        false => print(&lines.join("\n")),
    }
}

/// What is computed once on a device, as JSON.
#[derive(serde::Serialize)]
struct Shared<'a> {
    device: &'a str,
    shared: &'a [SharedStatus],
}

/// A line for what is computed once, and below it what the flows go on with.
fn tree(shared: &[SharedStatus], depth: usize, lines: &mut Vec<String>) {
    for one in shared {
        let mut who = Vec::new();
        if !one.flows.is_empty() {
            let numbers: Vec<String> = one.flows.iter().map(u64::to_string).collect();
            let flows = if one.flows.len() == 1 {
                "flow"
            } else {
                "flows"
            };
            who.push(format!("{flows} {}", numbers.join(", ")));
        }
        who.extend(one.stacks.iter().map(|stack| format!("stack {stack}")));
        match one.others {
            0 => {}
            1 => who.push("1 other".to_owned()),
            others => who.push(format!("{others} others")),
        }
        let mut what = one.components.clone();
        what.extend(one.is_engine.then(|| "one engine".to_owned()));
        let indent = "  ".repeat(depth);
        lines.push(format!("{indent}{}: {}", what.join(" - "), who.join(", ")));
        tree(&one.next, depth + 1, lines);
    }
}
