//! Backends of a capture.

use flowgauge_capture::PacketSource;
use flowgauge_capture::live::LiveSource;
use flowgauge_stream::offload::Verdicts;

use crate::error::Error;
use crate::socket::{Attacher, DEFAULT_FLOWS, SocketFilter, Statistics, StatisticsReader};

/// The backends of a capture, one for each of its rings: loaded before these are opened, which may be more than once.
#[derive(Debug, Default)]
pub struct Backends {
    rings: Vec<(Attacher, StatisticsReader)>,
    lacks: Option<Error>,
}

impl Backends {
    /// Those of as many rings, and where it is told what is wanted of the flows of each. Where the kernel takes none there are
    /// none, and [`Backends::lacks`] says why.
    pub fn load(rings: usize) -> (Backends, Vec<Verdicts>) {
        Backends::of(rings, || SocketFilter::load(DEFAULT_FLOWS))
    }

    /// The same of a mirror port, which one ring takes the packets of.
    pub fn load_for_mirror() -> (Backends, Vec<Verdicts>) {
        Backends::of(1, || SocketFilter::load_for_mirror(DEFAULT_FLOWS))
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
                (Backends { rings, lacks: None }, verdicts)
            }
            Err(error) => (Backends::none(error), Vec::new()),
        }
    }

    fn none(error: Error) -> Backends {
        Backends {
            rings: Vec::new(),
            lacks: Some(error),
        }
    }

    /// Puts the backend of a ring before it, if there is one. Where that cannot be there is none from then on.
    pub fn attach(&mut self, ring: usize, source: LiveSource) -> Box<dyn PacketSource + Send> {
        let Some((attacher, _)) = self.rings.get(ring) else {
            return Box::new(source);
        };
        match attacher.attach(source) {
            Ok(source) => Box::new(source),
            Err(refused) => {
                let (source, error) = *refused;
                *self = Backends::none(error);
                Box::new(source)
            }
        }
    }

    /// There are none: it is a capture on several interfaces.
    pub fn refuse(&mut self) {
        if !self.rings.is_empty() {
            *self = Backends::none(Error::Interface);
        }
    }

    /// Why nothing is kept away.
    pub fn lacks(&self) -> Option<&Error> {
        self.lacks.as_ref()
    }

    /// Why a program could not be put there when it was needed.
    pub fn failure(&self) -> Option<&str> {
        self.rings.iter().find_map(|(_, reader)| reader.failure())
    }

    /// Whether a program is there: anything was not wanted.
    pub fn are_needed(&self) -> bool {
        self.rings.iter().any(|(_, reader)| reader.is_attached())
    }

    /// What they have done together, if there are some.
    pub fn statistics(&self) -> Option<Statistics> {
        let all = self.rings.iter().map(|(_, reader)| reader.read());
        all.reduce(Statistics::and)
    }
}
