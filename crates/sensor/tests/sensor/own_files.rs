//! Files that users bring: to be read as devices, and to be written by flows.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;

use flowgauge_capture::{FileFormat, FileSink, PacketSink as _, PacketSource as _, SinkOptions};

use super::*;

fn refused<T: core::fmt::Debug>(result: Result<T, ClientError>) -> String {
    match result {
        Err(ClientError::Refused(refusal)) => refusal.error,
        other => panic!("{other:?}"),
    }
}

/// A user's file with packets, and others of the same in other forms.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let trace = folder.join("own.pcap");
    let config = Trace::new(Preset::Mix).with_packets(5_000);
    generate(&config, File::create(&trace).unwrap()).unwrap();
    let mut traces = vec![trace];
    for (name, format) in [
        ("own.pcapng", FileFormat::PcapNg),
        ("own.pcap.gz", FileFormat::PcapNanoseconds),
    ] {
        let copy = folder.join(name);
        let options = SinkOptions {
            format,
            ..SinkOptions::default()
        };
        let mut sink = FileSink::create(&copy, options).unwrap();
        let mut source = open(&traces[0]).unwrap();
        sink.set_interfaces(source.interfaces()).unwrap();
        while let Some(batch) = source.next_batch().unwrap() {
            sink.write(&batch).unwrap();
        }
        sink.close().unwrap();
        traces.push(copy);
    }
    traces
}

#[test]
fn a_users_file_is_a_device() {
    let running = Running::start(1, "");
    let folder = tempfile::tempdir().unwrap();
    for trace in traces(folder.path()) {
        let client = running.client();
        let mut file = File::open(&trace).unwrap();
        // Where the file stands, and goes to, is the user's business.
        file.seek(SeekFrom::Start(1000)).unwrap();
        let device = client.create_device(file.as_fd()).unwrap();
        let flows: Vec<Flow> = (STACKS.iter())
            .map(|stack| client.open(&device, stack, &[]).unwrap())
            .collect();
        assert_eq!(flows[0].readings().read(0).items, 0, "it holds");
        client.start(&device).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        for (stack, flow) in STACKS.iter().zip(&flows) {
            assert_eq!(seen(&last(flow)), of_file(stack, &trace), "{stack}");
        }
        client.delete_device(&device).unwrap();
        refused(client.start(&device));
    }
}

#[test]
fn devices_belong_to_their_connection_and_are_few() {
    let running = Running::start(1, "");
    let (one, other) = (running.client(), running.client());
    let file = File::open(running.trace()).unwrap();
    let names: Vec<String> = (0..16)
        .map(|_| one.create_device(file.as_fd()).unwrap())
        .collect();
    assert!(refused(other.create_device(file.as_fd())).contains("16"));
    refused(other.open(&names[0], "count", &[]));
    refused(other.check(&names[0], "count"));
    refused(other.start(&names[0]));
    refused(other.delete_device(&names[0]));
    refused(one.delete_device("mix"));
    let mut flow = one.open(&names[1], "to_buffer", &[]).unwrap();
    one.delete_device(&names[1]).unwrap();
    assert!(flow.next(Duration::from_secs(60)).unwrap().is_none());
    assert!(flow.readings().read(0).is_last);
    // They end with the connection, also those whose packets nobody takes.
    let slow = one.open(&names[2], "to_buffer", &[]).unwrap();
    one.start(&names[2]).unwrap();
    assert_eq!(other.reload().unwrap(), ["nothing has changed"]);
    drop((one, flow, slow));
    let devices = || other.status().unwrap().devices.len();
    let patience = Instant::now() + Duration::from_secs(60);
    while devices() > 1 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(devices(), 1);
    other.create_device(file.as_fd()).unwrap();
}

#[test]
fn what_is_no_file_to_read_is_refused() {
    let running = Running::start(1, "");
    let client = running.client();
    let text = running.folder.path().join("text");
    fs::write(&text, "an ordinary file, which is not a capture").unwrap();
    let (pipe, _writer) = std::io::pipe().unwrap();
    let files: Vec<(&str, OwnedFd)> = vec![
        (
            "a folder",
            File::open(running.folder.path()).unwrap().into(),
        ),
        ("a text", File::open(&text).unwrap().into()),
        ("a device", File::open("/dev/zero").unwrap().into()),
        ("of /proc", File::open("/proc/self/maps").unwrap().into()),
        ("a pipe", pipe.into()),
        (
            "to write",
            File::options().append(true).open(&text).unwrap().into(),
        ),
        (
            "a socket",
            Connection::pair()
                .unwrap()
                .0
                .as_fd()
                .try_clone_to_owned()
                .unwrap(),
        ),
    ];
    for (what, file) in &files {
        let error = refused(client.create_device(file.as_fd()));
        assert!(error.contains("cannot be read"), "{what}: {error}");
    }
    // None, and too many.
    let socket = running.folder.path().join("sock");
    let connection = Connection::connect(&socket.to_string_lossy()).unwrap();
    let request = serde_json::to_vec(&Request::CreateDevice).unwrap();
    let trace = File::open(running.trace()).unwrap();
    for files in [&[][..], &[trace.as_fd(), trace.as_fd()]] {
        connection.send_files(&request, files).unwrap();
        assert!(connection.wait(Some(Duration::from_secs(60))).unwrap());
        let mut answer = vec![0; 64 << 10];
        let len = connection.receive(&mut answer).unwrap();
        let answer: Answer = serde_json::from_slice(&answer[1..len]).unwrap();
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    }
    // What other requests bring is closed.
    let status = serde_json::to_vec(&Request::Status { shared: false }).unwrap();
    connection
        .send_files(&status, &[trace.as_fd(); 16])
        .unwrap();
    assert!(connection.wait(Some(Duration::from_secs(60))).unwrap());
    assert_eq!(client.status().unwrap().devices.len(), 1);
}

