//! Requests of programs to the sensor, as received ([`flowgauge_sensor_client::programs`]) and as passed to the engine.
//! Filters are sent as expressions, and compiled where requests are received, not on the capturing thread.

use std::sync::Arc;

use flowgauge_capture::Filter;
use flowgauge_capture::filter::DEFAULT_SNAP_LEN;
use flowgauge_record::text::harmless;
use flowgauge_sensor_client::programs::{self, Capture, StreamCommand, Thresholds, Wanted};
use flowgauge_sensor_client::protocol::Request;
use flowgauge_stream::engine::{
    ApplicationConfig, Command, Cutoff, Cutoffs, Mode, Parameter, Priorities, StreamFilter,
};
use flowgauge_sys::local::Connection;
use flowgauge_wire::{LinkType, Nanos};

use super::application::{admitted, check_classes, least_memory};
use super::error::Error;

/// Bytes of a program's name at most.
const LONGEST_NAME: usize = 64;
/// Instructions of all filters of a program at most: they run for each new stream.
const MOST_INSTRUCTIONS: usize = 1 << 16;
/// Commands of a request at most: packets wait while they are obeyed.
const MOST_COMMANDS: usize = 4096;

/// A program that is to join a capture.
#[derive(Debug)]
pub struct Program {
    pub(super) connection: Arc<Connection>,
    pub(super) process: u32,
    pub(super) user: u64,
    pub(super) name: String,
    pub(super) memory: u64,
    pub(super) least_memory: u64,
    pub(super) thresholds: Thresholds,
    pub(super) need_packets: bool,
    pub(super) wants_data: bool,
    pub(super) config: ApplicationConfig,
}

impl Program {
    /// Converts a program's request to join a capture of packets of these link types.
    ///
    /// # Errors
    /// The reason why the request cannot be fulfilled.
    pub fn new(
        asked: Capture,
        links: &[LinkType],
        connection: &Arc<Connection>,
        (user, process): (u64, u32),
    ) -> Result<Program, String> {
        let config = made(&asked.wanted, links)?;
        Ok(Program {
            config: admitted(&config, asked.data, asked.memory)?,
            connection: Arc::clone(connection),
            process,
            user,
            name: short(&asked.program),
            memory: asked.memory,
            least_memory: asked
                .least_memory
                .max(least_memory(asked.wanted.chunk_bytes))
                .min(asked.memory),
            thresholds: asked.thresholds,
            need_packets: asked.packets,
            wants_data: asked.data,
        })
    }
}

/// A request of a program during the capture.
#[derive(Debug)]
pub enum Said {
    /// Commands for streams, each with the stream's number.
    Commands(Vec<(u64, Command)>),
    /// A new configuration for streams created from now on.
    Change(Box<ApplicationConfig>),
    /// New thresholds for prioritized loss.
    Lose(Thresholds),
    /// The program leaves.
    Leave,
    /// The sensor ends the program's capture, for this reason.
    End(String),
    /// An invalid request.
    Refused,
}

impl Said {
    /// Converts a request, for a capture of packets of these link types. `None` if it is not about a capture, or too
    /// long.
    pub fn of(request: Request, links: &[LinkType]) -> Option<Said> {
        Some(match request {
            Request::Streams { commands } if commands.len() <= MOST_COMMANDS => {
                let commands = commands.into_iter();
                Said::Commands(commands.map(|(uid, it)| (uid, command(it))).collect())
            }
            Request::Change { wanted } => match made(&wanted, links) {
                Ok(wanted) => Said::Change(Box::new(wanted)),
                Err(_) => Said::Refused,
            },
            Request::Lose(thresholds) => Said::Lose(thresholds),
            Request::Leave => Said::Leave,
            _ => return None,
        })
    }
}

/// The first part of a text, without what a terminal would obey.
fn short(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(LONGEST_NAME)];
    text.replace(|letter| harmless(letter) != letter, "?")
}

