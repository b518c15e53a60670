//! What a client and the service say to each other on their socket, message by message.
//!
//! ```text
//!  client                                     service
//!    <connects> --------------------------->
//!                                     <----- Welcome, or Refused
//!    Filter, once per filter and link type ->
//!    Join --------------------------------->
//!                                     <----- Joined with three descriptors, or Refused
//!    Commands, Change, Thresholds ... ----->   (before a Change the filters that it is about)
//!                                     <----- Wake, when the client sleeps and there is an event
//!    Leave -------------------------------->
//!                                     <----- Left, behind the last event
//!                                     <----- Ended, when the capture is over
//! ```
//!
//! Filters travel as programs, not as expressions: the client compiles, so that neither a name
//! that has to be looked up nor a C parser of foreign text can hold up the capture. The service
//! checks each program as the kernel would.

use flowgauge_capture::Filter;
use flowgauge_capture::filter::Instruction;
use flowgauge_stream::engine::{
    ApplicationConfig, Command, Cutoff, Cutoffs, Mode, Parameter, Priorities,
};
use flowgauge_wire::{LinkType, Nanos};

use super::codec::{Wire, wire};
use super::filters::Chosen;
use super::statistics::Status;

/// Version of the protocol, of the layout of events, and of what they mean. It is part of the
/// name: programs of different versions do not meet.
pub(super) const VERSION: u32 = 9;

/// No message is longer.
pub(super) const MESSAGE_BYTES: usize = 64 << 10;

/// Bytes of a client's name at most: those of all fit in one message.
const LONGEST_NAME: usize = 64;

/// Instructions of a filter at most, the kernel's own limit.
const MOST_INSTRUCTIONS: usize = 4096;

/// What a client says.
#[derive(Debug)]
pub(super) enum Request {
    /// A program of filter `number`, for packets of one link type.
    Filter { number: u16, program: Filter },
    /// What the client wants.
    Join(Box<Join>),
    /// Something about streams.
    Commands(Commands),
    /// Something about all streams.
    Change(Box<Change>),
    /// What is lost first.
    Thresholds(Thresholds),
    /// How things stand.
    Status,
    /// Nothing further is wanted.
    Leave,
}

wire!(enum Request {
    1 => Filter { number, program },
    2 => Join(join),
    3 => Commands(commands),
    4 => Status,
    5 => Leave,
    6 => Change(change),
    7 => Thresholds(thresholds),
});

/// What a message of commands begins with.
pub(super) const COMMANDS: u8 = 3;

/// What a client wants. Filters are numbers of those sent before.
#[derive(Clone, Debug)]
pub(super) struct Join {
    /// As it came; [`Join::name`] is short.
    pub(super) name: String,
    pub(super) memory_bytes: u64,
    pub(super) least_memory: u64,
    pub(super) thresholds: Thresholds,
    pub(super) need_packets: bool,
    pub(super) wants_data: bool,
    /// Without filters.
    pub(super) wanted: ApplicationConfig,
    pub(super) filters: Chosen,
}

wire!(Join {
    name,
    memory_bytes,
    least_memory,
    thresholds,
    need_packets,
    wants_data,
    wanted,
    filters,
});

/// From when on a client loses events, and which of them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    /// Of its memory, in thousandths.
    pub(super) base: u32,
    /// Bytes of a stream, from which on chunks go first.
    pub(super) overload_cutoff: Option<u64>,
}

wire!(Thresholds {
    base,
    overload_cutoff,
});

/// What a client wants of streams to come.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// Without filters.
    pub(super) wanted: ApplicationConfig,
    /// Its filters, of those sent since the last change; none: those that it has.
    pub(super) filters: Option<Chosen>,
}

wire!(Change { wanted, filters });

/// What is asked for streams, each by its number; at least one.
#[derive(Debug)]
pub(super) struct Commands(pub(super) Vec<(u64, Command)>);

/// What the service says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The client may go on.
    Welcome {
        /// The service's process.
        process: u32,
        /// Link types of the packets, as far as they are known.
        links: Vec<LinkType>,
    },
    /// No, and why.
    Refused(String),
    /// The client has joined; with it come the pool, the ring and the page.
    Joined {
        /// The number of its application.
        application: u8,
        /// Bytes of chunks that may wait for it.
        memory: u64,
    },
    /// There are events.
    Wake,
    /// The capture is over, and why.
    Ended(String),
    /// Nothing comes behind the events that are there.
    Left,
    /// How things stand.
    Status(Box<Status>),
}

