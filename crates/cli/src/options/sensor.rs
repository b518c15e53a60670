//! `flowgauge sensor`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use flowgauge_sensor::config::DEFAULT_FILE;
use flowgauge_sensor_client::socket_of_environment;
use flowgauge_wire::Nanos;

use super::agent::IdentityOptions;
use super::shared::DestinationOptions;
use super::values::parse_duration;

/// Where agents listen.
const DEFAULT_LISTEN: &str = "[::]:2233";

/// `sensor`
#[derive(Args, Debug)]
pub(crate) struct SensorOptions {
    #[command(subcommand)]
    pub(crate) command: SensorCommand,
}

/// What is done with a sensor.
#[derive(Debug, Subcommand)]
pub(crate) enum SensorCommand {
    /// Capture for all users the configuration admits, until stopped
    Run(SensorRunOptions),
    /// Check a configuration
    Check(ConfigOptions),
    /// Show devices, stacks and flows
    Status(StatusOptions),
    /// List flows, or the work they share
    Flows(SensorFlowsOptions),
    /// Run a stack on a device, and print its results
    Flow(SensorFlowOptions),
    /// List each statement of your rights and whether it allows a flow, without opening it
    Explain(ExplainOptions),
    /// Start reading the files of a device with hold = true
    Start(StartOptions),
    /// Reread the configuration; unchanged parts continue
    Reload(SensorAt),
    /// Stop the sensor
    Stop(SensorAt),
}

impl SensorCommand {
    /// Whether standard output is where results go.
    pub(crate) fn writes_standard_output(&self) -> bool {
        matches!(
            self,
            SensorCommand::Status(_)
                | SensorCommand::Flows(_)
                | SensorCommand::Flow(_)
                | SensorCommand::Explain(_)
        )
    }
}

/// `sensor run`
#[derive(Args, Debug)]
pub(crate) struct SensorRunOptions {
    #[command(flatten)]
    pub(crate) config: ConfigOptions,
    /// Without a configuration: capture on this interface for libscap programs
    #[arg(short = 'i', long, value_name = "IFACE", conflicts_with = "config")]
    pub(crate) interface: Option<String>,
    /// With -i, also for members of this group (name or number) [default: $FLOWGAUGE_SHARE_GROUP]
    #[arg(long, value_name = "GROUP", requires = "interface")]
    pub(crate) group: Option<String>,
    /// Programs come to the socket that is standard input; the last one ends this
    #[arg(long, hide = true, requires = "interface")]
    pub(crate) inherited: bool,
}

/// A configuration.
#[derive(Args, Debug)]
pub(crate) struct ConfigOptions {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub(crate) config: PathBuf,
}

/// Which sensor.
#[derive(Args, Debug)]
pub(crate) struct SensorAt {
    /// The socket of this machine's sensor [default: $FLOWGAUGE_SENSOR, else /run/flowgauge/sensor.sock]
    #[arg(long, value_name = "PATH", default_value_os_t = socket_of_environment(), hide_default_value = true)]
    pub(crate) socket: PathBuf,
    /// Query the sensor of another machine, through its agent [default port: 2233]
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "socket")]
    pub(crate) sensor: Option<String>,
    /// With --sensor: name in the agent's certificate, if not HOST
    #[arg(long, value_name = "NAME", requires = "sensor")]
    pub(crate) peer: Option<String>,
    /// Present this credential [default: $FLOWGAUGE_CREDENTIAL]
    #[arg(long, value_name = "FILE")]
    pub(crate) credential: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) identity: IdentityOptions,
}

/// `sensor-agent`
#[derive(Args, Debug)]
pub(crate) struct SensorAgentOptions {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = DEFAULT_LISTEN)]
    pub(crate) listen: String,
    /// The sensor's socket [default: $FLOWGAUGE_SENSOR, else /run/flowgauge/sensor.sock]
    #[arg(long, value_name = "PATH", default_value_os_t = socket_of_environment(), hide_default_value = true)]
    pub(crate) socket: PathBuf,
    /// Accept this certificate name (several) [default: all of the authority]
    #[arg(long, value_name = "NAME")]
    pub(crate) allow: Vec<String>,
    #[command(flatten)]
    pub(crate) identity: IdentityOptions,
}

/// `sensor status`
#[derive(Args, Debug)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) sensor: SensorAt,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Repeat at this interval, with rates, until stopped [default: 1s]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_parser = parse_duration)]
    pub(crate) watch: Option<Nanos>,
}

/// `sensor flows`
#[derive(Args, Debug)]
pub(crate) struct SensorFlowsOptions {
    #[command(flatten)]
    pub(crate) sensor: SensorAt,
    /// Show a tree of components that are computed once, and their flows; with --json one object per device
    #[arg(long, conflicts_with_all = ["csv", "table", "format", "write"])]
    pub(crate) shared: bool,
    #[command(flatten)]
    pub(crate) output: DestinationOptions,
}

/// `sensor start`
#[derive(Args, Debug)]
pub(crate) struct StartOptions {
    #[command(flatten)]
    pub(crate) sensor: SensorAt,
    /// The device
    #[arg(value_name = "DEVICE")]
    pub(crate) device: String,
}

/// `sensor explain`
#[derive(Args, Debug)]
pub(crate) struct ExplainOptions {
    #[command(flatten)]
    pub(crate) sensor: SensorAt,
    /// The device
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub(crate) device: String,
    /// Components of the flow, as for stack run -e [default: streams, for a libscap program]
    #[arg(value_name = "STACK", default_value = "", hide_default_value = true)]
    pub(crate) stack: String,
}

/// `sensor flow`
#[derive(Args, Debug)]
pub(crate) struct SensorFlowOptions {
    /// Write items at the end of the stack to this file, as the component output does
    #[arg(short = 'w', long, value_name = "FILE", conflicts_with = "sensor")]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) stack: FlowOptions,
}

/// `mapi`
#[derive(Args, Debug)]
pub(crate) struct MapiOptions {
    /// List MAPI's functions with their arguments
    #[arg(long, exclusive = true)]
    pub(crate) functions: bool,
    #[command(flatten)]
    pub(crate) flow: FlowOptions,
}

/// A flow, of `sensor flow` and `mapi`.
#[derive(Args, Debug)]
pub(crate) struct FlowOptions {
    #[command(flatten)]
    pub(crate) sensor: SensorAt,
    /// Device; on other machines host:eth0, several separated by commas, or a scope: campus/*
    #[arg(
        short = 'd',
        long,
        value_name = "DEVICE",
        required_unless_present = "read"
    )]
    pub(crate) device: Option<String>,
    /// Read a capture file instead of a device (the sensor reads it for this flow only)
    #[arg(short = 'r', long, value_name = "FILE", conflicts_with_all = ["device", "start", "sensor"])]
    pub(crate) read: Option<PathBuf>,
    /// Start reading the device's files once the flow is open
    #[arg(long)]
    pub(crate) start: bool,
    /// Time between results
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(crate) every: Nanos,
    /// Exit after N results
    #[arg(short = 'c', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Write results as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Components of the flow, as for stack run -e; for mapi, MAPI functions
    #[arg(value_name = "STACK", required = true)]
    stack: Option<String>,
}

impl FlowOptions {
    /// What it consists of.
    pub(crate) fn stack(&self) -> &str {
        self.stack.as_deref().unwrap_or_default()
    }
}
