//! Frames by VLAN and by priority (RFC 2613, smonVlanStats and smonPrioStats), by the outermost tag.

use core::cmp::Ordering;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::Value;
use crate::control::Control;
use crate::keys::IF_INDEX;
use crate::probe::Probe;
use crate::rows::{Found, least, within};

/// What an interface has seen of tagged frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tagged {
    /// By VLAN: packets, octets, those to groups of stations, and when the first one came, as a stamp.
    vlans: BTreeMap<u16, ([u64; 4], u32)>,
    /// By priority: packets and octets.
    priorities: [[u64; 2]; 8],
}

impl Tagged {
    /// Counts a frame with this tag control information. VLAN 0 only says a priority (IEEE 802.1Q, 9.6).
    pub(crate) fn count(&mut self, tag: u16, octets: u64, is_group: bool, stamp: u32) {
        let [packets, sum] = &mut self.priorities[usize::from(tag >> 13)];
        *packets += 1;
        *sum += octets;
        let vlan = tag & 0xfff;
        if !(1..=4094).contains(&vlan) {
            return;
        }
        let ([packets, sum, group_packets, group_sum], _) =
            self.vlans.entry(vlan).or_insert(([0; 4], stamp));
        *packets += 1;
        *sum += octets;
        if is_group {
            *group_packets += 1;
            *group_sum += octets;
        }
    }
}

/// A counter in the three columns that SMON-MIB has of it: low part, what is above it, all of it.
fn wide(counters: &[u64], column: u32) -> Option<Value> {
    let counter = *counters.get(column as usize / 3)?;
    Some(match column % 3 {
        0 => Value::Counter32(counter as u32),
        1 => Value::Counter32((counter >> 32) as u32),
        _ => Value::Counter64(counter),
    })
}

/// What the interfaces of a table's active control rows have seen.
fn tagged(probe: &Probe, control: Control) -> impl Iterator<Item = (u32, &Tagged)> {
    let rows = probe.controls.range((control, Vec::new())..);
    let rows = rows.take_while(move |((other, _), _)| *other == control);
    rows.filter_map(move |((_, index), row)| {
        let source = probe.source(control, row).filter(|_| row.active)?;
        let mut interfaces = probe.interfaces.iter();
        let interface = interfaces.find(|interface| interface.number == source)?;
        Some((*index.first()?, &interface.tagged))
    })
}

/// countAllGoodFrames, countAnyRmonTables, babyGiantsCountAsGood.
const RMON_CAPABILITIES: u8 = 0x70;

/// Nothing is copied from or to an interface.
const COPY_CAPABILITIES: u8 = 0;

/// dataSourceCapsTable: its index is an identifier without its length.
pub(crate) fn sources(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let named = |number: u32| IF_INDEX.into_iter().chain([number]);
    let numbers = probe.interfaces.iter().map(|interface| interface.number);
    let behind = numbers.filter(|number| match named(*number).cmp(index.iter().copied()) {
        Ordering::Equal => include,
        order => order.is_gt(),
    });
    let number = behind.min()?;
    let value = match column {
        2 => Value::Octets(vec![RMON_CAPABILITIES]),
        3 => Value::Octets(vec![COPY_CAPABILITIES]),
        _ => Value::Integer(number as i32),
    };
    Some((named(number).collect(), value))
}

/// smonVlanIdStatsTable.
pub(crate) fn vlans(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let probe = &*probe;
    within(
        tagged(probe, Control::Vlans),
        index,
        include,
        |_, tagged, rest, include| {
            let least = u16::try_from(least(rest, include)).ok()?;
            let (vlan, (counters, created)) = tagged.vlans.range(least..).next()?;
            let value = match column {
                14 => Value::TimeTicks(probe.tables.clock.up_time(*created)),
                column => wide(counters, column - 2)?,
            };
            Some((SmallVec::from_slice(&[u32::from(*vlan)]), value))
        },
    )
}

/// smonPrioStatsTable.
pub(crate) fn priorities(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let tables = tagged(probe, Control::Priorities);
    within(tables, index, include, |_, tagged, rest, include| {
        let priority = least(rest, include);
        let counters = tagged.priorities.get(priority as usize)?;
        Some((
            SmallVec::from_slice(&[priority]),
            wide(counters, column - 2)?,
        ))
    })
}
