//! The functions of `mapi.h`. Each checks what it was given, calls into the crate with panics caught, and notes its error.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use core::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, RwLockWriteGuard};
use std::time::Duration;

use flowgauge_mapi::{Argument, Error, Function};
use flowgauge_sensor_client::protocol::DeviceStatus;
use flowgauge_sys::process;

use crate::abi::RawLibrary;
use crate::abi::{
    RawDeviceInfo, RawFlowInfo, RawFunctionInfo, RawLibraryFunctionInfo, RawLibraryInfo,
    RawMemberInfo, RawPacket, RawResults, RawStat, text,
};
use crate::devices;
use crate::error::{
    self, DEVICE_INFO, FLOW_INFO, FUNCTION_INFO, LIBRARY_INFO, NOT_BUILT, RIGHTS, UNKNOWN_FLOW,
    UNKNOWN_FUNCTION,
};
use crate::own;
use crate::results;
use crate::session::{self, Descriptor, Handle, Setting, State, Status};

/// `mapi_handler`.
pub type Handler = Option<unsafe extern "C" fn(*const RawPacket)>;
/// An argument behind the name of a function, if there is one: an int, 64 bits, or a pointer, in a register or a place on the
/// stack of its own. So it is where this library runs; functions with a variable number of arguments cannot be written in Rust,
/// and of objects of C a library of Rust exports nothing.
pub type Slot = MaybeUninit<usize>;

#[cfg(not(all(target_pointer_width = "64", target_os = "linux")))]
compile_error!("arguments are passed in another way here");

/// The answer of a call; a panic is an error as any other.
fn call<T>(work: impl FnOnce() -> Result<T, Error>) -> Option<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|_| Err(Error::new(NOT_BUILT, "a fault of the library")));
    done.inspect_err(|error| error::note(error.clone())).ok()
}

fn status(done: Option<()>) -> c_int {
    if done.is_some() { 0 } else { -1 }
}

/// What is wrong with bytes that are no text: what looks for them takes them in another form.
const NO_TEXT: &str = "is not UTF-8 text: STR_SEARCH takes other bytes as |e9|, REGEXP as \\xe9";

/// # Safety
/// `pointer` is NULL or a terminated string.
unsafe fn string(pointer: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) });
    text.map(|text| text.to_string_lossy().into_owned())
}

/// # Safety
/// `to` is NULL or memory for a `T`.
unsafe fn tell<T>(to: *mut T, what: Result<T, Error>, place: usize) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::new(Error::number_of(place), "the structure is NULL"));
    }
    // SAFETY: the caller's promise.
    what.map(|what| unsafe { to.write(what) })
}

fn missing(what: &str, number: i32) -> impl FnOnce() -> Error {
    let message = format!("{what} is NULL");
    move || Error::new(number, message)
}

/// `mapi_create_flow`.
///
/// # Safety
/// `dev` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_create_flow(dev: *const c_char) -> c_int {
    let made = call(|| {
        begin();
        // SAFETY: the caller's promise.
        let device = unsafe { string(dev) }.ok_or_else(missing("the device", DEVICE_INFO))?;
        session::create(&device, false)
    });
    made.unwrap_or(-1)
}

/// `mapi_create_offline_device`.
///
/// # Safety
/// `path` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_create_offline_device(
    path: *const c_char,
    format: c_int,
) -> *mut c_char {
    let made = call(|| {
        begin();
        // SAFETY: the caller's promise.
        let name = devices::create_device(&trace(unsafe { string(path) }, format)?)?;
        let name = std::ffi::CString::new(name).unwrap_or_default();
        // SAFETY: it is a terminated string. mapi_delete_offline_device() frees the copy.
        let copy = unsafe { libc::strdup(name.as_ptr()) };
        devices::keep_name(&name.to_string_lossy(), copy.addr());
        Ok(copy)
    });
    made.unwrap_or(core::ptr::null_mut())
}

/// The path of a trace file.
fn trace(path: Option<String>, format: c_int) -> Result<String, Error> {
    let path = path.ok_or_else(missing("the path", Error::FILE))?;
    if !(0..=4).contains(&format) {
        return Err(Error::new(Error::number_of(1), "is not a format"));
    }
    Ok(path)
}

