//! The parser, from text to syntax.
//!
//! ```text
//! file      ::= (include | section)*
//! include   ::= 'include' value end-of-line
//! section   ::= '[' 'stack' name? ']' stack
//!             | '[' 'substack' name ']' stack
//!             | '[' name ('(' number ')')? ']' end-of-line (assignment end-of-line)*
//! stack     ::= component+
//! component ::= name options? ('<' stack '>' | '(' stack ('|' stack)* ')')? '-'?
//! options   ::= '{' (argument (',' argument)* ','?)? '}'
//! argument  ::= assignment | value
//! assignment::= 'static'? name '=' value
//! value     ::= '"' ... '"' | what there is up to the end of the line (in braces: or to ',' or '}')
//! name      ::= [A-Za-z0-9_] [A-Za-z0-9_.]*
//! ```
//!
//! `#` starts a comment; within a value, only after a blank. In quotes, `\"`, `\\`, `\n`, `\t` and `\r` are escapes.
//! The grammar of the paper (figures 2, 4 and 5) is a subset.

use crate::cursor::Cursor;
use crate::diagnostic::Diagnostic;
use crate::source::{FileId, Sources, Span};
use crate::syntax::{
    Assignment, Body, Comments, Document, Include, Item, Name, Node, OptionSection, Shape,
    StackKind, StackSection, Value,
};

/// Maximum nesting depth of components.
pub const MAX_DEPTH: usize = 64;

/// Maximum number of components in a file.
pub const MAX_COMPONENTS: usize = 16_384;

/// Parses a file.
///
/// # Errors
/// The first syntax error.
pub fn parse(sources: &Sources, file: FileId) -> Result<Document, Box<Diagnostic>> {
    Parser::new(sources, file).document().map_err(Box::new)
}

/// Parses a stack without its header, as on a command line: `tcpscan - count`.
///
/// # Errors
/// The first syntax error.
pub fn parse_stack(sources: &Sources, file: FileId) -> Result<Body, Box<Diagnostic>> {
    let mut parser = Parser::new(sources, file);
    parser.whole_stack().map_err(Box::new)
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    components: usize,
}

type Parsed<T> = Result<T, Diagnostic>;

