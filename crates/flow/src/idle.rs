//! Idle timeouts, of protocols and of individual flows, which can be changed at any time.

use flowgauge_wire::Nanos;

use crate::config::FlowConfig;
use crate::fast_path::Quiet;
use crate::flow::FlowFlags;
use crate::packet_flow::FlowId;
use crate::tcp;
use crate::tracker::{CLASSES, Class, FlowTracker};
use crate::wheel::{Link, TICK_SHIFT, Wheel, ticks_of};

impl FlowTracker {
    /// Sets the idle timeouts of TCP, UDP and other flows, including those in the table. Flows that
    /// have been idle for longer end with the next packets.
    pub fn set_idle(&mut self, tcp: Nanos, udp: Nanos, other: Nanos) {
        let config = FlowConfig {
            tcp_idle: tcp,
            udp_idle: udp,
            other_idle: other,
            ..self.config
        };
        if config == self.config {
            return;
        }
        self.config = config;
        let own = self.timeouts[Class::Own as usize];
        self.timeouts = timeouts_of(&config);
        self.timeouts[Class::Own as usize] = own;
        self.rehang(|_| true);
    }

    /// Sets an individual idle timeout for a flow in the table; `None`: that of its protocol. A closed
    /// flow lingers like others. In a full table, such flows are evicted in the order of their
    /// timeouts.
    pub fn set_idle_of(&mut self, id: FlowId, timeout: Option<Nanos>) {
        let Some(flow) = self.flows.get_mut(id.0) else {
            return;
        };
        let flags = flow.hot.flags;
        if !flags.has(FlowFlags::LIVE) || flags.has(FlowFlags::CLOSED) {
            return;
        }
        let before = Class::of(flow);
        self.wheels[before as usize].remove(&mut self.links, id.0);
        if let Some(timeout) = timeout {
            self.extras.of(flow).idle = timeout;
            flow.hot.seen[1] |= tcp::seen::OWN_TIMEOUT;
            self.allow_own(timeout);
        } else {
            flow.hot.seen[1] &= !tcp::seen::OWN_TIMEOUT;
        }
        let after = Class::of(self.flows.at(id.0)) as usize;
        let look_at = self.look_at(after, id.0).min(self.tick);
        // (It hangs there already where all were hung anew.)
        self.wheels[after].remove(&mut self.links, id.0);
        self.wheels[after].insert_old(&mut self.links, id.0, look_at);
        self.overdue = true;
    }

    /// The tick at which a flow of `class` was seen last, as its wheel counts: where the flow's own
    /// timeout is longer than the wheel's it lies later, in the future perhaps.
    #[inline(always)]
    pub(crate) fn look_at(&mut self, class: usize, id: u32) -> u32 {
        let flow = self.flows.at(id);
        if class != Class::Own as usize {
            return flow.hot.last_tick;
        }
        let shortest = self.timeouts[class];
        let own = self
            .extras
            .existing(flow)
            .map_or(shortest, |extra| extra.idle);
        let longer = ticks_of(own.0).saturating_sub(ticks_of(shortest.0));
        let look_at = u64::from(flow.hot.last_tick) + longer;
        look_at.min(u64::from(u32::MAX)) as u32
    }

    /// Flows with timeouts of their own are looked at once in the shortest of these, which is rounded
    /// down to a power of two, so that it changes seldom.
    fn allow_own(&mut self, timeout: Nanos) {
        let own = Class::Own as usize;
        if timeout < self.timeouts[own] {
            let ticks = (timeout.0 >> TICK_SHIFT).max(1);
            self.timeouts[own] = Nanos((1 << ticks.ilog2()) << TICK_SHIFT).min(timeout);
            self.rehang(|class| class == Class::Own);
        }
    }

    /// Hangs all flows of classes whose timeouts have changed into new wheels.
    #[cold]
    fn rehang(&mut self, changed: impl Fn(Class) -> bool) {
        self.quiet = Quiet::of(&self.config, self.timeouts[Class::Own as usize]);
        self.overdue = true;
        for class in Class::ALL.into_iter().filter(|&class| changed(class)) {
            let timeout = self.timeouts[class as usize];
            self.wheels[class as usize] = Wheel::new(timeout.0);
        }
        let mut flows = Vec::new();
        for id in 0..self.flows.len() {
            let flow = self.flows.at(id);
            let class = Class::of(flow);
            if flow.hot.flags.has(FlowFlags::LIVE) && changed(class) {
                let look_at = self.look_at(class as usize, id).min(self.tick);
                flows.push((look_at, id, class as usize));
            }
        }
        // A wheel turns one way.
        flows.sort_unstable();
        for (look_at, id, class) in flows {
            *self.links.at(id) = Link::NONE;
            self.wheels[class].insert(&mut self.links, id, look_at);
        }
    }
}

/// The timeouts of the classes.
pub(crate) fn timeouts_of(config: &FlowConfig) -> [Nanos; CLASSES] {
    [
        config.tcp_idle,
        config.udp_idle,
        config.other_idle,
        config.linger,
        config.tcp_idle,
        config.udp_idle,
        config.other_idle,
        Nanos(u64::MAX),
    ]
}
