//! Parts of a message as files: of a mail, of a form, of an answer with several ranges.

use flowgauge_proto::mime::{Events, Parser, Part};
use flowgauge_record::Held;
use flowgauge_record::file::FileRow;
use flowgauge_record::http::BodyFiles;
use flowgauge_wire::Nanos;

use super::{Body, Files, Range, Whole, ranges};

/// Files of a message that are listed in its record.
const MAX_LISTED: usize = 100;
/// Bytes of a text that is one, and not a few letters of something.
const LEAST_TEXT: u64 = 10;

/// The parts of a message that is under way.
pub(crate) struct Parts {
    parser: Parser,
    found: Found,
}

/// What was found of them.
struct Found {
    /// What files of their own are called, without the number of the part.
    name: String,
    /// What all of them have in common.
    row: FileRow,
    /// Of which file ranges are.
    whole: Option<Whole>,
    /// Parts so far.
    count: u64,
    open: Option<File>,
    done: Vec<FileRow>,
    listed: BodyFiles,
    /// More than are listed.
    is_more: bool,
}

/// A part.
struct File {
    /// None before its first byte.
    content: Option<Content>,
    row: FileRow,
    is_holed: bool,
    range: Option<Range>,
}

/// Where bytes of a file go.
pub(crate) enum Content {
    /// To a file of their own.
    Whole(Body),
    /// To one that is put together.
    Range(ranges::Part),
}

impl Content {
    /// The number of the file.
    pub(crate) fn id(&self) -> u64 {
        match self {
            Content::Whole(body) => body.id(),
            Content::Range(part) => part.id(),
        }
    }

    /// More of it.
    pub(crate) fn data(&mut self, bytes: &[u8], now: Nanos, files: &mut Files) {
        match self {
            Content::Whole(body) => body.data(bytes),
            Content::Range(part) => files.range_data(part, bytes, now),
        }
    }

    /// So many bytes are missing here.
    pub(crate) fn gap(&mut self, bytes: u64, files: &mut Files) {
        match self {
            Content::Whole(body) => body.gap(bytes),
            Content::Range(part) => files.range_gap(part, bytes),
        }
    }

    /// It is over: its record, if it is a file of its own.
    pub(crate) fn close(self, mut row: FileRow, files: &mut Files) -> Option<FileRow> {
        match self {
            Content::Whole(body) => {
                files.close(body, &mut row);
                Some(row)
            }
            Content::Range(part) => {
                files.close_range(&part, row);
                None
            }
        }
    }
}

impl Parts {
    /// Of a mail, with dots doubled or not. `row` is what all parts have in common, `name` what files are
    /// called, without the number of the part.
    pub(crate) fn of_mail(name: String, row: FileRow, is_stuffed: bool) -> Box<Parts> {
        Box::new(Parts {
            parser: Parser::new(is_stuffed),
            found: Found {
                name,
                row,
                whole: None,
                count: 0,
                open: None,
                done: Vec::new(),
                listed: BodyFiles::default(),
                is_more: false,
            },
        })
    }

    /// Of a body with this `Content-Type`; ranges are of this file.
    pub(crate) fn of_body(
        name: String,
        row: FileRow,
        content_type: &str,
        whole: Option<Whole>,
    ) -> Box<Parts> {
        let mut parts = Parts::of_mail(name, row, false);
        parts.parser = Parser::of_type(content_type.as_bytes());
        parts.found.whole = whole;
        parts
    }

    /// Bytes of memory that it keeps.
    pub(crate) fn held(&self) -> usize {
        let open = self.found.open.as_ref().map_or(0, |file| file.row.held());
        let done = self.found.done.iter().map(FileRow::held).sum::<usize>();
        let row = self.found.row.held() + self.found.listed.held();
        size_of::<Self>() + self.parser.held() + row + open + done
    }

    /// More of the message.
    pub(crate) fn data(&mut self, bytes: &[u8], time: Nanos, files: &mut Files) {
        let Parts { parser, found } = self;
        parser.data(bytes, &mut Taking { found, time, files });
    }

