//! `rmon` under a real `snmpd`, and without SNMP.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::command_support::{Folder, command, printed, run, stderr, wait_until};
use crate::net_snmp::{READER, Snmpd, WRITER, is_there};

/// Number of the user and the group nobody.
const NOBODY: &str = "65534";
/// nlHostInPkts and the others behind it.
const HOSTS: &str = ".1.3.6.1.2.1.16.14.2.1";
/// protocolDirDescr.
const NAMES: &str = ".1.3.6.1.2.1.16.11.2.1.4";

/// `flowgauge rmon` under a master, with what it says in a file.
struct Subagent {
    child: Child,
}

impl Subagent {
    fn start(snmpd: &Snmpd, said: &Path, arguments: &[&str]) -> Subagent {
        let socket = snmpd.socket().display().to_string();
        let all = [&["rmon", "--agentx", &socket], arguments].concat();
        let said = fs::File::create(said).unwrap();
        let child = command(&all)
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        Subagent { child }
    }

    /// Ends it as Ctrl-C does; its exit code.
    fn end(mut self) -> Option<i32> {
        let id = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Subagent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn says(said: &Path, text: &str) {
    wait_until(text, || fs::read_to_string(said).unwrap().contains(text));
}

fn rows(json: &str) -> Vec<Value> {
    json.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Packets and octets in and out by address, as a walk shows them.
fn walked_hosts(snmpd: &Snmpd) -> BTreeMap<String, Vec<u64>> {
    let mut hosts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for column in 3..=6 {
        let lines = snmpd.lines("snmpwalk", READER, &["-Oq", &format!("{HOSTS}.{column}")]);
        for line in lines.iter().filter(|line| !line.contains("No Such")) {
            let (name, value) = line.split_once(' ').unwrap();
            let index = name.strip_prefix(&format!("{HOSTS}.{column}.")).unwrap();
            let index: Vec<u32> = index.split('.').map(|part| part.parse().unwrap()).collect();
            // Control row, time mark, network layer, length, address.
            let [1, 0, _, _, octets @ ..] = &index[..] else {
                panic!("{line}");
            };
            let address = match *octets {
                [a, b, c, d] => format!("{a}.{b}.{c}.{d}"),
                _ => {
                    let octets: Vec<u8> = octets.iter().map(|it| *it as u8).collect();
                    let octets: [u8; 16] = octets.try_into().unwrap();
                    std::net::Ipv6Addr::from(octets).to_string()
                }
            };
            hosts
                .entry(address)
                .or_default()
                .push(value.parse().unwrap());
        }
    }
    hosts
}

#[test]
fn managers_see_what_is_shown_without_snmp() {
    if !is_there() {
        return;
    }
    let folder = Folder::new("rmon");
    let (trace, _) = folder.trace();
    let trace = trace.to_str().unwrap();
    let shown = rows(&printed(&[
        "rmon", "show", "hosts", "-q", "--json", "-r", trace,
    ]));
    let mut expected: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in &shown {
        let fields = ["in_packets", "out_packets", "in_octets", "out_octets"];
        let counts = fields.map(|field| row[field].as_u64().unwrap());
        let sums = expected
            .entry(row["address"].as_str().unwrap().to_owned())
            .or_default();
        sums.resize(4, 0);
        sums.iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    }
    assert!(expected.len() > 20);
    let snmpd = Snmpd::start();
    let said = folder.file("said");
    let subagent = Subagent::start(&snmpd, &said, &["-r", trace]);
    says(&said, "registered with the AgentX master at ");
    says(&said, "the tables remain until stopped");
    let walked = walked_hosts(&snmpd);
    assert_eq!(walked.len(), expected.len());
    for (address, counts) in expected {
        // An address may stand in several network layers.
        let sums = walked[&address].chunks(walked[&address].len() / 4);
        assert_eq!(
            sums.map(|of| of.iter().sum()).collect::<Vec<u64>>(),
            counts,
            "{address}"
        );
    }
    let names = snmpd.lines("snmpbulkwalk", READER, &["-OqvU", NAMES]);
    let protocols = rows(&printed(&[
        "rmon",
        "show",
        "protocols",
        "-q",
        "--json",
        "-r",
        trace,
    ]));
    for row in &protocols {
        let name = format!("\"{}\"", row["protocol"].as_str().unwrap());
        assert!(names.contains(&name), "{name} is not in the directory");
    }
    assert_eq!(subagent.end(), Some(0));
    let said = fs::read_to_string(&said).unwrap();
    assert!(said.contains(" received, "), "{said}");
}

#[test]
fn a_live_interface_is_counted_while_snmpd_comes_and_goes() {
    if !is_there() {
        return;
    }
    let folder = Folder::new("rmon-live");
    let said = folder.file("said");
    let mut snmpd = Snmpd::start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap();
    let filter = format!("udp and src port {0} and dst port {0}", port.port());
    let subagent = Subagent::start(&snmpd, &said, &["-i", "lo", "--", &filter]);
    says(&said, "listening on lo");
    let mut sent = 0;
    for _ in 0..2 {
        fs::write(&said, "").unwrap();
        snmpd.restart();
        says(&said, "registered with the AgentX master at ");
        for _ in 0..5 {
            socket.send_to(b"counted", port).unwrap();
        }
        sent += 5;
        let packets = || {
            walked_hosts(&snmpd)
                .get("127.0.0.1")
                .map_or(0, |counts| counts[1])
        };
        // The loopback interface shows each packet on its way out and in.
        wait_until("all are counted", || packets() >= sent);
        assert_eq!(packets(), sent);
    }
    assert_eq!(subagent.end(), Some(0));
}

#[test]
fn tables_are_shown_with_the_largest_rows_first() {
    let folder = Folder::new("rmon-show");
    let (trace, truth) = folder.trace();
    let trace = trace.to_str().unwrap();
    let show = |table: &str, more: &[&str]| {
        rows(&printed(
            &[&["rmon", "show", table, "-q", "--json", "-r", trace], more].concat(),
        ))
    };
    for (table, octets) in [("protocols", "octets"), ("matrix", "octets")] {
        let all = show(table, &[]);
        let sizes: Vec<u64> = all
            .iter()
            .map(|row| row[octets].as_u64().unwrap())
            .collect();
        assert!(
            sizes.is_sorted_by(|one, other| one >= other),
            "{table}: {sizes:?}"
        );
        assert_eq!(show(table, &["--top", "3"])[..], all[..3]);
    }
    let pairs = show("matrix", &[]);
    assert_eq!(show("topn", &[])[..], pairs[..10]);
    // What goes one way is what comes back on the other row.
    for row in &pairs {
        let back = pairs.iter().find(|other| {
            other["source"] == row["destination"]
                && other["destination"] == row["source"]
                && other["protocol"] == row["protocol"]
        });
        let packets = back.map_or(0, |back| back["packets"].as_u64().unwrap());
        assert_eq!(row["reverse_packets"].as_u64().unwrap(), packets);
    }
    let packets = truth["packets"].as_u64().unwrap();
    let link = &show("protocols", &["--top", "1"])[0];
    assert!(link["packets"].as_u64().unwrap() <= packets, "{link}");
}

/// Protocols by content are those that `flows --classify` tells by content, between the same hosts.
#[test]
fn protocols_are_told_by_content_where_that_is_wanted() {
    let folder = Folder::new("rmon-contents");
    let trace = folder.file("mix.pcap").display().to_string();
    let trace = trace.as_str();
    printed(&["generate", "mix", "-q", "--packets", "5000", "-w", trace]);
    let pair = |row: &Value, ends: [&str; 2], protocol: &str| {
        let mut ends = ends.map(|end| row[end].as_str().unwrap().to_owned());
        ends.sort();
        (ends, protocol.to_owned())
    };
    let flows = rows(&printed(&[
        "flows",
        "--classify",
        "-q",
        "--json",
        "-r",
        trace,
    ]));
    let by_content = flows.iter().filter(|row| row["app_proto_by"] == "content");
    let expected: BTreeSet<_> = by_content
        .map(|row| {
            pair(
                row,
                ["src_ip", "dst_ip"],
                row["app_proto"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(expected.len() > 20, "{}", expected.len());
    let show = [
        "rmon",
        "show",
        "matrix",
        "--by-protocol",
        "-q",
        "--json",
        "-r",
        trace,
    ];
    let of = |more: &[&str]| -> BTreeSet<_> {
        let all = rows(&printed(&[&show[..], more].concat()));
        let all = all.iter().filter_map(|row| {
            let (_, protocol) = row["protocol"].as_str().unwrap().split_once(".content-")?;
            Some(pair(row, ["source", "destination"], protocol))
        });
        all.collect()
    };
    assert_eq!(of(&["--contents"]), expected);
    assert_eq!(of(&[]), BTreeSet::new());
}

#[test]
fn what_cannot_be_is_refused_and_no_master_is_told_once() {
    let refused = |arguments: &[&str], texts: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        for text in texts {
            assert!(stderr(&output).contains(text), "{}", stderr(&output));
        }
    };
    let address = "not an address of a master";
    refused(
        &["rmon", "-i", "lo", "--agentx", "localhost"],
        &[address, "HOST:PORT"],
    );
    refused(&["rmon", "-i", "lo", "--priority", "0"], &["--priority"]);
    refused(
        &["rmon", "-i", "lo", "--workers", "2"],
        &["hint: leave --workers out"],
    );
    refused(&["rmon"], &["nothing to read"]);
    refused(
        &["rmon", "show", "everything", "-r", "x"],
        &["protocols, hosts, matrix, topn"],
    );

    let folder = Folder::new("rmon-alone");
    let (trace, _) = folder.trace();
    let said = folder.file("said");
    let nowhere = folder.file("nowhere").display().to_string();
    let errors = fs::File::create(&said).unwrap();
    let arguments = ["rmon", "-r", trace.to_str().unwrap(), "--agentx", &nowhere];
    let child = command(&arguments).stderr(errors).spawn().unwrap();
    let subagent = Subagent { child };
    says(&said, "is snmpd running");
    says(&said, "the tables remain until stopped");
    assert_eq!(subagent.end(), Some(0));
    let said = fs::read_to_string(&said).unwrap();
    assert_eq!(said.matches("no AgentX session at").count(), 1, "{said}");
}

/// Of a named pipe it waits for the writer, which is said, and a signal ends that. A file that is written anew is no pipe.
#[test]
fn waiting_for_who_writes_a_pipe_is_said_and_ends_by_a_signal() {
    let folder = Folder::new("rmon-pipe");
    let (trace, _) = folder.trace();
    let (said, pipe) = (folder.file("said"), folder.file("pipe"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let [trace, pipe] = [&trace, &pipe].map(|it| it.to_str().unwrap());
    let child = command(&["rmon", "-r", trace, "--snmp", pipe])
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let subagent = Subagent { child };
    says(&said, &format!("still waiting for {pipe}: "));
    assert_eq!(subagent.end(), Some(130));
    let refused = run(&["rmon", "-r", trace, "--config", pipe]);
    assert_eq!(refused.status.code(), Some(2));
    let why = "pipe: not a regular file, and is rewritten when managers change rows\nhint: ";
    assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
}

/// eventTable and alarmTable: columns of row 5.
fn column(group: u32, number: u32) -> String {
    format!(".1.3.6.1.2.1.16.{group}.1.1.{number}.5")
}

/// A program that writes down alarms.
fn script(program: &Path, alarms: &Path) {
    fs::write(alarms, "").unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$FLOWGAUGE_EVENT $FLOWGAUGE_OBJECTS\" >>{}\n",
        alarms.display()
    );
    fs::write(program, script).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_alarm_reaches_managers_and_a_program_and_its_rows_are_kept() {
    if !is_there() {
        return;
    }
    let folder = Folder::new("rmon-alarm");
    let (trace, _) = folder.trace();
    let (said, config) = (folder.file("said"), folder.file("rows.toml"));
    let (program, alarms) = (folder.file("then"), folder.file("alarms"));
    fs::write(&config, "").unwrap();
    script(&program, &alarms);
    let snmpd = Snmpd::start();
    let traps = snmpd.traps();
    let [trace, config_name, program] = [&trace, &config, &program].map(|it| it.to_str().unwrap());
    let arguments = ["-r", trace, "--config", config_name, "--then", program];
    let subagent = Subagent::start(&snmpd, &said, &arguments);
    says(&said, "registered with the AgentX master at ");
    let packets = ".1.3.6.1.2.1.16.1.1.1.5.1";
    // An event with log and trap, and an alarm at the first packet that was counted.
    let event = [
        (7, "i", "2"),
        (3, "i", "4"),
        (4, "s", "public"),
        (6, "s", "tester"),
    ];
    let alarm = [
        (12, "i", "2"),
        (2, "i", "1"),
        (3, "o", packets),
        (4, "i", "1"),
        (6, "i", "1"),
        (7, "i", "1"),
        (8, "i", "0"),
        (9, "i", "5"),
        (10, "i", "5"),
        (11, "s", "tester"),
    ];
    for (group, status, columns) in [(9, 7, &event[..]), (3, 12, &alarm[..])] {
        let names: Vec<String> = columns.iter().map(|it| column(group, it.0)).collect();
        let set = names.iter().zip(columns);
        let set: Vec<&str> = set
            .flat_map(|(name, it)| [name.as_str(), it.1, it.2])
            .collect();
        snmpd.lines("snmpset", WRITER, &set);
        snmpd.lines("snmpset", WRITER, &[&column(group, status), "i", "1"]);
    }
    let all = traps.wait_for(".1.3.6.1.2.1.16.3.1.1.7.5 = INTEGER: 1");
    for part in [
        ".1.3.6.1.6.3.1.1.4.1.0 = OID: .1.3.6.1.2.1.16.0.1",
        ".1.3.6.1.2.1.16.3.1.1.3.5 = OID: .1.3.6.1.2.1.16.1.1.1.5.1",
    ] {
        assert!(all.contains(part), "no {part:?} in {all}");
    }
    says(&alarms, "rising 1.3.6.1.2.1.16.3.1.1.1.5=5\n");
    says(&config, "alarmTable");
    assert_eq!(subagent.end(), Some(0));
    // What is kept is there again, and what is no such file is refused.
    fs::write(&alarms, "").unwrap();
    let subagent = Subagent::start(&snmpd, &said, &arguments);
    says(&alarms, "rising 1.3.6.1.2.1.16.3.1.1.1.5=5\n");
    assert_eq!(subagent.end(), Some(0));
    fs::write(&config, "[[row]]\ntable = \"hostTable\"\n").unwrap();
    let refused = run(&["rmon", "-r", trace, "--config", config_name]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("rows.toml: "),
        "{}",
        stderr(&refused)
    );
}

/// A sensor that ends with the test.
struct Counting(Child);

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_sensor_counts_in_the_same_tables_and_keeps_rows_over_a_reload() {
    if !is_there() {
        return;
    }
    let folder = Folder::new("rmon-sensor");
    let (trace, _) = folder.trace();
    let shown = rows(&printed(&[
        "rmon",
        "show",
        "hosts",
        "-q",
        "--json",
        "-r",
        trace.to_str().unwrap(),
    ]));
    let snmpd = Snmpd::start();
    let (socket, said) = (folder.file("sensor.sock"), folder.file("said"));
    let (config, kept) = (folder.file("sensor.toml"), folder.file("rows.toml"));
    fs::write(&kept, "").unwrap();
    let text = format!(
        "socket = {socket:?}\nuser = \"root\"\n[devices.trace]\nfiles = [{trace:?}]\n\
         [rmon]\nagentx = {:?}\nconfig = {kept:?}\n",
        snmpd.socket()
    );
    fs::write(&config, &text).unwrap();
    let arguments = ["sensor", "run", "--config", config.to_str().unwrap()];
    let errors = fs::File::create(&said).unwrap();
    let child = command(&arguments).stderr(errors).spawn();
    let mut sensor = Counting(child.unwrap());
    says(&said, "rmon: registered with the AgentX master at ");
    let expected: u64 = shown
        .iter()
        .map(|row| row["out_packets"].as_u64().unwrap())
        .sum();
    let seen = || {
        let hosts = walked_hosts(&snmpd);
        let packets = hosts.values().map(|counts| {
            let half = counts.len() / 4;
            counts[half..2 * half].iter().sum::<u64>()
        });
        packets.sum::<u64>()
    };
    wait_until("all packets are counted", || seen() == expected);
    // Another stack begins; the tables go on.
    fs::write(&config, format!("{text}[stacks.all]\nstack = \"count\"\n")).unwrap();
    let reload = run(&["sensor", "reload", "--socket", socket.to_str().unwrap()]);
    assert!(reload.status.success(), "{}", stderr(&reload));
    assert_eq!(seen(), expected);
    let status = ["sensor", "status", "--json", "--socket"];
    let status = printed(&[&status[..], &[socket.to_str().unwrap()]].concat());
    assert!(status.contains("\"stack\":\"rmon\""), "{status}");
    // What managers set is kept.
    let event = column(9, 7);
    snmpd.lines("snmpset", WRITER, &[&event, "i", "2"]);
    wait_until("the row is kept", || {
        fs::read_to_string(&kept).unwrap().contains("eventTable")
    });
    // [rmon] may go while the sensor runs.
    fs::write(&config, text.split("[rmon]").next().unwrap()).unwrap();
    let reload = run(&["sensor", "reload", "--socket", socket.to_str().unwrap()]);
    assert!(reload.status.success(), "{}", stderr(&reload));
    // (A request under way when the subagent leaves fails.)
    wait_until("the objects are gone", || {
        let (_, said) = snmpd.tool("snmpget", READER, &[&event]);
        said.contains("No Such")
    });
    let stop = run(&["sensor", "stop", "--socket", socket.to_str().unwrap()]);
    assert!(stop.status.success(), "{}", stderr(&stop));
    assert!(sensor.0.wait().unwrap().success());
}

/// `[rmon] snmp` and `then`: an alarm of a sensor samples an object of snmpd's, as a user of it, and runs a program.
#[test]
fn a_sensor_samples_objects_of_other_agents() {
    if !is_there() {
        return;
    }
    let folder = Folder::new("rmon-sensor-snmp");
    let snmpd = Snmpd::start();
    let (socket, said) = (folder.file("sensor.sock"), folder.file("said"));
    let (config, kept, account) = (
        folder.file("sensor.toml"),
        folder.file("rows.toml"),
        folder.file("account"),
    );
    let rows = "[[row]]\ntable = \"alarmTable\"\nindex = \"5\"\nstate = \"active\"\n[row.values]\n\
                alarmInterval = 1\nalarmVariable = \"1.3.6.1.2.1.1.3.0\"\nalarmSampleType = 1\n\
                alarmStartupAlarm = 1\nalarmRisingThreshold = 1\nalarmFallingThreshold = 0\n\
                alarmRisingEventIndex = 5\n[[row]]\ntable = \"eventTable\"\nindex = \"5\"\nstate = \"active\"\n\
                [row.values]\neventType = 3\neventCommunity = \"public\"\n";
    fs::write(&kept, rows).unwrap();
    let user = format!("address = {:?}\ncommunity = \"public\"\n", snmpd.address());
    fs::write(&account, user).unwrap();
    fs::set_permissions(&account, fs::Permissions::from_mode(0o600)).unwrap();
    let text = |snmp: &str| {
        format!(
            "socket = {socket:?}\nuser = \"root\"\n[devices.lo]\n[rmon]\nagentx = {:?}\nconfig = {kept:?}\n{snmp}",
            snmpd.socket()
        )
    };
    // Without the user nobody can ask for it.
    fs::write(&config, text("")).unwrap();
    let config = config.to_str().unwrap();
    let refused = run(&["sensor", "check", "--config", config]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("alarmTable 5"),
        "{}",
        stderr(&refused)
    );
    let (program, alarms) = (folder.file("then"), folder.file("alarms"));
    script(&program, &alarms);
    let then = |program: &Path| text(&format!("snmp = {account:?}\nthen = {program:?}\n"));
    fs::write(config, then(Path::new("then"))).unwrap();
    let refused = run(&["sensor", "check", "--config", config]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("then is not a whole path"),
        "{}",
        stderr(&refused)
    );
    fs::write(config, then(&program)).unwrap();
    let errors = fs::File::create(&said).unwrap();
    let child = command(&["sensor", "run", "--config", config])
        .stderr(errors)
        .spawn();
    let mut sensor = Counting(child.unwrap());
    says(&said, "rmon: registered with the AgentX master at ");
    // The uptime of snmpd is more than nothing.
    says(&alarms, "rising 1.3.6.1.2.1.16.3.1.1.1.5=5\n");
    let stop = run(&["sensor", "stop", "--socket", socket.to_str().unwrap()]);
    assert!(stop.status.success(), "{}", stderr(&stop));
    assert!(sensor.0.wait().unwrap().success());
}

/// `sensor check` reads the file of control rows, too. A sensor starts without the rows that are wrong, tells them, and has those
/// that name its interfaces.
#[test]
fn a_sensor_leaves_out_control_rows_that_are_wrong() {
    let folder = Folder::new("rmon-rows");
    let (trace, _) = folder.trace();
    let (socket, said) = (folder.file("sensor.sock"), folder.file("said"));
    let (config, kept) = (folder.file("sensor.toml"), folder.file("rows.toml"));
    let rows = |cell: &str| {
        let row = |table: &str, values: &str| {
            format!(
                "[[row]]\ntable = \"{table}\"\nindex = \"5\"\nstate = \"active\"\n[row.values]\n{values}\n"
            )
        };
        [
            row("bufferControlTable", "bufferControlChannelIndex = 5"),
            row("channelTable", "channelIfIndex = 1"),
            row("eventTable", cell),
            row("hostControlTable", "hostControlDataSource = \"eth9\""),
        ]
        .concat()
    };
    let text = format!(
        "socket = {socket:?}\nuser = \"root\"\n[devices.trace]\nfiles = [{trace:?}]\n\
         [rmon]\nagentx = {:?}\nconfig = {kept:?}\n",
        folder.file("nobody")
    );
    fs::write(&config, &text).unwrap();
    let config = config.to_str().unwrap();
    let check = || run(&["sensor", "check", "--config", config]);
    fs::write(&kept, rows("eventType = 2")).unwrap();
    let good = check();
    assert!(good.status.success(), "{}", stderr(&good));
    let waits = "rows.toml: row 4: hostControlTable 5: there is no interface \"eth9\"; the row is not active";
    assert!(stderr(&good).contains(waits), "{}", stderr(&good));
    assert_eq!(
        stderr(&good).matches("rows.toml").count(),
        1,
        "{}",
        stderr(&good)
    );
    fs::write(&kept, rows("eventType = true")).unwrap();
    let bad = check();
    assert_eq!(bad.status.code(), Some(2));
    let wrong = "rows.toml: row 3: eventTable 5: eventType = true cannot be";
    for part in [wrong, "hint: it takes a number of 1 to 4"] {
        assert!(stderr(&bad).contains(part), "{}", stderr(&bad));
    }
    let errors = fs::File::create(&said).unwrap();
    let child = command(&["sensor", "run", "--config", config])
        .stderr(errors)
        .spawn();
    let mut sensor = Counting(child.unwrap());
    says(&said, wrong);
    says(&said, waits);
    let stop = run(&["sensor", "stop", "--socket", socket.to_str().unwrap()]);
    assert!(stop.status.success(), "{}", stderr(&stop));
    assert!(sensor.0.wait().unwrap().success());
    let said = fs::read_to_string(&said).unwrap();
    assert_eq!(said.matches("rows.toml").count(), 2, "{said}");
}

/// `agentXPerms` gives a group the master's socket: who is in it registers, others are told why not.
#[test]
fn a_group_may_use_the_masters_socket() {
    const GROUP: &str = "games";
    let group = nix::unistd::Group::from_name(GROUP).unwrap();
    let (Some(group), true) = (group, nix::unistd::geteuid().is_root()) else {
        return crate::skipped::skipped("needs root and a group to spare");
    };
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start_for_group(GROUP);
    let folder = Folder::new("rmon-group");
    let (trace, _) = folder.trace();
    let said = folder.file("said");
    for (groups, told) in [
        (group.gid.to_string(), "registered with the AgentX master"),
        (
            NOBODY.to_owned(),
            "agentXPerms in snmpd.conf gives a group access",
        ),
    ] {
        let file = |path: &Path| {
            fs::File::options()
                .create(true)
                .append(true)
                .open(path)
                .unwrap()
        };
        // The trace comes over standard input: the user cannot reach the folder.
        let program = command(&[]);
        let child = std::process::Command::new("setpriv")
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--groups", &groups])
            .arg(program.get_program())
            .args(["rmon", "-r", "-", "--agentx"])
            .arg(snmpd.socket())
            .stdin(fs::File::open(&trace).unwrap())
            .stdout(Stdio::null())
            .stderr(file(&said))
            .spawn()
            .unwrap();
        let subagent = Subagent { child };
        says(&said, told);
        assert_eq!(subagent.end(), Some(0));
    }
}
