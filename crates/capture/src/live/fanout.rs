//! The program that spreads packets over the sockets of a fanout group.
//!
//! The kernel's own hash is not used: `rxhash` is 0 on virtual devices, and where the card
//! computes it, the two directions of a flow differ.

use flowgauge_sys::libpcap::Instruction;

use super::assembler::{
    A_TO_X, ADD_X, AND, Assembler, LINK, LOAD_BYTE_AT_X, LOAD_CELL, LOAD_HALF, LOAD_HALF_AT_X,
    LOAD_WORD, LOAD_WORD_AT_X, LOAD_X, LOAD_X_CELL, MULTIPLY, NETWORK, PROTOCOL, RETURN_A,
    SHIFT_LEFT, SHIFT_RIGHT, STORE, XOR_X,
};

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
/// 802.1Q, 802.1ad and the older QinQ.
const VLAN_TYPES: [u32; 3] = [0x8100, 0x88a8, 0x9100];
const TCP: u32 = 6;

/// Scratch cells.
const SOURCE: u32 = 0;
const DESTINATION: u32 = 1;
const PORTS: u32 = 2;
const TEMPORARY: u32 = 3;

/// A hash that is the same for both directions, so that a flow stays on one socket: of addresses
/// and ports for TCP, of addresses for everything else over IP (which is what network cards do by
/// default, too). UDP is often fragmented, fragments have no ports, and a flow has whole datagrams
/// and fragments; in UDP tunnels (VXLAN, Geneve) the outer ports of the two directions differ.
/// Only fragmented TCP can leave its flow. Other packets are spread by their Ethernet addresses.
/// `key` makes the hash unpredictable.
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
    program.op(LOAD_X, 0).op(0x03, PORTS);
    program.op(LOAD_WORD, LINK + 2).op(STORE, DESTINATION);
    program.op(LOAD_WORD, LINK + 8).op(STORE, SOURCE);
    program.jump(mix);

    program.place(ipv4);
    let no_ports = program.label();
    let ports = program.label();
    load_ports_of_none(&mut program, |program| {
        program.op(LOAD_WORD_AT_X, NETWORK + 12).op(STORE, SOURCE);
        program
            .op(LOAD_WORD_AT_X, NETWORK + 16)
            .op(STORE, DESTINATION);
    });
    program.op(LOAD_HALF_AT_X, NETWORK + 6);
    program.if_any_bit(0x3fff, no_ports);
    program.op(LOAD_BYTE_AT_X, NETWORK);
    program.op(AND, 15).op(SHIFT_LEFT, 2).op(STORE, TEMPORARY);
    program.op(LOAD_BYTE_AT_X, NETWORK + 9);
    program.if_equal(TCP, ports);
    program.jump(no_ports);
    program.place(ports);
    program.op(LOAD_CELL, TEMPORARY).op(ADD_X, 0).op(A_TO_X, 0);
    add_ports(&mut program, 0);
    program.jump(mix);

    program.place(ipv6);
    let ports = program.label();
    load_ports_of_none(&mut program, |program| {
        fold_address(program, 8, SOURCE);
        fold_address(program, 24, DESTINATION);
    });
    program.op(LOAD_BYTE_AT_X, NETWORK + 6);
    program.if_equal(TCP, ports);
    program.jump(no_ports);
    program.place(ports);
    add_ports(&mut program, 40);
    program.jump(mix);

    program.place(no_ports);
    program.place(mix);
    program.op(LOAD_X_CELL, DESTINATION).op(LOAD_CELL, SOURCE);
    program
        .op(XOR_X, 0)
        .op(MULTIPLY, 0x9e37_79b1)
        .op(STORE, TEMPORARY);
    program.op(LOAD_CELL, SOURCE).op(ADD_X, 0);
    program.op(LOAD_X_CELL, TEMPORARY).op(XOR_X, 0);
    program.op(LOAD_X_CELL, PORTS).op(ADD_X, 0);
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

/// Stores zero ports, then the addresses by `addresses`; X stays.
fn load_ports_of_none(program: &mut Assembler, addresses: impl FnOnce(&mut Assembler)) {
    const LOAD: u16 = 0x00;
    program.op(LOAD, 0).op(STORE, PORTS);
    addresses(program);
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

/// Stores a symmetric mix of the ports at X + `offset`.
fn add_ports(program: &mut Assembler, offset: u32) {
    program
        .op(LOAD_HALF_AT_X, NETWORK + offset)
        .op(STORE, TEMPORARY);
    program.op(LOAD_HALF_AT_X, NETWORK + offset + 2);
    program.op(LOAD_X_CELL, TEMPORARY).op(ADD_X, 0);
    program.op(MULTIPLY, 0x27d4_eb2f).op(STORE, PORTS);
}
