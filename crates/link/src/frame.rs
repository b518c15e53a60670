//! What is said on a connection, as bytes. `docs/links.md` has the same as a table.
//!
//! All numbers are little-endian. Each message begins with its length, which does not count itself.

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Refusal};
use crate::secure::{Reader, Writer};

const MAGIC: [u8; 4] = *b"FGLK";
/// The version spoken here.
pub(crate) const VERSION: u16 = 1;
/// The longest opening or answer.
const MAX_OPENING: usize = 1024;
/// The longest name of a service, and reason of a refusal.
const MAX_TEXT: usize = 255;

/// What the end that connected says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// The versions it speaks, from and to.
    pub(crate) versions: (u16, u16),
    /// What it wants.
    pub(crate) service: String,
    /// Of a sender: its session.
    pub(crate) session: [u8; 16],
    /// Of a sender: all items before this one were acknowledged.
    pub(crate) acknowledged: u64,
    /// Of a sender: an earlier process left the session, and another one of this process is there.
    pub(crate) is_left: bool,
}

/// What the listening end says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The version that is spoken from here on.
    pub(crate) version: u16,
    /// Why not, with more words.
    pub(crate) refusal: Option<(Refusal, String)>,
    /// Which listener this is; another one after each start.
    pub(crate) listener: [u8; 16],
    /// To a sender: the item that is expected next, where the session is known.
    pub(crate) expected: Option<u64>,
    /// The longest frame that is read.
    pub(crate) max_frame: u32,
}

impl Opening {
    pub(crate) fn write(&self, writer: &Writer) -> Result<(), Error> {
        writer.write(&[&sized(&self.encode())])
    }

    pub(crate) fn read(reader: &mut Reader, deadline: Instant) -> Result<Opening, Error> {
        let bytes = read_sized(reader, MAX_OPENING, deadline)?;
        Opening::decode(&bytes).ok_or_else(|| nonsense(reader, "an invalid opening"))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.versions.0.to_le_bytes());
        bytes.extend_from_slice(&self.versions.1.to_le_bytes());
        text(&mut bytes, &self.service);
        bytes.extend_from_slice(&self.session);
        bytes.extend_from_slice(&self.acknowledged.to_le_bytes());
        bytes.push(u8::from(self.is_left));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Opening> {
        let mut bytes = Bytes(bytes);
        if bytes.array()? != MAGIC {
            return None;
        }
        // Later versions may say more.
        Some(Opening {
            versions: (bytes.u16()?, bytes.u16()?),
            service: bytes.text()?,
            session: bytes.array()?,
            acknowledged: bytes.u64()?,
            // Who says nothing of it has none.
            is_left: bytes.u8().is_some_and(|left| left & 1 != 0),
        })
    }
}

impl Answer {
    pub(crate) fn write(&self, writer: &Writer) -> Result<(), Error> {
        writer.write(&[&sized(&self.encode())])
    }

    pub(crate) fn read(reader: &mut Reader, deadline: Instant) -> Result<Answer, Error> {
        let bytes = read_sized(reader, MAX_OPENING, deadline)?;
        Answer::decode(&bytes).ok_or_else(|| nonsense(reader, "an invalid answer"))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.version.to_le_bytes());
        let (code, words) = match &self.refusal {
            Some((reason, words)) => (*reason as u8, words.as_str()),
            None => (0, ""),
        };
        bytes.push(code);
        text(&mut bytes, words);
        bytes.extend_from_slice(&self.listener);
        bytes.push(u8::from(self.expected.is_some()));
        bytes.extend_from_slice(&self.expected.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&self.max_frame.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut bytes = Bytes(bytes);
        if bytes.array()? != MAGIC {
            return None;
        }
        let version = bytes.u16()?;
        let code = bytes.u8()?;
        let words = bytes.text()?;
        let listener = bytes.array()?;
        let is_known = bytes.u8()? != 0;
        let expected = bytes.u64()?;
        Some(Answer {
            version,
            refusal: (code != 0).then(|| (Refusal::of(code), words)),
            listener,
            expected: is_known.then_some(expected),
            max_frame: bytes.u32()?,
        })
    }
}

/// The number of frames that are messages.
const MESSAGE: u8 = 6;

