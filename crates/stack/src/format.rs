//! The formatter, from syntax to text in the standard layout.
//!
//! Text that fits on a line is not broken; longer text is broken at its outermost level first. Sections are separated
//! by a blank line. Formatting is idempotent.

use crate::syntax::{
    Assignment, Body, Comments, Document, Item, Node, OptionSection, Shape, StackKind,
    StackSection, Value,
};

const WIDTH: usize = 100;
const STEP: usize = 4;

/// A file as text.
pub fn format(document: &Document) -> String {
    let mut out = Lines::default();
    for (index, item) in document.items.iter().enumerate() {
        let follows_include = index > 0 && matches!(document.items[index - 1], Item::Include(_));
        if index > 0 && !(follows_include && matches!(item, Item::Include(_))) {
            out.blank();
        }
        match item {
            Item::Include(include) => {
                let line = format!("include {}", quoted(&include.path));
                out.commented(0, &line, &include.comments);
            }
            Item::Stack(section) => stack(&mut out, section),
            Item::Options(section) => options(&mut out, section),
        }
    }
    if !document.comments.is_empty() && !document.items.is_empty() {
        out.blank();
    }
    out.comments(0, &document.comments);
    out.text
}

/// A stack on one line, without comments.
pub fn format_line(body: &Body) -> String {
    let nodes: Vec<String> = body.nodes.iter().map(node_line).collect();
    nodes.join(" ")
}

fn stack(out: &mut Lines, section: &StackSection) {
    let kind = match section.kind {
        StackKind::Stack => "stack",
        StackKind::Substack => "substack",
    };
    let header = match &section.name {
        Some(name) => format!("[{kind} {}]", name.text),
        None => format!("[{kind}]"),
    };
    out.commented(0, &header, &section.comments);
    body(out, &section.body, 0, "");
}

fn options(out: &mut Lines, section: &OptionSection) {
    let name = &section.component.text;
    let header = match section.instance {
        Some((number, _)) => format!("[{name}({number})]"),
        None => format!("[{name}]"),
    };
    out.commented(0, &header, &section.comments);
    for assignment in &section.assignments {
        out.commented(0, &assignment_line(assignment), &assignment.comments);
    }
}

/// The components of a row, each line `indent` deep; the first line begins with `prefix`, which
/// takes room of the indentation.
fn body(out: &mut Lines, body: &Body, indent: usize, prefix: &str) {
    let mut prefix = prefix;
    if is_plain(body) && indent + format_line(body).len() <= WIDTH {
        out.line(indent, prefix, &format_line(body));
        return;
    }
    for node in &body.nodes {
        node_lines(out, node, indent, prefix);
        prefix = "";
    }
    out.comments(indent, &body.trailing);
}

fn node_lines(out: &mut Lines, node: &Node, indent: usize, prefix: &str) {
    let one = node_line(node);
    let has_inner_comments = !node.option_comments.is_empty()
        || node.options.iter().any(has_comments)
        || !{
            match &node.shape {
                Shape::Simple => true,
                Shape::Demux(inner) => is_plain(inner),
                Shape::Switch(branches) => branches.iter().all(is_plain),
            }
        };
    let (before, behind) = (&node.comments.before, node.comments.behind.as_deref());
    let mut prefix = prefix;
    if !before.is_empty() {
        if !prefix.is_empty() {
            out.line(indent, prefix, "");
            prefix = "";
        }
        out.comments(indent, before);
    }
    let is_short = indent + one.len() <= WIDTH || node.is_only_a_name();
    if is_short && !has_inner_comments {
        out.line(indent, prefix, &one);
        out.behind(behind);
        return;
    }
    out.line(indent, prefix, &node.name.text);
    braces(out, node, indent);
    match &node.shape {
        Shape::Simple => {}
        Shape::Demux(inner) => {
            out.append(" <");
            body(out, inner, indent + STEP, "");
            out.line(indent, "", ">");
        }
        Shape::Switch(branches) => {
            out.append(" (");
            for (index, branch) in branches.iter().enumerate() {
                let bar = if index == 0 { "" } else { "| " };
                body(out, branch, indent + STEP, bar);
            }
            out.line(indent, "", ")");
        }
    }
    if node.has_dash {
        out.append(" -");
    }
    out.behind(behind);
}

