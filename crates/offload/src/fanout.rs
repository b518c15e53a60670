//! Distributes packets of an interface to several workers.

use core::hash::BuildHasher as _;
use std::collections::hash_map::RandomState;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use aya::EbpfLoader;
use aya::maps::Map;
use aya::programs::SocketFilter as Program;
use flowgauge_sys::bpf::SharedArray;
use flowgauge_sys::packet;

use crate::attach::share;
use crate::error::Error;

/// `bpf/fanout.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fanout.o"));
/// Words of keys, and of the map they are in.
const KEYS: usize = 8;
const SETTING: usize = KEYS + 1;

/// Distributes packets to the sockets of a group by the innermost addresses in tunnels, so that
/// a flow is at one socket.
#[derive(Debug)]
pub struct Fanout(OwnedFd);

impl Fanout {
    /// Loads the program, with its own random keys.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::System`].
    pub fn load() -> Result<Fanout, Error> {
        let mut kernel = EbpfLoader::new().load(OBJECT).map_err(Error::load)?;
        let program = kernel.program_mut("fanout");
        let program = program.ok_or_else(|| Error::load("no program"))?;
        let program: &mut Program = program.try_into().map_err(Error::load)?;
        program.load().map_err(Error::load)?;
        let program = share(program.fd().map_err(Error::load)?.as_fd())?;
        let Some(Map::Array(setting)) = kernel.map("setting") else {
            return Err(Error::load("setting"));
        };
        let setting = SharedArray::new(setting.fd().as_fd(), SETTING);
        let setting = setting.map_err(|error| Error::System {
            what: "cannot map the kernel's memory",
            error,
        })?;
        let random = RandomState::new();
        for (at, word) in setting.words().iter().take(KEYS).enumerate() {
            word.store(random.hash_one(at), Ordering::Relaxed);
        }
        Ok(Fanout(program))
    }

    /// For [`LiveSource::open_group_by`](flowgauge_capture::live::LiveSource::open_group_by).
    pub fn by(&self) -> packet::Fanout<'_> {
        packet::Fanout::Program(self.0.as_fd())
    }
}
