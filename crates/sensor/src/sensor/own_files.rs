//! Files that users bring: to be read as devices, and to be written by flows.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use flowgauge_sensor_client::protocol::Refusal;
use flowgauge_stack::Stack;
use flowgauge_sys::datagrams::{HandedSocket, SendsTo};
use flowgauge_sys::files::{self, Handed, HandedInput};

use super::{Asker, Opened, Sensor, State};

/// Devices of a user's own.
const MOST_DEVICES: usize = 16;

impl Sensor {
    /// A device of a user's file. Returns its name.
    ///
    /// # Errors
    /// When the file cannot be read, and when there may be no more.
    pub(crate) fn create_device(
        &self,
        asker: &Asker,
        files: Vec<OwnedFd>,
    ) -> Result<String, Refusal> {
        let [file] = <[OwnedFd; 1]>::try_from(files).map_err(|files| {
            Refusal::new(format!(
                "{} descriptors received instead of one",
                files.len()
            ))
        })?;
        let unread = |error: &dyn core::fmt::Display| {
            Refusal::with_hint(
                format!("the file cannot be read: {error}"),
                "it must be a capture file on a disk, open for reading",
            )
        };
        let file = HandedInput::new(file).map_err(|error| unread(&error))?;
        let is_room = |state: &State| {
            let owners = state.owners.values();
            let of_user = owners.filter(|owner| owner.who() == asker.who());
            match of_user.count() < MOST_DEVICES {
                true => Ok(()),
                false => Err(Refusal::new(format!(
                    "a user has {MOST_DEVICES} devices at most"
                ))),
            }
        };
        is_room(&self.state.lock())?;
        let number = self.next_flow();
        // No device of a configuration has such a name.
        let name = format!("file+{number}");
        let opened = Opened::of_user(file, asker.who()).map_err(|error| unread(&error))?;
        let device = opened.start(&name, Vec::new(), None, true, &self.news);
        let device = Arc::new(device.map_err(|error| Refusal::new(error.to_string()))?);
        let mut state = self.state.lock();
        is_room(&state)?;
        state.devices.insert(name.clone(), device);
        state.owners.insert(name.clone(), asker.clone());
        Ok(name)
    }

    /// Ends a device of a user's file.
    ///
    /// # Errors
    /// When the connection has no such device.
    pub(crate) fn delete_device(&self, asker: &Asker, device: &str) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let owner = state.owners.get(device);
        if owner.is_none_or(|owner| owner.session != asker.session) {
            let error = format!("there is no device \"{device}\" of yours");
            return Err(Refusal::new(error));
        }
        state.owners.remove(device);
        let ended = state.end("its device was deleted", |flow| flow.device == device);
        let device = state.devices.remove(device);
        drop(state);
        drop((device, ended));
        Ok(())
    }
}

/// What came with a flow, for its components.
pub(super) enum Came {
    File(#[expect(dead_code, reason = "it is there as long as this is")] Handed),
    Socket(#[expect(dead_code, reason = "it is there as long as this is")] HandedSocket),
}

/// The options that a descriptor may stand in.
const PLACES: [&str; 2] = ["file", "to"];

/// Names the files and sockets that came with a flow in the place of `fd:0` and so on. Packets are sent onto `interfaces` only.
///
/// # Errors
/// One that is not there, or that nobody may write to.
pub(super) fn name_files(
    stack: &mut Stack,
    files: Vec<OwnedFd>,
    interfaces: &[String],
) -> Result<Vec<Came>, Refusal> {
    let mut files: Vec<Option<OwnedFd>> = files.into_iter().map(Some).collect();
    let mut handed = Vec::new();
    for node in Arc::make_mut(&mut stack.nodes) {
        let text = |option: &&str| node.settings.text(option).and_then(files::handed);
        let found = PLACES
            .iter()
            .find_map(|option| Some((*option, text(option)?)));
        let Some((option, (number, ending))) = found else {
            continue;
        };
        let unwritten = |why: &dyn core::fmt::Display| {
            Refusal::with_hint(
                format!("{}: fd:{number} cannot be written: {why}", node.label),
                "fd:0 is the first descriptor passed with the flow, of a file on a disk or a socket; each is for one \
                component",
            )
        };
        let file = usize::try_from(number)
            .ok()
            .and_then(|at| files.get_mut(at)?.take());
        let file = file.ok_or_else(|| unwritten(&"it did not come"))?;
        let (name, came) = match option {
            "file" => {
                let file =
                    Handed::new(file, (number, ending)).map_err(|error| unwritten(&error))?;
                (file.name(), Came::File(file))
            }
            _ => {
                let socket = HandedSocket::new(file).map_err(|error| unwritten(&error))?;
                match (socket.to(), node.info.name) {
                    (SendsTo::Port, "flow_export") => {}
                    (SendsTo::Interface(name), "inject") if interfaces.contains(name) => {}
                    (SendsTo::Interface(name), "inject") => {
                        let error = format!("nothing may be sent onto {name}");
                        let hint = "the sensor's option inject lists the interfaces that flows may send onto";
                        return Err(Refusal::by_rights(error, hint));
                    }
                    _ => return Err(unwritten(&"it is a socket of another kind")),
                }
                (socket.name(), Came::Socket(socket))
            }
        };
        node.settings.set_text(option, name);
        handed.push(came);
    }
    Ok(handed)
}
