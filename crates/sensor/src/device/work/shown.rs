//! How a device is, for who asks.

use flowgauge_runtime::stacks::Shared;
use flowgauge_sensor_client::programs::{ClientStatus, SharingStatus};
use flowgauge_sensor_client::protocol::{FlowStatus, StackStatus};
use flowgauge_stack::Stack;

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
        let sharing = self.service.as_ref().zip(self.sharing.as_ref());
        let sharing = sharing.map(|(service, sharing)| SharingStatus {
            interface: sharing.interface.clone(),
            ..service.status()
        });
        let programs = sharing
            .iter()
            .flat_map(|it| &it.programs)
            .map(shown_program);
        let stacks: Vec<ShownStack> = always.chain(served).chain(programs).collect();
        let shared = match shared {
            true => self.shared(&stacks),
            false => Vec::new(),
        };
        Shown {
            shared,
            sharing,
            state: self.state,
            is_behind: self.source.is_behind(),
            errors: self.errors.clone(),
            stacks,
            ledger: self.ledger(),
        }
    }

    /// What is computed once for which of these stacks.
    fn shared(&self, stacks: &[ShownStack]) -> Vec<Shared> {
        let place = |stack: &Stack| {
            let name = name_of(stack);
            stacks.iter().position(|shown| shown.status.stack == name)
        };
        let places: Vec<_> = self.runner.stacks().iter().map(place).collect();
        let shared = self.runner.shared().into_iter();
        let place = |stack: usize| *places.get(stack)?;
        shared.map(|shared| shared.renumbered(&place)).collect()
    }
}

/// A program with libscap as a flow.
fn shown_program(program: &ClientStatus) -> ShownStack {
    let flow = FlowStatus {
        flow: program.flow,
        user: program.user,
        process: program.process,
        seconds: program.seconds,
        lost: program.statistics.lost_events(),
        waiting: program.held,
        ..FlowStatus::default()
    };
    ShownStack {
        status: StackStatus {
            stack: format!("flow {}", program.flow),
            flows: vec![flow],
            components: vec![format!("streams for {}", program.name)],
            ..StackStatus::default()
        },
        hidden: 0,
        failure: None,
    }
}
