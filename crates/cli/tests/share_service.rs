//! The process that captures for others, as it is started by hand.

#![allow(clippy::unwrap_used)] // helpers of tests, too

use std::process::Command;

/// An interface of a network namespace goes away while it is shared: that is a failure, and says so.
#[test]
#[allow(clippy::print_stderr)] // Why it is skipped.
fn an_interface_that_goes_away_ends_it_with_a_failure() {
    let script = "ip link add ga type veth peer name gb && ip link set ga up && ip link set gb up || exit 77; \
                  \"$0\" share-service --listen -i ga 2>said & \
                  until grep -q sharing said 2>/dev/null; do sleep 0.05; done; sleep 0.3; \
                  ip link del ga; wait $!; code=$?; cat said; exit $code";
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new("timeout")
        .args(["60", "unshare", "--net", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_flowgauge"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    if ran.status.code() == Some(77)
        || String::from_utf8_lossy(&ran.stderr).contains("unshare failed")
    {
        return eprintln!("skipped: no network namespace with an interface can be made here");
    }
    assert_eq!(ran.status.code(), Some(1), "{said}");
    for part in ["sharing ga", " received, ", "error: ", "hint: "] {
        assert!(said.contains(part), "{part} in {said}");
    }
}
