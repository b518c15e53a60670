//! Detecting protocols in the packets of flows.

use core::ffi::{CStr, c_ushort};
use std::sync::Mutex;

use super::library::{
    Functions, LoadError, RawBitmask, RawFlow, RawModule, RawProtocol, functions,
};

/// Modules are made and destroyed one at a time, as the library demands.
static MAKING: Mutex<()> = Mutex::new(());

/// What the library takes a flow for, by its numbers; 0 where it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// What carries it, if that is told apart: TLS under an application.
    pub master: u16,
    /// The protocol itself, or the application.
    pub application: u16,
}

impl Protocol {
    /// Whether anything is known.
    pub fn is_known(self) -> bool {
        self.master != 0 || self.application != 0
    }
}

impl From<RawProtocol> for Protocol {
    fn from(raw: RawProtocol) -> Protocol {
        Protocol {
            master: raw.master,
            application: raw.application,
        }
    }
}

/// A detection module of the library; one for each thread.
///
/// The states of flows are numbered. The memory of one that was closed is kept for the next.
pub struct Detector {
    module: *mut RawModule,
    states: Vec<State>,
    free: Vec<u32>,
    functions: &'static Functions,
}

/// A flow's state: zeros to begin with, and the library's business from then on.
struct State {
    memory: Box<[u64]>,
    is_open: bool,
}

// SAFETY: module and states are used by one thread at a time, as `&mut self` is; the library keeps
// nothing by thread.
unsafe impl Send for Detector {}

impl Detector {
    /// A module with all protocols, without flows. Its tables take about 9 MB.
    ///
    /// # Errors
    /// When the library is not there, or is another version.
    pub fn new() -> Result<Detector, LoadError> {
        let functions = functions()?;
        let guard = MAKING.lock();
        // SAFETY: modules are made one at a time (`MAKING`); 0 are no preferences.
        let module = unsafe { (functions.init)(0) };
        if module.is_null() {
            return Err(LoadError::Memory);
        }
        let all = RawBitmask([u32::MAX; 16]);
        // SAFETY: the module is new; the bits are read during the call only.
        unsafe {
            (functions.set_protocols)(module, &raw const all);
            (functions.finalize)(module);
        }
        drop(guard);
        Ok(Detector {
            module,
            states: Vec::new(),
            free: Vec::new(),
            functions,
        })
    }

    /// The state of a flow of which nothing was seen.
    pub fn open(&mut self) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.states.push(State {
                memory: vec![0; self.functions.state_words].into_boxed_slice(),
                is_open: false,
            });
            self.states.len() as u32 - 1
        });
        if let Some(state) = self.states.get_mut(number as usize) {
            state.is_open = true;
        }
        number
    }

    fn raw(&mut self, state: u32) -> Option<*mut RawFlow> {
        let state = self.states.get_mut(state as usize)?;
        state
            .is_open
            .then(|| state.memory.as_mut_ptr().cast::<RawFlow>())
    }

    /// Looks at a flow's next packet, from its IP header on; at most 65,535 bytes of it.
    pub fn packet(&mut self, state: u32, packet: &[u8], milliseconds: u64) -> Protocol {
        let Some(flow) = self.raw(state) else {
            return Protocol::default();
        };
        let len = c_ushort::try_from(packet.len()).unwrap_or(c_ushort::MAX);
        // SAFETY: the module is complete; the flow is open, of the size that the library told, and
        // nothing else refers to it; `len` bytes of the packet are readable, and are not kept.
        unsafe { (self.functions.process)(self.module, flow, packet.as_ptr(), len, milliseconds) }
            .into()
    }

    /// Whether more packets could tell more of a flow whose protocol is known.
    pub fn has_more(&mut self, state: u32) -> bool {
        // SAFETY: as in `packet`.
        self.raw(state)
            .is_some_and(|flow| unsafe { (self.functions.has_more)(self.module, flow) } != 0)
    }

    /// Ends a flow: what it is by all that was seen, without guesses by ports. Its number may be given
    /// out again.
    pub fn close(&mut self, state: u32) -> Protocol {
        let Some(flow) = self.raw(state) else {
            return Protocol::default();
        };
        let mut was_guessed = 0;
        // SAFETY: as in `packet`; the flag is writable.
        let protocol =
            unsafe { (self.functions.give_up)(self.module, flow, 0, &raw mut was_guessed) };
        self.release(state, flow);
        protocol.into()
    }

    fn release(&mut self, state: u32, flow: *mut RawFlow) {
        // SAFETY: the flow is open; what it holds is freed once, as it is zeros or closed afterwards.
        unsafe { (self.functions.free_data)(flow) };
        if let Some(state) = self.states.get_mut(state as usize) {
            state.memory.fill(0);
            state.is_open = false;
        }
        self.free.push(state);
    }

    /// The library's name of a protocol.
    pub fn name(&self, protocol: u16) -> Option<String> {
        // SAFETY: the module is complete; the library checks the number.
        let name = unsafe { (self.functions.name)(self.module, protocol) };
        if name.is_null() {
            return None;
        }
        // SAFETY: not null: a terminated string of the module's.
        let name = unsafe { CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }

    /// Flows that are open.
    pub fn open_states(&self) -> usize {
        self.states.len() - self.free.len()
    }
}

impl Drop for Detector {
    fn drop(&mut self) {
        for number in 0..self.states.len() as u32 {
            if let Some(flow) = self.raw(number) {
                self.release(number, flow);
            }
        }
        let guard = MAKING.lock();
        // SAFETY: the module came from ndpi_init_detection_module, its flows are closed; modules are
        // destroyed one at a time.
        unsafe { (self.functions.exit)(self.module) };
        drop(guard);
    }
}
