//! Zeek's logs, tab-separated or as JSON lines.

use std::collections::HashMap;

use serde_json::Value;

/// One line of a log: the value of each column that is set.
pub(crate) type Row = HashMap<String, String>;

/// A parsed log.
#[derive(Default)]
pub(crate) struct Log {
    pub columns: Vec<String>,
    /// Types of the columns, where the log says them.
    pub types: Vec<String>,
    pub rows: Vec<Row>,
}

impl Log {
    /// Reads a log. Column names come from the `#fields` line, else from a first line of names
    /// (`zeek-cut -m`), else they are `given` (`zeek-cut a b c` without a header). Of JSON lines the columns
    /// are those that any line has.
    ///
    /// # Errors
    /// It is not in one of these forms.
    pub(crate) fn parse(text: &str, given: Option<&[String]>) -> Result<Log, String> {
        let lines = || text.lines().filter(|line| !line.is_empty());
        if lines()
            .find(|line| !line.starts_with('#'))
            .is_some_and(|line| line.starts_with('{'))
        {
            return Log::parse_json(lines().filter(|line| !line.starts_with('#')));
        }
        let mut separator = "\t".to_owned();
        let mut unset = "-".to_owned();
        let mut columns: Option<Vec<String>> = None;
        let mut types = Vec::new();
        let mut rows = Vec::new();
        for line in lines() {
            if let Some(rest) = line.strip_prefix('#') {
                if let Some(value) = rest.strip_prefix("separator ") {
                    separator = unescape(value);
                } else if let Some(value) = rest.strip_prefix(&format!("unset_field{separator}")) {
                    unset = value.to_owned();
                } else if let Some(value) = rest.strip_prefix(&format!("types{separator}")) {
                    types = value.split(&separator).map(str::to_owned).collect();
                } else if let Some(value) = rest.strip_prefix(&format!("fields{separator}")) {
                    columns = Some(value.split(&separator).map(str::to_owned).collect());
                }
                continue;
            }
            let values: Vec<&str> = line.split(&separator).collect();
            let Some(names) = &columns else {
                // Without a header line: a line of names, or the names are known.
                let is_names =
                    given.is_some_and(|given| given == values) || values.contains(&"uid");
                if is_names {
                    columns = Some(values.iter().map(|&value| value.to_owned()).collect());
                    continue;
                }
                let given = given.ok_or("no column names")?;
                columns = Some(given.to_vec());
                rows.push(row(given, &values, &unset)?);
                continue;
            };
            rows.push(row(names, &values, &unset)?);
        }
        Ok(Log {
            columns: columns.ok_or("no columns")?,
            types,
            rows,
        })
    }

    fn parse_json<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Log, String> {
        let mut log = Log::default();
        for line in lines {
            // Masked times are no JSON.
            let line = line.replace("XXXXXXXXXX.XXXXXX", "0");
            let object: serde_json::Map<String, Value> =
                serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
            let mut row = Row::new();
            for (name, value) in object {
                if !log.columns.contains(&name) {
                    log.columns.push(name.clone());
                }
                let text = match value {
                    Value::Array(all) if all.is_empty() => "(empty)".to_owned(),
                    Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(","),
                    one => plain(&one),
                };
                if !(name == "ts" && text == "0") {
                    row.insert(name, text);
                }
            }
            log.rows.push(row);
        }
        Ok(log)
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(is) => if *is { "T" } else { "F" }.to_owned(),
        other => other.to_string(),
    }
}

fn row(names: &[String], values: &[&str], unset: &str) -> Result<Row, String> {
    if names.len() != values.len() {
        return Err(format!("{} columns, {} values", names.len(), values.len()));
    }
    let set = names
        .iter()
        .zip(values)
        .filter(|(_, value)| **value != unset);
    Ok(set
        .map(|(name, value)| (name.clone(), (*value).to_owned()))
        .collect())
}

/// `\x09` to a tab.
fn unescape(value: &str) -> String {
    value
        .strip_prefix("\\x")
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        .map_or_else(|| value.to_owned(), |byte| char::from(byte).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_log_with_fields() {
        let text = "#separator \\x09\n#unset_field\t-\n#fields\tuid\tid.orig_h\tservice\n#types\tstring\taddr\tstring\nC1\t1.2.3.4\t-\n#close\tX\n";
        let log = Log::parse(text, None).unwrap();
        assert_eq!(log.columns, ["uid", "id.orig_h", "service"]);
        assert_eq!(log.rows.len(), 1);
        assert_eq!(
            log.rows[0].get("id.orig_h").map(String::as_str),
            Some("1.2.3.4")
        );
        assert_eq!(log.rows[0].get("service"), None);
    }

    #[test]
    fn reads_a_cut_log_with_and_without_names() {
        let log = Log::parse("### made by\nuid\torig_pkts\nC1\t7\n", None).unwrap();
        assert_eq!(log.rows[0]["orig_pkts"], "7");
        let names = ["uid".to_owned(), "orig_pkts".to_owned()];
        let log = Log::parse("C1\t7\n", Some(&names)).unwrap();
        assert_eq!(log.rows[0]["orig_pkts"], "7");
        assert!(Log::parse("C1\t7\n", None).is_err());
    }

    #[test]
    fn reads_json_lines_with_masked_times() {
        let text = "### x\n{\"ts\":XXXXXXXXXX.XXXXXX,\"id.orig_p\":5,\"tags\":[],\"a\":[\"x\",\"y\"],\"b\":true}\n";
        let log = Log::parse(text, None).unwrap();
        let row = &log.rows[0];
        assert_eq!(
            (row["id.orig_p"].as_str(), row["tags"].as_str()),
            ("5", "(empty)")
        );
        assert_eq!((row["a"].as_str(), row["b"].as_str()), ("x,y", "T"));
        assert!(!row.contains_key("ts"));
    }

    #[test]
    fn refuses_a_line_that_does_not_fit() {
        assert!(Log::parse("#fields\ta\tb\n1\n", None).is_err());
    }

    #[test]
    fn follows_another_separator() {
        let log = Log::parse(
            "#separator |\n#unset_field|-\n#fields|uid|history\nC1|Sh\n",
            None,
        )
        .unwrap();
        assert_eq!(log.rows[0]["history"], "Sh");
    }
}