    /// Bytes of it are missing.
    pub(crate) fn gap(&mut self, bytes: u64, time: Nanos, files: &mut Files) {
        let Parts { parser, found } = self;
        parser.gap(bytes, &mut Taking { found, time, files });
    }

    /// It is over; whether it came to its end.
    pub(crate) fn finish(&mut self, is_whole: bool, time: Nanos, files: &mut Files) {
        let Parts { parser, found } = self;
        parser.finish(is_whole, &mut Taking { found, time, files });
    }

    /// The records of those that are over.
    pub(crate) fn done(&mut self) -> Vec<FileRow> {
        core::mem::take(&mut self.found.done)
    }

    /// The files so far, and whether there are more than are listed.
    pub(crate) fn listed(&mut self) -> (BodyFiles, bool) {
        (core::mem::take(&mut self.found.listed), self.found.is_more)
    }

    /// Parts so far, those that hold others counted.
    pub(crate) const fn count(&self) -> u32 {
        self.parser.parts()
    }

    /// Whether some began so far.
    pub(crate) const fn has_begun(&self) -> bool {
        self.found.count > 0
    }
}

struct Taking<'a> {
    found: &'a mut Found,
    time: Nanos,
    files: &'a mut Files,
}

impl Taking<'_> {
    /// What takes the bytes of the part under way, and what takes files.
    fn content(&mut self) -> Option<(&mut Content, &mut Files)> {
        let Found {
            name,
            whole,
            count,
            open,
            ..
        } = &mut *self.found;
        let file = open.as_mut()?;
        file.row.end = self.time;
        if file.content.is_none() {
            let name = format!("{name}-{count}");
            file.content = Some(match (whole, file.range) {
                (Some(whole), Some(range)) => {
                    Content::Range(self.files.open_range(whole, range, &name, None, self.time))
                }
                _ => Content::Whole(self.files.open(&name, None)),
            });
        }
        Some((file.content.as_mut()?, &mut *self.files))
    }
}

impl Events for Taking<'_> {
    fn begin(&mut self, part: Part) {
        let time = self.time;
        let found = &mut *self.found;
        found.count += 1;
        let mut row = FileRow {
            end: time,
            content_type: part.content_type,
            limit: part.limit,
            ..found.row.clone()
        };
        row.part = row.part.map(|before| before.saturating_add(part.place));
        row.origin.time = time;
        if let Some(name) = part.name {
            row.name_by = Some("sender");
            row.file_name = Some(name);
        }
        found.open = Some(File {
            content: None,
            row,
            is_holed: false,
            range: part.range.as_deref().and_then(Range::read),
        });
    }

    fn data(&mut self, bytes: &[u8]) {
        let time = self.time;
        if let Some((content, files)) = self.content() {
            content.data(bytes, time, files);
        }
    }

    fn missing(&mut self, bytes: u64) {
        if let Some((content, files)) = self.content() {
            content.gap(bytes, files);
        }
        if let Some(file) = &mut self.found.open {
            file.is_holed = true;
        }
    }

    fn end(&mut self, is_whole: bool) {
        let Some(mut file) = self.found.open.take() else {
            return;
        };
        file.row.is_whole = is_whole && !file.is_holed;
        // One without a byte is none.
        let Some(content) = file.content else {
            return;
        };
        let Found {
            listed,
            is_more,
            done,
            ..
        } = &mut *self.found;
        let is_listed = listed.ids.len() < MAX_LISTED;
        if is_listed {
            listed.ids.push(content.id());
            listed.names.extend(file.row.name_of_sender());
        }
        *is_more |= !is_listed;
        if let Some(row) = content.close(file.row, self.files) {
            let is_told = row.mime_type != Some("text/plain") || row.bytes >= LEAST_TEXT;
            let kind = row.mime_type.filter(|_| is_listed && is_told);
            listed.types.extend(kind);
            done.push(row);
        }
    }
}
