//! The model, and the same measured.

use flowgauge_stream::engine::{Sentence, Watermarks};

pub(crate) const ARRIVALS: u64 = 10_000_000;
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
pub(crate) struct Measured {
    pub(crate) share: f64,
    pub(crate) half_width: f64,
}

/// Sends [`ARRIVALS`] packets whose priorities 0, 1, ... arrive at `rates`, measured in services,
/// into `memory` units of which `base` are free for all. Returns each priority's loss.
pub(crate) fn simulate(rates: &[f64], memory: u64, base: u64, seed: u64) -> Vec<Measured> {
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
pub(crate) fn solve(rates: &[f64], memory: u64, base: u64) -> Vec<f64> {
    let n = rates.len() as u64;
    let watermark = |priority: usize| base + (memory - base) * (priority as u64 + 1) / n;
    let mut weights = vec![1.0];
    for state in 0..memory {
        let births: f64 = (0..rates.len())
            .filter(|&priority| state < watermark(priority))
            .map(|priority| rates[priority])
            .sum();
        let last = weights[weights.len() - 1];
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

/// What M/M/1/N loses.
pub(crate) fn closed_form(rho: f64, n: i32) -> f64 {
    (1.0 - rho) * rho.powi(n) / (1.0 - rho.powi(n + 1))
}
