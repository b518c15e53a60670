//! Options of components that subscribe to an engine, and the engine they stand for.

use flowgauge_reassembly::{OverlapPolicy, UnknownPolicy};
use flowgauge_stack::engine::Required;
use flowgauge_stack::{SettingError, Settings, options};
use flowgauge_stream::{ChecksumPolicy, Needs, ShardConfig, Shares, VlanAware};
use flowgauge_wire::Nanos;

options! {
    pub const;
    /// Option `checksums`: see [`checksums`].
    CHECKSUMS = checksums: Choice("auto", "verify", "ignore") = "auto",
        "wrong checksums: verify discards such packets, ignore does not check, auto discards them except from senders \
         without a correct one (checksum offloading)";
    /// Option `overlap_policy`.
    OVERLAP_POLICY = overlap_policy: Text = "first",
        "which copy of overlapping segments and fragments is kept: first, last, linux, windows, bsd, solaris and \
         others";
    /// Option `vlan_aware`: see [`VlanAware`].
    VLAN_AWARE = vlan_aware: Choice("auto", "yes", "no") = "auto",
        "whether equal endpoints in different VLANs are different flows; auto: if packets of the same direction are in \
         both (a VLAN per direction is one flow); yes: always";
}

/// The least `memory` for each core: room for hundreds of flows and whole datagrams.
const LEAST_MEMORY: u64 = 256 << 10;

options! {
    pub const;
    /// Option `memory`, in bytes.
    MEMORY = memory: Size,
        "memory for everything that grows with the input: flows, waiting segments and fragments, groups, bytes \
         collected for files; at least 256K per core";
    /// Option `max_flows`.
    MAX_FLOWS = max_flows: Integer(1, 1 << 30),
        "maximum number of tracked flows; beyond it, the longest idle is evicted";
    /// Option `tcp_timeout`.
    TCP_IDLE = tcp_timeout: Duration = "300s",
        "idle timeout of TCP connections, on the capture clock";
    /// Option `udp_timeout`.
    UDP_IDLE = udp_timeout: Duration = "60s", "idle timeout of UDP flows";
    /// Option `other_timeout`.
    OTHER_IDLE = other_timeout: Duration = "30s", "idle timeout of flows of other protocols";
    /// Option `closed_timeout`.
    CLOSED_TIMEOUT = closed_timeout: Duration = "5s",
        "idle timeout of TCP connections closed by both sides or reset";
    /// Option `active_timeout`.
    ACTIVE_TIMEOUT = active_timeout: Duration, "also write a record of each active flow at this interval";
    /// Option `community_id_seed`.
    COMMUNITY_ID_SEED = community_id_seed: Integer(0, 65_535) = "0", "seed of the Community ID";
}

/// The value of [`CHECKSUMS`].
///
/// # Errors
/// The value is unknown.
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

/// The engine for these options; part of the memory is for `needs`.
///
/// # Errors
/// As those of [`configuration`].
pub fn required(settings: &Settings, needs: Needs) -> Result<Option<Required>, SettingError> {
    let mut config = configuration(settings, needs)?;
    config.flow.active = settings.duration(ACTIVE_TIMEOUT.name).map(Nanos);
    Ok(Some(Required {
        config,
        streams: needs.streams,
        applications: None,
    }))
}

/// The engine's configuration for these options; part of the memory is for `needs`.
///
/// # Errors
/// The value of an option is unknown, or `memory` is too small.
pub fn configuration(settings: &Settings, needs: Needs) -> Result<ShardConfig, SettingError> {
    configuration_in(settings, settings.size("memory"), needs)
}

/// The same with this amount of memory in bytes, the remainder of the option `memory`.
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
