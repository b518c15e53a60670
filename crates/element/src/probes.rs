//! Active probes between elements that agreed, where no two sensors see a path: echoes of ICMP, TCP connections, and UDP one way.
//!
//! Both elements name each other in their configuration. The one that probes asks the other one first, for each measurement; the other
//! one answers with a token and, for UDP, a port that takes what has the token. Nothing is sent through an interface that this machine's
//! sensor captures.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as Plain};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use flowgauge_sensor_client::Client;
use flowgauge_sys::echo::Echo;
use flowgauge_sys::files::Folder;
use flowgauge_sys::interfaces;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::{Instant, Interval, interval, sleep, timeout};

use crate::element::Inner;
use crate::fault::Fault;
use crate::measure::row;
use crate::modules::{Metric, Site};
use crate::rights::{Asker, now};
use crate::session::{MOST_SECONDS, Order, Outcome};
use crate::store::PeerElement;

/// Probes of a measurement.
const MOST_PROBES: usize = 10_000;
/// Measurements that are answered at once.
const MOST_GRANTS: usize = 16;
/// How long a probe may take, and arrivals are kept after the measurement.
const PATIENCE: Duration = Duration::from_secs(2);
const KEPT: Duration = Duration::from_secs(30);
/// Bytes of a datagram: the token, a number, and when it was sent.
const DATAGRAM: usize = 16 + 8 + 8;

/// Who is probed, and who may probe.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct ProbesConfig {
    /// Elements, by the names in their certificates; none: there are no probes.
    pub peers: Vec<String>,
    /// Probes of a measurement in a second.
    pub per_second: u32,
}

impl Default for ProbesConfig {
    fn default() -> ProbesConfig {
        ProbesConfig {
            peers: Vec::new(),
            per_second: 10,
        }
    }
}

/// What a peer is asked to answer.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbeOrder {
    /// What is probed.
    pub(crate) metric: Metric,
    /// How long.
    pub(crate) seconds: u32,
}

/// A peer agrees.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Grant {
    /// What names the measurement, in hexadecimal.
    pub(crate) token: String,
    /// Where it takes datagrams, of `one_way`.
    pub(crate) port: u16,
}

/// A datagram that came.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Arrival {
    /// Its number, from 0.
    number: u64,
    /// When, in nanoseconds since 1970.
    time: i64,
}

/// Numbers of datagrams, and when they came.
type Came = Arc<Mutex<BTreeMap<u64, i64>>>;

/// Measurements that are answered, by token: for whom, and what came.
pub(crate) type Grants = Mutex<HashMap<String, (String, Came)>>;

fn nanos() -> i64 {
    (now() * 1e9) as i64
}

impl Inner {
    /// Agrees to be probed, if the configuration does.
    pub(crate) async fn grant(
        self: &Arc<Self>,
        by: &Asker,
        from: Option<&str>,
        order: &ProbeOrder,
    ) -> Result<Grant, Fault> {
        let name = by.who.name.clone().filter(|_| by.who.credential.is_none());
        let name = name.filter(|name| self.config.probes.peers.contains(name));
        let name = name.ok_or_else(Fault::unavailable)?;
        if order.metric.declared().site != Site::Probes
            || !(1..=MOST_SECONDS).contains(&order.seconds)
        {
            let hint = "ping, connect or one_way, for 1 to 3600 seconds";
            return Err(Fault::invalid("metric", "this is not probed", hint));
        }
        let from = from
            .and_then(|from| from.parse().ok())
            .ok_or_else(Fault::unavailable)?;
        self.refuse_captured(from).await.map_err(|error| {
            let hint =
                "probe another interface of that machine, or exclude this one from its sensor";
            Fault::new(StatusCode::CONFLICT, error, hint)
        })?;
        let random = || RandomState::new().hash_one(0);
        let token = format!("{:016x}{:016x}", random(), random());
        if order.metric != Metric::OneWay {
            return Ok(Grant { token, port: 0 });
        }
        let failed = |error: std::io::Error| Fault::failed(format!("datagrams: {error}"));
        let at = self
            .config
            .listen
            .rsplit_once(':')
            .map_or("[::]", |(host, _)| host);
        let socket = UdpSocket::bind(format!("{at}:0")).await.map_err(failed)?;
        let port = socket.local_addr().map_err(failed)?.port();
        let came = Came::default();
        {
            let mut grants = self.grants.lock();
            if grants.len() >= MOST_GRANTS {
                return Err(Fault::busy("too many probes are answered"));
            }
            grants.insert(token.clone(), (name, Arc::clone(&came)));
        }
        let (inner, key) = (Arc::clone(self), token.clone());
        let time = Duration::from_secs(order.seconds.into()) + KEPT;
        tokio::spawn(async move {
            let _ = timeout(time, arrivals(&socket, &key, &came)).await;
            inner.grants.lock().remove(&key);
        });
        Ok(Grant { token, port })
    }

