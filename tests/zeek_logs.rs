//! `log --format zeek` against Zeek's own logs: every baseline of its tests whose command line shows which
//! capture it came from, row by row and field by field, both ways.
//!
//! Rows are paired within a connection (where the log has none, within the log), the most alike first. Of paired rows
//! each column of the baseline that either side sets is a field; of a row that only one side has, each column that it
//! sets is one that differs. Ids (`uid`, `fuid`) are made up anew by every program: of them only their number counts.
//! Times are masked in most baselines and left out there.
//!
//! What is compared is said by Zeek's index alone: command lines, loaded scripts, settings. Rows that differ are listed
//! in `tests/data/zeek_log_exceptions.tsv`, each with the columns and the reason; they count as different all the same.
//! Baselines that cannot be compared at all are in `tests/data/zeek_log_excluded.tsv`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support;
use crate::support::compare::pair;
use crate::support::shell::{Run, Script};
use crate::support::zeek_log::{Log, Row};
use serde_json::Value;

/// Logs, how many of their fields have to be equal, in percent (0: they are counted without a promise), and the columns
/// that they have in Zeek by default. Others come from policy scripts and from what tests add.
const LOGS: &[(&str, f64, &str)] = &[
    (
        "conn",
        95.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p proto service duration orig_bytes resp_bytes conn_state \
         local_orig local_resp missed_bytes history orig_pkts orig_ip_bytes resp_pkts resp_ip_bytes tunnel_parents \
         ip_proto",
    ),
    (
        "dhcp",
        0.0,
        "ts uids client_addr server_addr mac host_name client_fqdn domain requested_addr assigned_addr lease_time \
         client_message server_message msg_types duration",
    ),
    (
        "dns",
        95.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p proto trans_id rtt query qclass qclass_name qtype qtype_name \
         rcode rcode_name AA TC RD RA Z answers TTLs rejected opcode opcode_name",
    ),
    (
        "files",
        90.0,
        "ts fuid uid id.orig_h id.orig_p id.resp_h id.resp_p source depth analyzers mime_type filename duration \
         local_orig is_orig seen_bytes total_bytes missing_bytes overflow_bytes timedout parent_fuid md5 sha1 sha256 \
         extracted extracted_cutoff extracted_size",
    ),
    (
        "ftp",
        90.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p user password command arg mime_type file_size reply_code \
         reply_msg data_channel.passive data_channel.orig_h data_channel.resp_h data_channel.resp_p fuid",
    ),
    (
        "http",
        95.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p trans_depth method host uri referrer version user_agent \
         origin request_body_len response_body_len status_code status_msg info_code info_msg tags username password \
         proxied orig_fuids orig_filenames orig_mime_types resp_fuids resp_filenames resp_mime_types",
    ),
    (
        "ntp",
        95.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p version mode stratum poll precision root_delay root_disp \
         ref_id ref_time org_time rec_time xmt_time num_exts",
    ),
    (
        "quic",
        0.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p version client_initial_dcid client_scid server_scid \
         server_name client_protocol history",
    ),
    (
        "smtp",
        95.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p trans_depth helo mailfrom rcptto date from to cc reply_to \
         msg_id in_reply_to subject x_originating_ip first_received second_received last_reply path user_agent tls \
         fuids",
    ),
    (
        "snmp",
        0.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p duration version community get_requests get_bulk_requests \
         get_responses set_requests display_string up_since",
    ),
    (
        "ssh",
        90.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p version auth_success auth_attempts direction client server \
         cipher_alg mac_alg compression_alg kex_alg host_key_alg host_key_fingerprint",
    ),
    (
        "ssl",
        95.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p version cipher curve server_name resumed last_alert \
         next_protocol established ssl_history cert_chain_fps client_cert_chain_fps sni_matches_cert",
    ),
    (
        "weird",
        0.0,
        "ts uid id.orig_h id.orig_p id.resp_h id.resp_p name addl notice peer source",
    ),
    (
        "x509",
        95.0,
        "ts fingerprint certificate.version certificate.serial certificate.subject certificate.issuer \
         certificate.not_valid_before certificate.not_valid_after certificate.key_alg certificate.sig_alg \
         certificate.key_type certificate.key_length certificate.exponent certificate.curve san.dns san.uri san.email \
         san.ip basic_constraints.ca basic_constraints.path_len host_cert client_cert",
    ),
];
/// Zeek's inactivity timeouts, in our terms.
const IDLE_TIMEOUT: &str = "tcp=300,udp=60,other=60";
/// Files are written.
const EXTRACT: &str = "--extract-files";
/// Columns of ids.
const IDS: &[&str] = &[
    "uid",
    "uids",
    "fuid",
    "fuids",
    "parent_fuid",
    "orig_fuids",
    "resp_fuids",
    "tunnel_parents",
];

