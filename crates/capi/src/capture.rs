//! Runs a capture: converts its settings to those of the runtime.

use flowgauge_capture::live::LiveConfig;
use flowgauge_runtime::capture::Progress;
use flowgauge_runtime::{Capture, Control, Outcome, RunError, WorkerStatistics, stream_filter};
use flowgauge_stream::ShardConfig;
use flowgauge_stream::engine::{ApplicationConfig, EngineConfig, HostPolicies};

use crate::abi::RawStats;
use crate::current::Scene;
use crate::device::Device;
use crate::events::{self, Program};
use crate::failure::{Code, Failure};
use crate::handle::{Handle, Setup};
use crate::settings::Settings;
use crate::share::{self, Joined};

/// Worker threads for which one thread that puts the streams of a file together is enough.
const WORKERS_PER_SHARD: usize = 4;

/// Bytes of all rings of an interface together, and of each at least.
const ALL_RINGS: u64 = 512 << 20;
const LEAST_RING: u64 = 8 << 20;

/// With 0 the kernel keeps nothing away.
const OFFLOAD_SWITCH: &str = "FLOWGAUGE_OFFLOAD";

/// Captures until the end of input, or until the handle is asked to stop.
///
/// # Errors
/// When the device cannot be opened or goes away, or the file is damaged: then after everything before it.
pub(crate) fn run(handle: &Handle, setup: Setup) -> Result<(), Failure> {
    let Setup { device, settings } = setup;
    if let Device::Interface { name, .. } = &device {
        match share::join(name, &settings) {
            Joined::Shared(client) => return share::run(handle, client, &settings),
            Joined::Alone(None) => handle.set_shared(None),
            Joined::Alone(Some(why)) => {
                handle.set_shared(None);
                handle.remark(format!("scap_start_capture: {why}"));
                return run_alone(handle, device, &settings).map_err(|failure| failure.after(&why));
            }
        }
    }
    run_alone(handle, device, &settings)
}

fn run_alone(handle: &Handle, device: Device, settings: &Settings) -> Result<(), Failure> {
    let (token, callbacks) = (handle.token, settings.callbacks);
    let need_packets = settings.wanted.need_packets;
    let workers = settings.threads();
    // Where nothing can wait each worker has an engine on its core, as in the paper.
    let shards = match device {
        Device::File(_) => workers.div_ceil(WORKERS_PER_SHARD),
        Device::Interface { .. } => workers,
    };
    let outcome = capture(device, shards)
        .filter(&settings.wanted.filter)
        .engine(engine(settings))
        .shards(shards)
        .workers(workers)
        .pin(workers > 0)
        .keep_away(settings.offload && !share::is_off(OFFLOAD_SWITCH))
        .controlled_by(handle.control.clone())
        .application(application(settings)?, move |_thread| {
            Program::new(Scene::new(token, need_packets, false), callbacks)
        })
        .run()
        .map_err(|error| failed(&error))?;
    handle.set_outcome(&outcome);
    unharmed(&outcome)?;
    outcome
        .errors
        .first()
        .map_or(Ok(()), |error| Err(Failure::of_capture(error)))
}

/// That no handler of the library's failed.
///
/// # Errors
/// When one did.
pub(crate) fn unharmed(outcome: &Outcome) -> Result<(), Failure> {
    let Some((_, failure)) = outcome.failures.first() else {
        return Ok(());
    };
    Err(Failure::new(
        Code::Internal,
        format_args!("a fault of the library: {failure}"),
        "please report it",
    ))
}

/// Where the packets come from, on so many threads.
fn capture(device: Device, shards: usize) -> Capture {
    match device {
        Device::File(source) => Capture::source(source, false),
        Device::Interface { name, .. } => {
            let mut config = LiveConfig::new(&name);
            let share = (ALL_RINGS / shards.max(1) as u64).max(LEAST_RING);
            config.buffer_bytes = config.buffer_bytes.min(share);
            Capture::live(config)
        }
    }
}

fn failed(error: &RunError) -> Failure {
    match error {
        RunError::Capture(error) => Failure::of_capture(error),
        other => Failure::new(
            Code::Resource,
            other,
            "ask for fewer worker threads, or look at the limits of this process",
        ),
    }
}

