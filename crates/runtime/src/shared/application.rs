//! What a client wants of a shared capture.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowgauge_capture::Filter;
use flowgauge_capture::filter::DEFAULT_SNAP_LEN;
use flowgauge_stream::engine::{
    ApplicationConfig, Cutoff, Cutoffs, Mode, Priorities, StreamFilter,
};
use flowgauge_wire::{LinkType, Nanos};

use super::error::Error;
use super::protocol::{Join, Request, Thresholds};

/// An application of a shared capture: an [`ApplicationConfig`] with filters as expressions, and
/// what is lost when this process is too slow for it.
#[derive(Clone, Debug)]
pub struct Application {
    /// Shown where the users of a capture are listed, its first 64 bytes; the program's name when empty.
    pub name: String,
    /// Which streams, in pcap-filter syntax; all when empty.
    pub filter: String,
    /// How TCP bytes are put in order.
    pub mode: Mode,
    /// Bytes wanted of a stream where nothing else is said.
    pub cutoff: Cutoff,
    /// Bytes wanted of the initiator's direction.
    pub from_initiator: Option<Cutoff>,
    /// Bytes wanted of the responder's direction.
    pub from_responder: Option<Cutoff>,
    /// Bytes wanted of streams that match; the first that matches decides.
    pub cutoff_classes: Vec<(String, Cutoff)>,
    /// Chunk size, at most [`Application::LARGEST_CHUNK`]; 0: each segment is a chunk.
    pub chunk_bytes: u32,
    /// Last bytes of a chunk that the next one repeats.
    pub overlap_bytes: u32,
    /// A chunk is delivered, full or not, when this has passed since its first byte.
    pub flush_timeout: Option<Nanos>,
    /// Priority where no class matches; higher is more important.
    pub priority: u8,
    /// Priorities of streams that match; the first that matches decides.
    pub priority_classes: Vec<(String, u8)>,
    /// A stream without packets for this long has ended. Of several clients that want it the one with
    /// the longest decides; none: the service's.
    pub inactivity_timeout: Option<Nanos>,
    /// Bytes of chunks that may wait for this process. Beyond, its events are lost, those of
    /// other processes are not. Of what the service has left nobody gets more than half.
    pub memory_bytes: u64,
    /// With how much less it makes do then; none: with nothing less.
    pub least_memory_bytes: Option<u64>,
    /// Share of `memory_bytes` below which nothing is lost.
    pub base_threshold: f64,
    /// Beyond this in its stream a chunk goes first when memory is short.
    pub overload_cutoff: Option<u64>,
    /// Whether packets are wanted beside chunks. They take of `memory_bytes`, and those who want none do not
    /// have them: their chunks are others.
    pub need_packets: bool,
    /// Whether data events are wanted; without them creations and terminations come alone.
    pub wants_data: bool,
}

impl Application {
    /// The largest chunk: what partial chunks wait in is memory of all.
    pub const LARGEST_CHUNK: u32 = 1 << 20;
    /// The least memory.
    pub const LEAST_MEMORY: u64 = 1 << 20;
}

impl Default for Application {
    /// Everything, in chunks of 16 KiB, with 64 MiB of memory.
    fn default() -> Application {
        Application {
            name: String::new(),
            filter: String::new(),
            mode: Mode::Wait,
            cutoff: Cutoff::UNLIMITED,
            from_initiator: None,
            from_responder: None,
            cutoff_classes: Vec::new(),
            chunk_bytes: ApplicationConfig::CHUNK_BYTES,
            overlap_bytes: 0,
            flush_timeout: None,
            priority: 0,
            priority_classes: Vec::new(),
            inactivity_timeout: None,
            memory_bytes: 64 << 20,
            least_memory_bytes: None,
            base_threshold: 0.5,
            overload_cutoff: None,
            need_packets: false,
            wants_data: true,
        }
    }
}

/// Classes of each kind at most.
const MOST_CLASSES: usize = 64;

