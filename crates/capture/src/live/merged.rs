//! Several interfaces as one source, in the order of time.
//!
//! A tap has a port for each direction, and a bond distributes connections over its ports; connections are complete and
//! in order only across all ports. A ring delivers a packet when its block is full or retired, so an interface without
//! packets may still deliver earlier ones: packets of the others wait for that, at most as long as a block can take.

use std::time::Instant;

use flowgauge_sys::packet::{Fanout, RingSocket, wait_any};
use flowgauge_wire::{Batch, Ledger, Nanos, PacketDescriptor};

use super::source::{fanout_key, interface_error};
use super::{ANY, LiveConfig, LiveSource, StopHandle, fanout};
use crate::error::Error;
use crate::gathered::{Gathered, LENT};
use crate::source::{Interface, PacketSource};

/// Milliseconds until a block that is not full is retired: with several rings the others wait for it.
const RETIRE_MS: u32 = 4;

/// Packets from several interfaces, merged by time.
///
/// Packets with equal times are in the order of the interfaces. If an interface fails, the capture ends on all of them,
/// after the packets captured so far are delivered.
#[derive(Debug)]
pub struct MergedSource {
    members: Vec<Member>,
    interfaces: Vec<Interface>,
    /// Of short runs.
    gathered: Gathered,
    tick_ms: u32,
    stop: StopHandle,
    error: Option<Error>,
}

#[derive(Debug)]
struct Member {
    source: LiveSource,
    /// Its next packet in what it has loaded.
    at: usize,
}

impl Member {
    fn loaded(&self) -> &[PacketDescriptor] {
        self.source.loaded().get(self.at..).unwrap_or(&[])
    }

    fn head(&self) -> Option<Nanos> {
        self.loaded().first().map(|packet| packet.time)
    }

    /// Before this time nothing more comes of it, as far as a packet of that `time` has to wait for it: one with
    /// a time that is yet to come (the clock was set back) does not.
    fn bound(&self, time: Nanos) -> Nanos {
        match self.head() {
            Some(head) => head,
            None if self.source.is_over() || time > self.source.looked() => Nanos(u64::MAX),
            None => self.source.bound(),
        }
    }

    /// Loads more where all that was loaded is gone.
    fn load(&mut self) -> Result<(), Error> {
        if self.head().is_none() && !self.source.is_over() {
            self.at = 0;
            self.source.load()?;
        }
        Ok(())
    }
}

impl MergedSource {
    /// Starts capturing on all these interfaces with `count` sources. Each flow goes to one of them, regardless of the
    /// interfaces its packets arrive on (see [`LiveSource::open_group`]). All sources have the same stop handle.
    ///
    /// # Errors
    /// As [`LiveSource::open`]; [`ANY`] cannot be one of several.
    pub fn open_group(configs: &[LiveConfig], count: usize) -> Result<Vec<MergedSource>, Error> {
        let program = fanout::symmetric_hash(fanout_key());
        MergedSource::open_group_by(configs, count, Fanout::Classic(&program))
    }

    /// The same, with packets distributed by this program.
    ///
    /// # Errors
    /// As [`MergedSource::open_group`].
    pub fn open_group_by(
        configs: &[LiveConfig],
        count: usize,
        fanout: Fanout<'_>,
    ) -> Result<Vec<MergedSource>, Error> {
        let stop = StopHandle::default();
        let mut groups = Vec::with_capacity(configs.len());
        for config in configs {
            if config.interface == ANY {
                return Err(Error::Interface {
                    name: ANY.to_owned(),
                    reason: "it stands for all interfaces, and others are given".to_owned(),
                    hint: "use it alone".to_owned(),
                });
            }
            let config = LiveConfig {
                retire_ms: config.retire_ms.min(RETIRE_MS),
                ..config.clone()
            };
            let group = LiveSource::open_group_by(&config, count, fanout)?;
            groups.push(group.into_iter());
        }
        let merged = (0..count.max(1)).map(|_| {
            let sources = groups.iter_mut().filter_map(Iterator::next);
            MergedSource::new(sources.collect(), stop.clone())
        });
        Ok(merged.collect())
    }

    fn new(sources: Vec<LiveSource>, stop: StopHandle) -> MergedSource {
        let interfaces = sources.iter().flat_map(PacketSource::interfaces);
        MergedSource {
            interfaces: interfaces.cloned().collect(),
            tick_ms: sources.iter().map(LiveSource::tick_ms).min().unwrap_or(100),
            members: sources
                .into_iter()
                .map(|source| Member { source, at: 0 })
                .collect(),
            gathered: Gathered::default(),
            stop: StopHandle::default(),
            error: None,
        }
        .stopped_by(stop)
    }

