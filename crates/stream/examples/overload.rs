//! Overload with a consumer slower than its source (figures 6 and 9 of the Scap paper):
//! `overload FILE [MEMORY_BYTES]`. The consumer is on the capture clock, so that the outcome does not
//! depend on the machine. For loads of 1 to 6 times what it takes, a JSON object: what each of two
//! priorities loses (one connection in ten has the higher one), and how many streams keep their first 10 KB
//! whole with an overload cutoff of that size, without, and if as much were lost at random.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/stream/overload/consumer.rs"]
mod consumer;

use consumer::{HEAD, Outcome, Setup, random_loss, run};
use flowgauge_stream::engine::Cutoff;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: overload FILE [MEMORY_BYTES]")?;
    let memory = arguments
        .next()
        .map_or(Ok(64 << 20), |text| text.parse::<u64>())?;
    let run_with = |setup: Setup| -> Result<Outcome, Box<dyn std::error::Error>> {
        Ok(run(&mut flowgauge_capture::open(&path)?, setup))
    };
    let undisturbed = Setup {
        bytes_per_second: None,
        memory: 1 << 30,
        high_every: Some(10),
        overload_cutoff: None,
        cutoff: Cutoff::UNLIMITED,
    };
    let whole = run_with(undisturbed)?;
    let bytes = delivered(&whole, |_| true);
    let seconds = (whole.span.1 - whole.span.0).as_secs_f64();
    for load in 1..=6 {
        let setup = Setup {
            bytes_per_second: Some((bytes as f64 / seconds / f64::from(load)) as u64),
            memory,
            ..undisturbed
        };
        let prioritized = run_with(setup)?;
        let equal = Setup {
            high_every: None,
            ..setup
        };
        let with = run_with(Setup {
            overload_cutoff: Some(HEAD),
            ..equal
        })?;
        let without = run_with(equal)?;
        println!(
            "{{\"load\":{load},\"low_lost\":{:.4},\"high_lost\":{:.4},\"heads_kept_with_cutoff\":{:.4},\"heads_kept_without\":{:.4},\"heads_kept_at_random\":{:.4}}}",
            lost(&prioritized, &whole, false),
            lost(&prioritized, &whole, true),
            heads(&with, &whole),
            heads(&without, &whole),
            random_loss(
                &whole,
                1.0 - delivered(&without, |_| true) as f64 / bytes as f64
            ),
        );
    }
    Ok(())
}

fn delivered(outcome: &Outcome, of: impl Fn(bool) -> bool) -> u64 {
    let wanted = outcome.fates.values().filter(|fate| of(fate.high));
    wanted.map(|fate| fate.delivered).sum()
}

/// The share of a priority's bytes that did not reach the consumer.
fn lost(outcome: &Outcome, whole: &Outcome, high: bool) -> f64 {
    let (now, before) = (
        delivered(outcome, |of| of == high),
        delivered(whole, |of| of == high),
    );
    1.0 - now as f64 / before as f64
}

/// The share of the streams with data whose first bytes are whole.
fn heads(outcome: &Outcome, whole: &Outcome) -> f64 {
    let (mut kept, mut all) = (0.0, 0.0);
    for (name, fate) in whole.fates.iter().filter(|(_, fate)| fate.head > 0) {
        all += 1.0;
        let head = outcome.fates.get(name).map_or(0, |fate| fate.head);
        kept += f64::from(u8::from(head == fate.head));
    }
    kept / all
}