/// `mapi_create_offline_flow`.
///
/// # Safety
/// `path` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_create_offline_flow(path: *const c_char, format: c_int) -> c_int {
    let made = call(|| {
        begin();
        // SAFETY: the caller's promise.
        session::create_offline(&trace(unsafe { string(path) }, format)?)
    });
    made.unwrap_or(-1)
}

/// `mapi_start_offline_device`.
///
/// # Safety
/// `dev` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_start_offline_device(dev: *const c_char) -> c_int {
    status(call(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { string(dev) }.ok_or_else(missing("the device", DEVICE_INFO))?;
        devices::start_device(&device)
    }))
}

/// `mapi_delete_offline_device`.
///
/// # Safety
/// `dev` is NULL or a terminated string. If `mapi_create_offline_device` gave it, it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_delete_offline_device(dev: *mut c_char) -> c_int {
    status(call(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { string(dev) }.ok_or_else(missing("the device", DEVICE_INFO))?;
        if devices::delete_device(&device)? == dev.addr() {
            // SAFETY: it is what strdup() gave, and was not freed: its device was there.
            unsafe { libc::free(dev.cast()) };
        }
        Ok(())
    }))
}

/// `mapi_add_library`.
///
/// # Safety
/// `library` is NULL or a library of functions that stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_add_library(library: *const RawLibrary) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { own::add(library) }).unwrap_or(-1)
}

/// `mapi_load_library`.
///
/// # Safety
/// `path` is NULL or a terminated string: a shared library whose code may run here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_load_library(path: *const c_char) -> c_int {
    let loaded = call(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { string(path) }.ok_or_else(missing("the path", Error::FILE))?;
        // SAFETY: the caller's promise.
        unsafe { own::load(&path) }
    });
    loaded.unwrap_or(-1)
}

/// Applies a function, whose arguments are in `slots`.
///
/// # Safety
/// `funct` is NULL or a terminated string. The first slots hold the function's arguments as its letters say.
unsafe fn apply(fd: c_int, funct: *const c_char, slots: &[Slot]) -> c_int {
    let mut argument = |at: usize, letter: char| {
        // SAFETY: it was given.
        let value = unsafe { slots.get(at)?.assume_init() };
        Some(Ok(match letter {
            // SAFETY: a pointer was given, and it is NULL or a terminated string.
            's' | 'S' | 'w' => match unsafe { string(core::ptr::with_exposed_provenance(value)) } {
                Some(text) if text.contains(char::REPLACEMENT_CHARACTER) => {
                    return Some(Err(NO_TEXT.to_owned()));
                }
                Some(text) => Argument::Text(text),
                None => Argument::Null,
            },
            'l' => Argument::Number(value as i128),
            // Only half of it was given.
            _ => Argument::Number((value as c_int).into()),
        }))
    };
    // SAFETY: the caller's promise.
    unsafe { apply_with(fd, funct, &mut argument) }
}

/// # Safety
/// `funct` is NULL or a terminated string.
unsafe fn apply_with(
    fd: c_int,
    funct: *const c_char,
    argument: &mut dyn FnMut(usize, char) -> Option<Result<Argument, String>>,
) -> c_int {
    let applied = call(|| {
        let flow = of_pair(fd, 1)?;
        // SAFETY: the caller's promise.
        let name = unsafe { string(funct) };
        let name = name.ok_or_else(missing("the function", UNKNOWN_FUNCTION))?;
        flow.apply(&name, argument)
    });
    applied.unwrap_or(-1)
}

/// The flow of a call that also takes a function.
fn of_pair(fd: c_int, fid: c_int) -> Result<Handle, Error> {
    let found = session::flow(fd);
    let is_yet = found
        .as_ref()
        .is_err_and(|error| error.number == error::NO_FLOW_YET);
    if (fd <= 0 || fid <= 0) && !is_yet && (fd >= 0 || error::last().is_none()) {
        let what = format!("flow {fd} or function {fid} cannot be");
        return Err(Error::new(Error::NO_FUNCTION, what));
    }
    found
}

