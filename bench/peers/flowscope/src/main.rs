//! The crate `flowscope` as a peer, on the fastest path its public interface offers.
//!
//! usage: `flowscope-peer flows|streams FILE`
//!
//! * The capture (pcap, microseconds, native byte order) is read here by 1 MB at a time, so that
//!   its own reader, which allocates per packet, does not count against it.
//! * `flows`: its tracker, with every event but the end of a flow suppressed, swept every five
//!   seconds of capture time, and its own NDJSON writer, to /dev/null.
//! * `streams`: its tracker's payload callback and its out-of-order reassembler, found in one
//!   hash table per direction; its own driver looks at every live reassembler on every packet.
//!   Every delivered byte is read. The reassembler throws a segment away whole that begins before
//!   the byte it waits for, and never skips a hole: one segment that overlaps what was delivered
//!   stalls its stream for good, and a fifth of the bytes of `mix` were missing. The old part is
//!   cut off here, as anyone who reads the bytes would do.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};

use flowscope::emit::FlowEventNdjsonWriter;
use flowscope::extract::{FiveTuple, FiveTupleKey};
use flowscope::{
    EventMask, FlowEvent, FlowSide, FlowTracker, FlowTrackerConfig, PacketView, Reassembler,
    SegmentBufferReassembler, Timestamp,
};

const READ_SIZE: usize = 1 << 20;
const SWEEP_SECONDS: u32 = 5;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(mode), Some(path)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: flowscope-peer flows|streams FILE");
        std::process::exit(2);
    };
    match mode.as_str() {
        "flows" => flows(&path),
        "streams" => streams(&path),
        _ => {
            eprintln!("flows or streams?");
            std::process::exit(2);
        }
    }
}

fn tracker() -> FlowTracker<FiveTuple> {
    let mut config = FlowTrackerConfig::default().with_event_filter(
        EventMask::PACKET
            | EventMask::STARTED
            | EventMask::ESTABLISHED
            | EventMask::STATE_CHANGE
            | EventMask::TICK,
    );
    // Its default of 100,000 would evict live flows of the larger traces.
    config.max_flows = 2_000_000;
    FlowTracker::with_config(FiveTuple::bidirectional(), config)
}

fn flows(path: &str) -> io::Result<()> {
    let mut tracker = tracker();
    let sink = BufWriter::with_capacity(1 << 16, File::create("/dev/null")?);
    let mut writer = FlowEventNdjsonWriter::new(sink);
    let mut records = 0u64;
    let mut last_sweep = 0;
    let packets = each_packet(path, |frame, time| {
        for event in tracker.track(PacketView::new(frame, time)) {
            records += 1;
            writer.write_event(&event)?;
        }
        if time.sec >= last_sweep + SWEEP_SECONDS {
            last_sweep = time.sec;
            for event in tracker.sweep(time) {
                records += 1;
                writer.write_event(&event)?;
            }
        }
        Ok(())
    })?;
    for event in tracker.finish() {
        records += 1;
        writer.write_event(&event)?;
    }
    writer.flush()?;
    writeln!(
        io::stdout(),
        "{{\"packets\": {packets}, \"records\": {records}}}"
    )
}

fn streams(path: &str) -> io::Result<()> {
    type Streams = HashMap<(FiveTupleKey, FlowSide), Stream, foldhash::fast::RandomState>;
    let mut tracker = tracker();
    let mut streams = Streams::default();
    let (mut bytes, mut sum) = (0u64, 0u64);
    let mut last_sweep = 0;
    let forget = |streams: &mut Streams, event: &FlowEvent<FiveTupleKey>| {
        if let FlowEvent::Ended { key, .. } = event {
            streams.remove(&(key.clone(), FlowSide::Initiator));
            streams.remove(&(key.clone(), FlowSide::Responder));
        }
    };
    let packets = each_packet(path, |frame, time| {
        let events = tracker.track_with_payload(
            PacketView::new(frame, time),
            |key, side, sequence, payload| {
                let stream = streams.entry((key.clone(), side)).or_default();
                let ready = stream.take(sequence, payload, time);
                bytes += ready.len() as u64;
                sum += ready.iter().map(|&byte| u64::from(byte)).sum::<u64>();
            },
        );
        for event in events {
            forget(&mut streams, &event);
        }
        if time.sec >= last_sweep + SWEEP_SECONDS {
            last_sweep = time.sec;
            for event in tracker.sweep(time) {
                forget(&mut streams, &event);
            }
        }
        Ok(())
    })?;
    writeln!(
        io::stdout(),
        "{{\"packets\": {packets}, \"bytes\": {bytes}, \"sum\": {sum}}}"
    )
}

/// A direction: the reassembler, and the number of the byte it waits for.
#[derive(Default)]
struct Stream {
    reassembler: SegmentBufferReassembler,
    next: Option<u32>,
}

impl Stream {
    /// Takes a segment and returns what is in order now.
    fn take(&mut self, sequence: u32, payload: &[u8], time: Timestamp) -> Vec<u8> {
        let next = *self.next.get_or_insert(sequence);
        let old = next.wrapping_sub(sequence) as i32;
        match payload.get(old.max(0) as usize..) {
            Some(new) if old > 0 && !new.is_empty() => self.reassembler.segment(next, new, time),
            _ => self.reassembler.segment(sequence, payload, time),
        }
        let ready = self.reassembler.take();
        self.next = Some(next.wrapping_add(ready.len() as u32));
        ready
    }
}

/// Calls `consume` for every packet of a native-order pcap file; returns their number.
fn each_packet(
    path: &str,
    mut consume: impl FnMut(&[u8], Timestamp) -> io::Result<()>,
) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut header = [0; 24];
    file.read_exact(&mut header)?;
    let nanoseconds_per_unit =
        match u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) {
            0xa1b2_c3d4 => 1000,
            0xa1b2_3c4d => 1,
            _ => return Err(io::Error::other("not a native-order pcap file")),
        };
    let word = |buffer: &[u8], at: usize| {
        u32::from_ne_bytes([buffer[at], buffer[at + 1], buffer[at + 2], buffer[at + 3]])
    };
    let mut buffer = vec![0; READ_SIZE + (1 << 19)];
    let (mut start, mut end, mut packets) = (0, 0, 0);
    loop {
        while end - start >= 16 {
            let length = word(&buffer, start + 8) as usize;
            if end - start < 16 + length {
                break;
            }
            let time = Timestamp::new(
                word(&buffer, start),
                word(&buffer, start + 4) * nanoseconds_per_unit,
            );
            consume(&buffer[start + 16..start + 16 + length], time)?;
            packets += 1;
            start += 16 + length;
        }
        buffer.copy_within(start..end, 0);
        end -= start;
        start = 0;
        let room = READ_SIZE.min(buffer.len() - end);
        let read = file.read(&mut buffer[end..end + room])?;
        if read == 0 {
            return Ok(packets);
        }
        end += read;
    }
}
