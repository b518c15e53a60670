//! The program that the kernel runs before copying a packet into the ring.

use flowgauge_sys::libpcap::Instruction;
use flowgauge_sys::packet::hardware;

use super::assembler::{Assembler, HARDWARE, LOAD_WORD, PACKET_TYPE, RETURN, VLAN_PRESENT};

/// `PACKET_OUTGOING`.
const OUTGOING: u32 = 4;

/// Refuses everything.
pub(super) fn reject_all() -> Vec<Instruction> {
    let mut program = Assembler::default();
    program.op(RETURN, 0);
    program.finish()
}

/// Filters by `programs`, one per ARP hardware type, and accepts what none of them is for with
/// `snap_len`, as well as packets whose VLAN tag is not in the frame: a program compiled for
/// frames as they are on the wire cannot judge those, user space does (it puts the tag back).
///
/// With `loopback_once`, packets of loopback interfaces are taken only when they arrive, not when
/// they are sent, too.
pub(super) fn by_hardware(
    programs: &[(u16, &[Instruction])],
    snap_len: u32,
    loopback_once: bool,
) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let refuse = program.label();
    if loopback_once {
        let arriving = program.label();
        let sent = program.label();
        program.op(LOAD_WORD, PACKET_TYPE);
        program.if_equal(OUTGOING, sent);
        program.jump(arriving);
        program.place(sent);
        program.op(LOAD_WORD, HARDWARE);
        program.if_equal(u32::from(hardware::LOOPBACK), refuse);
        program.place(arriving);
    }
    let accept = program.label();
    program.op(LOAD_WORD, VLAN_PRESENT);
    program.if_equal(1, accept);
    program.op(LOAD_WORD, HARDWARE);
    let starts: Vec<_> = programs
        .iter()
        .map(|(hardware, _)| {
            let start = program.label();
            program.if_equal(u32::from(*hardware), start);
            start
        })
        .collect();
    program.place(accept);
    program.op(RETURN, snap_len);
    program.place(refuse);
    program.op(RETURN, 0);
    for (start, (_, instructions)) in starts.into_iter().zip(programs) {
        program.place(start);
        program.include(instructions);
    }
    program.finish()
}
