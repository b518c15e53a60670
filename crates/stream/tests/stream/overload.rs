//! Overload (figures 6 and 9 of the Scap paper), with a consumer on the capture clock: the outcome is the
//! same on every machine, and loss is told by which stream lost what.

mod consumer;

use consumer::{HEAD, Outcome, Setup, random_loss, run};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stream::engine::{Counts, Cutoff};
use flowgauge_wire::Nanos;

const MEMORY: u64 = 4 << 20;

fn elephants() -> Vec<u8> {
    let mut file = Vec::new();
    generate(
        &Config::new(Preset::Elephants).with_packets(60_000),
        &mut file,
    )
    .unwrap();
    file
}

fn run_on(file: &[u8], setup: Setup) -> Outcome {
    let mut source =
        flowgauge_capture::open_reader(std::io::Cursor::new(file.to_vec()), "elephants").unwrap();
    run(&mut source, setup)
}

const UNDISTURBED: Setup = Setup {
    bytes_per_second: None,
    memory: 256 << 20,
    high_every: None,
    overload_cutoff: None,
    cutoff: Cutoff::UNLIMITED,
};

/// Bytes per second that a consumer takes for which the capture is `load` times too much.
fn rate(undisturbed: &Outcome, load: f64) -> u64 {
    let bytes: u64 = undisturbed.fates.values().map(|fate| fate.delivered).sum();
    let seconds = (undisturbed.span.1 - undisturbed.span.0).as_secs_f64();
    (bytes as f64 / seconds / load) as u64
}

/// The most that a consumer of `rate` bytes per second has of high priority at once, if it reads nothing else.
fn backlog(whole: &Outcome, rate: u64) -> f64 {
    let (mut now, mut held, mut most) = (Nanos::ZERO, 0.0, 0.0_f64);
    for &(time, bytes) in &whole.high {
        let seconds = (time - now).as_secs_f64();
        now = now.max(time);
        held = (held - seconds * rate as f64).max(0.0) + bytes as f64;
        most = most.max(held);
    }
    most
}

#[test]
fn no_packet_of_high_priority_is_lost_while_its_load_fits() {
    const MEMORY: u64 = 16 << 20;
    // From the watermark of low priority to the end: three quarters are below.
    const ROOM: f64 = MEMORY as f64 / 4.0;
    let file = elephants();
    let mut fitting = 0;
    for every in [2, 3, 4, 5, 7, 10, 13, 16, 31] {
        let prioritized = Setup {
            high_every: Some(every),
            ..UNDISTURBED
        };
        let whole = run_on(&file, prioritized);
        let high: u64 = whole.high.iter().map(|(_, bytes)| bytes).sum();
        assert!(high > 0);
        let mut losses = Vec::new();
        for load in 1..=6 {
            let rate = rate(&whole, f64::from(load));
            let outcome = run_on(
                &file,
                Setup {
                    bytes_per_second: Some(rate),
                    memory: MEMORY,
                    ..prioritized
                },
            );
            assert!(outcome.memory_high <= MEMORY);
            assert_eq!(
                outcome.fates.len(),
                whole.fates.len(),
                "every stream is known all the same"
            );
            for (name, fate) in &outcome.fates {
                let kept = fate.all.without(fate.dropped).without(fate.discarded);
                assert_eq!(kept.bytes, fate.delivered, "{name:?}: {fate:?}");
            }
            let (all, dropped) = outcome.totals(false);
            losses.push(dropped.bytes as f64 / all.bytes as f64);
            // On average it may fit and yet come in bursts that do not.
            if backlog(&whole, rate) > ROOM * 0.97 {
                continue;
            }
            fitting += 1;
            for (name, fate) in outcome.fates.iter().filter(|(_, fate)| fate.high) {
                assert_eq!(
                    (fate.dropped, fate.lost),
                    (Counts::default(), 0),
                    "1 of {every}, load {load}: {name:?}"
                );
                assert_eq!(
                    fate.delivered, whole.fates[name].delivered,
                    "1 of {every}, load {load}: {name:?}"
                );
            }
        }
        println!("1 of {every} high; of low priority lost at loads 1 to 6: {losses:.3?}");
        assert!(losses.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!((0.4..1.0).contains(&losses[5]), "{losses:?}");
    }
    assert!(fitting >= 46, "{fitting}");
}

#[test]
fn an_overload_cutoff_saves_the_beginnings() {
    let file = elephants();
    let whole = run_on(&file, UNDISTURBED);
    let saved = |outcome: &Outcome| {
        let complete = outcome
            .fates
            .iter()
            .filter(|(name, fate)| fate.head == whole.fates[*name].head);
        complete.count() as f64 / whole.fates.len() as f64
    };
    let with_data = whole
        .fates
        .values()
        .filter(|fate| fate.head == HEAD)
        .count();
    assert!(
        with_data > 50,
        "{with_data} streams are longer than the cutoff"
    );
    let overloaded = Setup {
        bytes_per_second: Some(rate(&whole, 5.0)),
        memory: MEMORY,
        ..UNDISTURBED
    };
    let with = run_on(
        &file,
        Setup {
            overload_cutoff: Some(HEAD),
            ..overloaded
        },
    );
    let without = run_on(&file, overloaded);
    let delivered =
        |outcome: &Outcome| -> u64 { outcome.fates.values().map(|fate| fate.delivered).sum() };
    let loss = 1.0 - delivered(&without) as f64 / delivered(&whole) as f64;
    let random = random_loss(&whole, loss);
    println!(
        "first 10 KB whole at load 5: {:.3} with the cutoff, {:.3} without; a loss of {loss:.3} at random would leave {random:.3}",
        saved(&with),
        saved(&without)
    );
    assert!(saved(&with) > 0.95);
    assert!(saved(&without) < saved(&with));
    assert!(random < 0.2);
}
