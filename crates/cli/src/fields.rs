//! `flowgauge fields`

use flowgauge_record::kinds::{FIELD_SCHEMA, FieldRow, KIND_SCHEMA, Kind, KindRow, kinds};
use flowgauge_record::{RecordWriter, Schema};
use flowgauge_registry::names_elsewhere;

use crate::failure::{self, Failure};
use crate::options::FieldsOptions;
use crate::say::instead_of;
use crate::sinks;

/// Runs the command.
///
/// # Errors
/// There is no such kind, or the output fails.
pub(crate) fn run(options: &FieldsOptions) -> Result<(), Failure> {
    let all = kinds();
    let mut writer = match &options.kind {
        None => {
            let mut writer = writer(options, KIND_SCHEMA)?;
            all.iter().for_each(|kind| writer.write(&KindRow(*kind)));
            writer
        }
        Some(name) => {
            let kind = find(&all, name)?;
            let mut writer = writer(options, FIELD_SCHEMA)?;
            for field in kind.schema {
                let [zeek, eve] = names_elsewhere(kind.name, field.name);
                let (zeek, eve) = (zeek.as_deref(), eve.as_deref());
                writer.write(&FieldRow { field, zeek, eve });
            }
            writer
        }
    };
    failure::of_writer(&mut writer)
}

fn writer(options: &FieldsOptions, schema: Schema) -> Result<RecordWriter, Failure> {
    let output = sinks::open(&options.output, schema)?;
    let format = sinks::format(&options.output);
    Ok(RecordWriter::new(output, format, schema))
}

fn find<'a>(all: &'a [Kind], name: &str) -> Result<&'a Kind, Failure> {
    all.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names = all.iter().map(|kind| kind.name);
        Failure::usage(
            format!("unknown record type \"{name}\""),
            instead_of(name, names, "flowgauge fields lists them"),
        )
    })
}
