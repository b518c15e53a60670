//! What comes out of the reassembly cases, and whether it is what was expected.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use flowgauge_runtime::{Chunk, Handlers, StreamHandle};

use super::cases::{Order, parse_expected};

/// The bytes of a direction, and the holes between them as `(offset, size)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) bytes: Vec<u8>,
    pub(crate) holes: Vec<(u64, u64)>,
}

impl Delivered {
    /// As it stands in a case.
    pub(crate) fn parse(expected: &str) -> Delivered {
        let (bytes, holes) = parse_expected(expected);
        Delivered { bytes, holes }
    }

    /// Without the holes behind the last byte.
    pub(crate) fn without_end(&self) -> Delivered {
        let mut delivered = self.clone();
        while let Some(&(offset, size)) = delivered.holes.last()
            && offset + size >= delivered.end()
        {
            delivered.holes.pop();
        }
        delivered
    }

    /// Takes bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes a hole.
    pub(crate) fn miss(&mut self, bytes: u64) {
        if bytes > 0 {
            self.holes.push((self.end(), bytes));
        }
    }

    /// Position behind the last byte or hole.
    pub(crate) fn end(&self) -> u64 {
        self.bytes.len() as u64 + self.holes.iter().map(|&(_, size)| size).sum::<u64>()
    }

    /// The bytes by their positions.
    fn by_position(&self) -> BTreeMap<u64, u8> {
        let (mut at, mut holes) = (0, self.holes.iter().peekable());
        let mut found = BTreeMap::new();
        for &byte in &self.bytes {
            while let Some((_, size)) = holes.next_if(|&&(offset, _)| offset == at) {
                at += size;
            }
            found.insert(at, byte);
            at += 1;
        }
        found
    }

    /// Whether it has everything that `least` has and nothing that `most` has not, each byte as one
    /// of them has it.
    fn is_between(&self, least: &Delivered, most: &Delivered) -> bool {
        let (bytes, least_bytes) = (self.by_position(), least.by_position());
        let most_bytes = most.by_position();
        let known = |at: &u64, byte: &u8| {
            most_bytes.contains_key(at)
                && (most_bytes.get(at) == Some(byte) || least_bytes.get(at) == Some(byte))
        };
        least_bytes.keys().all(|at| bytes.contains_key(at))
            && bytes.iter().all(|(at, byte)| known(at, byte))
            && self.end() == most.end()
    }
}

/// What must come out: with chunks of a size in mode fast, something between two extremes.
pub(crate) struct Bounds {
    least: Delivered,
    most: Delivered,
    /// Nothing comes from a hole on, however large it is said to be.
    ends_in_a_hole: bool,
}

impl Bounds {
    /// Of one expectation.
    pub(crate) fn exactly(expected: &str) -> Bounds {
        let (expected, ends_in_a_hole) = match expected.strip_suffix("[?]") {
            Some(before) => (before, true),
            None => (expected, false),
        };
        Bounds {
            least: Delivered::parse(expected),
            most: Delivered::parse(expected),
            ends_in_a_hole,
        }
    }

    /// Mode fast in chunks of `size`, with what is delivered at once and at the end.
    pub(crate) fn fast(size: u32, at_once: &str, at_the_end: &str) -> Bounds {
        let (least, most) = (Delivered::parse(at_once), Delivered::parse(at_the_end));
        let (least, most) = match size {
            0 | 1 => (least.clone(), least),
            size if most.end() < u64::from(size) => (most.clone(), most),
            _ => (least, most),
        };
        Bounds {
            least,
            most,
            ends_in_a_hole: false,
        }
    }

    /// The answer where there is only one.
    pub(crate) fn exact(&self) -> Option<&Delivered> {
        (self.least == self.most).then_some(&self.most)
    }

    /// The same without holes behind the last byte, for who is not told of them.
    pub(crate) fn without_end(&self) -> Bounds {
        Bounds {
            least: self.least.without_end(),
            most: self.most.without_end(),
            ends_in_a_hole: self.ends_in_a_hole,
        }
    }

    /// Whether the bytes are all that is said.
    pub(crate) fn ends_in_a_hole(&self) -> bool {
        self.ends_in_a_hole
    }

    /// Whether `delivered` is as expected.
    pub(crate) fn hold(&self, delivered: &Delivered) -> bool {
        if self.ends_in_a_hole {
            let end = self.most.bytes.len() as u64;
            return delivered.bytes == self.most.bytes
                && delivered.holes.iter().all(|&(offset, _)| offset == end);
        }
        if self.least == self.most {
            return *delivered == self.least;
        }
        delivered.is_between(&self.least, &self.most)
    }

