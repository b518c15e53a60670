//! Bodies of messages as files.

use flowgauge_proto::http::Head;
use flowgauge_record::Held;
use flowgauge_record::file::FileRow;
use flowgauge_record::http::{BodyFiles, HttpMessage};

use flowgauge_wire::Nanos;

use super::super::tls::origin;
use super::super::{At, Give};
use crate::files::{Content, Files, Parts, Range, Whole};

/// A body that is a file, or several.
pub(super) struct HttpFile {
    body: Sort,
    row: FileRow,
    content_range: Option<String>,
    /// Of which file ranges are, if it can have some.
    whole: Option<Whole>,
}

/// What a body is.
enum Sort {
    /// Nothing, before its first byte.
    Empty,
    /// A file, or a range of one.
    One(Content),
    /// Parts of a form, or several ranges.
    Parts(Box<Parts>),
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl HttpFile {
    /// Bytes of memory that it keeps.
    #[cold]
    pub(super) fn held(&self) -> usize {
        let parts = match &self.body {
            Sort::Parts(parts) => parts.held(),
            _ => 0,
        };
        size_of::<Self>() + self.row.held() + self.content_range.held() + parts
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
            ("content-range", head.header("content-range")),
        ] {
            if let Some(value) = value {
                file.field(name.as_bytes(), value);
            }
        }
        file
    }

    pub(super) fn new() -> Box<HttpFile> {
        Box::new(HttpFile {
            body: Sort::Empty,
            row: FileRow {
                source: "http",
                ..FileRow::default()
            },
            content_range: None,
            whole: None,
        })
    }

