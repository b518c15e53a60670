//! `flowgauge sensor`: a permanent process that captures for many, and what its users ask of it.

mod functions;
mod own_files;
mod status;

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use flowgauge_mapi::Target;
use flowgauge_record::text::TimeWriter;
use flowgauge_runtime::shared;
use flowgauge_sensor::config::most_memory;
use flowgauge_sensor::{Alone, Sensor, StartError};
use flowgauge_sensor_client::protocol::Results;
use flowgauge_sensor_client::{Client, ClientError, MemberState, Packet, ScopeFlow};
use flowgauge_sys::files::{self, How};
use flowgauge_sys::privileges;
use flowgauge_wire::Nanos;
use sd_notify::NotifyState;

use crate::anonymize;
use crate::control::{Control, Hangup};
use crate::failure::Failure;
use crate::input;
use crate::options::{FlowOptions, MapiOptions, SensorCommand, SensorOptions, SensorRunOptions};
use crate::say::{count, say};
use crate::sensor_agent::{self, connect, failed};
use crate::summary;

/// What a forced policy would be forgotten by.
const REFUSED: &str = "a sensor, which gives packets to users,";

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
            let checked = Sensor::check_config(&options.config);
            let (devices, stacks, notes) = checked.map_err(|error| unstarted(&error))?;
            let file = options.config.display();
            for note in notes {
                say!("{file}: {note}");
            }
            let devices = count(devices as u64, "device");
            let stacks = count(stacks as u64, "stack");
            say!("{file}: valid: {devices}, {stacks}");
            Ok(())
        }
        SensorCommand::Status(options) => status::run(options),
        SensorCommand::Flows(options) => status::flows(options),
        SensorCommand::Flow(options) => {
            let stack = match &options.write {
                Some(_) if own_files::ends_with_bare_output(options.stack.stack()) => {
                    return Err(Failure::usage(
                        "the stack already ends with output, and -w would add another one",
                        "omit output: -w FILE adds output { file = FILE } at the end",
                    ));
                }
                Some(file) => {
                    let file = file.display().to_string();
                    let file = file.replace('\\', "\\\\").replace('"', "\\\"");
                    format!("{} output {{ file = \"{file}\" }}", options.stack.stack())
                }
                None => options.stack.stack().to_owned(),
            };
            if own_files::gives_nothing(&stack) {
                return Err(Failure::usage(
                    "the stack has no results and no output",
                    "end it with count or another component with results, or write its items with -w FILE",
                ));
            }
            let (stack, targets) = own_files::targets(&stack);
            let explain: Explain<'_> = &|_, _, error| failed(error);
            let writes = (&targets[..], &own_files::open as Opening<'_>);
            flow(&options.stack, &stack, writes, &[], explain)
        }
        SensorCommand::Explain(options) => {
            let client = connect(&options.sensor)?;
            let lines = client.explain(&options.device, &options.stack);
            let lines = lines.map_err(failed)?;
            print(&lines.join("\n"))?;
            match lines.last().is_some_and(|verdict| verdict == "allowed") {
                true => Ok(()),
                false => Err(Failure::run("the flow would be refused", None)),
            }
        }
        SensorCommand::Start(options) => {
            let client = connect(&options.sensor)?;
            client.start(&options.device).map_err(failed)
        }
        SensorCommand::Reload(options) => {
            let said = connect(options)?.reload().map_err(failed)?;
            for line in said {
                say!("{line}");
            }
            Ok(())
        }
        SensorCommand::Stop(options) => connect(options)?.stop().map_err(failed),
    }
}

fn unstarted(error: &StartError) -> Failure {
    Failure::Usage {
        what: error.to_string(),
        hint: error.hint(),
    }
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
            source: None,
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
                format!("cannot share the capture on {interface}: {error}"),
                format!("--group or {GROUP} takes a group's name or number; see getent group"),
            )
        })
    });
    number.transpose()
}

/// Lets it run until it is stopped.
fn watch(sensor: &Arc<Sensor>, control: &Control) {
    notify(&[NotifyState::Ready]);
    // On a thread of its own: devices are waited for, and the watchdog is not.
    let mut reloading: Option<JoinHandle<()>> = None;
    let ledger = sensor.run(|running| {
        tell_news(running);
        notify(&[match running.is_stopped() {
            true => NotifyState::Stopping,
            false => NotifyState::Watchdog,
        }]);
        let is_free = reloading.as_ref().is_none_or(JoinHandle::is_finished);
        if is_free && control.reload_wanted() {
            let sensor = Arc::clone(sensor);
            let named = std::thread::Builder::new().name("fg-reload".to_owned());
            match named.spawn(move || reload(&sensor)) {
                Ok(thread) => reloading = Some(thread),
                Err(error) => say!("not reloaded: cannot start a thread: {error}"),
            }
        }
    });
    tell_news(sensor);
    say!("{}", summary::ledger_line(&ledger));
    say!("flowgauge: sensor has ended");
}

