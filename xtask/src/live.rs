//! The live part of the demo: real connections over loopback, captured as they happen.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

const CONNECTIONS: usize = 20;
const PAGE_BYTES: usize = 20_000;

/// Captures on `lo` while pages are fetched, writes the flows to `output` and shows them by
/// service. Returns whether capturing was permitted.
pub(crate) fn run(binary: &Path, output: &Path) -> Result<bool, String> {
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(|error| format!("loopback: {error}"))?;
    let address = listener
        .local_addr()
        .map_err(|error| format!("loopback: {error}"))?;
    let port = address.port().to_string();
    let file = File::create(output)
        .map_err(|error| format!("cannot create {}: {error}", output.display()))?;
    println!("$ flowgauge flows -i lo tcp port {port}");
    let mut capture = Command::new(binary)
        .args(["flows", "-i", "lo", "tcp", "port", &port])
        .stdout(Stdio::from(file))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
    if !is_capturing(&mut capture)? {
        println!("no live capture here (see above); as root this shows {CONNECTIONS} live flows");
        return Ok(false);
    }
    let server = thread::spawn(move || serve(&listener));
    let fetched: Result<usize, std::io::Error> = (0..CONNECTIONS).map(|_| fetch(address)).sum();
    let served = server
        .join()
        .map_err(|_| "the page server panicked".to_owned())?;
    let fetched = fetched.and_then(|bytes| served.map(|()| bytes));
    // As Ctrl-C does: what is in the ring is still processed.
    let stopped = Command::new("kill")
        .args(["-INT", &capture.id().to_string()])
        .status();
    stopped.map_err(|error| format!("kill: {error}"))?;
    let status = capture
        .wait()
        .map_err(|error| format!("flowgauge: {error}"))?;
    if !status.success() {
        return Err(format!("flowgauge ended with {status}"));
    }
    let fetched = fetched.map_err(|error| format!("loopback: {error}"))?;
    let records = std::fs::read_to_string(output)
        .map_err(|error| format!("cannot read {}: {error}", output.display()))?;
    println!(
        "{CONNECTIONS} pages fetched, {fetched} bytes; {} flows seen",
        records.lines().count()
    );
    Ok(true)
}

/// Waits until `flowgauge` says that it listens, and shows what else it says from then on;
/// `false` when it ended before.
fn is_capturing(capture: &mut Child) -> Result<bool, String> {
    let messages = capture.stderr.take().ok_or("no standard error")?;
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(messages).lines().map_while(Result::ok) {
            eprintln!("{line}");
            if line.contains("listening on") && ready.send(()).is_err() {
                return;
            }
        }
    });
    Ok(is_ready.recv().is_ok())
}

fn serve(listener: &TcpListener) -> std::io::Result<()> {
    let page = vec![b'x'; PAGE_BYTES];
    for _ in 0..CONNECTIONS {
        let (mut client, _) = listener.accept()?;
        let mut request = [0; 1024];
        if client.read(&mut request)? > 0 {
            write!(
                client,
                "HTTP/1.0 200 OK\r\nContent-Length: {PAGE_BYTES}\r\n\r\n"
            )?;
            client.write_all(&page)?;
        }
    }
    Ok(())
}

fn fetch(address: std::net::SocketAddr) -> std::io::Result<usize> {
    let mut server = TcpStream::connect(address)?;
    server.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut page = Vec::new();
    server.read_to_end(&mut page)
}
