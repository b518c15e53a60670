//! `flow_export`: flows' records as NetFlow or IPFIX.

mod elements;
mod messages;

use std::path::Path;

use flowgauge_kit::writing::{Stop, account, begun, stop};
use flowgauge_record::words::instead_of;
use flowgauge_record::{Output, OutputError, RecordWriter, WholeWrites, WriterThread};
use flowgauge_stack::{
    Account, Component, ComponentInfo, Failure, Input, ItemType, Items, Outlet, Parallel,
    ResultInfo, ResultValue, SettingError, Settings, options,
};
use flowgauge_sys::datagrams::Datagrams;
use flowgauge_sys::files::{self, How};
use flowgauge_wire::Nanos;

use self::elements::{Direction, Element, Flow, find};
use self::messages::{Format, Messages};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "flow_export",
    summary: "exports records of flows as NetFlow or IPFIX",
    help: "flows - flow_export { to = \"collector:2055\" } sends them to a collector by UDP; with `file`, messages \
       are written one after the other (for IPFIX a file as in RFC 5655). A record has one direction: a flow with \
       packets both ways gives two. Elements have IANA's names, those in `keys` before those in `values`; NetFlow 5 \
       has its own. Times of NetFlow count from a day before the first flow. Messages for which the system has no \
       room are not sent, and counted. Every 20th message has templates.",
    input: Input::Of(&[ItemType::Flow]),
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("records exported", "records")),
    parallel: Parallel::Never("it numbers what it sends"),
    effects: |_| true,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    format: Choice("ipfix", "netflow9", "netflow5", "IPFIX", "NETFLOW_V9", "NETFLOW_V5") = "ipfix", "export format; \
    the names in capitals are MAPI's";
    to: Text, "a collector, as host:port; UDP";
    file: OutputFile, "where to write them instead";
    keys: Text = "sourceAddress, destinationAddress, sourceTransportPort, destinationTransportPort, protocolIdentifier",
        "elements that identify the flow; sourceAddress stands for sourceIPv4Address and sourceIPv6Address";
    values: Text = "packetDeltaCount, octetDeltaCount, flowStartMilliseconds, flowEndMilliseconds, tcpControlBits, flowEndReason",
        "elements that describe it; also vlanId, ipVersion, icmpTypeCode, flowId";
    domain: Integer(0, u32::MAX as i64) as u32 = "0", "number of the exporter: observation domain, source or engine";
}

enum To {
    Socket(Datagrams),
    File(Box<RecordWriter>),
}

struct Export {
    to: Option<String>,
    path: Option<String>,
    messages: Messages,
    sink: Option<To>,
    /// What a live capture is written by.
    thread: Option<WriterThread>,
    exported: u64,
    /// Records that the format does not have, and messages that were not sent.
    refused: u64,
    unsent: u64,
    flushed: Nanos,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let format = match options.format {
        "netflow5" | "NETFLOW_V5" => Format::NetFlow5,
        "netflow9" | "NETFLOW_V9" => Format::NetFlow9,
        _ => Format::Ipfix,
    };
    let is_given = |option: &str| settings.setting(option).is_some_and(|it| it.span.is_some());
    if let Some(option) = ["keys", "values"]
        .into_iter()
        .find(|option| is_given(option))
        && format == Format::NetFlow5
    {
        return Err(SettingError::of(
            option,
            "is not for NetFlow 5, whose records have one form",
        ));
    }
    let mut all: Vec<&'static Element> = Vec::new();
    for (option, names) in [("keys", &options.keys), ("values", &options.values)] {
        for name in names.split([',', ' ']).filter(|name| !name.is_empty()) {
            let wrong = |what: String| SettingError::of(option, what);
            let element = find(name).ok_or_else(|| {
                let known = elements::ELEMENTS.iter().map(|it| it.name);
                let listed = "names are those of IANA's registry of IPFIX elements";
                wrong(format!("{name} is not an element"))
                    .with_hint(instead_of(name, known, listed))
            })?;
            if all.iter().any(|known| known.name == element.name) {
                return Err(wrong(format!("{name} is there twice")));
            }
            all.push(element);
        }
    }
    if all.is_empty() {
        return Err(SettingError::of(
            "values",
            "there is nothing to tell of a flow",
        ));
    }
    if options.to.is_some() == options.file.is_some() {
        return Err(SettingError::of_all("where to: one of to and file says it"));
    }
    Ok(Box::new(Export {
        to: options.to,
        path: options.file,
        messages: Messages::new(format, all, options.domain),
        sink: None,
        thread: settings.is_live().then(WriterThread::default),
        exported: 0,
        refused: 0,
        unsent: 0,
        flushed: Nanos(0),
    }))
}

impl Export {
    fn open(&self) -> Result<To, OutputError> {
        if let Some(to) = &self.to {
            let socket = match files::handed(to) {
                Some(_) => Datagrams::handed(to),
                None => Datagrams::udp(to),
            };
            return Ok(To::Socket(socket?));
        }
        let path = self.path();
        let file = files::named().open(Path::new(path), How::replace())?;
        let output = Output::raw(Box::new(WholeWrites::new(file))).by(self.thread.as_ref(), path);
        Ok(To::File(Box::new(RecordWriter::of_bytes(output, &[]))))
    }

    fn path(&self) -> &str {
        self.to
            .as_deref()
            .or(self.path.as_deref())
            .unwrap_or_default()
    }

    fn send(&mut self, message: Option<Vec<u8>>, out: &mut dyn Outlet) {
        let Some(message) = message else {
            return;
        };
        match &mut self.sink {
            Some(To::Socket(socket)) => {
                // A collector that is not there, and no room: what is lost is counted.
                self.unsent += u64::from(socket.send(&message).is_err());
            }
            Some(To::File(writer)) => {
                writer.write_bytes(&message);
                writer.flush();
                let done = writer.check();
                self.check(done, out);
            }
            None => {}
        }
    }

    fn add(&mut self, flow: &Direction, out: &mut dyn Outlet) {
        if !self.messages.takes(flow) {
            self.refused += 1;
            return;
        }
        self.exported += 1;
        let message = self.messages.add(flow);
        self.send(message, out);
    }

    fn check(&self, done: Result<(), OutputError>, out: &mut dyn Outlet) {
        stop(
            done.map_err(|error| Stop::of_writer(self.path(), error)),
            out,
        );
    }
}

impl Component for Export {
    fn start(&mut self) -> Result<(), Failure> {
        let opened = self.open();
        let opened = opened.map_err(|error| Stop::of_writer(self.path(), error));
        begun(opened.map(|sink| self.sink = Some(sink)))
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Records(records) = items else {
            return;
        };
        for item in *records {
            let mut flow = Flow::default();
            item.record.values(&mut flow);
            for direction in flow.directions().into_iter().flatten() {
                self.add(&direction, out);
            }
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        const EVERY: u64 = 1_000_000_000;

        if now.0.saturating_sub(self.flushed.0) >= EVERY {
            self.flushed = now;
            let message = self.messages.flush();
            self.send(message, out);
        }
    }

    fn begin_finish(&mut self) {
        self.thread.iter().for_each(WriterThread::begin_finish);
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        let message = self.messages.flush();
        self.send(message, out);
        if let Some(thread) = &self.thread {
            self.check(thread.finish(), out);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.exported))
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut told = account(self.thread.as_ref(), "message", self.path()).unwrap_or_default();
        told.count(self.refused, "record", "of IPv6, which NetFlow 5 has not");
        let unsent = "not sent: nobody listens there, or the system had no room";
        told.count(self.unsent, "message", unsent);
        Some(told)
    }
}
