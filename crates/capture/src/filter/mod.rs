//! Packet filters in pcap-filter(7) syntax: libpcap compiles the expression, our own interpreter runs the
//! program on packets (or the kernel does, in live captures).
//!
//! A filter sees a VLAN tag that the kernel stripped (see [`PacketFlags::VLAN`]) at its position in the
//! frame, so the same expression selects the same packets from an interface and from a file.

mod columns;
mod decisions;
mod filtered;
mod lists;
mod names;
mod pieces;
mod place;
mod program;
mod set;
mod view;

pub(crate) use names::named_host;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use flowgauge_sys::ending::without_stop;
use flowgauge_sys::libpcap;
use flowgauge_wire::{LinkType, PacketDescriptor, PacketFlags};
use parking_lot::Mutex;

pub use columns::{Columns, Refusal};
pub use filtered::Filtered;
pub use flowgauge_sys::libpcap::Instruction;
pub use set::FilterSet;

use crate::error::Error;
use program::Program;
use view::{Plain, Tagged, WithMetadata};

/// Default snap length of filters, that of tcpdump.
pub const DEFAULT_SNAP_LEN: u32 = 262_144;

/// A compiled filter for packets of one link type.
#[derive(Clone, Debug)]
pub struct Filter {
    expression: String,
    link: LinkType,
    instructions: Vec<Instruction>,
    program: Program,
}

/// What was compiled last: an expression is compiled when it is checked, and for each worker that runs it.
static RECENT: Mutex<VecDeque<Compiled>> = Mutex::new(VecDeque::new());
const MOST_RECENT: usize = 16;

struct Compiled {
    snap_len: u32,
    netmask: Option<Ipv4Addr>,
    filter: Filter,
}

/// Formats of [`Filter::dump`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DumpStyle {
    /// Mnemonics, like `tcpdump -d`.
    #[default]
    Human,
    /// A fragment of C, like `tcpdump -dd`.
    C,
    /// Decimal numbers, the count first, like `tcpdump -ddd`.
    Decimal,
}

impl Filter {
    /// Compiles `expression`; an empty one matches everything. The verdict on matching packets is
    /// `snap_len`.
    ///
    /// # Errors
    /// [`Error::Filter`] with libpcap's message and the position in the expression.
    pub fn compile(expression: &str, link: LinkType, snap_len: u32) -> Result<Filter, Error> {
        Filter::compile_with_netmask(expression, link, snap_len, None)
    }

    /// [`Filter::compile`], with the IPv4 netmask that `ip broadcast` needs.
    ///
    /// # Errors
    /// As [`Filter::compile`].
    pub fn compile_with_netmask(
        expression: &str,
        link: LinkType,
        snap_len: u32,
        netmask: Option<Ipv4Addr>,
    ) -> Result<Filter, Error> {
        let is_it = |known: &&Compiled| {
            (known.snap_len, known.netmask, known.filter.link) == (snap_len, netmask, link)
                && known.filter.expression == expression
        };
        if let Some(known) = RECENT.lock().iter().find(is_it) {
            return Ok(known.filter.clone());
        }
        if let Some((start, name)) = named_host(expression) {
            let message = format!("unknown host '{name}'");
            return Err(Error::Filter {
                expression: expression.to_owned(),
                reason: place::at(expression, start, name, &message),
            });
        }
        let mask = netmask.map(|mask| u32::from_ne_bytes(mask.octets()));
        let what = || format!("compiling a filter of {} bytes", expression.len());
        let instructions = without_stop(what, || {
            let data_link = data_link(link);
            if let Some(instructions) = pieces::compile_long(expression, data_link, snap_len, mask)
            {
                return Ok(instructions);
            }
            let compiled = libpcap::compile(expression, data_link, snap_len, mask);
            compiled.map_err(|message| Error::Filter {
                expression: expression.to_owned(),
                reason: place::with_place(expression, link, &message),
            })
        })?;
        let mut filter = Filter::from_instructions(instructions, link)?;
        filter.expression = expression.to_owned();
        let mut recent = RECENT.lock();
        recent.truncate(MOST_RECENT - 1);
        recent.push_front(Compiled {
            snap_len,
            netmask,
            filter: filter.clone(),
        });
        Ok(filter)
    }

