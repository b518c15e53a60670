//! What is asked for, as facts.

use biscuit_auth::builder::{Fact, Term};

use crate::times;

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A word or text.
    Text(String),
    /// A number; of durations nanoseconds, of sizes bytes.
    Number(i64),
    /// It is left out, and there is no value that it has then.
    LeftOut,
}

/// What does not change while a flow is open.
#[derive(Clone, Debug, Default)]
pub struct Facts(pub(crate) Vec<Fact>);

impl Facts {
    /// The flow is to be on a device.
    #[must_use]
    pub fn on(mut self, device: &str) -> Facts {
        self.add("device", &[device]);
        self
    }

    /// It is asked of an agent that runs stacks.
    #[must_use]
    pub fn request(mut self, name: &str) -> Facts {
        self.add("request", &[name]);
        self
    }

    /// ... has a component, of which this can be told from more than counts.
    pub fn component(&mut self, name: &str, sees: Option<&str>) {
        self.add("component", &[name]);
        if let Some(why) = sees {
            self.add("sees", &[name, why]);
        }
    }

    /// ... with the value of an option.
    pub fn argument(&mut self, component: &str, option: &str, value: &Argument) {
        let value = match value {
            Argument::Text(text) => Term::Str(text.clone()),
            Argument::Number(number) => Term::Integer(*number),
            Argument::LeftOut => return self.add("left_out", &[component, option]),
        };
        let text = |text: &str| Term::Str(text.to_owned());
        self.put("argument", vec![text(component), text(option), value]);
    }

    /// The TLS certificate of who asks: its name, and the SHA-256 of its key.
    #[must_use]
    pub fn certificate(mut self, name: &str, key: Option<&str>) -> Facts {
        self.add("certificate", &[name]);
        if let Some(key) = key {
            self.add("holder", &[key]);
        }
        self
    }

    /// The local user who asks.
    #[must_use]
    pub fn user(mut self, number: u32, name: Option<&str>) -> Facts {
        self.add("user", &[&number.to_string()]);
        // A name that looks like a number would be somebody else's.
        if let Some(name) = name.filter(|name| name.parse::<u32>().is_err()) {
            self.add("user", &[name]);
        }
        self
    }

    fn add(&mut self, name: &str, terms: &[&str]) {
        let terms = terms.iter().map(|text| Term::Str((*text).to_owned()));
        self.put(name, terms.collect());
    }

    fn put(&mut self, name: &str, terms: Vec<Term>) {
        self.0.push(Fact::new(name.to_owned(), terms));
    }
}

/// What is asked for, and when.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What.
    pub facts: &'a Facts,
    /// Who asks.
    pub by: &'a Facts,
    /// When, in seconds since 1970.
    pub time: u64,
}

impl Request<'_> {
    pub(crate) fn all(&self) -> Vec<Fact> {
        let (day, minute) = times::clock(self.time);
        let clock = vec![Term::Str(day.to_owned()), Term::Integer(minute)];
        let now = [
            Fact::new("time".to_owned(), vec![Term::Date(self.time)]),
            Fact::new("clock".to_owned(), clock),
        ];
        let given = self.facts.0.iter().chain(&self.by.0);
        given.cloned().chain(now).collect()
    }
}