/// Columns whose parts have no order.
const SETS: &[&str] = &["service", "analyzers", "rcptto", "to", "cc", "tags"];

/// A baseline to compare with.
struct Case {
    /// Test and file.
    name: String,
    /// Which log.
    kind: String,
    theirs: Log,
    run: Run,
    /// Settings that it changes.
    changed: Vec<String>,
    /// Protocols whose scripts are loaded; `None`: all.
    loaded: Option<BTreeSet<String>>,
}

/// Fields of a column that are equal, and that differ.
type Counts = (u64, u64);

#[derive(Default)]
struct Tally {
    /// By log and column.
    fields: BTreeMap<(String, String), Counts>,
    /// By log: rows of both, of Zeek's alone, of ours alone.
    rows: BTreeMap<String, [u64; 3]>,
    /// Rows that differ: case, row, columns, and what is there instead.
    differ: Vec<[String; 4]>,
    failures: Vec<String>,
}

#[test]
fn fields_equal_zeeks() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let (cases, mut failures, excluded) = cases(&corpora);
    let mut all = Tally::default();
    for part in support::in_parallel(&runs(&cases), 2, |run| compare_run(&corpora, &run.1)) {
        all.merge(part);
    }
    failures.append(&mut all.failures);
    failures.extend(unlisted(&all.differ));
    support::say(&all.table());
    support::say(&format!("{excluded} baselines are not comparable\n"));
    if let Some(path) = std::env::var_os("FLOWGAUGE_DIFFERENCES") {
        let lines = all.differ.iter().map(|parts| parts.join("\t") + "\n");
        std::fs::write(path, lines.collect::<String>()).expect("a file");
    }
    for (log, promised, _) in LOGS {
        let percent = all.percent(log);
        if percent < *promised {
            failures.push(format!("{log}: {percent:.2} % of the fields are equal"));
        }
    }
    let first: Vec<&String> = failures.iter().take(40).collect();
    assert!(
        failures.is_empty(),
        "{} failures: {first:#?}",
        failures.len()
    );
}

/// The comparison is worth something only if it notices each kind of difference.
#[test]
fn a_changed_field_a_row_more_and_a_row_less_are_noticed() {
    let row = |pairs: &[(&str, &str)]| -> Row {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        pairs.collect()
    };
    let theirs = || Log {
        columns: ["uid", "id.orig_h", "service"].map(str::to_owned).to_vec(),
        types: Vec::new(),
        rows: vec![row(&[
            ("uid", "C1"),
            ("id.orig_h", "10.0.0.1"),
            ("service", "dns"),
        ])],
    };
    let count = |ours: Vec<Row>| {
        let case = Case {
            name: "a/conn.log".to_owned(),
            kind: "conn".to_owned(),
            theirs: theirs(),
            run: Run::default(),
            changed: Vec::new(),
            loaded: None,
        };
        let mut tally = Tally::default();
        tally.compare(&case, &ours);
        let (mut equal, mut differ) = (0, 0);
        for counts in tally.fields.values() {
            equal += counts.0;
            differ += counts.1;
        }
        (equal, differ, tally.differ.len())
    };
    let same = row(&[("uid", "C9"), ("id.orig_h", "10.0.0.1"), ("service", "dns")]);
    let other = row(&[("uid", "C9"), ("id.orig_h", "10.0.0.1"), ("service", "ftp")]);
    assert_eq!(count(vec![same.clone()]), (3, 0, 0));
    assert_eq!(count(vec![other]), (2, 1, 1));
    assert_eq!(count(vec![same.clone(), same]), (3, 3, 1));
    assert_eq!(count(Vec::new()), (0, 3, 1));
}