    /// This source, stopped by `handle` instead of its own.
    #[must_use]
    pub fn stopped_by(mut self, handle: StopHandle) -> MergedSource {
        let members = self.members.into_iter().map(|member| Member {
            source: member.source.stopped_by(handle.clone()),
            ..member
        });
        self.members = members.collect();
        self.stop = handle;
        self
    }

    /// A handle to stop this source from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Loads what there is. The first interface that fails ends the others, too, when they have given what they have.
    fn load(&mut self) {
        for member in &mut self.members {
            if let Err(error) = member.load() {
                self.error.get_or_insert(error);
            }
        }
        if self.error.is_some() {
            for member in &mut self.members {
                member.source.end();
            }
        }
    }

    /// Whose turn it is, and how many of its packets in a row come before those of the others; `None` while that
    /// is not known.
    fn turn(&self) -> Option<(usize, usize)> {
        let heads = self.members.iter().enumerate();
        let heads = heads.filter_map(|(index, one)| Some((one.head()?, index)));
        let (time, index) = heads.min()?;
        let others = self.members.iter().enumerate();
        let bound = others
            .filter(|(other, _)| *other != index)
            // Of equal times the first interface's comes first.
            .map(|(other, member)| (member.bound(time), other))
            .min();
        let loaded = self.members.get(index)?.loaded();
        let run = match bound {
            None => loaded.len(),
            Some(bound) => loaded
                .iter()
                .take_while(|packet| (packet.time, index) < bound)
                .count(),
        };
        (run > 0).then_some((index, run))
    }

    /// Copies runs, for as long as it is known whose turn it is.
    fn gather(&mut self) {
        self.gathered.begin();
        while let (Some((index, run)), false) = (self.turn(), self.gathered.is_full()) {
            let Some(member) = self.members.get_mut(index) else {
                return;
            };
            let memory = member.source.memory();
            let packets = member.loaded().get(..run).unwrap_or_default();
            if run >= LENT {
                return;
            }
            let taken = self.gathered.take(memory, packets, Some(index as u16));
            member.at += taken;
            if taken < run {
                return;
            }
            if member.head().is_none() {
                self.load();
            }
        }
    }

    /// Waits for what is missing to know what comes next.
    fn wait(&self) -> Result<(), Error> {
        let empty = self.members.iter().filter(|one| one.head().is_none());
        let empty: Vec<&RingSocket> = empty
            .filter(|one| !one.source.is_over())
            .filter_map(|one| one.source.ring())
            .collect();
        // Where others have something nobody waits longer than is known to be enough.
        let has_some = self.members.iter().any(|one| one.head().is_some());
        let limit = if has_some { RETIRE_MS } else { self.tick_ms };
        wait_any(&empty, limit).map_err(|error| {
            let name = self.interfaces.first().and_then(|one| one.name.as_deref());
            interface_error(name.unwrap_or(ANY), "cannot wait for packets", &error)
        })
    }
}

impl PacketSource for MergedSource {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let began = Instant::now();
        loop {
            self.load();
            if let Some((index, run)) = self.turn() {
                if run >= LENT {
                    let member = &mut self.members[index];
                    let first = member.at;
                    member.at += run;
                    return Ok(Some(member.source.lent(first..member.at, index as u16)));
                }
                self.gather();
                return Ok(Some(self.gathered.batch()));
            }
            if self.members.iter().all(|member| member.source.is_over()) {
                return self.error.take().map_or(Ok(None), Err);
            }
            let is_idle = self.members.iter().all(|member| member.head().is_none());
            if is_idle && began.elapsed().as_millis() >= u128::from(self.tick_ms) {
                let waits = self.members.iter().filter(|it| !it.source.is_over());
                return Ok(Some(Batch {
                    now: waits.map(|it| it.source.bound()).min(),
                    ..Batch::new(&[], &[])
                }));
            }
            self.wait()?;
        }
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = Ledger::default();
        for member in &mut self.members {
            let mut own = member.source.ledger();
            // What is loaded and not given yet is not there.
            let waiting = member.loaded();
            let bytes: u64 = waiting
                .iter()
                .map(|packet| u64::from(packet.wire_len))
                .sum();
            let count = waiting.len() as u64;
            own.leave_out(count, bytes);
            ledger.merge(&own);
        }
        ledger
    }
}