impl<'a> Parser<'a> {
    fn new(sources: &'a Sources, file: FileId) -> Parser<'a> {
        Parser {
            cursor: Cursor::new(file, sources.text(file)),
            components: 0,
        }
    }

    fn whole_stack(&mut self) -> Parsed<Body> {
        let mut body = self.body(0, "")?;
        body.trailing.extend(self.cursor.skip());
        match self.cursor.peek() {
            None => Ok(body),
            Some(_) => Err(self.cursor.expected("a component")),
        }
    }

    fn document(&mut self) -> Parsed<Document> {
        let mut document = Document::default();
        loop {
            let before = self.cursor.skip();
            if self.cursor.peek().is_none() {
                document.comments = before;
                return Ok(document);
            }
            let item = if self.cursor.peek() == Some('[') {
                self.section(before)?
            } else if self.is_include() {
                Item::Include(self.include(before)?)
            } else {
                return Err(self.cursor.expected("a section such as [stack]").with_hint(
                    "components stand below a line [stack], options below [component]",
                ));
            };
            document.items.push(item);
        }
    }

    /// Whether the word `include` comes next.
    fn is_include(&self) -> bool {
        let mut ahead = self.cursor.clone();
        ahead
            .name()
            .is_some_and(|name| name.text.eq_ignore_ascii_case("include"))
    }

    fn include(&mut self, before: Vec<String>) -> Parsed<Include> {
        let start = self.cursor.at;
        self.cursor.name();
        self.cursor.skip_blanks();
        let value = self.value(Ends::Line)?;
        let span = self.cursor.span_from(start);
        let behind = self.end_of_line("the name of a file")?;
        Ok(Include {
            path: value.text,
            span,
            comments: Comments { before, behind },
        })
    }

    fn section(&mut self, before: Vec<String>) -> Parsed<Item> {
        let start = self.cursor.at;
        self.cursor.eat('[');
        self.cursor.skip_blanks();
        let Some(name) = self.cursor.name() else {
            return Err(self
                .cursor
                .expected("stack, substack or the name of a component"));
        };
        self.cursor.skip_blanks();
        let kind = match name.key().as_str() {
            "stack" => Some(StackKind::Stack),
            "substack" => Some(StackKind::Substack),
            _ => None,
        };
        match kind {
            Some(kind) => self.stack_section(kind, start, before),
            None => self.option_section(name, start, before),
        }
    }

    fn stack_section(
        &mut self,
        kind: StackKind,
        start: usize,
        before: Vec<String>,
    ) -> Parsed<Item> {
        let name = self.cursor.name();
        if name.is_none() && kind == StackKind::Substack {
            return Err(self
                .cursor
                .expected("the name of the sub-stack")
                .with_hint("a sub-stack is used by its name, as a component: [substack web]"));
        }
        self.close_header(if name.is_some() {
            "']'"
        } else {
            "a name or ']'"
        })?;
        let span = self.cursor.span_from(start);
        let behind = self.cursor.comment_behind();
        let body = self.body(0, "")?;
        Ok(Item::Stack(StackSection {
            kind,
            name,
            body,
            span,
            comments: Comments { before, behind },
        }))
    }

    fn option_section(
        &mut self,
        component: Name,
        start: usize,
        before: Vec<String>,
    ) -> Parsed<Item> {
        let instance = self.instance()?;
        self.close_header(if instance.is_some() {
            "']'"
        } else {
            "']' or the number of an instance in brackets"
        })?;
        let span = self.cursor.span_from(start);
        let behind = self.end_of_line("']'")?;
        let mut section = OptionSection {
            component,
            instance,
            assignments: Vec::new(),
            span,
            comments: Comments { before, behind },
        };
        loop {
            let place = self.cursor.at;
            let before = self.cursor.skip();
            let next = self.cursor.peek();
            if next.is_none_or(|c| c == '[') || self.is_include() && !self.is_assignment() {
                // What stands right before the next section belongs to that.
                self.cursor.at = place;
                return Ok(Item::Options(section));
            }
            let mut assignment = self.assignment(Ends::Line)?;
            assignment.comments = Comments {
                before,
                behind: self.end_of_line("the value")?,
            };
            section.assignments.push(assignment);
        }
    }

    /// `(k)` behind the name of a component in a header.
    fn instance(&mut self) -> Parsed<Option<(u32, Span)>> {
        if !self.cursor.eat('(') {
            return Ok(None);
        }
        self.cursor.skip_blanks();
        let start = self.cursor.at;
        let digits = self
            .cursor
            .rest()
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.cursor.rest().len());
        if digits == 0 {
            return Err(self.cursor.expected("a number").with_hint(
                "components with one name are counted from 0 in the order in which they stand",
            ));
        }
        let text = &self.cursor.rest()[..digits];
        self.cursor.at += digits;
        let span = self.cursor.span_from(start);
        let number = text
            .parse()
            .ok()
            .filter(|&number: &u32| (number as usize) < MAX_COMPONENTS)
            .ok_or_else(|| {
                Diagnostic::error(span, format!("{text} is more than any instance's number"))
            })?;
        self.cursor.skip_blanks();
        if !self.cursor.eat(')') {
            return Err(self.cursor.expected("')'"));
        }
        self.cursor.skip_blanks();
        Ok(Some((number, span)))
    }

    fn close_header(&mut self, what: &str) -> Parsed<()> {
        self.cursor.skip_blanks();
        if self.cursor.eat(']') {
            return Ok(());
        }
        Err(self.cursor.expected(what))
    }

    /// Nothing but a comment may follow on this line.
    fn end_of_line(&mut self, behind: &str) -> Parsed<Option<String>> {
        let comment = self.cursor.comment_behind();
        self.cursor.skip_blanks();
        match self.cursor.peek() {
            None | Some('\n') => Ok(comment),
            Some(_) => Err(self
                .cursor
                .expected(&format!("the end of the line after {behind}"))),
        }
    }

    /// Whether `name =` or `static name =` comes next.
    fn is_assignment(&self) -> bool {
        let mut ahead = self.cursor.clone();
        let Some(first) = ahead.name() else {
            return false;
        };
        ahead.skip_blanks();
        if first.text.eq_ignore_ascii_case("static") && ahead.peek() != Some('=') {
            ahead.name();
            ahead.skip_blanks();
        }
        ahead.peek() == Some('=')
    }