#[test]
fn flows_write_to_files_of_their_users() {
    for workers in [1, 2] {
        let running = Running::start(workers, "");
        let client = running.client();
        let new = |name: &str| {
            let path = running.folder.path().join(name);
            let file = File::create_new(&path).unwrap();
            (path, file)
        };
        let (all, few, results) = (new("all"), new("few"), new("results"));
        let stack = "filter { tcp } output { file = fd:1 } output { file = fd:0, packets = 100, as = few } \
                     count - result_to_file { of = count, file = fd:2 }";
        client.check("mix", stack).unwrap();
        let files = [few.1.as_fd(), all.1.as_fd(), results.1.as_fd()];
        let flow = client.open("mix", stack, &files).unwrap();
        client.start("mix").unwrap();
        let end = last(&flow);
        assert_eq!(end.failure, None);
        let packets = of_file("filter { tcp } count", &running.trace())[1].1;
        assert_eq!(of_file("count", &all.0)[0].1, packets);
        assert_eq!(of_file("count", &few.0)[0].1, Some(100));
        let few = end
            .components
            .iter()
            .find(|it| it.component == "few")
            .unwrap();
        assert_eq!(
            (few.value.clone(), Some(few.items)),
            (Some(100.into()), packets)
        );
        let text = fs::read_to_string(&results.0).unwrap();
        let number = text.trim().rsplit('\t').next().unwrap().parse().ok();
        assert_eq!(number, packets, "{text}");
        assert!(!fs::exists("fd:0").unwrap());
    }
}

#[test]
fn what_is_no_file_to_write_is_refused() {
    let running = Running::start(1, "");
    let client = running.client();
    let file = File::create_new(running.folder.path().join("new")).unwrap();
    let to_read = File::open(running.trace()).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let open = |stack: &str, files: &[BorrowedFd<'_>]| refused(client.open("mix", stack, files));
    for (stack, files) in [
        ("output { file = fd:0 }", &[][..]),
        ("output { file = fd:1 }", &[file.as_fd()]),
        ("output { file = fd:18446744073709551615 }", &[file.as_fd()]),
        ("output { file = fd:0 }", &[to_read.as_fd()]),
        ("output { file = fd:0 }", &[full.as_fd()]),
        (
            "output { file = fd:0 } output { file = fd:0 }",
            &[file.as_fd()],
        ),
        ("output { file = fd:0, rotate_size = 1M }", &[file.as_fd()]),
        ("output { file = \"fd:0/../../x\" }", &[file.as_fd()]),
        ("output { file = \"%{key}fd:0\" }", &[file.as_fd()]),
        ("log { file = fd:0 }", &[file.as_fd()]),
        ("output { file = /tmp/x }", &[file.as_fd()]),
    ] {
        let error = open(stack, files);
        assert!(!error.is_empty(), "{stack}");
    }
    // Another user's file cannot be named: what is open has another number for each flow.
    let flow = client
        .open("mix", "output { file = fd:0 }", &[file.as_fd()])
        .unwrap();
    for number in 0..64 {
        open(&format!("output {{ file = fd:{number} }}"), &[]);
    }
    flow.close().unwrap();
    assert_eq!(running.flows(), 0);
}

#[test]
fn a_full_disk_ends_its_flow_alone() {
    let running = Running::start(1, "");
    let disk = running.folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&disk)
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("skipped: a small file system can only be mounted by root");
        return;
    }
    let client = running.client();
    let mut file = File::create(disk.join("all.pcap")).unwrap();
    file.write_all(b"").unwrap();
    let failing = client
        .open("mix", "output { file = fd:0 } count", &[file.as_fd()])
        .unwrap();
    let other = client.open("mix", "count bytes", &[]).unwrap();
    client.start("mix").unwrap();
    assert_eq!(
        seen(&last(&other)),
        of_file("count bytes", &running.trace())
    );
    let failure = last(&failing).failure.unwrap();
    assert!(
        failure.contains("fd:0") && !failure.contains('#') && failure.contains("space"),
        "{failure}"
    );
    assert!(failing.readings().read(0).has_failed);
    drop((file, running.client()));
    let unmounted = Command::new("umount").arg("-l").arg(&disk).status();
    assert!(unmounted.unwrap().success());
}