/// A filter that is to be compiled elsewhere.
pub(super) fn uncompiled(expression: &str) -> StreamFilter {
    StreamFilter::of_programs(expression, Vec::new())
}

/// What an application wants, as it is said.
///
/// # Errors
/// [`Error::Wanted`] where there are too many classes, or a filter is no expression.
pub(super) fn said(config: &ApplicationConfig) -> Result<Wanted, Error> {
    let (cutoff, priority) = (&config.cutoff, &config.priority);
    check_classes(cutoff.classes.len(), priority.classes.len())?;
    let text = |filter: &StreamFilter| {
        let text = filter.expression().map(str::to_owned);
        text.ok_or_else(|| Error::Wanted {
            what: "a filter of a shared capture is an expression".to_owned(),
        })
    };
    let cutoffs = cutoff.classes.iter();
    let priorities = priority.classes.iter();
    Ok(Wanted {
        filter: config.filter.as_ref().map(text).transpose()?,
        mode: said_mode(config.mode),
        cutoff: cutoff.default.0,
        from_initiator: cutoff.from_initiator.map(|it| it.0),
        from_responder: cutoff.from_responder.map(|it| it.0),
        cutoffs: (cutoffs.map(|(filter, it)| Ok((text(filter)?, it.0))))
            .collect::<Result<_, Error>>()?,
        chunk_bytes: config.chunk_bytes,
        overlap_bytes: config.overlap_bytes,
        flush_timeout: config.flush_timeout.map(|it| it.0),
        priority: priority.default,
        priorities: (priorities.map(|(filter, it)| Ok((text(filter)?, *it))))
            .collect::<Result<_, Error>>()?,
        inactivity_timeout: config.inactivity_timeout.map(|it| it.0),
    })
}

/// What is wanted of packets of these link types.
///
/// # Errors
/// What is wrong with it.
fn made(wanted: &Wanted, links: &[LinkType]) -> Result<ApplicationConfig, String> {
    let classes = check_classes(wanted.cutoffs.len(), wanted.priorities.len());
    classes.map_err(|error| error.to_string())?;
    let links = all_links(links);
    let mut instructions = 0;
    let mut filter = |expression: &String| {
        let mut programs = Vec::new();
        for (place, link) in links.iter().enumerate() {
            match Filter::compile(expression, *link, DEFAULT_SNAP_LEN) {
                Ok(program) => {
                    instructions += program.instructions().len();
                    programs.push(program);
                }
                // What cannot be asked of packets of the others, none of them has.
                Err(error) if place == 0 => {
                    let hint = error.hint().map(|hint| format!("; hint: {hint}"));
                    return Err(format!("{error}{}", hint.unwrap_or_default()));
                }
                Err(_) => {}
            }
        }
        match instructions > MOST_INSTRUCTIONS {
            true => Err(format!(
                "its filters have more than {MOST_INSTRUCTIONS} instructions"
            )),
            false => Ok(StreamFilter::of_programs(expression, programs)),
        }
    };
    let of_streams = wanted.filter.as_ref().map(&mut filter).transpose()?;
    let mut cutoffs = Vec::new();
    for (expression, bytes) in &wanted.cutoffs {
        cutoffs.push((filter(expression)?, Cutoff(*bytes)));
    }
    let mut priorities = Vec::new();
    for (expression, priority) in &wanted.priorities {
        priorities.push((filter(expression)?, *priority));
    }
    Ok(ApplicationConfig {
        filter: of_streams,
        mode: mode(wanted.mode),
        cutoff: Cutoffs {
            default: Cutoff(wanted.cutoff),
            from_initiator: wanted.from_initiator.map(Cutoff),
            from_responder: wanted.from_responder.map(Cutoff),
            classes: cutoffs,
        },
        chunk_bytes: wanted.chunk_bytes,
        overlap_bytes: wanted.overlap_bytes,
        flush_timeout: wanted.flush_timeout.map(Nanos),
        priority: Priorities {
            default: wanted.priority,
            classes: priorities,
        },
        inactivity_timeout: wanted.inactivity_timeout.map(Nanos),
    })
}

