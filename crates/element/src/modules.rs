//! The modules: what can be measured, and of which packets.

use flowgauge_credential::{Argument, Facts};
use flowgauge_record::loss::LOSS_SCHEMA;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// Rows of a result at most.
const MOST_COUNT: u32 = 1000;

/// What is measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Packets lost between the sensors of both domains.
    Loss,
    /// One-way delay and jitter between the sensors of both domains.
    Delay,
    /// Packets and bytes in the time, at each sensor of the source.
    Bandwidth,
    /// The rate of each flow, at each sensor of the source.
    Throughput,
    /// Round trips from each sensor of the source to servers, by the handshakes of TCP and by transactions.
    ApplicationRtt,
    /// The applications with the most bytes, at each sensor of the source.
    Shares,
    /// Round trips of ICMP echoes from this element to that of the destination.
    Ping,
    /// Round trips of TCP connections from this element to that of the destination.
    Connect,
    /// Loss and delay of datagrams from this element to that of the destination.
    OneWay,
}

/// How it is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    /// Of `throughput` and `shares`: rows of each sensor, those with the most bytes; 10 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// A module, for users.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Module {
    /// The metric.
    pub metric: Metric,
    /// What it is.
    pub about: String,
    /// Whether sensors of both domains have to see the traffic; else those of the source.
    pub is_between: bool,
    /// The parameters that it takes.
    pub parameters: Vec<String>,
    /// The fields of its rows.
    pub fields: Vec<FieldAbout>,
}

/// A field of a result.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FieldAbout {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
}

/// How a metric is declared.
pub(crate) struct Declared {
    pub(crate) metric: Metric,
    /// Its name in requests and rights.
    pub(crate) name: &'static str,
    about: &'static str,
    pub(crate) site: Site,
    /// Why it tells more than counts: its rows are flows or the like, of which those with the most bytes are told.
    sees: Option<&'static str>,
    /// The fields of its rows, separated by blanks.
    pub(crate) fields: &'static str,
}

/// What a metric needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// Sensors of both domains see the traffic. Its fields are those of records of loss.
    Between,
    /// Sensors of the source do.
    Source,
    /// The elements of both send probes.
    Probes,
}

const fn declared(
    metric: Metric,
    name: &'static str,
    about: &'static str,
    site: Site,
    sees: Option<&'static str>,
    fields: &'static str,
) -> Declared {
    Declared {
        metric,
        name,
        about,
        site,
        sees,
        fields,
    }
}

const PROBE_FIELDS: &str = "source destination sent answered least mean most";

pub(crate) const MODULES: [Declared; 9] = [
    declared(
        Metric::Loss,
        "loss",
        "packets lost between the sensors of both domains",
        Site::Between,
        None,
        "from to flows sent received sent_bytes received_bytes lost ratio least most from_dropped to_dropped duplicates \
         one_sided uncompared",
    ),
    declared(
        Metric::Delay,
        "delay",
        "one-way delay and jitter between the sensors of both domains",
        Site::Between,
        None,
        "from to received delay_least delay_mean delay_most jitter offset offset_error",
    ),
    declared(
        Metric::Bandwidth,
        "bandwidth",
        "packets and bytes on the wire, at each sensor of the source",
        Site::Source,
        None,
        "sensor seconds packets bytes bits_per_second",
    ),
    declared(
        Metric::Throughput,
        "throughput",
        "the rate of each direction of a flow from its first packet to its last, bytes by IP headers, at each sensor of the source",
        Site::Source,
        Some("it tells addresses"),
        "sensor source source_port destination destination_port protocol packets bytes seconds bits_per_second",
    ),
    declared(
        Metric::ApplicationRtt,
        "application_rtt",
        "round trips from each sensor of the source to servers: of TCP from SYN to SYN+ACK, of application protocols from requests to replies",
        Site::Source,
        None,
        "sensor application answered unanswered least mean most",
    ),
    declared(
        Metric::Shares,
        "shares",
        "the applications with the most bytes by IP headers, at each sensor of the source",
        Site::Source,
        Some("it tells ports"),
        "sensor application packets bytes share",
    ),
    declared(
        Metric::Ping,
        "ping",
        "round trips of ICMP echoes from the source's element to the destination's",
        Site::Probes,
        None,
        PROBE_FIELDS,
    ),
    declared(
        Metric::Connect,
        "connect",
        "round trips of TCP connections from the source's element to the destination's",
        Site::Probes,
        None,
        PROBE_FIELDS,
    ),
    declared(
        Metric::OneWay,
        "one_way",
        "datagrams from the source's element to the destination's: loss, and delay by both clocks",
        Site::Probes,
        None,
        PROBE_FIELDS,
    ),
];

