//! `flowgauge sensor-agent`, and sensors of other machines.

use std::thread;
use std::time::Duration;

use flowgauge_sensor_agent::Agent;
use flowgauge_sensor_client::{Client, ClientError, scope};

use crate::control::Control;
use crate::failure::Failure;
use crate::keys;
use crate::options::{SensorAgentOptions, SensorAt};
use crate::say::say;
use crate::sensor::failed;

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether the agent is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// When it cannot listen, or there are no keys.
pub(crate) fn run(options: &SensorAgentOptions) -> Result<(), Failure> {
    let control = Control::install()?;
    let identity = keys::identity(&options.identity)?;
    let agent = Agent::start(
        &identity,
        &options.listen,
        options.allow.clone(),
        options.socket.clone(),
    );
    let agent = agent.map_err(|error| keys::of_link(&error))?;
    say!(
        "flowgauge: agent of {} at {}",
        options.socket.display(),
        agent.local_address()
    );
    control.begin();
    while !control.stopped() {
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Connects to the sensor that options name.
pub(crate) fn connect(at: &SensorAt) -> Result<Client, Failure> {
    let connected = match &at.sensor {
        None => Client::connect(&at.socket),
        Some(host) => {
            let identity = keys::identity(&at.identity)?;
            let address = scope::with_port(host).ok_or_else(|| {
                let hint = "write HOST, HOST:PORT or [2001:db8::1]:PORT";
                Failure::usage(format!("\"{host}\" is no address"), hint)
            })?;
            Client::connect_to(&identity, &address, at.peer.as_deref(), PATIENCE)
        }
    };
    connected.map_err(|error| match error {
        ClientError::Unreachable(error) => keys::of_link(&error),
        error => failed(error),
    })
}
