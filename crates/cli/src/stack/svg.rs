//! A stack as a picture.

use std::fmt::Write as _;

use flowgauge_record::text::harmless;
use flowgauge_stack::{Inner, NodeId, Stack};

/// Of a letter of the font, and of a line of it, in pixels.
const LETTER: usize = 8;
const LINE: usize = 28;
/// Between components, and around what is in one.
const GAP: usize = 24;
const MARGIN: usize = 10;

/// All stacks, one below the other, as SVG 1.1.
pub(super) fn svg(stacks: &[Stack]) -> String {
    let mut body = String::new();
    let (mut width, mut y) = (0, MARGIN);
    for stack in stacks {
        let name = stack.name.as_deref().unwrap_or("stack");
        let title = format!("{name}: {}", super::show::cores(stack));
        text(&mut body, MARGIN, y + 18, &title, "title");
        y += LINE;
        let (wide, high) = row(&mut body, stack, stack.entry, MARGIN, y);
        width = width.max(wide).max(title.chars().count() * LETTER);
        y += high + 2 * MARGIN;
    }
    let width = width + 2 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" \
         viewBox=\"0 0 {width} {y}\">\n\
         <style>text {{ font: 13px monospace; }} .title {{ font-weight: bold; }} .small {{ fill: #555; }} \
         rect {{ fill: #f6f8fa; stroke: #444; }} .keys {{ stroke-dasharray: 5 3; fill: #fff; }} \
         .branch {{ stroke: #aaa; fill: #fff; }} line {{ stroke: #444; }}</style>\n{body}</svg>\n"
    )
}

/// Draws a row from a place on; returns its width and height.
fn row(out: &mut String, stack: &Stack, first: NodeId, x: usize, y: usize) -> (usize, usize) {
    let (mut at, mut high) = (x, 0);
    for id in stack.row(first) {
        if at > x {
            let middle = y + LINE / 2;
            let _ = writeln!(
                out,
                "<line x1=\"{at}\" y1=\"{middle}\" x2=\"{}\" y2=\"{middle}\"/>",
                at + GAP
            );
            at += GAP;
        }
        let (wide, tall) = component(out, stack, id, at, y);
        at += wide;
        high = high.max(tall);
    }
    (at - x, high)
}

fn component(out: &mut String, stack: &Stack, id: NodeId, x: usize, y: usize) -> (usize, usize) {
    let node = stack.node(id);
    let mut inside = String::new();
    let (mut width, mut height) = (node.label.chars().count() * LETTER, LINE);
    let rows: Vec<(NodeId, &str, String)> = match &node.inner {
        Inner::Nothing => Vec::new(),
        Inner::PerKey(first) => vec![(*first, "keys", "per key".to_owned())],
        Inner::Branches(firsts) => {
            let numbered = firsts.iter().enumerate();
            let branch =
                |(number, first): (usize, &NodeId)| (*first, "branch", format!("branch {number}"));
            numbered.map(branch).collect()
        }
    };
    for (first, class, name) in rows {
        let (left, top) = (x + MARGIN, y + height);
        let mut drawn = String::new();
        let (wide, high) = row(&mut drawn, stack, first, left + MARGIN, top + LINE);
        let wide = (wide + 2 * MARGIN).max(name.len() * LETTER + 2 * MARGIN);
        let high = high + LINE + MARGIN;
        rectangle(&mut inside, (left, top, wide, high), class, "");
        text(&mut inside, left + MARGIN, top + 18, &name, "small");
        inside.push_str(&drawn);
        width = width.max(wide);
        height += high + MARGIN;
    }
    let width = width + 2 * MARGIN;
    let set = node.settings.iter();
    let set: Vec<String> = set
        .map(|setting| format!("{} = {}", setting.option.name, setting.value))
        .collect();
    let about = format!("{} -> {}\n{}", node.input, node.output, set.join("\n"));
    rectangle(out, (x, y, width, height), "component", about.trim());
    text(out, x + MARGIN, y + 18, &node.label, "label");
    out.push_str(&inside);
    (width, height)
}

/// A box; whoever points at it reads `about`.
fn rectangle(
    out: &mut String,
    (x, y, width, height): (usize, usize, usize, usize),
    class: &str,
    about: &str,
) {
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\">\
         <title>{}</title></rect>",
        escaped(about)
    );
}

fn text(out: &mut String, x: usize, y: usize, what: &str, class: &str) {
    let what = escaped(what);
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{what}</text>"
    );
}

/// Text within XML: what has a meaning there, or no place in it, is replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            letter => out.push(harmless(letter)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use flowgauge_stack::{Sources, check, parse};

    use super::*;

    /// The elements' names with their attributes; panics where the text is not well formed.
    fn elements(xml: &str) -> Vec<String> {
        let (mut open, mut all) = (Vec::new(), Vec::new());
        let mut rest = xml;
        while let Some(at) = rest.find('<') {
            let text = &rest[..at];
            assert!(!text.contains('>'), "{text}");
            for entity in text.split('&').skip(1) {
                let known = ["amp;", "lt;", "gt;", "quot;"];
                assert!(
                    known.iter().any(|name| entity.starts_with(name)),
                    "{entity}"
                );
            }
            let end = rest[at..].find('>').expect("it is closed") + at;
            let tag = &rest[at + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name.to_owned()));
                continue;
            }
            let name = tag.split([' ', '/']).next().expect("a name").to_owned();
            all.push(tag.to_owned());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
        all
    }

    #[test]
    fn a_picture_is_well_formed_and_has_a_box_for_each_component() {
        let text = "[stack a]\nipprotoswitch ( tcpscan tcpcnxdemux < identity count > | \
                    udpscan filter { \"len > 9 && port 53\" } count )\noutput { \"a<b>&.pcap\" }\n\
                    [stack b] count";
        let mut sources = Sources::default();
        let file = sources.add("test", text.to_owned()).expect("room");
        let document = parse(&sources, file).expect("it can be read");
        let checked = check(&document, flowgauge_registry::registry());
        let stacks = checked.program.expect("it is right").stacks;
        let all = elements(&svg(&stacks));
        let boxes = |class: &str| {
            let class = format!("class=\"{class}\"");
            all.iter().filter(|tag| tag.contains(&class)).count()
        };
        let components: usize = stacks.iter().map(|stack| stack.nodes.len()).sum();
        assert_eq!(boxes("component"), components);
        assert_eq!((boxes("branch"), boxes("keys"), boxes("title")), (2, 1, 2));
        let lines = all.iter().filter(|tag| tag.starts_with("line")).count();
        assert_eq!(lines, 5);
    }
}
