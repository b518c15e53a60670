//! SMTP and FTP records of captures against Zeek's.

use crate::conversations::{against_zeek, differences, endpoints, same, text, zeek_endpoints};
use crate::corpora::corpora;
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
            let of = |record: &Value| {
                differences(row, record, &names, |name, ours, theirs| match name {
                    "to" | "cc" | "rcptto" => (sorted(&ours), sorted(&theirs)),
                    _ => (ours, theirs),
                })
            };
            // One sender can send several mails: the nearest.
            let nearest = ours.iter().filter(mine).map(of).min_by_key(Vec::len);
            let none = || vec![format!("not found {}", row["mailfrom"])];
            Some((what, nearest.unwrap_or_else(none)))
        },
    );
}

fn sorted(list: &str) -> String {
    let mut parts: Vec<&str> = list.split(',').map(str::trim).collect();
    parts.sort_unstable();
    parts.join(",")
}

const SMTP_EXCEPTIONS: &[(&str, &str)] = &[(
    "bdat-gap",
    "bytes of a chunk are missing: its reply came before the hole was given up",
)];

#[test]
fn zeek_ftp_logs() {
    let Some(corpora) = corpora() else { return };
    against_zeek(
        &corpora,
        "ftp.log",
        "ftp",
        FTP_EXCEPTIONS,
        |name, row, ours| {
            let key = zeek_endpoints(row);
            let what = format!(
                "{name} {key} {} {} {}",
                row["command"], row["arg"], row["reply_msg"]
            );
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

/// In cwd-navigation, where both guess.
const AT_HOLES: &str = "bytes of both sides are missing here: which reply is whose, and what the folder is, is a guess";

/// Of each record that differs the command and what the reply says stand in its name.
const FTP_EXCEPTIONS: &[(&str, &str)] = &[
    (
        "ftp-invalid-reply-code",
        "a line that is not a reply: Zeek keeps the code of the reply before",
    ),
    ("PASV - Transfer complete", AT_HOLES),
];
