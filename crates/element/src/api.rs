//! What can be asked over HTTP, and the document that says so.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aide::axum::ApiRouter;
use aide::axum::routing::{get_with, post_with, put_with};
use aide::openapi::{Info, OpenApi, SecurityScheme};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use flowgauge_credential::Who;
use flowgauge_link::Peer;
use flowgauge_sensor_client::scope;
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::timeout;

use crate::element::Inner;
use crate::fault::Fault;
use crate::modules::{MODULES, Module};
use crate::peers::{MOST_VIA, VIA};
use crate::probes::{Arrival, Grant, ProbeOrder};
use crate::publish::is_name;
use crate::rights::{Asker, Measures as _};
use crate::serve::Counted;
use crate::session::{Answer, Order, Session};
use crate::store::{Domain, Kept, PeerElement, SensorOf};

/// The longest request, what is read of a longer one, and how long it may take to send it.
const MOST_BODY: usize = 64 << 10;
const MOST_READ: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may be waited for.
const MOST_WAIT: u64 = 60;
/// Networks of a domain.
const MOST_NETWORKS: usize = 32;

type Shared = State<Arc<Inner>>;
type By = Extension<Arc<Asker>>;
type Answered<T> = Result<Json<T>, Fault>;

/// A name in the path.
#[derive(Deserialize, JsonSchema)]
struct Named {
    /// The name.
    name: String,
}

/// A sensor in the path.
#[derive(Deserialize, JsonSchema)]
struct NamedSensor {
    /// The domain.
    name: String,
    /// The sensor.
    sensor: String,
}

/// How long is waited.
#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// Seconds that are waited for the session to end; 60 at most.
    wait: Option<u64>,
}

/// What a domain is to be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewDomain {
    /// Its networks, as 10.1.0.0/16.
    #[serde(default)]
    networks: Vec<String>,
    /// Its sensors; as they are, where they are left out.
    sensors: Option<Vec<SensorOf>>,
}

/// What a sensor is to be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewSensor {
    /// The device, as `host:eth0`.
    device: String,
}

/// What a peer is to be.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewPeer {
    /// Where it listens: `host:port`.
    address: String,
    /// The domains that it answers for.
    domains: Vec<String>,
}

/// All that can be asked of an element.
pub(crate) fn router(inner: Arc<Inner>) -> Router {
    let (routes, document) = routes();
    let document = Bytes::from(serde_json::to_vec_pretty(&document).unwrap_or_default());
    let known = routes
        .layer(from_fn_with_state(Arc::clone(&inner), known))
        .with_state(inner);
    let open = get(|| async { ([(CONTENT_TYPE, "application/json")], document) });
    let all = known.route("/v1/openapi.json", open);
    all.fallback(|| async { Fault::unavailable() })
        .layer(axum::middleware::from_fn(bounded))
}

