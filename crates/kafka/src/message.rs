//! What is in a message, and to which partition it goes.

/// What a message begins with: the name of the format, and its version.
const MAGIC: [u8; 5] = *b"FGKF\x01";
const HEADER: usize = MAGIC.len() + 1 + 16 + 8 + 4;
const ITEMS: u8 = 0;
const END: u8 = 1;

/// A frame in the spool: for a partition, its items with numbers there from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Which partition.
    pub partition: u32,
    /// The number of the first item.
    pub first: u64,
    /// How many items.
    pub count: u32,
    /// The items.
    pub items: &'a [u8],
}

impl<'a> Frame<'a> {
    /// As it is spooled.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.items.len());
        bytes.extend_from_slice(&self.partition.to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(self.items);
        bytes
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (partition, rest) = bytes.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (count, items) = rest.split_first_chunk()?;
        Some(Frame {
            partition: u32::from_le_bytes(*partition),
            first: u64::from_le_bytes(*first),
            count: u32::from_le_bytes(*count),
            items,
        })
    }
}

/// How items stand in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A frame in each.
    Frames,
    /// One item in each, a text for other programs; in a frame each has its length (u32) before it.
    Texts,
}

/// The texts of a frame.
pub(crate) fn texts(mut items: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let (len, rest) = items.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        items = rest;
        Some(text)
    })
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) session: [u8; 16],
    /// The number of the first item in the partition; of an end, of the one that would come next.
    pub(crate) first: u64,
    /// How many items; `None`: the session has ended.
    pub(crate) count: Option<u32>,
    pub(crate) items: &'a [u8],
}

impl<'a> Message<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.items.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.push(if self.count.is_some() { ITEMS } else { END });
        bytes.extend_from_slice(&self.session);
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.count.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(self.items);
        bytes
    }

    /// `None`: another program wrote it, or a later version.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (kind, rest) = bytes.strip_prefix(&MAGIC)?.split_first()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (count, items) = rest.split_first_chunk()?;
        let (first, count) = (u64::from_le_bytes(*first), u32::from_le_bytes(*count));
        first.checked_add(u64::from(count))?;
        Some(Message {
            session: *session,
            first,
            count: match *kind {
                ITEMS if count > 0 => Some(count),
                END => None,
                _ => return None,
            },
            items,
        })
    }
}

/// The partition of a key among so many: as Kafka's own clients for Java have it, so that topics that others write with the
/// same keys have them in partitions of the same numbers.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// MurmurHash 2 with Kafka's seed (`org.apache.kafka.common.utils.Utils.murmur2`).
fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ (word >> 24)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hashed_as_kafka_does() {
        // The values of Kafka's own test, UtilsTest.testMurmur2.
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
        assert_eq!(partition_of(b"abc", 0), 0);
    }

    #[test]
    fn messages_come_as_they_went() {
        let of = |count, items| Message {
            session: [7; 16],
            first: 1 << 40,
            count,
            items,
        };
        for message in [of(Some(3), &b"abc"[..]), of(None, &[])] {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            for cut in 0..HEADER {
                assert_eq!(Message::decode(&bytes[..cut]), None);
            }
        }
        let mut bytes = of(Some(3), b"abc").encode();
        bytes[HEADER - 12..HEADER - 4].fill(0xff);
        assert_eq!(Message::decode(&bytes), None, "numbers have an end");
        let frame = Frame {
            partition: 3,
            first: 9,
            count: 2,
            items: b"xy",
        };
        assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        assert_eq!(Frame::decode(&frame.encode()[..15]), None);
    }
}