/// All baselines, what is wrong with others, and how many are not comparable.
fn cases(corpora: &Path) -> (Vec<Case>, Vec<String>, usize) {
    let folder = corpora.join("zeek");
    let excluded = lines::<2>("zeek_log_excluded.tsv");
    let mut used = BTreeSet::new();
    let (mut cases, mut failures) = (Vec::new(), Vec::new());
    let indexes = support::files_below(&folder, &|path| {
        let is_index = path.extension().is_some_and(|it| it == "jsonl");
        is_index && path.parent() == Some(folder.as_path())
    });
    for index in indexes {
        let text = std::fs::read_to_string(&index).unwrap_or_else(|it| panic!("{index:?}: {it}"));
        for line in text.lines().filter(|line| !line.is_empty()) {
            let test: Value =
                serde_json::from_str(line).unwrap_or_else(|it| panic!("{it}: {line}"));
            let baselines: BTreeSet<String> = strings(&test["baseline"]).into_iter().collect();
            for baseline in baselines {
                let name = baseline.trim_start_matches("Baseline/").to_owned();
                let Some(case) = case(&folder, &test, &baseline, &name) else {
                    continue;
                };
                match (case, excluded.iter().any(|[of, _]| *of == name)) {
                    (_, true) => {
                        used.insert(name);
                    }
                    (Ok(case), false) => cases.push(case),
                    (Err(why), false) => failures.push(format!("{name}: {why}")),
                }
            }
        }
    }
    let stale = excluded.iter().filter(|[name, _]| !used.contains(name));
    failures.extend(
        stale.map(|[name, _]| format!("{name} is excluded, and there is no such baseline")),
    );
    (cases, failures, excluded.len())
}

/// The case of a baseline that is of one of the logs.
fn case(folder: &Path, test: &Value, baseline: &str, name: &str) -> Option<Result<Case, String>> {
    let file = baseline.rsplit('/').next()?;
    let script = Script::parse(strings(&test["exec"]).iter().map(String::as_str));
    let origin = script.origin(file);
    let kind = match &origin {
        Some(origin) => origin.log.as_str(),
        None => support::shell::named(file)?,
    };
    LOGS.iter().find(|(log, ..)| *log == kind)?;
    let Some(origin) = &origin else {
        return Some(Err(
            "the command lines do not show which run made it".to_owned()
        ));
    };
    if origin.run.trace.is_empty() {
        return Some(Err("the run that made it reads no capture".to_owned()));
    }
    if !folder.join("Traces").join(&origin.run.trace).is_file() {
        return Some(Err(format!("{} is not there", origin.run.trace)));
    }
    let theirs = std::fs::read(folder.join(baseline)).map_err(|error| error.to_string());
    let theirs = theirs
        .and_then(|bytes| Log::parse(&String::from_utf8_lossy(&bytes), origin.columns.as_deref()));
    let loads = || {
        let mut loads = strings(&test["load"]);
        loads.extend(origin.run.scripts.iter().cloned());
        loads
    };
    Some(theirs.map(|theirs| Case {
        name: name.to_owned(),
        kind: kind.to_owned(),
        theirs,
        run: origin.run.clone(),
        changed: [strings(&test["redef"]), origin.run.settings.clone()].concat(),
        loaded: origin.run.bare.then(|| protocols(&loads())),
    }))
}

