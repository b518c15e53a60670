//! A verified classic-BPF program and its interpreter.
//!
//! Instructions have the semantics of libpcap's `bpf_filter`, which are those of McCanne and Jacobson, "The BSD Packet
//! Filter", USENIX 1993. A program is decoded once, when it is loaded: an operation is one byte, and jump targets are
//! absolute. It is interpreted for individual packets; those of a batch are [decided](super::decisions) together.

use std::sync::Arc;

use flowgauge_sys::libpcap::Instruction;

use super::decisions::Decisions;
use super::lists::{self, List};
use super::view::View;

/// Start of the kernel's ancillary data in the space of load offsets (`SKF_AD_OFF`).
const ANCILLARY: u32 = 0xffff_f000;
/// `SKF_AD_VLAN_TAG`.
const ANCILLARY_VLAN_TAG: u32 = ANCILLARY + 44;
/// `SKF_AD_VLAN_TAG_PRESENT`.
const ANCILLARY_VLAN_PRESENT: u32 = ANCILLARY + 48;
/// `SKF_AD_VLAN_TPID`.
const ANCILLARY_VLAN_TPID: u32 = ANCILLARY + 60;

const SCRATCH_CELLS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Operation {
    LoadWord,
    LoadHalf,
    LoadByte,
    LoadWordAtX,
    LoadHalfAtX,
    LoadByteAtX,
    LoadLength,
    LoadConstant,
    LoadCell,
    LoadVlanTag,
    LoadVlanPresent,
    LoadVlanTpid,
    LoadXHeaderLength,
    LoadXLength,
    LoadXConstant,
    LoadXCell,
    StoreA,
    StoreX,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Negate,
    Jump,
    JumpBack,
    IfEqual,
    IfGreater,
    IfGreaterOrEqual,
    IfAnyBit,
    ReturnConstant,
    ReturnA,
    AToX,
    XToA,
    /// Whether A is in list number `value`.
    IfIn,
    /// Load a word, then whether it is in a network of list number `value`.
    WordIfIn,
}

/// One decoded instruction, or several that ask whether a number is in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) k: u32,
    pub(super) value: u32,
    pub(super) when_true: u32,
    pub(super) when_false: u32,
    pub(super) operation: Operation,
    /// The second operand is X, not `k`.
    pub(super) by_x: bool,
}

/// A program that was checked: known operations, jumps inside the program, scratch cells in
/// range, no division by a constant zero, a return at the end.
#[derive(Clone, Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    lists: Vec<Arc<List>>,
    uses_vlan_metadata: bool,
    /// The same as tests of values, where it can be said so.
    decisions: Option<Arc<Decisions>>,
}

impl Program {
    /// Checks and decodes `instructions`. An empty program accepts everything, as in libpcap.
    pub(super) fn load(instructions: &[Instruction]) -> Result<Program, String> {
        let mut steps = Vec::with_capacity(instructions.len());
        for (at, instruction) in instructions.iter().enumerate() {
            let step = decode(instruction, at, instructions.len())
                .map_err(|reason| format!("instruction {at} of the program {reason}"))?;
            steps.push(step);
        }
        match steps.last().map(|step| step.operation) {
            Some(Operation::ReturnConstant | Operation::ReturnA) => {}
            Some(_) => return Err("the program does not end with a return".to_owned()),
            None => steps.push(Step {
                k: u32::MAX,
                value: 0,
                when_true: 0,
                when_false: 0,
                operation: Operation::ReturnConstant,
                by_x: false,
            }),
        }
        let uses_vlan_metadata = steps.iter().any(|step| {
            matches!(
                step.operation,
                Operation::LoadVlanTag | Operation::LoadVlanPresent | Operation::LoadVlanTpid
            )
        });
        let lists: Vec<Arc<List>> = lists::gather(&mut steps)
            .into_iter()
            .map(Arc::new)
            .collect();
        let decisions = Decisions::of(&steps, &lists).map(Arc::new);
        Ok(Program {
            steps,
            lists,
            uses_vlan_metadata,
            decisions,
        })
    }

    /// The lists in it.
    #[cfg(test)]
    pub(super) fn lists(&self) -> &[Arc<List>] {
        &self.lists
    }

    /// The same as tests of values; `None`: it cannot be said so.
    pub(super) fn decisions(&self) -> Option<&Arc<Decisions>> {
        self.decisions.as_ref()
    }

