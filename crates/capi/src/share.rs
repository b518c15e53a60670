//! Captures shared with other processes: `scap_start_capture` joins the one running on the interface, or starts it.

use flowgauge_runtime::Cores;
use flowgauge_runtime::shared::{Application, Client, Error, ServiceProgram};
use flowgauge_stream::engine::{Command, Parameter};

use crate::capture;
use crate::current::{Request, Scene};
use crate::events::Program;
use crate::failure::{Code, Failure};
use crate::handle::Handle;
use crate::settings::Settings;

/// The environment variable that keeps programs from sharing.
const SWITCH: &str = "FLOWGAUGE_SHARE";

/// With how much memory a program makes do where others have the rest.
const LEAST_MEMORY: u64 = 16 << 20;

/// What came of the wish to share.
pub(crate) enum Joined {
    /// A part in a shared capture.
    Shared(Box<Client>),
    /// The process captures for itself; if that was not its own wish, why.
    Alone(Option<String>),
}

/// Whether a program wants to share the captures of interfaces.
pub(crate) fn is_wanted(settings: &Settings) -> bool {
    settings.share && !is_off(SWITCH)
}

/// Whether the environment says no.
pub(crate) fn is_off(switch: &str) -> bool {
    std::env::var_os(switch).is_some_and(|value| value == "0")
}

/// Joins the shared capture on `interface`.
pub(crate) fn join(interface: &str, settings: &Settings) -> Joined {
    if !is_wanted(settings) {
        return Joined::Alone(None);
    }
    let joined = application(settings).and_then(|application| {
        Client::connect(interface, &application, &ServiceProgram::default())
            .map_err(|error| told(&error))
    });
    match joined {
        Ok(client) => Joined::Shared(Box::new(client)),
        Err(why) => Joined::Alone(Some(format!(
            "the capture on {interface} is not shared: {why}"
        ))),
    }
}

/// Handles events until the capture is over, or the handle is asked to stop.
///
/// # Errors
/// When the capture ends by itself.
pub(crate) fn run(
    handle: &Handle,
    client: Box<Client>,
    settings: &Settings,
) -> Result<(), Failure> {
    handle.set_shared(Some(client.memory_bytes()));
    let (token, callbacks) = (handle.token, settings.callbacks);
    let need_packets = settings.wanted.need_packets;
    let program = move |_thread| Program::new(Scene::new(token, need_packets, true), callbacks);
    let (outcome, end) = match settings.threads() {
        0 => client.run(&mut program(0), &handle.control),
        workers => client.run_on_workers(workers, &Cores::allowed(), program, &handle.control),
    };
    handle.set_outcome(&outcome);
    capture::unharmed(&outcome)?;
    end.map_err(|error| Failure {
        code: Code::Device,
        message: told(&error),
    })
}

/// Checks that a callback asks for what is one program's business.
///
/// # Errors
/// When it would hold for others, or no program may have it.
pub(crate) fn admits(request: Request) -> Result<(), Failure> {
    let alone = "set SCAP_SHARE to 0 before the capture";
    match request {
        Request::Command(Command::SetParameter(Parameter::Policy(_))) => Err(Failure::new(
            Code::State,
            "the overlap policy of a shared capture is the same for all programs",
            alone,
        )),
        Request::Command(Command::SetParameter(Parameter::ChunkBytes(bytes)))
            if bytes > Application::LARGEST_CHUNK =>
        {
            Err(Failure::new(
                Code::Argument,
                format_args!("chunks of {bytes} bytes are too large for a shared capture"),
                alone,
            ))
        }
        _ => Ok(()),
    }
}

/// Checks what a program changes while the capture runs, with so much memory.
///
/// # Errors
/// Where it is more than a shared capture can do.
pub(crate) fn admits_change(
    before: &Settings,
    after: &Settings,
    memory_bytes: u64,
) -> Result<(), Failure> {
    let alone = "set SCAP_SHARE to 0 before the capture";
    if !before.has_policies_of(after) {
        return Err(Failure::new(
            Code::State,
            "the policies of a shared capture cannot be changed while it runs",
            alone,
        ));
    }
    let most = Application::MOST_CLASSES;
    if after
        .wanted
        .cutoff_classes
        .len()
        .max(after.wanted.priority_classes.len())
        > most
    {
        return Err(Failure::new(
            Code::Argument,
            format_args!("a shared capture has at most {most} classes of each kind"),
            alone,
        ));
    }
    let sizes = |settings: &Settings| (settings.wanted.chunk_bytes, settings.wanted.overlap_bytes);
    if sizes(before) == sizes(after) {
        return Ok(());
    }
    // They go along with all that is changed later, which would be refused with them.
    Application::check_sizes(
        after.wanted.chunk_bytes,
        after.wanted.overlap_bytes,
        memory_bytes,
    )
    .map_err(|error| Failure::new(Code::Argument, error, alone))
}

