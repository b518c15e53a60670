//! Credentials at a sensor's socket, by the requests as they are sent: forged, narrowed, replayed, revoked and expired.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;

use flowgauge_credential::{Credential, Function, Holder, IssuerKey, Limits, Visible, date_text};
use flowgauge_sensor_client::protocol::{Refusal, receive_answer};
use flowgauge_sys::testing::become_on_this_thread;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);
/// A user that need not exist, and has no table.
const STRANGER: u32 = 64_003;

/// A sensor with an issuer, whose credentials allow at most what `bounds` say.
struct Issued {
    running: Running,
    ops: IssuerKey,
}

/// Nothing where this process may not be another user.
fn issued(test: &str, bounds: &str) -> Option<Issued> {
    if flowgauge_sys::process::user() != 0 {
        eprintln!("SKIPPED {test}: needs root");
        return None;
    }
    let ops = IssuerKey::generate();
    let folder = tempfile::tempdir().unwrap();
    let revoked = folder.path().join("revoked");
    fs::write(&revoked, "").unwrap();
    let policy = include_str!("../../../../policies/headers.toml");
    for name in ["headers.toml", "other.toml"] {
        fs::write(folder.path().join(name), policy).unwrap();
    }
    let key = folder.path().join("anonymize.key");
    fs::write(&key, "5a".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    // It is there as long as the process is.
    let kept = folder.keep();
    let tables = format!(
        "[anonymization]\nstrict = \"{0}/headers.toml\"\nother = \"{0}/other.toml\"\n\
         [users.64001]\npackets = \"payload\"\nanonymize = \"{0}/headers.toml\"\n\
         [issuers.ops]\nkey = \"{1}\"\n{bounds}\n",
        kept.display(),
        ops.public(),
    );
    let running = Running::start_with(
        1,
        &format!("revoked = \"{}/revoked\"\n", kept.display()),
        &tables,
    );
    for path in [running.folder.path(), &running.folder.path().join("sock")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    Some(Issued { running, ops })
}

/// A connection whose requests are JSON.
struct Raw(Connection);

impl Raw {
    fn ask(&self, request: &serde_json::Value) -> Result<Answer, Refusal> {
        self.0.send(request.to_string().as_bytes()).unwrap();
        match receive_answer(&self.0, PATIENCE).unwrap().0 {
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok(answer),
        }
    }

    fn bring(&self, text: &str) -> Result<Answer, Refusal> {
        self.ask(&serde_json::json!({"do": "bring", "credential": text}))
    }

    fn open(&self, stack: &str) -> Result<Answer, Refusal> {
        self.ask(&serde_json::json!({"do": "open", "device": "mix", "stack": stack}))
    }

    /// Why a flow is refused.
    fn refused(&self, stack: &str) -> String {
        self.open(stack).unwrap_err().error
    }

    /// Why results are refused, once they are.
    fn until_ended(&self, flow: u64) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let asked = self.ask(&serde_json::json!({"do": "results", "flow": flow, "take": null}));
            match asked {
                Err(refusal) => return refusal.error,
                Ok(_) => assert!(Instant::now() < until, "the flow does not end"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn number(answer: &Answer) -> u64 {
    match answer {
        Answer::Flow(opened) => opened.number,
        answer => panic!("{answer:?}"),
    }
}

impl Issued {
    fn issue(&self, limits: &Limits) -> Credential {
        Credential::issue(&self.ops, limits).unwrap()
    }

    /// Connects as another user.
    fn raw(&self, user: u32) -> Raw {
        let socket = self.running.folder.path().join("sock");
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                become_on_this_thread(user).unwrap();
                Raw(Connection::connect(&socket.to_string_lossy()).unwrap())
            });
            other.join().unwrap()
        })
    }

    /// Connects as another user, with a credential.
    fn with(&self, user: u32, credential: &Credential) -> Raw {
        let raw = self.raw(user);
        raw.bring(&credential.text()).unwrap();
        raw
    }

    fn revoke(&self, id: &str) {
        let config = fs::read_to_string(self.running.folder.path().join("sensor.toml")).unwrap();
        let line = config
            .lines()
            .find(|line| line.starts_with("revoked"))
            .unwrap();
        let path = line.split('"').nth(1).unwrap();
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        writeln!(file, "{id}").unwrap();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

#[test]
fn who_brings_nothing_gets_nothing() {
    let Some(issued) = issued("who_brings_nothing_gets_nothing", "packets = \"payload\"") else {
        return;
    };
    let raw = issued.raw(STRANGER);
    for request in ["status", "reload", "stop", "create_device"] {
        let refused = raw.ask(&serde_json::json!({"do": request})).unwrap_err();
        assert_eq!(refused.error, "you have no rights here", "{request}");
    }
    assert_eq!(raw.refused("count"), "you have no rights here");
    assert!(raw.bring("").unwrap_err().hint.is_some());
    raw.bring(&issued.issue(&Limits::default()).text()).unwrap();
    let flow = number(&raw.open("search { pattern = GET } count").unwrap());
    // It is one of all flows of the credential, and its holder no administrator.
    let refused = raw.ask(&serde_json::json!({"do": "reload"})).unwrap_err();
    assert!(refused.error.contains("you may not"), "{refused:?}");
    let again = raw
        .bring(&issued.issue(&Limits::default()).text())
        .unwrap_err();
    assert_eq!(again.error, "it has flows of its own");
    raw.ask(&serde_json::json!({"do": "close", "flow": flow}))
        .unwrap();
}

#[test]
fn forged_and_damaged_credentials_are_refused() {
    let Some(issued) = issued("forged_and_damaged_credentials_are_refused", "") else {
        return;
    };
    let raw = issued.raw(STRANGER);
    let other = Credential::issue(&IssuerKey::generate(), &Limits::default()).unwrap();
    let refused = raw.bring(&other.text()).unwrap_err().error;
    assert_eq!(refused, "this credential is not signed by a known issuer");
    let narrow = issued
        .issue(&Limits::default())
        .attenuate(&Limits::default().devices(["none"]));
    let text = narrow.unwrap().text();
    for at in (0..text.len()).step_by(7) {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let refused = raw.bring(std::str::from_utf8(&changed).unwrap());
        assert!(refused.is_err(), "{at}");
    }
    let long = raw.bring(&"A".repeat(50_000)).unwrap_err();
    assert!(long.error.contains("at most"), "{long:?}");
    assert_eq!(raw.refused("count"), "you have no rights here");
    raw.bring(&text).unwrap();
}

#[test]
fn a_narrowed_credential_allows_no_more_than_it_says() {
    let test = "a_narrowed_credential_allows_no_more_than_it_says";
    let Some(issued) = issued(
        test,
        "packets = \"payload\"\nfunctions = [\"count\", \"bytes\", \"top(count<=50)\"]",
    ) else {
        return;
    };
    let narrow = Limits {
        functions: Some(vec![Function::parse("top(count<=10)").unwrap()]),
        most_flows: Some(1),
        ..Limits::default()
    };
    let wide = issued.issue(&Limits::default().devices(["mix", "other"]));
    let narrow = wide.attenuate(&narrow).unwrap();
    let raw = issued.with(STRANGER, &narrow);
    assert_eq!(
        raw.refused("count"),
        "count is not allowed: only the components top (block 1 of the credential)"
    );
    assert_eq!(
        raw.refused("top { by = ip.src, count = 11 }"),
        "top with count = 11 is not allowed: count of top at most 10 (block 1 of the credential)"
    );
    raw.open("top { by = ip.src, count = 10 }").unwrap();
    let second = issued.with(STRANGER, &narrow);
    assert_eq!(
        second.refused("top { by = ip.src, count = 10 }"),
        "1 flows are already open, the maximum (block 1 of the credential)"
    );
    // What it was made of has its own bounds, and those of its issuer.
    let wide = issued.with(STRANGER, &wide);
    wide.open("top { by = ip.src, count = 11 }").unwrap();
    assert_eq!(
        wide.refused("search { pattern = GET }"),
        "search is not allowed: only the components bytes, count, top (issuers.ops)"
    );
    let lines = wide.ask(&serde_json::json!({"do": "explain", "device": "eth0", "stack": "top { by = ip.src, count = 60 }"}));
    let Ok(Answer::Done(lines)) = lines else {
        panic!("{lines:?}");
    };
    let no: Vec<&str> = lines
        .iter()
        .filter(|it| it.starts_with("no"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        no,
        [
            "no   issuers.ops: count of top at most 50: not top with count = 60 [reject if argument(\"top\", \"count\", $value), $value > 50]",
            "no   block 0 of the credential: only on mix, other: not device eth0 [check if device($device), {\"mix\", \"other\"}.contains($device)]",
        ]
    );
}

/// `flowgauge credential` makes no such filters; other programs can.
#[test]
fn a_filter_that_cannot_be_one_is_told_to_its_holder() {
    let test = "a_filter_that_cannot_be_one_is_told_to_its_holder";
    let Some(issued) = issued(test, "packets = \"payload\"") else {
        return;
    };
    let with = |filter: &str| Limits {
        filter: Some(filter.to_owned()),
        ..Limits::default()
    };
    let wide = issued.issue(&with("tcp"));
    let wrong = wide.attenuate(&with("tcp prot 80")).unwrap();
    let said = issued.with(STRANGER, &wrong).refused("count");
    let expected = "the filter of block 1 of the credential cannot be used: ";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains("prot"), "{said}");
    issued.with(STRANGER, &wide).open("count").unwrap();
}

#[test]
fn who_only_counts_gets_no_header() {
    let Some(issued) = issued("who_only_counts_gets_no_header", "") else {
        return;
    };
    // Whatever the credential says.
    let all = Limits {
        packets: Some(Visible::Payload),
        ..Limits::default()
    };
    let raw = issued.with(STRANGER, &issued.issue(&all));
    for stack in [
        "to_buffer",
        "top { by = ip.src, count = 10 }",
        "flows count",
        "hash { layer = 3 }",
        "search { pattern = GET } count",
        "filter { tcp[32] = 0x47 } count",
        "packet_info",
        "expired_flows",
    ] {
        let refused = raw.refused(stack);
        assert!(
            refused.ends_with("counts only (issuers.ops)"),
            "{stack}: {refused}"
        );
    }
    raw.open("filter { tcp } count bytes").unwrap();
    // Nor by a filter of a block.
    let probe = Limits {
        filter: Some("tcp[32] = 0x47".to_owned()),
        ..Limits::default()
    };
    let raw = issued.with(STRANGER, &issued.issue(&all).attenuate(&probe).unwrap());
    assert_eq!(
        raw.refused("count"),
        "the filter of block 1 of the credential is not allowed: an offset reaches the payload"
    );
}

#[test]
fn a_credential_is_its_holders() {
    let Some(issued) = issued("a_credential_is_its_holders", "") else {
        return;
    };
    let key = "ab".repeat(32);
    let limits = Limits {
        holders: vec![Holder::User(STRANGER.to_string()), Holder::Key(key.clone())],
        ..Limits::default()
    };
    let credential = issued.issue(&limits);
    issued.with(STRANGER, &credential).open("count").unwrap();
    let other = issued.raw(STRANGER + 1);
    let refused = other.bring(&credential.text()).unwrap_err().error;
    assert!(refused.contains("only for user 64003"), "{refused}");
    // This process may be an agent.
    let agent = |name: &str, key: Option<&str>| {
        let socket = running_socket(&issued);
        let raw = Raw(Connection::connect(&socket).unwrap());
        raw.ask(&serde_json::json!({"do": "speak_for", "name": name, "key": key}))
            .unwrap();
        raw
    };
    let alice = agent("alice", Some(&key));
    assert_eq!(alice.refused("count"), "you have no rights here");
    alice.bring(&credential.text()).unwrap();
    alice.open("count").unwrap();
    for replayed in [agent("alice", Some(&"cd".repeat(32))), agent("64003", None)] {
        assert!(replayed.bring(&credential.text()).is_err());
        assert_eq!(replayed.refused("count"), "you have no rights here");
    }
}

fn running_socket(issued: &Issued) -> String {
    let socket = issued.running.folder.path().join("sock");
    socket.to_string_lossy().into_owned()
}

#[test]
fn a_flow_ends_with_its_credential() {
    let Some(issued) = issued("a_flow_ends_with_its_credential", "") else {
        return;
    };
    let expires = now() + 3;
    let ending = |expires| Limits {
        expires: Some(expires),
        ..Limits::default()
    };
    let long = issued.issue(&ending(now() + 100_000));
    let short = long.attenuate(&ending(expires)).unwrap();
    let (short_raw, long_raw) = (issued.with(STRANGER, &short), issued.with(STRANGER, &long));
    let flow = number(&short_raw.open("count").unwrap());
    let stays = number(&long_raw.open("count").unwrap());
    let why = short_raw.until_ended(flow);
    assert!(now() >= expires);
    let date = date_text(expires);
    assert!(
        why.contains(&format!("flow {flow} has ended: the time (")),
        "{why}"
    );
    assert!(
        why.contains(&format!("only before {date} (block 1 of the credential)")),
        "{why}"
    );
    assert!(short_raw.refused("count").contains(&date));
    assert!(
        issued
            .raw(STRANGER)
            .bring(&short.text())
            .unwrap_err()
            .error
            .contains(&date)
    );
    // Others of the same credential stay.
    long_raw
        .ask(&serde_json::json!({"do": "results", "flow": stays, "take": null}))
        .unwrap();
}

#[test]
fn a_flow_ends_when_its_credential_is_revoked() {
    let Some(issued) = issued("a_flow_ends_when_its_credential_is_revoked", "") else {
        return;
    };
    let root = issued.issue(&Limits::default());
    let children = ["mix", "other"].map(|device| {
        let limits = Limits::default().devices(["mix", device]);
        root.attenuate(&limits).unwrap()
    });
    let raws = children
        .each_ref()
        .map(|child| issued.with(STRANGER, child));
    let flows = raws
        .each_ref()
        .map(|raw| number(&raw.open("count").unwrap()));
    issued.revoke(&children[0].ids()[1]);
    let why = raws[0].until_ended(flows[0]);
    assert_eq!(why, "block 1 of the credential was revoked");
    until("its flow is there", || issued.running.flows() == 1);
    let results = serde_json::json!({"do": "results", "flow": flows[1], "take": null});
    raws[1].ask(&results).unwrap();
    let again = issued
        .raw(STRANGER)
        .bring(&children[0].text())
        .unwrap_err()
        .error;
    assert_eq!(again, "block 1 of the credential was revoked");
    // With the first block all are, at once where the configuration is read again.
    issued.revoke(&root.ids()[0]);
    let said = issued.running.client().reload().unwrap();
    assert!(
        said.iter().any(|line| line.contains("was revoked")) || raws[1].ask(&results).is_err(),
        "{said:?}"
    );
    assert!(
        raws[1]
            .until_ended(flows[1])
            .ends_with("block 0 of the credential was revoked")
    );
}

#[test]
fn an_issuer_that_is_gone_takes_its_credentials_along() {
    let Some(issued) = issued("an_issuer_that_is_gone_takes_its_credentials_along", "") else {
        return;
    };
    let raw = issued.with(STRANGER, &issued.issue(&Limits::default()));
    let flow = number(&raw.open("count").unwrap());
    let file = issued.running.folder.path().join("sensor.toml");
    let config = fs::read_to_string(&file).unwrap();
    let other = IssuerKey::generate().public().to_string();
    fs::write(
        &file,
        config.replace(&issued.ops.public().to_string(), &other),
    )
    .unwrap();
    let said = issued.running.client().reload().unwrap();
    let why =
        format!("flow {flow} is not allowed any more: credentials of ops are no longer accepted");
    assert!(said.contains(&why), "{said:?}");
    assert!(
        raw.until_ended(flow)
            .ends_with("credentials of ops are no longer accepted")
    );
}

#[test]
fn packets_are_anonymized_and_bounded_before_the_first_function() {
    let test = "packets_are_anonymized_and_bounded_before_the_first_function";
    let Some(issued) = issued(test, "packets = \"payload\"") else {
        return;
    };
    let forced = Limits {
        anonymize: Some("strict".to_owned()),
        packets_per_second: Some(50),
        filter: Some("tcp".to_owned()),
        ..Limits::default()
    };
    let credential = issued.issue(&forced);
    let open = |user: u32, credential: Option<&Credential>, stack: &str| {
        let socket = issued.running.folder.path().join("sock");
        thread::scope(|scope| {
            let opened = scope.spawn(|| {
                become_on_this_thread(user).unwrap();
                let client = Client::connect(&socket).unwrap();
                if let Some(credential) = credential {
                    let text = flowgauge_sensor_client::protocol::Secret::new(credential.text());
                    client.bring(&text).unwrap();
                }
                client.open("mix", stack, &[]).unwrap()
            });
            opened.join().unwrap()
        })
    };
    let stack = "top { by = ip.src, count = 1000 } count";
    let same = "filter { tcp } rate_limit { packets = 50 } top { by = ip.src, count = 1000 } count";
    let mine = open(STRANGER, Some(&credential), stack);
    let table = open(64_001, None, same);
    let raw = issued.running.client().open("mix", same, &[]).unwrap();
    let tcp = issued
        .running
        .client()
        .open("mix", "filter { tcp } count", &[])
        .unwrap();
    issued.running.client().start("mix").unwrap();
    let tcp = last(&tcp).components.last().unwrap().value.clone().unwrap();
    let rows = |flow: &Flow| {
        let results = last(flow);
        assert_eq!(results.failure, None);
        let top = results
            .components
            .iter()
            .find(|it| it.component == "top")
            .unwrap();
        let count = results.components.last().unwrap().value.clone();
        let mut rows: Vec<String> = top
            .rows
            .iter()
            .flatten()
            .map(|row| format!("{row:?}"))
            .collect();
        rows.sort();
        (count, rows)
    };
    let number = mine.number();
    let told = last(&mine).lost;
    let (mine, table, raw) = (rows(&mine), rows(&table), rows(&raw));
    // What is more than the user may have is lost to the flow.
    let devices = issued.running.client().status().unwrap().devices;
    let mut flows = devices
        .iter()
        .flat_map(|it| &it.stacks)
        .flat_map(|it| &it.flows);
    let lost = flows.find(|flow| flow.flow == number).unwrap().lost;
    let came = mine.0.as_ref().unwrap().as_u64().unwrap();
    assert_eq!(came + lost, tcp.as_u64().unwrap());
    assert_eq!(told, lost, "its results say so, too");
    assert!(mine.0.as_ref().unwrap().as_u64().unwrap() > 0);
    assert_eq!(mine.0, raw.0);
    // Keys are those of a policy: two who are anonymized by the same one see the same.
    assert_eq!(mine.1, table.1);
    assert!(
        mine.1.iter().all(|row| !raw.1.contains(row)),
        "{mine:?} {raw:?}"
    );
    let unknown = Limits {
        anonymize: Some("/etc/shadow".to_owned()),
        ..Limits::default()
    };
    let refused = issued
        .with(STRANGER, &issued.issue(&unknown))
        .refused("count");
    assert!(refused.contains("requires an unknown policy"), "{refused}");
}

#[test]
fn flows_of_different_policies_share_what_comes_before_them_only() {
    let test = "flows_of_different_policies_share_what_comes_before_them_only";
    let Some(issued) = issued(test, "packets = \"payload\"\nfilter = \"tcp\"") else {
        return;
    };
    let anonymized = |policy: &str| {
        let limits = Limits {
            anonymize: Some(policy.to_owned()),
            ..Limits::default()
        };
        let raw = issued.with(STRANGER, &issued.issue(&limits));
        raw.open("count").unwrap();
        raw
    };
    let _flows = ["strict", "other", "strict"].map(anonymized);
    let status = issued.running.client().status().unwrap();
    let stacks = status.devices[0].stacks.iter();
    let mut flows: Vec<(usize, usize)> = stacks
        .map(|stack| (stack.flows.len(), stack.components.len()))
        .collect();
    flows.sort_unstable();
    // Who has the same policy shares all of it; none sees what is put before.
    assert_eq!(flows, [(1, 3), (2, 3)], "{status:?}");
}
