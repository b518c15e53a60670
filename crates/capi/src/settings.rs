//! The settings of a capture before its start, checked call by call.

use core::ffi::c_int;

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_runtime::Capture;
use flowgauge_runtime::shared::Application;
use flowgauge_stream::engine::{Cutoff, Mode, Parameter as StreamParameter};
use flowgauge_wire::{Nanos, network};
use ipnet::IpNet;

use crate::abi::{Callback, parameter};
use crate::failure::{Code, Failure};
use crate::nodes::Nodes;

/// The memory budget when none is asked for.
pub(crate) const DEFAULT_MEMORY: u64 = 512 << 20;

/// The smallest memory budget: a few chunks.
pub(crate) const LEAST_MEMORY: u64 = 64 << 10;

/// The largest chunk.
pub(crate) const MOST_CHUNK_BYTES: c_int = 16 << 20;

/// The most worker threads.
pub(crate) const MOST_WORKERS: c_int = Capture::MOST_THREADS as c_int;

/// Everything that is set between `scap_create` and `scap_start_capture`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Of streams; whether data is wanted the callbacks say.
    pub(crate) wanted: Application,
    pub(crate) subnets: Vec<(IpNet, OverlapPolicy)>,
    pub(crate) policy: OverlapPolicy,
    pub(crate) workers: usize,
    /// Whether the capture of an interface may be shared.
    pub(crate) share: bool,
    /// Whether the kernel may keep away what is not wanted.
    pub(crate) offload: bool,
    pub(crate) callbacks: Callbacks,
}

/// What is called for events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Callbacks {
    pub(crate) creation: Option<Callback>,
    pub(crate) data: Option<Callback>,
    pub(crate) termination: Option<Callback>,
}

impl Callbacks {
    /// Bytes that are kept of each connection beside the engine's.
    pub(crate) fn connection_bytes(&self) -> u64 {
        match (self.creation, self.data) {
            // Their `stream_t`s live for the termination callback only.
            (None, None) => 0,
            _ => Nodes::BYTES_PER_CONNECTION,
        }
    }
}

/// A value for `scap_set_parameter` or `scap_set_stream_parameter`, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// One that single streams have, too.
    Stream(StreamParameter),
    BaseThresholdPercent(u32),
    OverloadCutoff(Option<u64>),
    Share(bool),
    Offload(bool),
}

impl Settings {
    /// What holds when nothing else is said.
    pub(crate) fn new(mode: Mode, need_packets: bool) -> Settings {
        Settings {
            wanted: Application {
                memory_bytes: DEFAULT_MEMORY,
                mode,
                need_packets,
                ..Application::default()
            },
            share: true,
            offload: true,
            ..Settings::default()
        }
    }

    /// Worker threads, 0: callbacks run where events arise. Where only statistics are wanted no thread could be kept
    /// busy, and one worker would only wait for the capture.
    pub(crate) fn threads(&self) -> usize {
        match self.workers {
            1 => 0,
            _ if self.callbacks.data.is_none() => 0,
            workers => workers,
        }
    }

    /// Whether overlap policies are the same.
    pub(crate) fn has_policies_of(&self, other: &Settings) -> bool {
        (self.policy, &self.subnets) == (other.policy, &other.subnets)
    }

    /// Whether what is the engine's and can be changed while it runs is the same.
    pub(crate) fn has_engine_of(&self, other: &Settings) -> bool {
        let of = |settings: &Settings| {
            (
                settings.wanted.base_threshold,
                settings.wanted.overload_cutoff,
            )
        };
        of(self) == of(other) && self.has_policies_of(other)
    }

    /// # Errors
    /// When it contradicts what was set before.
    pub(crate) fn set(&mut self, parameter: Parameter) -> Result<(), Failure> {
        match parameter {
            Parameter::Stream(StreamParameter::InactivityTimeout(timeout)) => {
                self.wanted.inactivity_timeout = timeout;
            }
            Parameter::Stream(StreamParameter::ChunkBytes(bytes)) => {
                check_overlap(bytes, self.wanted.overlap_bytes)?;
                self.wanted.chunk_bytes = bytes;
            }
            Parameter::Stream(StreamParameter::OverlapBytes(bytes)) => {
                check_overlap(self.wanted.chunk_bytes, bytes)?;
                self.wanted.overlap_bytes = bytes;
            }
            Parameter::Stream(StreamParameter::FlushTimeout(timeout)) => {
                self.wanted.flush_timeout = timeout;
            }
            Parameter::Stream(StreamParameter::Mode(mode)) => self.wanted.mode = mode,
            Parameter::Stream(StreamParameter::Policy(policy)) => self.policy = policy,
            Parameter::BaseThresholdPercent(percent) => {
                self.wanted.base_threshold = f64::from(percent) / 100.0;
            }
            Parameter::OverloadCutoff(cutoff) => self.wanted.overload_cutoff = cutoff,
            Parameter::Share(share) => self.share = share,
            Parameter::Offload(offload) => self.offload = offload,
        }
        Ok(())
    }
}

