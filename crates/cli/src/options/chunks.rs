//! Options of streams as applications see them: in chunks, cut off, with priorities, in one memory
//! budget. `match` and `capture` have some of them, too.

use std::path::Path;

use clap::Args;
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::engine::{Cutoff, HostPolicies, Mode};
use flowgauge_wire::Nanos;

use crate::failure::Failure;
use crate::input::text_of_file;

use super::values::{parse_scaled_or_zero, parse_seconds, parse_size, share};

/// How much of which stream, in what order, in which memory.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Chunks (any of these has all streams delivered in chunks)")]
pub(crate) struct ChunkOptions {
    #[command(flatten)]
    pub(crate) order: OrderOptions,
    #[command(flatten)]
    pub(crate) cutoffs: CutoffOptions,
    /// Priority under overload of streams that a filter matches: '2:host 192.0.2.1'; higher is
    /// kept longer, 0 is the default; may be repeated, the first that matches counts
    #[arg(long, value_name = "N:FILTER", allow_hyphen_values = true, value_parser = parse_priority)]
    pub(crate) priority: Vec<Class<u8>>,
    /// Size of chunks (units K, M); 0: segments as they come [default: 16K]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = parse_chunk)]
    pub(crate) chunk: Option<u32>,
    /// Bytes of a chunk repeated at the start of the next [default: 0]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = parse_chunk)]
    pub(crate) overlap: Option<u32>,
    /// Deliver a chunk that is not full after so many seconds
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = parse_seconds)]
    pub(crate) flush_timeout: Option<Nanos>,
    /// Share of the memory for chunks (0 to 1) below which nothing is dropped [default: 0.5]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = share)]
    pub(crate) base_threshold: Option<f64>,
    /// Under overload, drop what lies beyond so many bytes in its stream first
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = parse_size)]
    pub(crate) overload_cutoff: Option<u64>,
    /// Add to each record what became of the stream's packets: all, dropped, discarded, captured
    #[arg(long, conflicts_with_all = ["tally", "gaps"])]
    pub(crate) counters: bool,
}

/// How bytes are put in order.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OrderOptions {
    /// How TCP is put in order: wait (for a hole until it is hopeless), fast (never wait, flag holes),
    /// strict (only correctly sequenced data of established connections) [default: wait]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Option<Mode>,
    /// Overlap policy of the receiving host: a name as for --overlap-policy, or a file with lines
    /// "10.0.0.0/8 windows" and "default linux"
    #[arg(long, value_name = "NAME|FILE", value_parser = parse_policies, conflicts_with = "overlap_policy")]
    pub(crate) policy: Option<String>,
}

impl OrderOptions {
    /// The policy, or the name of a file of policies that can be read.
    ///
    /// # Errors
    /// What is wrong with which line of the file.
    pub(crate) fn checked_policy(&self) -> Result<Option<&str>, Failure> {
        let Some(text) = self.policy.as_deref() else {
            return Ok(None);
        };
        if text.parse::<OverlapPolicy>().is_err() {
            let lines = text_of_file(Path::new(text)).map_err(|error| {
                Failure::usage(
                    format!("--policy: cannot read {text}: {error}"),
                    POLICY_LINES,
                )
            })?;
            HostPolicies::read(&lines).map_err(|(line, reason)| {
                Failure::usage(
                    format!("--policy {text}, line {line}: {reason}"),
                    POLICY_LINES,
                )
            })?;
        }
        Ok(Some(text))
    }
}

/// What a file of policies is.
const POLICY_LINES: &str = "a line is a subnet and its policy, \"10.0.0.0/8 windows\"; one line may be \
                            \"default linux\"";

/// How much of which stream.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CutoffOptions {
    /// Only the first bytes of each stream (units K, M, G); 0: statistics only
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = parse_cutoff)]
    pub(crate) cutoff: Option<Cutoff>,
    /// Cutoff of one direction, before --cutoff: client:10K (what the initiator sends) or server:1M;
    /// may be repeated
    #[arg(long, value_name = "SIDE:BYTES", value_parser = parse_direction)]
    pub(crate) cutoff_direction: Vec<DirectionCutoff>,
    /// Cutoff of streams that a filter matches, before all others: '10K:tcp port 443'; may be repeated,
    /// the first that matches counts
    #[arg(long, value_name = "BYTES:FILTER", allow_hyphen_values = true, value_parser = parse_cutoff_class)]
    pub(crate) cutoff_class: Vec<Class<Cutoff>>,
}

impl CutoffOptions {
    /// Whether any was given.
    pub(crate) fn are_given(&self) -> bool {
        self.cutoff.is_some() || !self.cutoff_direction.is_empty() || !self.cutoff_class.is_empty()
    }

