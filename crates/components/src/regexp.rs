//! `regexp`: packets that a regular expression matches.

use flowgauge_stack::{Component, ComponentInfo, SettingError, Settings, options};
use regex::bytes::{Regex, RegexBuilder};

use crate::per_packet::only;
use crate::search::{IN, Part};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "regexp",
    summary: "selects packets by a regular expression",
    help: "The syntax is that of the Rust crate regex, over bytes: that of Perl without look-around and \
           back-references, so a packet takes time in proportion to its length. `(?i)` ignores case, `(?s)` \
           lets a dot match line ends. Each packet is searched on its own.",
    options: Options::ALL,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    expression: Text = required, "text to search for";
    [IN.or("payload")];
}

/// Bytes that a compiled expression may take, and as many for what it learns as it goes.
const MAX_BYTES: usize = 8 << 20;

/// A compiled expression over bytes, bounded in memory.
pub(crate) fn compile(expression: &str, ignores_case: bool) -> Result<Regex, String> {
    let built = RegexBuilder::new(expression)
        .unicode(false)
        .case_insensitive(ignores_case)
        .size_limit(MAX_BYTES)
        .dfa_size_limit(MAX_BYTES)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("it needs more than the {} MiB allowed", MAX_BYTES >> 20)
        }
        // The last of several lines says what is wrong.
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        }
    })
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let regex = compile(&Options::read(settings).expression, false).map_err(|message| {
        SettingError::of("expression", message)
            .with_hint("the syntax is that of https://docs.rs/regex")
    })?;
    let part = Part::new(settings);
    Ok(only(move |packets, packet| {
        regex.is_match(part.of(packets, packet))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_over_bytes_and_bounded() {
        let regex = compile(r"^\xff.\x00$", false).expect("it is right");
        assert!(regex.is_match(&[0xff, 0x80, 0]));
        assert!(!regex.is_match(&[0xff, 0x80, 1]));
        assert!(compile("get", true).expect("it is right").is_match(b"xGET"));
        assert_eq!(
            compile("a(b", false).err().as_deref(),
            Some("unclosed group")
        );
        assert!(compile("(a{1000}){1000}", false).is_err_and(|why| why.contains("8 MiB")));
    }
}