    fn assignment(&mut self, ends: Ends) -> Parsed<Assignment> {
        let Some(mut option) = self.cursor.name() else {
            return Err(self.cursor.expected("the name of an option"));
        };
        self.cursor.skip_blanks();
        let mut is_static = false;
        if option.text.eq_ignore_ascii_case("static") && self.cursor.peek() != Some('=') {
            is_static = true;
            option = match self.cursor.name() {
                Some(name) => name,
                None => return Err(self.cursor.expected("the name of an option")),
            };
            self.cursor.skip_blanks();
        }
        if !self.cursor.eat('=') {
            return Err(self
                .cursor
                .expected(&format!("'=' after {}", option.text))
                .with_hint("an option is written as: name = value"));
        }
        self.cursor.skip_blanks();
        Ok(Assignment {
            option: Some(option),
            value: self.value(ends)?,
            is_static,
            comments: Comments::default(),
        })
    }

    fn value(&mut self, ends: Ends) -> Parsed<Value> {
        if self.cursor.peek() == Some('"') {
            return self.quoted();
        }
        let start = self.cursor.at;
        let mut previous = ' ';
        // Fields of names of files, as %{key}, have brackets of their own.
        let mut is_field = false;
        while let Some(c) = self.cursor.peek() {
            is_field = match c {
                '{' => previous == '%',
                _ => is_field && c != '\n',
            };
            let is_end = match c {
                '\n' => true,
                '}' if is_field => {
                    is_field = false;
                    false
                }
                '#' => previous == ' ' || previous == '\t',
                ',' | '}' => ends == Ends::Brace,
                _ => false,
            };
            if is_end {
                break;
            }
            previous = c;
            self.cursor.bump();
        }
        let text = self.cursor.text[start..self.cursor.at].trim_end();
        self.cursor.at = start + text.len();
        if text.is_empty() {
            return Err(self
                .cursor
                .expected("a value")
                .with_hint("an empty text is written as \"\""));
        }
        Ok(Value {
            text: text.to_owned(),
            is_quoted: false,
            span: self.cursor.span_from(start),
        })
    }

    fn quoted(&mut self) -> Parsed<Value> {
        let start = self.cursor.at;
        self.cursor.eat('"');
        let mut text = String::new();
        loop {
            let place = self.cursor.at;
            match self.cursor.bump() {
                Some('"') => break,
                None | Some('\n') => {
                    self.cursor.at = place;
                    let span = self.cursor.span_from(start);
                    return Err(Diagnostic::error(span, "the quotes are not closed")
                        .with_hint("a quote inside is written as \\\", a line end as \\n"));
                }
                Some('\\') => match self.cursor.bump() {
                    Some(c @ ('"' | '\\')) => text.push(c),
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    // Patterns and regular expressions have backslashes of their own.
                    Some(c) if c != '\n' => text.extend(['\\', c]),
                    _ => self.cursor.at = place + 1,
                },
                Some(c) => text.push(c),
            }
        }
        Ok(Value {
            text,
            is_quoted: true,
            span: self.cursor.span_from(start),
        })
    }

    /// Components up to a closing character, the next section, or the end. `closing` says, for
    /// messages, what else might have come.
    fn body(&mut self, depth: usize, closing: &str) -> Parsed<Body> {
        let mut body = Body::default();
        loop {
            let place = self.cursor.at;
            let before = self.cursor.skip();
            let is_over = match self.cursor.peek() {
                None => true,
                Some('[') => depth == 0,
                Some('>' | ')' | '|') => depth > 0,
                Some(_) => depth == 0 && self.is_include(),
            };
            if is_over && !body.nodes.is_empty() {
                if depth == 0 {
                    self.cursor.at = place;
                } else {
                    body.trailing = before;
                }
                return Ok(body);
            }
            let name = (!is_over).then(|| self.cursor.name()).flatten();
            let Some(name) = name else {
                let what = match (body.nodes.is_empty(), closing.is_empty()) {
                    (true, _) => "a component".to_owned(),
                    (false, true) => "a component or a section".to_owned(),
                    (false, false) => format!("a component or {closing}"),
                };
                let hint = match self.cursor.peek() {
                    _ if self.is_include() => {
                        "include reads a file of stacks and sections: put it before or after a stack"
                    }
                    Some('=') => "options stand in braces: interface { device = eth0 }",
                    Some('|') => {
                        "components are joined by '-'; '|' separates the branches of a switch: ( a | b )"
                    }
                    _ => {
                        "a stack is written as: component - component { option = value } - component"
                    }
                };
                return Err(self.cursor.expected(&what).with_hint(hint));
            };
            body.nodes.push(self.node(name, before, depth)?);
        }
    }

