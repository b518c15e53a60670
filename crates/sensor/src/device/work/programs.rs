//! Programs with libscap: a stack of their device, which runs while there are some.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use flowgauge_capture::PacketSource;
use flowgauge_runtime::shared::{Program, Said, Service};
use flowgauge_sensor_client::programs::{ClientStatus, OpenedCapture, SharingStatus};
use flowgauge_sensor_client::protocol::{FlowStatus, StackStatus};
use flowgauge_stack::engine::{Feed, Required, SharedApplications, Step};
use flowgauge_stack::{
    Component, ComponentInfo, Outlet, Output, Parallel, Registry, Settings, Stack,
};
use flowgauge_stream::{Shard, ShardConfig};
use parking_lot::Mutex;

use super::Work;
use crate::accounts::Account;
use crate::device::{ShownStack, State};
use crate::sharing::Sharing;
use crate::text;

/// The stack. No user's has this name.
pub(super) const NAME: &str = "programs with libscap";

/// What the stack consists of.
static STREAMS: ComponentInfo = ComponentInfo {
    name: "streams_for_programs",
    summary: "gives libscap programs the streams of its packets",
    output: Output::Nothing,
    is_end: true,
    parallel: Parallel::Never("its memory is one"),
    engine: Some(|settings| {
        let applications = service(settings);
        Ok(Some(Required {
            config: ShardConfig::default(),
            streams: false,
            applications: applications.map(|it| SharedApplications(it as _)),
        }))
    }),
    make: |settings| Ok(Box::new(Streams(service(settings)))),
    ..ComponentInfo::OF_PACKETS
};

/// Without a service it is only checked.
struct Streams(Option<Arc<Mutex<Service>>>);

fn service(settings: &Settings) -> Option<Arc<Mutex<Service>>> {
    settings.attached::<Arc<Mutex<Service>>>().cloned()
}

impl Component for Streams {
    fn take(&mut self, feed: Feed<'_, '_>, _: &mut dyn Outlet) {
        // (Where stacks share the engine it has the packets already.)
        if let Feed::Step(Some(engine), step) = feed {
            engine.take_for_applications(&step);
        }
    }

    fn end_step(&mut self, _: &Step<'_, '_>, _: Option<&Shard>, _: &mut dyn Outlet) {
        if let Some(service) = &self.0 {
            service.lock().settle();
        }
    }
}

/// Programs that share a device.
pub(super) struct Programs {
    interface: String,
    service: Arc<Mutex<Service>>,
    stack: Stack,
    flows: Vec<ProgramFlow>,
    /// Which of the runner's stacks it is, if it runs, and what that had cost when it was looked last.
    at: Option<usize>,
    cost: u64,
}

/// A program as a flow.
struct ProgramFlow {
    number: u64,
    account: Arc<Account>,
    /// Its part of the cost, in nanoseconds.
    spent: u64,
}

impl Programs {
    pub(super) fn new(sharing: &Sharing) -> Result<Programs, String> {
        let service = Service::new(sharing.memory, sharing.grace, sharing.for_many);
        let service = Arc::new(Mutex::new(service.map_err(|error| error.to_string())?));
        let mut stack = text::of(NAME, STREAMS.name, &Registry::new([&STREAMS]))?;
        for node in Arc::make_mut(&mut stack.nodes) {
            node.settings.attach(Arc::clone(&service));
        }
        Ok(Programs {
            interface: sharing.interface.clone(),
            service,
            stack,
            flows: Vec::new(),
            at: None,
            cost: 0,
        })
    }

    /// Its stack, if that is to run.
    pub(super) fn stack(&self) -> Option<&Stack> {
        (!self.flows.is_empty()).then_some(&self.stack)
    }

    pub(super) fn set_place(&mut self, at: Option<usize>) {
        self.at = at;
    }

    /// Whose a program is.
    pub(super) fn account(&self, number: u64) -> Option<&Arc<Account>> {
        let flow = self.flows.iter().find(|flow| flow.number == number);
        flow.map(|flow| &flow.account)
    }

    /// Looks after counters and memory once a batch has been taken. Returns whether the last program has gone, and the grace with
    /// it.
    pub(super) fn attend_to<S: PacketSource + ?Sized>(&self, source: &mut S, idle: bool) -> bool {
        self.service.lock().attend_to(source, idle)
    }

    /// The capture is over: programs get what is left, and why.
    pub(super) fn finish<S: PacketSource + ?Sized>(self, source: &mut S, why: &str) {
        self.service.lock().finish(source, why);
    }

