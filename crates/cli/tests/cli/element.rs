//! The measurement element as a process: killed, and on a full disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::corpora::skipped;
use crate::wait::wait_until;

/// Where the file system is, for the one that runs there.
const FOLDER: &str = "FULL_DISK_OF_ELEMENT";

/// A sensor with a file, and an element without TLS beside it.
struct Place {
    folder: PathBuf,
    processes: Vec<Child>,
    address: String,
    starts: AtomicUsize,
}

impl Drop for Place {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Place {
    fn new(folder: &Path) -> Place {
        let mut place = Place {
            folder: folder.to_owned(),
            processes: Vec::new(),
            address: String::new(),
            starts: AtomicUsize::new(0),
        };
        let made = place
            .flowgauge("generate small -q --flows 300 -w small.pcap")
            .status();
        assert!(made.unwrap().success());
        let shown = folder.display();
        let sensor = format!(
            "socket = \"{shown}/sock\"\nuser = \"root\"\n[devices.eth0]\nfiles = [\"{shown}/small.pcap\"]\nhold = true\n"
        );
        fs::write(folder.join("sensor.toml"), sensor).unwrap();
        fs::create_dir_all(folder.join("small")).unwrap();
        fs::create_dir_all(folder.join("results")).unwrap();
        let element = format!(
            "listen = \"127.0.0.1:0\"\nplain = true\nsocket = \"{shown}/sock\"\ndatabase = \"{shown}/small/element.db\"\n\
             files = \"{shown}/results\"\n[anonymous]\nadmin = true\npackets = \"headers\"\n"
        );
        fs::write(folder.join("element.toml"), element).unwrap();
        place.start("sensor run --config sensor.toml", "sensor at ");
        let checked = place
            .flowgauge("element check --config element.toml")
            .output()
            .unwrap();
        assert!(checked.status.success());
        place.element();
        place
    }

    fn flowgauge(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
        command
            .current_dir(&self.folder)
            .args(line.split(' '))
            .stdin(Stdio::null());
        command
    }

    /// Starts a process, and waits for what it says. Returns the rest of that line.
    fn start(&mut self, line: &str, word: &str) -> String {
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.join(format!("log{number}"));
        let said = fs::File::create(&log).unwrap();
        let process = self
            .flowgauge(line)
            .stdout(Stdio::null())
            .stderr(said)
            .spawn();
        self.processes.push(process.unwrap());
        let mut found = None;
        wait_until(line, || {
            let text = fs::read_to_string(&log).unwrap();
            let rest = text
                .split_once(word)
                .and_then(|(_, rest)| rest.split_once('\n'));
            found = rest.map(|(rest, _)| rest.to_owned());
            found.is_some()
        });
        found.unwrap()
    }

    fn element(&mut self) {
        self.address = self.start("element --config element.toml", "element at ");
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-X",
            method,
            "-w",
            "\n%{http_code}",
            "-H",
            "Content-Type: application/json",
        ]);
        if !body.is_null() {
            curl.args(["-d", &body.to_string()]);
        }
        let output = curl
            .arg(format!("http://{}/v1{path}", self.address))
            .output()
            .unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        let (body, status) = answer.rsplit_once('\n').unwrap();
        let body = serde_json::from_str(body).unwrap_or_default();
        (status.parse().unwrap(), body)
    }

    /// Opens a session. Returns its path.
    fn open(&self, period: &Value) -> String {
        let order = json!({"source": "here", "destination": "here", "metric": "bandwidth", "period": period,
                           "publish": ["file:here.json"]});
        let (status, session) = self.ask("POST", "/sessions", &order);
        assert_eq!(status, 200, "{session}");
        format!("/sessions/{}", session["id"].as_str().unwrap())
    }

    fn session(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).1
    }
}

fn domain() -> Value {
    json!({"sensors": [{"name": "own", "device": "eth0"}]})
}

