//! The registry of components.

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
    /// A registry of these components.
    ///
    /// # Panics
    /// Two components have the same name, or a name is not in lower case, which is a bug in the program.
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

    /// Finds a component by name or alias, ignoring case.
    pub fn find(&self, name: &str) -> Option<&'static ComponentInfo> {
        let name = name.to_ascii_lowercase();
        self.by_name
            .get(name.as_str())
            .map(|&index| self.infos[index])
    }

    /// All components, in their original order.
    pub fn iter(&self) -> impl Iterator<Item = &'static ComponentInfo> + '_ {
        self.infos.iter().copied()
    }

    /// Names similar to this one.
    pub fn near(&self, name: &str) -> Vec<&'static str> {
        near(name, self.by_name.keys().copied())
    }
}
