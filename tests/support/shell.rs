//! Reads the command lines of Zeek's tests far enough to know which run of Zeek made which log.
//!
//! No shell is run: redirections, pipes, `mv`, `cp`, `cat`, `zeek-cut` and the comparing commands
//! are followed by name; a log that comes about in any other way has no known origin.

use std::collections::HashMap;

/// One run of `zeek`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// The capture, relative to the traces' folder.
    pub trace: String,
    /// `-C`: checksums are not verified.
    pub ignore_checksums: bool,
    /// `-b`: only what the test loads.
    pub bare: bool,
    /// `-f`: a BPF filter.
    pub filter: Option<String>,
    /// Settings on the command line (`name=value`, `name += value`).
    pub settings: Vec<String>,
    /// Scripts named on the command line.
    pub scripts: Vec<String>,
}

/// Where a compared log comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub run: Run,
    /// Its name when Zeek wrote it, without its ending: `conn`, `http`.
    pub log: String,
    /// The columns when `zeek-cut` chose some.
    pub columns: Option<Vec<String>>,
}

/// Logs that are followed.
const LOGS: &[&str] = &[
    "conn", "dhcp", "dns", "files", "ftp", "http", "ntp", "quic", "smtp", "snmp", "ssh", "ssl",
    "weird", "x509",
];

/// The log that a file is of by its name: `conn-2.log`, `http.log.cut`, `manager.x509.log`.
pub(crate) fn named(file: &str) -> Option<&'static str> {
    let is = |log: &&&str| {
        file.match_indices(**log).any(|(at, _)| {
            let before = file[..at].chars().next_back();
            let behind = file[at + log.len()..].chars().next();
            let is_apart = before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
            is_apart && behind.is_some_and(|letter| matches!(letter, '.' | '-' | '0'..='9'))
        })
    };
    LOGS.iter()
        .find(is)
        .copied()
        .filter(|_| file.contains(".log"))
}

/// What the command lines of one test say.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Runs of Zeek, in order.
    pub runs: Vec<Run>,
    /// Origin of each compared file, by the name of its baseline.
    pub compared: HashMap<String, Origin>,
    files: HashMap<String, Origin>,
}

impl Script {
    /// Follows the lines in order.
    pub(crate) fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Script {
        let mut script = Script::default();
        for line in lines {
            for pipeline in split(&words(line), &["&&", ";", "||"]) {
                script.pipeline(&pipeline);
            }
        }
        script
    }

    /// The origin of the baseline named so. A log that a test's own script writes under another
    /// name comes from the test's only run.
    pub(crate) fn origin(&self, baseline: &str) -> Option<Origin> {
        self.compared
            .get(baseline)
            .cloned()
            .or_else(|| match self.runs.as_slice() {
                [run] => Some(Origin {
                    run: run.clone(),
                    log: named(baseline)?.to_owned(),
                    columns: None,
                }),
                _ => None,
            })
    }

    fn pipeline(&mut self, words: &[String]) {
        let mut input: Option<Origin> = None;
        for command in split(words, &["|"]) {
            let mut command = Command::read(&command);
            if command.words.is_empty() {
                continue;
            }
            if let Some(name) = &command.input {
                input = self.files.get(name).cloned();
            }
            let name = command.words.remove(0);
            let output = self.command(&name, &command.words, input.take());
            if let Some(target) = &command.output {
                // What is appended to a log of another run is of no one run.
                let is_first = !(command.appends && self.files.contains_key(target));
                match output.clone().filter(|_| is_first) {
                    Some(origin) => {
                        self.files.insert(target.clone(), origin);
                    }
                    None => {
                        self.files.remove(target);
                    }
                }
            }
            input = output;
        }
    }

    /// Follows one command; the origin of what it writes to standard output, if it is a log.
    fn command(&mut self, name: &str, words: &[String], input: Option<Origin>) -> Option<Origin> {
        match name {
            "zeek" => {
                let run = Run::parse(words);
                for log in LOGS {
                    let origin = Origin {
                        run: run.clone(),
                        log: (*log).to_owned(),
                        columns: None,
                    };
                    self.files.insert(format!("{log}.log"), origin);
                }
                self.runs.push(run);
                None
            }
            "cat" => words.first().and_then(|file| self.files.get(file).cloned()),
            "zeek-cut" => {
                let columns = words.iter().filter(|word| !word.starts_with('-')).cloned();
                let columns: Vec<String> = columns.collect();
                // With a header (`-c`, `-C`, `-m`) the file itself names its columns.
                input.map(|origin| Origin {
                    columns: (!columns.is_empty()).then_some(columns),
                    ..origin
                })
            }
            "mv" | "cp" => {
                self.rename(words, name == "mv");
                None
            }
            "btest-diff" | "btest-diff-cut" => {
                if let Some(file) = words.last() {
                    self.compare(name, file, words);
                }
                None
            }
            _ => None,
        }
    }

