//! Packets through `output` and `input`, two processes, over loopback TLS: how many a second.
//!
//! ```text
//! cargo run --release -p flowgauge-components --example network -- [PACKETS] [BYTES] [kill]
//! ```
//!
//! With `kill` the receiving process is killed in the middle, and another one takes its place.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a measurement, not the program

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flowgauge_link::KeyFolder;
use flowgauge_record::results::Cell;
use flowgauge_registry::registry;
use flowgauge_stack::syntax::Document;
use flowgauge_stack::{Graph, Received, ResultValue, Sources, Stack, check, parse_stack};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodedBatch, LinkType, Nanos, PacketDescriptor, hash_batch,
};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().unwrap_or_else(|| "10000000".to_owned());
    if first == "receive" {
        return receive(
            Path::new(&arguments.next().unwrap()),
            &arguments.next().unwrap(),
        );
    }
    let packets: u64 = first.parse().expect("a number of packets");
    let bytes = arguments
        .next()
        .map_or(100, |bytes| bytes.parse().expect("a number of bytes"));
    let kill = arguments.next().is_some_and(|word| word == "kill");
    let folder = std::env::temp_dir().join(format!("flowgauge-network-{}", std::process::id()));
    let keys = KeyFolder::new(&folder);
    keys.create_authority().unwrap();
    for name in ["collector", "sensor1"] {
        keys.add(name, &["127.0.0.1".to_owned()], 1).unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    drop(port);
    send(&folder, &address, packets, bytes, kill);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn stack(text: &str) -> Stack {
    let mut sources = Sources::default();
    let file = sources.add("stack".to_owned(), text.to_owned()).unwrap();
    let document = Document::of(parse_stack(&sources, file).unwrap());
    check(&document, registry())
        .program
        .unwrap()
        .stacks
        .remove(0)
}

/// The receiving process; it says that it listens, and in the end what came.
fn receive(folder: &Path, address: &str) {
    let stack = stack(&format!(
        "input {{ listen = {address}, keys = {}, identity = collector, senders = 1 }} count",
        folder.display()
    ));
    let mut graph = Graph::new(&stack).unwrap();
    graph.start().unwrap();
    println!("listening");
    while graph.receive(Duration::from_secs(1)).unwrap() != Received::End {}
    graph.finish().unwrap();
    let counted = graph.result(stack.find("count").unwrap()).unwrap();
    let Some(ResultValue::Table(table)) = graph.result(stack.entry) else {
        return;
    };
    let mut line = format!("counted {counted}");
    for (column, cell) in table.columns.iter().zip(&table.rows[0]) {
        if let Cell::Unsigned(value) = cell {
            line += &format!(", {} {value}", column.field.name);
        }
    }
    println!("{line}");
}

fn start(folder: &Path, address: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("receive")
        .args([folder.as_os_str(), address.as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    (child, lines)
}

fn send(folder: &Path, address: &str, packets: u64, bytes: usize, kill: bool) {
    let (mut child, mut lines) = start(folder, address);
    let stack = stack(&format!(
        "output {{ to = {address}, keys = {}, identity = sensor1 }}",
        folder.display()
    ));
    let mut graph = Graph::new(&stack).unwrap();
    graph.start().unwrap();
    // One batch again and again, each time later.
    let memory = vec![0x45; bytes];
    let mut descriptors = [PacketDescriptor {
        captured_len: bytes as u32,
        wire_len: bytes as u32,
        link: LinkType::RAW,
        ..PacketDescriptor::default()
    }; BATCH_SIZE];
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
    let began = Instant::now();
    let mut sent = 0;
    let mut time = 0;
    let mut to_kill = kill;
    while sent < packets {
        let now = (packets - sent).min(BATCH_SIZE as u64);
        for descriptor in &mut descriptors {
            time += 700;
            descriptor.time = Nanos(time);
        }
        let batch = Batch::new(&memory, &descriptors[..now as usize]);
        decoder.decode_batch(&batch, &mut decoded);
        hash_batch(&mut decoded.packets);
        graph.process(&batch, &decoded, Nanos(time)).unwrap();
        sent += now;
        if to_kill && sent > packets / 2 {
            to_kill = false;
            child.kill().unwrap();
            child.wait().unwrap();
            (child, lines) = start(folder, address);
        }
    }
    graph.finish().unwrap();
    let took = began.elapsed().as_secs_f64();
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    child.wait().unwrap();
    let delivered = graph.result(stack.entry).unwrap();
    println!(
        "sent {sent} of {bytes} bytes, delivered {delivered}; {}",
        line.trim_end()
    );
    println!(
        "{took:.2} s, {:.2} million packets/s",
        sent as f64 / took / 1e6
    );
    std::io::stdout().flush().unwrap();
}
