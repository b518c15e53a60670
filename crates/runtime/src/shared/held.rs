//! Events of a shared capture on their way to other threads of the client.

use core::ops::Range;
use std::time::Duration;

use flowgauge_stream::engine::{ApplicationId, ChunkInfo, StreamSnapshot};
use flowgauge_sys::shared::HeldBytes;

use super::client::{Client, Heard};
use super::error::Error;
use super::layout::{Body, ChunkBody, Content, Kind, SharedPackets};

/// A chunk in the pool, which stays what it is, and takes its place in the ring, until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldChunk {
    bytes: HeldBytes,
    body: ChunkBody,
}

/// What [`Client::take_event`] found.
pub(super) enum Taken {
    Created(StreamSnapshot),
    Data(StreamSnapshot, HeldChunk),
    Terminated(StreamSnapshot),
    Idle,
    End(String),
}

impl Client {
    /// As [`Client::next_event`], for another thread: what this process keeps of the stream is not in it, and
    /// its application is the client's only one.
    pub(super) fn take_event(&mut self, limit: Option<Duration>) -> Result<Taken, Error> {
        if self.aside.is_none() {
            match self.find_event(limit)? {
                Heard::Event => {}
                Heard::Idle => return Ok(Taken::Idle),
                Heard::Ended(stream) => return Ok(Taken::Terminated(*stream)),
                Heard::End(reason) => return Ok(Taken::End(reason)),
            }
            let damaged = Error::system("read the events of the shared capture");
            let Some((body, bytes)) = self.events.take_event().map_err(damaged)? else {
                return Ok(Taken::Idle);
            };
            let body = Body::decode(&body, ApplicationId(0));
            let body = body.ok_or(Error::Protocol {
                what: "an event of no kind",
            })?;
            self.aside = Some((body, Some(bytes)));
        }
        if let Some((kind, stream)) = self.made_up_before() {
            return Ok(match kind {
                Kind::Created => Taken::Created(stream),
                _ => Taken::Terminated(stream),
            });
        }
        let Some((body, bytes)) = self.aside.take() else {
            return Ok(Taken::Idle);
        };
        self.lives.see(body.kind, &body.stream);
        Ok(match (body.kind, bytes) {
            (Kind::Data, Some(bytes)) => {
                let content = Content::of(&body.chunk, bytes.bytes());
                content.ok_or(Error::Protocol {
                    what: "a chunk outside of its area",
                })?;
                let chunk = HeldChunk {
                    bytes,
                    body: body.chunk,
                };
                Taken::Data(body.stream, chunk)
            }
            (Kind::Terminated, _) => Taken::Terminated(body.stream),
            _ => Taken::Created(body.stream),
        })
    }
}

impl HeldChunk {
    pub(crate) fn bytes(&self) -> &[u8] {
        let bytes = self.bytes.bytes();
        bytes.get(..self.body.len as usize).unwrap_or_default()
    }

    pub(crate) fn info(&self) -> ChunkInfo {
        self.body.info
    }

    fn content(&self) -> Option<Content<'_>> {
        Content::of(&self.body, self.bytes.bytes())
    }

    pub(crate) fn packets(&self) -> SharedPackets<'_> {
        self.content()
            .map(|content| content.packets())
            .unwrap_or_default()
    }

    pub(crate) fn holes(&self) -> impl Iterator<Item = Range<u32>> {
        self.content()
            .into_iter()
            .flat_map(|content| content.holes())
    }
}