    /// Whether the program asks the kernel's metadata for the VLAN tag instead of the bytes.
    pub(super) fn uses_vlan_metadata(&self) -> bool {
        self.uses_vlan_metadata
    }

    /// The snap length the program gives the packet; 0 refuses it. A load outside of the captured
    /// bytes refuses, too.
    #[inline]
    pub(super) fn run<V: View>(&self, packet: &V, wire_len: u32) -> u32 {
        let mut a = 0_u32;
        let mut x = 0_u32;
        let mut cells = [0_u32; SCRATCH_CELLS];
        let mut at = 0_usize;
        // Only `protochain` jumps back, and each turn goes over at least a byte of the packet.
        let mut turns_left = packet.len() + 1;
        macro_rules! load {
            ($loaded:expr) => {
                match $loaded {
                    Some(value) => value,
                    None => return 0,
                }
            };
        }
        macro_rules! branch {
            ($step:ident, $condition:expr) => {
                at = if $condition {
                    $step.when_true
                } else {
                    $step.when_false
                } as usize
            };
        }
        macro_rules! operand {
            ($step:ident) => {
                if $step.by_x { x } else { $step.k }
            };
        }
        while let Some(step) = self.steps.get(at) {
            at += 1;
            let k = step.k;
            let offset = k as usize;
            let from_x = x as usize + offset;
            match step.operation {
                Operation::LoadWord => a = load!(packet.word(offset)),
                Operation::LoadHalf => a = load!(packet.half(offset)),
                Operation::LoadByte => a = load!(packet.byte(offset)),
                Operation::LoadWordAtX => a = load!(packet.word(from_x)),
                Operation::LoadHalfAtX => a = load!(packet.half(from_x)),
                Operation::LoadByteAtX => a = load!(packet.byte(from_x)),
                Operation::LoadLength => a = wire_len,
                Operation::LoadConstant => a = k,
                Operation::LoadCell => a = cells[offset % SCRATCH_CELLS],
                Operation::LoadVlanTag => a = load!(packet.vlan()).1,
                Operation::LoadVlanPresent => a = load!(packet.vlan()).0,
                Operation::LoadVlanTpid => a = load!(packet.vlan()).2,
                Operation::LoadXHeaderLength => x = (load!(packet.byte(offset)) & 15) << 2,
                Operation::LoadXLength => x = wire_len,
                Operation::LoadXConstant => x = k,
                Operation::LoadXCell => x = cells[offset % SCRATCH_CELLS],
                Operation::StoreA => cells[offset % SCRATCH_CELLS] = a,
                Operation::StoreX => cells[offset % SCRATCH_CELLS] = x,
                Operation::Add
                | Operation::Sub
                | Operation::Mul
                | Operation::Div
                | Operation::Mod
                | Operation::And
                | Operation::Or
                | Operation::Xor
                | Operation::ShiftLeft
                | Operation::ShiftRight => {
                    a = load!(arithmetic(step.operation, a, operand!(step)));
                }
                Operation::Negate => a = a.wrapping_neg(),
                Operation::Jump => at = step.when_true as usize,
                Operation::JumpBack => {
                    if turns_left == 0 {
                        return 0;
                    }
                    turns_left -= 1;
                    at = step.when_true as usize;
                }
                Operation::IfEqual => branch!(step, a == operand!(step)),
                Operation::IfGreater => branch!(step, a > operand!(step)),
                Operation::IfGreaterOrEqual => branch!(step, a >= operand!(step)),
                Operation::IfAnyBit => branch!(step, a & operand!(step) != 0),
                Operation::ReturnConstant => return k,
                Operation::ReturnA => return a,
                Operation::AToX => x = a,
                Operation::XToA => a = x,
                Operation::IfIn => branch!(step, self.is_in(step.value, a)),
                Operation::WordIfIn => {
                    let word = load!(packet.word(offset));
                    // Where one is equal the packet's fate is decided, whatever is in A.
                    a = word & self.lists[step.value as usize].last_mask;
                    branch!(step, self.is_in(step.value, word));
                }
            }
        }
        0
    }
}

impl Program {
    /// Not inlined: filters without lists would have fewer registers.
    #[inline(never)]
    fn is_in(&self, list: u32, word: u32) -> bool {
        self.lists[list as usize].contains(word)
    }
}