    fn rename(&mut self, words: &[String], remove: bool) {
        let [sources @ .., target] = words else {
            return;
        };
        for source in sources {
            if source.contains('*') {
                let names: Vec<String> = self
                    .files
                    .keys()
                    .filter(|name| !name.contains('/'))
                    .cloned()
                    .collect();
                for name in names {
                    let origin = self.files.get(&name).cloned();
                    if remove {
                        self.files.remove(&name);
                    }
                    if let Some(origin) = origin {
                        self.files.insert(format!("{target}/{name}"), origin);
                    }
                }
                continue;
            }
            if let Some(origin) = self.files.get(source).cloned() {
                if remove {
                    self.files.remove(source);
                }
                self.files.insert(target.clone(), origin);
            }
        }
    }

    fn compare(&mut self, command: &str, file: &str, words: &[String]) {
        let Some(mut origin) = self.files.get(file).cloned() else {
            return;
        };
        if command == "btest-diff-cut" {
            let columns = words[..words.len() - 1]
                .iter()
                .filter(|word| !word.starts_with('-'));
            let columns: Vec<String> = columns.cloned().collect();
            origin.columns = (!columns.is_empty()).then_some(columns);
        }
        // Two runs whose logs are compared with one baseline must agree; the last is kept.
        self.compared.insert(file.replace('/', "."), origin);
    }
}

impl Run {
    fn parse(words: &[String]) -> Run {
        let mut run = Run::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some(long) = word.strip_prefix("--") {
                if matches!(long, "save-seeds" | "load-seeds") {
                    words.next();
                }
            } else if let Some(letters) = word.strip_prefix('-') {
                run.options(letters, &mut words);
            } else if word.contains('=') {
                run.settings.push(word.clone());
            } else if word != "%INPUT" {
                run.scripts.push(word.clone());
            }
        }
        run
    }

    fn options<'a>(&mut self, letters: &str, words: &mut impl Iterator<Item = &'a String>) {
        for (index, letter) in letters.char_indices() {
            let rest = &letters[index + letter.len_utf8()..];
            let mut value = || {
                if rest.is_empty() {
                    words.next().cloned().unwrap_or_default()
                } else {
                    rest.to_owned()
                }
            };
            match letter {
                'b' => self.bare = true,
                'C' => self.ignore_checksums = true,
                'r' => {
                    self.trace = value()
                        .trim_start_matches("$TRACES/")
                        .trim_start_matches("${TRACES}/")
                        .to_owned();
                    return;
                }
                'f' => {
                    self.filter = Some(value());
                    return;
                }
                // Options with a value that does not matter here.
                'O' | 'e' | 'i' | 's' | 'p' | 'w' | 'x' => {
                    let value = value();
                    if letter == 'e' {
                        self.settings.push(value);
                    }
                    return;
                }
                _ => {}
            }
        }
    }
}

/// A command without its redirections.
#[derive(Default)]
struct Command {
    words: Vec<String>,
    input: Option<String>,
    output: Option<String>,
    appends: bool,
}

impl Command {
    fn read(words: &[String]) -> Command {
        let mut command = Command::default();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            match word.as_str() {
                "<" => command.input = words.next().cloned(),
                ">" | ">>" => {
                    command.appends = word == ">>";
                    command.output = words.next().cloned();
                }
                "2>" => {
                    words.next();
                }
                ">&2" | "2>&1" | "!" => {}
                // A variable before the command.
                _ if command.words.is_empty() && is_assignment(word) => {}
                _ => command.words.push(word.clone()),
            }
        }
        command
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|letter| {
                letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_'
            })
    })
}

fn split(words: &[String], separators: &[&str]) -> Vec<Vec<String>> {
    words
        .split(|word| separators.contains(&word.as_str()))
        .map(<[String]>::to_vec)
        .collect()
}

