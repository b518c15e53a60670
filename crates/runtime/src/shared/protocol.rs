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
use flowgauge_stream::engine::{ApplicationConfig, Command, Cutoff, Mode, Parameter};
use flowgauge_wire::{LinkType, Nanos};

use super::codec::{Decoder, Encoder};
use super::filters::Chosen;

/// Version of the protocol, of the layout of events, and of what they mean. It is part of the
/// name: programs of different versions do not meet.
pub(super) const VERSION: u32 = 8;

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
    Filter {
        number: u16,
        link: LinkType,
        program: Filter,
    },
    /// What the client wants.
    Join(Box<Join>),
    /// Something about streams, each by its number; at least one.
    Commands(Vec<(u64, Command)>),
    /// Something about all streams.
    Change(Box<Change>),
    /// What is lost first.
    Thresholds(Thresholds),
    /// How things stand.
    Status,
    /// Nothing further is wanted.
    Leave,
}

/// What a client wants. Filters are numbers of those sent before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Join {
    pub(super) name: String,
    pub(super) memory_bytes: u64,
    pub(super) least_memory: u64,
    pub(super) thresholds: Thresholds,
    pub(super) need_packets: bool,
    pub(super) wants_data: bool,
    pub(super) mode: Mode,
    pub(super) cutoff: Cutoff,
    pub(super) from_initiator: Option<u64>,
    pub(super) from_responder: Option<u64>,
    pub(super) chunk_bytes: u32,
    pub(super) overlap_bytes: u32,
    pub(super) flush_timeout: Option<Nanos>,
    pub(super) inactivity_timeout: Option<Nanos>,
    pub(super) priority: u8,
    pub(super) filters: Chosen,
}

/// From when on a client loses events, and which of them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    /// Of its memory, in thousandths.
    pub(super) base: u32,
    /// Bytes of a stream, from which on chunks go first.
    pub(super) overload_cutoff: Option<u64>,
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

/// What a client wants of streams to come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) terms: Terms,
    /// Its filters, of those sent since the last change; none: those that it has.
    pub(super) filters: Option<Chosen>,
}

/// What a client may change of what it wanted beside its filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) mode: Mode,
    pub(super) cutoff: Cutoff,
    pub(super) from_initiator: Option<Cutoff>,
    pub(super) from_responder: Option<Cutoff>,
    pub(super) chunk_bytes: u32,
    pub(super) overlap_bytes: u32,
    pub(super) flush_timeout: Option<Nanos>,
    /// For all streams.
    pub(super) inactivity_timeout: Option<Nanos>,
    pub(super) priority: u8,
}

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
    Status(Vec<u8>),
}

const FILTER: u8 = 1;
const JOIN: u8 = 2;
/// What a message of commands begins with.
pub(super) const COMMANDS: u8 = 3;
const STATUS: u8 = 4;
const LEAVE: u8 = 5;
const CHANGE: u8 = 6;
const THRESHOLDS: u8 = 7;

const WELCOME: u8 = 129;
const REFUSED: u8 = 130;
const JOINED: u8 = 131;
const WAKE: u8 = 132;
const ENDED: u8 = 133;
const LEFT: u8 = 134;
const STATUS_IS: u8 = 135;

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            Request::Filter {
                number,
                link,
                program,
            } => {
                out.u8(FILTER).u16(*number).u16(link.0);
                for one in program.instructions() {
                    out.u16(one.code).u8(one.jt).u8(one.jf).u32(one.k);
                }
            }
            Request::Join(join) => {
                out.u8(JOIN);
                join.encode(&mut out);
            }
            Request::Commands(commands) => {
                out.u8(COMMANDS);
                for (uid, command) in commands {
                    append_command(*uid, *command, &mut out);
                }
            }
            Request::Change(change) => {
                out.u8(CHANGE);
                change.terms.encode(&mut out);
                out.u8(change.filters.is_some().into());
                if let Some(filters) = &change.filters {
                    filters.encode(&mut out);
                }
            }
            Request::Thresholds(thresholds) => {
                out.u8(THRESHOLDS);
                thresholds.encode(&mut out);
            }
            Request::Status => {
                out.u8(STATUS);
            }
            Request::Leave => {
                out.u8(LEAVE);
            }
        }
        out.0
    }

    /// `None` when it is nothing that a client says.
    pub(super) fn decode(message: &[u8]) -> Option<Request> {
        let mut rest = Decoder(message);
        let request = match rest.u8()? {
            FILTER => {
                let number = rest.u16()?;
                let link = LinkType(rest.u16()?);
                let mut instructions = Vec::new();
                while !rest.0.is_empty() {
                    if instructions.len() == MOST_INSTRUCTIONS {
                        return None;
                    }
                    instructions.push(Instruction {
                        code: rest.u16()?,
                        jt: rest.u8()?,
                        jf: rest.u8()?,
                        k: rest.u32()?,
                    });
                }
                Request::Filter {
                    number,
                    link,
                    program: Filter::from_instructions(instructions, link).ok()?,
                }
            }
            JOIN => Request::Join(Box::new(Join::decode(&mut rest)?)),
            COMMANDS => {
                let mut commands = Vec::new();
                while commands.is_empty() || !rest.0.is_empty() {
                    commands.push((rest.u64()?, decode_command(&mut rest)?));
                }
                Request::Commands(commands)
            }
            CHANGE => Request::Change(Box::new(Change {
                terms: Terms::decode(&mut rest)?,
                filters: match rest.flag()? {
                    true => Some(Chosen::decode(&mut rest)?),
                    false => None,
                },
            })),
            THRESHOLDS => Request::Thresholds(Thresholds::decode(&mut rest)?),
            STATUS => Request::Status,
            LEAVE => Request::Leave,
            _ => return None,
        };
        rest.end()?;
        Some(request)
    }
}

