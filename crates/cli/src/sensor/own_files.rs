//! Files that a flow writes for its user: opened here, with the user's rights, and handed to the sensor.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use flowgauge_mapi::Target;
use flowgauge_registry::registry;
use flowgauge_stack::syntax::{Body, Node, Shape, Value};
use flowgauge_stack::{Sources, parse_stack};
use flowgauge_sys::files::{self, How};

use crate::failure::Failure;

/// Components whose option `file` names what they write.
const WRITERS: [&str; 3] = ["output", "result_to_file", "flow_export"];

/// The files that a stack writes, and its text for the sensor: it names the first `fd:0`, with the ending of its name, which says
/// what is written. What is wrong with the text is for the sensor to say.
pub(super) fn targets(stack: &str) -> (String, Vec<Target>) {
    let mut sources = Sources::default();
    let parsed = sources
        .add("flow", stack)
        .map(|file| parse_stack(&sources, file));
    let Some(Ok(body)) = parsed else {
        return (stack.to_owned(), Vec::new());
    };
    let mut named = Vec::new();
    find(&body, &mut named);
    let (mut text, mut at, mut targets) = (String::new(), 0, Vec::new());
    for value in named {
        text += &stack[at..value.span.start as usize];
        text += &format!("fd:{}{}", targets.len(), ending(Path::new(&value.text)));
        at = value.span.end as usize;
        targets.push(Target::File {
            path: value.text.clone(),
            begins: String::new(),
        });
    }
    text += &stack[at..];
    (text, targets)
}

/// Whether a stack ends with an output that names nothing. What is wrong with the text is for the sensor to say.
pub(super) fn ends_with_bare_output(stack: &str) -> bool {
    let mut sources = Sources::default();
    let file = sources.add("flow", stack);
    let parsed = file.map(|file| parse_stack(&sources, file));
    let Some(Ok(body)) = parsed else {
        return false;
    };
    let last = body.nodes.last().filter(|last| last.options.is_empty());
    let info = last.and_then(|last| registry().find(&last.name.text));
    info.is_some_and(|info| info.name == "output")
}

/// Whether a stack has no results, and keeps or writes nothing. What is wrong with the text is for the sensor to say.
pub(super) fn gives_nothing(stack: &str) -> bool {
    fn ends_nowhere(body: &Body) -> bool {
        body.nodes.iter().all(|node| {
            let info = registry().find(&node.name.text);
            let is_without = info.is_some_and(|info| !info.is_end && info.result.is_none());
            is_without
                && match &node.shape {
                    Shape::Simple => true,
                    Shape::Demux(body) => ends_nowhere(body),
                    Shape::Switch(branches) => branches.iter().all(ends_nowhere),
                }
        })
    }
    let mut sources = Sources::default();
    let file = sources.add("flow", stack);
    let parsed = file.map(|file| parse_stack(&sources, file));
    matches!(parsed, Some(Ok(body)) if ends_nowhere(&body))
}

/// Opens one of them. What is in it is lost once the sensor has the flow.
///
/// # Errors
/// It cannot be written.
pub(super) fn open(target: &Target) -> Result<OwnedFd, Failure> {
    let Target::File { path, .. } = target else {
        return target
            .open()
            .map_err(|error| Failure::run(error.to_string(), None));
    };
    let failed = |why: String| {
        let what = format!("cannot write {path}: {why}");
        Failure::usage(what, "name a file that you may write")
    };
    let path = Path::new(path);
    // A pipe would wait for a reader.
    if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(failed("not a regular file".to_owned()));
    }
    let file = files::named().open(path, How::keep());
    file.map(OwnedFd::from)
        .map_err(|error| failed(error.to_string()))
}

/// What the sensor says of files, with the names that their user gave them.
pub(super) fn named(said: &str, targets: &[Target]) -> String {
    let mut said = said.to_owned();
    // Of fd:12 before fd:1.
    for (at, target) in targets.iter().enumerate().rev() {
        if let Target::File { path, .. } = target {
            said = said.replace(&format!("fd:{at}{}", ending(Path::new(path))), path);
        }
    }
    said
}

