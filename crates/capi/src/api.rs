//! The functions of `scap.h`. Each checks its arguments, calls into the crate, catches panics, and turns a
//! `Failure` into a code and a message.

use core::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use flowgauge_stream::engine::Command;

use crate::abi::{Callback, RawIp, RawPacketHeader, RawStats, RawStream, status};
use crate::address;
use crate::capture;
use crate::current::{self, Request};
use crate::device::{self, Device};
use crate::failure::{self, Code, Failure};
use crate::handle::{Handle, Setup};
use crate::registry::{self, Stopped, Token};
use crate::settings::{self, Parameter, Settings};

/// `scap_t`; never dereferenced, see the module `registry`.
#[repr(C)]
pub struct RawHandle {
    _opaque: [u8; 0],
}

/// `scap_create`.
///
/// # Safety
/// `device` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_create(
    device: *const c_char,
    memory_size: c_int,
    reassembly_mode: c_int,
    need_pkts: c_int,
) -> *mut RawHandle {
    let created = shielded(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { text(device) }?.ok_or_else(|| missing("the device"))?;
        let mode = settings::mode(reassembly_mode)?;
        let mut settings = Settings::new(mode, need_pkts != 0);
        if memory_size != 0 {
            // A negative one is none at all.
            settings.wanted.memory_bytes =
                settings::memory(u64::try_from(memory_size).unwrap_or(0))?;
        }
        let device = Device::open(&device)?;
        let setup = Setup { device, settings };
        registry::open(|token, stop| Handle::new(token, stop, setup)).ok_or_else(|| {
            Failure::new(
                Code::Resource,
                "too many captures are open in this process",
                "close those that are over with scap_close",
            )
        })
    });
    match created {
        Ok(token) => core::ptr::without_provenance_mut(token.0),
        Err(failure) => {
            failure::note(prefixed("scap_create", failure));
            core::ptr::null_mut()
        }
    }
}

/// `scap_set_memory`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_set_memory(sc: *mut RawHandle, bytes: u64) -> c_int {
    configure("scap_set_memory", sc, |setup| {
        setup.settings.wanted.memory_bytes = settings::memory(bytes)?;
        Ok(())
    })
}

/// `scap_set_filter`.
///
/// # Safety
/// `bpf` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_set_filter(sc: *mut RawHandle, bpf: *const c_char) -> c_int {
    configure("scap_set_filter", sc, |setup| {
        // SAFETY: the caller's promise.
        let filter = unsafe { text(bpf) }?.unwrap_or_default();
        setup.device.check_filter(&filter)?;
        setup.settings.wanted.filter = filter.trim().to_owned();
        Ok(())
    })
}

/// `scap_set_cutoff`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_set_cutoff(sc: *mut RawHandle, cutoff: c_int) -> c_int {
    adjust("scap_set_cutoff", sc, |_, settings| {
        settings.wanted.cutoff = settings::cutoff(cutoff)?;
        Ok(())
    })
}

/// `scap_add_cutoff_direction`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_add_cutoff_direction(
    sc: *mut RawHandle,
    cutoff: c_int,
    direction: c_int,
) -> c_int {
    adjust("scap_add_cutoff_direction", sc, |_, settings| {
        let cutoff = settings::cutoff(cutoff)?;
        let place = match direction {
            0 => &mut settings.wanted.from_initiator,
            1 => &mut settings.wanted.from_responder,
            _ => {
                return Err(Failure::new(
                    Code::Argument,
                    format_args!("there is no direction {direction}"),
                    "give SCAP_CLIENT_TO_SERVER or SCAP_SERVER_TO_CLIENT",
                ));
            }
        };
        *place = Some(cutoff);
        Ok(())
    })
}

/// `scap_add_cutoff_class`.
///
/// # Safety
/// `bpf` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_add_cutoff_class(
    sc: *mut RawHandle,
    cutoff: c_int,
    bpf: *const c_char,
) -> c_int {
    adjust("scap_add_cutoff_class", sc, |handle, settings| {
        let cutoff = settings::cutoff(cutoff)?;
        // SAFETY: the caller's promise.
        let filter = unsafe { class_filter(handle, bpf) }?;
        settings.wanted.cutoff_classes.push((filter, cutoff));
        Ok(())
    })
}

/// `scap_add_priority_class`.
///
/// # Safety
/// `bpf` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_add_priority_class(
    sc: *mut RawHandle,
    priority: c_int,
    bpf: *const c_char,
) -> c_int {
    adjust("scap_add_priority_class", sc, |handle, settings| {
        let priority = settings::priority(priority)?;
        // SAFETY: the caller's promise.
        let filter = unsafe { class_filter(handle, bpf) }?;
        settings.wanted.priority_classes.push((filter, priority));
        Ok(())
    })
}

