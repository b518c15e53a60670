//! `flowgauge sensor`: a permanent process that captures for many, and what its users ask of it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_runtime::shared;
use flowgauge_sensor::config::most_memory;
use flowgauge_sensor::{Alone, Config, Sensor, StartError};
use flowgauge_sensor_client::protocol::{Results, Status};
use flowgauge_sensor_client::{Client, ClientError, Flow};
use flowgauge_sys::files::{self, How};
use flowgauge_sys::privileges;
use sd_notify::NotifyState;

use crate::anonymize;
use crate::control::{Control, Hangup};
use crate::failure::Failure;
use crate::options::{FlowOptions, SensorCommand, SensorOptions, SensorRunOptions, StatusOptions};
use crate::say::say;
use crate::summary;

/// What a forced policy would be forgotten by.
const REFUSED: &str = "a sensor, whose users get packets,";

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &SensorOptions) -> Result<(), Failure> {
    match &options.command {
        SensorCommand::Run(options) => match &options.interface {
            Some(interface) => share(interface, options),
            None => serve(&options.config.config),
        },
        SensorCommand::Check(options) => {
            let config = Config::read(&options.config);
            let config = config.map_err(|error| unstarted(&error.into()))?;
            let (devices, stacks) = (config.devices.len(), config.stacks.len());
            let file = options.config.display();
            say!("{file}: good: {devices} devices, {stacks} stacks");
            Ok(())
        }
        SensorCommand::Status(options) => status(options),
        SensorCommand::Flow(options) => flow(options, &options.stack, &[], &[]),
        SensorCommand::Start(options) => {
            let client = connect(&options.sensor.socket)?;
            client.start(&options.device).map_err(failed)
        }
        SensorCommand::Reload(options) => {
            let said = connect(&options.socket)?.reload().map_err(failed)?;
            for line in said {
                say!("{line}");
            }
            Ok(())
        }
        SensorCommand::Stop(options) => connect(&options.socket)?.stop().map_err(failed),
    }
}

fn unstarted(error: &StartError) -> Failure {
    Failure::Usage {
        what: error.to_string(),
        hint: error.hint(),
    }
}

fn failed(error: ClientError) -> Failure {
    let hint = error.hint().map(str::to_owned);
    match error {
        ClientError::Refused(_) => Failure::Usage {
            what: error.to_string(),
            hint,
        },
        error => Failure::run(error.to_string(), hint),
    }
}

fn connect(socket: &Path) -> Result<Client, Failure> {
    Client::connect(socket).map_err(failed)
}

/// Is the sensor.
fn serve(config: &Path) -> Result<(), Failure> {
    anonymize::refuse_if_forced(REFUSED)?;
    let control = Control::install_for(Hangup::Reloads)?;
    let sensor = Sensor::start(config, control.stop_flag());
    let sensor = Arc::new(sensor.map_err(|error| unstarted(&error))?);
    control.begin();
    if let Some(socket) = sensor.socket() {
        say!(
            "flowgauge: sensor at {}, {}",
            socket.display(),
            sensor.devices()
        );
    }
    watch(&sensor, &control);
    Ok(())
}

/// Is a sensor for programs with libscap alone. Where another program started it nobody sees what it prints: whoever comes to
/// the socket is told what is wrong.
fn share(interface: &str, options: &SensorRunOptions) -> Result<(), Failure> {
    /// How long the program that started this one may take to come, before it is told why there is nothing.
    const COMING: Duration = Duration::from_secs(2);
    /// How long the sensor stays when the last program that it was started for has gone.
    const GRACE: Duration = Duration::from_secs(2);

    let forced = anonymize::refuse_if_forced(REFUSED);
    let listener = match options.inherited {
        true => shared::inherited_listener(),
        false => shared::listen(interface),
    };
    let listener = match listener {
        Ok(listener) => Arc::new(listener),
        Err(error) => {
            let failure = Failure::run(error.to_string(), error.hint());
            return Err(forced.err().unwrap_or(failure));
        }
    };
    let begin = || {
        forced?;
        let alone = Alone {
            listener: Arc::clone(&listener),
            group: group(interface, options)?,
            grace: options.inherited.then_some(GRACE),
            memory: most_memory(),
        };
        let control = Control::install()?;
        let sensor = Sensor::share(interface, alone, control.stop_flag());
        let sensor = sensor.map_err(|error| Failure::run(error.to_string(), error.hint()))?;
        Ok((Arc::new(sensor), control))
    };
    let (sensor, control) = begin().inspect_err(|failure: &Failure| {
        let patience = match options.inherited {
            true => COMING,
            false => Duration::ZERO,
        };
        shared::turn_away(&listener, &failure.in_one_line(), patience);
    })?;
    control.begin();
    say!("flowgauge: sharing {interface}");
    watch(&sensor, &control);
    Ok(())
}

