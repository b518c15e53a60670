//! The program that spreads packets over the sockets of a fanout group.
//!
//! The kernel's own hash is not used: `rxhash` is 0 on virtual devices, and where the card
//! computes it, the two directions of a flow differ.

use flowgauge_sys::libpcap::Instruction;

use super::assembler::{
    A_TO_X, ADD_X, Assembler, LINK, LOAD_CELL, LOAD_HALF, LOAD_WORD, LOAD_WORD_AT_X, LOAD_X,
    LOAD_X_CELL, MULTIPLY, NETWORK, PROTOCOL, RETURN_A, SHIFT_RIGHT, STORE, XOR_X,
};

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
/// 802.1Q, 802.1ad and the older QinQ.
const VLAN_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];

/// Scratch cells.
const SOURCE: u32 = 0;
const DESTINATION: u32 = 1;
const TEMPORARY: u32 = 3;

/// A hash of the IP addresses that is the same for both directions, so that a flow stays on one
/// socket. Packets without IP are spread by their Ethernet addresses. `key` makes the hash
/// unpredictable.
///
/// Ports are left out on purpose: fragments have none, so a flow of which some packets are
/// fragmented would fall apart (with ports, 54 of the 501 TCP flows of the generator's `zoo`
/// did), and the outer ports of VXLAN and Geneve differ between the directions of an inner flow.
/// The price is that all that two hosts say to each other is on one socket.
pub(super) fn symmetric_hash(key: u32) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let [test_type, ipv4, ipv6, tagged, mix] = core::array::from_fn(|_| program.label());
    let twice = program.label();

    // X is where the IP header begins, from the kernel's network header: behind the tags that
    // were left in the frame.
    program.op(LOAD_X, 0);
    program.op(LOAD_WORD, PROTOCOL);
    for vlan in VLAN_TYPES {
        program.if_equal(vlan, tagged);
    }
    program.jump(test_type);
    program.place(tagged);
    program.op(LOAD_X, 4).op(LOAD_HALF, NETWORK + 2);
    for vlan in VLAN_TYPES {
        program.if_equal(vlan, twice);
    }
    program.jump(test_type);
    program.place(twice);
    program.op(LOAD_X, 8).op(LOAD_HALF, NETWORK + 6);
    program.place(test_type);
    program.if_equal(IPV4, ipv4);
    program.if_equal(IPV6, ipv6);
    program.op(LOAD_WORD, LINK + 2).op(STORE, DESTINATION);
    program.op(LOAD_WORD, LINK + 8).op(STORE, SOURCE);
    program.jump(mix);

    program.place(ipv4);
    program.op(LOAD_WORD_AT_X, NETWORK + 12).op(STORE, SOURCE);
    program
        .op(LOAD_WORD_AT_X, NETWORK + 16)
        .op(STORE, DESTINATION);
    program.jump(mix);

    program.place(ipv6);
    fold_address(&mut program, 8, SOURCE);
    fold_address(&mut program, 24, DESTINATION);

    program.place(mix);
    program.op(LOAD_X_CELL, DESTINATION).op(LOAD_CELL, SOURCE);
    program
        .op(XOR_X, 0)
        .op(MULTIPLY, 0x9e37_79b1)
        .op(STORE, TEMPORARY);
    program.op(LOAD_CELL, SOURCE).op(ADD_X, 0);
    program.op(LOAD_X_CELL, TEMPORARY).op(XOR_X, 0);
    program.op(LOAD_X, key).op(XOR_X, 0);
    for multiplier in [0x85eb_ca6b, 0xc2b2_ae35] {
        // A ^= A >> 16; A *= multiplier.
        program.op(A_TO_X, 0).op(SHIFT_RIGHT, 16).op(XOR_X, 0);
        program.op(MULTIPLY, multiplier);
    }
    program.op(A_TO_X, 0).op(SHIFT_RIGHT, 16).op(XOR_X, 0);
    program.op(RETURN_A, 0);
    program.finish()
}

/// Folds the IPv6 address at `offset` into a cell; X stays.
fn fold_address(program: &mut Assembler, offset: u32, cell: u32) {
    const STORE_X: u16 = 0x03;
    const BASE: u32 = 4;
    program.op(STORE_X, BASE);
    program.op(LOAD_WORD_AT_X, NETWORK + offset).op(STORE, cell);
    for word in 1..4 {
        program.op(LOAD_WORD_AT_X, NETWORK + offset + 4 * word);
        program.op(MULTIPLY, 2 * word + 1);
        program.op(LOAD_X_CELL, cell).op(XOR_X, 0).op(STORE, cell);
        program.op(LOAD_X_CELL, BASE);
    }
}
