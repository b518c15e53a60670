//! The endpoints in records about conversations of a client and a server.

use flowgauge_wire::Address;

/// A client and a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parties {
    /// Address and port of the client.
    pub client: (Address, u16),
    /// Address and port of the server.
    pub server: (Address, u16),
    /// 4 or 6.
    pub ip_version: u8,
}

impl Parties {
    /// The same with the roles exchanged.
    #[must_use]
    pub const fn exchanged(self) -> Parties {
        Parties {
            client: self.server,
            server: self.client,
            ip_version: self.ip_version,
        }
    }

    /// The client's address, with its version.
    pub(crate) const fn client_ip(self) -> (Address, u8) {
        (self.client.0, self.ip_version)
    }

    /// The server's.
    pub(crate) const fn server_ip(self) -> (Address, u8) {
        (self.server.0, self.ip_version)
    }
}