/// The group that may share a capture, from the option or the environment.
fn group(interface: &str, options: &SensorRunOptions) -> Result<Option<u32>, Failure> {
    const GROUP: &str = "FLOWGAUGE_SHARE_GROUP";

    let from_environment = || {
        let name = std::env::var_os(GROUP).filter(|name| !name.is_empty())?;
        Some(name.to_string_lossy().into_owned())
    };
    let name = options.group.clone().or_else(from_environment);
    let number = name.map(|name| {
        privileges::group_id(&name).map_err(|error| {
            Failure::usage(
                format!("who may share the capture on {interface}: {error}"),
                format!("--group or {GROUP} takes a group's name or number; see getent group"),
            )
        })
    });
    number.transpose()
}

/// Lets it run until it is stopped.
fn watch(sensor: &Arc<Sensor>, control: &Control) {
    notify(&[NotifyState::Ready]);
    let ledger = sensor.run(|sensor| {
        notify(&[NotifyState::Watchdog]);
        if !control.reload_wanted() {
            return;
        }
        match sensor.reload() {
            Ok(said) => said
                .iter()
                .for_each(|line| say!("flowgauge: reloaded: {line}")),
            Err(error) => {
                let _code = unstarted(&error).report();
                say!("not reloaded: the sensor continues as it was");
            }
        }
    });
    notify(&[NotifyState::Stopping]);
    say!("{}", summary::ledger_line(&ledger));
    say!("flowgauge: sensor has ended");
}

/// Tells systemd, if it started this process.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}

fn status(options: &StatusOptions) -> Result<(), Failure> {
    /// To the upper left, and nothing of what was there.
    const CLEARED: &str = "\x1b[H\x1b[J";

    let client = connect(&options.sensor.socket)?;
    let clears = options.watch.is_some() && std::io::stdout().is_terminal();
    let mut before: Option<(Instant, Status)> = None;
    loop {
        let status = client.status().map_err(failed)?;
        let now = Instant::now();
        let text = match options.json {
            true => json(&status)?,
            false => page(&status, before.as_ref().map(|(at, it)| (now - *at, it))),
        };
        print(&match clears {
            true => format!("{CLEARED}{text}"),
            false => text,
        })?;
        let Some(every) = options.watch else {
            return Ok(());
        };
        before = Some((now, status));
        std::thread::sleep(Duration::from_nanos(every.0));
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
        lines.push(format!(
            "{}: {}, {}: {} packets received, {} delivered ({} bytes)",
            device.device,
            device.source,
            device.state,
            device.packets,
            device.delivered,
            device.delivered_bytes
        ));
        let was = before.and_then(|(passed, status)| {
            let mut devices = status.devices.iter();
            Some((passed, devices.find(|was| was.device == device.device)?))
        });
        if let Some((passed, was)) = was {
            let rate = |now: u64, was: u64| now.saturating_sub(was) as f64 / passed.as_secs_f64();
            lines.push(format!(
                "  {:.0} packets/s, {:.1} Mbit/s delivered",
                rate(device.packets, was.packets),
                rate(device.delivered_bytes, was.delivered_bytes) * 8e-6
            ));
        }
        let refused = device.refused.iter();
        lines.extend(refused.map(|(place, packets)| format!("  {packets} packets: {place}")));
        lines.extend(
            device
                .errors
                .iter()
                .map(|error| format!("  error: {error}")),
        );
        for stack in &device.stacks {
            let flows = stack.flows.iter().map(|flow| {
                let (number, user, process) = (flow.flow, flow.user, flow.process);
                format!("flow {number} of user {user} (process {process})")
            });
            let flows: Vec<String> = flows.collect();
            let components = stack.components.join(" - ");
            lines.push(match flows.is_empty() {
                true => format!("  {}: {components}", stack.stack),
                false => format!("  {}: {components}", flows.join(", ")),
            });
            lines.extend(
                stack
                    .failure
                    .iter()
                    .map(|failure| format!("    failed: {failure}")),
            );
        }
    }
    lines.join("\n")
}

/// Has MAPI's functions run on a device.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn mapi(options: &FlowOptions) -> Result<(), Failure> {
    let wrong = |error: flowgauge_mapi::Error| {
        let what = format!("{error} (MAPI's error {})", error.number);
        Failure::usage(what, "docs/mapi-functions.md lists the functions")
    };
    let calls = flowgauge_mapi::parse(&options.stack).map_err(wrong)?;
    let names = calls.iter().map(|call| call.function.name.to_owned());
    let names: Vec<String> = names.collect();
    let stack = flowgauge_mapi::flow(&options.stack).map_err(wrong)?;
    let files = stack.targets.iter().map(flowgauge_mapi::Target::open);
    let files: Vec<OwnedFd> = files.collect::<Result<_, _>>().map_err(wrong)?;
    flow(options, &stack.text, &files, &names)
}