    /// The cutoff of one side's bytes.
    ///
    /// # Errors
    /// There are several.
    pub(crate) fn of_side(&self, from_initiator: bool) -> Result<Option<Cutoff>, Failure> {
        let of_side = |one: &&DirectionCutoff| one.from_initiator == from_initiator;
        let mut given = self.cutoff_direction.iter().filter(of_side);
        let cutoff = given.next().map(|one| one.cutoff);
        if given.next().is_some() {
            return Err(Failure::usage(
                "--cutoff-direction is given twice for the same side",
                "give one for client and one for server",
            ));
        }
        Ok(cutoff)
    }
}

/// A value for streams that a filter matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class<T> {
    pub(crate) value: T,
    pub(crate) filter: String,
}

/// A cutoff of one side's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectionCutoff {
    pub(crate) from_initiator: bool,
    pub(crate) cutoff: Cutoff,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    text.parse()
        .map_err(|_| format!("\"{text}\" is none of strict, fast, wait"))
}

fn parse_cutoff(text: &str) -> Result<Cutoff, String> {
    parse_scaled_or_zero(text).map(Cutoff)
}

fn parse_chunk(text: &str) -> Result<u32, String> {
    let bytes = parse_scaled_or_zero(text)?;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes <= 1 << 28 => Ok(bytes),
        _ => Err("must be 256M at most".to_owned()),
    }
}

fn parse_direction(text: &str) -> Result<DirectionCutoff, String> {
    let (side, bytes) = text
        .split_once(':')
        .ok_or("write client:BYTES or server:BYTES")?;
    let from_initiator = match side {
        "client" => true,
        "server" => false,
        _ => return Err(format!("\"{side}\" is neither client nor server")),
    };
    Ok(DirectionCutoff {
        from_initiator,
        cutoff: parse_cutoff(bytes)?,
    })
}

fn parse_cutoff_class(text: &str) -> Result<Class<Cutoff>, String> {
    parse_class(text, "BYTES", parse_cutoff)
}

fn parse_priority(text: &str) -> Result<Class<u8>, String> {
    parse_class(text, "N", |number| {
        number
            .parse()
            .map_err(|_| format!("\"{number}\" is no number from 0 to 255"))
    })
}

fn parse_class<T>(
    text: &str,
    what: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Class<T>, String> {
    let parts = text.split_once(':');
    let (value, filter) = parts.ok_or_else(|| format!("write {what}:FILTER"))?;
    if filter.trim().is_empty() {
        return Err(format!("there is no filter behind \"{value}:\""));
    }
    Ok(Class {
        value: parse(value)?,
        filter: filter.trim().to_owned(),
    })
}

/// A policy for all hosts, or the name of a file with policies of subnets, which is read later.
fn parse_policies(text: &str) -> Result<String, String> {
    if text.parse::<OverlapPolicy>().is_ok() {
        return Ok(text.to_owned());
    }
    let path = Path::new(text);
    if !path.is_file() {
        return Err(format!(
            "\"{text}\" is neither an overlap policy (first, last, linux, windows, bsd, solaris...) \
             nor a file"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_a_value_and_a_filter() {
        assert_eq!(
            parse_cutoff_class("10K:tcp port 443"),
            Ok(Class {
                value: Cutoff(10 << 10),
                filter: "tcp port 443".to_owned(),
            })
        );
        assert_eq!(parse_priority("3: udp").unwrap().value, 3);
        assert!(parse_priority("3:").is_err());
        assert!(parse_priority("udp").unwrap_err().contains("N:FILTER"));
        assert!(parse_priority("256:udp").unwrap_err().contains("255"));
        assert_eq!(parse_cutoff("0"), Ok(Cutoff(0)));
        let server = parse_direction("server:1M").unwrap();
        assert_eq!(server.cutoff, Cutoff(1 << 20));
        assert!(!server.from_initiator);
        assert!(parse_direction("both:1").is_err());
    }

    #[test]
    fn a_file_has_policies_of_subnets() {
        let text = "# hosts\n10.0.0.0/8 windows # all of them\n\ndefault bsd\n2001:db8::1 linux\n";
        let policies = HostPolicies::read(text).unwrap();
        let of = |host: &str| policies.of_ip(host.parse().unwrap());
        assert_eq!(of("10.1.2.3"), OverlapPolicy::Windows);
        assert_eq!(of("2001:db8::1"), OverlapPolicy::Linux);
        assert_eq!(of("2001:db8::2"), OverlapPolicy::Bsd);
        for (text, line) in [
            ("10.0.0.0/33 bsd", 1),
            ("\nten bsd", 2),
            ("10.0.0.1 amiga", 1),
            ("10.0.0.1", 1),
        ] {
            assert_eq!(HostPolicies::read(text).unwrap_err().0, line);
        }
        assert!(parse_policies("amiga").unwrap_err().contains("neither"));
    }
}
