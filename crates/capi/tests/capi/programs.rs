//! C programs that use the library rightly and wrongly.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{self, assert_success, compile, has, here, limited, run, scratch, skip, text};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stream::engine::EngineConfig;

const OPTIONS: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// A capture with a bit of everything.
fn capture(folder: &Path) -> PathBuf {
    let path = folder.join("zoo.pcap");
    let config = Config::new(Preset::Zoo).with_flows(60);
    let file = fs::File::create(&path).expect("the scratch folder is writable");
    generate(&config, file).expect("a trace is written");
    path
}

/// Compiles `tests/c/NAME.c` and runs it over a capture, as it is, under valgrind, and with ASan.
fn check(name: &str) {
    if !has("gcc", name) {
        return;
    }
    let folder = scratch(name);
    let capture = capture(&folder);
    let source = here().join(format!("tests/c/{name}.c"));
    let program = folder.join(name);
    compile(
        "gcc",
        &[&OPTIONS[..], &["-pthread"]].concat(),
        &source,
        &program,
    );
    assert_success(&run(limited(&program).arg(&capture)));

    let sanitized = folder.join(format!("{name}-asan"));
    let options = [
        &OPTIONS[..],
        &[
            "-pthread",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover",
        ],
    ];
    compile("gcc", &options.concat(), &source, &sanitized);
    let ran = run(limited(&sanitized).arg(&capture));
    if text(&ran.stderr).contains("LeakSanitizer has encountered a fatal error") {
        // Where processes may not be traced only leaks go unseen.
        let again = run(limited(&sanitized)
            .arg(&capture)
            .env("ASAN_OPTIONS", "detect_leaks=0"));
        assert_success(&again);
    } else {
        assert_success(&ran);
    }

    if has("valgrind", name) {
        let mut command = limited("valgrind");
        command.args(["-q", "--error-exitcode=99", "--leak-check=full"]);
        // What is "possibly" lost is std's note of the main thread, kept by a pointer into its middle.
        command.args([
            "--show-leak-kinds=definite,indirect",
            "--errors-for-leak-kinds=definite,indirect",
        ]);
        let ran = run(command.arg(&program).arg(&capture));
        assert_success(&ran);
        assert_eq!(text(&ran.stderr), "");
    }
}

#[test]
fn misuse_is_answered_by_errors() {
    check("misuse");
}

#[test]
fn several_captures_in_one_process() {
    check("several");
}

#[test]
fn worker_threads_share_the_streams() {
    check("workers");
}

#[test]
fn calls_from_other_threads_are_answered() {
    check("threads");
}

#[test]
fn processes_fork() {
    check("forks");
}

#[test]
fn packets_are_delivered_with_their_chunk() {
    check("delivery");
}

#[test]
fn streams_are_controlled() {
    check("control");
}

#[test]
fn what_is_wanted_changes_while_the_capture_runs() {
    check("changes");
}

/// Layouts and numbers that Rust and C have to agree on are compared by the unit tests of the crate; here, that a
/// program made of C++ links, too.
#[test]
fn a_program_in_cxx() {
    if !has("g++", "a_program_in_cxx") {
        return;
    }
    let folder = scratch("cxx");
    let source = folder.join("program.cc");
    fs::write(
        &source,
        r#"
        #include <scap.h>
        #include <cstdio>
        static unsigned long bytes;
        static void count(stream_t *stream) { bytes += stream->data_len - stream->repeated; }
        int main(int, char **argv)
        {
            scap_t *sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_WAIT, 0);
            if (sc == nullptr || scap_dispatch_data(sc, count) != SCAP_OK || scap_start_capture(sc) != SCAP_OK)
                return 1;
            scap_close(sc);
            std::printf("%lu\n", bytes);
        }
        "#,
    )
    .unwrap();
    let program = folder.join("program");
    compile(
        "g++",
        &["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"],
        &source,
        &program,
    );
    let capture = capture(&folder);
    let ran = run(limited(&program).arg(&capture));
    assert_success(&ran);
    let bytes: u64 = text(&ran.stdout).trim().parse().unwrap();
    assert!(bytes > 10_000, "{bytes}");
}

/// The programs in the documentation compile without a warning, and run.
#[test]
fn the_documentations_programs_run() {
    if !has("gcc", "the_documentations_programs_run") {
        return;
    }
    let folder = scratch("documentation");
    let capture = capture(&folder);
    for page in ["scap", "libnids"] {
        let path = here().join(format!("../../docs/{page}.md"));
        let page_text = fs::read_to_string(path).expect("a page of the documentation");
        let (_, rest) = page_text.split_once("```c\n").expect("a program");
        let (code, _) = rest.split_once("```").expect("its end");
        let source = folder.join(format!("{page}.c"));
        fs::write(&source, code).expect("the scratch folder is writable");
        let program = folder.join(page);
        compile("gcc", &OPTIONS, &source, &program);
        let ran = run(limited(&program).arg(&capture));
        assert_success(&ran);
        assert!(ran.stdout.len() > 1000, "{page}");
    }
}

