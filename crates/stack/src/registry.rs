//! Which components there are.

use std::collections::BTreeMap;

use flowgauge_record::words::near;

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
