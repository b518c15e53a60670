//! Attaches programs to captures; the captures account for the packets withheld.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_capture::live::LiveSource;
use flowgauge_capture::{Interface, PacketSource};
use flowgauge_sys::bpf;
use flowgauge_sys::interfaces::index_of;
use flowgauge_sys::packet::hardware;
use flowgauge_wire::{Batch, Ledger, Place as LedgerPlace};

use crate::classic::translate;
use crate::error::Error;
use crate::overload::{Ring, tell_ring, word};
use crate::socket::{Counters, Statistics, StatisticsReader};

/// Where a program is to be, and what puts it there.
#[derive(Debug)]
pub(crate) enum Place {
    /// Behind the filter of a packet socket: the map by which that goes on with it.
    Socket(OwnedFd),
    /// Before the packets of an interface.
    Mirror(Mirror),
}

/// A program for mirror ports.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) program: OwnedFd,
    /// Its maps: of sockets, and of the other workers' programs.
    pub(crate) sockets: OwnedFd,
    pub(crate) others: OwnedFd,
}

impl Mirror {
    pub(crate) fn share(&self) -> Result<Mirror, Error> {
        Ok(Mirror {
            program: share(self.program.as_fd())?,
            sockets: share(self.sockets.as_fd())?,
            others: share(self.others.as_fd())?,
        })
    }
}

/// A descriptor of the same.
pub(crate) fn share(fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    fd.try_clone_to_owned().map_err(|error| Error::System {
        what: "cannot share the program",
        error,
    })
}

/// Attaches a [`SocketFilter`](crate::SocketFilter) to a capture.
#[derive(Debug)]
pub struct Attacher {
    pub(crate) place: Place,
    pub(crate) counters: Arc<Counters>,
}

impl Attacher {
    /// Loads the program, which includes the capture's filter. It is attached when an application first wants less than
    /// everything; until then it costs nothing. (Packets in the ring at that time still pass.) The ledger of the
    /// returned source includes the packets withheld, as far as they have been reported.
    ///
    /// # Errors
    /// Returns the capture, which continues without the program, and [`Error::Interface`] if the program cannot read
    /// its packets, [`Error::Filter`], or [`Error::System`].
    pub fn attach(&self, source: LiveSource) -> Result<Offloaded, Box<(LiveSource, Error)>> {
        match self.prepare(&source) {
            Ok(program) => Ok(self.offloaded(source, Some(program), None)),
            Err(error) => Err(Box::new((source, error))),
        }
    }

    /// Attaches the workers' programs to an interface; its packets go to their [sources](LiveSource::open_mirror) while
    /// any of these captures lasts. The programs do not include the capture's filter.
    ///
    /// # Errors
    /// [`Error::System`]: another program is attached, or the driver does not support any.
    pub fn attach_to_mirror(
        workers: &[&Attacher],
        sources: Vec<LiveSource>,
    ) -> Result<Vec<Offloaded>, Error> {
        let system = |what| move |error: io::Error| Error::System { what, error };
        let mut first: Option<&Mirror> = None;
        for (number, (worker, source)) in (0..).zip(workers.iter().zip(&sources)) {
            let (Place::Mirror(mirror), Some(ring)) = (&worker.place, source.mirror()) else {
                return Err(Error::Interface);
            };
            for (queue, socket) in (0..).zip(ring.sockets()) {
                let put = bpf::put(mirror.sockets.as_fd(), queue, socket);
                put.map_err(system("cannot give the program a socket"))?;
            }
            let first = *first.get_or_insert(mirror);
            if number > 0 {
                let put = bpf::put(first.others.as_fd(), number, mirror.program.as_fd());
                put.map_err(system("cannot share packets between workers"))?;
            }
        }
        let name = sources.first().and_then(|source| {
            let interface = source.interfaces().first()?;
            interface.name.as_deref()
        });
        let index = name.and_then(index_of).ok_or(Error::Interface)?;
        let (Some(first), Some(worker)) = (first, workers.first()) else {
            return Err(Error::Interface);
        };
        worker.counters.setting.words()[word::WORKERS]
            .store(sources.len() as u64, Ordering::Release);
        // The system empties a map of programs that nobody holds.
        let others = share(first.others.as_fd())?;
        let link = bpf::attach_xdp(first.program.as_fd(), index).map_err(system(
            "cannot put the program before the interface's packets",
        ))?;
        let link = Arc::new([link, others]);
        let attached = workers.iter().zip(sources).map(|(worker, source)| {
            worker.counters.settle();
            worker.offloaded(source, None, Some(Arc::clone(&link)))
        });
        Ok(attached.collect())
    }