/// The paper's first listing, as it stands, on an interface that is called eth0: in a network namespace of its own.
#[test]
fn the_first_listing_captures_on_eth0() {
    const TEST: &str = "the_first_listing_captures_on_eth0";
    if !has("gcc", TEST) || !has("bash", TEST) || !has("unshare", TEST) {
        return;
    }
    let mut probe = limited("unshare");
    let probed = run(probe.args(["-n", "ip", "link", "add", "eth0", "type", "veth"]));
    if !probed.status.success() {
        return skip(
            TEST,
            "no network namespace with an interface can be made here",
        );
    }
    let program = scratch("eth0").join("flow_export");
    let listing = here().join("tests/listings/flow_export.c");
    compile("gcc", &OPTIONS, &listing, &program);
    let mut command = limited("unshare");
    let ran = run(command
        .arg("-n")
        .arg(here().join("tests/c/eth0.sh"))
        .arg(&program));
    assert_success(&ran);
    let said = text(&ran.stdout);
    let exported = said.lines().filter(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        matches!(
            words.as_slice(),
            ["198.51.100.1", _, "198.51.100.2", "9999", bytes, packets, _]
                if bytes.parse() == packets.parse().map(|packets: u64| packets * 6)
        )
    });
    assert!(exported.count() > 100, "{said}");
}

/// An interrupted program ends its capture from the signal handler.
#[test]
fn a_signal_handler_stops_a_capture() {
    if !has("gcc", "a_signal_handler_stops_a_capture") {
        return;
    }
    let folder = scratch("signal");
    let program = folder.join("signal");
    compile("gcc", &OPTIONS, &here().join("tests/c/signal.c"), &program);
    let capture = capture(&folder);
    // The program raises the signal itself, in its first data callback.
    let ran = run(limited(&program).arg(&capture));
    assert_success(&ran);
}

/// An example that is interrupted while it captures prints what it has found until then.
#[test]
fn an_interrupted_example_loses_nothing() {
    const TEST: &str = "an_interrupted_example_loses_nothing";
    if !has("gcc", TEST) || !has("bash", TEST) || !has("unshare", TEST) {
        return;
    }
    let mut probe = limited("unshare");
    let probed = run(probe.args(["-n", "ip", "link", "add", "eth0", "type", "veth"]));
    if !probed.status.success() {
        return skip(
            TEST,
            "no network namespace with an interface can be made here",
        );
    }
    let folder = scratch("interrupted");
    for name in ["flow_export", "packets"] {
        let program = folder.join(name);
        let source = support::examples().join(format!("{name}.c"));
        compile("gcc", &OPTIONS, &source, &program);
        let mut command = limited("unshare");
        let ran = run(command
            .arg("-n")
            .arg(here().join("tests/c/interrupt.sh"))
            .arg(&program));
        assert_success(&ran);
        let said = text(&ran.stdout);
        let streams = said.lines().filter(|line| line.contains(" 9999 17 "));
        assert!(streams.count() > 100, "{name}: {said}");
    }
}

/// Connections count into the memory, which holds as many of them as it is large: [`EngineConfig::CONNECTION_CHARGE`] each, and a
/// sixteenth for what else waits. In a twelfth less of it the longest idle ones go.
#[test]
fn connections_at_once_are_bounded_by_the_memory_alone() {
    const COUNT: u64 = 60_000;
    let name = "connections";
    if !has("gcc", name) {
        return;
    }
    let program = scratch(name).join(name);
    let source = here().join("tests/c/connections.c");
    let options = ["-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror"];
    compile("gcc", &options, &source, &program);
    let enough = COUNT * EngineConfig::CONNECTION_CHARGE / 15 * 16 + (1 << 20);
    for (memory, is_enough) in [(enough, true), (enough / 12 * 11, false)] {
        let mut command = limited(&program);
        let ran = run(command.args([COUNT, memory].map(|number| number.to_string())));
        assert_success(&ran);
        let said = text(&ran.stdout);
        assert_eq!(said.contains("; 0 streams evicted"), is_enough, "{said}");
        // As docs/scap.md says.
        assert!(!is_enough || said.contains("738 of memory_size"), "{said}");
    }
}
