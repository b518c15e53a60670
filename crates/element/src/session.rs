//! What is asked of an element, and what becomes of it: data only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::modules::{Metric, Parameters};

/// Bounds of what can be asked for.
pub(crate) const MOST_SECONDS: u32 = 3600;
const MOST_TIMES: u32 = 100_000;
const MOST_FILTER: usize = 1024;
pub(crate) const MOST_FILTERS: usize = 16;
/// Bytes of all filters as components of a flow, whose text has 4,096 at most on sensors: the rest is for what measures.
pub(crate) const MOST_FILTERS_TEXT: usize = 3840;
const MOST_PUBLICATIONS: usize = 8;
/// Stored results that a session has at most; the oldest go.
pub(crate) const MOST_RESULTS: usize = 1000;

/// A measurement session, as it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// The domain that the traffic comes from.
    pub source: String,
    /// The domain that it goes to; may be the same.
    pub destination: String,
    /// What is measured (`/v1/modules`).
    pub metric: Metric,
    /// How it is measured.
    #[serde(default)]
    pub parameters: Parameters,
    /// The service: only packets that match all of these, in the syntax of pcap-filter(7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// When it is measured.
    pub period: Period,
    /// Plug-ins that results go to, beside the session: `prometheus`, `file:NAME`, `push:TARGET`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<String>,
}

/// When a session measures. Several together are answered in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Period {
    /// Stored results of the same measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub historical: Option<Historical>,
    /// The last stored result, or a new one where that is too old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_recent: Option<MostRecent>,
    /// One measurement, now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_shot: Option<OneShot>,
    /// A measurement again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Periodic>,
}

/// Results from one time to another, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Historical {
    /// Those that ended at this time or later.
    pub from: f64,
    /// Those that began before; now, where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
}

/// How old a result may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MostRecent {
    /// Seconds since its end.
    pub max_age: u32,
    /// Seconds that a new measurement takes.
    #[serde(default = "usual")]
    pub seconds: u32,
}

/// How long is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneShot {
    /// Seconds.
    #[serde(default = "usual")]
    pub seconds: u32,
}

/// How often is measured, and how long. Measurements begin at multiples of `every` since 1970, so that equal sessions share them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Periodic {
    /// Seconds from one beginning to the next.
    pub every: u32,
    /// Seconds that each takes; `every`, where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// How many there are.
    pub times: u32,
}

fn usual() -> u32 {
    10
}

impl Period {
    /// Seconds of the longest measurement.
    pub(crate) fn longest(&self) -> u32 {
        let all = [
            self.most_recent.as_ref().map(|it| it.seconds),
            self.one_shot.as_ref().map(|it| it.seconds),
            self.periodic.as_ref().map(Periodic::seconds),
        ];
        all.into_iter().flatten().max().unwrap_or(0)
    }
}

impl Periodic {
    pub(crate) fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(self.every)
    }

    /// When a measurement begins, where the one due at `due` did not begin then: at once in its interval, else at once in the last one
    /// that has begun. With how many intervals were missed.
    pub(crate) fn late(&self, due: f64, now: f64) -> (f64, u32) {
        let every = f64::from(self.every.max(1));
        let missed = ((now - due) / every).floor().max(0.0);
        (due + missed * every, missed as u32)
    }

    /// The beginning of the next measurement, in seconds since 1970.
    pub(crate) fn next(&self, now: f64) -> f64 {
        let every = f64::from(self.every.max(1));
        (now / every).floor() * every + every
    }
}

impl Order {
    /// What is wrong with it, as far as that can be seen from it alone.
    ///
    /// # Errors
    /// The first that is found.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let seconds = |place: &str, value: u32| match (1..=MOST_SECONDS).contains(&value) {
            true => Ok(()),
            false => Err(Fault::invalid(
                place,
                format!("{value} seconds: out of range"),
                format!("a measurement takes 1 to {MOST_SECONDS} seconds"),
            )),
        };
        let Period {
            historical,
            most_recent,
            one_shot,
            periodic,
        } = &self.period;
        if self.period == Period::default() {
            let hint = "at least one of historical, most_recent, one_shot, periodic";
            return Err(Fault::invalid("period", "there is no period", hint));
        }
        if let Some(historical) = historical
            && !(historical.from.is_finite() && historical.until.is_none_or(f64::is_finite))
        {
            let hint = "times are seconds since 1970";
            return Err(Fault::invalid(
                "period.historical",
                "this is not a time",
                hint,
            ));
        }
        if let Some(Historical {
            from,
            until: Some(until),
        }) = historical
            && until < from
        {
            let hint = "until must be later than from";
            let what = "the time ends before it begins";
            return Err(Fault::invalid("period.historical", what, hint));
        }
        if let Some(most_recent) = most_recent {
            seconds("period.most_recent.seconds", most_recent.seconds)?;
        }
        if let Some(one_shot) = one_shot {
            seconds("period.one_shot.seconds", one_shot.seconds)?;
        }
        if let Some(periodic) = periodic {
            seconds("period.periodic.every", periodic.every)?;
            seconds("period.periodic.seconds", periodic.seconds())?;
            if periodic.seconds() > periodic.every || !(1..=MOST_TIMES).contains(&periodic.times) {
                return Err(Fault::invalid(
                    "period.periodic",
                    "these measurements are not possible",
                    format!("seconds is at most every, times 1 to {MOST_TIMES}"),
                ));
            }
        }
        let hint = "filters are as for tcpdump: [\"tcp port 443\"]";
        if self.filters.len() > MOST_FILTERS || self.filters.iter().any(|it| it.len() > MOST_FILTER)
        {
            let what =
                format!("there are at most {MOST_FILTERS} filters of {MOST_FILTER} bytes each");
            return Err(Fault::invalid("filters", what, hint));
        }
        if let Some(error) = self
            .filters
            .iter()
            .find_map(|it| flowgauge_sensor::filter_error(it))
        {
            return Err(Fault::invalid("filters", error, hint));
        }
        if self.publish.len() > MOST_PUBLICATIONS {
            let what = format!("a session has at most {MOST_PUBLICATIONS} publications");
            return Err(Fault::invalid("publish", what, "open several sessions"));
        }
        self.parameters.check(self.metric.declared())
    }
}

