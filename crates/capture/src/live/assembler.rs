//! An assembler for classic BPF: the kernel's extensions, and jumps to labels.

use flowgauge_sys::libpcap::Instruction;

/// Start of the kernel's ancillary data (`SKF_AD_OFF`).
const ANCILLARY: u32 = 0xffff_f000;
/// `SKF_AD_PROTOCOL`: the Ethernet type as the kernel sees it.
pub(super) const PROTOCOL: u32 = ANCILLARY;
/// `SKF_AD_PKTTYPE`: `PACKET_HOST` ..
pub(super) const PACKET_TYPE: u32 = ANCILLARY + 4;
/// `SKF_AD_HATYPE`: ARP hardware type of the interface.
pub(super) const HARDWARE: u32 = ANCILLARY + 28;
/// `SKF_AD_VLAN_TAG_PRESENT`.
pub(super) const VLAN_PRESENT: u32 = ANCILLARY + 48;
/// `SKF_NET_OFF`: offsets from here count from the network header.
pub(super) const NETWORK: u32 = 0xfff0_0000;
/// `SKF_LL_OFF`: offsets from here count from the link header.
pub(super) const LINK: u32 = 0xffe0_0000;

/// `ld [k]`.
pub(super) const LOAD_WORD: u16 = 0x20;
/// `ldh [k]`.
pub(super) const LOAD_HALF: u16 = 0x28;
/// `ld [x + k]`.
pub(super) const LOAD_WORD_AT_X: u16 = 0x40;
/// `ld M[k]`.
pub(super) const LOAD_CELL: u16 = 0x60;
/// `ldx #k`.
pub(super) const LOAD_X: u16 = 0x01;
/// `ldx M[k]`.
pub(super) const LOAD_X_CELL: u16 = 0x61;
/// `st M[k]`.
pub(super) const STORE: u16 = 0x02;
/// `mul #k`.
pub(super) const MULTIPLY: u16 = 0x24;
/// `rsh #k`.
pub(super) const SHIFT_RIGHT: u16 = 0x74;
/// `add x`.
pub(super) const ADD_X: u16 = 0x0c;
/// `xor x`.
pub(super) const XOR_X: u16 = 0xac;
/// `tax`.
pub(super) const A_TO_X: u16 = 0x07;
/// `ret #k`.
pub(super) const RETURN: u16 = 0x06;
/// `ret a`.
pub(super) const RETURN_A: u16 = 0x16;

const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program in the making. Conditions jump over one unconditional jump, which reaches any label.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(super) fn op(&mut self, code: u16, k: u32) -> &mut Assembler {
        self.instructions.push(Instruction {
            code,
            jt: 0,
            jf: 0,
            k,
        });
        self
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    pub(super) fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.op(JUMP, 0);
    }

    pub(super) fn if_equal(&mut self, k: u32, label: Label) {
        self.condition(IF_EQUAL, k, label);
    }

    fn condition(&mut self, code: u16, k: u32, label: Label) {
        self.instructions.push(Instruction {
            code,
            jt: 0,
            jf: 1,
            k,
        });
        self.jump(label);
    }

    /// Puts a whole program here; it must end with a return.
    pub(super) fn include(&mut self, program: &[Instruction]) {
        self.instructions.extend_from_slice(program);
    }

    /// The program, its jumps filled in. All labels must be placed, behind their jumps.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].unwrap_or(at + 1);
            self.instructions[at].k = target.saturating_sub(at + 1) as u32;
        }
        self.instructions
    }
}