/// `mapi_apply_function`, through a pointer to it: all arguments of the function are given.
///
/// # Safety
/// `funct` is NULL or a terminated string. The arguments behind it are those of the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_apply_function(
    fd: c_int,
    funct: *const c_char,
    a: Slot,
    b: Slot,
    c: Slot,
    d: Slot,
    e: Slot,
    f: Slot,
    g: Slot,
    h: Slot,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { apply(fd, funct, &[a, b, c, d, e, f, g, h]) }
}

/// `mapi_apply_function_counted`.
///
/// # Safety
/// `funct` is NULL or a terminated string. As many arguments are behind it as `count` says, of the kinds that the function has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_apply_function_counted(
    fd: c_int,
    count: c_int,
    funct: *const c_char,
    a: Slot,
    b: Slot,
    c: Slot,
    d: Slot,
    e: Slot,
    f: Slot,
    g: Slot,
    h: Slot,
) -> c_int {
    let slots = [a, b, c, d, e, f, g, h];
    let count = usize::try_from(count).unwrap_or(0).min(slots.len());
    // SAFETY: the caller's promise.
    unsafe { apply(fd, funct, &slots[..count]) }
}

/// `mapi_apply_function_array`.
///
/// # Safety
/// `funct` is NULL or a terminated string, `args` NULL or `n` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_apply_function_array(
    fd: c_int,
    funct: *const c_char,
    args: *mut *mut c_char,
    n: c_uint,
) -> c_int {
    let mut argument = |at: usize, letter: char| {
        if at >= n as usize || args.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let text = unsafe { string(*args.add(at)) };
        Some(Ok(match (text, letter) {
            (None, _) => Argument::Null,
            (Some(text), _) if text.contains(char::REPLACEMENT_CHARACTER) => {
                return Some(Err(NO_TEXT.to_owned()));
            }
            (Some(text), 's' | 'S' | 'w') => Argument::Text(text),
            (Some(text), _) => match text.trim().parse() {
                Ok(number) => Argument::Number(number),
                Err(_) => return Some(Err(format!("\"{text}\" is not a number"))),
            },
        }))
    };
    // SAFETY: the caller's promise.
    unsafe { apply_with(fd, funct, &mut argument) }
}

/// `mapi_connect`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_connect(fd: c_int) -> c_int {
    let connected = call(|| {
        let connected = session::flow(fd).and_then(|flow| flow.connect());
        Ok(match connected {
            Ok(()) => 0,
            Err(error) => {
                let number = error.number;
                error::note(error);
                if number == RIGHTS { -1 } else { -2 }
            }
        })
    });
    connected.unwrap_or(-2)
}

/// `mapi_read_results`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_read_results(fd: c_int, fid: c_int) -> *mut RawResults {
    let read = call(|| {
        let flow = session::flow(fd)?;
        if fid <= 0 {
            return Err(Error::new(
                UNKNOWN_FLOW,
                format!("there is no function {fid}"),
            ));
        }
        flow.read(fid)
    });
    read.unwrap_or(core::ptr::null_mut())
}

/// `mapi_get_next_pkt`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_get_next_pkt(fd: c_int, fid: c_int) -> *mut RawPacket {
    let next = call(|| of_pair(fd, fid)?.next(fid));
    next.flatten().unwrap_or(core::ptr::null_mut())
}

/// `mapi_get_next_packet`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_get_next_packet(fd: c_int, fid: c_int) -> *mut RawPacket {
    mapi_get_next_pkt(fd, fid)
}

/// `mapi_loop`.
///
/// # Safety
/// `handler` is NULL or a function that takes a packet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_loop(fd: c_int, fid: c_int, cnt: c_int, handler: Handler) -> c_int {
    status(call(|| {
        let flow = of_pair(fd, fid)?;
        flow.is_connected()?;
        let handler = handler.ok_or_else(missing("the handler", Error::number_of(3)))?;
        let mut left = cnt;
        while let Some(packet) = flow.next(fid)? {
            // SAFETY: the caller's promise; the packet is valid until the next one.
            unsafe { handler(packet) };
            left -= 1;
            if left == 0 || flow.is_closed() {
                break;
            }
        }
        Ok(())
    }))
}

