//! `burst`: packets that follow each other without a pause, and the pauses between.

use flowgauge_stack::{
    Cell, Component, ComponentInfo, Items, Outlet, Parallel, ResultInfo, ResultValue, SettingError,
    Settings, Table, columns, options,
};
use flowgauge_wire::Nanos;

use crate::distribution::Histogram;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "burst",
    summary: "makes histograms of bursts of packets and of the gaps between them",
    help: "The time of a packet is that of its last byte, and it took its length at `speed`. A packet belongs \
           to the burst of the packet before if it began `iftime` after the end of that packet, at most \
           `early` sooner and `late` later. The bytes of a gap are what it could have carried. The row without \
           `from` counts what is smaller than `min`, the last row `max` and above; empty rows are left out.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("bursts and gaps by size", &COLUMNS)),
    parallel: Parallel::Never("packets on other cores lie between"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    min: Size = "0", "bytes where the first row begins";
    max: Size = "64k", "bytes where the last one begins";
    step: Size = "1k", "bytes from row to row";
    iftime: Duration as u64 = "96ns", "time between two packets of a burst";
    late: Duration as u64 = "1us", "how much later one may come";
    early: Duration as u64 = "1us", "how much sooner one may come";
    speed: Integer(1, 1_000_000) as u64 = "1000", "of the link, in Mbit/s";
}

columns! {
    static COLUMNS;
    from Unsigned Key "least bytes of a burst or gap";
    bytes Unsigned Sum "bytes in bursts";
    packets Unsigned Sum "packets in bursts";
    bursts Unsigned Sum "bursts";
    gap_bytes Unsigned Sum "bytes that gaps could have carried";
    gaps Unsigned Sum "gaps";
}

/// Bytes, packets, bursts, bytes of gaps, gaps.
type Slot = [u64; 5];

struct Burst {
    histogram: Histogram,
    slots: Vec<Slot>,
    options: Options,
    /// When the last packet ended.
    last: Option<Nanos>,
    bytes: u64,
    packets: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let histogram = Histogram::new(options.min, options.max, options.step)
        .map_err(|message| SettingError::of("step", message))?;
    Ok(Box::new(Burst {
        slots: vec![Slot::default(); histogram.len()],
        histogram,
        options,
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
        let options = &self.options;
        let (iftime, speed) = (i128::from(options.iftime), options.speed);
        let (late, early) = (i128::from(options.late), i128::from(options.early));
        for (_, packet) in packets.iter() {
            let length = u64::from(packet.wire_len);
            // Mbit/s are bits per microsecond.
            let took = length * 8 * 1000 / speed;
            if let Some(last) = self.last {
                let gap = i128::from(packet.time.0) - i128::from(took) - i128::from(last.0);
                let too_late = gap - iftime;
                if too_late > late || -too_late > early {
                    self.end();
                    let idle = u64::try_from(gap).unwrap_or(0);
                    let idle = u128::from(idle) * u128::from(speed) / 8000;
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
