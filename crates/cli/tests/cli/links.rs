//! Stacks on several machines: `output` to `input`, agents and admins; here they are processes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use crate::loopback::own_address;
use crate::wait::wait_until;

struct Place {
    folder: PathBuf,
    /// Where its input or its agent listens.
    address: SocketAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    /// A folder with keys for these machines and a capture.
    fn new(name: &str, machines: &[&str]) -> Place {
        let folder =
            std::env::temp_dir().join(format!("flowgauge-links-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("stacks")).unwrap();
        let address = own_address();
        let place = Place { folder, address };
        place.good("keys authority");
        for machine in machines {
            place.good(&format!("keys add {machine} --host {}", address.ip()));
        }
        place.good("generate small -q --flows 300 --seed 3 -w small.pcap");
        fs::copy(
            place.folder.join("small.pcap"),
            place.folder.join("stacks/small.pcap"),
        )
        .unwrap();
        place
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
        command
            .current_dir(&self.folder)
            .env("FLOWGAUGE_KEYS", self.folder.join("keys"))
            .stdin(Stdio::null())
            .args(words);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line.split(' ')).output().unwrap()
    }

    fn good(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn admin(&self, name: &str, words: &[&str]) -> Output {
        let address = self.address();
        let first = ["stack", "admin", address.as_str(), "--identity", name];
        self.command(first.into_iter().chain(words.iter().copied()))
            .output()
            .unwrap()
    }

    /// A process that says a line with `word` on standard error when it is ready.
    fn start<'a>(&self, words: impl IntoIterator<Item = &'a str>, word: &str) -> Process {
        let mut child = self
            .command(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended");
        }
        Process { child, said }
    }
}

struct Process {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Process {
    /// What it prints until it ends.
    fn end(mut self) -> (String, String) {
        let (mut out, mut said) = (String::new(), String::new());
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        self.said.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        (out, said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_an_output_sends_an_input_writes() {
    let place = Place::new("copy", &["collector", "sensor1"]);
    let input = format!(
        "input {{ listen = {}, identity = collector, senders = 1 }} output {{ copy.pcap }}",
        place.address()
    );
    let receiving = place.start(["stack", "run", "-e", &input], "listening");
    let output = format!("output {{ to = {}, identity = sensor1 }}", place.address());
    let sent = place
        .command(["stack", "run", "-e", &output, "-r", "small.pcap"])
        .output()
        .unwrap();
    assert!(sent.status.success(), "{}", stderr(&sent));
    let (results, _) = receiving.end();
    assert!(results.contains("\"sender\":\"sensor1\""), "{results}");
    let packets = |file: &str| place.good(&format!("packets --json -r {file}"));
    assert_eq!(packets("small.pcap"), packets("copy.pcap"));
    // The capture's format has more than a link needs; what matters is in both.
    assert!(fs::metadata(place.folder.join("copy.pcap")).unwrap().len() > 100_000);
}

#[test]
fn what_two_links_saw_is_matched_in_a_third_process() {
    let place = Place::new("match", &["collector", "left", "right"]);
    // The second link lost some packets of the first.
    place.good("stack run -q -e sample{value=10}output{tenth.pcap} -r small.pcap");
    let input = format!(
        "input {{ listen = {}, identity = collector, senders = 2, type = record, timeout = 60s }} \
         - matcher {{ key = \"src_ip, src_port, dst_ip, dst_port, ip_id, time\", way = same, \
         request = \"interface = left\", timeout = 60s, unmatched = no }} - count",
        place.address()
    );
    let receiving = place.start(["stack", "run", "-e", &input], "listening");
    let sending: Vec<Child> = [("left", "small.pcap"), ("right", "tenth.pcap")]
        .map(|(name, file)| {
            let stack = format!(
                "packets {{ interface = {name} }} - output {{ to = {}, identity = {name} }}",
                place.address()
            );
            place
                .command(["stack", "run", "-q", "-e", &stack, "-r", file])
                .spawn()
                .unwrap()
        })
        .into();
    for mut child in sending {
        assert!(child.wait().unwrap().success());
    }
    let (results, _) = receiving.end();
    let tenth = place.good("packets --json -r tenth.pcap").lines().count();
    let pairs = results
        .lines()
        .find(|line| line.contains("\"component\":\"count\""))
        .unwrap_or_else(|| panic!("{results}"));
    assert!(
        pairs.contains(&format!("\"value\":{tenth}")),
        "{tenth}: {pairs}"
    );
}

/// Two processes observe, a third one compares what they tell: the same as the command does with both files.
#[test]
fn what_two_points_saw_of_flows_is_compared_in_a_third_process() {
    let place = Place::new("loss", &["collector", "left", "right"]);
    // The second point lacks some packets of the first.
    let some = "filter { \"ip[5] & 31 != 1\" } output { some.pcap }";
    let kept = place.command(["stack", "run", "-q", "-e", some, "-r", "small.pcap"]);
    let mut kept = kept;
    assert!(kept.status().unwrap().success());
    let input = format!(
        "input {{ listen = {}, identity = collector, senders = 2, type = record, timeout = 60s }} \
         - loss {{ points = \"left, right\", one_way = yes, patience = 100d }} - output",
        place.address()
    );
    let receiving = place.start(["stack", "run", "-e", &input], "listening");
    let sending = [("left", "small.pcap"), ("right", "some.pcap")].map(|(name, file)| {
        let stack = format!(
            "observe {{ point = {name} }} - output {{ to = {}, identity = {name} }}",
            place.address()
        );
        let mut run = place.command(["stack", "run", "-q", "-e", &stack, "-r", file]);
        run.spawn().unwrap()
    });
    for mut child in sending {
        assert!(child.wait().unwrap().success());
    }
    let (by_stack, _) = receiving.end();
    let by_command = place.good("loss -q --json --one-way -r small.pcap some.pcap");
    let total = |text: &str| {
        let mut lines = text.lines().filter(|line| line.contains(r#""of":"total""#));
        let (Some(line), None) = (lines.next(), lines.next()) else {
            panic!("{text}");
        };
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        [
            "flows",
            "sent",
            "received",
            "lost",
            "duplicates",
            "one_sided",
            "uncompared",
        ]
        .map(|field| row[field].as_u64().unwrap())
    };
    let (stack, command) = (total(&by_stack), total(&by_command));
    // Of observers that go on, what they see in their first and last 0.1 s is not compared, nor short flows that were under way.
    for at in [0, 3, 4, 5] {
        assert_eq!(stack[at], command[at], "{stack:?} {command:?}");
    }
    for at in [1, 2] {
        assert_eq!(
            2 * (command[at] - stack[at]),
            stack[6],
            "{stack:?} {command:?}"
        );
    }
    assert!(stack[6] < 40, "{stack:?}");
    let count = |file: &str| {
        place
            .good(&format!("packets --json -r {file}"))
            .lines()
            .count() as u64
    };
    let [_, _, _, lost, duplicates, one_sided, uncompared] = total(&by_command);
    let missing = count("small.pcap") - count("some.pcap");
    assert!(missing > 50 && lost > 0);
    assert_eq!([lost + one_sided, duplicates, uncompared], [missing, 0, 0]);
}

/// Processes whose parent this one is, whichever of its threads started them.
fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let of_parent = format!("PPid:\t{parent}");
        status.lines().any(|line| line == of_parent)
    };
    let names = fs::read_dir("/proc")
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let ids = names.filter_map(|it| it.to_str()?.parse().ok());
    ids.filter(is_child).collect()
}

#[test]
fn an_agent_runs_stacks_for_those_who_may() {
    let place = Place::new("agent", &["agent", "ops", "viewer", "stranger"]);
    fs::write(
        place.folder.join("rights"),
        "[users.ops]\nnetwork = true\ninterfaces = [\"lo\"]\n\
         [users.viewer]\nrequests = [\"list\", \"show\", \"watch\"]\n",
    )
    .unwrap();
    let address = place.address();
    let words = "stack agent --rights rights --folder stacks --identity agent --most 2 --listen";
    let agent = place.start(words.split(' ').chain([address.as_str()]), "agent at");
    let ops = |words: &[&str]| place.admin("ops", words);
    assert_eq!(stdout(&ops(&["list"])), "");
    // One that comes to its end.
    let started = stdout(&ops(&[
        "start",
        "short",
        "-e",
        "tcpscan - count",
        "-r",
        "small.pcap",
    ]));
    assert!(started.starts_with("short  "), "{started}");
    let watched = stdout(&ops(&["watch", "short"]));
    assert!(watched.contains("\"component\":\"count\""), "{watched}");
    assert!(
        watched.trim_end().lines().last().unwrap().contains("done"),
        "{watched}"
    );
    // One that waits for senders, and is asked for its counts.
    let listening = "input { listen = 127.0.0.1:0, identity = agent } - count";
    stdout(&ops(&["start", "long", "-e", listening]));
    let listed = stdout(&place.admin("viewer", &["list"]));
    assert!(listed.contains("long  running, started by ops"), "{listed}");
    let shown = stdout(&ops(&["show", "long"]));
    assert!(shown.contains(listening), "{shown}");
    let again = ops(&["start", "long", "-e", "count", "-r", "small.pcap"]);
    assert!(
        stderr(&again).contains("is already running"),
        "{}",
        stderr(&again)
    );
    let restarted = stdout(&ops(&["restart", "long"]));
    assert!(restarted.contains("2 starts"), "{restarted}");
    let other = stdout(&ops(&[
        "configure",
        "long",
        "-e",
        "count",
        "-r",
        "small.pcap",
    ]));
    assert!(other.contains("3 starts"), "{other}");
    let stopped = stdout(&ops(&["stop", "long"]));
    assert!(stopped.starts_with("long  "), "{stopped}");
    // What is wrong, or not allowed.
    for (name, words, part) in [
        ("ops", &["start", "x", "-e", "tcpscann"][..], "tcpscann"),
        (
            "ops",
            &["start", "x", "-e", "output{/etc/x}"][..],
            "not in the agent's folder",
        ),
        (
            "ops",
            &["start", "x", "-e", "count", "-r", "../small.pcap"][..],
            "not in the agent's folder",
        ),
        (
            "ops",
            &["start", "x", "-e", "count", "-i", "eth0"][..],
            "may not capture on eth0",
        ),
        (
            "ops",
            &["start", "../x", "-e", "count"][..],
            "is not a name",
        ),
        ("ops", &["show", "nothing"][..], "no stack named"),
        (
            "viewer",
            &["start", "x", "-e", "count"][..],
            "viewer may not start",
        ),
        ("viewer", &["stop", "short"][..], "viewer may not stop"),
        ("stranger", &["list"][..], "not allowed"),
    ] {
        let refused = place.admin(name, words);
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
        assert!(
            stderr(&refused).contains(part),
            "{words:?}: {}",
            stderr(&refused)
        );
    }
    // A stack that is killed takes nobody with it.
    stdout(&ops(&["start", "killed", "-e", listening]));
    let children = children_of(agent.child.id());
    assert_eq!(children.len(), 1, "{children:?}");
    assert!(
        Command::new("kill")
            .args(["-9", &children[0].to_string()])
            .status()
            .unwrap()
            .success()
    );
    let mut listed = String::new();
    wait_until("it is noticed", || {
        listed = stdout(&ops(&["list"]));
        listed.contains("killed  failed")
    });
    assert!(listed.contains("signal: 9"), "{listed}");
    stdout(&ops(&["restart", "killed"]));
    // The agent ends its stacks with it.
    let agent_id = agent.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &agent_id])
            .status()
            .unwrap()
            .success()
    );
    let (_, said) = agent.end();
    assert!(said.contains("stopping 2 stacks"), "{said}");
}

/// It is bound to its holder, narrows what the agent's table allows, and takes its stacks with it.
#[test]
fn a_credential_gives_rights_at_an_agent_until_it_is_revoked() {
    let place = Place::new("credential", &["agent", "guest", "viewer"]);
    place.good("credential key site");
    let key = fs::read_to_string(place.folder.join("keys/site.issuer.pub")).unwrap();
    let rights = format!(
        "revoked = \"revoked\"\n[issuers.site]\nkey = \"{}\"\nnetwork = true\n[users.viewer]\n",
        key.trim()
    );
    fs::write(place.folder.join("rights"), rights).unwrap();
    fs::write(place.folder.join("revoked"), "").unwrap();
    place.good(
        "credential issue --issuer site --holder guest --request start --request show \
         --function input --function count --most-flows 1 -w guest.cred",
    );
    place.good("credential attenuate guest.cred --packets headers -w headers.cred");
    place.good("credential attenuate guest.cred --device eth7 -w eth7.cred");
    let address = place.address();
    let words = "stack agent --rights rights --folder stacks --identity agent --listen";
    let _agent = place.start(words.split(' ').chain([address.as_str()]), "agent at");
    let admin = |name: &str, credential: &str, words: &[&str]| {
        let credential = ["--credential", credential];
        let given = credential.into_iter().filter(|_| !credential[1].is_empty());
        let words: Vec<&str> = given.chain(words.iter().copied()).collect();
        place.admin(name, &words)
    };
    let listening = "input { listen = 127.0.0.1:0, identity = agent } - count";
    stdout(&admin(
        "guest",
        "guest.cred",
        &["start", "long", "-e", listening],
    ));
    for (name, credential, words, part) in [
        (
            "guest",
            "guest.cred",
            &["start", "b", "-e", "flows"][..],
            "only the components",
        ),
        (
            "guest",
            "guest.cred",
            &["start", "b", "-e", listening],
            "the maximum",
        ),
        (
            "guest",
            "headers.cred",
            &["start", "b", "-e", listening],
            "restricts access to packets",
        ),
        ("guest", "guest.cred", &["stop", "long"], "requests to"),
        ("guest", "eth7.cred", &["show", "long"], "only on eth7"),
        ("guest", "", &["show", "long"], "guest has no rights here"),
        (
            "viewer",
            "guest.cred",
            &["show", "long"],
            "another holder is not allowed",
        ),
    ] {
        let refused = admin(name, credential, words);
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
        let said = stderr(&refused);
        assert!(said.contains(part), "{words:?}: {said}");
    }
    place.good("credential revoke guest.cred --revoked revoked");
    wait_until("its stack is stopped", || {
        // While it is being stopped nothing is shown.
        let shown = admin("viewer", "", &["show", "long"]);
        String::from_utf8_lossy(&shown.stdout).contains("--- stopped: this credential was revoked")
    });
    let listed = stdout(&admin("viewer", "", &["list"]));
    assert!(listed.contains("long  done, started by guest"), "{listed}");
}

/// Every way out of the agent's folder that was ever found, by somebody who may only start.
#[test]
fn who_may_only_start_reads_and_writes_in_the_folder_only() {
    const SECRET: &str = "root:$6$secret";
    let place = Place::new("confined", &["agent", "ops"]);
    let at = place.folder.display().to_string();
    fs::write(
        place.folder.join("rights"),
        "[users.ops]\nrequests = [\"start\", \"show\", \"list\"]\n",
    )
    .unwrap();
    fs::write(place.folder.join("secret.txt"), format!("{SECRET}\ntwo\n")).unwrap();
    // Of whole seconds, where %.f is nothing.
    let mut capture = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    capture.extend([
        2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 1, 0, 0, 0,
    ]);
    for number in [1_600_000_000_u32, 0, 60, 60] {
        capture.extend(number.to_le_bytes());
    }
    // UDP over IPv4.
    capture.extend([0; 12]);
    capture.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x8e, 0x83]);
    capture.extend([192, 0, 2, 1, 198, 51, 100, 7, 4, 0, 4, 1, 0, 26, 0, 0]);
    capture.extend([0; 18]);
    fs::write(place.folder.join("stacks/sec.pcap"), capture).unwrap();
    let policy = "[ip]\nsrc_ip = \"PREFIX_PRESERVING\"\ndst_ip = \"PREFIX_PRESERVING\"\n";
    for (name, key) in [("p", format!("{at}/key")), ("q", "../key".to_owned())] {
        let text = format!("key = \"{key}\"\n{policy}");
        fs::write(place.folder.join(format!("stacks/{name}.toml")), text).unwrap();
    }
    std::os::unix::fs::symlink("..", place.folder.join("stacks/up")).unwrap();
    let outside = || {
        let mut found: Vec<_> = fs::read_dir(&place.folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name() != "stacks")
            .map(|entry| {
                (
                    entry.file_name(),
                    entry.metadata().unwrap().modified().unwrap(),
                )
            })
            .collect();
        found.sort();
        found
    };
    let address = place.address();
    let words = "stack agent --rights rights --folder stacks --identity agent --most 64 --listen";
    let _agent = place.start(words.split(' ').chain([address.as_str()]), "agent at");
    let before = outside();
    let ops = |words: &[&str]| place.admin("ops", words);
    let stacks = [
        format!("output {{ file = {at}/x.pcap }}"),
        "output { file = up/x.pcap }".to_owned(),
        format!("match {{ file = {at}/secret.txt, fixed = yes, count = yes }} output"),
        "match { file = up/secret.txt, fixed = yes, count = yes } output".to_owned(),
        format!("match {{ file = \"sec.pcap\\n{at}/secret.txt\", fixed = yes }} output"),
        format!("streams {{ host_policy = {at}/secret.txt }} output"),
        "streams { host_policy = up/secret.txt } output".to_owned(),
        "flows { classify = yes, applications = up/secret.txt } output".to_owned(),
        format!("transactions {{ files = yes, extract = {at}/extract }} discard"),
        "transactions { files = yes, extract = up/extract } discard".to_owned(),
        format!("streams {{ out = {at}/streams }} discard"),
        "streams { out = up/streams } discard".to_owned(),
        format!(
            "count {{ as = c }} result_to_file {{ of = c, header = x, file = \"%.f{at}/cron\" }}"
        ),
        "output { file = \".%.f./dotdot.pcap\" }".to_owned(),
        "flows - logs { format = zeek, file = \".%.f./logs\" }".to_owned(),
        "report { file = \".%.f./report\" }".to_owned(),
        "anonymize { policy = p.toml } output { file = an.pcap }".to_owned(),
        "anonymize { policy = q.toml } output { file = an.pcap }".to_owned(),
        "anonymize { key = up/key } output { file = an.pcap }".to_owned(),
        "anonymize { policy = up/secret.txt } output { file = an.pcap }".to_owned(),
    ];
    let given = stacks.iter().map(|stack| (stack.as_str(), "sec.pcap"));
    let globs = [
        ".[.]/small.pcap",
        "[.][.]/*.pcap",
        "u?/small.pcap",
        "up/small.pcap",
    ];
    let all = given.chain(globs.map(|glob| ("count", glob)));
    let sources = globs.map(|glob| format!("pcap {{ file = \"{glob}\" }} count"));
    let all = all.chain(sources.iter().map(|stack| (stack.as_str(), "")));
    for (number, (stack, read)) in all.enumerate() {
        let name = format!("t{number}");
        let mut words = vec!["start", &name, "-e", stack];
        if !read.is_empty() {
            words.extend(["-r", read]);
        }
        let started = ops(&words);
        let mut said = stderr(&started);
        if started.status.success() {
            wait_until("it has ended", || {
                said = stdout(&ops(&["show", &name]));
                !said.contains("running,")
            });
            assert!(said.contains("failed"), "{stack}: {said}");
        }
        assert!(!said.contains(SECRET), "{stack}: {said}");
        let reads_outside = read != "sec.pcap";
        assert!(
            !(reads_outside && said.contains("received")),
            "{stack}: {said}"
        );
    }
    assert_eq!(outside(), before);
}

