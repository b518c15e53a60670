//! Packet loss against queueing theory (section 7 of the Scap paper): `loss`. A JSON object for each
//! load and length of the queue with the loss by the model and as measured on `Watermarks`, first of one
//! priority (M/M/1/N), then of three.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

#[path = "../tests/stream/loss_model/model.rs"]
mod model;

use model::{closed_form, simulate, solve};

/// Loads of one priority, in services.
const LOADS: [f64; 3] = [0.5, 0.9, 1.2];
/// ... and of each of three, from the lowest.
const SHARES: [f64; 3] = [0.6, 0.5, 0.4];
/// Packets that memory has room for.
const LENGTHS: [u64; 5] = [5, 10, 20, 30, 40];

fn main() {
    for rho in LOADS {
        for n in LENGTHS {
            let measured = &simulate(&[rho], n, 0, 0x1234_5678 + n)[0];
            println!(
                "{{\"rho\":{rho},\"n\":{n},\"model\":{:e},\"measured\":{:e},\"half_width\":{:e}}}",
                closed_form(rho, n as i32),
                measured.share,
                measured.half_width
            );
        }
    }
    for n in LENGTHS {
        let model = solve(&SHARES, n, n / 5);
        let measured = simulate(&SHARES, n, n / 5, 7 + n);
        for (priority, (model, measured)) in model.iter().zip(&measured).enumerate() {
            println!(
                "{{\"priority\":{priority},\"n\":{n},\"model\":{model:e},\"measured\":{:e},\"half_width\":{:e}}}",
                measured.share, measured.half_width
            );
        }
    }
}