impl Join {
    fn encode(&self, out: &mut Encoder) {
        out.text(&self.name);
        out.u64(self.memory_bytes).u64(self.least_memory);
        self.thresholds.encode(out);
        out.u8(self.need_packets.into());
        out.u8(self.wants_data.into());
        out.u8(self.mode as u8).u64(self.cutoff.0);
        out.u8(self.from_initiator.is_some().into());
        out.u64(self.from_initiator.unwrap_or_default());
        out.u8(self.from_responder.is_some().into());
        out.u64(self.from_responder.unwrap_or_default());
        out.u32(self.chunk_bytes).u32(self.overlap_bytes);
        out.optional(self.flush_timeout.map(|time| time.0));
        out.optional(self.inactivity_timeout.map(|time| time.0));
        out.u8(self.priority);
        self.filters.encode(out);
    }

    fn decode(rest: &mut Decoder<'_>) -> Option<Join> {
        let mut name = rest.text()?;
        while name.len() > LONGEST_NAME {
            name.pop();
        }
        let (memory_bytes, least_memory) = (rest.u64()?, rest.u64()?);
        let thresholds = Thresholds::decode(rest)?;
        let need_packets = rest.flag()?;
        let wants_data = rest.flag()?;
        let mode = decode_mode(rest.u8()?)?;
        let cutoff = Cutoff(rest.u64()?);
        let mut direction = || {
            let given = rest.flag()?;
            let bytes = rest.u64()?;
            Some(given.then_some(bytes))
        };
        let (from_initiator, from_responder) = (direction()?, direction()?);
        let (chunk_bytes, overlap_bytes) = (rest.u32()?, rest.u32()?);
        let flush_timeout = rest.optional()?.map(Nanos);
        let inactivity_timeout = rest.optional()?.map(Nanos);
        let priority = rest.u8()?;
        let filters = Chosen::decode(rest)?;
        Some(Join {
            name,
            memory_bytes,
            least_memory,
            thresholds,
            need_packets,
            wants_data,
            mode,
            cutoff,
            from_initiator,
            from_responder,
            chunk_bytes,
            overlap_bytes,
            flush_timeout,
            inactivity_timeout,
            priority,
            filters,
        })
    }
}

impl Thresholds {
    fn encode(self, out: &mut Encoder) {
        out.u32(self.base).optional(self.overload_cutoff);
    }

    fn decode(rest: &mut Decoder<'_>) -> Option<Thresholds> {
        Some(Thresholds {
            base: rest.u32()?,
            overload_cutoff: rest.optional()?,
        })
    }
}

impl Terms {
    pub(super) fn of(config: &ApplicationConfig) -> Terms {
        Terms {
            mode: config.mode,
            cutoff: config.cutoff.default,
            from_initiator: config.cutoff.from_initiator,
            from_responder: config.cutoff.from_responder,
            chunk_bytes: config.chunk_bytes,
            overlap_bytes: config.overlap_bytes,
            flush_timeout: config.flush_timeout,
            inactivity_timeout: config.inactivity_timeout,
            priority: config.priority.default,
        }
    }

    /// Filters and classes stay as they are.
    pub(super) fn apply_to(self, config: &mut ApplicationConfig) {
        config.mode = self.mode;
        config.cutoff.default = self.cutoff;
        config.cutoff.from_initiator = self.from_initiator;
        config.cutoff.from_responder = self.from_responder;
        config.chunk_bytes = self.chunk_bytes;
        config.overlap_bytes = self.overlap_bytes;
        config.flush_timeout = self.flush_timeout;
        config.inactivity_timeout = self.inactivity_timeout;
        config.priority.default = self.priority;
    }