    /// Capturing is passive: what this machine's sensor captures gets no probes, those of others neither.
    async fn refuse_captured(&self, peer: SocketAddr) -> Result<(), String> {
        let socket = self.config.socket.clone();
        let captured = tokio::task::spawn_blocking(move || refuse_captured(&socket, peer));
        captured.await.map_err(|error| error.to_string())?
    }

    /// What came of a measurement that was agreed to.
    pub(crate) fn arrivals(&self, by: &Asker, token: &str) -> Result<Vec<Arrival>, Fault> {
        let grants = self.grants.lock();
        let found = grants
            .get(token)
            .filter(|(name, _)| by.who.name.as_ref() == Some(name));
        let (_, came) = found.ok_or_else(Fault::unavailable)?;
        let arrival = |(number, time): (&u64, &i64)| Arrival {
            number: *number,
            time: *time,
        };
        Ok(came.lock().iter().map(arrival).collect())
    }

    /// Probes a peer.
    pub(crate) async fn probe(
        &self,
        peer: &PeerElement,
        order: &Order,
        seconds: u32,
    ) -> Result<Outcome, String> {
        let probes = &self.config.probes;
        if !probes.peers.contains(&peer.name) {
            return Err("probes between this element and the peer are not agreed".to_owned());
        }
        let mut addresses = lookup_host(&peer.address)
            .await
            .map_err(|error| error.to_string())?;
        let target = addresses.next().ok_or("the peer has no address")?;
        self.refuse_captured(target).await?;
        let body = serde_json::to_vec(&ProbeOrder {
            metric: order.metric,
            seconds,
        });
        let body = body.map_err(|error| error.to_string())?;
        let path = "/v1/probes".to_owned();
        let grant: Grant = self
            .ask_peer(peer, Method::POST, path, Vec::new(), body)
            .await?;
        let count = (seconds as usize * probes.per_second as usize).min(MOST_PROBES);
        let clock = interval(Duration::from_secs(1) / probes.per_second);
        let began = now();
        let ip = target.ip();
        let trips = match order.metric {
            Metric::Ping => ping(ip, count, clock).await?,
            Metric::Connect => connect(target, count, clock).await,
            _ => {
                let sent = send(SocketAddr::new(ip, grant.port), &grant.token, count, clock);
                let sent = sent.await.map_err(|error| error.to_string())?;
                sleep(PATIENCE).await;
                let path = format!("/v1/probes/{}", grant.token);
                let came = self.ask_peer(peer, Method::GET, path, Vec::new(), Vec::new());
                let came: Vec<Arrival> = came.await?;
                let trip = |it: &Arrival| {
                    let sent = sent.get(usize::try_from(it.number).ok()?)?;
                    Some(it.time.checked_sub(*sent)? as f64 / 1e9)
                };
                came.iter().filter_map(trip).collect()
            }
        };
        let some = |value: f64| (!trips.is_empty()).then_some(value);
        let sum: f64 = trips.iter().sum();
        let row = row(json!({
            "source": order.source,
            "destination": order.destination,
            "sent": count,
            "answered": trips.len(),
            "least": some(trips.iter().copied().fold(f64::INFINITY, f64::min)),
            "mean": some(sum / trips.len() as f64),
            "most": some(trips.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        }));
        Ok(Outcome {
            began,
            ended: now(),
            rows: vec![row],
            notes: Vec::new(),
        })
    }
}

/// Echoes of ICMP, one after the other: seconds until each answer.
async fn ping(target: IpAddr, count: usize, mut clock: Interval) -> Result<Vec<f64>, String> {
    let echo = Echo::new(target);
    let echo = Arc::new(echo.map_err(|error| format!("this element may not send ICMP: {error}"))?);
    let mut trips = Vec::new();
    for number in 0..count {
        clock.tick().await;
        let (echo, begin) = (Arc::clone(&echo), Instant::now());
        let sequence = number as u16;
        let answered = tokio::task::spawn_blocking(move || {
            echo.ask(sequence).ok()?;
            // Others' answers, and late ones, are passed over.
            while let Some(left) = PATIENCE.checked_sub(begin.elapsed()) {
                if echo.answer(left).ok()? == Some(sequence) {
                    return Some(begin.elapsed().as_secs_f64());
                }
            }
            None
        });
        trips.extend(answered.await.map_err(|error| error.to_string())?);
    }
    Ok(trips)
}

/// Connections of TCP, one after the other: seconds until each is there.
async fn connect(target: SocketAddr, count: usize, mut clock: Interval) -> Vec<f64> {
    let mut trips = Vec::new();
    for _ in 0..count {
        clock.tick().await;
        let begin = Instant::now();
        if let Ok(Ok(_)) = timeout(PATIENCE, TcpStream::connect(target)).await {
            trips.push(begin.elapsed().as_secs_f64());
        }
    }
    trips
}

/// Sends datagrams. Returns when each was sent.
async fn send(
    target: SocketAddr,
    token: &str,
    count: usize,
    mut clock: Interval,
) -> std::io::Result<Vec<i64>> {
    let socket = UdpSocket::bind(unspecified(target)).await?;
    socket.connect(target).await?;
    let token = u128::from_str_radix(token, 16).unwrap_or_default();
    let mut sent = Vec::new();
    for number in 0..count as u64 {
        clock.tick().await;
        let time = nanos();
        let datagram = [
            &token.to_be_bytes()[..],
            &number.to_be_bytes(),
            &time.to_be_bytes(),
        ]
        .concat();
        // One that the network refuses is lost.
        let _ = socket.send(&datagram).await;
        sent.push(time);
    }
    Ok(sent)
}

/// Takes datagrams with a token, each once, until nobody asks any more. Nothing is sent back.
async fn arrivals(socket: &UdpSocket, token: &str, came: &Mutex<BTreeMap<u64, i64>>) {
    let token = u128::from_str_radix(token, 16)
        .unwrap_or_default()
        .to_be_bytes();
    let mut datagram = [0; DATAGRAM + 1];
    loop {
        let received = socket.recv(&mut datagram).await;
        let time = nanos();
        let Ok(DATAGRAM) = received else { continue };
        let number = datagram[16..]
            .first_chunk()
            .map_or(u64::MAX, |it| u64::from_be_bytes(*it));
        if datagram[..16] == token && number < MOST_PROBES as u64 {
            came.lock().entry(number).or_insert(time);
        }
    }
}

fn unspecified(target: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, 0)
}

/// Whether the way to an address is an interface that this machine's sensor captures.
fn refuse_captured(socket: &Path, target: SocketAddr) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    // Nothing is sent by this.
    let plain = Plain::bind(unspecified(target)).map_err(said)?;
    plain.connect(target).map_err(said)?;
    let local = plain.local_addr().map_err(said)?.ip();
    let mut all = interfaces::list().map_err(said)?.into_iter();
    let way = all.find(|it| it.addresses.iter().any(|(address, _)| *address == local));
    let way = way.ok_or("no route to the peer")?;
    if !Folder::anywhere().has(socket) {
        return Ok(());
    }
    let status = Client::connect(socket).and_then(|client| client.status());
    let status =
        status.map_err(|_| "this machine's sensor does not report which interfaces it captures")?;
    let captured = format!("interface {}", way.name);
    let is_captured = status
        .devices
        .iter()
        .any(|device| device.source == captured);
    match is_captured {
        true => Err("the route to the peer is through a captured interface".to_owned()),
        false => Ok(()),
    }
}
