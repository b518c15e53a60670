//! Components that are a function of a packet: they find a value for each, or let some through.

use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, PacketValues, Packets, Parallel, ResultValue, forked,
};
use flowgauge_wire::Decoded;

/// The description of one, its name, result and `make` still to be filled in.
pub(crate) const OF_EACH_PACKET: ComponentInfo = ComponentInfo {
    is_end: true,
    parallel: Parallel::Never("its result is that of the last packet"),
    ..flowgauge_kit::OF_PACKETS
};

/// A component whose packets have the values that `value` finds; `None`: this one has none.
pub(crate) fn each<V>(value: V) -> Box<dyn Component>
where
    V: Fn(&Packets<'_>, &Decoded) -> Option<u64> + Send + 'static,
{
    Box::new(PerPacket {
        value,
        last: 0,
        values: PacketValues::default(),
    })
}

struct PerPacket<V> {
    value: V,
    last: u64,
    values: PacketValues,
}

impl<V> Component for PerPacket<V>
where
    V: Fn(&Packets<'_>, &Decoded) -> Option<u64> + Send,
{
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        self.values.begin(packets, out);
        for (index, packet) in packets.iter() {
            if let Some(value) = (self.value)(packets, packet) {
                self.last = value;
                self.values.set(index, value);
            }
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Last(self.last))
    }

    fn values(&self) -> Option<&PacketValues> {
        Some(&self.values)
    }

    fn reset(&mut self) {
        self.last = 0;
    }
}

/// A component that lets those packets through for which `wanted` says so.
pub(crate) fn only<W>(wanted: W) -> Box<dyn Component>
where
    W: FnMut(&Packets<'_>, &Decoded) -> bool + Clone + Send + 'static,
{
    Box::new(Only(wanted))
}

#[derive(Clone)]
struct Only<W>(W);

impl<W> Component for Only<W>
where
    W: FnMut(&Packets<'_>, &Decoded) -> bool + Clone + Send + 'static,
{
    forked!();

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            let all = *packets;
            for (index, packet) in all.iter() {
                if !(self.0)(&all, packet) {
                    packets.selected.remove(index);
                }
            }
        }
    }
}