/// The routes, and the document that is made of them.
fn routes() -> (Router<Arc<Inner>>, OpenApi) {
    let mut document = OpenApi {
        info: Info {
            title: "Flowgauge measurement element".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: Some("Sessions of measurements between domains.".to_owned()),
            ..Info::default()
        },
        ..OpenApi::default()
    };
    let routes = ApiRouter::new()
        .api_route(
            "/v1/modules",
            get_with(modules, |it| it.summary("List what can be measured")),
        )
        .api_route(
            "/v1/domains",
            get_with(domains, |it| it.summary("List domains")),
        )
        .api_route(
            "/v1/domains/{name}",
            get_with(domain, |it| it.summary("Show a domain"))
                .put_with(put_domain, |it| {
                    it.summary("Add or change a domain (admin)")
                })
                .delete_with(remove_domain, |it| it.summary("Remove a domain (admin)")),
        )
        .api_route(
            "/v1/domains/{name}/sensors/{sensor}",
            put_with(put_sensor, |it| {
                it.summary("Add or change a sensor (admin)")
            })
            .delete_with(remove_sensor, |it| it.summary("Remove a sensor (admin)")),
        )
        .api_route(
            "/v1/peers",
            get_with(peers, |it| it.summary("List peer elements (admin)")),
        )
        .api_route(
            "/v1/peers/{name}",
            put_with(put_peer, |it| {
                it.summary("Add or change a peer element (admin)")
            })
            .delete_with(remove_peer, |it| {
                it.summary("Remove a peer element (admin)")
            }),
        )
        .api_route(
            "/v1/sessions",
            get_with(sessions, |it| it.summary("List your sessions"))
                .post_with(open, |it| it.summary("Open a session")),
        )
        .api_route(
            "/v1/sessions/{name}",
            get_with(session, |it| it.summary("Show a session and its results"))
                .delete_with(cancel, |it| it.summary("Cancel a session")),
        )
        .api_route(
            "/v1/probes",
            post_with(grant, |it| it.summary("Agree to be probed (peer elements)")),
        )
        .api_route(
            "/v1/probes/{name}",
            get_with(arrivals, |it| {
                it.summary("Show which probes came (peer elements)")
            }),
        )
        .api_route(
            "/v1/metrics",
            get_with(metrics, |it| {
                let it = it.summary("Show what sessions publish to Prometheus");
                it.response::<200, String>()
            }),
        )
        .finish_api_with(&mut document, |it| {
            let credential = SecurityScheme::Http {
                scheme: "bearer".to_owned(),
                bearer_format: Some("Biscuit".to_owned()),
                description: Some("A credential; or a certificate is shown with TLS.".to_owned()),
                extensions: Default::default(),
            };
            it.security_scheme("credential", credential)
                .default_response::<Fault>()
        });
    (routes, document)
}

/// Bounds requests, and gives what axum itself answers the form of other errors.
async fn bounded(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = match timeout(PATIENCE, whole(body)).await {
        Ok(Some(body)) => body,
        Ok(None) => {
            let hint = "send fewer sensors or filters at once";
            let error = format!("a request has at most {MOST_BODY} bytes");
            return Fault::new(StatusCode::PAYLOAD_TOO_LARGE, error, hint).into_response();
        }
        Err(_) => {
            let hint = "send it at once";
            return Fault::new(
                StatusCode::REQUEST_TIMEOUT,
                "the request is incomplete",
                hint,
            )
            .into_response();
        }
    };
    let answer = next.run(Request::from_parts(head, Body::from(body))).await;
    let kind = answer.headers().get(CONTENT_TYPE);
    let is_plain = kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain; charset"));
    if !answer.status().is_client_error() || !is_plain {
        return answer;
    }
    let (status, text) = (
        answer.status(),
        to_bytes(answer.into_body(), MOST_BODY).await,
    );
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let error = if text.is_empty() {
        status.to_string()
    } else {
        text
    };
    Fault::new(status, error, "see /v1/openapi.json for requests").into_response()
}

/// A body, if it is not too long. More of it is read than is taken, as who still sends would not see an answer.
async fn whole(mut body: Body) -> Option<Vec<u8>> {
    let (mut bytes, mut len) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else {
            continue;
        };
        len += data.len();
        if len > MOST_READ {
            return None;
        }
        if len <= MOST_BODY {
            bytes.extend_from_slice(&data);
        }
    }
    (len <= MOST_BODY).then_some(bytes)
}

