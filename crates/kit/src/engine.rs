//! What components around the engine of `flowgauge-stream` have in common.

use flowgauge_reassembly::{OverlapPolicy, UnknownPolicy};
use flowgauge_stack::{Account, OptionInfo, OptionKind, Packets, SettingError, Settings};
use flowgauge_stream::{
    ChecksumPolicy, Findings, Handler, Needs, Shard, ShardConfig, Shares, VlanAware,
};
use flowgauge_wire::{Batch, Nanos, PacketDescriptor};

/// Option `checksums`: see [`checksums`].
pub const CHECKSUMS: OptionInfo = OptionInfo::new(
    "checksums",
    OptionKind::Choice(&["auto", "verify", "ignore"]),
    "what is done about wrong checksums; auto takes those of senders that compute none",
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
     another in both",
)
.or("auto");

/// The least `memory` for each core: room for hundreds of flows and whole datagrams.
const LEAST_MEMORY: u64 = 256 << 10;

/// Option `memory`, in bytes.
pub const MEMORY: OptionInfo = OptionInfo::new(
    "memory",
    OptionKind::Size,
    "a bound for all that grows with the input, divided by its parts",
);

/// Option `max_flows`.
pub const MAX_FLOWS: OptionInfo = OptionInfo::new(
    "max_flows",
    OptionKind::Integer {
        min: 1,
        max: 1 << 30,
    },
    "flows at once; with more the longest idle one ends",
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
    "write a record of a flow that goes on every so often",
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

/// The engine of a component that takes packets in a stack.
#[derive(Debug)]
pub struct Tracked {
    shard: Box<Shard>,
    chosen: Chosen,
}

impl Tracked {
    /// The clock of the stack leads it: that sees all packets, also those that other cores have.
    pub fn new(mut config: ShardConfig) -> Tracked {
        config.flow.led_clock = true;
        Tracked {
            shard: Box::new(Shard::new(config)),
            chosen: Chosen::default(),
        }
    }

    /// Takes the selected packets through the engine.
    pub fn process<H: Handler>(&mut self, packets: &Packets<'_>, handler: &mut H) {
        self.shard.process(&self.chosen.of(packets), handler);
    }

    /// The clock has gone on. Where packets have brought the engine's there already, or to within a tick of
    /// the flow table, there is nothing to do.
    pub fn tick<H: Handler>(&mut self, now: Nanos, handler: &mut H) {
        let tracker = self.shard.tracker();
        if tracker.clock() < now && !tracker.is_in_tick(now) {
            self.shard.process(&idle(now), handler);
        }
    }

    /// The input is over.
    pub fn finish<H: Handler>(&mut self, handler: &mut H) {
        self.shard.finish(handler);
    }

    /// The clock of the capture.
    pub fn clock(&self) -> Nanos {
        self.shard.tracker().clock()
    }

    /// The engine itself, to look at.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// What is to be told of it.
    pub fn account(&self) -> Account {
        account(&self.shard)
    }
}

/// What is next for an engine, whoever its handler is.
pub enum Step<'a, 'b> {
    /// Packets have come.
    Packets(&'a Packets<'b>),
    /// The clock has gone on.
    Tick(Nanos),
    /// The input is over.
    Finish,
}

impl Step<'_, '_> {
    /// Takes it.
    pub fn take<H: Handler>(&self, tracked: &mut Tracked, handler: &mut H) {
        match self {
            Step::Packets(packets) => tracked.process(packets, handler),
            Step::Tick(now) => tracked.tick(*now, handler),
            Step::Finish => tracked.finish(handler),
        }
    }
}

/// A batch that only moves the clock.
pub fn idle(now: Nanos) -> Batch<'static> {
    let mut idle = Batch::new(&[], &[]);
    idle.now = Some(now);
    idle
}

/// How far a batch has brought the clock.
pub fn time_of(packets: &Packets<'_>) -> Nanos {
    let last = packets.batch.packets.last();
    last.map(|last| last.time)
        .or(packets.batch.now)
        .unwrap_or_default()
}

/// What is to be told of a shard.
pub fn account(shard: &Shard) -> Account {
    Account {
        ledger: shard.ledger().clone(),
        findings: Findings::of(shard),
        shards: vec![shard.statistics()],
        ..Account::default()
    }
}

/// The selected packets as a batch of their own.
#[derive(Debug, Default)]
pub struct Chosen {
    packets: Vec<PacketDescriptor>,
}

impl Chosen {
    /// All packets of the batch if all are selected, else a list of those that are. Their headers are
    /// not looked at: the engine decodes them itself.
    pub fn of<'a>(&'a mut self, packets: &Packets<'a>) -> Batch<'a> {
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
