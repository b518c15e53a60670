//! The file of control rows.

use std::path::Path;

use flowgauge_rmon::Probe;

use crate::failure::Failure;
use crate::input::text_of_file;
use crate::say::say;
use crate::stack::rewrite;

/// Control rows in a file, which follows what managers set.
#[derive(Debug, Default)]
pub(super) struct Kept<'a> {
    file: Option<&'a Path>,
    changes: u64,
}

impl Kept<'_> {
    /// Puts the rows of the file, if one is named, in the place of those that a probe has of its own.
    ///
    /// # Errors
    /// It cannot be read, or its rows cannot be.
    pub(super) fn load<'a>(file: Option<&'a Path>, probe: &mut Probe) -> Result<Kept<'a>, Failure> {
        if let Some(file) = file {
            let name = file.display();
            let text = text_of_file(file).map_err(|error| {
                Failure::usage(
                    format!("cannot read {name}: {error}"),
                    "--config names a file of control rows; an empty one will do",
                )
            })?;
            let inactive = probe.load(&text).map_err(|error| {
                let text = error.to_string();
                let (what, hint) = text
                    .split_once("\nhint: ")
                    .unwrap_or((&text, "docs/rmon.md says what a file of control rows holds"));
                Failure::usage(format!("{name}: {what}"), hint)
            })?;
            for row in inactive {
                say!("flowgauge: warning: {name}: {row}\nThe row is not active.");
            }
        }
        let changes = probe.changes();
        Ok(Kept { file, changes })
    }

    /// Writes the file where managers have changed rows.
    pub(super) fn keep(&mut self, probe: &Probe) {
        let changes = probe.changes();
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        let Some(file) = self.file else {
            return;
        };
        if let Err(error) = rewrite(file, probe.save().as_bytes()) {
            let name = file.display();
            say!(
                "flowgauge: control rows are not kept in {name}: {error}\n\
                 hint: the user that the program becomes must be able to write its folder"
            );
        }
    }
}
