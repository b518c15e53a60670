//! Devices: those of the sensor, and of trace files of the program.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use flowgauge_mapi::Error;
use flowgauge_sensor_client::ClientError;
use flowgauge_sensor_client::protocol::DeviceStatus;

use crate::error::{NO_DEVICE, of_client};
use crate::session::{client, state, state_mut};

/// What the source of a device begins with that is an interface.
pub(crate) const INTERFACE: &str = "interface ";

/// The devices that the user may see, by number.
pub(crate) fn devices() -> Result<BTreeMap<c_int, DeviceStatus>, Error> {
    let status = client()?.status();
    let devices = status
        .map_err(|error| of_client(&error, NO_DEVICE))?
        .devices;
    let state = &mut *state_mut();
    let numbered = devices
        .into_iter()
        .map(|device| (state.device_number(&device.device), device));
    Ok(numbered.collect())
}

/// A device of trace files that waits until it is started. Returns its name.
pub(crate) fn create_device(path: &str) -> Result<String, Error> {
    let file = File::open(path);
    let file = file.map_err(|error| Error::new(Error::FILE, format!("{path}: {error}")))?;
    let name = client()?.create_device(file.as_fd());
    let name = name.map_err(|error| of_client(&error, Error::FILE))?;
    state_mut().device_number(&name);
    Ok(name)
}

/// Notes where the name of a device is that a program has.
pub(crate) fn keep_name(name: &str, pointer: usize) {
    state_mut().offline.insert(name.to_owned(), pointer);
}

fn is_offline(device: &str) -> Result<(), Error> {
    let is_known = state().offline.contains_key(device);
    let unknown = || Error::new(NO_DEVICE, format!("there is no offline device {device}"));
    is_known.then_some(()).ok_or_else(unknown)
}

/// Has a device's files read.
pub(crate) fn start_device(device: &str) -> Result<(), Error> {
    is_offline(device)?;
    let started = client()?.start(device);
    started.map_err(|error| match error {
        // It was the program's own: it went with the sensor, if not there.
        ClientError::Refused(refusal) => Error::new(NO_DEVICE, refusal.error),
        error => of_client(&error, NO_DEVICE),
    })
}

/// Ends a device. Returns where its name is.
pub(crate) fn delete_device(device: &str) -> Result<usize, Error> {
    is_offline(device)?;
    let deleted = client()?.delete_device(device);
    deleted.map_err(|error| of_client(&error, NO_DEVICE))?;
    Ok(state_mut().offline.remove(device).unwrap_or(0))
}

/// The speed of an interface in Mbit/s; where it has none, as inside a machine, 1000.
pub(crate) fn link_speed(interface: &str) -> c_int {
    let path = Path::new("/sys/class/net").join(interface).join("speed");
    let speed = std::fs::read_to_string(path).ok();
    let speed = speed.and_then(|text| text.trim().parse().ok());
    speed.filter(|speed| *speed > 0).unwrap_or(1000)
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.unwrap_or_default().trim().to_owned()
}
