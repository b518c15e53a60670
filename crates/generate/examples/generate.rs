//! Writes a synthetic trace: `generate PRESET [--scale F] [--seed N] [--summary] FILE`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

use flowgauge_generate::{Config, Detail, Preset, generate};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let preset: Preset = arguments.next().ok_or("which preset?")?.parse()?;
    let mut config = Config::new(preset);
    let mut path = None;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--scale" => config = config.scaled(value()?.parse()?),
            "--seed" => config.seed = value()?.parse()?,
            "--summary" => config.detail = Detail::Summary,
            _ => path = Some(argument),
        }
    }
    let path = path.ok_or("which file?")?;
    let truth = generate(&config, File::create(&path)?)?;
    println!(
        "{} packets, {} bytes, {:?}\n{:#?}\n{:?}",
        truth.packets, truth.wire_bytes, truth.flows, truth.totals, truth.http
    );
    let json = BufWriter::new(File::create(format!("{path}.json"))?);
    serde_json::to_writer(json, &truth)?;
    Ok(())
}