/// `scap_add_policy`.
///
/// # Safety
/// `subnet` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_add_policy(
    sc: *mut RawHandle,
    subnet: *const c_char,
    policy: c_int,
) -> c_int {
    adjust("scap_add_policy", sc, |_, settings| {
        let policy = settings::policy(policy)?;
        // SAFETY: the caller's promise.
        let subnet = unsafe { text(subnet) }?.ok_or_else(|| missing("the subnet"))?;
        let subnet = settings::subnet(subnet.trim())?;
        settings.subnets.push((subnet, policy));
        Ok(())
    })
}

/// `scap_set_worker_threads`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_set_worker_threads(sc: *mut RawHandle, threads: c_int) -> c_int {
    configure("scap_set_worker_threads", sc, |setup| {
        match usize::try_from(threads) {
            Ok(workers) if threads <= settings::MOST_WORKERS => setup.settings.workers = workers,
            _ => {
                return Err(Failure::new(
                    Code::Argument,
                    format_args!("{threads} worker threads cannot be had"),
                    format_args!("give 0 to {}", settings::MOST_WORKERS),
                ));
            }
        }
        Ok(())
    })
}

/// `scap_set_parameter`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_set_parameter(sc: *mut RawHandle, parameter: c_int, value: c_int) -> c_int {
    on_handle("scap_set_parameter", sc, |handle| {
        match Parameter::new(parameter, value)? {
            // It is too late for that.
            parameter @ (Parameter::Share(_) | Parameter::Offload(_)) => {
                handle.configure(|setup| setup.settings.set(parameter))
            }
            parameter => handle.adjust(|settings| settings.set(parameter)),
        }
    })
}

/// `scap_dispatch_creation`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_dispatch_creation(sc: *mut RawHandle, callback: Option<Callback>) -> c_int {
    configure("scap_dispatch_creation", sc, |setup| {
        setup.settings.callbacks.creation = callback;
        Ok(())
    })
}

/// `scap_dispatch_data`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_dispatch_data(sc: *mut RawHandle, callback: Option<Callback>) -> c_int {
    configure("scap_dispatch_data", sc, |setup| {
        setup.settings.callbacks.data = callback;
        Ok(())
    })
}

/// `scap_dispatch_termination`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_dispatch_termination(
    sc: *mut RawHandle,
    callback: Option<Callback>,
) -> c_int {
    configure("scap_dispatch_termination", sc, |setup| {
        setup.settings.callbacks.termination = callback;
        Ok(())
    })
}

/// `scap_start_capture`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_start_capture(sc: *mut RawHandle) -> c_int {
    on_handle("scap_start_capture", sc, |handle| {
        let setup = handle.start()?;
        // Whatever happens, the capture is over afterwards.
        let _end = AtEnd(handle);
        capture::run(handle, setup)
    })
}

/// `scap_stop_capture`. Uses only atomics unless it fails, because signal handlers call it.
#[unsafe(no_mangle)]
pub extern "C" fn scap_stop_capture(sc: *mut RawHandle) -> c_int {
    match Token(sc.addr()).stop() {
        Stopped::Asked => 0,
        // Not noted: the message would be allocated.
        Stopped::NotRunning => Code::State as c_int,
        Stopped::NoHandle => Code::Handle as c_int,
    }
}

/// `scap_get_stats`.
///
/// # Safety
/// `stats` is NULL or points to writable memory for one `scap_stats_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_get_stats(sc: *mut RawHandle, stats: *mut RawStats) -> c_int {
    on_handle("scap_get_stats", sc, |handle| {
        if stats.is_null() {
            return Err(missing("stats"));
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { stats.write(handle.statistics()) };
        Ok(())
    })
}

/// `scap_close`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_close(sc: *mut RawHandle) {
    on_handle("scap_close", sc, |handle| {
        handle.close()?;
        registry::close(handle.token);
        Ok(())
    });
}

/// `scap_discard_stream`.
///
/// # Safety
/// `stream` is NULL or was passed to a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_discard_stream(sc: *mut RawHandle, stream: *mut RawStream) {
    on_stream("scap_discard_stream", sc, stream, || {
        Ok(Request::Command(Command::Discard))
    });
}

/// `scap_set_stream_cutoff`.
///
/// # Safety
/// As [`scap_discard_stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_set_stream_cutoff(
    sc: *mut RawHandle,
    stream: *mut RawStream,
    cutoff: c_int,
) -> c_int {
    on_stream("scap_set_stream_cutoff", sc, stream, || {
        let cutoff = settings::cutoff(cutoff)?;
        Ok(Request::Command(Command::SetCutoff(cutoff)))
    })
}

