//! Several that share the work.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::broker::{Broker, missing};
use crate::process::{Running, command, good, lines};
use crate::skipped::skipped;
use crate::topics::{account, capture, numbered, packets_to, place, sorted, to_file};
use crate::wait::wait_until;

#[test]
fn a_member_that_is_killed_and_one_that_joins_leave_the_account_exact() {
    if let Some(reason) = missing() {
        return skipped(reason);
    }
    let broker = Broker::shared();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    capture(folder, 2000);
    broker.create("shared", 6);
    let place = place(&broker, "shared");
    let files = ["a.json", "b.json", "c.json", "d.json"].map(|file| folder.join(file));
    let start = |number: usize| {
        let file = files[number].file_name().unwrap().to_str().unwrap();
        Running::start(command(
            folder,
            &["-e", &to_file(&place, "numbers = yes", file)],
        ))
    };
    let mut members = vec![start(0), start(1), start(2)];
    wait_until("partitions for three", || {
        members.iter().all(|member| member.partitions() == 2)
    });
    let mut sender = command(folder, &["-r", "-", "-e", &packets_to(&place)]);
    sender.stdin(Stdio::piped());
    let mut sender = Running::start(sender);
    let mut stdin = sender.stdin();
    let bytes = fs::read(folder.join("all.pcap")).unwrap();
    let mut pieces = bytes.chunks(bytes.len() / 60);
    let mut feed = |most: usize, is_done: &dyn Fn() -> bool| {
        wait_until("records", || {
            if pieces.len() > most
                && let Some(piece) = pieces.next()
            {
                stdin.write_all(piece).unwrap();
                // As long as records wait for others to come.
                std::thread::sleep(Duration::from_millis(210));
            }
            is_done()
        });
    };
    // One that joins gets partitions, and all of what is in them after what the others had of them.
    feed(40, &|| {
        files[..3].iter().all(|file| !lines(file).is_empty())
    });
    members.push(start(3));
    feed(20, &|| {
        members.iter().map(Running::partitions).sum::<usize>() == 6 && members[3].partitions() > 0
    });
    feed(5, &|| !lines(&files[3]).is_empty());
    members[1].signal(Signal::SIGKILL);
    let killed = members.remove(1);
    let (output, _) = killed.ended();
    assert!(!output.status.success());
    feed(0, &|| true);
    pieces.for_each(|piece| stdin.write_all(piece).unwrap());
    drop(stdin);
    good(&sender.ended().0);

    let sent = lines(&folder.join("sent.json"));
    let come = || {
        let lines = files.iter().flat_map(|file| lines(file));
        let numbered = lines.map(|line| numbered(&line));
        numbered
            .map(|(line, number)| (number, line))
            .collect::<BTreeMap<_, _>>()
    };
    wait_until("all records", || come().len() >= sent.len());
    wait_until("partitions for those who are left", || {
        members.iter().map(Running::partitions).sum::<usize>() == 6
    });
    let results: Vec<_> = members.into_iter().map(Running::end).collect();
    let results: Vec<&[_]> = results.iter().map(Vec::as_slice).collect();
    // The account counts what the killed one had; its lines that are there twice have the same numbers.
    assert_eq!(account(&results), sent.len() as u64);
    let come: Vec<String> = come().into_values().collect();
    assert_eq!(sorted(come), sorted(sent));
    // Without the one that was killed there are none twice.
    let others = [0, 2, 3].iter().flat_map(|number| lines(&files[*number]));
    let mut others: Vec<String> = others.map(|line| numbered(&line).1).collect();
    let all = others.len();
    others.sort_unstable();
    others.dedup();
    assert_eq!(others.len(), all);
}