/// What fields are that records of loss do not have.
const FIELDS: [(&str, &str); 18] = [
    ("sensor", "the sensor, as domain/name"),
    ("seconds", "how long"),
    ("packets", "packets"),
    ("bytes", "bytes"),
    ("bits_per_second", "bytes per time; null if the time is 0"),
    (
        "source",
        "address of the sender; of probes the domain whose element sends",
    ),
    ("source_port", "its port"),
    (
        "destination",
        "address of the receiver; of probes the domain whose element answers",
    ),
    ("destination_port", "its port"),
    ("protocol", "IP protocol"),
    (
        "unanswered",
        "handshakes or requests that were not answered",
    ),
    (
        "application",
        "the recognised protocol, else IP protocol and lower port, such as tcp/8080; for round trips, tcp stands for \
        handshakes",
    ),
    ("share", "of all bytes of the service at the sensor"),
    ("sent", "probes"),
    (
        "answered",
        "probes, handshakes or requests that were answered; probes that arrived",
    ),
    ("least", "minimum, in seconds"),
    ("mean", "mean, in seconds"),
    ("most", "seconds at most"),
];

impl Metric {
    pub(crate) fn declared(self) -> &'static Declared {
        let mut all = MODULES.iter();
        all.find(|it| it.metric == self).unwrap_or(&MODULES[0])
    }
}

impl Declared {
    /// Whether it takes the parameter `count`.
    pub(crate) fn has_count(&self) -> bool {
        self.sees.is_some()
    }

    /// For users.
    pub(crate) fn module(&self) -> Module {
        let about = |name: &str| match self.site {
            Site::Between => LOSS_SCHEMA
                .iter()
                .find(|it| it.name == name)
                .map(|it| it.help),
            _ => FIELDS.iter().find(|it| it.0 == name).map(|it| it.1),
        };
        let fields = self.fields.split(' ').map(|name| FieldAbout {
            name: name.to_owned(),
            about: about(name).unwrap_or_default().to_owned(),
        });
        let count = self.has_count().then(|| "count".to_owned());
        Module {
            metric: self.metric,
            about: self.about.to_owned(),
            is_between: self.site == Site::Between,
            parameters: count.into_iter().collect(),
            fields: fields.collect(),
        }
    }

    /// What a policy is asked of it, in a domain: a domain is its device, a metric its component.
    pub(crate) fn facts(&self, domain: &str, parameters: &Parameters, seconds: u32) -> Facts {
        let mut facts = Facts::default().on(domain);
        facts.component(self.name, self.sees);
        let number = |number: u32| Argument::Number(number.into());
        facts.argument(self.name, "seconds", &number(seconds));
        if self.has_count() {
            facts.argument(self.name, "count", &number(parameters.count()));
        }
        facts
    }
}

impl Parameters {
    pub(crate) fn count(&self) -> u32 {
        self.count.unwrap_or(10)
    }

    pub(crate) fn check(&self, of: &Declared) -> Result<(), Fault> {
        if self.count.is_some() && !of.has_count() {
            let what = format!("{} does not take it", of.name);
            let hint = "/v1/modules has the parameters of each metric";
            return Err(Fault::invalid("parameters.count", what, hint));
        }
        match (1..=MOST_COUNT).contains(&self.count()) {
            true => Ok(()),
            false => Err(Fault::invalid(
                "parameters.count",
                format!("{} rows are not possible", self.count()),
                format!("1 to {MOST_COUNT}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_described() {
        for declared in &MODULES {
            let module = declared.module();
            assert!(
                module.fields.iter().all(|it| !it.about.is_empty()),
                "{module:?}"
            );
            let name = serde_json::to_string(&declared.metric).unwrap();
            assert_eq!(name, format!("\"{}\"", declared.name));
        }
    }
}
