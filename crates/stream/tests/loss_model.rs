//! Prioritized packet loss against queueing theory (section 7 of the Scap paper).
//!
//! Packets of one unit arrive as a Poisson process and leave after exponential times; the memory
//! they take in between is what [`Watermarks`] judges by. With one priority and no base threshold
//! that is M/M/1/N, whose loss is known in closed form:
//! `P = (1 - rho) rho^N / (1 - rho^(N+1))`. With several priorities it is a birth-death chain whose
//! birth rate falls at each watermark, solved here numerically. (For three priorities the paper
//! prints a closed form in which exponents N and N/3 are mixed, so that it is not a probability of the
//! chain it describes; the chain itself is what we compare with.)
//!
//! The order of events is drawn from a seeded generator, and only their order matters: a process of
//! exponential times is replaced by its embedded chain, which loses the same share of arrivals.
//! What is measured has to lie within its own confidence interval, from the means of batches
//! because losses come in bursts.

#![allow(clippy::unwrap_used, reason = "tests")]

use flowgauge_stream::engine::{Sentence, Watermarks};

const ARRIVALS: u64 = 10_000_000;
const BATCHES: usize = 100;
/// Student's t for 99 degrees of freedom at 99.9 %, two-sided.
const T: f64 = 3.39;

struct Random(u64);

impl Random {
    /// Uniform in 0..1 (xorshift64*).
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A measured share of arrivals and the half width of its confidence interval.
#[derive(Debug)]
struct Measured {
    share: f64,
    half_width: f64,
}

/// Sends [`ARRIVALS`] packets whose priorities 0, 1, ... arrive at `rates`, measured in services,
/// into `memory` units of which `base` are free for all. Returns each priority's loss.
fn simulate(rates: &[f64], memory: u64, base: u64, seed: u64) -> Vec<Measured> {
    let mut watermarks = Watermarks::new(memory, base as f64 / memory as f64, None);
    watermarks.set_priorities(|priority| usize::from(priority) < rates.len());
    let mut random = Random(seed);
    let total: f64 = rates.iter().sum();
    let mut used = 0u64;
    let mut lost = vec![[0u64; BATCHES]; rates.len()];
    let mut sent = vec![[0u64; BATCHES]; rates.len()];
    for batch in 0..BATCHES {
        let mut arrivals = 0;
        while arrivals < ARRIVALS / BATCHES as u64 {
            let services = if used > 0 { 1.0 } else { 0.0 };
            let mut draw = random.next() * (total + services);
            if draw >= total {
                used -= 1;
                continue;
            }
            arrivals += 1;
            let mut priority = 0;
            while priority + 1 < rates.len() && draw >= rates[priority] {
                draw -= rates[priority];
                priority += 1;
            }
            sent[priority][batch] += 1;
            // What is judged is the memory with this packet in it.
            if watermarks.judge(used + 1, priority as u8, 0) == Sentence::Keep {
                used += 1;
            } else {
                lost[priority][batch] += 1;
            }
        }
    }
    let measured = |priority: usize| {
        let shares: Vec<f64> = (0..BATCHES)
            .map(|batch| lost[priority][batch] as f64 / sent[priority][batch].max(1) as f64)
            .collect();
        let mean = shares.iter().sum::<f64>() / BATCHES as f64;
        let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
        let deviation = (squares / (BATCHES - 1) as f64).sqrt();
        Measured {
            share: mean,
            half_width: T * deviation / (BATCHES as f64).sqrt(),
        }
    };
    (0..rates.len()).map(measured).collect()
}

/// Each priority's loss by the stationary distribution of the chain: in state `s` priority `i`
/// is accepted while `s < watermark_i`.
fn solve(rates: &[f64], memory: u64, base: u64) -> Vec<f64> {
    let n = rates.len() as u64;
    let watermark = |priority: usize| base + (memory - base) * (priority as u64 + 1) / n;
    let mut weights = vec![1.0];
    for state in 0..memory {
        let births: f64 = (0..rates.len())
            .filter(|&priority| state < watermark(priority))
            .map(|priority| rates[priority])
            .sum();
        let last = weights.last().copied().unwrap();
        weights.push(last * births);
        // Only ratios matter: keep them in range.
        if weights[weights.len() - 1] > 1e200 {
            weights.iter_mut().for_each(|weight| *weight *= 1e-200);
        }
    }
    let all: f64 = weights.iter().sum();
    (0..rates.len())
        .map(|priority| weights[watermark(priority) as usize..].iter().sum::<f64>() / all)
        .collect()
}

fn assert_agree(measured: &Measured, expected: f64, of: &str) {
    // Where next to nothing is lost, batches without a loss say nothing of the deviation.
    let resolution = 10.0 / ARRIVALS as f64;
    assert!(
        (measured.share - expected).abs() <= measured.half_width.max(resolution),
        "{of}: expected {expected:e}, measured {measured:?}"
    );
}

#[test]
fn one_priority_is_a_queue_of_bounded_length() {
    for (rho, n) in [(0.5, 10), (0.9, 20), (0.9, 50), (1.2, 20)] {
        let rho: f64 = rho;
        let expected = (1.0 - rho) * rho.powi(n) / (1.0 - rho.powi(n + 1));
        let solved = solve(&[rho], n as u64, 0)[0];
        assert!((solved - expected).abs() < 1e-12, "the chain is M/M/1/N");
        let measured = simulate(&[rho], n as u64, 0, 0x1234_5678 + n as u64);
        assert_agree(&measured[0], expected, &format!("rho {rho}, N {n}"));
    }
}

#[test]
fn two_priorities_agree_with_the_solved_chain() {
    // The low priority alone is more than the service; what counts for the high one is its own
    // load in the upper half of the memory.
    for (low, high, memory) in [(2.0, 0.3, 20), (1.0, 0.7, 40)] {
        let expected = solve(&[low, high], memory, memory / 5);
        let measured = simulate(&[low, high], memory, memory / 5, 99);
        for priority in 0..2 {
            let of = format!("priority {priority} of two, loads {low} and {high}");
            assert_agree(&measured[priority], expected[priority], &of);
        }
        assert!(expected[0] > 0.3 && expected[1] < 0.01);
    }
}

#[test]
fn a_saturating_low_priority_leaves_the_closed_form_to_the_high_one() {
    // With the lower half always full the upper half is M/M/1/N of the high priority alone.
    let (rho, n): (f64, i32) = (0.6, 8);
    let closed = (1.0 - rho) * rho.powi(n) / (1.0 - rho.powi(n + 1));
    let solved = solve(&[10_000.0, rho], 2 * n as u64, 0)[1];
    assert!(
        (solved / closed - 1.0).abs() < 0.01,
        "{solved} and {closed}"
    );
}

#[test]
fn three_priorities_agree_with_the_solved_chain() {
    let rates = [0.6, 0.5, 0.4];
    let expected = solve(&rates, 30, 6);
    let measured = simulate(&rates, 30, 6, 7);
    for priority in 0..3 {
        let of = format!("priority {priority} of three");
        assert_agree(&measured[priority], expected[priority], &of);
    }
    assert!(expected[0] > expected[1] && expected[1] > expected[2]);
}
