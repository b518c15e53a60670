//! File names made of time and keys, for the component `output`; and of time only, for components that write a single
//! file.

use std::path::Path;

use flowgauge_capture::sink::dated;
use flowgauge_stack::{Failure, SettingError, Settings};
use flowgauge_sys::files;
use flowgauge_wire::Nanos;

/// A file name with fields: `%{key}`, `%{number}` and those of strftime.
#[derive(Clone, Debug)]
pub struct Name {
    pieces: Vec<Piece>,
    /// What it is each time, where it is evaluated once.
    fixed: Option<String>,
    is_static: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// With fields of strftime.
    Text(String),
    Key,
    Number,
}

impl Name {
    /// Reads it from an option.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(settings: &Settings, option: &'static str) -> Result<Name, SettingError> {
        let text = settings.text(option).unwrap_or_default();
        let refuse =
            |message: String, hint: &str| Err(SettingError::of(option, message).with_hint(hint));
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("%{") {
            // "%%{" is a percent sign and a bracket.
            let percents = rest[..at]
                .bytes()
                .rev()
                .take_while(|byte| *byte == b'%')
                .count();
            if percents % 2 == 1 {
                pieces.push(Piece::Text(rest[..at + 2].to_owned()));
                rest = &rest[at + 2..];
                continue;
            }
            pieces.push(Piece::Text(rest[..at].to_owned()));
            let field = &rest[at + 2..];
            let Some(end) = field.find('}') else {
                return refuse(
                    "a field has no end".to_owned(),
                    "write %{key} or %{number}, and a percent sign as %%",
                );
            };
            pieces.push(match &field[..end] {
                "key" => Piece::Key,
                "number" => Piece::Number,
                other => {
                    return refuse(
                        format!("there is no field %{{{other}}}"),
                        "there are %{key}, %{number} and those of strftime, as %Y",
                    );
                }
            });
            rest = &field[end + 1..];
        }
        pieces.push(Piece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        for piece in &pieces {
            if let Piece::Text(text) = piece
                && let Err(error) = dated(text, Nanos(0))
            {
                return refuse(
                    error.to_owned(),
                    "write a percent sign as %%, or see strftime(3)",
                );
            }
        }
        let is_static = settings
            .setting(option)
            .is_some_and(|setting| setting.is_static);
        let name = Name {
            pieces,
            fixed: None,
            // Outside there is one instance only.
            is_static: is_static || settings.around().is_empty(),
        };
        if name.has_keys() && settings.around().is_empty() {
            return refuse(
                "%{key} and %{number} have no meaning outside of demultiplexers".to_owned(),
                "put the component inside one",
            );
        }
        if name.has_keys() && is_static {
            return refuse(
                "a static value is the same for all keys".to_owned(),
                "leave static out, or the fields",
            );
        }
        Ok(name)
    }

    /// The same for a component that writes a single file for all keys.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_of_one(settings: &Settings, option: &'static str) -> Result<Name, SettingError> {
        let name = Name::read(settings, option)?;
        if name.has_keys() {
            let message = "%{key} and %{number} have no meaning: it is one file for all keys";
            return Err(SettingError::of(option, message)
                .with_hint("leave them out; output has a file for each"));
        }
        Ok(Name {
            is_static: true,
            ..name
        })
    }

    fn has_keys(&self) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.any(|piece| !matches!(piece, Piece::Text(_)))
    }

    /// Checks that the folder exists, as far as the name determines it.
    ///
    /// # Errors
    /// It does not exist.
    pub fn check_folder(&self) -> Result<(), Failure> {
        let folder = self.folder();
        match files::named().is_folder(Path::new(folder)) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "cannot write to {folder}: there is no such folder"
            ))
            .with_hint(format!("make it: mkdir -p {folder}"))),
        }
    }

    /// The name, if it has no fields.
    pub fn constant(&self) -> Option<String> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] if !text.replace("%%", "").contains('%') => {
                Some(text.replace("%%", "%"))
            }
            _ => None,
        }
    }

    /// The folder in which all files are, as far as the fields leave it open.
    fn folder(&self) -> &str {
        let first = match self.pieces.first() {
            Some(Piece::Text(text)) => text.as_str(),
            _ => "",
        };
        let fixed = first.split('%').next().unwrap_or_default();
        match fixed.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((folder, _)) => folder,
            None => ".",
        }
    }

    /// The name for instance `number`, counted from 1, which starts at `time`.
    pub fn evaluate(
        &mut self,
        time: Nanos,
        number: u64,
        keys: impl FnOnce() -> Vec<String>,
    ) -> String {
        if let Some(fixed) = &self.fixed {
            return fixed.clone();
        }
        let mut keys = Some(keys);
        let mut key = String::new();
        let mut name = String::new();
        for piece in &self.pieces {
            match piece {
                // It was looked at when it was read.
                Piece::Text(text) => name += &dated(text, time).unwrap_or_default(),
                Piece::Number => name += &number.to_string(),
                Piece::Key => {
                    if let Some(keys) = keys.take() {
                        key = keys()
                            .iter()
                            .map(|key| in_file(key))
                            .collect::<Vec<_>>()
                            .join("_");
                    }
                    name += &key;
                }
            }
        }
        if self.is_static {
            self.fixed = Some(name.clone());
        }
        name
    }
}