    /// A header field, its name in lower case.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"content-disposition" => {
                self.row.file_name = file_name(value);
                self.row.name_by = self.row.file_name.is_some().then_some("sender");
            }
            b"content-type" => self.row.content_type = Some(text(value)),
            b"content-encoding" => self.row.content_encoding = Some(text(value)),
            b"content-range" => self.content_range = Some(text(value)),
            _ => {}
        }
    }

    /// How many bytes its sender announced.
    pub(super) fn total(&mut self, bytes: Option<u64>) {
        self.row.total_bytes = bytes;
    }

    /// What its head says besides, and the request that it answers, if it is no request itself.
    #[cold]
    pub(super) fn belongs(
        &mut self,
        at: &At<'_>,
        number: u32,
        message: &HttpMessage,
        asked: Option<&HttpMessage>,
    ) {
        let row = &mut self.row;
        row.depth = Some(number);
        row.from_initiator = at.from_initiator;
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
        // Of a form the target is a program's.
        let is_transfer = !message.is_request || row.method.as_deref() == Some("PUT");
        let name = row.uri.as_deref().and_then(last_part);
        if let Some(name) = name.filter(|_| is_transfer && row.file_name.is_none()) {
            row.file_name = Some(name.to_owned());
            row.name_by = Some("url");
        }
        if message.status == 206 {
            let target = match (&row.host, &row.uri) {
                (host, Some(uri)) => format!("{}{uri}", host.as_deref().unwrap_or_default()),
                _ => format!("{:016x}", at.connection.flow_id.unwrap_or_default()),
            };
            self.whole = Some(Whole {
                client: at.destination().0,
                server: at.source(),
                target,
                ..Whole::default()
            });
        }
    }

    /// What takes the body, begun if it was not.
    fn begin(&mut self, at: &At<'_>, files: &mut Files) {
        if !matches!(self.body, Sort::Empty) {
            return;
        }
        self.row.origin = origin(at);
        self.row.flow_id = at.connection.flow_id;
        let flow = at.connection.flow_id.unwrap_or_default();
        let side = if at.from_initiator { "up" } else { "down" };
        let number = self.row.depth.unwrap_or_default();
        let name = format!("http-{flow:016x}-{side}-{number}");
        let coding = self.row.content_encoding.as_deref();
        let kind = self.row.content_type.as_deref().unwrap_or_default();
        let is = |name: &str| {
            let begin = kind.get(..name.len());
            begin.is_some_and(|it| it.eq_ignore_ascii_case(name))
        };
        let has_parts = is("multipart/") || is("message/rfc822");
        let range = self.content_range.as_deref().and_then(Range::read);
        self.body = match (&self.whole, range) {
            _ if has_parts && coding.is_none() => {
                let row = FileRow {
                    content_type: None,
                    total_bytes: None,
                    ..self.row.clone()
                };
                Sort::Parts(Parts::of_body(name, row, kind, self.whole.clone()))
            }
            (Some(whole), Some(range)) => {
                let coding = coding.map(str::as_bytes);
                Sort::One(Content::Range(
                    files.open_range(whole, range, &name, coding, at.time),
                ))
            }
            _ => Sort::One(Content::Whole(files.open(&name, coding.map(str::as_bytes)))),
        };
    }

    /// More of it.
    #[cold]
    pub(super) fn data(&mut self, bytes: &[u8], at: &At<'_>, files: Option<&mut Files>) {
        let Some(files) = files else { return };
        self.begin(at, files);
        match &mut self.body {
            Sort::Empty => {}
            Sort::One(content) => content.data(bytes, at.time, files),
            Sort::Parts(parts) => {
                self.row.bytes += bytes.len() as u64;
                parts.data(bytes, at.time, files);
            }
        }
    }

    /// Bytes of it are missing.
    #[cold]
    pub(super) fn gap(&mut self, bytes: u64, at: &At<'_>, files: Option<&mut Files>) {
        let Some(files) = files else { return };
        self.begin(at, files);
        match &mut self.body {
            Sort::Empty => {}
            Sort::One(content) => content.gap(bytes, files),
            Sort::Parts(parts) => {
                self.row.missing_bytes += bytes;
                parts.gap(bytes, at.time, files);
            }
        }
    }

    /// Records of parts that are over.
    #[cold]
    pub(super) fn give_parts(&mut self, give: &mut Give<'_>) {
        if let Sort::Parts(parts) = &mut self.body {
            for row in parts.done() {
                give.file(row.origin.time, &row);
            }
        }
    }

    /// It is over, and what is known of it in the record of its message; one without a byte is none.
    #[cold]
    pub(super) fn close(
        mut self,
        message: &mut HttpMessage,
        is_whole: bool,
        at: &At<'_>,
        give: &mut Give<'_>,
    ) {
        self.row.end = at.time;
        self.row.is_whole = is_whole;
        let Some(files) = give.files.as_deref_mut() else {
            return;
        };
        let (mut done, mut listed) = (Vec::new(), BodyFiles::default());
        match self.body {
            Sort::Empty => return,
            Sort::Parts(mut parts) => {
                parts.finish(is_whole, at.time, files);
                done = parts.done();
                let is_more;
                (listed, is_more) = parts.listed();
                if is_more {
                    message.limit.get_or_insert("files");
                }
                // What is no form, though it says so, is told at least.
                done.extend((!parts.has_begun()).then_some(self.row));
            }
            Sort::One(content) => {
                listed.ids.push(content.id());
                listed.names.extend(self.row.name_of_sender());
                done.extend(content.close(self.row, files));
                let decoded = done.iter().find(|row| row.decoded == Some("yes"));
                message.decoded_bytes = decoded.map(|row| row.bytes);
            }
        }
        message.files = Some(Box::new(listed));
        done.extend(files.joined(None));
        for row in done {
            give.file(row.origin.time, &row);
        }
    }
}

/// Records of files of which ranges came, where no more are waited for; without a time of all.
#[cold]
pub(in super::super) fn give_joined(now: Option<Nanos>, give: &mut Give<'_>) {
    let joined = give
        .files
        .as_deref_mut()
        .map(|files| files.joined(Some(now)));
    for row in joined.unwrap_or_default() {
        give.file(row.origin.time, &row);
    }
}

/// The last part of the path of a request's target (RFC 9110, section 7.1), if it has a name.
fn last_part(uri: &str) -> Option<&str> {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    let (_, name) = path.rsplit_once('/')?;
    Some(name).filter(|name| !name.is_empty())
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
    use super::{file_name, last_part};

    #[test]
    fn names_are_the_last_parts_of_paths() {
        for (uri, name) in [
            ("/", None),
            ("/a/b.bin?x=/y", Some("b.bin")),
            ("http://host/a%20b.zip", Some("a%20b.zip")),
            ("http://host", None),
            ("*", None),
            ("/a/", None),
            ("/a#b/c", Some("a")),
        ] {
            assert_eq!(last_part(uri), name, "{uri}");
        }
    }

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