/// The names of files that components write to, in the order of the text.
fn find<'a>(body: &'a Body, named: &mut Vec<&'a Value>) {
    for node in &body.nodes {
        named.extend(file(node));
        match &node.shape {
            Shape::Simple => {}
            Shape::Demux(body) => find(body, named),
            Shape::Switch(branches) => branches.iter().for_each(|body| find(body, named)),
        }
    }
}

fn file(node: &Node) -> Option<&Value> {
    let info = registry().find(&node.name.text)?;
    let first = info.options.first().map(|option| option.name);
    let is_file = |name: Option<&str>| name.or(first) == Some("file");
    let mut options = node.options.iter();
    let found = options.find(|it| is_file(it.option.as_ref().map(|name| name.key()).as_deref()))?;
    let value = &found.value;
    let is_name = value.text != "-" && files::handed(&value.text).is_none();
    (is_name && WRITERS.contains(&info.name)).then_some(value)
}

/// What follows the first dot of a file's name, or the last one where the name has others.
fn ending(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let known = [".gz", ".zst"];
    let compressed = known.iter().find(|ending| name.ends_with(**ending));
    let stem = name
        .strip_suffix(compressed.map_or("", |it| *it))
        .unwrap_or(&name);
    let kind = stem.rsplit_once('.').map_or("", |(_, kind)| kind);
    let is_good = !kind.is_empty() && kind.chars().all(|it| it.is_ascii_alphanumeric());
    let kind = if is_good {
        format!(".{kind}")
    } else {
        String::new()
    };
    kind + compressed.map_or("", |it| *it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_number_and_ending() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let stack = format!(
            "filter {{ tcp }} output {{ file = \"{}\" }} - tcpdirdemux < output {{ {} }} > flows output {{ as = x, file = {} }} output",
            at("a b.pcap.zst"),
            at("other"),
            at("v1.2.json")
        );
        let (text, named) = targets(&stack);
        assert_eq!(named.len(), 3);
        let said = super::named("cannot write fd:2.json and fd:0.pcap.zst", &named);
        let expected = format!(
            "cannot write {} and {}",
            at("v1.2.json"),
            at("a b.pcap.zst")
        );
        assert_eq!(said, expected);
        assert_eq!(
            text,
            "filter { tcp } output { file = fd:0.pcap.zst } - tcpdirdemux < output { fd:1 } > flows output { as = x, file = fd:2.json } output"
        );
        assert!(!folder.path().join("a b.pcap.zst").exists());
        open(&named[0]).unwrap();
        assert!(folder.path().join("a b.pcap.zst").exists());
        // What is in a file goes when the sensor writes it, and not before.
        fs::write(folder.path().join("other"), "kept").unwrap();
        let opened = open(&named[1]).unwrap();
        assert_eq!(fs::read(folder.path().join("other")).unwrap(), b"kept");
        let handed = files::Handed::new(opened, (1, "")).unwrap();
        let name = handed.name();
        drop(
            files::named()
                .open(Path::new(&name), How::replace())
                .unwrap(),
        );
        assert!(fs::read(folder.path().join("other")).unwrap().is_empty());
        for (stack, bare) in [
            ("flows - output", true),
            ("flows - output { x }", false),
            ("count", false),
        ] {
            assert_eq!(ends_with_bare_output(stack), bare, "{stack}");
        }
        assert!(gives_nothing("packets"));
        for gives in ["packets count", "output", "to_buffer", "cuont", "filter {"] {
            assert!(!gives_nothing(gives), "{gives}");
        }
        let kept = "filter { tcp } output { file = fd:0 } count { as = file";
        assert_eq!(targets(kept).0, kept);
        for path in ["/no/where/x.json", "/dev/full", "/tmp"] {
            let (_, named) = targets(&format!("output {{ file = {path} }}"));
            assert!(open(&named[0]).is_err(), "{path}");
        }
    }
}