/// Declares the frames: each with its number, its numbers in order, and whether a payload follows them.
macro_rules! frames {
    ($(
        $(#[$about:meta])*
        $name:ident = $code:tt { $($number:ident: $type:ident),* } $($payload:ident)?;
    )*) => {
        /// A frame, behind opening and answer.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) enum Frame {
            $($(#[$about])* $name { $($number: $type,)* $($payload: Arc<Vec<u8>>,)? },)*
        }

        impl Frame {
            /// Length and head, and the payload.
            fn encode(&self) -> (Vec<u8>, &[u8]) {
                let mut head = vec![0; 4];
                let payload: &[u8] = match self {
                    $(Frame::$name { $($number,)* $($payload,)? } => {
                        head.push($code);
                        $(head.extend_from_slice(&$number.to_le_bytes());)*
                        [$($payload.as_slice(),)? &[]][0]
                    })*
                };
                let length = (head.len() - 4 + payload.len()) as u32;
                head[..4].copy_from_slice(&length.to_le_bytes());
                (head, payload)
            }

            /// Of the bytes behind the length.
            fn decode(bytes: &[u8]) -> Option<Frame> {
                let mut bytes = Bytes(bytes);
                let frame = match bytes.u8()? {
                    $($code => Frame::$name {
                        $($number: bytes.$type()?,)*
                        $($payload: Arc::new(bytes.rest()),)?
                    },)*
                    _ => return None,
                };
                if let Frame::Items { first, count, .. } = frame {
                    first.checked_add(count.into()).filter(|_| count > 0)?;
                }
                bytes.0.is_empty().then_some(frame)
            }
        }
    };
}

frames! {
    /// Items, numbered from `first`; none that follows is of a time before `watermark`.
    Items = 1 { first: u64, count: u32, watermark: u64 } payload;
    /// What later items refer to; numbered from 0 within the session.
    Announcement = 2 { number: u32 } payload;
    /// Nothing to send: no item that follows is of a time before `watermark`. `accepted` items there
    /// were so far.
    Time = 3 { watermark: u64, accepted: u64 };
    /// All items before this one were processed or are lost.
    Acknowledgement = 4 { expected: u64 };
    /// There were `total` items, and no more come.
    End = 5 { total: u64 };
    /// A message of a service that is not about items.
    Message = MESSAGE {} payload;
}

/// What stands before a message of so many bytes: [`Frame::Message`] without its payload.
pub(crate) fn message_head(bytes: usize) -> [u8; 5] {
    let [a, b, c, d] = (bytes as u32 + 1).to_le_bytes();
    [a, b, c, d, MESSAGE]
}

/// Messages, as they come in pieces.
#[derive(Default)]
pub(crate) struct Messages {
    head: [u8; 5],
    /// Behind the head.
    message: Option<Vec<u8>>,
    /// Bytes of head or message that there are.
    filled: usize,
}

impl Messages {
    /// The next message, of a frame of at most `most` bytes; `None`: it is not all there.
    pub(crate) fn next(&mut self, reader: &Reader, most: usize) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let to = match &mut self.message {
                Some(message) => &mut message[..],
                None => &mut self.head[..],
            };
            while self.filled < to.len() {
                match reader.read_ready(&mut to[self.filled..])? {
                    0 => return Ok(None),
                    read => self.filled += read,
                }
            }
            self.filled = 0;
            if let Some(message) = self.message.take() {
                return Ok(Some(message));
            }
            let [length @ .., kind] = self.head;
            let length = checked_length(length, reader, most)?;
            if length == 0 || kind != MESSAGE {
                return Err(nonsense(reader, "something other than messages"));
            }
            self.message = Some(vec![0; length - 1]);
        }
    }
}

/// Bytes that a frame of items has beside its payload.
pub(crate) const ITEMS_OVERHEAD: usize = 1 + 8 + 4 + 8;

impl Frame {
    /// Writes it.
    pub(crate) fn write(&self, writer: &Writer) -> Result<(), Error> {
        let (head, payload) = self.encode();
        writer.write(&[&head, payload])
    }

    /// Reads one of at most `most` bytes, until `deadline`.
    pub(crate) fn read(
        reader: &mut Reader,
        most: usize,
        deadline: Instant,
    ) -> Result<Frame, Error> {
        let bytes = read_sized(reader, most, deadline)?;
        Frame::decode(&bytes).ok_or_else(|| nonsense(reader, "an invalid frame"))
    }
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let mut sized = (bytes.len() as u32).to_le_bytes().to_vec();
    sized.extend_from_slice(bytes);
    sized
}

fn read_sized(reader: &mut Reader, most: usize, deadline: Instant) -> Result<Vec<u8>, Error> {
    let mut length = [0; 4];
    reader.read_exact(&mut length, deadline)?;
    let mut bytes = vec![0; checked_length(length, reader, most)?];
    reader.read_exact(&mut bytes, deadline)?;
    Ok(bytes)
}

