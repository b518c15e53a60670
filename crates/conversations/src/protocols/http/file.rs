//! Bodies of messages as files.

use flowgauge_proto::http::Head;
use flowgauge_record::Held;
use flowgauge_record::file::FileRow;
use flowgauge_record::http::HttpMessage;

use super::super::tls::origin;
use super::super::{At, Give};
use crate::files::{Body, Files};

/// A body that is a file.
pub(super) struct HttpFile {
    /// None before its first byte.
    body: Option<Body>,
    row: FileRow,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl HttpFile {
    /// Bytes of memory that it keeps.
    #[cold]
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.row.held()
    }

    /// One that a head of HTTP/1 announces.
    #[cold]
    pub(super) fn announced(head: &Head<'_>) -> Box<HttpFile> {
        let mut file = HttpFile::new();
        file.row.total_bytes = head.content_length();
        for (name, value) in [
            ("content-disposition", head.header("content-disposition")),
            ("content-type", head.content_type()),
            ("content-encoding", head.content_encoding()),
        ] {
            if let Some(value) = value {
                file.field(name.as_bytes(), value);
            }
        }
        file
    }

    pub(super) fn new() -> Box<HttpFile> {
        Box::new(HttpFile {
            body: None,
            row: FileRow::default(),
        })
    }

    /// A header field, its name in lower case.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"content-disposition" => self.row.file_name = file_name(value),
            b"content-type" => self.row.content_type = Some(text(value)),
            b"content-encoding" => self.row.content_encoding = Some(text(value)),
            _ => {}
        }
    }

    /// How many bytes its sender announced.
    pub(super) fn total(&mut self, bytes: Option<u64>) {
        self.row.total_bytes = bytes;
    }

    /// The body, begun if it was not; `number` is that of its message.
    fn body(&mut self, at: &At<'_>, number: u32, files: Option<&mut Files>) -> Option<&mut Body> {
        if self.body.is_none() {
            self.row.origin = origin(at);
            let flow = at.connection.flow_id.unwrap_or_default();
            let side = if at.from_initiator { "up" } else { "down" };
            let name = format!("http-{flow:016x}-{side}-{number}");
            let coding = self.row.content_encoding.as_deref();
            self.body = Some(files?.open(&name, coding.map(str::as_bytes)));
        }
        self.body.as_mut()
    }

    /// More of it.
    #[cold]
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        at: &At<'_>,
        number: u32,
        files: Option<&mut Files>,
    ) {
        if let Some(body) = self.body(at, number, files) {
            body.data(bytes);
        }
    }

    /// Bytes of it are missing.
    #[cold]
    pub(super) fn gap(&mut self, bytes: u64, at: &At<'_>, number: u32, files: Option<&mut Files>) {
        if let Some(body) = self.body(at, number, files) {
            body.gap(bytes);
        }
    }

    /// The number of the file, if a byte of it came.
    pub(super) fn id(&self) -> Option<u64> {
        self.body.as_ref().map(Body::id)
    }

    /// What is known of it besides its bytes: it came with this message, which answers `asked` if it is no
    /// request.
    #[cold]
    pub(super) fn describe(
        &mut self,
        at: &At<'_>,
        number: u32,
        message: &HttpMessage,
        asked: Option<&HttpMessage>,
        is_whole: bool,
    ) {
        let row = &mut self.row;
        row.depth = Some(number);
        row.source = "http";
        row.from_initiator = at.from_initiator;
        row.end = at.time;
        row.is_whole = is_whole;
        row.status = Some(message.status).filter(|&status| status != 0);
        let asked = if message.is_request {
            Some(message)
        } else {
            asked
        };
        if let Some(asked) = asked {
            row.method = asked.get(asked.method).map(text);
            row.host = asked.get(asked.host).map(text);
            row.uri = asked.get(asked.uri).map(text);
        }
    }

    /// It is over; one without a byte is none. Returns its bytes behind its content coding, where that was taken away.
    #[cold]
    pub(super) fn close(self, give: &mut Give<'_>) -> Option<u64> {
        let mut row = self.row;
        if let (Some(body), Some(files)) = (self.body, give.files.as_mut()) {
            files.close(body, &mut row);
            give.file(row.origin.time, &row);
        }
        (row.decoded == Some("yes")).then_some(row.bytes)
    }
}

/// The name in a `Content-Disposition` (RFC 6266), as it was sent.
fn file_name(value: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(value);
    let mut extended = None;
    let mut rest = text.split_once(';')?.1;
    while !rest.is_empty() {
        let Some((name, behind)) = rest.split_once('=') else {
            break;
        };
        let behind = behind.trim_start();
        let (value, next) = match behind.strip_prefix('"') {
            Some(quoted) => {
                let (value, next) = quoted.split_once('"').unwrap_or((quoted, ""));
                (value, next.trim_start().trim_start_matches(';'))
            }
            None => behind.split_once(';').unwrap_or((behind, "")),
        };
        let name = name.trim();
        if name.eq_ignore_ascii_case("filename") {
            return Some(value.trim().to_owned()).filter(|name| !name.is_empty());
        }
        if name.eq_ignore_ascii_case("filename*") {
            let name = value.rsplit('\'').next();
            extended = name.map(|name| name.trim().to_owned());
        }
        rest = next;
    }
    extended
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_are_found() {
        for (value, name) in [
            ("attachment", None),
            ("attachment; filename=a.txt", Some("a.txt")),
            (
                "form-data; name=\"x\"; filename=\"a b;c.txt\"; z=1",
                Some("a b;c.txt"),
            ),
            ("attachment; FileName*=UTF-8''na%20me", Some("na%20me")),
            ("attachment; filename*=UTF-8''x; filename=\"y\"", Some("y")),
            ("attachment; filename=\"", None),
            ("attachment; size", None),
        ] {
            assert_eq!(file_name(value.as_bytes()).as_deref(), name, "{value:?}");
        }
    }
}