/// Protocols that scripts are of: `base/protocols/http`, `protocols/ssl/validate-certs`.
fn protocols(loads: &[String]) -> BTreeSet<String> {
    let name = |load: &String| {
        let (_, rest) = load.split_once("protocols/")?;
        let name = rest.split(['/', ' ', '.']).next()?;
        Some(match name {
            "krb" => "krb_tcp".to_owned(),
            "dce-rpc" => "dce_rpc".to_owned(),
            other => other.to_owned(),
        })
    };
    let mut all: BTreeSet<String> = loads.iter().filter_map(name).collect();
    for (one, also) in [("quic", "ssl"), ("rdp", "ssl"), ("websocket", "http")] {
        if all.contains(one) {
            all.insert(also.to_owned());
        }
    }
    if all.contains("smb") {
        all.extend(["gssapi", "ntlm", "dce_rpc"].map(str::to_owned));
    }
    all
}

/// Cases by the run that they are of.
fn runs(cases: &[Case]) -> Vec<(String, Vec<&Case>)> {
    let mut runs: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let run = &case.run;
        let key = format!(
            "{}\t{}\t{:?}\t{:?}",
            run.trace,
            run.ignore_checksums,
            run.filter,
            options(case)
        );
        runs.entry(key).or_default().push(case);
    }
    runs.into_iter().collect()
}

/// What a test has done with files: digests that it has computed, whether they are written, and how much of each, and
/// whether mails are files, as options of ours.
fn options(case: &Case) -> Vec<String> {
    let has = |name: &&str| case.theirs.rows.iter().any(|row| row.contains_key(*name));
    let names: Vec<&str> = ["md5", "sha1", "sha256"].into_iter().filter(has).collect();
    let mut options = Vec::new();
    if !names.is_empty() {
        options.push(format!("--digests={}", names.join(",")));
    }
    if has(&"extracted") {
        options.push(EXTRACT.to_owned());
        let limits = case.changed.iter();
        let mut limits = limits.filter_map(|it| it.strip_prefix("FileExtract::default_limit="));
        options.extend(limits.next().map(|limit| format!("--file-limit={limit}")));
    }
    let sets_mails = |it: &String| it.contains("enable_rfc822_msg_file_analysis = T");
    if case.changed.iter().any(sets_mails) {
        options.push("--mails".to_owned());
    }
    options
}

/// Runs ours once, and compares all cases of its capture.
fn compare_run(corpora: &Path, cases: &[&Case]) -> Tally {
    let mut tally = Tally::default();
    let Some(first) = cases.first() else {
        return tally;
    };
    match logs(corpora, &first.run, &options(first)) {
        Err(why) => tally.failures.push(format!("{}: {why}", first.run.trace)),
        Ok(logs) => {
            for case in cases {
                let ours = logs.get(&case.kind);
                tally.compare(case, ours.map_or(&[], |log| &log.rows));
                tally.failures.extend(ours.and_then(|log| form(case, log)));
            }
        }
    }
    tally
}

/// Whether a log of ours begins with Zeek's columns, of the same types.
fn form(case: &Case, ours: &Log) -> Option<String> {
    let wanted = LOGS.iter().find(|(log, ..)| *log == case.kind)?.2;
    if !ours
        .columns
        .iter()
        .map(String::as_str)
        .take(wanted.split_whitespace().count())
        .eq(wanted.split_whitespace())
    {
        return Some(format!("{} has the columns {:?}", case.kind, ours.columns));
    }
    let theirs = case.theirs.columns.iter().zip(&case.theirs.types);
    let mut ours = ours.columns.iter().zip(&ours.types);
    let other = theirs
        .filter(|(name, _)| wanted.split_whitespace().any(|it| it == *name))
        .find(|(name, kind)| {
            ours.clone()
                .any(|(our, other)| our == *name && other != *kind)
        })?;
    let our = ours.find(|(name, _)| *name == other.0);
    Some(format!("{}: types of {:?} and {our:?}", case.name, other))
}