fn checked_length(length: [u8; 4], reader: &Reader, most: usize) -> Result<usize, Error> {
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        let reason = format!("it sent {length} bytes at once; {most} are the most");
        return Err(nonsense(reader, &reason));
    }
    Ok(length)
}

fn nonsense(reader: &Reader, reason: &str) -> Error {
    Error::Protocol {
        address: reader.peer().address.clone(),
        reason: reason.to_owned(),
    }
}

/// A text of at most [`MAX_TEXT`] bytes, its length before it.
fn text(bytes: &mut Vec<u8>, text: &str) {
    let mut length = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(&text.as_bytes()[..length]);
}

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn rest(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.0).to_vec()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.u8()?;
        String::from_utf8(self.take(length.into())?.to_vec()).ok()
    }
}

/// For the fuzzer: reads bytes as whatever a connection may bring; what is read is written back
/// alike.
///
/// # Panics
/// When it is not.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    if let Some(opening) = Opening::decode(bytes) {
        assert_eq!(Opening::decode(&opening.encode()), Some(opening));
    }
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
    if let Some(frame) = Frame::decode(bytes) {
        let (head, payload) = frame.encode();
        assert_eq!(&head[4..], &bytes[..head.len() - 4]);
        assert_eq!(payload, &bytes[head.len() - 4..]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_of_items_is_laid_out_as_documented() {
        let frame = Frame::Items {
            first: 0x0102,
            count: 3,
            watermark: 4,
            payload: Arc::new(b"abc".to_vec()),
        };
        let (head, payload) = frame.encode();
        let expected = [
            24, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(head, expected);
        assert_eq!(payload, b"abc");
    }

    #[test]
    fn numbers_that_overflow_and_frames_without_items_are_refused() {
        let items = |first: u64, count: u32| {
            let (watermark, payload) = (0, Arc::default());
            let items = Frame::Items {
                first,
                count,
                watermark,
                payload,
            };
            items.encode().0.split_off(4)
        };
        assert!(Frame::decode(&items(7, 1)).is_some());
        assert!(Frame::decode(&items(7, 0)).is_none());
        assert!(Frame::decode(&items(u64::MAX, 1)).is_none());
        // A time with something behind it.
        let mut time = vec![3];
        time.extend([0; 17]);
        assert!(Frame::decode(&time).is_none());
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let payload = || proptest::collection::vec(any::<u8>(), 0..64).prop_map(Arc::new);
        prop_oneof![
            (0..u64::MAX / 2, 1..u32::MAX, any::<u64>(), payload()).prop_map(
                |(first, count, watermark, payload)| Frame::Items {
                    first,
                    count,
                    watermark,
                    payload,
                }
            ),
            (any::<u32>(), payload())
                .prop_map(|(number, payload)| Frame::Announcement { number, payload }),
            (any::<u64>(), any::<u64>()).prop_map(|(watermark, accepted)| Frame::Time {
                watermark,
                accepted,
            }),
            any::<u64>().prop_map(|expected| Frame::Acknowledgement { expected }),
            any::<u64>().prop_map(|total| Frame::End { total }),
            payload().prop_map(|payload| Frame::Message { payload }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(frame in frames()) {
            let (mut bytes, payload) = frame.encode();
            bytes.extend_from_slice(payload);
            let length = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            prop_assert_eq!(length as usize, bytes.len() - 4);
            prop_assert_eq!(Frame::decode(&bytes[4..]), Some(frame));
        }

        #[test]
        fn any_bytes_can_come(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            fuzz(&bytes);
        }

        #[test]
        fn any_damage_can_come(
            frame in frames(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let (head, payload) = frame.encode();
            let mut bytes = [&head[4..], payload].concat();
            *at.get_mut(&mut bytes) = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
            fuzz(&bytes);
        }

        #[test]
        fn openings_and_answers_are_read_as_written(
            session in any::<[u8; 16]>(),
            acknowledged in any::<u64>(),
            expected in any::<Option<u64>>(),
            refusal in any::<bool>(),
        ) {
            let opening = Opening {
                versions: (1, 2),
                service: "items".to_owned(),
                session,
                acknowledged,
                is_left: refusal,
            };
            fuzz(&opening.encode());
            prop_assert_eq!(Opening::decode(&opening.encode()), Some(opening));
            let answer = Answer {
                version: 1,
                refusal: refusal.then(|| (Refusal::Full, "why".to_owned())),
                listener: session,
                expected,
                max_frame: 7,
            };
            fuzz(&answer.encode());
            prop_assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }
}