impl Parameter {
    /// Checks what a program gave.
    ///
    /// # Errors
    /// When there is no such parameter, or the value is out of its range.
    pub(crate) fn new(number: c_int, value: c_int) -> Result<Parameter, Failure> {
        let range = |name: &str, least: c_int, most: c_int| match u32::try_from(value) {
            Ok(checked) if (least..=most).contains(&value) => Ok(checked),
            _ => Err(Failure::new(
                Code::Argument,
                format_args!("{name} cannot be {value}"),
                format_args!("give {least} to {most}"),
            )),
        };
        let of_stream = match number {
            parameter::INACTIVITY_TIMEOUT => {
                let seconds = range("SCAP_INACTIVITY_TIMEOUT", 1, c_int::MAX)?;
                StreamParameter::InactivityTimeout(Some(Nanos::from_secs(seconds.into())))
            }
            parameter::CHUNK_SIZE => {
                StreamParameter::ChunkBytes(range("SCAP_CHUNK_SIZE", 0, MOST_CHUNK_BYTES)?)
            }
            parameter::OVERLAP_SIZE => {
                StreamParameter::OverlapBytes(range("SCAP_OVERLAP_SIZE", 0, MOST_CHUNK_BYTES - 1)?)
            }
            parameter::FLUSH_TIMEOUT => {
                let milliseconds = range("SCAP_FLUSH_TIMEOUT", 0, c_int::MAX)?;
                let timeout = Nanos::from_millis(milliseconds.into());
                StreamParameter::FlushTimeout((milliseconds != 0).then_some(timeout))
            }
            parameter::REASSEMBLY_MODE => StreamParameter::Mode(mode(value)?),
            parameter::REASSEMBLY_POLICY => StreamParameter::Policy(policy(value)?),
            parameter::BASE_THRESHOLD => {
                return range("SCAP_BASE_THRESHOLD", 0, 100).map(Parameter::BaseThresholdPercent);
            }
            parameter::OVERLOAD_CUTOFF => {
                return cutoff(value).map(|it| Parameter::OverloadCutoff(limit(it)));
            }
            parameter::SHARE => {
                return range("SCAP_SHARE", 0, 1).map(|share| Parameter::Share(share == 1));
            }
            parameter::OFFLOAD => {
                return range("SCAP_OFFLOAD", 0, 1).map(|offload| Parameter::Offload(offload == 1));
            }
            other => {
                return Err(Failure::new(
                    Code::Parameter,
                    format_args!("there is no parameter {other}"),
                    "give one of enum scap_parameter in scap.h",
                ));
            }
        };
        Ok(Parameter::Stream(of_stream))
    }
}

/// # Errors
/// When an overlap would leave no room for anything new in a chunk.
pub(crate) fn check_overlap(chunk_bytes: u32, overlap_bytes: u32) -> Result<(), Failure> {
    if overlap_bytes == 0 || overlap_bytes < chunk_bytes {
        return Ok(());
    }
    Err(Failure::new(
        Code::Argument,
        format_args!("an overlap of {overlap_bytes} bytes fills a chunk of {chunk_bytes}"),
        "set SCAP_OVERLAP_SIZE below SCAP_CHUNK_SIZE (set the larger one first)",
    ))
}

/// A cutoff as C programs give it.
///
/// # Errors
/// When it is negative and not `SCAP_UNLIMITED`.
pub(crate) fn cutoff(bytes: c_int) -> Result<Cutoff, Failure> {
    match u64::try_from(bytes) {
        Ok(bytes) => Ok(Cutoff(bytes)),
        Err(_) if bytes == -1 => Ok(Cutoff::UNLIMITED),
        Err(_) => Err(Failure::new(
            Code::Argument,
            format_args!("a cutoff cannot be {bytes} bytes"),
            "give 0 or more, or SCAP_UNLIMITED (-1)",
        )),
    }
}

/// The bytes of a cutoff, unless there is none.
pub(crate) fn limit(cutoff: Cutoff) -> Option<u64> {
    (cutoff != Cutoff::UNLIMITED).then_some(cutoff.0)
}

/// A priority as C programs give it.
///
/// # Errors
/// When it is not in 0 to 255.
pub(crate) fn priority(number: c_int) -> Result<u8, Failure> {
    u8::try_from(number).map_err(|_| {
        Failure::new(
            Code::Argument,
            format_args!("a priority cannot be {number}"),
            "give 0 (the lowest) to 255",
        )
    })
}