/// A key in the name of a file: letters, digits and what no shell minds.
fn in_file(key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '#');
    let chars = key.chars().filter(|c| !matches!(c, '[' | ']'));
    chars.map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use flowgauge_stack::{OptionInfo, OptionKind, OptionValue, Setting};

    use super::*;

    static FILE: OptionInfo = OptionInfo::new("file", OptionKind::OutputFile, "");

    fn name(text: &str, is_static: bool, around: Vec<&'static str>) -> Result<Name, String> {
        let setting = Setting {
            option: &FILE,
            value: OptionValue::Text(text.to_owned()),
            is_static,
            span: None,
        };
        let settings = Settings::new(vec![setting]).placed(None, None, around);
        Name::read(&settings, FILE.name).map_err(|error| error.message)
    }

    fn inside(text: &str) -> Name {
        name(text, false, vec!["tcpcnxdemux"]).unwrap()
    }

    #[test]
    fn fields_are_filled_in_once_or_each_time() {
        let keys = || {
            vec![
                "[2001:db8::1]:80-192.0.2.1:9".to_owned(),
                "forth".to_owned(),
            ]
        };
        let year = Nanos::from_secs(86_400 * 400);
        let mut each = inside("a/%Y/%{number}-%{key}%%{key}.pcap");
        let filled = each.evaluate(year, 7, keys);
        assert_eq!(
            filled,
            "a/1971/7-2001_db8__1_80-192.0.2.1_9_forth%{key}.pcap"
        );
        assert_eq!(each.folder(), "a");
        assert_eq!(
            inside("%{key}/x").evaluate(year, 1, || vec!["../..".to_owned()]),
            ".._../x"
        );
        let mut fixed = name("b-%Y", true, vec!["tcpcnxdemux"]).unwrap();
        assert_eq!(fixed.evaluate(year, 1, Vec::new), "b-1971");
        assert_eq!(fixed.evaluate(Nanos(0), 2, Vec::new), "b-1971");
        assert_eq!(fixed.folder(), ".");
        // Outside of demultiplexers there is one instance.
        let mut outside = name("/%Y", false, Vec::new()).unwrap();
        assert_eq!(outside.evaluate(year, 1, Vec::new), "/1971");
        assert_eq!(outside.evaluate(Nanos(0), 1, Vec::new), "/1971");
        assert_eq!(outside.folder(), "/");
        assert_eq!(outside.constant(), None);
        assert_eq!(inside("a%%b%%%%").constant().as_deref(), Some("a%b%%"));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let wrong = [
            ("%{key", false, "a field has no end"),
            ("%{name}", false, "there is no field %{name}"),
            ("%Q", false, "the name is not a valid strftime format"),
            ("%{key}", true, "a static value is the same for all keys"),
        ];
        for (text, is_static, expected) in wrong {
            let error = name(text, is_static, vec!["tcpcnxdemux"]).unwrap_err();
            assert_eq!(error, expected, "{text}");
        }
        let error = name("%{key}", false, Vec::new()).unwrap_err();
        assert!(error.contains("outside of demultiplexers"), "{error}");
    }
}
