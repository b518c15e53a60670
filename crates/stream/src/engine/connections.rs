//! Charges connections to the memory budget.

use super::Engine;
use super::config::EngineConfig;

impl Engine {
    /// Charges the connections that there are now. The next batch may begin as many as there is memory for; then they take the
    /// places of others.
    pub(super) fn charge_connections(&mut self) {
        let Some(kept) = self.connection_bytes else {
            return;
        };
        let others = self.core.applications.len().saturating_sub(1) as u64;
        let each =
            EngineConfig::CONNECTION_CHARGE + others * EngineConfig::APPLICATION_CHARGE + kept;
        let wanted = each * self.shard.tracker().len() as u64;
        let budget = &self.core.budget;
        if wanted < self.charged {
            budget.release_tables(self.charged - wanted);
            self.charged = wanted;
        } else if wanted > self.charged {
            self.charged += budget.charge_tables(wanted - self.charged);
        }
        self.core.watermarks.set_tables(budget.tables());
        let most = (self.charged + budget.room_for_tables()) / each;
        self.shard
            .set_max_flows(u32::try_from(most).unwrap_or(u32::MAX));
    }
}
