//! Workers, with the queues to them and back.

use std::collections::VecDeque;
use std::sync::Arc;

use flowgauge_stream::engine::Budget;

use crate::application::Team;
use crate::clock::Clock;
use crate::outlet::{Lane, Load, Outlet};
use crate::queue::{Bell, queue};
use crate::worker::{Inlet, Worker};

/// Events that may wait for a worker in its queue from each sender, and orders on their way back.
const WAITING_EVENTS: usize = 256;
const WAITING_ORDERS: usize = 256;

/// A worker for each team, and the outlets of those who send them events. What workers keep is charged to
/// `budget`; `patient` senders wait for workers.
pub(crate) fn workers<'a>(
    teams: Vec<Team<'a>>,
    senders: usize,
    budget: &Budget,
    patient: bool,
) -> (Vec<Outlet>, Vec<Worker<'a>>) {
    let loads: Arc<[Load]> = teams.iter().map(|_| Load::default()).collect();
    let clock = Clock::start();
    let mut workers: Vec<Worker<'a>> = (teams.into_iter().enumerate())
        .map(|(number, team)| Worker {
            number,
            inlets: Vec::with_capacity(senders),
            bell: Bell::new(),
            team,
            loads: Arc::clone(&loads),
            clock,
            budget: budget.clone(),
            joined: Vec::new(),
        })
        .collect();
    let of_its_own = !patient && senders == workers.len();
    let outlets = (0..senders)
        .map(|sender| {
            let bell = Bell::new();
            let lanes = workers
                .iter_mut()
                .map(|worker| {
                    let (queue_in, queue_out) = queue(WAITING_EVENTS, &bell, &worker.bell);
                    // A sender looks at its orders now and then; nobody waits for it to.
                    let aside = Bell::new();
                    let (orders_in, orders_out) = queue(WAITING_ORDERS, &aside, &aside);
                    worker.inlets.push(Inlet {
                        queue: queue_out,
                        orders: orders_in,
                        aside: VecDeque::new(),
                        shard: Arc::clone(&bell),
                    });
                    Lane {
                        queue: queue_in,
                        orders: orders_out,
                        aside: VecDeque::new(),
                    }
                })
                .collect();
            Outlet::new(
                lanes,
                Arc::clone(&loads),
                bell,
                patient,
                of_its_own.then_some(sender),
            )
        })
        .collect();
    (outlets, workers)
}
