//! Backends of a capture.

use flowgauge_capture::PacketSource;
use flowgauge_capture::live::{LiveConfig, LiveSource, MergedSource, StopHandle};
use flowgauge_stream::offload::Verdicts;
use flowgauge_sys::machine::takes_tags_out;

use crate::attach::Attacher;
use crate::error::Error;
use crate::fanout::Fanout;
use crate::socket::{DEFAULT_FLOWS, SocketFilter, Statistics, StatisticsReader};

/// The backends of a capture, one per ring. They are loaded before the rings are opened, which may happen more than
/// once.
#[derive(Debug, Default)]
pub struct Backends {
    rings: Vec<(Attacher, StatisticsReader)>,
    lacks: Option<Error>,
    is_mirror: bool,
    way: Option<String>,
    hides_tags: Option<String>,
    spreads_outside: Option<Error>,
}

impl Backends {
    /// Loads backends for this number of rings, and returns the sinks for verdicts on each ring's flows. If the kernel
    /// accepts no programs, there are no backends, and [`Backends::lacks`] returns the reason.
    pub fn load(rings: usize) -> (Backends, Vec<Verdicts>) {
        Backends::of(rings, || SocketFilter::load(DEFAULT_FLOWS))
    }

    /// The same for a mirror port, whose packets the system then does not get.
    pub fn load_for_mirror(rings: usize) -> (Backends, Vec<Verdicts>) {
        let (mut backends, verdicts) =
            Backends::of(rings, || SocketFilter::load_for_mirror(DEFAULT_FLOWS));
        backends.is_mirror = true;
        (backends, verdicts)
    }

    fn of(
        rings: usize,
        load: impl Fn() -> Result<SocketFilter, Error> + Sync,
    ) -> (Backends, Vec<Verdicts>) {
        let loaded = || {
            let filter = load()?;
            let ring = (filter.attacher()?, filter.statistics());
            Ok((ring, Verdicts::new(filter)))
        };
        // The kernel takes its time to verify each.
        let loaded = std::thread::scope(|scope| {
            let others: Vec<_> = (1..rings).map(|_| scope.spawn(loaded)).collect();
            let panicked = |_| Err(Error::load("a thread of its loader panicked"));
            let others = others
                .into_iter()
                .map(|it| it.join().unwrap_or_else(panicked));
            core::iter::once_with(&loaded)
                .chain(others)
                .take(rings)
                .collect::<Result<Vec<_>, Error>>()
        });
        match loaded {
            Ok(loaded) => {
                let (rings, verdicts) = loaded.into_iter().unzip();
                let backends = Backends {
                    rings,
                    ..Backends::default()
                };
                (backends, verdicts)
            }
            Err(error) => (Backends::none(error), Vec::new()),
        }
    }

    fn none(error: Error) -> Backends {
        Backends {
            lacks: Some(error),
            ..Backends::default()
        }
    }

    /// Opens captures on an interface with this number of rings, each [prepared](LiveSource::stopped_by) by `prepare`
    /// and attached to its backend. A mirror port without `AF_XDP`, or with another program, is captured like any
    /// interface, and nothing is withheld; [`Backends::lacks`] returns the reason.
    ///
    /// # Errors
    /// As [`LiveSource::open_group`].
    pub fn open(
        &mut self,
        config: &LiveConfig,
        rings: usize,
        prepare: impl Fn(LiveSource) -> LiveSource,
    ) -> Result<Vec<Box<dyn PacketSource + Send>>, flowgauge_capture::Error> {
        if self.is_mirror && self.lacks.is_none() {
            match self.open_mirror(config, rings, &prepare) {
                Ok(sources) => return Ok(sources),
                Err(error) => self.lack(error),
            }
        }
        let fanout = self.fanout(rings);
        let group = match &fanout {
            Some(fanout) => LiveSource::open_group_by(config, rings, fanout.by())?,
            None => LiveSource::open_group(config, rings)?,
        };
        let group = (0..).zip(group.into_iter().map(prepare));
        Ok(group
            .map(|(ring, source)| self.attach(ring, source))
            .collect())
    }

