//! `flowgauge sensor-agent`, and sensors of other machines.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flowgauge_sensor_agent::Agent;
use flowgauge_sensor_client::protocol::Secret;
use flowgauge_sensor_client::scope::{self, Member};
use flowgauge_sensor_client::{Client, ClientError, Sensors};

use crate::control::Control;
use crate::credential;
use crate::failure::Failure;
use crate::keys;
use crate::options::{SensorAgentOptions, SensorAt};
use crate::say::say;

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
            let address = address_of(host)?;
            Client::connect_to(&identity, &address, at.peer.as_deref(), PATIENCE)
        }
    };
    let client = connected.map_err(failed)?;
    if let Some(credential) = credential::brought(at.credential.as_deref())? {
        client.bring(&Secret::new(credential)).map_err(failed)?;
    }
    Ok(client)
}

/// The devices that are named, of the sensor that options name or of others, and how to come to them.
pub(crate) fn members(
    at: &SensorAt,
    text: Option<&str>,
) -> Result<(Arc<Sensors>, Vec<Member>), Failure> {
    let members = match text {
        Some(text) => scope::members(text),
        // A device that is made later.
        None => Ok(vec![Member {
            address: None,
            device: String::new(),
        }]),
    };
    let mut members =
        members.map_err(|error| Failure::usage(error.to_string(), error.hint().to_owned()))?;
    let address = at.sensor.as_deref().map(address_of).transpose()?;
    for member in &mut members {
        member.address = member.address.take().or_else(|| address.clone());
    }
    let is_elsewhere = members.iter().any(|member| member.address.is_some());
    let identity = is_elsewhere.then(|| keys::identity(&at.identity));
    let credential = credential::brought(at.credential.as_deref())?;
    let sensors = Sensors::new(at.socket.clone(), identity.transpose()?);
    let sensors = sensors.with_credential(credential.map(Secret::new));
    Ok((Arc::new(sensors), members))
}

fn address_of(host: &str) -> Result<String, Failure> {
    scope::with_port(host).ok_or_else(|| {
        let hint = "write HOST, HOST:PORT or [2001:db8::1]:PORT";
        Failure::usage(format!("\"{host}\" is not an address"), hint)
    })
}

/// Nothing more comes, of any member.
pub(crate) fn gone(members: &[Member]) -> Failure {
    let names: Vec<String> = members.iter().map(Member::to_string).collect();
    Failure::run(
        format!(
            "{}: the sensor has stopped, or is unreachable",
            names.join(", ")
        ),
        Some("check with flowgauge sensor status".to_owned()),
    )
}

/// A sensor that is not there or refuses: nothing has begun. One that has gone ends what has.
pub(crate) fn failed(error: ClientError) -> Failure {
    let (what, hint) = (error.to_string(), error.hint());
    match error {
        ClientError::Unreachable(error) => keys::of_link(&error),
        ClientError::Gone(_) | ClientError::Lost | ClientError::Confused => {
            Failure::run(what, hint)
        }
        _ => Failure::Usage { what, hint },
    }
}