impl Application {
    /// The messages that ask for it, the filters compiled for `links`.
    pub(super) fn requests(&self, links: &[LinkType]) -> Result<Vec<Request>, Error> {
        self.check()?;
        let mut requests = Vec::new();
        let mut number = 0;
        let mut compile = |expression: &String| -> Result<u16, Error> {
            for (place, &link) in links.iter().enumerate() {
                match Filter::compile(expression, link, DEFAULT_SNAP_LEN) {
                    Ok(program) => requests.push(Request::Filter {
                        number,
                        link,
                        program,
                    }),
                    Err(error) if place == 0 => return Err(Error::Filter(error)),
                    // What cannot be asked of such packets, none of them has.
                    Err(_) => {}
                }
            }
            number += 1;
            Ok(number - 1)
        };
        let filter = match self.filter.trim() {
            "" => None,
            _ => Some(compile(&self.filter)?),
        };
        let mut cutoff_classes = Vec::new();
        for (expression, cutoff) in &self.cutoff_classes {
            cutoff_classes.push((compile(expression)?, *cutoff));
        }
        let mut priority_classes = Vec::new();
        for (expression, priority) in &self.priority_classes {
            priority_classes.push((compile(expression)?, *priority));
        }
        requests.push(Request::Join(Box::new(Join {
            name: self.name.clone(),
            memory_bytes: self.memory_bytes,
            least_memory: self
                .least_memory_bytes
                .unwrap_or(self.memory_bytes)
                .max(least_memory(self.chunk_bytes)),
            thresholds: self.thresholds(),
            need_packets: self.need_packets,
            wants_data: self.wants_data,
            filter,
            mode: self.mode,
            cutoff: self.cutoff,
            from_initiator: self.from_initiator.map(|cutoff| cutoff.0),
            from_responder: self.from_responder.map(|cutoff| cutoff.0),
            cutoff_classes,
            chunk_bytes: self.chunk_bytes,
            overlap_bytes: self.overlap_bytes,
            flush_timeout: self.flush_timeout,
            inactivity_timeout: self.inactivity_timeout,
            priority: self.priority,
            priority_classes,
        })));
        Ok(requests)
    }

    pub(super) fn thresholds(&self) -> Thresholds {
        Thresholds::new(self.base_threshold, self.overload_cutoff)
    }

    /// What it wants, without filters and classes.
    pub(super) fn plain(&self) -> ApplicationConfig {
        ApplicationConfig {
            filter: None,
            mode: self.mode,
            cutoff: Cutoffs {
                default: self.cutoff,
                from_initiator: self.from_initiator,
                from_responder: self.from_responder,
                classes: Vec::new(),
            },
            chunk_bytes: self.chunk_bytes,
            overlap_bytes: self.overlap_bytes,
            flush_timeout: self.flush_timeout,
            priority: Priorities {
                default: self.priority,
                classes: Vec::new(),
            },
            inactivity_timeout: self.inactivity_timeout,
        }
    }

    /// Whether chunks of this size and overlap can be had with so much memory.
    ///
    /// # Errors
    /// [`Error::Wanted`] where they cannot.
    pub fn check_sizes(
        chunk_bytes: u32,
        overlap_bytes: u32,
        memory_bytes: u64,
    ) -> Result<(), Error> {
        within(chunk_bytes, overlap_bytes, memory_bytes).map_err(|what| Error::Wanted { what })
    }

    fn check(&self) -> Result<(), Error> {
        let wanted = |what: String| Err(Error::Wanted { what });
        if self.cutoff_classes.len().max(self.priority_classes.len()) > MOST_CLASSES {
            return wanted(format!("at most {MOST_CLASSES} classes of each kind"));
        }
        Application::check_sizes(self.chunk_bytes, self.overlap_bytes, self.memory_bytes)
    }
}

/// Whether sizes are within bounds; otherwise what the bounds are.
pub(super) fn within(
    chunk_bytes: u32,
    overlap_bytes: u32,
    memory_bytes: u64,
) -> Result<(), String> {
    if chunk_bytes > Application::LARGEST_CHUNK {
        return Err(format!(
            "chunks of a shared capture have at most {} bytes, not {chunk_bytes}",
            Application::LARGEST_CHUNK
        ));
    }
    if overlap_bytes > 0 && overlap_bytes >= chunk_bytes {
        return Err(format!(
            "an overlap of {overlap_bytes} bytes in chunks of {chunk_bytes}"
        ));
    }
    let least = least_memory(chunk_bytes);
    if memory_bytes < least {
        return Err(format!(
            "memory of {memory_bytes} bytes for chunks that wait; it takes {least} at least"
        ));
    }
    Ok(())
}

/// The least memory for chunks of this size.
pub(super) fn least_memory(chunk_bytes: u32) -> u64 {
    Application::LEAST_MEMORY.max(4 * u64::from(chunk_bytes))
}

/// Filters that a client has sent, by number: a program per link type.
#[derive(Debug, Default)]
pub(super) struct Filters {
    programs: BTreeMap<u16, Vec<(LinkType, Filter)>>,
    instructions: usize,
}

impl Filters {
    /// Instructions of all filters of a client at most: they run for each new stream.
    const MOST_INSTRUCTIONS: usize = 1 << 16;

    /// Adds a program. `false` when they are too many.
    pub(super) fn add(&mut self, number: u16, link: LinkType, program: Filter) -> bool {
        self.instructions += program.instructions().len();
        if self.instructions > Filters::MOST_INSTRUCTIONS {
            return false;
        }
        let programs = self.programs.entry(number).or_default();
        if programs.iter().any(|(known, _)| *known == link) {
            return false;
        }
        programs.push((link, program));
        true
    }