/// What ours writes of a capture, by log.
fn logs(corpora: &Path, run: &Run, options: &[String]) -> Result<HashMap<String, Log>, String> {
    let trace = corpora.join("zeek/Traces").join(&run.trace);
    // Runs beside each other may differ in a filter or settings only.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = format!("zeek-{}-{number}", run.trace.replace('/', "-"));
    let extracted = support::scratch(&format!("{folder}-extracted"));
    let folder = support::scratch(&folder);
    let checksums = if run.ignore_checksums {
        "ignore"
    } else {
        "verify"
    };
    let mut arguments: Vec<&OsStr> = [
        "log",
        "-q",
        "--format",
        "zeek",
        "--flows",
        "--anomalies",
        "--files",
    ]
    .map(OsStr::new)
    .to_vec();
    // Zeek's connections are the same on each VLAN.
    arguments.extend(["--idle-timeout", IDLE_TIMEOUT, "--vlan-aware", "no"].map(OsStr::new));
    for option in options {
        arguments.push(OsStr::new(option));
        if option == EXTRACT {
            arguments.push(extracted.as_os_str());
        }
    }
    arguments.extend(["--checksums", checksums, "-w"].map(OsStr::new));
    arguments.extend([folder.as_os_str(), OsStr::new("-r"), trace.as_os_str()]);
    if let Some(filter) = &run.filter {
        arguments.extend([OsStr::new("--"), OsStr::new(filter)]);
    }
    let outcome = support::flowgauge::run(arguments);
    if outcome.code != Some(0) {
        return Err(format!("{:?}: {}", outcome.code, outcome.stderr));
    }
    let mut logs = HashMap::new();
    for path in support::files_below(&folder, &|_| true) {
        let kind = path
            .file_stem()
            .and_then(OsStr::to_str)
            .unwrap_or_default()
            .to_owned();
        let text = std::fs::read(&path).map_err(|error| error.to_string())?;
        let log = Log::parse(&String::from_utf8_lossy(&text), None);
        logs.insert(
            kind,
            log.map_err(|error| format!("{}: {error}", path.display()))?,
        );
    }
    // The folders have been read; those that stay are begun anew by the next run.
    for folder in [folder, extracted] {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(logs)
}

impl Tally {
    fn merge(&mut self, other: Tally) {
        for (column, (equal, differ)) in other.fields {
            let counts = self.fields.entry(column).or_default();
            counts.0 += equal;
            counts.1 += differ;
        }
        for (log, rows) in other.rows {
            let all = self.rows.entry(log).or_default();
            all.iter_mut()
                .zip(rows)
                .for_each(|(sum, part)| *sum += part);
        }
        self.differ.extend(other.differ);
        self.failures.extend(other.failures);
    }

    fn compare(&mut self, case: &Case, ours: &[Row]) {
        let ours: Vec<Row> = ours.iter().map(|row| seen_by(case, row)).collect();
        let theirs = &case.theirs.rows;
        let mut partner: Vec<Option<usize>> = vec![None; theirs.len()];
        let mut taken = vec![false; ours.len()];
        let mut groups: BTreeMap<String, [Vec<usize>; 2]> = BTreeMap::new();
        for (side, rows) in [theirs, &ours].into_iter().enumerate() {
            for (number, row) in rows.iter().enumerate() {
                groups.entry(key(case, row)).or_default()[side].push(number);
            }
        }
        for [left, right] in groups.values() {
            // Rows that are the same in all, in their order; then those most alike.
            for &row in left {
                let same = right.iter().copied().find(|&our| {
                    !taken[our] && differences(case, &theirs[row], &ours[our]).is_empty()
                });
                if let Some(our) = same {
                    (partner[row], taken[our]) = (Some(our), true);
                }
            }
            let left: Vec<usize> = left
                .iter()
                .copied()
                .filter(|&row| partner[row].is_none())
                .collect();
            let right: Vec<usize> = right.iter().copied().filter(|&our| !taken[our]).collect();
            let pairs = pair(&left, &right, |&row, &our| {
                -(differences(case, &theirs[row], &ours[our]).len() as i64)
            });
            for (row, our) in left.iter().zip(pairs) {
                if let Some(our) = our.map(|index| right[index]) {
                    (partner[*row], taken[our]) = (Some(our), true);
                }
            }
        }
        for (number, row) in theirs.iter().enumerate() {
            self.row(
                case,
                &number.to_string(),
                Some(row),
                partner[number].map(|our| &ours[our]),
            );
        }
        for (number, row) in ours
            .iter()
            .enumerate()
            .filter(|(number, _)| !taken[*number])
        {
            self.row(case, &format!("+{number}"), None, Some(row));
        }
    }

    /// Counts a row of one side or of both.
    fn row(&mut self, case: &Case, name: &str, theirs: Option<&Row>, ours: Option<&Row>) {
        let side = match (theirs, ours) {
            (Some(_), Some(_)) => 0,
            (Some(_), None) => 1,
            _ => 2,
        };
        self.rows.entry(case.kind.clone()).or_default()[side] += 1;
        let none = Row::new();
        let (theirs, ours) = (theirs.unwrap_or(&none), ours.unwrap_or(&none));
        let differ = differences(case, theirs, ours);
        for column in columns(case) {
            let is_set = theirs.contains_key(column) || ours.contains_key(column);
            if is_set && !is_masked(theirs, column) {
                let counts = self
                    .fields
                    .entry((case.kind.clone(), column.clone()))
                    .or_default();
                let place = if differ.contains(&column) {
                    &mut counts.1
                } else {
                    &mut counts.0
                };
                *place += 1;
            }
        }
        let is_promised = LOGS
            .iter()
            .any(|(log, share, _)| *log == case.kind && *share > 0.0);
        if !differ.is_empty() && is_promised {
            let value =
                |row: &Row, column: &String| row.get(column).map_or("-", String::as_str).to_owned();
            let what = differ.iter().map(|column| {
                format!(
                    "{column}: {} is {}",
                    value(theirs, column),
                    value(ours, column)
                )
            });
            let what = what.collect::<Vec<_>>().join("; ");
            let columns = match side {
                0 => differ
                    .iter()
                    .map(|it| it.as_str())
                    .collect::<Vec<_>>()
                    .join(","),
                1 => "missing".to_owned(),
                _ => "extra".to_owned(),
            };
            self.differ
                .push([case.name.clone(), name.to_owned(), columns, what]);
        }
    }

    /// Equal fields of a log, in percent.
    fn percent(&self, log: &str) -> f64 {
        let of_log = self.fields.iter().filter(|((of, _), _)| of == log);
        let (equal, differ) = of_log.fold((0, 0), |sum, (_, it)| (sum.0 + it.0, sum.1 + it.1));
        100.0 * equal as f64 / (equal + differ).max(1) as f64
    }

    fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (log, [both, theirs, ours]) in &self.rows {
            let _ = writeln!(
                text,
                "{log}: {:.2} % of the fields are equal; rows: {both} of both, {theirs} of Zeek's alone, {ours} of ours alone",
                self.percent(log)
            );
            for ((_, column), (equal, differ)) in
                self.fields.iter().filter(|((of, _), _)| of == log)
            {
                let _ = writeln!(
                    text,
                    "  {column:<28} {equal:>6} equal {differ:>6} different"
                );
            }
        }
        text
    }
}

