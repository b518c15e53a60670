//! `burst`: packets that follow each other without a pause, and the pauses between.

use flowgauge_stack::{
    Cell, Component, ComponentInfo, FieldKind, Items, Merge, OptionInfo, OptionKind, Outlet,
    Parallel, ResultInfo, ResultValue, SettingError, Settings, Table, TableColumn,
};
use flowgauge_wire::Nanos;

use crate::distribution::Histogram;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "burst",
    summary: "makes histograms of bursts of packets and of the gaps between them",
    help: "The time of a packet is that of its last byte; it took its length at `speed`. A packet belongs \
           to the burst of the one before if it began `iftime` after that one's end, at most `early` \
           sooner and `late` later. What a gap could have carried is its bytes. The row without `from` is \
           of what is smaller than `min`, the last of `max` and above; rows without anything are left \
           out.",
    is_end: true,
    options: &[
        OptionInfo::new("min", OptionKind::Size, "bytes where the first row begins").or("0"),
        OptionInfo::new("max", OptionKind::Size, "bytes where the last one begins").or("64k"),
        OptionInfo::new("step", OptionKind::Size, "bytes from row to row").or("1k"),
        OptionInfo::new(
            "iftime",
            OptionKind::Duration,
            "time between two packets of a burst",
        )
        .or("96ns"),
        OptionInfo::new("late", OptionKind::Duration, "how much later one may come").or("1us"),
        OptionInfo::new(
            "early",
            OptionKind::Duration,
            "how much sooner one may come",
        )
        .or("1us"),
        OptionInfo::new(
            "speed",
            OptionKind::Integer {
                min: 1,
                max: 1_000_000,
            },
            "of the link, in Mbit/s",
        )
        .or("1000"),
    ],
    result: Some(ResultInfo::table("bursts and gaps by size", &COLUMNS)),
    parallel: Parallel::Never("packets on other cores lie between"),
    make,
    ..flowgauge_kit::OF_PACKETS
};

static COLUMNS: [TableColumn; 6] = [
    TableColumn::new(
        "from",
        FieldKind::Unsigned,
        Merge::Key,
        "least bytes of a burst or gap",
    ),
    TableColumn::new("bytes", FieldKind::Unsigned, Merge::Sum, "bytes in bursts"),
    TableColumn::new(
        "packets",
        FieldKind::Unsigned,
        Merge::Sum,
        "packets in bursts",
    ),
    TableColumn::new("bursts", FieldKind::Unsigned, Merge::Sum, "bursts"),
    TableColumn::new(
        "gap_bytes",
        FieldKind::Unsigned,
        Merge::Sum,
        "bytes that gaps could have carried",
    ),
    TableColumn::new("gaps", FieldKind::Unsigned, Merge::Sum, "gaps"),
];

/// Bytes, packets, bursts, bytes of gaps, gaps.
type Slot = [u64; 5];

struct Burst {
    histogram: Histogram,
    slots: Vec<Slot>,
    iftime: i128,
    late: i128,
    early: i128,
    speed: u64,
    /// When the last packet ended.
    last: Option<Nanos>,
    bytes: u64,
    packets: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let size = |option| settings.size(option).unwrap_or(0);
    let histogram = Histogram::new(size("min"), size("max"), size("step"))
        .map_err(|message| SettingError::of("step", message))?;
    let time = |option| i128::from(settings.duration(option).unwrap_or(0));
    Ok(Box::new(Burst {
        slots: vec![Slot::default(); histogram.len()],
        histogram,
        iftime: time("iftime"),
        late: time("late"),
        early: time("early"),
        speed: settings.integer("speed").unwrap_or(1000) as u64,
        last: None,
        bytes: 0,
        packets: 0,
    }))
}

impl Burst {
    fn add(&mut self, size: u64, values: Slot) {
        let slot = self.histogram.slot(i128::from(size));
        if let Some(slot) = self.slots.get_mut(slot) {
            for (sum, value) in slot.iter_mut().zip(values) {
                *sum = sum.saturating_add(value);
            }
        }
    }

    fn end(&mut self) {
        let bytes = core::mem::take(&mut self.bytes);
        let packets = core::mem::take(&mut self.packets);
        if packets > 0 {
            self.add(bytes, [bytes, packets, 1, 0, 0]);
        }
    }
}

impl Component for Burst {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        for (_, packet) in packets.iter() {
            let length = u64::from(packet.wire_len);
            // Mbit/s are bits per microsecond.
            let took = length * 8 * 1000 / self.speed;
            if let Some(last) = self.last {
                let gap = i128::from(packet.time.0) - i128::from(took) - i128::from(last.0);
                let too_late = gap - self.iftime;
                if too_late > self.late || -too_late > self.early {
                    self.end();
                    let idle = u64::try_from(gap).unwrap_or(0);
                    let idle = u128::from(idle) * u128::from(self.speed) / 8000;
                    let idle = u64::try_from(idle).unwrap_or(u64::MAX);
                    self.add(idle, [0, 0, 0, idle, 1]);
                }
            }
            self.last = Some(packet.time);
            self.bytes += length;
            self.packets += 1;
        }
    }

    fn finish(&mut self, _: &mut dyn Outlet) {
        self.end();
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.slots.len());
        for (number, slot) in self.slots.iter().enumerate() {
            if *slot != Slot::default() {
                let mut row = vec![self.histogram.from(number)];
                row.extend(slot.map(Cell::Unsigned));
                table.rows.push(row);
            }
        }
        Some(ResultValue::Table(table))
    }

    fn reset(&mut self) {
        self.slots.fill(Slot::default());
    }
}
