//! `FLOWGAUGE_TEST`: what a test fixes or forces, to find out whether results depend on it. There is no other use for
//! it: a key that others know can be attacked.

use flowgauge_sys::ways::{Way, force};
use flowgauge_wire::HashSeed;

use crate::failure::Failure;

/// The environment variable.
const VARIABLE: &str = "FLOWGAUGE_TEST";

const WAYS: [(&str, Way); 5] = [
    ("general-flows", Way::GeneralFlows),
    ("portable-sums", Way::PortableSums),
    ("mapped-files", Way::MappedFiles),
    ("read-files", Way::ReadFiles),
    ("page-panics", Way::PagePanics),
];

/// Does what the variable says, words separated by commas: `hash=NUMBER`, the key of the process's hashes, and the names
/// of ways. To be called before anything else.
///
/// # Errors
/// A word that is none of these.
pub(crate) fn obey() -> Result<(), Failure> {
    let Some(text) = std::env::var_os(VARIABLE) else {
        return Ok(());
    };
    let text = text.to_string_lossy();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let key = word.strip_prefix("hash=").map(str::parse);
        let way = WAYS.iter().find(|(name, _)| *name == word);
        match (key, way) {
            (Some(Ok(number)), _) if HashSeed::new(number).fix() => {}
            (_, Some((_, way))) => force(*way),
            _ => {
                return Err(Failure::usage(
                    format!("unknown word \"{}\" in {VARIABLE}", word.escape_debug()),
                    format!("it is for tests of flowgauge: unset {VARIABLE}"),
                ));
            }
        }
    }
    Ok(())
}
