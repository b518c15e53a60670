//! Which protocol and which application a flow is of.
//!
//! What nDPI's library says counts first, where it is asked. Then what is said in it tells, else another flow (a data connection that was agreed on), else the name of the
//! server, else the name that a client looked up before, else the port.

use std::collections::HashMap;

use flowgauge_flow::{EndReason, FlowRecord};
use flowgauge_record::event::Spoken;
use flowgauge_stack::{SettingError, Settings, options};
use flowgauge_stream::{Chunk, Stream};
use flowgauge_wire::{Address, Nanos};

use super::applications::{Application, Applications};
use super::ndpi::Ndpi;
use super::ports;

options! {
    pub(crate) const;
    /// The table of applications.
    APPLICATIONS = applications: InputFile, "file of server names and applications that override the built-in ones: per line a host name (with everything below \
     it), blanks, the application";
    /// nDPI's library.
    NDPI = ndpi: Flag = "no", "also ask nDPI's library (version 4.2); its answers take precedence";
}

/// Addresses of which names are known; a full table is emptied.
const MOST_ADDRESSES: usize = 1 << 16;
/// Flows of which something is known; a full table is emptied: flows that are forgotten are told by port.
const MOST_FLOWS: usize = 1 << 22;
/// How long an address is its name's.
const BELIEVED: Nanos = Nanos(3_600_000_000_000);

/// Whether `flag` asks for what is spoken in flows.
///
/// # Errors
/// It does not, and an option is set that is for that only.
pub(crate) fn classifies(settings: &Settings, flag: &'static str) -> Result<bool, SettingError> {
    let is_wanted = settings.flag(flag);
    for (option, is_set) in [
        (
            APPLICATIONS.name,
            settings.text(APPLICATIONS.name).is_some(),
        ),
        (NDPI.name, settings.flag(NDPI.name)),
    ] {
        if is_set && !is_wanted {
            return Err(
                SettingError::of(option, format!("is for {flag} = yes only"))
                    .with_hint(format!("also set {flag} = yes")),
            );
        }
    }
    Ok(is_wanted)
}

/// What was found out about flows that go on.
pub(crate) struct Classifier {
    applications: Applications,
    /// By number of the flow.
    flows: HashMap<u64, Known>,
    addresses: HashMap<Address, (Application, Nanos)>,
    ndpi: Option<Ndpi>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    protocol: Option<&'static str>,
    is_learned: bool,
    /// What it went over to.
    after: Option<&'static str>,
    application: Option<Application>,
    /// The responder's, the initiator's.
    missing_bytes: [u64; 2],
}

impl Classifier {
    pub(super) fn new(settings: &Settings) -> Result<Classifier, SettingError> {
        let table = Applications::read(settings.text("applications"));
        let ndpi = match settings.flag("ndpi") {
            true => Some(Ndpi::new()?),
            false => None,
        };
        Ok(Classifier {
            ndpi,
            applications: table.map_err(|message| {
                SettingError::of("applications", message).with_hint(
                    "in each line: a name of hosts, blanks, the application; # begins a comment",
                )
            })?,
            flows: HashMap::new(),
            addresses: HashMap::new(),
        })
    }

    fn flow(&mut self, flow_id: u64) -> &mut Known {
        if self.flows.len() >= MOST_FLOWS {
            self.flows.clear();
        }
        self.flows.entry(flow_id).or_default()
    }

    /// What was sent in a flow, for nDPI. Returns whether more may be of use.
    #[inline]
    pub(super) fn examine(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) -> bool {
        match &mut self.ndpi {
            Some(ndpi) => ndpi.data(stream, chunk),
            None => false,
        }
    }

    /// A flow is of this protocol: what was sent says so, or another flow did.
    pub(super) fn found(&mut self, flow_id: u64, protocol: &'static str, is_learned: bool) {
        let known = self.flow(flow_id);
        known.protocol = Some(protocol);
        known.is_learned = is_learned;
    }

    /// What is said in a flow now is of this protocol.
    pub(super) fn went_over(&mut self, flow_id: u64, protocol: &'static str) {
        let known = self.flow(flow_id);
        let is_more = protocol != "http2" || known.after.is_none();
        if is_more && known.protocol.is_some_and(|it| it != protocol) {
            known.after = Some(protocol);
        }
    }

    /// The server of a flow has this name.
    pub(super) fn named(&mut self, flow_id: u64, name: &[u8]) {
        let application = core::str::from_utf8(name)
            .ok()
            .and_then(|name| self.applications.of(name));
        if application.is_some() {
            let known = self.flow(flow_id);
            known.application = known.application.or(application);
        }
    }

    /// A name leads to an address.
    pub(super) fn resolved(&mut self, name: &str, address: Address, now: Nanos) {
        if let Some(application) = self.applications.of(name) {
            if self.addresses.len() >= MOST_ADDRESSES {
                self.addresses.clear();
            }
            self.addresses.insert(address, (application, now));
        }
    }

    /// Bytes of a flow's streams were not captured.
    #[cold]
    pub(super) fn missed(&mut self, flow_id: u64, from_initiator: bool, bytes: u64) {
        let missing = &mut self.flow(flow_id).missing_bytes[usize::from(from_initiator)];
        *missing = missing.saturating_add(bytes);
    }

    /// How many bytes of a flow's streams were not captured so far, of those of which anything was.
    pub(super) fn missing_bytes(&self, record: &FlowRecord<'_>) -> u64 {
        let Some(known) = self.flows.get(&record.flow_id) else {
            return 0;
        };
        let sides = [record.destination.packets, record.source.packets];
        let captured = known
            .missing_bytes
            .iter()
            .zip(sides)
            .filter(|(_, packets)| *packets > 0);
        captured.map(|(bytes, _)| *bytes).sum()
    }

    /// What was spoken in a flow that ends, or of which a record is written while it goes on.
    pub(super) fn of(&mut self, record: &FlowRecord<'_>) -> Spoken<'_> {
        let known = match record.end_reason {
            EndReason::Active => self.flows.get(&record.flow_id).copied(),
            _ => self.flows.remove(&record.flow_id),
        };
        let known = known.unwrap_or_default();
        let mut spoken = Spoken {
            protocol: known.protocol,
            after: known.after,
            protocol_by: known.protocol.map(|_| match known.is_learned {
                true => "learned",
                false => "content",
            }),
            ..Spoken::default()
        };
        if spoken.protocol.is_none() {
            spoken.protocol = ports::by_port(record.protocol, record.destination.port);
            spoken.protocol_by = spoken.protocol.map(|_| "port");
        }
        let by_name = known.application.map(|it| (it, "name"));
        let (application, by) = by_name.or_else(|| self.by_address(record)).unzip();
        spoken.application = application.and_then(|it| self.applications.name(it));
        spoken.application_by = by;
        if let Some(ndpi) = &mut self.ndpi {
            let is_over = record.end_reason != EndReason::Active;
            let (protocol, application) = ndpi.of(record.flow_id, is_over);
            if protocol.is_some() {
                spoken.protocol = protocol;
                spoken.protocol_by = Some("ndpi");
            }
            if application.is_some() {
                spoken.application = application;
                spoken.application_by = Some("ndpi");
            }
        }
        spoken
    }

    /// By the name that was looked up for the responder's address.
    fn by_address(&self, record: &FlowRecord<'_>) -> Option<(Application, &'static str)> {
        if self.addresses.is_empty() {
            return None;
        }
        let (application, since) = *self.addresses.get(&record.destination.address)?;
        let is_fresh = record.start.0.saturating_sub(since.0) < BELIEVED.0;
        is_fresh.then_some((application, "dns"))
    }
}
