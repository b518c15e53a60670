//! What flows cost their users, and what becomes of those that cost too much.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowgauge_runtime::stacks::Runner;

use super::{Served, ServedFlow, Work};
use crate::accounts::{Verdict, Who};

/// What takes packets away from flows whose users may have so many in a second.
const LIMIT: &str = "rate_limit";

/// How many that were, of a stack.
fn limited(runner: &Runner, served: &Served, at: usize) -> u64 {
    let forced = served.stack.nodes.iter().take(served.hidden).enumerate();
    let limits = forced.filter(|(_, node)| node.info.name == LIMIT);
    let limits: Vec<usize> = limits.map(|(place, _)| place).collect();
    let state = (!limits.is_empty()).then(|| runner.state(at)).flatten();
    let Some(state) = state else {
        return 0;
    };
    let came = |place: usize| state.components.get(place).map_or(0, |it| it.passed.items);
    let taken = |place| came(place).saturating_sub(came(place + 1));
    limits.into_iter().map(taken).sum()
}

/// Packets that did not come to a stack for its users' sake.
fn missed(runner: &Runner, served: &Served, at: usize) -> u64 {
    runner.missed(at) + limited(runner, served, at)
}

/// Of what a flow has cost this much is left after the next look at it.
const FADING: f64 = 0.99;
/// Flows that were cut off whose last results are kept.
const MOST_CUT: usize = 256;

impl Work {
    /// Charges users with what their flows cost. What several flows share they pay evenly. That of files counts for no share:
    /// they wait.
    pub(super) fn account(&mut self) {
        let is_live = self.interface.is_some();
        self.account_programs();
        for served in &mut self.served {
            let Some(at) = served.at else {
                continue;
            };
            let cost = self.runner.cost(at);
            let missed = missed(&self.runner, served, at);
            // One that began anew counts from zero.
            let share = cost.checked_sub(served.cost).unwrap_or(cost);
            let share = share / served.flows.len().max(1) as u64;
            let lost = missed.saturating_sub(served.missed);
            (served.cost, served.missed) = (cost, missed);
            for flow in &mut served.flows {
                flow.spent += share;
                flow.lately = flow.lately * FADING + share as f64;
                if lost > 0 {
                    flow.ring.lose(lost);
                }
                match is_live {
                    true => flow.account.charge(share),
                    false => flow.account.note(share),
                }
            }
        }
    }

    /// Packets that a flow has lost.
    pub(super) fn lost(&self, served: &Served, flow: &ServedFlow) -> u64 {
        let since = served.at.map_or(0, |at| {
            missed(&self.runner, served, at).saturating_sub(served.missed)
        });
        flow.ring.fill().0 + since
    }

    /// Lets flows of users who are over their share rest, or cuts one off, where others would lose packets for them.
    pub(super) fn relieve(&mut self) {
        let is_behind = self.source.is_behind();
        self.was_behind = is_behind;
        let mut verdicts: BTreeMap<Who, Verdict> = BTreeMap::new();
        for flow in self.served.iter().flat_map(|served| &served.flows) {
            let (account, overload) = (&flow.account, &mut self.overload);
            let is_over = || account.owes().is_some();
            let verdict = || overload.look(account.who(), is_over(), is_behind);
            verdicts.entry(account.who()).or_insert_with(verdict);
        }
        for served in &self.served {
            let mut flows = served.flows.iter();
            let rests =
                flows.all(|flow| verdicts.get(&flow.account.who()) != Some(&Verdict::Serve));
            if let Some(at) = served.at {
                self.runner.set_rests(at, rests);
            }
        }
        for (who, _) in verdicts.iter().filter(|(_, it)| **it == Verdict::Cut) {
            self.cut_off(*who);
        }
    }

    /// Ends the costliest flow of a user.
    pub(super) fn cut_off(&mut self, who: Who) {
        let flows = self.served.iter().flat_map(|served| &served.flows);
        let flows = flows.filter(|flow| flow.account.who() == who);
        let costliest = flows.max_by(|one, other| one.lately.total_cmp(&other.lately));
        let Some(flow) = costliest else {
            return;
        };
        let (number, ring) = (flow.number, Arc::clone(&flow.ring));
        let why = format!(
            "the flow was ended: packets were lost, and its user exceeds cpu = {} processors",
            flow.account.share()
        );
        if let Some(mut last) = self.close(&[number]) {
            last.failure = Some(why);
            while self.cut.len() >= MOST_CUT {
                self.cut.pop_first();
            }
            self.cut.insert(number, last);
        }
        ring.end();
    }
}
