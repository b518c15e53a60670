//! `tcpdirdemux`: an instance per direction.

use flowgauge_kit::keyed::{DEMULTIPLEXER, RESULTS};
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Outlet, Packets, Selection, SettingError, Settings,
};
use flowgauge_wire::Nanos;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tcpdirdemux",
    summary: "an instance per direction of a connection",
    help: "Use it within tcpcnxdemux; its instances end with those. Alone it has two instances, and the order \
           of addresses and ports decides: forth is from the first endpoint in the name of a connection's key \
           to the second.",
    input: Input::Of(&[ItemType::Segment]),
    options: &[RESULTS],
    make,
    ..DEMULTIPLEXER
};

/// There is no table: the two directions of the key `k` have the numbers `2 k` and `2 k + 1`, so that
/// each finds the opposite one, too.
#[derive(Default)]
struct Directions {
    /// A bit per number that was given out and has not ended.
    live: Vec<u64>,
    ended: Vec<u32>,
}

fn make(_: &Settings) -> Result<Box<dyn Component>, SettingError> {
    Ok(Box::new(Directions::default()))
}

impl Directions {
    #[inline]
    fn begin(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.live.len() {
            self.live.resize((word + 1).next_power_of_two(), 0);
        }
        self.live[word] |= 1 << (number % 64);
    }

    fn end(&mut self, number: u32) {
        let bit = 1 << (number % 64);
        if let Some(word) = self.live.get_mut(number as usize / 64)
            && *word & bit != 0
        {
            *word &= !bit;
            self.ended.push(number);
        }
    }
}

impl Component for Directions {
    fn demultiplex(&mut self, packets: &Packets<'_>, keys: &mut [u32], _: Nanos) -> Selection {
        for (index, packet) in packets.iter() {
            let number = packets.key(index) * 2 + packet.direction.index() as u32;
            keys[index] = number;
            self.begin(number);
        }
        packets.selected
    }

    fn ended(&mut self, _: Nanos, ended: &mut Vec<u32>) {
        ended.append(&mut self.ended);
    }

    fn outer(&self, key: u32) -> u32 {
        key / 2
    }

    fn key_name(&self, key: u32) -> Option<String> {
        Some(
            if key.is_multiple_of(2) {
                "forth"
            } else {
                "back"
            }
            .to_owned(),
        )
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.end(key * 2);
        self.end(key * 2 + 1);
    }

    fn end_all(&mut self) {
        for number in 0..self.live.len() as u32 * 64 {
            self.end(number);
        }
    }
}