/// What runs counts, however it came to run.
#[test]
fn no_more_stacks_run_than_may() {
    let place = Place::new("most", &["agent", "ops"]);
    fs::write(place.folder.join("rights"), "[users.ops]\nnetwork = true\n").unwrap();
    let address = place.address();
    let words = "stack agent --rights rights --folder stacks --identity agent --most 2 --listen";
    let _agent = place.start(words.split(' ').chain([address.as_str()]), "agent at");
    let ops = |words: &[&str]| place.admin("ops", words);
    let names = ["a", "b", "c", "d"];
    for name in names {
        stdout(&ops(&["start", name, "-e", "count", "-r", "small.pcap"]));
        stdout(&ops(&["watch", name]));
    }
    let listening = "input { listen = 127.0.0.1:0, identity = agent } - count";
    for (name, most) in names.into_iter().zip([false, false, true, true]) {
        let configured = ops(&["configure", name, "-e", listening]);
        assert_eq!(configured.status.success(), !most, "{name}");
        if most {
            let said = stderr(&configured);
            assert!(said.contains("2 stacks are running, the maximum"), "{said}");
        }
    }
    let restarted = ops(&["restart", "c"]);
    assert!(stderr(&restarted).contains("the maximum"));
    // One that runs already is changed all the same.
    stdout(&ops(&["restart", "a"]));
    stdout(&ops(&["configure", "b", "-e", listening]));
    let listed = stdout(&ops(&["list"]));
    assert_eq!(listed.matches("  running,").count(), 2, "{listed}");
}

