//! Zeek's tab-separated logs.

use std::collections::HashMap;

/// One line of a log: the value of each column that is set.
pub(crate) type Row = HashMap<String, String>;

/// A parsed log.
pub(crate) struct Log {
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

impl Log {
    /// Reads a log. Column names come from the `#fields` line, else from a first line of names
    /// (`zeek-cut -m`), else they are `given` (`zeek-cut a b c` without a header).
    pub(crate) fn parse(text: &str, given: Option<&[String]>) -> Result<Log, String> {
        let mut separator = "\t".to_owned();
        let mut unset = "-".to_owned();
        let mut columns: Option<Vec<String>> = None;
        let mut rows = Vec::new();
        for line in text.lines() {
            if line.is_empty() {
                continue;
            }
            if let Some(rest) = line.strip_prefix('#') {
                if let Some(value) = rest.strip_prefix("separator ") {
                    separator = unescape(value);
                } else if let Some(value) = rest.strip_prefix(&format!("unset_field{separator}")) {
                    unset = value.to_owned();
                } else if let Some(value) = rest.strip_prefix(&format!("fields{separator}")) {
                    columns = Some(value.split(&separator).map(str::to_owned).collect());
                }
                continue;
            }
            let values: Vec<&str> = line.split(&separator).collect();
            let Some(names) = &columns else {
                // Without a header line: a line of names, or the names are known.
                if values.iter().any(|value| is_column_name(value)) {
                    columns = Some(values.iter().map(|&value| value.to_owned()).collect());
                    continue;
                }
                let Some(given) = given else {
                    return Err("no column names".to_owned());
                };
                columns = Some(given.to_vec());
                rows.push(row(given, &values, &unset)?);
                continue;
            };
            rows.push(row(names, &values, &unset)?);
        }
        Ok(Log {
            columns: columns.ok_or("no columns")?,
            rows,
        })
    }
}

fn row(names: &[String], values: &[&str], unset: &str) -> Result<Row, String> {
    if names.len() != values.len() {
        return Err(format!("{} columns, {} values", names.len(), values.len()));
    }
    Ok(names
        .iter()
        .zip(values)
        .filter(|(_, value)| **value != unset)
        .map(|(name, value)| (name.clone(), (*value).to_owned()))
        .collect())
}

fn is_column_name(value: &str) -> bool {
    matches!(
        value,
        "uid" | "ts" | "history" | "id.orig_h" | "orig_pkts" | "proto" | "duration" | "conn_state"
    )
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