/// `scap_set_stream_priority`.
///
/// # Safety
/// As [`scap_discard_stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_set_stream_priority(
    sc: *mut RawHandle,
    stream: *mut RawStream,
    priority: c_int,
) -> c_int {
    on_stream("scap_set_stream_priority", sc, stream, || {
        let priority = settings::priority(priority)?;
        Ok(Request::Command(Command::SetPriority(priority)))
    })
}

/// `scap_set_stream_parameter`.
///
/// # Safety
/// As [`scap_discard_stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_set_stream_parameter(
    sc: *mut RawHandle,
    stream: *mut RawStream,
    parameter: c_int,
    value: c_int,
) -> c_int {
    on_stream(
        "scap_set_stream_parameter",
        sc,
        stream,
        || match Parameter::new(parameter, value)? {
            Parameter::Stream(parameter) => Ok(Request::Command(Command::SetParameter(parameter))),
            _ => Err(Failure::new(
                Code::Parameter,
                format_args!("parameter {parameter} is not one of single streams"),
                "set it for the whole capture with scap_set_parameter, before its start",
            )),
        },
    )
}

/// `scap_keep_stream_chunk`.
///
/// # Safety
/// As [`scap_discard_stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_keep_stream_chunk(
    sc: *mut RawHandle,
    stream: *mut RawStream,
) -> c_int {
    on_stream("scap_keep_stream_chunk", sc, stream, || Ok(Request::Keep))
}

/// `scap_keep_chunk`, another name of [`scap_keep_stream_chunk`].
///
/// # Safety
/// As [`scap_discard_stream`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_keep_chunk(sc: *mut RawHandle, stream: *mut RawStream) -> c_int {
    on_stream("scap_keep_chunk", sc, stream, || Ok(Request::Keep))
}

/// `scap_next_stream_packet`.
///
/// # Safety
/// `stream` as in [`scap_discard_stream`]; `header` is NULL or points to writable memory for one
/// `struct scap_pkthdr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_next_stream_packet(
    stream: *mut RawStream,
    header: *mut RawPacketHeader,
) -> *mut c_char {
    match shielded(|| current::next_packet(stream)) {
        Ok(Some((bytes, found))) => {
            if !header.is_null() {
                // SAFETY: not null, and the caller's promise.
                unsafe { header.write(found) };
            }
            bytes
        }
        Ok(None) => core::ptr::null_mut(),
        Err(failure) => {
            note_current("scap_next_stream_packet", failure);
            core::ptr::null_mut()
        }
    }
}

/// `scap_next_stream_hole`.
///
/// # Safety
/// `stream` as in [`scap_discard_stream`]; `start` and `length` are NULL or point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_next_stream_hole(
    stream: *mut RawStream,
    start: *mut u32,
    length: *mut u32,
) -> c_int {
    match shielded(|| current::next_hole(stream)) {
        Ok(Some(hole)) => {
            for (place, value) in [(start, hole.0), (length, hole.1)] {
                if !place.is_null() {
                    // SAFETY: not null, and the caller's promise.
                    unsafe { place.write(value) };
                }
            }
            1
        }
        Ok(None) => 0,
        Err(failure) => {
            let code = failure.code as c_int;
            note_current("scap_next_stream_hole", failure);
            code
        }
    }
}

/// `scap_error`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_error(sc: *mut RawHandle) -> c_int {
    let code = shielded(|| {
        Ok(match registry::find(Token(sc.addr())) {
            Some(handle) => handle.last(|last| last.code()),
            None => failure::of_thread(|last| last.code()),
        })
    });
    code.unwrap_or(Code::Internal as c_int)
}

/// `scap_errbuf`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_errbuf(sc: *mut RawHandle) -> *const c_char {
    let message = shielded(|| {
        Ok(match registry::find(Token(sc.addr())) {
            Some(handle) => handle.last(|last| failure::show(last.message())),
            None => failure::of_thread(|last| failure::show(last.message())),
        })
    });
    message.unwrap_or(Code::text(Code::Internal as c_int).as_ptr())
}

/// `scap_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_strerror(code: c_int) -> *const c_char {
    Code::text(code).as_ptr()
}

/// `scap_status_name`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_status_name(number: c_int) -> *const c_char {
    let name = match number {
        status::ACTIVE => c"active",
        status::CLOSED_FIN => c"fin",
        status::CLOSED_RST => c"rst",
        status::CLOSED_TIMEOUT => c"timeout",
        status::CUTOFF => c"cutoff",
        status::END_OF_INPUT => c"end_of_input",
        status::EVICTED => c"evicted",
        status::STRICT => c"strict",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// `scap_address_text`.
///
/// # Safety
/// `buffer` is NULL or points to `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scap_address_text(
    address: RawIp,
    buffer: *mut c_char,
    size: usize,
) -> *mut c_char {
    if buffer.is_null() || size == 0 {
        return core::ptr::null_mut();
    }
    let text = address::text(&address.bytes);
    let text = text.as_bytes();
    let length = text.len().min(size - 1);
    // SAFETY: the caller's promise; length < size, and one byte is left for the zero.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, length);
        buffer.add(length).write(0);
    }
    buffer
}

