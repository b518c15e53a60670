//! The packets that a flow gives to the program.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use flowgauge_mapi::Error;
use flowgauge_sensor_client::{News, layout};

use crate::abi::RawPacket;
use crate::error::{SOCKET, of_client};

/// Bytes of packets that may wait in this process for a `TO_BUFFER` while another one of the flow is read.
const MOST_HELD: usize = 64 << 20;

/// The packets of a flow, for each of its `TO_BUFFER`.
#[derive(Debug)]
pub(crate) struct Packets {
    flow: flowgauge_sensor_client::Flow,
    /// What came for one while another was read, by place of the component.
    held: BTreeMap<usize, VecDeque<Box<[u8]>>>,
    held_bytes: usize,
    /// The one of those that the program has, as `struct mapipkt` is aligned.
    current: Vec<u64>,
}

impl Packets {
    pub(crate) fn new(flow: flowgauge_sensor_client::Flow) -> Packets {
        Packets {
            flow,
            held: BTreeMap::new(),
            held_bytes: 0,
            current: Vec::new(),
        }
    }

    /// The next packet of a component.
    pub(crate) fn next(
        &mut self,
        place: usize,
        limit: Duration,
        is_live: bool,
    ) -> Result<Option<*mut RawPacket>, Error> {
        if let Some(record) = self.held.get_mut(&place).and_then(VecDeque::pop_front) {
            self.held_bytes -= record.len();
            self.current.clear();
            self.current.extend(record.chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            }));
            return Ok(Some(self.current.as_mut_ptr().cast()));
        }
        if self.time_of_next(place, limit, is_live)?.is_none() {
            return Ok(None);
        }
        let next = self.flow.next(Duration::ZERO);
        let next = next.map_err(|error| of_client(&error, SOCKET))?;
        Ok(next.map(|packet| packet.record.as_ptr().cast::<RawPacket>().cast_mut()))
    }

    /// When the next packet of a component was captured, in seconds since 1970 as a fixed point of 32.32 bits.
    pub(crate) fn time_of_next(
        &mut self,
        place: usize,
        limit: Duration,
        is_live: bool,
    ) -> Result<Option<u64>, Error> {
        if let Some(record) = self.held.get(&place).and_then(VecDeque::front) {
            return Ok(Some(layout::time_of(record)));
        }
        loop {
            if self.held_bytes > MOST_HELD && !is_live {
                let what = "the packets of another TO_BUFFER of the flow wait: read them in turn";
                return Err(Error::new(Error::ARGUMENTS, what));
            }
            let next = self.flow.peek(limit);
            match next.map_err(|error| of_client(&error, SOCKET))? {
                None => return Ok(None),
                Some((component, time)) if component == place => return Ok(Some(time)),
                Some(_) => {}
            }
            let other = self.flow.next(Duration::ZERO);
            // Of an interface what finds no room is lost.
            if let Some(packet) = other.map_err(|error| of_client(&error, SOCKET))?
                && self.held_bytes <= MOST_HELD
            {
                self.held_bytes += packet.record.len();
                let held = self.held.entry(packet.component).or_default();
                held.push_back(packet.record.into());
            }
        }
    }

    /// Has somebody woken who waits for packets of several flows.
    pub(crate) fn tell_to(&self, news: &Arc<News>) {
        self.flow.tell_to(news);
    }

    /// How a sensor elsewhere sends: numbers every so often by themselves (zero: when they are asked for), and so many bytes of
    /// packets before more are asked for.
    pub(crate) fn transfer(&self, push: Duration, prefetch: u64) -> Result<(), Error> {
        self.flow.set_prefetch(prefetch);
        let pushed = self.flow.push(push);
        pushed.map_err(|error| of_client(&error, SOCKET))
    }
}