/// `mapi_close_flow`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_close_flow(fd: c_int) -> c_int {
    status(call(|| session::close(fd)))
}

/// `mapi_read_error`.
///
/// # Safety
/// `err_no` is NULL or an int, `errstr` NULL or 512 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_read_error(err_no: *mut c_int, errstr: *mut c_char) -> c_int {
    if err_no.is_null() && errstr.is_null() {
        return -1;
    }
    let (number, message) = match error::take() {
        Some(error) => (error.number, error.message),
        None => (0, String::new()),
    };
    // SAFETY: the caller's promises.
    unsafe {
        if !err_no.is_null() {
            err_no.write(number);
        }
        if !errstr.is_null() {
            errstr.cast::<[c_char; 512]>().write(text(&message));
        }
    }
    0
}

/// `mapi_get_scope_size`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_get_scope_size(fd: c_int) -> c_int {
    call(|| session::flow(fd).map(|flow| flow.size() as c_int)).unwrap_or(-1)
}

/// `mapi_is_remote`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_is_remote(fd: c_int) -> c_int {
    call(|| session::flow(fd).map(|flow| c_int::from(flow.is_remote()))).unwrap_or(-1)
}

/// `mapi_is_sensor_down`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_is_sensor_down(fd: c_int) -> c_int {
    call(|| session::flow(fd).map(|flow| c_int::from(flow.is_gone()))).unwrap_or(-1)
}

/// `mapi_get_member_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_member_info(
    fd: c_int,
    member: c_int,
    info: *mut RawMemberInfo,
) -> c_int {
    status(call(|| {
        let flow = session::flow(fd)?;
        let found = usize::try_from(member).ok().and_then(|at| flow.member(at));
        let found = found.map(|found| RawMemberInfo {
            name: text(&found.name),
            state: found.state,
            since: session::seconds(found.since) as libc::time_t,
            generation: found.generation,
            reason: text(&found.reason),
        });
        let unknown = || no_member(&*flow, member);
        // SAFETY: the caller's promise.
        unsafe { tell(info, found.ok_or_else(unknown), 2) }
    }))
}

/// `mapi_get_result_generation`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_get_result_generation(fd: c_int, fid: c_int, member: c_int) -> c_int {
    let found = call(|| {
        let flow = session::flow(fd)?;
        let at = usize::try_from(member).ok();
        let generation = at.and_then(|at| flow.generation(fid, at));
        generation
            .map(|it| it as c_int)
            .ok_or_else(|| no_member(&*flow, member))
    });
    found.unwrap_or(-1)
}

fn no_member(flow: &dyn Descriptor, member: c_int) -> Error {
    let (fd, size) = (flow.fd(), flow.size());
    let what = format!("flow {fd} has no member {member}: it has {size}, from 0");
    Error::new(Error::number_of(1), what)
}

/// `mapi_set_option`.
#[unsafe(no_mangle)]
pub extern "C" fn mapi_set_option(fd: c_int, option: c_int, value: c_ulonglong) -> c_int {
    status(call(|| {
        let flow = session::flow(fd)?;
        let millis = Duration::from_millis(value);
        let setting = match option {
            1 => Setting::Push(millis),
            2 if value > 0 => Setting::Prefetch(value),
            3 => Setting::ByTime((value > 0).then_some(millis)),
            2 => {
                let what = "MAPI_PREFETCH: 0 bytes are not a packet";
                return Err(Error::new(Error::number_of(2), what));
            }
            _ => {
                let what = format!("there is no option {option}");
                return Err(Error::new(Error::number_of(1), what));
            }
        };
        flow.set(setting)
    }))
}

/// `mapi_set_authdata`.
///
/// # Safety
/// `credential` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_set_authdata(fd: c_int, credential: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { string(credential) };
    status(call(|| {
        let text = text.ok_or_else(|| Error::new(7002, "there is no credential"))?;
        session::set_credential(fd, &text)
    }))
}

/// `mapi_authenticate`: the credential stands in place of a password, and says who it is for.
///
/// # Safety
/// `password` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_authenticate(
    fd: c_int,
    _user: *const c_char,
    password: *const c_char,
    _vo: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { string(password) };
    status(call(|| {
        let text = text.ok_or_else(|| Error::new(7003, "there is no credential as password"))?;
        session::set_credential(fd, &text)
    }))
}

