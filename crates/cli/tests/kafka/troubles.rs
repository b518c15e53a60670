//! What goes wrong is said, with what to do about it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::broker::{Broker, missing};
use crate::process::{Running, command, good, lines, number, rows, run, stderr};
use crate::skipped::skipped;
use crate::topics::{capture, packets_to, place, sorted, to_file};
use crate::wait::wait_until;

#[test]
fn what_cannot_work_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for (stack, said, hint) in [
        (
            "packets output { kafka = h, topic = t }",
            "is not an address",
            "host:port",
        ),
        (
            "packets output { kafka = \"h:1\" }",
            "is needed with kafka",
            "names have",
        ),
        (
            "packets output { kafka = \"h:1\", topic = \"a b\" }",
            "not a name of a topic",
            "letters",
        ),
        (
            "output { kafka = \"h:1\", topic = t }",
            "is for records",
            "packets",
        ),
        (
            "packets output { kafka = \"h:1\", topic = t, file = x }",
            "is for files",
            "two outputs",
        ),
        (
            "packets output { kafka = \"h:1\", topic = t, format = csv }",
            "no records as csv",
            "json",
        ),
        (
            "packets output { kafka = \"h:1\", topic = t, to = \"h:2\" }",
            "two places",
            "two outputs",
        ),
        (
            "packets output { topic = t }",
            "no meaning without kafka",
            "",
        ),
        (
            "packets output { kafka = \"h:1\", topic = t, user = u }",
            "is missing",
            "belong together",
        ),
        (
            "packets output { kafka = \"h:1\", topic = t, user = u, password = p, sasl = plain, plain = yes }",
            "show the password",
            "scram",
        ),
        (
            "input { kafka = \"h:1\", topic = t, group = g } count",
            "only records",
            "type = record",
        ),
        (
            "input { kafka = \"h:1\", topic = t, type = record } - count",
            "group",
            "share the work",
        ),
        (
            "input { group = g, listen = \"h:1\" } count",
            "no meaning without kafka",
            "",
        ),
        ("input { } count", "listen or kafka", "listen ="),
    ] {
        let output = run(folder.path(), &["-e", stack]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{stack}: {text}");
        assert!(
            text.contains(said) && text.contains(hint),
            "{stack}: {text}"
        );
    }
}

#[test]
fn brokers_that_are_not_there_and_users_they_do_not_know_are_named() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::shared();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 10);
    broker.create("guarded", 1);
    let secret = |name: &str, text: &str, mode| {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    secret("wrong", "a guess", 0o600);
    secret("open", "a guess", 0o644);
    let (plain, secure, keys) = (broker.plain, broker.secure, broker.keys());
    let keys = keys.display();
    let login = "user = sensor, password = wrong";
    for (options, said, hint) in [
        (
            format!("kafka = \"{plain}\", topic = other, plain = yes"),
            "there is no topic \"other\"",
            "kafka-topics.sh",
        ),
        (
            format!("kafka = \"{secure}\", topic = guarded, keys = \"{keys}\", {login}"),
            "does not accept user and password",
            "check user",
        ),
        (
            format!(
                "kafka = \"{secure}\", topic = guarded, keys = \"{keys}\", user = sensor, password = open"
            ),
            "other users can read this secret",
            "chmod 600",
        ),
        // The system does not trust who signed the certificate.
        (
            format!("kafka = \"{secure}\", topic = guarded, {login}"),
            "no secure connection",
            "authority.crt",
        ),
    ] {
        let stacks = [
            packets_to(&options),
            to_file(&options, "until = end", "come.json"),
        ];
        for (stack, more) in stacks.iter().zip([&["-r", "all.pcap"][..], &[]]) {
            let output = run(folder, &[more, &["-e", stack]].concat());
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{stack}: {text}");
            assert!(
                text.contains(said) && text.contains("hint:") && text.contains(hint),
                "{stack}: {text}"
            );
            assert!(!text.contains("a guess"), "{text}");
        }
    }
}