#[test]
fn a_killed_element_goes_on() {
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("no curl");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::new(folder.path());
    assert_eq!(place.ask("PUT", "/domains/here", &domain()).0, 200);
    // A page of somebody else's, whose name leads here.
    let mut curl = Command::new("curl");
    let curl = curl.args(["-s", "-H", "Host: pages.example.org"]);
    let refused = curl
        .arg(format!("http://{}/v1/domains", place.address))
        .output();
    let refused = String::from_utf8(refused.unwrap().stdout).unwrap();
    assert!(
        refused.contains("wrong host name for this element"),
        "{refused}"
    );
    let periodic = place.open(&json!({"periodic": {"every": 1, "times": 4}}));
    let long = place.open(&json!({"one_shot": {"seconds": 600}}));
    wait_until("two are made", || {
        place.session(&periodic)["made"].as_u64() >= Some(2)
    });
    // SIGKILL.
    let mut element = place.processes.pop().unwrap();
    element.kill().unwrap();
    element.wait().unwrap();
    place.element();
    wait_until("all are made", || {
        place.session(&periodic)["state"] != "running"
    });
    let periodic = place.session(&periodic);
    let made = periodic["results"].as_array().unwrap().len();
    // The one under way was lost, or counted before it was killed.
    assert!((4..=5).contains(&made), "{periodic:#}");
    assert_eq!(
        (&periodic["state"], &periodic["made"]),
        (&json!("done"), &json!(4))
    );
    assert_eq!(place.session(&long)["state"], "running");
    let started = place
        .flowgauge("sensor start eth0 --socket sock")
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    wait_until("the file is over", || {
        place.session(&long)["state"] != "running"
    });
    let packets = place
        .flowgauge("packets -q -r small.pcap")
        .output()
        .unwrap()
        .stdout;
    let packets = packets.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(
        place.session(&long)["results"][0]["rows"][0]["packets"],
        packets
    );
}

#[test]
fn a_full_disk_is_told() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return on_it(&PathBuf::from(folder));
    }
    if Command::new("curl").arg("--version").output().is_err() {
        return skipped("no curl");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("small")).unwrap();
    let line = format!(
        "mount -t tmpfs -o size=4m tmpfs \"${FOLDER}/small\" || exit 77; \
         exec \"$0\" --exact element::a_full_disk_is_told"
    );
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", &line])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .output();
    let output = match ran {
        Ok(output) if output.status.code() != Some(77) => output,
        _ => return skipped("no file system can be mounted here"),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("unshare failed") {
        return skipped(said);
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{said}");
    assert!(printed.contains("1 passed"), "{printed}");
}

fn on_it(folder: &Path) {
    let place = Place::new(folder);
    assert_eq!(place.ask("PUT", "/domains/here", &domain()).0, 200);
    let session = place.open(&json!({"one_shot": {"seconds": 1}}));
    let filler = folder.join("small/filler");
    // Until there is room for nothing.
    assert!(fs::write(&filler, vec![0; 8 << 20]).is_err());
    let results = folder.join("results/@anonymous/here.json");
    wait_until("it is published", || {
        fs::metadata(&results).is_ok_and(|about| about.len() > 0)
    });
    let order = json!({"source": "here", "destination": "here", "metric": "loss", "period": {"one_shot": {}}});
    let (status, refused) = place.ask("POST", "/sessions", &order);
    assert_eq!(status, 500);
    assert!(
        refused["error"].as_str().unwrap().contains("disk is full"),
        "{refused}"
    );
    // What can be read still is.
    assert_eq!(
        place.ask("GET", "/domains", &Value::Null).1[0]["name"],
        "here"
    );
    fs::remove_file(&filler).unwrap();
    wait_until("there is room to say it", || {
        place.session(&session)["state"] != "running"
    });
    let session = place.session(&session);
    let error = session["error"].as_str().unwrap();
    assert!(error.contains("could not be stored"), "{session}");
    assert_eq!(session["state"], "failed");
}
