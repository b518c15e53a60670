//! Credentials from the command line: issued, narrowed, shown, used at a sensor, and revoked.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use flowgauge_generate::{Config, Preset, generate};

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowgauge");
const FLOWS: &[&str] = &["sensor", "flow", "-d", "mix", "-c", "1", "--every", "10ms"];

struct Folder(tempfile::TempDir);

impl Folder {
    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.0.path());
        command.env("FLOWGAUGE_KEYS", self.at("keys"));
        command.output().unwrap()
    }

    /// Standard output of what succeeds.
    fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and messages of what does not.
    fn bad(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), errors)
    }
}

/// Ends the sensor, however the test ends.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_credential_is_issued_narrowed_used_and_revoked() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let lines = folder.good(&["credential", "key", "ops"]);
    assert!(
        lines.starts_with("[issuers.ops]\nkey = \"ed25519/"),
        "{lines}"
    );
    assert_eq!(mode(&folder.at("keys/ops.issuer")), 0o600);
    let again = folder.bad(&["credential", "key", "ops"]);
    assert_eq!(again.0, 2, "{}", again.1);
    let issued = [
        "credential",
        "issue",
        "--issuer",
        "ops",
        "--device",
        "mix",
        "--packets",
        "headers",
        "-w",
        "wide.cred",
    ];
    folder.good(&issued);
    assert_eq!(mode(&folder.at("wide.cred")), 0o600);
    let again = folder.bad(&issued);
    assert!(
        again.0 == 2 && again.1.contains("-w names a new file"),
        "{}",
        again.1
    );
    folder.good(&[
        "credential",
        "attenuate",
        "wide.cred",
        "--function",
        "PKT_COUNTER",
        "--function",
        "top(count<=10)",
        "--expires",
        "2100-01-01",
        "-w",
        "narrow.cred",
    ]);
    let shown = folder.good(&["credential", "show", "narrow.cred"]);
    let ids: Vec<&str> = shown
        .lines()
        .filter_map(|it| it.trim().strip_prefix("identifier "))
        .collect();
    let said: Vec<&str> = shown
        .lines()
        .filter(|it| !it.contains("identifier"))
        .collect();
    let before = said[1].split_once("only before 20");
    assert!(before.is_some(), "{shown}");
    assert_eq!(
        [&said[..1], &said[2..]].concat(),
        [
            "block 0, of the issuer",
            "  only on mix",
            "  packets up to the transport header",
            "block 1",
            "  only before 2100-01-01T00:00:00Z",
            "  only the components count, top",
            "  count of top at most 10",
        ]
    );
    let datalog = folder.good(&["credential", "show", "--datalog", "narrow.cred"]);
    let check = "  reject if argument(\"top\", \"count\", $value), $value > 10;";
    assert!(datalog.lines().any(|line| line == check), "{datalog}");
    let good = folder.good(&["credential", "verify", "narrow.cred", "--issuer", "ops"]);
    assert!(
        good.starts_with("narrow.cred: issued by ops, until 20"),
        "{good}"
    );
    at_a_sensor(&folder, &lines, ids[1]);
}

