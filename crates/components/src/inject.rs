//! `inject`: sends packets onto an interface, and passes them on.

use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, Items, Outlet, Parallel, ResultInfo, ResultValue,
    SettingError, options,
};
use flowgauge_sys::datagrams::Datagrams;
use flowgauge_sys::files;
use flowgauge_wire::LinkType;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "inject",
    summary: "sends packets onto an interface, and passes them on",
    help: "Sends Ethernet frames that were captured whole, unchanged, at once. Nothing prevents a loop: do not use an \
       interface that is captured or leads to a captured one. A flow of a sensor may have it only if the \
       configuration allows it.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("packets sent", "packets")),
    parallel: Parallel::Never("it sends packets in their order"),
    effects: |_| true,
    make: |settings| {
        let options = Options::read(settings);
        if options.interface.is_some() == options.to.is_some() {
            return Err(SettingError::of_all("interface says where to"));
        }
        Ok(Box::new(Inject {
            options,
            socket: None,
            sent: 0,
            unfit: 0,
            unsent: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    interface: Text, "interface to send on";
    to: Text, "in a flow of a sensor: the descriptor passed with it, such as fd:0";
}

struct Inject {
    options: Options,
    socket: Option<Datagrams>,
    sent: u64,
    /// Packets that cannot be sent as they are, and that the system had no room for.
    unfit: u64,
    unsent: u64,
}

impl Component for Inject {
    fn start(&mut self) -> Result<(), Failure> {
        let socket = match (&self.options.interface, &self.options.to) {
            (Some(interface), _) => Datagrams::onto(interface),
            (None, Some(to)) if files::handed(to).is_some() => Datagrams::handed(to),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        let name = self
            .options
            .interface
            .as_deref()
            .unwrap_or("the descriptor");
        let socket = socket.map_err(|error| Failure {
            message: format!("cannot send onto {name}: {error}"),
            hint: Some("it takes CAP_NET_RAW and an interface that is there (ip link)".to_owned()),
        })?;
        self.socket = Some(socket);
        Ok(())
    }

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let (Items::Packets(packets), Some(socket)) = (items, &self.socket) else {
            return;
        };
        for (_, packet) in packets.iter() {
            let descriptor = packets.batch.packets.get(usize::from(packet.index));
            let bytes = packets.bytes(packet);
            let is_ethernet = descriptor.is_some_and(|it| it.link == LinkType::ETHERNET);
            let is_whole = bytes.len() == packet.wire_len as usize;
            let count = match is_ethernet && is_whole {
                false => &mut self.unfit,
                true if socket.send(bytes).is_ok() => &mut self.sent,
                true => &mut self.unsent,
            };
            *count += 1;
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.sent))
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Account::default();
        let unfit = "not sent: not of Ethernet, or not captured whole";
        account.count(self.unfit, "packet", unfit);
        let unsent = "not sent: the interface is down, or has no room, or sends no packets as long";
        account.count(self.unsent, "packet", unsent);
        Some(Box::new(account))
    }
}
