//! Translates classic BPF to eBPF: a capture's filter, followed by another program for the packets that it accepts.
//!
//! Like the kernel's own translation (net/core/filter.c): A is r0, X r7, the packet r6; memory cells are on the
//! stack.

use flowgauge_sys::libpcap::Instruction;

use crate::error::Error;

const A: u8 = 0;
const CONTEXT: u8 = 6;
const X: u8 = 7;
const KEPT: u8 = 8;
const STACK: u8 = 10;

/// Start of the kernel's ancillary data (`SKF_AD_OFF`).
const ANCILLARY: u32 = 0xffff_f000;
/// Bytes of cells.
const CELLS: i16 = 64;
/// The function `bpf_tail_call`.
const TAIL_CALL: i32 = 12;
/// Fields of `struct __sk_buff`.
mod field {
    pub(super) const LEN: i16 = 0;
    pub(super) const PACKET_TYPE: i16 = 4;
    pub(super) const PROTOCOL: i16 = 16;
    pub(super) const VLAN_PRESENT: i16 = 20;
    pub(super) const VLAN_TCI: i16 = 24;
    pub(super) const VLAN_PROTOCOL: i16 = 28;
    pub(super) const INTERFACE: i16 = 40;
    pub(super) const CB: i16 = 48;
}

/// A program in the making.
#[derive(Default)]
struct Program {
    words: Vec<u64>,
    /// Where jumps stand, and to which instruction of the filter.
    jumps: Vec<(usize, usize)>,
}

impl Program {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = value.to_le_bytes();
        let word = [code, from << 4 | to, low, high, a, b, c, d];
        self.words.push(u64::from_le_bytes(word));
    }

    fn jump(&mut self, code: u8, from: u8, value: i32, target: usize) {
        self.jumps.push((self.words.len(), target));
        self.put(code, A, from, 0, value);
    }

    /// Loads a word of the context into A.
    fn load_field(&mut self, offset: i16) {
        self.put(0x61, A, CONTEXT, offset, 0);
    }

    /// A word of two bytes, as the network has them, in the host's order.
    fn swap(&mut self) {
        self.put(0xdc, A, 0, 0, 16);
    }

    /// Refuses.
    fn refuse(&mut self) {
        self.put(0xb4, A, 0, 0, 0);
        self.put(0x95, 0, 0, 0, 0);
    }

    /// Goes on with the program in the map `next` for the snap length in A; without one accepts.
    fn accept(&mut self, next: i32) {
        self.put(0xbc, KEPT, A, 0, 0);
        // 0 refuses.
        self.put(0x56, KEPT, 0, 2, 0);
        self.refuse();
        self.put(0x63, CONTEXT, KEPT, field::CB, 0);
        self.put(0xbf, 1, CONTEXT, 0, 0);
        // A map by its descriptor.
        self.put(0x18, 2, 1, 0, next);
        self.put(0, 0, 0, 0, 0);
        self.put(0xb4, 3, 0, 0, 0);
        self.put(0x85, 0, 0, 0, TAIL_CALL);
        self.put(0xbc, A, KEPT, 0, 0);
        self.put(0x95, 0, 0, 0, 0);
    }
}

/// Translates a filter of an interface with this ARP hardware type.
///
/// # Errors
/// [`Error::Filter`] with the operation that there is none for.
pub(crate) fn translate(
    filter: &[Instruction],
    hardware: u16,
    next: i32,
) -> Result<Vec<u64>, Error> {
    let mut program = Program::default();
    program.put(0xbf, CONTEXT, 1, 0, 0);
    program.put(0xb4, A, 0, 0, 0);
    program.put(0xb4, X, 0, 0, 0);
    for cell in 0..CELLS / 8 {
        program.put(0x7a, STACK, 0, -8 * (cell + 1), 0);
    }
    let mut starts = Vec::with_capacity(filter.len());
    // The verifier takes nothing that is never run. (Classic BPF jumps forward alone.)
    let mut runs = vec![false; filter.len()];
    if let Some(first) = runs.first_mut() {
        *first = true;
    }
    for (at, instruction) in filter.iter().enumerate() {
        starts.push(program.words.len());
        if runs[at] {
            one(&mut program, at, *instruction, hardware, next)?;
            for after in following(at, *instruction).into_iter().flatten() {
                *runs.get_mut(after).ok_or(Error::Filter(instruction.code))? = true;
            }
        }
    }
    for (place, target) in core::mem::take(&mut program.jumps) {
        let target = starts.get(target).copied().unwrap_or(0);
        let distance = target.wrapping_sub(place + 1);
        let distance = i16::try_from(distance).map_err(|_| Error::Filter(0x05))?;
        program.words[place] |= u64::from(distance.cast_unsigned()) << 16;
    }
    Ok(program.words)
}

