//! The streams with the most bytes of a capture file or an interface, and how each begins:
//! `top_streams FILE|INTERFACE [SECONDS]`. Of each stream no more than the first kilobyte is delivered; its size is known all
//! the same.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use flowgauge_runtime::{Capture, Chunk, Handlers, StreamHandle};
use flowgauge_stream::StreamIdentity;
use flowgauge_stream::engine::{ApplicationConfig, Cutoff, Cutoffs};

/// Streams shown.
const SHOWN: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        return Err("usage: top_streams FILE|INTERFACE [SECONDS]".into());
    };
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let capture = match Path::new(&name).exists() {
        true => Capture::file(&name),
        false => Capture::interface(&name),
    };
    let control = capture.control();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        control.stop();
    });
    let application = ApplicationConfig {
        cutoff: Cutoffs {
            default: Cutoff(1000),
            ..Cutoffs::default()
        },
        ..ApplicationConfig::default()
    };
    let (to, ended) = channel();
    let outcome = capture
        .shards(2)
        .application(application, move |_thread| Beginnings {
            streams: Vec::new(),
            begun: Vec::new(),
            to: to.clone(),
        })
        .run()?;
    let mut streams: Vec<Ended> = ended.try_iter().flatten().collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.bytes));
    for stream in streams.iter().take(SHOWN) {
        let who = &stream.identity;
        let from = (who.source.0.to_ip(who.version), who.source.1);
        let to = (who.destination.0.to_ip(who.version), who.destination.1);
        println!("{:>14}  {from:?} > {to:?}  {}", stream.bytes, stream.begins);
    }
    println!("{} streams; {:?}", streams.len(), outcome.ledger);
    Ok(())
}

struct Ended {
    identity: StreamIdentity,
    bytes: u64,
    begins: String,
}

/// How the streams of one thread begin.
struct Beginnings {
    streams: Vec<Ended>,
    /// First line of each, by the number in its user state.
    begun: Vec<String>,
    to: Sender<Vec<Ended>>,
}

impl Handlers for Beginnings {
    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        if stream.user_state() != 0 {
            return;
        }
        let line = chunk.bytes().split(|&byte| byte == b'\n').next();
        let text = line.unwrap_or_default().iter().take(60);
        self.begun
            .push(text.map(|byte| byte.escape_ascii().to_string()).collect());
        stream.set_user_state(self.begun.len() as u64);
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        let at = (stream.user_state() as usize).checked_sub(1);
        let begins = at.and_then(|at| self.begun.get_mut(at)).map(std::mem::take);
        self.streams.push(Ended {
            identity: stream.identity(),
            bytes: stream.statistics().all.bytes,
            begins: begins.unwrap_or_default(),
        });
    }

    fn finish(&mut self) {
        // Who started this waits until all threads have ended.
        let _ = self.to.send(std::mem::take(&mut self.streams));
    }
}