/// Splits a line as a shell does: quotes, and operators as words of their own.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut started = false;
    let mut quote = None;
    let mut letters = line.chars().peekable();
    let mut flush = |word: &mut String, started: &mut bool| {
        if *started {
            found.push(std::mem::take(word));
            *started = false;
        }
    };
    while let Some(letter) = letters.next() {
        if let Some(open) = quote {
            if letter == open {
                quote = None;
            } else {
                word.push(letter);
            }
            continue;
        }
        match letter {
            '\'' | '"' => {
                quote = Some(letter);
                started = true;
            }
            ' ' | '\t' => flush(&mut word, &mut started),
            '|' | '&' | ';' | '<' | '>' => {
                // `2>` and `2>&1` belong together.
                if !(letter == '>' && word == "2") {
                    flush(&mut word, &mut started);
                }
                word.push(letter);
                started = true;
                while let Some(&next) = letters.peek() {
                    let joined = format!("{word}{next}");
                    if ["&&", "||", ">>", "2>>", ">&", "2>&", ">&1", ">&2", "2>&1"]
                        .contains(&joined.as_str())
                    {
                        word.push(next);
                        letters.next();
                    } else {
                        break;
                    }
                }
                flush(&mut word, &mut started);
            }
            _ => {
                word.push(letter);
                started = true;
            }
        }
    }
    flush(&mut word, &mut started);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_quotes_and_operators() {
        assert_eq!(
            words("zeek -b \"a += {1, 2}\" -f 'port 53 or port 80' x.pcap >output 2>&1 && mv a b"),
            [
                "zeek",
                "-b",
                "a += {1, 2}",
                "-f",
                "port 53 or port 80",
                "x.pcap",
                ">",
                "output",
                "2>&1",
                "&&",
                "mv",
                "a",
                "b"
            ]
        );
        assert_eq!(
            words("zeek-cut uid <conn.log >c"),
            ["zeek-cut", "uid", "<", "conn.log", ">", "c"]
        );
    }

    #[test]
    fn reads_a_plain_run() {
        let script = Script::parse([
            "zeek -b -Cr $TRACES/a/b.pcap %INPUT >out",
            "btest-diff conn.log",
        ]);
        let origin = script.origin("conn.log").unwrap();
        assert_eq!(origin.run.trace, "a/b.pcap");
        assert!(origin.run.bare && origin.run.ignore_checksums);
        assert_eq!(origin.columns, None);
    }

    #[test]
    fn reads_filter_and_settings() {
        let script = Script::parse([
            "zeek -f 'port 53' -r ${TRACES}/w.pcap dns_max_queries=3 base/protocols/conn %INPUT",
        ]);
        let run = &script.runs[0];
        assert_eq!(run.filter.as_deref(), Some("port 53"));
        assert_eq!(run.settings, ["dns_max_queries=3"]);
        assert_eq!(run.scripts, ["base/protocols/conn"]);
        assert!(!run.ignore_checksums);
    }

    #[test]
    fn follows_renamed_logs_of_two_runs() {
        let script = Script::parse([
            "zeek -C -r $TRACES/one.pcap %INPUT && mv conn.log conn-1.log",
            "zeek -r $TRACES/two.pcap %INPUT && mv conn.log conn-2.log",
            "btest-diff conn-1.log",
            "btest-diff conn-2.log",
        ]);
        assert_eq!(script.origin("conn-1.log").unwrap().run.trace, "one.pcap");
        assert_eq!(script.origin("conn-2.log").unwrap().run.trace, "two.pcap");
        assert_eq!(script.origin("conn.log"), None);
    }

    #[test]
    fn follows_a_cut_log_into_a_folder() {
        let script = Script::parse([
            "zeek --save-seeds s -r $TRACES/one.pcap %INPUT",
            "mkdir save && mv *log save",
            "zeek-cut -m uid history < save/conn.log >save/conn.log.cut",
            "btest-diff save/conn.log.cut",
        ]);
        let origin = script.origin("save.conn.log.cut").unwrap();
        assert_eq!(origin.run.trace, "one.pcap");
        assert_eq!(
            origin.columns,
            Some(vec!["uid".to_owned(), "history".to_owned()])
        );
    }

    #[test]
    fn follows_a_pipe_and_the_comparing_cut() {
        let script = Script::parse([
            "zeek -r $TRACES/one.pcap",
            "cat conn.log | zeek-cut -Cn local_orig > conn.log2 && mv conn.log2 conn.log",
            "TEST_DIFF_CANONIFIER=$SCRIPTS/x btest-diff conn.log",
        ]);
        assert_eq!(script.origin("conn.log").unwrap().run.trace, "one.pcap");
        let script = Script::parse([
            "zeek -r $TRACES/one.pcap",
            "btest-diff-cut -m uid history conn.log",
        ]);
        assert_eq!(
            script.origin("conn.log").unwrap().columns,
            Some(vec!["uid".to_owned(), "history".to_owned()])
        );
    }
}