/// Our row as a run of Zeek would have it that loads only some protocols.
fn seen_by(case: &Case, row: &Row) -> Row {
    let mut row = row.clone();
    if let (Some(loaded), Some(service)) = (&case.loaded, row.get("service")) {
        let services = service.split(',').filter(|name| loaded.contains(*name));
        let services = services.collect::<Vec<_>>().join(",");
        match services.is_empty() {
            true => row.remove("service"),
            false => row.insert("service".to_owned(), services),
        };
    }
    row
}

/// Columns that are compared: those of the log by default that the baseline has.
fn columns(case: &Case) -> impl Iterator<Item = &String> {
    let log = LOGS.iter().find(|(log, ..)| *log == case.kind);
    let known: Vec<&str> = log.map_or("", |it| it.2).split_whitespace().collect();
    let theirs: BTreeSet<&String> = case.theirs.columns.iter().collect();
    theirs
        .into_iter()
        .filter(move |column| known.contains(&column.as_str()))
}

/// Whether the test hides what the column says: times, and names of files with them.
fn is_masked(theirs: &Row, column: &str) -> bool {
    match theirs.get(column) {
        Some(value) => value.contains("XXXXXXXXXX.XXXXXX") || column == "ts" && value == "1.000000",
        None => column == "ts",
    }
}

