//! What keeps packets away before they are copied (`--offload`).

use flowgauge_offload::Backends;
use flowgauge_stream::offload::Verdicts;

use crate::anonymize::Forced;
use crate::failure::Failure;
use crate::options::{InputOptions, Offload};
use crate::say::{count, say};

/// The backends that the options ask for, and where it is told what is wanted of flows. Where the kernel does not take them
/// that is said, and all comes.
///
/// # Errors
/// Something else among the options has to see all packets.
pub(crate) fn load(input: &InputOptions) -> Result<(Backends, Vec<Verdicts>), Failure> {
    if input.offload == Offload::None {
        return Ok(Default::default());
    }
    if input.interface.is_empty() {
        return Err(Failure::usage(
            "--offload keeps packets away on interfaces, and none is captured on",
            "leave it out, or name one with -i",
        ));
    }
    let refused = if input.dedup.is_some() {
        Some("--dedup")
    } else if input.packet_count.is_some() {
        Some("-c")
    } else if Forced::read()?.is_some() {
        Some("the policy that is forced")
    } else {
        None
    };
    if let Some(other) = refused {
        return Err(Failure::usage(
            format!("{other} has to see all packets, and --offload keeps some away"),
            "leave one of them out",
        ));
    }
    Ok(Backends::load(input.workers.map_or(1, usize::from)))
}

/// Says that nothing is kept away, where that was asked for.
pub(crate) fn note(backends: &Backends) {
    if let Some(error) = backends.lacks() {
        say!(
            "note: nothing is kept away (--offload): {error}; hint: {}",
            error.hint()
        );
    }
}

/// What they have done, in words.
pub(crate) fn summary(backends: &Backends) -> Option<String> {
    let sum = backends.statistics()?;
    Some(format!(
        "{} kept away in the kernel, {} cut to headers; {} of flows not taken",
        count(sum.withheld, "packet"),
        sum.cut,
        count(sum.refused, "verdict")
    ))
}
