//! What components around the engine of `flowgauge-stream` have in common.

use flowgauge_stack::{OptionInfo, OptionKind, Packets, SettingError, Settings};
use flowgauge_stream::{ChecksumPolicy, Needs, ShardConfig, Shares};
use flowgauge_wire::{Batch, Nanos, PacketDescriptor};

pub(crate) const CHECKSUMS: OptionInfo = OptionInfo::new(
    "checksums",
    OptionKind::Choice(&["auto", "verify", "ignore"]),
    "what is done about wrong checksums; auto takes those of senders that compute none",
)
.or("auto");

pub(crate) const MEMORY: OptionInfo = OptionInfo::new(
    "memory",
    OptionKind::Size,
    "a bound for all that grows with the input, divided by its parts",
);

pub(crate) const MAX_FLOWS: OptionInfo = OptionInfo::new(
    "max_flows",
    OptionKind::Integer {
        min: 1,
        max: 1 << 30,
    },
    "flows at once; with more the longest idle one ends",
);

pub(crate) const TCP_IDLE: OptionInfo = OptionInfo::new(
    "tcp_timeout",
    OptionKind::Duration,
    "an idle TCP connection ends after so long, on the clock of the capture",
)
.or("300s");

pub(crate) const UDP_IDLE: OptionInfo = OptionInfo::new(
    "udp_timeout",
    OptionKind::Duration,
    "an idle UDP flow ends after so long",
)
.or("60s");

pub(crate) const OTHER_IDLE: OptionInfo = OptionInfo::new(
    "other_timeout",
    OptionKind::Duration,
    "an idle flow of another protocol ends after so long",
)
.or("30s");

/// What [`CHECKSUMS`] says.
pub(crate) fn checksums(settings: &Settings) -> Result<ChecksumPolicy, SettingError> {
    let policy = settings.text("checksums").unwrap_or("auto");
    policy
        .parse()
        .map_err(|message: String| SettingError::of("checksums", message))
}

/// The engine's configuration by these options.
pub(crate) fn configuration(settings: &Settings) -> Result<ShardConfig, SettingError> {
    let mut config = ShardConfig {
        checksums: checksums(settings)?,
        ..ShardConfig::default()
    };
    if let Some(bytes) = settings.size("memory") {
        if bytes < 1 << 20 {
            return Err(SettingError::of("memory", "is less than 1M"));
        }
        let shares = Shares::new(bytes, 1, Needs::default());
        config.flow.max_flows = shares.flows;
        config.defragment.max_bytes = shares.fragments;
        config = config.with_memory(shares.segments);
    }
    if let Some(flows) = settings.integer("max_flows") {
        config.flow.max_flows = u32::try_from(flows).unwrap_or(u32::MAX);
    }
    let flow = &mut config.flow;
    for (option, timeout) in [
        ("tcp_timeout", &mut flow.tcp_idle),
        ("udp_timeout", &mut flow.udp_idle),
        ("other_timeout", &mut flow.other_idle),
    ] {
        if let Some(nanos) = settings.duration(option) {
            *timeout = Nanos(nanos);
        }
    }
    Ok(config)
}

/// The selected packets as a batch of their own.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    packets: Vec<PacketDescriptor>,
}

impl Chosen {
    /// All packets of the batch if all are selected, else a list of those that are. Their headers are
    /// not looked at: the engine decodes them itself.
    pub(crate) fn of<'a>(&'a mut self, packets: &Packets<'a>) -> Batch<'a> {
        let all = packets.batch.packets;
        if packets.selected.len() == all.len() {
            return Batch::new(packets.batch.memory, all);
        }
        self.packets.clear();
        let selected = packets.selected.iter().filter_map(|index| all.get(index));
        self.packets.extend(selected);
        Batch::new(packets.batch.memory, &self.packets)
    }
}
