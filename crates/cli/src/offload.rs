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
            "--offload keeps packets away on interfaces, and none is captured on",
            "leave it out, or name one with -i",
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
        Some("a span of time (--from, --to)")
    } else if Forced::read()?.is_some() {
        Some("the policy that is forced")
    } else {
        None
    };
    if let Some(other) = refused {
        if !is_asked {
            return Ok(Default::default());
        }
        return Err(Failure::usage(
            format!("{other} has to see all packets, and --offload keeps some away"),
            "leave one of them out",
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
            "--offload xdp keeps packets from all of this machine, not from this program alone",
            "--mirror says that nobody else needs the interface's packets; --offload socket keeps them from this program only",
        )
    } else if input.workers.is_some_and(|workers| workers > 1) {
        (
            "--offload xdp takes one worker",
            "leave --workers out, or take --offload socket",
        )
    } else if !input.rest.is_empty() || !input.filter.is_empty() || input.filter_file.is_some() {
        (
            "--offload xdp knows no filter",
            "leave the filter out, or take --offload socket",
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
            "note: nothing is kept away (--offload): {error}; hint: {}",
            error.hint()
        );
    }
}

/// What they have done, in words.
pub(crate) fn summary(offload: Offload, backends: &Backends) -> Option<String> {
    if let Some(failure) = backends.failure() {
        return Some(format!("nothing is kept away (--offload): {failure}"));
    }
    let sum = match (offload, backends.are_needed()) {
        (Offload::Auto, false) => return None,
        (_, true) => backends.statistics()?,
        (_, false) => {
            backends.statistics()?;
            return Some("nothing was kept away (--offload): all packets were wanted".to_owned());
        }
    };
    let lost = match sum.lost {
        0 => String::new(),
        lost => format!("; {lost} lost there by priority"),
    };
    Some(format!(
        "{} kept away in the kernel, {} cut to headers; {} of flows not taken{lost}",
        count(sum.withheld, "packet"),
        sum.cut,
        count(sum.refused, "verdict")
    ))
}