fn flow_info(flow: &dyn Descriptor) -> Result<RawFlowInfo, Error> {
    let status = flow.status()?;
    let since = flow.since() as libc::time_t;
    Ok(RawFlowInfo {
        uid: process::user(),
        fd: flow.fd(),
        devid: flow.device_id(),
        device: text(flow.device()),
        num_functions: flow.functions().len() as c_uint,
        start: since,
        end: flow.until() as libc::time_t,
        status: match status {
            Status::Init => 0,
            Status::Active => 1,
            Status::Finished => 2,
        },
    })
}

/// `mapi_get_flow_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_flow_info(fd: c_int, info: *mut RawFlowInfo) -> c_int {
    // SAFETY: the caller's promise.
    status(call(|| unsafe {
        tell(info, flow_info(&*session::flow(fd)?), 1)
    }))
}

/// `mapi_get_next_flow_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_next_flow_info(fd: c_int, info: *mut RawFlowInfo) -> c_int {
    status(call(|| {
        let next = session::flow_after(fd);
        let next = next.ok_or_else(|| Error::new(FLOW_INFO, "there is no further flow"));
        // SAFETY: the caller's promise.
        unsafe { tell(info, next.and_then(|flow| flow_info(&*flow)), 1) }
    }))
}

fn function_info(fd: c_int, fid: c_int) -> Result<RawFunctionInfo, Error> {
    let flow = session::flow(fd)?;
    let at = usize::try_from(fid).unwrap_or(0);
    let functions = flow.functions();
    let found = at.checked_sub(1).and_then(|at| functions.get(at));
    let unknown = || Error::new(FUNCTION_INFO, format!("flow {fd} has no function {fid}"));
    let found = found.ok_or_else(unknown)?;
    let (pkts, passed_pkts) = flow.passed(at)?;
    Ok(RawFunctionInfo {
        fid,
        name: text(found.function.name),
        libname: text(found.function.library),
        devtype: text("1"),
        pkts,
        passed_pkts,
        result_size: results::size(found) as c_int,
    })
}

/// `mapi_get_function_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_function_info(
    fd: c_int,
    fid: c_int,
    info: *mut RawFunctionInfo,
) -> c_int {
    status(call(|| {
        of_pair(fd, fid)?;
        // SAFETY: the caller's promise.
        unsafe { tell(info, function_info(fd, fid), 2) }
    }))
}

/// `mapi_get_next_function_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_next_function_info(
    fd: c_int,
    fid: c_int,
    info: *mut RawFunctionInfo,
) -> c_int {
    status(call(|| {
        let next = fid.max(0).saturating_add(1);
        of_pair(fd, next)?;
        // SAFETY: the caller's promise.
        unsafe { tell(info, function_info(fd, next), 2) }
    }))
}

/// The device with a number, or with the next higher one.
fn device_info(number: c_int, is_next: bool) -> Result<RawDeviceInfo, Error> {
    let all = devices::devices()?;
    let mut found = all.range(number.saturating_add(c_int::from(is_next))..);
    let found = found
        .next()
        .filter(|(found, _)| is_next || **found == number);
    let unknown = || Error::new(DEVICE_INFO, format!("there is no device {number}"));
    let (number, device) = found.ok_or_else(unknown)?;
    let interface = device.source.strip_prefix(devices::INTERFACE);
    Ok(RawDeviceInfo {
        id: *number,
        device: text(&device.device),
        name: text(if interface.is_some() { "nic" } else { "file" }),
        alias: text(&device.device),
        description: text(&device.source),
        link_speed: interface.map_or(1000, devices::link_speed),
        mpls: 0,
        vlan: 0,
    })
}

/// `mapi_get_device_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_device_info(device: c_int, info: *mut RawDeviceInfo) -> c_int {
    // SAFETY: the caller's promise.
    status(call(|| unsafe {
        tell(info, device_info(device, false), 1)
    }))
}