/// What the sensor says of them.
fn at_a_sensor(folder: &Folder, issuer: &str, id: &str) {
    let trace = Config::new(Preset::Mix).with_packets(2000);
    generate(&trace, fs::File::create(folder.at("mix.pcap")).unwrap()).unwrap();
    fs::write(folder.at("revoked"), "").unwrap();
    let at = folder.0.path().display();
    let config = format!(
        "socket = \"{at}/sock\"\nuser = \"root\"\nrevoked = \"{at}/revoked\"\n\
         [devices.mix]\nfiles = [\"{at}/mix.pcap\"]\nhold = true\n{issuer}packets = \"payload\"\n"
    );
    fs::write(folder.at("sensor.toml"), config).unwrap();
    let sensor = Command::new(PROGRAM)
        .args(["sensor", "run", "--config"])
        .arg(folder.at("sensor.toml"))
        .stderr(Stdio::null())
        .spawn();
    let _sensor = Ending(sensor.unwrap());
    let patience = Instant::now() + Duration::from_secs(60);
    while folder
        .run(&["sensor", "status", "--socket", "sock"])
        .status
        .code()
        != Some(0)
    {
        assert!(Instant::now() < patience, "the sensor does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let flow = |credential: &'static str, stack: &'static str| {
        let options = ["--socket", "sock", "--credential", credential, stack];
        [FLOWS, &options].concat()
    };
    let counted = folder.good(&flow(
        "narrow.cred",
        "top { by = ip.src, count = 10 } count",
    ));
    assert!(counted.contains("count: items so far: 0"), "{counted}");
    let refused = folder.bad(&flow("narrow.cred", "top { by = ip.src, count = 11 }"));
    let expected = "error: top with count = 11 is not allowed: count of top at most 10 (block 1 of the credential)\nhint: ";
    assert!(
        refused.0 == 2 && refused.1.contains(expected),
        "{refused:?}"
    );
    let explained = folder.run(&[
        "sensor",
        "explain",
        "--socket",
        "sock",
        "--credential",
        "narrow.cred",
        "-d",
        "mix",
        "bytes",
    ]);
    assert_eq!(explained.status.code(), Some(1));
    let explained = String::from_utf8(explained.stdout).unwrap();
    let last: Vec<&str> = explained
        .lines()
        .filter(|line| !line.starts_with("yes"))
        .collect();
    assert_eq!(
        last,
        [
            "no   block 1 of the credential: only the components count, top: not bytes [reject if component($component), !{\"count\", \"top\"}.contains($component)]",
            "refused: bytes is not allowed: only the components count, top (block 1 of the credential)",
        ]
    );
    folder.good(&[
        "credential",
        "revoke",
        "narrow.cred",
        "--revoked",
        "revoked",
    ]);
    assert_eq!(
        fs::read_to_string(folder.at("revoked")).unwrap(),
        format!("{id}\n")
    );
    // A line that has no end stays one, and no file is made that the sensor would not take.
    let other = "ab".repeat(64);
    let revoke = ["credential", "revoke", &other, "--revoked", "others"];
    for (before, after) in [("", ""), ("# note", "# note\n"), (id, &*format!("{id}\n"))] {
        fs::write(folder.at("others"), before).unwrap();
        folder.good(&revoke);
        let text = fs::read_to_string(folder.at("others")).unwrap();
        assert_eq!(text, format!("{after}{other}\n"));
    }
    fs::write(folder.at("others"), "garbage\n").unwrap();
    let refused = folder.bad(&revoke);
    assert!(
        refused.0 == 2 && refused.1.contains("line 1"),
        "{refused:?}"
    );
    assert!(
        folder
            .bad(&["credential", "revoke", &other, "--revoked", "/dev/zero"])
            .0
            == 2
    );
    let verify = [
        "credential",
        "verify",
        "narrow.cred",
        "--issuer",
        "ops",
        "--revoked",
        "revoked",
    ];
    let revoked = folder.bad(&verify);
    assert!(
        revoked.0 == 1 && revoked.1.contains("block 1 was revoked"),
        "{revoked:?}"
    );
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        // One that is open ends, the next is not opened.
        let output = folder.run(&flow("narrow.cred", "count"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let was_open = ["the flow has ended", "the flow is no longer allowed"];
        let was_open = was_open.iter().any(|it| errors.contains(it));
        if output.status.code() == Some(2) && !was_open {
            assert!(
                errors.contains("block 1 of the credential was revoked"),
                "{errors}"
            );
            break;
        }
        assert!(Instant::now() < patience, "{errors}");
    }
    folder.good(&flow("wide.cred", "count"));
}

#[test]
fn what_cannot_be_a_credential_is_said() {
    let folder = Folder(tempfile::tempdir().unwrap());
    folder.good(&["credential", "key", "ops"]);
    folder.good(&["credential", "key", "other"]);
    folder.good(&[
        "credential",
        "issue",
        "--issuer",
        "ops",
        "--expires",
        "never",
        "-w",
        "a.cred",
    ]);
    fs::write(folder.at("bad.cred"), "AAAA\n").unwrap();
    fs::set_permissions(folder.at("bad.cred"), fs::Permissions::from_mode(0o600)).unwrap();
    for (arguments, code, message) in [
        (&["issue", "--issuer", "nobody"][..], 2, "nobody.issuer"),
        (&["issue", "--issuer", "../ops"], 2, "is not a name"),
        (
            &["issue", "--issuer", "ops", "--function", "cuont"],
            2,
            "unknown component \"cuont\"",
        ),
        (
            &["issue", "--issuer", "ops", "--function", "top(cuont<=1)"],
            2,
            "no option \"cuont\"",
        ),
        (
            &["issue", "--issuer", "ops", "--packets", "all"],
            2,
            "none, headers or payload",
        ),
        (
            &["issue", "--issuer", "ops", "--expires", "soon"],
            2,
            "\"soon\" is not a date",
        ),
        (
            &["issue", "--issuer", "ops", "--expires", "2020-01-01"],
            2,
            "2020-01-01 has passed",
        ),
        (
            &["attenuate", "a.cred", "--filter", "tpc port 80"],
            2,
            "tpc port 80",
        ),
        (
            &["attenuate", "a.cred", "--most-flows", "0"],
            2,
            "most-flows",
        ),
        (
            &["issue", "--issuer", "ops", "--time", "always"],
            2,
            "mon-fri",
        ),
        (
            &["issue", "--issuer", "ops", "--check", "allow if true"],
            2,
            "check if device",
        ),
        (
            &["issue", "--issuer", "ops", "--holder", "alice"],
            2,
            "alice.crt",
        ),
        (&["attenuate", "a.cred"], 2, "no restriction given"),
        (&["show", "bad.cred"], 2, "this is not a credential"),
        (&["show", "none.cred"], 2, "none.cred"),
        (
            &["verify", "a.cred", "--issuer", "other"],
            1,
            "not issued by other",
        ),
        (
            &["revoke", "a.cred", "--revoked", "r", "--block", "7"],
            2,
            "no block 7",
        ),
    ] {
        let (found, errors) = folder.bad(&[&["credential"], arguments].concat());
        assert!(
            found == code && errors.contains(message),
            "{arguments:?}: {found} {errors}"
        );
        assert!(
            errors.contains("hint: ") || code == 1,
            "{arguments:?}: {errors}"
        );
    }
    fs::set_permissions(folder.at("a.cred"), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, errors) = folder.bad(&["credential", "show", "a.cred"]);
    assert!(code == 2 && errors.contains("chmod 600"), "{errors}");
}