fn engine(settings: &Settings) -> EngineConfig {
    EngineConfig {
        shard: ShardConfig::default().with_policy(settings.policy),
        memory_bytes: settings.wanted.memory_bytes,
        connection_bytes: Some(settings.callbacks.connection_bytes()),
        base_threshold: settings.wanted.base_threshold,
        overload_cutoff: settings.wanted.overload_cutoff,
        need_packets: settings.wanted.need_packets,
        policies: policies(settings),
    }
}

fn policies(settings: &Settings) -> HostPolicies {
    let mut policies = HostPolicies::new(settings.policy);
    for (subnet, policy) in &settings.subnets {
        policies.insert(subnet.addr(), subnet.prefix_len(), *policy);
    }
    policies
}

/// Asks a capture that runs for what differs between the two of what is the engine's. False when too
/// many changes wait.
pub(crate) fn change_engine(control: &Control, before: &Settings, after: &Settings) -> bool {
    let mut is_asked = true;
    if before.wanted.base_threshold != after.wanted.base_threshold {
        is_asked &= control.set_base_threshold(after.wanted.base_threshold);
    }
    if before.wanted.overload_cutoff != after.wanted.overload_cutoff {
        is_asked &= control.set_overload_cutoff(after.wanted.overload_cutoff);
    }
    if !before.has_policies_of(after) {
        is_asked &= control.set_policies(policies(after));
    }
    is_asked
}

/// What the program wants of streams.
///
/// # Errors
/// When a class has a wrong filter.
pub(crate) fn application(settings: &Settings) -> Result<ApplicationConfig, Failure> {
    let config = settings.wanted.without_filter(stream_filter);
    let mut config = config.map_err(|error| Failure::of_capture(&error))?;
    // Nobody looks at chunks that nobody asked for: nothing is put together then.
    if settings.callbacks.data.is_none() {
        (config.chunk_bytes, config.overlap_bytes) = (0, 0);
    }
    Ok(config)
}

/// Counters of a capture as C programs see them.
pub(crate) fn statistics(progress: &Progress) -> RawStats {
    let lost = progress.lost;
    let (engine, ledger) = (&progress.statistics, &progress.ledger);
    RawStats {
        bytes: engine.all.bytes,
        pkts: engine.all.packets,
        dropped: events::count(engine.dropped),
        discarded: events::count(engine.discarded),
        captured: events::count(engine.captured()),
        pkts_received: ledger.received(),
        pkts_delivered: ledger.delivered(),
        pkts_lost: ledger.dropped(),
        pkts_refused: ledger.discarded(),
        chunks: engine.chunks,
        chunk_bytes: engine.chunk_bytes,
        chunks_lost: lost.chunks,
        chunk_bytes_lost: lost.bytes,
        streams_created: engine.created,
        streams_terminated: engine.terminated,
        memory_used: engine.memory,
        memory_high: engine.memory_high,
        memory_size: 0,
        streams_lost: lost.streams,
        requests_lost: lost.commands,
        pkts_kept_away: engine.withheld.packets,
        reserved: [0; 5],
    }
}

/// Everything that was counted, at the end.
pub(crate) fn final_statistics(outcome: &Outcome) -> RawStats {
    let progress = Progress {
        ledger: outcome.ledger.clone(),
        statistics: outcome.total(),
        lost: outcome.lost,
    };
    let mut total = RawStats {
        // Engines counted when they were done; workers have given back what they had since.
        memory_used: 0,
        ..statistics(&progress)
    };
    if !outcome.workers.is_empty() {
        // Engines counted what they sent, workers what the program got.
        let sum = |of: fn(&WorkerStatistics) -> u64| outcome.workers.iter().map(of).sum::<u64>();
        total.chunks = sum(|worker| worker.chunks);
        total.chunk_bytes = sum(|worker| worker.bytes);
        let passed = sum(|worker| worker.passed_bytes);
        total.discarded.bytes += passed;
        total.captured.bytes = total.captured.bytes.saturating_sub(passed);
    }
    total
}