/// Columns in which rows differ.
fn differences<'a>(case: &'a Case, theirs: &Row, ours: &Row) -> Vec<&'a String> {
    let is_equal = |column: &&String| {
        let (their, our) = (theirs.get(*column), ours.get(*column));
        match (their, our) {
            (None, None) => true,
            (Some(_), Some(_)) if is_masked(theirs, column) => true,
            (Some(their), Some(our)) if IDS.contains(&column.as_str()) => {
                their.split(',').count() == our.split(',').count()
            }
            (Some(their), Some(our)) if SETS.contains(&column.as_str()) => {
                let set = |text: &str| -> BTreeSet<String> {
                    text.split(',').map(str::to_owned).collect()
                };
                set(their) == set(our)
            }
            (Some(their), Some(our)) => same(their, our),
            _ => is_masked(theirs, column),
        }
    };
    columns(case).filter(|column| !is_equal(column)).collect()
}

/// The same text, or the same number of seconds to the microsecond.
fn same(their: &str, our: &str) -> bool {
    let seconds = |text: &str| -> Option<f64> {
        let is_decimal = text.contains('.') && text.bytes().all(|it| b"-.0123456789".contains(&it));
        is_decimal.then(|| text.parse().ok())?
    };
    let lists = || their.split(',').zip(our.split(','));
    their == our
        || (their.split(',').count() == our.split(',').count()
            && lists().all(|(one, other)| match (seconds(one), seconds(other)) {
                (Some(one), Some(other)) => (one - other).abs() < 1.5e-6,
                _ => one == other,
            }))
}

/// What rows are paired within: their connection, or all of the log.
fn key(case: &Case, row: &Row) -> String {
    let end = |host: &str, port: &str| {
        let part = |name: &str| row.get(name).map_or("", String::as_str).to_owned();
        // Some baselines have no ports.
        match case.theirs.columns.iter().any(|column| column == port) {
            true => (part(host), part(port)),
            false => (part(host), String::new()),
        }
    };
    if !case
        .theirs
        .columns
        .iter()
        .any(|column| column == "id.orig_h")
    {
        return String::new();
    }
    let (one, other) = (end("id.orig_h", "id.orig_p"), end("id.resp_h", "id.resp_p"));
    format!(
        "{:?}",
        if one < other {
            (one, other)
        } else {
            (other, one)
        }
    )
}

/// Rows that differ and are not listed so, and those that are listed and do not differ so.
fn unlisted(differ: &[[String; 4]]) -> Vec<String> {
    let listed = lines::<4>("zeek_log_exceptions.tsv");
    let name = |parts: &[String; 4]| parts[..3].join("\t");
    let known: BTreeSet<String> = listed.iter().map(name).collect();
    let found: BTreeSet<String> = differ.iter().map(name).collect();
    let new = differ.iter().filter(|it| !known.contains(&name(it)));
    let new = new.map(|it| format!("not listed: {}", it.join("\t")));
    new.chain(known.difference(&found).map(|it| format!("stale: {it}")))
        .collect()
}

/// Lines of so many columns of a list in `tests/data`.
fn lines<const N: usize>(name: &str) -> Vec<[String; N]> {
    let path = support::root().join("tests/data").join(name);
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| {
        let parts: Vec<String> = line.split('\t').map(str::to_owned).collect();
        parts
            .try_into()
            .unwrap_or_else(|_| panic!("{name}: {N} columns are wanted: {line}"))
    });
    parts.collect()
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = items.iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}
