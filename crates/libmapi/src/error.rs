//! Errors: MAPI's numbers, and the last error of each thread.

use core::cell::RefCell;

use flowgauge_mapi::{Call, Error};
use flowgauge_sensor_client::ClientError;
use flowgauge_sensor_client::protocol::Refusal;

/// The filter of BPF_FILTER does not compile.
const BPF: i32 = 1025;
pub(crate) const CONNECTED_TWICE: i32 = 3081;
pub(crate) const NO_DEVICE: i32 = 3200;
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
        ClientError::Refused(refusal) if is_about_rights(refusal) => RIGHTS,
        ClientError::Nobody => RIGHTS,
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

fn is_about_rights(refusal: &Refusal) -> bool {
    let hint = refusal.hint.as_deref().unwrap_or_default();
    hint.contains("rights of users")
}

/// Why the sensor refuses a function: MAPI's number of it, by the option that the sensor names.
pub(crate) fn of_function(call: &Call, error: &ClientError) -> Error {
    let general = of_client(error, Error::ARGUMENTS);
    let ClientError::Refused(refusal) = error else {
        return general;
    };
    let (_, found) = refusal.error.split_once("error: ").unwrap_or_default();
    let (option, what) = found.split_once(": ").unwrap_or_default();
    let number = match (call.function.name, option) {
        _ if general.number == RIGHTS => RIGHTS,
        ("BPF_FILTER", "expression") => BPF,
        ("STR_SEARCH", "pattern") if what.starts_with("a |") => 3503,
        ("STR_SEARCH", "depth") if what.contains("of the pattern") => 3504,
        ("STR_SEARCH", "pattern") => 3505,
        (_, option) => match call.function.place_of(option) {
            Some(place) => Error::number_of(place),
            None => Error::ARGUMENTS,
        },
    };
    let line = found.lines().next().unwrap_or_default();
    let message = match (number, line) {
        (RIGHTS, _) | (_, "") => general.message,
        _ => format!("{}: {line}", call.function.name),
    };
    Error::new(number, message)
}
