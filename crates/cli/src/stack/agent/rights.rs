//! Who may do what at an agent.
//!
//! ```text
//! # name      rights
//! ops         all network interfaces=eth0,eth1
//! viewer      list show watch
//! ```

use std::collections::BTreeMap;

use strum::VariantArray as _;

/// What can be asked of an agent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Action {
    Start,
    List,
    Show,
    Watch,
    Stop,
    Restart,
    Configure,
}

/// What one name may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    actions: Vec<Action>,
    /// Stacks of it may send to other machines and listen.
    pub(super) network: bool,
    /// What its stacks may capture on; "*" is all.
    interfaces: Vec<String>,
}

impl Rights {
    pub(super) fn may(&self, action: Action) -> bool {
        self.actions.contains(&action)
    }

    pub(super) fn may_capture(&self, interface: &str) -> bool {
        self.interfaces
            .iter()
            .any(|allowed| allowed == "*" || allowed == interface)
    }
}

/// Reads a file of rights.
///
/// # Errors
/// The line and what is wrong with it.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, Rights>, String> {
    let mut all = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let words = line.split('#').next().unwrap_or_default();
        let mut words = words.split_whitespace();
        let Some(name) = words.next() else {
            continue;
        };
        let mut rights = Rights::default();
        for word in words {
            if let Ok(action) = word.parse() {
                rights.actions.push(action);
            } else if word == "all" {
                rights.actions.extend(Action::VARIANTS);
            } else if word == "network" {
                rights.network = true;
            } else if let Some(list) = word.strip_prefix("interfaces=") {
                rights.interfaces.extend(list.split(',').map(str::to_owned));
            } else {
                return Err(format!("line {number}: \"{word}\" is no right"));
            }
        }
        if all.insert(name.to_owned(), rights).is_some() {
            return Err(format!("line {number}: there is a line for {name} already"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_give_rights() {
        let text =
            "# who\nops all network interfaces=eth0,lo\n\nviewer list watch # looks\nnobody\n";
        let all = read(text).unwrap();
        assert!(all["ops"].may(Action::Configure) && all["ops"].network);
        assert!(all["ops"].may_capture("lo") && !all["ops"].may_capture("eth1"));
        let viewer = &all["viewer"];
        assert!(viewer.may(Action::Watch) && !viewer.may(Action::Start));
        assert!(!viewer.network && !viewer.may_capture("lo"));
        assert_eq!(all["nobody"], Rights::default());
        assert_eq!(read("a fly").unwrap_err(), "line 1: \"fly\" is no right");
        assert!(read("a list\na list").unwrap_err().starts_with("line 2"));
    }
}
