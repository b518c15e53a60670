//! Lines of text, and replies of three digits, which SMTP and FTP have in common.

use crate::detect::Look;

/// Bytes of a line that are kept; the rest of a longer one is left out.
const MAX_LINE: usize = 4 << 10;

/// Puts lines together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    kept: Vec<u8>,
    /// Behind a hole: what comes before the next line end is none.
    is_lost: bool,
}

impl Lines {
    /// Bytes of memory that it keeps beside itself.
    pub(crate) fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Takes bytes up to the end of a line. Returns how many, and whether a line ended:
    /// [`Lines::line`] then has it, until [`Lines::clear`].
    pub(crate) fn step(&mut self, bytes: &[u8]) -> (usize, bool) {
        let end = memchr::memchr(b'\n', bytes);
        let taken = end.map_or(bytes.len(), |end| end + 1);
        if self.is_lost {
            self.is_lost = end.is_none();
            return (taken, false);
        }
        let room = MAX_LINE.saturating_sub(self.kept.len()).min(taken);
        self.kept
            .extend_from_slice(bytes.get(..room).unwrap_or_default());
        (taken, end.is_some())
    }

    /// The line, without its end.
    pub(crate) fn line(&self) -> &[u8] {
        let line = self.kept.strip_suffix(b"\n").unwrap_or(&self.kept);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Bytes are missing.
    pub(crate) fn gap(&mut self) {
        self.kept.clear();
        self.is_lost = true;
    }

    /// Behind a hole: a piece of data that begins like a line is taken for one.
    pub(crate) fn resume(&mut self, is_beginning: impl FnOnce() -> bool) {
        if self.is_lost && is_beginning() {
            self.is_lost = false;
        }
    }
}

/// A reply of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Of three digits.
    pub code: u16,
    /// What its first line says behind them.
    pub first: &'a [u8],
    /// What its last line says behind them.
    pub last: &'a [u8],
}

/// Receives replies, in the order of the stream.
pub trait ReplyEvents {
    /// A line of a reply with this code.
    fn line(&mut self, _code: u16, _text: &[u8]) {}

    /// A reply is complete.
    fn reply(&mut self, reply: &Reply<'_>);

    /// Bytes are missing, or no reply.
    fn lost(&mut self) {}
}

/// Reads the replies of a server (RFC 5321 section 4.2, RFC 959 section 4.2). At most 4 KiB of a line
/// are kept.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    lines: Lines,
    /// Of one of several lines: its code, and what its first line says.
    open: Option<(u16, Vec<u8>)>,
    is_foreign: bool,
    has_begun: bool,
    /// Bytes are missing, maybe the end of a reply of several lines.
    has_hole: bool,
}

/// The code at the beginning of a line, whether more lines follow, and what it says.
fn code(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match rest.split_first() {
        None => Some((code, false, rest)),
        Some((b' ', text)) => Some((code, false, text)),
        Some((b'-', text)) => Some((code, true, text)),
        Some(_) => None,
    }
}

/// Whether bytes begin like the greeting of a server: a reply of 220 or another of 2xx, 4xx or 5xx.
pub(crate) fn look_reply(bytes: &[u8]) -> Look {
    let is = |place: usize, is: fn(u8) -> bool| bytes.get(place).is_none_or(|&byte| is(byte));
    let fits = is(0, |byte| matches!(byte, b'2' | b'4' | b'5'))
        && is(1, |byte| matches!(byte, b'0'..=b'5'))
        && is(2, |byte| byte.is_ascii_digit())
        && is(3, |byte| matches!(byte, b' ' | b'-' | b'\r' | b'\n'));
    match (fits, bytes.len()) {
        (false, _) => Look::No,
        (true, 0..4) => Look::More,
        (true, _) => Look::Yes,
    }
}

impl Replies {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |open| open.1.capacity());
        self.lines.held() + open
    }

    /// Whether what comes is no reply at all.
    pub const fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// The next bytes of the stream.
    pub fn data<E: ReplyEvents>(&mut self, bytes: &[u8], events: &mut E) {
        self.lines.resume(|| {
            let (first, behind) = bytes.split_at(bytes.len().min(4));
            !behind.is_empty() && first.len() == 4 && code(first).is_some()
        });
        let mut rest = bytes;
        while !rest.is_empty() {
            let (taken, is_line) = self.lines.step(rest);
            rest = rest.get(taken..).unwrap_or_default();
            if is_line {
                self.line(events);
                self.lines.clear();
            }
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap<E: ReplyEvents>(&mut self, missing: u64, events: &mut E) {
        if missing > 0 {
            self.lines.gap();
            self.has_hole = true;
            events.lost();
        }
    }

    fn line<E: ReplyEvents>(&mut self, events: &mut E) {
        let line = self.lines.line();
        let found = code(line);
        let is_end = |code: u16| self.open.as_ref().is_none_or(|open| open.0 == code);
        if self.has_hole && matches!(found, Some((code, false, _)) if !is_end(code)) {
            // The end of the one before was among what is missing.
            self.open = None;
        }
        self.has_hole &= self.open.is_some();
        if let Some((wanted, first)) = &self.open {
            let text = match found {
                Some((code, _, text)) if code == *wanted => text,
                _ => line,
            };
            events.line(*wanted, text);
            match found {
                Some((code, false, last)) if code == *wanted => {
                    events.reply(&Reply { code, first, last });
                    self.open = None;
                }
                // Lines between may have any form in FTP.
                _ => {}
            }
            return;
        }
        if let Some((code, _, text)) = found {
            events.line(code, text);
        }
        match found {
            Some((code, true, text)) => self.open = Some((code, text.to_vec())),
            Some((code, false, text)) => events.reply(&Reply {
                code,
                first: text,
                last: text,
            }),
            None if line.is_empty() => {}
            None => {
                self.is_foreign |= !self.has_begun;
                events.lost();
            }
        }
        self.has_begun = true;
    }
}
