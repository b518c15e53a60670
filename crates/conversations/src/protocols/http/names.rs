//! DNS within HTTP/2 (RFC 8484).

use flowgauge_proto::Look;
use flowgauge_record::http::HttpMessage;

use crate::protocols::{At, Conversation, Give, dns};

/// Bytes of a message of DNS.
pub(super) const MOST: usize = 64 << 10;

/// What is asked and answered in a connection.
pub(super) struct Names {
    talk: dns::Talk,
    common: dns::Common,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            talk: dns::Talk::within_http(),
            common: dns::Common::default(),
        }
    }
}

impl Names {
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.talk.held()
    }

    pub(super) fn message(&mut self, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if flowgauge_proto::dns::look(bytes) == Look::No {
            return;
        }
        let Names { talk, common } = self;
        give.went_over("doh2");
        let before = give.speaks("dns");
        talk.message(common, at, bytes, "", give);
        give.speaks(before);
    }

    pub(super) fn close(&mut self, at: &At<'_>, give: &mut Give<'_>) {
        let Names { talk, common } = self;
        let before = give.speaks("dns");
        talk.close(common, at, give);
        give.speaks(before);
    }
}

/// What a message holds of DNS so far: of a GET all, of one whose body is to follow nothing.
pub(super) fn message_in(message: &HttpMessage) -> Option<Vec<u8>> {
    const TYPE: &[u8] = b"application/dns-message";
    let kind = message.get(message.content_type).unwrap_or_default();
    if kind
        .get(..TYPE.len())
        .is_some_and(|it| it.eq_ignore_ascii_case(TYPE))
    {
        return Some(Vec::new());
    }
    let uri = message.get(message.uri)?;
    let query = uri.splitn(2, |byte| *byte == b'?').nth(1)?;
    let mut parts = query.split(|byte| *byte == b'&');
    parts.find_map(|part| unpadded(part.strip_prefix(b"dns=")?))
}

/// The bytes of base64url without padding (RFC 4648, section 5).
fn unpadded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.iter().take_while(|letter| **letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}