wire!(enum Reply {
    129 => Welcome { process, links },
    130 => Refused(why),
    131 => Joined { application, memory },
    132 => Wake,
    133 => Ended(why),
    134 => Left,
    135 => Status(status),
});

// What is not the client's to decide, or stays with the client, is not among these.
wire!(enum Command {
    0 => SetCutoff(cutoff),
    1 => SetPriority(priority),
    2 => Discard,
    3 => SetParameter(parameter),
});
wire!(enum Parameter {
    0 => ChunkBytes(bytes),
    1 => OverlapBytes(bytes),
    2 => FlushTimeout(time),
    3 => Mode(mode),
    4 => InactivityTimeout(time),
});
wire!(ApplicationConfig {
    mode,
    cutoff,
    chunk_bytes,
    overlap_bytes,
    flush_timeout,
    priority,
    inactivity_timeout,
} with filter = None);
wire!(Cutoffs {
    default,
    from_initiator,
    from_responder,
} with classes = Vec::new());
wire!(Priorities { default } with classes = Vec::new());
wire!(Mode as u8 { Wait, Fast, Strict });
wire!(Cutoff(..));
wire!(Nanos(..));
wire!(LinkType(..));
wire!(Instruction { code, jt, jf, k });

/// To the end of the message: others are appended while it waits.
impl Wire for Commands {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|one| one.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Commands> {
        let mut all = vec![Wire::take(from)?];
        while !from.is_empty() {
            all.push(Wire::take(from)?);
        }
        Some(Commands(all))
    }
}

impl Wire for Filter {
    fn put(&self, out: &mut Vec<u8>) {
        self.link().put(out);
        self.instructions().to_vec().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Filter> {
        let link = Wire::take(from)?;
        let instructions: Vec<Instruction> = Wire::take(from)?;
        if instructions.len() > MOST_INSTRUCTIONS {
            return None;
        }
        Filter::from_instructions(instructions, link).ok()
    }
}

impl Join {
    /// What the client calls itself.
    pub(super) fn name(&self) -> &str {
        let end = self.name.floor_char_boundary(LONGEST_NAME);
        self.name.get(..end).unwrap_or_default()
    }
}

impl Thresholds {
    /// `base` is a share.
    pub(super) fn new(base: f64, overload_cutoff: Option<u64>) -> Thresholds {
        Thresholds {
            base: (base.clamp(0.0, 1.0) * 1000.0) as u32,
            overload_cutoff,
        }
    }

