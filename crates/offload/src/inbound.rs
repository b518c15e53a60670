//! Frames injected into the kernel as if an interface had received them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use aya::maps::Map;
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};
use flowgauge_sys::bpf::{self, SharedArray};

use crate::attach::share;
use crate::error::Error;

/// `bpf/inbound.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/inbound.o"));

/// Words of a frame's slot.
const SLOT: usize = 512;
const SLOTS: u32 = 2048;

/// Injects frames into the kernel as if an interface had received them, by running a program on them.
pub struct Inbound {
    /// The kernel forgets programs and maps that nobody holds.
    _kernel: Ebpf,
    program: OwnedFd,
    /// Its place before the interface's own packets.
    _before: Option<OwnedFd>,
    frames: SharedArray,
    next: SharedArray,
    interface: i32,
    /// Frames that the kernel has not taken yet.
    waiting: u32,
}

impl Inbound {
    /// Maximum length of a frame: the kernel has a page for each.
    pub const LONGEST: u32 = 3200;

    /// For an Ethernet interface with this index.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::System`].
    pub fn open(interface: i32) -> Result<Inbound, Error> {
        let mut kernel = EbpfLoader::new()
            .map_max_entries("frames", SLOTS)
            .load(OBJECT)
            .map_err(Error::load)?;
        let program = kernel.program_mut("inbound");
        let program = program.ok_or_else(|| Error::load("no program"))?;
        let program: &mut Xdp = program.try_into().map_err(Error::load)?;
        program.load().map_err(Error::load)?;
        let program = share(program.fd().map_err(Error::load)?.as_fd())?;
        let mut shared = |name, words| {
            let Some(Map::Array(data)) = kernel.take_map(name) else {
                return Err(Error::load(name));
            };
            SharedArray::new(data.fd().as_fd(), words).map_err(|error| Error::System {
                what: "cannot map the kernel's memory",
                error,
            })
        };
        let inbound = Inbound {
            frames: shared("frames", SLOTS as usize * SLOT)?,
            next: shared("next", 1)?,
            // Where another one is it takes longer.
            _before: bpf::attach_xdp(program.as_fd(), interface).ok(),
            program,
            interface,
            waiting: 0,
            _kernel: kernel,
        };
        // A frame of no length is dropped, and tells whether the driver takes any.
        inbound.frames.words()[0].store(0, Ordering::Relaxed);
        inbound.run(1).map_err(|error| Error::System {
            what: "the interface takes no frames from here",
            error,
        })?;
        Ok(inbound)
    }

    /// Adds a frame of at most [`Inbound::LONGEST`] bytes. The kernel gets it together with others, at
    /// [`Inbound::flush`] at the latest.
    ///
    /// # Errors
    /// As [`Inbound::flush`].
    pub fn add(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.waiting == SLOTS {
            self.flush()?;
        }
        let word = self.waiting as usize * SLOT;
        self.frames.words()[word].store(frame.len() as u64, Ordering::Relaxed);
        self.frames.write(word + 1, frame);
        self.waiting += 1;
        Ok(())
    }

    /// Passes all frames to the kernel, in order.
    ///
    /// # Errors
    /// The system's error: the interface is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        match core::mem::take(&mut self.waiting) {
            0 => Ok(()),
            waiting => self.run(waiting),
        }
    }

    fn run(&self, times: u32) -> io::Result<()> {
        self.next.words()[0].store(0, Ordering::Release);
        bpf::run_for_frames(self.program.as_fd(), self.interface, times)
    }
}

impl core::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Inbound")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