    fn node(&mut self, name: Name, before: Vec<String>, depth: usize) -> Parsed<Node> {
        self.components += 1;
        if self.components > MAX_COMPONENTS {
            let message = format!("more than {MAX_COMPONENTS} components");
            return Err(Diagnostic::error(name.span, message));
        }
        let mut node = Node {
            options: Vec::new(),
            option_comments: Vec::new(),
            shape: Shape::Simple,
            has_dash: false,
            span: name.span,
            comments: Comments {
                before,
                behind: None,
            },
            name,
        };
        if self.comes("{", &mut node.comments.before) {
            self.braces(&mut node)?;
        }
        if self.comes("<(", &mut node.comments.before) {
            if depth + 1 >= MAX_DEPTH {
                let message = format!("components stand more than {MAX_DEPTH} deep in each other");
                return Err(Diagnostic::error(node.span, message));
            }
            node.shape = self.inner(depth + 1)?;
        }
        node.span = self.cursor.span_from(node.span.start as usize);
        node.has_dash = self.comes("-", &mut node.comments.before) && self.cursor.eat('-');
        node.comments.behind = self.cursor.comment_behind();
        Ok(node)
    }

    /// Whether one of these characters comes next, behind blanks and comments, which are skipped
    /// then, and kept in `comments`.
    fn comes(&mut self, characters: &str, comments: &mut Vec<String>) -> bool {
        let place = self.cursor.at;
        let skipped = self.cursor.skip();
        let comes = self
            .cursor
            .peek()
            .is_some_and(|next| characters.contains(next));
        if comes {
            comments.extend(skipped);
        } else {
            self.cursor.at = place;
        }
        comes
    }

    fn inner(&mut self, depth: usize) -> Parsed<Shape> {
        if self.cursor.eat('<') {
            let body = self.body(depth, "'>'")?;
            if !self.cursor.eat('>') {
                return Err(self.cursor.expected("a component or '>'"));
            }
            return Ok(Shape::Demux(body));
        }
        self.cursor.eat('(');
        let mut branches = Vec::new();
        loop {
            branches.push(self.body(depth, "'|' or ')'")?);
            if self.cursor.eat(')') {
                return Ok(Shape::Switch(branches));
            }
            if !self.cursor.eat('|') {
                return Err(self.cursor.expected("a component, '|' or ')'"));
            }
        }
    }

    /// `{ option = value, "value" }`
    fn braces(&mut self, node: &mut Node) -> Parsed<()> {
        self.cursor.eat('{');
        loop {
            let before = self.cursor.skip();
            if self.cursor.eat('}') {
                node.option_comments = before;
                return Ok(());
            }
            let mut assignment = if self.is_assignment() {
                self.assignment(Ends::Brace)?
            } else {
                Assignment {
                    option: None,
                    value: self.value(Ends::Brace)?,
                    is_static: false,
                    comments: Comments::default(),
                }
            };
            assignment.comments.before = before;
            let place = self.cursor.at;
            let before_comma = self.cursor.skip();
            let has_comma = self.cursor.eat(',');
            if has_comma {
                assignment.comments.before.extend(before_comma);
                assignment.comments.behind = self.cursor.comment_behind();
            } else {
                self.cursor.at = place;
                assignment.comments.behind = self.cursor.comment_behind();
            }
            node.options.push(assignment);
            if !has_comma {
                node.option_comments = self.cursor.skip();
                if !self.cursor.eat('}') {
                    return Err(self.cursor.expected("',' or '}'"));
                }
                return Ok(());
            }
        }
    }
}

/// What ends a value without quotes besides the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Line,
    Brace,
}
