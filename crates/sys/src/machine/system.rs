//! Kernel, CPU, clock and memory.

use super::{Check, Status, read};

pub(super) fn checks() -> Vec<Check> {
    vec![
        kernel(),
        cpu(),
        governor(),
        clock_source(),
        hugepages(),
        jit(),
        unprivileged_bpf(),
        receive_buffer(),
        Check::ok("libpcap", crate::libpcap::version()),
        vectorscan(),
        #[cfg(feature = "ndpi")]
        ndpi(),
    ]
}

#[cfg(feature = "ndpi")]
fn ndpi() -> Check {
    const NAME: &str = "ndpi";

    match crate::ndpi::version() {
        Ok(version) => Check::ok(NAME, version),
        Err(error) => Check::new(NAME, Status::Missing, error.to_string())
            .advise("apt install libndpi4.2: only flows --classify --ndpi needs it"),
    }
}

fn vectorscan() -> Check {
    const NAME: &str = "vectorscan";

    match crate::vectorscan::version() {
        Ok(version) => Check::ok(NAME, version),
        Err(error) => Check::new(NAME, Status::Missing, error.to_string()).advise(
            "apt install libvectorscan5: searching for patterns is then several times as fast, and \
             knows regular expressions",
        ),
    }
}

fn kernel() -> Check {
    const NAME: &str = "kernel";
    /// `PACKET_IGNORE_OUTGOING`.
    const OLDEST: (u32, u32) = (4, 20);

    let Some(release) = read("/proc/sys/kernel/osrelease") else {
        return Check::new(
            NAME,
            Status::Unknown,
            "/proc/sys/kernel/osrelease is not readable",
        );
    };
    match version_of(&release) {
        Some(version) if version < OLDEST => Check::new(NAME, Status::Missing, release)
            .advise("live capture needs Linux 4.20 or newer"),
        Some(_) => Check::ok(NAME, release),
        None => Check::new(NAME, Status::Unknown, release),
    }
}

/// The first two numbers of a kernel release.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn cpu() -> Check {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unnamed", |(_, model)| model.trim());
    let features = cpu_features().join(" ");
    let found = format!("{count} usable, {model}, {features}");
    if count == 1 {
        return Check::new("cpu", Status::Warn, found)
            .advise("with one CPU, capturing and processing take turns: packets may be dropped");
    }
    Check::ok("cpu", found)
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<&'static str> {
    let known = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("sha", is_x86_feature_detected!("sha")),
    ];
    let there = known.into_iter().filter(|(_, there)| *there);
    there.map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_features() -> Vec<&'static str> {
    vec![std::env::consts::ARCH]
}

fn governor() -> Check {
    const NAME: &str = "cpu governor";
    match read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        None => Check::new(
            NAME,
            Status::Unknown,
            "the machine does not scale frequencies, or hides it",
        ),
        Some(governor) if governor == "performance" => Check::ok(NAME, governor),
        Some(governor) => Check::new(NAME, Status::Warn, governor)
            .advise("bursts find slow cores: sudo cpupower frequency-set -g performance"),
    }
}

fn clock_source() -> Check {
    const NAME: &str = "clock source";
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match read(PATH) {
        None => Check::new(NAME, Status::Unknown, format!("{PATH} is not readable")),
        Some(source) if matches!(source.as_str(), "hpet" | "acpi_pm" | "jiffies" | "xen") => {
            Check::new(NAME, Status::Warn, source).advise(format!(
                "each time stamp costs a microsecond or is coarse; if the CPU's clock is stable: \
                 echo tsc | sudo tee {PATH}"
            ))
        }
        Some(source) => Check::ok(NAME, source),
    }
}

fn hugepages() -> Check {
    const NAME: &str = "hugepages";
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |key: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(key))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse::<u64>().ok())
    };
    match (
        value("HugePages_Total:"),
        value("HugePages_Free:"),
        value("Hugepagesize:"),
    ) {
        (Some(total), Some(free), Some(size)) => {
            let found = format!("{free} of {total} free, {} MiB each", size / 1024);
            let check = Check::ok(NAME, found);
            if total == 0 {
                return check.advise("none are needed; to try: sudo sysctl vm.nr_hugepages=64");
            }
            check
        }
        _ => Check::new(NAME, Status::Unknown, "the kernel has none"),
    }
}

fn jit() -> Check {
    const NAME: &str = "bpf jit";
    match read("/proc/sys/net/core/bpf_jit_enable").as_deref() {
        None => Check::new(
            NAME,
            Status::Unknown,
            "net.core.bpf_jit_enable is not readable",
        ),
        Some("0") => Check::new(NAME, Status::Warn, "off")
            .advise("filters in the kernel are interpreted: sudo sysctl net.core.bpf_jit_enable=1"),
        Some(_) => Check::ok(NAME, "on"),
    }
}

fn unprivileged_bpf() -> Check {
    const NAME: &str = "unprivileged bpf";
    match read("/proc/sys/kernel/unprivileged_bpf_disabled").as_deref() {
        None => Check::new(NAME, Status::Unknown, "kernel.unprivileged_bpf_disabled is not readable"),
        Some("0") => Check::new(NAME, Status::Warn, "allowed").advise(
            "not needed, and a way in for attackers: sudo sysctl kernel.unprivileged_bpf_disabled=2",
        ),
        Some(_) => Check::ok(NAME, "refused"),
    }
}

fn receive_buffer() -> Check {
    const NAME: &str = "net.core.rmem_max";
    match read("/proc/sys/net/core/rmem_max") {
        // The mapped ring is not bounded by it, so no value is wrong.
        Some(bytes) => Check::ok(
            NAME,
            format!("{bytes} bytes (does not bound the capture ring)"),
        ),
        None => Check::new(NAME, Status::Unknown, "not readable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert_eq!(version_of("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version_of("4.9.0"), Some((4, 9)));
        assert_eq!(version_of("unknown"), None);
    }
}
