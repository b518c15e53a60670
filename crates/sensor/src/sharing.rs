//! Programs with libscap on the interfaces of a sensor: a shared capture takes the packets of the device, too.

use std::sync::Arc;
use std::time::Duration;

use flowgauge_capture::Interface;
use flowgauge_runtime::shared::{self, Admission, Error, Service, ServiceConfig};
use flowgauge_sys::local::Listener;

use crate::people::People;

/// Where programs come to for the streams of a device, and what they get.
#[derive(Clone)]
pub(crate) struct Sharing {
    pub(crate) listener: Arc<Listener>,
    admission: Admission,
    /// Bytes of chunks that wait for all of them.
    memory: u64,
    /// How long the device stays when the last one has gone; without, as long as it is wanted.
    pub(crate) grace: Option<Duration>,
}

impl Sharing {
    pub(crate) fn new(
        listener: Arc<Listener>,
        device: &str,
        people: Arc<People>,
        memory: u64,
        grace: Option<Duration>,
    ) -> Sharing {
        let device = device.to_owned();
        let admission: Admission = Arc::new(move |connection, peer| {
            let groups = connection.peer_groups().unwrap_or_default();
            let rights = people.rights(peer, &groups);
            let may = rights.may_share(&device);
            may.map_err(|why| format!("user {} may not use it: {why}", peer.user))
        });
        Sharing {
            listener,
            admission,
            memory,
            grace,
        }
    }

    /// Who looks after the programs, while these interfaces are captured.
    pub(crate) fn service(&self, interfaces: &[Interface]) -> Result<Service, Error> {
        let config = ServiceConfig {
            grace: self.grace,
            pool_bytes: self.memory,
            ..ServiceConfig::new(Arc::clone(&self.admission))
        };
        Service::new(Arc::clone(&self.listener), config, interfaces)
    }

    /// Takes the name that programs look for; none where another process has it.
    pub(crate) fn listen(interface: &str) -> Option<Arc<Listener>> {
        shared::listen(interface).ok().map(Arc::new)
    }
}
