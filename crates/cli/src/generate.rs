//! `flowgauge generate`

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flowgauge_capture::sink::Compressor;
use flowgauge_generate::{Config, Detail, Preset, Resolution, generate};
use flowgauge_sys::files::{self, How};

use crate::capture::names_pcapng;
use crate::failure::Failure;
use crate::options::GenerateOptions;
use crate::say::{count, instead_of, say};

const MIN_DURATION: Duration = Duration::from_millis(1);
const MAX_DURATION: Duration = Duration::from_secs(31_536_000);
/// All flows of a trace are planned in memory.
const MAX_FLOWS: u64 = 100_000_000;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &GenerateOptions) -> Result<(), Failure> {
    let path = options.write.as_path();
    let mut config = configuration(options)?;
    config.pcapng = names_pcapng(path);
    if path.as_os_str() == "-" {
        let sink = crate::sinks::target(None)?;
        generate(&config, sink).map_err(|error| writing(path, error))?;
        return Ok(());
    }
    let file = files::named()
        .open(path, How::replace())
        .map_err(|error| creating(path, error))?;
    let truth = Compressor::by_name(file, path)
        .and_then(|mut file| {
            let truth = generate(&config, &mut file)?;
            file.finish()?;
            Ok(truth)
        })
        .map_err(|error| writing(path, error))?;
    let truth_path = truth_path(path);
    let file = files::named()
        .open(&truth_path, How::replace())
        .map_err(|error| creating(&truth_path, error))?;
    let mut writer = BufWriter::new(file);
    serde_json::to_writer(&mut writer, &truth)
        .map_err(std::io::Error::from)
        .and_then(|()| writer.write_all(b"\n"))
        .and_then(|()| writer.flush())
        .map_err(|error| writing(&truth_path, error))?;
    if !options.quiet {
        say!(
            "{}: {}, {} on the wire; ground truth in {}",
            path.display(),
            count(truth.packets, "packet"),
            count(truth.wire_bytes, "byte"),
            truth_path.display()
        );
    }
    Ok(())
}

fn configuration(options: &GenerateOptions) -> Result<Config, Failure> {
    let given = options.preset_word.as_deref().or(options.preset.as_deref());
    let name = given.unwrap_or(Preset::Mix.name());
    let preset = name.parse().map_err(|_| {
        let names = Preset::ALL.iter().map(|preset| preset.name());
        Failure::usage(
            format!("no preset \"{name}\""),
            instead_of(name, names, "flowgauge generate --help"),
        )
    })?;
    if !(options.scale.is_finite() && options.scale > 0.0) {
        return Err(Failure::usage(
            "--scale must be a number above zero",
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
    let flows = config.tcp_flows.saturating_add(config.udp_flows);
    if flows.saturating_add(config.hostile_packets) > MAX_FLOWS {
        return Err(Failure::usage(
            format!("more than {MAX_FLOWS} flows"),
            "use a smaller --scale, --flows or --packets",
        ));
    }
    if let Some(duration) = options.duration {
        config.duration = Duration::from_nanos(duration.0);
        if !(MIN_DURATION..=MAX_DURATION).contains(&config.duration) {
            return Err(Failure::usage(
                "--duration is out of range",
                "use 1ms to 365d",
            ));
        }
    }
    if options.summary {
        config.detail = Detail::Summary;
    }
    if options.nanoseconds {
        config.resolution = Resolution::Nanos;
    }
    options.shares.change(&mut config);
    Ok(config)
}

/// `trace.pcap.truth.json` beside `trace.pcap`.
fn truth_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".truth.json");
    PathBuf::from(name)
}

fn creating(path: &Path, source: std::io::Error) -> Failure {
    Failure::opening(&flowgauge_capture::Error::io("create", path)(source))
}

fn writing(path: &Path, source: std::io::Error) -> Failure {
    Failure::running(&flowgauge_capture::Error::io("write", path)(source))
}
