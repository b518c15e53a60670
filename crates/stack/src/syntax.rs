//! The syntax tree of a stack file, which the parser creates and the formatter prints.
//!
//! Comments are kept with the adjacent element, so that formatting does not lose them.

use crate::source::Span;

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// In the order of the file.
    pub items: Vec<Item>,
    /// Comments after the last item.
    pub comments: Vec<String>,
}

impl Document {
    /// A file with a single stack without a name.
    pub fn of(body: Body) -> Document {
        let section = StackSection {
            kind: StackKind::Stack,
            name: None,
            body,
            span: Span::default(),
            comments: Comments::default(),
        };
        Document {
            items: vec![Item::Stack(section)],
            comments: Vec::new(),
        }
    }
}

/// An item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `include "file"`
    Include(Include),
    /// `[stack]`, `[stack name]` or `[substack name]`
    Stack(StackSection),
    /// `[component]` or `[component(k)]`
    Options(OptionSection),
}

/// `include "file"`: another file's items, here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// As written, relative to the including file.
    pub path: String,
    /// The whole line.
    pub span: Span,
    /// Comments around it.
    pub comments: Comments,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSection {
    /// Whether it is a stack or a sub-stack.
    pub kind: StackKind,
    /// Its name, mandatory for sub-stacks.
    pub name: Option<Name>,
    /// Its components.
    pub body: Body,
    /// The header.
    pub span: Span,
    /// Comments around the header.
    pub comments: Comments,
}

/// A sequence of components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The components, at least one.
    pub nodes: Vec<Node>,
    /// Comments after the last one.
    pub trailing: Vec<String>,
}

/// The kind of a stack section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackKind {
    /// `[stack]`: runs.
    Stack,
    /// `[substack name]`: to be used as a component.
    Substack,
}

/// Options of one component, or of all components with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionSection {
    /// The component.
    pub component: Name,
    /// Index among the components with this name, in the order of appearance; `None`: all of them.
    pub instance: Option<(u32, Span)>,
    /// The options.
    pub assignments: Vec<Assignment>,
    /// The header.
    pub span: Span,
    /// Comments around the header.
    pub comments: Comments,
}

/// `option = value` or `static option = value`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The option; `None` for a lone value in braces, whose position determines the option.
    pub option: Option<Name>,
    /// Its value.
    pub value: Value,
    /// Whether it is evaluated once, instead of for each instance in a demultiplexer.
    pub is_static: bool,
    /// Comments around it.
    pub comments: Comments,
}

/// A component in a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which component.
    pub name: Name,
    /// Options in braces after the name.
    pub options: Vec<Assignment>,
    /// Comments before the closing brace.
    pub option_comments: Vec<String>,
    /// Its contents.
    pub shape: Shape,
    /// Whether a `-` follows, which has no meaning.
    pub has_dash: bool,
    /// From the name to the closing bracket.
    pub span: Span,
    /// Comments around it.
    pub comments: Comments,
}

/// The contents of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Simple,
    /// `< stack >`: a sub-stack per key.
    Demux(Body),
    /// `( stack | stack )`: branches.
    Switch(Vec<Body>),
}

/// A name and its position. Names of components and options are case-insensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// As written.
    pub text: String,
    /// Where.
    pub span: Span,
}

impl Name {
    /// In lower case.
    pub fn key(&self) -> String {
        self.text.to_ascii_lowercase()
    }
}

/// The value of an option as written; its meaning depends on the option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The text, without quotes and escapes.
    pub text: String,
    /// Whether it was in quotes, and thus is a text even if it looks like a number.
    pub is_quoted: bool,
    /// Where, quotes included.
    pub span: Span,
}

/// Comments of an element, without `#` and following spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comments {
    /// Comments on lines before it. An empty text is a blank line between comments, a blank text an empty comment.
    pub before: Vec<String>,
    /// A comment after it on the same line.
    pub behind: Option<String>,
}