/// What happened, for the log.
fn tell_news(sensor: &Sensor) {
    for line in sensor.news() {
        say!("flowgauge: {line}");
    }
}

fn reload(sensor: &Sensor) {
    let now = NotifyState::monotonic_usec_now();
    let now = now.unwrap_or(NotifyState::Status("reloading"));
    notify(&[NotifyState::Reloading, now]);
    // What came of it is among the news.
    let _ = sensor.reload("on SIGHUP");
    notify(&[NotifyState::Ready]);
}

/// Tells systemd, if it started this process.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}

/// Has MAPI's functions run on a device.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn mapi(options: &MapiOptions) -> Result<(), Failure> {
    if options.functions {
        return print(functions::list().trim_end());
    }
    let options = &options.flow;
    let calls = flowgauge_mapi::parse(options.stack()).map_err(|error| of_mapi(&error, None))?;
    // Of functions that there are several of it is said which, by their numbers in the flow.
    let names = (1..).zip(&calls).map(|(number, call)| {
        let name = call.function.name;
        let same = calls.iter().filter(|other| other.function.name == name);
        match same.count() {
            1 => name.to_owned(),
            _ => format!("{name}#{number}"),
        }
    });
    let names: Vec<String> = names.collect();
    let stack = flowgauge_mapi::flow(options.stack()).map_err(|error| of_mapi(&error, None))?;
    let open: Opening<'_> = &|target| target.open().map_err(|error| of_mapi(&error, None));
    let explain = |client: Option<&Client>, device: &str, error| {
        function_refused(&calls, client, device, error)
    };
    let writes = (&stack.targets[..], open);
    flow(options, &stack.text, writes, &names, &explain)
}

fn of_mapi(error: &flowgauge_mapi::Error, hint: Option<String>) -> Failure {
    let what = format!("{error} (MAPI's error {})", error.number);
    let default =
        || "flowgauge mapi --functions lists the functions and their arguments".to_owned();
    Failure::usage(what, hint.unwrap_or_else(default))
}

/// Why functions are refused on a device: the first that may not follow those before it.
fn function_refused(
    calls: &[flowgauge_mapi::Call],
    client: Option<&Client>,
    device: &str,
    error: ClientError,
) -> Failure {
    let ClientError::Refused(_) = error else {
        return failed(error);
    };
    if let Some(Err(ClientError::Refused(refusal))) = client.map(|it| it.check(device, "")) {
        let error = flowgauge_mapi::Error::new(flowgauge_mapi::Error::NO_DEVICE, refusal.error);
        return of_mapi(&error, refusal.hint);
    }
    let mut stacks = (1..=calls.len()).map(|until| {
        let stack = flowgauge_mapi::stack(&calls[..until], 0, &|_| None).ok()?;
        match client?.check(device, &stack.text) {
            Err(ClientError::Refused(refusal)) => {
                let is_about_rights = refusal.is_about_rights;
                let error = calls[until - 1].refused(until, &refusal.error, is_about_rights);
                Some(of_mapi(&error, refusal.hint))
            }
            _ => None,
        }
    });
    let found = stacks.find_map(|found| found);
    found.unwrap_or_else(|| failed(error))
}

/// Says why a flow does not open on a device of a sensor.
type Explain<'a> = &'a dyn Fn(Option<&Client>, &str, ClientError) -> Failure;

/// Opens what a flow writes.
type Opening<'a> = &'a dyn Fn(&Target) -> Result<OwnedFd, Failure>;

