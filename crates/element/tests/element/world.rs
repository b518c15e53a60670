//! Sensors with agents, elements, users with keys, and curl.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_credential::IssuerKey;
use flowgauge_element::Element;
use flowgauge_generate::{Config as Trace, Preset, generate};
use flowgauge_link::KeyFolder;
use flowgauge_sensor::Sensor;
use flowgauge_sensor_agent::Agent;
use flowgauge_sensor_client::Client;
use serde_json::{Value, json};

use crate::skipped::skipped;

pub(crate) const LONG: Duration = Duration::from_secs(90);

/// Who issues credentials.
pub(crate) fn issuer() -> IssuerKey {
    IssuerKey::parse(&format!("ed25519-private/{}", "5a".repeat(32))).unwrap()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A sensor of a file that waits to be read, and its agent.
struct Running {
    is_stopped: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
    socket: PathBuf,
    agent: Agent,
}

/// An answer; equal ones cannot be told apart but by their time.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) text: String,
    headers: Vec<String>,
}

impl PartialEq for Asked {
    fn eq(&self, other: &Asked) -> bool {
        (self.status, &self.text, &self.headers) == (other.status, &other.text, &other.headers)
    }
}

/// A packet as tshark sees it.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) time: f64,
    pub(crate) frame: u64,
    /// Of the IP datagram.
    pub(crate) bytes: u64,
    pub(crate) protocol: &'static str,
    pub(crate) ends: ((String, u64), (String, u64)),
    pub(crate) is_syn: bool,
    pub(crate) is_ack: bool,
    /// The innermost protocol, and the time from a request to this answer.
    pub(crate) spoken: String,
    pub(crate) answered: Option<f64>,
}

pub(crate) struct World {
    folder: tempfile::TempDir,
    sensors: BTreeMap<&'static str, Running>,
    elements: BTreeMap<String, Element>,
    /// Tables of the elements' configuration.
    pub(crate) more: String,
    /// Where the elements' target `collector` is.
    pub(crate) push: String,
    /// Requests and answers, to be compared with the document.
    asked: RefCell<Vec<(String, String, u16, Value)>>,
}

