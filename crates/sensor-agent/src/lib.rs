//! Brings a sensor to users of other machines: listens, and asks the sensor of this machine what they ask, as its local users do.
//! It has no engine and needs no privileges; when it ends, the sensor goes on.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod flow;
mod packing;
mod session;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowgauge_link::{Error, Identity, ListenerOptions, MessageSender, Responder};
use flowgauge_sensor_client::remote::message::SERVICE;
use parking_lot::Mutex;

/// Connections of a user.
const MOST_OF_A_USER: usize = 32;
/// The longest request, with what is around it.
const MOST_REQUEST: usize = 64 << 10;

/// An agent that listens; it and its connections end with this.
pub struct Agent {
    responder: Responder,
    open: Arc<Open>,
}

/// Connections that are open, by number.
#[derive(Default)]
struct Open {
    last: AtomicU64,
    senders: Mutex<BTreeMap<u64, MessageSender>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        for sender in self.open.senders.lock().values() {
            sender.close();
        }
    }
}

impl Agent {
    /// Begins to listen at `address` for users with a certificate of the authority, or only those in `allowed`. The sensor at
    /// `socket` may come and go.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub fn start(
        identity: &Identity,
        address: &str,
        allowed: Vec<String>,
        socket: PathBuf,
    ) -> Result<Agent, Error> {
        let options = ListenerOptions {
            allowed,
            max_frame: MOST_REQUEST,
            most_of_a_name: MOST_OF_A_USER,
            silence: Duration::from_secs(30),
            ..ListenerOptions::new(address)
        };
        let open = Arc::new(Open::default());
        let serving = Arc::clone(&open);
        let responder = Responder::bind(identity, SERVICE, options, move |conversation| {
            let number = serving.last.fetch_add(1, Ordering::Relaxed);
            serving.senders.lock().insert(number, conversation.sender());
            session::serve(conversation, &socket);
            serving.senders.lock().remove(&number);
        });
        Ok(Agent {
            responder: responder?,
            open,
        })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.responder.local_address()
    }
}
