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

mod model;

use model::{ARRIVALS, Measured, closed_form, simulate, solve};

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
        let expected = closed_form(rho, n);
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
    let closed = closed_form(rho, n);
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