#[test]
fn runs_wait_for_a_broker() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::new();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 300);
    broker.create("late", 3);
    let place = place(&broker, "late");
    broker.kill();
    let until_end = to_file(&place, "until = end", "come.json");
    let sends = packets_to(&place);
    let [sender, receiver] = [&["-r", "all.pcap", "-e", &sends][..], &["-e", &until_end]]
        .map(|words| Running::start(command(folder, words)));
    for run in [&sender, &receiver] {
        wait_until("it waits", || {
            run.said().contains("no broker answers") && run.said().contains("it is waited for")
        });
    }
    // Nothing that a signal could not end.
    receiver.signal(Signal::SIGINT);
    assert!(!receiver.ended().0.status.success());
    let short = packets_to(&format!("{place}, linger = 100ms")).replace("sent", "short");
    let output = run(folder, &["-r", "all.pcap", "-e", &short]);
    let said = stderr(&output);
    let all = lines(&folder.join("short.json"));
    let lost = format!("{} items were not sent", all.len());
    assert!(
        !output.status.success() && said.contains(&lost) && said.contains("hint:"),
        "{said}"
    );
    broker.start();
    good(&sender.ended().0);
    good(&run(folder, &["-e", &until_end]));
    assert_eq!(sorted(lines(&folder.join("come.json"))), sorted(all));
}

#[test]
fn what_cannot_be_sent_is_kept_for_the_next_run_or_counted_on_both_sides() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::new();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 9000);
    broker.create("kept", 2);
    broker.create("small", 1);
    let (kept, small) = (place(&broker, "kept"), place(&broker, "small"));
    broker.kill();
    // Where the number of partitions is known, a run begins without a broker.
    let options = format!("{kept}, partitions = 2, spool_folder = spool");
    let stack = |linger: &str| packets_to(&format!("{options}, linger = {linger}"));
    let output = run(folder, &["-r", "all.pcap", "-e", &stack("100ms")]);
    assert_eq!(delivered(&good(&output)), 0);
    let said = stderr(&output);
    assert!(said.contains("items wait in spool/"), "{said}");
    // With a spool this small it loses most.
    let options = format!("{small}, partitions = 1, spool = 1M, when_full = drop_newest");
    let lossy = packets_to(&format!("{options}, linger = 60s"));
    let lossy = Running::start(command(folder, &["-r", "all.pcap", "-e", &lossy]));
    wait_until("losses", || {
        lossy.said().contains("items are lost and counted")
    });
    broker.start();
    let (output, said) = lossy.ended();
    let arrived = delivered(&good(&output));
    let sent = lines(&folder.join("sent.json"));
    let all = sent.len() as u64;
    assert!(0 < arrived && arrived < all, "{arrived} of {all}");
    let lost = format!("{} of {all} items were lost", all - arrived);
    assert!(said.contains(&lost), "{lost}: {said}");
    good(&run(folder, &["-r", "all.pcap", "-e", &stack("60s")]));

    for (place, received, lost, file) in [
        (&small, arrived, all - arrived, "small.json"),
        (&kept, 2 * all, 0, "kept.json"),
    ] {
        let results = good(&run(folder, &["-e", &to_file(place, "until = end", file)]));
        let sum = |column| {
            rows(&results)
                .iter()
                .map(|(_, row)| number(row, column))
                .sum::<u64>()
        };
        assert_eq!((sum("received"), sum("lost")), (received, lost), "{file}");
        assert_eq!(lines(&folder.join(file)).len() as u64, received, "{file}");
    }
    assert_eq!(
        sorted(lines(&folder.join("kept.json"))),
        sorted([sent.clone(), sent].concat())
    );
}

/// By the results of an output to a topic behind another.
fn delivered(results: &[serde_json::Value]) -> u64 {
    let output = results.iter().find(|it| it["component"] == "output(1)");
    output.unwrap()["value"].as_u64().unwrap()
}

#[test]
fn a_reader_that_is_slow_gets_all() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::shared();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 3000);
    broker.create("slow", 2);
    let place = place(&broker, "slow");
    good(&run(folder, &["-r", "all.pcap", "-e", &packets_to(&place)]));
    // A pipe has room for 64 KiB; nothing is read before the member waits for it.
    let stack = to_file(
        &place,
        "until = end, memory = 64k, queue = 64k",
        "/dev/stderr",
    );
    let mut slow = command(folder, &["-e", &stack]);
    let mut slow = slow
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = slow.stderr.take().unwrap();
    let mut text = String::new();
    std::thread::sleep(std::time::Duration::from_secs(2));
    std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
    assert!(slow.wait().unwrap().success());
    let come = text.lines().filter(|line| line.starts_with('{'));
    let come: Vec<String> = come.map(str::to_owned).collect();
    assert_eq!(sorted(come), sorted(lines(&folder.join("sent.json"))));
}