/// What can be run after an instruction.
fn following(at: usize, instruction: Instruction) -> [Option<usize>; 2] {
    let Instruction { code, jt, jf, k } = instruction;
    match code {
        0x06 | 0x16 => [None; 2],
        0x05 => [Some(at + 1 + k as usize), None],
        _ if code & 0x07 == 0x05 => [jt, jf].map(|skips| Some(at + 1 + usize::from(skips))),
        _ => [Some(at + 1), None],
    }
}

fn one(
    program: &mut Program,
    at: usize,
    instruction: Instruction,
    hardware: u16,
    next: i32,
) -> Result<(), Error> {
    let Instruction { code, jt, jf, k } = instruction;
    let unknown = Err(Error::Filter(code));
    let value = k.cast_signed();
    let cell = |k: u32| -4 - 4 * i16::try_from(k.min(15)).unwrap_or(15);
    let low = code.to_le_bytes()[0];
    if code > 0xff {
        return unknown;
    }
    match code {
        // Loads of the packet.
        0x20 | 0x28 | 0x30 if k >= ANCILLARY => match k - ANCILLARY {
            0 => {
                program.load_field(field::PROTOCOL);
                program.swap();
            }
            4 => program.load_field(field::PACKET_TYPE),
            8 => program.load_field(field::INTERFACE),
            28 => program.put(0xb4, A, 0, 0, hardware.into()),
            44 => program.load_field(field::VLAN_TCI),
            48 => program.load_field(field::VLAN_PRESENT),
            60 => {
                program.load_field(field::VLAN_PROTOCOL);
                program.swap();
            }
            _ => return unknown,
        },
        0x20 | 0x28 | 0x30 => program.put(low, 0, 0, 0, value),
        0x40 | 0x48 | 0x50 => program.put(low, 0, X, 0, value),
        // The length of the IPv4 header into X.
        0xb1 => {
            program.put(0xbc, KEPT, A, 0, 0);
            program.put(0x30, 0, 0, 0, value);
            program.put(0x54, A, 0, 0, 15);
            program.put(0x64, A, 0, 0, 2);
            program.put(0xbc, X, A, 0, 0);
            program.put(0xbc, A, KEPT, 0, 0);
        }
        0x80 => program.load_field(field::LEN),
        0x81 => program.put(0x61, X, CONTEXT, field::LEN, 0),
        0x00 => program.put(0xb4, A, 0, 0, value),
        0x01 => program.put(0xb4, X, 0, 0, value),
        0x60 => program.put(0x61, A, STACK, cell(k), 0),
        0x61 => program.put(0x61, X, STACK, cell(k), 0),
        0x02 => program.put(0x63, STACK, A, cell(k), 0),
        0x03 => program.put(0x63, STACK, X, cell(k), 0),
        0x07 => program.put(0xbc, X, A, 0, 0),
        0x87 => program.put(0xbc, A, X, 0, 0),
        0x84 => program.put(0x84, A, 0, 0, 0),
        // Arithmetic with a constant: division by it is by no zero.
        0x04 | 0x14 | 0x24 | 0x34 | 0x44 | 0x54 | 0x64 | 0x74 | 0x94 | 0xa4 => {
            if matches!(code, 0x34 | 0x94) && k == 0 || matches!(code, 0x64 | 0x74) && k > 31 {
                return unknown;
            }
            program.put(low, A, 0, 0, value);
        }
        0x0c | 0x1c | 0x2c | 0x3c | 0x4c | 0x5c | 0x6c | 0x7c | 0x9c | 0xac => {
            if matches!(code, 0x3c | 0x9c) {
                program.put(0x56, X, 0, 2, 0);
                program.refuse();
            }
            program.put(low, A, X, 0, 0);
        }
        0x05 => program.jump(0x05, 0, 0, at + 1 + k as usize),
        // Conditions: in 32 bits.
        0x15 | 0x25 | 0x35 | 0x45 | 0x1d | 0x2d | 0x3d | 0x4d => {
            let (from, value) = if code & 8 == 0 { (0, value) } else { (X, 0) };
            program.jump(low & 0xf8 | 0x06, from, value, at + 1 + usize::from(jt));
            if jf != 0 {
                program.jump(0x05, 0, 0, at + 1 + usize::from(jf));
            }
        }
        0x06 if k == 0 => program.refuse(),
        0x06 => {
            program.put(0xb4, A, 0, 0, value);
            program.accept(next);
        }
        0x16 => program.accept(next),
        _ => return unknown,
    }
    Ok(())
}
