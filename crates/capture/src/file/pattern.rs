//! Files that match a pattern with `*`, `?` and `[...]`, and `**` for nested directories.

use std::path::{Path, PathBuf};

use flowgauge_sys::files::Folder;
use glob::{Pattern, PatternError};

/// The files that match, by name. Folders that cannot be read have none; `.` and `..` match nothing but themselves.
pub(super) fn matches(folder: &Folder, pattern: &str) -> Result<Vec<PathBuf>, PatternError> {
    // As a whole, so that what is wrong is told of the whole.
    Pattern::new(pattern)?;
    let root = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![PathBuf::from(root)];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = match part {
            "**" => found
                .iter()
                .flat_map(|place| folders_in(folder, place))
                .collect(),
            part if part.contains(['*', '?', '[']) => {
                let part = Pattern::new(part)?;
                let named = |place: &PathBuf| {
                    let names = names_in(folder, place);
                    let names = names.into_iter().filter(|name| part.matches(name));
                    names.map(|name| place.join(name)).collect::<Vec<_>>()
                };
                found.iter().flat_map(named).collect()
            }
            part => found.iter().map(|place| place.join(part)).collect(),
        };
    }
    found.retain(|path| folder.metadata(path).is_ok_and(|about| !about.is_dir()));
    Ok(found)
}

fn names_in(folder: &Folder, place: &Path) -> Vec<String> {
    let names = folder.list(place).unwrap_or_default().into_iter();
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// A folder and all that are in it, links aside.
fn folders_in(folder: &Folder, place: &Path) -> Vec<PathBuf> {
    let mut found = vec![place.to_owned()];
    for name in names_in(folder, place) {
        let inner = place.join(name);
        if folder.is_own_folder(&inner) {
            found.extend(folders_in(folder, &inner));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_found_by_pattern_and_none_outside() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("in");
        fs::create_dir_all(inside.join("a/b")).unwrap();
        for name in ["2.cap", "1.cap", ".cap", "a/3.cap", "a/b/4.cap", "[5].cap"] {
            fs::write(inside.join(name), "").unwrap();
        }
        fs::write(place.path().join("secret.cap"), "").unwrap();
        symlink("..", inside.join("up")).unwrap();
        symlink("../secret.cap", inside.join("out.cap")).unwrap();
        let folder = Folder::beneath(&inside).unwrap();
        let found = |pattern: &str| {
            let found = matches(&folder, pattern).unwrap();
            let names = found.iter().map(|path| path.to_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(found("*.cap"), [".cap", "1.cap", "2.cap", "[5].cap"]);
        assert_eq!(found("./?.cap"), ["./1.cap", "./2.cap"]);
        assert_eq!(found("[[]5].cap"), ["[5].cap"]);
        assert_eq!(found("a/[0-9].cap"), ["a/3.cap"]);
        assert_eq!(found("*/*/4.cap"), ["a/b/4.cap"]);
        assert_eq!(found("**/[34].cap"), ["a/3.cap", "a/b/4.cap"]);
        let outside = [
            ".[.]/secret.cap",
            "[.][.]/secret.cap",
            "../*.cap",
            "up/*",
            "u?/*.cap",
            "out.ca?",
            "/*/*",
            "a/../../*.cap",
        ];
        for pattern in outside {
            assert_eq!(found(pattern), [""; 0], "{pattern}");
        }
        let whole = format!("{}/*.cap", inside.display());
        assert_eq!(found(&whole), [""; 0]);
        let anywhere = matches(&Folder::anywhere(), &whole).unwrap();
        assert_eq!(anywhere.len(), 5);
        assert!(matches(&folder, "a[").is_err());
    }
}
