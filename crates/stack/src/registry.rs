//! Which components there are.

use std::collections::BTreeMap;

use crate::component::ComponentInfo;

/// Components by name.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    infos: Vec<&'static ComponentInfo>,
    /// Names and aliases.
    by_name: BTreeMap<&'static str, usize>,
}

impl Registry {
    /// Of these components.
    ///
    /// # Panics
    /// If two have the same name, or a name is not in lower case: that is a mistake in the program.
    pub fn new(infos: impl IntoIterator<Item = &'static ComponentInfo>) -> Registry {
        let mut registry = Registry::default();
        for info in infos {
            let index = registry.infos.len();
            registry.infos.push(info);
            for name in info.aliases.iter().copied().chain([info.name]) {
                assert_eq!(name, name.to_ascii_lowercase(), "names are in lower case");
                let before = registry.by_name.insert(name, index);
                assert!(before.is_none(), "two components are called {name}");
            }
        }
        registry
    }

    /// The component of a name or alias, whatever its case.
    pub fn find(&self, name: &str) -> Option<&'static ComponentInfo> {
        let name = name.to_ascii_lowercase();
        self.by_name
            .get(name.as_str())
            .map(|&index| self.infos[index])
    }

    /// All of them, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &'static ComponentInfo> + '_ {
        self.infos.iter().copied()
    }

    /// Names that look like this one.
    pub fn near(&self, name: &str) -> Vec<&'static str> {
        near(name, self.by_name.keys().copied())
    }
}

/// Longer words are no misspelt names; to compare them would take its time.
const LONGEST_NAME: usize = 64;

/// Those of `names` that look most like `name`, three at most.
pub fn near<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.len() > LONGEST_NAME {
        return Vec::new();
    }
    let name = name.to_ascii_lowercase();
    let allowed = 1 + name.len() / 4;
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .map(|other| (distance(&name, other), other))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    found.sort_unstable();
    let nearest = found.first().map_or(0, |(distance, _)| *distance);
    found.retain(|(distance, _)| *distance == nearest);
    found.truncate(3);
    found.into_iter().map(|(_, other)| other).collect()
}

/// How many changes apart; words in another order are near, too (scantcp and tcpscan).
fn distance(one: &str, other: &str) -> usize {
    let direct = strsim::damerau_levenshtein(one, other);
    let turned = (1..one.len())
        .filter(|&at| one.is_char_boundary(at))
        .any(|at| [&one[at..], &one[..at]].concat() == other);
    if turned { direct.min(1) } else { direct }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_misspelt_or_turned_round() {
        let names = ["tcpscan", "udpscan", "tcpreseq", "output"];
        assert_eq!(near("tcpscann", names), ["tcpscan"]);
        assert_eq!(near("scanTCP", names), ["tcpscan"]);
        assert_eq!(near("ouptut", names), ["output"]);
        assert_eq!(near("httpmatch", names), [""; 0]);
        // Neither hours of comparing nor a hint.
        assert_eq!(near(&"tcpscan".repeat(1_000_000), names), [""; 0]);
    }
}
