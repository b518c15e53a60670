//! Finding the service of an interface, and starting it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flowgauge_sensor_client::protocol::{self, Answer, Refusal, Request};
use flowgauge_sensor_client::{CREDENTIAL_VARIABLE, credential_of_environment};
use flowgauge_sys::files::Folder;
use flowgauge_sys::local::{self, Connection, Listener};
use flowgauge_sys::process;

use super::error::Error;
use super::statistics::Status;

/// How long the sensor may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Version of the requests, of the layout of events, and of what they mean. It is part of the name: programs of different
/// versions do not meet.
const VERSION: u32 = 10;

/// Where the names of services begin.
const PREFIX: &str = "flowgauge/share/";

/// The environment variable that says where the program is.
const PROGRAM: &str = "FLOWGAUGE_PROGRAM";

/// The name of the service of a user's processes on an interface. It belongs to a network
/// namespace, as interfaces do.
fn name(user: u32, interface: &str) -> String {
    format!("{PREFIX}{VERSION}/{user}/{interface}")
}

/// The program to start for capturing, with the listening socket as standard input.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ServiceProgram {
    /// `flowgauge sensor run --inherited -i INTERFACE`, where `flowgauge` is given by `FLOWGAUGE_PROGRAM`, or is this
    /// program if it has that name, or the one in its folder or in `PATH`.
    #[default]
    Flowgauge,
    /// Another program, which serves clients of the [inherited socket](inherited_listener).
    Command {
        /// The program.
        program: OsString,
        /// Its arguments; the interface comes last.
        arguments: Vec<OsString>,
    },
    /// No program: only join a running service.
    None,
}

impl ServiceProgram {
    /// Program and arguments.
    fn command(&self, interface: &str) -> Option<(OsString, Vec<OsString>)> {
        match self {
            ServiceProgram::Flowgauge => {
                let arguments = ["sensor", "run", "--inherited", "-i", interface];
                Some((flowgauge(), arguments.map(OsString::from).to_vec()))
            }
            ServiceProgram::Command { program, arguments } => {
                let mut arguments = arguments.clone();
                arguments.push(interface.into());
                Some((program.clone(), arguments))
            }
            ServiceProgram::None => None,
        }
    }
}

/// Where the program `flowgauge` is.
fn flowgauge() -> OsString {
    const NAME: &str = "flowgauge";
    if let Some(program) = std::env::var_os(PROGRAM).filter(|program| !program.is_empty()) {
        // It is started in another folder. A name alone is looked for in PATH.
        let is_path = Path::new(&program).components().count() > 1;
        return match std::path::absolute(&program) {
            Ok(path) if is_path => path.into(),
            _ => program,
        };
    }
    if let Ok(own) = std::env::current_exe() {
        if own.file_name() == Some(OsStr::new(NAME)) {
            return own.into();
        }
        let beside: Option<PathBuf> = own.parent().map(|folder| folder.join(NAME));
        if let Some(beside) = beside.filter(|path| Folder::anywhere().is_file(path)) {
            return beside.into();
        }
    }
    NAME.into()
}

/// Binds the address of this user's service on an interface, for a program that is the service itself.
///
/// # Errors
/// There is a service already, or the name of the interface is invalid.
pub fn listen(interface: &str) -> Result<Listener, Error> {
    check_name(interface)?;
    let taken = Listener::bind(&name(process::user(), interface));
    taken.map_err(Error::system("take the name of the shared capture"))
}

/// The listening socket that [`Client::connect`](super::Client::connect) passed to this program as standard input.
///
/// # Errors
/// Standard input is not a listening socket.
pub fn inherited_listener() -> Result<Listener, Error> {
    let not = Error::system("use standard input as the socket of a shared capture");
    let input = io::stdin().as_fd().try_clone_to_owned();
    input.and_then(Listener::adopt).map_err(not)
}

/// Tells the programs waiting at `listener` that there will be no capture, and why. If none waits yet, tells the first
/// that connects within `patience`: the process that started this one is about to connect.
pub fn turn_away(listener: &Listener, reason: &str, patience: Duration) {
    let refused = Answer::Refused(Refusal::new(reason));
    let _ = local::wait_any(&[listener.as_fd()], Some(patience));
    while let Ok(Some(connection)) = listener.accept() {
        let _ = protocol::send_answer(&connection, &refused, &[]);
        connection.stop_receiving();
    }
}

