//! SMTP and FTP records of captures against Zeek's.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/conversations.rs"]
mod conversations;
#[path = "../../../tests/shared/corpora.rs"]
mod corpora;
mod support;

use conversations::{against_zeek, differences, endpoints, same, text, zeek_endpoints};
use corpora::corpora;
use serde_json::Value;

#[test]
fn zeek_smtp_logs() {
    let Some(corpora) = corpora() else { return };
    against_zeek(
        &corpora,
        "smtp.log",
        "smtp",
        SMTP_EXCEPTIONS,
        |name, row, ours| {
            let key = zeek_endpoints(row);
            // Rows without a mail are about what came before or between.
            if row.get("mailfrom").is_none_or(|it| it == "-") || row["rcptto"] == "-" {
                return None;
            }
            let what = format!("{name} {key} {}", row["trans_depth"]);
            let mine = |record: &&Value| {
                endpoints(record) == key
                    && text(record, "mailfrom") == row["mailfrom"]
                    && (row["msg_id"] == "-" || text(record, "msg_id") == row["msg_id"])
            };
            let Some(record) = ours.iter().find(mine) else {
                return Some((what, vec![format!("not found {}", row["mailfrom"])]));
            };
            let names = same([
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
            ]);
            // Sets of Zeek's have no order.
            let differences = differences(row, record, &names, |name, ours, theirs| match name {
                "to" | "cc" | "rcptto" => (sorted(&ours), sorted(&theirs)),
                _ => (ours, theirs),
            });
            Some((what, differences))
        },
    );
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
    against_zeek(
        &corpora,
        "ftp.log",
        "ftp",
        FTP_EXCEPTIONS,
        |name, row, ours| {
            // A capture without some of the commands: which replies are whose is a guess.
            if name.ends_with("cwd-navigation") {
                return None;
            }
            let key = zeek_endpoints(row);
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
            let is = |record: &Value| {
                let argument = text(record, "arg");
                // Zeek makes URIs of names of files.
                let has_argument = is_secret || of("arg").ends_with(argument.as_str());
                endpoints(record) == key
                    && has_argument
                    && (expected.iter()).all(|(name, value)| text(record, name) == *value)
            };
            let differences = match ours.iter().position(is) {
                Some(place) => {
                    ours.remove(place);
                    Vec::new()
                }
                None => vec![format!("not found {expected:?} {}", row["arg"])],
            };
            Some((what, differences))
        },
    );
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