/// What the program wants, as others' captures take it; otherwise why they do not.
fn application(settings: &Settings) -> Result<Application, String> {
    let own = [
        (
            settings.policy != Default::default() || !settings.subnets.is_empty(),
            "its overlap policy is the same for all programs",
        ),
        (
            settings.wanted.chunk_bytes > Application::LARGEST_CHUNK,
            "its chunks are smaller",
        ),
    ];
    if let Some((_, why)) = own.into_iter().find(|(is_wanted, _)| *is_wanted) {
        return Err(why.to_owned());
    }
    let memory_bytes = settings.wanted.memory_bytes.max(Application::LEAST_MEMORY);
    Ok(Application {
        memory_bytes,
        least_memory_bytes: Some(memory_bytes.min(LEAST_MEMORY)),
        wants_data: settings.callbacks.data.is_some(),
        ..settings.wanted.clone()
    })
}

fn told(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; hint: {hint}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_stream::engine::{Cutoff, Mode};

    #[test]
    fn what_others_would_have_to_bear_is_not_shared() {
        let settings = || Settings::new(Mode::Wait, false);
        let plain = application(&settings()).unwrap();
        assert!(!plain.wants_data);
        assert_eq!(plain.least_memory_bytes, Some(16 << 20));
        let changes: [fn(&mut Settings); 2] = [
            |settings| settings.wanted.chunk_bytes = 2 << 20,
            |settings| settings.policy = crate::settings::policy(1).unwrap(),
        ];
        for change in changes {
            let mut settings = settings();
            change(&mut settings);
            assert!(application(&settings).is_err(), "{settings:?}");
        }
    }

    #[test]
    fn what_is_the_programs_own_may_change() {
        let before = Settings::new(Mode::Wait, false);
        let admits = |change: fn(&mut Settings)| {
            let mut after = before.clone();
            change(&mut after);
            admits_change(&before, &after, 4 << 20)
        };
        admits(|settings| settings.wanted.base_threshold = 0.1).unwrap();
        admits(|settings| settings.wanted.overload_cutoff = Some(1000)).unwrap();
        admits(|settings| settings.wanted.cutoff = Cutoff(7)).unwrap();
        admits(|settings| settings.wanted.chunk_bytes = 1 << 20).unwrap();
        let too_large = admits(|settings| settings.wanted.chunk_bytes = (1 << 20) + 1);
        assert_eq!(too_large.unwrap_err().code, Code::Argument);
        // Chunks need four times their size.
        let mut after = before.clone();
        after.wanted.chunk_bytes = 1 << 20;
        let refused = admits_change(&before, &after, 2 << 20).unwrap_err();
        assert_eq!(refused.code, Code::Argument);
        assert!(refused.message.contains("4194304"), "{}", refused.message);
        admits(|settings| settings.wanted.priority_classes.push(("udp".to_owned(), 3))).unwrap();
        let others: [fn(&mut Settings); 3] = [
            |settings| settings.policy = crate::settings::policy(1).unwrap(),
            |settings| settings.wanted.priority_classes = vec![("udp".to_owned(), 3); 65],
            |settings| settings.wanted.chunk_bytes = 2 << 20,
        ];
        for change in others {
            assert!(admits(change).is_err());
        }
    }

    #[test]
    fn a_program_may_capture_alone() {
        let mut settings = Settings::new(Mode::Wait, false);
        settings.share = false;
        assert!(matches!(join("lo", &settings), Joined::Alone(None)));
        settings.share = true;
        settings.wanted.chunk_bytes = 2 << 20;
        let Joined::Alone(Some(why)) = join("lo", &settings) else {
            panic!("it shares");
        };
        assert!(why.contains("chunks are smaller"), "{why}");
    }
}