/// `scap_version`.
#[unsafe(no_mangle)]
pub extern "C" fn scap_version() -> *const c_char {
    c"1.0".as_ptr()
}

/// Ends the capture of a handle when it goes, on a panic, too.
struct AtEnd<'a>(&'a Handle);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Runs `act` on an open handle and notes its failure for the thread and the handle.
fn on_handle(
    function: &str,
    sc: *mut RawHandle,
    act: impl FnOnce(&Arc<Handle>) -> Result<(), Failure>,
) -> c_int {
    let mut found = None;
    let done = shielded(|| {
        let token = Token(sc.addr());
        if token.is_elsewhere() {
            return Err(elsewhere());
        }
        let handle = registry::find(token).ok_or_else(|| not_open(sc))?;
        act(found.insert(handle))
    });
    match done {
        Ok(()) => 0,
        Err(failure) => {
            let code = failure.code as c_int;
            let failure = prefixed(function, failure);
            if let Some(handle) = found {
                handle.note(failure.clone());
            }
            failure::note(failure);
            code
        }
    }
}

fn elsewhere() -> Failure {
    Failure::new(
        Code::State,
        "the capture runs in another process",
        "call it in the process that called scap_start_capture",
    )
}

/// Changes what is set before the start.
fn configure(
    function: &str,
    sc: *mut RawHandle,
    change: impl FnOnce(&mut Setup) -> Result<(), Failure>,
) -> c_int {
    on_handle(function, sc, |handle| handle.configure(change))
}

/// Changes what is wanted of streams, before the start or while the capture runs.
fn adjust(
    function: &str,
    sc: *mut RawHandle,
    change: impl FnOnce(&Handle, &mut Settings) -> Result<(), Failure>,
) -> c_int {
    on_handle(function, sc, |handle| {
        handle.adjust(|settings| change(handle, settings))
    })
}

/// Asks something of a stream.
fn on_stream(
    function: &str,
    sc: *mut RawHandle,
    stream: *mut RawStream,
    request: impl FnOnce() -> Result<Request, Failure>,
) -> c_int {
    on_handle(function, sc, |handle| {
        current::request(handle.token, stream, request()?)
    })
}

/// No panic leaves this library.
fn shielded<T>(act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Failure::new(
            Code::Internal,
            format_args!("a fault of the library: {what}"),
            "please report it",
        ))
    })
}

/// Notes a failure of a function that is given no handle: for the one whose callback runs.
fn note_current(function: &str, failure: Failure) {
    let failure = prefixed(function, failure);
    if let Some(handle) = current::token().and_then(registry::find) {
        handle.note(failure.clone());
    }
    failure::note(failure);
}

fn prefixed(function: &str, mut failure: Failure) -> Failure {
    failure.message.insert_str(0, ": ");
    failure.message.insert_str(0, function);
    failure
}

fn missing(what: &str) -> Failure {
    Failure::new(
        Code::Argument,
        format_args!("{what} is NULL"),
        "see scap.h for what it has to be",
    )
}

fn not_open(sc: *mut RawHandle) -> Failure {
    if sc.is_null() {
        return Failure::new(
            Code::Handle,
            "the handle is NULL",
            "scap_create returns NULL when it fails; scap_errbuf(NULL) says why",
        );
    }
    Failure::new(
        Code::Handle,
        "the handle is not open",
        "it was closed, or did not come from scap_create",
    )
}

/// The text of a C string; `None` when it is NULL.
///
/// # Safety
/// `string` is NULL or a terminated string.
unsafe fn text(string: *const c_char) -> Result<Option<String>, Failure> {
    if string.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(string) };
    match bytes.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(Failure::new(
            Code::Argument,
            format_args!("{bytes:?} is not UTF-8"),
            "give names and filters as UTF-8 text",
        )),
    }
}

/// The filter of a class, which must select something.
///
/// # Safety
/// `bpf` is NULL or a terminated string.
unsafe fn class_filter(handle: &Handle, bpf: *const c_char) -> Result<String, Failure> {
    // SAFETY: the caller's promise.
    let filter = unsafe { text(bpf) }?.unwrap_or_default();
    if filter.trim().is_empty() {
        return Err(Failure::new(
            Code::Argument,
            "the class has no filter",
            "give a filter; what holds for all other streams has functions of its own",
        ));
    }
    device::check_filter(&handle.links, &filter)?;
    Ok(filter.trim().to_owned())
}