/// Link types to compile filters for: those of the packets, the usual one where none is known yet, and that of reassembled
/// datagrams.
fn all_links(links: &[LinkType]) -> Vec<LinkType> {
    let mut all = links.to_vec();
    if all.is_empty() {
        all.push(LinkType::ETHERNET);
    }
    all.push(LinkType::RAW);
    all.sort_by_key(|link| *link != LinkType::ETHERNET);
    all.dedup();
    all
}

fn said_mode(mode: Mode) -> programs::Mode {
    match mode {
        Mode::Wait => programs::Mode::Wait,
        Mode::Fast => programs::Mode::Fast,
        Mode::Strict => programs::Mode::Strict,
    }
}

fn mode(mode: programs::Mode) -> Mode {
    match mode {
        programs::Mode::Wait => Mode::Wait,
        programs::Mode::Fast => Mode::Fast,
        programs::Mode::Strict => Mode::Strict,
    }
}

/// A command as it is said; none for what stays with the program, or is not one program's to decide.
pub(super) fn said_command(command: Command) -> Option<StreamCommand> {
    let nanos = |time: Option<Nanos>| time.map(|time| time.0);
    Some(match command {
        Command::SetCutoff(cutoff) => StreamCommand::Cutoff(cutoff.0),
        Command::SetPriority(priority) => StreamCommand::Priority(priority),
        Command::Discard => StreamCommand::Discard,
        Command::SetParameter(parameter) => match parameter {
            Parameter::ChunkBytes(bytes) => StreamCommand::ChunkBytes(bytes),
            Parameter::OverlapBytes(bytes) => StreamCommand::OverlapBytes(bytes),
            Parameter::FlushTimeout(time) => StreamCommand::FlushTimeout(nanos(time)),
            Parameter::Mode(mode) => StreamCommand::Mode(said_mode(mode)),
            Parameter::InactivityTimeout(time) => StreamCommand::InactivityTimeout(nanos(time)),
            Parameter::Policy(_) => return None,
        },
        Command::SetUserState(_) | Command::AddProcessingTime(_) => return None,
    })
}

