//! Functions of the program's own: libraries of them (`mapi/function.h`), and the functions of a flow, which a thread runs on the
//! packets that the sensor's functions pass.

use core::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use flowgauge_mapi::{Argument, Becomes, Call, Error, Function, Shape};

use crate::abi::{RawArgument, RawFunction, RawLibrary, RawPacket};

/// The form of libraries that is known here.
const VERSION: u32 = 1;
/// Functions of a library.
const MOST_FUNCTIONS: u32 = 1000;
/// Bytes of a result.
const MOST_RESULT: u32 = 1 << 20;
/// Bytes of packets that wait for the program behind its functions.
const MOST_KEPT: usize = 64 << 20;
/// The thread of a flow.
pub(crate) const THREAD: &str = "mapi-own";
/// What a shared library exports.
const ENTRY: &CStr = c"mapi_library";

/// What a function does.
#[derive(Clone, Copy, Debug)]
struct Code {
    create: Option<unsafe extern "C" fn(*const RawArgument, u32, *mut *mut c_void) -> c_int>,
    process: unsafe extern "C" fn(*mut c_void, *const RawPacket) -> c_int,
    result: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// By the names of functions.
static CODE: RwLock<Vec<(&'static str, Code)>> = RwLock::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(Error::ARGUMENTS, what)
}

/// # Safety
/// `text` is NULL or a terminated string.
unsafe fn kept_text(text: *const c_char, what: &str) -> Result<&'static str, Error> {
    if text.is_null() {
        return Err(wrong(format!("a function library has no {what}")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    let text = text.map_err(|_| wrong(format!("the {what} of a function library is not UTF-8")))?;
    // Functions are there until the process ends.
    Ok(Box::leak(text.to_owned().into_boxed_str()))
}

/// Adds a library. Returns its number.
///
/// # Safety
/// `library` is NULL or a library as `mapi/function.h` has it, which stays.
pub(crate) unsafe fn add(library: *const RawLibrary) -> Result<c_int, Error> {
    // SAFETY: the caller's promise.
    let library = unsafe { library.as_ref() }.ok_or_else(|| wrong("the library is NULL"))?;
    if library.version != VERSION {
        let what = format!("the library has version {}, not {VERSION}", library.version);
        return Err(wrong(what));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { kept_text(library.name, "name") }?;
    if name.is_empty() || name.contains([':', '!']) {
        return Err(wrong(format!("\"{name}\" is not a name of a library")));
    }
    let (mut functions, mut code) = (Vec::new(), Vec::new());
    if library.functions.is_null() || library.count == 0 || library.count > MOST_FUNCTIONS {
        return Err(wrong(format!(
            "{name} has no functions, or more than {MOST_FUNCTIONS}"
        )));
    }
    for at in 0..library.count as usize {
        // SAFETY: the caller's promise: so many functions are there.
        let raw = unsafe { &*library.functions.add(at) };
        // SAFETY: the same.
        let (function, does) = unsafe { function(name, raw) }?;
        code.push((function.name, does));
        functions.push(function);
    }
    let mut known = CODE.write().unwrap_or_else(PoisonError::into_inner);
    flowgauge_mapi::add(functions)?;
    known.extend(code);
    let mut libraries = flowgauge_mapi::libraries().into_iter();
    let number = libraries.position(|(known, _)| known == name);
    Ok(number.map_or(0, |number| number as c_int))
}

/// # Safety
/// The texts are NULL or terminated strings.
unsafe fn function(library: &'static str, raw: &RawFunction) -> Result<(Function, Code), Error> {
    // SAFETY: the caller's promise.
    let (name, description, arguments) = unsafe {
        (
            kept_text(raw.name, "name of a function")?,
            kept_text(raw.descr, "description of a function")?,
            kept_text(raw.argdescr, "arguments of a function")?,
        )
    };
    let letters = arguments.chars().count();
    let is_wrong = |what: &str| Err(wrong(format!("function {name} of {library}: {what}")));
    if name.is_empty() || name.contains([':', '!']) {
        return is_wrong("its name cannot be one");
    }
    if !arguments.chars().all(|letter| "sil".contains(letter)) || letters > 8 {
        return is_wrong("its arguments are letters s, i, l, eight at most");
    }
    if raw.required as usize > letters {
        return is_wrong("more arguments are required than it has");
    }
    if raw.result_size > MOST_RESULT || (raw.result_size > 0) != raw.result.is_some() {
        return is_wrong("its result has no size, or nothing that writes it, or is too large");
    }
    let Some(process) = raw.process else {
        return is_wrong("nothing processes packets");
    };
    let code = Code {
        create: raw.create,
        process,
        result: raw.result,
        destroy: raw.destroy,
    };
    let function = Function {
        name,
        library,
        description,
        arguments,
        required: raw.required as usize,
        component: "",
        result: Shape::Own(raw.result_size as usize),
        becomes: Box::leak(vec![Becomes::Nothing; letters].into_boxed_slice()),
    };
    Ok((function, code))
}

/// Loads a shared library of functions. Returns its number.
///
/// # Safety
/// The code of the file may run in this process.
pub(crate) unsafe fn load(path: &str) -> Result<c_int, Error> {
    let name = CString::new(path).map_err(|_| Error::new(Error::FILE, "the path has a zero"))?;
    // SAFETY: a terminated string; the caller vouches for the library's code.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(Error::new(Error::FILE, loader_error(path)));
    }
    // SAFETY: an open library, and a terminated string.
    let entry = unsafe { libc::dlsym(handle, ENTRY.as_ptr()) };
    let added = if entry.is_null() {
        let what = format!("{path} does not export mapi_library");
        Err(Error::new(Error::FILE, what))
    } else {
        // SAFETY: by `mapi/function.h` it is such a function, and gives a library.
        unsafe {
            let entry: extern "C" fn() -> *const RawLibrary = core::mem::transmute(entry);
            add(entry())
        }
    };
    if added.is_err() {
        // SAFETY: nothing of it is used. Otherwise it stays.
        unsafe { libc::dlclose(handle) };
    }
    added
}

fn loader_error(path: &str) -> String {
    // SAFETY: NULL or a terminated string, valid until the next call of the loader in this thread.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return format!("{path} cannot be loaded");
    }
    // SAFETY: the same.
    let error = unsafe { CStr::from_ptr(error) };
    error.to_string_lossy().into_owned()
}

/// A function in a flow.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Its number in the flow.
    fid: usize,
    code: Code,
    state: AtomicPtr<c_void>,
    size: usize,
    came: u64,
    passed: u64,
}

impl Instance {
    /// Begins a function with its arguments, which are of the kinds that it has.
    pub(crate) fn new(fid: usize, call: &Call) -> Result<Instance, Error> {
        let name = call.function.name;
        let code = CODE.read().unwrap_or_else(PoisonError::into_inner);
        let code = code.iter().find(|(known, _)| *known == name);
        let (_, code) = *code.ok_or_else(|| wrong(format!("{name} is not there")))?;
        let texts = call.arguments.iter().map(|argument| match argument {
            Argument::Text(text) => CString::new(text.as_str()).unwrap_or_default(),
            _ => CString::default(),
        });
        let texts: Vec<CString> = texts.collect();
        let arguments = call
            .arguments
            .iter()
            .zip(&texts)
            .map(|(argument, text)| match argument {
                Argument::Number(number) => RawArgument {
                    text: core::ptr::null(),
                    number: *number as c_longlong,
                },
                _ => RawArgument {
                    text: text.as_ptr(),
                    number: 0,
                },
            });
        let arguments: Vec<RawArgument> = arguments.collect();
        let mut state = core::ptr::null_mut();
        if let Some(create) = code.create {
            // SAFETY: as `mapi/function.h` says; the arguments and their texts are there during the call.
            let refused =
                unsafe { create(arguments.as_ptr(), arguments.len() as u32, &raw mut state) };
            if refused != 0 {
                let at = usize::try_from(refused).unwrap_or(0).saturating_sub(1);
                let what = format!("argument {} of {name}: the function refuses it", at + 1);
                return Err(Error::new(Error::number_of(at), what));
            }
        }
        let size = match call.function.result {
            Shape::Own(size) => size,
            _ => 0,
        };
        Ok(Instance {
            fid,
            code,
            state: AtomicPtr::new(state),
            size,
            came: 0,
            passed: 0,
        })
    }

