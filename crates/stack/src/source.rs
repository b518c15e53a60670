//! The source texts of a stack, and positions in them.

use std::fmt::Write as _;

use flowgauge_record::text::harmless;

/// A file in [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u16);

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte; equal to `start` at the end of the text.
    pub end: u32,
}

impl Span {
    /// From the start of this span to the end of `other`, which follows it in the same file.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span {
            end: other.end.max(self.end),
            ..self
        }
    }
}

/// A line and a column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character within the line.
    pub column: usize,
}

/// The files read so far: the main file and included ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

#[derive(Clone, Debug)]
struct SourceFile {
    name: String,
    text: String,
}

impl Sources {
    /// Adds a file, with its name for messages. `None` if it is longer than 4 GiB, or if there are already 65,536
    /// files.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> Option<FileId> {
        let text = text.into();
        u32::try_from(text.len()).ok()?;
        let id = FileId(u16::try_from(self.files.len()).ok()?);
        let name = name.into();
        self.files.push(SourceFile { name, text });
        Some(id)
    }

    /// A file's text.
    pub fn text(&self, file: FileId) -> &str {
        self.files
            .get(usize::from(file.0))
            .map_or("", |file| &file.text)
    }

    /// A file's name.
    pub fn name(&self, file: FileId) -> &str {
        self.files
            .get(usize::from(file.0))
            .map_or("", |file| &file.name)
    }

    /// The position of the start of a span.
    pub fn position(&self, span: Span) -> Position {
        let text = self.text(span.file);
        let before = text.get(..span.start as usize).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Position {
            line: before.bytes().filter(|&byte| byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The line in which a span starts, with the span underlined:
    ///
    /// ```text
    ///   3 | tcpscan > output
    ///     |         ^
    /// ```
    pub fn excerpt(&self, span: Span) -> String {
        let text = self.text(span.file);
        let start = (span.start as usize).min(text.len());
        let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |length| start + length);
        // Of a long line what is around the place.
        let cut_start = nth_before(text, line_start, start);
        let cut_end = nth_after(text, start, line_end);
        let line = text[cut_start..cut_end].trim_end();
        let number = self.position(span).line.to_string();
        let margin = " ".repeat(number.len());
        let end = (span.end as usize).clamp(start, cut_end);
        let marks = text[start..end].trim_end().chars().count().max(1);
        let mut excerpt = format!("  {number} | {}\n  {margin} | ", printable(line));
        // Wide characters are rare here; a tab takes one column because it is shown as a space.
        let before = text[cut_start..start].chars().count();
        let _ = write!(excerpt, "{}{}", " ".repeat(before), "^".repeat(marks));
        excerpt
    }
}

/// Characters of a line that are shown before a place, and from it on.
const SHOWN: usize = 200;

/// Where in a line to begin to show it.
fn nth_before(text: &str, line_start: usize, at: usize) -> usize {
    let mut before = text[line_start..at].char_indices().rev();
    before
        .nth(SHOWN - 1)
        .map_or(line_start, |(offset, _)| line_start + offset)
}

/// Where in a line to end.
fn nth_after(text: &str, at: usize, line_end: usize) -> usize {
    let mut after = text[at..line_end].char_indices();
    after.nth(SHOWN).map_or(line_end, |(offset, _)| at + offset)
}

/// What a terminal obeys becomes spaces and question marks.
fn printable(line: &str) -> String {
    line.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if harmless(c) != c => '?',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_line_and_a_column_in_characters() {
        let mut sources = Sources::default();
        let file = sources.add("a.stack", "[stack]\n  größe > output\n");
        let file = file.expect("room for one file");
        let start = 8 + 2 + "größe ".len() as u32;
        let span = Span {
            file,
            start,
            end: start + 1,
        };
        assert_eq!(sources.position(span), Position { line: 2, column: 9 });
        assert_eq!(
            sources.excerpt(span),
            "  2 |   größe > output\n    |         ^"
        );
    }

    #[test]
    fn of_a_long_line_what_is_around_the_place_is_shown() {
        let mut sources = Sources::default();
        let text = format!("{}!{}", "ä".repeat(5000), "b".repeat(5000));
        let file = sources.add("a.stack", text).expect("room");
        let span = Span {
            file,
            start: 10_000,
            end: 12_000,
        };
        assert_eq!(sources.position(span).column, 5001);
        assert_eq!(
            sources.excerpt(span),
            format!(
                "  1 | {}!{}\n    | {}{}",
                "ä".repeat(200),
                "b".repeat(199),
                " ".repeat(200),
                "^".repeat(200)
            )
        );
    }

    #[test]
    fn the_end_of_the_text_has_a_place() {
        let mut sources = Sources::default();
        let file = sources.add("a.stack", "count").expect("room");
        let span = Span {
            file,
            start: 5,
            end: 5,
        };
        assert_eq!(sources.position(span), Position { line: 1, column: 6 });
        assert_eq!(sources.excerpt(span), "  1 | count\n    |      ^");
    }
}
