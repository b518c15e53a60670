//! Where brokers are, how they are spoken to, and what is wrong with that.

use std::fmt;
use std::net::ToSocketAddrs as _;
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_link::Error;
use flowgauge_sys::own::Own;
use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// How long a request to a broker may take before it is looked whether there is one.
const REQUEST: Duration = Duration::from_millis(500);

/// A broker that makes topics when they are asked for has done so after this time.
const CREATION: Duration = Duration::from_secs(2);
/// Between two requests.
const REST: Duration = Duration::from_millis(50);

/// A topic, and the brokers that know where it is.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Some of the brokers: `host:port`, with commas between.
    pub brokers: String,
    /// The topic.
    pub topic: String,
    /// How they are spoken to.
    pub security: Security,
}

/// How brokers are spoken to.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Without TLS.
    pub is_plain: bool,
    /// The certificates, in PEM, of who signs those of brokers; `None`: those that the system trusts.
    pub authority: Option<String>,
    /// Certificate and private key of this machine, in PEM, where brokers want some.
    pub identity: Option<(String, String)>,
    /// The user, where brokers want one.
    pub login: Option<Login>,
}

/// A user of brokers.
#[derive(Clone)]
pub struct Login {
    /// How the password is proved.
    pub mechanism: Mechanism,
    /// Who it is.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Login").field(&self.user).finish()
    }
}

/// How a password is proved: RFC 5802, RFC 4616.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// SCRAM-SHA-512.
    Scram512,
    /// SCRAM-SHA-256.
    Scram256,
    /// The password itself is sent.
    Plain,
}

