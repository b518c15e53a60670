//! Components that are a function of a packet: they find a value for each, or let some through.

use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, PacketValues, Packets, Parallel, ResultValue, forked,
};
use flowgauge_wire::Decoded;

/// What a count comes to after each packet, for components that take values of packets.
pub(crate) mod values {
    use flowgauge_stack::{Outlet, PacketValues, Packets, Settings, options};
    use flowgauge_wire::Decoded;

    options! {
        pub(crate) const;
        /// Option `values`.
        VALUES = values: Flag = "no",
            "packets have a value each, the count with them, for components that take such values (statistics, distribution)";
    }

    pub(crate) fn of(settings: &Settings) -> Option<PacketValues> {
        let is_wanted = settings.value(&VALUES) == Some(true);
        is_wanted.then(PacketValues::default)
    }

    pub(crate) fn sequential(settings: &Settings) -> Option<&'static str> {
        let because = "its values count all packets";
        of(settings).map(|_| because)
    }

    /// Notes the values of packets that each add something to a sum.
    pub(crate) fn fill(
        values: &mut PacketValues,
        packets: &Packets<'_>,
        out: &dyn Outlet,
        mut sum: u64,
        adds: impl Fn(&Decoded) -> u64,
    ) {
        values.begin(packets, out);
        for (index, packet) in packets.iter() {
            sum += adds(packet);
            values.set(index, sum);
        }
    }
}

/// The description of one, its name, result and `make` still to be filled in.
pub(crate) const OF_EACH_PACKET: ComponentInfo = ComponentInfo {
    is_end: true,
    parallel: Parallel::Never("its result is that of the last packet"),
    ..ComponentInfo::OF_PACKETS
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