/// How a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It measures, or will.
    Running,
    /// All is measured.
    Done,
    /// It ended with an error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Session {
    /// Its identifier.
    pub id: String,
    /// What was asked for.
    pub order: Order,
    /// How it is.
    pub state: State,
    /// When it was opened, in seconds since 1970.
    pub created: f64,
    /// Periodic measurements that have been made.
    pub made: u32,
    /// Intervals of the period that passed without a measurement, as the one before took longer.
    #[serde(default)]
    pub missed: u32,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A session with what was measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Answer {
    /// The session.
    #[serde(flatten)]
    pub session: Session,
    /// Its results, the oldest first; the last 1,000.
    pub results: Vec<Outcome>,
}

/// The result of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Outcome {
    /// When it began, in seconds since 1970.
    pub began: f64,
    /// When it ended.
    pub ended: f64,
    /// What was measured: `/v1/modules` says which fields rows of a metric have.
    pub rows: Vec<Map<String, Value>>,
    /// What was amiss: sensors that did not answer, observations that were lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(text: &str) -> Result<(), String> {
        let order: Result<Order, _> = serde_json::from_str(text);
        let order = order.map_err(|error| error.to_string())?;
        order.check().map_err(|fault| fault.problem.error)
    }

    #[test]
    fn orders_are_checked() {
        let with = |rest: &str| {
            order(&format!(
                "{{\"source\": \"a\", \"destination\": \"b\", \"metric\": \"loss\", {rest}}}"
            ))
        };
        for good in [
            "\"period\": {\"one_shot\": {}}",
            "\"period\": {\"historical\": {\"from\": 0}, \"periodic\": {\"every\": 10, \"times\": 3}}",
            "\"period\": {\"most_recent\": {\"max_age\": 5}}, \"filters\": [\"tcp port 80\"]",
            "\"period\": {\"one_shot\": {\"seconds\": 3600}}, \"parameters\": {}",
            "\"period\": {\"historical\": {\"from\": 5, \"until\": 5}}",
        ] {
            assert_eq!(with(good), Ok(()), "{good}");
        }
        for bad in [
            "\"period\": {}",
            "\"period\": {\"one_shot\": {\"seconds\": 0}}",
            "\"period\": {\"one_shot\": {\"seconds\": 3601}}",
            "\"period\": {\"one_shot\": {\"length\": 1}}",
            "\"period\": {\"periodic\": {\"every\": 10, \"seconds\": 11, \"times\": 1}}",
            "\"period\": {\"periodic\": {\"every\": 10, \"times\": 0}}",
            "\"period\": {\"one_shot\": {}}, \"filters\": [\"tcp prot 80\"]",
            "\"period\": {\"historical\": {\"from\": 5, \"until\": 4}}",
            // Loss has no rows to choose from.
            "\"period\": {\"one_shot\": {}}, \"parameters\": {\"count\": 3}",
        ] {
            assert!(with(bad).is_err(), "{bad}");
        }
        let shares = |count: u32| {
            order(&format!(
                "{{\"source\": \"a\", \"destination\": \"b\", \"metric\": \"shares\",
                  \"parameters\": {{\"count\": {count}}}, \"period\": {{\"one_shot\": {{}}}}}}"
            ))
        };
        assert_eq!(shares(3), Ok(()));
        assert!(shares(0).is_err());
        // Of a filter only its own error is told.
        let error = with("\"period\": {\"one_shot\": {}}, \"filters\": [\"tcp prot 80\"]");
        assert!(error.is_err_and(|error| !error.contains("warning")));
    }

    #[test]
    fn periods_begin_at_multiples() {
        let periodic = Periodic {
            every: 60,
            seconds: None,
            times: 2,
        };
        assert_eq!(periodic.next(0.0), 60.0);
        assert_eq!(periodic.next(119.5), 120.0);
        assert_eq!(periodic.next(120.0), 180.0);
        // What was due at 120 begins then or within its interval, or is missed.
        assert_eq!(periodic.late(120.0, 60.006), (120.0, 0));
        assert_eq!(periodic.late(120.0, 179.9), (120.0, 0));
        assert_eq!(periodic.late(120.0, 180.0), (180.0, 1));
        assert_eq!(periodic.late(120.0, 301.0), (300.0, 3));
    }
}