/// Finds the sensor of an interface that lets this process in, root's before that of this user, or starts it; `enter` asks it.
pub(super) fn find<T>(
    interface: &str,
    program: &ServiceProgram,
    enter: &dyn Fn(Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    check_name(interface)?;
    let own = process::user();
    let mut refused = None;
    if own != 0 {
        // That root's lets others in is the exception.
        match reach(interface, 0).and_then(|there| there.map(enter).transpose()) {
            Ok(Some(entered)) => return Ok(entered),
            Err(error) if error.is_about_rights() => refused = Some(error),
            Ok(None)
            | Err(Error::Impostor { .. } | Error::Silent { .. } | Error::System { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(there) = reach(interface, own)? {
        return enter(there);
    }
    if matches!(program, ServiceProgram::None)
        && let Some(refused) = refused
    {
        return Err(refused);
    }
    let started = start(interface, own, program)
        .and_then(|()| enter(reach(interface, own)?.ok_or_else(|| died(interface))?));
    // Who could not capture itself either is told what root's sensor wants.
    started.map_err(|error| refused.unwrap_or(error))
}

/// Connects to the sensor of a user's, if there is one.
fn reach(interface: &str, user: u32) -> Result<Option<Connection>, Error> {
    let connection = match Connection::connect(&name(user, interface)) {
        Ok(connection) => connection,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent(interface)),
        Err(error) => return Err(Error::system("reach the shared capture")(error)),
    };
    let peer = connection.peer();
    let peer = peer.map_err(Error::system("see who shares the capture"))?;
    // Anybody can take any name. What comes from there is believed, so it must be his.
    match peer.user == user {
        true => Ok(Some(connection)),
        false => Err(Error::Impostor {
            interface: interface.to_owned(),
            process: peer.process,
            user: peer.user,
        }),
    }
}

/// Brings the sensor the credential that the environment names. Not of a program with rights of its file: whoever started it
/// would choose the file that it reads.
pub(super) fn bring(connection: &Connection, interface: &str) -> Result<(), Error> {
    if process::has_rights_of_its_file() {
        return Ok(());
    }
    let credential = credential_of_environment().map_err(|error| {
        let hint = error.hint().map(|hint| format!("; hint: {hint}"));
        Error::Wanted {
            what: format!("{CREDENTIAL_VARIABLE}: {error}{}", hint.unwrap_or_default()),
        }
    })?;
    match credential {
        Some(credential) => ask(connection, interface, &Request::Bring { credential }).map(drop),
        None => Ok(()),
    }
}

/// Asks the sensor of an interface something.
pub(super) fn ask(
    connection: &Connection,
    interface: &str,
    request: &Request,
) -> Result<(Answer, Vec<OwnedFd>), Error> {
    let asked = serde_json::to_vec(request).unwrap_or_default();
    // Who was turned away is told why.
    let _ = protocol::send(connection, &asked, &[]);
    let answer = protocol::receive_answer(connection, PATIENCE);
    let (answer, files) = answer.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => silent(interface),
        io::ErrorKind::InvalidData => Error::Protocol {
            what: "a message of no kind",
        },
        _ => died(interface),
    })?;
    match answer {
        Answer::Refused(refusal) => Err(Error::Refused {
            interface: interface.to_owned(),
            refusal,
        }),
        answer => Ok((answer, files)),
    }
}

/// Why an answer is none to what was asked.
pub(super) fn unexpected(interface: &str, answer: Answer) -> Error {
    match answer {
        // It was about to end: as good as gone.
        Answer::Ended(_) => died(interface),
        _ => Error::Protocol {
            what: "an answer to another question",
        },
    }
}

fn died(interface: &str) -> Error {
    Error::Died {
        interface: interface.to_owned(),
        process: 0,
    }
}

fn silent(interface: &str) -> Error {
    Error::Silent {
        interface: interface.to_owned(),
    }
}

/// Starts a service. Whoever gets the name starts it; the others only connect.
fn start(interface: &str, user: u32, program: &ServiceProgram) -> Result<(), Error> {
    let Some((program, arguments)) = program.command(interface) else {
        return Err(Error::Refused {
            interface: interface.to_owned(),
            refusal: Refusal::new("there is none, and none is to be started"),
        });
    };
    if process::has_rights_of_its_file() {
        // What is started, and what it is told, would be whoever started this program's choice.
        return Err(Error::NotStarted {
            program: program.to_string_lossy().into_owned(),
            source: io::Error::new(
                io::ErrorKind::PermissionDenied,
                "this program has rights of its file (setuid or capabilities)",
            ),
        });
    }
    // The name is held, and connections can wait, before the program runs.
    let listener = match Listener::bind(&name(user, interface)) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(()),
        Err(error) => return Err(Error::system("take the name of the shared capture")(error)),
    };
    process::spawn_detached(&program, arguments, listener.into_file()).map_err(|source| {
        Error::NotStarted {
            program: program.to_string_lossy().into_owned(),
            source,
        }
    })
}

/// The longest name of an interface (`IFNAMSIZ`).
const LONGEST_NAME: usize = 15;

fn check_name(interface: &str) -> Result<(), Error> {
    let known = !interface.is_empty()
        && interface.len() <= LONGEST_NAME
        && !interface.contains(|letter: char| letter == '/' || letter.is_whitespace());
    match known {
        true => Ok(()),
        false => Err(Error::Wanted {
            what: format!(
                "\"{}\" is not a name of an interface",
                interface.escape_debug()
            ),
        }),
    }
}

/// A shared capture in this network namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedCapture {
    /// Its interface.
    pub interface: String,
    /// Its user.
    pub user: u32,
}

