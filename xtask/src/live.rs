//! The live part of the demo: real connections over loopback, captured as they happen.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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

/// Waits until the packet socket of `capture` is there; `false` when it ended before.
fn is_capturing(capture: &mut Child) -> Result<bool, String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let folder = format!("/proc/{}/fd", capture.id());
    while Instant::now() < deadline {
        if capture
            .try_wait()
            .map_err(|error| format!("flowgauge: {error}"))?
            .is_some()
        {
            return Ok(false);
        }
        let sockets = std::fs::read_dir(&folder).map_or(0, |entries| {
            let links = entries
                .flatten()
                .filter_map(|entry| std::fs::read_link(entry.path()).ok());
            links
                .filter(|link| link.to_string_lossy().starts_with("socket:"))
                .count()
        });
        if sockets > 0 {
            // The filter and the binding follow the socket at once.
            thread::sleep(Duration::from_millis(300));
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err("the capture did not start within 10 s".to_owned())
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