    fn encode(self, out: &mut Encoder) {
        out.u8(self.mode as u8).u64(self.cutoff.0);
        for cutoff in [self.from_initiator, self.from_responder] {
            out.u8(cutoff.is_some().into());
            out.u64(cutoff.map_or(0, |cutoff| cutoff.0));
        }
        out.u32(self.chunk_bytes).u32(self.overlap_bytes);
        out.optional(self.flush_timeout.map(|time| time.0));
        out.optional(self.inactivity_timeout.map(|time| time.0));
        out.u8(self.priority);
    }

    fn decode(rest: &mut Decoder<'_>) -> Option<Terms> {
        let mode = decode_mode(rest.u8()?)?;
        let cutoff = Cutoff(rest.u64()?);
        let mut direction = || {
            let given = rest.flag()?;
            let bytes = rest.u64()?;
            Some(given.then_some(Cutoff(bytes)))
        };
        Some(Terms {
            mode,
            cutoff,
            from_initiator: direction()?,
            from_responder: direction()?,
            chunk_bytes: rest.u32()?,
            overlap_bytes: rest.u32()?,
            flush_timeout: rest.optional()?.map(Nanos),
            inactivity_timeout: rest.optional()?.map(Nanos),
            priority: rest.u8()?,
        })
    }
}

/// Adds one to the message of [`Request::Commands`].
pub(super) fn append_command(uid: u64, command: Command, out: &mut Encoder) {
    out.u64(uid);
    match command {
        Command::SetCutoff(Cutoff(bytes)) => out.u8(0).u64(bytes),
        Command::SetPriority(priority) => out.u8(1).u64(priority.into()),
        Command::Discard => out.u8(2).u64(0),
        Command::SetParameter(Parameter::ChunkBytes(bytes)) => out.u8(3).u64(bytes.into()),
        Command::SetParameter(Parameter::OverlapBytes(bytes)) => out.u8(4).u64(bytes.into()),
        Command::SetParameter(Parameter::FlushTimeout(time)) => {
            out.u8(5).optional(time.map(|time| time.0))
        }
        Command::SetParameter(Parameter::Mode(mode)) => out.u8(6).u64(mode as u64),
        Command::SetParameter(Parameter::InactivityTimeout(time)) => {
            out.u8(7).optional(time.map(|time| time.0))
        }
        // What is not the client's to decide, or stays with the client.
        Command::SetParameter(Parameter::Policy(_))
        | Command::SetUserState(_)
        | Command::AddProcessingTime(_) => out.u8(u8::MAX).u64(0),
    };
}

fn decode_command(rest: &mut Decoder<'_>) -> Option<Command> {
    let (kind, value) = (rest.u8()?, rest.u64()?);
    let small = u32::try_from(value);
    Some(match kind {
        0 => Command::SetCutoff(Cutoff(value)),
        1 => Command::SetPriority(u8::try_from(value).ok()?),
        2 => Command::Discard,
        3 => Command::SetParameter(Parameter::ChunkBytes(small.ok()?)),
        4 => Command::SetParameter(Parameter::OverlapBytes(small.ok()?)),
        5 => {
            let timeout = (value != u64::MAX).then_some(Nanos(value));
            Command::SetParameter(Parameter::FlushTimeout(timeout))
        }
        6 => Command::SetParameter(Parameter::Mode(decode_mode(u8::try_from(value).ok()?)?)),
        7 => {
            let timeout = (value != u64::MAX).then_some(Nanos(value));
            Command::SetParameter(Parameter::InactivityTimeout(timeout))
        }
        _ => return None,
    })
}