fn braces(out: &mut Lines, node: &Node, indent: usize) {
    if node.options.is_empty() && node.option_comments.is_empty() {
        return;
    }
    let one = braces_line(&node.options);
    let is_plain = node.option_comments.is_empty() && !node.options.iter().any(has_comments);
    if is_plain && indent + node.name.text.len() + one.len() <= WIDTH {
        out.append(&one);
        return;
    }
    out.append(" {");
    let inside = indent + STEP;
    for assignment in &node.options {
        out.comments(inside, &assignment.comments.before);
        let line = format!("{},", assignment_line(assignment));
        out.line(inside, "", &line);
        out.behind(assignment.comments.behind.as_deref());
    }
    out.comments(inside, &node.option_comments);
    out.line(indent, "", "}");
}

fn node_line(node: &Node) -> String {
    let mut line = node.name.text.clone();
    if !node.options.is_empty() {
        line += &braces_line(&node.options);
    }
    match &node.shape {
        Shape::Simple => {}
        Shape::Demux(inner) => line += &format!(" < {} >", format_line(inner)),
        Shape::Switch(branches) => {
            let branches: Vec<String> = branches.iter().map(format_line).collect();
            line += &format!(" ( {} )", branches.join(" | "));
        }
    }
    if node.has_dash {
        line += " -";
    }
    line
}

fn braces_line(options: &[Assignment]) -> String {
    let options: Vec<String> = options.iter().map(assignment_line).collect();
    format!(" {{ {} }}", options.join(", "))
}

fn assignment_line(assignment: &Assignment) -> String {
    let value = value(&assignment.value);
    let fixed = if assignment.is_static { "static " } else { "" };
    match &assignment.option {
        Some(name) => format!("{fixed}{} = {value}", name.text),
        None => value,
    }
}

fn value(value: &Value) -> String {
    if value.is_quoted {
        quoted(&value.text)
    } else {
        value.text.clone()
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether nothing in it has a comment.
fn is_plain(body: &Body) -> bool {
    let is_plain_node = |node: &Node| {
        node.comments == Comments::default()
            && node.option_comments.is_empty()
            && !node.options.iter().any(has_comments)
            && match &node.shape {
                Shape::Simple => true,
                Shape::Demux(inner) => is_plain(inner),
                Shape::Switch(branches) => branches.iter().all(is_plain),
            }
    };
    body.trailing.is_empty() && body.nodes.iter().all(is_plain_node)
}

fn has_comments(assignment: &Assignment) -> bool {
    assignment.comments != Comments::default()
}

impl Node {
    fn is_only_a_name(&self) -> bool {
        self.options.is_empty() && self.shape == Shape::Simple
    }
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, indent: usize, prefix: &str, text: &str) {
        let indent = indent.saturating_sub(prefix.len());
        let start = self.text.len();
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text += prefix;
        self.text += text;
        let length = self.text[start..].trim_end().len();
        self.text.truncate(start + length);
        self.text.push('\n');
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// To the end of the last line.
    fn append(&mut self, text: &str) {
        self.text.pop();
        self.text += text;
        self.text.push('\n');
    }

    fn behind(&mut self, comment: Option<&str>) {
        if let Some(comment) = comment {
            self.append(format!("  # {comment}").trim_end());
        }
    }

    fn comments(&mut self, indent: usize, comments: &[String]) {
        for comment in comments {
            if comment.is_empty() {
                self.blank();
            } else {
                self.line(indent, "", format!("# {comment}").trim_end());
            }
        }
    }

    fn commented(&mut self, indent: usize, line: &str, comments: &Comments) {
        self.comments(indent, &comments.before);
        self.line(indent, "", line);
        self.behind(comments.behind.as_deref());
    }
}
