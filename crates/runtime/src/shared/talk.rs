//! What is said on a connection to a service before events flow.

use std::io;
use std::time::{Duration, Instant};

use flowgauge_sys::local::{self, Connection};
use flowgauge_wire::LinkType;

use super::codec::Wire as _;
use super::error::Error;
use super::protocol::{MESSAGE_BYTES, Reply, Request};
use super::statistics::Status;

/// How long the service may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A conversation with a service before events flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Talk<'a> {
    pub(super) connection: &'a Connection,
    pub(super) interface: &'a str,
    pub(super) process: u32,
}

impl Talk<'_> {
    pub(super) fn send(&self, request: &Request) -> Result<(), Error> {
        self.connection
            .send_patiently(&request.encoded())
            .map_err(|error| match error.kind() {
                // It may have said why.
                io::ErrorKind::BrokenPipe => match self.receive() {
                    Ok((reply, _)) => self.unexpected(reply),
                    Err(error) => error,
                },
                io::ErrorKind::WouldBlock => self.silent(),
                _ => Error::system("talk to the shared capture")(error),
            })
    }

    pub(super) fn receive(&self) -> Result<(Reply, Vec<std::os::fd::OwnedFd>), Error> {
        let failed = "listen to the shared capture";
        let started = Instant::now();
        let mut message = vec![0; MESSAGE_BYTES];
        loop {
            let left = local::remaining(started, Some(PATIENCE));
            let heard = self.connection.wait(left).map_err(Error::system(failed))?;
            if !heard && started.elapsed() >= PATIENCE {
                return Err(self.silent());
            }
            let (len, files) = match self.connection.receive_files(&mut message) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => return Err(self.died()),
            };
            return match Reply::decoded(&message[..len]) {
                Some(Reply::Wake) => continue,
                Some(reply) => Ok((reply, files)),
                None => Err(Error::Protocol {
                    what: "a message of no kind",
                }),
            };
        }
    }

    pub(super) fn unexpected(&self, reply: Reply) -> Error {
        match reply {
            Reply::Refused(reason) => Error::Refused {
                interface: self.interface.to_owned(),
                reason,
            },
            // It was about to end: as good as gone.
            Reply::Ended(_) => self.died(),
            _ => Error::Protocol {
                what: "an answer to another question",
            },
        }
    }

    fn died(&self) -> Error {
        Error::Died {
            interface: self.interface.to_owned(),
            process: self.process,
        }
    }

    fn silent(&self) -> Error {
        Error::Silent {
            interface: self.interface.to_owned(),
        }
    }

    /// Asks how things stand.
    pub(super) fn status(&self) -> Result<Status, Error> {
        self.send(&Request::Status)?;
        match self.receive()?.0 {
            Reply::Status(status) => Ok(*status),
            reply => Err(self.unexpected(reply)),
        }
    }

    /// Link types that filters are compiled for, from the first message of a service.
    pub(super) fn welcome(&mut self) -> Result<Vec<LinkType>, Error> {
        match self.receive()?.0 {
            Reply::Welcome { process, links } => {
                self.process = process;
                Ok(links)
            }
            reply => Err(self.unexpected(reply)),
        }
    }
}
