//! What keeps packets away before they are copied (`--offload`).

use flowgauge_offload::{Backends, Error};
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
    let is_asked = input.offload != Offload::Auto;
    if input.offload == Offload::None || input.interface.is_empty() && !is_asked {
        return Ok(Default::default());
    }
    if input.interface.is_empty() {
        return Err(Failure::usage(
            "--offload works on interfaces only",
            "omit it, or name an interface with -i",
        ));
    }
    let is_mirror = input.offload == Offload::Xdp;
    if is_mirror {
        check_mirror(input)?;
    }
    // (What the snap length cuts off is missing, what nobody wants is not.)
    let refused = if input.dedup.is_some() {
        Some("--dedup")
    } else if input.snapshot_length.is_some_and(|bytes| bytes > 0) {
        Some("-s")
    } else if input.packet_count.is_some() {
        Some("-c")
    } else if input.from.is_some() || input.to.is_some() {
        Some("a time range (--from, --to)")
    } else if Forced::read()?.is_some() {
        Some("a forced policy")
    } else {
        None
    };
    if let Some(other) = refused {
        if !is_asked {
            return Ok(Default::default());
        }
        return Err(Failure::usage(
            format!("{other} needs all packets, and --offload drops some"),
            "omit one of them",
        ));
    }
    Ok(match is_mirror {
        true => Backends::load_for_mirror(),
        false => Backends::load(input.workers.map_or(1, usize::from)),
    })
}

/// What keeping packets from everybody takes.
fn check_mirror(input: &InputOptions) -> Result<(), Failure> {
    let (what, hint) = if !input.mirror {
        (
            "--offload xdp hides packets from the whole machine, not only from this program",
            "--mirror says that nobody else needs the interface's packets; --offload socket keeps them from this program only",
        )
    } else if input.workers.is_some_and(|workers| workers > 1) {
        (
            "--offload xdp works with one worker only",
            "omit --workers, or use --offload socket",
        )
    } else if !input.rest.is_empty() || !input.filter.is_empty() || input.filter_file.is_some() {
        (
            "--offload xdp does not support filters",
            "omit the filter, or use --offload socket",
        )
    } else {
        return Ok(());
    };
    Err(Failure::usage(what, hint))
}

/// Says why nothing is kept away, unless that is what the interface is like and nobody asked for it.
pub(crate) fn note(offload: Offload, backends: &Backends) {
    let is_asked = offload != Offload::Auto;
    let lacks = backends.lacks();
    if let Some(error) = lacks.filter(|error| is_asked || !matches!(error, Error::Interface)) {
        say!(
            "note: no in-kernel offload (--offload): {error}; hint: {}",
            error.hint()
        );
    }
}

/// What they have done, in words.
pub(crate) fn summary(offload: Offload, backends: &Backends) -> Option<String> {
    if let Some(failure) = backends.failure() {
        return Some(format!("no in-kernel offload (--offload): {failure}"));
    }
    let sum = match (offload, backends.are_needed()) {
        (Offload::Auto, false) => return None,
        (_, true) => backends.statistics()?,
        (_, false) => {
            backends.statistics()?;
            return Some("no in-kernel offload (--offload): all packets were needed".to_owned());
        }
    };
    let lost = match sum.lost {
        0 => String::new(),
        lost => format!("; {lost} lost there by priority"),
    };
    Some(format!(
        "{} dropped in the kernel, {} cut to headers; {} of flows not taken{lost}",
        count(sum.withheld, "packet"),
        sum.cut,
        count(sum.refused, "verdict")
    ))
}
