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
    let workers = input.workers.map_or(1, usize::from);
    let by_mirror = is_by_mirror(input)?;
    let keeps_away = keeps_away(input, by_mirror)?;
    Ok(match (by_mirror, keeps_away) {
        (true, true) => Backends::load_for_mirror(workers),
        (true, false) => (Backends::load_for_mirror(workers).0, Vec::new()),
        (false, true) => Backends::load(workers),
        (false, false) => Default::default(),
    })
}

/// The same of a command that wants all packets.
///
/// # Errors
/// It is no mirror port.
pub(crate) fn load_for_all(input: &InputOptions) -> Result<Backends, Failure> {
    let workers = input.workers.map_or(1, usize::from);
    Ok(match is_by_mirror(input)? {
        true => Backends::load_for_mirror(workers).0,
        false => Backends::default(),
    })
}

/// Whether packets come past the system.
fn is_by_mirror(input: &InputOptions) -> Result<bool, Failure> {
    if input.mirror && !matches!(input.interface.as_slice(), [one] if one != "any") {
        return Err(Failure::usage(
            "--mirror needs exactly one interface",
            "use it with one -i NAME, or omit it",
        ));
    }
    if input.offload == Offload::Xdp && !input.mirror {
        return Err(Failure::usage(
            "--offload xdp hides packets from the whole machine, not only from this program",
            "--mirror says that nobody else needs the interface's packets; --offload socket keeps them from this program only",
        ));
    }
    Ok(input.mirror && input.offload != Offload::Socket)
}

/// Whether packets may be kept away.
fn keeps_away(input: &InputOptions, by_mirror: bool) -> Result<bool, Failure> {
    let is_asked = input.offload != Offload::Auto;
    if input.offload == Offload::None || input.interface.is_empty() && !is_asked {
        return Ok(false);
    }
    if input.interface.is_empty() {
        return Err(Failure::usage(
            "--offload works on interfaces only",
            "omit it, or name an interface with -i",
        ));
    }
    let has_filter =
        !input.rest.is_empty() || !input.filter.is_empty() || input.filter_file.is_some();
    // (What the snap length cuts off is missing, what nobody wants is not.)
    let refused = if input.dedup.is_some() {
        Some("--dedup")
    } else if input.snapshot_length.is_some_and(|bytes| bytes > 0) {
        Some("-s")
    } else if input.packet_count.is_some() {
        Some("-c")
    } else if input.from.is_some() || input.to.is_some() {
        Some("a time range (--from, --to)")
    } else if by_mirror && has_filter {
        Some("a filter")
    } else if Forced::read()?.is_some() {
        Some("a forced policy")
    } else {
        None
    };
    match refused {
        Some(other) if is_asked => Err(Failure::usage(
            format!("{other} needs all packets, and --offload drops some"),
            "omit one of them",
        )),
        refused => Ok(refused.is_none()),
    }
}

/// Says why nothing is dropped, unless that is what the interface is like and nobody asked for it, and what a mirror port's packets
/// lack.
pub(crate) fn note(offload: Offload, backends: &Backends) {
    let is_asked = offload != Offload::Auto || backends.is_mirror();
    let lacks = backends.lacks();
    if let Some(error) = lacks.filter(|error| is_asked || !matches!(error, Error::Interface)) {
        let what = if backends.is_mirror() {
            "no AF_XDP (--mirror), packets come through a packet socket"
        } else {
            "no in-kernel offload (--offload)"
        };
        say!("note: {what}: {error}; hint: {}", error.hint());
    }
    if let Some(error) = backends.spreads_outside() {
        say!(
            "note: tunnelled packets are distributed to workers by outer addresses: {error}; hint: {}",
            error.hint()
        );
    }
    if let Some(name) = backends.hides_tags() {
        say!(
            "note: {name} takes VLAN tags out of frames, and none is seen of a mirror port's packets (--mirror): VLANs are not told apart; \
             hint: sudo ethtool -K {name} rxvlan off"
        );
    }
}

/// What they have done, in words.
pub(crate) fn summary(offload: Offload, backends: &Backends) -> Option<String> {
    if let Some(failure) = backends.failure() {
        return Some(format!("no in-kernel offload (--offload): {failure}"));
    }
    let sum = match (offload, backends.are_needed()) {
        (Offload::None, _) | (Offload::Auto, false) => return None,
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
