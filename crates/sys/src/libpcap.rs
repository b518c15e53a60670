//! The part of system libpcap that compiles filter expressions, as safe functions. Capturing and
//! files are done without libpcap.
//!
//! Declared by hand: eight functions whose ABI has not changed since libpcap 1.0.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread;

use parking_lot::Mutex;

use crate::ending::without_stop;

/// One classic-BPF instruction. The layout is that of libpcap's `bpf_insn` and Linux's
/// `sock_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

#[repr(C)]
pub(crate) struct RawProgram {
    pub(crate) len: c_uint,
    pub(crate) instructions: *mut Instruction,
}

/// `struct pcap`, opaque.
#[repr(C)]
struct RawHandle {
    _opaque: c_void,
}

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_open_dead(link: c_int, snap_len: c_int) -> *mut RawHandle;
    fn pcap_close(handle: *mut RawHandle);
    fn pcap_geterr(handle: *mut RawHandle) -> *const c_char;
    fn pcap_compile(
        handle: *mut RawHandle,
        program: *mut RawProgram,
        expression: *const c_char,
        optimize: c_int,
        netmask: c_uint,
    ) -> c_int;
    fn pcap_freecode(program: *mut RawProgram);
    fn bpf_image(instruction: *const Instruction, index: c_int) -> *const c_char;
    fn pcap_lib_version() -> *const c_char;
}

/// libpcap keeps some state in statics: the text of `bpf_image`, and before 1.10 that of name look-ups and of the parser.
static LIBPCAP: Mutex<()> = Mutex::new(());

/// Whether several threads may compile at once.
fn is_reentrant() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();

    *KNOWN.get_or_init(|| {
        let version = version();
        let numbers = version.split_whitespace().find_map(|word| {
            let (major, rest) = word.split_once('.')?;
            let minor = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
            Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
        });
        numbers.is_some_and(|version| version >= (1, 10))
    })
}

/// Longer expressions are not optimised: the time that takes grows with the cube of their length (7 s for 4 KiB of port ranges,
/// 1 s for 2 KiB). (Those that can be divided do not come here as a whole.)
const OPTIMIZED: usize = 2048;

/// Bytes of stack for those: libpcap goes from term to term by recursion, and eight thousand hosts take more than the usual
/// 8 MiB.
const DEEP_STACK: usize = 256 << 20;

/// Compiles `expression` (pcap-filter(7)) for frames of data link type `dlt`, a `DLT_` value. The
/// program returns `snap_len` for packets that match and 0 for others. `netmask` in network byte
/// order serves `ip broadcast` only.
///
/// # Errors
/// libpcap's message.
pub fn compile(
    expression: &str,
    dlt: i32,
    snap_len: u32,
    netmask: Option<u32>,
) -> Result<Vec<Instruction>, String> {
    let compile = || compile_here(expression, dlt, snap_len, netmask);
    if expression.len() <= OPTIMIZED {
        return compile();
    }
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(DEEP_STACK);
        let spawned = deep.spawn_scoped(scope, compile);
        let spawned =
            spawned.map_err(|error| format!("no memory to compile the filter: {error}"))?;
        spawned.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The same on this thread's stack.
fn compile_here(
    expression: &str,
    dlt: i32,
    snap_len: u32,
    netmask: Option<u32>,
) -> Result<Vec<Instruction>, String> {
    /// `PCAP_NETMASK_UNKNOWN`.
    const UNKNOWN: c_uint = 0xffff_ffff;

    let text = CString::new(expression).map_err(|_| "the filter holds a zero byte".to_owned())?;
    let snap_len = c_int::try_from(snap_len).unwrap_or(c_int::MAX);
    let _guard = (!is_reentrant()).then(|| LIBPCAP.lock());
    // SAFETY: takes two integers; the result is checked for null before use.
    let handle = unsafe { pcap_open_dead(dlt, snap_len) };
    if handle.is_null() {
        return Err("libpcap has no memory left".to_owned());
    }
    let mut program = RawProgram {
        len: 0,
        instructions: core::ptr::null_mut(),
    };
    let optimize = c_int::from(expression.len() <= OPTIMIZED);
    let netmask = netmask.unwrap_or(UNKNOWN);
    let what = || format!("compiling a filter of {} bytes", expression.len());
    let status = without_stop(what, || {
        // SAFETY: handle is open, program is writable, text is a terminated string; all outlive the call.
        unsafe { pcap_compile(handle, &raw mut program, text.as_ptr(), optimize, netmask) }
    });
    let result = if status == 0 {
        // SAFETY: after success libpcap's program holds `len` instructions (none when null).
        let instructions = unsafe { copied(&program) };
        // SAFETY: the program came from pcap_compile and is freed once.
        unsafe { pcap_freecode(&raw mut program) };
        Ok(instructions)
    } else {
        // SAFETY: the handle is open; its message is a terminated string that lives as long.
        let message = unsafe { CStr::from_ptr(pcap_geterr(handle)) };
        Err(message.to_string_lossy().trim().to_owned())
    };
    // SAFETY: the handle is open and not used after this.
    unsafe { pcap_close(handle) };
    result
}

/// # Safety
/// `program.instructions` must be null or point to `program.len` instructions.
unsafe fn copied(program: &RawProgram) -> Vec<Instruction> {
    if program.instructions.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(program.instructions, program.len as usize) }.to_vec()
}

/// `instruction` as `tcpdump -d` prints it, with its number.
pub fn image(instruction: &Instruction, index: usize) -> String {
    let index = c_int::try_from(index).unwrap_or(c_int::MAX);
    let _guard = LIBPCAP.lock();
    // SAFETY: bpf_image reads one instruction and returns its static buffer, a terminated string
    // that only other calls change; they are locked out until it is copied.
    unsafe { CStr::from_ptr(bpf_image(instruction, index)) }
        .to_string_lossy()
        .into_owned()
}

/// Version text of the libpcap in use.
pub fn version() -> String {
    // SAFETY: returns a terminated static string.
    unsafe { CStr::from_ptr(pcap_lib_version()) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiles_and_reports() {
        let program = compile("ip", 1, 262_144, None).unwrap();
        assert_eq!(program.len(), 4);
        assert_eq!(program[3].code, 0x06);
        assert_eq!(image(&program[0], 0), "(000) ldh      [12]");
        let message = compile("ip and prot 5", 1, 96, None).unwrap_err();
        assert!(message.contains("syntax error"), "{message}");
        assert!(compile("a\0b", 1, 96, None).is_err());
    }
}
