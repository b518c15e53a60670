//! A connection of a user: requests one after the other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use flowgauge_sensor_client::protocol::{
    Answer, MOST_REQUEST, PART_BYTES, Parts, Refusal, Request, send_answer,
};
use flowgauge_sys::local::Connection;

use crate::granted::{Granted, RIGHTS};
use crate::sensor::{Asker, Sensor, Stranger};
use crate::sharing::{Capturing, request};

/// How often it is looked whether the sensor ends.
const LOOK: Duration = Duration::from_millis(100);

/// Answers until the user goes, or the sensor has ended.
pub(crate) fn serve(sensor: &Sensor, connection: &Arc<Connection>, asker: &mut Asker) {
    let (mut message, mut parts) = (vec![0; PART_BYTES + 1], Parts::default());
    let mut stranger = sensor.stranger(asker);
    while !sensor.has_ended() && !stranger.as_ref().is_some_and(Stranger::is_over) {
        match connection.wait(Some(LOOK)) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => return,
        }
        let (len, files) = match connection.receive_files(&mut message) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut capturing = None;
        // Of who has no rights nothing long is kept.
        let most = match stranger {
            Some(_) => PART_BYTES,
            None => MOST_REQUEST,
        };
        let answer = match request(&message[..len], files, &mut parts, most) {
            Ok(None) => continue,
            Ok(Some((Request::Capture(asked), _))) => {
                let rights = allowed(sensor, asker);
                let joined = rights.and_then(|it| sensor.capture(asker, &it, *asked, connection));
                joined.map(|(opened, files, program)| {
                    capturing = Some(program);
                    (Answer::Capture(opened), files)
                })
            }
            Ok(Some((request, files))) => answer(sensor, asker, request, files),
            Err(error) => Err(Refusal::new(format!("this is not a request: {error}"))),
        };
        stranger = match stranger {
            Some(stranger) if answer.is_err() => Some(stranger),
            _ => sensor.stranger(asker),
        };
        let (answer, files) =
            answer.unwrap_or_else(|refusal| (Answer::Refused(refusal), Vec::new()));
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        if send_answer(connection, &answer, &files).is_err() {
            return;
        }
        // The connection is the program's then.
        if let Some(capturing) = capturing {
            drop(files);
            return Capturing::serve(&capturing, sensor, asker.peer.process);
        }
    }
}

/// What somebody may do, if there is anything.
fn allowed(sensor: &Sensor, asker: &Asker) -> Result<Granted, Refusal> {
    let rights = sensor.rights(asker);
    match &rights.nothing {
        Some(why) => Err(Refusal::by_rights(why.clone(), RIGHTS)),
        None => Ok(rights),
    }
}

/// An answer, and the descriptors that go with it.
type Answered = (Answer, Vec<OwnedFd>);

fn answer(
    sensor: &Sensor,
    asker: &mut Asker,
    request: Request,
    files: Vec<OwnedFd>,
) -> Result<Answered, Refusal> {
    let rights = match request {
        Request::SpeakFor { .. } | Request::Bring { .. } => sensor.rights(asker),
        Request::Results { .. } | Request::Reads { .. } | Request::Close { .. } => {
            let ended = |refusal| Refusal {
                has_ended: true,
                ..refusal
            };
            allowed(sensor, asker).map_err(ended)?
        }
        _ => allowed(sensor, asker)?,
    };
    let for_admins = |what: &str| match rights.admin {
        true => Ok(()),
        false => Err(Refusal::with_hint(
            format!("you may not {what} the sensor"),
            "admin = true of a user in its configuration allows it",
        )),
    };
    let answer = match request {
        Request::SpeakFor { name, key } => {
            sensor.speak_for(asker, name, key.as_deref())?;
            Answer::Done(Vec::new())
        }
        Request::Bring { credential } => {
            sensor.bring(asker, credential.text())?;
            Answer::Done(Vec::new())
        }
        Request::Explain { device, stack } => {
            Answer::Done(sensor.explain(asker, &rights, &device, &stack)?)
        }
        Request::Status { shared } => Answer::Status(sensor.status(asker, &rights, shared)),
        Request::Check { device, stack } => {
            sensor.check(asker, &rights, &device, &stack)?;
            Answer::Done(Vec::new())
        }
        Request::Open { device, stack } => {
            let (opened, files) = sensor.open(asker, &rights, &device, &stack, files)?;
            return Ok((Answer::Flow(opened), files));
        }
        Request::Results { flow, take } => {
            Answer::Results(sensor.results(asker, flow, take.as_deref())?)
        }
        Request::Reads { flow, component } => {
            sensor.reads(asker, flow, &component)?;
            Answer::Done(Vec::new())
        }
        Request::Close { flow } => Answer::Results(sensor.close(asker, flow)?),
        Request::CreateDevice => Answer::Device(sensor.create_device(asker, files)?),
        Request::DeleteDevice { device } => {
            sensor.delete_device(asker, &device)?;
            Answer::Done(Vec::new())
        }
        Request::Start { device } => {
            sensor.start_device(asker, &rights, &device)?;
            Answer::Done(Vec::new())
        }
        Request::Reload => {
            for_admins("reload")?;
            let said = sensor
                .reload(&format!("by {}", asker.shown()))
                .map_err(|error| Refusal {
                    hint: error.hint(),
                    ..Refusal::new(error.to_string())
                })?;
            Answer::Done(said)
        }
        Request::Stop => {
            for_admins("stop")?;
            sensor.stop();
            Answer::Done(Vec::new())
        }
        Request::Capture(_)
        | Request::Streams { .. }
        | Request::Change { .. }
        | Request::Lose(_)
        | Request::Leave => return Err(Refusal::new("join a capture first")),
    };
    Ok((answer, Vec::new()))
}