    /// # Safety
    /// `packet` is a packet.
    unsafe fn process(&mut self, packet: *const RawPacket) -> bool {
        // SAFETY: the caller's promise; the state is the function's own, and in use here only.
        let passes = unsafe { (self.code.process)(*self.state.get_mut(), packet) } != 0;
        self.came += 1;
        self.passed += u64::from(passes);
        passes
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(destroy) = self.code.destroy {
            // SAFETY: the state is the function's own, and is not used any more.
            unsafe { destroy(*self.state.get_mut()) };
        }
    }
}

/// The functions of a flow that run in this process.
#[derive(Debug)]
pub(crate) struct Chain {
    instances: Mutex<Vec<Instance>>,
    /// Packets that they pass, where the program reads them.
    kept: Mutex<Kept>,
    has_changed: Condvar,
    keeps: bool,
    is_done: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    records: VecDeque<Vec<u64>>,
    bytes: usize,
    /// The one that the program has.
    current: Vec<u64>,
}

impl Chain {
    pub(crate) fn new(instances: Vec<Instance>, keeps: bool) -> Chain {
        Chain {
            instances: Mutex::new(instances),
            kept: Mutex::default(),
            has_changed: Condvar::new(),
            keeps,
            is_done: AtomicBool::new(false),
        }
    }