#[test]
fn an_agent_that_was_killed_starts_its_stacks_again() {
    let place = Place::new("memory", &["agent", "ops"]);
    fs::write(place.folder.join("rights"), "[users.ops]\nnetwork = true\n").unwrap();
    let address = place.address();
    let start = |more: &str| {
        let words = format!(
            "stack agent --rights rights --folder stacks --state state --identity agent {more} \
             --listen {address}"
        );
        place.start(words.split_whitespace(), "agent at")
    };
    let signal = |agent: &Process, signal: &str| {
        let id = agent.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    };
    let ops = |words: &[&str]| stdout(&place.admin("ops", words));
    let agent = start("");
    // One address for it: two of them could not be.
    let port = own_address().to_string();
    let listening = format!("input {{ listen = \"{port}\", identity = agent }} - count");
    ops(&["start", "long", "-e", &listening]);
    ops(&[
        "start",
        "gone",
        "-e",
        &listening.replace(&port, "127.0.0.1:0"),
    ]);
    ops(&["start", "short", "-e", "count", "-r", "small.pcap"]);
    wait_until("short is done", || ops(&["list"]).contains("short  done"));
    ops(&["stop", "gone"]);
    // Only what was done is forgotten, once that was noticed.
    let kept = || {
        let entries = fs::read_dir(place.folder.join("state")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<String>>()
    };
    wait_until("short is forgotten", || kept() == ["long.json"]);
    signal(&agent, "-KILL");
    drop(agent);
    let agent = start("");
    let mut listed = String::new();
    wait_until("long is started again", || {
        listed = ops(&["list"]);
        assert!(!listed.contains("failed"), "{listed}");
        listed.contains("long  running, started by ops")
    });
    assert_eq!(listed.lines().count(), 1, "{listed}");
    signal(&agent, "-INT");
    agent.end();
    // One that is no longer allowed is not started, and one that is forgotten not either.
    fs::write(place.folder.join("rights"), "[users.ops]\n").unwrap();
    let agent = start("");
    wait_until("nothing is started", || ops(&["list"]).is_empty());
    signal(&agent, "-INT");
    let (_, said) = agent.end();
    assert!(
        said.contains("long is not restarted: ops may not use the network"),
        "{said}"
    );
    let agent = start("--forget");
    wait_until("all is forgotten", || kept().is_empty());
    signal(&agent, "-INT");
    agent.end();
}

/// One Ctrl-C ends a run that waits for room in its spool; what waited comes with the next run.
#[test]
fn a_run_that_waits_for_its_peer_ends_when_it_is_told_to_and_the_next_goes_on() {
    let place = Place::new("spool", &["collector", "sensor1"]);
    place.good("generate web -q --scale 0.01 -w large.pcap");
    let interrupt = |process: &Process| {
        let pid = process.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
    };
    let output = |more: &str| {
        let address = place.address();
        format!("output {{ to = {address}, identity = sensor1, spool = 1M{more} }}")
    };
    let numbers = |text: &str, word: &str| -> u64 {
        let line = text.lines().find(|line| line.contains(word));
        let line = line.unwrap_or_else(|| panic!("{word}: {text}"));
        let words = line.split_whitespace().rev();
        let before = words.skip_while(|found| *found != word).nth(1);
        before.unwrap().parse().unwrap()
    };
    // Without a folder it is lost, and counted.
    let stack = output(", linger = 100ms");
    let mut waiting = place.start(
        ["stack", "run", "-e", &stack, "-r", "large.pcap"],
        "the source waits",
    );
    interrupt(&waiting);
    let mut said = String::new();
    waiting.said.read_to_string(&mut said).unwrap();
    assert_eq!(waiting.child.wait().unwrap().code(), Some(1), "{said}");
    let received = numbers(&said, "packets");
    assert!(said.contains("linger says how long"), "{said}");
    assert!(received > 0);
    // With one it is kept.
    let stack = output(", spool_folder = spool, linger = 100ms");
    let waiting = place.start(
        ["stack", "run", "-e", &stack, "-r", "large.pcap"],
        "trying again",
    );
    let (_, said) = waiting.end();
    let kept = numbers(&said, "items");
    assert_eq!(kept, numbers(&said, "packets"), "{said}");
    let input = format!(
        "input {{ listen = {}, identity = collector, senders = 1 }} count",
        place.address()
    );
    let receiving = place.start(["stack", "run", "-e", &input], "listening");
    let stack = output(", spool_folder = spool");
    let next = place.start(
        ["stack", "run", "-e", &stack, "-r", "small.pcap"],
        "connected",
    );
    let (_, said) = next.end();
    let delivered = format!("of an earlier run {kept} items were delivered, 0 are lost");
    assert!(said.contains(&delivered), "{said}");
    let (results, _) = receiving.end();
    let small = place.good("packets --json -r small.pcap").lines().count() as u64;
    let expected = format!("\"value\":{}", kept + small);
    assert!(results.contains(&expected), "{expected}: {results}");
    let left = fs::read_dir(place.folder.join("spool")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn what_an_earlier_run_left_is_not_another_sender() {
    let place = Place::new("left", &["collector", "sensor1", "sensor2"]);
    let output = |identity: &str, more: &str| {
        let address = place.address();
        format!("output {{ to = {address}, identity = {identity}{more} }}")
    };
    let first = output("sensor1", ", spool_folder = spool, linger = 100ms");
    let kept = place.start(
        ["stack", "run", "-e", &first, "-r", "small.pcap"],
        "trying again",
    );
    let (_, said) = kept.end();
    assert!(said.contains("kept") || said.contains("spool"), "{said}");
    // Two are waited for, for as long as it takes.
    let input = format!(
        "input {{ listen = {}, identity = collector, senders = 2, timeout = 5m }} count",
        place.address()
    );
    let receiving = place.start(["stack", "run", "-e", &input], "listening");
    // One comes, with what it had left; nothing is given on before the other.
    let first = output("sensor1", ", spool_folder = spool");
    let one = place.start(
        ["stack", "run", "-e", &first, "-r", "small.pcap"],
        "of an earlier run",
    );
    let second = output("sensor2", "");
    let two = place.start(
        ["stack", "run", "-e", &second, "-r", "small.pcap"],
        "connected",
    );
    let (_, said) = two.end();
    assert!(!said.contains("lost:"), "{said}");
    one.end();
    let (results, said) = receiving.end();
    let small = place.good("packets --json -r small.pcap").lines().count() as u64;
    let row = |name: &str, items: u64| format!("\"sender\":\"{name}\",\"received\":{items},");
    for (name, items) in [("sensor1", 2 * small), ("sensor2", small)] {
        assert!(
            results.contains(&row(name, items)),
            "{name}: {results} {said}"
        );
    }
    assert!(
        results.contains(&format!("\"value\":{}", 3 * small)),
        "{results}"
    );
}

#[test]
fn one_command_asks_the_sensors_of_many_machines() {
    let place = Place::new("sensors", &["ops", "stranger"]);
    let addresses = [place.address, own_address()];
    for (name, address) in ["one", "two"].iter().zip(addresses) {
        place.good(&format!("keys add {name} --host {}", address.ip()));
        let folder = place.folder.display();
        let config = format!(
            "socket = \"{folder}/{name}\"\nuser = \"root\"\n[devices.trace]\nfiles = [\"{folder}/small.pcap\"]\n\
             hold = true\n[remotes.ops]\n"
        );
        fs::write(place.folder.join(format!("{name}.toml")), config).unwrap();
    }
    let processes = ["one", "two"].iter().zip(addresses).map(|(name, address)| {
        let sensor = format!("sensor run --config {name}.toml");
        let sensor = place.start(sensor.split(' '), "sensor at");
        let agent = format!("sensor-agent --listen {address} --socket {name} --identity {name}");
        [sensor, place.start(agent.split(' '), "agent of")]
    });
    let processes: Vec<[Process; 2]> = processes.collect();
    let [one, two] = addresses;
    let scope = format!("{one}:trace,{two}:trace,{}:1:trace", one.ip());
    fs::write(place.folder.join("scopes"), format!("all = {scope}\n")).unwrap();
    let ask = |identity: &str, words: &[&str]| {
        let mut command = place.command(words.iter().copied());
        command.args(["--identity", identity]);
        command.env("FLOWGAUGE_SCOPES", place.folder.join("scopes"));
        command.output().unwrap()
    };
    let status = ask("ops", &["sensor", "status", "--sensor", &one.to_string()]);
    assert!(stdout(&status).contains("holding"));
    let refused = ask(
        "stranger",
        &["sensor", "status", "--sensor", &one.to_string()],
    );
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("no rights"),
        "{}",
        stderr(&refused)
    );
    let functions = "BPF_FILTER(\"tcp port 80\") PKT_COUNTER";
    let mapi = [
        "mapi", "-d", "all/*", "--start", "--json", "--every", "50ms",
    ];
    let counted = ask("ops", &[&mapi[..], &[functions]].concat());
    let counted = stdout(&counted);
    let lines = counted
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let last = &lines[lines.len() - 3..];
    let packets = place.good("packets -r small.pcap tcp port 80");
    for (line, address) in last.iter().zip(addresses) {
        // The usual port is not said.
        let address = address.to_string();
        let address = address.strip_suffix(":2233").unwrap_or(&address);
        assert_eq!(line["sensor"], format!("{address}:trace"));
        assert_eq!(line["state"], "ok");
        assert_eq!(line["components"][1]["value"], packets.lines().count());
    }
    assert_eq!(last[2]["state"], "down");
    for [mut sensor, mut agent] in processes {
        for process in [&mut agent, &mut sensor] {
            assert!(process.child.try_wait().unwrap().is_none());
        }
    }
    let nobody = ask(
        "ops",
        &["sensor", "flow", "-d", &format!("{one}:trace"), "count"],
    );
    assert_eq!(nobody.status.code(), Some(2), "{}", stderr(&nobody));
    assert!(stderr(&nobody).contains("hint: "), "{}", stderr(&nobody));
    let wrong = ask("ops", &["sensor", "flow", "-d", "some/*", "count"]);
    assert!(
        stderr(&wrong).contains("no scope \"some\""),
        "{}",
        stderr(&wrong)
    );
}
