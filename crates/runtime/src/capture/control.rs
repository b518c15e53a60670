//! Control of a running capture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_capture::live::StopHandle;
use flowgauge_stream::engine::{ApplicationConfig, ApplicationId, EngineStatistics, HostPolicies};
#[cfg(doc)]
use flowgauge_stream::engine::{Engine, EngineConfig};
use flowgauge_wire::Ledger;

#[cfg(doc)]
use crate::capture::Capture;
use crate::changes::{Change, Changes, Reader};
use crate::outlet::Lost;

/// Stops, changes and observes a capture from any thread. Clones control the same capture.
#[derive(Clone, Debug, Default)]
pub struct Control {
    stop: Arc<AtomicBool>,
    changes: Arc<Changes>,
    shards: Arc<Mutex<Vec<ShardProgress>>>,
    /// 0 where nothing was granted.
    granted: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Default)]
struct ShardProgress {
    ledger: Ledger,
    statistics: EngineStatistics,
    lost: Lost,
}

/// Counters of a running capture; slightly out of date.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What became of the packets.
    pub ledger: Ledger,
    /// Sum of the engines' counters, without those of lower layers.
    pub statistics: EngineStatistics,
    /// Events that did not reach the handlers: [`Outcome::lost`](crate::Outcome::lost) so far.
    pub lost: Lost,
}

impl Control {
    /// A control that stops the capture when `flag` is set, for signal handlers.
    pub fn with_flag(flag: Arc<AtomicBool>) -> Control {
        Control {
            stop: flag,
            ..Control::default()
        }
    }

    /// Stops the capture: files at the next batch, interfaces once their rings are empty. Packets already captured
    /// are still processed.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether the capture was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Changes the configuration of an application, numbered in the order of [`Capture::application`], from the next
    /// batch of packets on. `change` is called once per engine. A new inactivity timeout applies to all streams,
    /// other settings to streams created later. False if too many changes are pending.
    ///
    /// In a shared capture, filters, including those of classes, must be made from expressions
    /// ([`stream_filter`](crate::stream_filter)); changes that are not are counted in
    /// [`Lost::commands`](crate::Lost::commands).
    ///
    /// ```
    /// # use flowgauge_runtime::Control;
    /// # use flowgauge_stream::engine::{ApplicationId, Cutoff};
    /// # let control = Control::default();
    /// // From now on no more than the beginnings.
    /// control.change(ApplicationId(0), |wanted| wanted.cutoff.default = Cutoff(10_000));
    /// ```
    pub fn change(
        &self,
        application: ApplicationId,
        change: impl Fn(&mut ApplicationConfig) + Send + Sync + 'static,
    ) -> bool {
        self.changes
            .push(Change::Application(application, Arc::new(change)))
    }

    /// Changes the base threshold ([`EngineConfig::base_threshold`]) from the next batch of packets on. False if too
    /// many changes are pending. In a shared capture, it is a share of the client's own memory.
    pub fn set_base_threshold(&self, share: f64) -> bool {
        self.changes.push(Change::BaseThreshold(share))
    }

    /// Changes the overload cutoff ([`EngineConfig::overload_cutoff`]), like [`Control::set_base_threshold`].
    pub fn set_overload_cutoff(&self, cutoff: Option<u64>) -> bool {
        self.changes.push(Change::OverloadCutoff(cutoff))
    }

    /// Changes the overlap policies ([`Engine::set_policies`]) of streams created from the next batch of packets on.
    /// False if too many changes are pending. A shared capture keeps the policies of the capturing process.
    pub fn set_policies(&self, policies: HostPolicies) -> bool {
        self.changes.push(Change::Policies(policies))
    }

    /// Stops a live source.
    pub(super) fn stop_handle(&self) -> StopHandle {
        StopHandle::from(Arc::clone(&self.stop))
    }

    /// Takes the changes, with so many threads.
    pub(crate) fn changes(&self, readers: usize) -> Vec<Reader> {
        self.changes.register(readers)
    }

    /// The counters so far.
    pub fn progress(&self) -> Progress {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = Progress::default();
        for shard in shards.iter() {
            progress.ledger.merge(&shard.ledger);
            progress.statistics.add(&shard.statistics);
            progress.lost.add(shard.lost);
        }
        progress
    }

    /// In a shared capture: bytes of chunks that may wait for this client, slightly out of date. `None` in a private
    /// one.
    pub fn granted_memory(&self) -> Option<u64> {
        let granted = self.granted.load(Ordering::Relaxed);
        (granted > 0).then_some(granted)
    }

    pub(crate) fn grant(&self, bytes: u64) {
        self.granted.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn publish(
        &self,
        number: usize,
        ledger: Ledger,
        statistics: EngineStatistics,
        lost: Lost,
    ) {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if shards.len() <= number {
            shards.resize_with(number + 1, ShardProgress::default);
        }
        if let Some(place) = shards.get_mut(number) {
            *place = ShardProgress {
                ledger,
                statistics,
                lost,
            };
        }
    }
}
