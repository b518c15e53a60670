//! MAPI's functions on the command line, over files that the command reads and writes.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use flowgauge_generate::{Config, Preset, generate};

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowgauge");

/// A sensor.
pub(crate) struct Sensor(pub(crate) Child);

impl Sensor {
    fn start(folder: &Path) -> Sensor {
        Sensor::with(folder, "")
    }

    /// With further tables in its configuration.
    pub(crate) fn with(folder: &Path, tables: &str) -> Sensor {
        let socket = folder.join("sock");
        let text = format!("socket = {socket:?}\nuser = \"root\"\n{tables}");
        fs::write(folder.join("sensor.toml"), text).unwrap();
        let mut command = Command::new(PROGRAM);
        command
            .args(["sensor", "run", "--config"])
            .arg(folder.join("sensor.toml"));
        let sensor = Sensor(
            command
                .stderr(File::create(folder.join("said")).unwrap())
                .spawn()
                .unwrap(),
        );
        for _ in 0..1000 {
            if fs::read_to_string(folder.join("said"))
                .unwrap()
                .contains("sensor at")
            {
                return sensor;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{}", fs::read_to_string(folder.join("said")).unwrap());
    }
}

impl Drop for Sensor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs functions over a file, in a folder; what is printed, and the exit code.
fn mapi(folder: &Path, file: &str, functions: &str) -> (String, Option<i32>) {
    let mut command = Command::new("timeout");
    command.args([
        "60", PROGRAM, "mapi", "--socket", "sock", "-r", file, functions,
    ]);
    let ran = command.current_dir(folder).output().unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    (
        String::from_utf8_lossy(&said).into_owned(),
        ran.status.code(),
    )
}

/// The number that a function is followed by.
fn number(said: &str, function: &str) -> u64 {
    let line = said.lines().find(|line| line.starts_with(function));
    let words = line
        .unwrap_or_else(|| panic!("{function} in {said}"))
        .split(' ');
    words.filter_map(|word| word.parse().ok()).next().unwrap()
}

#[test]
fn functions_are_listed_with_what_they_take() {
    let said = |arguments: &[&str]| {
        let ran = Command::new(PROGRAM).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let list = said(&["mapi", "--functions"]);
    for function in flowgauge_mapi::FUNCTIONS {
        let mut lines = list.lines();
        let named = |line: &&str| {
            let name = line.trim_start().split('(').next();
            name == Some(function.name)
        };
        let line = lines
            .find(named)
            .unwrap_or_else(|| panic!("{}", function.name));
        let arguments = function.arguments.chars().filter(|it| *it != 'r').count();
        assert_eq!(line.matches(": ").count(), arguments, "{line}");
        assert_eq!(lines.next().unwrap().trim(), function.description);
    }
    // Defaults are those of the component.
    let sample: serde_json::Value =
        serde_json::from_str(&said(&["stack", "list", "sample", "--json"])).unwrap();
    let options = sample["options"].as_array().unwrap();
    let mode = options.iter().find(|it| it["name"] == "mode").unwrap();
    let mode = mode["default"].as_str().unwrap();
    for line in [
        &format!("  SAMPLE(value: number, [mode: number = {mode}])\n"),
        "  BUCKET(of: function, interval: time, [reset: 0 or 1 = ",
        "  PKTINFO([info: number = 0])\n",
    ] {
        assert!(list.contains(line), "{line} in {list}");
    }
}

#[test]
fn equal_functions_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut config = Config::new(Preset::Mix).with_packets(3_000);
    config.duration = Duration::from_secs(2);
    generate(&config, File::create(folder.join("mix.pcap")).unwrap()).unwrap();
    let _sensor = Sensor::start(folder);
    let functions = "PKT_COUNTER BPF_FILTER(\"udp\") PKT_COUNTER BYTE_COUNTER";
    let (said, code) = mapi(folder, "mix.pcap", functions);
    assert_eq!(code, Some(0), "{said}");
    let [all, udp] = ["PKT_COUNTER#1: ", "PKT_COUNTER#3: "].map(|name| number(&said, name));
    assert!(udp > 0 && udp < all, "{said}");
    assert!(number(&said, "BYTE_COUNTER: ") > 40 * udp, "{said}");
}

#[test]
fn functions_read_and_write_files_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut config = Config::new(Preset::Mix).with_packets(3_000);
    config.duration = Duration::from_secs(2);
    generate(&config, File::create(folder.join("mix.pcap")).unwrap()).unwrap();
    let _sensor = Sensor::start(folder);
    let functions = "BPF_FILTER(\"udp port 53\") PKT_COUNTER TO_FILE(MFF_PCAP, \"dns.pcap\", 0) \
                     RES2FILE(\"1\", \"2\", \"packets\", \"count.txt\", \"-1\")";
    let (said, code) = mapi(folder, "mix.pcap", functions);
    assert_eq!(code, Some(0), "{said}");
    let count = number(&said, "PKT_COUNTER");
    assert!(count > 10 && number(&said, "TO_FILE") == count, "{said}");
    assert_eq!(
        fs::read_to_string(folder.join("count.txt")).unwrap(),
        format!("packets\n{count} \n")
    );
    let (said, _) = mapi(
        folder,
        "dns.pcap",
        "PKT_COUNTER FLOW_REPORT(\"IPFIX\", \"file:dns.ipfix\")",
    );
    assert_eq!(number(&said, "PKT_COUNTER"), count, "{said}");
    assert!(
        number(&said, "FLOW_REPORT") > 10
            && folder.join("dns.ipfix").metadata().unwrap().len() > 500
    );
    for (file, functions, what) in [
        ("mix.pcap", "TO_FILE(MFF_PCAP, \"no/where\", 0)", "6155"),
        ("mix.pcap", "ANONYMIZE(\"\")", "7001"),
        // Said of the function, and with the number that programs get.
        (
            "mix.pcap",
            "PKT_COUNTER BPF_FILTER(\"tcp prot 80\")",
            "error: BPF_FILTER: expression: ",
        ),
        (
            "mix.pcap",
            "PKT_COUNTER BPF_FILTER(\"tcp prot 80\")",
            "1025",
        ),
        ("mix.pcap", "STR_SEARCH(\"abc\", 0, 2)", "3504"),
        ("mix.pcap", "TOP(0, TOPX_IP, TOPX_IP_SRCIP)", "7001"),
        ("nothing.pcap", "PKT_COUNTER", "nothing.pcap"),
        ("sensor.toml", "PKT_COUNTER", "cannot be read"),
    ] {
        let (said, code) = mapi(folder, file, functions);
        assert!(
            code == Some(2) && said.contains(what),
            "{functions}: {code:?} {said}"
        );
    }
}

#[test]
fn a_device_that_is_not_there_has_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let _sensor = Sensor::with(folder.path(), "");
    let mut command = Command::new("timeout");
    command.args([
        "60",
        PROGRAM,
        "mapi",
        "--socket",
        "sock",
        "-d",
        "nix",
        "PKT_COUNTER",
    ]);
    let ran = command.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(
        ran.status.code() == Some(2) && said.contains("no device \"nix\""),
        "{said}"
    );
    assert!(said.contains("(MAPI's error 3200)"), "{said}");
}
