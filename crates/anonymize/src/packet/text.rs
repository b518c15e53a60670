//! HTTP and FTP within one segment.
//!
//! Only what is recognised here is kept: a line whose beginning was in another segment is payload like any other.
//! Everything keeps its length.

use super::Walk;
use crate::field::Field;

/// What is written over text that no rule names.
const FILLER: u8 = b'-';

const METHODS: [&[u8]; 9] = [
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH",
];

impl Walk<'_> {
    /// Anonymizes the payload if it is a message that rules are about. Whether it was.
    pub(super) fn text(&mut self, ports: [u16; 2], at: usize, end: usize) -> bool {
        let end = end.min(self.frame.len());
        let Some(bytes) = self.frame.get(at..end).filter(|it| !it.is_empty()) else {
            return false;
        };
        if self.it.has_http() && begins_message(bytes) {
            self.http(at, end);
            return true;
        }
        if self.it.has_ftp() && ports.contains(&21) {
            let [_, destination] = ports;
            self.ftp(at, end, destination == 21);
            return true;
        }
        false
    }

    fn http(&mut self, at: usize, end: usize) {
        let mut at = at;
        let mut is_first = true;
        loop {
            let (line, next) = self.line(at, end);
            if line == at && next > at {
                at = next;
                break;
            }
            if is_first {
                self.first_line(at, line);
            } else {
                self.header(at, line);
            }
            is_first = false;
            at = next;
            if at >= end {
                return;
            }
        }
        match self.it.http_payload() {
            Some(_) => self.body(at, end),
            None => _ = self.payload(Field::TcpPayload, at, end),
        }
    }

    fn body(&mut self, at: usize, end: usize) {
        let Some(part) = self.out.get_mut(at..end).filter(|it| !it.is_empty()) else {
            return;
        };
        if let crate::bytes::Left::Only(kept) = self.it.apply_http_payload(part) {
            self.strip(at + kept);
        }
    }

    /// Where a line ends, and where the next begins.
    fn line(&self, at: usize, end: usize) -> (usize, usize) {
        let bytes = self.frame.get(at..end).unwrap_or_default();
        match bytes.iter().position(|it| *it == b'\n') {
            None => (end, end),
            Some(feed) => {
                let has_return = feed > 0 && bytes.get(feed - 1) == Some(&b'\r');
                (at + feed - usize::from(has_return), at + feed + 1)
            }
        }
    }

    fn first_line(&mut self, at: usize, end: usize) {
        let bytes = self.frame.get(at..end).unwrap_or_default();
        let is_response = bytes.starts_with(b"HTTP/1.");
        let space = |from: usize| {
            let rest = bytes.get(from..).unwrap_or_default();
            rest.iter().position(|it| *it == b' ').map(|it| from + it)
        };
        let first = space(0).unwrap_or(bytes.len());
        let names = match is_response {
            true => ["VERSION", "STATUS", "REASON"],
            false => ["METHOD", "URI", "VERSION"],
        };
        // A target with spaces in it belongs together.
        let second = match is_response {
            true => space(first + 1).unwrap_or(bytes.len()),
            false => bytes
                .iter()
                .rposition(|it| *it == b' ')
                .filter(|it| *it > first)
                .unwrap_or(bytes.len()),
        };
        let parts = [0..first, first + 1..second, second + 1..bytes.len()];
        for (name, part) in names.into_iter().zip(parts) {
            if part.start >= part.end {
                continue;
            }
            let text = bytes.get(part.clone()).unwrap_or_default();
            if name == "VERSION"
                && matches!(text, b"HTTP/1.0" | b"HTTP/1.1")
                && !self.it.http_rule(name)
            {
                continue;
            }
            let filler = if name == "REASON" { b' ' } else { FILLER };
            self.http_text(name, at + part.start, at + part.end, filler);
        }
    }

    fn header(&mut self, at: usize, end: usize) {
        let bytes = self.frame.get(at..end).unwrap_or_default();
        let colon = bytes.iter().position(|it| *it == b':');
        let name = bytes.get(..colon.unwrap_or(0)).unwrap_or_default();
        let name = core::str::from_utf8(name)
            .unwrap_or_default()
            .to_ascii_lowercase();
        let Some(colon) = colon.filter(|_| self.it.http_rule(&name)) else {
            // Neither a name nor a value that nobody asked for.
            self.fill(at, end, FILLER);
            if let Some(colon) = colon.filter(|it| *it > 0) {
                self.put(at + colon, b":");
            }
            return;
        };
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
        let value = bytes.get(colon + 1..).unwrap_or_default();
        let before = value.iter().take_while(|it| is_space(it)).count();
        let behind = value.iter().rev().take_while(|it| is_space(it)).count();
        let start = at + colon + 1 + before;
        let stop = end.saturating_sub(behind).max(start);
        self.http_text(&name, start, stop, b' ');
    }

    fn http_text(&mut self, name: &str, at: usize, end: usize, filler: u8) {
        if let Some(part) = self.out.get_mut(at..end) {
            self.it.apply_http(name, part, filler);
        }
    }

    fn ftp(&mut self, at: usize, end: usize, is_client: bool) {
        let mut at = at;
        while at < end {
            let (line, next) = self.line(at, end);
            let bytes = self.frame.get(at..line).unwrap_or_default();
            if is_client {
                let word = bytes
                    .iter()
                    .position(|it| *it == b' ')
                    .unwrap_or(bytes.len());
                let name = bytes.get(..word).unwrap_or_default().to_ascii_uppercase();
                let name = core::str::from_utf8(&name).unwrap_or_default();
                match self.it.ftp_rule(name) {
                    Some(name) => self.ftp_text(name, at + word + 1, line),
                    None => self.fill(at, line, FILLER),
                }
            } else if bytes
                .get(..3)
                .is_some_and(|code| code.iter().all(u8::is_ascii_digit))
            {
                self.ftp_text("RESPONSE_CODE", at, at + 3);
                self.ftp_text("RESPONSE_ARG", at + 4, line);
            } else {
                self.fill(at, line, FILLER);
            }
            at = next;
        }
    }

    fn ftp_text(&mut self, name: &str, at: usize, end: usize) {
        if let Some(part) = self.out.get_mut(at..end) {
            self.it.apply_ftp(name, part, FILLER);
        }
    }
}

/// Whether a message of HTTP/1 begins here.
fn begins_message(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.")
        || METHODS.iter().any(|method| {
            bytes
                .strip_prefix(*method)
                .is_some_and(|rest| rest.starts_with(b" "))
        })
}
