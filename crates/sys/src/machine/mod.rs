//! What this machine can do for capturing: facts for `flowgauge doctor`.
//!
//! Each [`Check`] looks and changes nothing; what it opens to try is closed at once.

mod ebpf;
mod ethtool;
mod process;
mod system;

pub use ethtool::{receive_queues, takes_tags_out};

/// How a check turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, but costs speed or exactness.
    Warn,
    /// Not there: something does not work.
    Missing,
    /// The machine does not say.
    Unknown,
}

impl Status {
    /// Name in reports and records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One fact about this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, such as `af_packet` or `eth0 gro`. Stable.
    pub name: String,
    /// How it turned out.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it, if something should be done.
    pub advice: Option<String>,
}

impl Check {
    fn new(name: &str, status: Status, found: impl Into<String>) -> Check {
        Check {
            name: name.to_owned(),
            status,
            found: found.into(),
            advice: None,
        }
    }

    fn ok(name: &str, found: impl Into<String>) -> Check {
        Check::new(name, Status::Ok, found)
    }

    fn advise(mut self, advice: impl Into<String>) -> Check {
        self.advice = Some(advice.into());
        self
    }
}

/// All checks: kernel and CPU, then what the process may do, then each interface.
pub fn checks() -> Vec<Check> {
    let mut checks = system::checks();
    checks.extend(process::checks());
    checks.extend(ebpf::checks());
    checks.extend(ethtool::checks());
    checks
}

/// The text of a small system file, trimmed.
fn read(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_says_what_it_found() {
        let checks = checks();
        for name in [
            "kernel",
            "cpu",
            "clock source",
            "cap_net_raw",
            "af_packet",
            "ebpf",
            "xdp",
            "af_xdp",
            "hugepages",
            "memlock",
            "libpcap",
        ] {
            let found = checks.iter().filter(|check| check.name == name);
            assert_eq!(found.count(), 1, "{name}");
        }
        for check in &checks {
            assert!(!check.found.is_empty(), "{check:?}");
            if matches!(check.status, Status::Warn | Status::Missing) {
                assert!(check.advice.is_some(), "{check:?}");
            }
        }
    }
}
