//! How a device is, for who asks.

use flowgauge_runtime::stacks::Shared;
use flowgauge_sensor_client::protocol::{FlowStatus, StackStatus};
use flowgauge_stack::Stack;

use super::programs::{self, Programs};
use super::{Work, name_of};
use crate::device::{Shown, ShownStack};

impl Work {
    /// How it is; with what is computed once for whom, if that is `shared`.
    pub(super) fn shown(&mut self, shared: bool) -> Shown {
        self.account();
        let status = |stack: &Stack, at: Option<usize>, flows: Vec<FlowStatus>| StackStatus {
            stack: name_of(stack),
            flows,
            components: stack.nodes.iter().map(|node| node.label.clone()).collect(),
            failure: (self.failures.get(&name_of(stack))).map(|failed| failed.what.clone()),
            cpu_ns: at.map_or(0, |at| self.runner.cost(at)),
        };
        let always = self.always.iter().map(|stack| {
            let mut running = self.runner.stacks().iter();
            let at = running.position(|it| it.name == stack.name);
            ShownStack {
                status: status(stack, at, Vec::new()),
                hidden: 0,
                failure: None,
            }
        });
        let served = self.served.iter().map(|served| {
            let flows = served.flows.iter().map(|flow| {
                let (lost, waiting) = flow.ring.fill();
                FlowStatus {
                    flow: flow.number,
                    user: flow.account.who().0,
                    name: None,
                    process: flow.process,
                    seconds: flow.opened.elapsed().as_secs(),
                    cpu_ns: flow.spent,
                    lost,
                    waiting,
                }
            });
            let failed = self.failures.get(&name_of(&served.stack));
            ShownStack {
                status: status(&served.stack, served.at, flows.collect()),
                hidden: served.hidden,
                failure: failed.map(|failed| served.explain(failed)),
            }
        });
        let programs = self.programs.iter();
        let programs = programs.flat_map(|it| {
            let programs = it.status().programs.into_iter();
            programs.map(|program| it.shown(&program))
        });
        let stacks: Vec<ShownStack> = always.chain(served).chain(programs).collect();
        let shared = match shared {
            true => self.shared(&stacks),
            false => Vec::new(),
        };
        Shown {
            shared,
            sharing: self.programs.as_ref().map(Programs::status),
            state: self.state,
            is_behind: self.source.is_behind(),
            offload: self.kept_away(),
            errors: self.errors.clone(),
            stacks,
            ledger: self.ledger(),
        }
    }

    /// What is computed once for which of these stacks, of which programs are the last.
    fn shared(&self, stacks: &[ShownStack]) -> Vec<Shared> {
        let others = self.always.len() + self.served.len();
        let places = |stack: &Stack| {
            let name = name_of(stack);
            if name == programs::NAME {
                return (others..stacks.len()).collect();
            }
            let place = stacks.iter().position(|shown| shown.status.stack == name);
            place.into_iter().collect::<Vec<usize>>()
        };
        let all: Vec<_> = self.runner.stacks().iter().map(places).collect();
        let shared = self.runner.shared().into_iter();
        let places = |stack: usize| all.get(stack).cloned().unwrap_or_default();
        shared.map(|shared| shared.renumbered(&places)).collect()
    }
}
