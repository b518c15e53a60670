//! Files of patterns come from outside: whatever they hold, reading them ends with patterns or an
//! error that has a line and a hint.

use flowgauge_matcher::{
    PatternError, PatternKind, ReadOptions, read_patterns, read_patterns_with,
};
use proptest::prelude::*;

/// Pieces that lines are made of.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            "content:",
            "pcre:",
            "\"",
            "|",
            "\\",
            "/",
            ";",
            ":",
            "nocase",
            "offset:",
            "depth:",
            "startswith",
            "sid:",
            "msg:\"",
            "41 ",
            "0d",
            "!",
            ",",
            " ",
            "\n",
            "\r\n",
            "#",
            "a",
            "i",
            "99999999999999999999",
            "1",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn anything_can_be_read_or_is_refused(pieces in prop::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        let lines = text.split(|&byte| byte == b'\n').count();
        match read_patterns(&text) {
            Ok(patterns) => {
                prop_assert!(patterns.len() <= lines);
                for pattern in patterns {
                    prop_assert!(pattern.line >= 1 && pattern.line <= lines);
                    match pattern.kind {
                        PatternKind::Literal { bytes, .. } => prop_assert!(!bytes.is_empty()),
                        PatternKind::Regex { text, .. } => prop_assert!(!text.is_empty()),
                    }
                }
            }
            Err(PatternError::Line { line, message, hint }) => {
                prop_assert!(line >= 1 && line <= lines);
                prop_assert!(!message.is_empty() && !hint.is_empty());
            }
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    /// Written in hexadecimal or taken as it stands, a pattern is the same bytes.
    #[test]
    fn hexadecimal_and_fixed_strings_agree(bytes in prop::collection::vec(any::<u8>(), 1..60)) {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let line = format!("content:\"|{}|\"", hex.join(" "));
        let of = |kind: &PatternKind| match kind {
            PatternKind::Literal { bytes, .. } => bytes.clone(),
            _ => Vec::new(),
        };
        let content = read_patterns(line.as_bytes()).unwrap();
        prop_assert_eq!(of(&content[0].kind), bytes.clone());
        prop_assume!(!bytes.contains(&b'\n') && bytes.last() != Some(&b'\r') && !bytes.starts_with(b"\xef\xbb\xbf"));
        let fixed = ReadOptions { fixed: true, ..ReadOptions::default() };
        let lines = read_patterns_with(&bytes, fixed).unwrap();
        prop_assert_eq!(of(&lines[0].kind), bytes);
    }
}