/// `mapi_get_next_device_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_next_device_info(
    device: c_int,
    info: *mut RawDeviceInfo,
) -> c_int {
    // SAFETY: the caller's promise.
    status(call(|| unsafe { tell(info, device_info(device, true), 1) }))
}

/// The functions of a library.
fn functions(library: c_int) -> Result<(&'static str, Vec<&'static Function>), Error> {
    let mut libraries = flowgauge_mapi::libraries().into_iter();
    let found = usize::try_from(library)
        .ok()
        .and_then(|at| libraries.nth(at));
    found.ok_or_else(|| Error::new(LIBRARY_INFO, format!("there is no library {library}")))
}

/// `mapi_get_library_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_library_info(library: c_int, info: *mut RawLibraryInfo) -> c_int {
    status(call(|| {
        let found = functions(library).map(|(name, functions)| RawLibraryInfo {
            id: library,
            libname: text(name),
            functs: functions.len() as c_uint,
        });
        // SAFETY: the caller's promise.
        unsafe { tell(info, found, 1) }
    }))
}

/// `mapi_get_next_library_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_next_library_info(
    library: c_int,
    info: *mut RawLibraryInfo,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { mapi_get_library_info(library.max(-1).saturating_add(1), info) }
}

/// `mapi_get_libfunct_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_libfunct_info(
    library: c_int,
    function: c_int,
    info: *mut RawLibraryFunctionInfo,
) -> c_int {
    status(call(|| {
        let found = functions(library).and_then(|(_, functions)| {
            let at = usize::try_from(function).ok();
            let found = at.and_then(|at| functions.get(at).copied());
            found.ok_or_else(|| {
                let what = format!("library {library} has no function {function}");
                Error::new(LIBRARY_INFO, what)
            })
        });
        let found = found.map(|found| RawLibraryFunctionInfo {
            name: text(found.name),
            descr: text(found.description),
            argdescr: text(found.arguments),
            devtype: text("1"),
        });
        // SAFETY: the caller's promise.
        unsafe { tell(info, found, 2) }
    }))
}

/// `mapi_get_next_libfunct_info`.
///
/// # Safety
/// `info` is NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_get_next_libfunct_info(
    library: c_int,
    function: c_int,
    info: *mut RawLibraryFunctionInfo,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { mapi_get_libfunct_info(library, function.max(-1).saturating_add(1), info) }
}

/// `mapi_stats`.
///
/// # Safety
/// `dev` is NULL or a terminated string, `stats` NULL or memory for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mapi_stats(dev: *const c_char, stats: *mut RawStat) -> c_int {
    let told = call(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { string(dev) }.ok_or_else(missing("the device", DEVICE_INFO))?;
        let all = devices::devices()?;
        let found = all.values().find(|device| device.device == name);
        let unknown = || Error::new(error::NO_DEVICE, format!("there is no device {name}"));
        let found = found.ok_or_else(unknown).map(stat_of);
        // SAFETY: the caller's promise.
        unsafe { tell(stats, found, 1) }
    });
    told.map_or(-1, |()| 1)
}

fn stat_of(device: &DeviceStatus) -> RawStat {
    let dropped = |place: &str| device.refused.get(place).copied().unwrap_or(0) as c_uint;
    RawStat {
        ps_recv: device.packets as c_uint,
        ps_drop: dropped("kernel_ring"),
        ps_ifdrop: dropped("nic"),
        hostname: text(&devices::host_name()),
        dev: text(&device.device),
    }
}

thread_local! {
    /// The lock that a thread holds while it forks.
    static HELD: RefCell<Option<RwLockWriteGuard<'static, State>>> = const { RefCell::new(None) };
}

/// Has a forked process begin without flows.
fn begin() {
    extern "C" fn before() {
        HELD.with_borrow_mut(|held| *held = Some(session::state_mut()));
    }
    extern "C" fn in_parent() {
        HELD.with_borrow_mut(|held| *held = None);
    }
    extern "C" fn in_child() {
        HELD.with_borrow_mut(|held| {
            if let Some(mut state) = held.take() {
                state.begin_anew();
            }
        });
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions are there for ever; they run in the thread that forks.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_before_their_end() {
        assert_eq!(text::<4>("abcdef"), [97, 98, 99, 0]);
    }
}