/// A reassembly mode as C programs give it.
///
/// # Errors
/// When there is no such mode.
pub(crate) fn mode(number: c_int) -> Result<Mode, Failure> {
    match number {
        0 | 3 => Ok(Mode::Wait),
        1 => Ok(Mode::Fast),
        2 => Ok(Mode::Strict),
        other => Err(Failure::new(
            Code::Argument,
            format_args!("there is no reassembly mode {other}"),
            "give SCAP_TCP_FAST, SCAP_TCP_STRICT, SCAP_TCP_WAIT or SCAP_DEFAULT",
        )),
    }
}

/// An overlap policy as C programs give it: the order of `enum scap_policy`.
///
/// # Errors
/// When there is no such policy.
pub(crate) fn policy(number: c_int) -> Result<OverlapPolicy, Failure> {
    let known = usize::try_from(number).ok();
    known
        .and_then(|index| OverlapPolicy::ALL.get(index))
        .copied()
        .ok_or_else(|| {
            Failure::new(
                Code::Argument,
                format_args!("there is no overlap policy {number}"),
                "give one of enum scap_policy in scap.h",
            )
        })
}

/// A memory budget.
///
/// # Errors
/// When it is too small to hold a few chunks.
pub(crate) fn memory(bytes: u64) -> Result<u64, Failure> {
    if bytes >= LEAST_MEMORY {
        return Ok(bytes);
    }
    Err(Failure::new(
        Code::Argument,
        format_args!("a memory of {bytes} bytes is too small"),
        format_args!("give {LEAST_MEMORY} bytes or more, or SCAP_DEFAULT"),
    ))
}

/// Parses `10.0.0.0/8`, `2001:db8::/32` or a single address.
///
/// # Errors
/// When it is neither.
pub(crate) fn subnet(text: &str) -> Result<IpNet, Failure> {
    network(text).ok_or_else(|| {
        Failure::new(
            Code::Argument,
            format_args!("{text:?} is not a subnet"),
            "give an address and a prefix length, as in 10.0.0.0/8 or 2001:db8::/32",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_ranges() {
        let ok = |number, value| Parameter::new(number, value).unwrap();
        let code = |number, value| Parameter::new(number, value).unwrap_err().code;
        assert_eq!(
            ok(parameter::INACTIVITY_TIMEOUT, 10),
            Parameter::Stream(StreamParameter::InactivityTimeout(Some(Nanos::from_secs(
                10
            ))))
        );
        assert_eq!(
            ok(parameter::FLUSH_TIMEOUT, 0),
            Parameter::Stream(StreamParameter::FlushTimeout(None))
        );
        assert_eq!(
            ok(parameter::FLUSH_TIMEOUT, 5),
            Parameter::Stream(StreamParameter::FlushTimeout(Some(Nanos::from_millis(5))))
        );
        assert_eq!(
            ok(parameter::OVERLOAD_CUTOFF, -1),
            Parameter::OverloadCutoff(None)
        );
        assert_eq!(
            ok(parameter::REASSEMBLY_POLICY, 4),
            Parameter::Stream(StreamParameter::Policy(OverlapPolicy::Linux))
        );
        assert_eq!(code(parameter::INACTIVITY_TIMEOUT, 0), Code::Argument);
        assert_eq!(code(parameter::BASE_THRESHOLD, 101), Code::Argument);
        assert_eq!(
            code(parameter::CHUNK_SIZE, MOST_CHUNK_BYTES + 1),
            Code::Argument
        );
        assert_eq!(code(parameter::REASSEMBLY_POLICY, 14), Code::Argument);
        assert_eq!(code(0, 1), Code::Parameter);
        assert_eq!(code(parameter::SHARE, 2), Code::Argument);
        assert_eq!(code(parameter::OFFLOAD, -1), Code::Argument);
        assert_eq!(code(11, 1), Code::Parameter);
    }

    #[test]
    fn an_overlap_leaves_room() {
        let mut settings = Settings::new(Mode::Fast, false);
        assert!(
            settings
                .set(Parameter::Stream(StreamParameter::OverlapBytes(16384)))
                .is_err()
        );
        settings
            .set(Parameter::Stream(StreamParameter::OverlapBytes(16383)))
            .unwrap();
        assert!(
            settings
                .set(Parameter::Stream(StreamParameter::ChunkBytes(16383)))
                .is_err()
        );
        assert_eq!(settings.wanted.chunk_bytes, 16384);
    }

    #[test]
    fn subnets() {
        let parse = subnet;
        let subnet = parse("10.0.0.0/8").unwrap();
        assert_eq!((subnet.prefix_len(), subnet.addr().is_ipv4()), (8, true));
        assert_eq!(parse("2001:db8::1").unwrap().prefix_len(), 128);
        for wrong in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "1.2.3.4/x",
            "1.2.3.4/-1",
        ] {
            assert_eq!(parse(wrong).unwrap_err().code, Code::Argument, "{wrong}");
        }
    }
}
