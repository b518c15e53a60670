//! `flowgauge generate`

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flowgauge_capture::generate::{Config, Preset, generate};

use crate::failure::Failure;
use crate::options::GenerateOptions;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &GenerateOptions) -> Result<(), Failure> {
    let config = configuration(options)?;
    let path = options.write.as_path();
    if path.as_os_str() == "-" {
        let sink = crate::sinks::target(None)?;
        generate(&config, sink).map_err(|error| writing(path, error))?;
        return Ok(());
    }
    let file = File::create(path).map_err(|error| creating(path, error))?;
    let truth = generate(&config, file).map_err(|error| writing(path, error))?;
    let truth_path = truth_path(path);
    let file = File::create(&truth_path).map_err(|error| creating(&truth_path, error))?;
    let mut writer = BufWriter::new(file);
    serde_json::to_writer(&mut writer, &truth)
        .map_err(std::io::Error::from)
        .and_then(|()| writer.write_all(b"\n"))
        .and_then(|()| writer.flush())
        .map_err(|error| writing(&truth_path, error))?;
    if !options.quiet {
        eprintln!(
            "{}: {} packets, {} bytes on the wire; what it holds is in {}",
            path.display(),
            truth.packets,
            truth.wire_bytes,
            truth_path.display()
        );
    }
    Ok(())
}

fn configuration(options: &GenerateOptions) -> Result<Config, Failure> {
    let Some(preset) = Preset::ALL
        .into_iter()
        .find(|preset| preset.name() == options.preset)
    else {
        let names = Preset::ALL.map(Preset::name);
        return Err(Failure::usage(
            format!("no preset \"{}\"", options.preset),
            format!("the presets are {}", names.join(", ")),
        ));
    };
    if !(options.scale.is_finite() && options.scale > 0.0) {
        return Err(Failure::usage(
            "--scale must be more than zero",
            "1 is the preset's own size",
        ));
    }
    let mut config = Config::new(preset);
    config.seed = options.seed;
    if let Some(flows) = options.flows {
        config = config.with_flows(flows);
    } else if let Some(packets) = options.packets {
        config = config.with_packets(packets);
    } else if options.scale != 1.0 {
        config = config.scaled(options.scale);
    }
    Ok(config)
}

/// `trace.pcap.truth.json` beside `trace.pcap`.
fn truth_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".truth.json");
    PathBuf::from(name)
}

fn creating(path: &Path, source: std::io::Error) -> Failure {
    Failure::opening(&flowgauge_capture::Error::Io {
        action: "create",
        path: path.to_owned(),
        source,
    })
}

fn writing(path: &Path, source: std::io::Error) -> Failure {
    Failure::running(&flowgauge_capture::Error::Io {
        action: "write",
        path: path.to_owned(),
        source,
    })
}