    fn offloaded(
        &self,
        source: LiveSource,
        program: Option<OwnedFd>,
        link: Option<Arc<[OwnedFd; 2]>>,
    ) -> Offloaded {
        let _ = self.counters.ring.set(Ring::of(&source));
        Offloaded {
            source,
            before: StatisticsReader(Arc::clone(&self.counters)).read(),
            program,
            is_over: false,
            link,
            counters: Arc::clone(&self.counters),
            last: 0,
            block: 0,
        }
    }

    /// The program that is to be put on the socket.
    fn prepare(&self, source: &LiveSource) -> Result<OwnedFd, Error> {
        let (filter, hardware) = source.kernel_program().ok_or(Error::Interface)?;
        let (true, Place::Socket(next)) = (
            matches!(hardware, hardware::ETHERNET | hardware::LOOPBACK),
            &self.place,
        ) else {
            return Err(Error::Interface);
        };
        let program = translate(filter, hardware, next.as_raw_fd())?;
        bpf::load_socket_filter(&program).map_err(|error| Error::System {
            what: "the kernel refuses the filter",
            error,
        })
    }
}

/// A capture with a program that withholds packets.
#[derive(Debug)]
pub struct Offloaded {
    source: LiveSource,
    /// Until it is there.
    program: Option<OwnedFd>,
    is_over: bool,
    /// Holds the program of a mirror port there.
    link: Option<Arc<[OwnedFd; 2]>>,
    counters: Arc<Counters>,
    /// What was kept away of captures before this one.
    before: Statistics,
    /// The time of the last packet, or until which there was none.
    last: u64,
    /// Where the last packets were.
    block: usize,
}

impl Offloaded {
    #[cold]
    fn attach(&mut self, program: &OwnedFd) {
        match self.source.set_kernel_program(program.as_fd()) {
            Ok(()) => self.counters.settle(),
            Err(error) => {
                let _ = self.counters.failure.set(error.to_string());
            }
        }
    }
}

impl PacketSource for Offloaded {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, flowgauge_capture::Error> {
        if self.program.is_some()
            && self.counters.is_needed.load(Ordering::Relaxed)
            && let Some(program) = self.program.take()
        {
            self.attach(&program);
        }
        // Who asks for more has processed what came.
        self.counters.shown.store(self.last, Ordering::Release);
        tell_ring(&self.counters.setting, &self.source);
        let is_within = self.source.is_within_block();
        let batch = self.source.next_batch()?;
        if batch.is_none() {
            // What comes now is nobody's.
            self.link = None;
            self.is_over = true;
            self.counters.blocks.store(0, Ordering::Release);
        }
        if let Some(batch) = &batch {
            let block = batch.memory.as_ptr().addr();
            if core::mem::replace(&mut self.block, block) != block || !is_within {
                self.counters.blocks.fetch_add(1, Ordering::Release);
            }
            let last = batch.packets.last().map(|packet| packet.time);
            let last = last.or(batch.now).map_or(0, |time| time.0);
            self.last = self.last.max(last);
        }
        Ok(batch)
    }

    fn interfaces(&self) -> &[Interface] {
        self.source.interfaces()
    }

    fn is_behind(&self) -> bool {
        self.source.is_behind()
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.source.ledger();
        // Meanwhile as far as engines know, at the end all: they are told of the rest when they finish.
        let all = StatisticsReader(Arc::clone(&self.counters)).read();
        let now = match self.is_over {
            true => all.gone(),
            false => [0, 1].map(|at| self.counters.told[at].load(Ordering::Relaxed)),
        };
        let before = self.before.gone();
        ledger.take(
            now[0].saturating_sub(before[0]),
            now[1].saturating_sub(before[1]),
        );
        let unseen = &self.counters.setting.words()[word::UNSEEN];
        ledger.miss(LedgerPlace::KernelRing, unseen.load(Ordering::Relaxed));
        ledger
    }
}
