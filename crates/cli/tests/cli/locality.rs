//! `flowgauge locality`: what it starts, and what it refuses to.

use std::fs;
use std::process::Command;

use crate::command_support::{Folder, command, run, stderr, stdout};

#[test]
fn the_program_is_started_with_the_library() {
    let folder = Folder::new("locality-started");
    let (trace, truth) = folder.trace();
    let trace = trace.to_str().unwrap();
    let listed = |options: &[&str]| {
        let mut arguments = vec!["locality"];
        arguments.extend(options);
        arguments.extend(["--", "tcpdump", "-nn", "-tt", "-S", "-r", trace]);
        let output = run(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    let plain = Command::new("tcpdump")
        .args(["-nn", "-tt", "-S", "-r", trace])
        .output()
        .unwrap();
    let plain: Vec<&str> = stdout(&plain).lines().collect();
    for options in [
        &["--stats"][..],
        &["--copy", "--stats"],
        &["--threaded", "--stats", "--class", "flow"],
    ] {
        let output = listed(options);
        let mut lines: Vec<&str> = stdout(&output).lines().collect();
        assert_ne!(lines, plain);
        lines.sort_unstable();
        let mut expected = plain.clone();
        expected.sort_unstable();
        assert!(lines == expected);
        let told = format!("gathered {}, buffers ", truth["packets"]);
        assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    }
    // In one buffer, what `sort` writes.
    let sorted = folder.file("sorted.pcap");
    let sorted = sorted.to_str().unwrap();
    let filters = folder.file("filters");
    fs::write(&filters, "# two\ntcp\nudp\n").unwrap();
    let filters = ["--filters", filters.to_str().unwrap()];
    for class in [&["--class", "dst-port"], &["--class", "flow"], &filters] {
        let made = run(&[
            &["locality", "sort", "-q", "-r", trace, "-w", sorted],
            &class[..],
        ]
        .concat());
        assert!(made.status.success(), "{}", stderr(&made));
        let one = listed(&[&["--buffer", "100000", "--timeout", "none"], &class[..]].concat());
        let read = Command::new("tcpdump")
            .args(["-nn", "-tt", "-S", "-r", sorted])
            .output()
            .unwrap();
        assert!(stdout(&one) == stdout(&read), "{class:?}");
        assert_ne!(stdout(&read).lines().collect::<Vec<_>>(), plain);
    }
}

/// Sorted captures have the precision of what they were.
#[test]
fn precision_is_kept() {
    let folder = Folder::new("locality-precision");
    let (micro, nano, sorted) = ("micro.pcap", "nano.pcap", "sorted.pcap");
    let [micro, nano, sorted] = [micro, nano, sorted].map(|name| folder.file(name));
    let record = |fraction: u32| {
        let words = [1_u32, fraction, 14, 14].map(u32::to_le_bytes);
        [words.as_flattened(), &[0; 14]].concat()
    };
    for (file, magic) in [(&micro, 0xa1b2_c3d4_u32), (&nano, 0xa1b2_3c4d)] {
        let header = [magic, 0x0004_0002, 0, 0, 65535, 1].map(u32::to_le_bytes);
        let bytes = [header.as_flattened(), &record(7), &record(1003)].concat();
        fs::write(file, &bytes).unwrap();
        let mut made = command(&["locality", "sort", "-q", "-r"]);
        made.arg(file).arg("-w").arg(&sorted);
        assert!(made.status().unwrap().success());
        assert_eq!(fs::read(&sorted).unwrap(), bytes, "{magic:x}");
    }
}

#[test]
fn it_becomes_the_program() {
    let ended = run(&["locality", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ended.status.code(), Some(7));
    let said = run(&[
        "locality",
        "--buffer",
        "12",
        "--",
        "sh",
        "-c",
        "echo $PPID $FLOWGAUGE_LOCALITY_BUFFER",
    ]);
    let this = std::process::id();
    assert_eq!(stdout(&said), format!("{this} 12\n"));
}

/// A program that leaves its folder and the terminal, as daemons do.
#[test]
fn counts_go_to_a_file() {
    let folder = Folder::new("locality-counts");
    let (trace, truth) = folder.trace();
    let script = "cd / && exec tcpdump -Z root -r \"$0\" -w /dev/null 2>/dev/null";
    let mut reading = command(&[
        "locality",
        "--stats-file",
        "counts",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let output = reading.arg(trace).current_dir(&folder.0).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    let told = fs::read_to_string(folder.file("counts")).unwrap();
    let packets = format!(": gathered {}, buffers ", truth["packets"]);
    assert!(told.contains(&packets), "{told}");
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = Folder::new("locality-refused");
    let refused = |mut command: Command, part: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains(part) && said.contains("\nhint: "), "{said}");
    };
    let mut nowhere = command(&["locality", "--", "true"]);
    nowhere.env("FLOWGAUGE_PCAP_SHIM", "/nowhere.so");
    refused(nowhere, "FLOWGAUGE_PCAP_SHIM: no such file /nowhere.so");
    let library = folder.file("a b.so");
    fs::write(&library, "").unwrap();
    let mut spaces = command(&["locality", "--", "true"]);
    spaces.env("FLOWGAUGE_PCAP_SHIM", &library);
    refused(spaces, "spaces or colons");
    let place = folder.0.to_str().unwrap();
    let is_folder = format!("{place}: a directory");
    refused(command(&["locality", "--", place]), &is_folder);
    let filters = folder.file("filters");
    fs::write(&filters, "tcp\n\ntcp prot 80\n").unwrap();
    let path = filters.to_str().unwrap();
    let third = format!("{path}:3: bad filter \"tcp prot 80\"");
    let given = ["locality", "--filters", path, "--", "true"];
    refused(command(&given), &third);
    let (source, program) = (folder.file("fixed.c"), folder.file("fixed"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let made = Command::new("gcc")
        .arg("-static")
        .args(["-o".as_ref(), program.as_os_str(), source.as_os_str()])
        .status();
    assert!(made.unwrap().success());
    refused(
        command(&["locality", "--", program.to_str().unwrap()]),
        "is statically linked",
    );
}