pub(super) fn decode_mode(number: u8) -> Option<Mode> {
    [Mode::Wait, Mode::Fast, Mode::Strict]
        .into_iter()
        .find(|mode| *mode as u8 == number)
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            Reply::Welcome { process, links } => {
                out.u8(WELCOME).u32(*process).u16(links.len() as u16);
                links.iter().for_each(|link| {
                    out.u16(link.0);
                });
            }
            Reply::Refused(why) => {
                out.u8(REFUSED).text(why);
            }
            Reply::Joined {
                application,
                memory,
            } => {
                out.u8(JOINED).u8(*application).u64(*memory);
            }
            Reply::Wake => {
                out.u8(WAKE);
            }
            Reply::Ended(why) => {
                out.u8(ENDED).text(why);
            }
            Reply::Left => {
                out.u8(LEFT);
            }
            Reply::Status(status) => {
                out.u8(STATUS_IS).bytes(status);
            }
        }
        out.0
    }

    /// `None` when it is nothing that a service says.
    pub(super) fn decode(message: &[u8]) -> Option<Reply> {
        let mut rest = Decoder(message);
        let reply = match rest.u8()? {
            WELCOME => {
                let process = rest.u32()?;
                let mut links = Vec::new();
                for _ in 0..rest.u16()? {
                    links.push(LinkType(rest.u16()?));
                }
                Reply::Welcome { process, links }
            }
            REFUSED => Reply::Refused(rest.text()?),
            JOINED => Reply::Joined {
                application: rest.u8()?,
                memory: rest.u64()?,
            },
            WAKE => Reply::Wake,
            ENDED => Reply::Ended(rest.text()?),
            LEFT => Reply::Left,
            STATUS_IS => Reply::Status(core::mem::take(&mut rest.0).to_vec()),
            _ => return None,
        };
        rest.end()?;
        Some(reply)
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
            mode: Mode::Strict,
            cutoff: Cutoff(7),
            from_initiator: Some(u64::MAX),
            from_responder: None,
            chunk_bytes: 1000,
            overlap_bytes: 10,
            flush_timeout: Some(Nanos::from_secs(1)),
            inactivity_timeout: None,
            priority: 2,
            filters: Chosen {
                filter: Some(3),
                cutoff_classes: vec![(0, Cutoff(1)), (1, Cutoff::UNLIMITED)],
                priority_classes: vec![(2, 9)],
            },
        }
    }

    fn change(filters: Option<Chosen>) -> Request {
        let terms = Terms::of(&ApplicationConfig::default());
        Request::Change(Box::new(Change { terms, filters }))
    }

    fn requests() -> Vec<Request> {
        let ethernet = LinkType::ETHERNET;
        vec![
            Request::Filter {
                number: 5,
                link: ethernet,
                program: Filter::compile("tcp port 80", ethernet, 65_535).unwrap(),
            },
            Request::Join(Box::new(join())),
            Request::Commands(vec![
                (77, Command::SetCutoff(Cutoff(5))),
                (78, Command::Discard),
            ]),
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
            let message = request.encode();
            assert!(message.len() <= MESSAGE_BYTES);
            let decoded = Request::decode(&message).unwrap();
            assert_eq!(decoded.encode(), message);
            if let (Request::Join(one), Request::Join(two)) = (&request, &decoded) {
                assert_eq!(one, two);
            }
        }
    }

    /// However many clients there are, and whatever they call themselves.
    #[test]
    fn names_of_all_clients_fit_in_one_message() {
        let name = "\u{e9}".repeat(500);
        let asked = Request::Join(Box::new(Join { name, ..join() }));
        let Some(Request::Join(join)) = Request::decode(&asked.encode()) else {
            panic!("not understood");
        };
        assert_eq!(join.name, "\u{e9}".repeat(32));
        let client = ClientStatus {
            name: join.name,
            ..ClientStatus::default()
        };
        let status = Status {
            clients: vec![client; 2 * MAX_APPLICATIONS],
            ..Status::default()
        };
        let message = Reply::Status(status.encode()).encode();
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
            let message = Request::Commands(vec![(1, command)]).encode();
            let decoded = Request::decode(&message);
            assert!(matches!(decoded, Some(Request::Commands(back)) if back == [(1, command)]));
        }
        for commands in [vec![(1, Command::SetUserState(1))], Vec::new()] {
            let message = Request::Commands(commands).encode();
            assert!(Request::decode(&message).is_none());
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
            Reply::Status(vec![1, 2, 3]),
        ] {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    /// Every message cut short, lengthened, or with any one byte changed is understood or refused,
    /// never more than that.
    #[test]
    fn damaged_messages_are_answered() {
        for message in requests().iter().map(Request::encode) {
            for len in 0..message.len() {
                // A filter may end sooner, where its program is still one, and commands behind any of them.
                let decoded = Request::decode(&message[..len]);
                let shorter =
                    matches!(decoded, Some(Request::Filter { .. } | Request::Commands(_)));
                assert!(decoded.is_none() || shorter, "{len} of {message:?}");
            }
            let mut longer = message.clone();
            longer.push(0);
            assert!(Request::decode(&longer).is_none());
            for at in 0..message.len() {
                for bit in 0..8 {
                    let mut damaged = message.clone();
                    damaged[at] ^= 1 << bit;
                    let _ = Request::decode(&damaged);
                    let _ = Reply::decode(&damaged);
                }
            }
        }
        let many = vec![FILTER; 3 + 8 * (MOST_INSTRUCTIONS + 1)];
        assert!(Request::decode(&many).is_none());
    }
}