    pub(super) fn status(&self) -> SharingStatus {
        SharingStatus {
            interface: self.interface.clone(),
            ..self.service.lock().status()
        }
    }

    /// A program as a stack of its own.
    pub(super) fn shown(&self, program: &ClientStatus) -> ShownStack {
        let flow = self.flows.iter().find(|flow| flow.number == program.flow);
        let cpu_ns = flow.map_or(0, |flow| flow.spent);
        let flow = FlowStatus {
            flow: program.flow,
            user: program.user,
            process: program.process,
            seconds: program.seconds,
            cpu_ns,
            lost: program.statistics.lost_events(),
            waiting: program.held,
            ..FlowStatus::default()
        };
        ShownStack {
            status: StackStatus {
                stack: format!("flow {}", program.flow),
                flows: vec![flow],
                components: vec![format!("streams for {}", program.name)],
                cpu_ns,
                ..StackStatus::default()
            },
            hidden: 0,
            failure: None,
        }
    }
}

impl Work {
    /// Programs that are slow are waited for from now on, as the capture comes to its end.
    pub(super) fn begin_end(&self) {
        if let Some(programs) = &self.programs {
            programs.service.lock().begin_end();
        }
    }

    /// Lets programs share the interface.
    pub(super) fn share(&mut self) {
        match self.sharing.as_ref().map(Programs::new).transpose() {
            Ok(programs) => self.programs = programs,
            Err(error) => self.note(error),
        }
    }

    /// A program asks for something.
    pub(super) fn hear(&mut self, number: u64, said: Said) {
        if matches!(said, Said::Leave | Said::End(_)) {
            self.retire(number);
        }
        if let Some(programs) = &self.programs {
            programs.service.lock().hear(number, said);
        }
    }

    /// Gives a program the last partial chunks and the ends of its streams, as at the end of a capture.
    fn retire(&mut self, number: u64) {
        let programs = self.programs.as_ref();
        let its = programs.and_then(|it| it.at.zip(it.service.lock().application(number)));
        if let Some((at, application)) = its {
            self.runner.with_engine(at, &mut |engine| {
                engine.for_applications(|engine, events| engine.retire(application, events));
            });
        }
    }

    /// Programs that share it get what is left, and why no more comes. (A runner that has finished has ended their streams.)
    pub(super) fn unshare(&mut self, otherwise: &str) {
        let flows = self.programs.iter().flat_map(|it| &it.flows);
        let numbers: Vec<u64> = flows.map(|flow| flow.number).collect();
        if self.state != State::Ended {
            self.begin_end();
            numbers.into_iter().for_each(|number| self.retire(number));
        }
        let Some(programs) = self.programs.take() else {
            return;
        };
        let _ = self.run_stacks(false);
        let reason = self.errors.last().map_or(otherwise, String::as_str);
        programs.finish(&mut *self.source, reason);
    }

    /// A program joins.
    pub(super) fn join(
        &mut self,
        number: u64,
        program: Program,
        account: &Arc<Account>,
    ) -> Result<(OpenedCapture, Vec<OwnedFd>), String> {
        let Some(programs) = &mut self.programs else {
            return Err("its interface is not captured now".to_owned());
        };
        let ledger = self.source.ledger();
        let joined = programs.service.lock().join(number, program, &ledger)?;
        let is_first = programs.flows.is_empty();
        programs.flows.push(ProgramFlow {
            number,
            account: Arc::clone(account),
            spent: 0,
        });
        if is_first && let Err(error) = self.run_stacks(false) {
            self.dismiss(number);
            return Err(error);
        }
        Ok(joined)
    }

    /// A program has gone. Whether there was one with this number.
    pub(super) fn dismiss(&mut self, number: u64) -> bool {
        let Some(programs) = &mut self.programs else {
            return false;
        };
        let was_there = programs.service.lock().dismiss(number);
        programs.flows.retain(|flow| flow.number != number);
        if was_there && programs.flows.is_empty() {
            let _ = self.run_stacks(false);
        }
        was_there
    }

    /// Charges users with what their programs cost, which pay evenly.
    pub(super) fn account_programs(&mut self) {
        let Some(programs) = &mut self.programs else {
            return;
        };
        let cost = programs.at.map_or(0, |at| self.runner.cost(at));
        // Of a stack that began anew it counts from zero.
        let share = cost.checked_sub(programs.cost).unwrap_or(cost);
        let share = share / programs.flows.len().max(1) as u64;
        programs.cost = cost;
        for flow in &mut programs.flows {
            flow.spent += share;
            flow.account.charge(share);
        }
    }
}
