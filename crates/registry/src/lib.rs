//! All components by name: those of `flowgauge-components` and of `flowgauge-conversations`.
//!
//! They meet here only, so that neither crate waits for the other when it is built.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use std::sync::{LazyLock, Mutex, PoisonError};

use flowgauge_components::{PACKETS, RECORDS, STREAMS, THREADS};
pub use flowgauge_conversations::{Contents, names_elsewhere};
use flowgauge_conversations::{FLOWS, PROTOCOLS, REPORT};
use flowgauge_stack::{ComponentInfo, Registry};

/// Those of other crates; `None` once they have been looked for.
static OTHERS: Mutex<Option<Vec<&'static ComponentInfo>>> = Mutex::new(Some(Vec::new()));

/// The components by name, in the order in which they are listed.
pub fn registry() -> &'static Registry {
    static ALL: LazyLock<Registry> = LazyLock::new(|| {
        let others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner).take();
        Registry::new(own().chain(others.into_iter().flatten()))
    });
    &ALL
}

fn own() -> impl Iterator<Item = &'static ComponentInfo> {
    let lists = [PACKETS, PROTOCOLS, RECORDS, FLOWS, STREAMS, REPORT, THREADS];
    lists.into_iter().flatten().copied()
}

/// Why components cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// [`registry`] was called: what it gives does not change.
    #[error("components are added before any is looked for")]
    TooLate,
    /// A name is another component's.
    #[error("there are two components {0}")]
    TwoOf(&'static str),
    /// Names are in lower case.
    #[error("the name {0} is not in lower case")]
    NotLower(&'static str),
}

/// Adds components of another crate, which stacks, the sensor and MAPI's functions have from then on. A program does this at its
/// start.
///
/// # Errors
/// [`AddError`]; none of them is added then.
pub fn add(components: &[&'static ComponentInfo]) -> Result<(), AddError> {
    let others = &mut *OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    let others = others.as_mut().ok_or(AddError::TooLate)?;
    let names = |info: &'static ComponentInfo| info.aliases.iter().copied().chain([info.name]);
    let mut known: Vec<&str> = own()
        .chain(others.iter().copied())
        .flat_map(names)
        .collect();
    for name in components.iter().copied().flat_map(names) {
        if name != name.to_ascii_lowercase() {
            return Err(AddError::NotLower(name));
        }
        if known.contains(&name) {
            return Err(AddError::TwoOf(name));
        }
        known.push(name);
    }
    others.extend(components);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stacks that come later share these with those that run: a component that remembers anything is none of them.
    #[test]
    fn what_keeps_nothing_only_selects() {
        let all = registry().iter().filter(|info| info.keeps_nothing());
        let names: Vec<&str> = all.map(|info| info.name).collect();
        let known = [
            "identity",
            "filter",
            "headers",
            "display_filter",
            "search",
            "regexp",
        ];
        assert_eq!(names, known);
    }
}