    /// Runs the functions on a packet. A copy of it, if they pass it and the program reads what they pass.
    ///
    /// # Safety
    /// `packet` is a packet with all its bytes.
    pub(crate) unsafe fn process(&self, packet: *const RawPacket) -> Option<Vec<u64>> {
        let mut instances = lock(&self.instances);
        // SAFETY: the caller's promise.
        let passes = instances.iter_mut().all(|it| unsafe { it.process(packet) });
        if !passes || !self.keeps {
            return None;
        }
        // SAFETY: the caller's promise.
        let len = core::mem::offset_of!(RawPacket, pkt) + unsafe { (*packet).caplen } as usize;
        let mut copy = vec![0_u64; len.div_ceil(8).max(size_of::<RawPacket>().div_ceil(8))];
        // SAFETY: `len` bytes are there, and room for as many.
        unsafe {
            core::ptr::copy_nonoverlapping(packet.cast::<u8>(), copy.as_mut_ptr().cast(), len);
        }
        Some(copy)
    }

    /// Keeps a packet for the program. Of an interface what finds no room is lost; otherwise it waits while `goes_on`.
    pub(crate) fn keep(&self, record: Vec<u64>, is_live: bool, goes_on: impl Fn() -> bool) {
        let mut kept = lock(&self.kept);
        while kept.bytes > MOST_KEPT {
            if is_live || !goes_on() {
                return;
            }
            kept = self.wait(kept);
        }
        kept.bytes += record.len() * 8;
        kept.records.push_back(record);
        self.has_changed.notify_all();
    }

    fn wait<'a>(&self, kept: MutexGuard<'a, Kept>) -> MutexGuard<'a, Kept> {
        const LOOK: Duration = Duration::from_millis(50);
        let waited = self.has_changed.wait_timeout(kept, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The next packet that the functions passed; `None` where there is none and `goes_on` does not wait for one.
    pub(crate) fn next(&self, goes_on: impl Fn() -> bool) -> Option<*mut RawPacket> {
        let mut kept = lock(&self.kept);
        loop {
            let is_done = self.is_done();
            if let Some(record) = kept.records.pop_front() {
                kept.bytes -= record.len() * 8;
                kept.current = record;
                self.has_changed.notify_all();
                return Some(kept.current.as_mut_ptr().cast());
            }
            if is_done || !goes_on() {
                return None;
            }
            kept = self.wait(kept);
        }
    }

    /// When the next packet that they passed was captured, if there is one.
    pub(crate) fn time_of_next(&self) -> Option<u64> {
        // It begins with its time.
        lock(&self.kept).records.front()?.first().copied()
    }

    /// The result of a function.
    pub(crate) fn result(&self, fid: usize) -> Option<Vec<u8>> {
        let mut instances = lock(&self.instances);
        let instance = instances.iter_mut().find(|it| it.fid == fid)?;
        let mut room = vec![0_u128; instance.size.div_ceil(16)];
        // SAFETY: the state is the function's own and in use here only; there is room for its result.
        unsafe { (instance.code.result?)(*instance.state.get_mut(), room.as_mut_ptr().cast()) };
        let mut bytes: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.truncate(instance.size);
        Some(bytes)
    }

    /// Packets that came to a function at the end of the flow, and that it passed; `None` where it runs in the sensor.
    pub(crate) fn counts(&self, fid: usize) -> Option<(u64, u64)> {
        let instances = lock(&self.instances);
        let found = instances.iter().find(|it| it.fid == fid);
        if let Some(found) = found {
            return Some((found.came, found.passed));
        }
        let last = instances.last().filter(|last| fid > last.fid)?;
        Some((last.passed, last.passed))
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        self.is_done.store(true, Ordering::Release);
        self.has_changed.notify_all();
    }

    /// Waits until its thread has ended, and ends the functions.
    pub(crate) fn finish(&self) {
        // A function that closes its own flow would wait for itself.
        if std::thread::current().name() == Some(THREAD) {
            return;
        }
        let mut kept = lock(&self.kept);
        while !self.is_done() {
            kept = self.wait(kept);
        }
        drop(kept);
        lock(&self.instances).clear();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}
