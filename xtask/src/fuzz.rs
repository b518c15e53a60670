//! Coverage-guided fuzzing by cargo-fuzz (nightly Rust), each target for a given time.

use std::process::{Command, ExitCode};

/// The one target built with the feature `components`.
const COMPONENTS: &str = "items";

pub(crate) fn run(seconds: &str) -> Result<ExitCode, String> {
    let seconds: u32 = seconds
        .parse()
        .map_err(|_| format!("'{seconds}' is not a number of seconds"))?;
    let fuzz = super::root().join("fuzz");
    // The cargo that runs this is pinned to its own toolchain; cargo-fuzz needs the nightly one.
    let nightly = || {
        let mut command = Command::new("cargo");
        command
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN");
        command.arg("+nightly");
        command
    };
    let installed = nightly().args(["fuzz", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        let status = nightly()
            .args(["install", "cargo-fuzz", "--locked"])
            .status()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !status.success() {
            return Err(
                "cargo-fuzz could not be installed\nhint: rustup toolchain install nightly"
                    .to_owned(),
            );
        }
    }
    let mut targets: Vec<String> = std::fs::read_dir(fuzz.join("fuzz_targets"))
        .map_err(|error| format!("cannot list fuzz targets: {error}"))?
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .into_string()
                .ok()?
                .strip_suffix(".rs")
                .map(str::to_owned)
        })
        .collect();
    // The target that needs components comes last: the others do not wait until those are built.
    targets.sort_by_key(|target| (target == COMPONENTS, target.clone()));
    for target in targets {
        println!("fuzzing {target} for {seconds} s");
        let status = nightly()
            .args(["fuzz", "run", &target])
            .args((target == COMPONENTS).then_some("--features=components"))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .args(["-max_len=4096", "-rss_limit_mb=2048", "-timeout=10"])
            .current_dir(super::root())
            .status()
            .map_err(|error| format!("cannot start cargo fuzz: {error}"))?;
        if !status.success() {
            println!("{target} failed; the input is under fuzz/artifacts/{target}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
