//! Inactivity timeouts.
//!
//! A connection ends once, for all applications and in both directions. The longest of the
//! applications' inactivity timeouts applies, so that no application loses a stream because of
//! another's shorter timeout.

use std::collections::BTreeMap;

use flowgauge_flow::FlowConfig;
use flowgauge_wire::Nanos;

use super::config::{ApplicationId, MAX_APPLICATIONS};
use super::core::{Core, flow_of};
use super::pass::{TCP, UDP};
use super::record::{RecordFlags, ViewAt};
use crate::shard::Shard;

/// A shorter timeout of a single stream counts as this: what time decides is decided once in a tick of
/// the capture clock, so that it does not depend on batches.
const LEAST: Nanos = Nanos(1 << 30);

/// Inactivity timeouts of the applications and of single streams.
#[derive(Debug)]
pub(super) struct Silences {
    /// Of TCP, UDP and other flows, where an application says nothing.
    table: [Nanos; 3],
    /// By flow and application, where a stream has its own.
    own: BTreeMap<(u32, u8), Nanos>,
    /// Flows whose timeout may be another by now.
    changed: Vec<u32>,
    /// Whether applications came, went or changed.
    stale: bool,
}

impl Silences {
    pub(super) fn new(config: &FlowConfig) -> Silences {
        Silences {
            table: [config.tcp_idle, config.udp_idle, config.other_idle],
            own: BTreeMap::new(),
            changed: Vec::new(),
            stale: false,
        }
    }
}

impl Core {
    /// An application gives a stream a timeout of its own, or takes it back.
    pub(super) fn set_silence(&mut self, at: ViewAt, timeout: Option<Nanos>) {
        let Some(application) = self.view(at).map(|view| view.application) else {
            return;
        };
        let flow = flow_of(at.record).0;
        let own = &mut self.silences.own;
        match timeout {
            Some(timeout) => own.insert((flow, application), timeout.max(LEAST)),
            None => own.remove(&(flow, application)),
        };
        self.silences.changed.push(flow);
    }

    /// Whether an application has a timeout beyond that of the table for some flows.
    pub(super) fn has_long_silence(&self) -> bool {
        let least = self.silences.table.into_iter().min().unwrap_or_default();
        let all = self.applications.iter().flatten();
        let all = all.filter_map(|one| one.config.inactivity_timeout);
        all.chain(self.silences.own.values().copied())
            .any(|timeout| timeout > least)
    }

    /// Applications came, went or changed.
    pub(super) fn note_silences(&mut self) {
        self.silences.stale = true;
    }

    /// What an application that goes has said does not hold for the next with its number.
    pub(super) fn forget_silences(&mut self, application: ApplicationId) {
        let changed = &mut self.silences.changed;
        self.silences.own.retain(|&(flow, of), _| {
            if of == application.0 {
                changed.push(flow);
            }
            of != application.0
        });
    }

    /// The flow of a stream has ended.
    #[inline]
    pub(super) fn forget_silence(&mut self, id: u32) {
        if !self.silences.own.is_empty() {
            let flow = flow_of(id).0;
            for application in 0..MAX_APPLICATIONS as u8 {
                self.silences.own.remove(&(flow, application));
            }
        }
    }

    /// Lets the flow table know, once no packet is under way.
    #[inline]
    pub(super) fn tell_silences(&mut self, shard: &mut Shard) {
        if self.silences.stale {
            self.tell_all(shard);
        }
        while let Some(flow) = self.silences.changed.pop() {
            shard.set_idle_of(2 * flow, self.silence_of(flow, shard));
        }
    }

    #[cold]
    fn tell_all(&mut self, shard: &mut Shard) {
        self.silences.stale = false;
        let [tcp, udp, other] = [0, 1, 2].map(|class| {
            let all = self.applications.iter().flatten();
            let longest = all.map(|one| {
                let timeout = one.config.inactivity_timeout;
                timeout.unwrap_or(self.silences.table[class])
            });
            longest.max().unwrap_or(self.silences.table[class])
        });
        shard.set_idle(tcp, udp, other);
        let flows = self.silences.own.keys().map(|key| key.0);
        self.silences.changed.extend(flows);
    }

    /// The timeout of a flow, where an application has said one for a stream of it.
    fn silence_of(&self, flow: u32, shard: &Shard) -> Option<Nanos> {
        let own = &self.silences.own;
        own.range((flow, 0)..=(flow, u8::MAX)).next()?;
        let record = (shard.tracker()).with_record(flow_of(2 * flow), |record| record.protocol);
        let class = match record? {
            TCP => 0,
            UDP => 1,
            _ => 2,
        };
        let is_wanted = |id: &u32| {
            let record = self.records.get(*id);
            record.is_some_and(|record| !record.flags.has(RecordFlags::UNWANTED))
        };
        let directions = [2 * flow, 2 * flow + 1].into_iter().filter(is_wanted);
        let views = directions.flat_map(|id| self.views_of(id));
        views
            .filter_map(|at| self.view(at))
            .filter_map(|view| {
                let application = self.applications.get(usize::from(view.application))?;
                let of_all = application.as_ref()?.config.inactivity_timeout;
                let of_stream = own.get(&(flow, view.application)).copied();
                Some(of_stream.or(of_all).unwrap_or(self.silences.table[class]))
            })
            .max()
    }
}
