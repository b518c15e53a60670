//! The stacks of the folder `stacks`, as tests run them.

use std::fs;

/// A stack of the folder.
pub(crate) struct Preset {
    /// Its file's, without the ending.
    pub(crate) name: String,
    /// With what it needs beside what is in its file.
    pub(crate) text: String,
}

/// All of them, by name.
pub(crate) fn presets() -> Vec<Preset> {
    let is_stack = |path: &std::path::Path| path.extension().is_some_and(|e| e == "stack");
    let files = super::files_below(&super::root().join("stacks"), &is_stack);
    assert!(files.len() >= 16, "{}", files.len());
    let of = |path: &std::path::PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let text = fs::read_to_string(path).expect("it is there");
        Preset {
            text: with_section(&text, more(&name)),
            name: name.into_owned(),
        }
    };
    files.iter().map(of).collect()
}

/// What a stack needs beside what is in its file.
fn more(name: &str) -> &'static str {
    match name {
        "match" => "[match]\npattern = HTTP\n",
        // In the folder of the run, and some at all.
        "connections" => "[output]\nfile = \"%{key}.pcap\"\n",
        "large-flows" => "[where]\ncondition = \"bytes > 1k\"\n",
        "around-match" => "[around]\npattern = \"HTTP||220 \"\n",
        // Without it each run makes a key of its own.
        "web-anonymized" => "[anonymize]\nkey = ../test.key\n",
        // A page says how fast a run was.
        "report" => "[report]\nformat = json\n",
        _ => "",
    }
}

/// A stack with a section more. Options of sections that the text has already stand in braces of theirs: there they
/// win.
pub(crate) fn with_section(text: &str, more: &str) -> String {
    let section = more.lines().next().unwrap_or_default();
    let more = match text.contains(section) && !section.is_empty() {
        true => more.replacen(']', "(0)]", 1),
        false => more.to_owned(),
    };
    format!("{text}\n{more}")
}
