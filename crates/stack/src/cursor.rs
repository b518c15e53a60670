//! A position in a text that is read from left to right, and the text skipped on the way.

use crate::diagnostic::Diagnostic;
use crate::source::{FileId, Span};
use crate::syntax::Name;

/// Reads a file character by character.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) file: FileId,
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(file: FileId, text: &'a str) -> Cursor<'a> {
        Cursor { file, text, at: 0 }
    }

    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Takes `c` if it comes next.
    pub(crate) fn eat(&mut self, c: char) -> bool {
        let comes = self.peek() == Some(c);
        if comes {
            self.at += c.len_utf8();
        }
        comes
    }

    /// What was read since `start`.
    pub(crate) fn span_from(&self, start: usize) -> Span {
        Span {
            file: self.file,
            start: start as u32,
            end: self.at as u32,
        }
    }

    /// The next character, or word, for messages about it.
    pub(crate) fn here(&self) -> Span {
        let length = match self.peek() {
            None => 0,
            Some(c) if is_name(c) => self
                .rest()
                .find(|c: char| !is_name(c))
                .unwrap_or(self.rest().len()),
            Some(c) => c.len_utf8(),
        };
        Span {
            file: self.file,
            start: self.at as u32,
            end: (self.at + length) as u32,
        }
    }

    /// "expected ..., found ..."
    pub(crate) fn expected(&self, what: &str) -> Diagnostic {
        let here = self.here();
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some('\n') => "the end of the line".to_owned(),
            Some(_) => {
                let found = &self.text[here.start as usize..here.end as usize];
                format!("'{}'", found.escape_debug())
            }
        };
        Diagnostic::error(here, format!("expected {what}, found {found}"))
    }

    /// Skips blanks on this line.
    pub(crate) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\r')) {
            self.at += 1;
        }
    }

    /// Skips blanks, line ends and comments, and returns the comments. A blank line between two
    /// comments is an empty one, and one that says nothing is a blank.
    pub(crate) fn skip(&mut self) -> Vec<String> {
        let mut comments: Vec<String> = Vec::new();
        let mut lines = 0;
        loop {
            match self.peek() {
                Some('\n') => {
                    lines += 1;
                    self.at += 1;
                }
                Some('#') => {
                    let mut comment = self.comment();
                    if lines > 1 && !comments.is_empty() {
                        comments.push(String::new());
                    }
                    lines = 0;
                    if comment.is_empty() {
                        comment.push(' ');
                    }
                    comments.push(comment);
                }
                Some(c) if c.is_whitespace() => {
                    self.bump();
                }
                _ => return comments,
            }
        }
    }

    /// The comment behind what was just read, if there is one on the same line.
    pub(crate) fn comment_behind(&mut self) -> Option<String> {
        let blanks = self.rest().find(|c| !matches!(c, ' ' | '\t' | '\r'))?;
        if !self.rest()[blanks..].starts_with('#') {
            return None;
        }
        self.at += blanks;
        Some(self.comment())
    }

    /// From `#` to the end of the line, which stays.
    fn comment(&mut self) -> String {
        let line = self.rest_of_line();
        self.at += line.len();
        let text = line.trim_start_matches('#');
        text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned()
    }

    /// Up to the end of the line.
    pub(crate) fn rest_of_line(&self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.find('\n').unwrap_or(rest.len())]
    }

    /// A name, if one comes next: of a component, an option, a stack.
    pub(crate) fn name(&mut self) -> Option<Name> {
        if !self
            .peek()
            .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            return None;
        }
        let start = self.at;
        let length = self
            .rest()
            .find(|c| !is_name(c))
            .unwrap_or(self.rest().len());
        self.at += length;
        Some(Name {
            text: self.text[start..self.at].to_owned(),
            span: self.span_from(start),
        })
    }
}

/// What names are made of.
pub(crate) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}