fn decode(instruction: &Instruction, at: usize, len: usize) -> Result<Step, &'static str> {
    let k = instruction.k;
    let (operation, by_x) = operation_of(instruction).ok_or("has an unknown operation")?;
    let target = |jump: i64| {
        let target = at as i64 + 1 + jump;
        match u32::try_from(target) {
            Ok(inside) if (inside as usize) < len => Ok(inside),
            _ => Err("jumps out of the program"),
        }
    };
    let mut step = Step {
        k,
        value: 0,
        when_true: 0,
        when_false: 0,
        operation,
        by_x,
    };
    match operation {
        Operation::LoadCell | Operation::LoadXCell | Operation::StoreA | Operation::StoreX
            if k as usize >= SCRATCH_CELLS =>
        {
            return Err("uses scratch memory that does not exist");
        }
        Operation::Div | Operation::Mod if k == 0 && !by_x => return Err("divides by zero"),
        Operation::Jump => {
            // The offset is signed: libpcap jumps back for `protochain`.
            let jump = i64::from(k.cast_signed());
            step.when_true = target(jump)?;
            if jump < 0 {
                step.operation = Operation::JumpBack;
            }
        }
        Operation::IfEqual
        | Operation::IfGreater
        | Operation::IfGreaterOrEqual
        | Operation::IfAnyBit => {
            step.when_true = target(i64::from(instruction.jt))?;
            step.when_false = target(i64::from(instruction.jf))?;
        }
        _ => {}
    }
    Ok(step)
}

/// The operation of an instruction by its code, as `<linux/bpf_common.h>` composes it from
/// class, size and mode, and whether its second operand is X.
fn operation_of(instruction: &Instruction) -> Option<(Operation, bool)> {
    /// Of arithmetic and conditional jumps.
    const BY_X: u16 = 0x08;
    let operation = match instruction.code {
        0x20 | 0x28 | 0x30 if instruction.k == ANCILLARY_VLAN_TAG => Operation::LoadVlanTag,
        0x20 | 0x28 | 0x30 if instruction.k == ANCILLARY_VLAN_PRESENT => Operation::LoadVlanPresent,
        0x20 | 0x28 | 0x30 if instruction.k == ANCILLARY_VLAN_TPID => Operation::LoadVlanTpid,
        0x20 => Operation::LoadWord,
        0x28 => Operation::LoadHalf,
        0x30 => Operation::LoadByte,
        0x40 => Operation::LoadWordAtX,
        0x48 => Operation::LoadHalfAtX,
        0x50 => Operation::LoadByteAtX,
        0x80 => Operation::LoadLength,
        0x00 => Operation::LoadConstant,
        0x60 => Operation::LoadCell,
        0xb1 => Operation::LoadXHeaderLength,
        0x81 => Operation::LoadXLength,
        0x01 => Operation::LoadXConstant,
        0x61 => Operation::LoadXCell,
        0x02 => Operation::StoreA,
        0x03 => Operation::StoreX,
        0x84 => Operation::Negate,
        0x05 => Operation::Jump,
        0x06 => Operation::ReturnConstant,
        0x16 => Operation::ReturnA,
        0x07 => Operation::AToX,
        0x87 => Operation::XToA,
        code => {
            let operation = match code & !BY_X {
                0x04 => Operation::Add,
                0x14 => Operation::Sub,
                0x24 => Operation::Mul,
                0x34 => Operation::Div,
                0x94 => Operation::Mod,
                0x54 => Operation::And,
                0x44 => Operation::Or,
                0xa4 => Operation::Xor,
                0x64 => Operation::ShiftLeft,
                0x74 => Operation::ShiftRight,
                0x15 => Operation::IfEqual,
                0x25 => Operation::IfGreater,
                0x35 => Operation::IfGreaterOrEqual,
                0x45 => Operation::IfAnyBit,
                _ => return None,
            };
            return Some((operation, code & BY_X != 0));
        }
    };
    Some((operation, false))
}

/// What an operation makes of two numbers; `None`: it divides by zero.
pub(super) fn arithmetic(operation: Operation, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        Operation::Add => a.wrapping_add(b),
        Operation::Sub => a.wrapping_sub(b),
        Operation::Mul => a.wrapping_mul(b),
        Operation::Div => a.checked_div(b)?,
        Operation::Mod => a.checked_rem(b)?,
        Operation::And => a & b,
        Operation::Or => a | b,
        Operation::Xor => a ^ b,
        Operation::ShiftLeft => a.checked_shl(b).unwrap_or(0),
        Operation::ShiftRight => a.checked_shr(b).unwrap_or(0),
        Operation::IfGreater => u32::from(a > b),
        _ => return None,
    })
}