    /// The configuration that a client asks for, or why it cannot have it.
    pub(super) fn configuration(self, join: &Join) -> Result<ApplicationConfig, String> {
        within(join.chunk_bytes, join.overlap_bytes, join.memory_bytes)?;
        if join.cutoff_classes.len().max(join.priority_classes.len()) > MOST_CLASSES {
            return Err("too many classes".to_owned());
        }
        let filters: BTreeMap<u16, StreamFilter> = self
            .programs
            .into_iter()
            .map(|(number, programs)| (number, stream_filter(programs)))
            .collect();
        let find = |number: u16| {
            let filter = filters.get(&number).cloned();
            filter.ok_or_else(|| "a filter that was not sent".to_owned())
        };
        let mut cutoff = Cutoffs {
            default: join.cutoff,
            from_initiator: join.from_initiator.map(Cutoff),
            from_responder: join.from_responder.map(Cutoff),
            classes: Vec::new(),
        };
        for (filter, bytes) in &join.cutoff_classes {
            cutoff.classes.push((find(*filter)?, *bytes));
        }
        let mut priority = Priorities {
            default: join.priority,
            classes: Vec::new(),
        };
        for (filter, value) in &join.priority_classes {
            priority.classes.push((find(*filter)?, *value));
        }
        Ok(ApplicationConfig {
            filter: join.filter.map(find).transpose()?,
            mode: join.mode,
            cutoff,
            // For nobody nothing is put together.
            chunk_bytes: if join.wants_data { join.chunk_bytes } else { 0 },
            overlap_bytes: if join.wants_data {
                join.overlap_bytes
            } else {
                0
            },
            flush_timeout: join.flush_timeout,
            priority,
            inactivity_timeout: join
                .inactivity_timeout
                .map(|timeout| timeout.min(LONGEST_SILENCE)),
        })
    }
}

/// Longest inactivity timeout: streams that ended without a word take memory of all.
pub(super) const LONGEST_SILENCE: Nanos = Nanos::from_secs(24 * 3600);

fn stream_filter(programs: Vec<(LinkType, Filter)>) -> StreamFilter {
    let programs: Arc<[(LinkType, Filter)]> = programs.into();
    StreamFilter::new(move |packet| {
        programs
            .iter()
            .find(|(link, _)| *link == packet.descriptor.link)
            .is_some_and(|(_, program)| program.verdict_on(packet.frame, packet.descriptor) != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::super::protocol::tests::join;
    use super::*;

    #[test]
    fn filters_are_compiled_for_each_link_type() {
        let application = Application {
            filter: "ether proto 0x0800 and tcp port 80".to_owned(),
            cutoff_classes: vec![("udp".to_owned(), Cutoff(1))],
            ..Application::default()
        };
        let links = [LinkType::ETHERNET, LinkType::RAW];
        let requests = application.requests(&links).unwrap();
        let mut filters = Filters::default();
        let mut joined = None;
        for request in requests {
            match request {
                Request::Filter {
                    number,
                    link,
                    program,
                } => assert!(filters.add(number, link, program)),
                Request::Join(join) => joined = Some(join),
                _ => unreachable!(),
            }
        }
        assert_eq!(filters.programs[&1].len(), 2);
        let config = filters.configuration(&joined.unwrap()).unwrap();
        assert!(config.filter.is_some());
        assert_eq!(config.cutoff.classes.len(), 1);
    }

    #[test]
    fn a_wrong_filter_is_named() {
        let application = Application {
            filter: "tcp prot 80".to_owned(),
            ..Application::default()
        };
        let error = application.requests(&[LinkType::ETHERNET]).unwrap_err();
        assert!(error.to_string().contains("tcp prot 80"), "{error}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_on_both_sides() {
        let change: [fn(&mut Application); 3] = [
            |application| application.chunk_bytes = 1 << 21,
            |application| application.overlap_bytes = application.chunk_bytes,
            |application| application.memory_bytes = 10,
        ];
        for change in change {
            let mut application = Application::default();
            change(&mut application);
            let refused = application.requests(&[]).unwrap_err();
            let refused = refused.to_string();
            let mut wanted = join();
            wanted.chunk_bytes = application.chunk_bytes;
            wanted.overlap_bytes = application.overlap_bytes;
            wanted.memory_bytes = application.memory_bytes;
            let by_service = Filters::default().configuration(&wanted).unwrap_err();
            assert_eq!(refused, by_service);
        }
        let unknown = Filters::default().configuration(&join()).unwrap_err();
        assert!(unknown.contains("not sent"), "{unknown}");
    }

    #[test]
    fn filters_are_bounded() {
        let program = Filter::compile("tcp", LinkType::ETHERNET, 65_535).unwrap();
        let mut filters = Filters::default();
        assert!(filters.add(0, LinkType::ETHERNET, program.clone()));
        assert!(
            !filters.add(0, LinkType::ETHERNET, program.clone()),
            "twice"
        );
        let added = (1..).take_while(|&number| filters.add(number, LinkType::RAW, program.clone()));
        assert!(added.count() < Filters::MOST_INSTRUCTIONS);
    }
}
