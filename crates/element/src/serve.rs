//! Connections: TLS with the certificates of links, and what strangers can make of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use flowgauge_link::{Identity, Peer};
use flowgauge_sys::notice::tell;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at once, in all and from one address.
const MOST: usize = 512;
const MOST_OF_ONE: usize = 128;
/// For TLS, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection lives, whatever it does.
const LIFE: Duration = Duration::from_secs(600);
/// Bytes of the head of a request.
const MOST_HEAD: usize = 32 << 10;

/// Connections by address.
#[derive(Default)]
struct Counts {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// A connection that counts as long as this lives.
struct Counted(Arc<Mutex<Counts>>, IpAddr);

impl Counted {
    /// Counts one; nothing, where there are too many.
    fn new(counts: &Arc<Mutex<Counts>>, from: IpAddr) -> Option<Counted> {
        let mut now = counts.lock();
        let of_one = now.of.get(&from).copied().unwrap_or(0);
        if now.all >= MOST || of_one >= MOST_OF_ONE {
            return None;
        }
        now.all += 1;
        now.of.insert(from, of_one + 1);
        Some(Counted(Arc::clone(counts), from))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut now = self.0.lock();
        now.all -= 1;
        if let Some(of_one) = now.of.get_mut(&self.1) {
            *of_one -= 1;
            if *of_one == 0 {
                now.of.remove(&self.1);
            }
        }
    }
}

/// Takes connections, for ever. Those that are too many are closed at once.
pub(crate) async fn serve(listener: TcpListener, identity: Option<Identity>, router: Router) {
    let counts = Arc::<Mutex<Counts>>::default();
    loop {
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files: the next attempt fails, too, until some are closed.
                tell(format_args!("cannot take a connection: {error}"));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(counted) = Counted::new(&counts, from.ip()) else {
            continue;
        };
        let (identity, router) = (identity.clone(), router.clone());
        tokio::spawn(async move {
            let _counted = counted;
            let _ = timeout(LIFE, connection(tcp, from.to_string(), identity, router)).await;
        });
    }
}

async fn connection(tcp: TcpStream, from: String, identity: Option<Identity>, router: Router) {
    let _ = tcp.set_nodelay(true);
    let Some(identity) = identity else {
        return http(tcp, None, router).await;
    };
    let acceptor = TlsAcceptor::from(identity.https_server());
    // Strangers are many: what they do wrong is told to them alone.
    let Ok(Ok(secured)) = timeout(PATIENCE, acceptor.accept(tcp)).await else {
        return;
    };
    let certificates = secured.get_ref().1.peer_certificates();
    let peer = certificates.and_then(|all| Peer::of(all.first()?, from));
    http(secured, peer, router).await;
}

async fn http<S>(stream: S, peer: Option<Peer>, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = router.layer(Extension(Arc::new(peer)));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let _ = served.await;
}
