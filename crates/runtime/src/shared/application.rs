//! Applications of shared captures.

use flowgauge_sensor_client::programs::{Capture, Thresholds};
use flowgauge_stream::engine::{
    ApplicationConfig, Cutoff, Cutoffs, Mode, Priorities, StreamFilter,
};
use flowgauge_wire::Nanos;

use super::asked;
use super::error::Error;

/// An application of a shared capture: an [`ApplicationConfig`] with filters as expressions, and limits for the data
/// that waits for this process.
#[derive(Clone, Debug)]
pub struct Application {
    /// Name in listings, at most 64 bytes; default: the program's name.
    pub name: String,
    /// Selects streams, in pcap-filter(7) syntax; empty: all.
    pub filter: String,
    /// Reassembly mode.
    pub mode: Mode,
    /// Default cutoff of streams in bytes.
    pub cutoff: Cutoff,
    /// Cutoff of the initiator's direction.
    pub from_initiator: Option<Cutoff>,
    /// Cutoff of the responder's direction.
    pub from_responder: Option<Cutoff>,
    /// Cutoffs of streams that match a filter; the first match applies.
    pub cutoff_classes: Vec<(String, Cutoff)>,
    /// Chunk size, at most [`Application::LARGEST_CHUNK`]; 0: each segment is a chunk.
    pub chunk_bytes: u32,
    /// Bytes at the end of a chunk that the next one repeats.
    pub overlap_bytes: u32,
    /// Time after its first byte at which a partial chunk is delivered.
    pub flush_timeout: Option<Nanos>,
    /// Default priority of streams; higher numbers are more important.
    pub priority: u8,
    /// Priorities of streams that match a filter; the first match applies.
    pub priority_classes: Vec<(String, u8)>,
    /// Inactivity timeout of streams. If several clients have one for a stream, the longest applies. `None`: that of
    /// the service.
    pub inactivity_timeout: Option<Nanos>,
    /// Bytes of chunks that may wait for this process. Beyond it, events are lost for this process only. A client
    /// gets at most half of the memory that the service has left.
    pub memory_bytes: u64,
    /// The least amount of memory that is acceptable; `None`: the full amount.
    pub least_memory_bytes: Option<u64>,
    /// Share of `memory_bytes` below which nothing is lost.
    pub base_threshold: f64,
    /// When memory is short, chunks beyond this offset of their stream are dropped first.
    pub overload_cutoff: Option<u64>,
    /// Whether chunks come with their packets, which count towards `memory_bytes`. Clients with and without packets
    /// do not share chunks.
    pub need_packets: bool,
    /// Whether to deliver data events, or creations and terminations only.
    pub wants_data: bool,
}

impl Application {
    /// The largest chunk size; it is limited because partial chunks use the memory of all clients.
    pub const LARGEST_CHUNK: u32 = 1 << 20;
    /// The minimum of [`Application::memory_bytes`].
    pub const LEAST_MEMORY: u64 = 1 << 20;
    /// Maximum number of classes of each kind.
    pub const MOST_CLASSES: usize = 64;
}

impl Default for Application {
    /// All streams, in chunks of 16 KiB, with 64 MiB of memory.
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

impl Application {
    /// What asks for it on an interface, where its [configuration](Application::configuration) is this.
    ///
    /// # Errors
    /// Where it is more than there can be.
    pub(super) fn request(
        &self,
        interface: &str,
        config: &ApplicationConfig,
    ) -> Result<Capture, Error> {
        Ok(Capture {
            interface: interface.to_owned(),
            program: self.name.clone(),
            memory: self.memory_bytes,
            least_memory: self.least_memory_bytes.unwrap_or(self.memory_bytes),
            thresholds: self.thresholds(),
            packets: self.need_packets,
            data: self.wants_data,
            wanted: asked::said(config)?,
        })
    }

    pub(super) fn thresholds(&self) -> Thresholds {
        Thresholds {
            base: share(self.base_threshold),
            overload_cutoff: self.overload_cutoff,
        }
    }

