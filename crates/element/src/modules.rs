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
    /// Round trips from each sensor of the source to servers, by the handshakes of TCP.
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
    /// Why it tells more than counts.
    sees: Option<&'static str>,
    has_count: bool,
    /// Whether it sends probes.
    pub(crate) is_active: bool,
    /// Of metrics between domains: the fields of records of loss that its rows have.
    pub(crate) of_loss: &'static str,
    /// Of others: fields, and what they are.
    fields: &'static [(&'static str, &'static str)],
}

const SENSOR: (&str, &str) = ("sensor", "the sensor, as domain/name");

pub(crate) const MODULES: [Declared; 9] = [
    Declared {
        metric: Metric::Loss,
        name: "loss",
        about: "packets lost between the sensors of both domains",
        sees: None,
        has_count: false,
        is_active: false,
        of_loss: "from to flows sent received sent_bytes received_bytes lost ratio least most from_dropped to_dropped duplicates one_sided uncompared",
        fields: &[],
    },
    Declared {
        metric: Metric::Delay,
        name: "delay",
        about: "one-way delay and jitter between the sensors of both domains",
        sees: None,
        has_count: false,
        is_active: false,
        of_loss: "from to received delay_least delay_mean delay_most jitter offset offset_error",
        fields: &[],
    },
    Declared {
        metric: Metric::Bandwidth,
        name: "bandwidth",
        about: "packets and bytes in the time, at each sensor of the source",
        sees: None,
        has_count: false,
        is_active: false,
        of_loss: "",
        fields: &[
            SENSOR,
            ("seconds", "how long was measured"),
            ("packets", "packets"),
            ("bytes", "bytes on the wire"),
            ("bits_per_second", "bytes on the wire, as a rate"),
        ],
    },
    Declared {
        metric: Metric::Throughput,
        name: "throughput",
        about: "the rate of each direction of a flow, at each sensor of the source",
        sees: Some("it tells addresses"),
        has_count: true,
        is_active: false,
        of_loss: "",
        fields: &[
            SENSOR,
            ("source", "address of the sender"),
            ("source_port", "its port"),
            ("destination", "address of the receiver"),
            ("destination_port", "its port"),
            ("protocol", "IP protocol"),
            ("packets", "packets"),
            ("bytes", "bytes by IP headers"),
            ("seconds", "from the first packet to the last"),
            (
                "bits_per_second",
                "bytes in that time; null of a single packet",
            ),
        ],
    },
    Declared {
        metric: Metric::ApplicationRtt,
        name: "application_rtt",
        about: "round trips from each sensor of the source to servers, by the handshakes of TCP",
        sees: None,
        has_count: false,
        is_active: false,
        of_loss: "",
        fields: &[
            SENSOR,
            ("handshakes", "connections whose SYN was answered"),
            ("unanswered", "connections whose SYN was not"),
            ("least", "seconds from the SYN to its answer, at the least"),
            ("mean", "seconds in the mean"),
            ("most", "seconds at most"),
        ],
    },
    Declared {
        metric: Metric::Shares,
        name: "shares",
        about: "the applications with the most bytes, at each sensor of the source",
        sees: Some("it tells ports"),
        has_count: true,
        is_active: false,
        of_loss: "",
        fields: &[
            SENSOR,
            (
                "application",
                "IP protocol and the smaller port, as tcp/443",
            ),
            ("packets", "packets"),
            ("bytes", "bytes by IP headers"),
            ("share", "of all bytes of the service at the sensor"),
        ],
    },
    Declared {
        metric: Metric::Ping,
        name: "ping",
        about: "round trips of ICMP echoes from the source's element to the destination's",
        sees: None,
        has_count: false,
        is_active: true,
        of_loss: "",
        fields: &[
            ("from", "the source, whose element probes"),
            ("to", "the destination, whose element is probed"),
            ("sent", "probes"),
            ("answered", "those that were answered, or arrived"),
            ("least", "seconds until the answer, at the least"),
            ("mean", "seconds in the mean"),
            ("most", "seconds at most"),
        ],
    },
    Declared {
        metric: Metric::Connect,
        name: "connect",
        about: "round trips of TCP connections from the source's element to the destination's",
        sees: None,
        has_count: false,
        is_active: true,
        of_loss: "",
        fields: &[
            ("from", "the source, whose element probes"),
            ("to", "the destination, whose element is probed"),
            ("sent", "probes"),
            ("answered", "those that were answered, or arrived"),
            ("least", "seconds until it was connected, at the least"),
            ("mean", "seconds in the mean"),
            ("most", "seconds at most"),
        ],
    },
    Declared {
        metric: Metric::OneWay,
        name: "one_way",
        about: "datagrams from the source's element to the destination's: loss, and delay by both clocks",
        sees: None,
        has_count: false,
        is_active: true,
        of_loss: "",
        fields: &[
            ("from", "the source, whose element probes"),
            ("to", "the destination, whose element is probed"),
            ("sent", "probes"),
            ("answered", "those that were answered, or arrived"),
            (
                "least",
                "seconds from sending to arrival, as both clocks show it, at the least",
            ),
            ("mean", "seconds in the mean"),
            ("most", "seconds at most"),
        ],
    },
];

impl Metric {
    pub(crate) fn declared(self) -> &'static Declared {
        let mut all = MODULES.iter();
        all.find(|it| it.metric == self).unwrap_or(&MODULES[0])
    }
}

impl Declared {
    /// Whether sensors of both domains have to see the traffic.
    pub(crate) fn is_between(&self) -> bool {
        !self.of_loss.is_empty()
    }

    /// Whether it takes the parameter `count`.
    pub(crate) fn has_count(&self) -> bool {
        self.has_count
    }

    /// For users.
    pub(crate) fn module(&self) -> Module {
        let of_loss = self.of_loss.split(' ').filter_map(|name| {
            let mut fields = LOSS_SCHEMA.iter();
            fields
                .find(|field| field.name == name)
                .map(|field| (field.name, field.help))
        });
        let fields = of_loss.chain(self.fields.iter().copied());
        let fields = fields.map(|(name, about)| FieldAbout {
            name: name.to_owned(),
            about: about.to_owned(),
        });
        Module {
            metric: self.metric,
            about: self.about.to_owned(),
            is_between: self.is_between(),
            parameters: self
                .has_count
                .then(|| "count".to_owned())
                .into_iter()
                .collect(),
            fields: fields.collect(),
        }
    }

    /// What a policy is asked of it, in a domain: a domain is its device, a metric its component.
    pub(crate) fn facts(&self, domain: &str, parameters: &Parameters, seconds: u32) -> Facts {
        let mut facts = Facts::default().on(domain);
        facts.component(self.name, self.sees);
        let number = |number: u32| Argument::Number(number.into());
        facts.argument(self.name, "seconds", &number(seconds));
        if self.has_count {
            facts.argument(self.name, "count", &number(parameters.count()));
        }
        facts
    }
}

impl Parameters {
    pub(crate) fn count(&self) -> u32 {
        self.count.unwrap_or(10)
    }

    pub(crate) fn check(&self) -> Result<(), Fault> {
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
            let of_loss = declared.of_loss.split_whitespace().count();
            assert_eq!(module.fields.len(), of_loss.max(declared.fields.len()));
            let name = serde_json::to_string(&declared.metric).unwrap();
            assert_eq!(name, format!("\"{}\"", declared.name));
        }
    }
}
