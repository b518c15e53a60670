//! Errors: MAPI's numbers, and the last error of each thread.

use core::cell::RefCell;

use flowgauge_mapi::{Call, Error};
use flowgauge_sensor_client::ClientError;

pub(crate) const CONNECTED_TWICE: i32 = 3081;
pub(crate) const NO_DEVICE: i32 = Error::NO_DEVICE;
/// The sensor is not there, or has gone.
pub(crate) const SOCKET: i32 = 5123;
/// There has been no flow yet.
pub(crate) const NO_FLOW_YET: i32 = 6141;
pub(crate) const NOT_CONNECTED: i32 = 6143;
pub(crate) const UNKNOWN_FUNCTION: i32 = 6144;
pub(crate) const UNKNOWN_FLOW: i32 = 6145;
pub(crate) const FLOW_INFO: i32 = 6149;
pub(crate) const FUNCTION_INFO: i32 = 6150;
pub(crate) const DEVICE_INFO: i32 = 6151;
pub(crate) const LIBRARY_INFO: i32 = 6152;
/// It is not built.
pub(crate) const NOT_BUILT: i32 = 6160;
/// The user's rights do not allow it.
pub(crate) const RIGHTS: i32 = Error::RIGHTS;

thread_local! {
    static LAST: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Notes an error of the calling thread.
pub(crate) fn note(error: Error) {
    LAST.with_borrow_mut(|last| *last = Some(error));
}

/// The last error of the calling thread, if nobody has asked for it.
pub(crate) fn last() -> Option<Error> {
    LAST.with_borrow(Option::clone)
}

/// The last error of the calling thread, which forgets it.
pub(crate) fn take() -> Option<Error> {
    LAST.with_borrow_mut(Option::take)
}

/// An error of the connection to the sensor; of what it refuses with this number.
pub(crate) fn of_client(error: &ClientError, refused: i32) -> Error {
    let number = match error {
        ClientError::Refused(refusal) if refusal.is_passing => SOCKET,
        ClientError::Refused(refusal) if refusal.is_about_rights => RIGHTS,
        ClientError::Nobody => RIGHTS,
        // All that is refused of a connection is its credential.
        ClientError::NotReached(error) => of_client(error, RIGHTS).number,
        ClientError::Refused(_) => refused,
        _ => SOCKET,
    };
    Error::new(number, with_hint(error))
}

fn with_hint(error: &ClientError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; hint: {hint}"),
        None => error.to_string(),
    }
}

/// Why the sensor refuses a function, by its number in the flow.
pub(crate) fn of_function(call: &Call, number: usize, error: &ClientError) -> Error {
    let general = of_client(error, Error::ARGUMENTS);
    match (error, error.hint()) {
        (ClientError::Refused(refusal), hint) if general.number != SOCKET => {
            let is_about_rights = general.number == RIGHTS;
            let mut found = call.refused(number, &refusal.error, is_about_rights);
            if let (true, Some(hint)) = (is_about_rights, hint) {
                found.message += &format!("; hint: {hint}");
            }
            found
        }
        _ => general,
    }
}
