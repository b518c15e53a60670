//! Elements of other domains, asked.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use flowgauge_link::Identity;
use flowgauge_sys::notice::tell;
use serde::de::DeserializeOwned;

use crate::client::{self, Url};
use crate::element::Inner;
use crate::fault::Problem;
use crate::session::{Answer, OneShot, Order, Outcome, Period, State};
use crate::store::{Domain, PeerElement};

/// The header that names the elements which a request has passed.
pub(crate) const VIA: &str = "flowgauge-via";
/// How many those are at most.
pub(crate) const MOST_VIA: usize = 4;
/// Who answers, for users.
const PEER: &str = "a peer element";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a peer is asked to wait with it, in seconds.
const WAIT: u32 = 20;
/// What a measurement may take longer at a peer: its turn, and its sensors.
const LONGER: u32 = 60;

impl Inner {
    /// What a peer knows of its domain.
    pub(crate) async fn domain_of(
        &self,
        peer: &PeerElement,
        domain: &str,
    ) -> Result<Domain, String> {
        let path = format!("/v1/domains/{domain}");
        self.ask_peer(peer, Method::GET, path, Vec::new(), Vec::new())
            .await
    }

    /// Has a peer measure once.
    pub(crate) async fn forward(
        &self,
        peer: &PeerElement,
        order: &Order,
        seconds: u32,
        via: &[String],
    ) -> Result<Outcome, String> {
        let order = Order {
            period: Period {
                one_shot: Some(OneShot { seconds }),
                ..Period::default()
            },
            publish: Vec::new(),
            ..order.clone()
        };
        let passed = via.iter().map(String::as_str).chain([self.name()]);
        let via = vec![(VIA, passed.collect::<Vec<_>>().join(", "))];
        let body = serde_json::to_vec(&order).map_err(|error| error.to_string())?;
        let path = format!("/v1/sessions?wait={WAIT}");
        let mut answer: Answer = self.ask_peer(peer, Method::POST, path, via, body).await?;
        let id = answer.session.id.clone();
        let mut left = seconds + LONGER;
        while answer.session.state == State::Running && left > 0 {
            left = left.saturating_sub(WAIT);
            let path = format!("/v1/sessions/{id}?wait={WAIT}");
            answer = self
                .ask_peer(peer, Method::GET, path, Vec::new(), Vec::new())
                .await?;
        }
        match (answer.results.pop(), answer.session.error) {
            (Some(outcome), _) => Ok(outcome),
            (None, Some(error)) => Err(of_peer(peer, &error)),
            (None, None) => Err(of_peer(peer, "no result (timeout)")),
        }
    }

    pub(crate) async fn ask_peer<T: DeserializeOwned>(
        &self,
        peer: &PeerElement,
        method: Method,
        path: String,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Result<T, String> {
        let url = Url {
            is_secure: true,
            address: peer.address.clone(),
            name: peer.name.clone(),
            path,
        };
        let patience = PATIENCE + Duration::from_secs(WAIT.into());
        let asked = client::ask(
            self.identity.as_ref().map(Identity::https_client),
            &url,
            (method, headers, body),
            patience,
        );
        // Who and where it is, and why it does not answer, is no matter of users.
        let (status, body) = asked.await.map_err(|error| {
            tell(format_args!("peer {}: {error}", peer.name));
            "a peer element does not answer".to_owned()
        })?;
        read(status, &body).map_err(|error| of_peer(peer, &error))
    }
}

/// What a peer answers, for users: its name goes to the log alone.
fn of_peer(peer: &PeerElement, error: &str) -> String {
    tell(format_args!("peer {}: {error}", peer.name));
    match error.starts_with(PEER) {
        true => error.to_owned(),
        false => format!("{PEER}: {error}"),
    }
}

fn read<T: DeserializeOwned>(status: StatusCode, body: &Bytes) -> Result<T, String> {
    if !status.is_success() {
        let problem = serde_json::from_slice::<Problem>(body);
        return Err(problem.map_or_else(|_| status.to_string(), |problem| problem.error));
    }
    serde_json::from_slice(body).map_err(|_| "its answer is invalid".to_owned())
}
