//! Parts of mails as files.

use flowgauge_proto::mime::{Events, Parser, Part};
use flowgauge_record::Held;
use flowgauge_record::file::FileRow;
use flowgauge_record::origin::Origin;
use flowgauge_wire::Nanos;

use super::super::Give;
use crate::files::{Body, Files};

/// The parts of a mail that is under way.
pub(super) struct Parts {
    parser: Parser,
    found: Found,
}

/// What was found of them.
struct Found {
    origin: Origin,
    flow: u64,
    /// Of the mail in the connection, from 1.
    mail: u64,
    /// Parts so far.
    count: u64,
    open: Option<File>,
    done: Vec<File>,
}

/// A part.
pub(super) struct File {
    /// None before its first byte.
    body: Option<Body>,
    row: FileRow,
    is_holed: bool,
}

impl Parts {
    /// Of a mail that the client of a flow sends, its number in the connection from 1.
    pub(super) fn new(origin: Origin, flow: u64, mail: u64, is_stuffed: bool) -> Box<Parts> {
        Box::new(Parts {
            parser: Parser::new(is_stuffed),
            found: Found {
                origin,
                flow,
                mail,
                count: 0,
                open: None,
                done: Vec::new(),
            },
        })
    }

    /// Bytes of memory that it keeps.
    pub(super) fn held(&self) -> usize {
        let open = self.found.open.as_ref().map_or(0, |file| file.row.held());
        size_of::<Self>() + self.parser.held() + open
    }

    /// More of the mail.
    pub(super) fn data(&mut self, bytes: &[u8], time: Nanos, files: &mut Files) {
        let Parts { parser, found } = self;
        parser.data(bytes, &mut Taking { found, time, files });
    }

    /// Bytes of it are missing.
    pub(super) fn gap(&mut self, bytes: u64, time: Nanos, files: &mut Files) {
        let Parts { parser, found } = self;
        parser.gap(bytes, &mut Taking { found, time, files });
    }

    /// It is over; whether it came to its end.
    pub(super) fn finish(&mut self, is_whole: bool, time: Nanos, files: &mut Files) {
        let Parts { parser, found } = self;
        parser.finish(is_whole, &mut Taking { found, time, files });
    }

    /// Those that are over.
    pub(super) fn done(&mut self) -> Vec<File> {
        core::mem::take(&mut self.found.done)
    }
}

impl File {
    /// The number of the file, if a byte of it came.
    pub(super) fn id(&self) -> Option<u64> {
        self.body.as_ref().map(Body::id)
    }

    /// Its name.
    pub(super) fn name(&self) -> Option<&str> {
        self.row.file_name.as_deref()
    }

    /// It is over; one without a byte is none.
    pub(super) fn close(self, give: &mut Give<'_>) {
        let mut row = self.row;
        if let (Some(body), Some(files)) = (self.body, give.files.as_mut()) {
            files.close(body, &mut row);
            row.limit = row.limit.or(give.limit);
            give.file(row.origin.time, &row);
        }
    }
}

struct Taking<'a> {
    found: &'a mut Found,
    time: Nanos,
    files: &'a mut Files,
}

impl Taking<'_> {
    fn body(&mut self) -> Option<&mut Body> {
        let Found {
            flow,
            mail,
            count,
            open,
            ..
        } = &mut *self.found;
        let file = open.as_mut()?;
        file.row.end = self.time;
        let files = &mut *self.files;
        let body = file
            .body
            .get_or_insert_with(|| files.open(&format!("smtp-{flow:016x}-{mail}-{count}"), None));
        Some(body)
    }
}

impl Events for Taking<'_> {
    fn begin(&mut self, part: Part) {
        let found = &mut *self.found;
        found.count += 1;
        let row = FileRow {
            origin: Origin {
                time: self.time,
                ..found.origin
            },
            source: "smtp",
            depth: u32::try_from(found.mail).ok(),
            // Who sends a mail is its client.
            from_initiator: true,
            end: self.time,
            file_name: part.name,
            content_type: part.content_type,
            ..FileRow::default()
        };
        found.open = Some(File {
            body: None,
            row,
            is_holed: false,
        });
    }

    fn data(&mut self, bytes: &[u8]) {
        if let Some(body) = self.body() {
            body.data(bytes);
        }
    }

    fn missing(&mut self, bytes: u64) {
        if let Some(body) = self.body() {
            body.gap(bytes);
        }
        if let Some(file) = &mut self.found.open {
            file.is_holed = true;
        }
    }

    fn end(&mut self, is_whole: bool) {
        if let Some(mut file) = self.found.open.take() {
            file.row.end = self.time;
            file.row.is_whole = is_whole && !file.is_holed;
            self.found.done.push(file);
        }
    }
}