/// Finds out who asks.
async fn known(
    State(inner): Shared,
    Extension(peer): Extension<Arc<Option<Peer>>>,
    Extension(counted): Extension<Arc<Counted>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Fault> {
    if inner.config.plain && !is_here(&request) {
        let hint = "without TLS, the element is asked at localhost or 127.0.0.1";
        let error = "wrong host name for this element";
        return Err(Fault::new(StatusCode::MISDIRECTED_REQUEST, error, hint));
    }
    let peer = peer.as_ref().as_ref();
    let who = Who {
        name: peer.map(|peer| peer.name.clone()),
        key: peer.map(|peer| peer.key.clone()),
        credential: credential(request.headers())?,
    };
    let asker = inner.people.asker(who)?;
    counted.admit();
    request.extensions_mut().insert(Arc::new(asker));
    Ok(next.run(request).await)
}

/// The text of the credential that is brought, if one is.
fn credential(headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let refused = |error: &str| {
        let hint = "Authorization: Bearer TEXT, once, the text of a credential";
        Fault::new(StatusCode::UNAUTHORIZED, error, hint)
    };
    let Some(value) = all.next() else {
        return Ok(None);
    };
    if all.next().is_some() {
        return Err(refused("there are several authorizations"));
    }
    // RFC 9110, 11.1: the scheme is the same in small letters.
    let text = value.to_str().ok().and_then(|text| text.split_once(' '));
    match text {
        Some((scheme, text)) if scheme.eq_ignore_ascii_case("Bearer") => {
            Ok(Some(text.trim_start_matches(' ').to_owned()))
        }
        _ => Err(refused("unsupported authorization")),
    }
}

/// Whether a request is to this machine by a name that only it has: pages of others, whose names lead here, have none of its rights.
fn is_here(request: &Request) -> bool {
    let host = request
        .headers()
        .get(HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        let is_loopback = |ip: IpAddr| ip.is_loopback();
        name == "localhost" || name.parse().is_ok_and(is_loopback)
    })
}

/// Whether somebody may change what the element knows; else it is as if it were not there.
fn administers(by: &Asker) -> Result<(), Fault> {
    match by.rights.admin {
        true => Ok(()),
        false => Err(Fault::unavailable()),
    }
}

fn named(place: &str, name: &str) -> Result<(), Fault> {
    match is_name(name) {
        true => Ok(()),
        false => {
            let hint = "names have letters, digits, '-', '_' and '.', 63 at most";
            Err(Fault::invalid(
                place,
                format!("\"{}\" is not a name", name.escape_debug()),
                hint,
            ))
        }
    }
}

fn check_device(place: &str, device: &str) -> Result<(), Fault> {
    let hint =
        "write host:eth0, host:2233:eth0, [2001:db8::1]:eth0, or eth0 of this machine's sensor";
    let is_one =
        !device.contains(['/', ',']) && scope::members(device).is_ok_and(|all| all.len() == 1);
    match is_one {
        true => Ok(()),
        false => Err(Fault::invalid(
            place,
            format!("\"{}\" is not a device", device.escape_debug()),
            hint,
        )),
    }
}

fn check_network(text: &str) -> Result<(), Fault> {
    let is_good = text.split_once('/').is_some_and(|(address, bits)| {
        let most = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        let address: Option<IpAddr> = address.parse().ok();
        let bits = bits.parse::<u8>().ok();
        address
            .zip(bits)
            .is_some_and(|(address, bits)| bits <= most(address))
    });
    // libpcap wants no bits behind the prefix.
    match is_good && flowgauge_sensor::filter_error(&format!("net {text}")).is_none() {
        true => Ok(()),
        false => Err(Fault::invalid(
            "networks",
            format!("\"{}\" is not a network", text.escape_debug()),
            "write 10.1.0.0/16 or 2001:db8::/32",
        )),
    }
}

async fn modules(_: By) -> Json<Vec<Module>> {
    Json(MODULES.iter().map(|declared| declared.module()).collect())
}

/// A domain as somebody may see it.
fn shown(by: &Asker, mut domain: Domain) -> Domain {
    if !by.rights.sensors && !by.rights.admin {
        domain.sensors.clear();
    }
    domain.peer = domain.peer.filter(|_| by.rights.admin);
    domain
}