impl Cluster {
    /// In messages.
    pub fn name(&self) -> String {
        format!("{}, topic {}", self.brokers, self.topic)
    }

    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let security = &self.security;
        config.set_log_level(RDKafkaLogLevel::Emerg);
        config.set("client.id", "flowgauge");
        config.set("bootstrap.servers", &self.brokers);
        config.set("reconnect.backoff.max.ms", "2000");
        config.set(
            "security.protocol",
            match (security.is_plain, security.login.is_some()) {
                (true, false) => "plaintext",
                (true, true) => "sasl_plaintext",
                (false, false) => "ssl",
                (false, true) => "sasl_ssl",
            },
        );
        if let Some(authority) = &security.authority {
            config.set("ssl.ca.pem", authority);
        }
        if let Some((certificate, key)) = &security.identity {
            config.set("ssl.certificate.pem", certificate);
            config.set("ssl.key.pem", key);
        }
        if let Some(login) = &security.login {
            let mechanism = match login.mechanism {
                Mechanism::Scram512 => "SCRAM-SHA-512",
                Mechanism::Scram256 => "SCRAM-SHA-256",
                Mechanism::Plain => "PLAIN",
            };
            config.set("sasl.mechanism", mechanism);
            config.set("sasl.username", &login.user);
            config.set("sasl.password", &login.password);
        }
        config
    }

    /// Where brokers are said to be, or what they said.
    pub(crate) fn error(&self, reason: impl Into<String>, hint: &str, lasts: bool) -> Error {
        Error::Broker {
            address: self.brokers.clone(),
            reason: reason.into(),
            hint: hint.to_owned(),
            lasts,
        }
    }

    /// What librdkafka says, in our words where those say more.
    pub(crate) fn explained(&self, error: &KafkaError, reason: &str) -> Error {
        let code = error.rdkafka_error_code();
        let (what, hint, lasts) = match code {
            Some(Code::Authentication | Code::SaslAuthenticationFailed) => (
                "the broker does not accept user and password",
                "check user, password and sasl",
                true,
            ),
            Some(Code::SSL) => (
                "no secure connection",
                "set keys to the folder with the authority.crt that signed the broker's certificate, or plain = yes \
                for no TLS",
                true,
            ),
            Some(Code::Resolve) => ("unknown host name", "check the name", false),
            Some(Code::AllBrokersDown | Code::BrokerTransportFailure | Code::OperationTimedOut) => {
                (
                    "no broker answers",
                    "check that a broker listens on this port, with TLS (without TLS: plain = yes)",
                    false,
                )
            }
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => {
                return self.unknown();
            }
            Some(
                Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed,
            ) => (
                "the user may not do this",
                "grant it with kafka-acls.sh on the broker: Write on the topic for an output, Read on topic and group \
                for an input",
                true,
            ),
            _ => ("", "see the broker's log", false),
        };
        let words = match (what, reason) {
            ("", "") => error.to_string(),
            ("", reason) => reason.to_owned(),
            (what, "") => what.to_owned(),
            (what, reason) => format!("{what} ({reason})"),
        };
        self.error(words, hint, lasts)
    }

    fn unknown(&self) -> Error {
        let topic = &self.topic;
        let hint = format!(
            "create it on the broker: kafka-topics.sh --create --topic {topic} --partitions 8"
        );
        self.error(format!("there is no topic \"{topic}\""), &hint, true)
    }

    /// Asks how many partitions the topic has, for at most `wait`; `look` lets `watch` see what is wrong. All brokers count as this process's own from then on: what it
    /// captures of connections with them would be sent again.
    pub(crate) fn partitions(
        &self,
        client: &Client<impl ClientContext>,
        (watch, look): (&Watch, &dyn Fn()),
        wait: Duration,
    ) -> Result<(u32, Vec<Own>), Error> {
        let started = Instant::now();
        let deadline = started + wait;
        loop {
            let error = match client.fetch_metadata(Some(&self.topic), REQUEST) {
                Ok(metadata) => {
                    let topic = metadata.topics().first();
                    let error = topic.and_then(|topic| topic.error());
                    let partitions = topic.map_or(0, |topic| topic.partitions().len());
                    match error.map(Code::from) {
                        None if partitions > 0 => {
                            let brokers = metadata.brokers().iter();
                            let places =
                                brokers.map(|broker| (broker.host(), broker.port() as u16));
                            let own = places
                                .filter_map(|place| place.to_socket_addrs().ok())
                                .flatten()
                                .map(Own::listener);
                            return Ok((partitions as u32, own.collect()));
                        }
                        None => self.unknown(),
                        Some(code) => self.explained(&KafkaError::MetadataFetch(code), ""),
                    }
                }
                Err(error) => self.explained(&error, ""),
            };
            look();
            let error = watch.trouble(self).unwrap_or(error);
            let now = Instant::now();
            if error.is_lasting() && now >= started + CREATION || now >= deadline {
                return Err(error);
            }
            thread::sleep(REST);
        }
    }
}

/// Sees what is wrong with connections.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    trouble: Mutex<Option<(KafkaError, String)>>,
}

impl Watch {
    pub(crate) fn note(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(Code::PartitionEOF) {
            return;
        }
        let mut trouble = self.trouble.lock();
        // That no broker is left says less than why.
        let says_more = |code| matches!(code, Code::Authentication | Code::SSL | Code::Resolve);
        let before = trouble
            .as_ref()
            .and_then(|(error, _)| error.rdkafka_error_code());
        let now = error.rdkafka_error_code();
        if !before.is_some_and(says_more) || now.is_some_and(says_more) {
            *trouble = Some((error, brief(reason)));
        }
    }

    pub(crate) fn trouble(&self, cluster: &Cluster) -> Option<Error> {
        let trouble = self.trouble.lock();
        let (error, reason) = trouble.as_ref()?;
        Some(cluster.explained(error, reason))
    }

    pub(crate) fn is_over(&self) {
        *self.trouble.lock() = None;
    }
}

/// Without the name of the thread that says it, which a message begins with, and how long that had been in a state.
fn brief(reason: &str) -> String {
    let from = reason.find("]: ").map_or(0, |at| at + 3);
    let reason = reason.get(from..).unwrap_or(reason);
    let to = reason.find(" (after ").unwrap_or(reason.len());
    reason.get(..to).unwrap_or(reason).to_owned()
}
