//! Development tasks behind the Makefile.
#![allow(
    clippy::print_stdout,
    reason = "this program talks to a developer's terminal"
)]
#![forbid(unsafe_code)]

mod demo;
mod fuzz;
mod live;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test", rest @ ..] => test::run(rest),
        ["demo"] => demo::run(),
        ["fuzz", seconds] => fuzz::run(seconds),
        _ => {
            eprintln!("usage: xtask test [test program arguments] | demo | fuzz SECONDS");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(code) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root folder.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// The cargo that runs this, or the one on PATH.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
