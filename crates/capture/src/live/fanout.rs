//! The program that distributes packets to the sockets of a fanout group.
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
const BASE: u32 = 2;

/// A hash of the IP addresses that is the same for both directions, so that a flow stays on one
/// socket. Packets without IP are spread by their Ethernet addresses. `key` makes the hash
/// unpredictable: each address is mixed with it before the two meet, as their sum and their difference alone are
/// the same for as many pairs as somebody may care to choose.
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

    let secret = (key ^ 0x5851_f42d)
        .wrapping_mul(0x9e37_79b1)
        .rotate_left(15)
        | 1;
    program.place(ipv6);
    fold_address(&mut program, 8, SOURCE, secret);
    fold_address(&mut program, 24, DESTINATION, secret);

    program.place(mix);
    for cell in [SOURCE, DESTINATION] {
        program.op(LOAD_CELL, cell).op(LOAD_X, key).op(XOR_X, 0);
        scramble(program.op(MULTIPLY, secret), 0x9e37_79b1);
        scramble(&mut program, 1).op(STORE, cell);
    }
    program.op(LOAD_X_CELL, DESTINATION).op(LOAD_CELL, SOURCE);
    scramble(program.op(ADD_X, 0), 0x85eb_ca6b);
    scramble(&mut program, 0xc2b2_ae35);
    scramble(&mut program, 1).op(RETURN_A, 0);
    program.finish()
}

/// A ^= A >> 16; A *= multiplier.
fn scramble(program: &mut Assembler, multiplier: u32) -> &mut Assembler {
    program.op(A_TO_X, 0).op(SHIFT_RIGHT, 16).op(XOR_X, 0);
    program.op(MULTIPLY, multiplier)
}

/// Folds the IPv6 address at `offset` into a cell; X stays.
fn fold_address(program: &mut Assembler, offset: u32, cell: u32, secret: u32) {
    const STORE_X: u16 = 0x03;
    program
        .op(STORE_X, BASE)
        .op(LOAD_X, secret)
        .op(STORE_X, cell);
    for word in 0..4 {
        program.op(LOAD_X_CELL, BASE);
        program.op(LOAD_WORD_AT_X, NETWORK + offset + 4 * word);
        program
            .op(LOAD_X_CELL, cell)
            .op(XOR_X, 0)
            .op(MULTIPLY, secret);
        scramble(program, 1).op(STORE, cell);
    }
    program.op(LOAD_X_CELL, BASE);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel makes of a program and a packet: its Ethernet type, and the bytes behind the Ethernet header.
    fn run(program: &[Instruction], protocol: u32, network: &[u8]) -> u32 {
        let (mut a, mut x, mut cells, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let word = |from: u32| {
                let from = from.wrapping_sub(NETWORK) as usize;
                u32::from_be_bytes(network[from..from + 4].try_into().unwrap())
            };
            match code {
                LOAD_WORD if k == PROTOCOL => a = protocol,
                LOAD_WORD_AT_X => a = word(x.wrapping_add(k)),
                LOAD_CELL => a = cells[k as usize],
                LOAD_X => x = k,
                LOAD_X_CELL => x = cells[k as usize],
                STORE => cells[k as usize] = a,
                0x03 => cells[k as usize] = x,
                MULTIPLY => a = a.wrapping_mul(k),
                SHIFT_RIGHT => a >>= k,
                ADD_X => a = a.wrapping_add(x),
                XOR_X => a ^= x,
                A_TO_X => x = a,
                0x05 => at += k as usize,
                0x15 => at += usize::from(if a == k { jt } else { jf }),
                RETURN_A => return a,
                _ => panic!("{code:#x}"),
            }
        }
    }

    fn socket(program: &[Instruction], source: &[u8], destination: &[u8]) -> usize {
        let (protocol, before) = match source.len() {
            4 => (IPV4, 12),
            _ => (IPV6, 8),
        };
        let packet = [&vec![0; before], source, destination].concat();
        run(program, protocol, &packet) as usize % 8
    }

    #[test]
    fn pairs_that_somebody_chose_are_spread_as_others() {
        let v4 = |address: u32| address.to_be_bytes().to_vec();
        let v6 = |words: [u32; 4]| words.map(u32::to_be_bytes).concat();
        type Make<'a> = &'a dyn Fn(u32) -> [Vec<u8>; 2];
        let chosen: [(&str, Make<'_>); 5] = [
            ("in order", &|n| [v4(0x0a00_0000 + n), v4(0xc000_0250)]),
            ("complements", &|n| [v4(n), v4(!n)]),
            ("equal sums", &|n| {
                [v4(0x0a00_0000 + n), v4(0xc000_0000 - n)]
            }),
            ("words of equal sums", &|n| {
                [v6([n, 3 * n, n, 1]), v6([1; 4])]
            }),
            ("words alike", &|n| [v6([n; 4]), v6([n; 4])]),
        ];
        for key in [0, 1, 0x1234_5678, 0xdead_beef, u32::MAX] {
            let program = symmetric_hash(key);
            for (name, make) in chosen {
                let mut counts = [0; 8];
                for [one, other] in (0..4096).map(make) {
                    let place = socket(&program, &one, &other);
                    assert_eq!(place, socket(&program, &other, &one));
                    counts[place] += 1;
                }
                // 512 are expected, with a standard deviation of 21.
                assert!(
                    counts.iter().all(|n| (350..674).contains(n)),
                    "{key}, {name}: {counts:?}"
                );
            }
        }
    }
}