fn command(said: StreamCommand) -> Command {
    let nanos = |time: Option<u64>| time.map(Nanos);
    let parameter = match said {
        StreamCommand::Cutoff(bytes) => return Command::SetCutoff(Cutoff(bytes)),
        StreamCommand::Priority(priority) => return Command::SetPriority(priority),
        StreamCommand::Discard => return Command::Discard,
        StreamCommand::ChunkBytes(bytes) => Parameter::ChunkBytes(bytes),
        StreamCommand::OverlapBytes(bytes) => Parameter::OverlapBytes(bytes),
        StreamCommand::FlushTimeout(time) => Parameter::FlushTimeout(nanos(time)),
        StreamCommand::Mode(of) => Parameter::Mode(mode(of)),
        StreamCommand::InactivityTimeout(time) => Parameter::InactivityTimeout(nanos(time)),
    };
    Command::SetParameter(parameter)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const LINKS: [LinkType; 1] = [LinkType::ETHERNET];

    /// A program that asks for what the default application does, changed.
    pub(in crate::shared) fn program(change: impl FnOnce(&mut Capture)) -> Program {
        let mut asked = Capture {
            interface: "fg0".to_owned(),
            program: "test".to_owned(),
            memory: 1 << 20,
            least_memory: 1 << 20,
            thresholds: Thresholds {
                base: 0.5,
                overload_cutoff: None,
            },
            packets: false,
            data: true,
            wanted: said(&ApplicationConfig::default()).unwrap(),
        };
        change(&mut asked);
        joins(asked).unwrap()
    }

    fn joins(asked: Capture) -> Result<Program, String> {
        let connection = Arc::new(Connection::pair().unwrap().0);
        Program::new(asked, &LINKS, &connection, (0, 0))
    }

    /// What is said is what was wanted: by way of its text.
    #[test]
    fn what_is_wanted_comes_back() {
        let config = ApplicationConfig {
            filter: Some(uncompiled("ether host 02:00:00:00:00:01")),
            mode: Mode::Strict,
            cutoff: Cutoffs {
                default: Cutoff(7),
                from_initiator: Some(Cutoff::UNLIMITED),
                from_responder: None,
                classes: vec![(uncompiled("udp"), Cutoff(1))],
            },
            chunk_bytes: 1000,
            overlap_bytes: 10,
            flush_timeout: Some(Nanos::from_secs(1)),
            priority: Priorities {
                default: 3,
                classes: vec![(uncompiled("tcp"), 9)],
            },
            inactivity_timeout: Some(Nanos(u64::MAX)),
        };
        let told = said(&config).unwrap();
        let text = serde_json::to_string(&told).unwrap();
        let there = made(&serde_json::from_str(&text).unwrap(), &LINKS).unwrap();
        assert_eq!(said(&there).unwrap(), told);
        // What cannot be asked of packets without a link layer, none of them has.
        let programs = |filter: &StreamFilter| {
            [LinkType::ETHERNET, LinkType::RAW].map(|link| filter.program_for(link).is_some())
        };
        assert_eq!(programs(&there.filter.unwrap()), [true, false]);
        assert_eq!(programs(&there.cutoff.classes[0].0), [true, true]);
        let commands = [
            Command::SetCutoff(Cutoff::UNLIMITED),
            Command::SetPriority(255),
            Command::Discard,
            Command::SetParameter(Parameter::ChunkBytes(0)),
            Command::SetParameter(Parameter::OverlapBytes(9)),
            Command::SetParameter(Parameter::FlushTimeout(None)),
            Command::SetParameter(Parameter::FlushTimeout(Some(Nanos(3)))),
            Command::SetParameter(Parameter::Mode(Mode::Fast)),
            Command::SetParameter(Parameter::InactivityTimeout(Some(Nanos(5)))),
        ];
        for asked in commands {
            let text = serde_json::to_string(&said_command(asked).unwrap()).unwrap();
            assert_eq!(command(serde_json::from_str(&text).unwrap()), asked);
        }
        assert_eq!(said_command(Command::SetUserState(1)), None);
    }

    #[test]
    fn what_cannot_be_filters_is_refused() {
        let config = ApplicationConfig {
            filter: Some(StreamFilter::new(|_| true)),
            ..ApplicationConfig::default()
        };
        let refused = said(&config).unwrap_err().to_string();
        assert!(refused.contains("is an expression"), "{refused}");
        let with = |expression: &str, classes: usize| {
            let mut wanted = said(&ApplicationConfig::default()).unwrap();
            wanted.cutoffs = vec![(expression.to_owned(), 1); classes];
            made(&wanted, &LINKS)
        };
        let wrong = with("tcp prot 80", 1).unwrap_err();
        assert!(wrong.contains("tcp prot 80") && wrong.contains("hint: "));
        let hosts: Vec<String> = (0..900)
            .map(|at| format!("host 10.0.{}.{}", at / 250, at % 250))
            .collect();
        let long = hosts.join(" or ");
        with(&long, 2).unwrap();
        let refused = with(&long, 64).unwrap_err();
        assert!(refused.contains("instructions"), "{refused}");
        let refused = with("tcp", 65).unwrap_err();
        assert!(refused.contains("64 classes"), "{refused}");
    }

    #[test]
    fn names_are_short_and_harmless() {
        let program = program(|asked| asked.program = "\u{e9}\x1b[2J".repeat(100));
        let name = program.name;
        assert!(name.len() <= 64 && name.starts_with("\u{e9}?[2J"), "{name}");
    }
}