/// The current shared captures in this network namespace.
///
/// # Errors
/// The system does not list them.
pub fn shared_captures() -> Result<Vec<SharedCapture>, Error> {
    let prefix = format!("{PREFIX}{VERSION}/");
    let names = local::names(&prefix).map_err(Error::system("list the shared captures"))?;
    Ok(names
        .iter()
        .filter_map(|name| name.strip_prefix(&prefix)?.split_once('/'))
        .filter_map(|(user, interface)| {
            Some(SharedCapture {
                interface: interface.to_owned(),
                user: user.parse().ok()?,
            })
        })
        .collect())
}

impl SharedCapture {
    /// Its status, its users, and their losses.
    ///
    /// # Errors
    /// The service refuses this process, or does not respond.
    pub fn status(&self) -> Result<Status, Error> {
        let interface = &self.interface;
        let connection = reach(interface, self.user)?.ok_or_else(|| died(interface))?;
        let request = Request::Status { shared: false };
        let Answer::Status(status) = ask(&connection, interface, &request)?.0 else {
            return Err(Error::Protocol {
                what: "an answer to another question",
            });
        };
        let process = status.process;
        let mut devices = status.devices.into_iter();
        let found = devices.find_map(|device| Status::of(process, interface, device));
        found.ok_or_else(|| Error::Refused {
            interface: interface.clone(),
            refusal: Refusal::new("it is not captured, or not for you"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_interfaces() {
        for good in ["eth0", "any", "veth1234@if5", "\u{e9}th0"] {
            check_name(good).unwrap();
        }
        for bad in ["", "a/b", "eth 0", "an_interface_name"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn where_none_is_to_be_started_none_is() {
        let error = find("fg-none", &ServiceProgram::None, &Ok).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let program = ServiceProgram::Command {
            program: "/no/such/program".into(),
            arguments: Vec::new(),
        };
        let error = find("fg-missing", &program, &Ok).unwrap_err();
        assert!(matches!(error, Error::NotStarted { .. }), "{error}");
        assert!(error.to_string().contains("/no/such/program"), "{error}");
        assert!(error.hint().unwrap().contains("FLOWGAUGE_PROGRAM"));
    }

    #[test]
    fn a_program_that_is_no_service_is_noticed() {
        let program = ServiceProgram::Command {
            program: "/bin/true".into(),
            arguments: Vec::new(),
        };
        let enter = |connection| ask(&connection, "fg-true", &Request::Leave);
        let error = find("fg-true", &program, &enter).unwrap_err();
        assert!(matches!(error, Error::Died { .. }), "{error}");
    }

    #[test]
    fn captures_are_listed() {
        let _listener = Listener::bind(&name(4242, "fg-listed")).unwrap();
        let listed = shared_captures().unwrap();
        let expected = SharedCapture {
            interface: "fg-listed".to_owned(),
            user: 4242,
        };
        assert!(listed.contains(&expected), "{listed:?}");
        // The listener is this process', not that of user 4242.
        let error = expected.status().unwrap_err();
        assert!(matches!(error, Error::Impostor { .. }), "{error}");
    }
}
