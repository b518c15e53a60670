//! Rights as the configuration has them.

use std::ops::RangeInclusive;

use flowgauge_credential::{Block, Function, Limits, RightsTable, Visible};
use flowgauge_stack::OptionKind;
use serde::Deserialize;

use crate::config::Config;
use crate::granted::{anonymize_text, filter_text};
use crate::text;

/// What a user, or a member of a group, may do.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Rights {
    /// Devices that flows may be on; `*` is all.
    pub devices: Vec<String>,
    /// What flows may see of packets.
    pub packets: Visible,
    /// Components that flows may have, where not all that `packets` allows, with bounds on their options:
    /// `top(count<=10)`.
    pub functions: Option<Vec<String>>,
    /// A filter as in pcap-filter(7) before every flow.
    pub filter: Option<String>,
    /// A policy that packets are anonymized by before every flow: a name of the table `anonymization`, else a file.
    pub anonymize: Option<String>,
    /// Maximum number of flows at once.
    pub most_flows: u32,
    /// Packets that come to a flow in a second.
    pub packets_per_second: Option<u64>,
    /// Times of the week in UTC: `mon-fri 08:00-18:00`.
    pub times: Option<Vec<String>>,
    /// When they end: `2026-12-01`, `2026-12-01T18:00:00Z`.
    pub expires: Option<String>,
    /// Bytes of packets that may wait for the user in shared memory.
    pub memory: u64,
    /// Processors that the user's flows may take: 0.5 is half of one.
    pub cpu: f64,
    /// May send packets onto the interfaces that the configuration names for it.
    pub inject: bool,
    /// May see everybody's flows, reload and stop the sensor.
    pub admin: bool,
    /// Of issuers: the public key that their credentials are signed with.
    pub key: Option<String>,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            devices: vec!["*".to_owned()],
            packets: Visible::None,
            functions: None,
            filter: None,
            anonymize: None,
            most_flows: 64,
            packets_per_second: None,
            times: None,
            expires: None,
            memory: 64 << 20,
            cpu: 0.5,
            inject: false,
            admin: false,
            key: None,
        }
    }
}

/// What `memory` may be.
const MEMORY: RangeInclusive<u64> = 1 << 20..=64 << 30;
/// What `cpu` may be.
const CPU: RangeInclusive<f64> = 0.01..=1024.0;
impl RightsTable for Rights {
    fn block(&self) -> Result<Block, String> {
        let functions = self.functions.iter().flatten().map(|text| function(text));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let is_all = self.devices.iter().any(|name| name == "*");
        let limits = Limits {
            devices: (!is_all).then(|| self.devices.clone()),
            packets: Some(self.packets),
            functions: self.functions.is_some().then_some(functions),
            filter: self.filter.clone(),
            anonymize: self.anonymize.clone(),
            most_flows: Some(self.most_flows),
            packets_per_second: self.packets_per_second,
            ..Limits::default()
        };
        let limits = limits.during(self.times.as_deref(), self.expires.as_deref());
        Ok(limits.map_err(|error| error.to_string())?.block())
    }

    fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl Rights {
    /// What is wrong with them, and what to do about it.
    pub(crate) fn fault(&self, config: &Config, is_issuer: bool) -> Option<(String, &'static str)> {
        if is_issuer && (self.admin || self.inject) {
            let message = "credentials can allow neither admin nor inject".to_owned();
            return Some((message, "use them for users, groups or remotes"));
        }
        let is_known = |name: &&String| *name == "*" || config.devices.contains_key(*name);
        if let Some(name) = self.devices.iter().find(|name| !is_known(name)) {
            let hint = "devices names tables of devices, or \"*\"";
            return Some((format!("there is no device \"{name}\""), hint));
        }
        let mut forced = String::new();
        if let Some(filter) = &self.filter {
            forced += &filter_text(filter);
        }
        if let Some(policy) = &self.anonymize {
            forced += &anonymize_text(&config.anonymization_file(policy));
        }
        if let Err(found) = text::stack("filter", &(forced + "count")) {
            return Some((found, "filter is as for tcpdump, anonymize a file"));
        }
        if !MEMORY.contains(&self.memory) {
            let message = format!("memory = {} cannot be", self.memory);
            return Some((message, "a user has 1 MiB to 64 GiB, in bytes"));
        }
        if !CPU.contains(&self.cpu) {
            let message = format!("cpu = {} cannot be", self.cpu);
            return Some((message, "a user has 0.01 to 1024 processors"));
        }
        if self.packets_per_second == Some(0) {
            let message = "packets_per_second = 0 cannot be".to_owned();
            return Some((message, "omit it, or use most_flows = 0"));
        }
        let hint = "functions as in docs/credentials.md; times = [\"mon-fri 08:00-18:00\"], expires = \"2026-12-01\"";
        self.block().err().map(|found| (found, hint))
    }
}

/// A component that flows may have, with bounds on its options, by the names that it has here.
///
/// # Errors
/// It is none that there is, or has no such options.
pub fn function(text: &str) -> Result<Function, String> {
    let mut function = Function::parse(text).map_err(|error| error.to_string())?;
    let registry = flowgauge_registry::registry();
    let name = &function.name;
    let info = registry.find(name);
    let info = info.ok_or_else(|| format!("unknown component \"{name}\""))?;
    for (option, is_number) in function.options() {
        let mut options = info.options.iter();
        let found = options.find(|it| it.name == option);
        let found = found.ok_or_else(|| format!("{} has no option \"{option}\"", info.name))?;
        let can_compare = matches!(
            found.kind,
            OptionKind::Integer { .. } | OptionKind::Size | OptionKind::Duration
        );
        if is_number && !can_compare {
            return Err(format!("{option} of {} is not a whole number", info.name));
        }
    }
    function.name = info.name.to_owned();
    Ok(function)
}