    /// What it wants, with filters that the sensor compiles.
    ///
    /// # Errors
    /// Where it is more than there can be.
    pub(super) fn configuration(&self) -> Result<ApplicationConfig, Error> {
        self.check()?;
        let uncompiled = |expression: &str| Ok(asked::uncompiled(expression));
        Ok(ApplicationConfig {
            filter: (!self.filter.trim().is_empty()).then(|| asked::uncompiled(&self.filter)),
            ..self.without_filter(uncompiled)?
        })
    }

    /// The application's configuration; `compile` converts the expressions of classes to filters.
    ///
    /// # Errors
    /// The error of `compile` for an invalid expression.
    pub fn without_filter<E>(
        &self,
        compile: impl Fn(&str) -> Result<StreamFilter, E>,
    ) -> Result<ApplicationConfig, E> {
        Ok(ApplicationConfig {
            filter: None,
            mode: self.mode,
            cutoff: Cutoffs {
                default: self.cutoff,
                from_initiator: self.from_initiator,
                from_responder: self.from_responder,
                classes: classes(&self.cutoff_classes, &compile)?,
            },
            chunk_bytes: self.chunk_bytes,
            overlap_bytes: self.overlap_bytes,
            flush_timeout: self.flush_timeout,
            priority: Priorities {
                default: self.priority,
                classes: classes(&self.priority_classes, &compile)?,
            },
            inactivity_timeout: self.inactivity_timeout,
        })
    }

    /// Checks that this chunk size and overlap fit into this amount of memory.
    ///
    /// # Errors
    /// [`Error::Wanted`] if they do not.
    pub fn check_sizes(
        chunk_bytes: u32,
        overlap_bytes: u32,
        memory_bytes: u64,
    ) -> Result<(), Error> {
        within(chunk_bytes, overlap_bytes, memory_bytes).map_err(|what| Error::Wanted { what })
    }

    fn check(&self) -> Result<(), Error> {
        check_classes(self.cutoff_classes.len(), self.priority_classes.len())?;
        Application::check_sizes(self.chunk_bytes, self.overlap_bytes, self.memory_bytes)
    }
}

/// A share as JSON can have it: it has no number for what is none.
pub(super) fn share(share: f64) -> f64 {
    if share.is_nan() {
        1.0
    } else {
        share.clamp(0.0, 1.0)
    }
}

fn classes<V: Copy, E>(
    classes: &[(String, V)],
    compile: impl Fn(&str) -> Result<StreamFilter, E>,
) -> Result<Vec<(StreamFilter, V)>, E> {
    let classes = classes.iter();
    classes
        .map(|(expression, value)| Ok((compile(expression)?, *value)))
        .collect()
}

/// Whether an application may have so many classes.
///
/// # Errors
/// [`Error::Wanted`] where it may not.
pub(super) fn check_classes(cutoffs: usize, priorities: usize) -> Result<(), Error> {
    let most = Application::MOST_CLASSES;
    match cutoffs.max(priorities) > most {
        true => Err(Error::Wanted {
            what: format!("at most {most} classes of each kind"),
        }),
        false => Ok(()),
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

/// What a client with so much memory may have of what it wants, or why it cannot have it.
pub(super) fn admitted(
    wanted: &ApplicationConfig,
    wants_data: bool,
    memory_bytes: u64,
) -> Result<ApplicationConfig, String> {
    within(wanted.chunk_bytes, wanted.overlap_bytes, memory_bytes)?;
    let mut config = wanted.clone();
    if !wants_data {
        // For nobody nothing is put together.
        (config.chunk_bytes, config.overlap_bytes) = (0, 0);
    }
    config.inactivity_timeout = config
        .inactivity_timeout
        .map(|timeout| timeout.min(LONGEST_SILENCE));
    Ok(config)
}

/// Longest inactivity timeout: streams that ended without a word take memory of all.
pub(super) const LONGEST_SILENCE: Nanos = Nanos::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

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
            let refused = application.configuration().unwrap_err();
            let refused = refused.to_string();
            let wanted = ApplicationConfig {
                chunk_bytes: application.chunk_bytes,
                overlap_bytes: application.overlap_bytes,
                ..ApplicationConfig::default()
            };
            let by_service = admitted(&wanted, true, application.memory_bytes).unwrap_err();
            assert_eq!(refused, by_service);
        }
    }
}