impl World {
    /// Nothing without the programs that ask and count.
    pub(crate) fn new() -> Option<World> {
        for program in ["curl", "tshark"] {
            if Command::new(program).arg("--version").output().is_err() {
                skipped(format!("no {program}"));
                return None;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path().join("keys"));
        keys.create_authority().unwrap();
        let here = ["127.0.0.1".to_owned()];
        for name in ["sensor", "element-a", "element-b"] {
            keys.add(name, &here, 1).unwrap();
        }
        for name in ["alice", "bob", "prometheus", "stranger"] {
            keys.add(name, &[], 1).unwrap();
        }
        fs::write(folder.path().join("revoked"), "").unwrap();
        fs::create_dir(folder.path().join("results")).unwrap();
        Some(World {
            folder,
            sensors: BTreeMap::new(),
            elements: BTreeMap::new(),
            more: String::new(),
            push: "http://127.0.0.1:9/".to_owned(),
            asked: RefCell::default(),
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Two captures of the same traffic, of which the second one lacks some packets of TCP that go there, and is a little later: 5 ms there, 3 ms
    /// back. Each is seen by two sensors, the first one by a fifth, too. Returns how many packets are lacking.
    pub(crate) fn two_captures(&mut self) -> u64 {
        let mut bytes = Vec::new();
        generate(&Trace::new(Preset::Web).with_packets(20_000), &mut bytes).unwrap();
        let (header, mut rest) = bytes.split_at(24);
        let ticks = match u32::from_le_bytes(header[..4].try_into().unwrap()) {
            0xa1b2_c3d4 => 1_000_000u64,
            0xa1b2_3c4d => 1_000_000_000,
            magic => panic!("{magic:x}"),
        };
        let (mut later, mut dropped, mut count) = (Vec::new(), 0, 0);
        while !rest.is_empty() {
            let number =
                |at: usize| u64::from(u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()));
            let (time, len) = (number(0) * ticks + number(4), number(8) as usize);
            let packet = &rest[..16 + len];
            rest = &rest[16 + len..];
            let frame = &packet[16..];
            // TCP over IPv4, as it begins everywhere here; the ends of connections stay.
            let is_tcp = frame[12..14] == [8, 0] && frame[23] == 6;
            let is_there = is_tcp && frame[26..30] < frame[30..34];
            let is_middle = is_there && frame[14 + usize::from(frame[14] & 15) * 4 + 13] & 7 == 0;
            count += u64::from(is_middle);
            // What is near where a sensor begins and ends is not compared.
            let is_edge = rest.len().min(bytes.len() - rest.len()) < bytes.len() / 50;
            if is_middle && count % 50 == 0 && !is_edge {
                dropped += 1;
                continue;
            }
            let time = time + if is_there { 5 } else { 0 } * ticks / 1000;
            // Back they pass the second sensor first.
            let time = if is_tcp && !is_there {
                time - 3 * ticks / 1000
            } else {
                time
            };
            later.push((time, packet.to_vec()));
        }
        later.sort_by_key(|(time, _)| *time);
        let mut two = header.to_vec();
        for (time, packet) in later {
            two.extend_from_slice(&((time / ticks) as u32).to_le_bytes());
            two.extend_from_slice(&((time % ticks) as u32).to_le_bytes());
            two.extend_from_slice(&packet[8..]);
        }
        fs::write(self.path("one.pcap"), &bytes).unwrap();
        fs::write(self.path("two.pcap"), two).unwrap();
        for (name, file) in [
            ("one", "one"),
            ("two", "two"),
            ("three", "one"),
            ("four", "two"),
            ("five", "one"),
        ] {
            self.sensor(name, file);
        }
        dropped
    }

    fn sensor(&mut self, name: &'static str, file: &str) {
        let folder = self.folder.path().display();
        let device = format!("[devices.eth0]\nfiles = [\"{folder}/{file}.pcap\"]\nhold = true");
        self.sensor_of(name, &device)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Has the elements' own sensor capture the loopback interface, if that is possible here.
    pub(crate) fn capture_loopback(&mut self) -> Result<(), String> {
        self.sensor_of("own", "[devices.lo]")
    }

    fn sensor_of(&mut self, name: &'static str, device: &str) -> Result<(), String> {
        let folder = self.folder.path().display();
        let config = format!(
            "socket = \"{folder}/{name}.sock\"\nuser = \"root\"\n{device}\n\
             [remotes.element-a]\npackets = \"payload\"\n[remotes.element-b]\npackets = \"headers\"\n"
        );
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, config).unwrap();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let sensor = Sensor::start(&path, Arc::clone(&is_stopped));
        let sensor = Arc::new(sensor.map_err(|error| error.to_string())?);
        let serving = thread::spawn(move || assert!(sensor.run(|_| {}).is_balanced()));
        let keys = KeyFolder::new(self.path("keys"));
        let identity = keys.identity(Some("sensor")).unwrap();
        let socket = self.path(&format!("{name}.sock"));
        let agent = Agent::start(&identity, "127.0.0.1:0", Vec::new(), socket.clone());
        let running = Running {
            is_stopped,
            serving: Some(serving),
            socket,
            agent: agent.unwrap(),
        };
        self.sensors.insert(name, running);
        Ok(())
    }

    /// Starts an element; again with the same database.
    pub(crate) fn element(&mut self, name: &str) {
        let folder = self.folder.path().display();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nkeys = \"{folder}/keys\"\nidentity = \"{name}\"\nsocket = \"{folder}/own.sock\"\ndatabase = \"{folder}/{name}.db\"\n\
             files = \"{folder}/results\"\nrevoked = \"{folder}/revoked\"\n{}[push]\ncollector = \"{}\"\n\
             [users.alice]\nadmin = true\npackets = \"headers\"\n[users.bob]\ndomains = [\"campus\"]\nmost_sessions = 2\n\
             [users.prometheus]\nscrape = true\ndomains = []\n[users.element-a]\nsensors = true\n[users.element-b]\nsensors = true\n\
             [issuers.ops]\nkey = \"{}\"\npackets = \"headers\"\n",
            self.more,
            self.push,
            issuer().public()
        );
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, config).unwrap();
        let element = Element::start(&path).unwrap_or_else(|error| panic!("{error}"));
        self.elements.insert(name.to_owned(), element);
    }

    pub(crate) fn stop_element(&mut self, name: &str) {
        self.elements.remove(name);
    }

    pub(crate) fn address(&self, element: &str) -> String {
        self.elements[element].local_address().to_string()
    }

    pub(crate) fn domain(&self, element: &str, name: &str, sensors: &[&str], networks: Value) {
        let sensors: Vec<Value> = (sensors.iter())
            .map(|sensor| {
                let address = self.sensors[sensor].agent.local_address();
                json!({"name": sensor, "device": format!("{address}:eth0")})
            })
            .collect();
        let body = json!({"sensors": sensors, "networks": networks}).to_string();
        let path = format!("/v1/domains/{name}");
        let answer = self.ask(element, "alice", "PUT", &path, &[], Some(&body));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    pub(crate) fn peer(&self, element: &str, peer: &str, domains: &[&str]) {
        let body = json!({"address": self.address(peer), "domains": domains}).to_string();
        let path = format!("/v1/peers/{peer}");
        let answer = self.ask(element, "alice", "PUT", &path, &[], Some(&body));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    /// Asks as a user with a certificate, or without one.
    pub(crate) fn ask(
        &self,
        element: &str,
        user: &str,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<&str>,
    ) -> Asked {
        let keys = self.path("keys");
        let file = |name: String| keys.join(name).display().to_string();
        let url = format!("https://{}{path}", self.address(element));
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-i",
            "--path-as-is",
            "--max-time",
            "80",
            "-X",
            method,
            "--cacert",
            &file("authority.crt".to_owned()),
        ]);
        if !user.is_empty() {
            curl.args([
                "--cert",
                &file(format!("{user}.crt")),
                "--key",
                &file(format!("{user}.key")),
            ]);
        }
        if body.is_some() && !headers.iter().any(|it| it.starts_with("Content-Type")) {
            curl.args(["-H", "Content-Type: application/json", "-H", "Expect:"]);
        }
        for header in headers {
            curl.args(["-H", header]);
        }
        if let Some(body) = body {
            let file = self.path(&format!("body-{:?}", thread::current().id()));
            fs::write(&file, body).unwrap();
            curl.arg("--data-binary")
                .arg(format!("@{}", file.display()));
        }
        let output = curl.arg(url).stdin(Stdio::null()).output().unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.map_or(0, |status| status.parse().unwrap());
        let body = serde_json::from_str(text).unwrap_or(Value::Null);
        let asked = (
            method.to_owned(),
            path.to_owned(),
            status,
            Value::clone(&body),
        );
        self.asked.borrow_mut().push(asked);
        Asked {
            status,
            body,
            text: text.to_owned(),
            headers: lines
                .filter(|line| !line.starts_with("date:"))
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Opens a session. Returns its identifier.
    pub(crate) fn open(&self, element: &str, order: &Value) -> String {
        let answer = self.ask(
            element,
            "alice",
            "POST",
            "/v1/sessions",
            &[],
            Some(&order.to_string()),
        );
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["id"].as_str().unwrap().to_owned()
    }

    /// A session that is waited for.
    pub(crate) fn ended(&self, element: &str, id: &str) -> Value {
        let path = format!("/v1/sessions/{id}?wait=60");
        let mut answer = Value::Null;
        until("the session ends", || {
            answer = self.ask(element, "alice", "GET", &path, &[], None).body;
            answer["state"] != "running"
        });
        answer
    }

    pub(crate) fn cancel(&self, element: &str, id: &str) {
        let path = format!("/v1/sessions/{id}");
        let answer = self.ask(element, "alice", "DELETE", &path, &[], None);
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    /// Waits until a sensor has so many flows.
    pub(crate) fn until_flows(&self, sensor: &str, flows: usize) {
        let client = Client::connect(&self.sensors[sensor].socket).unwrap();
        until(&format!("{sensor} has {flows} flows"), || {
            let devices = client.status().unwrap().devices;
            let stacks = devices.iter().flat_map(|device| &device.stacks);
            stacks.map(|stack| stack.flows.len()).sum::<usize>() == flows
        });
    }

    /// Has the files of sensors read.
    pub(crate) fn start(&self, sensors: &[&str]) {
        for sensor in sensors {
            let client = Client::connect(&self.sensors[sensor].socket).unwrap();
            client.start("eth0").unwrap();
        }
    }

    /// The packets of a capture that match a display filter.
    pub(crate) fn tshark(&self, file: &str, filter: &str) -> Vec<Packet> {
        const FIELDS: [&str; 14] = [
            "frame.time_epoch",
            "frame.len",
            "ip.len",
            "ip.src",
            "ip.dst",
            "tcp.srcport",
            "tcp.dstport",
            "udp.srcport",
            "udp.dstport",
            "tcp.flags.syn",
            "tcp.flags.ack",
            "frame.protocols",
            "http.time",
            "dns.time",
        ];
        let mut tshark = Command::new("tshark");
        tshark
            .args([
                "-n",
                "-T",
                "fields",
                "-E",
                "separator=;",
                "-Y",
                filter,
                "-r",
            ])
            .arg(self.path(file));
        for field in FIELDS {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let packet = |line: &str| {
            let fields: Vec<&str> = line.split(';').collect();
            let number = |at: usize| fields[at].parse::<u64>().unwrap_or(0);
            let is_set = |at: usize| matches!(fields[at], "1" | "True");
            let first = if fields[5].is_empty() { 7 } else { 5 };
            Packet {
                time: fields[0].parse().unwrap(),
                frame: number(1),
                bytes: number(2),
                protocol: if first == 5 { "tcp" } else { "udp" },
                ends: (
                    (fields[3].to_owned(), number(first)),
                    (fields[4].to_owned(), number(first + 1)),
                ),
                is_syn: is_set(9),
                is_ack: is_set(10),
                spoken: fields[11].split(':').nth(4).unwrap_or_default().to_owned(),
                answered: fields[12..].iter().find_map(|field| field.parse().ok()),
            }
        };
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(packet)
            .collect()
    }

    /// Whether all requests so far and their answers are as the element's document says.
    pub(crate) fn check_document(&self, element: &str) {
        let document = self.ask(element, "", "GET", "/v1/openapi.json", &[], None);
        is_valid(&document.text);
        let document = document.body;
        assert_eq!(
            document["openapi"].as_str().unwrap().split('.').next(),
            Some("3")
        );
        let mut checked = 0;
        for (method, path, status, body) in self.asked.borrow().iter() {
            let parts: Vec<&str> = path.split('?').next().unwrap().split('/').collect();
            let paths = document["paths"].as_object().unwrap().iter();
            let mut paths = paths.filter(|(template, _)| {
                let template: Vec<&str> = template.split('/').collect();
                let pairs = template.iter().zip(&parts);
                template.len() == parts.len()
                    && pairs
                        .clone()
                        .all(|(one, other)| one.starts_with('{') || one == other)
            });
            let Some((_, operations)) = paths.next() else {
                continue;
            };
            let responses = &operations[method.to_lowercase()]["responses"];
            let response = responses
                .get(status.to_string())
                .unwrap_or(&responses["default"]);
            if path == "/v1/metrics" && *status == 200 {
                assert!(response["content"]["text/plain; charset=utf-8"].is_object());
                continue;
            }
            let schema = &response["content"]["application/json"]["schema"];
            assert!(
                schema.is_object(),
                "{method} {path} {status} is not described"
            );
            let wrong = fault(&document, schema, body);
            assert_eq!(wrong, None, "{method} {path} {status} {body}");
            checked += 1;
        }
        assert!(checked > 3);
    }
}

/// Has another program check that a document is one of OpenAPI.
fn is_valid(document: &str) {
    let script = "import sys, json\n\
                  try: from openapi_spec_validator import validate\n\
                  except ImportError: sys.exit(77)\n\
                  validate(json.load(sys.stdin))";
    let python = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        return skipped("no python3");
    };
    python
        .stdin
        .take()
        .unwrap()
        .write_all(document.as_bytes())
        .unwrap();
    match python.wait().unwrap().code() {
        Some(0) => {}
        Some(77) => skipped("no openapi-spec-validator"),
        code => panic!("{code:?}: this is not a document of OpenAPI"),
    }
}

/// Where a value is not as a schema says (of JSON Schema what such documents use).
fn fault(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let here = |what: &str| Some(format!("{what}: {value} is not {schema}"));
    if let Some(name) = schema["$ref"].as_str() {
        let target = document.pointer(name.strip_prefix('#').unwrap());
        return target.map_or_else(|| here("nothing"), |target| fault(document, target, value));
    }
    for (word, one) in [("anyOf", true), ("oneOf", true), ("allOf", false)] {
        let Some(all) = schema[word].as_array() else {
            continue;
        };
        let good = all
            .iter()
            .filter(|it| fault(document, it, value).is_none())
            .count();
        if (one && good == 0) || (!one && good < all.len()) {
            return here(word);
        }
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_kind = |it: &Value| *it == kind || (*it == "number" && kind == "integer");
    let is_good = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(is_kind),
        one => is_kind(one),
    };
    let is_listed = |word: &str| {
        schema[word]
            .as_array()
            .is_none_or(|all| all.contains(value))
    };
    if !is_good || !is_listed("enum") || schema.get("const").is_some_and(|it| it != value) {
        return here("type");
    }
    if let Some(items) = value.as_array() {
        return items
            .iter()
            .find_map(|item| fault(document, &schema["items"], item));
    }
    let object = value.as_object()?;
    let required = schema["required"].as_array().into_iter().flatten();
    if let Some(missing) = required
        .into_iter()
        .find(|it| !object.contains_key(it.as_str().unwrap()))
    {
        return here(&format!("{missing} is missing"));
    }
    object
        .iter()
        .find_map(|(name, value)| match schema["properties"].get(name) {
            Some(schema) => fault(document, schema, value),
            None if schema["additionalProperties"] == false => {
                here(&format!("{name} is not known"))
            }
            None => None,
        })
}

impl Drop for World {
    fn drop(&mut self) {
        self.elements.clear();
        for running in self.sensors.values_mut() {
            running.is_stopped.store(true, Ordering::Relaxed);
        }
        for running in self.sensors.values_mut() {
            running
                .serving
                .take()
                .into_iter()
                .for_each(|it| drop(it.join()));
        }
    }
}