/// Has a flow run, and writes its results. Its components are called by `names`, if there are any.
fn flow(
    options: &FlowOptions,
    stack: &str,
    files: &[OwnedFd],
    names: &[String],
) -> Result<(), Failure> {
    let control = Control::install()?;
    let client = connect(&options.sensor.socket)?;
    let files: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
    let device = match &options.read {
        Some(path) => own_device(&client, path)?,
        None => options.device.clone().unwrap_or_default(),
    };
    let mut flow = client.open(&device, stack, &files).map_err(failed)?;
    control.begin();
    if options.start || options.read.is_some() {
        client.start(&device).map_err(failed)?;
    }
    let every = Duration::from_nanos(options.every.0.max(1_000_000));
    let mut left = options.count.unwrap_or(u64::MAX);
    while left > 0 {
        let mut packets = VecDeque::new();
        let is_over = wait(&control, every, &mut flow, &mut packets)?;
        let is_over = is_over || flow.results().map_err(failed)?.is_last;
        take(&mut flow, &mut packets)?;
        left = if is_over { 1 } else { left };
        let results = match left {
            1 => client.close(flow.number()),
            _ => flow.results(),
        };
        let mut results = results.map_err(failed)?;
        for (component, packet) in packets {
            if let Some(component) = results.components.get_mut(component) {
                component.rows.get_or_insert_default().push(packet);
            }
        }
        if !names.is_empty() {
            // Others are there for the functions.
            let labels = (1..=names.len()).map(flowgauge_mapi::label);
            let by_label: BTreeMap<String, &String> = labels.zip(names).collect();
            results.components.retain_mut(|component| {
                let name = by_label.get(&component.component);
                name.map(|name| component.component.clone_from(name))
                    .is_some()
            });
        }
        print(&match options.json {
            true => json(&results)?,
            false => lines(&results),
        })?;
        if let Some(failure) = results.failure {
            return Err(Failure::run(failure, None));
        }
        left -= 1;
    }
    Ok(())
}

/// A device of a file that this process may read, of this connection alone.
fn own_device(client: &Client, path: &Path) -> Result<String, Failure> {
    let file = files::named().open(path, How::read());
    let file = file.map_err(|error| {
        let what = format!("{}: {error}", path.display());
        Failure::usage(what, "-r takes a capture file that you may read")
    })?;
    client.create_device(file.as_fd()).map_err(failed)
}

/// A packet that came to a component, to be shown.
type Row = (usize, serde_json::Map<String, serde_json::Value>);

/// Takes the packets that wait; the last are kept.
fn take(flow: &mut Flow, packets: &mut VecDeque<Row>) -> Result<(), Failure> {
    const KEPT: usize = 1000;

    while let Some(packet) = flow.next(Duration::ZERO).map_err(failed)? {
        if packets.len() == KEPT {
            packets.pop_front();
        }
        let bytes = packet.bytes().iter();
        let bytes: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        let nanos = ((packet.time() & u64::from(u32::MAX)) * 1_000_000_000) >> 32;
        let time = (packet.time() >> 32) * 1_000_000_000 + nanos;
        let row = [
            ("time", time.into()),
            ("length", packet.wire_len().into()),
            ("bytes", bytes.into()),
        ];
        let row = row.map(|(name, value)| (name.to_owned(), value));
        packets.push_back((packet.component, row.into_iter().collect()));
    }
    Ok(())
}

/// Waits so long, or until the device has come to its end, and takes packets meanwhile. Whether the run is to end.
fn wait(
    control: &Control,
    time: Duration,
    flow: &mut Flow,
    packets: &mut VecDeque<Row>,
) -> Result<bool, Failure> {
    const LOOK: Duration = Duration::from_millis(50);

    let until = std::time::Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if control.stopped() || left.is_zero() || flow.readings().read(0).is_last {
            return Ok(control.stopped());
        }
        take(flow, packets)?;
        std::thread::sleep(left.min(LOOK));
    }
}

/// A line for each result.
fn lines(results: &Results) -> String {
    let mut lines = Vec::new();
    for component in &results.components {
        let Some(what) = &component.result else {
            continue;
        };
        let name = &component.component;
        if let Some(value) = &component.value {
            let unit = component.unit.as_deref().unwrap_or_default();
            lines.push(format!("{name}: {what}: {value} {unit}"));
        }
        for row in component.rows.iter().flatten() {
            let cells: Vec<String> = row
                .iter()
                .map(|(name, cell)| format!("{name}={cell}"))
                .collect();
            lines.push(format!("{name}: {}", cells.join(" ")));
        }
    }
    lines.join("\n")
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::run(error.to_string(), None))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("standard output: {error}"), None))
        }
        _ => Ok(()),
    }
}