async fn domains(State(inner): Shared, Extension(by): By) -> Answered<Vec<Domain>> {
    let mut domains = inner.store.domains()?;
    for peer in inner.store.peers()? {
        let its = peer.domains.iter().map(|name| Domain {
            name: name.clone(),
            peer: Some(peer.name.clone()),
            ..Domain::default()
        });
        let is_new = |domain: &Domain| domains.iter().all(|it| it.name != domain.name);
        let its: Vec<Domain> = its.filter(is_new).collect();
        domains.extend(its);
    }
    domains.retain(|domain| by.may_know(&domain.name));
    Ok(Json(
        domains
            .into_iter()
            .map(|domain| shown(&by, domain))
            .collect(),
    ))
}

async fn domain(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
) -> Answered<Domain> {
    let (found, may_know) = (inner.store.domain(&at.name)?, by.may_know(&at.name));
    let found = found.filter(|_| may_know).ok_or_else(Fault::unavailable)?;
    Ok(Json(shown(&by, found.0)))
}

async fn put_domain(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
    Json(new): Json<NewDomain>,
) -> Answered<Domain> {
    administers(&by)?;
    named("name", &at.name)?;
    if new.networks.len() > MOST_NETWORKS {
        let what = format!("a domain has at most {MOST_NETWORKS} networks");
        return Err(Fault::invalid("networks", what, "summarize them"));
    }
    new.networks
        .iter()
        .try_for_each(|network| check_network(network))?;
    for sensor in new.sensors.iter().flatten() {
        named("sensors.name", &sensor.name)?;
        check_device("sensors.device", &sensor.device)?;
    }
    let before = inner.store.domain(&at.name)?.map(|(domain, _)| domain);
    let sensors = new.sensors.or_else(|| before.map(|domain| domain.sensors));
    let domain = Domain {
        name: at.name,
        networks: new.networks,
        sensors: sensors.unwrap_or_default(),
        peer: None,
    };
    inner.store.put_domain(&domain)?;
    Ok(Json(domain))
}

async fn remove_domain(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
) -> Answered<Vec<Domain>> {
    administers(&by)?;
    match inner.store.remove_domain(&at.name)? {
        true => Ok(Json(inner.store.domains()?)),
        false => Err(Fault::unavailable()),
    }
}

/// Changes the sensors of a domain of this element.
fn change_sensors(
    inner: &Inner,
    by: &Asker,
    at: &NamedSensor,
    device: Option<String>,
) -> Answered<Domain> {
    administers(by)?;
    let found = inner
        .store
        .domain(&at.name)?
        .filter(|(domain, _)| domain.peer.is_none());
    let (mut domain, _) = found.ok_or_else(Fault::unavailable)?;
    let before = domain.sensors.len();
    domain.sensors.retain(|it| it.name != at.sensor);
    match device {
        Some(device) => domain.sensors.push(SensorOf {
            name: at.sensor.clone(),
            device,
        }),
        None if domain.sensors.len() == before => return Err(Fault::unavailable()),
        None => {}
    }
    inner.store.put_domain(&domain)?;
    Ok(Json(domain))
}

async fn put_sensor(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<NamedSensor>,
    Json(new): Json<NewSensor>,
) -> Answered<Domain> {
    named("sensor", &at.sensor)?;
    check_device("device", &new.device)?;
    change_sensors(&inner, &by, &at, Some(new.device))
}

async fn remove_sensor(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<NamedSensor>,
) -> Answered<Domain> {
    change_sensors(&inner, &by, &at, None)
}

async fn peers(State(inner): Shared, Extension(by): By) -> Answered<Vec<PeerElement>> {
    administers(&by)?;
    Ok(Json(inner.store.peers()?))
}