    /// A filter from a program compiled elsewhere. It may use the kernel's VLAN extensions
    /// (`SKF_AD_VLAN_TAG`, `_TAG_PRESENT`, `_TPID`).
    ///
    /// # Errors
    /// [`Error::Filter`] if the program is not safe to run: unknown operations, jumps out of the program,
    /// division by a constant zero, no return at the end.
    pub fn from_instructions(
        instructions: Vec<Instruction>,
        link: LinkType,
    ) -> Result<Filter, Error> {
        match Program::load(&instructions) {
            Ok(program) => Ok(Filter {
                expression: String::new(),
                link,
                instructions,
                program,
            }),
            Err(reason) => Err(Error::Filter {
                expression: String::new(),
                reason,
            }),
        }
    }

    /// Whether the packet `bytes`, with a length of `wire_len` on the wire, matches.
    #[inline]
    pub fn matches(&self, bytes: &[u8], wire_len: u32) -> bool {
        self.verdict(bytes, wire_len) != 0
    }

    /// The program's verdict on a packet: the number of bytes to keep (the snap length, often more than
    /// the packet has); 0 if it does not match.
    #[inline]
    pub fn verdict(&self, bytes: &[u8], wire_len: u32) -> u32 {
        self.program.run(&Plain(bytes), wire_len)
    }

    /// [`Filter::verdict`] on a packet of a batch, whose VLAN tag the kernel may have stripped.
    #[inline]
    pub fn verdict_on(&self, bytes: &[u8], packet: &PacketDescriptor) -> u32 {
        if packet.flags.contains(PacketFlags::VLAN) || self.program.uses_vlan_metadata() {
            return self.verdict_beside_tag(bytes, packet);
        }
        self.verdict(bytes, packet.wire_len)
    }

    #[cold]
    fn verdict_beside_tag(&self, bytes: &[u8], packet: &PacketDescriptor) -> u32 {
        let taken = packet.flags.contains(PacketFlags::VLAN);
        if self.program.uses_vlan_metadata() {
            let view = WithMetadata {
                bytes: Plain(bytes),
                tag: taken.then_some((packet.vlan_tpid, packet.vlan_tci)),
            };
            // The kernel's length is that of the frame without the tag.
            let tag_len = if taken { 4 } else { 0 };
            let wire_len = packet.wire_len.saturating_sub(tag_len);
            return self.program.run(&view, wire_len);
        }
        match Tagged::new(bytes, packet.link, packet.vlan_tpid, packet.vlan_tci) {
            Some(view) => self.program.run(&view, packet.wire_len),
            None => self.verdict(bytes, packet.wire_len),
        }
    }

    /// The expression as given.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The link type the filter was compiled for.
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// The program, in the kernel's format.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The program as text, one line per instruction.
    pub fn dump(&self, style: DumpStyle) -> String {
        let mut text = String::new();
        if style == DumpStyle::Decimal {
            let _ = writeln!(text, "{}", self.instructions.len());
        }
        for (index, instruction) in self.instructions.iter().enumerate() {
            let Instruction { code, jt, jf, k } = *instruction;
            let _ = match style {
                DumpStyle::Human => writeln!(text, "{}", libpcap::image(instruction, index)),
                DumpStyle::C => writeln!(text, "{{ {code:#x}, {jt}, {jf}, 0x{k:08x} }},"),
                DumpStyle::Decimal => writeln!(text, "{code} {jt} {jf} {k}"),
            };
        }
        text
    }
}

/// The `DLT_` value on this platform of a `LINKTYPE_` value; they differ for a few old types.
fn data_link(link: LinkType) -> i32 {
    match link.0 {
        100 => 11, // ATM_RFC1483
        101 => 12, // RAW
        102 => 15, // SLIP_BSDOS
        103 => 16, // PPP_BSDOS
        246 => 18, // PFSYNC
        other => i32::from(other),
    }
}

#[cfg(test)]
mod tests;
