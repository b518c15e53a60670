//! Flows of tunnels themselves: those of UDP that carry the flows which are looked at within.

use flowgauge_flow::FlowRecord;
use flowgauge_stack::engine::{Step, idle};
use flowgauge_stack::{SettingError, Settings, options};
use flowgauge_stream::{Handler, Shard, ShardConfig};
use flowgauge_wire::{Batch, DecodedBatch, Nanos, PacketDescriptor};

options! {
    pub(super) const;
    /// Whether there are records of them.
    OUTER = outer_flows: Flag = "no", "also write a record of each UDP flow that carries tunnels, not only of the \
    inner flows; with one worker, because packets are assigned to workers by inner flow";
}

/// One ends after so long without packets, or earlier, as flows without an answer do in Suricata: mostly each direction has
/// a port of its own.
const IDLE: Nanos = Nanos(30_000_000_000);
/// Of all flows there may be, one in so many is a tunnel's.
const SHARE: u32 = 16;
const UDP: u8 = 17;

/// A flow table of packets with tunnels, from which nothing is taken out.
pub(super) struct Outer {
    shard: Box<Shard>,
    /// Packets of the batch at hand.
    chosen: Vec<PacketDescriptor>,
}

impl Outer {
    /// Of a component with these settings, if it is to tell of them: then these get a share of its flows.
    ///
    /// # Errors
    /// It runs on several cores.
    pub(super) fn of(
        settings: &Settings,
        config: &mut ShardConfig,
    ) -> Result<Option<Outer>, SettingError> {
        if !settings.flag(OUTER.name) {
            return Ok(None);
        }
        if settings.copies() > 1 {
            let error = SettingError::of(OUTER.name, "is for one core only");
            return Err(error.with_hint("leave it out, or run with one worker"));
        }
        let mut own = config.clone();
        own.decode.decapsulate = false;
        own.flow.led_clock = true;
        own.flow.udp_idle = own.flow.udp_idle.min(IDLE);
        own.flow.max_flows = (config.flow.max_flows / SHARE).max(1);
        config.flow.max_flows = (config.flow.max_flows - own.flow.max_flows).max(1);
        Ok(Some(Outer {
            shard: Box::new(Shard::new(own)),
            chosen: Vec::new(),
        }))
    }

    /// Takes those packets of a batch that have a tunnel.
    pub(super) fn choose(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        let tunnelled = decoded.packets.iter().filter(|packet| packet.tunnel > 0);
        let packets = tunnelled.filter_map(|packet| batch.packets.get(usize::from(packet.index)));
        self.chosen.extend(packets);
    }

    /// Goes on, behind what takes the same step for the flows within.
    pub(super) fn step(&mut self, step: &Step<'_, '_>, give: impl FnMut(&FlowRecord<'_>)) {
        let mut handler = Flows(give);
        match step {
            Step::Packets(packets) if !self.chosen.is_empty() => {
                let batch = Batch::new(packets.batch.memory, &self.chosen);
                self.shard.process(&batch, &mut handler);
                self.chosen.clear();
            }
            Step::Packets(_) => {}
            Step::Tick(now) => self.shard.process(&idle(*now), &mut handler),
            Step::Finish => self.shard.finish(&mut handler),
        }
    }
}

/// Gives on records of UDP flows.
struct Flows<F>(F);

impl<F: FnMut(&FlowRecord<'_>)> Handler for Flows<F> {
    fn flow(&mut self, record: &FlowRecord<'_>) {
        if record.protocol == UDP {
            (self.0)(record);
        }
    }
}