    /// For messages.
    pub(crate) fn text(&self) -> String {
        if self.least == self.most {
            return shown(&self.least);
        }
        format!("{} to {}", shown(&self.least), shown(&self.most))
    }
}

/// As a case has it, shortened.
pub(crate) fn shown(delivered: &Delivered) -> String {
    let mut text = String::new();
    let mut holes = delivered.holes.iter().peekable();
    let mut at = 0;
    for &byte in delivered.bytes.iter().take(80) {
        while let Some((_, size)) = holes.next_if(|&&(offset, _)| offset <= at) {
            text.push_str(&format!("[{size}]"));
            at += size;
        }
        text.push(char::from(byte));
        at += 1;
    }
    if delivered.bytes.len() > 80 {
        text.push_str(&format!("... {} bytes", delivered.bytes.len()));
    }
    for (offset, size) in holes {
        text.push_str(&format!("[{size} at {offset}]"));
    }
    text
}

/// The number of a case's instance in an address, and whether it is the client's.
pub(crate) fn whose(address: IpAddr) -> (u16, bool) {
    let octets = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let all = address.octets();
            [all[12], all[13], all[14], all[15]]
        }
    };
    (u16::from_be_bytes([octets[1], octets[2]]), octets[3] == 1)
}

/// The mode's [`Order`] and, for mode fast, that of the other extreme.
pub(crate) fn orders(mode: &str) -> (Order, Order) {
    match mode {
        "wait" => (Order::Wait, Order::Wait),
        "strict" => (Order::Strict, Order::Strict),
        "fast" => (Order::FastAtOnce, Order::Fast),
        other => panic!("mode {other}"),
    }
}

/// By application, instance and whether the client sends. Of a port that is used again the last
/// connection counts.
pub(crate) type Results = BTreeMap<(u8, u16, bool), (u64, Delivered)>;

/// Collects what applications see, on one thread.
pub(crate) struct Collector {
    open: HashMap<(u8, u64), Open>,
    done: Results,
    all: Arc<Mutex<Results>>,
}

#[derive(Default)]
struct Open {
    delivered: Delivered,
    /// The same with a zero for every byte that is missing.
    image: Vec<u8>,
}

impl Collector {
    /// Adds to `all` in the end.
    pub(crate) fn new(all: &Arc<Mutex<Results>>) -> Collector {
        Collector {
            open: HashMap::new(),
            done: Results::new(),
            all: Arc::clone(all),
        }
    }
}

impl Handlers for Collector {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        let key = (stream.application().0, stream.uid());
        assert!(self.open.insert(key, Open::default()).is_none());
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        let key = (stream.application().0, stream.uid());
        let open = self.open.get_mut(&key).expect("it was created");
        let (repeated, bytes) = (chunk.info().repeated as usize, chunk.bytes());
        let size = stream.chunk_bytes() as usize;
        assert!(size == 0 || bytes.len() <= size, "{}", bytes.len());
        assert!(open.image.ends_with(&bytes[..repeated]));
        let end = open.image.len() as u64;
        let start = chunk.offset() + repeated as u64;
        assert_eq!(start, end + chunk.gap_before());
        open.miss(chunk.gap_before());
        let mut at = repeated;
        for hole in chunk.holes() {
            let (from, to) = (hole.start as usize, hole.end as usize);
            if to > at {
                open.take(&bytes[at..from.max(at)]);
                open.miss((to - from.max(at)) as u64);
                at = to;
            }
        }
        open.take(&bytes[at..]);
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        let application = stream.application().0;
        let mut open = self
            .open
            .remove(&(application, stream.uid()))
            .expect("it was created");
        open.miss(stream.missing_at_end());
        let identity = stream.identity();
        let (number, client) = whose(identity.source.0.to_ip(identity.version));
        let start = identity.start.0;
        let place = self.done.entry((application, number, client)).or_default();
        if place.0 <= start {
            *place = (start, open.delivered);
        }
    }

    fn finish(&mut self) {
        assert!(self.open.is_empty());
        let mut all = self.all.lock().expect("no thread failed");
        for (key, (start, delivered)) in core::mem::take(&mut self.done) {
            let place = all.entry(key).or_default();
            if place.0 <= start {
                *place = (start, delivered);
            }
        }
    }
}

impl Open {
    fn take(&mut self, bytes: &[u8]) {
        self.delivered.take(bytes);
        self.image.extend_from_slice(bytes);
    }

    fn miss(&mut self, bytes: u64) {
        self.delivered.miss(bytes);
        self.image.resize(self.image.len() + bytes as usize, 0);
    }
}
