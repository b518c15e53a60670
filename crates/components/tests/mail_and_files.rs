//! SMTP and FTP records of captures against Zeek's.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/conversations.rs"]
mod conversations;
#[path = "../../../tests/shared/corpora.rs"]
mod corpora;
mod support;

use conversations::{Compared, endpoints, records, text, zeek_endpoints, zeek_log, zeek_tests};
use corpora::corpora;
use serde_json::Value;

#[test]
fn zeek_smtp_logs() {
    let Some(corpora) = corpora() else { return };
    let mut compared = Compared::default();
    for (name, traces, log) in zeek_tests(&corpora, "smtp.log") {
        let mut ours: Vec<Value> = Vec::new();
        for trace in &traces {
            ours.extend(records(trace, "smtp"));
        }
        for row in zeek_log(&log) {
            let key = zeek_endpoints(&row);
            // Rows without a mail are about what came before or between.
            if row.get("mailfrom").is_none_or(|it| it == "-") || row["rcptto"] == "-" {
                continue;
            }
            let what = format!("{name} {key} {}", row["trans_depth"]);
            let mine = |record: &&Value| {
                endpoints(record) == key
                    && text(record, "mailfrom") == row["mailfrom"]
                    && (row["msg_id"] == "-" || text(record, "msg_id") == row["msg_id"])
            };
            let Some(record) = ours.iter().find(mine) else {
                compared.note(
                    &what,
                    &[format!("not found {}", row["mailfrom"])],
                    SMTP_EXCEPTIONS,
                );
                continue;
            };
            let mut differences = Vec::new();
            for name in [
                "helo",
                "rcptto",
                "date",
                "from",
                "to",
                "cc",
                "reply_to",
                "in_reply_to",
                "subject",
                "user_agent",
                "last_reply",
            ] {
                let theirs = row[name].as_str();
                let theirs = if matches!(theirs, "-" | "(empty)") {
                    ""
                } else {
                    theirs
                };
                let mut ours = text(record, name);
                let mut theirs = theirs.to_owned();
                // Sets of Zeek's have no order.
                if matches!(name, "to" | "cc" | "rcptto") {
                    ours = sorted(&ours);
                    theirs = sorted(&theirs);
                }
                if ours != theirs {
                    differences.push(format!("{name} {ours:?} not {theirs:?}"));
                }
            }
            compared.note(&what, &differences, SMTP_EXCEPTIONS);
        }
    }
    compared.show("Zeek smtp.log");
    assert!(compared.records > 0);
    assert!(compared.differences.is_empty());
}

fn sorted(list: &str) -> String {
    let mut parts: Vec<&str> = list.split(',').map(str::trim).collect();
    parts.sort_unstable();
    parts.join(",")
}

const SMTP_EXCEPTIONS: &[(&str, &str)] = &[
    (
        "bdat-gap",
        "bytes of a chunk are missing: its reply came before the hole was given up",
    ),
    (
        "mail-transactions-invalid",
        "commands out of order: Zeek begins another record at each of them",
    ),
];

#[test]
fn zeek_ftp_logs() {
    let Some(corpora) = corpora() else { return };
    let mut compared = Compared::default();
    for (name, traces, log) in zeek_tests(&corpora, "ftp.log") {
        let mut ours: Vec<Value> = Vec::new();
        for trace in &traces {
            ours.extend(records(trace, "ftp"));
        }
        for row in zeek_log(&log) {
            // A capture without some of the commands: which replies are whose is a guess.
            if name.ends_with("cwd-navigation") {
                continue;
            }
            let key = zeek_endpoints(&row);
            let what = format!("{name} {key} {} {}", row["command"], row["reply_msg"]);
            let of = |name: &str| match row[name].as_str() {
                "-" | "<unknown>" | "<hidden>" | "(empty)" => "",
                other => other,
            };
            let is_secret = of("command") == "PASS";
            let expected = [
                ("user", of("user").to_owned()),
                ("command", of("command").to_owned()),
                ("reply_code", of("reply_code").to_owned()),
                ("data_ip", of("data_channel.resp_h").to_owned()),
                ("data_port", of("data_channel.resp_p").to_owned()),
            ];
            let is = |record: &&Value| {
                let argument = text(record, "arg");
                // Zeek makes URIs of names of files.
                let has_argument = is_secret || of("arg").ends_with(argument.as_str());
                endpoints(record) == key
                    && has_argument
                    && expected
                        .iter()
                        .all(|(name, value)| text(record, name) == *value)
            };
            let differences: Vec<String> = match ours.iter().position(|record| is(&record)) {
                Some(place) => {
                    ours.remove(place);
                    Vec::new()
                }
                None => vec![format!("not found {expected:?} {}", row["arg"])],
            };
            compared.note(&what, &differences, FTP_EXCEPTIONS);
        }
    }
    compared.show("Zeek ftp.log");
    assert!(compared.records > 0);
    assert!(compared.differences.is_empty());
}

/// Of each record that differs the command and what the reply says stand in its name.
const FTP_EXCEPTIONS: &[(&str, &str)] = &[
    (
        "ftp-invalid-reply-code",
        "a line that is no reply: Zeek keeps the code of the reply before",
    ),
    (
        "ftp-get-file-size",
        "the first commands of a connection whose beginning was not captured",
    ),
];
