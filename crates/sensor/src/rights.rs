//! What users may do.

use flowgauge_stack::{ComponentKind, Input, Node, Stack};
use serde::Deserialize;

use crate::config::Config;
use crate::protocol::Refusal;

/// What a user, or a member of a group, may do.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Rights {
    /// Devices that flows may be on; `*` is all.
    pub devices: Vec<String>,
    /// What flows may see of packets.
    pub packets: Visible,
    /// Components that flows may have, where not all that `packets` allows.
    pub functions: Option<Vec<String>>,
    /// A filter as in pcap-filter(7) before every flow.
    pub filter: Option<String>,
    /// Flows at once.
    pub most_flows: u32,
    /// May see everybody's flows, reload and stop the sensor.
    pub admin: bool,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            devices: vec!["*".to_owned()],
            packets: Visible::None,
            functions: None,
            filter: None,
            most_flows: 64,
            admin: false,
        }
    }
}

/// What of packets flows may see.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Visible {
    /// Counts only: components of [`COUNTING`].
    #[default]
    None,
    /// All, payload among it.
    Payload,
}

/// Components from whose results no byte of a packet can be learned but what capture filters can ask for: headers, addresses
/// and lengths. (A capture filter reaches payload by an offset, `tcp[32]`: [`filter_fault`] refuses that.)
const COUNTING: &[&str] = &[
    "binary_operation",
    "bucket",
    "burst",
    "bytes",
    "count",
    "distribution",
    "filter",
    "gap",
    "sample",
    "start_stop",
    "statistics",
    "threshold",
];

impl Rights {
    /// Those of root, and of who started the sensor.
    pub(crate) fn all() -> Rights {
        Rights {
            packets: Visible::Payload,
            most_flows: u32::MAX,
            admin: true,
            ..Rights::default()
        }
    }

    /// Those of who is in no table: nothing.
    pub(crate) fn none() -> Rights {
        Rights {
            devices: Vec::new(),
            most_flows: 0,
            ..Rights::default()
        }
    }

    /// What is wrong with them, and what to do about it.
    pub(crate) fn fault(&self, config: &Config) -> Option<(String, &'static str)> {
        let is_known = |name: &&String| *name == "*" || config.devices.contains_key(*name);
        if let Some(name) = self.devices.iter().find(|name| !is_known(name)) {
            let hint = "devices names tables of devices, or \"*\"";
            return Some((format!("there is no device \"{name}\""), hint));
        }
        let registry = flowgauge_registry::registry();
        let mut functions = self.functions.iter().flatten();
        if let Some(name) = functions.find(|name| registry.find(name).is_none()) {
            let hint = "flowgauge stack list shows the components";
            return Some((format!("there is no component \"{name}\""), hint));
        }
        None
    }

    pub(crate) fn may_use(&self, device: &str) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|name| name == "*" || name == device)
    }

    /// The text of a flow with what is forced before it.
    pub(crate) fn forced(&self, text: &str) -> String {
        match &self.filter {
            Some(filter) => {
                let filter = filter.replace('\\', "\\\\").replace('"', "\\\"");
                format!("filter {{ expression = \"{filter}\" }} {text}")
            }
            None => text.to_owned(),
        }
    }

    /// Whether a flow may run.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn allow(&self, stack: &Stack) -> Result<(), Refusal> {
        let forced = usize::from(self.filter.is_some());
        for (place, (_, node)) in stack.iter().enumerate() {
            if place < forced {
                continue;
            }
            self.allow_node(node)?;
        }
        Ok(())
    }

    fn allow_node(&self, node: &Node) -> Result<(), Refusal> {
        let name = node.info.name;
        let refused = |why: &str| {
            Refusal::with_hint(
                format!("{} is not allowed: {why}", node.label),
                "the sensor's configuration has the rights of users",
            )
        };
        if node.info.input == Input::Nothing {
            return Err(refused("the device is the source of its flows"));
        }
        if node.info.kind == ComponentKind::Thread {
            return Err(refused("the sensor decides about threads"));
        }
        if (node.info.effects)(&node.settings) {
            return Err(refused("it reads or writes something outside of the flow"));
        }
        let names_file = node.settings.iter().any(|setting| {
            let text = node.settings.text(setting.option.name).unwrap_or_default();
            setting.option.kind.paths(text).next().is_some()
        });
        if names_file {
            return Err(refused("it names a file of the sensor's"));
        }
        if let Some(functions) = &self.functions {
            let registry = flowgauge_registry::registry();
            let mut allowed = functions.iter().filter_map(|name| registry.find(name));
            if !allowed.any(|info| core::ptr::eq(info, node.info)) {
                return Err(refused("it is none of the functions allowed"));
            }
        }
        if self.packets == Visible::Payload {
            return Ok(());
        }
        if !COUNTING.contains(&name) {
            return Err(refused("it can tell what is in packets"));
        }
        let expression = node.settings.text("expression").unwrap_or_default();
        match filter_fault(expression) {
            Some(why) if name == "filter" => Err(refused(why)),
            _ => Ok(()),
        }
    }
}

/// Why a filter may not be asked by who may see no payload: a place in the packet can be anywhere in it.
fn filter_fault(expression: &str) -> Option<&'static str> {
    const FIELDS: [&str; 4] = ["[tcpflags]", "[icmptype]", "[icmpcode]", "[icmp6type]"];

    let mut rest = expression.to_owned();
    for field in FIELDS {
        rest = rest.replace(field, "");
    }
    rest.contains('[')
        .then_some("an offset reaches the payload")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::stack;

    fn refused(rights: &Rights, text: &str) -> Option<String> {
        let stack = stack("flow", text).unwrap();
        rights.allow(&stack).err().map(|refusal| refusal.error)
    }

    #[test]
    fn who_sees_no_packets_counts() {
        let rights = Rights::default();
        assert_eq!(refused(&rights, "filter { port 53 } count bytes"), None);
        for text in [
            "search { pattern = secret } count",
            "display_filter { frame contains 47:45:54 } count",
            "filter { tcp[32] = 0x47 } count",
            "filter { \"ether[54:4] = 1\" } count",
            "to_buffer",
            "hash_sample { range = 1024 }",
            "hash { layer = 3 }",
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
        }
    }

    #[test]
    fn nobody_reaches_files_or_the_network() {
        let rights = Rights::all();
        for text in [
            "output { file = /tmp/x.pcap }",
            "output { to = c:1 }",
            "anonymize { policy = /etc/shadow } count",
            "thread count",
        ] {
            assert!(refused(&rights, text).is_some(), "{text}");
        }
        assert_eq!(refused(&rights, "search { pattern = secret } count"), None);
    }

    #[test]
    fn functions_and_a_filter_are_those_of_the_configuration() {
        let rights = Rights {
            functions: Some(vec!["PKT_COUNTER".to_owned()]),
            filter: Some("net 10.0.0.0/8 and tcp[13] = 2".to_owned()),
            ..Rights::all()
        };
        assert_eq!(refused(&rights, &rights.forced("count")), None);
        assert!(refused(&rights, &rights.forced("bytes")).is_some());
        assert!(refused(&rights, &rights.forced("filter { tcp } count")).is_some());
    }
}