/// Opens what a flow on a device writes, once the sensor would have it: what is in a file is lost.
fn opened(
    (targets, open): (&[Target], Opening<'_>),
    read: Option<&Path>,
    is_scope: bool,
    check: impl FnOnce() -> Result<(), Failure>,
) -> Result<Vec<OwnedFd>, Failure> {
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    if is_scope {
        return Err(Failure::usage(
            "local files cannot be passed to a remote sensor",
            "receive packets or results, and write them here",
        ));
    }
    for target in targets {
        if let (Target::File { path, .. }, Some(read)) = (target, read) {
            input::refuse_overwriting_files([read.to_owned()], Path::new(path))?;
        }
    }
    check()?;
    targets.iter().map(open).collect()
}

/// Has a flow run, and writes its results. Its components are called by `names`, if there are any.
fn flow(
    options: &FlowOptions,
    stack: &str,
    writes: (&[Target], Opening<'_>),
    names: &[String],
    explain: Explain<'_>,
) -> Result<(), Failure> {
    let control = Control::install()?;
    let (sensors, mut members) = sensor_agent::members(&options.sensor, options.device.as_deref())?;
    let mut own = None;
    if let Some(path) = &options.read {
        let client = sensors.client(&members[0]).map_err(failed)?;
        members[0].device = own_device(&client, path)?;
        own = Some((client, members[0].device.clone(), path));
    }
    let is_scope = members.len() > 1 || members.iter().any(|member| member.address.is_some());
    let first = members[0].clone();
    let refused = |error| {
        let client = sensors.client(&first).ok();
        explain(client.as_ref(), &first.device, error)
    };
    let check = || {
        let client = sensors.client(&first).map_err(failed)?;
        client.check(&first.device, stack).map_err(refused)
    };
    let files = opened(writes, options.read.as_deref(), is_scope, check)?;
    let flow = ScopeFlow::open(&sensors, members, stack, &files, Duration::ZERO);
    let mut flow = flow.map_err(refused)?;
    control.begin();
    let started = match options.start || options.read.is_some() {
        true => flow.start(),
        false => Vec::new(),
    };
    if started.iter().all(Result::is_err)
        && let Some(Err(error)) = started.into_iter().next()
    {
        return Err(failed(error));
    }
    let every = Duration::from_nanos(options.every.0.max(1_000_000));
    let mut left = options.count.unwrap_or(u64::MAX);
    let mut gone = Vec::new();
    // What came of a member that is late is shown with its next results.
    let mut came = vec![Came::default(); flow.size()];
    while left > 0 {
        let is_over = wait(&control, every, &mut flow, &mut came);
        let mut all = flow.results();
        let states = flow.states();
        let mut known = all.iter().flatten().peekable();
        let is_over = is_over || known.peek().is_some() && known.all(|results| results.is_last);
        flow.refresh();
        take(&mut flow, &mut came);
        left = if is_over { 1 } else { left };
        // Rows that were told and taken are not told again.
        for (results, came) in all.iter_mut().zip(&came) {
            let Ok(results) = results else { continue };
            for (at, _) in &came.rows {
                if let Some(component) = results.components.get_mut(*at) {
                    component.rows = Some(Vec::new());
                }
            }
        }
        if left == 1 {
            gone = flow.gone();
            all = flow.close();
        }
        for ((results, state), came) in all.into_iter().zip(&states).zip(&mut came) {
            let results = results.map(|results| shown(results, core::mem::take(came), names));
            match (results, is_scope) {
                (Ok(results), false) => {
                    print(&match options.json {
                        true => json(&results)?,
                        false => lines(&results),
                    })?;
                    if let Some(failure) = results.failure {
                        let failure = own_files::named(&failure, writes.0);
                        return Err(Failure::run(failure, None));
                    }
                }
                (Err(error), false) => {
                    return Err(Failure::run(format!("{}: {error}", state.member), None));
                }
                (results, true) => print(&member_text(state, results, options.json)?)?,
            }
        }
        if let Some(failure) = all_refused(&states) {
            return Err(failure);
        }
        left -= 1;
    }
    match own {
        _ if gone.len() == came.len() && !control.stopped() => Err(sensor_agent::gone(&gone)),
        Some((client, device, path)) => file_errors(&client, &device, path),
        None => Ok(()),
    }
}

/// Why nothing more comes, where no member has the flow and none is tried again.
fn all_refused(states: &[MemberState]) -> Option<Failure> {
    let is_refused = |state: &MemberState| state.state == "refused";
    let trouble = states.iter().find_map(|state| state.trouble.clone())?;
    let all = states.iter().all(is_refused);
    all.then(|| Failure::run(trouble.what, trouble.hint))
}

/// What was wrong with a file that was read.
fn file_errors(client: &Client, device: &str, path: &Path) -> Result<(), Failure> {
    let status = client.status().map_err(failed)?;
    let mut devices = status.devices.into_iter();
    let found = devices.find(|known| known.device == device);
    match found.and_then(|found| found.errors.into_iter().next()) {
        Some(error) => Err(Failure::run(format!("{}: {error}", path.display()), None)),
        None => Ok(()),
    }
}

/// Results with packets in them, and with the names that components were given.
fn shown(mut results: Results, came: Came, names: &[String]) -> Results {
    for (component, packet) in came.rows.into_iter().chain(came.packets) {
        if let Some(component) = results.components.get_mut(component) {
            component.rows.get_or_insert_default().push(packet);
            if component.times.is_empty() {
                component.times = vec!["time".to_owned()];
            }
        }
    }
    for (number, name) in (1..).zip(names) {
        results.failure = results
            .failure
            .map(|it| flowgauge_mapi::named(&it, number, name));
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
    results
}

/// What a member of a scope has.
fn member_text(
    state: &MemberState,
    results: Result<Results, String>,
    as_json: bool,
) -> Result<String, Failure> {
    #[derive(serde::Serialize)]
    struct OfMember<'a> {
        sensor: String,
        state: &'a str,
        since: u64,
        generation: u32,
        error: Option<String>,
        #[serde(flatten)]
        results: Option<Results>,
    }
    let (results, error) = match results {
        Ok(results) => (Some(results), None),
        Err(error) => (None, Some(error)),
    };
    let since = state.since.duration_since(std::time::UNIX_EPOCH);
    let of_member = OfMember {
        sensor: state.member.to_string(),
        state: state.state,
        since: since.map_or(0, |since| since.as_nanos() as u64),
        generation: state.generation,
        error,
        results,
    };
    if as_json {
        return json(&of_member);
    }
    let sensor = &of_member.sensor;
    Ok(match &of_member.results {
        Some(results) => {
            let failure = results.failure.iter();
            let failure = failure.map(|failure| format!("{sensor}: failed: {failure}"));
            let text = lines(results);
            let lines = text.lines().map(|line| format!("{sensor}: {line}"));
            lines.chain(failure).collect::<Vec<_>>().join("\n")
        }
        None => {
            let error = of_member.error.as_deref().unwrap_or_default();
            let error = error.replace('\n', "; ");
            format!("{sensor}: {}: {error}", of_member.state)
        }
    })
}

/// A device of a file that this process may read, of this connection alone.
fn own_device(client: &Client, path: &Path) -> Result<String, Failure> {
    let file = files::named().open(path, How::read());
    let file = file.map_err(|error| {
        let what = format!("{}: {error}", path.display());
        Failure::usage(what, "-r needs a capture file that you may read")
    })?;
    client.create_device(file.as_fd()).map_err(failed)
}

/// A packet that came to a component, to be shown.
type Row = (usize, serde_json::Map<String, serde_json::Value>);

/// What came from a member: rows of tables, and packets.
#[derive(Clone, Default)]
struct Came {
    rows: Vec<Row>,
    packets: VecDeque<Row>,
}

/// Takes rows and packets that wait; of packets the last are kept.
fn take(flow: &mut ScopeFlow, came: &mut [Came]) {
    const KEPT: usize = 1000;

    for (came, rows) in came.iter_mut().zip(flow.take_rows()) {
        came.rows.extend(rows);
    }

    let mut take = |member: usize, packet: Packet<'_>| {
        let packets = &mut came[member].packets;
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
    };
    while flow.next(Duration::ZERO, &mut take).is_some() {}
}

/// Waits so long, or until the device has come to its end, and takes packets meanwhile. Whether the run is to end.
fn wait(control: &Control, time: Duration, flow: &mut ScopeFlow, came: &mut [Came]) -> bool {
    const LOOK: Duration = Duration::from_millis(50);

    let until = std::time::Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if control.stopped() || left.is_zero() || flow.is_over() {
            return control.stopped();
        }
        take(flow, came);
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
            let cells = row.iter().map(|(name, cell)| match cell.as_u64() {
                Some(time) if component.times.contains(name) => {
                    let time = TimeWriter::default().format(Nanos(time));
                    format!("{name}={}", String::from_utf8_lossy(&time))
                }
                _ => format!("{name}={cell}"),
            });
            let cells: Vec<String> = cells.collect();
            lines.push(format!("{name}: {}", cells.join(" ")));
        }
    }
    if results.lost > 0 {
        lines.push(format!("lost: {} packets", results.lost));
    }
    lines.join("\n")
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::run(error.to_string(), None))
}

fn print(text: &str) -> Result<(), Failure> {
    // Text of another machine may be in it.
    let text = flowgauge_record::text::harmless_lines(text);
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("standard output: {error}"), None))
        }
        _ => Ok(()),
    }
}
