//! A stack file as it is written: what the parser makes and the formatter prints.
//!
//! Comments are kept with what they stand before or behind, so that formatting loses none.

use crate::source::Span;

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// In the order of the file.
    pub items: Vec<Item>,
    /// Comments behind the last item.
    pub comments: Vec<String>,
}

impl Document {
    /// Of one stack without a name.
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

/// What a file is made of.
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
    /// Whether it runs, or is a component of others.
    pub kind: StackKind,
    /// Its name; a sub-stack has one.
    pub name: Option<Name>,
    /// Its components.
    pub body: Body,
    /// The header.
    pub span: Span,
    /// Comments around the header.
    pub comments: Comments,
}

/// Components in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// At least one.
    pub nodes: Vec<Node>,
    /// Comments behind the last.
    pub trailing: Vec<String>,
}

/// Which kind of stack a section has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackKind {
    /// `[stack]`: runs.
    Stack,
    /// `[substack name]`: to be used as a component.
    Substack,
}

/// Options of one component or of all with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionSection {
    /// The component.
    pub component: Name,
    /// Which of the components with this name in the stack, from 0 in the order of appearance;
    /// `None`: all.
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
    /// The option; `None` where a value stands alone in braces, and its place says which it is.
    pub option: Option<Name>,
    /// Its value.
    pub value: Value,
    /// Evaluated once, not for each instance that a demultiplexer makes.
    pub is_static: bool,
    /// Comments around it.
    pub comments: Comments,
}

/// A component in a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which component.
    pub name: Name,
    /// Options in braces behind the name.
    pub options: Vec<Assignment>,
    /// Comments before the closing brace.
    pub option_comments: Vec<String>,
    /// What is in it.
    pub shape: Shape,
    /// Whether a `-` follows, which changes nothing.
    pub has_dash: bool,
    /// From the name to the closing bracket.
    pub span: Span,
    /// Comments around it.
    pub comments: Comments,
}

/// What a component contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Simple,
    /// `< stack >`: a sub-stack per key.
    Demux(Body),
    /// `( stack | stack )`: branches.
    Switch(Vec<Body>),
}

/// A name and where it stands. Names of components and options ignore case.
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

/// The value of an option as written; what it means depends on the option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Without quotes, escapes resolved.
    pub text: String,
    /// Whether it was in quotes: then it is a text, even if it looks like a number.
    pub is_quoted: bool,
    /// Where, quotes included.
    pub span: Span,
}

/// Comments of one thing, without `#` and the spaces behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comments {
    /// On lines of their own before it; an empty text is a blank line between comments, a blank one a
    /// comment that says nothing.
    pub before: Vec<String>,
    /// Behind it on its line.
    pub behind: Option<String>,
}
