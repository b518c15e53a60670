//! Included files.

use crate::diagnostic::Diagnostic;
use crate::parse::parse;
use crate::source::{FileId, Sources};
use crate::syntax::{Document, Item};

/// Maximum number of files of a stack.
pub const MAX_FILES: usize = 256;

/// Reads an included file. The arguments are the name of the including file and the path as written; the result is
/// the name for messages and the text.
pub type ReadInclude<'a> = dyn FnMut(&str, &str) -> Result<(String, String), String> + 'a;

/// Parses a file, and replaces each `include` by the contents of the included file.
///
/// # Errors
/// The first syntax error, or a file that cannot be read.
pub fn parse_all(
    sources: &mut Sources,
    file: FileId,
    read: &mut ReadInclude<'_>,
) -> Result<Document, Box<Diagnostic>> {
    let mut path = vec![file];
    expand(sources, &mut path, read)
}

/// `path` are the files being read, the innermost last.
fn expand(
    sources: &mut Sources,
    path: &mut Vec<FileId>,
    read: &mut ReadInclude<'_>,
) -> Result<Document, Box<Diagnostic>> {
    let file = path.last().copied().unwrap_or_default();
    let document = parse(sources, file)?;
    let mut items = Vec::with_capacity(document.items.len());
    for item in document.items {
        let Item::Include(include) = item else {
            items.push(item);
            continue;
        };
        let fail = |message: String| Box::new(Diagnostic::error(include.span, message));
        let including = sources.name(file).to_owned();
        let (name, text) = read(&including, &include.path).map_err(fail)?;
        if path.iter().any(|&open| sources.name(open) == name) {
            return Err(fail(format!("{name} includes itself")));
        }
        let inner = sources
            .add(name, text)
            .filter(|id| usize::from(id.0) < MAX_FILES)
            .ok_or_else(|| fail(format!("more than {MAX_FILES} files")))?;
        path.push(inner);
        let inner = expand(sources, path, read)?;
        path.pop();
        items.extend(inner.items);
    }
    Ok(Document { items, ..document })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::format;

    fn all(files: &[(&str, &str)]) -> Result<String, String> {
        let mut sources = Sources::default();
        let main = sources.add(files[0].0, files[0].1).expect("room");
        let read = &mut |_: &str, path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            let (name, text) = found.ok_or_else(|| format!("{path} does not exist"))?;
            Ok(((*name).to_owned(), (*text).to_owned()))
        };
        parse_all(&mut sources, main, read)
            .map(|document| format(&document))
            .map_err(|error| error.show(&sources).to_string())
    }

    #[test]
    fn it_takes_the_place_of_the_include() {
        let files = [
            ("a", "include b\n[stack]\nx\ninclude \"c\"\n"),
            ("b", "[count]\ninterval = 1\n"),
            ("c", "[x]\ny = 2\n"),
        ];
        let expected = "[count]\ninterval = 1\n\n[stack]\nx\n\n[x]\ny = 2\n";
        assert_eq!(all(&files), Ok(expected.to_owned()));
    }

    #[test]
    fn what_is_missing_or_goes_in_circles_is_said() {
        let error = all(&[("a", "# one\ninclude b\n")]).expect_err("no b");
        assert_eq!(
            error,
            "a:2:1: error: b does not exist\n  2 | include b\n    | ^^^^^^^^^"
        );
        let error = all(&[("a", "include b"), ("b", "include a")]).expect_err("a circle");
        assert!(
            error.starts_with("b:1:1: error: a includes itself"),
            "{error}"
        );
        let error = all(&[("a", "include b"), ("b", "[stack]\n>")]).expect_err("b is wrong");
        assert!(
            error.starts_with("b:2:1: error: expected a component"),
            "{error}"
        );
    }
}