async fn put_peer(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
    Json(new): Json<NewPeer>,
) -> Answered<PeerElement> {
    administers(&by)?;
    named("name", &at.name)?;
    new.domains
        .iter()
        .try_for_each(|domain| named("domains", domain))?;
    if inner.identity.is_none() {
        let hint = "omit plain, and create keys: flowgauge keys add NAME";
        return Err(Fault::invalid(
            "name",
            "an element without TLS has no peers",
            hint,
        ));
    }
    let address = scope::with_port(&new.address).filter(|it| *it == new.address);
    let address = address.ok_or_else(|| {
        Fault::invalid(
            "address",
            "this is not an address with a port (host:port)",
            "write host:2280 or [2001:db8::1]:2280",
        )
    })?;
    let peer = PeerElement {
        name: at.name,
        address,
        domains: new.domains,
    };
    inner.store.put_peer(&peer)?;
    Ok(Json(peer))
}

async fn remove_peer(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
) -> Answered<Vec<PeerElement>> {
    administers(&by)?;
    match inner.store.remove_peer(&at.name)? {
        true => Ok(Json(inner.store.peers()?)),
        false => Err(Fault::unavailable()),
    }
}

/// A session that somebody may see.
fn found(inner: &Inner, by: &Asker, id: &str) -> Result<Kept, Fault> {
    let kept = inner.store.session(id)?;
    let kept = kept.filter(|kept| kept.owner == by.owner || by.rights.admin);
    let mut kept = kept.ok_or_else(Fault::unavailable)?;
    kept.session.error = inner.trouble(id).or(kept.session.error);
    Ok(kept)
}

async fn answer(inner: &Inner, by: &Asker, id: &str, wait: Option<u64>) -> Answered<Answer> {
    let kept = found(inner, by, id)?;
    let seconds = wait.unwrap_or(0).min(MOST_WAIT);
    if seconds > 0 {
        inner
            .wait(&kept.session.id, Duration::from_secs(seconds))
            .await;
    }
    Ok(Json(Answer {
        results: inner.store.results_of(id)?,
        session: found(inner, by, id)?.session,
    }))
}

async fn sessions(State(inner): Shared, Extension(by): By) -> Answered<Vec<Session>> {
    let owner = (!by.rights.admin).then_some(by.owner.as_str());
    let kept = inner.store.sessions(owner, false)?;
    Ok(Json(kept.into_iter().map(|kept| kept.session).collect()))
}

async fn open(
    State(inner): Shared,
    Extension(by): By,
    Query(wait): Query<Wait>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Answered<Answer> {
    let via = headers
        .get(VIA)
        .and_then(|via| via.to_str().ok())
        .unwrap_or_default();
    let via: Vec<String> = via
        .split(',')
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect();
    if via.len() >= MOST_VIA || via.iter().any(|name| name == inner.name()) {
        let hint = "two elements consider each other responsible for a domain: check their peers";
        return Err(Fault::new(
            StatusCode::LOOP_DETECTED,
            "the request has already passed this element",
            hint,
        ));
    }
    // Filters are compiled.
    let session = tokio::task::block_in_place(|| inner.open(&by, order, via))?;
    answer(&inner, &by, &session.id, wait.wait).await
}

async fn session(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
    Query(wait): Query<Wait>,
) -> Answered<Answer> {
    answer(&inner, &by, &at.name, wait.wait).await
}

async fn cancel(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
) -> Answered<Session> {
    Ok(Json(inner.cancel(found(&inner, &by, &at.name)?)?))
}

async fn grant(
    State(inner): Shared,
    Extension(by): By,
    Extension(peer): Extension<Arc<Option<Peer>>>,
    Json(order): Json<ProbeOrder>,
) -> Answered<Grant> {
    let from = peer.as_ref().as_ref().map(|peer| peer.address.as_str());
    Ok(Json(inner.grant(&by, from, &order).await?))
}

async fn arrivals(
    State(inner): Shared,
    Extension(by): By,
    Path(at): Path<Named>,
) -> Answered<Vec<Arrival>> {
    Ok(Json(inner.arrivals(&by, &at.name)?))
}

async fn metrics(State(inner): Shared, Extension(by): By) -> Response {
    let text = inner.series.lock().text(&by);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
