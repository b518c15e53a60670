//! Searches whole files for literal patterns with the library's own search, not ours: what
//! `flowgauge match` has to find in the streams that `flowgauge streams --out FOLDER` wrote.
//!
//! usage: `search_files PATTERNS FOLDER`; prints the number of matches and the sum of pattern number
//! times end over all of them.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use flowgauge_matcher::{Pattern, PatternKind, read_patterns};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(patterns), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: search_files PATTERNS FOLDER".into());
    };
    let patterns = read_patterns(&fs::read(patterns)?)?;
    let searches = [searcher(&patterns, false)?, searcher(&patterns, true)?];
    let (mut matches, mut sum) = (0u64, 0u64);
    for entry in fs::read_dir(folder)? {
        let bytes = fs::read(entry?.path())?;
        for (search, ids) in &searches {
            for found in search.find_overlapping_iter(&bytes) {
                matches += 1;
                let id = ids.get(found.pattern().as_usize()).copied().unwrap_or(0);
                sum = sum.wrapping_add(id.wrapping_mul(found.end() as u64));
            }
        }
    }
    println!("{{\"matches\": {matches}, \"sum\": {sum}}}");
    Ok(())
}

/// The patterns that ignore case, or those that do not, and their numbers.
fn searcher(patterns: &[Pattern], wanted: bool) -> Result<(AhoCorasick, Vec<u64>), Box<dyn Error>> {
    let (mut texts, mut ids) = (Vec::new(), Vec::new());
    for pattern in patterns {
        if pattern.bounds.is_some() {
            return Err("offset and depth are not looked at here".into());
        }
        match &pattern.kind {
            PatternKind::Literal { bytes, ignore_case } if *ignore_case == wanted => {
                texts.push(bytes);
                ids.push(pattern.id);
            }
            PatternKind::Literal { .. } => {}
            _ => return Err("literals only".into()),
        }
    }
    let search = AhoCorasick::builder()
        .ascii_case_insensitive(wanted)
        .kind(Some(AhoCorasickKind::DFA))
        .build(texts)?;
    Ok((search, ids))
}
