//! Connections: TLS with the certificates of links, and what strangers can make of them.
//!
//! A stranger has shown neither a certificate nor a credential that counts (without TLS: has no rights).

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use flowgauge_link::{Identity, Peer};
use flowgauge_sys::notice::tell;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at once, in all and from one address.
const MOST: usize = 512;
const MOST_OF_ONE: usize = 128;
/// Those of strangers, in all and from one address.
const MOST_STRANGERS: usize = MOST / 4;
const MOST_STRANGERS_OF_ONE: usize = MOST_STRANGERS / 4;
/// For TLS, for the head of a request, and for the other end to take any of what is written.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection lives, whatever it does.
const LIFE: Duration = Duration::from_secs(600);
const LIFE_OF_STRANGER: Duration = Duration::from_secs(30);
/// Bytes of the head of a request.
const MOST_HEAD: usize = 32 << 10;

/// Connections: all, and those of strangers.
#[derive(Clone, Copy, Default)]
struct Count {
    all: usize,
    strangers: usize,
}

/// Connections in all, and by address.
#[derive(Default)]
struct Counts {
    sum: Count,
    of: HashMap<IpAddr, Count>,
}

/// A connection that counts as long as this lives; at first as one of a stranger.
pub(crate) struct Counted {
    counts: Arc<Mutex<Counts>>,
    from: IpAddr,
    is_stranger: Mutex<bool>,
}

impl Counted {
    /// Counts one; nothing, where there are too many.
    fn new(counts: &Arc<Mutex<Counts>>, from: IpAddr) -> Option<Counted> {
        let mut now = counts.lock();
        let of_one = now.of.get(&from).copied().unwrap_or_default();
        let is_full = now.sum.all >= MOST || now.sum.strangers >= MOST_STRANGERS;
        let is_full_of_one = of_one.all >= MOST_OF_ONE || of_one.strangers >= MOST_STRANGERS_OF_ONE;
        if is_full || is_full_of_one {
            return None;
        }
        for count in now.both(from) {
            count.all += 1;
            count.strangers += 1;
        }
        Some(Counted {
            counts: Arc::clone(counts),
            from,
            is_stranger: Mutex::new(true),
        })
    }

    /// It is no stranger's any more.
    pub(crate) fn admit(&self) {
        if std::mem::take(&mut *self.is_stranger.lock()) {
            for count in self.counts.lock().both(self.from) {
                count.strangers -= 1;
            }
        }
    }
}

impl Counts {
    fn both(&mut self, from: IpAddr) -> [&mut Count; 2] {
        [&mut self.sum, self.of.entry(from).or_default()]
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.admit();
        let mut now = self.counts.lock();
        for count in now.both(self.from) {
            count.all -= 1;
        }
        now.of.retain(|_, of_one| of_one.all > 0);
    }
}

/// A stream that ends with an error where the other end takes nothing of what is written for some time.
struct Taken<S> {
    stream: S,
    until: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Taken<S> {
    /// Holds what became of a write against the time.
    fn held<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        ready!(until.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.held(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
                tell(format_args!("cannot accept a connection: {error}"));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(counted) = Counted::new(&counts, from.ip()) else {
            continue;
        };
        let (identity, router) = (identity.clone(), router.clone());
        tokio::spawn(async move {
            let counted = Arc::new(counted);
            let served = connection(tcp, from.to_string(), identity, router, &counted);
            let mut served = pin!(served);
            let is_over = timeout(LIFE_OF_STRANGER, &mut served).await.is_ok();
            if !is_over && !*counted.is_stranger.lock() {
                let _ = timeout(LIFE - LIFE_OF_STRANGER, served).await;
            }
        });
    }
}

async fn connection(
    tcp: TcpStream,
    from: String,
    identity: Option<Identity>,
    router: Router,
    counted: &Arc<Counted>,
) {
    let _ = tcp.set_nodelay(true);
    let router = router.layer(Extension(Arc::clone(counted)));
    let taken = Taken {
        stream: tcp,
        until: None,
    };
    let Some(identity) = identity else {
        return http(taken, None, router).await;
    };
    let acceptor = TlsAcceptor::from(identity.https_server());
    // Strangers are many: what they do wrong is told to them alone.
    let Ok(Ok(secured)) = timeout(PATIENCE, acceptor.accept(taken)).await else {
        return;
    };
    let certificates = secured.get_ref().1.peer_certificates();
    let peer = certificates.and_then(|all| Peer::of(all.first()?, from));
    if peer.is_some() {
        counted.admit();
    }
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream as Plain};
    use std::thread;
    use std::time::Instant;

    use axum::routing::get;

    use super::*;

    #[test]
    fn strangers_have_a_quarter() {
        let counts = Arc::<Mutex<Counts>>::default();
        let new = |from: u32| Counted::new(&counts, IpAddr::V4(from.into()));
        let all = |from| std::iter::from_fn(move || new(from));
        let strangers: Vec<Counted> = (0..6).flat_map(all).collect();
        assert_eq!(strangers.len(), 128);
        assert_eq!(all(0).count() + all(7).count(), 0);
        // One who is known makes room for others, once, up to what one address can have.
        let mut known = Vec::new();
        drop(strangers);
        while let Some(counted) = new(9) {
            counted.admit();
            counted.admit();
            known.push(counted);
        }
        assert_eq!(known.len(), 128);
        assert_eq!((0..6).flat_map(all).collect::<Vec<_>>().len(), 128);
        drop(known);
        let now = counts.lock();
        assert_eq!((now.sum.all, now.sum.strangers, now.of.len()), (0, 0, 0));
    }

    /// Serves a router where who asks for /in is known, and /big is long.
    fn served() -> SocketAddr {
        let into = get(|Extension(counted): Extension<Arc<Counted>>| async move {
            counted.admit();
            "in"
        });
        let router = Router::new()
            .route("/in", into)
            .route("/big", get(|| async { "x".repeat(1 << 20) }));
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                serve(listener, None, router).await;
            });
        });
        receiver.recv().unwrap()
    }

    fn ask(tcp: &mut Plain, path: &str) -> io::Result<usize> {
        tcp.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())?;
        tcp.read(&mut [0; 4096])
    }

    fn is_served(answer: &io::Result<usize>) -> bool {
        answer.as_ref().is_ok_and(|bytes| *bytes > 0)
    }

    #[test]
    fn strangers_are_cut_off_and_others_are_not() {
        let address = served();
        let (mut stranger, mut known) = (
            Plain::connect(address).unwrap(),
            Plain::connect(address).unwrap(),
        );
        assert!(is_served(&ask(&mut known, "/in")));
        let until = Instant::now() + LIFE / 2;
        while is_served(&ask(&mut stranger, "/nothing")) {
            assert!(Instant::now() < until, "a stranger stays");
            assert!(is_served(&ask(&mut known, "/nothing")));
            thread::sleep(Duration::from_millis(200));
        }
        assert!(is_served(&ask(&mut known, "/nothing")));
    }

    #[test]
    fn who_never_reads_is_cut_off() {
        let address = served();
        let mut tcp = Plain::connect(address).unwrap();
        assert!(is_served(&ask(&mut tcp, "/in")));
        tcp.set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let (until, request) = (
            Instant::now() + LIFE / 2,
            b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n",
        );
        // Full, until the connection is reset.
        while !tcp
            .write(request)
            .is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
        {
            assert!(Instant::now() < until, "it is held");
        }
    }
}
