//! The measurement element of DiMAPI's grid monitoring (thesis, 3.2): a service that knows which sensors belong to which domain,
//! and measures between domains for its users.
//!
//! Users open *sessions* over HTTP: source and destination domain, service (capture filters), metric and period. A measurement is
//! flows on the sensors of both domains ([`points`]), or the request to the element of another domain. Equal sessions share it; results are
//! stored in a database, published by plug-ins, and answered.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod api;
mod client;
pub mod config;
mod element;
mod fault;
mod measure;
mod modules;
mod peers;
pub mod points;
pub mod probes;
mod publish;
mod rights;
mod serve;
mod session;
mod store;
mod turns;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_link::{Identity, KeyFolder};
use flowgauge_sensor::config::ConfigError;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub use config::Config;
pub use rights::metric;

/// Threads that serve connections; measurements have threads of their own.
const THREADS: usize = 4;

/// An element that runs, until it is dropped.
pub struct Element {
    local: SocketAddr,
    inner: Arc<element::Inner>,
    runtime: Option<Runtime>,
}

/// Why an element does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Keys are not there, or cannot be used.
    #[error(transparent)]
    Keys(#[from] flowgauge_link::Error),
    /// The database cannot be used.
    #[error("{0}")]
    Store(String),
    /// It cannot listen, or have threads.
    #[error("{place}: {error}")]
    System {
        /// Where.
        place: String,
        /// Why.
        error: std::io::Error,
    },
}

impl StartError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            StartError::Config(error) => return error.hint().map(str::to_owned),
            StartError::Keys(error) => return error.hint(),
            StartError::Store(_) => {
                "set database to a file used by this element only, in a folder writable for its user; created if missing"
            }
            StartError::System { .. } => "set listen to an address of this machine and a free port",
        };
        Some(hint.to_owned())
    }
}

/// The folder of keys, and who it is there. Without TLS it may be nobody; sensors of other machines, and targets of push, want
/// to know.
fn identity(config: &Config) -> Result<Option<Identity>, flowgauge_link::Error> {
    let keys = (config.keys.clone()).map_or_else(KeyFolder::usual, KeyFolder::new);
    let identity = keys.identity(config.identity.as_deref());
    match config.plain {
        true => Ok(identity.ok()),
        false => identity.map(Some),
    }
}

impl Element {
    /// Whether one could start with a configuration file, as far as that can be seen beside one that runs: its keys are there, and
    /// its database can be one.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn check(config: &Path) -> Result<Config, StartError> {
        let config = Config::read(config)?;
        identity(&config)?;
        store::check(&config.database).map_err(StartError::Store)?;
        Ok(config)
    }

    /// Starts one, by a configuration file.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: &Path) -> Result<Element, StartError> {
        let config = Config::read(config)?;
        let identity = identity(&config)?;
        let system = |error| StartError::System {
            place: config.listen.clone(),
            error,
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            // A thread waits for its sensors: of each measurement, and some that end.
            .max_blocking_threads(2 * config.most_measurements as usize + 8)
            .enable_all()
            .thread_name("element")
            .build();
        let runtime = runtime.map_err(system)?;
        let listener = runtime
            .block_on(TcpListener::bind(&config.listen))
            .map_err(system)?;
        let local = listener.local_addr().map_err(system)?;
        let secure = identity.clone().filter(|_| !config.plain);
        let inner = element::Inner::new(config, identity).map_err(StartError::Store)?;
        let inner = Arc::new(inner);
        let _entered = runtime.enter();
        inner
            .resume()
            .map_err(|fault| StartError::Store(element::said(fault)))?;
        runtime.spawn(serve::serve(
            listener,
            secure,
            api::router(Arc::clone(&inner)),
        ));
        Ok(Element {
            local,
            inner,
            runtime: Some(runtime),
        })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Element {
    fn drop(&mut self) {
        // Sessions that run are kept in the database: the next element goes on with them.
        self.inner.is_ending.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        }
    }
}