    /// Opens captures on several interfaces, merged, with this number of rings for each; one handle stops all of them.
    /// Nothing is withheld.
    ///
    /// # Errors
    /// As [`MergedSource::open_group`].
    pub fn open_all(
        &mut self,
        configs: &[LiveConfig],
        rings: usize,
        stop: &StopHandle,
    ) -> Result<Vec<Box<dyn PacketSource + Send>>, flowgauge_capture::Error> {
        if !self.rings.is_empty() {
            self.lack(Error::Interface);
        }
        let fanout = self.fanout(rings);
        let group = match &fanout {
            Some(fanout) => MergedSource::open_group_by(configs, rings, fanout.by())?,
            None => MergedSource::open_group(configs, rings)?,
        };
        let group = group.into_iter().map(|it| it.stopped_by(stop.clone()));
        Ok(group
            .map(|it| Box::new(it) as Box<dyn PacketSource + Send>)
            .collect())
    }

    /// What spreads packets over rings, if there are several and the kernel takes it.
    fn fanout(&mut self, rings: usize) -> Option<Fanout> {
        if rings < 2 {
            return None;
        }
        let loaded = Fanout::load().map_err(|error| self.spreads_outside = Some(error));
        loaded.ok()
    }

    /// The reason why tunnelled packets are distributed to rings by their outer addresses, if they are.
    pub fn spreads_outside(&self) -> Option<&Error> {
        self.spreads_outside.as_ref()
    }

    fn open_mirror(
        &mut self,
        config: &LiveConfig,
        rings: usize,
        prepare: impl Fn(LiveSource) -> LiveSource,
    ) -> Result<Vec<Box<dyn PacketSource + Send>>, Error> {
        let sources = LiveSource::open_mirror(config, rings)?;
        let way = sources.first().and_then(LiveSource::mirror).map(|ring| {
            let queues = ring.sockets().count();
            let copied = if ring.is_zero_copy() {
                "zero-copy"
            } else {
                "copy"
            };
            format!("AF_XDP, {queues} receive queues, {copied} mode")
        });
        let workers: Vec<&Attacher> = self.rings.iter().map(|(attacher, _)| attacher).collect();
        let sources = sources.into_iter().map(prepare).collect();
        let attached = Attacher::attach_to_mirror(&workers, sources)?;
        self.way = way;
        let name = &config.interface;
        self.hides_tags = takes_tags_out(name).then(|| name.clone());
        let boxed = attached.into_iter();
        Ok(boxed
            .map(|it| Box::new(it) as Box<dyn PacketSource + Send>)
            .collect())
    }

    /// How packets of a mirror port arrive, if they bypass the system.
    pub fn way(&self) -> Option<&str> {
        self.way.as_deref()
    }

    /// The mirror port, if its card strips VLAN tags from frames; the tags are lost then.
    pub fn hides_tags(&self) -> Option<&str> {
        self.hides_tags.as_deref()
    }

    /// Whether these are backends of a mirror port.
    pub fn is_mirror(&self) -> bool {
        self.is_mirror
    }

    /// From now on there are none.
    fn lack(&mut self, error: Error) {
        *self = Backends {
            is_mirror: self.is_mirror,
            ..Backends::none(error)
        };
    }

    /// Puts the backend of a ring before it, if there is one. Where that cannot be there is none from then on.
    fn attach(&mut self, ring: usize, source: LiveSource) -> Box<dyn PacketSource + Send> {
        let Some((attacher, _)) = self.rings.get(ring) else {
            return Box::new(source);
        };
        match attacher.attach(source) {
            Ok(source) => Box::new(source),
            Err(refused) => {
                let (source, error) = *refused;
                self.lack(error);
                Box::new(source)
            }
        }
    }

    /// The reason why nothing is withheld.
    pub fn lacks(&self) -> Option<&Error> {
        self.lacks.as_ref()
    }

    /// The reason why a program could not be attached when it was needed.
    pub fn failure(&self) -> Option<&str> {
        self.rings.iter().find_map(|(_, reader)| reader.failure())
    }

    /// Whether a program is attached, because an application wanted less than everything.
    pub fn are_needed(&self) -> bool {
        self.rings.iter().any(|(_, reader)| reader.is_attached())
    }

    /// Their statistics together, if there are any backends.
    pub fn statistics(&self) -> Option<Statistics> {
        let all = self.rings.iter().map(|(_, reader)| reader.read());
        all.reduce(Statistics::and)
    }
}