    /// As a share.
    pub(super) fn base(self) -> f64 {
        f64::from(self.base.min(1000)) / 1000.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use flowgauge_stream::engine::MAX_APPLICATIONS;

    use super::super::statistics::{ClientStatus, Status};
    use super::*;

    pub(in crate::shared) fn join() -> Join {
        Join {
            name: "test".to_owned(),
            memory_bytes: 1 << 20,
            least_memory: 1 << 20,
            thresholds: Thresholds::new(0.5, Some(10_000)),
            need_packets: true,
            wants_data: true,
            wanted: ApplicationConfig {
                mode: Mode::Strict,
                cutoff: Cutoffs {
                    default: Cutoff(7),
                    from_initiator: Some(Cutoff::UNLIMITED),
                    ..Cutoffs::default()
                },
                chunk_bytes: 1000,
                overlap_bytes: 10,
                flush_timeout: Some(Nanos::from_secs(1)),
                ..ApplicationConfig::default()
            },
            filters: Chosen {
                filter: Some(3),
                cutoff_classes: vec![(0, Cutoff(1)), (1, Cutoff::UNLIMITED)],
                priority_classes: vec![(2, 9)],
            },
        }
    }

    fn change(filters: Option<Chosen>) -> Request {
        let wanted = ApplicationConfig::default();
        Request::Change(Box::new(Change { wanted, filters }))
    }

    fn requests() -> Vec<Request> {
        let ethernet = LinkType::ETHERNET;
        vec![
            Request::Filter {
                number: 5,
                program: Filter::compile("tcp port 80", ethernet, 65_535).unwrap(),
            },
            Request::Join(Box::new(join())),
            Request::Commands(Commands(vec![
                (77, Command::SetCutoff(Cutoff(5))),
                (78, Command::Discard),
            ])),
            change(None),
            change(Some(join().filters)),
            Request::Thresholds(Thresholds::new(0.25, None)),
            Request::Status,
            Request::Leave,
        ]
    }

    #[test]
    fn requests_come_back() {
        for request in requests() {
            let message = request.encoded();
            assert!(message.len() <= MESSAGE_BYTES);
            let decoded = Request::decoded(&message).unwrap();
            assert_eq!(decoded.encoded(), message);
            if let (Request::Join(one), Request::Join(two)) = (&request, &decoded) {
                assert_eq!(format!("{one:?}"), format!("{two:?}"));
            }
        }
    }

    /// However many clients there are, and whatever they call themselves.
    #[test]
    fn names_of_all_clients_fit_in_one_message() {
        let name = "\u{e9}".repeat(500);
        let asked = Request::Join(Box::new(Join { name, ..join() }));
        let Some(Request::Join(join)) = Request::decoded(&asked.encoded()) else {
            panic!("not understood");
        };
        assert_eq!(join.name(), "\u{e9}".repeat(32));
        let client = ClientStatus {
            name: join.name().to_owned(),
            ..ClientStatus::default()
        };
        let status = Status {
            clients: vec![client; 2 * MAX_APPLICATIONS],
            ..Status::default()
        };
        let message = Reply::Status(Box::new(status)).encoded();
        assert!(message.len() <= MESSAGE_BYTES, "{}", message.len());
    }

    #[test]
    fn commands_come_back() {
        for command in [
            Command::SetCutoff(Cutoff::UNLIMITED),
            Command::SetPriority(255),
            Command::Discard,
            Command::SetParameter(Parameter::ChunkBytes(0)),
            Command::SetParameter(Parameter::OverlapBytes(9)),
            Command::SetParameter(Parameter::FlushTimeout(None)),
            Command::SetParameter(Parameter::FlushTimeout(Some(Nanos(3)))),
            Command::SetParameter(Parameter::Mode(Mode::Fast)),
            Command::SetParameter(Parameter::InactivityTimeout(None)),
            Command::SetParameter(Parameter::InactivityTimeout(Some(Nanos(5)))),
        ] {
            let message = Request::Commands(Commands(vec![(1, command)])).encoded();
            let decoded = Request::decoded(&message);
            assert!(matches!(decoded, Some(Request::Commands(back)) if back.0 == [(1, command)]));
        }
        for commands in [vec![(1, Command::SetUserState(1))], Vec::new()] {
            let message = Request::Commands(Commands(commands)).encoded();
            assert!(Request::decoded(&message).is_none());
        }
    }

    #[test]
    fn replies_come_back() {
        for reply in [
            Reply::Welcome {
                process: 9,
                links: vec![LinkType::ETHERNET, LinkType::RAW],
            },
            Reply::Refused("no".to_owned()),
            Reply::Joined {
                application: 31,
                memory: 1 << 40,
            },
            Reply::Wake,
            Reply::Ended(String::new()),
            Reply::Left,
            Reply::Status(Box::default()),
        ] {
            assert_eq!(Reply::decoded(&reply.encoded()), Some(reply));
        }
    }

    /// Every message cut short, lengthened, or with any one byte changed is understood or refused,
    /// never more than that.
    #[test]
    fn damaged_messages_are_answered() {
        for message in requests().iter().map(Request::encoded) {
            for len in 0..message.len() {
                // Commands may end behind any of them.
                let decoded = Request::decoded(&message[..len]);
                let shorter = matches!(decoded, Some(Request::Commands(_)));
                assert!(decoded.is_none() || shorter, "{len} of {message:?}");
            }
            let mut longer = message.clone();
            longer.push(0);
            assert!(Request::decoded(&longer).is_none());
            for at in 0..message.len() {
                for bit in 0..8 {
                    let mut damaged = message.clone();
                    damaged[at] ^= 1 << bit;
                    let _ = Request::decoded(&damaged);
                    let _ = Reply::decoded(&damaged);
                }
            }
        }
        let mut many = vec![1, 0, 0, 1, 0];
        many.extend(((MOST_INSTRUCTIONS + 1) as u16).to_le_bytes());
        many.resize(many.len() + 8 * (MOST_INSTRUCTIONS + 1), 6);
        assert!(Request::decoded(&many).is_none());
    }
}
