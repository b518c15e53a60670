//! Where an `input` has its items from, as its options say.

use std::time::Duration;

use flowgauge_kafka::{Group, GroupOptions};
use flowgauge_link::{Error, KeyFolder, Listener, ListenerOptions, Reception};
use flowgauge_stack::{Failure, SettingError, Settings};
use flowgauge_sys::ending::{is_ending, without_stop};

use super::super::codec::Kind;
use super::super::kafka::{self, Place};
use super::super::{failure, keys};
use super::Options;

/// How long a broker is waited for before that is said.
const BROKER_WAIT: Duration = Duration::from_secs(2);
/// What links have and topics have not.
const LINK_OPTIONS: [&str; 4] = ["senders", "forget", "allow", "listen"];

fn is_given(settings: &Settings, option: &str) -> bool {
    let setting = settings.setting(option);
    setting.is_some_and(|setting| setting.span.is_some())
}

pub(super) fn of_links(settings: &Settings, wanted: &Options) -> Result<From, SettingError> {
    let of_topics = kafka::OF_BOTH.iter().map(|option| option.name);
    let mut without = of_topics.chain(["group", "until", "numbers"]);
    if let Some(option) = without.find(|option| is_given(settings, option)) {
        return Err(SettingError::of(option, "has no meaning without kafka"));
    }
    let Some(listen) = wanted.listen.as_deref() else {
        return Err(SettingError::of_all("needs listen or kafka").with_hint(
            "listen = 192.0.2.1:2233 for outputs with to, kafka = host:9092 for those with kafka",
        ));
    };
    let port = listen.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(_))) {
        return Err(SettingError::of(
            "listen",
            format!("\"{listen}\" is not an address with a port (host:port)"),
        )
        .with_hint("write it as 192.0.2.1:2233, or [::]:2233 for all addresses"));
    }
    let mut options = ListenerOptions::new(listen);
    let allow = wanted.allow.as_deref().unwrap_or_default();
    options.allowed = allow.split_whitespace().map(str::to_owned).collect();
    options.queue_bytes = wanted.queue;
    options.total_bytes = wanted.memory;
    Ok(From::Links {
        keys: keys(settings),
        identity: settings.text("identity").map(str::to_owned),
        options,
    })
}

pub(super) fn of_topic(
    settings: &Settings,
    brokers: &str,
    kind: Kind,
    wanted: &Options,
) -> Result<From, SettingError> {
    let mut without = LINK_OPTIONS.iter();
    if let Some(option) = without.find(|option| is_given(settings, option)) {
        return Err(SettingError::of(
            option,
            "is for links, and kafka takes from a topic",
        ));
    }
    if kind != Kind::Records {
        return Err(SettingError::of("type", "only records go through Kafka")
            .with_hint("type = record, or type = flow"));
    }
    let Some(group) = wanted.group.clone().filter(|group| !group.is_empty()) else {
        return Err(SettingError::of("group", "is needed with kafka")
            .with_hint("all inputs with the same group share the work"));
    };
    Ok(From::Topic {
        place: Place::read(settings, brokers)?,
        group,
        memory: wanted.memory,
        ahead: wanted.queue,
        until_end: (wanted.until == "end").then_some(wanted.timeout),
    })
}

/// Where items come from.
pub(super) enum From {
    Links {
        keys: KeyFolder,
        identity: Option<String>,
        options: ListenerOptions,
    },
    Topic {
        place: Place,
        group: String,
        memory: usize,
        ahead: usize,
        until_end: Option<Duration>,
    },
}

/// Joins once a broker is there.
fn join(options: &GroupOptions) -> Result<Group, Error> {
    let mut is_told = false;
    loop {
        match Group::join(options.clone()) {
            Err(error) if !error.is_lasting() && !is_ending() => {
                if !core::mem::replace(&mut is_told, true) {
                    flowgauge_link::tell(format_args!("{error}; it is waited for"));
                }
            }
            joined => return joined,
        }
    }
}

impl From {
    pub(super) fn open(&self) -> Result<Box<dyn Reception>, Failure> {
        let failed = |error| failure(&error);
        match self {
            From::Links {
                keys,
                identity,
                options,
            } => {
                let identity = keys.identity(identity.as_deref()).map_err(failed)?;
                let listener = Listener::bind(&identity, options.clone()).map_err(failed)?;
                flowgauge_link::tell(format_args!("listening at {}", listener.local_address()));
                Ok(Box::new(listener))
            }
            From::Topic {
                place,
                group,
                memory,
                ahead,
                until_end,
            } => {
                let options = GroupOptions {
                    cluster: place.open()?,
                    group: group.clone(),
                    memory: *memory,
                    ahead: *ahead,
                    until_end: *until_end,
                    wait: BROKER_WAIT,
                };
                let what = || format!("waiting for a broker of {}", place.name());
                let group = without_stop(what, || join(&options)).map_err(failed)?;
                flowgauge_link::tell(format_args!("taking from {}", place.name()));
                Ok(Box::new(group))
            }
        }
    }
}
