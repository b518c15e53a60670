//! All components by name: those of `flowgauge-components` and of `flowgauge-conversations`.
//!
//! They meet here only, so that neither crate waits for the other when it is built.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use std::sync::LazyLock;

use flowgauge_components::{PACKETS, RECORDS, STREAMS, THREADS};
use flowgauge_conversations::{FLOWS, PROTOCOLS, REPORT};
use flowgauge_stack::Registry;

/// The components by name, in the order in which they are listed.
pub fn registry() -> &'static Registry {
    static ALL: LazyLock<Registry> = LazyLock::new(|| {
        let lists = [PACKETS, PROTOCOLS, RECORDS, FLOWS, STREAMS, REPORT, THREADS];
        Registry::new(lists.into_iter().flatten().copied())
    });
    &ALL
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
