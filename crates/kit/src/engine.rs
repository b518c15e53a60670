//! Options of components that subscribe to an engine, and the engine that they ask for.

use flowgauge_reassembly::{OverlapPolicy, UnknownPolicy};
use flowgauge_stack::engine::Required;
use flowgauge_stack::{OptionInfo, OptionKind, SettingError, Settings};
use flowgauge_stream::{ChecksumPolicy, Needs, ShardConfig, Shares, VlanAware};
use flowgauge_wire::Nanos;

/// Option `checksums`: see [`checksums`].
pub const CHECKSUMS: OptionInfo = OptionInfo::new(
    "checksums",
    OptionKind::Choice(&["auto", "verify", "ignore"]),
    "what to do with wrong checksums: verify refuses such packets, ignore does not look, auto refuses them, except from \
     senders all of whose packets are wrong (offloading hosts)",
)
.or("auto");

/// Option `overlap_policy`.
pub const OVERLAP_POLICY: OptionInfo = OptionInfo::new(
    "overlap_policy",
    OptionKind::Text,
    "which copy of overlapping segments and fragments counts: first, last, linux, windows, bsd, solaris and others",
)
.or("first");

/// Option `vlan_aware`: see [`VlanAware`].
pub const VLAN_AWARE: OptionInfo = OptionInfo::new(
    "vlan_aware",
    OptionKind::Choice(&["auto", "yes", "no"]),
    "whether equal endpoints in different VLANs are different flows; auto: where packets go from one address to \
     another in both VLANs, so that a VLAN for each direction is one flow; yes: always",
)
.or("auto");

/// The least `memory` for each core: room for hundreds of flows and whole datagrams.
const LEAST_MEMORY: u64 = 256 << 10;

/// Option `memory`, in bytes.
pub const MEMORY: OptionInfo = OptionInfo::new(
    "memory",
    OptionKind::Size,
    "memory for all that grows with the input: flows, segments and fragments that wait, groups, bytes collected for \
     files; at least 256K for each core",
);

/// Option `max_flows`.
pub const MAX_FLOWS: OptionInfo = OptionInfo::new(
    "max_flows",
    OptionKind::Integer {
        min: 1,
        max: 1 << 30,
    },
    "flows tracked at once; the longest idle one ends when there are more",
);

/// Option `tcp_timeout`.
pub const TCP_IDLE: OptionInfo = OptionInfo::new(
    "tcp_timeout",
    OptionKind::Duration,
    "an idle TCP connection ends after so long, on the clock of the capture",
)
.or("300s");

/// Option `udp_timeout`.
pub const UDP_IDLE: OptionInfo = OptionInfo::new(
    "udp_timeout",
    OptionKind::Duration,
    "an idle UDP flow ends after so long",
)
.or("60s");

/// Option `other_timeout`.
pub const OTHER_IDLE: OptionInfo = OptionInfo::new(
    "other_timeout",
    OptionKind::Duration,
    "an idle flow of another protocol ends after so long",
)
.or("30s");

/// Option `closed_timeout`.
pub const CLOSED_TIMEOUT: OptionInfo = OptionInfo::new(
    "closed_timeout",
    OptionKind::Duration,
    "a TCP connection that both sides closed, or one reset, ends after so long without packets",
)
.or("5s");

/// Option `active_timeout`.
pub const ACTIVE_TIMEOUT: OptionInfo = OptionInfo::new(
    "active_timeout",
    OptionKind::Duration,
    "write a record of flows that last longer than this, again and again",
);

/// Option `community_id_seed`.
pub const COMMUNITY_ID_SEED: OptionInfo = OptionInfo::new(
    "community_id_seed",
    OptionKind::Integer {
        min: 0,
        max: 65_535,
    },
    "seed of the Community ID",
)
.or("0");

/// What [`CHECKSUMS`] says.
///
/// # Errors
/// It says nothing that is known.
pub fn checksums(settings: &Settings) -> Result<ChecksumPolicy, SettingError> {
    let policy = settings.text("checksums").unwrap_or("auto");
    policy
        .parse()
        .map_err(|message: String| SettingError::of("checksums", message))
}

/// What [`OVERLAP_POLICY`] says.
fn policy(settings: &Settings) -> Result<OverlapPolicy, SettingError> {
    let policy = settings.text("overlap_policy").unwrap_or("first");
    policy
        .parse()
        .map_err(|error: UnknownPolicy| SettingError::of("overlap_policy", error.to_string()))
}

/// The engine that these options ask for, where memory is wanted for `needs`, too.
///
/// # Errors
/// As those of [`configuration`].
pub fn required(settings: &Settings, needs: Needs) -> Result<Option<Required>, SettingError> {
    let mut config = configuration(settings, needs)?;
    config.flow.active = settings.duration(ACTIVE_TIMEOUT.name).map(Nanos);
    Ok(Some(Required {
        config,
        streams: needs.streams,
    }))
}

/// The engine's configuration by these options, where memory is wanted for `needs`, too.
///
/// # Errors
/// An option says nothing that is known, or `memory` is too little.
pub fn configuration(settings: &Settings, needs: Needs) -> Result<ShardConfig, SettingError> {
    configuration_in(settings, settings.size("memory"), needs)
}

/// The same with this bound for memory, in bytes: what is left of the option `memory`.
///
/// # Errors
/// As those of [`configuration`].
pub fn configuration_in(
    settings: &Settings,
    memory: Option<u64>,
    needs: Needs,
) -> Result<ShardConfig, SettingError> {
    let mut config = ShardConfig {
        checksums: checksums(settings)?,
        ..ShardConfig::default()
    }
    .with_policy(policy(settings)?);
    if let Some(bytes) = memory {
        let copies = settings.copies() as u64;
        let least = LEAST_MEMORY * copies;
        // What is said is the option's, whatever others have of it.
        if settings.size("memory").unwrap_or(bytes) < least {
            let message = format!("is less than {}K, 256K for each core", least >> 10);
            return Err(SettingError::of("memory", message));
        }
        let shares = Shares::new(bytes, copies, needs);
        config.flow.max_flows = shares.flows;
        config.defragment.max_bytes = shares.fragments;
        config = config.with_memory(shares.segments);
    }
    if let Some(flows) = settings.integer("max_flows") {
        let share = flows.unsigned_abs().div_ceil(settings.copies() as u64);
        config.flow.max_flows = u32::try_from(share).unwrap_or(u32::MAX);
    }
    config.vlans = match settings.text("vlan_aware") {
        Some("yes") => VlanAware::Yes,
        Some("no") => VlanAware::No,
        _ => VlanAware::Auto,
    };
    let flow = &mut config.flow;
    for (option, timeout) in [
        ("tcp_timeout", &mut flow.tcp_idle),
        ("udp_timeout", &mut flow.udp_idle),
        ("other_timeout", &mut flow.other_idle),
        ("closed_timeout", &mut flow.linger),
    ] {
        if let Some(nanos) = settings.duration(option) {
            *timeout = Nanos(nanos);
        }
    }
    Ok(config)
}
