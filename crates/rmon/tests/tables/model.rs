//! The tables as a naive program keeps them, which is `model.py`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use flowgauge_rmon::{Oid, Probe, Value};

use crate::traces::{Packet, walk};

/// A process that is told packets, and asked what a manager would see.
#[derive(Debug)]
pub(crate) struct Model {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
    text: String,
}

/// Where the model stands.
#[derive(Debug)]
pub(crate) struct State {
    /// sysUpTime.
    pub(crate) tick: u32,
    /// Inserts and deletes of hosts, then of pairs; each of the network layer and of the application layer.
    pub(crate) counts: [[u64; 4]; 2],
}

impl Model {
    /// A model of what the probe counts, with bounds of entries. None without Python.
    pub(crate) fn new(probe: &mut Probe, most: [usize; 2], zero: u64) -> Option<Model> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tables/model.py");
        let child = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            crate::corpora::skipped("no python3");
            return None;
        };
        let mut model = Model {
            input: BufWriter::new(child.stdin.take().unwrap()),
            output: BufReader::new(child.stdout.take().unwrap()),
            text: String::new(),
            child,
        };
        let [rows, applications] = most;
        model.tell(format_args!("begin {zero} {rows} {applications}"));
        // HostConfig by index: whether hosts and pairs are counted.
        let configs: BTreeMap<Vec<u32>, Value> = walk(probe, "11.2.1.7")
            .into_iter()
            .map(|(name, value)| (name.numbers()[11..].to_vec(), value))
            .collect();
        for (name, value) in walk(probe, "11.2.1.3") {
            let Value::Integer(local) = value else {
                panic!("{name}: {value:?}");
            };
            let index = &name.numbers()[11..];
            let octets = index[1..=index[0] as usize].iter();
            let id: String = octets.map(|octet| format!("{octet:02x}")).collect();
            let is_counted = u8::from(configs[index] == Value::Integer(3));
            model.tell(format_args!("protocol {id} {local} {is_counted}"));
        }
        Some(model)
    }

    fn tell(&mut self, command: std::fmt::Arguments<'_>) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// The next line that it answers.
    fn answer(&mut self) -> &str {
        self.input.flush().unwrap();
        self.text.clear();
        self.output.read_line(&mut self.text).unwrap();
        assert!(self.text.ends_with('\n'), "model.py has ended");
        self.text.trim_end()
    }

    pub(crate) fn count(&mut self, packet: &Packet) {
        let mut data = String::from("x");
        for octet in &packet.bytes {
            write!(data, "{octet:02x}").unwrap();
        }
        let (tick, link) = (packet.time.0 / 10_000_000, packet.link.0);
        let is_tagged = u8::from(packet.tag.is_some());
        let length = packet.length;
        self.tell(format_args!(
            "packet {tick} {length} {link} {is_tagged} {data}"
        ));
    }

    /// All objects of the tables at a time mark.
    pub(crate) fn objects(&mut self, mark: u32) -> BTreeMap<Oid, Value> {
        self.tell(format_args!("objects {mark}"));
        let mut objects = BTreeMap::new();
        loop {
            let line = self.answer();
            let mut words = line.split(' ');
            let (Some(name), Some(kind), Some(value)) = (words.next(), words.next(), words.next())
            else {
                return objects;
            };
            let name: Oid = format!("1.3.6.1.2.1.16.{name}").parse().unwrap();
            let octet = |at: usize| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
            let value = match kind {
                "G" => Value::Gauge32(value.parse().unwrap()),
                "T" => Value::TimeTicks(value.parse().unwrap()),
                _ => Value::Octets((0..value.len()).step_by(2).map(octet).collect()),
            };
            assert_eq!(objects.insert(name, value), None, "{line}");
        }
    }

    pub(crate) fn state(&mut self) -> State {
        self.tell(format_args!("state"));
        let words = self.answer().split(' ');
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
        let of = |at: usize| std::array::from_fn(|number| numbers[1 + at + number]);
        State {
            tick: numbers[0] as u32,
            counts: [of(0), of(4)],
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
