//! The part of system libpcap that compiles filter expressions, as safe functions. Capturing and
//! files are done without libpcap.
//!
//! Declared by hand: eight functions whose ABI has not changed since libpcap 1.0.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

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
struct RawProgram {
    len: c_uint,
    instructions: *mut Instruction,
}

/// `struct pcap_pkthdr` of 64-bit and 32-bit Linux: `struct timeval` is two `long`s.
#[repr(C)]
struct RawHeader {
    seconds: core::ffi::c_long,
    microseconds: core::ffi::c_long,
    captured_len: c_uint,
    wire_len: c_uint,
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
    fn pcap_offline_filter(
        program: *const RawProgram,
        header: *const RawHeader,
        packet: *const u8,
    ) -> c_int;
    fn bpf_image(instruction: *const Instruction, index: c_int) -> *const c_char;
    fn pcap_lib_version() -> *const c_char;
}

/// libpcap keeps some state in statics (the text of `bpf_image`, name look-ups of old versions).
static LIBPCAP: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    LIBPCAP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longer expressions are not optimised: libpcap takes minutes for that where there are thousands of terms. (Those that can
/// be divided do not come here as a whole.)
const OPTIMIZED: usize = 4096;

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
    let _guard = lock();
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
    let what = || format!("a filter of {} bytes", expression.len());
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
    let _guard = lock();
    // SAFETY: bpf_image reads one instruction and returns its static buffer, a terminated string
    // that only other calls change; they are locked out until it is copied.
    unsafe { CStr::from_ptr(bpf_image(instruction, index)) }
        .to_string_lossy()
        .into_owned()
}

/// libpcap's own verdict on a packet: the snap length, 0 when it is refused. For tests of our
/// interpreter against it.
///
/// `None` when the program is not one that libpcap may be given: it must end in a return, and
/// jump forwards and inside the program only (libpcap's interpreter trusts its input).
pub fn offline_filter(program: &[Instruction], packet: &[u8], wire_len: u32) -> Option<u32> {
    if !is_safe_for_libpcap(program) {
        return None;
    }
    let raw = RawProgram {
        len: c_uint::try_from(program.len()).ok()?,
        instructions: program.as_ptr().cast_mut(),
    };
    let header = RawHeader {
        seconds: 0,
        microseconds: 0,
        captured_len: c_uint::try_from(packet.len()).ok()?,
        wire_len,
    };
    // SAFETY: libpcap only reads program and packet, both outlive the call and have the lengths
    // stated; the program was checked to terminate and to stay inside itself and its memory.
    let verdict =
        unsafe { pcap_offline_filter(&raw const raw, &raw const header, packet.as_ptr()) };
    Some(verdict.cast_unsigned())
}

/// Whether libpcap's interpreter, which trusts its input, can run `program`: known operations,
/// jumps forwards and inside, scratch cells written before they are read on every path (the
/// kernel's `check_load_and_stores`), a return at the end.
fn is_safe_for_libpcap(program: &[Instruction]) -> bool {
    // Cells that are surely written when an instruction is reached; bit i is cell i.
    let mut written = vec![u16::MAX; program.len()];
    if let Some(first) = written.first_mut() {
        *first = 0;
    }
    for (at, instruction) in program.iter().enumerate() {
        let k = instruction.k;
        let mut cells = written[at];
        let mut next = [Some(1_u64), None];
        match instruction.code {
            // Loads and register moves.
            0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0x80 | 0x81 | 0xb1 | 0x00 | 0x01 | 0x07
            | 0x87 => {}
            // Loads from and stores to the scratch cells.
            0x60 | 0x61 if k < 16 && cells & (1 << k) != 0 => {}
            0x02 | 0x03 if k < 16 => cells |= 1 << k,
            // Arithmetic; no division by a constant zero, no overlong shift.
            0x04 | 0x14 | 0x24 | 0x44 | 0x54 | 0xa4 | 0x84 | 0x0c | 0x1c | 0x2c | 0x3c | 0x4c
            | 0x5c | 0x6c | 0x7c | 0x9c | 0xac => {}
            0x34 | 0x94 if k != 0 => {}
            0x64 | 0x74 if k < 32 => {}
            0x05 => next = [Some(1 + u64::from(k)), None],
            0x15 | 0x25 | 0x35 | 0x45 | 0x1d | 0x2d | 0x3d | 0x4d => {
                next = [instruction.jt, instruction.jf].map(|jump| Some(1 + u64::from(jump)));
            }
            0x06 | 0x16 => next = [None, None],
            _ => return false,
        }
        for jump in next.into_iter().flatten() {
            let target = usize::try_from(at as u64 + jump).ok();
            let Some(there) = target.and_then(|target| written.get_mut(target)) else {
                return false;
            };
            *there &= cells;
        }
    }
    !program.is_empty()
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

    #[test]
    fn endless_programs_are_not_given_to_libpcap() {
        let jump_back = Instruction {
            code: 0x05,
            k: u32::MAX,
            ..Instruction::default()
        };
        let give_up = Instruction {
            code: 0x06,
            ..Instruction::default()
        };
        assert_eq!(offline_filter(&[jump_back, give_up], &[], 0), None);
        assert_eq!(offline_filter(&[], &[], 0), None);
    }
}
