//! Asks the sensors of a scope, and tells how long that took and how many bytes went over loopback meanwhile, as JSON lines:
//! `scope KEYS IDENTITY SCOPE STACK SECONDS INTERVAL_MS`. `bench/figures/dimapi.py` starts it where nothing else is on loopback.

#![allow(clippy::print_stdout, reason = "that is where it tells")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use flowgauge_link::KeyFolder;
use flowgauge_sensor_client::{ScopeFlow, Sensors, scope};

/// Bytes on loopback so far, with 14 of each frame.
fn wire() -> u64 {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let mut lines = text.lines();
    let numbers = lines.find_map(|line| line.trim_start().strip_prefix("lo:"));
    let sent = numbers.and_then(|numbers| numbers.split_whitespace().nth(8));
    sent.and_then(|sent| sent.parse().ok()).unwrap_or(0)
}

/// Processor time of this process, in seconds.
fn cpu() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok());
    (ticks(12).unwrap_or(0.0) + ticks(13).unwrap_or(0.0)) / 100.0
}

/// Memory of this process, in kB.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let first = line.and_then(|line| line.split_whitespace().next());
    first.and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

fn tell(what: &str, begun: Instant, bytes: u64, more: &str) {
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{{\"phase\": \"{what}\", \"seconds\": {seconds:.6}, \"wire_bytes\": {}, \"all_cpu\": {}, \"memory_kb\": {}{more}}}",
        wire() - bytes,
        cpu(),
        memory()
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [keys, identity, text, stack, seconds, interval, prefetch] = &words[..] else {
        return Err("scope KEYS IDENTITY SCOPE STACK SECONDS INTERVAL_MS PREFETCH_BYTES".into());
    };
    let prefetch: u64 = prefetch.parse()?;
    let seconds = Duration::from_secs_f64(seconds.parse()?);
    let interval = Duration::from_millis(interval.parse()?);
    let identity = KeyFolder::new(keys).identity(Some(identity))?;
    let sensors = Arc::new(Sensors::new(PathBuf::new(), Some(identity)));
    let members = scope::members(text)?;

    let (begun, bytes) = (Instant::now(), wire());
    let connecting = members.iter().map(|member| {
        let (sensors, member) = (Arc::clone(&sensors), member.clone());
        thread::spawn(move || sensors.client(&member).is_ok())
    });
    let connecting: Vec<_> = connecting.collect();
    let connected = connecting.into_iter().map(|thread| thread.join());
    let connected = connected.filter(|it| matches!(it, Ok(true))).count();
    tell(
        "connect",
        begun,
        bytes,
        &format!(", \"members\": {connected}"),
    );

    let (begun, bytes) = (Instant::now(), wire());
    let mut flow = ScopeFlow::open(&sensors, members.clone(), stack, &[], Duration::ZERO)?;
    tell("open", begun, bytes, "");

    if stack.contains("to_buffer") {
        let (begun, bytes, used) = (Instant::now(), wire(), cpu());
        if prefetch > 0 {
            flow.set_prefetch(prefetch);
        }
        flow.start();
        let (mut packets, mut octets) = (0_u64, 0_u64);
        while begun.elapsed() < seconds {
            let next = flow.next(Duration::from_millis(500), |_, packet| packet.record.len());
            let Some(bytes) = next else {
                break;
            };
            packets += 1;
            octets += bytes as u64;
        }
        let lost = flow.read("to_buffer").into_iter().flatten();
        let lost: u64 = lost.map(|reading| reading.lost).sum();
        let more = format!(
            ", \"packets\": {packets}, \"octets\": {octets}, \"lost\": {lost}, \"cpu\": {:.3}",
            cpu() - used
        );
        tell("packets", begun, bytes, &more);
        return Ok(());
    }
    flow.start();
    let component = stack.trim_end_matches([' ', '}']).split(' ').next_back();
    let component = component.unwrap_or_default().to_owned();
    poll("pull", &flow, &component, seconds, interval);
    let pushed = ScopeFlow::open(&sensors, members, stack, &[], interval)?;
    poll("push", &pushed, &component, seconds, interval);
    Ok(())
}

/// Reads a component at an interval.
fn poll(what: &str, flow: &ScopeFlow, component: &str, seconds: Duration, interval: Duration) {
    let (begun, bytes) = (Instant::now(), wire());
    let mut took = Vec::new();
    while begun.elapsed() < seconds {
        let asked = Instant::now();
        let read = flow.read(component);
        if read.iter().flatten().any(|reading| reading.rows > 0) {
            let taken = flow.take(component);
            assert!(taken.iter().all(Result::is_ok), "{taken:?}");
        }
        took.push(asked.elapsed());
        assert!(read.iter().all(Option::is_some), "a member is down");
        thread::sleep(interval.saturating_sub(asked.elapsed()));
    }
    took.sort();
    let at = |part: usize| took[(took.len() - 1) * part / 100].as_secs_f64() * 1e3;
    let more = format!(
        ", \"reads\": {}, \"median_ms\": {:.3}, \"p99_ms\": {:.3}",
        took.len(),
        at(50),
        at(99)
    );
    tell(what, begun, bytes, &more);
}
