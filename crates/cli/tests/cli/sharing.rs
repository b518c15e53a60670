//! A sensor for programs with libscap alone, as it is started by hand and by programs.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use flowgauge_runtime::shared::{self, Application, Client, Error, ServiceProgram};

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowgauge");

/// Runs a script with the program as `$0`, in a network namespace of its own; what it printed, and its exit
/// code. `None` where no namespace can be made, or the script ended with 77.
fn in_namespace(folder: &Path, test: &str, script: &str) -> Option<(String, Option<i32>)> {
    let ran = Command::new("timeout")
        .args(["60", "unshare", "--net", "sh", "-c", script, PROGRAM])
        .current_dir(folder)
        .output()
        .unwrap();
    let failed = String::from_utf8_lossy(&ran.stderr).contains("unshare failed");
    if ran.status.code() == Some(77) || failed {
        let why = "no network namespace with an interface can be made here";
        // The harness does not swallow this.
        let line = format!("SKIPPED {test} {why}\n");
        std::io::stderr().lock().write_all(line.as_bytes()).unwrap();
        return None;
    }
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    Some((said, ran.status.code()))
}

/// An interface of a network namespace goes away while it is shared: it may come back.
#[test]
fn it_outlives_its_interface_and_ends_when_it_is_told() {
    let script = "ip link add ga type veth peer name gb && ip link set ga up && ip link set gb up || exit 77; \
                  \"$0\" sensor run -i ga 2>said & \
                  until grep -q sharing said 2>/dev/null; do sleep 0.05; done; \
                  ip link del ga; sleep 0.5; kill -TERM $!; wait $!; code=$?; cat said; exit $code";
    let folder = tempfile::tempdir().unwrap();
    let test = "it_outlives_its_interface_and_ends_when_it_is_told";
    let Some((said, code)) = in_namespace(folder.path(), test, script) else {
        return;
    };
    assert_eq!(code, Some(0), "{said}");
    for part in ["sharing ga", " received, "] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

/// It says that it shares when others can join, not before.
#[test]
fn what_cannot_be_opened_is_not_said_to_be_shared() {
    let ran = Command::new(PROGRAM)
        .args(["sensor", "run", "-i", "fg-nothing"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(
        said.contains("error: ") && said.contains("fg-nothing"),
        "{said}"
    );
    assert!(!said.contains("sharing"), "{said}");
}

/// Whoever starts it hears why it cannot capture: what it prints nobody sees.
#[test]
fn who_starts_it_is_told_what_is_wrong() {
    // A key is made beside the policy.
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("headers.toml");
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/headers.toml");
    std::fs::copy(headers, &policy).unwrap();
    let causes = [
        (
            "FLOWGAUGE_SHARE_GROUP=no-such-group".to_owned(),
            "no-such-group",
        ),
        (
            format!("FLOWGAUGE_ANONYMIZE={}", policy.display()),
            "headers.toml is forced",
        ),
        ("NOTHING=wrong".to_owned(), "fg-missing2"),
    ];
    for (number, (variable, cause)) in causes.into_iter().enumerate() {
        // The one before may still be about to end, and tells whoever comes what it ends of.
        let interface = format!("fg-missing{number}");
        let program = ServiceProgram::Command {
            program: "env".into(),
            arguments: [
                variable.as_str(),
                PROGRAM,
                "sensor",
                "run",
                "--inherited",
                "-i",
            ]
            .map(Into::into)
            .to_vec(),
        };
        let refused = Client::connect(&interface, &Application::default(), &program);
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, Error::Refused { .. }),
            "{variable}: {refused}"
        );
        let told = refused.to_string();
        assert!(told.contains(cause), "{variable}: {told}");
    }
}

#[test]
fn a_second_one_is_told_of_the_first() {
    let _first = shared::listen("fg-twice").unwrap();
    let ran = Command::new(PROGRAM)
        .args(["sensor", "run", "-i", "fg-twice"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("hint: another sensor"), "{said}");
}
